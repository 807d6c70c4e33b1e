"""Whether what a reader gives out has the form that evaluators rely on: ours, and a user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stsbench.data.splits import CaptionSplit, LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.errors import DataError


def check_form(split: object, *, where: str) -> None:
    """Check types, lengths and ranges of a split's columns.

    Args:
        split: what a reader returned.
        where: the split and its source, for the message.

    Raises:
        DataError: no split, or one with a column that is too short, of a wrong type, not finite or out of range.
    """
    check = next((check for kind, check in _CHECKS.items() if isinstance(split, kind)), None)
    if check is None:
        kinds = ", ".join(kind.__name__ for kind in _CHECKS)
        raise DataError(f"{where}: the reader returned a {type(split).__name__}, a split is one of {kinds}")
    check(split, where)


def _check_pairs(split: PairSplit, where: str) -> None:
    _check_sentence_pairs(split, where)
    _check_array(split.gold, where, "gold", np.float64, (split.n,))
    _check_rows(np.isfinite(split.gold), split.gold, where, "gold score", "a finite number")
    _check_texts(split.subset, where, "subset", split.n)
    _check_texts(split.ungraded, where, "ungraded")


def _check_labelled(split: LabelledSplit, where: str) -> None:
    _check_texts(split.sentences, where, "sentences")
    _check_labels(split, where)


def _check_labelled_pairs(split: LabelledPairSplit, where: str) -> None:
    _check_sentence_pairs(split, where)
    _check_labels(split, where)


def _check_captions(split: CaptionSplit, where: str) -> None:
    _check_texts(split.captions, where, "captions")
    features = split.image_features
    images = len(features) if isinstance(features, np.ndarray) and features.ndim == 2 else 0
    size = features.shape[1] if images else 0
    _check_array(features, where, "image_features", np.float32, (images, size))
    finite = np.isfinite(features).all(axis=1)
    if not finite.all():
        raise DataError(f"{where}: the features of image {np.argmin(finite)} are not finite")
    _check_array(split.image_of_caption, where, "image_of_caption", np.int64, (split.n,))
    known = (split.image_of_caption >= 0) & (split.image_of_caption < images)
    _check_rows(known, split.image_of_caption, where, "image", f"one of the {images} images, counted from 0")


_CHECKS: Mapping[type, Callable[[Any, str], None]] = {
    PairSplit: _check_pairs,
    LabelledSplit: _check_labelled,
    LabelledPairSplit: _check_labelled_pairs,
    CaptionSplit: _check_captions,
}


def _check_sentence_pairs(split: PairSplit | LabelledPairSplit, where: str) -> None:
    _check_texts(split.sentences1, where, "sentences1")
    _check_texts(split.sentences2, where, "sentences2", split.n)


def _check_labels(split: LabelledSplit | LabelledPairSplit, where: str) -> None:
    _check_array(split.labels, where, "labels", np.int64, (split.n,))
    _check_texts(split.classes, where, "classes")
    if len(set(split.classes)) < len(split.classes):
        raise DataError(f"{where}: a class is named twice ({', '.join(split.classes)[:200]})")
    known = split.labels >= 0
    if split.classes:
        known &= split.labels < len(split.classes)
    _check_rows(known, split.labels, where, "label", "the place of a class, counted from 0")


def _check_texts(values: object, where: str, name: str, n: int | None = None) -> None:
    """Check a column of text: its length, and that all of it can be written as UTF-8."""
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
        row = next(row for row, value in enumerate(values, 1) if not _is_unicode(value))
        raise DataError(f"{where}: {name}, row {row}: holds half a character (a lone surrogate)") from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
