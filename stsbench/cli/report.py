"""``stsbench report``: results, comparisons and figures as one page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from stsbench.analysis.context import AnalysisResult, analyse, make_analysis
from stsbench.analysis.report import ReportParts, report_html
from stsbench.api.names import select_results
from stsbench.bench.plan import RunPlan
from stsbench.boards.tables.build import TableRequest
from stsbench.cli import options as opt
from stsbench.cli.analyze import plan_of
from stsbench.cli.printing import complain_of_all, emit, print_error, shown_work
from stsbench.core.errors import DataError, StsbenchError
from stsbench.core.names import split_names
from stsbench.encoders.load import load_named
from stsbench.results.folder import read_folder, verified
from stsbench.results.groups import EncoderDirectory
from stsbench.results.record import Result
from stsbench.significance.comparison import compare


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
    catalogue: opt.Cards,
) -> None:
    """Put results, comparisons and figures into one HTML page.

    The page needs no other file and no network, and holds no sentence of a task.

    Example: stsbench report --encoder minilm,glove-6b --out report.html
    """
    made = {name: make_analysis(name, {}) for name in split_names(figures)}
    kept, missing = opt.resolve_store(store, no_store=no_store), list[str]()
    plan = plan_of(encoder, results, catalogue, tasks=tasks, data=data, store=kept)
    drawn, boards = list[AnalysisResult](), list[Any]()
    by_encoder = _results(plan, missing)
    with shown_work() as shown:
        for name, analysis in made.items():
            listener = shown.listener(
                name, on_notice=print_error, on_failure=partial(_note, missing, name)
            )
            with _noted(name, missing):
                drawn.append(analyse(name, analysis, plan, parameters={}, listener=listener))
    if found := [one for mine in by_encoder.values() for one in mine]:
        with _noted(f"suite {suite}", missing):
            asked = TableRequest(
                catalogue=catalogue, results=found, where=results, show="measured"
            ).boards(suite)
            missing.extend(asked.left_out)
            boards += asked.tables
    comparison = None
    if len(by_encoder) > 1:
        with _noted("comparison", missing):
            comparison = compare(
                {name: verified(mine).results for name, mine in by_encoder.items()}
            )
    complain_of_all("not in the report", missing)
    if not boards and not drawn:
        raise DataError("there is nothing to report of these encoders; the lines above say why")
    report = ReportParts(
        title=title, boards=boards, comparison=comparison, figures=drawn, missing=missing
    )
    emit(report_html(report), out)


def _note(missing: list[str], figure: str, what: str, error: Exception) -> None:
    missing.append(f"{figure}: {error}")


@contextmanager
def _noted(what: str, missing: list[str]) -> Iterator[None]:
    try:
        yield
    except StsbenchError as error:
        missing.append(f"{what}: {error}")


def _results(plan: RunPlan, missing: list[str]) -> dict[str, list[Result]]:
    found: dict[str, list[Result]] = {}
    with _noted("results", missing):
        held = EncoderDirectory(read_folder(plan.results_folder), plan.catalogue)
        missing.extend(f"results: {problem.message}" for problem in held.folder.problems)
        for name in plan.encoders:
            with _noted("results", missing):
                # What results call an encoder of one's own, or one with its folder in its name.
                called = load_named(name, catalogue=plan.catalogue).name
                found[called] = select_results([called], held, plan.catalogue, plan.results_folder)
        missing.extend(
            filter(None, [held.describe_omitted(one for mine in found.values() for one in mine)])
        )
    return found
