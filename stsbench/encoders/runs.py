"""Training runs: the folders that recipes write, finished or not, found by the name of the recipe.

A run's record is data: its types are checked, and it names no encoder, for that is the folder. A
hash of its contents decides by which recipe it was trained.
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
    DECIDING_TABLES,
    Overlap,
    RecipeCard,
    SelectionSection,
    default_value,
    trained_digest,
)
from stsbench.core.errors import EncoderError, OutputError, translate_errors
from stsbench.core.files import write_atomically
from stsbench.core.toml import convert
from stsbench.encoders.cached_files import BROKEN_JSON, decode_json_file

RUN_FILE = "run.json"
"""The record of a finished run, written last: a folder without it holds none."""
Seed = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class _Corpus(msgspec.Struct, frozen=True):
    sha256: str = ""
    drawn_from: str = ""
    """The sha256 of the text that the run drew its rows from; empty if it drew none."""


class _SelectedCheckpoint(msgspec.Struct, frozen=True):
    score: float
    step: float = 0


class RunPoint(msgspec.Struct, frozen=True):
    """One validation of a run: its step, its score if any, and the mean loss since the last one."""

    step: float | None = None
    score: float | None = None
    loss: float | None = None


class _Run(msgspec.Struct, frozen=True):
    seconds: float = 0.0
    created: str = ""


class TrainedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One trained encoder: its folder, and the record there, with its types checked."""

    folder: Path
    recipe: str
    """The name of the recipe it was trained by."""
    seed: Seed
    card_table: dict[str, Any] = msgspec.field(default_factory=dict, name="card")
    """The recipe as it was run."""
    user_base: str = msgspec.field(default="", name="given_base")
    """The checkpoint that the user named in place of the recipe's base; empty if none."""
    base_files: dict[str, str] = {}
    """The hashes of the base's files, by name."""
    corpus: _Corpus = _Corpus()
    code: str = ""
    """The hashes of the code of a user's own method; empty for a method of stsbench."""
    overlap: dict[str, Overlap] = {}
    """How the training text overlaps each task's test sentences."""
    chosen: _SelectedCheckpoint | None = None
    """The checkpoint whose weights were kept; None if it was not selected by a score."""
    curve: list[RunPoint] = []
    """The validations during the training."""
    steps: int = 0
    """The number of steps that were taken."""
    run: _Run = _Run()
    record: dict[str, Any] = {}
    """All values of the record."""

    def overlap_with(self, task: str) -> Overlap:
        """Return how its training text overlaps a task's test sentences, by its record."""
        return self.overlap.get(task, "unknown")

    @property
    def card(self) -> RecipeCard:
        """The recipe as it was run: the record's table with its types checked.

        Keys that recipes have gained since then have their defaults.

        Raises:
            CardError: The record holds no valid recipe.
        """
        return convert(self.card_table, RecipeCard, where=f"{self.folder / RUN_FILE}: card")

    @property
    def digest(self) -> str:
        """The hashes that its results carry, ``A started from B``.

        ``A`` is that of the recipe, and of the base's files if the user replaced the base, which is
        the checkpoint that the training started from. ``B`` is of the base's files, the text, and
        the code of a user's own method.
        """
        card = self.card
        other_base = self.base_files if self._has_other_base(card) else None
        # If the run drew only some rows, `drawn_from` is the hash of the whole text, else empty.
        text_hash = self.corpus.drawn_from or self.corpus.sha256
        return trained_digest(
            card, other_base=other_base, files=self.base_files, corpus=text_hash, code=self.code
        )

    def _has_other_base(self, card: RecipeCard) -> bool:
        """Return whether the user replaced the recipe's base by another one.

        The base is the checkpoint that a training starts from. The user may name it by another
        path: it still is the same if it has all files whose hashes are in the recipe, and if the
        weights are among these.

        Without a checkpoint of the user's, or of the recipe's, none was replaced.

        Args:
            card: The recipe.
        """
        recipe_names_base = bool(card.base.model or card.base.recipe)
        if not recipe_names_base or not self.user_base:
            return False
        # By the names of files, as in `self.base_files`.
        expected_hashes = card.base.sha256
        names_weights = any(name.endswith((".safetensors", ".bin")) for name in expected_hashes)
        has_all_files = set(self.base_files.values()) >= set(expected_hashes.values())
        return not (names_weights and has_all_files)

    @classmethod
    def read(cls, folder: Path) -> TrainedRun:
        """Read the record of a finished run.

        Args:
            folder: The folder of the run.

        Raises:
            EncoderError: The record is missing or broken.
        """
        path = folder / RUN_FILE
        problem = "is not the record of a training run"
        record = decode_json_file(path, dict[str, Any], problem)
        # Errors of the types become an EncoderError with this message.
        with translate_errors(f"{path}: {problem}", EncoderError, *BROKEN_JSON):
            return msgspec.convert({**record, "folder": folder, "record": record}, cls)


