"""A table: columns, groups of rows, cells that hold a measured and a published number, and how they are laid out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

from stsbench.boards.published import Paper
from stsbench.core.errors import UnknownName
from stsbench.core.names import LABEL, LONGEST, WITH_SETTINGS, cut_name, numbered
from stsbench.results.record import Result

Terms = Sequence[str | Sequence[str]]
ColumnKind = Literal["task", "average", "interval", "exact", "delta", "ranks", "letters"]
AVERAGE, EXACT, DELTA, RANKS, LETTERS = "average", "average_exact", "distance", "ranks", "letters"
"""Keys of the columns that are made of other columns."""
STANDINGS = ("ranks", "letters")
"""The kinds of column that say how rows stand to each other: the lowest is best."""


class Wanted(NamedTuple):
    """The scores that a column takes: of which task and split, scored how.

    ``printed`` is the split as published scores name it: ``test`` also where a task has one split only.
    """

    task: str
    split: str
    printed: str
    protocol: str
    metric: str
    evaluator: str
    whole: bool
    """Whether the task has no subsets, so that all aggregations are the same."""
    fields: Mapping[str, Any] = {}
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


Show = Literal["published", "measured", "difference", "both", "merged"]
NumberKind = Literal["published", "measured", "difference"]
QUOTED, OTHERWISE, TEXT, GOLD, WRONG, IMPORTED, TIED = "†", "‡", "§", "¶", "*", "°", "≈"
MARKS = QUOTED + OTHERWISE + TEXT + GOLD + WRONG + IMPORTED + TIED
"""What may stand behind a name in a table."""
OVERLAPS = {"text": TEXT, "gold": GOLD}
OVERLAP_SAID = {
    TEXT: f"{TEXT} trained or fitted on text that overlaps the test sentences",
    GOLD: f"{GOLD} trained on gold scores that overlap the test pairs",
}
SAID = {**OVERLAP_SAID, TIED: f"{TIED} best by the mean, or not significantly different from the best"}
NONE = "–"
BEST, SECOND = 1, 2


class Shown(NamedTuple):
    """One cell: its number, its deviation, whether it is best (1) or second best (2), and its mark."""

    text: str
    deviation: str = ""
    rank: int = 0
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class TableLine:
    """One line: a row's published numbers, the measured ones, or their difference."""

    label: str
    marks: str
    side: NumberKind
    cells: Sequence[Shown]
    row: Row
    further: bool
    """Whether the row has a line above."""


@dataclass(frozen=True, kw_only=True)
class LayoutBlock:
    """The lines of a group."""

    section: str
    title: str
    lines: Sequence[TableLine]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """All that a renderer prints."""

    show: Show
    caption: str
    columns: Sequence[TableColumn]
    heads: Sequence[str]
    blocks: Sequence[LayoutBlock]
    legend: Sequence[str]
    label_head: str = "encoder"
    """What the labels of lines are."""


def lay_out(table: Table, show: Show | None = None, *, exact: bool = False, ends: bool = True) -> Layout:
    """Choose what is shown of a table.

    Args:
        table: the table.
        show: ``published`` or ``measured`` numbers, their ``difference``, ``both`` with the difference
            below, or ``merged``: measured where there is one, else published. Default: ``merged`` for
            our own boards, ``both`` for papers' tables.
        exact: averages to the last digit instead of as the paper rounds them.
        ends: whether averages' intervals have a column, where there are any.
    """
    show = check_show(show) or ("merged" if table.is_board else "both")
    columns = shown_columns(table, show, exact=exact)
    if ends and "measured" in sides(show):
        columns = [made for column in columns for made in (column, *_ends(table, column))]
    blocks = []
    for group in table.groups:
        lines = [line for row in group.rows for line in _lines(table, row, show, columns)]
        if lines:
            ranked = _ranked(lines, columns, merged=show == "merged")
            blocks.append(LayoutBlock(section=group.section, title=group.title, lines=ranked))
    heads = [column.head + (OTHERWISE if column.mixed else "") for column in columns]
    legend = list(_legend(table, columns, blocks))
    return Layout(show=show, caption=table.caption, columns=columns, heads=heads, blocks=blocks, legend=legend)


def has_lines(table: Table, show: Show | None) -> bool:
    """Whether anything but the baseline would be shown."""
    chosen = sides(show or "both")
    return any(
        number(cell, side)
        for row in table.rows()
        if not row.is_baseline
        for cell in row.cells.values()
        for side in chosen
    )


def check_show(show: str | None) -> Show | None:
    """The same, if it is one of the choices; raises UnknownName."""
    for choice in get_args(Show):
        if show == choice:
            return choice  # type: ignore[no-any-return]
    if show is not None:
        raise UnknownName("choice of --show", show, get_args(Show), hint=f"one of {', '.join(get_args(Show))}")
    return None


