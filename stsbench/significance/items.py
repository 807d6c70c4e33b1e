"""The per-item columns of many encoders' results on the same tasks, matched by item."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import DataError, ProtocolError
from stsbench.core.grouping import group_by
from stsbench.core.wording import format_some
from stsbench.numbers.dependence import (
    ItemDependence,
    cached_dependence,
    merge_chains,
    read_sentence_ids,
)
from stsbench.numbers.statistics import (
    AGGREGATIONS,
    CORRELATIONS,
    Correlation,
    Float64Array,
    IntArray,
    SubsetWeights,
    weigh_subsets,
)
from stsbench.results.folder import read_item_columns
from stsbench.results.record import Result
from stsbench.results.signature import Fields, describe_mismatch, protocol_part
from stsbench.significance.differences import ScoreSample
from stsbench.significance.paired import Paired, PairedCorrelation, PairedF1, PairedMean

SCORE_OF_COLUMN = {"correct": "accuracy", "recall": "mean_recall"}
"""The score that is the mean of a per-item column, by the column's name."""
AllColumns = Sequence[Sequence[Mapping[str, npt.NDArray[Any]]]]
"""The per-item columns of each encoder's results, by name."""
Dependence = Literal["sentences", "none"]
"""Items that share a sentence are taken to vary together, or every item by itself."""


