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
    """Embed batches in a pool of threads, and store their embeddings in the order of the batches.

    If the user stops the program, the batches that are being computed are finished and stored.

    Args:
        pool: The threads.
        batches: For each batch the indices of its texts.
        embed: Returns the embeddings of the texts with some indices; called in the threads.
        keep: Stores embeddings, called with the indices of their texts; called in this thread.
        n_ahead: The number of batches that are handed to the threads before the first is awaited.
    """
    # The batches that the threads have and that are not stored yet.
    pending = deque[tuple[IndexArray, Future[RawEmbeddings]]]()

    def keep_first() -> None:
        """Wait for the first pending batch and store its embeddings."""
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
            # Cancelling fails if a batch has begun; then `exception` waits for its end.
            if not future.cancel() and future.exception() is None:
                keep(rows, future.result())
        raise


class SideBySide:
    """Embeds batches side by side, as one engine does again and again."""

    def __init__(self, n_threads: int) -> None:
        """Start with as many batches at a time as torch has threads.

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
        """Embed batches, several at a time, and store their embeddings in order.

        The number of batches at a time, ``self.n_workers``, is chosen by timing some batches, and
        chosen again whenever the speed has fallen much.

        Args:
            batches: For each batch the indices of its texts.
            costs: The number of tokens of each text, (n,).
            embed: Returns the embeddings of the texts of some rows; called in several threads.
            keep: Stores the embeddings of some rows; called in this thread.
        """
        start = 0

        def measure_speed(n_batches: int) -> float:
            """Embed and store the next ``n_batches``, and return the tokens per second.

            ``start`` is the number of batches before them, ``costs`` the tokens of each text.
            """
            nonlocal start
            next_batches = batches[start : start + n_batches]
            start_time = time.perf_counter()
            self._run(next_batches, embed, keep)
            start += len(next_batches)
            n_tokens = sum(int(costs[rows].sum()) for rows in next_batches)
            return n_tokens / max(time.perf_counter() - start_time, 1e-9)

        # The best speed with this number of workers; 0 if the number is to be chosen. With few
        # batches left (below MIN_BATCHES_TO_TIME) it is not chosen anew.
        best_speed = 0.0
        while start < len(batches):
            if best_speed == 0.0 and len(batches) - start >= MIN_BATCHES_TO_TIME:
                best_speed = self._choose_workers(measure_speed)
            speed = measure_speed(max(MIN_BATCHES_PER_LOOK, 16 * self.n_workers))
            # SPEED_FALL is a share: below this share of the best speed, choose again.
            best_speed = 0.0 if speed < SPEED_FALL * best_speed else max(speed, best_speed)

    def _choose_workers(self, measure_speed: Callable[[int], float]) -> float:
        """Set ``self.n_workers`` to the number of batches at a time that embeds fastest.

        Some batches are embedded by as many workers as there are threads, the next ones by half
        as many, and so on down to one. A smaller number of workers is chosen only if it is faster
        than the best larger one by the factor ``MIN_SPEEDUP``, which is above 1.

        Args:
            measure_speed: Embeds the next batches, as many as its argument says, and returns the
                speed in tokens per second.

        Returns:
            The speed of the choice. If it was so high by chance, a later fall of the speed makes
            the caller choose again.
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
        """Embed batches in ``self.n_workers`` threads, and store their embeddings in order.

        Args:
            batches: For each batch the indices of its texts.
            embed: Returns the embeddings of the texts with some indices.
            keep: Stores embeddings, called with the indices of their texts.
        """
        import torch

        try:
            # Each worker computes its batch on one thread of torch.
            with ThreadPoolExecutor(
                self.n_workers, initializer=torch.set_num_threads, initargs=(1,)
            ) as pool:
                embed_ahead(pool, batches, embed, keep, n_ahead=2 * self.n_workers)
        finally:
            # Torch has this setting per thread, but new threads begin with the last number set.
            torch.set_num_threads(self.n_threads)
