"""Searches: in which order which settings of a sweep are tried."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from stsbench.cards.sweep import Range, SweepCard
from stsbench.errors import CardError, StsbenchError

RECIPE = "recipe"
DRAWS = 1000
"""So often is drawn anew what was tried already, before it is taken that nothing else is left."""


class SweepSetting(NamedTuple):
    """What one point of a sweep replaces of which recipe."""

    recipe: str
    values: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The same for equal settings."""
        return repr((self.recipe, sorted(self.values.items())))


class TriedSetting(NamedTuple):
    """A setting that was tried, and its mean over seeds; None where it failed."""

    setting: SweepSetting
    score: float | None


Propose = Callable[[SweepCard, Sequence[TriedSetting], Sequence[SweepSetting]], SweepSetting | None]
"""From what was tried and what is under way to the next setting; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """One way to search."""

    propose: Propose
    size: Callable[[SweepCard], int]
    """How many settings it tries at most."""
    learns: bool = False
    """Whether what it proposes hangs on scores."""
    needs: str = ""
    """A package that it needs."""

    def check(self, card: SweepCard) -> None:
        """Refuse a card that cannot be carried out.

        Raises:
            CardError: it has no budget of settings, or a range has no end of numbers.
            StsbenchError: a package is missing.
        """
        if self.needs and find_spec(self.needs) is None:
            raise StsbenchError(f"search '{card.search}' needs {self.needs}; run: pip install 'stsbench[{self.needs}]'")
        self.size(card)


def _choices(card: SweepCard, key: str) -> Sequence[Any]:
    values = card.values[key]
    if not isinstance(values, Range):
        return values
    if values.step is None:
        raise CardError(f'[values] {key}: a grid needs a list or a step; or take search = "random"')
    return values.points()


def _grid_size(card: SweepCard) -> int:
    if card.budget.settings is not None:
        raise CardError('[budget] settings: a grid is tried whole; leave it out, or take search = "random"')
    return len(card.recipes) * math.prod(len(_choices(card, key)) for key in card.values)


def _grid(card: SweepCard) -> Iterator[SweepSetting]:
    for recipe, *values in product(card.recipes, *(_choices(card, key) for key in card.values)):
        yield SweepSetting(recipe, dict(zip(card.values, values, strict=True)))


def _next_of_grid(card: SweepCard, tried: Sequence[TriedSetting], begun: Sequence[SweepSetting]) -> SweepSetting | None:
    known = {one.key for one in (*(one.setting for one in tried), *begun)}
    return next((one for one in _grid(card) if one.key not in known), None)


def _budget(card: SweepCard) -> int:
    if card.budget.settings is None:
        raise CardError(f"[budget] settings is missing: search '{card.search}' draws so many")
    return card.budget.settings


def _drawn(card: SweepCard, tried: Sequence[TriedSetting], begun: Sequence[SweepSetting]) -> SweepSetting | None:
    """The first draw that is new; the draws hang on the card alone."""
    known = {one.key for one in (*(one.setting for one in tried), *begun)}
    if len(known) >= _budget(card):
        return None
    for number in range(_budget(card) + DRAWS):
        rng = np.random.default_rng([card.search_seed, number])
        recipe = card.recipes[int(rng.integers(len(card.recipes)))]
        setting = SweepSetting(recipe, {key: _draw(values, rng) for key, values in card.values.items()})
        if setting.key not in known:
            return setting
    return None


def _draw(values: Sequence[Any] | Range, rng: np.random.Generator) -> Any:  # noqa: ANN401 - any TOML value
    if not isinstance(values, Range):
        return values[int(rng.integers(len(values)))]
    if values.step is not None:
        points = values.points()
        return points[int(rng.integers(len(points)))]
    if values.log:
        return values.number(math.exp(rng.uniform(math.log(values.low), math.log(values.high))))
    return values.number(rng.uniform(values.low, values.high))


def _by_tpe(card: SweepCard, tried: Sequence[TriedSetting], begun: Sequence[SweepSetting]) -> SweepSetting | None:
    """Optuna's tree-structured Parzen estimator, told all that was tried; what is under way it takes for bad."""
    import optuna

    known = {one.key for one in (*(one.setting for one in tried), *begun)}
    if len(known) >= _budget(card):
        return None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = {RECIPE: card.recipes, **card.values}
    spaces = {key: _distribution(values) for key, values in axes.items()}
    states = optuna.trial.TrialState
    told = [
        *((one, score, states.FAIL if score is None else states.COMPLETE) for one, score in tried),
        *((one, None, states.RUNNING) for one in begun),
    ]
    for number in range(DRAWS):
        # A proposal hangs on the card and on what is known alone: a sweep that was stopped goes on as it would have.
        seed = int(np.random.default_rng([card.search_seed, len(known), number]).integers(1 << 32))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for one, score, state in told:
            params = {key: _place(axes[key], value) for key, value in {RECIPE: one.recipe, **one.values}.items()}
            study.add_trial(optuna.create_trial(params=params, distributions=spaces, value=score, state=state))
        asked = {key: _at(axes[key], place) for key, place in study.ask(spaces).params.items()}
        setting = SweepSetting(asked.pop(RECIPE), asked)
        if setting.key not in known:
            return setting
    return None


def _distribution(values: Sequence[Any] | Range) -> Any:  # noqa: ANN401 - optuna's
    """Of a list its places: what stands there may be of any type."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if not isinstance(values, Range):
        return CategoricalDistribution(range(len(values)))
    high = values.points()[-1] if values.step is not None else values.high
    return FloatDistribution(values.low, high, log=values.log, step=values.step)


def _place(values: Sequence[Any] | Range, value: Any) -> Any:  # noqa: ANN401 - any TOML value
    return float(value) if isinstance(values, Range) else list(values).index(value)


def _at(values: Sequence[Any] | Range, place: Any) -> Any:  # noqa: ANN401 - any TOML value
    return values.number(place) if isinstance(values, Range) else values[place]


SEARCHES: Mapping[str, Search] = {
    "grid": Search(propose=_next_of_grid, size=_grid_size),
    "random": Search(propose=_drawn, size=_budget),
    "tpe": Search(propose=_by_tpe, size=_budget, learns=True, needs="optuna"),
}
