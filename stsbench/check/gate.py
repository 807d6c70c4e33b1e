"""Checks of new scores against old ones, with a verdict on each cell and mean.

A fall too small to see on one task may be plain on the mean of a suite. Cells move independently
if only machine, precision or probes differ: if each may fall by its tolerance, the mean of k may
fall by the root of the sum of their squares, divided by k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stsbench.check.falls import FallSettings, FallTest, fall_test
from stsbench.check.lock import CheckSide, LockedCell, group_seeds, verify_row
from stsbench.check.verdicts import (
    TOLERANCES,
    CellPool,
    CheckReport,
    Outcome,
    Rule,
    Tolerance,
    ToleranceVerdict,
    Verdict,
    apply_strictness,
    apply_tolerance,
    classify,
    describe_limits,
    report_unreadable,
)
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError
from stsbench.core.grouping import group_by
from stsbench.core.provenance import is_same_encoder
from stsbench.results.signature import describe_mismatch
from stsbench.significance.comparison import TestSettings
from stsbench.significance.descriptions import describe_p
from stsbench.significance.margins import margin_verdict
from stsbench.significance.paired import holm


def compare_suite_means(
    cell_verdicts: Sequence[ToleranceVerdict], suites: Mapping[str, Suite]
) -> list[ToleranceVerdict]:
    """Compare the means over suites by tolerance.

    There is one for each encoder, protocol and seed (of seeds that are pooled one for all), and
    each suite with a mean, if all cells of the suite were compared.

    Args:
        cell_verdicts: The verdicts on cells; those on splits for development are in no mean.
        suites: The suites by name.
    """
    verdicts_by_group: dict[tuple[object, ...], dict[str, ToleranceVerdict]] = {}
    for cell_verdict in cell_verdicts:
        verdict = cell_verdict.verdict
        # A cell that was not compared, or is of a split for development, is in no mean.
        if cell_verdict.pools and verdict.split in ("test", "all"):
            group = (verdict.encoder, verdict.protocol, verdict.train_seed, verdict.eval_seed)
            verdicts_by_group.setdefault(group, {}).setdefault(verdict.task, cell_verdict)
    mean_verdicts = []
    for verdict_by_task in verdicts_by_group.values():
        for suite in suites.values():
            if suite.average and len(suite.tasks) > 1:
                mean_verdict = _compare_suite_mean(suite, verdict_by_task)
                if mean_verdict is not None:
                    mean_verdicts.append(mean_verdict)
    return mean_verdicts


def _compare_suite_mean(
    suite: Suite, verdict_by_task: Mapping[str, ToleranceVerdict]
) -> ToleranceVerdict | None:
    """Compare the mean over a suite, by the seeds that have all of its tasks on their side.

    Cells move independently, so the mean of k may fall by the root of the sum of the squares of
    their tolerances, over k.

    Args:
        suite: The suite.
        verdict_by_task: The verdicts on the cells of one encoder, protocol and seed, by task.

    Returns:
        The verdict; None if a cell of it was not compared, or if a side has no such seed.
    """
    if not verdict_by_task.keys() >= set(suite.tasks):
        return None
    tolerance_verdicts = [verdict_by_task[task] for task in suite.tasks]
    verdicts = [tolerance_verdict.verdict for tolerance_verdict in tolerance_verdicts]
    # One pool for each task, because its cells were compared.
    pools = [pool for tolerance_verdict in tolerance_verdicts for pool in tolerance_verdict.pools]
    new_by_task = _select_common_seeds([pool.new for pool in pools])
    old_by_task = _select_common_seeds([pool.old for pool in pools])
    has_common_seeds = bool(new_by_task[0] and old_by_task[0])
    if not has_common_seeds:
        return None
    n_cells = len(verdicts)
    tolerance_names = list(dict.fromkeys(str(verdict.tolerance) for verdict in verdicts))
    tolerance = Tolerance(
        name=tolerance_names[0] if len(tolerance_names) == 1 else "several",
        points=sum((verdict.points or 0.0) ** 2 for verdict in verdicts) ** 0.5 / n_cells,
        reason=f"the mean of {n_cells} cells, each with a tolerance of its own",
    )
    common_pools = [
        pool._replace(new=new, old=old)
        for pool, new, old in zip(pools, new_by_task, old_by_task, strict=True)
    ]
    first = verdicts[0]
    mean_verdict = replace(
        # Encoder, protocol and seeds are those of all its cells.
        first,
        task=f"mean of {suite.name}",
        split="test",
        new=mean_score([cell for pool in common_pools for cell in pool.new]),
        old=mean_score([cell for pool in common_pools for cell in pool.old]),
        new_seeds=None if first.new_seeds is None else len(new_by_task[0]),
        old_seeds=None if first.old_seeds is None else len(old_by_task[0]),
        is_mean=True,
        not_verified="",
    )
    return ToleranceVerdict(apply_tolerance(mean_verdict, tolerance, n_cells), common_pools)


def mean_score(cells: Sequence[LockedCell]) -> float:
    """Return the mean of the scores of cells, of which there is at least one."""
    return float(np.mean([cell.score for cell in cells]))


def _select_common_seeds(
    cells_by_task: Sequence[Sequence[LockedCell]],
) -> list[list[LockedCell]]:
    """Select from each task's cells on one side those of the training seeds that all tasks have."""
    seeds_by_task = [{cell.train_seed for cell in cells} for cells in cells_by_task]
    common_seeds = set.intersection(*seeds_by_task)
    return [[cell for cell in cells if cell.train_seed in common_seeds] for cells in cells_by_task]


