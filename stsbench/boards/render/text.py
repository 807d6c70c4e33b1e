"""Tables as markdown and LaTeX: best in bold, second best underlined, groups under titles of their own.

LaTeX needs booktabs and adjustbox, which makes a table smaller that is wider than the text; a long one comes in parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from stsbench.boards.tables.table import BEST, SECOND, Layout, LayoutBlock, short_labels
from stsbench.core.errors import LONGEST, one_line, visible

LONG_WORD = re.compile(r"(\S{30,})")
"""A word that a note's line may end within."""
MOST_LINES, MOST_NOTES = 50, 8
"""So many lines a part of a LaTeX table has, and so many of notes a float holds beside them."""
ENTITIES = {"<": "&lt;", "&": "&amp;", "@": "&#64;", "://": "&#58;//", "www.": "www&#46;"}
SPECIAL = re.compile(
    r"[\\`*\[\]|~$<@]|://|\bwww\."
    # Within a word an underscore is one; an ampersand is one but before what ends with a semicolon.
    r"|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)"
)
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


class Markup(NamedTuple):
    """How a format writes a row, a title across the columns, and what stands in them."""

    escape: Callable[[str], str]
    number: Callable[[str], str]
    row: Callable[[Sequence[str]], str]
    section: Callable[[str, int], str]
    title: Callable[[str, int], str]
    indent: str
    best: str
    second: str

    def lines(self, block: LayoutBlock) -> Iterator[str]:
        """The rows of a group."""
        for line in block.lines:
            label = (self.indent if line.further else "") + self.escape(line.label + line.marks)
            cells = []
            for cell in line.cells:
                text = self.number(cell.text + cell.deviation)
                text = {BEST: self.best, SECOND: self.second}.get(cell.rank, "{}").replace("{}", text)
                cells.append(text + self.escape(cell.mark))
            yield self.row([label, *cells])

    def titles(self, block: LayoutBlock, above: str, columns: int) -> Iterator[str]:
        """The section of a group, where it is another than above, and its title."""
        if block.section and block.section != above:
            yield self.section(self.escape(block.section), columns)
        if block.title:
            yield self.title(self.escape(block.title), columns)

    def rows(self, layouts: Sequence[Layout]) -> str:
        """The rows alone, to be put into a table that there is."""
        return "".join(f"{line}\n" for layout in layouts for block in layout.blocks for line in self.lines(block))


def escape_markdown(text: str) -> str:
    """Text of others as it reads: no emphasis, link, image, HTML, formula or new cell, and all in one line.

    What stands for a character in HTML is taken where a backslash is not understood by all, and where addresses
    become links by themselves.
    """
    return SPECIAL.sub(lambda found: ENTITIES.get(found[0], f"\\{found[0]}"), visible(one_line(text)))


def escape_latex(text: str) -> str:
    """Text in one line with every sign, or pair of signs, that LaTeX would take for its own replaced."""
    return _SIGN.sub(
        lambda found: f"{found[0]}{{}}" if found[1] else SIGNS.get(found[0], found[0]), visible(one_line(text))
    )


MARKDOWN = Markup(
    escape=escape_markdown,
    number=str,
    row=lambda cells: f"| {' | '.join(cells)} |",
    section=lambda text, columns: f"| **{text}** |{'  |' * columns}",
    title=lambda text, columns: f"| *{text}* |{'  |' * columns}",
    indent="&emsp;",
    best="**{}**",
    second="<u>{}</u>",
)
LATEX = Markup(
    escape=escape_latex,
    # A minus before a number, also before the second end of an interval, is no hyphen.
    number=lambda text: re.sub(r"(?:^|(?<= ))-(?=[\d.])", "$-$", escape_latex(text)),
    row=lambda cells: " & ".join(cells) + r" \\",
    section=lambda text, columns: rf"\multicolumn{{{columns + 1}}}{{@{{}}l}}{{\textbf{{{text}}}}} \\",
    title=lambda text, columns: rf"\multicolumn{{{columns + 1}}}{{@{{}}l}}{{\textit{{{text}}}}} \\",
    indent=r"\quad ",
    best=r"\textbf{{}}",
    second=r"\underline{{}}",
)


