"""The parts of a table: columns, groups of rows, and cells of a measured and a published number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from stsbench.boards.published.rows import Paper
from stsbench.core.errors import look_up
from stsbench.results.record import Result

if TYPE_CHECKING:
    from stsbench.significance.ranks import RowStanding

AverageTerms = Sequence[Sequence[str]]
"""Column keys in terms: an average is the mean over terms, each the mean of its columns."""
ColumnKind = Literal["task", "average", "interval", "exact", "delta", "ranks", "letters", "fact"]
AVERAGE, EXACT, DELTA, RANKS, LETTERS = "average", "average_exact", "distance", "ranks", "letters"
"""Keys of the columns that are computed from other columns."""
STANDING_KINDS = ("ranks", "letters")
"""The kinds of column that show how rows stand to each other: the lowest is best."""
STANDINGS_METHOD = "Holm"
"""The correction of the tests of all pairs of rows, which decide ranks and letters."""


class ColumnSpec(NamedTuple):
    """The scores that a column takes: of which task and split, and by which protocol."""

    task: str
    split: str
    published_split: str
    """The split as published scores name it: ``test`` also if a task has only one split."""
    protocol: str
    metric: str
    evaluator: str
    has_no_subsets: bool
    """Whether the task has no subsets, so that all aggregations are the same."""
    published_aggregation: str | None = None
    """The aggregation of published scores; None: that of the protocol."""
    protocol_fields: Mapping[str, Any] = {}
    """All fields of the results' protocol; empty if ``protocol`` and ``metric`` are enough."""


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """One column: what its numbers are, and how many decimals measured ones have.

    ``kind`` is ``task`` for the scores of a task; ``average`` for the average as the paper rounds
    it and ``exact`` for the exact one; ``delta`` for the difference of each row to one row;
    ``ranks`` for the ranks that a row may have, as an interval; ``letters`` for the letters that
    rows share if they do not differ significantly; ``fact`` for a fact of the model, no score.
    A layout adds columns of the kind ``interval``, for the interval of an average.
    """

    key: str
    head: str
    kind: ColumnKind = "task"
    spec: ColumnSpec | None = None
    better: Literal["high", "low", ""] = "high"
    in_points: bool = True
    """Whether tables print its numbers times 100."""
    method: str = ""
    """How its numbers are made; empty if the column is none of ranks or letters."""
    decimals: int = 2
    is_mixed: bool = False
    """Whether it is a mean over tasks that are scored in different ways."""
    signature: str = ""
    """The compared part of the signature of its measured scores; empty if there are none."""


class TableNumber(NamedTuple):
    """A number in the unit that tables print, which is points for scores."""

    value: float
    deviation: float | None = None
    decimals: int | None = None
    """The number of decimals that a source prints; None: as many as the column has."""
    interval: tuple[float, float] | None = None
    """The 95% interval over other items and, for several seeds, over other seeds."""
    seeds: int = 1
    """The number of seeds that it is a mean over."""
    text: str = ""
    """Printed in place of the value if it is not empty."""
    published_key: str = ""
    """The key of the published row that holds the number; empty for a measured number."""


def subtract(minuend: TableNumber | None, subtrahend: TableNumber | None) -> TableNumber | None:
    """Return the difference of two numbers; None if one of them is None."""
    if not minuend or not subtrahend:
        return None
    return TableNumber(minuend.value - subtrahend.value)


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """A measured and a published number, and why the published one may be wrong."""

    measured: TableNumber | None = None
    published: TableNumber | None = None
    misprint: str = ""
    bound: float | None = None
    """The least difference to the next better published number that a test could see, in points.

    None if it is unknown, or not requested.
    """
    is_near: bool = False
    """Whether the difference to the next better published number is below this bound."""
    significance: str = ""
    """``ABOVE`` or ``BELOW`` if the measured number differs significantly from that of the row
    that others are tested against."""

    @property
    def published_key(self) -> str:
        """The key of the published row that holds the published number; empty without one."""
        return self.published.published_key if self.published else ""

    def number(self, number_kind: str) -> TableNumber | None:
        """Return the number of a kind (published, measured, difference); None if there is none."""
        number: TableNumber | None = getattr(self, number_kind)
        return number

    @property
    def difference(self) -> TableNumber | None:
        """The measured minus the published number; None if either is missing."""
        return subtract(self.measured, self.published)


EMPTY_CELL = TableCell()


