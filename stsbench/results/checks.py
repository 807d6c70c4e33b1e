"""What a Result or a row of a lock file must be, wherever it is read from: the first thing wrong, naming the field."""

from __future__ import annotations

import json
import operator
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.digests import STARTED_FROM, task_digest
from stsbench.cards.facts import TaskCard
from stsbench.errors import cut, one_line, shown
from stsbench.numbers.statistics import AGGREGATIONS, CORRELATIONS

if TYPE_CHECKING:
    from stsbench.results.record import CleanScore, Result

OVERLAPS = ("none", "unknown", "text", "gold")
"""From the least to the most that training may have seen of the tests."""
ROUNDING = 1e-9
CORRELATION, SHARE = (-1.0, 1.0), (0.0, 1.0)
BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys((*CORRELATIONS, "matthews"), CORRELATION),
    **dict.fromkeys(("accuracy", "majority", "f1", "precision", "recall", "mean_recall"), SHARE),
    **dict.fromkeys(("mse", "support"), (0.0, sys.float_info.max)),
    **dict.fromkeys(("n", "median_rank"), (1.0, sys.float_info.max)),
}
"""Between which values numbers lie; those of other names may be any."""
NEAR = 0.01
"""A score may lie so far outside a narrow interval: folds are rounded."""
ANY = (-sys.float_info.max, sys.float_info.max)
SCALARS = frozenset({type(None), bool, int, float, str})
TYPES: dict[str, Collection[type]] = {
    "created": {str},
    "seconds": {int, float},
    "encoded": {int},
    "device": {type(None), str},
    "dtype": {type(None), str},
    "versions": {dict},
}
"""Of the facts in ``run`` that are read; the others are numbers or texts."""
FROM_ZERO = ("seconds", "encoded")
"""Of these none is below zero."""
BY_ROWS = ("sts", "relatedness", "probe")
"""Evaluators whose items are the rows of the split that is scored."""
HASH = re.compile("[0-9a-f]{64}")
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What no name holds: control characters, and halves of characters that no file can."""


class _Cell(Protocol):
    """What both a Result and a row of a lock file hold."""

    @property
    def encoder(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def split(self) -> str: ...
    @property
    def protocol(self) -> Mapping[str, Any]: ...
    @property
    def score(self) -> float: ...
    @property
    def interval(self) -> tuple[float, float]: ...
    @property
    def n(self) -> int: ...
    @property
    def train_seed(self) -> int | None: ...
    @property
    def eval_seed(self) -> int: ...
    @property
    def data(self) -> str: ...


def score_name(protocol: Mapping[str, Any]) -> str:
    """What ``scores`` call the number that a protocol makes the score: ``spearman.all``, ``accuracy``."""
    metric, aggregation = protocol.get("metric", "accuracy"), protocol.get("aggregation")
    return str(metric) if aggregation is None else f"{metric}.{aggregation}"


@lru_cache(maxsize=1024)
def bounds(name: str) -> tuple[float, float]:
    """Between which values a number of this name lies: ``spearman.all``, ``dev_accuracy``, ``i2t.recall@5``."""
    bare = re.sub(r"^(dev_|i2t\.|t2i\.)|(\.(all|mean|wmean)|@\d+)$", "", name)
    low, high = BOUNDS.get(bare, ANY)
    return low - ROUNDING, high + ROUNDING


def cell_problem(cell: _Cell) -> str | None:
    """The first thing wrong with what a Result and a row of a lock file hold alike; None where no problems found."""
    return next(_wrong_cell(cell), None)


def result_problem(result: Result) -> str | None:
    """The first thing wrong with a Result, told from its fields alone; None where no problems found."""
    return cell_problem(result) or next(_wrong_result(result), None)


def _wrong_cell(cell: _Cell) -> Iterator[str]:
    for field, name in (("encoder", cell.encoder), ("task", cell.task), ("split", cell.split)):
        if not name.strip() or CONTROL.search(name):
            yield f"field '{field}': {shown(name)} is not a name"
    yield from _wrong_protocol(cell.protocol)
    if cell.n < 1:
        yield f"field 'n': {shown(cell.n)} items; a score is of one at least"
    yield from _wrong_score(cell)
    if cell.eval_seed < 0 or (cell.train_seed or 0) < 0:
        field, seed = ("eval_seed", cell.eval_seed) if cell.eval_seed < 0 else ("train_seed", cell.train_seed)
        yield f"field '{field}': {shown(seed)} is negative"
    if not HASH.fullmatch(cell.data):
        yield f"field 'data': {shown(cell.data)} is not a sha256"


def _wrong_protocol(protocol: Mapping[str, Any]) -> Iterator[str]:
    name = protocol.get("name")
    if not isinstance(name, str) or not name.strip():
        yield "field 'protocol': has no 'name'"
    for key, value in protocol.items():
        if type(value) not in SCALARS and not (
            isinstance(value, list | tuple) and SCALARS.issuperset(map(type, value))
        ):
            yield f"field 'protocol': '{cut(key)}' is {shown(value)}, neither a number or text nor a list of them"
    yield from _wrong_choice(protocol)


def _wrong_choice(protocol: Mapping[str, Any]) -> Iterator[str]:
    """A protocol of STS says how subsets are aggregated; a metric has a name, and there it is one of the table's."""
    tables: dict[str, Collection[str]] = {"metric": CORRELATIONS, "aggregation": AGGREGATIONS}
    for key, known in tables.items():
        value = protocol.get(key)
        if "similarity" in protocol and value not in tuple(known):
            yield f"field 'protocol': '{key}' is {shown(value)}, none of {', '.join(known)}"
        if key in protocol and not isinstance(value, str):
            yield f"field 'protocol': '{key}' is {shown(value)} and no name"


