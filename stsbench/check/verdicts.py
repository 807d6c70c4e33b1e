"""Verdicts on scores that are checked against older ones, and the tolerances that they depend on.

By how many points two scores of the same cell may differ: cosines of the same float32 embeddings
differ by 3e-6 between implementations; vLLM's bfloat16 moves STS12 by less than 1e-4, MTEB allows
1e-3; probes drift with torch (SentEval issues 32 and 43), most if there are few test items;
independent runs of one checkpoint on STS agree with published scores to between 0.01 and 0.07
points (EvalRank's logs against SimCSE's table B.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from stsbench.check.lock import CheckSide, LockedCell
from stsbench.core.errors import StsbenchError, UnknownName
from stsbench.core.names import PARAM_SEPARATOR
from stsbench.core.provenance import is_same_encoder
from stsbench.core.wording import format_count
from stsbench.significance.margins import MarginVerdict

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
OutcomeKind = Literal["failure", "error", "skipped", ""]
OUTCOME_KINDS: Mapping[Outcome, OutcomeKind] = {
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
"""The kind of each outcome in the words of JUnit; empty if a test passes.

An error is something that could not be checked, so a check with an error is not fine.
"""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on one cell, or on the mean over a suite; scores are never times 100."""

    encoder: str
    task: str
    split: str = "test"
    protocol: str = ""
    train_seed: int | None = None
    """The training seed; None without one, or if several are pooled."""
    new_seeds: int | None = None
    """The number of training seeds of the new score; None without training seeds."""
    old_seeds: int | None = None
    """The number of training seeds of the old score; None without training seeds."""
    eval_seed: int = 0
    outcome: Outcome
    reason: str
    new: float | None = None
    """The newer score; None if there is none."""
    old: float | None = None
    """The older score; None if there is none."""
    difference: float | None = None
    """New minus old; None if they were not compared."""
    tolerance: str | None = None
    """The name of the tolerance."""
    points: float | None = None
    """The largest fall that is no regression, in points."""
    p: float | None = None
    """The corrected p-value of a fall; None if it was not tested."""
    test: str | None = None
    """The test of the difference; None if it is judged by the tolerance alone."""
    error: float | None = None
    """The standard error of the difference by that test; None if unknown."""
    df: float | None = None
    """The degrees of freedom of the error; None if unknown or infinite."""
    smallest_fall: float | None = None
    """The smallest true fall that the test finds with a probability of 80%, on the scale of scores
    (not in points); None if there is no test, or if it finds none."""
    margin_verdict: MarginVerdict | None = None
    """The judgement of the difference by the margin; None without a margin or a test."""
    covers_training: bool = True
    """False if the encoder may have been trained again, and the test does not count that."""
    is_mean: bool = False
    """Whether the scores are means over the tasks of a suite."""
    not_verified: str = ""
    """Why scores are not verified: ``old: its per-item columns are not here``; else empty."""

    @classmethod
    def of_cell(cls, cell: LockedCell, outcome: Outcome, reason: str, **fields: Any) -> Verdict:  # noqa: ANN401
        """Return the verdict on a score that was, or could not be, compared with an older one.

        Args:
            cell: The score, new or old, from which encoder, task, protocol and seeds are taken.
            outcome: The outcome, such as ``regression``.
            reason: The reason for it, part of a sentence.
            fields: Further fields of the verdict; they replace those that are taken from the cell.
        """
        cell_fields = {
            "encoder": cell.encoder,
            "task": cell.task,
            "split": cell.split,
            "protocol": str(cell.protocol["name"]),
            "train_seed": cell.train_seed,
            "eval_seed": cell.eval_seed,
        }
        return cls(**{**cell_fields, "outcome": outcome, "reason": reason, **fields})


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """The verdicts on all cells and means, and their summary."""

    verdicts: Sequence[Verdict]
    rule: Rule
    level: float = 0.05
    """The chance of a false alarm in all planned looks, by the rule ``statistical``."""
    looks: int = 1
    """The number of planned looks, between which the level is divided."""
    margin: float | None = None
    """The largest fall that does not matter, never times 100; None if there is none."""
    exact: bool = False
    """Whether a higher score fails the check too."""
    allow_missing: bool = False
    """Whether cells that only the old side has are no error."""

    def count(self, *outcomes: Outcome) -> int:
        """Count the verdicts with one of these outcomes."""
        return sum(verdict.outcome in outcomes for verdict in self.verdicts)

    def kind(self, verdict: Verdict) -> OutcomeKind:
        """Return the kind of a verdict; empty if it passes."""
        if self.exact and verdict.outcome == "higher":
            return "failure"
        if self.allow_missing and verdict.outcome == "missing":
            return "skipped"
        return OUTCOME_KINDS[verdict.outcome]

    @property
    def exit_code(self) -> int:
        """The exit code of a command that compares new with old scores (``self.verdicts``).

        It is 1 if a score is a regression, or a higher one that the check does not accept either
        (``self.exact``). It is 2 if there is none, but a score is missing or could not be checked,
        or no scores were compared at all. Otherwise it is 0.
        """
        # "failure" for the first, "error" for the second; "skipped" and "" fail no check.
        kinds = set(map(self.kind, self.verdicts))
        if "failure" in kinds:
            return 1
        if "error" in kinds or not self.count("fine", "lower", "higher"):
            return 2
        return 0

    @property
    def summary(self) -> str:
        """How many comparisons have which outcome, in one line for the user.

        ``self.verdicts`` are the comparisons of new with old scores, of cells (single scores) and
        of means over suites. ``self.margin`` is the largest fall that does not matter, None if none
        is set. ``self.rule`` is ``statistical`` if falls were tested.
        """
        n_means = sum(verdict.is_mean for verdict in self.verdicts)
        n_cells = len(self.verdicts) - n_means
        subject = format_count(n_cells, "cell")
        if n_means:
            subject += f" and {format_count(n_means, 'mean')}"
        lower_label = "lower, which may be chance"
        if self.margin is not None:
            lower_label = "lower, by chance or by less than the margin"
        labels = {"missing": "missing in the new results", "lower": lower_label}
        # The keys of OUTCOME_KINDS are all outcomes, the worst first.
        counts = [
            f"{self.count(outcome)} {labels.get(outcome, outcome)}"
            for outcome in OUTCOME_KINDS
            if self.count(outcome)
        ]
        n_unverified = sum(bool(verdict.not_verified) for verdict in self.verdicts)
        suffix = ""
        # If unverified scores fail the check, they have an outcome of their own, counted above.
        if n_unverified and not self.count("not verified"):
            suffix = f"; {n_unverified} not verified"
        if self.rule == "statistical":
            suffix += f"; {self.alarm_rate}"
        return f"{subject}: {', '.join(counts) or 'none'}{suffix}"

    @property
    def alarm_rate(self) -> str:
        """How often the statistical tests raise a false alarm, at most, as part of a sentence.

        A look is one check of new scores against the same old ones. ``self.looks`` is the number of
        looks that are planned. ``self.level`` is the chance of any false alarm in all of them
        together, so that each look has ``self.level / self.looks``.
        """
        looks = "looks" if self.looks == 1 else f"series of {self.looks} looks"
        rate = f"one false alarm in {1 / self.level:.0f} {looks}"
        text = f"at most {rate} (level {self.level / self.looks:.2g} per look)"
        # False if an encoder was trained again, and its test does not count that trainings differ.
        if not all(verdict.covers_training for verdict in self.verdicts):
            text += " if nothing was trained again"
        return text


