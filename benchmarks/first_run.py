"""A first run of all available tasks, step by step, and the time of each.

    STSBENCH_DATA=DIR python benchmarks/first_run.py [--tasks sts,transfer,probing]
        [--encoder minilm] [--every 32] [--threads 1]

Steps: the data are read and hashed, the distinct sentences gathered, tokenised and planned into
batches, and embedded into an empty store; one of ``--every`` planned batches is, and the time of
all is estimated from their tokens. Prints for each step seconds and seconds of the processors, and
its share of the processors' seconds, and for embedding the share of the processor's peak in float32
(``benchmarks/peak.py``); scoring is measured by ``benchmarks/probe.py``. Tasks without data
are named and omitted.

One core of an AMD EPYC that others share (load 10), all-MiniLM-L6-v2, the suites sts and transfer:
134,190 sentences, 0.9 s of the processor to read, hash and plan them (0.1%), 7.5 s to tokenise
(1.2%), 613 s to embed. What is read and planned is shared by all encoders of a run; keeping tokens
for encoders that share a tokeniser would save that 1.2%, and is not done.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from peak import describe_share, machine, work

from stsbench.bench.plan import RunPlan
from stsbench.bench.protocols import load_tasks
from stsbench.encoders.base import TokenEncoder
from stsbench.encoders.engine.embed import TOKEN_BUDGET, BatchShare, Engine, tokenize_texts
from stsbench.encoders.engine.store import EmbeddingStore, text_keys
from stsbench.encoders.load import load_encoder
from stsbench.encoders.tokens import plan_batches
from stsbench.encoders.transformer.encoder import TransformerEncoder

ValueT = TypeVar("ValueT")
PREPARATION = ("read and hash the data", "tell the sentences apart", "plan the batches")
"""The steps before anything is computed."""


class Step(NamedTuple):
    """One step of a run."""

    name: str
    seconds: float
    busy_seconds: float
    """The seconds of all processors."""


class Clock:
    """Times steps, one after the other."""

    def __init__(self) -> None:
        """Start without any step."""
        self.steps: list[Step] = []

    def time(self, name: str, work: Callable[[], ValueT], *, times: float = 1.0) -> ValueT:
        """Carry out a step and return its value; the whole work is ``times`` as much."""
        start = time.perf_counter()
        busy_start = time.process_time()
        value = work()
        seconds = times * (time.perf_counter() - start)
        self.steps.append(Step(name, seconds, times * (time.process_time() - busy_start)))
        return value


def measure(options: argparse.Namespace) -> list[Step]:
    """Time a run's steps."""
    clock = Clock()
    missing: list[str] = []
    encoder = load_encoder(options.encoder)
    if not isinstance(encoder, TokenEncoder):
        raise SystemExit(f"{options.encoder}: give an encoder that has tokens")
    encoder.encode(["The weights are loaded before the clock is started."])
    planned_tasks = RunPlan(tasks=options.tasks).planned_tasks
    reading, deduplication, planning = PREPARATION
    tasks = clock.time(
        reading, lambda: load_tasks(planned_tasks, lambda name, error: missing.append(name))
    )
    texts = clock.time(
        deduplication, lambda: sorted({text for task in tasks for text in task.texts()})
    )
    clock.time(deduplication, lambda: text_keys(texts))
    tokens = clock.time("tokenise", lambda: tokenize_texts(encoder, texts))
    batches = clock.time(planning, lambda: list(plan_batches(tokens.lengths, budget=TOKEN_BUDGET)))
    n_tokens = int(tokens.lengths.sum())
    embedded_batches = batches[:: options.every]
    share = sum(int(tokens.lengths[rows].sum()) for rows in embedded_batches) / n_tokens
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(encoder, EmbeddingStore(Path(folder) / "store"))
        clock.time(
            "embed into the store",
            lambda: engine.prepare(texts, share=BatchShare(0, options.every), tokens=tokens),
            times=1 / share,
        )
    print(
        f"{len(tasks)} tasks, {len(texts)} distinct sentences, {n_tokens} tokens, "
        f"{len(batches)} batches, of which {len(embedded_batches)} are embedded"
    )
    if missing:
        print(f"not at hand: {', '.join(missing)}")
    if isinstance(encoder, TransformerEncoder):
        flop = work(encoder.checkpoint.folder, tokens.lengths.tolist())
        flops = flop / clock.steps[-1].seconds
        share_text = describe_share(flops, torch.float32, options.threads)
        print(f"{flop / 1e12:.2f} TFLOP to embed, at {share_text}\n{machine(options.threads)}")
    return clock.steps


def main() -> None:
    """Run the benchmark and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", default="sts,transfer,probing", help="tasks or suites")
    parser.add_argument("--encoder", default="minilm")
    parser.add_argument(
        "--every", type=int, default=32, help="embed one batch of this number of batches"
    )
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    steps = measure(options)
    total = sum(step.busy_seconds for step in steps)
    for name in dict.fromkeys(step.name for step in steps):
        seconds = sum(step.seconds for step in steps if step.name == name)
        busy_seconds = sum(step.busy_seconds for step in steps if step.name == name)
        share = 100 * busy_seconds / total
        print(f"{name:26s} {seconds:8.1f} s   {busy_seconds:8.1f} s of processors   {share:5.1f}%")
    preparation = sum(step.busy_seconds for step in steps if step.name in PREPARATION)
    print(f"reading, hashing and planning: {100 * preparation / total:.1f}% of it")


if __name__ == "__main__":
    main()
