"""What several encoders were all measured on: the same tasks, scored in the same way, with the same seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from stsbench.errors import DataError, ProtocolError
from stsbench.results.comparable import protocol_key, why_not_comparable
from stsbench.results.record import Result


class Column(NamedTuple):
    """One task under one protocol: for each encoder its results, one a seed."""

    task: str
    split: str
    protocol: Mapping[str, Any]
    results: Sequence[Sequence[Result]]


def align(
    encoders: Mapping[str, Sequence[Result]], *, tasks: Sequence[str] | None = None, protocol: str | None = None
) -> tuple[list[Column], list[str]]:
    """The tasks and protocols that all encoders share, and a note on what only some have.

    Raises:
        ProtocolError: a task was scored in different ways, or on different data; names the field.
        DataError: no task in common.
    """
    cells = [_cells(results, tasks, protocol) for results in encoders.values()]
    order = [task for task in (tasks or dict.fromkeys(task for one in cells for task in one))]
    shared = [task for task in order if all(task in one for one in cells)]
    if not shared:
        names = " and ".join(f"'{name}'" for name in encoders)
        by = f" by protocol {protocol!r}" if protocol else ""
        has = "; ".join(f"'{name}' has {_listed(list(one))}" for name, one in zip(encoders, cells, strict=True))
        raise DataError(f"{names} have no task in common{by}", hint=has)
    left = [task for task in order if task not in shared]
    notes = [f"Skipped: not scored for every encoder: {', '.join(left)}"] if left else []
    columns = [column for task in shared for column in _columns(task, list(encoders), [one[task] for one in cells])]
    return columns, notes


def _listed(tasks: Sequence[str]) -> str:
    return ", ".join(tasks[:SHOWN]) + (f" and {len(tasks) - SHOWN} more" if len(tasks) > SHOWN else "") or "none"


SHOWN = 8
"""Tasks that a complaint names of each encoder."""
Ways = dict[tuple[str, str], list[Result]]
"""One encoder's results on one task by split and protocol."""


def _cells(results: Sequence[Result], tasks: Sequence[str] | None, protocol: str | None) -> dict[str, Ways]:
    found: dict[str, Ways] = {}
    for result in results:
        if (tasks is None or result.task in tasks) and protocol in (None, result.protocol["name"]):
            key = result.split, protocol_key(result.protocol)
            found.setdefault(result.task, {}).setdefault(key, []).append(result)
    return found


def _columns(task: str, names: Sequence[str], ways: Sequence[Ways]) -> Iterator[Column]:
    """A column for each way of scoring that all share."""
    shared = [key for key in ways[0] if all(key in other for other in ways)]
    candidates = [[other[key] for other in ways] for key in shared] or [[next(iter(o.values())) for o in ways]]
    for found in candidates:
        for (name, one), (other_name, other) in itertools.combinations(zip(names, found, strict=True), 2):
            why = why_not_comparable(one[0], other[0])
            if why:
                raise ProtocolError(f"{task}: '{name}' and '{other_name}' cannot be compared: {why}")
        result = found[0][0]
        yield Column(task, result.split, result.protocol, [_seeds(group) for group in found])


def _seeds(group: Sequence[Result]) -> list[Result]:
    """An encoder's results, one a seed; where the seed draws nothing, all seeds hold the same items and one stands."""
    return sorted({one.items: one for one in reversed(group)}.values(), key=_seed_order)


def _seed_order(one: Result) -> tuple[int, int]:
    train, evaluation = one.seeds
    return (-1 if train is None else train), evaluation
