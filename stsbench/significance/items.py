"""The per-item columns of many encoders' results on the same tasks, put side by side."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import DataError, ProtocolError
from stsbench.core.wording import format_some
from stsbench.numbers.statistics import (
    AGGREGATIONS,
    CORRELATIONS,
    Correlation,
    Float64Array,
    IntArray,
    ItemDependence,
    SubsetWeights,
    cached_dependence,
    read_sentence_ids,
    weigh_subsets,
)
from stsbench.results.folder import read_item_columns, without_columns
from stsbench.results.groups import describe_mismatch
from stsbench.results.record import Result, protocol_key
from stsbench.significance.paired import (
    EstimatedDifference,
    Paired,
    PairedCorrelation,
    PairedF1,
    PairedMean,
    ScoreSample,
    average_samples,
)

SCORE_OF_COLUMN = {"correct": "accuracy", "recall": "mean_recall"}
"""The score that is the mean of a per-item column."""
AllColumns = Sequence[Sequence[Mapping[str, npt.NDArray[Any]]]]
"""The per-item columns of each encoder's Results."""
Dependence = Literal["sentences", "none"]
"""Whether items that share a sentence are taken to err together, or every item by itself."""


RowKey = TypeVar("RowKey", bound=Hashable)
RowResults = Mapping[RowKey, Sequence[Sequence[Result]]]
"""Each row's results task by task, several on one task being its seeds; none where it lacks the task."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskItems(Generic[RowKey]):
    """The items of one task, what they say of encoders, and which sentences they hold, (n, m).

    Where nothing tells the sentences, or they do not count, each item has a number below 0 of its own.
    """

    task: str
    paired: Paired
    samples: Mapping[RowKey, ScoreSample]
    sentences: IntArray
    knows_sentences: bool
    """Whether it is known which items share a sentence; images, whose recall is the score, hold none."""


def one_per_seed(results: Sequence[Result]) -> list[Result]:
    """An encoder's results on one task, one a seed, in the order of seeds.

    Where the evaluation seed draws nothing, all seeds of one training hold the same items and the first stands. Trainings
    are never one: two whose items are alike are two, that differ by nothing.
    """
    ordered = sorted(
        results, key=lambda one: (-1 if one.train_seed is None else one.train_seed, one.eval_seed)
    )
    return list({(one.train_seed, one.items): one for one in reversed(ordered)}.values())[::-1]


def has_one_training_seed(results: Iterable[Result]) -> bool:
    """Whether results are of one training seed alone: then they say nothing of the recipe."""
    seeds = {one.train_seed for one in results}
    return len(seeds) == 1 and None not in seeds


def pair_items(
    encoders: Mapping[RowKey, Sequence[Result]],
    dependence: Dependence = "sentences",
    score_name: str = "",
) -> TaskItems[RowKey] | None:
    """The per-item columns of encoders on one task, each with its seeds; None where no paired test is known.

    ``score_name`` is another score than the Results' own.

    Raises:
        DataError: columns are missing or broken, or their items are not the same.
    """
    columns = [[read_item_columns(one) for one in seeds] for seeds in encoders.values()]
    first = next(iter(encoders.values()))[0]
    found = _paired(first, columns, score_name)
    if found is None:
        return None
    said = (
        read_sentence_ids(one) for seeds in columns for one in seeds if dependence == "sentences"
    )
    sentences = next((one for one in said if one is not None), None)
    return TaskItems(
        task=first.task,
        paired=found,
        samples={
            key: _sample(found, at, seeds) for at, (key, seeds) in enumerate(encoders.items())
        },
        sentences=np.arange(-len(found.weights), 0)[:, None] if sentences is None else sentences,
        knows_sentences=sentences is not None or "recall" in columns[0][0],
    )


def join_items(
    tasks: Sequence[TaskItems[RowKey]], task_weights: Sequence[float] | None = None
) -> tuple[ItemDependence, Float64Array]:
    """The sentences of several tasks' items, of which different tasks may share one, and each item's share of the mean, (n,).

    Items stand one task after another. ``task_weights`` are the tasks', without any all alike.
    """
    rows, alone = [], 0
    for one in tasks:
        pairs = one.sentences[:, [0, -1]]
        rows.append(np.where(pairs < 0, pairs - alone, pairs))
        alone += len(pairs)
    task_weights = [1 / len(tasks)] * len(tasks) if task_weights is None else task_weights
    weights = np.concatenate(
        [share * one.paired.weights for one, share in zip(tasks, task_weights, strict=True)]
    )
    return cached_dependence(np.concatenate(rows)), weights


def estimate_mean_difference(
    tasks: Sequence[TaskItems[RowKey]],
    first: RowKey | None,
    second: RowKey,
    task_weights: Sequence[float] | None = None,
) -> EstimatedDifference:
    """The difference of two encoders' means over tasks, which may share sentences; against 0 where there is no first."""
    sharing, weights = join_items(tasks, task_weights)

    def mean_of(row: RowKey) -> ScoreSample:
        return average_samples([one.samples[row] for one in tasks], sharing, task_weights)

    return EstimatedDifference.estimate(
        None if first is None else mean_of(first), mean_of(second), sharing, weights
    )


