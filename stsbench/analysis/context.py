"""What an analysis is: encoders and a task in, tables of plain data out, and a picture of these tables."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np

from stsbench.bench.embedder import SharedState, TaskEmbedder, open_store
from stsbench.bench.plan import RunPlan, Store
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.protocols import PlannedTask
from stsbench.boards.render.text import csv_text
from stsbench.core.errors import DataError, EncoderError, StsbenchError
from stsbench.core.parameters import call_with_params
from stsbench.core.registry import Registry
from stsbench.data.splits import PairSplit
from stsbench.encoders.base import ROWS_AT_ONCE, Embed, FloatArray
from stsbench.encoders.engine.embed import Engine, ProgressCallback
from stsbench.encoders.load import check_loadable, expand_recipe, load_named
from stsbench.encoders.named import NamedEncoder
from stsbench.evaluators.base import Scores
from stsbench.evaluators.belief import believe
from stsbench.numbers.similarity import paired_cosine
from stsbench.numbers.statistics import Float64Array
from stsbench.results.folder import read_folder
from stsbench.results.record import Result

if TYPE_CHECKING:
    from stsbench.encoders.transformer.encoder import TransformerEncoder
    from stsbench.plots.chart import Chart

KeyT = TypeVar("KeyT")


PlainRow = Mapping[str, Any]
"""Texts, numbers and None by the names of columns."""
Tables = Mapping[str, Sequence[PlainRow]]
"""Rows by the name of their table; the rows of a table have the same columns."""


@dataclass(frozen=True, kw_only=True)
class EncoderOnTask:
    """One encoder on one task whose data are read; what it embeds comes from the store where that holds it."""

    name: str
    known: NamedEncoder
    task: PlannedTask
    embed: Embed
    store: Store = "default"
    progress: ProgressCallback = lambda done, total: None

    def pairs(self, *, everywhere: bool = False) -> PairSplit:
        """The task's pairs, of which there must be some: those that are scored, or those of all its splits."""
        names = list(self.task.task.card.splits) if everywhere else [self.task.split]
        found = [
            split for name in names if isinstance(split := self.task.task.load(name), PairSplit)
        ]
        if len(found) < len(names):
            raise DataError(
                f"task {self.task.name} has no sentence pairs with gold scores; choose one of suite sts"
            )
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
        parts = (slice(at, at + ROWS_AT_ONCE) for at in range(0, len(first), ROWS_AT_ONCE))
        found = [
            paired_cosine(self.array(first[part]), self.array(second[part]))[0] for part in parts
        ]
        return np.concatenate([np.empty(0), *found])

    def positives(self, split: PairSplit, above: float, least: int = 1) -> list[int]:
        """The pairs above a gold score; raises DataError where there are fewer than so many."""
        close: list[int] = np.flatnonzero(split.gold > above).tolist()
        if len(close) < least:
            few = "no pairs" if least == 1 else f"fewer than {least} pairs"
            raise DataError(
                f"{few} of {self.task.name} have a gold score above {above:g}; --set above=…"
            )
        return close

    def array(self, sentences: Sequence[str]) -> FloatArray:
        """Embeddings (n, d) in memory."""
        return np.asarray(self.embed(sentences), dtype=np.float32)

    def score(self, embed: Embed | None = None) -> Scores:
        """The task's score by its protocol, of these embeddings or of the encoder's own."""
        return self.task.evaluator(self.task.splits, embed or self.embed, seed=0)

    def filled(
        self, base: TransformerEncoder, made: Mapping[KeyT, TransformerEncoder]
    ) -> dict[KeyT, Engine]:
        """Engines with the same store for encoders made of a transformer; what they lack of the task is embedded in one pass."""
        from stsbench.encoders.transformer.encoder import embed_in_one_pass

        shelves = ((key, one, open_store(self.store, one)) for key, one in made.items())
        engines = {
            key: Engine(one, shelf, on_progress=self.progress) for key, one, shelf in shelves
        }
        if made:
            embed_in_one_pass(
                base, list(engines.values()), self.task.texts(), progress=self.progress
            )
        return engines


class EncoderFindings(NamedTuple):
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
    def tables(self, bed: AnalysisContext) -> Tables:
        """Find the numbers."""

    @abstractmethod
    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw them; nothing but the tables is needed, and no sentence stands in a picture."""


class EncoderAnalysis(Analysis):
    """An analysis that looks at one encoder after the other."""

    def tables(self, bed: AnalysisContext) -> Tables:
        """Measure each encoder, then compare what was kept of them."""
        found: dict[str, list[PlainRow]] = {}
        kept: dict[str, Any] = {}
        for subject in bed.subjects():
            try:
                measured = self.measure(subject)
            except EncoderError as error:
                bed.listener.on_failure(subject.name, error)
                continue
            for name, rows in measured.tables.items():
                found.setdefault(name, []).extend({"encoder": subject.name, **row} for row in rows)
            kept[subject.name] = measured.kept
        if not kept:
            raise DataError("none of the encoders can be measured")
        return {**found, **self.compare_encoders(kept)}

    @abstractmethod
    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder."""

    def compare_encoders(self, kept: Mapping[str, Any]) -> Tables:
        """Compare encoders by what was kept of each, by their names."""
        return {}


