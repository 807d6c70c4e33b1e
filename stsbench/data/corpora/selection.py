"""Rows of a corpus that a recipe selects, repeats, or arranges in another form."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stsbench.core.errors import CardError, look_up, suggest
from stsbench.data.corpora.corpus import TEXT_COLUMNS, Corpus

NUMBER_COLUMNS = ("score", "document_id")
"""Columns of numbers; all others are of texts."""
COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    ">=": pc.greater_equal,
    "<=": pc.less_equal,
    ">": pc.greater,
    "<": pc.less,
}
"""The comparisons of a condition, by their signs."""
TEXT_SIGNS = ("=", "!=")
"""The signs that may compare text."""
_CONDITION = re.compile(r"\s*(\w+)\s*(!=|>=|<=|=|>|<)\s*(.*?)\s*")


def select_rows(corpus: Corpus, condition: str) -> Corpus:
    """Return the rows of a corpus for which a condition holds.

    Args:
        corpus: The corpus.
        condition: For example ``label = entailment``, ``label != neutral`` or ``score >= 4``.

    Raises:
        CardError: It is no condition, does not fit the corpus, or leaves fewer than two rows.
    """
    subject = f"[data] where '{condition}'"
    match = _CONDITION.fullmatch(condition)
    name, sign, value = match.groups() if match else ("", "", "")
    if not value:
        raise CardError(f"{subject}: give COLUMN = VALUE, such as label = entailment or score >= 4")
    if name not in corpus.columns:
        raise CardError(
            f"{subject}: corpus '{corpus.name}' has no {name}{suggest(name, corpus.columns)}; "
            f"it has {', '.join(corpus.columns)}"
        )
    is_number = name in NUMBER_COLUMNS
    if not is_number and sign not in TEXT_SIGNS:
        raise CardError(f"{subject}: {name} is text; compare it by {' or '.join(TEXT_SIGNS)}")
    try:
        operand = pa.scalar(float(value)) if is_number else pa.scalar(value, pa.large_string())
    except ValueError as error:
        raise CardError(f"{subject}: {name} is a number, '{value}' is not") from error
    column = corpus.table.column(name)
    table = corpus.table.filter(COMPARISONS[sign](column, operand))
    if table.num_rows < 2:
        labels = sorted(column.unique().to_pylist()) if name == "label" else []
        hint = f"{suggest(value, labels)}; labels: {', '.join(labels[:10])}" if labels else ""
        raise CardError(f"{subject}: leaves {table.num_rows} of {len(corpus)} rows{hint}")
    return replace(corpus, table=table)


FORMS: Mapping[str, Mapping[str, str]] = {
    "pairs": {},
    "triplets": {"positive": "entailment", "negative": "contradiction"},
    "two_negatives": {
        "positive": "entailment",
        "negative": "contradiction",
        "second_negative": "neutral",
    },
}
"""The label that the text of each column has, by form; in ``pairs`` it may have any label."""


def to_form(corpus: Corpus, form: str) -> Corpus:
    """Return labelled pairs as rows of another form.

    In ``pairs`` each row is an anchor and a positive, whatever its label. In the other forms there
    is a row for each distinct first sentence, the anchor. Every further column stands for a label,
    and has the second sentence of the first pair of the anchor with this label. Anchors without a
    pair of each label are dropped.

    Args:
        corpus: A corpus with the columns ``first`` and ``second``, and for most forms ``label``.
        form: One of :data:`FORMS`.

    Raises:
        CardError: There is no such form, or fewer than two first sentences have all labels.
        DataError: The corpus lacks a column.
    """
    label_by_column = look_up("form of rows", form, FORMS)
    corpus.require("first", "second")
    if label_by_column:
        corpus.require("label")
    else:
        pairs = corpus.table.select(["first", "second"]).rename_columns(["anchor", "positive"])
        return replace(corpus, table=pairs)
    # The second sentence by label, for each first sentence.
    seconds_by_anchor: dict[str, dict[str, str]] = {}
    for row in corpus.table.select(["first", "second", "label"]).to_pylist():
        second_by_label = seconds_by_anchor.setdefault(row["first"], {})
        # The first of several second sentences with this label counts.
        second_by_label.setdefault(row["label"], row["second"])
    labels = set(label_by_column.values())
    complete = {
        anchor: second_by_label
        for anchor, second_by_label in seconds_by_anchor.items()
        if second_by_label.keys() >= labels
    }
    if len(complete) < 2:
        raise CardError(
            f"[data] form '{form}': {len(complete)} first sentences of corpus '{corpus.name}' "
            f"have {', '.join(label_by_column.values())}"
        )
    columns = {"anchor": pa.array(list(complete), pa.large_string())}
    for name, label in label_by_column.items():
        seconds = [second_by_label[label] for second_by_label in complete.values()]
        columns[name] = pa.array(seconds, pa.large_string())
    return replace(corpus, table=pa.table(columns))


def repeat_rows(corpus: Corpus, max_rows: int) -> Corpus:
    """Repeat all rows, as often as the number of rows stays within a limit, but at least once.

    Args:
        corpus: The corpus.
        max_rows: The limit; a corpus of more rows stays as it is.
    """
    n_times = max(1, max_rows // len(corpus))
    return replace(corpus, table=pa.concat_tables([corpus.table] * n_times))


def check_unordered(corpus: Corpus, key: str) -> None:
    """Check that no sentence of a corpus would lose its neighbours if rows were dropped.

    Args:
        corpus: The corpus.
        key: The key of a recipe's ``[data]`` that drops rows, for the message.

    Raises:
        CardError: The corpus is ordered text.
    """
    if "document_id" in corpus.columns:
        raise CardError(
            f"[data] {key}: corpus '{corpus.name}' is ordered text, "
            "of which no sentence can be left out"
        )


def limit_words(corpus: Corpus, max_words: int) -> Corpus:
    """Return the rows in which no text has more words than a limit; white space separates words.

    Args:
        corpus: The corpus.
        max_words: The largest number of words of a text that stays.

    Raises:
        CardError: The corpus is ordered text, or fewer than two rows are left.
    """
    check_unordered(corpus, key="max_words")
    # Whether all texts of a row are short enough, so far.
    is_short = pa.chunked_array([np.ones(len(corpus), dtype=bool)])
    for name in corpus.columns:
        if name not in TEXT_COLUMNS:
            continue
        texts = pc.utf8_trim_whitespace(corpus.table.column(name))
        # n words have n - 1 gaps between them, so n is within the limit if the gaps are fewer.
        n_gaps = pc.count_substring_regex(texts, r"\s+")
        is_short = pc.and_(is_short, pc.less(n_gaps, max_words))
    short = replace(corpus, table=corpus.table.filter(is_short))
    if len(short) < 2:
        raise CardError(
            f"[data] max_words {max_words}: leaves {len(short)} of {len(corpus)} rows of "
            f"'{corpus.name}'"
        )
    return short
