"""A first run of all tasks at hand, step by step: where its time goes.

    STSBENCH_DATA=DIR python benchmarks/first_run.py [--tasks sts,transfer,probing] [--encoder minilm] [--every 32] [--threads 1]

Steps: the data are read and hashed, all sentences gathered and told apart, tokenised and planned into batches, and
embedded into an empty store; of the planned batches each ``--every``-th, and the time of all is reckoned from their
tokens. Prints of each step seconds and seconds of the processors, and its share of the processors' seconds, and of
embedding the share of the processor's peak (a bare product of matrices in float32); scoring is measured by ``benchmarks/probe.py``. Tasks whose data are not there are named and left out.

One core of an AMD EPYC that others share (load 10), all-MiniLM-L6-v2, the suites sts and transfer: 134,190 sentences, 0.9 s of
the processor to read, hash and plan them (0.1%), 7.5 s to tokenise (1.2%), 613 s to embed. What is read and planned is shared
by all encoders of a run; keeping tokens for encoders that share a tokeniser would save that 1.2%, and is not done.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from peak import machine, product, work

from stsbench.bench.plan import RunPlan
from stsbench.bench.protocols import load_tasks
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.engine.embed import TOKEN_BUDGET, BatchShare, Engine, tokenize_texts
from stsbench.encoders.engine.store import EmbeddingStore, text_keys
from stsbench.encoders.load import load_encoder
from stsbench.encoders.tokens import plan_batches
from stsbench.encoders.transformer.encoder import TransformerEncoder

Made = TypeVar("Made")
BEFORE = ("read and hash the data", "tell the sentences apart", "plan the batches")
"""The steps that are our own, before anything is computed."""


class Step(NamedTuple):
    """What a step took."""

    name: str
    seconds: float
    processors: float


class Clock:
    """Times steps, one after the other."""

    def __init__(self) -> None:
        """Nothing is timed yet."""
        self.steps: list[Step] = []

    def time(self, name: str, work: Callable[[], Made], *, times: float = 1.0) -> Made:
        """Do a step, of which ``times`` as much is to be done in all."""
        wall, own = time.perf_counter(), time.process_time()
        made = work()
        self.steps.append(
            Step(name, times * (time.perf_counter() - wall), times * (time.process_time() - own))
        )
        return made


def measure(options: argparse.Namespace) -> list[Step]:
    """Time a run's steps."""
    clock, missing = Clock(), list[str]()
    encoder = load_encoder(options.encoder)
    if not isinstance(encoder, TokenEncoder):
        raise SystemExit(f"{options.encoder}: give an encoder that has tokens")
    encoder.encode(["The weights are loaded before the clock is started."])
    planned = RunPlan(tasks=options.tasks).planned_tasks
    tasks = clock.time(
        BEFORE[0], lambda: load_tasks(planned, lambda name, error: missing.append(name))
    )
    texts = clock.time(BEFORE[1], lambda: sorted({text for task in tasks for text in task.texts()}))
    clock.time(BEFORE[1], lambda: text_keys(texts))
    tokens = clock.time("tokenise", lambda: tokenize_texts(encoder, texts))
    batches = clock.time(BEFORE[2], lambda: list(plan_batches(tokens.lengths, budget=TOKEN_BUDGET)))
    some = batches[:: options.every]
    share = sum(int(tokens.lengths[rows].sum()) for rows in some) / int(tokens.lengths.sum())
    with tempfile.TemporaryDirectory() as place:
        engine = Engine(encoder, EmbeddingStore(Path(place) / "store"))
        clock.time(
            "embed into the store",
            lambda: engine.prepare(texts, share=BatchShare(0, options.every), tokens=tokens),
            times=1 / share,
        )
    print(f"{len(tasks)} tasks, {len(texts)} distinct sentences, {int(tokens.lengths.sum())} tokens, {len(batches)} batches, "
          f"of which {len(some)} are embedded")  # fmt: skip
    if missing:
        print(f"not at hand: {', '.join(missing)}")
    if isinstance(encoder, TransformerEncoder):
        flop = work(encoder.checkpoint.folder, tokens.lengths.tolist())
        reached = flop / clock.steps[-1].seconds / product(torch.float32, options.threads)
        print(
            f"{flop / 1e12:.2f} TFLOP to embed, at {100 * reached:.0f}% of the peak; {machine(options.threads)}"
        )
    return clock.steps


def main() -> None:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default="sts,transfer,probing", help="tasks or suites")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument(
        "--every", type=int, default=32, help="of the batches so many-th are embedded"
    )
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    steps = measure(options)
    whole = sum(step.processors for step in steps)
    for name in dict.fromkeys(step.name for step in steps):
        mine = [step for step in steps if step.name == name]
        wall, own = sum(step.seconds for step in mine), sum(step.processors for step in mine)
        print(f"{name:26s} {wall:8.1f} s   {own:8.1f} s of processors   {100 * own / whole:5.1f}%")
    before = sum(step.processors for step in steps if step.name in BEFORE)
    print(f"reading, hashing and planning: {100 * before / whole:.1f}% of it")


if __name__ == "__main__":
    main()
