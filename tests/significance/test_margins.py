"""Margins and power: verdicts and the smallest detectable difference, by slow references and by drawn samples."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import optimize, stats

from stsbench.boards.render.figures import render_comparison
from stsbench.check.falls import FallTest
from stsbench.numbers.dependence import ItemDependence
from stsbench.numbers.intervals import StandardError
from stsbench.numbers.statistics import spearman_influence
from stsbench.numbers.tails import SummedVariances, upper_tails
from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import Comparison
from stsbench.significance.descriptions import (
    describe_comparison,
    describe_notes,
    difference_columns,
)
from stsbench.significance.differences import EstimatedDifference, ScoreSample
from stsbench.significance.margins import (
    interval_verdict,
    margin_verdict,
    required_items,
    required_seeds,
    smallest_detectable,
)
from stsbench.significance.paired import PairedShares
from tests.boards.scored import probe, sts
from tests.significance.pairs import FEW, pair

INFINITE, UNKNOWN = math.inf, math.nan
MARGIN = 0.005


def literal_verdict(difference: float, error: float, df: float, margin: float, level: float) -> str:
    """By the p-values of scipy's distribution, each in its own words."""
    p_not_worse = stats.t.sf((difference + margin) / error, df)
    p_not_better = stats.t.cdf((difference - margin) / error, df)
    p_worse = stats.t.cdf((difference + margin) / error, df)
    if p_not_worse < level and p_not_better < level:
        return "within"
    if p_not_worse < level:
        return "not worse"
    return "worse than" if p_worse < level else "open"


@pytest.mark.parametrize("df", [0.4, 1.0, 2.0, 7.5, 59.0, INFINITE])
@pytest.mark.parametrize("level", [0.05, 0.025])
def test_a_verdict_is_that_of_two_one_sided_t_tests(df, level):
    rng = np.random.default_rng(0)
    verdicts = set()
    for _ in range(400):
        difference, error = 0.01 * rng.normal(), 10 ** rng.uniform(-6, -1)
        verdict = margin_verdict(EstimatedDifference(difference, error, df), MARGIN, level)
        assert verdict == literal_verdict(difference, error, df, MARGIN, level)
        verdicts.add(verdict)
    assert len(verdicts) == 4


@pytest.mark.parametrize(
    ("difference", "margin", "verdict"),
    [
        (0.0, 0.0, "within"),
        (0.004, MARGIN, "within"),
        (MARGIN, MARGIN, "within"),
        (-MARGIN, MARGIN, "within"),
        (0.006, MARGIN, "not worse"),
        (-0.006, MARGIN, "worse than"),
        (-1e-9, 0.0, "worse than"),
    ],
)
def test_without_an_error_the_difference_is_compared_with_the_margin(difference, margin, verdict):
    assert margin_verdict(EstimatedDifference(difference, 0.0, 9.0), margin) == verdict


@pytest.mark.parametrize(
    "estimate",
    [(0.0, INFINITE, 1.0), (0.0, UNKNOWN, 3.0), (UNKNOWN, 0.001, 3.0), (0.0, 0.001, UNKNOWN)],
)
def test_what_is_unknown_stays_open(estimate):
    assert margin_verdict(EstimatedDifference(*estimate), MARGIN) == "open"


@pytest.mark.parametrize("df", [0.7, 2.0, 30.0, INFINITE])
def test_within_at_half_the_level_is_an_interval_within_the_margin(df):
    rng = np.random.default_rng(1)
    for _ in range(500):
        estimate = EstimatedDifference(0.004 * rng.normal(), 10 ** rng.uniform(-5, -2), df)
        low, high = estimate.interval()
        is_within = -MARGIN <= low <= high <= MARGIN
        assert (margin_verdict(estimate, MARGIN, 0.025) == "within") is is_within


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((-0.004, 0.004), "within"),
        ((-0.004, 0.005), "not worse"),
        ((-0.005, 0.004), "open"),
        ((-0.02, -0.005), "open"),
        ((-0.02, -0.006), "worse than"),
        ((0.01, 0.02), "not worse"),
    ],
)
def test_an_interval_answers_on_a_margin_that_it_does_not_contain(interval, verdict):
    assert interval_verdict(interval, MARGIN) == verdict


