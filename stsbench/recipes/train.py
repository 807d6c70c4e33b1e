"""Trains recipes: a card of method, start, text and hyperparameters becomes an encoder.

The encoder carries a record, which also names the tests whose sentences or scores it has seen.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from stsbench.bench.embedder import open_store
from stsbench.core import provenance, settings
from stsbench.core.cards import DECIDING_TABLES, Overlap, RecipeCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, OutputError, StsbenchError, TrainingError
from stsbench.core.files import write_atomically
from stsbench.core.parameters import (
    FUNCTION,
    NAME,
    NAME_OR_PATH,
    PARAMETERS,
    PATH,
    SEED,
    SWITCH,
    validate_arguments,
)
from stsbench.core.registry import Registry
from stsbench.data.task import is_available_locally, load_task
from stsbench.encoders.base import Encoder, FittableEncoder
from stsbench.encoders.checkpoint import Checkpoint, find_checkpoint
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.load import load_named, load_run
from stsbench.encoders.named import NamedEncoder
from stsbench.encoders.runs import (
    RUN_FILE,
    START_FILE,
    TrainedRun,
    TrainingStart,
    describe_recipe_difference,
    find_last_checkpoint,
    run_folder,
)
from stsbench.recipes.train_plan import (
    TrainPlan,
    check_start,
    lines_as_documents,
    load_text,
    read_recipe,
    uses_training_loop,
)
from stsbench.training.methods.registry import METHODS

if TYPE_CHECKING:
    from stsbench.data.corpora.corpus import Corpus
    from stsbench.training.learner import (
        OnProgress,
        TeacherEmbeddings,
        TrainingOutcome,
        TrainingProgress,
        Validate,
    )
    from stsbench.training.loop.gather import ProcessGroup


OVERLAP_ORDER: tuple[Overlap, ...] = ("none", "unknown", "text", "gold")
"""How much training may have seen of a test, from the least to the most."""


def find_overlaps(
    plan: TrainPlan,
    corpus: Corpus,
    base: Checkpoint | None = None,
    teachers: Sequence[NamedEncoder] = (),
) -> dict[str, Overlap]:
    """Find the STS tests of which a run has seen sentences or scores.

    The training of the start counts as well: by the record of its own run, or by the card of an
    encoder with the same checkpoint, and otherwise it is unknown. It does not count if the weights
    are drawn anew. The training of teachers counts too.

    Args:
        plan: The plan of the run.
        corpus: The text that it trains on.
        base: The checkpoint that it starts from; None if it starts from nothing.
        teachers: The encoders whose embeddings it learns from.

    Returns:
        The overlap by task, of every STS task whose data are available locally.
    """
    from stsbench.data.corpora.overlap import find_overlap

    tasks = []
    for name in plan.catalogue.paths("tasks"):
        task = load_task(name, data=plan.data, catalogue=plan.catalogue)
        if task.card.evaluator == "sts" and is_available_locally(task.card, task.data):
            tasks.append(task)
    overlaps = {matches.task: matches.overlap for matches in find_overlap(corpus, tasks)}
    for teacher in teachers:
        overlaps = {
            task: _worse_overlap(overlap, teacher.overlap_with(task))
            for task, overlap in overlaps.items()
        }
    if base is None or plan.card.base.from_scratch:
        return overlaps
    if (base.folder / RUN_FILE).is_file():
        base_run = TrainedRun.read(base.folder)
        base_overlaps = {task: base_run.overlap_with(task) for task in overlaps}
    else:
        base_overlaps = dict.fromkeys(overlaps, _find_overlap_in_cards(plan, base))
    return {
        task: _worse_overlap(overlap, base_overlaps[task]) for task, overlap in overlaps.items()
    }


def _worse_overlap(first: Overlap, second: Overlap) -> Overlap:
    """Return the one of two overlaps of training text with a test that gives away more of it."""
    return max(first, second, key=OVERLAP_ORDER.index)


def _find_overlap_in_cards(plan: TrainPlan, checkpoint: Checkpoint) -> Overlap:
    """Look up in the cards of encoders how much test text a checkpoint has been trained on.

    Args:
        plan: The plan, whose ``base`` may be the name of a card, a Hub id or a folder.
        checkpoint: The checkpoint that training starts from.

    Returns:
        The overlap of the card that the user names; or else the worst in the cards with the same
        model or the same weights; ``unknown`` if there is no such card.
    """
    catalogue = plan.catalogue
    if plan.base in catalogue.paths("baselines"):
        return catalogue.encoder(plan.base).overlap
    model = plan.base or plan.card.base.model
    weights_hash = checkpoint.digests().get("weights/model.safetensors", "")
    overlaps: list[Overlap] = []
    for card in map(catalogue.encoder, catalogue.paths("baselines")):
        # The cards of other kinds do not name a checkpoint that training could start from.
        if card.kind not in ("transformer", "sentence_transformer"):
            continue
        hashes = card.params.get("sha256")
        card_hash = hashes.get("model.safetensors") if isinstance(hashes, Mapping) else None
        has_weights = bool(weights_hash) and card_hash == weights_hash
        has_model = bool(model) and card.params.get("model") == model
        if has_weights or has_model:
            overlaps.append(card.overlap)
    return max(overlaps, key=OVERLAP_ORDER.index, default="unknown")


@validate_arguments(
    recipe=NAME_OR_PATH, seed=SEED, params=PARAMETERS, base=NAME_OR_PATH, corpus=NAME_OR_PATH,
    corpora=PATH, data=PATH, out=PATH, device=NAME, fresh=SWITCH, on_step=FUNCTION,
    catalogue=Catalogue,
)  # fmt: skip
def train(
    recipe: str | Path,
    *,
    seed: int | None = None,
    params: Mapping[str, Any] | None = None,
    base: str | Path = "",
    corpus: str | Path | None = None,
    corpora: str | Path | None = None,
    data: str | Path | None = None,
    out: str | Path | None = None,
    device: str = "auto",
    fresh: bool = False,
    on_step: Callable[[TrainingProgress], None] | None = None,
    catalogue: Catalogue | None = None,
) -> Encoder:
    """Train a recipe for one seed, and return the encoder.

    It is written into ``runs/<recipe>/seed<k>/``, so that ``load_encoder("<recipe>@<k>")`` loads
    it. A finished run is not trained again, and a stopped one resumes from its last checkpoint.

    Args:
        recipe: A recipe's name, or the path of its card.
        seed: By default the first that the recipe names, or else 0.
        params: Values of the recipe to replace, for example ``{"batch_size": 16}``.
        base: The checkpoint to start from, instead of the recipe's.
        corpus: The text to train on, by name or file, instead of the recipe's.
        corpora: The local folder of training text; by default ``STSBENCH_CORPORA``.
        data: The local folder of evaluation data, for the development split; by default
            ``STSBENCH_DATA``.
        out: The folder of runs; by default ``STSBENCH_RUNS``, or else ``runs``. Runs in another
            folder are not found by name.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        fresh: Train anew; the contents of the folder are deleted, also checkpoints.
        on_step: Called after each step with the progress.
        catalogue: The cards; by default those of the project.

    Raises:
        StsbenchError: The recipe cannot be trained; the message says why, and what is stored.
    """
    plan = _plan_call(
        str(recipe),
        seed=seed,
        params=dict(params or {}),
        paths={"base": base, "corpus": corpus, "corpora": corpora, "data": data, "out": out},
        device=device,
        fresh=fresh,
        catalogue=catalogue or Catalogue(),
    )
    run = run_training(plan, on_progress=on_step or (lambda progress: None))
    return load_run(run, plan.catalogue)


def _plan_call(
    recipe: str,
    *,
    seed: int | None,
    params: Mapping[str, Any],
    paths: Mapping[str, str | Path | None],
    device: str,
    fresh: bool,
    catalogue: Catalogue,
) -> TrainPlan:
    """Return the plan of a call of :func:`train`.

    Args:
        recipe: A recipe's name, or the path of its card.
        seed: None for the first that the recipe names, or else 0.
        params: Values of the recipe to replace.
        paths: The arguments ``base``, ``corpus``, ``corpora``, ``data`` and ``out`` of the call.
        device: The name of the device.
        fresh: Train anew.
        catalogue: The cards.
    """
    corpus = {"data.corpus": str(paths["corpus"])} if paths["corpus"] else {}
    name, card = read_recipe(recipe, catalogue, params={**params, **corpus})
    run_seed = (card.seeds or [0])[0] if seed is None else int(seed)
    arguments = {
        "params": params,
        **{key: str(path or "") for key, path in paths.items()},
        "device": "" if device == "auto" else device,
    }
    # The call as a line of Python, to be printed with a run that was stopped.
    keywords = "".join(f", {key}={value!r}" for key, value in arguments.items() if value)
    corpora, data, out = paths["corpora"], paths["data"], paths["out"]
    return TrainPlan(
        name=name,
        card=card,
        seed=run_seed,
        out=settings.runs_folder() if out is None else Path(out),
        base=str(paths["base"]),
        corpora=None if corpora is None else Path(corpora),
        data=None if data is None else Path(data),
        device=device,
        fresh=fresh,
        command=f"stsbench.train({recipe!r}, seed={run_seed}{keywords})",
        catalogue=catalogue,
    )


def run_training(plan: TrainPlan, *, on_progress: OnProgress = lambda progress: None) -> TrainedRun:
    """Train a recipe for one seed and write its encoder.

    A finished run is not trained again, and a stopped one resumes from its last checkpoint, unless
    the plan is ``fresh``.

    Args:
        plan: The plan of the run.
        on_progress: Called after each step.

    Raises:
        StsbenchError: The recipe cannot be trained; the message says why, and what is stored.
    """
    finished = find_finished(plan)
    if finished is not None:
        return finished
    if uses_training_loop(plan.card):
        # A missing start is reported before torch is loaded.
        check_start(plan)
    with _open_folder(plan):
        trainer = load_trainer(plan)
        _write_start(plan, trainer)
        # Without its record an old run in the folder is not finished: its weights are about to be
        # replaced.
        (plan.folder / RUN_FILE).unlink(missing_ok=True)
        outcome = trainer.train(on_progress)
        if plan.processes.rank == 0:
            _write_record(plan, trainer, outcome)
        plan.processes.wait()
        return TrainedRun.read(plan.folder)


def find_finished(plan: TrainPlan) -> TrainedRun | None:
    """Find the finished run of a plan; None if there is none, or the plan is ``fresh``.

    Args:
        plan: The plan, which also names the folder.

    Raises:
        OutputError: The folder holds a run of this name with another recipe, base or text.
    """
    if plan.fresh or not (plan.folder / RUN_FILE).is_file():
        return None
    finished = TrainedRun.read(plan.folder)
    difference = (
        describe_recipe_difference(deciding_tables(finished.card), deciding_tables(plan.card))
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

    A folder is compared by the files that both have: it may have been trained again.

    Args:
        plan: What is to be trained now.
        finished: The run that is in its folder already.
    """
    folder = None
    if plan.base:
        folder = Path(plan.base)
    elif plan.card.base.recipe:
        folder = run_folder(plan.out, plan.card.base.recipe, plan.seed)
    if folder is None or not folder.is_dir():
        if plan.base == finished.user_base:
            return ""
        return f"base ({finished.user_base}, now {plan.base})"
    hashes = find_checkpoint(str(folder)).digests()
    old_hashes = finished.base_files
    is_changed = any(hashes[name] != old_hashes[name] for name in hashes.keys() & old_hashes.keys())
    return "base" if is_changed else ""


