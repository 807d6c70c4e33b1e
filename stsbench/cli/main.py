"""The command line: each command parses, calls one function and prints one table."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import ENAMETOOLONG
from io import TextIOWrapper
from pathlib import Path
from traceback import walk_tb
from typing import Any, TextIO

from typer import Exit
from typer.exceptions import TyperException

from stsbench.cli.child import report_exit_code
from stsbench.cli.printing import print_error, print_traceback
from stsbench.core.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
    Interrupted,
    OutputError,
    StsbenchError,
)
from stsbench.core.settings import check_hub, share_cores


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        Its exit code: 0 fine, 1 a regression that ``check`` found or a difference that ``parity`` did, 2 a user's mistake, 3 a bug, 130 Ctrl-C.
    """
    share_cores()
    with guarded_streams():
        exit_code = _report_errors(sys.argv[1:] if arguments is None else arguments)
    report_exit_code(exit_code)
    return exit_code


def _report_errors(arguments: Sequence[str]) -> int:
    """Call a command and print in one line what it raises; only a bug has a traceback."""
    try:
        return _invoke(arguments)
    except StsbenchError as error:
        print_error(error)
        return EXIT_INTERRUPTED if isinstance(error, Interrupted) else EXIT_USER_ERROR
    except KeyboardInterrupt:
        print_error("stopped; what is done is kept, run the same command to resume")
        return EXIT_INTERRUPTED
    except BaseException as error:  # libraries written in Rust end in what is no Exception
        if isinstance(error, TyperException) and _is_ours(error):
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "stsbench"
            print_error(f"{error.format_message().strip().rstrip('.')}; see '{command} --help'")
            return EXIT_USER_ERROR
        if isinstance(error, OSError) and error.errno == ENAMETOOLONG:
            # Nothing of ours makes a long name but from what the user named.
            print_error(f"'{error.filename}': the name is too long for this system")
            return EXIT_USER_ERROR
        print_traceback(error)
        print_error("this is a bug, in stsbench or in your own code; the lines above show where")
        return EXIT_BUG


def _invoke(arguments: Sequence[str]) -> int:
    """Call a command past typer's own ``main``: that takes an EOFError for Ctrl-C, and any broken pipe for its own."""
    from stsbench.cli.app import make_app

    for before, argument in zip(["stsbench", *arguments], arguments, strict=False):
        if flag := re.fullmatch("(--[a-z-]+)=|", argument):
            raise StsbenchError(
                f"no value is given after '{flag[1] or before}'; is a variable of the shell empty?"
            )
        # Names go into results, which are text.
        if "\0" in argument or any("\ud800" <= sign <= "\udfff" for sign in argument):
            raise StsbenchError(
                f"'{argument}' is not text: names and paths are UTF-8 without NUL; rename the file"
            )
    app, code = make_app(), 0
    try:
        # Where a shell asks what a word may become, this answers and ends the program.
        app._main_shell_completion({}, "stsbench", None)  # noqa: SLF001 - typer's own main calls it so
        # ``list`` is the command's module here, once that is imported.
        with app.make_context("stsbench", [*arguments]) as context:
            code = app.invoke(context) or 0
    except (Exit, SystemExit) as stop:
        if not _is_ours(stop):
            raise
        code = stop.exit_code if isinstance(stop, Exit) else int(stop.code or 0)
    except ValueError:
        # So the Hub's library ends, imported by whatever command, at a variable that it cannot read.
        check_hub()
        raise
    sys.stdout.flush()
    return code


def _is_ours(error: BaseException) -> bool:
    """Whether the command line has raised this, and not code that it calls: an encoder must not end a command."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith(("stsbench.cli", "typer"))


class GuardedStream:
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
    sys.stdout, sys.stderr = GuardedStream(out), GuardedStream(err, silent=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
