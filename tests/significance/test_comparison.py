"""Comparisons: what may be compared, differences against slow loops, seeds, and the sentences on them."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from scipy import stats

from stsbench.api.selection import select_results
from stsbench.boards.render.figures import render_comparison
from stsbench.cli.wording import notes_with_commands
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, ProtocolError, UnknownName
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.folder import ResultFolder, read_folder
from stsbench.results.groups import EncoderDirectory
from stsbench.results.record import Result, items_path
from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import Comparison, Difference, TestSettings
from stsbench.significance.descriptions import (
    describe_comparison,
    describe_notes,
    describe_p,
    difference_columns,
    format_p,
)
from stsbench.significance.items import one_per_seed
from stsbench.significance.paired import PairedShares
from tests.boards.scored import drawn, probe, sts, write
from tests.made import SIMCSE, make_result
from tests.significance.pairs import FEW, SUBSETS, pair


def results_of(spec: str, known: Sequence[Result]) -> Sequence[Result]:
    """The results of one encoder, as the command line finds them."""
    encoders = EncoderDirectory(ResultFolder(list(known), []))
    return encoders.require_one_encoder(
        spec, select_results([spec], encoders, Catalogue(), Path("results"))
    )


def by_task(comparison: Comparison) -> dict[str, Difference]:
    return {difference.task: difference for difference in comparison.differences}


def test_the_difference_is_second_minus_first_and_turns_round():
    a, b = pair()
    (there,) = compare({"a": [a], "b": [b]}, settings=FEW).differences
    (back,) = compare({"b": [b], "a": [a]}, settings=FEW).differences
    assert there.difference == b.score - a.score == -back.difference
    assert there.interval is not None and back.interval is not None
    assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]))
    assert there.p == pytest.approx(back.p)
    assert there.scores == (a.score, b.score) and there.n == 60 and there.seeds == (1, 1)
    alike, unlike = (
        compare({"a": [a], "b": [second]}, settings=FEW).differences[0]
        for second in (a, pair(shift=2.0)[1])
    )
    assert (alike.real, unlike.real) == (False, True)
    assert unlike.p_corrected is not None
    at_its_level = replace_fields(FEW, level=unlike.p_corrected)
    (unlike,) = compare({"a": [a], "b": [pair(shift=2.0)[1]]}, settings=at_its_level).differences
    assert not unlike.real


def test_a_task_of_two_splits_is_in_the_mean_by_the_split_of_the_others():
    scored = [("sts12", "test"), ("stsb", "validation"), ("sts13", "test"), ("stsb", "test")]
    sides: dict[str, list[Result]] = {"a": [], "b": []}
    for task, split in scored:
        shift = 2.0 if split == "validation" else 0.4
        for side, one in zip(sides.values(), pair(shift=shift), strict=True):
            side.append(msgspec.structs.replace(one, task=task, split=split))
    found = compare(sides, settings=FEW)
    (mean,) = [one for one in found.differences if one.is_average]
    assert (mean.task, sorted(mean.tasks)) == (
        "mean of 3 tasks (simcse)",
        ["sts12", "sts13", "stsb"],
    )
    on_test = {one.difference for one in found.differences if one.split == "test"}
    assert mean.difference == pytest.approx(min(on_test)) and len(on_test) == 1
    named = {row[0] for row in difference_columns(found.differences)[1]}
    assert named == {
        "sts12",
        "sts13",
        "stsb (test)",
        "stsb (validation)",
        "mean of 3 tasks (simcse)",
    }


@pytest.mark.parametrize("aggregation", ["all", "mean", "wmean"])
@pytest.mark.parametrize("metric", ["spearman", "pearson", "kendall"])
def test_the_interval_is_students_over_shares_of_the_protocols_own_score(metric, aggregation):
    protocol = {
        "name": "mine",
        "metric": metric,
        "aggregation": aggregation,
        "similarity": "cosine",
    }
    a, b = pair(subset=SUBSETS, protocol=protocol)
    # Ten permutations are too few to decide at 5%.
    student = replace_fields(FEW, n_permutations=10)
    (found,) = compare({"a": [a], "b": [b]}, settings=student).differences
    parts = {"all": [range(60)]}.get(aggregation, [range(20), range(20, 60)])
    weights = {"all": [1.0], "mean": [0.5, 0.5], "wmean": [1 / 3, 2 / 3]}[aggregation]
    shares, even = np.zeros(60), np.zeros(60)
    for part, weight in zip(map(list, parts), weights, strict=True):
        first, second = (_influence(one, part, metric) for one in (a, b))
        shares[part], even[part] = weight * (second - first) / len(part), weight / len(part)
    df = 1 / (even @ even) - 1
    error = np.sqrt(shares @ shares * (df + 1) / df)
    reach = stats.t.ppf(0.975, df) * error
    assert found.interval == pytest.approx(
        (found.difference - reach, found.difference + reach), abs=1e-9
    )
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.difference) / error, df))
    assert found.method == "Student's t"


def _influence(result: Result, part: list[int], metric: str) -> np.ndarray:
    return CORRELATIONS[metric].influence(
        result.per_item["similarity"][part], result.per_item["gold"][part]
    )


def shared(result: Result, sentences: np.ndarray) -> Result:
    """The result with a record of which sentences each pair holds."""
    columns = {f"sentence{side + 1}": sentences[:, side].astype(np.uint32) for side in (0, 1)}
    return msgspec.structs.replace(result, per_item={**result.per_item, **columns})


TIED = np.stack([np.arange(60) // 4, 100 + np.arange(60)], axis=1)


def test_only_tasks_whose_results_tell_no_sentence_are_to_be_scored_again():
    told = [shared(one, TIED) for one in pair()]
    silent = pair("sts13", n=40)
    (note,) = compare({"a": [told[0], silent[0]], "b": [told[1], silent[1]]}, settings=FEW).notes
    assert note.startswith("sts13: taken as independent") and "sts12" not in note


def test_pairs_that_share_a_sentence_err_together_unless_asked_otherwise():
    a, b = (shared(one, TIED) for one in pair())
    (found,) = compare({"a": [a], "b": [b]}, settings=FEW).differences
    shares = _influence(b, list(range(60)), "spearman") - _influence(a, list(range(60)), "spearman")
    sums = shares.reshape(15, 4).sum(axis=1) / 60
    reach = stats.t.ppf(0.975, 14) * np.sqrt(sums @ sums * 15 / 14)
    assert found.p == pytest.approx(
        2 * stats.t.sf(abs(found.difference) / (reach / stats.t.ppf(0.975, 14)), 14)
    )
    assert found.interval == pytest.approx((found.difference - reach, found.difference + reach))
    assert found.method == "Student's t"
    # One side tells the sentences: the items are the same.
    assert (
        compare({"a": [a], "b": [pair()[1]]}, settings=FEW).differences[0].interval
        == found.interval
    )
    alone = compare({"a": [a], "b": [b]}, settings=dataclasses.replace(FEW, dependence="none"))
    without_texts = compare(dict(zip("ab", ([one] for one in pair()), strict=True)), settings=FEW)
    assert alone.differences == without_texts.differences and alone.notes == []
    assert without_texts.notes == [
        "sts12: taken as independent, for no result says which items share a sentence; "
        "score them again, and save the results of "
        "stsbench.evaluate(encoder='a,b', tasks='sts12')"
    ]
    assert notes_with_commands(without_texts.notes) == [
        "sts12: taken as independent, for no result says which items share a sentence; "
        "run: stsbench run --fresh a b --tasks sts12"
    ]
    assert copy.deepcopy(without_texts.notes[0]).remedy.action == "rescore"
    assert alone.differences[0].interval != found.interval


def test_tasks_that_share_all_pairs_tell_no_more_than_one():
    a, b = (shared(one, TIED) for one in pair())
    other = [msgspec.structs.replace(one, task="stsb") for one in (a, b)]
    one, again, mean = compare({"a": [a, other[0]], "b": [b, other[1]]}, settings=FEW).differences
    assert mean.interval == pytest.approx(one.interval) and mean.difference == pytest.approx(
        one.difference
    )
    # As independent tasks they would seem to tell twice as much.
    apart = compare(
        {"a": [a, other[0]], "b": [b, other[1]]},
        settings=dataclasses.replace(FEW, dependence="none"),
    )
    assert np.ptp(apart.differences[2].interval or (0, 0)) < 0.8 * np.ptp(mean.interval or (0, 0))
    assert again.difference == one.difference


def test_trainings_whose_items_are_alike_are_several_and_named():
    a, b = pair()
    alike = [msgspec.structs.replace(a, train_seed=seed) for seed in (1, 2, 3)]
    drawn_again = [msgspec.structs.replace(b, eval_seed=seed) for seed in (0, 1)]
    found = compare({"a": alike, "b": drawn_again}, settings=FEW)
    assert (found.differences[0].seeds, found.differences[0].deviations) == ((3, 1), None)
    assert difference_columns(found.differences)[1][0][1] == f"{100 * a.score:.2f}"
    assert found.differences[0].one_run == ()
    assert (
        found.notes
        == [
            "a: several training seeds have the same items on sts12; are they one training?",
            *compare({"a": [a], "b": [b]}, settings=FEW).notes,
        ][::-1]
    )


def test_accuracies_are_tested_by_mcnemar():
    a, b = probe("a", "mr", [1] * 30 + [0] * 10), probe("b", "mr", [1] * 20 + [0] * 18 + [1] * 2)
    (found,) = compare({"a": [a], "b": [b]}, settings=FEW).differences
    mid_p = stats.binomtest(2, 12, 0.5).pvalue - stats.binom.pmf(2, 12, 0.5)
    assert found.p == pytest.approx(mid_p)
    assert (found.method, found.discordant) == ("McNemar's mid-p", (10, 2))
    assert found.interval == PairedShares(40, 10, 2).interval()
    assert found.difference == pytest.approx(-8 / 40)
    assert difference_columns([found])[0] == [
        "task",
        "A",
        "B",
        "B - A",
        "95% interval",
        "p",
        "Holm p",
    ]


def test_a_score_a_hair_off_its_items_moves_the_interval_by_that_hair():
    a, b = (
        shared(one, TIED)
        for one in (probe("a", "mr", [1] * 40 + [0] * 20), probe("b", "mr", [1] * 25 + [0] * 35))
    )
    (exact,) = compare({"a": [a], "b": [b]}, settings=FEW).differences
    rounded = msgspec.structs.replace(b, score=b.score + 0.0001)
    (found,) = compare({"a": [a], "b": [rounded]}, settings=FEW).differences
    assert exact.interval is not None and found.interval is not None
    assert np.subtract(found.interval, exact.interval) == pytest.approx([0.0001, 0.0001])
    assert found.p == pytest.approx(exact.p, rel=0.01)


def test_retrieval_is_compared_by_recall_and_regressors_by_prediction():
    recall = np.linspace(0, 1, 12)
    a, b = (
        make_result(name, "coco", score, protocol={"name": "senteval", "metric": "mean_recall"},
                    per_item={"recall": values}, items=name, n=12)
        for name, values, score in (("a", recall, 0.5), ("b", recall**2, float(np.mean(recall**2))))
    )  # fmt: skip
    (found,) = compare({"a": [a], "b": [b]}, settings=FEW).differences
    assert found.interval is not None and found.p is not None
    gold, similarity = drawn(1)
    regressors = [
        make_result(name, "stsb-regression", float(stats.pearsonr(values, gold).statistic), items=name,
                    protocol={"name": "senteval", "metric": "pearson"}, per_item={"gold": gold, "prediction": values})
        for name, values in (("a", similarity), ("b", similarity**3))
    ]  # fmt: skip
    (found,) = compare({r.encoder: [r] for r in regressors}, settings=FEW).differences
    assert found.method in ("Student's t", "permutations")


# What may be compared.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"split": "validation"},
            "sts12: 'a' and 'b' cannot be compared: split differs: 'test' against 'validation'",
        ),
        (
            {"protocol": {**SIMCSE, "name": "wmean", "aggregation": "wmean"}},
            "protocol field 'aggregation' differs: 'all' against 'wmean'",
        ),
        (
            {"protocol": {**SIMCSE, "name": "own"}},
            "protocol field 'name' differs: 'simcse' against 'own'",
        ),
        ({"protocol": {**SIMCSE, "prompt": 1}}, "protocol field 'prompt' differs: none against 1"),
        ({"data": "e" * 64}, "data hash differs: dddddddddddd against eeeeeeeeeeee"),
    ],
)
def test_scores_made_differently_are_refused_with_the_field_that_differs(change, message):
    a, b = pair()
    with pytest.raises(ProtocolError, match="cannot be compared") as error:
        compare({"a": [a], "b": [msgspec.structs.replace(b, **change)]}, settings=FEW)
    assert message in str(error.value)


def test_what_only_one_has_is_left_out_and_said():
    a, b = pair()
    more = probe("a", "mr", [True, False])
    found = compare({"a": [a, more], "b": [b]}, settings=FEW)
    assert [d.task for d in found.differences] == ["sts12"]
    assert found.notes[0] == "Skipped: not scored for every encoder: mr"
    with pytest.raises(DataError, match="'a' and 'b' have no task in common"):
        compare({"a": [more], "b": [b]}, settings=FEW)
    with pytest.raises(DataError, match="by protocol 'wmean'"):
        compare({"a": [a], "b": [b]}, protocol="wmean", settings=FEW)


def test_protocols_that_both_have_are_compared_each_with_itself():
    wmean = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}
    a, b = pair(subset=SUBSETS)
    c, d = pair(subset=SUBSETS, protocol=wmean)
    found = compare({"a": [a, c], "b": [d, b]}, settings=FEW)
    assert [(x.protocol["name"], x.difference) for x in found.differences] == [
        ("simcse", b.score - a.score),
        ("wmean", d.score - c.score),
    ]
    assert len(compare({"a": [a, c], "b": [b, d]}, protocol="wmean", settings=FEW).differences) == 1
    # What one lacks is left out, and said, as a task that it lacks is.
    on_dev = replace(a, split="dev")
    found = compare({"a": [a, c, on_dev], "b": [b]}, settings=FEW)
    assert len(found.differences) == 1
    assert found.notes[0] == (
        "Skipped: not scored for every encoder: sts12 (test, wmean), sts12 (dev, simcse)"
    )


def test_the_mean_is_over_the_tasks_of_one_protocol():
    two = [pair(), pair("sts13", shift=0.9)]
    probes = [
        (probe("a", task, [1] * 30 + [0] * 10), probe("b", task, [1] * 25 + [0] * 15))
        for task in ("mr", "cr")
    ]
    first, second = ([results[at] for results in (*two, *probes)] for at in (0, 1))
    found = by_task(compare({"a": first, "b": second}, settings=FEW))
    assert list(found) == [
        "sts12",
        "sts13",
        "mr",
        "cr",
        "mean of 2 tasks (simcse)",
        "mean of 2 tasks (senteval)",
    ]
    means = [d for d in compare({"a": first, "b": second}, settings=FEW).differences[4:]]
    assert [(m.tasks, m.protocol["name"]) for m in means] == [
        (("sts12", "sts13"), "simcse"),
        (("mr", "cr"), "senteval"),
    ]
    assert means[0].difference == pytest.approx(
        (found["sts12"].difference + found["sts13"].difference) / 2
    )
    assert means[1].scores == pytest.approx((0.75, 0.625))
    assert [mean.n for mean in means] == [120, 80]
    # Of independent tasks: narrower than either.
    widths = [np.ptp(d.interval) for d in (found["sts12"], found["sts13"], means[0]) if d.interval]
    assert widths[2] < max(widths[:2])


def test_a_third_encoder_changes_only_the_correction():
    a, b = pair()
    c = msgspec.structs.replace(pair(shift=0.8)[1], encoder="c")
    two = compare({"a": [a], "b": [b]}, settings=FEW).differences[0]
    results = {"a": [a], "b": [b], "c": [c]}
    with_first = compare(results, settings=FEW)
    assert [(first, second) for first, second, _ in with_first.pairs()] == [("a", "b"), ("a", "c")]
    assert [d.family for d in with_first.differences] == [2, 2]
    every_pair = compare(results, settings=replace_fields(FEW, all_pairs=True))
    three = every_pair.differences
    assert [(d.first, d.second) for d in three] == [("a", "b"), ("a", "c"), ("b", "c")]
    corrected = ("p_corrected", "real", "family", "smallest_detectable")
    of_two = {name: getattr(two, name) for name in corrected}
    assert dataclasses.replace(three[0], **of_two) == two
    assert (two.family, three[0].family) == (1, 3)
    assert three[0].p_corrected is not None and two.p_corrected is not None
    assert three[0].p_corrected >= two.p_corrected
    pairs = every_pair.pairs()
    assert [
        (first, second, [(d.first, d.second) for d in differences])
        for first, second, differences in pairs
    ] == [(first, second, [(first, second)]) for first, second in ("ab", "ac", "bc")]


# Seeds.


def seeded(encoder: str, task: str, seeds: list[int], **changes: Any) -> list[Result]:
    gold, similarity = drawn(1)
    noise = 0.2 if encoder == "a" else 0.5
    return [
        sts(encoder, task, gold, similarity + noise * np.random.default_rng(seed + 10).normal(size=60),
            train_seed=seed, fingerprint=f"{encoder}{seed}", **changes)
        for seed in seeds
    ]  # fmt: skip


def test_results_are_one_a_seed_in_the_order_of_seeds():
    first, second = seeded("a", "sts12", [1, 2])
    again = msgspec.structs.replace(first, eval_seed=1)
    # A result without a training seed comes first. The items are the same with either evaluation
    # seed, so that the first of them stands.
    alone = msgspec.structs.replace(pair()[0], items="alone")
    assert one_per_seed([again, second, first, alone]) == [alone, first, second]
    # An evaluation seed that has an effect counts, also if two predictions happen to be equal.
    other = msgspec.structs.replace(first, eval_seed=2, items="other")
    assert one_per_seed([other, again, first, alone]) == [alone, first, again, other]


def test_seeds_of_each_side_are_averaged_whichever_they_are():
    a, b = seeded("a", "sts12", [0, 1, 2]), seeded("b", "sts12", [7, 1])
    (found,) = compare({"a": a, "b": b}, settings=FEW).differences
    assert found.seeds == found.training_seeds == (3, 2) and found.one_run == ()
    assert found.difference == pytest.approx(
        np.mean([r.score for r in b]) - np.mean([r.score for r in a])
    )
    assert found.deviations == pytest.approx([np.std([r.score for r in x], ddof=1) for x in (a, b)])
    assert "±" in difference_columns([found])[1][0][1]


def test_a_mean_has_as_many_seeds_as_the_task_that_has_fewest():
    a = [*seeded("a", "sts12", [0, 1, 2]), *seeded("a", "sts13", [0, 1])]
    b = [*seeded("b", "sts12", [0]), *seeded("b", "sts13", [0, 1, 2])]
    *_, mean = compare({"a": a, "b": b}, settings=FEW).differences
    assert mean.is_average and mean.seeds == (2, 1)


def test_a_mean_over_tasks_with_different_seeds_is_planned_too():
    b = [*seeded("b", "sts12", [0, 1, 2]), *seeded("b", "sts13", [0, 1, 2])]
    for seeds in ([0, 1, 2], [0, 1, 3], [3, 4, 5]):
        a = [*seeded("a", "sts12", [0, 1, 2]), *seeded("a", "sts13", seeds)]
        found = compare({"a": a, "b": b}, settings=replace_fields(FEW, plan=0.2))
        assert "2 seeds per encoder on mean of 2 tasks" in describe_comparison(found)[0]


def test_one_training_run_says_nothing_of_the_recipe():
    a, b = seeded("a", "sts12", [0]), seeded("b", "sts12", [0])
    checkpoint = [replace(b[0], train_seed=None)]
    found = compare({"a": a, "b": checkpoint}, settings=FEW)
    assert found.differences[0].one_run == ("a",)
    assert describe_comparison(found)[0].endswith(
        "a: one training seed, so this says nothing of the recipe."
    )
    both = describe_comparison(compare({"a": a, "b": b[:1]}, settings=FEW))[0]
    assert both.endswith("a and b: one training seed, so this says nothing of the recipe.")


def test_one_seed_against_several_gives_no_verdict():
    a, b = seeded("a", "sts12", [0]), seeded("b", "sts12", [0, 1, 2])
    margin = replace_fields(FEW, margin=0.02)
    found = compare({"a": a, "b": b}, settings=margin)
    (row,) = found.differences
    assert (row.training_seeds, row.family, row.real) == ((1, 3), 0, False)
    assert (row.interval, row.p, row.p_corrected, row.error) == (None, None, None, None)
    assert (row.margin_verdict, row.smallest_detectable, row.method) == (None, None, None)
    assert row.difference == pytest.approx(np.mean([r.score for r in b]) - a[0].score)
    assert describe_comparison(found) == [
        "No verdict on sts12: one training seed of a against several does not tell how its "
        "trainings vary."
    ]
    # A checkpoint without a seed is no recipe, and is compared as it is.
    (checkpoint,) = compare(
        {"a": [replace(a[0], train_seed=None)], "b": b}, settings=margin
    ).differences
    assert checkpoint.training_seeds == (0, 3) and checkpoint.p is not None
    # Where one task has one seed alone, its row has no verdict, and the mean has.
    first = [*a, *seeded("a", "sts13", [0, 1, 2])]
    second = [*b, *seeded("b", "sts13", [0, 1, 2])]
    rows = by_task(compare({"a": first, "b": second}, settings=margin))
    assert [(task, row.p is None) for task, row in rows.items()] == [
        ("sts12", True), ("sts13", False), ("mean of 2 tasks", False),
    ]  # fmt: skip


def test_two_seeds_a_side_are_warned_of_before_the_verdict():
    a, b = seeded("a", "sts12", [0, 1]), seeded("b", "sts12", [0, 1, 2])
    (sentence,) = describe_comparison(compare({"a": a, "b": b}, settings=FEW))
    assert sentence.startswith("Warning: a with two training seeds, ")
    (both,) = describe_comparison(compare({"a": a, "b": b[:2]}, settings=FEW))
    assert both.startswith("Warning: a and b with two training seeds, ")
    a = seeded("a", "sts12", [0, 1, 2])
    assert "Warning" not in describe_comparison(compare({"a": a, "b": b}, settings=FEW))[0]


def test_a_mean_is_named_by_the_suite_of_its_tasks():
    two = [pair(), pair("sts13", shift=0.9)]
    sides = {name: [results[at] for results in two] for at, name in enumerate("ab")}
    suites = {"all": ["sts12", "sts13", "sts14"], "mine": ["sts13", "sts12"]}
    found = compare(sides, settings=FEW, suites=suites)
    assert found.differences[-1].task == "mean of 2 tasks (mine)"
    assert " in the mean of 2 tasks (mine)" in describe_comparison(found)[0]
    assert compare(sides, settings=FEW).differences[-1].task == "mean of 2 tasks"


def test_rows_of_few_items_say_one_thing_and_name_their_procedure():
    """Interval and p agree at 5%, whichever of Student's t and permutations is wider."""
    methods = set()
    for n in (5, 6, 8, 12, 40):
        for shift in (0.2, 0.5, 1.0, 2.0, 4.0):
            a, b = pair(n=n, shift=shift)
            (row,) = compare(
                {"a": [a], "b": [b]}, settings=replace_fields(FEW, n_permutations=399)
            ).differences
            assert row.interval is not None and row.p is not None
            low, high = row.interval
            assert low < high and (low > 0 or high < 0) == (row.p < 0.05)
            estimate = row.estimate
            assert estimate is not None and estimate.interval() == pytest.approx(row.interval)
            methods.add(row.method)
    assert methods == {"Student's t", "permutations"}


