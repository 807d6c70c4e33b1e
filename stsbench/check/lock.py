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
from collections.abc import Iterable, Mapping, Sequence
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
from stsbench.significance.rows import ProgressCallback

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


def pack_tested_column(
    columns: Mapping[str, npt.NDArray[Any]], protocol: Mapping[str, Any]
) -> PackedColumn | None:
    """Pack the values per item that a test of two scores needs into a short text for a lock file.

    There are three kinds of values:

    * ``ranks``, from 0, if the score depends on nothing but the order of the values;
    * ``right``, 1 or 0, if the values are true or false;
    * otherwise ``levels``: each value is rounded to one of 65,536 levels at equal distances, from
      the lowest value (code 0) to the highest (``MAX_LEVEL``, 65,535).

    Args:
        columns: The columns of a result, (n,) each: one value for each of n items.
        protocol: Field -> value of its protocol, the way of scoring, which decides the test.

    Returns:
        The packed column that the test compares; None if no test that compares items in pairs is
        known for this protocol.
    """
    from stsbench.significance.items import find_tested_column

    # Its ``metric`` is a correlation with gold scores; None if the score is the column's mean.
    tested = find_tested_column(columns, protocol)
    if tested is None:
        return None
    values = np.asarray(columns[tested.name])
    low, high = 0.0, 1.0
    kind: PackedKind
    if tested.metric is not None and tested.metric.depends_on_ranks_only:
        # The rank of each value among the distinct values.
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
        fractions = (values.astype(np.float64) - low) / ((high - low) or 1.0)
        codes = np.rint(fractions * MAX_LEVEL)
        kind = "levels"
        n_bits = LEVEL_BITS
    # The 32 bits of each code, (n, 32), the highest first, of which the last n_bits are kept.
    code_bytes = codes.astype(">u4").view(np.uint8).reshape(-1, 4)
    bits = np.unpackbits(code_bytes, axis=1)
    shortened = np.packbits(bits[:, MAX_BITS - n_bits :])
    text = base64.b64encode(shortened.tobytes()).decode()
    return PackedColumn(column=tested.name, kind=kind, bits=n_bits, low=low, high=high, text=text)


def unpack_column(packed: PackedColumn, n: int) -> Float64Array | npt.NDArray[np.bool_]:
    """Return the values per item that a row of a lock file holds packed in a text.

    Args:
        packed: The packed column. Its ``text`` holds a whole number, the code, for each item in
            ``packed.bits`` bits, in base64. Its ``kind`` says what the codes stand for.
        n: The number of items.

    Returns:
        One value per item, (n,): truth values for the kind ``right``, ranks from 0 for ``ranks``,
        and for ``levels`` numbers from ``packed.low`` (code 0) to ``packed.high`` (code 65,535).
    """
    content = np.frombuffer(base64.b64decode(packed.text), dtype=np.uint8)
    bits = np.unpackbits(content, count=n * packed.bits)
    # The bits of each code fill the end of MAX_BITS = 32, which are read as a number of four bytes.
    bits_by_item = np.zeros((n, MAX_BITS), dtype=np.uint8)
    bits_by_item[:, MAX_BITS - packed.bits :] = bits.reshape(n, packed.bits)
    codes = np.packbits(bits_by_item, axis=1).view(">u4").ravel()
    if packed.kind == "right":
        return codes.astype(np.bool_)
    if packed.kind == "ranks":
        return codes.astype(np.float64)
    fractions = codes.astype(np.float64) / MAX_LEVEL
    return np.asarray(packed.low + fractions * (packed.high - packed.low))


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
        """Return this side of a check with the scores and unreadable files of these encoders only.

        ``self.cells`` are the scores, and ``self.problems`` the files that cannot be read, each
        with its path. A problem is an encoder's if its path, or the folder it is in, has the name
        that the encoder's folder has.

        Args:
            encoders: The names of encoders; if there are none, the side is returned as it is.
        """
        if not encoders:
            return self
        cells = [cell for cell in self.cells if cell.encoder in encoders]
        folder_names = {safe_file_name(name, MAX_ENCODER_BYTES) for name in encoders}
        problems = [
            problem
            for problem in self.problems
            if problem.path.name in folder_names or problem.path.parent.name in folder_names
        ]
        return self._replace(cells=cells, problems=problems)

    def select_tasks(self, tasks: Sequence[str]) -> CheckSide:
        """Return this side with the scores and older results of these tasks only.

        Of the unreadable files those remain whose names are not those of other tasks.
        """
        return self._replace(
            cells=[cell for cell in self.cells if cell.task in tasks],
            problems=[problem for problem in self.problems if _may_concern(problem, tasks)],
            older=[result for result in self.older if result.task in tasks],
        )

    def is_in(self, folder: Path) -> bool:
        """Return whether all files lie in this folder, which then is the folder of one encoder."""
        files = [result.path for result in self.results() if result.path is not None]
        files += [problem.path for problem in self.problems]
        return bool(files) and all(file.parent.samefile(folder) for file in files)

    def verify_items(self, catalogue: Catalogue, progress: ProgressCallback | None) -> CheckSide:
        """Recompute the scores of this side from their values per item, and drop the wrong ones.

        ``self.cells`` are the scores. A cell with a ``result``, the file of the score, is dropped
        if its items contradict it, and its file becomes a problem. If its items are not available
        it stays, and is listed in ``unverified``. A cell without a result is a row of a lock file,
        and stays.

        Args:
            catalogue: The cards of tasks, which name the code that computes their scores.
            progress: Called with the number of results that are checked so far, and of all.

        Returns:
            A new side.
        """
        # The results that their items confirm, or that have no items.
        believed = believe(self.results(), catalogue, progress)
        # By id(), because results have no hash and cannot be in a set.
        believed_ids = set(map(id, believed.results))
        cells = [
            cell for cell in self.cells if cell.result is None or id(cell.result) in believed_ids
        ]
        problems = [*self.problems, *believed.problems]
        return self._replace(cells=cells, problems=problems, unverified=believed.unverified)

    def why_unverified(self, result: Result) -> str:
        """Return why a Result was not compared with its items; empty if it was."""
        for reason, results in self.unverified.items():
            if any(unverified_result is result for unverified_result in results):
                return reason
        return ""


