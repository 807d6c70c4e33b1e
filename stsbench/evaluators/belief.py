"""Belief in results: all that their evaluators measure is recomputed from their items.

All code that reads results for their scores calls :func:`believe`: runs that reuse them, boards,
comparisons, reports, locks, checks, exports. A verdict is cached in the user's cache folder by
hashes of the bytes of both files, which are read each time. Only the data show whether gold scores
and labels are the right ones: :mod:`stsbench.check.verify` compares these too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from stsbench import numbers
from stsbench.core.cards import TaskCard, task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError
from stsbench.core.files import cached_values, read_bounded
from stsbench.core.provenance import code_digest
from stsbench.core.wording import as_one_line, shorten
from stsbench.evaluators.base import Evaluator, ItemColumns, Scores
from stsbench.evaluators.probe.evaluator import ProbeEvaluator
from stsbench.evaluators.registry import EVALUATORS, make_task_evaluator
from stsbench.numbers.dependence import read_dependence
from stsbench.numbers.intervals import (
    EARLIER_INTERVAL_METHODS,
    correlation_interval,
    share_interval,
)
from stsbench.numbers.similarity import FURTHER_CORRELATIONS
from stsbench.numbers.statistics import CORRELATIONS, weigh_subsets
from stsbench.results.folder import (
    MAX_COLUMN_BYTES,
    MAX_RESULT_BYTES,
    Problem,
    has_columns,
    read_item_columns,
)
from stsbench.results.record import BOUND_TOLERANCE, Result, find_problems, items_path, score_name
from stsbench.significance.items import find_tested_column

INTERVAL_ROUNDING = 1e-6
"""The largest difference of equal interval bounds: sums in another order differ by less."""
SCORE_ROUNDING = 1e-4
"""The largest distance of a probe's rounded score from the share that its interval is of."""
RUN_AGAIN_HINT = "; run the cell again"
NO_CARD_REASON = "no folder of cards holds the card of its task"
NO_ITEM_FILE_REASON = "its per-item columns are not here"
Standing = Literal["verified", "failed", "not verified"]


