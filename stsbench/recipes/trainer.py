"""What trains a recipe: one protocol with a trainer for each kind of method, its forecast, and the encoders that it learns from."""

from __future__ import annotations

import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import msgspec

from stsbench.bench.embed import open_shelf
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError
from stsbench.core.registry import Registry
from stsbench.encoders.base import KnownEncoder, TextFitted
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.load import find_encoder
from stsbench.recipes.plan import TrainPlan, find_start
from stsbench.training.methods import METHODS_BY_TRAINER, load_method

if TYPE_CHECKING:
    from stsbench.data.corpora.load import Corpus
    from stsbench.encoders.checkpoint import Checkpoint
    from stsbench.training.loop.gather import Place
    from stsbench.training.loop.loop import OnProgress, TrainingOutcome
    from stsbench.training.seams import Taught, Validate


TRIED = 3
"""So many steps are taken."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """Steps and tokens are exact up to the batches drawn; seconds and bytes are measured over three steps."""

    rows: int
    corpus: str
    steps: int
    batch_size: int
    validations: int
    tokens: int
    """Tokens that go through the model in the whole run, padding not counted."""
    trained_parameters: int
    parameters: int
    seconds: float
    """Of all steps and validations, on the device used."""
    step_seconds: float
    validation_seconds: float
    memory: int
    """Bytes: the most that was used in the steps tried, on a GPU of its memory, else of the process."""
    device: str

    def lines(self) -> list[list[str]]:
        """Rows for a table."""
        each = f"{self.step_seconds:.2f} s a step, {self.validation_seconds:.1f} s a validation"
        return [
            ["corpus", f"{self.corpus}, {self.rows:,} rows"],
            ["steps", f"{self.steps:,} of {self.batch_size} rows"],
            ["validations", f"{self.validations:,}"],
            ["tokens", f"{self.tokens:,}"],
            ["parameters", f"{self.trained_parameters:,} trained of {self.parameters:,}"],
            ["memory", f"{self.memory / 2**30:.1f} GiB"],
            ["time", f"{self.seconds / 60:.1f} min ({each})"],
            ["device", self.device],
        ]


def memory_used(device: str) -> int:
    """Bytes: the most that this process has used, on a GPU of its memory."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass(frozen=True)
class Teachers:
    """Encoders under their names."""

    known: Sequence[KnownEncoder] = ()

    @classmethod
    def find(cls, names: Sequence[str], catalogue: Catalogue) -> Teachers:
        """Find them; raises CardError where one is fitted on texts, and as :func:`stsbench.load_encoder`."""
        found = [find_encoder(name, catalogue=catalogue) for name in names]
        for name, one in zip(names, found, strict=True):
            if isinstance(one.encoder, TextFitted):
                raise CardError(f"teacher '{name}' is fitted on texts; name an encoder that is not")
        return cls(found)

    def fingerprints(self) -> dict[str, str]:
        """What identifies the embeddings of each, by its name; empty where nothing does."""
        return {one.name: one.fingerprint or "" for one in self.known}

    def of(self, texts: Sequence[str], place: Place) -> list[Taught]:
        """What gives each one's embeddings of some of these texts; the first process embeds what the store lacks."""
        taught: list[Taught] = []
        for one in self.known:
            if place.rank:
                place.wait()
            embedded = Engine(one.encoder, open_shelf("default", one.encoder))(texts)
            if not place.rank:
                place.wait()
            taught.append(embedded.take)
        return taught


@dataclass(frozen=True, kw_only=True)
class Trainer(ABC):
    """A recipe's method with all that it learns from, one call away from training.

    The order of calls: ``prepare``, then ``forecast`` or ``train``, once. All raise StsbenchError: a value that method or
    trainer does not take, what cannot be had, or why it cannot continue and what was kept.
    """

    plan: TrainPlan
    corpus: Corpus
    """What it learns from."""
    validate: Validate | None
    """What weights are chosen by; None where the last are kept."""
    base: Checkpoint | None = None
    """The checkpoint that it starts from, if any."""
    teachers: Teachers = Teachers()
    """The encoders whose embeddings it learns from besides, if any."""
    device: str = "cpu"
    """Where it computes."""

    @classmethod
    @abstractmethod
    def check(cls, plan: TrainPlan, method: Any) -> object:  # noqa: ANN401 - a method's class
        """Check all of the recipe's values that can be checked before anything is loaded."""

    @classmethod
    @abstractmethod
    def prepare(cls, plan: TrainPlan, method: Any) -> Self:  # noqa: ANN401 - a method's class
        """Load and check all that the plan needs: text, development split, start and method."""

    @abstractmethod
    def forecast(self) -> Forecast:
        """Take three steps, write nothing, and reckon what the whole training takes."""

    def forecast_of(self, **tried: Any) -> Forecast:  # noqa: ANN401 - a forecast's fields
        """A forecast of what was tried, with what follows from it."""
        seconds = tried["step_seconds"] * tried["steps"] + tried["validation_seconds"] * tried["validations"]
        found = {"rows": len(self.corpus), "corpus": self.corpus.name, "seconds": seconds, "device": self.device}
        return Forecast(**found, **tried, memory=memory_used(self.device))

    @abstractmethod
    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Train, from the last checkpoint unless the plan is a fresh one, and leave the encoder in the plan's folder."""


TRAINERS = Registry(
    "trainer",
    {
        "loop": "stsbench.recipes.loop_trainer:LoopTrainer",
        "rounds": "stsbench.recipes.rounds_trainer:RoundsTrainer",
    },
    group="trainers",
)


def load_trainer(plan: TrainPlan) -> Trainer:
    """The trainer that a plan's method needs, with everything loaded; raises as :meth:`Trainer.prepare`."""
    if plan.base and plan.card.method in METHODS_BY_TRAINER["loop"]:
        # A missing start is an error before seconds are spent on importing what trains.
        find_start(plan)
    needed, method = load_method(plan.card.method)
    trainer: Trainer = TRAINERS.load_own(needed).prepare(plan, method)
    return trainer