def report_unreadable(new: CheckSide, old: CheckSide | None = None) -> list[Verdict]:
    """Return a verdict, with the outcome ``unreadable``, on each file that is no valid result.

    Args:
        new: The new side of a check, which holds new scores (``cells``) and such files
            (``problems``, each with a path and a message).
        old: The old side, with which the new one is compared; None if there is none.
    """
    sides = {"new": new} if old is None else {"new": new, "old": old}
    return [
        Verdict(
            encoder=problem.path.parent.name,
            task=problem.path.name,
            outcome="unreadable",
            reason=f"{side_name} results: {problem.message}",
        )
        for side_name, side in sides.items()
        for problem in side.problems
    ]


REDUCED_PRECISION = ("float16", "bfloat16", "int8")
SMALL_TASK_ITEMS = 1800
"""Fewer test items than this are few: TREC has 500, MRPC 1,725; SST2, the next, 1,821."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """A class of differences between two scores, and the largest fall that is no regression.

    Rounding moves each pair on its own, and a correlation of n pairs by a share of it that falls
    with the root of n. With ``by_root``, ``points`` are those of 1,000 items, and tasks with fewer
    items may fall by more.
    """

    name: str
    points: float
    reason: str
    by_root: bool = False

    def allowed(self, n: int) -> float:
        """Return the points that a score over n items may fall."""
        return self.points * max(1.0, 1000 / n) ** 0.5 if self.by_root else self.points


TOLERANCES = {
    tolerance.name: tolerance
    for tolerance in (
        Tolerance(name="same", points=0.001, reason="same encoder, device, dtype and versions"),
        Tolerance(
            name="other-machine",
            points=0.01,
            reason="same encoder, another device or other versions",
        ),
        Tolerance(
            name="half",
            points=0.1,
            reason="half precision or int8 on one side or both",
            by_root=True,
        ),
        Tolerance(
            name="probe", points=0.5, reason="a probe trained by another device or other versions"
        ),
        Tolerance(
            name="probe-few",
            points=1.5,
            reason="a probe trained by another device or other versions, on few test items",
        ),
        Tolerance(name="changed", points=0.01, reason="another encoder"),
        Tolerance(
            name="published", points=0.1, reason="a score printed to two decimals, of another stack"
        ),
    )
}


def apply_tolerance(verdict: Verdict, tolerance: Tolerance, n: int) -> Verdict:
    """Decide whether a score fell by more than is allowed, and return the verdict with the outcome.

    Args:
        verdict: The verdict so far, with the ``new`` and the ``old`` score, from -1 to 1.
        tolerance: How far the score may fall. Its method ``allowed(n)`` returns points, which are
            hundredths of a score.
        n: The number of items that were scored, as fewer items allow more; for a mean over a suite
            the number of its scores.

    Returns:
        The verdict with the outcome ``fine``, ``higher`` or ``regression``, and its reason.
    """
    difference = (verdict.new or 0.0) - (verdict.old or 0.0)
    allowed_points = tolerance.allowed(n)
    moved_points = abs(100 * difference)
    outcome: Outcome = "fine"
    movement = "is within the tolerance"
    # Errors of rounding must not decide: 0.7237 - 0.7227 is computed as a hair above 0.001.
    if moved_points > allowed_points + 1e-9:
        outcome = "higher" if difference > 0 else "regression"
        movement = f"{'rose' if difference > 0 else 'fell'} by {moved_points:.3f} points"
    return replace(
        verdict,
        outcome=outcome,
        reason=f"{movement}; {allowed_points:.3g} allowed: {tolerance.reason}",
        difference=difference,
        tolerance=tolerance.name,
        points=allowed_points,
    )


def difference_class(new: LockedCell, old: LockedCell) -> str:
    """Return why a new and an old score may differ, which decides how far the score may fall.

    The classes, keys of the table ``TOLERANCES``, are:

    * ``same``: encoder, device, number type and package versions are the same, and no side has a
      reduced precision (float16, bfloat16 or int8);
    * ``changed``: the encoder is another one; it counts as the same one in another precision if
      its revision and its name are the same, apart from a parameter ``dtype`` in the name;
    * ``probe`` and ``probe-few``: neither of these, and the protocol (the way of scoring) trains a
      classifier on embeddings, which amplifies small differences; ``probe-few`` on a task of fewer
      than ``SMALL_TASK_ITEMS`` items, where they count more;
    * ``half``: none of these, and a side has a reduced precision;
    * ``other-machine``: none of these; only device, number type or versions differ.

    Args:
        new: The new score.
        old: The old score, of the same task, protocol and data.
    """
    # By weights and settings. The environment is the device, the number type and the versions.
    same_encoder = is_same_encoder(new.fingerprint, old.fingerprint)
    reduced_precision = any(cell.dtype in REDUCED_PRECISION for cell in (new, old))
    if same_encoder and new.environment == old.environment and not reduced_precision:
        return "same"
    # An encoder in another precision has another fingerprint. Then its name and its revision say
    # whether both sides are the same encoder.
    differs_in_precision = (
        reduced_precision
        and new.dtype != old.dtype
        and new.revision == old.revision
        and _without_dtype(new.encoder) == _without_dtype(old.encoder)
    )
    if not same_encoder and not differs_in_precision:
        return "changed"
    # Protocols without a similarity train a classifier or a regressor on the embeddings.
    if "similarity" not in new.protocol:
        return "probe-few" if new.n < SMALL_TASK_ITEMS else "probe"
    return "half" if reduced_precision else "other-machine"


def _without_dtype(name: str) -> list[str]:
    """Return the parts of an encoder's name, such as ``pooling=max``, without the number type."""
    return [part for part in PARAM_SEPARATOR.split(name) if not part.startswith("dtype=")]


