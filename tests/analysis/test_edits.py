"""Each edit changes what it says, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest

from stsbench.analysis.robustness import EDITS, edited

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


def test_words_and_letters_stay_where_only_their_order_changes():
    orders = {edited(EDITS["word order"], SENTENCE, seed) for seed in range(5)}
    assert len(orders) > 1 and all(sorted(one.split()) == sorted(SENTENCE.split()) for one in orders)
    typos = {EDITS["typo"].make(SENTENCE, np.random.default_rng(seed)) for seed in range(20)}
    assert len(typos) > 3 and all(sorted(one) == sorted(SENTENCE) for one in typos)
    assert all(sum(a != b for a, b in zip(one, SENTENCE, strict=True)) == 2 for one in typos)