@dataclass(kw_only=True)
class VerifiedFile:
    """One file of a results folder, and how far its numbers were confirmed.

    Attributes:
        path: The file.
        result: The Result in it; None if it is not a valid one.
        problems: What is wrong with it, one line each.
        unverified_reasons: Why numbers could not be checked, one line each.
        other_interval: The method by which the interval was computed if it cannot be recomputed;
            otherwise empty.
        recomputed: All that its evaluator recomputed from its items; None if it did not. An
            interval by another method than the Result's is the one of this version.
        data: The task's data are available, and the Result agrees with them.
    """

    path: Path
    result: Result | None = None
    problems: list[str] = field(default_factory=list)
    unverified_reasons: list[str] = field(default_factory=list)
    other_interval: str = ""
    recomputed: Scores | None = None
    data: bool = False

    @property
    def standing(self) -> Standing:
        """``verified`` if everything was recomputed, ``not verified`` if something could not be."""
        if self.problems:
            return "failed"
        return "not verified" if self.unverified_reasons else "verified"

    def check_fields(self, result: Result) -> None:
        """Note fields of a Result that contradict each other: ranges, score and interval."""
        self.problems += find_problems(result)
        self.check_interval(result.score, result.interval)

    def check_interval(self, score: float, interval: tuple[float, float]) -> None:
        """Add a problem if a score lies outside its own interval."""
        low, high = interval
        if not low - SCORE_ROUNDING <= score <= high + SCORE_ROUNDING:
            self.problems.append(
                f"field 'interval': {low:.6g} to {high:.6g} does not hold the score {score:.6g}"
            )

    def load_evaluator(self, result: Result, catalogue: Catalogue) -> Evaluator | None:
        """Make the evaluator that can recompute a Result, one stored score, from its items.

        If there is none, a message is added to one of two lists of this object. Reasons that are
        no fault of the Result go to ``self.unverified_reasons``. A protocol (the settings of
        scoring) that the evaluator refuses goes to ``self.problems``.

        Args:
            result: The Result; it names its task and its protocol.
            catalogue: Finds task cards, the files that describe a task and name its evaluator.

        Returns:
            The evaluator; None if a message was added.
        """
        if result.task not in catalogue.paths("tasks"):
            self.unverified_reasons.append(NO_CARD_REASON)
            return None
        card = catalogue.task(result.task)
        try:
            # Imports its class, which may be of a package that is not installed.
            EVALUATORS.load(card.evaluator)
        except StsbenchError as error:
            self.unverified_reasons.append(f"its evaluator is not here: {as_one_line(error)}")
            return None
        try:
            evaluator = make_task_evaluator(result.task, card, result.protocol)
        except StsbenchError as error:
            self.problems.append(f"field 'protocol': {as_one_line(error)}")
            return None
        if not hasattr(evaluator, "recompute"):
            self.unverified_reasons.append("its evaluator cannot make scores again from items")
            return None
        return evaluator

    def compare_with_items(
        self,
        result: Result,
        items: ItemColumns,
        evaluator: Evaluator,
        labels: ItemColumns | None = None,
    ) -> None:
        """Recompute the scores of a Result from its items, and record what differs.

        Each difference is added to ``self.problems``, one line each. If the scores could be
        recomputed, they are stored as ``self.recomputed``. Numbers that depend on training items
        or on other splits are not compared.

        Args:
            result: The Result, one stored score.
            items: Its per-item columns, each of length n, by name.
            evaluator: Its evaluator, made with its protocol.
            labels: The column ``label``, read from the task's data; None or empty if the data are
                not available or have no labels.
        """
        is_probe = isinstance(evaluator, ProbeEvaluator)
        try:
            # The file may hold any numbers: NumPy's warnings about them would not help the user.
            with np.errstate(all="ignore"):
                # What an own evaluator calls predictions may be no numbers of classes.
                if is_probe:
                    items = _replace_labels(result, items, labels=labels or {})
                recomputed = evaluator.recompute(items)
            # The lowest and the highest stored score that agrees with the recomputed one. They
            # differ by more than rounding for scores that are rounded or averaged over folds.
            bounds = allowed_score_range(evaluator, recomputed, result.split)
        except StsbenchError as error:
            self.problems.append(as_one_line(error))
        except KeyError as error:
            self.problems.append(f"lacks the column {error}")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # The file may hold any columns, and an evaluator may be a user's own.
            self.problems.append(
                f"its columns are not those of its evaluator: {as_one_line(error)}"
            )
        else:
            self.recomputed = recomputed
            # If the Result's interval is by an earlier method, that one is recomputed.
            with_interval = _use_earlier_interval_method(recomputed, result)
            self.problems += _find_differences(result, with_interval, bounds, is_probe=is_probe)
            # An interval by a method that this version does not have is no fault.
            if with_interval.interval_method != result.interval_method:
                self.other_interval = result.interval_method

    @property
    def has_earlier_interval(self) -> bool:
        """Whether the Result's interval is by another method than this version of the package uses.

        ``self.recomputed`` always has the interval of this version's method. False also if there is
        no valid Result, or if its scores were not recomputed.
        """
        return (
            self.result is not None
            and self.recomputed is not None
            and self.recomputed.interval_method != self.result.interval_method
        )


def _use_earlier_interval_method(recomputed: Scores, result: Result) -> Scores:
    """Replace the 95% interval of recomputed scores by one of an earlier version's method.

    A Result that an earlier version of this package wrote has an interval by that version's method.
    It can be checked only against an interval by the same method. The earlier methods count two
    items as dependent if they share a sentence, but not if other items connect them, each sharing
    a sentence with the next (``has_chains=False``).

    Args:
        recomputed: The scores that were recomputed from the Result's items.
        result: The Result; its ``interval_method`` names the method of its interval.

    Returns:
        The scores with the other interval and the method's name. They are unchanged if they have
        the Result's method already, if that is none of ``EARLIER_INTERVAL_METHODS``, or if no
        column of the items makes the score.
    """
    method = result.interval_method
    if method == recomputed.interval_method or method not in EARLIER_INTERVAL_METHODS:
        return recomputed
    items = recomputed.per_item
    # The column whose mean, or whose correlation ``tested.metric`` with gold scores, is the score.
    tested = find_tested_column(items, result.protocol)
    if tested is None:
        return recomputed
    values = np.asarray(items[tested.name], dtype=np.float64)
    # Which items share a sentence: those are not independent.
    dependence = read_dependence(items, len(values))
    # Without a metric the score is the mean of the values, such as an accuracy.
    if tested.metric is None:
        interval = share_interval(values, dependence, has_chains=False)
    else:
        # The subset of each item; their correlations make the score as ``aggregation`` says.
        subsets = list(map(str, items.get("subset", [""] * len(values))))
        interval = correlation_interval(
            recomputed.score,
            tested.metric.name,
            values,
            np.asarray(items["gold"], dtype=np.float64),
            subset_weights=weigh_subsets(subsets, str(result.protocol.get("aggregation", "all"))),
            dependence=dependence,
            has_chains=False,
        ).bounds
    return replace(recomputed, interval=interval, interval_method=method)


