"""Linear layers with packed weights on a CPU, attention that skips padding on a GPU.

On a CPU oneDNN, part of torch, multiplies with weights that are packed once, and an activation or a sum in the same
pass. Left to itself torch takes MKL in float32, without the wide instructions of AMD processors, and packs bfloat16
anew for each batch: on one thread of an AMD EPYC ``minilm`` takes 1.18 to 1.26 times the time in float32, 1.03 to 1.15
in bfloat16 (500 sentences, in turns). Share of the processor's peak: ``benchmarks/encode.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import sqrt
from typing import Any, cast

import torch
import transformers
from torch.nn import functional
from transformers.utils import is_flash_attn_2_available

PACKED_BATCH_TOKENS = 2048
"""The tokens of a batch that the layout of packed weights suits best."""
Unary = tuple[str, str]
"""An activation as oneDNN knows it: its name and its kind."""
NONE: Unary = ("none", "")
ACTIVATIONS: Mapping[Unary, Callable[[torch.Tensor], torch.Tensor]] = {
    ("gelu", "none"): functional.gelu,
    ("gelu", "tanh"): partial(functional.gelu, approximate="tanh"),
    ("relu", ""): functional.relu,
    ("swish", ""): functional.silu,
}

SUPPORTED_TYPES: Mapping[torch.dtype, Callable[[], bool]] = {
    torch.float32: lambda: True,
    torch.bfloat16: lambda: torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    torch.float16: lambda: torch.ops.mkldnn._is_mkldnn_fp16_supported(),
}
"""The types of weights, and whether this processor multiplies each."""


class PackedLinear(torch.nn.Module):
    """A linear layer for inference whose weights lie in oneDNN's own layout, and perhaps an activation after it."""

    def __init__(self, linear: torch.nn.Linear, activation: Unary = NONE) -> None:
        """Take over the weights of a layer."""
        super().__init__()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(
            linear.weight.detach(), PACKED_BATCH_TOKENS
        )
        self.bias = None if linear.bias is None else linear.bias.detach()
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x W^T + b, activated: (..., h) to (..., k)."""
        name, kind = self.activation
        product = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, name, [], kind)
        return cast(torch.Tensor, product)


class PackedOutput(torch.nn.Module):
    """The end of a block of BERT and its kin: a linear layer, what went into the block added, normalised."""

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - transformers is untyped
        """Take over a module of these layers."""
        super().__init__()
        self.dense, self.LayerNorm = PackedLinear(module.dense), module.LayerNorm

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Return the normalised sum x W^T + b + residual (..., k)."""
        total = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, self.dense.weight, self.dense.bias, "add"
        )
        return cast(torch.Tensor, self.LayerNorm(total))


@torch.inference_mode()
def pack_linears(model: torch.nn.Module) -> None:
    """Pack every linear layer of a model in evaluation mode, in place, where this processor's oneDNN takes its type."""
    if not (hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch._C._has_mkldnn):
        return
    for name, child in model.named_children():
        if _can_pack(child):
            setattr(model, name, PackedLinear(cast(torch.nn.Linear, child)))
        elif (packed := _with_sum(child)) is not None:
            setattr(model, name, packed)
        else:
            _take_activation(child)
            pack_linears(child)


def runs_on_tokens(model: torch.nn.Module) -> bool:
    """Return whether a model of transformers runs.

    With packed layers, a model that reads the weights of a layer itself does not.
    """
    try:
        with torch.inference_mode():
            model(input_ids=torch.ones((1, 2), dtype=torch.long))
    except Exception:  # whatever torch raises for a layout of weights that it does not know
        return False
    return True


def _can_pack(layer: object) -> bool:
    if (
        type(layer) is not torch.nn.Linear
        or layer.weight.device.type != "cpu"
        or not layer.weight.numel()
    ):
        return False
    return layer.weight.dtype in SUPPORTED_TYPES and SUPPORTED_TYPES[layer.weight.dtype]()


def _take_activation(module: Any) -> None:  # noqa: ANN401 - transformers is untyped
    # That of a feed-forward layer of BERT and its kin, into the product, where oneDNN knows it.
    if not (
        hasattr(module, "intermediate_act_fn")
        and hasattr(module, "dense")
        and _can_pack(module.dense)
    ):
        return
    act, dense = module.intermediate_act_fn, module.dense
    x = torch.linspace(-4, 4, 64)
    found = [
        unary
        for unary, known in ACTIVATIONS.items()
        if torch.allclose(act(x), known(x), rtol=0, atol=1e-6)
    ]
    if not found:
        return
    given = _drawn(dense.in_features, dense)
    before = module(given)
    module.dense, module.intermediate_act_fn = PackedLinear(dense, found[0]), torch.nn.Identity()
    if not _alike(module(given), before):
        module.dense, module.intermediate_act_fn = dense, act


def _with_sum(module: Any) -> PackedOutput | None:  # noqa: ANN401 - transformers is untyped
    """The same with its sum within the product; None of a module that is not made so."""
    names = {name for name, _ in module.named_children()}
    if names != {"dense", "LayerNorm", "dropout"} or not _can_pack(module.dense):
        return None
    packed = PackedOutput(module)
    given = [
        _drawn(size, module.dense) for size in (module.dense.in_features, module.dense.out_features)
    ]
    # Its layers do not tell what it does with them.
    try:
        before = module(*given)
    except TypeError:
        return None
    return packed if _alike(packed(*given), before) else None


def _drawn(width: int, layer: torch.nn.Linear) -> torch.Tensor:
    drawn = torch.randn((1, 4, width), generator=torch.Generator().manual_seed(0))
    return drawn.to(layer.weight.dtype)


def _alike(found: torch.Tensor, before: torch.Tensor) -> bool:
    share = sqrt(torch.finfo(before.dtype).eps)
    return torch.allclose(found, before, rtol=0, atol=share * float(before.abs().max()))


def use_flash_attention(model: transformers.PreTrainedModel) -> None:
    """Let a model on a GPU attend over tokens without padding, where its architecture and the package flash-attn offer it.

    In float32 they do not; without padding torch's own attention is as fast.
    """
    if (
        model.dtype in (torch.bfloat16, torch.float16)
        and model._supports_flash_attn
        and is_flash_attn_2_available()
    ):
        model.set_attn_implementation("flash_attention_2")
