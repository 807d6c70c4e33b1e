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

from stsbench.core.errors import StsbenchError, UnknownName, catch_exit, look_up, suggest
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
        """Make a registry of objects that users choose by name; nothing is imported yet.

        Args:
            kind: The kind of object as messages name it, for example ``encoder kind``.
            table: stsbench's own objects: name -> address ``package.module:Name``.
            group: The group of entry points, by which installed packages add objects, without the
                ``stsbench.`` at its beginning.
            accepts: A function that returns whether an object of a user has the right type, without
                calling it.
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
        """Import and return the object that a user chooses by this name.

        There are three kinds of names:

        * one of stsbench's own names (``self.table``, name -> address of the object);
        * the address of a user's object, ``package.module:Name``, whose module may lie in the
          current folder;
        * the name of an entry point, by which an installed package adds an object.

        Objects of the last two kinds are checked by ``self.accepts``. ``self.kind`` is the kind of
        object, and ``self.expected`` describes the right type, both for messages.

        Args:
            name: A name that the user has typed, or has written in a file.

        Raises:
            UnknownName: No object has this name.
            StsbenchError: The object cannot be imported, or is not of this kind.
        """
        if name in self.table:
            return _import_object(self.table[name], self.kind)
        if ":" in name:
            with _importable_current_folder():
                loaded = _import_object(name, self.kind)
        else:
            address = self._entry_point_addresses().get(name)
            if address is None:
                names = self.names()
                raise UnknownName(self.kind, name, names, hint=f"known: {', '.join(names)}")
            loaded = self._load_entry_point(name, address)
        # Refuse an object of the wrong type here, before it is called.
        if not self.accepts(loaded):
            description = (
                f"the class {loaded.__name__}"
                if isinstance(loaded, type)
                else f"of type {type(loaded).__name__}"
            )
            raise StsbenchError(f"{self.kind} '{name}' is {description}; give {self.expected}")
        return loaded

    def _load_entry_point(self, name: str, address: str) -> Any:  # noqa: ANN401 - as load
        """Import the object that an installed package offers by an entry point.

        Args:
            name: The name of the entry point, for the message.
            address: The address of the object, ``package.module:Name``.

        Raises:
            StsbenchError: The package cannot be imported, or does not have the object.
        """
        try:
            return _import_object(address, self.kind)
        except StsbenchError:
            raise
        except Exception as error:
            # One line, because the user did not write the package and cannot use its traceback.
            problem = f"{type(error).__name__}: {as_one_line(error)[:200]}"
            raise StsbenchError(
                f"{self.kind} '{name}': its entry point {address} fails: {problem}; "
                "repair its package, or remove it"
            ) from error

    def load_at(self, address: str) -> Any:  # noqa: ANN401 - as load
        """Import the object of a name that a network address may follow.

        Args:
            address: ``name``, or ``name://host:port``, for example an executor that runs work on
                other machines. The part behind the name is not used here.

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
        return _import_object(look_up(self.kind, name, self.table), self.kind)


@contextmanager
def _importable_current_folder() -> Iterator[None]:
    """Let a ``with`` block import modules from the current folder too, after all other folders.

    Afterwards the folder is removed from ``sys.path``, so that no later import looks there. Nothing
    changes if Python was started with the option ``-P``, which forbids such imports.
    """
    current_folder = str(Path.cwd())
    # An empty entry of sys.path stands for the current folder too.
    is_importable_already = current_folder in sys.path or "" in sys.path
    # The flag of Python's option -P.
    is_added = not is_importable_already and not sys.flags.safe_path
    if is_added:
        sys.path.append(current_folder)
    try:
        yield
    finally:
        # The imported module may have removed it already.
        if is_added and current_folder in sys.path:
            sys.path.remove(current_folder)


def _import_object(address: str, kind: str) -> Any:  # noqa: ANN401 - see Registry.load
    """Import a module and return the object in it that an address names.

    Args:
        address: ``package.module:Name``.
        kind: The kind of object that it should be, for messages, such as ``encoder``.

    Raises:
        StsbenchError: The address is not valid, there is no such module or attribute, or the module
            ends the program. Any other exception of the module's own code is passed on unchanged.
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
        # The missing module is this one, or a package that contains it; or else one that the user's
        # module imports. The latter is a bug of the user's: keep its traceback.
        is_this_module = error.name is not None and f"{module}.".startswith(f"{error.name}.")
        if not is_this_module:
            raise
        raise StsbenchError(
            f"{kind} '{address}': no module named '{error.name}'; "
            "is it installed, or in the current folder?"
        ) from error
    except AttributeError as error:
        # An AttributeError of the module's own code is raised again by this import.
        public_names = [name for name in vars(import_module(module)) if not name.startswith("_")]
        suggestion = suggest(attribute, public_names)
        raise StsbenchError(
            f"{kind} '{address}': module '{module}' has no '{attribute}'{suggestion}"
        ) from error
