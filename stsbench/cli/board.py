"""``stsbench leaderboard``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.added import added_rows
from stsbench.cli.counting import shown_progress
from stsbench.cli.names import chosen_results
from stsbench.cli.options.scores import LeaderboardOptions
from stsbench.cli.printing import complain, complain_of_all, say, say_words
from stsbench.cli.tables import print_table
from stsbench.files.whole import write_whole
from stsbench.leaderboard.exports.imported import read_mteb
from stsbench.leaderboard.published.specs import read_table_card
from stsbench.leaderboard.render import check_format, render
from stsbench.leaderboard.render.figures import table_figure
from stsbench.leaderboard.tables.added import Added, only_added
from stsbench.leaderboard.tables.asked import Asked, find_suite
from stsbench.leaderboard.tables.layout import check_show, lay_out
from stsbench.leaderboard.tables.table import Number, Table
from stsbench.plots import FIGURES
from stsbench.results.folder import scan_results
from stsbench.results.record import Result

RESULTS = Path("results")
OF_SEEDS = (
    "±: deviation over seeds; scores are means over all seeds that the results folder holds, where 'stsbench run' shows "
    "those of its --seeds"
)


def leaderboard_command(options: LeaderboardOptions) -> None:
    """Print a declared table, or the boards of a suite; or write them to a file."""
    fmt, show = check_format(options.fmt), check_show(options.show)
    made = _tables(options, Catalogue(options.cards))
    if fmt in FIGURES and options.out is not None:
        write_whole(options.out, table_figure(made, show, exact=options.exact).to_bytes(fmt))
        say(f"wrote {options.out}")
        return
    if options.out is None and fmt == "terminal":
        for one in made:
            print_table(lay_out(one, show, exact=options.exact))
        if any(one.seeds > 1 for one in _measured(made)):
            say_words(OF_SEEDS)
        return
    tables = [only_added(one) for one in made] if options.rows_only and options.add else made
    written_as = "markdown" if fmt == "terminal" else fmt
    text = render(tables, written_as, show=show, exact=options.exact, rows_only=options.rows_only)
    if options.out is None:
        say(text, end="")
    else:
        write_whole(options.out, text.encode())
        say(f"wrote {options.out}")


def _measured(tables: Sequence[Table]) -> Iterator[Number]:
    return (cell.measured for one in tables for row in one.rows() for cell in row.cells.values() if cell.measured)


def _tables(options: LeaderboardOptions, catalogue: Catalogue) -> Sequence[Table]:
    # A wrong name is told before any result is read.
    if options.table is not None:
        read_table_card(options.table)
    else:
        find_suite(options.suite, catalogue)
    where = options.results or RESULTS
    results = _results(options, where)
    added = added_rows(options.add, results, catalogue, where)
    asked = Asked(
        catalogue=catalogue,
        results=_chosen(options, results, added, catalogue),
        where=where,
        added=added,
        protocol=options.protocol,
        show=check_show(options.show),
        imported=read_mteb(options.mteb, catalogue) if options.mteb else None,
        ranks=options.ranks,
    )
    with shown_progress("rows with intervals") as told:
        asked = replace(asked, progress=told)
        made = asked.boards(options.suite) if options.table is None else asked.declared(options.table)
    complain_of_all("skipped", made.left_out)
    for line in made.advice:
        complain(line)
    return made.tables


def _results(options: LeaderboardOptions, where: Path) -> Sequence[Result]:
    """The results of a folder.

    There are none where none are asked for and there is no folder: published and imported rows stand alone.
    """
    is_asked_for = options.results or options.encoder or options.add
    if (options.table or options.mteb) and not (is_asked_for or where.is_dir()):
        return []
    found = scan_results(where)
    complain_of_all("skipped", [problem.line for problem in found.problems])
    return found.results


def _chosen(
    options: LeaderboardOptions, results: Sequence[Result], added: Sequence[Added], catalogue: Catalogue
) -> Sequence[Result]:
    """The results of the encoders asked for, and those of added rows."""
    chosen = chosen_results(options.encoder, results, catalogue, options.results or RESULTS)
    wanted = {id(result) for one in (chosen, *(one.results for one in added)) for result in one}
    return [result for result in results if id(result) in wanted]
