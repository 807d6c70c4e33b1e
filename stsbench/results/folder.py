"""Results on disk: JSON and per-item columns written whole and read strictly, a folder with its current states at once."""

from __future__ import annotations

import io
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.errors import DataError, OutputError, translate_errors
from stsbench.core.files import parquet_batches, read_bounded, write_atomically
from stsbench.core.wording import join_lines
from stsbench.results.record import (
    SCHEMA,
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
"""More bytes than this hold no result's columns."""


def as_arrays(columns: Mapping[str, npt.NDArray[Any] | list[str]]) -> dict[str, npt.NDArray[Any]]:
    """Columns as they are read back: texts are arrays of objects."""
    given = columns.items()
    return {
        name: one if isinstance(one, np.ndarray) else np.array(one, dtype=object)
        for name, one in given
    }


def to_parquet(columns: Mapping[str, npt.NDArray[np.generic] | list[str]]) -> bytes:
    """The bytes of the columns' file. Arrays are made of buffers: ``pyarrow.array`` would import pandas first."""
    import pyarrow
    import pyarrow.parquet

    made: dict[str, pyarrow.Array] = {}
    for name, values in columns.items():
        column = np.asarray(values)
        if column.dtype.kind in "biuf":
            whole = (
                np.packbits(column, bitorder="little")
                if column.dtype == bool
                else np.ascontiguousarray(column)
            )
            kind = pyarrow.from_numpy_dtype(column.dtype)
            made[name] = pyarrow.Array.from_buffers(
                kind, len(column), [None, pyarrow.py_buffer(whole)]
            )
        else:
            texts = [str(text).encode() for text in values]
            ends = pyarrow.py_buffer(np.cumsum([0, *map(len, texts)], dtype=np.int32))
            made[name] = pyarrow.StringArray.from_buffers(
                len(texts), ends, pyarrow.py_buffer(b"".join(texts))
            )
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(made), stream, compression="zstd")
    return stream.getvalue()


def read_columns(path: Path, n: int, content: bytes | None = None) -> dict[str, npt.NDArray[Any]]:
    """Read columns of n items; raises DataError where they are missing, broken, or not of n items.

    ``content`` are the bytes of the file, if they are read already.
    """
    import pyarrow
    import pyarrow.parquet

    stream = pyarrow.BufferReader(
        read_bounded(path, MAX_COLUMN_BYTES) if content is None else content
    )
    kinds = OSError, ValueError, TypeError, pyarrow.ArrowException
    with translate_errors(f"{path}: cannot be read", DataError, *kinds, max_length=200):
        with pyarrow.parquet.ParquetFile(stream) as file:
            metadata, schema = file.metadata, file.schema_arrow
        # Before it is read: a small file may hold a great many equal rows.
        if metadata.num_rows != n or len(set(schema.names)) < len(schema.names):
            raise ValueError(
                f"{metadata.num_rows} rows of {len(schema.names)} columns, the result is of {n} items"
            )
        batches = list(parquet_batches(stream, path, where=str(path), metadata=metadata))
        table = pyarrow.Table.from_batches(batches, None if batches else schema)
        return {name: _as_array(table[name].combine_chunks()) for name in schema.names}


def _as_array(column: pyarrow.Array) -> npt.NDArray[Any]:
    """A column as its own ``to_numpy`` gives it, which would import pandas first."""
    from pyarrow import types

    if types.is_boolean(column.type):
        return np.from_dlpack(column.cast("uint8")).astype(bool)
    if types.is_integer(column.type) or types.is_floating(column.type):
        return np.from_dlpack(column)
    if types.is_dictionary(column.type) and not column.null_count:
        texts: npt.NDArray[Any] = np.array(column.dictionary.to_pylist(), dtype=object)
        return np.asarray(texts[np.from_dlpack(column.indices)])
    return np.array(column.to_pylist(), dtype=object)


MAX_RESULT_BYTES = 64 << 20
"""More bytes than this hold no result."""


