from __future__ import annotations

import csv
import io

import pytest

import stsbench
from stsbench.api.calls import leaderboard
from tests.api.notebook import page_of
from tests.cli.commands import Command
from tests.made import SIMCSE, make_result

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
MEASURED = [make_result("minilm", task, score=0.5 + at / 100) for at, task in enumerate(STS)]


def test_a_suites_board_in_every_form():
    board = leaderboard(MEASURED)
    (table,) = board.tables
    assert table.columns[0].key == "sts12"
    assert "53.00" in board.to_markdown() and repr(board) == board.to_markdown()
    assert r"\begin{tabular}" in board.to_latex()
    assert board.to_html().startswith("<!")
    frame = board.to_frame()
    (row,) = (
        line for line in csv.DictReader(io.StringIO(board.to_csv())) if line["encoder"] == "minilm"
    )
    assert list(frame.index.names) == ["caption", "section", "group", "row", "side"]
    assert (
        float(row["sts13"]) == frame[frame.encoder == "minilm"]["sts13"].item() == pytest.approx(51)
    )


def test_a_board_has_the_advice_that_the_command_prints():
    own = [make_result("own", task, score=0.5) for task in STS]
    assert leaderboard(own, table="simcse-5").advice == [
        "results of own are in no row of 'simcse-5'; `add=NAME` shows them, such as `add=own`"
    ]
    assert leaderboard(own).advice == []


def test_a_notebook_shows_the_board_with_its_caption():
    board = leaderboard([*MEASURED, make_result("<b>", "sts12", score=0.4)])
    page = page_of(board)
    assert "protocol simcse" in page and ">50.00" in page
    assert "&lt;b&gt;" in page and "<b>" not in page


def test_protocols_are_tables_of_their_own():
    other = [
        make_result(
            "minilm", "sts12", score=0.3, protocol={**SIMCSE, "name": "mean", "aggregation": "mean"}
        )
    ]
    board = leaderboard([*MEASURED, *other])
    assert len(board.tables) == 2
    assert len(set(board.to_frame().index.get_level_values("caption"))) == 2
    assert page_of(board).count("<table>") == 2
    assert len(leaderboard([*MEASURED, *other], protocol="mean").tables) == 1


def test_it_is_what_the_command_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stsbench.Results(MEASURED).save("results")
    printed = Command(capsys)("leaderboard", "--format", "markdown").out
    with pytest.warns(UserWarning, match=": 7 of 7 results"):
        text = leaderboard().to_markdown()
        assert leaderboard("results").to_markdown() == text
    # Each words in its own way how to score the results again, whose columns are missing.
    changed = [
        pair for pair in zip(text.split("\n"), printed.split("\n"), strict=True) if len({*pair}) > 1
    ]
    ((called, commanded),) = changed
    assert "save the results of stsbench.evaluate(encoder='minilm', tasks='sts12," in called
    assert "; run: stsbench run --fresh minilm --tasks sts12," in commanded
