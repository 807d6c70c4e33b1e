"""Tables declared as data: columns, row groups, averages and mixtures, one TOML file a table, read strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from stsbench.boards.published import METRICS, published_rows, sources
from stsbench.core.cards import Record, convert, parse_toml
from stsbench.core.errors import CardError, UnknownName, did_you_mean

FOLDER = Path(__file__).parent / "tables"
MOST_DECIMALS = 12
UNKNOWN = "unknown"
"""The protocol of scores whose source does not say how they were made."""


class ProtocolFacts(Record, frozen=True, kw_only=True):
    """What a protocol's scores are: metric, aggregation, and by evaluator the fields results must have."""

    metric: str
    aggregation: str = ""
    fields: dict[str, dict[str, Any]] = {}


class ColumnFacts(Record, frozen=True, kw_only=True):
    """One column that is more than a task scored as its table says: or another table's average."""

    task: str = ""
    split: Literal["test", "validation"] = "test"
    protocol: str | None = None
    metric: str = ""
    head: str = ""
    average_of: str = ""


class RowFacts(Record, frozen=True, kw_only=True):
    """A published row under another label, or one that the paper scored otherwise than its columns say.

    ``metric`` is that of a row whose numbers measure something else than those of other rows of the table.
    """

    row: str
    label: str = ""
    protocol: str | None = None
    metric: str = ""


class GroupFacts(Record, frozen=True, kw_only=True):
    """Rows between two rules: best and second best are taken among them."""

    rows: list[str | RowFacts]
    title: str = ""
    section: str = ""
    protocol: str | None = None


class AverageFacts(Record, frozen=True, kw_only=True):
    """The average column: of which columns, rounded when, and what the file of published scores calls it.

    ``rounding``: ``cells`` averages the cells as printed, ``once`` the exact ones, ``never`` leaves the
    average exact. In ``of``, a list
    among the keys counts as one, its mean. ``composite`` allows columns that are scored in
    different ways.
    """

    task: str
    head: str = "Avg."
    rounding: str = "once"
    of: list[str | list[str]] = []
    composite: bool = False


class DeltaFacts(Record, frozen=True, kw_only=True):
    """A further column: the distance of each row to this one, in the average or in the column of this key."""

    row: str
    column: str = ""


class BoardFacts(Record, frozen=True, kw_only=True):
    """A board of our own: its rows are whatever was measured or published, not a paper's."""

    whole: bool = True
    """Whether a published row must fill all columns to be shown."""
    published: bool = True
    """Whether published rows are shown; without them rows have the encoders' names and stand in one group."""


class TableCard(Record, frozen=True, kw_only=True):
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
    names = sorted(path.stem for path in FOLDER.glob("*.toml"))
    boards = [name for name in BOARDS if name in names]
    return boards + [name for name in names if name not in boards]


BOARDS = ("sts", "transfer", "multilingual", "probing", "all")


def read_table_card(name: str) -> TableCard:
    """The table of this name, or of a TOML file.

    Raises:
        UnknownName: no such table; offers the nearest.
        CardError: the file is not as tables must be.
    """
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        found = path.is_file()
    except OSError:
        # Too long for a file's name.
        found = False
    if not found:
        raise UnknownName("table", name, table_names(), hint="'stsbench list tables' shows them")
    return _read(path, path.stat().st_mtime_ns)


@cache
def _read(path: Path, mtime: int) -> TableCard:
    card = convert(parse_toml(path), TableCard, where=str(path))
    for problem in (
        *_wrong_form(card),
        *_wrong_decimals(card),
        *_wrong_protocols(card),
        *_wrong_columns(card),
        *_wrong_rows(card),
    ):
        raise CardError(f"{path}: {problem}")
    return card


@cache
def protocols() -> Mapping[str, ProtocolFacts]:
    """All protocols that published scores may be of, by name."""
    path = Path(__file__).parent / "protocols.toml"
    return {key: convert(table, ProtocolFacts, where=f"{path}: [{key}]") for key, table in parse_toml(path).items()}


def column_facts(card: TableCard) -> list[ColumnFacts]:
    """The columns that a card lists itself, each as a record."""
    return [ColumnFacts(task=column) if isinstance(column, str) else column for column in card.columns]


def row_facts(group: GroupFacts) -> list[RowFacts]:
    """A group's rows, each as a record that says its protocol if row or group does."""
    facts = [RowFacts(row=row) if isinstance(row, str) else row for row in group.rows]
    return [f if f.protocol is not None else structs.replace(f, protocol=group.protocol) for f in facts]


def _wrong_form(card: TableCard) -> Iterator[str]:
    if bool(card.suite) == bool(card.columns):
        yield "give either 'suite' or 'columns'"
    if (card.board is None) != bool(card.groups):
        yield "give either [[groups]] or [board]"
    if card.board is None and card.paper not in sources().papers:
        yield f"key 'paper': '{card.paper}' is not one of papers.toml{did_you_mean(card.paper, sources().papers)}"


def _wrong_decimals(card: TableCard) -> Iterator[str]:
    if not 0 <= card.decimals <= MOST_DECIMALS:
        yield f"key 'decimals': {card.decimals} is not from 0 to {MOST_DECIMALS}"


def _wrong_protocols(card: TableCard) -> Iterator[str]:
    named = [card.protocol, *(g.protocol for g in card.groups), *(c.protocol for c in column_facts(card))]
    named += [row.protocol for group in card.groups for row in row_facts(group)]
    for name in filter(None, named):
        if name != UNKNOWN and name not in protocols():
            yield f"key 'protocol': '{name}' is not one of protocols.toml{did_you_mean(name, protocols())}"


def _wrong_columns(card: TableCard) -> Iterator[str]:
    for facts in column_facts(card):
        if bool(facts.task) == bool(facts.average_of):
            yield f"columns: give either 'task' or 'average_of', not {'both' if facts.task else 'neither'}"
        if facts.average_of.endswith(".toml"):
            yield f"columns: 'average_of' is '{facts.average_of}'; it takes a table of the project's"
        if facts.metric and facts.metric not in METRICS:
            yield f"columns: metric '{facts.metric}' is unknown{did_you_mean(facts.metric, METRICS)}"
    if card.delta and not (card.delta.column or card.average):
        yield "[delta]: the table has no average; name a column"


def _wrong_rows(card: TableCard) -> Iterator[str]:
    known = [row.row for row in published_rows().values() if (row.paper, row.table) == (card.paper, card.table)]
    for group in card.groups:
        for row in row_facts(group):
            if row.row not in known:
                yield f"no row '{row.row}' in {card.paper}/{card.table}{did_you_mean(row.row, known)}"
            if row.metric and row.metric not in METRICS:
                yield f"row '{row.row}': metric '{row.metric}' is unknown{did_you_mean(row.metric, METRICS)}"
