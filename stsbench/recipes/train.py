"""Recipes: a card of method, start, text and hyperparameters, carried out to a trained encoder that knows what tests it has seen."""

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
from stsbench.core.cards import DECIDING, Overlap, RecipeCard
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
    last_checkpoint,
    recipe_difference,
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


WORSE: tuple[Overlap, ...] = ("none", "unknown", "text", "gold")
"""From the least to the most that training may have seen of the tests."""


def find_overlaps(
    plan: TrainPlan,
    corpus: Corpus,
    base: Checkpoint | None = None,
    teachers: Sequence[NamedEncoder] = (),
) -> dict[str, Overlap]:
    """Which STS tests a run holds sentences or scores of, for every such task whose data are at hand.

    What the start was trained on counts as well: by the record of its own run, or by the card of an encoder
    that has the same checkpoint. Of a start that is neither nothing is known. So does what its teachers were trained on.
    The checkpoint that it starts from does not count where its weights are drawn anew.
    """
    from stsbench.data.corpora.overlap import find_overlap

    tasks = [
        load_task(name, data=plan.data, catalogue=plan.catalogue)
        for name in plan.catalogue.paths("tasks")
    ]
    at_hand = [
        task
        for task in tasks
        if task.card.evaluator == "sts" and is_available_locally(task.card, task.data)
    ]
    own = {one.task: one.overlap for one in find_overlap(corpus, at_hand)}
    for teacher in teachers:
        own = {
            task: max(found, teacher.overlap_with(task), key=WORSE.index)
            for task, found in own.items()
        }
    if base is None or plan.card.base.from_scratch:
        return own
    if (base.folder / RUN_FILE).is_file():
        run = TrainedRun.read(base.folder)
        before = {task: run.overlap_with(task) for task in own}
    else:
        before = dict.fromkeys(own, _of_base(plan, base))
    return {task: max(found, before[task], key=WORSE.index) for task, found in own.items()}


def _of_base(plan: TrainPlan, base: Checkpoint) -> Overlap:
    """The worst that any card says of an encoder with this checkpoint: of its name, or with weights of its hash."""
    catalogue, model = plan.catalogue, plan.base or plan.card.base.model
    if plan.base in catalogue.paths("baselines"):
        return catalogue.encoder(plan.base).overlap
    weights = base.digests().get("weights/model.safetensors", "")
    said: list[Overlap] = []
    for card in map(catalogue.encoder, catalogue.paths("baselines")):
        known = card.params.get("sha256")
        same = isinstance(known, Mapping) and known.get("model.safetensors") == weights != ""
        if card.kind in ("transformer", "sentence_transformer") and (
            same or card.params.get("model") == model != ""
        ):
            said.append(card.overlap)
    return max(said, key=WORSE.index, default="unknown")


