"""Whether a lower score, or a lower mean, is more than chance: tests of a check's matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stsbench.check.judged import Match
from stsbench.check.lock import Entry, LockedCell
from stsbench.check.packed import unpack
from stsbench.compare.align import Column
from stsbench.compare.comparison import Effort, Measured, compare_column, mean_difference
from stsbench.errors import DataError
from stsbench.results.checks import ROUNDING
from stsbench.results.folder import columns_of
from stsbench.results.items import items_problem
from stsbench.results.record import Result

OFF = {"ranks": ROUNDING, "levels": 1e-4, "right": ROUNDING}
"""How far the score that a packed column makes may lie from the locked one: ranks make the very same one."""
OF_ENCODER = ("similarity", "prediction", "correct", "recall", "i2t_rank", "t2i_rank")
"""Per-item columns that are the encoder's; the others (gold scores, subsets) are the data's."""


class Tested(NamedTuple):
    """A p-value and the test it is of; where none could be made, p is 1 and ``problem`` says why."""

    p: float
    test: str
    problem: str | None = None


def match_p(match: Match, effort: Effort) -> Tested:
    """Test a difference: paired where both sides tell their items, else by their intervals."""
    return mean_p([match], effort)


def mean_p(matches: Sequence[Match], effort: Effort) -> Tested:
    """Test the mean of several cells' differences, of which some may share sentences."""
    try:
        draws = [_draws(match, effort) for match in matches]
    except DataError as error:
        return Tested(1.0, "none", problem=str(error))
    paired = [one for one in draws if one is not None]
    if len(paired) == len(matches):
        difference = mean_difference(paired) if len(paired) > 1 else paired[0].difference
        if difference.p is not None:
            return Tested(difference.p, "paired test")
    return _of_intervals(matches)


def _of_intervals(matches: Sequence[Match]) -> Tested:
    """The test of independent normal scores whose 95% intervals are known: it does not see that items are the same."""
    from scipy import stats

    pairs = [(new[0], old[0]) for new, old in map(_both, matches)]
    variance = sum(
        ((high - low) / (2 * stats.norm.ppf(0.975))) ** 2 for p in pairs for low, high in (c.interval for c in p)
    )
    error, difference = variance**0.5, abs(sum(new.score - old.score for new, old in pairs))
    p = float(2 * stats.norm.sf(difference / error)) if error else 0.0
    locks = [entry[0] for match in matches for entry in _both(match) if entry[1] is None]
    if any(cell.paired is None for cell in locks):
        why = "the lock holds no per-item values, with which a paired test finds more: lock again beside them"
    elif len(locks) > len(matches):
        why = "two locks hold no gold scores"
    else:
        why = "no paired test is known"
    return Tested(p, f"from the intervals; {why}")


def _draws(match: Match, effort: Effort) -> Measured | None:
    new, old = _both(match)
    ours, theirs = _result(new, old), _result(old, new)
    if ours is None or theirs is None:
        return None
    column = Column(ours.task, ours.split, ours.protocol, [[theirs], [ours]])
    (draws,) = compare_column(column, ["old", "new"], effort)
    return draws


def _result(entry: Entry, other: Entry) -> Result | None:
    """An entry's Result: its own, or one made of the locked column and the other side's data, which are the same."""
    (cell, own), (_, beside) = entry, other
    if own is not None:
        return own
    return _restored(cell, beside) if cell.paired is not None and beside is not None else None


def _restored(cell: LockedCell, beside: Result) -> Result:
    """A locked cell's Result, its data's columns taken from a Result of the same data.

    Raises:
        DataError: these have no per-item columns; the locked column and their gold scores do not make the locked score.
    """
    if cell.paired is None:
        raise ValueError("a cell without per-item values cannot be restored")
    columns = _columns_of_data(columns_of(beside)) | {cell.paired.column: unpack(cell.paired, cell.n)}
    made = msgspec.structs.replace(beside, score=cell.score, interval=cell.interval, per_item=columns, path=None)
    problem = items_problem(made, columns, off=OFF[cell.paired.kind])
    if problem is not None:
        raise DataError(f"the lock's per-item values of {cell.encoder} on {cell.task}: {problem}; lock again")
    return made


def _columns_of_data(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: column for name, column in columns.items() if not name.startswith(OF_ENCODER)}


def _both(match: Match) -> tuple[Entry, Entry]:
    if match.new is None or match.old is None:
        raise ValueError("a cell that one side lacks cannot be tested")
    return match.new, match.old
