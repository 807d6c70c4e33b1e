"""Rows of a table on several tasks: their items, or their scores and influences alone.

Ranks need no more of a result than its score and how much each item moves it. Influences are
computed once, and kept in the user's cache folder as float32, by the hash of the items and by the
metric.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench import numbers
from stsbench.core import settings
from stsbench.core.errors import DataError, StsbenchError
from stsbench.core.files import remove, write_atomically
from stsbench.core.provenance import code_digest
from stsbench.numbers.dependence import read_sentence_ids
from stsbench.results.folder import read_item_columns, without_columns
from stsbench.results.record import Result, protocol_key
from stsbench.significance.items import (
    Dependence,
    RowKey,
    RowResults,
    TaskItems,
    TaskSamples,
    average_by_seed,
    make_paired_test,
    one_per_seed,
    pair_items,
    unshared_sentence_numbers,
)
from stsbench.significance.paired import PairedCorrelation

ProgressCallback = Callable[[int, int], object]
"""Called with the number of steps that are done and the number of all steps."""

TaskT = TypeVar("TaskT", bound=TaskSamples[Any])


class RowTasks(Generic[RowKey, TaskT]):
    """The samples of rows on tasks, by the tasks' indices.

    Rows that have a task have the same items of it.
    Tasks for which no statistic is known are excluded.

    Attributes:
        results_without_columns: Results whose per-item columns are not available.
        results_without_sentences: Results whose columns do not say which items share a sentence.
        tasks: The samples of each task, by the task's index.
    """

    def __init__(
        self,
        results_by_row: RowResults[RowKey],
        read_task: Callable[[int, Mapping[RowKey, Sequence[Result]]], TaskT | None],
    ) -> None:
        """Read the scores of all rows of a table, task by task; a row is an encoder.

        Results whose per-item columns are missing are collected, and their rows lack the task.

        Args:
            results_by_row: For each row a list of the same tasks in the same order; each task is
                the list of its results, one per seed, empty if the row lacks the task.
            read_task: Called with the index of a task, and with the results on it of the rows that
                have it. It returns their scores by seed and the influences of items (samples), or
                None if no paired test of the score is known: then all rows lack the task.

        Raises:
            DataError: Columns are broken, or not of the same items.
        """
        self.results_without_columns: list[Result] = []
        self.results_without_sentences: list[Result] = []
        self.tasks: dict[int, TaskT] = {}
        n_tasks = max(map(len, results_by_row.values()), default=0)
        for task_index in range(n_tasks):
            complete_results: dict[RowKey, Sequence[Result]] = {}
            for key, results_by_task in results_by_row.items():
                # Of evaluation seeds with the same per-item columns only the first is taken.
                results = one_per_seed(results_by_task[task_index])
                lacking = without_columns(results)
                self.results_without_columns += lacking
                if results and not lacking:
                    complete_results[key] = results
            samples = read_task(task_index, complete_results) if complete_results else None
            if samples is None:
                continue
            self.tasks[task_index] = samples
            if not samples.knows_sentences:
                for complete in complete_results.values():
                    self.results_without_sentences += complete

    def shared_task_indices(self, *rows: RowKey) -> tuple[int, ...]:
        """Return the indices of the tasks that all of these rows have, in ascending order.

        A row is an encoder of a table, named by its key. It has a task if its scores on it could be
        read into ``self.tasks``.
        """
        return tuple(
            task_index
            for task_index, task_samples in self.tasks.items()
            if all(row in task_samples.samples for row in rows)
        )

    def select(self, tasks: Sequence[int]) -> list[TaskT]:
        """Return the samples of these tasks, which are named by their indices."""
        return [self.tasks[task_index] for task_index in tasks]


class RowItems(RowTasks[RowKey, TaskItems[RowKey]]):
    """The items of rows on tasks, by the tasks' indices."""

    def __init__(
        self,
        results_by_row: RowResults[RowKey],
        score_names: Sequence[str] = (),
    ) -> None:
        """Read the per-item values of all rows of a table, task by task; a row is an encoder.

        Args:
            results_by_row: Each row's results by task, one per seed.
            score_names: The score to compare on each task, a name of its results'
                ``score_names``; empty for the results' own scores.

        Raises:
            DataError: Columns are broken, or not of the same items.
        """

        def read_task(
            task_index: int, results_by_key: Mapping[RowKey, Sequence[Result]]
        ) -> TaskItems[RowKey] | None:
            # Called by the base class for each task. None: no paired test of the score is known.
            score_name = score_names[task_index] if score_names else ""
            return pair_items(results_by_key, score_name=score_name)

        super().__init__(results_by_row, read_task)


