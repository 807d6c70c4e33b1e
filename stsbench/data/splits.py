"""What a split holds, plain records that readers make and evaluators read; and whether it is what its card says."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt

from stsbench.core.cards import FileSection, SplitSection
from stsbench.core.errors import DataError
from stsbench.core.files import file_digest


class _Sentences:
    """What all splits have: texts, and an answer for each item."""

    text_columns: ClassVar[tuple[str, ...]]
    answer: ClassVar[str]
    """The column that an evaluator looks for."""

    @property
    def sides(self) -> tuple[Sequence[str], ...]:
        """The sentences of each item, side by side."""
        return tuple(getattr(self, name) for name in self.text_columns)

    @property
    def n(self) -> int:
        """Number of items."""
        return len(self.sides[0])

    def texts(self) -> list[str]:
        """All sentences, first sentences before second ones."""
        return list(chain.from_iterable(self.sides))

    @cached_property
    def digest(self) -> str:
        """The sha256 of sentences and answers in their order, whatever subsets and classes are called."""
        return _digest(
            zip(*self.sides, map(repr, getattr(self, self.answer).tolist()), strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class PairSplit(_Sentences):
    """Sentence pairs with a gold score.

    ``gold`` is float64 of shape (n,); ``subset`` names the subset of each pair, ``""`` where
    the task has none; ``subsets_known`` is false where the task has subsets and this source
    leaves them out. ``ungraded`` holds the sentences of pairs that the release carries
    without a gold score: never scored, but training text of some methods; ``ungraded_known`` is
    false where this source leaves them out.
    """

    text_columns, answer = ("sentences1", "sentences2"), "gold"
    sentences1: Sequence[str]
    sentences2: Sequence[str]
    gold: npt.NDArray[np.float64]
    subset: Sequence[str]
    subsets_known: bool = True
    ungraded: Sequence[str] = ()
    ungraded_known: bool = True


@dataclass(frozen=True, kw_only=True)
class LabelledSplit(_Sentences):
    """Sentences with a class; ``labels`` is int64 of shape (n,), classes 0..c-1."""

    text_columns, answer = ("sentences",), "labels"
    sentences: Sequence[str]
    labels: npt.NDArray[np.int64]
    classes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class LabelledPairSplit(_Sentences):
    """Sentence pairs with a class; ``labels`` is int64 of shape (n,), classes 0..c-1."""

    text_columns, answer = ("sentences1", "sentences2"), "labels"
    sentences1: Sequence[str]
    sentences2: Sequence[str]
    labels: npt.NDArray[np.int64]
    classes: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class CaptionSplit(_Sentences):
    """Captions of images: ``image_features`` (i, f) float32, ``image_of_caption`` (n,) int64."""

    text_columns, answer = ("captions",), "image_of_caption"
    captions: Sequence[str]
    image_features: npt.NDArray[np.float32]
    image_of_caption: npt.NDArray[np.int64]

    @cached_property
    def digest(self) -> str:
        """The sha256 of captions, their images and the image features."""
        features = hashlib.sha256(np.ascontiguousarray(self.image_features).tobytes()).hexdigest()
        return _digest([(super().digest, features)])


Split = PairSplit | LabelledSplit | LabelledPairSplit | CaptionSplit


_SEPARATORS = re.compile("[\x1b\x1e\x1f]")


def _digest(rows: Iterable[Sequence[str]]) -> str:
    h = hashlib.sha256()
    for row in rows:
        h.update(row_bytes(row))
    return h.hexdigest()


def row_bytes(row: Sequence[str]) -> bytes:
    """What is hashed of a row of at least one field: no two rows share it, nor do two lists of rows.

    A unit separator stands between fields and a record separator after the row. Where a text holds one of them, or the
    escape character, that has an escape character before it; the digest of any other text is as it was without.
    """
    line = "\x1f".join(row)
    if len(_SEPARATORS.findall(line)) >= len(row):
        line = "\x1f".join(_SEPARATORS.sub("\x1b\\g<0>", field) for field in row)
    return line.encode("utf-8", "surrogatepass") + b"\x1e"


def check_form(split: object, *, where: str) -> None:
    """Check types, lengths and ranges of the columns that a reader, ours or a user's own, gives out; raises DataError."""
    if not isinstance(split, Split):
        kinds = ", ".join(kind.__name__ for kind in get_args(Split))
        raise DataError(
            f"{where}: the reader returned a {type(split).__name__}, a split is one of {kinds}"
        )
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
        features, images = split.image_features, split.image_of_caption
        _check_array(
            features,
            where,
            "image_features",
            np.float32,
            (*getattr(features, "shape", ())[:2], 0, 0)[:2],
        )
        if not (finite := np.isfinite(features).all(axis=1)).all():
            raise DataError(f"{where}: the features of image {np.argmin(finite)} are not finite")
        _check_array(images, where, "image_of_caption", np.int64, (split.n,))
        known = (images >= 0) & (images < len(features))
        _check_rows(
            known, images, where, "image", f"one of the {len(features)} images, counted from 0"
        )


