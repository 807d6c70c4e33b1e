"""The best that this machine can do, to print which share of it a benchmark reached."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

SIZE = 3072


@cache
def product(dtype: torch.dtype, threads: int) -> float:
    """Measure the FLOP per second of a bare product of two square matrices, the best of six.

    It is measured once.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, seconds = torch.randn(SIZE, SIZE).to(dtype), []
    for _ in range(6):
        start = time.perf_counter()
        a @ a
        seconds.append(time.perf_counter() - start)
    torch.set_num_threads(before)
    return 2.0 * SIZE**3 / min(seconds)


def work(checkpoint: Path, lengths: Sequence[int]) -> float:
    """Count the FLOP of a transformer's matrix products for sentences of these token counts.

    No token is padding.
    """
    config = transformers.AutoConfig.from_pretrained(str(checkpoint), local_files_only=True)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, attn_implementation="eager").eval()
        total = 0.0
        for length, sentences in Counter(lengths).items():
            counter = FlopCounterMode(display=False)
            with counter, torch.inference_mode():
                model(input_ids=torch.zeros((1, length), dtype=torch.int64))
            total += sentences * counter.get_total_flops()
    return total


def machine(threads: int) -> str:
    """Describe the machine's load and its two peaks in a line."""
    peaks = ", ".join(
        f"{str(dtype).removeprefix('torch.')} {product(dtype, threads) / 1e9:.0f}"
        for dtype in (torch.float32, torch.bfloat16)
    )
    load = os.getloadavg()[0]
    return (
        f"{threads} threads of {os.cpu_count()} cores, load {load:.1f}; "
        f"a bare product of matrices, GFLOP/s: {peaks}"
    )
