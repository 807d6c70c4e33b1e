"""What trains a recipe: one protocol, and a trainer for each kind of method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from stsbench.recipes.plan import TrainPlan
from stsbench.recipes.prepare import find_start
from stsbench.registry.names import Registry
from stsbench.training.methods import METHODS_BY_TRAINER, load_method

if TYPE_CHECKING:
    from stsbench.data.corpora.corpus import Corpus
    from stsbench.encoders.checkpoints.checkpoint import Checkpoint
    from stsbench.recipes.forecast import Forecast
    from stsbench.recipes.teachers import Teachers
    from stsbench.training.loop.loop import TrainingOutcome
    from stsbench.training.loop.selection import OnProgress


class Trainer(Protocol):
    """A recipe's method with all that it learns from, one call away from training.

    The order of calls: ``prepare``, then ``forecast`` or ``train``, once. What else it has is for the run's record.
    """

    @classmethod
    def check(cls, plan: TrainPlan, method: Any) -> None:  # noqa: ANN401 - a method's class
        """Check all of the recipe's values that can be checked before anything is loaded.

        Raises:
            StsbenchError: a value that the method or the trainer does not take.
        """

    @classmethod
    def prepare(cls, plan: TrainPlan, method: Any) -> Self:  # noqa: ANN401 - a method's class
        """Load and check all that the plan needs: text, development split, start and method.

        Raises:
            StsbenchError: one of them cannot be had, or does not fit the method.
        """

    def forecast(self) -> Forecast:
        """Take three steps, write nothing, and reckon what the whole training takes."""

    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Train, from the last checkpoint unless the plan is a fresh one, and leave the encoder in the plan's folder.

        Raises:
            StsbenchError: why it cannot go on, and what was kept.
        """

    @property
    def corpus(self) -> Corpus:
        """What it learns from."""

    @property
    def base(self) -> Checkpoint | None:
        """The checkpoint that it starts from, if any."""

    @property
    def teachers(self) -> Teachers:
        """The encoders whose embeddings it learns from besides, if any."""

    @property
    def device(self) -> str:
        """Where it computes."""


TRAINERS = Registry(
    "trainer",
    {
        "loop": "stsbench.recipes.loop_trainer:LoopTrainer",
        "rounds": "stsbench.recipes.rounds_trainer:RoundsTrainer",
    },
    group="trainers",
)


def check_recipe(plan: TrainPlan) -> None:
    """Check a plan's values, and load nothing; raises as :meth:`Trainer.check`."""
    needed, method = load_method(plan.card.method)
    TRAINERS.load_own(needed).check(plan, method)


def load_trainer(plan: TrainPlan) -> Trainer:
    """The trainer that a plan's method needs, with everything loaded; raises as :meth:`Trainer.prepare`."""
    if plan.base and plan.card.method in METHODS_BY_TRAINER["loop"]:
        # A start that is not there is told before seconds are spent on importing what trains.
        find_start(plan)
    needed, method = load_method(plan.card.method)
    trainer: Trainer = TRAINERS.load_own(needed).prepare(plan, method)
    return trainer
