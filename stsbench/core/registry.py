"""Names to Python objects, loaded when first asked for: ours, an entry point's, or ``package.module:Name``."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, time
from importlib import import_module
from importlib.metadata import entry_points
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, ParamSpec, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from stsbench.core.errors import CardError, StsbenchError, UnknownName, choose, did_you_mean, in_words, one_line, shown
from stsbench.core.secrets import redact


class Registry:
    """One kind of object by name: a table of ``"package.module:Name"`` strings.

    A user's package adds names through the entry point group ``stsbench.<group>``; a name
    with a colon is taken as the address of the object itself. Only what the user has typed, or written
    in a card that he named, may be such an address: a name out of any other file is for :meth:`load_own`.
    """

    def __init__(
        self,
        kind: str,
        table: Mapping[str, str],
        *,
        group: str,
        accepts: Callable[[Any], bool] = callable,
        wanted: str = "something to call",
    ) -> None:
        """Keep the table of our own; nothing is imported yet.

        ``kind`` is what its objects are called in messages, ``wanted`` what an object of a user's must be, and ``accepts``
        tells whether it is, without calling it.
        """
        self.kind, self.table, self.group = kind, dict(table), f"stsbench.{group}"
        self.accepts, self.wanted = accepts, wanted

    def _points(self) -> dict[str, str]:
        return {point.name: point.value for point in entry_points(group=self.group)}

    def names(self) -> list[str]:
        """All names: ours first, then those of entry points."""
        return [*self.table, *sorted(self._points().keys() - self.table.keys())]

    def load(self, name: str) -> Any:  # noqa: ANN401 - holds whatever kind it is a registry of
        """Import and return the object of this name; raises UnknownName, or StsbenchError where it is no such object."""
        if name in self.table:
            return _import(self.table[name], self.kind)
        if ":" in name:
            with _current_folder():
                found = _import(name, self.kind)
        elif name in (points := self._points()):
            try:
                found = _import(points[name], self.kind)
            except StsbenchError:
                raise
            except Exception as error:
                # Whoever types the name did not write the package, and cannot use its traceback.
                problem = f"{type(error).__name__}: {one_line(error)[:200]}"
                raise StsbenchError(
                    f"{self.kind} '{name}': its entry point {points[name]} fails: {problem}; "
                    "repair its package, or remove it"
                ) from error
        else:
            raise UnknownName(self.kind, name, self.names(), hint=f"known: {', '.join(self.names())}")
        # Before anybody calls it.
        if not self.accepts(found):
            what = f"the class {found.__name__}" if isinstance(found, type) else f"of type {type(found).__name__}"
            raise StsbenchError(f"{self.kind} '{name}' is {what}; give {self.wanted}")
        return found

    def load_at(self, place: str) -> Any:  # noqa: ANN401 - as load
        """What ``name`` or ``name://address`` names; raises as :meth:`load`, and of an address alone."""
        if re.fullmatch(r"[\w.-]+:\d+", place):
            raise StsbenchError(f"{self.kind} '{place}' is an address alone; give a name before it: ray://{place}")
        return self.load(place.partition("://")[0])

    def load_own(self, name: str) -> Any:  # noqa: ANN401 - see load
        """As :meth:`load`, of our own table alone: a name that stands in a file fetched from elsewhere."""
        return _import(choose(self.kind, name, self.table), self.kind)


@contextmanager
def _current_folder() -> Iterator[None]:
    """Let a module of the user's own be found in the current folder, behind all others, while it is imported.

    No longer than that: what else is imported would be looked for there too.
    """
    here = str(Path.cwd())
    added = not sys.flags.safe_path and {"", here}.isdisjoint(sys.path)
    sys.path += [here] * added
    try:
        yield
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def _import(address: str, kind: str) -> Any:  # noqa: ANN401 - see Registry.load
    module, _, attribute = address.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise StsbenchError(f"{kind} '{address}' is not the address of an object; give package.module:Name")
    try:
        with staying(f"{kind} '{address}'"):
            return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        # An import that fails inside the user's module is the user's bug: keep its traceback.
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        raise StsbenchError(f"{kind} '{address}': no module named '{error.name}'; is it installed?") from error
    except AttributeError as error:
        near = did_you_mean(attribute, [n for n in vars(import_module(module)) if not n.startswith("_")])
        raise StsbenchError(f"{kind} '{address}': module '{module}' has no '{attribute}'{near}") from error


@contextmanager
def staying(what: str, error: type[StsbenchError] = StsbenchError) -> Iterator[None]:
    """Make it an ``error`` of a user's code where that code wants to end the program, by ``sys.exit`` or by a panic."""
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except SystemExit as stop:
        raise error(f"{what}: its code ended the program (SystemExit: {stop.code}); it must raise an error") from stop
    except BaseException as panic:  # so libraries written in Rust call what they did not foresee
        raise error(f"{what}: its code has panicked: {one_line(panic)[:200]}") from panic