ScoreRange = tuple[float, float]
"""The least and the greatest score that items allow."""


def allowed_score_range(evaluator: Evaluator, recomputed: Scores, split: str) -> ScoreRange:
    """Return the lowest and the highest score that per-item values allow.

    Most evaluators compute exactly one score from them. Evaluators whose scores are rounded, or
    averaged over folds of cross-validation, have a method ``score_range`` that returns both bounds.
    Both are widened by ``BOUND_TOLERANCE``, for rounding errors.

    Args:
        evaluator: The evaluator.
        recomputed: The scores that it has recomputed, with the per-item columns.
        split: The name of the split that the items are of.

    Returns:
        The lower and the upper bound.
    """
    low = high = recomputed.score
    if hasattr(evaluator, "score_range"):
        low, high = evaluator.score_range(recomputed.per_item, split)
    return low - BOUND_TOLERANCE, high + BOUND_TOLERANCE


def format_range(low: float, high: float) -> str:
    """Return a range as text; a single number if its bounds differ by rounding alone."""
    if high - low < 3 * BOUND_TOLERANCE:
        return f"{(low + high) / 2:.6g}"
    return f"{low:.6g} to {high:.6g}"


def _replace_labels(result: Result, items: ItemColumns, labels: ItemColumns) -> ItemColumns:
    """Replace a probe's column ``label``, the right class of each item, by one that can be trusted.

    A label in the file of the items is not used, because anybody may have written it. The column
    comes from the task's data. Without them it is inferred if there are two classes: the label of
    a wrong answer is then the class that was not predicted.

    Args:
        result: The Result; its ``per_subset`` has an entry per class.
        items: Its per-item columns by name: ``prediction`` holds the number of the predicted class,
            ``correct`` whether it is right.
        labels: The column ``label`` from the data, by that name; empty if the data are not
            available or have no labels.

    Returns:
        The columns by name. There is no ``label`` if it is neither read nor inferred.

    Raises:
        DataError: A predicted class does not exist.
    """
    items = {name: column for name, column in items.items() if name != "label"}
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


def _find_differences(
    result: Result, recomputed: Scores, bounds: ScoreRange, *, is_probe: bool
) -> Iterator[str]:
    """Yield a message for each number of a Result that differs from the recomputed one.

    Compared are, in this order: the score, the other scores, the scores of each subset (or class)
    and the interval.

    Args:
        result: The Result, one stored score.
        recomputed: The scores that its evaluator has recomputed from its items.
        bounds: The lowest and the highest score that the items allow.
        is_probe: The subsets are the classes of a probe.
    """
    low, high = bounds
    if not low <= result.score <= high:
        yield f"field 'score': {result.score:.6g}, the items make {format_range(low, high)}"
    # ``result.scores`` also holds the score that was checked above, under a name such as
    # "spearman.all", by the protocol's metric and aggregation.
    protocol_score = score_name(result.protocol)
    other_scores = {name: value for name, value in result.scores.items() if name != protocol_score}
    yield from _compare_values("field 'scores'", other_scores, recomputed.scores)
    # Only sentence pairs have gold scores, given by people. All their subsets are recomputed.
    has_gold = "gold" in recomputed.per_item
    recomputed_subsets = recomputed.per_subset
    if is_probe:
        # Classes have names in a Result, and numbers if they are recomputed. Both are in the same
        # order, but classes at the end that no item has are not recomputed: zip leaves them out.
        recomputed_subsets = dict(zip(result.per_subset, recomputed_subsets.values(), strict=False))
    for name, values in result.per_subset.items():
        if name in recomputed_subsets:
            location = f"field 'per_subset': '{shorten(name)}'"
            yield from _compare_values(location, values, recomputed_subsets[name])
        elif has_gold:
            yield f"field 'per_subset': the items have no subset '{shorten(name)}'"
    # Intervals by different methods may differ.
    if recomputed.interval_method == result.interval_method:
        yield from _compare_intervals(result.interval, recomputed.interval)


