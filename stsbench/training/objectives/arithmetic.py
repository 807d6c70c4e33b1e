"""What the objectives share: float32 at least whatever the model computes in, checked shapes, cosines."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import torch

from stsbench.errors import StsbenchError

P = ParamSpec("P")


def in_float32(objective: Callable[P, torch.Tensor]) -> Callable[P, torch.Tensor]:
    """Widen bfloat16 and float16 tensors to float32, and keep autocast out; wider types stay as they are.

    A cosine near 1 is 0.004 from the next in bfloat16: 0.08 in a logit at temperature 0.05.
    """

    @functools.wraps(objective)
    def widened(*args: P.args, **kwargs: P.kwargs) -> torch.Tensor:
        devices = {a.device.type for a in [*args, *kwargs.values()] if isinstance(a, torch.Tensor)}
        with torch.autocast(next(iter(devices), "cpu"), enabled=False):
            return objective(*map(_widen, args), **{name: _widen(value) for name, value in kwargs.items()})

    return widened


def _widen(value: Any) -> Any:  # noqa: ANN401 - whatever an objective takes
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.to(torch.promote_types(value.dtype, torch.float32))
    return value


def check_rows(**tensors: torch.Tensor) -> None:
    """Check that the tensors are (b, d), all of one shape, with a row at least.

    Raises:
        ValueError: they are not; names the tensors and their shapes.
    """
    first, *others = tensors.items()
    if first[1].ndim != 2 or first[1].shape[0] == 0:
        raise ValueError(f"{first[0]} is {tuple(first[1].shape)}; it must be (b, d) with b at least 1")
    for name, tensor in others:
        if tensor.shape != first[1].shape:
            raise ValueError(f"{name} is {tuple(tensor.shape)}, but {first[0]} is {tuple(first[1].shape)}")


def check_temperature(temperature: float) -> None:
    """Check that similarities can be divided by this temperature.

    Raises:
        StsbenchError: it is not a positive finite number.
    """
    if not 0 < temperature < float("inf"):
        raise StsbenchError(f"temperature {temperature}: it must be a positive number; the papers use 0.01 to 0.1")


def unit(x: torch.Tensor) -> torch.Tensor:
    """Return each vector along the last dimension with length 1; a zero vector stays zero, its gradient finite."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / torch.where(length == 0, 1.0, length)


def cosines(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the cosine of every row of ``a`` (n, d) with every row of ``b`` (m, d), as (n, m)."""
    return unit(a) @ unit(b).T


def dots(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return the dot product of every row of ``a`` (n, d) with every row of ``b`` (m, d), as (n, m)."""
    return a @ b.T
