"""Trials: trainings of recipes with replaced values, carried out one by one.

They are planned together, so that nothing is trained twice.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from stsbench.bench.plan import RunPlan
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import report_errors, run
from stsbench.core import settings
from stsbench.core.errors import OutputError, TrainingError
from stsbench.core.toml import toml
from stsbench.encoders.runs import TrainedRun, UnfinishedRun
from stsbench.recipes.train import deciding_tables, find_finished_run, run_training
from stsbench.recipes.train_plan import TrainingEnvironment, TrainPlan, read_recipe
from stsbench.results.record import Result

if TYPE_CHECKING:
    from stsbench.training.learner import OnProgress

RunState = Literal["complete", "unfinished", "missing"]
RUN_STATES: tuple[RunState, ...] = ("complete", "unfinished", "missing")
"""How much of a trial's run exists, from the most to the least."""


@dataclass(frozen=True, kw_only=True)
class TrialEnvironment(TrainingEnvironment):
    """The environment in which trials are trained, and the folder of their results.

    Runs are stored in the usual folder of runs, where encoders are found by name.

    Attributes:
        results: The folder of the trials' results.
        options: The options of ``stsbench train`` with the same meaning, for the command that
            finishes a stopped run.
    """

    results: Path
    options: Sequence[str] = ()

    def plan(
        self,
        recipe: str,
        replaced: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        base: str = "",
        text: str = "",
    ) -> TrainPlan:
        """Plan the training of a recipe with replaced values, as ``stsbench train`` would.

        Args:
            recipe: The recipe's name.
            replaced: The values that replace those of the recipe, by key; None for none.
            seed: The seed of the training.
            base: The checkpoint to start from; empty for the recipe's own.
            text: The training text; empty for the recipe's own.

        Raises:
            UnknownName: There is no such recipe.
            CardError: A value is not valid.
        """
        replaced = replaced or {}
        assigned = {**replaced, "data.corpus": text} if text else dict(replaced)
        # The name is the recipe's with the replaced values added.
        name, card = read_recipe(recipe, self.catalogue, params=assigned)
        # The command that trains this plan alone, to be printed if it is stopped.
        command_words = ["stsbench", "train", recipe]
        # ``toml`` writes a value as a card does.
        for key, value in replaced.items():
            command_words += ["--set", f"{key}={toml(value)}"]
        for option, value in (("--base", base), ("--text", text)):
            if value:
                command_words += [option, value]
        # A plan has all fields of a ``TrainingEnvironment``, as this object has: folders, device
        # and settings.
        environment_fields = {
            field.name: getattr(self, field.name) for field in fields(TrainingEnvironment)
        }
        return TrainPlan(
            name=name,
            card=card,
            seed=seed,
            # The usual folder of all runs, in which this one gets its own.
            out=settings.runs_folder(),
            base=base,
            # ``options``: further options of the command that was called.
            command=shlex.join([*command_words, *self.options, "--seeds", str(seed)]),
            **environment_fields,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """A training run to carry out.

    Attributes:
        plan: The plan by which it is trained.
        state: How much of the run exists.
        plans: All plans that request this run, under whatever names.
    """

    plan: TrainPlan
    state: RunState
    plans: Sequence[TrainPlan]

    @property
    def encoder(self) -> str:
        """The name that loads the trained encoder."""
        return f"{self.plan.name}@{self.plan.seed}"

    def is_requested_by(self, plans: Sequence[TrainPlan]) -> bool:
        """Return whether any of these plans requests this run."""
        return any(plan in self.plans for plan in plans)


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """The outcome of a trial.

    Attributes:
        run: The trained run; None if the training failed, or if there was none.
        results: The results on the tasks that could be scored.
        failures: The name of the encoder or task that failed, with the error, once per failure.
    """

    run: TrainedRun | None = None
    results: Sequence[Result] = ()
    failures: Sequence[tuple[str, Exception]] = ()


WITHOUT_PROGRESS = nullcontext[Callable[[object], None]](lambda progress: None)
"""A training whose progress is not shown."""


@dataclass(frozen=True, kw_only=True)
class TrialCallbacks:
    """Functions called while trials are carried out; all are optional.

    Attributes:
        training: Entered while a trial is trained, and called with its steps; it is not entered
            if the run is complete.
        scoring: The callbacks of the trial's scoring.
    """

    training: Callable[[Trial], AbstractContextManager[OnProgress]] = lambda trial: WITHOUT_PROGRESS
    scoring: RunCallbacks = field(default_factory=RunCallbacks)


def plan_trials(plans: Sequence[TrainPlan]) -> list[Trial]:
    """Return the training runs that plans request, in the order of the plans, each run once.

    Plans that train the same weights share a trial, even if they have different names: for example,
    a recipe, and the same recipe with a value replaced by an equal one. The trial gets the name of
    the plan of whose run most exists already.

    Args:
        plans: The plans, each of a recipe with one seed.

    Raises:
        StsbenchError: A folder contains the finished run of another base or training text, or two
            different plans have one folder.
    """
    # By a key for what decides the weights: the plans that train the same.
    plans_by_weights: dict[bytes, list[TrainPlan]] = {}
    # By the folder of a run, this key; and in the next dict, how much of the run exists.
    keys_by_folder: dict[Path, bytes] = {}
    states: dict[Path, RunState] = {}
    for plan in plans:
        # All that decides the weights, which the name of a plan does not: the tables of the recipe,
        # the checkpoint to start from, and the seed.
        weights_key = msgspec.json.encode(
            [deciding_tables(plan.card), plan.base, plan.seed], order="sorted"
        )
        if keys_by_folder.setdefault(plan.folder, weights_key) != weights_key:
            raise TrainingError(
                f"{plan.name}, seed {plan.seed}: asked for twice with other bases or cards, "
                "for one folder; train them one after the other with another STSBENCH_RUNS each"
            )
        plans_by_weights.setdefault(weights_key, []).append(plan)
        states[plan.folder] = _find_run_state(plan)
    trials = []
    for equal_plans in plans_by_weights.values():
        # RUN_STATES begins with the most complete state; of equally complete runs take the first.
        plan = min(equal_plans, key=lambda candidate: RUN_STATES.index(states[candidate.folder]))
        trials.append(Trial(plan=plan, state=states[plan.folder], plans=equal_plans))
    return trials


def _find_run_state(plan: TrainPlan) -> RunState:
    """Return how much of a plan's run exists in its folder: complete, unfinished or missing.

    Args:
        plan: The plan of a training, which names the folder.

    Raises:
        StsbenchError: The folder contains the finished run of another plan.
    """
    # Raises the error if the finished run is that of another plan.
    if find_finished_run(plan) is not None:
        return "complete"
    return "missing" if UnfinishedRun.read(plan.folder) is None else "unfinished"


def carry_out_trial(
    trial: Trial,
    environment: TrialEnvironment,
    scorings: Sequence[RunPlan],
    callbacks: TrialCallbacks,
) -> TrialOutcome:
    """Carry out a trial: train a recipe with one seed, and score its encoder.

    A finished training is not repeated, a stopped one resumes, and results that the folder of
    results contains are not computed again. Errors are not raised: they are part of the outcome,
    and the scoring callbacks are called with them.

    Args:
        trial: The trial.
        environment: The devices, folders and catalogue to use.
        scorings: The tasks to score, as plans of runs.
        callbacks: The functions to call meanwhile.

    Returns:
        The trained run (None if training failed), the results, and the failures: the name of the
        encoder or task, and the error.

    Raises:
        Interrupted: The user stopped the command.
    """
    failures: list[tuple[str, Exception]] = []
    results: list[Result] = []
    trained_run = None

    def record_failure(name: str, error: Exception) -> None:
        failures.append((name, error))
        callbacks.scoring.on_failure(name, error)

    scoring = replace(callbacks.scoring, on_failure=record_failure)
    # Errors within the block are passed to ``record_failure``, because of ``expected`` also those
    # in writing files; only an interruption is raised.
    with report_errors(trial.encoder, scoring, is_only_encoder=False, expected=(OutputError,)):
        # A complete run has no progress: ``run_training`` only reads its record.
        # Otherwise ``progress`` yields a function that is called after each step.
        progress = WITHOUT_PROGRESS if trial.state == "complete" else callbacks.training(trial)
        with progress as on_progress:
            trained_run = run_training(trial.plan, on_progress=on_progress)
        results = score_encoder(trial.encoder, environment, scorings, callbacks=scoring)
    return TrialOutcome(run=trained_run, results=results, failures=failures)


def score_encoder(
    encoder: str,
    environment: TrialEnvironment,
    scorings: Sequence[RunPlan],
    callbacks: RunCallbacks,
    *,
    params: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Score an encoder on the tasks of several plans, and return the results.

    Errors are not raised: the callbacks are called with them, and the next plan follows.

    Args:
        encoder: The encoder's name.
        environment: The folders and the catalogue to use.
        scorings: The tasks to score, as plans of runs without an encoder.
        callbacks: The functions to call meanwhile, with failures too.
        params: The parameters that replace those of the encoder's card; None for none.
    """
    results: list[Result] = []
    for scoring in scorings:
        plan = replace(
            scoring,
            encoders=[encoder],
            params=params or {},
            results_folder=environment.results,
            data=environment.data,
            catalogue=environment.catalogue,
        )
        # Errors within the block go to the callbacks, because of ``expected`` also those in writing
        # results; only an interruption is raised.
        with report_errors(encoder, callbacks, is_only_encoder=False, expected=(OutputError,)):
            results += run(plan, callbacks)
    return results
