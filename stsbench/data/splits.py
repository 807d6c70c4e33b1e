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
from stsbench.core.errors import DataError, Remedy
from stsbench.core.files import file_sha256
from stsbench.numbers.statistics import BoolArray, Float64Array, IntArray


@dataclass(frozen=True, kw_only=True)
class _Sentences:
    """The texts of a split, in one column or two, and a target per item."""

    text_columns: ClassVar[tuple[str, ...]]
    """The fields with the sentences: two for pairs."""
    target_column: ClassVar[str]
    """The field with the score, class or image of each item."""
    locations: Sequence[str] = ()
    """The file and line of each item, such as ``a.csv: line 3``; empty if they are not known."""

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
        return _rows_sha256(zip(*self.sides, targets, strict=True))


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
        return _rows_sha256([(super().digest, features)])


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
        return _rows_sha256(zip(*self.sides, strict=True))


Split = PairSplit | LabelledSplit | LabelledPairSplit | CaptionSplit | ContrastSplit


_SEPARATOR_OR_ESCAPE = re.compile("[\x1b\x1e\x1f]")


def _rows_sha256(rows: Iterable[Sequence[str]]) -> str:
    """Return the sha256 of rows of texts in order."""
    sha256 = hashlib.sha256()
    for row in rows:
        sha256.update(row_bytes(row))
    return sha256.hexdigest()


def row_bytes(row: Sequence[str]) -> bytes:
    """Return the bytes to hash for a row of at least one text.

    Different rows have different bytes, and so have different lists of rows. The texts are
    separated by ASCII's unit separator, and the row ends in its record separator. If a text has one
    of these characters or the escape character in it, an escape character is put before that.
    """
    line = "\x1f".join(row)
    n_separators = len(row) - 1
    # findall() finds the separators between texts too.
    needs_escapes = len(_SEPARATOR_OR_ESCAPE.findall(line)) > n_separators
    if needs_escapes:
        line = "\x1f".join(_SEPARATOR_OR_ESCAPE.sub("\x1b\\g<0>", text) for text in row)
    return line.encode("utf-8", "surrogatepass") + b"\x1e"


def check_form(split: object, *, where: str) -> None:
    """Check the columns of a split: their types, their lengths and the ranges of their numbers.

    Args:
        split: What a function that reads the files of a task returned; a user may have written it.
        where: What messages of errors begin with: the task, the split and its source.

    Raises:
        DataError: It is no split, or a column of it is not valid.
    """
    if not isinstance(split, Split):
        class_names = ", ".join(split_class.__name__ for split_class in get_args(Split))
        raise DataError(
            f"{where}: the reader returned a {type(split).__name__}, "
            f"a split is one of {class_names}"
        )
    # The names of the attributes with sentences.
    first_column, *further_columns = split.text_columns
    # The number of items, split.n, is the length of the first column.
    _check_texts(getattr(split, first_column), where, first_column)
    for column_name in further_columns:
        _check_texts(getattr(split, column_name), where, column_name, n=split.n)
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
        for texts in split.negatives:
            _check_texts(texts, where, name="negatives", n=split.n)
    else:
        _check_labels(split, where)


def _check_labels(split: LabelledSplit | LabelledPairSplit, where: str) -> None:
    """Check that names of classes are distinct, and that each label is the number of a class.

    Args:
        split: The split. Without names of classes any label from 0 up is valid.
        where: What messages of errors begin with.

    Raises:
        DataError: A column is of the wrong type, a name occurs twice, or a label is of no class.
    """
    _check_array(split.labels, where, name="labels", dtype=np.int64, shape=(split.n,))
    _check_texts(split.classes, where, name="classes")
    if len(set(split.classes)) < len(split.classes):
        raise DataError(f"{where}: a class is named twice ({', '.join(split.classes)[:200]})")
    # Any number of classes is valid without names.
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
        split: The split, of ``n`` captions; a user's function may have made it, with objects of
            any type.
        where: What messages of errors begin with.

    Raises:
        DataError: A column is of the wrong type or shape, or a value is not valid.
    """
    features = split.image_features
    images = split.image_of_caption
    # Any number of images and of features is valid, but the array must have these two axes. Zeros
    # stand for axes that it lacks, so that its shape then differs from the valid one.
    actual_shape = getattr(features, "shape", ())
    n_images, n_features = (*actual_shape, 0, 0)[:2]
    _check_array(
        features, where, name="image_features", dtype=np.float32, shape=(n_images, n_features)
    )
    is_finite = np.isfinite(features).all(axis=1)
    if not is_finite.all():
        # argmin() finds the first False.
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
    """Check that a column is a list of texts that can be written in UTF-8.

    Args:
        values: The column, an object of any type.
        where: What the message begins with.
        name: The name of the column, for the message.
        n: The length that it must have; None if any length is valid.

    Raises:
        DataError: It is no such list; the message names the first row that is wrong.
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
        values: The column, an object of any type.
        where: What the message begins with.
        name: The name of the column, for the message.
        dtype: The type that its numbers must have.
        shape: The shape that it must have.

    Raises:
        DataError: It is no array of this type and shape.
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
    """Check that the numbers of all rows are valid.

    Args:
        is_valid: Whether each number is valid, (n,).
        values: The numbers, (n,).
        where: What the message begins with.
        name: What the message calls a number, for example ``gold score``.
        requirement: What the message says of valid ones, for example ``a finite number``.

    Raises:
        DataError: A number is not valid; the message names the first such row.
    """
    if not is_valid.all():
        # The first False.
        row = int(np.argmin(is_valid))
        raise DataError(f"{where}: row {row + 1}: {name} {values[row]:g} is not {requirement}")


