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
from stsbench.boards.tables.column_scores import (
    make_column_spec,
    scores_by_seed,
    select_column_results,
)
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
    """Compare measured scores with the scores that papers print for the same encoders.

    The card of an encoder names the rows of tables in papers that are about it. A measured score
    may be lower than the published one by a number of points, which depends on its class:

    * ``published`` for tasks of semantic similarity (STS);
    * ``probe`` for protocols that train a classifier or a regressor, or ``probe-few`` if the task
      has few items;
    * instead of these, twice the published deviation, if there is one and it allows more.

    Published scores are ignored if their protocol is not known here, if they are misprints, and if
    they were read in a figure instead of a text.

    Args:
        new: The measured scores, from a results folder. A lock file does not hold all metrics.
        catalogue: The cards of encoders and tasks.
        exact: Whether a higher score fails the check too.
        strict: Whether a score that could not be recomputed from its items fails the check.
        tolerances: Class -> how many points a score may be lower.

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
    """Yield a verdict on each score that papers print for one encoder and that was measured.

    Args:
        encoder_results: The measured results of the encoder, and its card, which names rows of
            tables in papers. The card is None if the results are of another encoder of its name.
        new: All measured scores of the check; it says which could not be recomputed from items.
        catalogue: The cards of tasks.
        tolerances: Class of a score -> how many points it may be lower than the published one.
    """
    # Such as "paper/table/row".
    row_keys = encoder_results.card.published if encoder_results.card else []
    for row in [look_up_published_row(key) for key in row_keys]:
        for score in row.scores:
            if not _is_checkable(row.key, score, catalogue):
                continue
            verdict = _judge_score(row.key, score, encoder_results, new, catalogue, tolerances)
            if verdict is not None:
                yield verdict


def _is_checkable(row_key: str, score: PublishedScore, catalogue: Catalogue) -> bool:
    """Return whether a score in a paper can be compared with a measured one.

    It must have been read in a text (and not, less exactly, in a figure), be no misprint, and have
    a protocol and a task that are known here.

    Args:
        row_key: The row of a paper's table that the score is in, ``paper/table/row``.
        score: The score. ``score.verified`` says where it was read.
        catalogue: The cards of tasks.
    """
    misprints = read_misprints()
    # A misprint is of a whole row, which has an empty task, or of its number for one task.
    is_misprint = (row_key, "") in misprints or (row_key, score.task) in misprints
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
    """Compare the measured score of an encoder with a score in a paper.

    Args:
        row_key: The row of a paper's table that the score is in, ``paper/table/row``; the reason of
            the verdict names it.
        score: The score in the paper, times 100, with its task, split, protocol and metric.
        encoder_results: The measured results of the encoder; of several training seeds the mean
            score is compared.
        new: All measured scores of the check; it says which could not be recomputed from items.
        catalogue: The cards of tasks.
        tolerances: Class of a score -> how many points it may be lower than the published one.

    Returns:
        The verdict; None if there is no such measured score.
    """
    # A leaderboard finds the measured score for a column of published ones in the same way.
    column = ColumnFacts(task=score.task, split=score.split)
    column_spec = make_column_spec(column, score.protocol, score.metric, catalogue)
    # The score of each pair of a training and an evaluation seed, times 100.
    measured = list(scores_by_seed(encoder_results, column_spec).values())
    if not measured:
        return None
    results = select_column_results(encoder_results.results, column_spec)
    # All have the same encoder and number of items; they differ in the seed.
    first = results[0]
    # A score by another metric than its protocol's usual one has the metric behind its task.
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
    # The reason names the row, so that a reader can look the published number up.
    tolerance = replace(tolerance, reason=f"{tolerance.reason}; {row_key}")
    # With the outcome ``fine``, ``higher`` or ``regression``.
    return apply_tolerance(verdict, tolerance, first.n)


def _published_tolerance(
    score: PublishedScore, evaluator: str, n_items: int, tolerances: Mapping[str, Tolerance]
) -> Tolerance:
    """Return how far a measured score may lie below the score in a paper.

    It depends on the kind of task, and for tasks of few items on their number. If the paper prints
    the deviation of its score, twice the deviation is allowed, if that is more.

    Args:
        score: The score in the paper; its ``deviation``, in points, may be None.
        evaluator: The name of the code that scores the task; ``sts`` for semantic similarity.
        n_items: The number of items of the task.
        tolerances: Class of a score -> how many points it may be lower than the published one.
    """
    if evaluator == "sts":
        tolerance = tolerances["published"]
    else:
        tolerance = tolerances["probe-few" if n_items < SMALL_TASK_ITEMS else "probe"]
    if score.deviation is not None and 2 * score.deviation > tolerance.points:
        return replace(tolerance, points=2 * score.deviation, reason="twice the printed deviation")
    return tolerance
