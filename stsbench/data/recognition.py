"""Recognises the splits, the header and the roles of columns in a user's tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from stsbench.core.errors import CardError, DataError
from stsbench.data.readers.columns import (
    GOLD_NAMES,
    LABEL_NAMES,
    USUAL_NAMES,
    ColumnRoles,
    columns_called,
    find_sentences,
    plain_name,
)
from stsbench.data.readers.files import TABLE_SUFFIXES, read_table
from stsbench.data.readers.table import ColumnKey, TextTable, format_names
from stsbench.data.readers.text import DECIMAL_COMMA

MAX_CLASSES = 50
"""A column with more distinct values has labels only if it is called so."""
MAX_LABEL_WORDS = 4
"""A column with longer values, on average, has labels only if it is called so."""
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class DataColumn:
    """A column of a user's tables."""

    key: ColumnKey
    """Its name or position."""
    cells: Sequence[str]

    @cached_property
    def distinct_cells(self) -> frozenset[str]:
        """Its cells, each once."""
        return frozenset(cell.strip() for cell in self.cells)

    @cached_property
    def non_numbers(self) -> frozenset[str]:
        """The distinct cells of the column that are neither empty nor numbers.

        A number with a decimal comma counts as a number here; ``NA`` does not.
        """
        numbers = {
            cell
            for cell in self.distinct_cells
            if _NUMBER.fullmatch(cell) or DECIMAL_COMMA.fullmatch(cell)
        }
        return self.distinct_cells - numbers - {""}

    @cached_property
    def is_number(self) -> bool:
        """Whether more than half of the cells that are not empty are numbers."""
        filled_cells = [cell.strip() for cell in self.cells if cell.strip()]
        n_numbers = sum(cell not in self.non_numbers for cell in filled_cells)
        return 2 * n_numbers > len(filled_cells)

    @cached_property
    def has_fractions(self) -> bool:
        """Whether one of its numbers is written with a decimal point or comma."""
        numbers = self.distinct_cells - self.non_numbers
        return self.is_number and any(re.search("[.,]", cell) for cell in numbers)

    @cached_property
    def mean_words(self) -> float:
        """The mean number of words in a cell."""
        return sum(len(cell.split()) for cell in self.cells) / max(len(self.cells), 1)

    @property
    def is_text(self) -> bool:
        """Whether it holds sentences: texts of two words or more on average, no labels."""
        return self.mean_words >= 2 and not (self.is_number or self.is_labels)

    @property
    def is_id(self) -> bool:
        """Whether the column identifies the rows.

        It does if its name says so, such as ``pair_ID`` or ``index``, or if it has another whole
        number in each row.
        """
        # In lower case, without blanks and signs; a column without a header has its position.
        name = plain_name(self.key) if isinstance(self.key, str) else ""
        if name.endswith("id") or name in ("index", "idx", "unnamed0", "row", "n", "no", "number"):
            return True
        n_cells = len(self.cells)
        # In one or two rows it may be by chance that all cells differ.
        has_distinct_cells = n_cells > 2 and n_cells == len(self.distinct_cells)
        return self.is_number and not self.has_fractions and has_distinct_cells

    @property
    def is_labels(self) -> bool:
        """Whether the column looks like labels: few short texts or whole numbers, each repeatedly.

        It has two or more distinct cells, at most ``MAX_CLASSES`` (50) and half as many as rows.
        No cell is empty, numbers are whole, and cells have at most four words on average.
        """
        n_cells = len(self.cells)
        # In a column of three cells, two classes are enough if one of them is repeated.
        max_repeated_classes = max(2, n_cells // 2)
        max_classes = min(MAX_CLASSES, max_repeated_classes, n_cells - 1)
        if not 2 <= len(self.distinct_cells) <= max_classes:
            return False
        # A column with empty cells is of remarks on some rows.
        has_empty_cells = "" in self.distinct_cells
        if has_empty_cells or self.has_fractions:
            return False
        return self.mean_words <= MAX_LABEL_WORDS


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Return whether the first row of a table is a header: it names the columns of the others.

    It is one if none of its cells is a number or occurs in its own column below, and if besides one
    column is of numbers, or of labels, or has a usual name: ``score``, ``id``. A single row is one
    if it has a usual name.

    Args:
        rows: The cells of each row, at least one row.
    """
    # The names, if it is a header.
    names = [cell.strip() for cell in rows[0]]
    if not any(names) or any(map(_NUMBER.fullmatch, names)):
        return False
    if len(rows) == 1:
        return any(plain_name(name) in USUAL_NAMES for name in names)
    columns = list(map(DataColumn, names, zip(*rows[1:], strict=False)))
    # The name of a column is not one of its cells; a cell of a first row of data may occur again.
    if any(column.key in column.distinct_cells for column in columns if column.key):
        return False
    for column in columns:
        # pandas writes the numbers of rows below an empty name.
        if column.is_number:
            return True
        name = str(column.key)
        if name and (plain_name(name) in USUAL_NAMES or column.is_labels):
            return True
    return False


class RecognisedRoles(NamedTuple):
    """The roles of columns, and what is unsure in them."""

    roles: ColumnRoles
    doubts: Sequence[str]
    """What is unsure, one line each."""


class RecognisedSentences(NamedTuple):
    """The columns of one or two sentences, and what is unsure in them."""

    keys: tuple[ColumnKey, ...]
    doubts: list[str]
    """What is unsure, one line each."""


def recognise_sentences(
    columns: Sequence[DataColumn], column_by_role: Mapping[str, ColumnKey], *, where: str
) -> RecognisedSentences:
    """Find the column of single sentences, or the two of pairs.

    * Columns that the user gives, or that have usual names, count first.
    * One usual name does not suffice if the user gives a column of gold scores: these are of pairs.
    * Else the columns with the longest texts are chosen.

    Args:
        columns: All columns.
        column_by_role: Columns that the user has given, as names or positions, by role:
            ``sentence``, ``sentence1``, ``sentence2``, ``gold``, ``label``.
        where: What messages of errors begin with, such as the path of the file.

    Returns:
        The name or position of each column, and what is unsure in the choice, one line each.

    Raises:
        CardError: The given columns contradict each other.
        DataError: No column holds text.
    """
    header = [column.key for column in columns if isinstance(column.key, str)]
    try:
        keys = find_sentences(header, column_by_role, where=where)
    except CardError:
        # A user who names one sentence of a pair must name the other. Otherwise no columns have
        # usual names of sentences, or too many, and texts decide below.
        if "sentence1" in column_by_role or "sentence2" in column_by_role:
            raise
    else:
        other_texts = [
            repr(column.key)
            for column in columns
            if column.key not in (*keys, *column_by_role.values()) and column.is_text
        ]
        if len(keys) == 2 or "sentence" in column_by_role or not other_texts:
            return RecognisedSentences(keys, doubts=[])
        if "gold" not in column_by_role:
            names = format_names(other_texts)
            doubt = f"column {keys[0]!r}: taken for the sentence, {names} for other text"
            return RecognisedSentences(keys, [doubt])
    return _choose_sentences(columns, {*column_by_role.values()}, where)


def choose_roles(
    columns: Sequence[DataColumn],
    column_by_role: Mapping[str, ColumnKey],
    *,
    where: str,
    labels: bool = False,
) -> RecognisedRoles:
    """Choose the columns of the sentences, and that of the target: a gold score or a label.

    Args:
        columns: All columns.
        column_by_role: Columns that the user has given, as names or positions, by role; they are
            not doubted.
        where: What messages of errors begin with, such as the path of the file.
        labels: Whether the target is a label, whatever it looks like.

    Returns:
        The columns, with whether the target is a gold score, and what is unsure in the choice, one
        line each.

    Raises:
        CardError: The given columns contradict each other.
        DataError: No column fits a role; the message names the parameter that gives one.
    """
    header = [column.key for column in columns if isinstance(column.key, str)]
    sentence_keys, doubts = recognise_sentences(columns, column_by_role, where=where)
    is_pair = len(sentence_keys) == 2
    if "gold" in column_by_role and not is_pair:
        raise CardError(
            f"{where}: a score is of two sentences, but only {sentence_keys[0]!r} holds any; "
            "name both with `columns=sentence1=NAME,sentence2=NAME`, or the values as a label"
        )
    given_target = column_by_role.get("gold", column_by_role.get("label"))
    if given_target is not None:
        roles = ColumnRoles(sentence_keys, given_target, is_gold="gold" in column_by_role)
        return RecognisedRoles(roles, doubts)
    # Tables have rows here, so that no column is without cells.
    candidates = [column for column in columns if column.key not in sentence_keys and column.cells]
    # A gold score is the similarity of two sentences.
    may_be_gold = is_pair and not labels
    usual_names = (*GOLD_NAMES, *LABEL_NAMES) if is_pair else LABEL_NAMES
    target = _choose_target(
        candidates,
        columns_called(header, names=usual_names),
        doubts,
        numbers_first=may_be_gold,
    )
    if target is None:
        # A single sentence, found by its usual name, may be one of a pair.
        needed = "a score (how similar people find the two sentences, on any scale) or a label"
        if candidates:
            names = format_names([str(column.key) for column in columns])
            raise DataError(
                f"{where}: no column holds {needed} (has {names}); "
                "name it with `columns=gold=NAME` or `columns=label=NAME`, or add one"
            )
        # Nobody has to type the position of a column here, so that it is counted from 1.
        names = " and ".join(
            f"column {key + 1}" if isinstance(key, int) else repr(key) for key in sentence_keys
        )
        raise DataError(f"{where}: a column with {needed} is needed beside {names}; add one")
    is_gold = may_be_gold and _is_score_column(target, doubts)
    return RecognisedRoles(ColumnRoles(sentence_keys, target.key, is_gold=is_gold), doubts)


def _choose_target(
    candidates: Sequence[DataColumn],
    target_names: Sequence[str],
    doubts: list[str],
    *,
    numbers_first: bool,
) -> DataColumn | None:
    """Choose the column of the target, a score or a label.

    Columns with a usual name, such as ``score`` or ``label``, count first; if there are none, those
    whose cells look like scores or labels.

    Args:
        candidates: The columns that hold no sentences.
        target_names: The names of those columns that have a usual name of scores or labels.
        doubts: A list to which a line is added if the choice is unsure.
        numbers_first: Prefer numbers to labels.

    Returns:
        The column; None if none fits.
    """
    named_columns = [
        column
        for column in candidates
        if column.key in target_names and (column.is_number or column.mean_words <= MAX_LABEL_WORDS)
    ]
    columns_but_ids = [column for column in candidates if not column.is_id]
    # Columns without a usual name count only if no column has one.
    alternatives = named_columns or _rank_targets(columns_but_ids, numbers_first=numbers_first)
    # Named columns may hold neither numbers nor labels; then the first of them is chosen.
    ranked = _rank_targets(named_columns, numbers_first=numbers_first) or alternatives
    if not ranked:
        return None
    target = ranked[0]
    if len(alternatives) > 1:
        names = format_names([repr(column.key) for column in alternatives])
        doubts.append(f"columns {names} may be what is scored: {target.key!r} is taken")
    elif not named_columns and not target.is_number:
        doubts.append(f"column {target.key!r} is taken for what is scored, by what it holds")
    return target


def _choose_sentences(
    columns: Sequence[DataColumn], excluded: set[ColumnKey], where: str
) -> RecognisedSentences:
    """Choose the one or two columns with the longest texts as those of the sentences.

    Columns of a single word a cell are chosen only if none has longer texts.

    Args:
        columns: All columns.
        excluded: The names or positions of columns that are not of sentences.
        where: What messages of errors begin with, such as the path of the file.

    Returns:
        The names or positions of one or two columns, in the order of the table, and a line on the
        choice.

    Raises:
        DataError: No column holds text.
    """
    possible_columns = [
        column
        for column in columns
        if not (column.is_number or column.is_labels or column.key in excluded)
    ]
    # Columns whose cells have two words or more on average.
    text_columns = [column for column in possible_columns if column.is_text] or [
        column for column in possible_columns if column.mean_words and not column.is_id
    ]
    if not text_columns:
        names = format_names([str(column.key) for column in columns])
        raise DataError(
            f"{where}: no column holds sentences (has {names}); name them with "
            "`columns=sentence1=NAME,sentence2=NAME` or `columns=sentence=NAME`"
        )
    longest = sorted(text_columns, key=lambda column: column.mean_words, reverse=True)[:2]
    keys = tuple(column.key for column in columns if column in longest)
    n_texts = len(text_columns)
    origin = f" of the {n_texts} columns of text" if n_texts > 2 else ""
    plural = "s" if len(keys) > 1 else ""
    names = format_names(list(map(repr, keys)))
    doubt = f"column{plural} {names}{origin}: taken for the sentence{plural}"
    return RecognisedSentences(keys, [doubt])


def _rank_targets(columns: Sequence[DataColumn], *, numbers_first: bool) -> list[DataColumn]:
    """Return those columns whose cells look like scores or labels, the best first.

    * If numbers come first and there are columns of numbers, only these are returned, columns with
      fractions before columns of whole numbers.
    * Else they are the columns that look like labels. Those of numbers are returned only if no
      others look so.

    Args:
        columns: The columns to choose from.
        numbers_first: Whether columns of numbers come first.
    """
    numbers = [column for column in columns if column.is_number]
    if numbers_first and numbers:
        return sorted(numbers, key=lambda column: not column.has_fractions)
    labels = [column for column in columns if column.is_labels]
    return [column for column in labels if not column.is_number] or labels


def _is_score_column(column: DataColumn, doubts: list[str]) -> bool:
    """Return whether the targets of pairs are scores, or else labels.

    * They are labels unless most are numbers. Numbers with a decimal point or comma are scores.
    * Whole numbers in a column that is called like labels are scores only if more than
      ``MAX_CLASSES`` (50) distinct ones are in it.
    * Two distinct whole numbers, or one, are labels, unless the column is called like scores.
    * All other whole numbers are scores.

    Args:
        column: The column of the targets.
        doubts: A list to which a line is added if the answer is unsure.
    """
    if not column.is_number:
        return False
    if column.has_fractions:
        return True
    name = plain_name(str(column.key))
    n_distinct = len(column.distinct_cells)
    if name in LABEL_NAMES:
        return n_distinct > MAX_CLASSES
    is_called_score = name in GOLD_NAMES
    if n_distinct <= 2 and not is_called_score:
        return False
    # Two values, or more in a column that is not called like scores, are few enough for classes.
    may_be_classes = n_distinct <= 2 if is_called_score else n_distinct <= MAX_CLASSES
    if may_be_classes:
        doubts.append(
            f"column {column.key!r} holds only whole numbers: taken for scores, they may be classes"
        )
    return True


SPLIT_NAMES: Mapping[str, Sequence[str]] = {
    "train": ("train", "training", "tr"),
    "validation": ("validation", "valid", "val", "va", "dev", "devel", "development", "trial"),
    "test": ("test", "testing", "te"),
}
"""The names of splits in file names and in columns, in lower case."""
NO_SPLIT = ""
"""The key of tables that are not divided into splits."""


@dataclass(frozen=True, kw_only=True)
class SplitTables:
    """The tables of a dataset by split, from files or the Hub; all have the same columns."""

    tables: Mapping[str, Sequence[TextTable]]
    doubts: Sequence[str]
    """What is unsure, one line each."""
    split_column: ColumnKey | None = None
    """The column with the split of each row, if splits share a table; else None."""
    value_by_split: Mapping[str, str] = field(default_factory=dict)
    """The name of each split in that column or on the Hub; one that is ours may be absent."""

    def distinct_tables(self) -> list[TextTable]:
        """Return the tables of all splits, one that splits share once."""
        tables = chain.from_iterable(self.tables.values())
        return list({table.path: table for table in tables}.values())

    def columns(self) -> list[DataColumn]:
        """Return the columns of all splits together.

        A column has its name as ``key``, or its position if the tables have no header. A cell that
        is None, as it holds neither text nor a number, becomes an empty text. If rows differ in
        length, only the columns that all rows have are returned.
        """
        tables = self.distinct_tables()
        rows = [row for table in tables for row in table.rows]
        # Further cells are not read; find_tables() has told the user so.
        n_columns = min(map(len, rows))
        keys: Sequence[ColumnKey] = tables[0].header[:n_columns] or range(n_columns)
        return [
            DataColumn(key, [row[position] or "" for row in rows])
            for position, key in enumerate(keys)
        ]


class SplitFiles(NamedTuple):
    """The files of each split, and what is unsure."""

    paths: Mapping[str, Sequence[Path]]
    doubts: list[str]


def find_tables(source: Path) -> SplitTables:
    """Read a table and divide it into splits, or read the table of each split in a folder.

    Args:
        source: A file, or a folder whose files have names such as train, dev and test.

    Returns:
        The tables of each split; they may be one table, with a column that has the split of each
        row. And what is unsure in them, one line each.

    Raises:
        DataError: There is no such file or folder, its files are not clearly of splits, or a table
            is broken or differs from the others.
    """
    if not source.exists():
        raise DataError(
            f"'{source}' does not exist; give a file, or a folder with train, dev or test files"
        )
    if source.is_dir():
        files = _find_split_files(source)
    else:
        files = SplitFiles({NO_SPLIT: [source]}, doubts=[])
    tables_by_split = {
        split: [_read_guessed_table(path) for path in paths] for split, paths in files.paths.items()
    }
    tables = list(chain.from_iterable(tables_by_split.values()))
    # Rows that are longer are accepted in tab-separated text without a header.
    problems = filter(None, [table.describe_uneven_rows(with_longer=True) for table in tables])
    message = "; ".join(problems)
    if message:
        raise DataError(message)
    doubts = list(files.doubts)
    first_table = tables[0]
    for table in tables:
        _check_same_header(table, first_table)
        # Position of a row -> its number of cells. Shorter rows have raised the error above.
        longer_rows = table.uneven_rows()
        if longer_rows:
            row, n_fields = next(iter(longer_rows.items()))
            doubts.append(
                f"{table.locate_row(row)}: {n_fields} fields, expected {table.width}: "
                "cells beyond the last column that all rows have are not read"
            )
    if not first_table.header:
        doubts.append(
            "no line that names the columns was found: the first line is data, "
            "columns are counted from 0"
        )
    split_tables = SplitTables(tables=tables_by_split, doubts=doubts)
    is_divided = list(tables_by_split) != [NO_SPLIT]
    return split_tables if is_divided else _divide_by_column(split_tables)


def _read_guessed_table(path: Path) -> TextTable:
    """Read a table, with a header if its first row looks like one."""
    table = read_table(path, by_name=False)
    if not table.header and has_header([[cell or "" for cell in row] for row in table.rows]):
        return read_table(path, by_name=True)
    return table


def _check_same_header(table: TextTable, first_table: TextTable) -> None:
    """Check that a table has the same names of columns as the first table, in the same order.

    Args:
        table: A table of a dataset.
        first_table: The first table of that dataset.

    Raises:
        DataError: The names differ, or only one of the two has a header.
    """
    if list(table.header) == list(first_table.header):
        return
    columns = format_names(table.header) or "not named"
    first_columns = format_names(first_table.header) or "not named"
    raise DataError(
        f"{table.path}: its columns ({columns}) are not those of "
        f"{Path(first_table.path).name} ({first_columns}); make them the same"
    )


def splits_in_name(name: str) -> list[str]:
    """Return the splits of which a name of a file, or of a split on the Hub, has a word."""
    words = set(re.split(r"[\W\d_]+", name.casefold()))
    return [split for split, names in SPLIT_NAMES.items() if words & {*names}]


def _find_split_files(folder: Path) -> SplitFiles:
    """Find the files of each split in a folder by their names.

    A file whose name has a word of one split, such as ``train`` or ``dev``, is of that split; one
    with words of none or several is left out. If it is the only file, it is returned undivided,
    under ``NO_SPLIT``.

    Returns:
        The files of each split, and a line on those that were left out.

    Raises:
        DataError: There are no tables, none has the name of a split, or several may be one split.
    """
    table_paths = sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in TABLE_SUFFIXES and path.is_file()
    )
    if not table_paths:
        raise DataError(
            f"{folder}: has no table ({', '.join(TABLE_SUFFIXES)}); "
            "give a file, or the folder that has them"
        )
    paths_by_split: dict[str, list[Path]] = {}
    for path in table_paths:
        splits = splits_in_name(path.stem)
        if len(splits) == 1:
            paths_by_split.setdefault(splits[0], []).append(path)
    if not paths_by_split and len(table_paths) == 1:
        return SplitFiles({NO_SPLIT: table_paths}, doubts=[])
    if not paths_by_split:
        names = format_names([path.name for path in table_paths])
        raise DataError(
            f"{folder}: none of its {len(table_paths)} tables has train, dev or test in its name "
            f"({names}); give one file, or rename them"
        )
    for split, paths in paths_by_split.items():
        # The numbered parts of a split have the same name but for the number.
        names_without_numbers = {re.sub(r"\d+", "0", path.name) for path in paths}
        if len(names_without_numbers) > 1:
            names = format_names([path.name for path in paths])
            raise DataError(
                f"{folder}: several files may be the split {split} ({names}); "
                "leave one in the folder"
            )
    used_paths = list(chain.from_iterable(paths_by_split.values()))
    omitted_names = [path.name for path in table_paths if path not in used_paths]
    # In the order train, validation, test.
    ordered_paths = {
        split: paths_by_split[split] for split in SPLIT_NAMES if split in paths_by_split
    }
    return SplitFiles(ordered_paths, describe_omitted(omitted_names))


def describe_omitted(names: Sequence[str]) -> list[str]:
    """Return a list with one note on files or Hub splits that were left out; empty without any."""
    return [f"left out, for their names are of no split: {format_names(names)}"] if names else []


def _divide_by_column(split_tables: SplitTables) -> SplitTables:
    """Find a column with the split of each row, and divide a table into these splits.

    The column may have any name. All its cells are names of splits, such as ``train`` or ``dev``,
    at least two, and no two of them are names of the same split.

    Args:
        split_tables: One table, not divided into splits.

    Returns:
        The same table under each split, with the column that tells them apart; the argument itself
        if there is no such column.
    """
    # The only table of the only split.
    ((table,),) = split_tables.tables.values()
    for column in split_tables.columns():
        # Cell of the column -> our split. SPLIT_NAMES: our split -> its names in lower case.
        split_by_value = {
            value: split
            for split, names in SPLIT_NAMES.items()
            for value in column.distinct_cells
            if value.casefold() in names
        }
        splits = set(split_by_value.values())
        has_only_split_names = set(split_by_value) == column.distinct_cells
        # Names of one split, such as dev and val, may be of two different ones to their author.
        has_one_name_per_split = len(splits) == len(split_by_value)
        if has_only_split_names and has_one_name_per_split and len(splits) > 1:
            return replace(
                split_tables,
                tables={split: [table] for split in SPLIT_NAMES if split in splits},
                split_column=column.key,
                value_by_split={
                    split: value for value, split in split_by_value.items() if value != split
                },
            )
    return split_tables
