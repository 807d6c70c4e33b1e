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
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from stsbench.core.errors import CardError, DataError, suggest, translate_errors
from stsbench.core.files import check_parquet, read_bounded
from stsbench.core.wording import join_lines

if TYPE_CHECKING:
    import pyarrow as pa

MARK = "\ufeff"
"""A byte order mark, which is no part of the text."""
DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+,\d+\s*")
"""A number as many countries write it, and no reader of numbers takes it."""
ColumnKey = str | int
"""A column by header name or by position."""
LISTED = 20
"""So many columns or rows of a file are named in a message."""
JSON_LINES = (".jsonl", ".ndjson", ".json")
TEXT = (".csv", ".tsv", ".txt")
PARQUET = ".parquet"
TABLE_FILES = (*TEXT, *JSON_LINES, PARQUET)
"""How the names of files end that hold tables."""
PACKED = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\x1f\x8b": "packed by gzip",
    b"\xfd7zXZ": "packed by xz",
}
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
    content = read_bounded(path)
    if not content:
        raise DataError(f"{path}: the file is empty; restore it")
    return content


def checked_text(
    path: Path,
    content: bytes,
    *,
    encoding: str = "utf-8",
    mixed_ends: bool = False,
    refused: bytes = b"\0\r",
) -> bytes:
    r"""Return the bytes of a text, ``\r\n`` as ``\n`` where every line ends so (SICK's test file does).

    With ``mixed_ends`` lines may end in either: rows of a table in one, lines within its quoted cells in the other.
    ``refused`` are control characters that it may not hold. Raises DataError: it holds one of these, or bytes that are
    not the encoding; names the line.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: is UTF-16; save it as UTF-8")
    if mixed_ends or content.count(b"\r\n") == content.count(b"\n"):
        content = content.replace(b"\r\n", b"\n")
    for byte in refused:
        if (at := content.find(byte)) >= 0:
            what = "a carriage return (mixed line ends?)" if byte else "a NUL byte"
            raise DataError(
                f"{path}: line {content.count(10, 0, at) + 1}: {what}; mend it, or restore the file"
            )
    try:
        content.decode(encoding)
    except UnicodeDecodeError as error:
        line, name = content.count(b"\n", 0, error.start) + 1, encoding.upper()
        raise DataError(
            f"{path}: line {line}: not valid {name} (byte 0x{content[error.start]:02x}); "
            f"is it Latin-1 or another encoding? save the file as {name}"
        ) from error
    return content


def read_text(path: Path, *, encoding: str = "utf-8", mixed_ends: bool = False) -> str:
    """Return a file's text; arguments and errors are those of :func:`checked_text`."""
    return checked_text(path, read_bytes(path), encoding=encoding, mixed_ends=mixed_ends).decode(
        encoding
    )


