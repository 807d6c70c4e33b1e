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
from stsbench.boards.tables.column_scores import Seeds, is_scored_as_mteb
from stsbench.boards.tables.columns import Numbers, make_averaged_numbers
from stsbench.boards.tables.filters import add_fact_columns
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
from stsbench.boards.tables.traits import HUB_SITE, hub_address, read_traits
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
from stsbench.results.groups import EncoderResults, group_by_encoder
from stsbench.results.record import Result

MEASURED_SECTION = "Measured here"
PUBLIC_SECTION = "Public results of MTEB"
PEOPLE_SECTION = "People, not a model: the mean of their own scores of the same pairs"
PEOPLE_LABEL = "people (HUME)"
IMPORTED_SECTION = "Imported from MTEB's result files, not measured here (protocol mteb)"
ZERO_SHOT_COLUMN = TableColumn(
    key="zero_shot", head="Zero-shot", kind="fact", in_points=False, decimals=0
)
"""The share of a board's tasks that a model was not trained on."""
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
    """Return a model's score on one task of a benchmark: the mean over its splits and subsets.

    Args:
        result: The scores of the model on the task, by split and subset, from -1 to 1.
            ``data_revision`` is the commit of the dataset that they were computed on.
        benchmark_task: The splits and subsets of the task that the benchmark takes (``parts``).

    Returns:
        The mean in points (times 100). Its ``problem`` is not empty if the score cannot be right,
        or if the revision of its data is not known to have the benchmark's text. None if the model
        has no score of one of the parts.
    """
    if not {*benchmark_task.parts} <= result.scores.keys():
        return None
    points = 100 * statistics.fmean(result.scores[part] for part in benchmark_task.parts)
    problem = ""
    # A text that says why a public score is thought to be wrong; None for all others.
    suspicion = read_suspects().get((result.model, result.task))
    if suspicion is not None:
        problem = f"{suspicion}: in no average"
    elif result.data_revision not in list_same_text_revisions(result.task):
        current_revision = read_mteb_facts().tasks[result.task].revision
        problem = (
            f"data revision {result.data_revision[:SHORT_REVISION]}, not known to hold the text "
            f"of {current_revision[:SHORT_REVISION]}: in no average"
        )
    return TaskScore(points, problem)


