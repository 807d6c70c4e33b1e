"""Sweeps: settings of recipes, in the order of a search, each trained for some seeds and scored; a book of them, and the best."""

from __future__ import annotations

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stsbench.core.cards import DECIDING, Range, SweepCard
from stsbench.core.catalogue import read_card
from stsbench.core.errors import CardError, OutputError, StsbenchError, choose, one_line
from stsbench.core.files import write_whole
from stsbench.core.registry import Registry
from stsbench.numbers.statistics import Spread, spread
from stsbench.recipes.plan import TrainPlan
from stsbench.recipes.trainer import check_recipe
from stsbench.results.record import Result
from stsbench.studies.trials import (
    PlannedTrial,
    ScoredOn,
    Trial,
    TrialOutcome,
    TrialWatcher,
    Workshop,
    carry_out_trials,
    plan_of,
    plan_trials,
)

RECIPE = "recipe"
DRAWS = 1000
"""So often is drawn anew what was tried already, before it is taken that nothing else is left."""


class SweepSetting(NamedTuple):
    """What one point of a sweep replaces of which recipe."""

    recipe: str
    values: Mapping[str, Any]

    @property
    def key(self) -> str:
        """The same for equal settings."""
        return repr((self.recipe, sorted(self.values.items())))


class TriedSetting(NamedTuple):
    """A setting that was tried, and its mean over seeds; None where it failed."""

    setting: SweepSetting
    score: float | None


Propose = Callable[[SweepCard, Sequence[TriedSetting], Sequence[SweepSetting]], SweepSetting | None]
"""From what was tried and what is under way to the next setting; None where there is none."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """One way to search."""

    propose: Propose
    size: Callable[[SweepCard], int]
    """How many settings it tries at most."""
    learns: bool = False
    """Whether what it proposes depends on scores."""
    needs: str = ""
    """A package that it needs."""

    def check(self, card: SweepCard) -> None:
        """Refuse a card that cannot be carried out.

        Raises:
            CardError: it has no budget of settings, or a range has no end of numbers.
            StsbenchError: a package is missing.
        """
        if self.needs and find_spec(self.needs) is None:
            raise StsbenchError(f"search '{card.search}' needs {self.needs}; run: pip install 'stsbench[{self.needs}]'")
        self.size(card)


def _choices(card: SweepCard, key: str) -> Sequence[Any]:
    values = card.values[key]
    if not isinstance(values, Range):
        return values
    if values.step is None:
        raise CardError(f'[values] {key}: a grid needs a list or a step; or take search = "random"')
    return values.points()


def _grid_size(card: SweepCard) -> int:
    if card.budget.settings is not None:
        raise CardError('[budget] settings: a grid is tried whole; leave it out, or take search = "random"')
    return len(card.recipes) * math.prod(len(_choices(card, key)) for key in card.values)


def _grid(card: SweepCard) -> Iterator[SweepSetting]:
    for recipe, *values in product(card.recipes, *(_choices(card, key) for key in card.values)):
        yield SweepSetting(recipe, dict(zip(card.values, values, strict=True)))


def _next_of_grid(card: SweepCard, tried: Sequence[TriedSetting], begun: Sequence[SweepSetting]) -> SweepSetting | None:
    known = {one.key for one in (*(one.setting for one in tried), *begun)}
    return next((one for one in _grid(card) if one.key not in known), None)


def _budget(card: SweepCard) -> int:
    if card.budget.settings is None:
        raise CardError(f"[budget] settings is missing: search '{card.search}' draws so many")
    return card.budget.settings


def _drawn(card: SweepCard, tried: Sequence[TriedSetting], begun: Sequence[SweepSetting]) -> SweepSetting | None:
    """The first draw that is new; random draws depend only on the card."""
    known = {one.key for one in (*(one.setting for one in tried), *begun)}
    if len(known) >= _budget(card):
        return None
    for number in range(_budget(card) + DRAWS):
        rng = np.random.default_rng([card.search_seed, number])
        recipe = card.recipes[int(rng.integers(len(card.recipes)))]
        setting = SweepSetting(recipe, {key: _draw(values, rng) for key, values in card.values.items()})
        if setting.key not in known:
            return setting
    return None


def _draw(values: Sequence[Any] | Range, rng: np.random.Generator) -> Any:  # noqa: ANN401 - any TOML value
    if not isinstance(values, Range):
        return values[int(rng.integers(len(values)))]
    if values.step is not None:
        points = values.points()
        return points[int(rng.integers(len(points)))]
    if values.log:
        return values.number(math.exp(rng.uniform(math.log(values.low), math.log(values.high))))
    return values.number(rng.uniform(values.low, values.high))


def _by_tpe(card: SweepCard, tried: Sequence[TriedSetting], begun: Sequence[SweepSetting]) -> SweepSetting | None:
    """Optuna's tree-structured Parzen estimator, from all that was tried; what is under way counts as bad."""
    import optuna

    known = {one.key for one in (*(one.setting for one in tried), *begun)}
    if len(known) >= _budget(card):
        return None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    axes = {RECIPE: card.recipes, **card.values}
    spaces = {key: _distribution(values) for key, values in axes.items()}
    states = optuna.trial.TrialState
    seen = [
        *((one, score, states.FAIL if score is None else states.COMPLETE) for one, score in tried),
        *((one, None, states.RUNNING) for one in begun),
    ]
    for number in range(DRAWS):
        # A proposal hangs on the card and on what is known alone: a sweep that was stopped goes on as it would have.
        seed = int(np.random.default_rng([card.search_seed, len(known), number]).integers(1 << 32))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for one, score, state in seen:
            params = {key: _place(axes[key], value) for key, value in {RECIPE: one.recipe, **one.values}.items()}
            study.add_trial(optuna.create_trial(params=params, distributions=spaces, value=score, state=state))
        asked = {key: _at(axes[key], place) for key, place in study.ask(spaces).params.items()}
        setting = SweepSetting(asked.pop(RECIPE), asked)
        if setting.key not in known:
            return setting
    return None


