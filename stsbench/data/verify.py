"""Whether data are what evaluators and their card rely on: their form, counts, characters, means and hashes."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from stsbench.core.cards import FileFacts, SplitFacts
from stsbench.core.errors import DataError
from stsbench.core.files import check_is_file
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit, Split

FETCH = "fetch the data again, or correct the card where the data are your own"


def check_form(split: object, *, where: str) -> None:
    """Check types, lengths and ranges of the columns that a reader, ours or a user's own, gives out; raises DataError."""
    if not isinstance(split, Split):
        kinds = ", ".join(kind.__name__ for kind in get_args(Split))
        raise DataError(f"{where}: the reader returned a {type(split).__name__}, a split is one of {kinds}")
    for at, name in enumerate(split.text_columns):
        _check_texts(getattr(split, name), where, name, split.n if at else None)
    if isinstance(split, PairSplit):
        _check_array(split.gold, where, "gold", np.float64, (split.n,))
        _check_rows(np.isfinite(split.gold), split.gold, where, "gold score", "a finite number")
        _check_texts(split.subset, where, "subset", split.n)
        _check_texts(split.ungraded, where, "ungraded")
    elif isinstance(split, LabelledSplit | LabelledPairSplit):
        _check_array(split.labels, where, "labels", np.int64, (split.n,))
        _check_texts(split.classes, where, "classes")
        if len(set(split.classes)) < len(split.classes):
            raise DataError(f"{where}: a class is named twice ({', '.join(split.classes)[:200]})")
        known = (split.labels >= 0) & (split.labels < (len(split.classes) or np.inf))
        _check_rows(known, split.labels, where, "label", "the place of a class, counted from 0")
    else:
        features = split.image_features
        shape = features.shape if isinstance(features, np.ndarray) and features.ndim == 2 else (0, 0)
        _check_array(features, where, "image_features", np.float32, shape)
        if not (finite := np.isfinite(features).all(axis=1)).all():
            raise DataError(f"{where}: the features of image {np.argmin(finite)} are not finite")
        _check_array(split.image_of_caption, where, "image_of_caption", np.int64, (split.n,))
        known = (split.image_of_caption >= 0) & (split.image_of_caption < shape[0])
        _check_rows(known, split.image_of_caption, where, "image", f"one of the {shape[0]} images, counted from 0")


def _check_texts(values: object, where: str, name: str, n: int | None = None) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise DataError(f"{where}: {name} is of type {type(values).__name__}, not a list of texts")
    if n is not None and len(values) != n:
        raise DataError(f"{where}: {name} has {len(values)} rows, {n} are needed")
    for row, value in enumerate(values, 1):
        if not isinstance(value, str):
            raise DataError(f"{where}: {name}, row {row}: of type {type(value).__name__}, not text")
    try:
        "".join(values).encode()
    except UnicodeEncodeError:
        row = next(row for row, value in enumerate(values, 1) if re.search("[\ud800-\udfff]", value))
        raise DataError(f"{where}: {name}, row {row}: holds half a character (a lone surrogate)") from None


def _check_array(values: object, where: str, name: str, kind: type[np.generic], shape: tuple[int, ...]) -> None:
    if not isinstance(values, np.ndarray):
        raise DataError(f"{where}: {name} is of type {type(values).__name__}, not an array")
    if values.dtype != kind or values.shape != shape:
        raise DataError(
            f"{where}: {name} is {values.dtype} of shape {values.shape}, not {kind.__name__} of shape {shape}"
        )


def _check_rows(good: npt.NDArray[np.bool_], values: npt.NDArray[Any], where: str, name: str, wanted: str) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(f"{where}: row {row + 1}: {name} {values[row]:g} is not {wanted}")


def check_file(path: Path, facts: FileFacts) -> None:
    """Check a file's lines and sha256 against its card; raises DataError."""
    check_lines(path, facts)
    if how := difference(path, facts):
        raise DataError(f"{path}: {how}; restore the file, or correct the card where the data are your own")


def file_digest(path: Path) -> str:
    """The sha256 of a file's bytes; raises DataError where it is a pipe or a device, which may have no end."""
    check_is_file(path)
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_lines(path: Path, facts: FileFacts, *, todo: str = FETCH) -> None:
    """Check how many lines a file has, whether or not the last one ends; raises DataError."""
    if facts.rows is not None:
        content = path.read_bytes()
        _check(str(path), "lines", content.count(b"\n") + (content[-1:] not in (b"", b"\n")), facts.rows, todo)


def difference(path: Path, facts: FileFacts) -> str:
    """How a file's bytes differ from those its card names, ``""`` where they do not or it names none."""
    found = file_digest(path) if facts.sha256 else ""
    if found == facts.sha256:
        return ""
    unix = hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
    why = "its line ends are CRLF" if unix == facts.sha256 else f"sha256 {found[:12]}, card {facts.sha256[:12]}"
    return f"differs from the file that its card names ({why})"


def characters(split: Split) -> list[int]:
    """Characters in each text column."""
    return [sum(map(len, side)) for side in split.sides]


def check_split(
    split: Split,
    facts: SplitFacts,
    *,
    gold_range: tuple[float, float] | None = None,
    where: str,
    todo: str = FETCH,
) -> None:
    """Check the form of what a reader returned, and each fact that the card states of it.

    Raises:
        DataError: names ``where`` it is from and the first fact that differs, and says what ``todo``.
    """
    check_form(split, where=where)
    if facts.n is not None:
        _check(where, "rows", split.n, facts.n, todo)
    if facts.characters:
        _check(where, "characters", characters(split), facts.characters, todo)
    if isinstance(split, PairSplit):
        low, high = gold_range or (-np.inf, np.inf)
        inside = (split.gold >= low) & (split.gold <= high)
        _check_rows(inside, split.gold, where, "gold score", f"in the card's gold_range, {low:g} to {high:g}")
        if facts.mean is not None and not abs(float(np.mean(split.gold)) - facts.mean) <= 1e-6:
            raise DataError(f"{where}: mean gold score {np.mean(split.gold):.6f}, the card says {facts.mean:.6f}")
        if facts.subsets and split.subsets_known:
            _check(where, "pairs a subset", dict(Counter(split.subset)), facts.subsets, todo)
        if split.ungraded_known:
            # Two sentences a pair.
            _check(where, "pairs without a gold score", len(split.ungraded) // 2, facts.ungraded, todo)
    if isinstance(split, LabelledSplit | LabelledPairSplit) and facts.labels:
        counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
        names = split.classes or [str(label) for label in range(len(counts))]
        _check(where, "rows a class", dict(zip(names, counts, strict=True)), facts.labels, todo)


def _check(where: str, what: str, found: object, expected: object, todo: str) -> None:
    if found != expected:
        raise DataError(f"{where}: {what} {found}, the card says {expected}; {todo}")
