"""Positions of embeddings: ``spectrum``, ``map`` and ``neighbours``.

How many directions embeddings use and how far they point one way (SimCSE, figure F.1); positives in
a plane (SG's appendix); the nearest sentences of a query, and how far encoders agree on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from stsbench.analysis.context import (
    EncoderAnalysis,
    EncoderFindings,
    EncoderOnTask,
    PlainRow,
    Tables,
)
from stsbench.encoders.base import EmbeddingRows, iter_blocks
from stsbench.evaluators.base import NonNegativeInt, PositiveInt
from stsbench.numbers.similarity import unit_rows
from stsbench.numbers.statistics import Float64Array, IntArray
from stsbench.plots.draw import LinePoint, draw_lines
from stsbench.plots.planes import HeatCell, ScatterPoint, draw_heat, draw_scatter

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


def singular_values(x: EmbeddingRows) -> Float64Array:
    """Return the d singular values of embeddings, the largest first, (d,).

    They are the roots of the eigenvalues of xᵀx, computed in float64, so that the rows are read
    once, a block at a time. Values below 1e-8 of the largest are rounding errors.

    Args:
        x: Embeddings, (n, d).
    """
    # From the smallest to the largest; rounding may make one negative.
    eigenvalues = np.linalg.eigvalsh(_inner_products(x))
    return np.asarray(np.sqrt(np.maximum(eigenvalues[::-1], 0.0)))


def mean_cosine(x: EmbeddingRows) -> float:
    """Return the mean cosine of all pairs of different rows of x; a zero vector has cosine 0.

    It measures anisotropy: how far embeddings point one way. Usually random pairs estimate it
    (Ethayarajh 2019, section 3.4). Here it is exact. With u_i the row i at length 1, it is
    (|sum of u_i|² - sum of |u_i|²) / (n (n - 1)).

    Args:
        x: Embeddings, (n, d), n of 2 or more.
    """
    sum_of_units = np.zeros(x.shape[1])
    squared_lengths = 0.0
    for block in iter_blocks(x):
        unit = unit_rows(block)
        sum_of_units = sum_of_units + unit.sum(axis=0)
        squared_lengths += float((unit * unit).sum())
    n = x.shape[0]
    return float((sum_of_units @ sum_of_units - squared_lengths) / (n * (n - 1)))


def partition_isotropy(x: EmbeddingRows) -> float:
    """Return how alike all directions are in embeddings, their isotropy, in (0, 1]; 1 is alike.

    For a direction c of length 1, let Z(c) be the sum of exp(c . row) over all rows of x. The
    isotropy is the smallest Z(c) over the largest one, where c is each eigenvector of xᵀx and its
    opposite (Mu and Viswanath 2018, section 2.2). Rows are scaled to a mean length of 1 first:
    otherwise the number depends on the scale of embeddings. Rows that are all zero have isotropy 1.

    Args:
        x: Embeddings, (n, d), read a block at a time.
    """
    sum_of_lengths = sum(
        float(np.linalg.norm(block.astype(np.float64), axis=1).sum()) for block in iter_blocks(x)
    )
    mean_length = sum_of_lengths / x.shape[0]
    if mean_length == 0:
        return 1.0
    _, eigenvectors = np.linalg.eigh(_inner_products(x))
    # Divided by the mean length, instead of all rows.
    directions = np.concatenate([eigenvectors, -eigenvectors], axis=1) / mean_length
    # Z(c) of each direction, (2d,).
    sums = sum(
        np.exp(block.astype(np.float64) @ directions).sum(axis=0) for block in iter_blocks(x)
    )
    return float(np.min(sums) / np.max(sums))


def _inner_products(x: EmbeddingRows, mean: Float64Array | float = 0.0) -> Float64Array:
    """Return the inner products of every two columns of x, (d, d), in float64.

    Args:
        x: Embeddings, (n, d), read a block at a time.
        mean: Subtracted from each row first, (d,); by default 0.
    """
    products = np.zeros((x.shape[1], x.shape[1]))
    for block in iter_blocks(x):
        rows = block.astype(np.float64) - mean
        products += rows.T @ rows
    return products


class Spectrum(EncoderAnalysis):
    """Singular values and isotropy of the distinct sentences of all splits of a task."""

    about = (
        "singular values, isotropy and the mean cosine of all pairs of sentences "
        "(SimCSE figure F.1)"
    )
    printed = ("encoders",)

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure how evenly the embeddings of one encoder use the directions of their space.

        Args:
            subject: The encoder, with the task, whose sentences of all splits are embedded.

        Returns:
            Two tables. ``encoders`` has one row: the numbers of sentences and of dimensions, the
            mean cosine of all pairs of sentences, the isotropy (1: all directions are alike), the
            effective rank (the exponential of the entropy of the singular values over their sum)
            and the first direction's share of the squared singular values. ``values`` has each
            singular value as a share of the largest. The mean is not subtracted from embeddings.
        """
        # Each distinct sentence once.
        x = subject.embed(subject.task.task.texts())
        values = singular_values(x)
        # Embeddings that are all zero have no spectrum; 1e-300 avoids a division by zero.
        shares_of_largest = values / max(float(values[0]), 1e-300)
        weights = values / max(float(values.sum()), 1e-300)
        # 0 log 0 counts as 0.
        positive_weights = weights[weights > 0]
        entropy = -(positive_weights * np.log(positive_weights)).sum()
        sum_of_squares = float((values**2).sum())
        encoder_row = {
            "sentences": x.shape[0],
            "dimensions": x.shape[1],
            "mean_cosine": mean_cosine(x),
            "isotropy": partition_isotropy(x),
            # Roy and Vetterli 2007.
            "effective_rank": float(np.exp(entropy)),
            "first_share": float(values[0] ** 2 / max(sum_of_squares, 1e-300)),
        }
        value_rows = [
            {"index": index, "value": float(share)}
            for index, share in enumerate(shares_of_largest, start=1)
        ]
        return EncoderFindings({"encoders": [encoder_row], "values": value_rows})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw singular values as shares of the largest, one line per encoder.

        Values of at most 1e-6 of the largest are taken for rounding errors, and omitted.

        Args:
            tables: ``values`` has a row for each encoder and ``index`` of a singular value.
            title: The title of the picture.
        """
        rows = [row for row in tables["values"] if row["value"] > 1e-6]
        points = [
            LinePoint(series=row["encoder"], size=row["index"], value=row["value"]) for row in rows
        ]
        return draw_lines(
            points,
            x_label="index of the singular value",
            y_label="share of the largest",
            title=title,
            y_scale="log10",
        )


def principal_plane(x: EmbeddingRows) -> tuple[Float64Array, Float64Array]:
    """Return the mean of embeddings and the two directions in which they vary most.

    These are the first two principal components. The sign of a direction is such that its number of
    largest absolute value is positive.

    Args:
        x: Embeddings, (n, d), read a block at a time.

    Returns:
        The mean, (d,), and the directions as columns, (d, 2), the largest variance first.
    """
    mean = sum(block.astype(np.float64).sum(axis=0) for block in iter_blocks(x)) / x.shape[0]
    # The eigenvectors are columns, that of the smallest eigenvalue first.
    _, eigenvectors = np.linalg.eigh(_inner_products(x, mean))
    plane = eigenvectors[:, ::-1][:, :2]
    largest_rows = np.abs(plane).argmax(axis=0)
    signs = np.sign(plane[largest_rows, np.arange(plane.shape[1])])
    return mean, plane * signs


def _project_by_pca(x: EmbeddingRows, sample: Float64Array, _seed: int) -> Float64Array:
    """Return a sample's points in the plane of the largest variance of all embeddings, (n, 2)."""
    mean, plane = principal_plane(x)
    return np.asarray((sample - mean) @ plane)


