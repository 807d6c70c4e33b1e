"""``stsbench report``: results, comparisons and figures of some encoders as one page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from typer import Context

from stsbench.analysis.report import ReportParts, report_html
from stsbench.analysis.run import analyse, make_analysis
from stsbench.api.names import Names, chosen_results
from stsbench.boards.tables.build import Asked
from stsbench.boards.tables.table import Table
from stsbench.cli import options as opt
from stsbench.cli.printing import complain, complain_of_all, write_or_say
from stsbench.cli.progress import shown_work
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError, split_names
from stsbench.encoders.load import find_encoder
from stsbench.results.folder import read_folder, verified
from stsbench.results.groups import Encoders
from stsbench.results.record import Result
from stsbench.significance.comparison import Comparison, compare


def report_command(
    context: Context,
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
    config: opt.Config = None,
    cards: opt.Cards,
) -> None:
    """Put results, comparisons and figures into one HTML page.

    The page needs no other file and no network, and holds no sentence of a task.

    Example: stsbench report --encoder minilm,glove-6b --out report.html
    """
    opt.Given.of(context).apart("--no-store", "--store")
    catalogue = Catalogue(cards)
    made = {name: make_analysis(name, {}) for name in split_names(figures)}
    encoders = Names(catalogue).to_load(encoder, results)
    if not encoders:
        raise StsbenchError("no encoder is named; give some by --encoder A,B")
    missing: list[str] = []
    by_encoder = _results(results, encoders, catalogue, missing)
    drawn = []
    with shown_work() as shown:
        for name, analysis in made.items():
            with _noted(name, missing):
                drawn.append(
                    analyse(
                        name,
                        analysis,
                        encoders,
                        tasks=tasks,
                        parameters={},
                        catalogue=catalogue,
                        data=data,
                        store=opt.kept_in(store, no_store=no_store),
                        results=results,
                        listener=shown.listener(name, noticed=complain),
                        failed=_noter(name, missing),
                    )
                )
    report = ReportParts(
        title=title,
        boards=_boards([one for mine in by_encoder.values() for one in mine], suite, results, catalogue, missing),
        comparison=_comparison(by_encoder, missing),
        figures=drawn,
        missing=missing,
    )
    complain_of_all("not in the report", missing)
    if not report.boards and not report.figures:
        raise DataError("there is nothing to report of these encoders; the lines above say why")
    write_or_say(report_html(report), out)


def _noter(figure: str, missing: list[str]) -> Callable[[str, StsbenchError], None]:
    """What notes an encoder that a figure cannot be made of."""
    return lambda what, error: missing.append(f"{figure}: {error}")


@contextmanager
def _noted(what: str, missing: list[str]) -> Iterator[None]:
    """Note what cannot be had instead of ending the report."""
    try:
        yield
    except StsbenchError as error:
        missing.append(f"{what}: {error}")


def _results(
    folder: Path, encoders: Sequence[str], catalogue: Catalogue, missing: list[str]
) -> dict[str, list[Result]]:
    """Each encoder's results in the folder, of those that have some."""
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


def _boards(
    results: Sequence[Result], suite: str, where: Path, catalogue: Catalogue, missing: list[str]
) -> Sequence[Table]:
    if results:
        with _noted(f"suite {suite}", missing):
            made = Asked(catalogue=catalogue, results=results, where=where, show="measured").boards(suite)
            missing.extend(made.left_out)
            return made.tables
    return []


def _comparison(by_encoder: dict[str, list[Result]], missing: list[str]) -> Comparison | None:
    if len(by_encoder) > 1:
        with _noted("comparison", missing):
            return compare({name: verified(results).results for name, results in by_encoder.items()})
    return None
