"""Whether a result is believed: all that its evaluator measures is recomputed from its items.

Whatever reads results for their scores asks :func:`believe`: runs that reuse them, boards,
comparisons, reports, locks, checks, exports. A verdict is cached in the user's cache folder by hashes
of the bytes of both files, which are read each time. Only the data show whether gold scores and
labels are the right ones: :mod:`stsbench.check.verify` compares these too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from stsbench import numbers
from stsbench.core.cards import TaskCard, task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError
from stsbench.core.files import cached_values, read_bounded
from stsbench.core.provenance import code_digest
from stsbench.core.wording import join_lines, shorten
from stsbench.evaluators.base import Evaluator, ItemColumns, Scores
from stsbench.evaluators.registry import EVALUATORS, make_task_evaluator
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.folder import (
    MAX_COLUMN_BYTES,
    MAX_RESULT_BYTES,
    Problem,
    has_columns,
    read_item_columns,
)
from stsbench.results.record import BOUND_TOLERANCE, Result, find_problems, items_path, score_name

INTERVAL_ROUNDING = 1e-6
"""Ends of intervals this close are the same: sums in another order differ by less."""
SCORE_ROUNDING = 1e-4
"""A probe's score is rounded, and may lie this far from the share that its interval is of."""
AGAIN = "; run the cell again"
NO_COLUMNS = "its per-item columns are not here"
Standing = Literal["verified", "failed", "not verified"]


@dataclass(kw_only=True)
class VerifiedFile:
    """One file of a results folder: what is wrong with it and what is unknown, each in one line."""

    path: Path
    result: Result | None = None
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    other_interval: str = ""
    """How an earlier version computed the interval, which cannot be recomputed then; else empty."""
    data: bool = False
    """Whether its data were at hand, and are those."""

    @property
    def standing(self) -> Standing:
        """Verified is what was all recomputed; what could not be is not."""
        return "failed" if self.problems else "not verified" if self.unknown else "verified"

    def check_fields(self, result: Result) -> None:
        """Note fields of a Result that contradict each other: ranges, score and interval."""
        self.problems += find_problems(result)
        self.check_interval(result.score, result.interval)

    def check_interval(self, score: float, interval: tuple[float, float]) -> None:
        """Note a score that lies outside its own interval."""
        low, high = interval
        if not low - SCORE_ROUNDING <= score <= high + SCORE_ROUNDING:
            line = f"field 'interval': {low:.6g} to {high:.6g} does not hold the score {score:.6g}"
            self.problems.append(line)

    def load_evaluator(self, result: Result, catalogue: Catalogue) -> Evaluator | None:
        """Make the evaluator that recomputes a Result; None if there is none, which is noted."""
        if result.task not in catalogue.paths("tasks"):
            self.unknown.append("the card of its task is not here; give --cards")
            return None
        card = catalogue.task(result.task)
        try:
            EVALUATORS.load(card.evaluator)
        except StsbenchError as error:
            self.unknown.append(f"its evaluator is not here: {join_lines(error)}")
            return None
        try:
            evaluator = make_task_evaluator(result.task, card, result.protocol)
        except StsbenchError as error:
            self.problems.append(f"field 'protocol': {join_lines(error)}")
            return None
        if not hasattr(evaluator, "recompute"):
            self.unknown.append("its evaluator cannot make scores again from items")
            return None
        return evaluator

    def compare_with_items(
        self,
        result: Result,
        items: ItemColumns,
        evaluator: Evaluator,
        labels: ItemColumns | None = None,
    ) -> None:
        """Note each number of a Result that is not what its evaluator makes of the items.

        What training items or other splits decide is not compared.

        Args:
            result: The Result.
            items: Its per-item columns.
            evaluator: Its evaluator, made with its protocol.
            labels: The column ``label`` from the data, if they are available and have one.
        """
        try:
            with np.errstate(all="ignore"):
                recomputed = evaluator.recompute(_with_labels(result, items, labels or {}))
            score_ends = score_range(evaluator, recomputed, result.split)
        except StsbenchError as error:
            self.problems.append(join_lines(error))
        except KeyError as error:
            self.problems.append(f"lacks the column {error}")
        except (TypeError, ValueError) as error:
            self.problems.append(f"its columns are not those of its evaluator: {join_lines(error)}")
        else:
            self.problems += _find_differences(result, recomputed, score_ends)
            if recomputed.interval_method != result.interval_method:
                self.other_interval = result.interval_method


