"""The layout of a table: which of its columns, lines and notes are shown, and as which text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Literal, NamedTuple, cast, get_args

from stsbench.boards.tables.table import (
    AVERAGE,
    EXACT,
    IMPORTED,
    KINDS_BY_SHOW,
    MISPRINT,
    NO_ROW,
    OTHER_PROTOCOL,
    OVERLAP_SYMBOLS,
    PAIR_SCORER,
    QUOTED,
    STANDING_KINDS,
    SYMBOL_LEGENDS,
    TIED,
    UNDETECTABLE,
    NumberKind,
    Row,
    Show,
    Table,
    TableCell,
    TableColumn,
    TableNumber,
    check_show,
)
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

NO_NUMBER = "–"
BEST, SECOND = 1, 2
RANKED_KINDS = ("published", "measured")
"""The kinds of number among which best and second best are marked."""
Intervals = Literal["average", "all", "none"]
"""A user's choice of the intervals that are shown as text."""


class DisplayCell(NamedTuple):
    """A cell as it is printed: its number, its deviation and the symbol behind it."""

    text: str
    deviation: str = ""
    rank: int = 0
    """1 if it is the best of its group, 2 if it is the second best, else 0."""
    symbol: str = ""


@dataclass(frozen=True, kw_only=True)
class TableLine:
    """One printed line: a row's published numbers, its measured ones, or their difference."""

    label: str
    cells: Sequence[DisplayCell]
    symbols: str = ""
    number_kind: NumberKind = "measured"
    row: Row = NO_ROW
    continues_row: bool = False
    """Whether the line above is of the same row."""


@dataclass(frozen=True, kw_only=True)
class LayoutBlock:
    """The lines of a group."""

    lines: Sequence[TableLine]
    section: str = ""
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """All that a renderer prints; a layout that is no table of scores has heads but no columns."""

    caption: str
    heads: Sequence[str]
    blocks: Sequence[LayoutBlock]
    legend: Sequence[str]
    label_head: str = "encoder"
    """The head of the column of labels."""
    show: Show = "measured"
    columns: Sequence[TableColumn] = ()

    def numbers_with_interval(self, column_key: str) -> list[TableNumber]:
        """Return the shown numbers of a column that have an interval."""
        lines = [line for block in self.blocks for line in block.lines]
        numbers = (line.row.cell(column_key).number(line.number_kind) for line in lines)
        return [number for number in numbers if number and number.interval]


def check_intervals(name: str) -> Intervals:
    """Return the choice of intervals; raise UnknownName if there is no such choice."""
    look_up("choice of `intervals`", name, dict.fromkeys(get_args(Intervals)))
    return cast("Intervals", name)


def group_by_section(blocks: Sequence[LayoutBlock]) -> Iterator[tuple[str, LayoutBlock]]:
    """Yield each block with the section to print above it; empty if the section stays the same."""
    section_above = ""
    for block in blocks:
        yield "" if block.section == section_above else block.section, block
        section_above = block.section


