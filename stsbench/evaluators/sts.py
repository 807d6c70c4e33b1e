"""Semantic textual similarity: correlation of similarity with gold scores, aggregated three ways in one pass.

The three aggregations over a task's subsets and who reports which: SimCSE (arXiv 2104.08821), appendix B, table B.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import DataError, EncoderError, ProtocolError, suggest
from stsbench.data.splits import PairSplit, Split
from stsbench.encoders.base import Embed, iter_blocks
from stsbench.evaluators.base import ItemColumns, Scores, inspect_embeddings, score_pairs
from stsbench.numbers.similarity import SIMILARITIES, are_bits
from stsbench.numbers.statistics import (
    AGGREGATIONS,
    CORRELATIONS,
    Float64Array,
    sentence_columns,
    subset_indices,
)


@dataclass(frozen=True, kw_only=True)
class StsProtocol:
    """Which of ``CORRELATIONS`` is the score, and by which of ``AGGREGATIONS`` subsets make it.

    ``all``: one correlation over the subsets joined; ``mean`` and ``wmean``: the plain mean of
    the subsets' correlations, and the mean weighted by their numbers of pairs. ``similarity`` is one of
    ``SIMILARITIES``, computed of the embeddings as they are: of the integers where they are integers.
    """

    name: str
    metric: str
    aggregation: str
    similarity: str = "cosine"

    def __post_init__(self) -> None:
        """Refuse names that are in no table."""
        tables = {"metric": CORRELATIONS, "aggregation": AGGREGATIONS, "similarity": SIMILARITIES}
        for field, known in tables.items():
            if (value := getattr(self, field)) not in known:
                raise ProtocolError(
                    f"protocol '{self.name}': {field}: '{value}' is not one of {', '.join(known)}{suggest(value, known)}"
                )


PROTOCOLS = {
    # SBERT, SimCSE, ConSERT, SG-OPT, MTEB: one Spearman a year.
    "simcse": StsProtocol(name="simcse", metric="spearman", aggregation="all"),
    # BERT-flow and BERT-whitening.
    "wmean": StsProtocol(name="wmean", metric="spearman", aggregation="wmean"),
    # DeCLUTR.
    "mean": StsProtocol(name="mean", metric="spearman", aggregation="mean"),
    # The official rankings of SemEval 2013 to 2016.
    "semeval": StsProtocol(name="semeval", metric="pearson", aggregation="wmean"),
}
TIE_TOLERANCE = 1e-12
"""Similarities this close are one: embeddings that differ in length alone differ in cosine by rounding."""


@dataclass(frozen=True, kw_only=True)
class StsEvaluator:
    """Scores one split of pairs."""

    PROTOCOLS: ClassVar[Mapping[str, StsProtocol]] = PROTOCOLS
    ONE_SPLIT: ClassVar[bool] = True

    protocol: StsProtocol

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Correlate similarity with gold scores of one PairSplit under any name; the seed changes nothing here.

        Raises as :meth:`recompute`; and EncoderError: every embedding is the same; ProtocolError: the protocol needs
        subsets and the data's source does not tell them; or its similarity needs bits.
        """
        (split,) = splits.values()
        if not isinstance(split, PairSplit):
            raise DataError("the evaluator 'sts' scores sentence pairs with gold scores")
        if not split.subsets_known and AGGREGATIONS[self.protocol.aggregation] is not None:
            raise ProtocolError(
                f"protocol '{self.protocol.name}' averages over subsets, and this source does not tell the subsets; "
                "use protocol 'simcse', or a data folder (--data) with the subsets"
            )
        similarity, zero_vectors = _similarities(split, embed, self.protocol.similarity)
        columns: ItemColumns = {
            "subset": list(split.subset),
            "gold": split.gold,
            "similarity": similarity,
        }
        found = self.recompute({**columns, **sentence_columns(*split.sides)})
        scores, notes = found.scores, list(found.notes)
        if not split.subsets_known:
            scores = {name: value for name, value in scores.items() if name.endswith(".all")}
            notes.insert(
                0, "the data's source does not tell subsets: only the aggregation 'all' is offered"
            )
        if zero_vectors:
            notes.insert(0, f"{zero_vectors} pairs hold a zero vector and have similarity 0")
        return replace(found, scores=scores, zero_vectors=zero_vectors, notes=tuple(notes))

    def recompute(self, items: ItemColumns) -> Scores:
        """Correlate the pairs' ``similarity`` with their ``gold`` scores, in each ``subset`` and over all.

        A subset that has no correlation is noted, unless the protocol averages over subsets. Raises DataError: every
        gold score is the same: of all pairs, or of a subset where the protocol averages over them; EncoderError:
        likewise every similarity.
        """
        similarity, gold = (
            np.asarray(items[name], dtype=np.float64) for name in ("similarity", "gold")
        )
        subsets = subset_indices(list(map(str, items["subset"])))
        per_subset: dict[str, dict[str, float]] = {}
        notes = []
        for name, at in subsets.items():
            try:
                per_subset[name] = _correlations(similarity, gold, at, name)
            except (DataError, EncoderError) as error:
                # The subsets joined are well defined without it; an average over subsets is not.
                if AGGREGATIONS[self.protocol.aggregation] is not None:
                    raise
                per_subset[name] = {}
                notes.append(f"{error}, and no mean over subsets")
        scores = _aggregate(similarity, gold, subsets, per_subset)
        score = scores[f"{self.protocol.metric}.{self.protocol.aggregation}"]
        return score_pairs(
            items,
            similarity,
            metric=self.protocol.metric,
            aggregation=self.protocol.aggregation,
            score=score,
            scores=scores,
            per_subset={n: {**c, "n": len(subsets[n])} for n, c in per_subset.items()}
            if len(subsets) > 1
            else {},
            notes=tuple(notes),
        )


