"""New scores checked against old ones: which fell by more than their tolerance, and which cannot be compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from stsbench.cards.facts import Suite
from stsbench.check.judged import Check, Match, Outcome, Rule, Verdict, unreadable, within
from stsbench.check.lock import Entry, LockedCell, Side
from stsbench.check.means import SuiteMean, find_means
from stsbench.check.significance import Tested, match_p
from stsbench.check.tolerance import TOLERANCES, Tolerance, classify
from stsbench.compare.comparison import Effort
from stsbench.compare.paired import holm
from stsbench.errors import DataError
from stsbench.provenance.identity import same_encoder
from stsbench.results.comparable import protocol_key, why_not_comparable

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

    Where the new side's folder holds several scores of one cell, by states of an encoder that changed under its name,
    the newest is judged. A score may lie below the old one by its class's tolerance. By the rule ``statistical`` a lower one is
    a regression only where the difference is also real: by the paired permutation test where both sides
    have per-item columns, else by their intervals as if the items were not the same, which errs towards
    fine; p-values are corrected after Holm over all cells. The same encoder's scores are always judged by
    the tolerance alone. A file that holds no result as it must be, or one that its per-item columns do not make,
    is a verdict of its own. Means are judged in the same way, see :mod:`stsbench.check.means`, and
    corrected by themselves.

    Args:
        new: the cells to be checked.
        old: what they are checked against.
        rule: see above.
        exact: a score above its tolerance fails too.
        allow_missing: what only the old side has is told and is no error.
        chosen: the new side's encoders were chosen by name: those that only the old side has are none of this check's.
        tolerances: the classes' points.
        suites: those whose means are judged.
        effort: permutations, seed and level of the tests.

    Raises:
        DataError: no encoder is in both; per-item columns that a test needs are missing or broken.
    """
    effort = effort or Effort()
    new, old = newest(new.verified()), (_counterpart(new, old) if chosen else old).verified()
    broken = unreadable(new, old)
    names = match_encoders(new, old)
    if broken and not names:
        return Check(verdicts=broken, rule=rule, exact=exact, allow_missing=allow_missing)
    matches = list(match_cells(new.cells, old.cells, names))
    cells = [_judge(match, tolerances) for match in matches]
    means = find_means(list(zip(matches, cells, strict=True)), suites or {})
    judged = RULES[rule](matches, cells, means, effort)
    verdicts = [*judged, *_only_old(old, names), *broken]
    return Check(verdicts=verdicts, rule=rule, exact=exact, allow_missing=allow_missing)


def newest(side: Side) -> Side:
    """The side with the newest score of each cell alone: an encoder that changed leaves those of before in the folder."""
    found: dict[tuple[object, ...], Entry] = {}
    for entry in sorted(side.cells, key=_created):
        found[entry[0].encoder, entry[0].task, *_scored(entry[0])] = entry
    kept = {id(entry[0]) for entry in found.values()}
    return Side([entry for entry in side.cells if id(entry[0]) in kept], side.problems)


def _by_tolerance(
    matches: Sequence[Match], cells: Sequence[Verdict], means: Sequence[SuiteMean], effort: Effort
) -> list[Verdict]:
    return [*cells, *(mean.verdict for mean in means)]


def _by_test(
    matches: Sequence[Match], cells: Sequence[Verdict], means: Sequence[SuiteMean], effort: Effort
) -> list[Verdict]:
    tests = [match_p(match, effort) if _may_be_chance(one) else None for match, one in zip(matches, cells, strict=True)]
    of_means = [mean.test(effort) if _may_be_chance(mean.verdict) else None for mean in means]
    return [*_tested(cells, tests, effort.level), *_tested([m.verdict for m in means], of_means, effort.level)]


RULES: Mapping[Rule, Callable[[Sequence[Match], Sequence[Verdict], Sequence[SuiteMean], Effort], list[Verdict]]] = {
    "absolute": _by_tolerance,
    "statistical": _by_test,
}
"""What makes the verdicts of matches of their judgements by tolerance, and those of the means over suites."""


def _counterpart(new: Side, old: Side) -> Side:
    """What the old side has of the new side's encoders, be it readable or not; all of it where they are others."""
    found = old.only(list({cell.encoder: None for cell, _ in new.cells}))
    return found if found.cells or found.problems else old


def _may_be_chance(verdict: Verdict) -> bool:
    return verdict.outcome == "regression" and verdict.tolerance not in UNCHANGED