def build_layout(
    table: Table,
    show: Show | None = None,
    *,
    exact: bool = False,
    intervals: Intervals = "average",
) -> Layout:
    """Choose the lines, columns and notes of a table that are printed.

    Args:
        table: The table; of its rows, some have measured numbers and published ones. If only rows
            that the user added are shown, its ``ranked_groups`` are the groups of the whole table;
            else they are empty.
        show: ``published`` or ``measured`` numbers, their ``difference``, ``both`` with the
            difference below, or ``merged``: measured if there is one, else published. None stands
            for ``merged`` if the table is a board of ours, and for ``both`` if it is a paper's.
        exact: Show exact averages instead of those rounded as in the paper, and published numbers
            with all digits that their sources print.
        intervals: The intervals to show as text: ``average``, those of averages in a column of
            their own; ``all``, those of all numbers in a line below each row; or ``none``.

    Raises:
        UnknownName: ``show`` is none of these choices.
    """
    show = check_show(show) or ("merged" if table.is_board else "both")
    columns = _select_columns(table, show, exact=exact, with_column=intervals == "average")
    blocks = []
    for group in table.ranked_groups or table.groups:
        lines = [
            line
            for row in group.rows
            for line in _make_lines(
                table, row, show, columns, exact=exact, with_intervals=intervals == "all"
            )
        ]
        if lines:
            # The best and the second best number of each column of the group are marked.
            ranked_lines = _rank_lines(lines, columns, are_merged=show == "merged")
            blocks.append(LayoutBlock(section=group.section, title=group.title, lines=ranked_lines))
    if not table.is_board:
        blocks = _rank_added_lines(blocks, columns)
    if table.ranked_groups:
        # All rows were there to be ranked; only those that the user added are shown.
        added_lines = [[line for line in block.lines if line.row.is_added] for block in blocks]
        blocks = [
            replace(block, lines=lines)
            for block, lines in zip(blocks, added_lines, strict=True)
            if lines
        ]
    return Layout(
        show=show,
        caption=table.caption,
        columns=columns,
        heads=[column.head + (OTHER_PROTOCOL if column.is_mixed else "") for column in columns],
        blocks=blocks,
        legend=list(_make_legend(table, columns, blocks)),
    )


def _select_columns(
    table: Table, show: Show, *, exact: bool, with_column: bool
) -> list[TableColumn]:
    """Return the columns of a table that are printed.

    A table has two columns of its average, of which one is shown. Empty columns of a board of ours
    are omitted.

    Args:
        table: The table.
        show: The kinds of numbers to show; a column without any of them is empty.
        exact: Take the exact average instead of the one rounded as in the paper.
        with_column: Add a column of intervals behind an average that has any.
    """
    omitted_average = "average" if exact else "exact"
    rows = table.rows()
    columns = []
    for column in table.columns:
        # A fact of an encoder stands in one kind, whichever kinds of scores are shown.
        kinds = KINDS_BY_SHOW["both" if column.kind == "fact" else show]
        # Of each row and kind; None where there is no number.
        numbers = [row.cell(column.key).number(kind) for row in rows for kind in kinds]
        if column.kind == omitted_average or (table.is_board and not any(numbers)):
            continue
        columns.append(column)
        is_average = column.kind in ("average", "exact")
        has_intervals = any(number and number.interval for number in numbers)
        if with_column and is_average and has_intervals:
            # The interval is in the cells of the average, so its column has the same key.
            columns.append(
                TableColumn(key=column.key, head="95% interval", kind="interval", better="")
            )
    return columns


def _make_lines(
    table: Table,
    row: Row,
    show: Show,
    columns: Sequence[TableColumn],
    *,
    exact: bool,
    with_intervals: bool,
) -> Iterator[TableLine]:
    """Yield the printed lines of a row: one for each kind of its numbers that is shown.

    With ``merged`` there is one line at most: the measured numbers, else the published ones. A row
    that is always listed has a line even without a number. The label and symbols of the row are on
    its first line; further lines have the kind of number as label.

    Args:
        table: The table.
        row: The row.
        show: The choice of kinds of numbers.
        columns: The printed columns.
        exact: Show all printed digits.
        with_intervals: Add a line of intervals below numbers that have any.
    """
    # KINDS_BY_SHOW has the kinds of each choice in the order of the lines.
    kinds = [
        kind
        for kind in KINDS_BY_SHOW[show]
        if any(row.cell(column.key).number(kind) for column in columns)
    ]
    if not kinds and row.is_listed:
        kinds = [KINDS_BY_SHOW[show][0]]
    if show == "merged":
        kinds = kinds[:1]
    for index, kind in enumerate(kinds):
        is_first = index == 0
        yield TableLine(
            label=row.label if is_first else kind,
            symbols=_row_symbols(table, row, kind) if is_first else "",
            number_kind=kind,
            cells=[
                _format_cell(row.cell(column.key), kind, column, exact=exact) for column in columns
            ],
            row=row,
            continues_row=not is_first,
        )
        numbers = [row.cell(column.key).number(kind) for column in columns]
        if with_intervals and any(number and number.interval for number in numbers):
            yield TableLine(
                label="95% interval",
                number_kind="interval",
                cells=[
                    DisplayCell(_format_interval(number, column))
                    for number, column in zip(numbers, columns, strict=True)
                ],
                row=row,
                continues_row=True,
            )


