"""How many neighbours on MTEB's public boards no test on their items could tell apart.

    python benchmarks/mteb_neighbours.py                  # prints the table as markdown
    python benchmarks/mteb_neighbours.py --figure FILE    # draws the gaps of MTEB(eng, v2)

Public scores have no items. The errors of a score and of a difference are taken as kappa and c,
which ``benchmarks/spread.py`` has measured; for other tasks kappa is the least of the measured
kappa · sqrt(n), divided by sqrt(n), and c that of means. Tasks, subsets and splits are taken as
independent, though some share pairs, which makes the bound smaller than it is.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from stsbench.boards.mteb.board import read_public_source, score_task
from stsbench.boards.mteb.scores import ResultsByTask, join_revisions, read_public_results
from stsbench.boards.tables.detectable import MEAN, Z, read_spread
from stsbench.core.catalogue import Catalogue
from stsbench.data.mteb.facts import BenchmarkTask, list_matched_tasks, read_mteb_facts

CATALOGUE = Catalogue()
MEASURED_AS = {"STS12": "sts12", "STS13": "sts13", "STS14": "sts14", "STS15": "sts15"}
MEASURED_AS |= {"STS16": "sts16", "STSBenchmark": "stsb"}
"""Tasks of ours with the same pairs, whose errors were measured, by tasks of MTEB's."""
MIN_MODELS = 20
FIGURE_BENCHMARK = "MTEB(eng, v2)"


def count_pairs() -> Mapping[tuple[str, str, str], int]:
    """Return the number of pairs by MTEB's task, split and subset."""
    counts = {}
    for task, matched_task in list_matched_tasks(CATALOGUE).items():
        for split, mteb_split in matched_task.mteb_split_names.items():
            section = CATALOGUE.task(task).splits[split]
            only_subset = matched_task.mteb_subset
            for name in [only_subset] if only_subset else section.subsets:
                n_pairs = section.subsets.get(name, section.n or 0)
                counts[matched_task.mteb_task, mteb_split, name] = n_pairs
    return counts


def least_scaled_kappa() -> float:
    """Return the least of the measured kappa · sqrt(n)."""
    columns = read_spread().columns
    return min(
        columns[task].kappa * math.sqrt(CATALOGUE.task(task).splits["test"].n or 0)
        for task in read_spread().tasks
    )


class TaskError(NamedTuple):
    """How far scores of a task, and of two models on it, may be wrong."""

    kappa: float
    """The error of a score on Fisher's scale."""
    c_unlike: float
    """The correlation of the errors of two models of different families."""
    c_relatives: float
    """The same for two models of one family."""


def find_error(
    task: str, parts: BenchmarkTask, counts: Mapping[tuple[str, str, str], int]
) -> TaskError:
    """Return the error of a benchmark's task: as measured, else that of the mean of its parts."""
    columns = read_spread().columns
    if task in MEASURED_AS and parts.splits == ["test"]:
        column = columns[MEASURED_AS[task]]
        return TaskError(column.kappa, column.c, column.c_relatives)
    numbers = [
        counts.get((task, split, subset), 0) for split in parts.splits for subset in parts.subsets
    ]
    # Where a card does not say how many, as many as are in the largest task.
    variances = [least_scaled_kappa() ** 2 / (n or 10_000) for n in numbers]
    kappa = math.sqrt(sum(variances)) / len(variances)
    return TaskError(kappa, columns[MEAN].c, columns[MEAN].c_relatives)


def mean_scores(tasks: Mapping[str, BenchmarkTask], results: ResultsByTask) -> list[float]:
    """Return a model's scores on all tasks of a benchmark in points; empty if one is missing."""
    scores = [score_task(results[task], parts) for task, parts in tasks.items() if task in results]
    points = [score.points for score in scores if score is not None and not score.problem]
    return points if len(points) == len(tasks) else []


