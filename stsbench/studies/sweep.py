"""Sweeps: settings of recipes, as Optuna proposes them, each trained for some seeds, here or on Ray, and scored; a book of them, and the best."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec
import numpy as np

from stsbench.bench.plan import RunPlan
from stsbench.bench.workers import (
    TRIES,
    WAIT_SECONDS,
    Reference,
    WorkerLost,
    catch_errors,
    connect_ray,
    fetch_result,
    is_alone,
    stop_jobs,
)
from stsbench.core import settings
from stsbench.core.cards import SweepCard, ValueRange
from stsbench.core.catalogue import read_card
from stsbench.core.errors import CardError, Interrupted, OutputError, StsbenchError, look_up
from stsbench.core.registry import Registry
from stsbench.core.wording import join_lines
from stsbench.encoders.runs import TrainedRun, UnfinishedRun
from stsbench.numbers.statistics import MeanAndDeviation, mean_and_deviation
from stsbench.recipes.ray_training import check_seen
from stsbench.recipes.train import TRAINERS, deciding
from stsbench.recipes.train_plan import TrainPlan, check_start, uses_training_loop
from stsbench.results.record import digest_fields
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

Axis = Sequence[Any] | ValueRange
RECIPE = "recipe"
DRAWS = 200
"""So often is drawn anew what was tried already, before it is taken that nothing else is left."""


class SearchStrategy(NamedTuple):
    """One way to search: by a sampler of Optuna's, or all settings in order."""

    sampler: str = ""
    options: Mapping[str, Any] = {}
    learns: bool = False
    """Whether what it proposes depends on scores."""


SEARCHES: Mapping[str, SearchStrategy] = {
    "grid": SearchStrategy(),
    "random": SearchStrategy("RandomSampler"),
    # What is under way counts as bad.
    "tpe": SearchStrategy("TPESampler", {"constant_liar": True}, learns=True),
}


class SweepSetting(NamedTuple):
    """What one point of a sweep replaces of which recipe."""

    recipe: str
    values: Mapping[str, Any]


def axes(card: SweepCard) -> dict[str, Axis]:
    """What is chosen from: the recipes, and the values of each key."""
    return {RECIPE: card.recipes, **card.values}


def setting_at(card: SweepCard, places: Mapping[str, Any]) -> SweepSetting:
    """The setting at places on the axes; of a list a place is a number, for what stands there may be of any type."""
    at = [(key, axis, places[key]) for key, axis in axes(card).items()]
    found = {
        key: axis.number(place) if isinstance(axis, ValueRange) else axis[place]
        for key, axis, place in at
    }
    return SweepSetting(str(found.pop(RECIPE)), found)


def count_settings(card: SweepCard) -> int:
    """How many settings a sweep tries at most.

    Raises CardError: a search that draws has no budget of settings, a grid has one or a range without a step.
    """
    endless = [
        key
        for key, axis in axes(card).items()
        if isinstance(axis, ValueRange) and axis.step is None
    ]
    most = card.budget.settings
    if not look_up("search", card.search, SEARCHES).sampler:
        if most is not None:
            raise CardError(
                '[budget] settings: a grid is tried whole; leave it out, or take search = "random"'
            )
        if endless:
            raise CardError(
                f'[values] {endless[0]}: a grid needs a list or a step; or take search = "random"'
            )
    elif most is None:
        raise CardError(f"[budget] settings is missing: search '{card.search}' draws so many")
    all_of_them = (
        math.inf if endless else math.prod(len(_points(axis)) for axis in axes(card).values())
    )
    return int(min(all_of_them, math.inf if most is None else most))


def _points(axis: Axis) -> Sequence[Any]:
    return axis.points() if isinstance(axis, ValueRange) else range(len(axis))


