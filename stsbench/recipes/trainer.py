"""The interface of trainers: a recipe's method with all that it learns from, and its forecast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import msgspec

from stsbench.bench.embedder import open_store
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError
from stsbench.core.registry import Registry
from stsbench.core.wording import format_duration
from stsbench.encoders.base import FittableEncoder
from stsbench.encoders.checkpoint import Checkpoint
from stsbench.encoders.engine.drift import code_hashes
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.load import load_named
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.runs import read_trained_runs
from stsbench.recipes.train_plan import TrainPlan
from stsbench.training.methods.registry import METHODS

if TYPE_CHECKING:
    from stsbench.data.corpora.corpus import Corpus
    from stsbench.training.learner import OnProgress, TeacherEmbeddings, TrainingOutcome, Validate
    from stsbench.training.loop.gather import ProcessGroup


class TrainingForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The length of a training and the size of its model; no step is taken to learn them."""

    rows: int
    corpus: str
    steps: int
    batch_size: int
    validations: int
    trained_parameters: int
    parameters: int
    device: str
    seconds: float | None
    """The time that an earlier run of another seed took; None if there is none."""

    def lines(self) -> list[list[str]]:
        """Return the forecast of a training as rows of a name and a text, for a table.

        ``seconds`` is the duration of an earlier run of the same recipe; None if there was none.
        """
        time = "unknown" if self.seconds is None else f"about {format_duration(self.seconds)}"
        return [
            ["corpus", f"{self.corpus}, {self.rows:,} rows"],
            ["steps", f"{self.steps:,} of {self.batch_size} rows"],
            ["validations", f"{self.validations:,}"],
            ["parameters", f"{self.trained_parameters:,} trained of {self.parameters:,}"],
            ["device", self.device],
            ["time", time],
        ]


@dataclass(frozen=True)
class TeacherEncoders:
    """The encoders from whose embeddings a method learns."""

    encoders: Sequence[NamedEncoder] = ()

    @classmethod
    def find(cls, names: Sequence[str], catalogue: Catalogue) -> TeacherEncoders:
        """Load the encoders whose embeddings a training learns from, the teachers.

        Args:
            names: Names of encoders, as :func:`stsbench.load_encoder` takes them.
            catalogue: The cards to search.

        Raises:
            CardError: A teacher is one that must be fitted on texts before it can embed.
            StsbenchError: A teacher cannot be loaded.
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
        """Embed texts with each teacher; embeddings are stored on disk and read from there.

        Of several processes that train together the first one (rank 0) embeds the texts that the
        store lacks; the others wait for it.

        Args:
            texts: The texts.
            processes: The processes that train together, this one among them.

        Returns:
            For each teacher a function from indices of the texts, (b,), to their embeddings (b, d).
        """
        lookups: list[TeacherEmbeddings] = []
        for teacher in self.encoders:
            is_first = processes.rank == 0
            if not is_first:
                # Until all processes have called wait().
                processes.wait()
            # The engine embeds the texts that the encoder's store on disk lacks, and stores them.
            engine = Engine(teacher.encoder, open_store("default", teacher.encoder))
            # They have the shape (n, d); ``take`` reads rows of them from the store.
            embeddings = engine(texts)
            if is_first:
                # Now the others go on.
                processes.wait()
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
    code: str = ""
    """The hashes of the code of a user's own method; empty for a method of stsbench."""

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
        """Return what the whole training takes; nothing is trained or written."""

    def make_forecast(
        self,
        **counts: int,
    ) -> TrainingForecast:
        """Return the forecast of a training: its counts, corpus, device and time.

        The time is that of the finished run of the same recipe with the highest seed; None if there
        is no such run.

        Args:
            counts: The counts by name: ``steps``, ``validations`` and the other fields of
                :class:`TrainingForecast`.

        Raises:
            EncoderError: The record of an earlier run is broken.
        """
        # Sorted by seed.
        earlier_runs = read_trained_runs(self.plan.name, self.plan.out)
        return TrainingForecast(
            rows=len(self.corpus),
            corpus=self.corpus.name,
            device=self.device,
            seconds=earlier_runs[-1].run.seconds if earlier_runs else None,
            **counts,
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
    return replace(trainer, code=code_hashes(method))
