"""The words of the command line for the facts of errors: options, and commands that help."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from stsbench.core.errors import AdvisingNote, Remedy, StsbenchError
from stsbench.core.wording import as_one_line

OPTION_BY_PARAMETER: Mapping[str, str] = {
    "callbacks": "",
    "catalogue": "--cards",
    "cards": "--cards",
    "executor": "--on",
    "launcher": "--on",
    "params": "--set",
    "names": "--name",
    "results_folder": "--results",
}
"""The option of each parameter that is not called as its parameter."""
ADVICE_BY_ACTION: Mapping[str, str] = {
    "score": "'stsbench run{options}' makes it",
    "rescore": "run: {commands}",
    "fill": "to fill it: stsbench run{options}",
    "train": "'stsbench train{options}' trains it",
    "list": "'stsbench list{options}' lists them",
    "lock": "'stsbench lock{options}' makes one",
    "texts": "'stsbench texts TASK --out FILE' lists the sentences of a task",
    "pairs": "'stsbench texts TASK --pairs --out FILE' lists the pairs of a task",
    "draft": "or, for your own data, make the card again with the same options: "
    "stsbench new task FILE --force",
    "make": "'stsbench data make{options}' makes it",
    "convert-coco": "'stsbench data convert-coco{options}' reads the published pickles",
}
"""What to do on the command line, by the action of a remedy.

To score results again may take several commands, which are put in place of ``{commands}``.
"""
POSITIONAL_BY_ACTION: Mapping[str, frozenset[str]] = {
    "fill": frozenset({"encoder"}),
    "rescore": frozenset({"encoder"}),
    "train": frozenset({"recipe"}),
    "list": frozenset({"kind"}),
    "make": frozenset({"corpus"}),
}
"""The parameters of a remedy that are arguments of its command, not options."""
OPTION_BY_ACTION: Mapping[tuple[str, str], str] = {
    ("train", "seed"): "--seeds",
    ("rescore", "seed"): "--seeds",
}
"""Options that a command calls otherwise than OPTION_BY_PARAMETER, by action and parameter."""
ACTIONS_WITH_CARDS = frozenset({"score", "rescore", "fill", "train"})
"""The actions whose commands look names up in the user's cards."""
card_folders: ContextVar[Sequence[Path]] = ContextVar("card_folders", default=())
"""The user's folders of cards in the command that runs, which advised commands need too."""
_PARAMETER_PATTERN = re.compile(r"`(?P<name>[a-z_]+)(=(?P<value>[^`]*))?`")


def option_name(parameter: str) -> str:
    """Return the option of a parameter, for example ``--no-store`` for ``no_store``."""
    return OPTION_BY_PARAMETER.get(parameter, f"--{parameter.replace('_', '-')}")


def replace_parameters_by_options(text: str) -> str:
    """Return a text with options of the command line in place of the parameters in backticks.

    Errors name parameters of functions, `` `data=DIR` ``, which becomes ``--data DIR``. Parameters
    without an option of their own have another one: `` `params=pooling=cls` `` becomes
    ``--set pooling=cls``.
    """

    def to_option(match: re.Match[str]) -> str:
        option = option_name(match["name"])
        if match["value"] is None:
            return option
        # In Python cards are an object; the command line takes their folder.
        value = match["value"].replace("stsbench.Catalogue(DIR)", "DIR")
        return f"{option} {value}"

    return _PARAMETER_PATTERN.sub(to_option, text)


def describe_remedy(remedy: Remedy) -> str:
    """Return as text the command that a remedy stands for, and what it does.

    A remedy is what an error advises the user to do, without the words of the command line.

    Args:
        remedy: An action of ``ADVICE_BY_ACTION`` (texts in which ``{options}`` or ``{commands}``
            is replaced), and the values of its command's parameters: texts, or for ``params`` the
            values by key.
    """
    if remedy.action == "rescore":
        commands = [
            f"stsbench run --fresh{_format_arguments(run)}" for run in (remedy, *remedy.further)
        ]
        return ADVICE_BY_ACTION[remedy.action].format(commands=" && ".join(commands))
    return ADVICE_BY_ACTION[remedy.action].format(options=_format_arguments(remedy))


def _format_arguments(remedy: Remedy) -> str:
    """Return the arguments and options of a remedy's command, each with a blank before it.

    Args:
        remedy: An action, and the values of its command's parameters by name: a text, a list of
            texts, for ``params`` a mapping of keys to values, or None for ``--no-NAME``.

    Returns:
        For example `` --encoder minilm --set pooling=cls``. Parameters that are arguments of the
        command have no option before them. The user's folders of cards come last.
    """
    text = ""
    for name, value in remedy.arguments.items():
        if value is None:
            text += f" {option_name(f'no_{name}')}"
            continue
        # Few commands call an option otherwise than all others do: these are in OPTION_BY_ACTION.
        option = OPTION_BY_ACTION.get((remedy.action, name), option_name(name))
        if isinstance(value, Mapping):
            for key, new_value in value.items():
                text += f" {option} {shlex.quote(f'{key}={new_value}')}"
            continue
        values = [str(value)] if isinstance(value, str | int) else value
        words = " ".join(map(shlex.quote, values))
        is_argument = name in POSITIONAL_BY_ACTION.get(remedy.action, ())
        text += f" {words}" if is_argument else f" {option} {words}"
    if remedy.action in ACTIONS_WITH_CARDS:
        text += "".join(f" --cards {shlex.quote(str(folder))}" for folder in card_folders.get())
    return text


def notes_with_commands(notes: Iterable[str]) -> list[str]:
    """Return notes with commands in place of remedies in the words of a Python user."""
    return [
        f"{note.reason}; {describe_remedy(note.remedy)}" if isinstance(note, AdvisingNote) else note
        for note in notes
    ]


class ErrorText(NamedTuple):
    """An error as the command line prints it, with options in place of parameters."""

    problem: str
    """What is wrong."""
    hint: str
    """What to do; empty if nothing is known."""


def describe_error(error: StsbenchError) -> ErrorText:
    """Return what is wrong and what to do, with options in place of parameters.

    Within the texts of an error, parameters are written between backticks.

    Args:
        error: The error. ``parameter`` and ``value`` say what of a function's arguments is wrong;
            ``hint`` is a text and ``remedy`` an action that help. Each may be empty or None.

    Returns:
        The problem, and the hint; the hint is empty if nothing is known that helps.
    """
    problem = error.reason
    if error.parameter:
        option = option_name(error.parameter)
        subject = option if error.value is None else f"{option} '{error.value}'"
        problem = f"{subject}: {problem}"
    hints = [error.hint, describe_remedy(error.remedy) if error.remedy else ""]
    hint = "; ".join(filter(None, hints))
    return ErrorText(replace_parameters_by_options(problem), replace_parameters_by_options(hint))


def describe_error_line(error: BaseException) -> str:
    """Return on one line what is wrong and what to do, with options in place of parameters."""
    if isinstance(error, StsbenchError):
        return as_one_line("; ".join(filter(None, describe_error(error))))
    return as_one_line(replace_parameters_by_options(str(error)))


def describe_reason(reason: str) -> str:
    """Return why scores are not verified, with the option that helps if a card is missing."""
    from stsbench.evaluators.belief import add_card_hint

    return replace_parameters_by_options(add_card_hint(reason))
