"""The record of one score, which is a JSON file with per-item columns beside it."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.files import safe_file_name
from stsbench.core.provenance import strip_texts
from stsbench.core.toml import StrictRecord
from stsbench.core.wording import format_count, format_repr, shorten
from stsbench.numbers.statistics import CORRELATIONS

SCHEMA = 1
MAX_ENCODER_BYTES, MAX_NAME_BYTES = 255, 100
"""The maximum bytes of an encoder's folder name, and of a task or split in a file name."""
ItemColumns = Mapping[str, npt.NDArray[np.generic] | list[str]]
"""Per-item columns by name: arrays of numbers, or lists of texts."""


class CleanScore(StrictRecord):
    """A score over the items whose sentences are not in training text.

    Attributes:
        corpora: The names of the training text.
        text: The hash of the training text.
        near: The minimum similarity of near-duplicates that are excluded too; None if only equal
            sentences are.
        n: The number of items that are scored.
        score: The score; None if there are too few items.
        interval: Its 95% interval; None without a score.
        left_out: The subsets without enough items for a correlation of their own, if the score is a
            mean over subsets.
    """

    corpora: list[str]
    text: str
    near: float | None
    n: int
    score: float | None
    interval: tuple[float, float] | None
    left_out: list[str] = []

    @property
    def name(self) -> str:
        """The name of this score in tables."""
        suffix = f" (near: {self.near:g})" if self.near is not None else ""
        return f"without {', '.join(self.corpora)}{suffix}"


MIN_SUBSET_PAIRS = 10
"""With fewer pairs Fisher's z, and so a correlation, has hardly any meaning.

Bonett and Wright 2000, Psychometrika 65.
"""


def common_clean_scores(results: Sequence[Result]) -> dict[str, list[CleanScore]]:
    """Return the clean scores that all results of an encoder on a task have.

    A clean score is one over the items whose sentences are not in training text.

    Args:
        results: The results, at least one: one per seed.

    Returns:
        A list with one clean score per result, by the name that these scores have in tables, such
        as ``without wiki1m``. A clean score that any result lacks is not in it.
    """
    # For each result, its clean scores by name.
    first_scores, *other_scores = [
        {score.name: score for score in result.clean} for result in results
    ]
    return {
        name: [score, *(score_by_name[name] for score_by_name in other_scores)]
        for name, score in first_scores.items()
        if all(name in score_by_name for score_by_name in other_scores)
    }


class Result(StrictRecord):
    """One score, and all that is needed to trust, compare and recompute it.

    ``score`` is a plain float, never times 100. ``data`` and ``items`` are hashes of the split and
    of the per-item columns, ``encoder_card`` and ``task_card`` of the cards. All that may differ
    between two runs of the same cell is inside ``run``. ``clean`` does not distinguish cells: it
    is added on request, and changes no other field. ``digest`` is over all other fields of the
    file.

    Two fields are not in the file: a new Result has its columns in ``per_item``, and one that was
    read has the ``path`` of its file. ``read_item_columns`` returns the columns of both.
    """

    schema: int = SCHEMA
    encoder: str
    task: str
    split: str
    score: float
    protocol: dict[str, Any]
    scores: dict[str, float]
    per_subset: dict[str, dict[str, int | float]]
    interval: tuple[float, float]
    interval_method: str
    n: int
    zero_vectors: int
    overlap: str
    train_seed: int | None
    eval_seed: int
    encoder_card: str | None
    fingerprint: str | None
    revision: str | None
    task_card: str
    data: str
    items: str
    notes: list[str]
    run: dict[str, Any]
    clean: list[CleanScore] = []
    digest: str = ""
    per_item: dict[str, Any] = {}
    path: Path | None = None

    def __repr__(self) -> str:
        """Return encoder, task, protocol and score in one line."""
        subject = self.encoder
        if self.train_seed is not None:
            subject += f", training seed {self.train_seed}"
        interval = f" (95% interval {self.interval[0]:.4f} to {self.interval[1]:.4f})"
        return (
            f"<Result, {subject} on {self.task} {self.split}, "
            f"protocol {self.protocol.get('name')}: {self.score:.4f}{interval}>"
        )

    @property
    def seeds(self) -> tuple[int | None, int]:
        """The seeds of training (None if nothing was trained) and of evaluation."""
        return self.train_seed, self.eval_seed

    @property
    def cell_id(self) -> str:
        """The hash in the file name: eight hex digits over protocol, fingerprint and seeds."""
        return cell_id(self.protocol, self.fingerprint, self.train_seed, self.eval_seed)

    @property
    def state(self) -> str | None:
        """The fingerprint without fitting texts, which differ between tasks; None without one."""
        return strip_texts(self.fingerprint) if self.fingerprint is not None else None

    @property
    def cell_key(self) -> tuple[str, str, str, str, int | None, int]:
        """The cell without its state: encoder, task, split, protocol and seeds.

        A folder may hold several states of a cell, which differ in their fingerprints.
        """
        return self.encoder, self.task, self.split, protocol_key(self.protocol), *self.seeds

    def path_in(self, folder: Path) -> Path:
        """Return the path of this Result in a results folder."""
        return result_path(folder, self.encoder, self.task, self.split, self.cell_id)


