"""A run: its work planned, carried out in this process or by another executor, forecast; and encoders that a program hands over."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Literal

import msgspec
import numpy as np

from stsbench.bench.plan import (
    Cell,
    CleanScoreSettings,
    EncoderPlan,
    RunPlan,
    Store,
    TaskSpecs,
    expand_seeds,
)
from stsbench.bench.progress import ProgressTracker, RunCallbacks
from stsbench.bench.protocols import PlannedTask, load_tasks
from stsbench.bench.score import (
    SharedState,
    TaskEmbedder,
    base_encoder,
    compute_clean_score,
    find_current_result,
    is_name_taken,
    score_tasks,
)
from stsbench.core import settings as places
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import (
    EncoderError,
    Interrupted,
    OutputError,
    SourceError,
    StsbenchError,
    look_up,
)
from stsbench.core.files import remove, remove_stale, write_atomically
from stsbench.core.names import split_names
from stsbench.core.parameters import (
    NAME,
    NAMES,
    PATH,
    SEED,
    STORE,
    ArgumentKind,
    validate_arguments,
)
from stsbench.core.provenance import read_versions
from stsbench.core.registry import Registry
from stsbench.core.wording import format_repr
from stsbench.data.corpora.corpus import load_corpus
from stsbench.data.corpora.overlap import OverlapMatches, find_overlap_matches
from stsbench.data.task import Task
from stsbench.encoders.base import Encoder
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.load import check_loadable, load_named, resolve_encoder, shared_suffixes
from stsbench.encoders.named import NamedEncoder
from stsbench.evaluators.belief import NO_COLUMNS, believe
from stsbench.evaluators.registry import make_task_evaluator
from stsbench.results.folder import (
    describe_missing_columns,
    read_states,
    record_current,
    write_result,
)
from stsbench.results.record import Result, digest_columns, protocol_key

SeenEncoders = dict[tuple[str, int | None], set[str | None]]
"""The fingerprints of the encoders so far, by their names and seeds: they themselves are let go."""


def _is_new(known: NamedEncoder, before: SeenEncoders) -> bool:
    """Whether an encoder is not one of those before, which it joins; raises StsbenchError: nothing tells it from another."""
    same_name = before.setdefault((known.name, known.train_seed), set())
    if same_name and None in {*same_name, known.fingerprint}:
        raise StsbenchError(
            f"two of the encoders are called {format_repr(known.name)}; name each: by --name, or by a dict, {{'first': …, 'second': …}}"
        )
    is_new = known.fingerprint not in same_name
    same_name.add(known.fingerprint)
    return is_new


@dataclass(frozen=True)
class RunContext:
    """A plan in this process: its encoders are made one after the other, its tasks are read once."""

    plan: RunPlan
    callbacks: RunCallbacks
    _last_encoder: dict[str, NamedEncoder] = field(default_factory=dict)
    """The encoder that was made last: two may not fit in memory together."""
    _shared_state: SharedState = field(default_factory=SharedState)

    def encoder_plans(self) -> Iterator[EncoderPlan]:
        """Yield the part of each encoder, once under however many names; one that cannot be made is reported and left out."""
        before = SeenEncoders()
        for spec, cells in groupby(self.plan.cells, key=lambda cell: cell.encoder):
            mine, part = list(cells), None
            with report_errors(
                spec, self.plan.has_one_encoder, self.callbacks, expected=(StsbenchError,)
            ):
                encoder = self._with_own_name(spec, self._load(spec))
                if _is_new(encoder, before):
                    part = self._encoder_plan(spec, encoder, mine)
            if part is not None:
                yield part

    def load_encoder(self, encoder_plan: EncoderPlan) -> NamedEncoder:
        """The encoder of a part, under the name of its results."""
        return replace(self._load(encoder_plan.spec), name=encoder_plan.name)

    def _load(self, spec: str) -> NamedEncoder:
        if spec not in self._last_encoder:
            self._last_encoder.clear()
            made = load_named(spec, params=self.plan.params, catalogue=self.plan.catalogue)
            if made.candidate_names and Path(spec).exists():
                way = os.path.relpath(Path(spec).resolve(), self.plan.results_folder.resolve())
                made = replace(
                    made, folder_digest=hashlib.sha256(os.fsencode(way)).hexdigest()[:16]
                )
            self._last_encoder[spec] = made
        return self._last_encoder[spec]

    def _with_own_name(self, spec: str, encoder: NamedEncoder) -> NamedEncoder:
        """The encoder under a name that neither another folder of this run has, nor another encoder's results."""
        plan = self.plan
        called = {
            one: name
            for given, name in plan.names.items()
            for one in expand_seeds(given, plan.catalogue)
        }
        if encoder.notice:
            self.callbacks.on_notice(encoder.notice)
        if spec in called or not encoder.candidate_names:
            return replace(encoder, name=called.get(spec, encoder.name))
        others = shared_suffixes(
            Path(spec), [Path(other) for other in plan.encoders if other != spec]
        )
        names = [
            name for name in encoder.candidate_names if name.partition("+")[0] not in others
        ] or encoder.candidate_names
        name = next(
            (one for one in names if not is_name_taken(plan.results_folder, one, encoder)),
            names[-1],
        )
        if name != names[0]:
            self.callbacks.on_notice(
                f"{spec}: its results are called '{name}', for '{names[0]}' is another encoder's name"
            )
        return replace(encoder, name=name)

    def _encoder_plan(self, spec: str, encoder: NamedEncoder, cells: Sequence[Cell]) -> EncoderPlan:
        embedder = self.make_embedder(encoder, self.select_tasks(cells))
        mine = {
            cell: self.tasks[cell.task]
            for cell in cells
            if self.tasks.get(cell.task) in embedder.tasks
        }
        done: dict[Cell, Result] = {}
        for cell, task in mine.items():
            if not self.plan.fresh and (
                held := find_current_result(
                    self.plan.results_folder, task, embedder, cell.seed, self.callbacks
                )
            ):
                done[cell] = held
        done = self._select_believed(done)
        todo = dict.fromkeys(task for cell, task in mine.items() if cell not in done)
        to_embed, tokens = embedder.count_missing(list(todo))
        return EncoderPlan(
            spec=spec,
            name=encoder.name,
            cells=list(mine),
            current_results=done,
            sentences_to_embed=to_embed,
            tokens_to_send=tokens,
            libraries=list(read_versions(encoder.fingerprint or "")),
        )

    def _select_believed(self, results: Mapping[Cell, Result]) -> dict[Cell, Result]:
        """Select the results that need not be scored again; reports why the others must."""
        believed = believe(results.values(), self.plan.catalogue, self.callbacks.on_checking)
        for problem in believed.problems:
            self.callbacks.on_notice(f"scored again: {problem.message}")
        # An evaluator of a user's own may have no columns.
        without_columns = believed.unverified.get(NO_COLUMNS, [])
        bare = [result for result in without_columns if result.items != digest_columns({})]
        if bare:
            named = describe_missing_columns(bare)
            self.callbacks.on_notice(f"scored again: {named}, and no score is believed without")
        kept = set(map(id, believed.results)) - set(map(id, bare))
        return {cell: result for cell, result in results.items() if id(result) in kept}

    @cached_property
    def tasks(self) -> dict[str, PlannedTask]:
        """The tasks by name, read when the first encoder is there; what fails is reported once."""
        return {
            task.name: task
            for task in load_tasks(self.plan.planned_tasks, self.callbacks.on_failure)
        }

    def select_tasks(self, cells: Iterable[Cell]) -> list[PlannedTask]:
        """The tasks of some cells, each once, whose data could be had."""
        return [
            self.tasks[name]
            for name in dict.fromkeys(cell.task for cell in cells)
            if name in self.tasks
        ]

    def make_embedder(
        self,
        encoder: NamedEncoder,
        tasks: Sequence[PlannedTask],
        listener: RunCallbacks | None = None,
    ) -> TaskEmbedder:
        """The embedder of an encoder for some tasks; without a listener to its work it only looks into the store."""
        only_look = listener is None
        return TaskEmbedder(
            encoder,
            tasks,
            self.plan,
            listener or self.callbacks,
            shared_state=self._shared_state,
            read_only=only_look,
        )


