"""The head of pooling ``cls``: a linear layer and tanh over the first token, saved as the transformer's pooler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers

from stsbench.encoders.checkpoints.checkpoint import Checkpoint
from stsbench.errors import EncoderError, choose


class PoolerHead(torch.nn.Module):
    """A linear layer and tanh over the first token: BERT's pooler, SimCSE's MLP."""

    def __init__(self, width: int) -> None:
        """Make a square layer."""
        super().__init__()
        self.linear = torch.nn.Linear(width, width)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        """(b, h) to (b, h)."""
        return torch.tanh(self.linear(state))


def make_head(start: str, model: Any, missing: Sequence[str], checkpoint: Checkpoint) -> PoolerHead:  # noqa: ANN401
    """Make a head for a transformer.

    Args:
        start: ``fresh``, or ``checkpoint``: the transformer's own pooler.
        model: the transformer.
        missing: the tensors that its checkpoint lacks.
        checkpoint: where it came from.

    Raises:
        EncoderError: there is no pooler to start from.
    """
    made = PoolerHead(model.config.hidden_size)
    torch.nn.init.normal_(made.linear.weight, std=getattr(model.config, "initializer_range", 0.02))
    torch.nn.init.zeros_(made.linear.bias)
    if choose("head", start, {"fresh": True, "checkpoint": False}):
        return made
    pooler: Any = getattr(model, "pooler", None)
    if not hasattr(pooler, "dense") or any("pooler" in key for key in missing):
        raise EncoderError(f"{checkpoint.folder}: has no pooler to start from; use head = 'fresh'")
    made.linear.load_state_dict(pooler.dense.state_dict())
    return made


def check_place_for_head(config: Any) -> None:  # noqa: ANN401 - transformers is untyped
    """Raise EncoderError where a transformer of this configuration has no pooler that the head can be saved as."""
    with torch.device("meta"):
        model: Any = transformers.AutoModel.from_config(config)
    if not hasattr(getattr(model, "pooler", None), "dense"):
        raise EncoderError(
            f"pooling 'cls': {type(model).__name__} has no pooler to save the head as; "
            "use it in training alone, with test_pooling = 'cls_before_pooler'"
        )
