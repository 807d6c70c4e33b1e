"""Losses of sentence-transformers over embeddings that are there already.

Theirs embed by themselves, a column at a time. Here a student embeds all columns at once, in parts
of like length, and the rows of all ranks are joined; then the loss is theirs.
"""

from __future__ import annotations

from typing import Any

import torch

from stsbench.training.objectives.arithmetic import check_rows, in_float32


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

    Raises:
        ValueError: shapes that do not fit.
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

    Raises:
        ValueError: shapes that do not fit.
    """
    value: torch.Tensor = loss(given_columns(*embeddings), labels)
    return value
