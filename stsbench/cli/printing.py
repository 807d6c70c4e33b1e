"""What commands print: lines and facts, tables that fit a terminal, JSON for scripts, and how work goes.

Tables have short names, words on several lines, or parts where the terminal is too narrow. rich, numpy and what shows work
are imported where something is drawn: help does not wait for them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from stsbench.cli.wording import describe_error, word_options
from stsbench.core import settings
from stsbench.core.errors import StsbenchError, UnknownName
from stsbench.core.files import write_atomically
from stsbench.core.names import MAX_LENGTH_WITH_PARAMS, MAX_NAME_LENGTH, abbreviate_name
from stsbench.core.wording import escape_controls, join_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from stsbench.api.progress_display import ProgressDisplay
    from stsbench.boards.tables.layout import Layout
    from stsbench.core.catalogue import Catalogue
    from stsbench.plots.chart import Chart
    from stsbench.results.record import Result

LONGEST_LINE, LONGEST_WORD = 20_000, 300
"""Signs of an error's line, and of a word in it: more than ours have, so that only what others wrote is cut."""
NARROWEST, ENDLESS = 20, 10_000
"""Columns: a terminal has more than the first; a pipe or file, where nothing is cut or wrapped, as good as the second."""
GAP, NARROW_GAP = 3, 2
"""Columns between two cells of a plain table, where there is room and where there is not."""
LIMITS = ((MAX_LENGTH_WITH_PARAMS, MAX_NAME_LENGTH), (24, 24), (16, 16))
"""How many signs a name with settings may have, and any other; less and less."""
MOST_KEYS = 12
"""So many short names are explained below a table, beside those whose settings are long."""
JOINTS = re.compile(r"(\s+|[A-Z]?[a-z]{4,}(?=[A-Z])|[^\s\-_+/,=.:]*[\-_+/,=.:]+(?=\w))")
"""Where lines may end: blanks, the first of several words that are written in one, and signs that join words."""


def line_width(*, stderr: bool = False) -> int:
    """How wide lines may be: as the user says or the terminal is; without one, they have no end."""
    watched = (sys.stderr if stderr else sys.stdout).isatty()
    found = settings.terminal_columns() or (
        shutil.get_terminal_size().columns if watched else ENDLESS
    )
    return max(found, NARROWEST)


def print_facts(rows: Iterable[Sequence[str]]) -> None:
    """Print names and what they are, side by side without a head; no word is broken, so that it can be copied."""
    shown, room = (
        [(escape_controls(name), escape_controls(value)) for name, value in rows],
        line_width(),
    )
    indent = max((len(name) for name, _ in shown), default=0) + 2
    for name, value in shown:
        lines = [part for line in value.split("\n") for part in folded(line, room - indent)]
        # A word that is longer than the room beside the names begins further left, on a line of its own.
        first = lines.pop(0) if len(lines[0]) <= room - indent else ""
        print_text(f"{name:<{indent}}{first}".rstrip())
        for line in lines:
            print_text(" " * max(min(indent, room - len(line)), 0) + line)


def print_json(value: Any, *, shown: Callable[[str], str] = str) -> None:  # noqa: ANN401 - any JSON value
    """Print one JSON value on stdout; ``shown`` may write it otherwise."""
    print_text(shown(json.dumps(value, indent=1, ensure_ascii=False)))


def print_text(text: str, *, end: str = "\n") -> None:
    """Print text on stdout; control characters in it are shown and do nothing."""
    sys.stdout.write(escape_controls(text) + end)


def emit(content: str | Chart, out: Path | None, *, fmt: str = "", silent: bool = False) -> None:
    """Write a text or a figure to a file and, unless ``silent``, say so; or print the text where no file is named.

    A figure is in the format ``fmt``, else as the file's name ends.
    """
    if out is None:
        print_text(str(content), end="")
        return
    fmt = fmt or out.suffix.removeprefix(".")
    write_atomically(out, content.encode() if isinstance(content, str) else content.to_bytes(fmt))
    if not silent:
        print_text(f"wrote {out}")


