"""The simulation of ``benchmarks/scale.py``: an encoder and an evaluator that sleep.

Threads may replace Ray's workers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stsbench.bench.ray_cluster import WAIT_SECONDS, call_or_return_error
from stsbench.bench.workers import FinishedJob, Job, Report, run_job
from stsbench.data.splits import PairSplit, Split
from stsbench.encoders.base import Embed, FloatArray
from stsbench.encoders.tokens import TokenIds
from stsbench.evaluators.base import Scores

TASK = """
name = "{name}"
evaluator = "sleeping:SleepingEvaluator"
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
kind = "sleeping:SleepingEncoder"
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


def sleep_and_log(step: str, seconds: float, log: str) -> None:
    """Sleep, and write the step with its times to the log of this thread."""
    start = time.time()
    time.sleep(seconds)
    with (Path(log) / f"{os.getpid()}-{threading.get_ident()}").open("a") as file:
        file.write(f"{step} {start} {time.time()}\n")


class SleepingEncoder:
    """An encoder that takes as long as a real one."""

    def __init__(self, number: int, load: float, tokenise: float, embed: float, log: str) -> None:
        """Store the seconds of each step; nothing is loaded yet."""
        self.name = self.fingerprint = f"simulated-{number}"
        self.load, self.of_tokens, self.of_embedding, self.log = load, tokenise, embed, log
        self.loaded = False

    def _load(self) -> None:
        if not self.loaded:
            sleep_and_log("load", self.load, self.log)
            self.loaded = True

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Refuse: the engine plans the batches."""
        raise NotImplementedError

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return one token per word."""
        self._load()
        sleep_and_log("tokenise", len(sentences) * self.of_tokens, self.log)
        return TokenIds.from_lists([[1] * len(text.split()) for text in sentences])

    def embed_tokens(self, tokens: TokenIds, rows: npt.NDArray[np.int64]) -> FloatArray:
        """Return embeddings (b, 4) of ones."""
        self._load()
        sleep_and_log("embed", len(rows) * self.of_embedding, self.log)
        return np.ones((len(rows), 4), dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class SleepingProtocol:
    """A protocol without choices."""

    name: str


class SleepingEvaluator:
    """An evaluator that takes as long as a real one."""

    PROTOCOLS: ClassVar[dict[str, SleepingProtocol]] = {
        "sleeping": SleepingProtocol(name="sleeping")
    }
    ONE_SPLIT: ClassVar[bool] = True

    def __init__(self, protocol: SleepingProtocol, *, seconds: float, log: str) -> None:
        """Store its seconds."""
        self.protocol, self.seconds, self.log = protocol, seconds, log

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Read the embeddings and sleep."""
        (split,) = splits.values()
        assert isinstance(split, PairSplit)
        n = len(np.asarray(embed(split.sentences1)))
        sleep_and_log("score", self.seconds, self.log)
        items = {"similarity": np.full(n, 0.5)}
        return Scores(
            score=0.5,
            scores={"score": 0.5},
            interval=(0.4, 0.6),
            interval_method="none",
            per_item=items,
            n=n,
        )


class Threads:
    """Threads in place of Ray's workers: nothing is copied and no worker is lost."""

    name = "threads"
    option = "executor"
    shares_tokens = True

    def __init__(self, devices: int) -> None:
        """Start one thread per device."""
        self.devices, self.pool = devices, ThreadPoolExecutor(devices)
        self._reports = SimpleQueue[Report]()

    def count_devices(self) -> int:
        """Return the number of threads."""
        return self.devices

    def shares_folder(self, folder: Path) -> bool:
        """Return True: all threads are on this machine."""
        return True

    def put(self, value: object) -> Future[object]:
        """Return a reference to an object."""
        reference = Future[object]()
        reference.set_result(value)
        return reference

    def start(self, job_id: int, job: Job) -> Future[Any]:
        """Let a thread carry out a job."""

        def carry_out() -> object:
            values = [
                argument.result() if isinstance(argument, Future) else argument
                for argument in job.arguments
            ]
            return call_or_return_error(
                lambda: run_job(job_id, self._reports.put, job.work, *values)
            )

        return self.pool.submit(carry_out)

    def finished_jobs(self, running_jobs: Mapping[int, Job]) -> Iterator[FinishedJob]:
        """Yield the jobs that have ended, after waiting for one."""
        references = [job.reference for job in running_jobs.values()]
        wait(references, timeout=WAIT_SECONDS, return_when=FIRST_COMPLETED)
        for job_id, job in running_jobs.items():
            if job.reference.done():
                yield FinishedJob(job_id, job.reference.result())

    def read_reports(self) -> list[Report]:
        """Return the reports since the last call."""
        return [self._reports.get_nowait() for _ in range(self._reports.qsize())]

    def cancel(self, job: Job) -> None:
        """Do not start a job any more."""
        job.reference.cancel()

    def stop(self, running_jobs: Sequence[Job]) -> None:
        """Do not start jobs any more."""
        for job in running_jobs:
            self.cancel(job)
