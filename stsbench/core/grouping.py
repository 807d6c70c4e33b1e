"""Groups of what has the same key, in the order in which the keys occur."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

MemberT = TypeVar("MemberT")
KeyT = TypeVar("KeyT", bound=Hashable)


def group_by(
    members: Iterable[MemberT], key: Callable[[MemberT], KeyT]
) -> dict[KeyT, list[MemberT]]:
    """Collect members that have the same key into groups.

    Args:
        members: The objects to group; those with the same key need not be neighbours.
        key: A function that returns the key of a member.

    Returns:
        Key -> its members. Keys are in the order of their first member, and the members of a group
        in the order in which they came.
    """
    groups: dict[KeyT, list[MemberT]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups
