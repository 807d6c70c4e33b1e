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
    """Return the columns to read: those that the card gives, else those with usual names.

    Args:
        header: The names of all columns.
        column_by_role: The columns that the card gives, by parameter of :func:`read_any_table`.
        prefer_label: Take a label if the names of columns fit both a label and a score.
        where: The beginning of a message.

    Raises:
        CardError: A role is not clear; the message names the parameters that make it so.
    """
    if "gold" in column_by_role and "label" in column_by_role:
        raise CardError(f"{where}: 'gold' and 'label' are both given; a table has scores or labels")
    sentences = find_sentences(header, column_by_role, where=where)
    # The columns that may hold the gold score, or the label.
    golds: list[ColumnKey] = [*columns_called(header, GOLD_NAMES)]
    labels: list[ColumnKey] = [*columns_called(header, LABEL_NAMES)]
    if "gold" in column_by_role:
        golds = [column_by_role["gold"]]
        labels = []
    elif "label" in column_by_role:
        golds = []
        labels = [column_by_role["label"]]
    elif prefer_label or len(sentences) == 1:
        # A single sentence has no similarity.
        golds = []
    targets = golds + labels
    if len(targets) != 1:
        problem = (
            f"{' and '.join(map(str, targets))} may be the scores or labels"
            if targets
            else "none has a usual name of the scores or labels"
        )
        raise _unclear_roles(where, header, f"{problem}; give gold or label in params")
    if golds and len(sentences) == 1:
        raise CardError(
            f"{where}: one sentence has no gold score; give sentence1 and sentence2, or a label"
        )
    return ColumnRoles(sentences, targets[0], is_gold=bool(golds))


def find_sentences(
    header: Sequence[str], column_by_role: Mapping[str, ColumnKey], *, where: str
) -> tuple[ColumnKey, ...]:
    """Find the columns of the sentences, one or two.

    Args:
        header: The names of all columns.
        column_by_role: The columns that are given, by role: ``sentence``, or ``sentence1`` and
            ``sentence2``. If none is, usual names count, those of a pair before a single one.
        where: The beginning of a message.

    Raises:
        CardError: The given columns contradict each other, or no names or several are usual ones.
    """
    pair = tuple(
        column_by_role[role] for role in ("sentence1", "sentence2") if role in column_by_role
    )
    if "sentence" in column_by_role and pair:
        raise CardError(
            f"{where}: 'sentence' is given beside 'sentence1' or 'sentence2'; "
            "give one sentence or two"
        )
    if len(pair) == 2:
        return pair
    if "sentence" in column_by_role:
        return (column_by_role["sentence"],)
    if pair:
        raise CardError(f"{where}: one sentence of the pair is given; give sentence1 and sentence2")
    pairs: list[tuple[ColumnKey, ColumnKey]] = []
    for first_name, second_name in PAIR_NAMES:
        first_columns = columns_called(header, [first_name])
        second_columns = columns_called(header, [second_name])
        if first_columns and second_columns:
            pairs.append((first_columns[0], second_columns[0]))
    singles = columns_called(header, SENTENCE_NAMES)
    if len(pairs) == 1:
        return pairs[0]
    if not pairs and len(singles) == 1:
        return (singles[0],)
    problem = "several columns may be" if pairs or singles else "no columns have usual names of"
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
