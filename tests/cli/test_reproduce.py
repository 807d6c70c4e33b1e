"""``stsbench reproduce``: a table of ablations trained, scored and printed beside the paper's, and every mistake in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import Command, write

MINE = """
recipe = "little"
small = "little"
small_set = {"training.steps" = 4}

[figure]
title = "Temperatures of mine"
paper = "simcse"
table = "figure-9"
columns = [{task = "quickstart-en", protocol = "simcse", head = "Quick"}]

[[rows]]
row = "usual"

[[rows]]
row = "the same"
set = {temperature = 0.05}

[[rows]]
row = "hot"
set = {temperature = 0.5}

[[rows]]
row = "tale"
why = "nobody has it"
"""


@pytest.fixture
def mine(cards: Path) -> Path:
    write(cards / "trainers" / "tables" / "mine.toml", MINE)
    return cards


def test_a_table_is_forecast_reproduced_and_not_trained_again(
    stsbench: Command, mine: Path, masked_lm: Path
):
    call = ("reproduce", "mine", "--cards", mine, "--base", masked_lm)
    forecast = stsbench.fine(*call, "--dry-run")
    assert "0 of 2 runs are trained\n" in forecast and "usual = the same" in forecast
    # Nothing is trained for it, so how long it takes is not known yet.
    assert "?: known when such a run is trained" in forecast
    assert stsbench.progress == [] and not Path("runs").exists()
    out = stsbench.fine(*call)
    assert max(map(len, out.splitlines())) <= 80
    lines = out.splitlines()
    assert lines[0] == "Temperatures of mine (SimCSE, Figure 9)" and lines[2].split() == [
        "row",
        "Quick",
    ]
    shown = {line.rsplit(maxsplit=1)[0]: line.rsplit(maxsplit=1)[-1] for line in lines[4:8]}
    assert list(shown) == ["usual", "the same", "hot", "tale ×"] and shown["tale ×"] == "–"
    assert shown["usual"] == shown["the same"] and "× tale: nobody has it" in out
    assert "[1/2] usual = the same, seed 0: step 4 of 12" in stsbench.progress[0]
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "little",
        "little+temperature=0.5",
    ]
    made = [path.stat().st_mtime_ns for path in sorted(Path("runs").glob("*/*/run.json"))]
    assert stsbench.fine(*call) == out and stsbench.progress == []
    assert [path.stat().st_mtime_ns for path in sorted(Path("runs").glob("*/*/run.json"))] == made
    assert "2 of 2 runs are trained" in stsbench.fine(*call, "--dry-run")
    told = stsbench.json(*call, "--dry-run")
    states = {run["run"]: run["state"] for run in told["runs"]}
    assert states == {"little": "complete", "little+temperature=0.5": "complete"}
    assert told["not_had"] == {"tale": "nobody has it"} and told["missing"] == []
    # Both cost the same, but each that is trained took its own time.
    for path, seconds in zip(sorted(Path("runs").glob("*/*/run.json")), (60, 600), strict=True):
        run = json.loads(path.read_text())
        run["run"]["seconds"] = seconds
        path.write_text(json.dumps(run))
    trained = stsbench.json(*call, "--dry-run", "--seeds", "0,1")["runs"]
    assert [(run["state"], run["seconds"]) for run in trained] == [
        ("complete", 60),
        ("missing", 600),
        ("complete", 600),
        ("missing", 600),
    ]
    assert stsbench.fine(*call, "--out", "mine.csv") == "wrote mine.csv\n"
    assert "usual" in Path("mine.csv").read_text()


def test_small_recipes_seeds_and_values_are_chosen(stsbench: Command, mine: Path, masked_lm: Path):
    more = ("--seeds", "3,4", "--set", "batch_size=4")
    call = ("reproduce", "mine", "--cards", mine, "--small", "--base", masked_lm, *more)
    code, out, err = stsbench(*call, "--json")
    assert (code, err) == (0, "")
    runs = sorted(str(path) for path in Path("runs").glob("*/*"))
    assert runs == [
        f"runs/little+batch_size=4{more}+training.steps=4/seed{seed}"
        for more in ("+temperature=0.5", "")
        for seed in (3, 4)
    ]
    (table,) = json.loads(out)
    (group,) = table["groups"]
    rows = group["rows"]
    assert [row["label"] for row in rows] == ["usual", "the same", "hot", "tale ×"]
    assert rows[0]["cells"] == rows[1]["cells"] != rows[2]["cells"] and rows[3]["cells"] == {}
    assert rows[0]["cells"]["quickstart-en"]["measured"]["seeds"] == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["min"], "did you mean 'mine'"),
        (["mine", "--small"], "--small trains from a checkpoint of yours; pass --base FOLDER"),
        (["mine", "--dry-run", "--out", "a.md"], "--out has no effect beside --dry-run"),
        (["mine", "--set", "temprature"], "give key=value"),
        (["mine", "--seeds", "x"], "give whole numbers"),
    ],
)
def test_a_mistake_is_one_line(stsbench: Command, mine: Path, words: list[str], message: str):
    assert message in stsbench.refused("reproduce", *words, "--cards", mine)


def test_without_a_base_the_table_is_planned_and_what_is_missing_is_named(
    stsbench: Command, mine: Path
):
    words = ("mine", "--set", "temperature=1", "--cards", mine, "--dry-run")
    code, out, err = stsbench("reproduce", *words)
    assert code == 2 and "0 of 1 runs are trained\n" in out and "pass --base FOLDER" in err


def test_each_reason_why_rows_fail_is_said_once(
    stsbench: Command, mine: Path, tmp_path: Path, masked_lm: Path
):
    code, _, err = stsbench("reproduce", "mine", "--cards", mine, "--base", tmp_path)
    assert (
        code == 2
        and err.count("no config.json; is it a checkpoint folder?") == err.count("stsbench: ") == 1
    )
    rows = MINE.replace("temperature = 0.05", 'data.corpus="a.txt"').replace(
        "temperature = 0.5", 'data.corpus="b.txt"'
    )
    write(mine / "trainers" / "tables" / "mine.toml", rows)
    code, _, err = stsbench("reproduce", "mine", "--cards", mine, "--base", masked_lm)
    *_, first, second = err.splitlines()
    assert code == 2 and "a.txt" in first and "b.txt" in second and "no data either" not in err
