"""The action for GitHub: its shell steps, run as they are, and what they are told."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import stsbench as package
from stsbench.check.lock import read_lock, to_lock
from tests.cli.commands import OWN_ENCODERS, Command, make_own, write

ROOT = Path(package.__file__).parent.parent


class Step(NamedTuple):
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
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_ACTIONS": "true",
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(folder / "runner"),
        }

    def step(self, name: str) -> dict[str, Any]:
        found: dict[str, Any]
        (found,) = [step for step in self.card["runs"]["steps"] if step["name"] == name]
        return found

    def told(self) -> dict[str, str]:
        """What the steps so far have written for others."""
        return dict(
            line.split("=", 1) for line in (self.folder / "output.txt").read_text().splitlines()
        )

    def __call__(self, name: str, **given: str) -> Step:
        inputs = {
            key: str(given.get(key, facts.get("default")))
            for key, facts in self.card["inputs"].items()
        }
        assert set(given) <= set(inputs)
        step = self.step(name)
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
    names = ["Keys", "Keep what pip downloads", "Install", "Keep embeddings", "Score", "Check"]
    assert [step["name"] for step in action.card["runs"]["steps"]] == names
    quick = {"encoder": "own_encoders:Hashed", "tasks": "quickstart-en", "results": "scored here"}
    assert action("Score", **quick).code == 0
    stsbench.fine("lock", tmp_path / "scored here", "--out", tmp_path / "a lock.json")
    checked = {
        "results": "scored here",
        "against": "a lock.json",
        "tolerance": "same=0.01 half=0.2",
    }
    fine = action("Check", **checked)
    assert fine.code == 0 and "1 cell: 1 fine" in fine.out
    tested = {"rule": "statistical", "looks": "20", "seed-deviation": "0.3", "margin": "0.5"}
    counted = action("Check", **checked, **tested)
    assert counted.code == 0 and "one false alarm in 20 series of 20 looks" in counted.out
    (row,) = read_lock(tmp_path / "a lock.json")
    better = msgspec.structs.replace(row, score=row.score + 0.1)
    (tmp_path / "a lock.json").write_bytes(to_lock([better]))
    refused = action("Check", **checked)
    made = "field 'score': 0.308901, the locked values make 0.208901 with these data"
    assert refused.code == 2 and made in refused.out
    (tmp_path / "a lock.json").write_bytes(to_lock([msgspec.structs.replace(row, paired=None)]))
    unverified = action("Check", **checked, strict="true")
    assert unverified.code == 2 and "1 not verified" in unverified.out
    # Without its values nothing can be said against the score.
    bare = msgspec.structs.replace(better, paired=None)
    (tmp_path / "a lock.json").write_bytes(to_lock([bare]))
    fallen = action("Check", **checked, junit="out/report.xml")
    assert (
        fallen.code == 1
        and "::error title=hashed%3A quickstart-en (simcse)::regression" in fallen.out
    )
    (tmp_path / "a lock.json").write_bytes(to_lock([msgspec.structs.replace(row, data="f" * 64)]))
    assert action("Check", **checked).code == 2
    verdicts = (tmp_path / "output.txt").read_text().split()
    outcomes = ["fine", "fine", *["not-comparable"] * 2, "regression", "not-comparable"]
    assert verdicts == [f"verdict={outcome}" for outcome in outcomes]
    assert (tmp_path / "summary.md").read_text().count("### stsbench check: ") == 6
    assert (tmp_path / "out" / "report.xml").is_file() and (
        tmp_path / "stsbench-junit.xml"
    ).is_file()
    assert action("Check", **{**checked, "against": "gone"}).code == 2
    # Embeddings lie where the cache keeps them.
    assert list((tmp_path / "runner/stsbench/store").rglob("*"))
    where = action.step("Keep embeddings")["with"]["path"]
    assert where.replace("${{ runner.temp }}", str(tmp_path / "runner")) == str(
        tmp_path / "runner/stsbench/store"
    )


def test_the_action_scores_and_verifies_a_task_of_ones_own(
    stsbench: Command, own: Path, tmp_path: Path
):
    cards, data = map(str, make_own(tmp_path))
    action = Action(tmp_path, own)
    inputs = {"tasks": "table", "cards": cards, "data": data}
    assert action("Score", encoder="mine", results="results", **inputs).code == 0
    stsbench.fine("lock", "results", "--cards", cards)
    inputs = {"cards": cards, "results": "results", "against": "scores.lock.json"}
    checked = action("Check", strict="true", **inputs)
    assert checked.code == 0 and "1 cell: 1 fine" in checked.out, checked.out


def test_the_page_on_ci_locks_what_its_workflow_scores(own: Path, tmp_path: Path):
    """The commands of the page and the inputs of its workflow, word for word."""
    import yaml

    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    write(
        tmp_path / "my_package" / "my_module.py",
        OWN_ENCODERS.replace("class Hashed", "class Name", 1).split("class Broken")[0],
    )
    commands = re.search(r"```sh\n(.*?)```", page, re.S)
    workflow = re.search(r"```yaml\n(.*?)```", page, re.S)
    assert commands is not None and workflow is not None
    action = Action(tmp_path, own)
    # Not in this process, which may hold another package of that name.
    script = f'stsbench() {{ python -m stsbench "$@"; }}\n{commands[1]}'
    subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=action.environment, timeout=120, check=True
    )
    shutil.rmtree(tmp_path / "stsbench-results")
    *_, use = yaml.safe_load(workflow[1])["jobs"]["scores"]["steps"]
    assert use["uses"] == "OWNER/stsbench@COMMIT"
    assert action("Score", **use["with"]).code == 0
    checked = action("Check", **use["with"])
    assert checked.code == 0 and "2 cells: 2 fine" in checked.out, checked.out
    assert action.told()["verdict"] == "fine"
    # What an action scores by default is what the page locks.
    assert action.card["inputs"]["tasks"]["default"] == use["with"]["tasks"]


def test_the_action_keeps_downloads_and_embeddings_by_what_decides_them(own: Path, tmp_path: Path):
    action = Action(tmp_path, own)

    def keys(**given: str) -> dict[str, str]:
        assert action("Keys", **given).code == 0
        told = action.told()
        assert set(told) == {"pip", "packages", "embeddings"}
        return told

    bare = keys()
    assert keys() == bare and Path(bare["pip"]).is_absolute()
    assert all(re.fullmatch("[0-9a-f]{16}", bare[key]) for key in ("packages", "embeddings"))
    hostile = keys(encoder="x\npackages=evil", tasks="a,b")
    assert hostile["packages"] == bare["packages"] and hostile["embeddings"] != bare["embeddings"]
    assert keys(package="stsbench==0.1.0")["packages"] != bare["packages"]
    known = {f"${{{{ steps.keys.outputs.{name} }}}}" for name in bare}
    for name in ("Keep what pip downloads", "Keep embeddings"):
        step = action.step(name)
        assert step["uses"].startswith("actions/cache@") and set(step["with"]) <= {
            "path",
            "key",
            "restore-keys",
        }
        used = set(re.findall(r"\$\{\{ steps\.[^}]*\}\}", str(step["with"])))
        assert used and used <= known


@pytest.mark.parametrize(
    ("given", "gpu", "expected"),
    [
        (
            {},
            False,
            [["--index-url", "https://download.pytorch.org/whl/cpu", "torch"], [f"{ROOT}[minilm]"]],
        ),
        ({}, True, [[f"{ROOT}[minilm]"]]),
        ({"torch-index": "", "package": "stsbench==0.1.0"}, False, [["stsbench==0.1.0"]]),
    ],
)
def test_the_action_installs_what_its_commit_pins(own: Path, tmp_path: Path, given, gpu, expected):
    """With a pip that only notes what it is told; torch's CPU build comes first where there is no GPU."""
    action = Action(tmp_path, own)
    tools = tmp_path / "tools"
    noted = tmp_path / "noted.txt"
    for tool in ["python", *(["nvidia-smi"] if gpu else [])]:
        write(tools / tool, f'#!/bin/bash\nprintf "%s\\n" "$*" >> "{noted}"\n').chmod(0o755)
    # No other folder: this machine may have a GPU.
    shutil.copy("/bin/bash", tools / "bash")
    action.environment["PATH"] = str(tools)
    assert action("Install", **given).code == 0
    flags = f"-m pip install --quiet --disable-pip-version-check --no-compile --constraint {ROOT}/constraints.txt"
    assert noted.read_text().splitlines() == [" ".join([flags, *words]) for words in expected]


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
    for name in ("results/project", ".github"):
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
