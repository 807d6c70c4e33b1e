"""Which rows make which batch: fixed by seed and batch number alone, so that a run can be resumed anywhere."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch

from stsbench.cards.recipe import TrainingFacts
from stsbench.errors import CardError, TrainingError
from stsbench.training.seams import Batch, Learner, Rows


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """How many batches a run has, and what is in each.

    Every rank takes its own ``batch_size`` rows of each batch. Many ranks leave the last rows
    of an epoch out where they are too few for all; one rank makes a smaller batch of them.
    """

    count: int
    batch_size: int
    per_epoch: int
    total: int
    accumulate: int
    seed: int
    rank: int = 0
    ranks: int = 1

    @classmethod
    def make(cls, facts: TrainingFacts, count: int, *, seed: int, rank: int = 0, ranks: int = 1) -> BatchPlan:
        """Plan a recipe's batches over a corpus of ``count`` rows.

        Raises:
            CardError: the recipe says neither epochs nor steps, or both.
            TrainingError: the corpus is smaller than one batch of two rows.
        """
        if (facts.epochs is None) == (facts.steps is None):
            raise CardError("[training] needs 'epochs' or 'steps', one of them")
        if facts.batch_size < 1 or facts.accumulate < 1:
            raise CardError(f"[training] batch_size {facts.batch_size}, accumulate {facts.accumulate}: give 1 or more")
        if count < 2:
            raise TrainingError(f"the corpus has {count} rows; there is nothing to contrast")
        together = facts.batch_size * ranks
        whole_only = facts.drop_last or ranks > 1
        per_epoch = count // together if whole_only else math.ceil(count / together)
        # A last batch of one row has nothing to be told apart from.
        if not whole_only and count % together == 1:
            per_epoch -= 1
        if per_epoch == 0:
            raise TrainingError(f"the corpus has {count} rows, a batch takes {together}; lower batch_size")
        total = (
            facts.steps * facts.accumulate if facts.steps is not None else math.ceil((facts.epochs or 0) * per_epoch)
        )
        if total < 1:
            raise CardError("[training] leaves no step to take; raise 'epochs' or 'steps'")
        return cls(
            count=count,
            batch_size=facts.batch_size,
            per_epoch=per_epoch,
            total=total,
            accumulate=facts.accumulate,
            seed=seed,
            rank=rank,
            ranks=ranks,
        )

    @property
    def steps(self) -> int:
        """Steps of the optimiser."""
        return math.ceil(self.total / self.accumulate)


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
        start = (place * plan.ranks + plan.rank) * plan.batch_size
        rows = self._order(epoch)[start : start + plan.batch_size]
        return self.learner.collate(rows, np.random.default_rng([plan.seed, number, plan.rank]))

    def _order(self, epoch: int) -> Rows:
        if epoch not in self._orders:
            self._orders.clear()
            # The second number keeps these draws apart from those of batches.
            rng = np.random.default_rng([self.plan.seed, 1 << 40, epoch])
            self._orders[epoch] = self.learner.order(self.plan.count, rng, batch=self.plan.batch_size * self.plan.ranks)
        return self._orders[epoch]
