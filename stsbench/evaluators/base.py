"""What an evaluator is: splits and embeddings in, scores out; it loads, writes and prints nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.core.errors import DataError
from stsbench.data.splits import Split
from stsbench.encoders.base import Embed, EmbeddingRows, iter_blocks
from stsbench.numbers.statistics import (
    CORRELATION_INTERVAL_METHOD,
    correlation_interval,
    read_dependence,
    weigh_subsets,
)

# Types of protocols' fields: what a user gives is held to them where it is read.
PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
PositiveFloat = Annotated[float, Meta(gt=0)]


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What one evaluation found; every score is a plain float, never times 100.

    ``score`` is the number the protocol names, ``scores`` all numbers by name, ``per_subset`` those of each subset (or
    class), ``interval`` the 95% interval of ``score`` and ``interval_method`` how it was made. ``per_item`` holds
    columns of length ``n``, what paired tests need. ``notes`` are facts a reader must know, one sentence each.
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


ItemColumns = Mapping[str, npt.NDArray[Any] | list[str]]
"""Per-item columns, each of length n."""


class Evaluator(Protocol):
    """Scores one task; made with its protocol, called with the task's splits."""

    protocol: Any
    """A dataclass: what a Result records of how it was scored."""

    def __call__(self, splits: Mapping[str, Split], embed: Embed, *, seed: int) -> Scores:
        """Score the embeddings of these splits."""

    def recompute(self, items: ItemColumns) -> Scores:
        """Make the scores again from per-item columns, or from those of some of the items; nothing is embedded.

        What training items or other splits decide is not among them. An evaluator of a user's own may lack this; then its
        scores are not verified. A score that is not the one recomputed, because it was rounded or averaged over folds, needs a
        method ``score_range(items, split)``, which returns the least and the greatest score that the items can have made.
        """


SplitT = TypeVar("SplitT", bound=Split)


def require_splits(
    splits: Mapping[str, Split], kind: type[SplitT], evaluator: str, scored: str
) -> dict[str, SplitT]:
    """The splits train, validation and test; raises DataError where it is not these, or one is of another kind."""
    which = f"the evaluator '{evaluator}'"
    if set(splits) != {"train", "validation", "test"}:
        raise DataError(
            f"{which} needs the splits train, validation and test, not {sorted(splits)}"
        )
    found = {name: splits[name] for name in ("train", "validation", "test")}
    if not all(isinstance(split, kind) for split in found.values()):
        raise DataError(f"{which} scores {scored}")
    return cast(dict[str, SplitT], found)


class EmbeddingChecks(NamedTuple):
    """How many embeddings are zero vectors, and whether all are the same."""

    zero_vectors: int
    is_constant: bool


def inspect_embeddings(rows: EmbeddingRows) -> EmbeddingChecks:
    """Look through embeddings (n, d), some rows at a time."""
    zeros, constant, first = 0, True, None
    for block in iter_blocks(rows):
        first = block[:1] if first is None else first
        zeros += int((~block.any(axis=1)).sum())
        constant = constant and bool((block == first).all())
    return EmbeddingChecks(zeros, constant)


def score_pairs(
    items: ItemColumns,
    x: npt.NDArray[np.float64],
    *,
    metric: str,
    aggregation: str = "all",
    score: float,
    **found: Any,  # noqa: ANN401
) -> Scores:
    """Scores of pairs of which ``score`` is a correlation of x (n,) with their ``gold`` scores, with its interval."""
    gold, n = np.asarray(items["gold"], dtype=np.float64), len(x)
    parts = weigh_subsets(list(map(str, items.get("subset", [""] * n))), aggregation)
    interval = correlation_interval(
        score, metric, x, gold, subset_weights=parts, dependence=read_dependence(items, n)
    )
    return Scores(
        score=score,
        interval=interval,
        interval_method=CORRELATION_INTERVAL_METHOD,
        per_item=items,
        n=n,
        **found,
    )
