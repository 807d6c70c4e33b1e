"""``stsbench new``: drafts of cards and methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.cards.names import split_names
from stsbench.cli.options.new import NewEncoderOptions, NewMethodOptions, NewTaskOptions
from stsbench.cli.printing import say, say_words
from stsbench.errors import StsbenchError, UnknownName

if TYPE_CHECKING:
    from stsbench.drafts.draft import Draft


def new_task_command(options: NewTaskOptions) -> None:
    """Draft a task's card from files, or from a dataset on the Hub."""
    from stsbench.drafts.draft import find_home, name_of
    from stsbench.drafts.task import ROLES, draft_task

    columns = _columns(options.columns, ROLES)
    if options.source is not None:
        home = find_home(options.out, "tasks", options.name or name_of(options.source))
        _write(draft_task(options.source, home, columns=columns), force=options.force)
        return
    from stsbench.cards.facts import HubSource
    from stsbench.drafts.hub import draft_hub_task

    source = HubSource(repo=options.hub, revision=options.revision, config=options.subset)
    called = "-".join(filter(None, [options.hub.rpartition("/")[2], options.subset]))
    home = find_home(options.out, "tasks", options.name or name_of(Path(f"{called}.hub")))
    _write(draft_hub_task(source, home, columns=columns), force=options.force)


def new_encoder_command(options: NewEncoderOptions) -> None:
    """Draft an encoder's card from a checkpoint or word vectors."""
    from stsbench.drafts.draft import find_home, name_of
    from stsbench.drafts.encoder import draft_encoder

    home = find_home(options.out, "baselines", options.name or name_of(options.source))
    _write(draft_encoder(options.source, home), force=options.force)


def new_method_command(options: NewMethodOptions) -> None:
    """Draft a training method and its recipe."""
    from stsbench.drafts.draft import find_home
    from stsbench.drafts.method import draft_method

    _write(draft_method(find_home(options.out, "trainers", options.name)), force=options.force)


def _write(draft: Draft, *, force: bool) -> None:
    draft.write(force=force)
    for line in draft.found:
        say_words(line)
    for line in draft.unsure:
        say_words(f"unsure: {line}")
    say(draft.command)


def _columns(given: Sequence[str], roles: Sequence[str]) -> dict[str, str]:
    """Columns by what they hold, of a comma list of ``role=name``."""
    found: dict[str, str] = {}
    for one in (name for text in given for name in split_names(text)):
        role, equals, name = one.partition("=")
        if not equals or not name:
            raise StsbenchError(f"--columns '{one}': give what it holds and its name, such as gold=score")
        if role not in roles:
            raise UnknownName("role in --columns", role, roles, hint=f"known: {', '.join(roles)}")
        if role in found:
            raise StsbenchError(f"--columns '{one}': {role} is given twice")
        found[role] = name
    return found
