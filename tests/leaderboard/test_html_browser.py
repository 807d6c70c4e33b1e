"""The HTML page in a browser: sorted, filtered, light and dark, on a phone, without script; it asks for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stsbench.leaderboard.render import render
from stsbench.leaderboard.tables.build import build_table
from stsbench.leaderboard.tables.ranks import with_ranks
from stsbench.leaderboard.tables.table import Group, Number, Row, Table, TableCell, TableColumn
from tests.leaderboard.browser import NAMES, Page, find_browser, open_browser
from tests.leaderboard.shown import STS, UNROUNDED, sts
from tests.leaderboard.test_html import HOSTILE

LABELS = """[...document.querySelectorAll("tbody tr:not(.title) th[scope=row]")]
    .filter((head) => head.getClientRects().length).map((head) => head.firstChild.textContent)"""
TITLES = """[...document.querySelectorAll(".section, .title")].filter((one) => one.getClientRects().length)
    .map((one) => one.textContent)"""
COLOURS = """["color", "background-color"].map((name) => getComputedStyle(document.body).getPropertyValue(name))"""
WIDTHS = "[document.documentElement.scrollWidth, innerWidth]"
MINILM = (0.72, 0.80, 0.75, 0.85, 0.78, 0.82, 0.77)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pages: a paper's table and our own board, both with measured numbers, and one with a hostile name."""
    made = tmp_path_factory.mktemp("pages")
    results = [*sts("simcse-bert-base", *UNROUNDED), *sts("minilm", *MINILM), *sts("stranger", *UNROUNDED[::-1])]
    hostile = Row(label=HOSTILE, cells={"a": TableCell(published=Number(1.0))})
    strange = Table(name="n", title=HOSTILE, columns=[TableColumn(key="a", head="A")], groups=[Group(rows=[hostile])])
    rows = [Row(label=label, cells={"a": TableCell(measured=Number(1.0))}) for label in "abc"]
    plain = Table(name="r", title="r", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=rows)])
    for name, tables in {
        "paper": [build_table("simcse-5", results)],
        "board": [build_table("sts", results)],
        "declutr": [build_table("declutr-2")],
        "two": [build_table("simcse-5"), build_table("simcse-e1")],
        "hostile": [strange],
        "ranked": [with_ranks(plain, {0: (10, 12), 1: (1, 2), 2: (2, 11)})],
    }.items():
        (made / f"{name}.html").write_text(render(tables, "html"), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = find_browser()
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    with open_browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def choose(page: Page, field: str, value: str) -> None:
    page.run(f"""{{ const field = document.getElementById("{field}"); field.value = "{value}";
        field.dispatchEvent(new Event(field.id === "search" ? "input" : "change", {{ bubbles: true }})); }}""")


def click(page: Page, selector: str) -> None:
    page.run(f"document.querySelector({selector!r}).click()")


def column(page: Page, place: int) -> list[str]:
    """The shown numbers of a column, of rows that have one."""
    cells = page.run(f"""[...document.querySelectorAll("tbody tr:not(.further) > :nth-child({place}):is(td)")]
        .filter((cell) => cell.getClientRects().length).map((cell) => cell.firstChild.textContent)""")
    return [text for text in cells if text != "–"]


def heads(page: Page) -> list[Any]:
    shown: list[Any] = page.run("""[...document.querySelectorAll("thead th")]
        .filter((head) => head.getClientRects().length).map((head) => head.textContent)""")
    return shown


@pytest.mark.parametrize("name", ["paper", "board", "declutr", "two", "hostile"])
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


def test_ranks_sort_lowest_first(page, folder):
    page.open(folder / "ranked.html")
    click(page, "thead th:nth-child(3) button")
    assert page.run(LABELS) == ["b", "c", "a"]


def test_rows_without_a_number_come_last_either_way(page, folder):
    page.open(folder / "board.html")
    click(page, "#groups")
    for _ in range(2):
        click(page, "thead th:nth-child(2) button")
        texts = page.run("""[...document.querySelectorAll("tbody tr:not(.further) td:nth-child(2)")]
            .filter((cell) => cell.getClientRects().length).map((cell) => cell.textContent)""")
        first = texts.index("–")
        assert 0 < first and set(texts[first:]) == {"–"}


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


def test_best_and_second_best_are_told_within_groups_only(page, folder):
    page.open(folder / "declutr.html")
    styles = """["b", "u"].map((tag) => getComputedStyle(document.querySelector(`td ${tag}`)))
        .map((style, at) => at ? style.textDecorationLine : style.fontWeight)"""
    assert page.run(styles) == ["700", "underline"]
    click(page, "#groups")
    assert page.run(styles) == ["400", "none"]


def test_names_sort_too_and_the_keyboard_does(page, folder):
    page.open(folder / "declutr.html")
    click(page, "#groups")
    page.run('document.querySelector("thead th button").focus()')
    page.press("Enter")
    labels = page.run(LABELS)
    assert labels == sorted(labels, key=str.lower)
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == "CR"
    page.press("Space")
    assert page.run('document.querySelector("thead th:nth-child(2)").getAttribute("aria-sort")') == "descending"


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


def test_encoders_that_no_card_knows_can_be_chosen(page, folder):
    page.open(folder / "board.html")
    choose(page, "method", "not said")
    assert "stranger" in page.run(LABELS)


def test_measured_or_published_numbers_alone(page, folder):
    page.open(folder / "paper.html")
    choose(page, "side", "measured")
    # The line that stands alone says whose it is.
    alone = 'document.querySelector("tr.alone th").innerText'
    assert page.run(LABELS) == ["SimCSE-BERT-base: "] and page.run(alone) == "SimCSE-BERT-base: measured"
    assert page.run(TITLES) == ["Unsupervised", "Word vectors and BERT-base"]
    choose(page, "side", "published")
    assert len(page.run(LABELS)) == 23
    page.open(folder / "board.html")
    choose(page, "side", "measured")
    click(page, "#groups")
    click(page, "thead th:nth-child(9) button")
    assert page.run(LABELS)[0] == "all-MiniLM-L6-v2" and len(page.run(LABELS)) == 3


def test_words_are_searched_and_commas_part_alternatives(page, folder):
    page.open(folder / "board.html")
    choose(page, "search", "CONSERT large")
    found = page.run(LABELS)
    assert found and all("consert" in one.lower() for one in found)
    choose(page, "search", "consert large, stranger")
    assert set(page.run(LABELS)) == {*found, "stranger"}
    choose(page, "search", "no such encoder")
    assert page.run(LABELS) == [] and page.run(TITLES) == []


def test_tasks_can_be_hidden(page, folder):
    page.open(folder / "board.html")
    click(page, "#columns button:nth-child(2)")
    assert heads(page) == ["encoder", "Avg."]
    click(page, f'#columns input[value="{STS[5]}"]')
    assert heads(page) == ["encoder", "STS-B", "Avg."]
    assert "6 tasks hidden, averages are over all" in page.run('document.getElementById("status").textContent')
    click(page, "#columns button:nth-child(1)")
    assert len(heads(page)) == 9


def test_one_set_of_choices_for_all_tables(page, folder):
    page.open(folder / "two.html")
    choose(page, "search", "simcse")
    shown = page.run(
        "[...document.querySelectorAll('table')].map((t) => [...t.rows].filter((r) => r.offsetHeight).length)"
    )
    assert len(shown) == 2 and min(shown) > 1


def luminance(colour: str) -> float:
    red, green, blue = (float(part) / 255 for part in colour.removeprefix("rgb(").rstrip(")").split(","))
    parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_colours_follow_the_system_can_be_changed_and_can_be_read(page, folder, dark):
    page.open(folder / "paper.html", dark=dark)
    ink, paper = page.run(COLOURS)
    assert (luminance(paper) < luminance(ink)) == dark
    texts = page.run("""[".further td", ".notes li", ".mark", "#status"].map((one) =>
        getComputedStyle(document.querySelector(one)).color)""")
    # WCAG AA for text of this size.
    assert all(contrast(colour, paper) >= 4.5 for colour in [ink, *texts])
    assert page.run('document.getElementById("theme").textContent') == ("Light" if dark else "Dark")
    click(page, "#theme")
    assert page.run(COLOURS) != [ink, paper]
    page.run("localStorage.clear()")


@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("name", ["paper", "board", "declutr", "two", "hostile"])
def test_on_a_phone_only_the_table_scrolls_sideways(page, folder, name, script):
    page.open(folder / f"{name}.html", width=360, height=740, script=script)
    width, window = page.run(WIDTHS)
    assert width == window == 360
    sizes = page.run("""[...document.querySelectorAll("body *")].filter((one) => one.getClientRects().length
        && one.textContent.trim() && !one.children.length).map((one) => parseFloat(getComputedStyle(one).fontSize))""")
    assert min(sizes) >= 13


def test_names_and_heads_stay_in_sight(page, folder):
    page.open(folder / "declutr.html", width=360, height=740)
    places = page.run("""{ const box = document.querySelector(".scroll"), name = document.querySelector("tbody th[scope=row]"),
        head = document.querySelector("thead th"); box.scrollTo(300, 100);
        [box.scrollLeft, ...[name, head].map((one) => one.getBoundingClientRect().left - box.getBoundingClientRect().left),
         head.getBoundingClientRect().top - box.getBoundingClientRect().top]; }""")
    assert places[0] == 300 and places[1:3] == [0, 0] and places[3] >= 0
    # A name leaves room for numbers.
    assert page.run('document.querySelector("tbody th[scope=row]").offsetWidth') <= 0.5 * 360


def test_without_script_the_page_is_plain_tables(page, folder):
    page.open(folder / "paper.html", script=False)
    assert page.run(LABELS)[0] == "GloVe (avg.)" and len(page.run(LABELS)) == 25
    assert len(page.run(TITLES)) == 8
    assert page.run('document.getElementById("controls").getClientRects().length') == 0
    assert page.run('document.querySelectorAll("thead button").length') == 0


def test_a_board_of_many_encoders_answers_at_once(page, folder):
    columns = [TableColumn(key=f"c{at}", head=f"C{at}") for at in range(8)]
    rows = [
        Row(label=f"e{n}", cells={c.key: TableCell(measured=Number(n * 37 % 1000 / 10, interval=(n / 50, n / 40)))
                                  for c in columns})
        for n in range(1500)
    ]  # fmt: skip
    path = folder / "many.html"
    path.write_text(
        render([Table(name="m", title="m", columns=columns, groups=[Group(rows=rows)])], "html"), encoding="utf-8"
    )
    page.open(path)
    seconds = page.run("""(() => { const start = performance.now();
        document.querySelector("thead th:nth-child(3) button").click();
        return (performance.now() - start) / 1000; })()""")
    assert seconds < 2
    top = [float(text) for text in column(page, 3)]
    assert top == sorted(top, reverse=True) and len(top) == 1500
