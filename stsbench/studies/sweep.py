"""Sweeps: settings of recipes, each trained for some seeds and scored on a development split, and the best of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stsbench.cards.catalogue import read_card
from stsbench.cards.recipe import DECIDING
from stsbench.cards.sweep import SweepCard
from stsbench.errors import CardError, OutputError, choose, one_line
from stsbench.recipes.plan import TrainPlan
from stsbench.recipes.trainer import check_recipe
from stsbench.results.record import Result
from stsbench.studies.searches import SEARCHES, Search, SweepSetting
from stsbench.studies.trials import PlannedTrial, ScoredOn, Trial, TrialOutcome, Workshop, plan_of, plan_trials


class SweepCell(NamedTuple):
    """A setting trained with one seed."""

    setting: SweepSetting
    planned: PlannedTrial

    @property
    def seed(self) -> int:
        """The seed of its training."""
        return self.planned.plan.seed


class CellScore(NamedTuple):
    """What came of a cell: its score, or why it has none."""

    score: float | None
    failure: str = ""
    early: bool = False
    """Whether halving has stopped it: the score is that of its last validation."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A card of a sweep, and where it is carried out."""

    name: str
    card: SweepCard
    workshop: Workshop
    folder: Path
    """Where its table and the cards of the winners go."""

    @classmethod
    def read(
        cls, path: Path, workshop: Workshop, *, folder: Path | None = None, base: str = "", text: str = ""
    ) -> Sweep:
        """Read and check a card.

        Args:
            path: the card.
            workshop: where trials are trained.
            folder: default ``sweeps/<name of the card>``.
            base: instead of the card's.
            text: instead of the card's.

        Raises:
            StsbenchError: a key, recipe, value or search that does not exist; a split that is no development split.
        """
        card = read_card(path, SweepCard)
        card = msgspec.structs.replace(card, base=base or card.base, text=text or card.text)
        found = cls(name=path.stem, card=card, workshop=workshop, folder=folder or Path("sweeps") / path.stem)
        for what, given in (("recipes", card.recipes), *card.values.items()):
            if isinstance(given, list) and any(one in given[:place] for place, one in enumerate(given)):
                raise CardError(f"{path}: {what}: a value stands there twice")
        found.check_development(card.decide.task, card.decide.split, where=f"{path}: [decide]")
        found.search.check(card)
        found._check_values()
        return found

    def _check_values(self) -> None:
        """Refuse a value that some recipe does not take, or that has it selected on a test, before anything is trained."""
        listed = {key: one if isinstance(one, list) else [one.low, one.high] for key, one in self.card.values.items()}
        first = {key: values[0] for key, values in listed.items()}
        for recipe in self.card.recipes:
            for values in ({**first, key: value} for key, all_of in listed.items() for value in all_of):
                plan = plan_of(self._trial(SweepSetting(recipe, values)), self.workshop)
                self._check_selection(plan)
                check_recipe(plan)

    def _check_selection(self, plan: TrainPlan) -> None:
        chosen_by = plan.card.selection
        self.check_development(chosen_by.task, chosen_by.split, where=f"{plan.name}: [selection]")

    def _trial(self, setting: SweepSetting) -> Trial:
        card = self.card
        replaced = {**card.set, **setting.values}
        return Trial(recipe=setting.recipe, replaced=replaced, base=card.base, text=card.text)

    @property
    def search(self) -> Search:
        """The search that the card names."""
        return choose("search", self.card.search, SEARCHES)

    @property
    def scored_on(self) -> ScoredOn:
        """The development split that decides."""
        decide = self.card.decide
        return ScoredOn(tasks=decide.task, protocol=decide.protocol or None, split=decide.split)

    def is_over(self, seconds: float) -> bool:
        """Whether no cell may be begun after so much time."""
        hours = self.card.budget.hours
        return hours is not None and seconds >= hours * 3600

    def check_development(self, task: str, split: str, *, where: str) -> None:
        """Refuse to choose by what encoders are compared on.

        Raises:
            CardError: the split is a test, or the one that the task is scored on; or the task has no such split.
        """
        facts = self.workshop.catalogue.task(task)
        if split in (facts.score_split, "test"):
            own = [name for name in facts.splits if name not in (facts.score_split, "test", "train")]
            others = f"; {task} has '{own[0]}'" if own else f"; {task} has none, so name another task"
            raise CardError(f"{where}: '{split}' of {task} is a test: values are chosen on development splits{others}")
        choose(f"split of {task}", split, facts.splits)

    def cells(self, setting: SweepSetting) -> list[SweepCell]:
        """The trainings of a setting; what a recipe says already is not replaced, so that runs of before are found."""
        whole = self._trial(setting)
        needed = {key: value for key, value in whole.replaced.items() if not self._is_same(whole, key)}
        return [SweepCell(setting, self._planned(whole, needed, seed)) for seed in self.card.seeds]

    def _planned(self, whole: Trial, needed: Mapping[str, Any], seed: int) -> PlannedTrial:
        """A training, under the name that says only what is needed, unless that is taken by one of another base or text."""
        long, short = (replace(whole, replaced=replaced, seed=seed) for replaced in (whole.replaced, needed))
        try:
            (planned,) = plan_trials([short, long], self.workshop)
        except OutputError:
            (planned,) = plan_trials([long], self.workshop)
        self._check_selection(planned.plan)
        return planned

    def _is_same(self, trial: Trial, key: str) -> bool:
        """Whether a trial leaves the same encoder without what it replaces of one key."""
        without = {other: value for other, value in trial.replaced.items() if other != key}
        cards = [plan_of(one, self.workshop).card for one in (trial, replace(trial, replaced=without))]
        return all(getattr(cards[0], table) == getattr(cards[1], table) for table in DECIDING)


def score_of(sweep: Sweep, outcome: TrialOutcome) -> CellScore:
    """What a trial that was carried out says of its cell.

    Raises:
        UnknownName: results have no score of the metric's name.
    """
    if outcome.failures or not outcome.results:
        return CellScore(None, "; ".join(one_line(error) for _, error in outcome.failures) or "it has no score")
    return CellScore(decided(outcome.results[0], sweep.card.decide.metric))


def decided(result: Result, metric: str) -> float:
    """The score of a result that decides: the protocol's own where no other is named."""
    return choose("metric", metric, result.scores) if metric else result.score
