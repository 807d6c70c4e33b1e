"""The gate over training seeds: pools, tests of falls, looks, known deviations, margins, and how often it is wrong."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest
from scipy import stats

from stsbench.check.falls import estimate_by_seeds, fall_p
from stsbench.check.gate import check
from stsbench.check.lock import CheckSide, lock_cell
from stsbench.check.reports import describe_cell, to_github_commands, to_junit, to_markdown
from stsbench.check.verdicts import CheckReport, Verdict
from stsbench.core.cards import Suite
from stsbench.core.errors import StsbenchError
from stsbench.results.record import Result
from stsbench.significance.comparison_record import TestSettings
from stsbench.significance.descriptions import describe_p
from stsbench.significance.differences import EstimatedDifference
from tests.boards.scored import RUN, drawn, sts
from tests.made import make_result

SUITES = {"pair": Suite(name="Pair", tasks=["sts12", "sts13"])}
OLD = (0.500, 0.504, 0.508)
"""Scores of three seeds, with a deviation of 0.4 points."""


def side(*results: Result) -> CheckSide:
    return CheckSide([lock_cell(result) for result in results], [])


def seeds(
    *scores: float, task: str = "sts12", first: int = 1, state: str = "old", **changes: Any
) -> list[Result]:
    """Results of one recipe, one per training seed, each with a fingerprint of its own."""
    return [
        make_result(
            "recipe",
            task,
            score,
            train_seed=seed,
            fingerprint=f"{state} {seed}",
            **{"run": RUN, "n": 3108, **changes},
        )
        for seed, score in enumerate(scores, first)
    ]


def gate(new: list[Result], old: list[Result], **options: Any) -> CheckReport:
    return check(side(*new), side(*old), rule="statistical", **options)


def only(report: CheckReport) -> Verdict:
    (verdict,) = report.verdicts
    return verdict


# The test.


@pytest.mark.parametrize(("n_new", "n_old"), [(1, 2), (1, 3), (3, 1), (3, 3), (2, 5)])
def test_p_is_that_of_students_pooled_one_sided_test(n_new, n_old):
    rng = np.random.default_rng([n_new, n_old])
    new, old = rng.normal(0.49, 0.01, n_new), rng.normal(0.5, 0.01, n_old)
    estimate = estimate_by_seeds(new, old)
    assert estimate is not None and estimate.difference == new.mean() - old.mean()
    squares = sum((x - x.mean()) @ (x - x.mean()) for x in (new, old))
    error = (squares / (n_new + n_old - 2) * (1 / n_new + 1 / n_old)) ** 0.5
    assert estimate.error == pytest.approx(error) and estimate.df == n_new + n_old - 2
    expected = stats.t.sf((old.mean() - new.mean()) / error, n_new + n_old - 2)
    assert fall_p(estimate) == pytest.approx(expected if new.mean() < old.mean() else 1.0)
    if min(n_new, n_old) > 1:
        assert expected == pytest.approx(stats.ttest_ind(new, old, alternative="less").pvalue)


def test_p_at_its_edges():
    old = np.array([0.5])
    assert estimate_by_seeds(old - 0.1, old) is None
    known = estimate_by_seeds(old - 0.01, old, 0.005)
    assert known is not None and math.isinf(known.df)
    assert fall_p(known) == pytest.approx(stats.norm.sf(0.01 / (0.005 * 2**0.5)))
    flat = estimate_by_seeds(np.full(3, 0.49), np.full(3, 0.5))
    assert flat is not None and fall_p(flat) == 0.0
    for difference, error in ((0.0, 0.0), (-1e-12, 0.0), (0.01, 0.001), (0.01, 0.0)):
        assert fall_p(EstimatedDifference(difference, error, 2.0)) == 1.0
    # A known deviation of 0 makes every fall real; seeds that are known not to matter.
    certain = estimate_by_seeds(old - 0.01, old, 0.0)
    assert certain is not None and fall_p(certain) == 0.0


@pytest.mark.parametrize(("n_new", "looks"), [(1, 1), (3, 1), (3, 20)])
def test_the_smallest_fall_is_found_in_80_percent(n_new, looks):
    new = seeds(*np.linspace(0.500, 0.506, n_new), state="new")
    verdict = only(gate(new, seeds(*OLD), looks=looks))
    df = n_new + 1
    assert verdict.smallest_fall is not None and verdict.error is not None
    quantile = stats.t.ppf(1 - 0.05 / looks, df)
    power = stats.nct.sf(quantile, df, verdict.smallest_fall / verdict.error)
    assert power == pytest.approx(0.8, abs=1e-6)
    assert f"a fall of {100 * verdict.smallest_fall:.2f} points is found" in verdict.reason


def test_too_few_seeds_for_any_fall_are_said_to_be_so():
    verdict = only(gate(seeds(0.49, state="new"), seeds(0.5, 0.6), looks=10**6))
    assert verdict.smallest_fall is None and verdict.df == 1.0
    assert verdict.reason.endswith(
        "no fall is found in 80% of looks, for seeds or items are too few"
    )


def test_a_recipe_trained_again_raises_an_alarm_in_5_percent_of_looks():
    """Seven tasks and their mean, one new seed against three and three against three."""
    rng = np.random.default_rng(42)
    tasks = [f"sts1{index}" for index in range(2, 7)]
    suites = {"five": Suite(name="Five", tasks=tasks)}
    trials = 300
    for n_new in (1, 3):
        n_red = 0
        for _ in range(trials):
            scores = rng.normal(0.5, 0.01, (n_new + 3, len(tasks)))
            new, old = (
                [
                    result
                    for index, task in enumerate(tasks)
                    for result in seeds(*rows[:, index], task=task, state=state)
                ]
                for rows, state in ((scores[:n_new], "new"), (scores[n_new:], "old"))
            )
            n_red += gate(new, old, suites=suites).exit_code == 1
        assert n_red / trials <= 0.05 + 2 * (0.05 * 0.95 / trials) ** 0.5


# Which cells are pooled.


def test_seeds_are_pooled_on_each_side_whatever_their_numbers():
    report = gate(seeds(0.46, 0.47, first=7, state="new"), seeds(*OLD))
    verdict = only(report)
    assert (verdict.outcome, report.exit_code, verdict.train_seed) == ("regression", 1, None)
    assert (verdict.new_seeds, verdict.old_seeds, verdict.df) == (2, 3, 3.0)
    assert [verdict.new, verdict.old] == pytest.approx([0.465, 0.504])
    p = stats.ttest_ind([0.46, 0.47], OLD, alternative="less").pvalue
    assert verdict.p == pytest.approx(p) and verdict.test == "Student's t, 2 seeds against 3"
    assert f"real, corrected p {describe_p(p)} (Student's t, 2 seeds against 3)" in verdict.reason
    assert verdict.reason.endswith(
        "train a second set of seeds, and check both sets together, to confirm it"
    )
    # By the other rule seeds are compared one by one, as cells of different conditions.
    absolute = check(side(*seeds(0.46, 0.47, first=7, state="new")), side(*seeds(*OLD)))
    assert [v.outcome for v in absolute.verdicts] == ["not comparable"] * 2 + ["missing"]
    assert absolute.verdicts[0].reason == "train_seed differs: 7 against 1"


def test_one_seed_is_judged_by_the_deviation_that_the_lock_has_learnt():
    verdict = only(gate(seeds(0.495, state="new"), seeds(*OLD)))
    assert (verdict.outcome, verdict.df, verdict.new_seeds) == ("lower", 2.0, 1)
    assert verdict.p == pytest.approx(stats.t.sf(0.009 / (0.004 * (4 / 3) ** 0.5), 2))
    assert "training noise" not in verdict.reason


def test_checkpoints_that_did_not_change_are_judged_seed_by_seed():
    moved = seeds(*(score - 0.001 for score in OLD))
    report = gate(moved, seeds(*OLD))
    assert [(v.train_seed, v.outcome, v.tolerance) for v in report.verdicts] == [
        (seed, "regression", "same") for seed in (1, 2, 3)
    ]
    assert {v.test for v in report.verdicts} == {None} == {v.smallest_fall for v in report.verdicts}
    # The first checkpoint is the same, the others were trained again.
    report = gate([*seeds(OLD[0]), *seeds(0.503, 0.509, first=2, state="new")], seeds(*OLD))
    assert [(v.train_seed, v.new_seeds, v.old_seeds, v.outcome) for v in report.verdicts] == [
        (1, None, None, "fine"),
        (None, 2, 3, "higher"),
    ]
    # Seeds that the lock does not have are judged too, beside checkpoints that it has.
    more = gate([*seeds(*OLD), *seeds(0.46, 0.47, first=4)], seeds(*OLD))
    assert [(v.new_seeds, v.old_seeds, v.outcome) for v in more.verdicts] == [
        *[(None, None, "fine")] * 3,
        (2, 3, "regression"),
    ]
    # A seed less is missing.
    assert [v.outcome for v in gate(seeds(*OLD[:2]), seeds(*OLD)).verdicts][-1] == "missing"


@pytest.mark.parametrize("rule", ["absolute", "statistical"])
def test_seeds_that_only_one_side_has_get_one_verdict_per_task(rule):
    more = [*seeds(*OLD), *seeds(0.6, 0.7, task="sts13")]
    for new, old, outcome, n_seeds in (
        (more, seeds(*OLD), "new", (2, 0)),
        (seeds(*OLD), more, "missing", (0, 2)),
    ):
        *_, verdict = check(side(*new), side(*old), rule=rule).verdicts
        assert (verdict.task, verdict.outcome) == ("sts13", outcome)
        assert (verdict.new_seeds, verdict.old_seeds, verdict.train_seed) == (*n_seeds, None)
        assert (verdict.new or verdict.old) == pytest.approx(0.65)
        assert describe_cell(verdict).endswith(", 2 seeds)")


def test_seeds_of_other_data_protocols_and_evaluation_seeds_are_not_pooled():
    new = seeds(*OLD, state="new", data="e" * 64)
    assert only(gate(new, seeds(*OLD))).reason.startswith("data hash differs: eeeeeeeeeeee")
    mixed = [*seeds(*OLD[:2]), *seeds(OLD[2], first=3, data="e" * 64)]
    assert only(gate(seeds(*OLD, state="new"), mixed)).outcome == "not comparable"
    both = [*seeds(*OLD, state="new"), *seeds(*OLD, state="new", eval_seed=1)]
    old = [*seeds(*OLD), *seeds(*OLD, eval_seed=1)]
    assert [(v.eval_seed, v.new_seeds) for v in gate(both, old).verdicts] == [(0, 3), (1, 3)]
    untrained = [msgspec.structs.replace(result, train_seed=None) for result in seeds(0.5)]
    verdict = only(gate(seeds(0.5, state="new"), untrained))
    assert verdict.reason == "train_seed differs: 1 against None"


def test_encoders_of_other_names_are_pooled_too():
    other = [
        msgspec.structs.replace(result, encoder="before") for result in seeds(*OLD, state="new")
    ]
    assert only(gate(seeds(*OLD), other)).new_seeds == 3


# One seed on each side.


def sampled(noise: float, *, state: str, train_seed: int | None = 1) -> Result:
    gold, similarity = drawn(5, 400)
    values = similarity + noise * np.random.default_rng(6).normal(size=400)
    return sts("recipe", "sts12", gold, values, fingerprint=state, train_seed=train_seed)


@pytest.mark.parametrize("train_seed", [1, None])
@pytest.mark.parametrize(
    ("noise", "outcome"), [(0.05, "lower"), (0.6, "regression"), (0.0, "fine")]
)
def test_one_seed_a_side_is_judged_by_items_and_says_what_that_leaves_out(
    noise, outcome, train_seed
):
    settings = TestSettings(n_permutations=199)
    new = sampled(noise, state="new", train_seed=train_seed)
    old = sampled(0.0, state="old", train_seed=train_seed)
    report = gate([new], [old], settings=settings)
    verdict = only(report)
    assert (verdict.outcome, verdict.test) == (outcome, "paired test, Student's t")
    assert not verdict.covers_training
    assert report.summary.endswith("(level 0.05 per look) if nothing was trained again")
    assert verdict.reason.endswith("; training noise is not covered")
    assert verdict.smallest_fall is not None and verdict.train_seed == train_seed
    # One and the same encoder is not trained in between.
    same = only(gate([sampled(noise, state="old")], [sampled(0.0, state="old")], settings=settings))
    assert "training noise" not in same.reason and same.covers_training


def test_a_known_deviation_takes_the_place_of_seeds():
    new, old = sampled(0.05, state="new"), sampled(0.0, state="old")
    fall = old.score - new.score
    for deviation in (0.05, 5.0):
        verdict = only(gate([new], [old], seed_deviation=deviation))
        error = deviation / 100 * 2**0.5
        assert verdict.p == pytest.approx(stats.norm.sf(fall / error))
        assert verdict.outcome == ("regression" if (verdict.p or 1) < 0.05 else "lower")
        assert (verdict.test, verdict.df) == ("known deviation, 1 seed against 1", None)
        assert "training noise" not in verdict.reason
    pooled = only(gate(seeds(0.495, state="new"), seeds(*OLD), seed_deviation=0.1))
    assert pooled.error == pytest.approx(0.001 * (4 / 3) ** 0.5)


# Looks and corrections.


def test_looks_divide_the_level():
    new, old = seeds(0.49, 0.494, 0.498, state="new"), seeds(*OLD)
    once = gate(new, old)
    assert once.exit_code == 1 and 0.01 < (only(once).p or 0) < 0.05
    assert once.summary == (
        "1 cell: 1 regression; at most one false alarm in 20 looks (level 0.05 per look)"
    )
    often = gate(new, old, looks=20)
    assert often.exit_code == 0 and only(often).p == only(once).p
    assert often.summary.endswith(
        "at most one false alarm in 20 series of 20 looks (level 0.0025 per look)"
    )
    assert "look" not in check(side(*new), side(*new)).summary


def test_cells_and_means_are_corrected_together():
    low = (0.49, 0.494, 0.498)
    new = [*seeds(*low, state="new"), *seeds(*OLD, task="sts13", state="new")]
    old = [*seeds(*OLD), *seeds(*OLD, task="sts13")]
    verdict, unmoved, mean = gate(new, old, suites=SUITES).verdicts
    p = stats.ttest_ind(low, OLD, alternative="less").pvalue
    assert verdict.p == pytest.approx(3 * p) and unmoved.p is None
    # The mean is taken seed by seed.
    assert mean.is_mean and (mean.new_seeds, mean.old_seeds) == (3, 3)
    means = [(first + second) / 2 for first, second in zip(low, OLD, strict=True)]
    assert mean.p == pytest.approx(2 * stats.ttest_ind(means, OLD, alternative="less").pvalue)


def test_a_mean_is_of_the_seeds_that_have_all_tasks():
    new = [*seeds(*OLD, state="new"), *seeds(0.6, 0.61, task="sts13", first=2, state="new")]
    old = [*seeds(*OLD), *seeds(0.6, 0.61, task="sts13")]
    *_, mean = gate(new, old, suites=SUITES).verdicts
    assert mean.is_mean and (mean.new_seeds, mean.old_seeds) == (2, 2)
    assert mean.new == pytest.approx((0.504 + 0.508 + 0.6 + 0.61) / 4)
    apart = [*seeds(*OLD, state="new"), *seeds(0.6, task="sts13", first=9, state="new")]
    assert not any(v.is_mean for v in gate(apart, old, suites=SUITES).verdicts)


# Margins.


@pytest.mark.parametrize(
    ("margin", "outcome", "answer", "text"),
    [
        (None, "regression", None, ""),
        (0.5, "regression", "worse than", "fell by more than 0.5 points"),
        (1.0, "regression", "open", "may have fallen by more than 1 points"),
        (3.0, "lower", "within", "moved by less than 3 points"),
    ],
)
def test_a_real_fall_that_is_shown_to_be_smaller_than_the_margin_passes(
    margin, outcome, answer, text
):
    new = seeds(*(score - 0.012 for score in OLD), state="new")
    report = gate(new, seeds(*OLD), margin=margin)
    verdict = only(report)
    assert (verdict.p or 1) < 0.05
    assert (verdict.outcome, verdict.margin_verdict) == (outcome, answer)
    assert report.exit_code == (outcome == "regression") and text in verdict.reason
    assert ("real, but smaller than the margin" in verdict.reason) == (outcome == "lower")
    if outcome == "lower":
        assert "1 lower, by chance or by less than the margin" in report.summary


def test_a_margin_says_nothing_of_an_encoder_that_did_not_change():
    moved = seeds(*(score - 0.002 for score in OLD))
    report = gate(moved, seeds(*OLD), margin=1.0)
    assert {(v.outcome, v.margin_verdict) for v in report.verdicts} == {("regression", None)}
    fine = only(gate(seeds(*OLD, state="new"), seeds(*OLD), margin=3.0))
    assert (fine.outcome, fine.margin_verdict) == ("fine", "within")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"margin": -0.1}, "give points from 0 to 100"),
        ({"margin": float("nan")}, "give points from 0 to 100"),
        ({"seed_deviation": 101}, "give points from 0 to 100"),
        ({"looks": 0}, "give a number from 1 up"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    with pytest.raises(StsbenchError, match=message) as caught:
        gate(seeds(*OLD), seeds(*OLD), **options)
    assert caught.value.parameter == next(iter(options))


# Reports.


def test_reports_carry_what_a_test_could_have_found():
    report = gate(seeds(0.46, 0.47, state="new"), seeds(*OLD), margin=0.5)
    smallest = f"{100 * (only(report).smallest_fall or 0):.2f}"
    case = ElementTree.fromstring(to_junit(report)).find("testsuite/testcase")
    assert case is not None and case.get("name") == "sts12 (simcse, 2 seeds against 3)"
    found = f"a fall of {smallest} points is found in 80% of looks; fell by more than 0.5 points"
    assert found in str(case[0].get("message"))
    lines = to_markdown(report).splitlines()
    assert lines[4] == (
        "| encoder | task | old | new | difference | allowed | found from | margin | verdict |"
    )
    assert f"| -3.900 | 0.01 | {smallest} | worse than | **regression**: fell" in lines[6]
    assert "one false alarm in 20 looks" in lines[2]
    assert "2 seeds against 3" in to_github_commands(report)[0]