def test_answers_to_right_or_wrong_items_come_from_their_own_interval():
    answers = [1] * 300 + [0] * 300
    other = [0, *answers[1:599], 1]
    results = {name: [probe(name, "mr", one)] for name, one in (("a", answers), ("b", other))}
    # Student's interval of one item each way is too narrow for so few.
    low, high = PairedShares(600, 1, 1).interval(0.9)
    for margin in (0.004, 0.007, 0.009):
        (row,) = compare(results, settings=replace(FEW, margin=margin)).differences
        assert row.discordant == (1, 1)
        assert row.margin_verdict == interval_verdict((low, high), margin)
        assert row.margin_verdict == ("within" if margin > high else "open")
    assert row.error is not None and 1.65 * row.error < 0.004 < 0.007 < high < 0.009


def test_what_tests_of_probes_do_not_count_is_noted():
    probes = {name: [probe(name, "mr", [1, 0, 1, 1])] for name in "ab"}
    assert (
        sum("training sample" in note for note in describe_notes(compare(probes, settings=FEW)))
        == 1
    )
    assert "training sample" not in "".join(describe_notes(compared(sts12=0.2)))


# Samples whose true difference is known.


TRIALS = 6000
"""The Monte Carlo error of a rate of 5% is 0.28 points, of 80% 0.52 points."""


@cache
def drawn_errors(n_items: int) -> list[EstimatedDifference]:
    """Differences of two encoders' mean over items: the true one is 0, its true error is 1."""
    rng = np.random.default_rng(0)
    dependence = ItemDependence.without_shared(n_items)
    weights = np.full(n_items, 1 / n_items)
    estimates = []
    for _ in range(TRIALS):
        values = n_items**0.5 * rng.normal(size=n_items)
        influences = (values - values.mean()) / n_items
        sample = ScoreSample(np.array([values.mean()]), influences[None], ())
        estimates.append(EstimatedDifference.estimate(None, sample, dependence, weights))
    return estimates


def drawn_estimates(true_difference: float, n_items: int) -> list[EstimatedDifference]:
    return [
        EstimatedDifference(estimate.difference + true_difference, estimate.error, estimate.df)
        for estimate in drawn_errors(n_items)
    ]


@pytest.mark.parametrize("n_items", [3, 11, 60])
@pytest.mark.parametrize("margin", [1.0, 2.5, 4.0])
def test_verdicts_at_the_margin_are_wrong_in_five_of_a_hundred_samples(n_items, margin):
    if n_items == 3:
        # The estimated error of three items varies: 2.5 of the true one are fewer of many samples.
        margin *= 3
    at_the_margin = [
        [margin_verdict(estimate, margin) for estimate in drawn_estimates(truth, n_items)]
        for truth in (margin, -margin)
    ]
    for verdicts in at_the_margin:
        rate = np.mean([verdict == "within" for verdict in verdicts])
        assert rate <= 0.07
        if margin >= 2.5:
            assert rate >= 0.03
    below = at_the_margin[1]
    for side in (("within", "not worse"), ("worse than",)):
        assert 0.03 <= np.mean([verdict in side for verdict in below]) <= 0.07


@pytest.mark.parametrize("n_items", [3, 4, 11, 60])
@pytest.mark.parametrize("level", [0.05, 0.05 / 21])
def test_the_smallest_difference_is_found_in_eighty_of_a_hundred_samples(n_items, level):
    smallest = smallest_detectable(StandardError(1.0, n_items - 1), level)
    for sign in (1, -1):
        estimates = drawn_estimates(sign * smallest, n_items)
        found = [estimate.p < level and sign * estimate.difference > 0 for estimate in estimates]
        assert 0.77 <= np.mean(found) <= 0.83


def literal_smallest(error: float, df: float, level: float, power: float) -> float:
    quantile = stats.t.ppf(1 - level / 2, df)

    def lacking(difference: float) -> float:
        return float(stats.nct.sf(quantile, df, difference / error) - power)

    return float(optimize.brentq(lacking, 0, 1e3 * error))


