"""A table: columns, groups of rows, cells that hold a measured and a published number, and how they are laid out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from stsbench.boards.published.rows import Paper
from stsbench.core.errors import look_up
from stsbench.core.names import (
    LABEL_PATTERN,
    MAX_LENGTH_WITH_PARAMS,
    MAX_NAME_LENGTH,
    PARAM_SEPARATOR,
    number_text,
    truncate_name,
)
from stsbench.core.wording import format_some
from stsbench.results.record import Result

if TYPE_CHECKING:
    from stsbench.significance.means import RowStanding

AverageTerms = Sequence[Sequence[str]]
"""Keys of columns: of each list the mean is taken, and of these means the average."""
ColumnKind = Literal["task", "average", "interval", "exact", "delta", "ranks", "letters"]
AVERAGE, EXACT, DELTA, RANKS, LETTERS = "average", "average_exact", "distance", "ranks", "letters"
"""Keys of the columns that are made of other columns."""
STANDING_KINDS = ("ranks", "letters")
"""The kinds of column that say how rows stand to each other: the lowest is best."""


class ColumnSpec(NamedTuple):
    """The scores that a column takes: of which task and split, scored how.

    ``printed`` is the split as published scores name it: ``test`` also where a task has one split only.
    """

    task: str
    split: str
    published_split: str
    protocol: str
    metric: str
    evaluator: str
    has_no_subsets: bool
    """Whether the task has no subsets, so that all aggregations are the same."""
    protocol_fields: Mapping[str, Any] = {}
    """All fields of the results' protocol; none where ``protocol`` and ``metric`` say enough."""


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """One column: what its numbers are, and how many decimals measured ones have.

    ``kind``: a task's scores; the average as the paper rounds it; the exact average; the distance of
    averages to one row's; the ranks a row may have, whose numbers are the intervals' ends; the letters of rows that cannot
    be kept apart. Columns of the average's interval are made where a table is laid out as text.
    """

    key: str
    head: str
    kind: ColumnKind = "task"
    spec: ColumnSpec | None = None
    better: Literal["high", "low", ""] = "high"
    in_points: bool = True
    decimals: int = 2
    is_mixed: bool = False
    """Whether it is a mean over tasks that are scored in different ways."""


class TableNumber(NamedTuple):
    """A number in the unit that tables print: points for scores.

    ``decimals`` is how many a source prints; None: as many as the column has. ``seeds`` is how many it is a mean over,
    and its interval is over other items and, of several, other seeds. ``text`` is printed in the place of the value. ``source``
    is the key of the published row that it stands in.
    """

    value: float
    deviation: float | None = None
    decimals: int | None = None
    interval: tuple[float, float] | None = None
    seeds: int = 1
    text: str = ""
    published_key: str = ""


def subtract(first: TableNumber | None, second: TableNumber | None) -> TableNumber | None:
    """The first minus the second, where there are both."""
    return TableNumber(first.value - second.value) if first and second else None


@dataclass(frozen=True, kw_only=True)
class TableCell:
    """What was measured and what was published, and why the published number may be wrong."""

    measured: TableNumber | None = None
    published: TableNumber | None = None
    misprint: str = ""

    @property
    def published_key(self) -> str:
        """The key of the published row that the published number stands in."""
        return self.published.published_key if self.published else ""

    def number(self, number_kind: str) -> TableNumber | None:
        """The number of one side."""
        found: TableNumber | None = getattr(self, number_kind)
        return found

    @property
    def difference(self) -> TableNumber | None:
        """Measured minus published."""
        return subtract(self.measured, self.published)


EMPTY_CELL = TableCell()


class EncoderTraits(NamedTuple):
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
    published_key: str = ""
    quoted_from: str = ""
    other_protocol: str = ""
    source: str = ""
    imported: str = ""
    overlap: str = ""
    misprint: str = ""
    metric: str = ""
    is_baseline: bool = False
    is_best: bool = False
    is_added: bool = False
    is_listed: bool = False
    traits: EncoderTraits = EncoderTraits()
    results: Sequence[Result] = ()

    def cell(self, key: str) -> TableCell:
        """The cell of a column; an empty one where there is none."""
        return self.cells.get(key, EMPTY_CELL)

    def explain_symbol(self, mark: str) -> str:
        """Why a mark stands behind its name, as far as the row itself says."""
        return {
            MISPRINT: self.misprint,
            QUOTED: self.quoted_from or self.source,
            IMPORTED: self.imported,
        }.get(mark, "")

    @property
    def is_measured(self) -> bool:
        """Whether any cell was measured."""
        return any(cell.measured for cell in self.cells.values())