def write_result(result: Result, folder: Path) -> Path:
    """Write a Result and its per-item columns into a results folder; the Result last.

    Raises OutputError: the folder cannot be written or the disk is full, or another name's result lies there; DataError:
    the Result is none that could be read back; names the field.
    """
    path = result.path_in(folder)
    content = encode_result(result)
    before = [] if current_record_path(result, folder).exists() else _other_states(result, path)
    if len(before) == 1:
        # Were this run to end between its two files, the state of before would still be current.
        _write_record(before[0], folder)
    with suppress(DataError):
        held = read_result(path)
        if (held.encoder, held.task, held.split) != (result.encoder, result.task, result.split):
            raise OutputError(
                f"{path}: holds the result of '{held.encoder}' on {held.task}, not of '{result.encoder}' "
                f"on {result.task}; rename one, or give another --out"
            )
    if result.per_item:
        write_atomically(items_path(path), to_parquet(result.per_item))
    write_atomically(path, content)
    record_current(result, folder)
    return path


def record_current(result: Result, folder: Path) -> None:
    """Record that a Result of a folder is the current state of its cell, unless it is the only one; raises OutputError."""
    record = current_record_path(result, folder)
    if _recorded(record) != result.cell_id and (
        record.exists() or _other_states(result, result.path_in(folder))
    ):
        _write_record(result, folder)


def _write_record(result: Result, folder: Path) -> None:
    write_atomically(current_record_path(result, folder), f"{result.cell_id}\n".encode())


def _recorded(record: Path) -> str:
    with suppress(DataError, UnicodeDecodeError):
        return read_bounded(record, MAX_RESULT_BYTES).decode().strip()
    return ""


def _other_states(result: Result, path: Path) -> list[Result]:
    found = []
    for other in sorted(path.parent.glob("*.json")) if path.parent.is_dir() else ():
        if (
            other.name.startswith(path.name.removesuffix(f"{result.cell_id}.json"))
            and other.name != path.name
        ):
            with suppress(DataError):
                found.append(read_result(other))
    return [other for other in found if other.cell_key == result.cell_key]