class ItemInfluences(NamedTuple):
    """All that ranks need of the items of one result.

    Attributes:
        influences: How much each of n items moves the score, (n,), float32.
        gold: The hash of the gold scores, 32 hex digits; that of no bytes if it has none.
        has_sentences: Whether the columns say which items share a sentence.
    """

    influences: npt.NDArray[np.float32]
    gold: bytes
    has_sentences: bool


def cache_key(*facts: object) -> str:
    """Return a hash of facts, and of the code that computes influences, intervals and tests.

    Args:
        facts: All else that what is cached depends on, as values that JSON has.

    Returns:
        32 hex digits.
    """
    # All modules of this package and of the project's package ``numbers``.
    code = code_digest(Path(__file__).parent, *map(Path, numbers.__path__))
    return hashlib.sha256(msgspec.json.encode((code, facts))).hexdigest()[:32]


def has_stored_columns(result: Result) -> bool:
    """Return whether a result's per-item columns are in a file.

    Those are compared with the hash that the result has of them (``items``) when they are read. For
    columns in memory nothing guarantees that it is theirs.
    """
    return result.path is not None and not result.per_item


def score_facts(results: Sequence[Result]) -> list[tuple[object, ...]]:
    """Return all that scores and influences of an encoder on a task depend on, for a cache key."""
    return [
        (protocol_key(result.protocol), result.items, result.score, *result.seeds)
        for result in results
    ]


def _cache_path(name: str) -> Path | None:
    """Return the path of an array in the user's cache folder; None if there is no such folder."""
    with suppress(StsbenchError):
        return settings.cache_folder() / "influences" / name
    return None


def read_array(name: str) -> npt.NDArray[Any] | None:
    """Return an array from a file of the user's cache folder, mapped into memory.

    Args:
        name: The name of the file.

    Returns:
        The array; None if there is no such file or folder, or if it is broken.
    """
    path = _cache_path(name)
    if path is None:
        return None
    with suppress(OSError, ValueError, EOFError):
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    return None


def write_array(name: str, array: npt.NDArray[Any], keep: tuple[str, int] | None = None) -> None:
    """Write an array into the user's cache folder.

    Nothing happens if there is no such folder, or if the disk is full.

    Args:
        name: The name of the file.
        array: The array.
        keep: A pattern of file names, and the number of such files to keep: older ones are removed.
            None keeps all.
    """
    path = _cache_path(name)
    if path is None:
        return
    stream = io.BytesIO()
    np.save(stream, array)
    with suppress(StsbenchError, OSError):
        write_atomically(path, stream.getbuffer())
        if keep is not None:
            pattern, n_files = keep
            files = sorted(path.parent.glob(pattern), key=lambda file: file.stat().st_mtime)
            for old_file in files[:-n_files]:
                remove(old_file)


