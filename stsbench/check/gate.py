"""Checks of new scores against old ones, with a verdict on each cell and mean.

A fall too small to see on one task may be plain on the mean of a suite. Cells move independently
if only machine, precision or probes differ: if each may fall by its tolerance, the mean of k may
fall by the root of the sum of their squares, divided by k.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stsbench.check.falls import FallSettings, FallTest, fall_test
from stsbench.check.lock import CheckSide, LockedCell, verify_row
from stsbench.check.matching import match_cells, match_encoders
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
    describe_limits,
    difference_class,
    report_unreadable,
)
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.core.grouping import group_by
from stsbench.results.record import protocol_key
from stsbench.results.signature import describe_mismatch
from stsbench.significance.comparison_record import TestSettings
from stsbench.significance.descriptions import describe_p
from stsbench.significance.margins import margin_verdict
from stsbench.significance.paired import correct_by_holm


def compare_suite_means(
    cell_verdicts: Sequence[ToleranceVerdict], suites: Mapping[str, Suite]
) -> list[ToleranceVerdict]:
    """Compare new with old mean scores over suites, which are lists of tasks.

    A mean is compared for each suite, encoder, protocol (the way of scoring) and seed, if all tasks
    of the suite were compared. If the scores of several training seeds were compared by their mean,
    there is one comparison for all these seeds.

    Args:
        cell_verdicts: The comparisons of single scores, one for each encoder, task, protocol and
            seed. Those on development data are in no mean.
        suites: Name -> suite: its ``tasks``, and ``average``, whether it has a mean.

    Returns:
        A verdict on each mean: whether it fell by more than is allowed.
    """
    # Encoder, protocol and seeds -> task -> its comparison.
    verdicts_by_group: dict[tuple[object, ...], dict[str, ToleranceVerdict]] = {}
    for cell_verdict in cell_verdicts:
        verdict = cell_verdict.verdict
        # A verdict without pools of cells is on scores that could not be compared.
        if cell_verdict.pools and verdict.split in ("test", "all"):
            # Protocols of one name may differ, for example in their similarity.
            protocol = protocol_key(cell_verdict.pools[0].new[0].protocol)
            group = (verdict.encoder, protocol, verdict.train_seed, verdict.eval_seed)
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
    """Compare the new with the old mean score over a suite, a list of tasks.

    The scores of tasks move independently. So the mean over k tasks may fall by the root of the sum
    of their squared tolerances, divided by k.

    Args:
        suite: The suite.
        verdict_by_task: Task -> comparison of one encoder's new and old scores on it. Tasks whose
            scores could not be compared are absent.

    Returns:
        The verdict on the mean. None if a task of the suite was not compared, or if no training
        seed has scores on all tasks, on either side.
    """
    if not verdict_by_task.keys() >= set(suite.tasks):
        return None
    tolerance_verdicts = [verdict_by_task[task] for task in suite.tasks]
    verdicts = [tolerance_verdict.verdict for tolerance_verdict in tolerance_verdicts]
    # A pool holds the new and the old cells of a task, one score for each training seed.
    pools = [pool for tolerance_verdict in tolerance_verdicts for pool in tolerance_verdict.pools]
    new_by_task = _select_common_seeds([pool.new for pool in pools])
    old_by_task = _select_common_seeds([pool.old for pool in pools])
    has_common_seeds = bool(new_by_task[0] and old_by_task[0])
    if not has_common_seeds:
        return None
    n_cells = len(verdicts)
    # ``points`` of a verdict are those by which its score may fall.
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
    """Return the old scores of those encoders that have new scores.

    Args:
        new: The new scores (``cells``) and unreadable files (``problems``) of a check.
        old: The old scores and unreadable files.

    Returns:
        The old side with the scores and files of the new side's encoders only. If it has none of
        these, all of it is returned: the encoder may have been renamed.
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
    """Add to a verdict which of its scores could not be recomputed from their items, and why.

    Items are the scored units: sentences or pairs. A Result, the file of one score, was compared
    with its items before, when its side was read. A row of a lock, a file of accepted scores, is
    compared here, with the data of a Result on the other side.

    Args:
        cell_verdict: The verdict on the difference of the new and the old scores.
        pool: These scores: ``new`` and ``old`` are lists of cells, one per training seed. A cell
            has a ``result``; it is None for a row of a lock.
        new: The new side of the check, which knows why a Result of it was not recomputed.
        old: The old side.
        catalogue: The cards of tasks, which name the code that computes their scores.

    Returns:
        The verdict with the reasons in ``not_verified``, which is empty if there are none. If the
        data contradict a row of a lock, its outcome is ``unreadable``.
    """
    # A verdict without pools is on cells that cannot be compared.
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
                reasons += [f"{side_name}: {reason}" for reason in verified_row.unverified_reasons]
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
    """Test each score that fell by more than its tolerance: is the fall more than chance?

    A fall that may be chance is no regression. Many tests find some falls by chance alone, so the
    p-values are corrected by Holm's method over all scores that were compared, also those that did
    not fall, which count with a p-value of 1.

    Scores are not tested, and keep their verdict, if all their differences are of the classes
    ``same`` and ``other-machine`` (``SAME_ENCODER_TOLERANCES``).

    Args:
        tolerance_verdicts: The verdicts by tolerance, on all scores and all means over suites.
        settings: The settings of the tests, among them the level of significance.

    Returns:
        The final verdicts in the same order.
    """
    verdicts = [tolerance_verdict.verdict for tolerance_verdict in tolerance_verdicts]
    # Verdicts without pools are on scores that cannot be compared.
    compared_indices = [index for index, verdict in enumerate(tolerance_verdicts) if verdict.pools]
    # A test asks whether a fall may be due to the choice of the items, or of the training seeds.
    # The same encoder embeds the same items on both sides, so its scores differ for another
    # reason, such as another machine, which no test measures.
    tests = {
        index: fall_test(tolerance_verdicts[index].pools, settings)
        for index in compared_indices
        if not all(
            difference_class(new, old) in SAME_ENCODER_TOLERANCES
            for pool in tolerance_verdicts[index].pools
            for new in pool.new
            for old in pool.old
        )
    }
    # Holm's correction counts all comparisons, so that a fall is not picked out by its size.
    p_values = []
    for index in compared_indices:
        is_tested_fall = index in tests and verdicts[index].outcome == "regression"
        p_values.append(tests[index].p if is_tested_fall else 1.0)
    corrected_by_index = dict(zip(compared_indices, correct_by_holm(p_values), strict=True))
    n_tests = len(compared_indices)
    for index, test in tests.items():
        p = corrected_by_index[index]
        verdicts[index] = _add_test(verdicts[index], test, settings.tests, p, n_tests)
    return verdicts


