"""How far two published scores must be apart before a test on their items could tell them apart.

    python -m benchmarks.spread measure --results DIR --family A,B --family C [--out FILE.toml]
    python -m benchmarks.spread published  # which published differences can be real

Published scores have no items. The error of the difference of two scores r1 and r2 is then

    sd = sqrt(a² + b² - 2 c a b),  a = kappa (1 - r1²),  b = kappa (1 - r2²)

where kappa is the error of a score on Fisher's scale, and c the correlation of the errors of two
encoders. ``measure`` computes both from encoders whose items are in a results folder: each
``--family`` lists encoders that are close relatives, and c is over pairs of encoders of different
families within 15 points of each other. All errors are half of the 95% interval of ``compare``
by 1.96, so that they are those that a test on the items has, with its degrees of freedom.

The table in the package is the output of

    python -m benchmarks.spread measure --results DIR --family ... --out SPREAD

with SPREAD stsbench/boards/published/spread.toml, the families that this file names, and a folder
of ``stsbench run ENCODER --tasks sts`` for each of their encoders. ``published`` counts
the adjacent pairs of rows of papers' tables whose means of the seven tasks differ by less than a
test could see.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stsbench.boards.published.rows import list_tables
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.detectable import (
    MEAN,
    NORMAL_QUANTILE,
    comparable_values,
    detectable_gap,
    is_mean_of_tasks,
    read_spread,
)
from stsbench.boards.tables.table import AVERAGE
from stsbench.results.folder import read_folder
from stsbench.results.record import Result
from stsbench.significance.differences import EstimatedDifference
from stsbench.significance.items import TaskItems
from stsbench.significance.means import estimate_mean_difference
from stsbench.significance.rows import RowItems

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
MAX_DISTANCE = 0.15
"""Encoders further apart are not neighbours in any table."""
CORRELATIONS = (0.6, 0.8, 0.9)
PROTOCOL = "simcse"


class MeasuredPair(NamedTuple):
    """Two encoders on a task, or on the mean of all."""

    scores: tuple[float, float]
    error: float
    """The error of the difference of their scores."""
    correlation: float
    """The correlation of the errors of their scores."""
    is_family: bool
    """Whether they are close relatives."""


class MeasuredColumn(NamedTuple):
    """The errors of encoders on a task, or on the mean of all."""

    kappas: list[float]
    """The error on Fisher's scale of each encoder."""
    pairs: list[MeasuredPair]


def read_encoders(folder: Path, encoders: Sequence[str]) -> dict[str, list[list[Result]]]:
    """Read the results of encoders by task, with the first training seed of each.

    Raises:
        SystemExit: An encoder has not been scored on all tasks.
    """
    results_by_cell: dict[tuple[str, str], Result] = {}
    for result in read_folder(folder).results:
        if result.protocol["name"] == PROTOCOL and result.split == "test":
            results_by_cell.setdefault((result.encoder, result.task), result)
    missing = [
        f"{encoder} on {task}"
        for encoder in encoders
        for task in TASKS
        if (encoder, task) not in results_by_cell
    ]
    if missing:
        raise SystemExit(f"{folder}: not scored: {', '.join(missing)}")
    return {encoder: [[results_by_cell[encoder, task]] for task in TASKS] for encoder in encoders}


def measure_column(items: Sequence[TaskItems[str]], family_of: Mapping[str, int]) -> MeasuredColumn:
    """Measure the errors of encoders, and their correlations, on some tasks.

    Args:
        items: The items of each task that the score is a mean over.
        family_of: The number of each encoder's family.
    """
    scores, errors = {}, {}
    for encoder in family_of:
        estimate = estimate_mean_difference(items, None, encoder)
        scores[encoder], errors[encoder] = (
            estimate.difference,
            half_width(estimate) / NORMAL_QUANTILE,
        )
    pairs = []
    for first, second in itertools.combinations(family_of, 2):
        if abs(scores[first] - scores[second]) > MAX_DISTANCE:
            continue
        error = half_width(estimate_mean_difference(items, first, second)) / NORMAL_QUANTILE
        shared = errors[first] ** 2 + errors[second] ** 2 - error**2
        pairs.append(
            MeasuredPair(
                scores=(scores[first], scores[second]),
                error=error,
                correlation=shared / (2 * errors[first] * errors[second]),
                is_family=family_of[first] == family_of[second],
            )
        )
    kappas = [errors[encoder] / (1 - scores[encoder] ** 2) for encoder in family_of]
    return MeasuredColumn(kappas, pairs)


