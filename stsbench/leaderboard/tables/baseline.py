"""The majority baseline of classification tasks, a row below the encoders: what a constant embedding scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stsbench.leaderboard.tables.averages import mean_of
from stsbench.leaderboard.tables.runs import Wanted
from stsbench.leaderboard.tables.table import AVERAGE, EXACT, Group, Number, Row, TableCell, Terms
from stsbench.results.record import Result

SECTION, LABEL = "Baseline", "majority class"
Levels = Mapping[tuple[str, str], float]
"""Points by task and split."""


def majority_levels(results: Sequence[Result]) -> Levels:
    """The share of the most frequent class in points, as the results of any encoder hold it."""
    return {(r.task, r.split): 100 * r.scores["majority"] for r in results if "majority" in r.scores}


def of_columns(levels: Levels, columns: Mapping[str, Wanted | None]) -> dict[str, float]:
    """The levels of these columns by key; none where another metric than accuracy is wanted."""
    return {
        key: levels[wanted.task, wanted.split]
        for key, wanted in columns.items()
        if wanted is not None and wanted.metric == "accuracy" and (wanted.task, wanted.split) in levels
    }


def baseline_groups(levels: Mapping[str, float], average: Terms) -> list[Group]:
    """One group of one row, so that it is never ranked with encoders; none where no level is known.

    Args:
        levels: by column key, in points.
        average: the columns that are averaged, if any.
    """
    if not levels:
        return []
    numbers = {key: Number(value) for key, value in levels.items()}
    mean = mean_of(average, levels.get)
    if mean is not None:
        numbers |= dict.fromkeys((AVERAGE, EXACT), Number(mean))
    cells = {key: TableCell(measured=number) for key, number in numbers.items()}
    return [Group(section=SECTION, rows=[Row(label=LABEL, cells=cells, is_baseline=True)])]
