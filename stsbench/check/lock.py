"""Lock files: scores and their conditions, one row per cell, small enough for version control.

A row holds the per-item values that a paired test needs, packed into text, because the encoder may
not be available. Gold scores, which may not be redistributed, are not among them: they are those of
the other side, whose data are the same. A rank or level takes as few bits as possible; nothing is
compressed, so that what is unpacked is never larger than the number of items allows.
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
from stsbench.core.errors import DataError, OutputError, Remedy, StsbenchError
from stsbench.core.files import read_bounded, safe_file_name
from stsbench.core.grouping import group_by
from stsbench.core.toml import StrictRecord
from stsbench.core.wording import as_one_line, shorten
from stsbench.evaluators.base import Evaluator
from stsbench.evaluators.belief import VerifiedFile, allowed_score_range, believe, format_range
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
MAX_BITS = 32
"""The bits of a code before it is shortened."""
MAX_LEVEL = 2**LEVEL_BITS - 1


class PackedColumn(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One per-item column of n items, in their order.

    Attributes:
        column: The name of the column.
        kind: ``ranks`` are dense ranks from 0, all that Spearman's correlation depends on;
            ``levels`` are values between ``low`` (0) and ``high`` (65,535); ``right`` is 1 for an
            item that is right.
        bits: The number of bits of a code.
        low: The value of the lowest level.
        high: The value of the highest level.
        text: The n codes in base64, the highest bit first, filled up with zeros to whole bytes.
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
    """Pack the column that a paired test compares; None if no paired test is known.

    Values are packed as ``ranks`` if the test depends on nothing else, as ``right`` if they are
    true or false, and else as ``levels``, in 65,536 equal steps from the lowest to the highest.

    Args:
        columns: The per-item columns of a result, (n,) each.
        protocol: Its protocol, which decides the test.
    """
    from stsbench.significance.items import find_tested_column

    tested = find_tested_column(columns, protocol)
    if tested is None:
        return None
    values = np.asarray(columns[tested.name])
    low, high = 0.0, 1.0
    kind: PackedKind
    if tested.metric is not None and tested.metric.depends_on_ranks_only:
        _, codes = np.unique(values, return_inverse=True)
        kind = "ranks"
        n_bits = max(1, int(codes.max()).bit_length())
    elif values.dtype == np.bool_:
        codes = values
        kind = "right"
        n_bits = 1
    else:
        low, high = float(values.min()), float(values.max())
        # All values may be equal: then each is the lowest level.
        shares = (values.astype(np.float64) - low) / ((high - low) or 1.0)
        codes = np.rint(shares * MAX_LEVEL)
        kind = "levels"
        n_bits = LEVEL_BITS
    # The 32 bits of each code, (n, 32), the highest first, of which the last n_bits are kept.
    code_bytes = codes.astype(">u4").view(np.uint8).reshape(-1, 4)
    bits = np.unpackbits(code_bytes, axis=1)
    shortened = np.packbits(bits[:, MAX_BITS - n_bits :])
    text = base64.b64encode(shortened.tobytes()).decode()
    return PackedColumn(column=tested.name, kind=kind, bits=n_bits, low=low, high=high, text=text)


def unpack(packed: PackedColumn, n: int) -> Float64Array | npt.NDArray[np.bool_]:
    """Return a packed column, (n,): ranks, levels as values, or whether items are right.

    Args:
        packed: The column, whose codes have ``packed.bits`` bits each.
        n: The number of items.
    """
    content = np.frombuffer(base64.b64decode(packed.text), dtype=np.uint8)
    bits = np.unpackbits(content, count=n * packed.bits)
    # The bits of each code fill the end of 32, which are then read as one number of four bytes.
    bits_by_item = np.zeros((n, MAX_BITS), dtype=np.uint8)
    bits_by_item[:, MAX_BITS - packed.bits :] = bits.reshape(n, packed.bits)
    codes = np.packbits(bits_by_item, axis=1).view(">u4").ravel()
    if packed.kind == "right":
        return codes.astype(np.bool_)
    if packed.kind == "ranks":
        return codes.astype(np.float64)
    shares = codes.astype(np.float64) / MAX_LEVEL
    return np.asarray(packed.low + shares * (packed.high - packed.low))


LOCK_VERSION = 3
"""Earlier versions are refused: their rows have no digest, so an edited one is not noticed."""
MAX_LOCK_BYTES = 1 << 30
"""The maximum size of a lock file."""


class LockedCell(StrictRecord):
    """One score and its conditions: fields of a Result, and the column that a paired test needs.

    ``paired`` is None if the per-item columns were not available, or no paired test is known.
    ``digest`` is over all other fields, and empty for a row that is in no lock file. ``result`` is
    the Result of the row if it is available; it is not in the file.
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
    def conditions(self) -> tuple[object, ...]:
        """The conditions of the score: split, protocol, and seeds of training and evaluation."""
        return self.split, protocol_key(self.protocol), self.train_seed, self.eval_seed

    @property
    def environment(self) -> tuple[object, ...]:
        """The device, the number type and the package versions that the score was made with."""
        return self.device, self.dtype, self.versions

    def to_row(self) -> dict[str, Any]:
        """Return the row of the file, with the digest over its other fields."""
        row = msgspec.to_builtins(msgspec.structs.replace(self, digest="", result=None))
        del row["result"]
        return {**row, "digest": digest_fields(row)}


