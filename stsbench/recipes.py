"""Recipes: a card of method, start, text and hyperparameters, carried out to a trained encoder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from stsbench import provenance, settings
from stsbench.cards import Catalogue, RecipeCard
from stsbench.data.sources import is_at_hand
from stsbench.data.splits import PairSplit
from stsbench.encoders.seams import Encoder
from stsbench.errors import CardError, DataError, OutputError, TrainingError, did_you_mean
from stsbench.files import write_whole
from stsbench.similarity import paired_cosine, paired_similarities
from stsbench.statistics import CORRELATIONS
from stsbench.task import load_task
from stsbench.trained import RUN_FILE, TrainedRun, run_folder, trained_runs

if TYPE_CHECKING:
    from stsbench.encoders.checkpoint import Checkpoint
    from stsbench.training.corpus import Corpus
    from stsbench.training.loop import Outcome
    from stsbench.training.seams import Learner
    from stsbench.training.selection import Told


@dataclass(frozen=True, kw_only=True)
class TrainPlan:
    """What one ``stsbench train`` does: a recipe, with what the user replaced, for one seed."""

    name: str
    card: RecipeCard
    seed: int
    out: Path
    base: str = ""
    corpora: Path | None = None
    data: Path | None = None
    device: str = "auto"
    resume: bool = False
    fresh: bool = False
    deterministic: bool = False
    checkpoint_seconds: float = 120.0
    report_to: Sequence[str] = ()
    catalogue: Catalogue = field(default_factory=Catalogue)

    @property
    def folder(self) -> Path:
        """Where the encoder is written."""
        return run_folder(self.out, self.name, self.seed)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A plan with everything loaded, one call away from training."""

    plan: TrainPlan
    learner: Learner
    corpus: Corpus
    validate: Callable[[Encoder], float]

    def columns(self) -> dict[str, Any]:
        """The columns of the corpus that the method asks for: texts, or numbers."""
        corpus, numbers = self.corpus, ("score", "document_id")
        return {n: corpus.numbers(n) if n in numbers else corpus.column(n) for n in self.learner.needs}


def read_recipe(spec: str, catalogue: Catalogue, *, assign: Mapping[str, Any] | None = None) -> tuple[str, RecipeCard]:
    """Return a recipe's name and its card, with values replaced.

    Args:
        spec: a recipe's id, or the path of a card.
        catalogue: where ids are looked up.
        assign: values by key: ``training.batch_size``, or ``batch_size`` where one table alone has it;
            what no table has is a parameter of the method.

    Raises:
        UnknownName: no such recipe. CardError: a value that does not fit.
    """
    from stsbench.cards import read_card

    path = Path(spec)
    name, card = (path.stem, read_card(path, RecipeCard)) if spec.endswith(".toml") else (spec, catalogue.recipe(spec))
    if not assign:
        return name, card
    table = msgspec.to_builtins(card)
    for key, value in assign.items():
        _assign(table, key, value)
    changed = "+".join([name, *(f"{key}={value}" for key, value in sorted(assign.items()))])
    from stsbench.strict import convert

    return changed, convert(table, RecipeCard, where=f"recipe {name}: --set")


TABLES = ("training", "student", "selection", "data", "base", "params")


def _assign(table: dict[str, Any], key: str, value: Any) -> None:  # noqa: ANN401 - any TOML value
    first, _, rest = key.partition(".")
    if rest:
        if first not in TABLES:
            raise CardError(
                f"--set {key}: no table '{first}'{did_you_mean(first, TABLES)}; tables: {', '.join(TABLES)}"
            )
        table[first][rest] = value
        return
    homes = [name for name in TABLES[:-1] if key in table[name]]
    if len(homes) > 1:
        raise CardError(f"--set {key}: say which one, {' or '.join(f'{home}.{key}' for home in homes)}")
    table[homes[0] if homes else "params"][key] = value


