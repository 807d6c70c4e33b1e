"""Linear layers with packed weights on a CPU.

On a CPU oneDNN, part of torch, multiplies with weights that are packed once, and computes an
activation or a sum in the same pass. By default torch uses MKL in float32, without the wide
instructions of AMD processors, and packs bfloat16 again for each batch: on one thread of an AMD
EPYC ``minilm`` takes 1.18 to 1.26 times the time in float32, 1.03 to 1.15 in bfloat16 (500
sentences, in turns). For the share of the processor's peak see ``benchmarks/encode.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import sqrt
from typing import Any, cast

import torch
from torch.nn import functional

PACKED_BATCH_TOKENS = 2048
"""The number of tokens in a batch for which the layout of packed weights is best."""
Unary = tuple[str, str]
"""An activation in oneDNN: its name and its kind."""
NO_ACTIVATION: Unary = ("none", "")
ACTIVATIONS: Mapping[Unary, Callable[[torch.Tensor], torch.Tensor]] = {
    ("gelu", "none"): functional.gelu,
    ("gelu", "tanh"): partial(functional.gelu, approximate="tanh"),
    ("relu", ""): functional.relu,
    ("swish", ""): functional.silu,
}
"""The functions of torch that are oneDNN's activations."""

SUPPORTED_TYPES: Mapping[torch.dtype, Callable[[], bool]] = {
    torch.float32: lambda: True,
    torch.bfloat16: lambda: torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    torch.float16: lambda: torch.ops.mkldnn._is_mkldnn_fp16_supported(),
}
"""For each type of weights, whether oneDNN multiplies it on this processor."""


class PackedLinear(torch.nn.Module):
    """A linear layer for inference with weights in oneDNN's layout, and perhaps an activation."""

    def __init__(self, linear: torch.nn.Linear, activation: Unary = NO_ACTIVATION) -> None:
        """Take over the weights of a layer.

        Args:
            linear: The layer.
            activation: The activation to apply to its output.
        """
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
    """The end of a block of BERT: a linear layer, the block's input added, and a normalisation.

    The linear layer's weights are packed. Dropout is left out, as it does nothing in evaluation.
    """

    def __init__(self, module: Any) -> None:  # noqa: ANN401 - transformers is untyped
        """Take over the weights of a module with these layers."""
        super().__init__()
        self.dense = PackedLinear(module.dense)
        self.LayerNorm = module.LayerNorm

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Return the normalised sum x W^T + b + residual (..., k).

        Args:
            x: The input of the linear layer, (..., h).
            residual: The block's input, (..., k).
        """
        total = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, self.dense.weight, self.dense.bias, "add"
        )
        return cast(torch.Tensor, self.LayerNorm(total))


@torch.inference_mode()
def pack_linears(model: torch.nn.Module) -> None:
    """Replace the linear layers of a model in evaluation mode by packed ones, in place.

    A layer of BERT is packed together with the activation or the sum that follows it. Layers whose
    type oneDNN does not support on this processor stay as they are.
    """
    if not (hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch._C._has_mkldnn):
        return
    for name, child in model.named_children():
        if _can_pack(child):
            setattr(model, name, PackedLinear(cast(torch.nn.Linear, child)))
        elif (packed_output := _pack_output(child)) is not None:
            setattr(model, name, packed_output)
        else:
            _fuse_activation(child)
            pack_linears(child)


def runs_on_tokens(model: torch.nn.Module) -> bool:
    """Try a model on two tokens; return whether it runs.

    With packed layers it does not, if it reads the weights of a layer itself.

    Args:
        model: A model of transformers.
    """
    try:
        with torch.inference_mode():
            model(input_ids=torch.ones((1, 2), dtype=torch.long))
    except Exception:  # whatever torch raises for a layout of weights that it does not know
        return False
    return True


def _can_pack(layer: object) -> bool:
    """Return whether a layer is linear, on the CPU, and of a type that this processor packs."""
    if type(layer) is not torch.nn.Linear or not layer.weight.numel():
        return False
    dtype = layer.weight.dtype
    is_on_cpu = layer.weight.device.type == "cpu"
    return is_on_cpu and dtype in SUPPORTED_TYPES and SUPPORTED_TYPES[dtype]()


def _fuse_activation(module: Any) -> None:  # noqa: ANN401 - transformers is untyped
    """Pack a feed-forward layer of BERT together with its activation, in place.

    The module stays as it is if it has no such layer, or oneDNN lacks the activation.
    """
    if not (
        hasattr(module, "intermediate_act_fn")
        and hasattr(module, "dense")
        and _can_pack(module.dense)
    ):
        return
    activation_function = module.intermediate_act_fn
    dense = module.dense
    # An activation is recognised by its values, as transformers has several classes of one.
    x = torch.linspace(-4, 4, 64)
    expected = activation_function(x)
    activations = [
        activation
        for activation, function in ACTIVATIONS.items()
        if torch.allclose(expected, function(x), rtol=0, atol=1e-6)
    ]
    if not activations:
        return
    example = _example_input(dense.in_features, dense)
    old_output = module(example)
    module.dense = PackedLinear(dense, activations[0])
    module.intermediate_act_fn = torch.nn.Identity()
    if not _is_close(module(example), old_output):
        module.dense = dense
        module.intermediate_act_fn = activation_function


def _pack_output(module: Any) -> PackedOutput | None:  # noqa: ANN401 - transformers is untyped
    """Return the end of a block of BERT with packed weights; None if the module is another one.

    Packed weights are in oneDNN's own layout, so that it need not rearrange them in each call.

    Args:
        module: Any module; that end has the layers ``dense``, ``dropout`` and ``LayerNorm``.

    Returns:
        None also if its linear layer cannot be packed, or if the packed version has another output.
    """
    names = {name for name, _ in module.named_children()}
    if names != {"dense", "LayerNorm", "dropout"} or not _can_pack(module.dense):
        return None
    packed = PackedOutput(module)
    dense = module.dense
    # The input of the linear layer, and the block's input that is added to its output.
    example = [_example_input(size, dense) for size in (dense.in_features, dense.out_features)]
    # A module with the same layers may use them in another way: take other inputs, or compute
    # something else.
    try:
        old_output = module(*example)
    except TypeError:
        return None
    return packed if _is_close(packed(*example), old_output) else None


def _example_input(width: int, layer: torch.nn.Linear) -> torch.Tensor:
    """Draw an input (1, 4, width) in the type of a layer, always the same."""
    example = torch.randn((1, 4, width), generator=torch.Generator().manual_seed(0))
    return example.to(layer.weight.dtype)


def _is_close(output: torch.Tensor, expected: torch.Tensor) -> bool:
    """Return whether two outputs differ by rounding in their type at most."""
    # Another order of sums changes less than half of the digits; another function changes more.
    tolerance = sqrt(torch.finfo(expected.dtype).eps) * float(expected.abs().max())
    return torch.allclose(output, expected, rtol=0, atol=tolerance)
