"""Sweeps: train and score settings of recipes, for several seeds each, and find the best.

Optuna proposes the settings. They are trained in this process or on Ray.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec

from stsbench.bench.plan import RunPlan
from stsbench.bench.ray_cluster import (
    MAX_TRIES,
    WAIT_SECONDS,
    Reference,
    WorkerLost,
    catch_errors,
    connect_ray,
    fetch_result,
    starts_own_ray,
    stop_jobs,
)
from stsbench.core import settings
from stsbench.core.cards import SweepCard
from stsbench.core.catalogue import read_card
from stsbench.core.errors import CardError, Interrupted, OutputError, StsbenchError, look_up
from stsbench.core.registry import Registry
from stsbench.core.wording import join_lines
from stsbench.encoders.runs import TrainedRun, UnfinishedRun
from stsbench.numbers.statistics import MeanAndDeviation, mean_and_deviation
from stsbench.recipes.ray_training import check_shared
from stsbench.recipes.train import TRAINERS, deciding_tables
from stsbench.recipes.train_plan import TrainPlan, check_start, uses_training_loop
from stsbench.results.record import digest_fields
from stsbench.studies.search import (
    SEARCHES,
    SweepSetting,
    count_settings,
    propose_setting,
    setting_at,
)
from stsbench.studies.trials import (
    Trial,
    TrialCallbacks,
    TrialEnvironment,
    carry_out_trial,
    plan_trials,
)
from stsbench.training.methods.registry import METHODS

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from stsbench.training.learner import OnProgress, TrainingProgress


class SweepScore(NamedTuple):
    """The outcome of a trial.

    Attributes:
        score: The score that decides; None if there is none.
        failure: The reason why there is no score; empty if there is one.
        early: Halving stopped the training: the score is that of its last validation.
    """

    score: float | None
    failure: str = ""
    early: bool = False


JOURNAL_FILE = "optuna.journal"
"""The file in a sweep's folder with its settings so far, in the order of their start.

