"""The columns of a table, and the numbers that results and published rows have in its cells."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from stsbench.boards.published.rows import (
    METRICS,
    UNKNOWN,
    AverageFacts,
    ColumnFacts,
    Metric,
    PublishedRow,
    PublishedScore,
    TableCard,
    list_columns,
    list_rows,
    read_misprints,
    read_published_protocols,
    read_table_card,
)
from stsbench.boards.tables.column_scores import (
    ScoreBySeed,
    find_printed_score,
    is_extra_or_suite,
    make_column_spec,
    scores_by_seed,
)
from stsbench.boards.tables.table import (
    AVERAGE,
    DELTA,
    EXACT,
    AverageTerms,
    ColumnSpec,
    TableCell,
    TableColumn,
    TableNumber,
)
from stsbench.core.cards import Overlap
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, look_up, suggest
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.groups import EncoderResults, suite_mean
from stsbench.results.record import score_name

Numbers = dict[str, TableNumber]
"""Numbers by column key."""
STS_EVALUATORS = ("sts", "relatedness")
"""The evaluators of tasks whose test sentences are those of STS and SICK."""


class Rounding(NamedTuple):
    """How a paper rounds the average of a row."""

    scores: bool
    """Whether the average is over rounded scores."""
    average: bool
    """Whether the average itself is rounded."""


ROUNDINGS: Mapping[str, Rounding] = {
    "cells": Rounding(scores=True, average=True),
    "once": Rounding(scores=False, average=True),
    "never": Rounding(scores=False, average=False),
}
"""The ways in which papers round the average of a row."""


def _average_scores(
    average_terms: AverageTerms, means: Mapping[str, float], rounding: Rounding, decimals: int
) -> float:
    """Return the average of a row's scores, rounded as a paper rounds it.

    Args:
        average_terms: Lists of column keys: the average is the mean over the lists, each with the
            mean of its columns.
        means: Key of a column -> score of the row, the mean over seeds; of all averaged columns.
        rounding: Whether the scores are rounded before they are averaged, and whether the average
            is rounded.
        decimals: The number of decimals to round to.
    """
    if rounding.scores:
        means = {key: round(mean, decimals) for key, mean in means.items()}
    average = suite_mean(average_terms, means.get) or 0.0
    return round(average, decimals) if rounding.average else average


def make_averaged_numbers(average_terms: AverageTerms, values: Mapping[str, float]) -> Numbers:
    """Return the numbers of a row of a table, with their average.

    Args:
        average_terms: Lists of column keys: the average is the mean over the lists, each with the
            mean of its columns.
        values: Key of a column -> value of the row.

    Returns:
        Key of a column -> number. The average, not rounded, has the two keys ``AVERAGE`` and
        ``EXACT``; it is missing if a column that it is over has no value, or if there are no lists.
    """
    numbers = {key: TableNumber(value) for key, value in values.items()}
    average = suite_mean(average_terms, values.get)
    if average is None:
        return numbers
    return {**numbers, AVERAGE: TableNumber(average), EXACT: TableNumber(average)}


@dataclass(frozen=True, kw_only=True)
class TableFiller:
    """The columns of a table, and the numbers that fill their cells."""

    card: TableCard
    catalogue: Catalogue
    task_columns: Sequence[TableColumn]
    """The columns of tasks, of suites and of other tables' averages."""
    averaged_tables: Sequence[TableFiller | None]
    """For each of ``task_columns`` the table whose average it shows; None for a task or suite."""
    average_terms: AverageTerms
    """The columns that the table's own average is over."""

    @classmethod
    def from_card(cls, card: TableCard, catalogue: Catalogue) -> TableFiller:
        """Read the columns of a table from its card, and check them.

        A column may show the average of another table, whose columns are then read too.

        Args:
            card: The card of the table, which says which rows and columns it has.
            catalogue: The cards of tasks and suites.

        Raises:
            CardError: The suite does not exist, a column has no metric, the average or the
                differences are of a column that does not exist, or the average is over columns that
                are scored in different ways without being declared a composite.
        """
        suites = catalogue.suites()
        if card.suite and card.suite not in suites:
            raise CardError(
                f"key 'suite': '{card.suite}' is not a suite{suggest(card.suite, suites)}"
            )
        # A card has either columns, here with one record for each, or a suite, whose tasks are the
        # columns.
        facts_of_columns = list_columns(card)
        if not facts_of_columns:
            facts_of_columns = [ColumnFacts(task=task) for task in suites[card.suite].tasks]
        columns = _make_columns(facts_of_columns, card, catalogue)
        # For each column, the table whose average it shows; None for a task or suite.
        averaged_tables = [
            cls.from_card(read_table_card(facts.average_of), catalogue)
            if facts.average_of
            else None
            for facts in facts_of_columns
        ]
        average_terms: list[list[str]] = []
        if card.average:
            # By default the average is over all columns. Columns in a list count as one term.
            averaged = card.average.of or [column.key for column in columns]
            average_terms = [[term] if isinstance(term, str) else term for term in averaged]
        _check_computed_columns(card, columns, average_terms)
        return cls(
            card=card,
            catalogue=catalogue,
            task_columns=columns,
            averaged_tables=averaged_tables,
            average_terms=average_terms,
        )

    @property
    def columns(self) -> list[TableColumn]:
        """All columns of the table, in their order.

        They are those of tasks (``self.task_columns``), the average, the differences to one row,
        and the exact average with more decimals. ``self.card``, the table's card, says whether it
        has an average and differences (``delta``).
        """
        average_facts = self.card.average
        decimals = self.card.decimals
        columns = list(self.task_columns)
        if self.card.delta:
            delta = TableColumn(key=DELTA, head="Δ", kind="delta", better="", decimals=decimals)
            columns.append(delta)
        if average_facts:
            head = average_facts.head
            average = TableColumn(
                key=AVERAGE,
                head=head,
                kind="average",
                decimals=decimals,
                is_mixed=average_facts.composite,
            )
            # The same average with more decimals, as its own column.
            exact_average = replace(
                average, key=EXACT, head=f"{head} (exact)", kind="exact", decimals=decimals + 4
            )
            columns.insert(len(self.task_columns), average)
            columns.append(exact_average)
        return columns

    @cached_property
    def has_sts_tests(self) -> bool:
        """Whether any score of the table is on a test set of semantic similarity (STS).

        The task may be a column, a task of a suite that is a column, or a column of a table whose
        average is a column (``self.all_tasks()`` has the names of all). ``STS_EVALUATORS`` are the
        names of the evaluators that score STS tasks and SICK.
        """
        suites = self.catalogue.suites()
        names = set(self.all_tasks())
        for suite_name in names & suites.keys():
            names.update(suites[suite_name].tasks)
        # Names with a card; tasks that only papers have are without one, and so are suites.
        task_names = sorted(names & self.catalogue.paths("tasks").keys())
        cards = map(self.catalogue.task, task_names)
        return any(card.evaluator in STS_EVALUATORS for card in cards)

    def row_overlap(self, row: PublishedRow) -> Overlap:
        """Return whether a published row's training text overlaps the table's tests.

        The catalogue holds this of the STS tests alone, so it is unknown if no column is of one.
        """
        return row.overlap if self.has_sts_tests else "unknown"

    def all_tasks(self) -> Iterator[str]:
        """Yield the tasks and suites whose scores it takes, also by way of other tables."""
        for column, averaged_table in zip(self.task_columns, self.averaged_tables, strict=True):
            if averaged_table is not None:
                yield from averaged_table.all_tasks()
            elif column.spec is not None and column.in_points:
                yield column.spec.task

    def published_numbers(
        self,
        row: PublishedRow,
        other_protocol: str | None = None,
        *,
        metric: str = "",
        lenient: bool = False,
    ) -> Numbers:
        """Return the numbers that a row of a paper's table has for this table, and their average.

        Args:
            row: The row, with all its published scores.
            other_protocol: The protocol of a row that is not scored as the columns say.
            metric: The metric of a row that measures something else than the columns say.
            lenient: Omit a score of another protocol than its column's, as boards do, instead of
                raising an error.

        Returns:
            Key of a column -> number; columns without a printed number are absent. The average is
            that of :meth:`_published_averages`.

        Raises:
            ProtocolError: A score is of another protocol than its column's.
        """
        numbers: Numbers = {}
        # averaged_tables has, for each column, the table whose average it shows, or None.
        for column, averaged_table in zip(self.task_columns, self.averaged_tables, strict=True):
            spec = column.spec
            if spec and metric:
                spec = spec._replace(metric=metric)
            score = find_printed_score(row, spec, other_protocol, lenient=lenient)
            if score is None:
                continue
            # On a board, a row without an encoder fills the column of another table's average only
            # if it has all numbers of that table, which rows of ablations do not have.
            if averaged_table is not None and lenient and not row.encoder:
                # The exact average is computed only from a full row.
                has_all_numbers = EXACT in averaged_table.published_numbers(row, lenient=True)
                if not has_all_numbers:
                    continue
            numbers[column.key] = _printed_number(score, row)
        return numbers | self._published_averages(row, numbers, other_protocol)

    def _published_averages(
        self, row: PublishedRow, numbers: Numbers, other_protocol: str | None
    ) -> Numbers:
        """Return the average of a row of a paper's table, by the key of its column.

        Args:
            row: The row, with all its published scores.
            numbers: Key of a column -> number of the row.
            other_protocol: The protocol of a row that is not scored as the columns say; nothing is
                computed if it is ``UNKNOWN``.

        Returns:
            ``AVERAGE`` -> the average as the paper prints it; if it prints none, it is computed and
            rounded. ``EXACT`` -> the average computed from the numbers, not rounded. Computed ones
            are absent if a number is missing. Both are absent if the table has no average.
        """
        average_facts = self.card.average
        if average_facts is None:
            return {}
        averages: Numbers = {}
        # None if a number is missing. The terms are lists of the keys of the averaged columns.
        exact = suite_mean(
            self.average_terms, score=lambda key: numbers[key].value if key in numbers else None
        )
        if exact is not None and other_protocol != UNKNOWN:
            rounded = round(exact, self.card.decimals)
            averages[AVERAGE] = TableNumber(rounded, published_key=row.key)
            averages[EXACT] = TableNumber(exact, published_key=row.key)
        # Published scores have the average under a name of its own, in place of a task's. A
        # composite is an average of scores by different metrics.
        first_spec = self.task_columns[0].spec
        metric = first_spec.metric if first_spec and not average_facts.composite else "mixed"
        spec = _average_spec(self.card, average_facts, metric)
        printed_average = find_printed_score(row, spec, other_protocol, lenient=True)
        if printed_average is not None:
            averages[AVERAGE] = _printed_number(printed_average, row)
        return averages

    def measured_numbers(
        self, encoder_group: EncoderResults, other_protocol: str | None = None
    ) -> Numbers:
        """Return the measured numbers of an encoder for this table, and their average.

        Each is the mean over seeds, in points, with its deviation. A column that shows the average
        of another table has that table's exact average.

        Args:
            encoder_group: The results of the encoder in one state.
            other_protocol: The protocol to use in place of the columns' own; with ``UNKNOWN``, no
                score fits.

        Returns:
            Key of a column -> number; columns without a score are absent. If each averaged column
            has scores, ``AVERAGE`` is the average as the paper rounds it, ``EXACT`` the exact one.
        """
        numbers: Numbers = {}
        scores_by_column: dict[str, ScoreBySeed] = {}
        for column, averaged_table in zip(self.task_columns, self.averaged_tables, strict=True):
            spec = column.spec
            scores: ScoreBySeed = {}
            # A column that is not in points holds other numbers of papers, such as seconds.
            if spec is not None and column.in_points:
                if other_protocol is not None:
                    spec = spec._replace(protocol=other_protocol)
                scores = scores_by_seed(encoder_group, spec)
            scores_by_column[column.key] = scores
            if scores:
                numbers[column.key] = _measured_number(scores, encoder_group, spec)
            # The table whose average the column shows; None for a column of a task or suite.
            if averaged_table:
                numbers_of_table = averaged_table.measured_numbers(encoder_group, other_protocol)
                if EXACT in numbers_of_table:
                    numbers[column.key] = numbers_of_table[EXACT]
        if self.card.average:
            numbers |= self._measured_averages(scores_by_column, self.card.average)
        return numbers

    def _measured_averages(
        self, scores_by_column: Mapping[str, ScoreBySeed], average_facts: AverageFacts
    ) -> Numbers:
        """Return the average of an encoder's measured scores, by the key of its column.

        Args:
            scores_by_column: Key of a column -> seeds -> score in points.
            average_facts: How the table's card says that the average is made.

        Returns:
            ``AVERAGE`` -> the average as the paper rounds it, ``EXACT`` -> the exact one. They have
            a deviation if all averaged columns have the same seeds, at least two. The dict is empty
            if an averaged column has no score.
        """
        means = {
            key: statistics.fmean(scores.values())
            for key, scores in scores_by_column.items()
            if scores
        }
        # None if a column of the terms (lists of column keys) has no mean.
        exact = suite_mean(self.average_terms, means.get)
        if exact is None:
            return {}
        averaged_scores = {key: scores_by_column[key] for key in chain(*self.average_terms)}
        rounding = look_up("rounding", average_facts.rounding, ROUNDINGS)
        deviation = self._deviation_over_seeds(averaged_scores)
        n_seeds = max(map(len, averaged_scores.values()))
        return {
            AVERAGE: TableNumber(
                _average_scores(self.average_terms, means, rounding, self.card.decimals),
                deviation,
                seeds=n_seeds,
            ),
            EXACT: TableNumber(exact, deviation, seeds=n_seeds),
        }

    def _deviation_over_seeds(self, scores_by_column: Mapping[str, ScoreBySeed]) -> float | None:
        """Return the sample standard deviation over seeds of the average of a row.

        Args:
            scores_by_column: Key of an averaged column -> the pair of seeds of training and of
                evaluation -> score in points; at least one column.

        Returns:
            The deviation in points; None if there are fewer than two seeds, or if the columns have
            different seeds.
        """
        seeds, *seeds_of_others = [scores.keys() for scores in scores_by_column.values()]
        if len(seeds) < 2 or any(others != seeds for others in seeds_of_others):
            return None
        averages = []
        for seed in seeds:
            scores_of_seed = {key: scores[seed] for key, scores in scores_by_column.items()}
            # The terms are lists of columns: each list is averaged first, then these means are.
            average = suite_mean(self.average_terms, scores_of_seed.get)
            if average is not None:
                averages.append(average)
        return mean_and_deviation(averages).deviation

    def make_cells(self, published: Numbers, measured: Numbers) -> Mapping[str, TableCell]:
        """Return the cells of a row: key of a column -> cell with both of its numbers.

        If the published number is a known misprint, the cell has the reason.

        Args:
            published: Key of a column -> published number of the row.
            measured: Key of a column -> measured number of the row.
        """
        cells = {}
        for column in self.columns:
            cell = TableCell(measured=measured.get(column.key), published=published.get(column.key))
            task = column.spec.task if column.spec else ""
            if self.card.average and column.kind == "average":
                # The name that published scores have for the average, in place of a task.
                task = self.card.average.task
            # By the row that the number was published in. Misprints without a task are those of
            # whole rows.
            misprint = read_misprints().get((cell.published_key, task)) if task else None
            cells[column.key] = replace(cell, misprint=misprint.reason) if misprint else cell
        return cells


