"""Runs of training: the folders that recipes write, found again by the name of the recipe, done or not.

What a run's record says is data: its types are checked, it names no encoder (the folder does), and whose recipe
it was trained by, a hash of what it says decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from stsbench.core import settings
from stsbench.core.cards import (
    DECIDING,
    Overlap,
    RecipeCard,
    SelectionSection,
    convert,
    default_value,
    trained_digest,
)
from stsbench.core.errors import EncoderError, OutputError, translate_errors
from stsbench.core.files import write_atomically
from stsbench.encoders.checkpoint import BROKEN_JSON, decode_file

RUN_FILE = "run.json"
"""Written last: a folder without it holds no finished run."""
Seed = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class _Corpus(msgspec.Struct, frozen=True):
    sha256: str = ""


class _SelectedCheckpoint(msgspec.Struct, frozen=True):
    score: float
    step: float = 0


class RunPoint(msgspec.Struct, frozen=True):
    """What is read of one validation: the step, the score if any, and the mean loss since the validation before."""

    step: float | None = None
    score: float | None = None
    loss: float | None = None


class _Run(msgspec.Struct, frozen=True):
    seconds: float = 0.0
    created: str = ""


class TrainedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One trained encoder: its folder, and what is read of the record there, with its types."""

    folder: Path
    recipe: str
    """The one it came of."""
    seed: Seed
    card_table: dict[str, Any] = msgspec.field(default_factory=dict, name="card")
    given_base: str = ""
    base_files: dict[str, str] = {}
    corpus: _Corpus = _Corpus()
    overlap: dict[str, Overlap] = {}
    chosen: _SelectedCheckpoint | None = None
    curve: list[RunPoint] = []
    steps: int = 0
    run: _Run = _Run()
    facts: dict[str, Any] = {}
    """All that stands in the record."""

    def overlap_with(self, task: str) -> Overlap:
        """Whether its training text overlaps a task's test sentences, as found when it was trained."""
        return self.overlap.get(task, "unknown")

    @property
    def card(self) -> RecipeCard:
        """The recipe as it was run, with newer keys at their usual values; raises CardError: the record holds none."""
        return convert(self.card_table, RecipeCard, where=f"{self.folder / RUN_FILE}: card")

    @property
    def digest(self) -> str:
        """What results of it carry: the hash of its recipe, of its base's files and of its text."""
        card, files = self.card, self.base_files
        named, known = card.base.sha256, set(files.values())
        # Of a start that the user gave instead of the recipe's only the files tell whether it is the same: its weights among them.
        holds = any(name.endswith((".safetensors", ".bin")) for name in named) and known >= set(
            named.values()
        )
        other = bool(card.base.model or card.base.recipe) and self.given_base and not holds
        return trained_digest(
            card, start=files if other else None, files=files, corpus=self.corpus.sha256
        )

    @classmethod
    def read(cls, folder: Path) -> TrainedRun:
        """Read a run's facts; raises EncoderError where they are broken."""
        path, wrong = folder / RUN_FILE, "is not the record of a training run"
        facts = decode_file(path, dict[str, Any], wrong)
        with translate_errors(f"{path}: {wrong}", EncoderError, *BROKEN_JSON):
            return msgspec.convert({**facts, "folder": folder, "facts": facts}, cls)


def run_folder(out: Path, recipe: str, seed: int) -> Path:
    """Where a recipe's encoder of one seed lies."""
    return out / recipe.replace("/", "--") / f"seed{seed}"


def trained_runs(recipe: str, out: Path | None = None) -> list[TrainedRun]:
    """The finished runs of a recipe (``name@3``: of seed 3 alone), by seed; raises EncoderError: a wrong record."""
    name, _ = _name_and_seed(recipe)
    runs = [
        TrainedRun.read(path) for path in run_folders(recipe, out) if (path / RUN_FILE).is_file()
    ]
    for run in runs:
        if (run.recipe, run.seed) != (name, _seed_of(run.folder)):
            there = f"is in the folder of '{name}', seed {_seed_of(run.folder)}"
            what = f"is of recipe '{run.recipe}', seed {run.seed}, but {there}"
            raise EncoderError(
                f"{run.folder / RUN_FILE}: {what}; move its folder, or give it by its path"
            )
    return runs


def trained_variants(recipe: str) -> list[str]:
    """The names of a recipe's finished runs with values replaced, as ``recipe+steps=30``; raises EncoderError."""
    stem = f"{recipe.replace('/', '--')}+"
    folders = [
        path for path in settings.runs_folder().glob("*/seed*") if path.parent.name.startswith(stem)
    ]
    return sorted({TrainedRun.read(path).recipe for path in folders if (path / RUN_FILE).is_file()})


def _name_and_seed(recipe: str) -> tuple[str, int | None]:
    named = re.fullmatch(r"(.+)@(\d{1,10})", recipe, re.DOTALL)
    return (named[1], int(named[2])) if named else (recipe, None)


def _seed_of(folder: Path) -> int:
    return int(folder.name.removeprefix("seed"))


def run_folders(recipe: str, out: Path | None = None) -> list[Path]:
    """The folders of a recipe's runs, finished or not, by seed; ``name@3`` is that of seed 3 alone."""
    name, wanted = _name_and_seed(recipe)
    base = (out or settings.runs_folder()) / name.replace("/", "--")
    try:
        folders = [path for path in base.glob("seed*") if re.fullmatch(r"seed\d{1,10}", path.name)]
    except (OSError, ValueError):
        # A name too long for a folder's, or with a sign that no folder has, is no recipe's.
        return []
    return sorted((path for path in folders if wanted in (None, _seed_of(path))), key=_seed_of)