RowKey = TypeVar("RowKey", bound=Hashable)
RowResults = Mapping[RowKey, Sequence[Sequence[Result]]]
"""Each row's results by task, one per seed; empty for a task that the row lacks."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskSamples(Generic[RowKey]):
    """The scores of rows on one task, and how much each of its items moves them.

    Attributes:
        task: The task's name.
        samples: Each row's scores and influences, by seed.
        weights: The items' shares of the score, (n,).
        sentences: The numbers of each item's m sentences, (n, m). If they are unknown, or if items
            are taken as independent, each item has a negative number of its own.
        knows_sentences: Whether it is known which items share a sentence. Images, whose score is
            a recall, contain none.
    """

    task: str
    samples: Mapping[RowKey, ScoreSample]
    weights: Float64Array
    sentences: IntArray
    knows_sentences: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskItems(TaskSamples[RowKey]):
    """The scores of rows on one task, with the values that they are computed from.

    Attributes:
        paired: The values of all rows on these n items.
    """

    paired: Paired


def one_per_seed(results: Sequence[Result]) -> list[Result]:
    """Select one of an encoder's results on one task for each seed, in the order of seeds.

    An evaluation seed may have no effect. All evaluation seeds of one training then have the same
    per-item columns (the same hash ``items``), and only the result of the first is selected. If any
    of them differs, all are selected.
    Results of different training seeds are never merged, even if their columns are equal.

    Args:
        results: The results, of any training seeds (None for an encoder that was not trained here)
            and evaluation seeds.
    """
    ordered = sorted(
        results,
        key=lambda result: (
            -1 if result.train_seed is None else result.train_seed,
            result.eval_seed,
        ),
    )
    selected: list[Result] = []
    for training_results in group_by(ordered, lambda result: result.train_seed).values():
        has_no_effect = len({result.items for result in training_results}) == 1
        selected += training_results[:1] if has_no_effect else training_results
    return selected


def has_one_training_seed(results: Iterable[Result]) -> bool:
    """Return whether all results are of one and the same training seed.

    Such results say nothing about the recipe.
    """
    seeds = {result.train_seed for result in results}
    return len(seeds) == 1 and None not in seeds


def pair_items(
    encoders: Mapping[RowKey, Sequence[Result]],
    dependence: Dependence = "sentences",
    score_name: str = "",
) -> TaskItems[RowKey] | None:
    """Read the per-item values of encoders on one task, to compare them item by item.

    Args:
        encoders: Each encoder's results on the task, one per seed.
        dependence: ``sentences`` if items that share a sentence are not independent, ``none`` if
            all items are.
        score_name: The score to compare; empty for the results' own.

    Returns:
        For each encoder the values, the scores and how much each item moves them; for each item its
        share of the score and its sentences. None if no paired test of this score is known.

    Raises:
        DataError: Columns are missing or broken, or their items are not the same.
    """
    # The columns of each encoder's result with each seed.
    columns = [[read_item_columns(result) for result in results] for results in encoders.values()]
    first_result = next(iter(encoders.values()))[0]
    paired = make_paired_test(first_result, columns, score_name)
    if paired is None:
        return None
    # The scores of an encoder's results, (r,), and how much each item moves them, (r, n), by seed.
    samples = {
        row: average_by_seed(paired.scores(index), paired.influences(index), results)
        for index, (row, results) in enumerate(encoders.items())
    }
    sentences = _find_sentences(columns) if dependence == "sentences" else None
    # Items with a recall are images, which share no sentences.
    first_columns = columns[0][0]
    are_images = "recall" in first_columns
    knows_sentences = sentences is not None or are_images
    # A negative number for each item, (n, 1), which no other item has.
    if sentences is None:
        sentences = unshared_sentence_numbers(len(paired.weights))
    return TaskItems(
        task=first_result.task,
        paired=paired,
        samples=samples,
        weights=paired.weights,
        sentences=sentences,
        knows_sentences=knows_sentences,
    )


def unshared_sentence_numbers(n: int) -> IntArray:
    """Return the sentence numbers of n items of which no two share a sentence, (n, 1)."""
    return np.arange(-n, 0)[:, None]


def _find_sentences(columns: AllColumns) -> IntArray | None:
    """Return the sentences of each item as numbers, (n, m) for m sentences per item.

    Items with a common number share a sentence. The first result that has the columns will do,
    because all are of the same items. None if no result has them.

    Args:
        columns: The per-item columns of all results on one task, by encoder and seed.
    """
    for columns_by_seed in columns:
        for result_columns in columns_by_seed:
            sentences = read_sentence_ids(result_columns)
            if sentences is not None:
                return sentences
    return None


class JoinedItems(NamedTuple):
    """The items of several tasks, one task after another.

    Attributes:
        dependence: Which of the n items share a sentence.
        weights: Each item's share of the mean over tasks, (n,).
    """

    dependence: ItemDependence
    weights: Float64Array


def join_items(
    tasks: Sequence[TaskSamples[RowKey]], task_weights: Sequence[float] | None = None
) -> JoinedItems:
    """Join the items of several tasks, one task after another.

    Items of different tasks may share sentences.

    Args:
        tasks: The items of each task: their shares of the score, (n,), and their sentences as
            numbers, (n, m); equal sentences have equal numbers in all tasks.
        task_weights: The tasks' shares of the mean; None weighs all equally.

    Returns:
        Which of all n items share a sentence, and each item's share of the mean over tasks, (n,).
    """
    # All tasks get as many columns, so that a chain of items with more than two sentences may go
    # through several tasks. Rows are filled up with their last sentence.
    width = max(2, *(items.sentences.shape[1] for items in tasks))
    sentences_by_task = []
    offset = 0
    for items in tasks:
        columns = np.minimum(np.arange(width), items.sentences.shape[1] - 1)
        sentences = items.sentences[:, columns]
        # A negative number is that of a single item. It is shifted, so that items of different
        # tasks never have the same.
        sentences_by_task.append(np.where(sentences < 0, sentences - offset, sentences))
        offset += len(sentences)
    if task_weights is None:
        task_weights = [1 / len(tasks)] * len(tasks)
    weights = [
        task_weight * items.weights for items, task_weight in zip(tasks, task_weights, strict=True)
    ]
    # merge_chains gives items of more than two sentences one number for each chain.
    return JoinedItems(
        cached_dependence(merge_chains(np.concatenate(sentences_by_task))), np.concatenate(weights)
    )


class TestedColumn(NamedTuple):
    """The per-item column that a paired test compares.

    Attributes:
        name: The column's name.
        metric: The correlation with gold scores that is the score; None if the score is the
            column's mean.
    """

    name: str
    metric: Correlation | None


def find_tested_column(
    columns: Collection[str], protocol: Mapping[str, Any]
) -> TestedColumn | None:
    """Find the per-item column that makes a result's score, and that a paired test compares.

    It is a column whose mean is the score (whether an item is right, or its recall), or the values
    whose correlation with the column ``gold`` is the score.

    Args:
        columns: The names of a result's per-item columns.
        protocol: The fields of the protocol; ``metric`` names the score. Without it a column whose
            mean may be the score is taken for the score's.

    Returns:
        The name of the column, and the correlation as an object with its functions (None for a
        mean). None if there is no such column or no such correlation, so that no test is known.
    """
    metric_name = str(protocol.get("metric", ""))
    # The columns whose mean is a score: ``correct`` and ``recall``. Another score of such items,
    # such as a median rank, has no column.
    for column, score in SCORE_OF_COLUMN.items():
        if column in columns:
            return TestedColumn(column, metric=None) if metric_name in ("", score) else None
    metric = CORRELATIONS.get(metric_name)
    value_column = next((name for name in ("similarity", "prediction") if name in columns), None)
    if "gold" not in columns or value_column is None or metric is None:
        return None
    return TestedColumn(value_column, metric)


def make_paired_test(result: Result, columns: AllColumns, score_name: str) -> Paired | None:
    """Return the values of encoders on the same items, for a paired test of a score.

    The kind of the object, :class:`PairedMean`, :class:`PairedCorrelation` or :class:`PairedF1`, is
    that of the score.

    Args:
        result: One of the results; all have its protocol.
        columns: The per-item columns of all results, by encoder and seed.
        score_name: The score: ``f1``, a metric such as ``pearson``, or a metric and an aggregation
            such as ``pearson.mean``; empty for the results' own score.

    Returns:
        The values; None if the columns do not make the score.

    Raises:
        DataError: The columns are not of the same items.
    """
    # Those of the first encoder's first result: names with arrays, (n,).
    first_columns = columns[0][0]
    if score_name == "f1":
        return _make_paired_f1(columns)
    # The result's protocol, with the requested metric and aggregation.
    protocol = dict(result.protocol)
    metric, _, aggregation = score_name.partition(".")
    if metric:
        protocol["metric"] = metric
    if aggregation:
        protocol["aggregation"] = aggregation
    tested = find_tested_column(first_columns, protocol)
    if tested is None:
        return None
    if tested.metric is None:
        return PairedMean(values=_stack(columns, tested.name))
    # For each encoder an array by seed and item, (s, n).
    values = _stack(columns, tested.name)
    gold = _stack(columns, "gold")
    # All results must have the gold scores of the first encoder's first result.
    first_gold = gold[0][0]
    if not all((gold_by_seed == first_gold).all() for gold_by_seed in gold):
        raise DataError(f"{result.task}: the results' gold scores are not the same")
    return PairedCorrelation(
        values=values,
        gold=first_gold,
        subset_weights=_subset_weights(first_columns, protocol),
        metric=tested.metric.name,
    )


def _make_paired_f1(columns: AllColumns) -> PairedF1 | None:
    """Return the values for a paired test of F1, the predictions and which of them are right.

    None without the columns ``prediction`` (the number of a class, from 0) and ``correct``, or if a
    class above 1 is predicted.

    Args:
        columns: The per-item columns of all results, by encoder and seed.
    """
    first_columns = columns[0][0]
    if not {"prediction", "correct"} <= set(first_columns):
        return None
    # For each encoder the class by seed and item, (s, n).
    predicted = _stack(columns, "prediction")
    # With more than two classes a wrong answer does not say which one was right.
    if max(classes.max(initial=0) for classes in predicted) > 1:
        return None
    return PairedF1(predicted=predicted, correct=_stack(columns, "correct"))


def average_by_seed(
    scores: Float64Array, influences: npt.NDArray[Any], results: Sequence[Result]
) -> ScoreSample:
    """Average one encoder's scores on a task, and how much each item moves them, by seed.

    If there are several training seeds, the seeds are these, and the evaluation seeds of each are
    averaged. If there is only one, or none, the seeds are the evaluation seeds.

    Args:
        scores: The score of each of r results, (r,).
        influences: How much each of n items moves each score, (r, n).
        results: The r results, one per pair of training and evaluation seed.

    Returns:
        Scores (s,) and influences (s, n) by seed, with keys that match seeds of different tasks:
        pairs such as ``("training", 1)`` or ``("evaluation", 0)``. There is one score and no key if
        nothing was trained and there is one evaluation seed.
    """
    has_several_trainings = len({result.train_seed for result in results}) > 1
    seed_by_result = [
        result.train_seed if has_several_trainings else result.eval_seed for result in results
    ]
    seeds = tuple(dict.fromkeys(seed_by_result))
    kind = "training" if has_several_trainings else "evaluation"
    # Scores of different tasks belong together if they have the same key.
    seed_keys: tuple[tuple[str, int | None], ...] = tuple((kind, seed) for seed in seeds)
    if len(seeds) == 1:
        # A single training seed may be among those of other tasks. A single evaluation seed is
        # matched with none.
        train_seed = results[0].train_seed
        seed_keys = () if train_seed is None else (("training", train_seed),)
    mean_scores = []
    mean_influences = []
    for seed in seeds:
        indices = [index for index, result_seed in enumerate(seed_by_result) if result_seed == seed]
        mean_scores.append(scores[indices].mean())
        mean_influences.append(influences[indices].mean(axis=0))
    return ScoreSample(
        scores=np.array(mean_scores),
        influences=np.array(mean_influences),
        seeds=seed_keys,
        mean_score=float(scores.mean()),
    )


def _stack(columns: AllColumns, name: str) -> list[Float64Array]:
    """Return for each encoder the values of one column in all its results, (s, n) for s seeds.

    Args:
        columns: The per-item columns of all results, by encoder and seed.
        name: The name of the column.

    Raises:
        DataError: A result lacks the column, or has it for another number of items.
    """
    all_columns = [
        result_columns for columns_by_seed in columns for result_columns in columns_by_seed
    ]
    shapes = {
        np.asarray(result_columns[name]).shape if name in result_columns else None
        for result_columns in all_columns
    }
    if len(shapes) != 1 or None in shapes:
        raise DataError(f"the results' per-item columns '{name}' are not of the same items")
    return [
        np.array([result_columns[name] for result_columns in columns_by_seed], dtype=np.float64)
        for columns_by_seed in columns
    ]


def _subset_weights(
    columns: Mapping[str, npt.NDArray[Any]], protocol: Mapping[str, Any]
) -> SubsetWeights:
    """Return the subsets of items whose correlations make the score, with the weight of each.

    The aggregation ``all`` is one correlation over all items: a single subset. ``mean`` is the mean
    over the task's subsets, ``wmean`` that weighted by their numbers of items.

    Args:
        columns: The per-item columns of a result, among them ``gold`` and perhaps ``subset``.
        protocol: The fields of the protocol, among them ``aggregation``.

    Returns:
        The indices of each subset's items, and each subset's weight.

    Raises:
        DataError: The aggregation is unknown, or it needs subsets that the columns do not hold.
    """
    aggregation = str(protocol.get("aggregation", "all"))
    if aggregation not in AGGREGATIONS:
        raise DataError(
            f"a result's aggregation '{aggregation}' is not one of {', '.join(AGGREGATIONS)}"
        )
    # By name, the function from the sizes of subsets to their weights; None for ``all``.
    correlates_subsets = AGGREGATIONS[aggregation] is not None
    if not correlates_subsets:
        n_items = len(columns["gold"])
        return weigh_subsets([""] * n_items, aggregation)
    if "subset" not in columns:
        raise DataError(
            f"a result is aggregated by '{aggregation}', and its per-item columns hold no subsets"
        )
    return weigh_subsets(columns["subset"].tolist(), aggregation)


def check_comparable(rows: RowResults[RowKey]) -> None:
    """Check that the encoders of a table were scored in the same way on the same data.

    Args:
        rows: For each row (an encoder) a list of the same tasks in the same order; each task is the
            list of its results, one per seed, empty if the row lacks the task.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
    """
    for results_by_row in zip(*rows.values(), strict=True):
        task_results = [result for results in results_by_row for result in results]
        for result in task_results[1:]:
            # A text on the first field that differs, None if the two are comparable.
            mismatch = describe_mismatch(task_results[0], result)
            if mismatch:
                names = f"'{task_results[0].encoder}' and '{result.encoder}'"
                raise ProtocolError(f"{result.task}: {names} cannot be ranked together: {mismatch}")


ResultsByEncoder = Mapping[str, Sequence[Result]]
"""Each encoder's results on one task by one protocol, one per seed."""


