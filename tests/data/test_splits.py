"""What splits are told apart by: the digest of their rows."""

from __future__ import annotations

import hashlib

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stsbench.data.splits import LabelledPairSplit, PairSplit, row_bytes

# Separators, what escapes them, and a surrogate: all that a text may be mistaken for.
TEXT = st.text(st.sampled_from("ab\x1b\x1e\x1f\n\udcff"), max_size=6)
ROWS = st.lists(st.lists(TEXT, min_size=2, max_size=2), max_size=3)


def pairs(left: str, right: str) -> PairSplit:
    return PairSplit(sentences1=[left], sentences2=[right], gold=np.array([1.0]), subset=[""])


def test_a_separator_in_a_text_is_not_one_between_texts() -> None:
    assert pairs("a\x1fdog", "b").digest != pairs("a", "dog\x1fb").digest
    labels = np.array([0])
    one = LabelledPairSplit(sentences1=["a\x1fdog"], sentences2=["b"], labels=labels)
    assert one.digest != LabelledPairSplit(sentences1=["a"], sentences2=["dog\x1fb"], labels=labels).digest


def test_the_digest_of_text_without_separators_is_the_plain_join() -> None:
    assert pairs("a dog", "un café").digest == hashlib.sha256("a dog\x1fun café\x1f1.0\x1e".encode()).hexdigest()


@settings(max_examples=500, deadline=None, derandomize=True)
@given(ROWS, ROWS)
def test_different_rows_never_share_what_is_hashed(one: list[list[str]], other: list[list[str]]) -> None:
    def hashed(rows: list[list[str]]) -> bytes:
        return b"".join(row_bytes([*row, "1.0"]) for row in rows)

    assert (hashed(one) == hashed(other)) == (one == other)
    left, right = ([row[side] for row in one] for side in (0, 1))
    split = PairSplit(sentences1=left, sentences2=right, gold=np.ones(len(one)), subset=[""] * len(one))
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
