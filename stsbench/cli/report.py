"""``stsbench report``: results, comparisons and figures of some encoders as one page."""

from __future__ import annotations

from collections.abc import Sequence

from stsbench.analysis.report import ReportParts, report_html
from stsbench.analysis.run import analyse, make_analysis
from stsbench.analysis.seams import Findings
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.names import split_names
from stsbench.cli.names import Names, chosen_results
from stsbench.cli.options.analyses import ReportOptions
from stsbench.cli.printing import complain_of_all, say
from stsbench.cli.progress import status_listener
from stsbench.compare.comparison import Comparison, compare
from stsbench.encoders.loading import find_encoder
from stsbench.errors import DataError, StsbenchError
from stsbench.files.whole import write_whole
from stsbench.leaderboard.tables.asked import Asked
from stsbench.leaderboard.tables.table import Table
from stsbench.results.folder import scan_results, verified
from stsbench.results.record import Result


def report_command(options: ReportOptions) -> None:
    """Write the page; what cannot be had is told on it and in the terminal.

    Raises:
        DataError: nothing at all can be had.
    """
    catalogue = Catalogue(options.cards)
    figures = split_names(options.figures)
    for name in figures:
        make_analysis(name, {})
    encoders = Names(catalogue).to_load(options.encoder, options.results)
    if not encoders:
        raise StsbenchError("no encoder is named; give some by --encoder A,B")
    missing: list[str] = []
    by_encoder = _results(options, encoders, catalogue, missing)
    report = ReportParts(
        title=options.title,
        boards=_boards(options, [one for mine in by_encoder.values() for one in mine], catalogue, missing),
        comparison=_comparison(by_encoder, missing),
        figures=_figures(options, figures, encoders, catalogue, missing),
        missing=missing,
    )
    complain_of_all("not in the report", missing)
    if not report.boards and not report.figures:
        raise DataError("there is nothing to report of these encoders; the lines above say why")
    write_whole(options.out, report_html(report).encode())
    say(f"wrote {options.out}")


def _results(
    options: ReportOptions, encoders: Sequence[str], catalogue: Catalogue, missing: list[str]
) -> dict[str, list[Result]]:
    """Each encoder's results in the folder, of those that have some."""
    found: dict[str, list[Result]] = {}
    try:
        held = scan_results(options.results).results
    except StsbenchError as error:
        missing.append(f"results: {error}")
        return found
    for name in encoders:
        try:
            # What results call an encoder of one's own, or one with its folder in its name.
            called = find_encoder(name, catalogue=catalogue).name
            found[called] = chosen_results([called], held, catalogue, options.results)
        except StsbenchError as error:
            missing.append(f"results: {error}")
    return found


def _boards(
    options: ReportOptions, results: Sequence[Result], catalogue: Catalogue, missing: list[str]
) -> Sequence[Table]:
    if not results:
        return []
    try:
        made = Asked(catalogue=catalogue, results=results, where=options.results, show="measured").boards(options.suite)
    except StsbenchError as error:
        missing.append(f"suite {options.suite}: {error}")
        return []
    missing.extend(made.left_out)
    return made.tables


def _comparison(by_encoder: dict[str, list[Result]], missing: list[str]) -> Comparison | None:
    if len(by_encoder) < 2:
        return None
    try:
        return compare({name: verified(results).results for name, results in by_encoder.items()})
    except StsbenchError as error:
        missing.append(f"comparison: {error}")
        return None


def _figures(
    options: ReportOptions, figures: Sequence[str], encoders: Sequence[str], catalogue: Catalogue, missing: list[str]
) -> list[Findings]:
    """Each figure of all encoders that it can be made of."""
    found = []
    with status_listener() as listener_of:
        for name in figures:

            def failed(what: str, error: StsbenchError, figure: str = name) -> None:
                missing.append(f"{figure}: {error}")

            try:
                found.append(
                    analyse(
                        name,
                        make_analysis(name, {}),
                        encoders,
                        tasks=options.tasks,
                        parameters={},
                        catalogue=catalogue,
                        data=options.data,
                        store=None if options.no_store else options.store or "default",
                        results=options.results,
                        listener=listener_of(name),
                        failed=failed,
                    )
                )
            except StsbenchError as error:
                missing.append(f"{name}: {error}")
    return found