SAME_ENCODER_TOLERANCES = ("same", "other-machine")
"""Classes of one and the same encoder, whose scores have no sampling error that a test measures."""


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
    looks: int = 1,
    seed_deviation: float | None = None,
    margin: float | None = None,
    settings: TestSettings | None = None,
    catalogue: Catalogue | None = None,
) -> CheckReport:
    """Judge every cell of both sides, and the means over suites all of whose cells are compared.

    A score may lie below the old one by its class's tolerance. By the rule ``statistical`` a lower
    one is a regression only if the fall is also significant, and not smaller than the margin by
    its test. Cells of a changed encoder that differ in the training seed alone are pooled on each
    side, and tested by their scores; others by their items, or by their intervals as if the items
    were not the same. That is too weak to excuse a fall, so one that is not significant then is not
    comparable. p-values are corrected after Holm over all cells and means together. The same
    encoder's scores are always judged by the tolerance alone.

    A file that is no valid or no believed result has a verdict of its own. A row of a lock is
    compared with the data of the other side.

    Args:
        new: The current score of each cell.
        old: The scores to compare them with.
        rule: A key of ``RULES``.
        exact: A higher score fails the check too.
        allow_missing: Cells that only the old side has are no error.
        chosen: The new side's encoders were chosen by name, so the old side's others are ignored.
        strict: A score that is not verified is not fine.
        tolerances: By class of difference.
        suites: The suites whose means are judged.
        looks: The number of checks that are planned against the same old scores. The level of
            significance is divided by it.
        seed_deviation: The known deviation of scores over training seeds in points; None if it is
            to be estimated from the seeds.
        margin: The largest fall that does not matter in points; None if there is none.
        settings: The settings of tests by items, with the level of all looks together; ``margin``
            takes the place of theirs.
        catalogue: The cards of tasks, which name their evaluators.

    Raises:
        DataError: No encoder is on both sides, or per-item columns that a test needs are missing
            or broken.
        StsbenchError: The looks, the deviation or the margin are not in their range.
    """
    settings = settings or TestSettings()
    catalogue = catalogue or Catalogue()
    if looks < 1:
        raise StsbenchError("give a number from 1 up", parameter="looks", value=str(looks))
    score_margin = _to_score("margin", margin)
    fall_settings = FallSettings(
        tests=replace(settings, level=settings.level / looks, margin=score_margin),
        seed_deviation=_to_score("seed_deviation", seed_deviation),
    )
    if chosen:
        old = _select_encoders_of(new, old)
    verdicts = report_unreadable(new, old)
    old_name_by_encoder = match_encoders(new, old)
    if old_name_by_encoder or not verdicts:
        pools = match_cells(
            new.cells, old.cells, old_name_by_encoder, pools_seeds=rule == "statistical"
        )
        judged = [
            _verify_against_items(_compare_cells(pool, tolerances), pool, new, old, catalogue)
            for pool in pools
        ]
        judged += compare_suite_means(judged, suites=suites or {})
        missing = _report_missing_encoders(old, old_name_by_encoder)
        verdicts = [*RULES[rule](judged, fall_settings), *missing, *verdicts]
    if strict:
        verdicts = [apply_strictness(verdict) for verdict in verdicts]
    return CheckReport(
        verdicts=verdicts,
        rule=rule,
        level=settings.level,
        looks=looks,
        margin=score_margin,
        exact=exact,
        allow_missing=allow_missing,
    )


