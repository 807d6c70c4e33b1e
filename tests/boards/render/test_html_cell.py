"""Bars of intervals in HTML: their scale, and what is off it."""

from __future__ import annotations

import re
from dataclasses import replace

from stsbench.boards.render import render
from stsbench.boards.tables.table import Group, Number, Row, Table, TableCell, TableColumn


def scored(*values: float, half: float = 1.0) -> Table:
    """A table of one column, each score with an interval of so many points to either side."""
    rows = [
        Row(label=f"e{place}", cells={"a": TableCell(measured=Number(value, interval=(value - half, value + half)))})
        for place, value in enumerate(values)
    ]
    return Table(name="s", title="s", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=rows)])


def bars(text: str) -> list[tuple[str, ...]]:
    """The classes of each bar, and where it begins, ends and has its score."""
    return re.findall(
        r'<i class="([\w ]+)" role="img" title="[^"]+" [^>]*--a:([\d.]+);--b:([\d.]+);--m:([\d.]+)"', text
    )


def test_one_outlier_does_not_set_the_scale_and_stands_as_an_arrow():
    usual = (70.0, 71.0, 72.0, 75.0, 79.0, 80.0)
    alone, beside = bars(render([scored(*usual)], "html")), render([scored(*usual, 20.0)], "html")
    assert bars(beside)[:-1] == alone
    assert bars(beside)[-1] == ("ci low under", "0.0", "0.0", "0.0")
    assert 'title="95% interval 19.00 to 21.00, off the scale"' in beside
    assert "on one scale in each column; an arrow: the score is off the scale." in beside
    assert "an arrow: the score" not in render([scored(*usual)], "html")
    assert bars(render([scored(*usual, 99.0)], "html"))[-1][0] == "ci high over"


def test_scores_that_spread_are_all_on_the_scale():
    found = bars(render([scored(20.0, 40.0, 60.0, 80.0)], "html"))
    assert [one[0] for one in found] == ["ci"] * 4
    assert (found[0][1], found[-1][2]) == ("0.0", "100.0")
    # Equal scores have quartiles without a distance: what is near them is no outlier.
    assert [one[0] for one in bars(render([scored(70.0, 70.0, 70.0, 70.0, 66.0)], "html"))] == ["ci"] * 5


def test_an_interval_that_leaves_the_scale_is_open_there():
    table = scored(70.0, 70.0, 70.0, 70.0)
    cells = {"a": TableCell(measured=Number(64.9, interval=(60.0, 66.0)))}
    wide = replace(table, groups=[Group(rows=[*table.rows(), Row(label="w", cells=cells)])])
    # The scale is 65 to 75: the score is off it, its interval reaches into it.
    assert bars(render([wide], "html"))[-1] == ("ci low under", "0.0", "10.0", "0.0")
