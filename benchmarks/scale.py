"""What many encoders on many tasks cost, and how much of it many workers save.

    STSBENCH_DATA=DIR python benchmarks/scale.py costs FILE             # measured: seconds of processor time
    python benchmarks/scale.py simulate FILE --devices 8 --seconds 600  # the executor itself, over workers that sleep
    STSBENCH_DATA=DIR python benchmarks/scale.py workers                # one and two real workers against one process

The work is 100 encoders x 40 tasks x 3 seeds: the suites sts, transfer and probing, and 16 of the suite multilingual, with
as many sentences as their cards say. ``simulate`` runs it on Ray with the executor of ``run --on ray``, its store and its
results; only embedding, loading and scoring sleep, for the time that they were measured to take. So that the ideal run takes
``--seconds``, the run is made smaller, sentences and times by the same factor: what the executor needs for a piece of work
stays as it is, and weighs that much more than in the whole run. Workers are started before the clock is. With ``--threads``
the devices are threads of this process in the place of Ray's workers, where this machine has no cores for so many processes:
then all but Ray itself is what ``run --on ray`` does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sleeping import ENCODER, TASK, Reports, Threads

import stsbench
from stsbench.bench import workers as worker
from stsbench.bench.plan import RunPlan
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.ray_run import RayRun
from stsbench.bench.run import RunContext
from stsbench.bench.workers import Ray, connect_ray
from stsbench.core.catalogue import Catalogue
from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task

ENCODERS, SEEDS, MULTILINGUAL = 100, 3, 16


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds of one core: of loading an encoder, of a sentence, and of scoring a sentence under a seed."""

    load: float
    tokenise: float
    embed: float
    pair_score: float
    probe_score: float

    def of_task(self, sentences: int, *, probed: bool) -> float:
        """Seconds of scoring a task once."""
        return sentences * (self.probe_score if probed else self.pair_score)


def task_sizes() -> dict[str, tuple[int, bool]]:
    """The sentences of each of the 40 tasks, and whether a probe scores it."""
    catalogue, found = Catalogue(), {}
    suites = catalogue.suites()
    for name in [*(one for suite in ("sts", "transfer", "probing") for one in suites[suite].tasks),
                 *suites["multilingual"].tasks[:MULTILINGUAL]]:  # fmt: skip
        card = load_task(name, catalogue=catalogue).card
        probed = card.evaluator == "probe"
        used = card.splits.values() if probed else [card.splits[card.score_split]]
        found[name] = (
            sum(split.n or 0 for split in used)
            * (1 if name in suites["probing"].tasks else 2 - probed),
            probed,
        )
    return found


def whole_run(costs: Costs) -> tuple[float, float]:
    """Core seconds of embedding and of scoring all of it."""
    sizes = task_sizes().values()
    sentences = sum(n for n, _ in sizes)
    embedding = costs.load + sentences * (costs.tokenise + costs.embed)
    return ENCODERS * embedding, ENCODERS * SEEDS * sum(
        costs.of_task(n, probed=probed) for n, probed in sizes
    )


def make_run(folder: Path, costs: Costs, factor: float) -> RunPlan:
    """Cards and data of the run, smaller by a factor."""
    log = folder / "log"
    for name in ("cards/tasks", "cards/baselines", "data", "log"):
        (folder / name).mkdir(parents=True)
    sizes = task_sizes()
    for name, (sentences, probed) in sizes.items():
        pairs = max(2, round(sentences / 2 / factor))
        seconds = costs.of_task(sentences, probed=probed) / factor
        (folder / "cards/tasks" / f"x-{name}.toml").write_text(
            TASK.format(name=f"x-{name}", n=pairs, seconds=seconds, log=log)
        )
        words = "one of the words of " * 2
        rows = [f"{words}{name} {i}\t{words}{name} with {i}\t{i % 5}\n" for i in range(pairs)]
        (folder / "data" / f"x-{name}.tsv").write_text("".join(rows))
    for number in range(ENCODERS):
        values = {**asdict(costs), "load": costs.load / factor, "number": number, "log": log}
        (folder / "cards/baselines" / f"simulated-{number}.toml").write_text(
            ENCODER.format(**values)
        )
    return RunPlan(
        encoders=[f"simulated-{number}" for number in range(ENCODERS)], tasks=",".join(f"x-{name}" for name in sizes),
        results_folder=folder / "results", store=folder / "store", data=folder / "data", executor="ray", seeds=tuple(range(SEEDS)),
        catalogue=Catalogue([folder / "cards"]),
    )  # fmt: skip


def start_workers(ray: Ray, devices: int, folder: Path) -> None:
    """Have all workers running and their libraries imported."""
    marks = folder / "started"
    marks.mkdir()

    def ready() -> None:
        assert worker.__name__
        (marks / str(os.getpid())).touch()
        while len(list(marks.iterdir())) < devices:
            time.sleep(0.5)

    ray.get([ray.remote(num_cpus=1)(ready).remote() for _ in range(devices)])


