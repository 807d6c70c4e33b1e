"""The records of a split, which readers make and evaluators read, and checks against its card."""

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
from stsbench.numbers.statistics import BoolArray, Float64Array, IntArray


class _Sentences:
    """The texts of a split, in one column or two, and a target per item."""

    text_columns: ClassVar[tuple[str, ...]]
    """The fields with the sentences: two for pairs."""
    target_column: ClassVar[str]
    """The field with the score, class or image of each item."""

    @property
    def sides(self) -> tuple[Sequence[str], ...]:
        """The columns of sentences: one of n texts, or for pairs the first and the second ones."""
        return tuple(getattr(self, name) for name in self.text_columns)

    @property
    def n(self) -> int:
        """The number of items."""
        return len(self.sides[0])

    def texts(self) -> list[str]:
        """Return all sentences, first sentences before second ones."""
        return list(chain.from_iterable(self.sides))

    @cached_property
    def digest(self) -> str:
        """The sha256 of sentences and targets in order, without names of subsets and classes."""
        targets = map(repr, getattr(self, self.target_column).tolist())
        return _digest(zip(*self.sides, targets, strict=True))


@dataclass(frozen=True, kw_only=True)
class PairSplit(_Sentences):
    """Sentence pairs with a gold score."""

    text_columns, target_column = ("sentences1", "sentences2"), "gold"
    sentences1: Sequence[str]
    sentences2: Sequence[str]
    gold: Float64Array
    """The gold scores, of shape (n,)."""
    subset: Sequence[str]
    """The subset of each pair; an empty string if the task has no subsets."""
    subsets_known: bool = True
    """False if the task has subsets and this source lacks them."""
    ungraded: Sequence[str] = ()
    """Sentences of pairs without a gold score: never scored, training text of some methods."""
    ungraded_known: bool = True
    """False if the release has ungraded pairs and this source lacks them."""


@dataclass(frozen=True, kw_only=True)
class LabelledSplit(_Sentences):
    """Sentences with a class; ``labels`` is int64 of shape (n,), classes 0..c-1."""

    text_columns, target_column = ("sentences",), "labels"
    sentences: Sequence[str]
    labels: IntArray
    classes: Sequence[str] = ()
    """The names of the classes; empty if they have none."""


@dataclass(frozen=True, kw_only=True)
class LabelledPairSplit(_Sentences):
    """Sentence pairs with a class; ``labels`` is int64 of shape (n,), classes 0..c-1."""

    text_columns, target_column = ("sentences1", "sentences2"), "labels"
    sentences1: Sequence[str]
    sentences2: Sequence[str]
    labels: IntArray
    classes: Sequence[str] = ()
    """The names of the classes; empty if they have none."""


@dataclass(frozen=True, kw_only=True)
class CaptionSplit(_Sentences):
    """Captions of images."""

    text_columns, target_column = ("captions",), "image_of_caption"
    captions: Sequence[str]
    image_features: npt.NDArray[np.float32]
    """The features of each image, of shape (n_images, n_features)."""
    image_of_caption: IntArray
    """The row in ``image_features`` of each caption, of shape (n,)."""

    @cached_property
    def digest(self) -> str:
        """The sha256 of captions, their images and the image features."""
        features = hashlib.sha256(np.ascontiguousarray(self.image_features).tobytes()).hexdigest()
        return _digest([(super().digest, features)])


MAX_NEGATIVES = 6
"""The largest number of less similar sentences of an item."""


@dataclass(frozen=True, kw_only=True)
class ContrastSplit(_Sentences):
    """Sentences with one that is more similar than one or several others."""

    text_columns = ("anchors", "positives")
    anchors: Sequence[str]
    positives: Sequence[str]
    """The sentence that is more similar to each anchor."""
    negatives: Sequence[Sequence[str]]
    """Columns of less similar sentences, one or several, each of length n."""

    @property
    def sides(self) -> tuple[Sequence[str], ...]:
        """The columns of anchors, of positives, and each of negatives."""
        return (self.anchors, self.positives, *self.negatives)

    @cached_property
    def digest(self) -> str:
        """The sha256 of the sentences in order."""
        return _digest(zip(*self.sides, strict=True))


