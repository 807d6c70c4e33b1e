"""Embeddings without what the texts share: whitening, calibration, removal of frequent tokens.

BERT-whitening (https://arxiv.org/abs/2103.15316) makes embeddings uncorrelated and of equal
variance. With the covariance Sigma = U Lambda U^T of the texts' embeddings (over n - 1, as
``np.cov``), an embedding x becomes (x - mean) U Lambda^(-1/2), of which the first k columns are
kept: those of the largest variance.

Calibration (BERT-flow, section 4.4 and table 5) subtracts each dimension's mean and divides by its
standard deviation, or subtracts the mean and then the components along the k directions of the
largest variance (Mu and Viswanath 2018, "All-but-the-top", https://arxiv.org/abs/1702.01417,
algorithm 1). If both are requested, the directions are those of the standardised embeddings.

Token removal (ConSERT, section 5: https://arxiv.org/abs/2105.11741): the transformer reads whole
sentences; only the mean over tokens omits the k token types that are most frequent in the texts.
Special tokens are counted as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from stsbench.core.errors import CardError, EncoderError
from stsbench.core.provenance import derive_fingerprint
from stsbench.encoders.base import Encoder, FloatArray, IndexArray, PositiveInt, RowFunction
from stsbench.encoders.fitted import EmbeddingTransform, Tensors, iter_embeddings, to_finite_float64
from stsbench.encoders.load import make_processor
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.pooling import MeanPooling

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float64]


class Moments:
    """Count, mean and scatter of embeddings, summed chunk by chunk in float64.

    Each chunk's squares are around its own mean, and are joined as by Chan, Golub and LeVeque
    (1983).

    Attributes:
        count: The number of embeddings.
        mean: Their mean, (d,).
        scatter: The sum of the outer products of the centred embeddings, (d, d).
    """

    def __init__(self, chunks: Iterable[npt.ArrayLike]) -> None:
        """Compute the number, the mean and the scatter of embeddings that are read in chunks.

        The scatter is the sum of the outer products of the embeddings minus their mean, (d, d). An
        empty chunk changes nothing; without any embedding, mean and scatter are the scalar 0.

        Args:
            chunks: Embeddings, (n, d) each, with the same d.

        Raises:
            EncoderError: A chunk is not a matrix, or has a value that is not finite.
        """
        self.count = 0
        self.mean = np.zeros(())
        self.scatter = np.zeros(())
        for chunk in chunks:
            rows = to_finite_float64(chunk)  # this raises
            old_count = self.count
            chunk_size = len(rows)
            if chunk_size:
                chunk_mean = rows.mean(axis=0)
                new_count = old_count + chunk_size
                centred = rows - chunk_mean
                shift = chunk_mean - self.mean
                # The scatter around the joint mean is the sum of three: that of the earlier rows
                # around their mean, that of the chunk around its mean, and a term for the distance
                # between the two means (Chan, Golub and LeVeque 1983).
                self.scatter = self.scatter + (
                    centred.T @ centred
                    + np.outer(shift, shift) * (old_count * chunk_size / new_count)
                )
                self.mean = self.mean + shift * (chunk_size / new_count)
                self.count = new_count


@cache
def _blas_thread_control() -> ThreadpoolController:
    """Return the control of the threads of numpy's linear algebra, which is slow to find."""
    return ThreadpoolController()


