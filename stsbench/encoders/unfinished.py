"""Runs that are not done: what they were started with, and what they go on from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from stsbench.cards.digests import usual_value
from stsbench.cards.recipe import DECIDING, RecipeCard, SelectionFacts
from stsbench.cards.strict import convert
from stsbench.encoders.trained import RUN_FILE, RunPoint, run_folders
from stsbench.errors import OutputError, one_line
from stsbench.files.whole import write_whole

STARTED = "started.json"
"""In the folder of a run that is not done: what it was started with."""
WHOLE = "whole.json"
"""Written last into a checkpoint: without it the checkpoint is half one."""
CURVE = "curve.jsonl"
"""In a run's folder: the points of its curve, a line each, written as soon as they are seen."""
STATE = "checkpoints/last.safetensors"
"""What a method that trains itself goes on from."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
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
    def read(cls, folder: Path) -> Start | None:
        """What the run in a folder was started with, None where that is not written; raises OutputError."""
        path = folder / STARTED
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except FileNotFoundError:
            return None
        # A DecodeError is a ValueError in some versions of msgspec alone.
        except (OSError, ValueError, msgspec.DecodeError, RecursionError) as error:
            raise OutputError(f"{path}: is not the record of a run's start: {one_line(error)}") from error

    def write(self, folder: Path) -> None:
        """Write it down."""
        write_whole(folder / STARTED, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")

    def difference(self, before: Start) -> str:
        """The first thing that is another than before, with its two values where they are short; empty where none is."""
        if before.seed != self.seed:
            return f"seed ({before.seed}, now {self.seed})"
        if recipe := recipe_difference(before.recipe, self.recipe):
            return recipe
        parts = [("base", before.base, self.base), ("text", before.corpus, self.corpus)]
        for name, was, now in [*parts, ("teacher", before.teachers, self.teachers)]:
            if was != now:
                return name
        if before.devices != self.devices:
            return f"number of devices ({before.devices}, now {self.devices})"
        return ""


def recipe_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first value of a recipe that is another than before, with both; empty where none is."""
    for table, values in now.items():
        was = before.get(table)
        if isinstance(was, dict):
            # Keys that cards have come to have since are at their usual value.
            was = {**USUAL.get(table, {}), **was}
        if was == values:
            continue
        if not isinstance(values, dict) or not isinstance(was, dict):
            return f"{table} ({was}, now {values})"
        key = next(k for k in {**was, **values} if was.get(k) != values.get(k))
        return f"{table}.{key} ({was.get(key)}, now {values.get(key)})"
    return ""


def _usual_values() -> dict[str, dict[str, Any]]:
    tables = {field.name: field.type for field in msgspec.structs.fields(RecipeCard) if field.name in DECIDING}
    return {
        name: {
            key.encode_name: msgspec.to_builtins(usual_value(key))
            for key in msgspec.structs.fields(table)
            if not key.required
        }
        for name, table in tables.items()
        if isinstance(table, type) and issubclass(table, msgspec.Struct)
    }


USUAL = _usual_values()
"""By table of a recipe, the values of keys that a card leaves out."""


@dataclass(frozen=True, kw_only=True)
class UnfinishedRun:
    """A run that was stopped, or is under way: its folder, and the command that finishes it."""

    folder: Path
    command: str
    start: Start

    def __str__(self) -> str:
        """Say so in a line."""
        return f"the run in {self.folder} is not finished; to finish it: {self.command}"

    @property
    def recipe(self) -> str:
        """The recipe it is trained by, as its folder is called."""
        return self.folder.parent.name

    @property
    def selection(self) -> SelectionFacts:
        """What its weights are chosen by; raises CardError where its start is not what a recipe says."""
        table = self.start.recipe.get("selection", {})
        return convert(table, SelectionFacts, where=f"{self.folder / STARTED}: selection")

    @property
    def curve(self) -> list[RunPoint]:
        """What was seen so far; a line that is being written is not read."""
        try:
            lines = (self.folder / CURVE).read_bytes().splitlines(keepends=True)
            return [msgspec.json.decode(line, type=RunPoint) for line in lines if line.endswith(b"\n")]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, msgspec.DecodeError, RecursionError) as error:
            raise OutputError(f"{self.folder / CURVE}: is not the curve of a run: {one_line(error)}") from error

    @classmethod
    def read(cls, folder: Path) -> UnfinishedRun | None:
        """The run in a folder that was begun and is not done, None where there is none; raises OutputError."""
        start = None if (folder / RUN_FILE).is_file() else Start.read(folder)
        if start is None:
            return None
        command = start.command or f"stsbench train {folder.parent.name} --seeds {start.seed}"
        if start.devices > 1 and command.startswith("stsbench train ") and " --on " not in command:
            command = f"torchrun --nproc-per-node {start.devices} -m {command}"
        return cls(folder=folder, command=command, start=start)


def unfinished_runs(recipe: str, out: Path | None = None) -> list[UnfinishedRun]:
    """The runs of a recipe that were begun and are not done, by seed; ``name@3`` is that of seed 3 alone."""
    found = [UnfinishedRun.read(folder) for folder in run_folders(recipe, out)]
    return [run for run in found if run is not None]


def last_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint of a run's folder: a folder, or the one file of a method that trains itself."""
    if (folder / STATE).is_file():
        return folder / STATE
    whole = [path.parent for path in (folder / "checkpoints").glob(f"checkpoint-*/{WHOLE}")]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
