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
from stsbench.encoders.transformer.flat import attach_cpu_masks
from stsbench.training.learner import Batch, Learner, Rows


@dataclass(frozen=True)
class BatchPlan:
    """The number of batches of a run, and of the rows of each.

    Every rank has its own ``batch_size`` rows of each batch. The last rows of an epoch, if they are
    too few for all ranks, are omitted if there are several; one rank makes a smaller batch of them.

    Raises:
        CardError: The recipe has neither epochs nor steps, or both.
        TrainingError: The corpus is smaller than one batch of two rows.
    """

    section: TrainingSection
    """The recipe's section ``[training]``: batch size, epochs or steps."""
    n_rows: int
    """The number of rows of the corpus."""
    seed: int
    rank: int = 0
    """The number of this process, from 0."""
    ranks: int = 1
    """The number of processes that train together."""

    def __post_init__(self) -> None:
        """Check the plan; ``section`` is the recipe's section ``[training]``.

        Raises:
            CardError: The recipe has neither epochs nor steps, or both, or no batch to train on.
            TrainingError: The corpus has fewer than two rows, or too few for one batch.
        """
        if (self.section.epochs is None) == (self.section.steps is None):
            raise CardError("[training] needs 'epochs' or 'steps', one of them")
        # The loss of a sentence contrasts it with others.
        if self.n_rows < 2:
            raise TrainingError(f"the corpus has {self.n_rows} rows; there is nothing to contrast")
        # ``batches_per_epoch`` counts the full batches, and a smaller last one of two rows or more,
        # if a single process trains and the recipe does not omit it. ``joint_batch_size``: the rows
        # of a batch of all training processes together.
        if self.batches_per_epoch == 0:
            raise TrainingError(
                f"the corpus has {self.n_rows} rows, a batch takes {self.joint_batch_size}; "
                "lower batch_size"
            )
        # The number of batches of the whole run.
        if self.n_batches < 1:
            raise CardError("[training] leaves no step to take; raise 'epochs' or 'steps'")

    @property
    def joint_batch_size(self) -> int:
        """The number of rows of a batch of all ranks."""
        return self.section.batch_size * self.ranks

    @property
    def batches_per_epoch(self) -> int:
        """The number of batches of an epoch."""
        full_batches, rest = divmod(self.n_rows, self.joint_batch_size)
        # A last batch of one row has no negatives.
        return full_batches + (rest > 1 and not self.section.drop_last and self.ranks == 1)

    @property
    def n_batches(self) -> int:
        """The number of batches of the whole run."""
        if self.section.steps is not None:
            return self.section.steps * self.section.accumulate
        return math.ceil((self.section.epochs or 0) * self.batches_per_epoch)

    @property
    def steps(self) -> int:
        """The number of steps of the optimiser."""
        return math.ceil(self.n_batches / self.section.accumulate)


