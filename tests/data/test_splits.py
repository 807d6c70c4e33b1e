"""What splits are told apart by: the digest of their rows."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stsbench.core.cards import SplitSection
from stsbench.core.errors import DataError
from stsbench.data.splits import (
    CaptionSplit,
    LabelledPairSplit,
    LabelledSplit,
    PairSplit,
    check_form,
    check_split,
    row_bytes,
)

# Separators, what escapes them, and a surrogate: all that a text may be mistaken for.
TEXT = st.text(st.sampled_from("ab\x1b\x1e\x1f\n\udcff"), max_size=6)
ROWS = st.lists(st.lists(TEXT, min_size=2, max_size=2), max_size=3)


def pairs(left: str, right: str) -> PairSplit:
    return PairSplit(sentences1=[left], sentences2=[right], gold=np.array([1.0]), subset=[""])


def test_a_separator_in_a_text_is_not_one_between_texts() -> None:
    assert pairs("a\x1fdog", "b").digest != pairs("a", "dog\x1fb").digest
    labels = np.array([0])
    one = LabelledPairSplit(sentences1=["a\x1fdog"], sentences2=["b"], labels=labels)
    assert (
        one.digest
        != LabelledPairSplit(sentences1=["a"], sentences2=["dog\x1fb"], labels=labels).digest
    )


def test_the_digest_of_text_without_separators_is_the_plain_join() -> None:
    assert (
        pairs("a dog", "un café").digest
        == hashlib.sha256("a dog\x1fun café\x1f1.0\x1e".encode()).hexdigest()
    )


@settings(max_examples=500, deadline=None, derandomize=True)
@given(ROWS, ROWS)
def test_different_rows_never_share_what_is_hashed(
    one: list[list[str]], other: list[list[str]]
) -> None:
    def hashed(rows: list[list[str]]) -> bytes:
        return b"".join(row_bytes([*row, "1.0"]) for row in rows)

    assert (hashed(one) == hashed(other)) == (one == other)
    left, right = ([row[side] for row in one] for side in (0, 1))
    split = PairSplit(
        sentences1=left, sentences2=right, gold=np.ones(len(one)), subset=[""] * len(one)
    )
    assert split.digest == hashlib.sha256(hashed(one)).hexdigest()


@settings(max_examples=500, deadline=None, derandomize=True)
@given(st.lists(TEXT, min_size=1, max_size=4))
def test_a_row_can_be_read_back_from_what_is_hashed(row: list[str]) -> None:
    fields, escaped = [""], False
    for character in row_bytes(row).decode("utf-8", "surrogatepass")[:-1]:
        if escaped or character not in "\x1b\x1f":
            fields[-1] += character
            escaped = False
        elif character == "\x1b":
            escaped = True
        else:
            fields.append("")
    assert fields == row


PAIRS = PairSplit(
    sentences1=["a", "b"], sentences2=["c", "d"], gold=np.array([1.0, 2.0]), subset=["", ""]
)
LABELLED = LabelledSplit(sentences=["a", "b"], labels=np.array([0, 1]), classes=["no", "yes"])
LABELLED_PAIRS = LabelledPairSplit(
    sentences1=["a"], sentences2=["b"], labels=np.array([0]), classes=["no", "yes"]
)
CAPTIONS = CaptionSplit(
    captions=["a", "b"],
    image_features=np.ones((2, 3), np.float32),
    image_of_caption=np.array([0, 1]),
)
FAULTS: list[tuple[Any, dict[str, Any], str]] = [
    (PAIRS, {"sentences1": "ab"}, "sentences1 is of type str, not a list of texts"),
    (PAIRS, {"sentences1": None}, "sentences1 is of type NoneType"),
    (PAIRS, {"sentences1": ["a", 2]}, "sentences1, row 2: of type int, not text"),
    (PAIRS, {"sentences2": ["c", b"d"]}, "sentences2, row 2: of type bytes, not text"),
    (PAIRS, {"sentences2": ["c"]}, "sentences2 has 1 rows, 2 are needed"),
    (
        PAIRS,
        {"sentences2": ["c", "\ud800"]},
        r"sentences2, row 2: holds half a character \(a lone surrogate\)",
    ),
    (PAIRS, {"gold": [1.0, 2.0]}, "gold is of type list, not an array"),
    (
        PAIRS,
        {"gold": np.array([1.0])},
        r"gold is float64 of shape \(1,\), not float64 of shape \(2,\)",
    ),
    (PAIRS, {"gold": np.array([[1.0], [2.0]])}, r"gold is float64 of shape \(2, 1\)"),
    (PAIRS, {"gold": np.array([1, 2])}, r"gold is int64 of shape \(2,\), not float64"),
    (PAIRS, {"gold": np.array(["1", "2"])}, "gold is <U1"),
    (PAIRS, {"gold": np.array([1.0, np.nan])}, "row 2: gold score nan is not a finite number"),
    (PAIRS, {"gold": np.array([-np.inf, 1.0])}, "row 1: gold score -inf is not a finite number"),
    (PAIRS, {"subset": [""]}, "subset has 1 rows, 2 are needed"),
    (PAIRS, {"subset": ["", 3]}, "subset, row 2: of type int"),
    (PAIRS, {"ungraded": [None]}, "ungraded, row 1: of type NoneType"),
    (LABELLED, {"sentences": ["a"]}, r"labels is int64 of shape \(2,\), not int64 of shape \(1,\)"),
    (LABELLED, {"labels": np.array([0.0, 1.0])}, "labels is float64"),
    (LABELLED, {"labels": np.array([0, 2])}, "row 2: label 2 is not the place of a class"),
    (LABELLED, {"labels": np.array([-1, 1])}, "row 1: label -1 is not the place of a class"),
    (
        LABELLED,
        {"labels": np.array([-1, 1]), "classes": []},
        "row 1: label -1 is not the place of a class",
    ),
    (LABELLED, {"classes": ["no", "no"]}, "a class is named twice"),
    (LABELLED_PAIRS, {"sentences2": []}, "sentences2 has 0 rows, 1 are needed"),
    (LABELLED_PAIRS, {"labels": np.array([5])}, "row 1: label 5"),
    (CAPTIONS, {"captions": ["a"]}, r"image_of_caption is int64 of shape \(2,\)"),
    (CAPTIONS, {"image_features": np.ones(3, np.float32)}, "image_features is float32 of shape"),
    (
        CAPTIONS,
        {"image_features": [[1.0], [1.0, 2.0]]},
        "image_features is of type list, not an array",
    ),
    (CAPTIONS, {"image_features": np.ones((2, 3))}, "image_features is float64 of shape"),
    (
        CAPTIONS,
        {"image_features": np.full((2, 3), np.inf, np.float32)},
        "the features of image 0 are not finite",
    ),
    (CAPTIONS, {"image_of_caption": np.array([0, 2])}, "row 2: image 2 is not one of the 2 images"),
]


@pytest.mark.parametrize(("split", "changes", "message"), FAULTS)
def test_a_fault_of_form_is_named(split: Any, changes: dict[str, Any], message: str) -> None:
    check_form(split, where="mine")
    with pytest.raises(DataError, match=f"^mine: {message}"):
        check_form(replace(split, **changes), where="mine")


@pytest.mark.parametrize("returned", [None, [], {"sentences": []}, PairSplit])
def test_what_is_no_split_is_named(returned: object) -> None:
    with pytest.raises(
        DataError, match="the reader returned a .*, a split is one of PairSplit, LabelledSplit"
    ):
        check_form(returned, where="mine")


def test_gold_scores_keep_to_the_cards_range() -> None:
    facts = SplitSection(n=2)
    check_split(PAIRS, facts, gold_range=(1.0, 2.0), where="mine")
    for low, high, row, score in ((1.5, 2.0, 1, 1), (0.0, 1.5, 2, 2)):
        message = f"gold score {score} is not in the card's gold_range, {low:g} to {high:g}"
        with pytest.raises(DataError, match=f"mine: row {row}: {message}"):
            check_split(PAIRS, facts, gold_range=(low, high), where="mine")


def test_labels_are_counted_where_a_reader_names_no_classes() -> None:
    unnamed = replace(LABELLED, classes=())
    check_split(unnamed, SplitSection(n=2, labels={"0": 1, "1": 1}), where="mine")
    with pytest.raises(DataError, match="{'0': 1, '1': 1}, .* {'no': 1, 'yes': 1}"):
        check_split(unnamed, SplitSection(n=2, labels={"no": 1, "yes": 1}), where="mine")
