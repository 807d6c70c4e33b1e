"""``stsbench report``: results, comparisons and figures as one page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.cli import options as opt
from stsbench.cli.analyze import plan_of
from stsbench.cli.printing import (
    CHECKED,
    emit,
    print_error,
    print_errors,
    show_count,
    show_work,
)
from stsbench.cli.wording import describe_error_line
from stsbench.core.errors import DataError, StsbenchError
from stsbench.core.names import split_names

if TYPE_CHECKING:
    from stsbench.bench.plan import RunPlan
    from stsbench.results.record import Result


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
    _config: opt.Config = None,
    cards: opt.OwnCards,
) -> None:
    """Put results, comparisons and figures into one HTML page.

    The page needs no other file and no network, and holds no sentence of a task.

    Example: stsbench report --encoder minilm,glove-6b --out report.html
    """
    from stsbench.analysis.context import AnalysisResult, analyse, make_analysis
    from stsbench.analysis.report import ReportParts, report_html
    from stsbench.boards.tables.build import TableRequest
    from stsbench.significance.comparison import compare

    catalogue = opt.read_cards(cards)
    made = {name: make_analysis(name, {}) for name in split_names(figures)}
    kept, missing = opt.resolve_store(store, no_store=no_store), list[str]()
    plan = plan_of(encoder, results, catalogue, tasks=tasks, data=data, store=kept)
    drawn, boards = list[AnalysisResult](), list[Any]()
    by_encoder, notice = _results(plan, missing)
    with show_work() as shown:
        for name, analysis in made.items():
            listener = shown.make_callbacks(
                name, on_notice=print_error, on_failure=partial(_note, missing, name)
            )
            with _noted(name, missing):
                drawn.append(analyse(name, analysis, plan, parameters={}, callbacks=listener))
    if found := [one for mine in by_encoder.values() for one in mine]:
        with _noted(f"suite {suite}", missing):
            asked = TableRequest(
                catalogue=catalogue, results=found, results_folder=results, show="measured"
            ).make_boards(suite)
            missing.extend(asked.omitted)
            boards += asked.tables
    comparison = None
    if len(by_encoder) > 1:
        with _noted("comparison", missing):
            comparison = compare(by_encoder)
    print_errors("not in the report", missing)
    if notice:
        print_error(notice)
    if not boards and not drawn:
        raise DataError("there is nothing to report of these encoders; the lines above say why")
    report = ReportParts(
        title=title,
        boards=boards,
        comparison=comparison,
        figures=drawn,
        missing=missing,
        notice=notice,
    )
    emit(report_html(report), out)


def _note(missing: list[str], figure: str, what: str, error: Exception) -> None:
    missing.append(f"{figure}: {describe_error_line(error)}")


@contextmanager
def _noted(what: str, missing: list[str]) -> Iterator[None]:
    try:
        yield
    except StsbenchError as error:
        missing.append(f"{what}: {describe_error_line(error)}")


class _ReportResults(NamedTuple):
    """The select_trusted results by encoder, and a line on those of them that are not verified."""

    by_encoder: dict[str, list[Result]]
    notice: str


def _results(plan: RunPlan, missing: list[str]) -> _ReportResults:
    from stsbench.api.names import select_results
    from stsbench.encoders.load import load_named
    from stsbench.evaluators.belief import believe
    from stsbench.results.folder import read_folder
    from stsbench.results.groups import EncoderDirectory

    found: dict[str, list[Result]] = {}
    notice = ""
    with _noted("results", missing):
        held = EncoderDirectory(read_folder(plan.results_folder), plan.catalogue)
        missing.extend(f"results: {problem.message}" for problem in held.folder.problems)
        for name in plan.encoders:
            with _noted("results", missing):
                # What results call an encoder of one's own, or one with its folder in its name.
                called = load_named(name, catalogue=plan.catalogue).name
                found[called] = select_results([called], held, plan.catalogue, plan.results_folder)
        every = [result for results in found.values() for result in results]
        missing.extend(filter(None, [held.describe_omitted(every)]))
        with show_count(CHECKED) as progress:
            select_trusted = believe(every, plan.catalogue, progress)
        missing.extend(f"results: {problem.message}" for problem in select_trusted.problems)
        kept, notice = set(map(id, select_trusted.results)), select_trusted.notice
        found = {
            name: [result for result in results if id(result) in kept]
            for name, results in found.items()
        }
    return _ReportResults(found, notice)
