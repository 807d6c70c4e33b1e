"""How often intervals and tests are wrong: on the real tasks' own shared sentences, with dependence of known size.

    python benchmarks/calibration.py items --data DIR      # coverage and false positives a task and for the mean
    python benchmarks/calibration.py found --data DIR      # how often a difference of one point is found
    python benchmarks/calibration.py seeds --data DIR --tasks stsb      # recipes compared by several training seeds
    python benchmarks/calibration.py missing      # recipes of which one task's score by one seed is missing
    python benchmarks/calibration.py clusters      # accuracies of items that share few texts
    python benchmarks/calibration.py power --data DIR      # how many seeds a difference needs

Gold scores and two encoders of equal quality are drawn anew in each trial; only which pair holds which sentence is real.
Every value is the sum of what its two sentences add and of what the pair adds: ``effect`` is the correlation of
two pairs that share one sentence, in the gold scores and in each encoder's errors; a doubled pair has one similarity.
A test is right where it calls 5% of the trials different, an interval where it holds the true correlation in 95%.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stsbench.core.catalogue import Catalogue
from stsbench.data.task import load_task
from stsbench.numbers.statistics import (
    Float64Array,
    IntArray,
    ItemDependence,
    StandardError,
    SubsetWeights,
    correlation_interval,
    read_sentence_ids,
    sentence_columns,
    share_interval,
    spearman,
    wilson_interval,
)
from stsbench.significance.differences import EstimatedDifference, ScoreSample, average_samples
from stsbench.significance.paired import PairedCorrelation

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
EFFECTS = (0.0, 0.2, 0.45)
QUALITY = 0.8
ITEMS = 40
"""The items of a task whose sentences do not matter."""
COMMON = 0.5
"""Correlation of an encoder with gold scores, before these are rounded; and the part of errors that encoders share."""
Rng = np.random.Generator


@dataclass(frozen=True)
class Structure:
    """Which sentences the n pairs of a task hold: numbers from 0 on, (n, 2), the pair's own number, and who shares."""

    task: str
    sentences: IntArray
    pair: IntArray
    sharing: ItemDependence

    @property
    def parts(self) -> SubsetWeights:
        """One correlation over all pairs."""
        return SubsetWeights([np.arange(len(self.pair))], np.ones(1))


class Field:
    """Values of pairs of all tasks at once: a sentence adds the same wherever it stands."""

    def __init__(self, structures: Sequence[Structure], effect: float, rng: Rng) -> None:
        """Draw what each sentence adds, and each pair."""
        self._effect = effect
        self._sentence = rng.normal(size=1 + max(int(one.sentences.max()) for one in structures))
        self._pair = rng.normal(size=1 + max(int(one.pair.max()) for one in structures))

    def __call__(self, one: Structure) -> Float64Array:
        """A task's values, (n,), of mean 0 and variance 1."""
        own = np.sqrt(1 - 2 * self._effect) * self._pair[one.pair]
        found: Float64Array = own + np.sqrt(self._effect) * self._sentence[one.sentences].sum(
            axis=1
        )
        return found


def structures(tasks: Sequence[str], data: Path | None) -> list[Structure]:
    """The tasks' sentences, numbered over all of them."""
    catalogue, keys = Catalogue(), []
    for name in tasks:
        split = load_task(name, data=data, catalogue=catalogue).load("test")
        columns = read_sentence_ids(sentence_columns(*split.sides))
        assert columns is not None, f"{name} holds no sentences"
        keys.append(columns)
    _, flat = np.unique(np.concatenate(keys).ravel(), return_inverse=True)
    numbered = np.split(flat.reshape(-1, 2), np.cumsum([len(one) for one in keys])[:-1])
    sides = np.sort(flat.reshape(-1, 2), axis=1)
    _, pairs = np.unique(sides[:, 0] * (1 + sides.max()) + sides[:, 1], return_inverse=True)
    own = np.split(pairs, np.cumsum([len(one) for one in keys])[:-1])
    rows = zip(tasks, numbered, own, strict=True)
    return [
        Structure(task, sentences, pair, ItemDependence(sentences))
        for task, sentences, pair in rows
    ]


def gold_of(meaning: Float64Array) -> Float64Array:
    """Gold scores from 0 to 5, many the same."""
    rounded: Float64Array = np.clip(np.round(2 * (meaning + 1.25)), 0, 5)
    return rounded


@functools.cache
def truth(quality: float) -> float:
    """Spearman's correlation of an encoder of this quality with rounded gold scores, over very many pairs."""
    rng = np.random.default_rng(1)
    meaning, error = rng.normal(size=(2, 4_000_000))
    return spearman(gold_of(meaning), quality * meaning + np.sqrt(1 - quality**2) * error)


