"""Checks of new scores against old or published ones, with a verdict on each cell and mean.

A fall too small to see on one task may be plain on the mean of a suite. Cells move independently
if only machine, precision or probes differ: if each may fall by its tolerance, the mean of k may
fall by the root of the sum of their squares, divided by k.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from stsbench.boards.published.rows import (
    ColumnFacts,
    PublishedScore,
    look_up_published_row,
    read_misprints,
    read_published_protocols,
)
from stsbench.boards.tables.columns import make_column_spec, scores_by_seed
from stsbench.check.lock import CheckSide, LockedCell, unpack, verify_row
from stsbench.check.verdicts import (
    SMALL_TASK_ITEMS,
    TOLERANCES,
    CellPair,
    CheckReport,
    Outcome,
    Rule,
    Tolerance,
    ToleranceVerdict,
    Verdict,
    apply_strictness,
    apply_tolerance,
    classify,
    report_unreadable,
)
from stsbench.core.cards import Suite
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError
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


class TestResult(NamedTuple):
    """The result of a significance test."""

    p: float
    """The p-value; 1 if there is no test."""
    test: str
    """The name of the test; ``none`` if there is none."""
    problem: str | None = None
    """Why there is no paired test, so that a fall without significance may still be real."""


def difference_test(pairs: Sequence[CellPair], effort: TestSettings) -> TestResult:
    """Test the difference of a pair of cells, or of the means over several pairs.

    The test is paired if both sides have their items, which may share sentences between tasks.
    Otherwise it is made from the intervals, and too weak to excuse a fall.

    Args:
        pairs: The cells to compare: one pair, or those of a suite.
        effort: The settings of the paired test: its permutations, level and seed.
    """
    paired: list[MeasuredDifference] = []
    try:
        for new, old in pairs:
            new_result = _result_with_items(new, old)
            old_result = _result_with_items(old, new)
            if new_result is not None and old_result is not None:
                paired += compare_on_task({"old": [old_result], "new": [new_result]}, effort)
    except DataError as error:
        return TestResult(p=1.0, test="none", problem=str(error))
    # One difference for each pair: all of them have items on both sides.
    if len(paired) == len(pairs):
        difference = mean_difference(paired) if len(paired) > 1 else paired[0].difference
        if difference.p is not None:
            return TestResult(difference.p, test="paired test")
    # Rows of lock files: the cells without a Result.
    locked_cells = [cell for pair in pairs for cell in pair if cell.result is None]
    if any(cell.paired is None for cell in locked_cells):
        problem = "the lock holds no per-item values; lock again beside them"
    elif len(locked_cells) > len(pairs):
        problem = "two locks hold no gold scores"
    else:
        problem = "no paired test is known"
    return TestResult(_p_from_intervals(pairs), test="from the intervals", problem=problem)


def _p_from_intervals(pairs: Sequence[CellPair]) -> float:
    """Return the p-value of the summed difference of independent normal scores.

    Two-sided. A standard error is the width of a 95% interval over twice the normal distribution's
    97.5% point. The test ignores that the items of both sides are the same.

    Args:
        pairs: The new and the old cells, each with a score and its interval.
    """
    from scipy import special

    intervals = [cell.interval for pair in pairs for cell in pair]
    variance = sum(((high - low) / (2 * special.ndtri(0.975))) ** 2 for low, high in intervals)
    standard_error = variance**0.5
    difference = abs(sum(pair.new.score - pair.old.score for pair in pairs))
    return float(2 * special.ndtr(-difference / standard_error)) if standard_error else 0.0


def _result_with_items(cell: LockedCell, counterpart: LockedCell) -> Result | None:
    """Return the Result of a cell, with its per-item columns; None if neither side has items.

    Args:
        cell: The cell. For a row of a lock the Result is composed of the locked column, and of the
            columns of its counterpart, whose data are the same: a lock holds no gold scores.
        counterpart: The other side's cell.
    """
    if cell.result is not None or cell.paired is None or counterpart.result is None:
        return cell.result
    columns = {
        **read_item_columns(counterpart.result),
        cell.paired.column: unpack(cell.paired, cell.n),
    }
    return msgspec.structs.replace(
        counterpart.result, score=cell.score, interval=cell.interval, per_item=columns, path=None
    )


def compare_suite_means(
    cell_verdicts: Sequence[ToleranceVerdict], suites: Mapping[str, Suite]
) -> list[ToleranceVerdict]:
    """Compare the means over suites by tolerance.

    There is one for each encoder, protocol and seed, and each suite with a mean, if all cells of
    the suite were compared.

    Args:
        cell_verdicts: The verdicts on cells; those on splits for development are in no mean.
        suites: The suites by name.
    """
    verdicts_by_group: dict[tuple[object, ...], dict[str, ToleranceVerdict]] = {}
    for cell_verdict in cell_verdicts:
        verdict = cell_verdict.verdict
        # A cell that was not compared, or is of a split for development, is in no mean.
        if cell_verdict.pairs and verdict.split in ("test", "all"):
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
    """Compare the mean over a suite; None if a cell of it was not compared.

    Cells move independently, so the mean of k may fall by the root of the sum of the squares of
    their tolerances, over k.

    Args:
        suite: The suite.
        verdict_by_task: The verdicts on the cells of one encoder, protocol and seed, by task.
    """
    new_scores = {task: cell.verdict.new for task, cell in verdict_by_task.items()}
    old_scores = {task: cell.verdict.old for task, cell in verdict_by_task.items()}
    new_mean = suite_mean(suite.tasks, new_scores.get)
    old_mean = suite_mean(suite.tasks, old_scores.get)
    if new_mean is None or old_mean is None:
        return None
    cells = [verdict_by_task[task] for task in suite.tasks]
    n_cells = len(cells)
    tolerance_names = list(dict.fromkeys(str(cell.verdict.tolerance) for cell in cells))
    tolerance = Tolerance(
        name=tolerance_names[0] if len(tolerance_names) == 1 else "several",
        points=sum((cell.verdict.points or 0.0) ** 2 for cell in cells) ** 0.5 / n_cells,
        reason=f"the mean of {n_cells} cells, each with a tolerance of its own",
    )
    verdict = replace(
        # Encoder, protocol and seeds are those of all its cells.
        cells[0].verdict,
        task=f"mean of {suite.name}",
        split="test",
        new=new_mean,
        old=old_mean,
        is_mean=True,
        not_verified="",
    )
    pairs = [pair for cell in cells for pair in cell.pairs]
    return ToleranceVerdict(apply_tolerance(verdict, tolerance, n_cells), pairs)


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
    effort: TestSettings | None = None,
    catalogue: Catalogue | None = None,
) -> CheckReport:
    """Judge every cell of both sides, and the means over suites all of whose cells are compared.

    A score may lie below the old one by its class's tolerance. By the rule ``statistical`` a lower
    one is a regression only if the difference is also significant: by the paired permutation test
    if both sides have per-item columns, else by their intervals as if the items were not the same.
    That is too weak to excuse a fall, so one that is not significant then is not comparable.
    p-values are corrected after Holm over all cells, and separately over all means. The same
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
        effort: The settings of significance tests.
        catalogue: The cards of tasks, which name their evaluators.

    Raises:
        DataError: No encoder is on both sides, or per-item columns that a test needs are missing
            or broken.
    """
    effort = effort or TestSettings()
    catalogue = catalogue or Catalogue()
    if chosen:
        # Cells and unreadable files of these encoders; all of the old side if it has none.
        chosen_side = old.select_encoders(list({cell.encoder: None for cell in new.cells}))
        old = chosen_side if chosen_side.cells or chosen_side.problems else old
    unreadable = report_unreadable(new, old)
    verdicts = unreadable
    old_name_by_encoder = match_encoders(new, old)
    if old_name_by_encoder or not unreadable:
        matches = match_cells(new.cells, old.cells, old_name_by_encoder)
        cell_verdicts = _judge_cells(matches, new, old, tolerances, catalogue)
        mean_verdicts = compare_suite_means(cell_verdicts, suites=suites or {})
        verdicts = [
            *RULES[rule](cell_verdicts, effort),
            *RULES[rule](mean_verdicts, effort),
            *_report_missing_encoders(old, old_name_by_encoder),
            *unreadable,
        ]
    if strict:
        verdicts = [apply_strictness(verdict) for verdict in verdicts]
    return CheckReport(verdicts=verdicts, rule=rule, exact=exact, allow_missing=allow_missing)


def _judge_cells(
    matches: Iterable[MatchedCells],
    new: CheckSide,
    old: CheckSide,
    tolerances: Mapping[str, Tolerance],
    catalogue: Catalogue,
) -> list[ToleranceVerdict]:
    """Return the verdicts on cells by tolerance, with what is not verified of each.

    Args:
        matches: The cells of both sides by pairs.
        new: The new side.
        old: The old side.
        tolerances: By class of difference.
        catalogue: The cards of tasks.
    """
    verdicts = []
    for matched in matches:
        verdict = _compare_cells(matched, tolerances)
        verdicts.append(_verify_against_items(verdict, matched, new, old, catalogue))
    return verdicts


class MatchedCells(NamedTuple):
    """A new and an old cell of the same task; one of them is None if it has no counterpart."""

    new: LockedCell | None
    old: LockedCell | None


def _verify_against_items(
    cell_verdict: ToleranceVerdict,
    matched: MatchedCells,
    new: CheckSide,
    old: CheckSide,
    catalogue: Catalogue,
) -> ToleranceVerdict:
    """Add to a verdict which of its scores are not verified, and why.

    Args:
        cell_verdict: The verdict by tolerance.
        matched: The cells that it is on.
        new: The new side, which tells which of its Results were compared with their items.
        old: The old side.
        catalogue: The cards of tasks, which name their evaluators.

    Returns:
        The verdict; ``unreadable`` if it compares a row of a lock that the other side's data
        contradict.
    """
    reasons: list[str] = []
    problems: list[str] = []
    for side_name, side, cell, counterpart in (
        ("new", new, matched.new, matched.old),
        ("old", old, matched.old, matched.new),
    ):
        if cell is None:
            continue
        if cell.result is not None:
            reason = side.why_unverified(cell.result)
            reasons += [f"{side_name}: {reason}"] if reason else []
        # A row of a lock, compared with a cell of the same data, by which it can be verified.
        elif cell_verdict.pairs:
            counterpart_result = counterpart.result if counterpart is not None else None
            row = verify_row(cell, counterpart_result, catalogue)
            reasons += [f"{side_name}: {reason}" for reason in row.unknown]
            problems += [f"{side_name} results: {problem}" for problem in row.problems]
    verdict = replace(cell_verdict.verdict, not_verified="; ".join(reasons))
    if problems:
        verdict = replace(verdict, outcome="unreadable", reason="; ".join(problems))
        return ToleranceVerdict(verdict, pairs=[])
    return cell_verdict._replace(verdict=verdict)


def _judge_by_test(
    tolerance_verdicts: Sequence[ToleranceVerdict], effort: TestSettings
) -> list[Verdict]:
    """Return the final verdicts by the rule ``statistical``: falls beyond the tolerance are tested.

    A fall of one and the same encoder is not tested, and stays a regression. p-values are corrected
    over all scores that were compared, untested ones with a p-value of 1.

    Args:
        tolerance_verdicts: The verdicts by tolerance, on all cells or on all means.
        effort: The settings of the tests, among them the level of significance.

    Returns:
        The verdicts in the same order; those of untested scores are unchanged.
    """
    # A test asks whether a fall may be due to the choice of the items. The same encoder embeds the
    # same items on both sides, so its scores differ for another reason, which no test measures.
    tests = {
        index: difference_test(judged.pairs, effort)
        for index, judged in enumerate(tolerance_verdicts)
        if judged.verdict.outcome == "regression"
        and judged.verdict.tolerance not in SAME_ENCODER_TOLERANCES
    }
    compared = [index for index, judged in enumerate(tolerance_verdicts) if judged.pairs]
    # Only scores that were compared can be a regression, so each test has its p-value here.
    # Holm's correction counts all comparisons, so that a fall is not picked out by its size.
    p_values = [tests[index].p if index in tests else 1.0 for index in compared]
    corrected = dict(zip(compared, holm(p_values), strict=True))
    verdicts = [judged.verdict for judged in tolerance_verdicts]
    for index, test in tests.items():
        verdicts[index] = _add_test(verdicts[index], test, p=corrected[index], level=effort.level)
    return verdicts


def _add_test(verdict: Verdict, test: TestResult, p: float, level: float) -> Verdict:
    """Return the verdict on a fall after its test.

    Args:
        verdict: The verdict by tolerance, a regression.
        test: The result of the test.
        p: Its p-value, corrected for the number of scores.
        level: The p-value from which on a fall is not significant.
    """
    is_significant = p < level
    if test.problem is not None and not is_significant:
        reason = f"{verdict.reason}; the statistical rule cannot judge it: {test.problem}"
        return replace(verdict, outcome="not comparable", reason=reason)
    finding = "real" if is_significant else "may be chance"
    outcome: Outcome = "regression" if is_significant else "lower"
    reason = f"{verdict.reason}; {finding}, corrected p {p:.2g} ({test.test})"
    return replace(verdict, outcome=outcome, reason=reason, p=p)


RULES: Mapping[Rule, Callable[[Sequence[ToleranceVerdict], TestSettings], list[Verdict]]] = {
    "absolute": lambda tolerance_verdicts, effort: [
        judged.verdict for judged in tolerance_verdicts
    ],
    "statistical": _judge_by_test,
}
"""Each rule makes verdicts of those by tolerance; called for all cells, then for all means."""


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
) -> Iterator[MatchedCells]:
    """Yield each cell of the new side's encoders with the old cell to compare it with.

    Cells of one task that were scored alike are matched first. The others on both sides were
    scored differently, and are matched so that their difference is reported.

    Args:
        new: The new cells.
        old: The old cells.
        old_name_by_encoder: The encoders' names on the old side by those on the new one.
    """
    for encoder in dict.fromkeys(cell.encoder for cell in new):
        new_cells = [cell for cell in new if cell.encoder == encoder]
        old_cells = [cell for cell in old if cell.encoder == old_name_by_encoder.get(encoder)]
        for task in dict.fromkeys(cell.task for cell in (*new_cells, *old_cells)):
            yield from _match_cells_of_task(
                [cell for cell in new_cells if cell.task == task],
                [cell for cell in old_cells if cell.task == task],
            )


def _match_cells_of_task(
    new_cells: Sequence[LockedCell], old_cells: Sequence[LockedCell]
) -> Iterator[MatchedCells]:
    """Yield pairs of a new and an old cell; a cell without a counterpart is paired with None.

    Cells of the same split, protocol and seeds come first, then those of the same split and
    protocol, then any.

    Args:
        new_cells: The new cells of one encoder on one task.
        old_cells: The old ones.
    """
    new_by_conditions = {cell.conditions: cell for cell in new_cells}
    unmatched_old = {cell.conditions: cell for cell in old_cells}
    matched_old = {
        conditions: unmatched_old.pop(conditions)
        for conditions in new_by_conditions
        if conditions in unmatched_old
    }
    for conditions, cell in new_by_conditions.items():
        counterpart = matched_old.get(conditions)
        if counterpart is None and unmatched_old:
            # A cell of the same split and protocol if there is one: it differs in seeds only.
            candidates = [
                old_conditions
                for old_conditions in unmatched_old
                if old_conditions[:2] == conditions[:2]
            ]
            counterpart = unmatched_old.pop((candidates or list(unmatched_old))[0])
        yield MatchedCells(cell, counterpart)
    for old_cell in unmatched_old.values():
        yield MatchedCells(new=None, old=old_cell)


def _report_missing_encoders(
    old: CheckSide, old_name_by_encoder: Mapping[str, str]
) -> Iterator[Verdict]:
    """Yield a verdict on each encoder that only the old side has.

    Args:
        old: The old side.
        old_name_by_encoder: The old names of the encoders that both sides have, by new name.
    """
    cells_by_encoder: dict[str, list[LockedCell]] = {}
    for cell in old.cells:
        if cell.encoder not in old_name_by_encoder.values():
            cells_by_encoder.setdefault(cell.encoder, []).append(cell)
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


def _compare_cells(matched: MatchedCells, tolerances: Mapping[str, Tolerance]) -> ToleranceVerdict:
    """Compare two cells by tolerance, if both exist and are comparable.

    Args:
        matched: The cells, of the same task.
        tolerances: By class of difference.
    """
    new, old = matched
    if old is None:
        assert new is not None, "a match has a cell"
        verdict = Verdict.of_cell(
            new, outcome="new", reason="the old results have no such cell", new=new.score
        )
        return ToleranceVerdict(verdict, pairs=[])
    if new is None:
        verdict = Verdict.of_cell(
            old, outcome="missing", reason="the new results have no such cell", old=old.score
        )
        return ToleranceVerdict(verdict, pairs=[])
    mismatch = describe_mismatch(new, old)
    for seed in ("train_seed", "eval_seed"):
        if mismatch is None and getattr(new, seed) != getattr(old, seed):
            mismatch = f"{seed} differs: {getattr(new, seed)} against {getattr(old, seed)}"
    verdict = Verdict.of_cell(
        new, outcome="not comparable", reason=mismatch or "", new=new.score, old=old.score
    )
    if mismatch is not None:
        return ToleranceVerdict(verdict, pairs=[])
    tolerance = tolerances[classify(new, old)]
    return ToleranceVerdict(apply_tolerance(verdict, tolerance, new.n), [CellPair(new, old)])


def check_published(
    new: CheckSide,
    catalogue: Catalogue,
    *,
    exact: bool = False,
    strict: bool = False,
    tolerances: Mapping[str, Tolerance] = TOLERANCES,
) -> CheckReport:
    """Judge by tolerance every measured score that a published row of the encoder's card has too.

    STS is of class ``published``; protocols that train a classifier or regressor are of class
    ``probe`` or ``probe-few``. If a deviation is published, twice that is allowed. Scores by
    protocols without a name, misprints and numbers that nobody read in a text are ignored.

    Args:
        new: A side of Results; a lock file's cells do not hold all metrics.
        catalogue: The cards of encoders and tasks.
        exact: A higher score fails the check too.
        strict: A score that is not verified is not fine.
        tolerances: By class of difference.

    Raises:
        DataError: No measured score is published.
    """
    verdicts = [
        verdict
        for encoder_results in group_by_encoder(new.results(), catalogue)
        for verdict in _judge_encoder(encoder_results, new, catalogue, tolerances)
    ]
    if strict:
        verdicts = [apply_strictness(verdict) for verdict in verdicts]
    unreadable = report_unreadable(new)
    if not verdicts and not unreadable:
        raise DataError(
            "no result has a published score to check it against: a card's key 'published' names "
            "rows, and only results that carry the card's hash count, not those with `params` or "
            "of another encoder of its name"
        )
    return CheckReport(verdicts=[*verdicts, *unreadable], rule="absolute", exact=exact)


def _judge_encoder(
    encoder_results: EncoderResults,
    new: CheckSide,
    catalogue: Catalogue,
    tolerances: Mapping[str, Tolerance],
) -> Iterator[Verdict]:
    """Yield a verdict on each score that the published rows of an encoder's card have.

    Args:
        encoder_results: The results of one encoder; those that are not of its card have no rows.
        new: The side of the results, which tells which of them were compared with their items.
        catalogue: The cards of tasks.
        tolerances: By class of difference.
    """
    row_keys = encoder_results.card.published if encoder_results.card else []
    for row in [look_up_published_row(key) for key in row_keys]:
        for score in row.scores:
            if not _is_checkable(row.key, score, catalogue):
                continue
            verdict = _judge_score(row.key, score, encoder_results, new, catalogue, tolerances)
            if verdict is not None:
                yield verdict


def _is_checkable(row_key: str, score: PublishedScore, catalogue: Catalogue) -> bool:
    """Return whether a published score was read in a text, and can be measured here.

    Args:
        row_key: The published row; if it or its number for the task is a misprint, it cannot.
        score: One score of it.
        catalogue: The cards of tasks.
    """
    is_misprint = not read_misprints().keys().isdisjoint({(row_key, ""), (row_key, score.task)})
    was_read = score.verified not in ("figure", "no")
    return (
        was_read
        and not is_misprint
        and score.protocol in read_published_protocols()
        and score.task in catalogue.paths("tasks")
    )


def _judge_score(
    row_key: str,
    score: PublishedScore,
    encoder_results: EncoderResults,
    new: CheckSide,
    catalogue: Catalogue,
    tolerances: Mapping[str, Tolerance],
) -> Verdict | None:
    """Return the verdict on a published score; None if it was not measured.

    Args:
        row_key: The published row, named in the verdict's reason.
        score: One score of it, times 100.
        encoder_results: The results of the encoder, several if there are several seeds.
        new: The side of the results, which tells which of them were compared with their items.
        catalogue: The cards of tasks.
        tolerances: By class of difference.
    """
    # As a leaderboard finds the measured score beside a published one.
    column = ColumnFacts(task=score.task, split=score.split)
    column_spec = make_column_spec(column, score.protocol, score.metric, catalogue)
    measured = list(scores_by_seed(encoder_results, column_spec).values())
    if not measured:
        return None
    results = [
        result
        for result in encoder_results.results
        if (result.task, result.split) == (column_spec.task, column_spec.split)
    ]
    # Results of several seeds agree in encoder and number of items.
    first = results[0]
    if column_spec.evaluator == "sts":
        tolerance = tolerances["published"]
    else:
        tolerance = tolerances["probe-few" if first.n < SMALL_TASK_ITEMS else "probe"]
    if score.deviation is not None and 2 * score.deviation > tolerance.points:
        tolerance = replace(
            tolerance, points=2 * score.deviation, reason="twice the printed deviation"
        )
    is_usual_metric = score.metric == read_published_protocols()[score.protocol].metric
    unverified_reasons = filter(None, map(new.why_unverified, results))
    verdict = Verdict(
        encoder=first.encoder,
        task=score.task if is_usual_metric else f"{score.task} {score.metric}",
        split=column_spec.split,
        protocol=score.protocol,
        outcome="fine",
        reason="",
        new=mean_and_deviation(measured).mean / 100,
        old=score.value / 100,
        not_verified=next(unverified_reasons, ""),
    )
    # The reader of the verdict looks the published number up by this key.
    tolerance = replace(tolerance, reason=f"{tolerance.reason}; {row_key}")
    return apply_tolerance(verdict, tolerance, first.n)
