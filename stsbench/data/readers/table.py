"""Tables of text, rows of cells with the numbers of their lines; their files; Excel's workbooks."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stsbench.core.errors import CardError, DataError, suggest, translate_errors
from stsbench.core.files import iter_chunks, limit_bytes

ColumnKey = str | int
"""A column by header name or by position."""
MAX_LISTED = 20
"""The maximum number of columns or rows that a message names."""
DELIMITERS = (",", ";", "|")
"""The possible delimiters of cells, beside a tab."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file on this machine, and its facts in the card."""

    path: Path
    subset: str = ""
    label: str = ""
    pinned: bool = False
    """Whether the card gives its sha256: irregularities that a reader accepts are the release's."""


@dataclass(frozen=True, kw_only=True)
class TextTable:
    """The cells of a file as text."""

    path: Path | str
    """The file, or the dataset's name for messages."""
    header: Sequence[str]
    """The names of the columns; empty if the file has none."""
    rows: Sequence[Sequence[str | None]]
    """The cells of each row; None for a cell that holds neither text nor a number."""
    row_numbers: Sequence[int]
    """The number of each row in the file."""
    unit: Literal["line", "row"] = "line"
    """The unit that ``row_numbers`` count."""
    delimiter: str = ""
    """The character or text between the cells of a text file; empty for other files."""
    reading: str = ""
    """The encoding of text that is not UTF-8, or the sheet of a workbook; otherwise empty."""

    def locate_row(self, row: int) -> str:
        """Return the file and the line of a row, for a message; ``row`` is its position."""
        return f"{self.path}: {self.unit} {self.row_numbers[row]}"

    def column(self, key: ColumnKey) -> list[str]:
        """Return the cells of one column as text.

        Args:
            key: The name of the column in the header, or its position, from 0.

        Raises:
            CardError: The position is negative.
            DataError: The column, or one of its cells, is missing.
        """
        position = self.column_position(key)
        column_cells = []
        for row, row_cells in enumerate(self.rows):
            if position >= len(row_cells):
                raise DataError(
                    f"{self.locate_row(row)}: {len(row_cells)} columns, column {key!r} is missing"
                )
            cell = row_cells[position]
            if cell is None:
                raise DataError(
                    f"{self.locate_row(row)}: column {key!r} holds neither text nor a number"
                )
            column_cells.append(cell)
        return column_cells

    def describe_rows(self, notes: Mapping[int, str]) -> str:
        """Return a message with notes on rows, such as ``a.csv: line 3: 2 fields``.

        It has the first ``MAX_LISTED`` notes, and the number of the others.

        Args:
            notes: Position of a row -> note. For people, ``self.row_numbers`` has the number of
                each row in the file.
        """
        note_texts = [
            f"{self.unit} {self.row_numbers[row]}: {note}"
            for row, note in islice(notes.items(), MAX_LISTED)
        ]
        n_more = len(notes) - MAX_LISTED
        more = f" and {n_more:,} more" if n_more > 0 else ""
        return f"{self.path}: {', '.join(note_texts)}{more}"

    @property
    def width(self) -> int:
        """The number of fields of the header, or of the first row if there is no header."""
        return len(self.header or self.rows[0])

    def uneven_rows(self) -> dict[int, int]:
        """Return the number of fields, by position, of rows that are not as long as the header."""
        return {row: len(cells) for row, cells in enumerate(self.rows) if len(cells) != self.width}

    def describe_uneven_rows(self, *, with_longer: bool) -> str:
        """Return a message on the rows with more or fewer fields than the header.

        Without a header, the first row takes its place; ``self.width`` is its number of fields.

        Args:
            with_longer: Let rows of tab-separated text without a header be longer: STS-B as
                released has two fields more at the end of some rows.

        Returns:
            The message, or an empty string if there are no such rows.
        """
        may_be_longer = with_longer and self.delimiter == "\t" and not self.header
        # Position of a row -> its number of fields.
        width_by_row = self.uneven_rows()
        if may_be_longer:
            width_by_row = {row: width for row, width in width_by_row.items() if width < self.width}
        if not width_by_row:
            return ""
        notes = {row: f"{width} fields" for row, width in width_by_row.items()}
        message = f"{self.describe_rows(notes)}, expected {self.width}"
        # DELIMITERS are comma, semicolon and bar; there is no such advice for tabs.
        if max(width_by_row.values()) > self.width and self.delimiter in DELIMITERS:
            message += f"; put a cell that holds '{self.delimiter}' in double quotes"
        return message

    def check_row_lengths(self, *, with_longer: bool = False) -> None:
        """Check that all rows have as many fields as the header, or else as the first row.

        Args:
            with_longer: Accept longer rows of tab-separated text without a header.

        Raises:
            DataError: A row is longer or shorter.
        """
        message = self.describe_uneven_rows(with_longer=with_longer)
        if message:
            raise DataError(message)

    def column_position(self, key: ColumnKey) -> int:
        """Return the position of a column, from 0.

        Args:
            key: The name of the column in the header, or its position, which is returned as it is,
                also if no column has it.

        Raises:
            CardError: The position is negative.
            DataError: No column, or more than one, has this name.
        """
        if isinstance(key, int):
            if key < 0:
                raise CardError(f"{self.path}: column {key}: columns are counted from 0")
            return key
        return column_position(self.header, key, where=str(self.path))


