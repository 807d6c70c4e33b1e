"""The committed results: their tables and their lock file are made again, byte for byte, by the commands that stand there; workflows."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from stsbench.cli.app import COMMANDS as COMMAND_NAMES, make_app
from stsbench.cli.main import main
from stsbench.core.cards import task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.results.folder import read_states

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "results/project" / "README.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^stsbench .*", PAGE, re.M)]
MADE = [words for words in COMMANDS if words[0] in ("leaderboard", "lock")]


@pytest.mark.parametrize("words", MADE, ids=lambda words: words[-1])
def test_a_table_is_made_again_byte_for_byte(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert words[-2] == "--out"
    assert main([*words[:-1], str(tmp_path / "made")]) == 0
    assert (tmp_path / "made").read_bytes() == (ROOT / words[-1]).read_bytes()


@pytest.mark.data
def test_what_tests_share_is_counted_again(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (words,) = (words for words in COMMANDS if words[0] == "data")
    at = words.index("--data")
    assert main([*words[:at], "--out", str(tmp_path / "made.csv")]) == 0
    assert (tmp_path / "made.csv").read_bytes() == (ROOT / words[-1]).read_bytes()


def test_every_table_has_its_command():
    tables = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "results/project").iterdir()
        # A run leaves its log there, which git ignores.
        if path.is_file() and path.name not in ("run.log", "run.toml")
    } - {"results/project/README.md"}
    # Seconds are no two times the same: their table is not made again here.
    assert tables == {
        words[-1] for words in COMMANDS if words[0] in ("leaderboard", "timing", "data")
    }


def test_no_command_writes_among_them_by_default():
    commands: dict[str, Any] = {name: make_app().commands[name] for name in COMMAND_NAMES}
    defaults = {
        one.default
        for command in commands.values()
        for one in command.load().params
        if one.name == "results"
    }
    # None: 'leaderboard' takes the folder of that name only if it exists.
    assert defaults == {Path("results"), None}
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert [line for line in ignored if "/results/" in line] == ["/results/*", "!/results/project/"]
    tracked = subprocess.run(
        ["git", "ls-files", "results"], cwd=ROOT, capture_output=True, check=False, text=True
    ).stdout
    assert not [path for path in tracked.split() if not path.startswith("results/project/")]


def test_every_encoder_has_its_command_and_every_command_its_results():
    named = set()
    for words in COMMANDS:
        if words[0] == "run":
            options = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
            changed = sorted(one for one in options if not one.startswith(("model=", "seed=")))
            named.add("+".join([words[words.index("--encoder") + 1], *changed]))
    found = read_states(ROOT / "results/project")
    assert {result.encoder for result in found.results} == named and not found.problems
    # Each on the same tasks, but for what minilm alone was run on, and for what is fitted on the tasks themselves.
    catalogue = Catalogue()
    for encoder in named:
        if encoder in catalogue.paths("baselines") and "base" in catalogue.encoder(encoder).params:
            continue
        tasks = {result.task for result in found.results if result.encoder == encoder}
        if encoder in catalogue.paths("trainers"):
            assert {"stsb", "sickr"} <= tasks
            continue
        assert {
            *Catalogue().suites()["sts"].tasks,
            *Catalogue().suites()["sts-mteb"].tasks,
            "sts17-en-en",
        } <= tasks, f"{encoder}: docs/submit.md names the tasks of a row"


def test_results_were_made_by_committed_code_of_the_locked_versions():
    locked = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    for result in read_states(ROOT / "results/project").results:
        assert result.run["dirty"] is False and len(result.run["commit"]) == 40
        versions = result.run["versions"]
        for name in set(locked) & set(versions):
            assert versions[name].partition("+")[0] == locked[name]


def test_results_are_of_tasks_as_their_cards_score_them():
    catalogue = Catalogue()
    due = {task: task_digest(catalogue.task(task)) for task in catalogue.paths("tasks")}
    assert {
        r.task for r in read_states(ROOT / "results/project").results if r.task_card != due[r.task]
    } == set()


def test_trained_encoders_have_the_seeds_of_their_command():
    trained = {
        words[1]: words[words.index("--seeds") + 1] for words in COMMANDS if words[0] == "train"
    }
    found = read_states(ROOT / "results/project").results
    for recipe, seeds in trained.items():
        runs = {
            (result.task, result.split, result.train_seed)
            for result in found
            if result.encoder == recipe
        }
        for task in (("stsb", "test"), ("stsb", "validation")):
            assert {seed for *where, seed in runs if tuple(where) == task} == set(
                map(int, seeds.split(","))
            )


def test_the_weekly_workflow_runs_weekly_and_on_demand_with_the_lowest_and_the_newest():
    yaml = pytest.importorskip("yaml")
    workflow = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "weekly.yml").read_text(encoding="utf-8")
    )
    when = workflow[True]  # YAML 1.1 reads the key "on" so
    assert len(when["schedule"]) == 1 and "workflow_dispatch" in when
    jobs = workflow["jobs"]
    chosen = {one["resolution"] for one in jobs["versions"]["strategy"]["matrix"]["include"]}
    assert chosen == {"lowest-direct", "highest"}
    assert any(step.get("run") == "pytest -m slow" for step in jobs["slow"]["steps"])
