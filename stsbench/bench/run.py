"""Runs: planned, forecast, and carried out in this process or by another executor."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path

from stsbench.bench.clean import COPIES, CleanScorer, find_copies, score_without_copies
from stsbench.bench.embedder import SharedState, TaskEmbedder
from stsbench.bench.int8_cost import report_int8_cost
from stsbench.bench.plan import Cell, EncoderPlan, RunPlan, expand_seeds
from stsbench.bench.progress import ProgressTracker, RunCallbacks
from stsbench.bench.protocols import PlannedTask, load_tasks
from stsbench.bench.score import find_current_result, is_name_taken, score_tasks
from stsbench.core import settings
from stsbench.core.errors import EncoderError, Interrupted, OutputError, SourceError, StsbenchError
from stsbench.core.files import remove, remove_stale, write_atomically
from stsbench.core.names import split_all_params
from stsbench.core.provenance import read_versions
from stsbench.core.registry import Registry
from stsbench.core.wording import format_repr
from stsbench.data.quality import DataToCheck, check_data, load_local_splits
from stsbench.encoders.load import FILE_PREFIXES, load_named
from stsbench.encoders.named import NamedEncoder, shared_suffixes
from stsbench.evaluators.belief import NO_ITEM_FILE_REASON, believe
from stsbench.results.folder import describe_missing_columns, record_current, write_result
from stsbench.results.record import Result, digest_columns

MAX_LISTED_LANGUAGES = 5
"""The most languages of an encoder that a notice lists; of more, it gives the number."""


class SeenEncoders:
    """The encoders so far, by name, seed and fingerprint; the encoders themselves are freed."""

    def __init__(self, naming_hint: str) -> None:
        """Start without any encoder.

        Args:
            naming_hint: How a user gives encoders names of their own.
        """
        self.naming_hint = naming_hint
        self._fingerprints: dict[tuple[str, int | None], set[str | None]] = {}
        """The fingerprints of the encoders with the same name and training seed."""

    def add(self, encoder: NamedEncoder) -> bool:
        """Add an encoder to those seen so far, and return whether it is new.

        Encoders are the same if their names, training seeds and fingerprints are. A fingerprint is
        a hash that changes if and only if the embeddings may; some encoders have none.

        Args:
            encoder: The encoder under its name in results; only its fingerprint is kept.

        Raises:
            StsbenchError: An earlier encoder has the same name and training seed, and one of the
                two has no fingerprint, so that nothing distinguishes them.
        """
        name_and_seed = (encoder.name, encoder.train_seed)
        fingerprints = self._fingerprints.setdefault(name_and_seed, set())
        lacks_fingerprint = encoder.fingerprint is None or None in fingerprints
        if fingerprints and lacks_fingerprint:
            raise StsbenchError(
                f"two of the encoders are called {format_repr(encoder.name)}",
                hint=self.naming_hint,
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
        """Yield the plan of each encoder: which of its scores are missing and what they need.

        A spec is an encoder as the user writes it; an encoder under several specs has one plan. An
        encoder that cannot be loaded is reported to the callbacks and omitted.
        """
        seen_encoders = SeenEncoders(naming_hint="name each by `names`")
        # A cell is one score to compute. Those of one encoder follow each other in the plan.
        for spec, cells_of_spec in groupby(self.plan.cells, key=lambda cell: cell.encoder):
            cells = list(cells_of_spec)
            encoder_plan = None
            # Any error meant for the user is reported, even if this is the run's only encoder.
            with self.report_errors(spec, expected=(StsbenchError,)):
                encoder = self._choose_name(spec, self._load(spec))
                is_new = seen_encoders.add(encoder)
                if is_new:
                    self._report_languages(encoder)
                    encoder_plan = self._plan_encoder(spec, encoder, cells)
            if encoder_plan is not None:
                yield encoder_plan

    def report_errors(
        self, name: str, expected: tuple[type[StsbenchError], ...] = (EncoderError, SourceError)
    ) -> AbstractContextManager[None]:
        """Report errors inside a ``with`` block to the run's callbacks, so that the run continues.

        Errors other than the expected ones are raised nevertheless if no other encoder could
        continue, or if results cannot be written, see the function :func:`report_errors`.

        Args:
            name: The encoder as the report names it.
            expected: The errors that are reported even if it is the only encoder of the run.
        """
        return report_errors(
            name, self.callbacks, is_only_encoder=self.plan.has_one_encoder, expected=expected
        )

    def load_encoder(self, encoder_plan: EncoderPlan) -> NamedEncoder:
        """Load the encoder of a plan, under its name in results."""
        return replace(self._load(encoder_plan.spec), name=encoder_plan.name)

    def _load(self, spec: str) -> NamedEncoder:
        """Load an encoder, or return the loaded one if it is the encoder that was loaded last.

        Only the last encoder is kept in memory (``self._last_encoder``, by its spec). An encoder
        that is loaded from a path gets a hash of that path, relative to the results folder
        (``folder_digest``), by which its results are recognised.

        Args:
            spec: The encoder as the user writes it: a name, the path of a folder, or a file of
                embeddings as ``prefix:path(parameters)``.
        """
        if spec not in self._last_encoder:
            self._last_encoder.clear()
            encoder = load_named(spec, params=self.plan.params, catalogue=self.plan.catalogue)
            # The spec without prefix and parameters; there need not be such a path.
            path = _find_path(spec)
            # Only an encoder that was loaded by a path has candidates for its name.
            is_from_path = bool(encoder.candidate_names) and path.exists()
            if is_from_path:
                results_folder = self.plan.results_folder.resolve()
                relative_path = os.path.relpath(path.resolve(), results_folder)
                folder_digest = hashlib.sha256(os.fsencode(relative_path)).hexdigest()[:16]
                encoder = replace(encoder, folder_digest=folder_digest)
            self._last_encoder[spec] = encoder
        return self._last_encoder[spec]

    def _choose_name(self, spec: str, encoder: NamedEncoder) -> NamedEncoder:
        """Return the encoder under the name that it gets in results.

        - If the user has chosen a name, it is used.
        - An encoder that was loaded by a name keeps it.
        - An encoder that was loaded from a path has candidates for its name: ends of the path, the
          shortest first. The first free one is used, or the last if none is. A name is not free if
          another path of this run ends with it, or if the results folder has results of another
          encoder under it.

        Notices on the encoder go to the callbacks, and one on a name that is not the first choice
        because stored results have that. Ends that two paths of the run share are just left out.

        Args:
            spec: The encoder as the user writes it, possibly the path of a folder.
            encoder: The loaded encoder.
        """
        plan = self.plan
        # The second is a warning that a known model lacks its prompt; empty texts are none.
        for notice in (encoder.notice, encoder.missing_prompt(plan.catalogue)):
            if notice:
                self.callbacks.on_notice(notice)
        name_by_spec = self._names_of_user()
        if spec in name_by_spec:
            return replace(encoder, name=name_by_spec[spec])
        if not encoder.candidate_names:
            return encoder
        other_paths = [_find_path(other_spec) for other_spec in plan.encoders if other_spec != spec]
        # Ends of this path that are also ends of another one.
        ambiguous_names = shared_suffixes(_find_path(spec), other_paths)
        # Without the names of post-processors, which follow a ``+``.
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

    def _report_languages(self, encoder: NamedEncoder) -> None:
        """Report tasks in languages that the encoder is not made for, in one notice.

        The languages of tasks and encoders are named by their cards; an encoder without a card is
        not reported. More than ``MAX_LISTED_LANGUAGES`` languages of the encoder are only counted.
        """
        # The names of tasks, by the codes of those languages that the encoder's card does not name;
        # an encoder whose card names none, or without a card, lacks none.
        tasks_by_languages: dict[str, list[str]] = {}
        for planned_task in self.plan.planned_tasks:
            card = planned_task.task.card
            missing_languages = encoder.missing_languages(card)
            if missing_languages:
                tasks = tasks_by_languages.setdefault(", ".join(missing_languages), [])
                tasks.append(planned_task.task.name)
        if encoder.card is None or not tasks_by_languages:
            return
        languages = encoder.card.languages
        description = (
            ", ".join(languages)
            if len(languages) <= MAX_LISTED_LANGUAGES
            else f"{len(languages)} languages"
        )
        tasks_text = "; ".join(
            f"{', '.join(tasks)} ({codes})" for codes, tasks in tasks_by_languages.items()
        )
        self.callbacks.on_notice(
            f"{encoder.name} is made for {description}; other languages are in {tasks_text}"
        )

    def _names_of_user(self) -> dict[str, str]:
        """Return the names that the user has chosen for encoders in results.

        They are by spec, the encoder as the user writes it. A training recipe that was run with
        several seeds is one encoder per seed, such as ``recipe@3``; all get its name.
        """
        name_by_spec: dict[str, str] = {}
        for spec, name in self.plan.names.items():
            # Of any other encoder this is the spec alone.
            for spec_with_seed in expand_seeds(spec, self.plan.catalogue):
                name_by_spec[spec_with_seed] = name
        return name_by_spec

    def _plan_encoder(self, spec: str, encoder: NamedEncoder, cells: Sequence[Cell]) -> EncoderPlan:
        """Plan an encoder: which of its scores exist already, and what the others need.

        A stored result counts if it is of the same data, cards and embeddings, and if its per-item
        values give its score; others are reported. If the run is ``fresh``, none counts.

        Args:
            spec: The encoder as the user writes it.
            encoder: The encoder under its name in results.
            cells: The encoder's cells, each a task with an evaluation seed. Cells of tasks that
                cannot be read or embedded are omitted.

        Returns:
            The cells, the stored results that count, and for the other cells the number of
            sentences to embed and of tokens to send to a server.
        """
        embedder = self.make_embedder(encoder, self.select_tasks(cells))
        # ``embedder.tasks`` lacks tasks whose texts to fit on are not available, and tasks that an
        # encoder without embeddings, which scores pairs of sentences, cannot be scored on.
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
        # Without results whose per-item values do not give their score.
        current_results = self._select_believed(current_results)
        tasks_to_score = dict.fromkeys(
            task for cell, task in task_by_cell.items() if cell not in current_results
        )
        # The number of sentences is None if it is unknown before the encoder is fitted, that of
        # tokens if the encoder runs on this machine.
        missing = embedder.count_missing(list(tasks_to_score))
        return EncoderPlan(
            spec=spec,
            name=encoder.name,
            cells=list(task_by_cell),
            current_results=current_results,
            sentences_to_embed=missing.sentences,
            tokens_to_send=missing.tokens,
            # The packages that compute the embeddings, as the fingerprint names them.
            libraries=list(read_versions(encoder.fingerprint or "")),
        )

    def _select_believed(self, results: Mapping[Cell, Result]) -> dict[Cell, Result]:
        """Select the stored results whose scores may be believed.

        The score of a result is recomputed from its per-item columns. Results whose score differs,
        and results whose columns are missing, are reported and omitted. A result whose evaluator
        (a user's own) cannot recompute scores is believed.

        Args:
            results: Results of the results folder, by their cells.

        Returns:
            The believed results, by their cells.
        """
        # Its ``results`` are all without a problem, also those that could not be recomputed; its
        # ``unverified`` has these again, by the reason.
        believed = believe(results.values(), self.plan.catalogue, self.callbacks.on_checking)
        for problem in believed.problems:
            self.callbacks.on_notice(f"scored again: {problem.message}")
        # ``result.items`` is the hash of the columns when the result was written. A user's own
        # evaluator may have no columns; then their hash is that of none, and none are missing.
        without_columns = [
            result
            for result in believed.unverified.get(NO_ITEM_FILE_REASON, [])
            if result.items != digest_columns(columns={})
        ]
        if without_columns:
            subject = describe_missing_columns(without_columns)
            self.callbacks.on_notice(f"scored again: {subject}, and no score is believed without")
        # By Python's id(), because results cannot be hashed.
        believed_ids = set(map(id, believed.results)) - set(map(id, without_columns))
        return {cell: result for cell, result in results.items() if id(result) in believed_ids}

    @cached_property
    def tasks(self) -> dict[str, PlannedTask]:
        """The tasks by name, read when they are first used; one that cannot be read is omitted."""
        return {
            task.name: task
            for task in load_tasks(self.plan.planned_tasks, self.callbacks.on_failure)
        }

    @cached_property
    def data_to_check(self) -> dict[str, DataToCheck]:
        """The data to search for copies of items, by task.

        They are those of the user's own tasks; of all tasks if the user wants copies to be excluded
        from scores (the word ``COPIES`` among the corpora). Splits that no score needs are included
        if their files are on this machine.
        """
        checks_all = self.plan.clean is not None and COPIES in self.plan.clean.corpora
        data_by_task: dict[str, DataToCheck] = {}
        for name, task in self.tasks.items():
            if checks_all or self.plan.catalogue.is_own("tasks", name):
                splits = dict(task.splits)
                # Errors in files that no score needs are ignored.
                with suppress(StsbenchError):
                    splits |= load_local_splits(task.task)
                data_by_task[name] = DataToCheck(splits=splits, score_split=task.split)
        return data_by_task

    def report_data_problems(self) -> None:
        """Give a notice on each of the tasks to check whose data are wrong in some way."""
        for name, data in self.data_to_check.items():
            findings = check_data(data, only_quick=True)
            if findings:
                problems = "; ".join(f"{finding.share} {finding.message}" for finding in findings)
                self.callbacks.on_notice(f"items of {name} ({data.score_split}): {problems}")

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
        """Make the object that embeds the sentences of tasks with an encoder.

        Args:
            encoder: The encoder under its name in results.
            tasks: The tasks, whose data are read already.
            callbacks: Called with the progress of embedding. None makes an embedder that does not
                embed: it only counts the missing embeddings, and its notices go to the run's own
                callbacks.
        """
        # The shared state has what the next encoder of the run may use again: the last base
        # encoder's engine, and the last texts to fit on.
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
    """Report an error inside a ``with`` block to callbacks, so that other encoders continue.

    Expected errors are always reported. Any other error is raised if it stops the run: if there is
    no other encoder, or if it is an interruption or an error in writing results. Otherwise it is
    reported too, even if it is a bug.

    Args:
        name: The encoder as the report names it.
        callbacks: ``on_failure`` is called with the error.
        is_only_encoder: Whether no other encoder could continue.
        expected: The errors that are always reported.
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
    {
        "local": "stsbench.bench.run:run_locally",
        "ray": "stsbench.bench.pools:run_on_ray",
        "devices": "stsbench.bench.pools:run_on_devices",
    },
    group="executors",
    expected="a function of a context and encoder plans, see stsbench.bench.run:Executor",
)


