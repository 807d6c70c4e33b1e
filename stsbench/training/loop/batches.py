"""Which rows make which batch, fixed by seed and batch number alone, and batches made ahead by other processes.

So a batch is the same whoever makes it, a run can be resumed anywhere, without making the batches of before.
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
    """How many batches a recipe's run over a corpus of ``count`` rows has, and what is in each.

    Every rank takes its own ``batch_size`` rows of each batch. Many ranks leave the last rows
    of an epoch out where they are too few for all; one rank makes a smaller batch of them. Raises CardError: the recipe
    says neither epochs nor steps, or both; TrainingError: the corpus is smaller than one batch of two rows.
    """

    facts: TrainingSection
    count: int
    seed: int
    rank: int = 0
    ranks: int = 1

    def __post_init__(self) -> None:
        """Check that there is something to do."""
        if (self.facts.epochs is None) == (self.facts.steps is None):
            raise CardError("[training] needs 'epochs' or 'steps', one of them")
        if self.count < 2:
            raise TrainingError(f"the corpus has {self.count} rows; there is nothing to contrast")
        if self.per_epoch == 0:
            raise TrainingError(
                f"the corpus has {self.count} rows, a batch takes {self.together}; lower batch_size"
            )
        if self.total < 1:
            raise CardError("[training] leaves no step to take; raise 'epochs' or 'steps'")

    @property
    def together(self) -> int:
        """Rows of a batch of all ranks."""
        return self.facts.batch_size * self.ranks

    @property
    def per_epoch(self) -> int:
        """Batches of an epoch."""
        whole, left = divmod(self.count, self.together)
        # A last batch of one row has no negatives.
        return whole + (left > 1 and not self.facts.drop_last and self.ranks == 1)

    @property
    def total(self) -> int:
        """Batches of the whole run."""
        if self.facts.steps is not None:
            return self.facts.steps * self.facts.accumulate
        return math.ceil((self.facts.epochs or 0) * self.per_epoch)

    @property
    def steps(self) -> int:
        """Steps of the optimiser."""
        return math.ceil(self.total / self.facts.accumulate)


@dataclass
class Batches(torch.utils.data.Dataset[Batch]):
    """The batches of a run by number, each made when asked for."""

    learner: Learner
    plan: BatchPlan
    _orders: dict[int, Rows] = field(default_factory=dict)

    def __len__(self) -> int:
        """Batches in the whole run."""
        return self.plan.total

    def __getitem__(self, number: int) -> Batch:
        """Make one batch."""
        plan = self.plan
        epoch, place = divmod(number, plan.per_epoch)
        if epoch not in self._orders:
            # The second number keeps these draws apart from those of batches.
            rng = np.random.default_rng([plan.seed, 1 << 40, epoch])
            self._orders = {epoch: self.learner.order(plan.count, rng, batch=plan.together)}
        start = (place * plan.ranks + plan.rank) * plan.facts.batch_size
        rows = self._orders[epoch][start : start + plan.facts.batch_size]
        return self.learner.collate(rows, np.random.default_rng([plan.seed, number, plan.rank]))

    def handed(self, number: int) -> Batch:
        """The same, or what the user can put right: an error that left a worker by itself would be no such one any more."""
        try:
            return self[number]
        except StsbenchError as error:
            return {_MISTAKE: error}


MOST = 4
"""Workers that a GPU has at most, unless another number is asked for."""
_MISTAKE = "mistake"


def check_workers(asked: int | None, learner: Learner, *, ranks: int) -> int:
    """How many processes make batches: those asked for, by default none for a CPU and a few for a GPU.

    Raises CardError where some were asked for and there can be none.
    """
    why = "" if sys.platform == "linux" else "they need Linux"
    if not learner.made_ahead:
        why = f"what {type(learner).__name__} makes batches with cannot be shared out"
    if asked and why:
        raise CardError(f"--workers {asked}: {why}; leave it out")
    if asked is not None or why or learner.student.device.type == "cpu":
        return asked or 0
    return max(0, min(MOST, len(os.sched_getaffinity(0)) // ranks - 1))


def load_batches(
    batches: Batches, *, workers: int, pin: bool
) -> torch.utils.data.DataLoader[Batch]:
    """Hand out the batches of a run in order, each as :func:`open_batch` takes it."""
    if workers:
        # Threads of a tokenizer do not survive the fork, nor does a process that waits for them.
        settings.tokenize_in_one_thread()
    return torch.utils.data.DataLoader(
        # Not a list of them all: a run may have a billion batches.
        range(len(batches)),  # type: ignore[arg-type]
        batch_size=1,
        collate_fn=lambda numbers: batches.handed(numbers[0]),
        pin_memory=pin,
        num_workers=workers,
        # Corpus and tokenizer are there as they are; nothing of the model is copied.
        multiprocessing_context="fork" if workers else None,
    )


def open_batch(batch: Batch, device: torch.device) -> Batch:
    """Move a batch to its device, which is not waited for; raises what went wrong when it was made."""
    if _MISTAKE in batch:
        raise batch[_MISTAKE]
    moved: Batch = send_to_device(batch, device, non_blocking=True)
    return moved