Split = PairSplit | LabelledSplit | LabelledPairSplit | CaptionSplit | ContrastSplit


_SEPARATOR_OR_ESCAPE = re.compile("[\x1b\x1e\x1f]")


def _digest(rows: Iterable[Sequence[str]]) -> str:
    """Return the sha256 of rows in order."""
    sha256 = hashlib.sha256()
    for row in rows:
        sha256.update(row_bytes(row))
    return sha256.hexdigest()


def row_bytes(row: Sequence[str]) -> bytes:
    """Return the bytes to hash for a row of at least one field.

    No two rows share them, nor do two lists of rows. A unit separator stands between fields and a
    record separator after the row. If a field contains one of them, or the escape character, each
    is preceded by an escape character.
    """
    line = "\x1f".join(row)
    n_between_fields = len(row) - 1
    has_any_within_field = len(_SEPARATOR_OR_ESCAPE.findall(line)) > n_between_fields
    if has_any_within_field:
        line = "\x1f".join(_SEPARATOR_OR_ESCAPE.sub("\x1b\\g<0>", field) for field in row)
    return line.encode("utf-8", "surrogatepass") + b"\x1e"


def check_form(split: object, *, where: str) -> None:
    """Check types, lengths and ranges of the columns that a reader, ours or a user's, returned.

    Args:
        split: The object that the reader returned.
        where: The beginning of a message.

    Raises:
        DataError: It is no split, or a column of it is not valid.
    """
    if not isinstance(split, Split):
        class_names = ", ".join(split_class.__name__ for split_class in get_args(Split))
        raise DataError(
            f"{where}: the reader returned a {type(split).__name__}, "
            f"a split is one of {class_names}"
        )
    first_column, *further_columns = split.text_columns
    # The length of the first column is that of the split, so it can only be checked in the others.
    _check_texts(getattr(split, first_column), where, first_column)
    for name in further_columns:
        _check_texts(getattr(split, name), where, name, n=split.n)
    if isinstance(split, PairSplit):
        _check_array(split.gold, where, name="gold", dtype=np.float64, shape=(split.n,))
        _check_rows(
            np.isfinite(split.gold),
            values=split.gold,
            where=where,
            name="gold score",
            requirement="a finite number",
        )
        _check_texts(split.subset, where, name="subset", n=split.n)
        _check_texts(split.ungraded, where, name="ungraded")
    elif isinstance(split, CaptionSplit):
        _check_images(split, where)
    elif isinstance(split, ContrastSplit):
        if not 1 <= len(split.negatives) <= MAX_NEGATIVES:
            raise DataError(
                f"{where}: {len(split.negatives)} columns of negatives, not 1 to {MAX_NEGATIVES}"
            )
        for column in split.negatives:
            _check_texts(column, where, name="negatives", n=split.n)
    else:
        _check_labels(split, where)


def _check_labels(split: LabelledSplit | LabelledPairSplit, where: str) -> None:
    """Check the arrays of labels and classes: distinct names, and each label one of them.

    Args:
        split: The split. Without names of classes any label from 0 up is valid.
        where: The beginning of a message.

    Raises:
        DataError: A column is of the wrong type, a name occurs twice, or a label is of no class.
    """
    _check_array(split.labels, where, name="labels", dtype=np.int64, shape=(split.n,))
    _check_texts(split.classes, where, name="classes")
    if len(set(split.classes)) < len(split.classes):
        raise DataError(f"{where}: a class is named twice ({', '.join(split.classes)[:200]})")
    n_classes = len(split.classes) or np.inf
    is_valid = (split.labels >= 0) & (split.labels < n_classes)
    _check_rows(
        is_valid,
        values=split.labels,
        where=where,
        name="label",
        requirement="the place of a class, counted from 0",
    )


