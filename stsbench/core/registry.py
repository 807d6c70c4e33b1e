"""Objects by name, imported at first use: our own, an entry point's, or ``package.module:Name``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from stsbench.core.errors import (
    StsbenchError,
    UnknownName,
    catch_exit,
    look_up,
    suggest,
)
from stsbench.core.wording import as_one_line


class Registry:
    """The objects of one kind by name, from a table of ``"package.module:Name"`` strings.

    A user's package adds names through the entry point group ``stsbench.<group>``, and a name with
    a colon is itself the address of an object. Only a name that the user has typed, or written in
    a card that he named, may be such an address: names from any other file are for
    :meth:`load_own`.
    """

    def __init__(
        self,
        kind: str,
        table: Mapping[str, str],
        *,
        group: str,
        accepts: Callable[[Any], bool] = callable,
        expected: str = "something to call",
    ) -> None:
        """Store the table; nothing is imported yet.

        Args:
            kind: The kind of object as messages name it, for example ``encoder kind``.
            table: The addresses of our own objects by name.
            group: The last part of the entry point group's name.
            accepts: Return whether an object of a user has the right type, without calling it.
            expected: A description of the right type, for messages.
        """
        self.kind = kind
        self.table = dict(table)
        self.group = f"stsbench.{group}"
        self.accepts = accepts
        self.expected = expected

    def _entry_point_addresses(self) -> dict[str, str]:
        """Return the address ``package.module:Name`` of each installed entry point by its name."""
        return {point.name: point.value for point in entry_points(group=self.group)}

    def names(self) -> list[str]:
        """Return all names: our own first, then those of entry points."""
        return [*self.table, *sorted(self._entry_point_addresses().keys() - self.table.keys())]

    def load(self, name: str) -> Any:  # noqa: ANN401 - holds whatever kind it is a registry of
        """Import and return the object of this name.

        The name is looked up in our own table first. If it has a colon it is the address of an
        object, ``package.module:Name``, whose module may lie in the current folder. Any other name
        is that of an installed entry point. The type of our own objects is not checked.

        Args:
            name: A name that the user has typed, or written in a card that he named.

        Raises:
            UnknownName: No object has this name.
            StsbenchError: The object cannot be imported, or is not of this kind.
        """
        if name in self.table:
            return _import(self.table[name], self.kind)
        if ":" in name:
            with _importable_current_folder():
                loaded = _import(name, self.kind)
        else:
            address = self._entry_point_addresses().get(name)
            if address is None:
                raise UnknownName(
                    self.kind, name, self.names(), hint=f"known: {', '.join(self.names())}"
                )
            loaded = self._load_entry_point(name, address)
        # Refuse a wrong object before anybody calls it.
        if not self.accepts(loaded):
            description = (
                f"the class {loaded.__name__}"
                if isinstance(loaded, type)
                else f"of type {type(loaded).__name__}"
            )
            raise StsbenchError(f"{self.kind} '{name}' is {description}; give {self.expected}")
        return loaded

    def _load_entry_point(self, name: str, address: str) -> Any:  # noqa: ANN401 - as load
        """Return the object of an installed package's entry point.

        Raises:
            StsbenchError: The package cannot be imported, or does not have the object.
        """
        try:
            return _import(address, self.kind)
        except StsbenchError:
            raise
        except Exception as error:
            # Whoever types the name did not write the package, and cannot use its traceback.
            problem = f"{type(error).__name__}: {as_one_line(error)[:200]}"
            raise StsbenchError(
                f"{self.kind} '{name}': its entry point {address} fails: {problem}; "
                "repair its package, or remove it"
            ) from error

    def load_at(self, address: str) -> Any:  # noqa: ANN401 - as load
        """Import the object of the name in ``name`` or ``name://address``, such as an executor's.

        The network address behind the name is not used here.

        Raises:
            UnknownName: No object has this name.
            StsbenchError: The object cannot be imported, or is not of this kind; or there is a
                network address without a name.
        """
        is_only_network_address = re.fullmatch(r"[\w.-]+:\d+", address)
        if is_only_network_address:
            raise StsbenchError(
                f"{self.kind} '{address}' is an address alone; "
                f"give a name before it: ray://{address}"
            )
        return self.load(address.partition("://")[0])

    def load_own(self, name: str) -> Any:  # noqa: ANN401 - see load
        """Import an object of our own table only: the name is from a file fetched from elsewhere.

        Raises:
            UnknownName: The table has no such name.
        """
        return _import(look_up(self.kind, name, self.table), self.kind)


@contextmanager
def _importable_current_folder() -> Iterator[None]:
    """Let modules be imported from the current folder too, after all other folders.

    The folder is removed afterwards, so that no later import looks for modules there.
    """
    current_folder = str(Path.cwd())
    # An empty entry of sys.path stands for the current folder too.
    is_importable_already = current_folder in sys.path or "" in sys.path
    is_added = not is_importable_already and not sys.flags.safe_path
    if is_added:
        sys.path.append(current_folder)
    try:
        yield
    finally:
        # The imported module may have removed it already.
        if is_added and current_folder in sys.path:
            sys.path.remove(current_folder)


def _import(address: str, kind: str) -> Any:  # noqa: ANN401 - see Registry.load
    """Import the object at an address.

    Args:
        address: ``package.module:Name``.
        kind: What it should be, for messages, such as ``encoder``.

    Raises:
        StsbenchError: The address is not valid, or there is no such module or attribute. An import
            that fails inside the user's module keeps its own exception.
    """
    module, _, attribute = address.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise StsbenchError(
            f"{kind} '{address}' is not the address of an object; give package.module:Name"
        )
    try:
        with catch_exit(f"{kind} '{address}'"):
            return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        # An import that fails inside the user's module is the user's bug: keep its traceback.
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        raise StsbenchError(
            f"{kind} '{address}': no module named '{error.name}'; is it installed?"
        ) from error
    except AttributeError as error:
        near = suggest(attribute, [n for n in vars(import_module(module)) if not n.startswith("_")])
        raise StsbenchError(
            f"{kind} '{address}': module '{module}' has no '{attribute}'{near}"
        ) from error
