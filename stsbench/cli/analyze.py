"""``stsbench analyze``: one loop over the analyses, whatever each shows."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

from stsbench.analysis.run import analyse, make_analysis
from stsbench.analysis.seams import Analysis, Findings
from stsbench.analysis.write import WRITERS, findings_json
from stsbench.cards.catalogue import Catalogue
from stsbench.cli.names import Names
from stsbench.cli.options.analyses import AnalyzeOptions
from stsbench.cli.printing import print_rows, say, say_words
from stsbench.cli.progress import status_listener
from stsbench.cli.run import parse_assignments
from stsbench.errors import StsbenchError, choose, one_line
from stsbench.files.whole import write_whole
from stsbench.plots import FIGURES

MOST = 40
"""So many rows of a table are printed; files hold all."""
LONGEST = 60
"""Signs of a text in a table."""
NAMES = ("encoder", "other", "recipe")
"""Columns of names."""


def analyze_command(options: AnalyzeOptions) -> None:
    """Carry out an analysis; print its numbers, and write the files that are asked for."""
    catalogue = Catalogue(options.cards)
    endings = [path.suffix.removeprefix(".") for path in options.out]
    for ending in endings:
        choose("kind of file for --out", ending, {**WRITERS, **dict.fromkeys(FIGURES)})
    parameters = parse_assignments(options.assign)
    made = make_analysis(options.what, parameters)
    encoders = Names(catalogue).to_load(options.encoder, options.results)
    if not encoders:
        raise StsbenchError("no encoder is named; give some by --encoder A,B")
    with status_listener() as listener_of:
        found = analyse(
            options.what,
            made,
            encoders,
            tasks=options.tasks,
            parameters=parameters,
            catalogue=catalogue,
            protocol=options.protocol,
            split=options.split,
            data=options.data,
            store=None if options.no_store else options.store or "default",
            results=options.results,
            listener=listener_of(options.what),
        )
    if options.as_json:
        say(findings_json(found), end="")
    else:
        _print(found, made)
    for path, ending in zip(options.out, endings, strict=True):
        drawn = ending in FIGURES
        write_whole(
            path, made.draw(found.tables, found.title).to_bytes(ending) if drawn else WRITERS[ending](found).encode()
        )
        if not options.as_json:
            say(f"wrote {path}")


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
