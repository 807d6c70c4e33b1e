"""Contrast sets: whether the right one of several sentences is the most similar.

Each item is a sentence, one that means the same, and one or several that do not, though they share
most of its words. SemAntoNeg (Vahtola, Creutz and Tiedemann 2022,
https://aclanthology.org/2022.blackboxnlp-1.20) has three candidates, triplets have two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from stsbench.core.errors import DataError, ProtocolError, suggest
from stsbench.core.wording import format_count
from stsbench.data.splits import ContrastSplit, Split
from stsbench.encoders.base import Embed
from stsbench.evaluators.base import ItemColumns, Scores, compare_sides, read_pair_scores
from stsbench.numbers.dependence import read_dependence, sentence_columns
from stsbench.numbers.intervals import SHARE_INTERVAL_METHOD, share_interval
from stsbench.numbers.similarity import DEFAULT_SIMILARITY, SIMILARITIES

TIE_TOLERANCE = 1e-12
"""Similarities that differ by no more are tied: cosines of equal vectors differ by rounding."""


@dataclass(frozen=True, kw_only=True)
class ContrastProtocol:
    """How the sentences of an item are compared.

    Attributes:
        name: The protocol's name.
        metric: The score: the share of items in the right order.
        similarity: One of ``SIMILARITIES``; None for a pair scorer, whose scores are the
            similarities.
    """

    name: str
    metric: Literal["accuracy"] = "accuracy"
    similarity: str | None = DEFAULT_SIMILARITY

    def __post_init__(self) -> None:
        """Raise ProtocolError if the similarity is not in its table."""
        if self.similarity is not None and self.similarity not in SIMILARITIES:
            raise ProtocolError(
                f"protocol '{self.name}': similarity: '{self.similarity}' is not one of "
                f"{', '.join(SIMILARITIES)}{suggest(self.similarity, SIMILARITIES)}"
            )


@dataclass(frozen=True, kw_only=True)
class ContrastEvaluator:
    """Scores the share of items whose positive is more similar to the anchor than all negatives."""

    PROTOCOLS: ClassVar[Mapping[str, ContrastProtocol]] = {
        "contrast": ContrastProtocol(name="contrast")
    }
    ONE_SPLIT: ClassVar[bool] = True
    ACCEPTS_PAIR_SCORES: ClassVar[bool] = True

    protocol: ContrastProtocol

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Score items of an anchor, a positive (it means the same) and one or more negatives.

        An item is right if its positive is more similar to the anchor than every negative; if it is
        only as similar as one, a tie, it is wrong. Notes count ties and items with a zero vector.

        Args:
            splits: One ContrastSplit, under any name.
            embed: Embeds its sentences, or returns the scores of its pairs.
            seed: Not used: nothing is drawn.

        Returns:
            The share of right items as score, and per item whether it is right.

        Raises:
            DataError: The split is no ContrastSplit.
            ProtocolError: The protocol's similarity needs bits.
        """
        (split,) = splits.values()
        if not isinstance(split, ContrastSplit):
            raise DataError("the evaluator 'contrast' scores anchors with positives and negatives")
        if self.protocol.similarity is None:
            positive, *negatives = read_pair_scores(split, embed)
        else:
            # The sentences of side 0, then those of side 1, and so on.
            embeddings = embed(split.texts())
            # Side 0 are the anchors, side 1 the positives, and further sides one negative each.
            # compare_sides returns a list with an element for each similarity, here one.
            positive, *negatives = (
                compare_sides(embeddings, split.n, [self.protocol.similarity], side=side)[0]
                for side in range(1, len(split.sides))
            )
        # By how much the positive is more similar than each negative: (n_negatives, n_items).
        margins = np.array([positive.values - negative.values for negative in negatives])
        is_above_negative = margins > TIE_TOLERANCE
        is_correct = is_above_negative.all(axis=0)
        columns = {"correct": np.asarray(is_correct, dtype=np.int64)}
        if len(negatives) > 1:
            for number, is_above in enumerate(is_above_negative, start=1):
                columns[f"correct{number}"] = is_above.astype(np.int64)
        # The score is computed from these columns alone, so that it can be checked later by them;
        # the further ones tell which items share a sentence. ``recompute`` makes no notes.
        scores = self.recompute({**columns, **sentence_columns(*split.sides)})
        has_zero_vector = np.any([side.has_zero_vector for side in (positive, *negatives)], axis=0)
        zero_vectors = int(has_zero_vector.sum())
        # No negative is more similar than the positive, but one is as similar.
        is_tied = ~is_correct & (margins >= -TIE_TOLERANCE).all(axis=0)
        notes = []
        if zero_vectors:
            notes.append(f"{format_count(zero_vectors, 'item')} with a zero vector: similarity 0")
        n_tied = int(is_tied.sum())
        if n_tied:
            notes.append(f"{format_count(n_tied, 'tie')}, counted as wrong")
        return replace(scores, zero_vectors=zero_vectors, notes=tuple(notes))

    def recompute(self, items: ItemColumns) -> Scores:
        """Compute the share of items whose positive is more similar than every negative.

        Args:
            items: Columns of length n: ``correct``, 1 for an item in this order, else 0; with
                several negatives also ``correct1``, ``correct2`` and so on, the same for each
                negative alone; and the columns that tell which items share a sentence.

        Returns:
            The score is the share. ``scores`` also has the share for each negative alone, such as
            ``accuracy.1``, and ``chance``: the share that random similarities have.
        """
        correct = np.asarray(items["correct"], dtype=np.float64)
        n = len(correct)
        share_by_negative = {
            f"accuracy.{name.removeprefix('correct')}": float(np.mean(np.asarray(column)))
            for name, column in items.items()
            if name.startswith("correct") and name != "correct"
        }
        # A single negative has no column of its own.
        n_negatives = len(share_by_negative) or 1
        share = float(correct.mean())
        # Which items share a sentence, so that they are not independent.
        dependence = read_dependence(items, n)
        return Scores(
            score=share,
            scores={"accuracy": share, **share_by_negative, "chance": 1 / (1 + n_negatives)},
            interval=share_interval(correct, dependence),
            interval_method=SHARE_INTERVAL_METHOD,
            per_item=items,
            n=n,
        )
