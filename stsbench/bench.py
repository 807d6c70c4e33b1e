"""The bench: the only loop over encoders, tasks and seeds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from stsbench import provenance, settings
from stsbench.cards import Catalogue
from stsbench.data.splits import Split
from stsbench.encoders.engine import Engine, Progress
from stsbench.encoders.loading import KnownEncoder, find_encoder
from stsbench.encoders.seams import Encoder
from stsbench.encoders.store import Shelf
from stsbench.errors import EncoderError, SourceError, StsbenchError, UnknownName
from stsbench.evaluators import EVALUATORS
from stsbench.evaluators.seams import Scores
from stsbench.results import Result, cell_digest, columns_digest, read_result, result_path, write_result
from stsbench.task import Task, expand_names, load_task

Store = Path | Literal["default"] | None
"""Where embeddings are kept: a folder, the user's cache folder, or None for memory alone."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One task, to be scored by one protocol."""

    task: Task
    evaluator: type
    protocol: Any
    splits: Mapping[str, Split]
    scored: str

    @property
    def digest(self) -> str:
        """The hash of the data: that of the split, or of all splits that a score needs."""
        digests = [split.digest for split in self.splits.values()]
        return digests[0] if len(digests) == 1 else columns_digest({"splits": digests})

    def texts(self) -> list[str]:
        """All sentences the score needs."""
        return [text for split in self.splits.values() for text in split.texts()]


@dataclass(frozen=True, kw_only=True)
class Listener:
    """Who is told how a run goes; every part may be left out."""

    encoding: Progress = lambda done, total: None
    scoring: Callable[[str], None] = lambda task: None
    failed: Callable[[str, StsbenchError], None] = lambda what, error: None


def evaluate(
    encoder: Encoder | KnownEncoder | str,
    tasks: str | Sequence[str],
    *,
    protocol: str | Sequence[str] | None = None,
    data: Path | str | None = None,
    seed: int = 0,
    split: str | None = None,
    store: Store = "default",
    on_error: Literal["raise", "skip"] = "raise",
    catalogue: Catalogue | None = None,
    listener: Listener | None = None,
    known: Callable[[Job, KnownEncoder], Result | None] | None = None,
) -> Iterator[Result]:
    """Score an encoder on tasks, yielding one Result a task in the order of the tasks.

    All data are read and all sentences of all tasks embedded before the first score, each
    distinct sentence once.

    Args:
        encoder: an encoder, or what :func:`stsbench.load_encoder` takes.
        tasks: names of tasks and suites, or a comma list of them.
        protocol: names of protocols; each task takes the one its evaluator knows.
        data: a local data folder; default ``STSBENCH_DATA``, else the Hub.
        seed: of the evaluation (bootstrap, folds).
        split: score this split of each task instead of its usual one.
        store: where embeddings are kept.
        on_error: ``skip`` goes on past a task that fails, telling the listener.
        catalogue: cards to look names up in.
        listener: told how the run goes.
        known: asked for the Result of a cell before it is scored; a resumed run answers.

    Raises:
        StsbenchError: data or encoder cannot be used; see :mod:`stsbench.errors`.
    """
    catalogue, listener = catalogue or Catalogue(), listener or Listener()
    jobs = _jobs(tasks, catalogue, protocol=protocol, data=data, split=split, on_error=on_error, listener=listener)
    if isinstance(encoder, str):
        encoder = find_encoder(encoder, catalogue=catalogue)
    elif not isinstance(encoder, KnownEncoder):
        encoder = KnownEncoder(name=encoder.name, encoder=encoder)
    had = {job.task.name: known(job, encoder) if known else None for job in jobs}
    engine = Engine(encoder.encoder, open_shelf(store, encoder.encoder), progress=listener.encoding)
    todo = [job for job in jobs if had[job.task.name] is None]
    engine.prepare([text for job in todo for text in job.texts()])
    for job in jobs:
        result = had[job.task.name]
        if result is not None:
            yield result
            continue
        listener.scoring(job.task.name)
        try:
            result = _score(job, encoder, engine, seed)
        except StsbenchError as error:
            if on_error == "raise":
                raise
            listener.failed(f"{encoder.name} on {job.task.name}", error)
        else:
            yield result


def open_shelf(store: Store, encoder: Encoder) -> Shelf:
    """The encoder's shelf in the store; one in memory where nothing may be kept."""
    if store is None or encoder.fingerprint is None:
        return Shelf(None)
    folder = settings.store_folder() if store == "default" else Path(store)
    return Shelf(folder / encoder.fingerprint[:32])


def _jobs(
    tasks: str | Sequence[str],
    catalogue: Catalogue,
    *,
    protocol: str | Sequence[str] | None,
    data: Path | str | None,
    split: str | None,
    on_error: str,
    listener: Listener,
) -> list[Job]:
    names = expand_names(tasks, catalogue)
    loaded = [load_task(name, data=data, catalogue=catalogue) for name in names]
    choice = _Protocols.parse(protocol)
    chosen = [(task, *choice.pick(task)) for task in loaded]
    choice.check_all_used()
    jobs = []
    for task, evaluator, chosen_protocol in chosen:
        try:
            scored = split or task.card.score_split
            wanted = [scored] if getattr(evaluator, "ONE_SPLIT", False) else list(task.card.splits)
            splits = {name: task.load(name) for name in wanted}
            jobs.append(Job(task=task, evaluator=evaluator, protocol=chosen_protocol, splits=splits, scored=scored))
        except StsbenchError as error:
            if on_error == "raise":
                raise
            listener.failed(task.name, error)
    return jobs