Optuna's other programs can read it too.
"""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep: its card, and the environment in which it is carried out.

    Attributes:
        name: The sweep's name.
        card: The card.
        environment: The devices, folders and catalogue to use.
        folder: The folder of its table and of the winners' cards.
    """

    name: str
    card: SweepCard
    environment: TrialEnvironment
    folder: Path

    @classmethod
    def read(
        cls,
        path: Path,
        environment: TrialEnvironment,
        *,
        folder: Path,
        base: str = "",
        text: str = "",
    ) -> Sweep:
        """Read and check a card.

        Args:
            path: The file of the card.
            environment: The devices, folders and catalogue to use.
            folder: The folder of the sweep's table and of the winners' cards.
            base: The checkpoint to start from; empty for the card's own.
            text: The training text; empty for the card's own.

        Raises:
            StsbenchError: A key, recipe, value or search does not exist, or a split is no
                development split.
        """
        card = read_card(path, SweepCard)
        card = msgspec.structs.replace(card, base=base or card.base, text=text or card.text)
        sweep = cls(name=path.stem, card=card, environment=environment, folder=folder)
        for name, values in (("recipes", card.recipes), *card.values.items()):
            if isinstance(values, list) and any(
                value in values[:index] for index, value in enumerate(values)
            ):
                raise CardError(f"{path}: {name}: a value stands there twice")
        sweep.check_development(card.decide.task, card.decide.split, where=f"{path}: [decide]")
        count_settings(card)
        sweep._check_values()
        return sweep

    def _check_values(self) -> None:
        """Refuse, before any training, a value that a recipe cannot have.

        That includes one by which checkpoints would be selected on a test.
        """
        values_by_key = {
            key: axis if isinstance(axis, list) else [axis.low, axis.high]
            for key, axis in self.card.values.items()
        }
        # Each value is checked with the first ones of all other keys: not every combination.
        first_values = {key: values[0] for key, values in values_by_key.items()}
        for recipe in self.card.recipes:
            for key, values in values_by_key.items():
                for value in values:
                    plan = self._checked(recipe, {**self.card.set, **first_values, key: value})
                    if uses_training_loop(plan.card):
                        check_start(plan)
                    method = METHODS.load(plan.card.method)
                    TRAINERS.load_own(method.trainer).check(plan, method)

    def _plan(self, recipe: str, replaced: Mapping[str, Any], seed: int = 0) -> TrainPlan:
        """Plan a training of a recipe with replaced values, and the sweep's base and text."""
        return self.environment.plan(
            recipe, replaced, seed=seed, base=self.card.base, text=self.card.text
        )

    def _checked(self, recipe: str, replaced: Mapping[str, Any]) -> TrainPlan:
        """Plan a training, and check that it selects checkpoints on a development split."""
        plan = self._plan(recipe, replaced)
        selection = plan.card.selection
        self.check_development(selection.task, selection.split, where=f"{plan.name}: [selection]")
        return plan

    def is_over(self, since: float) -> bool:
        """Return whether no more training may start.

        Args:
            since: The reading of ``time.monotonic`` at the start.
        """
        hours = self.card.budget.hours
        return hours is not None and time.monotonic() - since >= hours * 3600

    def check_development(self, task: str, split: str, *, where: str) -> None:
        """Check that values are not chosen by the data on which encoders are compared.

        Args:
            task: The task that decides.
            split: The split that decides.
            where: The file and the section, for the error.

        Raises:
            CardError: The split is a test or the one that the task is scored on, or the task has
                no such split.
        """
        card = self.environment.catalogue.task(task)
        if split in (card.score_split, "test"):
            development_splits = [
                name for name in card.splits if name not in (card.score_split, "test", "train")
            ]
            remedy = f"{task} has none, so name another task"
            if development_splits:
                remedy = f"{task} has '{development_splits[0]}'"
            raise CardError(
                f"{where}: '{split}' of {task} is a test: "
                f"values are chosen on development splits; {remedy}"
            )
        look_up(f"split of {task}", split, card.splits)

    def trials(self, setting: SweepSetting) -> list[Trial]:
        """Return the trainings of a setting, one per seed.

        Values that are the recipe's own are not replaced, so that earlier runs are found.

        Args:
            setting: A recipe, and the values of the sweep's keys.
        """
        all_values = {**self.card.set, **setting.values}
        card = self._checked(setting.recipe, all_values).card
        needed_values = dict(all_values)
        for key in all_values:
            remaining = {name: value for name, value in all_values.items() if name != key}
            if deciding_tables(self._plan(setting.recipe, remaining).card) == deciding_tables(card):
                del needed_values[key]
        trials: list[Trial] = []
        for seed in self.card.seeds:
            long_plan = self._plan(setting.recipe, all_values, seed)
            short_plan = self._plan(setting.recipe, needed_values, seed)
            try:
                trials += plan_trials([short_plan, long_plan])
            except OutputError:
                # A training of another base or text has the name with the needed values only.
                trials += plan_trials([long_plan])
        return trials

    def study(self, name: str) -> Any:  # noqa: ANN401 - optuna's
        """Open Optuna's study of this name in the sweep's folder, or create it.

        Raises:
            OutputError: The file is no journal of Optuna, or the folder cannot be written.
        """
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        path = self.folder / JOURNAL_FILE
        halving = self.card.halving
        pruner = None
        if halving is not None:
            pruner = optuna.pruners.SuccessiveHalvingPruner(halving.first_step, halving.factor)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            storage = JournalStorage(JournalFileBackend(str(path)))
            return optuna.create_study(
                storage=storage,
                study_name=name,
                direction="maximize",
                pruner=pruner,
                load_if_exists=True,
            )
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise OutputError(
                f"{path}: is not what a sweep has tried: {join_lines(error)}; remove it"
            ) from error


@dataclass(eq=False)
class SweepRow:
    """A setting with its trainings.

    Attributes:
        setting: The setting.
        trials: Its trainings, one per seed.
        scores: The outcomes of those that are done, by seed.
    """

    setting: SweepSetting
    trials: Sequence[Trial]
    scores: dict[int, SweepScore] = field(default_factory=dict)

    @property
    def encoder(self) -> str:
        """The name that loads the trained encoder."""
        return self.trials[0].plan.name

    @property
    def is_complete(self) -> bool:
        """True if all seeds were trained to the end and scored."""
        n_complete = sum(
            score.score is not None and not score.early for score in self.scores.values()
        )
        return n_complete == len(self.trials)

    @property
    def seed_mean(self) -> MeanAndDeviation | None:
        """The mean and deviation over the seeds that have a score; None if none has."""
        scores = [score.score for score in self.scores.values() if score.score is not None]
        return mean_and_deviation(scores) if scores else None