class TestedColumn(NamedTuple):
    """The per-item column that a paired test compares, and the correlation with gold scores that makes the score of it."""

    name: str
    metric: Correlation | None
    """None where the score is the column's mean."""


def find_tested_column(
    columns: Collection[str], protocol: Mapping[str, Any]
) -> TestedColumn | None:
    """Which of a result's per-item columns a paired test compares, by how it was scored; None where no test is known."""
    for name in SCORE_OF_COLUMN:
        if name in columns:
            return TestedColumn(name, None)
    metric = CORRELATIONS.get(str(protocol.get("metric")))
    value = next((name for name in ("similarity", "prediction") if name in columns), None)
    if "gold" not in columns or value is None or metric is None:
        return None
    return TestedColumn(value, metric)


def _paired(result: Result, columns: AllColumns, score: str) -> Paired | None:
    first, protocol = columns[0][0], dict(result.protocol)
    if score == "f1":
        predicted = _stack(columns, "prediction") if {"prediction", "correct"} <= set(first) else []
        # Of more than two classes a wrong answer does not tell which was right.
        is_binary = bool(predicted) and max(row.max(initial=0) for row in predicted) <= 1
        return (
            PairedF1(predicted=predicted, correct=_stack(columns, "correct")) if is_binary else None
        )
    metric, _, aggregation = score.partition(".")
    protocol |= {"metric": metric} if metric else {}
    protocol |= {"aggregation": aggregation} if aggregation else {}
    tested = find_tested_column(first, protocol)
    # The mean of a column is one score; those beside it, such as the best rank, are of no column.
    if tested is None or (
        tested.metric is None and metric not in ("", SCORE_OF_COLUMN[tested.name])
    ):
        return None
    values = _stack(columns, tested.name)
    if tested.metric is None:
        return PairedMean(values=values)
    gold = _stack(columns, "gold")
    if not all((rows == gold[0][0]).all() for rows in gold):
        raise DataError(f"{result.task}: the results' gold scores are not the same")
    return PairedCorrelation(
        values=values,
        gold=gold[0][0],
        subset_weights=_parts(first, protocol),
        metric=tested.metric.name,
    )


def _sample(found: Paired, encoder: int, results: Sequence[Result]) -> ScoreSample:
    """An encoder's scores by seed: by training seed where there are several, averaged over evaluation seeds."""
    trained = len({one.train_seed for one in results}) > 1
    keys = [one.train_seed if trained else one.eval_seed for one in results]
    seeds = tuple(dict.fromkeys(keys))
    scores, shares = found.scores(encoder), found.influences(encoder)
    members = [[at for at, key in enumerate(keys) if key == seed] for seed in seeds]
    names = tuple(("training" if trained else "evaluation", seed) for seed in seeds)
    if len(seeds) == 1:
        # One training seed is one of those that other tasks may have; of one evaluation seed nothing was drawn again.
        names = () if results[0].train_seed is None else (("training", results[0].train_seed),)
    means = (
        np.array([scores[at].mean() for at in members]),
        np.array([shares[at].mean(axis=0) for at in members]),
    )
    return ScoreSample(*means, names)


def _stack(columns: AllColumns, name: str) -> list[Float64Array]:
    rows = [
        [np.asarray(one[name], dtype=np.float64) for one in seeds if name in one]
        for seeds in columns
    ]
    shapes = {row.shape for seeds in rows for row in seeds}
    if len(shapes) != 1 or [len(seeds) for seeds in rows] != [len(seeds) for seeds in columns]:
        raise DataError(f"the results' per-item columns '{name}' are not of the same items")
    return [np.array(seeds) for seeds in rows]


def _parts(columns: Mapping[str, npt.NDArray[Any]], protocol: Mapping[str, Any]) -> SubsetWeights:
    aggregation = str(protocol.get("aggregation", "all"))
    if aggregation not in AGGREGATIONS:
        raise DataError(
            f"a result's aggregation '{aggregation}' is not one of {', '.join(AGGREGATIONS)}"
        )
    if AGGREGATIONS[aggregation] is None:
        return weigh_subsets([""] * len(columns["gold"]), aggregation)
    if "subset" not in columns:
        raise DataError(
            f"a result is aggregated by '{aggregation}', and its per-item columns hold no subsets"
        )
    return weigh_subsets(columns["subset"].tolist(), aggregation)


