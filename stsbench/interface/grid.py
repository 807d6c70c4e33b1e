"""Results as a grid: encoders in rows, tasks and means in columns, seeds put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.compare.means import mean_interval
from stsbench.data.task import suites_within
from stsbench.numbers.spread import spread
from stsbench.results.comparable import protocol_key
from stsbench.results.groups import Runs
from stsbench.results.record import Result

USUAL_SPLITS = ("test", "all")
"""Splits that need not be named: those that tasks are scored on."""


class GridCell(NamedTuple):
    """The score of an encoder in one column, never times 100: the mean over seeds, their deviation, the 95% interval."""

    score: float
    deviation: float | None
    interval: tuple[float, float] | None


class Way(NamedTuple):
    """One way to score a task: its split and its protocol's fields, as text, with the protocol's name."""

    task: str
    split: str
    protocol: str
    name: str


class GridColumn(NamedTuple):
    """One task scored in one way, or the mean over several such."""

    head: str
    parts: Sequence[Way]

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean over tasks."""
        return len(self.parts) > 1


class GridRow(NamedTuple):
    """One encoder: what tables call it, and a cell a column, None where it was not scored so."""

    name: str
    cells: Sequence[GridCell | None]


def grid_columns(results: Sequence[Result], catalogue: Catalogue) -> list[GridColumn]:
    """A column for each way to score a task, in the order of the results; behind them the means.

    There is a mean for each suite all of whose tasks are there, else one for each protocol of several tasks; none where
    the only suites of these tasks have no common mean.
    """
    ways = list(dict.fromkeys(map(_way, results)))
    times = Counter((way.task, way.split) for way in ways)
    columns = []
    for way in ways:
        split = "" if way.split in USUAL_SPLITS else f" ({way.split})"
        protocol = f", {way.name}" if times[way.task, way.split] > 1 else ""
        columns.append(GridColumn(f"{way.task}{split}{protocol}", [way]))
    return [*columns, *_means(ways, catalogue)]


def _way(result: Result) -> Way:
    return Way(result.task, result.split, protocol_key(result.protocol), str(result.protocol["name"]))


def _means(ways: Sequence[Way], catalogue: Catalogue) -> Iterator[GridColumn]:
    """Scores of other protocols or of splits that are not the usual have no mean with the rest."""
    alike: dict[tuple[str, ...], list[Way]] = {}
    times = Counter((way.task, way.name) for way in ways)
    for way in ways:
        # Tasks may fix fields of a protocol of one name; the same task scored twice under it is another protocol.
        fields = way.protocol if any(times[one.task, one.name] > 1 for one in ways if one.name == way.name) else ""
        alike.setdefault((way.name, fields, "" if way.split in USUAL_SPLITS else way.split), []).append(way)
    for mine in alike.values():
        tasks = {way.task: way for way in mine}
        suites = suites_within(list(tasks), catalogue).values()
        for suite in suites:
            if suite.average and len(suite.tasks) > 1:
                yield GridColumn(f"mean of {suite.name}", [tasks[task] for task in suite.tasks])
        if not suites and len(tasks) > 1 and len({way.protocol for way in mine}) == 1:
            # Of which tasks it is, the protocol tells.
            whose = f", {mine[0].name}" if len(alike) > 1 else ""
            yield GridColumn(f"mean of {len(tasks)}{whose}", list(tasks.values()))


def grid_row(runs: Runs, columns: Sequence[GridColumn]) -> GridRow:
    """An encoder's row; it has a mean where all its tasks were scored with the same seeds."""
    held: dict[Way, list[Result]] = {}
    for one in runs.results:
        held.setdefault(_way(one), []).append(one)
    return GridRow(runs.name, [_cell(column, held) for column in columns])


def _cell(column: GridColumn, held: Mapping[Way, Sequence[Result]]) -> GridCell | None:
    parts = [held.get(way, ()) for way in column.parts]
    seeds = {tuple(sorted(map(str, (one.seeds for one in part)))) for part in parts}
    if not all(parts) or len(seeds) > 1:
        return None
    first = parts[0][0]
    if len(parts) == len(parts[0]) == 1:
        return GridCell(first.score, None, first.interval)
    ordered = [sorted(part, key=lambda one: str(one.seeds)) for part in parts]
    scores = [sum(one.score for one in seed) / len(parts) for seed in zip(*ordered, strict=True)]
    mean = spread(scores)
    return GridCell(mean.mean, mean.deviation, mean_interval(parts))