class _Lock(StrictRecord):
    lock: int
    cells: msgspec.Raw


class CheckSide(NamedTuple):
    """One side of a check: its cells, and the files that are no valid results."""

    cells: list[LockedCell]
    problems: list[Problem]
    older: Sequence[Result] = ()
    """The results of a folder whose states are not current."""
    unverified: Mapping[str, Sequence[Result]] = {}
    """The results that were not compared with their items, by the reason."""

    def directory(self, catalogue: Catalogue) -> EncoderDirectory:
        """Return a directory of its results, by the names of encoders in tables."""
        return EncoderDirectory(
            ResultFolder(self.results(), problems=[], older=self.older), catalogue
        )

    def results(self) -> list[Result]:
        """Return the Results of its cells; empty for a lock file."""
        return [cell.result for cell in self.cells if cell.result is not None]

    def encoders(self) -> list[str]:
        """Return the names of its encoders, and of folders with files that cannot be read."""
        names = dict.fromkeys(cell.encoder for cell in self.cells)
        for problem in self.problems:
            for path in (problem.path, problem.path.parent):
                names |= {path.name: None, path.name.replace("--", "/"): None}
        return list(names)

    def select_encoders(self, encoders: Sequence[str]) -> CheckSide:
        """Return the side with the cells and problems of these encoders.

        Args:
            encoders: The names of encoders; if there are none, the side is returned as it is.
        """
        if not encoders:
            return self
        cells = [cell for cell in self.cells if cell.encoder in encoders]
        folder_names = {safe_file_name(name, MAX_ENCODER_BYTES) for name in encoders}
        # A problem is of a file in an encoder's folder, or of the folder.
        problems = [
            problem
            for problem in self.problems
            if problem.path.name in folder_names or problem.path.parent.name in folder_names
        ]
        return self._replace(cells=cells, problems=problems)

    def is_in(self, folder: Path) -> bool:
        """Return whether all files lie in this folder, which then is the folder of one encoder."""
        files = [result.path for result in self.results() if result.path is not None]
        files += [problem.path for problem in self.problems]
        return bool(files) and all(file.parent.samefile(folder) for file in files)

    def verify_items(
        self, catalogue: Catalogue, progress: Callable[[int, int], object] | None = None
    ) -> CheckSide:
        """Return the side without the results that their items contradict, which become problems.

        Results whose items are not available stay, and are ``unverified``. Rows of a lock stay.

        Args:
            catalogue: Names the evaluator of each task.
            progress: Called with the number of results that are checked, and of all.
        """
        believed = believe(self.results(), catalogue, progress)
        # By id(), because results cannot be in a set.
        believed_ids = set(map(id, believed.results))
        cells = [
            cell for cell in self.cells if cell.result is None or id(cell.result) in believed_ids
        ]
        return CheckSide(
            cells,
            problems=[*self.problems, *believed.problems],
            older=self.older,
            unverified=believed.unverified,
        )

    def why_unverified(self, result: Result) -> str:
        """Return why a Result was not compared with its items; empty if it was."""
        for reason, results in self.unverified.items():
            if any(unverified_result is result for unverified_result in results):
                return reason
        return ""


def verify_row(row: LockedCell, counterpart: Result | None, catalogue: Catalogue) -> VerifiedFile:
    """Compare the score of a row with what its packed values make with the other side's data.

    Values may be packed as levels, equal steps from the lowest to the highest. A level stands for
    all values up to half a step away, so these make a range of scores, in which the row's must lie.

    Args:
        row: A row of a lock file; its field ``paired`` has the packed value of each item.
        counterpart: The other side's Result of the same cell, whose data are the same; None if the
            other side is a lock file too.
        catalogue: Names the evaluator of the task.

    Returns:
        The problems of the row, and why it could not be verified.
    """
    # A row has no file of its own; only the problems and reasons that are noted here are used.
    file = VerifiedFile(path=Path())
    file.check_interval(row.score, row.interval)
    if row.paired is None:
        file.unverified_reasons.append("the lock holds no per-item values of it")
        return file
    if counterpart is None or not has_columns(counterpart):
        file.unverified_reasons.append(
            "a lock holds no data, and the per-item columns of the other side are not here"
        )
        return file
    evaluator = file.load_evaluator(counterpart, catalogue)
    if evaluator is None:
        return file
    try:
        low, high = _range_of_row(row.paired, row.n, counterpart, evaluator)
    except (StsbenchError, KeyError, TypeError, ValueError) as error:
        file.problems.append(
            f"the locked values make no score with these data: {as_one_line(error)}"
        )
        return file
    if not low <= row.score <= high:
        expected = f"{format_range(low, high)} with these data"
        file.problems.append(f"field 'score': {row.score:.6g}, the locked values make {expected}")
    return file