def _select_encoders_of(new: CheckSide, old: CheckSide) -> CheckSide:
    """Return the old side with the cells and unreadable files of the new side's encoders only.

    If the old side has none of these, all of it is returned.
    """
    new_encoders = list(dict.fromkeys(cell.encoder for cell in new.cells))
    selected = old.select_encoders(new_encoders)
    return selected if selected.cells or selected.problems else old


def _to_score(parameter: str, points: float | None) -> float | None:
    """Return points divided by 100; None for None. Raise StsbenchError if they are out of range."""
    if points is None:
        return None
    if not 0 <= points <= 100:
        raise StsbenchError("give points from 0 to 100", parameter=parameter, value=str(points))
    return points / 100


def _verify_against_items(
    cell_verdict: ToleranceVerdict,
    pool: CellPool,
    new: CheckSide,
    old: CheckSide,
    catalogue: Catalogue,
) -> ToleranceVerdict:
    """Add to a verdict which of its scores are not verified, and why.

    A Result is verified if it was compared with its items. A row of a lock is verified here, by the
    data of a cell of the other side with which it is compared.

    Args:
        cell_verdict: The verdict by tolerance.
        pool: The cells that it is on.
        new: The new side, which tells which of its Results were compared with their items.
        old: The old side.
        catalogue: The cards of tasks, which name their evaluators.

    Returns:
        The verdict; ``unreadable`` if it compares a row of a lock that the other side's data
        contradict.
    """
    # A verdict without pools is on cells that do not compare.
    was_compared = bool(cell_verdict.pools)
    reasons: list[str] = []
    problems: list[str] = []
    for side_name, side, cells, counterparts in (
        ("new", new, pool.new, pool.old),
        ("old", old, pool.old, pool.new),
    ):
        # The cells of a pool that is compared have the same data, so that any of them will do.
        counterpart_results = [cell.result for cell in counterparts if cell.result is not None]
        counterpart = counterpart_results[0] if counterpart_results else None
        for cell in cells:
            if cell.result is not None:
                reason = side.why_unverified(cell.result)
                if reason:
                    reasons.append(f"{side_name}: {reason}")
            elif was_compared:
                verified_row = verify_row(cell, counterpart, catalogue)
                reasons += [f"{side_name}: {reason}" for reason in verified_row.unknown]
                problems += [f"{side_name} results: {problem}" for problem in verified_row.problems]
    # Cells of one pool often have the same reason, which is named once.
    verdict = replace(cell_verdict.verdict, not_verified="; ".join(dict.fromkeys(reasons)))
    if problems:
        verdict = replace(verdict, outcome="unreadable", reason="; ".join(dict.fromkeys(problems)))
        return ToleranceVerdict(verdict, pools=[])
    return cell_verdict._replace(verdict=verdict)


def _judge_by_test(
    tolerance_verdicts: Sequence[ToleranceVerdict], settings: FallSettings
) -> list[Verdict]:
    """Return the final verdicts by the rule ``statistical``: falls beyond the tolerance are tested.

    A fall of one and the same encoder is not tested, and stays a regression. p-values are corrected
    over all scores that were compared, untested ones with a p-value of 1.

    Args:
        tolerance_verdicts: The verdicts by tolerance, on all cells and all means.
        settings: The settings of the tests, among them the level of significance.

    Returns:
        The verdicts in the same order; those on scores of the same encoder are unchanged.
    """
    verdicts = [judged.verdict for judged in tolerance_verdicts]
    # Verdicts without pools are on cells that do not compare.
    compared_indices = [index for index, judged in enumerate(tolerance_verdicts) if judged.pools]
    # A test asks whether a fall may be due to the choice of the items, or of the training seeds.
    # The same encoder embeds the same items on both sides, so its scores differ for another
    # reason, which no test measures.
    tests = {
        index: fall_test(tolerance_verdicts[index].pools, settings)
        for index in compared_indices
        if verdicts[index].tolerance not in SAME_ENCODER_TOLERANCES
    }
    # Holm's correction counts all comparisons, so that a fall is not picked out by its size.
    p_values = []
    for index in compared_indices:
        is_tested_fall = index in tests and verdicts[index].outcome == "regression"
        p_values.append(tests[index].p if is_tested_fall else 1.0)
    corrected_by_index = dict(zip(compared_indices, holm(p_values), strict=True))
    n_tests = len(compared_indices)
    for index, test in tests.items():
        p = corrected_by_index[index]
        verdicts[index] = _add_test(verdicts[index], test, settings.tests, p, n_tests)
    return verdicts


