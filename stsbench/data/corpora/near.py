"""Near-duplicates of sentences: candidates by MinHash (extra ``overlap``), each then held to its true similarity."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from stsbench.errors import StsbenchError

if TYPE_CHECKING:
    from rensa import RMinHash

LENGTH = 3
"""Letters of a shingle."""
HASHES, SEED = 120, 1
FOUND = 0.99
"""The share of pairs at the threshold itself that bands are to find; of more alike ones they find more."""
LOWEST = 0.5


class NearIndex:
    """Sentences, as :func:`~stsbench.data.corpora.overlap.text_key` writes them, and what is nearly one of them.

    Two are nearly the same where the shingles of three letters that they share are at least ``threshold`` of all that
    either has (Jaccard). MinHash in bands (Broder 1997; Leskovec, Rajaraman and Ullman, section 3.4) proposes pairs, and may
    miss one in a hundred at the threshold; of a pair that it proposes the similarity is counted out.
    """

    def __init__(self, keys: Sequence[bytes], threshold: float) -> None:
        """Index the sentences.

        Raises:
            StsbenchError: the threshold is not between 0.5 and 1, or rensa is not installed.
        """
        if not LOWEST <= threshold <= 1:
            raise StsbenchError(
                f"near-duplicates: {threshold:g} is no similarity between {LOWEST:g} and 1, such as 0.8"
            )
        try:
            from rensa import RMinHashLSH
        except ImportError as error:
            raise StsbenchError("near-duplicates need rensa; run: pip install 'stsbench[overlap]'") from error
        self.threshold, self.keys = threshold, keys
        self._lsh = RMinHashLSH(threshold=threshold, num_perm=HASHES, num_bands=bands(threshold))
        self._lsh.insert_many(_hashed(keys))

    def alike(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The indexed sentences that any of these is nearly, each with the first such one."""
        found: dict[bytes, bytes] = {}
        for key, candidates in zip(keys, self._lsh.query_all(_hashed(keys)), strict=True):
            own = shingles(key) if candidates else set()
            for ours in (self.keys[at] for at in candidates):
                if ours not in found and self._is_alike(own, ours):
                    found[ours] = key
        return found

    def _is_alike(self, own: Collection[str], key: bytes) -> bool:
        theirs = shingles(key)
        shared = len(theirs.intersection(own))
        return shared >= self.threshold * (len(own) + len(theirs) - shared)


def shingles(key: bytes) -> set[str]:
    """All runs of three letters of a sentence; what is shorter is one."""
    text = key.decode()
    return {text[at : at + LENGTH] for at in range(len(text) - LENGTH + 1)} or {text}


def bands(threshold: float) -> int:
    """The fewest bands, and so the fewest candidates, that find nearly all pairs which are as alike as this."""
    sizes = (HASHES // rows for rows in range(HASHES, 0, -1) if HASHES % rows == 0)
    return next(n for n in sizes if 1 - (1 - threshold ** (HASHES // n)) ** n >= FOUND)


def _hashed(keys: Sequence[bytes]) -> list[RMinHash]:
    from rensa import RMinHash

    # Sorted: a set's order changes from one process to the next.
    found: list[RMinHash] = RMinHash.from_token_sets(map(sorted, map(shingles, keys)), HASHES, SEED)
    return found
