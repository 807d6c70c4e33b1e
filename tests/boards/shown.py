"""Helpers of the tests of tables."""

from __future__ import annotations

from typing import Any

from stsbench.boards.tables import table as laid
from stsbench.boards.tables.layout import Layout
from stsbench.boards.tables.table import (
    AVERAGE,
    EXACT,
    Group,
    Row,
    Table,
    TableCell,
    TableColumn,
    TableNumber,
)
from stsbench.results.record import Result
from stsbench.significance.ranks import RowStanding
from tests.made import make_result

STS = ["sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr"]
UNROUNDED = (0.12344, 0.22344, 0.32344, 0.42344, 0.52344, 0.62344, 0.72344)
HOSTILE = """</script><script>x()</script>"'><img src=http://x.invalid onerror=x()>&amp;$title"""


def sts(encoder: str, *scores: float, tasks: list[str] = STS, **changes: Any) -> list[Result]:
    """Results on the tasks, each score also as weighted mean, a point lower, and as Pearson, two points higher."""
    return [
        make_result(
            encoder,
            task,
            score,
            scores={
                "spearman.all": score,
                "spearman.wmean": score - 0.01,
                "pearson.wmean": score + 0.02,
            },
            **changes,
        )
        for task, score in zip(tasks, scores, strict=True)
    ]


def standing(
    table: Table, low: int, high: int, letters: str = "a", *, is_best: bool = False
) -> Table:
    """The table with a standing of its first row, whose rank is the lowest that it may have."""
    return laid.add_standings(table, {0: RowStanding(low, (low, high), letters, is_best, ())})


def row(table: Table, label: str) -> Row:
    (found,) = [one for one in table.rows() if one.label == label]
    return found


def shown(layout: Layout, label: str) -> list[str]:
    (found,) = [
        line
        for block in layout.blocks
        for line in block.lines
        if line.label + line.symbols == label
    ]
    return [cell.text + cell.deviation + cell.symbol for cell in found.cells]


NASTY = r"a_b|c*d&e%f$g#h{i}~j^k\l<m>"


def small() -> Table:
    """Two groups; one row with both numbers, a misprint, a deviation, and a name full of signs."""
    columns = [
        TableColumn(key="a", head="A"),
        TableColumn(key="b", head="B"),
        TableColumn(key=AVERAGE, head="Avg.", kind="average"),
        TableColumn(key=EXACT, head="Avg. (exact)", kind="exact", decimals=4),
    ]
    first = Row(
        label=NASTY,
        published_key="p/t/r",
        encoder="e",
        quoted_from="SBERT",
        cells={
            "a": TableCell(measured=TableNumber(70.126, 0.5), published=TableNumber(70.0, None, 1)),
            "b": TableCell(published=TableNumber(50.25, 0.25, 2), misprint="it is wrong"),
            AVERAGE: TableCell(published=TableNumber(60.12, None, 2)),
            EXACT: TableCell(published=TableNumber(60.125)),
        },
    )
    second = Row(label="second", cells={"a": TableCell(published=TableNumber(60.0, None, 2))})
    third = Row(
        label="third",
        cells={"a": TableCell(published=TableNumber(1.0, None, 2))},
        other_protocol="wmean",
    )
    groups = [
        Group(section="One & two", title="x_y", rows=[first, second]),
        Group(section="One & two", rows=[third]),
    ]
    return Table(
        name="small", title="100% small", columns=columns, groups=groups, notes=["a note_"]
    )


def named(label: str) -> Table:
    """A table of one row of this name, with a negative number."""
    columns = [TableColumn(key="a", head="A")]
    row = Row(label=label, encoder=label, cells={"a": TableCell(measured=TableNumber(-4.28))})
    return Table(name="n", title="t", columns=columns, groups=[Group(title=label, rows=[row])])
