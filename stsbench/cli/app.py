"""The commands: what each is for and where it is. A command's module is imported when the command is called."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from functools import cached_property, wraps
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from stsbench.cli import options
from stsbench.cli.options import FOLDERS, OUTPUT, WORK
from stsbench.cli.printing import say

COMMANDS: Mapping[str, str] = {
    "run": "Score encoders on tasks.",
    "train": "Train an encoder by a recipe.",
    "reproduce": "Train the rows of a paper's table or figure.",
    "sweep": "Try values of recipes and keep the best.",
    "list": "List tasks, encoders, recipes, tables and more.",
    "show": "Show what is known of one name.",
    "doctor": "Show what works here, and what is missing for what.",
    "leaderboard": "Print a table of results, or a paper's.",
    "export": "Write results for other tools.",
    "convert": "Make an encoder's folder.",
    "compare": "Test which differences between encoders are significant.",
    "analyze": "Make a figure of the papers, as numbers and as a picture.",
    "report": "Put results, comparisons and figures into one HTML page.",
    "parity": "Test whether two encoders that should be identical are.",
    "check": "Check new scores against old ones, for CI.",
    "lock": "Write scores to a lock file for 'stsbench check'.",
    "verify": "Make every score again from its items.",
    "timing": "Time training and inference on this machine.",
}
"""Each command and the first sentence of its help; it is a function of its own file, ``NAME_command`` of ``cli/NAME.py``."""
DATA_COMMANDS: Mapping[str, str] = {
    "fetch": "Fetch data from the Hub ahead of a run.",
    "verify": "Check data against the cards.",
    "overlap": "Find test sentences in training text.",
    "convert-coco": "Convert the published COCO pickles.",
    "make": "Make training text of what is published.",
    "back-translate": "Translate sentences there and back, to train on the pairs.",
}
NEW_COMMANDS: Mapping[str, str] = {
    "task": "Draft the card of a task from a table of your own.",
    "encoder": "Draft the card of an encoder.",
    "method": "Draft a training method and its recipe.",
}
"""Those of ``stsbench data`` and ``stsbench new`` are in the file of these."""


class GroupedCommand(TyperCommand):
    """A command whose help shows options in groups, those of no group first."""

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer hides these types
        """Write a section for each ``rich_help_panel``: as plain text, for rich takes longer to load than a command to run."""
        groups: dict[str, list[tuple[str, str]]] = {
            title: [] for title in ("Arguments", "Options", FOLDERS, WORK, OUTPUT)
        }
        for one in self.get_params(ctx):
            if record := one.get_help_record(ctx):
                usual = "Arguments" if one.param_type_name == "argument" else "Options"
                groups[getattr(one, "rich_help_panel", None) or usual].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class LazyCommand(TyperCommand):
    """A command of which only its help's first sentence is known until it is called."""

    def __init__(self, name: str, module: str, help: str) -> None:  # noqa: A002 - typer's own word
        """Note in which module the command is."""
        super().__init__(name, help=help, rich_markup_mode=None)
        self.module, self.function = module, f"{name.replace('-', '_')}_command"

    @cached_property
    def loaded(self) -> TyperCommand:
        """The command with its options, whose module is imported when it is carried out.

        Help and completion need its signature and docstring alone, which are compiled from the module's source: the module
        imports all that the command works with. A default is a constant or a path.
        """
        found = find_spec(self.module)
        assert found and found.origin, "a command's module is a file"
        tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
        (function,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == self.function)
        function.body, arguments = function.body[:1], function.args
        names = [one.arg for one in arguments.kwonlyargs]
        if cards := {"catalogue", "cards"} & {*names}:
            # Where cards are read settings are, before all other options and not by the command itself.
            place = names.index(cards.pop())
            arguments.kwonlyargs.insert(place, ast.arg("config", ast.parse("opt.Config", mode="eval").body))
            arguments.kw_defaults.insert(place, ast.Constant(None))
        scope: dict[str, Any] = {"opt": options, "Path": Path}
        exec(
            compile(ast.fix_missing_locations(ast.Module([function], [])), found.origin, "exec", dont_inherit=True),
            scope,
        )

        @wraps(scope[self.function])
        def call(**given: Any) -> Any:  # noqa: ANN401 - what the signature says
            given.pop("config", None)
            command = getattr(import_module(self.module), self.function)
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
        say(context.get_help())


def _root(context: typer.Context, version: Version = False) -> None:
    if version:
        from stsbench.core.provenance import version_of

        say(version_of("stsbench"))
        raise typer.Exit
    _help_alone(context)


def _group(name: str, text: str, commands: Mapping[str, str], **more: Any) -> TyperGroup:  # noqa: ANN401
    root = typer.Typer(
        name=name, help=text, invoke_without_command=True, pretty_exceptions_enable=False, rich_markup_mode=None, **more
    )
    group = get_command(root)
    assert isinstance(group, TyperGroup), "an app with a callback is a group"
    for command, help_line in commands.items():
        module = command if commands is COMMANDS else name
        group.add_command(LazyCommand(command, f"stsbench.cli.{module}", help_line))
    return group


def made_app() -> TyperGroup:
    """The command line, without any command loaded."""
    wide = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
    more: dict[str, Any] = {"callback": _help_alone, "add_completion": False}
    app = _group(
        "stsbench", "Benchmark sentence encoders on STS and SentEval.", COMMANDS, callback=_root, context_settings=wide
    )
    app.add_command(_group("data", "Fetch and verify evaluation data and training text.", DATA_COMMANDS, **more))
    app.add_command(_group("new", "Draft a card for data, an encoder or a method.", NEW_COMMANDS, **more))
    return app