def parse_tolerances(texts: Sequence[str]) -> dict[str, Tolerance]:
    """Return how far scores may fall, by class of difference, with the changes of a user.

    Args:
        texts: What the user has typed: ``0.5`` are points for all classes of differences, and
            ``half=0.2`` are points for one class, which count more, in whatever order they come.

    Returns:
        Class -> tolerance, for all classes of the table ``TOLERANCES``. Points of the user count
        for any number of items.

    Raises:
        UnknownName: A class does not exist.
        StsbenchError: The points are not a number from 0 up.
    """
    tolerances = dict(TOLERANCES)
    # Points for every class come first, so that those for one class replace them.
    for text in sorted(texts, key=lambda text: "=" in text):
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
            raise StsbenchError(
                "give points, such as 0.5 or half=0.2", parameter="tolerance", value=text
            )
        changed_classes = [name] if equals else list(TOLERANCES)
        for class_name in changed_classes:
            # Without "by_root" the points are the same for any number of items.
            tolerances[class_name] = replace(tolerances[class_name], points=points, by_root=False)
    return tolerances


class CellPool(NamedTuple):
    """Cells of one task on both sides that are compared, or a cell without a counterpart.

    Attributes:
        new: The new cells by training seed; empty if only the old side has the cell.
        old: The old cells by training seed; empty if only the new side has the cell.
        is_by_seed: Whether the cells differ in nothing but the training seed, and are compared by
            their means. If not, there is at most one on each side.
    """

    new: Sequence[LockedCell]
    old: Sequence[LockedCell]
    is_by_seed: bool = False