@dataclass(frozen=True)
class WhiteningMethod(EmbeddingTransform):
    """The parameters of a whitening.

    Attributes:
        k: The number of components to keep; None for all.
        normalise: Scale embeddings to length 1, as the paper does.
    """

    k: PositiveInt | None = None
    normalise: bool = True
    kind: ClassVar[str] = "whitening"

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """Return the mean and the components of the embeddings of these sentences."""
        return self.fit_moments(Moments(iter_embeddings(base, sentences)))

    def fit_moments(self, moments: Moments) -> Tensors:
        """Compute the whitening of embeddings, of which the mean and the scatter are known.

        Whitened embeddings are uncorrelated, and each of their dimensions has variance 1: an
        embedding x becomes (x - mean) @ components.

        Args:
            moments: The number of embeddings, their mean (d,), and their scatter (d, d), the sum
                of the outer products of the embeddings minus their mean.

        Returns:
            Float64 arrays by name: ``mean`` (d,) and ``components`` (d, k), the directions of the
            largest variance, each divided by its standard deviation. k is ``self.k``, but at most
            the number of directions in which the embeddings vary.

        Raises:
            EncoderError: There are fewer than two embeddings, or all are the same.
        """
        n = moments.count
        if n < 2:
            raise EncoderError(f"whitening needs at least two texts, not {n}")
        # The directions as columns (d, d), and the variance along each (d,), the largest first.
        covariance = moments.scatter / (n - 1)
        vectors, variance, _ = np.linalg.svd(covariance, hermitian=True)
        # Directions without variance are not kept: they have only the noise of rounding, which
        # whitening would scale to variance 1.
        d = len(variance)
        noise_share = (d * np.finfo(np.float32).eps) ** 2
        # n embeddings vary in n - 1 directions at most.
        rank = min(int((variance > variance[0] * noise_share).sum()), n - 1)
        if not rank or variance[0] <= 0:
            raise EncoderError(f"whitening: all {n} embeddings are the same")
        n_components = min(self.k or d, rank)  # all if ``self.k`` is None
        vectors = vectors[:, :n_components]
        # The sign of a column is arbitrary. It is chosen so that the largest entry is positive:
        # then the same texts give the same components on any machine.
        largest_entries = vectors[np.abs(vectors).argmax(axis=0), np.arange(n_components)]
        signs = np.sign(largest_entries)
        return {
            "mean": moments.mean,
            "components": vectors * signs / np.sqrt(variance[:n_components]),
        }

    def transform(self, learned: Tensors) -> RowFunction:
        """Return the function that whitens embeddings, (n, d) to (n, k).

        Whitened embeddings are uncorrelated, and each dimension has variance 1.

        Args:
            learned: ``mean`` (d,) and ``components`` (d, k), from :meth:`fit`.
        """

        def whiten(embeddings: FloatArray) -> FloatArray:
            """Whiten embeddings (n, d), and scale them to length 1 if the method does so."""
            # On one thread: after a product, other threads of numpy keep their cores busy for a
            # while, which the base's next batch needs.
            # The limit of numpy's linear algebra ends with the block.
            with _blas_thread_control().limit(limits=1, user_api="blas"):
                centred = np.asarray(embeddings, dtype=np.float64) - learned["mean"]
                whitened: Array = centred @ learned["components"]
            if self.normalise:
                lengths = np.linalg.norm(whitened, axis=1, keepdims=True)
                # An embedding that equals the mean has length 0, and stays zero.
                whitened /= lengths.clip(min=1e-8)
            return whitened.astype(np.float32)

        return whiten

    def notes(self, learned: Tensors) -> list[str]:
        """Return a note if fewer components are kept than requested; otherwise an empty list.

        Args:
            learned: ``mean`` (d,) and ``components`` (d, k), from :meth:`fit`.
        """
        d, n_components = learned["components"].shape
        n_requested = self.k or d  # all if ``self.k`` is None
        if n_components >= n_requested:
            return []
        return [
            f"the texts' embeddings vary in {n_components} directions only: "
            f"{n_components} components are kept, not {n_requested}"
        ]


whitened_encoder = make_processor(WhiteningMethod)


class Whitening:
    """Whitening of plain arrays, in the style of scikit-learn, with the numbers of the encoders.

    Attributes:
        mean_: The mean of the embeddings it was fitted on, (d,).
        components_: The matrix that centred embeddings are multiplied by, (d, k).
    """

    def __init__(self, k: int | None = None) -> None:
        """Store ``k``, the number of components to keep; None for all."""
        self.k = k

    def fit(self, x: npt.ArrayLike) -> Whitening:
        """Learn the whitening of embeddings (n, d), and return this object.

        Sets ``mean_`` (d,) and ``components_`` (d, k): an embedding x becomes
        (x - mean_) @ components_.

        Raises:
            EncoderError: ``self.k`` is below 1 (None is valid, for all components); there are fewer
                than two embeddings, all are the same, or one has a value that is not finite.
        """
        if self.k is not None and self.k < 1:
            raise EncoderError(f"k = {self.k}: give 1 or more components, or None for all")
        moments = Moments(chunks=[x])
        learned = WhiteningMethod(self.k).fit_moments(moments)
        self.mean_, self.components_ = learned["mean"], learned["components"]
        return self

    def transform(self, x: npt.ArrayLike) -> Array:
        """Return whitened embeddings, (n, d) to (n, k), in float64, not scaled to length 1."""
        whitened: Array = (np.asarray(x, dtype=np.float64) - self.mean_) @ self.components_
        return whitened


