"""Tables read as what they are: parquet, lines of JSON, or text whose delimiter and quotes are found in it.

A card may say how a text file is delimited; what it leaves open is decided by the end of the file's name and by
its content. A tab in the first line makes it tab-separated, whatever it is called: STS-B's ``.csv`` files are.
Else it is the one of comma, semicolon and bar by which all rows have equally many fields. Quotes are those of
CSV, save in tab-separated text, where they mostly are characters like any other: there the content must show it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stsbench.data.readers.table import TextTable
from stsbench.data.readers.text import read_bytes, read_lines, read_text
from stsbench.errors import CardError, DataError, one_line

JSON_LINES = (".jsonl", ".ndjson", ".json")
TEXT = (".csv", ".tsv", ".txt")
PARQUET = ".parquet"
TABLE_FILES = (*TEXT, *JSON_LINES, PARQUET)
"""How the names of files end that hold tables."""
PACKED = {b"PK\x03\x04": "a zip archive or a spreadsheet", b"\x1f\x8b": "packed by gzip", b"\xfd7zXZ": "packed by xz"}
"""What is no table, by its first bytes."""
DELIMITERS = (",", ";", "|")
"""What may part cells beside a tab."""
MARK = "\ufeff"
"""A byte order mark, which is no part of the text."""


class FileLayout(NamedTuple):
    """How a card says that a text file is to be read; None is found in the file."""

    delimiter: str | None = None
    header: bool | None = None
    quoting: bool | None = None


class Parsed(NamedTuple):
    """A delimited text's rows, header among them, and the lines they begin at."""

    rows: list[list[str]]
    numbers: list[int]

    def is_even(self) -> bool:
        """Whether there is more than one field a row, and in all rows equally many."""
        return bool(self.rows) and len(self.rows[0]) > 1 and len(set(map(len, self.rows))) == 1


def read_table(path: Path, layout: FileLayout, *, named: bool) -> TextTable:
    """Read a file of any kind as a table of text.

    Args:
        path: the file.
        layout: what its card says; of a file that is no delimited text, it can say nothing.
        named: whether columns are asked for by name: then the first row of a text file holds their names, unless
            the layout says otherwise.

    Raises:
        DataError: the file is broken. CardError: the layout cannot be this file's.
    """
    content = read_bytes(path)
    for start, what in PACKED.items():
        if content.startswith(start):
            raise DataError(f"{path}: is {what}; unpack it, or save it as CSV in UTF-8")
    kind = _kind(path, content)
    if kind is None:
        return read_delimited(path, layout, named=named)
    for key, value in layout._asdict().items():
        if value is not None:
            raise CardError(f"{path}: '{key}' has no effect on {kind}; leave it out")
    return _from_arrow(path, content, kind)


def _kind(path: Path, content: bytes) -> str | None:
    """What a file is that is no delimited text; by its name, or where that says nothing by its content."""
    suffix = path.suffix.lower()
    if suffix == PARQUET or content.startswith(b"PAR1"):
        return "parquet"
    if suffix in JSON_LINES or (suffix not in TEXT and _is_json(content)):
        return "lines of JSON"
    return None


