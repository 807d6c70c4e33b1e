"""A table as it is shown: which numbers in which lines, marks, the best in each group, and the legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from stsbench.errors import UnknownName
from stsbench.leaderboard.tables.table import Number, Row, Table, TableCell, TableColumn

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
    """The same lines with best and second best marked among those of one side; rows scored otherwise stand aside."""
    ranks: dict[tuple[int, int], int] = {}
    for side in ("published", "measured"):
        mine = [i for i, line in enumerate(lines) if (merged or line.side == side) and not line.row.otherwise]
        for place, column in enumerate(columns):
            if not column.better:
                continue
            values = {i: float(lines[i].cells[place].text) for i in mine if lines[i].cells[place].text != NONE}
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
    told: set[tuple[str, str]] = set()
    for line in block.lines:
        if line.side == "published" and not line.further:
            label = f"{block.title}, {line.label}" if block.title else line.label
            if WRONG in line.marks:
                yield f"{WRONG} {label}: {line.row.misprint}"
            for head, reason in _wrong_cells(columns, line):
                if (head, reason) not in told:
                    where = (block.title if several[head, reason] > 1 else label, head)
                    yield f"{WRONG} {', '.join(filter(None, where))}: {reason}"
                told.add((head, reason))


def _wrong_cells(columns: Sequence[TableColumn], line: TableLine) -> Iterator[tuple[str, str]]:
    for column, cell in zip(columns, line.cells, strict=True):
        if cell.mark:
            yield column.head, line.row.cell(column.key).misprint


def _in_order(lines: Sequence[TableLine], value: Callable[[Row], str]) -> str:
    return ", ".join(dict.fromkeys(filter(None, (value(line.row) for line in lines))))