def result_schema() -> dict[str, Any]:
    """Return the JSON Schema (a description of valid JSON) of a result file."""
    # The hook is called for types that JSON lacks, such as the path, which is deleted below.
    schema = msgspec.json.schema(Result, schema_hook=lambda kind: {"type": "null"})
    result_part = schema["$defs"]["Result"]
    # These fields of a Result are not in its file.
    del result_part["properties"]["per_item"], result_part["properties"]["path"]
    result_part["properties"]["schema"] = {"const": SCHEMA}
    # In the class they have defaults, in a file they are required.
    result_part["required"] += ["schema", "digest"]
    # The first line of the docstring of Result; the others are about the class.
    result_part["description"] = result_part["description"].partition("\n")[0]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def protocol_key(protocol: Mapping[str, Any]) -> str:
    """Return a protocol's fields as text, the same for equal fields in any order."""
    return _sorted(msgspec.json.encode(protocol))


@lru_cache(maxsize=4096)
def _sorted(fields: bytes) -> str:
    """Return JSON with sorted keys; cached, because tables need it for each result."""
    return json.dumps(json.loads(fields), sort_keys=True)


def cell_id(
    protocol: Mapping[str, Any], fingerprint: str | None, train_seed: int | None, eval_seed: int
) -> str:
    """Return the hash that ends the name of a result's file.

    It is eight hex digits of a sha256 over protocol, fingerprint and seeds, so that results of an
    encoder on a task with another of these have files of their own.

    Args:
        protocol: The fields of the protocol (how the task is scored), with its name.
        fingerprint: The encoder's fingerprint; None for an encoder without one, or for a file that
            all states of a cell share.
        train_seed: The seed of training; None if nothing was trained.
        eval_seed: The seed of evaluation.
    """
    key = [dict(protocol), fingerprint, train_seed, eval_seed]
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:8]


def result_path(folder: Path, encoder: str, task: str, split: str, file_id: str) -> Path:
    """Return the path of a result file, ``FOLDER/ENCODER/TASK.SPLIT.ID.json``.

    Slashes in names become ``--``, so that no name is a path out of the folder. In a name that some
    system forbids, or that is too long, characters are replaced or cut, and a hash is appended.

    Args:
        folder: The results folder.
        encoder: The name of the encoder in results.
        task: The id of the task.
        split: The split that is scored.
        file_id: Eight hex digits over protocol, fingerprint and seeds, see :func:`cell_id`.
    """
    task_part = safe_file_name(task, MAX_NAME_BYTES)
    split_part = safe_file_name(split, MAX_NAME_BYTES)
    file_name = f"{task_part}.{split_part}.{file_id}.json"
    return folder / safe_file_name(encoder, MAX_ENCODER_BYTES) / file_name


