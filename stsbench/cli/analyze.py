"""``stsbench analyze``: one loop over the analyses, whatever each shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions, parse_assignments, resolve_store
from stsbench.cli.printing import (
    print_error,
    print_paragraph,
    print_text,
    shorten_line,
    show_work,
    write_or_print,
)
from stsbench.cli.tables import print_rows
from stsbench.core.errors import StsbenchError, look_up
from stsbench.plots.labels import FIGURES, figure_width

if TYPE_CHECKING:
    from stsbench.analysis.context import Analysis, AnalysisResult
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
    assign: opt.AnalysisParameters,
    out: opt.AnalysisFiles,
    width: opt.FigureWidth = None,
    results: opt.ResultsFolder = Path("results"),
    data: opt.DataFolder = None,
    store: opt.StoreFolder = None,
    no_store: opt.NoStore = False,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> None:
    """Make a figure as in the papers, as numbers and as a picture.

    WHAT: alignment, similarity, spectrum, layers, tokens, errors, neighbours, robustness, map,
    shift or sweep.

    Example: stsbench analyze alignment --encoder minilm,glove-6b --out alignment.svg
    """
    from stsbench.analysis.context import ANALYSES, WRITERS, analyse, findings_json, make_analysis

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    typed = TypedOptions.from_context(context)
    if ANALYSES.load(what).reads_results:
        typed.forbid(f"for '{what}', which embeds nothing", "--no-store", "--store", "--data")
    else:
        typed.forbid(f"for '{what}', which reads no results", "--results")
    suffixes = [path.suffix.removeprefix(".") for path in out]
    if not {*suffixes} & {*FIGURES}:
        typed.forbid("without a figure as --out", "--width")
    params = parse_assignments(assign)
    for suffix in suffixes:
        look_up("kind of file for --out", suffix, {**WRITERS, **dict.fromkeys(FIGURES)})
    analysis = make_analysis(what, params)
    plan = plan_encoders(
        encoder,
        results,
        catalogue,
        tasks=tasks,
        protocol=protocol,
        data=data,
        split=split,
        store=resolve_store(store, no_store=no_store),
    )
    with show_work() as display:
        callbacks = display.make_callbacks(what, on_notice=print_error).with_raised_failures()
        result = analyse(what, analysis, plan, parameters=params, callbacks=callbacks)
    if as_json:
        print_text(findings_json(result), end="")
    else:
        _print_result(result, analysis)
    for path, suffix in zip(out, suffixes, strict=True):
        if suffix in FIGURES:
            with figure_width(width):
                write_or_print(analysis.draw(result.tables, result.title), path, silent=as_json)
        else:
            write_or_print(WRITERS[suffix](result), path, silent=as_json)


def plan_encoders(
    names: Sequence[str],
    results: Path,
    catalogue: Catalogue,
    **fields: Any,  # noqa: ANN401 - fields of a plan
) -> RunPlan:
    """Return the settings of a run (a RunPlan) for the encoders that a user names.

    Args:
        names: The encoders, as the user calls them: ids, titles, folders, models of the Hub.
        results: The results folder. A name that only its results have is refused with a hint.
        catalogue: The cards of encoders and tasks.
        fields: Further fields of the plan, such as the tasks.

    Raises:
        StsbenchError: There are no names, or a name is of no encoder.
    """
    from stsbench.api.names import NameResolver
    from stsbench.bench.plan import RunPlan

    # The names by which the encoders are loaded.
    specs = NameResolver(catalogue).resolve_specs(names, results)
    if not specs:
        raise StsbenchError("no encoder is named; give some by --encoder A,B")
    return RunPlan(encoders=specs, results_folder=results, catalogue=catalogue, **fields)


def _print_result(result: AnalysisResult, analysis: Analysis) -> None:
    """Print what an analysis is about and the first rows of its tables.

    Args:
        result: The numbers of the analysis: ``tables`` holds the rows of each table by its name,
            and a row its values by column.
        analysis: The kind of analysis: ``about`` is a line on what it shows, ``printed`` the names
            of the tables to print, and ``score_columns`` the columns that are scores, by table.
    """
    from stsbench.analysis.context import row_texts

    print_paragraph(f"{result.title}, protocol {result.protocol}: {analysis.about}")
    print_text("")
    all_rows = [row for rows in result.tables.values() for row in rows]
    encoders = {row["encoder"] for row in all_rows if "encoder" in row}
    for name in analysis.printed:
        rows = result.tables.get(name, [])
        if not rows:
            continue
        keys = list(rows[0])
        printed_rows = rows[:PRINTED_ROWS]
        # A column may be called like an encoder, whose name stays as it is.
        titles = [key if key in encoders else key.replace("_", " ") for key in keys]
        # The values of each row as text; scores are times 100.
        score_columns = analysis.score_columns.get(name, ())
        cells = [[*map(shorten_line, row_texts(row, score_columns))] for row in printed_rows]
        number_columns = [
            index
            for index, key in enumerate(keys)
            if not any(isinstance(row[key], str) for row in printed_rows)
        ]
        # Names may be abbreviated: the cells of ``name_columns`` and the titles of ``name_heads``.
        print_rows(
            titles,
            cells,
            number_columns=number_columns,
            name_columns=[index for index, key in enumerate(keys) if key in NAME_COLUMNS],
            name_heads=[index for index, key in enumerate(keys) if key in encoders],
        )
        print_text("")
        if len(rows) > PRINTED_ROWS:
            print_paragraph(
                f"{len(rows) - PRINTED_ROWS} more rows of '{name}' are in a file: --out FILE.csv"
            )
