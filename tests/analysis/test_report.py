"""The report: one page that asks for nothing, sound to those who hear it, without a sentence of the task."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stsbench
from stsbench.analysis.context import AnalysisResult, make_analysis
from stsbench.analysis.report import ReportParts, report_html
from stsbench.boards.tables.build import build_table
from stsbench.significance.comparison import compare
from tests.analysis.beds import bed
from tests.boards.browser import Page, find_browser, open_browser
from tests.boards.shown import UNROUNDED, sts
from tests.encoders.fakes import Plain

FIGURES = ("alignment", "similarity", "errors", "neighbours")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    encoders = (Plain("<b>one</b>"), Plain("two", d=9))
    found = [
        AnalysisResult(
            analysis=name, task="quickstart-en", split="test", protocol="simcse", encoders=[e.name for e in encoders],
            parameters={}, tables=make_analysis(name, {}).tables(bed(*encoders)),
        )
        for name in FIGURES
    ]  # fmt: skip
    board = build_table("sts", [*sts("minilm", *UNROUNDED), *sts("other", *UNROUNDED[::-1])])
    comparison = compare(
        {e.name: list(stsbench.evaluate(e, "quickstart-en", store=None)) for e in encoders}
    )
    made = ReportParts(
        title="Mine & ours",
        boards=[board],
        comparison=comparison,
        figures=found,
        missing=["layers: none"],
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_html(made), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium is installed")
    with open_browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_the_page_is_one_small_file_that_names_no_other(report):
    text = report.read_text(encoding="utf-8")
    assert len(text) < 5_000_000
    sources = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert sources and all(
        one.startswith(("#", "data:image/svg+xml;base64,", "https://")) for one in sources
    )
    assert not re.search(r'src="https?:', text)


def test_no_sentence_and_no_markup_of_a_name_stands_in_it(report):
    text = report.read_text(encoding="utf-8")
    sentences: list[str] = bed(Plain()).loaded_task.texts()
    assert [one for one in sentences if one in text] == []
    assert "<b>one" not in text and "&lt;b&gt;one" in text
    assert "layers: none" in text and "Mine &amp; ours" in text


def test_each_figure_is_said_and_its_numbers_stand_below(report):
    text = report.read_text(encoding="utf-8")
    assert len(re.findall(r'<img src="data:image/svg[^>]*alt="[^"]{40,}"', text)) == len(FIGURES)
    for name in FIGURES:
        assert f'<a href="#figure-{name}">' in text and f'id="figure-{name}"' in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    "look", [{}, {"dark": True}, {"width": 390}, {"script": False}, {"paper": True}]
)
def test_the_page_asks_for_nothing_and_has_no_errors(report, page, look: dict[str, Any]):
    page.open(report, **look)
    assert [one for one in page.requests() if not one.startswith("data:image/svg+xml;base64,")] == [
        report.as_uri()
    ]
    assert page.complaints() == []


@pytest.mark.parametrize("width", [1300, 420])
def test_only_a_page_with_rows_offers_to_search_them_below_its_title(report, page, width, tmp_path):
    empty = tmp_path / "empty.html"
    parts = ReportParts(title="Mine", boards=[], comparison=None, figures=[], missing=["all"])
    empty.write_text(report_html(parts), encoding="utf-8")
    ids = ("search", "status", "filters", "empty")
    bottoms = f"{list(ids)}.map((id) => document.getElementById(id).getBoundingClientRect().bottom)"
    page.open(report, width=width)
    title = page.run("document.querySelector('h1').getBoundingClientRect().bottom")
    assert all(bottom > title for bottom in page.run(bottoms)[:3])
    assert page.run("document.querySelectorAll('h1').length") == 1
    assert page.run("document.querySelector('caption').getBoundingClientRect().height") > 10
    page.open(empty, width=width)
    # What is hidden has no height.
    assert page.run(bottoms) == [0] * len(ids)


def test_pictures_are_there_and_fit_and_dark_is_dark(report, page):
    page.open(report, width=390, dark=True)
    assert page.run("[...document.images].every((one) => one.complete && one.naturalWidth > 100)")
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)"
    assert page.run("getComputedStyle(document.images[0]).backgroundColor") == "rgb(255, 255, 255)"
