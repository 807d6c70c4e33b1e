"""``stsbench analyze`` and ``stsbench report``: numbers, pictures of the same bytes, and one page of what can be had."""

from __future__ import annotations

import csv
import html
import json

import numpy as np
import pytest

from stsbench.analysis.context import ANALYSES
from stsbench.cli.analyze import analyze_command
from tests.cli.commands import HASHED, make_own
from tests.hub_server import unplug

QUICK = ("--tasks", "quickstart-en", "--no-store")


def test_the_help_names_every_analysis():
    assert [name for name in ANALYSES.table if name not in str(analyze_command.__doc__)] == []


def test_numbers_are_printed_and_written_alike(stsbench, tmp_path):
    files = [tmp_path / f"found.{ending}" for ending in ("json", "csv")]
    out = stsbench.fine(
        "analyze",
        "spectrum",
        *HASHED,
        *QUICK,
        *(word for file in files for word in ("--out", file)),
    )
    assert out.startswith("spectrum: quickstart-en (test), protocol simcse")
    found = json.loads(files[0].read_text())
    assert found == stsbench.json("analyze", "spectrum", *HASHED, *QUICK)
    (row,) = found["tables"]["encoders"]
    assert f"{row['isotropy']:.4f}" in out
    rows = list(csv.DictReader(files[1].read_text().splitlines()))
    assert [row["table"] for row in rows].count("values") == len(found["tables"]["values"])
    assert float(rows[0]["isotropy"]) == row["isotropy"]


def test_counts_that_are_no_text_are_refused_in_one_line(stsbench, tmp_path):
    (tmp_path / "counts.txt").write_bytes(b"a 2\n\xff\x81 1\n")
    call = ("analyze", "tokens", *HASHED, *QUICK, "--set", "counts=counts.txt")
    assert "counts.txt: line 2: not valid UTF-8" in stsbench.refused(*call)


