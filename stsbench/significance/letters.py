"""Compact letter displays: rows that share a letter do not differ significantly."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stsbench.numbers.statistics import BoolArray, IntArray

MAX_GROUPS = 52
"""The number of groups of letters beyond which groups are not divided any further.

With gaps their number may grow exponentially with the number of rows.
"""


class LetterDisplay(NamedTuple):
    """The letters of k encoders.

    Attributes:
        letters: Each encoder's letters, (k,).
        is_exact: All significant differences are displayed. If not, some encoders share a letter
            although they differ, because there would be more than ``MAX_GROUPS`` groups.
    """

    letters: Sequence[str]
    is_exact: bool


class _Groups(NamedTuple):
    """Groups of encoders; those of one group share a letter.

    Attributes:
        masks: Each group as a bit mask: bit i is set if encoder i is in it.
        is_exact: No group has two encoders that differ.
    """

    masks: list[int]
    is_exact: bool


def assign_letters(different: BoolArray) -> LetterDisplay:
    """Assign letters to k encoders, so that two share one if they do not differ significantly.

    This is a compact letter display; each letter is a group of encoders.

    1. The first groups are the largest ranges, in the order of scores, of which the first and the
       last encoder do not differ.
    2. An encoder within a range may differ from another one there. Such groups are divided until
       none has two encoders that differ (insert and absorb; Piepho 2004, section 2.2).
    3. A group is removed if all its pairs are also together in other groups (sweeping).

    Args:
        different: Whether each pair of encoders differs significantly, (k, k), symmetric; encoders
            are sorted, the best first.

    Returns:
        The letters of each encoder, such as ``ab``, and whether they are exact. The first encoder
        has ``a``. After ``z`` come ``A`` to ``Z``, then ``.a``. They are not exact if there would
        be too many groups: then some encoders share a letter although they differ.
    """
    k = len(different)
    groups = _insert_and_absorb(_find_ranges(different), different)
    needed_masks = _sweep(groups.masks, k)
    # Groups, as lists of encoders, are sorted by their best encoder, then by the second best, and
    # so on. The first group gets ``a``.
    members_by_group = sorted(_encoders_of_group(mask, k).tolist() for mask in needed_masks)
    letters_by_encoder = [""] * k
    n_letters = len(string.ascii_letters)
    for index, members in enumerate(members_by_group):
        letter = "." * (index // n_letters) + string.ascii_letters[index % n_letters]
        for encoder in members:
            letters_by_encoder[encoder] += letter
    return LetterDisplay(letters_by_encoder, groups.is_exact)


def _find_ranges(different: BoolArray) -> list[int]:
    """Find the largest ranges of encoders of which the first and the last do not differ.

    Every pair of encoders that does not differ is in one of the ranges.

    Args:
        different: Whether each pair of encoders differs significantly, (k, k), symmetric.

    Returns:
        The ranges as bit masks: bit i is set if encoder i is in the range.
    """
    k = len(different)
    if not k:
        return []
    # For each encoder the last one that it does not differ from. argmax finds the first True, so
    # columns are reversed.
    last_tied = k - 1 - np.argmax(~different[:, ::-1], axis=1)
    # For each encoder, where the range that starts with it ends, or a range that started before.
    stops = 1 + np.maximum.accumulate(last_tied)
    # A range that ends where the range before it ends lies within that one, and is dropped.
    starts = np.flatnonzero(np.diff(stops, prepend=0))
    # The bits from start to stop - 1.
    return [(1 << int(stops[start])) - (1 << int(start)) for start in starts]


def _insert_and_absorb(groups: list[int], different: BoolArray) -> _Groups:
    """Divide groups until none has two encoders that differ.

    The rivals of an encoder are the later encoders that differ from it. A group that has the
    encoder and some of its rivals becomes two: one without the encoder, one without the rivals.
    Dividing stops if more than ``MAX_GROUPS`` groups would be left, even without those that are not
    needed (:func:`_sweep`).

    Args:
        groups: The groups as bit masks: bit i is set if encoder i is in the group.
        different: Whether each pair of encoders differs significantly, (k, k), symmetric.

    Returns:
        The groups as bit masks, and whether they are exact: not if dividing has stopped.
    """
    # Above the diagonal, each row of ``different`` has the later encoders.
    for encoder, is_rival in enumerate(np.triu(different, 1)):
        # The rivals as a bit mask.
        rivals = int.from_bytes(np.packbits(is_rival, bitorder="little").tobytes(), "little")
        divided_groups = _split(groups, 1 << encoder, rivals)
        if divided_groups == groups:
            continue
        if len(divided_groups) > MAX_GROUPS:
            divided_groups = _sweep(divided_groups, len(different))
        if len(divided_groups) > MAX_GROUPS:
            return _Groups(groups, is_exact=False)
        groups = divided_groups
    return _Groups(groups, is_exact=True)


def _encoders_of_group(group: int, k: int) -> IntArray:
    """Return the indices of the encoders in a group, a bit mask of k encoders."""
    bits = np.frombuffer(group.to_bytes(k // 8 + 1, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little"))


def _split(groups: list[int], encoder: int, rivals: int) -> list[int]:
    """Split each group that contains both an encoder and rivals of it (encoders that differ).

    Its parts are the group without the encoder and the group without the rivals. A part that lies
    within another group is dropped.

    Args:
        groups: The groups as bit masks: bit i is set if encoder i is in the group.
        encoder: The bit mask of the encoder: one bit.
        rivals: The bit mask of its rivals.

    Returns:
        The groups that need no split, then the parts, the largest first.
    """
    remaining = []
    parts = set()
    for group in groups:
        if group & encoder and group & rivals:
            parts.add(group & ~encoder)
            parts.add(group & ~rivals)
        else:
            remaining.append(group)
    for part in sorted(parts, key=int.bit_count, reverse=True):
        # A group never lies within a part, because it would have lain within the group that was
        # split. So only the reverse is checked.
        is_within_group = any(part & group == part for group in remaining)
        if not is_within_group:
            remaining.append(part)
    return remaining


def _sweep(groups: Sequence[int], k: int) -> list[int]:
    """Remove groups that are not needed: every pair of their encoders is in some other group.

    The smallest group is tried first. A group is removed only if other remaining groups have its
    pairs, so that each pair stays together in at least one group.

    Args:
        groups: The groups as bit masks: bit i is set if encoder i is in the group.
        k: The number of encoders.

    Returns:
        The remaining groups, the smallest first.
    """
    groups = sorted(groups, key=int.bit_count)
    is_member = np.zeros((len(groups), k), dtype=np.float32)
    for group_row, group in zip(is_member, groups, strict=True):
        group_row[_encoders_of_group(group, k)] = 1
    # In how many groups two encoders are together; an encoder forms a pair with itself too.
    n_groups_by_pair = (is_member.T @ is_member).astype(np.uint16)
    # A group with a pair that is in no other group is needed, whichever other groups are removed.
    is_in_one_group = (n_groups_by_pair == 1).astype(np.float32)
    # For each group and encoder, how many members are together with it in a single group: (g, k).
    n_partners = is_member @ is_in_one_group
    # Added up over the encoders that are members themselves: (g,).
    n_own_pairs = np.einsum("gi,gi->g", n_partners, is_member)
    remaining = []
    for group, members, is_needed in zip(groups, is_member > 0, n_own_pairs > 0, strict=True):
        # After smaller groups were removed, it may be the only one left with some pair.
        has_own_pair = is_needed or (n_groups_by_pair[members][:, members] == 1).any()
        if has_own_pair:
            remaining.append(group)
        else:
            is_pair_of_group = np.logical_and.outer(members, members)
            n_groups_by_pair -= is_pair_of_group
    return remaining
