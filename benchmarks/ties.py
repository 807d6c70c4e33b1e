"""How often ranks and letters are wrong, and how long they take.

    python benchmarks/ties.py wrong --data DIR  # equal encoders distinguished, ranks not covered
    python benchmarks/ties.py time --data DIR   # seconds for 60 encoders on seven tasks

Encoders are drawn anew in each trial as in ``calibration.py``, on the real tasks' shared sentences;
each differs from the next by ``step`` points. The third of them lacks the task ``gap`` if there is
one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from calibration import QUALITY, TASKS, Field, Rng, Structure, encode, gold_of, points, structures

from stsbench.numbers.statistics import Float64Array
from stsbench.results.record import Result
from stsbench.significance.comparison import TestSettings
from stsbench.significance.means import Standings, rank_rows

EFFECT = 0.2
ENCODERS, WITHOUT = 5, 2
"""The number of encoders of a trial, and the index of the one that lacks a task."""
PROTOCOL = {"name": "simcse", "metric": "spearman", "aggregation": "all", "similarity": "cosine"}


def make_result(
    name: str, structure: Structure, gold: Float64Array, similarity: Float64Array
) -> Result:
    """Return a Result with these items; ranks do not depend on its score and other fields."""
    columns: dict[str, Any] = {"gold": gold, "similarity": similarity}
    columns |= {f"sentence{1 + side}": structure.sentences[:, side] for side in (0, 1)}
    unused: dict[str, Any] = {
        "scores": {}, "per_subset": {}, "interval": (-1.0, 1.0), "interval_method": "",
        "zero_vectors": 0, "overlap": "none", "train_seed": None, "eval_seed": 0,
        "encoder_card": None, "fingerprint": None, "revision": None, "task_card": "",
        "data": structure.task, "notes": [], "run": {}, "score": 0.0,
    }  # fmt: skip
    return Result(
        encoder=name, task=structure.task, split="test", protocol=PROTOCOL, n=len(gold),
        items=name, per_item=columns, **unused,
    )  # fmt: skip


def draw_rows(
    tasks: Sequence[Structure], count: int, step: float, rng: Rng
) -> dict[int, list[list[Result]]]:
    """Draw the results of encoders on all tasks, the best encoder first.

    Args:
        tasks: The tasks.
        count: The number of encoders.
        step: The number of points by which each is better than the next.
        rng: The generator.

    Returns:
        For each encoder its results on each task, one list per task.
    """
    meaning, shared, *errors = (Field(tasks, EFFECT, rng) for _ in range(2 + count))
    rows: dict[int, list[list[Result]]] = {encoder: [] for encoder in range(count)}
    for task in tasks:
        gold = gold_of(meaning(task))
        for encoder, error in enumerate(errors):
            quality = QUALITY - encoder * points(step)
            similarity = encode(meaning(task), shared(task), error(task), quality)
            rows[encoder].append([make_result(f"encoder {encoder}", task, gold, similarity)])
    return rows


def print_wrong(tasks: Sequence[Structure], trials: int) -> None:
    """Print a table in markdown: what is wrong, by the step between encoders and by the gap."""
    print(
        "| step | gap | equal encoders told apart | wrong order | true rank in its interval "
        "| of the encoder with the gap |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for step in (0.0, 0.5, 1.0):
        for gap in (None, "sickr", "sts12"):
            outcomes = [run_trial(tasks, step, gap, seed) for seed in range(trials)]
            shares = np.array(outcomes).mean(axis=0)
            cells = [f"{100 * share:.1f}" if not np.isnan(share) else "–" for share in shares]
            print(f"| {step} | {gap or 'none'} | {' | '.join(cells)} |", flush=True)


def run_trial(tasks: Sequence[Structure], step: float, gap: str | None, seed: int) -> list[float]:
    """Rank drawn encoders once.

    Returns:
        Whether any equal encoders are distinguished, whether any order is wrong, the share of true
        ranks that are in their interval, and whether that of the encoder with the gap is; NaN for
        what does not apply.
    """
    rows = draw_rows(tasks, ENCODERS, step, np.random.default_rng([seed, int(100 * step)]))
    if gap is not None:
        rows[WITHOUT] = [
            [] if task.task == gap else results
            for task, results in zip(tasks, rows[WITHOUT], strict=True)
        ]
    standings = rank_rows(rows, effort=TestSettings(n_draws=500, seed=seed))
    if step == 0:
        return [float(_distinguishes_any(standings)), np.nan, np.nan, np.nan]
    is_inside = [
        row.rank_interval[0] <= encoder + 1 <= row.rank_interval[1]
        for encoder, row in standings.rows.items()
    ]
    has_wrong_order = float(_has_wrong_order(standings))
    return [np.nan, has_wrong_order, float(np.mean(is_inside)), float(is_inside[WITHOUT])]


def _distinguishes_any(standings: Standings[int]) -> bool:
    rows = standings.rows.values()
    return any(
        not set(first.letters) & set(second.letters) for first, second in product(rows, repeat=2)
    )


def _has_wrong_order(standings: Standings[int]) -> bool:
    """Return whether an encoder is called better than one that truly is better.

    Then the two share no letter, and the truly better one has the higher rank number.
    """
    for better, worse in combinations(sorted(standings.rows), 2):
        first = standings.rows[better]
        second = standings.rows[worse]
        if not set(first.letters) & set(second.letters) and first.rank > second.rank:
            return True
    return False


def print_time(tasks: Sequence[Structure], trials: int) -> None:
    """Print the least seconds of some rounds."""
    rows = draw_rows(tasks, 60, 0.1, np.random.default_rng(0))
    seconds = []
    for _ in range(min(trials, 3)):
        start = time.perf_counter()
        rank_rows(rows)
        seconds.append(time.perf_counter() - start)
    print(f"60 encoders on {len(tasks)} tasks: {min(seconds):.1f} s")


def main() -> None:
    """Print the chosen table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("wrong", "time"))
    parser.add_argument("--data", type=Path, default=os.environ.get("STSBENCH_DATA"))
    parser.add_argument("--trials", type=int, default=200)
    options = parser.parse_args()
    tasks = structures(TASKS, Path(options.data) if options.data else None)
    {"wrong": print_wrong, "time": print_time}[options.table](tasks, options.trials)


if __name__ == "__main__":
    main()
