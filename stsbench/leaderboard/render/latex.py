"""Tables as LaTeX, with booktabs: best in bold, second best underlined; those longer than a page with longtable."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from stsbench.errors import one_line, visible
from stsbench.leaderboard.tables.layout import BEST, NONE, SECOND, Layout, LayoutBlock, Show, Shown, TableLine, lay_out
from stsbench.leaderboard.tables.table import Table

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
    "−": "$-$",
    "–": "--",
    "Δ": r"$\Delta$",
    "≈": r"\textsuperscript{$\approx$}",
    "°": r"\textsuperscript{$\circ$}",
    "`": r"\textasciigrave{}",
    '"': r"\char34{}",
}
_SIGN = re.compile(r"([-',])(?=\1)|.")
"""One sign; the first is one of two that would be set as one other."""


SMALL_LINES, SMALL_COLUMNS, PAGE_LINES = 40, 10, 70
"""Above so many lines or columns a table is set small; above a page's lines it is no float that can be placed."""


def to_latex(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """All tables, each with its legend below; needs the packages that the first line names."""
    return layouts_to_latex([lay_out(table, show, exact=exact) for table in tables])


def layouts_to_latex(layouts: Sequence[Layout]) -> str:
    """All that is laid out; see :func:`to_latex`."""
    packages = "booktabs,longtable" if any(map(_is_long, layouts)) else "booktabs"
    parts = ("\n".join(_long(layout) if _is_long(layout) else _float(layout)) for layout in layouts)
    return f"% \\usepackage{{{packages}}}\n" + "\n\n".join(parts) + "\n"


def _float(layout: Layout) -> Iterator[str]:
    yield from (r"\begin{table}", r"\centering", *_size(layout), rf"\caption{{{escape_latex(layout.caption)}}}")
    yield from (rf"\begin{{tabular}}{{{_columns(layout)}}}", *_head(layout))
    yield from _body(layout)
    yield from (r"\bottomrule", r"\end{tabular}")
    yield from _legend(layout)
    yield r"\end{table}"


def _long(layout: Layout) -> Iterator[str]:
    """A table over several pages, its head on each."""
    yield from (r"\begingroup", *_size(layout), rf"\begin{{longtable}}{{{_columns(layout)}}}")
    yield from (rf"\caption{{{escape_latex(layout.caption)}}} \\", *_head(layout), r"\endfirsthead")
    yield from (*_head(layout), r"\endhead")
    yield from _body(layout)
    yield from (r"\bottomrule", r"\end{longtable}")
    yield from _legend(layout)
    yield r"\endgroup"


def _length(layout: Layout) -> int:
    return sum(len(block.lines) + 1 for block in layout.blocks)


def _is_long(layout: Layout) -> bool:
    return _length(layout) > PAGE_LINES


def _is_wide(layout: Layout) -> bool:
    return len(layout.heads) > SMALL_COLUMNS


def _size(layout: Layout) -> Iterator[str]:
    if _length(layout) > SMALL_LINES or _is_wide(layout):
        yield r"\footnotesize\setlength{\tabcolsep}{3pt}"


def _columns(layout: Layout) -> str:
    return "l" + "r" * len(layout.heads)


def _head(layout: Layout) -> Iterator[str]:
    heads = [_stacked(head) if _is_wide(layout) else escape_latex(head) for head in layout.heads]
    yield from (r"\toprule", _row(["", *heads]))


def _stacked(head: str) -> str:
    """A head of several words, one below the other."""
    lines = r" \\ ".join(escape_latex(word) for word in head.split())
    return rf"\shortstack[r]{{{lines}}}" if len(head.split()) > 1 else lines


def _body(layout: Layout) -> Iterator[str]:
    above = ""
    for block in layout.blocks:
        yield r"\midrule"
        yield from _titles(block, above, len(layout.heads) + 1)
        above = block.section
        yield from (_row([_label(line), *map(_cell, line.cells)]) for line in block.lines)


def _legend(layout: Layout) -> Iterator[str]:
    if layout.legend:
        yield r"\par\smallskip\footnotesize\raggedright"
        yield from (rf"{escape_latex(text)}\par" for text in layout.legend)


def _titles(block: LayoutBlock, above: str, width: int) -> Iterator[str]:
    if block.section and block.section != above:
        yield rf"\multicolumn{{{width}}}{{l}}{{\textbf{{{escape_latex(block.section)}}}}} \\"
    if block.title:
        yield rf"\multicolumn{{{width}}}{{l}}{{\textit{{{escape_latex(block.title)}}}}} \\"


def _label(line: TableLine) -> str:
    return (r"\quad " if line.further else "") + escape_latex(line.label + line.marks)


def _cell(cell: Shown) -> str:
    text = escape_latex(cell.text + cell.deviation)
    if text.startswith("-") and cell.text != NONE:
        text = f"$-${text[1:]}"
    text = {BEST: rf"\textbf{{{text}}}", SECOND: rf"\underline{{{text}}}"}.get(cell.rank, text)
    return text + escape_latex(cell.mark)


def escape_latex(text: str) -> str:
    """Text in one line with every sign, or pair of signs, that LaTeX would take for its own replaced."""
    return _SIGN.sub(_escaped, visible(one_line(text)))


def _escaped(found: re.Match[str]) -> str:
    sign = found[0]
    return f"{sign}{{}}" if found[1] else SIGNS.get(sign, sign)


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
