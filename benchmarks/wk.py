"""SBERT-WK pooling against the published way, a QR for every token and layer in a Python loop.

    python -m benchmarks.wk [sentences] [rounds]

Sizes of BERT-base: 9 hidden states of 768, sentences of 8 to 40 tokens, in batches as the
engine makes them. Both see the same float32 states, in turns; the best round of each counts.
The states drift from layer to layer, so that neighbours have cosines near 0.9 as in BERT.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np
import torch

from stsbench.encoders.engine import TOKEN_BUDGET
from stsbench.encoders.tokens import plan_batches
from stsbench.encoders.wk import wk_pool
from tests.encoders.test_wk import literal_wk

LAYERS, WIDTH = 9, 768
Batch = tuple[list[torch.Tensor], torch.Tensor]


def main(sentences: int = 300, rounds: int = 3) -> None:
    """Time both and print the ratio and the largest difference."""
    lengths = np.random.default_rng(0).integers(8, 41, size=sentences)
    print(
        f"{sentences} sentences, {lengths.sum()} tokens, {LAYERS} layers of {WIDTH}, {torch.get_num_threads()} threads"
    )
    best = {"loop": float("inf"), "wk_pool": float("inf")}
    for number in range(1, rounds + 1):
        spent, worst = run(lengths)
        print(f"round {number}: loop {spent['loop']:.2f} s, wk_pool {spent['wk_pool']:.3f} s, off by {worst:.1e}")
        best = {name: min(best[name], spent[name]) for name in best}
    per_token = {name: seconds / lengths.sum() * 1e6 for name, seconds in best.items()}
    print(f"best: loop {per_token['loop']:.0f} us a token, wk_pool {per_token['wk_pool']:.1f} us a token")
    print(f"wk_pool is {best['loop'] / best['wk_pool']:.0f} times as fast")


def run(lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[dict[str, float], float]:
    """Pool all batches both ways; return the seconds each took and the largest difference."""
    spent, worst = {"loop": 0.0, "wk_pool": 0.0}, 0.0
    for states, mask in batches(lengths):
        start = time.perf_counter()
        fast = wk_pool(states, mask)
        spent["wk_pool"] += time.perf_counter() - start
        stacked = torch.stack(states, dim=1).numpy()  # (b, l, t, h)
        start = time.perf_counter()
        slow = [literal_wk(one[:, : int(n)]) for one, n in zip(stacked, mask.sum(dim=1), strict=True)]
        spent["loop"] += time.perf_counter() - start
        worst = max(worst, float(np.abs(fast.numpy() - np.stack(slow)).max()))
    return spent, worst


def batches(lengths: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[Batch]:
    """Make states (b, t, h), one a layer, and a mask (b, t), for the engine's batches."""
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
