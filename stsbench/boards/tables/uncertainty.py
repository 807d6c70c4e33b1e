"""The intervals of a table's means, and the ranks of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from stsbench.boards.tables.column_scores import (
    published_protocol,
    select_column_results,
    takes_own_score,
)
from stsbench.boards.tables.table import (
    AVERAGE,
    EXACT,
    STANDINGS_METHOD,
    ColumnSpec,
    Row,
    Table,
    add_standings,
)
from stsbench.core.errors import AdvisingNote, DataError, ProtocolError, Remedy
from stsbench.core.files import cached_values
from stsbench.core.wording import format_count, format_some
from stsbench.results.folder import describe_missing_columns, make_rescore_remedy
from stsbench.results.record import Result

if TYPE_CHECKING:
    from stsbench.significance.ranks import Standings
    from stsbench.significance.rows import ProgressCallback


class _RowMeans(NamedTuple):
    """The numbers of a row that are means over tasks or seeds, and so need an interval."""

    row: Row
    tasks_by_key: Mapping[str, tuple[int, ...]]
    """The indices of the tasks that each number is a mean over, by the key of its column."""
    results_by_task: Sequence[Sequence[Result]]
    """The results of the row, by the index of their task."""
    score_names: Sequence[str]
    """What these results call the scores that the row shows, by the index of the task."""


def add_intervals(table: Table, progress: ProgressCallback | None) -> Table:
    """Add 95% intervals to the means in a table: to averages over tasks and means over seeds.

    Notes name the rows whose intervals cannot be computed, and why. Intervals are kept in a cache
    file of the user's.

    Args:
        table: The table.
        progress: Called with the number of rows that are done, and of all.
    """
    rows_with_means = list(_find_means(table))
    if not rows_with_means:
        return table
    # The module is imported only if intervals are computed, because it takes long.
    from stsbench.significance.means import compute_mean_intervals

    # Python's id of a row -> the row with intervals that replaces it.
    new_rows: dict[int, Row] = {}
    # Rows, each with a result that lacks something an interval needs.
    without_columns: list[tuple[_RowMeans, Result]] = []
    without_sentences: list[tuple[_RowMeans, Result]] = []
    with cached_values("means.json", dict[str, tuple[float, float]]) as interval_cache:
        for n_done, row_means in enumerate(rows_with_means, start=1):
            row, tasks_by_key, results_by_task, score_names = row_means
            groups_of_tasks = set(tasks_by_key.values())
            computed = compute_mean_intervals(
                results_by_task, groups_of_tasks, score_names, interval_cache
            )
            without_columns += [(row_means, result) for result in computed.results_without_columns]
            without_sentences += [
                (row_means, result) for result in computed.results_without_sentences
            ]
            new_rows[id(row)] = _set_intervals(row, tasks_by_key, computed.intervals)
            if progress:
                progress(n_done, len(rows_with_means))
    notes = [
        *_describe_missing_intervals("per-item columns are missing or broken", without_columns),
        *_describe_missing_intervals(
            "the results do not tell which items share a sentence", without_sentences
        ),
    ]
    return _add_measured_notes(table.map_rows(lambda row: new_rows.get(id(row), row)), notes)


def _describe_missing_intervals(
    reason: str, means_and_results: Sequence[tuple[_RowMeans, Result]]
) -> Iterator[str]:
    """Yield a note on the rows of a table whose intervals cannot be computed, if there are any.

    The note says which numbers lack one, and has a remedy: how to score their results again.

    Args:
        reason: Why they cannot be computed.
        means_and_results: The means of such a row, with each result that is the reason.
    """
    if means_and_results:
        labels = list(dict.fromkeys(means.row.label for means, _ in means_and_results))
        keys = {key for means, _ in means_and_results for key in means.tasks_by_key}
        numbers = ["the mean"] if AVERAGE in keys else []
        # All other keys are those of tasks.
        if keys - {AVERAGE, EXACT}:
            numbers.append("scores over several seeds")
        problem = (
            f"no 95% interval of {' and of '.join(numbers)} of {format_some(labels)}: {reason}"
        )
        remedy = make_rescore_remedy([result for _, result in means_and_results])
        yield AdvisingNote(problem, remedy)


def _score_name(spec: ColumnSpec) -> str:
    """Return what results call the score that a column takes; empty if it is their own score."""
    if spec.protocol_fields:
        return ""
    aggregation = published_protocol(spec.protocol).aggregation
    return ".".join(filter(None, (spec.metric, aggregation)))


def _find_means(table: Table) -> Iterator[_RowMeans]:
    """Find the numbers of a table that are means, and the tasks that each is a mean over.

    A number of one task is a mean if it is over several seeds. The average is a mean over tasks.
    The index of a task is the position of its column among those that have a ``spec``.

    Args:
        table: The table.

    Yields:
        Each row with such numbers, and the results and scores that they are of.
    """
    columns = [column for column in table.columns if column.spec]
    keys = [column.key for column in columns]
    averaged_tasks = _averaged_task_indices(table, keys)
    for row in table.rows():
        specs = [spec for spec in map(row.spec, columns) if spec]
        results_by_task = [select_column_results(row.results, spec) for spec in specs]
        tasks_by_key: dict[str, tuple[int, ...]] = {}
        for index, key in enumerate(keys):
            number = row.cell(key).measured
            if number and number.deviation is not None and len(results_by_task[index]) > 1:
                tasks_by_key[key] = (index,)
        has_average = row.cell(AVERAGE).measured is not None
        has_all_results = all(results_by_task[index] for index in averaged_tasks)
        if averaged_tasks and has_average and has_all_results:
            # The average as papers round it, and the exact one, are two columns.
            tasks_by_key |= {AVERAGE: averaged_tasks, EXACT: averaged_tasks}
        if tasks_by_key:
            score_names = list(map(_score_name, specs))
            yield _RowMeans(row, tasks_by_key, results_by_task, score_names)


def _averaged_task_indices(table: Table, task_keys: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the tasks that a table's average is over, with repetitions.

    The average is a mean over terms, lists of columns, each with the mean of its columns. Indices
    are repeated so that each term gets the same number of them, however many columns it has: then
    the plain mean over the indices is the average.

    Args:
        table: The table; ``table.average_terms`` are lists of keys of columns.
        task_keys: The keys of the columns of tasks; the position of a key is the task's index.
    """
    # A number that can be divided by the length of every term.
    n_indices_per_term = math.lcm(*map(len, table.average_terms))
    indices: list[int] = []
    for term in table.average_terms:
        n_repeats = n_indices_per_term // len(term)
        for key in term:
            indices += [task_keys.index(key)] * n_repeats
    return tuple(indices)