NO_ROW = Row(label="", cells={})


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
    paper_number: str = ""
    notes: Sequence[str] = field(default_factory=tuple)
    measured_notes: Sequence[str] = field(default_factory=tuple)
    """Notes on measured numbers, shown where these are."""
    terms: AverageTerms = ()
    """The columns that are averaged."""

    @property
    def is_board(self) -> bool:
        """Whether the rows are our own choice."""
        return self.paper is None

    @property
    def caption(self) -> str:
        """The title, and the paper's own number for the table."""
        return (
            f"{self.title} ({self.paper.name}, {self.paper_number})" if self.paper else self.title
        )

    def rows(self) -> list[Row]:
        """All rows, in order."""
        return [row for group in self.groups for row in group.rows]

    def map_rows(self, changed: Callable[[Row], Row | None]) -> Table:
        """The table with rows changed, or left out where there is none for them; groups without a row are left out too."""
        rows = ([one for row in group.rows if (one := changed(row))] for group in self.groups)
        groups = [
            replace(group, rows=mine) for group, mine in zip(self.groups, rows, strict=True) if mine
        ]
        return replace(self, groups=groups)

    def has_numbers(self, show: Show | None) -> bool:
        """Whether anything but the baseline would be shown."""
        cells = (cell for row in self.rows() if not row.is_baseline for cell in row.cells.values())
        return any(cell.number(side) for cell in cells for side in KINDS_BY_SHOW[show or "both"])


Show = Literal["published", "measured", "difference", "both", "merged"]
NumberKind = Literal["published", "measured", "difference"]
KINDS_BY_SHOW: Mapping[str, tuple[NumberKind, ...]] = {
    "published": ("published",),
    "measured": ("measured",),
    "difference": ("difference",),
    "both": ("published", "measured", "difference"),
    "merged": ("measured", "published"),
}
"""The numbers that each choice may show."""
QUOTED, OTHER_PROTOCOL, TEXT_OVERLAP, GOLD_OVERLAP, MISPRINT, IMPORTED, TIED = (
    "†",
    "‡",
    "§",
    "¶",
    "*",
    "°",
    "≈",
)
SYMBOLS = QUOTED + OTHER_PROTOCOL + TEXT_OVERLAP + GOLD_OVERLAP + MISPRINT + IMPORTED + TIED
"""What may stand behind a name in a table."""
OVERLAP_SYMBOLS = {"text": TEXT_OVERLAP, "gold": GOLD_OVERLAP}
OVERLAP_LEGENDS = {
    TEXT_OVERLAP: f"{TEXT_OVERLAP} trained or fitted on text that overlaps the test sentences",
    GOLD_OVERLAP: f"{GOLD_OVERLAP} trained on gold scores that overlap the test pairs",
}
SYMBOL_LEGENDS = {
    **OVERLAP_LEGENDS,
    TIED: f"{TIED} best by the mean among the rows measured here, or not significantly different from that one",
}
NO_NUMBER = "–"
BEST, SECOND = 1, 2


class DisplayCell(NamedTuple):
    """One cell: its number, its deviation, whether it is best (1) or second best (2), and its mark."""

    text: str
    deviation: str = ""
    rank: int = 0
    symbol: str = ""


@dataclass(frozen=True, kw_only=True)
class TableLine:
    """One line: a row's published numbers, the measured ones, or their difference; ``further``: the row has a line above."""

    label: str
    cells: Sequence[DisplayCell]
    symbols: str = ""
    number_kind: NumberKind = "measured"
    row: Row = NO_ROW
    continues_row: bool = False