def run_locally(context: RunContext, encoder_plans: Sequence[EncoderPlan]) -> Iterator[Result]:
    """Score encoders on tasks in this process, and yield the Result of each cell.

    A cell is one score: an encoder on a task with a seed. Each encoder's sentences are embedded
    once. New Results are written before they are yielded. A cell that cannot be scored is reported
    to the callbacks, and yields nothing.

    Args:
        context: The run, with its tasks and callbacks.
        encoder_plans: The encoders with their cells, some of which have stored results that are
            yielded again.
    """
    tracker = ProgressTracker(encoder_plans)
    for position, encoder_plan in enumerate(encoder_plans):
        with context.report_errors(encoder_plan.name):
            tracker.start_encoder(encoder_plans[position:])
            name = encoder_plan.name
            callbacks = context.callbacks.with_progress(tracker, encoder_plan, name)
            encoder = context.load_encoder(encoder_plan)
            tasks = context.select_tasks(encoder_plan.cells)
            embedder = context.make_embedder(encoder, tasks, callbacks)
            current_results = encoder_plan.current_results
            earlier_results = {
                (context.tasks[cell.task], cell.seed): current_results.get(cell)
                for cell in encoder_plan.cells
            }
            # The stored results are not scored again unless the encoder now embeds otherwise.
            for result in score_tasks(embedder, earlier_results, callbacks=callbacks):
                # A stored result is yielded unchanged, as the same object; it has its file already.
                is_new = all(result is not current for current in current_results.values())
                if is_new:
                    write_result(result, context.plan.results_folder)
                yield result
            # A notice on how much int8 weights change the score; none for any other encoder.
            report_int8_cost(encoder, context.plan, callbacks.on_notice)


