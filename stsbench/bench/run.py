"""Runs: planned, forecast, and carried out in this process or by another executor."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

from stsbench.bench.clean import CleanScorer
from stsbench.bench.embedder import SharedState, TaskEmbedder, base_encoder
from stsbench.bench.plan import Cell, EncoderPlan, RunPlan, Store, TaskSpecs, expand_seeds
from stsbench.bench.progress import ProgressTracker, RunCallbacks
from stsbench.bench.protocols import PlannedTask, load_tasks
from stsbench.bench.score import find_current_result, is_name_taken, score_tasks
from stsbench.core import settings
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
from stsbench.data.task import Task
from stsbench.encoders.base import Encoder
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.load import check_loadable, load_named
from stsbench.encoders.named import NamedEncoder, shared_suffixes
from stsbench.encoders.objects import resolve_encoder
from stsbench.evaluators.belief import NO_COLUMNS_REASON, believe
from stsbench.results.folder import (
    describe_missing_columns,
    read_states,
    record_current,
    write_result,
)
from stsbench.results.record import Result, digest_columns, protocol_key


class SeenEncoders:
    """The encoders so far, by name, seed and fingerprint; the encoders themselves are freed."""

    def __init__(self) -> None:
        """Start without any encoder."""
        self._fingerprints: dict[tuple[str, int | None], set[str | None]] = {}

    def add(self, encoder: NamedEncoder) -> bool:
        """Add an encoder, and return whether it is new.

        Raises:
            StsbenchError: An earlier encoder has the same name, and one of the two no
                fingerprint, so that nothing distinguishes them.
        """
        key = (encoder.name, encoder.train_seed)
        fingerprints = self._fingerprints.setdefault(key, set())
        if fingerprints and None in {*fingerprints, encoder.fingerprint}:
            raise StsbenchError(
                f"two of the encoders are called {format_repr(encoder.name)}",
                hint="name each: by `names`, or by a dict, {'first': …, 'second': …}",
            )
        is_new = encoder.fingerprint not in fingerprints
        fingerprints.add(encoder.fingerprint)
        return is_new


@dataclass(frozen=True)
class RunContext:
    """A run in this process: its encoders are loaded one after the other, its tasks read once.

    Executors get one: ``plan`` has the settings of the run, ``callbacks`` report its progress.
    """

    plan: RunPlan
    callbacks: RunCallbacks
    _last_encoder: dict[str, NamedEncoder] = field(default_factory=dict)
    """The encoder that was loaded last, by its spec: two may not fit in memory together."""
    _shared_state: SharedState = field(default_factory=SharedState)

    def encoder_plans(self) -> Iterator[EncoderPlan]:
        """Yield the plan of each encoder; an encoder under several specs has one plan.

        An encoder that cannot be loaded is reported and omitted.
        """
        seen_encoders = SeenEncoders()
        for spec, cells_of_spec in groupby(self.plan.cells, key=lambda cell: cell.encoder):
            cells = list(cells_of_spec)
            encoder_plan = None
            with self.report_errors(spec, expected=(StsbenchError,)):
                encoder = self._choose_name(spec, self._load(spec))
                if seen_encoders.add(encoder):
                    encoder_plan = self._plan_encoder(spec, encoder, cells)
            if encoder_plan is not None:
                yield encoder_plan

    def report_errors(
        self, name: str, expected: tuple[type[StsbenchError], ...] = (EncoderError, SourceError)
    ) -> AbstractContextManager[None]:
        """Report the errors of an encoder as :func:`report_errors` does, to the run's callbacks.

        Args:
            name: The encoder as the report names it.
            expected: The errors that are reported even if it is the only encoder.
        """
        return report_errors(
            name, self.callbacks, is_only_encoder=self.plan.has_one_encoder, expected=expected
        )

    def load_encoder(self, encoder_plan: EncoderPlan) -> NamedEncoder:
        """Load the encoder of a plan, under its name in results."""
        return replace(self._load(encoder_plan.spec), name=encoder_plan.name)

    def _load(self, spec: str) -> NamedEncoder:
        """Load an encoder, or return it again if it was loaded last.

        One that was loaded by the path of a folder gets a hash of that path, relative to the
        results folder.
        """
        if spec not in self._last_encoder:
            self._last_encoder.clear()
            encoder = load_named(spec, params=self.plan.params, catalogue=self.plan.catalogue)
            if encoder.candidate_names and Path(spec).exists():
                results_folder = self.plan.results_folder.resolve()
                relative_path = os.path.relpath(Path(spec).resolve(), results_folder)
                folder_digest = hashlib.sha256(os.fsencode(relative_path)).hexdigest()[:16]
                encoder = replace(encoder, folder_digest=folder_digest)
            self._last_encoder[spec] = encoder
        return self._last_encoder[spec]

    def _choose_name(self, spec: str, encoder: NamedEncoder) -> NamedEncoder:
        """Return the encoder under the user's name for it, or under one that is not taken.

        A name is taken if another folder of this run has it, or results of another encoder. A
        notice is given if the name is not the first choice.

        Args:
            spec: The encoder as the user names it, possibly the path of a folder.
            encoder: The encoder. Only one that was loaded by a path has candidates for its name,
                the shortest end of the path first.
        """
        plan = self.plan
        if encoder.notice:
            self.callbacks.on_notice(encoder.notice)
        chosen_names: dict[str, str] = {}
        for named_spec, name in plan.names.items():
            for seed_spec in expand_seeds(named_spec, plan.catalogue):
                chosen_names[seed_spec] = name
        if spec in chosen_names or not encoder.candidate_names:
            return replace(encoder, name=chosen_names.get(spec, encoder.name))
        other_paths = [Path(other_spec) for other_spec in plan.encoders if other_spec != spec]
        ambiguous_names = shared_suffixes(Path(spec), other_paths)
        candidates = [
            name
            for name in encoder.candidate_names
            if name.partition("+")[0] not in ambiguous_names
        ]
        candidates = candidates or list(encoder.candidate_names)
        free_names = (
            name for name in candidates if not is_name_taken(plan.results_folder, name, encoder)
        )
        name = next(free_names, candidates[-1])
        if name != candidates[0]:
            self.callbacks.on_notice(
                f"{spec}: its results are called '{name}', "
                f"for '{candidates[0]}' is another encoder's name"
            )
        return replace(encoder, name=name)

    def _plan_encoder(self, spec: str, encoder: NamedEncoder, cells: Sequence[Cell]) -> EncoderPlan:
        """Return which cells of an encoder have current results, and what the others need.

        Args:
            spec: The encoder as the user names it.
            encoder: The encoder under its name in results.
            cells: Its cells; those of tasks that cannot be read or embedded are omitted.
        """
        embedder = self.make_embedder(encoder, self.select_tasks(cells))
        task_by_cell = {
            cell: self.tasks[cell.task]
            for cell in cells
            if self.tasks.get(cell.task) in embedder.tasks
        }
        current_results: dict[Cell, Result] = {}
        if not self.plan.fresh:
            for cell, task in task_by_cell.items():
                result = find_current_result(
                    self.plan.results_folder, task, embedder, cell.seed, self.callbacks
                )
                if result is not None:
                    current_results[cell] = result
        current_results = self._select_believed(current_results)
        tasks_to_score = dict.fromkeys(
            task for cell, task in task_by_cell.items() if cell not in current_results
        )
        missing = embedder.count_missing(list(tasks_to_score))
        return EncoderPlan(
            spec=spec,
            name=encoder.name,
            cells=list(task_by_cell),
            current_results=current_results,
            sentences_to_embed=missing.sentences,
            tokens_to_send=missing.tokens,
            libraries=list(read_versions(encoder.fingerprint or "")),
        )

    def _select_believed(self, results: Mapping[Cell, Result]) -> dict[Cell, Result]:
        """Select the results whose scores their items confirm; report why others are not.

        Args:
            results: Current results of the results folder, by their cells.
        """
        believed = believe(results.values(), self.plan.catalogue, self.callbacks.on_checking)
        for problem in believed.problems:
            self.callbacks.on_notice(f"scored again: {problem.message}")
        # A user's own evaluator may have no columns: the digest of no columns is fine.
        without_columns = [
            result
            for result in believed.unverified.get(NO_COLUMNS_REASON, [])
            if result.items != digest_columns(columns={})
        ]
        if without_columns:
            subject = describe_missing_columns(without_columns)
            self.callbacks.on_notice(f"scored again: {subject}, and no score is believed without")
        # By id(), because results cannot be in a set.
        believed_ids = set(map(id, believed.results)) - set(map(id, without_columns))
        return {cell: result for cell, result in results.items() if id(result) in believed_ids}

    @cached_property
    def tasks(self) -> dict[str, PlannedTask]:
        """The tasks by name, read when they are first used; one that cannot be read is omitted."""
        return {
            task.name: task
            for task in load_tasks(self.plan.planned_tasks, self.callbacks.on_failure)
        }

    def select_tasks(self, cells: Iterable[Cell]) -> list[PlannedTask]:
        """Return the tasks of cells, each once, without those whose data cannot be read."""
        return [
            self.tasks[name]
            for name in dict.fromkeys(cell.task for cell in cells)
            if name in self.tasks
        ]

    def make_embedder(
        self,
        encoder: NamedEncoder,
        tasks: Sequence[PlannedTask],
        callbacks: RunCallbacks | None = None,
    ) -> TaskEmbedder:
        """Make the embedder of an encoder for tasks.

        Args:
            encoder: The encoder under its name in results.
            tasks: The tasks, whose data are read already.
            callbacks: Called with the progress of embedding. By default the embedder is read-only:
                it counts what is missing, and reports to the run's own callbacks.
        """
        return TaskEmbedder(
            encoder,
            tasks,
            self.plan,
            callbacks=callbacks or self.callbacks,
            shared_state=self._shared_state,
            read_only=callbacks is None,
        )


@contextmanager
def report_errors(
    name: str,
    callbacks: RunCallbacks,
    *,
    is_only_encoder: bool,
    expected: tuple[type[StsbenchError], ...] = (EncoderError, SourceError),
) -> Iterator[None]:
    """Report the errors of one encoder, so that the others continue.

    Args:
        name: The encoder as the report names it.
        callbacks: ``on_failure`` is called with the error.
        is_only_encoder: Raise errors that are not expected, because nothing else is left to do.
        expected: The errors that are always reported. Errors in writing results and
            interruptions are raised unless they are among them.
    """
    try:
        yield
    except Exception as error:
        is_expected = isinstance(error, expected)
        stops_run = is_only_encoder or isinstance(error, OutputError | Interrupted)
        if stops_run and not is_expected:
            raise
        callbacks.on_failure(name, error)


Executor = Callable[[RunContext, Sequence[EncoderPlan]], Iterator[Result]]
"""Yields the Result of each cell of encoder plans, in their order.

