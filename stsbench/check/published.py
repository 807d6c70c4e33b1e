"""Checks of measured scores against those that papers print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from stsbench.boards.published.rows import (
    ColumnFacts,
    PublishedScore,
    look_up_published_row,
    read_misprints,
    read_published_protocols,
)
from stsbench.boards.tables.column_scores import make_column_spec, scores_by_seed
from stsbench.check.lock import CheckSide
from stsbench.check.verdicts import (
    SMALL_TASK_ITEMS,
    TOLERANCES,
    CheckReport,
    Tolerance,
    Verdict,
    apply_strictness,
    apply_tolerance,
    report_unreadable,
)
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.groups import EncoderResults, group_by_encoder


def check_published(
    new: CheckSide,
    catalogue: Catalogue,
    *,
    exact: bool = False,
    strict: bool = False,
    tolerances: Mapping[str, Tolerance] = TOLERANCES,
) -> CheckReport:
    """Judge by tolerance every measured score that a published row of the encoder's card has too.

    Scores of STS are of the class ``published``. Those of protocols that train a classifier or a
    regressor are of the class ``probe``, or ``probe-few`` for a task of few items. If a deviation
    is published, twice that is allowed. Published scores are ignored if their protocol has no name
    here, if they are misprints, and if they were read in a figure instead of a text.

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
    usual_metric = read_published_protocols()[score.protocol].metric
    unverified_reasons = filter(None, map(new.why_unverified, results))
    verdict = Verdict(
        encoder=first.encoder,
        task=score.task if score.metric == usual_metric else f"{score.task} {score.metric}",
        split=column_spec.split,
        protocol=score.protocol,
        outcome="fine",
        reason="",
        new=mean_and_deviation(measured).mean / 100,
        old=score.value / 100,
        not_verified=next(unverified_reasons, ""),
    )
    tolerance = _published_tolerance(score, column_spec.evaluator, first.n, tolerances)
    # The reader of the verdict looks the published number up by this key.
    tolerance = replace(tolerance, reason=f"{tolerance.reason}; {row_key}")
    return apply_tolerance(verdict, tolerance, first.n)


def _published_tolerance(
    score: PublishedScore, evaluator: str, n_items: int, tolerances: Mapping[str, Tolerance]
) -> Tolerance:
    """Return how far a measured score may lie below a published one.

    Args:
        score: The published score; twice its deviation is allowed, if that is printed and more.
        evaluator: The name of the task's evaluator.
        n_items: The number of items of the task.
        tolerances: By class of difference.
    """
    if evaluator == "sts":
        tolerance = tolerances["published"]
    else:
        tolerance = tolerances["probe-few" if n_items < SMALL_TASK_ITEMS else "probe"]
    if score.deviation is not None and 2 * score.deviation > tolerance.points:
        return replace(tolerance, points=2 * score.deviation, reason="twice the printed deviation")
    return tolerance
