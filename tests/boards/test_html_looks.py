"""The HTML page in a browser as it is seen and heard: light and dark, on a phone, on paper, by keyboard, without script."""

from __future__ import annotations

import re

import pytest

from tests.boards.pages import COLOURS, LABELS, TITLES, WIDTHS, click


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


@pytest.mark.parametrize("name", ["paper", "board", "declutr"])
def test_the_average_is_in_sight_on_a_phone(page, folder, name):
    page.open(folder / f"{name}.html", width=390, height=844)
    for left in (0, 120, 10000):
        name_end, start, end = page.run(f"""{{ const box = document.querySelector(".scroll"); box.scrollLeft = {left};
            const line = document.querySelector("tbody tr[data-side]"), place = (one) => one.getBoundingClientRect();
            [place(line.cells[0]).right, place(line.querySelector(".mean")).left, place(line.querySelector(".mean")).right]; }}""")
        assert name_end <= start < end <= 390


@pytest.mark.parametrize("name", ["paper", "board", "declutr", "multilingual", "many"])
def test_paper_holds_all_columns(page, folder, name, tmp_path):
    # A4 across, a centimetre of margin to each side, in pixels of 1/96 inch.
    page.open(folder / f"{name}.html", width=1046, height=700, paper=True, dark=True)
    assert page.run(WIDTHS) == [1046, 1046]
    assert page.run("Math.max(...[...document.querySelectorAll('table')].map((one) => one.offsetWidth))") <= 1046
    ink, paper = page.run(COLOURS)
    assert luminance(ink) < luminance(paper)
    assert page.run('document.getElementById("controls").getClientRects().length') == 0
    page.pdf(tmp_path / "page.pdf")
    assert re.search(rb"/MediaBox ?\[0 0 84[12][.\d]* 59[45][.\d]*\]", (tmp_path / "page.pdf").read_bytes())


def test_those_who_hear_the_page_are_told_what_everything_is(page, folder):
    page.open(folder / "board.html")
    click(page, "#compare")
    found = page.names()
    controls = {
        role: [name for kind, name in found if kind == role]
        for role in ("button", "checkbox", "combobox", "spinbutton")
    }
    assert all(names and all(names) for names in controls.values())
    assert controls["combobox"] == ["Method", "Backbone", "Supervision", "Numbers"]
    assert "Parameters from, in millions" in controls["spinbutton"]
    assert "Compare all-MiniLM-L6-v2" in controls["checkbox"]
    assert ("region", "STS: the seven tests, Spearman, all subsets joined") in found
    assert ("columnheader", "STS12") in found and ("rowheader", "Compare stranger stranger") in found


def test_the_keyboards_place_is_seen(page, folder):
    page.open(folder / "board.html")
    seen = []
    for _ in range(20):
        page.press("Tab")
        seen.append(
            page.run("""(() => { const here = document.activeElement, style = getComputedStyle(here);
            return [here.id || here.tagName, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1]; })()""")
        )
    assert all(outlined for _, outlined in seen)
    assert {"search", "theme", "method", "year-from", "groups", "compare", "download"} <= {name for name, _ in seen}


def test_without_script_the_page_is_plain_tables(page, folder):
    page.open(folder / "paper.html", script=False)
    assert page.run(LABELS)[0] == "GloVe (avg.)" and len(page.run(LABELS)) == 25
    assert len(page.run(TITLES)) == 8
    assert page.run('document.getElementById("controls").getClientRects().length') == 0
    assert page.run('document.querySelectorAll("thead button").length') == 0
