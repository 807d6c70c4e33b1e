"""Checks of means over suites, and against published scores."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from stsbench.boards.published import protocols, published_row
from stsbench.check.gate import Check, Verdict, check, check_published, parse_tolerances
from stsbench.check.reports import markdown
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError
from stsbench.results.record import Result
from tests.boards.scored import RUN, drawn, sts
from tests.boards.shown import STS
from tests.check.test_gate import BF16, FEW, WMEAN, locked, made, side
from tests.made import make_result

SUITES = {"pair": Suite(name="Pair", tasks=["sts12", "sts13"])}


def pair(*scores: float, **changes: Any) -> list[Result]:
    return [made(score, task, **changes) for task, score in zip(("sts12", "sts13"), scores, strict=True)]


def means(found: Check) -> list[Verdict]:
    return [verdict for verdict in found.verdicts if verdict.is_mean]


def test_a_drift_that_no_cell_shows_is_caught_on_the_mean():
    # Each may fall by 0.1 points, their mean by 0.1 * sqrt(2) / 2.
    fell = check(side(*pair(0.4991, 0.6991, run=BF16, fingerprint="h")), side(*pair(0.5, 0.7)), suites=SUITES)
    assert [v.outcome for v in fell.verdicts] == ["fine", "fine", "regression"]
    (mean,) = means(fell)
    assert (mean.task, mean.tolerance) == ("mean of Pair", "half")
    assert [mean.new, mean.old] == pytest.approx([0.5991, 0.6])
    assert mean.points == pytest.approx(0.1 * 2**0.5 / 2) and fell.exit_code == 1
    assert fell.summary == "2 cells and 1 mean: 1 regression, 2 fine"
    assert "| mean of Pair (simcse) |" in markdown(fell)
    noise = check(side(*pair(0.4991, 0.7005, run=BF16, fingerprint="h")), side(*pair(0.5, 0.7)), suites=SUITES)
    assert noise.exit_code == 0 and len(means(noise)) == 1
    wide = parse_tolerances(["half=0.2"])
    assert (
        check(side(*pair(0.4991, 0.6991, run=BF16)), side(*pair(0.5, 0.7)), suites=SUITES, tolerances=wide).exit_code
        == 0
    )


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (pair(0.5, 0.7)[:1], pair(0.5, 0.7)),
        (pair(0.5, 0.7), pair(0.5, 0.7)[:1]),
        ([made(0.5), made(0.7, "sts13", data="e" * 64)], pair(0.5, 0.7)),
        ([made(0.5), made(0.7, "sts13", protocol=WMEAN)], [made(0.5), made(0.7, "sts13", protocol=WMEAN)]),
        (pair(0.5, 0.7, split="validation"), pair(0.5, 0.7, split="validation")),
    ],
)
def test_no_mean_over_a_hole_other_data_two_protocols_or_another_split(new, old):
    assert not means(check(side(*new), side(*old), suites=SUITES))


def test_suites_without_a_mean_have_none_and_seeds_have_one_each():
    bare = {
        "pair": Suite(name="Pair", tasks=["sts12", "sts13"], average=False),
        "one": Suite(name="1", tasks=["sts12"]),
    }
    assert not means(check(side(*pair(0.5, 0.7)), side(*pair(0.5, 0.7)), suites=bare))
    two = [*pair(0.5, 0.7), *pair(0.4, 0.6, eval_seed=1)]
    first, second = means(check(side(*two), side(*two), suites=SUITES))
    assert (first.eval_seed, second.eval_seed) == (0, 1)
    assert [first.new, second.new] == pytest.approx([0.6, 0.5])


def noisy(task: str, seed: int, noise: float, fingerprint: str) -> Result:
    gold, similarity = drawn(seed, 300)
    moved = similarity + noise * np.random.default_rng(seed + 90).normal(size=300)
    return sts("minilm", task, gold, moved, fingerprint=fingerprint)


@pytest.mark.parametrize(("noise", "outcome"), [(0.02, "lower"), (0.6, "regression")])
def test_by_the_statistical_rule_a_mean_must_fall_really(noise, outcome):
    old = [noisy(task, at, 0.0, "old") for at, task in enumerate(("sts12", "sts13"))]
    new = [noisy(task, at, noise, "new") for at, task in enumerate(("sts12", "sts13"))]
    found = check(side(*new), side(*old), rule="statistical", suites=SUITES, effort=FEW)
    (mean,) = means(found)
    assert mean.outcome == outcome and "(paired test)" in mean.reason
    (locked_mean,) = means(check(side(*new), locked(*old), rule="statistical", suites=SUITES))
    unknown = "cannot judge it: the lock holds no per-item values" in locked_mean.reason
    assert unknown or locked_mean.outcome == "regression"


def test_the_intervals_of_a_mean_are_half_as_wide_as_four_cells():
    tasks = ["sts12", "sts13", "sts14", "sts15"]
    suites = {"four": Suite(name="Four", tasks=tasks)}

    def four(score: float) -> list[Result]:
        return [made(score, task, fingerprint=str(score), interval=(score - 0.02, score + 0.02)) for task in tasks]

    (mean,) = means(check(side(*four(0.48)), locked(*four(0.5)), rule="statistical", suites=suites))
    # One cell's z is 1.386 (p 0.17), that of the mean of four twice as much.
    assert mean.p == pytest.approx(0.0056, abs=2e-4) and mean.outcome == "regression"


# Published scores.

KEY = "simcse/table-5/SimCSE-BERT-base"
PRINTED = {score.task: score.value / 100 for score in published_row(KEY).scores}


def simcse(task: str, moved: float = 0.0, **changes: Any) -> Result:
    score = PRINTED[task] + moved / 100
    facts: dict[str, Any] = {"scores": {"spearman.all": score}, "run": RUN, "n": 3000}
    return make_result("simcse-bert-base", task, score, **facts | changes)


def published(*results: Result, **options: Any) -> Check:
    return check_published(side(*results), Catalogue(), **options)


def of_table(found: Check) -> list[Verdict]:
    return [verdict for verdict in found.verdicts if verdict.reason.endswith(KEY)]


def test_measured_scores_may_be_a_tenth_of_a_point_below_print():
    found = of_table(published(*(simcse(task, -0.09) for task in STS)))
    assert [(v.task, v.outcome, v.tolerance, v.points) for v in found] == [(t, "fine", "published", 0.1) for t in STS]
    fallen = published(simcse("sts12", -0.2), simcse("sts13", 0.2))
    assert {(v.task, v.outcome) for v in of_table(fallen)} == {("sts12", "regression"), ("sts13", "higher")}
    assert fallen.exit_code == 1
    wide = parse_tolerances(["published=0.3"])
    assert {v.outcome for v in of_table(published(simcse("sts12", -0.2), tolerances=wide))} == {"fine"}
    assert published(simcse("sts13", 0.2), exact=True).exit_code == 1


def test_seeds_are_their_mean():
    seeds = [simcse("sts12", moved, eval_seed=at) for at, moved in enumerate((-0.3, 0.3))]
    (verdict,) = of_table(published(*seeds))
    assert verdict.outcome == "fine" and verdict.new == pytest.approx(PRINTED["sts12"])


def test_probes_are_allowed_as_much_as_other_stacks_drift():
    facts = {**protocols()["senteval"].fields["probe"], "name": "senteval"}
    key = next(key for key in Catalogue().encoder("simcse-bert-base").published if "/table-e.1/" in key)
    printed = {score.task: score.value / 100 for score in published_row(key).scores}
    results = [
        make_result("simcse-bert-base", task, printed[task], split=split, protocol=facts, n=n,
                    scores={"accuracy": printed[task] - 0.004})
        for task, split, n in (("mr", "all", 10662), ("trec", "test", 500))
    ]  # fmt: skip
    found = {v.task: (v.outcome, v.tolerance) for v in published(*results).verdicts if v.reason.endswith(key)}
    assert found == {"mr": ("fine", "probe"), "trec": ("fine", "probe-few")}


@pytest.mark.parametrize(
    "result",
    [
        msgspec.structs.replace(simcse("sts12"), encoder="simcse-bert-base+pooling=max"),
        msgspec.structs.replace(simcse("sts12"), encoder="mine"),
        simcse("sts12", scores={"pearson.all": 0.5}),
        simcse("sts12", split="validation"),
    ],
)
def test_nothing_published_is_an_error(result):
    with pytest.raises(
        DataError, match="no result has a published score to check it against: a card's key 'published'"
    ):
        published(result)
