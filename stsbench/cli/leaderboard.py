"""``stsbench leaderboard``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions, choose_format, retype_options
from stsbench.cli.printing import (
    print_error,
    print_errors,
    print_paragraph,
    select_trusted,
    show_count,
    write_or_print,
)
from stsbench.cli.tables import print_table
from stsbench.cli.wording import notes_with_commands
from stsbench.core.errors import StsbenchError
from stsbench.plots.labels import FIGURES, figure_width

if TYPE_CHECKING:
    from stsbench.boards.tables.layout import Intervals
    from stsbench.boards.tables.table import Show, Table
    from stsbench.core.catalogue import Catalogue
    from stsbench.results.groups import EncoderDirectory

SEEDS_LEGEND = (
    "±: deviation over seeds; scores are means over all seeds that the results folder holds, "
    "where 'stsbench run' shows those of its --seeds"
)


def leaderboard_command(
    context: opt.Context,
    *,
    results: opt.OptionalResultsFolder = None,
    table: opt.TableName = None,
    suite: opt.SuiteName = None,
    protocol: opt.OnlyProtocol = None,
    output: opt.BoardFormat = "terminal",
    show: opt.ShownNumbers = None,
    exact: opt.ExactAverages = False,
    encoder: opt.OnlyEncoders,
    add: opt.AddedRows,
    rows_only: opt.RowsOnly = False,
    ranks: opt.Ranks = False,
    significance_against: opt.SignificanceAgainst = None,
    detectable: opt.Detectable = False,
    mteb: opt.MtebFolder = None,
    language: opt.RowLanguage = None,
    max_parameters: opt.MaxParameters = None,
    license_name: opt.License = None,
    only_open: opt.OnlyOpen = False,
    sort: opt.SortedBy = None,
    top: opt.Top = None,
    columns: opt.FactColumns,
    max_ms: opt.MaxMilliseconds = None,
    intervals: opt.ShownIntervals = "average",
    max_lines: opt.MaxLines = None,
    out: opt.TableFile = None,
    width: opt.FigureWidth = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> None:
    """Print a table of results, or a paper's table.

    Measured and published scores are printed together.

    Example: stsbench leaderboard --table simcse-5 --add minilm:Ours
    Example: stsbench leaderboard --table simcse-5 --detectable
    """
    from stsbench.api.selection import make_requested_tables
    from stsbench.boards.mteb.scores import read_mteb_files
    from stsbench.boards.render.formats import TERMINAL, WRITERS, render
    from stsbench.boards.tables.filters import RowFilter
    from stsbench.boards.tables.layout import check_intervals
    from stsbench.boards.tables.request import DEFAULT_FOLDER, TableRequest, needs_own_results
    from stsbench.boards.tables.table import check_show

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    fmt = choose_format(output, out, (*WRITERS, *FIGURES), as_json=as_json)
    numbers = check_show(show)
    shown_intervals = check_intervals(intervals)
    _check_options(TypedOptions.from_context(context), fmt, table, show, out)
    row_filter = RowFilter.from_texts(
        language=language,
        max_parameters=max_parameters,
        license=license_name,
        only_open=only_open,
        sort=sort,
        top=top,
        columns=columns,
        max_ms=max_ms,
    )
    # A wrong name is refused before any result is read.
    needs_results = needs_own_results(
        table, suite, catalogue, numbers, has_imported=mteb is not None, detectable=detectable
    )
    folder = results or DEFAULT_FOLDER
    # Without a folder of results, published and imported rows are shown alone, unless an option
    # requires results.
    is_optional = (mteb is not None or not needs_results) and not (results or encoder or add)
    directory = _read_directory(folder, catalogue, is_optional=is_optional)
    with show_count("intervals and ranks") as progress:
        request = TableRequest(
            catalogue=catalogue,
            results_folder=folder,
            protocol=protocol,
            show=numbers,
            mean_intervals=shown_intervals != "none",
            ranks=ranks,
            detectable=detectable,
            imported=read_mteb_files(mteb) if mteb else None,
            row_filter=row_filter,
            progress=progress,
            select_trusted=partial(select_trusted, catalogue=catalogue),
        )
        requested = make_requested_tables(
            request,
            directory,
            table=table,
            suite=suite,
            encoders=encoder,
            added_names=add,
            significance_against=significance_against,
            rows_only=rows_only,
        )
    if requested.further_suite:
        words = ["stsbench", "leaderboard", "--suite", requested.further_suite]
        words += retype_options(context, "--results", "--cards")
        if not {*requested.further_suite.split(",")} <= {*catalogue.paths("tasks")}:
            # A placeholder: the tasks' cards are in another folder.
            words += ["--cards", "DIR"]
        print_error(f"further results: '{shlex.join(words)}' shows them")
    print_errors("skipped", requested.omitted)
    older = directory.describe_omitted(requested.results)
    for notice in filter(None, [*requested.advice, older]):
        print_error(notice)
    tables = [
        replace(
            board,
            notes=notes_with_commands(board.notes),
            measured_notes=notes_with_commands(board.measured_notes),
        )
        for board in requested.tables
    ]
    if fmt == TERMINAL:
        _print_boards(tables, numbers, exact=exact, intervals=shown_intervals)
    elif fmt in FIGURES:
        from stsbench.boards.render.figures import draw_table

        with figure_width(width):
            write_or_print(draw_table(requested.tables, numbers, exact=exact), out, fmt=fmt)
    else:
        text = render(
            tables,
            fmt,
            show=numbers,
            exact=exact,
            rows_only=rows_only,
            intervals=intervals,
            max_lines=max_lines,
        )
        write_or_print(text, out)


def _read_directory(folder: Path, catalogue: Catalogue, *, is_optional: bool) -> EncoderDirectory:
    """Return the encoders of a results folder, and print which of its files are no valid results.

    Args:
        folder: The results folder.
        catalogue: The cards of encoders.
        is_optional: Whether the folder may be missing, which is as if it were empty.

    Returns:
        The encoders by their names in tables, with their results.

    Raises:
        OutputError: The folder is missing and is not optional, or cannot be read.
    """
    from stsbench.results.folder import ResultFolder, read_folder
    from stsbench.results.groups import EncoderDirectory

    is_missing = is_optional and not folder.is_dir()
    directory = EncoderDirectory(
        ResultFolder(results=[], problems=[]) if is_missing else read_folder(folder), catalogue
    )
    print_errors("skipped", directory.result_folder.problems)
    return directory


def _check_options(
    typed: TypedOptions, fmt: str, table: str | None, show: str | None, out: Path | None
) -> None:
    """Raise StsbenchError if options were typed that exclude each other or have no effect.

    Each call of ``typed.forbid`` names the case, and the options that have no effect in it. A call
    of ``typed.forbid_beside`` names an option first, then those that have no effect beside it.

    Args:
        typed: The options that the user typed.
        fmt: The format of the output: "terminal", a text format, or one of ``FIGURES``.
        table: The paper's table; None for a suite.
        show: Which numbers to show: "published", "measured", "difference", ...; None for the
            table's own choice.
        out: The file to write; None to print.
    """
    from stsbench.boards.render.formats import TERMINAL

    typed.forbid_beside("--table", "--suite", "--protocol")
    typed.forbid_beside("--json", "--format")
    if fmt in FIGURES and out is None:
        raise StsbenchError(f"--format {fmt} is a figure; add --out FILE")
    if fmt in ("csv", "json"):
        typed.forbid(f"as {fmt}, which holds both averages", "--exact")
    if table and fmt == "json":
        typed.forbid("as json, which holds all that there is", "--show")
    if show == "published":
        typed.forbid(
            "with --show published",
            "--ranks",
            "--add",
            "--significance-against",
            *(("--results", "--encoder") if table else ()),
        )
    if show in ("measured", "difference"):
        typed.forbid(f"with --show {show}", "--mteb", "--detectable")
    if show == "difference":
        typed.forbid("with --show difference", "--significance-against")
    if table and show == "difference":
        typed.forbid("with --show difference, for no paper prints an added row", "--add")
    if fmt in ("html", "csv", "json", *FIGURES):
        typed.forbid(f"as {fmt}, which has all of them", "--intervals")
    if fmt != "latex":
        typed.forbid("without --format latex", "--max-lines")
    typed.forbid_beside("--rows-only", "--intervals", "--max-lines")
    if fmt in FIGURES:
        typed.forbid("in a figure", "--rows-only", "--significance-against")
    else:
        typed.forbid("outside a figure", "--width")
    if fmt == TERMINAL:
        typed.forbid("in the terminal, only with --format latex, markdown or csv", "--rows-only")


def _print_boards(
    tables: Sequence[Table], show: Show | None, *, exact: bool, intervals: Intervals
) -> None:
    """Print tables of scores in the terminal, and what ± means if a score is a mean over seeds.

    Args:
        tables: The tables.
        show: Which numbers to show, published or measured ones; None for the table's own choice.
        exact: Show exact averages instead of those rounded as in the paper.
        intervals: The 95% intervals to show: of the averages, of all numbers, or none.
    """
    from stsbench.boards.tables.layout import build_layout

    for table in tables:
        print_table(build_layout(table, show, exact=exact, intervals=intervals))
    # A cell may have a published number, a measured one (the mean over its ``seeds``), or both.
    cells = (cell for table in tables for row in table.rows() for cell in row.cells.values())
    if any(cell.measured and cell.measured.seeds > 1 for cell in cells):
        print_paragraph(SEEDS_LEGEND)
