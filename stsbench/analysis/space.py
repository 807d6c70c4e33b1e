"""Positions of embeddings: ``spectrum``, ``map``, ``neighbours``, ``alignment``, ``similarity``.

How many directions embeddings use and how far they point one way (SimCSE, figure F.1); positives in
a plane (SG's appendix); the nearest sentences of a query, and how far encoders agree on them; how
close positives are and how evenly sentences are spread (Wang and Isola 2020; SimCSE, figures 2 and
3); gold scores against cosines (ConSERT, figure 1), and cosines by bin of gold (SimCSE, figure
G.1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from stsbench.data.splits import PairSplit
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
    draw_scatter,
)

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


def singular_values(x: EmbeddingRows) -> Float64Array:
    """Return the singular values of embeddings (n, d), (d,), the largest first.

    The rows are read once, a block at a time: the values are the roots of the eigenvalues of xᵀx in
    float64. Values below 1e-8 of the largest are rounding errors.
    """
    eigenvalues = np.linalg.eigvalsh(_inner_products(x))[::-1]
    return np.asarray(np.sqrt(np.maximum(eigenvalues, 0.0)))


def mean_cosine(x: EmbeddingRows) -> float:
    """Return the mean cosine of all distinct pairs of rows of x (n, d); a zero vector has cosine 0.

    Anisotropy is usually measured by random pairs, which estimate it (Ethayarajh 2019, section
    3.4). Here it is exact: the squared length of the sum of unit vectors, less each one's own, over
    n(n - 1). n is 2 or more.
    """
    total = np.zeros(x.shape[1])
    squared_lengths = 0.0
    for block in iter_blocks(x):
        unit = unit_rows(block)
        total = total + unit.sum(axis=0)
        squared_lengths += float((unit * unit).sum())
    n = x.shape[0]
    return float((total @ total - squared_lengths) / (n * (n - 1)))


def partition_isotropy(x: EmbeddingRows) -> float:
    """Return the isotropy of x (n, d) by its partition function, in (0, 1].

    1 means that all directions are alike. It is the smallest over the largest of Z(c), the sum of
    exp(c . row), for each eigenvector c of xᵀx in both directions (Mu and Viswanath 2018, section
    2.2). Rows are scaled to a mean length of 1 first: otherwise the number depends on the scale of
    embeddings.
    """
    total_length = sum(
        float(np.linalg.norm(block.astype(np.float64), axis=1).sum()) for block in iter_blocks(x)
    )
    mean_length = total_length / x.shape[0]
    if mean_length == 0:
        return 1.0
    _, eigenvectors = np.linalg.eigh(_inner_products(x))
    directions = np.concatenate([eigenvectors, -eigenvectors], axis=1) / mean_length
    # Z(c) of each direction, (2d,).
    sums = sum(
        np.exp(block.astype(np.float64) @ directions).sum(axis=0) for block in iter_blocks(x)
    )
    return float(np.min(sums) / np.max(sums))


def _inner_products(x: EmbeddingRows, mean: Float64Array | float = 0.0) -> Float64Array:
    """Return the inner products of the columns of x (n, d) less a mean, (d, d)."""
    total = np.zeros((x.shape[1], x.shape[1]))
    for block in iter_blocks(x):
        rows = block.astype(np.float64) - mean
        total += rows.T @ rows
    return total


class Spectrum(EncoderAnalysis):
    """Singular values and isotropy of the distinct sentences of all splits of a task."""

    about = (
        "singular values, isotropy and the mean cosine of all pairs of sentences "
        "(SimCSE figure F.1)"
    )
    printed = ("encoders",)

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure the embeddings of one encoder."""
        x = subject.embed(subject.task.task.texts())
        values = singular_values(x)
        shares_of_largest = values / max(float(values[0]), 1e-300)
        weights = values / max(float(values.sum()), 1e-300)
        # 0 log 0 counts as 0.
        positive_weights = weights[weights > 0]
        row = {
            "sentences": x.shape[0],
            "dimensions": x.shape[1],
            "mean_cosine": mean_cosine(x),
            "isotropy": partition_isotropy(x),
            # The exponential of their entropy (Roy and Vetterli 2007).
            "effective_rank": float(np.exp(-(positive_weights * np.log(positive_weights)).sum())),
            "first_share": float(values[0] ** 2 / max(float((values**2).sum()), 1e-300)),
        }
        spectrum = [
            {"index": index, "value": float(share)}
            for index, share in enumerate(shares_of_largest, start=1)
        ]
        return EncoderFindings({"encoders": [row], "values": spectrum})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw singular values as shares of the largest, one line per encoder.

        Values that are rounding errors are omitted.

        Args:
            tables: ``values``, the share of the largest by encoder and index.
            title: The title of the picture.
        """
        # Below are rounding errors: singular values are roots of eigenvalues in float64.
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
    """Return the mean of x (n, d) and its two main directions, the largest variance first.

    A direction's sign is such that its largest number is positive.

    Returns:
        The mean, (d,), and the directions, (d, 2).
    """
    mean = sum(block.astype(np.float64).sum(axis=0) for block in iter_blocks(x)) / x.shape[0]
    _, vectors = np.linalg.eigh(_inner_products(x, mean))
    # eigh returns the eigenvectors as columns, the smallest eigenvalue first.
    plane = vectors[:, ::-1][:, :2]
    # The number of largest absolute value in each of the two columns decides its sign.
    signs = np.sign(plane[np.abs(plane).argmax(axis=0), np.arange(plane.shape[1])])
    return mean, plane * signs


def _project_by_pca(x: EmbeddingRows, sample: Float64Array, _seed: int) -> Float64Array:
    """Return a sample's places in the plane of the largest variance of all embeddings, (n, 2)."""
    mean, plane = principal_plane(x)
    return np.asarray((sample - mean) @ plane)


