"""Linear layers by oneDNN on a CPU.

On a CPU oneDNN, part of torch, multiplies with weights that are packed once, and computes an
activation or a sum in the same pass. By default torch uses MKL in float32, without AVX-512 on AMD
processors, and packs bfloat16 again for each batch: on one thread of an AMD EPYC with AVX-512
``minilm`` takes 1.18 to 1.26 times the time in float32, 1.03 to 1.15 in bfloat16 (500 sentences,
in turns). Without AVX-512 nothing is packed in float32, see :func:`is_packing_faster`. For the
share of the processor's peak see ``benchmarks/encode.py``. In
training, where weights change with each step, oneDNN multiplies with plain ones: if its products
are faster than torch's own, which a short measurement decides, see :func:`fastest_products`.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional

from stsbench.core import settings
from stsbench.core.errors import OutputError
from stsbench.core.files import write_atomically
from stsbench.core.provenance import processor

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

MALLOC_OPTIONS = {-1: 128 << 20, -3: 32 << 20}
"""glibc's M_TRIM_THRESHOLD, and M_MMAP_THRESHOLD at its maximum; see ``malloc.h``."""
SUPPORTED_TYPES: Mapping[torch.dtype, Callable[[], bool]] = {
    torch.float32: lambda: True,
    torch.bfloat16: lambda: torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    torch.float16: lambda: torch.ops.mkldnn._is_mkldnn_fp16_supported(),
}
"""For each type of weights, whether oneDNN multiplies it on this processor."""


class PackedLinear(torch.nn.Module):
    """A linear layer for inference with weights in oneDNN's layout, and perhaps an activation."""

    def __init__(self, linear: torch.nn.Linear, activation: Unary = NO_ACTIVATION) -> None:
        """Copy the weights of a layer into the layout in which oneDNN multiplies fastest.

        Args:
            linear: The layer.
            activation: The activation to apply to its output: its name and kind in oneDNN, for
                example ``("gelu", "tanh")``.
        """
        super().__init__()
        # The layout that is best for a batch of PACKED_BATCH_TOKENS tokens; others work too.
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
        """Return x W^T + b + residual after a layer normalisation, (..., k).

        Args:
            x: The input of the linear layer, (..., h).
            residual: The block's input, (..., k).
        """
        # There is no dropout, because packed layers are for inference only.
        total = torch.ops.mkldnn._linear_pointwise.binary(
            x, residual, self.dense.weight, self.dense.bias, "add"
        )
        return cast(torch.Tensor, self.LayerNorm(total))


