"""``stsbench report``: results, comparisons and figures as one page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stsbench.cli import options as opt
from stsbench.cli.analyze import plan_encoders
from stsbench.cli.option_values import resolve_store
from stsbench.cli.printing import (
    CHECKING_LABEL,
    print_error,
    print_errors,
    show_count,
    show_work,
    write_or_print,
)
from stsbench.cli.wording import (
    describe_error_line,
    notes_with_commands,
    replace_parameters_by_options,
)
from stsbench.core.errors import DataError, StsbenchError
from stsbench.core.grouping import group_by
from stsbench.core.names import split_names

if TYPE_CHECKING:
    from stsbench.bench.plan import RunPlan
    from stsbench.boards.tables.table import Table
    from stsbench.results.record import Result


def report_command(
    *,
    encoder: opt.Encoders,
    figures: opt.Figures = (
        "alignment, similarity, spectrum, layers, errors, neighbours, robustness, map"
    ),
    tasks: opt.TaskOfReport = None,
    suite: opt.SuiteOfReport = None,
    title: opt.Title = "Sentence encoders",
    out: opt.ReportFile = Path("report.html"),
    results: opt.ResultsFolder = Path("results"),
    data: opt.DataFolder = None,
    store: opt.StoreFolder = None,
    no_store: opt.NoStore = False,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
) -> None:
    """Put results, comparisons and figures into one HTML page.

    The page needs no other file and no network, and holds no sentence of a task.

    Example: stsbench report --encoder minilm,glove-6b --out report.html
    """
    from stsbench.analysis.context import AnalysisResult, analyse, check_is_one_task, make_analysis
    from stsbench.analysis.report import ReportParts, report_html
    from stsbench.api.results import build_comparison
    from stsbench.boards.tables.request import find_suite

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    # A wrong name is refused before minutes of work.
    if suite:
        find_suite(suite, catalogue)
    analyses = {name: make_analysis(name, parameters={}) for name in split_names(figures)}
    plan = plan_encoders(
        encoder,
        results,
        catalogue,
        tasks=tasks or "stsb",
        data=data,
        store=resolve_store(store, no_store=no_store),
    )
    if analyses:
        check_is_one_task(plan)
    # What is missing, and why: the report goes on without it.
    missing: list[str] = []
    names_by_spec = _name_encoders(plan, missing)
    trusted = _read_trusted_results(plan, names_by_spec, suite, missing)
    plan = replace(plan, encoders=[*names_by_spec])
    suite_tasks = find_suite(trusted.suite, catalogue).tasks
    scored_tasks = {result.task for result in trusted.results}
    figure_tasks = [task for task in suite_tasks if task in scored_tasks] or suite_tasks
    if not tasks and plan.tasks not in figure_tasks:
        plan = replace(plan, tasks=figure_tasks[0])
    # The figures that cannot be made, by the reason.
    figures_by_reason: dict[str, list[str]] = {}
    analysis_results: list[AnalysisResult] = []
    with show_work() as display:
        for name, analysis in analyses.items() if names_by_spec else ():
            on_failure = partial(_add_failure, figures_by_reason, name)
            callbacks = display.make_callbacks(name, on_notice=print_error, on_failure=on_failure)
            try:
                analysis_results.append(
                    analyse(name, analysis, plan, parameters={}, callbacks=callbacks)
                )
            except StsbenchError as error:
                on_failure("", error)
    missing.extend(f"{', '.join(names)}{reason}" for reason, names in figures_by_reason.items())
    boards = _make_boards(trusted, plan, missing) if trusted.results else []
    comparison = None
    results_by_encoder = group_by(trusted.results, lambda result: result.encoder)
    if len(results_by_encoder) > 1:
        with _collect_error("comparison", missing):
            comparison = build_comparison(
                results_by_encoder, catalogue, tasks=suite_tasks, all_pairs=True
            )
            comparison = replace(comparison, notes=notes_with_commands(comparison.notes))
    print_errors("not in the report", missing)
    if trusted.notice:
        print_error(trusted.notice)
    if not boards and not analysis_results:
        raise DataError("there is nothing to report of these encoders; the lines above say why")
    parts = ReportParts(
        title=title,
        boards=boards,
        comparison=comparison,
        figures=analysis_results,
        missing=missing,
        notice=replace_parameters_by_options(trusted.notice),
    )
    write_or_print(report_html(parts), out)


def _make_boards(trusted: _TrustedResults, plan: RunPlan, missing: list[str]) -> Sequence[Table]:
    """Return the boards of a suite: tables of encoders by its tasks, one per protocol.

    Args:
        trusted: The results of all encoders, and the name of the suite, a list of tasks.
        plan: The settings: the cards and the results folder.
        missing: A list of the caller, with lines on what is not in the report. A line is appended
            on results that are in no board, or on why there is no board.

    Returns:
        The boards; empty if they cannot be made.
    """
    from stsbench.boards.tables.request import TableRequest

    # An error in this block is appended to ``missing``.
    with _collect_error(f"suite {trusted.suite}", missing):
        table_set = TableRequest(
            catalogue=plan.catalogue,
            results=trusted.results,
            results_folder=plan.results_folder,
            # No published scores beside those of the results.
            show="measured",
        ).make_boards(trusted.suite)
        missing.extend(table_set.omitted)
        # In notes, what a user of Python is advised to do becomes a command.
        return [
            replace(table, measured_notes=notes_with_commands(table.measured_notes))
            for table in table_set.tables
        ]
    return []


def _add_failure(
    figures_by_reason: dict[str, list[str]], figure: str, label: str, error: Exception
) -> None:
    """Add a figure to those that cannot be made for a reason.

    Args:
        figures_by_reason: The names of figures by the end of their line, ": reason", to which the
            figure is added.
        figure: The name of the figure.
        label: The encoder that it lacks; empty if it cannot be made at all.
        error: The reason.
    """
    of_label = f" of {label}" if label else ""
    figures = figures_by_reason.setdefault(f"{of_label}: {describe_error_line(error)}", [])
    figures.append(figure)


@contextmanager
def _collect_error(label: str, missing: list[str]) -> Iterator[None]:
    """Append an error of the block to what is missing, and go on behind the block."""
    try:
        yield
    except StsbenchError as error:
        missing.append(f"{label}: {describe_error_line(error)}")


class _TrustedResults(NamedTuple):
    """The results that are trusted: those that do not disagree with their per-item columns."""

    results: Sequence[Result]
    notice: str
    """A line on those that are not verified; empty if there are none."""
    suite: str
    """The suite of the report: the user's, or one that there are results of, of all if possible."""