def encode_result(result: Result) -> bytes:
    """The bytes of a Result's file; raises DataError, naming the field, where it is not as results must be.

    Evaluators and encoders may be a user's own.
    """
    try:
        content = result_to_json(result)
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
    """The bytes of a Result's file: keys in the order of the fields, floats that read back exactly, its digest last."""
    sealed = {**_fields(result), "digest": digest_fields(_fields(result))}
    return (json.dumps(sealed, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _fields(result: Result) -> dict[str, Any]:
    fields = msgspec.structs.asdict(result)
    del fields["per_item"], fields["path"], fields["digest"]
    # Lists of none are left out: most Results have no clean score.
    clean = [msgspec.structs.asdict(one) for one in fields.pop("clean")]
    return {**fields, "clean": clean} if clean else fields


# Made once: a folder may hold ten thousand files.
_DECODER = msgspec.json.Decoder(Result)


def read_result(path: Path) -> Result:
    """Read one Result; raises DataError, naming file and field, where it is none of this schema, or not its path's."""
    kinds = msgspec.DecodeError, UnicodeDecodeError, RecursionError
    with translate_errors(f"{path}: is not a result file of schema {SCHEMA}", DataError, *kinds):
        result = _DECODER.decode(read_bounded(path, MAX_RESULT_BYTES))
    if result.schema != SCHEMA:
        schemas = f"{result.schema}, this stsbench reads {SCHEMA}"
        raise DataError(f"{path}: is a result of schema {schemas}; run the cell again")
    if not result.digest:
        raise DataError(
            f"{path}: has no digest, so an earlier stsbench wrote it; run the cell again"
        )
    if result.per_item or result.digest != digest_fields(_fields(result)):
        raise DataError(
            f"{path}: is not as stsbench wrote it, its digest is of other values; run the cell again"
        )
    place = result.path_in(Path())
    home = path.parent.name if path.parent.name not in ("", "..") else path.resolve().parent.name
    # Some file systems do not tell capitals apart.
    if (home.casefold(), path.name.casefold()) != (
        place.parent.name.casefold(),
        place.name.casefold(),
    ):
        raise DataError(
            f"{path}: is not where it belongs: by what it holds it is {place}; run the cell again"
        )
    return msgspec.structs.replace(result, path=path)


def read_items(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the per-item columns of the Result at ``path``; raises as :func:`read_item_columns`."""
    return read_item_columns(read_result(path))


def read_item_columns(result: Result, content: bytes | None = None) -> dict[str, npt.NDArray[Any]]:
    """The per-item columns of a Result: those that it holds, or those beside its file.

    ``content`` are the bytes of the file beside it, if they are read already.

    Raises DataError: they are missing, broken, or not those the Result was made with.
    """
    if result.per_item:
        return as_arrays(result.per_item)
    if result.path is None:
        raise DataError(
            f"the result of {result.encoder} on {result.task} holds no per-item columns"
        )
    beside = items_path(result.path)
    columns = read_columns(beside, result.n, content)
    if digest_columns(columns) != result.items:
        raise DataError(
            f"{beside}: is not what {result.path.name} was made with; run the cell again"
        )
    return columns


class Problem(NamedTuple):
    """A file that is no result, and what is wrong with it in one line that names it."""

    path: Path
    message: str


class ResultFolder(NamedTuple):
    """What a results folder holds: the current Result of each cell, and what is wrong with each file that is none."""

    results: list[Result]
    problems: list[Problem]
    older: Sequence[Result] = ()
    """Of other states: of an encoder that has changed since under its name."""

    @property
    def all_results(self) -> list[Result]:
        """The Results of all states, the current ones first."""
        return [*self.results, *self.older]


def read_folder(folder: Path, encoder: str | None = None) -> ResultFolder:
    """Read a results folder, or the folder of one encoder in it; a broken or foreign file is one line and stops nothing.

    The current Result of a cell is its only one, or the one that ``run`` made or reused last, as :func:`record_current` has
    recorded. A cell of several states without such a record has none: that is a problem. Raises OutputError: there is no
    such folder, or it cannot be read.
    """
    found = read_states(folder, encoder)
    cells: dict[tuple[object, ...], list[Result]] = {}
    for result in found.results:
        cells.setdefault(result.cell_key, []).append(result)
    kept, older = [], list[Result]()
    for states in cells.values():
        home = (states[0].path or Path()).parent
        named = [
            one for one in states if one.cell_id == _recorded(current_record_path(one, home.parent))
        ]
        if not named and len(states) > 1:
            first, files = (
                states[0],
                ", ".join(one.path.name for one in states if one.path is not None),
            )
            line = (
                f"{home}: holds {len(states)} states of '{first.encoder}' on {first.task} ({files}), and no record of "
                "which one 'stsbench run' made or reused last; run it again with the encoder that you mean, or remove "
                "the other files"
            )
            found.problems.append(Problem(first.path or home, line))
            older += states
        else:
            kept += named or states
            older += [one for one in states if named and one not in named]
    return ResultFolder(kept, found.problems, older)


def read_states(folder: Path, encoder: str | None = None) -> ResultFolder:
    """The same with the Results of all states together."""
    if not folder.is_dir():
        raise OutputError(f"results folder '{folder}' does not exist; 'stsbench run' makes it")
    found = ResultFolder([], [])
    for path in _result_files(folder, encoder, found.problems):
        try:
            found.results.append(read_result(path))
        except DataError as error:
            found.problems.append(Problem(path, str(error)))
    if not encoder and not found.results and not found.problems and any(folder.glob("*.json")):
        whole = folder.absolute()
        return read_states(whole.parent, whole.name)
    return found


def _result_files(folder: Path, encoder: str | None, problems: list[Problem]) -> Iterator[Path]:
    """The files ``*/*.json``, sorted; listed and not globbed, which is half the time of ten thousand."""
    try:
        homes = sorted(one for one in folder.iterdir() if encoder in (None, one.name))
    except OSError as error:
        raise OutputError(f"results folder '{folder}' cannot be read: {error.strerror}") from error
    # Where a link leads nowhere there may have been results.
    for home in (one for one in homes if one.is_dir() or (one.is_symlink() and not one.exists())):
        try:
            files = sorted(one for one in home.iterdir() if one.name.endswith(".json"))
        except OSError as error:
            problems.append(Problem(home, f"{home}: cannot be read: {error.strerror}"))
        else:
            yield from (file for file in files if not file.is_dir())


def find_lost_results(folder: Path) -> list[Problem]:
    """Where a results folder, or one encoder's, has held a result and holds none.

    That is where its per-item columns still are, and where a folder has a result's name.
    """
    items = [*folder.glob("*.items.parquet"), *folder.glob("*/*.items.parquet")]
    beside = {file.with_name(file.name.replace(".items.parquet", ".json")) for file in items}
    name = f"*.*.{'[0-9a-f]' * 8}.json"
    folders = {
        path for pattern in (name, f"*/{name}") for path in folder.glob(pattern) if path.is_dir()
    }
    return [
        *(Problem(path, f"{path}: is a folder, and no result") for path in sorted(folders)),
        *(
            Problem(
                path, f"{path}: is missing, and its per-item columns are there; run the cell again"
            )
            for path in sorted(beside - folders)
            if not os.path.lexists(path)
        ),
    ]


DEFAULT_FOLDER = ("simcse", "senteval")
"""The protocols that a run takes by itself."""
MAX_LISTED = 3
"""So many encoders a command names."""


def has_columns(result: Result) -> bool:
    """Whether a Result holds per-item columns, or a file of them lies beside its own."""
    return bool(result.per_item) or (
        result.path is not None and os.path.lexists(items_path(result.path))
    )


def without_columns(results: Iterable[Result]) -> list[Result]:
    """Those of the Results whose per-item columns are not at hand."""
    return [result for result in results if not has_columns(result)]


def describe_missing_columns(results: Sequence[Result]) -> str:
    """The beginning of a sentence on Results that lack per-item columns."""
    first, *others = results
    more = f" (and {len(others)} more results)" if others else ""
    return f"no per-item columns of {first.encoder} on {first.task}{more}"


def format_rerun_command(results: Sequence[Result]) -> str:
    """The command that scores these Results again and writes their per-item columns; of many encoders, of any one.

    ``--split`` is for all tasks of a run: Results of another split than the usual one have a run of their own.
    """
    by_split: dict[str, list[Result]] = {}
    for result in results:
        by_split.setdefault("" if result.split in ("test", "all") else result.split, []).append(
            result
        )
    commands = []
    for split, part in by_split.items():
        encoders, tasks = (
            list(dict.fromkeys(of)) for of in ([r.encoder for r in part], [r.task for r in part])
        )
        named = encoders if len(encoders) <= MAX_LISTED else ["ENCODER"]
        words = ["stsbench", "run", "--fresh", *named, "--tasks", ",".join(tasks)]
        protocols = dict.fromkeys(str(result.protocol["name"]) for result in part)
        if not set(protocols) <= set(DEFAULT_FOLDER):
            words += ["--protocol", ",".join(protocols)]
        seeds = sorted({result.eval_seed for result in part})
        words += ["--seeds", ",".join(map(str, seeds))] if seeds != [0] else []
        words += ["--split", split] if split else []
        folders = {result.path.parent.parent for result in part if result.path is not None} - {
            Path("results")
        }
        words += ["--results", str(folders.pop())] if len(folders) == 1 else []
        commands.append(shlex.join(words))
    return " && ".join(commands)
