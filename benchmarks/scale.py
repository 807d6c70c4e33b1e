"""The cost of many encoders on many tasks, and how much of it many workers save.

    STSBENCH_DATA=DIR python benchmarks/scale.py costs FILE  # measured: seconds of processor time
    python benchmarks/scale.py simulate FILE --devices 8 --seconds 600  # workers that sleep
    STSBENCH_DATA=DIR python benchmarks/scale.py workers     # real ones: threads and processes

The work is 100 encoders x 40 tasks x 3 seeds: the suites sts, transfer and probing, and 16 of the
suite multilingual, with as many sentences as their cards say. ``simulate`` runs it on Ray with the
executor of ``run --on ray``, its store and its results; only embedding, loading and scoring sleep,
for the time that they were measured to take. So that the ideal run takes ``--seconds``, the run is
made smaller, sentences and times by the same factor: the time that the executor needs for a job
stays the same, and weighs that much more than in the whole run. Workers are started before the
clock is. With ``--threads`` the devices are threads of this process in place of Ray's workers, for
a machine without cores for so many processes: then all but Ray itself is what ``run --on ray``
does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from sleeping import ENCODER, TASK, Threads

import stsbench
from stsbench.bench import workers as worker
from stsbench.bench.job_run import JobRun
from stsbench.bench.plan import RunPlan
from stsbench.bench.pools import RayPool
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.ray_cluster import Ray, connect_ray
from stsbench.bench.run import RunContext
from stsbench.bench.workers import WorkerPool
from stsbench.core.catalogue import Catalogue
from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task

ENCODERS, SEEDS, MULTILINGUAL = 100, 3, 16


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of one core.

    Attributes:
        load: Of loading an encoder.
        tokenise: Of tokenising a sentence.
        embed: Of embedding a sentence.
        pair_score: Of scoring a sentence of a task of pairs with one seed.
        probe_score: Of scoring a sentence of a probe with one seed.
    """

    load: float
    tokenise: float
    embed: float
    pair_score: float
    probe_score: float

    def of_task(self, sentences: int, *, probed: bool) -> float:
        """Return the seconds of scoring a task once."""
        return sentences * (self.probe_score if probed else self.pair_score)


class TaskSize(NamedTuple):
    """The size of a task."""

    n_sentences: int
    is_probed: bool
    """A probe scores it."""


def task_sizes() -> dict[str, TaskSize]:
    """Return the size of each of the 40 tasks."""
    catalogue = Catalogue()
    suites = catalogue.suites()
    names = [name for suite in ("sts", "transfer", "probing") for name in suites[suite].tasks]
    names += suites["multilingual"].tasks[:MULTILINGUAL]
    sizes = {}
    for name in names:
        card = load_task(name, catalogue=catalogue).card
        is_probed = card.evaluator == "probe"
        used_splits = card.splits.values() if is_probed else [card.splits[card.score_split]]
        n_items = sum(split.n or 0 for split in used_splits)
        per_item = 1 if name in suites["probing"].tasks else 2 - is_probed
        sizes[name] = TaskSize(n_items * per_item, is_probed)
    return sizes


def whole_run(costs: Costs) -> tuple[float, float]:
    """Return the core seconds of embedding and of scoring for the whole run."""
    sizes = task_sizes().values()
    n_sentences = sum(size.n_sentences for size in sizes)
    embedding = costs.load + n_sentences * (costs.tokenise + costs.embed)
    scoring = sum(costs.of_task(size.n_sentences, probed=size.is_probed) for size in sizes)
    return ENCODERS * embedding, ENCODERS * SEEDS * scoring


def make_run(folder: Path, costs: Costs, factor: float) -> RunPlan:
    """Write the cards and data of the run, smaller by a factor, and return its plan."""
    log = folder / "log"
    for name in ("cards/tasks", "cards/baselines", "data", "log"):
        (folder / name).mkdir(parents=True)
    sizes = task_sizes()
    for name, size in sizes.items():
        n_pairs = max(2, round(size.n_sentences / 2 / factor))
        seconds = costs.of_task(size.n_sentences, probed=size.is_probed) / factor
        (folder / "cards/tasks" / f"x-{name}.toml").write_text(
            TASK.format(name=f"x-{name}", n=n_pairs, seconds=seconds, log=log)
        )
        words = "one of the words of " * 2
        rows = [f"{words}{name} {i}\t{words}{name} with {i}\t{i % 5}\n" for i in range(n_pairs)]
        (folder / "data" / f"x-{name}.tsv").write_text("".join(rows))
    encoders = [f"simulated-{number}" for number in range(ENCODERS)]
    for number, encoder in enumerate(encoders):
        values = {**asdict(costs), "load": costs.load / factor, "number": number, "log": log}
        (folder / "cards/baselines" / f"{encoder}.toml").write_text(ENCODER.format(**values))
    return RunPlan(
        encoders=encoders,
        tasks=",".join(f"x-{name}" for name in sizes),
        results_folder=folder / "results",
        store=folder / "store",
        data=folder / "data",
        executor="ray",
        seeds=tuple(range(SEEDS)),
        catalogue=Catalogue([folder / "cards"]),
    )


