"""The command that times, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stsbench.cli.options import MOST, Cards, Data


def timing(
    encoder: Annotated[
        list[str] | None, typer.Option("--encoder", "-e", help="Encoders, comma list; default those of SG-OPT's table.")
    ] = None,
    recipe: Annotated[
        list[str] | None, typer.Option("--recipe", "-r", help="Recipes to train and time, comma list.")
    ] = None,
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="Replace a parameter of the encoders, e.g. model=FOLDER.")
    ] = None,
    base: Annotated[str, typer.Option("--base", help="Recipes start from this checkpoint (folder or Hub id).")] = "",
    task: Annotated[str, typer.Option("--task", "-t", help="Embed and fit on this task's sentences.")] = "stsb",
    split: Annotated[str, typer.Option("--split", help="Embed the sentences of this split.")] = "test",
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, max=MOST, help="Sentences at a time.")] = 16,
    rounds: Annotated[int, typer.Option("--rounds", min=1, max=1000, help="Embed so often; the median counts.")] = 3,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, max=MOST, help="Train so many steps and reckon the whole from them.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Train on: auto, cpu or cuda")] = "auto",
    data: Data = None,
    output: Annotated[str, typer.Option("--format", help="terminal, markdown or json")] = "terminal",
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of the terminal.")] = None,
    cards: Cards = None,
) -> None:
    """Time training and inference on this machine, as SG-OPT's table 6 does."""
    from stsbench.cli.timing import timing_command

    timing_command(
        encoders=encoder or [],
        recipes=recipe or [],
        assign=assign or [],
        base=base,
        task=task,
        split=split,
        batch_size=batch_size,
        rounds=rounds,
        steps=steps,
        device=device,
        data=data,
        output=output,
        out=out,
        cards=cards or [],
    )
