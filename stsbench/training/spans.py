"""DeCLUTR's spans: anchors from all over a document, positives from around each anchor.

Giorgi et al. 2021, https://aclanthology.org/2021.acl-long.72, section 3.1, as the official code
draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
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
    """Draw anchor spans and positive spans of one document, as DeCLUTR's official code does.

    The document is cut into blocks of ``max_len`` tokens. Each anchor lies within one block, and
    neither that block nor its neighbours are used again, so two anchors are at least ``max_len``
    tokens apart. The paper lets an anchor start anywhere, without saying what keeps them apart.

    Args:
        n_tokens: The number of tokens of the document.
        anchors: The number of anchors.
        positives: The number of positives per anchor.
        min_len: The length of the shortest span, in tokens.
        max_len: That of the longest one.
        strategy: Where positives lie. ``both``: overlapping their anchor, next to it or inside it;
            ``subsuming``: inside it; ``adjacent``: next to it.
        rng: The generator of all draws.
        label: The name of the document in an error.

    Returns:
        The anchors, and the list of positives of each. A span is a pair of indices: that of its
        first token, and the one behind its last.

    Raises:
        DataError: The document has fewer than ``2 * anchors * max_len`` tokens.
    """
    needed_tokens = 2 * anchors * max_len
    if n_tokens < needed_tokens:
        wanted = f"{format_count(anchors, 'anchor')} of up to {max_len} tokens"
        message = f"{label}: {n_tokens:,} tokens; {wanted} need {needed_tokens:,}"
        raise DataError(f"{message}: leave short documents out, or take fewer or shorter anchors")
    # The first token of each block that may still be used.
    block_starts = list(range(0, n_tokens - max_len + 1, max_len))
    spans = Spans(anchors=[], positives=[])
    for n_remaining in range(anchors, 0, -1):
        length = _draw_length(rng, beta=ANCHOR_LENGTH_BETA, shortest=min_len, longest=max_len)
        n_blocks = len(block_starts)
        # If a block from the middle could leave too few blocks, choose the first or the last.
        if n_blocks // n_remaining < n_remaining:
            block_index = int(rng.choice([0, n_blocks - 1]))
        else:
            block_index = int(rng.integers(n_blocks))
        first_start = block_starts[block_index]
        start = int(rng.integers(first_start, first_start + max_len - length + 1))
        # The block and those beside it in the list are not used again.
        del block_starts[max(0, block_index - 1) : block_index + 2]
        anchor = (start, start + length)
        spans.anchors.append(anchor)
        draw_positive = partial(STRATEGIES[strategy], anchor, n_tokens, min_len, max_len, rng)
        spans.positives.append([draw_positive() for _ in range(positives)])
    return spans


def _draw_length(
    rng: np.random.Generator, beta: tuple[float, float], shortest: int, longest: int
) -> int:
    """Draw the length of a span between the shortest and the longest one, in tokens, rounded down.

    Args:
        rng: The generator.
        beta: The two parameters of a Beta distribution on 0 to 1. A number drawn from it is the
            place between the two lengths: 0 is the shortest, 1 the longest.
        shortest: The shortest length, in tokens.
        longest: The longest length, in tokens.
    """
    share = rng.beta(*beta)
    return int(share * (longest - shortest) + shortest)


def _draw_subsuming(
    anchor: Span, n_tokens: int, min_len: int, max_len: int, rng: np.random.Generator
) -> Span:
    """Draw a positive span inside an anchor span, as DeCLUTR's official code does.

    A span is consecutive tokens of a document: the index of its first token, and the one behind its
    last.

    Args:
        anchor: The anchor.
        n_tokens: Not used; the functions of all strategies have the same arguments.
        min_len: The length of the shortest span, in tokens.
        max_len: Not used: the longest positive is the whole anchor.
        rng: The generator.

    Returns:
        The positive span.
    """
    start, end = anchor
    # Of the Beta distribution (2, 4), so that short lengths are likelier.
    length = _draw_length(rng, beta=POSITIVE_LENGTH_BETA, shortest=min_len, longest=end - start)
    positive_start = int(rng.integers(start, end - length + 1))
    return positive_start, positive_start + length


def _draw_adjacent(
    anchor: Span, n_tokens: int, min_len: int, max_len: int, rng: np.random.Generator
) -> Span:
    """Draw a positive span that ends where an anchor begins, or begins where it ends.

    A span is consecutive tokens of a document: the index of its first token, and the one behind its
    last.

    Args:
        anchor: The anchor.
        n_tokens: The number of tokens of the document.
        min_len: The length of the shortest span, in tokens.
        max_len: The length of the longest span, in tokens.
        rng: The generator.

    Returns:
        The positive span.
    """
    start, end = anchor
    # Of the Beta distribution (2, 4), so that short lengths are likelier.
    length = _draw_length(rng, beta=POSITIVE_LENGTH_BETA, shortest=min_len, longest=max_len)
    possible_starts = []
    # A span from the first token of the document (start == length) is not offered, because
    # DeCLUTR's official code never takes one.
    if start > length:
        possible_starts.append(start - length)
    if end + length <= n_tokens:
        possible_starts.append(end)
    if not possible_starts:
        # If there is no other, it is taken here; in a document long enough for an anchor this
        # happens only if start == length.
        possible_starts.append(start - length)
    positive_start = int(rng.choice(possible_starts))
    return positive_start, positive_start + length


def _draw_overlapping(
    anchor: Span, n_tokens: int, min_len: int, max_len: int, rng: np.random.Generator
) -> Span:
    """Draw a positive span that overlaps an anchor, lies next to it or inside it.

    A span is consecutive tokens of a document: the index of its first token, and the one behind its
    last.

    Args:
        anchor: The anchor.
        n_tokens: The number of tokens of the document.
        min_len: The length of the shortest span, in tokens.
        max_len: The length of the longest span, in tokens.
        rng: The generator.

    Returns:
        The positive span.
    """
    start, end = anchor
    # Of the Beta distribution (2, 4), so that short lengths are likelier.
    length = _draw_length(rng, beta=POSITIVE_LENGTH_BETA, shortest=min_len, longest=max_len)
    # At the first possible start the positive ends where the anchor begins, and at the last one it
    # begins where the anchor ends; both are limited to the document.
    first_start = max(0, start - length)
    last_start = min(end, n_tokens - length)
    positive_start = int(rng.integers(first_start, last_start + 1))
    return positive_start, positive_start + length


STRATEGIES: Mapping[Strategy, Callable[[Span, int, int, int, np.random.Generator], Span]] = {
    "both": _draw_overlapping,
    "subsuming": _draw_subsuming,
    "adjacent": _draw_adjacent,
}
"""Functions that draw a positive, by strategy: from an anchor, the number of tokens of the
document, the shortest and the longest span, and a generator."""