Current results of the folder are yielded as they are. A cell that fails is reported to the
callbacks, and the others continue.
"""


EXECUTORS = Registry(
    "executor",
    {"local": "stsbench.bench.run:run_locally", "ray": "stsbench.bench.ray_run:run_on_ray"},
    group="executors",
    expected="a function of a context and encoder plans, see stsbench.bench.run:Executor",
)


def run_locally(context: RunContext, encoder_plans: Sequence[EncoderPlan]) -> Iterator[Result]:
    """Carry out encoder plans in this process, and yield the Results of all cells.

    Each task is read once, and each encoder's sentences are embedded once.

    Args:
        context: The run, with its tasks and callbacks.
        encoder_plans: The encoders with their cells, of which some may have current results.
    """
    tracker = ProgressTracker(encoder_plans)
    for position, encoder_plan in enumerate(encoder_plans):
        with context.report_errors(encoder_plan.name):
            tracker.start_encoder(encoder_plans[position:])
            label = f"{position + 1}/{len(encoder_plans)} {encoder_plan.name}"
            callbacks = context.callbacks.with_progress(tracker, encoder_plan, label)
            encoder = context.load_encoder(encoder_plan)
            tasks = context.select_tasks(encoder_plan.cells)
            embedder = context.make_embedder(encoder, tasks, callbacks)
            current_results = encoder_plan.current_results
            earlier_results = {
                (context.tasks[cell.task], cell.seed): current_results.get(cell)
                for cell in encoder_plan.cells
            }
            for result in score_tasks(embedder, earlier_results, callbacks=callbacks):
                # A current result that was yielded as it is has its file already.
                if all(result is not current for current in current_results.values()):
                    write_result(result, context.plan.results_folder)
                yield result


MIN_SAMPLE_SIZE, MAX_SAMPLE_SIZE = 16, 1024
"""The first and the largest number of sentences that measure an encoder's speed."""
MIN_SAMPLE_SECONDS = 0.5
"""A sample that takes less time is followed by one of four times as many sentences."""


