"""``map``: sentences in a plane, positives joined (as in SG's appendix): PCA, or t-SNE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stsbench.analysis.seams import EncoderAnalysis, Measurement, Subject, Tables, check_least
from stsbench.encoders.seams import EmbeddingRows, blocks
from stsbench.errors import choose
from stsbench.numbers.arrays import Float64Array

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


def principal_plane(x: EmbeddingRows) -> tuple[Float64Array, Float64Array]:
    """Return the mean (d,) of x (n, d) and its two main directions (d, 2), the largest variance first.

    A direction's sign is such that its largest number is positive.
    """
    n, total, products = x.shape[0], np.zeros(x.shape[1]), np.zeros((x.shape[1], x.shape[1]))
    for block in blocks(x):
        total += block.astype(np.float64).sum(axis=0)
    mean = total / n
    for block in blocks(x):
        centred = block.astype(np.float64) - mean
        products += centred.T @ centred
    _, vectors = np.linalg.eigh(products)
    plane = vectors[:, ::-1][:, :2]
    signs = np.sign(plane[np.abs(plane).argmax(axis=0), np.arange(plane.shape[1])])
    return mean, plane * signs


def _pca(every: EmbeddingRows, drawn: Float64Array, seed: int) -> Float64Array:
    mean, plane = principal_plane(every)
    found: Float64Array = (drawn - mean) @ plane
    return found


def _tsne(every: EmbeddingRows, drawn: Float64Array, seed: int) -> Float64Array:
    from sklearn.manifold import TSNE

    near = min(30.0, (len(drawn) - 1) / 3)
    found = TSNE(metric="cosine", init="random", perplexity=near, random_state=seed).fit_transform(drawn)
    return np.asarray(found, dtype=np.float64)


class Projection(NamedTuple):
    """How points (n, 2) are made of all embeddings and of those that are drawn, and what their axes are."""

    make: Callable[[EmbeddingRows, Float64Array, int], Float64Array]
    axes: tuple[str, str]


PROJECTIONS: Mapping[str, Projection] = {
    "pca": Projection(_pca, ("first main direction", "second main direction")),
    "tsne": Projection(_tsne, ("t-SNE 1", "t-SNE 2")),
}


class SentenceMap(EncoderAnalysis):
    """Pairs above a gold score in a plane."""

    about = "sentences in a plane, positives joined, and how long the joins are"
    printed = ("encoders",)

    def __init__(self, method: str = "pca", above: float = 4.0, pairs: int = 60, seed: int = 0) -> None:
        """Say what is drawn and how.

        Args:
            method: ``pca``, the plane of most variance of all sentences, or ``tsne`` of those that are drawn.
            above: pairs are joined above this gold score.
            pairs: how many are drawn.
            seed: what they are drawn by.
        """
        check_least("pairs", pairs, 3)
        check_least("seed", seed, 0)
        self.projection = choose("method of a map", method, PROJECTIONS)
        self.above, self.pairs, self.seed = above, pairs, seed

    def measure(self, subject: Subject) -> Measurement:
        """Place the sentences by one encoder."""
        split = subject.pairs()
        close = subject.positives(split, self.above, least=3)
        drawn = np.sort(np.random.default_rng(self.seed).permutation(close)[: self.pairs])
        x = subject.embed(split.texts())
        rows = np.concatenate([drawn, drawn + split.n])
        points = self.projection.make(x, x.take(rows).astype(np.float64), self.seed)
        first, second = np.split(points, 2)
        joins = np.linalg.norm(first - second, axis=1)
        apart = np.linalg.norm(points[:, None] - points[None], axis=2)
        any_two = float(apart[np.triu_indices(len(points), 1)].mean())
        number = {"join": float(joins.mean()), "any_two": any_two, "ratio": float(joins.mean()) / max(any_two, 1e-300)}
        ends = ((pair, side, point) for side, ends in enumerate((first, second), 1) for pair, point in enumerate(ends))
        table = [{"pair": pair, "side": side, "x": float(x), "y": float(y)} for pair, side, (x, y) in ends]
        return Measurement({"encoders": [number], "points": table})

    def draw(self, tables: Tables, title: str) -> Chart:
        """A panel an encoder."""
        from stsbench.plots.spots import Spot, draw_spots

        spots = [Spot(row["x"], row["y"], row["encoder"], joined=f"{row['pair']}") for row in tables["points"]]
        across, up = self.projection.axes
        return draw_spots(spots, across=across, up=up, title=title, same_scale=False)