def _wrong_score(cell: _Cell) -> Iterator[str]:
    score, (low, high) = cell.score, cell.interval
    yield from _out_of_bounds("score", {score_name(cell.protocol): score})
    if not low <= high:
        yield f"field 'interval': {low:.6g} to {high:.6g} is not in order"
    for end in (low, high):
        yield from _out_of_bounds("interval", {score_name(cell.protocol): end})
    near = max(NEAR, (high - low) / 2)
    if not low - near <= score <= high + near:
        yield f"field 'score': {score:.6g} is far from its interval, {low:.6g} to {high:.6g}"


def _out_of_bounds(field: str, values: Mapping[str, float]) -> Iterator[str]:
    for name, value in values.items():
        low, high = bounds(name)
        if not low <= value <= high:
            between = f"between {low:.3g} and {high:.3g}, never times 100" if high < ANY[1] else f"{low:.3g} or more"
            yield f"field '{field}': {shown(value)} is not a valid {cut(name)}, which is {between}"


def _wrong_result(result: Result) -> Iterator[str]:
    yield from _wrong_scores(result)
    yield from _wrong_subsets(result)
    yield from _wrong_size(result)
    if result.zero_vectors < 0 or ("similarity" in result.protocol and result.zero_vectors > result.n):
        yield f"field 'zero_vectors': {shown(result.zero_vectors)} of {result.n} items"
    if result.overlap not in OVERLAPS:
        yield f"field 'overlap': {shown(result.overlap)} is not one of {', '.join(OVERLAPS)}"
    hashes = {"task_card": result.task_card, "items": result.items}
    for field, value in hashes.items():
        if not HASH.fullmatch(value):
            yield f"field '{field}': {shown(value)} is not a sha256"
    # That of a trained encoder is two: of its recipe, and of what it started from.
    if result.encoder_card is not None and not all(map(HASH.fullmatch, result.encoder_card.split(STARTED_FROM, 1))):
        yield f"field 'encoder_card': {shown(result.encoder_card)} is not a sha256"
    if result.revision == "":
        yield "field 'revision': is empty; an encoder without one has null"
    yield from _wrong_run(result.run)
    for one in result.clean:
        yield from _wrong_clean(one, result)


def _wrong_clean(clean: CleanScore, result: Result) -> Iterator[str]:
    if not clean.corpora or not all(name.strip() and not CONTROL.search(name) for name in clean.corpora):
        yield "field 'clean': names no training text"
    if not HASH.fullmatch(clean.text):
        yield f"field 'clean': 'text' is {shown(clean.text)} and no sha256"
    if not 0 <= clean.n <= result.n:
        yield f"field 'clean': {shown(clean.n)} items are left, the result is of {result.n}"
    if (clean.score is None) != (clean.interval is None):
        yield "field 'clean': a score and its interval are there together, or neither is"
    low, high = clean.interval or (0.0, 0.0)
    if not low <= high:
        yield f"field 'clean': the interval {low:.6g} to {high:.6g} is not in order"
    for value in (clean.score, *(clean.interval or ())):
        if value is not None:
            yield from _out_of_bounds("clean", {score_name(result.protocol): value})


