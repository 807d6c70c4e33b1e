"""``stsbench leaderboard``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.printing import (
    emit,
    print_error,
    print_errors,
    print_paragraph,
    print_table,
    select_trusted,
    show_count,
)
from stsbench.core.errors import StsbenchError
from stsbench.plots.labels import FIGURES

if TYPE_CHECKING:
    from stsbench.boards.tables.table import Show, Table
    from stsbench.core.catalogue import Catalogue

if TYPE_CHECKING:
    from stsbench.boards.exports.mteb import ImportedScores

RESULTS = Path("results")
OF_SEEDS = (
    "±: deviation over seeds; scores are means over all seeds that the results folder holds, where 'stsbench run' shows "
    "those of its --seeds"
)


def leaderboard_command(
    context: opt.Context,
    *,
    results: opt.ResultsIfAny = None,
    table: opt.Table = None,
    suite: opt.Suite = "sts",
    protocol: opt.OnlyProtocol = None,
    output: opt.BoardFormat = "terminal",
    show: opt.Show = None,
    exact: opt.ExactAverages = False,
    encoder: opt.OnlyEncoders,
    add: opt.AddedRows,
    rows_only: opt.RowsOnly = False,
    ranks: opt.Ranks = False,
    mteb: opt.MtebFolder = None,
    out: opt.TableFile = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> None:
    """Print a table of results, or a paper's.

    Measured and published scores stand side by side.

    Example: stsbench leaderboard --table simcse-5 --add minilm:Ours
    """
    from stsbench.api.names import parse_added_rows, select_results
    from stsbench.boards.published.rows import read_table_card
    from stsbench.boards.render.formats import TERMINAL, check_format, render
    from stsbench.boards.tables.build import TableRequest, find_suite
    from stsbench.boards.tables.table import check_show
    from stsbench.results.folder import ResultFolder, read_folder
    from stsbench.results.groups import EncoderDirectory

    catalogue = opt.read_cards(cards)
    fmt, shown = check_format(opt.choose_format(output, out, as_json=as_json)), check_show(show)
    _check_options(opt.TypedOptions.from_context(context), fmt, table, show, out)
    # A wrong name is refused before any result is read.
    if table is not None:
        read_table_card(table)
    else:
        find_suite(suite, catalogue)
    # Published and imported rows stand alone where no results are asked for and there is no folder.
    where = results or RESULTS
    alone = (table or mteb) and not (results or encoder or add or where.is_dir())
    encoders = EncoderDirectory(ResultFolder([], []) if alone else read_folder(where), catalogue)
    print_errors("skipped", (problem.message for problem in encoders.folder.problems))
    added, chosen = (
        parse_added_rows(add, encoders, catalogue, where),
        select_results(encoder, encoders, catalogue, where),
    )
    wanted = {id(result) for one in (chosen, *(one.results for one in added)) for result in one}
    found = [result for result in encoders.folder.all_results if id(result) in wanted]
    with show_count("rows with intervals") as progress:
        asked = TableRequest(
            catalogue=catalogue, results=found, results_folder=where, added=added, protocol=protocol, show=shown, ranks=ranks,
            imported=_imported(mteb, catalogue) if mteb else None, progress=progress,
            select_trusted=partial(select_trusted, catalogue=catalogue),
        )  # fmt: skip
        made = asked.make_boards(suite) if table is None else asked.make_table(table)
    print_errors("skipped", made.omitted)
    for line in filter(None, [*made.advice, encoders.describe_omitted(found)]):
        print_error(line)
    tables = made.tables
    if rows_only and add:
        tables = [one.map_rows(lambda row: row if row.is_added else None) for one in tables]
    if fmt == TERMINAL:
        _print_boards(tables, shown, exact=exact)
    elif fmt in FIGURES:
        from stsbench.boards.render.figures import table_figure

        emit(table_figure(tables, shown, exact=exact), out, fmt=fmt)
    else:
        emit(render(tables, fmt, show=shown, exact=exact, rows_only=rows_only), out)


def _imported(folder: Path, catalogue: Catalogue) -> ImportedScores:
    from stsbench.boards.exports.mteb import read_mteb

    return read_mteb(folder, catalogue)


def _check_options(
    given: opt.TypedOptions, fmt: str, table: str | None, show: str | None, out: Path | None
) -> None:
    from stsbench.boards.render.formats import TERMINAL

    given.forbid_beside("--table", "--suite", "--protocol")
    given.forbid_beside("--json", "--format")
    if fmt in FIGURES and out is None:
        raise StsbenchError(f"--format {fmt} is a figure; add --out FILE")
    if fmt in ("csv", "json"):
        given.forbid(f"as {fmt}, which holds both averages", "--exact")
    if table and fmt == "json":
        given.forbid("as json, which holds all that there is", "--show")
    if show == "published":
        given.forbid(
            "with --show published",
            "--ranks",
            "--add",
            *(("--results", "--encoder") if table else ()),
        )
    if show in ("measured", "difference"):
        given.forbid(f"with --show {show}", "--mteb")
    if table and show == "difference":
        given.forbid("with --show difference, for no paper prints an added row", "--add")
    if fmt in FIGURES:
        given.forbid("in a figure", "--rows-only")
    if fmt == TERMINAL:
        given.forbid("in the terminal, only with --format latex, markdown or csv", "--rows-only")


def _print_boards(tables: Sequence[Table], show: Show | None, *, exact: bool) -> None:
    from stsbench.boards.tables.layout import build_layout

    for one in tables:
        print_table(build_layout(one, show, exact=exact))
    cells = (cell for one in tables for row in one.rows() for cell in row.cells.values())
    if any(cell.measured and cell.measured.seeds > 1 for cell in cells):
        print_paragraph(OF_SEEDS)