def _set_intervals(
    row: Row,
    tasks_by_key: Mapping[str, tuple[int, ...]],
    intervals: Mapping[tuple[int, ...], tuple[float, float]],
) -> Row:
    """Return a row of a table, in which the means have their 95% intervals, in points.

    Args:
        row: The row.
        tasks_by_key: Key of a column -> indices of the tasks that its number is a mean over.
        intervals: Indices of tasks -> interval of the mean over them, on the scale of scores (not
            in points). Intervals that could not be computed are absent.
    """
    cells = dict(row.cells)
    for key, tasks in tasks_by_key.items():
        number = cells[key].measured
        if tasks in intervals and number:
            low, high = intervals[tasks]
            number = number._replace(interval=(100 * low, 100 * high))
            cells[key] = replace(cells[key], measured=number)
    return replace(row, cells=cells)


def rank_tables(tables: Sequence[Table], progress: ProgressCallback | None = None) -> list[Table]:
    """Add the ranks of their rows to tables; a table that cannot have ranks gets a note on why.

    Args:
        tables: The tables.
        progress: Called with the number of results of a table that are done, and of all.

    Raises:
        ProtocolError: A table has no mean over single tasks.
        DataError: No table can have ranks.
    """
    ranked_tables = []
    errors = []
    for table in tables:
        try:
            ranked_tables.append(rank_table(table, progress=progress))
        except DataError as error:
            errors.append(error)
            note = f"Rank: {error.problem}"
            # The advice to score results again is added to the note. Any other advice, such as to
            # score a first encoder, does not concern the ranks and is left out.
            if error.remedy is not None and error.remedy.action == "rescore":
                note = AdvisingNote(note, error.remedy)
            ranked_tables.append(_add_measured_notes(table, [note]))
    if errors and len(errors) == len(tables):
        raise errors[0]
    return ranked_tables


def rank_table(
    table: Table,
    progress: ProgressCallback | None = None,
) -> Table:
    """Add ranks to the measured rows of a table, by tests of all pairs of rows on the same items.

    A row gets the interval of ranks that it may have, and letters: rows that share a letter do not
    differ significantly. If only one row can be ranked, a note says so instead.

    Args:
        table: The table.
        progress: Called with the number of results that are done, and of all.

    Raises:
        ProtocolError: The table has no mean over single tasks; see also :func:`rank_rows`.
        DataError: No row can be ranked: none is measured, or per-item columns are missing or
            broken.
    """
    specs = _averaged_specs(table)
    # The results of each row, in a list for each task; by the index of the row among all rows.
    results_by_row: dict[int, list[list[Result]]] = {}
    for row_index, row in enumerate(table.rows()):
        # The results whose main score the column of a task shows: only that has values per item.
        results_by_task = [
            [result for result in row.results if takes_own_score(result, spec)] for spec in specs
        ]
        # The mean that a row of another protocol shows is not that of these results.
        if row.protocol is None and any(results_by_task):
            results_by_row[row_index] = results_by_task
    from stsbench.significance.ranks import rank_rows

    standings = rank_rows(results_by_row, progress=progress)
    if not standings.rows:
        raise _no_ranks_error(table, standings)
    labels = [row.label for row in table.rows()]
    lacking_notes: list[str] = []
    lacking = standings.results_without_columns
    if lacking:
        problem = f"Rank: {describe_missing_columns(lacking)}"
        lacking_notes.append(AdvisingNote(problem, make_rescore_remedy(lacking)))
    if len(standings.rows) == 1:
        (row_index,) = standings.rows
        note = (
            f"no ranks: they are among the rows measured here, and '{labels[row_index]}' "
            "is the only one to rank"
        )
        return _add_measured_notes(table, [note, *lacking_notes])
    notes = [
        *_describe_ranks(standings, labels, n_tasks=len(specs)),
        *lacking_notes,
    ]
    return _add_measured_notes(add_standings(table, standings.rows), notes)


