"""How often ranks and letters are wrong, and how long they take: encoders on the real tasks' own shared sentences.

    python benchmarks/ties.py wrong --data DIR      # equal encoders told apart; true ranks outside their intervals
    python benchmarks/ties.py time --data DIR       # seconds for 60 encoders on seven tasks

Encoders are drawn anew in each trial as in ``calibration.py``, of which each differs from the next by ``step`` points. The
third of them lacks one task where ``gap`` says so.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
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
"""How many encoders a trial has, and which of them lacks a task."""
PROTOCOL = {"name": "simcse", "metric": "spearman", "aggregation": "all", "similarity": "cosine"}


def result(name: str, one: Structure, gold: Float64Array, similarity: Float64Array) -> Result:
    """A Result that holds its items; of its score and the facts of the run nothing is asked."""
    columns: dict[str, Any] = {"gold": gold, "similarity": similarity}
    columns |= {f"sentence{1 + side}": one.sentences[:, side] for side in (0, 1)}
    unasked: dict[str, Any] = {
        "scores": {}, "per_subset": {}, "interval": (-1.0, 1.0), "interval_method": "", "zero_vectors": 0,
        "overlap": "none", "train_seed": None, "eval_seed": 0, "encoder_card": None, "fingerprint": None,
        "revision": None, "task_card": "", "data": one.task, "notes": [], "run": {}, "score": 0.0,
    }  # fmt: skip
    return Result(
        encoder=name, task=one.task, split="test", protocol=PROTOCOL, n=len(gold), items=name, per_item=columns, **unasked
    )  # fmt: skip


def drawn_rows(
    tasks: Sequence[Structure], count: int, step: float, rng: Rng
) -> dict[int, list[list[Result]]]:
    """Encoders on all tasks, best first, each by so many points better than the next."""
    meaning, shared, *own = (Field(tasks, EFFECT, rng) for _ in range(2 + count))
    rows: dict[int, list[list[Result]]] = {at: [] for at in range(count)}
    for one in tasks:
        gold = gold_of(meaning(one))
        for at, error in enumerate(own):
            similarity = encode(meaning(one), shared(one), error(one), QUALITY - at * points(step))
            rows[at].append([result(f"encoder {at}", one, gold, similarity)])
    return rows


def print_wrong(tasks: Sequence[Structure], trials: int) -> None:
    """A table in markdown: what is called wrong, by the step between encoders and with a gap or none."""
    print(
        "| step | gap | equal encoders told apart | wrong order | true rank in its interval | of the encoder with the gap |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for step in (0.0, 0.5, 1.0):
        for gap in (None, "sickr", "sts12"):
            found = np.array([trial(tasks, step, gap, at) for at in range(trials)]).mean(axis=0)
            texts = [f"{100 * share:.1f}" if not np.isnan(share) else "–" for share in found]
            print(f"| {step} | {gap or 'none'} | {' | '.join(texts)} |", flush=True)


def trial(tasks: Sequence[Structure], step: float, gap: str | None, seed: int) -> list[float]:
    """Whether any equal ones are told apart or any order is wrong, and what share of true ranks is in its interval."""
    rows = drawn_rows(tasks, ENCODERS, step, np.random.default_rng([seed, int(100 * step)]))
    if gap is not None:
        rows[WITHOUT] = [
            [] if one.task == gap else cell for one, cell in zip(tasks, rows[WITHOUT], strict=True)
        ]
    found = rank_rows(rows, effort=TestSettings(n_draws=500, seed=seed))
    if step == 0:
        return [float(_told_apart(found)), np.nan, np.nan, np.nan]
    inside = [
        one.rank_interval[0] <= at + 1 <= one.rank_interval[1] for at, one in found.rows.items()
    ]
    return [np.nan, float(_wrong_order(found)), float(np.mean(inside)), float(inside[WITHOUT])]


def _told_apart(found: Standings[int]) -> bool:
    return any(
        not set(a.letters) & set(b.letters)
        for a in found.rows.values()
        for b in found.rows.values()
    )


def _wrong_order(found: Standings[int]) -> bool:
    """Whether an encoder is called better than one that truly is: they share no letter, and it has the lower rank."""
    pairs = [(found.rows[a], found.rows[b]) for a in found.rows for b in found.rows if a < b]
    return any(not set(a.letters) & set(b.letters) and a.rank > b.rank for a, b in pairs)


def print_time(tasks: Sequence[Structure], trials: int) -> None:
    """The least seconds of some rounds."""
    rows = drawn_rows(tasks, 60, 0.1, np.random.default_rng(0))
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
    parser.add_argument("what", choices=("wrong", "time"))
    parser.add_argument("--data", type=Path, default=os.environ.get("STSBENCH_DATA"))
    parser.add_argument("--trials", type=int, default=200)
    given = parser.parse_args()
    tasks = structures(TASKS, Path(given.data) if given.data else None)
    {"wrong": print_wrong, "time": print_time}[given.what](tasks, given.trials)


if __name__ == "__main__":
    main()
