"""What papers print, and how each table is laid out: columns, groups of rows and averages as data, one TOML file a table."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from stsbench.core.cards import Overlap, Supervision
from stsbench.core.errors import CardError, UnknownName, suggest
from stsbench.core.toml import StrictRecord, convert, parse_toml
from stsbench.core.wording import join_lines
from stsbench.numbers.statistics import CORRELATIONS

FOLDER = Path(__file__).parent
MAX_DECIMALS = 12
UNKNOWN = "unknown"
"""The protocol of scores whose source does not say how they were made."""
BOARDS = ("sts", "transfer", "multilingual", "probing", "all")
Split = Literal["test", "validation"]


class PublishedFacts(StrictRecord, frozen=True, kw_only=True):
    """Which row of which table, and what it is of; ``quoted`` is the paper its numbers were taken over from."""

    paper: str
    table: str
    row: str
    supervision: Supervision
    overlap: Overlap
    encoder: str = ""
    method: str = ""
    backbone: str = ""
    quoted: str = ""

    @property
    def key(self) -> str:
        """What the row is called: ``paper/table/row``."""
        return f"{self.paper}/{self.table}/{self.row}"


class PublishedScore(PublishedFacts, frozen=True, kw_only=True):
    """One printed number, a line of the file: of which task, scored how, and how it was checked.

    ``protocol`` is the name of ours that scores so, empty where none does. ``verified``: read in the
    paper's text (``yes``), in another work that quotes it, read off a figure, or not found (``no``).
    """

    task: str
    split: Split
    metric: str
    score: str
    verified: Literal["yes", "secondary", "figure", "no"]
    protocol: str = ""
    aggregation: Literal["", "all", "mean", "wmean", "unknown"] = ""
    deviation: float | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """The number."""
        return float(self.score)

    @property
    def decimals(self) -> int:
        """How many are printed."""
        return len(self.score.partition(".")[2])


class PublishedRow(PublishedFacts, frozen=True, kw_only=True):
    """One row of a published table."""

    scores: tuple[PublishedScore, ...]


class Paper(StrictRecord, frozen=True, kw_only=True):
    """A source of published scores."""

    name: str
    title: str
    authors: str
    year: int
    url: str


class Misprint(StrictRecord, frozen=True, kw_only=True):
    """A printed number that cannot be right, or that another source has otherwise, and why; without a task, the whole row."""

    row: str
    kind: Literal["average", "rounding", "value", "deviation", "label", "source"]
    reason: str
    task: str = ""
    expected: str = ""


class PublishedSources(StrictRecord, frozen=True, kw_only=True):
    """All sources by id, and the tasks of theirs that are none of ours."""

    papers: dict[str, Paper]
    extras: dict[str, str]


@cache
def published_rows(path: Path = FOLDER / "published.csv") -> Mapping[str, PublishedRow]:
    """All published rows by key, in the order of the file; raises CardError that names a wrong line."""
    rows: dict[str, list[PublishedScore]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for number, cells in enumerate(csv.DictReader(stream, strict=True), start=2):
            try:
                score = msgspec.convert(
                    {key: cell for key, cell in cells.items() if cell}, PublishedScore, strict=False
                )
            except msgspec.ValidationError as error:
                raise CardError(f"{path}: line {number}: {join_lines(error)}") from error
            rows.setdefault(score.key, []).append(score)
    names = PublishedFacts.__struct_fields__
    return {
        key: PublishedRow(
            scores=tuple(scores), **{name: getattr(scores[0], name) for name in names}
        )
        for key, scores in rows.items()
    }


def published_row(key: str) -> PublishedRow:
    """The row of this key; raises UnknownName with the nearest."""
    rows = published_rows()
    if key not in rows:
        raise UnknownName("published row", key, rows, hint="keys are paper/table/row")
    return rows[key]


@cache
def sources() -> PublishedSources:
    """All sources, and the extra tasks."""
    return msgspec.convert(parse_toml(FOLDER / "papers.toml"), PublishedSources)


@cache
def misprints() -> Mapping[tuple[str, str], Misprint]:
    """All misprints by row key and task, the task empty for a whole row."""
    found = msgspec.convert(parse_toml(FOLDER / "misprints.toml")["misprints"], list[Misprint])
    return {(one.row, one.task): one for one in found}


class Metric(NamedTuple):
    """One kind of number, and whether tables print it times 100."""

    better: Literal["high", "low", ""] = "high"
    in_points: bool = True


METRICS: dict[str, Metric] = {
    **{row.name: Metric(row.better) for row in CORRELATIONS.values()},
    # ``spearman_max`` is the best of four similarities, as early sentence-transformers reported it; ``mixed`` a mean over
    # tasks that are scored in different ways.
    **dict.fromkeys(
        (
            "matthews",
            "spearman_max",
            "accuracy",
            "f1",
            "mean_recall",
            "auc",
            "map",
            "mrr@10",
            "mixed",
        ),
        Metric(),
    ),
    **dict.fromkeys(("spearman_change", "spearman_edit_distance"), Metric("")),
    **dict.fromkeys(
        (
            "mse",
            "training_seconds",
            "inference_seconds",
            "milliseconds",
            "gigabytes",
            "alignment",
            "uniformity",
        ),
        Metric("low", in_points=False),
    ),
    **dict.fromkeys(
        ("steps", "million_parameters", "dimensions", "mean_norm"), Metric("", in_points=False)
    ),
    **{
        f"knn{k}_{kind}": Metric("", in_points=False)
        for k in (3, 5, 7)
        for kind in ("distance", "dot")
    },
}


class ProtocolFacts(StrictRecord, frozen=True, kw_only=True):
    """What a protocol's scores are: metric, aggregation, and by evaluator the fields results must have."""

    metric: str
    aggregation: str = ""
    fields: dict[str, dict[str, Any]] = {}


