"""The commands below ``stsbench data`` and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stsbench.cli.options import LAST_SEED, MOST, AsJson, Cards, Data, help_alone

data_app = typer.Typer(help="Fetch and verify evaluation data and training text.", invoke_without_command=True)


@data_app.callback()
def data_root(context: typer.Context) -> None:
    """Fetch and verify evaluation data and training text."""
    help_alone(context)


@data_app.command("fetch")
def data_fetch(
    names: Annotated[list[str], typer.Argument(help="Tasks, suites or corpora.")],
    data: Data = None,
    cards: Cards = None,
) -> None:
    """Fetch data from the Hub ahead of a run, and check them."""
    from stsbench.cli.data import fetch_command

    fetch_command(names, data=data, cards=cards or [])


@data_app.command("verify")
def data_verify(
    names: Annotated[list[str] | None, typer.Argument(help="Tasks or suites; default all that a folder holds.")] = None,
    data: Data = None,
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Check counts, characters, means and hashes of data against the cards."""
    from stsbench.cli.data import verify_command

    raise typer.Exit(verify_command(names or [], data=data, cards=cards or [], as_json=as_json))


@data_app.command("convert-coco")
def data_convert_coco(
    source: Annotated[Path, typer.Argument(help="Folder of the published train.pkl, valid.pkl and test.pkl.")],
    target: Annotated[Path, typer.Argument(help="Where to write safetensors and JSON.")],
) -> None:
    """Convert the published COCO pickles, reading arrays and strings and nothing else."""
    from stsbench.cli.data import convert_coco_command

    convert_coco_command(source, target)


@data_app.command("make")
def data_make(
    name: Annotated[str, typer.Argument(metavar="CORPUS", help="A corpus that is not published as a file.")],
    corpora: Annotated[
        Path | None, typer.Option("--corpora", help="Folder to write into; default STSBENCH_CORPORA.")
    ] = None,
    cards: Cards = None,
) -> None:
    """Make training text of what is published, as its card says, and check it."""
    from stsbench.cli.data import make_command

    make_command(name, corpora=corpora, cards=cards or [])


@data_app.command("back-translate")
def data_back_translate(
    source: Annotated[str, typer.Argument(metavar="INPUT", help="A corpus, or a file of sentences.")],
    output: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="The .csv file of pairs; a record is written beside it.")
    ],
    forward: Annotated[
        str, typer.Option("--forward", help="Marian model there: a Hub id or a folder.")
    ] = "Helsinki-NLP/opus-mt-en-de",
    backward: Annotated[str, typer.Option("--backward", help="Marian model back.")] = "Helsinki-NLP/opus-mt-de-en",
    revisions: Annotated[tuple[str, str], typer.Option("--revisions", help="Their commits on the Hub.")] = (
        "unpinned",
        "unpinned",
    ),
    mode: Annotated[str, typer.Option("--mode", help="greedy or sampling")] = "greedy",
    temperature: Annotated[float, typer.Option("--temperature", min=0, max=MOST, help="Of sampling.")] = 1.0,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="Of sampling.")] = 0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", max=MOST, help="Longest sentence, read or written.")] = 128,
    batch_size: Annotated[int, typer.Option("--batch-size", max=MOST, help="Sentences translated at once.")] = 32,
    limit: Annotated[int | None, typer.Option("--limit", max=MOST, help="Only the first sentences.")] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, …")] = "auto",
    corpora: Annotated[
        Path | None, typer.Option("--corpora", help="Folder of training text; default STSBENCH_CORPORA.")
    ] = None,
    data: Data = None,
    cards: Cards = None,
) -> None:
    """Translate sentences there and back, for training on the pairs; the same command goes on where it stopped."""
    from stsbench.cli.translate import back_translate_command

    back_translate_command(
        source,
        output,
        models=(forward, backward),
        revisions=revisions,
        decoding={"mode": mode, "temperature": temperature, "seed": seed, "max_tokens": max_tokens},
        batch_size=batch_size,
        limit=limit,
        device=device,
        corpora=corpora,
        data=data,
        cards=cards or [],
    )
