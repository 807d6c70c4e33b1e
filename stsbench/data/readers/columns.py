"""The reader ``table``: sentences with scores or labels in a table of any kind, its columns known by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stsbench.data.readers.labelled import read_labelled_pair_table, read_labelled_table
from stsbench.data.readers.pairs import read_pair_table
from stsbench.data.readers.recognise import FileLayout, read_table
from stsbench.data.readers.table import ColumnKey, listed
from stsbench.data.readers.text import DataFile
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.errors import CardError

PAIRS = (
    ("sentence1", "sentence2"),
    ("sentencea", "sentenceb"),
    ("s1", "s2"),
    ("sent1", "sent2"),
    ("sent0", "sent1"),
    ("text1", "text2"),
    ("texta", "textb"),
    ("question1", "question2"),
    ("q1", "q2"),
    ("premise", "hypothesis"),
    ("anchor", "positive"),
    ("first", "second"),
    ("a", "b"),
)
"""What the columns of two sentences are called, in lower case and without blanks, hyphens and underscores."""
SENTENCES = ("sentence", "text", "review", "question", "tweet", "document")
GOLD = ("score", "gold", "goldscore", "similarity", "similarityscore", "relatedness", "relatednessscore")
LABELS = ("label", "class", "category", "target")


class Roles(NamedTuple):
    """Which columns hold the sentences of an item, one or two, and its label or gold score."""

    sentences: tuple[ColumnKey, ...]
    target: ColumnKey
    is_gold: bool


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
    split_column: ColumnKey | None = None,
    split_values: Mapping[str, str] | None = None,
    split: str = "",
) -> PairSplit | LabelledSplit | LabelledPairSplit:
    """Read pairs with scores, or sentences or pairs with labels, from tables of any kind.

    Columns that the card does not give are those of a usual name, see ``PAIRS`` and the lists below it.
    """
    layout = FileLayout(delimiter, header, quoting)
    given = {"sentence": sentence, "sentence1": sentence1, "sentence2": sentence2, "gold": gold, "label": label}
    roles = _roles_of(files[0], layout, {role: key for role, key in given.items() if key is not None}, classes)
    common: dict[str, Any] = {**layout._asdict(), "split_column": split_column, "split_values": split_values}
    common |= {"split": split} | _named_sentences(roles.sentences)
    if roles.is_gold:
        _refuse(files, "with scores", classes=classes)
        return read_pair_table(files, gold=roles.target, subset=subset, **common)
    _refuse(files, "with labels", subset=subset)
    if classes is None:
        known = sorted({name.strip() for name in _column(files, layout, roles.target)})
        raise CardError(
            f"{files[0].path}: the card must give the classes of column {roles.target!r} in params, such as "
            f"classes = {known[:6]}, or say gold = {roles.target!r} if it holds scores"
        )
    read = read_labelled_table if len(roles.sentences) == 1 else read_labelled_pair_table
    return read(files, label=roles.target, classes=classes, **common)


def _named_sentences(columns: Sequence[ColumnKey]) -> dict[str, ColumnKey]:
    names = ("sentence",) if len(columns) == 1 else ("sentence1", "sentence2")
    return dict(zip(names, columns, strict=True))


def _refuse(files: Sequence[DataFile], where: str, **given: object) -> None:
    for key, value in given.items():
        if value is not None:
            raise CardError(f"{files[0].path}: '{key}' has no effect {where}; leave it out")


def _column(files: Sequence[DataFile], layout: FileLayout, key: ColumnKey) -> list[str]:
    named = isinstance(key, str)
    return [cell for file in files for cell in read_table(file.path, layout, named=named).column(key)]


def _roles_of(
    file: DataFile, layout: FileLayout, given: Mapping[str, ColumnKey], classes: Sequence[str] | None
) -> Roles:
    whole = ("sentence" in given or {"sentence1", "sentence2"} <= {*given}) and {"gold", "label"} & {*given}
    header = () if whole else read_table(file.path, layout, named=True).header
    found = find_roles(header, given, wants_label=classes is not None)
    if isinstance(found, str):
        raise CardError(f"{file.path}: {found}; its columns are {listed(header) or 'not named'}")
    return found


def find_roles(header: Sequence[str], given: Mapping[str, ColumnKey], *, wants_label: bool = False) -> Roles | str:
    """Which column is which, by what is given and, for the rest, by usual names; or what is not clear, in words.

    Args:
        header: the names of the columns.
        given: columns by what they hold: ``sentence``; or ``sentence1`` and ``sentence2``; ``gold`` or ``label``.
        wants_label: whether a label is meant where the names of columns fit both a label and a score.
    """
    if "gold" in given and "label" in given:
        return "'gold' and 'label' are both given; a table has scores or labels"
    if "sentence" in given and {"sentence1", "sentence2"} & {*given}:
        return "'sentence' is given beside 'sentence1' or 'sentence2'; a table has sentences or pairs"
    sentences = find_sentences(header, given)
    if isinstance(sentences, str):
        return sentences
    golds = [given["gold"]] if "gold" in given else [*columns_called(header, GOLD)]
    labels = [given["label"]] if "label" in given else [*columns_called(header, LABELS)]
    if "gold" in given:
        labels = []
    elif "label" in given or wants_label or len(sentences) == 1:
        # One sentence has no similarity.
        golds = []
    if len(golds) + len(labels) != 1:
        which = f"{' and '.join(map(str, golds + labels))} may be" if golds or labels else "none has a usual name of"
        return f"{which} the scores or labels; give gold or label in params"
    if golds and len(sentences) == 1:
        return "one sentence has no gold score; give sentence1 and sentence2, or a label"
    return Roles(sentences, (golds or labels)[0], is_gold=bool(golds))


def find_sentences(header: Sequence[str], given: Mapping[str, ColumnKey]) -> tuple[ColumnKey, ...] | str:
    """Which columns hold the sentences, as :func:`find_roles` tells them; or what is not clear, in words."""
    if "sentence" in given:
        return (given["sentence"],)
    if {"sentence1", "sentence2"} <= {*given}:
        return given["sentence1"], given["sentence2"]
    if {"sentence1", "sentence2"} & {*given}:
        return "one sentence of the pair is given; give sentence1 and sentence2"
    pairs = [
        (one[0], two[0])
        for a, b in PAIRS
        if (one := columns_called(header, [a])) and (two := columns_called(header, [b]))
    ]
    if len(pairs) == 1:
        return pairs[0]
    singles = columns_called(header, SENTENCES)
    if not pairs and len(singles) == 1:
        return (singles[0],)
    which = "several columns may be" if pairs or singles else "no columns have usual names of"
    return f"{which} the sentences; give sentence1 and sentence2, or sentence, in params"


def columns_called(header: Sequence[str], names: Sequence[str]) -> list[str]:
    """The columns that have one of these names, however it is written."""
    return [column for column in header if plain_name(column) in names]


def plain_name(column: str) -> str:
    """A column's name as the lists here have it."""
    return re.sub(r"[\W_]+", "", column.casefold())