def column_position(header: Sequence[str], name: str, *, where: str) -> int:
    """Return the position of the only column with a name, from 0.

    Args:
        header: The names of all columns.
        name: The name of the column.
        where: What messages of errors begin with, such as the path of the file.

    Raises:
        DataError: No column, or more than one, has this name.
    """
    n_columns = list(header).count(name)
    if n_columns > 1:
        raise DataError(
            f"{where}: {n_columns} columns are called '{name}'; give its position, or rename one"
        )
    if not n_columns:
        suggestion = suggest(name, header[:MAX_LISTED])
        columns = format_names(header) or "no names"
        raise DataError(f"{where}: no column '{name}' (has {columns}){suggestion}")
    return list(header).index(name)


def format_names(columns: Sequence[str]) -> str:
    """Return names of columns for a message, the first ones alone if there are very many."""
    return ", ".join(columns[:MAX_LISTED])[:300] + (", …" if len(columns) > MAX_LISTED else "")


class FileLayout(NamedTuple):
    """The layout of a text file in its card; what is None is found in the file."""

    delimiter: str | None = None
    header: bool | None = None
    """Whether the first row holds the names of the columns."""
    quoting: bool | None = None
    """Whether quotes hold cells together."""
    fields: int | None = None
    """The number of fields to cut each line into; the last one keeps its delimiters."""


class Sheet(NamedTuple):
    """The rows of one sheet of a workbook, without empty rows and columns."""

    title: str
    n_sheets: int
    """The number of sheets of the workbook."""
    n_title_rows: int
    """The number of rows above the table that hold a single cell: left out."""
    rows: Sequence[Sequence[str]]
    """The cells of each row, all of the same number."""
    row_numbers: Sequence[int]
    """The number of each row in the sheet, counted from 1."""


def read_sheet(path: Path) -> Sheet:
    """Read the sheet of an Excel workbook that holds its table.

    It is the first sheet with at least two rows and at least two columns. If there is none, it is
    the first one with at least two rows.

    Args:
        path: The workbook.

    Returns:
        The rows of the sheet as texts, without titles and without empty rows and columns.

    Raises:
        DataError: openpyxl is not installed, or the workbook is damaged or has no such sheet.
        SourceError: The workbook unpacks to far more than its size.
    """
    try:
        import openpyxl
    except ImportError as error:
        raise DataError(
            f"{path}: Excel files need openpyxl; run: pip install 'stsbench[excel]', "
            "or save it as CSV in UTF-8"
        ) from error
    # openpyxl raises errors of many types for a damaged workbook: all become a DataError, but for
    # the SourceError below.
    with translate_errors(f"{path}: not a valid Excel file", DataError, max_length=150):
        # The workbook is a zip archive. limit_bytes() counts the bytes that it unpacks to, and
        # raises the SourceError beyond 2 GiB or 100 times its size, whichever is larger.
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            unpacked_chunks = chain.from_iterable(iter_chunks(archive.open(name)) for name in names)
            for _ in limit_bytes(unpacked_chunks, path, where=str(path)):
                pass
        # Formulas count by the values that Excel has stored.
        workbook = openpyxl.load_workbook(path, read_only=True, data_only=True)
        n_sheets = len(workbook.worksheets)
        # A sheet with one column may be remarks on the table of another sheet.
        narrow_sheets: list[Sheet] = []
        for worksheet in workbook.worksheets:
            sheet = _fill_rows(worksheet.title, n_sheets, worksheet.iter_rows(values_only=True))
            if len(sheet.rows) > 1:
                if len(sheet.rows[0]) > 1:
                    return sheet
                narrow_sheets.append(sheet)
    if narrow_sheets:
        return narrow_sheets[0]
    raise DataError(f"{path}: no sheet has rows below a header")


def _fill_rows(title: str, n_sheets: int, values_by_row: Any) -> Sheet:  # noqa: ANN401 - openpyxl
    """Return the rows of a sheet as text, without titles and without empty rows and columns.

    Titles are the first rows with a single cell, if the row below them has several.

    Args:
        title: The name of the sheet.
        n_sheets: The number of sheets of the workbook.
        values_by_row: The values of each row, None for an empty cell, which becomes an empty text;
            a row may lack values at its end.

    Returns:
        The rows, all of the same number of cells, with their numbers in the sheet, from 1.
    """
    # Only rows with text.
    cells_by_row_number: dict[int, list[str]] = {}
    for row_number, values in enumerate(values_by_row, 1):
        cells = list(map(_cell_text, values))
        if any(cells):
            cells_by_row_number[row_number] = cells
    filled_cells_by_row = [sum(map(bool, cells)) for cells in cells_by_row_number.values()]
    n_title_rows = next((index for index, n in enumerate(filled_cells_by_row) if n > 1), 0)
    row_numbers = list(cells_by_row_number)[n_title_rows:]
    table_rows = [cells_by_row_number[row_number] for row_number in row_numbers]
    columns = zip_longest(*table_rows, fillvalue="")
    filled_columns = filter(any, columns)
    rows = list(zip(*filled_columns, strict=True))
    return Sheet(title, n_sheets, n_title_rows, rows, row_numbers)


def _cell_text(value: Any) -> str:  # noqa: ANN401 - the values of a sheet have any type
    """Return a value as text; a date too, as which Excel may have understood a number."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value).strip()
