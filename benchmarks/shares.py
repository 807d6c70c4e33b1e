"""How often intervals of differences of shares hold the true one, and agree with their test.

    python benchmarks/shares.py coverage  # every outcome of two encoders on n items, no draws
    python benchmarks/shares.py probes    # probes of two equal encoders with one training sample

An item that only one of two encoders has right is discordant. The share of discordant items that
only the second has right goes from 0 to 1 in steps of 0.05.
"""

from __future__ import annotations

import argparse
import warnings
from functools import cache

import numpy as np
from scipy import stats
from sklearn.linear_model import LogisticRegression

from stsbench.numbers.intervals import LEVEL
from stsbench.significance.paired import PairedShares

SIZES = (50, 100, 500, 1821)
RATES = (0.004, 0.01, 0.015, 0.03, 0.06, 0.1, 0.18)
"""The shares of items that are discordant."""
SPLITS = np.linspace(0, 1, 21)
"""The shares of discordant items that only the second encoder has right."""
NEGLIGIBLE = 1e-5
"""Outcomes whose number of discordant items is less likely, on either side, count as held."""
DIMENSIONS = 300
TRAINING_SIZES = (1000, 4000)
"""The numbers of training sentences of a probe."""
TEST_SIZE = 1821
STRENGTH = 4.0
"""How far both encoders move along all dimensions with a sentence's meaning, in deviations."""


class Outcome:
    """An outcome's interval and p-value."""

    def __init__(self, n: int, only_first: int, only_second: int) -> None:
        """Compute the interval and the p-value of an outcome on n items."""
        shares = PairedShares(n, only_first, only_second)
        self.low, self.high = shares.interval()
        self.p = shares.p


outcome = cache(Outcome)


def coverages(n: int, rate: float) -> tuple[list[float], int]:
    """Compute how often intervals hold the true difference, for each split of discordant items.

    Returns:
        The probabilities by split, and the number of outcomes whose interval and test disagree.
    """
    fewest, most = (int(stats.binom.ppf(tail, n, rate)) for tail in (NEGLIGIBLE, 1 - NEGLIGIBLE))
    held = np.zeros(len(SPLITS))
    probability = np.zeros(len(SPLITS))
    n_contradictions = 0
    for n_discordant in range(fewest, most + 1):
        for only_second in range(n_discordant + 1):
            computed = outcome(n, n_discordant - only_second, only_second)
            leaves_zero_out = computed.low > 0 or computed.high < 0
            n_contradictions += leaves_zero_out != (computed.p < 1 - LEVEL)
            likely = stats.binom.pmf(n_discordant, n, rate) * stats.binom.pmf(
                only_second, n_discordant, SPLITS
            )
            difference = rate * (2 * SPLITS - 1)
            is_held = (computed.low <= difference) & (difference <= computed.high)
            held += likely * is_held
            probability += likely
    return list(held + 1 - probability), n_contradictions


def print_coverage() -> None:
    """Print the coverage by number of items and share of discordant ones."""
    heads = "equal encoders | lowest of 21 splits | interval and test disagree"
    print(f"| items | discordant | {heads} |\n|{' --- |' * 5}")
    for n in SIZES:
        for rate in RATES:
            by_split, n_contradictions = coverages(n, rate)
            equal, lowest = 100 * by_split[len(SPLITS) // 2], 100 * min(by_split)
            print(f"| {n} | {100 * rate:g}% | {equal:.1f} | {lowest:.1f} | {n_contradictions} |")


def print_probes(trials: int) -> None:
    """Print how often two equal encoders differ significantly by one training sample."""
    print(f"| dimensions | training sentences | false positives |\n|{' --- |' * 3}")
    for n_training in TRAINING_SIZES:
        rng = np.random.default_rng(n_training)
        p_values = [p_of_probes(n_training, rng) for _ in range(trials)]
        print(f"| {DIMENSIONS} | {n_training} | {100 * np.mean(np.array(p_values) < 0.05):.1f} |")


def p_of_probes(n_training: int, rng: np.random.Generator) -> float:
    """Draw two equal encoders and one training sample, and test the difference of their probes."""
    labels = rng.integers(0, 2, n_training + TEST_SIZE)
    # Sentences that are hard are so for both encoders; all else in embeddings is their own.
    meanings = 2 * (labels - 0.5) + rng.normal(size=len(labels))
    is_right = []
    for _ in range(2):
        embeddings = rng.normal(size=(len(labels), DIMENSIONS))
        embeddings += STRENGTH * meanings[:, None] / DIMENSIONS**0.5
        probe = LogisticRegression(max_iter=200, tol=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probe.fit(embeddings[:n_training], labels[:n_training])
        is_right.append(probe.predict(embeddings[n_training:]) == labels[n_training:])
    first, second = is_right
    return PairedShares(TEST_SIZE, int(np.sum(first & ~second)), int(np.sum(second & ~first))).p


def main() -> None:
    """Print the chosen table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("coverage", "probes"))
    parser.add_argument("--trials", type=int, default=600)
    options = parser.parse_args()
    if options.table == "coverage":
        print_coverage()
    else:
        print_probes(options.trials)


if __name__ == "__main__":
    main()