def _add_test(
    verdict: Verdict, test: FallTest, settings: TestSettings, p: float, n_tests: int
) -> Verdict:
    """Return the verdict on a score after its test.

    If the test has an estimate of the difference, the verdict gets its name, its error, the
    smallest fall that it can find, and, if a margin is set, how the difference compares with it.
    The outcome changes only if it was a regression. The reason gets what the test can find and
    whether it covers the chance of training.

    Args:
        verdict: The verdict by tolerance.
        test: The test of the score; only falls beyond the tolerance are judged by it.
        settings: The settings of tests: the level of one check, and ``margin``, the largest
            difference that does not matter, None if none is set.
        p: The p-value of the test, corrected for the number of tests.
        n_tests: The number of scores that the correction is over.
    """
    if test.estimate is not None:
        verdict = replace(
            verdict,
            test=test.method,
            error=_finite(test.estimate.error),
            df=_finite(test.estimate.df),
            # The first and smallest level of Holm's correction.
            smallest_fall=test.smallest_fall(settings.level / n_tests),
        )
        if settings.margin is not None:
            by_margin = margin_verdict(test.estimate, settings.margin, settings.level)
            verdict = replace(verdict, margin_verdict=by_margin)
    if verdict.outcome == "regression":
        verdict = _judge_fall(verdict, test, p, settings.level)
    # After the judgement: a fall that stays a regression has a note on how to confirm it.
    notes = describe_limits(verdict, settings.margin)
    if not test.covers_training:
        notes.append("training noise is not covered")
    reason = "; ".join([verdict.reason, *notes])
    return replace(verdict, reason=reason, covers_training=test.covers_training)