def to_markdown(layouts: Sequence[Layout]) -> str:
    """All that is laid out, each under its caption."""
    return "\n\n".join("\n".join(_markdown(layout)) for layout in layouts) + "\n"


def _markdown(layout: Layout) -> Iterator[str]:
    # A page scrolls: it has more room than a terminal or paper.
    layout = short_labels(layout, with_settings=LONGEST)
    yield f"**{escape_markdown(layout.caption)}**\n"
    yield MARKDOWN.row([layout.label_head, *map(escape_markdown, layout.heads)])
    yield MARKDOWN.row(["---", *["---:"] * len(layout.heads)])
    above = ""
    for block in layout.blocks:
        yield from MARKDOWN.titles(block, above, len(layout.heads))
        above = block.section
        yield from MARKDOWN.lines(block)
    yield from (f"\n{escape_markdown(text)}" for text in layout.legend)


def to_latex(layouts: Sequence[Layout]) -> str:
    """All that is laid out, no wider than the text, and the legend below; the first line names the packages."""
    texts = ("\n".join(_latex(short_labels(layout))) for layout in layouts)
    return "% \\usepackage{booktabs,adjustbox}\n" + "\n\n".join(texts) + "\n"


def _latex(layout: Layout) -> Iterator[str]:
    parts = _parts(layout)
    notes = [r"\par\smallskip\footnotesize\raggedright", *(rf"{_note(text)}\par" for text in layout.legend)]
    # Notes that a page may end within stand outside of what floats as a whole.
    is_apart = sum(1 + len(text) // 90 for text in layout.legend) > MOST_NOTES
    for place, blocks in enumerate(parts, start=1):
        caption = layout.caption if len(parts) == 1 else f"{layout.caption}, part {place} of {len(parts)}"
        yield from (r"\begin{table}", r"\centering", rf"\caption{{{escape_latex(caption)}}}")
        yield r"\begin{adjustbox}{max width=\linewidth,max totalheight=0.75\textheight}"
        yield from (rf"\begin{{tabular}}{{@{{}}l{'r' * len(layout.heads)}@{{}}}}", r"\toprule")
        yield LATEX.row(["", *map(escape_latex, layout.heads)])
        above = ""
        for block in blocks:
            yield r"\midrule"
            yield from LATEX.titles(block, above, len(layout.heads))
            above = block.section
            yield from LATEX.lines(block)
        yield from (r"\bottomrule", r"\end{tabular}", r"\end{adjustbox}")
        yield from notes if layout.legend and place == len(parts) and not is_apart else ()
        yield r"\end{table}"
    yield from ("{", *notes, "}") if is_apart else ()


def _parts(layout: Layout) -> list[list[LayoutBlock]]:
    """The groups of each part of a table, as few as hold all lines; a group that is cut has its title in both."""
    parts: list[list[LayoutBlock]] = [[]]
    room = MOST_LINES
    for block in layout.blocks:
        lines = list(block.lines)
        while lines:
            if room < 1:
                parts.append([])
                room = MOST_LINES
            parts[-1].append(replace(block, lines=lines[:room]))
            lines, room = lines[room:], room - len(lines[:room])
    return parts


def _note(text: str) -> str:
    """A note in which lines may end after signs of a long word too: paths and settings have no blanks."""
    # Long words stand between the parts that have none.
    parts = LONG_WORD.split(text)
    words = (re.split(r"(?<=[/+=_.,:-])", word) for word in parts)
    return "".join(
        r"\allowbreak{}".join(map(escape_latex, pieces)) if at % 2 else escape_latex(part)
        for at, (part, pieces) in enumerate(zip(parts, words, strict=True))
    )
