"""``stsbench analyze``: one loop over the analyses, whatever each shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.printing import (
    emit,
    print_error,
    print_paragraph,
    print_rows,
    print_text,
    shorten_line,
    show_work,
)
from stsbench.core.errors import StsbenchError, look_up
from stsbench.plots.labels import FIGURES

if TYPE_CHECKING:
    from stsbench.analysis.context import AnalysisResult
    from stsbench.bench.plan import RunPlan
    from stsbench.core.catalogue import Catalogue

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
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> None:
    """Make a figure of the papers, as numbers and as a picture.

    WHAT: alignment, similarity, spectrum, layers, tokens, errors, neighbours, robustness, map, shift or sweep.

    Example: stsbench analyze alignment --encoder minilm,glove-6b --out alignment.svg
    """
    from stsbench.analysis.context import ANALYSES, WRITERS, analyse, findings_json, make_analysis

    catalogue = opt.read_cards(cards)
    given = opt.TypedOptions.from_context(context)
    if ANALYSES.load(what).reads_results:
        given.forbid(f"for '{what}', which embeds nothing", "--no-store", "--store", "--data")
    else:
        given.forbid(f"for '{what}', which reads no results", "--results")
    parameters = opt.parse_assignments(assign)
    endings = [path.suffix.removeprefix(".") for path in out]
    for ending in endings:
        look_up("kind of file for --out", ending, {**WRITERS, **dict.fromkeys(FIGURES)})
    made, kept = make_analysis(what, parameters), opt.resolve_store(store, no_store=no_store)
    plan = plan_of(
        encoder,
        results,
        catalogue,
        tasks=tasks,
        protocol=protocol,
        data=data,
        split=split,
        store=kept,
    )
    with show_work() as shown:
        listener = shown.make_callbacks(what, on_notice=print_error).with_raised_failures()
        found = analyse(what, made, plan, parameters=parameters, callbacks=listener)
    if as_json:
        print_text(findings_json(found), end="")
    else:
        _print(found, made.about, made.printed)
    for path, ending in zip(out, endings, strict=True):
        content = (
            made.draw(found.tables, found.title) if ending in FIGURES else WRITERS[ending](found)
        )
        emit(content, path, silent=as_json)


def plan_of(names: Sequence[str], results: Path, catalogue: Catalogue, **more: Any) -> RunPlan:  # noqa: ANN401 - other fields
    """A plan for these encoders, some of whose names the results may tell; raises StsbenchError where none is named."""
    from stsbench.api.names import NameResolver
    from stsbench.bench.plan import RunPlan

    encoders = NameResolver(catalogue).resolve_specs(names, results)
    if not encoders:
        raise StsbenchError("no encoder is named; give some by --encoder A,B")
    return RunPlan(encoders=encoders, results_folder=results, catalogue=catalogue, **more)


def _print(found: AnalysisResult, about: str, printed: Sequence[str]) -> None:
    from stsbench.analysis.context import value_text

    print_paragraph(f"{found.title}, protocol {found.protocol}: {about}")
    print_text("")
    encoders = {
        row["encoder"] for rows in found.tables.values() for row in rows if "encoder" in row
    }
    for name, rows in ((name, found.tables.get(name, [])) for name in printed):
        if not rows:
            continue
        keys, shown = list(rows[0]), rows[:PRINTED_ROWS]
        print_rows(
            [key if key in encoders else key.replace("_", " ") for key in keys],
            [[shorten_line(value_text(value)) for value in row.values()] for row in shown],
            right=[
                at
                for at, key in enumerate(keys)
                if not any(isinstance(row[key], str) for row in shown)
            ],
            names=[at for at, key in enumerate(keys) if key in NAME_COLUMNS],
            heads=[at for at, key in enumerate(keys) if key in encoders],
        )
        print_text("")
        if len(rows) > PRINTED_ROWS:
            print_paragraph(
                f"{len(rows) - PRINTED_ROWS} more rows of '{name}' are in a file: --out FILE.csv"
            )
