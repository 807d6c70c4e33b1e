"""Carriers: they train and score the trials of a sweep, in this process or on Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.bench.plan import RunPlan
from stsbench.bench.ray_cluster import (
    MAX_TRIES,
    WAIT_SECONDS,
    Reference,
    WorkerLost,
    call_or_return_error,
    connect_ray,
    fetch_result,
    starts_own_ray,
    stop_jobs,
)
from stsbench.core import settings
from stsbench.core.errors import Interrupted, StsbenchError, look_up
from stsbench.core.registry import Registry
from stsbench.core.wording import as_one_line
from stsbench.encoders.runs import TrainedRun, UnfinishedRun
from stsbench.recipes.ray_training import check_shared
from stsbench.studies.sweep import Sweep, SweepScore, SweepState
from stsbench.studies.trials import Trial, TrialCallbacks, carry_out_trial, plan_trials

if TYPE_CHECKING:
    from stsbench.training.learner import OnProgress, TrainingProgress


class StoppedEarly(Interrupted):
    """Halving stopped a training.

    Attributes:
        score: The score of the last validation.
    """

    def __init__(self, score: float) -> None:
        """Store the score of the last validation."""
        super().__init__("stopped early")
        self.score = score


def score_trial(
    sweep: Sweep, trial: Trial, halving_study: str, callbacks: TrialCallbacks
) -> SweepScore:
    """Train and score a trial of a sweep, and return the score by which settings are compared.

    A sweep tries settings of a recipe; a trial is the training of one setting with one seed. A
    complete trial is not trained again. With halving, a training that is behind the others is
    stopped early.

    Args:
        sweep: The sweep; the table ``decide`` of its card names task, split and metric of the
            score.
        trial: The trial.
        halving_study: The name of the study of Optuna in which trainings are compared; empty
            without halving.
        callbacks: The functions to call meanwhile.

    Returns:
        The score on the sweep's development split, or the reason why there is none. If the training
        was stopped early, the score of its last validation.

    Raises:
        UnknownName: The results have no score of the metric's name.
        Interrupted: The user stopped the command.
    """
    decide = sweep.card.decide
    scoring = RunPlan(tasks=decide.task, protocol=decide.protocol or None, split=decide.split)
    try:
        if halving_study:
            callbacks = _with_halving(sweep, trial, halving_study, callbacks)
        outcome = carry_out_trial(trial, sweep.environment, scorings=[scoring], callbacks=callbacks)
    except StoppedEarly as stop:
        return SweepScore(stop.score, stopped_early=True)
    # Failures are pairs of a name and the error.
    if outcome.failures or not outcome.results:
        reasons = "; ".join(as_one_line(error) for _, error in outcome.failures)
        return SweepScore(score=None, failure=reasons or "it has no score")
    # The only one: there is one task, and a training has one seed.
    result = outcome.results[0]
    if decide.metric:
        return SweepScore(look_up("metric", decide.metric, result.scores))
    return SweepScore(result.score)


def _with_halving(
    sweep: Sweep, trial: Trial, halving_study: str, callbacks: TrialCallbacks
) -> TrialCallbacks:
    """Return callbacks by which each validation is reported to Optuna, which may stop the training.

    Optuna (a library) compares the trainings of a sweep by their validation scores after the same
    number of steps. If this training is behind the others, the progress callback raises
    :class:`StoppedEarly`. Earlier validations of a resumed or complete training are reported at
    once, so this function may raise it too.

    Args:
        sweep: The sweep, whose folder holds Optuna's studies.
        trial: The trial to train; a complete one is never stopped.
        halving_study: The name of the study in which trainings are compared.
        callbacks: The callbacks to extend.
    """
    # Optuna's own record of this training: a new one at each call.
    optuna_trial = sweep.study(halving_study).ask()
    last_step = 0

    def report(step: float | None, score: float | None) -> None:
        """Report a validation to Optuna, and raise StoppedEarly if it decides to stop the trial.

        A validation without a step or a score (None) is not reported.
        """
        nonlocal last_step
        # A resumed training repeats validations, but Optuna accepts each step only once.
        if step is not None and score is not None and step > last_step:
            last_step = int(step)
            optuna_trial.report(score, last_step)
            if optuna_trial.should_prune() and trial.state != "complete":
                raise StoppedEarly(score)

    @contextmanager
    def training_with_reports(started_trial: Trial) -> Iterator[OnProgress]:
        """Yield the progress callback of a training, extended by the report to Optuna.

        ``callbacks``, the ones to extend, and ``report`` belong to the outer function.
        """
        with callbacks.training(started_trial) as on_progress:

            def report_progress(progress: TrainingProgress) -> None:
                on_progress(progress)
                # There is a point only after a step with a validation; then the score is new.
                if progress.point is not None:
                    report(progress.step, progress.score)

            yield report_progress

    folder = trial.plan.folder
    # None if the training has not begun. A curve is the list of validations so far.
    run = TrainedRun.read(folder) if trial.state == "complete" else UnfinishedRun.read(folder)
    for point in run.curve if run is not None else ():
        report(point.step, point.score)
    return replace(callbacks, training=training_with_reports)


Carrier = Callable[[SweepState, str, int, TrialCallbacks], None]
"""Carries out a sweep until all trials are done or the time is over.

