"""What an analysis is: encoders and a task in, tables of plain data out, and a picture of these tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from stsbench.bench.shelf import Store, open_shelf
from stsbench.bench.tasks import ScoredTask
from stsbench.cards.catalogue import Catalogue
from stsbench.data.splits import PairSplit
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.known import KnownEncoder
from stsbench.encoders.seams import ROWS, Embed, Encoder, FloatArray
from stsbench.errors import DataError, EncoderError, StsbenchError
from stsbench.evaluators.seams import Scores
from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.similarity import paired_cosine
from stsbench.registry.names import Registry
from stsbench.results.record import Result

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

PlainRow = Mapping[str, Any]
"""Texts, numbers and None by the names of columns."""
Tables = Mapping[str, Sequence[PlainRow]]
"""Rows by the name of their table; the rows of a table have the same columns."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One encoder on one task whose data are read; what it embeds comes from the store where that holds it."""

    name: str
    known: KnownEncoder
    task: ScoredTask
    embed: Embed
    store: Store
    catalogue: Catalogue
    progress: Callable[[int, int], None]

    def pairs(self, *, everywhere: bool = False) -> PairSplit:
        """The task's pairs: those that are scored, or those of all its splits.

        Raises:
            DataError: the task has no pairs with gold scores.
        """
        names = list(self.task.task.card.splits) if everywhere else [self.task.split]
        found = [split for name in names if isinstance(split := self.task.task.load(name), PairSplit)]
        if len(found) < len(names):
            raise DataError(
                f"task {self.task.name} has no sentence pairs with gold scores; choose one of the suite sts"
            )
        if len(found) == 1:
            return found[0]
        return PairSplit(
            sentences1=[text for one in found for text in one.sentences1],
            sentences2=[text for one in found for text in one.sentences2],
            gold=np.concatenate([one.gold for one in found]),
            subset=[name for one in found for name in one.subset],
        )

    @cached_property
    def cosines(self) -> Float64Array:
        """The cosine of each scored pair, (n,)."""
        return self.cosines_of(*self.pairs().sides)

    def cosines_of(self, first: Sequence[str], second: Sequence[str]) -> Float64Array:
        """The cosine of each two sentences, (n,); 0 where one is a zero vector."""
        starts = range(0, len(first), ROWS)
        parts = [
            paired_cosine(self.array(first[at : at + ROWS]), self.array(second[at : at + ROWS]))[0] for at in starts
        ]
        return np.concatenate([np.empty(0), *parts])

    def positives(self, split: PairSplit, above: float, least: int = 1) -> list[int]:
        """The pairs above a gold score; raises DataError where there are fewer than so many."""
        close: list[int] = np.flatnonzero(split.gold > above).tolist()
        if len(close) < least:
            wanted = "no pair" if least == 1 else f"fewer than {least} pairs"
            have = "has" if least == 1 else "have"
            raise DataError(f"{wanted} of {self.task.name} {have} a gold score above {above:g}; --set above=…")
        return close

    def array(self, sentences: Sequence[str]) -> FloatArray:
        """Embeddings (n, d) in memory."""
        return np.asarray(self.embed(sentences), dtype=np.float32)

    def score(self, embed: Embed | None = None) -> Scores:
        """The task's score by its protocol, of these embeddings or of the encoder's own."""
        return self.task.evaluator(self.task.splits, embed or self.embed, seed=0)

    def engine(self, encoder: Encoder) -> Engine:
        """An engine with the same store for an encoder that is made of this one."""
        return Engine(encoder, open_shelf(self.store, encoder), progress=self.progress)


class Bed(Protocol):
    """What an analysis may ask for."""

    @property
    def names(self) -> Sequence[str]:
        """The encoders as the user names them."""
        ...

    @property
    def catalogue(self) -> Catalogue:
        """The cards."""
        ...

    @property
    def task(self) -> str:
        """The task's id."""
        ...

    def subjects(self) -> Iterator[Subject]:
        """Each encoder on the task, one at a time: two may not fit in memory together."""
        ...

    def results(self) -> Sequence[Result]:
        """The results of the task, of all encoders in the results folder."""
        ...

    def failed(self, what: str, error: StsbenchError) -> None:
        """Told an encoder that cannot be measured; unless it raises, the others go on."""
        ...


class Measurement(NamedTuple):
    """What is found of one encoder: its rows by table, and what is kept to be compared with others'."""

    tables: Tables
    kept: Any = None


class Analysis(ABC):
    """One analysis; its parameters, which ``--set`` replaces, are those of ``__init__``."""

    about: ClassVar[str]
    """What it shows, in a line."""
    printed: ClassVar[Sequence[str]]
    """The tables that a terminal shows."""
    reads_results: ClassVar[bool] = False
    """Whether it reads a results folder, and embeds nothing."""

    @abstractmethod
    def tables(self, bed: Bed) -> Tables:
        """Find the numbers."""

    @abstractmethod
    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw them; nothing but the tables is needed, and no sentence stands in a picture."""


class EncoderAnalysis(Analysis):
    """An analysis that looks at one encoder after the other."""

    def tables(self, bed: Bed) -> Tables:
        """Measure each encoder, then compare what was kept of them."""
        found: dict[str, list[PlainRow]] = {}
        kept: dict[str, Any] = {}
        for subject in bed.subjects():
            try:
                measured = self.measure(subject)
            except EncoderError as error:
                bed.failed(subject.name, error)
                continue
            for name, rows in measured.tables.items():
                found.setdefault(name, []).extend({"encoder": subject.name, **row} for row in rows)
            kept[subject.name] = measured.kept
        if not kept:
            raise DataError("none of the encoders can be measured")
        return {**found, **self.across(kept)}

    @abstractmethod
    def measure(self, subject: Subject) -> Measurement:
        """Measure one encoder."""

    def across(self, kept: Mapping[str, Any]) -> Tables:
        """Compare encoders by what was kept of each, by their names."""
        return {}


def check_least(name: str, value: float, least: float) -> None:
    """Raise StsbenchError where a parameter is below the least that has a meaning."""
    if not value >= least:
        raise StsbenchError(f"{name} = {value:g}: give {least:g} or more")


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What an analysis has found: plain data, and all that it was found with."""

    analysis: str
    task: str
    split: str
    protocol: str
    encoders: Sequence[str]
    parameters: Mapping[str, Any]
    tables: Tables = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What stands above its picture."""
        return f"{self.analysis}: {self.task}" + (f" ({self.split})" if self.split else "")


ANALYSES = Registry(
    "analysis",
    {
        "alignment": "stsbench.analysis.closeness:Closeness",
        "similarity": "stsbench.analysis.similarity:GoldAgainstCosine",
        "spectrum": "stsbench.analysis.spectrum:Spectrum",
        "layers": "stsbench.analysis.layers:Layers",
        "errors": "stsbench.analysis.mistakes:Mistakes",
        "neighbours": "stsbench.analysis.neighbours:Neighbours",
        "robustness": "stsbench.analysis.robustness:Robustness",
        "tokens": "stsbench.analysis.tokens:TokenFrequency",
        "shift": "stsbench.analysis.shift:Shift",
        "sweep": "stsbench.analysis.sweeps:SweepCells",
        "map": "stsbench.analysis.projection:SentenceMap",
    },
    group="analyses",
    accepts=lambda made: isinstance(made, type) and issubclass(made, Analysis),
    wanted="a class made of stsbench.analysis.seams:Analysis",
)
