"""Where sentences lie among each other: ``spectrum``, ``map``, ``neighbours``, ``alignment`` and ``similarity``.

How many directions embeddings use and how far they point one way (SimCSE, figure F.1); positives in a plane (SG's appendix); the
nearest sentences of a query, and how far encoders agree on them; how close positives lie and how evenly sentences spread (Wang and
Isola 2020; SimCSE, figures 2 and 3); gold scores against cosines (ConSERT, figure 1), and cosines by bin of gold (SimCSE, figure G.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from stsbench.analysis.context import (
    EncoderAnalysis,
    EncoderFindings,
    EncoderOnTask,
    PlainRow,
    Tables,
)
from stsbench.encoders.base import ROWS_AT_ONCE, EmbeddingRows, iter_blocks
from stsbench.evaluators.base import NonNegativeInt, PositiveFloat, PositiveInt
from stsbench.numbers.similarity import alignment, uniformity, unit_rows
from stsbench.numbers.statistics import Float64Array, IntArray
from stsbench.plots.draw import (
    HeatCell,
    LinePoint,
    ScatterPoint,
    Violin,
    draw_heat,
    draw_lines,
    draw_spots,
)

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


def singular_values(x: EmbeddingRows) -> Float64Array:
    """Return the singular values of embeddings (n, d), (d,), the largest first.

    The rows are read once, a block at a time: the values are the roots of the eigenvalues of xᵀx in float64. Those below
    1e-8 of the largest are rounding.
    """
    return np.asarray(np.sqrt(np.maximum(np.linalg.eigvalsh(_products(x))[::-1], 0.0)))


def mean_cosine(x: EmbeddingRows) -> float:
    """Return the mean cosine of all distinct pairs of rows of x (n, d), n of 2 or more; a zero vector has cosine 0.

    Where anisotropy is measured, random pairs estimate it (Ethayarajh 2019, section 3.4). Here it is exact: the squared
    length of the sum of unit vectors, less each one's own, over n(n - 1).
    """
    total, own = np.zeros(x.shape[1]), 0.0
    for block in iter_blocks(x):
        unit = unit_rows(block)
        total, own = total + unit.sum(axis=0), own + float((unit * unit).sum())
    return float((total @ total - own) / (x.shape[0] * (x.shape[0] - 1)))


def partition_isotropy(x: EmbeddingRows) -> float:
    """Return the isotropy of x (n, d) by its partition function, above 0 and up to 1; 1: all directions are alike.

    It is the smallest over the largest of Z(c), the sum of exp(c . row), where c is each eigenvector of xᵀx, both ways
    round (Mu and Viswanath 2018, section 2.2). Rows are scaled to a mean length of 1 first: without that the number depends
    on the scale of embeddings.
    """
    length = (
        sum(
            float(np.linalg.norm(block.astype(np.float64), axis=1).sum())
            for block in iter_blocks(x)
        )
        / x.shape[0]
    )
    if length == 0:
        return 1.0
    _, directions = np.linalg.eigh(_products(x))
    both = np.concatenate([directions, -directions], axis=1) / length
    sums = sum(np.exp(block.astype(np.float64) @ both).sum(axis=0) for block in iter_blocks(x))
    return float(np.min(sums) / np.max(sums))


def _products(x: EmbeddingRows, mean: Float64Array | float = 0.0) -> Float64Array:
    total = np.zeros((x.shape[1], x.shape[1]))
    for block in iter_blocks(x):
        rows = block.astype(np.float64) - mean
        total += rows.T @ rows
    return total


class Spectrum(EncoderAnalysis):
    """Singular values and isotropy of the distinct sentences of all splits of a task."""

    about = "singular values, isotropy and the mean cosine of all pairs of sentences (SimCSE figure F.1)"
    printed = ("encoders",)

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder."""
        x = subject.embed(subject.task.task.texts())
        values = singular_values(x)
        shares = values / max(float(values[0]), 1e-300)
        weights = values / max(float(values.sum()), 1e-300)
        used = weights[weights > 0]
        row = {
            "sentences": x.shape[0],
            "dimensions": x.shape[1],
            "mean_cosine": mean_cosine(x),
            "isotropy": partition_isotropy(x),
            # The exponential of their entropy (Roy and Vetterli 2007).
            "effective_rank": float(np.exp(-(used * np.log(used)).sum())),
            "first_share": float(values[0] ** 2 / max(float((values**2).sum()), 1e-300)),
        }
        spectrum = [
            {"index": at, "value": float(share)} for at, share in enumerate(shares, start=1)
        ]
        return EncoderFindings({"encoders": [row], "values": spectrum})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Singular values as shares of the largest, a line an encoder; those that are rounding are left out."""
        rows = [row for row in tables["values"] if row["value"] > 1e-6]
        points = [LinePoint(row["encoder"], row["index"], row["value"]) for row in rows]
        sizes, values = "index of the singular value", "share of the largest"
        return draw_lines(points, x_label=sizes, y_label=values, title=title, y_scale="log10")


def principal_plane(x: EmbeddingRows) -> tuple[Float64Array, Float64Array]:
    """Return the mean (d,) of x (n, d) and its two main directions (d, 2), the largest variance first.

    A direction's sign is such that its largest number is positive.
    """
    mean = sum(block.astype(np.float64).sum(axis=0) for block in iter_blocks(x)) / x.shape[0]
    _, vectors = np.linalg.eigh(_products(x, mean))
    plane = vectors[:, ::-1][:, :2]
    signs = np.sign(plane[np.abs(plane).argmax(axis=0), np.arange(plane.shape[1])])
    return mean, plane * signs


def _pca(every: EmbeddingRows, drawn: Float64Array, _seed: int) -> Float64Array:
    mean, plane = principal_plane(every)
    return np.asarray((drawn - mean) @ plane)


def _tsne(every: EmbeddingRows, drawn: Float64Array, seed: int) -> Float64Array:
    from sklearn.manifold import TSNE

    near = min(30.0, (len(drawn) - 1) / 3)
    found = TSNE(metric="cosine", init="random", perplexity=near, random_state=seed).fit_transform(
        drawn
    )
    return np.asarray(found, dtype=np.float64)


class Projection(NamedTuple):
    """How points (n, 2) are made of all embeddings and of those that are drawn, and what their axes are."""

    make: Callable[[EmbeddingRows, Float64Array, int], Float64Array]
    axes: tuple[str, str]


PROJECTIONS: Mapping[str, Projection] = {
    "pca": Projection(_pca, ("first main direction", "second main direction")),
    "tsne": Projection(_tsne, ("t-SNE 1", "t-SNE 2")),
}


@dataclass(frozen=True)
class SentenceMap(EncoderAnalysis):
    """So many pairs ``above`` a gold score, drawn by the seed, in a plane.

    The method is ``pca``, the plane of most variance of all sentences, or ``tsne`` of those that are drawn.
    """

    about = "sentences in a plane, positives joined, and how long the joins are"
    printed = ("encoders",)

    method: Literal["pca", "tsne"] = "pca"
    above: float = 4.0
    pairs: Annotated[int, Meta(ge=3)] = 60
    seed: NonNegativeInt = 0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Place the sentences by one encoder."""
        split = subject.pairs()
        close = subject.positives(split, self.above, least=3)
        drawn = np.sort(np.random.default_rng(self.seed).permutation(close)[: self.pairs])
        x = subject.embed(split.texts())
        rows = np.concatenate([drawn, drawn + split.n])
        points = PROJECTIONS[self.method].make(x, x.take(rows).astype(np.float64), self.seed)
        first, second = np.split(points, 2)
        joins = np.linalg.norm(first - second, axis=1)
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        any_two = float(apart[np.triu_indices(len(points), 1)].mean())
        number = {
            "join": float(joins.mean()),
            "any_two": any_two,
            "ratio": float(joins.mean()) / max(any_two, 1e-300),
        }
        ends = (
            (pair, side, point)
            for side, ends in enumerate((first, second), 1)
            for pair, point in enumerate(ends)
        )
        table = [
            {"pair": pair, "side": side, "x": float(x), "y": float(y)}
            for pair, side, (x, y) in ends
        ]
        return EncoderFindings({"encoders": [number], "points": table})

    def draw(self, tables: Tables, title: str) -> Chart:
        """A panel an encoder."""
        spots = [
            ScatterPoint(row["x"], row["y"], row["encoder"], joined=f"{row['pair']}")
            for row in tables["points"]
        ]
        across, up = PROJECTIONS[self.method].axes
        return draw_spots(spots, x_label=across, y_label=up, title=title, same_scale=False)


