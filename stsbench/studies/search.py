"""The settings of a sweep: the points of its space, and which of them is tried next."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stsbench.core.cards import SweepCard, ValueRange
from stsbench.core.errors import CardError, look_up

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


Axis = Sequence[Any] | ValueRange
RECIPE = "recipe"
MAX_DRAWS = 200
"""How often a setting is drawn that was tried already, until all settings count as tried."""


class SearchStrategy(NamedTuple):
    """A search: by a sampler of Optuna, or all settings in order.

    Attributes:
        sampler: The class name of the sampler; empty for all settings in order.
        options: The sampler's arguments.
        learns: Proposals depend on scores.
    """

    sampler: str = ""
    options: Mapping[str, Any] = {}
    learns: bool = False


SEARCHES: Mapping[str, SearchStrategy] = {
    "grid": SearchStrategy(),
    "random": SearchStrategy("RandomSampler"),
    # With ``constant_liar``, settings that are still in training count as bad.
    "tpe": SearchStrategy("TPESampler", {"constant_liar": True}, learns=True),
}


class SweepSetting(NamedTuple):
    """One point of a sweep: a recipe, and the values that replace the recipe's, by key."""

    recipe: str
    values: Mapping[str, Any]


def axes(card: SweepCard) -> dict[str, Axis]:
    """Return the axes of a sweep's space: the recipes, and the values of each key."""
    return {RECIPE: card.recipes, **card.values}


def setting_at(card: SweepCard, coordinates: Mapping[str, Any]) -> SweepSetting:
    """Return the setting at a point of a sweep's space.

    Args:
        card: The sweep's card.
        coordinates: By the key of each axis a number of its range, or an index into its list,
            whose values may be of any type.
    """
    values = {
        key: axis.round_number(coordinates[key])
        if isinstance(axis, ValueRange)
        else axis[coordinates[key]]
        for key, axis in axes(card).items()
    }
    # The recipes are an axis too; it is no value of the recipe.
    recipe = str(values.pop(RECIPE))
    return SweepSetting(recipe, values)


def count_settings(card: SweepCard) -> int:
    """Count the settings that a sweep tries at most, and check that its budget fits its search.

    Raises:
        CardError: A search that draws has no budget of settings, or a grid has one, or a range
            without a step.
    """
    # Axes with infinitely many values.
    endless_keys = [
        key
        for key, axis in axes(card).items()
        if isinstance(axis, ValueRange) and axis.step is None
    ]
    budget = card.budget.settings
    if not look_up("search", card.search, SEARCHES).sampler:
        if budget is not None:
            raise CardError(
                '[budget] settings: a grid is tried whole; leave it out, or take search = "random"'
            )
        if endless_keys:
            raise CardError(
                f"[values] {endless_keys[0]}: a grid needs a list or a step; "
                'or take search = "random"'
            )
    elif budget is None:
        raise CardError(f"[budget] settings is missing: search '{card.search}' draws so many")
    n_points = math.inf
    if not endless_keys:
        n_points = math.prod(len(_coordinates(axis)) for axis in axes(card).values())
    return int(min(n_points, math.inf if budget is None else budget))


def _coordinates(axis: Axis) -> Sequence[Any]:
    """Return the coordinates on an axis: a range's numbers by its step, or a list's indices."""
    return axis.points() if isinstance(axis, ValueRange) else range(len(axis))


def propose_setting(card: SweepCard, tried: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """Propose the next setting to try, another than those tried.

    It depends on the card and on the tried settings alone: a stopped sweep continues as it would
    have.

    Args:
        card: The sweep's card.
        tried: The settings that were started, as trials of Optuna.

    Returns:
        The setting as a trial of Optuna; None if all are tried, or the draws find no other.
    """
    import optuna

    if len(tried) >= count_settings(card):
        return None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions: dict[str, Any] = {}
    for key, axis in axes(card).items():
        if isinstance(axis, ValueRange):
            # Optuna demands that the highest value lies on a step.
            high = axis.high if axis.step is None else axis.points()[-1]
            distributions[key] = optuna.distributions.FloatDistribution(
                axis.low, high, log=axis.log, step=axis.step
            )
        else:
            distributions[key] = optuna.distributions.CategoricalDistribution(range(len(axis)))
    # Each point has one coordinate per axis, in the order of ``distributions``.
    points: Iterator[Sequence[Any]]
    if SEARCHES[card.search].sampler:
        points = _draw_coordinates(card, tried, distributions)
    else:
        # A grid is tried in order, so its first settings are the tried ones.
        grid = product(*map(_coordinates, axes(card).values()))
        points = islice(grid, len(tried), None)
    for point in points:
        params = dict(zip(distributions, point, strict=True))
        is_new = all(params != trial.params for trial in tried)
        if is_new:
            return optuna.create_trial(
                params=params, distributions=distributions, state=optuna.trial.TrialState.RUNNING
            )
    return None


def _draw_coordinates(
    card: SweepCard, tried: Sequence[FrozenTrial], distributions: dict[str, Any]
) -> Iterator[Sequence[Any]]:
    """Draw points of a sweep's space by its sampler, each with another seed.

    Args:
        card: The sweep's card.
        tried: The settings that were started, as trials of Optuna, from which a sampler may learn.
        distributions: The space in Optuna's terms, by the key of the axis.

    Yields:
        One value per axis, as trials of Optuna hold them: a number of a range, rounded to its step,
        else the index of a value in its list.
    """
    import optuna

    search = SEARCHES[card.search]
    for draw in range(MAX_DRAWS):
        # By the number of tried settings, so that a stopped sweep continues as it would have.
        seed = int(np.random.default_rng([card.search_seed, len(tried), draw]).integers(1 << 32))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = getattr(optuna.samplers, search.sampler)(seed=seed, **search.options)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(tried)
        params = study.ask(distributions).params
        yield [
            axis.round_number(params[key]) if isinstance(axis, ValueRange) else params[key]
            for key, axis in axes(card).items()
        ]
