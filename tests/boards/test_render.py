"""Renderers: the same numbers in every format, nothing broken by signs in names, best in bold."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from stsbench.boards.published.rows import list_tables
from stsbench.boards.render.formats import TERMINAL, WRITERS, render
from stsbench.boards.render.text import LATEX_ESCAPES, escape_latex, to_frame
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.layout import NO_NUMBER, build_layout, shorten_labels
from stsbench.boards.tables.table import Group, Row, Table, TableCell, TableColumn, TableNumber
from stsbench.cli.tables import print_table
from stsbench.core.names import MAX_LENGTH_WITH_PARAMS, MAX_NAME_LENGTH, abbreviate_name
from stsbench.core.wording import escape_controls
from tests.boards.shown import NASTY, named, small

TEXTS = list(WRITERS)
MARKS = "†‡§¶*"


MARKDOWN = r"""**100% small**

| encoder | A | B | Avg. |
| --- | ---: | ---: | ---: |
| **One & two** |  |  |  |
| *x_y* |  |  |  |
| a_b\|c\*d&e%f\$g#h{i}\~j^k\\l&lt;m> | **70.00** | 50.25±0.25\* | 60.12 |
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
    assert (
        rows[0] | {"a": "70.0", "b": "50.25", "b_deviation": "0.25", "average_exact": "60.125"}
        == rows[0]
    )
    assert rows[1]["a"] == "70.126" and rows[1]["a_deviation"] == "0.5" and rows[1]["b"] == ""
    assert rows[2]["a"] == "0.126"
    (merged,) = [
        row
        for row in csv.DictReader(io.StringIO(render([small()], "csv", show="merged")))
        if row["row"] == NASTY
    ]
    assert merged["side"] == "measured"


@pytest.mark.parametrize(
    "name",
    [
        "=1+1",
        "+1+1",
        "-x",
        "@SUM(A1)",
        "\tx",
        "\rx",
        " =1",
        "-1+cmd|' /C calc'!A0",
        "＝1",
        '=1,"2"\n',
    ],
)
def test_no_cell_of_a_csv_is_a_formula(name):
    (row,) = csv.DictReader(io.StringIO(render([named(name)], "csv", show="measured"), newline=""))
    assert row["row"] == f"'{escape_controls(name)}" and row["a"] == "-4.28"


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
    assert escape_controls(text) == text and "u202eb" in text
    text.encode()


@pytest.mark.parametrize("name", ["sgopt-1", "declutr-2", "all"])
def test_csv_and_json_hold_every_number(name):
    table = build_table(name)
    expected = [
        n.value for row in table.rows() for cell in row.cells.values() if (n := cell.published)
    ]
    lines = csv.DictReader(io.StringIO(render([table], "csv", show="published")))
    found = [
        float(line[column.key]) for line in lines for column in table.columns if line[column.key]
    ]
    assert sorted(found) == pytest.approx(sorted(expected), abs=1e-6)
    (read,) = json.loads(render([table], "json"))
    cells = [
        cell for group in read["groups"] for row in group["rows"] for cell in row["cells"].values()
    ]
    assert sorted(cell["published"]["value"] for cell in cells) == pytest.approx(
        sorted(expected), abs=1e-6
    )


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
    assert (
        paper["paper"]["url"] == "https://arxiv.org/abs/2104.08821" and paper["number"] == "Table 5"
    )
    assert (
        paper["columns"][0] | {"task": "sts12", "protocol": "simcse", "metric": "spearman"}
        == paper["columns"][0]
    )


def test_a_frame_has_numbers_by_row_and_side():
    made = to_frame(build_table("simcse-5"))
    key = ("Unsupervised", "Word vectors and BERT-base", "SimCSE-BERT-base", "published")
    assert made.loc[key, "sts12"] == 68.40 and made.loc[key, "average"] == 76.25
    assert made["sts12"].dtype == "float64" and len(made) == 23


