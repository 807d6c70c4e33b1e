"""The HTML page in a browser: its state in the address, what it downloads, two rows compared."""

from __future__ import annotations

import csv

from tests.boards.browser import Page
from tests.boards.pages import LABELS, choose, click, heads, settle
from tests.boards.shown import STS

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
    assert page.run('document.querySelector("thead th:nth-child(2)").getAttribute("aria-sort")') == "descending"
    settle(page)
    assert page.run("location.hash").removeprefix("#") == state
    click(page, "#clear")
    settle(page)
    assert page.run("location.hash") == "#theme=light"
    assert len(page.run(LABELS)) > 100


def test_another_state_in_the_address_is_taken_and_a_notes_address_leaves_it(page, folder):
    page.open(folder / "board.html", state="search=stranger")
    assert page.run(LABELS) == ["stranger"]
    page.run('new Promise((done) => { addEventListener("hashchange", done); location.hash = "t1-note1"; })')
    assert page.run(LABELS) == ["stranger"]
    page.run('new Promise((done) => { addEventListener("hashchange", done); location.hash = "backbone=MiniLM"; })')
    assert page.run(LABELS) == ["all-MiniLM-L6-v2"]


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
    assert path.name == "sts-the-seven-tests-spearman-all-subsets-joined.csv"
    lines = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    assert list(lines[0])[:6] == ["table", "section", "group", "row", "encoder", "side"]
    assert "sts12" not in lines[0] and "sts13" in lines[0]
    found = [(line["section"], line["row"], line["side"], line["sts13"], line["average"]) for line in lines]
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
    assert (line["row"], line["a"], line["a_low"], line["a_high"]) == ('\'=1+1, "x"', "-1.50", "-2.00", "-1.00")
    assert (line["rank_best"], line["rank_worst"], line["letters"]) == ("1", "3", "a")


def compared(page: Page) -> list[list[str]]:
    """The lines of the comparison, cell by cell."""
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
    assert "Both measured." in notes and "They are not tested" in notes and "stsbench compare one two" in notes
    # Of three the first goes; what is scored otherwise has no difference.
    click(page, "tbody tr:nth-child(3) .pick")
    assert compared(page)[0] == ["", "two", "three", "difference"]
    assert compared(page)[1][-1] == "–"
    notes = page.run('document.querySelector("#comparison ul").textContent')
    assert (
        "scored in different ways" in notes and "two: measured; three: published" in notes and "test over" not in notes
    )
    settle(page)
    state = page.run("location.hash").removeprefix("#")
    page.open(folder / "intervals.html", state=state)
    assert compared(page)[0] == ["", "two", "three", "difference"]
    click(page, "#clear")
    assert page.run('document.getElementById("comparison").hidden')
    assert page.run('document.querySelectorAll(".chosen").length') == 0


def test_rows_of_two_tables_are_not_compared(page, folder):
    page.open(folder / "two.html")
    click(page, "#compare")
    click(page, "#t1 .pick")
    click(page, "#t2 .pick")
    assert page.run('document.getElementById("comparison").hidden')
    assert page.run('[...document.querySelectorAll(".pick:checked")].map((one) => one.closest("table").id)') == ["t2"]
