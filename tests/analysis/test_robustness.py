"""Edits and feature suppression against counts by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stsbench.analysis.robustness import EDITS, Robustness, edited
from stsbench.core.errors import DataError
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain


class Bag(Plain):
    """Knows letters, and nothing of their order or case."""

    def encode(self, sentences: Sequence[str]) -> Any:
        letters = "abcdefghijklmnopqrstuvwxyz"
        return np.array([[s.lower().count(letter) for letter in letters] for s in sentences], np.float32) + 0.01


def cosine(a: Any, b: Any) -> Any:
    a, b = (row.astype(float) for row in (a, b))
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_what_an_encoder_does_not_see_moves_nothing():
    rows = {row["edit"]: row for row in Robustness().tables(bed(Bag()))["edits"]}
    for name in ("lower case", "upper case", "no punctuation", "typo", "word order *"):
        assert rows[name]["cosine"] == pytest.approx(1, abs=1e-6)
        assert rows[name]["score_change"] == pytest.approx(0, abs=1e-12)
    assert rows["negation *"]["cosine"] < 0.999


def test_scores_change_by_what_edited_sentences_score():
    found = Robustness(seed=2).tables(bed(Plain(d=8)))
    (subject,) = bed(Plain(d=8)).subjects()
    split = subject.pairs()
    for row, (name, edit) in zip(found["edits"], EDITS.items(), strict=True):
        sides = [Plain(d=8).encode([edited(edit, text, 2) for text in side]) for side in split.sides]
        after = stats.spearmanr([cosine(a, b) for a, b in zip(*sides, strict=True)], split.gold).statistic
        before = stats.spearmanr(subject.cosines, split.gold).statistic
        assert row["score_change"] == pytest.approx(after - before), name
        assert row["low"] <= row["score_change"] <= row["high"]


def test_a_sentence_is_held_against_its_negation_and_its_paraphrase():
    (row,) = Robustness(above=3.0).tables(bed(Bag()))["suppression"]
    split: Any = bed(Bag()).read.task.load("test")
    pairs = [(a, b) for a, b, g in zip(*split.sides, split.gold, strict=True) if g > 3 and a != b]
    nearer = 0
    for first, second in pairs:
        a, b, c = Bag().encode([first, second, edited(EDITS["negation"], first, 0)])
        nearer += cosine(a, c) >= cosine(a, b)
    assert (row["suppression"], row["n"]) == (pytest.approx(nearer / len(pairs)), len(pairs))
    assert row["low"] <= row["suppression"] <= row["high"]
    with pytest.raises(DataError, match="gold score above 9"):
        Robustness(above=9.0).tables(bed(Bag()))


def test_the_picture_of_robustness_has_a_line_an_edit():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    analysis = Robustness()
    axes = analysis.draw(analysis.tables(bed(Bag())), "mine").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        f"{name} *" if edit.matters else name for name, edit in EDITS.items()
    ]


SENTENCE = "The men aren't playing, they are sitting outside."


@pytest.mark.parametrize(
    ("name", "sentence", "wanted"),
    [
        ("lower case", "A Man", "a man"),
        ("upper case", "A Man", "A MAN"),
        ("no punctuation", "Well, it's done.", "Well its done"),
        ("no punctuation", "...", "..."),
        ("typo", "a cat", "a cat"),
        ("typo", "abcd", "acbd"),
        ("negation", "A man is walking", "A man is not walking"),
        ("negation", "A man is not walking", "A man is walking"),
        ("negation", "They didn't go", "They did go"),
        ("negation", "Men walk", "It is not true that men walk"),
    ],
)
def test_an_edit_does_what_it_says(name, sentence, wanted):
    assert edited(EDITS[name], sentence, 0) == wanted


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_depends_on_the_sentence_and_the_seed_alone(name):
    found = [edited(EDITS[name], text, 3) for text in (SENTENCE, "another one", SENTENCE)]
    assert found[0] == found[2]
    assert edited(EDITS[name], "", 3) is not None