def read_lines(path: Path, *, encoding: str = "utf-8") -> list[str]:
    r"""Return a file's lines, split at ``\n`` alone: other Unicode line ends are text."""
    lines = read_text(path, encoding=encoding).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def parse_number(text: str, *, where: str, what: str) -> float:
    """Parse a finite number; raises DataError that begins with ``where``: the file and the line."""
    value = math.nan
    with suppress(ValueError):
        # Python would pass over underscores between digits.
        value = float("nan" if "_" in text else text)
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

    path: Path | str
    """The file, or what else a message names."""
    header: Sequence[str]
    rows: Sequence[Sequence[str | None]]
    numbers: Sequence[int]
    unit: Literal["line", "row"] = "line"
    """What ``numbers`` count."""
    delimiter: str = ""
    """What separates the cells of a text file; empty for other files."""

    def place(self, at: int) -> str:
        """The file and the line of a row, for a message."""
        return f"{self.path}: {self.unit} {self.numbers[at]}"

    def column(self, key: ColumnKey) -> list[str]:
        """One column by header name or by position; raises DataError where it, or one of its cells, is missing."""
        index, cells = self.index(key), []
        for at, row in enumerate(self.rows):
            if index >= len(row):
                raise DataError(f"{self.place(at)}: {len(row)} columns, column {key!r} is missing")
            if (cell := row[index]) is None:
                raise DataError(f"{self.place(at)}: column {key!r} holds neither text nor a number")
            cells.append(cell)
        return cells

    def describe_rows(self, notes: Mapping[int, str]) -> str:
        """Return the file with a note on each of some rows, by their positions; if there are many, on the first alone."""
        texts = [
            f"{self.unit} {self.numbers[row]}: {note}"
            for row, note in islice(notes.items(), LISTED)
        ]
        more = f" and {len(notes) - LISTED:,} more" if len(notes) > LISTED else ""
        return f"{self.path}: {', '.join(texts)}{more}"

    @property
    def width(self) -> int:
        """The number of fields of the header, or of the first row if there is no header."""
        return len(self.header or self.rows[0])

    def uneven_rows(self) -> dict[int, int]:
        """Return how many fields rows have, by their position, that are longer or shorter than the header."""
        return {row: len(cells) for row, cells in enumerate(self.rows) if len(cells) != self.width}

    def describe_uneven(self, *, with_longer: bool = False) -> str:
        """Name the rows that are longer or shorter than the header; empty if there are none.

        ``with_longer`` lets rows of tab-separated text without a header be longer: STS-B as released has two fields more
        in some rows, at their end.
        """
        may_be_longer = with_longer and self.delimiter == "\t" and not self.header
        uneven = {
            row: n for row, n in self.uneven_rows().items() if n < self.width or not may_be_longer
        }
        if not uneven:
            return ""
        message = f"{self.describe_rows({row: f'{n} fields' for row, n in uneven.items()})}, expected {self.width}"
        if max(uneven.values()) > self.width and self.delimiter in DELIMITERS:
            message += f"; put a cell that holds '{self.delimiter}' in double quotes"
        return message

    def check_even(self, *, with_longer: bool = False) -> None:
        """Raise DataError if there are rows that :meth:`describe_uneven` names."""
        if message := self.describe_uneven(with_longer=with_longer):
            raise DataError(message)

    def index(self, key: ColumnKey) -> int:
        """The position of a column; raises as :func:`column_at`."""
        if isinstance(key, int):
            if key < 0:
                raise CardError(f"{self.path}: column {key}: columns are counted from 0")
            return key
        return column_at(self.header, key, where=str(self.path))


def column_at(header: Sequence[str], name: str, *, where: str) -> int:
    """The position of a column; raises DataError where no column, or more than one, has this name."""
    if (there := list(header).count(name)) > 1:
        raise DataError(
            f"{where}: {there} columns are called '{name}'; give its position, or rename one"
        )
    if not there:
        near = suggest(name, header[:LISTED])
        raise DataError(
            f"{where}: no column '{name}' (has {format_names(header) or 'no names'}){near}"
        )
    return list(header).index(name)


def format_names(columns: Sequence[str]) -> str:
    """Names of columns as a message has them: not all of very many."""
    return ", ".join(columns[:LISTED])[:300] + (", …" if len(columns) > LISTED else "")


class FileLayout(NamedTuple):
    """How a card says that a text file is to be read; None is found in the file."""

    delimiter: str | None = None
    header: bool | None = None
    quoting: bool | None = None
    fields: int | None = None
    """Lines are cut into so many fields, the last of which keeps its delimiters."""


