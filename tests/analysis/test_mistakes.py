"""What kinds of pairs cost: the sum over pairs by hand, and intervals against leaving each pair out; edits against counts by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stsbench.analysis.mistakes import (
    SLICINGS,
    Mistakes,
    is_negated,
    names_in,
    numbers_in,
    pair_costs,
    slice_cost,
    slices,
)
from stsbench.analysis.robustness import EDITS, Robustness, edit_text
from stsbench.core.errors import DataError
from tests.analysis.beds import bed
from tests.encoders.fakes import Plain

RNG = np.random.default_rng(5)
GOLD = RNG.normal(size=300)
COSINES = GOLD + RNG.normal(size=300)
MEMBERS = (RNG.random(300) < 0.3).astype(float)


def test_what_pairs_cost_adds_up_to_what_the_score_lacks():
    gold = np.round(GOLD)
    u, v = stats.rankdata(COSINES), stats.rankdata(gold)
    u, v = (u - u.mean()) / u.std(), (v - v.mean()) / v.std()
    assert pair_costs(COSINES, gold).tolist() == pytest.approx(
        [(a - b) ** 2 / 2 for a, b in zip(u, v, strict=True)]
    )
    assert pair_costs(COSINES, gold).mean() == pytest.approx(
        1 - stats.spearmanr(COSINES, gold).statistic
    )
    parts = [slice_cost(COSINES, gold, one).cost for one in (MEMBERS, 1 - MEMBERS)]
    assert sum(parts) == pytest.approx(1 - stats.spearmanr(COSINES, gold).statistic)


def test_without_two_different_cosines_nothing_has_a_cost():
    with pytest.raises(DataError, match="no rank correlation exists"):
        slice_cost(np.full(300, 0.5), GOLD, MEMBERS)


def both(x: Any, y: Any, members: Any) -> Any:
    costs = pair_costs(x, y)
    inside = float((members * costs).mean())
    return np.array([inside, inside / members.mean() - costs.mean()])


def test_intervals_are_those_of_the_jackknife():
    found = slice_cost(COSINES, GOLD, MEMBERS)
    left_out = np.array(
        [both(*(np.delete(one, k) for one in (COSINES, GOLD, MEMBERS))) for k in range(300)]
    )
    errors = np.sqrt(299 / 300 * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0))
    reach = stats.t.ppf(0.975, 299) * errors
    assert [found.cost, found.excess] == pytest.approx(both(COSINES, GOLD, MEMBERS).tolist())
    widths = [(found.cost_high - found.cost_low) / 2, (found.excess_high - found.excess_low) / 2]
    assert widths == pytest.approx(reach.tolist(), rel=0.03)
    assert found.cost_low + widths[0] == pytest.approx(found.cost)


def test_the_worst_pairs_are_those_whose_ranks_differ_most():
    (subject,) = bed(Plain()).subjects()
    split = subject.pairs()
    found = Mistakes(k=3).tables(bed(Plain(), Plain("other", d=9)))
    ranks = [(stats.rankdata(x) - 0.5) / split.n for x in (subject.cosines, split.gold)]
    worst = sorted(range(split.n), key=lambda at: -abs(ranks[0][at] - ranks[1][at]))[:3]
    mine = [row for row in found["worst"] if row["encoder"] == "plain"]
    assert [(row["sentence1"], row["sentence2"]) for row in mine] == [
        (split.sentences1[a], split.sentences2[a]) for a in worst
    ]
    assert mine[0]["error"] == pytest.approx(ranks[0][worst[0]] - ranks[1][worst[0]])
    assert [(row["encoder"], row["other"]) for row in found["differ"]] == [("plain", "other")] * 3
    lacks = 100 * (1 - stats.spearmanr(subject.cosines, split.gold).statistic)
    rows = [row for row in found["slices"] if row["encoder"] == "plain"]
    for name in {row["slicing"] for row in rows}:
        parts = [row for row in rows if row["slicing"] == name]
        if sum(row["n"] for row in parts) == split.n:
            assert sum(row["cost"] for row in parts) == pytest.approx(lacks)
    assert all(
        math.isfinite(row["cost_low"]) and row["cost_low"] <= row["cost"] <= row["cost_high"]
        for row in rows
    )


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
    assert names_in("So I'm here, I’ve seen Ivo's, and Iris") == {"ivo's", "iris"}


class Bag(Plain):
    """Knows letters, and nothing of their order or case."""

    def encode(self, sentences: Sequence[str]) -> Any:
        letters = "abcdefghijklmnopqrstuvwxyz"
        return (
            np.array(
                [[s.lower().count(letter) for letter in letters] for s in sentences], np.float32
            )
            + 0.01
        )


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
    for row, name in zip(found["edits"], EDITS, strict=True):
        sides = [
            Plain(d=8).encode([edit_text(name, text, 2) for text in side]) for side in split.sides
        ]
        after = stats.spearmanr(
            [cosine(a, b) for a, b in zip(*sides, strict=True)], split.gold
        ).statistic
        before = stats.spearmanr(subject.cosines, split.gold).statistic
        assert row["score_change"] == pytest.approx(after - before), name
        assert row["low"] <= row["score_change"] <= row["high"]


def test_a_sentence_is_held_against_its_negation_and_its_paraphrase():
    (row,) = Robustness(above=3.0).tables(bed(Bag()))["suppression"]
    split: Any = bed(Bag()).loaded_task.task.load("test")
    pairs = [(a, b) for a, b, g in zip(*split.sides, split.gold, strict=True) if g > 3 and a != b]
    nearer = 0
    for first, second in pairs:
        a, b, c = Bag().encode([first, second, edit_text("negation", first, 0)])
        nearer += cosine(a, c) >= cosine(a, b)
    assert (row["suppression"], row["n"]) == (pytest.approx(nearer / len(pairs)), len(pairs))
    assert row["low"] <= row["suppression"] <= row["high"]
    with pytest.raises(DataError, match="gold score above 9"):
        Robustness(above=9.0).tables(bed(Bag()))


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
        ("negation", "I do not.", "I do."),
        ("negation", "Never say so", "say so"),
        ("negation", "You can’t go", "You can go"),
        ("negation", "They won't go", "They will go"),
        ("negation", "This cannot be", "This can be"),
        ("negation", "Men walk", "It is not true that men walk"),
    ],
)
def test_an_edit_does_what_it_says(name, sentence, wanted):
    assert edit_text(name, sentence, 0) == wanted


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_depends_on_the_sentence_and_the_seed_alone(name):
    found = [edit_text(name, text, 3) for text in (SENTENCE, "another one", SENTENCE)]
    assert found[0] == found[2]
    assert edit_text(name, "", 3) is not None
