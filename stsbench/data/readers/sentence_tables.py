"""Readers of tables: sentences with scores or classes, and contrast sets.

Tables are of any kind that :mod:`stsbench.data.readers.files` reads. A label is the position of its
class in ``classes``, which a card gives in SentEval's order. Sentences with a class are what
SentEval's loaders make of them: split at white space, joined by one blank again. Rows keep the
order of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from stsbench.core.errors import CardError, DataError, suggest
from stsbench.data.readers.columns import ColumnRoles, find_roles
from stsbench.data.readers.files import read_table
from stsbench.data.readers.table import ColumnKey, DataFile, FileLayout, TextTable, format_names
from stsbench.data.readers.text import has_decimal_commas, is_missing, parse_gold_score
from stsbench.data.splits import ContrastSplit, LabelledPairSplit, LabelledSplit, PairSplit


def normalise_blanks(text: str) -> str:
    """Return a text with each run of white space as one blank."""
    return " ".join(text.split())


class TableRows(NamedTuple):
    """Some rows of a table."""

    table: TextTable
    positions: Sequence[int]
    """The positions of the rows in the table."""
    subset: str = ""
    """The subset of all these rows; empty if there is none, or a column gives it."""


def read_any_table(
    files: Sequence[DataFile],
    *,
    sentence: ColumnKey | None = None,
    sentence1: ColumnKey | None = None,
    sentence2: ColumnKey | None = None,
    gold: ColumnKey | None = None,
    label: ColumnKey | None = None,
    classes: Sequence[str] | None = None,
    subset: ColumnKey | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
    fields: Annotated[int, Meta(ge=0, le=1_000_000)] = 0,
    split_column: ColumnKey | None = None,
    split_values: Mapping[str, str] | None = None,
    split: str = "",
    drop_unscored: bool = False,
) -> PairSplit | Labelled:
    """Read pairs with scores, or sentences or pairs with labels, from tables of any kind.

    Its parameters are those that a task's card may give. A column is its name or its position;
    those that the card does not give are found by their usual names, see ``columns.py``.

    Args:
        files: The files, read in turn as one split (the Hub's SICK-R is train, trial and test).
        sentence: The column of single sentences.
        sentence1: The column of first sentences.
        sentence2: The column of second sentences. If it is ``sentence1`` too, each of its cells
            holds both sentences, one per line.
        gold: The column of gold scores.
        label: The column of labels.
        classes: The labels in the order of the classes; required for labels.
        subset: The column with the subset of each pair.
        delimiter: The delimiter of a text file.
        header: Whether the first row holds the names of the columns.
        quoting: Whether quotes hold cells together.
        fields: The maximum number of fields of a line, the last of which keeps its delimiters.
        split_column: The column with the split of each row; only rows of this split are read.
        split_values: The values of that column by split, if they are not the names of the card.
        split: The name of the split in the card.
        drop_unscored: Leave out the rows without a score.

    Raises:
        CardError: A parameter does not fit the files, or the role of a column is not clear.
        DataError: A file is broken, or a column or the split is missing.
    """
    layout = FileLayout(delimiter, header, quoting, fields=fields or None)
    possible_columns = {
        "sentence": sentence,
        "sentence1": sentence1,
        "sentence2": sentence2,
        "gold": gold,
        "label": label,
    }
    column_by_role = {role: key for role, key in possible_columns.items() if key is not None}
    roles = _find_file_roles(files[0].path, layout, column_by_role, classes, subset)
    used_columns = (*roles.sentences, roles.target, subset, split_column)
    by_name = any(isinstance(key, str) for key in used_columns)
    split_value = (split_values or {}).get(split, split)
    row_groups: list[TableRows] = []
    for file in files:
        table = read_table(file.path, layout, by_name=by_name)
        # A delimiter too many shifts columns. Pinned: the card has the sha256 of the file.
        table.check_row_lengths(with_longer=roles.is_gold and file.pinned)
        positions = _split_positions(table, split_column, split_value)
        if drop_unscored:
            positions = _scored_positions(table, roles, positions)
        row_groups.append(TableRows(table, positions, subset=file.subset))
    return to_split(row_groups, roles, subset=subset, classes=classes)


def _find_file_roles(
    path: Path,
    layout: FileLayout,
    column_by_role: Mapping[str, ColumnKey],
    classes: Sequence[str] | None,
    subset: ColumnKey | None,
) -> ColumnRoles:
    """Find the columns of sentences, and of gold scores or labels, in a file.

    The file is read only if the card does not give all of these columns.

    Args:
        path: The file.
        layout: What the card says of a text file: its delimiter, its quotes, its header.
        column_by_role: The columns that the card gives, as names or positions, by role:
            ``sentence``, ``sentence1``, ``sentence2``, ``gold``, ``label``. Columns of other roles
            are found by usual names in the header, such as ``score``.
        classes: The labels in the card, with which a column of labels is preferred; None if there
            are none.
        subset: The column of subsets in the card, for gold scores only; None if there is none.

    Returns:
        The column of the sentence or the two of a pair, that of the target, and whether the target
        is a gold score (``is_gold``) or else a label.

    Raises:
        CardError: A role is not clear, or a parameter has no effect.
    """
    header: Sequence[str] = ()
    if not _has_all_roles(column_by_role):
        header = read_table(path, layout, by_name=True).header
    roles = find_roles(header, column_by_role, prefer_label=classes is not None, where=str(path))
    if roles.is_gold and classes is not None:
        raise CardError(f"{path}: 'classes' has no effect with scores; leave it out")
    if not roles.is_gold and subset is not None:
        raise CardError(f"{path}: 'subset' has no effect with labels; leave it out")
    return roles


def _has_all_roles(column_by_role: Mapping[str, ColumnKey]) -> bool:
    """Return whether a card gives the columns of both the sentences and the target.

    Args:
        column_by_role: The columns that the card gives, by role: ``sentence``, ``gold`` and so on.
    """
    card_roles = set(column_by_role)
    has_sentences = "sentence" in card_roles or {"sentence1", "sentence2"} <= card_roles
    has_target = "gold" in card_roles or "label" in card_roles
    return has_sentences and has_target


def _split_positions(table: TextTable, column: ColumnKey | None, split_value: str) -> Sequence[int]:
    """Return the positions of the rows of a split in a table, from 0.

    Args:
        table: The table.
        column: The name or position of the column with the split of each row; None if the whole
            table is the split.
        split_value: The value in that column that means the split.

    Raises:
        DataError: The column is missing, or no row has this value.
    """
    if column is None:
        return range(len(table.rows))
    values = table.column(column)
    # Blanks around a cell do not count, as where the splits of a table are found.
    positions = [
        position for position, value in enumerate(values) if value.strip() == split_value.strip()
    ]
    if not positions:
        distinct_values = format_names(sorted(set(values)))
        raise DataError(f"{table.path}: no row of split '{split_value}' (has {distinct_values})")
    return positions


def _scored_positions(table: TextTable, roles: ColumnRoles, positions: Sequence[int]) -> list[int]:
    """Return the positions of those rows that have a gold score.

    Args:
        table: The table.
        roles: The columns of the table: ``target`` is that of the gold scores if ``is_gold``, else
            that of the labels.
        positions: The positions of the rows in the table to choose from.

    Raises:
        CardError: The target is a label.
        DataError: No row has a score.
    """
    if not roles.is_gold:
        raise CardError(f"{table.path}: 'drop_unscored' has no effect with labels; leave it out")
    scores = table.column(roles.target)
    # A missing score is an empty cell, or a word for it such as "NA".
    scored_positions = [position for position in positions if not is_missing(scores[position])]
    if not scored_positions:
        raise DataError(f"{table.path}: no row has a score in column {roles.target!r}")
    return scored_positions


def to_split(
    row_groups: Sequence[TableRows],
    roles: ColumnRoles,
    *,
    subset: ColumnKey | None,
    classes: Sequence[str] | None,
    clean_text: Callable[[str], str] = normalise_blanks,
) -> PairSplit | Labelled:
    """Make a split of pairs with gold scores, or of sentences or pairs with labels.

    Args:
        row_groups: The rows of each table; they follow each other in the split.
        roles: The columns of the tables to read: ``sentences``, one or two, and ``target``, that of
            gold scores if ``is_gold``, else that of labels.
        subset: The column with the subset of each pair; None if each table is of one subset. It is
            not used for labels.
        classes: The labels in the order of the classes; not used for gold scores.
        clean_text: Return a changed sentence, for sentences with labels; those of pairs with gold
            scores stay as they are.

    Raises:
        CardError: There are labels, and no classes.
        DataError: A cell is missing or is not valid; the message names the row.
    """
    rows: list[SentenceRow] = []
    subsets: list[str] = []
    for group in row_groups:
        rows += _iter_rows(group, roles)
        if subset is None:
            subsets += [group.subset] * len(group.positions)
        else:
            subset_cells = group.table.column(subset)
            subsets += [subset_cells[position] for position in group.positions]
    locations = [row.where for row in rows]
    if roles.is_gold:
        return replace(_to_pair_split(rows, subsets), locations=locations)
    if classes is None:
        labels = sorted({row.target for row in rows})
        raise CardError(
            f"{row_groups[0].table.path}: the card must give the classes of column "
            f"{roles.target!r} in params, such as classes = {labels[:6]}, "
            f"or say gold = {roles.target!r} if it holds scores"
        )
    return replace(to_labelled(rows, classes, clean_text), locations=locations)


class SentenceRow(NamedTuple):
    """One item as read."""

    target: str
    """The label or gold score."""
    where: str
    """The file and the line, for messages."""
    sentences: Sequence[str]
    """One sentence, or the two of a pair."""


def _iter_rows(row_group: TableRows, roles: ColumnRoles) -> Iterator[SentenceRow]:
    """Yield each row of a table with its label or gold score as text, and its sentences.

    Args:
        row_group: A table, and the positions of the rows to read.
        roles: The columns to read: ``sentences``, one or two, and ``target``. If both sentences are
            of one column, they are two lines of its cell.

    Raises:
        DataError: A cell of two sentences has another number of lines.
    """
    table = row_group.table
    sentence_columns = [table.column(key) for key in roles.sentences]
    targets = table.column(roles.target)
    is_pair_in_one_cell = len(roles.sentences) == 2 and len(set(roles.sentences)) == 1
    for position in row_group.positions:
        # The file and the line, for messages.
        where = table.locate_row(position)
        sentences = [column[position] for column in sentence_columns]
        if is_pair_in_one_cell:
            sentences = sentences[0].split("\n")
            if len(sentences) != 2:
                raise DataError(
                    f"{where}: column {roles.sentences[0]!r} holds {len(sentences)} lines, "
                    "a pair has two"
                )
        yield SentenceRow(targets[position].strip(), where, sentences)


Labelled = LabelledSplit | LabelledPairSplit


def _to_pair_split(rows: Sequence[SentenceRow], subsets: Sequence[str]) -> PairSplit:
    """Make a split of pairs with gold scores, which may be written with decimal commas.

    They are if some have a comma, each of these is a number with one comma, none has a point, and
    not every comma may stand between thousands, as in ``2,500``.

    Args:
        rows: The pairs, at least one; ``target`` is the score as text.
        subsets: The subset of each pair.

    Raises:
        DataError: A score is no number.
    """
    has_commas = has_decimal_commas([row.target for row in rows])
    gold = []
    for row in rows:
        score_text = row.target.replace(",", ".") if has_commas else row.target
        gold.append(parse_gold_score(score_text, where=row.where))
    first_sentences, second_sentences = zip(*(row.sentences for row in rows), strict=True)
    return PairSplit(
        sentences1=list(first_sentences),
        sentences2=list(second_sentences),
        gold=np.array(gold, dtype=np.float64),
        subset=list(subsets),
    )


def to_labelled(
    rows: Iterable[SentenceRow],
    classes: Sequence[str],
    clean_text: Callable[[str], str] = normalise_blanks,
) -> Labelled:
    """Make a split of labelled sentences, or labelled pairs if the rows have two sentences.

    Args:
        rows: The items, at least one; all have one sentence, or all have two. ``target`` is the
            label, ``where`` the file and the line for messages.
        classes: The labels in the order of the classes, which become the numbers 0 to c - 1.
        clean_text: Return a changed sentence; by default, each run of white space is one blank.

    Raises:
        DataError: A label is of no class.
    """
    number_by_class = {name: number for number, name in enumerate(classes)}
    class_numbers: list[int] = []
    sentences_by_row: list[Sequence[str]] = []
    for row in rows:
        if row.target not in number_by_class:
            some_classes = ", ".join(classes[:6]) + (", …" if len(classes) > 6 else "")
            raise DataError(
                f"{row.where}: unknown label '{row.target[:40]}' (known: {some_classes})"
                f"{suggest(row.target, classes)}"
            )
        class_numbers.append(number_by_class[row.target])
        sentences_by_row.append(row.sentences)
    targets: dict[str, Any] = {
        "labels": np.array(class_numbers, dtype=np.int64),
        "classes": list(classes),
    }
    # One list of sentences, or the two lists of pairs.
    sides = [list(map(clean_text, side)) for side in zip(*sentences_by_row, strict=True)]
    if len(sides) == 1:
        return LabelledSplit(sentences=sides[0], **targets)
    first_sentences, second_sentences = sides
    return LabelledPairSplit(sentences1=first_sentences, sentences2=second_sentences, **targets)


def read_contrast_table(
    files: Sequence[DataFile],
    *,
    anchor: ColumnKey = "anchor",
    positive: ColumnKey = "positive",
    negatives: Sequence[ColumnKey] = ("negative",),
    delimiter: str | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
) -> ContrastSplit:
    """Read anchors with a more similar and with less similar sentences from tables of any kind.

    A column is its name or its position.

    Args:
        files: The files, read in turn as one split.
        anchor: The column of anchors.
        positive: The column of the more similar sentences.
        negatives: The columns of less similar sentences.
        delimiter: The delimiter of a text file.
        header: Whether the first row holds the names of the columns.
        quoting: Whether quotes hold cells together.

    Raises:
        DataError: A file is broken, or a column is missing.
    """
    layout = FileLayout(delimiter, header, quoting)
    by_name = any(isinstance(key, str) for key in (anchor, positive, *negatives))
    # with_lists: the texts of a column of lists are columns too, such as "negatives.0".
    tables = [read_table(file.path, layout, by_name=by_name, with_lists=True) for file in files]
    for table in tables:
        table.check_row_lengths()
    return to_contrasts(tables, anchor, positive, negatives)


def to_contrasts(
    tables: Sequence[TextTable],
    anchor: ColumnKey,
    positive: ColumnKey,
    negatives: Sequence[ColumnKey],
) -> ContrastSplit:
    """Make a split of anchors, each with a more similar and with less similar sentences.

    Args:
        tables: The tables, whose rows follow each other in the split.
        anchor: The column of anchors, as its name or position.
        positive: The column of the more similar sentences.
        negatives: The columns of less similar sentences.
    """
    anchors, positives, *negatives_by_column = (
        [text for table in tables for text in table.column(key)]
        for key in (anchor, positive, *negatives)
    )
    return ContrastSplit(anchors=anchors, positives=positives, negatives=negatives_by_column)
