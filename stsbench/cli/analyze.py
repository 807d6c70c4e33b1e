"""``stsbench analyze``: one loop over the analyses, whatever each shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stsbench.analysis.run import ANALYSES, WRITERS, Findings, analyse, findings_json, make_analysis, value_text
from stsbench.api.names import Names
from stsbench.bench.plan import RunPlan
from stsbench.cli import options as opt
from stsbench.cli.printing import complain, cut, emit, print_rows, say, say_words, shown_work
from stsbench.core.errors import StsbenchError, choose
from stsbench.plots import FIGURES

PRINTED_ROWS = 40
NAME_COLUMNS = ("encoder", "other", "recipe")


def analyze_command(
    context: opt.Context,
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
    catalogue: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Make a figure of the papers, as numbers and as a picture.

    WHAT: alignment, similarity, spectrum, layers, tokens, errors, neighbours, robustness, map, shift or sweep.

    Example: stsbench analyze alignment --encoder minilm,glove-6b --out alignment.svg
    """
    given = opt.Given.of(context)
    if ANALYSES.load(what).reads_results:
        given.idle(f"for '{what}', which embeds nothing", "--no-store", "--store", "--data")
    else:
        given.idle(f"for '{what}', which reads no results", "--results")
    parameters = opt.parse_assignments(assign)
    endings = [path.suffix.removeprefix(".") for path in out]
    for ending in endings:
        choose("kind of file for --out", ending, {**WRITERS, **dict.fromkeys(FIGURES)})
    made, kept = make_analysis(what, parameters), opt.kept_in(store, no_store=no_store)
    plan = plan_of(encoder, results, catalogue, tasks=tasks, protocol=protocol, data=data, split=split, store=kept)
    with shown_work() as shown:
        listener = shown.listener(what, noticed=complain).raising()
        found = analyse(what, made, plan, parameters=parameters, listener=listener)
    if as_json:
        say(findings_json(found), end="")
    else:
        _print(found, made.about, made.printed)
    for path, ending in zip(out, endings, strict=True):
        content = made.draw(found.tables, found.title) if ending in FIGURES else WRITERS[ending](found)
        emit(content, path, silent=as_json)


def plan_of(names: Sequence[str], results: Path, catalogue: opt.Cards, **more: Any) -> RunPlan:  # noqa: ANN401 - other fields
    """A plan for these encoders, some of whose names the results may tell; raises StsbenchError where none is named."""
    encoders = Names(catalogue).to_load(names, results)
    if not encoders:
        raise StsbenchError("no encoder is named; give some by --encoder A,B")
    return RunPlan(encoders=encoders, out=results, catalogue=catalogue, **more)


def _print(found: Findings, about: str, printed: Sequence[str]) -> None:
    say_words(f"{found.title}, protocol {found.protocol}: {about}")
    say("")
    encoders = {row["encoder"] for rows in found.tables.values() for row in rows if "encoder" in row}
    for name, rows in ((name, found.tables.get(name, [])) for name in printed):
        if not rows:
            continue
        keys, shown = list(rows[0]), rows[:PRINTED_ROWS]
        print_rows(
            [key if key in encoders else key.replace("_", " ") for key in keys],
            [[cut(value_text(value)) for value in row.values()] for row in shown],
            right=[at for at, key in enumerate(keys) if not any(isinstance(row[key], str) for row in shown)],
            names=[at for at, key in enumerate(keys) if key in NAME_COLUMNS],
            heads=[at for at, key in enumerate(keys) if key in encoders],
        )
        say("")
        if len(rows) > PRINTED_ROWS:
            say_words(f"{len(rows) - PRINTED_ROWS} more rows of '{name}' are in a file: --out FILE.csv")
