"""The HTML page as text: well formed, all cells, nothing loaded, nothing in a name that could run."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from stsbench.boards.published.encoder_facts import format_parameters
from stsbench.boards.published.rows import list_tables, read_sources
from stsbench.boards.render.formats import render
from stsbench.boards.render.html import distinguish_rows
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.table import (
    AVERAGE,
    EncoderTraits,
    Group,
    Row,
    Table,
    TableCell,
    TableColumn,
    TableNumber,
)
from tests.boards.shown import HOSTILE, UNROUNDED, standing, sts

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
        "a": TableCell(
            measured=TableNumber(70.126, interval=(68.0, 72.5)),
            published=TableNumber(70.0, None, 1),
        ),
        "b": TableCell(published=TableNumber(50.25, 0.25, 2), misprint="it is wrong"),
    }
    rows = [
        Row(
            label="first",
            cells=cells,
            published_key="p/t/r",
            encoder="e",
            quoted_from="SBERT",
            traits=EncoderTraits(
                "SimCSE",
                "BERT-base",
                "nli",
                languages=("deu", "eng", "xxx"),
                license="MIT",
                is_open=True,
            ),
        ),
        Row(label="second", cells={"a": TableCell(published=TableNumber(60.0))}),
    ]
    return Table(
        name="small", title="100% small", columns=columns, groups=[Group(title="x", rows=rows)]
    )


@pytest.mark.parametrize("name", ["small", *list_tables()])
def test_a_page_is_well_formed_with_all_cells(name):
    table = small() if name == "small" else build_table(name)
    reader = Reader(render([table], "html", show="both"))
    layout = build_layout(table, "both")
    lines = [line for block in layout.blocks for line in block.lines]
    cells = [
        [line.label + line.symbols, *(c.text + c.symbol + c.deviation for c in line.cells)]
        for line in lines
    ]
    assert [row for row in reader.rows[1:] if len(row) > 1] == cells
    assert reader.rows[0] == ["encoder", *layout.heads]


@pytest.mark.parametrize("name", ["small", *list_tables()])
def test_marks_lead_to_a_note_that_begins_with_them_and_ids_are_unique(name):
    text = render([small() if name == "small" else build_table(name)], "html")
    notes = dict(re.findall(r'<li id="([\w-]+)">(.)', text))
    marks = re.findall(r'<a class="mark" href="#([\w-]+)"[^>]*>(.)</a>', text)
    assert all(notes[target] == mark for target, mark in marks)
    assert marks or name not in ("small", "simcse-5", "sgopt-1")
    identities = Reader(text).attributes("id")
    assert len(identities) == len(set(identities))


@pytest.mark.parametrize("name", list_tables())
def test_a_page_loads_nothing(name):
    text = render([build_table(name)], "html")
    reader = Reader(text)
    assert {tag for tag, _ in reader.tags} & {
        "img",
        "link",
        "iframe",
        "object",
        "embed",
        "source",
        "base",
    } == set()
    assert reader.attributes("src") == reader.attributes("srcset") == []
    assert not re.search(
        r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", text
    )
    # Links lead within the page, or to papers and models; no browser tells them where it comes from.
    table = build_table(name)
    outside = {link for link in reader.attributes("href") if not link.startswith("#")}
    known = {one.url for one in read_sources().papers.values()}
    known |= {link for row in table.rows() for link in (row.traits.paper, row.traits.model)}
    assert outside <= known and all(link.startswith("https://") for link in outside)
    assert table.paper is None or table.paper.url in outside
    assert ("meta", {"name": "referrer", "content": "no-referrer"}) in reader.tags


def test_the_policy_lets_the_pages_own_script_run_and_no_other():
    text = render([small()], "html")
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    head = {"http-equiv": "Content-Security-Policy", "content": policy}
    assert ("meta", head) in Reader(text).tags


def test_a_hostile_name_is_text_everywhere():
    columns = [TableColumn(key=HOSTILE, head=HOSTILE)]
    cells = {HOSTILE: TableCell(published=TableNumber(1.0), misprint=HOSTILE)}
    row = Row(
        label=HOSTILE,
        cells=cells,
        published_key=HOSTILE,
        encoder=f"{HOSTILE}2",
        quoted_from=HOSTILE,
        misprint=HOSTILE,
        traits=EncoderTraits(
            HOSTILE, HOSTILE, HOSTILE, languages=(HOSTILE,), license=HOSTILE.lower()
        ),
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
    assert reader.attributes("data-languages") == [HOSTILE]
    assert reader.attributes("data-license") == [HOSTILE.lower()]


def test_an_interval_is_a_bar_that_says_its_ends():
    text = render([small()], "html")
    # The interval spans 4.5 points of a scale of 10: from 2.75 to 7.25, its score at 4.876.
    (bar,) = [attributes for tag, attributes in Reader(text).tags if tag == "i"]
    assert bar == {
        "class": "ci",
        "role": "img",
        "title": "95% interval 68.00 to 72.50",
        "data-low": "68.00",
        "data-high": "72.50",
        "style": "--a:27.5;--b:72.5;--m:48.8",
    }
    assert text.count('class="ci"') == 1
    assert "Bars: 95% intervals, on one scale in each column." in text
    assert "Bars:" not in render([small()], "html", show="published")


def test_ranks_have_no_bar_and_the_lowest_is_best():
    text = render([standing(small(), 1, 3, "ab", is_best=True)], "html")
    head = '<th scope="col" data-key="ranks" data-kind="ranks" data-better="low" data-method="Holm">Rank</th>'
    assert head in text and "<td>1–3</td><td>ab</td>" in text
    assert ">≈</a>" in text and '<li id="t1-note1">≈ ' in text
    assert text.count('class="ci"') == 1


def test_imported_rows_are_neither_measured_nor_published():
    row = Row(
        label="theirs", cells={"a": TableCell(published=TableNumber(1.0))}, imported="mteb 2.0"
    )
    text = render([replace(small(), groups=[Group(rows=[row])])], "html")
    tags = Reader(text).tags
    assert ("tr", {"data-side": "imported"}) in tags
    assert ("a", {"class": "mark", "href": "#t1-note1", "title": "mteb 2.0"}) in tags
    assert re.search(r">theirs</span><a [^>]*>°</a>", text)


def test_rows_say_what_filters_ask_for():
    text = render([small()], "html")
    published = {
        "data-encoder": "e",
        "data-method": "SimCSE",
        "data-backbone": "BERT-base",
        "data-supervision": "nli",
        "data-license": "mit",
        "data-languages": "German English xxx",
        "data-weights": "open",
        "data-side": "published",
    }
    tags = Reader(text).tags
    assert ("tr", published) in tags
    assert ("tr", {"class": "further", "data-side": "measured"}) in tags
    facts = "e · SimCSE · BERT-base · supervision: nli · published: p/t/r"
    assert f'<span class="facts">{facts}</span>' in text


def test_the_page_offers_licences_and_weights_and_its_search_finds_languages():
    text = render([small()], "html")
    for name in ("license", "weights"):
        assert f'<select id="{name}">' in text
        assert re.search(rf'TRAITS = \[.*"{name}"', text)
    assert "line.dataset.languages" in text


def test_boards_have_measured_and_published_numbers_unless_told_otherwise():
    table = build_table("sts", sts("simcse-bert-base", *UNROUNDED))
    text = render([table], "html")
    assert {'data-side="measured"', 'data-side="published"', 'data-side="difference"'} <= set(
        re.findall(r'data-side="\w+"', text)
    )
    assert 'class="further"' not in render([table], "html", show="merged")
    measured = render([table], "html", show="measured")
    traits = 'data-method="SimCSE" data-backbone="BERT-base" data-supervision="none"'
    assert f'{traits} data-parameters="109482240" data-year="2021"' in measured
    assert (
        'data-license="mit" data-languages="English" data-weights="open" data-side="measured"'
        in measured
    )


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


def scored(*values: float, half: float = 1.0) -> Table:
    """A table of one column, each score with an interval of so many points to either side."""
    rows = [
        Row(
            label=f"e{place}",
            cells={
                "a": TableCell(measured=TableNumber(value, interval=(value - half, value + half)))
            },
        )
        for place, value in enumerate(values)
    ]
    return Table(
        name="s", title="s", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=rows)]
    )


def bars(text: str) -> list[tuple[str, ...]]:
    """The classes of each bar, and where it begins, ends and has its score."""
    return re.findall(
        r'<i class="([\w ]+)" role="img" title="[^"]+" [^>]*--a:([\d.]+);--b:([\d.]+);--m:([\d.]+)"',
        text,
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
    assert [one[0] for one in bars(render([scored(70.0, 70.0, 70.0, 70.0, 66.0)], "html"))] == [
        "ci"
    ] * 5


def test_an_interval_that_leaves_the_scale_is_open_there():
    table = scored(70.0, 70.0, 70.0, 70.0)
    cells = {"a": TableCell(measured=TableNumber(64.9, interval=(60.0, 66.0)))}
    wide = replace(table, groups=[Group(rows=[*table.rows(), Row(label="w", cells=cells)])])
    # The scale is 65 to 75: the score is off it, its interval reaches into it.
    assert bars(render([wide], "html"))[-1] == ("ci low under", "0.0", "10.0", "0.0")


def test_details_lead_to_paper_model_and_the_source_of_a_row():
    text = render([build_table("simcse-5")], "html")
    facts = re.search(r'<span class="facts">(simcse-bert-base ·.*?)</span>', text)
    assert facts is not None
    assert facts[1] == (
        "simcse-bert-base · SimCSE · BERT-base · 109M parameters · supervision: none · 2021"
        ' · <a href="https://arxiv.org/abs/2104.08821" aria-label="paper: SimCSE-BERT-base">paper</a>'
        ' · <a href="https://huggingface.co/princeton-nlp/unsup-simcse-bert-base-uncased"'
        ' aria-label="model: SimCSE-BERT-base">model</a>'
        ' · published: <a href="https://arxiv.org/abs/2104.08821">simcse/table-5/SimCSE-BERT-base</a>'
    )


@pytest.mark.parametrize(
    ("count", "said"),
    [(22_713_216, "22.7M"), (99_960_000, "100M"), (6.7e9, "6.7B"), (4e5, "0.4M")],
)
def test_parameters_are_written_to_three_digits(count, said):
    assert format_parameters(int(count)) == said


def named(*rows: Row, **facts: str) -> list[str]:
    table = Table(name="n", title="n", columns=[], groups=[Group(rows=rows, **facts)])
    found = distinguish_rows(table)
    return [found[id(row)].text if id(row) in found else "" for row in rows]


def test_rows_of_one_name_are_told_apart_by_what_differs():
    row = Row(label="x", cells={}, traits=EncoderTraits("M", "BERT-base", "none"))
    large, nli = EncoderTraits("M", "BERT-large", "none"), EncoderTraits("M", "BERT-base", "nli")
    assert named(row, replace(row, label="y")) == ["", ""]
    assert named(row, replace(row, traits=large)) == ["BERT-base", "BERT-large"]
    assert named(row, replace(row, traits=nli)) == ["supervision none", "supervision nli"]
    both = replace(row, traits=EncoderTraits("M", "BERT-large", "nli"))
    assert named(row, replace(row, traits=large), both)[2] == "BERT-large, supervision nli"
    old, new = (replace(row, published_key=f"{paper}/table-1/x") for paper in ("sbert", "sgopt"))
    assert named(old, new) == ["SBERT 2019, table 1", "SG-OPT 2021, table 1"]
    assert named(old, replace(old, published_key="sbert/table-2/x")) == [
        "SBERT 2019, table 1",
        "SBERT 2019, table 2",
    ]
    # A row without a text needs no number beside one that has a text.
    assert named(row, replace(row, encoder="mine")) == ["", "mine"]
    # Nothing differs.
    assert named(row, replace(row)) == ["no. 1", "no. 2"]


def test_every_row_of_a_page_has_a_name_of_its_own():
    for name in list_tables():
        table = build_table(name)
        apart = distinguish_rows(table)
        names = [
            row.label + (apart[id(row)].text if id(row) in apart else "") for row in table.rows()
        ]
        assert len(names) == len(set(names)), name


def test_what_the_title_of_a_group_says_is_told_without_groups_only():
    text = render([build_table("sgopt-1")], "html")
    assert '>No tuning, CLS</span><span class="apart grouped"> BERT-base</span>' in text
    alike = [
        Row(label="x", cells={"a": TableCell(published=TableNumber(1.0))}, encoder=name)
        for name in "ab"
    ]
    table = Table(
        name="n", title="n", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=alike)]
    )
    assert '<span class="name">x</span><span class="apart"> a</span>' in render([table], "html")
    below = Group(title="Below", rows=[replace(alike[0])])
    text = render([replace(table, groups=[Group(rows=alike[:1]), below])], "html")
    assert re.findall(r"x</span>(<span class=.apart.*?</span>)?", text) == [
        "",
        '<span class="apart grouped"> Below</span>',
    ]


def test_a_long_name_breaks_before_a_parameter():
    row = Row(label="minilm+pooling=max", cells={"a": TableCell(published=TableNumber(1.0))})
    table = Table(
        name="n", title="n", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=[row])]
    )
    assert '<span class="name">minilm<wbr>+pooling=max</span>' in render([table], "html")