def _describe_other_text(plan: TrainPlan, finished: TrainedRun) -> str:
    """Return ``text`` if a user's file of text has changed since a run; empty if it has not.

    A corpus of a card cannot change, and of a file that is not available any more it is unknown.

    Args:
        plan: What is to be trained now.
        finished: The run that is in its folder already.
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
    """Write the start of a run, which decides whether later runs may resume it.

    Args:
        plan: What is to be trained, and in which folder.
        trainer: The model with its corpus, base and teachers.

    Raises:
        TrainingError: The run would resume from checkpoints that have another start.
    """
    start = TrainingStart(
        recipe=deciding_tables(plan.card),
        seed=plan.seed,
        base=dict(trainer.base.digests()) if trainer.base else {},
        corpus=trainer.corpus.sha256,
        teachers=trainer.teachers.fingerprints(),
        devices=plan.processes.ranks,
        command=plan.command,
    )
    if find_last_checkpoint(plan.folder) is not None and not plan.fresh:
        old_start = TrainingStart.read(plan.folder)
        if old_start is None:
            difference = "start, which is not written down"
        else:
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
def _open_folder(plan: TrainPlan) -> Iterator[None]:
    """Make the folder of a run, and check that it can be written.

    If a user error ends the block before anything is stored, the folder is removed again.
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
        # rmdir removes empty folders only, so that nothing that is stored can be lost.
        with suppress(OSError):
            (folder / "checkpoints").rmdir()
        if {path.name for path in folder.iterdir()} <= {START_FILE}:
            (folder / START_FILE).unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()
                folder.parent.rmdir()
        raise