class InfluenceCache:
    """The influences of results on one task by one protocol, in a file of the user's cache folder.

    The file is one array with a record for each result. It is mapped into memory, so that only the
    records that are needed are read.
    """

    MAX_RECORDS = 4096
    """The number of results of a file; the oldest are dropped."""

    def __init__(self, result: Result) -> None:
        """Open the cache file for results with the same task, data, protocol and number of items.

        The file has a record per result: the hash of its per-item columns (``items``), how much
        each item moves its score (``influences``), the hash of the gold scores, and whether the
        columns say which items share a sentence. It may be missing.

        Args:
            result: One of these results.
        """
        self._dtype = np.dtype(
            [
                ("items", "S64"),
                ("gold", "S32"),
                ("has_sentences", "?"),
                ("influences", "f4", (result.n,)),
            ]
        )
        self._records = np.zeros(0, dtype=self._dtype)
        self._new: dict[str, ItemInfluences] = {}
        key = cache_key(result.task, result.data, result.n, protocol_key(result.protocol))
        self._name = f"{key}.npy"
        self._records = self._read()
        self._position_by_items = {
            items.decode(): position for position, items in enumerate(self._records["items"])
        }

    def _read(self) -> npt.NDArray[Any]:
        """Return the records of the file; none if it is missing or broken."""
        records = read_array(self._name)
        if records is None or records.dtype != self._dtype or records.ndim != 1:
            return np.zeros(0, dtype=self._dtype)
        return records

    def get(self, result: Result) -> ItemInfluences | None:
        """Return how much each item moves the score of a result, from the cache.

        It is found by the hash of the result's per-item columns, ``result.items``. None if it is
        not cached, or if the result was not read from a file: only columns in a file are
        compared with that hash. ``self._position_by_items`` has the position of each hash's record
        in ``self._records``, the array of the file.
        """
        position = self._position_by_items.get(result.items)
        if position is None or not has_stored_columns(result):
            return None
        record = self._records[position]
        return ItemInfluences(
            np.array(record["influences"]),
            bytes(record["gold"]),
            bool(record["has_sentences"]),
        )

    def add(self, result: Result, influences: ItemInfluences) -> None:
        """Add the influences of a result that is read from a file; ignore another result."""
        if has_stored_columns(result):
            self._new[result.items] = influences

    def save(self) -> None:
        """Write the cache file with the records that were added; do nothing if there are none.

        Records of the same results are replaced, and the oldest ones dropped if there are more than
        ``MAX_RECORDS``. New records are the last ones of the file. ``self._new`` holds them by the
        hash of the result's per-item columns (``items``).
        """
        if not self._new:
            return
        new_records = np.zeros(len(self._new), dtype=self._dtype)
        for record, (items, influences) in zip(new_records, self._new.items(), strict=True):
            record["items"] = items
            record["gold"] = influences.gold
            record["has_sentences"] = influences.has_sentences
            record["influences"] = influences.influences
        # The file is read again, because another process may have written it in between. There are
        # no earlier records if it is missing or broken.
        earlier_records = self._read()
        is_replaced = np.isin(earlier_records["items"], new_records["items"])
        records = np.concatenate([earlier_records[~is_replaced], new_records])
        write_array(self._name, records[-self.MAX_RECORDS :])


class RowInfluences(RowTasks[RowKey, TaskSamples[RowKey]]):
    """The scores and influences of rows on tasks, by the tasks' indices."""

    def __init__(
        self,
        results_by_row: RowResults[RowKey],
        dependence: Dependence = "sentences",
        progress: ProgressCallback | None = None,
    ) -> None:
        """Read from the cache, or compute, the scores of all rows and how much items move them.

        A row is an encoder of a table.

        Args:
            results_by_row: Each row's results by task, one per seed.
            dependence: ``sentences`` if items that share a sentence are not independent, ``none``
                if all items are.
            progress: Called with the number of results that are done, and of all. Results without
                per-item columns are among all, but never done.

        Raises:
            DataError: Columns are broken, or not of the same items.
        """
        n_results = sum(len(results) for by_task in results_by_row.values() for results in by_task)
        n_done = 0

        def count_result() -> None:
            nonlocal n_done
            n_done += 1
            if progress:
                progress(n_done, n_results)

        # The base class calls the function for each task, with its index, which is not needed, and
        # the results of the rows that have the task.
        super().__init__(
            results_by_row,
            lambda _, results_by_key: read_task_samples(results_by_key, dependence, count_result),
        )