def _project_by_tsne(x: EmbeddingRows, sample: Float64Array, seed: int) -> Float64Array:
    """Return points in a plane for sampled embeddings, (n, 2), by t-SNE of the sample alone.

    Args:
        x: All embeddings; t-SNE does not use them.
        sample: The embeddings to project, (n, d), n of 4 or more.
        seed: Draws the points from which t-SNE starts.
    """
    from sklearn.manifold import TSNE

    # Perplexity is about the number of neighbours of a point. 30 is sklearn's default; t-SNE needs
    # about three times as many points.
    perplexity = min(30.0, (len(sample) - 1) / 3)
    tsne = TSNE(metric="cosine", init="random", perplexity=perplexity, random_state=seed)
    return np.asarray(tsne.fit_transform(sample), dtype=np.float64)


class Projection(NamedTuple):
    """A method that projects embeddings to a plane."""

    project: Callable[[EmbeddingRows, Float64Array, int], Float64Array]
    """Makes points (n, 2) from all embeddings, a sample of them (n, d) and a seed."""
    x_label: str
    y_label: str


PROJECTIONS: Mapping[str, Projection] = {
    "pca": Projection(
        _project_by_pca, x_label="first main direction", y_label="second main direction"
    ),
    "tsne": Projection(_project_by_tsne, x_label="t-SNE 1", y_label="t-SNE 2"),
}


