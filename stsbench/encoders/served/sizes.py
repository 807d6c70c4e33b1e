"""How many tokens texts have for a server, and which texts go in one request."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from stsbench.encoders.seams import IndexArray

if TYPE_CHECKING:
    from stsbench.encoders.transformer.token_counts import TokenCounter

BYTES_A_TOKEN = 4
"""Bytes of UTF-8 for each token of an estimate. English text has 4 to 5 with the vocabularies in use; other scripts have fewer."""


class Counter:
    """Counts tokens by the model's tokenizer where one is named; else by bytes, with one more a text for special tokens."""

    def __init__(self, tokenizer: str = "") -> None:
        """Keep the tokenizer's name; it is opened for the first text."""
        self.tokenizer = tokenizer

    @cached_property
    def _counter(self) -> TokenCounter:
        from stsbench.encoders.transformer.token_counts import TokenCounter

        return TokenCounter(self.tokenizer)

    def __call__(self, texts: Sequence[str]) -> IndexArray:
        """The tokens of each text, (n,)."""
        if self.tokenizer:
            return np.array(self._counter(texts) if len(texts) else [], dtype=np.int64)
        sizes = [len(text.encode()) for text in texts]
        return -(-np.array(sizes, dtype=np.int64) // BYTES_A_TOKEN) + 1


def requests_of(rows: IndexArray, costs: IndexArray, *, count: int, tokens: int) -> list[IndexArray]:
    """Cut rows into requests of at most ``count`` texts and ``tokens`` tokens, longest first; a longer text goes alone.

    Args:
        rows: which texts to send, (m,).
        costs: tokens of each text, (n,).
        count: most texts a request.
        tokens: most tokens a request.
    """
    requests: list[list[int]] = []
    left = 0
    for row in rows[np.argsort(-costs[rows], kind="stable")].tolist():
        if not requests or len(requests[-1]) == count or costs[row] > left:
            requests.append([])
            left = tokens
        requests[-1].append(row)
        left -= int(costs[row])
    return [np.array(request, dtype=np.int64) for request in requests]