def _compare_intervals(
    interval: tuple[float, float], recomputed: tuple[float, float]
) -> Iterator[str]:
    """Yield a message if a Result's interval is not the recomputed one.

    Bounds may differ by ``INTERVAL_ROUNDING``. A bound that is NaN equals no other.

    Args:
        interval: The lower and the upper bound in the Result.
        recomputed: Both bounds as they are computed from its items.
    """
    is_close = [
        abs(bound - recomputed_bound) <= INTERVAL_ROUNDING
        for bound, recomputed_bound in zip(interval, recomputed, strict=True)
    ]
    if not all(is_close):
        interval_text, recomputed_text = (
            f"{low:.6g} to {high:.6g}" for low, high in (interval, recomputed)
        )
        yield f"field 'interval': {interval_text}, the items make {recomputed_text}"


def _compare_values(
    location: str, values: Mapping[str, float], recomputed: Mapping[str, float]
) -> Iterator[str]:
    """Yield a message for each stored value that differs from the recomputed one of its name.

    A stored value without a recomputed one is wrong only if it is a correlation, such as
    ``spearman.all`` or ``euclidean_spearman.all``: other values may depend on more than the items.
    Values may differ by ``BOUND_TOLERANCE``, 1e-9. A value that is NaN equals no other.

    Args:
        location: Where the values are in the Result, for messages.
        values: The stored values by name.
        recomputed: The values by name as they are computed from the items.
    """
    for name, value in values.items():
        prefix = f"{location}: '{shorten(name)}' is {value:.6g}, the items make"
        # The metric is what precedes the first dot: "spearman" in "spearman.all".
        metric = name.partition(".")[0]
        if name in recomputed:
            if not abs(value - recomputed[name]) <= BOUND_TOLERANCE:
                yield f"{prefix} {recomputed[name]:.6g}"
        # Both tables have correlations by the names of their metrics.
        elif metric in {*CORRELATIONS, *FURTHER_CORRELATIONS}:
            yield f"{prefix} none"


class Believed(NamedTuple):
    """The results that their items do not contradict, and the problems of all others."""

    results: list[Result]
    """The results that are believed."""
    problems: list[Problem]
    """The problems of each result that is not."""
    unverified: Mapping[str, list[Result]]
    """Those of ``results`` that could not be compared with items, by the reason."""

    @property
    def notice(self) -> str:
        """A line on the unverified results and the reasons; empty if there are none."""
        return describe_unverified(self.unverified, len(self.results))


def describe_unverified(unverified: Mapping[str, Sequence[Result]], total: int) -> str:
    """Return a line that counts the results that could not be verified, with the reasons.

    Args:
        unverified: These results, by the reason why their numbers could not be recomputed.
        total: The number of all results, verified or not.

    Returns:
        The line; the empty string if all are verified.
    """
    if not unverified:
        return ""
    counts = [
        f"{len(results)} of {total} results, each because {reason}"
        for reason, results in unverified.items()
    ]
    return add_card_hint(f"not verified: {'; '.join(counts)}")


def add_card_hint(text: str) -> str:
    """Return why scores are not verified, with the parameter that helps if a card is missing."""
    hint = "; your own need `catalogue=stsbench.Catalogue(DIR)`"
    return text.replace(NO_CARD_REASON, f"{NO_CARD_REASON}{hint}")


