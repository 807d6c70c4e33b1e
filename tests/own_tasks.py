"""Three small tasks of a user's own: their cards, their data, and runs on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import stsbench
from stsbench.bench.plan import RunPlan, TaskSpecs
from stsbench.bench.progress import RunCallbacks
from stsbench.core.catalogue import Catalogue
from stsbench.data.task import Task, load_task
from stsbench.encoders.base import Encoder
from stsbench.encoders.engine import embed as engine
from stsbench.results.record import Result
from tests.encoders.fakes import Plain

CARD = """
name = "{task}"
evaluator = "sts"
languages = ["en"]
paper = "none"
license = "none"

[splits.test]
n = {n}

[local]
reader = "pair_table"
params = {{sentence1 = 0, sentence2 = 1, gold = 2}}

[local.files]
test = [{{path = "{task}.tsv"}}]
"""
VALIDATED = (
    CARD
    + """validation = [{{path = "{task}-validation.tsv"}}]

[splits.validation]
n = 4
"""
)
TASKS = {"pets": 30, "plants": 20, "stones": 12}
ENCODER: Encoder = Plain()
"""What ``tests.own_tasks:ENCODER`` is; a test puts its own here."""


def write_data(folder: Path, task: str, n: int, *, shift: int = 0) -> None:
    # Every task has sentence 0 and its like: they are embedded once.
    lines = [
        f"{'word ' * (i % 5)}{i}\t{task} {'and ' * (i % 7)}{i}\t{(i * 7 + shift) % 11}\n"
        for i in range(n)
    ]
    (folder / f"{task}.tsv").write_text("".join(lines))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cards, data and an empty cache of three small tasks of one's own."""
    monkeypatch.setenv("STSBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STSBENCH_DATA", raising=False)
    monkeypatch.setattr(engine, "TOKEN_BUDGET", 40)
    monkeypatch.setattr(engine, "TEXTS_PER_BATCH", 16)
    (tmp_path / "cards" / "tasks").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    for task, n in TASKS.items():
        (tmp_path / "cards" / "tasks" / f"{task}.toml").write_text(VALIDATED.format(task=task, n=n))
        write_data(tmp_path / "data", task, n)
        write_data(tmp_path / "data", f"{task}-validation", 4)
    (tmp_path / "cards" / "tasks" / "suites.toml").write_text(
        '[mine]\nname = "Mine"\ntasks = ["plants", "pets"]\n'
    )
    return tmp_path


def evaluate(
    place: Path, encoder: Any, tasks: TaskSpecs = "pets,plants", **options: Any
) -> list[Result]:
    options = {"data": place / "data", "catalogue": Catalogue([place / "cards"]), **options}
    return list(stsbench.evaluate(encoder, tasks, **options))


def telling() -> tuple[list[str], RunCallbacks]:
    """What fails of a run, line by line, and the listener that notes it."""
    told: list[str] = []
    return told, RunCallbacks(on_failure=lambda what, error: told.append(f"{what}: {error}"))


def plan_of(place: Path, encoder: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> RunPlan:
    monkeypatch.setattr("tests.own_tasks.ENCODER", encoder)
    fields: dict[str, Any] = {
        "encoders": ["tests.own_tasks:ENCODER"],
        "tasks": "pets,plants,stones",
        "results_folder": place / "results",
        "data": place / "data",
        "catalogue": Catalogue([place / "cards"]),
    }
    return RunPlan(**{**fields, **options})


def written(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files of a results folder: bytes, and when they were written."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def outside_run(folder: Path) -> dict[str, Any]:
    """All files of a results folder without what may differ between two runs."""
    contents: dict[str, Any] = {}
    for name, (content, _) in written(folder).items():
        if name.endswith((".partial", ".log", ".toml")):
            continue
        if name.endswith(".json"):
            fields = json.loads(content)
            del fields["run"], fields["digest"]
            contents[name] = json.dumps(fields)
        else:
            contents[name] = content
    return contents


def task_of_own(place: Path, name: str) -> Task:
    return load_task(name, data=place / "data", catalogue=Catalogue([place / "cards"]))
