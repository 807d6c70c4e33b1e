"""The interface of analyses, which make tables from encoders and a task, and then pictures."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np

from stsbench.bench.embedder import TaskEmbedder, open_store
from stsbench.bench.plan import RunPlan, Store
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.protocols import PlannedTask
from stsbench.bench.run import RunContext
from stsbench.boards.render.text import records_to_csv
from stsbench.core.errors import DataError, EncoderError, StsbenchError
from stsbench.core.parameters import call_with_params
from stsbench.core.registry import Registry
from stsbench.data.splits import PairSplit
from stsbench.encoders.base import ROWS_AT_ONCE, Embed, Embeddings, FloatArray
from stsbench.encoders.engine.embed import Engine, ProgressCallback
from stsbench.encoders.load import check_loadable, expand_recipe, load_named
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.pairs import PairScorer
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
THRESHOLD_HINT = "choose another threshold: `params=above=…`"
"""Advice if too few pairs have a gold score above the threshold."""


@dataclass(frozen=True, kw_only=True)
class EncoderOnTask:
    """One encoder on one task whose data are loaded; stored embeddings are used.

    Attributes:
        name: The encoder's name in the tables.
        named_encoder: The encoder under its name in results.
        task: The task.
        embed: Embeds sentences.
        store: The store of embeddings.
        progress: Called while an analysis embeds with further encoders.
    """

    name: str
    named_encoder: NamedEncoder
    task: PlannedTask
    embed: Embed
    store: Store = "default"
    progress: ProgressCallback = lambda done, total: None

    def pairs(self, *, all_splits: bool = False) -> PairSplit:
        """Return the task's pairs of sentences with their gold scores and subsets.

        Args:
            all_splits: Return the pairs of all splits of the task, one split after another; else
                only those of the split that the run scores.

        Raises:
            DataError: The task has no pairs with gold scores.
        """
        # The data of the task; self.task is the task as the run scores it, with one split.
        task_data = self.task.task
        split_names = list(task_data.card.splits) if all_splits else [self.task.split]
        splits = [task_data.load(split_name) for split_name in split_names]
        pair_splits = [split for split in splits if isinstance(split, PairSplit)]
        if len(pair_splits) < len(splits):
            raise DataError(
                f"task {self.task.name} has no sentence pairs with gold scores; "
                "choose one of suite sts"
            )
        return PairSplit(
            sentences1=[text for split in pair_splits for text in split.sentences1],
            sentences2=[text for split in pair_splits for text in split.sentences2],
            gold=np.concatenate([split.gold for split in pair_splits]),
            subset=[subset for split in pair_splits for subset in split.subset],
        )

    @cached_property
    def cosines(self) -> Float64Array:
        """The cosine of each scored pair, (n,)."""
        return self.cosines_of(*self.pairs().sides)

    def cosines_of(self, first: Sequence[str], second: Sequence[str]) -> Float64Array:
        """Return the cosine of the embeddings of each pair of sentences, (n,).

        It is 0 if one of the two embeddings is a zero vector. Only ``ROWS_AT_ONCE`` pairs are in
        memory at once.

        Args:
            first: The first sentence of each of n pairs.
            second: The second sentence of each pair.
        """
        # An empty array first: there may be no pairs, and concatenate needs an array.
        cosine_blocks = [np.empty(0)]
        for start in range(0, len(first), ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            first_embeddings = self.embed_in_memory(first[block])
            second_embeddings = self.embed_in_memory(second[block])
            cosine_blocks.append(paired_cosine(first_embeddings, second_embeddings).values)
        return np.concatenate(cosine_blocks)

    def positives(self, split: PairSplit, above: float, least: int = 1) -> list[int]:
        """Return the indices of the pairs whose gold score is above a threshold.

        Args:
            split: The pairs.
            above: The threshold; a pair with exactly this gold score is not above it.
            least: How many such pairs are needed.

        Raises:
            DataError: There are fewer pairs.
        """
        pair_indices: list[int] = np.flatnonzero(split.gold > above).tolist()
        if len(pair_indices) < least:
            count = "no pairs" if least == 1 else f"fewer than {least} pairs"
            raise DataError(
                f"{count} of {self.task.name} have a gold score above {above:g}",
                hint=THRESHOLD_HINT,
            )
        return pair_indices

    def embed_in_memory(self, sentences: Sequence[str]) -> FloatArray:
        """Return the embeddings of sentences as an array in memory, (n, d)."""
        return np.asarray(self.embed(sentences), dtype=np.float32)

    def score(self, embed: Embed | None = None) -> Scores:
        """Score the task by its protocol, with seed 0 where the protocol draws.

        Args:
            embed: A function from sentences to embeddings, (n, d), in place of the encoder's own;
                None: the encoder embeds.

        Returns:
            The score with its 95% interval, and further numbers; none is times 100.
        """
        # An evaluator is a function of the splits that the score needs, by name, and an embedding
        # function.
        return self.task.evaluator(self.task.splits, embed or self.embed, seed=0)

    def make_engines(
        self, base: TransformerEncoder, encoders: Mapping[KeyT, TransformerEncoder]
    ) -> dict[KeyT, Engine]:
        """Embed the task's sentences by several encoders that are made from one transformer.

        An engine is a function that embeds sentences by one encoder, and stores what it embedded.
        Sentences that are not stored yet are embedded for all encoders at once, in one forward pass
        of the transformer.

        Args:
            base: The transformer.
            encoders: The encoders made from it, for example of each layer, by any key.

        Returns:
            The key of each encoder -> its engine.
        """
        from stsbench.encoders.transformer.encoder import embed_in_one_pass

        engines = {
            # The store is in memory if self.store is None.
            key: Engine(encoder, open_store(self.store, encoder), on_progress=self.progress)
            for key, encoder in encoders.items()
        }
        if engines:
            embed_in_one_pass(
                base, list(engines.values()), self.task.texts(), progress=self.progress
            )
        return engines


class EncoderFindings(NamedTuple):
    """The numbers that an analysis measured for one encoder."""

    tables: Tables
    measurement: Any = None
    """Values that :meth:`EncoderAnalysis.compare_encoders` needs; None if it needs none."""


class Analysis(ABC):
    """One analysis; the user may replace its parameters, those of ``__init__``."""

    about: ClassVar[str]
    """A line on what it shows."""
    printed: ClassVar[Sequence[str]]
    """The tables that a terminal shows."""
    score_columns: ClassVar[Mapping[str, Sequence[str]]] = {}
    """By table, its columns of scores and of their bounds, which people see times 100."""
    reads_results: ClassVar[bool] = False
    """Whether it reads a results folder, and embeds nothing."""

    @abstractmethod
    def tables(self, context: AnalysisContext) -> Tables:
        """Compute the numbers."""

    @abstractmethod
    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw the tables; nothing else is needed, and no sentence is in a picture."""


