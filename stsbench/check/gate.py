"""New scores checked against old or published ones: which fell by more than their tolerance, by more than chance, or cannot be compared.

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
from typing import Any, Literal, NamedTuple

import msgspec

from stsbench.boards.published.rows import ColumnFacts, misprints, protocols, published_row
from stsbench.boards.tables.columns import make_column_spec, scores_by_seed
from stsbench.check.lock import CheckSide, LockedCell, hold_to_data, unpack
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError, UnknownName
from stsbench.core.provenance import is_same_encoder
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.folder import read_item_columns
from stsbench.results.groups import EncoderResults, describe_mismatch, group_by_encoder, suite_mean
from stsbench.results.record import Result
from stsbench.significance.comparison import (
    MeasuredDifference,
    TestSettings,
    compare_on_task,
    mean_difference,
)
from stsbench.significance.paired import holm

Rule = Literal["absolute", "statistical"]
Outcome = Literal[
    "regression",
    "not comparable",
    "missing",
    "unreadable",
    "not checked",
    "not verified",
    "higher",
    "lower",
    "fine",
    "new",
]
Kind = Literal["failure", "error", "skipped", ""]
KINDS: Mapping[Outcome, Kind] = {
    "regression": "failure",
    "not comparable": "error",
    "missing": "error",
    "unreadable": "error",
    "not checked": "error",
    "not verified": "error",
    "higher": "",
    "lower": "",
    "fine": "",
    "new": "skipped",
}
"""What each outcome is to a regression test, in JUnit's words: beside an error, where something was not looked at, nothing is fine."""
Pair = tuple[LockedCell, LockedCell]
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
    not_verified: str = ""
    """Why scores of it are not verified: ``old: its per-item columns are not here``; else empty."""

    @classmethod
    def of(cls, cell: LockedCell, outcome: Outcome, reason: str, **more: Any) -> Verdict:  # noqa: ANN401 - fields
        """The verdict on one cell."""
        named = {
            key: getattr(cell, key)
            for key in ("encoder", "task", "split", "train_seed", "eval_seed")
        }
        protocol = str(cell.protocol["name"])
        return cls(**{**named, "protocol": protocol, "outcome": outcome, "reason": reason, **more})


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The verdicts on all cells, and what they come to."""

    verdicts: Sequence[Verdict]
    rule: Rule
    exact: bool = False
    allow_missing: bool = False
    """Whether what only the old results have is no error."""

    def count(self, *outcomes: Outcome) -> int:
        """How many cells came out so."""
        return sum(verdict.outcome in outcomes for verdict in self.verdicts)

    def kind(self, verdict: Verdict) -> Kind:
        """What a verdict is to a regression test; nothing: it passes."""
        if self.exact and verdict.outcome == "higher":
            return "failure"
        return (
            "skipped"
            if self.allow_missing and verdict.outcome == "missing"
            else KINDS[verdict.outcome]
        )

    @property
    def exit_code(self) -> int:
        """0 fine; 1 a regression; 2 none, but something that was not compared, or nothing compared at all."""
        kinds = set(map(self.kind, self.verdicts))
        return (
            1
            if "failure" in kinds
            else 2
            if "error" in kinds or not self.count("fine", "lower", "higher")
            else 0
        )

    @property
    def summary(self) -> str:
        """How many cells and means came out how, in one line."""
        words = {"missing": "missing in the new results", "lower": "lower, which may be chance"}
        counts = [f"{self.count(one)} {words.get(one, one)}" for one in KINDS if self.count(one)]
        means = sum(verdict.is_mean for verdict in self.verdicts)
        cells = len(self.verdicts) - means
        said = f"{cells} cell{'s' * (cells != 1)}" + (
            f" and {means} mean{'s' * (means != 1)}" if means else ""
        )
        unverified = sum(bool(verdict.not_verified) for verdict in self.verdicts)
        is_counted = not unverified or self.count("not verified")
        more = "" if is_counted else f"; {unverified} not verified"
        return f"{said}: {', '.join(counts) or 'none'}{more}"


def report_unreadable(new: CheckSide, old: CheckSide | None = None) -> list[Verdict]:
    """A verdict on each file of both sides that holds no result as results must be: a check is not fine beside it."""
    sides = {"new": new, "old": old}
    return [
        Verdict(
            encoder=at.parent.name,
            task=at.name,
            outcome="unreadable",
            reason=f"{side} results: {line}",
        )
        for side, held in sides.items()
        for at, line in (held.problems if held else ())
    ]


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
        Tolerance(
            name="other-machine", points=0.01, why="same encoder, another device or other versions"
        ),
        Tolerance(name="half", points=0.1, why="half precision on one side or both", by_root=True),
        Tolerance(
            name="probe", points=0.5, why="a probe trained by another device or other versions"
        ),
        Tolerance(
            name="probe-few",
            points=1.5,
            why="a probe trained by another device or other versions, on few test items",
        ),
        Tolerance(name="changed", points=0.01, why="another encoder"),
        Tolerance(
            name="published", points=0.1, why="a score printed to two decimals, of another stack"
        ),
    )
}


def apply_tolerance(verdict: Verdict, tolerance: Tolerance, n: int) -> Verdict:
    """The verdict on a score of n items by tolerance alone."""
    difference, points = (verdict.new or 0.0) - (verdict.old or 0.0), tolerance.allowed(n)
    size, moved = abs(100 * difference), "is within the tolerance"
    outcome: Outcome = "fine"
    # Half an ulp of a percentage must not decide: 0.7237 - 0.7227 is a hair above 0.1 points.
    if size > points + 1e-9:
        outcome, way = ("higher", "rose") if difference > 0 else ("regression", "fell")
        moved = f"{way} by {size:.3f} points"
    reason = f"{moved}; {points:.3g} allowed: {tolerance.why}"
    return replace(
        verdict,
        outcome=outcome,
        reason=reason,
        difference=difference,
        tolerance=tolerance.name,
        points=points,
    )


def classify(new: LockedCell, old: LockedCell) -> str:
    """The class of two scores that may be compared, one of ``TOLERANCES``."""
    same = is_same_encoder(new.fingerprint, old.fingerprint)
    half = any(cell.dtype in HALF for cell in (new, old))
    if same and new.place == old.place and not half:
        return "same"
    if not same and not (half and new.dtype != old.dtype):
        return "changed"
    # A similarity is of embeddings as they are; all else trains something on them.
    if "similarity" not in new.protocol:
        return "probe-few" if new.n < FEW else "probe"
    return "half" if half else "other-machine"


def parse_tolerances(texts: Sequence[str]) -> dict[str, Tolerance]:
    """All classes, with the points that a user gave: ``0.5`` for every class, ``half=0.2`` for one.

    Raises UnknownName: a class that does not exist; StsbenchError: points that are no number from 0 up.
    """
    found = dict(TOLERANCES)
    # What is given for one class stands, wherever it was typed.
    for text in sorted(texts, key=lambda one: "=" in one):
        name, equals, value = text.rpartition("=")
        if equals and name not in TOLERANCES:
            raise UnknownName(
                "tolerance class", name, TOLERANCES, hint=f"one of {', '.join(TOLERANCES)}"
            )
        try:
            points = float(value)
        except ValueError:
            points = -1.0
        if not 0 <= points < float("inf"):
            raise StsbenchError(f"--tolerance '{text}': give points, such as 0.5 or half=0.2")
        found |= {
            key: replace(found[key], points=points, by_root=False)
            for key in ([name] if equals else TOLERANCES)
        }
    return found


class ToleranceVerdict(NamedTuple):
    """What tolerance alone says of a cell, or of the mean of several; ``pairs`` is empty where nothing was compared."""

    verdict: Verdict
    pairs: Sequence[Pair]


class TestResult(NamedTuple):
    """A p-value and the test it is of; where none could be made, p is 1."""

    p: float
    test: str
    problem: str | None = None
    """Why no test was made, or why the one that was made finds too little for a fall to be called chance."""


def mean_p(pairs: Sequence[Pair], effort: TestSettings) -> TestResult:
    """Test the difference of a cell, or of the mean of several, of which some may share sentences.

    The test is paired where both sides have their items, else by their intervals, which excuse no fall.
    """
    from scipy import special

    try:
        paired: list[MeasuredDifference] = []
        for new, old in pairs:
            ours, theirs = _result(new, old), _result(old, new)
            if ours is not None and theirs is not None:
                paired += compare_on_task({"old": [theirs], "new": [ours]}, effort)
    except DataError as broken:
        return TestResult(1.0, "none", problem=str(broken))
    if len(paired) == len(pairs):
        difference = mean_difference(paired) if len(paired) > 1 else paired[0].difference
        if difference.p is not None:
            return TestResult(difference.p, "paired test")
    # Of independent normal scores whose 95% intervals are known: it does not see that items are the same.
    widths = [high - low for pair in pairs for low, high in (cell.interval for cell in pair)]
    error = sum((width / (2 * special.ndtri(0.975))) ** 2 for width in widths) ** 0.5
    apart = abs(sum(new.score - old.score for new, old in pairs))
    p = float(2 * special.ndtr(-apart / error)) if error else 0.0
    locked = [cell for pair in pairs for cell in pair if cell.result is None]
    if any(cell.paired is None for cell in locked):
        why = "the lock holds no per-item values; lock again beside them"
    else:
        why = (
            "two locks hold no gold scores"
            if len(locked) > len(pairs)
            else "no paired test is known"
        )
    return TestResult(p, "from the intervals", problem=why)


def _result(cell: LockedCell, other: LockedCell) -> Result | None:
    """A cell's Result: its own, or one made of the locked column and the other side's data, which are the same."""
    if cell.result is not None or cell.paired is None or other.result is None:
        return cell.result
    columns = {**read_item_columns(other.result), cell.paired.column: unpack(cell.paired, cell.n)}
    return msgspec.structs.replace(
        other.result, score=cell.score, interval=cell.interval, per_item=columns, path=None
    )


def compare_suite_means(
    cells: Sequence[ToleranceVerdict], suites: Mapping[str, Suite]
) -> list[ToleranceVerdict]:
    """The mean of each suite that has one, for each encoder, protocol and seed all of whose cells were compared."""
    groups: dict[tuple[object, ...], dict[str, ToleranceVerdict]] = {}
    for one in cells:
        verdict = one.verdict
        if one.pairs and verdict.split in ("test", "all"):
            key = verdict.encoder, verdict.protocol, verdict.train_seed, verdict.eval_seed
            groups.setdefault(key, {}).setdefault(verdict.task, one)
    averaged = [suite for suite in suites.values() if suite.average and len(suite.tasks) > 1]
    return [one for mine in groups.values() for suite in averaged for one in _mean(suite, mine)]


def _mean(suite: Suite, mine: Mapping[str, ToleranceVerdict]) -> Iterator[ToleranceVerdict]:
    new = suite_mean(suite.tasks, {task: one.verdict.new for task, one in mine.items()}.get)
    old = suite_mean(suite.tasks, {task: one.verdict.old for task, one in mine.items()}.get)
    if new is None or old is None:
        return
    cells, k = [mine[task] for task in suite.tasks], len(suite.tasks)
    names = list(dict.fromkeys(str(one.verdict.tolerance) for one in cells))
    points = sum((one.verdict.points or 0.0) ** 2 for one in cells) ** 0.5 / k
    facts = {"task": f"mean of {suite.name}", "split": "test", "new": new, "old": old}
    bare = replace(cells[0].verdict, **{**facts, "is_mean": True, "not_verified": ""})  # type: ignore[arg-type]
    why = f"the mean of {k} cells, each with a tolerance of its own"
    allowed = Tolerance(name=names[0] if len(names) == 1 else "several", points=points, why=why)
    yield ToleranceVerdict(
        apply_tolerance(bare, allowed, k), [pair for one in cells for pair in one.pairs]
    )


UNCHANGED = ("same", "other-machine")
"""Classes of one and the same encoder: between its two scores lies no sampling that a test could ask about."""


def check(
    new: CheckSide,
    old: CheckSide,
    *,
    rule: Rule = "absolute",
    exact: bool = False,
    allow_missing: bool = False,
    chosen: bool = False,
    strict: bool = False,
    tolerances: Mapping[str, Tolerance] = TOLERANCES,
    suites: Mapping[str, Suite] | None = None,
    effort: TestSettings | None = None,
    catalogue: Catalogue | None = None,
) -> CheckReport:
    """Judge every cell of both sides, and the means over suites all of whose cells are compared.

    Each side has the current score of each cell. A score may lie below the old one by its class's tolerance. By the rule
    ``statistical`` a lower one is a regression only where the difference is also real: by the paired permutation test where
    both sides have per-item columns, else by their intervals as if the items were not the same, which finds too little to
    excuse a fall: one that they do not show to be real is not comparable. p-values are corrected after Holm over all cells. The
    same encoder's scores are always judged by the tolerance alone. A file that holds no result as it must be, or one that is
    not believed, is a verdict of its own. A row of a lock is held to the data of the other side. Means are judged in the same
    way, and corrected by themselves.

    With ``chosen`` the new side's encoders were chosen by name: those that only the old side has are none of this check's.
    With ``strict`` what is not verified is not fine. ``suites`` are those whose means are judged,
    ``catalogue`` names the evaluators of tasks. For ``exact`` and ``allow_missing`` see
    :class:`CheckReport`.

    Raises:
        DataError: no encoder is in both; per-item columns that a test needs are missing or broken.
    """
    effort, catalogue = effort or TestSettings(), catalogue or Catalogue()
    if chosen:
        # What the old side has of the new side's encoders, be it readable or not; all of it where they are others.
        found = old.only(list({cell.encoder: None for cell in new.cells}))
        old = found if found.cells or found.problems else old
    verdicts = broken = report_unreadable(new, old)
    if (names := match_encoders(new, old)) or not broken:
        pairs = match_cells(new.cells, old.cells, names)
        cells = [
            _hold_to_items(_compare_cells(*pair, tolerances), *pair, new, old, catalogue)
            for pair in pairs
        ]
        judged = [
            *RULES[rule](cells, effort),
            *RULES[rule](compare_suite_means(cells, suites or {}), effort),
        ]
        verdicts = [*judged, *_only_old(old, names), *broken]
    verdicts = [_apply_strictness(verdict) for verdict in verdicts] if strict else verdicts
    return CheckReport(verdicts=verdicts, rule=rule, exact=exact, allow_missing=allow_missing)


def _hold_to_items(
    judged: ToleranceVerdict,
    ours: LockedCell | None,
    theirs: LockedCell | None,
    new: CheckSide,
    old: CheckSide,
    catalogue: Catalogue,
) -> ToleranceVerdict:
    """Add what is not verified of a verdict's cells; a row that the other side's data contradict is refused."""
    reasons, problems = list[str](), list[str]()
    for name, side, cell, other in (("new", new, ours, theirs), ("old", old, theirs, ours)):
        if cell is not None and cell.result is not None:
            why = side.why_unverified(cell.result)
            reasons += [f"{name}: {why}"] if why else []
        elif cell is not None and judged.pairs:
            row = hold_to_data(cell, other.result if other is not None else None, catalogue)
            reasons += [f"{name}: {why}" for why in row.unknown]
            problems += [f"{name} results: {line}" for line in row.problems]
    verdict = replace(judged.verdict, not_verified="; ".join(reasons))
    if problems:
        refused = replace(verdict, outcome="unreadable", reason="; ".join(problems))
        return ToleranceVerdict(refused, [])
    return judged._replace(verdict=verdict)


def _apply_strictness(verdict: Verdict) -> Verdict:
    """Return the verdict where what is not verified is not fine."""
    if not verdict.not_verified or KINDS[verdict.outcome] in ("failure", "error"):
        return verdict
    reason = f"{verdict.not_verified}; {verdict.reason}"
    return replace(verdict, outcome="not verified", reason=reason)


def _by_test(judged: Sequence[ToleranceVerdict], effort: TestSettings) -> list[Verdict]:
    """The verdicts on lower scores put right by their tests, corrected over all that were compared."""
    tests = {
        at: mean_p(one.pairs, effort)
        for at, one in enumerate(judged)
        if one.verdict.outcome == "regression" and one.verdict.tolerance not in UNCHANGED
    }
    compared = [at for at, one in enumerate(judged) if one.pairs]
    corrected = dict(
        zip(compared, holm([tests[at].p if at in tests else 1.0 for at in compared]), strict=True)
    )
    verdicts = [one.verdict for one in judged]
    for at, tested in tests.items():
        verdict, p = verdicts[at], corrected[at]
        if tested.problem is not None and not p < effort.level:
            why = f"{verdict.reason}; the statistical rule cannot judge it: {tested.problem}"
            verdicts[at] = replace(verdict, outcome="not comparable", reason=why)
        else:
            said = f"{'real' if p < effort.level else 'may be chance'}, corrected p {p:.2g} ({tested.test})"
            outcome: Outcome = "regression" if p < effort.level else "lower"
            verdicts[at] = replace(
                verdict, outcome=outcome, reason=f"{verdict.reason}; {said}", p=p
            )
    return verdicts


RULES: Mapping[Rule, Callable[[Sequence[ToleranceVerdict], TestSettings], list[Verdict]]] = {
    "absolute": lambda judged, effort: [one.verdict for one in judged],
    "statistical": _by_test,
}
"""What makes verdicts of the judgements by tolerance: of all cells, and again of all means over suites."""


def match_encoders(new: CheckSide, old: CheckSide) -> dict[str, str]:
    """The old name of each of the new side's encoders that has one; none where a side has files that cannot be read.

    Where each side has one encoder only, its name may be another: unless a file that cannot be read may be its own. Raises
    DataError: a side has no cells, or no encoder is in both, and all files can be read.
    """
    mine, theirs = ({cell.encoder: None for cell in side.cells} for side in (new, old))
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
    new: Sequence[LockedCell], old: Sequence[LockedCell], names: Mapping[str, str]
) -> Iterator[tuple[LockedCell | None, LockedCell | None]]:
    """Each cell of the new side's encoders with the old cell it is to be checked against; ``names`` are their old names.

    Cells of one task that were scored alike are matched. What is then left on both sides was scored in different ways, and is
    matched to say how they differ.
    """
    for encoder in dict.fromkeys(cell.encoder for cell in new):
        ours = [cell for cell in new if cell.encoder == encoder]
        others = [cell for cell in old if cell.encoder == names.get(encoder)]
        for task in dict.fromkeys(cell.task for cell in (*ours, *others)):
            mine, left = (
                {cell.scored: cell for cell in side if cell.task == task} for side in (ours, others)
            )
            alike = {scored: left.pop(scored) for scored in mine if scored in left}
            for scored, cell in mine.items():
                near = [one for one in left if one[:2] == scored[:2]] or list(left)
                yield cell, alike.get(scored) or (left.pop(near[0]) if near else None)
            yield from ((None, theirs) for theirs in left.values())


def _only_old(old: CheckSide, names: Mapping[str, str]) -> Iterator[Verdict]:
    left: dict[str, list[LockedCell]] = {}
    for cell in old.cells:
        if cell.encoder not in names.values():
            left.setdefault(cell.encoder, []).append(cell)
    hint = "choose others with --encoder, or allow it with --allow-missing"
    for first, *others in left.values():
        more = {"task": f"all {1 + len(others)} cells", "protocol": ""} if others else {}
        yield Verdict.of(
            first, "missing", f"the new results have no encoder of this name; {hint}", **more
        )


def _compare_cells(
    ours: LockedCell | None, theirs: LockedCell | None, tolerances: Mapping[str, Tolerance]
) -> ToleranceVerdict:
    if theirs is None:
        assert ours is not None, "a pair has a side"
        return ToleranceVerdict(
            Verdict.of(ours, "new", "the old results have no such cell", new=ours.score), []
        )
    if ours is None:
        return ToleranceVerdict(
            Verdict.of(theirs, "missing", "the new results have no such cell", old=theirs.score), []
        )
    why = describe_mismatch(ours, theirs)
    for seed in ("train_seed", "eval_seed"):
        if why is None and getattr(ours, seed) != getattr(theirs, seed):
            why = f"{seed} differs: {getattr(ours, seed)} against {getattr(theirs, seed)}"
    bare = Verdict.of(ours, "not comparable", why or "", new=ours.score, old=theirs.score)
    if why is not None:
        return ToleranceVerdict(bare, [])
    return ToleranceVerdict(
        apply_tolerance(bare, tolerances[classify(ours, theirs)], ours.n), [(ours, theirs)]
    )


def check_published(
    new: CheckSide,
    catalogue: Catalogue,
    *,
    exact: bool = False,
    strict: bool = False,
    tolerances: Mapping[str, Tolerance] = TOLERANCES,
) -> CheckReport:
    """Judge every measured score that a published row of the encoder's card has too, by the tolerance alone.

    STS is of class ``published``; what trains a classifier or regressor of ``probe`` or ``probe-few``. Where
    a deviation is printed, twice that is allowed. Scores by protocols of no name, misprints and numbers
    that nobody read in a text are passed over.

    The new side must be Results: a lock file's cells do not hold all metrics.

    Raises:
        DataError: nothing measured is published.
    """
    verdicts = [
        verdict
        for runs in group_by_encoder(new.results(), catalogue)
        for verdict in _of_encoder(runs, new, catalogue, tolerances)
    ]
    verdicts = [_apply_strictness(verdict) for verdict in verdicts] if strict else verdicts
    broken = report_unreadable(new)
    if not verdicts and not broken:
        raise DataError(
            "no result has a published score to check it against: a card's key 'published' names rows, "
            "and only results that carry the card's hash count, not those with --set or of another encoder of its name"
        )
    return CheckReport(verdicts=[*verdicts, *broken], rule="absolute", exact=exact)


def _of_encoder(
    runs: EncoderResults,
    new: CheckSide,
    catalogue: Catalogue,
    tolerances: Mapping[str, Tolerance],
) -> Iterator[Verdict]:
    for row in [published_row(key) for key in (runs.card.published if runs.card else [])]:
        for score in row.scores:
            is_wrong = score.verified in ("figure", "no") or {
                (row.key, ""),
                (row.key, score.task),
            } & {*misprints()}
            if (
                is_wrong
                or score.protocol not in protocols()
                or score.task not in catalogue.paths("tasks")
            ):
                continue
            facts = ColumnFacts(task=score.task, split=score.split)
            wanted = make_column_spec(facts, score.protocol, score.metric, catalogue)
            if not (measured := list(scores_by_seed(runs, wanted).values())):
                continue
            results = [r for r in runs.results if (r.task, r.split) == (wanted.task, wanted.split)]
            result, reasons = results[0], filter(None, map(new.why_unverified, results))
            name = (
                "published"
                if wanted.evaluator == "sts"
                else "probe-few"
                if result.n < FEW
                else "probe"
            )
            allowed, usual = tolerances[name], protocols()[score.protocol].metric
            if score.deviation is not None and 2 * score.deviation > allowed.points:
                allowed = replace(
                    allowed, points=2 * score.deviation, why="twice the printed deviation"
                )
            bare = Verdict(
                encoder=result.encoder,
                task=score.task if score.metric == usual else f"{score.task} {score.metric}",
                split=wanted.split,
                protocol=score.protocol,
                outcome="fine",
                reason="",
                new=mean_and_deviation(measured).mean / 100,
                old=score.value / 100,
                not_verified=next(reasons, ""),
            )
            yield apply_tolerance(bare, replace(allowed, why=f"{allowed.why}; {row.key}"), result.n)
