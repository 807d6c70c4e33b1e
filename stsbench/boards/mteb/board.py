"""Boards of MTEB's benchmarks: a column for each task, with public, imported and own results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from stsbench.boards.mteb.facts import (
    BenchmarkTask,
    ModelFacts,
    list_mteb_subsets,
    list_same_text_revisions,
    read_model_facts,
    read_mteb_facts,
    read_suspects,
)
from stsbench.boards.mteb.people import (
    PEOPLE,
    describe_people_intervals,
    find_people_intervals,
    read_people_results,
)
from stsbench.boards.mteb.scores import (
    TABLE_FILE,
    MtebResult,
    ResultsByTask,
    SplitAndSubset,
    join_revisions,
    read_public_results,
)
from stsbench.boards.published.encoder_facts import format_parameters
from stsbench.boards.tables.column_scores import is_scored_as_mteb
from stsbench.boards.tables.columns import Numbers, make_averaged_numbers
from stsbench.boards.tables.rows import average_sort_key
from stsbench.boards.tables.table import (
    AVERAGE,
    EXACT,
    EncoderTraits,
    Group,
    Row,
    Table,
    TableCell,
    TableColumn,
    TableNumber,
)
from stsbench.boards.tables.traits import hub_address, read_traits
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import ProtocolError
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.groups import EncoderResults, group_by_encoder
from stsbench.results.record import Result

MEASURED_SECTION = "Measured here"
PUBLIC_SECTION = "Public results of MTEB"
PEOPLE_SECTION = "People, not a model: the mean of their own scores of the same pairs"
PEOPLE_LABEL = "people (HUME)"
IMPORTED_SECTION = "Imported from MTEB's result files, not measured here (protocol mteb)"
SIZE, ZERO_SHOT = "size", "zero_shot"
"""Keys of the columns of a model's size and of its zero-shot share."""
SHORT_REVISION = 8


@cache
def read_public_source() -> Mapping[str, str]:
    """Read the repository, commit and licence of the public results."""
    source: dict[str, str] = json.loads(TABLE_FILE.with_name("source.json").read_bytes())
    return source


class TaskScore(NamedTuple):
    """The score of a model on one task of a benchmark, and why it may not be averaged."""

    points: float
    problem: str = ""
    """Why its data are not known to be those of other rows; empty if they are."""


def score_task(result: MtebResult, parts: BenchmarkTask) -> TaskScore | None:
    """Return the mean over the subsets and splits that a benchmark takes, in points.

    Args:
        result: The scores of a model on the task.
        parts: The subsets and splits of the benchmark.

    Returns:
        None if a subset of a split is missing.
    """
    scores = [
        result.scores.get(SplitAndSubset(split, subset))
        for split in parts.splits
        for subset in parts.subsets
    ]
    known_scores = [score for score in scores if score is not None]
    if len(known_scores) < len(scores):
        return None
    problem = read_suspects().get((result.model, result.task), "")
    if problem:
        problem = f"{problem}: in no average"
    elif result.data_revision not in list_same_text_revisions(result.task):
        present = read_mteb_facts().tasks[result.task].revision
        problem = (
            f"data revision {result.data_revision[:SHORT_REVISION]}, not known to hold the text "
            f"of {present[:SHORT_REVISION]}: in no average"
        )
    return TaskScore(100 * statistics.fmean(known_scores), problem)


