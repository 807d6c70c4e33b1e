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

    The groups are the largest ranges of encoders of which the first and the last do not differ.
    If an encoder within a range differs from another one, as can be with gaps, ranges are divided
    until no group has two encoders that differ (insert and absorb; Piepho 2004, section 2.2). A
    group whose pairs are all together in other groups is not needed and is then removed (sweeping).

    Args:
        different: Which pairs differ significantly, (k, k), symmetric; encoders best first.

    Returns:
        The letters; the first encoder has ``a``. After ``z`` come ``A`` to ``Z``, then ``.a``.
    """
    k = len(different)
    groups = _insert_and_absorb(_find_ranges(different), different)
    needed_masks = _sweep(groups.masks, k)
    # Sorted by their best encoder, then by their second best, and so on: the first gets ``a``.
    members_by_group = sorted(_members(mask, k).tolist() for mask in needed_masks)
    letters_by_encoder = [""] * k
    n_letters = len(string.ascii_letters)
    for index, members in enumerate(members_by_group):
        letter = "." * (index // n_letters) + string.ascii_letters[index % n_letters]
        for encoder in members:
            letters_by_encoder[encoder] += letter
    return LetterDisplay(letters_by_encoder, groups.is_exact)


def _find_ranges(different: BoolArray) -> list[int]:
    """Find the largest ranges of encoders of which the first and the last do not differ.

    Returns:
        Bit masks of encoders; every pair that does not differ is in one of the ranges.
    """
    k = len(different)
    if not k:
        return []
    # The last encoder that each one does not differ from.
    last_tied = k - 1 - np.argmax(~different[:, ::-1], axis=1)
    stops = 1 + np.maximum.accumulate(last_tied)
    # A range that ends where the one before it ends lies within that one.
    starts = np.flatnonzero(np.diff(stops, prepend=0))
    # The bits from start to stop - 1.
    return [(1 << int(stops[start])) - (1 << int(start)) for start in starts]


def _insert_and_absorb(groups: list[int], different: BoolArray) -> _Groups:
    """Divide groups until none has two encoders that differ.

    All differences of an encoder are inserted at once: a group that has the encoder and some of
    its rivals, the later encoders that differ from it, becomes two. One is without the encoder, the
    other one without the rivals. Dividing stops if more than ``MAX_GROUPS`` groups would be left
    after sweeping; the groups are not exact then.

    Args:
        groups: The groups as bit masks of encoders.
        different: Which encoders differ significantly, (k, k), symmetric.
    """
    for encoder, is_rival in enumerate(np.triu(different, 1)):
        # As a bit mask.
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


def _members(group: int, k: int) -> IntArray:
    """Return the indices of the encoders in a group, a bit mask of k encoders."""
    bits = np.frombuffer(group.to_bytes(k // 8 + 1, "little"), dtype=np.uint8)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little"))


def _split(groups: list[int], encoder: int, rivals: int) -> list[int]:
    """Split each group that contains an encoder and rivals of it.

    Its parts are the group without the encoder and the group without the rivals; a part within
    another group is dropped.

    Args:
        groups: The groups as bit masks of encoders.
        encoder: The bit mask of the encoder.
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
        # No group lies within a part: it would have lain within the group that was split.
        if not any(part & group == part for group in remaining):
            remaining.append(part)
    return remaining


def _sweep(groups: Sequence[int], k: int) -> list[int]:
    """Return the groups without those of which every pair is together in some other group.

    The smallest group is tried first. A group is removed only if other remaining groups have its
    pairs, so that each pair stays together in at least one.

    Args:
        groups: The groups as bit masks of encoders.
        k: The number of encoders.

    Returns:
        The remaining groups, the smallest first.
    """
    groups = sorted(groups, key=int.bit_count)
    is_member = np.zeros((len(groups), k), dtype=np.float32)
    for group_row, group in zip(is_member, groups, strict=True):
        group_row[_members(group, k)] = 1
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
        # Removing smaller groups may have left it alone with a pair.
        has_own_pair = is_needed or (n_groups_by_pair[members][:, members] == 1).any()
        if has_own_pair:
            remaining.append(group)
        else:
            is_pair_of_group = np.logical_and.outer(members, members)
            n_groups_by_pair -= is_pair_of_group
    return remaining
