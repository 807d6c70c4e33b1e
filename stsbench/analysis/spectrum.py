"""``spectrum``: how many directions embeddings use (SimCSE, figure F.1), and how far they point one way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stsbench.analysis.seams import EncoderAnalysis, Measurement, Subject, Tables
from stsbench.encoders.seams import EmbeddingRows, blocks
from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.closeness import unit_rows

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


def singular_values(x: EmbeddingRows) -> Float64Array:
    """Return the singular values of embeddings (n, d), (d,), the largest first.

    The rows are read once, a block at a time: the values are the roots of the eigenvalues of xᵀx in float64. Those below
    1e-8 of the largest are rounding.
    """
    found: Float64Array = np.sqrt(np.maximum(np.linalg.eigvalsh(_products(x))[::-1], 0.0))
    return found


def mean_cosine(x: EmbeddingRows) -> float:
    """Return the mean cosine of all distinct pairs of rows of x (n, d), n of 2 or more; a zero vector has cosine 0.

    Where anisotropy is measured, random pairs estimate it (Ethayarajh 2019, section 3.4). Here it is exact: the squared
    length of the sum of unit vectors, less each one's own, over n(n - 1).
    """
    total, own = np.zeros(x.shape[1]), 0.0
    for block in blocks(x):
        unit = unit_rows(block)
        total, own = total + unit.sum(axis=0), own + float((unit * unit).sum())
    return float((total @ total - own) / (x.shape[0] * (x.shape[0] - 1)))


def partition_isotropy(x: EmbeddingRows) -> float:
    """Return the isotropy of x (n, d) by its partition function, above 0 and up to 1; 1: all directions are alike.

    It is the smallest over the largest of Z(c), the sum of exp(c . row), where c is each eigenvector of xᵀx, both ways
    round (Mu and Viswanath 2018, section 2.2). Rows are scaled to a mean length of 1 first: without that the number depends
    on the scale of embeddings.
    """
    length = sum(float(np.linalg.norm(block.astype(np.float64), axis=1).sum()) for block in blocks(x)) / x.shape[0]
    if length == 0:
        return 1.0
    _, directions = np.linalg.eigh(_products(x))
    both = np.concatenate([directions, -directions], axis=1) / length
    sums = sum(np.exp(block.astype(np.float64) @ both).sum(axis=0) for block in blocks(x))
    return float(np.min(sums) / np.max(sums))


def _products(x: EmbeddingRows) -> Float64Array:
    total = np.zeros((x.shape[1], x.shape[1]))
    for block in blocks(x):
        rows = block.astype(np.float64)
        total += rows.T @ rows
    return total


class Spectrum(EncoderAnalysis):
    """Singular values and isotropy of the distinct sentences of all splits of a task."""

    about = "singular values, isotropy and the mean cosine of all pairs of sentences (SimCSE figure F.1)"
    printed = ("encoders",)

    def measure(self, subject: Subject) -> Measurement:
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
        spectrum = [{"index": at, "value": float(share)} for at, share in enumerate(shares, start=1)]
        return Measurement({"encoders": [row], "values": spectrum})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Singular values as shares of the largest, a line an encoder; those that are rounding are left out."""
        from stsbench.plots.lines import LinePoint, draw_lines

        rows = [row for row in tables["values"] if row["value"] > 1e-6]
        points = [LinePoint(row["encoder"], row["index"], row["value"]) for row in rows]
        return draw_lines(
            points, sizes="index of the singular value", values="share of the largest", title=title, value_scale="log10"
        )