def read_task_samples(
    results_by_key: Mapping[RowKey, Sequence[Result]],
    dependence: Dependence,
    count_result: Callable[[], object],
) -> TaskSamples[RowKey] | None:
    """Read from the cache, or compute, encoders' scores on a task and how much items move them.

    Args:
        results_by_key: For the key of each encoder its results on the task, one per seed.
        dependence: ``sentences`` if items that share a sentence are not independent, ``none`` if
            all items are.
        count_result: Called after each result, to report progress.

    Returns:
        Each encoder's scores and influences by seed, with the items' weights and sentences; None if
        no paired test of the score is known.

    Raises:
        DataError: Columns are broken, or not of the same items.
    """
    first_result = next(iter(results_by_key.values()))[0]
    first_columns = read_item_columns(first_result)
    paired = make_paired_test(first_result, [[first_columns]], "")
    if paired is None:
        return None
    weights = paired.weights
    cache = InfluenceCache(first_result)
    sentences = read_sentence_ids(first_columns)
    first_influences: ItemInfluences | None = None
    samples = {}
    for key, results in results_by_key.items():
        influences_by_result = []
        for result in results:
            influences = cache.get(result)
            if influences is None:
                influences = compute_influences(result, read_item_columns(result))
                cache.add(result, influences)
            first_influences = first_influences or influences
            _check_same_items(first_result, first_influences, influences)
            if sentences is None and influences.has_sentences:
                sentences = read_sentence_ids(read_item_columns(result))
            influences_by_result.append(influences)
            count_result()
        # By training seed (over all evaluation seeds) if there are several, else evaluation seed.
        samples[key] = average_by_seed(
            # That of a probe may be a mean of rounded accuracies, not that of its items.
            np.array([result.score for result in results]),
            np.array([influences.influences for influences in influences_by_result]),
            results,
        )
    cache.save()
    if dependence == "none":
        sentences = None
    # Items with a recall are images, which share no sentences.
    return TaskSamples(
        task=first_result.task,
        samples=samples,
        weights=weights,
        sentences=unshared_sentence_numbers(len(weights)) if sentences is None else sentences,
        knows_sentences=sentences is not None or "recall" in first_columns,
    )


def compute_influences(result: Result, columns: Mapping[str, npt.NDArray[Any]]) -> ItemInfluences:
    """Compute how much each item moves the score of a result, from its columns.

    Args:
        result: The result.
        columns: Its per-item columns, by name.

    Returns:
        The influences (n,) float32, a hash of the gold scores (of no bytes if the score needs
        none), and whether the columns say which items share a sentence.

    Raises:
        DataError: The result's own score cannot be computed from the columns.
    """
    # The columns of one encoder with one seed; an empty name means the result's own score. It is
    # None if the score is not computed from these columns.
    paired = make_paired_test(result, [[columns]], score_name="")
    if paired is None:
        raise DataError(f"{result.task}: the results' per-item columns are not of one kind")
    gold = paired.gold.tobytes() if isinstance(paired, PairedCorrelation) else b""
    # Of the only encoder by its only seed.
    (influences,) = paired.influences(encoder=0)
    return ItemInfluences(
        influences.astype(np.float32),
        # As hexadecimal digits: the cache would drop a zero byte at the end of the raw hash.
        hashlib.sha256(gold).hexdigest()[:32].encode(),
        read_sentence_ids(columns) is not None,
    )


def _check_same_items(
    first_result: Result, first: ItemInfluences, influences: ItemInfluences
) -> None:
    """Check that two results on a task are of the same items, by number and by gold scores.

    Results without gold scores have equal hashes.

    Args:
        first_result: The first result, for messages.
        first: The influences of its items, with the hash of their gold scores.
        influences: The influences of the other result's items.

    Raises:
        DataError: They are not.
    """
    if len(first.influences) != len(influences.influences):
        raise DataError(
            f"{first_result.task}: the results' per-item columns are not of the same items"
        )
    if first.gold != influences.gold:
        raise DataError(f"{first_result.task}: the results' gold scores are not the same")
