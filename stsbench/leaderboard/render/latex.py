"""Tables as LaTeX, with booktabs: best in bold, second best underlined; no wider than a page's text, or in parts.

Those longer than a page are set with longtable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stsbench.errors import one_line, visible
from stsbench.leaderboard.render.latex_size import LatexFit, LatexSetting, fit_page, head_lines, is_long
from stsbench.leaderboard.tables.layout import BEST, SECOND, Layout, LayoutBlock, Show, Shown, TableLine, lay_out
from stsbench.leaderboard.tables.short import short_labels
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
    "…": r"\ldots{}",
    "°": r"\textsuperscript{$\circ$}",
    "`": r"\textasciigrave{}",
    '"': r"\char34{}",
}
_SIGN = re.compile(r"([-',])(?=\1)|.")
"""One sign; the first is one of two that would be set as one other."""


LONG_WORD = re.compile(r"\S{30,}")
"""A word that a note's line may end within."""


def to_latex(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """All tables, each no wider than the text of an article, and its legend below; the first line names the packages."""
    return layouts_to_latex([lay_out(table, show, exact=exact) for table in tables])


def layouts_to_latex(layouts: Sequence[Layout]) -> str:
    """All that is laid out; see :func:`to_latex`."""
    layouts = [short_labels(layout) for layout in layouts]
    fits = [fit_page(layout) for layout in layouts]
    is_any_long = any(is_long(layout, one.setting) for layout, one in zip(layouts, fits, strict=True))
    packages = "booktabs,longtable" if is_any_long else "booktabs"
    texts = ("\n".join(_parts(layout, one)) for layout, one in zip(layouts, fits, strict=True))
    return f"% \\usepackage{{{packages}}}\n" + "\n\n".join(texts) + "\n"


def latex_rows(tables: Sequence[Table], show: Show | None = None, *, exact: bool = False) -> str:
    """The rows of all tables alone, to be put into a table that there is."""
    lines = (
        line
        for table in tables
        for block in lay_out(table, show, exact=exact, ends=False).blocks
        for line in block.lines
    )
    return "".join(f"{_row([_label(line), *map(_cell, line.cells)])}\n" for line in lines)


def _parts(layout: Layout, fitting: LatexFit) -> Iterator[str]:
    """The table, or its parts one below the other; the legend stands below the last."""
    setting, number = fitting.setting, len(fitting.parts)
    written = _long if is_long(layout, setting) else _float
    for place, part in enumerate(fitting.parts, start=1):
        caption = layout.caption if number == 1 else f"{layout.caption}, part {place} of {number}"
        if place > 1:
            yield ""
        legend = layout.legend if place == number else ()
        yield from written(replace(_part(layout, part), caption=caption, legend=legend), setting)


def _part(layout: Layout, places: Sequence[int]) -> Layout:
    """The layout with nothing but the columns at these places."""
    blocks = [
        replace(block, lines=[replace(line, cells=[line.cells[at] for at in places]) for line in block.lines])
        for block in layout.blocks
    ]
    columns, heads = [layout.columns[at] for at in places], [layout.heads[at] for at in places]
    return replace(layout, columns=columns, heads=heads, blocks=blocks)


def _float(layout: Layout, setting: LatexSetting) -> Iterator[str]:
    yield from (r"\begin{table}", r"\centering", *_size(setting), rf"\caption{{{escape_latex(layout.caption)}}}")
    yield from (rf"\begin{{tabular}}{{{_columns(layout)}}}", *_head(layout, setting))
    yield from _body(layout, setting)
    yield from (r"\bottomrule", r"\end{tabular}")
    yield from _legend(layout)
    yield r"\end{table}"


def _long(layout: Layout, setting: LatexSetting) -> Iterator[str]:
    """A table over several pages, its head on each."""
    yield from (r"\begingroup", *_size(setting), rf"\begin{{longtable}}{{{_columns(layout)}}}")
    yield from (rf"\caption{{{escape_latex(layout.caption)}}} \\", *_head(layout, setting), r"\endfirsthead")
    yield from (*_head(layout, setting), r"\endhead")
    yield from _body(layout, setting)
    yield from (r"\bottomrule", r"\end{longtable}")
    yield from _legend(layout)
    yield r"\endgroup"


def _size(setting: LatexSetting) -> Iterator[str]:
    if setting.size.command:
        yield rf"{setting.size.command}\setlength{{\tabcolsep}}{{{setting.size.blank:.0f}pt}}"


def _columns(layout: Layout) -> str:
    return f"@{{}}l{'r' * len(layout.heads)}@{{}}"


def _head(layout: Layout, setting: LatexSetting) -> Iterator[str]:
    heads = (head_lines(layout, at, setting) for at in range(len(layout.heads)))
    yield from (r"\toprule", _row(["", *map(_stacked, heads)]))


def _stacked(lines: Sequence[str]) -> str:
    """The lines of a head, one below the other."""
    text = r" \\ ".join(map(escape_latex, lines))
    return rf"\shortstack[r]{{{text}}}" if len(lines) > 1 else text


def _body(layout: Layout, setting: LatexSetting) -> Iterator[str]:
    above = ""
    for block in layout.blocks:
        yield r"\midrule"
        yield from _titles(block, above, len(layout.heads) + 1)
        above = block.section
        for line in block.lines:
            is_folded = setting.folded and any(cell.deviation for cell in line.cells)
            row = _row([_label(line), *(_cell(cell, folded=setting.folded) for cell in line.cells)])
            # No page ends between a number and its deviation.
            yield f"{row}*" if is_folded else row
            if is_folded:
                yield _row(["", *(escape_latex(cell.deviation) for cell in line.cells)])


def _legend(layout: Layout) -> Iterator[str]:
    if layout.legend:
        yield r"\par\smallskip\footnotesize\raggedright"
        yield from (rf"{_note(text)}\par" for text in layout.legend)


def _note(text: str) -> str:
    """A note in which lines may end after signs of a long word too: paths and settings have no blanks."""
    at, parts = 0, []
    for word in LONG_WORD.finditer(text):
        pieces = re.split(r"(?<=[/+=_.,:-])", word[0])
        parts += [escape_latex(text[at : word.start()]), r"\allowbreak{}".join(map(escape_latex, pieces))]
        at = word.end()
    return "".join([*parts, escape_latex(text[at:])])


def _titles(block: LayoutBlock, above: str, width: int) -> Iterator[str]:
    if block.section and block.section != above:
        yield rf"\multicolumn{{{width}}}{{@{{}}l}}{{\textbf{{{escape_latex(block.section)}}}}} \\"
    if block.title:
        yield rf"\multicolumn{{{width}}}{{@{{}}l}}{{\textit{{{escape_latex(block.title)}}}}} \\"


def _label(line: TableLine) -> str:
    return (r"\quad " if line.further else "") + escape_latex(line.label + line.marks)


def _cell(cell: Shown, *, folded: bool = False) -> str:
    text = escape_latex(cell.text + ("" if folded else cell.deviation))
    # A minus before a number, also before the second end of an interval, is no hyphen.
    text = re.sub(r"(?:^|(?<= ))-(?=[\d.])", "$-$", text)
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