@pytest.mark.parametrize("df", [1.0, 2.0, 3.7, 59.0, 1e5])
@pytest.mark.parametrize("level", [0.05, 0.05 / 21])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
def test_the_smallest_difference_is_the_root_of_the_noncentral_t(df, level, power):
    assert smallest_detectable(StandardError(0.02, df), level, power) == pytest.approx(
        literal_smallest(0.02, df, level, power), rel=1e-6
    )


@pytest.mark.parametrize(
    ("df", "level"), [(0.1, 0.05), (0.5, 0.05), (0.9, 0.05), (0.5, 1e-4), (0.9, 5e-5), (2.0, 1e-7)]
)
def test_below_one_degree_of_freedom_and_far_out_power_is_the_mean_over_estimated_errors(df, level):
    quantile = stats.t.ppf(1 - level / 2, df)
    shares = (np.arange(20_000) + 0.5) / 20_000
    estimated_errors = np.sqrt(stats.chi2.ppf(shares, df) / df)
    smallest = smallest_detectable(StandardError(1.0, df), level)
    power = stats.norm.cdf(smallest - quantile * estimated_errors).mean()
    assert power == pytest.approx(0.8, abs=1e-3)


def test_the_smallest_difference_at_its_edges():
    normal = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    assert smallest_detectable(StandardError(3.0, INFINITE)) == pytest.approx(3 * normal)
    assert smallest_detectable(StandardError(3.0, 1e12)) == pytest.approx(3 * normal)
    assert smallest_detectable(StandardError(3.0, 0.99e9)) == pytest.approx(3 * normal, rel=1e-6)
    assert (
        smallest_detectable(StandardError(0.0, 2.0))
        == 0.0
        == smallest_detectable(StandardError(0.0, INFINITE))
    )
    assert smallest_detectable(StandardError(INFINITE, 1.0)) == INFINITE
    assert math.isnan(smallest_detectable(StandardError(UNKNOWN, 2.0)))
    assert math.isnan(smallest_detectable(StandardError(1.0, UNKNOWN)))


# Plans


def test_the_number_of_items_is_the_first_that_finds_the_difference():
    items = [StandardError(0.02, 59.0)]
    for difference in (0.02, 0.05, 0.2):
        n = required_items(items, 60, difference)
        assert n is not None
        smallest = [
            literal_smallest(0.02 * (60 / some) ** 0.5, some - 1, 0.05, 0.8) for some in (n - 1, n)
        ]
        assert smallest[1] <= difference < smallest[0]
    assert required_items(items, 60, smallest_detectable(StandardError(0.02, 59.0)) + 1e-9) == 60
    strict = required_items(items, 60, 0.05, level=0.05 / 7)
    assert strict is not None and strict > (required_items(items, 60, 0.05) or 0)
    assert required_items(items, 60, 1e-9) is None
    # Two items are the fewest whose error can be estimated.
    assert required_items([StandardError(0.0, 59.0)], 60, 0.01) == 2
    # 60 items with as much information as six.
    assert required_items([StandardError(0.0, 5.0)], 60, 0.01) == 20


def test_the_number_of_seeds_is_the_first_that_finds_the_difference():
    items = StandardError(0.003, 400.0)

    def literal(n: int, deviation: float) -> float:
        over_seeds = 2 * deviation**2 / n
        error = (items.error**2 + over_seeds) ** 0.5
        # Two encoders with the same deviation.
        total = StandardError(error, items.df, over_seeds**0.5, seed_df=2 * (n - 1))
        return smallest_detectable(total)

    for deviation in (0.003, 0.01):
        n = required_seeds([items], deviation, 0.01)
        assert n is not None and n > 2
        assert literal(n, deviation) <= 0.01 < literal(n - 1, deviation)
    assert required_seeds([items], 0.0, 0.01) == 2
    assert required_seeds([StandardError(0.0, 9.0)], 0.0, 0.01) == 2
    # No number of seeds makes up for too few items.
    assert (
        required_seeds([items], 0.003, 0.99 * smallest_detectable(StandardError(0.003, 400.0)))
        is None
    )