START_FILE = "started.json"
"""In the folder of a run that is not done: what it was started with."""
COMPLETE_FILE = "whole.json"
"""Written last into a checkpoint: without it the checkpoint is half one."""
CURVE_FILE = "curve.jsonl"
"""In a run's folder: the points of its curve, a line each, written as soon as they are seen."""
STATE_FILE = "checkpoints/last.safetensors"
"""What a method that trains itself resumes from."""


class TrainingStart(msgspec.Struct, frozen=True, kw_only=True):
    """What decides the weights of a run, and the command that asked for them."""

    recipe: dict[str, Any]
    """The parts of its card that decide what is trained."""
    seed: int
    base: dict[str, str]
    """The hash of each file of the checkpoint it starts from."""
    corpus: str
    """The hash of its text."""
    teachers: dict[str, str] = {}
    """The fingerprint of each encoder whose embeddings it learns from besides."""
    devices: int = 1
    command: str = ""

    @classmethod
    def read(cls, folder: Path) -> TrainingStart | None:
        """What the run in a folder was started with, None where that is not written; raises OutputError."""
        path = folder / START_FILE
        try:
            return decode_file(path, cls, "is not the record of a run's start", OutputError)
        except OutputError:
            # A run that ends at this moment removes it.
            if path.exists():
                raise
            return None

    def write(self, folder: Path) -> None:
        """Write it down."""
        write_atomically(
            folder / START_FILE, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"
        )

    def difference(self, before: TrainingStart) -> str:
        """The first thing that is another than before, with its two values where they are short; empty where none is."""
        if before.seed != self.seed:
            return f"seed ({before.seed}, now {self.seed})"
        if recipe := recipe_difference(before.recipe, self.recipe):
            return recipe
        for key, name in {"base": "base", "corpus": "text", "teachers": "teacher"}.items():
            if getattr(before, key) != getattr(self, key):
                return name
        same = before.devices == self.devices
        return "" if same else f"number of devices ({before.devices}, now {self.devices})"


def recipe_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first value of a recipe that is another than before, with both; empty where none is."""
    for table, values in now.items():
        was = before.get(table)
        if isinstance(was, dict):
            # Keys that cards have come to have since are at their usual value.
            was = {**DEFAULT_FOLDER.get(table, {}), **was}
        if was == values:
            continue
        if not isinstance(values, dict) or not isinstance(was, dict):
            return f"{table} ({was}, now {values})"
        key = next(k for k in {**was, **values} if was.get(k) != values.get(k))
        return f"{table}.{key} ({was.get(key)}, now {values.get(key)})"
    return ""


DEFAULT_FOLDER: dict[str, dict[str, Any]] = {
    table.name: {
        key.encode_name: msgspec.to_builtins(default_value(key))
        for key in msgspec.structs.fields(table.type)
        if not key.required
    }
    for table in msgspec.structs.fields(RecipeCard)
    if table.name in DECIDING
    and isinstance(table.type, type)
    and issubclass(table.type, msgspec.Struct)
}
"""By table of a recipe, the values of keys that a card leaves out."""


@dataclass(frozen=True, kw_only=True)
class UnfinishedRun:
    """A run that was stopped, or is under way: its folder, and the command that finishes it."""

    folder: Path
    command: str
    start: TrainingStart

    def __str__(self) -> str:
        """Say so in a line."""
        return f"the run in {self.folder} is not finished; to finish it: {self.command}"

    @property
    def recipe(self) -> str:
        """The recipe it is trained by, as its folder is called."""
        return self.folder.parent.name

    @property
    def selection(self) -> SelectionSection:
        """What its weights are chosen by; raises CardError where its start is not what a recipe says."""
        table = self.start.recipe.get("selection", {})
        return convert(table, SelectionSection, where=f"{self.folder / START_FILE}: selection")

    @property
    def curve(self) -> list[RunPoint]:
        """What was seen so far; a line that is being written is not read."""
        path = self.folder / CURVE_FILE
        with translate_errors(
            f"{path}: is not the curve of a run", OutputError, OSError, *BROKEN_JSON
        ):
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            return [
                msgspec.json.decode(line, type=RunPoint) for line in lines if line.endswith(b"\n")
            ]

    @classmethod
    def read(cls, folder: Path) -> UnfinishedRun | None:
        """The run in a folder that was begun and is not done, None where there is none; raises OutputError."""
        start = None if (folder / RUN_FILE).is_file() else TrainingStart.read(folder)
        if start is None:
            return None
        command = start.command or f"stsbench train {folder.parent.name} --seeds {start.seed}"
        if start.devices > 1 and command.startswith("stsbench train ") and " --on " not in command:
            command = f"torchrun --nproc-per-node {start.devices} -m {command}"
        return cls(folder=folder, command=command, start=start)


def unfinished_runs(recipe: str) -> list[UnfinishedRun]:
    """The runs of a recipe that were begun and are not done, by seed; ``name@3`` is that of seed 3 alone."""
    return [
        run for folder in run_folders(recipe) if (run := UnfinishedRun.read(folder)) is not None
    ]


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint of a run's folder: a folder, or the one file of a method that trains itself."""
    if (folder / STATE_FILE).is_file():
        return folder / STATE_FILE
    whole = [path.parent for path in (folder / "checkpoints").glob(f"checkpoint-*/{COMPLETE_FILE}")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
