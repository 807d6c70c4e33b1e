"""Searches: which settings are tried, and in which order."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import pytest

from stsbench.core.cards import BudgetFacts, Range, SweepCard
from stsbench.core.errors import CardError, StsbenchError
from stsbench.studies.sweep import SEARCHES, SweepSetting, TriedSetting

needs_optuna = pytest.mark.skipif(find_spec("optuna") is None, reason="needs the extra optuna")


def made(search: str, values: Mapping[str, Any], *, settings: int | None = None, **facts: Any) -> SweepCard:
    return SweepCard(
        name="Made", search=search, values=dict(values), budget=BudgetFacts(settings=settings),
        **{"recipes": ["little"], **facts},
    )  # fmt: skip


def all_of(card: SweepCard) -> list[SweepSetting]:
    """What a search proposes, one after the other, of nothing scored."""
    found: list[SweepSetting] = []
    while (setting := SEARCHES[card.search].propose(card, [], found)) is not None:
        found.append(setting)
    return found


def test_a_grid_is_every_combination_once_the_last_key_fastest():
    card = made("grid", {"a": [1, 2], "b": Range(low=0.0, high=1.0, step=0.5)}, recipes=["x", "y"])
    found = all_of(card)
    assert [(one.recipe, *one.values.values()) for one in found[:4]] == [
        ("x", 1, 0.0), ("x", 1, 0.5), ("x", 1, 1.0), ("x", 2, 0.0),
    ]  # fmt: skip
    assert len({one.key for one in found}) == len(found) == SEARCHES["grid"].size(card) == 12


@pytest.mark.parametrize(
    ("card", "says"),
    [
        (made("grid", {"a": [1]}, settings=3), "a grid is tried whole"),
        (made("grid", {"a": Range(low=0.0, high=1.0)}), "a: a grid needs a list or a step"),
        (made("random", {"a": [1]}), "budget.* settings is missing: search 'random' draws so many"),
    ],
)
def test_what_a_search_cannot_carry_out_is_refused(card, says):
    with pytest.raises(CardError, match=says):
        SEARCHES[card.search].check(card)


def test_random_settings_hang_on_the_card_alone_and_lie_in_their_ranges():
    values = {
        "rate": Range(low=1e-5, high=1e-1, log=True),
        "rows": Range(low=8, high=64, step=8),
        "share": Range(low=0.2, high=0.4),
        "head": ["fresh", "checkpoint"],
    }
    card = made("random", values, settings=60, recipes=["x", "y"], search_seed=4)
    found = all_of(card)
    assert found == all_of(card) != all_of(made("random", values, settings=60, recipes=["x", "y"]))
    assert len({one.key for one in found}) == 60 and {one.recipe for one in found} == {"x", "y"}
    rates = [math.log10(one.values["rate"]) for one in found]
    assert min(rates) < -4 and max(rates) > -2 and all(-5 <= rate <= -1 for rate in rates)
    assert {one.values["rows"] for one in found} <= set(range(8, 65, 8))
    assert all(0.2 <= one.values["share"] <= 0.4 for one in found)
    assert {one.values["head"] for one in found} == {"fresh", "checkpoint"}
    # A larger budget goes on with the same.
    assert all_of(made("random", values, settings=70, recipes=["x", "y"], search_seed=4))[:60] == found


def test_random_ends_where_nothing_is_left():
    assert len(all_of(made("random", {"a": [1, 2, 3]}, settings=50))) == 3


def test_a_search_whose_package_is_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr("stsbench.studies.sweep.find_spec", lambda name: None)
    card = made("tpe", {"a": [1, 2]}, settings=2)
    with pytest.raises(StsbenchError, match=r"search 'tpe' needs optuna; run: pip install 'stsbench\[optuna\]'"):
        SEARCHES["tpe"].check(card)


@needs_optuna
def test_tpe_goes_where_scores_are_high_and_hangs_on_what_is_known_alone():
    values = {"a": Range(low=0.0, high=1.0), "b": ["bad", "good"], "c": Range(low=8, high=64, step=8)}
    card, tried = made("tpe", values, settings=40), list[TriedSetting]()
    while (setting := SEARCHES["tpe"].propose(card, tried, [])) is not None:
        assert setting == SEARCHES["tpe"].propose(card, tried, [])
        assert setting.values["c"] in range(8, 65, 8)
        score = -abs(setting.values["a"] - 0.7) - (setting.values["b"] == "bad")
        tried.append(TriedSetting(setting, None if len(tried) == 3 else score))
    assert len({one.setting.key for one in tried}) == 40
    late = [one.setting.values for one in tried[20:]]
    assert sum(abs(one["a"] - 0.7) < 0.2 and one["b"] == "good" for one in late) > 8


@needs_optuna
def test_tpe_proposes_another_while_one_is_under_way():
    card = made("tpe", {"a": [1, 2, 3]}, settings=9)
    assert {one.values["a"] for one in all_of(card)} == {1, 2, 3}