def test_of_two_errors_the_one_that_finds_less_counts():
    wider, other = StandardError(0.03, 200.0), StandardError(0.018, 3.0)
    assert wider.half_width > other.half_width
    estimate = EstimatedDifference(0.05, *wider, other_error=other)
    level = 0.001
    alone = [EstimatedDifference(0.05, *error) for error in (wider, other)]
    # Far from the margin the error with few degrees of freedom says less.
    assert [margin_verdict(each, 0.09, level) for each in alone] == ["not worse", "open"]
    assert margin_verdict(estimate, 0.09, level) == "open"
    smallest = [smallest_detectable(error, level) for error in (wider, other)]
    assert smallest[1] > smallest[0]
    fall = FallTest(0.01, "by items", estimate)
    assert fall.smallest_fall(level) == smallest[1]
    for errors in ([wider, other], [other, wider]):
        n = required_items(errors, 400, 0.15, level)
        assert n == required_items([other], 400, 0.15, level) != required_items([wider], 400, 0.15)
        assert required_seeds(errors, 0.01, 0.15, level) == required_seeds(
            [other], 0.01, 0.15, level
        )


def test_a_comparison_takes_the_error_that_finds_less():
    # Each pair shares a sentence with the next of its chain: the two estimates differ.
    rng = np.random.default_rng(3)
    gold = rng.normal(size=60)
    starts = (100 * np.repeat(np.arange(12), 5) + np.tile(np.arange(5), 12)).astype(np.uint32)
    sentences = {"sentence1": starts, "sentence2": starts + 1}
    sides = {}
    for name in "ab":
        result = sts(name, "sts12", gold, gold + rng.normal(size=60))
        sides[name] = [msgspec.structs.replace(result, per_item={**result.per_item, **sentences})]
    (row,) = compare(sides, settings=replace(FEW, plan=0.2)).differences
    assert row.estimate is not None and row.estimate.other_error is not None
    errors = row.estimate.errors
    assert len(errors) == 2 and len({error.df for error in errors}) == 2
    literal = max(smallest_detectable(error, 0.05) for error in errors)
    assert row.smallest_detectable == (None if math.isinf(literal) else literal)
    assert row.required_items == required_items(errors, row.n, 0.2)


@pytest.mark.parametrize(("seed_share", "seed_df"), [(0.3, 4.0), (0.9, 2.0), (0.6, 18.0)])
@pytest.mark.parametrize("level", [0.05, 0.005])
def test_the_smallest_difference_over_seeds_is_found_with_the_power(
    seed_share: float, seed_df: float, level: float
):
    rng = np.random.default_rng(int(100 * seed_share))
    n_samples = 3000
    true_error = 0.02
    smallest = smallest_detectable(
        StandardError(true_error, 500.0, true_error * seed_share**0.5, seed_df), level
    )
    differences = smallest + true_error * rng.normal(size=n_samples)
    item_variance = true_error**2 * (1 - seed_share)
    # The variance over seeds is estimated.
    seed_variances = true_error**2 * seed_share * rng.chisquare(seed_df, n_samples) / seed_df
    variances = SummedVariances(
        np.full(n_samples, item_variance), 500.0, seed_variances, np.full(n_samples, seed_df)
    )
    p = 2 * upper_tails(np.abs(differences), variances)
    power = np.mean((p < level) & (differences > 0))
    # An error of 0.7 points.
    assert power == pytest.approx(0.8, abs=0.025)


# Comparisons


def compared(margin: float | None = None, **shifts: float) -> Comparison:
    """Two encoders on one task per keyword, the second with noise of this size."""
    results: dict[str, list[Any]] = {"a": [], "b": []}
    for task, shift in shifts.items():
        for result in pair(task, shift=shift):
            results[result.encoder].append(result)
    return compare(results, settings=replace(FEW, margin=margin))


SHIFTS = {"sts12": 0.05, "sts13": 0.2, "sts14": 0.9, "sts15": 0.0}


