"""Which state of an encoder counts: the one that ``run`` made or reused last, in every command that reads a results folder."""

from __future__ import annotations

import csv
import io
import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import stsbench as package
from stsbench.core.cards import task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.results.folder import read_folder, read_states, write_result
from tests.cli.commands import QUICK
from tests.made import make_result

OLDER = "of an older state left out: 'hashed [{}]' (1); what a run made or reused last counts\n"
STATES = {8: "hashed 8", 32: "hashed 3"}


def run(stsbench: Any, size: int, *tasks: str) -> float:
    """Score the encoder ``hashed`` in one of its states; returns what is printed, unrounded."""
    encoder = ("--encoder", "own_encoders:Hashed", "--set", f"size={size}", "--name", "hashed")
    done = stsbench("run", *encoder, *(tasks or QUICK), "--json")
    assert done.code == 0, done.err
    return float(json.loads(done.out)["results"][0]["score"])


def rows(stsbench: Any, *options: str) -> dict[str, float]:
    board = stsbench("leaderboard", "--suite", "quickstart-en", "--format", "csv", *options).out
    lines = csv.DictReader(io.StringIO(board))
    return {
        line["row"]: float(line["quickstart-en"]) / 100
        for line in lines
        if line["side"] == "measured"
    }


def compared(stsbench: Any, *encoders: str) -> tuple[list[float], str]:
    done = stsbench("compare", *encoders, "--format", "json")
    assert done.code == 0, done.err
    (difference,) = json.loads(done.out)["differences"]
    return difference["scores"], done.err


@pytest.mark.parametrize("last", [8, 32])
def test_every_command_takes_the_state_that_run_printed_last(stsbench, tmp_path, last):
    other = 40 - last
    scores = {size: run(stsbench, size) for size in (last, other, last)}
    assert scores[8] != scores[32] and run(stsbench, last) == scores[last]
    score, hint = scores[last], OLDER.format(STATES[other])
    stsbench("lock", "--out", "lock.json")
    (cell,) = json.loads(Path("lock.json").read_text())["cells"]
    assert cell["score"] == score
    for against in ("lock.json", "results"):
        found = stsbench("check", "results", "--against", against, "--json")
        (verdict,) = json.loads(found.out)["verdicts"]
        assert (verdict["new"], verdict["old"], verdict["outcome"]) == (
            score,
            score,
            "fine",
        ) and hint in found.err
    assert rows(stsbench) == {"hashed": pytest.approx(score)}
    assert hint in stsbench("leaderboard", "--suite", "quickstart-en").err
    index = stsbench("export", "--format", "model-index")
    assert str(score) in index.out and str(scores[other]) not in index.out and hint in index.err
    of_suite = (
        "--suite",
        "quickstart-en",
        "--figures",
        "map",
        "--tasks",
        "quickstart-en",
        "--out",
        "page.html",
    )
    page = stsbench("report", "--encoder", "own_encoders:Hashed", *of_suite)
    assert page.code == 0, page
    assert f"{100 * score:.2f}" in Path("page.html").read_text() and "hashed [" in page.err
    with pytest.warns(UserWarning, match=r"older state .*'hashed \["):
        (read,) = package.read_results("results")
    assert read.score == score


def test_a_worse_state_that_came_back_is_judged_and_not_the_better_one_between(stsbench):
    worse, better = sorted((8, 32), key=lambda size: run(stsbench, size))
    for size, code in ((better, 0), (worse, 1), (better, 0)):
        run(stsbench, better)
        stsbench("lock", "--out", "good.json")
        run(stsbench, size)
        assert (
            stsbench("check", "results", "--against", "good.json", "--tolerance", "0").code == code
        )


def test_an_older_state_is_taken_where_it_is_named(stsbench):
    old, new = (run(stsbench, size) for size in (8, 32))
    assert rows(stsbench, "-e", "hashed [hashed 8]") == {"hashed": pytest.approx(old)}
    both, err = compared(stsbench, "hashed [hashed 8]", "hashed")
    assert both == [old, new] and err == ""
    stsbench("lock", "--out", "old.json", "-e", "hashed [hashed 8]")
    (cell,) = json.loads(Path("old.json").read_text())["cells"]
    assert cell["score"] == old
    assert list(package.compare("hashed[hashed 8]", "hashed").to_frame().score_second) == [new]


def test_results_of_several_states_are_rows_of_their_own_where_only_some_tasks_were_run_again(
    stsbench,
):
    for size, tasks in ((8, "quickstart"), (32, "quickstart-en")):
        run(stsbench, size, "--tasks", tasks)
    board = stsbench("leaderboard", "--suite", "quickstart", "--format", "csv").out
    assert "hashed [hashed 8]" in board and "hashed [hashed 3]" in board
    assert "hashed 8" in stsbench.refused("compare", "hashed", "minilm")