def encode(
    meaning: Float64Array, shared: Float64Array, own: Float64Array, quality: float = QUALITY
) -> Float64Array:
    """An encoder's similarities, (n,), of which part of the errors is shared by all encoders."""
    error: Float64Array = np.sqrt(COMMON) * shared + np.sqrt(1 - COMMON) * own
    found: Float64Array = quality * meaning + np.sqrt(1 - quality**2) * error
    return found


def two_encoders(
    tasks: Sequence[Structure], effect: float, rng: Rng
) -> Iterator[tuple[Structure, PairedCorrelation]]:
    """Each task with gold scores and two encoders of one quality."""
    fields = [Field(tasks, effect, rng) for _ in range(4)]
    for one in tasks:
        meaning, shared, *own = (field(one) for field in fields)
        values = [encode(meaning, shared, error)[None] for error in own]
        yield (
            one,
            PairedCorrelation(
                values=values, gold=gold_of(meaning), subset_weights=one.parts, metric="spearman"
            ),
        )


def rates(tasks: Sequence[Structure], effect: float, trials: int) -> dict[str, Float64Array]:
    """By task and for the mean: false positives with what is shared and without, coverage likewise, as shares."""
    rng, true = np.random.default_rng([int(100 * effect), trials]), truth(QUALITY)
    found = {name: np.zeros(4) for name in (*(one.task for one in tasks), "mean")}
    joint = joint_sharing_of(tasks)
    for _ in range(trials):
        kept: list[tuple[ScoreSample, ScoreSample]] = []
        for one, data in two_encoders(tasks, effect, rng):
            first, second = (ScoreSample(data.scores(at), data.influences(at), ()) for at in (0, 1))
            kept.append((first, second))
            for way, sharing in enumerate(
                (one.sharing, ItemDependence.without_shared(len(one.pair)))
            ):
                low, high = correlation_interval(
                    first.score,
                    "spearman",
                    data.values[0][0],
                    data.gold,
                    subset_weights=one.parts,
                    dependence=sharing,
                )
                found[one.task][way] += (
                    EstimatedDifference.estimate(first, second, sharing, data.weights).p <= 0.05
                )
                found[one.task][2 + way] += low <= true <= high
        for way, sharing in enumerate((joint, ItemDependence.without_shared(len(joint)))):
            found["mean"][[way, 2 + way]] += mean_rates(tasks, kept, sharing, true)
    return {name: counts / trials for name, counts in found.items()}


def mean_rates(
    tasks: Sequence[Structure],
    pairs: Sequence[tuple[ScoreSample, ScoreSample]],
    sharing: ItemDependence,
    true: float,
) -> tuple[bool, bool]:
    """Whether the mean over tasks is called different, and whether one encoder's interval holds the truth."""
    first, second = (average_samples([pair[at] for pair in pairs], sharing) for at in (0, 1))
    low, high = EstimatedDifference.estimate(
        always(first, true), first, sharing, weights_of(tasks)
    ).interval()
    return EstimatedDifference.estimate(
        first, second, sharing, weights_of(tasks)
    ).p <= 0.05, low <= 0 <= high


def always(sample: ScoreSample, score: float) -> ScoreSample:
    """A sample that is always the same score, to hold another against."""
    return ScoreSample(np.array([score]), np.zeros_like(sample.influences), ())


def weights_of(tasks: Sequence[Structure]) -> Float64Array:
    """What share of the mean over tasks each pair is."""
    return np.concatenate([np.full(len(one.pair), 1 / len(one.pair) / len(tasks)) for one in tasks])


def print_items(tasks: Sequence[Structure], trials: int) -> None:
    """A table in markdown: one row a task, for each effect false positives and coverage, beside the independent way."""
    head = " | ".join(
        f"effect {effect}: FP | (independent) | coverage | (independent)" for effect in EFFECTS
    )
    print(f"| task | {head} |\n|{' --- |' * (1 + 4 * len(EFFECTS))}")
    table = [rates(tasks, effect, trials) for effect in EFFECTS]
    for name in (*(one.task for one in tasks), "mean"):
        cells = [f"{100 * v:.1f}" for column in table for v in column[name][[0, 1, 2, 3]]]
        print(f"| {name} | {' | '.join(cells)} |")


