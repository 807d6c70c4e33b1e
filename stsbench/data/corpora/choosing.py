"""What of a corpus is learned from: rows by a condition, labelled pairs as positives and negatives, rows repeated."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stsbench.data.corpora.corpus import Corpus
from stsbench.errors import CardError, choose, did_you_mean

NUMBERS = ("score", "document_id")
"""Columns of numbers; all others are of texts."""
OF_NUMBERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    ">=": pc.greater_equal,
    "<=": pc.less_equal,
    ">": pc.greater,
    "<": pc.less,
}
OF_TEXT = ("=", "!=")
_CONDITION = re.compile(r"\s*(\w+)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*")


def where(corpus: Corpus, condition: str) -> Corpus:
    """The rows of which a condition holds: ``label = entailment``, ``label != neutral``, ``score >= 4``.

    Raises:
        CardError: it is no condition, or not of this corpus, or leaves fewer than two rows.
    """
    said = f"[data] where '{condition}'"
    found = _CONDITION.fullmatch(condition)
    if found is None or not found[3]:
        raise CardError(f"{said}: give COLUMN = VALUE, such as label = entailment or score >= 4")
    name, sign, value = found.groups()
    if name not in corpus.columns:
        raise CardError(
            f"{said}: corpus '{corpus.name}' has no {name}{did_you_mean(name, corpus.columns)}; "
            f"it has {', '.join(corpus.columns)}"
        )
    kept = corpus.table.filter(OF_NUMBERS[sign](corpus.table.column(name), _value(said, name, sign, value)))
    if kept.num_rows < 2:
        raise CardError(f"{said}: leaves {kept.num_rows} of {len(corpus)} rows{_classes(corpus, name, value)}")
    return replace(corpus, table=kept)


def _value(said: str, name: str, sign: str, value: str) -> pa.Scalar:
    if name not in NUMBERS:
        if sign not in OF_TEXT:
            raise CardError(f"{said}: {name} is text; compare it by {' or '.join(OF_TEXT)}")
        return pa.scalar(value, pa.large_string())
    try:
        return pa.scalar(float(value))
    except ValueError as error:
        raise CardError(f"{said}: {name} is a number, '{value}' is not") from error


def _classes(corpus: Corpus, name: str, value: str) -> str:
    """The labels there are, where it is one that none of them is."""
    if name != "label":
        return ""
    labels = sorted(corpus.table.column(name).unique().to_pylist())
    return f"{did_you_mean(value, labels)}; labels: {', '.join(labels[:10])}"


def of_form(corpus: Corpus, form: str) -> Corpus:
    """Labelled pairs as rows of another form, one of :data:`FORMS`.

    Raises:
        CardError: there is no such form, or no row of it can be made.
        DataError: the corpus has no pairs, or no labels where they are needed.
    """
    wanted = choose("form of rows", form, FORMS)
    corpus.require("first", "second", *(["label"] if wanted else []))
    if not wanted:
        pairs = corpus.table.select(["first", "second"]).rename_columns(["anchor", "positive"])
        return replace(corpus, table=pairs)
    others: dict[str, dict[str, str]] = {}
    for row in corpus.table.select(["first", "second", "label"]).to_pylist():
        others.setdefault(row["first"], {}).setdefault(row["label"], row["second"])
    whole = {anchor: by_label for anchor, by_label in others.items() if by_label.keys() >= set(wanted.values())}
    if len(whole) < 2:
        raise CardError(
            f"[data] form '{form}': {len(whole)} first sentences of corpus '{corpus.name}' have {', '.join(wanted.values())}"
        )
    columns = {name: [by_label[label] for by_label in whole.values()] for name, label in wanted.items()}
    table = {name: pa.array(texts, pa.large_string()) for name, texts in {"anchor": list(whole), **columns}.items()}
    return replace(corpus, table=pa.table(table))


FORMS: Mapping[str, Mapping[str, str]] = {
    "pairs": {},
    "triplets": {"positive": "entailment", "negative": "contradiction"},
    "two_negatives": {"positive": "entailment", "negative": "contradiction", "second_negative": "neutral"},
}
"""Each form with the label that the first second sentence of each of its columns has; ``pairs``: whatever their labels."""


def repeated(corpus: Corpus, length: int) -> Corpus:
    """All rows as many times as that gives ``length`` rows at most, one time at least."""
    times = max(1, length // len(corpus))
    return replace(corpus, table=pa.concat_tables([corpus.table] * times))


def refuse_ordered(corpus: Corpus, key: str) -> None:
    """Raise CardError where rows of ordered text would lose their neighbours."""
    if "document_id" in corpus.columns:
        raise CardError(f"[data] {key}: corpus '{corpus.name}' is ordered text, of which no sentence can be left out")


def of_at_most(corpus: Corpus, words: int) -> Corpus:
    """The rows of which no text has more words than this; raises CardError where fewer than two are left."""
    refuse_ordered(corpus, "max_words")
    short = corpus.of_at_most(words)
    if len(short) < 2:
        raise CardError(f"[data] max_words {words}: leaves {len(short)} of {len(corpus)} rows of '{corpus.name}'")
    return short
