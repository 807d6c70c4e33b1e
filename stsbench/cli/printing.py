"""What commands print: tables that fit a terminal, and JSON for scripts."""

from __future__ import annotations

import json
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stsbench import settings
from stsbench.errors import StsbenchError, UnknownName, one_line, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from stsbench.cli.widths import PlainColumn


LONGEST, LONGEST_WORD = 20_000, 300
"""Signs of an error's line, and of a word in it: more than ours have, so that only what others wrote is cut."""
NARROWEST, ENDLESS = 20, 10_000
"""Columns: a terminal has more than the first; a pipe or file, where nothing is cut or wrapped, as good as the second."""


def console(*, stderr: bool = False) -> Console:
    """A console as wide as the user says or the terminal is; without one, lines have no end."""
    from stsbench.cli.screen import Screen

    columns = settings.terminal_columns() or (None if (sys.stderr if stderr else sys.stdout).isatty() else ENDLESS)
    return Screen(
        stderr=stderr,
        width=columns and max(columns, NARROWEST),
        # Names and errors are text: brackets in them are no markup, colons no emoji.
        highlight=False,
        markup=False,
        emoji=False,
        # rich would take COLUMNS=0 for a width.
        _environ=settings.terminal(),
    )


def print_rows(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    names: Sequence[int] = (0,),
    heads: Sequence[int] = (),
) -> None:
    """Print a plain table: a rule under the header, numbers to the right.

    Where it is wider than the terminal, ``names`` and ``heads`` that are names are short, and a key below says them whole.
    """
    from stsbench.cli.widths import PlainColumn, fit_columns

    screen = console()
    made = [
        PlainColumn(
            visible(head),
            [visible(row[at]) for row in rows],
            is_name=at in names,
            is_number=at in right,
            head_is_name=at in heads,
        )
        for at, head in enumerate(columns)
    ]
    found = fit_columns(made, screen.width)
    for place, part in enumerate(found.parts):
        if place:
            say("")
        # What is wider even so the terminal itself wraps: rich would cut numbers.
        screen.width = max(screen.width, sum(column.width + found.gap for column in part))
        screen.print(_drawn(part, found.gap), crop=False)
    if found.key:
        # A name longer than the terminal is wrapped by it, and copied in one piece.
        say("\n".join(["", *found.key]))


def _drawn(columns: Sequence[PlainColumn], gap: int) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, gap - 2))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        made.add_column(column.head, justify=justify, no_wrap=column.is_name or column.is_number, overflow="fold")
    for row in zip(*(column.cells for column in columns), strict=True):
        made.add_row(*row)
    return made


def print_facts(rows: Iterable[Sequence[str]]) -> None:
    """Print names and what they are, side by side without a head; no word is broken, so that it can be copied."""
    shown, room = [(visible(name), visible(value)) for name, value in rows], console().width
    indent = max((len(name) for name, _ in shown), default=0) + 2
    for name, value in shown:
        lines = [part for line in value.split("\n") for part in folded(line, room - indent)]
        # A word that is longer than the room beside the names begins further left, on a line of its own.
        first = lines.pop(0) if len(lines[0]) <= room - indent else ""
        say(f"{name:<{indent}}{first}".rstrip())
        for line in lines:
            say(" " * max(min(indent, room - len(line)), 0) + line)


def print_json(value: Any, *, shown: Callable[[str], str] = str) -> None:  # noqa: ANN401 - any JSON value
    """Print one JSON value on stdout; ``shown`` may write it otherwise."""
    say(shown(json.dumps(value, indent=1, ensure_ascii=False)))


def say(text: str, *, end: str = "\n") -> None:
    """Print text on stdout; control characters in it are shown and do nothing."""
    sys.stdout.write(visible(text) + end)


def say_words(text: str) -> None:
    """Print sentences on stdout: on a terminal its lines end between words, elsewhere each text is one line."""
    say(_wrapped(text) if sys.stdout.isatty() else text)


def complain(what: object, *, about: str = "") -> None:
    """Print on stderr what is wrong, cut where it has no end, and on a terminal what to do on lines of its own.

    Elsewhere it is one line.

    Args:
        what: a text or an error.
        about: what an error is of: an encoder, a task; not said again where the error names it.
    """
    before = f"stsbench: {subject(about, what)}"
    if not sys.stderr.isatty():
        sys.stderr.write(f"{_bounded(before, what)}\n")
        return
    hint = what.hint if isinstance(what, StsbenchError) else ""
    parts = [_bounded(before, what.problem if isinstance(what, StsbenchError) and hint else what)]
    parts += [_bounded("hint: ", hint.replace("?; ", "? "))] if hint else []
    sys.stderr.write("".join(f"{_wrapped(part, stderr=True)}\n" for part in parts))


def subject(about: str, what: object) -> str:
    """What stands before an error's text: what it is of, unless that is the very name that is not known."""
    return "" if not about or (isinstance(what, UnknownName) and what.name == about) else f"{about}: "


def _bounded(before: str, what: object) -> str:
    words = visible(one_line(f"{before}{what}")).split(" ")
    line = " ".join(word if len(word) <= LONGEST_WORD else f"{word[:200]}…{word[-50:]}" for word in words)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _wrapped(text: str, *, stderr: bool = False) -> str:
    # Paths, names and options stay whole, and so does a command at the end: they are to be copied.
    width = console(stderr=stderr).width
    told, command = (text, "") if len(text) <= width else (*text.rpartition(": stsbench ")[::2],)
    if command and told:
        return f"{_wrapped(f'{told}:', stderr=stderr)}\n  stsbench {command}"
    return "\n".join(folded(text, width))


def folded(text: str, width: int, *, indent: str = "") -> list[str]:
    """A text in lines between words; no word is broken, so that names and paths can be copied; ``indent`` is of the others."""
    if len(text) <= width:
        return [text]
    lines = textwrap.wrap(text, max(width, 1), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    # A word that does not fit beside the indent begins further left.
    return [line if len(line) <= width else " " * max(width - len(line.lstrip()), 0) + line.lstrip() for line in lines]


def note(line: str) -> None:
    """Print one line on stderr that is no complaint: how the work goes."""
    sys.stderr.write(visible(one_line(line)) + "\n")


def duration(seconds: float) -> str:
    """A time as people say it: ``0.4 s``, ``42 s``, ``12 min``, ``3.5 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def complain_of_all(what: str, problems: Iterable[str]) -> None:
    """Print a line on stderr for each problem, with ``what`` has come of it."""
    for problem in problems:
        complain(f"{what}: {problem}")


def complain_of_bug(error: BaseException) -> None:
    """Print an error's traceback on stderr, and that it is no mistake of who gave the command."""
    sys.stderr.write(visible(traceback_of(error)))
    complain("this is a bug, in stsbench or in your own code; the lines above show where")


def traceback_of(error: BaseException) -> str:
    """The traceback of a bug: where the user's own code raised it, from there on, else the whole of it."""
    told = traceback.TracebackException.from_exception(error)
    one: traceback.TracebackException | None = told
    while one is not None:
        first = next((at for at, frame in enumerate(one.stack) if _is_own(frame.filename)), 0)
        del one.stack[:first]
        one = one.__cause__ or one.__context__
    return "".join(told.format())


def _is_own(file: str) -> bool:
    """Whether code is the user's: neither ours nor Python's nor a package's."""
    folders = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    others = [Path(__file__).parents[1], *map(Path, filter(None, folders))]
    return not file.startswith("<frozen") and not any(Path(file).is_relative_to(other) for other in others)