def shown_columns(table: Table, show: Show, *, exact: bool) -> list[TableColumn]:
    """The columns shown: one average, and of a board no column without a number."""
    left_out = "average" if exact else "exact"
    columns = [column for column in table.columns if column.kind != left_out]
    if not table.is_board:
        return columns
    return [c for c in columns if any(number(row.cell(c.key), side) for row in table.rows() for side in sides(show))]


def _ends(table: Table, average: TableColumn) -> Iterator[TableColumn]:
    """The column of an average's intervals, where any row has one."""
    if average.kind in ("average", "exact") and any(_interval(row.cell(average.key)) for row in table.rows()):
        yield TableColumn(key=average.key, head="95% interval", kind="interval", better="")


def _interval(cell: TableCell) -> tuple[float, float] | None:
    return cell.measured.interval if cell.measured else None


SIDES: Mapping[Show, tuple[NumberKind, ...]] = {
    "published": ("published",),
    "measured": ("measured",),
    "difference": ("difference",),
    "both": ("published", "measured", "difference"),
    "merged": ("measured", "published"),
}


def sides(show: Show) -> tuple[NumberKind, ...]:
    """The numbers that a choice may show."""
    return SIDES[show]


def number(cell: TableCell, side: NumberKind) -> Number | None:
    """A cell's number of one side."""
    numbers = {"published": cell.published, "measured": cell.measured, "difference": cell.difference}
    return numbers[side]


def _lines(table: Table, row: Row, show: Show, columns: Sequence[TableColumn]) -> Iterator[TableLine]:
    there = [side for side in sides(show) if any(number(row.cell(c.key), side) for c in columns)]
    there = there or list(sides(show)[:1] if row.is_listed else ())
    for place, side in enumerate(there[:1] if show == "merged" else there):
        further = place > 0
        label = {"measured": "measured", "difference": "difference"}[side] if further else row.label
        marks = "" if further else _marks(table, row, side)
        cells = [_shown(row.cell(column.key), side, column) for column in columns]
        yield TableLine(label=label, marks=marks, side=side, cells=cells, row=row, further=further)


def _marks(table: Table, row: Row, side: NumberKind) -> str:
    tied = TIED if row.is_best else ""
    if table.is_board:
        published = QUOTED if side == "published" and row.source else ""
        return published + (IMPORTED if row.imported else "") + OVERLAPS.get(row.overlap, "") + tied
    facts = {QUOTED: row.quoted, OTHERWISE: row.otherwise, WRONG: row.misprint, IMPORTED: row.imported}
    marks = "".join(mark for mark, there in facts.items() if there)
    return marks + (OVERLAPS.get(row.overlap, "") if row.is_added else "") + tied


def _shown(cell: TableCell, side: NumberKind, column: TableColumn) -> Shown:
    found = number(cell, side)
    if found is None or (column.kind == "interval" and found.interval is None):
        return Shown(NONE)
    if column.kind == "interval" and found.interval is not None:
        return Shown("–".join(f"{end:.{column.decimals}f}" for end in found.interval))
    if found.text:
        return Shown(found.text)
    decimals = column.decimals if found.decimals is None else found.decimals
    signed = side == "difference" or column.kind == "delta"
    text = f"{found.value:{'+' if signed else ''}.{decimals}f}"
    if float(text) == 0:
        text = text.lstrip("+-")
    spread = f"±{found.deviation:.{decimals}f}" if found.deviation is not None else ""
    return Shown(text, spread, mark=WRONG if cell.misprint and side == "published" else "")


def _ranked(lines: Sequence[TableLine], columns: Sequence[TableColumn], *, merged: bool) -> list[TableLine]:
    """The same lines with best and second best marked among those of one side."""
    ranks: dict[tuple[int, int], int] = {}
    for side in ("published", "measured"):
        mine = [i for i, line in enumerate(lines) if merged or line.side == side]
        for place, column in enumerate(columns):
            if not column.better:
                continue
            values = {i: float(lines[i].cells[place].text) for i in mine if may_win(lines[i], place)}
            order = sorted(set(values.values()), reverse=column.better == "high")[:SECOND]
            if len(values) > 1:
                ranks |= {(i, place): order.index(v) + 1 for i, v in values.items() if v in order}
    return [
        TableLine(
            label=line.label,
            marks=line.marks,
            side=line.side,
            cells=[cell._replace(rank=ranks.get((i, place), 0)) for place, cell in enumerate(line.cells)],
            row=line.row,
            further=line.further,
        )
        for i, line in enumerate(lines)
    ]