def test_the_tests_of_one_task_are_named_with_the_encoders_that_they_compare():
    reference, near = pair(n=40, shift=0.2)
    _, far = pair(n=40, shift=1.0)
    few = replace_fields(FEW, n_permutations=399)
    results = {"a": [reference], "b": [near], "c": [far]}
    (line,) = (
        note
        for note in describe_notes(compare(results, settings=few))
        if note.startswith("Interval and p: ")
    )
    assert line == "Interval and p: Student's t (sts12: a and b); permutations (sts12: a and c)."
    # One test, or one test of each task, needs no names of encoders.
    del results["c"]
    assert "Interval and p: Student's t." in describe_notes(compare(results, settings=few))


def test_no_interval_has_zero_width_where_items_do_not_differ():
    """Equal answers bound the share of items on which the two may differ, as Wilson's interval."""
    answers = [1] * 45 + [0] * 15
    tied = {name: [shared(probe(name, "mr", answers), TIED)] for name in "ab"}
    (row,) = compare(tied, settings=FEW).differences
    t = stats.t.ppf(0.975, 14)
    assert row.interval == pytest.approx((-(t**2) / (15 + t**2), t**2 / (15 + t**2)))
    assert (row.method, row.p) == ("Student's t", 1.0)
    # Ranks that are equal have the error of Pearson's, values that are equal that of rounding.
    a = pair()[0]
    cubes = a.per_item["similarity"] ** 3
    b = replace(a, encoder="b", per_item={**a.per_item, "similarity": cubes}, items="b")
    (ranks,) = compare({"a": [a], "b": [b]}, settings=FEW).differences
    influences = _influence(b, list(range(60)), "pearson") - _influence(
        a, list(range(60)), "pearson"
    )
    assert ranks.difference == 0 and ranks.p == 1
    assert ranks.error == pytest.approx(np.sqrt(influences @ influences / 60 / 59))
    (equal,) = compare({"a": [a], "b": [replace(a, encoder="b")]}, settings=FEW).differences
    assert equal.error == 1e-7 and np.ptp(equal.interval or (0, 0)) > 0
    two = {name: [*results, *pair("sts13", shift=0.0)[:1]] for name, results in tied.items()}
    mean = compare(
        {
            name: results[:1] + [replace(probe(name, "cr", answers))]
            for name, results in two.items()
        },
        settings=FEW,
    ).differences[-1]
    assert mean.is_average and np.ptp(mean.interval or (0, 0)) > 0.01


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (None, "–"), (0.0, "<.001"), (0.00099, "<.001"), (0.001, ".001"), (0.0124, ".012"),
        (0.0499, ".0499"), (0.04996, ".04996"), (0.05, ".050"), (0.05004, ".05004"), (0.0994, ".099"),
        (0.0996, ".10"), (0.343, ".34"), (0.99, ".99"), (0.9991, ">.99"), (1.0, ">.99"),
    ],
)  # fmt: skip
def test_a_p_value_is_printed_as_people_read_it(p, text):
    assert format_p(p) == text
    assert describe_p(p) == (f"= {text}" if text[0] not in "<>" else f"{text[0]} {text[1:]}")