def test_pictures_have_the_same_bytes_each_time(stsbench, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    for name in ("one.svg", "two.svg"):
        stsbench.fine(
            "analyze", "similarity", *HASHED, *QUICK, "--set", "bins=3", "--out", tmp_path / name
        )
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


OF_REPORT = ("--tasks", "quickstart-en", "--suite", "quickstart", "--no-store")


def test_a_page_of_results_and_figures(stsbench, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    stsbench.fine("run", *HASHED, "--tasks", "quickstart-en")
    code, out, err = stsbench(
        "report", *HASHED, *OF_REPORT, "--figures", "similarity,layers", "--title", "Mine"
    )
    assert (code, out) == (0, "wrote report.html\n"), err
    text = (tmp_path / "report.html").read_text()
    assert (
        "<title>Mine</title>" in text
        and 'id="figure-similarity"' in text
        and 'id="figure-layers"' not in text
    )
    assert '<table id="t1"' in text, err
    problem = "layers of hashed: encoder 'hashed' has no layers"
    assert problem in err and html.escape(problem) in text


def test_figures_use_a_task_of_the_suite_if_none_is_named(stsbench, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    stsbench.fine("run", *HASHED, "--tasks", "quickstart-en")
    stsbench.fine("report", *HASHED, "--suite", "quickstart", "--figures", "similarity")
    text = (tmp_path / "report.html").read_text()
    assert 'id="figure-similarity"' in text and "quickstart-en" in text


def test_a_report_is_of_the_tasks_that_there_are_results_of(stsbench, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    own = make_own(tmp_path)
    stsbench.fine("run", *HASHED, "--tasks", "table", *own.options())
    stsbench.fine("report", *HASHED, *own.options(), "--figures", "similarity")
    text = (tmp_path / "report.html").read_text()
    assert "similarity: table (test)" in text and '<table id="t1"' in text


def test_a_report_is_of_tasks_that_all_its_encoders_have_results_of(stsbench, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    own = make_own(tmp_path)
    small = "own_encoders:Hashed+size=16"
    specs = f"own_encoders:Hashed,{small},minilm"
    report = ("report", "-e", specs, *own.options(), "--figures", "similarity")
    stsbench.fine("run", *HASHED, "--tasks", "quickstart-en")
    stsbench.fine("run", "-e", small, "--tasks", "table", *own.options())
    # They have none in common: the page is of the first suite with results.
    assert "have no task in common" in stsbench(*report).err
    assert "similarity: quickstart-en (test)" in (tmp_path / "report.html").read_text()
    stsbench.fine("run", *HASHED, "--tasks", "table", *own.options())
    # An encoder without any results does not count.
    code, _, err = stsbench(*report)
    text = (tmp_path / "report.html").read_text()
    assert (code, "minilm: not measured" in err, "in common" in err) == (0, True, False), err
    assert "similarity: table (test)" in text and "quickstart-en" not in text


def test_figures_that_lack_the_same_are_on_one_line(stsbench, tmp_path, monkeypatch):
    unplug(monkeypatch)
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    stsbench.fine("run", *HASHED, "--tasks", "quickstart-en")
    code, _, err = stsbench("report", *HASHED, "-t", "stsb", "--figures", "similarity,errors,map")
    (line,) = err.splitlines()
    assert code == 0
    assert line.startswith(
        "stsbench: not in the report: similarity, errors, map: no data for stsb (test): "
    )


def test_where_there_is_nothing_no_page_is_written(stsbench, tmp_path):
    code, out, err = stsbench("report", *HASHED, *OF_REPORT, "--figures", "layers")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].endswith(
        "there is nothing to report of these encoders; the lines above say why"
    )
    assert not (tmp_path / "report.html").exists()


def test_width_is_that_of_a_figure(stsbench, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    call = ("analyze", "alignment", "-e", "minilm", "-t", "quickstart-en", "--no-store")
    out = stsbench.fine(*call, "--out", tmp_path / "a.svg", "--width", "column")
    assert 'width="237.6pt"' in (tmp_path / "a.svg").read_text(encoding="utf-8")
    # The table has the score times 100, as the figure does.
    score = float(out.splitlines()[4].split()[3])
    assert score > 1
    assert "--width has no effect without a figure" in stsbench.refused(*call, "--width", "page")
    refused = stsbench.refused(*call, "--out", tmp_path / "a.svg", "--width", "wide")
    assert "--width wide: give column, page" in refused


def test_a_report_names_the_command_for_what_is_not_measured(stsbench, tmp_path):
    (tmp_path / "results").mkdir()
    code, _, err = stsbench(
        "report",
        "-e",
        "minilm",
        "-t",
        "quickstart-en",
        "--figures",
        "spectrum",
        "--suite",
        "quickstart",
    )
    assert code == 0 and "minilm: not measured; run: stsbench run minilm --tasks quickstart" in err


def test_encoders_that_give_no_figure_leave_those_of_the_others(stsbench, tmp_path):
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    np.save(tmp_path / "scores.npy", np.arange(300.0))
    stsbench.fine("run", *HASHED, "--similarities", "scores.npy", "--tasks", "quickstart-en")
    encoders = "scores.npy,own_encoders:Hashed,similarities:scores.npy"
    report = ("report", "-e", encoders, *OF_REPORT, "--figures", "similarity,spectrum")
    code, out, err = stsbench(*report)
    assert (code, out) == (0, "wrote report.html\n"), err
    problem = "'similarities:scores.npy' scores pairs; an analysis needs embeddings"
    assert [line.removeprefix("stsbench: not in the report: ") for line in err.splitlines()] == [
        "scores.npy: 'scores.npy' is a file, not an encoder; if it holds embeddings, give "
        "file:scores.npy",
        f"similarity, spectrum of similarities:scores.npy: {problem}",
    ]
    text = (tmp_path / "report.html").read_text()
    assert 'id="figure-similarity"' in text and 'id="figure-spectrum"' in text
    # Both results are compared.
    assert "A = hashed, B = scores.npy" in text
    assert "give file:scores.npy" in stsbench.refused("run", "scores.npy", "--tasks", "quickstart")


def test_a_report_of_encoders_that_cannot_be_loaded_names_each_once(stsbench, tmp_path):
    (tmp_path / "a.npz").touch()
    (tmp_path / "results").mkdir()
    code, _, err = stsbench("report", "-e", "a.npz,minilmm", *OF_REPORT)
    first, second, end = err.splitlines()
    assert code == 2 and "give file:a.npz" in first and "did you mean 'minilm'" in second
    assert "there is nothing to report of these encoders" in end
