"""The commands and where each is. A command's module is imported when the command is called."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Sequence
from functools import cached_property, wraps
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from stsbench.cli import options
from stsbench.cli.options import FOLDERS, OUTPUT, WORK
from stsbench.cli.printing import print_text

COMMANDS = (
    "run train reproduce sweep list show doctor leaderboard export convert compare analyze report parity check lock "
    "verify timing"
).split()
"""Each is a function of its own file, ``NAME_command`` of ``cli/NAME.py``; those of ``stsbench data`` and ``new`` share one."""
DATA_COMMANDS = "fetch verify overlap convert-coco make back-translate".split()
NEW_COMMANDS = "task encoder method".split()


class GroupedCommand(TyperCommand):
    """A command whose help shows options in groups, those of no group first."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer hides these types
        """Write a section for each ``rich_help_panel``: as plain text, for rich takes longer to load than a command to run."""
        titles = ("Arguments", "Options", FOLDERS, WORK, OUTPUT)
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in titles}
        for one in self.get_params(ctx):
            if record := one.get_help_record(ctx):
                usual = "Arguments" if one.param_type_name == "argument" else "Options"
                groups[getattr(one, "rich_help_panel", None) or usual].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class LazyCommand(TyperCommand):
    """A command of which nothing is known until it is called, or until its help is asked for."""

    def __init__(self, name: str, home: str) -> None:
        """Note in which file the command is; of its text help and completion are made, for it imports all that the command needs."""
        super().__init__(name, rich_markup_mode=None)
        self.path, self.function = (
            Path(__file__).with_name(f"{home}.py"),
            f"{name.replace('-', '_')}_command",
        )

    def get_short_help_str(self, limit: int = 45) -> str:
        """The first line of the command's docstring."""
        found = re.search(
            rf'(?ms)^def {self.function}\(.*?"""([^\n]+)', self.path.read_text(encoding="utf-8")
        )
        self.help = found and found[1]
        return super().get_short_help_str(limit)

    @cached_property
    def loaded(self) -> TyperCommand:
        """The command with its options, whose module is imported when it is carried out.

        Its signature and docstring alone are compiled. A default is a constant or a path.
        """
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        (function,) = (
            one
            for one in tree.body
            if isinstance(one, ast.FunctionDef) and one.name == self.function
        )
        function.body, arguments = function.body[:1], function.args
        names = [one.arg for one in arguments.kwonlyargs]
        if cards := {"catalogue", "cards"} & {*names}:
            # Where cards are read settings are, before all other options and not by the command itself.
            place = names.index(cards.pop())
            arguments.kwonlyargs.insert(
                place, ast.arg("config", ast.parse("opt.Config", mode="eval").body)
            )
            arguments.kw_defaults.insert(place, ast.Constant(None))
        scope: dict[str, Any] = {"opt": options, "Path": Path}
        module = ast.fix_missing_locations(ast.Module([function], []))
        exec(compile(module, self.path, "exec", dont_inherit=True), scope)

        @wraps(scope[self.function])
        def call(**given: Any) -> Any:  # noqa: ANN401 - what the signature says
            given.pop("config", None)
            command = getattr(import_module(f"stsbench.cli.{self.path.stem}"), self.function)
            if "catalogue" in given:
                given["catalogue"] = options.read_cards(given["catalogue"])
            return command(**given)

        one = typer.Typer(add_completion=False, rich_markup_mode=None)
        # Lines of examples are not joined.
        text = (inspect.getdoc(call) or "").replace("\n\nExample:", "\n\n\b\nExample:")
        one.command(self.name, cls=GroupedCommand, help=text)(call)
        made = get_command(one)
        assert isinstance(made, TyperCommand), "one command is no group"
        return made

    def make_context(self, *args: Any, **more: Any) -> Any:  # noqa: ANN401 - whatever typer passes
        """Parse the words behind the command's name, by its own options."""
        return self.loaded.make_context(*args, **more)


Version = Annotated[bool, typer.Option("--version", help="Print the version.")]


def _help_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print_text(context.get_help())


def _root(context: typer.Context, version: Version = False) -> None:
    if version:
        from stsbench.core.provenance import version_of

        print_text(version_of("stsbench"))
        raise typer.Exit
    _help_alone(context)


def _group(name: str, text: str, commands: Sequence[str], **more: Any) -> TyperGroup:  # noqa: ANN401
    root = typer.Typer(
        name=name, help=text, invoke_without_command=True, rich_markup_mode=None, **more
    )
    group = get_command(root)
    assert isinstance(group, TyperGroup), "an app with a callback is a group"
    for command in commands:
        group.add_command(LazyCommand(command, command if commands is COMMANDS else name))
    return group


def made_app() -> TyperGroup:
    """The command line, without any command loaded."""
    wide = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    more: dict[str, Any] = {"callback": _help_alone, "add_completion": False}
    about = "Benchmark sentence encoders on STS and SentEval."
    app = _group("stsbench", about, COMMANDS, callback=_root, context_settings=wide)
    app.add_command(
        _group("data", "Fetch and verify evaluation data and training text.", DATA_COMMANDS, **more)
    )
    app.add_command(
        _group("new", "Draft a card for data, an encoder or a method.", NEW_COMMANDS, **more)
    )
    return app