def _distribution(values: Sequence[Any] | Range) -> Any:  # noqa: ANN401 - optuna's
    """Of a list its places: what stands there may be of any type."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if not isinstance(values, Range):
        return CategoricalDistribution(range(len(values)))
    high = values.points()[-1] if values.step is not None else values.high
    return FloatDistribution(values.low, high, log=values.log, step=values.step)


def _place(values: Sequence[Any] | Range, value: Any) -> Any:  # noqa: ANN401 - any TOML value
    return float(value) if isinstance(values, Range) else list(values).index(value)


def _at(values: Sequence[Any] | Range, place: Any) -> Any:  # noqa: ANN401 - any TOML value
    return values.number(place) if isinstance(values, Range) else values[place]


SEARCHES: Mapping[str, Search] = {
    "grid": Search(propose=_next_of_grid, size=_grid_size),
    "random": Search(propose=_drawn, size=_budget),
    "tpe": Search(propose=_by_tpe, size=_budget, learns=True, needs="optuna"),
}


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


TRIED = "tried.json"
"""In a sweep's folder: its settings so far, in the order in which they were begun."""


class SweepRow(NamedTuple):
    """A setting with what came of it by seed; a seed that is not there was not begun."""

    setting: SweepSetting
    cells: dict[int, CellScore]
    encoder: str
    whole: bool
    """Whether all seeds were trained to the end and scored."""

    @property
    def spread(self) -> Spread | None:
        """Mean and deviation over the seeds that have a score; None where none has."""
        scores = [one.score for one in self.cells.values() if one.score is not None]
        return spread(scores) if scores else None


class _Tried(msgspec.Struct, frozen=True):
    card: dict[str, Any]
    settings: list[SweepSetting]