def write_records(path: Path, records: Sequence[Mapping[str, Any]], heads: Sequence[str]) -> None:
    """Write records as JSON or CSV, as the file's name ends."""
    # Imports numpy.
    from stsbench.boards.render.text import csv_text

    as_json = path.suffix == ".json"
    text = (
        json.dumps(records, indent=1, ensure_ascii=False) + "\n"
        if as_json
        else csv_text(records, heads)
    )
    write_atomically(path, text.encode())


def points(score: float | None) -> str:
    """A score times 100, as tables show it; nothing where there is none."""
    return "" if score is None else f"{100 * score:.2f}"


def print_paragraph(*texts: str) -> None:
    """Print sentences on stdout: on a terminal its lines end between words, elsewhere each text is one line."""
    for text in texts:
        print_text(_wrapped(text) if sys.stdout.isatty() else text)


def print_error(problem: object, *, about: str = "") -> None:
    """Print on stderr what is wrong, on one line; on a terminal what to do stands on its own line.

    Args:
        problem: An error or a text; cut if it is very long.
        about: What it is about, an encoder or a task; not repeated if the error names it.
    """
    prefix = f"stsbench: {error_prefix(about, problem)}"
    text, hint = word_options(str(problem)), ""
    if isinstance(problem, StsbenchError):
        text, hint = describe_error(problem)
    if not sys.stderr.isatty():
        line = f"{text}; {hint}" if hint else text
        sys.stderr.write(f"{_bounded(prefix, line)}\n")
        return
    lines = [_bounded(prefix, text)]
    if hint:
        lines.append(_bounded("hint: ", hint.replace("?; ", "? ")))
    sys.stderr.write("".join(f"{_wrapped(line, stderr=True)}\n" for line in lines))


def error_prefix(about: str, what: object) -> str:
    """What stands before an error's text: what it is of, unless that is the very name that is not known."""
    return (
        "" if not about or (isinstance(what, UnknownName) and what.name == about) else f"{about}: "
    )


def _bounded(before: str, what: object) -> str:
    words = escape_controls(join_lines(f"{before}{what}")).split(" ")
    line = " ".join(
        word if len(word) <= LONGEST_WORD else f"{word[:200]}…{word[-50:]}" for word in words
    )
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def _wrapped(text: str, *, stderr: bool = False) -> str:
    # Paths, names and options stay whole, and so does a command at the end: they are to be copied.
    width = line_width(stderr=stderr)
    words, command = (text, "") if len(text) <= width else (*text.rpartition(": stsbench ")[::2],)
    if command and words:
        return f"{_wrapped(f'{words}:', stderr=stderr)}\n  stsbench {command}"
    return "\n".join(folded(text, width))


