"""Tables as data: CSV and pandas with a line for each side of a row, JSON with everything."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stsbench.boards.tables.table import LETTERS, RANKS, SIDES, Row, Show, Table, TableCell, TableColumn

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 6
FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""How text begins that a spreadsheet computes, in signs of either width."""
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
FACTS = ("table", "section", "group", "row", "encoder", "published_row", "side")


def to_csv(tables: Sequence[Table], show: Show | None = None, *, headed: bool = True) -> str:
    """One line for the measured numbers of a row, one for the published ones, one for the difference."""
    return csv_text([record for table in tables for record in _records(table, show)], FACTS, headed=headed)


def csv_text(records: Sequence[Mapping[str, Any]], first: Sequence[str] = (), *, headed: bool = True) -> str:
    """Records as CSV, the heads in ``first`` before the others; what a record lacks is empty."""
    heads = dict.fromkeys([*first, *(key for record in records for key in record)])
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    if headed:
        writer.writerow(map(_safe, heads))
    writer.writerows([_safe(record.get(head, "")) for head in heads] for record in records)
    return stream.getvalue()


def _safe(value: object) -> object:
    """Text that a spreadsheet would take for a formula gets an apostrophe before it; a number stays a number."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) and not NUMBER.fullmatch(value) else value


def frame(table: Table, show: Show | None = None) -> pd.DataFrame:
    """The table as a DataFrame: the same lines as the CSV, indexed by section, group, row and side."""
    import pandas as pd

    return pd.DataFrame.from_records(list(_records(table, show))).set_index(["section", "group", "row", "side"])


def _records(table: Table, show: Show | None) -> Iterator[dict[str, Any]]:
    rows = table.rows()
    keys = [column.key for column in table.columns]
    cells = [(column, row, row.cell(column.key)) for column in table.columns for row in rows]
    both = [(column.key, one) for column, _, cell in cells for one in (cell.measured, cell.published) if one]
    spread = {key for key, one in both if one.deviation is not None}
    ends = {c.key for c, _, cell in cells if c.kind != "exact" and cell.measured and cell.measured.interval}
    # Numbers that were printed in another row than the one that their own row names.
    sourced = {column.key for column, row, cell in cells if cell.printed_in not in ("", row.key)}
    for group, row, side in ((g, row, side) for g in table.groups for row in g.rows for side in SIDES[show or "both"]):
        if show == "merged" and side == "published" and row.is_measured:
            continue
        numbers = {key: row.cell(key).number(side) for key in keys}
        if not any(numbers.values()):
            continue
        said = "imported" if row.imported and side == "published" else side
        facts = (table.name, group.section, group.title, row.label, row.encoder, row.key, said)
        record: dict[str, Any] = dict(zip(FACTS, facts, strict=True))
        for key, one in numbers.items():
            low, high = one.interval if one and one.interval else (None, None)
            if key == RANKS:
                record |= {"rank_best": low and int(low), "rank_worst": high and int(high)}
            elif key == LETTERS:
                record |= {LETTERS: one.text if one else None, "tied_with_best": row.is_best if one else None}
            else:
                record[key] = _plain(one and one.value)
                record |= {f"{key}_deviation": _plain(one and one.deviation)} if key in spread else {}
                record |= {f"{key}_low": _plain(low), f"{key}_high": _plain(high)} if key in ends else {}
            if key in sourced:
                record[f"{key}_published_row"] = row.cell(key).printed_in if side != "measured" else ""
        yield record


def to_json(tables: Sequence[Table]) -> str:
    """All tables with all they hold: measured, published, difference, intervals, and what is wrong in print."""
    made = [
        {
            "table": table.name,
            "title": table.title,
            "paper": {key: getattr(table.paper, key) for key in ("name", "title", "year", "url")}
            if table.paper
            else None,
            "number": table.number,
            "columns": [_column(column) for column in table.columns],
            "groups": [
                {"section": group.section, "title": group.title, "rows": [_row(row) for row in group.rows]}
                for group in table.groups
            ],
            "notes": [*table.notes, *table.measured_notes],
        }
        for table in tables
    ]
    return json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _column(column: TableColumn) -> dict[str, Any]:
    facts: dict[str, Any] = {"key": column.key, "head": column.head, "kind": column.kind}
    if column.wanted is not None:
        wanted = column.wanted
        facts |= {"task": wanted.task, "split": wanted.printed, "protocol": wanted.protocol, "metric": wanted.metric}
    return facts


def _row(row: Row) -> dict[str, Any]:
    facts = {
        "encoder": row.encoder,
        "published_row": row.key,
        "quoted_from": row.quoted,
        "scored_otherwise": row.otherwise,
    }
    facts |= {key: getattr(row, key) for key in ("imported", "metric", "overlap", "misprint", "is_best")}
    cells = {key: _cell(cell, row.key) for key, cell in row.cells.items() if cell.measured or cell.published}
    return {"label": row.label, **_known(facts), "cells": cells}


def _cell(cell: TableCell, of_row: str) -> Mapping[str, Any]:
    facts: dict[str, Any] = {"published_row": cell.printed_in if cell.printed_in != of_row else ""}
    for side, one in (("measured", cell.measured), ("published", cell.published)):
        facts[side] = one and _known(
            {
                "value": _plain(one.value),
                "deviation": _plain(one.deviation),
                "interval": [_plain(end) for end in one.interval] if one.interval else None,
                "seeds": one.seeds if one.seeds > 1 else None,
                "text": one.text,
            }
        )
    return _known({**facts, "difference": _plain(cell.difference and cell.difference.value), "misprint": cell.misprint})


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value not in (None, "") and value is not False}


def _plain(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