ScoreRange = tuple[float, float]
"""The least and the greatest score that items can have made."""


def score_range(evaluator: Evaluator, recomputed: Scores, split: str) -> ScoreRange:
    """Return between which values the score lies; most evaluators make exactly one of the items."""
    low = high = recomputed.score
    if hasattr(evaluator, "score_range"):
        low, high = evaluator.score_range(recomputed.per_item, split)
    return low - BOUND_TOLERANCE, high + BOUND_TOLERANCE


def format_range(low: float, high: float) -> str:
    """Return two ends as text: a single number if they differ by rounding alone."""
    if high - low < 3 * BOUND_TOLERANCE:
        return f"{(low + high) / 2:.6g}"
    return f"{low:.6g} to {high:.6g}"


def _with_labels(result: Result, items: ItemColumns, labels: ItemColumns) -> ItemColumns:
    """Add the label of each item: that of the data or, with two classes, that of the answers.

    With two classes the label of a wrong answer is the other class. A label that the file of the
    items has is not used: anybody may have written it.
    """
    items = {name: column for name, column in items.items() if name != "label"}
    if not {"prediction", "correct"} <= items.keys():
        return items
    prediction = np.asarray(items["prediction"], dtype=np.int64)
    n_classes = len(result.per_subset)
    if n_classes and not (prediction.min() >= 0 and prediction.max() < n_classes):
        raise DataError(
            f"column 'prediction' holds other classes than the {n_classes} of field 'per_subset'"
        )
    if n_classes != 2 or labels:
        return {**items, **labels}
    is_correct = np.asarray(items["correct"], dtype=bool)
    return {**items, "label": np.where(is_correct, prediction, 1 - prediction)}


def _find_differences(result: Result, recomputed: Scores, score_ends: ScoreRange) -> Iterator[str]:
    """Yield a line for each number of a Result that is not the one recomputed."""
    low, high = score_ends
    if not low <= result.score <= high:
        yield f"field 'score': {result.score:.6g}, the items make {format_range(low, high)}"
    others = {
        name: value for name, value in result.scores.items() if name != score_name(result.protocol)
    }
    yield from _compare_values("field 'scores'", others, recomputed.scores)
    subsets = recomputed.per_subset
    if "gold" not in recomputed.per_item:
        # Classes have names in a Result, and numbers where they are recomputed.
        subsets = dict(zip(result.per_subset, subsets.values(), strict=False))
    for name, values in result.per_subset.items():
        if name in subsets:
            where = f"field 'per_subset': '{shorten(name)}'"
            yield from _compare_values(where, values, subsets[name])
        elif "gold" in recomputed.per_item:
            yield f"field 'per_subset': the items have no subset '{shorten(name)}'"
    if recomputed.interval_method == result.interval_method:
        ends = zip(result.interval, recomputed.interval, strict=True)
        if not max(abs(end - due) for end, due in ends) <= INTERVAL_ROUNDING:
            interval, due = (
                "{:.6g} to {:.6g}".format(*one.interval) for one in (result, recomputed)
            )
            yield f"field 'interval': {interval}, the items make {due}"


def _compare_values(
    where: str, values: Mapping[str, float], recomputed: Mapping[str, float]
) -> Iterator[str]:
    for name, value in values.items():
        label = f"{where}: '{shorten(name)}' is {value:.6g}, the items make"
        if name in recomputed:
            if not abs(value - recomputed[name]) <= BOUND_TOLERANCE:
                yield f"{label} {recomputed[name]:.6g}"
        elif name.partition(".")[0] in CORRELATIONS:
            yield f"{label} none"


