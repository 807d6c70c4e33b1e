"""``stsbench leaderboard``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import Suite
from stsbench.cli.names import chosen_results
from stsbench.cli.printing import complain_of_all, console, print_json, say, table
from stsbench.cli.tables import print_table
from stsbench.errors import DataError, ProtocolError, UnknownName
from stsbench.files import write_whole
from stsbench.leaderboard.exports.imported import PROTOCOL, Imported, fits, read_mteb, with_imported
from stsbench.leaderboard.published.rows import sources
from stsbench.leaderboard.published.specs import TableCard, read_table, table_names
from stsbench.leaderboard.render import check_format, render
from stsbench.leaderboard.tables.build import make_table
from stsbench.leaderboard.tables.columns import plan
from stsbench.leaderboard.tables.layout import Show, check_show, has_lines, lay_out
from stsbench.leaderboard.tables.ranks import rank_table
from stsbench.leaderboard.tables.suite import SuiteBoard, suite_boards, suite_card, suite_table
from stsbench.leaderboard.tables.table import Table
from stsbench.results.folder import read_results, verified
from stsbench.results.record import Result


class View(NamedTuple):
    """How tables are shown, and where they go."""

    fmt: str
    show: Show | None
    exact: bool
    out: Path | None


def leaderboard_command(
    folder: Path | None,
    *,
    name: str | None,
    suite: str,
    protocol: str | None,
    output: str,
    show: str | None,
    exact: bool,
    out: Path | None,
    ranks: bool,
    mteb: Path | None,
    encoders: Sequence[str],
    cards: Sequence[Path],
    as_json: bool,
) -> None:
    """Print a declared table, or the boards of a suite; or write them to a file."""
    view = View("json" if as_json else check_format(output), check_show(show), exact, out)
    catalogue = Catalogue(cards)
    # A wrong name is told before any result is read.
    known = _suite(suite, catalogue) if name is None else read_table(name)
    imported = read_mteb(mteb, catalogue) if mteb else None
    # Published rows and imported ones need no results of one's own.
    where = folder or (Path("results") if name is None and imported is None else None)
    wanted = _Wanted(
        name or suite,
        protocol,
        view.show,
        _results(where, encoders, catalogue),
        imported,
        ranks,
        folder or Path("results"),
    )
    made = _suite_tables(known, wanted, catalogue) if isinstance(known, Suite) else _declared(known, wanted, catalogue)
    if view.out is not None:
        fmt = "markdown" if view.fmt == "terminal" else view.fmt
        write_whole(view.out, render(made, fmt, show=view.show, exact=exact).encode())
        say(f"wrote {view.out}")
    elif view.fmt == "terminal":
        for one in made:
            print_table(lay_out(one, view.show, exact=exact))
    else:
        say(render(made, view.fmt, show=view.show, exact=exact), end="")


class _Wanted(NamedTuple):
    """What tables are made of: the name of a table or suite, and what goes into them."""

    name: str
    protocol: str | None
    show: Show | None
    results: Sequence[Result]
    imported: Imported | None
    ranks: bool
    where: Path


def _declared(card: TableCard, wanted: _Wanted, catalogue: Catalogue) -> list[Table]:
    tasks = [column.wanted.task for column in plan(card, catalogue).tasks if column.wanted is not None]
    made = make_table(wanted.name, card, _held(wanted, tasks), catalogue)
    made = _extended(made, wanted.imported, ranks=wanted.ranks)
    if not has_lines(made, wanted.show):
        raise DataError(
            f"table '{made.name}': nothing to show as '{wanted.show}', for no result fits it; "
            "'stsbench run' measures, --show published prints what papers have"
        )
    _tell(wanted.imported.problems if wanted.imported else [])
    return [made]


def _suite(name: str, catalogue: Catalogue) -> Suite:
    suites = catalogue.suites()
    if name not in suites:
        raise UnknownName("suite", name, suites, hint="'stsbench list suites' shows them")
    return suites[name]


def _suite_tables(suite: Suite, wanted: _Wanted, catalogue: Catalogue) -> list[Table]:
    name = wanted.name
    if wanted.ranks and not suite.average:
        raise ProtocolError(f"suite '{name}' has no mean to rank by")
    scored = {task: catalogue.task(task).score_split for task in suite.tasks}
    published = wanted.show not in (None, "measured")
    boards = suite_boards(
        _held(wanted, suite.tasks), name, suite, scored=scored, protocol=wanted.protocol, published=published
    )
    made = [suite_table(board, suite, name, catalogue) for board in boards]
    imported = wanted.imported
    if imported and not any(fits(table.columns) for table in made):
        empty = SuiteBoard(suite_card(name, suite, PROTOCOL, published=False), [])
        made.append(suite_table(empty, suite, name, catalogue))
    tables = [
        _extended(table, imported if imported and fits(table.columns) else None, ranks=wanted.ranks) for table in made
    ]
    tables = [table for table in tables if has_lines(table, wanted.show)]
    if not tables:
        by = f" by protocol '{wanted.protocol}'" if wanted.protocol else ""
        raise DataError(f"{wanted.where}: no results for suite '{name}'{by}; run: stsbench run --tasks {name}")
    _tell(imported.problems if imported else [])
    return tables


def _extended(table: Table, imported: Imported | None, *, ranks: bool) -> Table:
    """The table with the rank intervals of its rows, and imported rows."""
    made = rank_table(table) if ranks else table
    return with_imported(made, imported) if imported else made


def _results(folder: Path | None, encoders: Sequence[str], catalogue: Catalogue) -> Sequence[Result]:
    """The results of a folder, or those of some encoders.

    There are none where the user named no folder and there is none: published rows stand alone.
    """
    if folder is None and not Path("results").is_dir():
        return []
    found = read_results(folder or Path("results"))
    _tell([problem.line for problem in found.problems])
    return chosen_results(encoders, found.results, catalogue, folder or Path("results"))


def _held(wanted: _Wanted, tasks: Sequence[str]) -> Sequence[Result]:
    """The results; for ranks, which are drawn from per-item columns, without those that their columns do not make."""
    if not wanted.ranks:
        return wanted.results
    kept = verified(result for result in wanted.results if result.task in tasks)
    _tell([problem.line for problem in kept.problems])
    return kept.results


def _tell(problems: Sequence[str]) -> None:
    complain_of_all("left out", problems)


def list_tables_command(*, as_json: bool) -> None:
    """Print one line a table: its name, its paper's number for it, and what it shows."""
    cards = {name: read_table(name) for name in table_names()}
    papers = sources().papers
    if as_json:
        print_json(
            [{"table": name, "paper": c.paper, "number": c.table, "title": c.title} for name, c in cards.items()]
        )
        return
    rows = [[name, f"{papers[c.paper].name} {c.table}" if c.paper else "ours", c.title] for name, c in cards.items()]
    console().print(table(["table", "source", "title"], rows, whole=[0, 1]))
