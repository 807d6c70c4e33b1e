"""Letters that tell which encoders cannot be told apart."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stsbench.compare.letters import letter_display


def different(letters: list[str]) -> np.ndarray:
    """Which pairs a display says are different: those that share no letter."""
    return np.array([[not set(one) & set(other) for other in letters] for one in letters])


def fewest_groups(apart: np.ndarray) -> int:
    """By brute force: in how many groups of encoders that do not differ all such pairs can be held."""
    k = len(apart)
    subsets = [s for size in range(1, k + 1) for s in itertools.combinations(range(k), size)]
    cliques = [set(s) for s in subsets if not apart[np.ix_(s, s)].any()]
    largest = [c for c in cliques if not any(c < other for other in cliques)]
    pairs = [{a, b} for a in range(k) for b in range(a, k) if not apart[a, b]]
    return next(
        count
        for count in range(1, len(largest) + 1)
        for chosen in itertools.combinations(largest, count)
        if all(any(pair <= group for group in chosen) for pair in pairs)
    )


@pytest.mark.parametrize(
    "letters",
    [
        # Tukey's test of Stata's data set "yield", fertilizer by irrigation, as R's agricolae (HSD.test) groups them; Stata's
        # pwcompare gives the same groups.
        ["a", "ab", "abc", "bcd", "cd", "de", "ef", "ef", "f", "f"],
        # The first example of R's multcompView: of A-B, A-C and B-C only the last differs.
        ["ab", "a", "b"],
        ["a"],
        ["a", "a", "a"],
        ["a", "b", "c"],
    ],
)
def test_the_letters_are_those_of_other_software(letters):
    assert letter_display(different(letters)) == letters


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_of_all_ways_in_which_few_can_differ_every_one_is_told_with_the_fewest_letters(k):
    pairs = list(itertools.combinations(range(k), 2))
    for differ in itertools.product([False, True], repeat=len(pairs)):
        apart = np.zeros((k, k), dtype=bool)
        for (a, b), one in zip(pairs, differ, strict=True):
            apart[a, b] = apart[b, a] = one
        letters = letter_display(apart)
        assert np.array_equal(different(letters), apart), apart
        assert len(set("".join(letters))) == fewest_groups(apart), apart


def test_of_many_encoders_a_letter_is_shared_exactly_by_those_that_do_not_differ():
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores, errors = np.sort(rng.normal(size=40))[::-1], rng.uniform(0.1, 0.5, size=40)
        apart = np.abs(scores[:, None] - scores) > np.hypot(errors[:, None], errors)
        letters = letter_display(apart)
        assert np.array_equal(different(letters), apart) and letters[0].startswith("a")


def test_letters_go_on_after_the_alphabet():
    letters = letter_display(~np.eye(106, dtype=bool))
    assert [letters[at] for at in (0, 25, 26, 51, 52, 103, 104)] == ["a", "z", "A", "Z", ".a", ".Z", "..a"]
    assert letter_display(np.zeros((0, 0), dtype=bool)) == []
