"""How often intervals and tests are wrong, with the real tasks' shared sentences.

    python benchmarks/calibration.py items --data DIR  # coverage, false positives; tasks and mean
    python benchmarks/calibration.py chains --data DIR  # the same if chains of pairs err together
    python benchmarks/calibration.py found --data DIR  # how often one point of difference is found
    python benchmarks/calibration.py seeds --data DIR --tasks stsb  # recipes by several seeds
    python benchmarks/calibration.py missing   # recipes of which scores by one seed are missing
    python benchmarks/calibration.py clusters  # accuracies of items that share few texts
    python benchmarks/calibration.py power --data DIR  # how many seeds a difference needs

Gold scores and two encoders of equal quality are drawn anew in each trial; only the sentences of
each pair are real. Every value is the sum of the parts of its two sentences, of the connected
component of the pair, and of the pair itself: ``effect`` is the correlation of two pairs that
share one sentence, in the gold scores and in each encoder's errors, ``chain`` the correlation of
any two pairs of a component, which is added to it; equal pairs have one similarity. A test is
right if it calls 5% of the trials different, an interval if it holds the true correlation in 95%.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stsbench.core.catalogue import Catalogue
from stsbench.data.task import load_task
from stsbench.numbers.dependence import (
    ItemDependence,
    read_sentence_ids,
    sentence_columns,
)
from stsbench.numbers.intervals import (
    StandardError,
    correlation_interval,
    share_interval,
    standard_errors,
    wilson_interval,
)
from stsbench.numbers.statistics import (
    Float64Array,
    IntArray,
    SubsetWeights,
    spearman,
)
from stsbench.significance.differences import (
    EstimatedDifference,
    ScoreSample,
    average_samples,
)
from stsbench.significance.paired import PairedCorrelation

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
EFFECTS = (0.0, 0.2, 0.45)
CHAIN_EFFECTS = (0.0, 0.1, 0.2)
EFFECT_BESIDE_CHAINS = 0.2
QUALITY = 0.8
ITEMS = 40
"""The number of items of a task whose sentences do not matter."""
COMMON = 0.5
"""The correlation of an encoder with gold scores, before these are rounded.

It is also the part of the errors that encoders share.
"""
Rng = np.random.Generator


@dataclass(frozen=True)
class Structure:
    """The sentences of a task's n pairs.

    Attributes:
        task: The task's name.
        sentences: The numbers of each pair's sentences, from 0 on, (n, 2).
        pair: The number of each pair, the same for equal pairs, (n,).
        component: The number of each pair's component over all tasks, (n,).
        sharing: Which pairs share sentences.
    """

    task: str
    sentences: IntArray
    pair: IntArray
    component: IntArray
    sharing: ItemDependence

    @property
    def subset_weights(self) -> SubsetWeights:
        """The weights of one correlation over all pairs."""
        return SubsetWeights([np.arange(len(self.pair))], np.ones(1))


class Field:
    """Values of the pairs of all tasks at once: a sentence adds the same to each of its pairs."""

    def __init__(
        self, structures: Sequence[Structure], effect: float, rng: Rng, chain: float = 0.0
    ) -> None:
        """Draw the part of each sentence, of each pair, and of each component if it has one."""
        n_sentences = 1 + max(int(structure.sentences.max()) for structure in structures)
        n_pairs = 1 + max(int(structure.pair.max()) for structure in structures)
        n_components = 1 + max(int(structure.component.max()) for structure in structures)
        self._effect = effect
        self._chain = chain
        self._sentence_parts = rng.normal(size=n_sentences)
        self._pair_parts = rng.normal(size=n_pairs)
        self._component_parts = rng.normal(size=n_components) if chain else np.zeros(n_components)

    def __call__(self, structure: Structure) -> Float64Array:
        """Return a task's values, (n,), of mean 0 and variance 1."""
        unshared = 1 - 2 * self._effect - self._chain
        sentence_parts = self._sentence_parts[structure.sentences].sum(axis=1)
        values: Float64Array = (
            np.sqrt(unshared) * self._pair_parts[structure.pair]
            + np.sqrt(self._effect) * sentence_parts
            + np.sqrt(self._chain) * self._component_parts[structure.component]
        )
        return values


