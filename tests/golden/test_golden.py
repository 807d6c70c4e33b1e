"""What some hundred commands print, held to what is recorded beside this file.

    STSBENCH_RECORD=1 pytest tests/golden      # records them anew; read the difference, and say in the commit why it is meant

Commands of one story stand in one file and run one after the other in one folder. Times, sizes in memory, paths,
versions and hashes are left out. Other processors round otherwise: numbers may differ by one in the last printed digit, or
by 0.0001. Where they train by it, as behind a ``~`` in a story, any number may stand in a number's place.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from difflib import unified_diff
from pathlib import Path

import pytest

from stsbench.cli.main import main
from stsbench.core.errors import StsbenchError
from tests.cli.commands import OWN_ENCODERS, PROGRESS
from tests.cli.little_recipe import RECIPE
from tests.training.students import sentences

HERE = Path(__file__).parent
RECORD = bool(os.environ.get("STSBENCH_RECORD"))
LEFT_OUT = (
    (re.compile(r"\b\d+(\.\d+)? ?(s|ms|min|h|seconds|minutes)\b"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?([KMG]i?B|bytes)\b"), "SIZE"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00)?)?"), "DATE"),
    (re.compile(r"\b(?=[0-9]*[a-f])[0-9a-f]{8,64}\b"), "HASH"),
    (re.compile(r"\b\d+\.\d+\.\d+(\.?(dev|rc|post)\d+)?(\+\w+)?\b"), "VERSION"),
    (
        re.compile(
            r'"(seconds|elapsed|created|date|timestamp|retrieved_timestamp|host|evaluation_time|ms_per_sentence)": ("[^"]*"|[\d.e+-]+|null)'
        ),
        r'"\1": 0',
    ),
    (
        re.compile(r'"(commit|dirty|device|cpu|processor|threads|samples)": ("[^"]*"|\w+)'),
        r'"\1": 0',
    ),
)
NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e[+-]\d+)?")


def plain(text: str, world: Path) -> str:
    """A text without what differs between two machines or two moments."""
    text = text.replace(str(world), "WORLD").replace(str(Path(__file__).parents[2]), "CHECKOUT")
    if folder := os.environ.get("STSBENCH_DATA"):
        text = text.replace(folder, "DATA")
    for pattern, instead in LEFT_OUT:
        text = pattern.sub(instead, text)
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


def alike(got: str, recorded: str) -> bool:
    """Whether two texts are the same but for the last digit of a number; of a ``~`` command, but for any number."""
    if got.startswith("$ ~ "):
        got, recorded = (
            re.sub(r"[\s\u2500*]+|</?u>", " ", NUMBER.sub("#", text)) for text in (got, recorded)
        )
        return re.sub(r"\d+", "#", got) == re.sub(r"\d+", "#", recorded)
    if NUMBER.sub("#", got) != NUMBER.sub("#", recorded):
        return False
    pairs = zip(NUMBER.findall(got), NUMBER.findall(recorded), strict=True)
    return all(
        abs(float(one) - float(other))
        <= 1.01 * 10.0 ** -min(len(other.partition(".")[2].partition("e")[0]), 4)
        for one, other in pairs
    )


def call(words: list[str]) -> str:
    """What a command, or a line of Python, prints and how it ends."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        if words[0] == "python":
            try:
                with warnings.catch_warnings(record=True, action="always") as caught:
                    exec(compile(words[1], "<line>", "exec"), {})  # noqa: S102 - a line of the recorded story
                err.writelines(f"{one.category.__name__}: {one.message}\n" for one in caught)
            except (StsbenchError, AttributeError) as error:
                out.write(f"{type(error).__name__}: {error}\n")
        elif words[0] == "cat":
            out.writelines(
                f"== {path.relative_to(Path.cwd())}\n{path.read_text()}"
                for path in files(words[1:])
            )
        else:
            code = main(words)
    messages = "".join(
        line for line in err.getvalue().splitlines(keepends=True) if not PROGRESS.fullmatch(line)
    )
    return f"{out.getvalue()}{f'[stderr]{chr(10)}{messages}' if messages else ''}[exit {code}]\n"


def files(patterns: list[str]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(Path.cwd().glob(pattern))


def commands(story: str) -> list[str]:
    lines = (HERE / f"{story}.story").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def write_world(folder: Path, masked_lm: Path) -> None:
    """Write a user's folder: encoders in Python, a recipe with its text, a checkpoint, pairs of his own."""
    (folder / "own_encoders.py").write_text(OWN_ENCODERS)
    (folder / "cards" / "trainers").mkdir(parents=True)
    (folder / "cards" / "trainers" / "little.toml").write_text(RECIPE)
    (folder / "text.txt").write_text("\n".join(sentences(60)) + "\n")
    (folder / "base").symlink_to(masked_lm)
    rows = [
        f"{one},{other},{index % 6}"
        for index, (one, other) in enumerate(zip(sentences(30), sentences(30)[::-1], strict=True))
    ]
    (folder / "pairs.csv").write_text("\n".join(["first,second,score", *rows]) + "\n")
    (folder / "values.toml").write_text(
        'name = "Rates"\nrecipes = ["little"]\n[values]\nlearning_rate = [1e-3, 1e-4]\n'
    )


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, masked_lm: Path) -> Path:
    write_world(tmp_path, masked_lm)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_encoders", raising=False)
    # It finds the language of the pairs where it is installed.
    monkeypatch.setitem(sys.modules, "py3langid", None)
    return tmp_path


def check(story: str, world: Path) -> None:
    path = HERE / f"{story}.golden"
    got = [
        f"$ {line}\n{plain(call(shlex.split(line.removeprefix('~ '))), world)}"
        for line in commands(story)
    ]
    if RECORD:
        path.write_text("\n".join(got), encoding="utf-8")
    recorded = re.split(r"\n(?=\$ )", path.read_text(encoding="utf-8").rstrip("\n") + "\n")
    wrong = [
        (one, other)
        for one, other in zip(got, recorded, strict=True)
        if not alike(one.rstrip(), other.rstrip())
    ]
    shown = [
        line
        for one, other in wrong
        for line in unified_diff(
            other.splitlines(), one.splitlines(), "recorded", "now", lineterm=""
        )
    ]
    assert not wrong, "\n".join([*(one.partition("\n")[0] for one, _ in wrong), *shown])


def test_what_commands_print(world):
    check("quick", world)
    assert json.loads((world / "results" / "lock.json").read_text())["cells"]


@pytest.mark.data
def test_what_commands_print_of_real_data(world):
    check("data", world)
    assert list((world / "results").glob("*/sts12.test.*.json"))