@pytest.mark.parametrize(
    ("p", "level", "text"),
    [
        (0.0024, 0.0025, ".002"), (0.00251, 0.0025, ".003"), (0.00004, 0.0005, "<.0001"),
        (0.00049, 0.0005, ".00049"), (0.0005, 0.0005, ".0005"), (0.0009, 0.001, "<.001"),
        (0.0004, 5e-7, ".0004000"), (1e-8, 5e-7, "<.0000001"), (0.2, 5e-7, ".20"),
    ],
)  # fmt: skip
def test_a_p_value_has_as_many_decimals_as_its_level_needs(p, level, text):
    assert format_p(p, level) == text


def test_a_p_value_beside_the_level_of_a_comparison_is_not_printed_as_the_level():
    a, b = probe("a", "mr", [1] * 30 + [0] * 10), probe("b", "mr", [1] * 20 + [0] * 18 + [1] * 2)
    strict = compare({"a": [a], "b": [b]}, settings=TestSettings(n_permutations=99, level=0.01))
    (difference,) = strict.differences
    mean = replace_fields(
        difference,
        task="mean of 2 tasks",
        tasks=("mr", "cr"),
        p=0.0101,
        p_corrected=0.0099,
        real=True,
    )
    near = replace_fields(strict, differences=[mean])
    assert (
        "a is better by 20.00 points in the mean of 2 tasks (Holm p = .0099). "
        in (describe_comparison(near)[0])
    )
    assert ".0101 & .0099" in render_comparison(near, "latex")
    heads, rows = difference_columns(near.differences, near.level)
    assert rows[0][heads.index("Holm p")] == ".0099"


