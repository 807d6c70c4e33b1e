"""Recipes: a card of method, start, text and hyperparameters, carried out to a trained encoder."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from stsbench import provenance
from stsbench.data.sources import is_at_hand
from stsbench.errors import OutputError
from stsbench.files import write_whole
from stsbench.plans import TrainPlan
from stsbench.prepared import Prepared, material, prepare
from stsbench.recipe_cards import RecipeCard
from stsbench.task import load_task
from stsbench.trained import RUN_FILE, TrainedRun, run_folder, trained_runs

if TYPE_CHECKING:
    from stsbench.training.corpus import Corpus
    from stsbench.training.loop import Outcome
    from stsbench.training.selection import Told


def carry_out(plan: TrainPlan, *, told: Told | None = None) -> TrainedRun:
    """Train a recipe for one seed and write its encoder; what is trained already is not trained again.

    Raises:
        StsbenchError: it cannot be trained; says why and what was kept.
    """
    from stsbench.own_recipes import train_own, trains_itself
    from stsbench.training.loop import Run, train
    from stsbench.training.methods import METHODS

    if (done := _finished(plan)) is not None:
        return done
    _open_folder(plan)
    method = METHODS.load(plan.card.method)
    if trains_itself(method):
        corpus, validate = material(plan)
        facts = {**_facts(plan), "overlap": find_overlaps(plan, corpus)}
        return train_own(plan.card, method, facts, plan.folder, corpus=corpus, validate=validate, told=told)
    started = time.perf_counter()
    prepared = prepare(plan)
    learner = prepared.learner
    learner.prepare(prepared.columns())
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
    if done[0].facts["card"] != _as_json(plan.card) or done[0].facts["given_base"] != plan.base:
        raise OutputError(
            f"{plan.folder}: holds a run trained otherwise; pass --fresh to train again, or --out elsewhere"
        )
    return done[0]


def _as_json(card: RecipeCard) -> dict[str, Any]:
    table: dict[str, Any] = json.loads(msgspec.json.encode(card))
    return table


def _open_folder(plan: TrainPlan) -> None:
    """Make the folder; with its record gone, an old run in it is no finished one."""
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
        (plan.folder / RUN_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"{plan.folder}: cannot be written: {error.strerror}") from error


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
            "overlap": find_overlaps(plan, prepared.corpus),
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
    place.wait()
    return TrainedRun.read(plan.folder)


def find_overlaps(plan: TrainPlan, corpus: Corpus) -> dict[str, str]:
    """Which STS tests the corpus holds sentences or scores of, for every such task whose data are at hand."""
    from stsbench.training.overlap import find_overlap

    tasks = [load_task(name, data=plan.data, catalogue=plan.catalogue) for name in plan.catalogue.paths("tasks")]
    at_hand = [task for task in tasks if task.card.evaluator == "sts" and is_at_hand(task.card, task.data)]
    found: dict[str, str] = {one.task: one.overlap for one in find_overlap(corpus, at_hand)}
    if plan.card.base.recipe and not plan.base:
        # What the start was trained on counts as well.
        earlier = TrainedRun.read(run_folder(plan.out, plan.card.base.recipe, plan.seed))
        found = {task: max(own, earlier.overlap_with(task), key=WORSE.index) for task, own in found.items()}
    return found


WORSE = ("none", "unknown", "text", "gold")
