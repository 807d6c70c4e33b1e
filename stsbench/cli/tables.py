"""Tables that fit the terminal.

They get short names, words on several lines, or several parts if the terminal is too narrow. rich
and numpy are imported only when a table is drawn: help does not wait for them.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, NamedTuple

from stsbench.cli.printing import UNLIMITED_WIDTH, fold_lines, line_width, print_text
from stsbench.core import settings
from stsbench.core.names import MAX_LENGTH_WITH_PARAMS, MAX_NAME_LENGTH, abbreviate_name
from stsbench.core.wording import as_one_line, escape_controls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from stsbench.boards.tables.layout import Layout

GAP, NARROW_GAP = 3, 2
"""Columns between two cells of a plain table, with and without enough room."""
MAX_NAME_LENGTHS = ((MAX_LENGTH_WITH_PARAMS, MAX_NAME_LENGTH), (24, 24), (16, 16))
"""The most characters of a name with parameters and of any other name, tried one after another."""
MAX_EXPLAINED_NAMES = 12
"""The most short names explained below a table if names without parameters are short too."""
LINE_BREAK_PATTERN = re.compile(r"(\s+|[A-Z]?[a-z]{4,}(?=[A-Z])|[^\s\-_+/,=.:]*[\-_+/,=.:]+(?=\w))")
"""Where a line may end: at blanks, between words written as one, behind joining characters."""


def _make_console() -> Console:
    """Return a console of the library rich, by which tables are drawn on stdout.

    It is as wide as the terminal, or as the user's setting. If stdout is no terminal, its width is
    in effect unlimited.
    """
    from rich.console import Console

    return Console(
        width=line_width(),
        # Names and errors are text: brackets in them are no markup, colons no emoji.
        highlight=False,
        markup=False,
        emoji=False,
        # rich would take an environment variable COLUMNS=0 for a width of 0.
        _environ=settings.terminal_variables(),
    )


class PrintedColumn(NamedTuple):
    """A column of a printed table; names and numbers are never broken."""

    head: str
    cells: Sequence[str | Text]
    is_name: bool = False
    """Whether the cells are names, which may be abbreviated."""
    is_number: bool = False
    """Whether the cells are numbers, which stand to the right."""
    is_head_name: bool = False
    """Whether the head is a name."""

    @property
    def width(self) -> int:
        """The number of characters of the longest line."""
        texts = (self.head, *map(str, self.cells))
        return max(len(line) for text in texts for line in text.split("\n"))

    def abbreviate(
        self, max_lengths: tuple[int, int], numbers_by_name: dict[str, str]
    ) -> PrintedColumn:
        """Return the column with short names.

        Args:
            max_lengths: The most characters of a name with parameters, such as
                ``minilm+pooling=max``, and of any other name.
            numbers_by_name: The number, "(1)", that each abbreviated name of the table is marked
                with, and under which it is explained below. This call adds the names that it
                abbreviates.
        """

        def shorten_name(name: str | Text) -> str:
            return abbreviate_name(
                str(name),
                numbers_by_name,
                max_length_with_params=max_lengths[0],
                max_length=max_lengths[1],
            )

        head = shorten_name(self.head) if self.is_head_name else self.head
        cells = [*map(shorten_name, self.cells)] if self.is_name else self.cells
        return self._replace(head=head, cells=cells)

    def min_width(self, *, break_words: bool) -> int:
        """Return how many characters the column needs at least.

        Names and numbers are never broken; other texts may be broken between words.

        Args:
            break_words: Whether long words may be broken too, for example behind a hyphen.
        """
        cells_stay_whole = self.is_name or self.is_number
        texts = [(self.head, self.is_head_name)]
        texts += [(str(cell), cells_stay_whole) for cell in self.cells]
        unbreakable: list[str] = []
        for text, stays_whole in texts:
            if stays_whole:
                unbreakable += text.split("\n")
            elif break_words:
                # Pieces of words, cut behind each hyphen or the like, and blanks: ["sts-", "b"].
                # The pattern has one group that takes part in each match, so no piece is None.
                unbreakable += LINE_BREAK_PATTERN.split(text)
            else:
                unbreakable += text.split()
        return max(1, *map(len, unbreakable))

    def wrap(self, width: int, *, break_words: bool) -> PrintedColumn:
        """Return the column with its head and cells in lines of at most ``width`` characters.

        Args:
            width: The most characters of a line.
            break_words: Whether words may be broken: behind hyphens and other joining characters,
                and between words written as one.
        """
        wrapper = textwrap.TextWrapper(width, break_on_hyphens=break_words)
        # By itself TextWrapper breaks words at hyphens only. It uses wordsep_re only if
        # break_on_hyphens is true, and otherwise breaks at blanks.
        wrapper.wordsep_re = LINE_BREAK_PATTERN

        def wrap_cell(cell: str | Text) -> str:
            text = str(cell)
            if max(map(len, text.split("\n"))) <= width:
                return text
            return "\n".join(wrapper.wrap(text))

        return self._replace(head=wrap_cell(self.head), cells=[*map(wrap_cell, self.cells)])


def print_rows(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    number_columns: Sequence[int] = (),
    name_columns: Sequence[int] = (0,),
    name_heads: Sequence[int] = (),
    omit_empty: bool = False,
) -> None:
    """Print a plain table with a rule under its heads.

    If it is wider than the terminal, names are abbreviated, and lines below the table explain the
    short names. If it is still too wide, it is printed in several parts.

    Args:
        titles: The head of each column.
        rows: The cells of each row.
        number_columns: The indices of columns of numbers, which stand to the right.
        name_columns: The indices of columns whose cells are names, which may be abbreviated.
        name_heads: The indices of columns whose heads are names, which may be abbreviated.
        omit_empty: Whether to omit columns that are empty in all rows.
    """
    console = _make_console()
    columns = []
    for index, title in enumerate(titles):
        cells = [escape_controls(row[index]) for row in rows]
        if omit_empty and not any(cells):
            continue
        column = PrintedColumn(
            escape_controls(title),
            cells,
            is_name=index in name_columns,
            is_number=index in number_columns,
            is_head_name=index in name_heads,
        )
        columns.append(column)
    full_width = sum(column.width for column in columns) + GAP * (len(columns) - 1)
    if full_width <= console.width:
        _draw_table(console, columns, GAP)
        return
    fitted = _fit_columns(columns, console.width)
    for index, part in enumerate(fitted.parts):
        # A blank line separates the parts.
        if index:
            print_text("")
        _draw_table(console, part, NARROW_GAP)
    if fitted.key:
        # Printed as they are: a terminal itself wraps a long name, which can be copied whole.
        print_text("\n".join(["", *fitted.key]))


def print_records(records: Sequence[Mapping[str, object]], number_keys: Sequence[str]) -> None:
    """Print records as a table with one column per key; nothing if there are none.

    Into a pipe or file, cells are separated by tabs, and not aligned by blanks.

    Args:
        records: A mapping per row, all with the same keys in the same order.
        number_keys: The keys whose values are numbers, which stand to the right.
    """
    if records:
        titles = list(records[0])
        rows = [[str(value) for value in record.values()] for record in records]
        # stdout is no terminal.
        if line_width() == UNLIMITED_WIDTH:
            for row in [titles, *rows]:
                print_text("\t".join(map(as_one_line, row)))
            return
        number_columns = [index for index, title in enumerate(titles) if title in number_keys]
        print_rows(titles, rows, number_columns=number_columns)


class FittedTable(NamedTuple):
    """A table that fits the terminal."""

    parts: list[list[PrintedColumn]]
    """The columns, in several parts if they do not fit beside each other."""
    key: list[str]
    """A line per name that is abbreviated."""


def _fit_columns(columns: Sequence[PrintedColumn], max_width: int) -> FittedTable:
    """Fit the columns of a table into a width.

    Names are abbreviated to shorter and shorter lengths. At each length, words of other texts are
    also broken if needed. If even that is not enough, the table is split into parts, each of which
    repeats the first columns up to the first number.

    Args:
        columns: The columns of the table.
        max_width: The most characters of a line.

    Returns:
        The columns of each part, and a line that explains each abbreviated name: "(1) NAME".
    """
    abbreviated, key = list(columns), list[str]()
    # Each step has the most characters of a name with parameters, and of any other name.
    for step, max_lengths in enumerate(MAX_NAME_LENGTHS):
        numbers_by_name: dict[str, str] = {}
        shorter = [column.abbreviate(max_lengths, numbers_by_name) for column in columns]
        # Very many explanations are no help: then names stay as long as in the step before. The
        # first step abbreviates only very long names, so that it is always taken.
        is_first_step = step == 0
        if not is_first_step and len(numbers_by_name) > MAX_EXPLAINED_NAMES:
            break
        abbreviated = shorter
        key = [f"{number} {name}" for name, number in numbers_by_name.items()]
        for break_words in (False, True):
            if _min_table_width(abbreviated, NARROW_GAP, break_words=break_words) <= max_width:
                part = _widen_columns(abbreviated, max_width, break_words=break_words)
                return FittedTable([part], key)
    n_repeated = _count_repeated_columns(abbreviated, max_width)
    parts = _split_columns(
        abbreviated, n_repeated, gap=NARROW_GAP, max_width=max_width, break_words=True
    )
    return FittedTable([_widen_columns(part, max_width, break_words=True) for part in parts], key)


def _count_repeated_columns(columns: Sequence[PrintedColumn], max_width: int) -> int:
    """Return how many of the first columns to repeat in each part of a table that is split.

    * Usually they are the columns before the first column of numbers.
    * If no column or all columns are before it, it is one column.
    * If they and the first column of numbers are too wide together, it is one column.

    Args:
        columns: The columns of the table.
        max_width: The most characters of a line.
    """
    n_before_number = len(list(takewhile(lambda column: not column.is_number, columns)))
    if n_before_number in (0, len(columns)):
        return 1
    with_first_number = columns[: n_before_number + 1]
    width = _min_table_width(with_first_number, NARROW_GAP, break_words=True)
    return n_before_number if width <= max_width else 1


def _min_table_width(columns: Sequence[PrintedColumn], gap: int, *, break_words: bool) -> int:
    widths = [column.min_width(break_words=break_words) for column in columns]
    return sum(widths) + gap * (len(columns) - 1)


def _widen_columns(
    columns: Sequence[PrintedColumn], max_width: int, *, break_words: bool
) -> list[PrintedColumn]:
    """Return the columns wrapped so that together they use the width that there is.

    Each column gets at least its least width. The spare width goes to the columns that need more,
    one character to each in turn, until nothing is left or none needs more.

    Args:
        columns: The columns, whose least widths fit into ``max_width`` together.
        max_width: The most characters of a line.
        break_words: Whether long words may be broken.
    """
    widths = [column.min_width(break_words=break_words) for column in columns]
    spare = max_width - _min_table_width(columns, NARROW_GAP, break_words=break_words)
    while spare > 0:
        too_narrow = [index for index, column in enumerate(columns) if widths[index] < column.width]
        # At most as many columns as there are spare characters.
        widened = too_narrow[:spare]
        if not widened:
            break
        for index in widened:
            widths[index] += 1
        spare -= len(widened)
    return [
        column.wrap(width, break_words=break_words)
        for column, width in zip(columns, widths, strict=True)
    ]


def _split_columns(
    columns: Sequence[PrintedColumn],
    n_repeated: int,
    gap: int,
    max_width: int,
    *,
    break_words: bool,
) -> list[list[PrintedColumn]]:
    """Split the columns of a table into parts, each of which fits into a line.

    A part begins with the repeated first columns. Further columns are added while they fit, but at
    least one, even if it is too wide.

    Args:
        columns: All columns.
        n_repeated: How many of the first columns are repeated in each part.
        gap: The blanks between two columns.
        max_width: The most characters of a line.
        break_words: Whether long words may be broken.

    Returns:
        The columns of each part.
    """
    repeated = list(columns[:n_repeated])
    parts = [repeated.copy()]
    for column in columns[n_repeated:]:
        width = _min_table_width([*parts[-1], column], gap, break_words=break_words)
        has_further_column = len(parts[-1]) > n_repeated
        if has_further_column and width > max_width:
            parts.append(repeated.copy())
        parts[-1].append(column)
    return parts


def _draw_table(
    console: Console,
    columns: Sequence[PrintedColumn],
    gap: int,
    widths: Sequence[int] = (),
    *,
    has_head: bool = True,
) -> None:
    """Print columns as a table, by the library rich.

    Args:
        console: Where to print.
        columns: The columns, all with as many cells; without any only the heads are printed.
        gap: The blanks between two columns, at least 1.
        widths: The characters of each column; by default those of its longest line.
        has_head: Whether to print the heads and the rule under them.
    """
    from rich import box
    from rich.table import Table

    widths = widths or [column.width for column in columns]
    # rich itself puts one blank between two columns. Of the other blanks, the first is to the right
    # of a cell, the rest to the left of the next one.
    padding_right, padding_left = min(gap - 1, 1), max(gap - 2, 0)
    table = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        show_header=has_head,
        header_style="",
        padding=(0, padding_right, 0, padding_left),
    )
    for column, width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        # A head or cell of fewer lines than others stands at the bottom if only heads are printed,
        # as for a board, otherwise at the top.
        vertical: Literal["top", "bottom"] = "top" if column.cells else "bottom"
        table.add_column(
            column.head, justify=justify, width=width, overflow="fold", vertical=vertical
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    # If the table is wider than the console, rich would cut numbers. So the console is widened for
    # it, and the terminal itself wraps the lines.
    console_width = console.width
    console.width = max(console_width, sum(widths) + gap * len(widths))
    console.print(table, crop=False)
    console.width = console_width


BOARD_SETTINGS = ((2, False), (1, False), (2, True), (1, True))
"""How a board is set, from wide to tight.