def _format_interval(number: TableNumber | None, column: TableColumn) -> str:
    """Return the interval of a number, a dash if it has none; ranks are no scores with one."""
    if number is None or number.interval is None or column.kind in STANDING_KINDS:
        return NO_NUMBER
    return "–".join(f"{bound:.{column.decimals}f}" for bound in number.interval)


def _row_symbols(table: Table, row: Row, number_kind: NumberKind) -> str:
    """Return the symbols that are printed behind the name of a row, as one text.

    They say, for example, that numbers are quoted, imported or misprinted, or that the encoder was
    trained on the tests. On a board of ours, all published numbers count as quoted. In a paper's
    table, those do that the paper took over from another work.

    Args:
        table: The table.
        row: The row.
        number_kind: The kind of numbers in the line: ``measured``, ``published`` ...
    """
    # Symbol -> why the row has it; a symbol without a reason is omitted.
    if table.is_board:
        reasons_by_symbol = {
            QUOTED: row.source if number_kind == "published" else "",
            IMPORTED: row.imported,
        }
    else:
        reasons_by_symbol = {
            QUOTED: row.quoted_from,
            OTHER_PROTOCOL: row.other_protocol,
            MISPRINT: row.misprint,
            IMPORTED: row.imported,
        }
    symbols = [symbol for symbol, reason in reasons_by_symbol.items() if reason]
    # Trained on text (``text``) or gold scores (``gold``) of the tests; others have no symbol.
    symbols.append(OVERLAP_SYMBOLS.get(row.overlap, ""))
    # The encoder scores pairs itself, without embeddings.
    if row.scores_pairs:
        symbols.append(PAIR_SCORER)
    # The mean is the best, or not significantly different from the best.
    if row.is_best:
        symbols.append(TIED)
    return "".join(symbols)


def _format_cell(
    cell: TableCell, number_kind: NumberKind, column: TableColumn, *, exact: bool
) -> DisplayCell:
    """Return one number of a cell as it is printed, with its symbol, or a dash if there is none.

    A column of intervals prints the interval of the number instead.

    Args:
        cell: The cell, which may have a measured and a published number.
        number_kind: The one to print: ``measured``, ``published``, or their ``difference``.
        column: The column of the cell; it says how many decimals its scores have.
        exact: Print published scores with all digits of their source. Numbers that are not in
            points, such as steps of training, are always printed so.
    """
    if column.kind == "fact":
        # A fact is of the encoder, whichever of its numbers the line has.
        number_kind = "measured" if cell.measured else "published"
    number = cell.number(number_kind)
    if number is None:
        return DisplayCell(NO_NUMBER)
    if column.kind == "interval":
        return DisplayCell(_format_interval(number, column))
    # Such a text replaces the value.
    if number.text:
        return DisplayCell(number.text)
    # ``number.decimals``: how many the source prints; None for a number that no source prints.
    shows_printed_digits = number.decimals is not None and (exact or not column.in_points)
    decimals = number.decimals if shows_printed_digits else column.decimals
    sign = "+" if number_kind == "difference" or column.kind == "delta" else ""
    text = f"{number.value:{sign}.{decimals}f}"
    if float(text) == 0:
        # A rounded zero has no sign.
        text = text.lstrip("+-")
    deviation = ""
    if number.deviation is not None:
        deviation = f"±{number.deviation:.{decimals}f}"
    symbol = cell.significance if number_kind == "measured" else ""
    if number_kind == "published" and cell.misprint:
        symbol = MISPRINT
    elif number_kind == "published" and cell.is_near:
        symbol = UNDETECTABLE
    return DisplayCell(text, deviation=deviation, symbol=symbol)


