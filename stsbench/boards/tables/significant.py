"""Marks of numbers that differ significantly from those of one encoder, by paired tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from stsbench.boards.tables.column_scores import takes_own_score
from stsbench.boards.tables.rows import AddedRow
from stsbench.boards.tables.table import ABOVE, AVERAGE, BELOW, EXACT, ColumnSpec, Row, Table
from stsbench.core.errors import DataError
from stsbench.results.record import Result
from stsbench.results.signature import protocol_part
from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import Difference, TestSettings
from stsbench.significance.paired import correct_by_holm


class _CellTest(NamedTuple):
    """The test of a row's number against that of the reference."""

    row: Row
    keys: Sequence[str]
    """The keys of the columns that show the number."""
    difference: Difference
    """The number of the row minus that of the reference."""
    p: float
    """The p-value before a correction."""


def mark_significant(tables: Sequence[Table], reference: AddedRow) -> list[Table]:
    """Mark each measured number of tables that differs significantly from that of one encoder.

    Numbers are compared by paired tests on the same test items. Many tests find some differences
    by chance alone, so their p-values are corrected by Holm's method: in each table, those of tasks
    together, and those of averages together. Published numbers have no items, and are not tested.
    A table without any test gets a note instead of marks.

    Args:
        tables: The tables.
        reference: The encoder that all other measured rows are tested against, with its results.

    Raises:
        DataError: No row of any table can be tested against it, or per-item columns are missing or
            broken.
    """
    tests_by_table = [_test_rows(table, reference) for table in tables]
    if not any(tests_by_table):
        titles = "; ".join(table.title for table in tables)
        raise DataError(
            f"no other measured row can be tested against '{reference.name}' on a common task: "
            f"{titles}"
        )
    return [
        _mark_tested(table, tests, reference.label or reference.name)
        for table, tests in zip(tables, tests_by_table, strict=True)
    ]


def _mark_tested(table: Table, tests: Sequence[_CellTest], label: str) -> Table:
    """Return a table with the marks of its significant tests, and notes that explain them.

    Args:
        table: The table.
        tests: The tests of its numbers, without a correction; empty for a note that there are none.
        label: The name of the encoder that they are against.
    """
    # Python's id of a row and the key of a column -> symbol.
    symbols: dict[tuple[int, str], str] = {}
    # The number of tests on tasks, then that on averages.
    counts = []
    for is_average in (False, True):
        family = [test for test in tests if test.difference.is_average == is_average]
        counts.append(len(family))
        for test, p in zip(family, correct_by_holm([test.p for test in family]), strict=True):
            if p < TestSettings.level:
                symbol = ABOVE if test.difference.difference > 0 else BELOW
                for key in test.keys:
                    symbols[id(test.row), key] = symbol
    means = f" and, by itself, over {counts[1]} of means" if counts[1] else ""
    notes = [
        f"{ABOVE} significantly above {label}: paired tests on the same items, level "
        f"{TestSettings.level:g}, Holm's correction over {counts[0]} tests on tasks{means}",
        f"{BELOW} significantly below {label}",
        f"neither {ABOVE} nor {BELOW}: no significant difference, or a published number",
    ]
    if not tests:
        notes = [f"no marks: no other measured row can be tested against {label} on a common task"]
    # ``one_run`` of a difference has the names of encoders that were trained with one seed only.
    names = ", ".join(dict.fromkeys(name for test in tests for name in test.difference.one_run))
    if names:
        notes.append(f"{names}: one training seed, so marks say nothing of the recipe")

    def add_symbols(row: Row) -> Row:
        """Return a row with the symbols of its cells."""
        cells = {
            key: replace(cell, significance=symbols.get((id(row), key), ""))
            for key, cell in row.cells.items()
        }
        return replace(row, cells=cells)

    return replace(table.map_rows(add_symbols), measured_notes=[*table.measured_notes, *notes])


def _test_rows(table: Table, reference: AddedRow) -> list[_CellTest]:
    """Test the measured numbers of all rows of a table against those of one encoder.

    Args:
        table: The table.
        reference: The encoder to test against, with its results. Its own row is left out.

    Returns:
        A test for each number, or average, of a row: the keys of the columns that show it, the
        difference from the reference (the row's number minus the reference's), and the p-value
        before a correction.
    """
    # Key -> scores that a column shows. A mean over differently scored tasks is not tested.
    specs = {
        column.key: column.spec for column in table.columns if column.spec and not column.is_mixed
    }
    tests = []
    # ``average_terms`` are lists of the keys of the columns that the table's average is over.
    averaged_tasks = {
        specs[key].task for term in table.average_terms for key in term if key in specs
    }
    reference_results = _select_tested(reference.results, specs)
    for row in table.rows():
        results = _select_tested(row.results, specs)
        tasks = {result.task for result in results} & {result.task for result in reference_results}
        # The numbers of a row of another protocol are not those of these results.
        if not tasks or row.protocol is not None or reference.has_any_of(row.results):
            continue
        # The two sides of a comparison need different names.
        label = row.label if row.label != reference.name else f"{row.label} (row)"
        comparison = compare({reference.name: reference_results, label: results})
        for difference in comparison.differences:
            keys = _find_keys(difference, results, specs)
            if difference.is_average and {*difference.tasks} == averaged_tasks:
                keys = [key for key in (AVERAGE, EXACT) if row.cell(key).measured]
            # No p-value: the values per item allow no test, or only one side has several seeds.
            if keys and difference.p is not None:
                tests.append(_CellTest(row, keys, difference, difference.p))
    return tests


def _find_keys(
    difference: Difference, results: Sequence[Result], specs: Mapping[str, ColumnSpec]
) -> list[str]:
    """Return the keys of the columns that show the scores that a difference is of; none of a mean.

    Args:
        difference: The difference of an encoder from the reference.
        results: The results of that encoder.
        specs: Key of a column -> the scores that it shows: task, split, protocol and metric.
    """
    # The label of a mean is no task, so no result is found.
    compared_results = [
        result
        for result in results
        if (result.task, result.split) == (difference.task, difference.split)
        and protocol_part(result.protocol) == protocol_part(difference.protocol)
    ]
    return [
        key
        for key, spec in specs.items()
        if any(takes_own_score(result, spec) for result in compared_results)
    ]


def _select_tested(results: Sequence[Result], specs: Mapping[str, ColumnSpec]) -> list[Result]:
    """Return the results whose own scores are those of columns."""
    return [
        result
        for result in results
        if any(takes_own_score(result, spec) for spec in specs.values())
    ]
