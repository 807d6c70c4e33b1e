"""Rows of one's own in any table: encoders of the results under labels of the user's, and what such rows lack."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.leaderboard.tables.fill import Filler
from stsbench.leaderboard.tables.runs import Wanted
from stsbench.leaderboard.tables.table import Group, Row, Table, TableColumn
from stsbench.leaderboard.tables.traits import traits_of
from stsbench.results.groups import Runs
from stsbench.results.record import Result

TITLE = "Measured here"
MOST_NAMED = 3


class Added(NamedTuple):
    """An encoder to be added: its name as it was given, the label to print (empty: its own name), and its results."""

    name: str
    label: str
    results: Sequence[Result]

    def runs(self, all_runs: Sequence[Runs]) -> list[Runs]:
        """The runs that hold these results; an encoder in several states is several."""
        mine = set(map(_file_of, self.results))
        return [one for one in all_runs if mine & set(map(_file_of, one.results))]


def _file_of(result: Result) -> Path | int:
    """What tells a result: its file, for it may have been read again; one that has none is told by itself."""
    return result.path or id(result)


def added_groups(filler: Filler, runs: Sequence[Runs], added: Sequence[Added]) -> list[Group]:
    """One group below a paper's own: its best and second best stay the paper's, and no row is among others by mistake."""
    rows = [
        Row(
            label=_label(one, run, several=len(found) > 1),
            cells=filler.cells("", {}, filler.measured(run)),
            encoder=run.encoder,
            overlap=run.overlap,
            traits=traits_of(filler.catalogue, run.card),
            results=run.results,
            is_added=True,
        )
        for one in added
        for found in [one.runs(runs)]
        for run in found
    ]
    return [Group(title=TITLE, rows=rows)] if rows else []


def _label(one: Added, run: Runs, *, several: bool) -> str:
    if not one.label:
        return run.name
    return f"{one.label} [{run.mark}]" if several and run.mark else one.label


def relabelled(groups: Sequence[Group], runs: Sequence[Runs], added: Sequence[Added]) -> list[Group]:
    """A board's groups, in which every encoder measured has a row: those of some rows have the label that is asked for."""
    labels: dict[Path | int, str] = {}
    for one in added:
        found = one.runs(runs)
        for run in found:
            labels |= dict.fromkeys(
                map(_file_of, run.results), _label(one, run, several=len(found) > 1) if one.label else ""
            )
    return [replace(group, rows=[_relabelled(row, labels) for row in group.rows]) for group in groups]


def _relabelled(row: Row, labels: Mapping[Path | int, str]) -> Row:
    label = next((labels[file] for result in row.results if (file := _file_of(result)) in labels), None)
    return row if label is None else replace(row, label=label or row.label, is_added=True)


def only_added(table: Table) -> Table:
    """The table with nothing but the rows that were added."""
    groups = [replace(group, rows=[row for row in group.rows if row.is_added]) for group in table.groups]
    return replace(table, groups=[group for group in groups if group.rows])


def rows_of(table: Table, one: Added) -> list[Row]:
    """The rows of an encoder that was added to a table."""
    mine = set(map(_file_of, one.results))
    return [row for row in table.rows() if row.is_added and mine & set(map(_file_of, row.results))]


def lacks(row: Row, table: Table, catalogue: Catalogue, where: str = "") -> Iterator[str]:
    """What a row of a table has no number for: a line for each command that would fill columns, and one for the rest.

    Args:
        row: a row that was added.
        table: the table.
        catalogue: cards of the project and of the user.
        where: the folder of results that commands name; empty for the usual one.
    """
    empty = [column for column in table.columns if column.kind == "task" and not row.cell(column.key).measured]
    runnable: dict[tuple[str, str], list[TableColumn]] = {}
    for column in empty:
        wanted = column.wanted
        if wanted is not None and _can_be_run(column, wanted, catalogue):
            split = "" if wanted.printed == "test" else wanted.printed
            runnable.setdefault((wanted.protocol, split), []).append(column)
    for (protocol, split), missing in runnable.items():
        tasks = dict.fromkeys(column.wanted.task for column in missing if column.wanted)
        words = ["stsbench", "run", row.encoder, "--tasks", ",".join(tasks), "--protocol", protocol]
        words += [*(("--split", split) if split else ()), *(("--results", where) if where else ())]
        yield f"row '{row.label}' has no {_heads(missing)}; to fill it: {shlex.join(words)}"
    others = [column for column in empty if not any(column in missing for missing in runnable.values())]
    if others:
        yield f"row '{row.label}' has no {_heads(others)}, which 'stsbench run' does not measure"


def _can_be_run(column: TableColumn, wanted: Wanted, catalogue: Catalogue) -> bool:
    is_known = wanted.task in catalogue.suites() or wanted.task in catalogue.paths("tasks")
    return bool(column.points and wanted.protocol and is_known)


def _heads(columns: Sequence[TableColumn]) -> str:
    return ", ".join(column.head for column in columns)


def not_shown(table: Table, filler: Filler, runs: Sequence[Runs]) -> str:
    """One line on results that a paper's table has columns for and no row; nothing where there are none."""
    shown = {_file_of(result) for row in table.rows() for result in row.results}
    names = [
        run.name for run in runs if not any(_file_of(one) in shown for one in run.results) and filler.measured(run)
    ]
    if not names:
        return ""
    listed = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
    given = shlex.quote(names[0])
    return f"results of {listed} are in no row of '{table.name}'; --add NAME shows them, such as --add {given}"