def _rank_lines(
    lines: Sequence[TableLine], columns: Sequence[TableColumn], *, are_merged: bool
) -> list[TableLine]:
    """Return printed lines with the best cell of each column marked by rank 1, the second by 2.

    All other cells have rank 0. Rows by another protocol and misprints are not compared.

    Args:
        lines: The lines of one block of a table.
        columns: The printed columns.
        are_merged: Whether measured numbers are ranked together with published ones. Otherwise
            each kind is ranked for itself.
    """
    # (index of the line, index of the column) -> rank 1 or 2.
    rank_by_cell: dict[tuple[int, int], int] = {}
    # The kinds are published and measured; differences and intervals have no rank.
    for number_kind in RANKED_KINDS:
        line_indices = [
            index
            for index, line in enumerate(lines)
            if line.number_kind in (RANKED_KINDS if are_merged else (number_kind,))
            and not line.row.other_protocol
        ]
        for column_index, column in enumerate(columns):
            # ``better`` is "high", "low", or empty for a column without a better end.
            if column.better and column.kind != "fact":
                cells = {index: lines[index].cells[column_index] for index in line_indices}
                for line_index, rank in _rank_cells(cells, column.better).items():
                    rank_by_cell[line_index, column_index] = rank
    ranked_lines = []
    for line_index, line in enumerate(lines):
        cells_with_rank = [
            cell._replace(rank=rank_by_cell.get((line_index, column_index), 0))
            for column_index, cell in enumerate(line.cells)
        ]
        ranked_lines.append(replace(line, cells=cells_with_rank))
    return ranked_lines


def _rank_added_lines(
    blocks: Sequence[LayoutBlock], columns: Sequence[TableColumn]
) -> list[LayoutBlock]:
    """Return the blocks of a paper's table, with the rows that a user adds ranked among all rows.

    The best and second best cells of a paper's block are those of the block itself, and stay as
    they are. Added rows have a block of their own: a cell of them is the best if it is better than
    all others in the table.

    Args:
        blocks: The blocks of printed lines.
        columns: The printed columns.
    """
    ranked_blocks = []
    for block in blocks:
        has_added_rows = any(line.row.is_added for line in block.lines)
        if has_added_rows:
            other_lines = [line for other in blocks if other is not block for line in other.lines]
            # Measured and published numbers together, as the paper's rows may have only the latter.
            # The lines come back in their order, those of this block first.
            all_lines = _rank_lines([*block.lines, *other_lines], columns, are_merged=True)
            block = replace(block, lines=all_lines[: len(block.lines)])
        ranked_blocks.append(block)
    return ranked_blocks


def _rank_cells(cells: Mapping[int, DisplayCell], better: Literal["high", "low"]) -> dict[int, int]:
    """Find the best and the second best cells of a column.

    Numbers are compared as they are printed, so that equal ones share a rank. Dashes and misprints
    are ignored. If there is only one number, it has no rank.

    Args:
        cells: Index of the line -> printed cell.
        better: Whether the highest or the lowest number is the best.

    Returns:
        Index of the line -> 1 for the best, 2 for the second best; further lines are missing.
    """
    values = {
        line_index: float(cell.text)
        for line_index, cell in cells.items()
        if cell.text != NO_NUMBER and MISPRINT not in cell.symbol
    }
    if len(values) < 2:
        return {}
    # The two best values; SECOND is rank 2.
    best_values = sorted(set(values.values()), reverse=better == "high")[:SECOND]
    return {
        line_index: best_values.index(value) + 1
        for line_index, value in values.items()
        if value in best_values
    }


