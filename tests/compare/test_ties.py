"""Standings: pairwise tests, gaps, letters, and who cannot be told apart from the best."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from stsbench.compare.comparison import Effort, compare
from stsbench.compare.paired import holm
from stsbench.compare.row_items import RowItems
from stsbench.compare.ties import paired_tests, standings
from stsbench.errors import ProtocolError
from stsbench.results.record import Result
from tests.compare.pairs import FEW, pair
from tests.leaderboard.scored import drawn, sts

TASKS = ("sts12", "sts13", "sts14")
Rows = dict[str, list[list[Result]]]


def scored(encoder: str, task: str, noise: float, seed: int, **changes: Any) -> Result:
    """An encoder with so much noise on a task; every four pairs share a sentence, also with those of other tasks."""
    gold, similarity = drawn(TASKS.index(task), 120)
    rng = np.random.default_rng([seed, *task.encode(), *encoder.encode()])
    made = sts(encoder, task, gold, similarity + noise * rng.normal(size=120), **changes)
    sentences = {
        "sentence1": np.arange(120, dtype=np.uint32) // 4,
        "sentence2": np.arange(120, dtype=np.uint32) + 1000 * (1 + TASKS.index(task)),
    }
    return msgspec.structs.replace(made, per_item={**made.per_item, **sentences})


def made_rows(noises: dict[str, float], *, seeds: Sequence[int] = ()) -> Rows:
    """A row a name; one whose name has an S has trained with seeds."""
    return {
        name: [
            [scored(name, task, noise, seed, train_seed=seed) for seed in seeds]
            if "S" in name
            else [scored(name, task, noise, 0)]
            for task in TASKS
        ]
        for name, noise in noises.items()
    }


def compared(rows: Rows, first: str, second: str) -> Any:
    """What ``compare`` says of the mean of two rows over the tasks that both have."""
    found = compare({name: [one for seeds in rows[name] for one in seeds] for name in (first, second)}, effort=FEW)
    return found.differences[-1]


def test_every_pair_is_tested_as_compare_tests_means():
    rows = made_rows({"a": 0.0, "b": 0.1, "cS": 0.3, "d": 0.4, "eS": 0.1}, seeds=[1, 2, 3])
    rows["d"][1], rows["eS"][0] = [], []
    names = list(rows)
    differences, p = paired_tests(RowItems(rows), names)
    for (i, first), (j, second) in itertools.combinations(enumerate(names), 2):
        expected = compared(rows, first, second)
        if len(expected.tasks) > 1:
            assert (differences[i, j], p[i, j]) == pytest.approx((expected.difference, expected.p)), (first, second)
            assert (differences[j, i], p[j, i]) == (-differences[i, j], p[i, j])
    assert np.isnan(np.diag(p)).all()


def test_letters_tell_which_differences_are_significant_after_holm():
    rows = made_rows({"a": 0.0, "b": 0.05, "c": 0.25, "d": 0.3, "e": 0.9})
    found = standings(rows, effort=Effort(draws=200))
    pairs = list(itertools.combinations(rows, 2))
    corrected = holm([compared(rows, *names).p for names in pairs])
    shared = [bool(set(found.rows[a].letters) & set(found.rows[b].letters)) for a, b in pairs]
    assert shared == [p >= 0.05 for p in corrected] and len(set(shared)) == 2
    assert (found.tests, found.level, found.lacking, found.untold) == (10, 0.05, [], [])
    best = min(found.rows, key=lambda name: found.rows[name].rank)
    assert found.rows[best].letters.startswith("a")
    tied = {best} | {b if a == best else a for (a, b), one in zip(pairs, shared, strict=True) if one and best in (a, b)}
    assert {name for name, one in found.rows.items() if one.is_best} == tied


def test_a_task_that_a_row_lacks_neither_lowers_nor_raises_it():
    rows = made_rows({"a": 0.0, "b": 0.3, "c": 0.9})
    whole = {name: one.rank for name, one in standings(rows, effort=FEW).rows.items()}
    assert whole == {"a": 1, "b": 2, "c": 3}
    # By plain means over what it has, b would go up without its worst task, and c without its best come no nearer.
    for task in range(3):
        gap = {**rows, "b": [seeds if at != task else [] for at, seeds in enumerate(rows["b"])]}
        found = standings(gap, effort=Effort(draws=300))
        assert {name: one.rank for name, one in found.rows.items()} == whole
        assert found.rows["b"].tasks == tuple(at for at in range(3) if at != task)
        assert found.rows["b"].ranks[0] <= 2 <= found.rows["b"].ranks[1]
    # An easy task alone: a hundred points on it do not lift c above encoders that are better there.
    easy = {**rows, "c": [rows["c"][0], [], []]}
    assert standings(easy, effort=FEW).rows["c"].rank == 3


def test_rows_without_a_task_in_common_are_not_told_apart():
    rows = made_rows({"a": 0.0, "b": 0.9})
    rows["a"], rows["b"] = [rows["a"][0], [], []], [[], *rows["b"][1:]]
    found = standings(rows, effort=FEW)
    assert found.tests == 0 and {one.letters for one in found.rows.values()} == {"a"}
    assert {one.rank for one in found.rows.values()} == {1}


def test_what_has_no_columns_is_told_and_the_rest_ranked():
    rows = made_rows({"a": 0.0, "b": 0.9, "c": 0.3})
    bare = msgspec.structs.replace(rows["a"][1][0], per_item={})
    rows["a"][1] = [bare]
    rows["c"] = [[msgspec.structs.replace(one, per_item={}) for one in seeds] for seeds in rows["c"]]
    found = standings(rows, effort=FEW)
    assert list(found.rows) == ["a", "b"] and found.rows["a"].tasks == (0, 2)
    assert {(one.encoder, one.task) for one in found.lacking} == {("a", "sts13"), *(("c", task) for task in TASKS)}
    assert standings({"c": rows["c"]}, effort=FEW).rows == {}
    assert standings({}, effort=FEW).rows == {}


def test_results_that_do_not_tell_their_sentences_are_told():
    a, b = pair()
    found = standings({"a": [[a]], "b": [[b]]}, effort=FEW)
    assert [one.encoder for one in found.untold] == ["a", "b"] and found.tests == 1
    assert standings({"a": [[a]], "b": [[b]]}, effort=Effort(draws=50, dependence="none")).untold == [a, b]


def test_scores_made_differently_are_refused():
    a, b = pair()
    other = msgspec.structs.replace(b, data="e" * 64)
    with pytest.raises(ProtocolError, match="sts12: 'a' and 'b' cannot be ranked together: data hash differs"):
        standings({"a": [[a]], "b": [[other]]}, effort=FEW)