def test_seeds_of_training_and_evaluation_are_seeds_of_training():
    a = [msgspec.structs.replace(one, eval_seed=seed, items=f"{one.train_seed}{seed}")
         for one in seeded("a", "sts12", [0, 1]) for seed in (0, 1)]  # fmt: skip
    (found,) = compare({"a": a, "b": [pair()[1]]}, settings=FEW).differences
    (plain,) = compare({"a": a[::2], "b": [pair()[1]]}, settings=FEW).differences
    assert found.seeds == (4, 1) and found.interval == pytest.approx(plain.interval)


# Results and their files.


def test_encoders_are_found_by_name_mark_and_folder(tmp_path):
    a, b = pair()
    other = msgspec.structs.replace(a, fingerprint="123456789")
    found = read_folder(write(tmp_path, a, b))
    assert not found.problems and len(results_of("a", found.results)) == 1
    known = read_folder(write(tmp_path, other)).all_results
    with pytest.raises(
        DataError, match=r"different fingerprints or cards; say 'a \[123456\]' or 'a \[print \]'"
    ):
        results_of("a", known)
    for spec in ("a [123456]", "a[123456]"):
        assert results_of(spec, known)[0].fingerprint == "123456789"
    with pytest.raises(UnknownName, match="mean 'b'") as caught:
        results_of("bb", known)
    assert (caught.value.kind, caught.value.name) == ("encoder", "bb")
    alone = read_folder(tmp_path / "b")
    assert [result.encoder for result in alone.results] == ["b"] and not alone.problems
    encoders = EncoderDirectory(ResultFolder(known, []))
    with pytest.raises(DataError, match=r"of 2 encoders \(a, b\)"):
        encoders.require_one_encoder("here", known)
    with pytest.raises(DataError, match="holds no results"):
        encoders.require_one_encoder("here", [])


