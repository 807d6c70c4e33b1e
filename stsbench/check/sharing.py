"""Per-item columns that may be passed on: without the gold scores and labels, which are the data's.

Whoever has the data completes them again. The hash that each Result holds of all its columns shows
that they are complete and right, so neither side has to trust the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.check.verify import DataReader, LocalData
from stsbench.core.errors import DataError, OutputError, StsbenchError
from stsbench.core.files import write_atomically
from stsbench.core.wording import as_one_line
from stsbench.results.folder import (
    MAX_COLUMN_BYTES,
    Problem,
    has_columns,
    read_columns,
    read_item_columns,
    read_states,
    to_parquet,
)
from stsbench.results.record import Result, digest_columns, items_path
from stsbench.significance.rows import ProgressCallback

PACKED_SUFFIX = ".packed.parquet"
"""The end of the name of a file of columns without those of the data."""

Columns = Mapping[str, npt.NDArray[Any]]


class ColumnTransfer(NamedTuple):
    """What was done with the per-item columns of each Result of a folder."""

    written: Sequence[Path]
    """The files of columns that were written."""
    n_skipped: int
    """The number of results without columns (packing), or that had theirs already (unpacking)."""
    missing: Sequence[Result]
    """The results whose packed columns or data are not available locally."""
    problems: Sequence[Problem]
    """The results whose columns are broken, or not those of the Result."""


def pack_columns(
    folder: Path, packed_folder: Path, progress: ProgressCallback | None
) -> ColumnTransfer:
    """Write the values per item of all results into files that may be shared.

    An item is a scored sentence or pair. Beside each result lie columns of values per item, some
    of which are the data's own: gold scores and labels, which may not be redistributed. The files
    have all other columns. :func:`unpack_columns` adds the data's again.

    Args:
        folder: A results folder, or the folder of one encoder in it.
        packed_folder: The folder to write to, with one folder per encoder and one file per result.
            It is made if it does not exist.
        progress: Called with the number of results that are done, and of all.

    Returns:
        The files that were written, and the results without columns or with broken ones.

    Raises:
        OutputError: There is no such results folder, or a file cannot be written.
    """

    def write_packed(result: Result) -> Path:
        columns = _without_data(read_item_columns(result))
        return write_atomically(_packed_path(packed_folder, result), to_parquet(columns))

    return _transfer_columns(folder, write_packed, progress, skipped_if_complete=False)


def unpack_columns(
    folder: Path,
    packed_folder: Path,
    read_data: DataReader,
    progress: ProgressCallback | None,
) -> ColumnTransfer:
    """Restore the values per item of results from files that :func:`pack_columns` wrote.

    These files lack the gold scores and labels, which are added from the task's data. Results that
    have their columns of values already are skipped.

    Args:
        folder: A results folder, or the folder of one encoder in it. The restored columns are
            written beside each result.
        packed_folder: The folder of the packed files.
        read_data: A function that returns the data of a result's task; None if these are not
            available locally.
        progress: Called with the number of results that are done, and of all.

    Returns:
        The files that were written, and the results whose packed files or data are missing or
        wrong.

    Raises:
        OutputError: There is no such folder, or a file cannot be written.
    """
    if not packed_folder.is_dir():
        raise OutputError(f"{packed_folder}: is no folder")

    def write_unpacked(result: Result) -> Path | None:
        packed_path = _packed_path(packed_folder, result)
        local_data = read_data(result) if packed_path.exists() else None
        if local_data is None:
            return None
        columns = _complete_columns(result, packed_path, local_data)
        # A result that was read from a folder has a path; ``or`` is for its type alone.
        return write_atomically(items_path(result.path or packed_path), to_parquet(columns))

    return _transfer_columns(folder, write_unpacked, progress, skipped_if_complete=True)


def _transfer_columns(
    folder: Path,
    transfer: Callable[[Result], Path | None],
    progress: ProgressCallback | None,
    *,
    skipped_if_complete: bool,
) -> ColumnTransfer:
    """Call a function for the results of a folder that packs, or restores, their values per item.

    Args:
        folder: A results folder, or the folder of one encoder in it.
        transfer: The function. It returns the file that it has written for a result, or None if
            something is missing for it, and raises an error if something is broken.
        progress: Called with the number of results that are done, and of all.
        skipped_if_complete: True to skip results that have their columns of values beside them;
            False to skip those that lack them.

    Returns:
        The files that were written, the number of skipped results, the results for which something
        is missing, and those for which something is broken.

    Raises:
        OutputError: There is no such folder, or a file cannot be written.
    """
    states = read_states(folder)
    problems = list(states.problems)
    written: list[Path] = []
    missing: list[Result] = []
    n_skipped = 0
    for n_done, result in enumerate(states.results, 1):
        if has_columns(result) == skipped_if_complete:
            n_skipped += 1
        else:
            try:
                path = transfer(result)
            except OutputError:
                raise
            except StsbenchError as error:
                problems.append(Problem(result.path or folder, as_one_line(error)))
            else:
                if path is None:
                    missing.append(result)
                else:
                    written.append(path)
        if progress:
            progress(n_done, len(states.results))
    return ColumnTransfer(written, n_skipped, missing, problems)


def _packed_path(packed_folder: Path, result: Result) -> Path:
    """Return the path of the packed columns of a Result that was read from a file."""
    path = result.path or Path()
    return packed_folder / path.parent.name / f"{path.stem}{PACKED_SUFFIX}"


def _without_data(columns: Columns) -> Columns:
    """Return the columns of values per item that do not reveal gold scores or labels of the data.

    Args:
        columns: Name -> values, (n,).
    """
    data_columns = {"gold", "label"}
    # A prediction and whether it is correct reveal the label together; "correct" alone does not.
    if "prediction" in columns:
        data_columns.add("correct")
    return {name: column for name, column in columns.items() if name not in data_columns}


def _complete_columns(result: Result, path: Path, local_data: LocalData) -> Columns:
    """Return all values per item of a result, from a file without gold scores and from the data.

    Args:
        result: The result. Its ``items`` is the hash that the complete columns must have, and
            its ``data`` that of the data.
        path: The file of columns without gold scores and labels.
        local_data: The data of the split that was scored, and their hash (``digest``).

    Returns:
        Name of a column -> values, (n,).

    Raises:
        DataError: The file cannot be read, or its columns or the data are not those of the result.
    """
    if path.stat().st_size > MAX_COLUMN_BYTES:
        raise DataError(f"{path}: is larger than {MAX_COLUMN_BYTES} bytes")
    if local_data.digest != result.data:
        raise DataError(
            f"{path}: the Result is of the data {result.data[:12]}, "
            f"the hash of the data found is {local_data.digest[:12]}"
        )
    columns = dict(read_columns(path, result.n))
    data_columns = local_data.columns
    # A classifier's result has ``correct`` in place of gold scores.
    if "labels" in data_columns and "prediction" in columns:
        columns["correct"] = columns["prediction"] == np.asarray(data_columns["labels"])
    elif "gold" in data_columns:
        columns["gold"] = np.asarray(data_columns["gold"], dtype=np.float64)
    if digest_columns(columns) != result.items:
        raise DataError(f"{path}: is not what the result was made with")
    return columns
