"""The errors that a user can cause, as one tree, and the facts that each carries.

    StsbenchError               one clear line on the terminal, exit code 2
    ├── UnknownName             a task, encoder, suite, protocol or option that does not exist
    ├── CardError               a card with an unknown, missing, doubled or wrong key
    ├── DataError               data that is missing, broken or not what its card describes
    │   └── SourceError         no source could give the data (not found, no network, gated)
    ├── EncoderError            an unreadable checkpoint, or embeddings that cannot be scored
    ├── TrainingError           a run that cannot continue (loss not finite, text too short)
    ├── ProtocolError           scores of different protocols that were to be compared
    ├── OutputError             a folder or file that cannot be written (permissions, full disk)
    └── Interrupted             Ctrl-C, with a message on what is stored; exit code 130

Anything else is a bug: it keeps its traceback, and the exit code is 3.
"""

from __future__ import annotations

import copyreg
import difflib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from stsbench.core.wording import as_one_line

RowT = TypeVar("RowT")
RemedyValue = str | int | Sequence[str] | Mapping[str, Any] | None
EXIT_DIFFERENCE, EXIT_USER_ERROR, EXIT_BUG, EXIT_INTERRUPTED = 1, 2, 3, 130
"""Exit codes of every command: 0 is success, 1 a regression or two encoders that differ."""


class Remedy(NamedTuple):
    """An action that a user can take against an error, with its arguments."""

    action: str
    """A key of :data:`ACTIONS`; the command line has words of its own for each."""
    arguments: Mapping[str, RemedyValue] = MappingProxyType({})
    """Values by parameter, for example ``{"encoder": "minilm", "params": {"pooling": "max"}}``.

    None is a value too: ``{"store": None}`` is ``store=None``, on the command line ``--no-store``.
    """
    further: tuple[Remedy, ...] = ()
    """The same action with other arguments, if one call cannot do it all."""

    def __str__(self) -> str:
        """Return what a user can do against an error, as text with calls of Python functions.

        For example ``call stsbench.train(recipe='simcse')``. ``self.action`` is a key of
        ``ACTIONS``, the beginnings of such texts. ``self.arguments`` are values by parameter.
        ``self.further`` are remedies of the same action with other arguments, whose texts follow.
        The text is empty for the action ``list`` of names that are not those of cards.
        """
        calls = []
        for remedy in (self, *self.further):
            arguments = dict(remedy.arguments)
            # A remedy that lists the valid names; Python has a function for names of cards only.
            if remedy.action == "list":
                method = _CATALOGUE_METHODS_BY_KIND.get(str(arguments["kind"]))
                if method:
                    calls.append(f"stsbench.Catalogue().{method} lists them")
                continue
            # The functions have no argument for this folder: the user saves their results in it.
            results_folder = arguments.pop("results_folder", None)
            # Lists of names are written as the comma lists that the functions accept.
            arguments_text = ", ".join(
                f"{name}={_join_names(value)!r}" for name, value in arguments.items()
            )
            call = f"{ACTIONS[remedy.action]}({arguments_text})"
            calls.append(call if results_folder is None else f"{call} in {results_folder!r}")
        return "; ".join(calls)


_CATALOGUE_METHODS_BY_KIND: Mapping[str, str] = {
    "tasks": "paths('tasks')",
    "encoders": "paths('baselines')",
    "recipes": "paths('trainers')",
    "suites": "suites()",
}
"""The call of a method of :class:`stsbench.Catalogue`, by the kind of what it lists."""
ACTIONS: Mapping[str, str] = {
    "score": "save the results of stsbench.evaluate",
    "rescore": "score them again, and save the results of stsbench.evaluate",
    "fill": "to fill it, save the results of stsbench.evaluate",
    "train": "call stsbench.train",
    "lock": "call stsbench.check.lock.to_lock",
    "texts": "list the sentences of a task by stsbench.Task.texts",
    "pairs": "list the pairs of a task by stsbench.Task.load",
    "draft": "or, for your own data, draft the card again by stsbench.data.task_draft.draft_task",
    "make": "call stsbench.data.corpora.making.make_corpus",
    "convert-coco": "call stsbench.data.coco.convert_coco",
}
"""What to do in Python, by the action of a remedy."""


def _join_names(value: RemedyValue) -> str | int | Mapping[str, Any] | None:
    """Return a list of names as the comma list that functions accept; another value unchanged."""
    return value if value is None or isinstance(value, str | int | Mapping) else ",".join(value)


