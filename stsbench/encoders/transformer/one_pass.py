"""One forward pass for many embeddings: a transformer's states pooled in several ways, each on a shelf of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING

import numpy as np

from stsbench.encoders.engine.embed import Engine, Noticed, Progress, embed_all
from stsbench.encoders.engine.store import Keys, Shelf
from stsbench.encoders.engine.tokens import TokenIds
from stsbench.encoders.known import variant_name
from stsbench.encoders.seams import FloatArray, IndexArray
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.encoders.transformer.pooling import Pooling

if TYPE_CHECKING:
    import torch

Pooled = Callable[["Sequence[torch.Tensor]", "torch.Tensor", "torch.Tensor"], "torch.Tensor"]
"""From the hidden states (b, t, h) of all layers, the token ids (b, t) and the mask (b, t), to embeddings (b, h)."""


def with_pooling(base: TransformerEncoder, pooling: Pooling) -> TransformerEncoder:
    """Return the same encoder under another pooling; the loaded model is shared."""
    made = copy(base)
    made.backbone = base.backbone
    made.pooling, made.name = pooling, variant_name(base.name, {"pooling": str(pooling)})
    vars(made).pop("fingerprint", None)
    return made


def pooled_by(pooling: Pooling) -> Pooled:
    """What a pooling makes of the states of all layers."""

    def pool(states: Sequence[torch.Tensor], ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        # A batch without padding is pooled without a mask, as when it is embedded alone.
        whole = bool((mask != 0).all())
        return pooling.pool([states[at] for at in pooling.states(len(states) - 1)], None if whole else mask)

    return pool


class OnePass:
    """A transformer whose embeddings (n, k * h) are k poolings side by side."""

    fingerprint = None

    def __init__(self, base: TransformerEncoder, ways: Sequence[Pooled]) -> None:
        """Keep the transformer and the k ways to pool."""
        self.base, self.ways, self.name = base, ways, base.name

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, k * h)."""
        return embed_all(self, sentences)

    def tokenize(self, sentences: Sequence[str]) -> TokenIds:
        """Return the token ids of each sentence."""
        return self.base.tokenize(sentences)

    def embed_tokens(self, tokens: TokenIds, rows: IndexArray) -> FloatArray:
        """Return the embeddings (b, k * h) of some of the tokenised sentences as one batch."""
        import torch

        backbone = self.base.backbone
        found = np.zeros((len(rows), len(self.ways), backbone.width), dtype=np.float32)
        full = tokens.lengths[rows] > 0
        if full.any():
            with torch.inference_mode():
                batch = backbone.collate(tokens, rows[full], left=self.base.padding_side == "left")
                states = backbone.hidden_states(batch, range(backbone.depth + 1))
                mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
                for at, way in enumerate(self.ways):
                    pooled = way(states, batch["input_ids"], mask).float()
                    if self.base.normalise:
                        pooled = torch.nn.functional.normalize(pooled, dim=-1)
                    found[full, at] = pooled.cpu().numpy()
        return found.reshape(len(rows), -1)


class SplitShelf(Shelf):
    """Several shelves, filled together: embeddings (n, k * h) are cut into k parts of one size."""

    def __init__(self, shelves: Sequence[Shelf]) -> None:
        """Keep the shelves."""
        super().__init__(None)
        self.shelves = shelves

    @property
    def width(self) -> int | None:
        """Not known: nothing is kept here."""
        return None

    def find(self, keys: Keys) -> IndexArray:
        """Return -1 for each key that one of the shelves lacks, (n,)."""
        return np.min([shelf.find(keys) for shelf in self.shelves], axis=0)  # type: ignore[no-any-return]

    def add(self, keys: Keys, embeddings: FloatArray) -> None:
        """Add each part to its shelf, where that lacks it."""
        for shelf, part in zip(self.shelves, np.split(embeddings, len(self.shelves), axis=1), strict=True):
            new = shelf.find(keys) < 0
            if new.any():
                shelf.add(keys[new], np.ascontiguousarray(part[new]))

    def flush(self) -> None:
        """Write all shelves."""
        for shelf in self.shelves:
            shelf.flush()


def fill(
    base: TransformerEncoder,
    ways: Sequence[Pooled],
    engines: Sequence[Engine],
    sentences: Sequence[str],
    *,
    progress: Progress | None = None,
    noticed: Noticed | None = None,
) -> None:
    """Embed what the shelves of some engines lack, all in one forward pass a sentence.

    Args:
        base: the transformer.
        ways: how its states are pooled.
        engines: for each way that of the encoder which pools so.
        sentences: what is embedded.
        progress: told as it goes.
        noticed: told what is no failure.
    """
    shelves = [engine.shelf for engine in engines]
    Engine(OnePass(base, ways), SplitShelf(shelves), progress=progress, noticed=noticed).prepare(sentences)
    for shelf in shelves:
        if shelf.watch is not None:
            shelf.watch.complete()
