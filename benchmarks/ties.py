"""How often ranks and letters are wrong, and how long they take.

    python benchmarks/ties.py ranks --data DIR  # how often all true ranks are inside at once
    python benchmarks/ties.py wrong --data DIR  # equal encoders distinguished, with gaps too
    python benchmarks/ties.py time --data DIR   # CPU seconds and memory for many encoders
    python benchmarks/ties.py letters           # CPU seconds for the letters of rows with gaps

Encoders are drawn anew in each trial as in ``calibration.py``, on the real tasks' shared sentences;
each differs from the next by ``step`` points, or as the case says. The third of them lacks the
task ``gap`` if there is one. Equal encoders may have any rank: then all ranks must be inside.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import time
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from calibration import QUALITY, TASKS, Field, Rng, Structure, encode, gold_of, points, structures

from stsbench.numbers.statistics import Float64Array
from stsbench.results.record import Result
from stsbench.significance.differences import TIE_TOLERANCE
from stsbench.significance.letters import assign_letters
from stsbench.significance.ranks import Standings, rank_rows

EFFECT = 0.2
SEEDS = 3
ENCODERS, WITHOUT = 5, 2
"""The number of encoders of a trial, and the index of the one that lacks a task."""
PROTOCOL = {"name": "simcse", "metric": "spearman", "aggregation": "all", "similarity": "cosine"}


def make_result(
    name: str,
    structure: Structure,
    gold: Float64Array,
    similarity: Float64Array,
    train_seed: int | None = None,
) -> Result:
    """Return a Result with these items; ranks do not depend on its score and other fields."""
    columns: dict[str, Any] = {"gold": gold, "similarity": similarity}
    columns |= {f"sentence{1 + side}": structure.sentences[:, side] for side in (0, 1)}
    unused: dict[str, Any] = {
        "scores": {}, "per_subset": {}, "interval": (-1.0, 1.0), "interval_method": "",
        "zero_vectors": 0, "overlap": "none", "train_seed": train_seed, "eval_seed": 0,
        "encoder_card": None, "fingerprint": None, "revision": None, "task_card": "",
        "data": structure.task, "notes": [], "run": {}, "score": 0.0,
    }  # fmt: skip
    return Result(
        encoder=name, task=structure.task, split="test", protocol=PROTOCOL, n=len(gold),
        items=f"{name} {train_seed}", per_item=columns, **unused,
    )  # fmt: skip


def draw_rows(
    tasks: Sequence[Structure], distances: Sequence[float], rng: Rng, *, seed_deviation: float = 0.0
) -> dict[int, list[list[Result]]]:
    """Draw the results of encoders on all tasks.

    Args:
        tasks: The tasks.
        distances: By how many points each encoder is worse than the best one.
        rng: The generator.
        seed_deviation: The deviation in points over the three seeds of each encoder; 0 for one.

    Returns:
        For each encoder its results on each task, one list per task.
    """
    meaning, shared = (Field(tasks, EFFECT, rng) for _ in range(2))
    golds = [gold_of(meaning(task)) for task in tasks]
    rows: dict[int, list[list[Result]]] = {}
    for encoder, distance in enumerate(distances):
        rows[encoder] = [[] for _ in tasks]
        for seed in range(SEEDS if seed_deviation else 1):
            error = Field(tasks, EFFECT, rng)
            quality = QUALITY - points(distance + seed_deviation * rng.normal())
            for task, gold, results in zip(tasks, golds, rows[encoder], strict=True):
                similarity = encode(meaning(task), shared(task), error(task), quality)
                name = f"encoder {encoder}"
                train_seed = seed if seed_deviation else None
                results.append(make_result(name, task, gold, similarity, train_seed))
    return rows


CASES: Sequence[tuple[str, Sequence[float], float]] = (
    *((f"{count} equal", [0.0] * count, 0.0) for count in (5, 8, 20, 60)),
    *((f"8 in steps of {step}", [step * index for index in range(8)], 0.0)
      for step in (0.05, 0.1, 0.5, 2.0)),
    ("5 equal, and 3 that are 2 points worse", [0.0] * 5 + [2.0] * 3, 0.0),
    ("5 equal, 3 seeds of deviation 1", [0.0] * 5, 1.0),
)  # fmt: skip
"""The label of a case, the distance of each encoder from the best, and the seeds' deviation."""


