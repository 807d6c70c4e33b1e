"""Vocabularies of training text, and ordered text as ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.errors import TrainingError
from stsbench.training.seams import Columns


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Words by falling frequency, the special ones first; ``counts`` is (words,), 0 for a special one."""

    words: tuple[str, ...]
    counts: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls,
        sentences: Iterable[Sequence[str]],
        *,
        specials: Sequence[str] = (),
        limit: int | None = None,
        min_count: int = 1,
    ) -> Vocabulary:
        """Count words; those equally frequent stand in alphabetical order.

        Args:
            sentences: tokenised text.
            specials: words put first, whatever their frequency.
            limit: the most words there may be, the special ones among them.
            min_count: leave out what is rarer.

        Raises:
            TrainingError: no word is left.
        """
        counted = Counter(word for sentence in sentences for word in sentence)
        for special in specials:
            counted.pop(special, None)
        kept = sorted((word for word, n in counted.items() if n >= min_count), key=lambda w: (-counted[w], w))
        kept = kept[: None if limit is None else max(limit - len(specials), 0)]
        if not kept:
            raise TrainingError(f"no word occurs {min_count} times: nothing to learn from; lower min_count")
        counts = [0] * len(specials) + [counted[word] for word in kept]
        return cls(words=(*specials, *kept), counts=np.array(counts, dtype=np.int64))

    def __len__(self) -> int:
        """Number of words."""
        return len(self.words)

    def ids(self, sentences: Iterable[Sequence[str]], *, unknown: str | None = None) -> list[list[int]]:
        """Return each sentence's ids; a word that is not there is read as ``unknown``, or left out."""
        rows = {word: row for row, word in enumerate(self.words)}
        if unknown is None:
            return [[rows[word] for word in sentence if word in rows] for sentence in sentences]
        return [[rows.get(word, rows[unknown]) for word in sentence] for sentence in sentences]


class Ordered(NamedTuple):
    """Ordered text: the words of each sentence, the number of its document (n,), and the vocabulary."""

    sentences: list[list[str]]
    documents: npt.NDArray[np.int64]
    vocabulary: Vocabulary


def read_ordered(
    columns: Columns,
    split: Callable[[str], list[str]],
    *,
    specials: Sequence[str] = (),
    limit: int | None = None,
    min_count: int = 1,
) -> Ordered:
    """Read ordered text; what its vocabulary is made by, see :meth:`Vocabulary.of`.

    Text without the column ``document_id`` is one document, as the papers' code reads books.

    Raises:
        TrainingError: fewer than three sentences, or no word is left.
    """
    texts = columns["text"]
    if len(texts) < 3:
        raise TrainingError(f"ordered text of {len(texts)} sentence(s); neighbours need three at least")
    numbers = columns.get("document_id", ())
    documents = np.asarray(numbers, dtype=np.int64) if len(numbers) else np.zeros(len(texts), dtype=np.int64)
    sentences = [split(text) for text in texts]
    vocabulary = Vocabulary.of(sentences, specials=specials, limit=limit, min_count=min_count)
    return Ordered(sentences, documents, vocabulary)


def centres(documents: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The sentences that have a neighbour on either side in their own document."""
    inner = (documents[1:-1] == documents[:-2]) & (documents[1:-1] == documents[2:])
    return np.flatnonzero(inner) + 1