def _check_images(split: CaptionSplit, where: str) -> None:
    """Check that the image features are finite, and that each caption is of one of the images.

    Args:
        split: The split, as a reader returned it.
        where: The beginning of a message.

    Raises:
        DataError: A column is of the wrong type or shape, or a value is not valid.
    """
    features = split.image_features
    images = split.image_of_caption
    # A user's reader may return anything, also an object without a shape. Any number of images and
    # features is valid; a shape of more or fewer than two axes differs from these two numbers.
    actual_shape = getattr(features, "shape", ())
    n_images, n_features = (*actual_shape, 0, 0)[:2]
    _check_array(
        features, where, name="image_features", dtype=np.float32, shape=(n_images, n_features)
    )
    is_finite = np.isfinite(features).all(axis=1)
    if not is_finite.all():
        raise DataError(f"{where}: the features of image {np.argmin(is_finite)} are not finite")
    _check_array(images, where, name="image_of_caption", dtype=np.int64, shape=(split.n,))
    is_valid = (images >= 0) & (images < len(features))
    _check_rows(
        is_valid,
        values=images,
        where=where,
        name="image",
        requirement=f"one of the {len(features)} images, counted from 0",
    )


_SURROGATE = re.compile("[\ud800-\udfff]")


def _check_texts(values: object, where: str, name: str, n: int | None = None) -> None:
    """Check that a column is a list of texts that UTF-8 can hold.

    Args:
        values: The column, of any type.
        where: The beginning of the message.
        name: The name of the column.
        n: Its length; None if any length is valid.

    Raises:
        DataError: It is not; names the first row that is wrong.
    """
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise DataError(f"{where}: {name} is of type {type(values).__name__}, not a list of texts")
    if n is not None and len(values) != n:
        raise DataError(f"{where}: {name} has {len(values)} rows, {n} are needed")
    for row, value in enumerate(values, 1):
        if not isinstance(value, str):
            raise DataError(f"{where}: {name}, row {row}: of type {type(value).__name__}, not text")
        if not value.isascii() and _SURROGATE.search(value):
            raise DataError(
                f"{where}: {name}, row {row}: holds half a character (a lone surrogate)"
            )


def _check_array(
    values: object, where: str, name: str, dtype: type[np.generic], shape: tuple[int, ...]
) -> None:
    """Check that a column is an array of a type and shape.

    Args:
        values: The column, of any type.
        where: The beginning of the message.
        name: The name of the column.
        dtype: The type of its numbers.
        shape: Its shape.

    Raises:
        DataError: It is not.
    """
    if not isinstance(values, np.ndarray):
        raise DataError(f"{where}: {name} is of type {type(values).__name__}, not an array")
    if values.dtype != dtype or values.shape != shape:
        raise DataError(
            f"{where}: {name} is {values.dtype} of shape {values.shape}, "
            f"not {dtype.__name__} of shape {shape}"
        )


def _check_rows(
    is_valid: BoolArray,
    values: npt.NDArray[Any],
    where: str,
    name: str,
    requirement: str,
) -> None:
    """Raise DataError that names the first value that is not valid, if there is one.

    Args:
        is_valid: Whether each value is valid, of shape (n,).
        values: The values, of shape (n,).
        where: The beginning of the message.
        name: A value as the message names it.
        requirement: A valid value as the message describes it.
    """
    if not is_valid.all():
        # The first False.
        row = int(np.argmin(is_valid))
        raise DataError(f"{where}: row {row + 1}: {name} {values[row]:g} is not {requirement}")


def check_file(path: Path, section: FileSection) -> None:
    """Check a file's lines and sha256 against its section in the card.

    Args:
        path: The file.
        section: The facts of the file in the card.

    Raises:
        DataError: The file differs from them.
    """
    check_lines(path, section)
    if difference := describe_difference(path, section.sha256):
        raise DataError(
            f"{path}: {difference}; "
            "restore the file, or correct the card where the data are your own"
        )


def check_lines(path: Path, section: FileSection) -> None:
    """Check the number of lines of a file against its section in the card.

    The last line counts whether or not it ends in a newline.

    Args:
        path: The file.
        section: The facts of the file in the card; one without a number of rows is not checked.

    Raises:
        DataError: The file has another number of lines.
    """
    if section.rows is None:
        return
    content = path.read_bytes()
    # The last line has no newline; an empty file has no line.
    has_open_end = content[-1:] not in (b"", b"\n")
    _check_fact(
        str(path), name="lines", actual=content.count(b"\n") + has_open_end, expected=section.rows
    )


