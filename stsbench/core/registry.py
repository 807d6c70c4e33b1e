"""Names to Python objects, loaded when first asked for: ours, an entry point's, or ``package.module:Name``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import (
    Any,
)

from stsbench.core.errors import (
    StsbenchError,
    UnknownName,
    catch_exit,
    look_up,
    suggest,
)
from stsbench.core.wording import join_lines


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
        expected: str = "something to call",
    ) -> None:
        """Keep the table of our own; nothing is imported yet.

        ``kind`` is what its objects are called in messages, ``expected`` what an object of a user's must be, and ``accepts``
        tells whether it is, without calling it.
        """
        self.kind, self.table, self.group = kind, dict(table), f"stsbench.{group}"
        self.accepts, self.expected = accepts, expected

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
                problem = f"{type(error).__name__}: {join_lines(error)[:200]}"
                raise StsbenchError(
                    f"{self.kind} '{name}': its entry point {points[name]} fails: {problem}; "
                    "repair its package, or remove it"
                ) from error
        else:
            raise UnknownName(
                self.kind, name, self.names(), hint=f"known: {', '.join(self.names())}"
            )
        # Before anybody calls it.
        if not self.accepts(found):
            what = (
                f"the class {found.__name__}"
                if isinstance(found, type)
                else f"of type {type(found).__name__}"
            )
            raise StsbenchError(f"{self.kind} '{name}' is {what}; give {self.expected}")
        return found

    def load_at(self, place: str) -> Any:  # noqa: ANN401 - as load
        """What ``name`` or ``name://address`` names; raises as :meth:`load`, and of an address alone."""
        if re.fullmatch(r"[\w.-]+:\d+", place):
            raise StsbenchError(
                f"{self.kind} '{place}' is an address alone; give a name before it: ray://{place}"
            )
        return self.load(place.partition("://")[0])

    def load_own(self, name: str) -> Any:  # noqa: ANN401 - see load
        """As :meth:`load`, of our own table alone: a name that stands in a file fetched from elsewhere."""
        return _import(look_up(self.kind, name, self.table), self.kind)


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
