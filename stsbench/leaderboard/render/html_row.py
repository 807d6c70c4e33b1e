"""The head of a row in HTML: its label, what tells it from rows of the same label, its marks, and what the encoder is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from stsbench.leaderboard.published.rows import sources
from stsbench.leaderboard.render.html_cell import Frame, mark_html
from stsbench.leaderboard.tables.layout import IMPORTED, QUOTED, WRONG, TableLine
from stsbench.leaderboard.tables.table import Group, Row, Table


class Apart(NamedTuple):
    """What tells a row from others of its label; ``by_group``: the title of its group says it already."""

    text: str
    by_group: bool


def told_apart(table: Table) -> Mapping[int, Apart]:
    """For each row that shares its label with others what tells it from them, by the row's ``id``."""
    alike: dict[str, list[tuple[Group, Row]]] = {}
    for group in table.groups:
        for row in group.rows:
            alike.setdefault(row.label, []).append((group, row))
    found: dict[int, Apart] = {}
    for rows in alike.values():
        if len(rows) > 1:
            tellings = _telling([_facts_that_tell(group, row) for group, row in rows])
            found |= {id(row): apart for (_, row), apart in zip(rows, tellings, strict=True)}
    return found


def _facts_that_tell(group: Group, row: Row) -> list[str]:
    """What may tell a row from another, first what says most to a reader; the group comes first."""
    traits = row.traits
    paper, _, rest = row.key.partition("/")
    source = sources().papers.get(paper)
    number, _, printed = rest.partition("/")
    year = str(traits.year or "")
    trained = f"supervision {traits.supervision}" if traits.supervision else ""
    origin = f"{source.name} {source.year}, {number.replace('-', ' ')}" if source else ""
    facts = (traits.backbone, traits.method, trained, year, origin, printed, row.encoder)
    return [" ".join(filter(None, (group.section, group.title))), *facts]


def _telling(rows: Sequence[Sequence[str]]) -> list[Apart]:
    """The first fact that is another in every row, or as many facts as it takes; numbers where no facts do."""
    differing = [facts for facts in zip(*rows, strict=True) if len(set(facts)) > 1]
    alone = next((facts for facts in differing if len(set(facts)) == len(rows) and all(facts)), None)
    if alone is not None:
        by_group = alone == tuple(row[0] for row in rows)
        return [Apart(text, by_group) for text in alone]
    told = [", ".join(dict.fromkeys(filter(None, facts))) for facts in zip(*differing, strict=True)] or [""] * len(rows)
    if len(set(told)) == len(rows) and all(told):
        return [Apart(text, by_group=False) for text in told]
    return [
        Apart(", ".join(filter(None, (text, f"no. {place}"))), by_group=False) for place, text in enumerate(told, 1)
    ]


def row_start(line: TableLine) -> str:
    """The tag of a line, with what filters ask for."""
    if line.further:
        return f'<tr class="further" data-side="{line.side}">'
    row, traits = line.row, line.row.traits
    facts = {
        "encoder": row.encoder,
        "method": traits.method,
        "backbone": traits.backbone,
        "supervision": traits.supervision,
        "parameters": str(traits.parameters or ""),
        "year": str(traits.year or ""),
        "otherwise": row.otherwise,
        "side": "imported" if row.imported and line.side == "published" else line.side,
    }
    attributes = (f' data-{key}="{escape(value)}"' for key, value in facts.items() if value)
    return f"<tr{''.join(attributes)}>"


def row_head(line: TableLine, frame: Frame, apart: Apart | None) -> str:
    """The label of a line, with all that stands beside it."""
    if line.further:
        return f'<th scope="row"><span class="of">{escape(line.row.label)}: </span>{escape(line.label)}</th>'
    marks = "".join(mark_html(mark, frame, _reason(mark, line.row)) for mark in line.marks)
    told = ""
    if apart:
        told = f'<span class="apart{" grouped" if apart.by_group else ""}"> {escape(apart.text)}</span>'
    # A long name breaks before a parameter that it says.
    name = escape(line.label).replace("+", "<wbr>+")
    return f'<th scope="row"><span class="name">{name}</span>{told}{marks}{_facts(line.row)}</th>'


def _reason(mark: str, row: Row) -> str:
    """What a row's mark says beyond the legend."""
    return {WRONG: row.misprint, QUOTED: row.quoted or row.source, IMPORTED: row.imported}.get(mark, "")


def _facts(row: Row) -> str:
    """What an encoder is, with links, and where its published row is from, in small print below its label."""
    text = " · ".join(dict.fromkeys(filter(None, _facts_said(row))))
    return f'<span class="facts">{text}</span>' if text else ""


def _facts_said(row: Row) -> Iterator[str]:
    traits = row.traits
    yield escape(row.encoder) if row.encoder != row.label else ""
    yield escape(traits.method)
    yield escape(traits.backbone)
    yield f"{parameters_said(traits.parameters)} parameters" if traits.parameters else ""
    yield escape(f"supervision: {traits.supervision}") if traits.supervision else ""
    yield str(traits.year or "")
    yield _link(traits.paper, "paper", f"paper: {row.label}")
    yield _link(traits.model, "model", f"model: {row.label}")
    source = sources().papers.get(row.key.partition("/")[0])
    if row.key:
        yield f"published: {_link(source.url, row.key) if source else escape(row.key)}"


def parameters_said(count: int) -> str:
    """A number of parameters in millions, to three digits: 109M, 22.7M."""
    return f"{count / 1e6:.0f}M" if count >= 99.95e6 else f"{count / 1e6:.3g}M"


def _link(address: str, text: str, name: str = "") -> str:
    """A link, if there is an address; ``name`` says of what it is to those who hear the page."""
    label = f' aria-label="{escape(name)}"' if name else ""
    return f'<a href="{escape(address)}"{label}>{escape(text)}</a>' if address else ""
