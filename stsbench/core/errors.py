"""The errors that a user can cause, as one tree, and what each knows about the mistake.

    StsbenchError               one clear line on the terminal, exit code 2
    ├── UnknownName             a task, encoder, suite, protocol or option that does not exist
    ├── CardError               a card with an unknown, missing, doubled or wrong key
    ├── DataError               data that is missing, broken or not what its card says
    │   └── SourceError         no source could give the data (not found, no network, gated, timed out)
    ├── EncoderError            a checkpoint that cannot be read, or embeddings no score can be made of
    ├── TrainingError           a run that cannot continue (loss not finite, text too short, nothing to learn from)
    ├── ProtocolError           scores of different protocols set side by side
    ├── OutputError             a folder or file that cannot be written (permissions, full disk)
    └── Interrupted             Ctrl-C, with a message on what is kept; exit code 130

Anything else is a bug: it keeps its traceback, and the exit code is 3.
"""

from __future__ import annotations

import copyreg
import difflib
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from stsbench.core.wording import join_lines

RowT = TypeVar("RowT")
EXIT_DIFFERENCE, EXIT_USER_ERROR, EXIT_BUG, EXIT_INTERRUPTED = 1, 2, 3, 130
"""Exit codes of every command; 0 is fine, 1 a regression that ``check`` found, or two encoders that ``parity`` tells apart."""


class Remedy(NamedTuple):
    """What a user can do about an error: an action, and the arguments that it takes."""

    action: str
    """A key of :data:`ACTIONS`; the command line has words of its own for each."""
    arguments: Mapping[str, str] = MappingProxyType({})
    """By parameter, for example ``{"encoder": "minilm"}``."""

    def __str__(self) -> str:
        """Return the remedy in the words of a Python user."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{ACTIONS[self.action]}({arguments})"


ACTIONS: Mapping[str, str] = {
    "score": "call stsbench.evaluate",
    "train": "call stsbench.train",
    "list": "see stsbench.Catalogue",
    "lock": "call stsbench.check.lock.to_lock",
}
"""What to do in Python, by the action of a remedy."""


class StsbenchError(Exception):
    """A user error: one line that says what is wrong, where, and what to do.

    The command line words the facts with its options, Python with parameters: within ``message``
    and ``hint`` a parameter stands in backticks, for example `` `data=DIR` ``.

    Attributes:
        problem: What is wrong, without what to do about it.
        hint: What to do; empty if that is unknown. A terminal shows it on its own line.
        parameter: The parameter of a function or field of a file that is wrong; else empty.
        value: Its value.
        choices: The values that it may have; empty if they cannot be listed.
        remedy: What to do, as an action with arguments; None if that is unknown.
    """

    def __init__(
        self,
        message: str = "",
        *,
        hint: str = "",
        parameter: str = "",
        value: object = None,
        choices: Iterable[str] = (),
        remedy: Remedy | None = None,
    ) -> None:
        """Store the facts, and make the message of them."""
        self.reason = message
        self.hint = hint
        self.parameter = parameter
        self.value = value
        self.choices = tuple(choices)
        self.remedy = remedy
        super().__init__("; ".join(filter(None, (self.problem, hint, str(remedy or "")))))

    @property
    def problem(self) -> str:
        """What is wrong, with the parameter and its value if they are known."""
        if not self.parameter:
            return self.reason
        subject = self.parameter if self.value is None else f"{self.parameter} '{self.value}'"
        return f"{subject}: {self.reason}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild the same error in another process, whatever its class is made with."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UnknownName(StsbenchError):
    """A name that is in no registry.

    Attributes:
        kind: What the name should be a name of, for example ``task``.
        name: The unknown name.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        choices: Iterable[str],
        hint: str = "",
        *,
        remedy: Remedy | None = None,
    ) -> None:
        """Store the kind and the name, and suggest the nearest choices."""
        self.kind = kind
        self.name = name
        choices = tuple(choices)
        suggestion = suggest(name, choices).removeprefix("; ")
        hint = "; ".join(filter(None, (suggestion, hint)))
        super().__init__(
            f"unknown {kind} '{name}'", hint=hint, value=name, choices=choices, remedy=remedy
        )


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
