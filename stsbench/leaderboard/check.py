"""New scores checked against old ones: which fell by more than their tolerance, and which cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from scipy import stats

from stsbench.errors import DataError
from stsbench.leaderboard.align import Column
from stsbench.leaderboard.comparable import protocol_key, why_not_comparable
from stsbench.leaderboard.compare import Effort, compare_column
from stsbench.leaderboard.lock import Entry, LockedCell, Side
from stsbench.leaderboard.paired import holm
from stsbench.leaderboard.tolerance import TOLERANCES, Tolerance, classify

Rule = Literal["absolute", "statistical"]
RULES: tuple[Rule, ...] = ("absolute", "statistical")
Outcome = Literal["fine", "lower", "higher", "regression", "not comparable", "missing", "new"]
UNCHANGED = ("same", "other-machine")
"""Classes of one and the same encoder: between its two scores lies no sampling that a test could ask about."""


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


@dataclass(frozen=True, kw_only=True)
class Check:
    """The verdicts on all cells, and what they come to."""

    verdicts: Sequence[Verdict]
    rule: Rule
    exact: bool = False

    def count(self, *outcomes: Outcome) -> int:
        """How many cells came out so."""
        return sum(verdict.outcome in outcomes for verdict in self.verdicts)

    def fails(self, verdict: Verdict) -> bool:
        """Whether a verdict is one that a regression test stops at."""
        return verdict.outcome == "regression" or (self.exact and verdict.outcome == "higher")

    @property
    def exit_code(self) -> int:
        """0 fine; 1 a regression; 2 none, but cells that cannot be compared, or no cell at all."""
        if any(map(self.fails, self.verdicts)):
            return 1
        return 2 if self.count("not comparable", "missing") or not self.count("fine", "lower", "higher") else 0

    @property
    def summary(self) -> str:
        """How many cells came out how, in one line."""
        outcomes: dict[Outcome, str] = {
            "regression": "regression",
            "not comparable": "not comparable",
            "missing": "missing in the new results",
            "higher": "higher",
            "lower": "lower, which may be chance",
            "fine": "fine",
            "new": "new",
        }
        counts = [f"{self.count(key)} {text}" for key, text in outcomes.items() if self.count(key)]
        return f"{len(self.verdicts)} cell{'s' * (len(self.verdicts) != 1)}: {', '.join(counts) or 'none'}"


def check(
    new: Side,
    old: Side,
    *,
    rule: Rule = "absolute",
    exact: bool = False,
    tolerances: Mapping[str, Tolerance] = TOLERANCES,
    effort: Effort | None = None,
) -> Check:
    """Judge every cell of the new side's encoders.

    A score may lie below the old one by its class's tolerance. By the rule ``statistical`` a lower one is
    a regression only where the difference is also real: by the paired permutation test where both sides
    have per-item columns, else by their intervals as if the items were not the same, which errs towards
    fine; p-values are corrected after Holm over all cells. The same encoder's scores are always judged by
    the tolerance alone.

    Args:
        new: the cells to be checked.
        old: what they are checked against.
        rule: see above.
        exact: a score above its tolerance fails too.
        tolerances: the classes' points.
        effort: permutations, seed and level of the tests.

    Raises:
        DataError: no encoder is in both; per-item columns that a test needs are missing or broken.
    """
    effort = effort or Effort()
    verdicts: list[Verdict] = []
    lower: dict[int, Tested] = {}
    for match in match_cells(new.cells, old.cells):
        verdict = _judge(match, tolerances)
        if rule == "statistical" and verdict.outcome == "regression" and verdict.tolerance not in UNCHANGED:
            lower[len(verdicts)] = _test(match, effort)
        verdicts.append(verdict)
    _apply(lower, verdicts, effort.level)
    return Check(verdicts=verdicts, rule=rule, exact=exact)


def _apply(lower: Mapping[int, Tested], verdicts: list[Verdict], level: float) -> None:
    """Put the verdicts on lower scores right by their tests, corrected over all cells that were compared."""
    compared = [at for at, verdict in enumerate(verdicts) if verdict.difference is not None]
    corrected = dict(zip(compared, holm([lower[at].p if at in lower else 1.0 for at in compared]), strict=True))
    for at, tested in lower.items():
        verdicts[at] = _with_test(verdicts[at], tested._replace(p=corrected[at]), level)


def match_cells(new: Sequence[Entry], old: Sequence[Entry]) -> Iterator[Match]:
    """Each cell of the new side's encoders with the old cell it is to be checked against.

    Encoders are matched by name; where each side has one encoder only, its name may be another.

    Raises:
        DataError: a side has no cells, or no encoder is in both.
    """
    mine, theirs = ({cell.encoder: None for cell, _ in side} for side in (new, old))
    if not mine or not theirs:
        raise DataError(f"the {'old' if mine else 'new'} side of the check holds no results")
    names = {name: name for name in mine if name in theirs}
    if not names and len(mine) == len(theirs) == 1:
        names = {next(iter(mine)): next(iter(theirs))}
    if not names:
        listed = (", ".join(list(side)[:3]) for side in (mine, theirs))
        hint = "choose one of each with --encoder and --against-encoder"
        raise DataError(f"no encoder is in both: new {next(listed)}; old {next(listed)}; {hint}")
    for encoder in mine:
        ours = [e for e in new if e[0].encoder == encoder]
        others = [e for e in old if e[0].encoder == names.get(encoder)]
        for task in dict.fromkeys(e[0].task for e in (*ours, *others)):
            yield from _match_task(*([e for e in side if e[0].task == task] for side in (ours, others)))


def _match_task(new: Sequence[Entry], old: Sequence[Entry]) -> Iterator[Match]:
    """Match the cells of one encoder on one task.

    Cells scored alike are matched, the old one of the same fingerprint before the latest. What is then
    left on both sides was scored in different ways, and is matched to be told apart.
    """
    alike: dict[tuple[object, ...], list[Entry]] = {}
    for entry in old:
        alike.setdefault(_scored(entry[0]), []).append(entry)
    matched = {_scored(ours[0]) for ours in new if _scored(ours[0]) in alike}
    left = [entries[0] for scored, entries in alike.items() if scored not in matched]
    for ours in new:
        if _scored(ours[0]) in matched:
            found = alike[_scored(ours[0])]
            same = [theirs for theirs in found if theirs[0].fingerprint == ours[0].fingerprint]
            yield Match(ours, same[0] if same else max(found, key=_created))
        else:
            near = [theirs for theirs in left if _scored(theirs[0])[:2] == _scored(ours[0])[:2]] or left
            yield Match(ours, near[0] if near else None)
            left = [theirs for theirs in left if not near or theirs is not near[0]]
    yield from (Match(None, theirs) for theirs in left)


def _scored(cell: LockedCell) -> tuple[object, ...]:
    return cell.split, protocol_key(cell.protocol), cell.seeds


def _created(entry: Entry) -> str:
    return str(entry[1].result.run.get("created", "")) if entry[1] else ""


def _judge(match: Match, tolerances: Mapping[str, Tolerance]) -> Verdict:
    """The verdict by tolerance alone."""
    known = match.new or match.old
    if known is None:
        raise ValueError("a match has at least one side")
    cell = known[0]
    bare = Verdict(
        encoder=cell.encoder,
        task=cell.task,
        split=cell.split,
        protocol=str(cell.protocol["name"]),
        train_seed=cell.train_seed,
        eval_seed=cell.eval_seed,
        outcome="new",
        reason="the old results have no such cell",
        new=match.new[0].score if match.new else None,
        old=match.old[0].score if match.old else None,
    )
    if match.new is None:
        return replace(bare, outcome="missing", reason="the new results have no such cell")
    if match.old is None:
        return bare
    new, old = match.new[0], match.old[0]
    why = why_not_comparable(new, old)
    if why is None and new.seeds != old.seeds:
        field = "train_seed" if new.train_seed != old.train_seed else "eval_seed"
        why = f"{field} differs: {getattr(new, field)} against {getattr(old, field)}"
    if why is not None:
        return replace(bare, outcome="not comparable", reason=why)
    return _within(bare, new.score - old.score, tolerances[classify(new, old).name], new.n)


def _within(verdict: Verdict, difference: float, tolerance: Tolerance, n: int) -> Verdict:
    points, size = tolerance.allowed(n), abs(100 * difference)
    # Half an ulp of a percentage must not decide: 0.7237 - 0.7227 is a hair above 0.1 points.
    beyond = size > points + 1e-9
    outcome: Outcome = "fine" if not beyond else "higher" if difference > 0 else "regression"
    moved = "is within the tolerance" if not beyond else f"{'rose' if difference > 0 else 'fell'} by {size:.3f} points"
    return replace(
        verdict,
        outcome=outcome,
        reason=f"{moved}; {points:.3g} allowed: {tolerance.why}",
        difference=difference,
        tolerance=tolerance.name,
        points=points,
    )


class Tested(NamedTuple):
    """A p-value and the test it is of."""

    p: float
    test: str


def _test(match: Match, effort: Effort) -> Tested:
    """Test a difference: paired where both sides have their items, else by their intervals."""
    (new, ours), (old, theirs) = _both(match)
    if ours is not None and theirs is not None:
        column = Column(new.task, new.split, new.protocol, [[theirs], [ours]])
        ((_, draws),) = compare_column(column, ["old", "new"], effort)
        if draws.difference.p is not None:
            return Tested(draws.difference.p, "paired test")
    # Two independent normal scores whose 95% intervals are known.
    error = sum(((high - low) / (2 * stats.norm.ppf(0.975))) ** 2 for low, high in (new.interval, old.interval)) ** 0.5
    return Tested(float(2 * stats.norm.sf(abs(new.score - old.score) / error)) if error else 0.0, "from the intervals")


def _both(match: Match) -> tuple[Entry, Entry]:
    if match.new is None or match.old is None:
        raise ValueError("a cell that one side lacks cannot be tested")
    return match.new, match.old


def _with_test(verdict: Verdict, tested: Tested, level: float) -> Verdict:
    """The verdict on a lower score once its p-value is known."""
    real = tested.p < level
    said = f"{'real' if real else 'may be chance'}, corrected p {tested.p:.2g} ({tested.test})"
    outcome: Outcome = "regression" if real else "lower"
    return replace(verdict, outcome=outcome, reason=f"{verdict.reason}; {said}", p=tested.p)
