"""Parameters of cards and arguments of functions, checked against signatures and types."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, time
from numbers import Integral
from os import PathLike
from typing import (
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from stsbench.core.errors import (
    CardError,
    StsbenchError,
    UnknownName,
    catch_exit,
    suggest,
)
from stsbench.core.secrets import redact
from stsbench.core.wording import describe_type_problem, format_repr, join_lines


def call_with_params(
    factory: Callable[..., Any],
    params: Mapping[str, Any],
    *,
    where: str,
    others: Sequence[str] = (),
) -> Any:  # noqa: ANN401
    """Call a factory with a card's ``[params]``, checked against its signature and its types first.

    ``where`` is the card and its table, for the message; ``others`` are keys of its other tables, one of which may have
    been meant. Raises CardError for a parameter that the factory does not take, or of the wrong type, or missing.
    """
    given = check_params(factory, params, where=where, others=others)
    with catch_exit(where):
        return factory(**given)


def check_params(
    factory: Callable[..., Any],
    params: Mapping[str, Any],
    *,
    where: str,
    others: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the values that :func:`call_with_params` would call with; raises as it does."""
    signature = inspect.signature(factory)
    for key in params:
        if not _takes(signature, key):
            raise CardError(
                f"{where}: unknown key '{key}'{suggest(key, [*signature.parameters, *others])}"
            )
    hints: dict[str, Any] = {}
    # None of annotations that cannot be resolved.
    with suppress(NameError, TypeError, AttributeError):
        annotated: Any = factory
        if isinstance(factory, type):
            annotated = factory.__init__  # type: ignore[misc]
        hints = get_type_hints(annotated, include_extras=True)
    given = {
        key: fit(value, hints.get(key, Any), key, where=f"{where}: key '{key}'")
        for key, value in params.items()
    }
    try:
        signature.bind(**given)
    except TypeError as error:
        raise CardError(
            f"{where}: {join_lines(error).replace('required argument', 'required key')}"
        ) from error
    return given


def _takes(signature: inspect.Signature, name: str) -> bool:
    return name in signature.parameters or any(
        p.kind is p.VAR_KEYWORD for p in signature.parameters.values()
    )


def fit(value: Any, hint: Any, name: str = "", *, where: str) -> Any:  # noqa: ANN401 - any TOML value, any type
    """Return the TOML value of a parameter as the type of an annotation: a whole number as a float, a list as a tuple.

    What is no TOML value, and a type that TOML has not, is let through. Raises CardError: the value is of another type,
    or none of a Literal's choices.
    """
    if not _is_toml(value):
        return value
    if get_origin(hint) is Literal and value not in get_args(hint):
        choices = list(map(str, get_args(hint)))
        near = suggest(str(value), choices)
        raise CardError(
            f"{where}: {redact(value, name)!r} is not one of {', '.join(choices)}{near}"
        )

    def no_type_of_toml(kind: type, value: object) -> NoReturn:
        raise LookupError(kind)

    try:
        return msgspec.convert(value, hint, dec_hook=no_type_of_toml)
    except msgspec.ValidationError as error:
        # TOML has no null: what may be None is left out.
        said = (
            join_lines(error).partition(", got ")[0].partition(" - at ")[0].replace(" | null", "")
        )
        said = describe_type_problem(said[0].lower() + said[1:].replace("null", "None"))
        raise CardError(f"{where}: {said}, not {redact(value, name)!r}") from error
    except (LookupError, TypeError):
        return value


def _is_toml(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_toml, value))
    if isinstance(value, Mapping):
        return all(map(_is_toml, value.values()))
    # A datetime is a date; None is what the JSON of a saved encoder may hold.
    return value is None or isinstance(value, bool | int | float | str | date | time)


P = ParamSpec("P")


ReturnT = TypeVar("ReturnT")


SEEDS = 1 << 32
"""How many seeds there are: what numpy's and torch's generators all take."""


class ArgumentKind(NamedTuple):
    """What an argument may be."""

    is_valid: Callable[[object], bool]
    expected: str


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _is_or_are(*kinds: type) -> Callable[[object], bool]:
    is_one = _is(*kinds)
    return lambda value: is_one(value) or (isinstance(value, Sequence) and all(map(is_one, value)))


NAME = ArgumentKind(_is(str), "a name")


NAMES = ArgumentKind(_is_or_are(str), "a name or a list of names")


PATH = ArgumentKind(_is(str, PathLike), "a path")


PATHS = ArgumentKind(_is_or_are(str, PathLike), "a path or a list of paths")


NAME_OR_PATH = ArgumentKind(PATH.is_valid, "a name or a path")


STORE = ArgumentKind(_is(str, PathLike, type(None)), "a path, 'default' or None")


SEED = ArgumentKind(
    lambda value: (
        isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < SEEDS
    ),
    f"a whole number from 0 to {SEEDS - 1}",
)


SWITCH = ArgumentKind(_is(bool), "True or False")


PARAMETERS = ArgumentKind(
    lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
    "a dict of values by name",
)


FUNCTION = ArgumentKind(callable, "a function")


def validate_arguments(
    called: str = "", /, **kinds: ArgumentKind | type
) -> Callable[[Callable[P, ReturnT]], Callable[P, ReturnT]]:
    """Check arguments of a function at each call; None is let through where it is the default.

    ``called`` is what the user calls the function, ``kinds`` are what each argument may be, or the class that it must be
    of. What is decorated raises StsbenchError, naming function and argument, and what was given.
    """
    wanted = {
        name: kind
        if isinstance(kind, ArgumentKind)
        else ArgumentKind(_is(kind), f"a {kind.__name__}")
        for name, kind in kinds.items()
    }

    def decorate(function: Callable[P, ReturnT]) -> Callable[P, ReturnT]:
        signature = inspect.signature(function)
        what = called or function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ReturnT:
            if unknown := [name for name in kwargs if not _takes(signature, name)]:
                raise UnknownName(f"argument of {what}", unknown[0], signature.parameters)
            for name, value in signature.bind_partial(*args, **kwargs).arguments.items():
                left_out = value is None and signature.parameters[name].default is None
                if name in wanted and not left_out and not wanted[name].is_valid(value):
                    raise StsbenchError(
                        f"{what}: {name} must be {wanted[name].expected}; it is {format_repr(value)}"
                    )
            return function(*args, **kwargs)

        vars(call)["kinds"] = kinds
        return call

    return decorate


def takes_arguments_of(
    other: Callable[P, object],
) -> Callable[[Callable[..., ReturnT]], Callable[P, ReturnT]]:
    """Give a function that takes ``**arguments`` the parameters of another one that is ``checked``, and its checks."""
    signature = inspect.signature(other)

    def decorate(function: Callable[..., ReturnT]) -> Callable[P, ReturnT]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ReturnT:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__qualname__}() is {error}") from None
            return function(**bound.arguments)

        made = inspect.signature(function).return_annotation
        vars(call)["__signature__"] = signature.replace(return_annotation=made)
        return validate_arguments(**vars(other)["kinds"])(call)

    return decorate
