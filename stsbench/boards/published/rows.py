"""The published scores, and the cards of tables: columns, groups of rows and averages as data.

Each table is a TOML file; the published scores are one CSV file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from stsbench.core.cards import Overlap, Supervision
from stsbench.core.errors import CardError, Remedy, UnknownName, suggest
from stsbench.core.toml import StrictRecord, convert, parse_toml
from stsbench.core.wording import as_one_line
from stsbench.numbers.statistics import CORRELATIONS

FOLDER = Path(__file__).parent
MAX_DECIMALS = 12
UNKNOWN = "unknown"
"""The protocol of scores whose source does not say how they were made."""
BOARDS = ("sts", "transfer", "multilingual", "probing", "all")
Split = Literal["test", "validation"]


class PublishedFacts(StrictRecord):
    """The row of a table that a score stands in, and the encoder that it is of."""

    paper: str
    table: str
    row: str
    supervision: Supervision
    overlap: Overlap
    encoder: str = ""
    method: str = ""
    backbone: str = ""
    quoted: str = ""
    """The paper that the numbers were taken over from; empty if they are the paper's own."""

    @property
    def key(self) -> str:
        """The name of the row: ``paper/table/row``."""
        return f"{self.paper}/{self.table}/{self.row}"


class PublishedScore(PublishedFacts):
    """One printed number, a line of the file: its task, its protocol, how it was checked."""

    task: str
    split: Split
    metric: str
    score: str
    verified: Literal["yes", "secondary", "figure", "no"]
    """Where it was read: in the paper's text (``yes``), in a work that quotes it
    (``secondary``), off a figure, or nowhere (``no``)."""
    protocol: str = ""
    """The protocol of ours that scores alike; empty if there is none."""
    aggregation: Literal["", "all", "mean", "wmean", "unknown"] = ""
    deviation: float | None = None
    note: str = ""

    @property
    def value(self) -> float:
        """The printed number."""
        return float(self.score)

    @property
    def decimals(self) -> int:
        """The number of decimals that are printed."""
        return len(self.score.partition(".")[2])


class PublishedRow(PublishedFacts):
    """One row of a published table."""

    scores: tuple[PublishedScore, ...]


class Paper(StrictRecord):
    """A source of published scores, or another work that cards name."""

    name: str
    title: str
    authors: str
    year: int
    url: str


class Misprint(StrictRecord):
    """A printed number that cannot be right, or that differs in another source, and why.

    Without a task, the whole row is wrong.
    """

    row: str
    kind: Literal["average", "rounding", "value", "deviation", "label", "source"]
    reason: str
    task: str = ""
    expected: str = ""


class PublishedSources(StrictRecord):
    """All sources by id, and the tasks that they have and we do not."""

    papers: dict[str, Paper]
    extras: dict[str, str]
    protocols: dict[str, str]
    """The paper that describes each protocol, by the protocol's name; not every one has one."""
    works: dict[str, Paper]
    """Works without published scores that cards of tasks and encoders name, by id."""