@pytest.mark.parametrize("fmt", [TERMINAL, *WRITERS])
@pytest.mark.parametrize("name", list_tables())
def test_every_table_has_all_its_numbers_in_every_format(name, fmt, capsys):
    table = build_table(name)
    layout = build_layout(table)
    if fmt in ("csv", "json"):
        # They have the numbers as their sources print them.
        layout = build_layout(table, exact=True)
    if fmt == "terminal":
        print_table(layout)
        text = capsys.readouterr().out
    else:
        text = render([table], fmt)
    cells = [cell.text for block in layout.blocks for line in block.lines for cell in line.cells]
    if fmt == "latex":
        text = text.replace("$-$", "-")
    # Numbers that are no part of a word, as 12 is of STS12.
    found = Counter(
        float(one) for one in re.findall(r"(?<![\w.-])[+-]?\d+(?:\.\d+)?(?![\w.]*\w)", text)
    )
    expected = Counter(float(text) for text in cells if text != NO_NUMBER)
    assert expected and not expected - found


@pytest.mark.parametrize("fmt", ["markdown", "latex", "html"])
@pytest.mark.parametrize("name", list_tables())
def test_scores_of_a_column_have_one_number_of_decimals(name, fmt):
    table = build_table(name)
    layout = build_layout(table)
    for index, column in enumerate(layout.columns):
        texts = [line.cells[index].text for block in layout.blocks for line in block.lines]
        n_decimals = {len(text.partition(".")[2]) for text in texts if text != NO_NUMBER}
        assert not column.in_points or n_decimals <= {column.decimals}
    if name == "mteb":
        assert "72.37" in render([table], fmt) and "72.3690" not in render([table], fmt)
        assert "72.3690" in render([table], fmt, exact=True)


def test_exact_averages_take_the_place_of_rounded_ones():
    text = render([small()], "markdown", show="published", exact=True)
    assert "Avg. (exact)" in text and "60.1250" in text and "60.12 " not in text


def test_marks_are_those_of_the_legend():
    for name in list_tables():
        layout = build_layout(build_table(name))
        lines = [line for block in layout.blocks for line in block.lines]
        used = {mark for line in lines for mark in line.symbols} | {
            cell.symbol for line in lines for cell in line.cells
        }
        used |= {mark for head in layout.heads for mark in MARKS if mark in head}
        assert used - {""} == {note[0] for note in layout.legend if note[0] in MARKS}, name


SETTINGS = "+pooling=cls_before_pooler+dtype=bfloat16"


def of_labels(*labels: str) -> Table:
    rows = [
        Row(label=label, encoder=label, cells={"a": TableCell(measured=TableNumber(50.0))})
        for label in labels
    ]
    return Table(
        name="n", title="t", columns=[TableColumn(key="a", head="A")], groups=[Group(rows=rows)]
    )


def shown(*labels: str) -> tuple[list[str], list[str]]:
    layout = shorten_labels(build_layout(of_labels(*labels), "measured"))
    return [line.label for block in layout.blocks for line in block.lines], list(layout.legend)


def test_long_settings_are_a_number_that_the_notes_explain():
    assert shown(f"minilm{SETTINGS}") == (
        ["minilm+(1)"],
        ["(1) pooling=cls_before_pooler, dtype=bfloat16"],
    )


def test_the_same_settings_have_the_same_number_and_others_another():
    labels, notes = shown(
        f"minilm{SETTINGS}", f"other{SETTINGS}", f"minilm{SETTINGS}+max_length=128"
    )
    assert labels == ["minilm+(1)", "other+(1)", "minilm+(2)"]
    assert notes[1] == "(2) pooling=cls_before_pooler, dtype=bfloat16, max_length=128"