@dataclass(frozen=True, kw_only=True)
class EncoderForecast:
    """The forecast of a run for one encoder."""

    encoder_plan: EncoderPlan
    embedding_seconds: float | None
    """The time to embed, by one worker; None if the sentences are unknown before fitting."""
    scoring_seconds: float | None
    """The time to score, as earlier results took; None if a task has no earlier result."""


def forecast_run(plan: RunPlan, callbacks: RunCallbacks) -> Iterator[EncoderForecast]:
    """Yield the forecast of a run for each encoder; data are read, nothing is scored or written.

    Each encoder that has sentences to embed embeds a few of them, to measure its speed. One that
    fails is reported.

    Args:
        plan: The settings of the run.
        callbacks: Called with failures and notices.

    Raises:
        StsbenchError: As :func:`stsbench.bench.run.run`.
    """
    context = RunContext(plan, callbacks)
    seconds_by_task = _read_scoring_seconds(plan.results_folder)
    for encoder_plan in context.encoder_plans():
        seconds_of_cells = []
        for cell in encoder_plan.missing_cells:
            task = context.tasks[cell.task]
            key = (task.name, task.split, protocol_key(task.protocol))
            seconds_of_cells.append(seconds_by_task.get(key, []))
        # None too if the number is unknown, before the encoder is fitted.
        embedding_seconds = 0.0 if encoder_plan.sentences_to_embed == 0 else None
        # Tokens that are sent to a server are paid for: none are sent for a forecast.
        if encoder_plan.sentences_to_embed and encoder_plan.tokens_to_send is None:
            with context.report_errors(encoder_plan.name):
                embedding_seconds = _measure_embedding_seconds(context, encoder_plan)
        # One cell without earlier results leaves the sum unknown.
        scoring_seconds = sum(map(median, seconds_of_cells)) if all(seconds_of_cells) else None
        yield EncoderForecast(
            encoder_plan=encoder_plan,
            embedding_seconds=embedding_seconds,
            scoring_seconds=scoring_seconds,
        )