def test_every_row_has_its_verdict_and_what_could_be_found():
    plain, judged = compared(**SHIFTS), compared(0.02, **SHIFTS)
    assert (plain.margin, judged.margin) == (None, 0.02)
    verdicts = {}
    for without, row in zip(plain.differences, judged.differences, strict=True):
        assert without.margin_verdict is None
        assert row == replace(without, margin_verdict=row.margin_verdict)
        assert row.interval is not None and row.error is not None and row.df is not None
        verdicts[row.task] = row.margin_verdict
        if row.task == "sts15":
            # Equal values are equal up to their rounding.
            assert row.error == 1e-7 and 0 < (row.smallest_detectable or 0) < 1e-6
            continue
        estimate = EstimatedDifference(row.difference, row.error, row.df)
        assert estimate.interval() == row.interval
        assert row.margin_verdict == literal_verdict(*estimate[:3], 0.02, 0.05)
        family = 1 if row.is_average else 4
        assert row.smallest_detectable == pytest.approx(
            literal_smallest(row.error, row.df, 0.05 / family, 0.8), rel=1e-6
        )
    assert verdicts == {
        "sts12": "not worse",
        "sts13": "open",
        "sts14": "worse than",
        "sts15": "within",
        "mean of 4 tasks": "worse than",
    }


def test_the_answers_stand_in_every_format():
    judged = compared(0.02, **SHIFTS)
    verdicts = [row.margin_verdict for row in judged.differences]
    rows = list(csv.DictReader(io.StringIO(render_comparison(judged, "csv"))))
    assert [row["margin_verdict"] for row in rows] == verdicts
    document = json.loads(render_comparison(judged, "json"))
    assert document["margin"] == 0.02
    for record, row, line in zip(document["differences"], judged.differences, rows, strict=True):
        for name in ("error", "df", "smallest_detectable", "margin_verdict"):
            assert record[name] == getattr(row, name)
            assert line[name] == str(getattr(row, name))
    heads, cells = difference_columns(judged.differences)
    assert heads[-1] == "margin" and [row[-1] for row in cells] == verdicts
    assert difference_columns(compared(**SHIFTS).differences)[0][-1] == "Holm p"
    for form in ("markdown", "latex"):
        text = render_comparison(judged, form)
        assert "worse than" in text and "without Holm's correction" in text


def test_sentences_name_the_tasks_by_verdict_and_what_could_be_found():
    (sentence,) = describe_comparison(compared(0.02, **SHIFTS))
    for part in (
        "a and b differ by less than 2 points on sts15. ",
        "b is not worse than a by 2 points on sts12. ",
        "b is worse than a by more than 2 points on sts14, the mean of 4 tasks. ",
        "The margin of 2 points leaves it open on sts13. ",
    ):
        assert part in sentence
    rows = {row.task: row for row in compared(**SHIFTS).differences}
    listed = ", ".join(
        f"{100 * (rows[task].smallest_detectable or 0):.2f} points on {task}"
        for task in ("sts12", "sts13", "sts14")
    )
    assert f"on any of 4 tasks (lowest Holm p = .080); found with 80% power: {listed}. " in sentence
    assert "margin" not in "".join(describe_comparison(compared(**SHIFTS)))
    assert "differ by less than 1 point on" in describe_comparison(compared(0.01, sts12=0.0))[0]
    (partly,) = describe_comparison(compared(sts12=0.2, sts13=3.0))
    assert "No significant difference on the other task; found with 80% power: " in partly


def test_one_task_and_a_mean_say_what_could_be_found():
    one = compared(sts12=0.2)
    smallest = 100 * (one.differences[0].smallest_detectable or 0)
    (sentence,) = describe_comparison(one)
    assert f"); found with 80% power: {smallest:.2f} points. " in sentence
    means = compared(sts12=0.1, sts13=0.1)
    mean = next(row for row in means.differences if row.is_average)
    assert not mean.real
    size = f"{100 * (mean.smallest_detectable or 0):.2f} points"
    assert f"); found with 80% power: {size}. Significant" in describe_comparison(means)[0]
    notes = "".join(describe_notes(means))
    assert "significant in 80% of samples" in notes
    assert "80%" not in "".join(describe_notes(compared(sts12=3.0)))


def test_encoders_with_equal_items_have_no_size_to_report():
    (sentence,) = describe_comparison(compared(0.001, sts12=0.0))
    assert "power" not in sentence
    assert "a and b differ by less than 0.1 points on sts12" in sentence