def test_a_folder_without_a_record_says_what_to_do(stsbench):
    scores = [run(stsbench, size) for size in (8, 32)]
    (record,) = Path("results/hashed").glob("*.current")
    for content in (None, b"", b"no such\n", b"\xff\xfe"):
        record.unlink() if content is None else record.write_bytes(content)
        for command in (
            ["leaderboard", "--suite", "quickstart-en"],
            ["lock"],
            ["export", "--format", "model-index"],
        ):
            err = stsbench(*command).err
            assert "2 states of 'hashed'" in err
            assert "; run it again with the encoder that you mean" in err
        (verdict,) = json.loads(stsbench("check", "results", "--against", "results", "--json").out)[
            "verdicts"
        ][:1]
        assert verdict["outcome"] == "unreadable"
    assert run(stsbench, 32) == scores[1] and rows(stsbench) == {"hashed": pytest.approx(scores[1])}
    record.unlink()
    (older,) = [one for one in read_states(Path("results")).results if one.score == scores[0]]
    assert older.path is not None
    older.path.unlink()
    assert rows(stsbench) == {"hashed": pytest.approx(scores[1])}, "the only state needs no record"


def test_copied_and_merged_folders_keep_their_current_states(stsbench):
    scores = [run(stsbench, size) for size in (32, 8)]
    shutil.copytree("results", "copy")
    run(stsbench, 32)
    shutil.copytree("copy", "merged")
    shutil.copytree("results", "merged", dirs_exist_ok=True)
    for folder, score in (("results", scores[0]), ("copy", scores[1]), ("merged", scores[0])):
        assert rows(stsbench, "--results", folder) == {"hashed": pytest.approx(score)}


def test_a_lock_with_two_states_of_a_cell_is_refused(stsbench):
    cells = []
    for size in (8, 32):
        run(stsbench, size)
        stsbench("lock", "--out", "lock.json")
        cells += json.loads(Path("lock.json").read_text())["cells"]
    Path("both.json").write_text(
        json.dumps({**json.loads(Path("lock.json").read_text()), "cells": cells})
    )
    assert "is locked twice" in stsbench("check", "results", "--against", "both.json").err


def test_a_run_that_ends_between_its_two_files_leaves_the_state_of_before(tmp_path, monkeypatch):
    states = [make_result(score=score, fingerprint=f"state {score}") for score in (0.5, 0.6, 0.7)]
    write_result(states[0], tmp_path)
    for before, after in pairwise(states):
        with monkeypatch.context() as ends:
            # What is written after the result of the new state is its record.
            ends.setattr(
                "stsbench.results.folder.write_atomically", stopping_after(f"{after.cell_id}.json")
            )
            with pytest.raises(KeyboardInterrupt):
                write_result(after, tmp_path)
        assert [one.score for one in read_folder(tmp_path).results] == [before.score]
        write_result(after, tmp_path)
        found = read_folder(tmp_path)
        assert [one.score for one in found.results] == [after.score] and not found.problems


def stopping_after(name: str) -> Any:
    from stsbench.core.files import write_atomically

    def stopping(path: Path, content: bytes) -> Path:
        write_atomically(path, content)
        if path.name.endswith(name):
            raise KeyboardInterrupt
        return path

    return stopping


def test_scores_on_other_data_or_by_another_card_share_no_column(stsbench):
    board, table = ("leaderboard", "--suite", "sts"), ("leaderboard", "--table", "sts")
    for encoder, score in (("minilm", 0.8278), ("hashed", 0.496)):
        data, card = (
            ("1" if encoder == "minilm" else "2") * 64,
            task_digest(Catalogue().task("sts13")),
        )
        write_result(make_result(encoder, "sts12", score, data=data), Path("results"))
        write_result(
            make_result(
                encoder, "sts13", score, task_card=card if encoder == "minilm" else "0" * 64
            ),
            Path("results"),
        )
    for command in (
        board,
        table,
        ("compare", "minilm", "hashed"),
        (
            "report",
            "-e",
            "minilm,own_encoders:Hashed",
            "--figures",
            "map",
            *QUICK,
            "--out",
            "x.html",
        ),
    ):
        assert "data hash differs" in stsbench(*command).err
    apart = "sts12: the scores of 'hashed' and 'minilm' cannot stand in one column: data"
    with (
        pytest.raises(package.StsbenchError, match=apart),
        pytest.warns(UserWarning, match=": 4 of 4 results"),
    ):
        package.leaderboard("results")
    for encoder in ("minilm", "hashed"):
        assert stsbench.fine(*board, "-e", encoder)
    write_result(make_result("hashed", "sts12", 0.496, data="1" * 64), Path("results"))
    for command in (board, table):
        code, out, err = stsbench(*command, "--format", "csv")
        assert code == 0 and "skipped: sts13: hashed: " in err
        assert out.count(",82.78,") >= 2 and out.count(",49.6,") == 1
