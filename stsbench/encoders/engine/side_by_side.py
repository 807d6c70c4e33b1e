"""Embed several batches at a time on a processor, each on one thread.

Threads that share one product of matrices wait for each other at its end; beside other processes,
each waits for the one that has lost its core. Batches side by side do not wait for each other. How
many are the fastest depends on the model and on the load, and is measured on the first batches.
The number never changes an embedding. Threads that share a batch could: some kernels add in another
order on another number of threads, for example convolutions.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy.typing as npt

from stsbench.encoders.base import IndexArray

MIN_BATCHES_TO_SHARE = 64
"""The least number of planned batches that are computed side by side.

With fewer, all threads compute one batch after the other.
"""
MIN_BATCHES_TO_TIME = 32
"""The least number of batches to embed for which a number of workers is chosen by timing."""
MIN_TIMED_BATCHES = 8
"""The least number of batches that a number of workers is timed on."""
MIN_BATCHES_PER_LOOK = 64
"""The least number of batches after which the speed is compared with what it was."""
SPEED_FALL = 0.75
"""The number of workers is chosen again if the speed falls to this share of the best so far."""
MIN_SPEEDUP = 1.2
"""The factor by which fewer workers must be faster to be preferred to more."""
RawEmbeddings = npt.NDArray[Any]
"""What an encoder has returned, which is not checked yet."""
EmbedFunction = Callable[[IndexArray], RawEmbeddings]
"""Embeds the texts of some rows."""
KeepFunction = Callable[[IndexArray, RawEmbeddings], None]
"""Stores the embeddings of some rows."""


def embed_ahead(
    pool: ThreadPoolExecutor,
    batches: Sequence[IndexArray],
    embed: EmbedFunction,
    keep: KeepFunction,
    *,
    n_ahead: int,
) -> None:
    """Embed batches in a pool of threads and keep them in their order.

    If the user stops the program, the batches that are being computed are finished and kept.

    Args:
        pool: The threads.
        batches: The rows of each batch.
        embed: Called in the threads.
        keep: Called in this thread.
        n_ahead: The number of batches that are handed to the threads before the first is awaited.
    """
    pending = deque[tuple[IndexArray, Future[RawEmbeddings]]]()

    def keep_first() -> None:
        rows, future = pending[0]
        embeddings = future.result()
        # Only now, so that a stop while waiting leaves it among the pending ones.
        pending.popleft()
        keep(rows, embeddings)

    try:
        for rows in batches:
            pending.append((rows, pool.submit(embed, rows)))
            if len(pending) >= n_ahead:
                keep_first()
        while pending:
            keep_first()
    except KeyboardInterrupt:
        for rows, future in pending:
            if not future.cancel() and future.exception() is None:
                keep(rows, future.result())
        raise


class SideBySide:
    """Embeds batches side by side, as one engine does again and again."""

    def __init__(self, n_threads: int) -> None:
        """Start with as many workers as there are threads.

        Args:
            n_threads: The number of threads that torch uses here for one operation.
        """
        self.n_threads = n_threads
        self.n_workers = n_threads
        """The number of batches at a time, as chosen last."""

    def embed_batches(
        self,
        batches: Sequence[IndexArray],
        costs: IndexArray,
        embed: EmbedFunction,
        keep: KeepFunction,
    ) -> None:
        """Embed batches and keep them in their order.

        Args:
            batches: The rows of each batch.
            costs: The number of tokens of each text.
            embed: Returns the embeddings of the texts of some rows; called in several threads.
            keep: Stores the embeddings of some rows; called in this thread.
        """
        start = 0

        def measure_speed(n_batches: int) -> float:
            """Embed the next batches; return how many tokens a second that were."""
            nonlocal start
            part = batches[start : start + n_batches]
            start_time = time.perf_counter()
            self._run(part, embed, keep)
            start += len(part)
            n_tokens = sum(int(costs[rows].sum()) for rows in part)
            return n_tokens / max(time.perf_counter() - start_time, 1e-9)

        # 0 if the number of workers is to be chosen.
        best_speed = 0.0
        while start < len(batches):
            if best_speed == 0.0 and len(batches) - start >= MIN_BATCHES_TO_TIME:
                best_speed = self._choose_workers(measure_speed)
            speed = measure_speed(max(MIN_BATCHES_PER_LOOK, 16 * self.n_workers))
            best_speed = 0.0 if speed < SPEED_FALL * best_speed else max(speed, best_speed)

    def _choose_workers(self, measure_speed: Callable[[int], float]) -> float:
        """Embed some batches by all workers, by half of them, and so on; choose the fastest.

        Args:
            measure_speed: Embeds this number of batches and returns the tokens per second.

        Returns:
            The speed of the choice. If it was measured by chance, the choice is soon made again.
        """
        speeds = dict[int, float]()
        self.n_workers = self.n_threads
        while self.n_workers:
            speeds[self.n_workers] = measure_speed(max(MIN_TIMED_BATCHES, 2 * self.n_workers))
            self.n_workers //= 2
        best_speed = 0.0
        for n_workers, speed in speeds.items():
            if speed > MIN_SPEEDUP * best_speed:
                best_speed = speed
                self.n_workers = n_workers
        return best_speed

    def _run(self, batches: Sequence[IndexArray], embed: EmbedFunction, keep: KeepFunction) -> None:
        """Embed batches by the workers, and keep them in their order."""
        import torch

        try:
            with ThreadPoolExecutor(
                self.n_workers, initializer=torch.set_num_threads, initargs=(1,)
            ) as pool:
                embed_ahead(pool, batches, embed, keep, n_ahead=2 * self.n_workers)
        finally:
            # Each thread has a number of its own, but new threads begin with the last one set.
            torch.set_num_threads(self.n_threads)