def _make_score_cells(
    scores: Mapping[str, TaskScore], average_terms: AverageTerms
) -> dict[str, TableCell]:
    """Return the cells of one row of a table: a model's scores, and their average.

    There is no average if a column of it has no score, or one with a problem.

    Args:
        scores: Key of a column -> score, in points, which may have a problem.
        average_terms: Lists of keys of columns. The average is the mean over the lists, each with
            the mean of its columns.

    Returns:
        Key of a column -> cell. ``AVERAGE`` is the key of the rounded average, ``EXACT`` that of
        the exact one.
    """
    cells = {
        column: TableCell(
            # In points a score has two decimals less. The problem is why the score is marked wrong.
            published=TableNumber(score.points, decimals=SCORE_DIGITS - 2),
            misprint=score.problem,
        )
        for column, score in scores.items()
    }
    valid_points = {column: score.points for column, score in scores.items() if not score.problem}
    numbers = make_averaged_numbers(average_terms, valid_points)
    averages = [key for key in (AVERAGE, EXACT) if key in numbers]
    return cells | {key: TableCell(published=numbers[key]) for key in averages}


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
        """The columns of scores on this board of a benchmark.

        They are one for each task (``self.tasks``), and two for the average, rounded and exact.
        """
        # By default a column is of a task's scores (``kind``), in points with two decimals, and the
        # high ones are better.
        task_columns = [TableColumn(key=task, head=task) for task in self.tasks]
        average = TableColumn(key=AVERAGE, head="Avg.", kind="average")
        exact = TableColumn(key=EXACT, head="Avg. (exact)", kind="exact", decimals=6)
        return [*task_columns, average, exact]

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
        """Build the table of a benchmark of MTEB's: one column per task, and one row per model.

        The rows are in up to four groups: models measured here, those of a user's result files of
        MTEB, those of MTEB's public results, and people who scored the same pairs. Groups without
        rows are omitted. Two further columns have facts about a model: its size, and the share of
        the tasks that it was not trained on.

        Args:
            name: The key of the board.
            title: The title of the board.
            results: Results that were measured here. Those on other data, and those that were
                scored in another way than MTEB's, are left out.
            imported: The results of the user's files.
            has_public: Whether the public results and those of people are on the board.
        """
        groups = [
            Group(section=MEASURED_SECTION, rows=self._measured_rows(results)),
            Group(section=IMPORTED_SECTION, rows=self._model_rows(imported)),
        ]
        mteb_results = list(imported)
        if has_public:
            public_results = [result for result in read_public_results() if result.model != PEOPLE]
            commit = read_public_source()["commit"][:SHORT_REVISION]
            origin = f"public results at commit {commit}"
            public_rows = self._model_rows(public_results, origin)
            groups.append(Group(section=PUBLIC_SECTION, rows=public_rows))
            groups.append(Group(section=PEOPLE_SECTION, rows=self._people_rows(origin)))
            mteb_results += public_results
        table = Table(
            name=name,
            title=title,
            columns=self.columns,
            groups=[group for group in groups if group.rows],
            average_terms=self.average_terms,
        )
        table = add_fact_columns(table, ["size"], results).map_rows(self._add_zero_shot)
        return replace(
            table,
            columns=[*table.columns, ZERO_SHOT_COLUMN],
            notes=list(self._notes(table.groups, mteb_results)),
        )

    def _notes(self, groups: Sequence[Group], results: Sequence[MtebResult]) -> Iterator[str]:
        """Yield the notes that are printed below this board, each only if it is needed.

        They say, in this order:

        * for which tasks the score is a mean over subsets or splits;
        * how many models have results of several revisions;
        * how it is known which tasks a model was trained on;
        * how small the differences between neighbours are, compared with their errors;
        * the 95% intervals of people's scores.

        Args:
            groups: The groups of rows.
            results: The imported and public results, of all revisions of models.
        """
        # self.tasks has, for each task, its splits and subsets (parts).
        tasks_of_several_parts = [
            name for name, benchmark_task in self.tasks.items() if len(benchmark_task.parts) > 1
        ]
        if tasks_of_several_parts:
            yield (
                "scores of several subsets or splits are their mean, as in MTEB: "
                + ", ".join(tasks_of_several_parts)
            )
        note_on_revisions = describe_joined(results, self.tasks)
        if note_on_revisions:
            yield note_on_revisions
        if any(ZERO_SHOT_COLUMN.key in row.cells for group in groups for row in group.rows):
            yield (
                "zero-shot (the share of these tasks that a model was not trained on), and § of "
                "rows with °: by the training sets in MTEB's descriptions of models"
            )
        rows_by_section = {group.section: group.rows for group in groups}
        errors = estimate_errors(self.tasks, self.catalogue)
        note_on_noise = describe_noise(rows_by_section.get(PUBLIC_SECTION, ()), errors)
        if note_on_noise:
            yield note_on_noise
        if PEOPLE_SECTION in rows_by_section:
            intervals = find_people_intervals(read_people_results(), self.tasks, self.catalogue)
            yield f"{PEOPLE_LABEL}: {describe_people_intervals(intervals)}"

    def _model_rows(self, model_results: Sequence[MtebResult], origin: str = "") -> list[Row]:
        """Return a row for each model that has a score on a task of this board, best average first.

        A model that was trained on one of the tasks (``self.tasks``) has a symbol for it.

        Args:
            model_results: The results of the models, of all revisions.
            origin: A text on where the scores are from, for the legend; empty for the versions of
                MTEB that made the scores of each row.
        """
        rows = []
        # ``results`` has one result for each task, the one that MTEB prefers among revisions.
        for model, results in join_revisions(model_results).items():
            cells = self._score_cells(results)
            if cells:
                row_origin = origin or describe_versions(results.values())
                rows.append(_make_model_row(model, cells, row_origin, self.tasks))
        return sorted(rows, key=average_sort_key)

    def _people_rows(self, origin: str) -> list[Row]:
        """Return the row of people, who scored the same pairs of sentences as the models.

        Their scores have 95% intervals. The list is empty if they scored none of the tasks of this
        board (``self.tasks``).

        Args:
            origin: A text on where the scores are from, for the legend.
        """
        results = read_people_results()
        intervals = find_people_intervals(results, self.tasks, self.catalogue)
        if not intervals:
            return []
        cells = self._score_cells(results)
        for column, interval in intervals.items():
            score = cells[column].published if column in cells else None
            if score is not None:
                score = score._replace(interval=(100 * interval.low, 100 * interval.high))
                cells[column] = replace(cells[column], published=score)
        # ``imported`` marks a row as neither measured here nor published in a paper.
        return [Row(label=PEOPLE_LABEL, cells=cells, imported=origin)]

    def _score_cells(self, results: ResultsByTask) -> dict[str, TableCell]:
        """Return the cells of one model's row, by the key of the column.

        They are the scores on the tasks of this board (``self.tasks``) and their average, which is
        missing unless all tasks have a valid score.

        Args:
            results: Name of a task -> the model's result on it.
        """
        scores = {}
        for task, benchmark_task in self.tasks.items():
            score = score_task(results[task], benchmark_task) if task in results else None
            if score is not None:
                scores[task] = score
        return _make_score_cells(scores, self.average_terms)

    def _add_zero_shot(self, row: Row) -> Row:
        """Return a row with its model's zero-shot share, as far as known.

        It is the percentage of this board's tasks that the model was not trained on, by MTEB's
        description of the model at the row's address.
        """
        facts = read_model_facts().get(row.traits.model.removeprefix(HUB_SITE))
        # ``trained_on``, the names of its training data, is None if they are not known.
        if facts is None or facts.trained_on is None:
            return row
        # list_trained_tasks returns those of the board's tasks that are in ``trained_on``.
        n_unseen = len(self.tasks) - len(list_trained_tasks(facts, self.tasks))
        # The text is a percentage, which MTEB rounds down.
        text = f"{100 * n_unseen // len(self.tasks)}%"
        share = TableNumber(100 * n_unseen / len(self.tasks), text=text)
        return row.with_fact(ZERO_SHOT_COLUMN.key, share)

    def _measured_rows(self, results: Sequence[Result]) -> list[Row]:
        """Return a row for each encoder that was measured here on a task of this board.

        The row with the best average comes first.

        Args:
            results: The results of all encoders; those on other data than MTEB's are left out.
        """
        rows = []
        for group in group_by_encoder(results, self.catalogue):
            numbers = self._measured_numbers(group)
            if not numbers:
                continue
            row = Row(
                label=group.name,
                cells={key: TableCell(measured=number) for key, number in numbers.items()},
                encoder=group.encoder,
                overlap=group.overlap,
                # Size, year, languages and the like, as the encoder's card has them.
                traits=read_traits(self.catalogue, group.card),
                results=group.results,
            )
            rows.append(row)
        return sorted(rows, key=average_sort_key)

    def _measured_numbers(self, group: EncoderResults) -> Numbers:
        """Return the scores of one encoder's row, in points, by the key of the column.

        The score of a task is the mean over its splits and subsets, each the mean over seeds. A
        task is missing if a split or subset has no result. The average over the tasks is missing if
        a task is.

        Args:
            group: The encoder's results.
        """
        # MTEB's task, with split and subset -> seeds -> score. Results of several protocols hold
        # the same one.
        scores_by_part: dict[tuple[str, SplitAndSubset], dict[Seeds, float]] = {}
        matched_tasks = list_matched_tasks(self.catalogue)
        for result in group.results:
            matched_task = matched_tasks.get(result.task)
            if matched_task is None or result.split not in matched_task.mteb_split_names:
                continue
            # MTEB's name of our split.
            mteb_split = matched_task.mteb_split_names[result.split]
            for mteb_subset, score in scores_by_mteb_subset(matched_task, result).items():
                part = SplitAndSubset(mteb_split, mteb_subset)
                seed_scores = scores_by_part.setdefault((matched_task.mteb_task, part), {})
                seed_scores[result.seeds] = score.spearman
        points_by_task = {}
        for task, benchmark_task in self.tasks.items():
            part_keys = [(task, part) for part in benchmark_task.parts]
            has_all_parts = all(key in scores_by_part for key in part_keys)
            if has_all_parts:
                part_means = [statistics.fmean(scores_by_part[key].values()) for key in part_keys]
                points_by_task[task] = 100 * statistics.fmean(part_means)
        return make_averaged_numbers(self.average_terms, points_by_task)


