"""Leaderboards from Python: the tables of a suite or of a paper, as text, as data and for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from stsbench.cards.catalogue import Catalogue
from stsbench.errors import StsbenchError, choose, shown
from stsbench.interface.page import layout_html
from stsbench.interface.reading import RESULTS, read_results
from stsbench.leaderboard.exports.imported import read_mteb
from stsbench.leaderboard.published.specs import read_table_card
from stsbench.leaderboard.render import render
from stsbench.leaderboard.render.data import frame
from stsbench.leaderboard.render.figures import table_figure
from stsbench.leaderboard.tables.asked import Asked, find_suite
from stsbench.leaderboard.tables.layout import Show, check_show, lay_out
from stsbench.leaderboard.tables.table import Table
from stsbench.registry.arguments import NAME, NAME_OR_PLACE, PLACE, SWITCH, checked
from stsbench.results.record import Result

if TYPE_CHECKING:
    import pandas as pd

    from stsbench.plots.chart import Chart

SUITE = "sts"
"""Whose board is shown where nothing is asked for, and results do not tell."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Leaderboard:
    """The tables that :func:`stsbench.leaderboard` made: one, or one for each protocol of a suite's results."""

    tables: Sequence[Table]
    show: Show | None
    exact: bool
    left_out: Sequence[str]
    """A line for each thing that is not in the tables."""

    def __repr__(self) -> str:
        """The tables in markdown, as text can show them."""
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return "\n".join(layout_html(lay_out(table, self.show, exact=self.exact)) for table in self.tables)

    def to_markdown(self) -> str:
        """The tables in markdown."""
        return self._as("markdown")

    def to_latex(self) -> str:
        """The tables in LaTeX."""
        return self._as("latex")

    def to_html(self) -> str:
        """A whole page, sorted and filtered by its reader, that needs no other file."""
        return self._as("html")

    def to_csv(self) -> str:
        """A line for the measured numbers of a row, one for the published, one for their difference."""
        return self._as("csv")

    def to_frame(self) -> pd.DataFrame:
        """The lines of the CSV as a DataFrame of pandas, by the table's caption, section, group, row and side."""
        import pandas as pd

        return pd.concat({table.caption: frame(table, self.show) for table in self.tables}, names=["caption"])

    def plot(self) -> Chart:
        """Draw a table: a panel a column, a dot a measured number with its 95% interval, a ring a published one.

        Raises:
            StsbenchError: there are several tables, nothing to draw, or matplotlib is not installed (extra ``plots``).
        """
        return table_figure(self.tables, self.show, exact=self.exact)

    def _as(self, fmt: str) -> str:
        return render(self.tables, fmt, show=self.show, exact=self.exact)


@checked(
    table=NAME_OR_PLACE, suite=NAME, protocol=NAME, show=NAME, exact=SWITCH, ranks=SWITCH, mteb=PLACE,
    catalogue=Catalogue,
)  # fmt: skip
def leaderboard(
    results: str | Path | Sequence[Result] | None = None,
    *,
    suite: str | None = None,
    table: str | Path | None = None,
    protocol: str | None = None,
    show: str | None = None,
    exact: bool = False,
    ranks: bool = False,
    mteb: Path | str | None = None,
    catalogue: Catalogue | None = None,
) -> Leaderboard:
    """Make the tables that ``stsbench leaderboard`` prints.

    Args:
        results: Results, or a results folder; default ``results``, and none where a table is asked for and there is no
            such folder.
        suite: whose tasks are the columns; default ``sts``, or where the results have none of its tasks, another that they have.
        table: a paper's table or one of ours instead, or a TOML file of yours.
        protocol: only a suite's results of this protocol.
        show: ``published``, ``measured``, ``difference``, ``both`` or ``merged`` (whichever there is).
        exact: exact averages, not rounded as in the paper.
        ranks: rank intervals, and letters that tell ties; needs per-item columns.
        mteb: a folder of MTEB's result files, shown as imported rows.
        catalogue: cards of your own.

    Raises:
        StsbenchError: no such table or suite, or nothing to show in it.
    """
    catalogue = catalogue or Catalogue()
    choose("show", show or "both", dict.fromkeys(get_args(Show)))
    shown_as = check_show(show)
    # A wrong name is told before any result is read.
    if table is None:
        find_suite(suite or SUITE, catalogue)
    elif suite is not None or protocol is not None:
        raise StsbenchError("leaderboard: suite and protocol have no effect beside table; leave them out")
    else:
        read_table_card(str(table))
    asked = Asked(
        catalogue=catalogue,
        results=_results(results, catalogue, needed=table is None and mteb is None),
        where=Path(results) if isinstance(results, str | Path) else RESULTS,
        protocol=protocol,
        show=shown_as,
        imported=read_mteb(Path(mteb), catalogue) if mteb is not None else None,
        ranks=ranks,
    )
    made = asked.boards(suite or asked.likely_suite() or SUITE) if table is None else asked.declared(str(table))
    return Leaderboard(tables=made.tables, show=shown_as, exact=exact, left_out=made.left_out)


def _results(given: object, catalogue: Catalogue, *, needed: bool) -> Sequence[Result]:
    if given is None:
        return read_results(catalogue=catalogue) if needed or RESULTS.is_dir() else []
    if isinstance(given, str | Path):
        return read_results(given, catalogue=catalogue)
    if isinstance(given, Sequence) and all(isinstance(one, Result) for one in given):
        return list(given)
    raise StsbenchError(f"leaderboard: results must be Results or a results folder; it is {shown(given)}")
