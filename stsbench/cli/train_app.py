"""The command that trains, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from stsbench.cli.options import AsJson, Cards

Recipe = Annotated[str, typer.Argument(help="A recipe, or a recipe's TOML file.")]
Seeds = Annotated[str, Option("--seeds", help="Seeds, comma list: one run each; default the recipe's, else 0.")]
Assign = Annotated[list[str] | None, Option("--set", help="Replace a value of the recipe, e.g. temperature=0.1.")]
Base = Annotated[str, Option("--base", help="Start from this checkpoint (folder, Hub id or encoder).")]
Text = Annotated[str | None, Option("--data", help="Learn from this corpus, or a file of yours.")]
Corpora = Annotated[Path | None, Option("--corpora", help="Folder of training text; default STSBENCH_CORPORA.")]
EvaluationData = Annotated[Path | None, Option("--eval-data", help="Folder of evaluation data; default STSBENCH_DATA.")]
Out = Annotated[Path | None, Option("--out", help="Folder of runs; default STSBENCH_RUNS, else 'runs'.")]
Fresh = Annotated[bool, Option("--fresh", help="Train anew what is trained already, or was stopped.")]
Yes = Annotated[bool, Option("--yes", help="With --fresh: checkpoints may be deleted, do not ask.")]
DryRun = Annotated[bool, Option("--dry-run", help="Print steps, tokens, memory and time expected.")]
Keep = Annotated[str | None, Option("--keep", help="Keep the 'best' weights by dev score, or the 'last'.")]
Device = Annotated[str, Option("--device", help="auto, cpu or cuda")]
Deterministic = Annotated[
    bool, Option("--deterministic", help="Only operations that give the same bytes each time (slower on a GPU).")
]
CheckpointSeconds = Annotated[float, Option("--checkpoint-seconds", min=0, help="Seconds between checkpoints.")]
ReportTo = Annotated[list[str] | None, Option("--report-to", help="tensorboard, wandb, …; may be repeated.")]


def train(
    recipe: Recipe,
    seeds: Seeds = "",
    assign: Assign = None,
    base: Base = "",
    text: Text = None,
    corpora: Corpora = None,
    evaluation_data: EvaluationData = None,
    out: Out = None,
    fresh: Fresh = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    keep: Keep = None,
    device: Device = "auto",
    deterministic: Deterministic = False,
    checkpoint_seconds: CheckpointSeconds = 120.0,
    report_to: ReportTo = None,
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Train an encoder by a recipe; then 'stsbench run --encoder RECIPE' scores it.

    What was stopped goes on from its last checkpoint by the same command.
    """
    from stsbench.cli.train import train_command

    train_command(
        recipe,
        seeds=seeds,
        assign=assign or [],
        base=base,
        data=text,
        evaluation_data=evaluation_data,
        corpora=corpora,
        out=out,
        fresh=fresh,
        yes=yes,
        dry_run=dry_run,
        keep=keep,
        device=device,
        deterministic=deterministic,
        checkpoint_seconds=checkpoint_seconds,
        report_to=report_to or [],
        cards=cards or [],
        as_json=as_json,
    )