def start_workers(ray: Ray, devices: int, folder: Path) -> None:
    """Wait until all workers are running and have imported their libraries."""
    marks = folder / "started"
    marks.mkdir()

    def ready() -> None:
        assert worker.__name__
        (marks / str(os.getpid())).touch()
        while len(list(marks.iterdir())) < devices:
            time.sleep(0.5)

    ray.get([ray.remote(num_cpus=1)(ready).remote() for _ in range(devices)])


@contextmanager
def pool_of(count: int, folder: Path, *, threads: bool) -> Iterator[WorkerPool]:
    """Provide this number of Ray's workers, or as many threads."""
    if threads:
        # The encoder of a process would be that of all threads.
        worker.reuse_loaded_encoder = lambda encoder: encoder
        yield Threads(count)
        return
    os.environ["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": count})
    with connect_ray("ray") as ray:
        start_workers(ray, count, folder)
        yield RayPool(ray, is_own_ray=True)


def simulate(costs: Costs, devices: int, seconds: float, *, threads: bool) -> None:
    """Run it on sleeping workers, and print the share of the ideal speed-up and the other times."""
    embedding, scoring = whole_run(costs)
    factor = (embedding + scoring) / devices / seconds
    with (
        tempfile.TemporaryDirectory() as name,
        pool_of(devices, Path(name), threads=threads) as pool,
    ):
        folder = Path(name)
        plan = make_run(folder, costs, factor)
        failures: list[str] = []
        callbacks = RunCallbacks(
            on_failure=lambda subject, error: failures.append(f"{subject}: {error}"),
            on_notice=failures.append,
        )
        context = RunContext(plan, callbacks)
        job_run = JobRun(context, pool)
        start = time.time()
        busy_start = time.process_time()
        encoder_plans = list(context.encoder_plans())
        planning = time.time() - start
        results = list(job_run.results(encoder_plans))
        elapsed = time.time() - start
        busy = time.process_time() - busy_start
        spent, idle = accounts(folder / "log", start, start + elapsed, devices)
    n_tasks = len(task_sizes())
    assert len(results) == ENCODERS * SEEDS * n_tasks and not failures, failures[:3]
    speed_up = (embedding + scoring) / factor / elapsed
    print(
        f"{ENCODERS} encoders x {n_tasks} tasks x {SEEDS} seeds: "
        f"{embedding / 3600:.0f} core hours of embedding, {scoring / 3600:.0f} of scoring; "
        f"here smaller by {factor:.0f}"
    )
    print(
        f"{devices} devices: {elapsed:.0f} s, speed-up {speed_up:.1f}, "
        f"{100 * speed_up / devices:.1f}% of ideal; "
        f"load of this machine's {os.cpu_count()} cores {os.getloadavg()[1]:.0f}"
    )
    print(f"of the devices' time: {format_shares(spent, devices * elapsed)}")
    print(f"waiting: {format_shares(idle, devices * elapsed)}")
    print(
        f"the driver planned for {planning:.0f} s and needed {busy:.0f} s of processor time, "
        f"{100 * busy / elapsed:.0f}% of a core"
    )


def format_shares(seconds_by_step: dict[str, float], total: float) -> str:
    """Return each step with its share of a total in percent."""
    return ", ".join(
        f"{step} {100 * seconds / total:.1f}%" for step, seconds in seconds_by_step.items()
    )


