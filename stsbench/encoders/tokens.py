"""Token ids of many sentences, and the batches they are embedded in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class TokenIds:
    """Token ids of n sentences: ``ids`` int32 (total,), ``offsets`` int64 (n + 1,); lists take ten times the memory."""

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    spans: npt.NDArray[np.int64] | None = None
    """Of each sentence the tokens that are pooled, (n, 2): the first, and the one after the last; None: all."""

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> TokenIds:
        """Join one list of ids a sentence."""
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        ids = np.fromiter(
            (i for one in lists for i in one), dtype=np.int32, count=int(lengths.sum())
        )
        return cls(ids, np.concatenate([[0], np.cumsum(lengths)]))

    @classmethod
    def join(cls, parts: Sequence[TokenIds]) -> TokenIds:
        """Join parts end to end; all have spans, or none."""
        lengths = np.concatenate([[0], *(part.lengths for part in parts)]).astype(np.int64)
        spans = [part.spans for part in parts if part.spans is not None]
        ids = np.concatenate([np.empty(0, np.int32), *(part.ids for part in parts)])
        return cls(ids, np.cumsum(lengths), np.concatenate(spans) if spans else None)

    def __len__(self) -> int:
        """Number of sentences."""
        return len(self.offsets) - 1

    @cached_property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens in each sentence, (n,)."""
        return np.diff(self.offsets)

    def pad(
        self, rows: npt.NDArray[np.int64], *, pad: int, left: bool = False
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the ids of some sentences and their attention mask, both int64 (b, t)."""
        lengths = self.lengths[rows]
        width = int(lengths.max())
        columns = np.arange(width)
        start = (width - lengths if left else np.zeros_like(lengths))[:, None]
        mask = (columns >= start) & (columns < start + lengths[:, None])
        source = np.where(mask, self.offsets[rows][:, None] + columns - start, 0)
        return np.where(mask, self.ids[source], pad).astype(np.int64), mask.astype(np.int64)


def plan_batches(lengths: npt.NDArray[np.int64], *, budget: int) -> Iterator[npt.NDArray[np.int64]]:
    """Cut sentences of these lengths (n,) into batches of at most ``budget`` padded tokens, longest first.

    Hardly a token is padding. The same lengths in the same order give the same batches, whatever the store holds.
    """
    order = np.argsort(-lengths, kind="stable")
    start = 0
    while start < len(order):
        width = max(int(lengths[order[start]]), 1)
        stop = start + max(budget // width, 1)
        batch = order[start:stop]
        same = int(np.searchsorted(-lengths[batch], -width, side="right"))
        # A run of equal lengths that fills most of a batch goes alone: no padding, no mask.
        if 0.75 * len(batch) <= same < len(batch):
            batch = batch[:same]
        yield batch
        start += len(batch)