@dataclass(frozen=True, kw_only=True)
class AnalysisResult:
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
        "alignment": "stsbench.analysis.space:AlignmentAndUniformity",
        "similarity": "stsbench.analysis.space:GoldAgainstCosine",
        "spectrum": "stsbench.analysis.space:Spectrum",
        "layers": "stsbench.analysis.inside:Layers",
        "errors": "stsbench.analysis.mistakes:Mistakes",
        "neighbours": "stsbench.analysis.space:Neighbours",
        "robustness": "stsbench.analysis.mistakes:Robustness",
        "tokens": "stsbench.analysis.inside:TokenFrequency",
        "shift": "stsbench.analysis.training:DomainShift",
        "sweep": "stsbench.analysis.training:SweepCells",
        "map": "stsbench.analysis.space:SentenceMap",
    },
    group="analyses",
    accepts=lambda made: isinstance(made, type) and issubclass(made, Analysis),
    expected="a class made of stsbench.analysis.context:Analysis",
)


@dataclass(frozen=True, kw_only=True)
class AnalysisContext:
    """Encoders and one task as the user names them; read and made when an analysis asks for them.

    The listener hears of each encoder that cannot be measured; the others still are, unless it raises that.
    """

    plan: RunPlan
    listener: RunCallbacks = field(default_factory=lambda: RunCallbacks().with_raised_failures())

    @cached_property
    def planned(self) -> PlannedTask:
        """The task; raises StsbenchError where several are named."""
        if len(self.plan.planned_tasks) > 1:
            count = len(self.plan.planned_tasks)
            raise StsbenchError(
                f"an analysis is of one task; '{self.plan.tasks}' is {count}; name one of them"
            )
        return self.plan.planned_tasks[0]

    @cached_property
    def read(self) -> PlannedTask:
        """The task with its data; raises DataError where no source has them."""
        self.planned.load()
        return self.planned

    def subjects(self) -> Iterator[EncoderOnTask]:
        """Each encoder on the task, those of all seeds of a recipe one after the other."""
        names, catalogue, shared = self.plan.encoders, self.plan.catalogue, SharedState()
        specs = list(dict.fromkeys(one for name in names for one in expand_recipe(name, catalogue)))
        for spec in specs:
            check_loadable(spec, catalogue)
        for spec in specs:
            known = load_named(spec, catalogue=catalogue)
            embedder = TaskEmbedder(
                known,
                [self.read],
                self.plan,
                self.listener.with_raised_failures(),
                shared_state=shared,
            )
            yield EncoderOnTask(
                name=known.name if spec in names else spec,
                known=known,
                task=self.read,
                embed=_prepared(embedder, self.read),
                store=self.plan.store,
                progress=self.listener.on_embedding,
            )

    def results(self) -> Sequence[Result]:
        """The folder's results of the task, its split and its protocol."""
        found = read_folder(self.plan.results_folder)
        wanted = self.planned.name, self.planned.split, dict(self.planned.protocol)
        results = (
            result
            for result in found.results
            if (result.task, result.split, result.protocol) == wanted
        )
        believed = believe(results, self.plan.catalogue)
        for problem in (*found.problems, *believed.problems):
            self.listener.on_notice(problem.message)
        if believed.unverified:
            self.listener.on_notice(believed.notice)
        return believed.results


def make_analysis(name: str, parameters: Mapping[str, Any]) -> Analysis:
    """Return the analysis of this name, with some of its parameters replaced; raises UnknownName or CardError."""
    made: Analysis = call_with_params(ANALYSES.load(name), parameters, where=f"analysis '{name}'")
    return made


def analyse(
    name: str,
    analysis: Analysis,
    plan: RunPlan,
    *,
    parameters: Mapping[str, Any],
    listener: RunCallbacks,
) -> AnalysisResult:
    """Carry out an analysis of this name, made with parameters of which these were replaced, for a plan's encoders.

    The plan is of one task; its ``out`` is for what reads a results folder. The listener hears of each encoder that cannot be
    measured.

    Raises:
        StsbenchError: several tasks are named, or what the analysis needs cannot be had.
    """
    bed = AnalysisContext(plan=plan, listener=listener)
    return AnalysisResult(
        analysis=name,
        task=bed.planned.name,
        split=bed.planned.split,
        protocol=bed.planned.requested_protocol,
        encoders=plan.encoders,
        parameters=parameters,
        tables=analysis.tables(bed),
    )


def _prepared(embedder: TaskEmbedder, task: PlannedTask) -> Embed:
    """Embeds for a task; the first time, all its sentences together, as a run does."""

    @cache
    def engine() -> Embed:
        embedder.prepare([task], [task])
        return embedder.embed_function(task)

    return lambda sentences: engine()(sentences)


def value_text(value: object) -> str:
    """A value as a table shows it: numbers with four digits."""
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def findings_json(found: AnalysisResult) -> str:
    """As one JSON object; a number that is none is null."""
    return json.dumps(_plain(found), indent=1, ensure_ascii=False) + "\n"


WRITERS: Mapping[str, Callable[[AnalysisResult], str]] = {
    "json": findings_json,
    "csv": lambda found: csv_text(
        [{"table": name, **row} for name, rows in _plain(found)["tables"].items() for row in rows],
        ["table"],
    ),
}
"""The formats that hold numbers; of CSV the first column names the table, and a column that a table lacks is empty."""


def _plain(found: AnalysisResult) -> dict[str, Any]:
    # msgspec writes null for NaN.
    plain: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return plain
