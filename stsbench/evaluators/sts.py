"""Semantic textual similarity: the correlation of similarities with gold scores.

Three aggregations over a task's subsets are computed. Which papers report which: SimCSE
(arXiv 2104.08821), appendix B, table B.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from stsbench.core.errors import DataError, EncoderError, ProtocolError, suggest
from stsbench.core.wording import format_count
from stsbench.data.splits import PairSplit, Split
from stsbench.encoders.base import Embed
from stsbench.evaluators.base import (
    ItemColumns,
    Scores,
    compare_sides,
    inspect_embeddings,
    read_pair_scores,
    score_pairs,
)
from stsbench.numbers.dependence import sentence_columns
from stsbench.numbers.similarity import (
    DEFAULT_SIMILARITY,
    FURTHER_CORRELATIONS,
    SIMILARITIES,
    Similarities,
)
from stsbench.numbers.statistics import (
    AGGREGATIONS,
    CORRELATIONS,
    Float64Array,
    IntArray,
    spearman,
    subset_indices,
)


@dataclass(frozen=True, kw_only=True)
class StsProtocol:
    """How the similarities of pairs are computed and correlated with their gold scores.

    Attributes:
        name: The protocol's name.
        metric: The correlation that is the score, one of ``CORRELATIONS``.
        aggregation: How the subsets make the score, one of ``AGGREGATIONS``. ``all``: one
            correlation over all subsets joined; ``mean`` and ``wmean``: the plain mean of the
            subsets' correlations, and the mean weighted by their numbers of pairs.
        similarity: One of ``SIMILARITIES``. It is computed on the embeddings unchanged: on the
            integers if they are integers. None for a pair scorer, whose scores are the
            similarities.
    """

    name: str
    metric: str
    aggregation: str
    similarity: str | None = DEFAULT_SIMILARITY

    def __post_init__(self) -> None:
        """Check that metric, aggregation and similarity name functions that exist.

        Each field has a table of functions by name. The similarity alone may be None, for an
        encoder that scores pairs itself. ``suggest`` returns the end of the message: names of the
        table that are spelled like the wrong one, or nothing.

        Raises:
            ProtocolError: A name is not in its table.
        """
        tables = {"metric": CORRELATIONS, "aggregation": AGGREGATIONS, "similarity": SIMILARITIES}
        for field, table in tables.items():
            value = getattr(self, field)
            is_pair_scorer = field == "similarity" and value is None
            if value not in table and not is_pair_scorer:
                raise ProtocolError(
                    f"protocol '{self.name}': {field}: '{value}' is not one of "
                    f"{', '.join(table)}{suggest(value, table)}"
                )


PROTOCOLS = {
    # SBERT, SimCSE, ConSERT, SG-OPT, MTEB: one Spearman per year.
    "simcse": StsProtocol(name="simcse", metric="spearman", aggregation="all"),
    # BERT-flow and BERT-whitening.
    "wmean": StsProtocol(name="wmean", metric="spearman", aggregation="wmean"),
    # DeCLUTR.
    "mean": StsProtocol(name="mean", metric="spearman", aggregation="mean"),
    # The official rankings of SemEval 2013 to 2016.
    "semeval": StsProtocol(name="semeval", metric="pearson", aggregation="wmean"),
}
TIE_TOLERANCE = 1e-12
"""Similarities in a range smaller than this count as equal.

