"""Compact letter displays: two encoders share a letter exactly where their difference is not significant."""

from __future__ import annotations

import string

import numpy as np
import numpy.typing as npt


def letter_display(different: npt.NDArray[np.bool_]) -> list[str]:
    """Letters of k encoders by insert and absorb (Piepho 2004, section 2.2), (k,).

    All start in one group. For each significant difference, a group that holds both of its encoders becomes two, one without
    the first and one without the second; a group that lies within another is absorbed by it. A group whose pairs all stand
    in other groups is then left out (his sweeping, of whole groups).

    Args:
        different: whether the difference of two encoders is significant, (k, k), symmetric; encoders best first.

    Returns:
        The letters of each encoder, ``a`` being the first one's. After ``z`` come ``A`` to ``Z``, then ``.a``.
    """
    k = len(different)
    groups = [(1 << k) - 1] if k else []
    for first, second in zip(*np.nonzero(np.triu(different, 1)), strict=True):
        groups = _split(groups, 1 << int(first), 1 << int(second))
    members = sorted([place for place in range(k) if group >> place & 1] for group in _swept(groups, k))
    return ["".join(_letter(at) for at, group in enumerate(members) if place in group) for place in range(k)]


def _split(groups: list[int], first: int, second: int) -> list[int]:
    """The groups, as sets of bits, after two encoders have been kept apart."""
    kept = [group for group in groups if not (group & first and group & second)]
    parts = [group & ~one for group in groups if group & first and group & second for one in (first, second)]
    for part in sorted(set(parts), key=int.bit_count, reverse=True):
        # No group lies within a part: it would have lain within the group that was split.
        if not any(part & group == part for group in kept):
            kept.append(part)
    return kept


def _swept(groups: list[int], k: int) -> list[int]:
    """The groups without those of which every pair stands in another, the smallest looked at first."""
    kept = sorted(groups, key=int.bit_count)
    for group in list(kept):
        others = [other for other in kept if other != group]
        places = [place for place in range(k) if group >> place & 1]
        # Of an encoder alone the pair is with itself.
        pairs = [1 << a | 1 << b for a in places for b in places if a <= b]
        if all(any(pair & other == pair for other in others) for pair in pairs):
            kept = others
    return kept


def _letter(place: int) -> str:
    rounds, at = divmod(place, len(string.ascii_letters))
    return "." * rounds + string.ascii_letters[at]
