"""Which options the user typed, and how their values are read: names, formats, seeds, texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Context

from stsbench.cli.options import MAX_SEED, make_catalogue
from stsbench.core import settings
from stsbench.core.errors import SourceError, StsbenchError, look_up
from stsbench.plots.labels import FIGURES

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue

FORMAT_BY_SUFFIX = {
    ".tex": "latex",
    ".md": "markdown",
    **{f".{name}": name for name in ("html", "csv", "json", *FIGURES)},
}
"""The format of a table by the suffix of its file, in lower case."""


def resolve_spec(name: str, catalogue: Catalogue | None = None) -> str:
    """Return the text by which an encoder or a recipe is loaded: an id, a path, a Hub id.

    Args:
        name: What the user calls it: an id, a title, the label of its row in a paper's table, a
            path or a name on the Hub; empty if nothing was named.
        catalogue: The cards; None means those of the package.

    Returns:
        The text: the id of a title or label, any other name unchanged; empty if the name is.

    Raises:
        StsbenchError: The name is ambiguous, or only results have it.
        CardError: The name holds the secret key of a server.
    """
    from stsbench.api.names import NameResolver

    return NameResolver(catalogue or make_catalogue()).resolve_spec(name)


def find_data_folder(data: Path | None) -> Path | None:
    """Return the folder of evaluation data.

    Args:
        data: The value of ``--data``; None for the folder in the user's settings.

    Returns:
        The folder; None if neither is set.

    Raises:
        SourceError: The folder does not exist.
    """
    folder = data or settings.data_folder()
    if folder is not None and not folder.is_dir():
        raise SourceError(f"data folder '{folder}' does not exist")
    return folder


def resolve_store(store: Path | None, *, no_store: bool) -> Path | Literal["default"] | None:
    """Return where embeddings are stored, so that later runs need not compute them again.

    Args:
        store: The folder that the user has typed, ``--store``; None if not.
        no_store: Whether ``--no-store`` was typed.

    Returns:
        The typed folder, "default" for the user's cache folder, or None to keep embeddings in
        memory only.

    Raises:
        StsbenchError: Both options were typed.
    """
    if store and no_store:
        raise StsbenchError("--store has no effect beside --no-store; leave it out")
    return None if no_store else store or "default"


def choose_format(
    output: str, out: Path | None, formats: Iterable[str], *, as_json: bool = False
) -> str:
    """Return the format in which to write a table.

    * With ``--json`` it is "json".
    * If the user chose a format, it is that.
    * If the table is printed, it is "terminal".
    * Otherwise the file's suffix decides, by ``FORMAT_BY_SUFFIX``. For a suffix that is not there
      it is "markdown".

    Args:
        output: The value of ``--format``; "terminal" unless the user chose another.
        out: The file to write; None to print.
        formats: The formats that the command writes, besides "terminal".
        as_json: Whether ``--json`` was typed.

    Raises:
        UnknownName: The command does not write this format.
        StsbenchError: The file's suffix is that of another format than the user chose.
    """
    fmt = "json" if as_json else output
    # None also for a suffix that stands for no format.
    format_of_file = FORMAT_BY_SUFFIX.get(out.suffix.lower()) if out else None
    if out and fmt == "terminal":
        fmt = format_of_file or "markdown"
    look_up("format", fmt, dict.fromkeys(("terminal", *formats)))
    if format_of_file not in (None, fmt):
        raise StsbenchError(
            f"--out '{out}' ends as {format_of_file} does, and the format is {fmt}; change one"
        )
    return fmt


def parse_seeds(text: str) -> list[int]:
    """Return each seed of a comma list, as ``0,1,2``, once.

    Raises:
        StsbenchError: One is no seed.
    """
    try:
        seeds = [*dict.fromkeys(map(int, text.split(",")))]
    except ValueError as error:
        raise StsbenchError(f"--seeds '{text}': give whole numbers, such as 0,1,2") from error
    if min(seeds) < 0 or max(seeds) > MAX_SEED:
        raise StsbenchError(f"--seeds '{text}': a seed is not negative and below {1 << 32}")
    return seeds


def parse_pairs(
    option: str, texts: Iterable[str], expected: str, *, allow_empty: bool = False
) -> dict[str, str]:
    """Return the keys and values of ``key=value`` texts.

    Args:
        option: The option whose values the texts are, for messages.
        texts: The texts.
        expected: What the user should write, for messages.
        allow_empty: Whether a value may be empty.

    Raises:
        StsbenchError: A text is no ``key=value``, or a key comes twice.
    """
    values_by_key: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key or not (value or allow_empty):
            raise StsbenchError(f"{option} '{text}': give {expected}")
        if key in values_by_key:
            raise StsbenchError(f"{option} {key} is given twice")
        values_by_key[key] = value
    return values_by_key


def parse_scale(text: str) -> tuple[float, float] | None:
    """Return the lowest and the highest score of ``--scale``, such as ``1..10``.

    Args:
        text: The value of the option; empty if it was not typed.

    Returns:
        Both numbers; None for an empty text.

    Raises:
        StsbenchError: The text is no two numbers, or the first is not below the second.
    """
    if not text:
        return None
    low, _, high = text.partition("..")
    try:
        lowest, highest = float(low), float(high)
    except ValueError:
        # No valid scale, so that the error below is raised.
        lowest, highest = 0.0, 0.0
    # Neither NaN nor infinity passes.
    if "..." in text or not -1e300 < lowest < highest < 1e300:
        raise StsbenchError(
            f"--scale '{text}': give the lowest and the highest score, such as 1..10"
        )
    return lowest, highest


def parse_assignments(texts: Sequence[str]) -> dict[str, Any]:
    """Return the parameters that the user sets by ``--set KEY=VALUE``.

    A value that can be read as TOML is that: a number, true, a list. Any other value is text.

    Args:
        texts: The values of the option, each ``key=value``.

    Returns:
        The values by key.

    Raises:
        StsbenchError: A text is no ``key=value``, a key comes twice, or a value is the secret key
            of a server.
    """
    import tomllib

    params: dict[str, Any] = dict(
        parse_pairs("--set", texts, expected="key=value, such as pooling=cls", allow_empty=True)
    )
    # TOML's error is a ValueError, as is that of two values for one: the value then stays text. In
    # a table on one line nothing can be hidden behind the value, such as a comment.
    for key, value in params.items():
        with suppress(ValueError):
            (params[key],) = tomllib.loads(f"table = {{value = {value}}}")["table"].values()
    # The message of the problem, empty without one.
    if problem := settings.find_key_problem(params):
        raise StsbenchError(f"--set: {problem}")
    return params


class TypedOptions(frozenset[str]):
    """The options and arguments that the user typed, by long names; the rest has defaults.

    Options that would have no effect are refused.
    """

    @classmethod
    def from_context(cls, context: Context) -> TypedOptions:
        """Return the long names of the options that the user typed, and of the arguments.

        Options with a default, or a value from the settings file, are not among them.

        Args:
            context: Typer's context of the command.
        """
        # By name, where typer has a parameter's value from: the command line, a file or a default.
        sources = {
            long_name(parameter): context.get_parameter_source(str(parameter.name))
            for parameter in context.command.params
        }
        # A TypedOptions is a frozenset of names.
        return cls(
            name
            for name, source in sources.items()
            if source is not None and source.name == "COMMANDLINE"
        )

    def forbid_beside(self, option: str, *idle_options: str) -> None:
        """Raise StsbenchError if options were typed that have no effect beside another typed one.

        Args:
            option: The long name of that other option.
            idle_options: The long names of the options that have no effect beside it.
        """
        # This object is the set of the options that were typed.
        if option in self:
            self.forbid(f"beside {option}", *idle_options)

    def forbid_without(self, option: str, *idle_options: str) -> None:
        """Raise StsbenchError if options were typed that have no effect without another one.

        Args:
            option: The long name of that other option, which was not typed.
            idle_options: The long names of the options that have no effect without it.
        """
        # This object is the set of the options that were typed.
        if option not in self:
            self.forbid(f"without {option}", *idle_options)

    def forbid_elsewhere(self, executor: str, *ray_options: str) -> None:
        """Raise StsbenchError if an option was typed that has no effect where the work is done.

        Args:
            executor: Where that is, the value of ``--on``: "local" for this machine, otherwise a
                cluster of the library Ray.
            ray_options: The long names of options that have an effect only on such a cluster.
        """
        if executor == "local":
            self.forbid("without --on ray", *ray_options)
        else:
            # On a cluster each worker chooses its own device.
            self.forbid("beside --on", "--device")

    def forbid(self, condition: str, *options: str) -> None:
        """Raise StsbenchError if one of some options was typed, because they have no effect.

        Args:
            condition: Why not, for the message: for example "beside --json".
            options: The long names of these options.
        """
        # This object is the set of the options that were typed.
        for option in options:
            if option in self:
                raise StsbenchError(f"{option} has no effect {condition}; leave it out")


def long_name(parameter: Any) -> str:  # noqa: ANN401 - typer's own classes of parameters have no public name
    """Return an option as it is typed, ``--name``; for an argument its name."""
    return next((name for name in parameter.opts if name.startswith("--")), str(parameter.name))


def retype_options(context: Context, *options: str) -> list[str]:
    """Return options of the called command as the words that the user would type.

    An option that has its default is omitted. A repeated option is repeated. A switch has no value.

    Args:
        context: Typer's context of the command, with the values of its options.
        options: The long names of the options to return, such as ``--data``.
    """
    words: list[str] = []
    # By the long name of each option, such as --data; an option that is repeated has a list.
    parameters = {long_name(parameter): parameter for parameter in context.command.params}
    for option in options:
        parameter = parameters[option]
        value = context.params[str(parameter.name)]
        if isinstance(value, list | tuple):
            values = list(value)
        else:
            values = [] if value == parameter.default else [value]
        for single_value in values:
            words += [option] if single_value is True else [option, str(single_value)]
    return words