def _check_computed_columns(
    card: TableCard, columns: Sequence[TableColumn], average_terms: AverageTerms
) -> None:
    """Check that a table's average and differences can be computed from its columns.

    Args:
        card: The table's card; it says what to average, and what to subtract (``delta``).
        columns: The columns of scores.
        average_terms: Lists of keys of the columns that the average is over; empty if the table has
            no average.

    Raises:
        CardError: The average or the differences name a column that the table lacks, or the average
            is over columns scored in different ways without being declared a composite.
    """
    specs_by_key = {column.key: column.spec for column in columns}
    averaged_keys = list(chain(*average_terms))
    if unknown_keys := [key for key in averaged_keys if key not in specs_by_key]:
        raise CardError(f"[average]: 'of' names '{unknown_keys[0]}', which is not a column")
    # Each column of scores has a spec; only computed columns, which are not among these, lack it.
    averaged_specs = [spec for spec in map(specs_by_key.get, averaged_keys) if spec]
    ways_to_score = {(spec.protocol, spec.metric) for spec in averaged_specs}
    if card.average and len(ways_to_score) > 1 and not card.average.composite:
        # A way is named by its protocol and metric; without a protocol, by the metric alone.
        words = " and ".join(sorted(" ".join(filter(None, names)) for names in ways_to_score))
        raise CardError(
            f"[average]: over columns scored by {words}; say composite = true if the paper does so"
        )
    # Without a column the differences are in the average.
    if card.delta and card.delta.column not in ("", *specs_by_key):
        raise CardError(f"[delta]: 'column' is '{card.delta.column}', which is not a column")


