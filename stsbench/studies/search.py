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
RECIPE_AXIS = "recipe"
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
    return {RECIPE_AXIS: card.recipes, **card.values}


def setting_at(card: SweepCard, coordinates: Mapping[str, Any]) -> SweepSetting:
    """Return the setting at a point of a sweep's space: a recipe, and values that replace its own.

    An axis of the space is a key of the recipe with a range of numbers or a list of values. The
    list of recipes is an axis too.

    Args:
        card: The sweep's card, with the axes.
        coordinates: The point: by the key of each axis a number, if the axis is a range; an index
            into the list, if it is a list.
    """
    values: dict[str, Any] = {}
    # The recipes under the key RECIPE_AXIS, then the values of each key of the card.
    for key, axis in axes(card).items():
        if isinstance(axis, ValueRange):
            # To a whole number, if the range is of such; otherwise to four significant digits.
            values[key] = axis.round_number(coordinates[key])
        else:
            values[key] = axis[coordinates[key]]
    # The axis of recipes gives no value of the recipe, but its name.
    recipe = str(values.pop(RECIPE_AXIS))
    return SweepSetting(recipe, values)


def count_settings(card: SweepCard) -> int:
    """Count the settings that a sweep tries at most, and check that its budget fits its search.

    A search draws settings by a sampler, or tries all in order (``grid``). The budget is the number
    of settings to draw.

    Args:
        card: The sweep's card. An axis of its space is a key with a range of numbers or a list of
            values.

    Raises:
        CardError: A search that draws has no budget of settings; or a grid has one, or has a range
            without a step.
        UnknownName: There is no such search.
    """
    # The keys of axes with infinitely many values: ranges without a step.
    endless_keys = [
        key
        for key, axis in axes(card).items()
        if isinstance(axis, ValueRange) and axis.step is None
    ]
    budget = card.budget.settings
    # Without a sampler the search is a grid: all settings in order.
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
    # The number of points of the space: the product of the numbers of values of its axes. The
    # recipes are an axis too.
    n_points = math.inf
    if not endless_keys:
        n_points = math.prod(len(_coordinates(axis)) for axis in axes(card).values())
    return int(n_points if budget is None else min(n_points, budget))


def _coordinates(axis: Axis) -> Sequence[Any]:
    """Return the coordinates on an axis: a range's numbers by its step, or a list's indices."""
    return axis.points() if isinstance(axis, ValueRange) else range(len(axis))


def propose_setting(card: SweepCard, tried: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """Propose the next setting for a sweep to try, one that was not tried yet.

    It depends only on the card and on the tried settings, so that a stopped sweep continues as it
    would have.

    Args:
        card: The sweep's card. An axis of its space is a key with a range of numbers or a list of
            values.
        tried: The settings that were started, as trials of the library Optuna.

    Returns:
        The setting as a trial of Optuna; None if all were tried, or if the sampler draws no new
        one.
    """
    import optuna

    if len(tried) >= count_settings(card):
        return None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # The axes in Optuna's terms, by key; a list is the range of its indices.
    distributions: dict[str, Any] = {}
    for key, axis in axes(card).items():
        if isinstance(axis, ValueRange):
            # Optuna requires that the highest value lies on a step.
            high = axis.high if axis.step is None else axis.points()[-1]
            distributions[key] = optuna.distributions.FloatDistribution(
                axis.low, high, log=axis.log, step=axis.step
            )
        else:
            distributions[key] = optuna.distributions.CategoricalDistribution(range(len(axis)))
    # The candidates: points of the space with a coordinate for each axis, in their order.
    points: Iterator[Sequence[Any]]
    if SEARCHES[card.search].sampler:
        points = _draw_coordinates(card, tried, distributions)
    else:
        # A grid is tried in order, so its first settings are the tried ones; skip these. The
        # coordinates of an axis are a range's numbers by its step, or a list's indices.
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
    """Draw points of a sweep's space by a sampler of Optuna, each with another seed.

    A point may have been tried already; the caller takes the first one that is new. The seeds
    depend on the number of tried settings, so that a stopped sweep continues as it would have.

    Args:
        card: The sweep's card. An axis of its space is a key with a range of numbers or a list of
            values.
        tried: The settings that were started, as trials of Optuna, from which a sampler may learn.
        distributions: The axes in Optuna's terms, by key.

    Yields:
        A coordinate for each axis, ``MAX_DRAWS`` points at most: an index, if the axis is a list;
        a number, if it is a range, whole if the range is, otherwise of four significant digits.
    """
    import optuna

    # The class name of the sampler, and its arguments, ``options``.
    search = SEARCHES[card.search]
    for draw in range(MAX_DRAWS):
        rng = np.random.default_rng([card.search_seed, len(tried), draw])
        seed = int(rng.integers(2**32))
        sampler_class = getattr(optuna.samplers, search.sampler)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = sampler_class(seed=seed, **search.options)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(tried)
        # By key a number, or an index into a list.
        params = study.ask(distributions).params
        yield [
            axis.round_number(params[key]) if isinstance(axis, ValueRange) else params[key]
            for key, axis in axes(card).items()
        ]
