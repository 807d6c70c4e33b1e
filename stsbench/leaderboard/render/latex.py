"""Tables as LaTeX, with booktabs: best in bold, second best underlined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stsbench.leaderboard.layout import BEST, SECOND, Block, Layout, Line, Show, Shown, lay_out
from stsbench.leaderboard.table import Table

SIGNS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    # A bracket at the start of a line would be taken for an option of the line break above.
    "[": "{[}",
    "]": "{]}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "†": r"\textsuperscript{\dag}",
    "‡": r"\textsuperscript{\ddag}",
    "§": r"\textsuperscript{\S}",
    "¶": r"\textsuperscript{\P}",
    "*": r"\textsuperscript{*}",
    "±": r"$\pm$",
    "–": "--",
    "Δ": r"$\Delta$",
    "°": r"\textsuperscript{$\circ$}",
}


def to_latex(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """All tables, each a float with its legend below; needs the package booktabs."""
    parts = ("\n".join(_lines(lay_out(table, show, exact=exact))) for table in tables)
    return "% \\usepackage{booktabs}\n" + "\n\n".join(parts) + "\n"


def _lines(layout: Layout) -> Iterator[str]:
    columns = len(layout.heads)
    yield from (r"\begin{table}", r"\centering", rf"\caption{{{escape(layout.caption)}}}")
    yield from (rf"\begin{{tabular}}{{l{'r' * columns}}}", r"\toprule", _row(["", *map(escape, layout.heads)]))
    above = ""
    for block in layout.blocks:
        yield r"\midrule"
        yield from _titles(block, above, columns + 1)
        above = block.section
        yield from (_row([_label(line), *map(_cell, line.cells)]) for line in block.lines)
    yield from (r"\bottomrule", r"\end{tabular}")
    if layout.legend:
        yield r"\par\smallskip\footnotesize\raggedright"
        yield from (rf"{escape(text)}\par" for text in layout.legend)
    yield r"\end{table}"


def _titles(block: Block, above: str, width: int) -> Iterator[str]:
    if block.section and block.section != above:
        yield rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{escape(block.section)}}}}} \\"
    if block.title:
        yield rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escape(block.title)}}}}} \\"


def _label(line: Line) -> str:
    return (r"\quad " if line.further else "") + escape(line.label + line.marks)


def _cell(cell: Shown) -> str:
    text = escape(cell.text + cell.deviation)
    text = {BEST: rf"\textbf{{{text}}}", SECOND: rf"\underline{{{text}}}"}.get(cell.rank, text)
    return text + escape(cell.mark)


def escape(text: str) -> str:
    """Text with every sign that LaTeX would take for its own replaced."""
    return "".join(SIGNS.get(sign, sign) for sign in text)


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
