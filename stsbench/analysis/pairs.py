"""Pairs with gold scores in the space of embeddings: ``alignment`` and ``similarity``.

How close positives are and how evenly sentences are spread (Wang and Isola 2020; SimCSE, figures 2
and 3); gold scores against cosines (ConSERT, figure 1), and cosines by bin of gold (SimCSE, figure
G.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import Meta

from stsbench.analysis.context import (
    EncoderAnalysis,
    EncoderFindings,
    EncoderOnTask,
    PlainRow,
    Tables,
)
from stsbench.data.splits import PairSplit
from stsbench.encoders.base import ROWS_AT_ONCE
from stsbench.evaluators.base import PositiveFloat
from stsbench.numbers.similarity import alignment, uniformity
from stsbench.numbers.statistics import Float64Array, IntArray
from stsbench.plots.planes import ScatterPoint, Violin, draw_scatter

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


MAX_UNIFORMITY_SENTENCES = 20_000
"""Uniformity compares each two of this number of sentences, evenly selected from more."""


@dataclass(frozen=True)
class AlignmentAndUniformity(EncoderAnalysis):
    """Alignment of pairs above a gold score, uniformity of all sentences, and the task's score.

    Alignment and uniformity are over all splits. The larger ``t``, the more near sentences count in
    uniformity.
    """

    about = "alignment and uniformity, by encoder and over a training run (SimCSE figures 2 and 3)"
    printed = ("encoders",)
    score_columns = {"encoders": ("score",)}

    above: float = 4.0
    t: PositiveFloat = 2.0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder, and read the validations of its training if it was trained here.

        Positives are the pairs with a gold score above ``self.above``; ``self.t`` is the factor of
        squared distances in uniformity.

        Args:
            subject: The encoder, with the task.

        Returns:
            Two tables. ``encoders`` has one row: alignment of the positives, uniformity of the
            sentences, the score of the task, and the numbers of positives and of sentences.
            ``training`` has the same three measures at each validation on the development split,
            by training step; it is empty if they were not recorded.
        """
        pairs = subject.pairs(all_splits=True)
        positives = subject.positives(pairs, self.above)
        distinct_texts = list(dict.fromkeys(pairs.texts()))
        # Evenly from all splits, instead of the first ones only.
        step = math.ceil(len(distinct_texts) / MAX_UNIFORMITY_SENTENCES)
        texts = distinct_texts[::step]
        encoder_row: PlainRow = {
            "alignment": _mean_alignment(subject, pairs, positives),
            # The log of the mean of exp(-t * squared distance) over all pairs of unit embeddings.
            "uniformity": uniformity(subject.embed_in_memory(texts), self.t),
            "score": subject.score().score,
            "positives": len(positives),
            "sentences": len(texts),
        }
        # The record of its training; None for an encoder that was not trained here.
        run = subject.named_encoder.run
        # Each validation is a dict: the name of a measure -> its value.
        validations = run.record.get("curve", []) if run is not None else []
        keys = ("step", "alignment", "uniformity", "score")
        training_rows: list[PlainRow] = []
        for validation in validations:
            # Training may not have recorded alignment and uniformity.
            if all(key in validation for key in keys):
                training_rows.append({key: validation[key] for key in keys})
        return EncoderFindings({"encoders": [encoder_row], "training": training_rows})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw encoders by uniformity and alignment, coloured by their score.

        The validations of each training are joined by a line, in a panel of their own.

        Args:
            tables: ``encoders`` has a row for each encoder, ``training`` a row for each validation
                of its training, both with ``alignment``, ``uniformity`` and ``score``.
            title: The title of the picture.
        """
        # A point has uniformity as x and alignment as y. Points with the same `joined` are joined.
        points = [
            _alignment_point(row, panel="", name=row["encoder"]) for row in tables["encoders"]
        ]
        for row in tables["training"]:
            panel = f"{row['encoder']}, validations"
            points.append(_alignment_point(row, panel, joined=panel))
        return draw_scatter(
            points,
            x_label="uniformity (lower: more even)",
            y_label="alignment (lower: closer)",
            value_label="score × 100",
            title=title,
            same_scale=False,
        )


def _mean_alignment(subject: EncoderOnTask, pairs: PairSplit, positives: list[int]) -> float:
    """Return the alignment of some pairs: the mean squared distance of their two embeddings.

    Embeddings are scaled to length 1 first; a zero vector stays one.

    Only ``ROWS_AT_ONCE`` pairs are in memory at once.

    Args:
        subject: Embeds the sentences.
        pairs: All pairs; ``sides`` are their first sentences and their second ones.
        positives: The indices of the pairs to measure, at least one.
    """
    sum_of_squared_distances = 0.0
    for start in range(0, len(positives), ROWS_AT_ONCE):
        block = positives[start : start + ROWS_AT_ONCE]
        first, second = (
            subject.embed_in_memory([side[index] for index in block]) for side in pairs.sides
        )
        sum_of_squared_distances += len(block) * alignment(first, second)
    return sum_of_squared_distances / len(positives)


def _alignment_point(row: PlainRow, panel: str, **fields: str) -> ScatterPoint:
    """Return the point of an encoder or of a validation, coloured by its score times 100."""
    score = 100 * row["score"]
    return ScatterPoint(x=row["uniformity"], y=row["alignment"], panel=panel, value=score, **fields)


MAX_DRAWN_PAIRS = 2000
"""The maximum number of drawn pairs of an encoder, evenly selected from more."""


def collapse(cosines: Float64Array, gold: Float64Array, *, bins: int = 5) -> float:
    """Return how near the cosines of unlike pairs are to those of like pairs.

    It is the mean cosine of the lowest bin of gold scores over that of the highest: 0 not at all
    near, 1 the same. ConSERT's figure 1 shows it for BERT, for which nearly all pairs lie between
    0.6 and 1 whatever their gold score.

    Args:
        cosines: The cosine of each pair, (n,).
        gold: The gold score of each pair, (n,).
        bins: The number of bins, of equal width from the lowest gold score to the highest.

    Returns:
        The ratio; NaN if either bin is empty.
    """
    bin_indices = gold_bins(gold, bins)
    lowest = cosines[bin_indices == 0]
    highest = cosines[bin_indices == bins - 1]
    if not (len(lowest) and len(highest)):
        return float("nan")
    return float(lowest.mean() / highest.mean())


def gold_bins(gold: Float64Array, bins: int) -> IntArray:
    """Return the bin of each gold score, (n,), from 0 for the lowest scores.

    Args:
        gold: The gold scores, (n,).
        bins: The number of bins of equal width between the lowest and the highest score.
    """
    low = float(gold.min())
    high = float(gold.max())
    # 1e-12 avoids a division by 0 if all scores are equal.
    positions = (gold - low) / max(high - low, 1e-12)
    indices = (positions * bins).astype(np.int64)
    # The highest score would begin a bin of its own.
    return np.asarray(np.minimum(indices, bins - 1))


@dataclass(frozen=True)
class GoldAgainstCosine(EncoderAnalysis):
    """Cosines by gold scores, and by ``bins`` equal bins of them."""

    about = (
        "cosine against gold score, densities by bin of gold, "
        "and the collapse of unlike pairs (ConSERT figure 1)"
    )
    printed = ("encoders", "bins")
    score_columns = {"encoders": ("score",)}

    bins: Annotated[int, Meta(ge=2)] = 5

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure the cosines of the task's pairs by one encoder.

        Args:
            subject: The encoder, with the task.

        Returns:
            Three tables. ``encoders`` has one row: the score by the task's protocol, the mean and
            the deviation of the cosines, the share from 0.6 upwards, and their collapse (the mean
            cosine of the lowest bin of gold scores over that of the highest). ``bins`` has the
            quartiles of the cosines in each of ``self.bins`` bins of gold scores. ``pairs`` has the
            gold score and the cosine of at most ``MAX_DRAWN_PAIRS`` pairs.
        """
        cosines = subject.cosines
        gold = subject.pairs().gold
        encoder_row: PlainRow = {
            "score": subject.score().score,
            "mean": float(cosines.mean()),
            "deviation": float(cosines.std()),
            "from_0.6": float((cosines >= 0.6).mean()),
            "collapse": collapse(cosines, gold, bins=self.bins),
        }
        n_drawn = min(MAX_DRAWN_PAIRS, len(gold))
        # Evenly spaced; unique, as rounding may give an index twice.
        drawn_indices = np.unique(np.linspace(0, len(gold) - 1, n_drawn).astype(np.int64))
        pair_rows: list[PlainRow] = [
            {"gold": float(gold[index]), "cosine": float(cosines[index])} for index in drawn_indices
        ]
        bin_rows = list(self._measure_bins(cosines, gold))
        return EncoderFindings({"encoders": [encoder_row], "bins": bin_rows, "pairs": pair_rows})

    def _measure_bins(self, cosines: Float64Array, gold: Float64Array) -> Iterator[PlainRow]:
        """Yield the quartiles of the cosines of each bin of gold scores that is not empty.

        The range of gold scores is divided into ``self.bins`` bins of equal width. A row has the
        edges of the bin, ``from`` and ``to``, its number of pairs ``n``, and the quartiles. A bin
        holds its lower edge, and the last bin its upper edge too.

        Args:
            cosines: The cosine of each pair, (n,).
            gold: The gold score of each pair, (n,).
        """
        bin_indices = gold_bins(gold, self.bins)
        edges = np.linspace(gold.min(), gold.max(), self.bins + 1)
        for bin_index in range(self.bins):
            bin_cosines = cosines[bin_indices == bin_index]
            if not len(bin_cosines):
                continue
            quarter, median, three_quarters = np.quantile(bin_cosines, [0.25, 0.5, 0.75]).tolist()
            yield {
                "from": float(edges[bin_index]),
                "to": float(edges[bin_index + 1]),
                "n": len(bin_cosines),
                "quarter": quarter,
                "median": median,
                "three_quarters": three_quarters,
            }

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw one panel per encoder: its pairs, and the density of the cosines of each bin.

        Args:
            tables: ``pairs`` has the gold score and the cosine of each pair of each encoder,
                ``bins`` the edges of each bin of gold scores.
            title: The title of the picture.
        """
        pairs = tables["pairs"]
        points = [
            ScatterPoint(x=pair["gold"], y=pair["cosine"], panel=pair["encoder"]) for pair in pairs
        ]
        return draw_scatter(
            points,
            violins=list(_make_violins(pairs, tables["bins"])),
            x_label="gold score",
            y_label="cosine",
            title=title,
        )


def _make_violins(pairs: Sequence[PlainRow], bins: Sequence[PlainRow]) -> Iterator[Violin]:
    """Yield a violin for each encoder and bin of gold scores: a shape as wide as cosines are dense.

    A bin in which all cosines of the encoder are equal, or that has none, has no violin.

    Args:
        pairs: ``encoder``, ``gold`` and ``cosine`` of each pair of each encoder.
        bins: Rows with the edges of bins, ``from`` and ``to``.
    """
    edges = sorted({(row["from"], row["to"]) for row in bins})
    highest = max(high for _, high in edges)
    encoders = dict.fromkeys(pair["encoder"] for pair in pairs)
    for encoder, (low, high) in product(encoders, edges):
        # The last bin holds its upper edge too.
        limit = high if high < highest else high + 1
        cosines = [
            pair["cosine"]
            for pair in pairs
            if pair["encoder"] == encoder and low <= pair["gold"] < limit
        ]
        if len(set(cosines)) > 1:
            yield Violin(
                panel=encoder, x=(low + high) / 2, width=0.9 * (high - low), values=cosines
            )
