"""The commands and their options. Nothing heavy is imported before a command needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stsbench.cli.checks_app import check, compare, lock
from stsbench.cli.data_app import data_app
from stsbench.cli.options import MOST, AsJson, Cards, Data, help_alone
from stsbench.cli.printing import say
from stsbench.cli.timing_app import timing
from stsbench.cli.train_app import train

app = typer.Typer(
    help="Benchmark sentence encoders on STS and SentEval.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.add_typer(data_app, name="data")


def _version(value: bool) -> None:
    if value:
        from stsbench.provenance import version_of

        say(version_of("stsbench"))
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Benchmark sentence encoders on STS and SentEval."""
    help_alone(context)


@app.command()
def run(
    encoder: Annotated[
        list[str] | None,
        typer.Option("--encoder", "-e", help="Encoders: card names, Hub ids, folders, card files; comma list."),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option("--tasks", "-t", help="Tasks and suites, comma list; default suite 'sts'.")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", "-p", help="Protocols, e.g. simcse, wmean, mean, semeval.")
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="Score this split (default: test).")] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Seeds of the evaluation, comma list.")] = "0",
    assign: Annotated[
        list[str] | None, typer.Option("--set", help="Replace a parameter of the encoder, e.g. dtype=bfloat16.")
    ] = None,
    data: Data = None,
    out: Annotated[Path, typer.Option("--out", help="Results folder.")] = Path("results"),
    store: Annotated[Path | None, typer.Option("--store", help="Folder of stored embeddings.")] = None,
    no_store: Annotated[bool, typer.Option("--no-store", help="Keep embeddings in memory alone.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Score again what the results folder holds.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what is done, missing and to be embedded; do nothing.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every subset or class.")] = False,
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Score encoders on tasks; results are kept as they come, and the same command goes on.

    With no argument: the encoder 'minilm' on the suite 'quickstart', which needs no network.
    """
    from stsbench.cli.run import run_command

    raise typer.Exit(
        run_command(
            encoders=encoder or [],
            tasks=tasks,
            protocol=protocol,
            split=split,
            seeds=seeds,
            assign=assign or [],
            data=data,
            out=out,
            store=store,
            no_store=no_store,
            fresh=fresh,
            dry_run=dry_run,
            verbose=verbose,
            cards=cards or [],
            as_json=as_json,
        )
    )


app.command()(train)


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help="tasks, encoders, recipes, suites or corpora")],
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """List tasks, encoders, recipes, suites or corpora."""
    from stsbench.cli.listing import list_command

    list_command(kind, cards=cards or [], as_json=as_json)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A task, suite, encoder, recipe or corpus.")],
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of one name."""
    from stsbench.cli.listing import show_command

    show_command(name, cards=cards or [], as_json=as_json)


@app.command()
def doctor(
    hub: Annotated[
        bool, typer.Option("--hub", help="Fetch two small tasks and a small checkpoint, and score it.")
    ] = False,
    data: Data = None,
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Show what works here: versions, devices, folders, data by suite; with --hub, the Hub."""
    from stsbench.cli.doctor import doctor_command

    raise typer.Exit(doctor_command(hub=hub, data=data, cards=cards or [], as_json=as_json))


@app.command()
def leaderboard(
    results: Annotated[Path | None, typer.Option("--results", help="Results folder; default 'results'.")] = None,
    name: Annotated[
        str | None, typer.Option("--table", help="A table of a paper or of ours, or a TOML file of yours.")
    ] = None,
    list_tables: Annotated[bool, typer.Option("--list-tables", help="List all tables.")] = False,
    suite: Annotated[str, typer.Option("--suite", help="The suite whose tasks are the columns.")] = "sts",
    protocol: Annotated[str | None, typer.Option("--protocol", "-p", help="Show this protocol's results.")] = None,
    output: Annotated[str, typer.Option("--format", help="terminal, markdown, latex, html, csv or json")] = "terminal",
    show: Annotated[
        str | None, typer.Option("--show", help="published, measured, difference, both, or merged: whichever there is.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Averages exact, not as the paper rounds them.")] = False,
    encoder: Annotated[
        list[str] | None, typer.Option("--encoder", "-e", help="Measured rows of only these; comma list.")
    ] = None,
    ranks: Annotated[bool, typer.Option("--ranks", help="Rank intervals; needs per-item columns.")] = False,
    mteb: Annotated[
        Path | None, typer.Option("--mteb", help="A folder of MTEB's result files, shown as imported rows.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of the terminal.")] = None,
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Print a table: of all results of a suite, or a paper's with what was measured beside it."""
    from stsbench.cli.board import leaderboard_command, list_tables_command

    if list_tables:
        list_tables_command(as_json=as_json)
        return
    leaderboard_command(
        results,
        name=name,
        suite=suite,
        protocol=protocol,
        output=output,
        show=show,
        exact=exact,
        ranks=ranks,
        mteb=mteb,
        encoders=encoder or [],
        out=out,
        cards=cards or [],
        as_json=as_json,
    )


@app.command()
def export(
    fmt: Annotated[str, typer.Option("--format", help="mteb (its result files) or model-index (for a model card)")],
    results: Annotated[Path, typer.Option("--results", help="Results folder.")] = Path("results"),
    encoder: Annotated[list[str] | None, typer.Option("--encoder", "-e", help="Only these; comma list.")] = None,
    tasks: Annotated[str | None, typer.Option("--tasks", "-t", help="Only these tasks and suites.")] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", "-p", help="Only this protocol's results.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="mteb: the folder to fill; model-index: a model card to write or fill.")
    ] = None,
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Write results as MTEB's result files, or as the scores of a Hugging Face model card."""
    from stsbench.cli.export import export_command

    export_command(
        fmt,
        folder=results,
        encoders=encoder or [],
        tasks=tasks,
        protocol=protocol,
        out=out,
        cards=cards or [],
        as_json=as_json,
    )


@app.command()
def convert(
    kind: Annotated[str, typer.Argument(help="infersent, skip_thoughts or expand (a vocabulary).")],
    source: Annotated[Path, typer.Argument(help="infersent1.pkl; or a folder.")],
    out: Annotated[Path, typer.Argument(help="The encoder's folder to write.")],
    version: Annotated[int, typer.Option("--version", help="InferSent's version, 1 or 2.")] = 1,
    vectors: Annotated[str, typer.Option("--vectors", help="File of word vectors (infersent, expand).")] = "",
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, max=MOST, help="Use the first vectors only (expand).")
    ] = None,
) -> None:
    """Make published weights an encoder's folder, reading tensors and nothing else."""
    from stsbench.cli.convert import convert_command

    convert_command(kind, source, out, version=version, vectors=vectors, limit=limit)


for command in (compare, check, lock, timing):
    app.command()(command)