class EncoderTraits(NamedTuple):
    """What an encoder is: its method, its backbone and its training; empty if it is unknown."""

    method: str = ""
    backbone: str = ""
    supervision: str = ""
    parameters: int | None = None
    """The number of parameters of its network."""
    year: int | None = None
    """The year of the work that proposes it."""
    paper: str = ""
    """The address of that work."""
    model: str = ""
    """The address of its weights."""
    languages: tuple[str, ...] = ()
    """The ISO 639-3 codes of its languages."""
    license: str = ""
    is_open: bool | None = None
    """Whether its weights can be had; None if it is unknown."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One encoder's cells by column key."""

    label: str
    cells: Mapping[str, TableCell]
    encoder: str = ""
    published_key: str = ""
    """The key of the published row that it shows."""
    quoted_from: str = ""
    """The work that a paper took the row over from."""
    other_protocol: str = ""
    """The protocol to print of the row, if it is not scored by those of its columns."""
    protocol: str | None = None
    """The protocol of its scores; None if it is that of each column. A group may have one too, so
    that it need not be printed at each row."""
    source: str = ""
    """The paper that a board has a published row from."""
    imported: str = ""
    """The tool that made the scores of an imported row, which is neither measured nor published."""
    overlap: str = ""
    misprint: str = ""
    metric: str = ""
    """The metric of the row, if it measures something else than its columns do."""
    is_baseline: bool = False
    """Whether it is the row of no encoder."""
    is_best: bool = False
    """Whether its mean is the best, or not significantly different from the best."""
    is_added: bool = False
    """Whether the user asked for the row by name."""
    is_listed: bool = False
    """Whether it is shown even without a number."""
    traits: EncoderTraits = EncoderTraits()
    results: Sequence[Result] = ()
    """The results whose own scores its measured numbers are."""
    clean_results: Sequence[Result] = ()
    """The results that hold its measured numbers beside their own scores, as clean scores."""
    signature: str = ""
    """The signature of its measured scores; empty if there are none."""

    def cell(self, column_key: str) -> TableCell:
        """Return the cell of a column; an empty one if the row has none."""
        return self.cells.get(column_key, EMPTY_CELL)

    def spec(self, column: TableColumn) -> ColumnSpec | None:
        """Return which scores of this row a column shows; None if it shows no task's."""
        if column.spec is None or self.protocol is None:
            return column.spec
        return column.spec._replace(protocol=self.protocol)

    def with_fact(self, column_key: str, fact: TableNumber) -> Row:
        """Return a copy with a fact about its encoder, which is no score, beside its numbers."""
        cell = TableCell(measured=fact) if self.is_measured else TableCell(published=fact)
        return replace(self, cells={**self.cells, column_key: cell})

    def explain_symbol(self, symbol: str) -> str:
        """Return why a symbol is printed behind the name of this row of a table.

        For example the work that a quoted row was taken from. The text is empty if the row has no
        reason of its own for the symbol. The template of HTML boards, board/table.html, calls it.
        """
        # Why a number of the row is wrong, the work it was taken from, the tool that made it.
        reasons_by_symbol = {
            MISPRINT: self.misprint,
            QUOTED: self.quoted_from or self.source,
            IMPORTED: self.imported,
        }
        return reasons_by_symbol.get(symbol, "")

    @property
    def is_measured(self) -> bool:
        """Whether any of its cells has a measured number."""
        return any(cell.measured for cell in self.cells.values())

    @property
    def scores_pairs(self) -> bool:
        """Whether a measured number is of a pair scorer."""
        return any(result.protocol.get("similarity", "") is None for result in self.results)


NO_ROW = Row(label="", cells={})


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows that are compared: best and second best are marked among them."""

    rows: Sequence[Row]
    title: str = ""
    section: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a paper, or a board of our own, which has no ``paper``."""

    name: str
    title: str
    columns: Sequence[TableColumn]
    groups: Sequence[Group]
    paper: Paper | None = None
    paper_number: str = ""
    """The number of the table in its paper, for example ``Table 5``."""
    notes: Sequence[str] = field(default_factory=tuple)
    measured_notes: Sequence[str] = field(default_factory=tuple)
    """Notes on measured numbers, shown if these are."""
    average_terms: AverageTerms = ()
    """The columns that the average is over."""
    signatures: Sequence[str] = ()
    """The compared parts of the signatures of its measured scores, one per protocol."""
    signature_id: str = ""
    """The hash of the only one of these; empty if there are none or several."""
    ranked_groups: Sequence[Group] = ()
    """If only added rows are shown: the groups of the whole table, to mark the best among all."""

    @property
    def is_board(self) -> bool:
        """Whether its rows are our own choice, not a paper's."""
        return self.paper is None

    @property
    def caption(self) -> str:
        """The title with the paper's own number for the table, or a board's signature."""
        if self.paper is None:
            return ", signature ".join(filter(None, (self.title, self.signature_id)))
        return f"{self.title} ({self.paper.name}, {self.paper_number})"

    def rows(self) -> list[Row]:
        """Return the rows of all groups, in order."""
        return [row for group in self.groups for row in group.rows]

    def map_rows(self, change: Callable[[Row], Row | None]) -> Table:
        """Return a copy of this table in which a function has changed each row.

        Groups without a row are omitted.

        Args:
            change: The function; it returns the new row, or None to omit the row.
        """
        groups = []
        for group in self.groups:
            rows = [row for row in map(change, group.rows) if row]
            if rows:
                groups.append(replace(group, rows=rows))
        return replace(self, groups=groups)

    def has_numbers(self, show: Show | None) -> bool:
        """Return whether there is any number to show, except for those of the baseline."""
        kinds = KINDS_BY_SHOW[show or "both"]
        cells = (cell for row in self.rows() if not row.is_baseline for cell in row.cells.values())
        return any(cell.number(kind) for cell in cells for kind in kinds)


