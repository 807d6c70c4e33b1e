"""What trains a recipe: one protocol with a trainer for each kind of method, its forecast, and the encoders that it learns from."""

from __future__ import annotations

import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import msgspec

from stsbench.bench.embed import open_shelf
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError
from stsbench.core.registry import Registry
from stsbench.encoders.base import FloatArray, KnownEncoder, TextFitted
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import StoredEmbeddings
from stsbench.encoders.load import find_encoder
from stsbench.recipes.plan import TrainPlan, find_start
from stsbench.training.methods import METHODS_BY_TRAINER, load_method

if TYPE_CHECKING:
    import torch

    from stsbench.data.corpora.corpus import Corpus
    from stsbench.encoders.checkpoint import Checkpoint
    from stsbench.training.loop.gather import Place
    from stsbench.training.loop.loop import TrainingOutcome
    from stsbench.training.loop.selection import OnProgress
    from stsbench.training.seams import Rows, Taught


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
        minutes = self.seconds / 60
        return [
            ["corpus", f"{self.corpus}, {self.rows:,} rows"],
            ["steps", f"{self.steps:,} of {self.batch_size} rows"],
            ["validations", f"{self.validations:,}"],
            ["tokens", f"{self.tokens:,}"],
            ["parameters", f"{self.trained_parameters:,} trained of {self.parameters:,}"],
            ["memory", f"{self.memory / 2**30:.1f} GiB"],
            [
                "time",
                f"{minutes:.1f} min ({self.step_seconds:.2f} s a step, {self.validation_seconds:.1f} s a validation)",
            ],
            ["device", self.device],
        ]


def memory_used(device: torch.device) -> int:
    """Bytes: the most that this process has used, on a GPU of its memory."""
    import torch

    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@dataclass(frozen=True)
class Teachers:
    """Encoders under their names."""

    known: Sequence[KnownEncoder] = ()

    @classmethod
    def find(cls, names: Sequence[str], catalogue: Catalogue) -> Teachers:
        """Find them.

        Raises:
            CardError: one is fitted on texts; as :func:`stsbench.load_encoder` otherwise.
        """
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
            if place.rank == 0:
                taught.append(partial(_rows, _embedded(one, texts)))
            place.wait()
            if place.rank != 0:
                taught.append(partial(_rows, _embedded(one, texts)))
        return taught


def _embedded(known: KnownEncoder, texts: Sequence[str]) -> StoredEmbeddings:
    return Engine(known.encoder, open_shelf("default", known.encoder))(texts)


def _rows(embeddings: StoredEmbeddings, rows: Rows) -> FloatArray:
    return embeddings.take(rows)


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
        # A missing start is an error before seconds are spent on importing what trains.
        find_start(plan)
    needed, method = load_method(plan.card.method)
    trainer: Trainer = TRAINERS.load_own(needed).prepare(plan, method)
    return trainer
