"""Linear layers through oneDNN on a CPU, attention that skips padding on a GPU.

In float32 torch multiplies matrices with MKL, which leaves the wide instructions of AMD
processors unused; oneDNN, part of torch as well, takes them (measured on an AMD EPYC with
AVX-512, one thread: 98 against 200 GFLOP/s). In bfloat16 torch uses oneDNN by itself.
"""

from __future__ import annotations

import torch
import transformers
from transformers.utils import is_flash_attn_2_available


class OneDnnLinear(torch.nn.Module):
    """A linear layer for inference whose weights lie in oneDNN's own layout."""

    def __init__(self, linear: torch.nn.Linear) -> None:
        """Take over the weights of a float32 layer."""
        super().__init__()
        self.weight = linear.weight.detach().to_mkldnn()
        self.bias = linear.bias.detach().to_mkldnn() if linear.bias is not None else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x W^T + b: (..., h) to (..., k)."""
        product: torch.Tensor = torch.ops.aten.mkldnn_linear(x.to_mkldnn(), self.weight, self.bias)
        return product.to_dense()


def use_onednn_linears(model: torch.nn.Module) -> None:
    """Replace every float32 linear layer of a model in evaluation mode, in place."""
    if not torch._C._has_mkldnn:
        return
    for name, child in model.named_children():
        if type(child) is torch.nn.Linear and child.weight.dtype == torch.float32:
            setattr(model, name, OneDnnLinear(child))
        else:
            use_onednn_linears(child)


def use_flash_attention(model: transformers.PreTrainedModel) -> None:
    """Let a model on a GPU attend over tokens without padding, where its architecture and the package flash-attn offer it.

    In float32 they do not; without padding torch's own attention is as fast.
    """
    if model.dtype in (torch.bfloat16, torch.float16) and model._supports_flash_attn and is_flash_attn_2_available():
        model.set_attn_implementation("flash_attention_2")
