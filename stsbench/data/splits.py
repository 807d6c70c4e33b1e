"""What a split holds: plain records that readers make and evaluators read."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt


class _Sentences(ABC):
    """What all splits have, by their sentences."""

    @property
    @abstractmethod
    def sides(self) -> tuple[Sequence[str], ...]:
        """The sentences of each item, side by side."""

    @property
    def n(self) -> int:
        """Number of items."""
        return len(self.sides[0])

    def texts(self) -> list[str]:
        """All sentences, first sentences before second ones."""
        return list(chain.from_iterable(self.sides))


@dataclass(frozen=True, kw_only=True)
class PairSplit(_Sentences):
    """Sentence pairs with a gold score.

    ``gold`` is float64 of shape (n,); ``subset`` names the subset of each pair, ``""`` where
    the task has none; ``subsets_known`` is false where the task has subsets and this source
    does not tell them. ``ungraded`` holds the sentences of pairs that the release carries
    without a gold score: never scored, but training text of some methods; ``ungraded_known`` is
    false where this source leaves them out.
    """

    sentences1: Sequence[str]
    sentences2: Sequence[str]
    gold: npt.NDArray[np.float64]
    subset: Sequence[str]
    subsets_known: bool = True
    ungraded: Sequence[str] = ()
    ungraded_known: bool = True

    @property
    def sides(self) -> tuple[Sequence[str], ...]:
        """The sentences of each item, side by side."""
        return self.sentences1, self.sentences2

    @cached_property
    def digest(self) -> str:
        """The sha256 of pairs and gold scores in their order, whatever the subsets are called."""
        rows = zip(self.sentences1, self.sentences2, map(repr, self.gold.tolist()), strict=True)
        return _digest(rows)


@dataclass(frozen=True, kw_only=True)
class LabelledSplit(_Sentences):
    """Sentences with a class; ``labels`` is int64 of shape (n,), classes 0..c-1."""

    sentences: Sequence[str]
    labels: npt.NDArray[np.int64]
    classes: Sequence[str] = ()

    @property
    def sides(self) -> tuple[Sequence[str], ...]:
        """The sentences of each item, side by side."""
        return (self.sentences,)

    @cached_property
    def digest(self) -> str:
        """The sha256 of sentences and labels in their order."""
        return _digest(zip(self.sentences, map(str, self.labels.tolist()), strict=True))


@dataclass(frozen=True, kw_only=True)
class LabelledPairSplit(_Sentences):
    """Sentence pairs with a class; ``labels`` is int64 of shape (n,), classes 0..c-1."""

    sentences1: Sequence[str]
    sentences2: Sequence[str]
    labels: npt.NDArray[np.int64]
    classes: Sequence[str] = ()

    @property
    def sides(self) -> tuple[Sequence[str], ...]:
        """The sentences of each item, side by side."""
        return self.sentences1, self.sentences2

    @cached_property
    def digest(self) -> str:
        """The sha256 of pairs and labels in their order."""
        rows = zip(self.sentences1, self.sentences2, map(str, self.labels.tolist()), strict=True)
        return _digest(rows)


@dataclass(frozen=True, kw_only=True)
class CaptionSplit(_Sentences):
    """Captions of images: ``image_features`` (i, f) float32, ``image_of_caption`` (n,) int64."""

    captions: Sequence[str]
    image_features: npt.NDArray[np.float32]
    image_of_caption: npt.NDArray[np.int64]

    @property
    def sides(self) -> tuple[Sequence[str], ...]:
        """The sentences of each item, side by side."""
        return (self.captions,)

    @cached_property
    def digest(self) -> str:
        """The sha256 of captions, their images and the image features."""
        text = _digest(zip(self.captions, map(str, self.image_of_caption.tolist()), strict=True))
        features = hashlib.sha256(np.ascontiguousarray(self.image_features).tobytes()).hexdigest()
        return _digest([(text, features)])


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