def _average_spec(card: TableCard, average_facts: AverageFacts, metric: str) -> ColumnSpec:
    """Describe the published scores that are the average of a table, so that they can be found.

    Published scores have an average under a name, in place of a task's.

    Args:
        card: The card of the table.
        average_facts: The average in the card: ``task`` is that name, and ``composite`` whether it
            is over columns that are scored in different ways; then it has no protocol.
        metric: The metric of the average.
    """
    protocol = "" if average_facts.composite else card.protocol
    return ColumnSpec(
        average_facts.task,
        split="test",
        published_split="test",
        protocol=protocol,
        metric=metric,
        evaluator="",
        has_no_subsets=True,
    )


def _make_columns(
    facts_of_columns: Sequence[ColumnFacts], card: TableCard, catalogue: Catalogue
) -> list[TableColumn]:
    """Make the columns of a table; see :func:`_make_column`.

    Raises:
        CardError: Two columns show the same scores, or a column cannot be made.
    """
    columns: dict[str, TableColumn] = {}
    for facts in facts_of_columns:
        column = _make_column(facts, card, catalogue)
        spec, earlier = column.spec, columns.get(column.key)
        if earlier:
            if spec is None or spec == earlier.spec:
                raise CardError(f"columns: '{column.key}' stands there twice")
            # They differ in their protocol alone.
            column = replace(column, key=f"{column.key}.{spec.protocol}")
        columns[column.key] = column
    return list(columns.values())


