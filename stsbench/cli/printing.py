"""What commands print: tables that fit a terminal, and JSON for scripts."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from stsbench.core import settings
from stsbench.core.errors import OutputError, StsbenchError, UnknownName, one_line, visible
from stsbench.core.files import write_whole

NOT_SAME, MISTAKE, BUG, STOPPED = 1, 2, 3, 130
"""Exit codes of every command; 0 is fine, 1 a regression that ``check`` found, or two encoders that ``parity`` tells apart."""
LONGEST, LONGEST_WORD = 20_000, 300
"""Signs of an error's line, and of a word in it: more than ours have, so that only what others wrote is cut."""
NARROWEST, ENDLESS = 20, 10_000
"""Columns: a terminal has more than the first; a pipe or file, where nothing is cut or wrapped, as good as the second."""


def line_width(*, stderr: bool = False) -> int:
    """How wide lines may be: as the user says or the terminal is; without one, they have no end."""
    watched = (sys.stderr if stderr else sys.stdout).isatty()
    found = settings.terminal_columns() or (shutil.get_terminal_size().columns if watched else ENDLESS)
    return max(found, NARROWEST)


def print_facts(rows: Iterable[Sequence[str]]) -> None:
    """Print names and what they are, side by side without a head; no word is broken, so that it can be copied."""
    shown, room = [(visible(name), visible(value)) for name, value in rows], line_width()
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


def write_or_say(content: str | bytes, out: Path | None) -> None:
    """Write what was made to a file and say so, or print it where no file is named."""
    if out is None:
        say(content if isinstance(content, str) else content.decode(), end="")
    else:
        write_whole(out, content.encode() if isinstance(content, str) else content)
        say(f"wrote {out}")


def write_records(path: Path, records: Sequence[Mapping[str, Any]], heads: Sequence[str]) -> None:
    """Write records as JSON or CSV, as the file's name ends."""
    # Imports numpy.
    from stsbench.boards.render.text import csv_text

    as_json = path.suffix == ".json"
    text = json.dumps(records, indent=1, ensure_ascii=False) + "\n" if as_json else csv_text(records, heads)
    write_whole(path, text.encode())


def points(score: float | None) -> str:
    """A score times 100, as tables show it; nothing where there is none."""
    return "" if score is None else f"{100 * score:.2f}"


def say_words(text: str) -> None:
    """Print sentences on stdout: on a terminal its lines end between words, elsewhere each text is one line."""
    say(_wrapped(text) if sys.stdout.isatty() else text)


def complain(what: object, *, about: str = "") -> None:
    """Print on stderr what is wrong, cut where it has no end, as one line; on a terminal what to do on lines of its own.

    ``about`` is what an error is of: an encoder, a task; it is not said again where the error names it.
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
    width = line_width(stderr=stderr)
    words, command = (text, "") if len(text) <= width else (*text.rpartition(": stsbench ")[::2],)
    if command and words:
        return f"{_wrapped(f'{words}:', stderr=stderr)}\n  stsbench {command}"
    return "\n".join(folded(text, width))


def folded(text: str, width: int, *, indent: str = "") -> list[str]:
    """A text in lines between words; no word is broken, so that names and paths can be copied; ``indent`` is of the others."""
    if len(text) <= width:
        return [text]
    lines = textwrap.wrap(text, max(width, 1), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    # A word that does not fit beside the indent begins further left.
    return [line if len(line) <= width else " " * max(width - len(line.lstrip()), 0) + line.lstrip() for line in lines]


def cut(text: str, longest: int = 60) -> str:
    """A text as one line, without its end where it is longer than so many signs."""
    line = one_line(text)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def note(line: str) -> None:
    """Print one line on stderr that is no complaint: how the work goes."""
    sys.stderr.write(visible(one_line(line)) + "\n")


def complain_of_all(what: str, problems: Iterable[str]) -> None:
    """Print a line on stderr for each problem, with ``what`` has come of it."""
    for problem in problems:
        complain(f"{what}: {problem}")


def print_traceback(error: BaseException) -> None:
    """Print the traceback of a bug on stderr: where the user's own code raised it, from there on, else the whole of it."""
    # The user's code is neither ours nor Python's nor a package's.
    folders = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    others = ("<frozen", *(f"{one}{os.sep}" for one in (Path(__file__).parents[1], *filter(None, folders))))
    whole = traceback.TracebackException.from_exception(error)
    one: traceback.TracebackException | None = whole
    while one is not None:
        first = next((at for at, frame in enumerate(one.stack) if not frame.filename.startswith(others)), 0)
        del one.stack[:first]
        one = one.__cause__ or one.__context__
    sys.stderr.write(visible("".join(whole.format())))


class Guarded:
    """A stream that goes silent where its reader has gone (``| head``), and where writing to it fails says so once."""

    def __init__(self, stream: TextIO, *, silent: bool = False) -> None:
        """Guard a stream; of a ``silent`` one no failure is shown: there is nowhere to show it."""
        self._stream, self._silent = stream, silent

    def write(self, text: str) -> int:
        """Write text; raises OutputError where it cannot be written for a cause other than that nobody reads."""
        # Who writes nothing only asks whether this is a stream of text.
        if text != "":
            with self._explained():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is held back; raises as :meth:`write`."""
        with self._explained():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        """All else is the stream's own."""
        return getattr(self._stream, name)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # What comes from now on, and what is held back, goes nowhere; Python itself flushes once more at its end.
            with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            if not self._silent and not isinstance(error, BrokenPipeError):
                raise OutputError(f"the output cannot be written: {error.strerror}") from error


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Guard stdout and stderr; where the caller has closed one, it is as if it went nowhere."""
    before = sys.stdout, sys.stderr
    out, err = (stream or Path(os.devnull).open("w", encoding="utf-8") for stream in before)
    for stream in (out, err):
        if isinstance(stream, TextIOWrapper):
            # A dash or a name that the terminal's encoding has not must not take the scores away.
            stream.reconfigure(errors="replace" if stream is out else "backslashreplace")
    sys.stdout, sys.stderr = Guarded(out), Guarded(err, silent=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