def run(
    plan: RunPlan, callbacks: RunCallbacks, *, executor: Executor | None = None
) -> Iterator[Result]:
    """Carry out a run: score encoders on tasks, and yield the Result of each cell.

    A cell is one score: an encoder on a task with a seed. First all encoders are loaded and all
    data are read, and ``on_plan`` is called with the plans. Then each Result is written as soon as
    it is computed, and recorded as the current one of its cell. Stored results that are still valid
    are yielded without scoring them again. If the plan has ``clean``, each Result gets a further
    score without items that training text contains; Results of a user's own tasks get one without
    items that have copies. An encoder or task that fails is reported to the callbacks, and the run
    continues.

    Args:
        plan: The settings of the run.
        callbacks: Called with its progress.
        executor: Carries out the run; None for the executor that the plan names.

    Raises:
        StsbenchError: Nothing at all can be scored (unknown task, no data), or results cannot be
            written.
    """
    # The function of a name such as ``local``, which an address may follow, ``ray://HOST:PORT``.
    executor = executor or EXECUTORS.load_at(plan.executor)
    context = RunContext(plan, callbacks)
    # They are computed at this first access, so that unknown names are reported before all else.
    plan.cells  # noqa: B018
    check_writable(plan.results_folder, hint="pass `results=DIR`")
    encoder_plans = list(context.encoder_plans())
    clean_scorers = _make_clean_scorers(context, encoder_plans)
    callbacks.on_plan(encoder_plans)
    for result in executor(context, encoder_plans):
        record_current(result, plan.results_folder)
        for add_clean_score in clean_scorers:
            result = add_clean_score(result)
        yield result


