"""Measured scores checked against those that papers printed of the same encoder, as its card names them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stsbench.boards.published import ColumnFacts, PublishedRow, Score, misprints, protocols, published_row
from stsbench.boards.tables.columns import series, wanted_of
from stsbench.boards.tables.table import Wanted
from stsbench.check.gate import FEW, TOLERANCES, Check, Tolerance, Verdict, unreadable, within
from stsbench.check.lock import Side
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError
from stsbench.numbers.statistics import spread
from stsbench.results.groups import Runs, gather_runs
from stsbench.results.record import Result


def check_published(
    new: Side, catalogue: Catalogue, *, exact: bool = False, tolerances: Mapping[str, Tolerance] = TOLERANCES
) -> Check:
    """Judge every measured score that a published row of the encoder's card has too, by the tolerance alone.

    STS is of class ``published``; what trains a classifier or regressor of ``probe`` or ``probe-few``. Where
    a deviation is printed, twice that is allowed. Scores by protocols of no name, misprints and numbers
    that nobody read in a text are passed over.

    The new side must be Results: a lock file's cells do not hold all metrics.

    Raises:
        DataError: nothing measured is published.
    """
    new = new.verified()
    results = [one for _, one in new.cells if one is not None]
    verdicts = [v for runs in gather_runs(results, catalogue) for v in _of_encoder(runs, catalogue, tolerances)]
    broken = unreadable(new)
    if not verdicts and not broken:
        raise DataError(
            "no result has a published score to check it against: a card's key 'published' names rows, "
            "and only results that carry the card's hash count, not those with --set or of another encoder of its name"
        )
    return Check(verdicts=[*verdicts, *broken], rule="absolute", exact=exact)


def _of_encoder(runs: Runs, catalogue: Catalogue, tolerances: Mapping[str, Tolerance]) -> Iterator[Verdict]:
    for row in [published_row(key) for key in (runs.card.published if runs.card else [])]:
        for score in row.scores:
            is_wrong = score.verified in ("figure", "no") or {(row.key, ""), (row.key, score.task)} & {*misprints()}
            if is_wrong or score.protocol not in protocols() or score.task not in catalogue.paths("tasks"):
                continue
            facts = ColumnFacts(task=score.task, split=score.split)
            wanted, _ = wanted_of(facts, score.protocol, score.metric, catalogue)
            if measured := list(series(runs, wanted).values()):
                result = next(r for r in runs.results if (r.task, r.split) == (wanted.task, wanted.split))
                yield _judge(row, score, wanted, result, measured, tolerances)


def _judge(
    row: PublishedRow,
    score: Score,
    wanted: Wanted,
    result: Result,
    measured: Sequence[float],
    tolerances: Mapping[str, Tolerance],
) -> Verdict:
    name = "published" if wanted.evaluator == "sts" else "probe-few" if result.n < FEW else "probe"
    points, why = tolerances[name].points, f"{tolerances[name].why}; {row.key}"
    if score.deviation is not None and 2 * score.deviation > points:
        points, why = 2 * score.deviation, f"twice the printed deviation; {row.key}"
    value = spread(measured).mean / 100
    verdict = Verdict(
        encoder=result.encoder,
        task=score.task if score.metric == protocols()[score.protocol].metric else f"{score.task} {score.metric}",
        split=wanted.split,
        protocol=score.protocol,
        train_seed=None,
        eval_seed=0,
        outcome="fine",
        reason="",
        new=value,
        old=score.value / 100,
    )
    return within(verdict, value - score.value / 100, points=points, name=name, why=why)
