"""Token ids that are kept: a long text that is read in every epoch is tokenised in the first."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from stsbench.encoders.engine.tokens import TokenIds
from stsbench.training.seams import Rows

MOST_CHARACTERS = 1 << 28
"""Of a larger corpus nothing is kept: its ids would take more than half a GiB, and it is seldom read twice."""
CHARACTERS_A_TOKEN = 2
"""A text with shorter tokens is not kept."""


class KeptTokens:
    """The token ids of a corpus's texts. Processes forked from this one share them, whichever of them tokenised.

    Args:
        characters: of each text, (n,).
        tokenize: rows (b,) to the token ids of their texts.
    """

    def __init__(self, characters: Rows, tokenize: Callable[[Rows], TokenIds]) -> None:
        """Keep none yet: memory is taken as texts come in."""
        self.tokenize = tokenize
        self._room = characters // CHARACTERS_A_TOKEN * (characters.sum() <= MOST_CHARACTERS)
        self._starts = np.cumsum(self._room) - self._room
        self._ids = _shared(int(self._room.sum()))
        self._lengths = _shared(len(characters))

    def __call__(self, rows: Rows) -> TokenIds:
        """Return the token ids of some texts."""
        found = self._tokenized(rows[self._lengths[rows] == 0])
        for row, ids in found.items():
            if len(ids) <= self._room[row]:
                start = self._starts[row]
                self._ids[start : start + len(ids)] = ids
                # Last: who sees a length finds the ids.
                self._lengths[row] = len(ids)
        pieces = [found[row] if row in found else self._kept(row) for row in rows.tolist()]
        lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        return TokenIds(np.concatenate(pieces), np.concatenate([[0], np.cumsum(lengths)]))

    def _tokenized(self, rows: Rows) -> dict[int, npt.NDArray[np.int32]]:
        if not len(rows):
            return {}
        fresh = self.tokenize(rows)
        return {row: fresh.ids[fresh.offsets[at] : fresh.offsets[at + 1]] for at, row in enumerate(rows.tolist())}

    def _kept(self, row: int) -> npt.NDArray[np.int32]:
        return self._ids[self._starts[row] : self._starts[row] + self._lengths[row]]


def _shared(count: int) -> npt.NDArray[np.int32]:
    """Zeros (count,) in memory that forked processes share."""
    return np.frombuffer(mmap.mmap(-1, 4 * max(count, 1)), dtype=np.int32)[:count]
