"""Renderers: the same numbers in every format, nothing broken by signs in names, best in bold."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from stsbench.boards.published import table_names
from stsbench.boards.render import TERMINAL, WRITERS, check_format, render
from stsbench.boards.render.data import frame
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.table import NONE, lay_out
from stsbench.cli.screen import print_table
from stsbench.core.errors import UnknownName, visible
from tests.boards.small import NASTY, named, small

TEXTS = list(WRITERS)
MARKS = "†‡§¶*"


MARKDOWN = r"""**100% small**

| encoder | A | B | Avg. |
| --- | ---: | ---: | ---: |
| **One & two** |  |  |  |
| *x_y* |  |  |  |
| a_b\|c\*d&e%f\$g#h{i}\~j^k\\l&lt;m> | **70.0** | 50.25±0.25\* | 60.12 |
| &emsp;measured | 70.13±0.50 | – | – |
| &emsp;difference | +0.13 | – | – |
| second | <u>60.00</u> | – | – |
| third | 1.00 | – | – |

\* x_y, a_b\|c\*d&e%f\$g#h{i}\~j^k\\l&lt;m>, B: it is wrong

a note\_
"""


def test_markdown_byte_by_byte():
    assert render([small()], "markdown", show="both") == MARKDOWN


def test_csv_holds_a_line_for_each_side_of_a_row():
    rows = list(csv.DictReader(io.StringIO(render([small()], "csv", show="both"))))
    assert [(row["row"], row["side"]) for row in rows] == [
        *((NASTY, side) for side in ("published", "measured", "difference")),
        ("second", "published"),
        ("third", "published"),
    ]
    assert rows[0] | {"a": "70.0", "b": "50.25", "b_deviation": "0.25", "average_exact": "60.125"} == rows[0]
    assert rows[1]["a"] == "70.126" and rows[1]["a_deviation"] == "0.5" and rows[1]["b"] == ""
    assert rows[2]["a"] == "0.126"
    (merged,) = [
        row for row in csv.DictReader(io.StringIO(render([small()], "csv", show="merged"))) if row["row"] == NASTY
    ]
    assert merged["side"] == "measured"


@pytest.mark.parametrize(
    "name", ["=1+1", "+1+1", "-x", "@SUM(A1)", "\tx", "\rx", " =1", "-1+cmd|' /C calc'!A0", "＝1", '=1,"2"\n']
)
def test_no_cell_of_a_csv_is_a_formula(name):
    (row,) = csv.DictReader(io.StringIO(render([named(name)], "csv", show="measured"), newline=""))
    assert row["row"] == f"'{visible(name)}" and row["a"] == "-4.28"


@pytest.mark.parametrize("name", ["-4.28", "+3", "a-b", "minilm+dtype=x", "x@y", "'s"])
def test_what_is_no_formula_stays_in_a_csv_as_it_is(name):
    (row,) = csv.DictReader(io.StringIO(render([named(name)], "csv", show="measured")))
    assert (row["row"], row["a"]) == (name, "-4.28")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("![i](http://a.b/c.png)", r"!\[i\](http&#58;//a.b/c.png)"),
        ("[l](javascript:x)", r"\[l\](javascript:x)"),
        ("see https://a.b and www.a.b", "see https&#58;//a.b and www&#46;a.b"),
        ("<img src=x onerror=y>", "&lt;img src=x onerror=y>"),
        ("<!-- x", "&lt;!-- x"),
        ("a|b\n| c\r\nd", r"a\|b \| c d"),
        ("`a` *b* ~c~ $d$", r"\`a\` \*b\* \~c\~ \$d\$"),
        ("_a_ b_c __d__", r"\_a\_ b_c \_\_d\_\_"),
        ("&lt; &#60; R&D", "&amp;lt; &amp;#60; R&D"),
        ("a\\", "a\\\\"),
        ("\x1b[31m\u202e", r"\\u001b\[31m\\u202e"),
    ],
)
def test_a_name_is_only_text_in_markdown(name, shown):
    text = render([named(name)], "markdown", show="measured")
    assert f"\n| {shown} | -4.28 |\n" in text and f"\n| *{shown}* |  |\n" in text


@pytest.mark.parametrize("fmt", TEXTS)
def test_no_control_character_of_a_name_is_written(fmt):
    text = render([named("a\x1b]0;x\a\x9b31m\u202eb\udce9")], fmt, show="measured")
    assert visible(text) == text and "u202eb" in text
    text.encode()


@pytest.mark.parametrize("name", ["sgopt-1", "declutr-2", "all"])
def test_csv_and_json_hold_every_number(name):
    table = build_table(name)
    expected = [n.value for row in table.rows() for cell in row.cells.values() if (n := cell.published)]
    lines = csv.DictReader(io.StringIO(render([table], "csv", show="published")))
    found = [float(line[column.key]) for line in lines for column in table.columns if line[column.key]]
    assert sorted(found) == pytest.approx(sorted(expected), abs=1e-6)
    (read,) = json.loads(render([table], "json"))
    cells = [cell for group in read["groups"] for row in group["rows"] for cell in row["cells"].values()]
    assert sorted(cell["published"]["value"] for cell in cells) == pytest.approx(sorted(expected), abs=1e-6)


def test_json_holds_what_else_there_is():
    (read,) = json.loads(render([small()], "json"))
    row = read["groups"][0]["rows"][0]
    assert (row["published_row"], row["quoted_from"], row["encoder"]) == ("p/t/r", "SBERT", "e")
    assert row["cells"]["a"] == {
        "measured": {"value": 70.126, "deviation": 0.5},
        "published": {"value": 70.0},
        "difference": 0.126,
    }
    assert row["cells"]["b"]["misprint"] == "it is wrong"
    (paper,) = json.loads(render([build_table("simcse-5")], "json"))
    assert paper["paper"]["url"] == "https://arxiv.org/abs/2104.08821" and paper["number"] == "Table 5"
    assert paper["columns"][0] | {"task": "sts12", "protocol": "simcse", "metric": "spearman"} == paper["columns"][0]


def test_a_frame_has_numbers_by_row_and_side():
    made = frame(build_table("simcse-5"))
    key = ("Unsupervised", "Word vectors and BERT-base", "SimCSE-BERT-base", "published")
    assert made.loc[key, "sts12"] == 68.40 and made.loc[key, "average"] == 76.25
    assert made["sts12"].dtype == "float64" and len(made) == 23


@pytest.mark.parametrize("show", ["published", "measured", "difference", "both", "merged"])
@pytest.mark.parametrize("fmt", TEXTS)
def test_every_choice_of_what_is_shown_renders(fmt, show):
    text = render([small()], fmt, show=show)
    assert ("50.25" in text) == (show in ("published", "both") or fmt == "json")


@pytest.mark.parametrize("fmt", [TERMINAL, *WRITERS])
@pytest.mark.parametrize("name", table_names())
def test_every_table_has_all_its_numbers_in_every_format(name, fmt, capsys):
    table = build_table(name)
    layout = lay_out(table)
    if fmt == "terminal":
        print_table(layout)
        text = capsys.readouterr().out
    else:
        text = render([table], fmt)
    cells = [cell.text for block in layout.blocks for line in block.lines for cell in line.cells]
    if fmt == "latex":
        text = text.replace("$-$", "-")
    # Numbers that are no part of a word, as 12 is of STS12.
    found = Counter(float(one) for one in re.findall(r"(?<![\w.-])[+-]?\d+(?:\.\d+)?(?![\w.]*\w)", text))
    expected = Counter(float(text) for text in cells if text != NONE)
    assert expected and not expected - found


def test_several_tables_follow_each_other():
    assert render([small(), small()], "markdown").count("100% small") == 2
    assert render([small(), small()], "latex").count(r"\begin{table}") == 2
    assert len(json.loads(render([small(), small()], "json"))) == 2


def test_exact_averages_take_the_place_of_rounded_ones():
    text = render([small()], "markdown", show="published", exact=True)
    assert "Avg. (exact)" in text and "60.1250" in text and "60.12 " not in text


def test_an_unknown_format_offers_the_nearest():
    with pytest.raises(UnknownName, match="unknown format 'latx'; did you mean 'latex'"):
        check_format("latx")


def test_marks_are_those_of_the_legend():
    for name in table_names():
        layout = lay_out(build_table(name))
        lines = [line for block in layout.blocks for line in block.lines]
        used = {mark for line in lines for mark in line.marks} | {cell.mark for line in lines for cell in line.cells}
        used |= {mark for head in layout.heads for mark in MARKS if mark in head}
        assert used - {""} == {note[0] for note in layout.legend if note[0] in MARKS}, name


def test_a_page_is_a_file_that_can_be_written(tmp_path: Path):
    path = tmp_path / "t.html"
    path.write_text(render([small()], "html"), encoding="utf-8")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")