def _make_legend(
    table: Table, columns: Sequence[TableColumn], blocks: Sequence[LayoutBlock]
) -> Iterator[str]:
    """Yield the notes that are printed below a table.

    They are on symbols, added rows, misprints, columns without a number, averages, intervals, and
    what the table itself has notes on.

    Args:
        table: The table.
        columns: The printed columns.
        blocks: The blocks of printed lines.
    """
    lines = [line for block in blocks for line in block.lines]
    yield from _explain_symbols(table, columns, lines)
    if not table.is_board and any(line.row.is_added for line in lines):
        yield "added rows: marked if best or second best of the whole table, others of their group"
    for block in blocks:
        yield from _describe_misprints(columns, block)
    # Columns that are not printed, for they are empty. A task that another evaluator scores is on a
    # board of its own, and not missing here. MTEB's columns have no spec: None is their evaluator.
    evaluators = {column.spec and column.spec.evaluator for column in columns}
    empty_heads = [
        column.head
        for column in table.columns
        if column.kind == "task"
        and column not in columns
        and (column.spec and column.spec.evaluator) in evaluators
    ]
    if table.is_board and empty_heads:
        yield f"no score yet: {', '.join(empty_heads)}"
    yield from table.notes
    yield from _describe_exact_averages(columns, lines)
    if any(line.number_kind == "interval" for line in lines):
        yield "95% interval: over other items and, where there are several seeds, over other seeds"
    if any(column.kind == "interval" for column in columns):
        yield (
            "95% interval: of the mean, over other items and, where there are several seeds, "
            "over other seeds"
        )
    if any(line.number_kind == "measured" for line in lines):
        yield from table.measured_notes


def _explain_symbols(
    table: Table, columns: Sequence[TableColumn], lines: Sequence[TableLine]
) -> Iterator[str]:
    """Yield a note on each symbol that is printed behind the names of rows and heads of columns.

    Args:
        table: The table.
        columns: The printed columns.
        lines: The printed lines, with the symbols of their rows.
    """
    used_symbols = "".join(line.symbols for line in lines)

    def join_distinct(texts: Iterator[str]) -> str:
        # Each text once, and no empty one.
        return ", ".join(dict.fromkeys(filter(None, texts)))

    if QUOTED in used_symbols:
        works = join_distinct(line.row.quoted_from for line in lines)
        explanation = (
            "published, not measured here" if table.is_board else f"taken over from {works}"
        )
        yield f"{QUOTED} {explanation}"
    if OTHER_PROTOCOL in used_symbols:
        other_protocols = join_distinct(line.row.other_protocol for line in lines)
        yield (
            f"{OTHER_PROTOCOL} scored otherwise than the columns say ({other_protocols}); "
            "not ranked"
        )
    if any(column.is_mixed for column in columns):
        yield f"{OTHER_PROTOCOL} a mean over tasks that are scored in different ways"
    if IMPORTED in used_symbols:
        # ``imported`` is the name of the tool that made the scores of the row, or empty.
        counts = Counter(line.row.imported for line in lines if line.row.imported)
        tools = format_some([tool for tool, _ in counts.most_common()])
        yield f"{IMPORTED} imported from MTEB's result files, not measured here ({tools})"
    # Notes on the other symbols, which are the same for all tables, by symbol.
    for symbol, legend in SYMBOL_LEGENDS.items():
        if symbol in used_symbols:
            yield legend


