"""Labels that are too long: numbers in their place, notes below, and no table that is broken by a name."""

from __future__ import annotations

import pytest

from stsbench.boards.render import render
from stsbench.boards.tables.table import Group, Number, Row, Table, TableCell, TableColumn, lay_out, short_labels
from stsbench.cli.screen import print_table
from stsbench.core.errors import LONGEST, WITH_SETTINGS, short_name

SETTINGS = "+pooling=cls_before_pooler+dtype=bfloat16"


def of_labels(*labels: str) -> Table:
    rows = [Row(label=label, encoder=label, cells={"a": TableCell(measured=Number(50.0))}) for label in labels]
    return Table(name="n", title="t", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=rows)])


def shown(*labels: str) -> tuple[list[str], list[str]]:
    """The labels as they are shown, and the notes."""
    layout = short_labels(lay_out(of_labels(*labels), "measured"))
    return [line.label for block in layout.blocks for line in block.lines], list(layout.legend)


def test_long_settings_are_a_number_that_the_notes_explain():
    assert shown(f"minilm{SETTINGS}") == (["minilm+(1)"], ["(1) pooling=cls_before_pooler, dtype=bfloat16"])


def test_the_same_settings_have_the_same_number_and_others_another():
    labels, notes = shown(f"minilm{SETTINGS}", f"other{SETTINGS}", f"minilm{SETTINGS}+max_length=128")
    assert labels == ["minilm+(1)", "other+(1)", "minilm+(2)"]
    assert notes[1] == "(2) pooling=cls_before_pooler, dtype=bfloat16, max_length=128"


@pytest.mark.parametrize("label", ["minilm", "minilm+pooling=cls_before_pooler", "SBERT-base features (u, v, |u - v|)"])
def test_a_label_that_is_short_enough_stays(label):
    assert shown(label) == ([label], [])


def test_what_tells_a_state_from_others_stays_behind_the_number():
    labels, _ = shown(f"minilm{SETTINGS} (not the card's) [3f2a1b]", f"minilm{SETTINGS} [transformers 5.3.0]")
    assert labels == ["minilm+(1) (not the card's) [3f2a1b]", "minilm+(1) [transformers 5.3.0]"]


def test_a_text_with_signs_of_settings_in_it_is_one_setting():
    labels, notes = shown("minilm+prompt='Represent a + b: '+pooling=cls_before_pooler")
    assert (labels, notes) == (["minilm+(1)"], ["(1) prompt='Represent a + b: ', pooling=cls_before_pooler"])


def test_a_name_that_is_too_long_by_itself_is_cut_and_told_whole():
    name = "organisation/" + "x" * 60
    labels, notes = shown(name, name + SETTINGS)
    assert labels[0] == f"organisation/{'x' * (LONGEST - 17)}…(1)" and len(labels[0]) == LONGEST
    assert labels[1].endswith("…(3)") and len(labels[1]) <= LONGEST
    assert notes == [f"(1) {name}", "(2) pooling=cls_before_pooler, dtype=bfloat16", f"(3) {name}{SETTINGS}"]


@pytest.mark.parametrize("length", [10, 40, 200])
def test_no_name_breaks_a_table(capsys, monkeypatch, length):
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"{'n' * length}{SETTINGS}", "m" * length, "short"]
    print_table(lay_out(of_labels(*names), "measured"))
    out = capsys.readouterr().out
    head = out.splitlines().index(next(line for line in out.splitlines() if line.startswith("encoder")))
    rows = out.splitlines()[head + 2 : head + 5]
    assert max(map(len, out.splitlines()[: head + 5])) <= 80 and [row.split()[-1] for row in rows] == ["50.00"] * 3
    # What the numbers stand for is never broken, so that it can be copied.
    assert "m" * length in out
    for fmt in ("markdown", "latex"):
        lines = [line for line in render([of_labels(*names)], fmt, show="measured").splitlines() if "50.00" in line]
        assert len(lines) == 3 and max(map(len, lines)) < 44 + WITH_SETTINGS
    # Nothing is lost where there is room.
    for fmt in ("csv", "json", "html"):
        assert names[0] in render([of_labels(*names)], fmt, show=None if fmt == "json" else "measured")


@pytest.mark.parametrize(
    ("name", "longest", "short"),
    [
        ("minilm+pooling=cls_before_pooler", LONGEST, "minilm+pooling=cls_before_pooler"),
        (f"minilm{SETTINGS}", LONGEST, "minilm+…(1)"),
        (f"minilm{SETTINGS} [3f2a1b]", LONGEST, "minilm+…(1) [3f2a1b]"),
        (f"minilm{SETTINGS} [3f2a1b]", 16, "minilm+…(1)"),
        (f"{'x' * 60}{SETTINGS}", 16, f"{'x' * 12}…(1)"),
        ("sup-simcse-bert-base", 16, "sup-simcse-b…(1)"),
        ("minilm", 16, "minilm"),
    ],
)
def test_where_there_is_no_legend_a_number_stands_for_the_whole_name(name, longest, short):
    numbers: dict[str, str] = {}
    assert short_name(name, numbers, longest=longest) == short and len(short) <= longest
    assert numbers == ({} if short == name else {name: "(1)"})
