"""What a check says of one cell, or of the mean over a suite, and what all of it comes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from stsbench.check.lock import Entry, Side

Rule = Literal["absolute", "statistical"]
Outcome = Literal[
    "fine", "lower", "higher", "regression", "not comparable", "missing", "new", "unreadable", "not checked"
]
STOPPING: tuple[Outcome, ...] = ("not comparable", "missing", "unreadable", "not checked")
"""Outcomes beside which a check is never fine: something was not looked at."""


class Match(NamedTuple):
    """A new cell and the old one it is checked against; None where a side has none."""

    new: Entry | None
    old: Entry | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found of one cell; scores and ``difference`` (new minus old) are never times 100."""

    encoder: str
    task: str
    split: str
    protocol: str
    train_seed: int | None
    eval_seed: int
    outcome: Outcome
    reason: str
    new: float | None = None
    old: float | None = None
    difference: float | None = None
    tolerance: str | None = None
    points: float | None = None
    p: float | None = None
    is_mean: bool = False
    """Whether it is of the mean over a suite's tasks."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """The verdicts on all cells, and what they come to."""

    verdicts: Sequence[Verdict]
    rule: Rule
    exact: bool = False
    allow_missing: bool = False
    """Whether what only the old results have is no error."""

    def count(self, *outcomes: Outcome) -> int:
        """How many cells came out so."""
        return sum(verdict.outcome in outcomes for verdict in self.verdicts)

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict is one that a regression test stops at."""
        return verdict.outcome == "regression" or (self.exact and verdict.outcome == "higher")

    def stops(self, verdict: Verdict) -> bool:
        """Whether a verdict is one of something that was not compared, and must have been."""
        return verdict.outcome in STOPPING and not (verdict.outcome == "missing" and self.allow_missing)

    @property
    def exit_code(self) -> int:
        """0 fine; 1 a regression; 2 none, but something that was not compared, or nothing compared at all."""
        if any(map(self.fails, self.verdicts)):
            return 1
        compared = self.count("fine", "lower", "higher")
        return 2 if any(map(self.stops, self.verdicts)) or not compared else 0

    @property
    def summary(self) -> str:
        """How many cells and means came out how, in one line."""
        outcomes: dict[Outcome, str] = {
            "regression": "regression",
            "not comparable": "not comparable",
            "missing": "missing in the new results",
            "unreadable": "unreadable",
            "not checked": "not checked",
            "higher": "higher",
            "lower": "lower, which may be chance",
            "fine": "fine",
            "new": "new",
        }
        counts = [f"{self.count(key)} {text}" for key, text in outcomes.items() if self.count(key)]
        means = sum(verdict.is_mean for verdict in self.verdicts)
        cells = len(self.verdicts) - means
        said = f"{cells} cell{'s' * (cells != 1)}" + (f" and {means} mean{'s' * (means != 1)}" if means else "")
        return f"{said}: {', '.join(counts) or 'none'}"


def unreadable(new: Side, old: Side | None = None) -> list[Verdict]:
    """A verdict on each file of both sides that holds no result as results must be: a check is not fine beside it."""
    sides = {"new": new, "old": old or Side([], [])}
    return [
        Verdict(
            encoder=problem.path.parent.name,
            task=problem.path.name,
            split="test",
            protocol="",
            train_seed=None,
            eval_seed=0,
            outcome="unreadable",
            reason=f"{name} results: {problem.line}",
        )
        for name, side in sides.items()
        for problem in side.problems
    ]


def not_checked(line: str, rule: Rule = "absolute") -> Check:
    """The check that could not be made at all, and why: for reports, which must tell that nothing was found fine."""
    verdict = Verdict(
        encoder="stsbench check",
        task="check",
        split="test",
        protocol="",
        train_seed=None,
        eval_seed=0,
        outcome="not checked",
        reason=line,
    )
    return Check(verdicts=[verdict], rule=rule)


def within(verdict: Verdict, difference: float, *, points: float, name: str, why: str) -> Verdict:
    """The verdict by tolerance alone: ``points`` are allowed, by the class ``name``."""
    size = abs(100 * difference)
    # Half an ulp of a percentage must not decide: 0.7237 - 0.7227 is a hair above 0.1 points.
    beyond = size > points + 1e-9
    outcome: Outcome = "fine" if not beyond else "higher" if difference > 0 else "regression"
    moved = "is within the tolerance" if not beyond else f"{'rose' if difference > 0 else 'fell'} by {size:.3f} points"
    return replace(
        verdict,
        outcome=outcome,
        reason=f"{moved}; {points:.3g} allowed: {why}",
        difference=difference,
        tolerance=name,
        points=points,
    )
