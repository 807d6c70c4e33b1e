"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stsbench.cli.printing import say

Data = Annotated[Path | None, typer.Option("--data", help="Folder of evaluation data; default STSBENCH_DATA.")]
Cards = Annotated[list[Path] | None, typer.Option("--cards", help="A folder with cards of your own; may be repeated.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, for scripts.")]


MOST = 10**9
"""What no count that is meant goes beyond."""
LAST_SEED = (1 << 32) - 1


def help_alone(context: typer.Context) -> None:
    """Print a command's help where none of its commands is asked for."""
    if context.invoked_subcommand is None:
        say(context.get_help())
