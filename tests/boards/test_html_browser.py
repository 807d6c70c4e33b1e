"""The HTML page in a browser: sorted and filtered; it asks for nothing and shows names as they are."""

from __future__ import annotations

import pytest

from stsbench.boards.render import render
from stsbench.boards.tables.table import Group, Number, Row, Table, TableCell, TableColumn
from tests.boards.pages import LABELS, TITLES, choose, click, column, heads
from tests.boards.shown import STS
from tests.boards.test_html import HOSTILE


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


@pytest.mark.parametrize("place", [3, 4])
def test_ranks_and_letters_sort_lowest_first(page, folder, place):
    page.open(folder / "ranked.html")
    state = f'document.querySelector("thead th:nth-child({place})").getAttribute("aria-sort")'
    for labels, sorted_ in ((["b", "c", "a"], "ascending"), (["a", "c", "b"], "descending"), (["b", "c", "a"], None)):
        click(page, f"thead th:nth-child({place}) button")
        assert page.run(LABELS) == labels and page.run(state) == sorted_


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
    # A table without a row goes with its notes; alone it stays.
    choose(page, "search", "is-bert, flow")
    boxes = "[...document.querySelectorAll('.scroll, main > .notes')].map((one) => one.getClientRects().length > 0)"
    assert page.run(boxes) == [True, True, True, True]
    choose(page, "search", "flow")
    assert page.run(boxes) == [True, True, False, False]
    page.open(folder / "paper.html")
    choose(page, "search", "no such encoder")
    assert page.run(boxes) == [True, True]


def test_rows_are_chosen_by_size_and_year(page, folder):
    page.open(folder / "board.html")
    choose(page, "parameters-to", "50")
    assert page.run(LABELS) == ["all-MiniLM-L6-v2"]
    choose(page, "parameters-to", "")
    choose(page, "parameters-from", "300")
    large = page.run(LABELS)
    assert large and all("large" in label.lower() for label in large)
    choose(page, "parameters-from", "")
    whole = len(page.run(LABELS))
    counted = []
    for year in ("2018", "2019", "2020", "2021"):
        choose(page, "year-from", year)
        choose(page, "year-to", year)
        counted.append(len(page.run(LABELS)))
    assert min(counted) > 0 and sum(counted) < whole


def test_rows_of_one_name_are_told_apart_without_groups(page, folder):
    page.open(folder / "alike.html")
    told = 'document.querySelector(".apart.grouped").getClientRects().length'
    assert page.run(told) == 0
    click(page, "#groups")
    assert page.run(told) > 0


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
