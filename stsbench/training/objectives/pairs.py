"""What a classifier of sentence pairs is given: the two embeddings, and how they differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stsbench.core.errors import StsbenchError, UnknownName
from stsbench.training.objectives.contrastive import check_rows, in_float32

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
    """
    check_rows(u=u, v=v)
    return torch.cat([_FEATURES[name](u, v) for name in feature_names(kinds)], dim=1)


class GivenEmbeddings(torch.nn.Module):
    """What such a loss takes for a model: it embeds sentences by handing on the embeddings it is given."""

    device = torch.device("cpu")
    """Where a loss makes its own weights, if it has any."""

    def __init__(self, name: str = "sentence_embedding") -> None:
        """Choose what of a column is handed on; by default its own embeddings."""
        super().__init__()
        self.name = name

    def forward(self, column: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Hand on the embeddings (b, d) as a model does."""
        return {"sentence_embedding": column[self.name]}


def given_columns(*embeddings: torch.Tensor) -> list[dict[str, torch.Tensor]]:
    """Make the columns of sentences that a loss asks for out of their embeddings, each (b, d).

    Each column has all the others' too, under their numbers from "1" on: some losses have two models embed one column.
    """
    numbered = {str(number): column for number, column in enumerate(embeddings, 1)}
    check_rows(**numbered)
    return [{"sentence_embedding": column, **numbered} for column in embeddings]


@in_float32
def library_loss(loss: Any, *embeddings: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:  # noqa: ANN401 - untyped
    """Return the value of a loss made with :class:`GivenEmbeddings` as its model.

    Args:
        loss: an object of ``sentence_transformers.sentence_transformer.losses``.
        *embeddings: of each column of sentences, (b, d).
        labels: (b,), where the loss has some.
    """
    value: torch.Tensor = loss(given_columns(*embeddings), labels)
    return value
