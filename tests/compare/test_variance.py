"""Variance over items and seeds: against literal sums and loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from stsbench.compare.variance import Contrast, Sample, difference_of, joint_draws, mean_sample, over_seeds
from stsbench.numbers.intervals import StandardError, standard_error
from stsbench.numbers.sharing import Sharing

SHARING = Sharing(np.arange(24)[:, None] // 2)
EVEN = np.full(24, 1 / 24)


def sample(seed: int, seeds: int = 3) -> Sample:
    """Scores that differ by more than their items explain."""
    rng = np.random.default_rng(seed)
    shares = rng.normal(size=(seeds, 24)) / 1000
    return Sample(0.7 + rng.normal(size=seeds) / 20, shares, tuple(range(seeds)) if seeds > 1 else ())


def test_what_seeds_add_is_their_variance_less_what_items_explain():
    one = sample(1)
    explained = sum(SHARING.variance(one.shares[s] - one.shares.mean(axis=0)) for s in range(3)) / 2
    expected = (one.scores.var(ddof=1) - explained) / 3
    found = over_seeds(one, SHARING)
    assert found is not None and found.df == 2 and found.error**2 == pytest.approx(expected)
    assert over_seeds(replace(one, scores=np.full(3, 0.7)), SHARING) == StandardError(0.0, 2)
    assert over_seeds(sample(1, seeds=1), SHARING) is None


def test_a_difference_adds_items_and_the_seeds_of_both_sides():
    a, b = sample(1), sample(2, seeds=4)
    items = standard_error(b.shares.mean(axis=0) - a.shares.mean(axis=0), SHARING, EVEN)
    parts = [items, over_seeds(a, SHARING), over_seeds(b, SHARING)]
    variances = [part.error**2 for part in parts if part is not None]
    found = difference_of(a, b, SHARING, EVEN)
    df = sum(variances) ** 2 / sum(v**2 / part.df for v, part in zip(variances, parts, strict=True) if part)
    assert found == pytest.approx((b.score - a.score, sum(variances) ** 0.5, df))
    assert found.p == pytest.approx(2 * stats.t.sf(abs(found.difference) / found.error, df))
    reach = stats.t.ppf(0.975, df) * found.error
    assert found.interval() == pytest.approx((found.difference - reach, found.difference + reach))
    assert difference_of(a, replace(a, seeds=()), SHARING, EVEN).p == 1.0


def test_of_items_that_all_share_a_sentence_nothing_is_known():
    found = difference_of(sample(1, 1), sample(2, 1), Sharing(np.zeros((24, 1), dtype=np.int64)), EVEN)
    assert found.interval() == (-2.0, 2.0) and found.p == 1.0
    assert Contrast(0.5, 0.0, 3.0).p == 0.0


def test_a_mean_over_tasks_is_taken_seed_by_seed_where_all_have_the_same():
    one, two = sample(1), sample(2)
    joint = mean_sample([one, two], [SHARING, SHARING])
    assert joint.scores == pytest.approx((one.scores + two.scores) / 2) and joint.drift == ()
    np.testing.assert_allclose(joint.shares, np.concatenate([one.shares, two.shares], axis=1) / 2)
    apart = mean_sample([one, replace(two, seeds=(7, 8, 9))], [SHARING, SHARING])
    spreads = [over_seeds(s, SHARING) for s in (one, two)]
    assert apart.score == pytest.approx(joint.score) and apart.shares.shape == (1, 48)
    assert apart.drift == tuple(StandardError(s.error / 2, s.df) for s in spreads if s)


def test_draws_vary_as_shares_and_seeds_do_and_twins_tie():
    a, b = sample(1), sample(2, seeds=1)
    drawn = joint_draws([a, b, b], SHARING, draws=40_000, rng=np.random.default_rng(0))
    expected = SHARING.covariance(np.array([s.shares.mean(axis=0) for s in (a, b)]))
    seeds = over_seeds(a, SHARING)
    expected[0, 0] += seeds.error**2 if seeds else 0.0
    np.testing.assert_allclose(np.cov(drawn[:2]), expected, rtol=0.05, atol=0.02 * expected.max())
    assert drawn.mean(axis=1) == pytest.approx([a.score, b.score, b.score], abs=1e-3)
    assert np.array_equal(drawn[1], drawn[2])


def test_samples_of_one_encoder_have_its_seeds_in_common():
    a, b = sample(1), sample(2)
    still = [replace(one, shares=np.zeros_like(one.shares)) for one in (a, a, b)]
    tied = joint_draws(still, SHARING, draws=50, rng=np.random.default_rng(0), owners=[0, 0, 1])
    apart = joint_draws(still, SHARING, draws=50, rng=np.random.default_rng(0))
    assert np.array_equal(tied[0], tied[1]) and not np.array_equal(apart[0], apart[1])
    assert abs(np.corrcoef(tied[0], tied[2])[0, 1]) < 0.5
