"""Results on disk: JSON files and per-item columns, and folders with current and older states."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.errors import DataError, OutputError, Remedy, translate_errors
from stsbench.core.files import parquet_batches, read_bounded, write_atomically
from stsbench.core.grouping import group_by
from stsbench.core.wording import join_lines
from stsbench.results.record import (
    SCHEMA,
    ItemColumns,
    Result,
    current_record_path,
    digest_columns,
    digest_fields,
    find_problems,
    items_path,
)

if TYPE_CHECKING:
    import pyarrow


Arrays = Mapping[str, npt.NDArray[Any]]
MAX_COLUMN_BYTES = 1 << 30
"""The maximum size of a file of per-item columns."""


def as_arrays(columns: Mapping[str, npt.NDArray[Any] | list[str]]) -> dict[str, npt.NDArray[Any]]:
    """Return per-item columns as arrays; texts become arrays of objects, as in a file's columns."""
    return {
        name: column if isinstance(column, np.ndarray) else np.array(column, dtype=object)
        for name, column in columns.items()
    }


def to_parquet(columns: ItemColumns) -> bytes:
    """Return per-item columns as the bytes of a parquet file.

    Arrow's arrays are made of buffers, because ``pyarrow.array`` would import pandas.
    """
    import pyarrow
    import pyarrow.parquet

    arrow_columns: dict[str, pyarrow.Array] = {}
    for name, values in columns.items():
        column = np.asarray(values)
        if column.dtype.kind in "biuf":
            if column.dtype == bool:
                # Arrow stores eight booleans a byte, the first in the lowest bit.
                buffer_values = np.packbits(column, bitorder="little")
            else:
                buffer_values = np.ascontiguousarray(column)
            arrow_columns[name] = pyarrow.Array.from_buffers(
                pyarrow.from_numpy_dtype(column.dtype),
                len(column),
                # None: there is no validity buffer, for no value is missing.
                [None, pyarrow.py_buffer(buffer_values)],
            )
        else:
            texts = [str(text).encode() for text in values]
            # Where each text begins in the joined bytes, and where the last one ends.
            offsets = np.cumsum([0, *map(len, texts)], dtype=np.int32)
            arrow_columns[name] = pyarrow.StringArray.from_buffers(
                len(texts), pyarrow.py_buffer(offsets), pyarrow.py_buffer(b"".join(texts))
            )
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(arrow_columns), stream, compression="zstd")
    return stream.getvalue()


def read_columns(path: Path, n: int, content: bytes | None = None) -> dict[str, npt.NDArray[Any]]:
    """Read the per-item columns of a result.

    Args:
        path: The parquet file.
        n: The number of items of the result.
        content: The bytes of the file, if they are read already.

    Raises:
        DataError: The file is missing or broken, or has another number of items.
    """
    import pyarrow
    import pyarrow.parquet

    stream = pyarrow.BufferReader(
        read_bounded(path, MAX_COLUMN_BYTES) if content is None else content
    )
    read_errors = OSError, ValueError, TypeError, pyarrow.ArrowException
    with translate_errors(f"{path}: cannot be read", DataError, *read_errors, max_length=200):
        with pyarrow.parquet.ParquetFile(stream) as file:
            metadata, schema = file.metadata, file.schema_arrow
        # Checked before the rows are read: a small file may hold very many equal rows.
        if metadata.num_rows != n or len(set(schema.names)) < len(schema.names):
            raise ValueError(
                f"{metadata.num_rows} rows of {len(schema.names)} columns, "
                f"the result is of {n} items"
            )
        batches = list(parquet_batches(stream, path, where=str(path), metadata=metadata))
        # The batches have the schema, in which texts are dictionary arrays; without any batch it is
        # that of the file.
        table = pyarrow.Table.from_batches(batches, None if batches else schema)
        return {name: _as_array(table[name].combine_chunks()) for name in schema.names}