@dataclass
class _Protocols:
    """The protocols a user asked for, by name; each evaluator takes the one it knows."""

    names: list[str]
    used: set[str] = field(default_factory=set)
    seen: dict[str, None] = field(default_factory=dict)

    @classmethod
    def parse(cls, protocol: str | Sequence[str] | None) -> _Protocols:
        parts = protocol.split(",") if isinstance(protocol, str) else list(protocol or [])
        return cls([p.strip() for p in parts if p.strip()])

    def pick(self, task: Task) -> tuple[type, Any]:
        """The task's evaluator and protocol: the one asked for, else the evaluator's first."""
        evaluator = EVALUATORS.load(task.card.evaluator)
        protocols: Mapping[str, Any] = evaluator.PROTOCOLS
        self.seen.update(dict.fromkeys(protocols))
        asked = [name for name in self.names if name in protocols]
        self.used.update(asked)
        return evaluator, protocols[asked[0] if asked else next(iter(protocols))]

    def check_all_used(self) -> None:
        for name in self.names:
            if name not in self.used:
                raise UnknownName("protocol", name, self.seen, hint=f"these tasks have {', '.join(self.seen)}")


def _score(job: Job, encoder: KnownEncoder, engine: Engine, seed: int) -> Result:
    started = time.perf_counter()
    evaluator = job.evaluator(protocol=job.protocol, **job.task.card.options)
    scores: Scores = evaluator(job.splits, engine, seed=seed)
    encoded = engine.encoded_among(job.texts())
    return Result(
        encoder=encoder.name,
        task=job.task.name,
        split=job.scored,
        score=scores.score,
        protocol=dataclasses.asdict(job.protocol),
        scores=dict(scores.scores),
        per_subset={name: dict(values) for name, values in scores.per_subset.items()},
        interval=scores.interval,
        interval_method=scores.interval_method,
        n=scores.n,
        zero_vectors=scores.zero_vectors,
        overlap=encoder.overlap,
        train_seed=None,
        eval_seed=seed,
        encoder_card=encoder.card_digest,
        fingerprint=encoder.encoder.fingerprint,
        revision=encoder.revision,
        task_card=job.task.card_digest,
        data=job.digest,
        items=columns_digest(scores.per_item),
        notes=list(scores.notes),
        run=_run_facts(job, encoder, time.perf_counter() - started, encoded),
        per_item=dict(scores.per_item),
    )


def _run_facts(job: Job, encoder: KnownEncoder, seconds: float, encoded: int) -> dict[str, Any]:
    commit, dirty = provenance.commit()
    source = job.task.loaded(next(iter(job.splits)))
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "encoded": encoded,
        "from_store": len(set(job.texts())) - encoded,
        "source": source.source,
        "data_revision": source.revision,
        "device": getattr(encoder.encoder, "device_used", None),
        "dtype": getattr(encoder.encoder, "dtype", None),
        "versions": provenance.versions(),
        "commit": commit,
        "dirty": dirty,
    }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one ``stsbench run`` does: encoders on tasks, into a results folder."""

    encoders: Sequence[str]
    tasks: str
    out: Path
    params: Mapping[str, Any] = field(default_factory=dict)
    protocol: str | None = None
    data: Path | None = None
    split: str | None = None
    seeds: Sequence[int] = (0,)
    store: Store = "default"
    fresh: bool = False
    catalogue: Catalogue = field(default_factory=Catalogue)


def run(plan: Plan, listener: Listener) -> Iterator[Result]:
    """Carry out a plan, writing each Result as soon as it is there; what the folder holds is not done again.

    An encoder or task that fails is told to the listener, and the run goes on.

    Raises:
        StsbenchError: nothing at all can be done (unknown task, no data), or results cannot be written.
    """
    _check_writable(plan.out)
    expand_names(plan.tasks, plan.catalogue)
    for spec in plan.encoders:
        try:
            encoder = find_encoder(spec, params=plan.params, catalogue=plan.catalogue)
        except StsbenchError as error:
            listener.failed(spec, error)
            continue
        for seed in plan.seeds:
            yield from _run_one(plan, encoder, seed, listener)


def _run_one(plan: Plan, encoder: KnownEncoder, seed: int, listener: Listener) -> Iterator[Result]:
    def known(job: Job, encoder: KnownEncoder) -> Result | None:
        return None if plan.fresh else find_result(plan.out, job, encoder, seed)

    results = evaluate(
        encoder,
        plan.tasks,
        protocol=plan.protocol,
        data=plan.data,
        seed=seed,
        split=plan.split,
        store=plan.store,
        on_error="skip",
        catalogue=plan.catalogue,
        listener=listener,
        known=known,
    )
    try:
        for result in results:
            if result.per_item:
                write_result(result, plan.out)
            yield result
    except StsbenchError as error:
        if not isinstance(error, EncoderError | SourceError):
            raise
        listener.failed(encoder.name, error)


def find_result(folder: Path, job: Job, encoder: KnownEncoder, seed: int) -> Result | None:
    """The Result of a cell that a results folder holds, if it is of the same data, cards and encoder."""
    if encoder.encoder.fingerprint is None:
        return None
    cell = cell_digest(dataclasses.asdict(job.protocol), encoder.encoder.fingerprint, None, seed)
    path = result_path(folder, encoder.name, job.task.name, job.scored, cell)
    with suppress(StsbenchError):
        result = read_result(path)
        same = (job.digest, job.task.card_digest, encoder.card_digest)
        if (result.data, result.task_card, result.encoder_card) == same:
            return result
    return None


def _check_writable(folder: Path) -> None:
    """Fail before the work rather than after it."""
    from stsbench.files import remove, write_whole

    probe = write_whole(folder / ".stsbench-writable", b"")
    remove(probe)