def test_broken_items_are_one_clear_line(tmp_path):
    a, b = pair()
    write(tmp_path, a, b)
    items_path(b.path_in(tmp_path)).unlink()
    known = read_folder(tmp_path).results
    with pytest.raises(
        DataError,
        match="^no per-item columns of b on sts12, which tests need; score them again, and save "
        r"the results of stsbench.evaluate\(encoder='b', tasks='sts12'\) in '",
    ):
        compare({name: results_of(name, known) for name in "ab"}, settings=FEW)
    items_path(b.path_in(tmp_path)).write_text("no columns")
    with pytest.raises(DataError, match="sts12.*items.parquet: "):
        compare({name: results_of(name, known) for name in "ab"}, settings=FEW)
    bare = msgspec.structs.replace(a, per_item={})
    with pytest.raises(DataError, match=r" a on sts12, .*, tasks='sts12'\)$"):
        compare({"a": [bare], "b": [b]}, settings=FEW)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda columns: {**columns, "gold": np.roll(columns["gold"], 1)},
            "gold scores are not the same",
        ),
        (
            lambda columns: {name: values[1:] for name, values in columns.items()},
            "not of the same items",
        ),
    ],
)
def test_items_of_other_pairs_are_refused(change, message):
    a, b = pair()
    other = msgspec.structs.replace(b, per_item=change(b.per_item), items="other")
    with pytest.raises(DataError, match=message):
        compare({"a": [a], "b": [other]}, settings=FEW)