def print_ranks(tasks: Sequence[Structure], trials: int) -> None:
    """Print a table in markdown: how often all true ranks are inside, and how many ranks are."""
    print("| encoders | trials | all true ranks inside at once | ranks inside, mean |")
    print("| --- | --- | --- | --- |")
    for case, (label, distances, seed_deviation) in enumerate(CASES):
        n_trials = max(1, trials * min(8, len(distances)) // len(distances))
        n_covered = 0
        widths = []
        for trial in range(n_trials):
            rng = np.random.default_rng([trial, case])
            rows = draw_rows(tasks, distances, rng, seed_deviation=seed_deviation)
            standings = rank_rows(rows)
            n_covered += _covers_all(standings, distances)
            intervals = [row.rank_interval for row in standings.rows.values()]
            widths.append(np.mean([1 + worst - best for best, worst in intervals]))
        cells = [
            label,
            f"{n_trials}",
            f"{100 * n_covered / n_trials:.1f}",
            f"{np.mean(widths):.1f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def print_wrong(tasks: Sequence[Structure], trials: int) -> None:
    """Print a table in markdown: what is wrong, by the step between encoders and by the gap."""
    print(
        "| step | gap | equal encoders told apart | wrong order | all true ranks inside at once |"
    )
    print("| --- | --- | --- | --- | --- |")
    for step in (0.0, 0.5):
        for gap in (None, "sickr", "sts12"):
            outcomes = [run_trial(tasks, step, gap, seed) for seed in range(trials)]
            shares = np.array(outcomes).mean(axis=0)
            cells = [f"{100 * share:.1f}" if not np.isnan(share) else "–" for share in shares]
            print(f"| {step} | {gap or 'none'} | {' | '.join(cells)} |", flush=True)


def run_trial(tasks: Sequence[Structure], step: float, gap: str | None, seed: int) -> list[float]:
    """Rank drawn encoders once.

    Returns:
        Whether any equal encoders are distinguished, whether any order is wrong, and whether all
        true ranks are in their intervals; NaN for what does not apply.
    """
    distances = [step * encoder for encoder in range(ENCODERS)]
    rows = draw_rows(tasks, distances, np.random.default_rng([seed, int(100 * step)]))
    if gap is not None:
        rows[WITHOUT] = [
            [] if task.task == gap else results
            for task, results in zip(tasks, rows[WITHOUT], strict=True)
        ]
    standings = rank_rows(rows)
    is_covered = float(_covers_all(standings, distances))
    if step == 0:
        return [float(_distinguishes_any(standings)), np.nan, is_covered]
    return [np.nan, float(_has_wrong_order(standings)), is_covered]


def _covers_all(standings: Standings[int], distances: Sequence[float]) -> bool:
    """Return whether all true ranks are in their intervals; equal encoders share theirs."""
    for encoder, row in standings.rows.items():
        n_better = sum(distance < distances[encoder] for distance in distances)
        n_not_worse = sum(distance <= distances[encoder] for distance in distances)
        best, worst = row.rank_interval
        if best > n_better + 1 or worst < n_not_worse:
            return False
    return True


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
    """Print a table in markdown: CPU seconds to rank encoders with letters, and the peak memory."""
    del trials
    print("| encoders | share of cells missing | CPU seconds | peak memory |")
    print("| --- | --- | --- | --- |")
    for count, missing in ((60, 0.0), (600, 0.4), (1500, 0.0)):
        rng = np.random.default_rng(count)
        rows = _draw_fast(tasks, count, missing, rng)
        start = time.process_time()
        rank_rows(rows)
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
        print(f"| {count} | {missing:.0%} | {seconds:.1f} | {peak:.2f} GB |", flush=True)


def _draw_fast(
    tasks: Sequence[Structure], count: int, missing: float, rng: Rng
) -> dict[int, list[list[Result]]]:
    """Draw encoders whose errors are independent, with a share of cells missing."""
    meaning = Field(tasks, EFFECT, rng)
    rows: dict[int, list[list[Result]]] = {encoder: [] for encoder in range(count)}
    golds = [gold_of(meaning(task)) for task in tasks]
    for encoder, results_by_task in rows.items():
        for task, gold in zip(tasks, golds, strict=True):
            error = rng.normal(size=len(gold))
            similarity = (QUALITY - encoder * points(0.1)) * meaning(task) + 0.6 * error
            result = make_result(f"encoder {encoder}", task, gold, similarity)
            results_by_task.append([] if rng.random() < missing else [result])
    return {encoder: results for encoder, results in rows.items() if any(results)}


def print_letters() -> None:
    """Print a table in markdown: CPU seconds for letters of rows of which many lack tasks."""
    print("| rows | share of cells missing | letters | differences displayed | CPU seconds |")
    print("| --- | --- | --- | --- | --- |")
    for k, missing in product((300, 600, 1500), (0.0, 0.02, 0.4)):
        different = _draw_differences(k, missing, np.random.default_rng(k))
        start = time.process_time()
        display = assign_letters(different)
        seconds = time.process_time() - start
        letters_by_row = [_split_letters(letters) for letters in display.letters]
        letters = sorted(set().union(*letters_by_row))
        has_letter = np.array([[letter in row for letter in letters] for row in letters_by_row])
        is_displayed = ~(has_letter @ has_letter.T)
        share = (is_displayed & different).sum() / different.sum()
        cells = [str(k), f"{missing:.0%}", str(len(letters)), f"{share:.0%}", f"{seconds:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


def _draw_differences(k: int, missing: float, rng: Rng) -> npt.NDArray[np.bool_]:
    """Draw which of k rows on seven tasks differ, best rows first, (k, k).

    Args:
        k: The number of rows.
        missing: The share of cells that are missing.
        rng: The generator.
    """
    has_score = rng.random((k, len(TASKS))) >= missing
    has_score[~has_score.any(axis=1), 0] = True
    abilities = rng.normal(size=(k, 1))
    scores = np.where(has_score, abilities + 0.5 * rng.normal(size=has_score.shape), 0.0)
    weights = has_score.astype(float)
    n_common = weights @ weights.T
    sums = weights @ scores.T
    differences = np.divide(sums - sums.T, n_common, out=np.zeros((k, k)), where=n_common > 0)
    errors = np.sqrt(2 * 0.5**2 / np.maximum(n_common, 1))
    different = np.abs(differences) > 4.5 * errors
    best_first = np.argsort((differences > TIE_TOLERANCE).sum(axis=1))
    return np.asarray(different[np.ix_(best_first, best_first)])


def _split_letters(letters: str) -> set[str]:
    """Split the letters of a row; dots before a letter are part of it."""
    return set(re.findall(r"\.*[a-zA-Z]", letters))


def main() -> None:
    """Print the chosen table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("ranks", "wrong", "time", "letters"))
    parser.add_argument("--data", type=Path, default=os.environ.get("STSBENCH_DATA"))
    parser.add_argument("--trials", type=int, default=200)
    options = parser.parse_args()
    if options.table == "letters":
        print_letters()
        return
    tasks = structures(TASKS, Path(options.data) if options.data else None)
    tables = {"ranks": print_ranks, "wrong": print_wrong, "time": print_time}
    tables[options.table](tasks, options.trials)


if __name__ == "__main__":
    main()
