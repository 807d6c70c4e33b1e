"""The rows of each batch, fixed by seed and batch number alone, and batches made ahead.

So a batch is the same whichever process makes it, and a run can be resumed anywhere without making
the earlier batches.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass, field

import numpy as np
import torch
from accelerate.utils import send_to_device

from stsbench.core import settings
from stsbench.core.cards import TrainingSection
from stsbench.core.errors import CardError, StsbenchError, TrainingError
from stsbench.training.learner import Batch, Learner, Rows


@dataclass(frozen=True)
class BatchPlan:
    """The number of batches of a run, and the rows of each.

    Every rank has its own ``batch_size`` rows of each batch. The last rows of an epoch, if they are
    too few for all ranks, are omitted if there are several; one rank makes a smaller batch of them.

    Raises:
        CardError: The recipe has neither epochs nor steps, or both.
        TrainingError: The corpus is smaller than one batch of two rows.
    """

    section: TrainingSection
    count: int
    """The number of rows of the corpus."""
    seed: int
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        """Check that there is at least one batch."""
        if (self.section.epochs is None) == (self.section.steps is None):
            raise CardError("[training] needs 'epochs' or 'steps', one of them")
        if self.count < 2:
            raise TrainingError(f"the corpus has {self.count} rows; there is nothing to contrast")
        if self.per_epoch == 0:
            raise TrainingError(
                f"the corpus has {self.count} rows, a batch takes {self.joint_size}; "
                "lower batch_size"
            )
        if self.total < 1:
            raise CardError("[training] leaves no step to take; raise 'epochs' or 'steps'")

    @property
    def joint_size(self) -> int:
        """The number of rows of a batch of all ranks."""
        return self.section.batch_size * self.ranks

    @property
    def per_epoch(self) -> int:
        """The number of batches of an epoch."""
        full_batches, rest = divmod(self.count, self.joint_size)
        # A last batch of one row has no negatives.
        return full_batches + (rest > 1 and not self.section.drop_last and self.ranks == 1)

    @property
    def total(self) -> int:
        """The number of batches of the whole run."""
        if self.section.steps is not None:
            return self.section.steps * self.section.accumulate
        return math.ceil((self.section.epochs or 0) * self.per_epoch)

    @property
    def steps(self) -> int:
        """The number of steps of the optimiser."""
        return math.ceil(self.total / self.section.accumulate)


@dataclass
class Batches(torch.utils.data.Dataset[Batch]):
    """The batches of a run by number, each made when it is requested."""

    learner: Learner
    plan: BatchPlan
    _orders: dict[int, Rows] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of batches in the whole run."""
        return self.plan.total

    def __getitem__(self, number: int) -> Batch:
        """Make one batch.

        Args:
            number: The number of the batch in the whole run, from 0.
        """
        plan = self.plan
        epoch, batch_in_epoch = divmod(number, plan.per_epoch)
        if epoch not in self._orders:
            # The second number makes these draws independent of those of batches.
            rng = np.random.default_rng([plan.seed, 1 << 40, epoch])
            self._orders = {epoch: self.learner.order(plan.count, rng, batch=plan.joint_size)}
        # The rows of a batch lie together in the order, one rank's after the other's.
        start = (batch_in_epoch * plan.ranks + plan.rank) * plan.section.batch_size
        rows = self._orders[epoch][start : start + plan.section.batch_size]
        return self.learner.collate(rows, np.random.default_rng([plan.seed, number, plan.rank]))

    def batch_or_error(self, number: int) -> Batch:
        """Return a batch, or a batch that holds the user error that making it has raised.

        An exception that leaves a worker would no longer be a user error.
        """
        try:
            return self[number]
        except StsbenchError as error:
            return {_USER_ERROR_KEY: error}


MAX_WORKERS = 4
"""The maximum number of workers per GPU, unless a number is requested."""
_USER_ERROR_KEY = "mistake"
"""The key of the error in a batch that could not be made."""


def check_workers(requested: int | None, learner: Learner, *, ranks: int) -> int:
    """Return the number of processes that make batches.

    Args:
        requested: The number that the user wants; None for the default, none for a CPU and a few
            for a GPU.
        learner: The method whose batches are made.
        ranks: The number of processes that train on this machine.

    Raises:
        CardError: Processes were requested, and there can be none.
    """
    problem = "" if sys.platform == "linux" else "they need Linux"
    if not learner.made_ahead:
        problem = f"what {type(learner).__name__} makes batches with cannot be shared out"
    if requested and problem:
        raise CardError(f"`workers={requested}`: {problem}; leave it out")
    if requested is not None or problem or learner.student.device.type == "cpu":
        return requested or 0
    return max(0, min(MAX_WORKERS, len(os.sched_getaffinity(0)) // ranks - 1))


def load_batches(
    batches: Batches, *, workers: int, pin: bool
) -> torch.utils.data.DataLoader[Batch]:
    """Return a loader of the batches of a run in order, each to be opened by :func:`open_batch`.

    Args:
        batches: The batches by number.
        workers: The number of processes that make batches ahead; 0 for none.
        pin: Put batches into memory from which a GPU copies without waiting.
    """
    if workers:
        # Threads of a tokenizer do not survive the fork, nor does a process that waits for them.
        settings.tokenize_in_one_thread()
    return torch.utils.data.DataLoader(
        # Not a list of all numbers: a run may have a billion batches.
        # The loader's data set is the numbers of batches; ``collate_fn`` makes the batch.
        range(len(batches)),  # type: ignore[arg-type]
        batch_size=1,
        collate_fn=lambda numbers: batches.batch_or_error(numbers[0]),
        pin_memory=pin,
        num_workers=workers,
        # A forked worker shares corpus and tokenizer; no part of the model is copied.
        multiprocessing_context="fork" if workers else None,
    )


def open_batch(batch: Batch, device: torch.device) -> Batch:
    """Move a batch to its device without waiting for the device.

    Args:
        batch: A batch, or the error that making it has raised in another process.
        device: The device.

    Raises:
        StsbenchError: That error.
    """
    if _USER_ERROR_KEY in batch:
        raise batch[_USER_ERROR_KEY]
    moved: Batch = send_to_device(batch, device, non_blocking=True)
    return moved