def test_a_name_that_is_too_long_by_itself_is_cut_and_told_whole():
    name = "organisation/" + "x" * 60
    labels, notes = shown(name, name + SETTINGS)
    assert (
        labels[0] == f"organisation/{'x' * (MAX_NAME_LENGTH - 17)}…(1)"
        and len(labels[0]) == MAX_NAME_LENGTH
    )
    assert labels[1].endswith("…(3)") and len(labels[1]) <= MAX_NAME_LENGTH
    assert notes == [
        f"(1) {name}",
        "(2) pooling=cls_before_pooler, dtype=bfloat16",
        f"(3) {name}{SETTINGS}",
    ]


@pytest.mark.parametrize("length", [10, 40, 200])
def test_no_name_breaks_a_table(capsys, monkeypatch, length):
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"{'n' * length}{SETTINGS}", "m" * length, "short"]
    print_table(build_layout(of_labels(*names), "measured"))
    out = capsys.readouterr().out
    head = out.splitlines().index(
        next(line for line in out.splitlines() if line.startswith("encoder"))
    )
    rows = out.splitlines()[head + 2 : head + 5]
    assert (
        max(map(len, out.splitlines()[: head + 5])) <= 80
        and [row.split()[-1] for row in rows] == ["50.00"] * 3
    )
    # What the numbers stand for is never broken, so that it can be copied.
    assert "m" * length in out
    for fmt in ("markdown", "latex"):
        lines = [
            line
            for line in render([of_labels(*names)], fmt, show="measured").splitlines()
            if "50.00" in line
        ]
        assert len(lines) == 3 and max(map(len, lines)) < 44 + MAX_LENGTH_WITH_PARAMS
    # Nothing is lost where there is room.
    for fmt in ("csv", "json", "html"):
        assert names[0] in render(
            [of_labels(*names)], fmt, show=None if fmt == "json" else "measured"
        )


@pytest.mark.parametrize(
    ("name", "longest", "short"),
    [
        ("minilm+pooling=cls_before_pooler", MAX_NAME_LENGTH, "minilm+pooling=cls_before_pooler"),
        (f"minilm{SETTINGS}", MAX_NAME_LENGTH, "minilm+…(1)"),
        (f"minilm{SETTINGS} [3f2a1b]", MAX_NAME_LENGTH, "minilm+…(1) [3f2a1b]"),
        (f"minilm{SETTINGS} [3f2a1b]", 16, "minilm+…(1)"),
        (f"{'x' * 60}{SETTINGS}", 16, f"{'x' * 12}…(1)"),
        ("sup-simcse-bert-base", 16, "sup-simcse-b…(1)"),
        ("minilm", 16, "minilm"),
    ],
)
def test_where_there_is_no_legend_a_number_stands_for_the_whole_name(name, longest, short):
    numbers: dict[str, str] = {}
    assert (
        abbreviate_name(
            name, numbers, max_length_with_params=MAX_LENGTH_WITH_PARAMS, max_length=longest
        )
        == short
        and len(short) <= longest
    )
    assert numbers == ({} if short == name else {name: "(1)"})


LATEX = r"""% \usepackage{booktabs,adjustbox}
% table* in place of table takes both columns of a page
\begin{table}
\caption{100\% small}
\begin{adjustbox}{max totalheight=0.85\textheight,center}
\begin{minipage}{\linewidth}
\centering
\begin{adjustbox}{max width=\linewidth}
\begin{tabular}{@{}lrrr@{}}
\toprule
 & A & B & Avg. \\
\midrule
\multicolumn{4}{@{}l}{\textbf{One \& two}} \\
\multicolumn{4}{@{}l}{\textit{x\_y}} \\
"""
KNOWN = """
    usepackage begin end centering caption toprule midrule bottomrule multicolumn textbf textit underline quad par smallskip
    footnotesize raggedright allowbreak linewidth textheight
"""


