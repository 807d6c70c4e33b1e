"""``stsbench leaderboard``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.names import chosen_results
from stsbench.cli.options.scores import LeaderboardOptions
from stsbench.cli.printing import complain_of_all, console, print_json, say, table
from stsbench.cli.tables import print_table
from stsbench.files.whole import write_whole
from stsbench.leaderboard.exports.imported import read_mteb
from stsbench.leaderboard.published.rows import sources
from stsbench.leaderboard.published.specs import read_table_card, table_names
from stsbench.leaderboard.render import check_format, render
from stsbench.leaderboard.render.figures import table_figure
from stsbench.leaderboard.tables.asked import Asked, find_suite
from stsbench.leaderboard.tables.layout import check_show, lay_out
from stsbench.leaderboard.tables.table import Table
from stsbench.plots import FIGURES
from stsbench.results.folder import scan_results
from stsbench.results.record import Result

RESULTS = Path("results")


def leaderboard_command(options: LeaderboardOptions) -> None:
    """Print a declared table, or the boards of a suite; or write them to a file."""
    if options.list_tables:
        _list_tables(as_json=options.as_json)
        return
    fmt, show = "json" if options.as_json else check_format(options.output), check_show(options.show)
    made = _tables(options, Catalogue(options.cards))
    if fmt in FIGURES and options.out is not None:
        write_whole(options.out, table_figure(made, show, exact=options.exact).to_bytes(fmt))
        say(f"wrote {options.out}")
    elif options.out is not None:
        text = render(made, "markdown" if fmt == "terminal" else fmt, show=show, exact=options.exact)
        write_whole(options.out, text.encode())
        say(f"wrote {options.out}")
    elif fmt == "terminal":
        for one in made:
            print_table(lay_out(one, show, exact=options.exact))
    else:
        say(render(made, fmt, show=show, exact=options.exact), end="")


def _tables(options: LeaderboardOptions, catalogue: Catalogue) -> Sequence[Table]:
    # A wrong name is told before any result is read.
    if options.table is not None:
        read_table_card(options.table)
    else:
        find_suite(options.suite, catalogue)
    asked = Asked(
        catalogue=catalogue,
        results=_results(options, catalogue),
        where=options.results or RESULTS,
        protocol=options.protocol,
        show=check_show(options.show),
        imported=read_mteb(options.mteb, catalogue) if options.mteb else None,
        ranks=options.ranks,
    )
    made = asked.boards(options.suite) if options.table is None else asked.declared(options.table)
    complain_of_all("skipped", made.left_out)
    return made.tables


def _results(options: LeaderboardOptions, catalogue: Catalogue) -> Sequence[Result]:
    """The results of a folder, or those of some encoders.

    There are none where none are asked for and there is no folder: published and imported rows stand alone.
    """
    where = options.results or RESULTS
    if (options.table or options.mteb) and not (options.results or options.encoder or where.is_dir()):
        return []
    found = scan_results(where)
    complain_of_all("skipped", [problem.line for problem in found.problems])
    return chosen_results(options.encoder, found.results, catalogue, where)


def _list_tables(*, as_json: bool) -> None:
    """Print one line a table: its name, its paper's number for it, and what it shows."""
    cards = {name: read_table_card(name) for name in table_names()}
    papers = sources().papers
    if as_json:
        print_json(
            [{"table": name, "paper": c.paper, "number": c.table, "title": c.title} for name, c in cards.items()]
        )
        return
    rows = [[name, f"{papers[c.paper].name} {c.table}" if c.paper else "ours", c.title] for name, c in cards.items()]
    console().print(table(["table", "source", "title"], rows, whole=[0, 1]))
