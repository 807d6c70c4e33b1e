"""What makes a step on a CPU faster and changes nothing that is learned."""

from __future__ import annotations

import ctypes
import sys

import torch
from transformers import PreTrainedModel

from stsbench.training.loop.dropout import draw_fewer_bits
from stsbench.training.loop.unpadded import leave_out_padding

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
"""Names of glibc's ``mallopt``."""


def speed_up(module: torch.nn.Module, *, sparse: bool = True, compiled: bool = False) -> None:
    """Prepare a module on a CPU for training; elsewhere nothing is done.

    Args:
        module: all that is trained.
        sparse: gradients within a step may be.
        compiled: the models in it are, and stay as they are.
    """
    if any(parameter.device.type != "cpu" for parameter in module.parameters()):
        return
    hold_memory()
    draw_fewer_bits(module)
    for child in module.modules():
        if isinstance(child, PreTrainedModel) and child is child.base_model and not compiled:
            leave_out_padding(child)
    for child in module.modules():
        if sparse and type(child) is torch.nn.Embedding and child.weight.requires_grad:
            sum_rows(child)


def hold_memory() -> None:
    """Let the C library keep what is freed for the next step, which needs as much: the system need not clear it anew."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def sum_rows(table: torch.nn.Embedding) -> None:
    """Let an embedding's gradient be summed over its uses row by row, and made dense once a step, not at each use."""
    if not table.sparse:
        table.sparse = True
        table.weight.register_post_accumulate_grad_hook(_Dense())  # type: ignore[no-untyped-call]


class _Dense:
    """Makes a table's gradient dense, in the same memory at each step: the system takes long to hand out as much anew."""

    def __init__(self) -> None:
        self.kept: torch.Tensor | None = None

    def __call__(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        if gradient is None or not gradient.is_sparse:
            return
        if self.kept is None:
            self.kept = torch.empty_like(parameter)
        parameter.grad = self.kept.zero_().add_(gradient)
