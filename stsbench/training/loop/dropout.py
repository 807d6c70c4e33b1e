"""Dropout from fewer random bits: on a CPU torch draws one element at a time, which takes as long as a small layer."""

from __future__ import annotations

from typing import Any

import torch

_BITS = 16
"""Of randomness an element: a rate is met to within 8e-6."""


def draw_kept(shape: torch.Size, rate: float) -> tuple[torch.Tensor, float]:
    """Draw what a dropout keeps, by torch's own generator of the CPU.

    Args:
        shape: of what is dropped from.
        rate: the share to drop, 0 to 1.

    Returns:
        What is kept, bool of this shape, and what it is multiplied by.
    """
    dropped = round(rate * 2**_BITS)
    bits = torch.empty((shape.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    drawn = bits.view(torch.int16)[: shape.numel()].view(shape)
    return drawn >= dropped - 2 ** (_BITS - 1), 1 / (1 - dropped / 2**_BITS)


class FewBitsDropout(torch.nn.Dropout):
    """``torch.nn.Dropout`` for a CPU; a rate of 0 or 1 is left to that."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Drop from values of any shape."""
        if not self.training or not 0 < self.p < 1:
            return super().forward(values)
        dropped: torch.Tensor = _Drop.apply(values, self.p)  # type: ignore[no-untyped-call]
        return dropped


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, rate: float) -> torch.Tensor:  # noqa: ANN401 - torch's own
        keep, ctx.scale = draw_kept(values.shape, rate)
        ctx.save_for_backward(keep)
        return (values * keep).mul_(ctx.scale)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ANN401 - torch's own
        (keep,) = ctx.saved_tensors
        return (gradient * keep).mul_(ctx.scale), None


def draw_fewer_bits(module: torch.nn.Module) -> None:
    """Let every plain dropout within a module on a CPU draw so."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is torch.nn.Dropout and not child.inplace:
                setattr(parent, name, FewBitsDropout(child.p).train(child.training))