def verify_row(row: LockedCell, counterpart: Result | None, catalogue: Catalogue) -> VerifiedFile:
    """Recompute the score of a row of a lock file, and compare it with the score in the row.

    The row holds a value per item, in ``row.paired``, but no gold scores: these come from a Result
    on the other side of the check. Values may be rounded to levels, so the recomputed score is a
    range, in which the row's score must lie.

    Args:
        row: The row: one accepted score.
        counterpart: The other side's Result, the file of a score on the same data; None if the
            other side is a lock file too.
        catalogue: The cards of tasks, which name the code that computes their scores (evaluators).

    Returns:
        An object whose ``problems`` say what is wrong with the row, and whose
        ``unverified_reasons`` say why it could not be recomputed; both are empty if the score is
        confirmed.
    """
    # A row has no file of its own: of the object only these two lists are used.
    file = VerifiedFile(path=Path())
    # Adds a problem if the score lies outside its interval.
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
    # None if there is none; then one of the two lists says why.
    if evaluator is None:
        return file
    try:
        low, high = _score_range_of_row(row.paired, row.n, counterpart, evaluator)
    except (StsbenchError, KeyError, TypeError, ValueError) as error:
        file.problems.append(
            f"the locked values make no score with these data: {as_one_line(error)}"
        )
        return file
    if not low <= row.score <= high:
        expected = f"{format_range(low, high)} with these data"
        file.problems.append(f"field 'score': {row.score:.6g}, the locked values make {expected}")
    return file


def _score_range_of_row(
    column: PackedColumn, n: int, counterpart: Result, evaluator: Evaluator
) -> tuple[float, float]:
    """Return the range in which the score of a row of a lock file must lie, from its values.

    The score is computed from the row's values per item and the gold scores of a Result. It is a
    range because the values may have been rounded when they were packed.

    Args:
        column: The row's packed values. ``column.column`` is their name, and ``column.low`` and
            ``column.high`` are the lowest and the highest value.
        n: The number of items.
        counterpart: The Result on the other side of the check, whose columns hold the gold scores.
        evaluator: Computes scores from columns.

    Returns:
        The lowest and the highest score.
    """
    values = unpack_column(column, n)
    columns = read_item_columns(counterpart)
    if column.column == "recall":
        # The score of image retrieval is the mean of this column over the images. The evaluator
        # would need the ranks of all images, which a row does not hold.
        low = high = float(np.mean(values))
        # A level stands for values up to half a step away, and so does their mean. BOUND_TOLERANCE
        # is a tiny number for errors of rounding.
        error = (column.high - column.low) / MAX_LEVEL / 2 + BOUND_TOLERANCE
    else:
        scores = evaluator.recompute({**columns, column.column: values})
        # Equal but for BOUND_TOLERANCE, unless the evaluator's score is rounded or over folds.
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
    """Return how much a correlation may have changed because its values were rounded to levels.

    A correlation is the cosine of the angle between two vectors, values and gold scores, each less
    its mean. Rounding moves each value by half a step ``d`` at most, and so a vector of ``m``
    values by sqrt(m) d. If its length is ``length``, its angle moves by arcsin(sqrt(m) d / length)
    at most, and a cosine moves by no more than its angle. A mean over subsets of the items moves by
    no more than the correlation that moves most.

    Args:
        column: The packed column, with its lowest and highest value; the error of other kinds than
            ``levels`` is 0, as they are not rounded.
        values: Its values, (n,).
        columns: Further columns, (n,) each; ``subset`` names the subset of each item.
        protocol: Field -> value of the protocol; ``aggregation`` says how subsets are combined.
    """
    if column.kind != "levels":
        return 0.0
    d = (column.high - column.low) / MAX_LEVEL / 2
    # An array of the indices of each subset's items; a single one, of all, for "all".
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
    """Return the row of a lock file for one Result, the file of a score.

    A lock file holds accepted scores, with which later scores are compared.

    Args:
        result: The Result.
        paired: Its packed values per item, which a test of two scores needs; None if they are not
            available.
    """
    # All fields that a row and a Result have in common, but not the digest: that of a row is the
    # hash of other fields.
    common_fields = set(LockedCell.__struct_fields__) & set(Result.__struct_fields__) - {"digest"}
    fields: dict[str, Any] = {name: getattr(result, name) for name in common_fields}
    # Results of earlier versions lack some keys of this dict.
    run = {"device": None, "dtype": None, "versions": {}, **result.run}
    fields |= {name: run[name] for name in ("device", "dtype", "versions")}
    return LockedCell(**fields, paired=paired, result=result)