Embeddings that differ only in length have cosines that differ by rounding.
"""


@dataclass(frozen=True, kw_only=True)
class StsEvaluator:
    """Scores one split of pairs."""

    PROTOCOLS: ClassVar[Mapping[str, StsProtocol]] = PROTOCOLS
    ONE_SPLIT: ClassVar[bool] = True
    ACCEPTS_PAIR_SCORES: ClassVar[bool] = True

    protocol: StsProtocol

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Correlate the similarities of sentence pairs with the scores that people gave them.

        Args:
            splits: One PairSplit, under any name.
            embed: Embeds its sentences. If the protocol's similarity is None: returns the scores of
                its pairs, which are the similarities.
            seed: Not used: nothing is drawn.

        Returns:
            The score by the protocol's correlation and all other correlations. The per-item columns
            are ``similarity``, ``gold``, ``subset``, the further similarities, and columns that
            identify both sentences.

        Raises:
            DataError: The split is no PairSplit, or its gold scores are all the same.
            EncoderError: Every embedding or every similarity is the same.
            ProtocolError: The protocol needs subsets, which the data's source does not record, or
                its similarity needs bits.
        """
        (split,) = splits.values()
        if not isinstance(split, PairSplit):
            raise DataError("the evaluator 'sts' scores sentence pairs with gold scores")
        if not split.subsets_known and self._averages_over_subsets:
            raise ProtocolError(
                f"protocol '{self.protocol.name}' averages over subsets, and this source does not "
                "tell the subsets",
                hint="use protocol 'simcse', or a data folder (`data`) with the subsets",
            )
        if self.protocol.similarity is None:
            # One result for each sentence of an item but the first, here the second.
            (pair_scores,) = read_pair_scores(split, embed)
            similarities = {"similarity": pair_scores}
        else:
            # Beside the protocol's similarity, euclidean and manhattan are computed to be reported.
            names = [self.protocol.similarity, *FURTHER_CORRELATIONS.values()]
            column_names = ["similarity", *FURTHER_CORRELATIONS.values()]
            computed = _compute_similarities(split, embed, names)
            similarities = dict(zip(column_names, computed, strict=True))
        columns: ItemColumns = {
            "subset": list(split.subset),
            "gold": split.gold,
            **{name: similarity.values for name, similarity in similarities.items()},
        }
        # The columns of sentences tell which pairs share one.
        result = self.recompute({**columns, **sentence_columns(*split.sides)})
        scores = result.scores
        notes = list(result.notes)
        if not split.subsets_known:
            # Only the correlations over all pairs.
            scores = {name: value for name, value in scores.items() if name.endswith(".all")}
            notes.insert(
                0, "the data's source does not tell subsets: only the aggregation 'all' is offered"
            )
        zero_vectors = int(similarities["similarity"].has_zero_vector.sum())
        if zero_vectors:
            notes.insert(
                0, f"{format_count(zero_vectors, 'pair')} with a zero vector: similarity 0"
            )
        return replace(result, scores=scores, zero_vectors=zero_vectors, notes=tuple(notes))

    @property
    def _averages_over_subsets(self) -> bool:
        """Whether the score is a mean over subsets, not one correlation over all pairs."""
        return AGGREGATIONS[self.protocol.aggregation] is not None

    def recompute(self, items: ItemColumns) -> Scores:
        """Correlate the columns ``similarity`` and ``gold``, in each ``subset`` and over all pairs.

        Args:
            items: Columns of length n: these three, perhaps further similarities, and those that
                tell which pairs share sentences.

        Returns:
            The score by the protocol's metric and aggregation. ``scores`` has all metrics by all
            aggregations, such as ``spearman.wmean``, and a correlation for each further similarity,
            such as ``euclidean_spearman.all``. A subset without a correlation is in the notes.

        Raises:
            DataError: All pairs have the same gold score. If the protocol averages over subsets:
                all pairs of a subset have.
            EncoderError: All pairs have the same similarity, or all pairs of such a subset.
        """
        similarity, gold = (
            np.asarray(items[name], dtype=np.float64) for name in ("similarity", "gold")
        )
        # FURTHER_CORRELATIONS: the column of each further similarity (euclidean, manhattan) by the
        # name of its score.
        further = {
            score_name: np.asarray(items[name], dtype=np.float64)
            for score_name, name in FURTHER_CORRELATIONS.items()
            if name in items
        }
        rows_by_subset = subset_indices(list(map(str, items["subset"])))
        per_subset, notes = self._correlate_subsets(similarity, gold, further, rows_by_subset)
        correlations_of_all: Mapping[str, float] = {}
        if len(per_subset) == 1:
            # A single subset holds all pairs, so its correlations need not be computed again.
            (correlations_of_all,) = per_subset.values()
        # Several subsets, or a single one without a correlation: that raises the error again.
        if not correlations_of_all:
            correlations_of_all = {
                **_correlations(similarity, gold, subset=""),
                **_further_correlations(further, gold, np.arange(len(gold))),
            }
        scores = _aggregate(correlations_of_all, rows_by_subset, per_subset)
        score_name = f"{self.protocol.metric}.{self.protocol.aggregation}"
        # A single subset is the same as the task, whose scores are reported anyway.
        reported_subsets = {}
        if len(rows_by_subset) > 1:
            reported_subsets = {
                subset: {**correlations, "n": len(rows_by_subset[subset])}
                for subset, correlations in per_subset.items()
            }
        # This adds the 95% interval of the score.
        return score_pairs(
            items,
            similarity,
            metric=self.protocol.metric,
            aggregation=self.protocol.aggregation,
            score=scores[score_name],
            scores=scores,
            per_subset=reported_subsets,
            notes=notes,
        )

    def _correlate_subsets(
        self,
        similarity: Float64Array,
        gold: Float64Array,
        further: Mapping[str, Float64Array],
        rows_by_subset: Mapping[str, IntArray],
    ) -> tuple[dict[str, dict[str, float]], list[str]]:
        """Return the correlations of each subset, and notes on subsets without any.

        A subset whose pairs all have the same gold score, or the same similarity, has none.

        Args:
            similarity: The similarity of each pair, (n,).
            gold: The gold score of each pair, (n,).
            further: Further similarities of each pair, (n,), by the name of their correlation.
            rows_by_subset: The rows of the pairs of each subset, by the subset's name.

        Returns:
            Two values: for each subset its correlations by metric, empty if it has none; and the
            notes, sentences for the user.

        Raises:
            DataError: A subset has one gold score alone, and the protocol averages over subsets.
            EncoderError: A subset has one similarity alone, and the protocol averages over subsets.
        """
        per_subset: dict[str, dict[str, float]] = {}
        notes = []
        for subset, rows in rows_by_subset.items():
            try:
                per_subset[subset] = {
                    **_correlations(similarity[rows], gold[rows], subset),
                    **_further_correlations(further, gold, rows),
                }
            except (DataError, EncoderError) as error:
                # A correlation over all pairs (the protocol's aggregation ``all``) can do without
                # this subset; an average cannot.
                if self._averages_over_subsets:
                    raise
                per_subset[subset] = {}
                notes.append(f"{error}, and no mean over subsets")
        return per_subset, notes