class ToleranceVerdict(NamedTuple):
    """The verdict by tolerance alone on a pool of cells, or on the mean of several.

    Attributes:
        verdict: The verdict.
        pools: The cells that were compared, one pool for each task; empty if nothing was.
    """

    verdict: Verdict
    pools: Sequence[CellPool]


def apply_strictness(verdict: Verdict) -> Verdict:
    """Return a verdict by the rule that only verified scores are fine."""
    if not verdict.not_verified or OUTCOME_KINDS[verdict.outcome] in ("failure", "error"):
        return verdict
    reason = f"{verdict.not_verified}; {verdict.reason}"
    return replace(verdict, outcome="not verified", reason=reason)


MARGIN_SENTENCES: Mapping[MarginVerdict, str] = {
    "within": "moved by less than {} points",
    "not worse": "fell by less than {} points, if at all",
    "worse than": "fell by more than {} points",
    "open": "may have fallen by more than {} points",
}
"""What a test says of a score and of a margin in points."""


def describe_limits(verdict: Verdict, margin: float | None) -> list[str]:
    """Return notes for the user on a verdict: what its test can find, and what to do next.

    There are up to three notes:

    * how large a true fall of the score must be, so that 80% of looks (checks) find it;
    * how the difference compares with the margin;
    * for a regression of a mean over training seeds, how to confirm it.

    Args:
        verdict: The final verdict on a new and an old score.
        margin: The largest difference that does not matter, on the scale of scores (not in
            points); None if none is set.
    """
    notes = []
    if verdict.smallest_fall is not None:
        notes.append(f"a fall of {100 * verdict.smallest_fall:.2f} points is found in 80% of looks")
    elif verdict.test is not None:
        notes.append("no fall is found in 80% of looks, for seeds or items are too few")
    # MARGIN_SENTENCES has a sentence for each margin verdict, such as "within" or "worse than".
    if verdict.margin_verdict is not None and margin is not None:
        notes.append(MARGIN_SENTENCES[verdict.margin_verdict].format(f"{100 * margin:g}"))
    if verdict.outcome == "regression" and verdict.new_seeds is not None:
        notes.append("train a second set of seeds, and check both sets together, to confirm it")
    return notes
