"""``stsbench analyze``: one loop over the analyses, whatever each shows."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from typer import Context

from stsbench.analysis.run import ANALYSES, WRITERS, Analysis, Findings, analyse, findings_json, make_analysis
from stsbench.api.names import Names
from stsbench.cli import options as opt
from stsbench.cli.printing import complain, say, say_words
from stsbench.cli.progress import shown_work
from stsbench.cli.screen import print_rows
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError, choose, one_line
from stsbench.core.files import write_whole
from stsbench.plots import FIGURES

MOST = 40
"""So many rows of a table are printed; files hold all."""
LONGEST = 60
"""Signs of a text in a table."""
NAMES = ("encoder", "other", "recipe")
"""Columns of names."""


def analyze_command(
    context: Context,
    what: opt.Analysis,
    *,
    encoder: opt.Encoders,
    tasks: opt.OneTask = "stsb",
    protocol: opt.Protocol = None,
    split: opt.Split = None,
    assign: opt.SetAnalysis,
    out: opt.AnalysisFiles,
    results: opt.ResultsFolder = Path("results"),
    data: opt.Data = None,
    store: opt.Store = None,
    no_store: opt.NoStore = False,
    config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Make a figure of the papers, as numbers and as a picture.

    WHAT: alignment, similarity, spectrum, layers, tokens, errors, neighbours, robustness, map, shift or sweep.

    Example: stsbench analyze alignment --encoder minilm,glove-6b --out alignment.svg
    """
    _check(opt.Given.of(context), what)
    catalogue, parameters = Catalogue(cards), opt.parse_assignments(assign)
    endings = [path.suffix.removeprefix(".") for path in out]
    for ending in endings:
        choose("kind of file for --out", ending, {**WRITERS, **dict.fromkeys(FIGURES)})
    made = make_analysis(what, parameters)
    encoders = Names(catalogue).to_load(encoder, results)
    if not encoders:
        raise StsbenchError("no encoder is named; give some by --encoder A,B")
    with shown_work() as shown:
        found = analyse(
            what,
            made,
            encoders,
            tasks=tasks,
            parameters=parameters,
            catalogue=catalogue,
            protocol=protocol,
            split=split,
            data=data,
            store=opt.kept_in(store, no_store=no_store),
            results=results,
            listener=shown.listener(what, noticed=complain),
        )
    if as_json:
        say(findings_json(found), end="")
    else:
        _print(found, made)
    for path, ending in zip(out, endings, strict=True):
        drawn = ending in FIGURES
        content = made.draw(found.tables, found.title).to_bytes(ending) if drawn else WRITERS[ending](found).encode()
        write_whole(path, content)
        if not as_json:
            say(f"wrote {path}")


def _check(given: opt.Given, what: str) -> None:
    given.apart("--no-store", "--store")
    if ANALYSES.load(what).reads_results:
        given.idle(f"for '{what}', which embeds nothing", "--no-store", "--store", "--data")
    else:
        given.idle(f"for '{what}', which reads no results", "--results")


def _print(found: Findings, made: Analysis) -> None:
    say_words(f"{found.title}, protocol {found.protocol}: {made.about}")
    say("")
    encoders = {row["encoder"] for rows in found.tables.values() for row in rows if "encoder" in row}
    for name in made.printed:
        rows = found.tables.get(name, [])
        if rows:
            _print_table(rows[:MOST], encoders)
            say("")
            if len(rows) > MOST:
                say_words(f"{len(rows) - MOST} more rows of '{name}' are in a file: --out FILE.csv")


def _print_table(rows: Sequence[Mapping[str, Any]], encoders: Container[str]) -> None:
    """Print rows of the same columns, some of which may be called as encoders are."""
    keys = list(rows[0])
    print_rows(
        [key if key in encoders else key.replace("_", " ") for key in keys],
        [[*map(cell_text, row.values())] for row in rows],
        right=[at for at, key in enumerate(keys) if not any(isinstance(row[key], str) for row in rows)],
        names=[at for at, key in enumerate(keys) if key in NAMES],
        heads=[at for at, key in enumerate(keys) if key in encoders],
    )


def cell_text(value: object) -> str:
    """A value as a table shows it: numbers with four digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = "–" if value is None else one_line(str(value))
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return f"{value}" if isinstance(value, int) else "–" if math.isnan(value) else f"{value:.4f}"
