"""``stsbench data overlap``: what training text holds of tests, what tests share, and which items."""

from __future__ import annotations

import csv
import json

import pytest

from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task
from tests.cli.commands import HASHED, QUICK, make_own

TASKS = ("--tasks", "quickstart-en,quickstart-es-en,quickstart-probe")


def pairs() -> PairSplit:
    split = load_task("quickstart-en").load("test")
    assert isinstance(split, PairSplit)
    return split


@pytest.fixture
def text(tmp_path):
    split = pairs()
    lines = [split.sentences1[0], split.sentences2[0].upper(), split.sentences2[3], "a sentence that is in no test"]
    (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "text.txt"


def test_what_a_file_holds(stsbench, tmp_path, text):
    out = tmp_path / "held.csv"
    (row,) = stsbench.json("data", "overlap", text, *TASKS, "--out", out)
    counts = [row[key] for key in ("exact", "normalised", "items", "pairs", "graded")]
    assert (row["task"], counts) == ("quickstart-en", [2, 1, 300, 0, 0])
    held = list(csv.DictReader(out.read_text().splitlines()))
    assert len(held) == row["held"] == 300 - row["left"] >= 2
    assert list(held[0].values())[:5] == ["quickstart-en", "0", "exact", "normalised", ""]
    assert held[0]["sentence1"] == pairs().sentences1[0]
    printed = stsbench.fine("data", "overlap", text, *TASKS, "--out", tmp_path / "held.json")
    assert f"{text}: nothing of quickstart-es-en, quickstart-probe" in printed.replace("\n", " ")
    assert [str(one["item"]) for one in json.loads((tmp_path / "held.json").read_text())] == [
        one["item"] for one in held
    ]


def test_pairs_with_scores_are_told(stsbench, tmp_path):
    split = pairs()
    with (tmp_path / "scored.csv").open("w", newline="") as stream:
        rows = zip(split.sentences2[:4], split.sentences1[:4], (1, 2, 3, 4), strict=True)
        csv.writer(stream).writerows([("first", "second", "score"), *rows])
    (row,) = stsbench.json("data", "overlap", tmp_path / "scored.csv", "--tasks", "quickstart-en")
    assert (row["pairs"], row["graded"]) == (4, 4)


def test_what_tests_share(stsbench, tmp_path):
    own = make_own(tmp_path)
    first, second = stsbench.json(
        "data", "overlap", "--tasks", "semeval,table", "--out", tmp_path / "s.csv", *own.options()
    )
    facts = {"task": "semeval", "sentences": 8, "in": "table", "shared": 8, "percent": 100.0}
    facts |= {"items": 4, "held": 4, "pairs": 4}
    assert first == facts and second == {**facts, "task": "table", "in": "semeval"}
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines == [
        "task,sentences,in,shared,percent,items,held,pairs",
        *(",".join(map(str, one.values())) for one in (first, second)),
    ]
    assert "in the other's" in stsbench.fine("data", "overlap", "--tasks", "semeval,table", *own.options())
    assert stsbench.fine("data", "overlap", "--tasks", "quickstart-en") == "no test shares a sentence with another\n"


def test_run_prints_the_score_without_what_the_text_holds(stsbench, text):
    out = stsbench.fine("run", *HASHED, *QUICK, "--clean", text)
    (line,) = (line for line in out.splitlines() if line.startswith("  without text.txt"))
    left = int(line.split()[-1])
    assert 250 < left < 300
    assert "without …: the score of those items of which that text holds no sentence" in out
    (result,) = stsbench.json("run", *HASHED, *QUICK)["results"]
    assert result["clean"][0]["n"] == left
    # Boards have it from the result.
    assert "Without text.txt" in stsbench.fine("leaderboard", "--suite", "quickstart")