def gap_bound(
    first: list[float], second: list[float], errors: list[TaskError], *, are_relatives: bool
) -> float:
    """Compute the least difference of two means that a two-sided test at 5% calls significant.

    Args:
        first: A model's scores by task, in points.
        second: Those of its neighbour.
        errors: The errors of the tasks, in the same order.
        are_relatives: Take the correlation of the errors of two models of one family.

    Returns:
        The difference in points, if the errors of tasks are independent.
    """
    variance = 0.0
    for first_score, second_score, error in zip(first, second, errors, strict=True):
        c = error.c_relatives if are_relatives else error.c_unlike
        a, b = (error.kappa * (1 - (score / 100) ** 2) for score in (first_score, second_score))
        variance += a * a + b * b - 2 * c * a * b
    return 100 * Z * math.sqrt(variance) / len(errors)


class Neighbours(NamedTuple):
    """Two models beside each other on a board."""

    gap: float
    """The difference of their means in points."""
    bound: float
    """The least difference that a test could see, if they are of different families."""
    relatives_bound: float
    """The same if they are of one family."""


def compare_neighbours(benchmark: str) -> list[Neighbours]:
    """Return each two neighbours by mean, best first."""
    tasks = read_mteb_facts().benchmarks[benchmark]
    counts = count_pairs()
    errors = [find_error(task, parts, counts) for task, parts in tasks.items()]
    rows = [
        scores
        for results in join_revisions(read_public_results()).values()
        if (scores := mean_scores(tasks, results))
    ]
    rows.sort(key=fmean, reverse=True)
    return [
        Neighbours(
            fmean(first) - fmean(second),
            bound=gap_bound(first, second, errors, are_relatives=False),
            relatives_bound=gap_bound(first, second, errors, are_relatives=True),
        )
        for first, second in pairwise(rows)
    ]


def describe_bounds(gaps: list[float], bounds: list[float]) -> list[str]:
    """Return how many gaps lie below their bounds, and the median bound, as cells of the table."""
    n_below = sum(gap < bound for gap, bound in zip(gaps, bounds, strict=True))
    return [f"{n_below} of {len(gaps)} ({n_below / len(gaps):.0%})", f"{median(bounds):.2f}"]


def print_table() -> None:
    """Print how many neighbours lie below the bound, for each benchmark with enough models."""
    print(f"Public results at commit {read_public_source()['commit'][:8]}.\n")
    print(
        "| benchmark | tasks | models | median gap | below the bound, if unlike | median bound "
        "| below the bound, if relatives | median bound |"
    )
    print("| --- |" + " ---: |" * 7)
    for benchmark, tasks in read_mteb_facts().benchmarks.items():
        pairs = compare_neighbours(benchmark)
        if len(pairs) + 1 < MIN_MODELS:
            continue
        gaps = [pair.gap for pair in pairs]
        cells = [benchmark, str(len(tasks)), str(len(pairs) + 1), f"{median(gaps):.2f}"]
        cells += describe_bounds(gaps, [pair.bound for pair in pairs])
        cells += describe_bounds(gaps, [pair.relatives_bound for pair in pairs])
        print(f"| {' | '.join(cells)} |")


def draw_gaps(path: Path) -> None:
    """Draw the gap of each model to the next better one against the bounds of a test."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "stsbench"
    from matplotlib import pyplot

    pairs = compare_neighbours(FIGURE_BENCHMARK)
    ranks = range(2, len(pairs) + 2)
    figure, axes = pyplot.subplots(figsize=(6.6, 3.0), layout="constrained")
    axes.plot(ranks, [pair.bound for pair in pairs], "-", label="seen by a test: unlike models")
    relatives_bounds = [pair.relatives_bound for pair in pairs]
    axes.plot(ranks, relatives_bounds, "--", label="seen by a test: relatives")
    axes.plot(
        ranks, [pair.gap for pair in pairs], ".", color="black", label="gap to the next better"
    )
    axes.set_yscale("log")
    axes.set_ylim(1e-3, 300)
    axes.set_xlabel(f"rank by the mean of the STS tasks of {FIGURE_BENCHMARK}")
    axes.set_ylabel("points")
    axes.legend(fontsize=8, loc="upper center", ncols=3)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Print the table, or draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--figure", type=Path, help="the SVG file to draw")
    figure_path = parser.parse_args().figure
    if figure_path is None:
        print_table()
    else:
        draw_gaps(figure_path)


if __name__ == "__main__":
    main()