def _make_column(facts: ColumnFacts, card: TableCard, catalogue: Catalogue) -> TableColumn:
    """Make a column of a table from its description in the table's card.

    Args:
        facts: The description. The column shows a task, a suite, or the average of another table.
        card: The table's card, which has defaults for what the column leaves open. ``fields`` are
            all fields of a protocol, by which every column selects results; it may be empty.
        catalogue: The cards of tasks and suites.

    Raises:
        CardError: The other table has no average, or no metric can be found.
    """
    if facts.average_of:
        return _make_average_column(facts, card)
    protocol = card.protocol if facts.protocol is None else facts.protocol
    default_metric = _default_metric(card, protocol)
    metric = facts.metric or default_metric
    if not metric:
        raise CardError(f"columns: '{facts.task}' has neither a metric nor a protocol")
    # A task may have several columns, by other metrics or of other splits, with their own keys:
    # ``STS12.pearson.dev``. A metric or split that is the usual one is not named.
    key_parts = [facts.task]
    if metric != default_metric:
        key_parts.append(metric)
    if facts.split != "test":
        key_parts.append(facts.split)
    # A suite has no card of a task, nor has a task that only papers score.
    has_card = not is_extra_or_suite(facts.task, catalogue)
    task_name = catalogue.task(facts.task).name if has_card else facts.task
    # Only columns of all published scores of a source name an aggregation; it may be empty.
    if facts.aggregation is not None:
        key_parts = [facts.task, facts.split, metric, protocol, facts.aggregation]
        task_name = ", ".join(filter(None, (task_name, metric, facts.aggregation)))
    key = ".".join(filter(None, key_parts))
    # ``Metric()``: the highest is the best, and numbers are printed times 100. A result's own score
    # is the better the higher it is, whatever a user's evaluator calls it.
    metric_facts = Metric() if card.fields else METRICS[metric]
    spec = make_column_spec(facts, protocol, metric, catalogue)
    return TableColumn(
        key=key,
        head=facts.head or card.heads.get(key, task_name),
        spec=spec._replace(protocol_fields=card.fields),
        better=metric_facts.better,
        in_points=metric_facts.in_points,
        decimals=card.decimals,
    )


