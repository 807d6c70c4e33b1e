"""How many of something are done: shown on a terminal, and nowhere else."""

from __future__ import annotations

import sys

import pytest

from stsbench.cli.counting import shown_progress


def test_a_terminal_shows_what_is_done_and_how_long_the_others_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    with shown_progress("rows") as told:
        told(3, 20)
        told(20, 20)
    out, err = capsys.readouterr()
    assert "rows" in err and "20/20" in err and "0:00:00" in err and not out


def test_a_pipe_gets_nothing(capsys: pytest.CaptureFixture[str]):
    with shown_progress("rows") as told:
        told(20, 20)
    assert capsys.readouterr() == ("", "")
