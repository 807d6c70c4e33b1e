"""Embeddings calibrated by their mean, their deviations and their main directions (BERT-flow, section 4.4 and table 5).

Standard normalisation takes each dimension's mean away and divides it by its standard deviation. Removing directions takes
the mean away and then what lies along the k directions of the largest variance (Mu and Viswanath 2018, "All-but-the-top",
https://arxiv.org/abs/1702.01417, algorithm 1). Where both are asked for, directions are those of the normalised embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.fitted.fitted import PostProcessed, Tensors
from stsbench.encoders.fitted.moments import Array, Moments
from stsbench.encoders.loading import find_base
from stsbench.encoders.seams import Encoder, FloatArray
from stsbench.errors import CardError, EncoderError

CODE_VERSION = 1
"""Raise when a change here can change an embedding: kept fits are then not reused."""


class CalibrationFit:
    """What is taken from embeddings: a mean (d,), deviations (d,) and directions (d, k)."""

    notes = ()

    def __init__(self, mean: Array, deviation: Array, directions: Array) -> None:
        """Keep what was learned; ``deviation`` is 1 where dimensions keep their scale."""
        self.mean, self.deviation, self.directions = mean, deviation, directions

    def transform(self, embeddings: FloatArray) -> FloatArray:
        """Return calibrated embeddings, (n, d) to (n, d)."""
        scaled: Array = (embeddings.astype(np.float64) - self.mean) / self.deviation
        along = scaled @ self.directions
        return (scaled - along @ self.directions.T).astype(np.float32)

    def tensors(self) -> Tensors:
        """Mean, deviations and directions."""
        return {"mean": self.mean, "deviation": self.deviation, "directions": self.directions}


class CalibrationMethod:
    """How embeddings are calibrated on those of texts."""

    reads_embeddings = True
    libraries = ()

    def __init__(self, *, standardise: bool, remove: int) -> None:
        """Keep whether each dimension is standardised, and the number of directions to remove."""
        self.standardise, self.remove = standardise, remove

    def params(self) -> Mapping[str, Any]:
        """All that decides the result."""
        return {"kind": "calibration", "code": CODE_VERSION, "standardise": self.standardise, "remove": self.remove}

    def fit(self, base: Encoder, sentences: Sequence[str]) -> CalibrationFit:
        """Fit on the embeddings of these sentences.

        Raises:
            EncoderError: fewer than two, or fewer directions than are to be removed.
        """
        moments = Moments().add_texts(base, sentences)
        if moments.count < 2:
            raise EncoderError(f"calibration needs at least two texts, not {moments.count}")
        d = len(moments.mean)
        if self.remove >= d:
            raise EncoderError(f"remove = {self.remove} leaves nothing of embeddings of {d} numbers; give less")
        covariance = moments.scatter / moments.count
        deviation = np.sqrt(np.diag(covariance)) if self.standardise else np.ones(d)
        # A dimension that is the same everywhere has no deviation, and is 0 without its mean.
        deviation = np.where(deviation > 0, deviation, 1.0)
        _, vectors = np.linalg.eigh(covariance / np.outer(deviation, deviation))
        return CalibrationFit(moments.mean, deviation, np.ascontiguousarray(vectors[:, d - self.remove :]))

    def restore(self, tensors: Tensors) -> CalibrationFit:
        """Return the calibration that these tensors were taken from."""
        return CalibrationFit(*(tensors[name] for name in ("mean", "deviation", "directions")))


def calibrated_encoder(
    base: str,
    *,
    name: str = "",
    standardise: bool = True,
    remove: int = 0,
    fit: str = "target",
    base_params: Mapping[str, Any] | None = None,
    model: str | None = None,
    catalogue: Catalogue | None = None,
) -> PostProcessed:
    """Make the kind ``calibration``: any encoder's embeddings, standardised or without their main directions.

    Args:
        base: the encoder whose embeddings are calibrated: a card or a checkpoint.
        name: what results call it.
        standardise: whether each dimension gets mean 0 and deviation 1.
        remove: the number of directions of the largest variance to remove.
        fit: which texts it is fitted on, see :mod:`stsbench.bench.fit_texts`.
        base_params: parameters that replace those of the base's card.
        model: the checkpoint of a base whose card names none.
        catalogue: where to look for the base's card.

    Raises:
        CardError: nothing is to be done.
    """
    if remove < 0 or not (standardise or remove):
        raise CardError(f"standardise = {standardise}, remove = {remove} change nothing; give remove = 1 or more")
    found = find_base(base, {**(base_params or {}), **({"model": model} if model else {})}, catalogue)
    method = CalibrationMethod(standardise=standardise, remove=remove)
    return PostProcessed(found, method, name=name or f"{base}-calibration", fit=fit)