class SweepState:
    """The state of a sweep: trials that are done, in training and to come.

    Each trial is handed out once.

    Attributes:
        sweep: The sweep.
        on_close: The function to call with the row of each trial that is done.
        rows: The settings in the order of their start, which is that of Optuna's trials.
        waiting: The trials to hand out next.
        halving: The name of the study in which the trainings of one command are compared; empty
            if all are trained to their end.
    """

    def __init__(
        self, sweep: Sweep, on_close: Callable[[SweepRow, Trial], None] = lambda row, trial: None
    ) -> None:
        """Read the settings that were tried earlier.

        Args:
            sweep: The sweep.
            on_close: Called with the row of each trial that is done, and the trial.
        """
        self.sweep = sweep
        self.on_close = on_close
        self.rows: list[SweepRow] = []
        self.waiting: deque[Trial] = deque()
        self.halving = f"halving {uuid4().hex}" if sweep.card.halving is not None else ""
        for trial in self._tried():
            self._open(trial)

    @cached_property
    def _study(self) -> Any:  # noqa: ANN401 - optuna's
        """The study of the settings that were tried.

        A card with other values, seeds or another way to decide has another study, one with
        another name or budget the same.
        """
        deciding_fields = {
            key: value
            for key, value in msgspec.to_builtins(self.sweep.card).items()
            if key not in ("name", "budget")
        }
        return self.sweep.study(digest_fields(deciding_fields)[:16])

    def _tried(self) -> list[FrozenTrial]:
        """Return Optuna's trials of the settings so far; if there is no file, none is created."""
        return self._study.trials if (self.sweep.folder / JOURNAL_FILE).exists() else []

    def _open(self, trial: FrozenTrial) -> None:
        """Add the setting of an Optuna trial; its trainings are handed out next."""
        setting = setting_at(self.sweep.card, trial.params)
        self.rows.append(SweepRow(setting, self.sweep.trials(setting)))
        self.waiting.extend(self.rows[-1].trials)

    def next(self) -> Trial | None:
        """Return the next trial to train; None if there is none."""
        if not self.waiting:
            trial = propose_setting(self.sweep.card, self._tried())
            if trial is None:
                return None
            self._study.add_trial(trial)
            self._open(trial)
        return self.waiting.popleft()

    def close(self, trial: Trial, score: SweepScore) -> None:
        """Store the outcome of a trial; the outcome of its setting is the mean over seeds.

        Optuna learns it when all seeds are done; a setting without any score has failed.

        Args:
            trial: A trial that was handed out.
            score: Its outcome.
        """
        from optuna.trial import TrialState

        # In the order of the seeds, whichever is done first.
        row = next(row for row in self.rows if trial in row.trials)
        scores = {**row.scores, trial.plan.seed: score}
        seeds = [row_trial.plan.seed for row_trial in row.trials]
        row.scores = {seed: scores[seed] for seed in seeds if seed in scores}
        self.on_close(row, trial)
        if len(row.scores) == len(row.trials):
            mean = row.seed_mean
            self._study.tell(
                # Rows are in the order of Optuna's trials, so the index is the trial's number.
                self.rows.index(row),
                mean.mean if mean else None,
                TrialState.COMPLETE if mean else TrialState.FAIL,
                skip_if_finished=True,
            )

    def ranked(self) -> list[SweepRow]:
        """Return the rows, the best mean first, and incomplete ones after all others."""
        return sorted(
            self.rows,
            key=lambda row: (not row.is_complete, -row.seed_mean.mean if row.seed_mean else 0.0),
        )

    def winners(self) -> list[SweepRow]:
        """Return the best complete setting of each recipe, the best of all first."""
        best_by_recipe: dict[str, SweepRow] = {}
        for row in self.ranked():
            if row.is_complete:
                best_by_recipe.setdefault(row.setting.recipe, row)
        return list(best_by_recipe.values())

    def all_known(self) -> list[Trial]:
        """Return all trials that are known before anything is scored.

        For a search that does not learn from scores these are all of its settings; for one that
        does, the trials that were started.
        """
        card = self.sweep.card
        settings_to_try = self._tried()
        if not SEARCHES[card.search].learns:
            while (proposal := propose_setting(card, settings_to_try)) is not None:
                settings_to_try.append(proposal)
        trials = [trial for row in self.rows for trial in row.trials]
        # The first ones are the rows, whose trials are known.
        for proposal in settings_to_try[len(self.rows) :]:
            trials += self.sweep.trials(setting_at(card, proposal.params))
        return trials

    @property
    def total(self) -> int:
        """The maximum number of trainings."""
        return count_settings(self.sweep.card) * len(self.sweep.card.seeds)


