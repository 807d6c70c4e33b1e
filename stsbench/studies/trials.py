"""Trials: trainings of recipes with values replaced, planned together, so that nothing is trained twice, and carried out one by one."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from stsbench.bench.plan import RunPlan
from stsbench.bench.progress import RunCallbacks
from stsbench.bench.run import report_errors, run
from stsbench.core import settings
from stsbench.core.cards import toml
from stsbench.core.errors import OutputError, TrainingError
from stsbench.encoders.runs import TrainedRun, UnfinishedRun
from stsbench.recipes.train import carry_out, deciding, find_finished
from stsbench.recipes.train_plan import TrainingEnvironment, TrainPlan, read_recipe
from stsbench.results.record import Result

if TYPE_CHECKING:
    from stsbench.training.learner import OnProgress

State = Literal["complete", "unfinished", "missing"]
STATES: tuple[State, ...] = ("complete", "unfinished", "missing")
"""From the most to the least that is there of a trial's run."""


@dataclass(frozen=True, kw_only=True)
class TrialEnvironment(TrainingEnvironment):
    """On what trials are trained, and where their results go; runs lie where names find them, in the usual folder of runs."""

    results: Path
    options: Sequence[str] = ()
    """The words of ``stsbench train`` that say the same, for the command that finishes a stopped run."""

    def plan(
        self,
        recipe: str,
        replaced: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        base: str = "",
        text: str = "",
    ) -> TrainPlan:
        """What ``stsbench train`` would do for a recipe with values replaced; raises as :func:`stsbench.recipes.train_plan.read_recipe`."""
        replaced = replaced or {}
        given = {**replaced, **({"data.corpus": text} if text else {})}
        name, card = read_recipe(recipe, self.catalogue, assign=given)
        words = ["stsbench", "train", recipe]
        said = [("--set", f"{key}={toml(value)}") for key, value in replaced.items()]
        said += [(flag, value) for flag, value in (("--base", base), ("--text", text)) if value]
        return TrainPlan(
            name=name,
            card=card,
            seed=seed,
            out=settings.runs_folder(),
            base=base,
            command=shlex.join([*words, *chain(*said), *self.options, "--seeds", str(seed)]),
            **{means.name: getattr(self, means.name) for means in fields(TrainingEnvironment)},
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One run to be had, and what is there of it."""

    plan: TrainPlan
    state: State
    plans: Sequence[TrainPlan]
    """All that ask for this run, by whatever name."""

    @property
    def encoder(self) -> str:
        """The trained encoder by the name that loads it."""
        return f"{self.plan.name}@{self.plan.seed}"


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """What came of a trial: its run, its results, and each thing that failed with why."""

    run: TrainedRun | None = None
    results: Sequence[Result] = ()
    failures: Sequence[tuple[str, Exception]] = ()


UNWATCHED = nullcontext[Callable[[object], None]](lambda progress: None)


@dataclass(frozen=True, kw_only=True)
class TrialCallbacks:
    """Shows how trials go; every part may be left out."""

    training: Callable[[Trial], AbstractContextManager[OnProgress]] = lambda trial: UNWATCHED
    """Entered while a trial is trained, and called with its steps; a run that is complete is not trained."""
    scoring: RunCallbacks = field(default_factory=RunCallbacks)


def plan_trials(plans: Sequence[TrainPlan]) -> list[Trial]:
    """Return the runs that plans ask for, in their order, each once, with what is there of it.

    Plans that replace values by what they are already have the run of the recipe itself. Of several names that one run
    may have, the one is taken under which most of it is there.

    Raises StsbenchError: a folder that holds the finished run of another base or text; two plans of one folder that are
    not the same.
    """
    groups: dict[bytes, list[tuple[TrainPlan, State]]] = {}
    of_folder: dict[Path, bytes] = {}
    for plan in plans:
        key = msgspec.json.encode([deciding(plan.card), plan.base, plan.seed], order="sorted")
        if of_folder.setdefault(plan.folder, key) != key:
            what = f"{plan.name}, seed {plan.seed}: asked for twice with other bases or cards, for one folder"
            raise TrainingError(
                f"{what}; train them one after the other with another STSBENCH_RUNS each"
            )
        # Raises where the folder holds the finished run of another plan.
        begun: State = "unfinished" if UnfinishedRun.read(plan.folder) is not None else "missing"
        groups.setdefault(key, []).append(
            (plan, "complete" if find_finished(plan) is not None else begun)
        )
    made = []
    for group in groups.values():
        plan, state = min(group, key=lambda one: STATES.index(one[1]))
        made.append(Trial(plan=plan, state=state, plans=[one for one, _ in group]))
    return made


def carry_out_trial(
    trial: Trial, workshop: TrialEnvironment, scorings: Sequence[RunPlan], watcher: TrialCallbacks
) -> TrialOutcome:
    """Train and score a trial on the tasks of some plans; what fails is part of what came of it, and the watcher's listener hears it.

    What is trained is not trained again, what was stopped resumes, and what the results folder holds is not scored
    again. Raises Stopped: the user wants no more.
    """
    failures, results, trained = list[tuple[str, Exception]](), list[Result](), None

    def failed(what: str, error: Exception) -> None:
        failures.append((what, error))
        watcher.scoring.on_failure(what, error)

    scoring = replace(watcher.scoring, on_failure=failed)
    with report_errors(trial.encoder, False, scoring, expected=(OutputError,)):
        # A run that is complete is not trained.
        watching = UNWATCHED if trial.state == "complete" else watcher.training(trial)
        with watching as on_progress:
            trained = carry_out(trial.plan, on_progress=on_progress)
        results = score_encoder(trial.encoder, workshop, scorings, scoring)
    return TrialOutcome(run=trained, results=results, failures=failures)


def score_encoder(
    encoder: str,
    workshop: TrialEnvironment,
    scorings: Sequence[RunPlan],
    listener: RunCallbacks,
    *,
    params: Mapping[str, Any] | None = None,
) -> list[Result]:
    """Score an encoder by its name, with some of its parameters replaced; the listener hears what fails."""
    results: list[Result] = []
    of_shop: Any = {
        "results_folder": workshop.results,
        "data": workshop.data,
        "catalogue": workshop.catalogue,
    }
    for scoring in scorings:
        asked = replace(scoring, encoders=[encoder], params=params or {}, **of_shop)
        with report_errors(encoder, False, listener, expected=(OutputError,)):
            results += run(asked, listener)
    return results
