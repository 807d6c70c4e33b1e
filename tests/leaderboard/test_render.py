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

from stsbench.cli.tables import print_table
from stsbench.errors import UnknownName, visible
from stsbench.leaderboard.published.specs import table_names
from stsbench.leaderboard.render import TERMINAL, WRITERS, check_format, render
from stsbench.leaderboard.render.data import frame
from stsbench.leaderboard.render.latex import SIGNS, escape_latex
from stsbench.leaderboard.tables.build import build_table
from stsbench.leaderboard.tables.layout import NONE, lay_out
from stsbench.leaderboard.tables.table import AVERAGE, EXACT, Group, Number, Row, Table, TableCell, TableColumn

NASTY = r"a_b|c*d&e%f$g#h{i}~j^k\l<m>"
TEXTS = list(WRITERS)
MARKS = "†‡§¶*"


def small() -> Table:
    """Two groups; one row with both numbers, a misprint, a deviation, and a name full of signs."""
    columns = [
        TableColumn(key="a", head="A"),
        TableColumn(key="b", head="B"),
        TableColumn(key=AVERAGE, head="Avg.", kind="average"),
        TableColumn(key=EXACT, head="Avg. (exact)", kind="exact", decimals=4),
    ]
    first = Row(
        label=NASTY,
        key="p/t/r",
        encoder="e",
        quoted="SBERT",
        cells={
            "a": TableCell(measured=Number(70.126, 0.5), published=Number(70.0, None, 1)),
            "b": TableCell(published=Number(50.25, 0.25, 2), misprint="it is wrong"),
            AVERAGE: TableCell(published=Number(60.12, None, 2)),
            EXACT: TableCell(published=Number(60.125)),
        },
    )
    second = Row(label="second", cells={"a": TableCell(published=Number(60.0, None, 2))})
    third = Row(label="third", cells={"a": TableCell(published=Number(1.0, None, 2))}, otherwise="wmean")
    groups = [Group(section="One & two", title="x_y", rows=[first, second]), Group(section="One & two", rows=[third])]
    return Table(name="small", title="100% small", columns=columns, groups=groups, notes=["a note_"])


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


LATEX = r"""% \usepackage{booktabs}
\begin{table}
\centering
\caption{100\% small}
\begin{tabular}{lrrr}
\toprule
 & A & B & Avg. \\
\midrule
\multicolumn{4}{l}{\textbf{One \& two}} \\
\multicolumn{4}{l}{\textit{x\_y}} \\
"""


def test_latex_head_byte_by_byte():
    text = render([small()], "latex", show="both")
    assert text.startswith(LATEX)
    assert r" & \textbf{70.0} & 50.25$\pm$0.25\textsuperscript{*} & 60.12 \\" in text
    assert r"second & \underline{60.00} & -- & -- \\" in text
    assert r"a\_b\textbar{}c\textsuperscript{*}d\&e\%f\$g\#h\{i\}\textasciitilde{}j\textasciicircum{}k" in text


