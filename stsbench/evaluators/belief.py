"""Whether a result is believed: its score, and all that its evaluator measures, is recomputed from the items beside it.

Whatever reads results for their scores asks :func:`believe`: runs that reuse them, boards, comparisons, reports, locks, checks,
exports. A verdict is kept in the user's cache folder by hashes of the bytes of both files, which are read each time. Only the
data tell whether gold scores and labels are the right ones: :mod:`stsbench.check.verify` looks at these too.
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
"""A probe's score may lie this far from the share of right answers that its interval is made of: it is rounded in points."""
AGAIN = "; run the cell again"
NO_COLUMNS = "its per-item columns are not here"
Standing = Literal["verified", "failed", "not verified"]


@dataclass(kw_only=True)
class VerifiedFile:
    """One file of a results folder: what is wrong with it, and what could not be looked at, each in one line."""

    path: Path
    result: Result | None = None
    problems: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    other_interval: str = ""
    """How an earlier version made the interval, which then cannot be recomputed; empty if it is made as today."""
    data: bool = False
    """Whether its data were at hand, and are those."""

    @property
    def standing(self) -> Standing:
        """Verified is what was all made again; what could not be is not."""
        return "failed" if self.problems else "not verified" if self.unknown else "verified"

    def check_fields(self, result: Result) -> None:
        """Hold the fields of a Result to each other: ranges, the score among ``scores`` and inside its interval."""
        self.problems += find_problems(result)
        self.check_interval(result.score, result.interval)

    def check_interval(self, score: float, interval: tuple[float, float]) -> None:
        """Note a score that lies outside its own interval."""
        low, high = interval
        if not low - SCORE_ROUNDING <= score <= high + SCORE_ROUNDING:
            line = f"field 'interval': {low:.6g} to {high:.6g} does not hold the score {score:.6g}"
            self.problems.append(line)

    def load_evaluator(self, result: Result, catalogue: Catalogue) -> Evaluator | None:
        """Make the evaluator that recomputes a Result, with its protocol; returns None if there is none, which is noted."""
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

    def compare_with_items(self, result: Result, items: ItemColumns, evaluator: Evaluator) -> None:
        """Note each number of a Result that is not what its evaluator makes of the items.

        What training items or other splits decide is let be.
        """
        try:
            with np.errstate(all="ignore"):
                made = evaluator.recompute(_with_labels(result, items))
            low, high = score_range(evaluator, made, result.split)
        except StsbenchError as error:
            self.problems.append(join_lines(error))
        except KeyError as error:
            self.problems.append(f"lacks the column {error}")
        except (TypeError, ValueError) as error:
            self.problems.append(f"its columns are not those of its evaluator: {join_lines(error)}")
        else:
            self.problems += _differing(result, made, low, high)
            self.other_interval = (
                "" if made.interval_method == result.interval_method else result.interval_method
            )


def score_range(evaluator: Evaluator, made: Scores, split: str) -> tuple[float, float]:
    """Between which values the score of a Result lies whose items make these scores: of most evaluators, the very score."""
    ends = (
        evaluator.score_range(made.per_item, split)
        if hasattr(evaluator, "score_range")
        else (made.score, made.score)
    )
    return ends[0] - BOUND_TOLERANCE, ends[1] + BOUND_TOLERANCE


def format_range(low: float, high: float) -> str:
    """Return the values between two ends as text: a single number if the ends differ by rounding alone."""
    return (
        f"{(low + high) / 2:.6g}"
        if high - low < 3 * BOUND_TOLERANCE
        else f"{low:.6g} to {high:.6g}"
    )


def _with_labels(result: Result, items: ItemColumns) -> ItemColumns:
    """The items with the label of each where there are two classes: then what is wrong tells what would be right."""
    if not {"prediction", "correct"} <= items.keys():
        return items
    prediction, classes = np.asarray(items["prediction"], dtype=np.int64), len(result.per_subset)
    if classes and not (prediction.min() >= 0 and prediction.max() < classes):
        raise DataError(
            f"column 'prediction' holds other classes than the {classes} of field 'per_subset'"
        )
    if classes != 2 or "label" in items:
        return items
    return {
        **items,
        "label": np.where(np.asarray(items["correct"], dtype=bool), prediction, 1 - prediction),
    }