Show = Literal["published", "measured", "difference", "both", "merged"]
"""A user's choice of the numbers to show."""
NumberKind = Literal["published", "measured", "difference", "interval"]
"""A line of intervals, which no row has itself, is below a line of another kind."""
KINDS_BY_SHOW: Mapping[str, tuple[NumberKind, ...]] = {
    "published": ("published",),
    "measured": ("measured",),
    "difference": ("difference",),
    "both": ("published", "measured", "difference"),
    "merged": ("measured", "published"),
}
"""The kinds of number that each choice may show."""
QUOTED, OTHER_PROTOCOL, TEXT_OVERLAP, GOLD_OVERLAP = "†", "‡", "§", "¶"
MISPRINT, IMPORTED, TIED = "*", "°", "≈"
UNDETECTABLE = "~"
"""Behind a published number that is too near to the next better one for a test to see."""
ABOVE, BELOW = "↑", "↓"
"""Behind measured numbers that differ significantly from those of a row that the user names."""
PAIR_SCORER = "‖"
SYMBOLS = QUOTED + OTHER_PROTOCOL + TEXT_OVERLAP + GOLD_OVERLAP + MISPRINT + IMPORTED + TIED
SYMBOLS += PAIR_SCORER
"""The symbols that may stand behind a name in a table."""
OVERLAP_SYMBOLS = {"text": TEXT_OVERLAP, "gold": GOLD_OVERLAP}
OVERLAP_LEGENDS = {
    TEXT_OVERLAP: f"{TEXT_OVERLAP} trained or fitted on text that overlaps the test sentences",
    GOLD_OVERLAP: f"{GOLD_OVERLAP} trained on gold scores that overlap the test pairs",
}
SYMBOL_LEGENDS = {
    **OVERLAP_LEGENDS,
    PAIR_SCORER: f"{PAIR_SCORER} scores pairs itself; no embeddings",
    TIED: (
        f"{TIED} best by the mean among the rows measured here, "
        "or not significantly different from that one"
    ),
}


def add_standings(table: Table, standings: Mapping[int, RowStanding]) -> Table:
    """Add two columns to a table: the ranks that each row may have, and letters.

    Rows that share a letter do not differ significantly. The rows that may be the best are marked.
    The rows of a group are sorted by rank if the table is a board of ours and the group has no
    published number, which has no rank.

    Args:
        table: The table, whose other columns stay as they are.
        standings: Index of a row, among the rows of all groups -> its rank, the interval of ranks
            that it may have, and its letters. A row that cannot be ranked is missing, and gets no
            cells.
    """
    ranks_column = TableColumn(
        key=RANKS,
        head="Rank",
        kind="ranks",
        better="",
        in_points=False,
        decimals=0,
        method=STANDINGS_METHOD,
    )
    letters_column = replace(ranks_column, key=LETTERS, head="Ties", kind="letters")
    groups = []
    n_earlier_rows = 0
    for group in table.groups:
        rows_with_standings = [
            (row, standings.get(index)) for index, row in enumerate(group.rows, n_earlier_rows)
        ]
        n_earlier_rows += len(group.rows)
        all_cells = (cell for row in group.rows for cell in row.cells.values())
        if table.is_board and not any(cell.published for cell in all_cells):
            # Even a row without a mean can have a rank, by the tasks that it shares with others.
            # A row without a standing comes last.
            rows_with_standings.sort(key=lambda pair: pair[1].rank if pair[1] else math.inf)
        rows = [
            _add_standing(row, standing) if standing else row
            for row, standing in rows_with_standings
        ]
        groups.append(replace(group, rows=rows))
    return replace(table, columns=[*table.columns, ranks_column, letters_column], groups=groups)


def _add_standing(row: Row, standing: RowStanding) -> Row:
    """Return a copy of a row with a cell for its ranks and one for its letters.

    Args:
        row: The row.
        standing: Its rank, the first and the last rank that it may have (``rank_interval``), the
            letters that it shares with rows that do not differ significantly, and ``is_best``.
    """
    # A rank that is certain is printed once, not as "2–2".
    bounds = dict.fromkeys(standing.rank_interval)
    ranks = TableNumber(
        standing.rank, interval=standing.rank_interval, text="–".join(map(str, bounds))
    )
    letters = TableNumber(standing.rank, text=standing.letters)
    cells = {RANKS: TableCell(measured=ranks), LETTERS: TableCell(measured=letters)}
    return replace(row, cells={**row.cells, **cells}, is_best=standing.is_best)


def check_show(show: str | None) -> Show | None:
    """Return a user's choice of the kinds of numbers to show unchanged, if there is such a choice.

    The choices are the keys of ``KINDS_BY_SHOW``; None stands for the default.

    Raises:
        UnknownName: There is no such choice.
    """
    if show is not None:
        look_up("choice of `show`", show, KINDS_BY_SHOW)
    return cast("Show | None", show)
