"""``compare``, ``parity``, ``check`` and ``lock``: what they print, planted regressions and faults, and folders alike."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import stsbench as package
from stsbench.cli.main import main
from stsbench.core.errors import StsbenchError
from tests.boards.scored import drawn, probe, sts, write as write_results
from tests.cli.commands import HASHED, PAIR_TABLE, QUICK, TABLE, Command, make_own, sha256, write

ROOT = Path(package.__file__).parent.parent


def fill(folder: Path) -> Path:
    """Results of three encoders on two tasks, one of another protocol too."""
    gold, similarity = drawn(1, 200)
    worse = similarity + 1.0 * drawn(2, 200)[1]
    right = [True] * 80 + [False] * 20
    wmean = {"name": "wmean", "metric": "spearman", "aggregation": "wmean", "similarity": "cosine"}
    return write_results(
        folder,
        sts("good", "sts12", gold, similarity),
        sts("good", "sts12", gold, similarity, protocol=wmean),
        probe("good", "mr", right),
        sts("bad", "sts12", gold, worse),
        probe("bad", "mr", right[1:] + right[:1]),
        sts("other", "sts12", gold, similarity, protocol=wmean),
    )


# compare


def test_compare_takes_folders(stsbench):
    fill(Path("mine"))
    fill(Path("results"))
    by_name = stsbench.json("compare", "good", "bad")
    by_folder = stsbench.json("compare", "mine/good", "mine/bad")
    strip = ("first", "second")
    left, right = (
        [{k: v for k, v in d.items() if k not in strip} for d in found["differences"]]
        for found in (by_name, by_folder)
    )
    assert left == right and by_folder["encoders"] == ["mine/good", "mine/bad"]
    mixed = stsbench.json("compare", "good", "mine/good", "--protocol", "simcse")
    assert mixed["differences"][0]["p"] == 1.0


def test_compare_takes_a_comma_list(stsbench):
    fill(Path("mine"))
    fill(Path("results"))
    by_blanks = stsbench.json("compare", "good", "bad", "mine/good")
    assert stsbench.json("compare", "good,bad", "mine/good") == by_blanks
    write_results(Path("results"), sts("bad, not good", "sts12", *drawn(1, 200)))
    mixed = stsbench.json("compare", "good,bad, not good", "bad")
    assert mixed["encoders"] == ["good", "bad, not good", "bad"]
    refused = stsbench.refused("compare", "good,,bad")
    assert refused.startswith("encoders 'good,,bad': a name is missing beside a comma")


def test_compare_answers_on_a_margin_in_points_as_python_does(stsbench):
    fill(Path("results"))
    pair = ("good", "bad", "--tasks", "sts12,mr")
    by_python = package.compare("good", "bad", tasks="sts12,mr", margin=15)
    assert by_python.margin == 0.15
    judged = stsbench.json("compare", *pair, "--margin", "15")
    plain = stsbench.json("compare", *pair)
    verdicts = {row["task"]: row["margin_verdict"] for row in judged["differences"]}
    assert verdicts == {row.task: row.margin_verdict for row in by_python.differences}
    assert verdicts == {"sts12": "worse than", "mr": "within"}
    for row, without in zip(judged["differences"], plain["differences"], strict=True):
        assert {**row, "margin_verdict": None} == without
    assert list(by_python.to_frame().margin_verdict) == list(verdicts.values())
    assert by_python.sentences == judged["sentences"]
    printed = stsbench.fine("compare", *pair, "--margin", "15")
    assert "margin" in printed and "good and bad differ by less than 15 points on mr. " in printed
    assert "bad is worse than good by more than 15 points on sts12. " in printed


@pytest.mark.parametrize("margin", ["-1", "101", "nan", "inf", "wide"])
def test_compare_refuses_a_margin_that_is_no_number_of_points(stsbench, margin):
    fill(Path("results"))
    assert "margin" in stsbench.refused("compare", "good", "bad", "--margin", margin)
    with pytest.raises(StsbenchError, match="margin must be a number from 0 to 100 or None"):
        package.compare("good", "bad", margin=margin)


@pytest.mark.parametrize("file", ["run.json", "config.json", "modules.json"])
def test_compare_of_a_folder_of_an_encoder_says_that_it_holds_no_results(stsbench, file):
    fill(Path("results"))
    Path("runs/mine").mkdir(parents=True)
    Path("runs/mine", file).write_text("{}")
    refused = stsbench.refused("compare", "good", "runs/mine")
    assert (
        refused.startswith("'runs/mine' holds an encoder and no results")
        and "run --encoder" in refused
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["good"], "compare needs at least two encoders; there is 'good' alone"),
        (["good", "good"], "compare was given 'good' twice"),
        (["good", "badd"], "unknown encoder 'badd'; did you mean 'bad'"),
        (
            ["good", "results"],
            "'results' holds results of 3 encoders (bad, good, other); name one of them",
        ),
        (
            ["bad", "other"],
            "sts12: 'bad' and 'other' cannot be compared: protocol field 'aggregation' differs: 'all'",
        ),
        (["bad", "other", "--tasks", "mr"], "'bad' and 'other' have no task in common"),
        (["bad", "good", "--tasks", "mrr"], "unknown task or suite 'mrr'"),
        (["bad", "good", "--results", "gone"], "results folder 'gone' does not exist"),
        (
            ["bad", "good", "--format", "marcdown"],
            "unknown format 'marcdown'; did you mean 'markdown'",
        ),
        (["bad", "good", "--format", "csv", "--json"], "--format has no effect beside --json"),
    ],
)
def test_compare_refuses_in_one_line(stsbench, arguments, message):
    fill(Path("results"))
    assert stsbench.refused("compare", *arguments).startswith(message)


# check and lock


def test_check_against_a_lock_file_and_reports(stsbench):
    fill(Path("results"))
    assert stsbench.fine("lock", "--out", "scores.json") == "locked 6 cells in scores.json\n"
    assert stsbench.json("lock", "--out", "one.json", "--encoder", "bad") == {
        "lock": "one.json", "cells": 2, "encoders": ["bad"], "without_items": 0, "not_verified": 0,
        "single_seeds": 0,
    }  # fmt: skip
    assert "6 cells: 6 fine" in stsbench.fine("check", "results", "--against", "scores.json")
    command = ("check", "results", "--against", "one.json", "--encoder", "good", "--tasks", "sts12")
    code, out, err = stsbench(*command, "--junit", "new/j.xml", "--summary", "s.md", "--github")
    assert (code, err) == (0, "") and "::notice title=good%3A sts12 (simcse)::higher" in out
    worse = ("check", "results/bad", "--against", "results/good", "--protocol", "simcse")
    assert stsbench(*worse).code == 2  # check has no --protocol: protocols are never mixed
    code, out, _ = stsbench(
        *worse[:-2], "--junit", "j.xml", "--summary", "s.md", "--github", "--rule", "statistical"
    )
    assert code == 1
    assert "::error title=bad%3A sts12 (simcse)::regression" in out and "(paired test, " in out
    assert Path("s.md").read_text().count("### stsbench check: ") == 2
    suite = ElementTree.parse("j.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    assert ElementTree.parse("new/j.xml").getroot()[0].get("failures") == "0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["result", "--against", "results"],
            "there is no lock file or results folder 'result'; did you mean 'results'? "
            "'stsbench lock' makes a lock file, 'stsbench run' a results folder",
        ),
        (
            ["results", "--against", "gone.json"],
            "there is no lock file or results folder 'gone.json'; 'stsbench lock' makes",
        ),
        (
            ["results", "--against", "page.dm"],
            "there is no lock file or results folder 'page.dm'; did you mean 'page.md'? ",
        ),
        (["results", "--against", "page.md"], "page.md: is not a lock file: JSON is malformed"),
        (
            ["results", "--against", "results", "--tasks", "sts13"],
            "the new side of the check holds no results",
        ),
        (["results"], "Missing option '--against'"),
    ],
)
def test_check_refuses_in_one_line(stsbench, arguments, message):
    fill(Path("results"))
    write(Path("page.md"), "# scores")
    assert stsbench.refused("check", *arguments).startswith(message)


def test_lock_refuses_in_one_line(stsbench):
    assert stsbench.refused("lock").startswith("results folder 'results' does not exist")
    Path("results").mkdir()
    assert stsbench.refused("lock") == "results: holds no results to lock"
    fill(Path("results"))
    for encoder in ((), ("-e", "good")):
        refused = stsbench.refused("lock", *encoder, "--tasks", "quickstart-probe")
        assert refused == "results: holds no results of quickstart-probe to lock"


# Training seeds.


@pytest.fixture
def seeds(stsbench: Command) -> Command:
    """Three seeds of a recipe in ``old`` and ``old.json``, three that are lower in ``new``, one in ``one``."""
    gold, similarity = drawn(5, 400)
    for folder, noise in (("old", 0.05), ("new", 0.25)):
        results = [
            sts(
                "recipe",
                "sts12",
                gold,
                similarity + noise * drawn(seed, 400)[1],
                fingerprint=f"{folder} {seed}",
                train_seed=seed,
            )
            for seed in (1, 2, 3)
        ]
        write_results(Path(folder), *results)
    write_results(Path("one"), results[0])
    assert stsbench.fine("lock", "old", "--out", "old.json") == "locked 3 cells in old.json\n"
    return stsbench


def test_check_judges_the_seeds_of_a_recipe_against_a_lock(seeds):
    command = ("check", "new", "--against", "old.json", "--rule", "statistical")
    code, out, _ = seeds(*command, "--margin", "0.2")
    assert code == 1 and "Student's t, 3 seeds against 3" in out and "fell by more than 0.2" in out
    table = out.partition("\n\nrecipe on")[0]
    assert "from  margin" in table and max(map(len, table.splitlines())) <= 80
    code, out, _ = seeds(*command, "--json", "--looks", "4", "--seed-deviation", "9")
    report = json.loads(out)
    assert code == 0 and (report["level"], report["looks"], report["margin"]) == (0.05, 4, None)
    (verdict,) = report["verdicts"]
    assert verdict["test"] == "known deviation, 3 seeds against 3" and verdict["df"] is None
    assert verdict["error"] == pytest.approx(0.09 * (2 / 3) ** 0.5)


def test_a_lock_of_a_single_seed_says_so(seeds):
    assert "; 1 of a single training seed, of which three would show" in seeds.fine("lock", "one")
    assert seeds.json("lock", "one")["single_seeds"] == 1


@pytest.mark.parametrize("option", ["--looks", "--seed-deviation", "--margin"])
def test_options_of_tests_are_refused_without_a_test(seeds, option):
    for against in ("old.json", "published"):
        message = seeds.refused("check", "new", "--against", against, option, "2")
        assert message.startswith(f"{option} has no effect without --rule statistical; leave it")
    statistical = ("--rule", "statistical", "--against", "old.json")
    for value in ("-1", "nan"):
        assert option in seeds.refused("check", "new", *statistical, option, value)


# Planted regressions, with a real encoder and real runs.


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """minilm on the English quickstart: as its card says, with a wrong pooling, and in bfloat16."""
    folder = tmp_path_factory.mktemp("scored")
    run = ["run", "--encoder", "minilm", *QUICK, "--no-store", "--results"]
    assert main([*run, str(folder / "old")]) == 0
    assert main([*run, str(folder / "pooling"), "--set", "pooling=cls_before_pooler"]) == 0
    assert main([*run, str(folder / "half"), "--set", "dtype=bfloat16"]) == 0
    yield folder


def test_the_noise_of_bfloat16_is_tolerated(stsbench, scored):
    found = stsbench.json("check", scored / "half", "--against", scored / "old", "--exact")
    (verdict,) = found["verdicts"]
    assert (verdict["outcome"], verdict["tolerance"]) == ("fine", "half") and verdict[
        "difference"
    ] != 0


def test_a_second_run_is_the_same_and_the_projects_own_lock_holds(stsbench, scored):
    found = stsbench.json("check", scored / "old", "--against", scored / "old")
    assert [v["tolerance"] for v in found["verdicts"]] == ["same"]
    lock = ROOT / ".github" / "scores.lock.json"
    assert "fine" in stsbench.fine("check", scored / "old", "--against", lock, *QUICK)


def test_shuffled_data_are_not_comparable(stsbench):
    """The same pairs in another order, under a card that admits to them: another hash of the data."""
    head, *rows = TABLE.splitlines(keepends=True)
    shuffled = head + "".join(rows[1:] + rows[:1])
    for folder, table in (("one", TABLE), ("two", shuffled)):
        own = make_own(Path(folder), table_tsv=table)
        write(own.cards / "tasks" / "table.toml", PAIR_TABLE.replace(sha256(TABLE), sha256(table)))
        stsbench.fine(
            "run", *HASHED, "--tasks", "table", *own.options(), "--results", f"{folder}/results"
        )
    code, out, _ = stsbench("check", "two/results", "--against", "one/results")
    assert code == 2 and "table: not comparable: data hash differs: " in out
    message = stsbench.refused("compare", "one/results/hashed", "two/results/hashed")
    assert message.startswith(
        "table: 'one/results/hashed' and 'two/results/hashed' cannot be compared: data hash diff"
    )


FAULTY = '''
import numpy as np
from own_encoders import Hashed


class Rounded(Hashed):
    """The same, rounded as half precision rounds."""

    def __init__(self):
        super().__init__(name="rounded")
        self.fingerprint = "rounded"

    def encode(self, sentences):
        return super().encode(sentences).astype(np.float16).astype(np.float32)


class Scaled(Hashed):
    """The same at length 1: cosines do not tell."""

    def __init__(self):
        super().__init__(name="scaled")
        self.fingerprint = "scaled"

    def encode(self, sentences):
        rows = super().encode(sentences)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True).clip(min=1e-9)
'''


@pytest.fixture
def faulty(stsbench: Command) -> Command:
    Path("faulty.py").write_text(FAULTY)
    return stsbench


def found(stsbench: Command, first: str, second: str, *options: str) -> tuple[int, Any]:
    code, out, err = stsbench("parity", first, second, *QUICK, *options, "--json")
    assert err == ""
    return code, json.loads(out)


FAULTS: Mapping[str, str] = {
    "pooling": "+pooling=cls_before_pooler",
    "prompt": "+prompt='a dog: '",
    "truncation": "+max_length=24",
    "layer": "+pooling=mean(-2,-1)",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_planted_in_a_transformer_is_found(
    stsbench: Command, tiny: Mapping[str, Path], fault: str
):
    folder = str(tiny["bert"])
    code, facts = found(stsbench, folder, folder + FAULTS[fault])
    assert (code, facts["same"], facts["verdict"]) == (1, False, "different")
    assert any("have a cosine below 0.99" in reason for reason in facts["reasons"])


def test_rounding_is_the_same_for_practical_purposes(faulty: Command):
    code, facts = found(faulty, HASHED[1], "faulty:Rounded")
    verdict = "same to rounding" if facts["distance"] <= 1e-4 else "same for practical purposes"
    assert (code, facts["verdict"]) == (0, verdict)
    code, facts = found(faulty, HASHED[1], "faulty:Scaled")
    assert (code, facts["verdict"]) == (0, "same for practical purposes")
    assert facts["distance"] > 0.9
    assert any("lengths differ" in reason for reason in facts["reasons"])


def test_other_forms_are_compared_by_scores_alone(stsbench: Command):
    code, facts = found(stsbench, HASHED[1], f"{HASHED[1]}+dimensions=4")
    # 300 pairs leave open if a difference of cosines of 4 dimensions is half a point.
    assert (code, facts["rows"], facts["distance"]) == (2, [], None)
    assert (facts["verdict"], facts["same"]) == ("cannot be told", False)
    assert (
        "embeddings of other forms (32 × float32, 4 × float32) are compared by scores alone"
        in facts["reasons"]
    )
    assert facts["neighbour"]["cosines"][0] != facts["neighbour"]["cosines"][1]
    # A margin as wide as that lets all pass.
    assert found(stsbench, HASHED[1], f"{HASHED[1]}+dimensions=4", "--margin", "100")[0] == 0
