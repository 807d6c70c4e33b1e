"""The book of a sweep: what of it is done, under way and to come, and what has won."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from stsbench.errors import OutputError, one_line
from stsbench.files.whole import write_whole
from stsbench.numbers.spread import Spread, spread
from stsbench.studies.searches import SweepSetting, TriedSetting
from stsbench.studies.sweep import CellScore, Sweep, SweepCell

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

    def __init__(self, sweep: Sweep, told: Callable[[SweepCell, CellScore], None] = lambda cell, score: None) -> None:
        """Read what was tried before.

        Args:
            sweep: what is carried out.
            told: called with each cell that is done.
        """
        self.sweep, self.told = sweep, told
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
        self.told(cell, score)

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
