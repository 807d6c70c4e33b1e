"""Files read as tables of text, each failure with a message of its own.

The kind of a table is found in the file: parquet, lines of JSON, a sheet of Excel, or text with a
delimiter and quotes, in UTF-8 or, if that is sure, in UTF-16 or cp1252. A card may state how a text
file is delimited; the rest follows from the suffix of its name and from its content. A tab in the
first line makes it tab-separated, whatever its name: STS-B's ``.csv`` files are. Otherwise the
delimiter is the comma, semicolon or bar by which all rows have the same number of fields. Quotes
are those of CSV, except in tab-separated text: there they mostly are ordinary characters, unless
the content shows that they quote cells.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from stsbench.core.errors import CardError, DataError, translate_errors
from stsbench.core.files import check_parquet
from stsbench.core.wording import as_one_line
from stsbench.data.readers.table import DELIMITERS, MAX_LISTED, FileLayout, TextTable, read_sheet
from stsbench.data.readers.text import BOM, find_encoding, normalise_text, read_bytes, to_utf8

if TYPE_CHECKING:
    import pyarrow as pa

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
PARQUET_SUFFIX = ".parquet"
EXCEL_SUFFIX = ".xlsx"
TABLE_SUFFIXES = (*TEXT_SUFFIXES, *JSON_SUFFIXES, PARQUET_SUFFIX, EXCEL_SUFFIX)
"""The suffixes of files that hold tables."""
PACKED_FILE_STARTS = {
    b"PK\x03\x04": "a zip archive or a spreadsheet",
    b"\xd0\xcf\x11\xe0": "a spreadsheet of Excel before 2007",
    b"\x1f\x8b": "packed by gzip",
    b"\xfd7zXZ": "packed by xz",
}
"""The first bytes of files that are no tables -> what such a file is."""
JSON_ROWS_AT_ONCE = 65_536
"""The number of JSON lines that are held as Python objects at the same time."""


def read_table(
    path: Path,
    layout: FileLayout = FileLayout(),  # noqa: B008 - immutable
    *,
    by_name: bool,
    with_lists: bool = False,
) -> TextTable:
    """Read a file of any kind as a table of text: Excel, parquet, lines of JSON, or CSV and alike.

    Args:
        path: The file.
        layout: How a card says that a text file is laid out: its delimiter, its quotes, whether it
            has a header. For other files it must be empty.
        by_name: Whether columns are addressed by name. The first row of a text file or an Excel
            sheet then holds their names, unless the layout says otherwise. In parquet and JSON
            columns have names in any case.
        with_lists: Whether the texts in lists, in parquet or JSON, become columns too, see
            :func:`expand_lists`.

    Raises:
        DataError: The file is broken, or has no row.
        CardError: The layout cannot be this file's.
    """
    content = read_bytes(path)
    is_excel = path.suffix.lower() == EXCEL_SUFFIX and zipfile.is_zipfile(path)
    # The first bytes of zip, gzip, xz and old Excel files -> what such a file is.
    for first_bytes, description in PACKED_FILE_STARTS.items():
        if not is_excel and content.startswith(first_bytes):
            raise DataError(f"{path}: is {description}; unpack it, or save it as CSV in UTF-8")
    is_parquet = path.suffix.lower() == PARQUET_SUFFIX or content.startswith(b"PAR1")
    if is_excel:
        _check_no_layout(path, layout, file_kind="an Excel sheet")
        table = _read_excel_table(path, by_name=by_name)
    elif is_parquet or _is_json_lines(path, content):
        _check_no_layout(path, layout, file_kind="parquet" if is_parquet else "lines of JSON")
        return _read_typed_table(path, content, is_parquet=is_parquet, with_lists=with_lists)
    else:
        table = read_delimited(path, layout, by_name=by_name)
    if not table.rows:
        raise DataError(f"{path}: no rows below the header")
    return table


def _read_typed_table(
    path: Path, content: bytes, *, is_parquet: bool, with_lists: bool
) -> TextTable:
    """Read parquet or lines of JSON, whose cells have types, as a table of text.

    Args:
        path: The file, for messages.
        content: Its bytes.
        is_parquet: Whether the file is parquet, not JSON.
        with_lists: Whether the texts in lists become columns too, see :func:`expand_lists`.

    Raises:
        DataError: The file is broken, or has no row.
    """
    import pyarrow as pa

    # Damaged pages of parquet raise an OSError.
    exception_types = (pa.ArrowException, OSError, UnicodeDecodeError)
    problem = f"{path}: not valid {'parquet' if is_parquet else 'lines of JSON'}"
    with translate_errors(problem, DataError, *exception_types, max_length=150):
        if is_parquet:
            arrow_table = read_parquet(path, content)
            row_numbers: Sequence[int] = range(1, arrow_table.num_rows + 1)
        else:
            arrow_table, row_numbers = _read_json_table(path, content)
        if with_lists:
            arrow_table = expand_lists(arrow_table)
        unit: Literal["line", "row"] = "row" if is_parquet else "line"
        return to_text_table(path, arrow_table, row_numbers, unit)


def _check_no_layout(path: Path, layout: FileLayout, file_kind: str) -> None:
    """Raise CardError if the card states the layout of a file that is no delimited text."""
    for key, value in layout._asdict().items():
        if value is not None:
            raise CardError(f"{path}: '{key}' has no effect on {file_kind}; leave it out")


def _read_excel_table(path: Path, *, by_name: bool) -> TextTable:
    """Read the sheet of an Excel workbook that holds its table as a table of text.

    It is the first sheet with at least two rows and two columns; without one, the first with at
    least two rows. Rows with titles above the table are left out.

    Args:
        path: The workbook.
        by_name: Whether the first row names the columns, as a header.

    Raises:
        DataError: openpyxl is not installed, or the workbook is damaged or has no such sheet.
        SourceError: The workbook unpacks to far more than its size.
    """
    # sheet.rows begins below the titles, whose number is n_title_rows.
    sheet = read_sheet(path)
    n_header_rows = int(by_name)
    # What a user is told about the part of the workbook that was read.
    reading = f"sheet '{sheet.title}' of {sheet.n_sheets}"
    if sheet.n_title_rows:
        reading = f"{reading} below its title, from row {sheet.row_numbers[0]} on"
    return TextTable(
        path=path,
        header=sheet.rows[0] if by_name else [],
        rows=sheet.rows[n_header_rows:],
        row_numbers=sheet.row_numbers[n_header_rows:],
        unit="row",
        reading=reading,
    )


def _is_json_lines(path: Path, content: bytes) -> bool:
    """Return whether a file has a JSON object on each line.

    A suffix of text or of JSON, such as ``.csv`` or ``.jsonl``, decides it. For a file with another
    suffix it depends on the first line.

    Args:
        path: The file.
        content: Its bytes.
    """
    suffix = path.suffix.lower()
    if suffix in (*TEXT_SUFFIXES, *JSON_SUFFIXES):
        return suffix in JSON_SUFFIXES
    first_line = content.lstrip(BOM.encode()).partition(b"\n")[0]
    try:
        return isinstance(msgspec.json.decode(first_line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def read_parquet(path: Path, content: bytes) -> pa.Table:
    """Read a parquet file as an Arrow table.

    Args:
        path: The file, for messages and its size.
        content: The bytes of the file.

    Raises:
        SourceError: The rows would take far more memory than the file has bytes.
        pyarrow.ArrowException, OSError: The file is damaged.
    """
    from pyarrow import parquet

    # Raises the SourceError, before the rows are read.
    check_parquet(io.BytesIO(content), path, where=str(path))
    return parquet.read_table(io.BytesIO(content))


def _read_json_table(path: Path, content: bytes) -> tuple[pa.Table, list[int]]:
    """Read a file with a JSON object on each line; empty lines are skipped.

    Args:
        path: The file, for messages.
        content: Its bytes.

    Returns:
        The table, and for each of its rows the number of the line in the file, from 1.

    Raises:
        DataError: The file is one JSON list, has no row, or a line is not valid.
    """
    # Checked, with line feeds as line ends, and without a byte order mark.
    text = normalise_text(path, content, mixed_ends=True).removeprefix(BOM.encode())
    if text.lstrip().startswith(b"["):
        raise DataError(
            f"{path}: is one JSON list; write each of its objects on a line of its own (.jsonl)"
        )
    line_numbers = [number for number, line in enumerate(text.split(b"\n"), 1) if line.strip()]
    return read_json_lines(path, text), line_numbers


def expand_lists(table: pa.Table) -> pa.Table:
    """Return a table in which the texts of a column of lists are columns too.

    The first texts of the lists in column ``options`` are the new column ``options.0``, the second
    ones ``options.1``, and so on. There are no new columns for lists of different lengths, of other
    values than text, or of more than ``MAX_LISTED`` texts.
    """
    import pyarrow as pa
    from pyarrow import compute

    for name in table.column_names:
        column = table.column(name)
        if not pa.types.is_list(column.type) or not pa.types.is_string(column.type.value_type):
            continue
        distinct_lengths = compute.unique(compute.list_value_length(column)).to_pylist()
        if len(distinct_lengths) != 1:
            continue
        # None if each row lacks its list.
        (length,) = distinct_lengths
        if length is not None and length <= MAX_LISTED:
            for position in range(length):
                texts = compute.list_element(column, position)
                table = table.append_column(f"{name}.{position}", texts)
    return table


def to_text_table(
    path: Path | str, table: pa.Table, row_numbers: Sequence[int], unit: Literal["line", "row"]
) -> TextTable:
    """Convert the cells of an Arrow table to text; a number or truth value is as in JSON.

    A cell that is null or of another type, such as a date or a list, becomes None.

    Args:
        path: The file, or the dataset's name, for messages.
        table: The table.
        row_numbers: For messages, the number of each row in the file.
        unit: What these numbers count, lines or rows.

    Raises:
        DataError: The table has no rows.
    """
    columns = (map(_cell_text, column.to_pylist()) for column in table.columns)
    rows = list(zip(*columns, strict=True))
    if not rows:
        raise DataError(f"{path}: the file holds no row")
    return TextTable(
        path=path, header=table.column_names, rows=rows, row_numbers=row_numbers, unit=unit
    )


def _cell_text(value: Any) -> str | None:  # noqa: ANN401 - the values of a column have any type
    """Return a cell as text; a number or truth value is as in JSON. None for any other value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return value if isinstance(value, str) else None


