"""Paired tests and intervals on pairs without a difference: they err as often as they say they do."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from scipy import stats

from stsbench.numbers.dependence import ItemDependence
from stsbench.numbers.statistics import Float64Array, SubsetWeights
from stsbench.significance.differences import EstimatedDifference, ScoreSample, average_samples
from stsbench.significance.paired import PairedCorrelation, PairedMean, permutation_p
from stsbench.significance.ranks import rank_rows
from tests.boards.scored import sts

PAIRS, PERMUTATIONS = 1500, 299


def chance(trials: int, rate: float = 0.05) -> tuple[float, float]:
    """The bounds that a rate over so many trials leaves once in a thousand."""
    low, high = stats.binom.interval(0.999, trials, rate)
    return low / trials, high / trials


def exchangeable(
    rng: np.random.Generator, n: int
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Gold scores from 0 to 5, many the same, and two encoders with errors in common, one on another scale."""
    meaning, shared = rng.normal(size=(2, n))
    a, b = meaning + 0.5 * shared + 0.6 * rng.normal(size=(2, n))
    return np.clip(np.round(4 * (meaning + 0.6)) / 2, 0, 5), a, np.exp(b)


def unlike(rng: np.random.Generator, n: int) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Equal Spearman, unlike shapes: the second encoder errs little on four pairs of five and wildly on the fifth."""
    meaning, shared = rng.normal(size=(2, n))
    a = meaning + 0.4 * shared + 0.8 * rng.normal(size=n)
    wild = 1.1705 * np.where(rng.random(n) < 0.8, 0.3, 3.0)
    return (
        np.clip(np.round(2 * meaning + 1), 0, 5),
        a,
        1.2 * meaning + 0.4 * shared + wild * rng.normal(size=n),
    )


def correlated(rows: list[Float64Array], gold: Float64Array, metric: str) -> PairedCorrelation:
    parts = SubsetWeights([np.arange(len(gold))], np.ones(1))
    return PairedCorrelation(
        values=[row[None] for row in rows], gold=gold, subset_weights=parts, metric=metric
    )


def observed(data: PairedCorrelation | PairedMean) -> float:
    return float(data.scores(1)[0] - data.scores(0)[0])


def swapped(
    data: PairedCorrelation | PairedMean, permutations: int, rng: np.random.Generator
) -> Float64Array:
    found = data.permuted_differences(0, 1, n_permutations=permutations, rng=rng)
    assert found is not None
    return found


def difference(
    data: PairedCorrelation, sharing: ItemDependence | None = None
) -> EstimatedDifference:
    first, second = (ScoreSample(data.scores(at), data.influences(at), ()) for at in (0, 1))
    return EstimatedDifference.estimate(
        first, second, sharing or ItemDependence.without_shared(len(data.gold)), data.weights
    )


def rejected(make, n: int, metric: Literal["spearman", "pearson"]) -> float:
    """The share of pairs that the permutation test calls different at 5%."""
    rng, swaps = np.random.default_rng(11), 0
    for _ in range(PAIRS):
        gold, a, b = make(rng, n)
        data = correlated([a, b], gold, metric)
        swaps += permutation_p(observed(data), swapped(data, PERMUTATIONS, rng)) <= 0.05
    return swaps / PAIRS


def test_the_permutation_test_calls_one_null_pair_in_twenty_different():
    low, high = chance(PAIRS)
    assert low <= rejected(exchangeable, 120, "spearman") <= high


def test_it_does_so_for_encoders_of_unlike_shape():
    low, high = chance(PAIRS)
    assert low <= rejected(unlike, 240, "spearman") <= high


# Items that share sentences, and seeds.


def test_the_level_is_kept_where_pairs_recur_which_independent_tests_do_not():
    rng, sharing, calls = (
        np.random.default_rng(15),
        ItemDependence(np.arange(180)[:, None] // 3),
        np.zeros(2),
    )
    for _ in range(600):
        gold, a, b = (np.repeat(row, 3) for row in exchangeable(rng, 60))
        data = correlated([a, b], gold, "spearman")
        calls += [
            difference(data, one).p <= 0.05 for one in (sharing, ItemDependence.without_shared(180))
        ]
    low, high = chance(600)
    assert low <= calls[0] / 600 <= high
    assert calls[1] / 600 > 2 * high


def trained(
    rng: np.random.Generator, gold: Float64Array, shared: Float64Array, seeds: int, spread: float
) -> ScoreSample:
    """Encoders of one recipe: a quality that changes from seed to seed, and errors of their own."""
    quality, own = 1 + spread * rng.normal(size=(seeds, 1)), rng.normal(size=(seeds, len(gold)))
    values = [quality * gold + 0.8 * shared + 0.4 * own]
    data = PairedCorrelation(
        values=values,
        gold=gold,
        subset_weights=SubsetWeights([np.arange(len(gold))], np.ones(1)),
        metric="pearson",
    )
    return ScoreSample(data.scores(0), data.influences(0), tuple(range(seeds)))


@pytest.mark.parametrize("spread", [0.0, 0.15])
@pytest.mark.parametrize("seeds", [3, 5])
def test_recipes_that_differ_by_their_seeds_alone_are_seldom_called_different(seeds, spread):
    rng, trials, both, items = np.random.default_rng(16), 500, 0, 0
    sharing, weights = ItemDependence.without_shared(300), np.full(300, 1 / 300)
    for _ in range(trials):
        gold, shared = rng.normal(size=(2, 300))
        a, b = (trained(rng, gold, shared, seeds, spread) for _ in range(2))
        both += EstimatedDifference.estimate(a, b, sharing, weights).p <= 0.05
        alone = [
            ScoreSample(s.scores.mean(keepdims=True), s.influences.mean(axis=0, keepdims=True), ())
            for s in (a, b)
        ]
        items += EstimatedDifference.estimate(alone[0], alone[1], sharing, weights).p <= 0.05
    assert both / trials <= chance(trials)[1]
    assert items / trials > (0.2 if spread else 0.01)


@pytest.mark.parametrize("missing", [0, 1])
def test_the_mean_of_tasks_moves_with_its_seeds(missing):
    # A seed that is good is so on both tasks: taken task by task, half of that would be missed.
    rng, trials, called = np.random.default_rng(17), 400, 0
    sharing, weights = ItemDependence.without_shared(400), np.full(400, 1 / 400)
    for _ in range(trials):
        sides = []
        for _ in range(2):
            quality = 1 + 0.2 * rng.normal(size=(4, 1))
            first, second = (task_sample(rng, quality) for _ in range(2))
            kept = slice(missing, None)
            second = replace(
                second,
                scores=second.scores[kept],
                influences=second.influences[kept],
                seeds=second.seeds[kept],
            )
            sides.append(average_samples([first, second], sharing))
        called += EstimatedDifference.estimate(sides[0], sides[1], sharing, weights).p <= 0.05
    assert called / trials <= chance(trials)[1]


def task_sample(rng: np.random.Generator, quality: Float64Array) -> ScoreSample:
    gold = rng.normal(size=200)
    values = [quality * gold + 0.8 * rng.normal(size=(4, 200))]
    data = PairedCorrelation(
        values=values,
        gold=gold,
        subset_weights=SubsetWeights([np.arange(200)], np.ones(1)),
        metric="pearson",
    )
    return ScoreSample(data.scores(0), data.influences(0), tuple(range(4)))


@pytest.mark.parametrize("step", [0.0, 0.05])
def test_all_true_ranks_lie_in_their_intervals_at_once(step: float):
    trials, k = 200, 8
    n_right = 0
    for trial in range(trials):
        rng = np.random.default_rng([trial, 8])
        meaning, shared = rng.normal(size=(2, 60))
        rows = {}
        for encoder in range(k):
            errors = (0.5 + step * encoder) * rng.normal(size=60)
            rows[encoder] = [[sts(str(encoder), "sts12", meaning, meaning + 0.5 * shared + errors)]]
        standings = rank_rows(rows).rows
        # Equal encoders may have any of their ranks, so all of these must be possible.
        n_right += all(
            best <= (encoder + 1 if step else 1) and worst >= (encoder + 1 if step else k)
            for encoder, (best, worst) in (
                (encoder, standing.rank_interval) for encoder, standing in standings.items()
            )
        )
    assert n_right / trials >= chance(trials, 0.95)[0]