@dataclass(frozen=True)
class SentenceMap(EncoderAnalysis):
    """Pairs ``above`` a gold score in a plane; ``pairs`` is their number, drawn by the seed.

    The method is ``pca``, the plane of the largest variance of all sentences, or ``tsne`` of the
    drawn pairs.
    """

    about = "sentences in a plane, positives joined, and how long the joins are"
    printed = ("encoders",)

    method: Literal["pca", "tsne"] = "pca"
    above: float = 4.0
    pairs: Annotated[int, Meta(ge=3)] = 60
    seed: NonNegativeInt = 0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Project the sentences of some similar pairs to a plane by the embeddings of one encoder.

        ``self.pairs`` pairs with a gold score above ``self.above`` are drawn with ``self.seed``;
        ``self.method`` is the projection, ``pca`` or ``tsne``.

        Args:
            subject: The encoder, with the task.

        Returns:
            Two tables. ``encoders`` has one row: the mean distance in the plane of the two
            sentences of a pair (``join``), that of any two sentences (``any_two``), and their
            ratio. ``points`` has the coordinates of each sentence, with the number of its ``pair``
            among the drawn ones, from 0.
        """
        split = subject.pairs()
        positives = subject.positives(split, self.above, least=3)
        rng = np.random.default_rng(self.seed)
        pair_indices = np.sort(rng.permutation(positives)[: self.pairs])
        x = subject.embed(split.texts())
        # Among the texts, the second sentences of all pairs follow the first ones.
        rows = np.concatenate([pair_indices, pair_indices + split.n])
        sample = x.take(rows).astype(np.float64)
        # Points of the sample, (2p, 2): pca takes the plane of the largest variance of all x, tsne
        # places the sample by itself.
        points = PROJECTIONS[self.method].project(x, sample, self.seed)
        first_points, second_points = np.split(points, 2)
        mean_join = float(np.linalg.norm(first_points - second_points, axis=1).mean())
        # The distances of each two points, (2p, 2p) for p pairs; above the diagonal each is once.
        distances = np.linalg.norm(points[:, None] - points[None], axis=2)
        mean_distance = float(distances[np.triu_indices(len(points), 1)].mean())
        encoder_row = {
            "join": mean_join,
            "any_two": mean_distance,
            "ratio": mean_join / max(mean_distance, 1e-300),
        }
        point_rows = []
        for side, side_points in ((1, first_points), (2, second_points)):
            for pair, (point_x, point_y) in enumerate(side_points.tolist()):
                point_rows.append({"pair": pair, "side": side, "x": point_x, "y": point_y})
        return EncoderFindings({"encoders": [encoder_row], "points": point_rows})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw one panel per encoder, with a line between the two sentences of a pair.

        Args:
            tables: ``points`` has the coordinates ``x`` and ``y`` of each sentence of each
                encoder, and the number of its ``pair``.
            title: The title of the picture.
        """
        points = [
            # Points of a panel with the same `joined` are joined by a line.
            ScatterPoint(x=row["x"], y=row["y"], panel=row["encoder"], joined=f"{row['pair']}")
            for row in tables["points"]
        ]
        # self.method is the projection, pca or tsne.
        projection = PROJECTIONS[self.method]
        # Each panel has axes of its own: distances of two encoders do not compare.
        return draw_scatter(
            points,
            x_label=projection.x_label,
            y_label=projection.y_label,
            title=title,
            same_scale=False,
        )


