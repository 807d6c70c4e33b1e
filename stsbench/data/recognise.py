"""Which column of a table is which: by names where they say it, else by what the columns hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

from stsbench.core.errors import CardError, DataError
from stsbench.data.readers.sentences import (
    GOLD,
    LABELS,
    NO_GOLD,
    PAIRS,
    SENTENCES,
    Roles,
    columns_called,
    find_sentences,
    plain_name,
)
from stsbench.data.readers.table import DECIMAL_COMMA, TABLE_FILES, ColumnKey, FileLayout, TextTable, listed, read_table

NAMES = {*GOLD, *LABELS, *SENTENCES, *(name for pair in PAIRS for name in pair), "id", "split", "subset"}
MOST_CLASSES, MOST_WORDS = 50, 4
"""More classes, or longer names of them, are only taken where a column is called so."""
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class DataColumn:
    """A column's name or position, and its cells."""

    key: ColumnKey
    cells: Sequence[str]

    @cached_property
    def distinct(self) -> frozenset[str]:
        """What it holds, each once."""
        return frozenset(cell.strip() for cell in self.cells)

    @cached_property
    def is_number(self) -> bool:
        """Whether it holds numbers; a decimal comma counts, which the reader then refuses, and so do gaps."""
        filled = [cell for cell in self.distinct if cell]
        return bool(filled) and all(_NUMBER.fullmatch(cell) or DECIMAL_COMMA.fullmatch(cell) for cell in filled)

    @cached_property
    def has_fractions(self) -> bool:
        """Whether one of its numbers is written with a decimal sign."""
        return self.is_number and any(re.search("[.,]", cell) for cell in self.distinct)

    @cached_property
    def words(self) -> float:
        """Words a cell, on average."""
        return sum(len(cell.split()) for cell in self.cells) / max(len(self.cells), 1)

    @property
    def is_id(self) -> bool:
        """Whether it numbers the rows, or is called so."""
        name = plain_name(self.key) if isinstance(self.key, str) else ""
        if name.endswith("id") or name in ("index", "idx", "unnamed0", "row", "n", "no", "number"):
            return True
        return (
            len(self.cells) > 2 and not self.has_fractions and self.is_number and len(self.distinct) == len(self.cells)
        )

    @property
    def is_labels(self) -> bool:
        """Whether it holds few short texts or whole numbers, again and again."""
        few = 2 <= len(self.distinct) <= min(MOST_CLASSES, max(2, len(self.cells) // 2), len(self.cells) - 1)
        # A column with gaps is a remark on some rows.
        return few and all(self.distinct) and not self.has_fractions and self.words <= MOST_WORDS


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of these rows names the columns of the others."""
    first, rest = [cell.strip() for cell in rows[0]], rows[1:]
    if not any(first) or any(map(_NUMBER.fullmatch, first)):
        return False
    if not rest:
        return any(plain_name(cell) in NAMES for cell in first)
    columns = [DataColumn(at, cells) for at, cells in enumerate(zip(*rest, strict=False))]
    pairs = list(zip(columns, first, strict=False))
    if any(cell in column.distinct for column, cell in pairs if cell):
        return False
    # pandas writes the numbers of rows below no name.
    return any(column.is_number or (cell and (plain_name(cell) in NAMES or column.is_labels)) for column, cell in pairs)


def decide(columns: Sequence[DataColumn], given: Mapping[str, ColumnKey], *, where: str) -> tuple[Roles, Sequence[str]]:
    """Decide which columns hold the sentences and what is scored, with a line for each that is unsure.

    Those ``given`` by what they hold are not doubted.

    Raises:
        DataError, CardError: nothing fits; says what can be given.
    """
    header = [column.key for column in columns if isinstance(column.key, str)]
    unsure: list[str] = []
    try:
        sentences = find_sentences(header, given, where=where)
    except CardError:
        if {"sentence1", "sentence2"} & {*given}:
            raise
        sentences = _sentences_by_content(columns, {*given.values()}, where, unsure)
    others = [column for column in columns if column.key not in sentences and column.cells]
    if "gold" in given and len(sentences) == 1:
        raise CardError(f"{where}: {NO_GOLD}")
    target = given.get("gold", given.get("label"))
    if target is not None:
        return Roles(sentences, target, is_gold="gold" in given), unsure
    named = columns_called(header, (*GOLD, *LABELS) if len(sentences) == 2 else LABELS)
    likely = [column for column in others if column.key in named and (column.is_number or column.words <= MOST_WORDS)]
    best = likely or _best_targets([column for column in others if not column.is_id], len(sentences))
    chosen = next(iter(_best_targets(likely, len(sentences)) or best), None)
    if chosen is None:
        raise DataError(
            f"{where}: no column holds scores or labels (has {_keys(columns)}); "
            "name it with --columns gold=NAME or --columns label=NAME"
        )
    if len(best) > 1:
        unsure.append(
            f"columns {listed([repr(one.key) for one in best])} may be what is scored: {chosen.key!r} is taken"
        )
    elif not likely and not chosen.is_number:
        unsure.append(f"column {chosen.key!r} is taken for what is scored, by what it holds")
    is_gold = len(sentences) == 2 and _are_scores(chosen, unsure)
    return Roles(sentences, chosen.key, is_gold=is_gold), unsure


def _sentences_by_content(
    columns: Sequence[DataColumn], taken: set[ColumnKey], where: str, unsure: list[str]
) -> tuple[ColumnKey, ...]:
    texts = [column for column in columns if not (column.is_number or column.is_labels or column.key in taken)]
    texts = [column for column in texts if column.words >= 2] or [
        column for column in texts if column.words and not column.is_id
    ]
    if not texts:
        raise DataError(
            f"{where}: no column holds sentences (has {_keys(columns)}); name them with "
            "--columns sentence1=NAME,sentence2=NAME or --columns sentence=NAME"
        )
    longest = sorted(texts, key=lambda column: column.words, reverse=True)[:2]
    keys = tuple(column.key for column in columns if column in longest)
    more, many = f" of the {len(texts)} columns of text" if len(texts) > 2 else "", "s" if len(keys) > 1 else ""
    unsure.append(f"column{many} {listed(list(map(repr, keys)))}{more}: taken for the sentence{many}")
    return keys


def _best_targets(columns: Sequence[DataColumn], sentences: int) -> list[DataColumn]:
    """What may be scored, the best first: of a pair rather fractions than whole numbers, and numbers than labels."""
    labels = [column for column in columns if column.is_labels]
    if sentences == 2 and (numbers := [column for column in columns if column.is_number]):
        return sorted(numbers, key=lambda column: not column.has_fractions)
    return [column for column in labels if not column.is_number] or labels


def _are_scores(column: DataColumn, unsure: list[str]) -> bool:
    if not column.is_number or column.has_fractions:
        return column.is_number
    name, few = plain_name(str(column.key)), len(column.distinct)
    if name in LABELS:
        return few > MOST_CLASSES
    if few <= 2 and name not in GOLD:
        return False
    if few <= MOST_CLASSES and (few <= 2 or name not in GOLD):
        unsure.append(f"column {column.key!r} holds only whole numbers: taken for scores, they may be classes")
    return True


def _keys(columns: Sequence[DataColumn]) -> str:
    return listed([str(column.key) for column in columns])


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
    """The column that says the split of each row, where splits share a table."""
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
    """Read the tables of a file, or of a folder with files of splits; raises DataError."""
    if not source.exists():
        raise DataError(f"'{source}' does not exist; give a file, or a folder with train, dev or test files")
    files, unsure = _files_of(source) if source.is_dir() else ({WHOLE: [source]}, [])
    tables: dict[str, list[TextTable]] = {split: [_read(path) for path in paths] for split, paths in files.items()}
    every = [table for part in tables.values() for table in part]
    named = bool(every[0].header)
    for table in every:
        if list(table.header) != list(every[0].header):
            raise DataError(
                f"{table.path}: its columns ({listed(table.header) or 'not named'}) are not those of {Path(every[0].path).name} "
                f"({listed(every[0].header) or 'not named'}); make them the same"
            )
        # Rows that are longer than the first, as STS-B's are, and any that are shorter.
        width = len(table.header or table.rows[0])
        odd = sorted((len(row) > width, at) for at, row in enumerate(table.rows) if len(row) != width)
        for longer, at in odd[:1]:
            line = f"{table.place(at)}: {len(table.rows[at])} fields, expected {width}"
            if not longer:
                raise DataError(line)
            unsure.append(f"{line}: cells beyond the last column that all rows have are not read")
    if not named:
        unsure.append("no line that names the columns was found: the first line is data, columns are counted from 0")
    found = SplitTables(tables=tables, named=named, unsure=unsure)
    return _by_column(found) if list(tables) == [WHOLE] else found


def splits_named(name: str) -> list[str]:
    """The splits whose names are words of this one."""
    words = set(re.split(r"[\W\d_]+", name.casefold()))
    return [split for split, names in SPLITS.items() if words & {*names}]


def _files_of(folder: Path) -> tuple[dict[str, list[Path]], list[str]]:
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in TABLE_FILES and path.is_file())
    if not files:
        raise DataError(f"{folder}: has no table ({', '.join(TABLE_FILES)}); give a file, or the folder that has them")
    found: dict[str, list[Path]] = {}
    for path in files:
        if len(splits := splits_named(path.stem)) == 1:
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
    return {split: found[split] for split in SPLITS if split in found}, left_out(rest)


def left_out(names: Sequence[str]) -> list[str]:
    """What to say of files, or of splits on the Hub, whose names say no split of ours."""
    return [f"left out, for their names are of no split: {listed(names)}"] if names else []


def _read(path: Path) -> TextTable:
    table = read_table(path, FileLayout(), named=False)
    if not table.header and has_header([[cell or "" for cell in row] for row in table.rows]):
        table = read_table(path, FileLayout(), named=True)
    return table


def _by_column(found: SplitTables) -> SplitTables:
    """The splits that a column names, where one does: whatever it is called, all that it holds are names of splits."""
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
