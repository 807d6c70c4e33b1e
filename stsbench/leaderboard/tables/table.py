"""What a table is: columns, groups of rows, and cells that hold a measured and a published number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from stsbench.leaderboard.published.rows import Paper
from stsbench.leaderboard.tables.runs import Wanted
from stsbench.results.record import Result

Terms = Sequence[str | Sequence[str]]
ColumnKind = Literal["task", "average", "interval", "exact", "delta", "ranks", "letters"]
AVERAGE, EXACT, DELTA, RANKS, LETTERS = "average", "average_exact", "distance", "ranks", "letters"
"""Keys of the columns that are made of other columns."""
STANDINGS = ("ranks", "letters")
"""The kinds of column that say how rows stand to each other: the lowest is best."""


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """One column: what its numbers are, and how many decimals measured ones have.

    ``kind``: a task's scores; the average as the paper rounds it; the exact average; the distance of
    averages to one row's; the ranks a row may have, whose numbers are the intervals' ends; the letters of rows that cannot
    be told apart. Columns of the average's interval are made where a table is laid out as text.
    """

    key: str
    head: str
    kind: ColumnKind = "task"
    wanted: Wanted | None = None
    better: Literal["high", "low", ""] = "high"
    points: bool = True
    decimals: int = 2
    mixed: bool = False
    """Whether it is a mean over tasks that are scored in different ways."""


class Number(NamedTuple):
    """A number in the unit that tables print: points for scores.

    ``decimals`` is how many a source prints; None: as many as the column has. ``seeds`` is how many it is a mean over,
    and its interval is over other items and, of several, other seeds. ``text`` is printed in the place of the value.
    """

    value: float
    deviation: float | None = None
    decimals: int | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 1
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """What was measured and what was published, in which row, and why the published number may be wrong."""

    measured: Number | None = None
    published: Number | None = None
    printed_in: str = ""
    misprint: str = ""

    @property
    def difference(self) -> Number | None:
        """Measured minus published."""
        if self.measured is None or self.published is None:
            return None
        return Number(self.measured.value - self.published.value)


NOTHING = TableCell()


class Traits(NamedTuple):
    """What an encoder is: its method, its backbone and what it was trained on; empty where nobody says.

    ``parameters`` are those of the network, ``year`` that of the work, ``paper`` and ``model`` are addresses.
    """

    method: str = ""
    backbone: str = ""
    supervision: str = ""
    parameters: int | None = None
    year: int | None = None
    paper: str = ""
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One encoder's cells by column key.

    ``key`` is that of the published row, ``quoted`` the work a paper took the row over from,
    ``otherwise`` the protocol of a row that is not scored as its columns say, ``source`` where a
    board has a published row from, ``imported`` what made the scores of a row that was neither measured
    here nor published. ``results`` are those it was measured by. ``metric`` is that of a row which measures something
    else than its columns say. One that ``is_best`` has the best mean, or is not significantly different from it. A row
    that ``is_baseline`` is no encoder's; one that ``is_added`` was asked for by name; one that ``is_listed`` is shown even
    without a number.
    """

    label: str
    cells: Mapping[str, TableCell]
    encoder: str = ""
    key: str = ""
    quoted: str = ""
    otherwise: str = ""
    source: str = ""
    imported: str = ""
    overlap: str = ""
    misprint: str = ""
    metric: str = ""
    is_baseline: bool = False
    is_best: bool = False
    is_added: bool = False
    is_listed: bool = False
    traits: Traits = Traits()
    results: Sequence[Result] = ()

    def cell(self, key: str) -> TableCell:
        """The cell of a column; an empty one where there is none."""
        return self.cells.get(key, NOTHING)

    @property
    def is_measured(self) -> bool:
        """Whether any cell was measured."""
        return any(cell.measured for cell in self.cells.values())

    @property
    def is_published(self) -> bool:
        """Whether any cell was published."""
        return any(cell.published for cell in self.cells.values())


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows among which best and second best are taken."""

    rows: Sequence[Row]
    title: str = ""
    section: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a paper, or a board of our own (``paper`` None)."""

    name: str
    title: str
    columns: Sequence[TableColumn]
    groups: Sequence[Group]
    paper: Paper | None = None
    number: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
    measured_notes: Sequence[str] = field(default_factory=tuple)
    """Notes on measured numbers, shown where these are."""
    terms: Terms = ()
    """The keys of the columns that are averaged, a list of them counting as one."""

    @property
    def is_board(self) -> bool:
        """Whether the rows are our own choice."""
        return self.paper is None

    @property
    def caption(self) -> str:
        """The title, and the paper's own number for the table."""
        return f"{self.title} ({self.paper.name}, {self.number})" if self.paper else self.title

    def rows(self) -> list[Row]:
        """All rows, in order."""
        return [row for group in self.groups for row in group.rows]
