"""Sheets of Excel's workbooks as rows of text, read by openpyxl (extra ``excel``)."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.core.errors import DataError, translate_errors
from stsbench.core.files import chunks, limit_bytes


class Sheet(NamedTuple):
    """The rows of one sheet of a workbook, without empty rows and columns."""

    title: str
    n_sheets: int
    """The number of sheets of the workbook."""
    n_title_rows: int
    """The number of rows above the table that hold a single cell: left out."""
    rows: Sequence[Sequence[str]]
    """The cells of each row, all of the same number."""
    numbers: Sequence[int]
    """The number of each row in the sheet, counted from 1."""


def read_sheet(path: Path) -> Sheet:
    """Read the first sheet of a workbook that has at least two rows, of several columns if any has.

    Args:
        path: The workbook.

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
    # openpyxl raises errors of many types for a damaged workbook.
    with translate_errors(f"{path}: not a valid Excel file", DataError, max_length=150):
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            parts = chain.from_iterable(chunks(archive.open(name)) for name in names)
            for _ in limit_bytes(parts, path, where=str(path)):
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
        values_by_row: The values of each row; a row may lack values at its end.
    """
    cells_by_number: dict[int, list[str]] = {}
    for number, values in enumerate(values_by_row, 1):
        cells = list(map(_cell_text, values))
        if any(cells):
            cells_by_number[number] = cells
    widths = [sum(map(bool, cells)) for cells in cells_by_number.values()]
    n_title_rows = next((index for index, width in enumerate(widths) if width > 1), 0)
    numbers = list(cells_by_number)[n_title_rows:]
    columns = zip_longest(*(cells_by_number[number] for number in numbers), fillvalue="")
    rows = list(zip(*filter(any, columns), strict=True))
    return Sheet(title, n_sheets, n_title_rows, rows, numbers)


def _cell_text(value: Any) -> str:  # noqa: ANN401 - the values of a sheet have any type
    """Return a value as text; a date too, as which Excel may have understood a number."""
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value).strip()
