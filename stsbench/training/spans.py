"""DeCLUTR's spans: anchors from all over a document, positives from around each anchor.

Giorgi et al. 2021, https://aclanthology.org/2021.acl-long.72, section 3.1, as the official code
draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from stsbench.core.errors import DataError
from stsbench.core.wording import format_count

Span = tuple[int, int]
"""The indices of the first token and of the one behind the last."""
ANCHOR_LENGTH_BETA = (4.0, 2.0)
"""Parameters of the Beta distribution of anchor lengths: long spans speak for their document."""
POSITIVE_LENGTH_BETA = (2.0, 4.0)
"""Parameters of the Beta distribution of positive lengths: short spans overlap less."""
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
    label: str = "document",
) -> Spans:
    """Draw anchor spans and positive spans of one document.

    The document is cut into blocks of ``max_len`` tokens. Each anchor lies within one block, and
    neither that block nor its neighbours are used again, so two anchors are at least ``max_len``
    tokens apart. (The paper's formula, a start anywhere in the document, is not what the code
    draws, nor does the paper describe how anchors are kept apart.) The draws are in the official
    code's order.

    Args:
        n_tokens: The number of tokens of the document.
        anchors: The number of anchors.
        positives: The number of positives per anchor.
        min_len: The length of the shortest span, in tokens.
        max_len: The length of the longest span, in tokens.
        strategy: ``both``: positives overlap their anchor, lie next to it or inside it;
            ``subsuming``: inside it; ``adjacent``: next to it.
        rng: The generator of all draws.
        label: The name of the document in an error.

    Raises:
        DataError: The document has fewer than ``2 * anchors * max_len`` tokens.
    """
    needed_tokens = 2 * anchors * max_len
    if n_tokens < needed_tokens:
        message = (
            f"{label}: {n_tokens:,} tokens; {format_count(anchors, 'anchor')} of up to "
            f"{max_len} tokens need {needed_tokens:,}"
        )
        raise DataError(f"{message}: leave short documents out, or take fewer or shorter anchors")
    blocks = list(range(0, n_tokens - max_len + 1, max_len))
    spans = Spans(anchors=[], positives=[])
    for remaining in range(anchors, 0, -1):
        length = _draw_length(rng, beta=ANCHOR_LENGTH_BETA, shortest=min_len, longest=max_len)
        # If a block from the middle could leave too few blocks, choose the first or the last; the
        # condition is the official code's.
        if len(blocks) // remaining < remaining:
            block_index = int(rng.choice([0, len(blocks) - 1]))
        else:
            block_index = int(rng.integers(len(blocks)))
        start = int(rng.integers(blocks[block_index], blocks[block_index] + max_len - length + 1))
        # The block and its neighbours.
        del blocks[max(0, block_index - 1) : block_index + 2]
        anchor = (start, start + length)
        spans.anchors.append(anchor)
        anchor_positives = [
            STRATEGIES[strategy](anchor, n_tokens, min_len, max_len, rng) for _ in range(positives)
        ]
        spans.positives.append(anchor_positives)
    return spans


def _draw_length(
    rng: np.random.Generator, beta: tuple[float, float], shortest: int, longest: int
) -> int:
    """Draw the length of a span between two lengths, in tokens, rounded down.

    Args:
        rng: The generator.
        beta: The two parameters of the Beta distribution of where it lies between them.
        shortest: The shortest length.
        longest: The longest length.
    """
    return int(rng.beta(*beta) * (longest - shortest) + shortest)


def _draw_subsuming(
    anchor: Span, n_tokens: int, min_len: int, max_len: int, rng: np.random.Generator
) -> Span:
    """Draw a positive inside an anchor, as the official code does.

    Args:
        anchor: The first token of the anchor, and the one behind its last.
        n_tokens: Not used; all strategies have it, as ``max_len``.
        min_len: The length of the shortest span, in tokens.
        max_len: Not used: the anchor is the longest span.
        rng: The generator.
    """
    start, end = anchor
    length = _draw_length(rng, beta=POSITIVE_LENGTH_BETA, shortest=min_len, longest=end - start)
    positive_start = int(rng.integers(start, end - length + 1))
    return positive_start, positive_start + length


def _draw_adjacent(
    anchor: Span, n_tokens: int, min_len: int, max_len: int, rng: np.random.Generator
) -> Span:
    """Draw a positive that ends where an anchor begins, or begins where it ends.

    Args:
        anchor: The first token of the anchor, and the one behind its last.
        n_tokens: The number of tokens of the document.
        min_len: The length of the shortest span, in tokens.
        max_len: The length of the longest span, in tokens.
        rng: The generator.
    """
    start, end = anchor
    length = _draw_length(rng, beta=POSITIVE_LENGTH_BETA, shortest=min_len, longest=max_len)
    possible_starts = []
    # Not from the first token of the document: the official code never takes such a span.
    if start > length:
        possible_starts.append(start - length)
    if end + length <= n_tokens:
        possible_starts.append(end)
    if not possible_starts:
        # Here it is taken if there is no other.
        possible_starts.append(start - length)
    positive_start = int(rng.choice(possible_starts))
    return positive_start, positive_start + length


def _draw_overlapping(
    anchor: Span, n_tokens: int, min_len: int, max_len: int, rng: np.random.Generator
) -> Span:
    """Draw a positive that overlaps an anchor, lies next to it or inside it.

    Args:
        anchor: The first token of the anchor, and the one behind its last.
        n_tokens: The number of tokens of the document.
        min_len: The length of the shortest span, in tokens.
        max_len: The length of the longest span, in tokens.
        rng: The generator.
    """
    start, end = anchor
    length = _draw_length(rng, beta=POSITIVE_LENGTH_BETA, shortest=min_len, longest=max_len)
    # From the start at which it ends at the anchor to the one at which it begins behind it, if both
    # are in the document.
    positive_start = int(rng.integers(max(0, start - length), min(end, n_tokens - length) + 1))
    return positive_start, positive_start + length


STRATEGIES: Mapping[Strategy, Callable[[Span, int, int, int, np.random.Generator], Span]] = {
    "both": _draw_overlapping,
    "subsuming": _draw_subsuming,
    "adjacent": _draw_adjacent,
}
"""Functions that draw a positive, by strategy: from an anchor, the number of tokens of the
document, the shortest and the longest span, and a generator."""
