"""``stsbench timing``: the table, beside the paper's, and mistakes in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stsbench.cli.timing import timings_to_markdown
from stsbench.recipes.timing import Timing, Timings, Training


def made() -> Timings:
    rows = [
        Timing(name="mean", method="Mean", inference=2.0, at_once=1.0, size=4),
        Timing(
            name="sg-opt",
            method="SG-OPT",
            inference=3.0,
            at_once=1.5,
            size=4,
            training=Training(seconds=90.0, steps=30, validations=2, measured=10, batch_size=16, corpus="text"),
        ),
    ]
    return Timings(
        rows=rows,
        task="stsb",
        split="test",
        sentences=2758,
        batch_size=16,
        rounds=3,
        device="cpu",
        processor="a processor",
        threads=2,
        versions={"python": "3", "torch": "2"},
        created="2026-11-21T00:00:00+00:00",
    )


def test_markdown_holds_the_papers_table_beside_ours():
    lines = timings_to_markdown(made()).splitlines()
    assert "| mean | – | 2.00 | 1.00 | 1.00 |" in lines
    assert "| sg-opt | 90.00\\* | 3.00 | 1.50 | 1.50 |" in lines
    assert "| WK | – | 197.03 | 14.13 | – |" in lines
    assert "| SG-OPT | 455.02 | 10.51 | 0.75 | – |" in lines
    text = "\n".join(lines)
    assert "another machine that is not named" in text
    assert "sg-opt\\*: estimated for 30 steps of 16 rows of text and 2 validations, from 10 steps taken" in text
    assert "a processor, device cpu, 2 threads; python 3, torch 2; 2026-11-21." in text


def test_the_command_prints_and_writes(stsbench):
    words = ("timing", "-e", "own_encoders:Hashed", "--tasks", "quickstart-en", "--rounds", "1")
    out = stsbench.fine(*words)
    assert "hashed" in out and "One round." in out and "SG-OPT, table 6" not in out
    stsbench.fine(*words, "--format", "json", "--out", "t.json")
    assert json.loads(Path("t.json").read_text())["rows"][0]["name"] == "hashed"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "latex"), "unknown format 'latex'"),
        (("-r", "sg-opt-smal"), "unknown recipe 'sg-opt-smal'; did you mean 'sg-opt-small'"),
        (("-e", "own_encoders:Hashed", "-r", "fastsent-small"), "trains itself and is not timed"),
        (("-e", "own_encoders:Hashed", "--tasks", "stsbb"), "unknown task 'stsbb'"),
        (("-e", "own_encoders:Hashed", "--tasks", "quickstart-en", "--split", "no"), "no"),
        (("--rounds", "0"), "rounds"),
    ],
)
def test_mistakes(stsbench, words, message):
    assert message in stsbench.refused("timing", *words)