class MatchedTasks(NamedTuple):
    """Encoders' results on the tasks that all of them have.

    Attributes:
        results_of_tasks: For each task and protocol each encoder's results.
        notes: Messages for the user on what only some encoders have.
    """

    results_of_tasks: list[ResultsByEncoder]
    notes: list[str]


def match_tasks(
    encoders: Mapping[str, Sequence[Result]],
    *,
    tasks: Sequence[str] | None = None,
    protocol: str | None = None,
) -> MatchedTasks:
    """Match the results of encoders on the tasks and protocols that all of them share.

    Args:
        encoders: Each encoder's results, by its name.
        tasks: The tasks to match, in this order; None for all.
        protocol: The name of the only protocol to match; None for all.

    Returns:
        For each common task, split and protocol the results of each encoder, one per seed; and a
        note on those that only some encoders have.

    Raises:
        ProtocolError: A task was scored differently; the message names the field.
        DataError: No task is common to all encoders.
    """
    # For each encoder and task its results by pairs of split and protocol.
    groups_by_encoder = {
        name: _group_by_task(results, tasks, protocol) for name, results in encoders.items()
    }
    all_tasks = list(
        tasks or dict.fromkeys(task for groups in groups_by_encoder.values() for task in groups)
    )
    common_tasks = [
        task for task in all_tasks if all(task in groups for groups in groups_by_encoder.values())
    ]
    if not common_tasks:
        names = " and ".join(f"'{name}'" for name in encoders)
        by_protocol = f" by protocol {protocol!r}" if protocol else ""
        none = f"none of {format_some(list(tasks), MAX_LISTED)}" if tasks else "none"
        task_lists = (
            # The first tasks, and how many more there are.
            f"'{name}' has {format_some(list(groups), MAX_LISTED) or none}"
            for name, groups in groups_by_encoder.items()
        )
        raise DataError(f"{names} have no task in common{by_protocol}", hint="; ".join(task_lists))
    skipped = [task for task in all_tasks if task not in common_tasks]
    matches: list[ResultsByEncoder] = []
    for task in common_tasks:
        groups_of_task = {name: groups[task] for name, groups in groups_by_encoder.items()}
        matches.extend(_match_protocols(task, groups_of_task))
        skipped += dict.fromkeys(
            f"{task} ({split}, {results[0].protocol['name']})"
            for groups in groups_of_task.values()
            for (split, fields), results in groups.items()
            if not all((split, fields) in others for others in groups_of_task.values())
        )
    notes = [f"Skipped: not scored for every encoder: {', '.join(skipped)}"] if skipped else []
    return MatchedTasks(matches, notes)