class ColumnFacts(StrictRecord, frozen=True, kw_only=True):
    """One column that is more than a task scored as its table says: or another table's average."""

    task: str = ""
    split: Split = "test"
    protocol: str | None = None
    metric: str = ""
    head: str = ""
    average_of: str = ""


class RowFacts(StrictRecord, frozen=True, kw_only=True):
    """A published row under another label, or one that the paper scored otherwise than its columns say.

    ``metric`` is that of a row whose numbers measure something else than those of other rows of the table.
    """

    row: str
    label: str = ""
    protocol: str | None = None
    metric: str = ""


class GroupFacts(StrictRecord, frozen=True, kw_only=True):
    """Rows between two rules: best and second best are taken among them."""

    rows: list[str | RowFacts]
    title: str = ""
    section: str = ""
    protocol: str | None = None


class AverageFacts(StrictRecord, frozen=True, kw_only=True):
    """The average column: of which columns, rounded when, and what the file of published scores calls it.

    ``rounding``: ``cells`` averages the cells as printed, ``once`` the exact ones, ``never`` leaves the average exact. In
    ``of``, a list among the keys counts as one, its mean. ``composite`` allows columns that are scored in different ways.
    """

    task: str
    head: str = "Avg."
    rounding: str = "once"
    of: list[str | list[str]] = []
    composite: bool = False


class DeltaFacts(StrictRecord, frozen=True, kw_only=True):
    """A further column: the distance of each row to this one, in the average or in the column of this key."""

    row: str
    column: str = ""


class BoardFacts(StrictRecord, frozen=True, kw_only=True):
    """A board of our own: its rows are whatever was measured or published, not a paper's."""

    whole: bool = True
    """Whether a published row must fill all columns to be shown."""
    published: bool = True
    """Whether published rows are shown; without them rows have the encoders' names and stand in one group."""


class TableCard(StrictRecord, frozen=True, kw_only=True):
    """One table.

    ``fields``, if there are any, are all fields of the protocol that results must have: their own score is shown.
    """

    title: str
    paper: str = ""
    table: str = ""
    protocol: str = ""
    fields: dict[str, Any] = {}
    suite: str = ""
    columns: list[str | ColumnFacts] = []
    heads: dict[str, str] = {}
    decimals: int = 2
    average: AverageFacts | None = None
    delta: DeltaFacts | None = None
    groups: list[GroupFacts] = []
    board: BoardFacts | None = None
    note: str = ""