_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def _check_texts(values: object, where: str, name: str, n: int | None = None) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise DataError(f"{where}: {name} is of type {type(values).__name__}, not a list of texts")
    if n is not None and len(values) != n:
        raise DataError(f"{where}: {name} has {len(values)} rows, {n} are needed")
    for row, value in enumerate(values, 1):
        if not isinstance(value, str):
            raise DataError(f"{where}: {name}, row {row}: of type {type(value).__name__}, not text")
        if not value.isascii() and _HALF_CHARACTER.search(value):
            raise DataError(
                f"{where}: {name}, row {row}: holds half a character (a lone surrogate)"
            )


def _check_array(
    values: object, where: str, name: str, kind: type[np.generic], shape: tuple[int, ...]
) -> None:
    if not isinstance(values, np.ndarray):
        raise DataError(f"{where}: {name} is of type {type(values).__name__}, not an array")
    if values.dtype != kind or values.shape != shape:
        found = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{where}: {name} is {found}, not {kind.__name__} of shape {shape}")


def _check_rows(
    good: npt.NDArray[np.bool_], values: npt.NDArray[Any], where: str, name: str, wanted: str
) -> None:
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(f"{where}: row {row + 1}: {name} {values[row]:g} is not {wanted}")


def check_file(path: Path, facts: FileSection) -> None:
    """Check a file's lines and sha256 against its card; raises DataError."""
    check_lines(path, facts)
    if how := difference(path, facts.sha256):
        raise DataError(
            f"{path}: {how}; restore the file, or correct the card where the data are your own"
        )


def check_lines(path: Path, facts: FileSection) -> None:
    """Check how many lines a file has, whether or not the last one ends; raises DataError."""
    if facts.rows is not None:
        content = path.read_bytes()
        _check(
            str(path),
            "lines",
            content.count(b"\n") + (content[-1:] not in (b"", b"\n")),
            facts.rows,
        )


def difference(path: Path, sha256: str) -> str:
    """How a file's bytes differ from those its card names, ``""`` where they do not or it names none."""
    if not sha256 or (found := file_digest(path)) == sha256:
        return ""
    unix = hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
    why = "its line ends are CRLF" if unix == sha256 else f"sha256 {found[:12]}, card {sha256[:12]}"
    return f"differs from the file that its card names ({why})"


def characters(split: Split) -> list[int]:
    """Characters in each text column."""
    return [sum(map(len, side)) for side in split.sides]


def check_split(
    split: Split, facts: SplitSection, *, gold_range: tuple[float, float] | None = None, where: str
) -> None:
    """Check the form of what a reader returned, and each fact that the card states of it; raises DataError."""
    check_form(split, where=where)
    _check(where, "rows", split.n, facts.n)
    _check(where, "characters", characters(split), facts.characters or None)
    if isinstance(split, PairSplit):
        low, high = gold_range or (-np.inf, np.inf)
        inside = (split.gold >= low) & (split.gold <= high)
        _check_rows(
            inside,
            split.gold,
            where,
            "gold score",
            f"in the card's gold_range, {low:g} to {high:g}",
        )
        if facts.mean is not None and not abs(float(np.mean(split.gold)) - facts.mean) <= 1e-6:
            raise DataError(
                f"{where}: mean gold score {np.mean(split.gold):.6f}, the card says {facts.mean:.6f}"
            )
        subsets = facts.subsets if split.subsets_known else {}
        _check(where, "pairs a subset", dict(Counter(split.subset)), subsets or None)
        # Two sentences a pair.
        ungraded = facts.ungraded if split.ungraded_known else None
        _check(where, "pairs without a gold score", len(split.ungraded) // 2, ungraded)
    if isinstance(split, LabelledSplit | LabelledPairSplit):
        counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
        names = split.classes or [str(label) for label in range(len(counts))]
        _check(where, "rows a class", dict(zip(names, counts, strict=True)), facts.labels or None)


def _check(where: str, what: str, found: object, expected: object) -> None:
    """``expected`` is None where the card says nothing of it."""
    if expected not in (None, found):
        todo = "use the files of the release (--data DIR), or correct the card where the data are your own"
        raise DataError(f"{where}: {what} {found}, the card says {expected}; {todo}")
