"""Ways in which a result file is tampered with or broken, and what is said of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stsbench.results.folder import read_result, result_to_json
from stsbench.results.record import digest_fields, items_path

Forgery = Callable[[Path], None]


def edited(**changes: Any) -> Forgery:
    """Fields replaced in the file, whatever their types; the file stays where it is."""

    def forge(path: Path) -> None:
        fields = json.loads(path.read_text())
        for key, value in changes.items():
            fields[key] = (
                {**fields.get(key, {}), **value} if isinstance(value, dict) and value else value
            )
        path.write_text(json.dumps(fields, indent=1))

    return forge


def resealed(**changes: Any) -> Forgery:
    """The same with a digest of the new values, as who knows how it is made may write it: ``verify`` sees it."""

    def forge(path: Path) -> None:
        edited(**changes)(path)
        fields = {
            key: value for key, value in json.loads(path.read_text()).items() if key != "digest"
        }
        edited(digest=digest_fields(fields))(path)

    return forge


def replaced(old: str, new: str) -> Forgery:

    def forge(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return forge


def consistent(path: Path) -> None:
    """A better score, and everything in the file that goes with it."""
    edited(score=0.99, scores={"spearman.all": 0.99}, interval=[0.98, 1.0])(path)


def moved(path: Path) -> None:
    """Another task's file, for this one's."""
    other = msgspec.structs.replace(read_result(path), task="sts16")
    path.write_bytes(result_to_json(other))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:300])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def items_of_others(path: Path) -> None:
    result = read_result(path)
    rng = np.random.default_rng(5)
    columns = {
        "subset": ["x"] * result.n,
        "gold": rng.normal(size=result.n),
        "similarity": rng.normal(size=result.n),
    }
    write_columns(path, columns)


def nan_items(path: Path) -> None:
    n = read_result(path).n
    write_columns(
        path, {"subset": ["x"] * n, "gold": np.arange(n) / n, "similarity": np.full(n, np.nan)}
    )


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: pyarrow.array(column) for name, column in columns.items()})
    pyarrow.parquet.write_table(table, items_path(path))


EDITED = "is not as stsbench wrote it"
FORGERIES: Mapping[str, tuple[Forgery, str]] = {
    "edited score": (edited(score=0.99), EDITED),
    "consistent": (consistent, EDITED),
    "another n": (edited(n=7, per_subset={}), EDITED),
    "nested protocol": (edited(protocol={"more": {"a": {}}}), EDITED),
    "another fingerprint": (edited(fingerprint="other"), EDITED),
    "a fact of the run": (edited(run={"seconds": -1.0}), EDITED),
    "clean score": (
        edited(
            clean=[
                {
                    "corpora": ["mine"],
                    "text": "a",
                    "near": None,
                    "n": 2,
                    "score": 5,
                    "interval": [0, 1],
                }
            ]
        ),
        EDITED,
    ),
    "per_item in the file": (edited(per_item={"gold": [1.0]}), EDITED),
    "another digest": (edited(digest="0" * 64), EDITED),
    "no digest": (
        edited(digest=""),
        "has no digest, so an earlier stsbench wrote it; run the cell again",
    ),
    "NaN": (replaced('"score": ', '"score": NaN, "x": '), "is not a result file"),
    "NaN as text": (edited(score="NaN"), "$.score"),
    "too large for a float": (replaced('"score": ', '"score": 1e999'), "is not a result file"),
    "deep": (
        replaced('"run": {', '"run": {"deep": ' + "[" * 5000 + "]" * 5000 + ","),
        "is not a result file",
    ),
    "moved": (moved, "is not where it belongs"),
    "cut": (cut, "is not a result file"),
    "empty": (empty, "is not a result file"),
    "another schema": (edited(schema=2), "is a result of schema 2"),
}
BY_COLUMNS: Mapping[str, tuple[Forgery, str]] = {
    "columns of others": (items_of_others, "is not what"),
    "columns of NaN": (nan_items, "is not what"),
}
"""Seen by the commands that read per-item columns."""
FEW = ("consistent", "no digest", "NaN as text", "moved", "cut")
"""Those that every command is shown; :mod:`tests.results.test_record` is shown all."""