def _range_of_row(
    column: PackedColumn, n: int, counterpart: Result, evaluator: Evaluator
) -> tuple[float, float]:
    """Return the least and the greatest score that a packed column makes with a Result's data.

    They differ by rounding, and by the values that a level stands for.

    Args:
        column: The packed column of a row of a lock.
        n: The number of items.
        counterpart: The other side's Result; gold scores are taken from its columns.
        evaluator: Computes scores from columns.
    """
    values = unpack(column, n)
    columns = read_item_columns(counterpart)
    if column.column == "recall":
        # The score is the mean over images, whose ranks a row does not hold.
        low = high = float(np.mean(values))
        # A level stands for values up to half a level away, and so does their mean.
        error = (column.high - column.low) / MAX_LEVEL / 2 + BOUND_TOLERANCE
    else:
        scores = evaluator.recompute({**columns, column.column: values})
        low, high = allowed_score_range(evaluator, scores, counterpart.split)
        error = _level_error(
            column,
            values=np.asarray(values, dtype=np.float64),
            columns=columns,
            protocol=counterpart.protocol,
        )
    return low - error, high + error


def _level_error(
    column: PackedColumn,
    values: Float64Array,
    columns: Mapping[str, npt.NDArray[Any]],
    protocol: Mapping[str, Any],
) -> float:
    """Return how far the correlation of levels may lie from that of the values that they stand for.

    A correlation is the cosine of an angle between two vectors, values and gold scores, each less
    its mean. A level stands for values up to half a level d away, so the vector of m values moves
    by sqrt(m) d at most. With its length l, its angle moves by arcsin(sqrt(m) d / l) at most, and a
    cosine moves by no more than its angle. A mean over subsets moves by no more than the
    correlation that moves most.

    Args:
        column: The packed column; the error of ranks and bits is 0.
        values: Its values, (n,).
        columns: The per-item columns of the other side, which name the subsets.
        protocol: The protocol of the score.
    """
    if column.kind != "levels":
        return 0.0
    d = (column.high - column.low) / MAX_LEVEL / 2
    subsets = list(map(str, columns["subset"])) if "subset" in columns else [""] * len(values)
    subset_positions, _ = weigh_subsets(subsets, str(protocol.get("aggregation", "all")))
    largest_sine = 0.0
    for positions in subset_positions:
        m = len(positions)
        length = float(np.linalg.norm(values[positions] - values[positions].mean()))
        # Without a length all values are equal, and there is no correlation.
        if length:
            largest_sine = max(largest_sine, m**0.5 * d / length)
    return float(np.arcsin(min(1.0, largest_sine)))


def lock_cell(result: Result, paired: PackedColumn | None = None) -> LockedCell:
    """Return the row of one Result.

    Args:
        result: The Result.
        paired: The column that a paired test needs; None if it is not available.
    """
    # A row's digest is over other fields than a Result's.
    common_fields = set(LockedCell.__struct_fields__) & set(Result.__struct_fields__) - {"digest"}
    fields: dict[str, Any] = {name: getattr(result, name) for name in common_fields}
    # Results of earlier versions lack some of these.
    run = {"device": None, "dtype": None, "versions": {}, **result.run}
    fields |= {name: run[name] for name in ("device", "dtype", "versions")}
    return LockedCell(**fields, paired=paired, result=result)


def lock_cells(
    results: Iterable[Result], earlier_cells: Iterable[LockedCell] = ()
) -> list[LockedCell]:
    """Return the rows of Results, each with the column that a paired test needs.

    Args:
        results: The Results.
        earlier_cells: The rows of an earlier lock. If per-item columns are missing (they hold gold
            scores, and are not under version control), a row takes the column of the earlier row of
            the same items.

    Raises:
        DataError: The per-item columns are broken.
    """
    paired_by_key = {
        (cell.encoder, cell.task, cell.items): cell.paired
        for cell in earlier_cells
        if cell.paired is not None
    }
    cells = []
    for result in results:
        paired = None
        if has_columns(result):
            paired = pack(read_item_columns(result), result.protocol)
        key = (result.encoder, result.task, result.items)
        cells.append(lock_cell(result, paired=paired or paired_by_key.get(key)))
    return cells