class NearestRows(NamedTuple):
    """For each of q queries its k nearest rows, the nearest first, and their cosines; both (q, k)."""

    rows: IntArray
    cosines: Float64Array


def nearest(
    queries: EmbeddingRows, x: EmbeddingRows, k: int, *, but: IntArray | None = None
) -> NearestRows:
    """Return the k rows of x (n, d) nearest to each query (q, d) by cosine, k being n at most; of equals the first.

    ``but`` is for each query the row that is itself, (q,), which is passed over; -1 for none. x is read a block at a time.
    """
    wanted = unit_rows(np.concatenate(list(iter_blocks(queries))))
    rows = np.empty((len(wanted), 0), dtype=np.int64)
    cosines = np.empty((len(wanted), 0))
    start = 0
    for block in iter_blocks(x):
        found = wanted @ unit_rows(block).T
        at = np.arange(start, start + len(block))
        if but is not None:
            found[but[:, None] == at[None, :]] = -np.inf
        rows = np.concatenate([rows, np.broadcast_to(at, found.shape)], axis=1)
        cosines = np.concatenate([cosines, found], axis=1)
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        rows, cosines = (
            np.take_along_axis(rows, best, axis=1),
            np.take_along_axis(cosines, best, axis=1),
        )
        start += len(block)
    return NearestRows(rows, cosines)


