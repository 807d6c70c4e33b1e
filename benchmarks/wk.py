"""SBERT-WK pooling against the published method, a QR for every token and layer in a Python loop.

    python -m benchmarks.wk [sentences] [rounds]

Sizes of BERT-base: 9 hidden states of 768, sentences of 8 to 40 tokens, in batches as the
engine makes them, batch by batch in turns over the same float32 states. They drift from layer to
layer, so that neighbours have cosines near 0.9 as in BERT. Two clocks, the best round of each:
processor time in one thread, which a busy machine hardly changes, and wall time with all threads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from stsbench.encoders.engine.embed import TOKEN_BUDGET
from stsbench.encoders.tokens import plan_batches
from stsbench.encoders.transformer.sbert_wk import wk_pool
from tests.encoders.transformer.literal import literal_wk

LAYERS, WIDTH = 9, 768
P = ParamSpec("P")
T = TypeVar("T")
Lengths = npt.NDArray[np.int64]
Batch = tuple[list[torch.Tensor], torch.Tensor]


def main(sentences: int = 300, rounds: int = 3) -> None:
    """Time both and print the ratios and the largest difference."""
    lengths = np.random.default_rng(0).integers(8, 41, size=sentences)
    threads = torch.get_num_threads()
    print(
        f"{sentences} sentences, {lengths.sum()} tokens, {LAYERS} layers of {WIDTH}, {threads} "
        "threads"
    )
    best: dict[str, float] = {}
    for _ in range(rounds):
        spent, worst = run(lengths, threads)
        best = {name: min(best.get(name, seconds), seconds) for name, seconds in spent.items()}
    print(f"largest difference {worst:.1e}: the loop's QR is in float32, as published")
    for clock in ("processor", "wall"):
        loop, ours = (best[f"{name} {clock}"] / lengths.sum() * 1e6 for name in ("loop", "wk_pool"))
        print(
            f"{clock} time: loop {loop:.0f} us a token, wk_pool {ours:.1f} us, {loop / ours:.0f} "
            "times as fast"
        )


def run(lengths: Lengths, threads: int) -> tuple[dict[str, float], float]:
    """Pool all batches by both methods.

    Returns:
        The seconds by method and clock, and the largest difference.
    """
    spent, worst = (
        dict.fromkeys(["loop wall", "loop processor", "wk_pool wall", "wk_pool processor"], 0.0),
        0.0,
    )
    for states, mask in batches(lengths):
        torch.set_num_threads(1)
        spent["wk_pool processor"] += timed(time.thread_time, wk_pool, states, mask)[0]
        torch.set_num_threads(threads)
        seconds, fast = timed(time.perf_counter, wk_pool, states, mask)
        spent["wk_pool wall"] += seconds
        started = time.thread_time()
        seconds, slow = timed(time.perf_counter, pool_in_a_loop, states, mask)
        spent["loop wall"] += seconds
        spent["loop processor"] += time.thread_time() - started
        worst = max(worst, float(np.abs(fast.numpy() - slow).max()))
    return spent, worst


def pool_in_a_loop(states: list[torch.Tensor], mask: torch.Tensor) -> npt.NDArray[np.floating]:
    """Pool by the published method."""
    stacked = torch.stack(states, dim=1).numpy()  # (b, l, t, h)
    return np.stack(
        [
            literal_wk(states[:, : int(n)])
            for states, n in zip(stacked, mask.sum(dim=1), strict=True)
        ]
    )


def timed(
    clock: Callable[[], float], work: Callable[P, T], *args: P.args, **options: P.kwargs
) -> tuple[float, T]:
    """Return the seconds the work took by this clock and what it returned."""
    started = clock()
    value = work(*args, **options)
    return clock() - started, value


def batches(lengths: Lengths) -> Iterator[Batch]:
    """Make states (b, t, h), one per layer, and a mask (b, t), for the engine's batches."""
    generator = torch.Generator().manual_seed(0)
    for rows in plan_batches(lengths, budget=TOKEN_BUDGET):
        shape = (len(rows), int(lengths[rows].max()), WIDTH)
        state = torch.randn(shape, generator=generator)
        states = [state]
        for _ in range(LAYERS - 1):
            state = 0.9 * state + 0.19**0.5 * torch.randn(shape, generator=generator)
            states.append(state)
        yield states, (torch.arange(shape[1]) < torch.tensor(lengths[rows])[:, None]).long()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
