from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stsbench.encoders.base import TokenIds, plan_batches

Ints = np.ndarray[Any, np.dtype[np.int64]]


def plan(lengths: list[int] | Ints, budget: int = 64) -> list[list[int]]:
    return [rows.tolist() for rows in plan_batches(np.asarray(lengths, dtype=np.int64), budget=budget)]


def some_lengths(n: int = 500) -> Ints:
    lengths: Ints = np.random.default_rng(0).integers(0, 40, size=n)
    return lengths


def test_token_ids_of_lists():
    tokens = TokenIds.from_lists([[7, 8, 9], [], [5]])
    assert len(tokens) == 3
    assert tokens.ids.tolist() == [7, 8, 9, 5]
    assert tokens.offsets.tolist() == [0, 3, 3, 4]
    assert tokens.lengths.tolist() == [3, 0, 1]
    assert (str(tokens.ids.dtype), str(tokens.offsets.dtype)) == ("int32", "int64")


def test_joined_parts_keep_what_is_pooled():
    parts = [TokenIds(np.arange(n, dtype=np.int32), np.array([0, n]), np.array([[1, n]])) for n in (3, 5)]
    spans = TokenIds.join(parts).spans
    assert spans is not None and spans.tolist() == [[1, 3], [1, 5]]


@pytest.mark.parametrize(
    ("left", "ids", "mask"),
    [
        (False, [[5, 0, 0], [7, 8, 9], [0, 0, 0]], [[1, 0, 0], [1, 1, 1], [0, 0, 0]]),
        (True, [[0, 0, 5], [7, 8, 9], [0, 0, 0]], [[0, 0, 1], [1, 1, 1], [0, 0, 0]]),
    ],
)
def test_padded_on_either_side(left, ids, mask):
    tokens = TokenIds.from_lists([[7, 8, 9], [], [5]])
    padded = tokens.padded(np.array([2, 0, 1]), pad=0, left=left)
    assert padded[0].tolist() == ids
    assert padded[1].tolist() == mask
    assert {part.dtype for part in padded} == {np.dtype(np.int64)}


def test_padding_is_told_by_the_mask_and_not_by_the_id():
    ids, mask = TokenIds.from_lists([[3, 3], [3]]).padded(np.array([0, 1]), pad=3)
    assert ids.tolist() == [[3, 3], [3, 3]]
    assert mask.tolist() == [[1, 1], [1, 0]]


def test_every_row_once_and_longest_first():
    lengths = some_lengths()
    batches = plan(lengths)
    assert sorted(row for rows in batches for row in rows) == list(range(len(lengths)))
    in_turn = [int(lengths[row]) for rows in batches for row in rows]
    assert in_turn == sorted(in_turn, reverse=True)


@pytest.mark.parametrize("budget", [1, 39, 64, 2048])
def test_padded_tokens_stay_within_the_budget(budget):
    lengths = some_lengths()
    for rows in plan(lengths, budget):
        assert len(rows) * max(lengths[rows].max(), 1) <= budget or len(rows) == 1


def test_hardly_a_token_is_padding():
    lengths = np.random.default_rng(1).integers(4, 60, size=20_000)
    padded = sum(len(rows) * int(lengths[rows].max()) for rows in plan(lengths, 2048))
    assert padded < 1.01 * lengths.sum()


@pytest.mark.parametrize(
    ("lengths", "budget", "batches"),
    [
        # A sentence longer than the budget goes alone.
        ([200, 3, 100, 3], 64, [[0], [2], [1, 3]]),
        # A short run of equal lengths shares its batch.
        ([8, 7, 7, 7, 7, 6, 6, 6], 64, [list(range(8))]),
        # Sentences of no tokens are planned like any.
        ([0, 0, 2], 2, [[2], [0, 1]]),
        ([], 64, []),
    ],
)
def test_plans(lengths, budget, batches):
    assert plan(lengths, budget) == batches
