"""``compare``, ``check`` and ``lock``: what they print, planted regressions, and the GitHub action's steps as they are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

import stsbench as package
from stsbench.cli import main
from stsbench.results.folder import to_json
from tests.cli.commands import HASHED, PAIR_TABLE, QUICK, TABLE, Command, make_own, sha256, write
from tests.leaderboard.scored import drawn, probe, sts
from tests.leaderboard.scored import write as write_results

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


def test_compare_prints_a_table_and_a_sentence(stsbench):
    fill(Path("results"))
    out = stsbench.fine("compare", "bad", "good")
    assert out.startswith("A = bad\nB = good\n")
    assert "good is better than bad on 1 of 2 tasks: sts12 (+" in out and "Williams" in out
    assert max(map(len, (line for line in out.splitlines() if not line.startswith("good")))) <= 92
    found = stsbench.json("compare", "good", "bad", "--protocol", "simcse")
    (difference,) = found["differences"]
    assert difference["real"] and difference["p_corrected"] < 0.01 and difference["interval"][1] < 0
    assert found["sentences"][0].startswith("good is better than bad on sts12 (+")
    assert stsbench.json("compare", "good", "bad", "--tasks", "mr")["differences"][0]["real"] is False


def test_compare_takes_folders(stsbench):
    fill(Path("mine"))
    fill(Path("results"))
    by_name = stsbench.json("compare", "good", "bad")
    by_folder = stsbench.json("compare", "mine/good", "mine/bad")
    strip = ("first", "second")
    left, right = (
        [{k: v for k, v in d.items() if k not in strip} for d in found["differences"]] for found in (by_name, by_folder)
    )
    assert left == right and by_folder["encoders"] == ["mine/good", "mine/bad"]
    mixed = stsbench.json("compare", "good", "mine/good", "--protocol", "simcse")
    assert mixed["differences"][0]["p"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["good"], "compare needs at least two encoders, or folders of results"),
        (["good", "good"], "compare was given 'good' twice"),
        (["good", "badd"], "unknown encoder 'badd'; did you mean 'bad'"),
        (["good", "mine"], "unknown encoder 'mine'"),
        (["good", "results"], "'results' holds results of 3 encoders (bad, good, other); name one of them"),
        (
            ["bad", "other"],
            "sts12: 'bad' and 'other' cannot be compared: protocol field 'aggregation' differs: 'all' ag",
        ),
        (["bad", "other", "--tasks", "mr"], "'bad' and 'other' have no task in common"),
        (["bad", "good", "--tasks", "mrr"], "unknown task or suite 'mrr'"),
        (["bad", "good", "--results", "gone"], "results folder 'gone' does not exist"),
        (["bad"], "compare needs at least two encoders"),
    ],
)
def test_compare_refuses_in_one_line(stsbench, arguments, message):
    fill(Path("results"))
    assert stsbench.refused("compare", *arguments).startswith(message)


def test_a_broken_file_is_one_line_and_the_rest_is_compared(stsbench):
    fill(Path("results"))
    write(Path("results/good/half.json"), to_json(probe("good", "mr", [True, False]))[:99])
    code, out, err = stsbench("compare", "good", "bad")
    assert code == 0 and "sts12" in out
    assert err.startswith("stsbench: left out: results/good/half.json: is no result file") and err.count("\n") == 1


# check and lock


def test_check_against_a_lock_file_and_reports(stsbench):
    fill(Path("results"))
    assert stsbench.fine("lock", "--out", "scores.json") == "locked 6 cells in scores.json\n"
    assert stsbench.json("lock", "--out", "one.json", "--encoder", "bad") == {
        "lock": "one.json", "cells": 2, "encoders": ["bad"], "without_items": 0,
    }  # fmt: skip
    assert "6 cells: 6 fine" in stsbench.fine("check", "results", "--against", "scores.json")
    command = ("check", "results", "--against", "one.json", "--encoder", "good", "--tasks", "sts12")
    code, out, err = stsbench(*command, "--junit", "new/j.xml", "--summary", "s.md", "--github")
    assert (code, err) == (0, "") and "::notice title=good%3A sts12 (simcse)::higher" in out
    worse = ("check", "results/bad", "--against", "results/good", "--protocol", "simcse")
    assert stsbench(*worse).code == 2  # check has no --protocol: protocols are never mixed
    code, out, _ = stsbench(*worse[:-2], "--junit", "j.xml", "--summary", "s.md", "--github", "--rule", "statistical")
    assert code == 1
    assert "::error title=bad%3A sts12 (simcse)::regression" in out and "(paired test)" in out
    assert Path("s.md").read_text().count("### stsbench check: ") == 2
    suite = ElementTree.parse("j.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("1", "1")
    assert ElementTree.parse("new/j.xml").getroot()[0].get("failures") == "0"


def test_check_as_json_keeps_stdout_for_json(stsbench):
    fill(Path("results"))
    code, out, err = stsbench("check", "results/bad", "--against", "results/good", "--json", "--github")
    found = json.loads(out)
    assert code == found["exit"] == 1 and "\n::error" in err
    assert {v["outcome"] for v in found["verdicts"]} == {"regression", "fine", "missing"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone", "--against", "results"], "gone: cannot be read: No such file or directory; 'stsbench lock' makes a"),
        (["results", "--against", "gone.json"], "gone.json: cannot be read"),
        (["results", "--against", "page.md"], "page.md: is no lock file: JSON is malformed"),
        (["results", "--against", "results", "--rule", "absolut"], "unknown rule 'absolut'; did you mean 'absolute'"),
        (["results", "--against", "results", "--tolerance", "x"], "--tolerance 'x': give points"),
        (["results", "--against", "results", "-e", "god"], "unknown encoder 'god'; did you mean 'good'"),
        (["results", "--against", "results", "--tasks", "sts13"], "the new side of the check holds no results"),
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


# Planted regressions, with a real encoder and real runs.


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """minilm on the English quickstart: as its card says, with a wrong pooling, and in bfloat16."""
    folder = tmp_path_factory.mktemp("scored")
    run = ["run", "--encoder", "minilm", *QUICK, "--no-store", "--out"]
    assert main([*run, str(folder / "old")]) == 0
    assert main([*run, str(folder / "pooling"), "--set", "pooling=cls_before_pooler"]) == 0
    assert main([*run, str(folder / "half"), "--set", "dtype=bfloat16"]) == 0
    yield folder


def test_a_wrong_pooling_is_caught(stsbench, scored):
    code, out, _ = stsbench("check", scored / "pooling", "--against", scored / "old")
    assert code == 1 and "1 cell: 1 regression" in out


def test_the_noise_of_bfloat16_is_tolerated(stsbench, scored):
    found = stsbench.json("check", scored / "half", "--against", scored / "old", "--exact")
    (verdict,) = found["verdicts"]
    assert (verdict["outcome"], verdict["tolerance"]) == ("fine", "half") and verdict["difference"] != 0


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
        stsbench.fine("run", *HASHED, "--tasks", "table", *own.options(), "--out", f"{folder}/results")
    code, out, _ = stsbench("check", "two/results", "--against", "one/results")
    assert code == 2 and "hashed on table: not comparable: data hash differs: " in out
    message = stsbench.refused("compare", "one/results/hashed", "two/results/hashed")
    assert message.startswith("table: 'one/results/hashed' and 'two/results/hashed' cannot be compared: data hash diff")


# The action: its shell steps, as they are.


class Step(NamedTuple):
    """One step of the action after it has run."""

    code: int
    out: str


class Action:
    """Runs the steps of ``action.yml`` as GitHub does: bash, strict, inputs through the environment."""

    def __init__(self, folder: Path, own: Path) -> None:
        import yaml  # type: ignore[import-untyped]

        self.folder = folder
        self.card: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
        paths = os.pathsep.join([str(own), str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "GITHUB_OUTPUT": str(folder / "output.txt"),
        }

    def __call__(self, name: str, **given: str) -> Step:
        inputs = {key: str(given.get(key, facts.get("default"))) for key, facts in self.card["inputs"].items()}
        assert set(given) <= set(inputs)
        (step,) = [step for step in self.card["runs"]["steps"] if step["name"] == name]
        assert step["shell"] == "bash" and "${{" not in step["run"]
        script = write(self.folder / "step.sh", step["run"])
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            cwd=self.folder,
            env={**self.environment, **filled(step["env"], inputs)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Step(done.returncode, done.stdout + done.stderr)


def filled(environment: Mapping[str, str], inputs: Mapping[str, str]) -> dict[str, str]:
    """A step's variables with ``${{ inputs.name }}`` put in."""
    found = {}
    for key, text in environment.items():
        name = text.removeprefix("${{ inputs.").removesuffix(" }}")
        found[key] = inputs[name]
    return found


