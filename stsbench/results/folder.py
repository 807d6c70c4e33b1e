"""Results on disk: written whole, read strictly, a folder of them at once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy.typing as npt

from stsbench.errors import DataError, OutputError, one_line
from stsbench.files.whole import read_bounded, write_whole
from stsbench.results.checks import doubled_key, result_problem
from stsbench.results.items import as_arrays, items_problem, read_columns, to_parquet
from stsbench.results.record import SCHEMA, Result, columns_digest, file_place, items_path

OTHER_SCHEMA = f"is a result of schema {{}}, this stsbench reads {SCHEMA}; run the cell again"


LARGEST = 64 << 20
"""More bytes than this hold no result."""


def write_result(result: Result, folder: Path) -> Path:
    """Write a Result and its per-item columns into a results folder; the Result last.

    Raises:
        OutputError: the folder cannot be written or the disk is full, or another name's result lies there.
        DataError: the Result is none that could be read back; names the field.
    """
    path = result.path_in(folder)
    content = checked_json(result)
    with suppress(DataError):
        held = read_result(path)
        if (held.encoder, held.task, held.split) != (result.encoder, result.task, result.split):
            raise OutputError(
                f"{path}: holds the result of '{held.encoder}' on {held.task}, not of '{result.encoder}' "
                f"on {result.task}; rename one, or give another --out"
            )
    if result.per_item:
        write_whole(items_path(path), to_parquet(result.per_item))
    return write_whole(path, content)


def checked_json(result: Result) -> bytes:
    """The bytes of a Result's file, seen to read back.

    Raises:
        DataError: the Result is not as results must be; names the field.
    """
    where = f"the result of {result.encoder} on {result.task} cannot be kept"
    try:
        content = result_to_json(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{where}: {one_line(error)[:300]}") from error
    _decode(content, where)
    problem = items_problem(result, as_arrays(result.per_item)) if result.per_item else None
    if problem is not None:
        raise DataError(f"{where}: its per-item columns: {problem}")
    return content


def result_to_json(result: Result) -> bytes:
    """The bytes of a Result's file: keys in the order of the fields, floats that read back exactly."""
    return (json.dumps(_fields(result), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _fields(result: Result) -> dict[str, Any]:
    """The fields that are in a Result's file."""
    fields = msgspec.structs.asdict(result)
    del fields["per_item"], fields["path"]
    clean = fields.pop("clean")
    # Results that have none are, byte for byte, what they were before there were any.
    return {**fields, "clean": [msgspec.structs.asdict(one) for one in clean]} if clean else fields


class _Schema(msgspec.Struct):
    schema: int


# Made once: a folder may hold ten thousand files.
_DECODER = msgspec.json.Decoder(Result)


_SCHEMA_DECODER = msgspec.json.Decoder(_Schema)


def read_result(path: Path) -> Result:
    """Read one Result.

    Raises:
        DataError: the file is no Result of this schema, or not the one that its path tells; names file and field.
    """
    result = _decode(read_bounded(path, LARGEST), str(path))
    folder, name = file_place(result.encoder, result.task, result.split, result.cell)
    # Some file systems do not tell capitals apart.
    if _lies_at(path) != (folder.casefold(), name.casefold()):
        raise DataError(f"{path}: is not where it belongs: by what it holds it is {folder}/{name}; run the cell again")
    return msgspec.structs.replace(result, path=path)


def _lies_at(path: Path) -> tuple[str, str]:
    """The names of a file's folder and of the file, in small letters."""
    folder, name = ("", *path.parts)[-2:]
    if folder in ("", ".."):
        folder = path.resolve().parent.name
    return folder.casefold(), name.casefold()


def _decode(content: bytes, where: str) -> Result:
    try:
        result = _DECODER.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{where}: {_why_undecodable(content, error)}") from error
    if result.schema != SCHEMA:
        raise DataError(f"{where}: {OTHER_SCHEMA.format(result.schema)}")
    if result.per_item:
        raise DataError(f"{where}: field 'per_item': belongs in a file of its own")
    problem = result_problem(result) or (doubled_key(content) if not _is_ours(content, result) else None)
    if problem is not None:
        raise DataError(f"{where}: {problem}")
    return result


def _why_undecodable(content: bytes, error: Exception) -> str:
    """What is wrong with a file that is no Result: those of another schema may have other fields."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        schema = _SCHEMA_DECODER.decode(content).schema
        if schema != SCHEMA:
            return OTHER_SCHEMA.format(schema)
    return f"is not a result file of schema {SCHEMA}: {one_line(error)[:300]}"


def _is_ours(content: bytes, result: Result) -> bool:
    """Whether a file's bytes are as we write them, but for floats with an exponent: no key can be in it twice."""
    return msgspec.json.format(msgspec.json.encode(_fields(result)), indent=1) + b"\n" == content


def read_items(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the per-item columns of the Result at ``path``, and make its score again from them.

    Raises:
        DataError: the columns are missing, broken, not those the Result was made with, or give another score.
    """
    return _columns_beside(read_result(path), path)


def _columns_beside(result: Result, path: Path) -> dict[str, npt.NDArray[Any]]:
    beside = items_path(path)
    columns = read_columns(beside, result.n)
    if columns_digest(columns) != result.items:
        raise DataError(f"{beside}: is not what {path.name} was made with; run the cell again")
    problem = items_problem(result, columns)
    if problem is not None:
        raise DataError(f"{beside}: {problem}")
    return columns


def columns_of(result: Result) -> Mapping[str, npt.NDArray[Any]]:
    """The per-item columns of a Result: those that it holds, or those beside its file.

    Raises:
        DataError: they are missing, broken, or not those the Result was made with.
    """
    if result.per_item:
        return as_arrays(result.per_item)
    if result.path is not None:
        return _columns_beside(result, result.path)
    raise DataError(f"the result of {result.encoder} on {result.task} holds no per-item columns")


class Problem(NamedTuple):
    """A file that is no result, and what is wrong with it in one line that names it."""

    path: Path
    line: str


class ResultFolder(NamedTuple):
    """What a results folder holds: the Results, and what is wrong with each file that is none."""

    results: list[Result]
    problems: list[Problem]


def scan_results(folder: Path, encoder: str | None = None) -> ResultFolder:
    """Read all Results below a folder; a broken or foreign file is one line and stops nothing.

    Args:
        folder: the results folder.
        encoder: only the folder of this name in it.

    Raises:
        OutputError: there is no such folder, or it cannot be read.
    """
    if not folder.is_dir():
        raise OutputError(f"results folder '{folder}' does not exist; 'stsbench run' makes it")
    found = ResultFolder([], [])
    for path in _result_files(folder, encoder, found.problems):
        try:
            found.results.append(read_result(path))
        except DataError as error:
            found.problems.append(Problem(path, str(error)))
    return found


def read_folder(folder: Path) -> ResultFolder:
    """Read all Results of a results folder, or of the folder of one encoder in it.

    Raises:
        OutputError: there is no such folder, or it cannot be read.
    """
    found = scan_results(folder)
    if not found.results and not found.problems and any(folder.glob("*.json")):
        whole = folder.absolute()
        found = scan_results(whole.parent, whole.name)
    return found


def verified(results: Iterable[Result], *, keep: bool = False) -> ResultFolder:
    """The Results whose per-item columns make their score, or are missing; the others are problems.

    Args:
        results: any.
        keep: whether the Results given back hold the columns that were read, for whoever needs them next.
    """
    found = ResultFolder([], [])
    for result in results:
        try:
            if result.path is not None and os.path.lexists(items_path(result.path)):
                columns = read_items(result.path)
                result = msgspec.structs.replace(result, per_item=columns) if keep else result
            found.results.append(result)
        except DataError as error:
            found.problems.append(Problem(result.path or Path(), str(error)))
    return found


def _result_files(folder: Path, encoder: str | None, problems: list[Problem]) -> Iterator[Path]:
    """The files ``*/*.json``, sorted; scanned and not globbed, which is half the time of ten thousand."""
    try:
        with os.scandir(folder) as entries:
            encoders = sorted(
                entry.name for entry in entries if encoder in (None, entry.name) and _may_be_folder(entry)
            )
    except OSError as error:
        raise OutputError(f"results folder '{folder}' cannot be read: {error.strerror}") from error
    for name in encoders:
        try:
            with os.scandir(folder / name) as entries:
                files = sorted(
                    entry.name for entry in entries if entry.name.endswith(".json") and not _leads_to_folder(entry)
                )
        except OSError as error:
            problems.append(Problem(folder / name, f"{folder / name}: cannot be read: {error.strerror}"))
            continue
        yield from (folder / name / file for file in files)


def _may_be_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder, or a link to one that is not there: it may have been one of results."""
    try:
        return entry.is_dir() or (entry.is_symlink() and not Path(entry.path).exists())
    except OSError:
        # A link to itself.
        return True


def _leads_to_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link to itself.
        return False


def lost(folder: Path) -> list[Problem]:
    """Where a results folder, or one encoder's, has held a result and holds none.

    That is where its per-item columns still are, and where a folder has a result's name.
    """
    items = [*folder.glob("*.items.parquet"), *folder.glob("*/*.items.parquet")]
    beside = {file.with_name(file.name.replace(".items.parquet", ".json")) for file in items}
    folders = {path for pattern in (_NAME, f"*/{_NAME}") for path in folder.glob(pattern) if path.is_dir()}
    return [
        *(Problem(path, f"{path}: is a folder, and no result") for path in sorted(folders)),
        *(
            Problem(path, f"{path}: is missing, and its per-item columns are there; run the cell again")
            for path in sorted(beside - folders)
            if not os.path.lexists(path)
        ),
    ]


_NAME = f"*.*.{'[0-9a-f]' * 8}.json"
