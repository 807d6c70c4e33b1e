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

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("stsbench.cli.run:run_command", "Score encoders on tasks."),
    "train": ("stsbench.cli.train:train_command", "Train an encoder by a recipe."),
    "reproduce": ("stsbench.cli.train:reproduce_command", "Train the rows of a paper's table or figure."),
    "sweep": ("stsbench.cli.train:sweep_command", "Try values of recipes and keep the best."),
    "list": ("stsbench.cli.showing:list_command", "List tasks, encoders, recipes, tables and more."),
    "show": ("stsbench.cli.showing:show_command", "Show what is known of one name."),
    "doctor": ("stsbench.cli.doctor:doctor_command", "Show what works here, and what is missing for what."),
    "leaderboard": ("stsbench.cli.board:leaderboard_command", "Print a table of results, or a paper's."),
    "export": ("stsbench.cli.export:export_command", "Write results for other tools."),
    "convert": ("stsbench.cli.new:convert_command", "Make an encoder's folder."),
    "compare": ("stsbench.cli.check:compare_command", "Test which differences between encoders are significant."),
    "analyze": ("stsbench.cli.analyze:analyze_command", "Make a figure of the papers, as numbers and as a picture."),
    "report": ("stsbench.cli.analyze:report_command", "Put results, comparisons and figures into one HTML page."),
    "parity": ("stsbench.cli.check:parity_command", "Test whether two encoders that should be identical are."),
    "check": ("stsbench.cli.check:check_command", "Check new scores against old ones, for CI."),
    "lock": ("stsbench.cli.check:lock_command", "Write scores to a lock file for 'stsbench check'."),
    "verify": ("stsbench.cli.check:verify_command", "Make every score again from its items."),
    "timing": ("stsbench.cli.timing:timing_command", "Time training and inference on this machine."),
}
"""Each command: the function that is called, and the first sentence of its help."""
DATA_COMMANDS: Mapping[str, tuple[str, str]] = {
    "fetch": ("stsbench.cli.data:fetch_command", "Fetch data from the Hub ahead of a run."),
    "verify": ("stsbench.cli.data:verify_data_command", "Check data against the cards."),
    "overlap": ("stsbench.cli.data:overlap_command", "Find test sentences in training text."),
    "convert-coco": ("stsbench.cli.data:convert_coco_command", "Convert the published COCO pickles."),
    "make": ("stsbench.cli.data:make_command", "Make training text of what is published."),
    "back-translate": (
        "stsbench.cli.data:back_translate_command",
        "Translate sentences there and back, to train on the pairs.",
    ),
}
NEW_COMMANDS: Mapping[str, tuple[str, str]] = {
    "task": ("stsbench.cli.new:new_task_command", "Draft the card of a task from a table of your own."),
    "encoder": ("stsbench.cli.new:new_encoder_command", "Draft the card of an encoder."),
    "method": ("stsbench.cli.new:new_method_command", "Draft a training method and its recipe."),
}


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

    def __init__(self, name: str, address: str, help: str) -> None:  # noqa: A002 - typer's own word
        """Note where the command is."""
        super().__init__(name, help=help, rich_markup_mode=None)
        self.address = address

    @cached_property
    def loaded(self) -> TyperCommand:
        """The command with its options, whose module is imported when it is carried out.

        Help and completion need its signature and docstring alone, which are compiled from the module's source: the module
        imports all that the command works with. A default is a constant or a path.
        """
        module, _, name = self.address.partition(":")
        found = find_spec(module)
        assert found and found.origin, "a command's module is a file"
        tree = ast.parse(Path(found.origin).read_text(encoding="utf-8"))
        (function,) = (one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name == name)
        function.body, arguments = function.body[:1], function.args
        names = [one.arg for one in arguments.kwonlyargs]
        if "cards" in names:
            # Where cards are read settings are, before all other options and not by the command itself.
            arguments.kwonlyargs.insert(
                names.index("cards"), ast.arg("config", ast.parse("opt.Config", mode="eval").body)
            )
            arguments.kw_defaults.insert(names.index("cards"), ast.Constant(None))
        scope: dict[str, Any] = {"opt": options, "Path": Path}
        exec(
            compile(ast.fix_missing_locations(ast.Module([function], [])), found.origin, "exec", dont_inherit=True),
            scope,
        )

        @wraps(scope[name])
        def call(**given: Any) -> Any:  # noqa: ANN401 - what the signature says
            given.pop("config", None)
            return getattr(import_module(module), name)(**given)

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


def _group(name: str, text: str, commands: Mapping[str, tuple[str, str]], **more: Any) -> TyperGroup:  # noqa: ANN401
    root = typer.Typer(
        name=name, help=text, invoke_without_command=True, pretty_exceptions_enable=False, rich_markup_mode=None, **more
    )
    group = get_command(root)
    assert isinstance(group, TyperGroup), "an app with a callback is a group"
    for command, (address, help_line) in commands.items():
        group.add_command(LazyCommand(command, address, help_line))
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
