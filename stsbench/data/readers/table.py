"""Files read as text and as tables of text, each way that one goes wrong with its own message.

A table is what it is: parquet, lines of JSON, or text whose delimiter and quotes are found in it. A card may say how
a text file is delimited; what it leaves open is decided by the end of the file's name and by its content. A tab in the
first line makes it tab-separated, whatever it is called: STS-B's ``.csv`` files are. Else it is the one of comma,
semicolon and bar by which all rows have equally many fields. Quotes are those of CSV, save in tab-separated text, where
they mostly are characters like any other: there the content must show it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from stsbench.core.errors import CardError, DataError, did_you_mean, one_line
from stsbench.core.files import check_is_file, check_parquet

if TYPE_CHECKING:
    import pyarrow as pa

UTF16 = (b"\xff\xfe", b"\xfe\xff")
"""How a file begins that is UTF-16."""
MARK = "\ufeff"
"""A byte order mark, which is no part of the text."""
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
"""A number as many countries write it, and no reader of numbers takes it."""
ColumnKey = str | int
"""A column by header name or by position."""
LISTED = 20
"""So many columns of a file are named in a message."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
TEXT = (".csv", ".tsv", ".txt")
PARQUET = ".parquet"
TABLE_FILES = (*TEXT, *JSON_LINES, PARQUET)
"""How the names of files end that hold tables."""
PACKED = {b"PK\x03\x04": "a zip archive or a spreadsheet", b"\x1f\x8b": "packed by gzip", b"\xfd7zXZ": "packed by xz"}
"""What is no table, by its first bytes."""
DELIMITERS = (",", ";", "|")
"""What may part cells beside a tab."""
ROWS = 65_536
"""Lines of JSON held as Python objects at a time."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file on this machine and what its card says of it."""

    path: Path
    subset: str = ""
    label: str = ""
    pinned: bool = False
    """Whether the card gives its sha256: what the reader lets pass in it is then as released."""


