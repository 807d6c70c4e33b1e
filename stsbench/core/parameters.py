"""Parameters of cards and arguments of functions, checked against signatures and types."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, time
from numbers import Integral, Real
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
    refuse_long_names,
    suggest,
)
from stsbench.core.secrets import redact
from stsbench.core.wording import as_one_line, describe_type_problem, format_repr


def call_with_params(
    factory: Callable[..., Any],
    params: Mapping[str, Any],
    *,
    where: str,
    other_keys: Sequence[str] = (),
) -> Any:  # noqa: ANN401
    """Call a class or function with parameters from a card, a TOML file, after checking them.

    Args:
        factory: A class or function, whose signature says which parameters are valid.
        params: The parameters as TOML values, by name.
        where: The card and its table, for the beginning of messages.
        other_keys: Keys of the card's other tables; a wrong parameter may be one of them, so the
            message may suggest it.

    Returns:
        The object that the factory returns.

    Raises:
        CardError: A parameter is unknown to the factory, of the wrong type, or missing.
        StsbenchError: The factory ended the program.
    """
    arguments = check_params(factory, params, where=where, other_keys=other_keys)
    # A user's factory may call sys.exit: that is an error of the factory.
    with catch_exit(where):
        return factory(**arguments)


def check_params(
    factory: Callable[..., Any],
    params: Mapping[str, Any],
    *,
    where: str,
    other_keys: Sequence[str] = (),
) -> dict[str, Any]:
    """Check parameters against the signature of a function or class, and convert their values.

    Args:
        factory: The function or class; it is not called.
        params: The parameters as TOML values, by name.
        where: The beginning of messages, such as the card's file.
        other_keys: Further keys of the same card, which messages may suggest for a wrong one.

    Returns:
        The keyword arguments by name, each of the type that the signature's annotation names.

    Raises:
        CardError: A parameter is missing or of another type; or it is unknown, and the function has
            no ``**kwargs`` for it.
    """
    signature = inspect.signature(factory)
    for key in params:
        if not _has_parameter(signature, key):
            known_keys = [name for name in signature.parameters if name != "self"]
            known = f"; known: {', '.join(known_keys) or 'none'}"
            suggestion = suggest(key, [*known_keys, *other_keys])
            raise CardError(f"{where}: unknown key '{key}'{suggestion}{known}")
    # A parameter without an annotation may have any value.
    hints = _argument_hints(factory)
    arguments = {
        key: fit(value, hints.get(key, Any), key, where=f"{where}: key '{key}'")
        for key, value in params.items()
    }
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise CardError(
            f"{where}: {as_one_line(error).replace('required argument', 'required key')}"
        ) from error
    return arguments


def _argument_hints(factory: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a function's or class's parameters, by parameter.

    That of the result is among them, under ``return``. The dict is empty if one of them cannot be
    resolved, for example because it names a class that was only imported for type checkers.
    """
    function: Any = factory
    with suppress(NameError, TypeError, AttributeError):
        if isinstance(factory, type):
            function = factory.__init__  # type: ignore[misc]
        # Extras are the limits in Annotated types.
        return get_type_hints(function, include_extras=True)
    return {}


def _has_parameter(signature: inspect.Signature, name: str) -> bool:
    """Return whether a function of this signature has a parameter of this name, or ``**kwargs``."""
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    return name in _nameable_parameters(signature) or inspect.Parameter.VAR_KEYWORD in kinds


def _nameable_parameters(signature: inspect.Signature) -> list[str]:
    """Return the parameters that a caller may give by name: not ``self``, nor those with stars."""
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        name
        for name, parameter in signature.parameters.items()
        if name != "self" and parameter.kind not in stars
    ]