def test_the_actions_steps_score_and_check(stsbench: Command, own: Path, tmp_path: Path):
    action = Action(tmp_path, own)
    assert [step["name"] for step in action.card["runs"]["steps"]] == ["Install", "Score", "Check"]
    quick = {"encoder": "own_encoders:Hashed", "tasks": "quickstart-en", "results": "scored here"}
    assert action("Score", **quick).code == 0
    stsbench.fine("lock", tmp_path / "scored here", "--out", tmp_path / "a lock.json")
    checked = {"results": "scored here", "against": "a lock.json", "tolerance": "same=0.01 half=0.2"}
    fine = action("Check", **checked)
    assert fine.code == 0 and "1 cell: 1 fine" in fine.out
    lock = (tmp_path / "a lock.json").read_text()
    score = json.loads(lock)["cells"][0]["score"]
    write(tmp_path / "a lock.json", lock.replace(f'"score": {score}', f'"score": {score + 0.1}'))
    fallen = action("Check", **checked, junit="out/report.xml")
    assert fallen.code == 1 and "::error title=hashed%3A quickstart-en (simcse)::regression" in fallen.out
    write(tmp_path / "a lock.json", re.sub(r'"data": "[0-9a-f]+', f'"data": "{"f" * 64}', lock))
    assert action("Check", **checked).code == 2
    verdicts = (tmp_path / "output.txt").read_text().split()
    assert verdicts == ["verdict=fine", "verdict=regression", "verdict=not-comparable"]
    assert (tmp_path / "summary.md").read_text().count("### stsbench check: ") == 3
    assert (tmp_path / "out" / "report.xml").is_file() and (tmp_path / "stsbench-junit.xml").is_file()
    assert action("Check", **{**checked, "against": "gone"}).code == 2


