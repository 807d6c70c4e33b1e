"""How the probe's loops are compiled, and an exponential that runs in SIMD lanes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import CellType, FunctionType
from typing import Any, TypeVar

import numpy as np
from numba import njit, types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be taken in another order, as every BLAS does; NaN and infinity keep their meaning.
_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}
_ONE = np.float32(1)


_SOURCES: set[Path] = set()
"""The files of all helpers so far."""


def helper(function: F) -> F:
    """A function that the entry points compile into themselves."""
    _SOURCES.add(Path(function.__code__.co_filename))
    compiled: F = njit(**_OPTIONS)(function)
    return compiled


def entry(signature: object) -> Callable[[F], F]:
    """A function compiled for this signature at once, or taken from numba's cache.

    The cache lies beside the source, else in the user's cache folder (or ``NUMBA_CACHE_DIR``); it is
    kept apart by processor and renewed when the source changes, that of its helpers too.
    """

    def compile_(plain: F) -> F:
        function = _knowing_its_helpers(plain)
        try:
            compiled: F = njit(signature, cache=True, **_OPTIONS)(function)
        except RuntimeError:  # neither this folder nor the user's cache folder can be written
            compiled = njit(signature, **_OPTIONS)(function)
        return compiled

    return compile_


def _knowing_its_helpers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which closes over a hash of its helpers' sources: numba looks at closures and at its own file."""
    sources = b"".join(path.read_bytes() for path in sorted(_SOURCES) if path.is_file())
    code = function.__code__.replace(co_freevars=("sources",))
    closure = (CellType(hashlib.sha256(sources).hexdigest()),)
    made = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
    made.__module__, made.__qualname__, made.__doc__ = function.__module__, function.__qualname__, function.__doc__
    return made


@intrinsic  # type: ignore[untyped-decorator]
def _float_of_bits(_: object, bits: object) -> tuple[object, object]:
    """Read an int32's bits as a float32."""

    def generate(context: Any, builder: Any, _signature: object, args: Any) -> object:  # noqa: ANN401
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@intrinsic  # type: ignore[untyped-decorator]
def read_only(_: object, array: Any) -> tuple[object, object]:  # noqa: ANN401 - numba's own
    """The same array as one that is only read: of one type with embeddings, whose code then serves both."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> object:  # noqa: ANN401
        return impl_ret_borrowed(context, builder, signature.return_type, args[0])

    return array.copy(readonly=True)(array), generate


@helper
def exp(x: np.float32) -> np.float32:
    """E to the x to one unit in the last place (Cephes' ``expf``): unlike a call, it runs in SIMD lanes."""
    x = min(max(x, np.float32(-87)), np.float32(88))
    n = np.rint(x * np.float32(1.44269504088896341))
    r = (x - n * np.float32(0.693359375)) + n * np.float32(2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * r * r + r + _ONE
    scale: np.float32 = y * _float_of_bits((np.int32(n) + np.int32(127)) << np.int32(23))
    return scale