def winner_card(sweep: Sweep, row: SweepRow) -> tuple[str, dict[str, Any]]:
    """Return the name and the card of a recipe with the values of a winner.

    Args:
        sweep: The sweep, whose name is part of the recipe's.
        row: The best complete setting of a recipe.

    Returns:
        The name of the new recipe, and its card as plain data; the card says by which scores its
        values were chosen, and is in no published table.
    """
    card = row.trials[0].plan.card
    decide = sweep.card.decide
    assert row.seed_mean is not None, "a winner has scores"
    mean, deviation = row.seed_mean
    score = f"{100 * mean:.2f}"
    if deviation is not None:
        score += f" ± {100 * deviation:.2f}"
    seeds = ", ".join(map(str, sweep.card.seeds))
    reason = f"chosen by {score} on {decide.task} {decide.split} over seeds {seeds}"
    values = {**sweep.card.set, **row.setting.values}
    changes = ", ".join(f"{key}={value}" for key, value in values.items())
    winner = msgspec.structs.replace(
        card,
        name=f"{card.name}, {changes}",
        preset=f"the sweep '{sweep.card.name}', {reason}",
        published=[],
    )
    return f"{row.setting.recipe}-{sweep.name}", msgspec.to_builtins(winner)


class StoppedEarly(Interrupted):
    """Halving stopped a training.

    Attributes:
        score: The score of the last validation.
    """

    def __init__(self, score: float) -> None:
        """Store the score of the last validation."""
        super().__init__("stopped early")
        self.score = score


def score_trial(sweep: Sweep, trial: Trial, halving: str, callbacks: TrialCallbacks) -> SweepScore:
    """Train a trial, unless it is complete or halving stops it, and score it.

    Args:
        sweep: The sweep.
        trial: The trial.
        halving: The name of the study in which trainings are compared; empty if none is stopped.
        callbacks: The functions to call meanwhile.

    Returns:
        The score on the sweep's development split, or why there is none.

    Raises:
        UnknownName: The results have no score of the metric's name.
        Interrupted: The user stopped the command.
    """
    decide = sweep.card.decide
    scoring = RunPlan(tasks=decide.task, protocol=decide.protocol or None, split=decide.split)
    try:
        if halving:
            callbacks = _with_halving(sweep, trial, halving, callbacks)
        outcome = carry_out_trial(trial, sweep.environment, scorings=[scoring], callbacks=callbacks)
    except StoppedEarly as stop:
        return SweepScore(stop.score, early=True)
    if outcome.failures or not outcome.results:
        reasons = "; ".join(join_lines(error) for _, error in outcome.failures)
        return SweepScore(score=None, failure=reasons or "it has no score")
    result = outcome.results[0]
    if decide.metric:
        return SweepScore(look_up("metric", decide.metric, result.scores))
    return SweepScore(result.score)


def _with_halving(
    sweep: Sweep, trial: Trial, halving: str, callbacks: TrialCallbacks
) -> TrialCallbacks:
    """Return callbacks that report each validation to Optuna and stop a training that is behind.

    Earlier validations of a resumed or complete training are reported at once.

    Args:
        sweep: The sweep.
        trial: The trial to train; a complete one is never stopped.
        halving: The name of the study in which trainings are compared.
        callbacks: The callbacks to extend.
    """
    optuna_trial = sweep.study(halving).ask()
    last_step = 0

    def report(step: float | None, score: float | None) -> None:
        nonlocal last_step
        # A resumed training repeats validations, which Optuna takes once only.
        if step is not None and score is not None and step > last_step:
            last_step = int(step)
            optuna_trial.report(score, last_step)
            if optuna_trial.should_prune() and trial.state != "complete":
                raise StoppedEarly(score)

    @contextmanager
    def training(trial: Trial) -> Iterator[OnProgress]:
        with callbacks.training(trial) as on_progress:

            def report_progress(progress: TrainingProgress) -> None:
                on_progress(progress)
                if progress.point is not None:
                    report(progress.step, progress.score)

            yield report_progress

    folder = trial.plan.folder
    run = TrainedRun.read(folder) if trial.state == "complete" else UnfinishedRun.read(folder)
    for point in run.curve if run is not None else ():
        report(point.step, point.score)
    return replace(callbacks, training=training)


Carrier = Callable[[SweepState, str, int, TrialCallbacks], None]
"""Carries out a sweep until all trials are done or the time is over.

It is called with the sweep's state, the place (for example ``ray``), the number of cores of a
training if there is no GPU, and the callbacks.
"""


def run_sequentially(state: SweepState, on: str, cores: int, callbacks: TrialCallbacks) -> None:
    """Train one trial after the other in this process.

    Args:
        state: The state of the sweep.
        on: Not used; all carriers have it.
        cores: Not used; all carriers have it.
        callbacks: The functions to call meanwhile.
    """
    start = time.monotonic()
    while not state.sweep.is_over(start) and (trial := state.next()) is not None:
        state.close(trial, score_trial(state.sweep, trial, state.halving, callbacks))