def structures(tasks: Sequence[str], data: Path | None) -> list[Structure]:
    """Read the tasks' sentences, and number them over all tasks."""
    catalogue = Catalogue()
    sentence_ids = []
    for name in tasks:
        split = load_task(name, data=data, catalogue=catalogue).load("test")
        columns = read_sentence_ids(sentence_columns(*split.sides))
        assert columns is not None, f"{name} holds no sentences"
        sentence_ids.append(columns)
    _, numbers = np.unique(np.concatenate(sentence_ids).ravel(), return_inverse=True)
    sentences = numbers.reshape(-1, 2)
    ordered = np.sort(sentences, axis=1)
    pair_keys = ordered[:, 0] * (1 + ordered.max()) + ordered[:, 1]
    _, pairs = np.unique(pair_keys, return_inverse=True)
    components = ItemDependence(sentences).components
    task_starts = np.cumsum([len(columns) for columns in sentence_ids])[:-1]
    return [
        Structure(task, task_sentences, task_pairs, task_components, ItemDependence(task_sentences))
        for task, task_sentences, task_pairs, task_components in zip(
            tasks,
            np.split(sentences, task_starts),
            np.split(pairs, task_starts),
            np.split(components, task_starts),
            strict=True,
        )
    ]


def gold_of(meaning: Float64Array) -> Float64Array:
    """Return gold scores from 0 to 5, of which many are the same."""
    rounded: Float64Array = np.clip(np.round(2 * (meaning + 1.25)), 0, 5)
    return rounded


@functools.cache
def truth(quality: float) -> float:
    """Return the true Spearman correlation of an encoder of this quality with rounded gold scores.

    It is computed over very many pairs.
    """
    rng = np.random.default_rng(1)
    meaning, error = rng.normal(size=(2, 4_000_000))
    return spearman(gold_of(meaning), quality * meaning + np.sqrt(1 - quality**2) * error)


def encode(
    meaning: Float64Array, shared: Float64Array, unshared: Float64Array, quality: float = QUALITY
) -> Float64Array:
    """Return an encoder's similarities, (n,).

    Args:
        meaning: The true similarities, (n,).
        shared: The errors that all encoders share, (n,).
        unshared: The encoder's further errors, (n,).
        quality: The correlation of the similarities with ``meaning``.
    """
    error: Float64Array = np.sqrt(COMMON) * shared + np.sqrt(1 - COMMON) * unshared
    similarities: Float64Array = quality * meaning + np.sqrt(1 - quality**2) * error
    return similarities


def paired(
    structure: Structure, meaning: Float64Array, values: Sequence[Float64Array]
) -> PairedCorrelation:
    """Return encoders' similarities, each (seeds, n), with the gold scores of a meaning."""
    return PairedCorrelation(
        values=list(values),
        gold=gold_of(meaning),
        subset_weights=structure.subset_weights,
        metric="spearman",
    )


def sample_of(correlations: PairedCorrelation, index: int) -> ScoreSample:
    """Return the score of one encoder, without seeds."""
    return ScoreSample(correlations.scores(index), correlations.influences(index), ())


def two_encoders(
    tasks: Sequence[Structure], effect: float, rng: Rng, chain: float = 0.0
) -> Iterator[tuple[Structure, PairedCorrelation]]:
    """Yield each task with gold scores and two encoders of one quality."""
    fields = [Field(tasks, effect, rng, chain) for _ in range(4)]
    for structure in tasks:
        meaning, shared, *errors = (field(structure) for field in fields)
        values = [encode(meaning, shared, error)[None] for error in errors]
        yield structure, paired(structure, meaning, values)


def sharing_assumptions(sharing: ItemDependence, n: int) -> tuple[ItemDependence, ItemDependence]:
    """Return the true sharing of n items, and the assumption that no items share anything."""
    return sharing, ItemDependence.without_shared(n)