def print_found(tasks: Sequence[Structure], trials: int) -> None:
    """Power without any effect of sentences, and that of the test that takes all pairs for independent."""
    rng = np.random.default_rng(trials)
    found = {one.task: np.zeros(2) for one in tasks}
    for _ in range(trials):
        meaning, shared, *own = (Field(tasks, 0.0, rng) for _ in range(4))
        for one in tasks:
            quality = (QUALITY, QUALITY + points(1.0))
            values = [
                encode(meaning(one), shared(one), f(one), q)[None]
                for f, q in zip(own, quality, strict=True)
            ]
            data = PairedCorrelation(
                values=values,
                gold=gold_of(meaning(one)),
                subset_weights=one.parts,
                metric="spearman",
            )
            first, second = (ScoreSample(data.scores(at), data.influences(at), ()) for at in (0, 1))
            for way, sharing in enumerate(
                (one.sharing, ItemDependence.without_shared(len(one.pair)))
            ):
                found[one.task][way] += (
                    EstimatedDifference.estimate(first, second, sharing, data.weights).p <= 0.05
                )
    print("| task | found | by the independent test |\n| --- | --- | --- |")
    for name, counts in found.items():
        print(f"| {name} | {' | '.join(f'{100 * count / trials:.0f}%' for count in counts)} |")


def trained(
    tasks: Sequence[Structure], quality: Float64Array, fields: tuple[Field, Field, Field], rng: Rng
) -> list[ScoreSample]:
    """One recipe's encoders on each task, one a quality: errors of the recipe, and of each seed's own."""
    meaning, shared, recipe = fields
    rows: list[list[Float64Array]] = [[] for _ in tasks]
    for value in quality:
        seed = Field(tasks, 0.2, rng)
        for at, one in enumerate(tasks):
            own = np.sqrt(0.5) * recipe(one) + np.sqrt(0.5) * seed(one)
            rows[at].append(encode(meaning(one), shared(one), own, float(value)))
    seeds = tuple(range(len(quality)))
    found = []
    for one, values in zip(tasks, rows, strict=True):
        data = PairedCorrelation(
            values=[np.array(values)],
            gold=gold_of(meaning(one)),
            subset_weights=one.parts,
            metric="spearman",
        )
        found.append(ScoreSample(data.scores(0), data.influences(0), seeds))
    return found


def seed_rates(
    tasks: Sequence[Structure], count: int, spread: float, better: float, trials: int
) -> Float64Array:
    """How often recipes with this true difference are called different, by seeds and items, and by items alone, (2,)."""
    rng = np.random.default_rng([len(tasks), count, int(1e5 * spread), int(1e5 * better), trials])
    joint, weights = joint_sharing_of(tasks), weights_of(tasks)
    called = np.zeros(2)
    for _ in range(trials):
        meaning, shared, *own = (Field(tasks, 0.2, rng) for _ in range(4))
        sides = [
            trained(tasks, qualities(count, spread, gain, rng), (meaning, shared, recipe), rng)
            for gain, recipe in zip((0.0, better), own, strict=True)
        ]
        a, b = (average_samples(side, joint) for side in sides)
        c, d = (
            ScoreSample(s.scores.mean(keepdims=True), s.influences.mean(axis=0, keepdims=True), ())
            for s in (a, b)
        )
        called += [
            EstimatedDifference.estimate(x, y, joint, weights).p <= 0.05
            for x, y in ((a, b), (c, d))
        ]
    return called / trials


def qualities(count: int, spread: float, better: float, rng: Rng) -> Float64Array:
    """The quality of each seed's encoder, (count,), the same on all tasks."""
    found: Float64Array = QUALITY + better + spread * rng.normal(size=count)
    return found


def joint_sharing_of(tasks: Sequence[Structure]) -> ItemDependence:
    """Who shares among all tasks' items."""
    return ItemDependence(np.concatenate([one.sentences for one in tasks]))


def points(value: float) -> float:
    """The change of quality that moves the score by so many points."""
    return value / 100 * (2 * 0.01) / (truth(QUALITY + 0.01) - truth(QUALITY - 0.01))


def print_seeds(tasks: Sequence[Structure], trials: int) -> None:
    """False positives of recipes without a difference."""
    print(
        "| deviation over seeds | seeds | seeds and items | items alone |\n| --- | --- | --- | --- |"
    )
    for deviation in (0.3, 1.0, 1.5):
        for count in (3, 5):
            both, items = seed_rates(tasks, count, points(deviation), 0.0, trials)
            print(f"| {deviation} | {count} | {100 * both:.1f} | {100 * items:.1f} |", flush=True)


