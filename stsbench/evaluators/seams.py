"""What an evaluator is: splits and embeddings in, scores out; it loads, writes and prints nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import EncoderError, which_sentence
from stsbench.data.splits import Split
from stsbench.encoders.base import Embed, Embeddings, blocks

# Types of protocols' fields: what a user gives is held to them where it is read.
Count = Annotated[int, Meta(ge=1)]
FromZero = Annotated[int, Meta(ge=0)]
Positive = Annotated[float, Meta(gt=0)]


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


Items = Mapping[str, npt.NDArray[Any] | list[str]]
"""Per-item columns, each of length n."""


class Evaluator(Protocol):
    """Scores one task; made with its protocol, called with the task's splits."""

    protocol: Any
    """A dataclass: what a Result records of how it was scored."""

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Score the embeddings of these splits."""
        ...

    def recompute(self, items: Items) -> Scores:
        """Make the scores again from per-item columns, or from those of some of the items; nothing is embedded.

        What training items or other splits decide is not among them. An evaluator of a user's own may lack this.
        """
        ...


class Inspected(NamedTuple):
    """How many embeddings are zero vectors, and whether all are the same."""

    zeros: int
    constant: bool


def inspect(view: Embeddings, texts: Sequence[str]) -> Inspected:
    """Look through the embeddings of texts, some rows at a time.

    Raises:
        EncoderError: a wrong shape, or an embedding that is not finite, with the number of its sentence.
    """
    if len(view.shape) != 2 or view.shape[0] != len(texts):
        raise EncoderError(f"{len(texts)} sentences gave embeddings of shape {tuple(view.shape)}, not (n, d)")
    zeros, constant, first, start = 0, True, view.take(np.zeros(1, dtype=np.int64)), 0
    for rows in blocks(view):
        bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        if len(bad):
            raise EncoderError(f"NaN or infinity in the embedding of {which_sentence(texts, start + int(bad[0]))}")
        zeros += int((~rows.any(axis=1)).sum())
        constant = constant and bool((rows == first).all())
        start += len(rows)
    return Inspected(zeros, constant)
