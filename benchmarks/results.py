"""Ten thousand results: seconds to load them, and of ``stsbench leaderboard`` in each format, from start to text.

    python benchmarks/results.py [--results 10000]

The folder also holds files that are no results: broken, half written, of an older schema, foreign.
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
from pathlib import Path
from typing import TypeVar

import msgspec

from stsbench.cards.catalogue import Catalogue
from stsbench.leaderboard.render import TERMINAL, WRITERS
from stsbench.results.folder import result_to_json, scan_results
from stsbench.results.record import Result

Made = TypeVar("Made")
PROTOCOL = {"name": "simcse", "metric": "spearman", "aggregation": "all", "similarity": "cosine"}
SUBSET: dict[str, int | float] = {"spearman": 0.75, "pearson": 0.74, "kendall": 0.55, "n": 750}


def fill(folder: Path, count: int) -> None:
    """Write results of the suite ``sts`` as a run writes them, and four files that are none."""
    base = Result(
        encoder="", task="", split="test", score=0.7, protocol=PROTOCOL,
        scores={f"{m}.{a}": SUBSET[m] for m in ("spearman", "pearson", "kendall") for a in ("all", "mean", "wmean")},
        per_subset={f"subset{at}": SUBSET for at in range(5)},
        interval=(0.68, 0.72), interval_method="percentile bootstrap over pairs, 1000 resamples",
        n=3750, zero_vectors=0, overlap="unknown", train_seed=None, eval_seed=0, encoder_card="0" * 64,
        fingerprint="", revision=None, task_card="1" * 64, data="2" * 64, items="3" * 64, notes=[],
        run={"created": "2026-01-01T00:00:00+00:00", "seconds": 1.0, "device": "cpu", "dtype": "float32",
             "versions": {name: "1.0.0" for name in ("python", "torch", "transformers", "numpy", "scipy")}},
    )  # fmt: skip
    tasks = Catalogue().suites()["sts"].tasks
    for number in range(count):
        encoder, task = number // len(tasks), tasks[number % len(tasks)]
        score = 0.5 + number % 3000 / 1e4
        one = msgspec.structs.replace(
            base, encoder=f"encoder-{encoder}", task=task, fingerprint=str(encoder), score=score,
            scores={**base.scores, "spearman.all": score}, interval=(score - 0.02, score + 0.02),
        )  # fmt: skip
        path = one.path_in(folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(result_to_json(one))
        path.with_suffix(".items.parquet").write_bytes(b"")
    whole = result_to_json(base)
    foreign = folder / "foreign"
    foreign.mkdir()
    for name, content in {
        "broken": b"{", "half": whole[: len(whole) // 2], "older": whole.replace(b'"schema": 1', b'"schema": 0'),
        "other": b'{"model": "x"}',
    }.items():  # fmt: skip
        (foreign / f"{name}.json").write_bytes(content)


def timed(what: Callable[[], Made]) -> tuple[float, Made]:
    """Seconds of a call, and what it returned."""
    start = time.perf_counter()
    made = what()
    return time.perf_counter() - start, made


def command(*arguments: str) -> tuple[float, float, subprocess.CompletedProcess[str]]:
    """Seconds of a command, those its processor was busy, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    whole = [sys.executable, "-m", "stsbench", *arguments]
    seconds, done = timed(lambda: subprocess.run(whole, env=environment, check=True, capture_output=True, text=True))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done


def main() -> None:
    """Print the seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=int, default=10_000)
    count = parser.parse_args().results
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fill(folder, count)
        loading, found = timed(lambda: scan_results(folder))
        print(f"{len(found.results)} results and {len(found.problems)} files that are none")
        print(f"load {loading:.2f} s")
        print("the command: start, load and render")
        for fmt in (TERMINAL, *WRITERS):
            whole, busy, done = command("leaderboard", "--results", name, "--format", fmt)
            print(f"  {fmt:8} {whole:.2f} s, processor {busy:.2f} s, {len(done.stdout):9,} characters")
    print(done.stderr, end="")


if __name__ == "__main__":
    main()
