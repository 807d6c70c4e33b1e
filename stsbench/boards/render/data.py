"""Tables as data: CSV and pandas with a line for each side of a row, JSON with everything."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stsbench.boards.tables.table import LETTERS, RANKS, SIDES, Number, Row, Show, Table, TableCell, TableColumn

if TYPE_CHECKING:
    import pandas as pd

DIGITS = 6
FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""How text begins that a spreadsheet computes, in signs of either width."""
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
ENDS = ("rank_best", "rank_worst")
FACTS = ("table", "section", "group", "row", "encoder", "published_row", "side")


def to_csv(tables: Sequence[Table], show: Show | None = None) -> str:
    """One line for the measured numbers of a row, one for the published ones, one for the difference."""
    return csv_text([record for table in tables for record in _records(table, show)], FACTS)


def csv_rows(tables: Sequence[Table], show: Show | None = None) -> str:
    """The same without the line of heads."""
    return csv_text([record for table in tables for record in _records(table, show)], FACTS, headed=False)


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

    made = pd.DataFrame.from_records(list(_records(table, show)))
    return made.set_index(["section", "group", "row", "side"])


def _records(table: Table, show: Show | None) -> Iterator[dict[str, Any]]:
    spread = {c.key for c in table.columns for row in table.rows() if _has_deviation(row.cell(c.key))}
    ends = {
        c.key for c in table.columns for row in table.rows() if c.kind != "exact" and _has_interval(row.cell(c.key))
    }
    sourced = {c.key for c in table.columns for row in table.rows() if _is_of_another(row, c.key)}
    for group in table.groups:
        for row in group.rows:
            for side in SIDES[show or "both"]:
                numbers = {c.key: row.cell(c.key).number(side) for c in table.columns}
                if not any(numbers.values()):
                    continue
                said = "imported" if row.imported and side == "published" else side
                facts = (table.name, group.section, group.title, row.label, row.encoder, row.key, said)
                record: dict[str, Any] = dict(zip(FACTS, facts, strict=True))
                for key, one in numbers.items():
                    record |= (
                        MADE[key](one, row) if key in MADE else _value(key, one, spread=key in spread, ends=key in ends)
                    )
                    if key in sourced:
                        record[f"{key}_published_row"] = row.cell(key).printed_in if side != "measured" else ""
                yield record
                if show == "merged":
                    break


def _value(key: str, one: Number | None, *, spread: bool, ends: bool) -> dict[str, float | None]:
    value = {key: _plain(one.value) if one else None}
    if spread:
        value[f"{key}_deviation"] = _plain(one.deviation) if one else None
    if ends:
        low, high = one.interval if one and one.interval else (None, None)
        value |= {f"{key}_low": _plain(low), f"{key}_high": _plain(high)}
    return value


def _ranks(one: Number | None, row: Row) -> dict[str, int | None]:
    return dict(zip(ENDS, map(int, one.interval) if one and one.interval else (None, None), strict=True))


def _letters(one: Number | None, row: Row) -> dict[str, str | bool | None]:
    return {LETTERS: one.text if one else None, "tied_with_best": row.is_best if one else None}


MADE: Mapping[str, Callable[[Number | None, Row], Mapping[str, object]]] = {RANKS: _ranks, LETTERS: _letters}
"""How columns that hold no plain number become fields."""


def _has_interval(cell: TableCell) -> bool:
    return cell.measured is not None and cell.measured.interval is not None


def _has_deviation(cell: TableCell) -> bool:
    return any(one is not None and one.deviation is not None for one in (cell.measured, cell.published))


def _is_of_another(row: Row, key: str) -> bool:
    """Whether a number was printed in another row than the one that its own row names."""
    return row.cell(key).printed_in not in ("", row.key)


def to_json(tables: Sequence[Table]) -> str:
    """All tables with all they hold: measured, published, difference, intervals, and what is wrong in print."""
    return json.dumps([as_dict(table) for table in tables], indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def as_dict(table: Table) -> dict[str, Any]:
    """One table as plain values."""
    paper = table.paper
    return {
        "table": table.name,
        "title": table.title,
        "paper": {"name": paper.name, "title": paper.title, "year": paper.year, "url": paper.url} if paper else None,
        "number": table.number,
        "columns": [_column(column) for column in table.columns],
        "groups": [
            {"section": group.section, "title": group.title, "rows": [_row(row) for row in group.rows]}
            for group in table.groups
        ],
        "notes": [*table.notes, *table.measured_notes],
    }


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
        "imported": row.imported,
        "metric": row.metric,
        "overlap": row.overlap,
        "misprint": row.misprint,
    }
    cells = {key: _cell(cell, row.key) for key, cell in row.cells.items() if cell.measured or cell.published}
    best = {"is_best": True} if row.is_best else {}
    return {"label": row.label, **{key: value for key, value in facts.items() if value}, **best, "cells": cells}


def _cell(cell: TableCell, of_row: str) -> Mapping[str, Any]:
    facts: dict[str, Any] = {
        "published_row": cell.printed_in if cell.printed_in != of_row else "",
        "measured": _number(cell.measured),
        "published": _number(cell.published),
        "difference": _plain(cell.difference.value) if cell.difference else None,
        "misprint": cell.misprint,
    }
    return {key: value for key, value in facts.items() if value not in (None, "")}


def _number(one: Number | None) -> Mapping[str, Any] | None:
    if one is None:
        return None
    interval = [_plain(end) for end in one.interval] if one.interval else None
    facts = {
        "value": _plain(one.value),
        "deviation": _plain(one.deviation),
        "interval": interval,
        "seeds": one.seeds if one.seeds > 1 else None,
        "text": one.text or None,
    }
    return {key: value for key, value in facts.items() if value is not None}


def _plain(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