def fit(value: Any, hint: Any, name: str = "", *, where: str) -> Any:  # noqa: ANN401 - any TOML value, any type
    """Convert the value of a parameter to the type that an annotation names.

    For example, a list becomes a tuple, and a whole number a float. Two kinds of values are
    returned unchanged: those that no TOML file can hold, such as an object that a program passes,
    and those whose annotation is a class that TOML has no value of.

    Args:
        value: The value of a parameter.
        hint: The annotation of the parameter.
        name: The name of the parameter. Messages omit the value if the name is that of a secret.
        where: The card and its key, for the beginning of messages.

    Raises:
        CardError: The value is of another type, or is not one of the choices of a Literal.
    """
    if not _is_toml(value):
        return value
    if get_origin(hint) is Literal and value not in get_args(hint):
        choices = list(map(str, get_args(hint)))
        suggestion = suggest(str(value), choices)
        raise CardError(
            f"{where}: {redact(value, name)!r} is not one of {', '.join(choices)}{suggestion}"
        )

    def refuse_type(annotated_type: type, value: object) -> NoReturn:
        """Raise LookupError, which is caught below: msgspec cannot convert to this type."""
        raise LookupError(annotated_type)

    try:
        return msgspec.convert(value, hint, dec_hook=refuse_type)
    except msgspec.ValidationError as error:
        # A message such as "Expected `int`, got `str` - at `$[0]`"; its beginning is kept.
        problem = as_one_line(str(error)).partition(", got ")[0].partition(" - at ")[0]
        # TOML has no null: a parameter that may be None is left out there. Names of types, such as
        # `int`, become plain English.
        problem = problem.replace(" | null", "")
        problem = describe_type_problem(problem[0].lower() + problem[1:].replace("null", "None"))
        raise CardError(f"{where}: {problem}, not {redact(value, name)!r}") from error
    except (LookupError, TypeError):
        return value


def _is_toml(value: object) -> bool:
    """Return whether a value could be in a TOML file: plain, or a list or table of such values.

    None, which TOML does not have, passes too: it may be in the JSON file of a saved encoder.
    """
    if isinstance(value, list | tuple):
        return all(map(_is_toml, value))
    if isinstance(value, Mapping):
        return all(map(_is_toml, value.values()))
    # A datetime is a date too.
    return value is None or isinstance(value, bool | int | float | str | date | time)


P = ParamSpec("P")
ReturnT = TypeVar("ReturnT")

SEEDS = 1 << 32
"""The number of valid seeds: the generators of numpy and torch all accept these."""


class ArgumentKind(NamedTuple):
    """A check of an argument's value, and the description of valid values for messages."""

    is_valid: Callable[[object], bool]
    expected: str


def _is(*kinds: type) -> Callable[[object], bool]:
    """Return a check that a value is of one of these types."""
    return lambda value: isinstance(value, kinds)


def _is_or_are(*kinds: type) -> Callable[[object], bool]:
    """Return a check that a value is of one of these types, or a sequence of such values."""
    is_valid = _is(*kinds)
    return lambda value: (
        is_valid(value) or (isinstance(value, Sequence) and all(map(is_valid, value)))
    )


def _is_number(kind: type, low: float, high: float = math.inf) -> Callable[[Any], bool]:
    """Return a check that a value is a number of a kind, no bool, from ``low`` to ``high``."""
    is_of_kind = _is(kind)
    return lambda value: is_of_kind(value) and not isinstance(value, bool) and low <= value <= high