@dataclass(frozen=True, kw_only=True)
class CalibrationMethod(EmbeddingTransform):
    """The parameters of a calibration by a mean (d,), deviations (d,) and directions (d, k)."""

    standardise: bool = True
    """Give each dimension mean 0 and deviation 1."""
    remove: int = 0
    """The number of directions of the largest variance that are removed."""
    kind: ClassVar[str] = "calibration"

    def __post_init__(self) -> None:
        """Check that the parameters change something.

        Raises:
            CardError: No dimension is scaled and no direction is removed, or ``remove`` is below 0.
        """
        changes_something = self.standardise or self.remove
        if self.remove < 0 or not changes_something:
            raise CardError(
                f"standardise = {self.standardise}, remove = {self.remove} change nothing; "
                "give remove = 1 or more"
            )

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """Compute the mean, the deviations and the directions by which embeddings are calibrated.

        Calibration subtracts the mean, divides each dimension by its deviation, and then removes
        what lies along the directions of the largest variance.

        Args:
            base: The encoder whose embeddings are calibrated.
            sentences: The texts whose embeddings are measured.

        Returns:
            Float64 arrays by name: ``mean`` (d,); ``deviation`` (d,), the standard deviations, or
            ones if ``standardise`` is not set; and ``directions`` (d, k), columns of length 1, with
            k = ``remove``.

        Raises:
            EncoderError: There are fewer than two texts, or ``remove`` is not below d.
        """
        # The number, the mean (d,) and the scatter (d, d) of the embeddings.
        moments = Moments(iter_embeddings(base, sentences))
        if moments.count < 2:
            raise EncoderError(f"calibration needs at least two texts, not {moments.count}")
        d = len(moments.mean)
        if self.remove >= d:
            raise EncoderError(
                f"remove = {self.remove} leaves nothing of embeddings of {d} numbers; give less"
            )
        covariance = moments.scatter / moments.count
        deviation = np.sqrt(np.diag(covariance)) if self.standardise else np.ones(d)
        # A constant dimension has deviation 0, by which nothing can be divided.
        deviation = np.where(deviation > 0, deviation, 1.0)
        # The directions as columns, those of the largest variance last.
        _, vectors = np.linalg.eigh(covariance / np.outer(deviation, deviation))
        directions = np.ascontiguousarray(vectors[:, d - self.remove :])
        return {"mean": moments.mean, "deviation": deviation, "directions": directions}

    def transform(self, learned: Tensors) -> RowFunction:
        """Return the function that calibrates embeddings, (n, d) to (n, d).

        It subtracts a mean, divides by deviations, and removes what lies along some directions.

        Args:
            learned: ``mean`` (d,), ``deviation`` (d,) and ``directions`` (d, k), from :meth:`fit`.
        """
        mean = learned["mean"]
        deviation = learned["deviation"]
        directions = learned["directions"]

        def calibrate(embeddings: FloatArray) -> FloatArray:
            """Calibrate embeddings (n, d)."""
            scaled: Array = (embeddings.astype(np.float64) - mean) / deviation
            # The directions are orthogonal and of length 1; what lies along them is removed.
            return (scaled - (scaled @ directions) @ directions.T).astype(np.float32)

        return calibrate


calibrated_encoder = make_processor(CalibrationMethod)

REMOVAL_IDENTITY = {"kind": "token_removal", "code": 1}
"""A part of fingerprints; raise ``code`` with a change below that can change an embedding."""


