"""Pair scorers: what gives two sentences a score of its own, as the encoders of pairs.

Engine and store take a pair for a text, which :func:`join_pair` makes, and the row of numbers that
they keep for it is its score. So pairs are deduplicated, batched, stored and forecast as sentences
are.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import EncoderError
from stsbench.core.wording import PAIR_MARK
from stsbench.encoders.base import Embeddings, FloatArray
from stsbench.encoders.engine.drift import PROBE_SENTENCES
from stsbench.encoders.engine.embed import to_numeric_array
from stsbench.encoders.metadata import check_sentences

Order = Literal["given", "both"]
"""The order of the two sentences: that of the data, or the mean of the scores of both orders."""
ORDER_NOTES = {
    "given": "scores pairs itself, without embeddings: the sentences in the order of the data",
    "both": "scores pairs itself, without embeddings: the mean over both orders of the sentences",
}
"""The note of each order for the readers of a score."""


def join_pair(first: str, second: str) -> str:
    """Return one text for two sentences, which is that of no other two."""
    return PAIR_MARK + json.dumps([first, second], ensure_ascii=False)


def join_pairs_of_items(sides: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return one text for each pair of an item's first sentence with another of its sentences.

    Args:
        sides: Two or more columns, each with one sentence of each of n items.

    Returns:
        For each column but the first a list of n texts, each of which :func:`join_pair` makes of
        the item's first sentence and its sentence in this column.
    """
    first_column, *other_columns = sides
    return [list(map(join_pair, first_column, column)) for column in other_columns]


def split_pair(text: str) -> list[str]:
    """Return the two sentences of a joined pair."""
    sentences: list[str] = json.loads(text.removeprefix(PAIR_MARK))
    return sentences


def pair_scores(rows: Embeddings | FloatArray) -> npt.NDArray[np.float64]:
    """Return the scores of pairs, (n,), from the rows of :func:`scores_to_rows`."""
    scores: npt.NDArray[np.float64] = np.asarray(rows).sum(axis=1, dtype=np.float64)
    return scores


def scores_to_rows(scores: npt.NDArray[np.float64]) -> FloatArray:
    """Return scores (n,) as rows (n, 2) of float32, whose sums are the scores.

    A row holds the score rounded to float32, and the difference that was rounded off. So about 48
    bits of the score are kept, and different scores of float64 do not become equal.
    """
    # A score that float32 cannot hold becomes infinite, and is refused by the engine.
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = scores.astype(np.float32)
        return np.stack([rounded, scores - rounded], axis=1).astype(np.float32)


def check_scores(returned: object, name: str, n_pairs: int) -> npt.NDArray[np.float64]:
    """Return the scores of n pairs, (n,), after a check that there is one number per pair.

    Args:
        returned: The value that a scorer returned for the pairs.
        name: The name of the scorer, for messages.
        n_pairs: The number n of pairs.

    Raises:
        EncoderError: The value is something else.
    """
    expected = f"an array ({n_pairs},) of a number for each pair" if n_pairs > 1 else "a number"
    scores = to_numeric_array(returned, name, expected=expected)
    if scores.size != n_pairs:
        raise EncoderError(
            f"encoder '{name}' returned an array of shape {scores.shape}, not {expected}"
        )
    return scores.astype(np.float64).reshape(n_pairs)


class PairScorer:
    """What scores two sentences itself: a subclass has a name and :meth:`score_pairs`, no more.

    It is an encoder whose texts are joined pairs, and whose rows hold their scores.

    Attributes:
        name: The name in results.
        fingerprint: A text that changes if and only if scores can change; None if none may be
            stored.
        order: ``given`` for the order of the data, ``both`` for the mean over both orders.
        prompt: The text before every sentence; None if it is unknown.
    """

    name: str
    fingerprint: str | None = None
    order: Order = "given"
    prompt: str | None = None
    probe_texts = tuple(map(join_pair, PROBE_SENTENCES, reversed(PROBE_SENTENCES)))
    """The pairs of the check for drift, as many as there are probe sentences."""

    @property
    def notes(self) -> list[str]:
        """The note that it scores pairs itself, with the order of the sentences."""
        return [ORDER_NOTES[self.order]]

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> object:
        """Return the score of each first sentence with the second one at its place, (n,)."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Return the scores of pairs of sentences as rows (n, 2); the sum of a row is the score.

        Args:
            texts: One text per pair, as :func:`join_pair` makes it of two sentences.

        Raises:
            EncoderError: A text is no such pair, or :meth:`score_pairs` does not return one number
                per pair.
        """
        check_sentences(texts)
        # The mark is the beginning of each joined pair.
        if not all(text.startswith(PAIR_MARK) for text in texts):
            raise EncoderError(f"'{self.name}' scores pairs of sentences and has no embeddings")
        pairs = list(map(split_pair, texts))
        first = [pair[0] for pair in pairs]
        second = [pair[1] for pair in pairs]
        scores = check_scores(self.score_pairs(first, second), self.name, len(pairs))
        if self.order == "both":
            reverse_scores = check_scores(self.score_pairs(second, first), self.name, len(pairs))
            scores = (scores + reverse_scores) / 2
        return scores_to_rows(scores)
