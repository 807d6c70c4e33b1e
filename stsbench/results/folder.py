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
from stsbench.core.wording import as_one_line
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


def columns_to_numpy(columns: ItemColumns) -> dict[str, npt.NDArray[Any]]:
    """Return per-item columns as arrays; texts become arrays of objects, as in a file's columns."""
    return {
        name: column if isinstance(column, np.ndarray) else np.array(column, dtype=object)
        for name, column in columns.items()
    }


def to_parquet(columns: ItemColumns) -> bytes:
    """Return per-item columns as the bytes of a parquet file.

    Arrow's arrays are made of buffers, because ``pyarrow.array`` would import pandas.

    Args:
        columns: One value per item of a score, by column name: an array ``(n,)`` of numbers, or n
            texts.
    """
    import pyarrow
    import pyarrow.parquet

    arrow_columns: dict[str, pyarrow.Array] = {}
    for name, values in columns.items():
        column = np.asarray(values)
        # Booleans, integers, unsigned integers and floats; all other columns are texts.
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
    """Read the per-item columns of a result: one value per scored item in each column.

    Args:
        path: The parquet file.
        n: The number of items of the result, and so of rows of the file.
        content: The bytes of the file, if they are read already.

    Returns:
        An array ``(n,)`` by column name; texts are arrays of Python strings.

    Raises:
        DataError: The file is missing or broken, or has another number of items.
    """
    import pyarrow
    import pyarrow.parquet

    stream = pyarrow.BufferReader(
        read_bounded(path, MAX_COLUMN_BYTES) if content is None else content
    )
    read_errors = OSError, ValueError, TypeError, pyarrow.ArrowException
    # Any of these errors becomes a DataError that begins with the path.
    with translate_errors(f"{path}: cannot be read", DataError, *read_errors, max_length=200):
        with pyarrow.parquet.ParquetFile(stream) as file:
            metadata, schema = file.metadata, file.schema_arrow
        # Checked before the rows are read: a small file may hold very many equal rows.
        has_repeated_name = len(set(schema.names)) < len(schema.names)
        if metadata.num_rows != n or has_repeated_name:
            raise ValueError(
                f"{metadata.num_rows} rows of {len(schema.names)} columns, "
                f"the result is of {n} items"
            )
        batches = list(parquet_batches(stream, path, where=str(path), metadata=metadata))
        # Batches bring their own schema, in which texts are dictionary arrays. A file without rows
        # has no batch: then the schema of the file is needed.
        table_schema = None if batches else schema
        table = pyarrow.Table.from_batches(batches, table_schema)
        return {name: _column_to_numpy(table[name].combine_chunks()) for name in schema.names}


def _column_to_numpy(column: pyarrow.Array) -> npt.NDArray[Any]:
    """Return the n values of an Arrow column as a NumPy array ``(n,)``.

    Texts, and columns of any other type, become an array of Python objects. Arrow's own
    ``to_numpy`` is not used, because it imports pandas.
    """
    from pyarrow import types

    # Booleans are stored as bits, which NumPy cannot read.
    if types.is_boolean(column.type):
        return np.from_dlpack(column.cast("uint8")).astype(bool)
    # Without a missing value: np.from_dlpack raises an ArrowException for one.
    if types.is_integer(column.type) or types.is_floating(column.type):
        return np.from_dlpack(column)
    if types.is_dictionary(column.type) and not column.null_count:
        # A dictionary array holds each distinct text once, and for each item the index of its text.
        texts: npt.NDArray[Any] = np.array(column.dictionary.to_pylist(), dtype=object)
        return np.asarray(texts[np.from_dlpack(column.indices)])
    return np.array(column.to_pylist(), dtype=object)


MAX_RESULT_BYTES = 64 << 20
"""The maximum size of a result file."""


def write_result(result: Result, folder: Path) -> Path:
    """Write a Result and its per-item columns into a results folder, and return its path.

    A cell is an encoder on a task, by a protocol, with its seeds. A folder may hold results of
    several states of a cell, whose encoders differ in weights, settings or package versions. The
    written Result is recorded as the current state of its cell, which tables then show.

    Args:
        result: The Result. If it has no per-item columns, an existing file of columns stays.
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
        # A cell with a single state has no record of which is current. If this run is stopped
        # before ``record_current`` below names the new state, the earlier one must be named.
        if len(other_states) == 1:
            _write_current_record(other_states[0], folder)
    # Two encoders may have the same file name. A missing or broken file, for which read_result
    # raises DataError, is replaced. OutputError is no DataError, and is not suppressed.
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

    A cell is an encoder with one training seed on a task, by a protocol, with one evaluation seed.
    Its states differ in the encoder's weights, settings or package versions. The record is a file
    with the hash of the current state, the ``cell_id``. A cell with a single state needs no record.

    Raises:
        OutputError: The folder cannot be written.
    """
    record_path = current_record_path(result, folder)
    # The recorded hash, or an empty text without a record.
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
    """Return the other results of a cell: of the same encoder, task, protocol and seeds.

    They differ from it by the state of the encoder: its weights, settings or package
    versions. Broken files are skipped.

    Args:
        result: The Result that is not returned.
        path: Its file, which need not exist. The others are searched in its folder.
    """
    if not path.parent.is_dir():
        return []
    # A file is called TASK.SPLIT.ID.json, and its id differs from state to state. Only files with
    # the same task and split are read.
    name_start = path.name.removesuffix(f"{result.cell_id}.json")
    results = []
    for other_path in sorted(path.parent.glob("*.json")):
        if other_path.name.startswith(name_start) and other_path.name != path.name:
            with suppress(DataError):
                results.append(read_result(other_path))
    return [other_state for other_state in results if other_state.cell_key == result.cell_key]


