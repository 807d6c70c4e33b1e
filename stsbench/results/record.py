"""The Result record: one encoder on one task, as a JSON file with its per-item columns beside it."""

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
from stsbench.core.wording import format_repr, shorten
from stsbench.numbers.statistics import CORRELATIONS

SCHEMA = 1
MAX_ENCODER_BYTES, MAX_NAME_BYTES = 255, 100
"""Bytes of an encoder's folder, and of a task's or split's name in that of a file."""
ItemColumns = Mapping[str, npt.NDArray[np.generic] | list[str]]


class CleanScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A score over those items alone of which training text holds no sentence, beside the score of all items.

    ``text`` is the hash of the training text, ``near`` the least similarity of near-duplicates where these are left out too,
    ``n`` the number of items that are scored; of too few there is no score. ``left_out`` are the subsets of which too few
    items are left for a correlation of their own, where the score is a mean over subsets.
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
        """What tables call it."""
        near = f" (near: {self.near:g})" if self.near is not None else ""
        return f"without {', '.join(self.corpora)}{near}"


MIN_SUBSET_PAIRS = 10
"""Of fewer pairs Fisher's z, and so a correlation, says next to nothing (Bonett and Wright 2000, Psychometrika 65)."""


def common_clean_scores(results: Sequence[Result]) -> dict[str, list[CleanScore]]:
    """The clean scores that all of an encoder's Results on a task have, one a Result, by what tables call them."""
    by_name = [{one.name: one for one in result.clean} for result in results]
    return {
        name: [one[name] for one in by_name]
        for name in by_name[0]
        if all(name in one for one in by_name)
    }


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One score and all that is needed to trust, compare and make it again.

    ``score`` is a plain float, never times 100. ``data`` and ``items`` are hashes of the split
    and of the per-item columns, ``encoder_card`` and ``task_card`` of the cards. Everything
    that may differ between two runs of the same thing is inside ``run``. A Result that was just made
    holds its columns in ``per_item``; one that was read holds its file's ``path``, and :func:`columns_of`
    gives the columns of both. Neither of these two fields is in the file. ``clean`` is no part of what
    makes a cell another one: it is there where it was asked for, and changes no other field. ``digest`` is over all other
    fields of the file.
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

    def __str__(self) -> str:
        """What it is of and its score, in one line."""
        named = (
            self.encoder
            if self.train_seed is None
            else f"{self.encoder}, training seed {self.train_seed}"
        )
        ends = f" (95% interval {self.interval[0]:.4f} to {self.interval[1]:.4f})"
        return f"<Result, {named} on {self.task} {self.split}, protocol {self.protocol.get('name')}: {self.score:.4f}{ends}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401, FBT001 - as IPython calls it
        printer.text(str(self))

    @property
    def seeds(self) -> tuple[int | None, int]:
        """The seeds of training and of evaluation."""
        return self.train_seed, self.eval_seed

    @property
    def cell_id(self) -> str:
        """Eight hex digits over what tells this file from others of the encoder's task: protocol, fingerprint, seeds."""
        return cell_id(self.protocol, self.fingerprint, self.train_seed, self.eval_seed)

    @property
    def state(self) -> str | None:
        """The fingerprint without the texts, which may be others for each task of one encoder."""
        return strip_texts(self.fingerprint) if self.fingerprint is not None else None

    @property
    def cell_key(self) -> tuple[str, str, str, str, int | None, int]:
        """The cell: encoder, task, split, protocol and seeds. Of one cell a folder may hold several states, by fingerprint."""
        return self.encoder, self.task, self.split, protocol_key(self.protocol), *self.seeds

    def path_in(self, folder: Path) -> Path:
        """Where this Result lies in a results folder."""
        return result_path(folder, self.encoder, self.task, self.split, self.cell_id)


def protocol_key(protocol: Mapping[str, Any]) -> str:
    """A protocol's fields as one text, the same for equal fields in any order."""
    return _sorted(msgspec.json.encode(protocol))


@lru_cache(maxsize=4096)
def _sorted(fields: bytes) -> str:
    """Made once for all results of a protocol: tables ask for it again and again."""
    return json.dumps(json.loads(fields), sort_keys=True)


def cell_id(
    protocol: Mapping[str, Any], fingerprint: str | None, train_seed: int | None, eval_seed: int
) -> str:
    """Eight hex digits over protocol fields, fingerprint and seeds."""
    facts = [dict(protocol), fingerprint, train_seed, eval_seed]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def result_path(folder: Path, encoder: str, task: str, split: str, cell: str) -> Path:
    """The path of one cell; slashes in names become ``--``, and no name leads out of the folder."""
    name = f"{safe_file_name(task, MAX_NAME_BYTES)}.{safe_file_name(split, MAX_NAME_BYTES)}.{cell}.json"
    return folder / safe_file_name(encoder, MAX_ENCODER_BYTES) / name


def items_path(path: Path) -> Path:
    """The path of the per-item columns beside a Result's file."""
    return path.with_suffix(".items.parquet")


def digest_fields(fields: Mapping[str, Any]) -> str:
    """The sha256 over a record's fields, which must be what JSON can hold: the same in any order, another after any edit."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, allow_nan=False).encode()).hexdigest()


def current_record_path(result: Result, folder: Path) -> Path:
    """The file beside a cell's Results that says which of them is current."""
    cell = cell_id(result.protocol, None, *result.seeds)
    return result_path(folder, result.encoder, result.task, result.split, cell).with_suffix(
        ".current"
    )


def digest_columns(columns: ItemColumns) -> str:
    """The sha256 of per-item columns, whatever file format holds them."""
    digest = hashlib.sha256()
    for name in sorted(columns):
        column = columns[name]
        digest.update(_escaped(name) + b"\x1e")
        if not isinstance(column, np.ndarray) or column.dtype.kind in "OU":
            texts = list(map(str, column))
            # Subsets are few texts many times over.
            known = {text: _escaped(text) for text in set(texts)}
            digest.update(b"\x1f".join(map(known.__getitem__, texts)))
        else:
            digest.update(np.ascontiguousarray(column).tobytes())
    return digest.hexdigest()


def _escaped(text: str) -> bytes:
    """A text without the separators of a digest; one without them, as all were, is as it is."""
    return re.sub("[\x1b\x1e\x1f]", "\x1b\\g<0>", text).encode("utf-8", "surrogatepass")


OVERLAPS = ("none", "unknown", "text", "gold")
"""From the least to the most that training may have seen of the tests."""
BOUND_TOLERANCE = 1e-9
CORRELATION_BOUNDS, SHARE_BOUNDS = (-1.0, 1.0), (0.0, 1.0)
BOUNDS: dict[str, tuple[float, float]] = {
    **dict.fromkeys((*CORRELATIONS, "matthews"), CORRELATION_BOUNDS),
    **dict.fromkeys(
        ("accuracy", "majority", "f1", "precision", "recall", "mean_recall"), SHARE_BOUNDS
    ),
    **dict.fromkeys(("mse", "support"), (0.0, sys.float_info.max)),
    **dict.fromkeys(("n", "median_rank"), (1.0, sys.float_info.max)),
}
"""Between which values numbers lie; those of other names may be any."""
ANY_VALUE = (-sys.float_info.max, sys.float_info.max)
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""What no name holds: control characters, and halves of characters that no file can."""


def score_name(protocol: Mapping[str, Any]) -> str:
    """What ``scores`` call the number that a protocol makes the score: ``spearman.all``, ``accuracy``."""
    metric, aggregation = protocol.get("metric", "accuracy"), protocol.get("aggregation")
    return str(metric) if aggregation is None else f"{metric}.{aggregation}"


@lru_cache(maxsize=1024)
def score_bounds(name: str) -> tuple[float, float]:
    """Between which values a number of this name lies: ``spearman.all``, ``dev_accuracy``, ``i2t.recall@5``."""
    bare = re.sub(r"^(dev_|i2t\.|t2i\.)|(\.(all|mean|wmean)|@\d+)$", "", name)
    low, high = BOUNDS.get(bare, ANY_VALUE)
    return low - BOUND_TOLERANCE, high + BOUND_TOLERANCE


def find_problems(result: Result) -> Iterator[str]:
    """What is wrong with a Result that was just made, of an encoder or evaluator that may be a user's own.

    The score is the one of ``scores`` that the protocol names; of a protocol of a user's own, any of them.
    """
    for field, name in (
        ("encoder", result.encoder),
        ("task", result.task),
        ("split", result.split),
    ):
        if not name.strip() or CONTROL.search(name):
            yield f"field '{field}': {format_repr(name)} is not a name"
    if not str(result.protocol.get("name", "")).strip():
        yield "field 'protocol': has no 'name'"
    if result.n < 1:
        yield f"field 'n': {format_repr(result.n)} items; a score is of one at least"
    name, (low, high) = score_name(result.protocol), result.interval
    for field, values in (("score", {name: result.score}), ("scores", result.scores)):
        for metric, value in values.items():
            least, most = score_bounds(metric)
            if not least <= value <= most:
                ends = f"between {least:.3g} and {most:.3g}, never times 100"
                due = ends if most < ANY_VALUE[1] else f"{least:.3g} or more"
                yield f"field '{field}': {format_repr(value)} is not a valid {shorten(metric)}, which is {due}"
    if not low <= high:
        yield f"field 'interval': {low:.6g} to {high:.6g} is not in order"
    if abs(result.score - result.scores.get(name, result.score)) > BOUND_TOLERANCE:
        yield f"field 'score': {result.score:.6g}, but 'scores' has {result.scores[name]:.6g} for {shorten(name)}"
    for column, values in result.per_item.items():
        if len(values) != result.n:
            yield f"column '{shorten(column)}' has {len(values)} items, the result's field 'n' says {result.n}"