def lock_cells(
    results: Iterable[Result], earlier_cells: Iterable[LockedCell] = ()
) -> list[LockedCell]:
    """Return the rows of a lock file for Results, the files of scores.

    Each row gets the values per item that a test of two scores needs, packed into a text. They are
    made from the columns beside the Result. If these are missing, because they hold gold scores and
    are not under version control, or if no test of them is known, the values are taken from the row
    of an earlier lock file with the same encoder, task and hash of the items, if there is one.

    Args:
        results: The Results.
        earlier_cells: The rows of the earlier lock file.

    Raises:
        DataError: The columns beside a Result are broken.
    """
    # Encoder, task and hash of the items -> packed values.
    paired_by_key = {
        (cell.encoder, cell.task, cell.items): cell.paired
        for cell in earlier_cells
        if cell.paired is not None
    }
    cells = []
    for result in results:
        paired = None
        if has_columns(result):
            paired = pack_tested_column(read_item_columns(result), result.protocol)
        key = (result.encoder, result.task, result.items)
        cells.append(lock_cell(result, paired=paired or paired_by_key.get(key)))
    return cells


def group_seeds(cells: Iterable[LockedCell]) -> dict[tuple[object, ...], list[LockedCell]]:
    """Group scores that differ in nothing but the training seed.

    Args:
        cells: Scores of any encoders and tasks; those without a training seed are omitted.

    Returns:
        (encoder, task, split, protocol, evaluation seed) -> the cells, in the order of their
        training seeds.
    """

    def group_key(cell: LockedCell) -> tuple[object, ...]:
        # The third of the conditions is the training seed.
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
    """Read a lock file, a JSON file of accepted scores, and return its rows.

    Raises:
        OutputError: There is no such file.
        DataError: It is not a lock file, or one of another version; or a row was edited, so that
            its digest is not the hash of its other fields; or two rows have the same encoder, task
            and conditions (split, protocol and seeds).
    """
    if not path.exists():
        raise OutputError(
            f"{path}: cannot be read: No such file or directory", remedy=Remedy("lock")
        )
    content = read_bounded(path, MAX_LOCK_BYTES)
    try:
        # Its rows, ``lock.cells``, are still bytes of JSON.
        lock = msgspec.json.decode(content, type=_Lock)
        cells: list[LockedCell] = []
        # The field "lock" is the version of the format. Rows of another one may have other fields.
        if lock.lock == LOCK_VERSION:
            cells = msgspec.json.decode(lock.cells, type=list[LockedCell])
        # to_row() computes the digest anew.
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


def read_side(path: Path) -> CheckSide:
    """Read the new or the old scores of a check, which compares new with old scores.

    Args:
        path: A results folder, the folder of one encoder in it, or a lock file (a JSON file of
            accepted scores).

    Returns:
        ``cells``, the scores; ``problems``, the files that are no valid results; and ``older``,
        results of earlier states of an encoder, which do not count. A lock file has only cells.

    Raises:
        OutputError: There is neither a folder nor a file.
        DataError: The file is not a lock file.
    """
    if path.exists() and not path.is_dir():
        return CheckSide(read_lock(path), problems=[])
    folder = read_folder(path)
    # Lost results: in place of the file beside their columns there is none, or a folder.
    problems = [*folder.problems, *find_lost_results(path)]
    return CheckSide(list(map(lock_cell, folder.results)), problems, older=folder.older)


def _may_concern(problem: Problem, tasks: Sequence[str]) -> bool:
    """Return whether a file that cannot be read may hold a result of these tasks, by its name."""
    name_match = re.fullmatch(r"(.+)\.[^.]+\.[0-9a-f]{8}\.json", problem.path.name)
    if name_match is None:
        return True
    return name_match[1] in [safe_file_name(task, MAX_NAME_BYTES) for task in tasks]