def _write_record(plan: TrainPlan, trainer: Trainer, outcome: TrainingOutcome) -> None:
    """Write the record of a run, which completes its folder, and remove its checkpoints.

    Args:
        plan: What was to be trained, and the folder of the run.
        trainer: The model with its corpus, base and teachers; no base if it started from nothing.
        outcome: The steps that were done, the chosen one and the scores on the way.
    """
    commit, is_dirty = provenance.commit()
    corpus = trainer.corpus
    teachers = trainer.teachers
    record = {
        "recipe": plan.name,
        "seed": plan.seed,
        "card": msgspec.to_builtins(plan.card),
        "given_base": plan.base,
        **({"base_files": trainer.base.digests()} if trainer.base else {}),
        **({"teachers": teachers.fingerprints()} if teachers.encoders else {}),
        "corpus": {"name": corpus.name, "sha256": corpus.sha256, "rows": len(corpus)},
        "overlap": find_overlaps(plan, corpus, trainer.base, teachers=teachers.encoders),
        "steps": outcome.steps,
        "chosen": outcome.chosen,
        "curve": outcome.curve,
        "run": {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(outcome.seconds, 1),
            "device": trainer.device,
            "versions": provenance.versions(),
            "commit": commit,
            "dirty": is_dirty,
        },
    }
    # The checkpoints go last: until the record is there, the run can be continued from them.
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