def rates(tasks: Sequence[Structure], effect: float, trials: int) -> dict[str, Float64Array]:
    """Measure how often tests and intervals are wrong, by task and for the mean.

    Returns:
        For each task, and ``mean``: the share of false positives with the true sharing and without
        any, and the coverage of intervals in both ways, (4,).
    """
    rng = np.random.default_rng([int(100 * effect), trials])
    true_score = truth(QUALITY)
    counts = {name: np.zeros(4) for name in (*(task.task for task in tasks), "mean")}
    joint_sharing = joint_sharing_of(tasks)
    for _ in range(trials):
        samples: list[tuple[ScoreSample, ScoreSample]] = []
        for task, correlations in two_encoders(tasks, effect, rng):
            first, second = (sample_of(correlations, index) for index in (0, 1))
            samples.append((first, second))
            assumptions = sharing_assumptions(task.sharing, len(task.pair))
            for index, sharing in enumerate(assumptions):
                low, high = correlation_interval(
                    first.score,
                    "spearman",
                    correlations.values[0][0],
                    correlations.gold,
                    subset_weights=task.subset_weights,
                    dependence=sharing,
                ).bounds
                difference = EstimatedDifference.estimate(
                    first, second, sharing, correlations.weights
                )
                counts[task.task][index] += difference.p <= 0.05
                counts[task.task][2 + index] += low <= true_score <= high
        for index, sharing in enumerate(sharing_assumptions(joint_sharing, len(joint_sharing))):
            counts["mean"][[index, 2 + index]] += mean_rates(tasks, samples, sharing, true_score)
    return {name: task_counts / trials for name, task_counts in counts.items()}


def mean_rates(
    tasks: Sequence[Structure],
    pairs: Sequence[tuple[ScoreSample, ScoreSample]],
    sharing: ItemDependence,
    true_score: float,
) -> tuple[bool, bool]:
    """Test the mean over tasks.

    Returns:
        Whether the two encoders are called different, and whether the interval of the first one
        holds the true score.
    """
    first, second = (average_samples([pair[index] for pair in pairs], sharing) for index in (0, 1))
    weights = weights_of(tasks)
    error = EstimatedDifference.estimate(
        constant_sample(first, true_score), first, sharing, weights
    )
    low, high = error.interval()
    difference = EstimatedDifference.estimate(first, second, sharing, weights)
    return difference.p <= 0.05, low <= 0 <= high


def constant_sample(sample: ScoreSample, score: float) -> ScoreSample:
    """Return a sample that always has the same score, to compare another one with it."""
    return ScoreSample(np.array([score]), np.zeros_like(sample.influences), ())


def weights_of(tasks: Sequence[Structure]) -> Float64Array:
    """Return the weight of each pair in the mean over tasks."""
    sizes = [len(task.pair) for task in tasks]
    return np.concatenate([np.full(size, 1 / size / len(tasks)) for size in sizes])


def print_items(tasks: Sequence[Structure], trials: int) -> None:
    """Print a table in markdown with one row per task.

    For each effect it has false positives and coverage, each beside the one that takes all items
    for independent.
    """
    head = " | ".join(
        f"effect {effect}: FP | (independent) | coverage | (independent)" for effect in EFFECTS
    )
    print(f"| task | {head} |\n|{' --- |' * (1 + 4 * len(EFFECTS))}")
    table = [rates(tasks, effect, trials) for effect in EFFECTS]
    for name in (*(task.task for task in tasks), "mean"):
        cells = [f"{100 * share:.1f}" for column in table for share in column[name]]
        print(f"| {name} | {' | '.join(cells)} |")


def print_chains(tasks: Sequence[Structure], trials: int) -> None:
    """Print a table in markdown with one row per task, and one for the mean.

    For each effect of chains it has false positives and coverage, each beside the one by the
    variance of pairs that share a sentence alone.
    """
    head = " | ".join(
        f"chains {chain}: FP | (sentences alone) | coverage | (sentences alone)"
        for chain in CHAIN_EFFECTS
    )
    print(f"| task | {head} |\n|{' --- |' * (1 + 4 * len(CHAIN_EFFECTS))}")
    table = [chain_rates(tasks, chain, trials) for chain in CHAIN_EFFECTS]
    for name in (*(task.task for task in tasks), "mean"):
        cells = [f"{100 * share:.1f}" for column in table for share in column[name]]
        print(f"| {name} | {' | '.join(cells)} |")


