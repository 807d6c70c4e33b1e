"""The interval of a mean over tasks and seeds."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy import stats

from stsbench.compare.means import mean_interval
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.record import Result
from tests.compare.pairs import pair
from tests.leaderboard.scored import probe
from tests.made import make_result


def influences(result: Result) -> np.ndarray:
    return CORRELATIONS["spearman"].influence(result.per_item["similarity"], result.per_item["gold"])


def test_tasks_without_a_sentence_in_common_add_up():
    one, two = pair()[0], pair("sts13", shift=0.9, n=40)[1]
    shares = np.concatenate([influences(one) / 60, influences(two) / 40]) / 2
    weights = np.concatenate([np.full(60, 1 / 60), np.full(40, 1 / 40)]) / 2
    items = 1 / (weights @ weights)
    reach = stats.t.ppf(0.975, items - 1) * np.sqrt(shares @ shares * items / (items - 1))
    mean = (one.score + two.score) / 2
    assert mean_interval([[one], [two]]) == pytest.approx((mean - reach, mean + reach))


def test_several_seeds_widen_the_interval_of_their_mean():
    a, b = pair()
    again = msgspec.structs.replace(b, encoder="a", eval_seed=1)
    found, alone = mean_interval([[a, again]]), mean_interval([[a]])
    assert found is not None and alone is not None
    assert sum(found) / 2 == pytest.approx((a.score + b.score) / 2)
    assert np.ptp(found) > 2 * np.ptp(alone)


def test_an_interval_ends_where_scores_do_and_is_none_without_items():
    right = probe("a", "mr", [1] * 9 + [0])
    found = mean_interval([[right]])
    assert found is not None and found[1] == 1.0
    bare = msgspec.structs.replace(right, per_item={})
    assert mean_interval([[bare]]) is None and mean_interval([[right], [bare]]) is None
    assert mean_interval([[make_result("a", "own", 0.5, per_item={"loss": np.zeros(3)}, items="a")]]) is None
