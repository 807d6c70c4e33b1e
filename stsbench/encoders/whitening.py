"""Embeddings changed by what texts have in common: whitening and calibration, and the mean without frequent tokens.

BERT-whitening (https://arxiv.org/abs/2103.15316) makes embeddings uncorrelated and of equal variance. With the covariance
Sigma = U Lambda U^T of the texts' embeddings (over n - 1, as ``np.cov``), an embedding x becomes (x - mean) U Lambda^(-1/2), of
which the first k columns are kept: those of the largest variance.

Calibration (BERT-flow, section 4.4 and table 5) takes each dimension's mean away and divides it by its standard deviation, or
takes the mean away and then what lies along the k directions of the largest variance (Mu and Viswanath 2018, "All-but-the-top",
https://arxiv.org/abs/1702.01417, algorithm 1). Where both are asked for, directions are those of the normalised embeddings.

Token removal (ConSERT, section 5: https://arxiv.org/abs/2105.11741): the transformer reads whole sentences; only the mean over
tokens leaves out the k token types that are most frequent in the texts. Special tokens are counted as any other.
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
from stsbench.encoders.fitted import EmbeddingTransform, Tensors, check_embeddings, iter_embeddings
from stsbench.encoders.load import make_processor
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.pooling import MeanPooling

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[np.float64]


class Moments:
    """Sums of squares around each chunk's own mean, joined as by Chan, Golub and LeVeque (1983), in float64.

    ``mean`` is (d,), ``scatter`` (d, d) the sum of the outer products of what is left without it.
    """

    def __init__(self, chunks: Iterable[npt.ArrayLike]) -> None:
        """Take embeddings, (n, d) each; raises as :func:`.fitted.check_embeddings`."""
        self.count, self.mean, self.scatter = 0, np.zeros(()), np.zeros(())
        for chunk in chunks:
            rows = check_embeddings(chunk)
            n, m = self.count, len(rows)
            if m:
                mean = rows.mean(axis=0)
                centred, shift = rows - mean, mean - self.mean
                self.scatter = self.scatter + (
                    centred.T @ centred + np.outer(shift, shift) * (n * m / (n + m))
                )
                self.mean = self.mean + shift * (m / (n + m))
                self.count = n + m


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


@dataclass(frozen=True)
class WhiteningMethod(EmbeddingTransform):
    """How a whitening is fitted: ``k`` components kept, None for all; ``normalise`` scales to length 1 as the paper."""

    k: PositiveInt | None = None
    normalise: bool = True
    kind: ClassVar[str] = "whitening"

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """Mean and components over the embeddings of these sentences."""
        return self.fit_moments(Moments(iter_embeddings(base, sentences)))

    def fit_moments(self, moments: Moments) -> Tensors:
        """Their mean (d,) and what centred embeddings are multiplied by, (d, k), in float64, k at most their rank.

        Raises EncoderError: they are fewer than two, or all the same.
        """
        n = moments.count
        if n < 2:
            raise EncoderError(f"whitening needs at least two texts, not {n}")
        left, variance, _ = np.linalg.svd(moments.scatter / (n - 1), hermitian=True)
        # What rounding leaves of a direction without variance is noise, which would be blown up to 1.
        d = len(variance)
        noise = (d * np.finfo(np.float32).eps) ** 2
        rank = min(int((variance > variance[0] * noise).sum()), n - 1)
        if not rank or variance[0] <= 0:
            raise EncoderError(f"whitening: all {n} embeddings are the same")
        kept = min(self.k or d, rank)
        left = left[:, :kept]
        # A column's sign is any; fixed, the same texts give the same bytes everywhere.
        signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(kept)])
        return {"mean": moments.mean, "components": left * signs / np.sqrt(variance[:kept])}

    def transform(self, learned: Tensors) -> RowFunction:
        """What whitens embeddings, (n, d) to (n, k)."""

        def whiten(embeddings: FloatArray) -> FloatArray:
            # The threads of a matrix product spin on for a while, and would take the cores from the base's next batch.
            with _blas().limit(limits=1, user_api="blas"):
                whitened: Array = (
                    np.asarray(embeddings, dtype=np.float64) - learned["mean"]
                ) @ learned["components"]
            if self.normalise:
                whitened /= np.linalg.norm(whitened, axis=1, keepdims=True).clip(min=1e-8)
            return whitened.astype(np.float32)

        return whiten

    def notes(self, learned: Tensors) -> list[str]:
        """Says where fewer components were to be had than were asked for."""
        d, kept = learned["components"].shape
        wanted = self.k or d
        said = f"the texts' embeddings vary in {kept} directions only: {kept} components are kept, not {wanted}"
        return [said] if kept < wanted else []


whitened_encoder = make_processor(WhiteningMethod)


class Whitening:
    """Whitening of plain arrays, in the manners of scikit-learn, with the numbers of the encoders.

    Attributes:
        mean_: the mean of the embeddings it was fitted on, (d,).
        components_: what centred embeddings are multiplied by, (d, k).
    """

    def __init__(self, k: int | None = None) -> None:
        """Keep ``k``, the number of components; None for all."""
        self.k = k

    def fit(self, x: npt.ArrayLike) -> Whitening:
        """Fit on embeddings (n, d).

        Raises:
            EncoderError: k is below 1; the embeddings are fewer than two, all the same, or hold a
                value that is not finite.
        """
        if self.k is not None and self.k < 1:
            raise EncoderError(f"k = {self.k}: give 1 or more components, or None for all")
        learned = WhiteningMethod(self.k).fit_moments(Moments([x]))
        self.mean_, self.components_ = learned["mean"], learned["components"]
        return self

    def transform(self, x: npt.ArrayLike) -> Array:
        """Return whitened embeddings, (n, d) to (n, k), in float64; lengths are not made 1."""
        whitened: Array = (np.asarray(x, dtype=np.float64) - self.mean_) @ self.components_
        return whitened


@dataclass(frozen=True, kw_only=True)
class CalibrationMethod(EmbeddingTransform):
    """How embeddings are calibrated on those of texts: by a mean (d,), deviations (d,) and directions (d, k)."""

    standardise: bool = True
    """Whether each dimension gets mean 0 and deviation 1."""
    remove: int = 0
    """The number of directions of the largest variance that are removed."""
    kind: ClassVar[str] = "calibration"

    def __post_init__(self) -> None:
        """Refuse what changes nothing."""
        if self.remove < 0 or not (self.standardise or self.remove):
            what = f"standardise = {self.standardise}, remove = {self.remove} change nothing"
            raise CardError(f"{what}; give remove = 1 or more")

    def fit(self, base: Encoder, sentences: Sequence[str]) -> Tensors:
        """Mean, deviations (1: kept as it is) and directions of their embeddings; raises EncoderError: too few."""
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
        # A dimension that is the same everywhere has no deviation, and is 0 without its mean.
        deviation = np.where(deviation > 0, deviation, 1.0)
        _, vectors = np.linalg.eigh(covariance / np.outer(deviation, deviation))
        directions = np.ascontiguousarray(vectors[:, d - self.remove :])
        return {"mean": moments.mean, "deviation": deviation, "directions": directions}

    def transform(self, learned: Tensors) -> RowFunction:
        """What calibrates embeddings, (n, d) to (n, d)."""
        mean, deviation, directions = (
            learned[name] for name in ("mean", "deviation", "directions")
        )

        def calibrate(embeddings: FloatArray) -> FloatArray:
            scaled: Array = (embeddings.astype(np.float64) - mean) / deviation
            return (scaled - (scaled @ directions) @ directions.T).astype(np.float32)

        return calibrate


calibrated_encoder = make_processor(CalibrationMethod)

FACTS = {"kind": "token_removal", "code": 1}
"""Raise ``code`` when a change below can change an embedding: stored ones are then not reused."""


def frequent_tokens(tokens: TokenIds, k: int) -> IndexArray:
    """Return the k most frequent token ids, the most frequent first; of equals the one met first."""
    ids, first, counts = np.unique(tokens.ids, return_index=True, return_counts=True)
    return ids[np.lexsort((first, -counts))][:k].astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class TokenRemoval:
    """How many token types are left out: the ``k`` most frequent, or one more as ConSERT's ``script`` does, which ranks from 0."""

    k: Annotated[int, msgspec.Meta(ge=0)]
    count: Literal["paper", "script"] = "paper"
    kind: ClassVar[str] = "token-removal"