class EncoderAnalysis(Analysis):
    """An analysis that looks at one encoder after the other."""

    def tables(self, context: AnalysisContext) -> Tables:
        """Measure each encoder, then compare all that could be measured.

        An encoder that cannot be measured is reported to ``context.callbacks``; the others are
        measured nevertheless.

        Args:
            context: Yields the encoders, each with the task of the analysis.

        Returns:
            Name of a table -> its rows. A row of one encoder has its name under ``encoder``.

        Raises:
            DataError: None of the encoders can be measured.
        """
        rows_by_table: dict[str, list[PlainRow]] = {}
        # By the encoder's name, values for comparisons between encoders.
        measurements: dict[str, Any] = {}
        for subject in context.subjects():
            try:
                findings = self.measure(subject)
            # The encoder is not of the kind that the analysis needs, or has no valid embeddings.
            except EncoderError as error:
                context.callbacks.on_failure(subject.name, error)
                continue
            for table, rows in findings.tables.items():
                rows_by_table.setdefault(table, []).extend(
                    {"encoder": subject.name, **row} for row in rows
                )
            measurements[subject.name] = findings.measurement
        if not measurements:
            raise DataError("none of the encoders can be measured")
        # Empty for an analysis that compares nothing.
        comparison_tables = self.compare_encoders(measurements)
        return {**rows_by_table, **comparison_tables}

    @abstractmethod
    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder."""

    def compare_encoders(self, measurements: Mapping[str, Any]) -> Tables:
        """Compare the encoders that were measured; an analysis without comparisons has no tables.

        Args:
            measurements: The name of each encoder -> the ``measurement`` that ``measure`` returned.

        Returns:
            Name of a table -> its rows.
        """
        return {}


@dataclass(frozen=True, kw_only=True)
class AnalysisResult:
    """The tables of an analysis, as plain data, with its settings."""

    analysis: str
    task: str
    split: str
    protocol: str
    encoders: Sequence[str]
    parameters: Mapping[str, Any]
    tables: Tables = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The title of its picture."""
        return f"{self.analysis}: {self.task}" + (f" ({self.split})" if self.split else "")


