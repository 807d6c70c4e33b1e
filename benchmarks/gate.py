"""How often ``stsbench check --rule statistical`` raises a false alarm, and which falls it finds.

    python benchmarks/gate.py alarms  # an unchanged recipe that is trained again
    python benchmarks/gate.py falls   # one of seven tasks falls

Scores of seven tasks are drawn by training seed, and judged with their mean by the command's own
function, as new scores against a lock. A seed is partly good or bad on all tasks at once. A second
set of new seeds is drawn if a look is red, and both sets are checked together. Deviations and falls
are in points, shares in percent of the trials.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.check.gate import check
from stsbench.check.lock import CheckSide, LockedCell
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
SUITES = {"sts": Suite(name="STS", tasks=list(TASKS))}
CORRELATION = 0.5
"""The correlation of two tasks' scores over training seeds."""
BASE_SCORE = 0.75
N_LOOKS = 20
SEED_NUMBERS = ((1, 3), (1, 5), (3, 3), (5, 5))
"""The numbers of new and of locked seeds."""
DEVIATIONS = (0.0, 0.3, 1.0, 2.0)
"""Deviations over training seeds, in points."""
FALLS = (2, 4, 6)
"""Falls in deviations over training seeds."""
Scores = npt.NDArray[np.float64]
"""Scores of several seeds on the seven tasks, (seeds, 7)."""
CATALOGUE = Catalogue()


class Plan(NamedTuple):
    """The seeds of a look, and what the command knows of them.

    Attributes:
        n_new: The number of new seeds.
        n_old: The number of locked seeds.
        deviation: The true deviation over seeds, in points.
        is_known: Whether the command is told the deviation.
    """

    n_new: int
    n_old: int
    deviation: float
    is_known: bool = False

    def make_rng(self, trials: int) -> np.random.Generator:
        """Return the generator of the draws of some trials."""
        return np.random.default_rng([trials, self.n_new, self.n_old, round(100 * self.deviation)])

    @property
    def label(self) -> str:
        """The numbers of seeds as the table prints them."""
        known = ", known deviation" if self.is_known else ""
        return f"{self.n_new} against {self.n_old}{known}"


def draw_scores(n_seeds: int, deviation: float, rng: np.random.Generator) -> Scores:
    """Draw the scores of training seeds of one recipe on all tasks."""
    common = rng.normal(size=(n_seeds, 1))
    own = rng.normal(size=(n_seeds, len(TASKS)))
    noise = CORRELATION**0.5 * common + (1 - CORRELATION) ** 0.5 * own
    return np.asarray(BASE_SCORE + deviation / 100 * noise)


def make_side(scores: Scores, first_seed: int) -> CheckSide:
    """Return a side of a check with a cell for each seed and task."""
    cells = []
    for index, task_scores in enumerate(scores.tolist()):
        seed = first_seed + index
        for task, score in zip(TASKS, task_scores, strict=True):
            cells.append(make_cell(task, seed, score))
    return CheckSide(cells, problems=[])


def make_cell(task: str, seed: int, score: float) -> LockedCell:
    """Return a row of a lock without per-item values."""
    return LockedCell(
        encoder="recipe",
        task=task,
        split="test",
        protocol={"name": "simcse", "similarity": "cosine"},
        train_seed=seed,
        eval_seed=0,
        fingerprint=f"trained {seed}",
        revision=None,
        data="",
        score=score,
        interval=(-1.0, 1.0),
        n=1000,
        device="cpu",
        dtype="float32",
        versions={},
        task_card="",
        items="",
    )


def is_red(new: Scores, old: CheckSide, plan: Plan, looks: int = 1) -> bool:
    """Return whether a look ends with a regression, by exit code 1."""
    report = check(
        make_side(new, first_seed=1000),
        old,
        rule="statistical",
        suites=SUITES,
        looks=looks,
        seed_deviation=plan.deviation if plan.is_known else None,
        catalogue=CATALOGUE,
    )
    return report.exit_code == 1


class RedShares(NamedTuple):
    """The shares of trials that are red at the first look, and with a second set of seeds too."""

    first: float
    confirmed: float


def measure_looks(plan: Plan, fall: Scores, trials: int) -> RedShares:
    """Measure how often a look is red.

    Args:
        plan: The seeds.
        fall: The true fall of each task, (7,).
        trials: How many locks to draw.
    """
    rng = plan.make_rng(trials)
    n_red = n_confirmed = 0
    for _ in range(trials):
        old = make_side(draw_scores(plan.n_old, plan.deviation, rng), first_seed=0)
        new = draw_scores(plan.n_new, plan.deviation, rng) - fall
        second_set = draw_scores(plan.n_new, plan.deviation, rng) - fall
        if is_red(new, old, plan):
            n_red += 1
            n_confirmed += is_red(np.concatenate([new, second_set]), old, plan)
    return RedShares(n_red / trials, n_confirmed / trials)


def measure_series(plan: Plan, trials: int) -> float:
    """Measure how often one of the planned looks at one lock is red, without any fall."""
    rng = plan.make_rng(trials)
    n_red = 0
    for _ in range(trials):
        old = make_side(draw_scores(plan.n_old, plan.deviation, rng), first_seed=0)
        n_red += any(
            is_red(draw_scores(plan.n_new, plan.deviation, rng), old, plan, looks=N_LOOKS)
            for _ in range(N_LOOKS)
        )
    return n_red / trials


def print_alarms(trials: int) -> None:
    """Print false alarms of one look, of a second set of seeds, and of many looks."""
    no_fall = np.zeros(len(TASKS))
    print_row("seeds", "deviation", "one look", "with a second set", f"{N_LOOKS} looks")
    print_row(*["---"] * 5)
    plans = [Plan(*numbers, deviation) for numbers in SEED_NUMBERS for deviation in DEVIATIONS]
    plans += [Plan(*numbers, 1.0, is_known=True) for numbers in ((1, 1), (1, 3))]
    for plan in plans:
        shares = measure_looks(plan, no_fall, trials)
        series = measure_series(plan, trials // 4)
        print_row(plan.label, f"{plan.deviation:g}", *map(percent, (*shares, series)))


def print_falls(trials: int) -> None:
    """Print how often a fall of one task is found among seven, and if it is checked alone."""
    heads = [f"{size} deviations" for size in FALLS]
    print_row("seeds", *heads, *(f"{head}, second set" for head in heads))
    print_row(*["---"] * (1 + 2 * len(FALLS)))
    plans = [Plan(*numbers, 0.5) for numbers in SEED_NUMBERS]
    plans += [Plan(*numbers, 0.5, is_known=True) for numbers in ((1, 1), (1, 3))]
    for plan in plans:
        shares = [
            measure_looks(plan, fall_of_first_task(size * plan.deviation), trials) for size in FALLS
        ]
        found = [percent(share.first) for share in shares]
        print_row(plan.label, *found, *(percent(share.confirmed) for share in shares))


def fall_of_first_task(points: float) -> Scores:
    """Return a fall of the first task alone, (7,)."""
    return np.array([points / 100, *[0.0] * (len(TASKS) - 1)])


def percent(share: float) -> str:
    """Return a share as the tables print it."""
    return f"{100 * share:.1f}"


def print_row(*cells: str) -> None:
    """Print a row of a markdown table."""
    print(f"| {' | '.join(cells)} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the chosen table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("alarms", "falls"))
    parser.add_argument("--trials", type=int, default=2000)
    options = parser.parse_args(arguments)
    if options.table == "alarms":
        print_alarms(options.trials)
    else:
        print_falls(options.trials)


if __name__ == "__main__":
    main()