def keep_freed_memory() -> None:
    """Let glibc keep up to 128 MiB of memory that torch frees, for the next output of a layer.

    By default it returns more than about 25 MB to the system. Then each output gets new pages, and
    the system fills them with zeros first, which takes up to a tenth of the time. Another C library
    is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt:
        for option, n_bytes in MALLOC_OPTIONS.items():
            mallopt(option, n_bytes)


def is_packing_faster(dtype: str) -> bool:
    """Return whether packed layers of a type are faster than torch's own on this processor.

    In float32 oneDNN gains by AVX-512. With AVX2 alone, on an AMD EPYC, MKL's products are faster,
    and so is torch's GELU; processors of Intel without AVX-512 were not measured. The answer
    depends on the processor only, not on a measurement, so that the same machine always computes
    the same embeddings.
    """
    return dtype != "float32" or torch.backends.cpu.get_cpu_capability() != "AVX2"


@torch.inference_mode()
def pack_linears(model: torch.nn.Module) -> None:
    """Replace the linear layers of a model by packed ones, in place.

    Packed weights are in oneDNN's own layout, so that they are not rearranged for each batch. A
    layer of BERT is packed together with the activation or the sum that follows it. Layers whose
    type oneDNN does not support on this processor stay as they are.

    Args:
        model: A model in evaluation mode, or any part of one.
    """
    # This torch may be built without oneDNN.
    if not _has_onednn():
        return
    for name, child in model.named_children():
        # Exactly torch's linear layer, on the CPU, of a type that this processor supports.
        if _can_pack(child):
            setattr(model, name, PackedLinear(cast(torch.nn.Linear, child)))
            continue
        # None if the child is not the last part of a block of BERT.
        packed_output = _pack_output(child)
        if packed_output is not None:
            setattr(model, name, packed_output)
            continue
        # If the child has a layer followed by an activation, they become one packed layer.
        _fuse_activation(child)
        # Then the children of the child; those that are packed already are no linear layers now.
        pack_linears(child)


def runs_on_tokens(model: torch.nn.Module) -> bool:
    """Return whether a model runs on two tokens, which is tried.

    A model whose layers have been packed fails if it reads the weights of a layer itself.

    Args:
        model: A model of transformers.
    """
    try:
        with torch.inference_mode():
            model(input_ids=torch.ones((1, 2), dtype=torch.long))
    except Exception:  # whatever torch raises for a layout of weights that it does not know
        return False
    return True


def _has_onednn() -> bool:
    """Return whether this torch can multiply by oneDNN."""
    return hasattr(torch.ops.mkldnn, "_linear_pointwise") and torch._C._has_mkldnn


def _can_pack(layer: object) -> bool:
    """Return whether a layer is linear, on the CPU, and of a type that this processor packs."""
    if type(layer) is not torch.nn.Linear or not layer.weight.numel():
        return False
    dtype = layer.weight.dtype
    is_on_cpu = layer.weight.device.type == "cpu"
    return is_on_cpu and dtype in SUPPORTED_TYPES and SUPPORTED_TYPES[dtype]()


def _fuse_activation(module: Any) -> None:  # noqa: ANN401 - transformers is untyped
    """Pack a linear layer of a module together with the activation that follows it, in place.

    Such a module is the first half of BERT's feed-forward network, with the layer ``dense`` and the
    function ``intermediate_act_fn``. The module stays as it is if it lacks one of these, if oneDNN
    lacks the activation, or if the packed layer has another output.

    Args:
        module: Any part of a model.
    """
    has_both = hasattr(module, "intermediate_act_fn") and hasattr(module, "dense")
    if not has_both or not _can_pack(module.dense):
        return
    activation_function = module.intermediate_act_fn
    dense = module.dense
    # An activation is recognised by its values, because transformers has several classes for the
    # same function.
    x = torch.linspace(-4, 4, 64)
    expected = activation_function(x)
    # The names of the activations of oneDNN with these values: one, or none.
    activations = [
        activation
        for activation, function in ACTIVATIONS.items()
        if torch.allclose(expected, function(x), rtol=0, atol=1e-6)
    ]
    if not activations:
        return
    # Random numbers (1, 4, in_features), the same at each call, in the layer's type.
    example = _example_input(dense.in_features, dense)
    old_output = module(example)
    module.dense = PackedLinear(dense, activations[0])
    module.intermediate_act_fn = torch.nn.Identity()
    # Outputs that differ by rounding in their type only are close.
    if not _is_close(module(example), old_output):
        # The module uses its layers in another way than BERT: set it back as it was.
        module.dense = dense
        module.intermediate_act_fn = activation_function


def _pack_output(module: Any) -> PackedOutput | None:  # noqa: ANN401 - transformers is untyped
    """Return the last part of a block of BERT with packed weights, to replace a module.

    That part has the layers ``dense``, ``dropout`` and ``LayerNorm``. Packed weights are in
    oneDNN's own layout, so that they are not rearranged in each call.

    Args:
        module: Any part of a model.

    Returns:
        None if the module has other layers, if its linear layer cannot be packed, or if the packed
        version has another output.
    """
    names = {name for name, _ in module.named_children()}
    if names != {"dense", "LayerNorm", "dropout"} or not _can_pack(module.dense):
        return None
    packed = PackedOutput(module)
    dense = module.dense
    # Random inputs (1, 4, size), the same at each call: that of the linear layer, and the block's
    # input, which is added to the layer's output.
    example = [_example_input(size, dense) for size in (dense.in_features, dense.out_features)]
    # A module with the same layers may use them in another way: it may have other inputs, or
    # compute something else.
    try:
        old_output = module(*example)
    except TypeError:
        return None
    # Outputs that differ by rounding in their type only are close.
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


MIN_CHOSEN_WEIGHTS = 1 << 14
"""The number of weights from which a layer's products are chosen; smaller ones cost little."""
TIMED_SHAPE = (1024, 512)
"""The rows, and the inputs and outputs, of the products that are timed: 2 to 8 ms on one core."""
TIMED_ROUNDS = 5
"""How often each product is timed, in turns; the least time counts."""
MIN_GAIN = 1.1
"""How many times faster than torch's own product oneDNN's must be to be chosen."""


class ProductChoice(NamedTuple):
    """Whether oneDNN, not torch's own, computes each of the three products of a linear layer."""

    output: bool
    input_gradient: bool
    weight_gradient: bool


def choose_products(module: torch.nn.Module) -> None:
    """Let the linear layers of a module multiply by oneDNN where that is faster, in place.

    A layer computes three products of matrices: its output, and two gradients. For each of these
    oneDNN or torch's own function may be faster on this processor, which is measured once. Layers
    keep their weights and names. Subclasses of torch's layer stay as they are, and so do layers
    that are small or not on the CPU.

    Args:
        module: The module, to be trained or not.
    """
    layers = [
        layer
        for layer in module.modules()
        if _can_pack(layer) and cast(torch.nn.Linear, layer).weight.numel() >= MIN_CHOSEN_WEIGHTS
    ]
    if not layers or not _has_onednn():
        return
    # Three booleans: for the output and each gradient, whether oneDNN is faster.
    products = fastest_products()
    if any(products):
        for layer in layers:
            # The class of the layer is changed. It is no new layer, because other modules may
            # refer to this one, or share its weights.
            layer.__class__ = ChosenLinear
            layer.products = products  # type: ignore[assignment]