def _differing(result: Result, made: Scores, low: float, high: float) -> Iterator[str]:
    """A line for each number of a Result that is not the one recomputed; the score may lie between two ends."""
    if not low <= result.score <= high:
        yield f"field 'score': {result.score:.6g}, the items make {format_range(low, high)}"
    others = {
        name: value for name, value in result.scores.items() if name != score_name(result.protocol)
    }
    yield from _unlike("field 'scores'", others, made.scores)
    for (name, values), again in zip(
        result.per_subset.items(), made.per_subset.values(), strict=False
    ):
        yield from _unlike(f"field 'per_subset': '{shorten(name)}'", values, again)
    if made.interval_method == result.interval_method:
        (start, end), (start_due, end_due) = result.interval, made.interval
        if not max(abs(start - start_due), abs(end - end_due)) <= INTERVAL_ROUNDING:
            due = f"{start_due:.6g} to {end_due:.6g}"
            yield f"field 'interval': {start:.6g} to {end:.6g}, the items make {due}"


def _unlike(
    field_name: str, values: Mapping[str, float], made: Mapping[str, float]
) -> Iterator[str]:
    for name, value in values.items():
        if name in made and not abs(value - made[name]) <= BOUND_TOLERANCE:
            yield f"{field_name}: '{shorten(name)}' is {value:.6g}, the items make {made[name]:.6g}"
        elif name not in made and name.partition(".")[0] in CORRELATIONS:
            yield f"{field_name}: '{shorten(name)}' is {value:.6g}, the items make none"


class Believed(NamedTuple):
    """Results, of which none is contradicted by the items beside it, and what is wrong with each other one."""

    results: list[Result]
    problems: list[Problem]
    unverified: Mapping[str, list[Result]]
    """Those of ``results`` that could not be held to items, by the reason."""

    @property
    def notice(self) -> str:
        """One line on what is not verified, and why; empty if all is."""
        return describe_unverified(self.unverified, len(self.results))


def describe_unverified(unverified: Mapping[str, Sequence[Result]], total: int) -> str:
    """Return one line on those of ``total`` results that are not verified, by the reason; empty if all are."""
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
    """Hold Results to the items beside them; what was just made, and lies in no file yet, is believed.

    Args:
        results: as they were read.
        catalogue: names the evaluator of each task.
        progress: is called with how many Results are done, and how many there are, after each one that had to be recomputed.
    """
    listed, unverified = list(results), dict[str, list[Result]]()
    believed = Believed([], [], unverified)
    cards = {
        task: catalogue.task(task)
        for task in {one.task for one in listed} & catalogue.paths("tasks").keys()
    }
    with cached_values("believed.json", dict[str, list[str]]) as cache:
        for done, result in enumerate(listed, 1):
            file = VerifiedFile(path=result.path or Path(), result=result)
            if (
                result.path is not None
                and _look(file, result, catalogue, cards.get(result.task), cache)
                and progress
            ):
                progress(done, len(listed))
            if file.problems:
                believed.problems.append(Problem(file.path, _line(file)))
                continue
            believed.results.append(result)
            for reason in file.unknown:
                unverified.setdefault(reason, []).append(result)
    return believed


def _line(file: VerifiedFile) -> str:
    lines = "; ".join(file.problems)
    again = "" if lines.endswith(AGAIN) else AGAIN
    return f"{lines}{again}" if str(file.path) in lines else f"{file.path}: {lines}{again}"


def _look(
    file: VerifiedFile,
    result: Result,
    catalogue: Catalogue,
    card: TaskCard | None,
    cache: dict[str, list[str]],
) -> bool:
    """Note what speaks against a Result of a file; returns whether it had to be recomputed."""
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
    """A hash of both files' bytes, of the Result as it was read of the first, of its task's card, and of the formulas."""
    code = code_digest(Path(__file__).parent, *map(Path, numbers.__path__))
    facts = [
        code,
        task_digest(card) if card is not None else "",
        result.digest,
        *(hashlib.sha256(one).hexdigest() for one in (content, items)),
    ]
    return hashlib.sha256("".join(facts).encode()).hexdigest()[:32]