N_TRIED_STEPS = 3
"""The number of steps that a forecast takes."""


class TrainingForecast(msgspec.Struct, frozen=True, kw_only=True):
    """The length and the cost of a training.

    Steps and tokens are exact up to the batches drawn; seconds and bytes are measured over three
    steps.
    """

    rows: int
    corpus: str
    steps: int
    batch_size: int
    validations: int
    tokens: int
    """The number of tokens that go through the model in the whole run, without padding."""
    trained_parameters: int
    parameters: int
    seconds: float
    """The time of all steps and validations, on the device used."""
    step_seconds: float
    validation_seconds: float
    memory: int
    """The peak number of bytes in the steps tried: of the GPU's memory, or else of the process."""
    device: str

    def lines(self) -> list[list[str]]:
        """Return the forecast as rows of a name and a text, for a table of two columns."""
        unit_times = (
            f"{self.step_seconds:.2f} s a step, {self.validation_seconds:.1f} s a validation"
        )
        return [
            ["corpus", f"{self.corpus}, {self.rows:,} rows"],
            ["steps", f"{self.steps:,} of {self.batch_size} rows"],
            ["validations", f"{self.validations:,}"],
            ["tokens", f"{self.tokens:,}"],
            ["parameters", f"{self.trained_parameters:,} trained of {self.parameters:,}"],
            ["memory", f"{self.memory / 2**30:.1f} GiB"],
            ["time", f"{self.seconds / 60:.1f} min ({unit_times})"],
            ["device", self.device],
        ]


