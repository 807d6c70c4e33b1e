"""``stsbench new``: drafts of cards and methods."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.printing import print_paragraph, print_text
from stsbench.core.cards import HubSource
from stsbench.core.errors import StsbenchError, look_up
from stsbench.core.names import split_names

if TYPE_CHECKING:
    from stsbench.data.task_draft import Draft


def task_command(
    context: opt.Context,
    source: opt.TaskSource = None,
    *,
    hub: opt.HubDataset = "",
    revision: opt.Revision = "main",
    subset: opt.Subset = "",
    name: opt.DraftName = "",
    columns: opt.Columns,
    labels: opt.Labels = False,
    out: opt.DraftsFolder = Path("cards"),
    force: opt.Force = False,
) -> None:
    """Draft the card of a task from a table of your own.

    Pairs with scores become an STS task, sentences or pairs with labels a classification task. The last line printed is the
    command that runs it.

    Example: stsbench new task pairs.csv
    Example: stsbench new task --hub mteb/biosses-sts
    """
    from stsbench.data.task_draft import ROLES, draft_task, find_home, name_of

    if (source is None) == (not hub):
        raise StsbenchError("give a file or folder, or --hub OWNER/NAME, not both")
    opt.TypedOptions.from_context(context).forbid_without("--hub", "--revision", "--subset")
    parts = [name for text in columns for name in split_names(text)]
    roles = opt.parse_pairs("--columns", parts, "what it holds and its name, such as gold=score")
    for role in roles:
        look_up("role in --columns", role, dict.fromkeys(ROLES))
    if labels and "gold" in roles:
        raise StsbenchError(
            "--labels and gold in --columns contradict each other; leave out one of them"
        )
    data: Path | HubSource
    if source is not None:
        data, called = source, name_of(source)
    else:
        data = HubSource(repo=hub, revision=revision, config=subset)
        called = name_of(Path(f"{'-'.join(filter(None, [hub.rpartition('/')[2], subset]))}.hub"))
    home = find_home(out, "tasks", name or called)
    _write(draft_task(data, home, columns=roles, labels=labels), force=force)


def encoder_command(
    source: opt.CheckpointSource,
    *,
    name: opt.DraftName = "",
    out: opt.DraftsFolder = Path("cards"),
    force: opt.Force = False,
) -> None:
    """Draft the card of an encoder.

    Example: stsbench new encoder checkpoints/final
    """
    from stsbench.data.task_draft import find_home, name_of
    from stsbench.encoders.encoder_draft import draft_encoder

    _write(draft_encoder(source, find_home(out, "baselines", name or name_of(source))), force=force)


def method_command(
    name: opt.MethodName, *, out: opt.DraftsFolder = Path("cards"), force: opt.Force = False
) -> None:
    """Draft a training method and its recipe.

    Example: stsbench new method pull
    """
    from stsbench.data.task_draft import find_home
    from stsbench.recipes.method_draft import draft_method

    _write(draft_method(find_home(out, "trainers", name)), force=force)


def _write(draft: Draft, *, force: bool) -> None:
    draft.write(force=force)
    print_paragraph(*draft.found, *(f"unsure: {line}" for line in draft.unsure))
    print_text(draft.command)
