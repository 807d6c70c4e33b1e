"""Boards as text: cells of a table, and markdown."""

from __future__ import annotations

from collections.abc import Sequence

from stsbench.leaderboard.board import Board, Cell

OVERLAP_MARKS = {"text": "†", "gold": "‡"}
LEGEND = {
    "†": "† trained on text that overlaps the test sentences",
    "‡": "‡ trained on gold scores that overlap the test pairs",
}


def header(board: Board, names: dict[str, str]) -> list[str]:
    """The column heads: encoder, tasks as tables print them, average."""
    return ["encoder", *(names.get(task, task) for task in board.tasks), "avg."]


def cells(board: Board) -> list[list[str]]:
    """The body: scores times 100 to two decimals; a missing cell and its average are dashes."""
    return [
        [
            row.encoder + OVERLAP_MARKS.get(row.overlap, ""),
            *(_cell(row.cells.get(task)) for task in board.tasks),
            f"{100 * row.average:.2f}" if row.average is not None else "–",
        ]
        for row in board.rows
    ]


def legend(board: Board) -> list[str]:
    """One line for each mark the board uses."""
    used = {OVERLAP_MARKS[row.overlap] for row in board.rows if row.overlap in OVERLAP_MARKS}
    return [text for mark, text in LEGEND.items() if mark in used]


def markdown(boards: Sequence[Board], names: dict[str, str]) -> str:
    """All boards as markdown tables, each under its title."""
    parts = []
    for board in boards:
        head = header(board, names)
        lines = [
            f"**{board.title}**",
            "",
            _line(head),
            _line(["---", *["---:"] * (len(head) - 1)]),
            *(_line(row) for row in cells(board)),
        ]
        parts.append("\n".join([*lines, *(f"\n{text}" for text in legend(board))]))
    return "\n\n".join(parts) + "\n"


def _line(row: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    spread = f"±{100 * cell.deviation:.2f}" if cell.deviation is not None else ""
    return f"{100 * cell.score:.2f}{spread}"