@contextmanager
def report_errors(
    name: str,
    is_only_encoder: bool,
    callbacks: RunCallbacks,
    expected: tuple[type[StsbenchError], ...] = (EncoderError, SourceError),
) -> Iterator[None]:
    """Report what fails of one encoder, so that the others continue; what the only one's code raises is raised."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, expected) and (
            is_only_encoder or isinstance(error, OutputError | Interrupted)
        ):
            raise
        callbacks.on_failure(name, error)


Executor = Callable[[RunContext, Sequence[EncoderPlan]], Iterator[Result]]
"""Carries out parts: yields the Result of each cell, in their order; what the folder holds is not done again. A cell that
fails is reported to the listener, and the others continue.
"""


EXECUTORS = Registry(
    "executor",
    {"local": "stsbench.bench.run:run_locally", "ray": "stsbench.bench.ray_run:run_on_ray"},
    group="executors",
    expected="a function of work and parts, see stsbench.bench.run:Executor",
)


def run_locally(work: RunContext, parts: Sequence[EncoderPlan]) -> Iterator[Result]:
    """Carry out parts in this process: each task is read once, each encoder's sentences embedded once."""
    pace = ProgressTracker(parts)
    for place, part in enumerate(parts):
        with report_errors(part.name, work.plan.has_one_encoder, work.callbacks):
            pace.start_encoder(parts[place:])
            listener = work.callbacks.with_progress(
                pace, part, f"{place + 1}/{len(parts)} {part.name}"
            )
            embedder = work.make_embedder(
                work.load_encoder(part), work.select_tasks(part.cells), listener
            )
            wanted = {
                (work.tasks[cell.task], cell.seed): part.current_results.get(cell)
                for cell in part.cells
            }
            for result in score_tasks(embedder, wanted, callbacks=listener):
                if all(result is not known for known in part.current_results.values()):
                    write_result(result, work.plan.results_folder)
                yield result