def _is_json(content: bytes) -> bool:
    import msgspec

    try:
        return isinstance(msgspec.json.decode(content.lstrip(b"\xef\xbb\xbf").partition(b"\n")[0]), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def _from_arrow(path: Path, content: bytes, kind: str) -> TextTable:
    import pyarrow as pa
    from pyarrow import parquet

    from stsbench.data.json_lines import read_json_lines
    from stsbench.files.expanded import check_parquet

    numbers: Sequence[int]
    unit: Literal["line", "row"] = "row"
    try:
        if kind == "parquet":
            check_parquet(io.BytesIO(content), path, where=str(path))
            found = parquet.read_table(io.BytesIO(content))
            numbers = range(1, found.num_rows + 1)
        else:
            text = read_text(path, mixed_ends=True).removeprefix(MARK)
            if text.lstrip().startswith("["):
                raise DataError(f"{path}: is one JSON list; write each of its objects on a line of its own (.jsonl)")
            found, unit = read_json_lines(path, text.encode()), "line"
            # Empty lines are no rows.
            numbers = [at for at, line in enumerate(text.split("\n"), 1) if line.strip()]
        columns = [[_cell(value) for value in column.to_pylist()] for column in found.columns]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # damaged pages of parquet are an OSError
        raise DataError(f"{path}: not valid {kind}: {one_line(error)[:150]}") from error
    rows = list(zip(*columns, strict=True))
    return TextTable(path=path, header=found.column_names, rows=rows, numbers=numbers, unit=unit)


def _cell(value: Any) -> str | None:  # noqa: ANN401 - whatever a column holds
    """A value as text; None for what is missing, or holds more than a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return value if isinstance(value, str) else None


def read_delimited(path: Path, layout: FileLayout, *, named: bool) -> TextTable:
    """Read a file that is delimited text and nothing else; arguments and errors are those of :func:`read_table`."""
    parsed = _parsed(path, layout)
    header = named if layout.header is None else layout.header
    if not parsed.rows:
        raise DataError(f"{path}: the file holds no row")
    names, first = (parsed.rows[0], 1) if header else ([], 0)
    return TextTable(path=path, header=names, rows=parsed.rows[first:], numbers=parsed.numbers[first:])


def _parsed(path: Path, layout: FileLayout) -> Parsed:
    delimiter, quoting = layout.delimiter, layout.quoting
    if delimiter is not None:
        check_delimiter(path, delimiter, quoting=bool(quoting))
        return _split_at(path, delimiter, quoting)
    first = _text(path).lstrip("\n").partition("\n")[0]
    # A quoted cell may go on beyond the first line, and the first delimiter stand there.
    signs = [sign for sign in DELIMITERS if sign in first] or DELIMITERS
    if "\t" not in first:
        return _best_split(path, quoting, signs)
    tabbed = _split_at(path, "\t", quoting)
    try:
        other = None if tabbed.is_even() else _best_split(path, quoting, signs)
    except DataError:
        return tabbed
    return other if other and other.is_even() else tabbed


def _best_split(path: Path, quoting: bool | None, signs: Sequence[str]) -> Parsed:
    """The rows by the delimiter that makes them even and most fields; where none does, by that of most fields in the first."""
    found: list[Parsed] = []
    failures: list[DataError] = []
    for sign in signs:
        try:
            found.append(_split_at(path, sign, quoting))
        except DataError as error:
            failures.append(error)
    best = max(found, key=lambda one: (one.is_even(), len(one.rows[0]) if one.rows else 0), default=None)
    if best is None or (failures and best.rows and len(best.rows[0]) < 2):
        raise failures[0]
    return best


def _split_at(path: Path, delimiter: str, quoting: bool | None) -> Parsed:
    if quoting is not None or len(delimiter) > 1 or delimiter == '"':
        return _quoted(path, delimiter) if quoting else _plain(path, delimiter)
    if delimiter == "\t":
        return _quoted_where_shown(path, delimiter)
    try:
        return _quoted(path, delimiter)
    except DataError:
        # A quotation mark may be a character of the text; then the lines are the rows.
        if not (plain := _plain(path, delimiter)).is_even():
            raise
        return plain


def _quoted_where_shown(path: Path, delimiter: str) -> Parsed:
    """The rows with quotes as characters, unless the content shows that they quote cells."""
    text = _text(path)
    if '"' not in text:
        return _plain(path, delimiter)
    try:
        quoted = _quoted(path, delimiter)
    except DataError:
        return _plain(path, delimiter)
    split = Parsed([line.split(delimiter) for line in text.split("\n") if line], [])
    return quoted if quoted.is_even() and _is_quoting(split) else _plain(path, delimiter)


def _is_quoting(plain: Parsed) -> bool:
    """Whether rows split at every delimiter show that quotes hold cells together.

    They do by odd numbers of fields, by a quote that is doubled within a cell, or by a column that is quoted throughout.
    """
    if not plain.is_even():
        return True
    cells = [cell for row in plain.rows for cell in row]
    doubled = any(_is_wrapped(cell) and '""' in cell[1:-1] for cell in cells)
    return doubled or any(all(map(_is_wrapped, column)) for column in zip(*plain.rows, strict=True))


def _is_wrapped(cell: str) -> bool:
    return len(cell) > 1 and cell[0] == cell[-1] == '"'


def _text(path: Path) -> str:
    return read_text(path, mixed_ends=True).removeprefix(MARK)


def _plain(path: Path, delimiter: str) -> Parsed:
    lines = read_lines(path)
    while len(lines) > 1 and not lines[-1]:
        del lines[-1]
    rows = [line.split(delimiter) for line in [lines[0].removeprefix(MARK), *lines[1:]]]
    return Parsed(rows, list(range(1, len(rows) + 1)))


def _quoted(path: Path, delimiter: str) -> Parsed:
    reader = csv.reader(io.StringIO(_text(path), newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    numbers: list[int] = []
    start = 1
    try:
        for row in reader:
            # An empty line at the end, or between, is no row.
            if row:
                rows.append(row)
                numbers.append(start)
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path}: line {start}: not valid CSV: {one_line(error)}") from error
    return Parsed(rows, numbers)


def check_delimiter(path: Path, delimiter: str, *, quoting: bool) -> None:
    """A card's delimiter must part something, and be one character where cells are quoted; raises CardError."""
    if not delimiter or set(delimiter) & {"\n", "\r"} or quoting and (len(delimiter) > 1 or delimiter == '"'):
        wanted = "one character, neither a quote nor the end of a line" if quoting else "text within a line"
        raise CardError(f"{path}: delimiter {delimiter[:20]!r} separates no cells; give {wanted}, such as '\\t' or ','")