It is called with the sweep's state, the place (for example ``ray``), the number of cores of a
training if there is no GPU, and the callbacks.
"""


def run_sequentially(
    state: SweepState, launcher: str, cores: int, callbacks: TrialCallbacks
) -> None:
    """Train the trials of a sweep in this process, one after the other.

    It ends when all are trained or the sweep's time is over, which no training is stopped for.
    Outcomes are stored in ``state``.

    Args:
        state: The state of the sweep, which hands out its trials.
        launcher: Not used; :func:`run_in_parallel` has the same parameters.
        cores: Not used.
        callbacks: The functions to call meanwhile.
    """
    start = time.monotonic()
    while not state.sweep.is_time_over(start):
        trial = state.next_trial()
        if trial is None:
            break
        # ``halving_study`` names where trainings are compared; empty if none is stopped early.
        score = score_trial(state.sweep, trial, state.halving_study, callbacks)
        state.store_outcome(trial, score)


def run_in_parallel(
    state: SweepState, launcher: str, cores: int, callbacks: TrialCallbacks
) -> None:
    """Train the trials of a sweep on Ray, one per GPU, or without GPUs one per ``cores`` cores.

    It ends when all are trained. When the sweep's time is over, no further trial is started, and
    those in training are stopped without an outcome. Outcomes are stored in ``state``.

    Args:
        state: The state of the sweep, which hands out its trials.
        launcher: ``ray`` for a cluster of this machine alone, or of the machines that the variable
            ``RAY_ADDRESS`` names. An address of a cluster is refused: the command must run in it.
        cores: The number of cores of a training if there is no GPU.
        callbacks: Not used: a worker shows no progress.

    Raises:
        StsbenchError: Ray is not installed, or machines lack files that they need to share.
        Interrupted: The user stopped the command.
    """
    sweep = state.sweep
    if "://" in launcher:
        raise StsbenchError(
            "lead a sweep within its cluster",
            hint="run it there with RAY_ADDRESS and `on=ray`",
            parameter="on",
            value=launcher,
        )
    with connect_ray(launcher) as ray:
        if not starts_own_ray(launcher):
            _check_shared_files(ray, sweep)
        slots = _find_slots(ray, cores)
        # The function that a worker runs; Ray repeats it if the worker was lost.
        job = ray.remote(_score_on_worker).options(max_retries=MAX_TRIES - 1, **slots.resources)
        # The trials in training, by Ray's reference to the result of each.
        trials_by_reference: dict[Reference, Trial] = {}
        start = time.monotonic()
        try:
            while not sweep.is_time_over(start):
                while len(trials_by_reference) < slots.n_trials:
                    next_trial = state.next_trial()
                    if next_trial is None:
                        break
                    reference = job.remote(sweep, next_trial, state.halving_study, str(Path.cwd()))
                    trials_by_reference[reference] = next_trial
                if not trials_by_reference:
                    break
                # At most this long, so that the time is looked at again.
                finished, _ = ray.wait(list(trials_by_reference), timeout=WAIT_SECONDS)
                for reference in finished:
                    trial = trials_by_reference.pop(reference)
                    # The score; or, from an error or a lost worker, a failure without a score.
                    outcome = _outcome_of_worker(fetch_result(ray, reference))
                    state.store_outcome(trial, outcome)
        except KeyboardInterrupt as error:
            raise Interrupted("stopped; the same command resumes") from error
        finally:
            stop_jobs(ray, list(trials_by_reference))


class _Slots(NamedTuple):
    """The number of trials that a cluster trains at once, and the resources of each for Ray."""

    n_trials: int
    resources: Mapping[str, int]


def _find_slots(ray: Any, cores: int) -> _Slots:  # noqa: ANN401 - the module
    """Return how many trials a cluster trains at once, and the devices of each.

    A trial gets a GPU, or ``cores`` cores if the cluster has no GPU.

    Args:
        ray: The package ``ray``, which is connected to the cluster.
        cores: The number of cores of a training if there is no GPU.

    Returns:
        The number of trials, and Ray's options for the resources of one.

    Raises:
        StsbenchError: There are fewer cores, and no GPU.
    """
    cluster_resources = ray.cluster_resources()
    n_gpus = int(cluster_resources.get("GPU", 0))
    if n_gpus:
        return _Slots(n_trials=n_gpus, resources={"num_cpus": 1, "num_gpus": 1})
    n_cores = int(cluster_resources.get("CPU", 0))
    if n_cores < cores:
        raise StsbenchError(
            f"there are {n_cores} cores",
            hint="give at most as many",
            parameter="cores",
            value=cores,
        )
    return _Slots(n_trials=n_cores // cores, resources={"num_cpus": cores})


def _check_shared_files(ray: Any, sweep: Sweep) -> None:  # noqa: ANN401 - the module
    """Check that all machines see the files that trainings read and the folders of their runs.

    Paths that do not exist here are not checked, for example a base that is a name on the Hub. All
    machines must see a file that is written to the folder of runs, and to the sweep's.

    Args:
        ray: The package ``ray``, which is connected to the cluster.
        sweep: The sweep.

    Raises:
        StsbenchError: A machine lacks one of them.
    """
    # The folders with which trials are carried out.
    environment = sweep.environment
    read_folders = [
        # The base, which trainings start from, may be a folder; "." is checked anyway.
        Path(sweep.card.base or "."),
        # The user's folders if the environment names none.
        environment.data or settings.data_folder(),
        environment.corpora or settings.corpora_folder(),
        *environment.catalogue.folders,
    ]
    check_shared(ray, read_paths=read_folders, written_folder=settings.runs_folder())
    check_shared(ray, read_paths=[], written_folder=sweep.folder)


def _score_on_worker(
    sweep: Sweep, trial: Trial, halving_study: str, folder: str
) -> SweepScore | Exception:
    """Train and score a trial of a sweep in a worker of Ray; an error is returned, not raised.

    Args:
        sweep: The sweep.
        trial: The trial, as planned when it was sent to the worker.
        halving_study: The name of the study of Optuna in which trainings are compared; empty if
            none is stopped early.
        folder: The working folder of the command, for relative paths.

    Returns:
        The score, or the error.
    """
    with chdir(folder):
        # The same trial planned anew, which looks up how much of its run exists: an earlier try in
        # a lost worker may have trained a part.
        (current_trial,) = plan_trials(trial.plans)
        # Returns the score, or the error that computing it raised.
        return call_or_return_error(
            partial(score_trial, sweep, current_trial, halving_study, TrialCallbacks())
        )


def _outcome_of_worker(outcome: SweepScore | Exception) -> SweepScore:
    """Return the score that a worker has returned; an error becomes a failure without a score."""
    if isinstance(outcome, WorkerLost):
        return SweepScore(score=None, failure=f"its worker has failed {MAX_TRIES} times")
    if isinstance(outcome, Exception):
        return SweepScore(score=None, failure=as_one_line(outcome))
    return outcome


CARRIERS = Registry(
    "place of a sweep",
    {
        "local": "stsbench.studies.carriers:run_sequentially",
        "ray": "stsbench.studies.carriers:run_in_parallel",
    },
    group="carriers",
    expected="a function, see stsbench.studies.carriers:Carrier",
)