def read_json_lines(path: Path, content: bytes) -> pa.Table:
    """Read one JSON object per line as a table; its keys are the columns.

    * A key that a line lacks is null in its row; empty lines are skipped.
    * A list of at most ``MAX_LISTED`` texts stays a list.
    * Any other list, or an object, becomes an empty list, as it cannot be read as text.

    Arrow's own reader is not used, as it ends the process on deep nesting, and reads dates as
    times.

    Args:
        path: The file, for messages.
        content: The text of the file in UTF-8.

    Raises:
        DataError: A line is no object, is nested too deep, or holds a number beyond 64 bits; the
            message names the line.
        pyarrow.ArrowException: A column holds values of different types.
    """
    import pyarrow as pa

    lines = content.split(b"\n")
    # A table per block of lines: the values of all rows as Python objects take much more memory.
    tables = []
    for start in range(0, len(lines), JSON_ROWS_AT_ONCE):
        numbered_lines = enumerate(lines[start : start + JSON_ROWS_AT_ONCE], start + 1)
        rows = [
            _parse_json_row(f"{path}: line {number}", line)
            for number, line in numbered_lines
            if line.strip()
        ]
        keys = dict.fromkeys(key for row in rows for key in row)
        if rows:
            columns = {key: pa.array([row.get(key) for row in rows]) for key in keys}
            tables.append(pa.table(columns))
    # "permissive": tables may lack columns, and a column of whole numbers may have floats later.
    return pa.concat_tables(tables or [pa.table({})], promote_options="permissive")


