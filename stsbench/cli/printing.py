"""What commands print: tables that fit a terminal, and JSON for scripts."""

from __future__ import annotations

import json
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from stsbench import settings
from stsbench.cli.widths import fitted, too_wide
from stsbench.errors import StsbenchError, one_line, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


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


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), names: Sequence[int] = (0,)
) -> Table:
    """A plain table: a rule under the header, numbers to the right; they are never broken, ``names`` last."""
    from rich import box
    from rich.table import Table

    columns, rows = [visible(column) for column in columns], [[visible(cell) for cell in row] for row in rows]
    cells = [[column, *(row[index] for row in rows)] for index, column in enumerate(columns)]
    left = 1
    unbroken = {*right, *names}
    if too_wide(cells, console().width):
        for index in unbroken:
            if rows and len(columns[index]) > max(len(cell) for cell in cells[index][1:]):
                cells[index][0] = columns[index].replace(" ", "\n")
        found = fitted(cells, console().width, names=set(names), numbers=set(right))
        cells, left = (cells, left) if found is None else (found, 0)
    made = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, left))
    for index, (head, *_) in enumerate(cells):
        justify: Literal["left", "right"] = "right" if index in right else "left"
        made.add_column(head, justify=justify, no_wrap=index in unbroken, overflow="fold")
    for row in zip(*(column[1:] for column in cells), strict=True):
        made.add_row(*row)
    return made


def fact_table(rows: Iterable[Sequence[str]]) -> Table:
    """Names and what they are, side by side without a head; names are never broken."""
    from rich.table import Table

    made = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(visible(name), visible(value))
    return made


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
        about: what an error is of: an encoder, a task.
    """
    before = f"stsbench: {about}: " if about else "stsbench: "
    if not sys.stderr.isatty():
        sys.stderr.write(f"{_bounded(before, what)}\n")
        return
    hint = what.hint if isinstance(what, StsbenchError) else ""
    parts = [_bounded(before, what.problem if isinstance(what, StsbenchError) and hint else what)]
    parts += [_bounded("hint: ", hint.replace("?; ", "? "))] if hint else []
    sys.stderr.write("".join(f"{_wrapped(part, stderr=True)}\n" for part in parts))


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
    return "\n".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))


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
    sys.stderr.write(visible("".join(traceback.format_exception(error))))
    complain("this is a bug, in stsbench or in your own code; the lines above show where")