def _add_test(
    verdict: Verdict, test: FallTest, settings: TestSettings, p: float, n_tests: int
) -> Verdict:
    """Return the verdict on a score after a test of whether it fell by more than chance.

    Fields of the verdict are changed in this order:

    * If the test has an estimate of the difference: its name, its standard error and degrees of
      freedom, and the smallest fall that it can find.
    * If a margin is set as well: how the difference compares with it.
    * If the outcome was ``regression``, a fall beyond the tolerance: the outcome by the test.
    * The reason: what the test can find, and whether it counts that two trainings differ by chance.

    Args:
        verdict: The verdict by tolerance.
        test: The test of the score.
        settings: The settings of tests: the level of significance of one check, and ``margin``, the
            largest difference that does not matter, None if none is set.
        p: The p-value of the test, corrected for the number of tests.
        n_tests: The number of tests that the correction is over.
    """
    if test.estimate is not None:
        verdict = replace(
            verdict,
            test=test.method,
            error=_none_if_infinite(test.estimate.error),
            df=_none_if_infinite(test.estimate.df),
            # Holm's correction of n p-values compares the smallest of them with the level over n.
            smallest_fall=test.smallest_fall(settings.level / n_tests),
        )
        if settings.margin is not None:
            by_margin = margin_verdict(test.estimate, settings.margin, settings.level)
            verdict = replace(verdict, margin_verdict=by_margin)
    if verdict.outcome == "regression":
        verdict = _judge_fall(verdict, test, p, settings.level)
    # Last, because only a fall that is still a regression gets a note on how to confirm it.
    notes = describe_limits(verdict, settings.margin)
    if not test.covers_training:
        notes.append("training noise is not covered")
    reason = "; ".join([verdict.reason, *notes])
    return replace(verdict, reason=reason, covers_training=test.covers_training)


def _none_if_infinite(value: float) -> float | None:
    """Return a number if it is finite; None for infinity and NaN, which JSON cannot hold."""
    return value if math.isfinite(value) else None


