"""Lock files: what scores were and how they were made, one row a cell, small enough to be kept under version control.

A row holds the per-item values that a paired test needs of an encoder that is not at hand, packed into text. Gold scores, which
may not be redistributed, are not among them: they are those of the other side, whose data are the same. A rank or level takes as
few bits as do; nothing is compressed, so that what is unpacked is never larger than the count of items says.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError, StsbenchError
from stsbench.core.files import read_bounded, safe_file_name
from stsbench.core.wording import join_lines, shorten
from stsbench.evaluators.base import Evaluator
from stsbench.evaluators.belief import VerifiedFile, believe, format_range, score_range
from stsbench.numbers.statistics import Float64Array, weigh_subsets
from stsbench.results.folder import (
    Problem,
    ResultFolder,
    find_lost_results,
    has_columns,
    read_folder,
    read_item_columns,
)
from stsbench.results.groups import EncoderDirectory
from stsbench.results.record import (
    BOUND_TOLERANCE,
    MAX_ENCODER_BYTES,
    MAX_NAME_BYTES,
    Result,
    digest_fields,
    protocol_key,
)

PackedKind = Literal["ranks", "levels", "right"]
LEVEL_BITS = 16
"""A value that is no rank is one of 65,536 levels between the lowest and the highest."""
MOST_BITS = 32


class PackedColumn(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One per-item column of n items, in their order.

    ``ranks``: dense ranks from 0, all that Spearman's correlation sees of similarities. ``levels``: from ``low`` (0)
    to ``high`` (65,535). ``right``: 1 for an item that is right. ``text`` holds n codes of ``bits`` bits, the highest
    first, filled up with zeros to whole bytes, in base64.
    """

    column: str
    kind: PackedKind
    bits: int
    low: float = 0.0
    high: float = 1.0
    text: str


def pack(
    columns: Mapping[str, npt.NDArray[Any]], protocol: Mapping[str, Any]
) -> PackedColumn | None:
    """Pack the column that a paired test compares; None where no paired test is known."""
    from stsbench.significance.items import find_tested_column

    tested = find_tested_column(columns, protocol)
    if tested is None:
        return None
    kind: PackedKind
    values, low, high = np.asarray(columns[tested.name]), 0.0, 1.0
    if tested.metric is not None and tested.metric.depends_on_ranks_only:
        _, codes = np.unique(values, return_inverse=True)
        kind, bits = "ranks", max(1, int(codes.max()).bit_length())
    elif values.dtype == np.bool_:
        kind, bits, codes = "right", 1, values
    else:
        kind, bits, low, high = "levels", LEVEL_BITS, float(values.min()), float(values.max())
        codes = np.rint(
            (values.astype(np.float64) - low) / ((high - low) or 1.0) * (2**LEVEL_BITS - 1)
        )
    each = np.unpackbits(codes.astype(">u4").view(np.uint8).reshape(-1, 4), axis=1)
    text = base64.b64encode(np.packbits(each[:, MOST_BITS - bits :]).tobytes()).decode()
    return PackedColumn(column=tested.name, kind=kind, bits=bits, low=low, high=high, text=text)


def unpack(packed: PackedColumn, n: int) -> Float64Array | npt.NDArray[np.bool_]:
    """The column, (n,): ranks, levels as values, or whether items are right."""
    each = np.unpackbits(
        np.frombuffer(base64.b64decode(packed.text), dtype=np.uint8), count=n * packed.bits
    )
    rows = np.zeros((n, MOST_BITS), dtype=np.uint8)
    rows[:, MOST_BITS - packed.bits :] = each.reshape(n, packed.bits)
    codes = np.packbits(rows, axis=1).view(">u4").ravel()
    if packed.kind == "right":
        return codes.astype(np.bool_)
    if packed.kind == "ranks":
        return codes.astype(np.float64)
    return np.asarray(
        packed.low + codes.astype(np.float64) / (2**LEVEL_BITS - 1) * (packed.high - packed.low)
    )


VERSION = 3
"""Rows of earlier versions carry no digest: nothing tells whether one was edited."""
LARGEST = 1 << 30
"""More bytes than this are no lock file."""