# Calibration of the whole: three tasks, Holm over them, and their mean.


def difference(
    task: str, size: float, p: float | None, real: bool = False, tasks: int = 1
) -> Difference:
    return Difference(
        first="A1", second="B2", task=task, tasks=["t"] * tasks, split="test", protocol=SIMCSE, n=9, seeds=(1, 1),
        scores=(0.5, 0.5 + size), deviations=None, difference=size, interval=(size - 0.01, size + 0.01), error=0.005,
        p=p, p_corrected=p, real=real, family=tasks + 2 if p is not None else 0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("differences", "sentence"),
    [
        (
            [difference("x", 0.02, 0.051)],
            "No significant difference between A1 and B2 on x (Holm p = .051). Significant: Holm p below 0.05; Holm's correction over "
            "1 test (1 pair of encoders, 1 task); intervals are not corrected.",
        ),
        (
            [
                difference("x", 0.02, 0.3),
                difference("y", 0.02, 0.3),
                difference("mean of 2 tasks", 0.02, 0.2, tasks=2),
            ],
            "No significant difference between A1 and B2 on any of 2 tasks (lowest Holm p = .30). "
            "No significant difference in the mean of 2 tasks: 2.00 points (Holm p = .20). Significant: Holm p below 0.05; Holm's correction "
            "over 2 tests (1 pair of encoders, 2 tasks) and, by itself, over 1 test of means; intervals are not corrected.",
        ),
        (
            [
                difference("x", 0.02, 0.001, True),
                difference("y", -0.03, 0.001, True),
                difference("z", 0.1, 0.3),
                difference("u", 0.1, None),
                difference("mean of 4 tasks", -0.004, 0.0001, True, tasks=4),
            ],
            "B2 is better than A1 on 1 of 4 tasks: x (+2.00). A1 is better than B2 on 1 of 4 tasks: y (+3.00). "
            "No significant difference on the other task. No paired test is known for u. "
            "A1 is better by 0.40 points in the mean of 4 tasks (Holm p < .001). Significant: Holm p below 0.05; Holm's correction over "
            "3 tests (1 pair of encoders, 3 tasks) and, by itself, over 1 test of means; intervals are not corrected.",
        ),
        (
            [difference("mean of 2 tasks", 0.004, 0.0001, True, tasks=2)],
            "B2 is better by 0.40 points in the mean of 2 tasks (Holm p < .001). "
            "Significant: Holm p below 0.05; Holm's correction over 1 test of means; intervals are not corrected.",
        ),
        (
            [difference("u", 0.1, None)],
            "No paired test is known for u.",
        ),
    ],
)
def test_a_sentence_says_which_differences_are_real(differences, sentence):
    found = Comparison(encoders=["A1", "B2"], differences=differences, level=0.05)
    assert describe_comparison(found) == [sentence]


