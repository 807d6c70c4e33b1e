"""What an evaluator is: splits and embeddings in, scores out; it loads, writes and prints nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from stsbench.data.splits import Split
from stsbench.encoders.seams import Embed


class Named(Protocol):
    """What a table of protocols holds."""

    @property
    def name(self) -> str:
        """The name that ``--protocol`` asks for."""
        ...


NamedT = TypeVar("NamedT", bound=Named)


def by_name(*rows: NamedT) -> dict[str, NamedT]:
    """Return a table of protocols by name; the first is the one that is used where none is asked for."""
    return {row.name: row for row in rows}


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What one evaluation found; every score is a plain float, never times 100.

    ``score`` is the number the protocol names, ``scores`` all numbers by name, ``per_subset``
    the numbers of each subset (or class), ``interval`` the 95% interval of ``score`` and
    ``interval_method`` how it was made. ``per_item`` holds columns of length ``n``, what paired
    tests need. ``notes`` are facts a reader of the score must know, one sentence each.
    """

    score: float
    scores: Mapping[str, float]
    per_subset: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    interval: tuple[float, float]
    interval_method: str
    per_item: Mapping[str, npt.NDArray[np.generic] | list[str]]
    n: int
    zero_vectors: int = 0
    notes: tuple[str, ...] = ()


class Evaluator(Protocol):
    """Scores one task; made with its protocol, called with the task's splits."""

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Score the embeddings of these splits."""
        ...