def _judge_fall(verdict: Verdict, test: FallTest, p: float, level: float) -> Verdict:
    """Return the verdict on a score that fell by more than its tolerance, after the test of it.

    The outcome is one of these:

    * ``not comparable`` if the fall is not significant and the test is a weak one, for want of data
      for a better test (``test.problem``);
    * ``lower`` if the fall may be chance, or is smaller than the margin;
    * ``regression`` otherwise.

    Args:
        verdict: The verdict by tolerance. Its ``margin_verdict`` says how the fall compares with
            the largest difference that does not matter, the margin: ``within`` and ``not worse``
            mean that it is smaller. None if no margin is set.
        test: The test.
        p: Its p-value, corrected for the number of scores that were compared.
        level: The level of significance: a fall is significant if ``p`` is below it.
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


def _report_missing_encoders(
    old: CheckSide, old_name_by_encoder: Mapping[str, str]
) -> Iterator[Verdict]:
    """Yield a verdict, with the outcome ``missing``, on each encoder that only has old scores.

    Args:
        old: The old side of the check; ``cells`` are its scores.
        old_name_by_encoder: New name -> old name, of the encoders that both sides have.
    """
    missing_cells = (cell for cell in old.cells if cell.encoder not in old_name_by_encoder.values())
    cells_by_encoder = group_by(missing_cells, lambda cell: cell.encoder)
    reason = (
        "the new results have no encoder of this name; choose other encoders, "
        "or allow missing cells"
    )
    for cells in cells_by_encoder.values():
        # One verdict stands for all scores of the encoder, with the fields of the first.
        fields = {}
        if len(cells) > 1:
            fields = {"task": f"all {len(cells)} cells", "protocol": ""}
        yield Verdict.of_cell(cells[0], outcome="missing", reason=reason, **fields)


def _compare_cells(pool: CellPool, tolerances: Mapping[str, Tolerance]) -> ToleranceVerdict:
    """Compare new with old scores on one task: did the mean score fall by more than is allowed?

    Args:
        pool: ``new`` and ``old`` are the cells, scores of one encoder on the task; a list may be
            empty. With ``is_by_seed``, each list has one cell for each training seed.
        tolerances: Class of difference, such as "same encoder on another machine" -> the fall that
            is allowed. Of the classes of all pairs of a new and an old cell, the one that allows
            most counts.

    Returns:
        The verdict, and the pool if its scores were compared; then the outcome is ``fine``,
        ``higher`` or ``regression``. Otherwise it is ``new`` (no old cell), ``missing`` (no new
        cell) or ``not comparable``.
    """
    first, *_ = (*pool.new, *pool.old)
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
        reason = "the new results have no such cell; score it, or allow missing cells"
        return ToleranceVerdict(Verdict.of_cell(first, "missing", reason, **fields), pools=[])
    mismatch = _describe_pool_mismatch(pool)
    verdict = Verdict.of_cell(first, "not comparable", mismatch, **fields)
    if mismatch:
        return ToleranceVerdict(verdict, pools=[])
    # ``first.n`` is the number of items; on fewer items a score may fall by more points.
    tolerance = max(
        (tolerances[difference_class(new, old)] for new in pool.new for old in pool.old),
        key=lambda tolerance: tolerance.allowed(first.n),
    )
    return ToleranceVerdict(apply_tolerance(verdict, tolerance, first.n), [pool])


def _describe_pool_mismatch(pool: CellPool) -> str:
    """Describe why new and old scores on one task cannot be compared; empty if they can.

    Args:
        pool: ``new`` and ``old`` are the cells, scores with their protocol, data and seeds. Seeds
            may differ if ``is_by_seed``: then each cell of a list is of another training seed.
            Otherwise each list has one cell.
    """
    first_old = pool.old[0]
    # What differs: split, protocol, hash of data or card, or number of items; None if nothing.
    mismatches = [describe_mismatch(cell, first_old) for cell in (*pool.new, *pool.old)]
    if not pool.is_by_seed:
        new = pool.new[0]
        mismatches += [
            f"{seed} differs: {getattr(new, seed)} against {getattr(first_old, seed)}"
            for seed in ("train_seed", "eval_seed")
            if getattr(new, seed) != getattr(first_old, seed)
        ]
    return next(filter(None, mismatches), "")
