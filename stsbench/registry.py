"""Names to Python objects, loaded when first asked for: ours, an entry point's, or ``package.module:Name``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from stsbench.errors import CardError, StsbenchError, UnknownName, did_you_mean, one_line


class Registry:
    """One kind of object by name: a table of ``"package.module:Name"`` strings.

    A user's package adds names through the entry point group ``stsbench.<group>``; a name
    with a colon is taken as the address of the object itself.
    """

    def __init__(self, kind: str, table: Mapping[str, str], *, group: str) -> None:
        """Keep the table; nothing is imported yet."""
        self.kind, self.table, self.group = kind, dict(table), f"stsbench.{group}"

    def names(self) -> list[str]:
        """All names: ours first, then those of entry points."""
        return [*self.table, *sorted(p.name for p in entry_points(group=self.group) if p.name not in self.table)]

    def load(self, name: str) -> Any:  # noqa: ANN401 - holds whatever kind it is a registry of
        """Import and return the object of this name.

        Raises:
            UnknownName: no such name; offers the nearest.
            StsbenchError: the module or the name in it cannot be imported.
        """
        if ":" in name:
            return _import(name, self.kind)
        if name in self.table:
            return _import(self.table[name], self.kind)
        for point in entry_points(group=self.group):
            if point.name == name:
                return _import(point.value, self.kind)
        raise UnknownName(self.kind, name, self.names(), hint=f"known: {', '.join(self.names())}")


def _import(address: str, kind: str) -> Any:  # noqa: ANN401 - see Registry.load
    module, _, attribute = address.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        # An import that fails inside the user's module is the user's bug: keep its traceback.
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        raise StsbenchError(f"{kind} '{address}': no module named '{error.name}'; is it installed?") from error
    except AttributeError as error:
        names = [n for n in vars(import_module(module)) if not n.startswith("_")]
        raise StsbenchError(
            f"{kind} '{address}': module '{module}' has no '{attribute}'{did_you_mean(attribute, names)}"
        ) from error


def call_with_params(factory: Callable[..., Any], params: Mapping[str, Any], *, where: str) -> Any:  # noqa: ANN401
    """Call a factory with a card's ``[params]``, checked against its signature first.

    Raises:
        CardError: a parameter the factory does not take, or one that it needs and is missing.
    """
    signature = inspect.signature(factory)
    kinds = {p.kind for p in signature.parameters.values()}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for key in params:
            if key not in signature.parameters:
                known = list(signature.parameters)
                raise CardError(f"{where}: unknown key '{key}' in [params]{did_you_mean(key, known)}")
    try:
        signature.bind(**params)
    except TypeError as error:
        raise CardError(f"{where}: [params]: {one_line(error)}") from error
    return factory(**params)
