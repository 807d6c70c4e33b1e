"""Boards of MTEB's benchmarks: a column for each task, with public, imported and own results."""

from __future__ import annotations

import json
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from stsbench.boards.mteb.noise import describe_noise, estimate_errors
from stsbench.boards.mteb.people import (
    PEOPLE,
    describe_people_intervals,
    find_people_intervals,
    read_people_results,
)
from stsbench.boards.mteb.scores import (
    SCORE_DIGITS,
    TABLE_FILE,
    MtebResult,
    ResultsByTask,
    join_revisions,
    parse_version,
    read_public_results,
    scores_by_mteb_subset,
)
from stsbench.boards.published.encoder_facts import format_parameters
from stsbench.boards.tables.column_scores import is_scored_as_mteb
from stsbench.boards.tables.columns import Numbers, make_averaged_numbers
from stsbench.boards.tables.rows import average_sort_key
from stsbench.boards.tables.table import (
    AVERAGE,
    EXACT,
    AverageTerms,
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
from stsbench.data.mteb.facts import (
    BenchmarkTask,
    ModelFacts,
    SplitAndSubset,
    list_matched_tasks,
    list_same_text_revisions,
    read_model_facts,
    read_mteb_facts,
    read_suspects,
)
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


def score_task(result: MtebResult, benchmark_task: BenchmarkTask) -> TaskScore | None:
    """Return a model's mean over the subsets and splits that a benchmark takes, in points.

    Args:
        result: The scores of a model on the task.
        benchmark_task: The subsets and splits of the benchmark.

    Returns:
        The mean, with a problem if the score cannot be right or if its data are not known to be
        the benchmark's. None if the model has no score of one of the parts.
    """
    if not {*benchmark_task.parts} <= result.scores.keys():
        return None
    points = 100 * statistics.fmean(result.scores[part] for part in benchmark_task.parts)
    problem = ""
    suspicion = read_suspects().get((result.model, result.task))
    if suspicion is not None:
        problem = f"{suspicion}: in no average"
    elif result.data_revision not in list_same_text_revisions(result.task):
        present = read_mteb_facts().tasks[result.task].revision
        problem = (
            f"data revision {result.data_revision[:SHORT_REVISION]}, not known to hold the text "
            f"of {present[:SHORT_REVISION]}: in no average"
        )
    return TaskScore(points, problem)


def _make_score_cells(
    scores: Mapping[str, TaskScore], average_terms: AverageTerms
) -> dict[str, TableCell]:
    """Return a row's cells of scores, by column key.

    The row has an average unless a term of it has no score or one with a problem.

    Args:
        scores: The row's scores by column key.
        average_terms: The columns that the average is over.
    """
    cells = {
        column: TableCell(
            published=TableNumber(score.points, decimals=SCORE_DIGITS - 2),
            misprint=score.problem,
        )
        for column, score in scores.items()
    }
    valid_points = {column: score.points for column, score in scores.items() if not score.problem}
    numbers = make_averaged_numbers(average_terms, valid_points)
    for key in (AVERAGE, EXACT):
        if key in numbers:
            cells[key] = TableCell(published=numbers[key])
    return cells


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
        """The columns: the tasks, their mean rounded, their mean exact, and two facts of models.

        The facts are a model's size, and the share of the tasks that it was not trained on.
        """
        task_columns = [TableColumn(key=task, head=task) for task in self.tasks]
        average = TableColumn(key=AVERAGE, head="Avg.", kind="average")
        exact = TableColumn(key=EXACT, head="Avg. (exact)", kind="exact", decimals=6)
        size = TableColumn(key=SIZE, head="Size", kind="fact", better="", in_points=False)
        zero_shot = TableColumn(
            key=ZERO_SHOT, head="Zero-shot", kind="fact", in_points=False, decimals=0
        )
        return [*task_columns, average, exact, size, zero_shot]

    @property
    def average_terms(self) -> AverageTerms:
        """The columns that the mean of a row is over: those of all tasks."""
        return [[task] for task in self.tasks]

    def build(
        self,
        name: str,
        title: str,
        results: Sequence[Result],
        imported: Sequence[MtebResult] = (),
        *,
        has_public: bool = True,
    ) -> Table:
        """Build the board, with a group for own, imported and public results and for people.

        Groups without rows are omitted.

        Args:
            name: The key of the suite.
            title: The title of the board.
            results: Own results; those of other data or another way to score are left out.
            imported: The results of a user's files of MTEB's.
            has_public: Whether the public results and those of people are on it.
        """
        groups = [
            Group(section=MEASURED_SECTION, rows=self._measured_rows(results)),
            Group(section=IMPORTED_SECTION, rows=self._imported_rows(imported)),
        ]
        mteb_results = list(imported)
        if has_public:
            public_results = [result for result in read_public_results() if result.model != PEOPLE]
            commit = read_public_source()["commit"][:SHORT_REVISION]
            origin = f"public results at commit {commit}"
            public_rows = self._model_rows(join_revisions(public_results), origin)
            groups.append(Group(section=PUBLIC_SECTION, rows=public_rows))
            groups.append(Group(section=PEOPLE_SECTION, rows=self._people_rows(origin)))
            mteb_results += public_results
        return Table(
            name=name,
            title=title,
            columns=self.columns,
            groups=[group for group in groups if group.rows],
            notes=list(self._notes(groups, mteb_results)),
            average_terms=self.average_terms,
        )

    def _notes(self, groups: Sequence[Group], results: Sequence[MtebResult]) -> Iterator[str]:
        """Yield the notes below the board.

        They are on means over subsets, joined revisions, training data, noise and people's scores.

        Args:
            groups: The groups of rows.
            results: The imported and public results of all revisions.
        """
        tasks_of_several_parts = [
            name for name, benchmark_task in self.tasks.items() if len(benchmark_task.parts) > 1
        ]
        if tasks_of_several_parts:
            yield (
                "scores of several subsets or splits are their mean, as in MTEB: "
                + ", ".join(tasks_of_several_parts)
            )
        if joined := describe_joined(results, self.tasks):
            yield joined
        if any(ZERO_SHOT in row.cells for group in groups for row in group.rows):
            yield (
                "§ and zero-shot (the share of these tasks that a model was not trained on): "
                "by the training sets in MTEB's descriptions of models"
            )
        rows_by_section = {group.section: group.rows for group in groups}
        errors = estimate_errors(self.tasks, self.catalogue)
        if noise := describe_noise(rows_by_section.get(PUBLIC_SECTION, ()), errors):
            yield noise
        intervals = find_people_intervals(read_people_results(), self.tasks, self.catalogue)
        if PEOPLE_SECTION in rows_by_section and intervals:
            yield f"{PEOPLE_LABEL}: {describe_people_intervals(intervals)}"

    def _imported_rows(self, imported: Sequence[MtebResult]) -> list[Row]:
        """Return the rows of the models of a user's files, best mean first.

        The origin of a row is the versions of MTEB that made its scores.
        """
        rows = []
        for model, results in join_revisions(imported).items():
            rows += self._model_rows({model: results}, origin=describe_versions(results.values()))
        return sorted(rows, key=average_sort_key)

    def _model_rows(self, results_by_model: Mapping[str, ResultsByTask], origin: str) -> list[Row]:
        """Return a row for each model that has a score of one of the tasks, best mean first.

        A model that was trained on one of the tasks has the symbol of overlap.

        Args:
            results_by_model: The results by model and task.
            origin: Where the scores are from, for the legend.
        """
        rows = []
        for model, results in results_by_model.items():
            cells = self._score_cells(results)
            if cells:
                facts = self._fact_cells(read_model_facts().get(model))
                rows.append(_make_model_row(model, {**cells, **facts}, origin, self.tasks))
        return sorted(rows, key=average_sort_key)

    def _people_rows(self, origin: str) -> list[Row]:
        """Return one row, that of people's own scores; no row if they scored none of the tasks.

        Its scores have 95% intervals.

        Args:
            origin: Where the scores are from, for the legend.
        """
        results = read_people_results()
        intervals = find_people_intervals(results, self.tasks, self.catalogue)
        if not intervals:
            return []
        cells = self._score_cells(results)
        for column, interval in intervals.items():
            score = cells[column].published if column in cells else None
            if score is not None:
                interval_in_points = (100 * interval.low, 100 * interval.high)
                score_with_interval = score._replace(interval=interval_in_points)
                cells[column] = replace(cells[column], published=score_with_interval)
        return [Row(label=PEOPLE_LABEL, cells=cells, imported=origin)]

    def _score_cells(self, results: ResultsByTask) -> dict[str, TableCell]:
        """Return the cells of a model's scores, and of their mean if all tasks have a valid one."""
        scores = {}
        for task, benchmark_task in self.tasks.items():
            score = score_task(results[task], benchmark_task) if task in results else None
            if score is not None:
                scores[task] = score
        return _make_score_cells(scores, self.average_terms)

    def _fact_cells(self, facts: ModelFacts | None) -> dict[str, TableCell]:
        """Return the cells of a model's size and zero-shot share, each only if it is known."""
        cells = {}
        if facts and facts.parameters:
            size = TableNumber(facts.parameters, text=format_parameters(facts.parameters))
            cells[SIZE] = TableCell(published=size)
        if facts and facts.trained_on is not None:
            n_unseen = len(self.tasks) - len(list_trained_tasks(facts, self.tasks))
            # MTEB rounds the percentage down.
            text = f"{100 * n_unseen // len(self.tasks)}%"
            zero_shot_share = TableNumber(100 * n_unseen / len(self.tasks), text=text)
            cells[ZERO_SHOT] = TableCell(published=zero_shot_share)
        return cells

    def _measured_rows(self, results: Sequence[Result]) -> list[Row]:
        """Return a row for each encoder with own results on the data of a task, best mean first."""
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
        """Return the numbers of an encoder's row, in points: its scores of tasks, and their mean.

        The score of a task is the mean over its subsets and splits, each the mean over seeds. A
        task is missing if the encoder lacks one of its parts; the mean if it lacks a task.
        """
        scores_by_part: dict[tuple[str, SplitAndSubset], list[float]] = {}
        matched_tasks = list_matched_tasks(self.catalogue)
        for result in group.results:
            matched_task = matched_tasks.get(result.task)
            if matched_task is None or result.split not in matched_task.mteb_split_names:
                continue
            mteb_split = matched_task.mteb_split_names[result.split]
            for mteb_subset, score in scores_by_mteb_subset(matched_task, result).items():
                part = SplitAndSubset(mteb_split, mteb_subset)
                seed_scores = scores_by_part.setdefault((matched_task.mteb_task, part), [])
                seed_scores.append(score.spearman)
        points_by_task = {}
        for task, benchmark_task in self.tasks.items():
            part_keys = [(task, part) for part in benchmark_task.parts]
            if all(key in scores_by_part for key in part_keys):
                part_means = [mean_and_deviation(scores_by_part[key]).mean for key in part_keys]
                points_by_task[task] = 100 * statistics.fmean(part_means)
        return make_averaged_numbers(self.average_terms, points_by_task)


def _make_model_row(
    model: str, cells: Mapping[str, TableCell], origin: str, tasks: Iterable[str]
) -> Row:
    """Return a model's row, with the symbol of overlap if it was trained on one of the tasks.

    Args:
        model: The name of the model.
        cells: Its numbers by column.
        origin: Where its scores are from, for the legend.
        tasks: MTEB's names of the tasks.
    """
    facts = read_model_facts().get(model)
    return Row(
        label=model,
        cells=cells,
        imported=origin,
        overlap="text" if list_trained_tasks(facts, tasks) else "",
        traits=make_traits(model, facts),
    )


def make_traits(model: str, facts: ModelFacts | None) -> EncoderTraits:
    """Return a model's size, year, languages and licence by MTEB's description of it.

    Without a description they have only the model's address on the Hub.
    """
    address = hub_address(model)
    if facts is None:
        return EncoderTraits(model=address)
    return EncoderTraits(
        parameters=facts.parameters,
        year=facts.year,
        model=address,
        languages=tuple(facts.languages),
        license=facts.license,
        is_open=facts.is_open,
    )


def list_trained_tasks(facts: ModelFacts | None, tasks: Iterable[str]) -> set[str]:
    """Return those of some tasks of MTEB's that a model was trained on; empty if it is unknown."""
    if facts is None or facts.trained_on is None:
        return set()
    return {*tasks} & {*facts.trained_on}


def add_imported_rows(table: Table, imported: Sequence[MtebResult], catalogue: Catalogue) -> Table:
    """Return a board of our tasks with a group of imported rows below its own.

    The board is returned as it is if no imported score fits one of its columns. A column of a task
    that has all of MTEB's subsets gets no imported scores: it is scored over all their pairs at
    once, where MTEB takes the mean over subsets.

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
    matched_tasks = list_matched_tasks(catalogue)
    names = {
        matched_tasks[column.spec.task].mteb_task
        for column in table.columns
        if column.spec is not None and column.spec.task in matched_tasks
    }
    fitting_results = [result for result in imported if result.task in names]
    rows = []
    for model, results in join_revisions(fitting_results).items():
        scores = {}
        for column in table.columns:
            matched_task = matched_tasks.get(column.spec.task) if column.spec else None
            if column.spec is None or matched_task is None or not matched_task.mteb_subset:
                continue
            our_split = column.spec.split
            mteb_split = matched_task.mteb_split_names.get(our_split, our_split)
            part = BenchmarkTask(subsets=[matched_task.mteb_subset], splits=[mteb_split])
            result = results.get(matched_task.mteb_task)
            score = score_task(result, part) if result is not None else None
            if score is not None:
                scores[column.key] = score
        if not scores:
            continue
        cells = _make_score_cells(scores, table.average_terms)
        rows.append(_make_model_row(model, cells, describe_versions(results.values()), names))
    if not rows:
        return table
    group = Group(section=IMPORTED_SECTION, rows=sorted(rows, key=average_sort_key))
    notes = [*table.notes, *filter(None, [describe_joined(fitting_results, names)])]
    return replace(table, groups=[*table.groups, group], notes=notes)


def describe_versions(results: Iterable[MtebResult]) -> str:
    """Return the versions of MTEB that made results, such as ``mteb 2.1.0`` or a range of them."""
    versions = {result.mteb_version for result in results}
    numbers = sorted(filter(None, map(parse_version, versions)))
    texts = [" to ".join(dict.fromkeys(map(str, (numbers[0], numbers[-1]))))] if numbers else []
    if len(numbers) < len(versions):
        texts.append("of unknown version")
    return f"mteb {', '.join(texts)}"


def describe_joined(results: Iterable[MtebResult], tasks: Collection[str]) -> str:
    """Return a note on the models whose results on some tasks are of several revisions.

    Args:
        results: The results of all revisions.
        tasks: MTEB's names of the tasks that are shown.

    Returns:
        The note; empty if there is no such model.
    """
    revisions_by_model: dict[str, set[str]] = {}
    for result in results:
        if result.task in tasks:
            revisions_by_model.setdefault(result.model, set()).add(result.revision)
    n_joined = sum(len(revisions) > 1 for revisions in revisions_by_model.values())
    if not n_joined:
        return ""
    models = "model has" if n_joined == 1 else "models have"
    return (
        f"{n_joined} {models} results of several revisions, joined as MTEB joins them: the "
        "revision of its description of the model first, then the newest version of MTEB"
    )
