"""What ``benchmarks/scale.py`` simulates with: an encoder and an evaluator that sleep, and threads in the place of Ray's workers."""

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


def slept(what: str, seconds: float, log: str) -> None:
    """Sleep, and note when, by device."""
    began = time.time()
    time.sleep(seconds)
    with (Path(log) / f"{os.getpid()}-{threading.get_ident()}").open("a") as file:
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

    PROTOCOLS: ClassVar[dict[str, SleepingProtocol]] = {
        "sleeping": SleepingProtocol(name="sleeping")
    }
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
            score=0.5,
            scores={"score": 0.5},
            interval=(0.4, 0.6),
            interval_method="none",
            per_item=items,
            n=n,
        )


class Threads:
    """As much of Ray as the executor asks of it, over threads of this process: nothing is copied and nobody is lost."""

    exceptions = SimpleNamespace(RayError=ConnectionError, RayTaskError=ConnectionError)

    def __init__(self, devices: int) -> None:
        """Start a thread a device."""
        self.devices, self.pool = devices, ThreadPoolExecutor(devices)

    def cluster_resources(self) -> dict[str, float]:
        """A core a thread."""
        return {"CPU": self.devices}

    def put(self, thing: object) -> Future[object]:
        """Keep an object."""
        kept = Future[object]()
        kept.set_result(thing)
        return kept

    def get(self, reference: Future[object]) -> object:
        """Return what a reference is of."""
        return reference.result()

    def remote(self, work: Callable[..., object]) -> Any:  # noqa: ANN401 - what Ray makes of a function
        """Make of a function one that threads carry out."""

        def carried_out(*given: object) -> Future[object]:
            return self.pool.submit(
                lambda: work(*(one.result() if isinstance(one, Future) else one for one in given))
            )

        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=carried_out))

    def wait(
        self, references: Sequence[Future[object]], *, num_returns: int, timeout: float
    ) -> tuple[list[Future[object]], list[Future[object]]]:
        """Return what is done and what is not; one is waited for where no more are asked for."""
        done, left = wait(references, timeout=timeout, return_when=FIRST_COMPLETED)
        return list(done), list(left)

    def cancel(self, reference: Future[object]) -> None:
        """Begin it no more."""
        reference.cancel()


class Told:
    """What workers tell, in the place of Ray's queue."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._told = SimpleQueue[Report]()
        self.actor = SimpleNamespace(put_nowait=SimpleNamespace(remote=self._told.put))

    def qsize(self) -> int:
        """How much there is."""
        return self._told.qsize()

    def get_nowait_batch(self, count: int) -> list[Report]:
        """Return so much of it."""
        return [self._told.get_nowait() for _ in range(count)]
