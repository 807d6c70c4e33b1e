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

import ast
import copyreg
import difflib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

from stsbench.core.secrets import redact, redact_text

RowT = TypeVar("RowT")
NOT_SAME, MISTAKE, BUG, STOPPED = 1, 2, 3, 130
"""Exit codes of every command; 0 is fine, 1 a regression that ``check`` found, or two encoders that ``parity`` tells apart."""
SHOWN = 80
"""So many characters of a value are shown in a message."""


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

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        """Say which kind of name is unknown and offer the nearest known ones."""
        self.kind, self.name = kind, name
        hints = [did_you_mean(name, known).removeprefix("; "), hint]
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


class Stopped(StsbenchError):
    """The user has stopped it; says what is kept and how to continue."""


def choose(kind: str, name: str, table: Mapping[str, RowT]) -> RowT:
    """Return a table's row of this name; raises UnknownName."""
    if name not in table:
        raise UnknownName(kind, name, table, hint=f"known: {', '.join(table)}")
    return table[name]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the nearest known names, or an empty string."""
    by_fold = {k.casefold(): k for k in known}
    # Of a name with values replaced, or one state of several, the beginning may be meant.
    more = [fold for fold in by_fold if fold.startswith(tuple(f"{name.casefold()}{sign}" for sign in ("+", "@", " ")))]
    if not more:
        fold = name.casefold()
        near = difflib.get_close_matches(fold, by_fold, n=9, cutoff=0.55)
        ratios = {one: difflib.SequenceMatcher(None, one, fold).ratio() for one in near}
        # Of those equally near, the one that begins alike is meant rather.
        more = sorted(near, key=lambda one: (-ratios[one], -len(os.path.commonprefix([one, fold]))))
    names = [f"'{by_fold[one]}'" for one in more[:3]]
    return f"; did you mean {' or '.join(names)}?" if names else ""


_TYPES = {"array": "a list", "object": "a table", "int": "a whole number", "float": "a number", "str": "text",
          "bool": "true or false"}  # fmt: skip


def in_words(problem: str) -> str:
    """What a checker of types says, with the types as people call them."""
    return re.sub(r"`([a-z]+)`", lambda found: _TYPES.get(found[1], found[0]), problem)


def and_more(names: Sequence[str], most: int = 3) -> str:
    """Return the first names as a list, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def one_line(text: object) -> str:
    """Return the text with every run of white space made one blank: errors print as one line."""
    return " ".join(str(text).split())


def duration(seconds: float) -> str:
    """A time as people say it: ``0.4 s``, ``42 s``, ``12 min``, ``3.5 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def failing(what: str, error: type[StsbenchError], *kinds: type[Exception], longest: int = 300) -> Iterator[None]:
    """Make what fails in the block an ``error`` of one line: ``what``, and what was said, cut to the ``longest``.

    ``kinds`` are the exceptions that count, as far as they are known; without any all do but our own, which say what is wrong.
    """
    try:
        yield
    except Exception as problem:
        if isinstance(problem, StsbenchError) or not isinstance(problem, kinds or Exception):
            raise
        raise error(f"{what}: {one_line(problem)[:longest]}") from problem


def cut(text: str, longest: int = SHOWN) -> str:
    """Return the text as a message shows it: not all of what is long."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def shown(value: object) -> str:
    """Return a value as a message shows it: in one line, and not all of what is long."""
    try:
        return cut(one_line(repr(value)))
    except (ValueError, RecursionError):
        return "a number or list too long to print"


def which_sentence(sentences: Sequence[str], row: int) -> str:
    """Name a sentence of the data in a message without its text, which may be confidential: its number and its hash."""
    digest = hashlib.sha256(sentences[row].encode("utf-8", "surrogatepass")).hexdigest()
    return f"sentence {row + 1} of {len(sentences)} (its sha256 begins {digest[:8]})"


def visible(text: str) -> str:
    r"""Return the text with control characters written out, as ``\u001b``: a terminal shows them and obeys none.

    These are the control characters but tab and newline, what turns the direction of writing, line and paragraph
    separators, and what is no character: lone surrogates and the two non-characters. Within JSON strings the text
    written out means the same character. Secrets are left out, as :func:`redact_text` finds them.
    """
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", redact_text(text))


_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)