def chain_rates(tasks: Sequence[Structure], chain: float, trials: int) -> dict[str, Float64Array]:
    """Measure how often tests and intervals are wrong if components have an effect.

    Returns:
        For each task, and ``mean``: the share of false positives, by the wider interval and by
        shared sentences alone, and the coverage by both, (4,).
    """
    rng = np.random.default_rng([int(100 * chain), trials, 1])
    true_score = truth(QUALITY)
    counts = {name: np.zeros(4) for name in (*(task.task for task in tasks), "mean")}
    joint_sharing = joint_sharing_of(tasks)
    joint_weights = weights_of(tasks)
    for _ in range(trials):
        samples: list[tuple[ScoreSample, ScoreSample]] = []
        for task, correlations in two_encoders(tasks, EFFECT_BESIDE_CHAINS, rng, chain):
            first, second = (sample_of(correlations, index) for index in (0, 1))
            samples.append((first, second))
            errors = standard_errors(first.mean_influences, task.sharing, correlations.weights)
            # Fisher's z, as intervals of correlations have it.
            distance = abs(np.arctanh(first.score) - np.arctanh(true_score))
            half_widths = [error.half_width / (1 - first.score**2) for error in errors]
            counts[task.task][:2] += false_positives(
                first, second, task.sharing, correlations.weights
            )
            counts[task.task][2:] += distance <= max(half_widths), distance <= half_widths[0]
        first, second = (
            average_samples([pair[index] for pair in samples], joint_sharing) for index in (0, 1)
        )
        truly = constant_sample(first, true_score)
        counts["mean"][:2] += false_positives(first, second, joint_sharing, joint_weights)
        counts["mean"][2:] += ~false_positives(truly, first, joint_sharing, joint_weights)
    return {name: task_counts / trials for name, task_counts in counts.items()}


def false_positives(
    first: ScoreSample, second: ScoreSample, sharing: ItemDependence, weights: Float64Array
) -> npt.NDArray[np.bool_]:
    """Return whether two samples differ, by the larger p and by shared sentences alone, (2,)."""
    difference = EstimatedDifference.estimate(first, second, sharing, weights)
    influences = second.mean_influences - first.mean_influences
    by_sentences = standard_errors(influences, sharing, weights)[0]
    by_sentences_alone = EstimatedDifference(difference.difference, *by_sentences)
    p_values = difference.p, by_sentences_alone.p
    return np.array(p_values) <= 0.05


def print_found(tasks: Sequence[Structure], trials: int) -> None:
    """Print the power without any effect of sentences.

    Beside it is that of the test that takes all pairs for independent.
    """
    rng = np.random.default_rng(trials)
    counts = {task.task: np.zeros(2) for task in tasks}
    qualities = (QUALITY, QUALITY + points(1.0))
    for _ in range(trials):
        meaning, shared, *errors = (Field(tasks, 0.0, rng) for _ in range(4))
        for task in tasks:
            values = [
                encode(meaning(task), shared(task), error(task), quality)[None]
                for error, quality in zip(errors, qualities, strict=True)
            ]
            correlations = paired(task, meaning(task), values)
            first, second = (sample_of(correlations, index) for index in (0, 1))
            assumptions = sharing_assumptions(task.sharing, len(task.pair))
            for index, sharing in enumerate(assumptions):
                difference = EstimatedDifference.estimate(
                    first, second, sharing, correlations.weights
                )
                counts[task.task][index] += difference.p <= 0.05
    print("| task | found | by the independent test |\n| --- | --- | --- |")
    for name, task_counts in counts.items():
        cells = [f"{100 * count / trials:.0f}%" for count in task_counts]
        print(f"| {name} | {' | '.join(cells)} |")


def trained(
    tasks: Sequence[Structure],
    qualities: Float64Array,
    fields: tuple[Field, Field, Field],
    rng: Rng,
) -> list[ScoreSample]:
    """Return the scores of one recipe's encoders on each task, one encoder per quality.

    Their errors are partly those of the recipe, partly those of each seed.

    Args:
        tasks: The tasks.
        qualities: The quality of each seed's encoder.
        fields: The meaning, the errors that all encoders share, and those of the recipe.
        rng: Draws the errors of each seed.
    """
    meaning, shared, recipe_error = fields
    values_by_task: list[list[Float64Array]] = [[] for _ in tasks]
    for quality in qualities:
        seed_error = Field(tasks, 0.2, rng)
        for task, values in zip(tasks, values_by_task, strict=True):
            error = np.sqrt(0.5) * recipe_error(task) + np.sqrt(0.5) * seed_error(task)
            values.append(encode(meaning(task), shared(task), error, float(quality)))
    seeds = tuple(range(len(qualities)))
    samples = []
    for task, values in zip(tasks, values_by_task, strict=True):
        correlations = paired(task, meaning(task), [np.array(values)])
        samples.append(ScoreSample(correlations.scores(0), correlations.influences(0), seeds))
    return samples


