"""Which texts are asked for again: one of each request, within what a request may hold."""

from __future__ import annotations

from itertools import chain

import numpy as np
import pytest

from stsbench.encoders.served.requests import RepeatedTexts, RequestLimits, plan_requests


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 60])
@pytest.mark.parametrize("limits", [(1, 100), (2, 100), (8, 10_000), (8, 40), (64, 10_000)])
def test_each_text_is_asked_for_once_and_one_of_each_request_again(n, limits):
    costs = np.random.default_rng(n).integers(1, 30, n + 1)
    costs[0] = 120
    phases = plan_requests(np.arange(n), costs, RequestLimits(*limits), probe=n)
    first, alone, others, last = phases
    requests = [*first, *others]
    for rows in chain.from_iterable(phases):
        assert len(rows) <= limits[0] and len({*rows.tolist()}) == len(rows)
        assert costs[rows].sum() <= limits[1] or len(rows) == 1
    rows, counts = np.unique(np.concatenate([*chain.from_iterable(phases)]), return_counts=True)
    assert [*rows] == [*range(n + (n > 1))] and counts.max() <= 3
    # The first is asked for at the end, alone before all others, and one text more for each request that has an inner one.
    assert first[0][0] == 0 or n > 1
    if len(requests) > 1:
        assert 0 in np.concatenate(last)
    assert [rows.tolist() for rows in alone] == ([[0]] if len(first[0]) > 1 else [])
    seen = [request.tolist() for request in requests]
    later = [*seen, *(request.tolist() for request in last)]
    for place, request in enumerate(seen):
        new = [row for row in request if row not in chain.from_iterable(seen[:place]) and row != n]
        again = {*new[1:-1]} & {*chain.from_iterable(later[place + 1 :])}
        assert len(again) == (len(new) > 2)
        for row in again:
            places = [one.index(row) for one in seen if row in one]
            assert len({*places}) == len(places)
    total, n_requests = sum(map(len, chain.from_iterable(phases))), len(requests)
    assert total <= n + n_requests + 4


def test_a_move_is_a_share_of_the_length_and_another_size_is_none():
    repeated = RepeatedTexts([[np.array([0, 1, 2])], [np.array([2, 0])]], probe=3)
    vectors = np.eye(3, dtype=np.float32) * 4
    assert repeated.largest_move(np.array([0, 1, 2]), vectors) == 0
    assert repeated.largest_move(np.array([2, 0]), vectors[[2, 0]] * 1.25) == pytest.approx(0.25)
    assert repeated.largest_move(np.array([1]), vectors[[2]]) == 0, "asked for once"
    assert repeated.largest_move(np.array([2]), vectors[[2], :2]) == np.inf
    # NaN is no move that passes unseen.
    vectors[2] = np.nan
    assert np.isnan(repeated.largest_move(np.array([0, 2]), vectors[[0, 2]]))
