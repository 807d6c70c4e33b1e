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
AGAIN_HINT = "; run the cell again"
NO_COLUMNS_REASON = "its per-item columns are not here"
Standing = Literal["verified", "failed", "not verified"]


@dataclass(kw_only=True)
class VerifiedFile:
    """One file of a results folder, and how far its numbers were confirmed.

    Attributes:
        path: The file.
        result: The Result in it; None if it is not a valid one.
        problems: What is wrong with it, one line each.
        unknown: Why numbers could not be checked, one line each.
        other_interval: The method by which the interval was computed if it cannot be recomputed;
            otherwise empty.
        recomputed: All that its evaluator recomputed from its items; None if it did not. An
            interval by another method than the Result's is the one of this version.
        data: The task's data are available, and the Result agrees with them.
    """

    path: Path
    result: Result | None = None
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    other_interval: str = ""
    recomputed: Scores | None = None
    data: bool = False

    @property
    def standing(self) -> Standing:
        """``verified`` if everything was recomputed, ``not verified`` if something could not be."""
        if self.problems:
            return "failed"
        return "not verified" if self.unknown else "verified"

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
        """Make the evaluator that recomputes a Result; None if there is none.

        A reason that is no fault of the Result is noted in ``unknown``, a protocol that its
        evaluator refuses in ``problems``.

        Args:
            result: The Result; it names its task and its protocol.
            catalogue: Has the tasks' cards, which name their evaluators.
        """
        if result.task not in catalogue.paths("tasks"):
            self.unknown.append("no folder of cards holds the card of its task")
            return None
        card = catalogue.task(result.task)
        try:
            EVALUATORS.load(card.evaluator)
        except StsbenchError as error:
            self.unknown.append(f"its evaluator is not here: {as_one_line(error)}")
            return None
        try:
            evaluator = make_task_evaluator(result.task, card, result.protocol)
        except StsbenchError as error:
            self.problems.append(f"field 'protocol': {as_one_line(error)}")
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
        """Note each number of a Result that its evaluator does not recompute from the items.

        Numbers that depend on training items or on other splits are not compared.

        Args:
            result: The Result.
            items: Its per-item columns.
            evaluator: Its evaluator, made with its protocol.
            labels: The column ``label`` from the data, if they are available and have one.
        """
        try:
            # Anybody may have written the columns: any number may be in them.
            with np.errstate(all="ignore"):
                recomputed = evaluator.recompute(_with_labels(result, items, labels=labels or {}))
            bounds = score_range(evaluator, recomputed, result.split)
        except StsbenchError as error:
            self.problems.append(as_one_line(error))
        except KeyError as error:
            self.problems.append(f"lacks the column {error}")
        except (TypeError, ValueError) as error:
            self.problems.append(
                f"its columns are not those of its evaluator: {as_one_line(error)}"
            )
        else:
            self.recomputed = recomputed
            with_interval = _with_earlier_interval(recomputed, result)
            self.problems += _find_differences(result, with_interval, bounds)
            # An interval by a method that this version does not have is no fault.
            if with_interval.interval_method != result.interval_method:
                self.other_interval = result.interval_method

    @property
    def has_earlier_interval(self) -> bool:
        """Whether its interval was computed by another method than this version's."""
        return (
            self.result is not None
            and self.recomputed is not None
            and self.recomputed.interval_method != self.result.interval_method
        )


def _with_earlier_interval(recomputed: Scores, result: Result) -> Scores:
    """Return the scores with an interval by the method of a Result, if an earlier version's.

    Args:
        recomputed: The scores that were recomputed from its items.
        result: The Result.

    Returns:
        The scores, unchanged if the Result's method is this version's, or unknown.
    """
    items = recomputed.per_item
    is_earlier = result.interval_method in EARLIER_INTERVAL_METHODS
    tested = find_tested_column(items, result.protocol) if is_earlier else None
    if tested is None or recomputed.interval_method == result.interval_method:
        return recomputed
    values = np.asarray(items[tested.name], dtype=np.float64)
    dependence = read_dependence(items, len(values))
    if tested.metric is None:
        interval = share_interval(values, dependence, has_chains=False)
    else:
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
    return replace(recomputed, interval=interval, interval_method=result.interval_method)