def seed_rates(
    tasks: Sequence[Structure], count: int, spread: float, better: float, trials: int
) -> Float64Array:
    """Measure how often two recipes are called different.

    Args:
        tasks: The tasks.
        count: The number of seeds.
        spread: The deviation of the quality over seeds.
        better: The true difference of the recipes' quality.
        trials: The number of trials.

    Returns:
        The shares of trials, by seeds and items, and by items alone, (2,).
    """
    rng = np.random.default_rng([len(tasks), count, int(1e5 * spread), int(1e5 * better), trials])
    sharing = joint_sharing_of(tasks)
    weights = weights_of(tasks)
    counts = np.zeros(2)
    for _ in range(trials):
        meaning, shared, *recipe_errors = (Field(tasks, 0.2, rng) for _ in range(4))
        recipes = [
            trained(
                tasks,
                draw_qualities(count, spread, gain, rng),
                (meaning, shared, recipe_error),
                rng,
            )
            for gain, recipe_error in zip((0.0, better), recipe_errors, strict=True)
        ]
        samples = [average_samples(recipe, sharing) for recipe in recipes]
        samples_of_means = [
            ScoreSample(
                sample.scores.mean(keepdims=True), sample.influences.mean(axis=0, keepdims=True), ()
            )
            for sample in samples
        ]
        for index, (first, second) in enumerate((samples, samples_of_means)):
            difference = EstimatedDifference.estimate(first, second, sharing, weights)
            counts[index] += difference.p <= 0.05
    return counts / trials


def draw_qualities(count: int, spread: float, better: float, rng: Rng) -> Float64Array:
    """Draw the quality of each seed's encoder, (count,), the same on all tasks."""
    qualities: Float64Array = QUALITY + better + spread * rng.normal(size=count)
    return qualities


def joint_sharing_of(tasks: Sequence[Structure]) -> ItemDependence:
    """Return which of all tasks' items share sentences."""
    return ItemDependence(np.concatenate([task.sentences for task in tasks]))


def points(value: float) -> float:
    """Return the change of quality that moves the score by this number of points."""
    return value / 100 * (2 * 0.01) / (truth(QUALITY + 0.01) - truth(QUALITY - 0.01))


def print_seeds(tasks: Sequence[Structure], trials: int) -> None:
    """Print the false positives of recipes without a difference."""
    print(
        "| deviation over seeds | seeds | seeds and items | items alone |\n| --- | --- | --- | "
        "--- |"
    )
    for deviation in (0.3, 1.0, 1.5):
        for count in (3, 5):
            by_seeds, by_items = seed_rates(tasks, count, points(deviation), 0.0, trials)
            cells = f"{100 * by_seeds:.1f} | {100 * by_items:.1f}"
            print(f"| {deviation} | {count} | {cells} |", flush=True)


def print_missing(tasks: Sequence[Structure], trials: int) -> None:
    """Print the false positives of six tasks by three seeds if scores are missing.

    One column takes the tasks jointly, the other takes them for independent.
    """
    del tasks
    print(
        "| correlation of tasks over seeds | missing | seeds that are shared "
        "| tasks as independent |"
    )
    print("| --- | --- | --- | --- |")
    sharing = ItemDependence.without_shared(6 * ITEMS)
    weights = np.full(6 * ITEMS, 1 / 6 / ITEMS)
    for correlation in (0.0, 0.5, 1.0):
        for missing in (0, 1, 3):
            rng = np.random.default_rng([int(10 * correlation), missing, trials])
            counts = np.zeros(2)
            for _ in range(trials):
                shared_seeds = [
                    six_tasks(rng, correlation, 0),
                    six_tasks(rng, correlation, missing),
                ]
                separate_seeds = [
                    list(map(with_separate_seeds, range(6), samples)) for samples in shared_seeds
                ]
                for index, sides in enumerate((shared_seeds, separate_seeds)):
                    first, second = (average_samples(samples, sharing) for samples in sides)
                    difference = EstimatedDifference.estimate(first, second, sharing, weights)
                    counts[index] += difference.p <= 0.05
            cells = " | ".join(f"{100 * count / trials:.1f}" for count in counts)
            print(f"| {correlation} | {missing} of 18 | {cells} |", flush=True)