class LockedCell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One score and what it was made with: a Result, and of its per-item columns what a paired test needs.

    ``paired`` is None where the per-item columns were not at hand, or no paired test is known. ``digest`` is over all other
    fields; a row that is of no lock file has none. ``result`` is what it was made of, where that is there: no part of the file.
    """

    encoder: str
    task: str
    split: str
    protocol: dict[str, Any]
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
    task_card: str
    items: str
    paired: PackedColumn | None = None
    digest: str = ""
    result: Result | None = None

    @property
    def scored(self) -> tuple[object, ...]:
        """How it was scored: split, protocol, and the seeds of training and of evaluation."""
        return self.split, protocol_key(self.protocol), self.train_seed, self.eval_seed

    @property
    def place(self) -> tuple[object, ...]:
        """Where it was embedded, and by what."""
        return self.device, self.dtype, self.versions

    def sealed(self) -> dict[str, Any]:
        """The row of the file, with the digest over its other fields."""
        row = msgspec.to_builtins(msgspec.structs.replace(self, digest="", result=None))
        del row["result"]
        return {**row, "digest": digest_fields(row)}


class _Lock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    lock: int
    cells: msgspec.Raw


class CheckSide(NamedTuple):
    """One side of a check: its cells, and what is wrong with each file that is none."""

    cells: list[LockedCell]
    problems: list[Problem]
    older: Sequence[Result] = ()
    """A folder's results of other states than the current ones."""
    unverified: Mapping[str, Sequence[Result]] = {}
    """The results that were not held to their items, by the reason."""

    def by_name(self, catalogue: Catalogue) -> EncoderDirectory:
        """The encoders of its results, by the names that tables have for them."""
        return EncoderDirectory(ResultFolder(self.results(), [], self.older), catalogue)

    def results(self) -> list[Result]:
        """The Results of its cells, where there are some."""
        return [cell.result for cell in self.cells if cell.result is not None]

    def encoders(self) -> list[str]:
        """The names of its encoders, and of folders whose files cannot be read."""
        folders = {part.name: None for one in self.problems for part in (one.path, one.path.parent)}
        named = [name for folder in folders for name in (folder, folder.replace("--", "/"))]
        return list(dict.fromkeys([*(cell.encoder for cell in self.cells), *named]))

    def only(self, encoders: Sequence[str]) -> CheckSide:
        """Of these encoders alone, if any are named."""
        folders = {safe_file_name(name, MAX_ENCODER_BYTES) for name in encoders}
        cells = [cell for cell in self.cells if not encoders or cell.encoder in encoders]
        problems = [
            one
            for one in self.problems
            if not encoders or folders & {one.path.name, one.path.parent.name}
        ]
        return self._replace(cells=cells, problems=problems)

    def is_in(self, folder: Path) -> bool:
        """Whether all of it lies in this very folder: then it is that of one encoder, and not a results folder."""
        files = [one.path for one in self.results() if one.path is not None]
        files += [problem.path for problem in self.problems]
        return bool(files) and all(file.parent.samefile(folder) for file in files)

    def hold_to_items(
        self, catalogue: Catalogue, progress: Callable[[int, int], object] | None = None
    ) -> CheckSide:
        """Return the side without cells that are not believed, which are problems then.

        For ``progress`` see :func:`believe`.
        """
        found = believe(self.results(), catalogue, progress)
        kept = set(map(id, found.results))
        cells = [cell for cell in self.cells if cell.result is None or id(cell.result) in kept]
        return CheckSide(cells, [*self.problems, *found.problems], self.older, found.unverified)

    def why_unverified(self, result: Result) -> str:
        """Why a Result was not held to its items; empty if it was."""
        reasons = (
            reason
            for reason, results in self.unverified.items()
            if any(one is result for one in results)
        )
        return next(reasons, "")


def hold_to_data(row: LockedCell, other: Result | None, catalogue: Catalogue) -> VerifiedFile:
    """Hold the score of a row to what its packed values make with the data of the other side, which are the same.

    Levels stand for values that lie up to half a level beside them, so a score of them is held to what that may change.
    """
    file = VerifiedFile(path=Path())
    file.check_interval(row.score, row.interval)
    if row.paired is None:
        file.unknown.append("the lock holds no per-item values of it")
    elif other is None or not has_columns(other):
        file.unknown.append(
            "a lock holds no data, and the per-item columns of the other side are not here"
        )
    else:
        evaluator = file.load_evaluator(other, catalogue)
        if evaluator is not None:
            try:
                low, high = _range_of_row(row.paired, row.n, other, evaluator)
                if not low <= row.score <= high:
                    due = f"{format_range(low, high)} with these data"
                    file.problems.append(
                        f"field 'score': {row.score:.6g}, the locked values make {due}"
                    )
            except (StsbenchError, KeyError, TypeError, ValueError) as error:
                file.problems.append(
                    f"the locked values make no score with these data: {join_lines(error)}"
                )
    return file


def _range_of_row(
    packed: PackedColumn, n: int, other: Result, evaluator: Evaluator
) -> tuple[float, float]:
    """Between which values the score of a row lies, given a Result of the same data."""
    values, columns = unpack(packed, n), read_item_columns(other)
    if packed.column == "recall":
        # The score is the mean over images, whose ranks a row does not hold.
        low = high = float(np.mean(values))
        error = (packed.high - packed.low) / (2**LEVEL_BITS - 1) / 2 + BOUND_TOLERANCE
    else:
        low, high = score_range(
            evaluator, evaluator.recompute({**columns, packed.column: values}), other.split
        )
        error = _level_error(packed, np.asarray(values, dtype=np.float64), columns, other.protocol)
    return low - error, high + error


