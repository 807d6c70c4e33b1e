"""What an interval of a mean is computed from, as one hash: an interval computed before is found by it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

import msgspec

from stsbench import numbers
from stsbench.results.comparable import protocol_key
from stsbench.results.record import Result


def mark_of(cells: Sequence[Sequence[Result]], tasks: Sequence[int], scores: Sequence[str]) -> str | None:
    """A hash of scores, protocols, seeds, per-item columns by their own hash, and formulas.

    Args:
        cells: a row's results task by task, several on one task being its seeds.
        tasks: the places of the tasks that the mean is over.
        scores: the score that counts on each task; without any, the results' own.

    Returns:
        32 hex digits; None of results that lie in no file: nothing says that their columns have the hash they name.
    """
    results = [one for at in tasks for one in cells[at]]
    if not all(one.path is not None and not one.per_item for one in results):
        return None
    facts = [
        (
            scores[at] if scores else "",
            [(protocol_key(one.protocol), one.items, one.score, *one.seeds) for one in cells[at]],
        )
        for at in tasks
    ]
    return hashlib.sha256(msgspec.json.encode((_formulas(), facts))).hexdigest()[:32]


@cache
def _formulas() -> str:
    """A hash of the sources that compute intervals, and of the packages that these use."""
    files = [file for folder in (Path(__file__).parent, *map(Path, numbers.__path__)) for file in folder.glob("*.py")]
    sources = b"".join(file.read_bytes() for file in sorted(files))
    versions = " ".join(version(name) for name in ("numpy", "scipy"))
    return hashlib.sha256(sources + versions.encode()).hexdigest()