def propose_setting(card: SweepCard, known: Sequence[FrozenTrial]) -> FrozenTrial | None:
    """The next setting to try, as a trial of Optuna's; None where there is none.

    It depends on the card and on what is known alone: a sweep that was stopped continues as it would have.
    """
    import optuna

    if len(known) >= count_settings(card):
        return None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spaces = dict[str, Any]()
    for key, axis in axes(card).items():
        if isinstance(axis, ValueRange):
            high = axis.high if axis.step is None else axis.points()[-1]
            spaces[key] = optuna.distributions.FloatDistribution(
                axis.low, high, log=axis.log, step=axis.step
            )
        else:
            spaces[key] = optuna.distributions.CategoricalDistribution(range(len(axis)))
    points = (
        _drawn(card, known, spaces)
        if SEARCHES[card.search].sampler
        else islice(product(*map(_points, axes(card).values())), len(known), None)
    )
    for point in points:
        places = dict(zip(spaces, point, strict=True))
        if all(places != one.params for one in known):
            return optuna.create_trial(
                params=places, distributions=spaces, state=optuna.trial.TrialState.RUNNING
            )
    return None


def _drawn(
    card: SweepCard, known: Sequence[FrozenTrial], spaces: dict[str, Any]
) -> Iterator[Sequence[Any]]:
    import optuna

    search = SEARCHES[card.search]
    for draw in range(DRAWS):
        seed = int(np.random.default_rng([card.search_seed, len(known), draw]).integers(1 << 32))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = getattr(optuna.samplers, search.sampler)(seed=seed, **search.options)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.add_trials(known)
        asked = study.ask(spaces).params
        yield [
            one.number(asked[key]) if isinstance(one, ValueRange) else asked[key]
            for key, one in axes(card).items()
        ]


class SweepScore(NamedTuple):
    """What came of a trial: its score, or why it has none."""

    score: float | None
    failure: str = ""
    early: bool = False
    """Whether halving has stopped it: the score is that of its last validation."""


JOURNAL = "optuna.journal"
"""In a sweep's folder: its settings so far, in the order in which they were begun, as Optuna's other programs read it too."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A card of a sweep, and where it is carried out."""

    name: str
    card: SweepCard
    environment: TrialEnvironment
    folder: Path
    """Where its table and the cards of the winners go."""

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
        """Read and check a card; ``base`` and ``text`` come before its own.

        Raises StsbenchError: a key, recipe, value or search that does not exist; a split that is no development split.
        """
        card = read_card(path, SweepCard)
        card = msgspec.structs.replace(card, base=base or card.base, text=text or card.text)
        found = cls(name=path.stem, card=card, environment=environment, folder=folder)
        for what, given in (("recipes", card.recipes), *card.values.items()):
            if isinstance(given, list) and any(
                one in given[:place] for place, one in enumerate(given)
            ):
                raise CardError(f"{path}: {what}: a value stands there twice")
        found.check_development(card.decide.task, card.decide.split, where=f"{path}: [decide]")
        count_settings(card)
        # A value that some recipe does not take, or that has it selected on a test, is refused before anything is trained.
        listed = {
            key: one if isinstance(one, list) else [one.low, one.high]
            for key, one in card.values.items()
        }
        first = {key: values[0] for key, values in listed.items()}
        for recipe in card.recipes:
            for values in (
                {**first, key: value} for key, all_of in listed.items() for value in all_of
            ):
                plan = found._checked(recipe, {**card.set, **values})
                if uses_training_loop(plan.card):
                    check_start(plan)
                method = METHODS.load(plan.card.method)
                TRAINERS.load_own(method.trainer).check(plan, method)
        return found

    def _plan(self, recipe: str, replaced: Mapping[str, Any], seed: int = 0) -> TrainPlan:
        return self.environment.plan(
            recipe, replaced, seed=seed, base=self.card.base, text=self.card.text
        )

    def _checked(self, recipe: str, replaced: Mapping[str, Any]) -> TrainPlan:
        plan = self._plan(recipe, replaced)
        chosen_by = plan.card.selection
        self.check_development(chosen_by.task, chosen_by.split, where=f"{plan.name}: [selection]")
        return plan

    def is_over(self, since: float) -> bool:
        """Whether no training may be begun any more; ``since`` is the reading of ``time.monotonic`` at the start."""
        hours = self.card.budget.hours
        return hours is not None and time.monotonic() - since >= hours * 3600

    def check_development(self, task: str, split: str, *, where: str) -> None:
        """Refuse to choose by what encoders are compared on.

        Raises CardError: the split is a test, or the one that the task is scored on; or the task has no such split.
        """
        facts = self.environment.catalogue.task(task)
        if split in (facts.score_split, "test"):
            own = [
                name for name in facts.splits if name not in (facts.score_split, "test", "train")
            ]
            others = (
                f"; {task} has '{own[0]}'" if own else f"; {task} has none, so name another task"
            )
            raise CardError(
                f"{where}: '{split}' of {task} is a test: values are chosen on development splits{others}"
            )
        look_up(f"split of {task}", split, facts.splits)

    def trials(self, setting: SweepSetting) -> list[Trial]:
        """The trainings of a setting, one a seed; what a recipe says already is not replaced, so that runs of before are found."""
        whole = {**self.card.set, **setting.values}
        ours, needed = self._checked(setting.recipe, whole).card, dict(whole)
        for key in whole:
            theirs = self._plan(
                setting.recipe, {other: value for other, value in whole.items() if other != key}
            ).card
            if deciding(theirs) == deciding(ours):
                del needed[key]
        made: list[Trial] = []
        for seed in self.card.seeds:
            long, short = (
                self._plan(setting.recipe, replaced, seed) for replaced in (whole, needed)
            )
            try:
                made += plan_trials([short, long])
            except OutputError:
                # The name that says only what is needed is taken by a training of another base or text.
                made += plan_trials([long])
        return made

    def study(self, name: str) -> Any:  # noqa: ANN401 - optuna's
        """Optuna's study of this name in the sweep's folder.

        Raises OutputError: what lies there is no journal of Optuna's, or the folder cannot be written.
        """
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        path, pruner = self.folder / JOURNAL, None
        if (facts := self.card.halving) is not None:
            pruner = optuna.pruners.SuccessiveHalvingPruner(facts.first_step, facts.factor)
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
    """A setting with its trainings, one a seed, and by seed what came of those that are done."""

    setting: SweepSetting
    trials: Sequence[Trial]
    scores: dict[int, SweepScore] = field(default_factory=dict)

    @property
    def encoder(self) -> str:
        """The trained encoder by the name that loads it."""
        return self.trials[0].plan.name

    @property
    def whole(self) -> bool:
        """Whether all seeds were trained to the end and scored."""
        return sum(one.score is not None and not one.early for one in self.scores.values()) == len(
            self.trials
        )

    @property
    def spread(self) -> MeanAndDeviation | None:
        """Mean and deviation over the seeds that have a score; None where none has."""
        scores = [one.score for one in self.scores.values() if one.score is not None]
        return mean_and_deviation(scores) if scores else None


