"""Printing: lines and facts, errors, JSON for scripts, files, and progress of work.

numpy and the display of progress are imported only when they are needed: help does not wait for
them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli.wording import describe_error, replace_parameters_by_options
from stsbench.core import settings
from stsbench.core.errors import StsbenchError, UnknownName
from stsbench.core.files import write_atomically
from stsbench.core.wording import as_one_line, escape_controls

if TYPE_CHECKING:
    from stsbench.api.progress_display import ProgressDisplay
    from stsbench.core.catalogue import Catalogue
    from stsbench.plots.chart import Chart
    from stsbench.results.record import Result

MAX_LINE_LENGTH, MAX_WORD_LENGTH = 20_000, 300
"""The most characters of an error's line and of a word in it.

Our own messages are shorter, so that only what others wrote is cut.
"""
MIN_WIDTH, UNLIMITED_WIDTH = 20, 10_000
"""Columns that a terminal has at least; as good as endless, for a pipe or file."""


def line_width(*, stderr: bool = False) -> int:
    """Return how many characters a line may have: the user's setting, or the terminal's width.

    Into a file or pipe, without a setting, it is a number so large that no line is broken. It is
    never less than ``MIN_WIDTH``.

    Args:
        stderr: Whether the line is printed on stderr instead of stdout.
    """
    stream = sys.stderr if stderr else sys.stdout
    own_width = shutil.get_terminal_size().columns if stream.isatty() else UNLIMITED_WIDTH
    # The user's setting is None if there is none.
    return max(settings.terminal_columns() or own_width, MIN_WIDTH)


def print_facts(rows: Iterable[Sequence[str]]) -> None:
    """Print names and their values in two columns without a head.

    A long value goes on below itself, in the second column. No word is broken, so that it can be
    copied: a word too wide for that column begins further left, on a line of its own.

    Args:
        rows: The name and the value of each row; a value may have several lines.
    """
    pairs = [(escape_controls(name), escape_controls(value)) for name, value in rows]
    width = line_width()
    # The second column begins two spaces after the longest name.
    indent = max((len(name) for name, _ in pairs), default=0) + 2
    value_width = width - indent
    for name, value in pairs:
        # The lines of the value, each at most as wide as the second column, unless it is a single
        # word.
        lines = [part for line in value.split("\n") for part in fold_lines(line, value_width)]
        beside_name = ""
        if lines and len(lines[0]) <= value_width:
            beside_name = lines.pop(0)
        print_text(f"{name:<{indent}}{beside_name}".rstrip())
        for line in lines:
            # A word wider than the column ends at the right edge, or begins at the left edge if it
            # is wider than the terminal.
            n_blanks = max(min(indent, width - len(line)), 0)
            print_text(" " * n_blanks + line)


def print_json(value: Any, *, convert: Callable[[str], str] = str) -> None:  # noqa: ANN401 - any JSON value
    """Print one JSON value on stdout.

    Args:
        value: The value.
        convert: Called with the JSON text, returns the text to print.
    """
    print_text(convert(json.dumps(value, indent=1, ensure_ascii=False)))


def print_text(text: str, *, end: str = "\n") -> None:
    """Print text on stdout; control characters in it are escaped."""
    sys.stdout.write(escape_controls(text) + end)


def print_unchanged(text: str) -> None:
    """Print text for another program on stdout, with its control characters and secrets."""
    sys.stdout.write(text)


def write_or_print(
    content: str | Chart, out: Path | None, *, fmt: str = "", silent: bool = False
) -> None:
    """Write a text or a figure to a file, or print the text if there is no file.

    Args:
        content: The text or figure.
        out: The file; None to print the text (a figure needs a file).
        fmt: The format of a figure; empty for the one that the file's name ends in.
        silent: Whether to print no line about the file.
    """
    if out is None:
        print_text(str(content), end="")
        return
    figure_format = fmt or out.suffix.removeprefix(".")
    file_content = content.encode() if isinstance(content, str) else content.to_bytes(figure_format)
    write_atomically(out, file_content)
    if not silent:
        print_text(f"wrote {out}")


def write_records(path: Path, records: Sequence[Mapping[str, Any]], heads: Sequence[str]) -> None:
    """Write records as JSON or CSV, as the file's name ends.

    Args:
        path: The file to write.
        records: A mapping per row.
        heads: The keys that are the first columns of a CSV file; other keys of the records follow.
    """
    # Imports numpy.
    from stsbench.boards.render.text import records_to_csv

    if path.suffix == ".json":
        text = json.dumps(records, indent=1, ensure_ascii=False) + "\n"
    else:
        text = records_to_csv(records, heads)
    write_atomically(path, text.encode())


def format_points(score: float | None) -> str:
    """Return a score times 100, as tables show it; empty for None."""
    return "" if score is None else f"{100 * score:.2f}"


def format_interval(interval: tuple[float, float] | None) -> str:
    """Return an interval times 100; an empty string if there is none."""
    return "" if interval is None else f"{100 * interval[0]:.2f}–{100 * interval[1]:.2f}"


def print_paragraph(*texts: str) -> None:
    """Print each text on stdout; on a terminal its lines end between words."""
    for text in texts:
        print_text(_wrap_paragraph(text) if sys.stdout.isatty() else text)


def print_error(problem: object, *, about: str = "") -> None:
    """Print on stderr what is wrong and, for an error with a hint, how to mend it.

    In a file or pipe both are on one line, so that a log has one line per error. On a terminal the
    hint has a line of its own, and lines end between words.

    Args:
        problem: An error or a text; cut if it is very long.
        about: The encoder or task of the problem, printed before it unless the error names it.
    """
    # error_prefix: ``about`` and a colon, or empty.
    prefix = f"stsbench: {error_prefix(about, problem)}"
    # Messages name parameters of functions, which here become options of the command line.
    message, hint = replace_parameters_by_options(str(problem)), ""
    if isinstance(problem, StsbenchError):
        # The hint is empty if nothing is known that helps.
        message, hint = describe_error(problem)
    if not sys.stderr.isatty():
        line = f"{message}; {hint}" if hint else message
        sys.stderr.write(f"{_cut_to_line(prefix, line)}\n")
        return
    lines = [_cut_to_line(prefix, message)]
    if hint:
        # A hint may ask "did you mean ...?" and go on behind a semicolon.
        lines.append(_cut_to_line("hint: ", hint.replace("?; ", "? ")))
    for line in lines:
        sys.stderr.write(f"{_wrap_paragraph(line, stderr=True)}\n")


def error_prefix(about: str, problem: object) -> str:
    """Return what precedes an error's text: its subject, unless the error names that itself."""
    is_named = isinstance(problem, UnknownName) and problem.name == about
    return "" if not about or is_named else f"{about}: "