def _level_error(
    packed: PackedColumn,
    values: Float64Array,
    columns: Mapping[str, npt.NDArray[Any]],
    protocol: Mapping[str, Any],
) -> float:
    """How far the correlation of levels, (n,), may lie from that of the values that they stand for; 0 of ranks and bits.

    A correlation is the cosine of an angle, of values less their mean. Each value moves by half a level d at most, so the vector
    of m values less their mean moves by sqrt(m) d at most, and its angle by the arcsine of this divided by its length; a cosine
    moves by no more than its angle. A mean over subsets moves by no more than the correlation that moves most.
    """
    if packed.kind != "levels":
        return 0.0
    half = (packed.high - packed.low) / (2**LEVEL_BITS - 1) / 2
    subsets = list(map(str, columns["subset"])) if "subset" in columns else [""] * len(values)
    parts, _ = weigh_subsets(subsets, str(protocol.get("aggregation", "all")))
    lengths = [float(np.linalg.norm(values[part] - values[part].mean())) for part in parts]
    moved = [
        len(part) ** 0.5 * half / length
        for part, length in zip(parts, lengths, strict=True)
        if length
    ]
    return float(np.arcsin(min(1.0, max(moved, default=0.0))))


def lock_cell(result: Result, paired: PackedColumn | None = None) -> LockedCell:
    """The row of one Result, with what a paired test needs of its items."""
    both = set(LockedCell.__struct_fields__) & set(Result.__struct_fields__) - {"digest"}
    run = {"device": None, "dtype": None, "versions": {}, **result.run}
    fields: dict[str, Any] = {one: getattr(result, one) for one in both}
    fields |= {one: run[one] for one in ("device", "dtype", "versions")}
    return LockedCell(**fields, paired=paired, result=result)


def lock_cells(results: Iterable[Result], kept: Iterable[LockedCell] = ()) -> list[LockedCell]:
    """The rows of Results, each with what a paired test needs of its items.

    Where the per-item columns are missing (they hold gold scores, and are not kept under version control), a row
    takes over what an earlier lock, ``kept``, holds of the very same items. Raises DataError where they are broken.
    """
    earlier = {
        (cell.encoder, cell.task, cell.items): cell.paired
        for cell in kept
        if cell.paired is not None
    }
    cells = []
    for one in results:
        paired = pack(read_item_columns(one), one.protocol) if has_columns(one) else None
        cells.append(lock_cell(one, paired or earlier.get((one.encoder, one.task, one.items))))
    return cells


def to_lock(cells: Iterable[LockedCell]) -> bytes:
    """The bytes of a lock file: sorted, one row a line, so that a change of a score is one line in a diff."""
    body = ",\n".join(
        sorted(json.dumps(cell.sealed(), ensure_ascii=False, allow_nan=False) for cell in cells)
    )
    return f'{{"lock": {VERSION}, "cells": [\n{body}\n]}}\n'.encode()


def read_lock(path: Path) -> list[LockedCell]:
    """Read a lock file.

    Raises OutputError: there is no such file; DataError: it is not a lock file, or of another version; a row is there
    twice, or was edited.
    """
    if not path.exists():
        raise OutputError(
            f"{path}: cannot be read: No such file or directory; 'stsbench lock' makes a lock file"
        )
    content = read_bounded(path, LARGEST)
    try:
        lock = msgspec.json.decode(content, type=_Lock)
        cells = (
            msgspec.json.decode(lock.cells, type=list[LockedCell]) if lock.lock == VERSION else []
        )
        edited = [cell for cell in cells if cell.digest != cell.sealed()["digest"]]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"{path}: is not a lock file: {join_lines(error)[:300]}; 'stsbench lock' makes one"
        ) from error
    if lock.lock != VERSION:
        raise DataError(
            f"{path}: is a lock file of version {lock.lock}, this stsbench reads {VERSION}; lock again"
        )
    if edited:
        named = f"{shorten(edited[0].encoder)} on {shorten(edited[0].task)}"
        raise DataError(
            f"{path}: {named}: was edited after it was locked: its digest is that of other fields; lock again"
        )
    seen = set[tuple[object, ...]]()
    for cell in cells:
        key = cell.encoder, cell.task, *cell.scored
        if key in seen:
            raise DataError(
                f"{path}: {shorten(cell.encoder)} on {shorten(cell.task)}: is locked twice, and nothing says which of the two counts; lock again"
            )
        seen.add(key)
    return cells


def read_side(path: Path, *, tasks: Sequence[str] | None = None) -> CheckSide:
    """The cells of a results folder, of one encoder's folder in it, or of a lock file; of these tasks alone.

    Raises OutputError: there is neither folder nor file; DataError: the file is not a lock file.
    """
    if not path.is_dir() and (path.exists() or path.suffix == ".json"):
        return CheckSide(
            [cell for cell in read_lock(path) if tasks is None or cell.task in tasks], []
        )
    found = read_folder(path)
    found.problems.extend(find_lost_results(path))
    cells = [lock_cell(one) for one in found.results if tasks is None or one.task in tasks]
    older = [one for one in found.older if tasks is None or one.task in tasks]
    # A file that cannot be read may be of one of these tasks, unless its name is that of another's result.
    named = [
        (one, re.fullmatch(r"(.+)\.[^.]+\.[0-9a-f]{8}\.json", one.path.name))
        for one in found.problems
    ]
    parts = None if tasks is None else [safe_file_name(task, MAX_NAME_BYTES) for task in tasks]
    return CheckSide(
        cells, [one for one, of in named if parts is None or of is None or of[1] in parts], older
    )