def _as_array(column: pyarrow.Array) -> npt.NDArray[Any]:
    """Return a column as its ``to_numpy`` does, which would import pandas.

    Texts become an array of objects.
    """
    from pyarrow import types

    if types.is_boolean(column.type):
        return np.from_dlpack(column.cast("uint8")).astype(bool)
    if types.is_integer(column.type) or types.is_floating(column.type):
        return np.from_dlpack(column)
    if types.is_dictionary(column.type) and not column.null_count:
        # The distinct texts, and for each item the index of its own.
        texts: npt.NDArray[Any] = np.array(column.dictionary.to_pylist(), dtype=object)
        return np.asarray(texts[np.from_dlpack(column.indices)])
    return np.array(column.to_pylist(), dtype=object)


MAX_RESULT_BYTES = 64 << 20
"""The maximum size of a result file."""


def write_result(result: Result, folder: Path) -> Path:
    """Write a Result and its per-item columns into a results folder, and return its path.

    It is recorded as the current state of its cell.

    Args:
        result: The Result. One without columns leaves those of its file as they are.
        folder: The results folder.

    Raises:
        OutputError: The folder cannot be written, the disk is full, or the file holds the result
            of another encoder.
        DataError: The Result is not valid; names the field.
    """
    path = result.path_in(folder)
    content = encode_result(result)
    if not current_record_path(result, folder).exists():
        other_states = _read_other_states(result, path)
        # The only state of a cell has no record. If this run ends before it records the new state,
        # the earlier one must still be current.
        if len(other_states) == 1:
            _write_current_record(other_states[0], folder)
    # A missing or broken file is no result of another encoder: it is replaced.
    with suppress(DataError):
        stored = read_result(path)
        if (stored.encoder, stored.task, stored.split) != (
            result.encoder,
            result.task,
            result.split,
        ):
            raise OutputError(
                f"{path}: holds the result of '{stored.encoder}' on {stored.task}, "
                f"not of '{result.encoder}' on {result.task}",
                hint="rename one, or give another `results_folder`",
            )
    # The Result is written last: its file is valid only with the columns beside it.
    if result.per_item:
        write_atomically(items_path(path), to_parquet(result.per_item))
    write_atomically(path, content)
    record_current(result, folder)
    return path


def record_current(result: Result, folder: Path) -> None:
    """Record that a Result of a folder is the current state of its cell.

    The only state of a cell needs no record.

    Args:
        result: The Result, whose file is in the folder.
        folder: The results folder.

    Raises:
        OutputError: The folder cannot be written.
    """
    record_path = current_record_path(result, folder)
    if _read_current_record(record_path) == result.cell_id:
        return
    if record_path.exists() or _read_other_states(result, result.path_in(folder)):
        _write_current_record(result, folder)


def _write_current_record(result: Result, folder: Path) -> None:
    """Write the cell id of a Result into the record beside its file."""
    write_atomically(current_record_path(result, folder), f"{result.cell_id}\n".encode())


def _read_current_record(record_path: Path) -> str:
    """Return the cell id of the current result; empty if no record can be read."""
    with suppress(DataError, UnicodeDecodeError):
        return read_bounded(record_path, MAX_RESULT_BYTES).decode().strip()
    return ""


def _read_other_states(result: Result, path: Path) -> list[Result]:
    """Return the results of the same cell in other states, from the files beside it.

    Args:
        result: The Result of the cell that is not returned.
        path: Its file, which need not exist.
    """
    if not path.parent.is_dir():
        return []
    # The id at the end of the name differs from state to state; what is before it is the cell's
    # task and split.
    name_start = path.name.removesuffix(f"{result.cell_id}.json")
    results = []
    for other_path in sorted(path.parent.glob("*.json")):
        if other_path.name.startswith(name_start) and other_path.name != path.name:
            with suppress(DataError):
                results.append(read_result(other_path))
    return [other_state for other_state in results if other_state.cell_key == result.cell_key]


def encode_result(result: Result) -> bytes:
    """Return the bytes of a Result's file, after checking that it is valid.

    Its values may come from a user's own evaluator or encoder.

    Raises:
        DataError: The Result is not valid; names the field.
    """
    try:
        content = result_to_json(result)
        # Raises an error for a value of another type than its field's.
        _DECODER.decode(content)
        problem = next(find_problems(result), None)
    except (TypeError, ValueError, RecursionError) as error:
        problem = join_lines(error)[:300]
    if problem is not None:
        raise DataError(
            f"the result of {result.encoder} on {result.task} cannot be kept: {problem}"
        )
    return content