ANALYSES = Registry(
    "analysis",
    {
        "alignment": "stsbench.analysis.pairs:AlignmentAndUniformity",
        "similarity": "stsbench.analysis.pairs:GoldAgainstCosine",
        "spectrum": "stsbench.analysis.space:Spectrum",
        "layers": "stsbench.analysis.inside:Layers",
        "errors": "stsbench.analysis.mistakes:Mistakes",
        "neighbours": "stsbench.analysis.space:Neighbours",
        "robustness": "stsbench.analysis.robustness:Robustness",
        "tokens": "stsbench.analysis.inside:TokenFrequency",
        "shift": "stsbench.analysis.training:DomainShift",
        "sweep": "stsbench.analysis.training:SweepCells",
        "map": "stsbench.analysis.space:SentenceMap",
    },
    group="analyses",
    accepts=lambda value: isinstance(value, type) and issubclass(value, Analysis),
    expected="a class made of stsbench.analysis.context:Analysis",
)


def check_is_one_task(plan: RunPlan) -> None:
    """Raise StsbenchError if a plan has more than one task."""
    n_tasks = len(plan.planned_tasks)
    if n_tasks > 1:
        raise StsbenchError(
            f"an analysis is of one task; '{plan.tasks}' is {n_tasks}; name one of them"
        )


@dataclass(frozen=True, kw_only=True)
class AnalysisContext:
    """The encoders and the task of a plan; they are loaded when an analysis needs them.

    Attributes:
        plan: Names the encoders and one task.
        callbacks: ``on_failure`` is called for each encoder that cannot be measured. The others
            are measured nevertheless, unless it raises the error.
    """

    plan: RunPlan
    callbacks: RunCallbacks = field(default_factory=lambda: RunCallbacks().with_raised_failures())

    @cached_property
    def planned_task(self) -> PlannedTask:
        """The one task of the plan, with its split and protocol; its data may not be loaded yet.

        Raises:
            StsbenchError: The plan has several tasks.
        """
        check_is_one_task(self.plan)
        return self.plan.planned_tasks[0]

    @cached_property
    def loaded_task(self) -> PlannedTask:
        """The task with its data; DataError if no source has them."""
        self.planned_task.load()
        return self.planned_task

    def subjects(self) -> Iterator[EncoderOnTask]:
        """Yield each encoder of the plan, with the task and a function that embeds.

        A recipe that was trained with several seeds stands for one encoder a seed, which follow
        each other. All encoders are checked before the first one is loaded. One that scores pairs
        of sentences has no embeddings: it is reported to ``self.callbacks``.

        Raises:
            StsbenchError: There is no such encoder, or it cannot be loaded.
        """
        names = self.plan.encoders
        catalogue = self.plan.catalogue
        # Embeds as a run does, but raises an error at the first failure.
        context = RunContext(self.plan, self.callbacks.with_raised_failures())
        # A spec is an encoder as a user writes it; that of one seed of a recipe is recipe@3.
        specs_of_all_seeds = [spec for name in names for spec in expand_recipe(name, catalogue)]
        # Each once, in order.
        specs = list(dict.fromkeys(specs_of_all_seeds))
        for spec in specs:
            # Raises an error for an encoder that cannot be loaded.
            check_loadable(spec, catalogue)
        for spec in specs:
            named_encoder = load_named(spec, catalogue=catalogue)
            if isinstance(named_encoder.encoder, PairScorer):
                problem = EncoderError(f"'{spec}' scores pairs; an analysis needs embeddings")
                self.callbacks.on_failure(spec, problem)
                continue
            embedder = context.make_embedder(named_encoder, [self.loaded_task], context.callbacks)
            # A seed that the user did not write has its spec as its name, as recipe@3; any other
            # encoder has its name in results.
            yield EncoderOnTask(
                name=named_encoder.name if spec in names else spec,
                named_encoder=named_encoder,
                task=self.loaded_task,
                embed=_embed_task_first(embedder, self.loaded_task),
                store=self.plan.store,
                progress=self.callbacks.on_embedding,
            )

    def results(self) -> Sequence[Result]:
        """Return the results in the plan's folder that are of its task, split and protocol.

        The score of each result is recomputed from the values of its items, which are stored beside
        it. A result that they contradict is omitted. ``self.callbacks.on_notice`` is called for
        each problem, also of other files in the folder, and if there are no such values.
        """
        folder = read_folder(self.plan.results_folder)
        task = self.planned_task
        # A result holds its protocol as a dict of the name and all fields, as task.protocol does.
        cell_fields = (task.name, task.split, dict(task.protocol))
        results = (
            result
            for result in folder.results
            if (result.task, result.split, result.protocol) == cell_fields
        )
        checked = believe(results, self.plan.catalogue)
        for problem in (*folder.problems, *checked.problems):
            self.callbacks.on_notice(problem.message)
        # Results whose score could not be recomputed; they are returned too.
        if checked.unverified:
            self.callbacks.on_notice(checked.notice)
        return checked.results