OWN_TEXT = "own"
"""Stands for the training text that an encoder's recipe names."""


def make_clean_scorer(
    settings: CleanScoreSettings, context: RunContext, encoder_plans: Sequence[EncoderPlan]
) -> Callable[[Result], Result]:
    """What puts a clean score into each Result of a run, those among them that the results folder held already.

    The training text is read, and the tasks' sentences looked for in it, before anything is embedded. Raises StsbenchError:
    the text cannot be had, or an encoder has none of its own.
    """
    plan, catalogue = context.plan, context.plan.catalogue
    texts = {
        (task.name, task.split): task.splits[task.split].texts() for task in context.tasks.values()
    }

    def asked_of(encoder: str) -> CleanScoreSettings:
        stem = encoder.partition("+")[0]
        own = [catalogue.recipe(stem).data.corpus] if stem in catalogue.paths("trainers") else []
        if OWN_TEXT in settings.corpora and not own:
            raise StsbenchError(
                f"--clean {OWN_TEXT}: '{encoder}' is of no recipe, which would name its training text; give --clean CORPUS"
            )
        names = dict.fromkeys(
            name for one in settings.corpora for name in (own if one == OWN_TEXT else [one])
        )
        return replace(settings, corpora=tuple(names))

    @cache
    def find(one: CleanScoreSettings) -> tuple[str, OverlapMatches]:
        load = partial(load_corpus, corpora=one.folder, data=plan.data_folder, catalogue=catalogue)
        corpora = list(map(load, one.corpora))
        held = find_overlap_matches(
            corpora,
            (text for mine in texts.values() for text in mine),
            near=settings.min_similarity,
        )
        hashes = [corpus.sha256 for corpus in corpora]
        return hashes[0] if len(hashes) == 1 else digest_columns({"corpora": hashes}), held

    found = {part.name: (mine := asked_of(part.name), *find(mine)) for part in encoder_plans}

    def clean(result: Result) -> Result:
        """The Result with its clean score, which is written; without, where it cannot be made, which is reported."""
        mine, text, held = found[result.encoder]
        seen = [one for one in texts[result.task, result.split] if one in held.how]
        try:
            evaluator = make_task_evaluator(
                result.task, catalogue.task(result.task), result.protocol
            )
            made = compute_clean_score(result, seen, evaluator, mine, text)
        except StsbenchError as error:
            context.callbacks.on_failure(f"clean score of {result.encoder} on {result.task}", error)
            return result
        others = [one for one in result.clean if one.name != made.name]
        cleaned = msgspec.structs.replace(result, clean=[*others, made])
        if cleaned.clean != result.clean:
            # Its per-item columns lie there already.
            write_result(msgspec.structs.replace(cleaned, per_item={}), plan.results_folder)
        return cleaned

    return clean


FIRST_SAMPLE, LAST_SAMPLE = 16, 1024
"""Sentences that tell an encoder's speed: four times as many as long as they take less than ..."""
PROBE_SECONDS = 0.5
"""... this."""


