"""Tables of text: rows and columns of a delimited file, of lines of JSON or of parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from stsbench.errors import CardError, DataError, did_you_mean

ColumnKey = str | int
"""A column by header name or by position."""
LISTED = 20
"""So many columns of a file are named in a message."""


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
            raise DataError(
                f"{self.path}: no column '{key}' (has {listed(self.header) or 'no names'}){did_you_mean(key, self.header[:LISTED])}"
            )
        return list(self.header).index(key)


def listed(columns: Sequence[str]) -> str:
    """Names of columns as a message tells them: not all of very many."""
    return ", ".join(columns[:LISTED])[:300] + (", …" if len(columns) > LISTED else "")


def needs_header(*columns: ColumnKey | None) -> bool:
    """Whether one of these columns is asked for by its name."""
    return any(isinstance(key, str) for key in columns)


def rows_of_split(
    table: TextTable, column: ColumnKey | None, split: str, values: Mapping[str, str] | None = None
) -> Sequence[int]:
    """The positions of a split's rows: all of them where no column tells splits apart.

    Args:
        table: rows of one split or of several.
        column: what tells of each row which split it is of.
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
