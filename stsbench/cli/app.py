"""The table of all commands, and the groups that import a command's module when it is used.

``stsbench --help`` and completion list the commands from the tables below. A command's module is
imported to run the command, to print its help or to complete its options. These must not wait for
numpy or the like, so such a module imports at its top only what costs little; its functions
import the rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from stsbench.cli.options import OPTION_GROUPS
from stsbench.cli.printing import print_text
from stsbench.cli.wording import option_name
from stsbench.core.errors import StsbenchError


class CommandSource(NamedTuple):
    """The module of a command, whose function is ``NAME_command``, and what ``--help`` lists."""

    module: str
    summary: str
    """The first line of the function's docstring."""


MODULE_BY_COMMAND = {"cite": "export", "lock": "check", "overlap": "overlap", "texts": "export"}
"""The modules of commands that are not where the others of their group are."""


def _locate_commands(summaries: Mapping[str, str], module: str = "") -> dict[str, CommandSource]:
    """Return the Python module of each command of a group, beside the command's summary.

    Args:
        summaries: The summary of each command by its name, for ``--help``.
        module: The module in ``stsbench.cli`` that the commands are in; empty if each command has a
            module of its own name. ``MODULE_BY_COMMAND`` lists the exceptions to both.
    """
    sources = {}
    for name, summary in summaries.items():
        module_of_command = MODULE_BY_COMMAND.get(name, module or name)
        sources[name] = CommandSource(f"stsbench.cli.{module_of_command}", summary)
    return sources


COMMANDS = _locate_commands(
    {
        "run": "Score encoders on tasks.",
        "train": "Train an encoder by a recipe.",
        "reproduce": "Train the rows of a paper's table or figure.",
        "sweep": "Train with several values of a recipe and keep the best.",
        "lint": "Check data for copies, leaks, contradictions, damaged text.",
        "texts": "Write the sentences of tasks, for other toolkits to embed.",
        "list": "List tasks, encoders, recipes, tables and more.",
        "show": "Describe a task, an encoder, a recipe or another name.",
        "doctor": "Show what works on this machine, and what is missing.",
        "leaderboard": "Print a table of results, or a paper's table.",
        "export": "Write results for other tools.",
        "cite": "Print BibTeX for all that results rest on.",
        "convert": "Convert an encoder into a folder.",
        "compare": "Test which differences between encoders are significant.",
        "analyze": "Make a figure as in the papers, as numbers and as a picture.",
        "report": "Put results, comparisons and figures into one HTML page.",
        "parity": "Test whether two encoders are the same.",
        "check": "Check new scores against old ones, for CI.",
        "lock": "Write scores to a lock file for 'stsbench check'.",
        "verify": "Recompute every score from its items.",
        "timing": "Time training and inference on this machine.",
    }
)
"""The commands of ``stsbench``."""
DATA_COMMANDS = _locate_commands(
    {
        "fetch": "Fetch data from the Hub before a run.",
        "verify": "Check data against the cards.",
        "overlap": "Find test sentences in training text.",
        "convert-coco": "Convert the published COCO pickles.",
        "make": "Make training text from published data.",
        "back-translate": "Translate sentences there and back, to train on the pairs.",
    },
    module="data",
)
"""The commands of ``stsbench data``."""
NEW_COMMANDS = _locate_commands(
    {
        "task": "Draft the card of a task from your own data.",
        "encoder": "Draft the card of an encoder.",
        "method": "Draft a training method and its recipe.",
    },
    module="new",
)
"""The commands of ``stsbench new``."""
RESULTS_COMMANDS = _locate_commands(
    {
        "update": "Compute the intervals of stored results anew.",
        "pack": "Write the per-item columns of results without gold scores.",
        "unpack": "Complete packed per-item columns by the data.",
    },
    module="results",
)
"""The commands of ``stsbench results``."""


