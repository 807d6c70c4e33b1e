"""``stsbench data``: verify, fetch, what training text holds of tests and tests share, and back-translation."""

from __future__ import annotations

import csv
import json

import pytest

from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task
from tests.cli.commands import GOLD, HASHED, QUICK, make_own

VERDICT = "OK"


def test_verify_the_packaged_tasks(stsbench):
    rows = stsbench.json("data", "verify")
    assert [(row["task"], row["split"], row["rows"]) for row in rows] == [
        ("quickstart-en", "test", 300),
        ("quickstart-es-en", "test", 100),
        ("quickstart-probe", "train", 240),
        ("quickstart-probe", "test", 120),
    ]
    assert {row["verdict"] for row in rows} == {VERDICT}
    out = stsbench.fine("data", "verify")
    assert out.endswith("\n4 of 4 splits match their cards (counts, characters, means, sha256)\n")
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("files", "verdict"),
    [
        (
            {"gs_txt": GOLD.replace("2\n", "1\n")},
            "gs.txt: differs from the file that its card names",
        ),
        ({"gs_txt": GOLD.replace("\n", "\r\n")}, "its line ends are CRLF"),
    ],
)
def test_verify_a_broken_folder_names_the_fault_and_goes_on(stsbench, tmp_path, files, verdict):
    own = make_own(tmp_path, **files)
    code, out, err = stsbench("data", "verify", *own.options())
    assert (code, err) == (2, "")
    assert "5 of 6 splits match" in out
    code, out, err = stsbench("data", "verify", "both", *own.options(), "--json")
    assert (code, err) == (2, "")
    assert verdict in out and out.count(VERDICT) == 1


def test_verify_tells_a_missing_file(stsbench, tmp_path):
    own = make_own(tmp_path)
    path = own.data / "mine" / "gs.txt"
    path.unlink()
    code, out, _ = stsbench("data", "verify", *own.options(), "--json")
    assert code == 2 and f"{path}: is missing" in out


def test_fetch_says_what_is_there(stsbench, tmp_path):
    own = make_own(tmp_path)
    assert stsbench.fine("data", "fetch", "both", "quickstart-en", *own.options()) == (
        "semeval: test 4 rows (local)\ntable: test 4 rows (local)\nquickstart-en: test 300 rows (package)\n"
    )


def test_fetch_fetches_a_task_once(stsbench, tmp_path):
    own = make_own(tmp_path)
    assert stsbench.fine("data", "fetch", "table", "both", "table", *own.options()) == (
        "table: test 4 rows (local)\nsemeval: test 4 rows (local)\n"
    )


def test_fetch_goes_on_past_what_cannot_be_had(stsbench, tmp_path):
    own = make_own(tmp_path)
    (own.data / "mine" / "gs.txt").unlink()
    code, out, err = stsbench("data", "fetch", "both", "length", *own.options())
    assert code == 2
    assert out == "table: test 4 rows (local)\n"
    assert err.startswith("stsbench: no data for semeval (test): it is local only; pass --data DIR")
    assert err.endswith("(and 1 more not available)\n") and err.count("\n") == 1


def test_make_says_where_to_and_what_cannot_be_made(stsbench, tmp_path):
    assert "give --corpora DIR (or set STSBENCH_CORPORA)" in stsbench.refused(
        "data", "make", "wiki1m_head"
    )
    error = stsbench.refused("data", "make", "caption_pairs", "--corpora", tmp_path)
    assert error.startswith("corpus 'caption_pairs' cannot be made from others: ")


TASKS = ("--tasks", "quickstart-en,quickstart-es-en,quickstart-probe")


def pairs() -> PairSplit:
    split = load_task("quickstart-en").load("test")
    assert isinstance(split, PairSplit)
    return split


@pytest.fixture
def text(tmp_path):
    split = pairs()
    lines = [
        split.sentences1[0],
        split.sentences2[0].upper(),
        split.sentences2[3],
        "a sentence that is in no test",
    ]
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
    assert [str(r["item"]) for r in json.loads((tmp_path / "held.json").read_text())] == [
        r["item"] for r in held
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
        "data", "overlap", "--tasks", "semeval,table", "--out", "s.csv", *own.options()
    )
    facts = {"task": "semeval", "sentences": 8, "in": "table", "shared": 8, "percent": 100.0}
    facts |= {"items": 4, "held": 4, "pairs": 4}
    assert first == facts and second == {**facts, "task": "table", "in": "semeval"}
    lines = (tmp_path / "s.csv").read_text().splitlines()
    assert lines == [
        "task,sentences,in,shared,percent,items,held,pairs",
        *(",".join(map(str, one.values())) for one in (first, second)),
    ]
    assert "in the other's" in stsbench.fine(
        "data", "overlap", "--tasks", "semeval,table", *own.options()
    )
    assert (
        stsbench.fine("data", "overlap", "--tasks", "quickstart-en")
        == "no test shares a sentence with another\n"
    )


def test_run_prints_the_score_without_what_the_text_holds(stsbench, text):
    out = stsbench.fine("run", *HASHED, *QUICK, "--clean", text)
    (line,) = (line for line in out.splitlines() if line.startswith("  without text.txt"))
    left = int(line.split()[-1])
    assert 250 < left < 300
    assert "without text.txt: the score of the items of which that text holds no sentence" in out
    (result,) = stsbench.json("run", *HASHED, *QUICK)["results"]
    assert result["clean"][0]["n"] == left
    # Boards have it from the result.
    assert "Without text.txt" in stsbench.fine("leaderboard", "--suite", "quickstart")


def test_back_translate(stsbench, tmp_path):
    for package in ("sentencepiece", "sacremoses"):
        pytest.importorskip(package, reason="needs the extra translate")
    from tests.training.marian import LINES, make_marian

    models = [
        make_marian(tmp_path / name, seed=seed) for seed, name in enumerate(("there", "back"))
    ]
    (tmp_path / "in.txt").write_text("\n".join(LINES[:2]) + "\n")
    command = ("data", "back-translate", tmp_path / "in.txt", tmp_path / "out.csv")
    options = (
        "--forward",
        models[0],
        "--backward",
        models[1],
        "--max-tokens",
        "21",
        "--mode",
        "sampling",
    )
    out = stsbench.fine(*command, *options, "--seed", "3")
    assert "2 pairs of 2 " in out
    assert json.loads((tmp_path / "out.csv.json").read_text())["backward"]["seed"] == 3
    assert "already exists" in stsbench.refused(*command, *options)
    error = stsbench.refused(
        "data", "back-translate", tmp_path / "in.txt", tmp_path / "b.csv", "--forward", tmp_path
    )
    assert f"{tmp_path}: no config.json" in error
    assert "name it c.csv" in stsbench.refused(
        "data", "back-translate", tmp_path / "in.txt", tmp_path / "c.txt"
    )