def run_in_parallel(state: SweepState, on: str, cores: int, callbacks: TrialCallbacks) -> None:
    """Train as many trials at once as there are GPUs, or slices of cores.

    Trials that are in training when the time is over are finished.

    Args:
        state: The state of the sweep.
        on: The place, ``ray``; a cluster is led from within it.
        cores: The number of cores of a training if there is no GPU.
        callbacks: Not used: a worker shows no progress.

    Raises:
        StsbenchError: Ray is not installed, or machines lack files that they need to share.
        Interrupted: The user stopped the command.
    """
    sweep = state.sweep
    if "://" in on:
        raise StsbenchError(
            "lead a sweep within its cluster",
            hint="run it there with RAY_ADDRESS and `on=ray`",
            parameter="on",
            value=on,
        )
    with connect_ray(on) as ray:
        if not starts_own_ray(on):
            _check_shared_files(ray, sweep)
        resources = ray.cluster_resources()
        n_cores = int(resources.get("CPU", 0))
        n_slots = int(resources.get("GPU", 0))
        job_resources = {"num_cpus": 1, "num_gpus": 1}
        if not n_slots:
            if n_cores < cores:
                raise StsbenchError(
                    f"there are {n_cores} cores",
                    hint="give at most as many",
                    parameter="cores",
                    value=cores,
                )
            job_resources = {"num_cpus": cores}
            n_slots = n_cores // cores
        # Ray repeats the job of a worker that was lost.
        job = ray.remote(_score_on_worker).options(max_retries=MAX_TRIES - 1, **job_resources)
        trials_by_reference: dict[Reference, Trial] = {}
        start = time.monotonic()
        try:
            while not sweep.is_over(start):
                while len(trials_by_reference) < n_slots and (trial := state.next()) is not None:
                    reference = job.remote(sweep, trial, state.halving, str(Path.cwd()))
                    trials_by_reference[reference] = trial
                if not trials_by_reference:
                    break
                finished, _ = ray.wait(list(trials_by_reference), timeout=WAIT_SECONDS)
                for reference in finished:
                    trial = trials_by_reference.pop(reference)
                    state.close(trial, _score_of(fetch_result(ray, reference)))
        except KeyboardInterrupt as error:
            raise Interrupted("stopped; the same command resumes") from error
        finally:
            stop_jobs(ray, list(trials_by_reference))


def _check_shared_files(ray: Any, sweep: Sweep) -> None:  # noqa: ANN401 - the module
    """Check that all machines see the files that trainings read and the folders of their runs.

    Args:
        ray: The package ``ray``, which is connected to the cluster.
        sweep: The sweep.

    Raises:
        StsbenchError: A machine lacks one of them.
    """
    environment = sweep.environment
    read_folders = [
        Path(sweep.card.base or "."),
        environment.data or settings.data_folder(),
        environment.corpora or settings.corpora_folder(),
        *environment.catalogue.folders,
    ]
    check_shared(ray, read_folders, settings.runs_folder())
    check_shared(ray, read_paths=[], written_folder=sweep.folder)


def _score_on_worker(
    sweep: Sweep, trial: Trial, halving: str, folder: str
) -> SweepScore | Exception:
    """Train and score a trial in a worker; at a second try it resumes.

    Args:
        sweep: The sweep.
        trial: The trial; what exists of its run is looked up again here.
        halving: The name of the study in which trainings are compared; empty if none is stopped.
        folder: The working folder of the command, for relative paths.
    """
    with chdir(folder):
        (current_trial,) = plan_trials(trial.plans)
        return catch_errors(partial(score_trial, sweep, current_trial, halving, TrialCallbacks()))


def _score_of(outcome: SweepScore | Exception) -> SweepScore:
    """Return what a worker has returned for a trial, an error as an outcome without a score."""
    if isinstance(outcome, WorkerLost):
        return SweepScore(score=None, failure=f"its worker has failed {MAX_TRIES} times")
    return (
        SweepScore(score=None, failure=join_lines(outcome))
        if isinstance(outcome, Exception)
        else outcome
    )


CARRIERS = Registry(
    "place of a sweep",
    {
        "local": "stsbench.studies.sweep:run_sequentially",
        "ray": "stsbench.studies.sweep:run_in_parallel",
    },
    group="carriers",
    expected="a function, see stsbench.studies.sweep:Carrier",
)
