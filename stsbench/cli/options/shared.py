"""Options that several commands have, and what all commands' options have in common."""

# Annotations stay objects here, which typer reads: text would be evaluated at every start.
import inspect
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from typer import CallbackParam, Option

from stsbench.cli.options.completion import encoder_names, task_names
from stsbench.errors import StsbenchError
from stsbench.plots import FIGURES

MOST = 10**9
"""What no count that is meant goes beyond."""
LAST_SEED = (1 << 32) - 1


def each_name(parameter: CallbackParam, given: list[str] | None) -> list[str] | None:
    """The names of an option that may be repeated, each a comma list.

    Raises:
        StsbenchError: it was given, and names nothing, or nothing between two commas.
    """
    from stsbench.cards.names import has_gap, split_names

    if gap := next(filter(has_gap, given or ()), None):
        raise StsbenchError(f"{parameter.opts[0]} '{gap}': a name is missing beside a comma")

    names = [name for one in given or () for name in split_names(one)]
    if given and not names:
        raise StsbenchError(f"{parameter.opts[0]} '{','.join(given)}' is empty")
    return names or None


Data = Annotated[Path | None, Option("--data", help="Folder of evaluation data; default STSBENCH_DATA.")]
Corpora = Annotated[Path | None, Option("--corpora", help="Folder of training text; default STSBENCH_CORPORA.")]
Near = Annotated[
    float | None,
    Option("--near", min=0.5, max=1, help="Near-duplicates too, from this similarity on, e.g. 0.8 (needs rensa)."),
]
ResultsOption = Annotated[Path, Option("--results", help="Results folder.")]
OnlyEncoders = Annotated[
    list[str],
    Option(
        "--encoder", "-e", callback=each_name, autocompletion=encoder_names, help="Only these encoders; comma list."
    ),
]
OnlyTasks = Annotated[
    str | None, Option("--tasks", "-t", autocompletion=task_names, help="Only these tasks and suites.")
]
OnlyProtocol = Annotated[str | None, Option("--protocol", "-p", help="Only this protocol's results.")]
TableFile = Annotated[Path | None, Option("--out", help="Write to this file instead of the terminal.")]


def check_figure(plot: Path | None) -> None:
    """Raise StsbenchError where a figure's file has no ending of one."""
    if plot is not None and plot.suffix.removeprefix(".") not in FIGURES:
        raise StsbenchError(f"--plot '{plot}': give a file that ends in .{', .'.join(FIGURES)}")


FORMATS_BY_ENDING = {
    ".md": "markdown", ".tex": "latex", ".html": "html", ".csv": "csv", ".json": "json", ".svg": "svg", ".png": "png",
    ".pdf": "pdf",
}  # fmt: skip
"""What a file's name says of its format, where no other is asked for."""


def written_as(output: str, out: Path | None, *, as_json: bool) -> str:
    """The format of a table: JSON, the one that was asked for, or the one that the file's name ends in."""
    if as_json:
        return "json"
    return FORMATS_BY_ENDING.get(out.suffix.lower(), output) if out is not None and output == "terminal" else output


class Given(frozenset[str]):
    """The options that were typed, by their long names."""

    def apart(self, first: str, *others: str) -> None:
        """Raise StsbenchError where an option was typed beside one that leaves it without effect."""
        if first in self:
            self.idle(f"beside {first}", *others)

    def idle(self, where: str, *names: str) -> None:
        """Raise StsbenchError where an option was typed that has no effect in this place."""
        for name in names:
            if name in self:
                raise StsbenchError(f"{name} has no effect {where}; leave it out")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Options:
    """What a command was asked for. A field is an option, or an argument, by what it is annotated with."""

    @classmethod
    def hints(cls) -> dict[str, Any]:
        """What each field is annotated with: this class's own first, then those it shares."""
        return {
            name: hint for base in (cls, *reversed(cls.__mro__)) for name, hint in inspect.get_annotations(base).items()
        }

    def check(self, given: Given) -> None:
        """Raise StsbenchError where options that were given have no effect together."""

    def typed(self, *names: str) -> list[str]:
        """Options of some fields as they are typed: those that differ from their defaults, each of many by itself."""
        words: list[str] = []
        defaults = {one.name: None if one.default is MISSING else one.default for one in fields(self)}
        for name in names:
            value, flag = getattr(self, name), long_name(self.hints()[name])
            given = value if isinstance(value, list) else [] if value == defaults[name] else [value]
            words += [word for one in given for word in ([flag] if one is True else [flag, str(one)])]
        return words


def long_name(hint: Any) -> str:  # noqa: ANN401 - what a field is annotated with
    """What an option is called, ``--name``; nothing for an argument."""
    (declared,) = hint.__metadata__
    names = map(str, (declared.default, *(declared.param_decls or ())))
    return next((name for name in names if name.startswith("--")), "")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WithCards(Options):
    """Options of a command that reads cards."""

    config: Annotated[
        Path | None, Option("--config", help="File of settings; default stsbench.toml, here or above.")
    ] = None
    cards: Annotated[list[Path], Option("--cards", help="A folder with cards of your own; may be repeated.")] = field(
        default_factory=list
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class WithJson(WithCards):
    """Options of a command that reads cards and prints JSON too."""

    as_json: Annotated[bool, Option("--json", help="Print JSON on stdout, for scripts.")] = False
