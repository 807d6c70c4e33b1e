"""Recipes: a card of method, start, text and hyperparameters, carried out to a trained encoder."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from stsbench import provenance
from stsbench.errors import CardError, OutputError, Stopped, StsbenchError, TrainingError, one_line
from stsbench.files import write_whole
from stsbench.plans import TrainPlan
from stsbench.prepared import Prepared, material, prepare
from stsbench.recipe_cards import RecipeCard
from stsbench.seen import find_overlaps
from stsbench.strict import convert
from stsbench.trained import RUN_FILE, TrainedRun, trained_runs

if TYPE_CHECKING:
    from stsbench.encoders.checkpoint import Checkpoint
    from stsbench.training.corpus import Corpus
    from stsbench.training.loop import Outcome
    from stsbench.training.place import Place
    from stsbench.training.selection import Told


def carry_out(plan: TrainPlan, *, told: Told | None = None) -> TrainedRun:
    """Train a recipe for one seed and write its encoder; what is trained already is not trained again.

    Raises:
        StsbenchError: it cannot be trained; says why and what was kept.
    """
    if (done := _finished(plan)) is not None:
        return done
    with _open_folder(plan):
        return _train(plan, told)


def _train(plan: TrainPlan, told: Told | None) -> TrainedRun:
    from stsbench.own_recipes import trains_itself
    from stsbench.training.methods import METHODS

    method = METHODS.load(plan.card.method)
    return _train_own(plan, method, told) if trains_itself(method) else _train_in_loop(plan, told)


def _train_own(plan: TrainPlan, method: Callable[..., Any], told: Told | None) -> TrainedRun:
    from stsbench.own_recipes import train_own
    from stsbench.training.place import Place
    from stsbench.training.resuming import has_state

    if plan.base:
        raise CardError(f"recipe {plan.name}: method '{plan.card.method}' starts from nothing; leave out --base")
    corpus, validate = material(plan)
    facts = {**_facts(plan), "overlap": find_overlaps(plan, corpus)}
    _note_start(plan, corpus, base={}, resumable=has_state(plan.folder), place=Place.find("cpu"))
    _forget(plan)
    try:
        run = train_own(
            plan.card, method, facts, plan.folder, corpus=corpus, validate=validate, told=told, resume=plan.resume
        )
    except KeyboardInterrupt as stop:
        raise Stopped("stopped; to go on from the last validation, add --resume") from stop
    (plan.folder / STARTED).unlink(missing_ok=True)
    return run


def _train_in_loop(plan: TrainPlan, told: Told | None) -> TrainedRun:
    from stsbench.training.loop import Run, last_checkpoint, train
    from stsbench.training.place import Place

    started = time.perf_counter()
    prepared = prepare(plan)
    learner = prepared.learner
    learner.prepare(prepared.columns())
    _note_start(
        plan,
        prepared.corpus,
        base=learner.student.checkpoint.digests(),
        resumable=last_checkpoint(plan.folder) is not None,
        place=Place.find("cpu" if learner.student.device.type == "cpu" else "auto"),
    )
    run = Run(
        training=plan.card.training,
        selection=plan.card.selection,
        folder=plan.folder,
        seed=plan.seed,
        rows=len(prepared.corpus),
        validate=prepared.validate,
        told=told or (lambda progress: None),
        checkpoint_seconds=plan.checkpoint_seconds,
        report_to=plan.report_to,
        deterministic=plan.deterministic,
    )
    _forget(plan)
    outcome = train(learner, run, resume=plan.resume)
    return _write(prepared, outcome, time.perf_counter() - started)


def _finished(plan: TrainPlan) -> TrainedRun | None:
    """The run that a plan asks for, where it is done already.

    Raises:
        OutputError: the folder holds a run of the same name that was trained otherwise.
    """
    done = [run for run in trained_runs(plan.name, plan.out) if run.seed == plan.seed]
    if not done or plan.fresh:
        return None
    before = done[0].facts
    # Read as a card, it has what cards have come to say since, at its usual value.
    card = convert(before["card"], RecipeCard, where=f"{done[0].folder / RUN_FILE}: card")
    if _deciding(_as_json(card)) != _deciding(_as_json(plan.card)) or before["given_base"] != plan.base:
        raise OutputError(
            f"{plan.folder}: holds a run trained otherwise; pass --fresh to train again, or --out elsewhere"
        )
    return done[0]


DECIDING = ("method", "base", "data", "student", "training", "selection", "params")
"""The parts of a recipe that decide what is trained; the others describe it."""


def _deciding(card: Mapping[str, Any]) -> dict[str, Any]:
    return {key: card[key] for key in DECIDING}


def _as_json(card: RecipeCard) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(msgspec.json.encode(card))
    return table


STARTED = "started.json"
"""In the folder of a run that is not done: what it was started with."""


def _note_start(plan: TrainPlan, corpus: Corpus, *, base: Mapping[str, str], resumable: bool, place: Place) -> None:
    """Write down what the run is started with; one that is resumed must be the same.

    Raises:
        TrainingError: its checkpoints are of a run started with another recipe, base or text.
    """
    start = {
        "recipe": _deciding(_as_json(plan.card)),
        "base": base,
        "corpus": corpus.sha256,
        "seed": plan.seed,
    }
    path = plan.folder / STARTED
    if plan.resume and path.is_file() and resumable:
        try:
            before = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise OutputError(f"{path}: is no record of a run's start: {one_line(error)}") from error
        if changed := _changed(before, start):
            raise TrainingError(
                f"{plan.folder}: cannot go on: its checkpoints are of a run with another {changed}; "
                "leave out --resume to train anew"
            )
    place.wait()
    if place.rank == 0:
        write_whole(path, (json.dumps(start, indent=1) + "\n").encode())


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The first thing that differs, with its two values where they are short; nothing where none does."""
    for key in ("seed", "base", "corpus"):
        if before[key] != now[key]:
            return key
    for table, values in now["recipe"].items():
        was = before["recipe"][table]
        if was == values:
            continue
        if not isinstance(values, dict):
            return f"{table} ({was}, now {values})"
        key = next(k for k in {**was, **values} if was.get(k) != values.get(k))
        return f"{table}.{key} ({was.get(key)}, now {values.get(key)})"
    return ""


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
        if {path.name for path in plan.folder.iterdir()} <= {STARTED}:
            (plan.folder / STARTED).unlink(missing_ok=True)
            with suppress(OSError):
                plan.folder.rmdir()
                plan.folder.parent.rmdir()
        raise


