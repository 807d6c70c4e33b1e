"""Mean pooling without the most frequent tokens (ConSERT, section 5: https://arxiv.org/abs/2105.11741).

The transformer reads whole sentences; only the mean over tokens leaves out the k token types that
are most frequent in the texts it is fitted on. Special tokens are counted as any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, EncoderError, choose
from stsbench.core.provenance import derived
from stsbench.encoders.base import FloatArray, TokenIds
from stsbench.encoders.engine.embed import embed_all
from stsbench.encoders.load import find_base
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.pooling import Mean

CODE_VERSION = 1
"""Raise when a change here can change an embedding: stored ones are then not reused."""
FACTS = {"kind": "token_removal", "code": CODE_VERSION}
Counting = Literal["paper", "script"]
Ids = npt.NDArray[np.int64]


def frequent_tokens(tokens: TokenIds, k: int) -> Ids:
    """Return the k most frequent token ids, the most frequent first; of equals the one met first."""
    ids, first, counts = np.unique(tokens.ids, return_index=True, return_counts=True)
    order = np.lexsort((first, -counts))
    frequent: Ids = ids[order][:k].astype(np.int64)
    return frequent


class TokenRemovalEncoder:
    """A transformer whose mean will leave frequent tokens out: :meth:`fit_texts` counts them."""

    def __init__(
        self,
        base: str,
        *,
        k: Annotated[int, msgspec.Meta(ge=0)],
        name: str = "",
        fit: str = "target",
        count: Counting = "paper",
        base_params: Mapping[str, Any] | None = None,
        model: str | None = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        """Find the transformer, a card or checkpoint of kind ``transformer`` with a mean pooling, of which k token types go.

        ``count = "script"`` leaves out k + 1 types, as ConSERT's script does, which ranks from 0. What is not named here
        is as of :func:`stsbench.encoders.whitening.whitened_encoder`.
        """
        found = find_base(base, base_params, model, catalogue)
        if not isinstance(found, TransformerEncoder) or not isinstance(found.pooling, Mean):
            raise CardError(f"base '{base}' takes no mean over a transformer's tokens; name one that does")
        self.name, self.base, self.fit = name or f"{base}-token-removal", found, fit
        self.removed_types = k + choose("count", count, {"paper": 0, "script": 1})

    @property
    def fingerprint(self) -> str | None:
        """The hash of all but the texts, whatever they are called."""
        return derived(self.base, {**FACTS, "types": self.removed_types})

    def fit_texts(self, sentences: Sequence[str]) -> PartialMeanEncoder:
        """Return the encoder that leaves out what is most frequent in these sentences."""
        tokens = self.base.tokenize(sentences)
        return PartialMeanEncoder(self.base, frequent_tokens(tokens, self.removed_types), name=self.name)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Refuse: nothing is counted yet."""
        raise EncoderError(f"encoder '{self.name}' is fitted on texts ({self.fit}); call fit_texts(sentences) first")


class PartialMeanEncoder:
    """A transformer whose mean over tokens leaves some out; a sentence of nothing else is a zero vector."""

    def __init__(self, base: TransformerEncoder, removed: Ids, *, name: str) -> None:
        """Keep the transformer and the ids of the tokens (k,) to leave out."""
        self.name, self.base, self.removed = name, base, removed

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of all that decides an embedding."""
        return derived(self.base, {**FACTS, "removed": sorted(self.removed.tolist())})

    @property
    def notes(self) -> list[str]:
        """Says what is left out."""
        return [f"{len(self.removed)} token types are left out of the mean"]

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        if not len(sentences):
            return self.base.encode(sentences)
        return embed_all(self, sentences)

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""
        return self.base.tokenize(sentences)

    def embed_tokens(self, tokens: TokenIds, rows: Ids) -> FloatArray:
        """Return the embeddings (b, d) of some of the tokenised sentences as one batch."""
        import torch

        def pooled(batch: Mapping[str, Any], tokens: TokenIds, rows: Ids) -> list[torch.Tensor]:
            backbone, pooling, ids = self.base.backbone, self.base.pooling, batch["input_ids"]
            kept = ~torch.isin(ids, torch.from_numpy(self.removed).to(ids.device))
            if "attention_mask" in batch:
                kept &= batch["attention_mask"] > 0
            return [pooling.pool(backbone.hidden_states(batch, pooling.states(backbone.depth)), kept.long())]

        return self.base.embed_tokens(tokens, rows, pooled)
