"""From a dataclass of options to a command that typer reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from inspect import Parameter, Signature

from typer import Context, Exit

from stsbench.cli.options.shared import Given, Options, long_name


def bound(options: type[Options], work: str) -> Callable[..., None]:
    """A function whose parameters are the options' fields; called, it hands all of them to the work as one object.

    Args:
        options: what may be asked for; the class's docstring is the command's help.
        work: ``module:function``, loaded when it is called; it returns the exit code, None for 0.
    """

    def command(context: Context, **values: object) -> None:
        asked = options(**{name: value for name, value in values.items() if value is not None})
        from stsbench.cli.config import configured

        given = _given(context, options)
        asked.check(given)
        asked = configured(asked, given)
        module, _, function = work.partition(":")
        if code := getattr(import_module(module), function)(asked):
            raise Exit(code)

    command.__doc__ = options.__doc__
    vars(command)["__signature__"] = Signature(list(_parameters(options)))
    return command


def _parameters(options: type[Options]) -> Iterator[Parameter]:
    yield Parameter("context", Parameter.KEYWORD_ONLY, annotation=Context)
    declared = {one.name: one for one in fields(options)}
    for name, hint in options.hints().items():
        field = declared[name]
        # What a factory makes, an empty list, is what typer leaves out.
        default = None if field.default_factory is not MISSING else field.default
        given = Parameter.empty if default is MISSING else default
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=given, annotation=hint)


def _given(context: Context, options: type[Options]) -> Given:
    sources = {long_name(hint) or name: context.get_parameter_source(name) for name, hint in options.hints().items()}
    return Given(name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE")