class AdvisingNote(str):
    """A note for the user with a remedy; its text has the remedy in the words of a Python user.

    The command line words the remedy with its own commands.

    Attributes:
        reason: The note without the remedy.
        remedy: An action that the user can take.
    """

    reason: str
    remedy: Remedy

    def __new__(cls, reason: str, remedy: Remedy) -> AdvisingNote:
        """Compose the text of the note, and store its parts."""
        note = super().__new__(cls, f"{reason}; {remedy}")
        note.reason = reason
        note.remedy = remedy
        return note

    def __getnewargs__(self) -> tuple[str, Remedy]:  # type: ignore[override]
        """Return the arguments with which a copy is made, in another process too."""
        return self.reason, self.remedy


class StsbenchError(Exception):
    """A user error: one line with the problem, its location and the remedy.

    The command line words the facts with its options, Python with parameters: within ``message``
    and ``hint`` a parameter and its value, such as data=DIR, are written between backticks.

    Attributes:
        problem: The problem, without the hint and the remedy.
        hint: Advice for the user; empty if there is none. A terminal shows it on its own line.
        parameter: The wrong parameter of a function or field of a file; empty if there is none.
        value: The wrong value of that parameter.
        choices: The values that it may have; empty if they cannot be listed.
        remedy: An action that the user can take; None if there is none.
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
        """Store the facts about a user error, and compose the message of the exception from them.

        The message has the problem, the hint and the remedy, separated by semicolons.
        ``self.problem`` is ``message`` with the parameter and its value before it.

        Args:
            message: The problem, without the parameter and its value.
            hint: Advice for the user.
            parameter: The parameter of a function or field of a file that is wrong.
            value: The value of that parameter, or the name that is unknown.
            choices: The values that would be valid.
            remedy: An action that the user can take. As text it is a call of a Python function.
        """
        self.reason = message
        self.hint = hint
        self.parameter = parameter
        self.value = value
        self.choices = tuple(choices)
        self.remedy = remedy
        remedy_text = str(remedy or "")
        super().__init__("; ".join(filter(None, (self.problem, hint, remedy_text))))

    @property
    def problem(self) -> str:
        """The message, after the parameter and its value if there are any."""
        if not self.parameter:
            return self.reason
        subject = self.parameter if self.value is None else f"{self.parameter} '{self.value}'"
        return f"{subject}: {self.reason}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild the same error in another process, whatever arguments its class takes."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class UnknownName(StsbenchError):
    """A name that is in no registry.

    Attributes:
        kind: The kind of object that the name should denote, for example ``task``.
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
        """Compose the error of a name that does not exist, with the valid names most like it.

        Args:
            kind: The kind of thing that the name should stand for, such as ``encoder``.
            name: The name that does not exist.
            choices: The valid names.
            hint: Further advice for the user.
            remedy: An action that the user can take; None if there is none.
        """
        self.kind = kind
        self.name = name
        choices = tuple(choices)
        suggestion = suggest(name, choices).removeprefix("; ")
        hint = "; ".join(filter(None, (suggestion, hint)))
        super().__init__(
            f"unknown {kind} '{name}'", hint=hint, value=name, choices=choices, remedy=remedy
        )


class CardError(StsbenchError):
    """A card that is not valid; its message names the file and the key."""


class DataError(StsbenchError):
    """Data that is broken or differs from its card; its message names the file and the line."""


class SourceError(DataError):
    """No source could give the data; its message lists the attempts and what to do."""


class EncoderError(StsbenchError):
    """An encoder that cannot be loaded, or whose embeddings cannot be scored."""


class TrainingError(StsbenchError):
    """Training that cannot start or continue; its message names what is stored of it."""


class ProtocolError(StsbenchError):
    """Scores of different protocols that were to be compared; names the field that differs."""


class OutputError(StsbenchError):
    """A result, store or output folder that cannot be written."""


class Interrupted(StsbenchError):
    """A stop by the user; its message explains what is stored and how to continue."""


class StsbenchNotice(UserWarning):
    """A notice on what a user's input was taken for; the command line prints it as a line."""


def look_up(kind: str, name: str, table: Mapping[str, RowT]) -> RowT:
    """Return the value that a mapping has under a user's name.

    Args:
        kind: The kind of thing that the name stands for, for the message, such as ``backend``.
        name: The name that the user has typed.
        table: The values by valid name.

    Raises:
        UnknownName: The name is not valid; the message lists the valid names.
    """
    if name not in table:
        raise UnknownName(kind, name, table, hint=f"known: {', '.join(table)}")
    return table[name]


