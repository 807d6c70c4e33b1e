"""HTML pages of tables, and a browser that opens them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stsbench.boards.render import render
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.intervals import with_standings
from stsbench.boards.tables.table import Group, Number, Row, Table, TableCell, TableColumn
from tests.boards.browser import NAMES, Page, find_browser, open_browser
from tests.boards.shown import UNROUNDED, standing, sts
from tests.boards.test_html import HOSTILE

MINILM = (0.72, 0.80, 0.75, 0.85, 0.78, 0.82, 0.77)


def measured(value: float, low: float, high: float) -> TableCell:
    return TableCell(measured=Number(value, interval=(low, high)))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages: a paper's table and our own board, both with measured numbers, and one with a hostile name."""
    made = tmp_path_factory.mktemp("pages")
    results = [*sts("simcse-bert-base", *UNROUNDED), *sts("minilm", *MINILM), *sts("stranger", *UNROUNDED[::-1])]
    hostile = Row(label=HOSTILE, cells={"a": TableCell(published=Number(1.0))})
    strange = Table(name="n", title=HOSTILE, columns=[TableColumn(key="a", head="A")], groups=[Group(rows=[hostile])])
    rows = [Row(label=label, cells={"a": TableCell(measured=Number(1.0))}) for label in "abc"]
    plain = Table(name="r", title="r", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=rows)])
    a, b = TableColumn(key="a", head="A"), TableColumn(key="b", head="B")
    formula = {"a": TableCell(measured=Number(-1.5, interval=(-2.0, -1.0)))}
    trio = [
        Row(
            label="one",
            encoder="one",
            cells={
                "a": measured(70.0, 69.0, 71.0),
                "b": TableCell(measured=Number(61.0, 1.5, interval=(58.0, 64.0), seeds=3)),
            },
        ),
        Row(label="two", encoder="two", cells={"a": measured(70.5, 68.0, 73.0)}),
        Row(label="three", cells={"a": TableCell(published=Number(60.0))}, otherwise="wmean"),
    ]
    wide = [TableColumn(key=f"c{at}", head=f"Task number {at}") for at in range(30)]
    long = Row(label="a-name-without-end" * 5, cells={one.key: measured(50.0, 40.0, 60.0) for one in wide})
    for name, tables in {
        "paper": [build_table("simcse-5", results)],
        "board": [build_table("sts", results)],
        "declutr": [build_table("declutr-2")],
        "two": [build_table("simcse-5"), build_table("simcse-e1")],
        "hostile": [strange],
        "alike": [build_table("sgopt-1")],
        "multilingual": [build_table("multilingual")],
        "many": [Table(name="w", title="w", columns=wide, groups=[Group(rows=[long])])],
        "intervals": [Table(name="i", title="i", columns=[a, b], groups=[Group(rows=trio)])],
        "formula": [
            with_standings(
                Table(name="f", title="f", columns=[a], groups=[Group(rows=[Row(label='=1+1, "x"', cells=formula)])]),
                {0: standing(1, 3)},
            )
        ],
        "ranked": [with_standings(plain, {0: standing(10, 12, "bc"), 1: standing(1, 2), 2: standing(2, 11, "ab")})],
    }.items():
        (made / f"{name}.html").write_text(render(tables, "html"), encoding="utf-8")
    return made


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = find_browser()
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with open_browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened
