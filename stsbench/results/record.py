"""The Result record: one encoder on one task, as a JSON file with its per-item columns beside it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.files.whole import file_part
from stsbench.provenance.identity import without_texts

SCHEMA = 1
ENCODER_LENGTH, NAME_LENGTH = 255, 100
"""Bytes of an encoder's folder, and of a task's or split's name in that of a file."""
ItemColumns = Mapping[str, npt.NDArray[np.generic] | list[str]]


class CleanScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A score over those items alone of which training text holds no sentence, beside the score of all items.

    ``text`` is the hash of the training text, ``near`` the least similarity of near-duplicates where these are left out too,
    ``n`` the number of items left; of too few there is no score.
    """

    corpora: list[str]
    text: str
    near: float | None
    n: int
    score: float | None
    interval: tuple[float, float] | None

    @property
    def name(self) -> str:
        """What tables call it."""
        near = f" (near: {self.near:g})" if self.near is not None else ""
        return f"without {', '.join(self.corpora)}{near}"


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One score and all that is needed to trust, compare and make it again.

    ``score`` is a plain float, never times 100. ``data`` and ``items`` are hashes of the split
    and of the per-item columns, ``encoder_card`` and ``task_card`` of the cards. Everything
    that may differ between two runs of the same thing is inside ``run``. A Result that was just made
    holds its columns in ``per_item``; one that was read holds its file's ``path``, and :func:`columns_of`
    gives the columns of both. Neither of these two fields is in the file. ``clean`` is no part of what
    makes a cell another one: it is there where it was asked for, and changes no other field.
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
    per_item: dict[str, Any] = {}
    path: Path | None = None

    def __str__(self) -> str:
        """What it is of and its score, in one line."""
        named = self.encoder if self.train_seed is None else f"{self.encoder}, training seed {self.train_seed}"
        ends = "" if self.interval is None else f" (95% interval {self.interval[0]:.4f} to {self.interval[1]:.4f})"
        return f"<Result, {named} on {self.task} {self.split}, protocol {self.protocol.get('name')}: {self.score:.4f}{ends}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ANN401, FBT001 - as IPython calls it
        printer.text(str(self))

    @property
    def seeds(self) -> tuple[int | None, int]:
        """The seeds of training and of evaluation."""
        return self.train_seed, self.eval_seed

    @property
    def cell(self) -> str:
        """Eight hex digits over what makes this cell another one: protocol, fingerprint, seeds."""
        return cell_digest(self.protocol, self.fingerprint, self.train_seed, self.eval_seed)

    @property
    def state(self) -> str | None:
        """The fingerprint without the texts, which may be others for each task of one encoder."""
        return without_texts(self.fingerprint) if self.fingerprint is not None else None

    def path_in(self, folder: Path) -> Path:
        """Where this Result lies in a results folder."""
        return result_path(folder, self.encoder, self.task, self.split, self.cell)


def cell_digest(protocol: Mapping[str, Any], fingerprint: str | None, train_seed: int | None, eval_seed: int) -> str:
    """Eight hex digits over protocol fields, fingerprint and seeds."""
    facts = [dict(protocol), fingerprint, train_seed, eval_seed]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:8]


def result_path(folder: Path, encoder: str, task: str, split: str, cell: str) -> Path:
    """The path of one cell; slashes in names become ``--``, and no name leads out of the folder."""
    return folder.joinpath(*file_place(encoder, task, split, cell))


def file_place(encoder: str, task: str, split: str, cell: str) -> tuple[str, str]:
    """A cell's folder and file name."""
    return (
        file_part(encoder, ENCODER_LENGTH),
        f"{file_part(task, NAME_LENGTH)}.{file_part(split, NAME_LENGTH)}.{cell}.json",
    )


def items_path(path: Path) -> Path:
    """The path of the per-item columns beside a Result's file."""
    return path.with_suffix(".items.parquet")


def columns_digest(columns: ItemColumns) -> str:
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