def run_folder(out: Path, recipe: str, seed: int) -> Path:
    """Return the folder of a recipe's encoder of one seed."""
    return out / recipe.replace("/", "--") / f"seed{seed}"


def read_trained_runs(recipe: str, out: Path | None = None) -> list[TrainedRun]:
    """Read the finished runs of a recipe, sorted by seed.

    Args:
        recipe: The name of a recipe; ``name@3`` stands for its run with seed 3 alone.
        out: The folder of all runs; None for the one of the settings.

    Raises:
        EncoderError: A record is broken, or is in the folder of another recipe or seed.
    """
    name, _seed = _split_name_and_seed(recipe)
    runs = [
        TrainedRun.read(path)
        for path in find_run_folders(recipe, out)
        if (path / RUN_FILE).is_file()
    ]
    for run in runs:
        if (run.recipe, run.seed) != (name, _seed_of(run.folder)):
            raise EncoderError(
                f"{run.folder / RUN_FILE}: is of recipe '{run.recipe}', seed {run.seed}, "
                f"but is in the folder of '{name}', seed {_seed_of(run.folder)}",
                hint="move its folder, or give it by its path",
            )
    return runs


def list_trained_variants(recipe: str) -> list[str]:
    """Return the names of a recipe's finished runs that have other values of its parameters.

    Such a name is, for example, ``recipe+steps=30``, without a seed. Its runs are in the folders
    ``RUNS/recipe+steps=30/seed3``. Names are sorted, and listed once.

    Raises:
        EncoderError: A record is broken.
    """
    prefix = f"{recipe.replace('/', '--')}+"
    folders = [
        path
        for path in settings.runs_folder().glob("*/seed*")
        if path.parent.name.startswith(prefix) and (path / RUN_FILE).is_file()
    ]
    return sorted({TrainedRun.read(path).recipe for path in folders})


def _split_name_and_seed(recipe: str) -> tuple[str, int | None]:
    """Split ``recipe@seed`` into its two parts; the seed is None if the text names none."""
    match = re.fullmatch(r"(.+)@(\d{1,10})", recipe, re.DOTALL)
    return (match[1], int(match[2])) if match else (recipe, None)


def _seed_of(folder: Path) -> int:
    return int(folder.name.removeprefix("seed"))


def find_run_folders(recipe: str, out: Path | None = None) -> list[Path]:
    """Return the folders of a recipe's runs, finished or not, sorted by seed.

    The folder of a run is ``RUNS/recipe/seed3``.

    Args:
        recipe: The name of a recipe; ``name@3`` stands for its run with seed 3 alone.
        out: The folder of all runs; None for the one of the settings.
    """
    # The seed is None if the name has none.
    name, selected_seed = _split_name_and_seed(recipe)
    recipe_folder = (out or settings.runs_folder()) / name.replace("/", "--")
    try:
        folders = [
            path for path in recipe_folder.glob("seed*") if re.fullmatch(r"seed\d{1,10}", path.name)
        ]
    except (OSError, ValueError):
        # The name is too long for a folder, or has a character that no folder's name may have: it
        # is no recipe's.
        return []
    if selected_seed is not None:
        folders = [path for path in folders if _seed_of(path) == selected_seed]
    return sorted(folders, key=_seed_of)


