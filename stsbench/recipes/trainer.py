"""The interface of trainers: a recipe's method with all that it learns from, and its forecast."""

from __future__ import annotations

import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import msgspec

from stsbench.bench.embedder import open_store
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError
from stsbench.core.registry import Registry
from stsbench.encoders.accelerator import is_accelerator, peak_memory
from stsbench.encoders.base import FittableEncoder
from stsbench.encoders.checkpoint import Checkpoint
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.load import load_named
from stsbench.encoders.named import NamedEncoder
from stsbench.recipes.train_plan import (
    TrainPlan,
)
from stsbench.training.methods.registry import METHODS

if TYPE_CHECKING:
    from stsbench.data.corpora.corpus import Corpus
    from stsbench.training.learner import (
        OnProgress,
        TeacherEmbeddings,
        TrainingOutcome,
        Validate,
    )
    from stsbench.training.loop.gather import ProcessGroup


N_TRIED_STEPS = 3
"""The number of steps that a forecast takes."""


class TrainingForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The length and the cost of a training.

    Steps and tokens are exact up to the batches drawn; seconds and bytes are measured over three
    steps.
    """

    rows: int
    corpus: str
    steps: int
    batch_size: int
    validations: int
    tokens: int
    """The number of tokens that go through the model in the whole run, without padding."""
    trained_parameters: int
    parameters: int
    seconds: float
    """The time of all steps and validations, on the device used."""
    step_seconds: float
    validation_seconds: float
    memory: int
    """The peak number of bytes in the steps tried: of the GPU's memory, or else of the process."""
    device: str

    def lines(self) -> list[list[str]]:
        """Return the forecast as rows of a name and a text, for a table of two columns."""
        unit_times = (
            f"{self.step_seconds:.2f} s a step, {self.validation_seconds:.1f} s a validation"
        )
        return [
            ["corpus", f"{self.corpus}, {self.rows:,} rows"],
            ["steps", f"{self.steps:,} of {self.batch_size} rows"],
            ["validations", f"{self.validations:,}"],
            ["tokens", f"{self.tokens:,}"],
            ["parameters", f"{self.trained_parameters:,} trained of {self.parameters:,}"],
            ["memory", f"{self.memory / 2**30:.1f} GiB"],
            ["time", f"{self.seconds / 60:.1f} min ({unit_times})"],
            ["device", self.device],
        ]


@dataclass(frozen=True)
class TeacherEncoders:
    """The encoders from whose embeddings a method learns."""

    encoders: Sequence[NamedEncoder] = ()

    @classmethod
    def find(cls, names: Sequence[str], catalogue: Catalogue) -> TeacherEncoders:
        """Load the encoders that teach a student, by name.

        Args:
            names: Names of encoders, as :func:`stsbench.load_encoder` takes them.
            catalogue: The cards to search.

        Raises:
            CardError: One is fitted on texts.
            StsbenchError: One cannot be loaded, see :func:`stsbench.load_encoder`.
        """
        encoders = [load_named(name, catalogue=catalogue) for name in names]
        for name, teacher in zip(names, encoders, strict=True):
            if isinstance(teacher.encoder, FittableEncoder):
                raise CardError(f"teacher '{name}' is fitted on texts; name an encoder that is not")
        return cls(encoders)

    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprint of each by its name; empty strings for those without."""
        return {teacher.name: teacher.fingerprint or "" for teacher in self.encoders}

    def embed(self, texts: Sequence[str], processes: ProcessGroup) -> list[TeacherEmbeddings]:
        """Embed texts with each teacher; the first process embeds what the store lacks.

        Args:
            texts: The texts.
            processes: The processes that train together.

        Returns:
            Per teacher a function that returns the embeddings of some of the texts.
        """
        lookups: list[TeacherEmbeddings] = []
        for teacher in self.encoders:
            # The first process, of rank 0, embeds and stores; the others wait, then read the store.
            is_first = processes.rank == 0
            if not is_first:
                processes.wait()
            engine = Engine(teacher.encoder, open_store("default", teacher.encoder))
            embeddings = engine(texts)
            if is_first:
                processes.wait()
            # A function from indices of the texts to their embeddings.
            lookups.append(embeddings.take)
        return lookups


@dataclass(frozen=True, kw_only=True)
class Trainer(ABC):
    """A recipe's method with all that it learns from, ready to train.

    The order of calls: ``prepare``, then ``forecast`` or ``train``, once. All raise StsbenchError
    for a value that is not valid, for anything that is missing, or if training cannot continue.
    """

    plan: TrainPlan
    corpus: Corpus
    validate: Validate | None
    """The function by whose score weights are selected; None to keep the last ones."""
    base: Checkpoint | None = None
    """The checkpoint that training starts from; None if it starts from nothing."""
    teachers: TeacherEncoders = TeacherEncoders()
    device: str = "cpu"

    @classmethod
    @abstractmethod
    def check(cls, plan: TrainPlan, method: Any) -> object:  # noqa: ANN401 - a method's class
        """Check all of the recipe's values that can be checked before anything is loaded."""

    @classmethod
    @abstractmethod
    def prepare(cls, plan: TrainPlan, method: Any) -> Self:  # noqa: ANN401 - a method's class
        """Load and check all that the plan needs: text, development split, start and method."""

    @abstractmethod
    def forecast(self) -> TrainingForecast:
        """Take three steps, write nothing, and estimate what the whole training takes."""

    def make_forecast(
        self,
        **measured: Any,  # noqa: ANN401 - the fields of a forecast
    ) -> TrainingForecast:
        """Return a forecast from the fields that were measured, and compute the other fields.

        Computed are the corpus and its rows, the total seconds, the device and the peak of its
        memory in this process so far.

        Args:
            measured: All other fields of :class:`TrainingForecast`: ``steps``, ``validations``,
                ``tokens``, ``step_seconds``, ``validation_seconds`` and so on.
        """
        import torch

        device = torch.device(self.device)
        memory = peak_memory(device) if is_accelerator(device) else None
        if memory is None:
            # The peak of this process, in KiB on Linux and in bytes on macOS.
            unit = 1 if sys.platform == "darwin" else 1024
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return TrainingForecast(
            rows=len(self.corpus),
            corpus=self.corpus.name,
            seconds=(
                measured["step_seconds"] * measured["steps"]
                + measured["validation_seconds"] * measured["validations"]
            ),
            device=self.device,
            memory=memory,
            **measured,
        )

    @abstractmethod
    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Train, and leave the encoder in the plan's folder.

        Training resumes from the last checkpoint, unless the plan is ``fresh``.
        """


TRAINERS = Registry(
    "trainer",
    {
        "loop": "stsbench.recipes.trainers:LoopTrainer",
        "rounds": "stsbench.recipes.trainers:RoundsTrainer",
    },
    group="trainers",
)


def load_trainer(plan: TrainPlan) -> Trainer:
    """Return the trainer for a plan's method, with everything loaded; see Trainer.prepare."""
    method = METHODS.load(plan.card.method)
    trainer: Trainer = TRAINERS.load_own(method.trainer).prepare(plan, method)
    return trainer
