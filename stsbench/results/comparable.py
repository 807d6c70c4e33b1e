"""Which two scores may be set side by side: same split, protocol, data and task card; else the field that differs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

import msgspec


class Scored(Protocol):
    """What both a Result and a row of a lock file tell of the way a score was made."""

    @property
    def split(self) -> str:
        """The split that was scored."""
        ...

    @property
    def protocol(self) -> Mapping[str, Any]:
        """The protocol's fields."""
        ...

    @property
    def data(self) -> str:
        """The hash of the data."""
        ...

    @property
    def n(self) -> int:
        """The number of items."""
        ...

    @property
    def task_card(self) -> str | None:
        """The hash of how the task is scored; None where that is not known."""
        ...


def protocol_key(protocol: Mapping[str, Any]) -> str:
    """A protocol's fields as one text, the same for equal fields in any order."""
    return _sorted(msgspec.json.encode(protocol))


@lru_cache(maxsize=4096)
def _sorted(fields: bytes) -> str:
    """Made once for all results of a protocol: tables ask for it again and again."""
    return json.dumps(json.loads(fields), sort_keys=True)


def why_not_comparable(first: Scored, second: Scored) -> str | None:
    """The first thing that keeps two scores of a task apart, as part of a sentence; None where nothing does."""
    if first.split != second.split:
        return f"split differs: '{first.split}' against '{second.split}'"
    field = differing_field(first.protocol, second.protocol)
    if field is not None:
        ours, theirs = (_shown(protocol, field) for protocol in (first.protocol, second.protocol))
        return f"protocol field '{field}' differs: {ours} against {theirs}"
    if first.data != second.data:
        return f"data hash differs: {first.data[:12]} against {second.data[:12]}"
    if first.n != second.n:
        return f"number of items differs: {first.n} against {second.n}"
    if None not in (first.task_card, second.task_card) and first.task_card != second.task_card:
        return f"task card's hash differs: {str(first.task_card)[:12]} against {str(second.task_card)[:12]}"
    return None


def differing_field(first: Mapping[str, Any], second: Mapping[str, Any]) -> str | None:
    """The protocol field that differs; the name only where nothing else does, for it says least."""
    fields = [key for key in dict.fromkeys([*first, *second]) if key != "name"]
    return next((key for key in [*fields, "name"] if _shown(first, key) != _shown(second, key)), None)


def _shown(protocol: Mapping[str, Any], field: str) -> str:
    return json.dumps(protocol[field], ensure_ascii=False).replace('"', "'") if field in protocol else "none"