@validate_arguments(
    recipe=NAME_OR_PATH, seed=SEED, params=PARAMETERS, base=NAME_OR_PATH, corpus=NAME_OR_PATH,
    corpora=PATH, data=PATH, out=PATH, device=NAME, fresh=SWITCH, on_step=FUNCTION, catalogue=Catalogue,
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
    """Train a recipe for one seed as ``stsbench train`` does, and return the encoder.

    It is written into ``runs/<recipe>/seed<k>/``, where ``load_encoder("<recipe>@<k>")`` finds it. What is trained
    already is not trained again, and what was stopped resumes from its last checkpoint.

    Args:
        recipe: a recipe's name, or the path of its card.
        seed: default the first that the recipe names, else 0.
        params: values of the recipe that are replaced, as ``{"batch_size": 16}``.
        base: the checkpoint to start from, where the recipe names none or another is wanted.
        corpus: the text to train on, by name or file, instead of the recipe's.
        corpora: the local folder of training text; default ``STSBENCH_CORPORA``.
        data: the local folder of evaluation data, for the development split; default ``STSBENCH_DATA``.
        out: the folder of runs; default ``STSBENCH_RUNS``, else ``runs``. In another no name finds it.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        fresh: train anew; what the folder holds is deleted, checkpoints too.
        on_step: called after each step with how far it is.
        catalogue: cards to look names up in; default the project's.

    Raises:
        StsbenchError: it cannot be trained; says why and what was kept.
    """
    cards, values = catalogue or Catalogue(), dict(params or {})
    name, card = read_recipe(
        str(recipe), cards, assign={**values, **({"data.corpus": str(corpus)} if corpus else {})}
    )
    chosen = (card.seeds or [0])[0] if seed is None else int(seed)
    places = {"base": base, "corpus": corpus, "corpora": corpora, "data": data, "out": out}
    said = {"params": values, **{key: str(place or "") for key, place in places.items()}}
    said["device"] = "" if device == "auto" else device
    plan = TrainPlan(
        name=name,
        card=card,
        seed=chosen,
        out=settings.runs_folder() if out is None else Path(out),
        base=str(base),
        corpora=None if corpora is None else Path(corpora),
        data=None if data is None else Path(data),
        device=device,
        fresh=fresh,
        # The call that resumes the run, in Python.
        command=f"stsbench.train({str(recipe)!r}, seed={chosen}"
        + "".join(f", {key}={value!r}" for key, value in said.items() if value)
        + ")",
        catalogue=cards,
    )
    return load_run(carry_out(plan, on_progress=on_step or (lambda progress: None)), cards)


def carry_out(plan: TrainPlan, *, on_progress: OnProgress = lambda progress: None) -> TrainedRun:
    """Train a recipe for one seed and write its encoder.

    What is trained already is not trained again, and what was stopped resumes from its last checkpoint, unless
    the plan says ``fresh``. Raises StsbenchError where it cannot be trained, and says why and what was kept.
    """
    if (done := find_finished(plan)) is not None:
        return done
    if uses_training_loop(plan.card):
        # Before torch is loaded.
        check_start(plan)
    with _open_folder(plan):
        trainer = load_trainer(plan)
        _note_start(plan, trainer)
        # With its record gone, an old run in the folder is no finished one: what made it is about to be replaced.
        (plan.folder / RUN_FILE).unlink(missing_ok=True)
        outcome = trainer.train(on_progress)
        if plan.place.rank == 0:
            _record(plan, trainer, outcome)
        plan.place.wait()
        return TrainedRun.read(plan.folder)


def find_finished(plan: TrainPlan) -> TrainedRun | None:
    """The run that a plan asks for, where it is done already and not to be trained anew.

    Raises OutputError where the folder holds a run of the same name that was trained with another recipe, base or text.
    """
    if plan.fresh or not (plan.folder / RUN_FILE).is_file():
        return None
    done = TrainedRun.read(plan.folder)
    other = recipe_difference(deciding(done.card), deciding(plan.card))
    if other := other or _other_base(plan, done) or _other_text(plan, done):
        what = f"{plan.folder}: holds a finished run with another {other}"
        raise OutputError(
            f"{what}; pass --fresh to train again in its place, or --out to train elsewhere"
        )
    return done


def _other_base(plan: TrainPlan, done: TrainedRun) -> str:
    """A folder is compared by its files, of those that are known of both: it may have been trained again."""
    earlier = plan.card.base.recipe and run_folder(plan.out, plan.card.base.recipe, plan.seed)
    folder = Path(plan.base) if plan.base else earlier
    if not folder or not folder.is_dir():
        return "" if plan.base == done.given_base else f"base ({done.given_base}, now {plan.base})"
    now, before = find_checkpoint(str(folder)).digests(), done.base_files
    return "base" if any(now[name] != before[name] for name in now.keys() & before.keys()) else ""


def _other_text(plan: TrainPlan, done: TrainedRun) -> str:
    """A file of the user's may have changed; what is not at hand any more cannot have."""
    if plan.card.data.corpus in plan.catalogue.corpora():
        return ""
    try:
        text = load_text(plan)
    except DataError:
        return ""
    return "" if done.corpus.sha256 in (text.sha256, lines_as_documents(text).sha256) else "text"


def deciding(card: RecipeCard) -> dict[str, Any]:
    """The tables of a recipe that decide what is trained, as plain values."""
    table: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(card))
    return {key: table[key] for key in DECIDING}