class SweepState:
    """What of a sweep is done, under way and to come; each trial is handed out once."""

    def __init__(
        self, sweep: Sweep, on_close: Callable[[SweepRow, Trial], None] = lambda row, trial: None
    ) -> None:
        """Read what was tried before; ``on_close`` is called with the row of each trial that is done."""
        self.sweep, self.on_close = sweep, on_close
        self.rows: list[SweepRow] = []
        """In the order in which settings were begun, which is that of Optuna's trials."""
        self.waiting: deque[Trial] = deque()
        self.halving = f"halving {uuid4().hex}" if sweep.card.halving is not None else ""
        """The name of the study in which the trainings of one command are compared; nothing where all are trained to their end."""
        for trial in self._tried():
            self._open(trial)

    @cached_property
    def _study(self) -> Any:  # noqa: ANN401 - optuna's
        """What was tried; with other values, seeds or another way to decide a card is another study, not with another budget."""
        facts = {
            key: one
            for key, one in msgspec.to_builtins(self.sweep.card).items()
            if key not in ("name", "budget")
        }
        return self.sweep.study(digest_fields(facts)[:16])

    def _tried(self) -> list[FrozenTrial]:
        return self._study.trials if (self.sweep.folder / JOURNAL).exists() else []

    def _open(self, trial: FrozenTrial) -> None:
        setting = setting_at(self.sweep.card, trial.params)
        self.rows.append(SweepRow(setting, self.sweep.trials(setting)))
        self.waiting.extend(self.rows[-1].trials)

    def next(self) -> Trial | None:
        """What is to be trained; None where there is nothing, now or any more."""
        if not self.waiting:
            trial = propose_setting(self.sweep.card, self._tried())
            if trial is None:
                return None
            self._study.add_trial(trial)
            self._open(trial)
        return self.waiting.popleft()

    def close(self, trial: Trial, score: SweepScore) -> None:
        """Note what came of a trial; that of a setting is its mean over seeds."""
        from optuna.trial import TrialState

        row = next(row for row in self.rows if trial in row.trials)
        found = {**row.scores, trial.plan.seed: score}
        row.scores = {
            seed: found[seed] for seed in (one.plan.seed for one in row.trials) if seed in found
        }
        self.on_close(row, trial)
        if len(row.scores) == len(row.trials):
            state = TrialState.COMPLETE if row.spread else TrialState.FAIL
            self._study.tell(
                self.rows.index(row), row.spread and row.spread.mean, state, skip_if_finished=True
            )

    def ranked(self) -> list[SweepRow]:
        """The rows, the best mean first, those that are not whole behind all others."""
        return sorted(
            self.rows, key=lambda row: (not row.whole, -row.spread.mean if row.spread else 0.0)
        )

    def winners(self) -> list[SweepRow]:
        """The best whole setting of each recipe, the best of all first."""
        best: dict[str, SweepRow] = {}
        for row in self.ranked():
            if row.whole:
                best.setdefault(row.setting.recipe, row)
        return list(best.values())

    def all_known(self) -> list[Trial]:
        """All that are known before anything is scored: of a search that learns, those that were begun."""
        card, known = self.sweep.card, self._tried()
        while (
            not SEARCHES[card.search].learns and (trial := propose_setting(card, known)) is not None
        ):
            known.append(trial)
        later = (
            self.sweep.trials(setting_at(card, trial.params)) for trial in known[len(self.rows) :]
        )
        return [
            trial for trials in (*(row.trials for row in self.rows), *later) for trial in trials
        ]

    @property
    def total(self) -> int:
        """How many trainings there are at most."""
        return count_settings(self.sweep.card) * len(self.sweep.card.seeds)


