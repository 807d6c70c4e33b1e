from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stsbench
from stsbench.boards.render.figures import draw_table
from stsbench.core.errors import ProtocolError
from tests.boards.shown import standing
from tests.cli.commands import Command
from tests.encoders.fakes import Plain
from tests.made import SIMCSE, make_result

STS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")
MEASURED = [
    make_result(name, task, score=score + at / 100)
    for name, score in (("minilm", 0.5), ("_$x$ & y", 0.4))
    for at, task in enumerate(STS)
]


def dots(axes: Any) -> set[float]:
    return {round(float(line.get_xdata()[0]), 6) for line in axes.lines}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    encoders = [Plain(), Plain("other", "o-1", d=3)]
    stsbench.evaluate(encoders, "quickstart-en,quickstart-es-en", store=None).save(
        tmp_path / "results"
    )
    return tmp_path / "results"


def test_a_table_has_a_panel_a_column_and_a_line_a_row():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    (table,) = stsbench.leaderboard(MEASURED).tables
    chart: Any = draw_table([table])
    assert len(chart.axes) == len(STS) + 1
    assert dots(chart.axes[0]) == {50, 40} and dots(chart.axes[-1]) == {53, 43}
    ends = {
        tuple(round(x) for x in part[:, 0])
        for bars in chart.axes[0].collections
        for part in bars.get_segments()
    }
    assert ends == {(40, 60), (30, 50)}
    assert [label.get_text() for label in chart.axes[0].get_yticklabels()] == [
        row.label for row in table.rows()
    ]
    assert "STS" in chart.get_suptitle()
    assert "95% interval" in chart.get_supxlabel()


def test_columns_of_facts_are_in_tables_alone():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    (table,) = stsbench.leaderboard(MEASURED, columns="size,dimensions").tables
    chart: Any = draw_table([table])
    assert len(chart.axes) == len(STS) + 1
    assert any("only in tables: Size" in text.get_text() for text in chart.texts)


def test_ranks_and_letters_stand_beside_the_names():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    (table,) = stsbench.leaderboard(MEASURED).tables
    ranked = standing(table, 1, 2, "ab", is_best=True)
    chart: Any = draw_table([ranked])
    first, second = (label.get_text() for label in chart.axes[0].get_yticklabels())
    assert (
        first == f"{table.rows()[0].label}≈ (Rank 1–2, Ties ab)" and second == table.rows()[1].label
    )
    assert len(chart.axes) == len(STS) + 1


def test_published_numbers_are_rings_beside_the_measured():
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    board = stsbench.leaderboard([], table="simcse-5")
    (first, *_) = (axes for axes in board.plot().axes)
    assert {line.get_markerfacecolor() for line in first.lines} == {"white"}
    (table,) = board.tables
    # Each group has its title above its rows.
    assert len(first.get_yticks()) == len(table.rows()) + len(table.groups)
    measured: Any = stsbench.leaderboard(MEASURED, show="measured").plot()
    assert "white" not in {line.get_markerfacecolor() for line in measured.axes[0].lines}
    # Nothing is measured, and nothing has an interval.
    assert board.plot().get_supxlabel() == "○ published"
    # The note on a misprint has its sign at the number that it is about.
    assert any(note.startswith("* ") for note in board.plot().texts[-1].get_text().split("\n"))
    signs = [text for axes in board.plot().axes for text in axes.texts]
    assert [(text.axes.get_title(), text.get_text(), text.xy[0]) for text in signs] == [
        ("Avg.", "*", 74.89)
    ]
    assert measured.get_supxlabel() == "● measured   — 95% interval"
    # The note below is not written over the line that explains the dots.
    measured.draw_without_rendering()
    notes = next(text for text in measured.texts if "signature:" in text.get_text())
    legend = next(text for text in measured.texts if "interval" in text.get_text())
    assert legend.get_window_extent().y0 > notes.get_window_extent().y1 + 2


def test_one_figure_is_one_table():
    other = make_result(score=0.3, protocol={**SIMCSE, "name": "mean", "aggregation": "mean"})
    with pytest.raises(
        ProtocolError, match="one figure shows one table, here are 2: .* choose one by its protocol"
    ):
        draw_table(stsbench.leaderboard([*MEASURED, other]).tables)


def test_commands_write_figures(folder, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    monkeypatch.chdir(tmp_path)
    ran = Command(capsys)("compare", "plain", "other", "--plot", "differences.svg")
    assert ran.code == 0 and "wrote differences.svg" in ran.out
    assert b"Quickstart Spanish-English" in Path("differences.svg").read_bytes()
    found = Command(capsys)("compare", "plain", "other", "--plot", "differences.pdf", "--json")
    assert json.loads(found.out)["encoders"] == ["plain", "other"]
    assert Path("differences.pdf").read_bytes().startswith(b"%PDF")
    stsbench.Results(MEASURED).save("measured")
    wrote = Command(capsys)(
        "leaderboard", "--results", "measured", "--format", "png", "--out", "board.png"
    )
    assert (wrote.code, wrote.out) == (0, "wrote board.png\n")
    assert Path("board.png").read_bytes().startswith(b"\x89PNG")
    # The reason why intervals are missing is in the figure, the command that computes them is not.
    wrote = Command(capsys)("leaderboard", "--results", "measured", "--out", "board.svg")
    picture = Path("board.svg").read_text()
    assert wrote.code == 0 and "no 95% interval of the mean" in picture
    assert "stsbench run" not in picture and "--fresh" not in picture


def test_commands_refuse_figures_that_go_nowhere(capsys):
    for words, message in (
        (["leaderboard", "--format", "svg"], "--format svg is a figure; add --out FILE"),
        (
            ["compare", "a", "b", "--plot", "x.jpg"],
            "--plot 'x.jpg': give a file that ends in .svg, .png, .pdf",
        ),
        (["leaderboard", "--format", "jpg"], "unknown format 'jpg'"),
    ):
        ran = Command(capsys)(*words)
        assert ran.code == 2 and message in ran.err
