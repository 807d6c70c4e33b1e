"""Lock files: what scores were and how they were made, one row a cell, small enough to be kept under version control."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stsbench.errors import DataError, OutputError, one_line
from stsbench.leaderboard.comparable import protocol_key
from stsbench.leaderboard.measured import Measured, read_measured
from stsbench.results import Result

VERSION = 1


class LockedCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One score and what it was made with: a Result without its per-item columns."""

    encoder: str
    task: str
    split: str
    protocol: dict[str, Any]
    protocol_digest: str
    train_seed: int | None
    eval_seed: int
    fingerprint: str | None
    revision: str | None
    data: str
    score: float
    interval: tuple[float, float]
    n: int
    device: str | None
    dtype: str | None
    versions: dict[str, str]

    @property
    def seeds(self) -> tuple[int | None, int]:
        """The seeds of training and of evaluation."""
        return self.train_seed, self.eval_seed


class _Lock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    lock: int
    cells: list[LockedCell]


Entry = tuple[LockedCell, Measured | None]
"""A cell, and its Result where there is one."""


class Side(NamedTuple):
    """One side of a check: its cells, and a line for each file that is none."""

    cells: list[Entry]
    problems: list[str]


def protocol_digest(protocol: dict[str, Any]) -> str:
    """Sixteen hex digits over a protocol's fields."""
    return hashlib.sha256(protocol_key(protocol).encode()).hexdigest()[:16]


def lock_cell(result: Result) -> LockedCell:
    """The row of one Result."""
    run = result.run
    return LockedCell(
        encoder=result.encoder,
        task=result.task,
        split=result.split,
        protocol=result.protocol,
        protocol_digest=protocol_digest(result.protocol),
        train_seed=result.train_seed,
        eval_seed=result.eval_seed,
        fingerprint=result.fingerprint,
        revision=result.revision,
        data=result.data,
        score=result.score,
        interval=result.interval,
        n=result.n,
        device=run.get("device"),
        dtype=run.get("dtype"),
        versions=dict(run.get("versions") or {}),
    )


def to_lock(results: Iterable[Result]) -> bytes:
    """The bytes of a lock file: sorted, one row a line, so that a change of a score is one line in a diff."""
    rows = [
        json.dumps(msgspec.to_builtins(lock_cell(result)), ensure_ascii=False, allow_nan=False) for result in results
    ]
    body = ",\n".join(sorted(rows))
    return f'{{"lock": {VERSION}, "cells": [\n{body}\n]}}\n'.encode()


def read_lock(path: Path) -> list[LockedCell]:
    """Read a lock file.

    Raises:
        OutputError: there is no such file.
        DataError: it is no lock file, or a row's protocol is not the one its digest was made of.
    """
    try:
        lock = msgspec.json.decode(path.read_bytes(), type=_Lock)
    except OSError as error:
        raise OutputError(f"{path}: cannot be read: {error.strerror}; 'stsbench lock' makes a lock file") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: is no lock file: {one_line(error)}; 'stsbench lock' makes one") from error
    if lock.lock != VERSION:
        raise DataError(f"{path}: is a lock file of version {lock.lock}, this stsbench reads {VERSION}; lock again")
    for cell in lock.cells:
        if protocol_digest(cell.protocol) != cell.protocol_digest:
            raise DataError(f"{path}: the protocol of {cell.encoder} on {cell.task} is not the one that was locked")
    return lock.cells


def read_side(path: Path, *, tasks: Sequence[str] | None = None) -> Side:
    """The cells of a results folder, of one encoder's folder in it, or of a lock file; of these tasks alone.

    Raises:
        OutputError: there is neither folder nor file.
        DataError: the file is no lock file.
    """
    cells: list[Entry]
    if path.is_dir():
        measured, problems = read_measured(path)
        cells = [(lock_cell(one.result), one) for one in measured]
    else:
        cells, problems = [(cell, None) for cell in read_lock(path)], []
    return Side([entry for entry in cells if tasks is None or entry[0].task in tasks], problems)
