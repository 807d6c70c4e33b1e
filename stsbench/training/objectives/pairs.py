"""What a classifier of sentence pairs is given: the two embeddings, and how they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from stsbench.errors import StsbenchError, UnknownName
from stsbench.training.objectives.arithmetic import check_rows

_FEATURES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: (u - v).abs(),
    "u*v": lambda u, v: u * v,
    "max(u,v)^2": lambda u, v: torch.maximum(u, v).square(),
}

PAIR_FEATURES: dict[str, tuple[str, ...]] = {
    "sbert": ("u", "v", "|u-v|"),
    "infersent": ("u", "v", "|u-v|", "u*v"),
    "consert-scripts": ("u", "v", "|u-v|", "max(u,v)^2"),
}
"""SBERT's, which ConSERT's paper names too; InferSent's; and what ConSERT's scripts pass instead.

SBERT's table 6 tries others, given feature by feature: (u, v), (|u-v|), (u*v), (|u-v|, u*v),
(u, v, u*v), (u, v, |u-v|, u*v).
"""


def feature_names(kinds: str | Sequence[str]) -> tuple[str, ...]:
    """Return the features of a preset, or those named one by one; a classifier has d inputs for each.

    Raises:
        UnknownName: no such preset or feature.
        StsbenchError: none at all.
    """
    if isinstance(kinds, str):
        if kinds not in PAIR_FEATURES:
            hint = f"known: {', '.join(PAIR_FEATURES)}, or a list of {', '.join(_FEATURES)}"
            raise UnknownName("pair features", kinds, PAIR_FEATURES, hint=hint)
        return PAIR_FEATURES[kinds]
    for kind in kinds:
        if kind not in _FEATURES:
            raise UnknownName("pair feature", kind, _FEATURES, hint=f"known: {', '.join(_FEATURES)}")
    if not kinds:
        raise StsbenchError(f"no pair features; name some of {', '.join(_FEATURES)}")
    return tuple(kinds)


def pair_features(u: torch.Tensor, v: torch.Tensor, kinds: str | Sequence[str]) -> torch.Tensor:
    """Return the features of sentence pairs side by side, (b, len(feature_names(kinds)) * d).

    Args:
        u: (b, d), the first sentences.
        v: (b, d), the second.
        kinds: a preset's name, or features in their order.

    Raises:
        UnknownName: no such preset or feature.
        StsbenchError: no feature at all.
        ValueError: shapes that do not fit.
    """
    check_rows(u=u, v=v)
    return torch.cat([_FEATURES[name](u, v) for name in feature_names(kinds)], dim=1)