def _make_average_column(facts: ColumnFacts, card: TableCard) -> TableColumn:
    """Make a column that shows the average of another table.

    Args:
        facts: The column in the table's card; its key ``average_of`` names the other table.
        card: The card of the table that has the column.

    Raises:
        CardError: The other table has no average.
    """
    other_card = read_table_card(facts.average_of)
    if other_card.average is None:
        raise CardError(f"columns: table '{facts.average_of}' has no average")
    is_mixed = other_card.average.composite
    metric = "mixed" if is_mixed else read_published_protocols()[other_card.protocol].metric
    # Its task is the name that published scores have for the average.
    spec = _average_spec(other_card, other_card.average, metric)
    return TableColumn(
        key=facts.average_of,
        head=facts.head or card.heads.get(spec.task, other_card.title),
        spec=spec,
        decimals=card.decimals,
        is_mixed=is_mixed,
    )


def _default_metric(card: TableCard, protocol: str) -> str:
    """Return the metric of a column that names none; empty if none can be found.

    It is the first of these that there is: that of the protocol fields in the table's card, that of
    the column's protocol, and that of the first row that names one.

    Args:
        card: The table's card; its ``fields`` are all fields of a protocol, or empty.
        protocol: The name of the column's protocol.
    """
    if card.fields:
        # The name of a score is its metric, with its aggregation after a dot.
        metric, _, _ = score_name(card.fields).partition(".")
        return metric
    if protocol in read_published_protocols():
        return read_published_protocols()[protocol].metric
    row_metrics = [facts.metric for group in card.groups for facts in list_rows(group)]
    return next(filter(None, row_metrics), "")


def _measured_number(
    scores: ScoreBySeed, encoder_group: EncoderResults, spec: ColumnSpec | None
) -> TableNumber:
    """Return a measured number of a table, in points.

    For several seeds it is the mean with its sample standard deviation; for one it is the score
    with its 95% interval, if a result has this score as its own.

    Args:
        scores: Seeds -> score in points, of one encoder for one column; at least one.
        encoder_group: The encoder's results, which hold these scores.
        spec: The scores that the column shows; None if it is of no task, so that no result has its
            interval.
    """
    values = list(scores.values())
    if len(values) > 1:
        return TableNumber(*mean_and_deviation(values), seeds=len(values))
    value = values[0]
    for result in encoder_group.results:
        is_of_task = spec and (result.task, result.split) == (spec.task, spec.split)
        # The interval of a result is of its own score. If the column shows another of its scores,
        # there is no interval.
        if is_of_task and 100 * result.score == value:
            low, high = result.interval
            return TableNumber(value, interval=(100 * low, 100 * high))
    return TableNumber(value)


def _printed_number(score: PublishedScore, row: PublishedRow) -> TableNumber:
    """Return a published score as a number of a table, with the key of its row."""
    return TableNumber(score.value, score.deviation, score.decimals, published_key=row.key)