def believe(
    results: Iterable[Result],
    catalogue: Catalogue,
    progress: Callable[[int, int], object] | None = None,
) -> Believed:
    """Divide Results into those that may be used and those whose stored numbers are wrong.

    The scores of each Result are recomputed from its per-item values, stored in a file beside it.
    A Result that these contradict, or whose file is broken, becomes a problem. Any other is
    believed; if its numbers could not be recomputed, it is also listed by the reason. A new Result,
    which has no file yet (its ``path`` is None), is believed.

    Args:
        results: Results as they were read.
        catalogue: Finds task cards, the files that name each task's evaluator.
        progress: Called after each Result that had to be recomputed, with the number of Results
            that are done and the number of all.

    Returns:
        The believed Results, the problems of all others, and the unverified ones by the reason.
    """
    results = list(results)
    unverified: dict[str, list[Result]] = {}
    believed = Believed(results=[], problems=[], unverified=unverified)
    # The cards of the results' tasks; a task may have no card. ``catalogue.paths("tasks")`` has the
    # file of each card by the name of its task.
    cards = {
        task: catalogue.task(task)
        for task in {result.task for result in results} & catalogue.paths("tasks").keys()
    }
    # The cache is a dict in the user's cache folder, which is written at the end of the block.
    with cached_values("believed.json", dict[str, list[str]]) as cache:
        for done, result in enumerate(results, 1):
            # The path of a new result is a mere placeholder: such a result has no problems.
            file = VerifiedFile(path=result.path or Path(), result=result)
            if result.path is not None:
                card = cards.get(result.task)
                was_recomputed = _compare_file_with_items(file, result, catalogue, card, cache)
                if was_recomputed and progress:
                    progress(done, len(results))
            # Only a result without problems is believed.
            if file.problems:
                believed.problems.append(Problem(file.path, _format_problems(file)))
                continue
            believed.results.append(result)
            for reason in file.unverified_reasons:
                unverified.setdefault(reason, []).append(result)
    return believed


def _format_problems(file: VerifiedFile) -> str:
    """Return the problems of a file in one line, with its path and the advice to run it again."""
    message = "; ".join(file.problems)
    if str(file.path) not in message:
        message = f"{file.path}: {message}"
    return message if message.endswith(RUN_AGAIN_HINT) else f"{message}{RUN_AGAIN_HINT}"


def _compare_file_with_items(
    file: VerifiedFile,
    result: Result,
    catalogue: Catalogue,
    card: TaskCard | None,
    cache: dict[str, list[str]],
) -> bool:
    """Recompute the scores of a Result from the items beside it, and note problems in ``file``.

    Problems that are cached for exactly these bytes of both files are taken from the cache. New
    ones are added to it if the evaluator is built in: a user's own evaluator may change while the
    cache key stays the same.

    Args:
        file: Gets the messages: ``file.problems`` if numbers are wrong,
            ``file.unverified_reasons`` if they could not be checked. Both are empty before.
        result: The Result, read from ``file.path``.
        catalogue: Finds task cards, which name the evaluators.
        card: The card of its task; None if there is none.
        cache: The problems of files that were compared before, by cache key; extended in place.

    Returns:
        False if nothing had to be recomputed, because there is no file of items or the problems
        were cached; otherwise True.
    """
    if not has_columns(result):
        # Adds a problem for each field that is out of bounds or contradicts another.
        file.check_fields(result)
        file.unverified_reasons.append(NO_ITEM_FILE_REASON)
        return False
    try:
        items_content = read_bounded(items_path(file.path), MAX_COLUMN_BYTES)
        result_content = read_bounded(file.path, MAX_RESULT_BYTES)
        cache_key = _cache_key(result, result_content, items_content, card)
        if cache_key in cache:
            file.problems += cache[cache_key]
            return False
        file.check_fields(result)
        # Raises if the items are not those whose hash the Result has.
        items = read_item_columns(result, items_content)
        # None if there is none; then the reason is noted in ``file``.
        evaluator = file.load_evaluator(result, catalogue)
    except DataError as error:
        file.problems.append(str(error))
        return True
    if evaluator is not None:
        file.compare_with_items(result, items, evaluator)
        # Without an evaluator nothing was compared, which is no outcome to remember.
        is_built_in = card is not None and card.evaluator in EVALUATORS.table
        if is_built_in:
            cache[cache_key] = file.problems
    return True


def _cache_key(
    result: Result, result_content: bytes, items_content: bytes, card: TaskCard | None
) -> str:
    """Return a hash of all that the outcome of a comparison with the items depends on.

    It covers both files, the Result as it was read, its task's card and the code of the formulas:
    the Python files of the evaluators and of ``stsbench.numbers``, and the versions of numpy and
    scipy. Of the card it covers what decides the scoring: the evaluator, its options and the split.

    Args:
        result: The Result as it was read.
        result_content: The bytes of its file.
        items_content: The bytes of the file of its items.
        card: Its task's card; None if there is none.
    """
    hashes = [
        code_digest(Path(__file__).parent, *map(Path, numbers.__path__)),
        task_digest(card) if card is not None else "",
        # The hash of the Result's fields.
        result.digest,
        hashlib.sha256(result_content).hexdigest(),
        hashlib.sha256(items_content).hexdigest(),
    ]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:32]