def read_table(path: Path, layout: FileLayout = FileLayout(), *, named: bool) -> TextTable:  # noqa: B008 - immutable
    """Read a file of any kind as a table of text.

    Of a file that is no delimited text the layout can say nothing. ``named``: columns are asked for by name; then the
    first row of a text file holds their names, unless the layout says otherwise. Raises DataError: the file is broken,
    or has no row; CardError: the layout cannot be this file's.
    """
    content, suffix = read_bytes(path), path.suffix.lower()
    for start, what in PACKED.items():
        if content.startswith(start):
            raise DataError(f"{path}: is {what}; unpack it, or save it as CSV in UTF-8")
    in_json = suffix in JSON_LINES
    if suffix not in (*TEXT, *JSON_LINES):
        with suppress(msgspec.DecodeError, RecursionError):
            in_json = isinstance(
                msgspec.json.decode(content.lstrip(MARK.encode()).partition(b"\n")[0]), dict
            )
    in_parquet = suffix == PARQUET or content.startswith(b"PAR1")
    if not (in_parquet or in_json):
        table = read_delimited(path, layout, named=named)
        if not table.rows:
            raise DataError(f"{path}: no rows below the header")
        return table
    kind = "parquet" if in_parquet else "lines of JSON"
    for key, value in layout._asdict().items():
        if value is not None:
            raise CardError(f"{path}: '{key}' has no effect on {kind}; leave it out")
    import pyarrow as pa

    kinds = (
        pa.ArrowException,
        OSError,
        UnicodeDecodeError,
    )  # damaged pages of parquet are an OSError
    with translate_errors(f"{path}: not valid {kind}", DataError, *kinds, max_length=150):
        if not in_parquet:
            return _from_json(path, content)
        found = read_parquet(path, content)
        return table_of(path, found, range(1, found.num_rows + 1), "row")


def read_parquet(path: Path, content: bytes) -> pa.Table:
    """Read what a parquet file holds, which may not be far more than its size; raises as :func:`check_parquet`."""
    from pyarrow import parquet

    check_parquet(io.BytesIO(content), path, where=str(path))
    return parquet.read_table(io.BytesIO(content))