def items_path(path: Path) -> Path:
    """Return the path of the per-item columns beside a result file."""
    return path.with_suffix(".items.parquet")


def digest_fields(fields: Mapping[str, Any]) -> str:
    """Return the sha256 over the fields of a record, which must be valid JSON values.

    It is the same for any order of the fields, and differs after any edit.
    """
    return hashlib.sha256(json.dumps(fields, sort_keys=True, allow_nan=False).encode()).hexdigest()


def current_record_path(result: Result, folder: Path) -> Path:
    """Return the path of the file that records which of a cell's results is current.

    A cell is an encoder with one training seed on a task, by a protocol, with one evaluation seed.
    It has several results if the encoder has changed. They differ in its fingerprint, and share
    this one file. Its path is that of a result of an encoder without a fingerprint, with the
    ending ``.current`` instead of ``.json``.

    Args:
        result: Any of these results.
        folder: The results folder.
    """
    train_seed, eval_seed = result.seeds
    file_id = cell_id(result.protocol, fingerprint=None, train_seed=train_seed, eval_seed=eval_seed)
    path = result_path(folder, result.encoder, result.task, result.split, file_id)
    return path.with_suffix(".current")


def digest_columns(columns: ItemColumns) -> str:
    """Return the sha256 of per-item columns, independent of their file format.

    Numbers count by the bytes of their array, texts as UTF-8, both in the order of the items.

    Args:
        columns: One value per scored item, by column name: an array of numbers, or texts. The
            order of the columns does not matter.

    Returns:
        64 hex digits.
    """
    digest = hashlib.sha256()
    for name in sorted(columns):
        column = columns[name]
        # The byte 1E ends a name, 1F separates texts. Within texts both are escaped, so that
        # different columns never give the same bytes.
        digest.update(_escape_separators(name) + b"\x1e")
        if not isinstance(column, np.ndarray) or column.dtype.kind in "OU":
            texts = list(map(str, column))
            # Each distinct text is escaped once: a column of subsets' names has only a few.
            escaped_by_text = {text: _escape_separators(text) for text in set(texts)}
            digest.update(b"\x1f".join(escaped_by_text[text] for text in texts))
        else:
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _escape_separators(text: str) -> bytes:
    """Return a text as bytes, with the digest's separators escaped."""
    return re.sub("[\x1b\x1e\x1f]", "\x1b\\g<0>", text).encode("utf-8", "surrogatepass")


OVERLAPS = ("none", "unknown", "text", "gold")
"""How far training text overlaps the test sentences, from the least to the most."""
BOUND_TOLERANCE = 1e-9
"""By how much rounding may move a value out of its bounds."""
CORRELATION_BOUNDS, SHARE_BOUNDS = (-1.0, 1.0), (0.0, 1.0)
METRIC_BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys((*CORRELATIONS, "matthews"), CORRELATION_BOUNDS),
    **dict.fromkeys(
        ("accuracy", "majority", "chance", "f1", "precision", "recall", "mean_recall"), SHARE_BOUNDS
    ),
    **dict.fromkeys(("mse", "support"), (0.0, sys.float_info.max)),
    **dict.fromkeys(("n", "median_rank"), (1.0, sys.float_info.max)),
}
"""The least and the greatest valid value by metric; other metrics have any value."""
FINITE_BOUNDS = (-sys.float_info.max, sys.float_info.max)
"""The least and the greatest finite number: the bounds of a metric that has none."""
CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that no name may hold: control characters, and surrogates, which no file holds."""


def score_name(protocol: Mapping[str, Any]) -> str:
    """Return the name of a protocol's score among ``scores``: ``spearman.all``, ``accuracy``."""
    metric, aggregation = protocol.get("metric", "accuracy"), protocol.get("aggregation")
    return str(metric) if aggregation is None else f"{metric}.{aggregation}"