def _parse_json_row(where: str, line: bytes) -> dict[str, Any]:
    """Parse one line of JSON as a row: key -> value.

    An object within it becomes an empty list, and so does a list, unless it is of at most
    ``MAX_LISTED`` texts.

    Args:
        where: The file and the line, which messages of errors begin with.
        line: One JSON object in UTF-8.

    Raises:
        DataError: The line is no object, is nested too deep, or holds a number beyond 64 bits.
    """
    try:
        row = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        is_too_deep = isinstance(error, RecursionError)
        reason = "nested too deep" if is_too_deep else as_one_line(error)[:150]
        raise DataError(f"{where}: not valid JSON: {reason}") from error
    if not isinstance(row, dict):
        raise DataError(f'{where}: a JSON object is needed, such as {{"text": "…"}}')
    for key, value in row.items():
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise DataError(f"{where}: '{key[:40]}' is a number beyond 64 bits")
        if isinstance(value, list | dict) and not _is_list_of_texts(value):
            row[key] = []
    return row


def _is_list_of_texts(value: object) -> bool:
    """Return whether a value is a list of at most ``MAX_LISTED`` texts."""
    if not isinstance(value, list) or len(value) > MAX_LISTED:
        return False
    return all(isinstance(text, str) for text in value)


class _SplitText(NamedTuple):
    """A delimited text that was split into cells; a header is its first row."""

    rows: list[list[str]]
    """The cells of each row."""
    row_numbers: list[int]
    """The line in which each row begins, counted from 1."""