class GroupedCommand(TyperCommand):
    """A command that refuses NaN, and whose help shows options in groups, ungrouped ones first."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - typer hides these types
        """Call the function of the command with its options, and return what it returns.

        Raises:
            StsbenchError: A number is NaN, which lies in every range that typer checks.
        """
        for name, value in ctx.params.items():
            # NaN alone is not equal to itself.
            if value != value:
                raise StsbenchError(f"{option_name(name)} nan: give a number")
        return super().invoke(ctx)

    def format_options(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - typer hides these types
        """Write the options of a command's help, in sections.

        An option names its section by its attribute ``rich_help_panel``; without one it is in
        "Arguments" or "Options". The sections are plain text, because the library rich takes longer
        to import than a command takes to run.

        Args:
            ctx: The context of typer that the parameters are described in.
            formatter: Typer's formatter, which collects the text of the help.
        """
        # OPTION_GROUPS are the titles of all other sections, in order.
        titles = ("Arguments", "Options", *OPTION_GROUPS)
        # For each section the records of its options: the option as it is typed, and its help.
        records_by_title: dict[str, list[tuple[str, str]]] = {title: [] for title in titles}
        for parameter in self.get_params(ctx):
            # A hidden option has no record.
            if record := parameter.get_help_record(ctx):
                is_argument = parameter.param_type_name == "argument"
                default_title = "Arguments" if is_argument else "Options"
                title = getattr(parameter, "rich_help_panel", None) or default_title
                records_by_title[title].append(record)
        for title, records in records_by_title.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class LazyCommand(TyperCommand):
    """A command by its name and summary alone, as lists of commands show it."""

    def __init__(self, name: str, source: CommandSource) -> None:
        """Make the command of this name without importing its module."""
        super().__init__(name, help=source.summary, rich_markup_mode=None)
        self.module = source.module

    def load(self) -> TyperCommand:
        """Import the command's module and return the command with its options."""
        function_name = f"{str(self.name).replace('-', '_')}_command"
        return make_command(str(self.name), getattr(import_module(self.module), function_name))


class LazyGroup(TyperGroup):
    """A group of lazy commands.

    To list commands typer calls :meth:`get_command`, which returns a :class:`LazyCommand`. To run
    one, to print its help or to complete its options it calls :meth:`resolve_command`.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - typer hides these types
        """Return the name of the command that is called, the loaded command, and its arguments."""
        name, command, arguments = super().resolve_command(ctx, args)
        if isinstance(command, LazyCommand):
            return name, command.load(), arguments
        return name, command, arguments


def make_command(name: str, function: Callable[..., Any]) -> TyperCommand:
    """Make a command from a function, with its parameters as options and its docstring as help.

    Args:
        name: The name of the command.
        function: The function, whose parameters are annotated for the library typer.
    """
    # typer makes commands only within an app. An app of a single command becomes that command.
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    # click joins the lines of a paragraph, but not those after \b: each example stays on its line.
    help_text = (inspect.getdoc(function) or "").replace("\n\nExample:", "\n\n\b\nExample:")
    app.command(name, cls=GroupedCommand, help=help_text)(function)
    command = get_command(app)
    assert isinstance(command, TyperCommand), "an app of one command is no group"
    return command


Version = Annotated[bool, typer.Option("--version", help="Print the version.")]


def _print_help_if_alone(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print_text(context.get_help())


def _root(context: typer.Context, version: Version = False) -> None:
    if version:
        from stsbench.core.provenance import version_of

        print_text(version_of("stsbench"))
        raise typer.Exit
    _print_help_if_alone(context)


def _make_group(
    name: str,
    help_text: str,
    sources: Mapping[str, CommandSource],
    **settings: Any,  # noqa: ANN401 - whatever typer.Typer accepts
) -> TyperGroup:
    """Return a group of commands, such as ``stsbench data``, whose modules are imported on demand.

    Args:
        name: The name of the group.
        help_text: Its description in the help.
        sources: The module and summary of each command, by the command's name.
        settings: Further arguments of ``typer.Typer``.
    """
    app = typer.Typer(
        name=name,
        help=help_text,
        cls=LazyGroup,
        invoke_without_command=True,
        rich_markup_mode=None,
        **settings,
    )
    group = get_command(app)
    assert isinstance(group, LazyGroup), "an app with a callback is a group"
    for command, source in sources.items():
        # A lazy command imports its module when it is called.
        group.add_command(LazyCommand(command, source))
    return group


def make_app() -> TyperGroup:
    """Return the command line ``stsbench`` with all commands and groups of commands.

    No command's module is imported yet, so that ``--help`` and completion are quick. COMMANDS and
    the like hold module and summary of each command by its name.
    """
    app = _make_group(
        "stsbench",
        "Benchmark sentence encoders on STS and SentEval.",
        COMMANDS,
        callback=_root,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    subgroups = [
        ("data", "Fetch and verify evaluation data and training text.", DATA_COMMANDS),
        ("new", "Draft a card for data, an encoder or a method.", NEW_COMMANDS),
        ("results", "Bring stored results up to date, or pass them on.", RESULTS_COMMANDS),
    ]
    for name, help_text, command_sources in subgroups:
        subgroup = _make_group(
            name,
            help_text,
            command_sources,
            callback=_print_help_if_alone,
            add_completion=False,
        )
        app.add_command(subgroup)
    return app
