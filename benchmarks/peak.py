"""The best that this machine can do, to print which share of it a benchmark reached.

The peak is that of the fastest of three bare products of matrices: ``a @ a`` and ``F.linear`` of
torch (in float32 MKL's, which use no AVX-512 on AMD processors), and oneDNN's with packed weights.
It is counted in CPU seconds, so that other processes on the machine matter little.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from stsbench.core.provenance import processor
from stsbench.encoders.transformer.cpu_kernels import SUPPORTED_TYPES, PackedLinear

SIZE = 2048
ROUNDS = 6


class Peak(NamedTuple):
    """The fastest product of matrices."""

    flops: float
    """Its FLOP per second, of all threads together."""
    name: str


@cache
@torch.inference_mode()
def find_peak(dtype: torch.dtype, threads: int) -> Peak | None:
    """Measure the products of two square matrices in turns, and return the fastest one.

    It is measured once. The least time of each product counts.

    Args:
        dtype: The type of the matrices.
        threads: The number of threads that share each product.

    Returns:
        None if the processor does not support the type.
    """
    if not SUPPORTED_TYPES[dtype]():
        return None
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a = torch.randn(SIZE, SIZE).to(dtype)
    layer = torch.nn.Linear(SIZE, SIZE, bias=False, dtype=dtype)
    products: Mapping[str, Callable[[], torch.Tensor]] = {
        "a @ a": lambda: a @ a,
        "F.linear": lambda: functional.linear(a, layer.weight),
        "oneDNN, packed": lambda: packed(a),
    }
    packed = PackedLinear(layer)
    best_seconds = dict.fromkeys(products, float("inf"))
    for _ in range(ROUNDS):
        for name, multiply in products.items():
            start = time.process_time()
            multiply()
            best_seconds[name] = min(best_seconds[name], time.process_time() - start)
    torch.set_num_threads(threads_before)
    fastest = min(best_seconds, key=lambda name: best_seconds[name])
    # CPU seconds are those of all threads, which work at the same time.
    return Peak(2.0 * SIZE**3 * threads / best_seconds[fastest], fastest)


def describe_share(flops: float, dtype: torch.dtype, threads: int) -> str:
    """Return which share of the peak a number of FLOP per second is, as text."""
    peak = find_peak(dtype, threads)
    if peak is None:
        return "type not supported"
    return f"{100 * flops / peak.flops:.0f}% of the peak"


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
    """Describe the machine, its load and its peaks, on one thread and on all, in a few lines."""
    load = os.getloadavg()[0]
    lines = [f"{processor()}, {threads} threads of {os.cpu_count()} cores, load {load:.1f}"]
    for count in sorted({1, threads}):
        peaks = []
        for dtype in (torch.float32, torch.bfloat16):
            peak = find_peak(dtype, count)
            text = "not supported" if peak is None else f"{peak.flops / 1e9:.0f} ({peak.name})"
            peaks.append(f"{str(dtype).removeprefix('torch.')} {text}")
        lines.append(f"peak by {count} of these threads, GFLOP/s: {', '.join(peaks)}")
    return "\n".join(lines)
