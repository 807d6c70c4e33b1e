"""Rows of image features or caption embeddings, gathered by index onto the device that trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stsbench.encoders.seams import Embeddings, FloatArray, IndexArray
from stsbench.errors import EncoderError

if TYPE_CHECKING:
    import torch

CHUNK = 8192


class PlacedRows:
    """Rows (n, size) to be taken by index: held on the device as a whole, or copied there batch by batch."""

    def __init__(self, source: FloatArray | Embeddings, device: str, *, hold: bool) -> None:
        """Take an array or a view of embeddings; with ``hold``, all of it is brought to the device now."""
        import torch

        self.shape: tuple[int, int] = (source.shape[0], source.shape[1])
        self.device = device
        self._source = np.asarray(source, dtype=np.float32) if hold else source
        self._held: torch.Tensor | None = None
        if hold and device != "cpu":
            self._held = torch.from_numpy(np.array(self._source)).to(device)

    def take(self, indices: IndexArray) -> torch.Tensor:
        """The rows of these indices, (len(indices), size), on the device."""
        import torch

        if self._held is not None:
            return self._held[torch.from_numpy(indices).to(self.device)]
        rows = self._source[indices] if isinstance(self._source, np.ndarray) else self._source.take(indices)
        return torch.from_numpy(np.array(rows, dtype=np.float32)).to(self.device)


def place_rows(sources: Sequence[FloatArray | Embeddings], device: str, memory: int) -> list[PlacedRows]:
    """Make rows of these, in turn held as long as they fit into this many bytes."""
    placed = []
    for source in sources:
        size = 4 * source.shape[0] * source.shape[1]
        placed.append(PlacedRows(source, device, hold=size <= memory))
        memory -= size if size <= memory else 0
    return placed


class Inspected(NamedTuple):
    """How many embeddings are zero vectors, and whether all are the same."""

    zeros: int
    constant: bool


def inspect(view: Embeddings, captions: Sequence[str]) -> Inspected:
    """Look through the embeddings of captions, a chunk at a time.

    Raises:
        EncoderError: a wrong shape, or an embedding that is not finite; names the caption.
    """
    if len(view.shape) != 2 or view.shape[0] != len(captions):
        raise EncoderError(f"{len(captions)} captions gave embeddings of shape {tuple(view.shape)}, not (n, d)")
    zeros, constant, first = 0, True, view.take(np.zeros(1, dtype=np.int64))
    for start in range(0, len(captions), CHUNK):
        rows = view.take(np.arange(start, min(start + CHUNK, len(captions))))
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise EncoderError(f"the embedding of '{captions[start + bad[0]][:80]}' is not finite (NaN or infinity)")
        zeros += int((~rows.any(axis=1)).sum())
        constant = constant and bool((rows == first).all())
    return Inspected(zeros, constant)