@dataclass(frozen=True, kw_only=True)
class LayoutBlock:
    """The lines of a group."""

    lines: Sequence[TableLine]
    section: str = ""
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """All that a renderer prints; ``label_head`` is what the labels of lines are. What is no table of scores has heads alone."""

    caption: str
    heads: Sequence[str]
    blocks: Sequence[LayoutBlock]
    legend: Sequence[str]
    label_head: str = "encoder"
    show: Show = "measured"
    columns: Sequence[TableColumn] = ()

    def numbers_with_interval(self, key: str) -> list[TableNumber]:
        """The numbers of a column that have an interval."""
        lines = (line for block in self.blocks for line in block.lines)
        return [
            one
            for line in lines
            if (one := line.row.cell(key).number(line.number_kind)) and one.interval
        ]


def add_standings(table: Table, standings: Mapping[int, RowStanding]) -> Table:
    """The same table with a column of rank intervals, one of letters, and those marked that may be the best.

    ``standings`` says how rows stand, by their place in the table.
    """
    rank = TableColumn(key=RANKS, head="Rank", kind="ranks", better="", in_points=False, decimals=0)
    columns = [rank, replace(rank, key=LETTERS, head="Ties", kind="letters")]
    places = iter(range(len(table.rows())))
    groups = []
    for group in table.groups:
        standing = [(standings.get(next(places)), row) for row in group.rows]
        if table.is_board and not any(
            cell.published for row in group.rows for cell in row.cells.values()
        ):
            # A row that lacks a task has no mean, but a rank.
            standing.sort(key=lambda pair: pair[0].rank if pair[0] else len(standing) + 1)
        for at, (one, row) in enumerate(standing):
            if one is not None:
                shown = "–".join(map(str, dict.fromkeys(one.rank_interval)))
                cells = {
                    RANKS: TableCell(
                        measured=TableNumber(one.rank, interval=one.rank_interval, text=shown)
                    ),
                    LETTERS: TableCell(measured=TableNumber(one.rank, text=one.letters)),
                }
                standing[at] = one, replace(row, cells={**row.cells, **cells}, is_best=one.is_best)
        groups.append(replace(group, rows=[row for _, row in standing]))
    return replace(table, columns=[*table.columns, *columns], groups=groups)


def group_by_section(blocks: Sequence[LayoutBlock]) -> Iterator[tuple[str, LayoutBlock]]:
    """Each group with its section, which is empty where the group above has the same."""
    above = ""
    for block in blocks:
        yield "" if block.section == above else block.section, block
        above = block.section


def build_layout(
    table: Table, show: Show | None = None, *, exact: bool = False, with_intervals: bool = True
) -> Layout:
    """Choose what is shown of a table; with ``with_intervals`` averages' intervals have a column, where there are any.

    ``show`` is ``published`` or ``measured`` numbers, their ``difference``, ``both`` with the difference below, or ``merged``:
    measured where there is one, else published; by default ``merged`` for our own boards, ``both`` for papers' tables. ``exact``:
    averages to the last digit instead of as the paper rounds them.
    """
    show = check_show(show) or ("merged" if table.is_board else "both")
    columns = _shown_columns(table, show, exact=exact, ends=with_intervals)
    blocks = []
    for group in table.groups:
        lines = [line for row in group.rows for line in _lines(table, row, show, columns)]
        if lines:
            ranked = _ranked(lines, columns, merged=show == "merged")
            blocks.append(LayoutBlock(section=group.section, title=group.title, lines=ranked))
    heads = [column.head + (OTHER_PROTOCOL if column.is_mixed else "") for column in columns]
    legend = list(_legend(table, columns, blocks))
    return Layout(
        show=show, caption=table.caption, columns=columns, heads=heads, blocks=blocks, legend=legend
    )


def check_show(show: str | None) -> Show | None:
    """The same, if it is one of the choices; raises UnknownName."""
    if show is not None:
        look_up("choice of --show", show, KINDS_BY_SHOW)
    return cast("Show | None", show)


def _shown_columns(table: Table, show: Show, *, exact: bool, ends: bool) -> list[TableColumn]:
    # One average with its intervals, where any row has one, and of a board no column without a number.
    rows, columns = table.rows(), []
    for column in table.columns:
        cells = [row.cell(column.key) for row in rows]
        is_empty = not any(cell.number(side) for cell in cells for side in KINDS_BY_SHOW[show])
        if column.kind == ("average" if exact else "exact") or (table.is_board and is_empty):
            continue
        columns.append(column)
        has_ends = any(cell.measured and cell.measured.interval for cell in cells)
        if (
            ends
            and "measured" in KINDS_BY_SHOW[show]
            and column.kind in ("average", "exact")
            and has_ends
        ):
            columns.append(
                TableColumn(key=column.key, head="95% interval", kind="interval", better="")
            )
    return columns


