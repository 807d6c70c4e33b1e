"""The HTML page as text: well formed, all cells, nothing loaded, nothing in a name that could run."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from stsbench.boards.published import sources, table_names
from stsbench.boards.render import render
from stsbench.boards.tables.build import build_table, suite_tables
from stsbench.boards.tables.intervals import with_standings
from stsbench.boards.tables.table import AVERAGE, Group, Number, Row, Table, TableCell, TableColumn, Traits, lay_out
from stsbench.core.catalogue import Catalogue
from tests.boards.shown import UNROUNDED, standing, sts

HOSTILE = """</script><script>x()</script>"'><img src=http://x.invalid onerror=x()>&amp;$title"""
VOID = {"meta", "input", "img", "wbr"}
ASIDE = {"facts", "of", "apart", "apart grouped"}
"""Classes of text that stands in a row's head beside the label."""


class Reader(HTMLParser):
    """Reads tags, cells by row and ids, and checks that every tag that opens is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.rows: list[list[str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append((tag, dict(attrs).get("class") or ""))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        tags, classes = {tag for tag, _ in self.open}, {name for _, name in self.open}
        if {"td", "th"} & tags and not ASIDE & classes:
            self.rows[-1][-1] += data

    def attributes(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags if name in attrs]


def small() -> Table:
    """One group; a row with both numbers, an interval, a misprint and a deviation."""
    columns = [
        TableColumn(key="a", head="A"),
        TableColumn(key="b", head="B"),
        TableColumn(key=AVERAGE, head="Avg.", kind="average"),
    ]
    cells = {
        "a": TableCell(measured=Number(70.126, interval=(68.0, 72.5)), published=Number(70.0, None, 1)),
        "b": TableCell(published=Number(50.25, 0.25, 2), misprint="it is wrong"),
    }
    rows = [
        Row(
            label="first",
            cells=cells,
            key="p/t/r",
            encoder="e",
            quoted="SBERT",
            traits=Traits("SimCSE", "BERT-base", "nli"),
        ),
        Row(label="second", cells={"a": TableCell(published=Number(60.0))}),
    ]
    return Table(name="small", title="100% small", columns=columns, groups=[Group(title="x", rows=rows)])


@pytest.mark.parametrize("name", ["small", *table_names()])
def test_a_page_is_well_formed_with_all_cells(name):
    table = small() if name == "small" else build_table(name)
    reader = Reader(render([table], "html", show="both"))
    layout = lay_out(table, "both")
    lines = [line for block in layout.blocks for line in block.lines]
    cells = [[line.label + line.marks, *(c.text + c.mark + c.deviation for c in line.cells)] for line in lines]
    assert [row for row in reader.rows[1:] if len(row) > 1] == cells
    assert reader.rows[0] == ["encoder", *layout.heads]


@pytest.mark.parametrize("name", ["small", *table_names()])
def test_marks_lead_to_a_note_that_begins_with_them_and_ids_are_unique(name):
    text = render([small() if name == "small" else build_table(name)], "html")
    notes = dict(re.findall(r'<li id="([\w-]+)">(.)', text))
    marks = re.findall(r'<a class="mark" href="#([\w-]+)"[^>]*>(.)</a>', text)
    assert all(notes[target] == mark for target, mark in marks)
    assert marks or name not in ("small", "simcse-5", "sgopt-1")
    identities = Reader(text).attributes("id")
    assert len(identities) == len(set(identities))


@pytest.mark.parametrize("name", table_names())
def test_a_page_loads_nothing(name):
    text = render([build_table(name)], "html")
    reader = Reader(text)
    assert {tag for tag, _ in reader.tags} & {"img", "link", "iframe", "object", "embed", "source", "base"} == set()
    assert reader.attributes("src") == reader.attributes("srcset") == []
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", text)
    # Links lead within the page, or to papers and models; no browser tells them where it comes from.
    table = build_table(name)
    outside = {link for link in reader.attributes("href") if not link.startswith("#")}
    known = {one.url for one in sources().papers.values()}
    known |= {link for row in table.rows() for link in (row.traits.paper, row.traits.model)}
    assert outside <= known and all(link.startswith("https://") for link in outside)
    assert table.paper is None or table.paper.url in outside
    assert '<meta name="referrer" content="no-referrer">' in text


def test_a_page_of_all_tables_is_small():
    text = render([build_table(name) for name in table_names()], "html")
    assert text.count("<caption>") == len(table_names()) and len(text.encode()) < 5_000_000


def test_the_policy_lets_the_pages_own_script_run_and_no_other():
    text = render([small()], "html")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert f'http-equiv="Content-Security-Policy" content="{policy}"' in text


def test_a_hostile_name_is_text_everywhere():
    columns = [TableColumn(key=HOSTILE, head=HOSTILE)]
    cells = {HOSTILE: TableCell(published=Number(1.0), misprint=HOSTILE)}
    row = Row(
        label=HOSTILE,
        cells=cells,
        key=HOSTILE,
        encoder=f"{HOSTILE}2",
        quoted=HOSTILE,
        misprint=HOSTILE,
        traits=Traits(HOSTILE, HOSTILE, HOSTILE),
    )
    groups = [Group(section=HOSTILE, title=HOSTILE, rows=[row])]
    table = Table(name=HOSTILE, title=HOSTILE, columns=columns, groups=groups, notes=[HOSTILE])
    plain = Table(name="a", title="a", columns=columns[:0], groups=[])
    reader = Reader(render([table], "html"))
    known = {tag for tag, _ in reader.tags}
    assert known <= {tag for tag, _ in Reader(render([small(), plain], "html")).tags}
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert not any(name.startswith("on") for _, attrs in reader.tags for name in attrs)
    assert reader.rows[0] == ["encoder", HOSTILE] and HOSTILE in reader.rows[-1][0]
    for name in ("data-method", "data-backbone", "data-supervision", "data-key"):
        assert reader.attributes(name) == [HOSTILE]


def test_the_best_is_bold_and_the_second_best_underlined():
    text = render([small()], "html", show="both")
    assert "<b>70.0</b>" in text and "<u>60.00</u>" in text
    assert "<b>Bold</b>: best of its group; <u>underlined</u>: second best, measured and published apart." in text
    assert "second best." in render([small()], "html", show="published")


def test_an_interval_is_a_bar_that_says_its_ends():
    text = render([small()], "html")
    # The interval spans 4.5 points of a scale of 10: from 2.75 to 7.25, its score at 4.876.
    ends = 'data-low="68.00" data-high="72.50" style="--a:27.5;--b:72.5;--m:48.8"'
    assert f'<i class="ci" role="img" title="95% interval 68.00 to 72.50" {ends}>' in text
    assert text.count('class="ci"') == 1
    assert "Bars: 95% intervals, on one scale in each column." in text
    assert "Bars:" not in render([small()], "html", show="published")


def test_ranks_have_no_bar_and_the_lowest_is_best():
    text = render([with_standings(small(), {0: standing(1, 3, "ab", is_best=True)})], "html")
    head = '<th scope="col" data-key="ranks" data-kind="ranks" data-better="low">Rank</th>'
    assert head in text and "<td>1–3</td><td>ab</td>" in text
    assert ">≈</a>" in text and '<li id="t1-note1">≈ best by the mean, or not significantly different' in text
    assert text.count('class="ci"') == 1


def test_imported_rows_are_neither_measured_nor_published():
    row = Row(label="theirs", cells={"a": TableCell(published=Number(1.0))}, imported="mteb 2.0")
    text = render([replace(small(), groups=[Group(rows=[row])])], "html")
    assert '<tr data-side="imported">' in text
    assert re.search(r'>theirs</span><a class="mark" href="#t1-note1" title="mteb 2.0">°</a>', text)


def test_rows_say_what_filters_ask_for():
    text = render([small()], "html")
    traits = 'data-method="SimCSE" data-backbone="BERT-base" data-supervision="nli"'
    assert f'<tr data-encoder="e" {traits} data-side="published">' in text
    assert '<tr class="further" data-side="measured">' in text
    facts = "e · SimCSE · BERT-base · supervision: nli · published: p/t/r"
    assert f'<span class="facts">{facts}</span>' in text


def test_boards_have_measured_and_published_numbers_unless_told_otherwise():
    table = build_table("sts", sts("simcse-bert-base", *UNROUNDED))
    text = render([table], "html")
    assert {'data-side="measured"', 'data-side="published"', 'data-side="difference"'} <= set(
        re.findall(r'data-side="\w+"', text)
    )
    assert 'class="further"' not in render([table], "html", show="merged")
    measured = render([table], "html", show="measured")
    traits = 'data-method="SimCSE" data-backbone="BERT-base" data-supervision="none"'
    assert f'{traits} data-parameters="109482240" data-year="2021" data-side="measured"' in measured


def test_a_suites_board_knows_cards_and_takes_other_encoders_as_they_are():
    results = [*sts("simcse-bert-base", *UNROUNDED), *sts("stranger", *UNROUNDED)]
    catalogue = Catalogue()
    suite = catalogue.suites()["sts"]
    (board,) = suite_tables(results, "sts", suite, catalogue, scored=dict.fromkeys(suite.tasks, "test"))
    traits = {row.label: row.traits for row in board.rows()}
    assert traits["simcse-bert-base"][:5] == ("SimCSE", "BERT-base", "none", 109482240, 2021)
    assert traits["stranger"] == Traits()


def test_heads_and_regions_are_named_for_those_who_hear_the_page():
    reader = Reader(render([small(), small()], "html"))
    regions = [attrs for _, attrs in reader.tags if attrs.get("role") == "region"]
    assert [one["aria-labelledby"] for one in regions] == ["t1-caption", "t2-caption"]
    assert {one["tabindex"] for one in regions} == {"0"}
    heads = [attrs.get("scope") for tag, attrs in reader.tags if tag == "th"]
    assert heads == 2 * [*["col"] * 3, "rowgroup", *["row"] * 4]
    fields = [attrs for tag, attrs in reader.tags if tag == "input"]
    assert [one.get("type") for one in fields] == ["search", *["number"] * 4, *["checkbox"] * 3]
    assert all(one["aria-label"] for one in fields if one["type"] != "checkbox")
