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
    """Return the rows of a corpus for which a condition of a recipe holds.

    Args:
        corpus: The corpus.
        condition: The name of a column, a sign and a value, for example ``label = entailment``,
            ``label != neutral`` or ``score >= 4``. Text is compared by ``=`` and ``!=`` alone.

    Raises:
        CardError: It is no condition, does not fit the corpus, or leaves fewer than two rows.
    """
    # Messages begin with it.
    subject = f"[data] where '{condition}'"
    match = _CONDITION.fullmatch(condition)
    column_name, sign, value = match.groups() if match else ("", "", "")
    if not value:
        raise CardError(f"{subject}: give COLUMN = VALUE, such as label = entailment or score >= 4")
    if column_name not in corpus.columns:
        suggestion = suggest(column_name, corpus.columns)
        raise CardError(
            f"{subject}: corpus '{corpus.name}' has no {column_name}{suggestion}; "
            f"it has {', '.join(corpus.columns)}"
        )
    # ``score`` and ``document_id`` are columns of numbers.
    is_number = column_name in NUMBER_COLUMNS
    if not is_number and sign not in TEXT_SIGNS:
        raise CardError(
            f"{subject}: {column_name} is text; compare it by {' or '.join(TEXT_SIGNS)}"
        )
    try:
        operand = pa.scalar(float(value)) if is_number else pa.scalar(value, pa.large_string())
    except ValueError as error:
        raise CardError(f"{subject}: {column_name} is a number, '{value}' is not") from error
    column = corpus.table.column(column_name)
    is_selected = COMPARISONS[sign](column, operand)
    table = corpus.table.filter(is_selected)
    if table.num_rows < 2:
        labels = sorted(column.unique().to_pylist()) if column_name == "label" else []
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
    """Return labelled pairs as rows of another form, for contrastive training.

    * ``pairs``: each pair, whatever its label, is a row with an ``anchor`` and a ``positive``.
    * ``triplets``: each distinct first sentence is the ``anchor`` of a row; its ``positive`` is a
      second sentence with the label entailment, its ``negative`` one with contradiction.
    * ``two_negatives``: as ``triplets``, and ``second_negative`` is one with neutral.

    Of several second sentences with a label the first one counts. An anchor without one for each
    label is dropped.

    Args:
        corpus: A corpus with the columns ``first`` and ``second``, and for most forms ``label``.
        form: ``pairs``, ``triplets`` or ``two_negatives``.

    Raises:
        UnknownName: There is no such form.
        CardError: Fewer than two first sentences have all labels that the form needs.
        DataError: The corpus lacks a column.
    """
    # Name of each column except ``anchor`` -> the label of its sentences; empty for ``pairs``.
    label_by_column = look_up("form of rows", form, FORMS)
    corpus.require("first", "second")
    if label_by_column:
        corpus.require("label")
    else:
        pairs = corpus.table.select(["first", "second"]).rename_columns(["anchor", "positive"])
        return replace(corpus, table=pairs)
    # For each first sentence: label -> second sentence.
    seconds_by_anchor: dict[str, dict[str, str]] = {}
    for row in corpus.table.select(["first", "second", "label"]).to_pylist():
        second_by_label = seconds_by_anchor.setdefault(row["first"], {})
        second_by_label.setdefault(row["label"], row["second"])
    required_labels = set(label_by_column.values())
    complete_anchors = {
        anchor: second_by_label
        for anchor, second_by_label in seconds_by_anchor.items()
        if second_by_label.keys() >= required_labels
    }
    if len(complete_anchors) < 2:
        raise CardError(
            f"[data] form '{form}': {len(complete_anchors)} first sentences of corpus "
            f"'{corpus.name}' have {', '.join(label_by_column.values())}"
        )
    columns = {"anchor": pa.array(list(complete_anchors), pa.large_string())}
    for column_name, label in label_by_column.items():
        seconds = [second_by_label[label] for second_by_label in complete_anchors.values()]
        columns[column_name] = pa.array(seconds, pa.large_string())
    return replace(corpus, table=pa.table(columns))


def repeat_rows(corpus: Corpus, max_rows: int) -> Corpus:
    """Return a corpus with all its rows several times, one copy after another.

    Args:
        corpus: The corpus.
        max_rows: The largest number of rows; there are as many whole copies as it allows. A corpus
            of more rows stays as it is.
    """
    n_times = max(1, max_rows // len(corpus))
    return replace(corpus, table=pa.concat_tables([corpus.table] * n_times))


def check_unordered(corpus: Corpus, key: str) -> None:
    """Check that rows of a corpus may be dropped.

    They may not if it is ordered text, where each sentence follows the one before it in a document:
    it has the column ``document_id``.

    Args:
        corpus: The corpus.
        key: The key of a recipe's section ``[data]`` that drops rows, for the message.

    Raises:
        CardError: The corpus is ordered text.
    """
    if "document_id" in corpus.columns:
        raise CardError(
            f"[data] {key}: corpus '{corpus.name}' is ordered text, "
            "of which no sentence can be left out"
        )


def limit_words(corpus: Corpus, max_words: int) -> Corpus:
    """Return the rows in which no text has more words than a limit.

    Blanks, tabs and line ends separate words; a no-break space, for example, does not.

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
        # A text of n words has n - 1 gaps: n <= max_words is the same as n_gaps < max_words. In
        # patterns of Arrow ``\s`` is white space of ASCII alone.
        n_gaps = pc.count_substring_regex(texts, r"\s+")
        is_short = pc.and_(is_short, pc.less(n_gaps, max_words))
    short = replace(corpus, table=corpus.table.filter(is_short))
    if len(short) < 2:
        raise CardError(
            f"[data] max_words {max_words}: leaves {len(short)} of {len(corpus)} rows of "
            f"'{corpus.name}'"
        )
    return short