def winner_card(sweep: Sweep, row: SweepRow) -> tuple[str, dict[str, Any]]:
    """The name and the card of a recipe with the values that were chosen."""
    card, decide = row.trials[0].plan.card, sweep.card.decide
    assert row.spread is not None, "a winner has scores"
    mean, deviation = row.spread
    over = f"{100 * mean:.2f}" + (f" ± {100 * deviation:.2f}" if deviation is not None else "")
    how = f"chosen by {over} on {decide.task} {decide.split} over seeds {', '.join(map(str, sweep.card.seeds))}"
    changed: Sequence[str] = [
        f"{key}={value}" for key, value in {**sweep.card.set, **row.setting.values}.items()
    ]
    named = msgspec.structs.replace(
        card,
        name=f"{card.name}, {', '.join(changed)}",
        preset=f"the sweep '{sweep.card.name}', {how}",
        published=[],
    )
    return f"{row.setting.recipe}-{sweep.name}", msgspec.to_builtins(named)


class StoppedEarly(Interrupted):
    """Halving has stopped a training at a validation of this score."""

    def __init__(self, score: float) -> None:
        """Note the score."""
        super().__init__("stopped early")
        self.score = score


def score_trial(sweep: Sweep, trial: Trial, halving: str, watcher: TrialCallbacks) -> SweepScore:
    """Train a trial, unless that is done or halving stops it, and score it.

    Raises UnknownName: results have no score of the metric's name; Stopped: the user wants no more.
    """
    decide = sweep.card.decide
    decisive = RunPlan(tasks=decide.task, protocol=decide.protocol or None, split=decide.split)
    try:
        watching = _halved(sweep, trial, halving, watcher) if halving else watcher
        outcome = carry_out_trial(trial, sweep.environment, [decisive], watching)
    except StoppedEarly as early:
        return SweepScore(early.score, early=True)
    if outcome.failures or not outcome.results:
        return SweepScore(
            None, "; ".join(join_lines(error) for _, error in outcome.failures) or "it has no score"
        )
    result = outcome.results[0]
    return SweepScore(
        look_up("metric", decide.metric, result.scores) if decide.metric else result.score
    )