def _cut_to_line(prefix: str, message: object) -> str:
    """Return a message on one line behind its prefix; very long words and lines are cut.

    A word of more than ``MAX_WORD_LENGTH`` characters keeps its beginning and end. A line of more
    than ``MAX_LINE_LENGTH`` keeps its beginning. An ellipsis stands for what is cut.

    Args:
        prefix: What precedes the message.
        message: An error or a text.
    """
    words = escape_controls(as_one_line(f"{prefix}{message}")).split(" ")
    line = " ".join(
        word if len(word) <= MAX_WORD_LENGTH else f"{word[:200]}…{word[-50:]}" for word in words
    )
    return line if len(line) <= MAX_LINE_LENGTH else f"{line[: MAX_LINE_LENGTH - 1]}…"


def _wrap_paragraph(text: str, *, stderr: bool = False) -> str:
    """Return a text in lines as wide as the terminal.

    A command at its end, behind ``: stsbench``, has a line of its own. Lines end between words, and
    the command is not broken, so that paths, names, options and the command can be copied.

    Args:
        text: The text, of one line.
        stderr: Whether it is printed on stderr instead of stdout.
    """
    width = line_width(stderr=stderr)
    if len(text) <= width:
        return text
    sentence, _, command = text.rpartition(": stsbench ")
    if sentence and command:
        return f"{_wrap_paragraph(f'{sentence}:', stderr=stderr)}\n  stsbench {command}"
    return "\n".join(fold_lines(text, width))