@dataclass(frozen=True, kw_only=True)
class EncoderForecast:
    """What a run would do for one encoder."""

    encoder_plan: EncoderPlan
    embedding_seconds: float | None
    """Seconds of embedding by one worker, as a sample of its sentences took here; None where only fitting tells."""
    scoring_seconds: float | None
    """Of scoring what is missing, as earlier results took; None where one of its tasks has no earlier result."""


def forecast_run(plan: RunPlan, callbacks: RunCallbacks) -> Iterator[EncoderForecast]:
    """Yield what a run would do, an encoder at a time; data are read, and nothing is scored or written.

    Each encoder that has sentences to embed embeds a few of them, for its speed; one that fails is reported.

    Raises:
        StsbenchError: as :func:`stsbench.bench.run.run`.
    """
    work = RunContext(plan, callbacks)
    # How long earlier results took to score, whichever encoder's.
    earlier: dict[tuple[str, str, str], list[float]] = {}
    for one in read_states(plan.results_folder).results if plan.results_folder.is_dir() else ():
        if isinstance(seconds := one.run.get("seconds"), int | float):
            earlier.setdefault((one.task, one.split, protocol_key(one.protocol)), []).append(
                float(seconds)
            )
    for part in work.encoder_plans():
        todo = [work.tasks[cell.task] for cell in part.missing_cells]
        took = [earlier.get((one.name, one.split, protocol_key(one.protocol)), []) for one in todo]
        embedding = 0.0 if part.sentences_to_embed == 0 else None
        # What a server is sent is paid for: nothing is sent for a forecast.
        if part.sentences_to_embed and part.tokens_to_send is None:
            with report_errors(part.name, plan.has_one_encoder, callbacks):
                embedding = _seconds_to_embed(work, part)
        scoring = sum(map(median, took)) if all(took) else None
        yield EncoderForecast(
            encoder_plan=part, embedding_seconds=embedding, scoring_seconds=scoring
        )


def _seconds_to_embed(work: RunContext, part: EncoderPlan) -> float:
    """How long one worker takes for what is missing: the time of a sample that is as long and as short as all of it."""
    base, size = base_encoder(work.load_encoder(part).encoder), FIRST_SAMPLE
    texts = {text for task in work.select_tasks(part.missing_cells) for text in task.texts()}
    by_length = sorted(texts, key=lambda text: (len(text), text))
    # The first call loads the model.
    Engine(base)(by_length[:1])
    while True:
        sample = [
            by_length[i]
            for i in np.linspace(0, len(by_length) - 1, min(size, len(by_length))).astype(int)
        ]
        started = time.perf_counter()
        Engine(base)(sample)
        took = time.perf_counter() - started
        if took > PROBE_SECONDS or size >= min(LAST_SAMPLE, len(by_length)):
            return took * (part.sentences_to_embed or 0) / len(sample)
        size *= 4


def run(
    plan: RunPlan, callbacks: RunCallbacks, *, executor: Executor | None = None
) -> Iterator[Result]:
    """Carry out a run, writing each Result as soon as it is there; what the folder holds is not done again.

    All encoders are found and all data read before the first batch, and the listener hears what is to be done.
    An encoder or task that fails is reported to the listener, and the run continues. The plan names the executor, unless one is given.

    Raises:
        StsbenchError: nothing at all can be done (unknown task, no data), or results cannot be written.
    """
    executor = executor or EXECUTORS.load_at(plan.executor)
    work = RunContext(plan, callbacks)
    plan.cells  # noqa: B018 - unknown names come first
    check_writable(plan.results_folder)
    parts = list(work.encoder_plans())
    clean = make_clean_scorer(plan.clean, work, parts) if plan.clean is not None else None
    callbacks.on_plan(parts)
    for result in executor(work, parts):
        record_current(result, plan.results_folder)
        yield result if clean is None else clean(result)


def check_writable(folder: Path) -> None:
    """Fail before the work rather than after it."""
    remove(write_atomically(folder / ".stsbench-writable", b""))
    # Also what this run will not write beside: other encoders' results, stores and fits.
    remove_stale(folder, "*.partial", "*/*.partial")
    remove_stale(places.cache_folder(), "*/*.partial", "*/*/*.partial")