START_FILE = "started.json"
"""In the folder of an unfinished run: the record of its start."""
COMPLETE_FILE = "whole.json"
"""Written last into a checkpoint: without it the checkpoint is incomplete."""
CURVE_FILE = "curve.jsonl"
"""In a run's folder: the points of its curve, one per line, written as they come."""
STATE_FILE = "checkpoints/last.safetensors"
"""The state that a method which trains itself resumes from."""


OTHER_CODE = "method: its code has changed since then"
"""How a run differs from an earlier one by the same recipe if a user's own method was edited."""


class TrainingStart(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that decide the weights of a run, and the command that began it."""

    recipe: dict[str, Any]
    """The parts of its card that decide what is trained."""
    seed: int
    base: dict[str, str]
    """The hashes of the files of the checkpoint that it starts from, by name."""
    corpus: str
    """The hash of its text."""
    teachers: dict[str, str] = {}
    """The fingerprints of other encoders whose embeddings it learns from, by name."""
    devices: int = 1
    """The number of devices that it is trained on."""
    code: str = ""
    """The hashes of the code of a user's own method; empty for a method of stsbench."""
    command: str = ""
    """The command that began it; empty if it is not known."""

    @classmethod
    def read(cls, folder: Path) -> TrainingStart | None:
        """Read the record of how the run in a folder was started.

        Returns:
            None if there is no such record: the run is finished, or nothing was begun there.

        Raises:
            OutputError: The record is broken.
        """
        path = folder / START_FILE
        try:
            return decode_json_file(
                path, kind=cls, problem="is not the record of a run's start", error=OutputError
            )
        except OutputError:
            # There is no record, or a run that ends at this moment has just removed it.
            if path.exists():
                raise
            return None

    def write(self, folder: Path) -> None:
        """Write the record into the folder of the run."""
        write_atomically(
            folder / START_FILE, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"
        )

    def describe_difference(self, earlier: TrainingStart) -> str:
        """Return a text on the first difference from how a run was started earlier.

        Args:
            earlier: The facts that decided the weights of the earlier run: its recipe, its seed,
                the hashes of the checkpoint it began with and of its text, and so on.

        Returns:
            For example ``seed (1, now 2)``; without the values if they are hashes. An empty text
            if there is no difference.
        """
        if earlier.seed != self.seed:
            return f"seed ({earlier.seed}, now {self.seed})"
        recipe_difference = describe_recipe_difference(earlier.recipe, self.recipe)
        if recipe_difference:
            return recipe_difference
        if earlier.code != self.code:
            return OTHER_CODE
        if earlier.base != self.base:
            return "base"
        if earlier.corpus != self.corpus:
            return "text"
        if earlier.teachers != self.teachers:
            return "teacher"
        if earlier.devices != self.devices:
            return f"number of devices ({earlier.devices}, now {self.devices})"
        return ""


def describe_recipe_difference(earlier: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Return a text on the first value of a recipe that differs from that of an earlier run.

    Tables are compared in the order of ``current``; one that only ``earlier`` has is ignored.

    Args:
        earlier: The recipe as the run has recorded it: tables by name, and in each the values by
            key.
        current: The recipe now, in the same form.

    Returns:
        For example ``optimizer.steps (100, now 200)``; an empty text if no value differs.
    """
    for table, values in current.items():
        earlier_values = earlier.get(table)
        if isinstance(earlier_values, dict):
            # Keys that did not exist then get their defaults.
            earlier_values = {**DEFAULTS_BY_TABLE.get(table, {}), **earlier_values}
        if earlier_values == values:
            continue
        if not isinstance(values, dict) or not isinstance(earlier_values, dict):
            return f"{table} ({earlier_values}, now {values})"
        # The first key with another value, of all keys of both.
        key = next(
            name
            for name in {**earlier_values, **values}
            if earlier_values.get(name) != values.get(name)
        )
        return f"{table}.{key} ({earlier_values.get(key)}, now {values.get(key)})"
    return ""


DEFAULTS_BY_TABLE: dict[str, dict[str, Any]] = {
    table.name: {
        key.encode_name: msgspec.to_builtins(default_value(key))
        for key in msgspec.structs.fields(table.type)
        if not key.required
    }
    for table in msgspec.structs.fields(RecipeCard)
    if table.name in DECIDING_TABLES
    and isinstance(table.type, type)
    and issubclass(table.type, msgspec.Struct)
}
"""The defaults of the keys that a card may omit, by table of a recipe."""


@dataclass(frozen=True, kw_only=True)
class UnfinishedRun:
    """A run that was stopped or is still training: its folder, and the command that finishes it."""

    folder: Path
    command: str
    start: TrainingStart

    def __str__(self) -> str:
        """Return a message with the command that finishes it."""
        return f"the run in {self.folder} is not finished; to finish it: {self.command}"

    @property
    def recipe(self) -> str:
        """The name of its recipe, with a slash replaced as in the name of its folder."""
        return self.folder.parent.name

    @property
    def selection(self) -> SelectionSection:
        """The recipe's table on how the best weights of a training are selected.

        Raises:
            CardError: The record of its start holds no valid recipe.
        """
        table = self.start.recipe.get("selection", {})
        return convert(table, SelectionSection, where=f"{self.folder / START_FILE}: selection")

    @property
    def curve(self) -> list[RunPoint]:
        """The validations of the training so far, each with its step, its score and its loss.

        They are lines of a file; one without a line end is still being written and omitted.

        Raises:
            OutputError: The file cannot be read, or has other lines.
        """
        path = self.folder / CURVE_FILE
        problem = f"{path}: is not the curve of a run"
        # Errors of the last types become an OutputError with this message.
        with translate_errors(problem, OutputError, OSError, *BROKEN_JSON):
            lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            return [
                msgspec.json.decode(line, type=RunPoint) for line in lines if line.endswith(b"\n")
            ]

    @classmethod
    def read(cls, folder: Path) -> UnfinishedRun | None:
        """Read the training run in a folder, if it was begun and is not finished.

        The command that finishes it is the one that began it, on as many devices.

        Returns:
            None if the run is finished, or if there is none.

        Raises:
            OutputError: The record of its start is broken.
        """
        is_finished = (folder / RUN_FILE).is_file()
        start = None if is_finished else TrainingStart.read(folder)
        if start is None:
            return None
        # A command that is not known is composed from the recipe's folder and the seed.
        command = start.command or f"stsbench train {folder.parent.name} --seeds {start.seed}"
        # With " --on " the command itself distributes the training; otherwise torchrun must start
        # one process per device.
        needs_torchrun = command.startswith("stsbench train ") and " --on " not in command
        if start.devices > 1 and needs_torchrun:
            command = f"torchrun --nproc-per-node {start.devices} -m {command}"
        return cls(folder=folder, command=command, start=start)


def read_unfinished_runs(recipe: str) -> list[UnfinishedRun]:
    """Read the runs of a recipe that were begun and are not finished, sorted by seed.

    Args:
        recipe: The name of a recipe; ``name@3`` stands for its run with seed 3 alone.

    Raises:
        OutputError: The record of a run's start is broken.
    """
    runs = [UnfinishedRun.read(folder) for folder in find_run_folders(recipe)]
    return [run for run in runs if run is not None]


def find_last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint of a training run, from which it can be resumed.

    Args:
        folder: The folder of the run, finished or not.

    Returns:
        A folder ``checkpoint-<step>``; for a training method with its own loop, the only file of
        its state. None if there is none.
    """
    if (folder / STATE_FILE).is_file():
        return folder / STATE_FILE
    # This marker file is written last: a folder without it is incomplete.
    markers = (folder / "checkpoints").glob(f"checkpoint-*/{COMPLETE_FILE}")
    checkpoints = [marker.parent for marker in markers]
    return max(checkpoints, key=lambda path: int(path.name.rpartition("-")[2]), default=None)
