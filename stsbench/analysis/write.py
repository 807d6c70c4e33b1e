"""What an analysis has found, as JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from typing import Any

from stsbench.analysis.seams import Findings


def as_plain(found: Findings) -> dict[str, Any]:
    """All of it as JSON values; a number that is none is null."""
    return {
        "analysis": found.analysis,
        "task": found.task,
        "split": found.split,
        "protocol": found.protocol,
        "encoders": list(found.encoders),
        "parameters": dict(found.parameters),
        "tables": {
            name: [{key: _plain(value) for key, value in row.items()} for row in rows]
            for name, rows in found.tables.items()
        },
    }


def findings_json(found: Findings) -> str:
    """As one JSON object."""
    return json.dumps(as_plain(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def findings_csv(found: Findings) -> str:
    """All tables below each other: the first column names the table, a column that a table lacks is empty."""
    columns = dict.fromkeys(key for rows in found.tables.values() for row in rows for key in row)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, ["table", *columns], restval="", lineterminator="\n")
    writer.writeheader()
    for name, rows in found.tables.items():
        writer.writerows({"table": name, **{key: _plain(value) for key, value in row.items()}} for row in rows)
    return stream.getvalue()


WRITERS: Mapping[str, Callable[[Findings], str]] = {"json": findings_json, "csv": findings_csv}
"""The formats that hold numbers."""


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    return None if isinstance(value, float) and value != value else value  # noqa: PLR0124 - NaN