@dataclass(frozen=True)
class TeacherEncoders:
    """The encoders from whose embeddings a method learns."""

    encoders: Sequence[NamedEncoder] = ()

    @classmethod
    def find(cls, names: Sequence[str], catalogue: Catalogue) -> TeacherEncoders:
        """Load the encoders that teach a student, by name.

        Args:
            names: Names of encoders, as :func:`stsbench.load_encoder` takes them.
            catalogue: The cards to search.

        Raises:
            CardError: One is fitted on texts.
            StsbenchError: One cannot be loaded, see :func:`stsbench.load_encoder`.
        """
        encoders = [load_named(name, catalogue=catalogue) for name in names]
        for name, teacher in zip(names, encoders, strict=True):
            if isinstance(teacher.encoder, FittableEncoder):
                raise CardError(f"teacher '{name}' is fitted on texts; name an encoder that is not")
        return cls(encoders)

    def fingerprints(self) -> dict[str, str]:
        """Return the fingerprint of each by its name; empty strings for those without."""
        return {teacher.name: teacher.fingerprint or "" for teacher in self.encoders}

    def embed(self, texts: Sequence[str], processes: ProcessGroup) -> list[TeacherEmbeddings]:
        """Embed texts with each teacher; the first process embeds what the store lacks.

        Args:
            texts: The texts.
            processes: The processes that train together.

        Returns:
            Per teacher a function that returns the embeddings of some of the texts.
        """
        lookups: list[TeacherEmbeddings] = []
        for teacher in self.encoders:
            # The other processes wait until the first one has stored the embeddings.
            if processes.rank:
                processes.wait()
            engine = Engine(teacher.encoder, open_store("default", teacher.encoder))
            embeddings = engine(texts)
            if not processes.rank:
                processes.wait()
            lookups.append(embeddings.take)
        return lookups


@dataclass(frozen=True, kw_only=True)
class Trainer(ABC):
    """A recipe's method with all that it learns from, ready to train.

    The order of calls: ``prepare``, then ``forecast`` or ``train``, once. All raise StsbenchError
    for a value that is not valid, for anything that is missing, or if training cannot continue.
    """

    plan: TrainPlan
    corpus: Corpus
    validate: Validate | None
    """The function by whose score weights are selected; None to keep the last ones."""
    base: Checkpoint | None = None
    """The checkpoint that training starts from; None if it starts from nothing."""
    teachers: TeacherEncoders = TeacherEncoders()
    device: str = "cpu"

    @classmethod
    @abstractmethod
    def check(cls, plan: TrainPlan, method: Any) -> object:  # noqa: ANN401 - a method's class
        """Check all of the recipe's values that can be checked before anything is loaded."""

    @classmethod
    @abstractmethod
    def prepare(cls, plan: TrainPlan, method: Any) -> Self:  # noqa: ANN401 - a method's class
        """Load and check all that the plan needs: text, development split, start and method."""

    @abstractmethod
    def forecast(self) -> TrainingForecast:
        """Take three steps, write nothing, and estimate what the whole training takes."""

    def make_forecast(
        self,
        **measured: Any,  # noqa: ANN401 - the fields of a forecast
    ) -> TrainingForecast:
        """Return a forecast from the fields that were measured; the others follow from them.

        Args:
            measured: ``steps``, ``validations``, ``tokens``, the seconds of a step and of a
                validation, and the other fields of :class:`TrainingForecast` that are not set here.
        """
        if self.device.startswith("cuda"):
            import torch

            memory = torch.cuda.max_memory_allocated(self.device)
        else:
            # The peak of this process, in KiB on Linux and in bytes on macOS.
            unit = 1 if sys.platform == "darwin" else 1024
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        return TrainingForecast(
            rows=len(self.corpus),
            corpus=self.corpus.name,
            seconds=(
                measured["step_seconds"] * measured["steps"]
                + measured["validation_seconds"] * measured["validations"]
            ),
            device=self.device,
            memory=memory,
            **measured,
        )

    @abstractmethod
    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Train, and leave the encoder in the plan's folder.

        Training resumes from the last checkpoint, unless the plan is ``fresh``.
        """


TRAINERS = Registry(
    "trainer",
    {
        "loop": "stsbench.recipes.trainers:LoopTrainer",
        "rounds": "stsbench.recipes.trainers:RoundsTrainer",
    },
    group="trainers",
)


def load_trainer(plan: TrainPlan) -> Trainer:
    """Return the trainer for a plan's method, with everything loaded; see Trainer.prepare."""
    method = METHODS.load(plan.card.method)
    trainer: Trainer = TRAINERS.load_own(method.trainer).prepare(plan, method)
    return trainer
