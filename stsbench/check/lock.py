"""Lock files: what scores were and how they were made, one row a cell, small enough to be kept under version control."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stsbench.check.packed import Packed, pack, packed_problem
from stsbench.errors import DataError, OutputError, cut, one_line
from stsbench.files.whole import file_part, read_bounded
from stsbench.results.checks import HASH, cell_problem, doubled_key
from stsbench.results.comparable import protocol_key
from stsbench.results.folder import Problem, columns_of, lost, read_folder, verified
from stsbench.results.record import ENCODER_LENGTH, NAME_LENGTH, Result, items_path

VERSION = 2
READ = (1, VERSION)
"""Rows of version 1 hold neither the card's and the items' hashes nor what a paired test needs."""
LARGEST = 1 << 30
"""More bytes than this are no lock file."""


class LockedCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One score and what it was made with: a Result, and of its per-item columns what a paired test needs.

    ``task_card`` and ``items`` are the Result's; they and ``paired`` are None in locks of version 1. ``paired`` is also None
    where the per-item columns were not at hand, or no paired test is known.
    """

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
    task_card: str | None = None
    items: str | None = None
    paired: Packed | None = None

    @property
    def seeds(self) -> tuple[int | None, int]:
        """The seeds of training and of evaluation."""
        return self.train_seed, self.eval_seed


class _Lock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    lock: int
    cells: list[LockedCell]


Entry = tuple[LockedCell, Result | None]
"""A cell, and its Result where there is one."""


class Side(NamedTuple):
    """One side of a check: its cells, and what is wrong with each file that is none."""

    cells: list[Entry]
    problems: list[Problem]

    def encoders(self) -> list[str]:
        """The names of its encoders, and of folders whose files cannot be read."""
        folders = {part.name: None for one in self.problems for part in (one.path, one.path.parent)}
        named = [name for folder in folders for name in (folder, folder.replace("--", "/"))]
        return list(dict.fromkeys([*(cell.encoder for cell, _ in self.cells), *named]))

    def only(self, encoders: Sequence[str]) -> Side:
        """Of these encoders alone, if any are named."""
        folders = {file_part(name, ENCODER_LENGTH) for name in encoders}
        cells = [entry for entry in self.cells if not encoders or entry[0].encoder in encoders]
        problems = [one for one in self.problems if not encoders or folders & {one.path.name, one.path.parent.name}]
        return Side(cells, problems)

    def is_in(self, folder: Path) -> bool:
        """Whether all of it lies in this very folder: then it is that of one encoder, and not a results folder."""
        files = [one.path for _, one in self.cells if one is not None and one.path is not None]
        files += [problem.path for problem in self.problems]
        return bool(files) and all(file.parent.samefile(folder) for file in files)

    def verified(self) -> Side:
        """Without the cells whose per-item columns do not make their score, which are problems then."""
        found = verified([one for _, one in self.cells if one is not None])
        left = {problem.path for problem in found.problems}
        cells = [entry for entry in self.cells if entry[1] is None or entry[1].path not in left]
        return Side(cells, [*self.problems, *found.problems])


def protocol_digest(protocol: dict[str, Any]) -> str:
    """Sixteen hex digits over a protocol's fields."""
    return hashlib.sha256(protocol_key(protocol).encode()).hexdigest()[:16]


def lock_cell(result: Result, paired: Packed | None = None) -> LockedCell:
    """The row of one Result, with what a paired test needs of its items."""
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
        versions=dict(run.get("versions", {})),
        task_card=result.task_card,
        items=result.items,
        paired=paired,
    )


def lock_cells(results: Iterable[Result], kept: Iterable[LockedCell] = ()) -> list[LockedCell]:
    """The rows of Results, each with what a paired test needs of its items.

    Where the per-item columns are missing (they hold gold scores, and are not kept under version control), a row
    takes over what an earlier lock holds of the very same items.

    Args:
        results: what is locked.
        kept: the rows of an earlier lock.

    Raises:
        DataError: per-item columns are broken.
    """
    earlier = {(cell.encoder, cell.task, cell.items): cell.paired for cell in kept if cell.paired is not None}
    return [lock_cell(one, _paired(one) or earlier.get((one.encoder, one.task, one.items))) for one in results]


