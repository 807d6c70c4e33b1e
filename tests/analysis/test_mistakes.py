"""What kinds of pairs cost: the sum over pairs by hand, and intervals against leaving each pair out."""

from __future__ import annotations

import math
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
    assert pair_costs(COSINES, gold).tolist() == pytest.approx([(a - b) ** 2 / 2 for a, b in zip(u, v, strict=True)])
    assert pair_costs(COSINES, gold).mean() == pytest.approx(1 - stats.spearmanr(COSINES, gold).statistic)
    parts = [slice_cost(COSINES, gold, one).cost for one in (MEMBERS, 1 - MEMBERS)]
    assert sum(parts) == pytest.approx(1 - stats.spearmanr(COSINES, gold).statistic)


def both(x: Any, y: Any, members: Any) -> Any:
    costs = pair_costs(x, y)
    inside = float((members * costs).mean())
    return np.array([inside, inside / members.mean() - costs.mean()])


def test_intervals_are_those_of_the_jackknife():
    found = slice_cost(COSINES, GOLD, MEMBERS)
    left_out = np.array([both(*(np.delete(one, k) for one in (COSINES, GOLD, MEMBERS))) for k in range(300)])
    errors = np.sqrt(299 / 300 * ((left_out - left_out.mean(axis=0)) ** 2).sum(axis=0))
    reach = stats.t.ppf(0.975, 299) * errors
    assert [found.cost, found.excess] == pytest.approx(both(COSINES, GOLD, MEMBERS).tolist())
    widths = [(high - low) / 2 for low, high in (found.cost_interval, found.excess_interval)]
    assert widths == pytest.approx(reach.tolist(), rel=0.03)
    assert found.cost_interval[0] + widths[0] == pytest.approx(found.cost)


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
    assert all(math.isfinite(row["cost_low"]) and row["cost_low"] <= row["cost"] <= row["cost_high"] for row in rows)


def test_the_picture_of_mistakes_tells_what_may_be_nothing():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    row = {"encoder": "a", "slicing": "names", "kind": "none", "excess": 1.0, "excess_low": -1.0, "excess_high": 3.0}
    axes = Mistakes().draw({"slices": [row, {**row, "kind": "same", "excess_low": 0.5}]}, "mine").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["names: none", "names: same"]
    assert [line.get_markerfacecolor() for line in axes.lines[-2:]] == ["white", axes.lines[-1].get_color()]


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