@pytest.mark.parametrize("name", table_names())
def test_latex_is_balanced_and_every_line_has_all_columns(name):
    table = build_table(name)
    text = render([table], "latex")
    bare = re.sub(r"\\[\\{}&%$#_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    opened = re.findall(r"\\begin{(\w+)}", text)
    assert opened in (["table", "tabular"], ["longtable"]) and opened[::-1] == re.findall(r"\\end{(\w+)}", text)
    assert ("longtable" in opened) == text.startswith("% \\usepackage{booktabs,longtable}\n")
    known = {"begingroup", "endgroup", "endhead", "endfirsthead", "setlength", "tabcolsep", "shortstack"}
    known |= {"usepackage", "begin", "end", "centering", "caption", "toprule", "midrule", "bottomrule", "multicolumn"}
    known |= {"textbf", "textit", "underline", "quad", "par", "smallskip", "footnotesize", "raggedright"}
    known |= set(re.findall(r"\\([A-Za-z]+)", "".join(SIGNS.values())))
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= known
    width = len(lay_out(table).heads) + 1
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    for line in body.replace(r"\&", "").splitlines():
        if line.endswith(r"\\"):
            assert line.count("&") == width - 1 or line.startswith(rf"\multicolumn{{{width}}}"), line
    # Signs that LaTeX's usual fonts lack have all been replaced.
    assert {sign for sign in text if not sign.isascii()} <= set("éñ")

    # LaTeX would take such a sign for an option of the line break or rule above.
    assert not re.search(r"^[\[*]", body, re.MULTILINE)


def lacks_latex() -> str:
    """Why LaTeX cannot compile tables here; empty where it can."""
    if shutil.which("pdflatex") is None:
        return "pdflatex is not installed"
    wanted = ["booktabs.sty", "longtable.sty", "geometry.sty"]
    found = subprocess.run(["kpsewhich", *wanted], capture_output=True, text=True, timeout=60, check=False)
    return "" if len(found.stdout.split()) == len(wanted) else f"LaTeX is installed without one of {', '.join(wanted)}"


def test_latex_sets_a_minus_and_breaks_the_heads_of_a_wide_table():
    cells = {"a": TableCell(published=Number(-4.28, None, 2))}
    columns = [TableColumn(key="a", head="One two"), *(TableColumn(key=f"b{at}", head=f"B{at}") for at in range(10))]
    table = Table(name="w", title="w", columns=columns, groups=[Group(rows=[Row(label="[x] -y", cells=cells)])])
    for shown, head in ((11, r"\shortstack[r]{One \\ two}"), (10, "One two")):
        paper = build_table("simcse-5").paper
        text = render([replace(table, columns=columns[:shown], paper=paper)], "latex")
        assert f" & {head} & B0 &" in text and "\n{[}x{]} -y & $-$4.28 & -- &" in text


def test_latex_compiles(tmp_path):
    if why := lacks_latex():
        pytest.skip(why)
    texts = [render([table], "latex") for table in (small(), *map(build_table, table_names()))]
    needed = dict.fromkeys(text.partition("\n")[0].removeprefix("% ") for text in texts)
    # A4 one way or the other.
    page = r"\usepackage[paperwidth=297mm,paperheight=297mm,margin=15mm]{geometry}"
    head = [r"\documentclass{article}", page, *needed, r"\begin{document}"]
    text = "\n".join([*head, "\\clearpage\n".join(texts), r"\end{document}"])
    (tmp_path / "t.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    # Nothing stands off the page.
    assert not re.search(r"Overfull .hbox|too large for page", done.stdout)


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


def named(label: str) -> Table:
    """A table of one row of this name, with a negative number."""
    columns = [TableColumn(key="a", head="A")]
    row = Row(label=label, encoder=label, cells={"a": TableCell(measured=Number(-4.28))})
    return Table(name="n", title="t", columns=columns, groups=[Group(title=label, rows=[row])])


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


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a--b", "a-{}-b"),
        ("---", "-{}-{}-"),
        ("''a``", r"'{}'a\textasciigrave{}\textasciigrave{}"),
        ('"q" ?`', r"\char34{}q\char34{} ?\textasciigrave{}"),
        ("a\n\nb", "a b"),
        ("\x1b\0", r"\textbackslash{}u001b\textbackslash{}u0000"),
        (r"\input{/etc/passwd}^^5c", r"\textbackslash{}input\{/etc/passwd\}" + r"\textasciicircum{}" * 2 + "5c"),
    ],
)
def test_a_name_is_only_text_in_latex(name, shown):
    assert f"\n{shown} & $-$4.28 \\\\\n" in render([named(name)], "latex", show="measured")


def test_every_ascii_sign_alone_and_doubled_is_escaped_in_latex():
    for sign in map(chr, range(128)):
        bare = re.sub(r"\\(char34|text\w+)?({\\?[*]?}|[{}&%$#_])|{[][]}|[-',]{}", "", escape_latex(sign * 2))
        assert not re.search(r"""[\\{}&%$#_^~<>|"`\[\]\0-\x1f\x7f]|--|''|,,""", bare.replace("{*}", "")), sign


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
