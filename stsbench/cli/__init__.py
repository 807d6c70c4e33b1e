"""The command line: each command parses, calls one function and prints one table."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from errno import ENAMETOOLONG
from traceback import walk_tb

from stsbench.cli.printing import BUG, MISTAKE, STOPPED


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        Its exit code: 0 fine, 1 a regression that ``check`` found or a difference that ``parity`` did, 2 a user's mistake, 3 a bug, 130 Ctrl-C.
    """
    from stsbench.cli.printing import guarded_streams
    from stsbench.core.settings import share_cores

    share_cores()
    with guarded_streams():
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        except KeyboardInterrupt:
            from stsbench.cli.printing import complain

            complain("stopped; what is done is kept, run the same command to resume")
            return STOPPED


def _run(arguments: Sequence[str]) -> int:
    """The exit code of a command, which has said why it is not 0."""
    from typer.exceptions import TyperException

    from stsbench.cli.printing import complain, complain_of_bug
    from stsbench.core.errors import Stopped, StsbenchError

    try:
        return _invoke(arguments)
    except StsbenchError as error:
        complain(error)
        return STOPPED if isinstance(error, Stopped) else MISTAKE
    except TyperException as error:
        if not _of_ours(error):
            complain_of_bug(error)
            return BUG
        complain(f"{error.format_message().strip().rstrip('.')}; see '{_command_of(arguments)} --help'")
        return MISTAKE
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # libraries written in Rust end in what is no Exception
        if isinstance(error, OSError) and error.errno == ENAMETOOLONG:
            # Nothing of ours makes a long name but from what the user named.
            complain(f"'{error.filename}': the name is too long for this system")
            return MISTAKE
        complain_of_bug(error)
        return BUG


def _invoke(arguments: Sequence[str]) -> int:
    """Call a command past typer's own ``main``: that takes an EOFError for Ctrl-C, and any broken pipe for its own."""
    from typer import Exit

    from stsbench.cli.app import made_app

    _check_text(arguments)
    app, code = made_app(), 0
    try:
        # Where a shell asks what a word may become, this answers and ends the program.
        app._main_shell_completion({}, "stsbench", None)  # noqa: SLF001 - typer's own main calls it so
        with app.make_context("stsbench", list(arguments)) as context:
            code = app.invoke(context) or 0
    except (Exit, SystemExit) as stop:
        if not _of_ours(stop):
            raise
        code = stop.exit_code if isinstance(stop, Exit) else int(stop.code or 0)
    sys.stdout.flush()
    return code


def _command_of(arguments: Sequence[str]) -> str:
    """The command that is called, as far as its words name one: ``stsbench data fetch``."""
    from stsbench.cli.app import COMMANDS, DATA_COMMANDS, NEW_COMMANDS

    groups = {"data": DATA_COMMANDS, "new": NEW_COMMANDS}
    first, second = [*arguments, "", ""][:2]
    if first in groups:
        return f"stsbench {first} {second}" if second in groups[first] else f"stsbench {first}"
    return f"stsbench {first}" if first in COMMANDS else "stsbench"


def _of_ours(error: BaseException) -> bool:
    """Whether the command line has raised this, and not code that it calls: an encoder must not end a command."""
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith(("stsbench.cli", "typer"))


def _check_text(arguments: Sequence[str]) -> None:
    """Refuse bytes that are no UTF-8: names go into results, which are text. And nothing at all, which names nothing."""
    from stsbench.core.errors import StsbenchError

    for before, argument in zip(["stsbench", *arguments], arguments, strict=False):
        flag = re.fullmatch("(--[a-z-]+)=|", argument)
        if flag:
            raise StsbenchError(f"no value is given after '{flag[1] or before}'; is a variable of the shell empty?")
        if "\0" in argument or any("\ud800" <= sign <= "\udfff" for sign in argument):
            raise StsbenchError(f"'{argument}' is not text: names and paths are UTF-8 without NUL; rename the file")