def may_win(line: TableLine, place: int) -> bool:
    """Whether the number in a place is compared with others: not one scored otherwise, nor one marked as wrong in print.

    Best and second best, in every format, are taken among these numbers alone.
    """
    shown = line.cells[place]
    return shown.text != NONE and not line.row.otherwise and WRONG not in shown.mark


def _legend(table: Table, columns: Sequence[TableColumn], blocks: Sequence[LayoutBlock]) -> Iterator[str]:
    """One line for each mark that is used, then the table's own notes."""
    lines = [line for block in blocks for line in block.lines]
    used = "".join(line.marks for line in lines)
    if QUOTED in used:
        works = _in_order(lines, lambda row: row.quoted)
        yield f"{QUOTED} " + ("published, not measured here" if table.is_board else f"taken over from {works}")
    if OTHERWISE in used:
        ways = _in_order(lines, lambda row: row.otherwise)
        yield f"{OTHERWISE} scored otherwise than the columns say ({ways}); not ranked"
    if any(column.mixed for column in columns):
        yield f"{OTHERWISE} a mean over tasks that are scored in different ways"
    if IMPORTED in used:
        makers = _in_order(lines, lambda row: row.imported)
        yield f"{IMPORTED} imported from MTEB's result files, not measured here ({makers})"
    yield from (said for mark, said in SAID.items() if mark in used)
    for block in blocks:
        yield from _misprints(columns, block)
    yield from _notes(table, columns, is_measured=any(line.side == "measured" for line in lines))


def _notes(table: Table, columns: Sequence[TableColumn], *, is_measured: bool) -> Iterator[str]:
    """The table's own notes, and what its columns lack and hold."""
    if table.is_board and (empty := [c.head for c in table.columns if c.kind == "task" and c not in columns]):
        yield f"no score yet: {', '.join(empty)}"
    yield from table.notes
    if any(column.kind == "interval" for column in columns):
        yield "95% interval: of the mean, over other items and, where there are several seeds, over other seeds"
    if is_measured:
        yield from table.measured_notes


def _misprints(columns: Sequence[TableColumn], block: LayoutBlock) -> Iterator[str]:
    """What is wrong in print, row by row; what is wrong for the same reason in several rows of a column, once."""
    several = Counter(said for line in block.lines for said in _wrong_cells(columns, line))
    seen: set[tuple[str, str]] = set()
    for line in block.lines:
        if line.side == "published" and not line.further:
            label = f"{block.title}, {line.label}" if block.title else line.label
            if WRONG in line.marks:
                yield f"{WRONG} {label}: {line.row.misprint}"
            for head, reason in _wrong_cells(columns, line):
                if (head, reason) not in seen:
                    where = (block.title if several[head, reason] > 1 else label, head)
                    yield f"{WRONG} {', '.join(filter(None, where))}: {reason}"
                seen.add((head, reason))


def _wrong_cells(columns: Sequence[TableColumn], line: TableLine) -> Iterator[tuple[str, str]]:
    for column, cell in zip(columns, line.cells, strict=True):
        if cell.mark:
            yield column.head, line.row.cell(column.key).misprint


def _in_order(lines: Sequence[TableLine], value: Callable[[Row], str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, (value(line.row) for line in lines))))


NEXT_SETTING = re.compile(r"\+(?=[A-Za-z_][\w.]*=)")


def short_labels(layout: Layout, *, with_settings: int = WITH_SETTINGS) -> Layout:
    """The same layout with a number in the place of what makes a label too long, and a note for each number.

    ``minilm+pooling=cls_before_pooler+dtype=bfloat16`` is ``minilm+(1)``, and so are the same settings of others. Where a
    name itself is too long, its beginning stands before the number.

    Args:
        layout: what a renderer is about to write.
        with_settings: so many signs a label with settings may have.
    """
    notes: dict[str, str] = {}
    blocks = [
        replace(block, lines=[_short(line, notes, with_settings) for line in block.lines]) for block in layout.blocks
    ]
    noted = [f"{number} {text}" for text, number in notes.items()]
    return replace(layout, blocks=blocks, legend=[*noted, *layout.legend]) if noted else layout


def _short(line: TableLine, notes: dict[str, str], with_settings: int) -> TableLine:
    found = LABEL.fullmatch(line.label)
    label = line.label
    if found and found["settings"] and len(label) > with_settings:
        settings = ", ".join(NEXT_SETTING.split(found["settings"])[1:])
        label = f"{found['stem']}+{numbered(settings, notes)}{found['state']}"
    return replace(line, label=cut_name(line.label, notes, LONGEST) if len(label) > LONGEST else label)
