"""Sweeps: train and score settings of recipes, for several seeds each, and find the best.

Optuna proposes the settings; :mod:`stsbench.studies.carriers` trains them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import msgspec

from stsbench.core.cards import SweepCard
from stsbench.core.catalogue import read_card
from stsbench.core.errors import CardError, OutputError, StsbenchError, look_up
from stsbench.core.wording import as_one_line
from stsbench.numbers.statistics import MeanAndDeviation, mean_and_deviation
from stsbench.recipes.train import deciding_tables
from stsbench.recipes.train_plan import TrainPlan, check_start_is_named, uses_training_loop
from stsbench.recipes.trainer import TRAINERS
from stsbench.results.record import digest_fields
from stsbench.studies.search import (
    SEARCHES,
    SweepSetting,
    count_settings,
    propose_setting,
    setting_at,
)
from stsbench.studies.trials import Trial, TrialEnvironment, plan_trials
from stsbench.training.methods.registry import METHODS

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class SweepScore(NamedTuple):
    """The outcome of a trial.

    Attributes:
        score: The score that decides; None if there is none.
        failure: The reason why there is no score; empty if there is one.
        stopped_early: Halving stopped the training: the score is that of its last validation.
    """

    score: float | None
    failure: str = ""
    stopped_early: bool = False


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
        """Read a sweep's card, and check its values, splits, search and budget.

        A sweep trains recipes with many combinations of values (settings), and compares their
        scores on a development split.

        Args:
            path: The file of the card.
            environment: The devices, folders and catalogue to use.
            folder: The folder of the sweep's table and of the cards of its best settings.
            base: The checkpoint to start from; empty for the card's own.
            text: The training text; empty for the card's own.

        Raises:
            StsbenchError: A key, recipe, value or search does not exist, a split is no
                development split, or Optuna is not installed.
        """
        try:
            import optuna  # noqa: F401 - an extra, which every search uses
        except ImportError as error:
            raise StsbenchError("sweeps need Optuna; run: pip install 'stsbench[sweep]'") from error
        card = read_card(path, SweepCard)
        card = msgspec.structs.replace(card, base=base or card.base, text=text or card.text)
        sweep = cls(name=path.stem, card=card, environment=environment, folder=folder)
        for name, values in (("recipes", card.recipes), *card.values.items()):
            # Other values than lists are ranges of numbers.
            if not isinstance(values, list):
                continue
            # Compared by equality, as values may not be hashable.
            if any(value in values[:index] for index, value in enumerate(values)):
                raise CardError(f"{path}: {name}: a value stands there twice")
        # The score that decides must be on a development split.
        sweep.check_development(
            card.decide.task, card.decide.split, where=f"{path}: [decide] task and split"
        )
        # Only the check: it raises CardError if budget and search do not fit.
        count_settings(card)
        sweep._check_values()
        return sweep

    def _check_values(self) -> None:
        """Check, before any training, that each recipe of the sweep can have each of the values.

        A value by which checkpoints would be selected on a test split is refused too.

        Raises:
            StsbenchError: A recipe has no such key, or cannot have one of the values.
        """
        values_by_key = {
            # The ends of a range stand for all of its numbers.
            key: axis if isinstance(axis, list) else [axis.low, axis.high]
            for key, axis in self.card.values.items()
        }
        # Each value is checked with the first values of all other keys: not every combination.
        first_values = {key: values[0] for key, values in values_by_key.items()}
        further_values = [
            {key: value} for key, values in values_by_key.items() for value in values[1:]
        ]
        for recipe in self.card.recipes:
            for values in ({}, *further_values):
                # Raises an error if the recipe lacks a key, or a value is not valid.
                plan = self._plan_checked(recipe, {**self.card.set, **first_values, **values})
                if uses_training_loop(plan.card):
                    # Raises CardError if no checkpoint to start from is named.
                    check_start_is_named(plan)
                # The method's class, and the class that trains it: the common loop, or rounds.
                method = METHODS.load(plan.card.method)
                trainer = TRAINERS.load_own(method.trainer)
                # Raises an error if the method cannot have the plan's values.
                trainer.check(plan, method)

    def _plan(self, recipe: str, replaced: Mapping[str, Any], seed: int = 0) -> TrainPlan:
        """Plan a training of a recipe with replaced values, and the sweep's base and text."""
        return self.environment.plan(
            recipe, replaced, seed=seed, base=self.card.base, text=self.card.text
        )

    def _plan_checked(self, recipe: str, replaced: Mapping[str, Any]) -> TrainPlan:
        """Plan a training, and check that it selects checkpoints on a development split.

        Args:
            recipe: The recipe's name.
            replaced: The values that replace those of the recipe, by key.

        Raises:
            CardError: The split is a test, or a value is not valid.
            UnknownName: There is no such recipe, task or split.
        """
        plan = self._plan(recipe, replaced)
        selection = plan.card.selection
        self.check_development(
            selection.task,
            selection.split,
            where=f"{plan.name}: selection.task and selection.split",
        )
        return plan

    def is_time_over(self, since: float) -> bool:
        """Return whether the sweep's budget of hours is spent, so that no more training may start.

        Args:
            since: The reading of ``time.monotonic`` when this process began the sweep or resumed
                it: a resumed sweep has all its hours again.
        """
        hours = self.card.budget.hours
        return hours is not None and time.monotonic() - since >= hours * 3600

    def check_development(self, task: str, split: str, *, where: str) -> None:
        """Check that a split is for development, not the one on which encoders are compared.

        Args:
            task: The name of the task.
            split: The split by whose score something is chosen: values or a checkpoint.
            where: The file or run, and the keys of task and split, for the error.

        Raises:
            CardError: The split is ``test``, or the one that the task is scored on.
            UnknownName: There is no such task, or it has no such split.
        """
        card = self.environment.catalogue.task(task)
        if split in (card.score_split, "test"):
            development_splits = [
                name for name in card.splits if name not in (card.score_split, "test", "train")
            ]
            remedy = f"{task} has none; choose others, such as stsb and validation"
            if development_splits:
                remedy = f"{task} has '{development_splits[0]}'"
            raise CardError(
                f"{where}: '{split}' of {task} is a test: "
                f"values are chosen on development splits; {remedy}"
            )
        # Only the check: it raises UnknownName.
        look_up(f"split of {task}", split, card.splits)

    def plan_trials_of(self, setting: SweepSetting) -> list[Trial]:
        """Return the trainings of a setting of the sweep, one per seed.

        The name of a run lists the replaced values. Values that equal the recipe's own are omitted
        from it, so that earlier runs are found. If another training already has the shorter name,
        one with another base or text, all values are listed.

        Args:
            setting: A recipe, and the values that replace its own.
        """
        # ``card.set``: values that all settings of the sweep have.
        all_values = {**self.card.set, **setting.values}
        card = self._plan_checked(setting.recipe, all_values).card
        # The values without which the recipe would train something else.
        needed_values = dict(all_values)
        for key in all_values:
            remaining = {name: value for name, value in all_values.items() if name != key}
            if deciding_tables(self._plan(setting.recipe, remaining).card) == deciding_tables(card):
                del needed_values[key]
        trials: list[Trial] = []
        for seed in self.card.seeds:
            # Both train the same weights under different names, so both make one trial: of the run
            # that exists already, otherwise of the shorter name.
            plan_with_all_values = self._plan(setting.recipe, all_values, seed)
            plan_with_needed_values = self._plan(setting.recipe, needed_values, seed)
            try:
                trials += plan_trials([plan_with_needed_values, plan_with_all_values])
            except OutputError:
                # A training of another base or text has the name with the needed values only.
                trials += plan_trials([plan_with_all_values])
        return trials

    def study(self, name: str) -> Any:  # noqa: ANN401 - optuna's
        """Open a study of the library Optuna in the sweep's folder, or create it.

        A study is Optuna's record of what was tried and with which scores. With halving, it also
        decides which trainings are stopped early.

        Args:
            name: The name of the study; the journal file holds several.

        Returns:
            The ``optuna.Study``.

        Raises:
            OutputError: The file is no journal of Optuna, or the folder cannot be written.
        """
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        path = self.folder / JOURNAL_FILE
        # Trainings are compared at ``first_step``, and one of ``factor`` continues, to ``factor``
        # times the steps.
        halving = self.card.halving
        pruner = None  # without halving no training asks whether to stop
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
                f"{path}: is not what a sweep has tried: {as_one_line(error)}; remove it"
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
            score.score is not None and not score.stopped_early for score in self.scores.values()
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
        trials_to_train: The trials to hand out next.
        halving_study: The name of Optuna's study in which the trainings of one command are
            compared; empty if all are trained to their end.
    """

    def __init__(
        self, sweep: Sweep, on_close: Callable[[SweepRow, Trial], None] = lambda row, trial: None
    ) -> None:
        """Restore the settings that the sweep tried earlier; their trials are the next to train.

        A setting is a row of the sweep's table; it has one trial, a training, per seed.

        Args:
            sweep: The sweep.
            on_close: Called when a trial is done, with its row and the trial.
        """
        self.sweep = sweep
        self.on_close = on_close
        self.rows: list[SweepRow] = []
        self.trials_to_train: deque[Trial] = deque()
        # The name of a new study of Optuna in which trainings are compared; empty without halving.
        self.halving_study = f"halving {uuid4().hex}" if sweep.card.halving is not None else ""
        # A trial in Optuna's sense is one setting. All its trainings will be handed out, also the
        # finished ones, which are not repeated.
        for optuna_trial in self._tried_optuna_trials():
            self._add_setting_of(optuna_trial)

    @cached_property
    def _study(self) -> Any:  # noqa: ANN401 - optuna's
        """Optuna's record (study) of the settings so far, opened or created in the sweep's folder.

        Its name is the first 16 hexadecimal digits of a hash of the sweep's card without name and
        budget. So a sweep with a raised budget continues the same study; after any other change of
        the card it gets a new one.
        """
        deciding_fields = {
            key: value
            for key, value in msgspec.to_builtins(self.sweep.card).items()
            if key not in ("name", "budget")
        }
        return self.sweep.study(digest_fields(deciding_fields)[:16])

    def _tried_optuna_trials(self) -> list[FrozenTrial]:
        """Return Optuna's trials of the settings so far; if there is no file, none is created."""
        return self._study.trials if (self.sweep.folder / JOURNAL_FILE).exists() else []

    def _add_setting_of(self, optuna_trial: FrozenTrial) -> None:
        """Add a row for the setting of an Optuna trial; its trainings are the last to hand out."""
        setting = setting_at(self.sweep.card, optuna_trial.params)
        self.rows.append(SweepRow(setting, self.sweep.plan_trials_of(setting)))
        self.trials_to_train.extend(self.rows[-1].trials)

    def next_trial(self) -> Trial | None:
        """Hand out the next trial to train, each one once; None if the search has ended.

        If all trials so far are handed out, the search proposes the next setting, which is stored
        in Optuna's study on disk.
        """
        if not self.trials_to_train:
            # A trial of Optuna; None if all settings, or as many as the budget has, were tried.
            proposal = propose_setting(self.sweep.card, self._tried_optuna_trials())
            if proposal is None:
                return None
            self._study.add_trial(proposal)
            # Adds its trials, one per seed, to ``trials_to_train``.
            self._add_setting_of(proposal)
        return self.trials_to_train.popleft()

    def store_outcome(self, trial: Trial, score: SweepScore) -> None:
        """Store the outcome of a trial in the row of its setting, and call ``on_close``.

        After the last seed of a setting, the mean score over its seeds is stored in Optuna's study
        on disk; a setting without any score is stored as failed.

        Args:
            trial: A trial that was handed out: a setting with one seed.
            score: The trial's score as ``score.score``; None, with a reason, if there is none.
        """
        from optuna.trial import TrialState

        row = next(row for row in self.rows if trial in row.trials)
        scores = {**row.scores, trial.plan.seed: score}
        # In the order of the seeds, not in that in which they end.
        seeds = [row_trial.plan.seed for row_trial in row.trials]
        row.scores = {seed: scores[seed] for seed in seeds if seed in scores}
        self.on_close(row, trial)
        if len(row.scores) < len(row.trials):
            return
        # Rows are in the order of Optuna's trials.
        optuna_trial_number = self.rows.index(row)
        # Mean and deviation over the seeds with a score; None if no seed has one.
        seed_mean = row.seed_mean
        self._study.tell(
            optuna_trial_number,
            seed_mean.mean if seed_mean else None,
            TrialState.COMPLETE if seed_mean else TrialState.FAIL,
            # A resumed sweep hands out finished settings again; Optuna has their means already.
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

    def known_trials(self) -> list[Trial]:
        """Return the trials of all settings that can be known before more are scored.

        These are the settings started so far. If the search does not learn from scores, the ones
        that it will propose are known too. Nothing is stored.
        """
        card = self.sweep.card
        # A new list of Optuna's trials, one per setting.
        known_settings = self._tried_optuna_trials()
        # ``learns``: what the search proposes depends on scores.
        if not SEARCHES[card.search].learns:
            while (proposal := propose_setting(card, known_settings)) is not None:
                known_settings.append(proposal)
        trials = [trial for row in self.rows for trial in row.trials]
        # The first known settings are those of the rows; the others have no trials yet.
        for proposal in known_settings[len(self.rows) :]:
            trials += self.sweep.plan_trials_of(setting_at(card, proposal.params))
        return trials

    @property
    def total(self) -> int:
        """The maximum number of trainings."""
        return count_settings(self.sweep.card) * len(self.sweep.card.seeds)


class WinnerRecipe(NamedTuple):
    """A new recipe with the values of a winner: its name, and its card as plain data."""

    name: str
    card: dict[str, Any]


def winner_card(sweep: Sweep, row: SweepRow) -> WinnerRecipe:
    """Return a new recipe with the values of a sweep's best setting; nothing is written.

    Its card states by which scores the values were chosen. It names no published scores of a paper,
    as the paper's recipe was another.

    Args:
        sweep: The sweep, whose name is part of the recipe's.
        row: The setting that has won: its recipe and values, its trials, one per seed, and the mean
            of their scores.
    """
    # The recipe with the values of the setting; and the task and split whose score decides.
    card = row.trials[0].plan.card
    decide = sweep.card.decide
    assert row.seed_mean is not None, "a winner has scores"
    # The deviation is None for a single seed.
    mean, deviation = row.seed_mean
    score = f"{100 * mean:.2f}"
    if deviation is not None:
        score += f" ± {100 * deviation:.2f}"
    seeds = ", ".join(map(str, sweep.card.seeds))
    reason = f"chosen by {score} on {decide.task} {decide.split} over seeds {seeds}"
    if sweep.card.base:
        # A recipe cannot name every checkpoint that a user can start from.
        reason += f", started from {sweep.card.base}"
    values = {**sweep.card.set, **row.setting.values}
    changes = ", ".join(f"{key}={value}" for key, value in values.items())
    winner = msgspec.structs.replace(
        card,
        name=f"{card.name}, {changes}",
        # Where the recipe's values are from.
        preset=f"the sweep '{sweep.card.name}', {reason}",
        published=[],
    )
    name = f"{row.setting.recipe}-{sweep.name}"
    return WinnerRecipe(name, card=msgspec.to_builtins(winner))
