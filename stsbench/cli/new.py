"""``stsbench new``: drafts of cards and methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typer import Context

from stsbench.cli import options as opt
from stsbench.cli.printing import say, say_words
from stsbench.core.cards import HubSource
from stsbench.core.errors import StsbenchError, UnknownName, split_names
from stsbench.data.drafts import ROLES, Draft, draft_hub_task, draft_task, find_home, name_of
from stsbench.encoders.drafts import draft_encoder
from stsbench.recipes.drafts import draft_method


def new_task_command(
    context: Context,
    source: opt.TaskSource = None,
    *,
    hub: opt.HubDataset = "",
    revision: opt.Revision = "main",
    subset: opt.Subset = "",
    name: opt.DraftName = "",
    columns: opt.Columns,
    out: opt.DraftsFolder = Path("cards"),
    force: opt.Force = False,
) -> None:
    """Draft the card of a task from a table of your own.

    Pairs with scores become an STS task, sentences or pairs with labels a classification task. The last line printed is the
    command that runs it.

    Example: stsbench new task pairs.csv
    Example: stsbench new task --hub mteb/biosses-sts
    """
    if (source is None) == (not hub):
        raise StsbenchError("give a file or folder, or --hub OWNER/NAME, not both")
    opt.Given.of(context).needs("--hub", "--revision", "--subset")
    roles = _columns(columns, ROLES)
    if source is not None:
        _write(draft_task(source, find_home(out, "tasks", name or name_of(source)), columns=roles), force=force)
        return
    dataset = HubSource(repo=hub, revision=revision, config=subset)
    called = "-".join(filter(None, [hub.rpartition("/")[2], subset]))
    home = find_home(out, "tasks", name or name_of(Path(f"{called}.hub")))
    _write(draft_hub_task(dataset, home, columns=roles), force=force)


def new_encoder_command(
    source: opt.CheckpointSource,
    *,
    name: opt.DraftName = "",
    out: opt.DraftsFolder = Path("cards"),
    force: opt.Force = False,
) -> None:
    """Draft the card of an encoder.

    Example: stsbench new encoder checkpoints/final
    """
    _write(draft_encoder(source, find_home(out, "baselines", name or name_of(source))), force=force)


def new_method_command(
    name: opt.MethodName, *, out: opt.DraftsFolder = Path("cards"), force: opt.Force = False
) -> None:
    """Draft a training method and its recipe.

    Example: stsbench new method pull
    """
    _write(draft_method(find_home(out, "trainers", name)), force=force)


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
