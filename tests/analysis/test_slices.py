"""Kinds of pairs, by sentences that are plainly of them."""

from __future__ import annotations

import pytest

from stsbench.analysis.mistakes import SLICINGS, is_negated, names_in, numbers_in, slices


@pytest.mark.parametrize(
    ("rule", "first", "second", "kind"),
    [
        ("overlap", "a b c d", "a b c d", "high"),
        ("overlap", "a b c d", "a b x y", "middle"),
        ("overlap", "a b c d", "d w x y z", "low"),
        ("overlap", "", "", "low"),
        ("length", "a b", "a b c", "short"),
        ("length", "a " * 12, "b " * 10, "middle"),
        ("length", "a " * 20, "b " * 12, "long"),
        ("negation", "He did it.", "He didn't do it.", "one"),
        ("negation", "Nobody came", "They did not come", "both"),
        ("negation", "A knot", "Nothingness", "neither"),
        ("numbers", "Two men", "2 men", "same"),
        ("numbers", "1,000 men", "1000 men", "same"),
        ("numbers", "Two men", "three men", "different"),
        ("numbers", "men", "women", "none"),
        ("names", "They saw Paris", "We saw Rome", "different"),
        ("names", "Here is Rome", "That is Rome", "same"),
        ("names", "Rome fell", "He fell", "none"),
    ],
)
def test_a_pair_is_of_its_kind(rule, first, second, kind):
    assert SLICINGS[rule](first, second) == kind
    assert slices([first], [second])[rule] == [kind]


def test_words_are_taken_as_they_stand():
    assert is_negated("We can’t") and not is_negated("cant")
    assert numbers_in("3.5 of ten, 12.") == {"3.5", "10", "12"}
    assert names_in("SHOUTED NEWS") == names_in("What I say") == set()