def _forget(plan: TrainPlan) -> None:
    """With its record gone, an old run in the folder is no finished one: what made it is about to be replaced."""
    (plan.folder / RUN_FILE).unlink(missing_ok=True)


def _facts(plan: TrainPlan) -> dict[str, Any]:
    """What every run's record begins with."""
    return {"recipe": plan.name, "seed": plan.seed, "card": _as_json(plan.card), "given_base": plan.base}


def _write(prepared: Prepared, outcome: Outcome, seconds: float) -> TrainedRun:
    """Write the encoder, then what it is: with that file the folder is whole."""
    import shutil

    from stsbench.training.place import Place

    plan = prepared.plan
    place = Place.find("cpu" if prepared.learner.student.device.type == "cpu" else "auto")
    if place.rank == 0:
        chosen = int(outcome.chosen["candidate"]) if outcome.chosen else 0
        prepared.learner.save(plan.folder, chosen=chosen)
        commit, dirty = provenance.commit()
        facts = {
            **_facts(plan),
            "base_files": prepared.learner.student.checkpoint.digests(),
            "corpus": {"name": prepared.corpus.name, "sha256": prepared.corpus.sha256, "rows": len(prepared.corpus)},
            "overlap": find_overlaps(plan, prepared.corpus, _base(prepared)),
            "steps": outcome.steps,
            "chosen": outcome.chosen,
            "curve": outcome.curve,
            "run": {
                "created": datetime.now(UTC).isoformat(timespec="seconds"),
                "seconds": round(seconds, 1),
                "device": str(prepared.learner.student.device),
                "versions": provenance.versions(),
                "commit": commit,
                "dirty": dirty,
            },
        }
        write_whole(plan.folder / RUN_FILE, (json.dumps(facts, indent=1) + "\n").encode())
        shutil.rmtree(plan.folder / "checkpoints", ignore_errors=True)
        (plan.folder / STARTED).unlink(missing_ok=True)
    place.wait()
    return TrainedRun.read(plan.folder)


def _base(prepared: Prepared) -> Checkpoint | None:
    """The checkpoint whose weights were trained on, None where its configuration alone was taken."""
    return None if prepared.plan.card.base.from_scratch else prepared.learner.student.checkpoint