def read_bytes(path: Path) -> bytes:
    """Return a file's bytes; raises DataError where it is missing or empty."""
    check_is_file(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if not content:
        raise DataError(f"{path}: the file is empty; restore it")
    return content


def read_text(path: Path, *, encoding: str = "utf-8", mixed_ends: bool = False) -> str:
    r"""Return a file's text, ``\r\n`` as ``\n`` where every line ends so (SICK's test file does).

    Args:
        path: the file.
        encoding: what its bytes are.
        mixed_ends: whether lines may end in either: rows of a table in one, lines within its quoted cells in the other.

    Raises:
        DataError: a NUL byte, a carriage return elsewhere, or bytes that are not the encoding.
    """
    content = read_bytes(path)
    if content.startswith(UTF16):
        raise DataError(f"{path}: is UTF-16; save it as UTF-8")
    if mixed_ends or content.count(b"\r\n") == content.count(b"\n"):
        content = content.replace(b"\r\n", b"\n")
    for byte, what in ((b"\x00", "a NUL byte"), (b"\r", "a carriage return (mixed line ends?)")):
        if (at := content.find(byte)) >= 0:
            line = content.count(b"\n", 0, at) + 1
            raise DataError(f"{path}: line {line}: {what}; mend it, or restore the file")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line, name = content.count(b"\n", 0, error.start) + 1, encoding.upper()
        raise DataError(
            f"{path}: line {line}: not valid {name} (byte 0x{content[error.start]:02x}); "
            f"is it Latin-1 or another encoding? save the file as {name}"
        ) from error


def read_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    r"""Return a file's lines, split at ``\n`` alone: other Unicode line ends are text."""
    lines = read_text(path, encoding=encoding).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def parse_number(text: str, *, where: str, what: str) -> float:
    """Parse a finite number; raises DataError that begins with ``where``: the file and the line."""
    try:
        # Python would pass over underscores between digits.
        value = float(text) if "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    if not -1e300 < value < 1e300:
        comma = "; write a decimal point, not a comma" if DECIMAL_COMMA.fullmatch(text) else ""
        raise DataError(f"{where}: {what} {shown_field(text)} is not a number{comma}")
    return value


def shown_field(text: str) -> str:
    """Return a number or tag as a message shows it; what is too long for one may be confidential text: its length alone."""
    text = text.strip()
    return f"'{text}'" if len(text) <= 16 else f"of {len(text)} characters"


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """The cells of a file, None where one holds no text; ``numbers`` are those that rows have in the file."""

    path: Path
    header: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    numbers: Sequence[int]
    unit: Literal["line", "row"] = "line"
    """What ``numbers`` count."""

    def place(self, at: int) -> str:
        """The file and the line of a row, for a message."""
        return f"{self.path}: {self.unit} {self.numbers[at]}"

    def column(self, key: ColumnKey) -> list[str]:
        """One column by header name or by position; raises DataError where it, or one of its cells, is missing."""
        index = self.index(key)
        cells: list[str] = []
        for at, row in enumerate(self.rows):
            if index >= len(row):
                raise DataError(f"{self.place(at)}: {len(row)} columns, column {key!r} is missing")
            if (cell := row[index]) is None:
                raise DataError(f"{self.place(at)}: column {key!r} holds neither text nor a number; leave the row out")
            cells.append(cell)
        return cells

    def check_even(self, fields: int = 0) -> None:
        """Check that every row has so many fields; default as many as the header, without one as the first row.

        Raises:
            DataError: names the first line that has more or fewer.
        """
        expected = fields or len(self.header or self.rows[0])
        for at, row in enumerate(self.rows):
            if len(row) != expected:
                raise DataError(f"{self.place(at)}: {len(row)} fields, expected {expected}")

    def check_filled(self) -> None:
        """Check that there are rows; raises DataError."""
        if not self.rows:
            raise DataError(f"{self.path}: no rows below the header")

    def index(self, key: ColumnKey) -> int:
        """The position of a column; raises DataError where no column, or more than one, has this name."""
        if isinstance(key, int):
            if key < 0:
                raise CardError(f"{self.path}: column {key}: columns are counted from 0")
            return key
        if (there := list(self.header).count(key)) > 1:
            raise DataError(f"{self.path}: {there} columns are called '{key}'; give its position, or rename one")
        if not there:
            near = did_you_mean(key, self.header[:LISTED])
            raise DataError(f"{self.path}: no column '{key}' (has {listed(self.header) or 'no names'}){near}")
        return list(self.header).index(key)


def listed(columns: Sequence[str]) -> str:
    """Names of columns as a message has them: not all of very many."""
    return ", ".join(columns[:LISTED])[:300] + (", …" if len(columns) > LISTED else "")


def needs_header(*columns: ColumnKey | None) -> bool:
    """Whether one of these columns is asked for by its name."""
    return any(isinstance(key, str) for key in columns)


def rows_of_split(
    table: TextTable, column: ColumnKey | None, split: str, values: Mapping[str, str] | None = None
) -> Sequence[int]:
    """The positions of a split's rows: all of them where no column says which split a row is of.

    Args:
        table: rows of one split or of several.
        column: what says of each row which split it is of.
        split: the split that is wanted.
        values: what the column calls splits, of those that it calls otherwise than the card.

    Raises:
        DataError: no row is of this split.
    """
    if column is None:
        return range(len(table.rows))
    names, wanted = table.column(column), (values or {}).get(split, split)
    rows = [at for at, name in enumerate(names) if name == wanted]
    if not rows:
        raise DataError(f"{table.path}: no row of split '{wanted}' (has {listed(sorted(set(names)))})")
    return rows


class FileLayout(NamedTuple):
    """How a card says that a text file is to be read; None is found in the file."""

    delimiter: str | None = None
    header: bool | None = None
    quoting: bool | None = None


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
    content, suffix = read_bytes(path), path.suffix.lower()
    for start, what in PACKED.items():
        if content.startswith(start):
            raise DataError(f"{path}: is {what}; unpack it, or save it as CSV in UTF-8")
    if suffix == PARQUET or content.startswith(b"PAR1"):
        kind = "parquet"
    elif suffix in JSON_LINES or (suffix not in TEXT and _is_json(content)):
        kind = "lines of JSON"
    else:
        return read_delimited(path, layout, named=named)
    for key, value in layout._asdict().items():
        if value is not None:
            raise CardError(f"{path}: '{key}' has no effect on {kind}; leave it out")
    import pyarrow as pa

    try:
        return _from_parquet(path, content) if kind == "parquet" else _from_json(path)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # damaged pages of parquet are an OSError
        raise DataError(f"{path}: not valid {kind}: {one_line(error)[:150]}") from error


def _is_json(content: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(content.lstrip(b"\xef\xbb\xbf").partition(b"\n")[0]), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def _from_parquet(path: Path, content: bytes) -> TextTable:
    from pyarrow import parquet

    check_parquet(io.BytesIO(content), path, where=str(path))
    found = parquet.read_table(io.BytesIO(content))
    numbers = range(1, found.num_rows + 1)
    return TextTable(path=path, header=found.column_names, rows=_cells(found), numbers=numbers, unit="row")


def _from_json(path: Path) -> TextTable:
    text = read_text(path, mixed_ends=True).removeprefix(MARK)
    if text.lstrip().startswith("["):
        raise DataError(f"{path}: is one JSON list; write each of its objects on a line of its own (.jsonl)")
    found = read_json_lines(path, text.encode())
    # Empty lines are no rows.
    numbers = [at for at, line in enumerate(text.split("\n"), 1) if line.strip()]
    return TextTable(path=path, header=found.column_names, rows=_cells(found), numbers=numbers)


def _cells(table: pa.Table) -> list[tuple[str | None, ...]]:
    """The rows as text; None for what is missing, or holds more than a value."""

    def cell(value: Any) -> str | None:  # noqa: ANN401 - whatever a column holds
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return repr(value)
        return value if isinstance(value, str) else None

    return list(zip(*(map(cell, column.to_pylist()) for column in table.columns), strict=True))


def read_json_lines(path: Path, content: bytes) -> pa.Table:
    """Read one object a line; its keys are the columns, and what a line lacks is null.

    Lists and objects inside are no training text: they are kept as empty lists, which no column of text can be made of.
    Arrow's own reader ends the process on deep nesting, and takes dates for times.

    Raises:
        DataError: a line is no object, is nested too deep, or holds a number beyond 64 bits; names it.
        ArrowException: a column holds values of different kinds.
    """
    import pyarrow as pa

    lines, parts = content.split(b"\n"), []
    for start in range(0, len(lines), ROWS):
        some = enumerate(lines[start : start + ROWS], start + 1)
        rows = [_json_row(f"{path}: line {at}", line) for at, line in some if line.strip()]
        names = dict.fromkeys(name for row in rows for name in row)
        if rows:
            parts.append(pa.table({name: pa.array([row.get(name) for row in rows]) for name in names}))
    return pa.concat_tables(parts, promote_options="permissive")


def _json_row(where: str, line: bytes) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else one_line(error)[:150]
        raise DataError(f"{where}: not valid JSON: {why}") from error
    if not isinstance(row, dict):
        raise DataError(f'{where}: a JSON object is needed, such as {{"text": "…"}}')
    for key, value in row.items():
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise DataError(f"{where}: '{key[:40]}' is a number beyond 64 bits")
        if isinstance(value, list | dict):
            row[key] = []
    return row


def read_delimited(path: Path, layout: FileLayout, *, named: bool) -> TextTable:
    """Read a file that is delimited text and nothing else; arguments and errors are those of :func:`read_table`."""
    parsed = _parsed(path, layout)
    header = named if layout.header is None else layout.header
    if not parsed.rows:
        raise DataError(f"{path}: the file holds no row")
    names, first = (parsed.rows[0], 1) if header else ([], 0)
    return TextTable(path=path, header=names, rows=parsed.rows[first:], numbers=parsed.numbers[first:])


class _Parsed(NamedTuple):
    """A delimited text's rows, header among them, and the lines they begin at."""

    rows: list[list[str]]
    numbers: Sequence[int]

    def is_even(self) -> bool:
        """Whether there is more than one field a row, and in all rows equally many."""
        return bool(self.rows) and len(self.rows[0]) > 1 and len(set(map(len, self.rows))) == 1


def _parsed(path: Path, layout: FileLayout) -> _Parsed:
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
    if tabbed.is_even():
        return tabbed
    try:
        other = _best_split(path, quoting, signs)
    except DataError:
        return tabbed
    return other if other.is_even() else tabbed


def _best_split(path: Path, quoting: bool | None, signs: Sequence[str]) -> _Parsed:
    """The rows by the delimiter that makes them even and most fields; where none does, by that of most fields in the first."""
    found: list[_Parsed] = []
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


def _split_at(path: Path, delimiter: str, quoting: bool | None) -> _Parsed:
    if quoting is not None or len(delimiter) > 1 or delimiter == '"':
        return _quoted(path, delimiter) if quoting else _plain(path, delimiter)
    tabbed, text = delimiter == "\t", _text(path)
    if tabbed and '"' not in text:
        return _plain(path, delimiter)
    try:
        quoted = _quoted(path, delimiter)
    except DataError:
        # A quotation mark may be a character of the text; then the lines are the rows.
        plain = _plain(path, delimiter)
        if tabbed or plain.is_even():
            return plain
        raise
    if not tabbed:
        return quoted
    # In tab-separated text quotes are characters, unless the content shows that they quote cells.
    split = _Parsed([line.split(delimiter) for line in text.split("\n") if line], [])
    return quoted if quoted.is_even() and _is_quoting(split) else _plain(path, delimiter)


def _is_quoting(plain: _Parsed) -> bool:
    """Whether rows split at every delimiter show that quotes hold cells together.

    They do by odd numbers of fields, by a quote that is doubled within a cell, or by a column that is quoted throughout.
    """

    def is_wrapped(cell: str) -> bool:
        return len(cell) > 1 and cell[0] == cell[-1] == '"'

    doubled = (is_wrapped(cell) and '""' in cell[1:-1] for row in plain.rows for cell in row)
    return (
        not plain.is_even()
        or any(doubled)
        or any(all(map(is_wrapped, column)) for column in zip(*plain.rows, strict=True))
    )


def _text(path: Path) -> str:
    return read_text(path, mixed_ends=True).removeprefix(MARK)


def _plain(path: Path, delimiter: str) -> _Parsed:
    lines = read_lines(path)
    while len(lines) > 1 and not lines[-1]:
        del lines[-1]
    rows = [line.split(delimiter) for line in [lines[0].removeprefix(MARK), *lines[1:]]]
    return _Parsed(rows, range(1, len(rows) + 1))


def _quoted(path: Path, delimiter: str) -> _Parsed:
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
    return _Parsed(rows, numbers)


def check_delimiter(path: Path, delimiter: str, *, quoting: bool) -> None:
    """A card's delimiter must part something, and be one character where cells are quoted; raises CardError."""
    if not delimiter or set(delimiter) & {"\n", "\r"} or quoting and (len(delimiter) > 1 or delimiter == '"'):
        wanted = "one character, neither a quote nor the end of a line" if quoting else "text within a line"
        raise CardError(f"{path}: delimiter {delimiter[:20]!r} separates no cells; give {wanted}, such as '\\t' or ','")
