"""What many encoders on many tasks cost, and how much of it many workers save.

    STSBENCH_DATA=DIR python -m benchmarks.scale costs FILE             # measured: seconds of processor time
    python -m benchmarks.scale simulate FILE --devices 8 --seconds 600  # the executor itself, over workers that sleep
    STSBENCH_DATA=DIR python -m benchmarks.scale workers                # one and two real workers against one process

The work is 100 encoders x 40 tasks x 3 seeds: the suites sts, transfer and probing, and 16 of the suite multilingual, with
as many sentences as their cards say. ``simulate`` runs it on Ray with the executor of ``run --on ray``, its store and its
results; only embedding, loading and scoring sleep, for the time that they were measured to take. So that the ideal run takes
``--seconds``, the run is made smaller, sentences and times by the same factor: what the executor needs for a piece of work
stays as it is, and weighs that much more than in the whole run. Workers are started before the clock is.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

import stsbench
from stsbench.bench.cells import RunSettings
from stsbench.bench.cluster import worker
from stsbench.bench.cluster.executor import ClusterRun
from stsbench.bench.cluster.hands import Hands
from stsbench.bench.cluster.joining import Ray, joined
from stsbench.bench.listener import Listener
from stsbench.bench.run import cells_to_do
from stsbench.bench.work import Work
from stsbench.cards.catalogue import Catalogue
from stsbench.data.splits import PairSplit, Split
from stsbench.data.task import load_task
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.seams import Embed, FloatArray
from stsbench.evaluators.seams import Scores, by_name

ENCODERS, SEEDS, MULTILINGUAL = 100, 3, 16
TASK = """
name = "{name}"
evaluator = "benchmarks.scale:SleepingEvaluator"
languages = ["en"]
paper = "none"
license = "none"

[splits.test]
n = {n}

[options]
seconds = {seconds}
log = "{log}"

[local]
reader = "pair_table"
params = {{sentence1 = 0, sentence2 = 1, gold = 2}}

[local.files]
test = [{{path = "{name}.tsv"}}]
"""
ENCODER = """
name = "simulated-{number}"
kind = "benchmarks.scale:SleepingEncoder"
method = "none"
backbone = "none"
supervision = "none"
overlap = "none"
paper = "none"
license = "none"