def fold_lines(text: str, width: int = 0, *, indent: str = "") -> list[str]:
    """Return a text in lines that end between words.

    No word is broken, so that names and paths can be copied.

    Args:
        text: The text.
        width: The characters of a line; 0 for the terminal's.
        indent: What precedes each line but the first.

    Returns:
        The lines, each at most as wide as ``width`` unless it is a single word.
    """
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
    # A word that does not fit beside the indent ends at the right edge. If it is wider than the
    # line, it begins at the left edge, and goes on beyond the right one.
    return [line if len(line) <= width else line.lstrip().rjust(width) for line in lines]


def shorten_line(text: str, max_length: int = 60) -> str:
    """Return a text as one line of at most so many characters; what is cut becomes an ellipsis."""
    line = as_one_line(text)
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def print_progress(line: str) -> None:
    """Print one line of progress or a notice on stderr."""
    sys.stderr.write(escape_controls(as_one_line(replace_parameters_by_options(line))) + "\n")


def show_cursor() -> None:
    """Show the terminal's cursor, which stays hidden if a progress bar could not end."""
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")


def print_errors(consequence: str, problems: Iterable[object]) -> None:
    """Print a line on stderr for each problem, after its consequence, for example "skipped"."""
    for problem in problems:
        print_error(f"{consequence}: {problem}")


def print_traceback(error: BaseException) -> None:
    """Print the traceback of a bug on stderr, with those of the errors that have caused it.

    Each begins with the first call in the user's own code, so that a user finds the own mistake. It
    is printed whole if it has no such call.
    """
    # The user's code is in no folder of stsbench, of Python or of installed packages.
    package_folders = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    folders = (Path(__file__).parents[1], *filter(None, package_folders))
    foreign_prefixes = ("<frozen", *(f"{folder}{os.sep}" for folder in folders))
    printed = traceback.TracebackException.from_exception(error)
    exception: traceback.TracebackException | None = printed
    # From the error to its cause, to the cause of that, and so on.
    while exception is not None:
        # The positions of the calls in the user's own code.
        own_frames = (
            index
            for index, frame in enumerate(exception.stack)
            if not frame.filename.startswith(foreign_prefixes)
        )
        first_own_frame = next(own_frames, 0)
        del exception.stack[:first_own_frame]
        exception = exception.__cause__ or exception.__context__
    sys.stderr.write(escape_controls("".join(printed.format())))


def show_work(label: str = "reading data") -> AbstractContextManager[ProgressDisplay]:
    """Show the progress of work until the end of the block: a bar on a terminal, else lines."""
    from stsbench.api.progress_display import show_progress

    return show_progress(label, write_line=print_progress)


@contextmanager
def show_count(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many of something are done, and how much time is left, until the end of the block.

    Nothing is shown before the first call of the function below.

    Args:
        label: What is counted, as it is shown, for example "rows read".

    Yields:
        A function to call with the number done and the total.
    """
    displays: list[ProgressDisplay] = []
    with ExitStack() as stack:

        def update(done: int, total: int) -> None:
            # A bar on a terminal, lines elsewhere, begun by the first call; "work" is its only job.
            if not displays:
                displays.append(stack.enter_context(show_work(label)))
            displays[0].update("work", done, total, label=label)

        yield update


CHECKING_LABEL = "results checked"
"""The label of :func:`show_count` while results are checked against their per-item columns."""


def select_trusted(results: Iterable[Result], catalogue: Catalogue) -> list[Result]:
    """Return the results whose score is what their per-item columns give.

    The per-item columns hold one value per scored pair or sentence, from which the score is
    recomputed. A result with another score is left out, and a line says so. A result without
    columns, or one that cannot be recomputed for another reason, is returned; one line says how
    many such results there are.

    Args:
        results: The results.
        catalogue: The cards of tasks, which name the evaluator that recomputes a score.
    """
    from stsbench.evaluators.belief import believe

    with show_count(CHECKING_LABEL) as progress:
        verified = believe(results, catalogue, progress)
    print_errors("skipped", verified.problems)
    if verified.unverified:
        print_error(verified.notice)
    return verified.results