def _halved(sweep: Sweep, trial: Trial, halving: str, watcher: TrialCallbacks) -> TrialCallbacks:
    """The watcher, which tells Optuna each validation of a training, those of before too, and stops one that is behind."""
    asked, last = sweep.study(halving).ask(), 0

    def report(step: float | None, score: float | None) -> None:
        nonlocal last
        if step is not None and score is not None and step > last:
            last = int(step)
            asked.report(score, last)
            if asked.should_prune() and trial.state != "complete":
                raise StoppedEarly(score)

    @contextmanager
    def training(trial: Trial) -> Iterator[OnProgress]:
        with watcher.training(trial) as on_progress:

            def heard(progress: TrainingProgress) -> None:
                on_progress(progress)
                if progress.point is not None:
                    report(progress.step, progress.score)

            yield heard

    folder = trial.plan.folder
    before = TrainedRun.read(folder) if trial.state == "complete" else UnfinishedRun.read(folder)
    for point in before.curve if before is not None else ():
        report(point.step, point.score)
    return replace(watcher, training=training)


Carrier = Callable[[SweepState, str, int, TrialCallbacks], None]
"""Given the book of a sweep, where it is to be (``ray``), the cores of a training where no GPU is, and who watches; it
ends with all done, or the time."""


def run_sequentially(book: SweepState, on: str, cores: int, watcher: TrialCallbacks) -> None:
    """Train one after the other in this process."""
    started = time.monotonic()
    while not book.sweep.is_over(started) and (trial := book.next()) is not None:
        book.close(trial, score_trial(book.sweep, trial, book.halving, watcher))


def run_in_parallel(book: SweepState, on: str, cores: int, watcher: TrialCallbacks) -> None:
    """Train side by side, as many as there are GPUs, or slices of cores; those under way when the time is over end.

    Raises StsbenchError: Ray is not installed, or machines do not share what they need; Stopped: by Ctrl-C.
    """
    sweep = book.sweep
    if "://" in on:
        raise StsbenchError(
            f"--on {on}: lead a sweep within its cluster; run it there with RAY_ADDRESS and --on ray"
        )
    with connect_ray(on) as ray:
        if not is_alone(on):
            shop = sweep.environment
            given = [shop.data or settings.data_folder(), shop.corpora or settings.corpora_folder()]
            check_seen(
                ray,
                [Path(sweep.card.base or "."), *given, *shop.catalogue.folders],
                settings.runs_folder(),
            )
            check_seen(ray, [], sweep.folder)
        here = ray.cluster_resources()
        held, each, many = (
            int(here.get("CPU", 0)),
            {"num_cpus": 1, "num_gpus": 1},
            int(here.get("GPU", 0)),
        )
        if not many:
            if held < cores:
                raise StsbenchError(
                    f"--cores {cores}: there are {held} cores; give at most as many"
                )
            each, many = {"num_cpus": cores}, held // cores
        # Ray tries again what a worker had that is lost.
        work, under_way = (
            ray.remote(_scored_there).options(max_retries=TRIES - 1, **each),
            dict[Reference, Trial](),
        )
        started = time.monotonic()
        try:
            while not sweep.is_over(started):
                while len(under_way) < many and (trial := book.next()) is not None:
                    under_way[work.remote(sweep, trial, book.halving, str(Path.cwd()))] = trial
                if not under_way:
                    break
                for reference in ray.wait(list(under_way), timeout=WAIT_SECONDS)[0]:
                    book.close(under_way.pop(reference), _score_of(fetch_result(ray, reference)))
        except KeyboardInterrupt as error:
            raise Interrupted("stopped; the same command resumes") from error
        finally:
            stop_jobs(ray, list(under_way))


def _scored_there(sweep: Sweep, trial: Trial, halving: str, folder: str) -> SweepScore | Exception:
    """What a worker does; at a second try a part of the training is there."""
    with chdir(folder):
        (now,) = plan_trials(trial.plans)
        return catch_errors(partial(score_trial, sweep, now, halving, TrialCallbacks()))


def _score_of(found: SweepScore | Exception) -> SweepScore:
    if isinstance(found, WorkerLost):
        return SweepScore(None, f"its worker has failed {TRIES} times")
    return SweepScore(None, join_lines(found)) if isinstance(found, Exception) else found


CARRIERS = Registry(
    "place of a sweep",
    {
        "local": "stsbench.studies.sweep:run_sequentially",
        "ray": "stsbench.studies.sweep:run_in_parallel",
    },
    group="carriers",
    expected="a function, see stsbench.studies.sweep:Carrier",
)