ScoreRange = tuple[float, float]
"""The least and the greatest score that items allow."""


def score_range(evaluator: Evaluator, recomputed: Scores, split: str) -> ScoreRange:
    """Return the least and the greatest score that the items allow, widened by rounding errors.

    Most evaluators compute exactly one score from the items; those whose scores are rounded or
    averaged over folds have a method ``score_range``.

    Args:
        evaluator: The evaluator.
        recomputed: What it has recomputed from the items.
        split: The name of the split that the items are of.
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


def _with_labels(result: Result, items: ItemColumns, labels: ItemColumns) -> ItemColumns:
    """Add the column ``label``: from the data or, with two classes, from the answers.

    With two classes the label of a wrong answer is the other class. A label in the file of the
    items is not used, because anybody may have written it.

    Args:
        result: The Result; its ``per_subset`` has an entry per class.
        items: Its per-item columns.
        labels: The column ``label`` from the data; empty if they are not available or have none.

    Returns:
        The columns without a stored label, and with another one if it is known. Items that are not
        answers of a classifier get none.

    Raises:
        DataError: A predicted class does not exist.
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


def _find_differences(result: Result, recomputed: Scores, bounds: ScoreRange) -> Iterator[str]:
    """Yield a message for each number of a Result that differs from the recomputed one.

    Args:
        result: The Result.
        recomputed: What its evaluator has recomputed from its items.
        bounds: The least and the greatest score that the items allow.
    """
    low, high = bounds
    if not low <= result.score <= high:
        yield f"field 'score': {result.score:.6g}, the items make {format_range(low, high)}"
    # This one is the score itself, which may lie within bounds; it is checked above.
    protocol_score = score_name(result.protocol)
    other_scores = {name: value for name, value in result.scores.items() if name != protocol_score}
    yield from _compare_values("field 'scores'", other_scores, recomputed.scores)
    # A classifier's items have no gold scores; its subsets are classes.
    has_classes = "gold" not in recomputed.per_item
    subsets = recomputed.per_subset
    if has_classes:
        # Classes have names in a Result, and numbers if they are recomputed; both are in the same
        # order, but classes at the end that no item has are not recomputed.
        subsets = dict(zip(result.per_subset, subsets.values(), strict=False))
    for name, values in result.per_subset.items():
        if name in subsets:
            location = f"field 'per_subset': '{shorten(name)}'"
            yield from _compare_values(location, values, subsets[name])
        elif not has_classes:
            yield f"field 'per_subset': the items have no subset '{shorten(name)}'"
    # Intervals by different methods may differ.
    if recomputed.interval_method == result.interval_method:
        yield from _compare_intervals(result.interval, recomputed.interval)


def _compare_intervals(
    interval: tuple[float, float], recomputed: tuple[float, float]
) -> Iterator[str]:
    """Yield a message if a Result's interval is not the recomputed one.

    Args:
        interval: Its low and high bound.
        recomputed: The same, computed from the items.
    """
    # A bound that is not a number is close to none.
    is_close = [
        abs(bound - due) <= INTERVAL_ROUNDING
        for bound, due in zip(interval, recomputed, strict=True)
    ]
    if not all(is_close):
        interval_text, recomputed_text = (
            f"{low:.6g} to {high:.6g}" for low, high in (interval, recomputed)
        )
        yield f"field 'interval': {interval_text}, the items make {recomputed_text}"


