"""Ways in which a result file is tampered with or broken, and what is said of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stsbench.results.folder import read_result, result_to_json
from stsbench.results.record import items_path

Forgery = Callable[[Path], None]


def edited(**changes: Any) -> Forgery:
    """Fields replaced in the file, whatever their types; the file stays where it is."""

    def forge(path: Path) -> None:
        fields = json.loads(path.read_text())
        for key, value in changes.items():
            fields[key] = {**fields.get(key, {}), **value} if isinstance(value, dict) and value else value
        path.write_text(json.dumps(fields, indent=1))

    return forge


def replaced(old: str, new: str) -> Forgery:
    """Text replaced, once."""

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
    """Per-item columns of another result."""
    result = read_result(path)
    rng = np.random.default_rng(5)
    columns = {"subset": ["x"] * result.n, "gold": rng.normal(size=result.n), "similarity": rng.normal(size=result.n)}
    write_columns(path, columns)


def nan_items(path: Path) -> None:
    n = read_result(path).n
    write_columns(path, {"subset": ["x"] * n, "gold": np.arange(n) / n, "similarity": np.full(n, np.nan)})


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: pyarrow.array(column) for name, column in columns.items()})
    pyarrow.parquet.write_table(table, items_path(path))


CLEAN = {"corpora": ["mine"], "text": "a" * 64, "near": None, "n": 2, "score": 0.5, "interval": [0.4, 0.6]}
FORGERIES: Mapping[str, tuple[Forgery, str]] = {
    "edited score": (edited(score=0.99), "field 'score'"),
    "score of five": (edited(score=5.0), "field 'score'"),
    "score of scores too": (edited(score=5.0, scores={"spearman.all": 5.0}, interval=[4.9, 5.1]), "field 'score'"),
    "far from its interval": (edited(score=0.1, scores={"spearman.all": 0.1}), "field 'score'"),
    "NaN": (replaced('"score": ', '"score": NaN, "x": '), "is not a result file"),
    "NaN as text": (edited(score="NaN"), "$.score"),
    "too large for a float": (replaced('"score": ', '"score": 1e999'), "is not a result file"),
    "clean score of five": (edited(clean=[{**CLEAN, "score": 5.0}]), "field 'clean'"),
    "clean score of more items": (edited(clean=[{**CLEAN, "n": 4}]), "field 'clean'"),
    "clean score of no text": (edited(clean=[{**CLEAN, "text": "mine"}]), "field 'clean'"),
    "clean score of nothing": (edited(clean=[{**CLEAN, "corpora": []}]), "field 'clean'"),
    "clean score without interval": (edited(clean=[{**CLEAN, "interval": None}]), "field 'clean'"),
    "clean interval upside down": (edited(clean=[{**CLEAN, "interval": [0.9, 0.1]}]), "field 'clean'"),
    "empty protocol": (edited(protocol={}), "field 'protocol'"),
    "protocol without name": (replaced('"name"', '"nome"'), "field 'protocol'"),
    "protocol of lists": (edited(protocol={"metric": ["spearman"]}), "field 'protocol'"),
    "nested protocol": (edited(protocol={"more": {"a": {}}}), "field 'protocol'"),
    "no metric": (replaced('"metric"', '"metrik"'), "field 'protocol'"),
    "no n": (edited(n=0), "field 'n'"),
    "negative n": (edited(n=-3), "field 'n'"),
    "zero vectors": (edited(zero_vectors=10**9), "field 'zero_vectors'"),
    "interval in disorder": (edited(interval=[0.99, -0.99]), "field 'interval'"),
    "interval of three": (edited(interval=[0.1, 0.2, 0.3]), "$.interval"),
    "train_seed as text": (edited(train_seed="0"), "$.train_seed"),
    "negative seed": (edited(eval_seed=-1), "field 'eval_seed'"),
    "revision of a number": (edited(revision=5), "$.revision"),
    "overlap of another word": (edited(overlap="maybe"), "field 'overlap'"),
    "hash of the data": (edited(data="../../x"), "field 'data'"),
    "hash of the items": (edited(items=""), "field 'items'"),
    "another fingerprint": (edited(fingerprint="other"), "is not where it belongs"),
    "another encoder": (edited(encoder="../../other"), "is not where it belongs"),
    "control characters": (edited(encoder="a\x1b[2J"), "field 'encoder'"),
    "versions of a number": (edited(run={"versions": 5}), "field 'run'"),
    "nested run": (edited(run={"device": [[[1]]]}), "field 'run'"),
    "per_item in the file": (edited(per_item={"gold": [1.0]}), "field 'per_item'"),
    "a key twice": (replaced('"score": ', '"score": 0.5, "score": '), "field 'score': is there twice"),
    "deep": (
        replaced('"run": {', '"run": {"deep": ' + "[" * 5000 + "]" * 5000 + ","),
        "is not a result file|field 'run'",
    ),
    "moved": (moved, "is not where it belongs|the card of sts16 says 1186"),
    "cut": (cut, "is not a result file"),
    "empty": (empty, "is not a result file"),
    "another schema": (edited(schema=2), "is a result of schema 2"),
}
BY_COLUMNS: Mapping[str, tuple[Forgery, str]] = {
    "n of another": (edited(n=7, per_subset={}), "rows of|field 'per_subset'|field 'n'"),
    "consistent": (consistent, "field 'score' says 0.99"),
    "columns of others": (items_of_others, "is not what"),
    "columns of NaN": (nan_items, "is not what"),
}
"""Told by per-item columns alone: by every command that reads them."""

FEW = (
    "edited score",
    "score of five",
    "NaN as text",
    "empty protocol",
    "no n",
    "train_seed as text",
    "moved",
    "cut",
)
"""Those that every command is shown; :mod:`tests.results.test_record` is shown all."""