@cache
def read_published_rows(path: Path = FOLDER / "published.csv") -> Mapping[str, PublishedRow]:
    """Read the scores that papers have published, as rows of the papers' tables.

    Args:
        path: A CSV file with one score per line.

    Returns:
        ``paper/table/row`` -> the row: its scores, and the encoder that it is of. Rows are in the
        order of the file.

    Raises:
        CardError: A line is not valid; the message names it.
    """
    scores_by_key: dict[str, list[PublishedScore]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        # The first line has the names of the columns.
        for line_number, cells in enumerate(csv.DictReader(stream, strict=True), start=2):
            filled_cells = {column: cell for column, cell in cells.items() if cell}
            try:
                score = msgspec.convert(filled_cells, PublishedScore, strict=False)
            except msgspec.ValidationError as error:
                reason = as_one_line(error)
                raise CardError(f"{path}: line {line_number}: {reason}") from error
            # The key is ``paper/table/row``.
            scores_by_key.setdefault(score.key, []).append(score)
    rows = {}
    for key, scores in scores_by_key.items():
        # The fields of a row are the same in each of its lines.
        facts = {name: getattr(scores[0], name) for name in PublishedFacts.__struct_fields__}
        rows[key] = PublishedRow(scores=tuple(scores), **facts)
    return rows


def look_up_published_row(key: str) -> PublishedRow:
    """Return a row of a paper's table, with its published scores.

    Args:
        key: ``paper/table/row``.

    Raises:
        UnknownName: There is no such row; the message suggests the nearest.
    """
    rows = read_published_rows()
    if key not in rows:
        raise UnknownName("published row", key, rows, hint="keys are paper/table/row")
    return rows[key]


@cache
def read_sources() -> PublishedSources:
    """Read all sources of published scores, and the extra tasks that they have."""
    return msgspec.convert(parse_toml(FOLDER / "papers.toml"), PublishedSources)


@cache
def read_misprints() -> Mapping[tuple[str, str], Misprint]:
    """Read the list of numbers in papers that cannot be right.

    Returns:
        (``paper/table/row``, task) -> the misprint and why it is one. The task is empty if the
        whole row is wrong.
    """
    entries = parse_toml(FOLDER / "misprints.toml")["misprints"]
    return {
        (misprint.row, misprint.task): misprint
        for misprint in msgspec.convert(entries, list[Misprint])
    }


class Metric(NamedTuple):
    """A kind of number that tables hold."""

    better: Literal["high", "low", ""] = "high"
    """The end of its scale that is the better one; empty if neither is."""
    in_points: bool = True
    """Whether tables print it times 100."""


METRICS: dict[str, Metric] = {
    **{row.name: Metric(row.better) for row in CORRELATIONS.values()},
    # ``spearman_max`` is the best of four similarities, as early sentence-transformers reported it;
    # ``mixed`` is a mean over tasks that are scored in different ways.
    **dict.fromkeys(
        "matthews spearman_max accuracy f1 mean_recall auc map mrr@10 mixed".split(), Metric()
    ),
    **dict.fromkeys(("spearman_change", "spearman_edit_distance"), Metric(better="")),
    **dict.fromkeys(
        """
        mse training_seconds inference_seconds milliseconds gigabytes alignment uniformity
        """.split(),
        Metric("low", in_points=False),
    ),
    **dict.fromkeys(
        ("steps", "million_parameters", "dimensions", "mean_norm"),
        Metric(better="", in_points=False),
    ),
    **{
        f"knn{k}_{kind}": Metric(better="", in_points=False)
        for k in (3, 5, 7)
        for kind in ("distance", "dot")
    },
}


class ProtocolFacts(StrictRecord):
    """The metric and aggregation of a protocol."""

    metric: str
    aggregation: str = ""
    fields: dict[str, dict[str, Any]] = {}
    """The fields that a result's protocol must have, by evaluator."""


class ColumnFacts(StrictRecord):
    """A column with a split, protocol, metric or head of its own, or another table's average."""

    task: str = ""
    split: Split = "test"
    protocol: str | None = None
    metric: str = ""
    aggregation: str | None = None
    """The aggregation that the source names, if it is another than the protocol's."""
    head: str = ""
    average_of: str = ""


class RowFacts(StrictRecord):
    """A published row with another label, or with another protocol than its columns."""

    row: str
    label: str = ""
    protocol: str | None = None
    metric: str = ""
    """The metric of the row, if its numbers measure something else than those of other rows."""


class GroupFacts(StrictRecord):
    """Rows between two rules, among which best and second best are marked."""

    rows: list[str | RowFacts]
    title: str = ""
    section: str = ""
    protocol: str | None = None


class AverageFacts(StrictRecord):
    """The average column of a table."""

    task: str
    """The name that the file of published scores has for the average."""
    head: str = "Avg."
    rounding: str = "once"
    """``cells`` averages the cells as printed and ``once`` the exact ones, both then rounded;
    ``never`` leaves the average exact."""
    of: list[str | list[str]] = []
    """The averaged columns by key; a list among them counts as one, by its mean."""
    composite: bool = False
    """Whether the columns may be scored in different ways."""


class DeltaFacts(StrictRecord):
    """A column with the difference of each row to one row, in the average or in another column."""

    row: str
    column: str = ""


class BoardFacts(StrictRecord):
    """A board of our own, whose rows are all that was measured or published."""

    whole: bool = True
    """Whether a published row must fill all columns to be shown."""
    published: bool = True
    """Whether published rows are shown; without them rows have the encoders' names, and there is
    a single group."""


class TableCard(StrictRecord):
    """A table of a paper, or a board."""

    title: str
    paper: str = ""
    table: str = ""
    protocol: str = ""
    fields: dict[str, Any] = {}
    """All fields of the protocol that results must have, whose own score is shown; empty if
    ``protocol`` names it."""
    suite: str = ""
    columns: list[str | ColumnFacts] = []
    heads: dict[str, str] = {}
    decimals: int = 2
    average: AverageFacts | None = None
    delta: DeltaFacts | None = None
    groups: list[GroupFacts] = []
    board: BoardFacts | None = None
    note: str = ""


def list_tables() -> list[str]:
    """Return the names of all tables: our own boards first, then those of papers."""
    names = {path.stem for path in (FOLDER / "tables").glob("*.toml")}
    return [*(name for name in BOARDS if name in names), *sorted(names - {*BOARDS})]


def read_table_card(name: str) -> TableCard:
    """Read the card of a table, the file that says which rows and columns the table has.

    Args:
        name: The name of one of our tables; or the path of a file that ends in ``.toml``; or
            ``paper/table``, which makes a card of all published scores of that table.

    Raises:
        UnknownName: There is no such table; the message suggests the nearest.
        CardError: The file is not valid.
    """
    # None, unless the name is that of a paper's table.
    source_card = _make_source_card(name)
    if source_card is not None:
        return source_card
    path = Path(name) if name.endswith(".toml") else FOLDER / "tables" / f"{name}.toml"
    try:
        modified_ns = path.stat().st_mtime_ns
    except (OSError, ValueError) as error:
        # The file does not exist, or no file can have such a name.
        raise UnknownName(
            "table", name, list_tables(), remedy=Remedy("list", {"kind": "tables"})
        ) from error
    return _read_table_file(path, modified_ns)


@cache
def _make_source_card(name: str) -> TableCard | None:
    """Make the card of a table with all scores that one table of a paper has.

    The table has a column for each task, split, metric, protocol and aggregation, and a row for
    each row of the paper's.

    Args:
        name: ``paper/table``.

    Returns:
        The card; None if no scores of such a table are known.
    """
    # ``row.row`` is the name of a row in its table.
    rows = [row for row in read_published_rows().values() if f"{row.paper}/{row.table}" == name]
    if not rows:
        return None
    columns = dict.fromkeys(
        ColumnFacts(
            task=score.task,
            split=score.split,
            protocol=score.protocol,
            metric=score.metric,
            aggregation=score.aggregation,
        )
        for row in rows
        for score in row.scores
    )
    return TableCard(
        title=read_sources().papers[rows[0].paper].title,
        paper=rows[0].paper,
        table=rows[0].table,
        columns=list(columns),
        groups=[GroupFacts(rows=[row.row for row in rows])],
    )


@cache
def _read_table_file(path: Path, modified_ns: int) -> TableCard:
    """Read and check the card of a table, which says which rows and columns the table has.

    The card is kept, and only read again after its file has changed.

    Args:
        path: The file.
        modified_ns: The time of its last change, which is only here to be part of the cache's key.

    Raises:
        CardError: The file is not valid.
    """
    card = convert(parse_toml(path), TableCard, where=str(path))
    # The first problem is reported. Both functions yield, so names are only looked up if the keys
    # are right.
    for problem in chain(_find_form_problems(card), _find_name_problems(card)):
        raise CardError(f"{path}: {problem}")
    return card


@cache
def read_published_protocols() -> Mapping[str, ProtocolFacts]:
    """Read the protocols that published scores may have, by name."""
    return msgspec.convert(parse_toml(FOLDER / "protocols.toml"), dict[str, ProtocolFacts])


def list_columns(card: TableCard) -> list[ColumnFacts]:
    """Return the columns that a card lists itself, each as a record."""
    return [
        ColumnFacts(task=column) if isinstance(column, str) else column for column in card.columns
    ]


def list_rows(group: GroupFacts) -> list[RowFacts]:
    """Return a group's rows as records, with the group's protocol if they have none themselves."""
    all_facts = [RowFacts(row=row) if isinstance(row, str) else row for row in group.rows]
    return [
        facts if facts.protocol is not None else replace(facts, protocol=group.protocol)
        for facts in all_facts
    ]


def _find_form_problems(card: TableCard) -> Iterator[str]:
    """Yield a message on each wrong key in the card of a table (``card``).

    A card says which rows and columns a table has. Two keys must often exclude each other: one of
    them must be there, but not both. A paper's table has ``groups`` of rows; a ``board`` is a table
    of ours with all rows. ``average_of`` names a table whose average a column shows.
    """
    if bool(card.suite) == bool(card.columns):
        yield "give either 'suite' or 'columns'"
    if (card.board is None) != bool(card.groups):
        yield "give either [[groups]] or [board]"
    if not 0 <= card.decimals <= MAX_DECIMALS:
        yield f"key 'decimals': {card.decimals} is not from 0 to {MAX_DECIMALS}"
    if card.average and [] in card.average.of:
        yield "[average]: a list in 'of' is empty"
    for facts in list_columns(card):
        if bool(facts.task) == bool(facts.average_of):
            keys = "both" if facts.task else "neither"
            yield f"columns: give either 'task' or 'average_of', not {keys}"
        if facts.average_of.endswith(".toml"):
            yield (
                f"columns: 'average_of' is '{facts.average_of}'; it takes a table of the project's"
            )
    if card.delta and not (card.delta.column or card.average):
        yield "[delta]: the table has no average; name a column"


def _find_name_problems(card: TableCard) -> Iterator[str]:
    """Yield a message on each paper, protocol, row and metric in a card that does not exist.

    Args:
        card: The card, which says which rows and columns the table has.
    """
    columns = list_columns(card)
    rows = [facts for group in card.groups for facts in list_rows(group)]
    papers = read_sources().papers
    if card.board is None and card.paper not in papers:
        yield f"key 'paper': '{card.paper}' is not one of papers.toml{suggest(card.paper, papers)}"
    protocol_names = [
        card.protocol,
        *(group.protocol for group in card.groups),
        *(column.protocol for column in columns),
        *(row.protocol for row in rows),
    ]
    protocols = read_published_protocols()
    # A card may name the protocol "unknown".
    for name in filter(None, protocol_names):
        if name != UNKNOWN and name not in protocols:
            yield f"key 'protocol': '{name}' is not one of protocols.toml{suggest(name, protocols)}"
    published_names = [
        published.row
        for published in read_published_rows().values()
        if (published.paper, published.table) == (card.paper, card.table)
    ]
    # ``row.row`` is the name of a row in the paper's table.
    for row in rows:
        if row.row not in published_names:
            yield (
                f"no row '{row.row}' in {card.paper}/{card.table}"
                f"{suggest(row.row, published_names)}"
            )
    metrics = [
        *(("columns", column.metric) for column in columns),
        *((f"row '{row.row}'", row.metric) for row in rows),
    ]
    for location, metric in metrics:
        if metric and metric not in METRICS:
            yield f"{location}: metric '{metric}' is unknown{suggest(metric, METRICS)}"
