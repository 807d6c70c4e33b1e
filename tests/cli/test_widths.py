"""Tables wider than their terminal: names become short with a key, words stay whole, and nothing is cut."""

from __future__ import annotations

import pytest

from stsbench.cli.printing import print_facts, print_rows
from stsbench.cli.widths import GAP, NARROW_GAP, Fitted, PlainColumn, fit_columns, fitted

LONG = "minilm+dimensions=64+embeddings=int8"
FOLDER = f"minilm-l4-mlm+model=/data/{'models/' * 12}minilm+pooling=cls_before_pooler"
COLUMNS = [
    PlainColumn("encoder", [LONG, "minilm"], is_name=True),
    PlainColumn("task", ["STS Benchmark", "CoordinationInversion"]),
    PlainColumn("n", ["1379", "10002"], is_number=True),
]


def width(part: list[PlainColumn], gap: int) -> int:
    return sum(column.width for column in part) + gap * (len(part) - 1)


def fits(room: int) -> Fitted:
    found = fit_columns(COLUMNS, room)
    assert all(width(list(part), found.gap) <= room for part in found.parts)
    return found


def test_a_table_is_too_wide_from_one_column_on():
    wide = width(COLUMNS, GAP)
    assert fits(wide) == ([COLUMNS], GAP, ())
    assert fits(wide - 1).gap == NARROW_GAP


@pytest.mark.parametrize(
    ("room", "name", "benchmark", "inversion"),
    [
        (48, "minilm+…(1)", "STS Benchmark", "CoordinationInversion"),
        (41, "minilm+…(1)", "STS Benchmark", "CoordinationInversion"),
        (34, "minilm+…(1)", "STS Benchmark", "Coordination\nInversion"),
        (32, "minilm+…(1)", "STS\nBenchmark", "Coordination\nInversion"),
    ],
)
def test_long_settings_are_short_before_words_are_broken(room, name, benchmark, inversion):
    found = fits(room)
    ((encoder, task, n),) = found.parts
    assert (encoder.cells[0], *task.cells) == (name, benchmark, inversion)
    assert n.cells == COLUMNS[2].cells and found.key == [f"(1) {LONG}"]


def test_columns_without_room_are_set_in_parts_that_each_say_what_their_lines_are_of():
    numbers = [PlainColumn(f"number {at}", ["12.3456", "-65.4321"], is_number=True) for at in range(4)]
    found = fit_columns([COLUMNS[0], *numbers], 40)
    assert [len(part) for part in found.parts] == [3, 3] and all(width(list(p), found.gap) <= 40 for p in found.parts)
    assert [part[0].cells for part in found.parts] == [["minilm+…(1)", "minilm"]] * 2
    assert [column.cells for part in found.parts for column in part[1:]] == [one.cells for one in numbers]


def test_no_number_is_broken_where_not_even_one_column_fits():
    found = fit_columns(COLUMNS, 10)
    assert [part[-1].cells for part in found.parts][-1] == COLUMNS[2].cells


def test_a_word_breaks_at_its_joints():
    found = fitted(
        [PlainColumn("encoder", ["all-MiniLM"], is_name=True), PlainColumn("backbone", ["Distil-RoBERTa base"])],
        22,
        None,
    )
    assert found is None
    ((_, backbone),) = fit_columns(
        [PlainColumn("encoder", ["all-MiniLM"], is_name=True), PlainColumn("backbone", ["Distil-RoBERTa base"])], 22
    ).parts
    assert backbone.cells == ["Distil-\nRoBERTa\nbase"]


@pytest.mark.parametrize("columns", [20, 60, 80, 120])
def test_a_name_longer_than_the_terminal_is_told_in_one_piece_below(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_rows(["encoder", "score", "n"], [[FOLDER, "62.45", "300"], ["minilm", "60.64", "300"]], right=[1, 2])
    *table, key = capsys.readouterr().out.splitlines()
    assert key == f"(1) {FOLDER}"
    assert max(len(line.rstrip()) for line in table) <= max(columns, 24) and "62.45" in "".join(table)


def test_heads_that_are_names_are_short_by_the_same_numbers(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    print_rows(["encoder", FOLDER], [[FOLDER, "a sentence"], ["minilm", "another"]], heads=[1])
    assert capsys.readouterr().out.splitlines()[0].split() == ["encoder", "minilm-l4-mlm+…(1)"]


def test_off_a_terminal_nothing_is_short_or_wrapped(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    print_rows(["encoder", "score"], [[FOLDER, "62.45"]], right=[1])
    print_facts([["prompt", "two  blanks and " + "words " * 40], ["name", FOLDER]])
    out = capsys.readouterr().out.splitlines()
    assert out[2].split() == [FOLDER, "62.45"] and len(out) == 5 and "two  blanks" in out[3]


def test_facts_keep_their_words_whole(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_facts([["to run it", f"stsbench run --encoder {FOLDER}"], ["kind", "transformer"]])
    assert capsys.readouterr().out.splitlines() == [
        "to run it  stsbench run --encoder",
        FOLDER,
        "kind       transformer",
    ]