def _note_start(plan: TrainPlan, trainer: Trainer) -> None:
    """Write down what the run is started with; where it resumes from checkpoints, it must be what they were made with."""
    start = TrainingStart(
        recipe=deciding(plan.card),
        seed=plan.seed,
        base=dict(trainer.base.digests()) if trainer.base else {},
        corpus=trainer.corpus.sha256,
        teachers=trainer.teachers.fingerprints(),
        devices=plan.place.ranks,
        command=plan.command,
    )
    if last_checkpoint(plan.folder) is not None and not plan.fresh:
        before = TrainingStart.read(plan.folder)
        other = "start, which is not written down" if before is None else start.difference(before)
        if other:
            what = f"{plan.folder}: holds checkpoints of a run with another {other}"
            raise TrainingError(
                f"{what}; pass --fresh to train again without them, or --out to train elsewhere"
            )
    plan.place.wait()
    if plan.place.rank == 0:
        if plan.fresh:
            # Before the new start is written: never do checkpoints lie beside the start of another run.
            shutil.rmtree(plan.folder / "checkpoints", ignore_errors=True)
        start.write(plan.folder)


@contextmanager
def _open_folder(plan: TrainPlan) -> Iterator[None]:
    """Make the folder, which shows that it can be written; it goes again where a mistake leaves nothing in it."""
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=plan.folder):
            pass
    except OSError as error:
        raise OutputError(f"{plan.folder}: cannot be written: {error.strerror}") from error
    try:
        yield
    except StsbenchError:
        with suppress(OSError):
            (plan.folder / "checkpoints").rmdir()
        if {path.name for path in plan.folder.iterdir()} <= {START_FILE}:
            (plan.folder / START_FILE).unlink(missing_ok=True)
            with suppress(OSError):
                plan.folder.rmdir()
                plan.folder.parent.rmdir()
        raise


def _record(plan: TrainPlan, trainer: Trainer, outcome: TrainingOutcome) -> None:
    """Write what the encoder in the folder is: with that file the folder is whole, and what it was resumed from goes."""
    commit, dirty = provenance.commit()
    corpus = trainer.corpus
    record = {
        "recipe": plan.name,
        "seed": plan.seed,
        "card": msgspec.to_builtins(plan.card),
        "given_base": plan.base,
        **({"base_files": trainer.base.digests()} if trainer.base else {}),
        **({"teachers": trainer.teachers.fingerprints()} if trainer.teachers.known else {}),
        "corpus": {"name": corpus.name, "sha256": corpus.sha256, "rows": len(corpus)},
        "overlap": find_overlaps(plan, corpus, trainer.base, trainer.teachers.known),
        "steps": outcome.steps,
        "chosen": outcome.chosen,
        "curve": outcome.curve,
        "run": {
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(outcome.seconds, 1),
            "device": trainer.device,
            "versions": provenance.versions(),
            "commit": commit,
            "dirty": dirty,
        },
    }
    write_atomically(plan.folder / RUN_FILE, (json.dumps(record, indent=1) + "\n").encode())
    shutil.rmtree(plan.folder / "checkpoints", ignore_errors=True)
    (plan.folder / START_FILE).unlink(missing_ok=True)


CarryOut = Callable[..., TrainedRun]
"""Trains a recipe for one seed, with the arguments of :func:`carry_out`."""
Launcher = Callable[[str, int | None, Callable[[str], None]], AbstractContextManager[CarryOut]]
"""Given where it is to be (``ray://HOST:PORT``), how many devices train together (None: all), and what tells the
user a line; what it yields trains one plan after another."""


def in_this_process(
    on: str, devices: int | None, noticed: Callable[[str], None]
) -> AbstractContextManager[CarryOut]:
    """This process, or all those that ``torchrun`` has started."""
    return nullcontext(carry_out)


LAUNCHERS = Registry(
    "place of training",
    {
        "local": "stsbench.recipes.train:in_this_process",
        "ray": "stsbench.recipes.ray_training:launched_on_ray",
    },
    group="launchers",
    expected="a context manager, see stsbench.recipes.train:Launcher",
)


TRIED = 3
"""So many steps are taken."""


class TrainingForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Steps and tokens are exact up to the batches drawn; seconds and bytes are measured over three steps."""

    rows: int
    corpus: str
    steps: int
    batch_size: int
    validations: int
    tokens: int
    """Tokens that go through the model in the whole run, padding not counted."""
    trained_parameters: int
    parameters: int
    seconds: float
    """Of all steps and validations, on the device used."""
    step_seconds: float
    validation_seconds: float
    memory: int
    """Bytes: the most that was used in the steps tried, on a GPU of its memory, else of the process."""
    device: str

    def lines(self) -> list[list[str]]:
        """Rows for a table."""
        each = f"{self.step_seconds:.2f} s a step, {self.validation_seconds:.1f} s a validation"
        return [
            ["corpus", f"{self.corpus}, {self.rows:,} rows"],
            ["steps", f"{self.steps:,} of {self.batch_size} rows"],
            ["validations", f"{self.validations:,}"],
            ["tokens", f"{self.tokens:,}"],
            ["parameters", f"{self.trained_parameters:,} trained of {self.parameters:,}"],
            ["memory", f"{self.memory / 2**30:.1f} GiB"],
            ["time", f"{self.seconds / 60:.1f} min ({each})"],
            ["device", self.device],
        ]


@dataclass(frozen=True)
class TeacherEncoders:
    """Encoders under their names."""

    known: Sequence[NamedEncoder] = ()

    @classmethod
    def find(cls, names: Sequence[str], catalogue: Catalogue) -> TeacherEncoders:
        """Find them; raises CardError where one is fitted on texts, and as :func:`stsbench.load_encoder`."""
        found = [load_named(name, catalogue=catalogue) for name in names]
        for name, one in zip(names, found, strict=True):
            if isinstance(one.encoder, FittableEncoder):
                raise CardError(f"teacher '{name}' is fitted on texts; name an encoder that is not")
        return cls(found)

    def fingerprints(self) -> dict[str, str]:
        """What identifies the embeddings of each, by its name; empty where nothing does."""
        return {one.name: one.fingerprint or "" for one in self.known}

    def of(self, texts: Sequence[str], place: ProcessGroup) -> list[TeacherEmbeddings]:
        """What gives each one's embeddings of some of these texts; the first process embeds what the store lacks."""
        taught: list[TeacherEmbeddings] = []
        for one in self.known:
            if place.rank:
                place.wait()
            embedded = Engine(one.encoder, open_store("default", one.encoder))(texts)
            if not place.rank:
                place.wait()
            taught.append(embedded.take)
        return taught


@dataclass(frozen=True, kw_only=True)
class Trainer(ABC):
    """A recipe's method with all that it learns from, one call away from training.

    The order of calls: ``prepare``, then ``forecast`` or ``train``, once. All raise StsbenchError: a value that method or
    trainer does not take, what cannot be had, or why it cannot continue and what was kept.
    """

    plan: TrainPlan
    corpus: Corpus
    validate: Validate | None
    """What weights are chosen by; None where the last are kept."""
    base: Checkpoint | None = None
    teachers: TeacherEncoders = TeacherEncoders()
    """The encoders whose embeddings it learns from besides, if any."""
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

    def forecast_of(self, **tried: Any) -> TrainingForecast:  # noqa: ANN401 - a forecast's fields
        """A forecast of what was tried, with what follows from it."""
        seconds = (
            tried["step_seconds"] * tried["steps"]
            + tried["validation_seconds"] * tried["validations"]
        )
        if self.device.startswith("cuda"):
            import torch

            memory = torch.cuda.max_memory_allocated(self.device)
        else:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
                1 if sys.platform == "darwin" else 1024
            )
        found = {
            "rows": len(self.corpus),
            "corpus": self.corpus.name,
            "seconds": seconds,
            "device": self.device,
        }
        return TrainingForecast(**found, **tried, memory=memory)

    @abstractmethod
    def train(self, on_progress: OnProgress) -> TrainingOutcome:
        """Train, from the last checkpoint unless the plan is a fresh one, and leave the encoder in the plan's folder."""


TRAINERS = Registry(
    "trainer",
    {
        "loop": "stsbench.recipes.trainers:LoopTrainer",
        "rounds": "stsbench.recipes.trainers:RoundsTrainer",
    },
    group="trainers",
)


def load_trainer(plan: TrainPlan) -> Trainer:
    """The trainer that a plan's method needs, with everything loaded; raises as :meth:`Trainer.prepare`."""
    method = METHODS.load(plan.card.method)
    trainer: Trainer = TRAINERS.load_own(method.trainer).prepare(plan, method)
    return trainer
