"""The command line: each command parses, calls one function and prints one table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 fine, 1 a verdict, 2 a user's mistake, 130 Ctrl-C."""
    from typer import Exit
    from typer.exceptions import Abort, TyperException

    from stsbench.cli.app import app
    from stsbench.errors import StsbenchError, one_line

    if not sys.flags.safe_path and not {"", str(Path.cwd())} & set(sys.path):
        # A module of the user's own, package.module:Name, may lie where the command is given.
        sys.path.append("")
    try:
        code = app(list(sys.argv[1:] if arguments is None else arguments), prog_name="stsbench", standalone_mode=False)
    except StsbenchError as error:
        return _complain(one_line(error))
    except TyperException as error:
        format_message = getattr(error, "format_message", error.__str__)
        return _complain(f"{one_line(format_message())}; see 'stsbench --help'")
    except Exit as stop:
        return int(stop.exit_code)
    except (KeyboardInterrupt, Abort):
        return _complain("stopped; what is done is kept, run the same command to go on", code=130)
    except BrokenPipeError:
        # The reader of our output has gone (head, less): nothing is wrong.
        sys.stderr.close()
        return 0
    return code if isinstance(code, int) else 0


def _complain(message: str, *, code: int = 2) -> int:
    sys.stderr.write(f"stsbench: {message}\n")
    return code
