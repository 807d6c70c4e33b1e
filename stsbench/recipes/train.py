"""Trains recipes: a card of method, start, text and hyperparameters becomes an encoder.

The encoder carries a record, which also names the tests whose sentences or scores it has seen.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from stsbench.core import provenance, settings
from stsbench.core.cards import DECIDING_TABLES, RecipeCard
from stsbench.core.catalogue import CATALOGUE, Catalogue
from stsbench.core.errors import DataError, OutputError, StsbenchError, TrainingError
from stsbench.core.files import write_atomically
from stsbench.core.parameters import (
    COUNT_OR_NONE,
    FUNCTION,
    NAME,
    NAME_OR_PATH,
    NAMES,
    PARAMETERS,
    PATH,
    SECONDS,
    SEED,
    SWITCH,
    validate_arguments,
)
from stsbench.core.registry import Registry
from stsbench.encoders.base import Encoder
from stsbench.encoders.checkpoint import find_checkpoint
from stsbench.encoders.engine.drift import code_hashes
from stsbench.encoders.load import load_run
from stsbench.encoders.runs import (
    OTHER_CODE,
    RUN_FILE,
    START_FILE,
    TrainedRun,
    TrainingStart,
    describe_recipe_difference,
    find_last_checkpoint,
    run_folder,
)
from stsbench.recipes.overlaps import find_overlaps
from stsbench.recipes.train_plan import (
    TrainPlan,
    check_start_is_named,
    lines_as_documents,
    load_text,
    plan_training,
    uses_training_loop,
)
from stsbench.recipes.trainer import Trainer, load_trainer
from stsbench.training.methods.registry import METHODS

if TYPE_CHECKING:
    from stsbench.training.learner import OnProgress, TrainingOutcome, TrainingProgress


@validate_arguments(
    recipe=NAME_OR_PATH, seed=SEED, params=PARAMETERS, base=NAME_OR_PATH, text=NAME_OR_PATH,
    corpus=NAME_OR_PATH, corpora=PATH, data=PATH, name=NAME, out=PATH, keep=NAME, device=NAME,
    fresh=SWITCH, deterministic=SWITCH, checkpoint_seconds=SECONDS, report_to=NAMES,
    workers=COUNT_OR_NONE, on_step=FUNCTION, catalogue=CATALOGUE,
)  # fmt: skip
def train(
    recipe: str | Path,
    *,
    seed: int | None = None,
    params: Mapping[str, Any] | None = None,
    base: str | Path = "",
    text: str | Path | None = None,
    corpora: str | Path | None = None,
    data: str | Path | None = None,
    name: str = "",
    out: str | Path | None = None,
    keep: str | None = None,
    device: str = "auto",
    fresh: bool = False,
    deterministic: bool = False,
    checkpoint_seconds: float = 120.0,
    report_to: str | Sequence[str] = (),
    workers: int | None = None,
    on_step: Callable[[TrainingProgress], None] | None = None,
    catalogue: Catalogue | None = None,
    corpus: str | Path | None = None,
) -> Encoder:
    """Train a recipe for one seed, and return the encoder.

    It is written into ``runs/<recipe>/seed<k>/``, so that ``load_encoder("<recipe>@<k>")`` loads
    it. A finished run is not trained again, and a stopped one resumes from its last checkpoint.

    Args:
        recipe: A recipe's name, or the path of its card.
        seed: By default the first that the recipe names, or else 0.
        params: Values of the recipe to replace, for example ``{"batch_size": 16}``.
        base: The checkpoint to start from, instead of the recipe's.
        text: The corpus or file to train on, instead of the recipe's.
        corpora: The local folder of training text; by default ``STSBENCH_CORPORA``.
        data: The local folder of evaluation data, for the development split; by default
            ``STSBENCH_DATA``.
        name: The name of the trained encoder; by default that of the recipe.
        out: The folder of runs; by default ``STSBENCH_RUNS``, or else ``runs``. Runs in another
            folder are not found by name.
        keep: Keep the ``best`` weights by development score, or the ``last`` weights.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        fresh: Train anew; the contents of the folder are deleted, also checkpoints.
        deterministic: Use only deterministic operations, which are slower on a GPU.
        checkpoint_seconds: The seconds between checkpoints.
        report_to: Where to log: ``tensorboard``, ``wandb`` and others, one or several.
        workers: The number of processes that prepare batches; by default as many as the device
            needs.
        on_step: Called after each step with the progress.
        catalogue: The cards; by default those of the project.
        corpus: The earlier name of ``text``, accepted in version 0.1 only.

    Raises:
        StsbenchError: The recipe cannot be trained; the message says why, and what is stored.
    """
    catalogue = catalogue or Catalogue()
    text = corpus if text is None else text
    plan = plan_training(
        str(recipe),
        catalogue,
        params=params or {},
        text=None if text is None else str(text),
        keep=keep,
        base=str(base),
        name=name,
        out=settings.runs_folder() if out is None else Path(out),
        corpora=None if corpora is None else Path(corpora),
        data=None if data is None else Path(data),
        device=device,
        fresh=fresh,
        deterministic=deterministic,
        checkpoint_seconds=float(checkpoint_seconds),
        report_to=[report_to] if isinstance(report_to, str) else list(report_to),
        workers=workers,
    )
    run_seed = plan.seed if seed is None else int(seed)
    command = _format_call(
        str(recipe),
        seed=run_seed,
        params=dict(params or {}),
        base=str(base),
        text=str(text or ""),
        corpora=str(corpora or ""),
        data=str(data or ""),
        name=name,
        out=str(out or ""),
        keep=keep,
        device="" if device == "auto" else device,
        deterministic=deterministic,
    )
    plan = replace(plan, seed=run_seed, command=command)
    run = run_training(plan, on_progress=on_step or (lambda progress: None))
    return load_run(run, plan.catalogue)


def _format_call(recipe: str, *, seed: int, **arguments: object) -> str:
    """Return the Python call of :func:`train` with which a user can resume a stopped run.

    Args:
        recipe: The name of the recipe, or the path of its card.
        seed: The seed of the run.
        arguments: The other arguments by name; those that are empty, None or False are omitted.
    """
    keywords = "".join(f", {key}={value!r}" for key, value in arguments.items() if value)
    return f"stsbench.train({recipe!r}, seed={seed}{keywords})"


def run_training(plan: TrainPlan, *, on_progress: OnProgress = lambda progress: None) -> TrainedRun:
    """Train a recipe for one seed, and write the encoder into the plan's folder.

    A finished run is not trained again, and a stopped one resumes from its last checkpoint, unless
    the plan is ``fresh``.

    Args:
        plan: The plan of the run: the recipe (``card``), the seed, and the folder.
        on_progress: Called with the progress after each step.

    Returns:
        The finished run, read from its folder.

    Raises:
        StsbenchError: The recipe cannot be trained; the message says why, and what is stored.
    """
    if uses_training_loop(plan.card):
        # Raises an error if no checkpoint to start from is named: before torch is loaded.
        check_start_is_named(plan)
    finished = find_finished_run(plan)
    if finished is not None:
        return finished
    with _writable_folder(plan):
        # The method with all that it learns from: nothing is trained yet.
        trainer = load_trainer(plan)
        # The file of the values that must be the same if the run is resumed.
        _write_start(plan, trainer)
        # The record of a finished run in the folder is removed, because its weights are about to
        # be replaced.
        (plan.folder / RUN_FILE).unlink(missing_ok=True)
        outcome = trainer.train(on_progress)
        # Of several processes that train together the first (rank 0) writes.
        if plan.processes.rank == 0:
            _write_record(plan, trainer, outcome)
        plan.processes.wait()
        return TrainedRun.read(plan.folder)


def find_finished_run(plan: TrainPlan) -> TrainedRun | None:
    """Find the finished run in a plan's folder; None if there is none, or the plan is ``fresh``.

    A ``fresh`` plan trains again in any case. A folder holds a finished run if it has the record
    ``RUN_FILE``.

    Args:
        plan: The plan, which names the folder.

    Raises:
        OutputError: The folder holds a run of another recipe, start, text or code.
        EncoderError: The record is broken.
    """
    if plan.fresh or not (plan.folder / RUN_FILE).is_file():
        return None
    finished = TrainedRun.read(plan.folder)
    # Hashes of code that is not stsbench's. Runs of earlier versions did not record it.
    code = finished.code and code_hashes(METHODS.load(plan.card.method))
    # The first difference as text; empty if there is none. ``deciding_tables`` returns the parts of
    # a recipe that decide what is trained.
    difference = (
        describe_recipe_difference(deciding_tables(finished.card), deciding_tables(plan.card))
        or (OTHER_CODE if finished.code != code else "")
        or _describe_other_base(plan, finished)
        or _describe_other_text(plan, finished)
    )
    if difference:
        raise OutputError(
            f"{plan.folder}: holds a finished run with another {difference}; "
            "pass `fresh` to train again in its place, or `out` to train elsewhere"
        )
    return finished


def _describe_other_base(plan: TrainPlan, finished: TrainedRun) -> str:
    """Return how the base of a finished run differs from the plan's; empty if it does not.

    The base is the checkpoint that training starts from. If the plan's base is a local folder, the
    hashes of the files that it and the run's record have in common are compared, since the folder
    may have been trained again. Otherwise the names that the user has passed are compared.

    Args:
        plan: The training that is requested now.
        finished: The finished run in the plan's folder.
    """
    # The local folder of the plan's base, if it may be one: the user's, or the run of the recipe
    # that this recipe continues from.
    folder = None
    if plan.base:
        folder = Path(plan.base)
    elif plan.card.base.recipe:
        folder = run_folder(plan.out, plan.card.base.recipe, plan.seed)
    if folder is None or not folder.is_dir():
        if plan.base == finished.user_base:
            return ""
        own_base = "the recipe's"
        return f"base ({finished.user_base or own_base}, now {plan.base or own_base})"
    # The SHA-256 of each file by its name.
    hashes = find_checkpoint(str(folder)).file_hashes()
    old_hashes = finished.base_files
    common_names = hashes.keys() & old_hashes.keys()
    is_changed = any(hashes[name] != old_hashes[name] for name in common_names)
    return "base" if is_changed else ""


def _describe_other_text(plan: TrainPlan, finished: TrainedRun) -> str:
    """Return "text" if a finished run was trained on other text than the plan's, else "".

    Only a user's own file is compared, by its hash. A corpus of the catalogue of cards cannot
    change. If the file is no longer available, it is unknown whether it has changed: "".

    Args:
        plan: The training that is requested now.
        finished: The finished run in the plan's folder.

    Raises:
        CardError: The file no longer has what the recipe asks for, such as a number of rows.
    """
    if plan.card.data.corpus in plan.catalogue.corpora():
        return ""
    try:
        corpus = load_text(plan)
    except DataError:
        return ""
    # A method may have read the text by documents instead of lines, which has another hash.
    hashes = (corpus.sha256, lines_as_documents(corpus).sha256)
    return "" if finished.corpus.sha256 in hashes else "text"


def deciding_tables(card: RecipeCard) -> dict[str, Any]:
    """Return the tables of a recipe that decide what is trained, as plain values."""
    tables: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(card))
    return {key: tables[key] for key in DECIDING_TABLES}


def _write_start(plan: TrainPlan, trainer: Trainer) -> None:
    """Write the start file of a run: the values that must be the same if the run is resumed.

    The command that began the run is written too, but may change. If the folder has checkpoints,
    the other values are compared with the file that is there. For a ``fresh`` plan the checkpoints
    are deleted instead. All processes that train together call this function; the first one (rank
    0) writes.

    Args:
        plan: The plan of the run, which names its folder.
        trainer: The trainer, with the hashes of its corpus, of its base (the checkpoint that it
            starts from, None if there is none) and of its teachers.

    Raises:
        TrainingError: The folder has checkpoints of a run with other values.
    """
    start = TrainingStart(
        recipe=deciding_tables(plan.card),
        seed=plan.seed,
        base=dict(trainer.base.file_hashes()) if trainer.base else {},
        corpus=trainer.corpus.sha256,
        teachers=trainer.teachers.fingerprints(),
        devices=plan.processes.ranks,
        code=trainer.code,
        command=plan.command,
    )
    if find_last_checkpoint(plan.folder) is not None and not plan.fresh:
        # None if the folder has no start file.
        old_start = TrainingStart.read(plan.folder)
        if old_start is None:
            difference = "start, which is not written down"
        else:
            # The first value that differs, as text; empty if none does.
            difference = start.describe_difference(old_start)
        if difference:
            raise TrainingError(
                f"{plan.folder}: holds checkpoints of a run with another {difference}; "
                "pass `fresh` to train again without them, or `out` to train elsewhere"
            )
    # All processes have read the old start before the first one replaces it.
    plan.processes.wait()
    if plan.processes.rank == 0:
        if plan.fresh:
            # Before the new start is written, so that it never lies beside old checkpoints.
            shutil.rmtree(plan.folder / "checkpoints", ignore_errors=True)
        start.write(plan.folder)


@contextmanager
def _writable_folder(plan: TrainPlan) -> Iterator[None]:
    """Make the folder of a run before the block, and check that it can be written.

    If a user error or a stop by the user ends the block while the folder holds nothing but the file
    ``START_FILE``, the folder is removed again, and the folder above it if it is then empty.

    Args:
        plan: The plan of the run, which names the folder.

    Raises:
        OutputError: The folder cannot be written.
    """
    folder = plan.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"{folder}: cannot be written: {error.strerror}") from error
    try:
        yield
    except StsbenchError:
        # An empty folder of checkpoints does not count. ``rmdir`` removes only empty folders, so
        # that nothing that is stored can be lost.
        with suppress(OSError):
            (folder / "checkpoints").rmdir()
        # No other file than the start file.
        if {path.name for path in folder.iterdir()} <= {START_FILE}:
            (folder / START_FILE).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
                folder.parent.rmdir()
        raise


def _write_record(plan: TrainPlan, trainer: Trainer, outcome: TrainingOutcome) -> None:
    """Write the record of a run, which marks it as finished, and remove its checkpoints.

    Args:
        plan: The plan of the run, which names its folder.
        trainer: The trainer, with its corpus, its teachers, and its base: the checkpoint that it
            started from, None if it started from nothing.
        outcome: The number of steps, the curve, and its point whose weights were selected.
    """
    # The commit of stsbench's source, and whether files differ from it.
    commit, is_dirty = provenance.commit()
    corpus = trainer.corpus
    # ``teachers.fingerprints()``: by name a hash of what decides a teacher's embeddings, or "".
    teachers = trainer.teachers
    record = {
        "recipe": plan.name,
        "seed": plan.seed,
        "card": msgspec.to_builtins(plan.card),
        "given_base": plan.base,
        **({"code": trainer.code} if trainer.code else {}),
        **({"base_files": trainer.base.file_hashes()} if trainer.base else {}),
        **({"teachers": teachers.fingerprints()} if teachers.encoders else {}),
        "corpus": {
            "name": corpus.name,
            "sha256": corpus.sha256,
            "rows": len(corpus),
            **({"drawn_from": corpus.drawn_from} if corpus.drawn_from else {}),
        },
        "overlap": find_overlaps(plan, corpus, trainer.base, teachers=teachers.encoders),
        "steps": outcome.steps,
        "chosen": outcome.selected_point,
        "curve": outcome.curve,
        "run": {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(outcome.seconds, 1),
            "device": trainer.device,
            # Of Python and of packages, by name.
            "versions": provenance.versions(),
            "commit": commit,
            "dirty": is_dirty,
        },
    }
    # Checkpoints are removed last: the run can be resumed from them until its record is written.
    write_atomically(plan.folder / RUN_FILE, (json.dumps(record, indent=1) + "\n").encode())
    shutil.rmtree(plan.folder / "checkpoints", ignore_errors=True)
    (plan.folder / START_FILE).unlink(missing_ok=True)


RunTraining = Callable[..., TrainedRun]
"""Trains a recipe for one seed, with the arguments of :func:`run_training`."""
Launcher = Callable[[str, int | None, Callable[[str], None]], AbstractContextManager[RunTraining]]
"""Yields a function that trains one plan after another.

Its arguments are the launcher's name or address (``ray://HOST:PORT``), the number of devices that
train together (None: all), and a function that is called with each notice for the user.
"""


def launch_locally(
    launcher: str, devices: int | None, on_notice: Callable[[str], None]
) -> AbstractContextManager[RunTraining]:
    """Train in this process, or in all those that ``torchrun`` has started."""
    return nullcontext(run_training)


LAUNCHERS = Registry(
    "place of training",
    {
        "local": "stsbench.recipes.train:launch_locally",
        "ray": "stsbench.recipes.ray_training:launch_on_ray",
    },
    group="launchers",
    expected="a context manager, see stsbench.recipes.train:Launcher",
)
