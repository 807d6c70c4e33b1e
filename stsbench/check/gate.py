"""New scores checked against old ones: which fell by more than their tolerance, by more than chance, or cannot be compared.

How far two scores of the same thing may lie apart, in classes and points: cosines of the same float32 embeddings differ by 3e-6
between implementations; vLLM's bfloat16 moves STS12 by less than 1e-4, MTEB allows 1e-3; probes drift with torch (SentEval
issues 32 and 43), most where test items are few; independent runs of one checkpoint on STS agree with printed scores to between
0.01 and 0.07 points (EvalRank's logs against SimCSE's table B.3).

A fall too small to see on one task may be plain on the mean of a suite. Cells move on their own when only machine, precision or
probes differ: where each may fall by its tolerance, the mean of k may fall by the root of the sum of their squares, divided by k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import msgspec

from stsbench.check.lock import Entry, LockedCell, Side, unpack
from stsbench.core.cards import Suite
from stsbench.core.errors import DataError, StsbenchError, UnknownName
from stsbench.core.provenance import same_encoder
from stsbench.results.comparable import suite_mean, why_not_comparable
from stsbench.results.folder import columns_of
from stsbench.results.record import Result, protocol_key
from stsbench.significance.comparison import Effort, compare_column, mean_difference
from stsbench.significance.items import Column
from stsbench.significance.paired import holm

Rule = Literal["absolute", "statistical"]
Outcome = Literal[
    "fine", "lower", "higher", "regression", "not comparable", "missing", "new", "unreadable", "not checked"
]
STOPPING: tuple[Outcome, ...] = ("not comparable", "missing", "unreadable", "not checked")
"""Outcomes beside which a check is never fine: something was not looked at."""
Pair = tuple[Entry, Entry]
"""A new cell and the old one that it is compared with."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found of one cell; scores and ``difference`` (new minus old) are never times 100."""

    encoder: str
    task: str
    split: str = "test"
    protocol: str = ""
    train_seed: int | None = None
    eval_seed: int = 0
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
        words = {"missing": "missing in the new results", "lower": "lower, which may be chance"}
        order: tuple[Outcome, ...] = ("regression", *STOPPING, "higher", "lower", "fine", "new")
        counts = [f"{self.count(one)} {words.get(one, one)}" for one in order if self.count(one)]
        means = sum(verdict.is_mean for verdict in self.verdicts)
        cells = len(self.verdicts) - means
        said = f"{cells} cell{'s' * (cells != 1)}" + (f" and {means} mean{'s' * (means != 1)}" if means else "")
        return f"{said}: {', '.join(counts) or 'none'}"


def unreadable(new: Side, old: Side | None = None) -> list[Verdict]:
    """A verdict on each file of both sides that holds no result as results must be: a check is not fine beside it."""
    problems = [("new", one) for one in new.problems] + [("old", one) for one in (old.problems if old else ())]
    return [
        Verdict(encoder=at.parent.name, task=at.name, outcome="unreadable", reason=f"{side} results: {line}")
        for side, (at, line) in problems
    ]


def not_checked(line: str) -> Check:
    """The check that could not be made at all, and why: for reports, which must say that nothing was found fine."""
    verdict = Verdict(encoder="stsbench check", task="check", outcome="not checked", reason=line)
    return Check(verdicts=[verdict], rule="absolute")


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