def _make_model_row(
    model: str, cells: Mapping[str, TableCell], origin: str, tasks: Iterable[str]
) -> Row:
    """Return a model's row of a table of MTEB's scores.

    If the model was trained on one of the tasks, the row's ``overlap`` is ``text``, so that it gets
    a symbol for it.

    Args:
        model: The name of the model.
        cells: Key of a column -> cell.
        origin: A text on where the scores are from, for the legend.
        tasks: MTEB's names of the tasks.
    """
    # MTEB's description of the model; None if there is none, so that only the address is known.
    facts = read_model_facts().get(model)
    traits = EncoderTraits(model=hub_address(model))
    if facts is not None:
        traits = traits._replace(
            parameters=facts.parameters,
            year=facts.year,
            languages=tuple(facts.languages),
            license=facts.license,
            is_open=facts.is_open,
        )
    return Row(
        label=model,
        cells=cells,
        imported=origin,
        overlap="text" if list_trained_tasks(facts, tasks) else "",
        traits=traits,
    )


def list_trained_tasks(facts: ModelFacts | None, tasks: Iterable[str]) -> set[str]:
    """Return those of some tasks of MTEB's that a model was trained on; empty if it is unknown."""
    if facts is None or facts.trained_on is None:
        return set()
    return {*tasks} & {*facts.trained_on}


