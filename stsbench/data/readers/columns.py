"""The columns of sentences, scores and labels in a table, found by their usual names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stsbench.core.errors import CardError
from stsbench.data.readers.table import ColumnKey, format_names

PAIR_NAMES = [
    pair.split("+")
    for pair in """
    sentence1+sentence2 sentencea+sentenceb s1+s2 sent1+sent2 sent0+sent1 text1+text2
    texta+textb question1+question2 q1+q2 premise+hypothesis anchor+positive first+second a+b
    query+document query+passage question+answer
    """.split()
]
"""Usual names of the two columns of a pair, as :func:`plain_name` writes them."""
SENTENCE_NAMES = ("sentence", "text", "review", "question", "tweet", "document")
"""Usual names of the column of single sentences."""
GOLD_NAMES = """
    score gold goldscore similarity similarityscore relatedness relatednessscore
""".split()
"""Usual names of the column of gold scores."""
LABEL_NAMES = ("label", "class", "category", "target")
"""Usual names of the column of labels."""
USUAL_NAMES = {
    *GOLD_NAMES,
    *LABEL_NAMES,
    *SENTENCE_NAMES,
    *(name for pair in PAIR_NAMES for name in pair),
    "id",
    "split",
    "subset",
}
"""All usual names of columns."""


class ColumnRoles(NamedTuple):
    """The columns of the sentences of an item, one or two, and of its label or gold score."""

    sentences: tuple[ColumnKey, ...]
    target: ColumnKey
    """The column of the label or gold score."""
    is_gold: bool
    """Whether the target is a gold score."""


def find_roles(
    header: Sequence[str],
    column_by_role: Mapping[str, ColumnKey],
    *,
    prefer_label: bool,
    where: str,
) -> ColumnRoles:
    """Find the columns of sentences, and that of gold scores or labels, in a table.

    A card may give some of them. The others are found by their usual names, such as ``score`` or
    ``label``; case, blanks, hyphens and underscores in a name do not count. Exactly one column may
    be the target.

    Args:
        header: The names of all columns.
        column_by_role: The columns that the card gives, as names or positions, by role:
            ``sentence``, ``sentence1``, ``sentence2``, ``gold``, ``label``.
        prefer_label: Take the column of labels if the table has one of gold scores too.
        where: What messages of errors begin with, such as the path of the file.

    Returns:
        The column of the sentence or the two of a pair, the column of the target, and whether the
        target is a gold score or else a label.

    Raises:
        CardError: A role is not clear; the message names the parameters of the card that decide it.
    """
    if "gold" in column_by_role and "label" in column_by_role:
        raise CardError(f"{where}: 'gold' and 'label' are both given; a table has scores or labels")
    sentence_columns = find_sentences(header, column_by_role, where=where)
    # The columns that may hold the gold score, or the label.
    gold_columns: list[ColumnKey] = [*columns_called(header, GOLD_NAMES)]
    label_columns: list[ColumnKey] = [*columns_called(header, LABEL_NAMES)]
    if "gold" in column_by_role:
        gold_columns = [column_by_role["gold"]]
        label_columns = []
    elif "label" in column_by_role:
        gold_columns = []
        label_columns = [column_by_role["label"]]
    elif prefer_label or len(sentence_columns) == 1:
        # A gold score is the similarity of two sentences.
        gold_columns = []
    target_columns = gold_columns + label_columns
    if len(target_columns) != 1:
        problem = (
            f"{' and '.join(map(str, target_columns))} may be the scores or labels"
            if target_columns
            else "none has a usual name of the scores or labels"
        )
        raise _unclear_roles(where, header, f"{problem}; give gold or label in params")
    if gold_columns and len(sentence_columns) == 1:
        raise CardError(
            f"{where}: one sentence has no gold score; give sentence1 and sentence2, or a label"
        )
    return ColumnRoles(sentence_columns, target_columns[0], is_gold=bool(gold_columns))


def find_sentences(
    header: Sequence[str], column_by_role: Mapping[str, ColumnKey], *, where: str
) -> tuple[ColumnKey, ...]:
    """Find the columns of the sentences of a table: one column, or the two of pairs.

    Those that a card gives count. If it gives none, columns with usual names are looked for: first
    two of a pair, such as ``premise`` and ``hypothesis``, then one of single sentences. Case,
    blanks, hyphens and underscores in a name do not count.

    Args:
        header: The names of all columns.
        column_by_role: The columns that the card gives, as names or positions, by role:
            ``sentence``, or ``sentence1`` and ``sentence2``; other roles are not used.
        where: What messages of errors begin with, such as the path of the file.

    Returns:
        The name or position of each column.

    Raises:
        CardError: The card's columns contradict each other; or no columns, or too many, have usual
            names.
    """
    pair_of_card = tuple(
        column_by_role[role] for role in ("sentence1", "sentence2") if role in column_by_role
    )
    if "sentence" in column_by_role and pair_of_card:
        raise CardError(
            f"{where}: 'sentence' is given beside 'sentence1' or 'sentence2'; "
            "give one sentence or two"
        )
    if len(pair_of_card) == 2:
        return pair_of_card
    if "sentence" in column_by_role:
        return (column_by_role["sentence"],)
    if pair_of_card:
        raise CardError(f"{where}: one sentence of the pair is given; give sentence1 and sentence2")
    # Columns of the table with usual names, as the header spells them.
    usual_pairs: list[tuple[ColumnKey, ColumnKey]] = []
    for first_name, second_name in PAIR_NAMES:
        first_columns = columns_called(header, [first_name])
        second_columns = columns_called(header, [second_name])
        if first_columns and second_columns:
            usual_pairs.append((first_columns[0], second_columns[0]))
    usual_singles = columns_called(header, SENTENCE_NAMES)
    if len(usual_pairs) == 1:
        return usual_pairs[0]
    if not usual_pairs and len(usual_singles) == 1:
        return (usual_singles[0],)
    has_several = usual_pairs or usual_singles
    problem = "several columns may be" if has_several else "no columns have usual names of"
    raise _unclear_roles(
        where,
        header,
        f"{problem} the sentences; give sentence1 and sentence2, or sentence, in params",
    )


def _unclear_roles(where: str, header: Sequence[str], problem: str) -> CardError:
    """Return the error to raise if the roles of columns are not clear; it names all columns."""
    return CardError(f"{where}: {problem}; its columns are {format_names(header) or 'not named'}")


def columns_called(header: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the columns with one of these names, which are as :func:`plain_name` writes them."""
    return [column for column in header if plain_name(column) in names]


def plain_name(column: str) -> str:
    """Return a column's name in lower case, without blanks, hyphens and underscores."""
    return re.sub(r"[\W_]+", "", column.casefold())
