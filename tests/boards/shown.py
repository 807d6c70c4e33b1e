"""Helpers of the tests of tables."""

from __future__ import annotations

from typing import Any

from stsbench.boards.tables.table import Layout, Row, Table
from stsbench.results.record import Result
from stsbench.significance.means import RowStanding
from tests.made import make_result

STS = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
UNROUNDED = (0.12344, 0.22344, 0.32344, 0.42344, 0.52344, 0.62344, 0.72344)


def sts(encoder: str, *scores: float, tasks: list[str] = STS, **changes: Any) -> list[Result]:
    """Results on the tasks, each score also as weighted mean, a point lower, and as Pearson, two points higher."""
    return [
        make_result(
            encoder,
            task,
            score,
            scores={"spearman.all": score, "spearman.wmean": score - 0.01, "pearson.wmean": score + 0.02},
            **changes,
        )
        for task, score in zip(tasks, scores, strict=True)
    ]


def standing(low: int, high: int, letters: str = "a", *, is_best: bool = False) -> RowStanding:
    """A row's standing whose rank is the lowest that it may have."""
    return RowStanding(low, (low, high), letters, is_best, ())


def row(table: Table, label: str) -> Row:
    (found,) = [one for one in table.rows() if one.label == label]
    return found


def shown(layout: Layout, label: str) -> list[str]:
    (found,) = [line for block in layout.blocks for line in block.lines if line.label + line.marks == label]
    return [cell.text + cell.deviation + cell.mark for cell in found.cells]