@contextmanager
def devices_of(count: int, *, threads: bool) -> Iterator[Any]:
    """Ray with so many workers, or as many threads."""
    if threads:
        # The encoder of a process would be that of all threads.
        worker.get_encoder = lambda encoder: encoder
        yield Threads(count)
        return
    os.environ["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": count})
    with connect_ray("ray") as ray:
        yield ray


def simulate(costs: Costs, devices: int, seconds: float, *, threads: bool) -> None:
    """Run it on so many sleeping workers, and print how much of the ideal speed-up that is and where the rest goes."""
    embedding, scoring = whole_run(costs)
    factor = (embedding + scoring) / devices / seconds
    with tempfile.TemporaryDirectory() as place, devices_of(devices, threads=threads) as ray:
        folder = Path(place)
        settings = make_run(folder, costs, factor)
        failures: list[str] = []
        listener = RunCallbacks(
            on_failure=lambda what, error: failures.append(f"{what}: {error}"),
            on_notice=failures.append,
        )
        work = RunContext(settings, listener)
        cluster = RayRun(work, ray)
        if threads:
            cluster.__dict__["_events"] = Reports()
        else:
            start_workers(ray, devices, folder)
        began, own = time.time(), time.process_time()
        parts = list(work.encoder_plans())
        planned = time.time() - began
        results = list(cluster.results(parts))
        took, own = time.time() - began, time.process_time() - own
        spent, idle = accounts(folder / "log", began, began + took, devices)
    assert len(results) == ENCODERS * SEEDS * len(task_sizes()) and not failures, failures[:3]
    ideal = embedding + scoring
    print(f"{ENCODERS} encoders x {len(task_sizes())} tasks x {SEEDS} seeds: {embedding / 3600:.0f} core hours of embedding, "
          f"{scoring / 3600:.0f} of scoring; here smaller by {factor:.0f}")  # fmt: skip
    print(f"{devices} devices: {took:.0f} s, speed-up {ideal / factor / took:.1f}, "
          f"{100 * ideal / factor / took / devices:.1f}% of ideal; load of this machine's {os.cpu_count()} cores {os.getloadavg()[1]:.0f}")  # fmt: skip
    whole = devices * took
    print(
        "of the devices' time: "
        + ", ".join(f"{what} {100 * one / whole:.1f}%" for what, one in spent.items())
    )
    print("waiting: " + ", ".join(f"{what} {100 * one / whole:.1f}%" for what, one in idle.items()))
    print(
        f"the driver planned for {planned:.0f} s and needed {own:.0f} s of processor time, "
        f"{100 * own / took:.0f}% of a core"
    )


def accounts(
    log: Path, began: float, ended: float, devices: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of all devices by what they did, and by when they did nothing."""
    spent: dict[str, float] = defaultdict(float)
    idle = {"before the first piece": 0.0, "between pieces": 0.0, "after the last": 0.0}
    found = sorted(log.iterdir())
    for path in found:
        rows = [line.split() for line in path.read_text().splitlines()]
        spans = [
            (what, float(start), float(end)) for what, start, end in rows if float(start) >= began
        ]
        for what, start, end in spans:
            spent[what] += end - start
        idle["before the first piece"] += spans[0][1] - began
        idle["between pieces"] += sum(b[1] - a[2] for a, b in zip(spans, spans[1:], strict=False))
        idle["after the last"] += ended - spans[-1][2]
    idle["before the first piece"] += (devices - len(found)) * (ended - began)
    return spent, idle


def spent_in(work: Callable[[], object]) -> float:
    """Processor seconds of this process, least of two times."""
    best = float("inf")
    for _ in range(2):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best


def measure() -> Costs:
    """Measure the costs with all-MiniLM-L6-v2, in one thread where that can be chosen."""
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
                len(set(one.texts()))
                for one in [load_task(task).load(name) for name in load_task(task).card.splits]
            )
            return spent_in(lambda: list(stsbench.evaluate(loaded, task, store=store))) / n

        return Costs(
            load=spent_in(load),
            tokenise=spent_in(lambda: loaded.tokenize(texts)) / len(texts),
            embed=spent_in(lambda: loaded.encode(texts)) / len(texts),
            pair_score=score("sts16"),
            probe_score=score("trec"),
        )


def workers(tasks: str, rounds: int) -> None:
    """Seconds of ``stsbench run`` in one process and on one and two workers, alternating, the best of each."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, options, count in (
            ("local", [], 1),
            ("1 worker", ["--on", "ray"], 1),
            ("2 workers", ["--on", "ray"], 2),
        ):
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
                places = ["--store", f"{folder}/store", "--results", f"{folder}/results"]
                own = {"RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": count}), "OMP_NUM_THREADS": "1"}
                began = time.perf_counter()
                subprocess.run(
                    [*command, *places], check=True, capture_output=True, env={**os.environ, **own}
                )
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - began)
    print(
        f"minilm on {tasks}, best of {rounds}: "
        + ", ".join(f"{name} {took:.1f} s" for name, took in best.items())
    )


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
