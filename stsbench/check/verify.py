"""Verification of results without their encoder.

Every number is recomputed from the items, and every hash and protocol compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.cards import task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.core.wording import as_one_line, shorten
from stsbench.evaluators.base import ItemColumns
from stsbench.evaluators.belief import NO_ITEM_FILE_REASON, Standing, VerifiedFile
from stsbench.numbers.dependence import SENTENCE_COLUMNS
from stsbench.results.folder import find_lost_results, has_columns, read_item_columns, read_states
from stsbench.results.record import Result, digest_columns

STANDINGS: tuple[Standing, ...] = ("verified", "failed", "not verified")


class LocalData(NamedTuple):
    """The data of one score that are available locally."""

    digest: str
    """The hash of the data."""
    columns: Mapping[str, npt.NDArray[Any] | list[str]]
    """The columns of the split that is scored, with one value per item."""


DataReader = Callable[[Result], LocalData | None]
"""Returns the data of a Result; None if they are not available locally.

Raises StsbenchError if they cannot be read.
"""


@dataclass(frozen=True, kw_only=True)
class VerificationReport:
    """The verification of all files of a results folder."""

    files: Sequence[VerifiedFile]

    def files_with_standing(self, standing: Standing) -> list[VerifiedFile]:
        """Return the files whose numbers were confirmed as far as a standing says."""
        return [file for file in self.files if file.standing == standing]

    @property
    def exit_code(self) -> int:
        """0 if scores were recomputed and none failed; else 2."""
        return 2 if self.files_with_standing("failed") or not self.has_recomputed else 0

    @property
    def has_recomputed(self) -> bool:
        """Whether any score was recomputed; its interval may be by a method of another version."""
        return any(file.recomputed is not None for file in self.files)

    @property
    def summary(self) -> str:
        """How many files of results were verified, failed or could not be verified, in one line."""
        # STANDINGS are "verified", "failed" and "not verified".
        counts = [
            f"{len(self.files_with_standing(standing))} {standing}"
            for standing in STANDINGS
            if self.files_with_standing(standing)
        ]
        # True if the task's data are here and have the hash that the result records.
        n_with_data = sum(file.data for file in self.files)
        subject = "1 result" if len(self.files) == 1 else f"{len(self.files)} results"
        return f"{subject}: {', '.join(counts) or 'none'}; data found for {n_with_data}"

    @property
    def earlier_methods(self) -> Mapping[str, int]:
        """How many results have a confidence interval that an earlier version computed otherwise.

        Name of the method by which it was computed -> number of results.
        """
        return Counter(
            file.result.interval_method
            for file in self.files
            if file.result is not None and file.has_earlier_interval
        )


def verify(
    folder: Path,
    catalogue: Catalogue,
    read_data: DataReader,
    progress: Callable[[int, int], object] | None = None,
) -> VerificationReport:
    """Verify all results of a folder: recompute what can be recomputed, and compare the rest.

    How much is verified depends on the files that are available:

    * always: the digest, path, protocol and the hash of the task's card;
    * with the columns of values per item (sentence or pair): scores, also of subsets, and
      intervals;
    * with the task's data: the hash of the data, gold scores, labels, and scores of each class.

    Args:
        folder: A results folder, or the folder of one encoder in it.
        catalogue: The cards of tasks.
        read_data: A function that returns the data of a result's task; None if these are not
            available locally.
        progress: Called with the number of results that are done, and of all.

    Returns:
        Each file with the problems that were found.

    Raises:
        OutputError: There is no such folder.
    """
    # All results: also those of earlier states of an encoder.
    folder_results = read_states(folder)
    # Lost results: in place of the file beside their columns there is none, or a folder.
    files = [
        VerifiedFile(path=problem.path, problems=[problem.message])
        for problem in (*folder_results.problems, *find_lost_results(folder))
    ]
    # Task, split and hash of the data -> files, with the hash of the columns of gold scores.
    data_columns_by_split: dict[tuple[str, str, str], list[DataColumns]] = {}
    for n_done, result in enumerate(folder_results.results, 1):
        file = VerifiedFile(path=result.path or Path(), result=result)
        files.append(file)
        digest = _verify_result(file, result, catalogue, read_data)
        if digest is not None:
            key = (result.task, result.split, result.data)
            data_columns_by_split.setdefault(key, []).append(DataColumns(file, digest))
        if progress:
            progress(n_done, len(folder_results.results))
    # Results whose gold scores are not those of most results on the same data get a problem.
    for data_columns in data_columns_by_split.values():
        _compare_data_columns(data_columns)
    return VerificationReport(files=sorted(files, key=lambda file: file.path))


class DataColumns(NamedTuple):
    """The columns of a file that are the data's, and so equal in all results of the same data."""

    file: VerifiedFile
    digest: str
    """The hash of the columns ``gold`` and ``subset``."""


