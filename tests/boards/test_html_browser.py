"""The HTML page in a browser: sorted and filtered; it asks for nothing and shows names as they are."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stsbench.boards.render.formats import render
from stsbench.boards.render.html import to_html
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.request import TableRequest
from stsbench.boards.tables.table import Group, Row, Table, TableCell, TableColumn, TableNumber
from tests.boards.browser import NAMES, Page, find_browser, open_browser
from tests.boards.shown import HOSTILE, STS, UNROUNDED, standing, sts
from tests.made import CATALOGUE


@pytest.mark.parametrize("name", ["paper", "board", "hostile"])
def test_a_page_asks_for_nothing_but_itself_and_has_no_errors(page, folder, name):
    path = folder / f"{name}.html"
    page.open(path)
    page.run("new Promise((done) => setTimeout(done, 50))")
    assert page.requests() == [path.as_uri()]
    assert page.complaints() == []


def test_a_hostile_name_is_shown_as_it_is(page, folder):
    page.open(folder / "hostile.html")
    assert page.run(LABELS) == [HOSTILE]
    assert page.run("document.title") == HOSTILE and page.run("document.images.length") == 0
    choose(page, "search", "onerror=x")
    assert page.run(LABELS) == [HOSTILE]


def test_a_head_sorts_best_first_then_worst_first_then_as_before(page, folder):
    page.open(folder / "board.html")
    click(page, "#groups")
    before = page.run(LABELS)
    state = 'document.querySelector("thead th:nth-child(2)").getAttribute("aria-sort")'
    assert page.run(state) is None
    click(page, "thead th:nth-child(2) button")
    down = [float(text) for text in column(page, 2)]
    assert down == sorted(down, reverse=True) and len(down) > 50 and page.run(state) == "descending"
    assert page.run(LABELS) != before
    click(page, "thead th:nth-child(2) button")
    up = [float(text) for text in column(page, 2)]
    assert up == sorted(up) and page.run(state) == "ascending"
    click(page, "thead th:nth-child(2) button")
    assert page.run(LABELS) == before and page.run(state) is None


def test_sizes_are_sorted_as_numbers(page, tmp_path):
    request = TableRequest(catalogue=CATALOGUE, show="published")
    path = tmp_path / "sizes.html"
    path.write_text(to_html(request.make_boards("mteb-deu-v1-sts").tables, "published"))
    page.open(path)
    click(page, "thead th:nth-child(5) button")
    texts = [text for text in column(page, 5) if text != "–"]
    sizes = [float(text[:-1]) * {"M": 1, "B": 1000}[text[-1]] for text in texts]
    assert sizes == sorted(sizes, reverse=True) and {text[-1] for text in texts} == {"M", "B"}


def test_within_groups_a_row_keeps_its_further_lines_below_it(page, folder):
    page.open(folder / "paper.html")
    titles = page.run(TITLES)
    assert titles[:3] == ["Unsupervised", "Word vectors and BERT-base", "RoBERTa-base"]
    click(page, "thead th:nth-child(2) button")
    click(page, "thead th:nth-child(2) button")
    labels = page.run(LABELS)
    assert labels[:2] == ["BERT-base (first-last avg.)", "GloVe (avg.)"]
    at = labels.index("SimCSE-BERT-base")
    assert labels[at : at + 3] == ["SimCSE-BERT-base", "SimCSE-BERT-base: ", "SimCSE-BERT-base: "]
    assert page.run(TITLES) == titles
    click(page, "#groups")
    assert page.run(TITLES) == []
    assert sorted(page.run(LABELS)) == sorted(labels)
    click(page, "#groups")
    assert page.run(LABELS) == labels and page.run(TITLES) == titles


def test_choices_hide_rows_and_say_how_many_are_left(page, folder):
    page.open(folder / "board.html")
    whole = len(page.run(LABELS))
    choose(page, "method", "SimCSE")
    simcse = page.run(LABELS)
    assert 0 < len(simcse) < whole and all("simcse" in label.lower() for label in simcse)
    choose(page, "backbone", "RoBERTa-large")
    assert all("roberta-large" in label.lower() for label in page.run(LABELS))
    choose(page, "supervision", "nli")
    assert page.run(TITLES) == ["Trained on NLI labels"]
    (left,) = page.run(LABELS)
    assert left.startswith("SimCSE-RoBERTa-large (sup.)")
    assert page.run('document.getElementById("status").textContent').startswith("1 of ")
    click(page, "#clear")
    assert len(page.run(LABELS)) == whole


MINILM = (0.72, 0.80, 0.75, 0.85, 0.78, 0.82, 0.77)


def measured(value: float, low: float, high: float) -> TableCell:
    return TableCell(measured=TableNumber(value, interval=(low, high)))


MARKED = """[...document.querySelectorAll("tbody tr:not([hidden]) > :last-child b")]
    .filter((cell) => cell.getClientRects().length).map((cell) => cell.textContent)"""


def test_bold_is_the_best_of_what_is_shown(page, folder):
    page.open(folder / "board.html")
    before = page.run(MARKED)
    # At first each group of several rows has its best.
    assert 1 < len(before) <= len(page.run(TITLES))
    choose(page, "search", "simcse large")
    shown = [float(text) for text in column(page, 9)]
    assert [float(text) for text in page.run(MARKED)] == [max(shown)] and len(shown) > 4
    assert "best of the rows shown" in page.run('document.querySelector(".ranks").textContent')
    choose(page, "search", "")
    assert page.run(MARKED) == before
    assert "best of its group" in page.run('document.querySelector(".ranks").textContent')
    click(page, "#groups")
    whole = [float(text) for text in column(page, 9)]
    # Measured and published numbers are marked apart.
    published, measured = sorted(map(float, page.run(MARKED)), reverse=True)
    assert published == max(whole) and measured in whole


def test_a_search_without_a_row_says_so_and_shows_all_again(page, folder):
    page.open(folder / "board.html")
    whole = len(page.run(LABELS))
    assert page.run('document.getElementById("empty").hidden')
    choose(page, "search", "no such encoder")
    assert page.run('document.getElementById("empty").getClientRects().length') == 1
    assert page.run("document.querySelector('.scroll').hidden") and page.run(LABELS) == []
    click(page, "#empty button")
    assert len(page.run(LABELS)) == whole and page.run('document.getElementById("empty").hidden')


def test_links_are_underlined_and_the_page_has_one_heading(page, folder):
    page.open(folder / "board.html")
    lines = (
        "[...new Set([...document.links].map((link) => getComputedStyle(link).textDecorationLine))]"
    )
    assert page.run(lines) == ["underline"]
    assert page.run("document.querySelectorAll('h1').length") == 1


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages: a paper's table and our own board, both with measured numbers, and one with a hostile name."""
    made = tmp_path_factory.mktemp("pages")
    results = [
        *sts("simcse-bert-base", *UNROUNDED),
        *sts("minilm", *MINILM),
        *sts("stranger", *UNROUNDED[::-1]),
    ]
    hostile = Row(label=HOSTILE, cells={"a": TableCell(published=TableNumber(1.0))})
    strange = Table(
        name="n",
        title=HOSTILE,
        columns=[TableColumn(key="a", head="A")],
        groups=[Group(rows=[hostile])],
    )
    a, b = TableColumn(key="a", head="A"), TableColumn(key="b", head="B")
    formula = {"a": TableCell(measured=TableNumber(-1.5, interval=(-2.0, -1.0)))}
    trio = [
        Row(
            label="one",
            encoder="one",
            cells={
                "a": measured(70.0, 69.0, 71.0),
                "b": TableCell(measured=TableNumber(61.0, 1.5, interval=(58.0, 64.0), seeds=3)),
            },
        ),
        Row(label="two", encoder="two", cells={"a": measured(70.5, 68.0, 73.0)}),
        Row(
            label="three",
            cells={"a": TableCell(published=TableNumber(60.0))},
            other_protocol="wmean",
        ),
    ]
    for name, tables in {
        "paper": [build_table("simcse-5", results)],
        "board": [build_table("sts", results)],
        "hostile": [strange],
        "intervals": [Table(name="i", title="i", columns=[a, b], groups=[Group(rows=trio)])],
        "formula": [
            standing(
                Table(
                    name="f",
                    title="f",
                    columns=[a],
                    groups=[Group(rows=[Row(label='=1+1, "x"', cells=formula)])],
                ),
                1,
                3,
            )
        ],
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


LABELS = """[...document.querySelectorAll("tbody tr:not(.title) th[scope=row]")]
    .filter((head) => head.getClientRects().length).map((head) => head.firstChild.textContent)"""
TITLES = """[...document.querySelectorAll(".section, .title")].filter((one) => one.getClientRects().length)
    .map((one) => one.textContent)"""
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"


def choose(page: Page, field: str, value: str) -> None:
    page.run(f"""{{ const field = document.getElementById("{field}"); field.value = "{value}";
        field.dispatchEvent(new Event("input", {{ bubbles: true }})); }}""")


def click(page: Page, selector: str) -> None:
    page.run(f"document.querySelector({selector!r}).click()")


def column(page: Page, place: int) -> list[str]:
    cells = page.run(f"""[...document.querySelectorAll("tbody tr:not(.further) > :nth-child({place}):is(td)")]
        .filter((cell) => cell.getClientRects().length).map((cell) => cell.firstChild.textContent)""")
    return [text for text in cells if text != "–"]


def heads(page: Page) -> list[Any]:
    shown: list[Any] = page.run("""[...document.querySelectorAll("thead th")]
        .filter((head) => head.getClientRects().length).map((head) => head.textContent)""")
    return shown


def settle(page: Page) -> None:
    """Wait until the state is in the address."""
    page.run("new Promise((done) => setTimeout(done, 250))")


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("name", ["paper", "board", "hostile"])
def test_on_a_phone_only_the_table_scrolls_sideways(page, folder, name, script):
    page.open(folder / f"{name}.html", width=360, height=740, script=script)
    width, window = page.run(WIDTHS)
    assert width == window == 360
    sizes = page.run("""[...document.querySelectorAll("body *")].filter((one) => one.getClientRects().length
        && one.textContent.trim() && !one.children.length).map((one) => parseFloat(getComputedStyle(one).fontSize))""")
    assert min(sizes) >= 13


def test_without_script_the_page_is_plain_tables(page, folder):
    page.open(folder / "paper.html", script=False)
    assert page.run(LABELS)[0] == "GloVe (avg.)" and len(page.run(LABELS)) == 25
    assert len(page.run(TITLES)) == 8
    assert page.run('document.getElementById("controls").getClientRects().length') == 0
    assert page.run('document.querySelectorAll("thead button").length') == 0


VIEW = """[...document.querySelectorAll(".scroll :is(thead th, tbody tr:not(.title) th[scope=row], .section)")]
    .filter((one) => one.getClientRects().length).map((one) => one.textContent)"""


def test_the_state_is_in_the_address_and_comes_back_from_it(page, folder):
    page.open(folder / "board.html", dark=True)
    assert page.run("location.hash") == ""
    choose(page, "search", "simcse, consert & co")
    choose(page, "supervision", "none")
    choose(page, "parameters-to", "200")
    choose(page, "year-from", "2021")
    click(page, "#groups")
    click(page, "#theme")
    click(page, f'#columns input[value="{STS[5]}"]')
    click(page, "thead th:nth-child(2) button")
    settle(page)
    state, view = page.run("location.hash").removeprefix("#"), page.run(VIEW)
    page.run("localStorage.clear()")
    labels = page.run(LABELS)
    assert labels and all("simcse" in one.lower() or "consert" in one.lower() for one in labels)
    page.open(folder / "board.html", dark=True, state=state)
    assert page.run(VIEW) == view and "STS-B" not in heads(page)
    assert page.run("document.documentElement.dataset.theme") == "light"
    assert (
        page.run('document.querySelector("thead th:nth-child(2)").getAttribute("aria-sort")')
        == "descending"
    )
    settle(page)
    assert page.run("location.hash").removeprefix("#") == state
    click(page, "#clear")
    settle(page)
    assert page.run("location.hash") == "#theme=light"
    assert len(page.run(LABELS)) > 100


def test_a_state_of_another_page_does_no_harm(page, folder):
    page.open(folder / "paper.html")
    whole = page.run(VIEW)
    page.open(
        folder / "paper.html",
        state="method=None+such&without=none&sort=t9+1+a&sort=nonsense&row=t1+none&theme=%22&unknown=1&year-from=x",
    )
    assert page.run(VIEW) == whole and page.complaints() == []


def test_what_is_shown_is_downloaded_as_csv(page, folder, tmp_path):
    page.open(folder / "board.html")
    page.save_downloads(tmp_path)
    choose(page, "side", "measured")
    click(page, f'#columns input[value="{STS[0]}"]')
    click(page, "thead th:nth-child(9) button")
    click(page, "#download")
    page.run("""new Promise((done) => setTimeout(done, 500))""")
    (path,) = tmp_path.glob("*.csv")
    assert path.name.startswith("sts-the-seven-tests-spearman-all-subsets-joined-signature-")
    lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert list(lines[0])[:6] == ["table", "section", "group", "row", "encoder", "side"]
    assert "sts12" not in lines[0] and "sts13" in lines[0]
    found = [
        (line["section"], line["row"], line["side"], line["sts13"], line["average"])
        for line in lines
    ]
    assert found == [
        ("Unsupervised", "SimCSE-BERT-base (unsup.)", "measured", "22.34", "42.34"),
        ("Trained on text pairs", "all-MiniLM-L6-v2", "measured", "80.00", "78.43"),
        ("Others", "stranger", "measured", "62.34", "42.34"),
    ]
    assert page.complaints() == []


def test_a_downloaded_csv_computes_nothing_and_keeps_ends_and_ranks(page, folder):
    page.open(folder / "formula.html")
    page.run("URL.createObjectURL = (blob) => { window.made = blob; return '#'; }")
    click(page, "#download")
    (line,) = csv.DictReader(page.run("made.text()").splitlines())
    assert (line["row"], line["a"], line["a_low"], line["a_high"]) == (
        '\'=1+1, "x"',
        "-1.50",
        "-2.00",
        "-1.00",
    )
    assert (line["rank_best"], line["rank_worst"], line["rank_method"]) == ("1", "3", "Holm")
    assert line["letters"] == "a"


def compared(page: Page) -> list[list[str]]:
    lines: list[list[str]] = page.run("""[...document.querySelectorAll("#comparison tr")]
        .map((row) => [...row.cells].map((cell) => cell.textContent))""")
    return lines


def test_two_rows_are_compared(page, folder):
    page.open(folder / "intervals.html")
    assert page.run('document.getElementById("comparison").hidden')
    click(page, "#compare")
    assert not page.run('document.getElementById("hint").hidden')
    click(page, "tbody tr:nth-child(1) .pick")
    click(page, "tbody tr:nth-child(2) .pick")
    assert compared(page) == [
        ["", "one", "two", "difference"],
        ["A", "70.0069.00 to 71.00", "70.5068.00 to 73.00", "-0.50"],
        ["B", "61.00±1.5058.00 to 64.00", "–", "–"],
    ]
    notes = page.run('document.querySelector("#comparison ul").textContent')
    assert (
        "Both measured." in notes
        and "They are not tested" in notes
        and "stsbench compare one two" in notes
    )
    # Of three the first goes; what is scored otherwise has no difference.
    click(page, "tbody tr:nth-child(3) .pick")
    assert compared(page)[0] == ["", "two", "three", "difference"]
    assert compared(page)[1][-1] == "–"
    notes = page.run('document.querySelector("#comparison ul").textContent')
    assert (
        "scored in different ways" in notes
        and "two: measured; three: published" in notes
        and "test over" not in notes
    )
    settle(page)
    state = page.run("location.hash").removeprefix("#")
    page.open(folder / "intervals.html", state=state)
    assert compared(page)[0] == ["", "two", "three", "difference"]
    click(page, "#clear")
    assert page.run('document.getElementById("comparison").hidden')
    assert page.run('document.querySelectorAll(".chosen").length') == 0