CHANGE = re.compile(r"\+(?=[A-Za-z_][\w.]*=)")
"""What stands before each parameter that a name says was replaced."""
LABEL = re.compile(
    r"(?P<stem>.*?)(?P<settings>(\+[A-Za-z_][\w.]*=.*?)?)(?P<state>( \(not the card's\))?( \[[^\[\]]+\])?)"
)
"""What a table calls an encoder: a name, the settings behind it, and what distinguishes one state of it from another."""
WITH_SETTINGS, LONGEST = 32, 44
"""So many signs a name may have that ends with settings, beside eight columns in a terminal or on paper, and any other."""
PAIRS = {")": "(", "]": "[", "}": "{"}


def split_names(text: str) -> list[str]:
    """Split a comma list; a comma inside brackets or quotes is part of a name, as in ``a+views=['x', 'y']``.

    A bracket or quote that nothing closes is a sign like any other.
    """
    return list(filter(None, _parts(text)))


def has_gap(text: str) -> bool:
    """Whether a comma list that names anything has nothing between two commas, or before or after one."""
    parts = _parts(text)
    return any(parts) and not all(parts)


def _parts(text: str) -> list[str]:
    found: list[int] = []
    # What is open, each with how many commas stood before it.
    opened: list[tuple[str, int]] = []
    at = 0
    while at < len(text):
        sign = text[at]
        # An apostrophe inside a word opens nothing.
        if sign in "'\"" and (at == 0 or text[at - 1] in " =,:([{"):
            at = max(at, text.find(sign, at + 1))
        elif sign in PAIRS.values():
            opened.append((sign, len(found)))
        elif sign in PAIRS and opened and opened[-1][0] == PAIRS[sign]:
            del found[opened.pop()[1] :]
        elif sign == ",":
            found.append(at)
        at += 1
    return [text[start + 1 : end].strip() for start, end in pairwise([-1, *found, len(text)])]


def variants(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A name cut at each parameter that it says was replaced, longest first: what is called so, and the rest.

    ``minilm+pooling=max`` is itself with nothing replaced, then ``minilm`` with its pooling.
    """
    cuts = [match.start() for match in CHANGE.finditer(name)]
    for cut in [len(name), *reversed(cuts)]:
        changes = [part.partition("=") for part in CHANGE.split(name[cut:])[1:]]
        yield name[:cut], {key: _value(text) for key, _, text in changes}


def redact_name(name: str) -> str:
    """Return a name without secrets among the parameters that it says were replaced."""
    stem, changes = list(variants(name))[-1]
    redacted = redact(changes)
    if redacted == changes:
        return redact_text(name)
    return "+".join([redact_text(stem), *(f"{key}={printed(value)}" for key, value in redacted.items())])


def printed(value: object) -> str:
    """A value as names print it: text bare where it can be read back so, else with quotes."""
    if isinstance(value, str) and (_value(value) != value or (split_names(value) or [""]) != [value]):
        return repr(value)
    return str(value)


def replaced_once(name: str, changes: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a name replaces and those that are given beside it; raises CardError for one that both are."""
    if twice := changes.keys() & given.keys():
        raise CardError(f"{name}: its name and --set both replace '{min(twice)}'; leave out one of them")
    return {**changes, **given}


def _value(text: str) -> Any:  # noqa: ANN401 - any parameter
    # As TOML writes them.
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def short_name(name: str, numbers: dict[str, str], *, with_settings: int, longest: int) -> str:
    """A name as a table without a legend has it: ``minilm+…(1)``, where a key below says what (1) is in one piece.

    ``numbers`` are those given already, by whole name; this one's joins them where it needs one. A name with settings
    may have ``with_settings`` signs, any name ``longest``.
    """
    found = LABEL.fullmatch(name)
    if found and found["settings"] and len(name) > with_settings:
        number = numbered(name, numbers)
        for short in (f"{found['stem']}+…{number}{found['state']}", f"{found['stem']}+…{number}"):
            if len(short) <= min(longest, len(name)):
                return short
    return name if len(name) <= longest else cut_name(name, numbers, longest)


def cut_name(name: str, numbers: dict[str, str], longest: int) -> str:
    """The beginning of a name, and a number that stands for all of it."""
    number = numbered(name, numbers)
    return f"{name[: longest - len(number) - 1].rstrip()}…{number}"


def numbered(text: str, numbers: dict[str, str]) -> str:
    """The number of a text, the same whenever it comes again."""
    return numbers.setdefault(text, f"({len(numbers) + 1})")