def _compute_similarities(
    split: PairSplit, embed: Embed, names: Sequence[str]
) -> list[Similarities]:
    """Return several similarities of the two sentences of each pair.

    Args:
        split: The n pairs.
        embed: Embeds sentences.
        names: The names of the similarities, such as ``cosine``.

    Returns:
        For each name the similarities, (n,), and which pairs hold a zero vector, (n,).

    Raises:
        ProtocolError: The similarity needs bits, and the embeddings are none.
        EncoderError: Different sentences all have the same embedding.
    """
    # The n first sentences, then the n second ones.
    texts = split.texts()
    embeddings = embed(texts)
    # Row 0 is compared with row n, row 1 with row n + 1, and so on.
    similarities = compare_sides(embeddings, split.n, names)
    if len(set(texts)) > 1 and inspect_embeddings(embeddings).is_constant:
        raise EncoderError(
            f"the encoder gives every one of {len(texts)} sentences the same embedding; "
            "no correlation exists"
        )
    return similarities


def _correlations(similarity: Float64Array, gold: Float64Array, subset: str) -> dict[str, float]:
    """Return Spearman's, Pearson's and Kendall's correlation of similarities with gold scores.

    Args:
        similarity: The similarities of the pairs of a subset, (n,).
        gold: The gold scores of these pairs, (n,).
        subset: The subset's name, for messages; empty for the whole task.

    Returns:
        The correlations by name: ``spearman``, ``pearson`` and ``kendall``.

    Raises:
        DataError: The gold scores are all the same, or there is only one.
        EncoderError: The similarities are all the same within ``TIE_TOLERANCE``, 1e-12.
    """
    label = f"subset '{subset}'" if subset else "the task"
    if len(gold) < 2 or np.ptp(gold) == 0:
        raise DataError(f"{label} has fewer than two different gold scores; no correlation exists")
    if np.ptp(similarity) < TIE_TOLERANCE:
        raise EncoderError(
            f"every pair of {label} has the same similarity ({similarity[0]:.4g}); "
            "no correlation exists"
        )
    return {metric: correlate(similarity, gold) for metric, correlate in CORRELATIONS.items()}


def _further_correlations(
    further: Mapping[str, Float64Array], gold: Float64Array, rows: IntArray
) -> dict[str, float]:
    """Return Spearman correlations of some pairs' further similarities with their gold scores.

    Further similarities are reported beside the one that makes the score. One by which all pairs
    are equally similar, within ``TIE_TOLERANCE`` (1e-12), has no correlation, and is left out.

    Args:
        further: The similarities of all pairs, (n,), by the name of their correlation, such as
            ``euclidean_spearman``.
        gold: The gold scores of all pairs, (n,).
        rows: The rows of the pairs to correlate.

    Returns:
        The correlations by name.
    """
    return {
        name: spearman(values[rows], gold[rows])
        for name, values in further.items()
        if np.ptp(values[rows]) >= TIE_TOLERANCE
    }


def _aggregate(
    correlations_of_all: Mapping[str, float],
    rows_by_subset: Mapping[str, IntArray],
    per_subset: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """Return every metric under every aggregation: over all pairs, and averaged over subsets.

    Averages are left out if a subset has no correlation.

    Args:
        correlations_of_all: The correlations over all pairs by metric.
        rows_by_subset: The rows of each subset's pairs.
        per_subset: Each subset's correlations by metric; empty if a subset has none.

    Returns:
        The values by metric and aggregation, for example ``spearman.mean``.
    """
    # AGGREGATIONS: ``all`` (over all pairs) -> None; ``mean`` and ``wmean`` -> a function from the
    # sizes of the subsets to their weights, which are equal for ``mean``, the sizes for ``wmean``.
    weight_functions = {name: weigh for name, weigh in AGGREGATIONS.items() if weigh is not None}
    scores = {
        f"{metric}.{name}": value
        for metric, value in correlations_of_all.items()
        for name in AGGREGATIONS.keys() - weight_functions
    }
    has_all_correlations = all(per_subset.values())
    if not has_all_correlations:
        return scores
    sizes = np.array([len(rows) for rows in rows_by_subset.values()], dtype=np.float64)
    for metric in correlations_of_all:
        # A further similarity may lack a correlation in a subset; it then has no average.
        if not all(metric in correlations for correlations in per_subset.values()):
            continue
        values = [correlations[metric] for correlations in per_subset.values()]
        for name, weigh in weight_functions.items():
            scores[f"{metric}.{name}"] = float(np.average(values, weights=weigh(sizes)))
    return scores
