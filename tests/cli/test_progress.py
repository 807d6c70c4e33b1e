"""What a run says while it goes: to whoever watches, to a pipe, and to the log of the results folder."""

from __future__ import annotations

import re
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn

from stsbench.bench.cells import Cell, RunPart
from stsbench.cli.progress import LOG, RunProgress
from stsbench.errors import EncoderError, SourceError
from tests.cli.commands import HASHED, QUICK, make_own
from tests.made import make_result

BOTH = ("--tasks", "quickstart-en,quickstart-es-en")


def part(name: str, *tasks: str, done: int = 0) -> RunPart:
    cells = [Cell(encoder=name, task=task, protocol="simcse", seed=0) for task in tasks]
    return RunPart(spec=name, name=name, cells=cells, done=cells[:done], to_embed=10)


def test_a_run_says_what_there_is_to_do_each_cell_and_what_was_done(stsbench, tmp_path):
    stsbench.fine("run", *HASHED, *QUICK)
    out = stsbench.fine("run", *HASHED, "own_encoders:ready", *BOTH)
    first, *cells, last = stsbench.progress
    assert first == "2 encoders x 2 tasks, 1 of 4 cells known"
    assert [re.sub(r" [\d.-]+ \([\d.]+ s\)", "", line) for line in cells] == [
        "[2/4] ready-made quickstart-en",
        "[3/4] ready-made quickstart-es-en",
        "[4/4] hashed quickstart-es-en",
    ]
    assert re.fullmatch(r"3 scored, 1 known in [\d.]+ s", last)
    shown = cells[0].split()[-3]
    assert shown in out
    log = (tmp_path / "results" / LOG).read_text().splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d ", "", line) for line in log][
        -5:
    ] == stsbench.progress
    assert len(log) == 3 + 5


def test_a_second_run_says_that_it_reused_what(stsbench):
    stsbench.fine("run", *HASHED, *BOTH, "--seeds", "0,1")
    assert "[3/4] hashed quickstart-es-en seed 0 " in stsbench.progress[3]
    stsbench.fine("run", *HASHED, *BOTH, "--seeds", "0,1")
    assert stsbench.progress[0] == "1 encoder x 2 tasks x 2 seeds, 4 of 4 cells known"
    assert len(stsbench.progress) == 2 and stsbench.progress[1].startswith("0 scored, 4 known in ")


def test_a_misspelt_encoder_is_told_before_anything_is_embedded(stsbench, capsys, tmp_path):
    own = make_own(tmp_path)
    told = stsbench("run", *HASHED, "nobody", "--tasks", "quickstart-en", *own.options(), "--no-store")
    assert told.code == 2 and told.err.startswith("stsbench: unknown encoder 'nobody'")
    log = [line.split(" ", 1)[1] for line in (tmp_path / "results" / LOG).read_text().splitlines()]
    assert log[0].startswith("failed: unknown encoder 'nobody'")
    assert log[1] == "1 encoder x 1 task, 0 of 1 cells known" and log[3].startswith("1 scored, 0 known, 1 failed in ")


def test_a_dry_run_keeps_no_log(stsbench, tmp_path):
    assert "missing" in stsbench.fine("run", *HASHED, *QUICK, "--dry-run")
    assert not (tmp_path / "results").exists()


def test_bars_show_whose_turn_it_is_how_far_it_is_and_what_is_left(tmp_path):
    screen = Console(width=80, force_terminal=False)
    with Progress(TextColumn("{task.description}"), console=screen, disable=True) as bars:
        progress = RunProgress(tmp_path, bars)
        parts = [part("one", "a", "b", done=1), part("two " * 20, "a")]
        progress.on_planned(parts)
        progress.on_began(parts[0])
        work, run = bars.tasks
        assert work.description == "1/2 one: loading" and (run.completed, run.total) == (1, 3)
        progress.on_encoding(0, 50)
        progress.on_encoding(25, 50)
        assert (work.description, work.completed, work.total) == ("1/2 one: embedding", 25, 50)
        assert run.fields["left"].endswith(" left")
        progress.on_encoding(50, 50)
        progress.on_scoring("b")
        assert (work.description, work.completed, work.total) == ("1/2 one: scoring b", 0, 1)
        progress.on_scored(make_result("one", "b", 0.5))
        assert (run.completed, work.completed) == (2, 1)
        progress.on_began(parts[1])
        assert work.description == f"2/2 {'two ' * 6}tw…(1): loading"


def test_what_fails_is_said_once_and_tasks_without_data_together(tmp_path: Path, capsys):
    progress = RunProgress(tmp_path)
    for task in ("a", "b", "c"):
        progress.on_failed(task, SourceError(f"no data for {task}"))
    progress.on_planned([part("one", "d")])
    for _ in range(2):
        progress.on_failed("one on d", EncoderError("no number"))
        progress.on_noticed("a note")
    assert capsys.readouterr().err.splitlines() == [
        "stsbench: a: no data for a",
        "stsbench: no data either: b, c; 'stsbench doctor' shows what is missing where",
        "1 encoder x 1 task, 0 of 1 cells known",
        "stsbench: one on d: no number",
        "stsbench: a note",
    ]
    assert progress.code == 2
    assert progress.failures == ["a: no data for a", "b: no data for b", "c: no data for c", "one on d: no number"]
