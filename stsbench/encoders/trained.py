"""Trained runs: the folders that recipes write, found again by the recipe's name.

What a run's record says is data: its types are checked, it names no encoder (the folder does), and whose recipe
it was trained by is told by a hash of what it says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from stsbench import settings
from stsbench.cards.digests import trained_digest
from stsbench.cards.facts import Overlap
from stsbench.cards.recipe import RecipeCard
from stsbench.cards.strict import convert
from stsbench.errors import CardError, EncoderError, one_line

RUN_FILE = "run.json"
"""Written last: a folder without it holds no finished run."""
Seed = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class _Corpus(msgspec.Struct, frozen=True):
    sha256: str = ""


class _Chosen(msgspec.Struct, frozen=True):
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


class RunRecord(msgspec.Struct, frozen=True):
    """What is read of a record, with its types; more may stand there."""

    recipe: str
    seed: Seed
    card: dict[str, Any] = {}
    given_base: str = ""
    base_files: dict[str, str] = {}
    corpus: _Corpus = _Corpus()
    overlap: dict[str, Overlap] = {}
    chosen: _Chosen | None = None
    curve: list[RunPoint] = []
    steps: int = 0
    run: _Run = _Run()


@dataclass(frozen=True, kw_only=True)
class TrainedRun:
    """One trained encoder: its folder, and the facts of its training, as they stand there and as they are read."""

    folder: Path
    record: RunRecord
    facts: dict[str, Any]

    @property
    def recipe(self) -> str:
        """The recipe it came of."""
        return self.record.recipe

    @property
    def seed(self) -> int:
        """The seed it was trained with."""
        return self.record.seed

    def overlap_with(self, task: str) -> Overlap:
        """Whether its training text overlaps a task's test sentences, as found when it was trained."""
        return self.record.overlap.get(task, "unknown")

    @property
    def card(self) -> RecipeCard:
        """The recipe as it was run; read as a card, it has what cards have come to say since, at its usual value.

        Raises:
            EncoderError: the record holds none.
        """
        where = f"{self.folder / RUN_FILE}: card"
        try:
            return convert(self.record.card, RecipeCard, where=where)
        except CardError as error:
            raise EncoderError(str(error)) from error

    @property
    def digest(self) -> str:
        """What results of it carry: the hash of its recipe, of its base's files and of its text."""
        card, files = self.card, self.record.base_files
        names_its_start = bool(card.base.model or card.base.recipe)
        # Of a start that the user gave instead of the recipe's only the files tell whether it is the same.
        other = names_its_start and self.record.given_base and not _holds(files, card.base.sha256)
        start = files if other else None
        return trained_digest(card, start=start, files=files, corpus=self.record.corpus.sha256)

    @classmethod
    def read(cls, folder: Path) -> TrainedRun:
        """Read a run's facts; raises EncoderError where they are broken."""
        path = folder / RUN_FILE
        try:
            content = path.read_bytes()
            record = msgspec.json.decode(content, type=RunRecord)
            facts: dict[str, Any] = msgspec.json.decode(content)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise EncoderError(f"{path}: is not the record of a training run: {one_line(error)}") from error
        return cls(folder=folder, record=record, facts=facts)


def _holds(files: dict[str, str], named: dict[str, str]) -> bool:
    """Whether a start's files are those whose hashes a recipe names, its weights among them."""
    known = set(files.values())
    return any(name.endswith((".safetensors", ".bin")) for name in named) and known >= set(named.values())


def run_folder(out: Path, recipe: str, seed: int) -> Path:
    """Where a recipe's encoder of one seed lies."""
    return out / recipe.replace("/", "--") / f"seed{seed}"


def trained_runs(recipe: str, out: Path | None = None) -> list[TrainedRun]:
    """The finished runs of a recipe, by seed; ``name@3`` is that of seed 3 alone.

    Raises:
        EncoderError: a run's record is broken, or is of another recipe or seed than its folder.
    """
    name, _ = _name_and_seed(recipe)
    return [_read(path, name) for path in run_folders(recipe, out) if (path / RUN_FILE).is_file()]


def trained_variants(recipe: str, out: Path | None = None) -> list[str]:
    """The names of a recipe's finished runs with values replaced, as ``recipe+steps=30``; raises EncoderError."""
    stem = f"{recipe.replace('/', '--')}+"
    folders = [path for path in (out or settings.runs_folder()).glob("*/seed*") if path.parent.name.startswith(stem)]
    return sorted({TrainedRun.read(path).recipe for path in folders if (path / RUN_FILE).is_file()})


def _name_and_seed(recipe: str) -> tuple[str, int | None]:
    named = re.fullmatch(r"(.+)@(\d{1,10})", recipe, re.DOTALL)
    return (named[1], int(named[2])) if named else (recipe, None)


def _read(folder: Path, name: str) -> TrainedRun:
    run, seed = TrainedRun.read(folder), int(folder.name.removeprefix("seed"))
    if (run.recipe, run.seed) != (name, seed):
        raise EncoderError(
            f"{folder / RUN_FILE}: is of recipe '{run.recipe}', seed {run.seed}, but is in the folder of '{name}', "
            f"seed {seed}; move its folder, or give it by its path"
        )
    return run


def run_folders(recipe: str, out: Path | None = None) -> list[Path]:
    """The folders of a recipe's runs, finished or not, by seed; ``name@3`` is that of seed 3 alone."""
    name, wanted = _name_and_seed(recipe)
    base = (out or settings.runs_folder()) / name.replace("/", "--")
    try:
        folders = [path for path in base.glob("seed*") if re.fullmatch(r"seed\d{1,10}", path.name)]
    except (OSError, ValueError):
        # A name too long for a folder's, or with a sign that no folder has, is no recipe's.
        return []
    by_seed = {int(path.name.removeprefix("seed")): path for path in folders}
    return [by_seed[one] for one in sorted(by_seed) if wanted in (None, one)]
