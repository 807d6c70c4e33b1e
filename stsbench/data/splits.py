"""What a split holds: plain records that readers make and evaluators read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import ClassVar

import numpy as np
import numpy.typing as npt


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
        return _digest(zip(*self.sides, map(repr, getattr(self, self.answer).tolist()), strict=True))


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
    """Hash rows of strings."""
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