def test_too_few_items_find_nothing_and_leave_the_margin_open():
    results = {name: [probe(name, "mr", [name == "a"])] for name in "ab"}
    judged = compare(results, settings=replace(FEW, margin=0.5))
    (row,) = judged.differences
    assert (row.error, row.smallest_detectable, row.margin_verdict) == (None, None, "open")
    assert "NaN" not in render_comparison(judged, "json")
    assert "Infinity" not in render_comparison(judged, "json")
    assert "; found with 80% power: no difference. " in describe_comparison(judged)[0]


def test_a_plan_is_of_items_with_one_seed_and_of_seeds_with_several():
    results: dict[str, list[Any]] = {"a": [], "b": []}
    for task in ("sts12", "sts13"):
        for result in pair(task, shift=0.3):
            results[result.encoder].append(result)
    planned = compare(results, settings=replace(FEW, plan=0.02))
    for row in planned.differences:
        assert row.error is not None and row.df is not None
        level = 0.05 if row.is_average else 0.05 / 2
        literal = required_items([StandardError(row.error, row.df)], row.n, 0.02, level)
        assert row.required_items == literal and row.required_seeds is None
    (sentence,) = describe_comparison(planned)
    counts = [f"{row.required_items:,} items like the {row.n} of" for row in planned.differences]
    assert "A difference of 2 points is found with 80% power by " + counts[0] in sentence
    assert all(count in sentence for count in counts)
    lines = list(csv.DictReader(io.StringIO(render_comparison(planned, "csv"))))
    assert [int(line["required_items"]) for line in lines] == [
        row.required_items for row in planned.differences
    ]
    unplanned = compare(results, settings=FEW).differences
    assert {(row.required_items, row.required_seeds) for row in unplanned} == {(None, None)}


def test_a_plan_of_seeds_divides_what_items_do_not_explain():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=400)
    sides: dict[str, list[Any]] = {"a": [], "b": []}
    for name, results in sides.items():
        quality = rng.normal(1.0, 0.25, size=4)
        for seed in range(4):
            similarity = quality[seed] * gold + rng.normal(size=400)
            results.append(
                sts(name, "sts12", gold, similarity, train_seed=seed, fingerprint=f"{name}{seed}")
            )
    (row,) = compare(sides, settings=replace(FEW, plan=0.1)).differences
    variances, means = [], []
    for results in sides.values():
        influences = (
            np.array([spearman_influence(r.per_item["similarity"], gold) for r in results]) / 400
        )
        centred = influences - influences.mean(axis=0)
        explained = np.sum(centred**2) / 3
        variances.append(max(np.var([r.score for r in results], ddof=1) - explained, 0))
        means.append(influences.mean(axis=0))
    items = StandardError(float(np.sum((means[1] - means[0]) ** 2) * 400 / 399) ** 0.5, 399.0)
    literal = required_seeds([items], float(np.mean(variances)) ** 0.5, 0.1)
    assert literal is not None and literal > 2
    assert (row.required_seeds, row.required_items) == (literal, None)
    (sentence,) = describe_comparison(compare(sides, settings=replace(FEW, plan=0.1)))
    assert (
        f"A difference of 10 points is found with 80% power by {literal} seeds per encoder on sts12"
        in sentence
    )
    (sentence,) = describe_comparison(compare(sides, settings=replace(FEW, plan=0.0001)))
    assert (
        "A difference of 0.01 points is found with 80% power by no number of seeds on sts12"
        in sentence
    )
    # Of one seed against several it is not known how many seeds would do.
    single = [msgspec.structs.replace(sides["a"][0], train_seed=None)]
    unknown = compare({"a": single, "b": sides["b"]}, settings=replace(FEW, plan=0.0001))
    assert (
        "by an unknown number of seeds (to plan, each encoder needs two) on sts12"
        in describe_comparison(unknown)[0]
    )
    more = {
        name: [*results, *(msgspec.structs.replace(result, task="sts13") for result in results)]
        for name, results in sides.items()
    }
    (sentence,) = describe_comparison(compare(more, settings=replace(FEW, plan=0.0001)))
    assert "by no number of seeds on sts12, sts13, mean of 2 tasks. " in sentence