def _finite(value: float) -> float | None:
    """Return a number if it is finite; None for infinity and NaN, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def _judge_fall(verdict: Verdict, test: FallTest, p: float, level: float) -> Verdict:
    """Return the verdict on a fall after its test.

    Args:
        verdict: The verdict by tolerance, a regression, with the judgement by the margin.
        test: The result of the test.
        p: Its p-value, corrected for the number of scores.
        level: The p-value from which on a fall is not significant.
    """
    is_significant = p < level
    if test.problem and not is_significant:
        reason = f"{verdict.reason}; the statistical rule cannot judge it: {test.problem}"
        return replace(verdict, outcome="not comparable", reason=reason)
    finding = "may be chance"
    outcome: Outcome = "lower"
    if is_significant and verdict.margin_verdict in ("within", "not worse"):
        finding = "real, but smaller than the margin"
    elif is_significant:
        finding = "real"
        outcome = "regression"
    reason = f"{verdict.reason}; {finding}, corrected p {describe_p(p, level)} ({test.method})"
    return replace(verdict, outcome=outcome, reason=reason, p=p)


RULES: Mapping[Rule, Callable[[Sequence[ToleranceVerdict], FallSettings], list[Verdict]]] = {
    "absolute": lambda tolerance_verdicts, settings: [
        judged.verdict for judged in tolerance_verdicts
    ],
    "statistical": _judge_by_test,
}
"""Each rule makes verdicts of those by tolerance; called once, for all cells and all means."""


def match_encoders(new: CheckSide, old: CheckSide) -> dict[str, str]:
    """Return the old name of each encoder of the new side that the old side has too.

    If each side has a single encoder, its names may differ, unless an unreadable file may be of
    the same name.

    Args:
        new: The new side.
        old: The old side.

    Returns:
        The old names by new name; empty if there are none and a file is unreadable.

    Raises:
        DataError: A side has no cells, or no encoder is on both sides, and all files are valid.
    """
    new_names = list(dict.fromkeys(cell.encoder for cell in new.cells))
    old_names = list(dict.fromkeys(cell.encoder for cell in old.cells))
    common_names = {name: name for name in new_names if name in old_names}
    if common_names or new.problems or old.problems:
        return common_names
    if not new_names or not old_names:
        empty_side = "old" if new_names else "new"
        raise DataError(f"the {empty_side} side of the check holds no results")
    if len(new_names) == len(old_names) == 1:
        return {new_names[0]: old_names[0]}
    raise DataError(
        f"no encoder is in both: new {', '.join(new_names[:3])}; old {', '.join(old_names[:3])}",
        hint="choose one of each with `encoder` and `against_encoder`",
    )


def match_cells(
    new: Sequence[LockedCell],
    old: Sequence[LockedCell],
    old_name_by_encoder: Mapping[str, str],
    *,
    pools_seeds: bool,
) -> Iterator[CellPool]:
    """Yield the cells of the new side's encoders with the old cells to compare them with.

    Cells of one task that were scored alike are matched first. The others on both sides were
    scored differently, and are matched so that their difference is reported.

    Args:
        new: The new cells.
        old: The old cells.
        old_name_by_encoder: The encoders' names on the old side by those on the new one.
        pools_seeds: Whether cells of changed encoders that differ in nothing but the training seed
            are compared by their means.
    """
    for encoder in dict.fromkeys(cell.encoder for cell in new):
        new_cells = [cell for cell in new if cell.encoder == encoder]
        old_cells = [cell for cell in old if cell.encoder == old_name_by_encoder.get(encoder)]
        for task in dict.fromkeys(cell.task for cell in (*new_cells, *old_cells)):
            yield from _match_cells_of_task(
                [cell for cell in new_cells if cell.task == task],
                [cell for cell in old_cells if cell.task == task],
                pools_seeds=pools_seeds,
            )


def _match_cells_of_task(
    new_cells: Sequence[LockedCell], old_cells: Sequence[LockedCell], *, pools_seeds: bool
) -> Iterator[CellPool]:
    """Yield a new and an old cell at a time, or pools of training seeds.

    Cells of the same split, protocol and seeds come first, then pools of trained encoders that the
    old side does not have, then cells of the same split and protocol, then any.

    Args:
        new_cells: The new cells of one encoder on one task.
        old_cells: The old ones.
        pools_seeds: Whether changed encoders are compared by the means of their training seeds.
    """
    unmatched_new = {cell.conditions: cell for cell in new_cells}
    unmatched_old = {cell.conditions: cell for cell in old_cells}
    if not (new_cells and old_cells):
        # There is nothing to compare with: the seeds of a trained encoder get one verdict.
        for cells_of_seeds in group_seeds((*new_cells, *old_cells)).values():
            for cell in cells_of_seeds:
                unmatched_new.pop(cell.conditions, None)
                unmatched_old.pop(cell.conditions, None)
            sides = (cells_of_seeds, []) if new_cells else ([], cells_of_seeds)
            yield CellPool(*sides, is_by_seed=len(cells_of_seeds) > 1)
    for conditions in [key for key in unmatched_new if key in unmatched_old]:
        new_cell = unmatched_new[conditions]
        old_cell = unmatched_old[conditions]
        if not (pools_seeds and _was_trained_again(new_cell, old_cell)):
            del unmatched_new[conditions], unmatched_old[conditions]
            yield CellPool([new_cell], [old_cell])
    if pools_seeds:
        # Against all old seeds, also those whose checkpoint is unchanged on the new side.
        for pool in _pool_seeds(unmatched_new.values(), old_cells):
            for cell in pool.new:
                del unmatched_new[cell.conditions]
            for cell in pool.old:
                unmatched_old.pop(cell.conditions, None)
            yield pool
    for (split, protocol, *_), new_cell in unmatched_new.items():
        # An old cell of the same split and protocol, which differs in seeds only, else any.
        candidates = [key for key in unmatched_old if key[:2] == (split, protocol)]
        candidates += unmatched_old
        counterparts = [unmatched_old.pop(key) for key in candidates[:1]]
        yield CellPool([new_cell], counterparts)
    for old_cell in unmatched_old.values():
        yield CellPool([], [old_cell])


def _was_trained_again(new: LockedCell, old: LockedCell) -> bool:
    """Return whether two cells of one training seed are of different encoders."""
    return new.train_seed is not None and not is_same_encoder(new.fingerprint, old.fingerprint)


def _pool_seeds(new: Iterable[LockedCell], old: Iterable[LockedCell]) -> list[CellPool]:
    """Return pools of cells that differ in the training seed alone and are on both sides.

    Args:
        new: The new cells of one encoder on one task; those without a training seed are ignored.
        old: The old ones.
    """
    # The encoder, which a group's key begins with, may have another name on the old side.
    old_by_conditions = {
        tuple(conditions): cells for (_, *conditions), cells in group_seeds(old).items()
    }
    pools = []
    for (_, *new_conditions), new_cells in group_seeds(new).items():
        conditions = tuple(new_conditions)
        if conditions in old_by_conditions:
            pools.append(CellPool(new_cells, old_by_conditions[conditions], is_by_seed=True))
    return pools


def _report_missing_encoders(
    old: CheckSide, old_name_by_encoder: Mapping[str, str]
) -> Iterator[Verdict]:
    """Yield a verdict on each encoder that only the old side has.

    Args:
        old: The old side.
        old_name_by_encoder: The old names of the encoders that both sides have, by new name.
    """
    missing_cells = (cell for cell in old.cells if cell.encoder not in old_name_by_encoder.values())
    cells_by_encoder = group_by(missing_cells, lambda cell: cell.encoder)
    reason = (
        "the new results have no encoder of this name; choose other encoders, "
        "or allow missing cells"
    )
    for cells in cells_by_encoder.values():
        # One line for an encoder of several cells, with the fields of the first.
        fields = {}
        if len(cells) > 1:
            fields = {"task": f"all {len(cells)} cells", "protocol": ""}
        yield Verdict.of_cell(cells[0], outcome="missing", reason=reason, **fields)


def _compare_cells(pool: CellPool, tolerances: Mapping[str, Tolerance]) -> ToleranceVerdict:
    """Compare the mean scores of a pool by tolerance, if both sides have cells that compare.

    Args:
        pool: The cells, of the same task.
        tolerances: By class of difference; the widest class between a new and an old cell counts.
    """
    first = (*pool.new, *pool.old)[0]
    fields: dict[str, Any] = {
        "train_seed": first.train_seed,
        "new": mean_score(pool.new) if pool.new else None,
        "old": mean_score(pool.old) if pool.old else None,
    }
    if pool.is_by_seed:
        fields |= {"new_seeds": len(pool.new), "old_seeds": len(pool.old)}
        if len({cell.train_seed for cell in (*pool.new, *pool.old)}) > 1:
            fields["train_seed"] = None
    if not pool.old:
        reason = "the old results have no such cell"
        return ToleranceVerdict(Verdict.of_cell(first, "new", reason, **fields), pools=[])
    if not pool.new:
        reason = "the new results have no such cell"
        return ToleranceVerdict(Verdict.of_cell(first, "missing", reason, **fields), pools=[])
    mismatch = _describe_pool_mismatch(pool)
    verdict = Verdict.of_cell(first, "not comparable", mismatch, **fields)
    if mismatch:
        return ToleranceVerdict(verdict, pools=[])
    tolerance = max(
        (tolerances[classify(new, old)] for new in pool.new for old in pool.old),
        key=lambda tolerance: tolerance.allowed(first.n),
    )
    return ToleranceVerdict(apply_tolerance(verdict, tolerance, first.n), [pool])


def _describe_pool_mismatch(pool: CellPool) -> str:
    """Describe why the new and old cells of a pool do not compare; empty if they do."""
    first_old = pool.old[0]
    mismatches = [describe_mismatch(cell, first_old) for cell in (*pool.new, *pool.old)]
    if not pool.is_by_seed:
        new = pool.new[0]
        mismatches += [
            f"{seed} differs: {getattr(new, seed)} against {getattr(first_old, seed)}"
            for seed in ("train_seed", "eval_seed")
            if getattr(new, seed) != getattr(first_old, seed)
        ]
    return next(filter(None, mismatches), "")
