"""Intervals of stored results, computed anew from their items by the method of this version.

No score changes, no encoder and no data are needed. A result that its items contradict is left as
it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from stsbench.check.lock import LockedCell, read_lock, to_lock
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError
from stsbench.core.files import write_atomically
from stsbench.core.wording import as_one_line
from stsbench.evaluators.belief import NO_ITEM_FILE_REASON, VerifiedFile
from stsbench.results.folder import (
    Problem,
    encode_result,
    find_lost_results,
    has_columns,
    read_item_columns,
    read_states,
)
from stsbench.results.record import Result, protocol_key
from stsbench.significance.rows import ProgressCallback


class UpdatedInterval(NamedTuple):
    """A result with its new interval, and what it had before."""

    result: Result
    earlier_interval: tuple[float, float]
    earlier_method: str


class IntervalUpdate(NamedTuple):
    """The update of a results folder and of a lock file.

    Attributes:
        updated: The results with a new interval.
        n_current: The number of results whose interval is by this version's method.
        problems: The files that were left as they are because they contradict their items, or
            cannot be read.
        unknown: Why an interval could not be computed, for each such result.
        n_clean: The number of updated results with clean scores, whose intervals stay.
        updated_cells: The rows of the lock that have a new interval.
        n_cells: The number of rows of the lock; 0 without a lock.
    """

    updated: Sequence[UpdatedInterval]
    n_current: int
    problems: Sequence[Problem]
    unknown: Sequence[str]
    n_clean: int
    updated_cells: Sequence[LockedCell]
    n_cells: int


def update_intervals(
    folder: Path,
    catalogue: Catalogue,
    lock: Path | None,
    progress: ProgressCallback | None,
) -> IntervalUpdate:
    """Replace confidence intervals of results that an earlier version computed by another method.

    Each result is recomputed from its values per item (sentence or pair). If all is confirmed, but
    the interval is by another method than this version's, its file is written with the new one.

    Args:
        folder: A results folder, or the folder of one encoder in it.
        catalogue: The cards of tasks, which name the code that computes their scores (evaluators).
        lock: A lock file of accepted scores, whose rows get the intervals too; None for no file.
        progress: Called with the number of results that are done, and of all.

    Returns:
        What was updated, the number of results that needed no update, and why others had none.

    Raises:
        OutputError: There is no such folder or lock, or it cannot be written.
        DataError: The lock is not a lock file.
    """
    cells = read_lock(lock) if lock is not None else []
    states = read_states(folder)
    problems = [*states.problems, *find_lost_results(folder)]
    updated: list[UpdatedInterval] = []
    current: list[Result] = []
    unknown: list[str] = []
    for n_done, result in enumerate(states.results, 1):
        file = check_against_items(result, catalogue)
        if file.problems:
            problems.append(Problem(file.path, f"{file.path}: {'; '.join(file.problems)}"))
        elif file.recomputed is None:
            # Why nothing could be recomputed.
            unknown += file.unverified_reasons
        elif not file.has_earlier_interval:
            current.append(result)
        else:
            updated.append(_write_interval(file, result))
        if progress:
            progress(n_done, len(states.results))
    with_intervals = [*current, *(update.result for update in updated)]
    updated_cells = update_cells(cells, with_intervals)
    changed_cells = [
        cell for cell, earlier in zip(updated_cells, cells, strict=True) if cell != earlier
    ]
    if lock is not None and changed_cells:
        write_atomically(lock, to_lock(updated_cells))
    return IntervalUpdate(
        updated=updated,
        n_current=len(current),
        problems=problems,
        unknown=unknown,
        # Results with clean scores too, whose own intervals stay.
        n_clean=sum(bool(update.result.clean) for update in updated),
        updated_cells=changed_cells,
        n_cells=len(cells),
    )


def check_against_items(result: Result, catalogue: Catalogue) -> VerifiedFile:
    """Recompute the score and the interval of a result from its values per item.

    Args:
        result: The result, as it was read from its file.
        catalogue: The cards of tasks, which name the code that computes their scores (evaluators).

    Returns:
        An object with the ``problems`` that were found, the scores that were ``recomputed`` (None
        if they could not be), and ``unverified_reasons``: why not.
    """
    file = VerifiedFile(path=result.path or Path(), result=result)
    if not has_columns(result):
        file.unverified_reasons.append(NO_ITEM_FILE_REASON)
        return file
    # Adds a problem for each field of the result that contradicts another.
    file.check_fields(result)
    try:
        items = read_item_columns(result)
        # None if there is none; then ``file`` has got a problem or an unverified reason.
        evaluator = file.load_evaluator(result, catalogue)
    except DataError as error:
        file.problems.append(as_one_line(error))
        return file
    if evaluator is not None and not file.problems:
        file.compare_with_items(result, items, evaluator)
    return file


def _write_interval(file: VerifiedFile, result: Result) -> UpdatedInterval:
    """Write the file of a result anew, with its recomputed confidence interval.

    Which of several states of an encoder is the current one, as its folder records, stays as it is.

    Args:
        file: The path of the result's file, and ``recomputed``, its recomputed score and interval.
        result: The result as it was read.

    Returns:
        The new result, and its earlier interval with the name of its method.
    """
    recomputed = file.recomputed
    assert recomputed is not None, "only recomputed results are written"
    new_notes = [note for note in recomputed.notes if note not in result.notes]
    updated = msgspec.structs.replace(
        result,
        interval=recomputed.interval,
        interval_method=recomputed.interval_method,
        notes=[*result.notes, *new_notes],
    )
    write_atomically(file.path, encode_result(updated))
    return UpdatedInterval(updated, result.interval, result.interval_method)


def update_cells(cells: Iterable[LockedCell], results: Iterable[Result]) -> list[LockedCell]:
    """Return the rows of a lock file, a list of accepted scores, with the intervals of results.

    A row gets the interval of the result that has the same encoder, task, conditions (split,
    protocol and seeds), hash of items, and score. Other rows are unchanged.

    Args:
        cells: The rows.
        results: The results.
    """
    # A cell's ``conditions`` are split, protocol key, training seed and evaluation seed.
    interval_by_key: dict[tuple[object, ...], tuple[float, float]] = {
        (result.encoder, result.task, result.split, protocol_key(result.protocol), *result.seeds,
         result.items, result.score): result.interval
        for result in results
    }  # fmt: skip
    updated = []
    for cell in cells:
        key = (cell.encoder, cell.task, *cell.conditions, cell.items, cell.score)
        interval = interval_by_key.get(key, cell.interval)
        updated.append(msgspec.structs.replace(cell, interval=interval))
    return updated