def _project_by_tsne(x: EmbeddingRows, sample: Float64Array, seed: int) -> Float64Array:
    """Return the places of sampled embeddings by t-SNE of them alone, (n, 2).

    Args:
        x: All embeddings; t-SNE does not use them.
        sample: The embeddings to project, (n, d), n of 4 or more.
        seed: Draws the first places.
    """
    from sklearn.manifold import TSNE

    # 30 is sklearn's default; t-SNE needs about three neighbours per unit of it.
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
        """Project the sentences by the embeddings of one encoder."""
        split = subject.pairs()
        positives = subject.positives(split, self.above, least=3)
        rng = np.random.default_rng(self.seed)
        pair_rows = np.sort(rng.permutation(positives)[: self.pairs])
        x = subject.embed(split.texts())
        # The second sentences follow the first ones.
        rows = np.concatenate([pair_rows, pair_rows + split.n])
        sample = x.take(rows).astype(np.float64)
        points = PROJECTIONS[self.method].project(x, sample, self.seed)
        first, second = np.split(points, 2)
        join_lengths = np.linalg.norm(first - second, axis=1)
        # The distances of each two points, (2p, 2p) for p pairs; above the diagonal each is once.
        lengths = np.linalg.norm(points[:, None] - points[None], axis=2)
        mean_length = float(lengths[np.triu_indices(len(points), 1)].mean())
        row = {
            "join": float(join_lengths.mean()),
            "any_two": mean_length,
            "ratio": float(join_lengths.mean()) / max(mean_length, 1e-300),
        }
        point_rows = [
            {"pair": pair, "side": side, "x": float(x), "y": float(y)}
            for side, side_points in ((1, first), (2, second))
            for pair, (x, y) in enumerate(side_points)
        ]
        return EncoderFindings({"encoders": [row], "points": point_rows})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw one panel per encoder, with a line between the two sentences of a pair.

        Args:
            tables: ``points``, the place of each sentence by encoder.
            title: The title of the picture.
        """
        points = [
            ScatterPoint(x=row["x"], y=row["y"], panel=row["encoder"], joined=f"{row['pair']}")
            for row in tables["points"]
        ]
        projection = PROJECTIONS[self.method]
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
    """Return the k rows of x nearest to each query by cosine, of equals the first.

    Args:
        queries: Embeddings, (q, d).
        x: Embeddings, (n, d), read a block at a time.
        k: The number of rows, n at most.
        excluded: For each query a row of x to exclude, that of the query itself, (q,); -1 for no
            row. By default no rows are excluded.
    """
    query_units = unit_rows(np.concatenate(list(iter_blocks(queries))))
    rows = np.empty((len(query_units), 0), dtype=np.int64)
    cosines = np.empty((len(query_units), 0))
    start = 0
    for block in iter_blocks(x):
        block_cosines = query_units @ unit_rows(block).T
        block_rows = np.arange(start, start + len(block))
        if excluded is not None:
            # (q, rows of the block): the one row of each query that must never be the nearest.
            block_cosines[excluded[:, None] == block_rows[None, :]] = -np.inf
        rows = np.concatenate([rows, np.broadcast_to(block_rows, block_cosines.shape)], axis=1)
        cosines = np.concatenate([cosines, block_cosines], axis=1)
        # Columns: the k best so far, then this block; stable, so that of equals the earlier row
        # wins.
        best = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
        rows = np.take_along_axis(rows, best, axis=1)
        cosines = np.take_along_axis(cosines, best, axis=1)
        start += len(block)
    return NearestRows(rows, cosines)


class _NeighbourLists(NamedTuple):
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
        """Find the neighbours by one encoder."""
        texts = list(dict.fromkeys(subject.task.texts()))
        sample_rows = np.random.default_rng(self.seed).permutation(len(texts))[: self.sample]
        queries = [self.query] if isinstance(self.query, str) else list(self.query)
        if not queries:
            queries = [texts[row] for row in sample_rows[:3]]
        row_of_text = {text: row for row, text in enumerate(texts)}
        query_rows = np.array([row_of_text.get(query, -1) for query in queries])
        x = subject.embed(texts)
        query_neighbours = nearest(subject.array(queries), x, self.k, excluded=query_rows)
        rows: list[PlainRow] = []
        for query, neighbours, cosines in zip(queries, *query_neighbours, strict=True):
            ranked = enumerate(zip(neighbours.tolist(), cosines.tolist(), strict=True), start=1)
            for rank, (row, cosine) in ranked:
                rows.append(
                    {"query": query, "rank": rank, "cosine": float(cosine), "sentence": texts[row]}
                )
        sample_neighbours = nearest(x.take(sample_rows), x, self.k, excluded=sample_rows)
        return EncoderFindings(
            {"neighbours": rows}, _NeighbourLists(rows, sample_neighbours.rows.tolist())
        )

    def compare_encoders(self, measurements: Mapping[str, _NeighbourLists]) -> Tables:
        """Return the neighbours side by side, and the share that each two encoders share.

        Args:
            measurements: By encoder, the neighbours of the same queries and sentences.
        """
        side_by_side: list[PlainRow] = []
        row_lists = [measurement.rows for measurement in measurements.values()]
        # The rows of one query and rank, by each encoder.
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
        """Draw which encoders find the same neighbours.

        Args:
            tables: ``agreement``, the share of neighbours that each two encoders share.
            title: The title of the picture.
        """
        cells = [
            HeatCell(row["encoder"], column=row["other"], value=100 * row["shared"])
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
    """Return the mean share of a sentence's neighbours that are in both lists.

    Args:
        first: The neighbours of each sentence by one encoder.
        second: The neighbours of the same sentences by another encoder.
    """
    shares = [
        len({*neighbours} & {*other_neighbours}) / len(neighbours)
        for neighbours, other_neighbours in zip(first, second, strict=True)
    ]
    return float(np.mean(shares))


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

    above: float = 4.0
    t: PositiveFloat = 2.0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder, and read the validations of a trained one.

        The validations are those on the split by which it was chosen.
        """
        pairs = subject.pairs(all_splits=True)
        positives = subject.positives(pairs, self.above)
        texts = list(dict.fromkeys(pairs.texts()))
        step = math.ceil(len(texts) / MAX_UNIFORMITY_SENTENCES)
        # Evenly from all splits, instead of the first ones only.
        texts = texts[::step]
        row: PlainRow = {
            "alignment": _mean_alignment(subject, pairs, positives),
            "uniformity": uniformity(subject.array(texts), self.t),
            "score": subject.score().score,
            "positives": len(positives),
            "sentences": len(texts),
        }
        run = subject.named_encoder.run
        curve = run.record.get("curve", []) if run is not None else []
        keys = ("step", "alignment", "uniformity", "score")
        # A validation that recorded no alignment or uniformity is no point.
        training = [{key: point[key] for key in keys} for point in curve if {*keys} <= point.keys()]
        return EncoderFindings({"encoders": [row], "training": training})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw encoders coloured by score, and in a panel of its own the path of each training.

        Args:
            tables: ``encoders``, a row each, and ``training``, a row for each validation.
            title: The title of the picture.
        """
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
    """Return the alignment of some pairs, their mean squared distance, embedded part by part.

    Args:
        subject: Embeds the sentences.
        pairs: All pairs.
        positives: The rows of the pairs to measure, at least one.
    """
    total = 0.0
    for start in range(0, len(positives), ROWS_AT_ONCE):
        rows = positives[start : start + ROWS_AT_ONCE]
        first, second = (subject.array([side[row] for row in rows]) for side in pairs.sides)
        total += len(first) * alignment(first, second)
    return total / len(positives)


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
        bins: The number of bins.

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
    """Return the bin of each gold score, (n,).

    Args:
        gold: The gold scores, (n,).
        bins: The number of equal bins between the lowest and the highest score.
    """
    low = float(gold.min())
    high = float(gold.max())
    indices = ((gold - low) / max(high - low, 1e-12) * bins).astype(np.int64)
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

    bins: Annotated[int, Meta(ge=2)] = 5

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure the cosines of one encoder."""
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
        # unique, as rounding may give a row twice.
        drawn_rows = np.unique(np.linspace(0, len(gold) - 1, n_drawn).astype(np.int64))
        pair_rows: list[PlainRow] = [
            {"gold": float(gold[row]), "cosine": float(cosines[row])} for row in drawn_rows
        ]
        bin_rows = list(self._measure_bins(cosines, gold))
        return EncoderFindings({"encoders": [encoder_row], "bins": bin_rows, "pairs": pair_rows})

    def _measure_bins(self, cosines: Float64Array, gold: Float64Array) -> Iterator[PlainRow]:
        """Yield the quartiles of the cosines of each bin of gold scores that is not empty.

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
            tables: ``pairs``, the gold score and cosine of each pair, and ``bins``, by encoder.
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
    """Yield the density of each encoder's cosines in each bin of gold scores.

    A bin in which all cosines are equal has none.

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
