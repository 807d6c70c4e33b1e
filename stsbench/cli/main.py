"""The command line: each command parses, calls one function and prints one table."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from traceback import walk_tb
from typing import Any, TextIO

from typer import Exit
from typer.exceptions import TyperException

from stsbench.cli.child import exit_if_child
from stsbench.cli.printing import print_error, print_traceback
from stsbench.cli.wording import card_folders
from stsbench.core.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
    Interrupted,
    OutputError,
    StsbenchError,
    StsbenchNotice,
    refuse_long_names,
)
from stsbench.core.settings import check_hub, share_cores


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The words behind ``stsbench``; None for those of this process.

    Returns:
        Its exit code: 0 if all is fine, 1 for a regression that ``check`` found, a difference that
        ``parity`` found or a warning of ``lint``, 2 for a user error, 3 for a bug, 130 for Ctrl-C.
    """
    # If other processes load the cores, threads of this one sleep while they wait.
    share_cores()
    # The command sets its folders of cards; what this process does later has others.
    earlier_folders = card_folders.set(())
    # In the block, errors of writing to stdout and stderr are handled, and warnings that are
    # notices for the user are printed as lines.
    with guarded_streams(), printed_notices():
        exit_code = _run_and_print_errors(sys.argv[1:] if arguments is None else arguments)
    card_folders.reset(earlier_folders)
    # With Ray a command runs in a child process, which ends here and tells its parent the code.
    exit_if_child(exit_code)
    return exit_code


@contextmanager
def printed_notices() -> Iterator[None]:
    """Print warnings that are notices for the user as plain lines, until the end of the block.

    A notice is a warning of the class StsbenchNotice. Each is printed once. Other warnings are
    printed as Python prints them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("once", StsbenchNotice)
        show_warning = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            """Print a warning, in place of ``warnings.showwarning``, with the same arguments."""
            if issubclass(category, StsbenchNotice):
                print_error(message)
            else:
                # Python's own function, which was replaced.
                show_warning(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield


def _run_and_print_errors(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; an error is printed in one line.

    Errors are tried in this order: one that stsbench raises for the user, Ctrl-C, and one that the
    library typer raises for a wrong option. Anything else is a bug, and is printed with its
    traceback.

    Args:
        arguments: The words behind ``stsbench``.

    Returns:
        The command's own code, 2 for a user error, 3 for a bug, or 130 for Ctrl-C.
    """
    try:
        with refuse_long_names():
            return _run_command(arguments)
    except StsbenchError as error:
        print_error(error)
        return EXIT_INTERRUPTED if isinstance(error, Interrupted) else EXIT_USER_ERROR
    except KeyboardInterrupt:
        print_error("stopped; what is done is kept, run the same command to resume")
        return EXIT_INTERRUPTED
    except BaseException as error:  # panics of libraries written in Rust are no Exception
        # A user's encoder may raise typer's errors too, which then are bugs of the encoder.
        # _is_from_cli: code of the command line or of typer has raised it.
        if isinstance(error, TyperException) and _is_from_cli(error):
            context = getattr(error, "ctx", None)
            command = context.command_path if context else "stsbench"
            print_error(f"{error.format_message().strip().rstrip('.')}; see '{command} --help'")
            return EXIT_USER_ERROR
        print_traceback(error)
        print_error("this is a bug, in stsbench or in your own code; the lines above show where")
        return EXIT_BUG