def _from_json(path: Path, content: bytes) -> TextTable:
    text = checked_text(path, content, mixed_ends=True).removeprefix(MARK.encode())
    if text.lstrip().startswith(b"["):
        raise DataError(
            f"{path}: is one JSON list; write each of its objects on a line of its own (.jsonl)"
        )
    # Empty lines are no rows.
    numbers = [at for at, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    return table_of(path, read_json_lines(path, text), numbers, "line")


def table_of(
    path: Path | str, table: pa.Table, numbers: Sequence[int], unit: Literal["line", "row"]
) -> TextTable:
    """The cells of an Arrow table as text, of numbers as they are written; None where one is neither."""

    def cell(value: Any) -> str | None:  # noqa: ANN401 - whatever a column holds
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return repr(value)
        return value if isinstance(value, str) else None

    rows = list(zip(*(map(cell, column.to_pylist()) for column in table.columns), strict=True))
    if not rows:
        raise DataError(f"{path}: the file holds no row")
    return TextTable(path=path, header=table.column_names, rows=rows, numbers=numbers, unit=unit)


def read_json_lines(path: Path, content: bytes) -> pa.Table:
    """Read one object a line; its keys are the columns, and what a line lacks is null.

    Lists and objects inside are no training text: they are kept as empty lists, which no column of text can be made of.
    Arrow's own reader ends the process on deep nesting, and takes dates for times. Raises DataError: a line is no
    object, is nested too deep, or holds a number beyond 64 bits; names it; ArrowException: a column holds values of
    different kinds.
    """
    import pyarrow as pa

    lines, parts = content.split(b"\n"), []
    for start in range(0, len(lines), ROWS):
        some = enumerate(lines[start : start + ROWS], start + 1)
        rows = [_json_row(f"{path}: line {at}", line) for at, line in some if line.strip()]
        names = dict.fromkeys(name for row in rows for name in row)
        if rows:
            parts.append(
                pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
            )
    return pa.concat_tables(parts, promote_options="permissive")


def _json_row(where: str, line: bytes) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        why = "nested too deep" if isinstance(error, RecursionError) else join_lines(error)[:150]
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
    text, given = read_text(path, mixed_ends=True).removeprefix(MARK), layout.delimiter
    if given is not None:
        if (
            not given
            or set(given) & {"\n", "\r"}
            or (layout.quoting and (len(given) > 1 or given == '"'))
        ):
            wanted = (
                "one character, neither a quote nor the end of a line"
                if layout.quoting
                else "text within a line"
            )
            raise CardError(
                f"{path}: delimiter {given[:20]!r} separates no cells; give {wanted}, such as '\\t' or ','"
            )
        signs: Sequence[str] = [given]
    elif layout.fields:
        signs = ["\t"]
    else:
        # A quoted cell may continue after the first line, and the first delimiter stand there.
        first = text.lstrip("\n").partition("\n")[0]
        signs = [sign for sign in ("\t", *DELIMITERS) if sign in first] or DELIMITERS
    found: dict[str, Rows] = {}
    failures: list[DataError] = []
    for sign in signs:
        try:
            found[sign] = _split_at(path, text, sign, layout)
        except DataError as error:
            failures.append(error)
    # By the delimiter that makes them even, a tab rather; where none does, by that of most cells in the first.
    ranks = {sign: (_is_even(rows), sign == "\t", _width(rows)) for sign, rows in found.items()}
    delimiter = max(ranks, key=ranks.__getitem__, default="")
    best = found.get(delimiter, [])
    if failures and _width(best) < 2:
        raise failures[0]
    if not best:
        raise DataError(f"{path}: the file holds no row")
    rows, numbers = [cells for _, cells in best], [number for number, _ in best]
    below = int(named if layout.header is None else layout.header)
    header = rows[0] if below else []
    return TextTable(
        path=path, header=header, rows=rows[below:], numbers=numbers[below:], delimiter=delimiter
    )


Rows = list[tuple[int, list[str]]]
"""The rows of a delimited text, header among them, each with the line that it begins at."""


def _width(rows: Rows) -> int:
    return len(rows[0][1]) if rows else 0


def _is_even(rows: Rows) -> bool:
    return _width(rows) > 1 and len({len(cells) for _, cells in rows}) == 1


def _split_at(path: Path, text: str, delimiter: str, layout: FileLayout) -> Rows:
    """The rows by one delimiter, quotes holding cells together where the layout says so, or else the content."""
    # An empty line at the end, or between, is no row.
    lines = [(at, line) for at, line in enumerate(text.split("\n"), 1) if line]
    if layout.fields:
        return [(at, line.strip().split(delimiter, layout.fields - 1)) for at, line in lines]
    plain = [(at, line.split(delimiter)) for at, line in lines]
    is_text = '"' not in text or len(delimiter) > 1 or delimiter == '"'
    if layout.quoting is False or (layout.quoting is None and is_text):
        return plain
    quoted: Rows = []
    start, reader = 1, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            quoted += [(start, row)] if row else []
            start = reader.line_num + 1
    except csv.Error as error:
        # A quotation mark may be a character of the text; then the lines are the rows.
        if layout.quoting is None and (delimiter == "\t" or _is_even(plain)):
            return plain
        raise DataError(f"{path}: line {start}: not valid CSV: {join_lines(error)}") from error
    # In tab-separated text quotes are characters, unless the content shows that they quote cells.
    shown = delimiter != "\t" or (_is_even(quoted) and _is_quoting(plain))
    return quoted if layout.quoting or shown else plain


def _is_quoting(plain: Rows) -> bool:
    """Whether rows split at every delimiter show that quotes hold cells together.

    They do by odd numbers of fields, by a quote that is doubled within a cell, or by a column that is quoted throughout.
    """

    def is_wrapped(cell: str) -> bool:
        return len(cell) > 1 and cell[0] == cell[-1] == '"'

    rows = [cells for _, cells in plain]
    doubled = (is_wrapped(cell) and '""' in cell[1:-1] for cells in rows for cell in cells)
    return (
        not _is_even(plain)
        or any(doubled)
        or any(all(map(is_wrapped, one)) for one in zip(*rows, strict=True))
    )
