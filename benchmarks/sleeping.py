"""The simulation of ``benchmarks/scale.py``: an encoder and an evaluator that sleep.

Threads may replace Ray's workers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stsbench.bench.workers import Report
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
    """The part of Ray that the executor needs, over threads of this process.

    Nothing is copied and no worker is lost.
    """

    exceptions = SimpleNamespace(RayError=ConnectionError, RayTaskError=ConnectionError)

    def __init__(self, devices: int) -> None:
        """Start one thread per device."""
        self.devices, self.pool = devices, ThreadPoolExecutor(devices)

    def cluster_resources(self) -> dict[str, float]:
        """Return one core per thread."""
        return {"CPU": self.devices}

    def put(self, value: object) -> Future[object]:
        """Return a reference to an object."""
        reference = Future[object]()
        reference.set_result(value)
        return reference

    def get(self, reference: Future[object]) -> object:
        """Return the object of a reference."""
        return reference.result()

    def remote(self, function: Callable[..., object]) -> Any:  # noqa: ANN401 - what Ray makes of a function
        """Return an object through which threads carry out a function."""

        def submit(*arguments: object) -> Future[object]:
            return self.pool.submit(
                lambda: function(
                    *(
                        argument.result() if isinstance(argument, Future) else argument
                        for argument in arguments
                    )
                )
            )

        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=submit))

    def wait(
        self, references: Sequence[Future[object]], *, num_returns: int, timeout: float
    ) -> tuple[list[Future[object]], list[Future[object]]]:
        """Return the finished and the unfinished jobs, after waiting for one."""
        done, unfinished = wait(references, timeout=timeout, return_when=FIRST_COMPLETED)
        return list(done), list(unfinished)

    def cancel(self, reference: Future[object]) -> None:
        """Do not start a job any more."""
        reference.cancel()


class Reports:
    """The reports of workers, in place of Ray's queue."""

    def __init__(self) -> None:
        """Start without reports."""
        self._reports = SimpleQueue[Report]()
        self.actor = SimpleNamespace(put_nowait=SimpleNamespace(remote=self._reports.put))

    def qsize(self) -> int:
        """Return the number of reports."""
        return self._reports.qsize()

    def get_nowait_batch(self, count: int) -> list[Report]:
        """Return the next reports."""
        return [self._reports.get_nowait() for _ in range(count)]