def _run_command(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code, 0 if it returns None; its errors are raised.

    Typer's own ``main`` is not called: it treats an EOFError as Ctrl-C, and handles each broken
    pipe itself.

    Args:
        arguments: The words behind ``stsbench``.
    """
    from stsbench.cli.app import make_app

    # Raises an error if a word is empty or no valid text.
    _check_arguments(arguments)
    app = make_app()
    exit_code = 0
    try:
        # If a shell asks for completions, this prints them and ends the program.
        app._main_shell_completion({}, "stsbench", None)  # noqa: SLF001 - typer's own main calls it so
        with app.make_context("stsbench", [*arguments]) as context:
            exit_code = app.invoke(context) or 0
    except Exit as exit_request:
        # Typer's way to end a command. Raised by a user's encoder, it is an error of the encoder.
        # _is_from_cli: code of the command line or of typer has raised it.
        if not _is_from_cli(exit_request):
            raise
        exit_code = exit_request.exit_code
    except SystemExit as exit_request:
        # A user's encoder that ends the program is an error of the encoder: main prints it.
        if not _is_from_cli(exit_request):
            raise
        exit_code = int(exit_request.code or 0)
    except ValueError:
        # The Hub's library raises it when imported, if an environment variable has a wrong value.
        # check_hub then raises an error that names the variable. Else the ValueError is a bug.
        check_hub()
        raise
    sys.stdout.flush()
    return exit_code


def _check_arguments(arguments: Sequence[str]) -> None:
    """Raise StsbenchError if a word of the command line is empty or no valid text.

    An option with an equals sign and nothing behind it, ``--data=``, counts as an empty word.

    Args:
        arguments: The words behind ``stsbench``.
    """
    # For each word the one before it, which a message names.
    previous_words = ["stsbench", *arguments]
    for previous, argument in zip(previous_words, arguments, strict=False):
        option_without_value = re.fullmatch("(--[a-z-]+)=", argument)
        if option_without_value or not argument:
            subject = option_without_value[1] if option_without_value else previous
            raise StsbenchError(
                f"no value is given after '{subject}'; is a variable of the shell empty?"
            )
        # A surrogate stands for a byte of a file name that is no UTF-8. Names become part of
        # results, which are text.
        has_surrogate = any("\ud800" <= character <= "\udfff" for character in argument)
        if "\0" in argument or has_surrogate:
            raise StsbenchError(
                f"'{argument}' is not text: names and paths are UTF-8 without NUL; rename the file"
            )


def _is_from_cli(error: BaseException) -> bool:
    """Return whether the command line raised an error, and not code that it calls.

    An encoder must not end a command.
    """
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith(("stsbench.cli", "typer"))


class GuardedStream:
    """A stream that is silent once its reader is gone (``| head``).

    Other failures to write are reported once.
    """

    def __init__(self, stream: TextIO, *, silent: bool = False) -> None:
        """Guard a stream: handle failures to write to it.

        Args:
            stream: The stream, such as stdout.
            silent: Whether to report no failure, as for stderr, where it would be printed.
        """
        self._stream = stream
        self._silent = silent

    def write(self, text: str) -> int:
        """Write text, and return its number of characters.

        Nothing happens if nobody reads the stream any more.

        Raises:
            OutputError: It cannot be written for another reason, and the stream is not silent.
        """
        # Libraries write an empty text to find out whether this is a stream of text. That must not
        # fail.
        if text != "":
            with self._guard():
                self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered; raise as :meth:`write` does."""
        with self._guard():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the stream has
        """Return any other attribute of the stream."""
        return getattr(self._stream, name)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """If writing fails in the ``with`` block, redirect the stream to nowhere.

        Raises:
            OutputError: Writing failed for another reason than that nobody reads the stream, and
                the stream is not silent. A silent one, such as stderr, reports no failure.
        """
        try:
            yield
        except OSError as error:
            # The file descriptor is replaced, so that buffered and later text goes nowhere too:
            # Python itself flushes once more at its end.
            with suppress(OSError, ValueError), Path(os.devnull).open("w") as null:
                os.dup2(null.fileno(), self._stream.fileno())
            is_reader_gone = isinstance(error, BrokenPipeError)
            if not self._silent and not is_reader_gone:
                raise OutputError(f"the output cannot be written: {error.strerror}") from error


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Replace stdout and stderr by guarded streams until the end of the ``with`` block.

    A guarded stream becomes silent once nobody reads it (``| head``), and reports any other failure
    to write once. A stream that the caller has closed is replaced by one that goes nowhere.
    """
    original_streams = sys.stdout, sys.stderr
    out, err = (
        stream or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the whole program
        for stream in original_streams
    )
    for stream in (out, err):
        if isinstance(stream, TextIOWrapper):
            # A character that the terminal's encoding lacks must not prevent printing the scores.
            stream.reconfigure(errors="replace" if stream is out else "backslashreplace")
    # Of stderr no failure is reported: it would be printed on stderr.
    sys.stdout, sys.stderr = GuardedStream(out), GuardedStream(err, silent=True)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = original_streams