class NearestRows(NamedTuple):
    """The k nearest rows of q queries, the nearest first; both are (q, k)."""

    rows: IntArray
    """The indices of the rows."""
    cosines: Float64Array
    """Their cosines with the query."""


def nearest(
    queries: EmbeddingRows, x: EmbeddingRows, k: int, *, excluded: IntArray | None = None
) -> NearestRows:
    """Return the k rows of x nearest to each query by cosine, of equally near rows the first.

    Args:
        queries: Embeddings, (q, d).
        x: Embeddings, (n, d), read a block at a time.
        k: The number of rows, n at most; less than n if rows are excluded.
        excluded: For each query the index of a row of x to exclude, that of the query itself, (q,);
            -1 for no row. None: no rows are excluded.

    Returns:
        The indices of the rows and their cosines, (q, k) each, the nearest first. The cosine with a
        zero vector is 0.
    """
    query_units = unit_rows(np.concatenate(list(iter_blocks(queries))))
    # The best rows so far, (q, up to k).
    rows = np.empty((len(query_units), 0), dtype=np.int64)
    cosines = np.empty((len(query_units), 0))
    # The index in x of the block's first row.
    start = 0
    for block in iter_blocks(x):
        block_cosines = query_units @ unit_rows(block).T
        block_rows = np.arange(start, start + len(block))
        if excluded is not None:
            # (q, rows of the block).
            is_excluded = excluded[:, None] == block_rows[None, :]
            block_cosines[is_excluded] = -np.inf
        rows = np.concatenate([rows, np.broadcast_to(block_rows, block_cosines.shape)], axis=1)
        cosines = np.concatenate([cosines, block_cosines], axis=1)
        # The columns are the k best so far, then this block. The sort is stable, so that of equal
        # cosines the earlier row comes first.
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        rows = np.take_along_axis(rows, best, axis=1)
        cosines = np.take_along_axis(cosines, best, axis=1)
        start += len(block)
    return NearestRows(rows, cosines)


class _NeighbourLists(NamedTuple):
    """The neighbours by one encoder, to be compared with those by others."""

    rows: list[PlainRow]
    """The neighbours of the queries, one row per query and rank."""
    sample: list[list[int]]
    """The indices of the nearest sentences of each sentence of the sample."""