MIN_BEGINNING = 3
"""A text that is shorter is not taken for the beginning of a name."""


def suggest(name: str, choices: Iterable[str]) -> str:
    """Return the end of a message that suggests valid names: ``"; did you mean 'x' or 'y'?"``.

    Up to three names are suggested: the valid names in which parameters, a seed or a tag follow the
    typed name, or a folder precedes it, else those that are spelled like it, else those that begin
    with it. The text is empty if there are none. Upper and lower case are not distinguished.

    Args:
        name: The name that a user has typed, which is not valid.
        choices: The valid names.
    """
    folded_name = name.casefold()
    choices_by_folded_name = {choice.casefold(): choice for choice in choices}
    # In the name of an encoder, parameters follow "+", a seed "@", a tag " ".
    beginnings = tuple(f"{folded_name}{separator}" for separator in ("+", "@", " "))
    candidates = [
        folded
        for folded in choices_by_folded_name
        if folded.startswith(beginnings) or folded.endswith(f"/{folded_name}")
    ]
    if not candidates:
        candidates = _similar_names(folded_name, choices_by_folded_name)
    if not candidates and len(folded_name) >= MIN_BEGINNING:
        candidates = [name for name in choices_by_folded_name if name.startswith(folded_name)]
    if not candidates:
        return ""
    quoted_names = [f"'{choices_by_folded_name[folded]}'" for folded in candidates[:3]]
    return f"; did you mean {' or '.join(quoted_names)}?"


def _similar_names(name: str, choices: Iterable[str]) -> list[str]:
    """Return the choices that are spelled like a name, the most similar first, at most nine.

    Their similarity to the name, as difflib computes it from equal runs of characters, is at least
    0.55 of 1.
    """
    similar = difflib.get_close_matches(name, choices, n=9, cutoff=0.55)
    similarities = {
        choice: difflib.SequenceMatcher(None, choice, name).ratio() for choice in similar
    }

    def sort_key(choice: str) -> tuple[float, int]:
        # Among equally similar choices, the one with the longest common beginning comes first.
        n_common = len(os.path.commonprefix([choice, name]))
        return -similarities[choice], -n_common

    return sorted(similar, key=sort_key)


@contextmanager
def translate_errors(
    message: str,
    error_type: type[StsbenchError],
    *exception_types: type[Exception],
    max_length: int = 300,
) -> Iterator[None]:
    """Translate exceptions of a ``with`` block into a user error with a message of one line.

    The block is run once. An exception of another class than the given ones passes unchanged, and
    so does a StsbenchError, which is a user error already.

    Args:
        message: The beginning of the new error's message; the text of the exception follows it.
        error_type: The class of the new error.
        exception_types: The classes of exceptions to translate; by default every Exception.
        max_length: The maximum length of the exception's text, in characters.
    """
    try:
        yield
    except Exception as exception:
        is_translated = isinstance(exception, exception_types or Exception)
        if isinstance(exception, StsbenchError) or not is_translated:
            raise
        description = as_one_line(exception)[:max_length]
        raise error_type(f"{message}: {description}") from exception


@contextmanager
def refuse_long_names() -> Iterator[None]:
    """Raise a user error for a file name in the block that is too long: only users give such."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        raise StsbenchError(f"'{error.filename}': the name is too long for this system") from error


@contextmanager
def catch_exit(subject: str, error_type: type[StsbenchError] = StsbenchError) -> Iterator[None]:
    """Turn attempts to end the program, by a user's code in a ``with`` block, into an error.

    Such attempts are ``sys.exit`` and the panic of a library written in Rust. All other exceptions
    pass unchanged, Ctrl-C too.

    Args:
        subject: The user's code as the message names it, for example ``encoder 'mine:make'``.
        error_type: The class of the error to raise.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except SystemExit as exit_exception:
        raise error_type(
            f"{subject}: its code ended the program (SystemExit: {exit_exception.code}); "
            "it must raise an error"
        ) from exit_exception
    except BaseException as panic:
        # Libraries written in Rust raise a class of their own, outside Exception, for their bugs.
        raise error_type(f"{subject}: its code has panicked: {as_one_line(panic)[:200]}") from panic
