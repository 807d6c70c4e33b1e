"""``stsbench timing``: what is timed, what is estimated from a few steps, and the table beside the paper's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.boards.render.text import to_markdown
from stsbench.cli.timing import to_layout
from stsbench.data.task import load_task
from stsbench.encoders.base import FloatArray
from tests.cli.commands import Command, write
from tests.cli.little_recipe import RECIPE
from tests.training.students import sentences

WHITENED = """
name = "Counted, whitened"
kind = "whitening"
method = "Whitening"
backbone = "none"
supervision = "none"
overlap = "text"
paper = "ours"
license = "none"

[params]
base = "tests.cli.test_timing:Counted"
"""


class Counted:
    """Remembers how many sentences it was given at a time."""

    name, fingerprint = "counted", "counted-1"
    calls: list[int] = []

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        self.calls.append(len(sentences))
        lengths = np.array(
            [[len(s), s.count(" "), s.count("e"), 1.0] for s in sentences], dtype=np.float32
        )
        return lengths.reshape(-1, 4)


@pytest.fixture(autouse=True)
def nothing_counted() -> None:
    Counted.calls.clear()


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    """A user's folder with a recipe and an encoder that is fitted."""
    write(tmp_path / "mine" / "trainers" / "little.toml", RECIPE)
    write(tmp_path / "mine" / "baselines" / "counted-white.toml", WHITENED)
    write(tmp_path / "text.txt", "\n".join(sentences(60)) + "\n")
    return tmp_path / "mine"


def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which every look takes a second."""
    clock = itertools.count()
    monkeypatch.setattr("stsbench.cli.timing.perf_counter", lambda: float(next(clock)))


def timed(stsbench: Command, *words: str | Path, rounds: int = 1) -> Any:
    more = ("--tasks", "quickstart-en", "--rounds", str(rounds), "--format", "json")
    code, out, err = stsbench("timing", *words, *more)
    assert code == 0, err
    return json.loads(out)


def test_inference_is_in_batches_and_at_once(stsbench, monkeypatch):
    ticks(monkeypatch)
    found = timed(stsbench, "-e", "tests.cli.test_timing:Counted", "--batch-size", "7", rounds=2)
    n = len(load_task("quickstart-en").texts(["test"], repeated=True))
    whole, rest = divmod(n, 7)
    a_round = [*[7] * whole, *([rest] if rest else []), n]
    # The first batch is not counted.
    assert Counted.calls == [7, *a_round, *a_round]
    (row,) = found["rows"]
    assert (row["inference"], row["at_once"], row["size"], row["training"]) == (
        whole + bool(rest),
        1.0,
        4,
        None,
    )
    assert found["sentences"] == n and found["processor"] and found["threads"] >= 1


def test_fitting_is_timed_anew_each_time(stsbench, cards):
    texts = load_task("quickstart-en").texts(repeated=True)
    for _ in range(2):
        Counted.calls.clear()
        (row,) = timed(stsbench, "-e", "counted-white", "--cards", cards)["rows"]
        assert row["training"]["seconds"] > 0 and row["method"] == "Whitening"
        assert row["training"]["texts"] == len(texts) == Counted.calls[1]


@pytest.mark.parametrize("stops_early", [False, True])
def test_a_recipe_is_trained_whole(stsbench, cards, masked_lm, stops_early):
    if stops_early:
        path = cards / "trainers" / "little.toml"
        early = 'every = 1\npatience = 1\npatience_counts = "declines"'
        path.write_text(path.read_text().replace("every = 4", early))
    (row,) = timed(
        stsbench, "-r", "little", "--base", masked_lm, "--cards", cards, "--device", "cpu"
    )["rows"]
    training = row["training"]
    assert (training["steps"], training["measured"], training["validations"]) == (
        12,
        12,
        12 if stops_early else 3,
    )
    assert (training["batch_size"], training["corpus"], row["size"]) == (8, "text.txt", 16)
    assert not list(cards.parent.glob("runs*"))


def test_the_whole_is_estimated_from_some_steps(stsbench, cards, masked_lm, monkeypatch):
    ticks(monkeypatch)
    words = (
        "-r",
        "little",
        "--base",
        masked_lm,
        "--cards",
        cards,
        "--device",
        "cpu",
        "--steps",
        "2",
    )
    (row,) = timed(stsbench, *words)["rows"]
    # One validation of a second, between two looks at the clock; both steps the two other seconds of three.
    assert row["training"]["measured"] == 2 and row["training"]["seconds"] == 12 * 1.0 + 3 * 1.0


def test_markdown_holds_the_papers_table_beside_ours():
    training = {
        "seconds": 90.0,
        "steps": 30,
        "validations": 2,
        "measured": 10,
        "batch_size": 16,
        "corpus": "text",
    }
    rows = [
        {
            "name": "mean",
            "method": "Mean",
            "inference": 2.0,
            "at_once": 1.0,
            "size": 4,
            "training": None,
        },
        {
            "name": "sg-opt",
            "method": "SG-OPT",
            "inference": 3.0,
            "at_once": 1.5,
            "size": 4,
            "training": training,
        },
    ]
    found = to_layout(
        {
            "rows": rows, "task": "stsb", "split": "test", "sentences": 2758, "batch_size": 16, "rounds": 3,
            "device": "cpu", "processor": "a processor", "threads": 2, "versions": {"python": "3", "torch": "2"},
            "created": "2026-11-21T00:00:00+00:00",
        }
    )  # fmt: skip
    text = to_markdown([found])
    lines = text.splitlines()
    assert "| mean | – | 2.00 | 1.00 | 1.00 |" in lines
    assert "| sg-opt\\* | 90.00 | 3.00 | 1.50 | 1.50 |" in lines
    assert "| WK | – | 197.03 | 14.13 | – |" in lines
    assert "| SG-OPT | 455.02 | 10.51 | 0.75 | – |" in lines
    assert "another machine that is not named" in text
    assert (
        "sg-opt\\*: estimated for 30 steps of 16 rows of text and 2 validations, from 10 steps taken"
        in text
    )
    assert "a processor, device cpu, 2 threads; python 3, torch 2; 2026-11-21." in text


def test_the_command_prints_and_writes(stsbench):
    words = ("timing", "-e", "own_encoders:Hashed", "--tasks", "quickstart-en", "--rounds", "1")
    out = stsbench.fine(*words)
    assert "hashed" in out and "One round." in out and "SG-OPT, table 6" not in out
    stsbench.fine(*words, "--format", "json", "--out", "t.json")
    assert json.loads(Path("t.json").read_text())["rows"][0]["name"] == "hashed"
    # The name of a file says the format.
    stsbench.fine(*words, "--out", "u.json")
    assert json.loads(Path("u.json").read_text())["rows"][0]["name"] == "hashed"