class RowItems(Generic[RowKey]):
    """The items of rows on tasks, by the tasks' places; rows that have a task have the same items of it.

    ``lacking`` are results whose per-item columns are not at hand, ``without_texts`` those of which no columns tell which items
    share a sentence. A task of which no statistic is known is left out.
    """

    def __init__(
        self,
        results_by_row: RowResults[RowKey],
        dependence: Dependence = "sentences",
        score_names: Sequence[str] = (),
    ) -> None:
        """Read the columns of all rows' results; raises DataError where some are broken, or not of the same items.

        ``score_names`` is what is compared on each task: a name of its results' ``score_names``; without any, their own score.
        """
        self.results_without_columns: list[Result] = []
        self.results_without_sentences: list[Result] = []
        self.tasks: dict[int, TaskItems[RowKey]] = {}
        for task in range(max(map(len, results_by_row.values()), default=0)):
            mine = {
                key: one_per_seed(cells[task])
                for key, cells in results_by_row.items()
                if cells[task]
            }
            self.results_without_columns += without_columns(
                one for seeds in mine.values() for one in seeds
            )
            whole = {key: seeds for key, seeds in mine.items() if not without_columns(seeds)}
            items = (
                pair_items(whole, dependence, score_names[task] if score_names else "")
                if whole
                else None
            )
            if items is not None:
                self.tasks[task] = items
                self.results_without_sentences += [
                    one for seeds in whole.values() for one in seeds if not items.knows_sentences
                ]

    def common_tasks(self, *rows: RowKey) -> tuple[int, ...]:
        """The tasks that all of these rows have."""
        return tuple(
            at for at, items in self.tasks.items() if all(key in items.samples for key in rows)
        )

    def select(self, tasks: Sequence[int]) -> list[TaskItems[RowKey]]:
        """The items of these tasks."""
        return [self.tasks[at] for at in tasks]


def check_comparable(rows: RowResults[RowKey]) -> None:
    """Raise ProtocolError where rows were scored in different ways or on different data; names the field."""
    for cells in zip(*rows.values(), strict=True):
        results = [one for seeds in cells for one in seeds]
        for result in results[1:]:
            if why := describe_mismatch(results[0], result):
                names = f"'{results[0].encoder}' and '{result.encoder}'"
                raise ProtocolError(f"{result.task}: {names} cannot be ranked together: {why}")


ResultsByEncoder = Mapping[str, Sequence[Result]]
"""Each encoder's results on one task by one protocol, one a seed."""


def match_tasks(
    encoders: Mapping[str, Sequence[Result]],
    *,
    tasks: Sequence[str] | None = None,
    protocol: str | None = None,
) -> tuple[list[ResultsByEncoder], list[str]]:
    """The tasks and protocols that all encoders share, and a note on what only some have.

    Raises:
        ProtocolError: a task was scored in different ways, or on different data; names the field.
        DataError: no task in common.
    """
    ways = {name: _ways(results, tasks, protocol) for name, results in encoders.items()}
    order = list(tasks or dict.fromkeys(task for one in ways.values() for task in one))
    shared = [task for task in order if all(task in one for one in ways.values())]
    if not shared:
        names = " and ".join(f"'{name}'" for name in encoders)
        by = f" by protocol {protocol!r}" if protocol else ""
        has = (
            f"'{name}' has {format_some(list(one), MAX_LISTED) or 'none'}"
            for name, one in ways.items()
        )
        raise DataError(f"{names} have no task in common{by}", hint="; ".join(has))
    left = [task for task in order if task not in shared]
    notes = [f"Skipped: not scored for every encoder: {', '.join(left)}"] if left else []
    of_tasks = (_columns(task, {name: one[task] for name, one in ways.items()}) for task in shared)
    return [cells for of_task in of_tasks for cells in of_task], notes


MAX_LISTED = 8
"""Tasks that a complaint names of each encoder."""
ResultsByProtocol = dict[tuple[str, str], list[Result]]
"""One encoder's results on one task by split and protocol."""


def _ways(
    results: Sequence[Result], tasks: Sequence[str] | None, protocol: str | None
) -> dict[str, ResultsByProtocol]:
    found: dict[str, ResultsByProtocol] = {}
    for result in results:
        if (tasks is None or result.task in tasks) and protocol in (None, result.protocol["name"]):
            key = result.split, protocol_key(result.protocol)
            found.setdefault(result.task, {}).setdefault(key, []).append(result)
    return found


def _columns(task: str, ways: Mapping[str, ResultsByProtocol]) -> Iterator[ResultsByEncoder]:
    first, *others = ways.values()
    shared = [
        {name: one[key] for name, one in ways.items()}
        for key in first
        if all(key in one for one in others)
    ]
    for found in shared or [{name: next(iter(one.values())) for name, one in ways.items()}]:
        own, *_ = found
        for name, result in ((name, result) for name, seeds in found.items() for result in seeds):
            if why := describe_mismatch(found[own][0], result):
                raise ProtocolError(f"{task}: '{own}' and '{name}' cannot be compared: {why}")
        yield {name: one_per_seed(seeds) for name, seeds in found.items()}
