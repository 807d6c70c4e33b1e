"""Tables narrower than their cells: words stay whole, names longest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from stsbench.cli.widths import GAP, NARROW_GAP, fitted, too_wide

LONG = "minilm+dimensions=64+embeddings=int8"
COLUMNS = [["encoder", LONG, "minilm"], ["task", "STS Benchmark", "CoordinationInversion"], ["n", "1379", "10002"]]


def widths(columns: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(line) for cell in cells for line in cell.split("\n")) for cells in columns]


def lines_of(room: int) -> list[list[str]] | None:
    found = fitted(COLUMNS, room, names={0}, numbers={2})
    if found is not None:
        assert sum(widths(found)) + 2 * NARROW_GAP <= room
    return found


def test_a_table_is_too_wide_from_one_column_on():
    wide = sum(widths(COLUMNS)) + 2 * GAP
    assert not too_wide(COLUMNS, wide)
    assert too_wide(COLUMNS, wide - 1)


@pytest.mark.parametrize(
    ("room", "name", "benchmark", "inversion"),
    [
        (70, LONG, "STS Benchmark", "CoordinationInversion"),
        (62, LONG, "STS Benchmark", "Coordination\nInversion"),
        (45, "minilm+\ndimensions=64+\nembeddings=int8", "STS Benchmark", "CoordinationInversion"),
        (34, "minilm+\ndimensions=\n64+\nembeddings=\nint8", "STS\nBenchmark", "Coordination\nInversion"),
    ],
)
def test_words_break_at_joints_alone_and_names_last(room, name, benchmark, inversion):
    (_, first, _), (_, second, third), numbers = lines_of(room) or []
    assert (first, second, third) == (name, benchmark, inversion)
    assert numbers == COLUMNS[2]


def test_what_cannot_fit_is_left_to_the_terminal():
    assert lines_of(20) is None


def test_a_word_of_another_column_breaks_before_a_name_does():
    found = fitted([["encoder", "all-MiniLM"], ["backbone", "Distil-RoBERTa base"]], 22, names={0}, numbers=())
    assert found == [["encoder", "all-MiniLM"], ["backbone", "Distil-\nRoBERTa\nbase"]]