HALF = ("float16", "bfloat16")
FEW = 1800
"""Fewer test items than this are few: TREC has 500, MRPC 1,725; SST2, the next, 1,821."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """A class of differences: its name, how many points are no regression, and why.

    Rounding moves each pair on its own, and a correlation of n pairs by a share of it that falls with the
    root of n: where ``by_root`` is true, ``points`` are those of 1,000 items, and fewer are allowed more.
    """

    name: str
    points: float
    why: str
    by_root: bool = False

    def allowed(self, n: int) -> float:
        """The points allowed for n items."""
        return self.points * max(1.0, 1000 / n) ** 0.5 if self.by_root else self.points


TOLERANCES = {
    t.name: t
    for t in (
        Tolerance(name="same", points=0.001, why="same encoder, device, dtype and versions"),
        Tolerance(name="other-machine", points=0.01, why="same encoder, another device or other versions"),
        Tolerance(name="half", points=0.1, why="half precision on one side or both", by_root=True),
        Tolerance(name="probe", points=0.5, why="a probe trained by another device or other versions"),
        Tolerance(
            name="probe-few", points=1.5, why="a probe trained by another device or other versions, on few test items"
        ),
        Tolerance(name="changed", points=0.01, why="another encoder"),
        Tolerance(name="published", points=0.1, why="a score printed to two decimals, of another stack"),
    )
}


def classify(new: LockedCell, old: LockedCell) -> Tolerance:
    """The class of two scores that may be compared."""
    same = same_encoder(new.fingerprint, old.fingerprint)
    same_place = (new.device, new.dtype, new.versions) == (old.device, old.dtype, old.versions)
    half = any(cell.dtype in HALF for cell in (new, old))
    if same and same_place and not half:
        return TOLERANCES["same"]
    if not same and not (half and new.dtype != old.dtype):
        return TOLERANCES["changed"]
    # A similarity is of embeddings as they are; all else trains something on them.
    if "similarity" not in new.protocol:
        return TOLERANCES["probe-few" if new.n < FEW else "probe"]
    return TOLERANCES["half" if half else "other-machine" if same else "changed"]


def parse_tolerances(texts: Sequence[str]) -> dict[str, Tolerance]:
    """All classes, with the points that a user gave: ``0.5`` for every class, ``half=0.2`` for one.

    Raises:
        UnknownName: a class that does not exist.
        StsbenchError: points that are no number from 0 up.
    """
    found = dict(TOLERANCES)
    # What is given for one class stands, wherever it was typed.
    for text in sorted(texts, key=lambda one: "=" in one):
        name, equals, value = text.rpartition("=")
        if equals and name not in TOLERANCES:
            raise UnknownName("tolerance class", name, TOLERANCES, hint=f"one of {', '.join(TOLERANCES)}")
        try:
            points = float(value)
        except ValueError:
            points = -1.0
        if not 0 <= points < float("inf"):
            raise StsbenchError(f"--tolerance '{text}': give points, such as 0.5 or half=0.2")
        found |= {key: replace(found[key], points=points, by_root=False) for key in ([name] if equals else TOLERANCES)}
    return found


class Judged(NamedTuple):
    """What tolerance alone says of a cell, or of the mean of several; ``pairs`` is empty where nothing was compared."""

    verdict: Verdict
    pairs: Sequence[Pair]


class Tested(NamedTuple):
    """A p-value and the test it is of; where none could be made, p is 1."""

    p: float
    test: str
    problem: str | None = None
    """Why no test was made, or why the one that was made finds too little for a fall to be called chance."""


def mean_p(pairs: Sequence[Pair], effort: Effort) -> Tested:
    """Test the difference of a cell, or of the mean of several, of which some may share sentences.

    The test is paired where both sides have their items, else by their intervals, which excuse no fall.
    """
    from scipy import special

    try:
        columns = [(_result(new, old), _result(old, new)) for new, old in pairs]
        paired = [
            one
            for ours, theirs in columns
            if ours is not None and theirs is not None
            for one in compare_column(
                Column(ours.task, ours.split, ours.protocol, [[theirs], [ours]]), ["old", "new"], effort
            )
        ]
    except DataError as broken:
        return Tested(1.0, "none", problem=str(broken))
    if len(paired) == len(pairs):
        difference = mean_difference(paired) if len(paired) > 1 else paired[0].difference
        if difference.p is not None:
            return Tested(difference.p, "paired test")
    # Of independent normal scores whose 95% intervals are known: it does not see that items are the same.
    widths = [high - low for pair in pairs for low, high in (cell.interval for cell, _ in pair)]
    error = sum((width / (2 * special.ndtri(0.975))) ** 2 for width in widths) ** 0.5
    apart = abs(sum(new.score - old.score for (new, _), (old, _) in pairs))
    p = float(2 * special.ndtr(-apart / error)) if error else 0.0
    locked = [cell for pair in pairs for cell, result in pair if result is None]
    if any(cell.paired is None for cell in locked):
        why = "the lock holds no per-item values; lock again beside them"
    else:
        why = "two locks hold no gold scores" if len(locked) > len(pairs) else "no paired test is known"
    return Tested(p, "from the intervals", problem=why)


def _result(entry: Entry, other: Entry) -> Result | None:
    """An entry's Result: its own, or one made of the locked column and the other side's data, which are the same."""
    (cell, own), (_, beside) = entry, other
    if own is not None or cell.paired is None or beside is None:
        return own
    columns = {**columns_of(beside), cell.paired.column: unpack(cell.paired, cell.n)}
    return msgspec.structs.replace(beside, score=cell.score, interval=cell.interval, per_item=columns, path=None)


def find_means(cells: Sequence[Judged], suites: Mapping[str, Suite]) -> list[Judged]:
    """The mean of each suite that has one, for each encoder, protocol and seed all of whose cells were compared."""
    groups: dict[tuple[object, ...], dict[str, Judged]] = {}
    for one in cells:
        verdict = one.verdict
        if one.pairs and verdict.split in ("test", "all"):
            key = verdict.encoder, verdict.protocol, verdict.train_seed, verdict.eval_seed
            groups.setdefault(key, {}).setdefault(verdict.task, one)
    averaged = [suite for suite in suites.values() if suite.average and len(suite.tasks) > 1]
    means = (_mean(suite, mine) for mine in groups.values() for suite in averaged)
    return [one for one in means if one is not None]


def _mean(suite: Suite, mine: Mapping[str, Judged]) -> Judged | None:
    scores = [(task, one.verdict.new, one.verdict.old) for task, one in mine.items()]
    new = suite_mean(suite.tasks, {task: score for task, score, _ in scores}.get)
    old = suite_mean(suite.tasks, {task: score for task, _, score in scores}.get)
    if new is None or old is None:
        return None
    cells, k = [mine[task] for task in suite.tasks], len(suite.tasks)
    names = list(dict.fromkeys(str(one.verdict.tolerance) for one in cells))
    points = sum((one.verdict.points or 0.0) ** 2 for one in cells) ** 0.5 / k
    bare = replace(cells[0].verdict, task=f"mean of {suite.name}", split="test", new=new, old=old, is_mean=True)
    why = f"the mean of {k} cells, each with a tolerance of its own"
    judged = within(bare, new - old, points=points, name=names[0] if len(names) == 1 else "several", why=why)
    return Judged(judged, [pair for one in cells for pair in one.pairs])


UNCHANGED = ("same", "other-machine")
"""Classes of one and the same encoder: between its two scores lies no sampling that a test could ask about."""


def check(
    new: Side,
    old: Side,
    *,
    rule: Rule = "absolute",
    exact: bool = False,
    allow_missing: bool = False,
    chosen: bool = False,
    tolerances: Mapping[str, Tolerance] = TOLERANCES,
    suites: Mapping[str, Suite] | None = None,
    effort: Effort | None = None,
) -> Check:
    """Judge every cell of both sides, and the means over suites all of whose cells are compared.

    Each side has the current score of each cell. A score may lie below the old one by its class's tolerance. By the rule
    ``statistical`` a lower one is a regression only where the difference is also real: by the paired permutation test where
    both sides have per-item columns, else by their intervals as if the items were not the same, which finds too little to
    excuse a fall: one that they do not show to be real is not comparable. p-values are corrected after Holm over all cells. The
    same encoder's scores are always judged by the tolerance alone. A file that holds no result as it must be, or one that its
    per-item columns do not make, is a verdict of its own. Means are judged in the same way, and corrected by themselves.

    With ``chosen`` the new side's encoders were chosen by name: those that only the old side has are none of this check's.
    ``suites`` are those whose means are judged. For ``exact`` and ``allow_missing`` see :class:`Check`.

    Raises:
        DataError: no encoder is in both; per-item columns that a test needs are missing or broken.
    """
    effort = effort or Effort()
    if chosen:
        # What the old side has of the new side's encoders, be it readable or not; all of it where they are others.
        found = old.only(list({cell.encoder: None for cell, _ in new.cells}))
        old = found if found.cells or found.problems else old
    new, old = new.verified(), old.verified()
    verdicts = broken = unreadable(new, old)
    if (names := match_encoders(new, old)) or not broken:
        cells = [_judge(*pair, tolerances) for pair in match_cells(new.cells, old.cells, names)]
        judged = [*RULES[rule](cells, effort), *RULES[rule](find_means(cells, suites or {}), effort)]
        verdicts = [*judged, *_only_old(old, names), *broken]
    return Check(verdicts=verdicts, rule=rule, exact=exact, allow_missing=allow_missing)


def _by_test(judged: Sequence[Judged], effort: Effort) -> list[Verdict]:
    """The verdicts on lower scores put right by their tests, corrected over all that were compared."""
    tests = {
        at: mean_p(one.pairs, effort)
        for at, one in enumerate(judged)
        if one.verdict.outcome == "regression" and one.verdict.tolerance not in UNCHANGED
    }
    compared = [at for at, one in enumerate(judged) if one.pairs]
    corrected = dict(zip(compared, holm([tests[at].p if at in tests else 1.0 for at in compared]), strict=True))
    verdicts = [one.verdict for one in judged]
    for at, tested in tests.items():
        verdict, p = verdicts[at], corrected[at]
        if tested.problem is not None and not p < effort.level:
            why = f"{verdict.reason}; the statistical rule cannot judge it: {tested.problem}"
            verdicts[at] = replace(verdict, outcome="not comparable", reason=why)
        else:
            said = f"{'real' if p < effort.level else 'may be chance'}, corrected p {p:.2g} ({tested.test})"
            outcome: Outcome = "regression" if p < effort.level else "lower"
            verdicts[at] = replace(verdict, outcome=outcome, reason=f"{verdict.reason}; {said}", p=p)
    return verdicts


RULES: Mapping[Rule, Callable[[Sequence[Judged], Effort], list[Verdict]]] = {
    "absolute": lambda judged, effort: [one.verdict for one in judged],
    "statistical": _by_test,
}
"""What makes verdicts of the judgements by tolerance: of all cells, and again of all means over suites."""


def match_encoders(new: Side, old: Side) -> dict[str, str]:
    """The old name of each of the new side's encoders that has one; none where a side has files that cannot be read.

    Where each side has one encoder only, its name may be another: unless a file that cannot be read may be its own.

    Raises:
        DataError: a side has no cells, or no encoder is in both, and all files can be read.
    """
    mine, theirs = ({cell.encoder: None for cell, _ in side.cells} for side in (new, old))
    names = {name: name for name in mine if name in theirs}
    if names or new.problems or old.problems:
        return names
    if not mine or not theirs:
        raise DataError(f"the {'old' if mine else 'new'} side of the check holds no results")
    if len(mine) == len(theirs) == 1:
        return {next(iter(mine)): next(iter(theirs))}
    listed = (", ".join(list(side)[:3]) for side in (mine, theirs))
    hint = "choose one of each with --encoder and --against-encoder"
    raise DataError(f"no encoder is in both: new {next(listed)}; old {next(listed)}; {hint}")


def match_cells(
    new: Sequence[Entry], old: Sequence[Entry], names: Mapping[str, str]
) -> Iterator[tuple[Entry | None, Entry | None]]:
    """Each cell of the new side's encoders with the old cell it is to be checked against; ``names`` are their old names.

    Cells of one task that were scored alike are matched. What is then left on both sides was scored in different ways, and is
    matched to say how they differ.
    """
    for encoder in dict.fromkeys(cell.encoder for cell, _ in new):
        ours = [entry for entry in new if entry[0].encoder == encoder]
        others = [entry for entry in old if entry[0].encoder == names.get(encoder)]
        for task in dict.fromkeys(cell.task for cell, _ in (*ours, *others)):
            mine, left = ({_scored(e[0]): e for e in side if e[0].task == task} for side in (ours, others))
            alike = {scored: left.pop(scored) for scored in mine if scored in left}
            for scored, entry in mine.items():
                near = [one for one in left if one[:2] == scored[:2]] or list(left)
                yield entry, alike.get(scored) or (left.pop(near[0]) if near else None)
            yield from ((None, theirs) for theirs in left.values())


def _only_old(old: Side, names: Mapping[str, str]) -> Iterator[Verdict]:
    left = {cell.encoder: [one for one, _ in old.cells if one.encoder == cell.encoder] for cell, _ in old.cells}
    hint = "choose others with --encoder, or allow it with --allow-missing"
    for first, *others in (cells for encoder, cells in left.items() if encoder not in names.values()):
        reason = f"the new results have no encoder of this name; {hint}"
        one = replace(_bare(first), outcome="missing", reason=reason)
        yield replace(one, task=f"all {1 + len(others)} cells", protocol="") if others else one


def _scored(cell: LockedCell) -> tuple[object, ...]:
    return cell.split, protocol_key(cell.protocol), cell.seeds


def _bare(cell: LockedCell) -> Verdict:
    return Verdict(
        encoder=cell.encoder,
        task=cell.task,
        split=cell.split,
        protocol=str(cell.protocol["name"]),
        train_seed=cell.train_seed,
        eval_seed=cell.eval_seed,
        outcome="new",
        reason="the old results have no such cell",
    )


def _judge(new: Entry | None, old: Entry | None, tolerances: Mapping[str, Tolerance]) -> Judged:
    if new is None and old is not None:
        reason = "the new results have no such cell"
        return Judged(replace(_bare(old[0]), old=old[0].score, outcome="missing", reason=reason), [])
    assert new is not None, "a pair has a side"
    if old is None:
        return Judged(replace(_bare(new[0]), new=new[0].score), [])
    ours, theirs = new[0], old[0]
    bare = replace(_bare(ours), new=ours.score, old=theirs.score)
    why = why_not_comparable(ours, theirs)
    if why is None and ours.seeds != theirs.seeds:
        field = "train_seed" if ours.train_seed != theirs.train_seed else "eval_seed"
        why = f"{field} differs: {getattr(ours, field)} against {getattr(theirs, field)}"
    if why is not None:
        return Judged(replace(bare, outcome="not comparable", reason=why), [])
    tolerance = tolerances[classify(ours, theirs).name]
    points, difference = tolerance.allowed(ours.n), ours.score - theirs.score
    return Judged(within(bare, difference, points=points, name=tolerance.name, why=tolerance.why), [(new, old)])