def folded(text: str, width: int = 0, *, indent: str = "") -> list[str]:
    """A text in lines between words; no word is broken, so that names and paths can be copied; ``indent`` is of the others."""
    width = width or line_width()
    if len(text) <= width:
        return [text]
    lines = textwrap.wrap(
        text,
        max(width, 1),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    # A word that does not fit beside the indent begins further left.
    return [
        line if len(line) <= width else " " * max(width - len(line.lstrip()), 0) + line.lstrip()
        for line in lines
    ]


def cut(text: str, longest: int = 60) -> str:
    """A text as one line, without its end where it is longer than so many signs."""
    line = join_lines(text)
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def print_progress(line: str) -> None:
    """Print one line on stderr that is no complaint: how the work goes."""
    sys.stderr.write(escape_controls(join_lines(word_options(line))) + "\n")


def show_cursor() -> None:
    """Show the cursor of the terminal again, which a progress bar that was ended has hidden."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")


def complain_of_all(what: str, problems: Iterable[str]) -> None:
    """Print a line on stderr for each problem, with ``what`` has come of it."""
    for problem in problems:
        print_error(f"{what}: {problem}")


def print_traceback(error: BaseException) -> None:
    """Print the traceback of a bug on stderr: where the user's own code raised it, from there on, else the whole of it."""
    # The user's code is neither ours nor Python's nor a package's.
    folders = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    others = (
        "<frozen",
        *(f"{one}{os.sep}" for one in (Path(__file__).parents[1], *filter(None, folders))),
    )
    whole = traceback.TracebackException.from_exception(error)
    one: traceback.TracebackException | None = whole
    while one is not None:
        first = next(
            (at for at, frame in enumerate(one.stack) if not frame.filename.startswith(others)), 0
        )
        del one.stack[:first]
        one = one.__cause__ or one.__context__
    sys.stderr.write(escape_controls("".join(whole.format())))


def shown_work(what: str = "reading data") -> AbstractContextManager[ProgressDisplay]:
    """Show work of any kind until the end of the block: a bar where someone watches, else a line now and then."""
    from stsbench.api.progress_display import show_progress

    return show_progress(what, write_line=print_progress)


@contextmanager
def shown_count(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many of something are done, and how long the others take; nothing before the first."""
    shown: list[ProgressDisplay] = []
    with ExitStack() as stack:

        def update(done: int, total: int) -> None:
            if not shown:
                shown.append(stack.enter_context(shown_work(what)))
            shown[0].update("work", done, total, label=what)

        yield update


CHECKED = "results checked"
"""What :func:`shown_count` calls results that are held to their items."""


def believed(results: Iterable[Result], catalogue: Catalogue) -> list[Result]:
    """Select the Results that are believed; print a line for each other, and one on the unverified."""
    from stsbench.evaluators.belief import believe

    with shown_count(CHECKED) as progress:
        found = believe(results, catalogue, progress)
    complain_of_all("skipped", (problem.message for problem in found.problems))
    if found.unverified:
        print_error(found.notice)
    return found.results


def _console() -> Console:
    """A console as wide as the user says or the terminal is; without one, lines have no end."""
    from rich.console import Console

    return Console(
        width=line_width(),
        # Names and errors are text: brackets in them are no markup, colons no emoji.
        highlight=False,
        markup=False,
        emoji=False,
        # rich would take COLUMNS=0 for a width.
        _environ=settings.terminal(),
    )


class PrintedColumn(NamedTuple):
    """A column as it is drawn; names and numbers are never broken."""

    head: str
    cells: Sequence[str | Text]
    is_name: bool = False
    is_number: bool = False
    head_is_name: bool = False

    @property
    def widest(self) -> int:
        """Signs of the longest line."""
        return max(len(line) for cell in (self.head, *self.cells) for line in str(cell).split("\n"))

    def shortened(self, limits: tuple[int, int], numbers: dict[str, str]) -> PrintedColumn:
        """The same with short names; ``numbers`` are those given already."""

        def short(name: str | Text) -> str:
            return abbreviate_name(
                str(name), numbers, max_length_with_params=limits[0], max_length=limits[1]
            )

        head = short(self.head) if self.head_is_name else self.head
        return self._replace(
            head=head, cells=[*map(short, self.cells)] if self.is_name else self.cells
        )

    def least(self, *, broken: bool) -> int:
        """Signs that it needs where long words may be ``broken`` at their joints, or where none may be."""
        is_whole = self.is_name or self.is_number
        words: list[str] = []
        for text, whole in [
            (self.head, self.head_is_name),
            *((str(cell), is_whole) for cell in self.cells),
        ]:
            words += text.split("\n") if whole else JOINTS.split(text) if broken else text.split()
        return max(1, *map(len, words))

    def wrapped(self, width: int, *, broken: bool) -> PrintedColumn:
        """The same with each cell in lines, each as long as fits."""
        wrapper = textwrap.TextWrapper(width, break_on_hyphens=broken)
        # What TextWrapper itself breaks at are hyphens alone.
        wrapper.wordsep_re = JOINTS

        def lines(cell: str | Text) -> str:
            text = str(cell)
            return (
                text if max(map(len, text.split("\n"))) <= width else "\n".join(wrapper.wrap(text))
            )

        return self._replace(head=lines(self.head), cells=[*map(lines, self.cells)])


def print_rows(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[int] = (),
    names: Sequence[int] = (0,),
    heads: Sequence[int] = (),
    sparse: bool = False,
) -> None:
    """Print a plain table: a rule under the header, numbers to the right; of a ``sparse`` one no column that all rows lack.

    Where it is wider than the terminal, ``names`` and ``heads`` that are names are short, and a key below says them whole.
    """
    screen = _console()
    columns = [
        PrintedColumn(
            escape_controls(head),
            [escape_controls(row[at]) for row in rows],
            at in names,
            at in right,
            at in heads,
        )
        for at, head in enumerate(titles)
        if not sparse or any(row[at] for row in rows)
    ]
    if sum(column.widest for column in columns) + GAP * (len(columns) - 1) <= screen.width:
        _draw(screen, columns, GAP)
        return
    parts, key = _fitted(columns, screen.width)
    for place, part in enumerate(parts):
        if place:
            print_text("")
        _draw(screen, part, NARROW_GAP)
    if key:
        # A name longer than the terminal is wrapped by it, and copied in one piece.
        print_text("\n".join(["", *key]))


def print_records(records: Sequence[Mapping[str, object]], right: Sequence[str]) -> None:
    """Print records, if any, by :func:`print_rows`: a column a key, and those named in ``right`` to the right."""
    if records:
        titles = list(records[0])
        rows = [[str(value) for value in record.values()] for record in records]
        print_rows(titles, rows, right=[at for at, title in enumerate(titles) if title in right])


def _fitted(
    columns: Sequence[PrintedColumn], room: int
) -> tuple[list[list[PrintedColumn]], list[str]]:
    """Columns with short names and words on several lines, in parts where even so there is no room; and the names' key."""
    short, key = list(columns), list[str]()
    for place, limits in enumerate(LIMITS):
        numbers: dict[str, str] = {}
        tried = [column.shortened(limits, numbers) for column in columns]
        # A key that is as long as a list is no help.
        if place and len(numbers) > MOST_KEYS:
            break
        short, key = tried, [f"{number} {name}" for name, number in numbers.items()]
        for broken in (False, True):
            if _needed(short, NARROW_GAP, broken=broken) <= room:
                return [_of_width(short, room, broken=broken)], key
    left = len(list(takewhile(lambda column: not column.is_number, short)))
    if left in (0, len(short)) or _needed(short[: left + 1], NARROW_GAP, broken=True) > room:
        left = 1
    return [
        _of_width(part, room, broken=True)
        for part in _parts(short, left, NARROW_GAP, room, broken=True)
    ], key


def _needed(columns: Sequence[PrintedColumn], gap: int, *, broken: bool) -> int:
    return sum(column.least(broken=broken) for column in columns) + gap * (len(columns) - 1)


def _of_width(columns: Sequence[PrintedColumn], room: int, *, broken: bool) -> list[PrintedColumn]:
    """Columns of the least width, with what is spare shared evenly where it is needed."""
    widths = [column.least(broken=broken) for column in columns]
    spare = room - _needed(columns, NARROW_GAP, broken=broken)
    while spare > 0 and (
        short := [at for at, column in enumerate(columns) if widths[at] < column.widest]
    ):
        for place in short[:spare]:
            widths[place] += 1
        spare -= len(short[:spare])
    return [
        column.wrapped(width, broken=broken) for column, width in zip(columns, widths, strict=True)
    ]


def _parts(
    columns: Sequence[PrintedColumn], left: int, gap: int, room: int, *, broken: bool
) -> list[list[PrintedColumn]]:
    """As many columns a part as fit behind those that say in each part what its lines are of; at least one."""
    parts = [list(columns[:left])]
    for column in columns[left:]:
        if len(parts[-1]) > left and _needed([*parts[-1], column], gap, broken=broken) > room:
            parts.append(list(columns[:left]))
        parts[-1].append(column)
    return parts


def _draw(
    screen: Console,
    shown: Sequence[PrintedColumn],
    gap: int,
    widths: Sequence[int] = (),
    *,
    head: bool = True,
) -> None:
    from rich import box
    from rich.table import Table

    widths = widths or [column.widest for column in shown]
    pad = (0, min(gap - 1, 1), 0, max(gap - 2, 0))
    made = Table(
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        show_header=head,
        header_style="",
        padding=pad,
    )
    for column, width in zip(shown, widths, strict=True):
        justify: Literal["left", "right"] = "right" if column.is_number else "left"
        # Heads of a board stand on their rule; a plain table's cells are read from their first line on.
        vertical: Literal["top", "bottom"] = "top" if column.cells else "bottom"
        made.add_column(
            column.head, justify=justify, width=width, overflow="fold", vertical=vertical
        )
    for row in zip(*(column.cells for column in shown), strict=True):
        made.add_row(*row)
    # What is wider even so the terminal itself wraps: rich would cut numbers.
    width, screen.width = screen.width, max(screen.width, sum(widths) + gap * len(widths))
    screen.print(made, crop=False)
    screen.width = width


SETTINGS = ((2, False), (1, False), (2, True), (1, True))
"""How tightly a board is set, from wide to tight: blanks between columns, and whether deviations have a line of their own."""


def print_table(layout: Layout) -> None:
    """Print a board in as many parts as its columns need, best in bold, second best underlined; then its legend."""
    # Imports numpy, for which no list waits.
    from stsbench.boards.tables.layout import shorten_labels

    # Control characters of names are written out before widths are reckoned.
    blocks = [
        replace(
            block,
            section=escape_controls(block.section),
            title=escape_controls(block.title),
            lines=[
                replace(line, label=escape_controls(join_lines(line.label))) for line in block.lines
            ],
        )
        for block in layout.blocks
    ]
    screen = _console()
    layout = shorten_labels(
        replace(layout, blocks=blocks, heads=[escape_controls(head) for head in layout.heads])
    )
    print_text("\n".join(folded(layout.caption, screen.width)) + "\n")
    for gap, is_folded in SETTINGS:
        columns = _board(layout, is_folded=is_folded)
        parts = _parts(columns, 1, gap, screen.width, broken=False)
        if len(parts) == 1:
            break
    if len(parts) > 1:
        # About as many columns in each.
        each = -(-(len(columns) - 1) // len(parts))
        parts = [[columns[0], *columns[at : at + each]] for at in range(1, len(columns), each)]
    for part in parts:
        _print_board(screen, layout, part, gap)
        print_text("")
    for note in layout.legend:
        print_text("\n".join(folded(note, screen.width, indent="  ")))
    if layout.legend:
        print_text("")


def _board(layout: Layout, *, is_folded: bool) -> list[PrintedColumn]:
    from rich.text import Text

    lines = [line for block in layout.blocks for line in block.lines]
    labels = [("  " if line.continues_row else "") + line.label + line.symbols for line in lines]
    columns = [PrintedColumn(layout.label_head, labels, is_name=True)]
    for at, head in enumerate(layout.heads):
        cells = []
        for cell in (line.cells[at] for line in lines):
            below = "\n" if is_folded and cell.deviation else ""
            style = {1: "bold", 2: "underline"}.get(cell.rank, "")
            cells.append(Text(cell.text, style=style) + f"{cell.symbol}{below}{cell.deviation}")
        columns.append(PrintedColumn(head, cells, is_number=True))
    return columns


def _print_board(
    screen: Console, layout: Layout, columns: Sequence[PrintedColumn], gap: int
) -> None:
    from rich.text import Text

    widths = [
        max(one.least(broken=False), 0 if at else len(one.head)) for at, one in enumerate(columns)
    ]
    _draw(screen, [column._replace(cells=[]) for column in columns], gap, widths)
    start, above = 0, ""
    for number, block in enumerate(layout.blocks):
        if number:
            print_text("")
        section = block.section if block.section != above else ""
        for title, style in ((section, "bold italic"), (block.title, "italic")):
            if title:
                screen.print(Text(title, style=style), no_wrap=True, overflow="ignore", crop=False)
        above, end = block.section, start + len(block.lines)
        _draw(
            screen,
            [column._replace(cells=column.cells[start:end]) for column in columns],
            gap,
            widths,
            head=False,
        )
        start = end