@dataclass(frozen=True)
class Neighbours(EncoderAnalysis):
    """The ``k`` nearest sentences among the distinct ones of a task's split: of queries, else of three that the seed draws.

    Neighbours of a ``sample`` of the task's sentences are compared between encoders.
    """

    about = "the nearest sentences of a query by each encoder, and the share of neighbours that two encoders share"
    printed = ("side_by_side", "agreement")

    query: Sequence[str] | str = ()
    k: PositiveInt = 5
    sample: PositiveInt = 500
    seed: NonNegativeInt = 0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Find the neighbours by one encoder."""
        texts = list(dict.fromkeys(subject.task.texts()))
        drawn = np.random.default_rng(self.seed).permutation(len(texts))[: self.sample]
        queries = (
            [self.query]
            if isinstance(self.query, str)
            else list(self.query) or [texts[at] for at in drawn[:3]]
        )
        place = {text: at for at, text in enumerate(texts)}
        itself = np.array([place.get(text, -1) for text in queries])
        x = subject.embed(texts)
        found = nearest(subject.array(queries), x, self.k, but=itself)
        rows = [
            {"query": query, "rank": rank + 1, "cosine": float(cosine), "sentence": texts[at]}
            for query, ats, cosines in zip(queries, *found, strict=True)
            for rank, (at, cosine) in enumerate(zip(ats.tolist(), cosines.tolist(), strict=True))
        ]
        return EncoderFindings(
            {"neighbours": rows}, (rows, nearest(x.take(drawn), x, self.k, but=drawn).rows.tolist())
        )

    def compare_encoders(self, kept: Mapping[str, Any]) -> Tables:
        """The neighbours side by side, and the share of them that each two encoders share."""
        lists = [rows for rows, _ in kept.values()]
        beside: list[PlainRow] = []
        for same in zip(*lists, strict=True):
            found = dict(zip(kept, (row["sentence"] for row in same), strict=True))
            beside.append({"query": same[0]["query"], "rank": same[0]["rank"], **found})
        agreement: list[PlainRow] = []
        for (one, (_, mine)), (other, (_, theirs)) in product(kept.items(), repeat=2):
            # The mean share of its neighbours that a sentence has in both lists.
            shared = float(
                np.mean([len({*a} & {*b}) / len(a) for a, b in zip(mine, theirs, strict=True)])
            )
            agreement.append({"encoder": one, "other": other, "shared": shared})
        return {"side_by_side": beside, "agreement": agreement}

    def draw(self, tables: Tables, title: str) -> Chart:
        """Which encoders find the same neighbours."""
        cells = [
            HeatCell(row["encoder"], row["other"], 100 * row["shared"])
            for row in tables["agreement"]
        ]
        return draw_heat(
            cells,
            row_label="",
            column_label="",
            value_label="shared neighbours in percent",
            title=title,
        )


MOST = 20_000
"""Uniformity compares each two of so many sentences, evenly taken of more."""


@dataclass(frozen=True)
class AlignmentAndUniformity(EncoderAnalysis):
    """Alignment of pairs above a gold score, uniformity of all sentences, both over all splits, and the task's score.

    The larger ``t``, the more uniformity counts what is near.
    """

    about = "alignment and uniformity, by encoder and over a training run (SimCSE figures 2 and 3)"
    printed = ("encoders",)

    above: float = 4.0
    t: PositiveFloat = 2.0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder; of a trained one also its validations, on the split it was chosen by."""
        pairs = subject.pairs(everywhere=True)
        close = subject.positives(pairs, self.above)
        texts = list(dict.fromkeys(pairs.texts()))
        texts = texts[:: -(-len(texts) // MOST)]
        # So many pairs at a time.
        parts = [close[at : at + ROWS_AT_ONCE] for at in range(0, len(close), ROWS_AT_ONCE)]
        sides = (
            [subject.array([side[at] for at in part]) for side in pairs.sides] for part in parts
        )
        row: PlainRow = {
            "alignment": sum(len(a) * alignment(a, b) for a, b in sides) / len(close),
            "uniformity": uniformity(subject.array(texts), self.t),
            "score": subject.score().score,
            "positives": len(close),
            "sentences": len(texts),
        }
        curve = subject.known.run.record.get("curve", []) if subject.known.run is not None else []
        wanted = ("step", "alignment", "uniformity", "score")
        training = [
            {key: point[key] for key in wanted} for point in curve if {*wanted} <= point.keys()
        ]
        return EncoderFindings({"encoders": [row], "training": training})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Encoders coloured by score, and in a panel of its own each training run on its way."""
        rows = tables["encoders"]
        spots = [
            ScatterPoint(
                row["uniformity"], row["alignment"], "", 100 * row["score"], row["encoder"]
            )
            for row in rows
        ]
        for row in tables["training"]:
            panel = f"{row['encoder']}, validations"
            spots.append(
                ScatterPoint(
                    row["uniformity"], row["alignment"], panel, 100 * row["score"], joined=panel
                )
            )
        across, up = "uniformity (lower: more even)", "alignment (lower: closer)"
        return draw_spots(
            spots,
            x_label=across,
            y_label=up,
            value_label="score × 100",
            title=title,
            same_scale=False,
        )


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
    return np.asarray(
        np.minimum(((gold - low) / max(high - low, 1e-12) * bins).astype(np.int64), bins - 1)
    )


@dataclass(frozen=True)
class GoldAgainstCosine(EncoderAnalysis):
    """Cosines by gold scores, and by so many equal bins of them."""

    about = "cosine against gold score, densities by bin of gold, and the collapse of unlike pairs (ConSERT figure 1)"
    printed = ("encoders", "bins")

    bins: Annotated[int, Meta(ge=2)] = 5

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
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
        pairs: list[PlainRow] = [
            {"gold": float(gold[at]), "cosine": float(cosines[at])} for at in drawn
        ]
        return EncoderFindings(
            {"encoders": [whole], "bins": list(self._bins(cosines, gold)), "pairs": pairs}
        )

    def _bins(self, cosines: Float64Array, gold: Float64Array) -> Iterator[PlainRow]:
        at, edges = gold_bins(gold, self.bins), np.linspace(gold.min(), gold.max(), self.bins + 1)
        for place in range(self.bins):
            mine = cosines[at == place]
            if len(mine):
                quarters = np.quantile(mine, [0.25, 0.5, 0.75]).tolist()
                named = dict(zip(("quarter", "median", "three_quarters"), quarters, strict=True))
                yield {
                    "from": float(edges[place]),
                    "to": float(edges[place + 1]),
                    "n": len(mine),
                    **named,
                }

    def draw(self, tables: Tables, title: str) -> Chart:
        """A panel an encoder: its pairs, and the density of the cosines of each bin."""
        rows, violins = tables["pairs"], []
        edges = {(row["from"], row["to"]) for row in tables["bins"]}
        last = max(high for _, high in edges)
        for name, (low, high) in product(
            dict.fromkeys(row["encoder"] for row in rows), sorted(edges)
        ):
            below = high if high < last else high + 1
            mine = [
                row["cosine"]
                for row in rows
                if row["encoder"] == name and low <= row["gold"] < below
            ]
            if len(set(mine)) > 1:
                violins.append(Violin(name, (low + high) / 2, 0.9 * (high - low), mine))
        spots = [ScatterPoint(row["gold"], row["cosine"], row["encoder"]) for row in rows]
        return draw_spots(
            spots, violins=violins, x_label="gold score", y_label="cosine", title=title
        )
