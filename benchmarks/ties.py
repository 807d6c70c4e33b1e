"""How often ranks and letters are wrong, and how long they take.

    python benchmarks/ties.py ranks --data DIR  # how often all true ranks are inside at once
    python benchmarks/ties.py wrong --data DIR  # equal encoders distinguished, with gaps too
    python benchmarks/ties.py time --data DIR   # CPU seconds for 60 encoders on seven tasks
    python benchmarks/ties.py letters           # CPU seconds for the letters of rows with gaps

Encoders are drawn anew in each trial as in ``calibration.py``, on the real tasks' shared sentences;
each differs from the next by ``step`` points. The third of them lacks the task ``gap`` if there is
one. Equal encoders may have any rank: then all ranks must be inside.
"""

from __future__ import annotations

import argparse
import os
import re
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
from stsbench.significance.means import Standings, assign_letters, rank_rows

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


def print_ranks(tasks: Sequence[Structure], trials: int) -> None:
    """Print a table in markdown: how often all true ranks are inside, and how many ranks are."""
    print("| encoders | step | all true ranks inside at once | ranks inside, mean |")
    print("| --- | --- | --- | --- |")
    for count, step in product((5, 8), (0.0, 0.1, 0.5)):
        n_covered = 0
        widths = []
        for seed in range(trials):
            rng = np.random.default_rng([seed, count, int(100 * step)])
            standings = rank_rows(draw_rows(tasks, count, step, rng))
            n_covered += _covers_all(standings, step)
            intervals = [row.rank_interval for row in standings.rows.values()]
            widths.append(np.mean([1 + worst - best for best, worst in intervals]))
        cells = [str(count), str(step), f"{100 * n_covered / trials:.1f}", f"{np.mean(widths):.1f}"]
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
    rows = draw_rows(tasks, ENCODERS, step, np.random.default_rng([seed, int(100 * step)]))
    if gap is not None:
        rows[WITHOUT] = [
            [] if task.task == gap else results
            for task, results in zip(tasks, rows[WITHOUT], strict=True)
        ]
    standings = rank_rows(rows)
    is_covered = float(_covers_all(standings, step))
    if step == 0:
        return [float(_distinguishes_any(standings)), np.nan, is_covered]
    return [np.nan, float(_has_wrong_order(standings)), is_covered]


def _covers_all(standings: Standings[int], step: float) -> bool:
    """Return whether all true ranks are in their intervals; equal encoders have all ranks."""
    k = len(standings.rows)
    for encoder, row in standings.rows.items():
        best, worst = row.rank_interval
        if step == 0 and (best, worst) != (1, k):
            return False
        if step > 0 and not best <= encoder + 1 <= worst:
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
    """Print the least CPU seconds of some rounds."""
    rows = draw_rows(tasks, 60, 0.1, np.random.default_rng(0))
    seconds = []
    for _ in range(min(trials, 3)):
        start = time.process_time()
        rank_rows(rows)
        seconds.append(time.process_time() - start)
    print(f"60 encoders on {len(tasks)} tasks: {min(seconds):.1f} CPU seconds")


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