def _verify_result(
    file: VerifiedFile, result: Result, catalogue: Catalogue, read_data: DataReader
) -> str | None:
    """Verify one result, and note its problems in the object that stands for its file.

    Args:
        file: The file. What is wrong is added to ``file.problems``, and what could not be verified
            to ``file.unverified_reasons``.
        result: The result in the file.
        catalogue: The cards of tasks.
        read_data: A function that returns the data of a result's task; None if these are not
            available locally.

    Returns:
        The hash of the columns ``gold`` and ``subset`` of its values per item, which are the same
        for all results on the same data. None if there are no such columns, or if anything but its
        scores has a problem.
    """
    _verify_card(file, result, catalogue)
    # The code that computes the score of such a task; None if it is not usable, and ``file`` now
    # says why.
    evaluator = file.load_evaluator(result, catalogue)
    columns = None
    if not has_columns(result):
        file.unverified_reasons.append(NO_ITEM_FILE_REASON)
    else:
        # An error of reading becomes a problem, and ``columns`` stays None.
        with _collect_errors(file.problems):
            columns = read_item_columns(result)
    # The data's labels of the items, for evaluators that compare predictions with them.
    labels = _verify_data(file, result, columns, read_data)
    digest = None
    # Nothing is recomputed from columns that have a problem already.
    are_sound = columns is not None and not file.problems
    if columns is not None and are_sound:
        if evaluator is not None:
            file.compare_with_items(result, columns, evaluator, labels)
        # The comparison sets it to the Result's method if this version does not have that one.
        if file.other_interval:
            method = shorten(file.other_interval)
            file.unverified_reasons.append(f"its interval was made in another way ('{method}')")
        data_columns = {
            name: column for name, column in columns.items() if name in ("gold", "subset")
        }
        if data_columns:
            digest = digest_columns(data_columns)
    # Adds a problem for each field that contradicts another. Last, because such problems must not
    # keep the columns from being compared.
    file.check_fields(result)
    return digest


def _compare_data_columns(data_columns: Sequence[DataColumns]) -> None:
    """Add a problem to results whose gold scores differ from those of most results on the data.

    If no gold scores are more frequent than all others, every result gets the problem.

    Args:
        data_columns: All results on one split with one hash of the data: the ``file`` of each, and
            the hash of its columns of gold scores and subsets (``digest``).
    """
    # Hashes and their numbers of results, the most frequent first.
    digest_counts = Counter(columns.digest for columns in data_columns).most_common()
    if len(digest_counts) == 1:
        return
    (usual_digest, usual_count), (_, next_count), *_ = digest_counts
    # If the first two are equally frequent, nothing tells which one is right.
    has_usual_digest = usual_count > next_count
    for columns in data_columns:
        if columns.digest != usual_digest or not has_usual_digest:
            columns.file.problems.append(
                "column 'gold' or 'subset' differs from that of other results of the same data"
            )


@contextmanager
def _collect_errors(problems: list[str], prefix: str = "") -> Iterator[None]:
    """Add the message of a StsbenchError in the block to the problems; the block ends there."""
    try:
        yield
    except StsbenchError as error:
        problems.append(f"{prefix}{as_one_line(error)}")


def _verify_card(file: VerifiedFile, result: Result, catalogue: Catalogue) -> None:
    """Add a problem to the file of a result if it was made by another version of the task's card.

    The card is the file that says how a task is scored; ``result.task_card`` is its hash. Nothing
    is checked if there is no card of this task.
    """
    if result.task in catalogue.paths("tasks"):
        expected_digest = task_digest(catalogue.task(result.task))
        if expected_digest != result.task_card:
            file.problems.append(
                f"field 'task_card': {result.task_card[:12]}, "
                f"the hash of the card is {expected_digest[:12]}"
            )


def _verify_data(
    file: VerifiedFile,
    result: Result,
    columns: Mapping[str, npt.NDArray[Any]] | None,
    read_data: DataReader,
) -> ItemColumns:
    """Compare a result with the data that it was scored on, and note what differs.

    Args:
        file: The file of the result. What differs is added to ``file.problems``, and why the data
            cannot be read to ``file.unverified_reasons``. ``file.data`` is set to whether the data
            have the hash that the result records (``result.data``).
        result: The result.
        columns: Its columns of values per item, (n,) each; None if they are not available.
        read_data: A function that returns the data of a result's task; None if these are not
            available locally.

    Returns:
        The labels of the items as the column ``label``; empty if the data are not available, have
        another hash or no labels.
    """
    local_data: LocalData | None = None
    # An error of reading is added with this prefix, and ``local_data`` stays None.
    with _collect_errors(file.unverified_reasons, prefix="its data cannot be read: "):
        local_data = read_data(result)
    if local_data is None:
        return {}
    file.data = local_data.digest == result.data
    if not file.data:
        file.problems.append(
            f"field 'data': {result.data[:12]}, "
            f"the hash of the data found is {local_data.digest[:12]}"
        )
        return {}
    if columns is not None:
        _compare_columns(file, columns, local_data)
    return {"label": local_data.columns["labels"]} if "labels" in local_data.columns else {}


def _compare_columns(
    file: VerifiedFile, columns: Mapping[str, npt.NDArray[Any]], local_data: LocalData
) -> None:
    """Compare a result's columns of values per item with the data, and note those that differ.

    Args:
        file: The file of the result, to which problems are added.
        columns: Its columns, (n,) each. ``prediction`` are labels that a classifier has predicted,
            and ``correct`` is whether they are right.
        local_data: The data. A column that the data or the result lack is not compared.
    """
    data_columns = local_data.columns
    # SENTENCE_COLUMNS are "sentence1", "sentence2" and so on: each sentence's hash, as a number.
    for name in ("gold", "subset", *SENTENCE_COLUMNS):
        if name in columns and name in data_columns:
            if not np.array_equal(columns[name], np.asarray(data_columns[name])):
                file.problems.append(f"column '{name}' is not that of the data")
    if {"prediction", "correct"} <= columns.keys() and "labels" in data_columns:
        is_correct = columns["prediction"] == np.asarray(data_columns["labels"])
        if not np.array_equal(columns["correct"].astype(bool), is_correct):
            file.problems.append(
                "column 'correct' is not what the data's labels make of the predictions"
            )