def read_delimited(
    path: Path, layout: FileLayout, *, by_name: bool, encoding: str | None = None
) -> TextTable:
    """Read a text file whose cells are separated by a delimiter, such as CSV, as a table.

    The table may have a header and no rows.

    Args:
        path: The file.
        layout: What a card says of the file: its delimiter, its quotes, whether it has a header.
            What it does not say is found in the file.
        by_name: Whether columns are addressed by name, so that there is a header unless the layout
            says that there is none.
        encoding: The encoding of the text; None to find which of ``utf-8``, ``utf-16`` and
            ``cp1252`` it is.

    Raises:
        CardError: The layout's delimiter cannot separate cells.
        DataError: The file is missing, broken, or holds no row at all.
    """
    file_content = read_bytes(path)
    encoding = encoding or find_encoding(file_content)
    # In UTF-8, with each \r\n as \n; other carriage returns, NUL and broken UTF-8 are a DataError.
    content = normalise_text(path, to_utf8(path, file_content, encoding), mixed_ends=True)
    text = content.decode().removeprefix(BOM)
    delimiter, (rows, row_numbers) = _split_text(path, text, layout)
    if not rows:
        raise DataError(f"{path}: the file holds no row")
    has_header = by_name if layout.header is None else layout.header
    n_header_rows = int(has_header)
    return TextTable(
        path=path,
        header=rows[0] if has_header else [],
        rows=rows[n_header_rows:],
        row_numbers=row_numbers[n_header_rows:],
        delimiter=delimiter,
        reading="" if encoding == "utf-8" else f"text in {encoding}",
    )


def _split_text(path: Path, text: str, layout: FileLayout) -> tuple[str, _SplitText]:
    """Find the delimiter of a text, and split the text into rows of cells.

    A delimiter by which all rows have the same number of cells, at least two, is best. Of several
    such, or if there is none, a tab is preferred, then the delimiter with most cells in the first
    row, then the comma before the semicolon before the bar. If the first row has several cells,
    rows without any text are omitted.

    Args:
        path: The file, for messages.
        text: Its text, with line ends of one kind.
        layout: What a card says of the file; if it has a delimiter, only that is tried.

    Returns:
        The delimiter; then the cells of each row, and the line in which each row begins.

    Raises:
        CardError: The layout's delimiter cannot separate cells.
        DataError: Quotes are broken for one delimiter, and no other one separates cells.
    """
    splits: dict[str, _SplitText] = {}
    failures: list[DataError] = []
    for delimiter in _possible_delimiters(path, text, layout):
        try:
            splits[delimiter] = _split_at_delimiter(path, text, delimiter, layout)
        except DataError as error:
            failures.append(error)

    def preference_key(delimiter: str) -> tuple[bool, bool, int]:
        """Return the key that orders delimiters: the greatest is the best."""
        split_rows = splits[delimiter].rows
        # _have_equal_widths: all rows have the same number of cells, and more than one.
        return _have_equal_widths(split_rows), delimiter == "\t", _first_row_width(split_rows)

    best_delimiter = max(splits, key=preference_key, default="")
    rows, row_numbers = splits.get(best_delimiter, _SplitText(rows=[], row_numbers=[]))
    # A delimiter that failed separates cells more likely than one that separates none.
    if failures and _first_row_width(rows) < 2:
        raise failures[0]
    if _first_row_width(rows) > 1:
        # A row of delimiters alone is an empty row of a spreadsheet.
        is_filled = [any(map(str.strip, cells)) for cells in rows]
        rows = list(compress(rows, is_filled))
        row_numbers = list(compress(row_numbers, is_filled))
    return best_delimiter, _SplitText(rows, row_numbers)


def _possible_delimiters(path: Path, text: str, layout: FileLayout) -> Sequence[str]:
    """Return the delimiters to try on a text, at least one.

    Args:
        path: The file, for messages.
        text: Its text.
        layout: What a card says of the file. If it has a delimiter, that is the only one; if it has
            a number of fields a line, that is the tab.

    Raises:
        CardError: The layout's delimiter cannot separate cells.
    """
    delimiter = layout.delimiter
    if delimiter is not None:
        has_line_end = bool(set(delimiter) & {"\n", "\r"})
        # Quotes need a parser of CSV, whose delimiter is one character.
        cannot_have_quotes = layout.quoting and (len(delimiter) > 1 or delimiter == '"')
        if not delimiter or has_line_end or cannot_have_quotes:
            requirement = (
                "one character, neither a quote nor the end of a line"
                if layout.quoting
                else "text within a line"
            )
            raise CardError(
                f"{path}: delimiter {delimiter[:20]!r} separates no cells; "
                f"give {requirement}, such as '\\t' or ','"
            )
        return [delimiter]
    if layout.fields:
        return ["\t"]
    first_line = text.lstrip("\n").partition("\n")[0]
    # DELIMITERS are comma, semicolon and bar.
    in_first_line = [delimiter for delimiter in ("\t", *DELIMITERS) if delimiter in first_line]
    # If the first line has none, a quoted first cell may continue on later lines, behind which
    # there is a delimiter. A delimiter that the text lacks makes rows of a single cell.
    return in_first_line or DELIMITERS