def half_width(estimate: EstimatedDifference) -> float:
    """Return half of the width of the 95% interval of an estimate."""
    low, high = estimate.interval()
    return (high - low) / 2


def measure(families: Sequence[Sequence[str]], folder: Path) -> dict[str, MeasuredColumn]:
    """Measure the errors of encoders by task and for the mean of all."""
    family_of = {encoder: index for index, family in enumerate(families) for encoder in family}
    rows = RowItems(read_encoders(folder, list(family_of)))
    columns = {task: [index] for index, task in enumerate(TASKS)} | {MEAN: list(range(len(TASKS)))}
    return {
        name: measure_column(rows.select(indices), family_of) for name, indices in columns.items()
    }


def to_toml(measured: Mapping[str, MeasuredColumn], families: Sequence[Sequence[str]]) -> str:
    """Return the table of the package."""
    lines = [
        "# The errors of scores and of their differences, for published rows without items: by",
        "# 'python -m benchmarks.spread measure', which says how, of these families of encoders:",
        *(f"#   {', '.join(family)}" for family in families),
        f"encoders = {sum(map(len, families))}",
        f"families = {len(families)}",
    ]
    for name, column in measured.items():
        unlike = [pair for pair in column.pairs if not pair.is_family]
        relatives = [pair.correlation for pair in column.pairs if pair.is_family]
        low, median, high = np.quantile([pair.correlation for pair in unlike], [0.1, 0.5, 0.9])
        kappa = float(np.median(column.kappas))
        ratios = []
        for pair in unlike:
            first, second = (100 * score for score in pair.scores)
            bound = detectable_gap(first, second, kappa, median)
            ratios.append(bound / (100 * NORMAL_QUANTILE * pair.error))
        ratio_low, ratio_high = np.quantile(ratios, [0.1, 0.9])
        lines += [
            f"\n[columns.{name}]",
            f"kappa = {kappa:.4f}",
            f"kappas = [{min(column.kappas):.4f}, {max(column.kappas):.4f}]",
            f"c = {median:.2f}",
            f"c_range = [{low:.2f}, {high:.2f}]",
            f"c_relatives = {np.median(relatives):.2f}",
            f"ratio = [{ratio_low:.2f}, {ratio_high:.2f}]",
            f"pairs = {len(unlike)}",
        ]
    return "\n".join(lines) + "\n"


def published_means(*, papers_alone: bool) -> Iterator[tuple[float, float]]:
    """Yield the means of seven STS tasks of each two adjacent rows of a group of a table.

    Args:
        papers_alone: Leave out our own boards, which hold rows of many papers.
    """
    for name in list_tables():
        table = build_table(name)
        if not is_mean_of_tasks(table) or (papers_alone and table.is_board):
            continue
        for group in table.groups:
            yield from itertools.pairwise(
                sorted(comparable_values(group, AVERAGE).values(), reverse=True)
            )


def print_published() -> None:
    """Print the share of adjacent pairs whose difference is below what a test could see."""
    spread = read_spread().columns[MEAN]
    print("| tables | adjacent pairs |", end="")
    print("".join(f" below, c = {c:g} |" for c in CORRELATIONS))
    print(f"|{' --- |' * (2 + len(CORRELATIONS))}")
    for label, papers_alone in (("papers and boards", False), ("papers", True)):
        pairs = list(published_means(papers_alone=papers_alone))
        shares = [
            np.mean(
                [high - low < detectable_gap(high, low, spread.kappa, c) for high, low in pairs]
            )
            for c in CORRELATIONS
        ]
        print(f"| {label} | {len(pairs)} | {' | '.join(f'{share:.0%}' for share in shares)} |")
    bounds = [f"{detectable_gap(75, 75, spread.kappa, c):.2f}" for c in CORRELATIONS]
    print(f"\nBound for two means of 75 points: {', '.join(bounds)} points")


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("part", choices=("measure", "published"))
    parser.add_argument("--results", type=Path, help="folder of results with per-item columns")
    parser.add_argument("--family", action="append", default=[], help="close relatives, comma list")
    parser.add_argument("--out", type=Path, help="TOML file to write; default: print it")
    options = parser.parse_args()
    if options.part == "published":
        print_published()
        return
    families = [family.split(",") for family in options.family]
    text = to_toml(measure(families, options.results), families)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