def test_latex_head_byte_by_byte():
    text = render([small()], "latex", show="both")
    assert text.startswith(LATEX)
    assert r" & \textbf{70.00} & 50.25$\pm$0.25\textsuperscript{*} & 60.12 \\" in text
    assert r"second & \underline{60.00} & -- & -- \\" in text
    assert (
        r"a\_b\textbar{}c\textsuperscript{*}d\&e\%f\$g\#h\{i\}\textasciitilde{}j\textasciicircum{}k"
        in text
    )


@pytest.mark.parametrize("name", list_tables())
def test_latex_is_balanced_and_every_line_has_all_columns(name):
    table = build_table(name)
    text = render([table], "latex")
    bare = re.sub(r"\\[\\{}&%$#_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    opened, closed = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert set(opened) == {"table", "adjustbox", "minipage", "tabular"} and Counter(
        opened
    ) == Counter(closed)
    known = {*KNOWN.split(), *re.findall(r"\\([A-Za-z]+)", "".join(LATEX_ESCAPES.values()))}
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= known
    layout = build_layout(table)
    for width, body in re.findall(r"{@{}l(r+)@{}}\n(.*?)\\bottomrule", text, re.DOTALL):
        rows = [
            line for line in body.replace(r"\&", "").splitlines() if re.search(r"\\\\\*?$", line)
        ]
        for line in rows:
            is_title = line.startswith(rf"\multicolumn{{{len(width) + 1}}}")
            assert line.count("&") == len(width) or is_title or r"\caption" in line, line
        # LaTeX would take such a sign for an option of the line break or rule above.
        assert not re.search(r"^[\[*]", body, re.MULTILINE)
        assert len(width) == len(layout.heads)
    # Signs that LaTeX's usual fonts lack have all been replaced.
    assert {sign for sign in text if not sign.isascii()} <= set("éñ")


def wide(columns: int, label: str = "[x] -y", deviation: float | None = None) -> Table:
    """A table of one row; its first head is of two words."""
    heads = [f"{'One two' if at == 0 else f'B{at}'}" for at in range(columns)]
    made = [TableColumn(key=f"b{at}", head=head) for at, head in enumerate(heads)]
    cells = {column.key: TableCell(published=TableNumber(-4.28, deviation, 2)) for column in made}
    paper = build_table("simcse-5").paper
    return Table(
        name="w",
        title="w",
        columns=made,
        groups=[Group(rows=[Row(label=label, cells=cells)])],
        paper=paper,
    )


def test_a_table_is_divided_only_if_asked_with_heads_titles_and_caption_in_each_part():
    table = replace(wide(3), notes=["a note"])
    (row,) = table.rows()
    high = replace(
        table, groups=[Group(rows=[row] * 60, title="many"), Group(rows=[row] * 45, title="more")]
    )
    whole = render([high], "latex")
    assert whole.count(r"\begin{table}") == 1 and whole.count("{[}x{]} -y & ") == 105
    assert "part " not in whole and whole.index("a note") < whole.index(r"\end{table}")
    text = render([high], "latex", max_lines=50)
    assert text.count("{[}x{]} -y & ") == 105 and text.count("a note") == 1
    for place in (1, 2, 3):
        assert f"part {place} of 3}}" in text
    assert (
        text.count(r" & One two & B1 & B2 \\") == 3
        and text.count("{many}") == text.count("{more}") == 2
    )
    assert "part " not in render([table], "latex", max_lines=1)


def test_the_lines_of_one_row_stay_in_one_part_of_a_divided_table():
    cell = TableCell(published=TableNumber(50.0), measured=TableNumber(40.0))
    rows = [Row(label=f"row {number}", cells={"b0": cell}) for number in range(4)]
    table = replace(wide(1), groups=[Group(rows=rows)])
    parts = render([table], "latex", max_lines=5).split(r"\begin{table}")[1:]
    # A row has a line of published numbers, one of measured ones and one of their difference.
    assert [part.count("row ") for part in parts] == [1, 1, 1, 1]
    assert all(part.count("measured &") == part.count("difference &") == 1 for part in parts)
    # A row of more lines than a part is whole too.
    assert render([table], "latex", max_lines=2).count(r"\begin{table}") == 4
    assert render([table], "latex", max_lines=6).count(r"\begin{table}") == 2


