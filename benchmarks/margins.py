"""How often answers on a margin are wrong, and how many items and seeds a difference needs.

    python benchmarks/margins.py wrong --data DIR  # at the margin; and at the smallest difference
    python benchmarks/margins.py plan --data DIR   # items and seeds for differences of some points

Gold scores and encoders are drawn as in ``calibration.py``, with an effect of 0.2: two encoders of
equal quality. Their estimated difference is then moved by the margin or by the smallest difference
that should be found. A plan of seeds rests on two recipes of equal quality, whose encoders have
errors in common.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from calibration import (
    QUALITY,
    TASKS,
    Field,
    Structure,
    joint_sharing_of,
    sample_of,
    structures,
    trained,
    two_encoders,
    weights_of,
)

from stsbench.numbers.intervals import (
    StandardError,
    standard_error,
)
from stsbench.significance.differences import EstimatedDifference, average_samples
from stsbench.significance.margins import (
    margin_verdict,
    required_items,
    required_seeds,
    smallest_detectable,
)

EFFECT = 0.2
MARGINS = (1.0, 2.5, 4.0)
"""Margins in true errors of the difference."""
ITEM_POINTS = (0.5, 1.0, 2.0)
"""The differences that are to be found by more items."""
SEED_PLANS = ((1.0, 0.3), (1.0, 1.0), (2.0, 0.3), (2.0, 1.0))
"""The differences that are to be found by more seeds, and the deviation over seeds."""
N_SEEDS = 10
"""The number of seeds over which the encoders of a recipe are averaged to plan seeds."""


def draw_differences(
    tasks: Sequence[Structure], trials: int
) -> Mapping[str, list[EstimatedDifference]]:
    """Draw the difference of two equal encoders, by task and for the mean, once per trial."""
    rng = np.random.default_rng(trials)
    joint_sharing = joint_sharing_of(tasks)
    differences: dict[str, list[EstimatedDifference]] = {}
    for _ in range(trials):
        pairs = []
        for task, correlations in two_encoders(tasks, EFFECT, rng):
            first, second = (sample_of(correlations, index) for index in (0, 1))
            pairs.append((first, second))
            differences.setdefault(task.task, []).append(
                EstimatedDifference.estimate(first, second, task.sharing, correlations.weights)
            )
        if len(tasks) > 1:
            first, second = (
                average_samples([pair[index] for pair in pairs], joint_sharing) for index in (0, 1)
            )
            differences.setdefault("mean", []).append(
                EstimatedDifference.estimate(first, second, joint_sharing, weights_of(tasks))
            )
    return differences


def print_wrong(differences: Mapping[str, Sequence[EstimatedDifference]]) -> None:
    """Print false positives at the margin, and how often the smallest difference is found."""
    heads = " | ".join(f"within, margin {margin:g} errors" for margin in MARGINS)
    print(f"| task | {heads} | not worse | worse than | smallest difference found |")
    print(f"|{' --- |' * (4 + len(MARGINS))}")
    for name, estimates in differences.items():
        true_error = float(np.std([estimate.difference for estimate in estimates]))
        shares = []
        for margin in np.array(MARGINS) * true_error:
            above = [moved(estimate, margin) for estimate in estimates]
            shares.append(np.mean([margin_verdict(one, margin) == "within" for one in above]))
        margin = MARGINS[-1] * true_error
        below = [margin_verdict(moved(estimate, -margin), margin) for estimate in estimates]
        shares.append(np.mean([verdict in ("within", "not worse") for verdict in below]))
        shares.append(np.mean([verdict == "worse than" for verdict in below]))
        found = []
        for estimate in estimates:
            smallest = smallest_detectable(StandardError(true_error, estimate.df))
            found.append(moved(estimate, smallest).p < 0.05)
        shares.append(np.mean(found))
        print(f"| {name} | {' | '.join(f'{100 * share:.1f}' for share in shares)} |")


def moved(estimate: EstimatedDifference, by: float) -> EstimatedDifference:
    """Return the estimate of a sample whose true difference is larger."""
    return estimate._replace(difference=estimate.difference + by)


def draw_recipe_errors(tasks: Sequence[Structure], trials: int) -> Mapping[str, StandardError]:
    """Draw the median error over items of the difference of two equal recipes, by task and mean."""
    rng = np.random.default_rng([N_SEEDS, trials])
    sharings = {task.task: task.sharing for task in tasks}
    weights = {task.task: np.full(len(task.pair), 1 / len(task.pair)) for task in tasks}
    if len(tasks) > 1:
        sharings["mean"] = joint_sharing_of(tasks)
        weights["mean"] = weights_of(tasks)
    errors: dict[str, list[StandardError]] = {}
    for _ in range(trials):
        meaning, shared, *recipe_errors = (Field(tasks, EFFECT, rng) for _ in range(4))
        samples_by_recipe = [
            trained(tasks, np.full(N_SEEDS, QUALITY), (meaning, shared, recipe_error), rng)
            for recipe_error in recipe_errors
        ]
        for samples in samples_by_recipe:
            if len(tasks) > 1:
                samples.append(average_samples(samples, sharings["mean"]))
        for name, first, second in zip(sharings, *samples_by_recipe, strict=True):
            influences = second.mean_influences - first.mean_influences
            errors.setdefault(name, []).append(
                standard_error(influences, sharings[name], weights[name])
            )
    return {name: StandardError(*np.median(drawn, axis=0)) for name, drawn in errors.items()}


def print_plan(
    tasks: Sequence[Structure],
    differences: Mapping[str, Sequence[EstimatedDifference]],
    recipe_errors: Mapping[str, StandardError],
) -> None:
    """Print how many items two encoders need, and how many seeds two recipes need."""
    items_heads = [f"items for {points:g}" for points in ITEM_POINTS]
    seeds_heads = [f"seeds for {points:g} at {deviation:g}" for points, deviation in SEED_PLANS]
    heads = ["task", "items", "encoders", *items_heads, "recipes", *seeds_heads]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    n_items = {task.task: len(task.pair) for task in tasks}
    n_items["mean"] = sum(n_items.values())
    for name, estimates in differences.items():
        error, df = np.median([(estimate.error, estimate.df) for estimate in estimates], axis=0)
        items = StandardError(float(error), float(df))
        recipe_error = recipe_errors[name]
        items_required = [
            required_items([items], n_items[name], points / 100) for points in ITEM_POINTS
        ]
        seeds_required = [
            required_seeds([recipe_error], deviation / 100, points / 100)
            for points, deviation in SEED_PLANS
        ]
        cells = [
            name,
            f"{n_items[name]:,}",
            f"{100 * smallest_detectable(items):.2f}",
            *(f"{count:,}" if count else "–" for count in items_required),
            f"{100 * smallest_detectable(recipe_error):.2f}",
            *(f"{count:,}" if count else "–" for count in seeds_required),
        ]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Print the chosen table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("wrong", "plan"))
    parser.add_argument("--data", type=Path, default=os.environ.get("STSBENCH_DATA"))
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--tasks", default=",".join(TASKS))
    options = parser.parse_args()
    data = Path(options.data) if options.data else None
    tasks = structures(options.tasks.split(","), data)
    differences = draw_differences(tasks, options.trials)
    if options.table == "wrong":
        print_wrong(differences)
    else:
        print_plan(tasks, differences, draw_recipe_errors(tasks, options.trials))


if __name__ == "__main__":
    main()
