"""The interface of evaluators: they get splits and embeddings and return scores.

They load, write and print nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import DataError, ProtocolError
from stsbench.data.splits import Split
from stsbench.encoders.base import Embed, EmbeddingRows, iter_blocks
from stsbench.encoders.pairs import join_pairs_of_items, pair_scores
from stsbench.numbers.dependence import DOMINANT_COMPONENT_NOTE, read_dependence
from stsbench.numbers.intervals import correlation_interval
from stsbench.numbers.similarity import SIMILARITIES, Similarities, are_bits
from stsbench.numbers.statistics import item_weights, weigh_subsets

# Types of protocols' fields; a user's values are checked against them when they are read.
PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]
BaseSeed = Annotated[int, Meta(ge=0, lt=1 << 31)]
"""A seed to which that of the evaluation is added; numpy takes sums below 2 to the 32."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of one task; each is a plain float, never times 100.

    Attributes:
        score: The number that the protocol names.
        scores: All numbers by name.
        per_subset: The numbers of each subset, or of each class.
        interval: The 95% interval of ``score``.
        interval_method: How the interval was computed.
        per_item: Columns of length ``n``: the values that paired tests need.
        n: The number of scored items.
        zero_vectors: The number of embeddings, or of pairs, that are zero vectors.
        notes: Facts that a reader of the score must know, one sentence each.
    """

    score: float
    scores: Mapping[str, float]
    per_subset: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    interval: tuple[float, float]
    interval_method: str
    per_item: Mapping[str, npt.NDArray[np.generic] | list[str]]
    n: int
    zero_vectors: int = 0
    notes: tuple[str, ...] = ()


ItemColumns = Mapping[str, npt.NDArray[Any] | list[str]]
"""Per-item columns, each of length n."""


class Evaluator(Protocol):
    """Scores one task; made with its protocol, called with the task's splits."""

    protocol: Any
    """A dataclass whose fields a Result records.

    A class with ``ACCEPTS_PAIR_SCORES = True`` has a protocol with a field ``similarity``, which is
    None if a pair scorer is scored: ``embed`` then returns the scores of joined pairs.
    """

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Score the embeddings of these splits."""

    def recompute(self, items: ItemColumns) -> Scores:
        """Compute the scores from per-item columns alone, without embeddings.

        The columns may also be those of some of the items. Scores that depend on training items or
        on other splits are not among the returned ones. A user's own evaluator may lack this
        method; then its scores are not verified.

        A score that the items do not determine, because it was rounded or averaged over folds,
        needs a method ``score_range(items, split)`` that returns the least and the greatest score
        that the items allow.

        Args:
            items: The columns of a Result's file of items, each of length n, by name.
        """


SplitT = TypeVar("SplitT", bound=Split)


def require_splits(
    splits: Mapping[str, Split], split_type: type[SplitT], evaluator: str, scored_items: str
) -> dict[str, SplitT]:
    """Return the splits train, validation and test, in this order.

    Args:
        splits: The splits of a task by name.
        split_type: The class that each split must have, such as ``PairSplit``.
        evaluator: The evaluator's name, for messages.
        scored_items: The items that the evaluator scores, in words, for messages.

    Raises:
        DataError: The splits are others than these three, or one is of another class.
    """
    subject = f"the evaluator '{evaluator}'"
    if set(splits) != {"train", "validation", "test"}:
        raise DataError(
            f"{subject} needs the splits train, validation and test, not {sorted(splits)}"
        )
    ordered_splits = {name: splits[name] for name in ("train", "validation", "test")}
    if not all(isinstance(split, split_type) for split in ordered_splits.values()):
        raise DataError(f"{subject} scores {scored_items}")
    return cast(dict[str, SplitT], ordered_splits)


class EmbeddingChecks(NamedTuple):
    """Checks of a set of embeddings."""

    zero_vectors: int
    """The number of embeddings that are zero vectors."""
    is_constant: bool
    """All embeddings are the same."""


def inspect_embeddings(rows: EmbeddingRows) -> EmbeddingChecks:
    """Count zero vectors among embeddings (n, d), and compare all embeddings with the first one.

    The embeddings are read block by block, because they may be larger than the memory.

    Returns:
        The number of zero vectors, and whether all embeddings are the same (also true if there are
        none).
    """
    zero_vectors = 0
    is_constant = True
    first_row = None
    for block in iter_blocks(rows):
        # It is set at the first block, and stays for all others.
        first_row = block[:1] if first_row is None else first_row
        has_nonzero_value = block.any(axis=1)
        zero_vectors += int((~has_nonzero_value).sum())
        is_constant = is_constant and bool((block == first_row).all())
    return EmbeddingChecks(zero_vectors, is_constant)


def compare_sides(
    embeddings: EmbeddingRows, n: int, names: Sequence[str], *, side: int = 1
) -> list[Similarities]:
    """Return similarities of each item's first sentence with one of its other sentences.

    An item is two or more sentences, such as a pair. The embeddings are read block by block, once
    for all similarities, because they may be larger than the memory. For ``hamming`` all are read
    at once before, to see whether they are bits.

    Args:
        embeddings: The embeddings of the first sentences of all items, then those of the second
            ones, and so on: row 0 and row n are of one item.
        n: The number of items.
        names: The names of the similarities to compute, such as ``cosine``: keys of
            ``SIMILARITIES``, a table of functions.
        side: The position of the other sentence in its item: 1 for the second sentence.

    Returns:
        For each name the similarity of each item, (n,), and whether one of the two embeddings is a
        zero vector, (n,).

    Raises:
        ProtocolError: ``hamming`` is requested, and the embeddings are not bits: they have more
            than two different numbers.
    """
    if "hamming" in names and not are_bits(np.asarray(embeddings)):
        raise ProtocolError(
            "similarity 'hamming' counts bits that differ",
            hint="make the embeddings bits: `params=embeddings=binary`",
        )
    blocks = zip(
        iter_blocks(embeddings, stop=n),
        iter_blocks(embeddings, side * n, (side + 1) * n),
        strict=True,
    )
    # The list of blocks begins with an empty one, so that it can be joined if there are no items.
    empty = Similarities(np.empty(0), np.empty(0, dtype=bool))
    blocks_by_name = {name: [empty] for name in names}
    for first_rows, other_rows in blocks:
        first_rows = first_rows.astype(np.float32, copy=False)
        other_rows = other_rows.astype(np.float32, copy=False)
        for name, similarity_blocks in blocks_by_name.items():
            similarity_blocks.append(SIMILARITIES[name](first_rows, other_rows))
    # Each field of the blocks, the values and the marks of zero vectors, is joined over blocks.
    return [
        Similarities(*map(np.concatenate, zip(*blocks_by_name[name], strict=True)))
        for name in names
    ]


def read_pair_scores(split: Split, embed: Embed) -> list[Similarities]:
    """Return a pair scorer's scores of each item's first sentence with each of its other sentences.

    A pair scorer, such as a cross-encoder, reads two sentences joined to one text and returns their
    similarity; it has no embeddings of single sentences.

    Args:
        split: Items of two sentences or more.
        embed: The pair scorer: returns the scores of joined pairs in place of embeddings.

    Returns:
        For each sentence of an item but the first: the scores of the n items, none of which counts
        as a zero vector.
    """
    similarities = []
    # For each further sentence of an item a list of n texts, joined with the first sentences.
    for joined_pairs in join_pairs_of_items(split.sides):
        # ``embed`` returns a row of numbers per pair, whose sum is the score.
        scores = pair_scores(embed(joined_pairs))
        has_zero_vector = np.zeros(len(joined_pairs), dtype=bool)
        similarities.append(Similarities(scores, has_zero_vector))
    return similarities


def score_pairs(
    items: ItemColumns,
    x: npt.NDArray[np.float64],
    *,
    metric: str,
    aggregation: str = "all",
    score: float,
    notes: Sequence[str] = (),
    **fields: Any,  # noqa: ANN401
) -> Scores:
    """Return a Scores object for sentence pairs, with the 95% interval of their score.

    The score is the correlation of values of the pairs with their gold scores, the similarities
    that people gave them.

    Args:
        items: The per-item columns by name, each of length n, with ``gold`` and perhaps
            ``subset``.
        x: The values whose correlation with ``gold`` is the score, (n,).
        metric: The name of the correlation, such as ``spearman``.
        aggregation: How the subsets' correlations make the score: ``all`` is one correlation over
            all pairs, ``mean`` and ``wmean`` are means over subsets.
        score: The correlation, computed by the caller.
        notes: Sentences that a reader of the score must know. One is added if a single group of
            items that share sentences dominates the interval.
        fields: Further fields of :class:`Scores`.
    """
    gold = np.asarray(items["gold"], dtype=np.float64)
    n = len(x)
    subsets = list(map(str, items.get("subset", [""] * n)))
    # The items of each subset that is correlated apart, and its weight in the score.
    subset_weights = weigh_subsets(subsets, aggregation)
    # Which items share a sentence, so that they are not independent.
    dependence = read_dependence(items, n)
    interval = correlation_interval(
        score, metric, values=x, gold=gold, subset_weights=subset_weights, dependence=dependence
    )
    # A component is a group of items that are connected by shared sentences. It dominates with more
    # than half of the weight of all items.
    if dependence.has_dominant_component(item_weights(subset_weights, n)):
        notes = (*notes, DOMINANT_COMPONENT_NOTE)
    return Scores(
        score=score,
        interval=interval.bounds,
        interval_method=interval.method,
        per_item=items,
        n=n,
        notes=tuple(notes),
        **fields,
    )
