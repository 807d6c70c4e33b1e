"""DeCLUTR's spans: anchors from all over a document, positives from around each anchor.

Giorgi et al. 2021, https://aclanthology.org/2021.acl-long.72, section 3.1, as the official code draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from stsbench.core.errors import DataError

Span = tuple[int, int]
"""First token and the one behind the last."""
ANCHOR_LENGTHS = (4.0, 2.0)
"""Parameters of the Beta distribution of anchor lengths: long spans speak for their document."""
POSITIVE_LENGTHS = (2.0, 4.0)
"""The same for positives: short ones overlap less."""
Strategy = Literal["both", "subsuming", "adjacent"]


class Spans(NamedTuple):
    """Anchors, and for each the list of its positives."""

    anchors: list[Span]
    positives: list[list[Span]]


def sample_spans(
    n_tokens: int,
    *,
    anchors: int,
    positives: int,
    min_len: int,
    max_len: int,
    strategy: Strategy = "both",
    rng: np.random.Generator,
    where: str = "document",
) -> Spans:
    """Draw anchor spans and positive spans of one document.

    The document is cut into blocks of ``max_len`` tokens; each anchor lies within one, and neither that block
    nor its neighbours are used again, so two anchors are ``max_len`` tokens apart or more. (The paper's formula,
    a start anywhere in the document, is not what the code draws, nor does it say how anchors are kept apart.)

    Positives of ``strategy`` ``both`` overlap their anchor, lie next to it or inside it; of ``subsuming`` inside it; of
    ``adjacent`` next to it. The draws come from ``rng`` in the official code's order. Raises DataError: the document,
    called ``where``, is too short: it needs ``2 * anchors * max_len`` tokens.
    """
    if n_tokens < (needed := 2 * anchors * max_len):
        what = f"{where}: {n_tokens:,} tokens; {anchors} anchor(s) of up to {max_len} tokens need {needed:,}"
        raise DataError(f"{what}: leave short documents out, or take fewer or shorter anchors")
    blocks = list(range(0, n_tokens - max_len + 1, max_len))
    found = Spans([], [])
    for left in range(anchors, 0, -1):
        length = _length(rng, ANCHOR_LENGTHS, min_len, max_len)
        # Where choosing from the middle could leave too few blocks, choose the first or the last.
        chosen = int(
            rng.choice([0, len(blocks) - 1])
            if len(blocks) // left < left
            else rng.integers(len(blocks))
        )
        start = int(rng.integers(blocks[chosen], blocks[chosen] + max_len - length + 1))
        del blocks[max(0, chosen - 1) : chosen + 2]
        anchor = (start, start + length)
        found.anchors.append(anchor)
        around = [
            STRATEGIES[strategy](anchor, n_tokens, min_len, max_len, rng) for _ in range(positives)
        ]
        found.positives.append(around)
    return found


def _length(
    rng: np.random.Generator, shape: tuple[float, float], shortest: int, longest: int
) -> int:
    return int(rng.beta(*shape) * (longest - shortest) + shortest)


def _subsuming(anchor: Span, n: int, min_len: int, max_len: int, rng: np.random.Generator) -> Span:
    start, end = anchor
    length = _length(rng, POSITIVE_LENGTHS, min_len, end - start)
    first = int(rng.integers(start, end - length + 1))
    return first, first + length


def _adjacent(anchor: Span, n: int, min_len: int, max_len: int, rng: np.random.Generator) -> Span:
    start, end = anchor
    length = _length(rng, POSITIVE_LENGTHS, min_len, max_len)
    # The official code never takes a span that begins the document; here it does where there is no other.
    before = [start - length] if start > length else []
    after = [end] if end + length <= n else []
    first = int(rng.choice(before + after or [start - length]))
    return first, first + length


def _both(anchor: Span, n: int, min_len: int, max_len: int, rng: np.random.Generator) -> Span:
    start, end = anchor
    length = _length(rng, POSITIVE_LENGTHS, min_len, max_len)
    first = int(rng.integers(max(0, start - length), min(end, n - length) + 1))
    return first, first + length


STRATEGIES: Mapping[Strategy, Callable[[Span, int, int, int, np.random.Generator], Span]] = {
    "both": _both,
    "subsuming": _subsuming,
    "adjacent": _adjacent,
}
"""An anchor, the document's tokens, the shortest and longest span, and a generator, to a positive."""
