"""LaTeX: balanced and complete whatever names hold, and no table wider or higher than a page."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from stsbench.boards.published import table_names
from stsbench.boards.render import render
from stsbench.boards.render.text import SIGNS, escape_latex
from stsbench.boards.tables.build import build_table
from stsbench.boards.tables.table import Group, Number, Row, Table, TableCell, TableColumn, lay_out
from tests.boards.small import named, small

LATEX = r"""% \usepackage{booktabs,adjustbox}
\begin{table}
\centering
\caption{100\% small}
\begin{adjustbox}{max width=\linewidth,max totalheight=0.75\textheight}
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
    opened, closed = (re.findall(rf"\\{word}{{(\w+)}}", text) for word in ("begin", "end"))
    assert set(opened) == {"table", "adjustbox", "tabular"} and Counter(opened) == Counter(closed)
    known = {*KNOWN.split(), *re.findall(r"\\([A-Za-z]+)", "".join(SIGNS.values()))}
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= known
    layout = lay_out(table)
    for width, body in re.findall(r"{@{}l(r+)@{}}\n(.*?)\\bottomrule", text, re.DOTALL):
        rows = [line for line in body.replace(r"\&", "").splitlines() if re.search(r"\\\\\*?$", line)]
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
    cells = {column.key: TableCell(published=Number(-4.28, deviation, 2)) for column in made}
    paper = build_table("simcse-5").paper
    return Table(name="w", title="w", columns=made, groups=[Group(rows=[Row(label=label, cells=cells)])], paper=paper)


def test_a_long_table_comes_in_parts_with_heads_titles_and_caption_in_each_and_its_legend_once():
    table = replace(wide(3), notes=["a note"])
    (row,) = table.rows()
    high = replace(table, groups=[Group(rows=[row] * 60, title="many"), Group(rows=[row] * 45, title="more")])
    text = render([high], "latex")
    assert text.count("{[}x{]} -y & ") == 105 and text.count("a note") == 1
    for place in (1, 2, 3):
        assert f"part {place} of 3}}" in text
    assert text.count(r" & One two & B1 & B2 \\") == 3 and text.count("{many}") == text.count("{more}") == 2
    assert "part " not in render([table], "latex")


def test_a_note_may_end_its_lines_within_long_words():
    table = replace(wide(2), notes=["in " + "folder/" * 20 + "x"])
    assert r"folder/\allowbreak{}folder/" in render([table], "latex")
    assert "allowbreak" not in render([wide(2)], "latex")


def lacks_latex() -> str:
    """Why LaTeX cannot compile tables here; empty where it can."""
    if shutil.which("pdflatex") is None:
        return "pdflatex is not installed"
    wanted = ["booktabs.sty", "adjustbox.sty"]
    found = subprocess.run(["kpsewhich", *wanted], capture_output=True, text=True, timeout=60, check=False)
    return "" if len(found.stdout.split()) == len(wanted) else f"LaTeX is installed without one of {', '.join(wanted)}"


def compiled(tmp_path: Path, texts: list[str], paper: str) -> str:
    """What LaTeX says of an article with these texts, each on a page of its own."""
    needed = dict.fromkeys(text.partition("\n")[0].removeprefix("% ") for text in texts)
    head = [rf"\documentclass[{paper}]{{article}}", *needed, r"\begin{document}"]
    (tmp_path / "t.tex").write_text(
        "\n".join([*head, "\\clearpage\n".join(texts), r"\end{document}"]), encoding="utf-8"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.mark.parametrize("paper", ["a4paper", "letterpaper"])
def test_every_table_fits_the_page_of_an_article(tmp_path, paper):
    if why := lacks_latex():
        pytest.skip(why)
    tables = [small(), wide(3), wide(12, deviation=0.5), wide(30, label="x" * 44), *map(build_table, table_names())]
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
        (r"\input{/etc/passwd}^^5c", r"\textbackslash{}input\{/etc/passwd\}" + r"\textasciicircum{}" * 2 + "5c"),
    ],
)
def test_a_name_is_only_text_in_latex(name, shown):
    assert f"\n{shown} & $-$4.28 \\\\\n" in render([named(name)], "latex", show="measured")


def test_every_ascii_sign_alone_and_doubled_is_escaped_in_latex():
    for sign in map(chr, range(128)):
        bare = re.sub(r"\\(char34|text\w+)?({\\?[*]?}|[{}&%$#_])|{[][]}|[-',]{}", "", escape_latex(sign * 2))
        assert not re.search(r"""[\\{}&%$#_^~<>|"`\[\]\0-\x1f\x7f]|--|''|,,""", bare.replace("{*}", "")), sign
