"""``stsbench leaderboard``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stsbench.cards import Catalogue
from stsbench.cli.printing import console, print_json, say, table
from stsbench.cli.tables import print_table
from stsbench.errors import DataError, UnknownName
from stsbench.files import write_whole
from stsbench.leaderboard.board import as_table, boards
from stsbench.leaderboard.layout import Show, check_show, lay_out
from stsbench.leaderboard.published import sources
from stsbench.leaderboard.render import check_format, render
from stsbench.leaderboard.specs import read_table, table_names
from stsbench.leaderboard.table import Table
from stsbench.leaderboard.tables import build_table
from stsbench.results import Result, read_results


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
    cards: Sequence[Path],
    as_json: bool,
) -> None:
    """Print a declared table, or the boards of a suite; or write them to a file."""
    view = View("json" if as_json else check_format(output), check_show(show), exact, out)
    catalogue = Catalogue(cards)
    if name is None:
        made = _suite_tables(folder or Path("results"), suite, protocol, catalogue)
    else:
        read_table(name)
        made = [build_table(name, _results(folder), catalogue)]
        _check_shown(made[0], view)
    if view.out is not None:
        fmt = "markdown" if view.fmt == "terminal" else view.fmt
        write_whole(view.out, render(made, fmt, show=view.show, exact=exact).encode())
        say(f"wrote {view.out}")
    elif view.fmt == "terminal":
        for one in made:
            print_table(lay_out(one, view.show, exact=exact))
    else:
        sys.stdout.write(render(made, view.fmt, show=view.show, exact=exact))


def _check_shown(made: Table, view: View) -> None:
    """Refuse a table without a line: the user wants numbers that nobody measured."""
    if all(line.row.is_baseline for block in lay_out(made, view.show).blocks for line in block.lines):
        raise DataError(
            f"table '{made.name}': nothing to show as '{view.show}', for no result fits it; "
            "'stsbench run' measures, --show published prints what papers have"
        )


def _suite_tables(folder: Path, suite: str, protocol: str | None, catalogue: Catalogue) -> list[Table]:
    suites = catalogue.suites()
    if suite not in suites:
        raise UnknownName("suite", suite, suites, hint="'stsbench list suites' shows them")
    results = _results(folder)
    cards = {task: catalogue.task(task) for task in suites[suite].tasks}
    scored = {task: card.score_split for task, card in cards.items()}
    made = boards(results, suite, suites[suite], scored=scored, protocol=protocol)
    if not made:
        wanted = f" by protocol '{protocol}'" if protocol else ""
        raise DataError(f"{folder}: no results for suite '{suite}'{wanted}; run: stsbench run --tasks {suite}")
    return [as_table(board, {task: card.name for task, card in cards.items()}) for board in made]


def _results(folder: Path | None) -> Sequence[Result]:
    """The results of a folder; none where the user named no folder and there is none: published rows stand alone."""
    if folder is None and not Path("results").is_dir():
        return []
    found = read_results(folder or Path("results"))
    for problem in found.problems:
        sys.stderr.write(f"stsbench: left out: {problem}\n")
    return found.results


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
