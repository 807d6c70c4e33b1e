"""What a program passes to the public functions: checked before anything is done, so that a mistake is one line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from os import PathLike
from typing import NamedTuple, ParamSpec, TypeVar

from stsbench.errors import StsbenchError, UnknownName, shown

P = ParamSpec("P")
ReturnT = TypeVar("ReturnT")
SEEDS = 1 << 32
"""How many seeds there are: what numpy's and torch's generators all take."""


class Kind(NamedTuple):
    """What an argument may be."""

    accepts: Callable[[object], bool]
    wanted: str


def _are_names(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(one, str) for one in value))


def _is_place(value: object) -> bool:
    return isinstance(value, str | PathLike)


def _are_places(value: object) -> bool:
    return _is_place(value) or (isinstance(value, Sequence) and all(map(_is_place, value)))


def _is_seed(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < SEEDS


def _are_parameters(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


NAME = Kind(lambda value: isinstance(value, str), "a name")
NAMES = Kind(_are_names, "a name or a list of names")
PLACE = Kind(_is_place, "a path")
PLACES = Kind(_are_places, "a path or a list of paths")
NAME_OR_PLACE = Kind(_is_place, "a name or a path")
STORE = Kind(lambda value: value is None or _is_place(value), "a path, 'default' or None")
SEED = Kind(_is_seed, f"a whole number from 0 to {SEEDS - 1}")
SWITCH = Kind(lambda value: isinstance(value, bool), "True or False")
PARAMETERS = Kind(_are_parameters, "a dict of values by name")
FUNCTION = Kind(callable, "a function")


def checked(called: str = "", /, **kinds: Kind | type) -> Callable[[Callable[P, ReturnT]], Callable[P, ReturnT]]:
    """Check arguments of a function at each call; None is let through where it is the default.

    Args:
        called: what the user calls the function; default its own name.
        kinds: by argument, what it may be, or the class that it must be of.

    Returns:
        A decorator: what it makes raises StsbenchError, naming function and argument, and what was given.
    """
    wanted = {name: kind if isinstance(kind, Kind) else _of_class(kind) for name, kind in kinds.items()}

    def decorate(function: Callable[P, ReturnT]) -> Callable[P, ReturnT]:
        signature = inspect.signature(function)
        takes_any = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
        what = called or function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ReturnT:
            if not takes_any and (unknown := [name for name in kwargs if name not in signature.parameters]):
                raise UnknownName(f"argument of {what}", unknown[0], signature.parameters)
            for name, value in signature.bind_partial(*args, **kwargs).arguments.items():
                left_out = value is None and signature.parameters[name].default is None
                if name in wanted and not left_out and not wanted[name].accepts(value):
                    raise StsbenchError(f"{what}: {name} must be {wanted[name].wanted}; it is {shown(value)}")
            return function(*args, **kwargs)

        return call

    return decorate


def _of_class(kind: type) -> Kind:
    return Kind(lambda value: isinstance(value, kind), f"a {kind.__name__}")