class TokenRemovalEncoder:
    """A transformer whose mean will leave frequent tokens out: :meth:`fit_texts` counts them."""

    def __init__(self, base: Encoder, method: TokenRemoval, *, name: str, fit: str) -> None:
        """Keep the transformer and what is to be counted; raises CardError where it is none with a mean pooling."""
        if not isinstance(base, TransformerEncoder) or not isinstance(base.pooling, MeanPooling):
            raise CardError(
                f"base '{base.name}' takes no mean over a transformer's tokens; name one that does"
            )
        self.name, self.base, self.fit = name, base, fit
        self.removed_types = method.k + (method.count == "script")

    @property
    def fingerprint(self) -> str | None:
        """The hash of all but the texts, whatever they are called."""
        return derive_fingerprint(self.base, {**FACTS, "types": self.removed_types})

    def fit_texts(self, sentences: Sequence[str]) -> PartialMeanEncoder:
        """Return the encoder that leaves out what is most frequent in these sentences."""
        tokens = self.base.tokenize(sentences)
        return PartialMeanEncoder(
            self.base, frequent_tokens(tokens, self.removed_types), name=self.name
        )

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Refuse: nothing is counted yet."""
        raise EncoderError(
            f"encoder '{self.name}' is fitted on texts ({self.fit}); call fit_texts(sentences) first"
        )


token_removal_encoder = make_processor(TokenRemoval, TokenRemovalEncoder)


class PartialMeanEncoder(TransformerEncoder):
    """A transformer whose mean over tokens leaves some out; a sentence of nothing else is a zero vector."""

    def __init__(self, base: TransformerEncoder, removed: IndexArray, *, name: str) -> None:
        """Take over the transformer and its model, and the ids of the tokens (k,) to leave out."""
        self.copy_from(base)
        self.name, self.base, self.removed = name, base, removed

    @cached_property
    def fingerprint(self) -> str | None:  # type: ignore[override]
        """The hash of all that decides an embedding."""
        return derive_fingerprint(self.base, {**FACTS, "removed": sorted(self.removed.tolist())})

    @property
    def notes(self) -> list[str]:
        """Says what is left out."""
        return [f"{len(self.removed)} token types are left out of the mean"]

    def pool(
        self,
        states: Sequence[torch.Tensor],
        batch: Mapping[str, torch.Tensor],
        chosen: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See :meth:`TransformerEncoder.pool`."""
        import torch

        ids = batch["input_ids"]
        kept = ~torch.isin(ids, torch.from_numpy(self.removed).to(ids.device))
        if "attention_mask" in batch:
            kept &= batch["attention_mask"] > 0
        return self.pooling.pool(states, kept.long())
