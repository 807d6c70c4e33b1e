"""Tables with all that is hard to write."""

from __future__ import annotations

from stsbench.boards.tables.table import AVERAGE, EXACT, Group, Number, Row, Table, TableCell, TableColumn

NASTY = r"a_b|c*d&e%f$g#h{i}~j^k\l<m>"


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


def named(label: str) -> Table:
    """A table of one row of this name, with a negative number."""
    columns = [TableColumn(key="a", head="A")]
    row = Row(label=label, encoder=label, cells={"a": TableCell(measured=Number(-4.28))})
    return Table(name="n", title="t", columns=columns, groups=[Group(title=label, rows=[row])])