def with_separate_seeds(task: int, sample: ScoreSample) -> ScoreSample:
    """Return a task's sample with seeds that no other task has."""
    return replace(sample, seeds=tuple((task, seed) for seed in sample.seeds))


def six_tasks(rng: Rng, correlation: float, missing: int) -> list[ScoreSample]:
    """Draw the scores of six tasks by three seeds that differ by one point.

    Args:
        rng: The generator.
        correlation: The correlation of the tasks over seeds.
        missing: The number of first tasks that lack the score of one seed.
    """
    seed_parts = rng.normal(size=3)
    task_parts = rng.normal(size=(6, 3))
    deviations = np.sqrt(correlation) * seed_parts + np.sqrt(1 - correlation) * task_parts
    samples = []
    for task, task_deviations in enumerate(deviations):
        seeds = [seed for seed in range(3) if task >= missing or seed != task % 3]
        items = rng.normal(size=(3, ITEMS)) * 0.05
        scores = 0.7 + 0.01 * task_deviations + items.mean(axis=1)
        influences = (items - items.mean(axis=1, keepdims=True)) / ITEMS
        samples.append(ScoreSample(scores[seeds], influences[seeds], tuple(seeds)))
    return samples


def print_clusters(tasks: Sequence[Structure], trials: int) -> None:
    """Print the coverage and width of the interval of an accuracy, in percent and points.

    The items are of few texts, twenty each. Beside it is the interval by the normal quantile.
    """
    del tasks
    print(
        "| texts | accuracy | correlation within a text | coverage | width "
        "| normal quantile | width |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for texts in (5, 10, 20):
        for accuracy in (0.5, 0.8, 0.95):
            for within in (0.1, 0.5):
                values = cluster_rates(texts, accuracy, within, trials)
                cells = " | ".join(f"{100 * value:.1f}" for value in values)
                print(f"| {texts} | {accuracy} | {within} | {cells} |", flush=True)


def cluster_rates(texts: int, accuracy: float, within: float, trials: int) -> Float64Array:
    """Measure intervals of an accuracy.

    Returns:
        The coverage and the mean width of the interval, then those by the normal quantile, (4,).
    """
    sharing = ItemDependence(np.repeat(np.arange(texts), 20)[:, None])
    rng = np.random.default_rng([texts, int(100 * accuracy), int(10 * within)])
    totals = np.zeros(4)
    prior = 1 / within - 1
    for _ in range(trials):
        text_accuracy = rng.beta(accuracy * prior, (1 - accuracy) * prior, size=(texts, 1))
        is_correct = (rng.random((texts, 20)) < text_accuracy).astype(np.float64).ravel()
        influences = (is_correct - is_correct.mean()) / len(is_correct)
        error = StandardError(float(np.sqrt(sharing.variance(influences))), float("inf"))
        by_normal = wilson_interval(float(is_correct.mean()), error, float(texts))
        for index, (low, high) in enumerate((share_interval(is_correct, sharing), by_normal)):
            totals[2 * index] += low <= accuracy <= high
            totals[2 * index + 1] += high - low
    return totals / trials


def print_power(tasks: Sequence[Structure], trials: int) -> None:
    """Print how often a true difference is found."""
    print("| difference | deviation over seeds | seeds | found |\n| --- | --- | --- | --- |")
    for better in (0.5, 1.0):
        for deviation in (0.3, 1.0):
            for count in (3, 5, 10):
                share, _ = seed_rates(tasks, count, points(deviation), points(better), trials)
                print(f"| {better} | {deviation} | {count} | {100 * share:.0f}% |", flush=True)


PRINTERS = {
    "items": print_items,
    "chains": print_chains,
    "found": print_found,
    "seeds": print_seeds,
    "missing": print_missing,
    "clusters": print_clusters,
    "power": print_power,
}


def main() -> None:
    """Print the chosen table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=tuple(PRINTERS))
    parser.add_argument("--data", type=Path, default=os.environ.get("STSBENCH_DATA"))
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args()
    printer = PRINTERS[options.table]
    tasks = []
    if printer not in (print_missing, print_clusters):
        data = Path(options.data) if options.data else None
        tasks = structures(options.tasks.split(","), data)
    printer(tasks, options.trials)


if __name__ == "__main__":
    main()