class ChosenLinear(torch.nn.Linear):
    """A linear layer whose products are oneDNN's or torch's own, in float32 on a CPU."""

    products: ProductChoice

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x W^T + b: (..., h) to (..., k).

        The products are those that were measured as faster, if all is float32 on a CPU; otherwise
        they are torch's own.
        """
        is_float32 = x.dtype == self.weight.dtype == torch.float32
        is_plain = x.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
        if not (is_float32 and is_plain and x.numel()):
            return super().forward(x)
        # For each of the three products, whether oneDNN computes it: `self.products`.
        output = _LinearProduct.apply(x, self.weight, self.bias, self.products)  # type: ignore[no-untyped-call]
        return cast(torch.Tensor, output)


class _LinearProduct(torch.autograd.Function):
    """x W^T + b, and its gradients by x (..., h), W (k, h) and b (k,), which may be None."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:  # noqa: ANN401 - torch's own
        """Return x W^T + b, and store in ``ctx`` what the gradients need.

        The last argument tells for each product whether oneDNN computes it.
        """
        x, weight, bias, products = arguments
        ctx.save_for_backward(x, weight)
        ctx.products = products
        return _multiply(x, weight, bias, by_onednn=products.output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of the loss by the four arguments of ``forward``.

        Args:
            ctx: The x (..., h) and W (k, h) of ``forward``, and which products oneDNN computes.
            gradient: The gradient by the output of ``forward``, (..., k).

        Returns:
            The gradients by x, W and b, each None if it is not needed, and None for the last
            argument, which is no tensor.
        """
        x, weight = ctx.saved_tensors
        products: ProductChoice = ctx.products
        # For each argument of `forward`, whether its gradient is asked for.
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        grad_x = grad_weight = grad_bias = None
        gradient = gradient.contiguous()
        # `_multiply(a, b)` is a b^T. All leading dimensions become one here: (n, k).
        gradient_rows = gradient.view(-1, gradient.shape[-1])
        if needs_x:
            grad_x = _multiply(gradient, weight.T, by_onednn=products.input_gradient)
        if needs_weight:
            # oneDNN reads no tensor in which several elements share memory, such as an expanded
            # one, so x is copied if it is like that.
            x_rows = x.contiguous().view(-1, x.shape[-1])
            grad_weight = _multiply(gradient_rows.T, x_rows.T, by_onednn=products.weight_gradient)
        if needs_bias:
            grad_bias = gradient_rows.sum(dim=0)
        return grad_x, grad_weight, grad_bias, None


def _multiply(
    a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None, *, by_onednn: bool
) -> torch.Tensor:
    """Return a b^T + bias in float32, (..., k), for a (..., h), b (k, h) and perhaps bias (k,)."""
    if not by_onednn:
        return functional.linear(a, b, bias)
    return cast(torch.Tensor, torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], ""))


def fastest_products() -> ProductChoice:
    """Return for each product of a linear layer whether oneDNN is faster than torch's own function.

    The products are the output, the gradient by the input and the gradient by the weights, all in
    float32 on this processor. Torch's own function is MKL's, which on AMD processors uses no
    AVX-512; benchmarks/peak.py prints the speed of both. The first call times each product both
    ways, in CPU seconds, so that other processes matter little. The choice is stored in the cache
    folder for this processor, version of torch and number of threads.
    """
    key = f"{processor()}\n{torch.__version__}\n{torch.get_num_threads()}"
    digest = hashlib.sha256(key.encode()).hexdigest()
    path: Path = settings.cache_folder() / "products" / f"{digest[:32]}.json"
    # Without a valid file from an earlier call the products are timed.
    with suppress(OSError, msgspec.DecodeError, RecursionError):
        return msgspec.json.decode(path.read_bytes(), type=ProductChoice)
    n_rows, width = TIMED_SHAPE
    x, gradient, weight = (torch.ones(n, width) for n in (n_rows, n_rows, width))
    # The products of a layer with as many inputs as outputs. `_is_onednn_faster(a, b)` times a b^T.
    choice = ProductChoice(
        output=_is_onednn_faster(x, weight),
        input_gradient=_is_onednn_faster(gradient, weight.T),
        weight_gradient=_is_onednn_faster(gradient.T, x.T),
    )
    # Without a cache the next process measures again.
    with suppress(OutputError):
        write_atomically(path, msgspec.json.encode(choice) + b"\n")
    return choice


@torch.inference_mode()
def _is_onednn_faster(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether oneDNN computes a b^T clearly faster than torch's own function.

    Both are timed in turns, and the least CPU time of each counts, that of all threads together.
    Clearly means that torch takes more than ``MIN_GAIN`` times as long, a factor above 1.

    Args:
        a: A matrix (n, h).
        b: A matrix (k, h).
    """
    torch_seconds = list[float]()
    onednn_seconds = list[float]()
    for _ in range(TIMED_ROUNDS + 1):
        for seconds, by_onednn in ((torch_seconds, False), (onednn_seconds, True)):
            start_time = time.process_time()
            # Computes a b^T.
            _multiply(a, b, by_onednn=by_onednn)
            seconds.append(time.process_time() - start_time)
    # The first round does not count: oneDNN compiles, and threads start.
    return min(torch_seconds[1:]) > MIN_GAIN * min(onednn_seconds[1:])