def test_all_notes_of_a_table_are_inside_its_float():
    notes = [f"note {number} " + "of many words " * 9 for number in range(40)]
    text = render([replace(wide(3), notes=notes)], "latex")
    assert text.rstrip().endswith(r"\end{table}") and text.count("note 39") == 1


def test_a_note_may_end_its_lines_within_long_words():
    table = replace(wide(2), notes=["in " + "folder/" * 20 + "x | y"])
    assert r"in folder/\allowbreak{}folder/" in render([table], "latex")
    assert r"\allowbreak{}x \textbar{} y\par" in render([table], "latex")
    assert "allowbreak" not in render([wide(2)], "latex")


def lacks_latex() -> str:
    """Why LaTeX cannot compile tables here; empty where it can."""
    if shutil.which("pdflatex") is None:
        return "pdflatex is not installed"
    wanted = ["booktabs.sty", "adjustbox.sty"]
    found = subprocess.run(
        ["kpsewhich", *wanted], capture_output=True, text=True, timeout=60, check=False
    )
    return (
        ""
        if len(found.stdout.split()) == len(wanted)
        else f"LaTeX is installed without one of {', '.join(wanted)}"
    )


def compiled(tmp_path: Path, texts: list[str], paper: str) -> str:
    """What LaTeX says of an article with these texts, each on a page of its own."""
    needed = dict.fromkeys(text.partition("\n")[0].removeprefix("% ") for text in texts)
    head = [rf"\documentclass[{paper}]{{article}}", *needed, r"\begin{document}"]
    (tmp_path / "t.tex").write_text(
        "\n".join([*head, "\\clearpage\n".join(texts), r"\end{document}"]), encoding="utf-8"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.mark.parametrize("paper", ["a4paper", "letterpaper"])
def test_every_table_fits_the_page_of_an_article(tmp_path, paper):
    if why := lacks_latex():
        pytest.skip(why)
    tables = [
        small(),
        wide(3),
        wide(12, deviation=0.5),
        wide(30, label="x" * 44),
        # As high as several pages, and with as many notes.
        replace(wide(3), groups=[*wide(3).groups] * 150, notes=["a note of some words " * 9] * 50),
        *map(build_table, list_tables()),
    ]
    said = compiled(tmp_path, [render([table], "latex") for table in tables], paper)
    # Nothing stands off the page.
    assert not re.search(r"Overfull .hbox|too large for page", said)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a--b", "a-{}-b"),
        ("---", "-{}-{}-"),
        ("''a``", r"'{}'a\textasciigrave{}\textasciigrave{}"),
        ('"q" ?`', r"\char34{}q\char34{} ?\textasciigrave{}"),
        ("a\n\nb", "a b"),
        ("\x1b\0", r"\textbackslash{}u001b\textbackslash{}u0000"),
        (
            r"\input{/etc/passwd}^^5c",
            r"\textbackslash{}input\{/etc/passwd\}" + r"\textasciicircum{}" * 2 + "5c",
        ),
    ],
)
def test_a_name_is_only_text_in_latex(name, shown):
    assert f"\n{shown} & $-$4.28 \\\\\n" in render([named(name)], "latex", show="measured")


def test_every_ascii_sign_alone_and_doubled_is_escaped_in_latex():
    for sign in map(chr, range(128)):
        bare = re.sub(
            r"\\(char34|text\w+)?({\\?[*]?}|[{}&%$#_])|{[][]}|[-',]{}", "", escape_latex(sign * 2)
        )
        assert not re.search(
            r"""[\\{}&%$#_^~<>|"`\[\]\0-\x1f\x7f]|--|''|,,""", bare.replace("{*}", "")
        ), sign
