"""Measure how many tokens per batch an encoder embeds fastest on its device."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from stsbench.core import settings
from stsbench.core.files import write_atomically
from stsbench.core.provenance import encoder_identity
from stsbench.encoders.base import DeviceEncoder, IndexArray
from stsbench.encoders.tokens import TokenIds

MIN_BATCHES_TO_TIME = 64
"""Sizes are timed only if there are at least this many batches of the smallest size."""
MAX_MEMORY_SHARE = 0.25
"""The share of the free memory that a batch may take.

Two batches are in progress at a time, and the kernels need some memory for themselves.
"""
MIN_SPEEDUP = 1.05
"""The factor by which a batch of twice the size must be faster to be preferred."""
Budget = Annotated[int, msgspec.Meta(gt=0)]
"""The number of tokens in a batch, as stored in the cache folder."""


def measure_token_budget(encoder: DeviceEncoder, tokens: TokenIds, min_budget: int) -> int:
    """Return the number of tokens per batch that is fastest on the encoder's device and fits.

    A GPU idles between small batches, and no size is fastest for every model. The first run with
    enough sentences times some sizes on them. The fastest is stored in the cache folder, for this
    encoder on this kind of device, so that later runs embed in the same batches. The size changes
    an embedding by rounding at most.

    Args:
        encoder: The encoder to time.
        tokens: The tokens of all texts of the run.
        min_budget: The smallest number of tokens per batch.

    Returns:
        0 if the device has no memory of its own: a CPU.
        ``min_budget`` if there are too few sentences to time, fewer than 64 batches.
    """
    # The kind of device, its free memory in bytes, and the bytes that a token of a batch takes.
    memory = encoder.device_memory()
    if memory is None:
        return 0
    # Where the number of an earlier run is stored; None if the encoder has no fingerprint.
    cache_path = _budget_path(encoder, memory.device)
    if cache_path is not None:
        # Without a valid file the number is measured.
        with suppress(OSError, msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(cache_path.read_bytes(), type=Budget)
    if int(tokens.lengths.sum()) < MIN_BATCHES_TO_TIME * min_budget:
        return min_budget
    # A quarter of the free memory.
    max_budget = int(MAX_MEMORY_SHARE * memory.free / memory.per_token)
    budget = _find_fastest_budget(encoder, tokens, min_budget, max_budget)
    if cache_path is not None:
        write_atomically(cache_path, f"{budget}\n".encode())
    return budget


def _budget_path(encoder: DeviceEncoder, device: str) -> Path | None:
    """Return the file of an encoder's budget on a device; None if it has no fingerprint."""
    identity = encoder_identity(encoder)
    if identity is None:
        return None
    digest = hashlib.sha256(f"{identity}\n{device}".encode("utf-8", "surrogatepass")).hexdigest()
    return settings.cache_folder() / "budgets" / f"{digest[:32]}.json"


def _find_fastest_budget(
    encoder: DeviceEncoder, tokens: TokenIds, min_budget: int, max_budget: int
) -> int:
    """Return the number of tokens per batch with which the encoder embeds the most per second.

    The number is doubled from ``min_budget`` on, until one of these holds: a batch is not faster
    than the one before it by the factor ``MIN_SPEEDUP`` (1.05), it does not fit into the device's
    memory, it holds all sentences, or the number is above ``max_budget``.

    Args:
        encoder: The encoder, on the device to measure.
        tokens: The token ids of the sentences; ``tokens.lengths`` are their numbers of tokens.
        min_budget: The number of tokens per batch to start from.
        max_budget: The largest number of tokens per batch to try.
    """
    # Batches are timed on the sentences around the median length, so that all have nearly the same
    # lengths whatever their size.
    shortest_first = np.argsort(tokens.lengths, kind="stable")
    n_sentences = len(shortest_first)
    median_length = max(int(tokens.lengths[shortest_first[n_sentences // 2]]), 1)
    best_budget = min_budget
    best_speed = 0.0
    budget = min_budget
    batch_size = 0
    while budget <= max(max_budget, min_budget) and batch_size < n_sentences:
        batch_size = min(max(budget // median_length, 1), n_sentences)
        start = (n_sentences - batch_size) // 2
        middle_rows = shortest_first[start : start + batch_size]
        rows = middle_rows[::-1]  # the longest first, as batches are planned
        try:
            seconds = _time_batch(encoder, tokens, rows)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            break
        # In tokens per second.
        speed = float(tokens.lengths[rows].sum()) / seconds
        if speed < MIN_SPEEDUP * best_speed:
            break
        best_budget = budget
        best_speed = speed
        budget *= 2
    return best_budget


def _time_batch(encoder: DeviceEncoder, tokens: TokenIds, rows: IndexArray) -> float:
    """Return the seconds to embed a batch: the smaller of two times.

    The first time may be longer because it compiles code for the device. The work on the device is
    included, as ``embed_tokens`` returns only when the embeddings are in the main memory.

    Args:
        encoder: The encoder.
        tokens: The token ids of all sentences.
        rows: The sentences of the batch, as indices into ``tokens``.
    """
    durations = []
    for _ in range(2):
        start_time = time.perf_counter()
        encoder.embed_tokens(tokens, rows)
        durations.append(time.perf_counter() - start_time)
    return min(durations)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether torch has raised an error because the device's memory is full."""
    # By its name: torch is not imported for an encoder that does not need it.
    return type(error).__name__ == "OutOfMemoryError"
