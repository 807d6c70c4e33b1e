"""What a folder, a file or a class is called that no card names: short, and never as a card or recipe is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from stsbench.cards.catalogue import Catalogue


def place_names(path: Path, catalogue: Catalogue) -> list[str]:
    """The ends of a path, shortest first: ``final``, ``runA/final`` and so on; none is a card's or recipe's name."""
    parts = path.resolve().parts[1:]
    ends = ["/".join(parts[-length:]) for length in range(1, len(parts) + 1)]
    return [end for end in ends if not catalogue.is_taken(end)] or [f"{path.name} (folder)"]


def apart(names: Sequence[str], taken: Callable[[str], bool]) -> str:
    """The first of these names that is not taken; the last one where all are."""
    return next((name for name in names if not taken(name)), names[-1])


def shared_ends(path: Path, others: Sequence[Path]) -> frozenset[str]:
    """The ends that other paths have too, so that none of them tells this one."""
    mine = path.resolve()
    found: set[str] = set()
    for other in {other.resolve() for other in others} - {mine}:
        ends = ["/".join(other.parts[-length:]) for length in range(1, len(other.parts))]
        found.update(ends)
    return frozenset(found)