[params]
number = {number}
load = {load}
tokenise = {tokenise}
embed = {embed}
log = "{log}"
"""


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


def slept(what: str, seconds: float, log: str) -> None:
    """Sleep, and note when."""
    began = time.time()
    time.sleep(seconds)
    with (Path(log) / str(os.getpid())).open("a") as file:
        file.write(f"{what} {began} {time.time()}\n")


class SleepingEncoder:
    """An encoder that takes as long as a real one."""

    def __init__(self, number: int, load: float, tokenise: float, embed: float, log: str) -> None:
        """Keep what each step takes; nothing is loaded yet."""
        self.name = self.fingerprint = f"simulated-{number}"
        self.load, self.of_tokens, self.of_embedding, self.log = load, tokenise, embed, log
        self.loaded = False

    def _load(self) -> None:
        if not self.loaded:
            slept("load", self.load, self.log)
            self.loaded = True

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Refuse: the engine plans the batches."""
        raise NotImplementedError

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return a token a word."""
        self._load()
        slept("tokenise", len(sentences) * self.of_tokens, self.log)
        return TokenIds.from_lists([[1] * len(text.split()) for text in sentences])

    def embed_tokens(self, tokens: TokenIds, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Return embeddings (b, 4) of nothing."""
        self._load()
        slept("embed", len(rows) * self.of_embedding, self.log)
        return np.ones((len(rows), 4), dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class SleepingProtocol:
    """Has no choices."""

    name: str


class SleepingEvaluator:
    """An evaluator that takes as long as a real one."""

    PROTOCOLS: ClassVar[dict[str, SleepingProtocol]] = by_name(SleepingProtocol(name="sleeping"))
    ONE_SPLIT: ClassVar[bool] = True

    def __init__(self, protocol: SleepingProtocol, *, seconds: float, log: str) -> None:
        """Keep how long it takes."""
        self.protocol, self.seconds, self.log = protocol, seconds, log

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Look at the embeddings and sleep."""
        (split,) = splits.values()
        assert isinstance(split, PairSplit)
        n = len(np.asarray(embed(split.sentences1)))
        slept("score", self.seconds, self.log)
        items = {"similarity": np.full(n, 0.5)}
        return Scores(
            score=0.5, scores={"score": 0.5}, interval=(0.4, 0.6), interval_method="none", per_item=items, n=n
        )


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
            sum(split.n or 0 for split in used) * (1 if name in suites["probing"].tasks else 2 - probed),
            probed,
        )
    return found


def whole_run(costs: Costs) -> tuple[float, float]:
    """Core seconds of embedding and of scoring all of it."""
    sizes = task_sizes().values()
    sentences = sum(n for n, _ in sizes)
    embedding = costs.load + sentences * (costs.tokenise + costs.embed)
    return ENCODERS * embedding, ENCODERS * SEEDS * sum(costs.of_task(n, probed=probed) for n, probed in sizes)


def make_run(folder: Path, costs: Costs, factor: float) -> RunSettings:
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
        (folder / "cards/baselines" / f"simulated-{number}.toml").write_text(ENCODER.format(**values))
    return RunSettings(
        encoders=[f"simulated-{number}" for number in range(ENCODERS)], tasks=",".join(f"x-{name}" for name in sizes),
        out=folder / "results", store=folder / "store", data=folder / "data", on="ray", seeds=tuple(range(SEEDS)),
        catalogue=Catalogue([folder / "cards"]),
    )  # fmt: skip


def start_workers(ray: Ray, devices: int, folder: Path) -> float:
    """Have all workers running and their libraries imported; seconds that took."""
    marks, began = folder / "started", time.time()
    marks.mkdir()

    def ready() -> None:
        assert worker.__name__
        (marks / str(os.getpid())).touch()
        while len(list(marks.iterdir())) < devices:
            time.sleep(0.5)

    ray.get([ray.remote(num_cpus=1)(ready).remote() for _ in range(devices)])
    return time.time() - began


def simulate(costs: Costs, devices: int, seconds: float) -> None:
    """Run it on so many sleeping workers, and print how much of the ideal speed-up that is and where the rest goes."""
    embedding, scoring = whole_run(costs)
    factor = (embedding + scoring) / devices / seconds
    os.environ["RAY_OVERRIDE_RESOURCES"] = json.dumps({"CPU": devices})
    with tempfile.TemporaryDirectory() as place, joined("ray") as ray:
        folder = Path(place)
        settings = make_run(folder, costs, factor)
        started = start_workers(ray, devices, folder)
        failures: list[str] = []
        listener = Listener(failed=lambda what, error: failures.append(f"{what}: {error}"), noticed=failures.append)
        work = Work(cells_to_do(settings), settings, listener)
        began, own = time.time(), time.process_time()
        parts = list(work.parts())
        planned = time.time() - began
        results = list(ClusterRun(work, Hands(ray, settings)).results(parts))
        took, own = time.time() - began, time.process_time() - own
        spent, idle = accounts(folder / "log", began, began + took, devices)
    assert len(results) == ENCODERS * SEEDS * len(task_sizes()) and not failures, failures[:3]
    ideal = embedding + scoring
    print(f"{ENCODERS} encoders x {len(task_sizes())} tasks x {SEEDS} seeds: {embedding / 3600:.0f} core hours of embedding, "
          f"{scoring / 3600:.0f} of scoring; here smaller by {factor:.0f}")  # fmt: skip
    print(f"{devices} devices: {took:.0f} s, speed-up {ideal / factor / took:.1f}, "
          f"{100 * ideal / factor / took / devices:.1f}% of ideal (workers started before, in {started:.0f} s)")  # fmt: skip
    whole = devices * took
    print("of the devices' time: " + ", ".join(f"{what} {100 * one / whole:.1f}%" for what, one in spent.items()))
    print("waiting: " + ", ".join(f"{what} {100 * one / whole:.1f}%" for what, one in idle.items()))
    print(
        f"the driver planned for {planned:.0f} s and needed {own:.0f} s of processor time, {100 * own / took:.0f}% of a core"
    )


def accounts(log: Path, began: float, ended: float, devices: int) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of all devices by what they did, and by when they did nothing."""
    spent: dict[str, float] = defaultdict(float)
    idle = {"before the first piece": 0.0, "between pieces": 0.0, "after the last": 0.0}
    found = sorted(log.iterdir())
    for path in found:
        rows = [line.split() for line in path.read_text().splitlines()]
        spans = [(what, float(start), float(end)) for what, start, end in rows if float(start) >= began]
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
                len(set(one.texts())) for one in [load_task(task).load(name) for name in load_task(task).card.splits]
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
                command = [sys.executable, "-m", "stsbench", "run", "minilm", "--tasks", tasks, *options]
                places = ["--store", f"{folder}/store", "--results", f"{folder}/results"]
                own = {"RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": count}), "OMP_NUM_THREADS": "1"}
                began = time.perf_counter()
                subprocess.run([*command, *places], check=True, capture_output=True, env={**os.environ, **own})
                best[name] = min(best.get(name, float("inf")), time.perf_counter() - began)
    print(f"minilm on {tasks}, best of {rounds}: " + ", ".join(f"{name} {took:.1f} s" for name, took in best.items()))


def main() -> None:
    """Measure, simulate or run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("costs").add_argument("file", type=Path)
    simulation = commands.add_parser("simulate")
    simulation.add_argument("file", type=Path, help="what costs wrote")
    simulation.add_argument("--devices", type=int, default=8)
    simulation.add_argument("--seconds", type=float, default=600, help="of the ideal run")
    real = commands.add_parser("workers")
    real.add_argument("--tasks", default="sts")
    real.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    if options.command == "costs":
        options.file.write_text(json.dumps(asdict(measure()), indent=1) + "\n")
        print(options.file.read_text(), end="")
    elif options.command == "simulate":
        simulate(Costs(**json.loads(options.file.read_text())), options.devices, options.seconds)
    elif options.command == "workers":
        workers(options.tasks, options.rounds)


if __name__ == "__main__":
    main()
