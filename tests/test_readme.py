"""The README says what is true: its commands exist, its example runs, its table is the results'."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stsbench.cli.app import make_app
from stsbench.cli.main import main

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.S):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] == ["stsbench"]:
                    found.append((page.name, words[1:]))
    return found


def test_pages_hold_commands():
    assert len(commands()) >= 5


@pytest.mark.parametrize(("page", "words"), commands(), ids=lambda value: str(value)[:60])
def test_command_and_its_options_exist(page, words):
    command: Any = make_app()
    while words and (inner := getattr(command, "commands", {}).get(words[0])):
        command, words = inner, words[1:]
    assert not hasattr(command, "commands"), f"{page}: {words} names no command"
    options = {name for parameter in command.load().params for name in parameter.opts}
    for word in words:
        if word.startswith("-"):
            assert word.partition("=")[0] in options, f"{page}: no option {word}"


def test_tests_that_contributors_run_exist():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"tests/[\w/.]+\w", page))
    assert len(paths) >= 5
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []


def test_example_encoder_runs_as_printed(tmp_path, monkeypatch, capsys):
    code = re.search(
        r"```python\n# my_package/my_module.py\n(.*?)```",
        PAGES[0].read_text(encoding="utf-8"),
        re.S,
    )
    assert code is not None
    assert len([line for line in code[1].splitlines() if line.strip()]) <= 10
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package/my_module.py").write_text(code[1], encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    out = str(tmp_path / "results")
    assert (
        main(
            [
                "run",
                "--encoder",
                "my_package.my_module:Hashed",
                "--tasks",
                "quickstart-en",
                "--results",
                out,
            ]
        )
        == 0
    )
    assert "hashed" in capsys.readouterr().out
    # What its fingerprint promises: the same embeddings in every process.
    script = "from my_package.my_module import Hashed; print(Hashed().encode(['a man plays', '']).nonzero())"
    found = [
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    ]
    assert found[0] == found[1]


def tables() -> list[tuple[str, str]]:
    """The commands that pages say their tables are made by, and the tables."""
    pattern = r"<!-- table: stsbench (leaderboard .*?) -->\n\n((?:[|*].*\n|\n(?=[|*]))+)"
    return [found for page in PAGES for found in re.findall(pattern, page.read_text("utf-8"))]


def test_pages_hold_tables():
    assert len(tables()) == sum(page.read_text("utf-8").count("<!-- table: ") for page in PAGES) > 0


@pytest.mark.parametrize(("command", "table"), tables(), ids=lambda value: str(value)[:60])
def test_table_is_made_from_the_committed_results(command, table, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == 0
    # Most per-item columns are not in the repository, as a note below says; without them there are no intervals.
    printed, _, note = (
        capsys.readouterr().out.strip().partition("\n\nno 95% interval of the mean of ")
    )
    assert printed == table.strip() and ("Avg." in table) == (
        "per-item columns are missing" in note
    )