@dataclass(frozen=True)
class Neighbours(EncoderAnalysis):
    """The ``k`` nearest sentences of queries among the distinct ones of a task's split.

    The default queries are three sentences that the seed draws. The neighbours of a ``sample`` of
    the task's sentences are compared between encoders.
    """

    about = (
        "the nearest sentences of a query by each encoder, "
        "and the share of neighbours that two encoders share"
    )
    printed = ("side_by_side", "agreement")

    query: Sequence[str] | str = ()
    k: PositiveInt = 5
    sample: PositiveInt = 500
    seed: NonNegativeInt = 0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Find the ``self.k`` nearest sentences of each query by one encoder.

        Queries are those of the user, ``self.query``, or else three sentences of the task. A query
        that is a sentence of the task is not its own neighbour. ``self.sample`` sentences, drawn
        with ``self.seed``, are for the comparison of encoders; the three are the first of them.

        Args:
            subject: The encoder, with the task, among whose sentences neighbours are searched.

        Returns:
            The table ``neighbours``, with a row for each query and rank. The measurement, for
            comparisons, is that table and the neighbours of the sampled sentences.
        """
        # The distinct sentences that the task's score needs, not those of all its splits.
        texts = list(dict.fromkeys(subject.task.texts()))
        shuffled_rows = np.random.default_rng(self.seed).permutation(len(texts))
        sample_rows = shuffled_rows[: self.sample]
        queries = [self.query] if isinstance(self.query, str) else list(self.query)
        if not queries:
            queries = [texts[row] for row in sample_rows[:3]]
        # The index of each query among the texts; -1 if it is none of them.
        row_by_text = {text: row for row, text in enumerate(texts)}
        query_rows = np.array([row_by_text.get(query, -1) for query in queries])
        x = subject.embed(texts)
        # A sentence has no more neighbours than there are other sentences.
        k = min(self.k, len(texts) - 1)
        query_neighbours = nearest(subject.embed_in_memory(queries), x, k, excluded=query_rows)
        table_rows: list[PlainRow] = []
        for index, query in enumerate(queries):
            text_rows = query_neighbours.rows[index].tolist()
            cosines = query_neighbours.cosines[index].tolist()
            for rank, (row, cosine) in enumerate(zip(text_rows, cosines, strict=True), start=1):
                table_rows.append(
                    {"query": query, "rank": rank, "cosine": float(cosine), "sentence": texts[row]}
                )
        sample_neighbours = nearest(x.take(sample_rows), x, k, excluded=sample_rows)
        return EncoderFindings(
            {"neighbours": table_rows},
            _NeighbourLists(table_rows, sample_neighbours.rows.tolist()),
        )

    def compare_encoders(self, measurements: Mapping[str, _NeighbourLists]) -> Tables:
        """Compare the neighbours that encoders find.

        Args:
            measurements: Name of the encoder -> its neighbours: ``rows``, one for each query and
                rank, and ``sample``, the indices of those of each sampled sentence. All encoders
                have the same queries and sampled sentences.

        Returns:
            Two tables. ``side_by_side`` has a row for each query and rank, with the sentence that
            each encoder finds. ``agreement`` has for each two encoders the mean share of the
            neighbours of a sampled sentence that both find.
        """
        side_by_side: list[PlainRow] = []
        row_lists = [measurement.rows for measurement in measurements.values()]
        # Each time the rows of one query and rank, one of each encoder.
        for rows in zip(*row_lists, strict=True):
            sentences = [row["sentence"] for row in rows]
            side_by_side.append(
                {
                    "query": rows[0]["query"],
                    "rank": rows[0]["rank"],
                    **dict(zip(measurements, sentences, strict=True)),
                }
            )
        agreement: list[PlainRow] = []
        for (first_name, first), (second_name, second) in product(measurements.items(), repeat=2):
            shared = _shared_neighbours(first.sample, second.sample)
            agreement.append({"encoder": first_name, "other": second_name, "shared": shared})
        return {"side_by_side": side_by_side, "agreement": agreement}

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw the share of neighbours that each two encoders have in common, as a heat map.

        Args:
            tables: ``agreement`` has the share ``shared`` of each two encoders.
            title: The title of the picture.
        """
        cells = [
            HeatCell(row=row["encoder"], column=row["other"], value=100 * row["shared"])
            for row in tables["agreement"]
        ]
        return draw_heat(
            cells,
            row_label="",
            column_label="",
            value_label="shared neighbours in percent",
            title=title,
        )


def _shared_neighbours(first: Sequence[list[int]], second: Sequence[list[int]]) -> float:
    """Return the share of a sentence's neighbours that two encoders both find, as a mean.

    Args:
        first: For each sentence the indices of its nearest sentences by one encoder.
        second: Those of the same sentences by another encoder.
    """
    shares = [
        len({*neighbours} & {*other_neighbours}) / len(neighbours)
        for neighbours, other_neighbours in zip(first, second, strict=True)
    ]
    return float(np.mean(shares))
