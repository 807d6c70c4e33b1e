"""Sweeps by Ray Tune: a cell a GPU, or a slice of cores, and halving on the validations of the trainings."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any

from stsbench.bench.on_ray import TRIES
from stsbench.bench.workers import Ray, is_alone, joined
from stsbench.core import settings
from stsbench.core.errors import Stopped, StsbenchError, one_line
from stsbench.encoders.runs import RunPoint, TrainedRun, UnfinishedRun
from stsbench.recipes.on_ray import check_seen, scratch
from stsbench.studies.sweep import Book, CellScore, Sweep, SweepCell, SweepSetting, score_of
from stsbench.studies.trials import PlannedTrial, TrialWatcher, carry_out_trials
from stsbench.training.loop.selection import TrainingProgress

ENDLESS = 10**9
"""More steps than any training has."""
CELL, STEP, VALIDATION, SCORE, FAILURE = "cell", "step", "validation", "score", "failure"
"""What a worker gets, and what it reports."""
LOST = f"its worker has failed {TRIES} times"


def side_by_side(book: Book, on: str, cores: int, watcher: TrialWatcher) -> None:
    """Train cells side by side, as many as there are GPUs, or slices of cores.

    Raises:
        StsbenchError: Ray or its parts are not installed, or machines do not share what they need.
        Stopped: by Ctrl-C.
    """
    sweep, hours = book.sweep, book.sweep.card.budget.hours
    if "://" in on:
        raise StsbenchError(
            f"--on {on}: a sweep is led from within its cluster; run it there with RAY_ADDRESS and --on ray"
        )
    with joined(on) as ray, scratch(on, sweep.folder) as folder:
        try:
            from ray import tune
        except ImportError as error:
            raise StsbenchError(f"--on ray: {one_line(error)}; run: pip install 'stsbench[ray]'") from error
        if not is_alone(on):
            check_seen(ray, _read(sweep), settings.runs_folder())
        each, many = _slices(ray, cores)
        schedule = _schedule(sweep)
        work = tune.with_parameters(_work, sweep=sweep, folder=str(Path.cwd()))
        tuner = tune.Tuner(
            tune.with_resources(work, each),
            tune_config=tune.TuneConfig(
                search_alg=_searcher(book, schedule, watcher),
                scheduler=schedule,
                num_samples=-1,
                max_concurrent_trials=many,
                time_budget_s=None if hours is None else hours * 3600,
                trial_dirname_creator=lambda trial: str(trial.trial_id),
            ),
            run_config=tune.RunConfig(
                name="sweep",
                storage_path=str(folder),
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=TRIES - 1),
            ),
        )
        try:
            tuner.fit()
        except KeyboardInterrupt as error:
            raise Stopped("stopped; the same command goes on") from error


def _read(sweep: Sweep) -> list[Path | None]:
    """The folders that workers read."""
    shop = sweep.workshop
    given = [shop.data or settings.data_folder(), shop.corpora or settings.corpora_folder()]
    return [Path(sweep.card.base or "."), *given, *shop.catalogue.folders]


def _slices(ray: Ray, cores: int) -> tuple[dict[str, float], int]:
    """What a cell takes, and how many have room."""
    here = ray.cluster_resources()
    if gpus := int(here.get("GPU", 0)):
        return {"cpu": 1, "gpu": 1}, gpus
    if (held := int(here.get("CPU", 0))) < cores:
        raise StsbenchError(f"--cores {cores}: there are {held} cores; give at most as many")
    return {"cpu": cores}, held // cores


def _schedule(sweep: Sweep) -> Any:  # noqa: ANN401 - ray has no types
    """Which trainings are stopped early, and what remembers that; None where all go on to their end."""
    from ray.tune.schedulers import ASHAScheduler

    class Halving(ASHAScheduler):  # type: ignore[misc]
        def __init__(self, first_step: int, factor: int) -> None:
            super().__init__(
                time_attr=STEP,
                metric=VALIDATION,
                mode="max",
                max_t=ENDLESS,
                grace_period=first_step,
                reduction_factor=factor,
            )
            self.stopped: set[str] = set()

        def on_trial_result(self, controller: Any, trial: Any, result: Mapping[str, Any]) -> str:  # noqa: ANN401
            decision: str = super().on_trial_result(controller, trial, result)
            if decision == self.STOP:
                self.stopped.add(trial.trial_id)
            return decision

    facts = sweep.card.halving
    return None if facts is None else Halving(facts.first_step, facts.factor)


def _searcher(book: Book, schedule: Any, watcher: TrialWatcher) -> Any:  # noqa: ANN401 - ray has no types
    """What Tune asks for the next cell, and tells what came of each."""
    from ray.tune.search import Searcher

    class Cells(Searcher):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.under_way: dict[str, SweepCell] = {}

        def suggest(self, trial_id: str) -> Any:  # noqa: ANN401
            cell = _next(book, watcher, replays=schedule is not None)
            if cell is None:
                return Searcher.FINISHED
            self.under_way[trial_id] = cell
            return {CELL: {"recipe": cell.setting.recipe, "values": dict(cell.setting.values), "seed": cell.seed}}

        def on_trial_complete(
            self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
        ) -> None:
            cell, reported = self.under_way.pop(trial_id), result or {}
            if error:
                book.close(cell, CellScore(None, LOST))
            elif FAILURE in reported:
                book.close(cell, CellScore(reported[SCORE], reported[FAILURE]))
            elif schedule is not None and trial_id in schedule.stopped:
                book.close(cell, CellScore(reported[VALIDATION], early=True))

    return Cells()


def _next(book: Book, watcher: TrialWatcher, *, replays: bool) -> SweepCell | None:
    """The next cell to train; what is trained needs no worker, unless its validations are compared with others'."""
    sweep = book.sweep
    while (cell := book.next()) is not None and cell.planned.state == "complete" and not replays:
        (outcome,) = carry_out_trials([cell.planned], sweep.workshop, [sweep.scored_on], watcher)
        book.close(cell, score_of(sweep, outcome))
    return cell


def _work(config: Mapping[str, Any], sweep: Sweep, folder: str) -> None:
    """What a worker does: train a cell, report each validation where it may be stopped by it, and score."""
    from ray import tune

    asked = config[CELL]
    with chdir(folder):
        cells = sweep.cells(SweepSetting(asked["recipe"], asked["values"]))
        (cell,) = [one for one in cells if one.seed == asked["seed"]]
        last = 0.0

        def report(step: float | None, score: float | None) -> None:
            nonlocal last
            if sweep.card.halving is not None and score is not None and step is not None and step > last:
                last = step
                tune.report({STEP: step, VALIDATION: score})

        def on_progress(progress: TrainingProgress) -> None:
            if progress.point is not None:
                report(progress.step, progress.score)

        for point in _seen(cell.planned):
            report(point.step, point.score)
        watcher = TrialWatcher(training=lambda planned: nullcontext(on_progress))
        (outcome,) = carry_out_trials([cell.planned], sweep.workshop, [sweep.scored_on], watcher)
        try:
            found = score_of(sweep, outcome)
        except StsbenchError as error:
            found = CellScore(None, one_line(error))
    tune.report({SCORE: found.score, FAILURE: found.failure})


def _seen(planned: PlannedTrial) -> list[RunPoint]:
    """The validations of before: reported again, they are compared as when they were new."""
    folder = planned.plan.folder
    if planned.state == "complete":
        return TrainedRun.read(folder).record.curve
    unfinished = UnfinishedRun.read(folder)
    return unfinished.curve if unfinished is not None else []