def _name_encoders(plan: RunPlan, missing: list[str]) -> dict[str, str]:
    """Return the name in results of each encoder that can be loaded, by the user's name of it.

    They differ, for example, if the user's name is a path.

    Args:
        plan: The settings: the encoders.
        missing: A list of the caller, with lines on what is not in the report. A line is appended
            on each encoder that cannot be loaded.
    """
    from stsbench.encoders.load import load_named

    names_by_spec = {}
    for spec in plan.encoders:
        with _collect_error(spec, missing):
            names_by_spec[spec] = load_named(spec, catalogue=plan.catalogue).name
    return names_by_spec


def _read_trusted_results(
    plan: RunPlan, names_by_spec: Mapping[str, str], suite: str | None, missing: list[str]
) -> _TrustedResults:
    """Return the results of some encoders whose score is what their per-item columns give.

    Per-item columns hold one value per scored pair or sentence, from which a score is recomputed.
    Results without them are returned too.

    Args:
        plan: The settings: the cards and the results folder.
        names_by_spec: The name in results of each encoder, by the user's name of it.
        suite: The suite that the user names; None for one that all measured encoders have results
            of, or else one that some have results of.
        missing: A list of the caller, with lines on what is not in the report. Lines are appended
            on files and encoders that cannot be read, on encoders without results, on older results
            and on those whose score is wrong.

    Returns:
        The current results, a line on those that could not be verified, and the suite.
    """
    from stsbench.api.selection import select_results
    from stsbench.boards.tables.request import TableRequest
    from stsbench.data.task import DEFAULT_SUITE
    from stsbench.evaluators.belief import believe
    from stsbench.results.folder import read_folder
    from stsbench.results.groups import EncoderDirectory

    results: list[Result] = []
    notice = ""
    # An error in this block is appended to ``missing``.
    with _collect_error("results", missing):
        directory = EncoderDirectory(read_folder(plan.results_folder), plan.catalogue)
        # Their current and older results.
        stored_results = [
            result
            for result in directory.result_folder.all_results
            if result.encoder in names_by_spec.values()
        ]
        measured_names = {result.encoder for result in stored_results}
        # Those of tasks that all measured encoders have results of, so that they can be compared.
        common_results = [
            result
            for task_results in group_by(stored_results, lambda result: result.task).values()
            if {result.encoder for result in task_results} == measured_names
            for result in task_results
        ]
        request = TableRequest(catalogue=plan.catalogue, results=common_results or stored_results)
        suite = suite or request.guess_suite() or DEFAULT_SUITE
        for spec, name in names_by_spec.items():
            with _collect_error("results", missing):
                if name not in measured_names:
                    missing.append(
                        f"board: {name}: not measured; run: "
                        f"{shlex.join(['stsbench', 'run', spec, '--tasks', suite])}"
                    )
                    continue
                results += select_results(
                    [name],
                    encoders=directory,
                    catalogue=plan.catalogue,
                    location=plan.results_folder,
                )
        # On the older results of these encoders; empty if there are none.
        if omitted_notice := directory.describe_omitted(results):
            missing.append(omitted_notice)
        with show_count(CHECKING_LABEL) as progress:
            # ``results``: all but those with a wrong score, which are ``problems``.
            verified = believe(results, plan.catalogue, progress)
        for problem in (*directory.result_folder.problems, *verified.problems):
            missing.append(f"results: {problem.message}")
        results, notice = verified.results, verified.notice
    return _TrustedResults(results, notice, suite or DEFAULT_SUITE)