EncoderLike = Encoder | NamedEncoder | Callable[[list[str]], object] | str | Path
"""What a program may hand over as an encoder: one that is loaded, a name, a SentenceTransformer, a function."""
EncodersLike = EncoderLike | Sequence[EncoderLike] | Mapping[str, EncoderLike]
"""The same, a list of them, or a dict of them by what results are to call them."""


def _are_task_specs(given: object) -> bool:
    return all(
        isinstance(one, str | Task) for one in (given if isinstance(given, Sequence) else [given])
    )


@validate_arguments(
    tasks=ArgumentKind(_are_task_specs, "a name, a Task or a list of them"),
    protocol=NAMES, data=PATH, seed=SEED, split=NAME, store=STORE, name=NAME, on_error=NAME, catalogue=Catalogue,
    callbacks=RunCallbacks, listener=RunCallbacks,
)  # fmt: skip
def iterate(
    encoder: EncodersLike,
    tasks: TaskSpecs,
    *,
    protocol: str | Sequence[str] | None = None,
    data: Path | str | None = None,
    seed: int = 0,
    split: str | None = None,
    store: Store = "default",
    on_error: Literal["raise", "skip"] = "raise",
    name: str | None = None,
    catalogue: Catalogue | None = None,
    callbacks: RunCallbacks | None = None,
    listener: RunCallbacks | None = None,
) -> Iterator[Result]:
    """Score encoders on tasks, yielding each Result as soon as it is there: encoder by encoder, in the order of the tasks.

    Names and arguments are checked at the call. When the first Result is asked for, all data are read. Of each encoder
    all sentences of all tasks are embedded before its first score, each distinct sentence once.

    The arguments are those of :func:`stsbench.evaluate`. With ``on_error="skip"`` failures are
    reported to the callbacks. Of several encoders, those given by name are loaded one at a time.
    ``listener`` is the earlier name of ``callbacks``, and is accepted in version 0.1 only.

    Raises:
        StsbenchError: data or encoder cannot be used; see :mod:`stsbench.core.errors`.
    """
    look_up("on_error", on_error, {"raise": None, "skip": None})
    catalogue = catalogue or Catalogue()
    callbacks = callbacks or listener or RunCallbacks()
    plan = RunPlan(
        tasks=tasks,
        protocol=protocol,
        data=data,
        split=split,
        seeds=(int(seed),),
        store=store,
        catalogue=catalogue,
    )
    _ = plan.planned_tasks
    found = _resolve_encoders(encoder, name, catalogue)
    return _score_encoders(
        plan, found, callbacks if on_error == "skip" else callbacks.with_raised_failures()
    )


def _resolve_encoders(
    given: EncodersLike, name: str | None, catalogue: Catalogue
) -> list[NamedEncoder | str]:
    """Encoders that are there already, and the names of those to be made; of one alone nothing is put off."""
    # What is too long for a file's name is none, which Path would raise.
    if isinstance(given, str) and not os.path.exists(given):  # noqa: PTH110
        given = split_names(given)
    listed: Sequence[object] = given if isinstance(given, list | tuple) else [given]
    called = [*given.items()] if isinstance(given, Mapping) else [(name, one) for one in listed]
    if not called:
        raise StsbenchError(
            "no encoder is given; give a name such as minilm, an encoder, or a list of them"
        )
    if name is not None and (len(called) > 1 or isinstance(given, Mapping)):
        raise StsbenchError(
            f"name='{name}' is for one encoder; name several by a dict, {{'first': …, 'second': …}}"
        )
    found, before = list[NamedEncoder | str](), SeenEncoders()
    for own, one in called:
        if len(called) > 1 and own is None and isinstance(one, str | Path):
            check_loadable(str(one), catalogue)
            found.append(str(one))
        else:
            found.append(known := resolve_encoder(one, catalogue, name=own))
            _is_new(known, before)
    return found


def _score_encoders(
    plan: RunPlan, found: Sequence[NamedEncoder | str], listener: RunCallbacks
) -> Iterator[Result]:
    work, before = RunContext(plan, listener), SeenEncoders()
    tasks = list(work.tasks.values())
    for one in found:
        # The only one's mistake is the caller's.
        with report_errors(
            one if isinstance(one, str) else one.name, len(found) == 1, listener, expected=()
        ):
            known = resolve_encoder(one, plan.catalogue)
            if _is_new(known, before):
                wanted = dict.fromkeys((task, seed) for task in tasks for seed in plan.seeds)
                yield from score_tasks(
                    work.make_embedder(known, tasks, listener), wanted, callbacks=listener
                )
