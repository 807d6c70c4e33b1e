"""Searches: which settings are tried, and in which order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import optuna
import pytest

from stsbench.core.cards import BudgetSection, SweepCard, ValueRange
from stsbench.core.errors import CardError
from stsbench.studies.search import SweepSetting, count_settings, propose_setting, setting_at


def made(
    search: str, values: Mapping[str, Any], *, settings: int | None = None, **facts: Any
) -> SweepCard:
    return SweepCard(
        name="Made", search=search, values=dict(values), budget=BudgetSection(settings=settings),
        **{"recipes": ["little"], **facts},
    )  # fmt: skip


def all_of(
    card: SweepCard, score: Callable[[SweepSetting, int], float | None] | None = None
) -> list[SweepSetting]:
    """What a search proposes, one after the other, of nothing scored or of what is scored at once."""
    study, found = optuna.create_study(direction="maximize"), list[SweepSetting]()
    while (trial := propose_setting(card, study.trials)) is not None:
        setting = setting_at(card, trial.params)
        study.add_trial(trial)
        if score is not None:
            again = propose_setting(card, study.trials[:-1])
            assert again is not None and again.params == trial.params
            value = score(setting, len(found))
            study.tell(len(found), value, optuna.trial.TrialState.FAIL if value is None else None)
        found.append(setting)
    return found


def test_a_grid_is_every_combination_once_the_last_key_fastest():
    card = made(
        "grid", {"a": [1, 2], "b": ValueRange(low=0.0, high=1.0, step=0.5)}, recipes=["x", "y"]
    )
    found = all_of(card)
    assert [(one.recipe, *one.values.values()) for one in found[:4]] == [
        ("x", 1, 0.0), ("x", 1, 0.5), ("x", 1, 1.0), ("x", 2, 0.0),
    ]  # fmt: skip
    assert len({repr(one) for one in found}) == len(found) == count_settings(card) == 12


@pytest.mark.parametrize(
    ("card", "says"),
    [
        (made("grid", {"a": [1]}, settings=3), "a grid is tried whole"),
        (made("grid", {"a": ValueRange(low=0.0, high=1.0)}), "a: a grid needs a list or a step"),
        (made("random", {"a": [1]}), "budget.* settings is missing: search 'random' draws so many"),
    ],
)
def test_what_a_search_cannot_carry_out_is_refused(card, says):
    with pytest.raises(CardError, match=says):
        count_settings(card)


def test_random_settings_depend_on_the_card_alone_and_lie_in_their_ranges():
    values = {
        "rate": ValueRange(low=1e-5, high=1e-1, log=True),
        "rows": ValueRange(low=8, high=64, step=8),
        "share": ValueRange(low=0.2, high=0.4),
        "head": ["fresh", "checkpoint"],
    }
    card = made("random", values, settings=60, recipes=["x", "y"], search_seed=4)
    found = all_of(card)
    assert (
        found
        == all_of(card, lambda setting, at: at)
        != all_of(made("random", values, settings=60, recipes=["x", "y"]))
    )
    assert len({repr(one) for one in found}) == 60 and {one.recipe for one in found} == {"x", "y"}
    rates = [math.log10(one.values["rate"]) for one in found]
    assert min(rates) < -4 and max(rates) > -2 and all(-5 <= rate <= -1 for rate in rates)
    assert {str(one.values["rows"]) for one in found} <= {*map(str, range(8, 65, 8))}
    assert all(0.2 <= one.values["share"] <= 0.4 for one in found)
    assert {one.values["head"] for one in found} == {"fresh", "checkpoint"}
    # A larger budget continues with the same.
    assert (
        all_of(made("random", values, settings=70, recipes=["x", "y"], search_seed=4))[:60] == found
    )


@pytest.mark.parametrize("search", ["random", "tpe"])
def test_a_search_ends_where_nothing_is_left(search):
    card = made(search, {"a": [1, 2, 3]}, settings=50)
    assert {one.values["a"] for one in all_of(card)} == {1, 2, 3} and count_settings(card) == 3
    assert len(all_of(made(search, {"a": ValueRange(low=1, high=3)}, settings=50))) == 3


def test_tpe_goes_where_scores_are_high_and_depends_on_what_is_known_alone():
    values = {
        "a": ValueRange(low=0.0, high=1.0),
        "b": ["bad", "good"],
        "c": ValueRange(low=8, high=64, step=8),
    }

    def score(setting: SweepSetting, at: int) -> float | None:
        assert setting.values["c"] in range(8, 65, 8)
        return None if at == 3 else -abs(setting.values["a"] - 0.7) - (setting.values["b"] == "bad")

    found = all_of(made("tpe", values, settings=40), score)
    assert len({repr(one) for one in found}) == 40
    assert (
        sum(abs(one.values["a"] - 0.7) < 0.2 and one.values["b"] == "good" for one in found[20:])
        > 8
    )