class Believed(NamedTuple):
    """Results that their items do not contradict, and what is wrong with each other one."""

    results: list[Result]
    problems: list[Problem]
    unverified: Mapping[str, list[Result]]
    """Those of ``results`` that could not be held to items, by the reason."""

    @property
    def notice(self) -> str:
        """One line on what is not verified, and why; empty if all is."""
        return describe_unverified(self.unverified, len(self.results))


def describe_unverified(unverified: Mapping[str, Sequence[Result]], total: int) -> str:
    """Return one line on the unverified ones of ``total`` results; empty if there are none."""
    if not unverified:
        return ""
    counts = [
        f"{len(results)} of {total} results, each because {reason}"
        for reason, results in unverified.items()
    ]
    return f"not verified: {'; '.join(counts)}"


def believe(
    results: Iterable[Result],
    catalogue: Catalogue,
    progress: Callable[[int, int], object] | None = None,
) -> Believed:
    """Hold Results to the items beside them.

    Args:
        results: Results as they were read; one that was just made, and has no file, is believed.
        catalogue: Names the evaluator of each task.
        progress: Called after each Result that had to be recomputed, with the number of Results
            that are done and the number of all.
    """
    listed, unverified = list(results), dict[str, list[Result]]()
    believed = Believed([], [], unverified)
    cards = {
        task: catalogue.task(task)
        for task in {result.task for result in listed} & catalogue.paths("tasks").keys()
    }
    with cached_values("believed.json", dict[str, list[str]]) as cache:
        for done, result in enumerate(listed, 1):
            file = VerifiedFile(path=result.path or Path(), result=result)
            if (
                result.path is not None
                and _check_file(file, result, catalogue, cards.get(result.task), cache)
                and progress
            ):
                progress(done, len(listed))
            if file.problems:
                believed.problems.append(Problem(file.path, _format_problems(file)))
                continue
            believed.results.append(result)
            for reason in file.unknown:
                unverified.setdefault(reason, []).append(result)
    return believed


def _format_problems(file: VerifiedFile) -> str:
    lines = "; ".join(file.problems)
    again = "" if lines.endswith(AGAIN) else AGAIN
    return f"{lines}{again}" if str(file.path) in lines else f"{file.path}: {lines}{again}"


def _check_file(
    file: VerifiedFile,
    result: Result,
    catalogue: Catalogue,
    card: TaskCard | None,
    cache: dict[str, list[str]],
) -> bool:
    """Note what is wrong with a Result that lies in a file; return whether it was recomputed."""
    if not has_columns(result):
        file.check_fields(result)
        file.unknown.append(NO_COLUMNS)
        return False
    try:
        content = read_bounded(items_path(file.path), MAX_COLUMN_BYTES)
        key = _cache_key(result, read_bounded(file.path, MAX_RESULT_BYTES), content, card)
        if key in cache:
            file.problems += cache[key]
            return False
        file.check_fields(result)
        columns, evaluator = (
            read_item_columns(result, content),
            file.load_evaluator(result, catalogue),
        )
    except DataError as error:
        file.problems.append(str(error))
        return True
    if evaluator is not None:
        file.compare_with_items(result, columns, evaluator)
    # An evaluator of a user's own may change with none of the files that the key is of.
    if card is not None and card.evaluator in EVALUATORS.table:
        cache[key] = file.problems
    return True


def _cache_key(result: Result, content: bytes, items: bytes, card: TaskCard | None) -> str:
    """Hash the bytes of both files, the Result as it was read, its task's card and the formulas."""
    code = code_digest(Path(__file__).parent, *map(Path, numbers.__path__))
    facts = [
        code,
        task_digest(card) if card is not None else "",
        result.digest,
        *(hashlib.sha256(one).hexdigest() for one in (content, items)),
    ]
    return hashlib.sha256("".join(facts).encode()).hexdigest()[:32]
