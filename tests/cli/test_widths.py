"""Tables wider than their terminal: names become short with a key, words stay whole, and nothing is cut."""

from __future__ import annotations

import pytest

from stsbench.cli.printing import print_facts
from stsbench.cli.screen import print_rows

LONG = "minilm+dimensions=64+embeddings=int8"
FOLDER = f"minilm-l4-mlm+model=/data/{'models/' * 12}minilm+pooling=cls_before_pooler"
ROWS = [[LONG, "STS Benchmark", "1379"], ["minilm", "CoordinationInversion", "10002"]]


def drawn(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, room: int, *more: str) -> list[str]:
    """The lines of a table in a terminal of so many columns; ``more`` are heads of numbers."""
    monkeypatch.setenv("COLUMNS", str(room))
    numbers = ["12.3456", "-65.4321"]
    rows = [[*row, *[number] * len(more)] for row, number in zip(ROWS, numbers, strict=True)]
    print_rows(["encoder", "task", "n", *more], rows, right=range(2, 3 + len(more)))
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("room", "first", "second", "key"),
    [
        (71, [LONG, "STS", "Benchmark", "1379"], ["minilm", "CoordinationInversion", "10002"], False),
        (70, [LONG, "STS", "Benchmark", "1379"], ["minilm", "CoordinationInversion", "10002"], False),
        (48, ["minilm+…(1)", "STS", "Benchmark", "1379"], ["minilm", "CoordinationInversion", "10002"], True),
        (41, ["minilm+…(1)", "STS", "Benchmark", "1379"], ["minilm", "CoordinationInversion", "10002"], True),
        (34, ["minilm+…(1)", "STS", "Benchmark", "1379"], ["minilm", "Coordination", "10002"], True),
        (32, ["minilm+…(1)", "STS", "1379"], ["Benchmark"], True),
    ],
)
def test_long_settings_are_short_before_words_are_broken(capsys, monkeypatch, room, first, second, key):
    lines = drawn(capsys, monkeypatch, room)
    assert [lines[2].split(), lines[3].split()] == [first, second]
    assert (lines[-1] == f"(1) {LONG}") == key and all(len(line) <= room for line in lines[: -1 if key else None])
    assert set(lines[1]) == {"─"} and len({len(line) for line in lines[:3]}) == 1


def test_columns_without_room_are_set_in_parts_that_each_say_what_their_lines_are_of(capsys, monkeypatch):
    lines = drawn(capsys, monkeypatch, 44, *(f"number {at}" for at in range(4)))
    heads = [line.split() for line in lines if line.startswith("encoder")]
    assert len(heads) > 1 and all(head[:2] == ["encoder", "task"] for head in heads)
    assert sum(line.count("12.3456") for line in lines) == 4 and all(len(line) <= 44 for line in lines[:-2])


def test_a_word_breaks_at_its_joints(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "22")
    print_rows(["encoder", "backbone"], [["all-MiniLM", "Distil-RoBERTa base"]])
    assert [line[10:].strip() for line in capsys.readouterr().out.splitlines()[2:]] == ["Distil-", "RoBERTa", "base"]


@pytest.mark.parametrize("columns", [20, 60, 80, 120])
def test_a_name_longer_than_the_terminal_is_told_in_one_piece_below(columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_rows(["encoder", "score", "n"], [[FOLDER, "62.45", "300"], ["minilm", "60.64", "300"]], right=[1, 2])
    *table, key = capsys.readouterr().out.splitlines()
    assert key == f"(1) {FOLDER}"
    assert max(len(line.rstrip()) for line in table) <= max(columns, 24) and "62.45" in "".join(table)


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