def _tested(verdicts: Sequence[Verdict], tests: Sequence[Tested | None], level: float) -> list[Verdict]:
    """The verdicts on lower scores put right by their tests, corrected over all that were compared."""
    compared = [at for at, verdict in enumerate(verdicts) if verdict.difference is not None]
    found = [tests[at] for at in compared]
    corrected = dict(zip(compared, holm([one.p if one else 1.0 for one in found]), strict=True))
    return [
        verdict if test is None else _with_test(verdict, test._replace(p=corrected[at]), level)
        for at, (verdict, test) in enumerate(zip(verdicts, tests, strict=True))
    ]


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


def match_cells(new: Sequence[Entry], old: Sequence[Entry], names: Mapping[str, str]) -> Iterator[Match]:
    """Each cell of the new side's encoders with the old cell it is to be checked against.

    Args:
        new: the cells to be checked.
        old: those they are checked against.
        names: the old name of each new encoder that has one.
    """
    for encoder in dict.fromkeys(cell.encoder for cell, _ in new):
        ours = [e for e in new if e[0].encoder == encoder]
        others = [e for e in old if e[0].encoder == names.get(encoder)]
        for task in dict.fromkeys(e[0].task for e in (*ours, *others)):
            yield from _match_task(*([e for e in side if e[0].task == task] for side in (ours, others)))


def _only_old(old: Side, names: Mapping[str, str]) -> Iterator[Verdict]:
    """A verdict on each encoder that only the old side has."""
    left: dict[str, list[LockedCell]] = {}
    for cell, _ in old.cells:
        if cell.encoder not in names.values():
            left.setdefault(cell.encoder, []).append(cell)
    for cells in left.values():
        hint = "choose others with --encoder, or allow it with --allow-missing"
        yield replace(
            _bare(cells[0]),
            task=f"all {len(cells)} cells" if len(cells) > 1 else cells[0].task,
            protocol="" if len(cells) > 1 else str(cells[0].protocol["name"]),
            outcome="missing",
            reason=f"the new results have no encoder of this name; {hint}",
        )


def _match_task(new: Sequence[Entry], old: Sequence[Entry]) -> Iterator[Match]:
    """Match the cells of one encoder on one task.

    Cells scored alike are matched, the old one of the same fingerprint before the latest one. What is then
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
            mark = ours[0].fingerprint
            same = [theirs for theirs in found if theirs[0].fingerprint == mark]
            near = same[:1] or [theirs for theirs in found if same_encoder(theirs[0].fingerprint, mark)] or found
            yield Match(ours, max(near, key=_created))
        else:
            near = [theirs for theirs in left if _scored(theirs[0])[:2] == _scored(ours[0])[:2]] or left
            yield Match(ours, near[0] if near else None)
            left = [theirs for theirs in left if not near or theirs is not near[0]]
    yield from (Match(None, theirs) for theirs in left)


def _scored(cell: LockedCell) -> tuple[object, ...]:
    return cell.split, protocol_key(cell.protocol), cell.seeds


def _created(entry: Entry) -> str:
    return str(entry[1].run.get("created", "")) if entry[1] else ""


def _bare(cell: LockedCell) -> Verdict:
    """What a verdict says of a cell before it is judged."""
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


def _judge(match: Match, tolerances: Mapping[str, Tolerance]) -> Verdict:
    """The verdict by tolerance alone."""
    known = match.new or match.old
    if known is None:
        raise ValueError("a match has at least one side")
    new_score, old_score = (entry[0].score if entry else None for entry in (match.new, match.old))
    bare = replace(_bare(known[0]), new=new_score, old=old_score)
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
    tolerance = tolerances[classify(new, old).name]
    points = tolerance.allowed(new.n)
    return within(bare, new.score - old.score, points=points, name=tolerance.name, why=tolerance.why)


def _with_test(verdict: Verdict, tested: Tested, level: float) -> Verdict:
    """The verdict on a lower score once its p-value is known, or that there can be none."""
    if tested.problem is not None:
        why = f"{verdict.reason}; the statistical rule cannot judge it: {tested.problem}"
        return replace(verdict, outcome="not comparable", reason=why)
    real = tested.p < level
    said = f"{'real' if real else 'may be chance'}, corrected p {tested.p:.2g} ({tested.test})"
    outcome: Outcome = "regression" if real else "lower"
    return replace(verdict, outcome=outcome, reason=f"{verdict.reason}; {said}", p=tested.p)