def test_splits_and_protocols_of_a_task_are_told_apart_wherever_it_is_named():
    dot = {**SIMCSE, "similarity": "dot"}
    wmean = {**SIMCSE, "name": "wmean", "aggregation": "wmean"}
    # The label in a table, with a difference that is significant or not.
    by_label = {
        "x (test, simcse, similarity=cosine)": difference("x", 0.02, 0.001, real=True),
        "x (test, simcse, similarity=dot)": replace_fields(
            difference("x", 0.02, 0.3), protocol=dot
        ),
        "x (test, wmean)": replace_fields(difference("x", 0.02, 0.3), protocol=wmean),
        "x (dev)": replace_fields(difference("x", 0.02, 0.3), split="dev"),
        "y": difference("y", 0.02, 0.3),
    }
    differences = [replace_fields(d, smallest_detectable=0.01) for d in by_label.values()]
    assert [row[0] for row in difference_columns(differences)[1]] == list(by_label)
    found = Comparison(encoders=["A1", "B2"], differences=differences, level=0.05)
    (sentence,) = describe_comparison(found)
    significant, *others = by_label
    assert f"on 1 of 5 tasks: {significant} (+2.00)" in sentence
    assert "power: " + ", ".join(f"1.00 points on {label}" for label in others) in sentence


