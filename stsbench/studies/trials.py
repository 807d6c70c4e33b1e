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
from stsbench.recipes.train import deciding_tables, find_finished, run_training
from stsbench.recipes.train_plan import TrainingEnvironment, TrainPlan, read_recipe
from stsbench.results.record import Result

if TYPE_CHECKING:
    from stsbench.training.learner import OnProgress

State = Literal["complete", "unfinished", "missing"]
STATES: tuple[State, ...] = ("complete", "unfinished", "missing")
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
            replaced: The values that replace those of the recipe, by key.
            seed: The seed of the training.
            base: The checkpoint to start from; empty for the recipe's own.
            text: The training text; empty for the recipe's own.

        Raises:
            StsbenchError: As :func:`stsbench.recipes.train_plan.read_recipe`.
        """
        replaced = replaced or {}
        assigned = {**replaced, "data.corpus": text} if text else dict(replaced)
        name, card = read_recipe(recipe, self.catalogue, params=assigned)
        words = ["stsbench", "train", recipe]
        for key, value in replaced.items():
            words += ["--set", f"{key}={toml(value)}"]
        for option, value in (("--base", base), ("--text", text)):
            if value:
                words += [option, value]
        return TrainPlan(
            name=name,
            card=card,
            seed=seed,
            out=settings.runs_folder(),
            base=base,
            command=shlex.join([*words, *self.options, "--seeds", str(seed)]),
            **{part.name: getattr(self, part.name) for part in fields(TrainingEnvironment)},
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
    state: State
    plans: Sequence[TrainPlan]

    @property
    def encoder(self) -> str:
        """The name that loads the trained encoder."""
        return f"{self.plan.name}@{self.plan.seed}"


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
    """Return the runs that plans request, in their order, each once.

    A plan that replaces values by what they are already has the run of the recipe itself. If one
    run may have several names, the name is used under which most of the run exists.

    Args:
        plans: The plans; equal ones share a trial.

    Raises:
        StsbenchError: A folder contains the finished run of another base or text, or two
            different plans have one folder.
    """
    groups: dict[bytes, list[tuple[TrainPlan, State]]] = {}
    keys_by_folder: dict[Path, bytes] = {}
    for plan in plans:
        # All that decides the weights; the name of a plan is none of it.
        key = msgspec.json.encode(
            [deciding_tables(plan.card), plan.base, plan.seed], order="sorted"
        )
        if keys_by_folder.setdefault(plan.folder, key) != key:
            raise TrainingError(
                f"{plan.name}, seed {plan.seed}: asked for twice with other bases or cards, "
                "for one folder; train them one after the other with another STSBENCH_RUNS each"
            )
        groups.setdefault(key, []).append((plan, _state_of(plan)))
    trials = []
    for group in groups.values():
        # STATES begin with the most complete one.
        plan, state = min(group, key=lambda candidate: STATES.index(candidate[1]))
        trials.append(Trial(plan=plan, state=state, plans=[plan for plan, _ in group]))
    return trials


def _state_of(plan: TrainPlan) -> State:
    """Return how much of a plan's run exists in its folder.

    Raises:
        StsbenchError: The folder contains the finished run of another plan.
    """
    is_begun = UnfinishedRun.read(plan.folder) is not None
    # Raises if the folder contains the finished run of another plan.
    if find_finished(plan) is not None:
        return "complete"
    return "unfinished" if is_begun else "missing"


def carry_out_trial(
    trial: Trial,
    environment: TrialEnvironment,
    scorings: Sequence[RunPlan],
    callbacks: TrialCallbacks,
) -> TrialOutcome:
    """Train a trial and score it.

    A finished training is not repeated, a stopped one resumes, and results that the folder
    contains are not computed again. Failures are part of the outcome, and the scoring callbacks
    are called with them.

    Args:
        trial: The trial to carry out.
        environment: The devices, folders and catalogue to use.
        scorings: The tasks to score, as plans of runs.
        callbacks: The functions to call meanwhile.

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
    with report_errors(trial.encoder, scoring, is_only_encoder=False, expected=(OutputError,)):
        # The progress of a complete run is not shown: it is not trained.
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
    """Score an encoder on the tasks of several plans.

    Args:
        encoder: The encoder's name.
        environment: The folders and the catalogue to use.
        scorings: The tasks to score, as plans of runs.
        callbacks: The functions to call meanwhile, with failures too.
        params: The parameters that replace those of the encoder's card.
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
        with report_errors(encoder, callbacks, is_only_encoder=False, expected=(OutputError,)):
            results += run(plan, callbacks)
    return results