class Book:
    """What of a sweep is done, under way and to come; each cell is handed out once."""

    def __init__(
        self, sweep: Sweep, on_close: Callable[[SweepCell, CellScore], None] = lambda cell, score: None
    ) -> None:
        """Read what was tried before.

        Args:
            sweep: what is carried out.
            on_close: called with each cell that is done.
        """
        self.sweep, self.on_close = sweep, on_close
        self.of: dict[str, list[SweepCell]] = {}
        """The cells of each setting, by its key, in the order in which settings were begun."""
        self.scores: dict[str, CellScore] = {}
        """By the encoder's name."""
        self.waiting: deque[SweepCell] = deque()
        for setting in self._tried():
            self._open(setting)

    def next(self) -> SweepCell | None:
        """A cell to be trained; None where there is none, now or any more."""
        if not self.waiting:
            tried = [
                TriedSetting(row.setting, row.spread and row.spread.mean) for row in self.rows() if self._is_done(row)
            ]
            begun = [row.setting for row in self.rows() if not self._is_done(row)]
            setting = self.sweep.search.propose(self.sweep.card, tried, begun)
            if setting is None:
                return None
            self._open(setting)
            self._write()
        return self.waiting.popleft()

    def close(self, cell: SweepCell, score: CellScore) -> None:
        """Note what came of a cell."""
        self.scores[cell.planned.encoder] = score
        self.on_close(cell, score)

    def rows(self) -> list[SweepRow]:
        """The settings in the order in which they were begun."""
        found = []
        for cells in self.of.values():
            there = [cell.planned for cell in cells if cell.planned.encoder in self.scores]
            scores = {one.plan.seed: self.scores[one.encoder] for one in there}
            whole = len(scores) == len(cells) and all(
                one.score is not None and not one.early for one in scores.values()
            )
            found.append(SweepRow(cells[0].setting, scores, cells[0].planned.plan.name, whole))
        return found

    def ranked(self) -> list[SweepRow]:
        """The same, the best mean first, those that are not whole behind all others."""
        return sorted(self.rows(), key=lambda row: (not row.whole, -row.spread.mean if row.spread else 0.0))

    def winners(self) -> list[SweepRow]:
        """The best whole setting of each recipe, the best of all first."""
        best: dict[str, SweepRow] = {}
        for row in self.ranked():
            if row.whole:
                best.setdefault(row.setting.recipe, row)
        return list(best.values())

    def all_known(self) -> list[SweepCell]:
        """All cells that are known before anything is scored: of a search that learns, those that were begun."""
        propose, begun = self.sweep.search.propose, [cells[0].setting for cells in self.of.values()]
        while not self.sweep.search.learns and (setting := propose(self.sweep.card, [], begun)) is not None:
            begun.append(setting)
        return [cell for setting in begun for cell in self.of.get(setting.key) or self.sweep.cells(setting)]

    @property
    def total(self) -> int:
        """How many cells there are at most."""
        return self.sweep.search.size(self.sweep.card) * len(self.sweep.card.seeds)

    def _is_done(self, row: SweepRow) -> bool:
        return len(row.cells) == len(self.sweep.card.seeds)

    def _open(self, setting: SweepSetting) -> None:
        self.of[setting.key] = self.sweep.cells(setting)
        self.waiting.extend(self.of[setting.key])

    def _deciding(self) -> dict[str, Any]:
        """What of the card makes a setting another: with another budget or more seeds the settings stay."""
        card: dict[str, Any] = msgspec.to_builtins(self.sweep.card)
        return {key: card[key] for key in ("recipes", "values", "set", "search", "search_seed")}

    def _tried(self) -> list[SweepSetting]:
        path = self.sweep.folder / TRIED
        try:
            before = msgspec.json.decode(path.read_bytes(), type=_Tried)
        except FileNotFoundError:
            return []
        except (OSError, ValueError, msgspec.DecodeError, RecursionError) as error:
            raise OutputError(f"{path}: is not what a sweep has tried: {one_line(error)}; remove it") from error
        return before.settings if before.card == self._deciding() else []

    def _write(self) -> None:
        tried = _Tried(self._deciding(), [cells[0].setting for cells in self.of.values()])
        write_whole(self.sweep.folder / TRIED, msgspec.json.format(msgspec.json.encode(tried), indent=1) + b"\n")


def winner_card(sweep: Sweep, row: SweepRow) -> tuple[str, dict[str, Any]]:
    """The name and the card of a recipe with the values that were chosen."""
    (cell, *_) = sweep.cells(row.setting)
    card, decide = cell.planned.plan.card, sweep.card.decide
    assert row.spread is not None, "a winner has scores"
    mean, deviation = row.spread
    over = f"{100 * mean:.2f}" + (f" ± {100 * deviation:.2f}" if deviation is not None else "")
    how = f"chosen by {over} on {decide.task} {decide.split} over seeds {', '.join(map(str, sweep.card.seeds))}"
    changed: Sequence[str] = [f"{key}={value}" for key, value in {**sweep.card.set, **row.setting.values}.items()]
    named = msgspec.structs.replace(
        card, name=f"{card.name}, {', '.join(changed)}", preset=f"the sweep '{sweep.card.name}', {how}", published=[]
    )
    return f"{row.setting.recipe}-{sweep.name}", msgspec.to_builtins(named)


Carrier = Callable[[Book, str, int, TrialWatcher], None]
"""Given the book of a sweep, where it is to be (``ray``), the cores of a cell where no GPU is, and who watches; it ends
with all cells done, or the time."""


def one_after_another(book: Book, on: str, cores: int, watcher: TrialWatcher) -> None:
    """Train one cell after the other in this process."""
    sweep = book.sweep
    if sweep.card.halving is not None:
        raise StsbenchError("[halving] compares cells that are trained side by side; pass --on ray, or leave it out")
    started = time.monotonic()
    while not sweep.is_over(time.monotonic() - started) and (cell := book.next()) is not None:
        (outcome,) = carry_out_trials([cell.planned], sweep.workshop, [sweep.scored_on], watcher)
        book.close(cell, score_of(sweep, outcome))


CARRIERS = Registry(
    "place of a sweep",
    {"local": "stsbench.studies.sweep:one_after_another", "ray": "stsbench.studies.on_tune:side_by_side"},
    group="carriers",
    wanted="a function, see stsbench.studies.sweep:Carrier",
)
