"""``neighbours``: the nearest sentences of a query by each encoder, side by side, and how far encoders agree on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stsbench.analysis.seams import EncoderAnalysis, Measurement, PlainRow, Subject, Tables, check_least
from stsbench.encoders.seams import EmbeddingRows, blocks
from stsbench.numbers.arrays import Float64Array, IntArray
from stsbench.numbers.closeness import unit_rows

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


class Nearest(NamedTuple):
    """For each of q queries its k nearest rows, the nearest first, and their cosines; both (q, k)."""

    rows: IntArray
    cosines: Float64Array


def nearest(queries: EmbeddingRows, x: EmbeddingRows, k: int, *, but: IntArray | None = None) -> Nearest:
    """Return the k rows of x (n, d) nearest to each query (q, d) by cosine; of equals the first.

    Args:
        queries: what is looked for.
        x: read a block at a time.
        k: how many, at most n.
        but: for each query the row that is itself, (q,), which is passed over; -1 for none.
    """
    wanted = unit_rows(np.concatenate(list(blocks(queries))))
    rows = np.empty((len(wanted), 0), dtype=np.int64)
    cosines = np.empty((len(wanted), 0))
    start = 0
    for block in blocks(x):
        found = wanted @ unit_rows(block).T
        at = np.arange(start, start + len(block))
        if but is not None:
            found[but[:, None] == at[None, :]] = -np.inf
        rows = np.concatenate([rows, np.broadcast_to(at, found.shape)], axis=1)
        cosines = np.concatenate([cosines, found], axis=1)
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        rows, cosines = np.take_along_axis(rows, best, axis=1), np.take_along_axis(cosines, best, axis=1)
        start += len(block)
    return Nearest(rows, cosines)


class Neighbours(EncoderAnalysis):
    """Nearest sentences among the distinct ones of a task's split."""

    about = "the nearest sentences of a query by each encoder, and the share of neighbours that two encoders share"
    printed = ("side_by_side", "agreement")

    def __init__(self, query: Sequence[str] | str = (), k: int = 5, sample: int = 500, seed: int = 0) -> None:
        """Say what is looked for.

        Args:
            query: a sentence, or some; default three of the task's, drawn by the seed.
            k: how many neighbours.
            sample: of so many of the task's sentences neighbours are compared between encoders.
            seed: what they are drawn by.
        """
        for name, value in (("k", k), ("sample", sample), ("seed", seed)):
            check_least(name, value, 0 if name == "seed" else 1)
        self.query, self.k, self.sample, self.seed = [query] if isinstance(query, str) else query, k, sample, seed

    def measure(self, subject: Subject) -> Measurement:
        """Find the neighbours by one encoder."""
        texts = list(dict.fromkeys(subject.task.texts()))
        drawn = np.random.default_rng(self.seed).permutation(len(texts))[: self.sample]
        queries = list(self.query) or [texts[at] for at in drawn[:3]]
        place = {text: at for at, text in enumerate(texts)}
        itself = np.array([place.get(text, -1) for text in queries])
        x = subject.embed(texts)
        found = nearest(subject.array(queries), x, self.k, but=itself)
        rows = [
            {"query": query, "rank": rank + 1, "cosine": float(cosine), "sentence": texts[at]}
            for query, ats, cosines in zip(queries, *found, strict=True)
            for rank, (at, cosine) in enumerate(zip(ats.tolist(), cosines.tolist(), strict=True))
        ]
        return Measurement({"neighbours": rows}, (rows, nearest(x.take(drawn), x, self.k, but=drawn).rows.tolist()))

    def across(self, kept: Mapping[str, Any]) -> Tables:
        """The neighbours side by side, and the share of them that each two encoders share."""
        lists = [rows for rows, _ in kept.values()]
        beside: list[PlainRow] = [
            {
                "query": same[0]["query"],
                "rank": same[0]["rank"],
                **dict(zip(kept, (r["sentence"] for r in same), strict=True)),
            }
            for same in zip(*lists, strict=True)
        ]
        agreement: list[PlainRow] = [
            {"encoder": one, "other": other, "shared": _shared(mine, theirs)}
            for (one, (_, mine)), (other, (_, theirs)) in product(kept.items(), repeat=2)
        ]
        return {"side_by_side": beside, "agreement": agreement}

    def draw(self, tables: Tables, title: str) -> Chart:
        """Which encoders find the same neighbours."""
        from stsbench.plots.heat import HeatCell, draw_heat

        cells = [HeatCell(row["encoder"], row["other"], 100 * row["shared"]) for row in tables["agreement"]]
        return draw_heat(cells, rows="", columns="", values="shared neighbours in percent", title=title)


def _shared(mine: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> float:
    """The mean share of its neighbours that a sentence has in both lists."""
    return float(np.mean([len({*a} & {*b}) / len(a) for a, b in zip(mine, theirs, strict=True)]))
