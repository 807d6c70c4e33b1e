"""Files of training text to Arrow tables: a text file is one column of lines, the others are what they are.

Read into Arrow, a million sentences take the space of their bytes.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import lzma
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stsbench.data.json_lines import read_json_lines
from stsbench.errors import DataError, did_you_mean, one_line
from stsbench.files.expanded import bounded, check_parquet, chunks

OPENERS: Mapping[str, Callable[..., Any]] = {".xz": lzma.open, ".gz": gzip.open}
"""What opens a compressed file for reading, by the end of its name."""
LISTED = 20
"""So many columns of a file are named in a message."""


def read_training_text(path: Path, *, header: bool, limit: int | None = None) -> pa.Table:
    """Read a ``.txt``, ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` file, each also as ``.xz`` or ``.gz``.

    Args:
        path: the file.
        header: whether the first row of a ``.csv`` or ``.tsv`` names the columns; without, they are
            ``f0``, ``f1``, …
        limit: read this many rows at most; a text file is then read no further.

    Returns:
        The table; a text file's one column is ``text``. Only ``.csv`` quotes its cells.

    Raises:
        DataError: the file is missing, empty, cut off, not UTF-8, or not of its kind.
    """
    kind = table_suffix(path)
    file = TEXT_FILES[kind]
    content = _content(path, limit if file.by_line else None)
    if file.is_utf8:
        content = _checked_text(path, content)
    try:
        table = file.parse(path, content, header)
    except (pa.ArrowException, OSError) as error:  # damaged pages of parquet are an OSError
        raise DataError(f"{path}: not a valid {kind} file: {one_line(error)[:150]}") from error
    return table if limit is None else table.slice(0, limit)


def table_suffix(path: Path) -> str:
    """The kind of a file by its name, compression aside; raises DataError."""
    kind = Path(path.stem).suffix if path.suffix in OPENERS else path.suffix
    if kind not in TEXT_FILES:
        raise DataError(
            f"{path}: '{kind}' is not a kind of training text; known: {', '.join(TEXT_FILES)}, each also {' or '.join(OPENERS)}{did_you_mean(kind, TEXT_FILES)}"
        )
    return kind


def select_columns(table: pa.Table, columns: Mapping[str, str | int], *, where: str) -> pa.Table:
    """Return columns under our names.

    Args:
        table: as :func:`read_training_text` gives it.
        columns: our names, each with the file's name for it or its position.
        where: the file, for the message.

    Raises:
        DataError: the table has no such column; names those it has.
    """
    found = table.column_names
    for theirs in columns.values():
        if isinstance(theirs, int) and not 0 <= theirs < len(found):
            raise DataError(f"{where}: no column {theirs} (has {len(found)}, counted from 0)")
        if isinstance(theirs, str) and found.count(theirs) != 1:
            raise DataError(f"{where}: {_no_one_column(theirs, found)}")
    return pa.table({ours: table.column(theirs) for ours, theirs in columns.items()})


def _no_one_column(name: str, found: Sequence[str]) -> str:
    if name in found:
        return f"{found.count(name)} columns are called '{name}'; rename all but one"
    listed = ", ".join(found[:LISTED]) + (", …" if len(found) > LISTED else "")
    return f"no column '{name}' (has {listed[:300]}){did_you_mean(name, found[:LISTED])}"


def _content(path: Path, lines: int | None) -> bytes:
    try:
        with OPENERS.get(path.suffix, open)(path, "rb") as stream:
            parts = bounded(chunks(stream), path, where=str(path))
            content = b"".join(parts) if lines is None else _first_lines(parts, lines)
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
        why = "is cut off" if isinstance(error, EOFError) else f"is not a {path.suffix} file, or is damaged"
        raise DataError(f"{path}: {why}; restore it") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not content.strip():
        raise DataError(f"{path}: the file is empty")
    return content


def _first_lines(parts: Iterable[bytes], count: int) -> bytes:
    content = bytearray()
    for part in parts:
        content += part
        if part.count(b"\n") and content.count(b"\n") >= count:
            break
    return b"".join(itertools.islice(io.BytesIO(content), count))


def _checked_text(path: Path, content: bytes) -> bytes:
    r"""Return UTF-8 text without byte order mark, ``\r\n`` as ``\n`` where every line ends so."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: is UTF-16; save it as UTF-8")
    if content.count(b"\r\n") == content.count(b"\n"):
        content = content.replace(b"\r\n", b"\n")
    if (at := content.find(b"\x00")) >= 0:
        raise DataError(f"{path}: line {content.count(bytes([10]), 0, at) + 1}: a NUL byte; is it text?")
    # Arrow checks without a copy; Python's decoder then says where.
    text = pa.array([content], pa.large_binary())
    try:
        text.cast(pa.large_string())
    except pa.ArrowInvalid:
        line = next(i for i, one in enumerate(content.split(b"\n"), 1) if not _is_utf8(one))
        raise DataError(f"{path}: line {line}: not valid UTF-8; save the file as UTF-8") from None
    return content.removeprefix(b"\xef\xbb\xbf")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _parquet(path: Path, content: bytes, header: bool) -> pa.Table:
    from pyarrow import parquet

    check_parquet(io.BytesIO(content), path, where=str(path))
    return parquet.read_table(io.BytesIO(content))


def _lines(content: bytes) -> pa.Array:
    r"""Split at ``\n`` alone: other Unicode line ends are text."""
    text = pa.array([content.removesuffix(b"\n")], pa.large_binary()).cast(pa.large_string())
    return pc.split_pattern(text, "\n").flatten()


def _delimited(path: Path, content: bytes, header: bool, delimiter: str, quote: str | Literal[False]) -> pa.Table:
    from pyarrow import csv as arrow_csv

    names = _first_row(path, content, delimiter, quote)
    if not header:
        names = [f"f{i}" for i in range(len(names))]
    return arrow_csv.read_csv(
        io.BytesIO(content),
        # One thread: only then do errors tell the row.
        read_options=arrow_csv.ReadOptions(autogenerate_column_names=not header, use_threads=False, block_size=1 << 24),
        parse_options=arrow_csv.ParseOptions(delimiter=delimiter, quote_char=quote, newlines_in_values=bool(quote)),
        # Cells are text, whatever they look like; no word stands for a missing one.
        convert_options=arrow_csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
        ),
    )


def _first_row(path: Path, content: bytes, delimiter: str, quote: str | Literal[False]) -> list[str]:
    line = content.lstrip(b"\n").partition(b"\n")[0].decode()
    try:
        return next(csv.reader([line], delimiter=delimiter)) if quote else line.split(delimiter)
    except csv.Error as error:
        raise DataError(f"{path}: the first row cannot be read: {one_line(error)}") from error


class TextFile(NamedTuple):
    """A kind of training text: what reads its content, whether that is UTF-8, and whether each line is a row."""

    parse: Callable[[Path, bytes, bool], pa.Table]
    """The path for messages, the content, and whether the first row names the columns."""
    is_utf8: bool = True
    by_line: bool = False


TEXT_FILES: Mapping[str, TextFile] = {
    ".txt": TextFile(lambda path, content, header: pa.table({"text": _lines(content)}), by_line=True),
    ".csv": TextFile(lambda path, content, header: _delimited(path, content, header, ",", '"')),
    ".tsv": TextFile(lambda path, content, header: _delimited(path, content, header, "\t", False)),
    ".jsonl": TextFile(lambda path, content, header: read_json_lines(path, content)),
    ".parquet": TextFile(_parquet, is_utf8=False),
}
"""By the end of a file's name."""
