"""``stsbench export``, ``leaderboard --mteb`` and ``leaderboard --ranks``."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml  # type: ignore[import-untyped]
from huggingface_hub import ModelCard, parse_eval_result_entries
from msgspec import structs

from stsbench.results.record import digest_columns, items_path
from tests.boards.exports.test_mteb import made
from tests.boards.scored import drawn, sts, write as write_results
from tests.cli.commands import Command, write
from tests.made import make_result

TASKS = ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr")


@pytest.fixture
def two(stsbench: Command) -> None:
    write_results(
        Path("results"), *(made("a", task, 0.5) for task in TASKS), made("b", "sts12", 0.6)
    )


def test_mteb_files_are_written_and_read_again(stsbench, two):
    out = stsbench.fine("export", "--format", "mteb", "--out", "theirs")
    lines = out.splitlines()
    assert lines[:2] == [
        f"skipped: a on {task}: its data are not those of a task of MTEB's; those of {variant} are"
        for task, variant in (("sickr", "sickr-mteb"), ("stsb", "stsb-raw"))
    ]
    assert lines[2] == "wrote 6 files; mteb.ResultCache('theirs') reads them"
    board = stsbench.fine("leaderboard", "--suite", "sts", "--mteb", "theirs")
    after = board[board.index("Imported from MTEB's") :]
    assert "stsbench/b°" in after and "60.00" in after and "stsbench/a°" in after
    assert max(map(len, board.splitlines())) <= 80
    found = stsbench.json(
        "export", "--format", "mteb", "--out", "some", "--encoder", "a", "--tasks", "sts12,stsb"
    )
    assert len(found["files"]) == len(found["left_out"]) == 1 and found["files"][0].startswith(
        "some/results/stsbench__a/"
    )


def test_a_model_card_is_printed_or_filled(stsbench, two):
    printed = stsbench.fine("export", "--format", "model-index", "--encoder", "a", "--tasks", "sts")
    (model,) = ModelCard(printed).data.to_dict()["model-index"]  # type: ignore[no-untyped-call]
    assert model["name"] == "a" and len(model["results"]) == 7
    assert stsbench.json(
        "export", "--format", "model-index", "--encoder", "a", "--tasks", "sts"
    ) == [model]
    write(Path("README.md"), "---\nlicense: mit\n---\n# a\n")
    assert (
        stsbench.fine("export", "--format", "model-index", "-e", "a", "--out", "README.md")
        == "wrote README.md\n"
    )
    text = Path("README.md").read_text()
    assert text.startswith("---\nlicense: mit\nmodel-index:\n") and text.endswith("---\n# a\n")


def test_the_hubs_results_and_every_eval_evers_are_printed_or_written(stsbench, two):
    code, out, err = stsbench("export", "--format", "eval-results", "-e", "a")
    assert code == 0 and err.count("stsbench: left out: a on ") == 2
    assert len(parse_eval_result_entries(yaml.safe_load(out))) == 5
    where = Path(".eval_results/stsbench.yaml")
    assert (
        stsbench("export", "--format", "eval-results", "-e", "a", "--out", where).out
        == f"wrote {where}\n"
    )
    assert where.read_text() == out
    printed = stsbench.fine("export", "--format", "every-eval-ever", "-e", "a")
    assert len(json.loads(printed)["evaluation_results"]) == 7
    found = stsbench.json(
        "export", "--format", "every-eval-ever", "-e", "a", "--out", "record.json"
    )
    assert (
        found == {"out": "record.json", "text": Path("record.json").read_text()}
        and found["text"] == printed
    )
    for fmt, what in (("eval-results", "a file of the Hub's"), ("every-eval-ever", "a record")):
        message = stsbench.refused("export", "--format", fmt, "--tasks", "sts12")
        assert (
            message
            == f"{what} is of one encoder, these results are of 2 ('a', 'b'); give --encoder"
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "mtbe", "--out", "x"], "unknown format 'mtbe'; did you mean 'mteb'"),
        (["--format", "mteb"], "--format mteb writes many files: give --out FOLDER"),
        (
            ["--format", "model-index"],
            "a model card is of one encoder, these results are of 2 ('a', 'b'); give --enco",
        ),
        (["--format", "mteb", "--out", "x", "-e", "aa"], "unknown encoder 'aa'; did you mean 'a'?"),
        (
            ["--format", "mteb", "--out", "x", "--results", "gone"],
            "results folder 'gone' does not exist",
        ),
        (
            ["--format", "mteb", "--out", "x", "--protocol", "wmean"],
            "results: no results of these tasks by this",
        ),
        (
            ["--format", "mteb", "--out", "x", "--tasks", "sickr"],
            "nothing to export: a on sickr: its data are not",
        ),
        (["--format", "mteb", "--out", "file/x"], "file/x/results"),
        (
            ["--format", "model-index", "-e", "a", "--out", "bad.md"],
            "bad.md: its metadata cannot be read: ",
        ),
    ],
)
def test_export_refuses_in_one_line(stsbench, arguments, message):
    write_results(
        Path("results"), made("a", "sts12", 0.5), made("a", "sickr", 0.5), made("b", "sts12", 0.6)
    )
    write(Path("file"), "in the way")
    write(Path("bad.md"), "---\n- a list\n---\n")
    assert stsbench.refused("export", *arguments).startswith(message)


# Ranks and ties.


def ranked(folder: Path) -> None:
    """Three encoders on all tasks, two of them all but alike; a fourth that lacks a task."""
    for at, task in enumerate(TASKS):
        gold, similarity = drawn(at, 150)
        for name, noise in (("good", 0.0), ("also-good", 0.01), ("bad", 2.0)):
            made = sts(name, task, gold, similarity + noise * drawn(50 + at, 150)[1])
            own = {"sentence1": np.arange(150, dtype=np.uint32) + 150 * at}
            columns = {**made.per_item, **own}
            write_results(
                folder, structs.replace(made, per_item=columns, items=digest_columns(columns))
            )
    gold, similarity = drawn(0, 150)
    write_results(folder, sts("hole", "sts12", gold, similarity))


RANKED = {"good": ["1–3", "a"], "also-good": ["1–3", "a"], "bad": ["4", "b"], "hole": ["1–3", "a"]}


def test_ranks_and_letters_are_columns_in_every_format(stsbench):
    ranked(Path("results"))
    out = stsbench.fine("leaderboard", "--ranks")
    lines = {line.split()[0].rstrip("≈"): line.split() for line in out.splitlines() if line}
    assert lines["encoder"][-2:] == ["Rank", "Ties"]
    assert {name: lines[name][-2:] for name in RANKED} == RANKED
    # A row without a mean stands where its rank is.
    assert [name for name in lines if name in RANKED][-1] == "bad"
    assert (
        "\nRank: by the mean among the rows measured here; all hold at once (Holm, 95%)\n" in out
        and max(map(len, out.splitlines())) <= 80
    )
    words = " ".join(out.split())
    assert "(paired tests, Holm's correction over 6 pairs, level 0.05)" in words
    assert (
        "hole: not all tasks can be used; compared with each other row on the tasks that both have"
        in words
    )
    assert "good≈" in out and "bad≈" not in out and "\n≈ best " in out
    for fmt, cell in (
        ("markdown", " 1–3 | a |"),
        ("latex", " 1--3 & a "),
        ("html", "<td>1–3</td><td>a</td>"),
    ):
        assert cell in stsbench.fine("leaderboard", "--ranks", "--format", fmt)
    rows = list(
        csv.DictReader(io.StringIO(stsbench.fine("leaderboard", "--ranks", "--format", "csv")))
    )
    found = {
        r["row"]: [r["rank_best"], r["rank_worst"], r["letters"], r["tied_with_best"]]
        for r in rows
        if r["rank_method"] == "Holm"
    }
    assert found == {
        "good": ["1", "3", "a", "True"], "also-good": ["1", "3", "a", "True"], "bad": ["4", "4", "b", "False"],
        "hole": ["1", "3", "a", "True"],
    }  # fmt: skip
    (table,) = json.loads(stsbench.fine("leaderboard", "--ranks", "--format", "json"))
    of = {row["label"]: row for row in table["groups"][0]["rows"]}
    methods = {column["key"]: column.get("method") for column in table["columns"]}
    assert methods["ranks"] == methods["letters"] == "Holm" and methods["average"] is None
    assert of["bad"]["cells"]["ranks"] == {
        "measured": {"value": 4, "interval": [4, 4], "text": "4"}
    }
    assert of["bad"]["cells"]["letters"] == {"measured": {"value": 4, "text": "b"}}
    assert of["good"]["is_best"] is True and "is_best" not in of["bad"]
    assert "Rank" not in stsbench.fine("leaderboard")


@pytest.mark.parametrize(
    "table", [("--suite", "sts"), ("--table", "simcse-5", "--add", "good:Ours")]
)
def test_a_row_alone_has_no_rank_letter_or_mark(stsbench, table):
    ranked(Path("results"))
    for other in ("also-good", "bad", "hole"):
        shutil.rmtree(Path("results") / other)
    ranks = ("leaderboard", *table, "--ranks")
    label = "Ours" if "--add" in table else "good"
    note = f"no ranks: they are among the rows measured here, and '{label}' is the only one to rank"
    assert stsbench.fine(*ranks, "--format", "markdown") == (
        stsbench.fine("leaderboard", *table, "--format", "markdown") + f"\n{note}\n"
    )
    assert "rank_best" not in stsbench.fine(*ranks, "--format", "csv").splitlines()[0]
    cells = [row["cells"] for group in stsbench.json(*ranks)[0]["groups"] for row in group["rows"]]
    assert not [one for one in cells if {"ranks", "letters"} & set(one)]


def test_ranks_in_a_papers_table_are_among_the_rows_measured_here(stsbench):
    ranked(Path("results"))
    out = stsbench.fine(
        "leaderboard",
        "--table",
        "simcse-5",
        "--add",
        "good:Ours,bad",
        "--ranks",
        "--format",
        "markdown",
    )
    rows = {
        line.split("|")[1].strip(): line.split("|")[-3:-1]
        for line in out.splitlines()
        if line.startswith("| ")
    }
    assert rows["Ours≈"] == [" 1 ", " a "] and rows["bad"] == [" 2 ", " b "]
    assert rows["SimCSE-RoBERTa-large (sup.)§"] == [" – ", " – "]
    assert (
        "≈ best by the mean among the rows measured here, or not significantly different from that one"
        in out
    )
    assert "Rank: by " in out


def test_ranks_refuse_in_one_line(stsbench):
    ranked(Path("results"))
    for kind, name, called in (("--table", "declutr-2", ""), ("--suite", "quickstart", "suite ")):
        refused = stsbench.refused("leaderboard", "--ranks", kind, name)
        assert refused.startswith(f"{called}'{name}' has no mean")
        own_suite = "for tasks of your own, write a suite in suites.toml beside their cards"
        assert (own_suite in refused) == (kind == "--suite")
    items_path(next(Path("results/good").glob("sts12*.json"))).unlink()
    out = " ".join(stsbench.fine("leaderboard", "--ranks").split())
    assert (
        "Rank: no per-item columns of good on sts12; run: stsbench run --fresh good --tasks sts12"
        in out
    )
    assert "good, hole: not all tasks can be used" in out
    for columns in Path("results").glob("*/*.parquet"):
        columns.unlink()
    again = f"which ranks need; run: stsbench run --fresh ENCODER --tasks {','.join(TASKS)}"
    assert stsbench.refused("leaderboard", "--ranks") == (
        f"no per-item columns of also-good on sts12 (and 21 more results), {again}"
    )
    Path("none").mkdir()
    assert stsbench.refused(
        "leaderboard", "--ranks", "--table", "simcse-5", "--results", "none"
    ) == ("'simcse-5' has no measured row to rank; 'stsbench run' makes it")


def test_cite_names_what_has_no_known_source(stsbench, tmp_path):
    for encoder, task in (("minilm", "stsb"), ("models/mine", "quickstart-en"), ("minilm", "own")):
        write_results(tmp_path / "results", make_result(encoder, task, 0.5))
    code, text, err = stsbench("cite", "results")
    (line,) = (line for line in text.splitlines() if "no source" in line)
    names = set(line.removeprefix("% no source known: ").split(", "))
    assert names == {"task quickstart-en", "task own (no card)", "encoder models/mine (no card)"}
    assert (code, err) == (0, f"stsbench: {line.removeprefix('% ')}\n")
    # With all sources known there is no such line.
    assert stsbench.fine("cite", "results", "--tasks", "stsb").startswith("% task stsb\n")