@pytest.mark.slow
def test_the_projects_own_workflow_finds_its_results_fine(own: Path, tmp_path: Path):
    """Every use of the action in the workflow, with the inputs it gives, in a copy of what the checkout holds."""
    import yaml

    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "scores.yml").read_text())
    # YAML 1.1 reads the key 'on' as true.
    assert "pull_request" in workflow[True]
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert all("run" not in step for step in steps)
    uses = [step["with"] for step in steps if step.get("uses") == "./"]
    assert len(uses) == 3
    for name in ("results", ".github"):
        shutil.copytree(ROOT / name, tmp_path / name)
    action = Action(tmp_path, own)
    required = {key for key, facts in action.card["inputs"].items() if facts.get("required")}
    for given in uses:
        assert required <= set(given)
        if given.get("encoder"):
            assert action("Score", **given).code == 0
        checked = action("Check", **given)
        assert checked.code == 0, checked.out
        assert (tmp_path / given["junit"]).is_file()
    verdicts = (tmp_path / "output.txt").read_text().split()
    assert verdicts == ["verdict=fine"] * 3


def test_a_committed_result_that_was_changed_is_caught(stsbench: Command, tmp_path: Path):
    shutil.copytree(ROOT / "results", tmp_path / "results")
    path = next((tmp_path / "results" / "minilm").glob("sts14.test.*.json"))
    path.write_text(re.sub(r'"(score|spearman.all)": [0-9.]+', r'"\1": 0.75', path.read_text(), count=2))
    code, out, _ = stsbench("check", tmp_path / "results", "--against", ROOT / ".github" / "results.lock.json")
    assert code == 1 and "minilm on sts14: regression: fell by 0.589 points" in out
    assert "minilm on mean of STS: regression" in out