def call_with_params(
    factory: Callable[..., Any], params: Mapping[str, Any], *, where: str, others: Sequence[str] = ()
) -> Any:  # noqa: ANN401
    """Call a factory with a card's ``[params]``, checked against its signature and its types first.

    ``where`` is the card and its table, for the message; ``others`` are keys of its other tables, one of which may have
    been meant. Raises CardError for a parameter that the factory does not take, or of the wrong type, or missing.
    """
    given = check_params(factory, params, where=where, others=others)
    with staying(where):
        return factory(**given)


def check_params(
    factory: Callable[..., Any], params: Mapping[str, Any], *, where: str, others: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the values that :func:`call_with_params` would call with; raises as it does."""
    signature = inspect.signature(factory)
    for key in params:
        if not _takes(signature, key):
            raise CardError(f"{where}: unknown key '{key}'{did_you_mean(key, [*signature.parameters, *others])}")
    hints: dict[str, Any] = {}
    # None of annotations that cannot be resolved.
    with suppress(NameError, TypeError, AttributeError):
        hints = get_type_hints(factory.__init__ if isinstance(factory, type) else factory, include_extras=True)  # type: ignore[misc]
    given = {key: fit(value, hints.get(key, Any), key, where=f"{where}: key '{key}'") for key, value in params.items()}
    try:
        signature.bind(**given)
    except TypeError as error:
        raise CardError(f"{where}: {one_line(error).replace('required argument', 'required key')}") from error
    return given


def _takes(signature: inspect.Signature, name: str) -> bool:
    return name in signature.parameters or any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())


def fit(value: Any, hint: Any, name: str = "", *, where: str) -> Any:  # noqa: ANN401 - any TOML value, any type
    """Return the TOML value of a parameter as the type of an annotation: a whole number as a float, a list as a tuple.

    What is no TOML value, and a type that TOML has not, is let through. Raises CardError: the value is of another type,
    or none of a Literal's choices.
    """
    if not _is_toml(value):
        return value
    if get_origin(hint) is Literal and value not in get_args(hint):
        choices = list(map(str, get_args(hint)))
        near = did_you_mean(str(value), choices)
        raise CardError(f"{where}: {redact(value, name)!r} is not one of {', '.join(choices)}{near}")

    def no_type_of_toml(kind: type, value: object) -> NoReturn:
        raise LookupError(kind)

    try:
        return msgspec.convert(value, hint, dec_hook=no_type_of_toml)
    except msgspec.ValidationError as error:
        # TOML has no null: what may be None is left out.
        said = one_line(error).partition(", got ")[0].partition(" - at ")[0].replace(" | null", "")
        said = in_words(said[0].lower() + said[1:].replace("null", "None"))
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


class Kind(NamedTuple):
    """What an argument may be."""

    accepts: Callable[[object], bool]
    wanted: str


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _is_or_are(*kinds: type) -> Callable[[object], bool]:
    is_one = _is(*kinds)
    return lambda value: is_one(value) or (isinstance(value, Sequence) and all(map(is_one, value)))


NAME = Kind(_is(str), "a name")
NAMES = Kind(_is_or_are(str), "a name or a list of names")
PLACE = Kind(_is(str, PathLike), "a path")
PLACES = Kind(_is_or_are(str, PathLike), "a path or a list of paths")
NAME_OR_PLACE = Kind(PLACE.accepts, "a name or a path")
STORE = Kind(_is(str, PathLike, type(None)), "a path, 'default' or None")
SEED = Kind(
    lambda value: isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < SEEDS,
    f"a whole number from 0 to {SEEDS - 1}",
)
SWITCH = Kind(_is(bool), "True or False")
PARAMETERS = Kind(
    lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value), "a dict of values by name"
)
FUNCTION = Kind(callable, "a function")


def checked(called: str = "", /, **kinds: Kind | type) -> Callable[[Callable[P, ReturnT]], Callable[P, ReturnT]]:
    """Check arguments of a function at each call; None is let through where it is the default.

    ``called`` is what the user calls the function, ``kinds`` are what each argument may be, or the class that it must be
    of. What is decorated raises StsbenchError, naming function and argument, and what was given.
    """
    wanted = {
        name: kind if isinstance(kind, Kind) else Kind(_is(kind), f"a {kind.__name__}") for name, kind in kinds.items()
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
                if name in wanted and not left_out and not wanted[name].accepts(value):
                    raise StsbenchError(f"{what}: {name} must be {wanted[name].wanted}; it is {shown(value)}")
            return function(*args, **kwargs)

        vars(call)["kinds"] = kinds
        return call

    return decorate


def takes_arguments_of(other: Callable[P, object]) -> Callable[[Callable[..., ReturnT]], Callable[P, ReturnT]]:
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
        return checked(**vars(other)["kinds"])(call)

    return decorate
