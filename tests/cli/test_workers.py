"""What a run of many workers shows: to whoever watches, to a pipe, and to programs."""

from __future__ import annotations

import json

from rich.console import Console
from rich.progress import Progress, TextColumn

from stsbench.bench.crowd import Crowd, Doing
from stsbench.cli import workers
from stsbench.cli.progress import RunProgress
from stsbench.cli.run import print_failed
from stsbench.errors import EncoderError
from tests.cli.commands import HASHED, QUICK
from tests.cli.test_progress import part


def crowd_at_work() -> Crowd:
    crowd = Crowd(cells=3, to_embed=20, running=1)
    crowd.tell(1, Doing(worker="here:11", what="one: embedding 1/2", done=0.5, sentences=10))
    crowd.tell(2, Doing(worker="here:12", what="one: scoring a"))
    return crowd


def test_each_worker_has_a_line_where_someone_watches(tmp_path):
    screen = Console(width=80, force_terminal=False)
    with Progress(TextColumn("{task.description}"), console=screen, disable=True) as bars:
        progress = RunProgress(tmp_path, bars)
        progress.on_planned([part("one", "a", "b", "c")])
        crowd = crowd_at_work()
        progress.on_working(crowd)
        crowd.end(2, well=True)
        progress.on_working(crowd)
        before, run, first, second = bars.tasks
        assert not before.visible
        assert run.description.startswith("all: 0 of 3 cells done, 1 running, 0 failed; ")
        assert run.description.endswith(" sentences/s")
        assert (first.description, first.completed) == ("here:11 one: embedding 1/2", 0.5)
        assert (second.description, second.completed) == ("here:12 waiting", 0.0)


def test_a_pipe_gets_a_line_now_and_then(tmp_path, monkeypatch, capsys):
    progress = RunProgress(tmp_path)
    progress.on_working(crowd_at_work())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(workers, "LINE_SECONDS", 0.0)
    progress.on_working(crowd_at_work())
    assert capsys.readouterr().err.startswith("0 of 3 cells done, 1 running, 0 failed; ")


def test_events_are_an_object_a_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(workers, "LINE_SECONDS", 0.0)
    progress = RunProgress(tmp_path, events=True)
    progress.on_planned([part("one", "a")])
    progress.on_working(crowd_at_work())
    progress.on_noticed("a note")
    progress.on_failed("one on a", EncoderError("no number"))
    progress.end()
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("stsbench: ")]
    events = [json.loads(line) for line in lines]
    assert [one["event"] for one in events] == ["planned", "working", "noticed", "failed", "ended"]
    assert events[0] == {"event": "planned", "encoders": 1, "cells": 1, "known": 0, "sentences": 10}
    assert events[1]["workers"]["here:11"] == {"what": "one: embedding 1/2", "done": 0.5}
    assert events[3] == {"event": "failed", "what": "one on a", "why": "no number"}
    assert (events[4]["scored"], events[4]["failed"]) == (0, 1)


def test_json_says_each_score_as_an_event(stsbench):
    scores = stsbench.json("run", *HASHED, *QUICK)["results"]
    events = [json.loads(line) for line in stsbench.progress]
    assert [one["event"] for one in events] == ["planned", "scored", "ended"]
    assert (events[1]["task"], events[1]["seed"], events[1]["score"]) == ("quickstart-en", 0, scores[0]["score"])


def test_what_failed_is_shown_again_at_the_end(capsys):
    print_failed([])
    assert capsys.readouterr().out == ""
    print_failed([("one on a", "no number"), ("two", "its worker was killed or has crashed")])
    lines = capsys.readouterr().out.splitlines()
    assert "Failed" in lines and any(line.split() == ["one", "on", "a", "no", "number"] for line in lines)