NAME = ArgumentKind(_is(str), expected="a name")
NAMES = ArgumentKind(_is_or_are(str), expected="a name or a list of names")
PATH = ArgumentKind(_is(str, PathLike), expected="a path")
PATHS = ArgumentKind(_is_or_are(str, PathLike), expected="a path or a list of paths")
NAME_OR_PATH = ArgumentKind(PATH.is_valid, expected="a name or a path")
STORE = ArgumentKind(_is(str, PathLike, type(None)), expected="a path, 'default' or None")
SEED = ArgumentKind(_is_number(Integral, 0, SEEDS - 1), f"a whole number from 0 to {SEEDS - 1}")
# None passes because it is the default of every argument of a kind that names it.
SEEDS_OR_NONE = ArgumentKind(
    lambda value: isinstance(value, Sequence) and len(value) > 0 and all(map(SEED.is_valid, value)),
    expected=f"a list of {SEED.expected.replace('a whole number', 'whole numbers')}, or None",
)
MARGIN = ArgumentKind(_is_number(Real, 0, 100), expected="a number from 0 to 100 or None")
SECONDS = ArgumentKind(_is_number(Real, 0), expected="a number of seconds that is not negative")
MILLISECONDS = ArgumentKind(SECONDS.is_valid, "a number of milliseconds that is not negative")
COUNT_OR_NONE = ArgumentKind(_is_number(Integral, 1), expected="a whole number from 1 on or None")
SIZE = ArgumentKind(
    lambda value: isinstance(value, str) or COUNT_OR_NONE.is_valid(value),
    expected="a number of parameters, such as 500_000_000 or '500M', or None",
)
SWITCH = ArgumentKind(_is(bool), expected="True or False")
PARAMETERS = ArgumentKind(
    lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value),
    expected="a dict of values by name",
)
FUNCTION = ArgumentKind(callable, expected="a function")


def validate_arguments(
    function_name: str = "", /, **kinds: ArgumentKind
) -> Callable[[Callable[P, ReturnT]], Callable[P, ReturnT]]:
    """Return a decorator for functions whose arguments are to be checked at each call.

    The decorated function raises UnknownName for an argument that the function does not have,
    unless it has ``**kwargs``, and StsbenchError, with function, argument and value, for a value
    that is not valid. None always passes if it is the argument's default.

    Args:
        function_name: The function's name for users; default its qualified name.
        **kinds: The valid values of each argument to check, and their description for messages.
    """

    def decorate(function: Callable[P, ReturnT]) -> Callable[P, ReturnT]:
        """Return the function with a check of the arguments in ``kinds`` before it."""
        signature = inspect.signature(function)
        label = function_name or function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ReturnT:
            """Check the arguments, then call the decorated function with them.

            ``signature`` and ``label`` are that function's parameters and its name for users;
            ``kinds`` holds the kind of value that each argument must have.
            """
            for name in kwargs:
                if not _has_parameter(signature, name):
                    names = _nameable_parameters(signature)
                    known = ", ".join(names)
                    raise UnknownName(f"argument of {label}", name, names, f"known: {known}")
            for name, value in signature.bind_partial(*args, **kwargs).arguments.items():
                is_omitted = value is None and signature.parameters[name].default is None
                if name not in kinds or is_omitted:
                    continue
                kind = kinds[name]
                if not kind.is_valid(value):
                    raise StsbenchError(
                        f"{label}: {name} must be {kind.expected}; it is {format_repr(value)}"
                    )
            with refuse_long_names():
                return function(*args, **kwargs)

        # copy_arguments_of reads this attribute, to give another function the same checks.
        vars(call)["kinds"] = kinds
        return call

    return decorate


def copy_arguments_of(
    template: Callable[P, object],
) -> Callable[[Callable[..., ReturnT]], Callable[P, ReturnT]]:
    """Return a decorator that gives a function the parameters of another one, and its checks.

    The decorated function is written with ``**arguments`` alone.

    Args:
        template: The other function, which :func:`validate_arguments` decorates.
    """
    signature = inspect.signature(template)

    def decorate(function: Callable[..., ReturnT]) -> Callable[P, ReturnT]:
        """Return the function with the parameters of ``template``, whose ``signature`` it shows."""

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> ReturnT:
            """Call ``function`` with all arguments by name; ``signature`` says which are valid."""
            try:
                # By name, also those that the caller passes by position.
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                # The text of the error begins with "missing" or "got".
                raise TypeError(f"{function.__qualname__}() is {error}") from None
            return function(**bound.arguments)

        # What help() and editors show as the parameters of the function.
        return_annotation = inspect.signature(function).return_annotation
        vars(call)["__signature__"] = signature.replace(return_annotation=return_annotation)
        # The valid values by argument, which validate_arguments has stored in the template.
        kinds_of_arguments = vars(template)["kinds"]
        return validate_arguments(**kinds_of_arguments)(call)

    return decorate
