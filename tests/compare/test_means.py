"""The interval of a mean over tasks and seeds."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy import stats

from stsbench.compare.means import mean_interval, mean_intervals
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.folder import scan_results
from stsbench.results.record import Result, items_path
from tests.compare.pairs import pair, told
from tests.leaderboard.scored import probe, write
from tests.made import make_result


def influences(result: Result) -> np.ndarray:
    return CORRELATIONS["spearman"].influence(result.per_item["similarity"], result.per_item["gold"])


def test_tasks_without_a_sentence_in_common_add_up():
    one, two = told(pair()[0]), told(pair("sts13", shift=0.9, n=40)[1], 100)
    shares = np.concatenate([influences(one) / 60, influences(two) / 40]) / 2
    weights = np.concatenate([np.full(60, 1 / 60), np.full(40, 1 / 40)]) / 2
    items = 1 / (weights @ weights)
    reach = stats.t.ppf(0.975, items - 1) * np.sqrt(shares @ shares * items / (items - 1))
    mean = (one.score + two.score) / 2
    assert mean_interval([[one], [two]]) == pytest.approx((mean - reach, mean + reach))


def test_several_seeds_widen_the_interval_of_their_mean():
    a, b = map(told, pair())
    again = msgspec.structs.replace(b, encoder="a", eval_seed=1)
    found, alone = mean_interval([[a, again]]), mean_interval([[a]])
    assert found is not None and alone is not None
    assert sum(found) / 2 == pytest.approx((a.score + b.score) / 2)
    assert np.ptp(found) > 2 * np.ptp(alone)


def test_an_interval_ends_where_scores_do_and_is_none_without_items():
    right = told(probe("a", "mr", [1] * 9 + [0]))
    found = mean_interval([[right]])
    assert found is not None and found[1] == 1.0
    bare = msgspec.structs.replace(right, per_item={})
    assert mean_interval([[bare]]) is None and mean_interval([[right], [bare]]) is None
    # An interval that takes pairs as independent would be too narrow.
    assert mean_interval([[probe("a", "mr", [1] * 9 + [0])]]) is None
    assert mean_interval([[make_result("a", "own", 0.5, per_item={"loss": np.zeros(3)}, items="a")]]) is None


def test_many_rows_are_read_at_once_and_each_has_its_own_interval(tmp_path):
    a, b = map(told, pair())
    other_data = msgspec.structs.replace(told(pair("sts12", n=40)[0], 500), data="e" * 64)
    more = told(pair("sts13", shift=0.9, n=40)[1], 100)
    kept = [scan_results(write(tmp_path / name, one)).results[0] for name, one in (("cut", a), ("gone", a))]
    items_path(tmp_path / "cut" / "a" / kept[0].path.name).write_bytes(b"cut") if kept[0].path else None
    items_path(tmp_path / "gone" / "a" / kept[1].path.name).unlink() if kept[1].path else None
    rows = {1: [[a], [more]], 2: [[b], []], 3: [[other_data], []], 4: [[kept[0]], []], 5: [[kept[1]], []]}
    rows |= {6: [[pair()[0]], []]}
    found = mean_intervals(rows, {1: [(0, 1), (1,)], **{key: [(0,), (0, 1)] for key in range(2, 7)}})
    assert set(found.intervals) == {(1, (0, 1)), (1, (1,)), (2, (0,)), (3, (0,)), (6, (0,))}
    assert found.intervals[1, (0, 1)] == mean_interval([[a], [more]])
    assert found.intervals[2, (0,)] == mean_interval([[b]])
    assert found.intervals[3, (0,)] == mean_interval([[other_data]])
    assert list(found.lacking) == kept
    # Row 6 has the items of row 2, which tell their sentences; alone it has no interval.
    assert found.untold == [] and mean_intervals({6: rows[6]}, {6: [(0,)]}).untold == [rows[6][0][0]]