def accounts(
    log: Path, run_start: float, run_end: float, devices: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the seconds of all devices by what they did, and by when they did nothing.

    Args:
        log: The folder with one file of steps per device that did something.
        run_start: When the run began, in seconds since 1970.
        run_end: When it ended.
        devices: The number of devices.
    """
    spent: dict[str, float] = defaultdict(float)
    idle = {"before the first piece": 0.0, "between pieces": 0.0, "after the last": 0.0}
    paths = sorted(log.iterdir())
    for path in paths:
        rows = [line.split() for line in path.read_text().splitlines()]
        spans = [
            (step, float(start), float(end))
            for step, start, end in rows
            if float(start) >= run_start
        ]
        for step, start, end in spans:
            spent[step] += end - start
        idle["before the first piece"] += spans[0][1] - run_start
        for (_, _, previous_end), (_, next_start, _) in pairwise(spans):
            idle["between pieces"] += next_start - previous_end
        idle["after the last"] += run_end - spans[-1][2]
    idle["before the first piece"] += (devices - len(paths)) * (run_end - run_start)
    return spent, idle


def spent_in(work: Callable[[], object]) -> float:
    """Return the processor seconds of this process, the least of two times."""
    best = float("inf")
    for _ in range(2):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def measure() -> Costs:
    """Measure the costs with all-MiniLM-L6-v2, in one thread if that can be chosen."""
    import torch

    torch.set_num_threads(1)
    pairs = load_task("stsb").load("test")
    assert isinstance(pairs, PairSplit)
    texts = sorted(set(pairs.texts()))[::3]
    loaded: Any = None

    def load() -> None:
        nonlocal loaded
        loaded = stsbench.load_encoder("minilm")
        loaded.tokenize(["one"])

    with tempfile.TemporaryDirectory() as store:

        def score(task: str) -> float:
            list(stsbench.evaluate(loaded, task, store=store))
            n = sum(
                len(set(split.texts()))
                for split in [load_task(task).load(name) for name in load_task(task).card.splits]
            )
            return spent_in(lambda: list(stsbench.evaluate(loaded, task, store=store))) / n

        return Costs(
            load=spent_in(load),
            tokenise=spent_in(lambda: loaded.tokenize(texts)) / len(texts),
            embed=spent_in(lambda: loaded.encode(texts)) / len(texts),
            pair_score=score("sts16"),
            probe_score=score("trec"),
        )


WORKERS: list[tuple[str, list[str], int]] = [
    ("one process of one thread", [], 1),
    ("one process of two threads", [], 2),
    ("two processes of one thread", ["--devices", "cpu,cpu"], 1),
]
"""What is timed: its name, the options of ``stsbench run``, and the threads of a process."""


def workers(tasks: str, rounds: int) -> None:
    """Time ``stsbench run`` by one and two processes, and by Ray if it is there, alternating.

    Prints the best time of each, and the least processor time of all its processes together.
    """
    best: dict[str, tuple[float, float]] = {}
    on_ray = [("two workers of Ray", ["--on", "ray"], 1)] if find_spec("ray") else []
    for _ in range(rounds):
        for name, options, threads in [*WORKERS, *on_ray]:
            with tempfile.TemporaryDirectory() as folder:
                command = [
                    sys.executable,
                    "-m",
                    "stsbench",
                    "run",
                    "minilm",
                    "--tasks",
                    tasks,
                    *options,
                ]
                folders = ["--store", f"{folder}/store", "--results", f"{folder}/results"]
                variables = {
                    "RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": 2}),
                    "OMP_NUM_THREADS": str(threads),
                }
                began, used = time.perf_counter(), seconds_of_children()
                subprocess.run(
                    [*command, *folders],
                    check=True,
                    capture_output=True,
                    env={**os.environ, **variables},
                )
                took, used = time.perf_counter() - began, seconds_of_children() - used
                best_took, best_used = best.get(name, (took, used))
                best[name] = min(took, best_took), min(used, best_used)
    print(
        f"minilm on {tasks}, best of {rounds}: "
        + ", ".join(
            f"{name} {took:.1f} s ({used:.1f} s used)" for name, (took, used) in best.items()
        )
        + f"; load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    )


def seconds_of_children() -> float:
    """Return the processor time of the processes that have ended, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure, simulate or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("costs").add_argument("file", type=Path)
    simulation = commands.add_parser("simulate")
    simulation.add_argument("file", type=Path, help="what costs wrote")
    simulation.add_argument("--devices", type=int, default=8)
    simulation.add_argument("--seconds", type=float, default=600, help="of the ideal run")
    simulation.add_argument("--threads", action="store_true", help="in the place of Ray's workers")
    real = commands.add_parser("workers")
    real.add_argument("--tasks", default="sts")
    real.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.command == "costs":
        options.file.write_text(json.dumps(asdict(measure()), indent=1) + "\n")
        print(options.file.read_text(), end="")
    elif options.command == "simulate":
        simulate(
            Costs(**json.loads(options.file.read_text())),
            options.devices,
            options.seconds,
            threads=options.threads,
        )
    elif options.command == "workers":
        workers(options.tasks, options.rounds)


if __name__ == "__main__":
    main()
