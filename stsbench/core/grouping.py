"""Groups of what has the same key, in the order in which the keys occur."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

MemberT = TypeVar("MemberT")
KeyT = TypeVar("KeyT", bound=Hashable)


def group_by(
    members: Iterable[MemberT], key: Callable[[MemberT], KeyT]
) -> dict[KeyT, list[MemberT]]:
    """Return the members of each group by its key, both in the order of the first occurrence.

    Args:
        members: What to group; members with the same key need not be neighbours.
        key: Returns the key of a member.
    """
    groups: dict[KeyT, list[MemberT]] = {}
    for member in members:
        groups.setdefault(key(member), []).append(member)
    return groups