def _lines(
    table: Table, row: Row, show: Show, columns: Sequence[TableColumn]
) -> Iterator[TableLine]:
    there = [
        side for side in KINDS_BY_SHOW[show] if any(row.cell(c.key).number(side) for c in columns)
    ]
    there = there or list(KINDS_BY_SHOW[show][:1] if row.is_listed else ())
    for place, side in enumerate(there[:1] if show == "merged" else there):
        cells = [_shown(row.cell(column.key), side, column) for column in columns]
        label, marks = (side, "") if place else (row.label, _marks(table, row, side))
        yield TableLine(
            label=label,
            symbols=marks,
            number_kind=side,
            cells=cells,
            row=row,
            continues_row=place > 0,
        )


def _marks(table: Table, row: Row, side: NumberKind) -> str:
    overlap, tied = OVERLAP_SYMBOLS.get(row.overlap, ""), TIED if row.is_best else ""
    if table.is_board:
        published = QUOTED if side == "published" and row.source else ""
        return published + (IMPORTED if row.imported else "") + overlap + tied
    facts = {
        QUOTED: row.quoted_from,
        OTHER_PROTOCOL: row.other_protocol,
        MISPRINT: row.misprint,
        IMPORTED: row.imported,
    }
    return "".join(mark for mark, there in facts.items() if there) + overlap + tied


def _shown(cell: TableCell, side: NumberKind, column: TableColumn) -> DisplayCell:
    found = cell.number(side)
    if found is None or (column.kind == "interval" and found.interval is None):
        return DisplayCell(NO_NUMBER)
    if column.kind == "interval" and found.interval is not None:
        return DisplayCell("–".join(f"{end:.{column.decimals}f}" for end in found.interval))
    if found.text:
        return DisplayCell(found.text)
    decimals = column.decimals if found.decimals is None else found.decimals
    text = (
        f"{found.value:{'+' if side == 'difference' or column.kind == 'delta' else ''}.{decimals}f}"
    )
    text = text if float(text) else text.lstrip("+-")
    spread = f"±{found.deviation:.{decimals}f}" if found.deviation is not None else ""
    return DisplayCell(
        text, spread, symbol=MISPRINT if cell.misprint and side == "published" else ""
    )


def _ranked(
    lines: Sequence[TableLine], columns: Sequence[TableColumn], *, merged: bool
) -> list[TableLine]:
    """Marks best and second best of each side; what is scored otherwise, or wrong in print, is not compared."""
    ranks: dict[tuple[int, int], int] = {}
    for side in ("published", "measured"):
        mine = [
            i
            for i, line in enumerate(lines)
            if (merged or line.number_kind == side) and not line.row.other_protocol
        ]
        for place, column in (
            (place, column) for place, column in enumerate(columns) if column.better
        ):
            cells = {i: lines[i].cells[place] for i in mine}
            values = {
                i: float(one.text)
                for i, one in cells.items()
                if one.text != NO_NUMBER and MISPRINT not in one.symbol
            }
            order = sorted(set(values.values()), reverse=column.better == "high")[:SECOND]
            if len(values) > 1:
                ranks |= {(i, place): order.index(v) + 1 for i, v in values.items() if v in order}
    return [
        replace(
            line,
            cells=[
                cell._replace(rank=ranks.get((i, place), 0))
                for place, cell in enumerate(line.cells)
            ],
        )
        for i, line in enumerate(lines)
    ]


def _legend(
    table: Table, columns: Sequence[TableColumn], blocks: Sequence[LayoutBlock]
) -> Iterator[str]:
    lines = [line for block in blocks for line in block.lines]
    used = "".join(line.symbols for line in lines)

    def said(value: Callable[[Row], str]) -> str:
        return ", ".join(dict.fromkeys(filter(None, (value(line.row) for line in lines))))

    if QUOTED in used:
        works = (
            "published, not measured here"
            if table.is_board
            else f"taken over from {said(lambda row: row.quoted_from)}"
        )
        yield f"{QUOTED} {works}"
    if OTHER_PROTOCOL in used:
        yield f"{OTHER_PROTOCOL} scored otherwise than the columns say ({said(lambda row: row.other_protocol)}); not ranked"
    if any(column.is_mixed for column in columns):
        yield f"{OTHER_PROTOCOL} a mean over tasks that are scored in different ways"
    if IMPORTED in used:
        yield f"{IMPORTED} imported from MTEB's result files, not measured here ({said(lambda row: row.imported)})"
    yield from (text for mark, text in SYMBOL_LEGENDS.items() if mark in used)
    for block in blocks:
        yield from _misprints(columns, block)
    if table.is_board and (
        empty := [c.head for c in table.columns if c.kind == "task" and c not in columns]
    ):
        yield f"no score yet: {', '.join(empty)}"
    yield from table.notes
    yield from _exact_means(columns, lines)
    if any(column.kind == "interval" for column in columns):
        yield "95% interval: of the mean, over other items and, where there are several seeds, over other seeds"
    yield from table.measured_notes if any(line.number_kind == "measured" for line in lines) else ()


def _exact_means(columns: Sequence[TableColumn], lines: Sequence[TableLine]) -> Iterator[str]:
    """Give the exact mean of each measured row whose average, taken as the paper rounds it, is printed otherwise."""
    for column in (column for column in columns if column.kind == "average"):
        exact_means = []
        for line in lines:
            average, exact = line.row.cell(AVERAGE).measured, line.row.cell(EXACT).measured
            if line.number_kind == "measured" and average and exact:
                printed, other = (
                    f"{number.value:.{column.decimals}f}" for number in (average, exact)
                )
                exact_means += [f"{other} for '{line.row.label}'"] if printed != other else []
        if exact_means:
            yield (
                f"{column.head} of measured rows: the mean of the rounded scores, as the paper takes it; the mean of the "
                f"exact scores is {format_some(exact_means)}"
            )


def _misprints(columns: Sequence[TableColumn], block: LayoutBlock) -> Iterator[str]:
    """What is wrong in print, row by row; what is wrong for the same reason in several rows of a column, once."""
    wrongs = [
        [
            (c.head, line.row.cell(c.key).misprint)
            for c, cell in zip(columns, line.cells, strict=True)
            if cell.symbol
        ]
        for line in block.lines
    ]
    several = Counter(said for wrong in wrongs for said in wrong)
    seen: set[tuple[str, str]] = set()
    for line, wrong in zip(block.lines, wrongs, strict=True):
        if line.number_kind == "published" and not line.continues_row:
            label = f"{block.title}, {line.label}" if block.title else line.label
            if MISPRINT in line.symbols:
                yield f"{MISPRINT} {label}: {line.row.misprint}"
            for head, reason in (said for said in wrong if said not in seen):
                where = (block.title if several[head, reason] > 1 else label, head)
                yield f"{MISPRINT} {', '.join(filter(None, where))}: {reason}"
                seen.add((head, reason))


def shorten_labels(layout: Layout, *, max_length: int = MAX_LENGTH_WITH_PARAMS) -> Layout:
    """The same layout with a number in the place of what makes a label too long, and a note for each number.

    ``minilm+pooling=cls_before_pooler+dtype=bfloat16`` is ``minilm+(1)``, and so are the same settings of others. Where a
    name itself is too long, its beginning stands before the number. A label with settings may have ``max_length`` signs.
    """
    notes: dict[str, str] = {}

    def short(label: str) -> str:
        found, cut = LABEL_PATTERN.fullmatch(label), label
        if found and found["settings"] and len(label) > max_length:
            settings = ", ".join(PARAM_SEPARATOR.split(found["settings"])[1:])
            cut = f"{found['stem']}+{number_text(settings, notes)}{found['state']}"
        return truncate_name(label, notes, MAX_NAME_LENGTH) if len(cut) > MAX_NAME_LENGTH else cut

    lines = (
        [replace(line, label=short(line.label)) for line in block.lines] for block in layout.blocks
    )
    blocks = [
        replace(block, lines=shown) for block, shown in zip(layout.blocks, lines, strict=True)
    ]
    return replace(
        layout,
        blocks=blocks,
        legend=[*(f"{at} {text}" for text, at in notes.items()), *layout.legend],
    )