def encode_result(result: Result) -> bytes:
    """Return the JSON bytes of a Result's file, after checking that the Result is valid.

    It is checked because its values may come from a user's own evaluator or encoder.

    Raises:
        DataError: The Result is not valid; names the field.
    """
    try:
        # ValueError for NaN or infinity, TypeError for an object that JSON does not have.
        content = result_to_json(result)
        # Decoded only because that raises an error for a value of another type than its field's.
        _RESULT_DECODER.decode(content)
        problem = next(find_problems(result), None)
    except (TypeError, ValueError, RecursionError) as error:
        problem = as_one_line(error)[:300]
    if problem is not None:
        raise DataError(
            f"the result of {result.encoder} on {result.task} cannot be kept: {problem}"
        )
    return content


def result_to_json(result: Result) -> bytes:
    """Return the bytes of a Result's file.

    Keys are in the order of the fields, without ``per_item``, ``path`` and an empty ``clean``. The
    digest, a hash over all others, is last. Floats read back exactly; NaN raises ValueError.
    """
    fields = _fields_without_digest(result)
    fields["digest"] = digest_fields(fields)
    return (json.dumps(fields, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _fields_without_digest(result: Result) -> dict[str, Any]:
    """Return the fields of a result file, without the digest."""
    fields = msgspec.structs.asdict(result)
    del fields["per_item"], fields["path"], fields["digest"]
    # An empty list is omitted: most Results have no clean score.
    clean_scores = [msgspec.structs.asdict(score) for score in fields.pop("clean")]
    return {**fields, "clean": clean_scores} if clean_scores else fields


# Made once: a folder may hold ten thousand files.
_RESULT_DECODER = msgspec.json.Decoder(Result)


def read_result(path: Path) -> Result:
    """Read the Result in a JSON file; its ``path`` is set, its per-item columns are not read.

    Raises:
        DataError: The file is no result of this schema. Or its digest, a hash over its other
            fields, shows that it was changed. Or its folder and name are not those that follow
            from its encoder, task, split and protocol. The message names the file.
    """
    decode_errors = msgspec.DecodeError, UnicodeDecodeError, RecursionError
    problem = f"{path}: is not a result file of schema {SCHEMA}"
    # These errors become a DataError that begins with ``problem``; read_bounded raises its own.
    with translate_errors(problem, DataError, *decode_errors):
        result = _RESULT_DECODER.decode(read_bounded(path, MAX_RESULT_BYTES))
    if result.schema != SCHEMA:
        raise DataError(
            f"{path}: is a result of schema {result.schema}, "
            f"this stsbench reads {SCHEMA}; run the cell again"
        )
    if not result.digest:
        raise DataError(
            f"{path}: has no digest, so an earlier stsbench wrote it; run the cell again"
        )
    # stsbench writes per-item columns into a file of their own, never into this one.
    has_own_columns = bool(result.per_item)
    if has_own_columns or result.digest != digest_fields(_fields_without_digest(result)):
        raise DataError(
            f"{path}: is not as stsbench wrote it, its digest is of other values; "
            "run the cell again"
        )
    # Relative to the results folder: ENCODER/TASK.SPLIT.ID.json.
    expected_path = result.path_in(Path())
    folder_name = path.parent.name
    if folder_name in ("", ".."):
        # The path was typed relative to the encoder's folder, so that it does not name it.
        folder_name = path.resolve().parent.name
    # Compared without case, because some file systems do not distinguish capitals.
    if (folder_name.casefold(), path.name.casefold()) != (
        expected_path.parent.name.casefold(),
        expected_path.name.casefold(),
    ):
        raise DataError(
            f"{path}: is not where it belongs: by what it holds it is {expected_path}; "
            "run the cell again"
        )
    return msgspec.structs.replace(result, path=path)


def read_item_columns(result: Result, content: bytes | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return the per-item columns of a Result: its own, or else those of the file beside its file.

    Args:
        result: The Result: a new one has its columns in ``per_item``, one that was read has the
            ``path`` of its file.
        content: The bytes of the file of columns, if they are read already.

    Returns:
        An array with one value per scored item, ``(n,)``, by column name.

    Raises:
        DataError: The columns are missing or broken. Or their hash is not ``result.items``, the
            hash of the columns that the score was computed from.
    """
    if result.per_item:
        return columns_to_numpy(result.per_item)
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

    A cell is an encoder on a task, by a protocol, with its seeds. Its states differ in the
    encoder's weights, settings or package versions. If a cell has one state, that is the current
    one. If it has several, the current one is that which a run made or reused last, as
    :func:`record_current` has recorded. Without such a record the cell is a problem, and all of its
    states are older. A broken file is a problem too. Problems are returned, not raised.

    Args:
        folder: The results folder.
        encoder: The name of the folder of one encoder in it; None for all encoders.

    Returns:
        The current results, the problems, and the older results.

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
    """Return the problem of a cell with several results, none of which is recorded as current.

    Args:
        states: The results of one encoder, task, protocol and seed, two or more. They differ in
            the state of the encoder: its weights, settings or package versions.
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
    """Read all results of a results folder, without deciding which of them are current.

    Results of the same encoder, task, protocol and seeds may differ in the state of the encoder:
    its weights, settings or package versions.

    Args:
        folder: The results folder, or the folder of one encoder in it.
        encoder: The name of the folder of one encoder in it; None for all encoders.

    Returns:
        All results in ``results``, and the files that are no valid results in ``problems``.

    Raises:
        OutputError: The folder does not exist, or cannot be read.
    """
    if not folder.is_dir():
        raise OutputError(f"results folder '{folder}' does not exist", remedy=Remedy("score"))
    all_states = ResultFolder(results=[], problems=[])
    # Folders that cannot be listed are added to the problems on the way.
    for path in _result_files(folder, encoder, all_states.problems):
        try:
            all_states.results.append(read_result(path))
        except DataError as error:
            all_states.problems.append(Problem(path, str(error)))
    is_empty = not all_states.results and not all_states.problems
    is_folder_of_one_encoder = not encoder and is_empty and any(folder.glob("*.json"))
    if is_folder_of_one_encoder:
        # The results folder is the parent: read that, for this encoder only.
        absolute = folder.absolute()
        return read_states(absolute.parent, absolute.name)
    return all_states


def _result_files(folder: Path, encoder: str | None, problems: list[Problem]) -> Iterator[Path]:
    """Yield the paths of a results folder's JSON files, ``ENCODER/*.json``, sorted.

    Folders are listed by ``iterdir``, because ``glob`` takes twice the time for ten thousand files.

    Args:
        folder: The results folder, with a folder per encoder.
        encoder: The name of the only encoder's folder to list; None for all.
        problems: A list of the caller, to which a problem is appended for each encoder's folder
            that cannot be listed.

    Raises:
        OutputError: The results folder itself cannot be listed.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if encoder in (None, path.name))
    except OSError as error:
        raise OutputError(f"results folder '{folder}' cannot be read: {error.strerror}") from error
    for path in paths:
        # A broken link is listed like a folder; that fails, so that it becomes a problem.
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

    A result is missing if the file of its per-item columns exists without the JSON file beside it,
    or if a folder has the name of a JSON file of a result.

    Args:
        folder: The results folder, with a folder per encoder, or the folder of one encoder.

    Returns:
        One problem per missing result, with the path that its JSON file should have.
    """
    item_files = [*folder.glob("*.items.parquet"), *folder.glob("*/*.items.parquet")]
    expected_paths = {
        file.with_name(file.name.replace(".items.parquet", ".json")) for file in item_files
    }
    # A result's file is called TASK.SPLIT.ID.json; the id has eight hex digits.
    file_pattern = f"*.*.{'[0-9a-f]' * 8}.json"
    folders = {
        path
        for pattern in (file_pattern, f"*/{file_pattern}")
        for path in folder.glob(pattern)
        if path.is_dir()
    }
    problems = [Problem(path, f"{path}: is a folder, and no result") for path in sorted(folders)]
    for path in sorted(expected_paths - folders):
        # A broken link is no missing result: reading it reports the problem.
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
    """Return the command that scores Results again, and so writes their per-item columns.

    A run has one split for all tasks, so Results of a split that is not the usual one (``test`` or
    ``all``) need a run of their own.

    Args:
        results: The Results, at least one.

    Returns:
        The kind of command, ``rescore``, with its arguments by name. If several runs are needed,
        the remedy is the first of them, and ``further`` holds the others.
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
        split: The split; empty if it is the usual one of each task, which needs no argument.
        results: The Results, at least one.

    Returns:
        Values by argument name: always ``encoder`` (a list of names; of more than ``MAX_LISTED``
        encoders, only the placeholder ``ENCODER``) and ``tasks``. ``protocol``, ``seed``, ``split``
        and ``results_folder`` are there only if they are not a run's defaults: simcse and senteval,
        0, each task's usual split, and ``results``.
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
    # A run without a seed uses 0.
    if seeds != [0]:
        arguments["seed"] = ",".join(map(str, seeds))
    if split:
        arguments["split"] = split
    # A result's file is in a folder per encoder, which is in the results folder.
    folders = {result.path.parent.parent for result in results if result.path is not None}
    # The default folder is not named. Several folders cannot be named in one run.
    folders -= {Path("results")}
    if len(folders) == 1:
        arguments["results_folder"] = str(folders.pop())
    return arguments