def add_imported_rows(table: Table, imported: Sequence[MtebResult], catalogue: Catalogue) -> Table:
    """Add rows for models that a user has scored with MTEB, in a group of their own, to a table.

    A column gets imported scores if its task has the data of one subset of a task of MTEB. A task
    with all subsets gets none: it is scored over all their pairs at once, where MTEB takes the mean
    over subsets. If no column gets a score, the table is returned as it is.

    Args:
        table: The table, whose columns are tasks of ours.
        imported: The results of the user's files of MTEB.
        catalogue: The cards, which say which tasks of ours have MTEB's data.

    Raises:
        ProtocolError: The columns of the table are not scored as MTEB scores.
    """
    if not is_scored_as_mteb(table.columns):
        raise ProtocolError(
            f"'{table.name}' is not scored as MTEB scores: by Spearman over all pairs of a task"
        )
    matched_tasks = list_matched_tasks(catalogue)
    # The spec of a column says which scores it takes; it is None for a column of other numbers.
    matched_columns = [
        (column.key, column.spec.split, matched_tasks[column.spec.task])
        for column in table.columns
        if column.spec is not None and column.spec.task in matched_tasks
    ]
    # Tasks with all subsets are among them: a model trained on one gets the symbol of overlap.
    names = {matched_task.mteb_task for _, _, matched_task in matched_columns}
    fitting_results = [result for result in imported if result.task in names]
    rows = []
    for model, results in join_revisions(fitting_results).items():
        scores = {}
        for key, our_split, matched_task in matched_columns:
            if not matched_task.mteb_subset:
                continue
            mteb_split = matched_task.mteb_split_names.get(our_split, our_split)
            part = BenchmarkTask(subsets=[matched_task.mteb_subset], splits=[mteb_split])
            result = results.get(matched_task.mteb_task)
            score = score_task(result, part) if result is not None else None
            if score is not None:
                scores[key] = score
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
    """Return the versions of MTEB that made results: ``mteb 2.1.0`` or ``mteb 1.38.2 to 2.1.0``.

    If the version of a result is not known, ``of unknown version`` follows.
    """
    version_texts = {result.mteb_version for result in results}
    # Texts that are no version are omitted.
    versions = sorted(filter(None, map(parse_version, version_texts)))
    descriptions = []
    if versions:
        # Without repetition, if the lowest and the highest are the same.
        limits = dict.fromkeys([str(versions[0]), str(versions[-1])])
        descriptions.append(" to ".join(limits))
    if len(versions) < len(version_texts):
        descriptions.append("of unknown version")
    return f"mteb {', '.join(descriptions)}"


def describe_joined(results: Iterable[MtebResult], tasks: Collection[str]) -> str:
    """Return a note on how many models have results of several revisions of their weights.

    Such results are joined to one row of a table.

    Args:
        results: The results of all revisions.
        tasks: MTEB's names of the tasks that are shown; results on others are ignored.

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