def frequent_tokens(tokens: TokenIds, k: int) -> IndexArray:
    """Return the k most frequent token ids, the most frequent first.

    Of equally frequent ones, the one that occurs first comes first.
    """
    ids, first_positions, counts = np.unique(tokens.ids, return_index=True, return_counts=True)
    return ids[np.lexsort((first_positions, -counts))][:k].astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class TokenRemoval:
    """The number of token types to omit.

    Attributes:
        k: The number of the most frequent types.
        count: ``script`` omits one more, as ConSERT's script does, which ranks from 0.
    """

    k: Annotated[int, msgspec.Meta(ge=0)]
    count: Literal["paper", "script"] = "paper"
    kind: ClassVar[str] = "token-removal"


class TokenRemovalEncoder:
    """A transformer whose mean will omit frequent tokens: :meth:`fit_texts` counts them."""

    def __init__(self, base: Encoder, method: TokenRemoval, *, name: str, fit: str) -> None:
        """Store the transformer, and how many types of tokens its mean will omit.

        Args:
            base: The encoder, a transformer with mean pooling.
            method: ``k``, the number of types, and ``count``, how they are counted.
            name: The name of this encoder.
            fit: The name of the texts in which tokens will be counted, see :meth:`fit_texts`.

        Raises:
            CardError: The base is no transformer with a mean pooling.
        """
        if not isinstance(base, TransformerEncoder) or not isinstance(base.pooling, MeanPooling):
            raise CardError(
                f"base '{base.name}' takes no mean over a transformer's tokens; name one that does"
            )
        self.name = name
        self.base = base
        self.fit = fit
        # ConSERT's script removes the ranks 0 to k, which is one type more than k.
        n_extra_types = 1 if method.count == "script" else 0
        self.n_removed_types = method.k + n_extra_types

    @property
    def fingerprint(self) -> str | None:
        """The hash of all that decides an embedding, except for the texts."""
        return derive_fingerprint(self.base, {**REMOVAL_IDENTITY, "types": self.n_removed_types})

    def fit_texts(self, sentences: Sequence[str]) -> PartialMeanEncoder:
        """Return the encoder that omits the most frequent tokens of these sentences."""
        tokens = self.base.tokenize(sentences)
        return PartialMeanEncoder(
            self.base, frequent_tokens(tokens, self.n_removed_types), name=self.name
        )

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Raise EncoderError: the tokens are not counted yet."""
        raise EncoderError(
            f"encoder '{self.name}' is fitted on texts ({self.fit}); "
            "call fit_texts(sentences) first"
        )


token_removal_encoder = make_processor(TokenRemoval, TokenRemovalEncoder)


class PartialMeanEncoder(TransformerEncoder):
    """A transformer whose mean over tokens omits some types; without others it is a zero vector."""

    def __init__(self, base: TransformerEncoder, removed: IndexArray, *, name: str) -> None:
        """Take over the attributes of a transformer, whose loaded model is shared.

        The model is loaded now, if it is not loaded yet.

        Args:
            base: The transformer, with mean pooling.
            removed: The ids of the tokens to omit, (k,).
            name: The name of the encoder.
        """
        self.copy_from(base)
        self.name = name
        self.base = base
        self.removed = removed

    @cached_property
    def fingerprint(self) -> str | None:  # type: ignore[override]
        """The hash of all that decides an embedding."""
        return derive_fingerprint(
            self.base, {**REMOVAL_IDENTITY, "removed": sorted(self.removed.tolist())}
        )

    @property
    def notes(self) -> list[str]:
        """A note on the number of omitted token types."""
        return [f"{len(self.removed)} token types are left out of the mean"]

    def pool(
        self,
        states: Sequence[torch.Tensor],
        batch: Mapping[str, torch.Tensor],
        chosen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the mean of the states of all tokens but the removed types, (b, h).

        ``self.pooling`` is the mean pooling of the base. It pools the tokens that its mask has 1
        for. A sentence of removed tokens only becomes the zero vector.

        Args:
            states: The hidden states of each layer that is pooled, (b, t, h).
            batch: The model's inputs by name for b sentences of t tokens.
            chosen: Not used; with other poolings, the tokens to pool.
        """
        import torch

        ids = batch["input_ids"]
        mask = ~torch.isin(ids, torch.from_numpy(self.removed).to(ids.device))
        if "attention_mask" in batch:
            mask &= batch["attention_mask"] > 0
        return self.pooling.pool(states, mask.long())