@dataclass(frozen=True, kw_only=True)
class MtebBoard:
    """A board of one benchmark's STS tasks.

    Attributes:
        benchmark: MTEB's name of the benchmark.
        catalogue: The cards, which say which tasks of ours have MTEB's data.
    """

    benchmark: str
    catalogue: Catalogue

    @property
    def tasks(self) -> Mapping[str, BenchmarkTask]:
        """The subsets and splits of each task, by MTEB's name of the task."""
        return read_mteb_facts().benchmarks[self.benchmark]

    @property
    def columns(self) -> list[TableColumn]:
        """The columns: tasks, their mean, and the size and zero-shot share of models."""
        columns = [TableColumn(key=task, head=task) for task in self.tasks]
        average = TableColumn(key=AVERAGE, head="Avg.", kind="average")
        exact = TableColumn(key=EXACT, head="Avg. (exact)", kind="exact", decimals=6)
        size = TableColumn(key=SIZE, head="Size", kind="fact", better="", in_points=False)
        zero_shot = TableColumn(
            key=ZERO_SHOT, head="Zero-shot", kind="fact", better="", in_points=False, decimals=0
        )
        return [*columns, average, exact, size, zero_shot]

    def build(
        self,
        name: str,
        title: str,
        results: Sequence[Result],
        imported: Sequence[MtebResult] = (),
    ) -> Table:
        """Build the board, with a group for own, imported and public results each.

        Args:
            name: The key of the suite.
            title: The title of the board.
            results: Own results; those of other data or another way to score are left out.
            imported: The results of a user's files of MTEB's.
        """
        public_results = join_revisions(
            result for result in read_public_results() if result.model != PEOPLE
        )
        commit = read_public_source()["commit"][:SHORT_REVISION]
        people_rows = self._people_rows(f"public results at commit {commit}")
        groups = [
            Group(section=MEASURED_SECTION, rows=self._measured_rows(results)),
            Group(section=IMPORTED_SECTION, rows=self._imported_rows(imported)),
            Group(
                section=PUBLIC_SECTION,
                rows=self._mteb_rows(public_results, f"public results at commit {commit}"),
            ),
            Group(section=PEOPLE_SECTION, rows=people_rows),
        ]
        return Table(
            name=name,
            title=title,
            columns=self.columns,
            groups=[group for group in groups if group.rows],
            notes=list(self._notes(public_results)),
            average_terms=[[task] for task in self.tasks],
        )

    def _notes(self, results_by_model: Mapping[str, ResultsByTask]) -> Iterator[str]:
        """Yield notes on the average, on joined revisions and on what is known of training."""
        nested = [
            task for task, parts in self.tasks.items() if len(parts.splits) * len(parts.subsets) > 1
        ]
        if nested:
            yield (
                "scores of several subsets or splits are their mean, as in MTEB: "
                + ", ".join(nested)
            )
        n_joined = sum(
            len({results[task].revision for task in self.tasks if task in results}) > 1
            for results in results_by_model.values()
        )
        yield (
            f"{n_joined} models have results of several revisions, joined as MTEB joins them: "
            "the revision of its description of the model first, then the newest version of MTEB"
        )
        yield (
            "§ and zero-shot (the share of these tasks that a model was not trained on): "
            "by the training sets in MTEB's descriptions of models"
        )
        yield (
            "noise: most neighbours are nearer to each other than a test of unlike models on these "
            "items could see (docs/published.md)"
        )
        intervals = find_people_intervals(read_people_results(), self.tasks, self.catalogue)
        if intervals:
            yield f"{PEOPLE_LABEL}: {describe_people_intervals(intervals)}"

    def _imported_rows(self, imported: Sequence[MtebResult]) -> list[Row]:
        """Return a row for each model of a user's files, with the versions of MTEB."""
        rows = []
        for model, results in join_revisions(imported).items():
            rows += self._mteb_rows({model: results}, describe_versions(results))
        return sorted(rows, key=average_sort_key)

    def _mteb_rows(self, results_by_model: Mapping[str, ResultsByTask], origin: str) -> list[Row]:
        """Return a row for each model that has a score of one of the tasks, best mean first.

        Args:
            results_by_model: The results by model and task.
            origin: Where the scores are from, for the legend.
        """
        rows = []
        for model, results in results_by_model.items():
            cells = self._score_cells(results)
            if not cells:
                continue
            facts = read_model_facts().get(model)
            is_trained = bool(facts and facts.trained_on and {*facts.trained_on} & {*self.tasks})
            row = Row(
                label=model,
                cells={**cells, **self._fact_cells(facts)},
                imported=origin,
                overlap="text" if is_trained else "",
                traits=make_traits(model, facts),
            )
            rows.append(row)
        return sorted(rows, key=average_sort_key)

    def _people_rows(self, origin: str) -> list[Row]:
        """Return the row of the people who scored the tasks anew, if there are any.

        Args:
            origin: Where the scores are from, for the legend.
        """
        results = read_people_results()
        intervals = find_people_intervals(results, self.tasks, self.catalogue)
        if not intervals:
            return []
        cells = self._score_cells(results)
        for key, interval in intervals.items():
            number = cells[key].published if key in cells else None
            if number is not None:
                points = (100 * interval.low, 100 * interval.high)
                cells[key] = replace(cells[key], published=number._replace(interval=points))
        return [Row(label=PEOPLE_LABEL, cells=cells, imported=origin)]

    def _score_cells(self, results: ResultsByTask) -> dict[str, TableCell]:
        """Return the cells of a model's scores, with the mean if all tasks have known data."""
        cells: dict[str, TableCell] = {}
        values = {}
        for task, parts in self.tasks.items():
            score = score_task(results[task], parts) if task in results else None
            if score is None:
                continue
            cells[task] = TableCell(published=TableNumber(score.points), misprint=score.problem)
            if not score.problem:
                values[task] = score.points
        if len(values) == len(self.tasks):
            numbers = make_averaged_numbers([[task] for task in self.tasks], values)
            for key in (AVERAGE, EXACT):
                cells[key] = TableCell(published=numbers[key])
        return cells

    def _fact_cells(self, facts: ModelFacts | None) -> dict[str, TableCell]:
        """Return the cells of a model's size and zero-shot share, if they are known."""
        cells = {}
        if facts and facts.parameters:
            size = TableNumber(facts.parameters, text=format_parameters(facts.parameters))
            cells[SIZE] = TableCell(published=size)
        if facts and facts.trained_on is not None:
            n_seen = len({*facts.trained_on} & {*self.tasks})
            share = 100 * (1 - n_seen / len(self.tasks))
            cells[ZERO_SHOT] = TableCell(published=TableNumber(share, text=f"{share:.0f}%"))
        return cells

    def _measured_rows(self, results: Sequence[Result]) -> list[Row]:
        """Return a row for each encoder with own results on the data of one of the tasks."""
        rows = []
        for group in group_by_encoder(results, self.catalogue):
            numbers = self._measured_numbers(group)
            if not numbers:
                continue
            traits = read_traits(self.catalogue, group.card)
            cells = {key: TableCell(measured=number) for key, number in numbers.items()}
            if traits.parameters:
                size = TableNumber(traits.parameters, text=format_parameters(traits.parameters))
                cells[SIZE] = TableCell(measured=size)
            row = Row(
                label=group.name,
                cells=cells,
                encoder=group.encoder,
                overlap=group.card.overlap if group.card else "",
                traits=traits,
                results=group.results,
            )
            rows.append(row)
        return sorted(rows, key=average_sort_key)

    def _measured_numbers(self, group: EncoderResults) -> Numbers:
        """Return an encoder's means over subsets, splits and seeds, and the mean over tasks."""
        scores_by_part: dict[tuple[str, SplitAndSubset], list[float]] = {}
        subsets = list_mteb_subsets(self.catalogue)
        for result in group.results:
            subset = subsets.get(result.task)
            if subset is None or result.split not in subset.splits:
                continue
            for name, score in subset.find_scores(result).items():
                part = SplitAndSubset(subset.splits[result.split], name)
                scores_by_part.setdefault((subset.name, part), []).append(score.spearman)
        values = {}
        for task, parts in self.tasks.items():
            part_scores = [
                scores_by_part.get((task, SplitAndSubset(split, subset)))
                for split in parts.splits
                for subset in parts.subsets
            ]
            means = [mean_and_deviation(scores).mean for scores in part_scores if scores]
            has_all_parts = len(means) == len(part_scores)
            if has_all_parts:
                values[task] = 100 * statistics.fmean(means)
        return make_averaged_numbers([[task] for task in self.tasks], values) if values else {}


