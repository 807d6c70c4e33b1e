"""The commands that compare scores, check them and lock them, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from stsbench.cli.options import LAST_SEED, AsJson, Cards


def compare(
    encoders: Annotated[list[str], typer.Argument(help="Encoders of the results folder, or folders of results.")],
    results: Annotated[Path, typer.Option("--results", help="Results folder.")] = Path("results"),
    tasks: Annotated[str | None, typer.Option("--tasks", "-t", help="Only these tasks and suites.")] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", "-p", help="Only this protocol's results.")] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=LAST_SEED, help="Seed of the draws.")] = 0,
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Say which differences between encoders are real: paired tests over the same items."""
    from stsbench.cli.compare import compare_command

    compare_command(
        encoders, folder=results, tasks=tasks, protocol=protocol, seed=seed, cards=cards or [], as_json=as_json
    )


def check(
    new: Annotated[Path, typer.Argument(help="A results folder (or lock file) to be checked.")],
    against: Annotated[
        Path, typer.Option("--against", help="A results folder or lock file, or 'published' for papers' scores.")
    ],
    encoder: Annotated[list[str] | None, typer.Option("--encoder", "-e", help="Check only these; comma list.")] = None,
    against_encoder: Annotated[
        list[str] | None, typer.Option("--against-encoder", help="Against only these; comma list.")
    ] = None,
    tasks: Annotated[str | None, typer.Option("--tasks", "-t", help="Only these tasks and suites.")] = None,
    rule: Annotated[str, typer.Option("--rule", help="absolute or statistical")] = "absolute",
    tolerance: Annotated[
        list[str] | None, typer.Option("--tolerance", help="Points: 0.5, or for one class half=0.2; may be repeated.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="A score above its tolerance fails too.")] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Cells and encoders that only the old scores have are no error.")
    ] = False,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML to this file.")] = None,
    github: Annotated[bool, typer.Option("--github", help="Print GitHub annotations.")] = False,
    summary: Annotated[Path | None, typer.Option("--summary", help="Add a markdown summary to this file.")] = None,
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Check new scores against old ones: exit code 0 fine, 1 a regression, 2 not comparable."""
    from stsbench.cli.check import check_command

    raise typer.Exit(
        check_command(
            new,
            against,
            encoders=encoder or [],
            against_encoders=against_encoder or [],
            tasks=tasks,
            rule=rule,
            tolerance=tolerance or [],
            exact=exact,
            allow_missing=allow_missing,
            junit_file=junit,
            github=github,
            summary=summary,
            cards=cards or [],
            as_json=as_json,
        )
    )


def lock(
    results: Annotated[Path, typer.Argument(help="Results folder.")] = Path("results"),
    out: Annotated[Path, typer.Option("--out", help="The lock file.")] = Path("scores.lock.json"),
    encoder: Annotated[list[str] | None, typer.Option("--encoder", "-e", help="Lock only these; comma list.")] = None,
    tasks: Annotated[str | None, typer.Option("--tasks", "-t", help="Only these tasks and suites.")] = None,
    cards: Cards = None,
    as_json: AsJson = False,
) -> None:
    """Write scores and what they were made with to one small file, for 'stsbench check --against'."""
    from stsbench.cli.check import lock_command

    lock_command(results, out=out, encoders=encoder or [], tasks=tasks, cards=cards or [], as_json=as_json)
