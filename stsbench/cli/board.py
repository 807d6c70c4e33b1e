"""``stsbench leaderboard``."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

from stsbench.cards import Catalogue
from stsbench.cli.printing import console, print_json, say, table
from stsbench.errors import DataError, UnknownName
from stsbench.files import write_whole
from stsbench.leaderboard.board import Board, boards
from stsbench.leaderboard.render import cells, header, legend, markdown
from stsbench.results import read_results

FORMATS = ("terminal", "markdown")


def leaderboard_command(
    folder: Path,
    *,
    suite: str,
    protocol: str | None,
    output: str,
    out: Path | None,
    cards: Sequence[Path],
    as_json: bool,
) -> None:
    """Print the boards of a suite, or write them to a file."""
    catalogue = Catalogue(cards)
    suites = catalogue.suites()
    if suite not in suites:
        raise UnknownName("suite", suite, suites, hint="'stsbench list suites' shows them")
    if output not in FORMATS:
        raise UnknownName("format", output, FORMATS, hint=f"one of {', '.join(FORMATS)}")
    found = read_results(folder)
    for problem in found.problems:
        sys.stderr.write(f"stsbench: left out: {problem}\n")
    cards_of = {task: catalogue.task(task) for task in suites[suite].tasks}
    scored = {task: card.score_split for task, card in cards_of.items()}
    made = boards(found.results, suite, suites[suite], scored=scored, protocol=protocol)
    if not made:
        wanted = f" by protocol '{protocol}'" if protocol else ""
        raise DataError(f"{folder}: no results for suite '{suite}'{wanted}; run: stsbench run --tasks {suite}")
    names = {task: card.name for task, card in cards_of.items()}
    if as_json:
        print_json([dataclasses.asdict(board) for board in made])
    elif out is not None:
        write_whole(out, markdown(made, names).encode())
        say(f"wrote {out}")
    elif output == "markdown":
        sys.stdout.write(markdown(made, names))
    else:
        _print(made, names)


def _print(made: Sequence[Board], names: dict[str, str]) -> None:
    for board in made:
        say(f"{board.title}\n")
        head = header(board, names)
        console().print(table(head, cells(board), right=range(1, len(head))))
        for line in legend(board):
            say(line)
        say("")