def group_seeds(cells: Iterable[LockedCell]) -> dict[tuple[object, ...], list[LockedCell]]:
    """Group cells that differ in nothing but the training seed, in the order of seeds.

    Args:
        cells: Rows of any encoders and tasks; those without a training seed are omitted.

    Returns:
        The cells of each group, by encoder, task, split, protocol and evaluation seed.
    """

    def group_key(cell: LockedCell) -> tuple[object, ...]:
        split, protocol, _, eval_seed = cell.conditions
        return (cell.encoder, cell.task, split, protocol, eval_seed)

    trained_cells = [cell for cell in cells if cell.train_seed is not None]
    return group_by(sorted(trained_cells, key=lambda cell: cell.train_seed or 0), group_key)


def to_lock(cells: Iterable[LockedCell]) -> bytes:
    """Return the bytes of a lock file: sorted and one row per line, so that diffs are readable."""
    body = ",\n".join(
        sorted(json.dumps(cell.to_row(), ensure_ascii=False, allow_nan=False) for cell in cells)
    )
    return f'{{"lock": {LOCK_VERSION}, "cells": [\n{body}\n]}}\n'.encode()


def read_lock(path: Path) -> list[LockedCell]:
    """Read a lock file.

    Raises:
        OutputError: There is no such file.
        DataError: It is not a lock file or of another version, or a row occurs twice or was edited.
    """
    if not path.exists():
        raise OutputError(
            f"{path}: cannot be read: No such file or directory", remedy=Remedy("lock")
        )
    content = read_bounded(path, MAX_LOCK_BYTES)
    try:
        lock = msgspec.json.decode(content, type=_Lock)
        cells: list[LockedCell] = []
        if lock.lock == LOCK_VERSION:
            cells = msgspec.json.decode(lock.cells, type=list[LockedCell])
        edited_cells = [cell for cell in cells if cell.digest != cell.to_row()["digest"]]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = as_one_line(error)[:300]
        raise DataError(f"{path}: is not a lock file: {reason}", remedy=Remedy("lock")) from error
    if lock.lock != LOCK_VERSION:
        raise DataError(
            f"{path}: is a lock file of version {lock.lock}, "
            f"this stsbench reads {LOCK_VERSION}; lock again"
        )
    if edited_cells:
        raise DataError(
            f"{path}: {_describe_cell(edited_cells[0])}: was edited after it was locked: "
            "its digest is that of other fields; lock again"
        )
    seen_keys: set[tuple[object, ...]] = set()
    for cell in cells:
        key = (cell.encoder, cell.task, *cell.conditions)
        if key in seen_keys:
            raise DataError(
                f"{path}: {_describe_cell(cell)}: is locked twice, "
                "and nothing says which of the two counts; lock again"
            )
        seen_keys.add(key)
    return cells


def _describe_cell(cell: LockedCell) -> str:
    return f"{shorten(cell.encoder)} on {shorten(cell.task)}"


def read_side(path: Path, *, tasks: Sequence[str] | None = None) -> CheckSide:
    """Read one side of a check.

    Args:
        path: A results folder, the folder of one encoder in it, or a lock file.
        tasks: The tasks to read; None for all.

    Raises:
        OutputError: There is neither a folder nor a file.
        DataError: The file is not a lock file.
    """

    def is_requested(task: str) -> bool:
        return tasks is None or task in tasks

    # A missing .json is read as a lock too: its error says how to make one.
    if not path.is_dir() and (path.exists() or path.suffix == ".json"):
        return CheckSide([cell for cell in read_lock(path) if is_requested(cell.task)], problems=[])
    folder = read_folder(path)
    problems = [*folder.problems, *find_lost_results(path)]
    return CheckSide(
        cells=[lock_cell(result) for result in folder.results if is_requested(result.task)],
        problems=[problem for problem in problems if _may_concern(problem, tasks)],
        older=[result for result in folder.older if is_requested(result.task)],
    )


def _may_concern(problem: Problem, tasks: Sequence[str] | None) -> bool:
    """Return whether a file that cannot be read may hold a result of these tasks, by its name."""
    name_match = re.fullmatch(r"(.+)\.[^.]+\.[0-9a-f]{8}\.json", problem.path.name)
    if tasks is None or name_match is None:
        return True
    return name_match[1] in [safe_file_name(task, MAX_NAME_BYTES) for task in tasks]