def result_to_json(result: Result) -> bytes:
    """Return the bytes of a Result's file.

    Keys are in the order of the fields with the digest last, and floats read back exactly.
    """
    fields = {**_file_fields(result), "digest": digest_fields(_file_fields(result))}
    return (json.dumps(fields, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _file_fields(result: Result) -> dict[str, Any]:
    """Return the fields of a result file, without the digest."""
    fields = msgspec.structs.asdict(result)
    del fields["per_item"], fields["path"], fields["digest"]
    # An empty list is omitted: most Results have no clean score.
    clean_scores = [msgspec.structs.asdict(score) for score in fields.pop("clean")]
    return {**fields, "clean": clean_scores} if clean_scores else fields


# Made once: a folder may hold ten thousand files.
_DECODER = msgspec.json.Decoder(Result)


def read_result(path: Path) -> Result:
    """Read one Result.

    Raises:
        DataError: The file is no result of this schema, was changed, or is not at the path that
            belongs to its fields; names file and field.
    """
    decode_errors = msgspec.DecodeError, UnicodeDecodeError, RecursionError
    problem = f"{path}: is not a result file of schema {SCHEMA}"
    with translate_errors(problem, DataError, *decode_errors):
        result = _DECODER.decode(read_bounded(path, MAX_RESULT_BYTES))
    if result.schema != SCHEMA:
        raise DataError(
            f"{path}: is a result of schema {result.schema}, "
            f"this stsbench reads {SCHEMA}; run the cell again"
        )
    if not result.digest:
        raise DataError(
            f"{path}: has no digest, so an earlier stsbench wrote it; run the cell again"
        )
    # A file has no per-item columns: they are in a file beside it.
    is_changed = bool(result.per_item) or result.digest != digest_fields(_file_fields(result))
    if is_changed:
        raise DataError(
            f"{path}: is not as stsbench wrote it, its digest is of other values; "
            "run the cell again"
        )
    expected_path = result.path_in(Path())
    folder_name = path.parent.name
    if folder_name in ("", ".."):
        folder_name = path.resolve().parent.name
    # Some file systems do not distinguish capitals.
    if (folder_name.casefold(), path.name.casefold()) != (
        expected_path.parent.name.casefold(),
        expected_path.name.casefold(),
    ):
        raise DataError(
            f"{path}: is not where it belongs: by what it holds it is {expected_path}; "
            "run the cell again"
        )
    return msgspec.structs.replace(result, path=path)


def read_items(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the per-item columns of the Result at a path.

    Raises:
        DataError: As :func:`read_item_columns`.
    """
    return read_item_columns(read_result(path))


def read_item_columns(result: Result, content: bytes | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the per-item columns of a Result, its own or those beside its file.

    Args:
        result: The Result.
        content: The bytes of the file of columns, if they are read already.

    Raises:
        DataError: The columns are missing or broken, or differ from those of the score.
    """
    if result.per_item:
        return as_arrays(result.per_item)
    if result.path is None:
        raise DataError(
            f"the result of {result.encoder} on {result.task} holds no per-item columns"
        )
    path = items_path(result.path)
    columns = read_columns(path, result.n, content)
    if digest_columns(columns) != result.items:
        raise DataError(f"{path}: is not what {result.path.name} was made with; run the cell again")
    return columns


class Problem(NamedTuple):
    """A file that is no valid result, and the reason."""

    path: Path
    message: str
    """The reason in one line, which names the file."""

    def __str__(self) -> str:
        """Return the message."""
        return self.message


class ResultFolder(NamedTuple):
    """The results of a folder: the current one of each cell, and those of older states."""

    results: list[Result]
    """The current results."""
    problems: list[Problem]
    """The files that are no valid results."""
    older: Sequence[Result] = ()
    """The results of other states of the cells: of an encoder that has changed since."""

    @property
    def all_results(self) -> list[Result]:
        """The Results of all states, the current ones first."""
        return [*self.results, *self.older]


def read_folder(folder: Path, encoder: str | None = None) -> ResultFolder:
    """Read a results folder, or the folder of one encoder in it.

    The current Result of a cell is its only one, or the one that a run made or reused last, as
    :func:`record_current` has recorded. Several states without such a record are a problem, and
    so is a broken file; problems are returned, not raised.

    Args:
        folder: The results folder.
        encoder: The name of the folder of one encoder in it; None for all encoders.

    Raises:
        OutputError: The folder does not exist, or cannot be read.
    """
    all_states = read_states(folder, encoder)
    states_by_cell = group_by(all_states.results, lambda result: result.cell_key)
    current_results: list[Result] = []
    older: list[Result] = []
    for states in states_by_cell.values():
        recorded = [state for state in states if _is_recorded_as_current(state)]
        if recorded:
            current_results += recorded
            older += [state for state in states if state not in recorded]
        elif len(states) == 1:
            current_results += states
        else:
            all_states.problems.append(_unclear_cell_problem(states))
            older += states
    return ResultFolder(current_results, all_states.problems, older)


def _is_recorded_as_current(result: Result) -> bool:
    results_folder = (result.path or Path()).parent.parent
    record_path = current_record_path(result, results_folder)
    return _read_current_record(record_path) == result.cell_id


def _unclear_cell_problem(states: Sequence[Result]) -> Problem:
    """Describe a cell with several states, none of which is recorded as current.

    Args:
        states: The results of the cell, two or more.
    """
    first = states[0]
    first_path = first.path or Path()
    file_names = ", ".join(state.path.name for state in states if state.path is not None)
    message = (
        f"{first_path.parent}: holds {len(states)} states of '{first.encoder}' on {first.task} "
        f"({file_names}), and no record of which one a run made or reused last; run it again with "
        "the encoder that you mean, or remove the other files"
    )
    return Problem(first.path or first_path.parent, message)


def read_states(folder: Path, encoder: str | None = None) -> ResultFolder:
    """Read a results folder, without deciding which state of a cell is current.

    Files that are no valid results are among the problems.

    Args:
        folder: The results folder, or the folder of one encoder in it.
        encoder: The name of the folder of one encoder in it; None for all encoders.

    Returns:
        The results of all states, all of them in ``results``.

    Raises:
        OutputError: The folder does not exist, or cannot be read.
    """
    if not folder.is_dir():
        raise OutputError(f"results folder '{folder}' does not exist", remedy=Remedy("score"))
    all_states = ResultFolder(results=[], problems=[])
    for path in _result_files(folder, encoder, all_states.problems):
        try:
            all_states.results.append(read_result(path))
        except DataError as error:
            all_states.problems.append(Problem(path, str(error)))
    is_empty = not all_states.results and not all_states.problems
    is_folder_of_one_encoder = not encoder and is_empty and any(folder.glob("*.json"))
    if is_folder_of_one_encoder:
        # The results folder is its parent: read it, for this encoder only.
        absolute = folder.absolute()
        return read_states(absolute.parent, absolute.name)
    return all_states


def _result_files(folder: Path, encoder: str | None, problems: list[Problem]) -> Iterator[Path]:
    """Yield the files ``*/*.json``, sorted; folders that cannot be read are added to problems.

    Listing takes half the time of ``glob`` for ten thousand files.

    Args:
        folder: The results folder, with a folder per encoder.
        encoder: The name of the only folder to list; None for all.
        problems: A list to which problems are added.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if encoder in (None, path.name))
    except OSError as error:
        raise OutputError(f"results folder '{folder}' cannot be read: {error.strerror}") from error
    for path in paths:
        # A broken link may have led to results: listing it is a problem.
        is_broken_link = path.is_symlink() and not path.exists()
        if not path.is_dir() and not is_broken_link:
            continue
        try:
            files = sorted(file for file in path.iterdir() if file.name.endswith(".json"))
        except OSError as error:
            problems.append(Problem(path, f"{path}: cannot be read: {error.strerror}"))
        else:
            yield from (file for file in files if not file.is_dir())


def find_lost_results(folder: Path) -> list[Problem]:
    """Find results that are missing from a results folder, or the folder of one encoder.

    A result is missing if only its per-item columns exist, or if a folder has its name.

    Args:
        folder: The results folder, with a folder per encoder, or one of these.

    Returns:
        A problem for each of them; its path is that of the result's file.
    """
    item_files = [*folder.glob("*.items.parquet"), *folder.glob("*/*.items.parquet")]
    expected_paths = {
        file.with_name(file.name.replace(".items.parquet", ".json")) for file in item_files
    }
    # As in the name of a result's file: task, split and eight digits of its id.
    file_pattern = f"*.*.{'[0-9a-f]' * 8}.json"
    folders = {
        path
        for pattern in (file_pattern, f"*/{file_pattern}")
        for path in folder.glob(pattern)
        if path.is_dir()
    }
    problems = [Problem(path, f"{path}: is a folder, and no result") for path in sorted(folders)]
    for path in sorted(expected_paths - folders):
        if not os.path.lexists(path):
            message = f"{path}: is missing, and its per-item columns are there; run the cell again"
            problems.append(Problem(path, message))
    return problems


DEFAULT_PROTOCOLS = ("simcse", "senteval")
"""The protocols of a run without a request."""
MAX_LISTED = 3
"""The maximum number of encoders that a command names."""


def has_columns(result: Result) -> bool:
    """Return whether a Result has per-item columns, its own or in a file beside its own."""
    return bool(result.per_item) or (
        result.path is not None and os.path.lexists(items_path(result.path))
    )


def without_columns(results: Iterable[Result]) -> list[Result]:
    """Return the Results whose per-item columns are not available."""
    return [result for result in results if not has_columns(result)]


def describe_missing_columns(results: Sequence[Result]) -> str:
    """Return the beginning of a sentence on Results without per-item columns."""
    first = results[0]
    n_more = len(results) - 1
    suffix = f" (and {n_more} more results)" if n_more else ""
    return f"no per-item columns of {first.encoder} on {first.task}{suffix}"


def make_rescore_remedy(results: Sequence[Result]) -> Remedy:
    """Return the remedy that scores Results again, and so writes their per-item columns.

    A run has one split for all tasks, so Results of a split that is not the usual one need a run of
    their own. If the encoders are more than ``MAX_LISTED``, a placeholder stands for one of them.

    Args:
        results: The Results, at least one.
    """
    results_by_split = group_by(
        results, lambda result: "" if result.split in ("test", "all") else result.split
    )
    remedy, *further = [
        Remedy("rescore", _collect_rescore_arguments(split, results_of_split))
        for split, results_of_split in results_by_split.items()
    ]
    return remedy._replace(further=tuple(further))


def _collect_rescore_arguments(
    split: str, results: Sequence[Result]
) -> dict[str, str | Sequence[str]]:
    """Return the arguments of a run that scores Results of one split again.

    Args:
        split: The split; empty if it is the usual one of all tasks.
        results: The Results, at least one.
    """
    encoders = list(dict.fromkeys(result.encoder for result in results))
    if len(encoders) > MAX_LISTED:
        encoders = ["ENCODER"]
    tasks = dict.fromkeys(result.task for result in results)
    arguments: dict[str, str | Sequence[str]] = {"encoder": encoders, "tasks": ",".join(tasks)}
    protocols = dict.fromkeys(str(result.protocol["name"]) for result in results)
    if not set(protocols) <= set(DEFAULT_PROTOCOLS):
        arguments["protocol"] = ",".join(protocols)
    seeds = sorted({result.eval_seed for result in results})
    if seeds != [0]:
        arguments["seed"] = ",".join(map(str, seeds))
    if split:
        arguments["split"] = split
    folders = {result.path.parent.parent for result in results if result.path is not None}
    # The default folder is not named; results of several folders need several runs.
    folders -= {Path("results")}
    if len(folders) == 1:
        arguments["results_folder"] = str(folders.pop())
    return arguments
