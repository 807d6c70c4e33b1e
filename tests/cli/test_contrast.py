"""Contrast sets through the commands: scored, compared, shown and verified."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from tests.cli.commands import HEAD, Command, write

WORDS = "cats dogs boats trains rivers clouds songs bread chairs stones".split()
BOTH = ("own_encoders:Hashed", "own_encoders:Hashed+size=4")


def write_task(name: str, params: str, file: str, text: str) -> None:
    card = HEAD.replace('"sts"', '"contrast"') + (
        f'[splits.test]\n[local]\nreader = "contrast_table"\nfolder = "mine"\nparams = {{{params}}}\n'
        f'[local.files]\ntest = [{{path = "{file}"}}]\n'
    )
    write(Path("cards/tasks") / f"{name}.toml", card)
    write(Path("data/mine") / file, text)


def make_items(n: int) -> list[tuple[str, str, str, str]]:
    """Items of which none share a sentence."""
    rng = np.random.default_rng(5)
    words = [f"{word}{k}" for word in WORDS for k in range(6)]
    items = []
    for item in range(n):
        a, b, c, d, e = rng.choice(words, size=5, replace=False)
        items.append((f"{a} {b} n{item}", f"{a} {c} p{item}", f"{d} {b} q{item}", f"{e} m{item}"))
    return items


OPTIONS = ("--cards", "cards", "--data", "data")


def test_items_are_scored_compared_shown_and_verified(stsbench: Command, own: Path):
    items = make_items(150)
    write_task("lines", "", "lines.tsv", "anchor\tpositive\tnegative\n" + "".join("\t".join(item[:3]) + "\n" for item in items))  # fmt: skip
    objects = [{"input": a, "options": [n, p, m]} for a, p, n, m in items]
    columns = 'anchor = "input", positive = "options.1", negatives = ["options.0", "options.2"]'
    write_task("lists", columns, "lists.jsonl", "".join(json.dumps(one) + "\n" for one in objects))
    run = ("run", "--encoder", ",".join(BOTH), "--tasks", "lines,lists", *OPTIONS, "--no-store")
    by_cell = {(one["encoder"], one["task"]): one for one in stsbench.json(*run)["results"]}
    lines, lists = by_cell["hashed", "lines"], by_cell["hashed", "lists"]
    assert lines["n"] == 150 and lines["protocol"]["name"] == "contrast"
    # The same negative, once alone and once beside another.
    assert lists["scores"]["accuracy.1"] == lines["score"] > lists["score"]
    cards = ("--cards", "cards")
    compared = stsbench.json("compare", "hashed", "hashed+size=4", "--tasks", "lines", *cards)
    assert "McNemar's mid-p" in json.dumps(compared)
    right = [np.asarray(_correct(encoder), dtype=bool) for encoder in ("hashed", "hashed+size=4")]
    b, c = int((right[0] & ~right[1]).sum()), int((~right[0] & right[1]).sum())
    mid_p = 2 * stats.binom.cdf(min(b, c), b + c, 0.5) - stats.binom.pmf(min(b, c), b + c, 0.5)
    assert str(round(mid_p, 6))[:6] in json.dumps(compared), (mid_p, compared)
    # The mean of both tasks, whose items are the same: both have clusters of two.
    both = stsbench.fine("compare", "hashed", "hashed+size=4", *cards)
    assert "lists" in both and "Student's t" in both
    assert f"{100 * lines['score']:.2f}" in stsbench.fine("leaderboard", "--suite", "lines", *cards)
    assert stsbench.json("verify", *OPTIONS)["summary"].startswith("4 ")
    assert stsbench("verify", *OPTIONS).code == 0
    # Another sentence in the data is seen.
    path = Path("data/mine/lines.tsv")
    path.write_text(path.read_text().replace(items[0][2], "another"))
    assert "field 'data'" in stsbench("verify", *OPTIONS).err


def _correct(encoder: str) -> list[int]:
    from tests.made import read_items

    (path,) = Path("results", encoder).glob("lines.*.json")
    return list(read_items(path)["correct"])


@pytest.mark.parametrize(
    ("params", "text", "problem"),
    [
        ("", "anchor\tpositive\tother\na\tb\tc\n", "no column 'negative' (has anchor, positive, other)"),
        ('negatives = []', "anchor\tpositive\na\tb\n", "0 columns of negatives, not 1 to 6"),
        ("", "anchor\tpositive\tnegative\na\tb\n", "line 2: 2 fields, expected 3"),
    ],
)  # fmt: skip
def test_a_table_that_is_no_contrast_set_is_one_line(
    stsbench: Command, own: Path, params: str, text: str, problem: str
):
    write_task("bad", params, "bad.tsv", text)
    code, _, err = stsbench("run", "--encoder", BOTH[0], "--tasks", "bad", *OPTIONS, "--no-store")
    assert code == 2 and problem in err


def test_lists_of_different_lengths_have_no_columns(stsbench: Command, own: Path):
    rows = [{"anchor": "a", "positive": "b", "o": ["c"]}, {"anchor": "a", "positive": "b", "o": []}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    write_task("ragged", 'negatives = ["o.0"]', "ragged.jsonl", text)
    code, _, err = stsbench(
        "run", "--encoder", BOTH[0], "--tasks", "ragged", *OPTIONS, "--no-store"
    )
    assert code == 2 and "no column 'o.0' (has anchor, positive, o)" in err