def _no_ranks_error(table: Table, standings: Standings[int]) -> DataError:
    """Return the error for a table in which no row can be ranked.

    Args:
        table: The table.
        standings: The ranks, which are empty, and the results whose values per item are missing.

    Returns:
        The error, with a remedy: to score encoders, or to score those results again.
    """
    results = standings.results_without_columns
    if not results:
        return DataError(f"'{table.name}' has no measured row to rank", remedy=Remedy("score"))
    return DataError(
        f"{describe_missing_columns(results)}, which ranks need",
        remedy=make_rescore_remedy(results),
    )


def _averaged_specs(table: Table) -> list[ColumnSpec]:
    """Return which scores the columns show that a table's average is over, each of another task.

    ``table.average_terms`` are lists of column keys: the average is the mean over the lists, each
    with the mean of its columns. A mixed column (``is_mixed``) is itself a mean, over tasks that
    are scored in different ways.

    Raises:
        ProtocolError: The table has no mean in which each task counts once: it has none at all, a
            term of it has several columns or a mixed one, or a task has several terms.
    """
    spec_by_key = {column.key: column.spec for column in table.columns if not column.is_mixed}
    keys = [term[0] for term in table.average_terms if len(term) == 1]
    specs = [spec for spec in map(spec_by_key.get, keys) if spec is not None]
    tasks = {spec.task for spec in specs}
    if not specs or len(tasks) != len(table.average_terms):
        raise ProtocolError(
            f"'{table.name}' has no mean to rank by, in which each task counts once"
        )
    return specs


def _describe_ranks(
    standings: Standings[int], labels: Sequence[str], *, n_tasks: int
) -> Iterator[str]:
    """Yield the notes on what the ranks and letters of a table mean, and on rows that need care.

    Args:
        standings: The ranks by the index of the row, and how they were computed: ``tests`` is the
            number of pairs of rows, and ``has_exact_letters`` is False if rows that do differ had
            to share a letter, as there would have been too many letters. It also has the results
            that lack the sentences of their items.
        labels: The label of each row of the table.
        n_tasks: The number of tasks that the average is over.
    """
    from stsbench.significance.letters import MAX_GROUPS

    pairs = format_count(standings.tests, "pair")
    yield (
        "Rank: by the mean among the rows measured here; "
        f"all hold at once ({STANDINGS_METHOD}, {100 * (1 - standings.level):g}%)"
    )
    tests = f"(paired tests, Holm's correction over {pairs}, level {standings.level:g})"
    if standings.has_exact_letters:
        yield f"Ties: rows that share a letter are not significantly different by the mean {tests}"
    else:
        yield f"Ties: rows that share no letter are significantly different by the mean {tests}"
        yield f"Ties: groups are divided up to {MAX_GROUPS}; rows of one letter may differ too"
    # The tasks of a standing are those that could be used for its row.
    rows_with_gaps = [
        labels[row_index]
        for row_index, standing in standings.rows.items()
        if len(standing.tasks) < n_tasks
    ]
    if rows_with_gaps:
        yield (
            f"{', '.join(rows_with_gaps)}: not all tasks can be used; compared with each other "
            "row on the tasks that both have, so that a gap neither lowers nor raises a rank"
        )
    single_seed_rows = [labels[row_index] for row_index in standings.single_seed_rows]
    if single_seed_rows:
        yield (
            f"{', '.join(single_seed_rows)}: one training seed, "
            "so the rank says nothing of the recipe"
        )
    # Items that share a sentence vary together, but results of early versions do not have the
    # sentences.
    results = standings.results_without_sentences
    if results:
        tasks = ", ".join(dict.fromkeys(result.task for result in results))
        problem = (
            f"Rank: items of {tasks} are taken as independent, for the results do not tell "
            "which share a sentence"
        )
        yield AdvisingNote(problem, make_rescore_remedy(results))


def _add_measured_notes(table: Table, notes: Sequence[str]) -> Table:
    """Return a copy of a table with further notes on its measured numbers."""
    return replace(table, measured_notes=[*table.measured_notes, *notes])