def prepare(plan: TrainPlan) -> Prepared:
    """Load corpus, backbone and development split, and build the learner.

    Raises:
        StsbenchError: one of them cannot be had, or does not fit the method.
    """
    import transformers

    from stsbench.own_recipes import trains_itself
    from stsbench.registry import call_with_params
    from stsbench.training.methods import METHODS
    from stsbench.training.place import Place
    from stsbench.training.student import Student

    card = plan.card
    method = METHODS.load(card.method)
    if trains_itself(method):
        raise CardError(f"recipe {plan.name}: method '{card.method}' trains itself, and has no forecast")
    where = f"recipe {plan.name}: [params]"
    corpus, validate = _material(plan)
    transformers.set_seed(plan.seed)
    student = Student(
        _start(plan),
        pooling=card.student.pooling,
        test_pooling=card.student.test_pooling,
        max_length=card.student.max_length,
        dropout=card.student.dropout,
        head=card.student.head,
        language_model=method.wants_language_model(card.params),
        from_scratch=card.base.from_scratch,
        layers=card.base.layers,
        fresh_language_head=card.base.fresh_language_head,
        device=Place.find(plan.device).device,
    )
    learner: Learner = call_with_params(method, {"student": student, **card.params}, where=where)
    corpus.require(*learner.needs)
    return Prepared(plan=plan, learner=learner, corpus=corpus, validate=validate)


def _material(plan: TrainPlan) -> tuple[Corpus, Callable[[Encoder], float]]:
    """What a plan learns from, and what scores it."""
    from stsbench.training.corpora import load_corpus

    card = plan.card
    split = load_task(card.selection.task, data=plan.data, catalogue=plan.catalogue).load(card.selection.split)
    corpus = load_corpus(card.data.corpus, corpora=plan.corpora, data=plan.data, catalogue=plan.catalogue)
    corpus = corpus.sentences() if card.data.sentences else corpus
    return _some_rows(corpus, card, plan.seed), validator(split, measure=card.selection.measure)


def _some_rows(corpus: Corpus, card: RecipeCard, seed: int) -> Corpus:
    wanted = card.data.rows
    if wanted is None:
        return corpus
    if not 2 <= wanted <= len(corpus):
        raise CardError(f"[data] rows {wanted}: the corpus has {len(corpus)}")
    if "document_id" in corpus.columns:
        # Ordered text stays in one piece: a sentence's neighbours are what is learned from.
        return corpus.take(range(wanted))
    drawn = np.sort(np.random.default_rng([seed, 7]).choice(len(corpus), wanted, replace=False))
    return corpus.take(drawn.tolist())


def _start(plan: TrainPlan) -> Checkpoint:
    """The checkpoint that training starts from."""
    from stsbench.encoders.checkpoint import find_checkpoint

    base = plan.card.base
    if plan.base:
        return find_checkpoint(plan.base)
    if base.recipe:
        earlier = run_folder(plan.out, base.recipe, plan.seed)
        if not (earlier / RUN_FILE).is_file():
            raise TrainingError(
                f"recipe {plan.name} goes on from recipe '{base.recipe}', seed {plan.seed}, which is not trained here; "
                f"run: stsbench train {base.recipe} --seeds {plan.seed}"
            )
        return find_checkpoint(str(earlier))
    if not base.model:
        raise CardError(f"recipe {plan.name}: no checkpoint to start from; pass --base FOLDER ({base.note})")
    return find_checkpoint(base.model, revision=base.revision, sha256=base.sha256)


def validator(split: Any, *, measure: str = "cosine") -> Callable[[Encoder], float]:  # noqa: ANN401 - any split
    """Return what scores an encoder on a development split: Spearman of cosine or the best of four, x100 nowhere."""
    if not isinstance(split, PairSplit):
        raise DataError("selection needs a split of sentence pairs with gold scores, such as stsb's dev")

    def validate(encoder: Encoder) -> float:
        embeddings = encoder.encode([*split.sentences1, *split.sentences2])
        a, b = embeddings[: split.n], embeddings[split.n :]
        found = [paired_cosine(a, b)[0]] if measure == "cosine" else paired_similarities(a, b)
        scores = [float(CORRELATIONS["spearman"](one, split.gold)) for one in found]
        # A collapsed student embeds everything alike: the worst there is, not an error.
        return max(score if np.isfinite(score) else -1.0 for score in scores)

    return validate


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
        corpus, validate = _material(plan)
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


def default_out() -> Path:
    """Where runs go."""
    return settings.runs_folder()
