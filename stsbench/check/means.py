"""Means over suites in a check: a fall too small to see on one task may be plain on their mean.

Cells move on their own when only machine, precision or probes differ: where each may fall by its
tolerance, the mean of k may fall by the root of the sum of their squares, divided by k.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from stsbench.cards.facts import Suite
from stsbench.check.judged import Match, Verdict, within
from stsbench.check.significance import Tested, mean_p
from stsbench.compare.comparison import Effort

Judged = tuple[Match, Verdict]
"""A match and what tolerance alone says of it."""


class SuiteMean(NamedTuple):
    """The verdict on a mean by tolerance alone, and the matches it is over."""

    verdict: Verdict
    matches: Sequence[Match]

    def test(self, effort: Effort) -> Tested:
        """Test the mean's difference."""
        return mean_p(self.matches, effort)


def find_means(judged: Sequence[Judged], suites: Mapping[str, Suite]) -> list[SuiteMean]:
    """The mean of each suite that has one, for each encoder, protocol and seed all of whose cells were compared."""
    groups: dict[tuple[object, ...], dict[str, Judged]] = {}
    for match, verdict in judged:
        if verdict.difference is not None and verdict.split in ("test", "all"):
            key = verdict.encoder, verdict.protocol, verdict.train_seed, verdict.eval_seed
            groups.setdefault(key, {}).setdefault(verdict.task, (match, verdict))
    return [mean for cells in groups.values() for mean in _means(cells, suites)]


def _means(cells: Mapping[str, Judged], suites: Mapping[str, Suite]) -> Iterator[SuiteMean]:
    for suite in suites.values():
        if suite.average and len(suite.tasks) > 1 and all(task in cells for task in suite.tasks):
            mine = [cells[task] for task in suite.tasks]
            yield SuiteMean(_verdict(suite, [verdict for _, verdict in mine]), [match for match, _ in mine])


def _verdict(suite: Suite, verdicts: Sequence[Verdict]) -> Verdict:
    k = len(verdicts)
    new, old = (sum(getattr(one, side) for one in verdicts) / k for side in ("new", "old"))
    names = list(dict.fromkeys(str(one.tolerance) for one in verdicts))
    points = sum((one.points or 0.0) ** 2 for one in verdicts) ** 0.5 / k
    mean = replace(verdicts[0], task=f"mean of {suite.name}", split="test", new=new, old=old, is_mean=True)
    why = f"the mean of {k} cells, each with a tolerance of its own"
    return within(mean, new - old, points=points, name=names[0] if len(names) == 1 else "several", why=why)