def _describe_exact_averages(
    columns: Sequence[TableColumn], lines: Sequence[TableLine]
) -> Iterator[str]:
    """Yield a note on measured averages that would differ if their scores were not rounded first.

    Some papers average rounded scores, and the average of measured rows is made in the same way.
    The note has the exact averages of the rows where the printed digits differ.

    Args:
        columns: The printed columns.
        lines: The printed lines.
    """
    for column in columns:
        if column.kind != "average":
            continue
        exact_averages = []
        for line in lines:
            average = line.row.cell(AVERAGE).measured
            exact = line.row.cell(EXACT).measured
            if line.number_kind == "measured" and average and exact:
                printed_average = f"{average.value:.{column.decimals}f}"
                printed_exact = f"{exact.value:.{column.decimals}f}"
                if printed_average != printed_exact:
                    exact_averages.append(f"{printed_exact} for '{line.row.label}'")
        if exact_averages:
            yield (
                f"{column.head} of measured rows: the mean of the rounded scores, as the paper "
                f"takes it; the mean of the exact scores is {format_some(exact_averages)}"
            )


def _describe_misprints(columns: Sequence[TableColumn], block: LayoutBlock) -> Iterator[str]:
    """Yield a note on each published row and number of a block of lines that is a misprint.

    If several rows of a column are wrong for the same reason, there is one note for all of them.

    Args:
        columns: The printed columns.
        block: The block.
    """
    # For each line, the (head of the column, reason) of each misprinted number. Only lines of
    # published numbers have such cells.
    misprints_by_line = [
        [
            (column.head, line.row.cell(column.key).misprint)
            for column, cell in zip(columns, line.cells, strict=True)
            if cell.symbol == MISPRINT
        ]
        for line in block.lines
    ]
    counts = Counter(chain(*misprints_by_line))
    described: set[tuple[str, str]] = set()
    for line, misprints in zip(block.lines, misprints_by_line, strict=True):
        if line.number_kind != "published" or line.continues_row:
            continue
        label = f"{block.title}, {line.label}" if block.title else line.label
        if MISPRINT in line.symbols:
            yield f"{MISPRINT} {label}: {line.row.misprint}"
        for head, reason in misprints:
            if (head, reason) in described:
                continue
            described.add((head, reason))
            # A note on several rows names their block in place of a row.
            is_of_several_rows = counts[head, reason] > 1
            location = ", ".join(filter(None, (block.title if is_of_several_rows else label, head)))
            yield f"{MISPRINT} {location}: {reason}"


def shorten_labels(layout: Layout, *, max_length: int = MAX_LENGTH_WITH_PARAMS) -> Layout:
    """Return a printed table with long labels of rows shortened, and notes on what was left out.

    A number replaces the settings of an encoder in its label: ``minilm+(1)`` is printed for
    ``minilm+pooling=cls_before_pooler+dtype=bfloat16``, and the same settings of other rows have
    the same number. If the name itself is too long, its beginning stands before the number.

    Args:
        layout: The printed table.
        max_length: The maximum length of a label with settings, in characters.
    """
    # Text -> the number that replaces it, such as "(1)"; filled by the functions below.
    number_by_text: dict[str, str] = {}

    def shorten(label: str) -> str:
        """Return a label, shortened if it has more than ``max_length`` characters.

        A new number for a part that is left out is added to ``number_by_text``.
        """
        short_label = label
        # Its groups are "stem" (the name), "settings" ("+pooling=…+dtype=…") and "state" (a tag).
        match = LABEL_PATTERN.fullmatch(label)
        if match and match["settings"] and len(label) > max_length:
            # The settings begin with a separator, so the first part is empty.
            _, *settings = PARAM_SEPARATOR.split(match["settings"])
            # The number of the same settings elsewhere, or the next one.
            number = number_text(", ".join(settings), number_by_text)
            short_label = f"{match['stem']}+{number}{match['state']}"
        if len(short_label) > MAX_NAME_LENGTH:
            # The beginning of the whole label, and a number that stands for all of it.
            return truncate_name(label, number_by_text, MAX_NAME_LENGTH)
        return short_label

    blocks = []
    for block in layout.blocks:
        lines = [replace(line, label=shorten(line.label)) for line in block.lines]
        blocks.append(replace(block, lines=lines))
    notes = [f"{number} {text}" for text, number in number_by_text.items()]
    return replace(layout, blocks=blocks, legend=[*notes, *layout.legend])