def table_names() -> list[str]:
    """The names of all tables: our own boards first, then papers', each in order."""
    names = {path.stem for path in (FOLDER / "tables").glob("*.toml")}
    return [*(name for name in BOARDS if name in names), *sorted(names - {*BOARDS})]


def read_table_card(name: str) -> TableCard:
    """The table of this name, or of a TOML file.

    Raises:
        UnknownName: no such table; offers the nearest.
        CardError: the file is not as tables must be.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / "tables" / f"{name}.toml"
    try:
        changed = path.stat().st_mtime_ns
    except (OSError, ValueError) as error:
        # It is not there, or can be no file's name.
        raise UnknownName(
            "table", name, table_names(), hint="'stsbench list tables' shows them"
        ) from error
    return _read(path, changed)


@cache
def _read(path: Path, changed: int) -> TableCard:
    card = convert(parse_toml(path), TableCard, where=str(path))
    for problem in (*_wrong_form(card), *_wrong_names(card)):
        raise CardError(f"{path}: {problem}")
    return card


@cache
def protocols() -> Mapping[str, ProtocolFacts]:
    """All protocols that published scores may be of, by name."""
    return msgspec.convert(parse_toml(FOLDER / "protocols.toml"), dict[str, ProtocolFacts])


def column_facts(card: TableCard) -> list[ColumnFacts]:
    """The columns that a card lists itself, each as a record."""
    return [
        ColumnFacts(task=column) if isinstance(column, str) else column for column in card.columns
    ]


def row_facts(group: GroupFacts) -> list[RowFacts]:
    """A group's rows, each as a record that says its protocol if row or group does."""
    facts = [RowFacts(row=row) if isinstance(row, str) else row for row in group.rows]
    return [f if f.protocol is not None else replace(f, protocol=group.protocol) for f in facts]


def _wrong_form(card: TableCard) -> Iterator[str]:
    if bool(card.suite) == bool(card.columns):
        yield "give either 'suite' or 'columns'"
    if (card.board is None) != bool(card.groups):
        yield "give either [[groups]] or [board]"
    if not 0 <= card.decimals <= MAX_DECIMALS:
        yield f"key 'decimals': {card.decimals} is not from 0 to {MAX_DECIMALS}"
    for facts in column_facts(card):
        if bool(facts.task) == bool(facts.average_of):
            yield f"columns: give either 'task' or 'average_of', not {'both' if facts.task else 'neither'}"
        if facts.average_of.endswith(".toml"):
            yield f"columns: 'average_of' is '{facts.average_of}'; it takes a table of the project's"
    if card.delta and not (card.delta.column or card.average):
        yield "[delta]: the table has no average; name a column"


def _wrong_names(card: TableCard) -> Iterator[str]:
    columns, rows = column_facts(card), [row for group in card.groups for row in row_facts(group)]
    if card.board is None and card.paper not in sources().papers:
        yield f"key 'paper': '{card.paper}' is not one of papers.toml{suggest(card.paper, sources().papers)}"
    of_groups = (group.protocol for group in card.groups)
    for name in filter(
        None,
        (card.protocol, *of_groups, *(c.protocol for c in columns), *(r.protocol for r in rows)),
    ):
        if name != UNKNOWN and name not in protocols():
            yield f"key 'protocol': '{name}' is not one of protocols.toml{suggest(name, protocols())}"
    known = [
        row.row
        for row in published_rows().values()
        if (row.paper, row.table) == (card.paper, card.table)
    ]
    for row in rows:
        if row.row not in known:
            yield f"no row '{row.row}' in {card.paper}/{card.table}{suggest(row.row, known)}"
    for where, metric in (
        *(("columns", c.metric) for c in columns),
        *((f"row '{r.row}'", r.metric) for r in rows),
    ):
        if metric and metric not in METRICS:
            yield f"{where}: metric '{metric}' is unknown{suggest(metric, METRICS)}"
