"""``stsbench analyze`` and ``stsbench report``: one loop over the analyses, whatever each shows; all as one page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from stsbench.analysis.report import ReportParts, report_html
from stsbench.analysis.run import ANALYSES, WRITERS, Analysis, Findings, analyse, findings_json, make_analysis
from stsbench.api.names import Names, chosen_results
from stsbench.bench.plan import RunPlan
from stsbench.boards.tables.build import Asked
from stsbench.boards.tables.table import Table
from stsbench.cli import options as opt
from stsbench.cli.printing import complain, complain_of_all, cut, say, say_words, write_or_say
from stsbench.cli.progress import shown_work
from stsbench.cli.screen import print_rows
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError, choose, split_names
from stsbench.core.files import write_whole
from stsbench.encoders.load import find_encoder
from stsbench.plots import FIGURES
from stsbench.results.folder import read_folder, verified
from stsbench.results.groups import Encoders
from stsbench.results.record import Result
from stsbench.significance.comparison import compare

MOST = 40
"""So many rows of a table are printed; files hold all."""
NAMES = ("encoder", "other", "recipe")
"""Columns of names."""


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
    cards: opt.Cards,
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
    catalogue, parameters = Catalogue(cards), opt.parse_assignments(assign)
    endings = [path.suffix.removeprefix(".") for path in out]
    for ending in endings:
        choose("kind of file for --out", ending, {**WRITERS, **dict.fromkeys(FIGURES)})
    made = make_analysis(what, parameters)
    encoders = Names(catalogue).to_load(encoder, results)
    if not encoders:
        raise StsbenchError("no encoder is named; give some by --encoder A,B")
    kept = opt.kept_in(store, no_store=no_store)
    plan = RunPlan(
        tasks=tasks,
        encoders=encoders,
        protocol=protocol,
        data=data,
        split=split,
        store=kept,
        catalogue=catalogue,
        out=results,
    )
    with shown_work() as shown:
        found = analyse(
            what, made, plan, parameters=parameters, listener=shown.listener(what, noticed=complain).raising()
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


def _print(found: Findings, made: Analysis) -> None:
    say_words(f"{found.title}, protocol {found.protocol}: {made.about}")
    say("")
    encoders = {row["encoder"] for rows in found.tables.values() for row in rows if "encoder" in row}
    for name, rows in ((name, found.tables.get(name, [])) for name in made.printed):
        if not rows:
            continue
        keys, shown = list(rows[0]), rows[:MOST]
        print_rows(
            [key if key in encoders else key.replace("_", " ") for key in keys],
            [[*map(cell_text, row.values())] for row in shown],
            right=[at for at, key in enumerate(keys) if not any(isinstance(row[key], str) for row in shown)],
            names=[at for at, key in enumerate(keys) if key in NAMES],
            heads=[at for at, key in enumerate(keys) if key in encoders],
        )
        say("")
        if len(rows) > MOST:
            say_words(f"{len(rows) - MOST} more rows of '{name}' are in a file: --out FILE.csv")


def cell_text(value: object) -> str:
    """A value as a table shows it: numbers with four digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else cut(str(value))
    return f"{value}" if isinstance(value, int) else "–" if math.isnan(value) else f"{value:.4f}"


def report_command(
    *,
    encoder: opt.Encoders,
    figures: opt.Figures = "alignment,similarity,spectrum,layers,errors,neighbours,robustness,map",
    tasks: opt.OneTask = "stsb",
    suite: opt.Suite = "sts",
    title: opt.Title = "Sentence encoders",
    out: opt.ReportFile = Path("report.html"),
    results: opt.ResultsFolder = Path("results"),
    data: opt.Data = None,
    store: opt.Store = None,
    no_store: opt.NoStore = False,
    cards: opt.Cards,
) -> None:
    """Put results, comparisons and figures into one HTML page.

    The page needs no other file and no network, and holds no sentence of a task.

    Example: stsbench report --encoder minilm,glove-6b --out report.html
    """
    catalogue = Catalogue(cards)
    made = {name: make_analysis(name, {}) for name in split_names(figures)}
    encoders = Names(catalogue).to_load(encoder, results)
    if not encoders:
        raise StsbenchError("no encoder is named; give some by --encoder A,B")
    missing, drawn, boards = list[str](), list[Findings](), list[Table]()

    by_encoder = _results(results, encoders, catalogue, missing)
    kept = opt.kept_in(store, no_store=no_store)
    plan = RunPlan(tasks=tasks, encoders=encoders, data=data, store=kept, catalogue=catalogue, out=results)
    with shown_work() as shown:
        for name, analysis in made.items():
            listener = shown.listener(name, noticed=complain, failed=partial(_note, missing, name))
            with _noted(name, missing):
                drawn.append(analyse(name, analysis, plan, parameters={}, listener=listener))
    if found := [one for mine in by_encoder.values() for one in mine]:
        with _noted(f"suite {suite}", missing):
            asked = Asked(catalogue=catalogue, results=found, where=results, show="measured").boards(suite)
            missing.extend(asked.left_out)
            boards += asked.tables
    comparison = None
    if len(by_encoder) > 1:
        with _noted("comparison", missing):
            comparison = compare({name: verified(mine).results for name, mine in by_encoder.items()})
    complain_of_all("not in the report", missing)
    if not boards and not drawn:
        raise DataError("there is nothing to report of these encoders; the lines above say why")
    report = ReportParts(title=title, boards=boards, comparison=comparison, figures=drawn, missing=missing)
    write_or_say(report_html(report), out)


def _note(missing: list[str], figure: str, what: str, error: Exception) -> None:
    missing.append(f"{figure}: {error}")


@contextmanager
def _noted(what: str, missing: list[str]) -> Iterator[None]:
    try:
        yield
    except StsbenchError as error:
        missing.append(f"{what}: {error}")


def _results(
    folder: Path, encoders: Sequence[str], catalogue: Catalogue, missing: list[str]
) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    with _noted("results", missing):
        held = Encoders(read_folder(folder), catalogue)
        missing.extend(f"results: {problem.line}" for problem in held.found.problems)
        for name in encoders:
            with _noted("results", missing):
                # What results call an encoder of one's own, or one with its folder in its name.
                called = find_encoder(name, catalogue=catalogue).name
                found[called] = chosen_results([called], held, catalogue, folder)
        missing.extend(filter(None, [held.older_line(one for mine in found.values() for one in mine)]))
    return found