def check_file(path: Path, section: FileSection) -> None:
    """Check that a file has the number of lines and the sha256 that a task's card says.

    Args:
        path: The file.
        section: What the card says of the file; a fact that it lacks is not checked.

    Raises:
        DataError: The file differs from the card.
    """
    check_lines(path, section)
    mismatch = describe_hash_mismatch(path, section.sha256)
    if mismatch:
        raise DataError(
            f"{path}: {mismatch}; restore the file, or correct the card where the data are your own"
        )


def check_lines(path: Path, section: FileSection) -> None:
    """Check that a file has the number of lines that a task's card says.

    The last line counts whether or not it ends in a newline.

    Args:
        path: The file.
        section: What the card says of the file; without a number of rows it is not checked.

    Raises:
        DataError: The file has another number of lines.
    """
    if section.rows is None:
        return
    content = path.read_bytes()
    n_lines = content.count(b"\n")
    has_line_without_newline = content[-1:] not in (b"", b"\n")
    if has_line_without_newline:
        n_lines += 1
    _check_fact(str(path), name="lines", actual=n_lines, expected=section.rows)


def describe_hash_mismatch(path: Path, sha256: str) -> str:
    """Return text that says how a file's sha256 differs from that in a card.

    It is empty if they are equal, or if the card has none. The text is the end of a sentence that
    begins with the file. It says so if only line ends differ.

    Args:
        path: The file.
        sha256: The hash in the card; empty if the card has none.
    """
    if not sha256:
        return ""
    actual_sha256 = file_sha256(path)
    if actual_sha256 == sha256:
        return ""
    # Git or an editor may have changed the line ends.
    content_with_newlines = path.read_bytes().replace(b"\r\n", b"\n")
    reason = (
        "its line ends are CRLF"
        if hashlib.sha256(content_with_newlines).hexdigest() == sha256
        else f"sha256 {actual_sha256[:12]}, card {sha256[:12]}"
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
    """Check that a split is valid, and that it is as its task's card says.

    Args:
        split: The split, as it was read.
        section: What the card says of the split: the number of rows, ``n``, of ``characters`` in
            each column, and of rows by subset and by class (``subsets``, ``labels``). What is None
            or empty is not checked, but ``ungraded``, the number of pairs without a gold score, is.
        gold_range: The lowest and the highest gold score that the task has; None for any.
        where: What messages of errors begin with: the task, the split and its source.

    Raises:
        DataError: The split is not valid, or differs from the card.
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
        # Some sources of a task lack its subsets, or its pairs without a gold score (ungraded).
        subsets = section.subsets if split.subsets_known else {}
        _check_fact(
            where,
            name="pairs a subset",
            actual=dict(Counter(split.subset)),
            expected=subsets or None,
        )
        # The list of ungraded sentences has two of each pair.
        n_ungraded = section.ungraded if split.ungraded_known else None
        _check_fact(
            where,
            name="pairs without a gold score",
            actual=len(split.ungraded) // 2,
            expected=n_ungraded,
        )
    if isinstance(split, LabelledSplit | LabelledPairSplit):
        counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
        # Classes without names are called by their numbers.
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
        section: What the card says of the split; a mean of None is not checked.
        gold_range: The lowest and the highest possible score; None for any.
        where: What messages of errors begin with.

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
        raise _fact_error(where, "mean gold score", f"{mean:.6f}", f"{section.mean:.6f}")


def _check_fact(where: str, name: str, actual: object, expected: object) -> None:
    """Check that a fact of a split or file, such as its number of rows, is as the card says.

    Args:
        where: What the message begins with.
        name: What is counted, such as ``rows``.
        actual: What the data have.
        expected: What the card says; None if it says nothing.

    Raises:
        DataError: They differ.
    """
    if expected not in (None, actual):
        raise _fact_error(where, name, actual, expected)


def _fact_error(where: str, name: str, actual: object, expected: object) -> DataError:
    """Return the error to raise if a fact of a split differs from its card."""
    return DataError(
        f"{where}: {name} {actual}, the card says {expected}; use the files of the release "
        "(`data=DIR`)",
        remedy=Remedy("draft"),
    )
