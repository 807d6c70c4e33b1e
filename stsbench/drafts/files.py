"""Tables by split: files of a folder by their names, one file alone, or one whose rows say which split they are of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from stsbench.data.readers.recognise import TABLE_FILES, FileLayout, read_table
from stsbench.data.readers.table import ColumnKey, TextTable, listed
from stsbench.drafts.columns import DataColumn, has_header
from stsbench.errors import DataError

SPLITS: Mapping[str, Sequence[str]] = {
    "train": ("train", "training", "tr"),
    "validation": ("validation", "valid", "val", "va", "dev", "devel", "development", "trial"),
    "test": ("test", "testing", "te"),
}
"""What splits are called in names of files and in columns, in lower case."""
WHOLE = ""
"""The split of what is in no split."""


@dataclass(frozen=True, kw_only=True)
class SplitTables:
    """The tables of a data set by split, wherever they come from; all have the same columns."""

    tables: Mapping[str, Sequence[TextTable]]
    named: bool
    """Whether the columns have names."""
    unsure: Sequence[str]
    """One line for each thing that is not sure."""
    column: ColumnKey | None = None
    """The column that tells the split of each row, where splits share a table."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What that column calls splits, of those that it calls otherwise."""

    def columns(self) -> list[DataColumn]:
        """The columns of all splits together; of rows that differ in length, those that all have."""
        # Splits may share a table.
        tables = list({table.path: table for part in self.tables.values() for table in part}.values())
        width = min(len(row) for table in tables for row in table.rows)
        keys: Sequence[ColumnKey] = tables[0].header[:width] if self.named else range(width)
        return [
            DataColumn(key, [row[at] or "" for table in tables for row in table.rows]) for at, key in enumerate(keys)
        ]


def find_tables(source: Path) -> SplitTables:
    """Read the tables of a file, or of a folder with files of splits.

    Raises:
        DataError: there are none, their splits are not clear, they differ in their columns, or one cannot be read.
    """
    if not source.exists():
        raise DataError(f"'{source}' does not exist; give a file, or a folder with train, dev or test files")
    files, unsure = _files_of(source) if source.is_dir() else ({WHOLE: [source]}, [])
    tables: dict[str, list[TextTable]] = {split: [_read(path) for path in paths] for split, paths in files.items()}
    every = [table for part in tables.values() for table in part]
    named = bool(every[0].header)
    for table in every:
        if list(table.header) != list(every[0].header):
            raise DataError(
                f"{table.path}: its columns ({listed(table.header) or 'not named'}) are not those of {every[0].path.name} "
                f"({listed(every[0].header) or 'not named'}); make them the same"
            )
        unsure += _odd_rows(table)
    if not named:
        unsure.append("no line that names the columns was found: the first line is data, columns are counted from 0")
    found = SplitTables(tables=tables, named=named, unsure=unsure)
    return _by_column(found) if list(tables) == [WHOLE] else found


def _files_of(folder: Path) -> tuple[dict[str, list[Path]], list[str]]:
    """The files of each split; and which tables of the folder are left out."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in TABLE_FILES and path.is_file())
    if not files:
        raise DataError(f"{folder}: has no table ({', '.join(TABLE_FILES)}); give a file, or the folder that has them")
    found: dict[str, list[Path]] = {}
    for path in files:
        words = set(re.split(r"[\W\d_]+", path.stem.casefold()))
        splits = [split for split, names in SPLITS.items() if words & {*names}]
        if len(splits) == 1:
            found.setdefault(splits[0], []).append(path)
    if not found and len(files) == 1:
        return {WHOLE: files}, []
    if not found:
        raise DataError(
            f"{folder}: none of its {len(files)} tables has train, dev or test in its name "
            f"({listed([path.name for path in files])}); give one file, or rename them"
        )
    for split, paths in found.items():
        if len({re.sub(r"\d+", "0", path.name) for path in paths}) > 1:
            names = listed([path.name for path in paths])
            raise DataError(f"{folder}: several files may be the split {split} ({names}); leave one in the folder")
    rest = [path.name for path in files if path not in chain.from_iterable(found.values())]
    told = [f"left out, for their names are of no split: {listed(rest)}"] if rest else []
    order = [split for split in SPLITS if split in found]
    return {split: found[split] for split in order}, told


def _read(path: Path) -> TextTable:
    table = read_table(path, FileLayout(), named=False)
    if not table.header and has_header([[cell or "" for cell in row] for row in table.rows]):
        table = read_table(path, FileLayout(), named=True)
    table.check_filled()
    return table


def _odd_rows(table: TextTable) -> list[str]:
    """What to tell of rows that are longer than the first, as STS-B's are; raises DataError where one is shorter."""
    width = len(table.header or table.rows[0])
    if short := [at for at, row in enumerate(table.rows) if len(row) < width]:
        raise DataError(f"{table.place(short[0])}: {len(table.rows[short[0]])} fields, expected {width}")
    try:
        table.check_even()
    except DataError as error:
        return [f"{error}: cells beyond the last column that all rows have are not read"]
    return []


def _by_column(found: SplitTables) -> SplitTables:
    """The splits that a column tells, where one does: whatever it is called, all that it holds are names of splits."""
    ((table,),) = found.tables.values()
    for column in found.columns():
        names = {
            value: split for split, known in SPLITS.items() for value in column.distinct if value.casefold() in known
        }
        if len(names) > 1 and {*names} == column.distinct and len({*names.values()}) == len(names):
            values = {split: value for value, split in names.items() if value != split}
            tables = {split: [table] for split in SPLITS if split in names.values()}
            return replace(found, tables=tables, column=column.key, values=values)
    return found
