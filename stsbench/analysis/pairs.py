"""How close pairs lie: ``alignment`` and ``similarity``.

How close positives lie and how evenly sentences spread (Wang and Isola 2020; SimCSE, figures 2 and 3); gold scores against cosines
(ConSERT, figure 1), and cosines by bin of gold (SimCSE, figure G.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated

import numpy as np
from msgspec import Meta

from stsbench.analysis.run import EncoderAnalysis, Measurement, PlainRow, Subject, Tables
from stsbench.encoders.base import ROWS
from stsbench.evaluators.seams import Positive
from stsbench.numbers.similarity import alignment, uniformity
from stsbench.numbers.statistics import Float64Array, IntArray
from stsbench.plots.draw import Spot, Violin, draw_spots

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


MOST = 20_000
"""Uniformity compares each two of so many sentences, evenly taken of more."""


@dataclass(frozen=True)
class Closeness(EncoderAnalysis):
    """Alignment of pairs above a gold score, uniformity of all sentences, both over all splits, and the task's score.

    The larger ``t``, the more uniformity counts what is near.
    """

    about = "alignment and uniformity, by encoder and over a training run (SimCSE figures 2 and 3)"
    printed = ("encoders",)

    above: float = 4.0
    t: Positive = 2.0

    def measure(self, subject: Subject) -> Measurement:
        """Measure one encoder; of a trained one also its validations, on the split it was chosen by."""
        pairs = subject.pairs(everywhere=True)
        close = subject.positives(pairs, self.above)
        texts = list(dict.fromkeys(pairs.texts()))
        texts = texts[:: -(-len(texts) // MOST)]
        # So many pairs at a time.
        parts = [close[at : at + ROWS] for at in range(0, len(close), ROWS)]
        sides = ([subject.array([side[at] for at in part]) for side in pairs.sides] for part in parts)
        row: PlainRow = {
            "alignment": sum(len(a) * alignment(a, b) for a, b in sides) / len(close),
            "uniformity": uniformity(subject.array(texts), self.t),
            "score": subject.score().score,
            "positives": len(close),
            "sentences": len(texts),
        }
        curve = subject.known.run.facts.get("curve", []) if subject.known.run is not None else []
        wanted = ("step", "alignment", "uniformity", "score")
        training = [{key: point[key] for key in wanted} for point in curve if {*wanted} <= point.keys()]
        return Measurement({"encoders": [row], "training": training})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Encoders coloured by score, and in a panel of its own each training run on its way."""
        spots = [
            Spot(row["uniformity"], row["alignment"], "", 100 * row["score"], row["encoder"])
            for row in tables["encoders"]
        ]
        for row in tables["training"]:
            panel = f"{row['encoder']}, validations"
            spots.append(Spot(row["uniformity"], row["alignment"], panel, 100 * row["score"], joined=panel))
        return draw_spots(
            spots, across="uniformity (lower: more even)", up="alignment (lower: closer)", values="score × 100", title=title,
            same_scale=False,
        )  # fmt: skip


DRAWN = 2000
"""So many pairs of an encoder are drawn, evenly taken of more."""


def collapse(cosines: Float64Array, gold: Float64Array, *, bins: int = 5) -> float:
    """Return how far pairs that people call unlike lie towards those that they call alike: 0 not at all, 1 all the way.

    That is the mean cosine of the lowest bin of gold scores as a share of that of the highest (both (n,)): what ConSERT's
    figure 1 shows of BERT, nearly all of whose pairs lie between 0.6 and 1 whatever their gold score. NaN where either
    bin is empty.
    """
    at = gold_bins(gold, bins)
    low, high = cosines[at == 0], cosines[at == bins - 1]
    return float(low.mean() / high.mean()) if len(low) and len(high) else float("nan")


def gold_bins(gold: Float64Array, bins: int) -> IntArray:
    """Return the bin of each gold score, (n,), of so many equal ones between the lowest and the highest."""
    low, high = float(gold.min()), float(gold.max())
    found: IntArray = np.minimum(((gold - low) / max(high - low, 1e-12) * bins).astype(np.int64), bins - 1)
    return found


@dataclass(frozen=True)
class GoldAgainstCosine(EncoderAnalysis):
    """Cosines by gold scores, and by so many equal bins of them."""

    about = "cosine against gold score, densities by bin of gold, and the collapse of unlike pairs (ConSERT figure 1)"
    printed = ("encoders", "bins")

    bins: Annotated[int, Meta(ge=2)] = 5

    def measure(self, subject: Subject) -> Measurement:
        """Measure one encoder."""
        cosines, gold = subject.cosines, subject.pairs().gold
        whole: PlainRow = {
            "score": subject.score().score,
            "mean": float(cosines.mean()),
            "deviation": float(cosines.std()),
            "from_0.6": float((cosines >= 0.6).mean()),
            "collapse": collapse(cosines, gold, bins=self.bins),
        }
        drawn = np.unique(np.linspace(0, len(gold) - 1, min(DRAWN, len(gold))).astype(np.int64))
        pairs: list[PlainRow] = [{"gold": float(gold[at]), "cosine": float(cosines[at])} for at in drawn]
        return Measurement({"encoders": [whole], "bins": list(self._bins(cosines, gold)), "pairs": pairs})

    def _bins(self, cosines: Float64Array, gold: Float64Array) -> Iterator[PlainRow]:
        at, edges = gold_bins(gold, self.bins), np.linspace(gold.min(), gold.max(), self.bins + 1)
        for place in range(self.bins):
            mine = cosines[at == place]
            if len(mine):
                quarters = np.quantile(mine, [0.25, 0.5, 0.75]).tolist()
                named = dict(zip(("quarter", "median", "three_quarters"), quarters, strict=True))
                yield {"from": float(edges[place]), "to": float(edges[place + 1]), "n": len(mine), **named}

    def draw(self, tables: Tables, title: str) -> Chart:
        """A panel an encoder: its pairs, and the density of the cosines of each bin."""
        rows, violins = tables["pairs"], []
        edges = {(row["from"], row["to"]) for row in tables["bins"]}
        last = max(high for _, high in edges)
        for name, (low, high) in product(dict.fromkeys(row["encoder"] for row in rows), sorted(edges)):
            below = high if high < last else high + 1
            mine = [row["cosine"] for row in rows if row["encoder"] == name and low <= row["gold"] < below]
            if len(set(mine)) > 1:
                violins.append(Violin(name, (low + high) / 2, 0.9 * (high - low), mine))
        spots = [Spot(row["gold"], row["cosine"], row["encoder"]) for row in rows]
        return draw_spots(spots, violins=violins, across="gold score", up="cosine", title=title)
