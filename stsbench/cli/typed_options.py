"""The options that the user typed: which have no effect, and how to type them again."""

from __future__ import annotations

from typing import Any

from typer import Context

from stsbench.core.errors import StsbenchError


class TypedOptions(frozenset[str]):
    """The options and arguments that the user typed, by long names; the rest has defaults.

    Options that would have no effect are refused.
    """

    @classmethod
    def from_context(cls, context: Context) -> TypedOptions:
        """Return what the user typed behind a command."""
        sources = {
            long_name(parameter): context.get_parameter_source(str(parameter.name))
            for parameter in context.command.params
        }
        return cls(
            name
            for name, source in sources.items()
            if source is not None and source.name == "COMMANDLINE"
        )

    def forbid_beside(self, option: str, *idle_options: str) -> None:
        """Raise StsbenchError if idle options were typed beside one that makes them idle.

        Args:
            option: The long name of the option beside which the others have no effect.
            idle_options: Their long names.
        """
        if option in self:
            self.forbid(f"beside {option}", *idle_options)

    def forbid_without(self, option: str, *idle_options: str) -> None:
        """Raise StsbenchError if idle options were typed without the one that gives them effect.

        Args:
            option: The long name of the option without which the others have no effect.
            idle_options: Their long names.
        """
        if option not in self:
            self.forbid(f"without {option}", *idle_options)

    def forbid_elsewhere(self, executor: str, *ray_options: str, local_option: str = "") -> None:
        """Raise StsbenchError if an option was typed that the executor does not use.

        Args:
            executor: The value of ``--on``.
            ray_options: Options that have an effect only on a cluster of Ray.
            local_option: The option that has an effect only on this machine.
        """
        if executor == "local":
            self.forbid("without --on ray", *ray_options)
        else:
            self.forbid("beside --on", local_option)

    def forbid(self, condition: str, *options: str) -> None:
        """Raise StsbenchError if one of the options was typed, which has no effect then.

        Args:
            condition: When the options have no effect, for example "beside --json".
            options: Their long names.
        """
        for option in options:
            if option in self:
                raise StsbenchError(f"{option} has no effect {condition}; leave it out")


def long_name(parameter: Any) -> str:  # noqa: ANN401 - typer's own classes of parameters have no public name
    """Return an option as it is typed, ``--name``; for an argument its name."""
    return next((name for name in parameter.opts if name.startswith("--")), str(parameter.name))


def retype_options(context: Context, *options: str) -> list[str]:
    """Return options and their values as words of a command line.

    Options that have their defaults are omitted; a repeated option is repeated.

    Args:
        context: The command that was called.
        options: The long names of its options to return.
    """
    words: list[str] = []
    parameters = {long_name(parameter): parameter for parameter in context.command.params}
    for option in options:
        parameter = parameters[option]
        value = context.params[str(parameter.name)]
        if isinstance(value, list | tuple):
            values = list(value)
        else:
            values = [] if value == parameter.default else [value]
        for single_value in values:
            words.append(option)
            is_switch = single_value is True
            if not is_switch:
                words.append(str(single_value))
    return words