def _compare_values(
    location: str, values: Mapping[str, float], recomputed: Mapping[str, float]
) -> Iterator[str]:
    """Yield a message for each value that differs from the recomputed one of its name.

    A name that is not recomputed is wrong only if it is a correlation, such as ``spearman.all`` or
    ``euclidean_spearman.all``: other values may depend on more than the items.

    Args:
        location: Where the values are in the Result, for messages.
        values: Its values by name.
        recomputed: The same, computed from the items.
    """
    for name, value in values.items():
        prefix = f"{location}: '{shorten(name)}' is {value:.6g}, the items make"
        if name in recomputed:
            if not abs(value - recomputed[name]) <= BOUND_TOLERANCE:
                yield f"{prefix} {recomputed[name]:.6g}"
        elif name.partition(".")[0] in {*CORRELATIONS, *FURTHER_CORRELATIONS}:
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
    """Return a line on the unverified ones of ``total`` results; empty if there are none.

    Args:
        unverified: The results by the reason.
        total: The number of all results.
    """
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
    """Compare Results with the items beside them, and divide them by the outcome.

    A Result that its items contradict, or whose file is broken, becomes a problem; any other is
    believed. Those that could not be compared are also listed by the reason.

    Args:
        results: Results as they were read; a new one, which has no file, is believed.
        catalogue: Names the evaluator of each task.
        progress: Called after each Result that had to be recomputed, with the number of Results
            that are done and the number of all.
    """
    results = list(results)
    unverified: dict[str, list[Result]] = {}
    believed = Believed(results=[], problems=[], unverified=unverified)
    cards = {
        task: catalogue.task(task)
        for task in {result.task for result in results} & catalogue.paths("tasks").keys()
    }
    with cached_values("believed.json", dict[str, list[str]]) as cache:
        for done, result in enumerate(results, 1):
            # A new result has no file, and its path is not used: it has no problems.
            file = VerifiedFile(path=result.path or Path(), result=result)
            if result.path is not None:
                card = cards.get(result.task)
                was_recomputed = _check_file(file, result, catalogue, card, cache)
                if was_recomputed and progress:
                    progress(done, len(results))
            # Only a result without problems is believed.
            if file.problems:
                believed.problems.append(Problem(file.path, _format_problems(file)))
                continue
            believed.results.append(result)
            for reason in file.unknown:
                unverified.setdefault(reason, []).append(result)
    return believed


def _format_problems(file: VerifiedFile) -> str:
    """Return the problems of a file in one line, with its path and the advice to run it again."""
    message = "; ".join(file.problems)
    if str(file.path) not in message:
        message = f"{file.path}: {message}"
    return message if message.endswith(AGAIN_HINT) else f"{message}{AGAIN_HINT}"


def _check_file(
    file: VerifiedFile,
    result: Result,
    catalogue: Catalogue,
    card: TaskCard | None,
    cache: dict[str, list[str]],
) -> bool:
    """Compare a Result with its file and its items, and note its problems in ``file``.

    Problems that are cached for exactly these files are taken from the cache; new ones are added to
    it, if a built-in evaluator has recomputed them.

    Args:
        file: Gets the notes.
        result: The Result.
        catalogue: Names the evaluator of each task.
        card: The card of its task; None if there is none.
        cache: Problems by cache key.

    Returns:
        False if nothing had to be recomputed, because there are no per-item columns or the problems
        were cached; otherwise True.
    """
    if not has_columns(result):
        file.check_fields(result)
        file.unknown.append(NO_COLUMNS_REASON)
        return False
    try:
        items_content = read_bounded(items_path(file.path), MAX_COLUMN_BYTES)
        result_content = read_bounded(file.path, MAX_RESULT_BYTES)
        cache_key = _cache_key(result, result_content, items_content, card)
        if cache_key in cache:
            file.problems += cache[cache_key]
            return False
        file.check_fields(result)
        items = read_item_columns(result, items_content)
        evaluator = file.load_evaluator(result, catalogue)
    except DataError as error:
        file.problems.append(str(error))
        return True
    if evaluator is not None:
        file.compare_with_items(result, items, evaluator)
    # A user's own evaluator may change although the files behind the key do not.
    if card is not None and card.evaluator in EVALUATORS.table:
        cache[cache_key] = file.problems
    return True


def _cache_key(
    result: Result, result_content: bytes, items_content: bytes, card: TaskCard | None
) -> str:
    """Hash all that a verdict depends on.

    These are both files, the Result as it was read, its task's card and the code of the formulas.

    Args:
        result: The Result as it was read.
        result_content: The bytes of its file.
        items_content: The bytes of the file of its items.
        card: Its task's card; None if there is none.
    """
    hashes = [
        code_digest(Path(__file__).parent, *map(Path, numbers.__path__)),
        task_digest(card) if card is not None else "",
        result.digest,
        hashlib.sha256(result_content).hexdigest(),
        hashlib.sha256(items_content).hexdigest(),
    ]
    return hashlib.sha256("".join(hashes).encode()).hexdigest()[:32]
