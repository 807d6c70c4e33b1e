"""The errors a user can cause, as one tree, and the names a user gives: comma lists, and names with parameters replaced.

    StsbenchError               one clear line on the terminal, exit code 2
    ├── UnknownName             a task, encoder, suite, protocol or option that does not exist
    ├── CardError               a card with an unknown, missing, doubled or wrong key
    ├── DataError               data that is missing, broken or not what its card says
    │   └── SourceError         no source could give the data (not found, no network, gated, timed out)
    ├── EncoderError            a checkpoint that cannot be read, or embeddings no score can be made of
    ├── TrainingError           a run that cannot continue (loss not finite, text too short, nothing to learn from)
    ├── ProtocolError           scores of different protocols set side by side
    ├── OutputError             a folder or file that cannot be written (permissions, full disk)
    └── Stopped                 Ctrl-C, where something can be said of what is kept; exit code 130

Anything else is a bug: it keeps its traceback, and the exit code is 3.
"""

from __future__ import annotations

import copyreg
import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import (
    Any,
    TypeVar,
)

from stsbench.core.secrets import redact_text
from stsbench.core.wording import join_lines

RowT = TypeVar("RowT")
EXIT_DIFFERENCE, EXIT_USER_ERROR, EXIT_BUG, EXIT_INTERRUPTED = 1, 2, 3, 130
"""Exit codes of every command; 0 is fine, 1 a regression that ``check`` found, or two encoders that ``parity`` tells apart."""


class StsbenchError(Exception):
    """A mistake the user can put right; the message is one line: what, where, what to do.

    ``hint`` is the part of it that says what to do, where that is known: a terminal shows it on a line of its own.
    """

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        """Say what is wrong, and what to do."""
        message, hint = redact_text(message), redact_text(hint)
        self.problem, self.hint = message, hint
        super().__init__(f"{message}; {hint}" if hint else message)

    def __reduce__(self) -> tuple[Any, ...]:
        """The same error in another process, whatever its class is made with."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UnknownName(StsbenchError):
    """A name that is in no registry."""

    def __init__(self, kind: str, name: str, choices: Iterable[str], hint: str = "") -> None:
        """Say which kind of name is unknown and offer the nearest known ones."""
        self.kind, self.name = kind, name
        hints = [suggest(name, choices).removeprefix("; "), hint]
        super().__init__(f"unknown {kind} '{name}'", hint="; ".join(filter(None, hints)))


class CardError(StsbenchError):
    """A card that is not as cards must be; names the file and the key."""


class DataError(StsbenchError):
    """Data that is broken or differs from its card; names the file and the line."""


class SourceError(DataError):
    """No source could give the data; says what was tried and what to do."""


class EncoderError(StsbenchError):
    """An encoder that cannot be loaded, or whose embeddings cannot be scored."""


class TrainingError(StsbenchError):
    """Training that cannot start or continue; says what was kept."""


class ProtocolError(StsbenchError):
    """Scores of different protocols were to be compared; names the field that differs."""


class OutputError(StsbenchError):
    """A result, store or output folder that cannot be written."""


class Interrupted(StsbenchError):
    """The user has stopped it; says what is kept and how to continue."""


def look_up(kind: str, name: str, table: Mapping[str, RowT]) -> RowT:
    """Return a table's row of this name; raises UnknownName."""
    if name not in table:
        raise UnknownName(kind, name, table, hint=f"known: {', '.join(table)}")
    return table[name]


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known names, or an empty string."""
    by_fold = {k.casefold(): k for k in choices}
    # Of a name with values replaced, or one state of several, the beginning may be meant.
    more = [
        fold
        for fold in by_fold
        if fold.startswith(tuple(f"{name.casefold()}{sign}" for sign in ("+", "@", " ")))
    ]
    if not more:
        fold = name.casefold()
        near = difflib.get_close_matches(fold, by_fold, n=9, cutoff=0.55)
        ratios = {one: difflib.SequenceMatcher(None, one, fold).ratio() for one in near}
        # Of those equally near, the one that begins alike is meant rather.
        more = sorted(near, key=lambda one: (-ratios[one], -len(os.path.commonprefix([one, fold]))))
    names = [f"'{by_fold[one]}'" for one in more[:3]]
    return f"; did you mean {' or '.join(names)}?" if names else ""


@contextmanager
def translate_errors(
    message: str, error: type[StsbenchError], *kinds: type[Exception], max_length: int = 300
) -> Iterator[None]:
    """Make what fails in the block an ``error`` of one line: ``message``, and what was said, cut to the ``max_length``.

    ``kinds`` are the exceptions that count, as far as they are known; without any all do but our own, which say what is wrong.
    """
    try:
        yield
    except Exception as problem:
        if isinstance(problem, StsbenchError) or not isinstance(problem, kinds or Exception):
            raise
        raise error(f"{message}: {join_lines(problem)[:max_length]}") from problem


@contextmanager
def catch_exit(what: str, error: type[StsbenchError] = StsbenchError) -> Iterator[None]:
    """Make it an ``error`` of a user's code where that code wants to end the program, by ``sys.exit`` or by a panic."""
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except SystemExit as stop:
        raise error(
            f"{what}: its code ended the program (SystemExit: {stop.code}); it must raise an error"
        ) from stop
    except BaseException as panic:  # so libraries written in Rust call what they did not foresee
        raise error(f"{what}: its code has panicked: {join_lines(panic)[:200]}") from panic