def make_traits(model: str, facts: ModelFacts | None) -> EncoderTraits:
    """Return what a model is by MTEB's description of it."""
    if facts is None:
        return EncoderTraits(model=hub_address(model))
    return EncoderTraits(
        parameters=facts.parameters,
        year=facts.year,
        model=hub_address(model),
        languages=tuple(facts.languages),
        license=facts.license,
        is_open=facts.is_open,
    )


def add_imported_rows(table: Table, imported: Sequence[MtebResult], catalogue: Catalogue) -> Table:
    """Return a board of tasks of ours with a group of imported rows below its own, if any fits.

    Best and second best are marked within each group.

    Args:
        table: The board, whose columns are tasks of ours.
        imported: The results of a user's files of MTEB's.
        catalogue: The cards, which say which tasks of ours have MTEB's data.

    Raises:
        ProtocolError: The columns of the table are not scored as MTEB scores.
    """
    if not is_scored_as_mteb(table.columns):
        raise ProtocolError(
            f"'{table.name}' is not scored as MTEB scores: by Spearman over all pairs of a task"
        )
    subsets = list_mteb_subsets(catalogue)
    rows = []
    for model, results in join_revisions(imported).items():
        values: dict[str, float] = {}
        cells: dict[str, TableCell] = {}
        for column in table.columns:
            spec = column.spec
            subset = subsets.get(spec.task) if spec is not None else None
            # A column of a task with all of MTEB's subsets is scored over all pairs at once.
            is_known = subset is not None and subset.subset and subset.name in results
            if spec is None or subset is None or not is_known:
                continue
            split = subset.splits.get(spec.split, spec.split)
            parts = BenchmarkTask(subsets=[subset.subset], splits=[split])
            score = score_task(results[subset.name], parts)
            if score is None:
                continue
            cells[column.key] = TableCell(
                published=TableNumber(score.points), misprint=score.problem
            )
            if not score.problem:
                values[column.key] = score.points
        if not cells:
            continue
        for key, number in make_averaged_numbers(table.average_terms, values).items():
            if key in (AVERAGE, EXACT):
                cells[key] = TableCell(published=number)
        row = Row(
            label=model,
            cells=cells,
            imported=describe_versions(results),
            traits=make_traits(model, read_model_facts().get(model)),
        )
        rows.append(row)
    if not rows:
        return table
    group = Group(section=IMPORTED_SECTION, rows=sorted(rows, key=average_sort_key))
    return replace(table, groups=[*table.groups, group])


def describe_versions(results: ResultsByTask) -> str:
    """Return the versions of MTEB that made a model's results, for example ``mteb 2.1.0``."""
    versions = sorted({result.mteb_version for result in results.values()})
    return ", ".join(f"mteb {version}" for version in versions)
