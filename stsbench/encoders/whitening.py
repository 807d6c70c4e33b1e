"""BERT-whitening: embeddings made uncorrelated and of equal variance (https://arxiv.org/abs/2103.15316).

With the covariance Sigma = U Lambda U^T of the texts' embeddings (over n - 1, as ``np.cov``), an
embedding x becomes (x - mean) U Lambda^(-1/2), of which the first k columns are kept: those of
the largest variance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.fitted.fitted import PostProcessed, Tensors
from stsbench.encoders.fitted.moments import Array, Moments
from stsbench.encoders.loading import find_base
from stsbench.encoders.seams import Encoder, FloatArray
from stsbench.errors import CardError, EncoderError

CODE_VERSION = 1
"""Raise when a change here can change an embedding: kept fits are then not reused."""


class Whitening:
    """Whitening in float64, fitted in one pass over chunks of any size.

    Attributes:
        mean_: the mean of the embeddings fitted on, (d,).
        components_: what centred embeddings are multiplied by, (d, k).
        variance_: the variance along each component before it was made 1, (k,), falling.
        n_samples_seen_: how many embeddings it was fitted on.
        rank_: the directions in which they vary; no more components than these can be had.
    """

    def __init__(self, k: int | None = None) -> None:
        """Keep k, the number of components; None keeps all."""
        self.k = k

    def fit(self, x: npt.ArrayLike) -> Whitening:
        """Fit on embeddings (n, d).

        Raises:
            EncoderError: fewer than two, or all the same.
        """
        moments = Moments()
        moments.add(x)
        return self.fit_moments(moments)

    def fit_moments(self, moments: Moments) -> Whitening:
        """Fit on embeddings of which mean and covariance are known."""
        n = self.n_samples_seen_ = moments.count
        if n < 2:
            raise EncoderError(f"whitening needs at least two texts, not {n}")
        self.mean_ = moments.mean
        left, variance, _ = np.linalg.svd(moments.scatter / (n - 1), hermitian=True)
        # What rounding leaves of a direction without variance is noise, which would be blown up to 1.
        d = len(variance)
        noise = (d * np.finfo(np.float32).eps) ** 2
        self.rank_ = min(int((variance > variance[0] * noise).sum()), n - 1)
        if not self.rank_ or variance[0] <= 0:
            raise EncoderError(f"whitening: all {n} embeddings are the same")
        kept = min(self.k or d, self.rank_)
        left = left[:, :kept]
        # A column's sign is any; fixed, the same texts give the same bytes everywhere.
        signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(kept)])
        self.variance_ = variance[:kept]
        self.components_ = left * signs / np.sqrt(self.variance_)
        return self

    def transform(self, x: npt.ArrayLike) -> Array:
        """Return whitened embeddings, (n, d) to (n, k), float64."""
        whitened: Array = (np.asarray(x, dtype=np.float64) - self.mean_) @ self.components_
        return whitened


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


class WhiteningFit:
    """A fitted whitening, with the length made 1 after it where that is wanted."""

    def __init__(self, whitening: Whitening, *, normalise: bool) -> None:
        """Keep a fitted whitening."""
        self.whitening, self.normalise = whitening, normalise

    @property
    def notes(self) -> list[str]:
        """Says where fewer components were to be had than were asked for."""
        d, kept = self.whitening.components_.shape
        wanted = self.whitening.k or d
        if kept >= wanted:
            return []
        return [f"the texts' embeddings vary in {kept} directions only: {kept} components are kept, not {wanted}"]

    def transform(self, embeddings: FloatArray) -> FloatArray:
        """Return whitened embeddings, (n, d) to (n, k)."""
        # The threads of a matrix product spin on for a while, and would take the cores from the base's next batch.
        with _blas().limit(limits=1, user_api="blas"):
            whitened = self.whitening.transform(embeddings)
        if self.normalise:
            whitened /= np.linalg.norm(whitened, axis=1, keepdims=True).clip(min=1e-8)
        return whitened.astype(np.float32)

    def tensors(self) -> Tensors:
        """Mean, components and their variance."""
        of = self.whitening
        seen = np.array([of.n_samples_seen_, of.rank_])
        return {"mean": of.mean_, "components": of.components_, "variance": of.variance_, "seen": seen}


class WhiteningMethod:
    """How a whitening is fitted on an encoder's embeddings of texts."""

    reads_embeddings = True
    libraries = ()

    def __init__(self, k: int | None, *, normalise: bool) -> None:
        """Keep the number of components and whether lengths are made 1."""
        self.k, self.normalise = k, normalise

    def params(self) -> Mapping[str, Any]:
        """All that decides the result."""
        return {"kind": "whitening", "code": CODE_VERSION, "k": self.k, "normalise": self.normalise}

    def fit(self, base: Encoder, sentences: Sequence[str]) -> WhiteningFit:
        """Fit on the embeddings of these sentences."""
        moments = Moments().add_texts(base, sentences)
        return WhiteningFit(Whitening(self.k).fit_moments(moments), normalise=self.normalise)

    def restore(self, tensors: Tensors) -> WhiteningFit:
        """Return the whitening that these tensors were taken from."""
        made = Whitening(self.k)
        made.mean_, made.components_, made.variance_ = (tensors[n] for n in ("mean", "components", "variance"))
        made.n_samples_seen_, made.rank_ = map(int, tensors["seen"])
        return WhiteningFit(made, normalise=self.normalise)


def whitened_encoder(
    base: str,
    *,
    name: str = "",
    k: int | None = None,
    fit: str = "target",
    normalise: bool = True,
    base_params: Mapping[str, Any] | None = None,
    model: str | None = None,
    catalogue: Catalogue | None = None,
) -> PostProcessed:
    """Make the kind ``whitening``: any encoder's embeddings, whitened.

    Args:
        base: the encoder whose embeddings are whitened: a card or a checkpoint.
        name: what results call it.
        k: how many components to keep; default all.
        fit: which texts it is fitted on, see :mod:`stsbench.bench.fit_texts`.
        normalise: scale embeddings to length 1 afterwards, as the paper does.
        base_params: parameters that replace those of the base's card.
        model: the checkpoint of a base whose card names none.
        catalogue: where to look for the base's card.
    """
    if k is not None and k < 1:
        raise CardError(f"k = {k} keeps nothing of an embedding; give 1 or more, or leave it out")
    found = find_base(base, {**(base_params or {}), **({"model": model} if model else {})}, catalogue)
    method = WhiteningMethod(k, normalise=normalise)
    return PostProcessed(found, method, name=name or f"{base}-whitening", fit=fit)