def _read_scoring_seconds(results_folder: Path) -> dict[tuple[str, str, str], list[float]]:
    """Return how long results of any encoder took to score, by task, split and protocol."""
    seconds_by_task: dict[tuple[str, str, str], list[float]] = {}
    if not results_folder.is_dir():
        return seconds_by_task
    for result in read_states(results_folder).results:
        seconds = result.run.get("seconds")
        if isinstance(seconds, int | float):
            key = (result.task, result.split, protocol_key(result.protocol))
            seconds_by_task.setdefault(key, []).append(float(seconds))
    return seconds_by_task


def _measure_embedding_seconds(context: RunContext, encoder_plan: EncoderPlan) -> float:
    """Estimate how long one worker takes to embed the missing sentences of an encoder.

    A sample of them, evenly spaced by length, is embedded without the store and timed. It begins
    with MIN_SAMPLE_SIZE sentences, and grows until it takes MIN_SAMPLE_SECONDS or has
    MAX_SAMPLE_SIZE.

    Args:
        context: The run, which loads the encoder and its tasks.
        encoder_plan: The encoder, and how many sentences it has to embed.
    """
    base = base_encoder(context.load_encoder(encoder_plan).encoder)
    tasks = context.select_tasks(encoder_plan.missing_cells)
    sentences = {text for task in tasks for text in task.texts()}
    by_length = sorted(sentences, key=lambda text: (len(text), text))
    # The first call loads the model.
    Engine(base)(by_length[:1])
    sample_size = MIN_SAMPLE_SIZE
    while True:
        n_sentences = min(sample_size, len(by_length))
        positions = np.linspace(0, len(by_length) - 1, n_sentences).astype(int)
        sample = [by_length[position] for position in positions]
        started = time.perf_counter()
        Engine(base)(sample)
        seconds = time.perf_counter() - started
        if seconds > MIN_SAMPLE_SECONDS or sample_size >= min(MAX_SAMPLE_SIZE, len(by_length)):
            return seconds * (encoder_plan.sentences_to_embed or 0) / len(sample)
        sample_size *= 4


