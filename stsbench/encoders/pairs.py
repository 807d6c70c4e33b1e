"""Pair scorers: what gives two sentences a score of its own, as the encoders of pairs.

Engine and store take a pair for a text, which :func:`join_pair` makes, and the row of numbers that
they keep for it is its score. So pairs are deduplicated, batched, stored and forecast as sentences
are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import EncoderError
from stsbench.core.wording import PAIR_MARK, format_repr
from stsbench.encoders.base import Embeddings, FloatArray, PairScorer
from stsbench.encoders.engine.drift import PROBE_SENTENCES
from stsbench.encoders.engine.embed import as_array
from stsbench.encoders.metadata import (
    EncoderMetadata,
    check_attribute,
    check_sentences,
    read_notes,
)

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


def pairs_of(sides: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the joined pairs of each item's first sentence with each of its others.

    Args:
        sides: The columns of sentences of n items, of which the first is paired with each other.

    Returns:
        A list of n texts for each column but the first.
    """
    first_column, *other_columns = sides
    return [list(map(join_pair, first_column, column)) for column in other_columns]


def split_pairs(texts: Iterable[str], name: str) -> tuple[list[str], list[str]]:
    """Return the first and the second sentences of joined pairs.

    Args:
        texts: The joined pairs.
        name: The name of the pair scorer, for the message.

    Raises:
        EncoderError: A text is a single sentence, to be embedded.
    """
    first_sentences: list[str] = []
    second_sentences: list[str] = []
    for text in texts:
        if not text.startswith(PAIR_MARK):
            raise EncoderError(f"'{name}' scores pairs of sentences and has no embeddings")
        first, second = json.loads(text[len(PAIR_MARK) :])
        first_sentences.append(first)
        second_sentences.append(second)
    return first_sentences, second_sentences


def pair_scores(rows: Embeddings | FloatArray) -> npt.NDArray[np.float64]:
    """Return the scores of pairs, (n,), from the rows that an encoder of pairs gives, (n, d)."""
    return np.asarray(rows).sum(axis=1, dtype=np.float64)


class PairEncoder:
    """A pair scorer as an encoder, whose texts are joined pairs and whose rows hold their scores.

    Each way to score pairs is a subclass, with :meth:`score_pairs`.
    """

    name: str
    fingerprint: str | None = None
    order: Order = "given"
    prompt: str | None = None
    probe_texts = tuple(
        join_pair(*pair) for pair in pairwise(PROBE_SENTENCES + PROBE_SENTENCES[:1])
    )
    """The pairs of the check for drift, as many as there are probe sentences."""

    @property
    def notes(self) -> list[str]:
        """The note that it scores pairs itself, with the order of the sentences."""
        return [ORDER_NOTES[self.order]]

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> object:
        """Return the score of each first sentence with the second one at its place, (n,)."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> FloatArray:
        """Return the scores of joined pairs, (n, 2): rounded to float32, and what was rounded off.

        The sum of a row has some 48 bits of the score, so that scores of float64 make no ties.

        Raises:
            EncoderError: A text is no pair, or what is returned is not one number a pair.
        """
        check_sentences(texts)
        first, second = split_pairs(texts, self.name)
        scores = self._check_scores(self.score_pairs(first, second), len(texts))
        if self.order == "both":
            scores = (scores + self._check_scores(self.score_pairs(second, first), len(texts))) / 2
        # A score that float32 cannot hold becomes infinite, and is refused by the engine.
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = scores.astype(np.float32)
            return np.stack([rounded, scores - rounded], axis=1).astype(np.float32)

    def _check_scores(self, returned: object, n: int) -> npt.NDArray[np.float64]:
        """Return scores as float64 (n,); EncoderError if they are not one number a pair."""
        scores = as_array(returned, self.name)
        if scores.shape not in ((n,), (n, 1)):
            raise EncoderError(
                f"'{self.name}' returned shape {scores.shape} for {n} pairs; "
                "it must return one score a pair"
            )
        return scores.reshape(n).astype(np.float64)


class ScorerEncoder(PairEncoder):
    """A user's own :class:`PairScorer` as an encoder of pairs."""

    def __init__(self, scorer: PairScorer) -> None:
        """Take over the scorer's name, fingerprint and metadata.

        Raises:
            EncoderError: One of them, or its ``order``, is not valid.
        """
        self.scorer = scorer
        subject = f"the pair scorer {type(scorer).__name__}"
        self.name = check_attribute(scorer, "name", scorer.name, subject)
        self.fingerprint = check_attribute(scorer, "fingerprint", scorer.fingerprint, subject)
        for field in fields(EncoderMetadata):
            vars(self)[field.name] = getattr(scorer, field.name, None)
        order = getattr(scorer, "order", "given")
        if order not in ORDER_NOTES:
            raise EncoderError(f"{subject}: 'order' is given or both; it is {format_repr(order)}")
        self.order = cast(Order, order)

    @property
    def notes(self) -> list[str]:
        """The note that it scores pairs itself, and the scorer's own notes."""
        return [*super().notes, *read_notes(self.scorer)]

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> object:
        """Return the scorer's score of each pair, (n,)."""
        return self.scorer.score_pairs(first, second)


def as_encoder(candidate: object) -> object:
    """Return a pair scorer as an encoder of pairs, and anything else as it is."""
    is_scorer = isinstance(candidate, PairScorer) and not hasattr(candidate, "encode")
    return ScorerEncoder(candidate) if is_scorer and not isinstance(candidate, type) else candidate
