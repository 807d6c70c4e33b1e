"""What a run says while it goes: to whoever watches, to a pipe, and to the log of the results folder."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from stsbench.api.progress_display import ProgressDisplay
from stsbench.bench.plan import Cell, EncoderPlan
from stsbench.bench.progress import JobProgress, ProgressTracker, RunCallbacks
from stsbench.cli.printing import show_count, show_work
from stsbench.cli.progress import LOG_NAME, RunProgress
from stsbench.core import provenance
from stsbench.core.errors import EncoderError, SourceError
from tests.cli.commands import HASHED, OWN_ENCODERS, QUICK, made_by, make_own, write
from tests.made import make_result

BOTH = ("--tasks", "quickstart-en,quickstart-es-en")


def part(name: str, *tasks: str, done: int = 0) -> EncoderPlan:
    cells = [Cell(encoder=name, task=task, protocol="simcse", seed=0) for task in tasks]
    return EncoderPlan(
        spec=name,
        name=name,
        cells=cells,
        current_results=dict.fromkeys(cells[:done], make_result()),
        sentences_to_embed=10,
    )


def test_a_run_says_what_there_is_to_do_each_cell_and_what_was_done(stsbench, tmp_path):
    stsbench.fine("run", *HASHED, *QUICK)
    out = stsbench.fine("run", *HASHED, "own_encoders:ready", *BOTH)
    first, *cells, last = stsbench.progress
    assert first == f"2 encoders x 2 tasks, 1 of 4 cells known (in results, made by {made_by()})"
    assert [re.sub(r" [\d.-]+ \([\d.]+ s\)", "", line) for line in cells] == [
        "[2/4] ready-made quickstart-en",
        "[3/4] ready-made quickstart-es-en",
        "[4/4] hashed quickstart-es-en",
    ]
    assert re.fullmatch(r"3 scored, 1 known in [\d.]+ s", last)
    shown = cells[0].split()[-3]
    assert shown in out
    log = (tmp_path / "results" / LOG_NAME).read_text().splitlines()
    when = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d "
    assert [re.sub(when, "", line) for line in log][-5:] == stsbench.progress
    assert len(log) == 3 + 5


def test_a_run_says_that_it_measured_nothing_and_what_made_the_known_scores(stsbench, monkeypatch):
    stsbench.fine("run", *HASHED, *QUICK)
    assert "nothing was measured" not in stsbench.progress[-1]
    for task, commit in (
        ("quickstart-es-en", ("ab" * 20, True)),
        ("quickstart-probe", (None, None)),
    ):
        with monkeypatch.context() as other_stsbench:
            other_stsbench.setattr(provenance, "commit", lambda commit=commit: commit)
            stsbench.fine("run", *HASHED, "--tasks", task)
    out = stsbench.fine("run", *HASHED, "--tasks", "quickstart")
    makers = f"{made_by()}, stsbench at commit abababababab with changes, stsbench {provenance.version_of('stsbench')}"
    first, last = stsbench.progress
    assert (
        first == f"1 encoder x 3 tasks, 3 of 3 cells known (in results, made by {makers})"
        and "quickstart-en" in out
    )
    assert re.fullmatch(
        r"0 scored, 3 known in [\d.]+ s; nothing was measured now \(--fresh scores again\)", last
    )
    assert f"3 of 3 scores are done (in results, made by {makers}), 0 are missing" in stsbench.fine(
        "run", *HASHED, "--tasks", "quickstart", "--dry-run"
    )


def test_scores_that_no_longer_count_are_counted_anew(stsbench, tmp_path, monkeypatch):
    stsbench.fine("run", *HASHED, *BOTH)
    write(tmp_path / "edited" / "own_encoders.py", OWN_ENCODERS.replace("- 127.5", "- 90"))
    monkeypatch.syspath_prepend(tmp_path / "edited")
    monkeypatch.delitem(sys.modules, "own_encoders")
    code, _, err = stsbench("run", *HASHED, *BOTH)
    assert (code, "scored again" in err) == (0, True)
    planned, *cells, last = stsbench.progress
    assert "2 of 2 cells known" in planned
    assert [cell.split()[0] for cell in cells] == ["[1/2]", "[2/2]"]
    assert last.startswith("2 scored, 0 known in ")


def test_a_misspelt_encoder_is_told_before_anything_is_embedded(stsbench, capsys, tmp_path):
    own = make_own(tmp_path)
    told = stsbench(
        "run", *HASHED, "nobody", "--tasks", "quickstart-en", *own.options(), "--no-store"
    )
    assert told.code == 2 and told.err.startswith("stsbench: unknown encoder 'nobody'")
    log = [
        line.split(" ", 1)[1] for line in (tmp_path / "results" / LOG_NAME).read_text().splitlines()
    ]
    assert log[0].startswith("failed: unknown encoder 'nobody'")
    assert log[1] == "1 encoder x 1 task, 0 of 1 cells known" and log[3].startswith(
        "1 scored, 0 known, 1 failed in "
    )


def at_work() -> ProgressTracker:
    pace = ProgressTracker([part("one", "a", "b", "c")])
    pace.update(
        1, JobProgress(worker="here:11", label="one: embedding 1/2", fraction=0.5, sentences=10)
    )
    pace.update(2, JobProgress(worker="here:12", label="one: scoring a", cells=1))
    return pace


@pytest.fixture
def shown() -> Iterator[ProgressDisplay]:
    """Bars as on a terminal, that are not drawn."""
    with Progress(
        TextColumn("{task.description}"), console=Console(width=80), disable=True
    ) as bars:
        yield ProgressDisplay(bars)


def rows(shown: ProgressDisplay) -> dict[str, tuple[str, float, float | None]]:
    bars = zip(shown.bar_ids, shown.bars.tasks, strict=True)
    return {name: (one.description, one.completed, one.total) for name, one in bars}


def test_bars_show_whose_turn_it_is_how_far_it_is_and_what_is_left(tmp_path, shown):
    progress = RunProgress(tmp_path, shown)
    parts = [part("one", "a", "b", done=1), part("two " * 20, "a")]
    progress.on_plan(parts)
    pace = ProgressTracker(parts)
    listener = progress.callbacks().with_progress(pace, parts[0], "1/2 one")
    assert rows(shown) == {"work": ("all", 1, 3), "": ("1/2 one: loading", 0, 1)}
    listener.on_embedding(0, 50)
    listener.on_embedding(25, 50)
    assert rows(shown)[""] == ("1/2 one: embedding", 0.5, 1)
    run, work = shown.bars.tasks
    assert re.fullmatch(r"50%, about [\d.]+ s left", work.fields["status"]) and run.fields[
        "status"
    ].endswith(" left")
    listener.on_embedding(50, 50)
    listener.on_scoring("b")
    assert rows(shown)[""] == ("1/2 one: scoring b", 0, 1)
    listener.on_result(make_result("one", "b", 0.5))
    assert rows(shown)["work"] == ("all", 2, 3)
    progress.callbacks().with_progress(pace, parts[1], f"2/2 {parts[1].name}")
    assert rows(shown)[""][0] == f"2/2 {'two ' * 13}two…"


def test_each_worker_has_a_bar_where_someone_watches(tmp_path, shown):
    progress = RunProgress(tmp_path, shown)
    progress.on_plan([part("one", "a", "b", "c")])
    pace = at_work()
    progress.on_progress(pace)
    pace.finish(2)
    progress.on_progress(pace)
    assert rows(shown)["work"][0].startswith("all: 0 of 3 cells done, 0 running, 0 failed; ")
    assert rows(shown)["work"][0].endswith(" sentences/s")
    assert rows(shown)["here:11"][:2] == ("here:11 one: embedding 1/2", 0.5)
    assert rows(shown)["here:12"][:2] == ("here:12 waiting", 0.0)


def test_a_pipe_gets_a_line_now_and_then(capsys, monkeypatch, tmp_path):
    for said in (False, True):
        with show_count("rows") as count:
            count(0, 2000)
            count(1000, 2000)
        with show_work() as shown:
            shown.make_callbacks("one").on_embedding(5, 20)
        progress = RunProgress(tmp_path)
        progress.on_progress(at_work())
        alone = part("one", "a")
        progress.callbacks().with_progress(ProgressTracker([alone]), alone, "1/1 one").on_embedding(
            1, 4
        )
        lines = capsys.readouterr().err.splitlines()
        assert [re.sub(r" [\d.,]+ (s|sentences/s)\b", "", line) for line in lines] == (
            [
                "rows: 0 of 2,000",
                "rows: 1,000 of 2,000, about left",
                "one: embedding: 5 of 20",
                "0 of 3 cells done, 1 running, 0 failed;; about left",
                "1/1 one: loading; 0 of 1 cells done, 0 running, 0 failed",
                "1/1 one: embedding, 25%; 0 of 1 cells done, 0 running, 0 failed;; about left",
            ]
            if said
            else []
        )
        monkeypatch.setattr("stsbench.api.progress_display.LINE_SECONDS", 0.0)


def test_what_fails_is_said_once_and_tasks_without_data_together(tmp_path: Path, capsys):
    progress = RunProgress(tmp_path)
    for task in ("a", "b", "c"):
        hint = "pass `data=DIR`" if task == "c" else ""
        progress.on_failure(task, SourceError(f"no data for {task} (test)", hint=hint))
    progress.on_failure("one", SourceError("no checkpoint"))
    progress.on_plan([part("one", "d")])
    for _ in range(2):
        progress.on_failure("one on d", EncoderError("no number"))
        progress.on_notice("a note")
    assert capsys.readouterr().err.splitlines() == [
        "stsbench: a: no data for a (test)",
        "stsbench: one: no checkpoint",
        "stsbench: no data either: b, c; pass --data DIR (or set STSBENCH_DATA) with the files of c, "
        "which 'stsbench show TASK' lists",
        "1 encoder x 1 task, 0 of 1 cells known",
        "stsbench: one on d: no number",
        "stsbench: a note",
    ]
    assert progress.exit_code == 2
    assert [*progress.failures] == [
        "a: no data for a (test)",
        "b: no data for b (test)",
        "c: no data for c (test); pass --data DIR",
        "one: no checkpoint",
        "one on d: no number",
    ]


def test_events_are_an_object_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("stsbench.api.progress_display.LINE_SECONDS", 0.0)
    progress = RunProgress(tmp_path, events=True)
    progress.on_plan([part("one", "a")])
    progress.on_progress(at_work())
    progress.on_notice("a note")
    progress.on_failure("one on a", EncoderError("no number"))
    progress.end()
    lines = [
        line for line in capsys.readouterr().err.splitlines() if not line.startswith("stsbench: ")
    ]
    events = [json.loads(line) for line in lines]
    assert [one["event"] for one in events] == ["planned", "working", "noticed", "failed", "ended"]
    assert events[0] == {"event": "planned", "encoders": 1, "cells": 1, "known": 0, "sentences": 10}
    assert events[1]["workers"]["here:11"] == {"what": "one: embedding 1/2", "done": 0.5}
    assert events[3] == {"event": "failed", "what": "one on a", "why": "no number"}
    assert (events[4]["scored"], events[4]["failed"]) == (0, 1)


def test_an_empty_sentence_has_no_tokens_to_count():
    fractions: list[float] = []
    empty = part("none", "a")

    def note_fraction(tracker: ProgressTracker) -> None:
        fractions.extend(progress.fraction for progress in tracker.current_jobs.values())

    callbacks = RunCallbacks(on_progress=note_fraction)
    callbacks.with_progress(ProgressTracker([empty]), empty, "1/1 none").on_embedding(0, 0)
    assert fractions[-1] == 1.0
