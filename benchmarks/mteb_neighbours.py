"""How many neighbours on MTEB's public boards no test on their items could tell apart.

    python benchmarks/mteb_neighbours.py                  # prints the table as markdown
    python benchmarks/mteb_neighbours.py --figure FILE    # draws the gaps of MTEB(eng, v2)

``stsbench/boards/mteb/noise.py`` says how the bounds are estimated.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from stsbench.boards.mteb.board import PUBLIC_SECTION, MtebBoard, read_public_source
from stsbench.boards.mteb.noise import Neighbours, compare_neighbours, estimate_errors
from stsbench.core.catalogue import Catalogue
from stsbench.data.mteb.facts import read_mteb_facts

CATALOGUE = Catalogue()
MIN_MODELS = 20
FIGURE_BENCHMARK = "MTEB(eng, v2)"


def list_neighbours(benchmark: str) -> list[Neighbours]:
    """Return each two neighbours among the models with public scores, best first."""
    board = MtebBoard(benchmark=benchmark, catalogue=CATALOGUE)
    errors = estimate_errors(board.tasks, CATALOGUE)
    groups = board.build(benchmark, benchmark, results=[]).groups
    rows = [row for group in groups if group.section == PUBLIC_SECTION for row in group.rows]
    return compare_neighbours(rows, errors)


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
        pairs = list_neighbours(benchmark)
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

    pairs = list_neighbours(FIGURE_BENCHMARK)
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
