"""``similarity``: gold scores against cosines (ConSERT, figure 1), and cosines by bin of gold (SimCSE, figure G.1)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from stsbench.analysis.seams import EncoderAnalysis, Measurement, PlainRow, Subject, Tables, check_least
from stsbench.numbers.arrays import Float64Array, IntArray

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

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


class GoldAgainstCosine(EncoderAnalysis):
    """Cosines by gold scores."""

    about = "cosine against gold score, densities by bin of gold, and the collapse of unlike pairs (ConSERT figure 1)"
    printed = ("encoders", "bins")

    def __init__(self, bins: int = 5) -> None:
        """Say how many bins of gold scores there are."""
        check_least("bins", bins, 2)
        self.bins = bins

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
        from stsbench.plots.spots import Spot, Violin, draw_spots

        rows, violins = tables["pairs"], []
        edges = {(row["from"], row["to"]) for row in tables["bins"]}
        last = max(high for _, high in edges)
        for name, (low, high) in product(dict.fromkeys(row["encoder"] for row in rows), sorted(edges)):
            mine = [
                r["cosine"]
                for r in rows
                if r["encoder"] == name and low <= r["gold"] < (high if high < last else high + 1)
            ]
            if len(set(mine)) > 1:
                violins.append(Violin(name, (low + high) / 2, 0.9 * (high - low), mine))
        spots = [Spot(row["gold"], row["cosine"], row["encoder"]) for row in rows]
        return draw_spots(spots, violins=violins, across="gold score", up="cosine", title=title)