Each pair is the number of blanks between columns, and whether deviations have a line of their own.
"""


def print_table(layout: Layout) -> None:
    """Print a board, a table of encoders by tasks, in as many parts as fit, then its legend.

    In each column the best number is bold and the second best is underlined. The board is set wide
    first, then tighter: with fewer blanks, and with deviations on lines of their own. If even the
    tightest does not fit into the terminal, it is printed in parts.

    Args:
        layout: The caption, heads, blocks of lines and legend of the board.
    """
    # Imports numpy, for which no list waits.
    from stsbench.boards.tables.layout import shorten_labels

    console = _make_console()
    layout = shorten_labels(_escape_layout(layout))
    print_text("\n".join(fold_lines(layout.caption, console.width)) + "\n")
    # From wide to tight: the blanks between columns, and whether deviations stand on own lines.
    for gap, has_deviation_lines in BOARD_SETTINGS:
        columns = _make_board_columns(layout, has_deviation_lines=has_deviation_lines)
        parts = _split_columns(
            columns, n_repeated=1, gap=gap, max_width=console.width, break_words=False
        )
        if len(parts) == 1:
            break
    if len(parts) > 1:
        # The first column is repeated in each part. The others are divided evenly, if all parts
        # fit so.
        part_size = math.ceil((len(columns) - 1) / len(parts))
        starts = range(1, len(columns), part_size)
        even_parts = [[columns[0], *columns[start : start + part_size]] for start in starts]
        widths = [_min_table_width(part, gap, break_words=False) for part in even_parts]
        if max(widths) <= console.width:
            parts = even_parts
    for part in parts:
        _draw_board(console, layout, columns=part, gap=gap)
        print_text("")
    for note in layout.legend:
        print_text("\n".join(fold_lines(note, console.width, indent="  ")))
    if layout.legend:
        print_text("")


def _escape_layout(layout: Layout) -> Layout:
    """Return a board whose texts have their control characters escaped.

    A terminal would obey them. They are escaped before widths are computed, because escaped text is
    longer.
    """
    blocks = [
        replace(
            block,
            section=escape_controls(block.section),
            title=escape_controls(block.title),
            lines=[
                replace(line, label=escape_controls(as_one_line(line.label)))
                for line in block.lines
            ],
        )
        for block in layout.blocks
    ]
    return replace(layout, blocks=blocks, heads=[escape_controls(head) for head in layout.heads])


def _make_board_columns(layout: Layout, *, has_deviation_lines: bool) -> list[PrintedColumn]:
    """Return the columns of a board: the labels of its lines, then its numbers.

    Args:
        layout: The board. Its blocks hold lines, and a line a label and a cell per column: the
            number as text, its rank in the column (1 the best, 2 the second best, else 0), its
            symbol and its deviation over seeds (both may be empty).
        has_deviation_lines: Whether deviations stand on a line below their numbers.
    """
    from rich.text import Text

    lines = [line for block in layout.blocks for line in block.lines]
    # A line that continues the row above is indented.
    labels = [("  " if line.continues_row else "") + line.label + line.symbols for line in lines]
    columns = [PrintedColumn(layout.label_head, labels, is_name=True)]
    style_by_rank = {1: "bold", 2: "underline"}
    for index, head in enumerate(layout.heads):
        texts = []
        for line in lines:
            cell = line.cells[index]
            separator = "\n" if has_deviation_lines and cell.deviation else ""
            number = Text(cell.text, style=style_by_rank.get(cell.rank, ""))
            texts.append(number + f"{cell.symbol}{separator}{cell.deviation}")
        columns.append(PrintedColumn(head, texts, is_number=True))
    return columns


def _draw_board(
    console: Console, layout: Layout, columns: Sequence[PrintedColumn], gap: int
) -> None:
    """Print some columns of a board: the heads, then each block under its section and title.

    Args:
        console: Where to print.
        layout: The board, for its blocks of lines.
        columns: The column of labels and some columns of scores, with the cells of all blocks.
        gap: The blanks between two columns.
    """
    from rich.text import Text

    label_column, *score_columns = columns
    # The label column's head is not broken into words, as those of score columns are.
    label_width = max(label_column.min_width(break_words=False), len(label_column.head))
    widths = [label_width, *(column.min_width(break_words=False) for column in score_columns)]
    heads_only = [column._replace(cells=[]) for column in columns]
    _draw_table(console, heads_only, gap, widths)
    # The index of the block's first line among the lines of all blocks.
    first_line = 0
    previous_section = ""
    for block_number, block in enumerate(layout.blocks):
        if block_number:
            print_text("")
        # The name of a section is printed once, above its first block.
        section = block.section if block.section != previous_section else ""
        for title, style in ((section, "bold italic"), (block.title, "italic")):
            if title:
                console.print(Text(title, style=style), no_wrap=True, overflow="ignore", crop=False)
        previous_section = block.section
        lines_of_block = slice(first_line, first_line + len(block.lines))
        block_columns = [column._replace(cells=column.cells[lines_of_block]) for column in columns]
        _draw_table(console, block_columns, gap, widths, has_head=False)
        first_line = lines_of_block.stop