def _similarities(split: PairSplit, embed: Embed, name: str) -> tuple[Float64Array, int]:
    """The similarity of each pair, (n,), and how many pairs held a zero vector."""
    texts = split.texts()
    embeddings = embed(texts)
    if name == "hamming" and not are_bits(np.asarray(embeddings)):
        advice = "make the embeddings bits: --set embeddings=binary"
        raise ProtocolError(f"similarity 'hamming' counts bits that differ; {advice}")
    if len(set(texts)) > 1 and inspect_embeddings(embeddings).is_constant:
        what = f"the encoder gives every one of {len(texts)} sentences the same embedding"
        raise EncoderError(f"{what}; no correlation exists")
    sides = zip(
        iter_blocks(embeddings, stop=split.n), iter_blocks(embeddings, split.n), strict=True
    )
    found = [
        SIMILARITIES[name](*(side.astype(np.float32, copy=False) for side in pair))
        for pair in sides
    ]
    return np.concatenate([np.empty(0), *(one for one, _ in found)]), sum(
        int(zero.sum()) for _, zero in found
    )


def _correlations(
    x: Float64Array, y: Float64Array, at: npt.NDArray[np.int64], name: str
) -> dict[str, float]:
    where = f"subset '{name}'" if name else "the task"
    if len(at) < 2 or np.ptp(y[at]) == 0:
        raise DataError(f"{where} has fewer than two different gold scores; no correlation exists")
    if np.ptp(x[at]) < TIE_TOLERANCE:
        raise EncoderError(
            f"every pair of {where} has the same similarity ({x[at][0]:.4g}); no correlation exists"
        )
    return {metric: correlate(x[at], y[at]) for metric, correlate in CORRELATIONS.items()}


def _aggregate(
    similarity: Float64Array,
    gold: Float64Array,
    subsets: Mapping[str, npt.NDArray[np.int64]],
    per_subset: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    """Every metric under every aggregation that the subsets allow, as ``metric.aggregation``."""
    # Of a single subset they are known.
    alone = dict(next(iter(per_subset.values()))) if len(per_subset) == 1 else {}
    joined = alone or _correlations(similarity, gold, np.arange(len(gold)), "")
    shares = {name: weigh for name, weigh in AGGREGATIONS.items() if weigh is not None}
    scores = {
        f"{metric}.{name}": value
        for metric, value in joined.items()
        for name in AGGREGATIONS.keys() - shares
    }
    if all(per_subset.values()):
        sizes = np.array([len(at) for at in subsets.values()], dtype=np.float64)
        for metric in CORRELATIONS:
            values = [correlations[metric] for correlations in per_subset.values()]
            for name, weigh in shares.items():
                scores[f"{metric}.{name}"] = float(np.average(values, weights=weigh(sizes)))
    return scores