def make_analysis(name: str, parameters: Mapping[str, Any]) -> Analysis:
    """Make the analysis of this name, with some of its parameters replaced.

    Args:
        name: The name of an analysis in the registry ``ANALYSES``, for example ``spectrum``.
        parameters: Name of a parameter of the analysis's ``__init__`` -> its value; the others have
            their defaults.

    Raises:
        UnknownName: No analysis or parameter has this name.
        CardError: A value is not valid for its parameter.
    """
    analysis_class = ANALYSES.load(name)
    analysis: Analysis = call_with_params(analysis_class, parameters, where=f"analysis '{name}'")
    return analysis


def analyse(
    name: str,
    analysis: Analysis,
    plan: RunPlan,
    *,
    parameters: Mapping[str, Any],
    callbacks: RunCallbacks,
) -> AnalysisResult:
    """Carry out an analysis for the encoders and the task of a plan.

    Args:
        name: The name of the analysis, which the result repeats.
        analysis: Computes the tables.
        plan: Names the encoders and one task. Some analyses read the plan's results folder.
        parameters: The parameters of the analysis that the user replaced, which the result repeats.
        callbacks: ``on_failure`` is called for each encoder that cannot be measured.

    Returns:
        The tables, with the names of the task, the split and the encoders, and the protocol as the
        user wrote it.

    Raises:
        StsbenchError: The plan has several tasks, or data that the analysis needs are missing.
    """
    context = AnalysisContext(plan=plan, callbacks=callbacks)
    return AnalysisResult(
        analysis=name,
        task=context.planned_task.name,
        split=context.planned_task.split,
        protocol=context.planned_task.requested_protocol,
        encoders=plan.encoders,
        parameters=parameters,
        tables=analysis.tables(context),
    )


def _embed_task_first(embedder: TaskEmbedder, task: PlannedTask) -> Embed:
    """Return a function from sentences to their embeddings, (n, d).

    Nothing is embedded before it is called. Its first call embeds all sentences of the task first,
    as a run does, and stores them; later calls read the store.

    Args:
        embedder: Embeds by one encoder, and stores the embeddings.
        task: The task, with its data.
    """

    # The cache makes all calls but the first one return at once.
    @cache
    def prepare_once() -> Embed:
        # The tasks whose sentences are embedded, and all tasks of the run.
        embedder.prepare([task], [task])
        return embedder.embed_function(task)

    def embed(sentences: Sequence[str]) -> Embeddings:
        embed_prepared = prepare_once()
        return embed_prepared(sentences)

    return embed


def row_texts(row: PlainRow, score_columns: Sequence[str] = ()) -> list[str]:
    """Return the values of a row as texts for a table: scores times 100, with two decimals.

    Args:
        row: Column name -> text, number or None.
        score_columns: The names of the columns with scores.
    """
    return [
        value_text(100 * value, decimals=2)
        if key in score_columns and value is not None
        else value_text(value)
        for key, value in row.items()
    ]


def value_text(value: object, decimals: int = 4) -> str:
    """Return a value as a table shows it.

    None and NaN are a dash; floats have the number of decimals; all others are as ``str`` has them.
    """
    # NaN alone differs from itself.
    is_nan = value != value  # noqa: PLR0124
    if value is None or is_nan:
        return "–"
    return f"{value:.{decimals}f}" if isinstance(value, float) else str(value)


def findings_json(result: AnalysisResult) -> str:
    """Return a result as one JSON object; NaN is null."""
    return json.dumps(_to_plain(result), indent=1, ensure_ascii=False) + "\n"


def _findings_csv(result: AnalysisResult) -> str:
    """Return all tables of an analysis as one CSV text.

    The first column, ``table``, has the name of the table. A column that a table lacks is empty in
    its rows, and so is NaN.
    """
    rows_by_table = _to_plain(result)["tables"]
    csv_rows = [{"table": table, **row} for table, rows in rows_by_table.items() for row in rows]
    return records_to_csv(csv_rows, ["table"])


WRITERS: Mapping[str, Callable[[AnalysisResult], str]] = {
    "json": findings_json,
    "csv": _findings_csv,
}
"""The formats of files that hold numbers, by the ending of the file's name."""


def _to_plain(result: AnalysisResult) -> dict[str, Any]:
    """Return a result as plain dicts and lists, with None for NaN."""
    # msgspec writes null for NaN.
    plain: dict[str, Any] = json.loads(msgspec.json.encode(result))
    return plain