def test_a_planned_difference_that_no_number_of_items_finds_is_said_to_be_so():
    a, b = pair()
    found = compare({"a": [a], "b": [b]}, settings=TestSettings(n_permutations=99, plan=1e-6))
    assert (
        "A difference of 0.0001 points is found with 80% power by no number of items on sts12"
        in (describe_comparison(found)[0])
    )


def test_holms_correction_counts_all_pairs_and_tasks():
    results: dict[str, list[Result]] = {}
    for task in ("sts12", "sts13"):
        for one in (*pair(task), replace(pair(task, shift=0.8)[1], encoder="c")):
            results.setdefault(one.encoder, []).append(one)
    found = compare(results, settings=TestSettings(n_permutations=99, all_pairs=True))
    assert {d.family for d in found.differences} == {6, 3}
    over = "Holm's correction over 6 tests (3 pairs of encoders, 2 tasks) and, by itself, over 3 tests of means; intervals are not corrected."
    assert [sentence.endswith(over) for sentence in describe_comparison(found)] == [True] * 3


def test_large_ends_of_an_interval_are_told_to_one_decimal():
    (cells,) = difference_columns(
        [replace_fields(difference("x", 0.02, 0.3), interval=(-0.06, 0.1))]
    )[1]
    assert cells[4] == "-6.00 to +10.0"


def test_no_number_is_less_than_zero_by_its_sign_alone():
    tiny = difference("x", -0.00001, 0.9)
    (cells,) = difference_columns([replace_fields(tiny, interval=(-0.00004, 0.00004))])[1]
    assert cells[3:5] == ["0.00", "0.00 to 0.00"]


def test_right_items_test_no_other_score_than_the_accuracy():
    own = {"protocol": {"name": "own", "metric": "matthews"}, "scores": {}}
    a, b = (
        probe(name, "own", [1] * n + [0] * 20, n=n + 20, score=0.5, **own)
        for name, n in (("a", 40), ("b", 40))
    )
    (found,) = compare({"a": [a], "b": [replace(b, score=0.4)]}, settings=FEW).differences
    assert found.difference == pytest.approx(-0.1)
    assert found.p is None and found.interval is None


def test_items_without_a_known_statistic_give_the_difference_alone():
    results = [
        make_result(name, "own", 0.5, per_item={"loss": np.zeros(3)}, items=name) for name in "ab"
    ]
    found = compare({r.encoder: [r] for r in results}, settings=FEW)
    (difference,) = found.differences
    assert (difference.interval, difference.p, difference.p_corrected, difference.real) == (
        None,
        None,
        None,
        False,
    )
    assert "No paired test is known for own" in describe_comparison(found)[0]
    two = {
        name: [result, replace(result, task="other")]
        for name, result in zip("ab", results, strict=True)
    }
    *_, mean = compare(two, settings=FEW).differences
    assert mean.is_average and (mean.difference, mean.interval, mean.p) == (0.0, None, None)