def describe_difference(path: Path, sha256: str) -> str:
    """Return how a file's bytes differ from those with a hash; empty if they do not.

    Args:
        path: The file.
        sha256: The hash in the card; empty if the card has none, and then nothing differs.

    Returns:
        Part of a sentence. It says so if only line ends differ.
    """
    if not sha256:
        return ""
    digest = file_digest(path)
    if digest == sha256:
        return ""
    # Git or an editor may have changed the line ends.
    digest_with_newlines = hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
    reason = (
        "its line ends are CRLF"
        if digest_with_newlines == sha256
        else f"sha256 {digest[:12]}, card {sha256[:12]}"
    )
    return f"differs from the file that its card names ({reason})"


def count_characters(split: Split) -> list[int]:
    """Return the number of characters of each text column."""
    return [sum(map(len, column)) for column in split.sides]


def check_split(
    split: Split,
    section: SplitSection,
    *,
    gold_range: tuple[float, float] | None = None,
    where: str,
) -> None:
    """Check the form of a split that a reader returned, and each fact of it in its card.

    Args:
        split: The split.
        section: The facts of the split in the card.
        gold_range: The lowest and the highest gold score that the task has; None for any.
        where: The beginning of a message.

    Raises:
        DataError: The split is not valid, or differs from a fact.
    """
    check_form(split, where=where)
    _check_fact(where, name="rows", actual=split.n, expected=section.n)
    _check_fact(
        where,
        name="characters",
        actual=count_characters(split),
        expected=section.characters or None,
    )
    if isinstance(split, PairSplit):
        _check_gold(split, section, gold_range, where)
        subsets = section.subsets if split.subsets_known else {}
        _check_fact(
            where,
            name="pairs a subset",
            actual=dict(Counter(split.subset)),
            expected=subsets or None,
        )
        # Each ungraded pair has two sentences.
        n_ungraded = section.ungraded if split.ungraded_known else None
        _check_fact(
            where,
            name="pairs without a gold score",
            actual=len(split.ungraded) // 2,
            expected=n_ungraded,
        )
    if isinstance(split, LabelledSplit | LabelledPairSplit):
        counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
        classes = split.classes or [str(label) for label in range(len(counts))]
        count_by_class = dict(zip(classes, counts, strict=True))
        _check_fact(
            where, name="rows a class", actual=count_by_class, expected=section.labels or None
        )


def _check_gold(
    split: PairSplit, section: SplitSection, gold_range: tuple[float, float] | None, where: str
) -> None:
    """Check the range and the mean of the gold scores.

    Args:
        split: The pairs.
        section: The facts of the split in the card; its mean may be None.
        gold_range: The lowest and the highest possible score; None for any.
        where: The beginning of a message.

    Raises:
        DataError: A score is outside, or the mean is off by more than 1e-6.
    """
    low, high = gold_range or (-np.inf, np.inf)
    is_inside = (split.gold >= low) & (split.gold <= high)
    requirement = f"in the card's gold_range, {low:g} to {high:g}"
    _check_rows(
        is_inside, values=split.gold, where=where, name="gold score", requirement=requirement
    )
    if section.mean is None:
        return
    mean = np.mean(split.gold)
    if not abs(float(mean) - section.mean) <= 1e-6:
        raise DataError(f"{where}: mean gold score {mean:.6f}, the card says {section.mean:.6f}")


def _check_fact(where: str, name: str, actual: object, expected: object) -> None:
    """Raise DataError if a fact of a split or file differs from the card's.

    Args:
        where: The beginning of the message.
        name: What is counted, such as ``rows``.
        actual: What the data have.
        expected: What the card says; None if it says nothing.
    """
    if expected not in (None, actual):
        raise DataError(
            f"{where}: {name} {actual}, the card says {expected}; use the files of the release "
            "(`data=DIR`), or correct the card where the data are your own"
        )