MAX_LISTED = 8
"""The maximum number of tasks to list for each encoder in an error."""
ResultsByProtocol = dict[tuple[str, Fields], list[Result]]
"""One encoder's results on one task, by split and protocol."""


def _group_by_task(
    results: Sequence[Result], tasks: Sequence[str] | None, protocol: str | None
) -> dict[str, ResultsByProtocol]:
    """Group one encoder's results by task, then by split and protocol.

    Args:
        results: The results.
        tasks: The tasks that are requested; results of others are left out. None for all.
        protocol: The name of the protocol that is requested; None for all.

    Returns:
        By task, the results by pairs of split and protocol. The protocol is a tuple of names and
        values, the same for protocols whose scores are comparable.
    """
    groups: dict[str, ResultsByProtocol] = {}
    for result in results:
        is_requested_task = tasks is None or result.task in tasks
        if is_requested_task and protocol in (None, result.protocol["name"]):
            split_and_protocol = result.split, protocol_part(result.protocol)
            groups_of_task = groups.setdefault(result.task, {})
            groups_of_task.setdefault(split_and_protocol, []).append(result)
    return groups


def _match_protocols(
    task: str, groups_by_encoder: Mapping[str, ResultsByProtocol]
) -> Iterator[ResultsByEncoder]:
    """Yield the encoders' results on a task, once for each split and protocol that all share.

    Args:
        task: The task, for messages.
        groups_by_encoder: For each encoder the results on the task, by pairs of split and protocol.

    Yields:
        Each encoder's results by its name, one per seed; evaluation seeds without any effect count
        once.

    Raises:
        ProtocolError: No protocol is shared, or the data differ; the message names the field.
    """
    first_groups, *other_groups = groups_by_encoder.values()
    # The pairs of split and protocol that all encoders have.
    common_pairs = [pair for pair in first_groups if all(pair in groups for groups in other_groups)]
    matches = [
        {name: groups[pair] for name, groups in groups_by_encoder.items()} for pair in common_pairs
    ]
    if not matches:
        # Nothing is shared, so the first results of the encoders differ at least in their split or
        # protocol. They are taken only to raise the error below, which names the field.
        matches = [
            {name: next(iter(groups.values())) for name, groups in groups_by_encoder.items()}
        ]
    for results_by_encoder in matches:
        first_name = next(iter(results_by_encoder))
        first_result = results_by_encoder[first_name][0]
        for name, results in results_by_encoder.items():
            for result in results:
                # A text on the first field that differs, None if the two are comparable.
                mismatch = describe_mismatch(first_result, result)
                if mismatch:
                    raise ProtocolError(
                        f"{task}: '{first_name}' and '{name}' cannot be compared: {mismatch}"
                    )
        yield {name: one_per_seed(results) for name, results in results_by_encoder.items()}
