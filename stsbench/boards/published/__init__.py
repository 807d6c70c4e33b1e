"""What papers print, and how each of their tables is laid out."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from stsbench.core.cards import Overlap, Record, convert, parse_toml
from stsbench.core.errors import CardError, UnknownName, one_line
from stsbench.numbers.statistics import CORRELATIONS

FOLDER = Path(__file__).parent
Supervision = Literal["none", "nli", "sts", "pairs", "translation"]
Aggregation = Literal["", "all", "mean", "wmean", "unknown"]
ROW_FACTS = ("encoder", "method", "backbone", "supervision", "overlap", "quoted")
"""The columns that are the same in every line of a row."""


class PublishedLine(Record, frozen=True, kw_only=True):
    """One line of the file, as it is there."""

    paper: str
    table: str
    row: str
    task: str
    split: Literal["test", "validation"]
    metric: str
    score: str
    supervision: Supervision
    overlap: Overlap
    verified: Literal["yes", "secondary", "figure", "no"]
    encoder: str = ""
    method: str = ""
    backbone: str = ""
    quoted: str = ""
    protocol: str = ""
    aggregation: Aggregation = ""
    deviation: str = ""
    note: str = ""


class Score(NamedTuple):
    """One printed number: of which task, scored how, and how it was checked.

    ``protocol`` is the name of ours that scores so, empty where none does. ``verified``: read in the
    paper's text (``yes``), in another work that quotes it, read off a figure, or not found (``no``).
    """

    task: str
    split: Literal["test", "validation"]
    protocol: str
    metric: str
    aggregation: str
    value: float
    decimals: int
    deviation: float | None
    verified: str
    note: str


class PublishedRow(NamedTuple):
    """One row of a published table. ``quoted`` is the paper its numbers were taken over from."""

    paper: str
    table: str
    row: str
    encoder: str
    method: str
    backbone: str
    supervision: Supervision
    overlap: Overlap
    quoted: str
    scores: tuple[Score, ...]

    @property
    def key(self) -> str:
        """What the row is called: ``paper/table/row``."""
        return f"{self.paper}/{self.table}/{self.row}"


class Paper(Record, frozen=True, kw_only=True):
    """A source of published scores."""

    name: str
    title: str
    authors: str
    year: int
    url: str


class Misprint(Record, frozen=True, kw_only=True):
    """A printed number that cannot be right, or that another source has otherwise, and why; without a task, the whole row."""

    row: str
    kind: Literal["average", "rounding", "value", "deviation", "label", "source"]
    reason: str
    task: str = ""
    expected: str = ""


class Papers(Record, frozen=True, kw_only=True):
    """All sources by id, and the tasks of theirs that are none of ours."""

    papers: dict[str, Paper]
    extras: dict[str, str]


class Misprints(Record, frozen=True, kw_only=True):
    """The file of misprints."""

    misprints: list[Misprint]


@cache
def published_rows(path: Path = FOLDER / "published.csv") -> Mapping[str, PublishedRow]:
    """All published rows by key, in the order of the file.

    Raises:
        CardError: a line that is not as lines must be; names file and line.
    """
    lines: dict[tuple[str, str, str], list[PublishedLine]] = {}
    for where, line in _lines(path):
        rows = lines.setdefault((line.paper, line.table, line.row), [])
        differing = next((f for f in ROW_FACTS if rows and getattr(rows[0], f) != getattr(line, f)), None)
        if differing:
            raise CardError(f"{where}: '{differing}' is not what other lines of row '{line.row}' say")
        rows.append(line)
    rows_made = (_row(group) for group in lines.values())
    return {row.key: row for row in rows_made}


def _lines(path: Path) -> Iterator[tuple[str, PublishedLine]]:
    with path.open(encoding="utf-8", newline="") as stream:
        reader = csv.reader(stream, strict=True)
        header = next(reader)
        for number, cells in enumerate(reader, start=2):
            where = f"{path}: line {number}"
            if len(cells) != len(header):
                raise CardError(f"{where}: {len(cells)} cells under {len(header)} heads")
            given = {head: cell for head, cell in zip(header, cells, strict=True) if cell}
            try:
                yield where, msgspec.convert(given, PublishedLine)
            except msgspec.ValidationError as error:
                raise CardError(f"{where}: {one_line(error)}") from error


def _row(lines: list[PublishedLine]) -> PublishedRow:
    first = lines[0]
    scores = tuple(_score(line) for line in lines)
    facts: dict[str, Any] = {name: getattr(first, name) for name in ROW_FACTS}
    return PublishedRow(paper=first.paper, table=first.table, row=first.row, scores=scores, **facts)


def _score(line: PublishedLine) -> Score:
    try:
        value, deviation = float(line.score), float(line.deviation) if line.deviation else None
    except ValueError as error:
        raise CardError(f"published scores: {line.paper}/{line.table}/{line.row}: {one_line(error)}") from error
    return Score(
        line.task,
        line.split,
        line.protocol,
        line.metric,
        line.aggregation,
        value,
        len(line.score.partition(".")[2]),
        deviation,
        line.verified,
        line.note,
    )


def published_row(key: str) -> PublishedRow:
    """The row of this key; raises UnknownName with the nearest."""
    rows = published_rows()
    if key not in rows:
        raise UnknownName("published row", key, rows, hint="keys are paper/table/row")
    return rows[key]


@cache
def sources() -> Papers:
    """All sources, and the extra tasks."""
    path = FOLDER / "papers.toml"
    return convert(parse_toml(path), Papers, where=str(path))


@cache
def misprints() -> Mapping[tuple[str, str], Misprint]:
    """All misprints by row key and task, the task empty for a whole row."""
    path = FOLDER / "misprints.toml"
    found = convert(parse_toml(path), Misprints, where=str(path)).misprints
    return {(one.row, one.task): one for one in found}


class Metric(NamedTuple):
    """One kind of number."""

    better: Literal["high", "low", ""] = "high"
    points: bool = True
    """Whether tables print it times 100."""


METRICS: dict[str, Metric] = {
    **{row.name: Metric(row.better) for row in CORRELATIONS.values()},
    "matthews": Metric(),
    # The best of four similarities, as early sentence-transformers reported it.
    "spearman_max": Metric(),
    "spearman_change": Metric(""),
    "spearman_edit_distance": Metric(""),
    "accuracy": Metric(),
    "f1": Metric(),
    "mean_recall": Metric(),
    "auc": Metric(),
    "map": Metric(),
    "mrr@10": Metric(),
    # A mean over tasks that are scored in different ways.
    "mixed": Metric(),
    "mse": Metric("low", points=False),
    "training_seconds": Metric("low", points=False),
    "inference_seconds": Metric("low", points=False),
    "milliseconds": Metric("low", points=False),
    "gigabytes": Metric("low", points=False),
    "steps": Metric("", points=False),
    "alignment": Metric("low", points=False),
    "uniformity": Metric("low", points=False),
    "million_parameters": Metric("", points=False),
    "dimensions": Metric("", points=False),
    "mean_norm": Metric("", points=False),
    **{f"knn{k}_{kind}": Metric("", points=False) for k in (3, 5, 7) for kind in ("distance", "dot")},
}