def _paired(result: Result) -> Packed | None:
    at_hand = bool(result.per_item) if result.path is None else os.path.lexists(items_path(result.path))
    return pack(columns_of(result), result.protocol) if at_hand else None


def to_lock(cells: Iterable[LockedCell]) -> bytes:
    """The bytes of a lock file: sorted, one row a line, so that a change of a score is one line in a diff."""
    rows = [json.dumps(msgspec.to_builtins(cell), ensure_ascii=False, allow_nan=False) for cell in cells]
    body = ",\n".join(sorted(rows))
    return f'{{"lock": {VERSION}, "cells": [\n{body}\n]}}\n'.encode()


def read_lock(path: Path) -> list[LockedCell]:
    """Read a lock file.

    Raises:
        OutputError: there is no such file.
        DataError: it is not a lock file, a row is not as it must be or is there twice, or its protocol is not the one
            its digest was made of.
    """
    if not path.exists():
        raise OutputError(f"{path}: cannot be read: No such file or directory; 'stsbench lock' makes a lock file")
    content = read_bounded(path, LARGEST)
    try:
        lock = msgspec.json.decode(content, type=_Lock)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}: is not a lock file: {one_line(error)[:300]}; 'stsbench lock' makes one") from error
    if lock.lock not in READ:
        reads = " and ".join(map(str, READ))
        raise DataError(f"{path}: is a lock file of version {lock.lock}, this stsbench reads {reads}; lock again")
    if (doubled := doubled_key(content)) is not None:
        raise DataError(f"{path}: {doubled}")
    seen: set[tuple[object, ...]] = set()
    for cell in lock.cells:
        problem = cell_problem(cell) or _wrong_row(cell, seen)
        if problem is not None:
            raise DataError(f"{path}: {cut(cell.encoder)} on {cut(cell.task)}: {problem}")
    return lock.cells


def _wrong_row(cell: LockedCell, seen: set[tuple[object, ...]]) -> str | None:
    """What is wrong with a row beyond its fields; notes it among those seen."""
    for field, value in (("task_card", cell.task_card), ("items", cell.items)):
        if value is not None and not HASH.fullmatch(value):
            return f"field '{field}' is not a sha256"
    if cell.paired is not None and (problem := packed_problem(cell.paired, cell.n)) is not None:
        return f"field 'paired': {problem}"
    if protocol_digest(cell.protocol) != cell.protocol_digest:
        return "the protocol is not the one that was locked"
    key = cell.encoder, cell.task, cell.split, cell.protocol_digest, cell.seeds, cell.fingerprint
    if key in seen:
        return "is locked twice"
    seen.add(key)
    return None


def read_side(path: Path, *, tasks: Sequence[str] | None = None) -> Side:
    """The cells of a results folder, of one encoder's folder in it, or of a lock file; of these tasks alone.

    Raises:
        OutputError: there is neither folder nor file.
        DataError: the file is not a lock file.
    """
    if not path.exists() and path.suffix != ".json":
        raise OutputError(f"results folder '{path}' does not exist; 'stsbench run' makes it")
    if not path.is_dir():
        return Side([(cell, None) for cell in read_lock(path) if tasks is None or cell.task in tasks], [])
    found = read_folder(path)
    found.problems.extend(lost(path))
    cells: list[Entry] = [(lock_cell(one), one) for one in found.results if tasks is None or one.task in tasks]
    return Side(cells, [one for one in found.problems if tasks is None or _may_be_of(tasks, one)])


def _may_be_of(tasks: Sequence[str], problem: Problem) -> bool:
    """Whether a file that cannot be read may be of one of these tasks: not where its name is that of another's result."""
    named = re.fullmatch(r"(.+)\.[^.]+\.[0-9a-f]{8}\.json", problem.path.name)
    return named is None or named[1] in [file_part(task, NAME_LENGTH) for task in tasks]
