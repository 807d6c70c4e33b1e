"""Batches made ahead, by processes of their own: a step finds the next one ready.

Seed and number alone make a batch, so it is the same whoever makes it, and a resumed run leaves out those that were
learned from without making them.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import torch

from stsbench import settings
from stsbench.errors import CardError, StsbenchError
from stsbench.training.loop.batches import Batches
from stsbench.training.seams import Batch, Learner

MOST = 4
"""Workers that a GPU has at most, unless another number is asked for."""
_MISTAKE = "mistake"


def check_workers(asked: int | None, learner: Learner, *, ranks: int) -> int:
    """Return how many processes make batches: those asked for, by default none for a CPU and a few for a GPU.

    Raises:
        CardError: some were asked for where there can be none.
    """
    why = "" if sys.platform == "linux" else "they need Linux"
    if not learner.made_ahead:
        why = f"what {type(learner).__name__} makes batches with cannot be shared out"
    if asked and why:
        raise CardError(f"--workers {asked}: {why}; leave it out")
    if asked is not None or why or learner.student.device.type == "cpu":
        return asked or 0
    return max(0, min(MOST, len(os.sched_getaffinity(0)) // ranks - 1))


def load_batches(batches: Batches, *, workers: int, pin: bool) -> torch.utils.data.DataLoader[Batch]:
    """Hand out the batches of a run in order, each as :func:`open_batch` takes it."""
    if workers:
        # Threads of a tokenizer do not survive the fork, nor does a process that waits for them.
        settings.tokenize_in_one_thread()
    return torch.utils.data.DataLoader(
        _Handed(batches),
        # Not a list of them all: a run may have a billion batches.
        sampler=range(len(batches)),
        batch_size=1,
        collate_fn=_first,
        pin_memory=pin,
        num_workers=workers,
        # Corpus and tokenizer are there as they are; nothing of the model is copied.
        multiprocessing_context="fork" if workers else None,
    )


def open_batch(batch: Batch, device: torch.device) -> Batch:
    """Move a batch to its device, which is not waited for; raises what went wrong when it was made."""
    if _MISTAKE in batch:
        raise batch[_MISTAKE]
    return {name: _moved(value, device) for name, value in batch.items()}


def _moved(value: Any, device: torch.device) -> Any:  # noqa: ANN401 - what a method's batches hold
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    return {name: _moved(inner, device) for name, inner in value.items()} if isinstance(value, dict) else value


def _first(items: list[Batch]) -> Batch:
    return items[0]


class _Handed(torch.utils.data.Dataset[Batch]):
    """Batches, or what the user can put right: an error that left a worker by itself would be no such one any more."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Batch:
        try:
            return self.batches[number]
        except StsbenchError as error:
            return {_MISTAKE: error}