def run(
    plan: RunPlan, callbacks: RunCallbacks, *, executor: Executor | None = None
) -> Iterator[Result]:
    """Carry out a run, and write each Result as soon as it is computed.

    All encoders are loaded and all data read before the first batch, and ``on_plan`` is called
    with the plans. Current results of the folder are yielded without scoring them again. An
    encoder or task that fails is reported to the callbacks, and the run continues.

    Args:
        plan: The settings of the run.
        callbacks: Called with its progress.
        executor: Carries out the run; None for the executor that the plan names.

    Raises:
        StsbenchError: Nothing at all can be scored (unknown task, no data), or results cannot be
            written.
    """
    executor = executor or EXECUTORS.load_at(plan.executor)
    context = RunContext(plan, callbacks)
    plan.cells  # noqa: B018 - unknown names are refused before anything else
    check_writable(plan.results_folder)
    encoder_plans = list(context.encoder_plans())
    add_clean_score = None
    if plan.clean is not None:
        add_clean_score = CleanScorer(
            settings=plan.clean,
            plan=plan,
            tasks=context.tasks.values(),
            encoder_plans=encoder_plans,
            callbacks=callbacks,
        )
    callbacks.on_plan(encoder_plans)
    for result in executor(context, encoder_plans):
        record_current(result, plan.results_folder)
        yield result if add_clean_score is None else add_clean_score(result)


def check_writable(folder: Path) -> None:
    """Check that results can be written, and remove what stopped runs have left half written.

    Raises:
        OutputError: The folder cannot be written.
    """
    remove(write_atomically(folder / ".stsbench-writable", b""))
    # Files of other encoders, stores and fits too, which this run would not overwrite.
    remove_stale(folder, "*.partial", "*/*.partial")
    remove_stale(settings.cache_folder(), "*/*.partial", "*/*/*.partial")


EncoderLike = Encoder | NamedEncoder | Callable[[list[str]], object] | str | Path
"""An encoder as a program may pass it: an encoder, a name, a SentenceTransformer, a function."""
EncodersLike = EncoderLike | Sequence[EncoderLike] | Mapping[str, EncoderLike]
"""One encoder, a list of encoders, or a dict of encoders by their names in results."""


def _are_task_specs(argument: object) -> bool:
    """Return whether an argument is a name or a Task, or a list of them."""
    specs = argument if isinstance(argument, Sequence) else [argument]
    return all(isinstance(spec, str | Task) for spec in specs)


@validate_arguments(
    tasks=ArgumentKind(_are_task_specs, expected="a name, a Task or a list of them"),
    protocol=NAMES,
    data=PATH,
    seed=SEED,
    split=NAME,
    store=STORE,
    name=NAME,
    on_error=NAME,
    catalogue=Catalogue,
    callbacks=RunCallbacks,
    listener=RunCallbacks,
)
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
    """Score encoders on tasks, and yield each Result as soon as it is computed.

    The order is encoder by encoder, and of each the order of the tasks. Names and arguments are
    checked at the call; all data are read when the first Result is requested. All sentences of an
    encoder's tasks are embedded before its first score, each distinct sentence once.

    The arguments are those of :func:`stsbench.evaluate`. With ``on_error="skip"`` failures are
    reported to the callbacks. Of several encoders, those given by name are loaded one at a time.
    ``listener`` is the earlier name of ``callbacks``, and is accepted in version 0.1 only.

    Raises:
        StsbenchError: Data or an encoder cannot be used; see :mod:`stsbench.core.errors`.
    """
    look_up("on_error", on_error, {"raise": None, "skip": None})
    catalogue = catalogue or Catalogue()
    callbacks = callbacks or listener or RunCallbacks()
    if on_error != "skip":
        callbacks = callbacks.with_raised_failures()
    plan = RunPlan(
        tasks=tasks,
        protocol=protocol,
        data=data,
        split=split,
        seeds=(int(seed),),
        store=store,
        catalogue=catalogue,
    )
    _ = plan.planned_tasks  # unknown tasks and protocols are refused at the call
    encoders = _resolve_encoders(encoder, name, catalogue)
    return _score_encoders(plan, encoders, callbacks)