def _first_row_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of cells in the first row; 0 without rows."""
    return len(rows[0]) if rows else 0


def _have_equal_widths(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether all rows have the same number of cells, and more than one."""
    return _first_row_width(rows) > 1 and len(set(map(len, rows))) == 1


def _split_at_delimiter(path: Path, text: str, delimiter: str, layout: FileLayout) -> _SplitText:
    """Split a text into rows of cells at one delimiter; empty lines are no rows.

    Quotes hold a cell together, with the delimiters and line ends in it, if the layout says so. If
    it does not say, they do so if the text is valid as CSV; in tab-separated text only if all rows
    then have the same number of cells, and the cells show it too (:func:`_shows_quoting`).

    Args:
        path: The file, for messages.
        text: Its text, with line ends of one kind.
        delimiter: The delimiter.
        layout: What a card says of the file: ``quoting`` is whether quotes hold cells together,
            None if it does not say, and True only with a delimiter of one character; ``fields`` is
            the number of cells to cut a line into, without the blanks at its ends, of which the
            last cell keeps its delimiters; None for all.

    Returns:
        The cells of each row, and the line in which each row begins.

    Raises:
        DataError: Quotes are not closed, or there is text beside a quoted cell.
    """
    numbered_lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line]
    line_numbers = [number for number, _ in numbered_lines]
    if layout.fields:
        n_cuts = layout.fields - 1
        cut_rows = [line.strip().split(delimiter, n_cuts) for _, line in numbered_lines]
        return _SplitText(cut_rows, line_numbers)
    # Split at every delimiter, whether or not quotes are around it.
    unquoted = _SplitText([line.split(delimiter) for _, line in numbered_lines], line_numbers)
    can_have_quotes = '"' in text and len(delimiter) == 1 and delimiter != '"'
    if layout.quoting is False or (layout.quoting is None and not can_have_quotes):
        return unquoted
    try:
        quoted = _split_quoted(path, text, delimiter)
    except DataError:
        # A quotation mark may be a character of the text; then the lines are the rows.
        # _have_equal_widths: all rows have the same number of cells, and more than one.
        lines_are_rows = delimiter == "\t" or _have_equal_widths(unquoted.rows)
        if layout.quoting is None and lines_are_rows:
            return unquoted
        raise
    if layout.quoting or delimiter != "\t":
        return quoted
    # In tab-separated text quotes are characters, unless the content shows that they quote cells:
    # by rows of different widths, by a doubled quote in a quoted cell, or by a quoted column.
    is_quoted = _have_equal_widths(quoted.rows) and _shows_quoting(unquoted.rows)
    return quoted if is_quoted else unquoted


def _split_quoted(path: Path, text: str, delimiter: str) -> _SplitText:
    """Split a text into rows as CSV, in which quotes hold cells together; omit empty rows.

    Args:
        path: The file, for messages.
        text: Its text.
        delimiter: The character between cells.

    Returns:
        The cells of each row, and the line in which each row begins.

    Raises:
        DataError: Quotes are not closed, or there is text beside a quoted cell.
    """
    quoted = _SplitText(rows=[], row_numbers=[])
    # A row may span several lines.
    first_line = 1
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for cells in reader:
            if cells:
                quoted.rows.append(cells)
                quoted.row_numbers.append(first_line)
            first_line = reader.line_num + 1
    except csv.Error as error:
        raise DataError(
            f"{path}: line {first_line}: not valid CSV: {as_one_line(error)}"
        ) from error
    return quoted


def _shows_quoting(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the cells of a text show that its quotes hold cells together.

    One of three things shows it: rows of different numbers of cells, or of one cell each; a quoted
    cell in which a quote is doubled; or a column of which all cells are quoted.

    Args:
        rows: The cells of each row, split at every delimiter, also within quotes.
    """

    def is_in_quotes(cell: str) -> bool:
        return len(cell) > 1 and cell[0] == cell[-1] == '"'

    # Whether all rows have the same number of cells, and more than one.
    if not _have_equal_widths(rows):
        return True
    if any(is_in_quotes(cell) and '""' in cell[1:-1] for cells in rows for cell in cells):
        return True
    return any(all(map(is_in_quotes, column)) for column in zip(*rows, strict=True))
