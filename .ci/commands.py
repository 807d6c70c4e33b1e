"""Write docs/commands.md, the reference of all commands and options, from the commands themselves.

Run it as ``python .ci/commands.py`` after a change of a command's options or help.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stsbench.cli.app import LazyCommand, make_app
from stsbench.cli.options import OPTION_GROUPS

PAGE = Path(__file__).parents[1] / "docs/commands.md"
INTRODUCTION = """# Commands

All commands with their arguments and options. `python .ci/commands.py` writes this page from what
`stsbench COMMAND --help` prints. Commands with `--json` print their output as JSON, for programs;
`stsbench --install-completion` lets the shell complete names.

Exit codes: 0 is success, 1 a regression that `check` found, a difference that `parity` found or a
warning of `lint`, 2 a user error in one line or an answer that `check` or `parity` cannot give,
3 a bug with its traceback, 130 an interruption by Ctrl-C.
"""
WIDTH = 100


def commands_of(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - typer hides its types
    """Yield the full name of every command of a group and its groups, and the loaded command."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{prefix} {name}")
        else:
            is_lazy = isinstance(command, LazyCommand)
            yield f"{prefix} {name}", command.load() if is_lazy else command


def escape_cell(text: str) -> str:
    """Return a text that is one cell of a markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def describe_command(name: str, command: Any) -> str:  # noqa: ANN401 - typer hides its types
    """Return the section of one command: its help, its usage, and a table of its parameters."""
    context = command.context_class(command, info_name=name, max_content_width=WIDTH)
    usage = " ".join(command.collect_usage_pieces(context))
    help_text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    paragraphs = []
    for paragraph in help_text.split("\n\n"):
        if paragraph.startswith("Example:"):
            examples = [line.replace("Example:", "").strip() for line in paragraph.splitlines()]
            paragraphs.append("\n".join(["```sh", *examples, "```"]))
        else:
            paragraphs.append(" ".join(paragraph.split()).replace("<", "&lt;"))
    rows_by_title: dict[str, list[str]] = {
        title: [] for title in ("Arguments", "Options", *OPTION_GROUPS)
    }
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is None or parameter.name == "help":
            continue
        is_argument = parameter.param_type_name == "argument"
        usual_title = "Arguments" if is_argument else "Options"
        title = getattr(parameter, "rich_help_panel", None) or usual_title
        names, meaning = record
        rows_by_title[title].append(f"| `{names}` | {escape_cell(meaning)} |")
    lines = [f"## {name}", "", "\n\n".join(paragraphs), "", f"    {name} {usage}", ""]
    for title, rows in rows_by_title.items():
        if rows:
            lines += [f"| {title} | |", "| --- | --- |", *rows, ""]
    return "\n".join(lines)


def make_page() -> str:
    """Return the whole page."""
    sections = [
        describe_command(name, command) for name, command in commands_of(make_app(), "stsbench")
    ]
    return "\n".join([INTRODUCTION, *sections]).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