def print_missing(tasks: Sequence[Structure], trials: int) -> None:
    """False positives of six tasks by three seeds where one score is missing: jointly, and task by task."""
    del tasks
    print(
        "| correlation of tasks over seeds | missing | seeds that are shared | tasks as independent |"
    )
    print("| --- | --- | --- | --- |")
    sharing, weights = ItemDependence.without_shared(6 * ITEMS), np.full(6 * ITEMS, 1 / 6 / ITEMS)
    for together in (0.0, 0.5, 1.0):
        for missing in (0, 1, 3):
            rng, called = np.random.default_rng([int(10 * together), missing, trials]), np.zeros(2)
            for _ in range(trials):
                sides = [six_tasks(rng, together, missing if side else 0) for side in range(2)]
                alone = [
                    [
                        replace(one, seeds=tuple((at, seed) for seed in one.seeds))
                        for at, one in enumerate(side)
                    ]
                    for side in sides
                ]
                for way, ways in enumerate((sides, alone)):
                    first, second = (average_samples(side, sharing) for side in ways)
                    called[way] += (
                        EstimatedDifference.estimate(first, second, sharing, weights).p <= 0.05
                    )
            cells = " | ".join(f"{100 * count / trials:.1f}" for count in called)
            print(f"| {together} | {missing} of 18 | {cells} |", flush=True)


def six_tasks(rng: Rng, together: float, missing: int) -> list[ScoreSample]:
    """Six tasks by three seeds that differ by one point; of the first tasks, one each, a score is missing."""
    seeds = np.sqrt(together) * rng.normal(size=3) + np.sqrt(1 - together) * rng.normal(size=(6, 3))
    found = []
    for at, deviations in enumerate(seeds):
        kept = [seed for seed in range(3) if at >= missing or seed != at % 3]
        items = rng.normal(size=(3, ITEMS)) * 0.05
        scores, shares = (
            0.7 + 0.01 * deviations + items.mean(axis=1),
            (items - items.mean(axis=1, keepdims=True)) / ITEMS,
        )
        found.append(ScoreSample(scores[kept], shares[kept], tuple(kept)))
    return found


def print_clusters(tasks: Sequence[Structure], trials: int) -> None:
    """Coverage of the interval of an accuracy of texts of twenty items, and its width in points; beside the normal quantile."""
    del tasks
    print(
        "| texts | accuracy | correlation within a text | coverage | width | normal quantile | width |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for texts in (5, 10, 20):
        sharing = ItemDependence(np.repeat(np.arange(texts), 20)[:, None])
        for accuracy in (0.5, 0.8, 0.95):
            for within in (0.1, 0.5):
                rng, found = (
                    np.random.default_rng([texts, int(100 * accuracy), int(10 * within)]),
                    np.zeros(4),
                )
                prior = 1 / within - 1
                for _ in range(trials):
                    hard = rng.beta(accuracy * prior, (1 - accuracy) * prior, size=(texts, 1))
                    right = (rng.random((texts, 20)) < hard).astype(np.float64).ravel()
                    shares = (right - right.mean()) / len(right)
                    normal = StandardError(float(np.sqrt(sharing.variance(shares))), float("inf"))
                    by_normal = wilson_interval(float(right.mean()), normal, float(texts))
                    for at, (low, high) in enumerate((share_interval(right, sharing), by_normal)):
                        found[2 * at : 2 * at + 2] += low <= accuracy <= high, high - low
                cells = " | ".join(f"{100 * value / trials:.1f}" for value in found)
                print(f"| {texts} | {accuracy} | {within} | {cells} |", flush=True)


def print_power(tasks: Sequence[Structure], trials: int) -> None:
    """How often a true difference is found."""
    print("| difference | deviation over seeds | seeds | found |\n| --- | --- | --- | --- |")
    for better in (0.5, 1.0):
        for deviation in (0.3, 1.0):
            for count in (3, 5, 10):
                both, _ = seed_rates(tasks, count, points(deviation), points(better), trials)
                print(f"| {better} | {deviation} | {count} | {100 * both:.0f}% |", flush=True)


PRINTERS = {
    "items": print_items,
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
    parser.add_argument("what", choices=tuple(PRINTERS))
    parser.add_argument("--data", type=Path, default=os.environ.get("STSBENCH_DATA"))
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--tasks", default=",".join(TASKS))
    given = parser.parse_args()
    printer = PRINTERS[given.what]
    drawn = printer in (print_missing, print_clusters)
    tasks = (
        []
        if drawn
        else structures(given.tasks.split(","), Path(given.data) if given.data else None)
    )
    printer(tasks, given.trials)


if __name__ == "__main__":
    main()
