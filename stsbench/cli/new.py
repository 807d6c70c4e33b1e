"""``stsbench new``: drafts of cards and methods."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions, parse_pairs, parse_scale
from stsbench.cli.printing import print_paragraph, print_text
from stsbench.core.cards import HubSource
from stsbench.core.errors import StsbenchError, look_up
from stsbench.core.names import split_names

if TYPE_CHECKING:
    from stsbench.data.card_draft import CardLocation, Draft


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
    scale: opt.Scale = "",
    drop_unscored: opt.DropUnscored = False,
    language: opt.DataLanguages = "",
    out: opt.DraftsFolder = Path("cards"),
    force: opt.Force = False,
) -> None:
    """Draft the card of a task from your own data.

    Pairs with scores become an STS task, sentences or pairs with labels a classification task. The
    last line printed is the command that scores an encoder on it.

    Example: stsbench new task pairs.csv
    Example: stsbench new task ratings.xlsx --scale 1..10 --drop-unscored --language de
    Example: stsbench new task --hub mteb/biosses-sts
    """
    from stsbench.data.card_draft import locate_card, suggest_card_name
    from stsbench.data.task_draft import draft_task
    from stsbench.data.user_tables import ScoreSettings

    if (source is None) == (not hub):
        raise StsbenchError("give a file or folder, or --hub OWNER/NAME, not both")
    TypedOptions.from_context(context).forbid_without("--hub", "--revision", "--subset")
    # The columns that the user has named, by what they hold: sentence1, gold, label.
    roles = parse_roles(columns, labels=labels)
    if hub and drop_unscored:
        raise StsbenchError("--drop-unscored needs a file or folder; leave it out with --hub")
    scores = ScoreSettings(parse_scale(scale), drop_unscored)
    data: Path | HubSource
    if source is not None:
        data = source
        card_name = name or suggest_card_name(source)
    else:
        data = HubSource(repo=hub, revision=revision, config=subset)
        dataset_name = "-".join(filter(None, [hub.rpartition("/")[2], subset]))
        # suggest_card_name drops a suffix: without .hub that would be what follows the last dot.
        card_name = name or suggest_card_name(Path(f"{dataset_name}.hub"))
    location = locate_card(out, kind="tasks", name=card_name)
    draft = draft_task(
        data,
        location,
        columns=roles,
        labels=labels,
        scores=scores,
        language=language,
        made_by="'stsbench new task'",
    )
    _write(draft, location, f"stsbench run -t {location.name}", force=force)


def parse_roles(columns: Sequence[str], *, labels: bool) -> dict[str, str]:
    """Return the columns of ``--columns`` by their role: what a column of a file holds.

    The roles are sentence1, sentence2, sentence, gold and label.

    Args:
        columns: The values of the option, comma lists of ``role=column``, such as
            ``sentence1=A,gold=C``.
        labels: Whether ``--labels`` was typed: the values to predict are classes, not scores.

    Returns:
        The name of the column by role.

    Raises:
        StsbenchError: A text is no ``role=column``, a role is unknown or comes twice, or gold is
            among the roles beside ``--labels``.
    """
    from stsbench.data.task_draft import ROLES

    pairs = [pair for text in columns for pair in split_names(text)]
    roles = parse_pairs(
        "--columns", pairs, expected="what it holds and its name, such as gold=score"
    )
    for role in roles:
        look_up("role in --columns", role, dict.fromkeys(ROLES))
    if labels and "gold" in roles:
        raise StsbenchError(
            "--labels and gold in --columns contradict each other; leave out one of them"
        )
    return roles


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
    from stsbench.data.card_draft import locate_card, suggest_card_name
    from stsbench.encoders.encoder_draft import draft_encoder

    # The name of the card and the path to write it to; an error if another card has the name.
    location = locate_card(out, kind="baselines", name=name or suggest_card_name(source))
    command = f"stsbench run -e {location.name} -t quickstart"
    # The text of the card, and lines for the user on what was found and what is unsure.
    draft = draft_encoder(source, location, made_by="'stsbench new encoder'")
    # Raises an error if the card exists, unless forced; prints the lines, then the command.
    _write(draft, location, command, force=force)


def method_command(
    name: opt.MethodName, *, out: opt.DraftsFolder = Path("cards"), force: opt.Force = False
) -> None:
    """Draft a training method and its recipe.

    Example: stsbench new method pull
    """
    from stsbench.data.card_draft import locate_card
    from stsbench.recipes.method_draft import draft_method

    # The name of the recipe's card and its path; an error if another recipe has the name.
    location = locate_card(out, kind="trainers", name=name)
    command = f"stsbench train {location.name} --base minilm"
    # A draft holds the texts of files, and lines on them for the user. _write raises an error if a
    # file exists, unless forced; it prints the lines, then the command.
    _write(draft_method(location), location, command, force=force)


def _write(draft: Draft, location: CardLocation, command: str, *, force: bool) -> None:
    """Write a draft, and print what is in it and the command that uses its card."""
    draft.write(force=force)
    print_paragraph(*draft.findings, *(f"unsure: {doubt}" for doubt in draft.doubts))
    print_paragraph(*(f"check the data: {problem}" for problem in draft.problems))
    print_text(f"{command} --cards {shlex.quote(str(location.cards))}")