def _make_clean_scorers(
    context: RunContext, encoder_plans: Sequence[EncoderPlan]
) -> list[Callable[[Result], Result]]:
    """Make the functions that add clean scores to a Result, and report problems of the data.

    A clean score excludes items. The first function excludes those that have copies in the data of
    their task. If the user has named training text, a second one excludes those whose sentences the
    text contains. The first returns a Result of a task without copies unchanged.

    Args:
        context: The run.
        encoder_plans: Its encoders; without one no data are read.

    Returns:
        Functions of a Result that return it with a further score.
    """
    if not encoder_plans:
        return []
    plan, callbacks = context.plan, context.callbacks
    context.report_data_problems()
    copies_by_task = {name: find_copies(data) for name, data in context.data_to_check.items()}
    clean_scorers: list[Callable[[Result], Result]] = [
        partial(score_without_copies, copies_by_task=copies_by_task, plan=plan, callbacks=callbacks)
    ]
    # ``COPIES`` is no corpus: with this word the user requests the first function for all tasks.
    corpora = [name for name in plan.clean.corpora if name != COPIES] if plan.clean else []
    if plan.clean is not None and corpora:
        settings_of_text = replace(plan.clean, corpora=corpora)
        tasks = context.tasks.values()
        clean_scorers.append(CleanScorer(settings_of_text, plan, tasks, encoder_plans, callbacks))
    return clean_scorers


def check_writable(folder: Path, *, hint: str = "") -> None:
    """Check that results can be written, and remove what stopped runs have left half written.

    The folder is made if it is missing. Half-written files are removed from it and from the cache
    folder if they have not changed for a day: newer ones may be of a run that goes on.

    Args:
        folder: The folder of results.
        hint: What to do if it cannot be written.

    Raises:
        OutputError: The folder cannot be written.
    """
    test_file = folder / ".stsbench-writable"
    try:
        remove(write_atomically(test_file, b""))
    except OutputError as error:
        reason = error.reason.removeprefix(f"{test_file}: ")
        raise OutputError(f"{folder}: {reason}", hint=hint) from error
    # Also those of other encoders, which this run would not overwrite.
    remove_stale(folder, "*.partial", "*/*.partial")
    remove_stale(settings.cache_folder(), "*/*.partial", "*/*/*.partial")


def _find_path(spec: str) -> Path:
    """Return the path that an encoder's spec may be, without the prefix of files and parameters."""
    if Path(spec).exists():
        return Path(spec)
    stem = split_all_params(spec)[0]
    return Path(stem.partition(":")[2] if stem.startswith(FILE_PREFIXES) else stem)