def _resolve_encoders(
    encoders: EncodersLike, name: str | None, catalogue: Catalogue
) -> list[NamedEncoder | str]:
    """Return loaded encoders, and the names of those to load later.

    The names of several encoders are only checked, so that one at a time is in memory. A single
    name is loaded at once.

    Args:
        encoders: The encoders as a program passes them: one, a list, a dict by their names in
            results, or a text of names with commas.
        name: The name in results of a single encoder; None for its own. An encoder that is given by
            a name or path has its name already: it is refused with this, and as a dict's value.
        catalogue: The cards of encoders.

    Returns:
        An element per encoder, in order: a text is a name that was checked.

    Raises:
        StsbenchError: There is no encoder, one cannot be loaded or cannot have its name, or two
            cannot be distinguished.
    """
    # A text that is too long for a path is no path; Path.exists would raise an error for it.
    if isinstance(encoders, str) and not os.path.exists(encoders):  # noqa: PTH110
        encoders = split_names(encoders)
    named_encoders: list[tuple[str | None, object]] = []
    if isinstance(encoders, Mapping):
        named_encoders += encoders.items()
    elif isinstance(encoders, list | tuple):
        # A list of one encoder may have ``name``; the check below refuses it for a longer list.
        named_encoders += [(name, encoder) for encoder in encoders]
    else:
        named_encoders.append((name, encoders))
    if not named_encoders:
        raise StsbenchError(
            "no encoder is given; give a name such as minilm, an encoder, or a list of them"
        )
    has_several = len(named_encoders) > 1
    # Each encoder of a list was given the name above, so only a list of one may have a name.
    if name is not None and (has_several or isinstance(encoders, Mapping)):
        raise StsbenchError(
            f"name='{name}' is for one encoder; name several by a dict, {{'first': …, 'second': …}}"
        )
    resolved: list[NamedEncoder | str] = []
    seen_encoders = SeenEncoders()
    # The name in results, which a dict or `name` gives, and the encoder or its own name or path.
    for own_name, encoder in named_encoders:
        if has_several and own_name is None and isinstance(encoder, str | Path):
            check_loadable(str(encoder), catalogue)
            resolved.append(str(encoder))
        else:
            # It refuses a text that a dict or `name` gives another name.
            named_encoder = resolve_encoder(encoder, catalogue, name=own_name)
            resolved.append(named_encoder)
            # Raises an error for two that nothing distinguishes. An equal one stays in the list:
            # it is scored once.
            seen_encoders.add(named_encoder)
    return resolved


def _score_encoders(
    plan: RunPlan, encoders: Sequence[NamedEncoder | str], callbacks: RunCallbacks
) -> Iterator[Result]:
    """Yield the result of each cell, encoder after encoder, each encoder only once.

    Args:
        plan: The settings of the run, without encoders.
        encoders: Loaded encoders, and the names of those to load when it is their turn.
        callbacks: Called with the progress, and with the error of an encoder if there are several.
    """
    context = RunContext(plan, callbacks)
    seen_encoders = SeenEncoders()
    tasks = list(context.tasks.values())
    cells = dict.fromkeys((task, seed) for task in tasks for seed in plan.seeds)
    for encoder in encoders:
        label = encoder if isinstance(encoder, str) else encoder.name
        # The error of the only encoder is the caller's.
        with report_errors(label, callbacks, is_only_encoder=len(encoders) == 1, expected=()):
            named_encoder = resolve_encoder(encoder, plan.catalogue)
            if seen_encoders.add(named_encoder):
                embedder = context.make_embedder(named_encoder, tasks, callbacks)
                yield from score_tasks(embedder, cells, callbacks=callbacks)