def _wrong_scores(result: Result) -> Iterator[str]:
    """The score is the one of ``scores`` that the protocol names; of a protocol of a user's own, any of them."""
    scores, name = result.scores, score_name(result.protocol)
    yield from _out_of_bounds("scores", scores)
    if name in scores:
        if abs(result.score - scores[name]) > ROUNDING:
            yield f"field 'score': {result.score:.6g}, but 'scores' has {scores[name]:.6g} for {cut(name)}"
    elif "metric" in result.protocol or result.score not in scores.values():
        yield f"field 'scores': lacks '{cut(name)}', which the protocol makes the score"


def _wrong_subsets(result: Result) -> Iterator[str]:
    subsets = list(result.per_subset.values())
    for values in subsets:
        yield from _out_of_bounds("per_subset", values)
    for count in ("n", "support"):
        counts = [values[count] for values in subsets if count in values]
        if counts and (sum(counts) != result.n or any(float(value) % 1 for value in counts)):
            yield f"field 'per_subset': holds {sum(counts):.15g} items, 'n' says {result.n}"
    sizes = [values["n"] for values in subsets if "n" in values]
    if "similarity" in result.protocol and sizes and len(sizes) == len(subsets):
        for metric in subsets[0]:
            column = [subset[metric] for subset in subsets if metric in subset]
            if len(column) == len(sizes):
                yield from _wrong_means(metric, column, sizes, result.scores)


def _wrong_size(result: Result) -> Iterator[str]:
    """A result that carries the hash of a card of the project has a split and a size that the card tells."""
    card = _card(result.task, result.task_card)
    if card is None:
        return
    if result.split not in card.splits:
        yield f"field 'split': {shown(result.split)} is not one of {', '.join(card.splits)}"
    elif card.evaluator in BY_ROWS and (n := card.splits[result.split].n) not in (None, result.n):
        yield f"field 'n': {shown(result.n)} items, the card of {cut(result.task)} says {n}"


@cache
def _catalogue() -> Catalogue:
    return Catalogue()


@lru_cache(maxsize=1024)
def _card(task: str, digest: str) -> TaskCard | None:
    """The project's card of a task, where results of this hash are its."""
    if task not in _catalogue().paths("tasks"):
        return None
    card = _catalogue().task(task)
    return card if task_digest(card) == digest else None


def _wrong_means(
    metric: str, values: Sequence[float], sizes: Sequence[float], scores: Mapping[str, float]
) -> Iterator[str]:
    """Means over subsets in ``scores`` are those of ``per_subset``."""
    means = {"mean": sum(values) / len(values), "wmean": sum(map(operator.mul, sizes, values)) / sum(sizes)}
    for aggregation, mean in means.items():
        value = scores.get(f"{metric}.{aggregation}", mean)
        if abs(mean - value) > ROUNDING:
            yield f"field 'scores': '{cut(metric)}.{aggregation}' is {value:.6g}, of 'per_subset' it is {mean:.6g}"


def _wrong_run(run: Mapping[str, Any]) -> Iterator[str]:
    for key, value in run.items():
        if type(value) not in TYPES.get(key, SCALARS):
            yield f"field 'run': '{cut(key)}' is {shown(value)}"
        elif key in FROM_ZERO and value is not None and not float(value) >= 0:
            yield f"field 'run': '{cut(key)}' is {shown(value)}, which is below zero"
    if not {str}.issuperset(map(type, run.get("versions", {}).values())):
        yield "field 'run': 'versions' holds more than texts"


def doubled_key(content: bytes) -> str | None:
    """What is wrong with JSON that holds a key twice in one object, of which readers take either; else None."""

    def no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
            raise KeyError(twice)
        return found

    try:
        json.loads(content, object_pairs_hook=no_key_twice)
    except KeyError as error:
        return f"field '{cut(str(error.args[0]))}': is there twice"
    except (ValueError, RecursionError) as error:
        return f"is not valid JSON: {cut(one_line(error))}"
    return None
