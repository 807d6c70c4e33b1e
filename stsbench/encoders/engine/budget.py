"""How many tokens go into a batch on a device with a memory of its own: as many as are embedded fastest, and fit.

A GPU that is handed small batches waits for them, and none is fastest for every model. The first run that embeds enough
with an encoder times some sizes on its own sentences; what was fastest is kept in the cache folder, for this encoder on this
kind of device, so that later runs embed in the same batches. The size moves an embedding by rounding at most.
"""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stsbench import settings
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.seams import DeviceEncoder, DeviceMemory
from stsbench.files.whole import write_whole
from stsbench.provenance.identity import identity

ENOUGH = 64
"""So many batches of the smallest size must there be for sizes to be timed."""
SHARE = 0.25
"""Of the free memory may one batch take: two are under way at a time, and kernels need some for themselves."""
GAIN = 1.05
"""A batch twice as large must be faster by this factor."""


def device_budget(encoder: DeviceEncoder, memory: DeviceMemory, tokens: TokenIds, smallest: int) -> int:
    """Tokens a batch for an encoder on a device; timed on these tokens where it is not known and they are enough."""
    file = _file(encoder, memory)
    if file is not None and (known := _read(file)) is not None:
        return known
    if int(tokens.lengths.sum()) < ENOUGH * smallest:
        return smallest
    budget = _fastest(encoder, tokens, smallest, most=int(SHARE * memory.free / memory.per_token))
    if file is not None:
        write_whole(file, (json.dumps({"device": memory.device, "tokens": budget}) + "\n").encode())
    return budget


def _file(encoder: DeviceEncoder, memory: DeviceMemory) -> Path | None:
    identified = identity(encoder)
    if identified is None:
        return None
    digest = hashlib.sha256(f"{identified}\n{memory.device}".encode("utf-8", "surrogatepass")).hexdigest()
    return settings.cache_folder() / "budgets" / f"{digest[:32]}.json"


def _read(file: Path) -> int | None:
    try:
        found = json.loads(file.read_bytes())["tokens"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if type(found) is int and found > 0 else None


def _fastest(encoder: DeviceEncoder, tokens: TokenIds, smallest: int, most: int) -> int:
    """Double the batch for as long as that is faster and fits."""
    # Sentences of usual length: as many of them as the largest batch holds have nearly the same.
    order = np.argsort(tokens.lengths, kind="stable")
    best, best_speed, budget = smallest, 0.0, smallest
    while budget <= max(most, smallest):
        rows = _middle(order, tokens, budget)
        try:
            speed = _speed(encoder, tokens, rows)
        except RuntimeError as error:
            # By its name: torch is not imported where an encoder does without.
            if type(error).__name__ != "OutOfMemoryError":
                raise
            break
        if speed < GAIN * best_speed:
            break
        best, best_speed = budget, speed
        if len(rows) == len(order):
            break
        budget *= 2
    return best


def _middle(order: npt.NDArray[np.int64], tokens: TokenIds, budget: int) -> npt.NDArray[np.int64]:
    usual = max(int(tokens.lengths[order[len(order) // 2]]), 1)
    n = min(max(budget // usual, 1), len(order))
    start = (len(order) - n) // 2
    return order[start : start + n][::-1]


def _speed(encoder: DeviceEncoder, tokens: TokenIds, rows: npt.NDArray[np.int64]) -> float:
    """Tokens a second, the better of two times: the first may compile."""
    took = []
    for _ in range(2):
        began = time.perf_counter()
        encoder.embed_tokens(tokens, rows)
        took.append(time.perf_counter() - began)
    return float(tokens.lengths[rows].sum()) / min(took)