@dataclass
class Batches(torch.utils.data.Dataset[Batch]):
    """The batches of a run by number, each made when it is requested."""

    learner: Learner
    plan: BatchPlan
    _orders: dict[int, Rows] = field(default_factory=dict)
    """The order of the corpus's rows in the current epoch, by the number of the epoch."""

    def __len__(self) -> int:
        """Return the number of batches in the whole run."""
        return self.plan.n_batches

    def __getitem__(self, number: int) -> Batch:
        """Make one batch for this training process; a rank is the number of such a process.

        Its rows and draws depend only on the seed, the batch's number and the rank, so that a
        resumed run gets the same batches.

        Args:
            number: The number of the batch in the whole run, from 0.

        Returns:
            What the method's ``collate`` makes of the batch's rows: tensors by name.
        """
        plan = self.plan
        epoch, batch_in_epoch = divmod(number, plan.batches_per_epoch)
        if epoch not in self._orders:
            # The draws of a batch are seeded by its number. No batch has the number 2^40, so the
            # draws of the order of an epoch's rows are independent of them.
            order_rng = np.random.default_rng([plan.seed, 2**40, epoch])
            # The indices of all rows, by default shuffled.
            order = self.learner.order(plan.n_rows, order_rng, batch=plan.joint_batch_size)
            # Only the current epoch's order is stored.
            self._orders = {epoch: order}
        # A batch of all ranks is consecutive rows of the order: rank 0's, then rank 1's, and so on,
        # ``batch_size`` rows each; the last batch of an epoch may be smaller.
        start = (batch_in_epoch * plan.ranks + plan.rank) * plan.section.batch_size
        rows = self._orders[epoch][start : start + plan.section.batch_size]
        batch_rng = np.random.default_rng([plan.seed, number, plan.rank])
        return self.learner.collate(rows, batch_rng)

    def batch_or_error(self, number: int) -> Batch:
        """Return a batch, or, if making it raises a user error, a dict with that error alone.

        torch would turn an exception that leaves a worker process into one of another class;
        :func:`receive_batch` raises the error that is returned here.

        Args:
            number: The number of the batch in the whole run, from 0.
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
    """Return the number of worker processes that make batches ahead for one training process.

    By default there are none if training is on a CPU or if workers are impossible; for a GPU as
    many as there are free cores, at most ``MAX_WORKERS``.

    Args:
        requested: The number that the user requests; None for the default.
        learner: The method whose batches are made.
        ranks: The number of processes that train on this machine.

    Raises:
        CardError: Workers are requested but impossible.
    """
    # Why workers are impossible; empty if they are possible.
    problem = "" if sys.platform == "linux" else "they need Linux"
    # False for a method that runs a model, or reads an open file, to make a batch.
    if not learner.made_ahead:
        problem = f"what {type(learner).__name__} makes batches with cannot be shared out"
    if requested and problem:
        raise CardError(f"`workers={requested}`: {problem}; leave it out")
    if requested is not None:
        return requested
    if problem or learner.student.device.type == "cpu":
        return 0
    # Each training process needs one core itself.
    free_cores_per_rank = len(os.sched_getaffinity(0)) // ranks - 1
    return max(0, min(MAX_WORKERS, free_cores_per_rank))


def load_batches(
    batches: Batches, *, workers: int, pin: bool
) -> torch.utils.data.DataLoader[Batch]:
    """Return a loader that yields a run's batches in order.

    Instead of a batch it may yield the error that making the batch has raised: the caller passes
    each through :func:`receive_batch`, which raises it.

    Args:
        batches: The batches by number.
        workers: The number of processes that make batches ahead; 0 for none.
        pin: Put batches into memory from which a GPU copies without waiting.
    """
    if workers:
        # Threads of a tokenizer do not survive the fork, nor does a process that waits for them.
        settings.tokenize_in_one_thread()
    return torch.utils.data.DataLoader(
        # The loader's "data set" is the numbers of the batches, in a range, as a run may have a
        # billion; ``collate_fn`` gets one number at a time and makes the batch.
        range(len(batches)),  # type: ignore[arg-type]
        batch_size=1,
        collate_fn=lambda numbers: batches.batch_or_error(numbers[0]),
        pin_memory=pin,
        num_workers=workers,
        # A forked worker shares corpus and tokenizer; no part of the model is copied.
        multiprocessing_context="fork" if workers else None,
    )


def receive_batch(batch: Batch, device: torch.device) -> Batch:
    """Move a batch of :func:`load_batches` to a device, or raise the error that it holds.

    The copying is only started; this function does not wait for the device.

    Args:
        batch: Tensors by name, or the user error that making the batch has raised, under
            ``_USER_ERROR_KEY``.
        device: The device.

    Returns:
        The tensors on the device, by name.

    Raises:
        StsbenchError: The error that the batch holds.
    """
    if _USER_ERROR_KEY in batch:
        raise batch[_USER_ERROR_KEY]
    moved: Batch = send_to_device(batch, device, non_blocking=True)
    # Attaches the attention masks in the CPU's memory to those on the device: models read the
    # lengths of sentences from them without waiting for a GPU.
    attach_cpu_masks(moved, batch)
    return moved