@lru_cache(maxsize=1024)
def score_bounds(name: str) -> tuple[float, float]:
    """Return the least and the greatest valid value of a score or count, for its metric.

    A correlation is in [-1, 1], an accuracy in [0, 1]. Both bounds are widened by
    ``BOUND_TOLERANCE``, for rounding. A metric without bounds allows any finite value.

    Args:
        name: The metric, with a prefix or suffix that says what it is over: ``spearman.all``,
            ``dev_accuracy``, ``i2t.recall@5``.
    """
    # The bounds depend neither on the prefix, which names a split, a direction of retrieval or a
    # distance, nor on the suffix: an aggregation of subsets, as in ``spearman.all``, the number of
    # a negative, as in ``accuracy.1``, or a depth of retrieval, as in ``recall@5``.
    prefix = r"^(dev_|i2t\.|t2i\.|euclidean_|manhattan_)"
    suffix = r"(\.(all|mean|wmean|\d+)|@\d+)$"
    metric = re.sub(f"{prefix}|{suffix}", "", name)
    low, high = METRIC_BOUNDS.get(metric, FINITE_BOUNDS)
    return low - BOUND_TOLERANCE, high + BOUND_TOLERANCE


def find_problems(result: Result) -> Iterator[str]:
    """Yield one message for each field of a new Result that is not valid.

    Such a Result comes from a user's own encoder or evaluator. ``scores`` holds all scores by the
    name of their metric, and the protocol says which of them is the main one: ``score`` must equal
    it. If ``scores`` has none of that name, as for a user's own protocol, ``score`` may be any
    value.
    """
    for field, name in (
        ("encoder", result.encoder),
        ("task", result.task),
        ("split", result.split),
    ):
        if not name.strip() or CONTROL_CHARACTER.search(name):
            yield f"field '{field}': {format_repr(name)} is not a name"
    if not str(result.protocol.get("name", "")).strip():
        yield "field 'protocol': has no 'name'"
    if result.n < 1:
        yield f"field 'n': {format_repr(result.n)} items; a score is of one at least"
    # The main score's name in ``scores``, for example spearman.all.
    name = score_name(result.protocol)
    # The 95% interval of the score.
    low, high = result.interval
    # One message for each value that is out of the bounds of its metric, or NaN.
    yield from _find_invalid_values("score", {name: result.score})
    yield from _find_invalid_values("scores", result.scores)
    if not low <= high:
        yield f"field 'interval': {low:.6g} to {high:.6g} is not in order"
    if abs(result.score - result.scores.get(name, result.score)) > BOUND_TOLERANCE:
        yield (
            f"field 'score': {result.score:.6g}, but 'scores' has "
            f"{result.scores[name]:.6g} for {shorten(name)}"
        )
    for column, values in result.per_item.items():
        if len(values) != result.n:
            yield (
                f"column '{shorten(column)}' has {format_count(len(values), 'item')}, "
                f"the result's field 'n' says {result.n}"
            )


def _find_invalid_values(field: str, values: Mapping[str, float]) -> Iterator[str]:
    """Yield a message for each value of a field that is outside the bounds of its metric, or NaN.

    Args:
        field: The field of a Result, for the message.
        values: The field's values, by metric, such as ``spearman.all`` or ``dev_accuracy``.
    """
    for metric, value in values.items():
        # Widened by 1e-9 for rounding. A metric without bounds has the largest finite numbers.
        min_value, max_value = score_bounds(metric)
        if min_value <= value <= max_value:
            continue
        _, max_finite = FINITE_BOUNDS
        if max_value < max_finite:
            expected = f"between {min_value:.3g} and {max_value:.3g}, never times 100"
        else:
            # A metric without a greatest value, such as the mean squared error.
            expected = f"{min_value:.3g} or more"
        yield (
            f"field '{field}': {format_repr(value)} is not a valid {shorten(metric)}, "
            f"which is {expected}"
        )
