"""Ten thousand results: seconds to load them, of ``leaderboard`` in each format, and ``compare``.

    python benchmarks/results.py [--results 10000]

Each has per-item columns of its task's true size, of which one sentence in three is in two pairs.
The first board computes each score again from them, and the interval of each mean; later ones hash
the files and find the verdicts and the intervals in the cache folder. The folder also holds files
that are no results: broken, half written, of an older schema, foreign.

On one core of an AMD EPYC (Zen 3), nothing else running:

    10000 results and 4 files that are none; load 1.0
    read 2.17 s
    the command: start, read and render
      terminal first 252.29 s, processor 252.01 s,   119,219 characters
      terminal later 10.99 s, processor 11.02 s,   119,219 characters
      markdown later 7.75 s, processor 7.85 s,   135,256 characters
      latex    later 8.44 s, processor 8.54 s,   135,866 characters
      html     later 9.54 s, processor 9.61 s, 1,925,882 characters
      csv      later 6.17 s, processor 6.28 s,   774,061 characters
      json     later 6.70 s, processor 6.80 s, 2,699,462 characters
      compare  first 4.55 s, processor 4.73 s,     1,663 characters
      compare  later 5.04 s, processor 5.25 s,     1,663 characters
      at most 251 MiB
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from stsbench.boards.render.formats import TERMINAL, WRITERS
from stsbench.core.catalogue import Catalogue
from stsbench.evaluators.sts import PROTOCOLS, StsEvaluator
from stsbench.results.folder import read_states, result_to_json, to_parquet
from stsbench.results.record import Result, digest_columns, items_path

ValueT = TypeVar("ValueT")
RUN = {
    "created": "2026-01-01T00:00:00+00:00", "seconds": 1.0, "device": "cpu", "dtype": "float32",
    "versions": {name: "1.0.0" for name in ("python", "torch", "transformers", "numpy", "scipy")},
}  # fmt: skip
SUBSETS = 5


def make_columns(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Make the per-item columns of a task that all encoders share: subsets, gold and sentences."""
    sentences = rng.permutation(np.concatenate([np.arange(2 * n - n // 2), np.arange(n // 2)]))
    return {
        "subset": [f"subset{item * SUBSETS // n}" for item in range(n)],
        "gold": np.round(5 * rng.random(n), 1),
        "sentence1": sentences[:n].astype(np.uint32),
        "sentence2": sentences[n:].astype(np.uint32),
    }


def make_result(encoder: str, task: str, columns: dict[str, Any]) -> Result:
    """Make a result as a run does: numbers that differ from the columns would not be believed."""
    protocol = PROTOCOLS["simcse"]
    scores = StsEvaluator(protocol=protocol).recompute(columns)
    return Result(
        encoder=encoder, task=task, split="test", score=scores.score, protocol=asdict(protocol),
        scores=dict(scores.scores),
        per_subset={name: dict(values) for name, values in scores.per_subset.items()},
        interval=scores.interval, interval_method=scores.interval_method, n=scores.n,
        zero_vectors=0, overlap="unknown", train_seed=None, eval_seed=0, encoder_card="0" * 64,
        fingerprint=encoder, revision=None, task_card="1" * 64, data="2" * 64,
        items=digest_columns(columns), notes=[], run=RUN, per_item=columns,
    )  # fmt: skip


def fill(folder: Path, count: int) -> None:
    """Write results of the suite ``sts`` as a run writes them, and four files that are none."""
    catalogue = Catalogue()
    rng = np.random.default_rng(0)
    tasks = catalogue.suites()["sts"].tasks
    columns_by_task = {
        task: make_columns(catalogue.task(task).splits["test"].n or 1000, rng) for task in tasks
    }
    for number in range(count):
        task = tasks[number % len(tasks)]
        gold = columns_by_task[task]["gold"]
        similarity = gold / 5 + (0.1 + number % 300 / 500) * rng.standard_normal(len(gold))
        columns = {**columns_by_task[task], "similarity": similarity}
        result = make_result(f"encoder-{number // len(tasks)}", task, columns)
        path = result.path_in(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(result_to_json(result))
        items_path(path).write_bytes(to_parquet(result.per_item))
    last_content = result_to_json(result)
    foreign = folder / "foreign"
    foreign.mkdir()
    for name, content in {
        "broken": b"{",
        "half": last_content[: len(last_content) // 2],
        "older": last_content.replace(b'"schema": 1', b'"schema": 0'),
        "other": b'{"model": "x"}',
    }.items():
        (foreign / f"{name}.json").write_bytes(content)


def timed(function: Callable[[], ValueT]) -> tuple[float, ValueT]:
    """Call a function; return the seconds and its value."""
    start = time.perf_counter()
    value = function()
    return time.perf_counter() - start, value


class CommandRun(NamedTuple):
    """One run of a command."""

    seconds: float
    busy_seconds: float
    """The seconds during which its processor was busy."""
    process: subprocess.CompletedProcess[str]


def run_command(cache: str, *arguments: str) -> CommandRun:
    """Run a command of stsbench with a cache folder of its own."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parent.parent),
        "STSBENCH_CACHE": cache,
    }
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    words = [sys.executable, "-m", "stsbench", *arguments]
    seconds, process = timed(
        lambda: subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return CommandRun(seconds, busy_seconds, process)


def main() -> None:
    """Print the seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=int, default=10_000)
    count = parser.parse_args().results
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as cache:
        folder = Path(name)
        fill(folder, count)
        seconds, states = timed(lambda: read_states(folder))
        print(
            f"{len(states.results)} results and {len(states.problems)} files that are none; "
            f"load {os.getloadavg()[0]:.1f}"
        )
        print(f"read {seconds:.2f} s")
        print("the command: start, read and render")
        for fmt, when in ((TERMINAL, "first"), *((fmt, "later") for fmt in (TERMINAL, *WRITERS))):
            run = run_command(cache, "leaderboard", "--results", name, "--format", fmt)
            print(
                f"  {fmt:8} {when} {run.seconds:.2f} s, processor {run.busy_seconds:.2f} s, "
                f"{len(run.process.stdout):9,} characters"
            )
        for when in ("first", "later"):
            names = ("encoder-0", "encoder-1")
            run = run_command(cache, "compare", *names, "--results", name)
            print(
                f"  compare  {when} {run.seconds:.2f} s, processor {run.busy_seconds:.2f} s, "
                f"{len(run.process.stdout):9,} characters"
            )
        largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(f"  at most {largest / 1024:,.0f} MiB")
    print(run.process.stderr, end="")


if __name__ == "__main__":
    main()
