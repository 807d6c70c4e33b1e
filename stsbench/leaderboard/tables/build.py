"""Declared tables and our own boards, filled from results and published rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard
from stsbench.compare.means import OnRow, unwatched
from stsbench.errors import CardError, UnknownName
from stsbench.leaderboard.published.rows import PublishedRow, misprints, published_row, sources
from stsbench.leaderboard.published.specs import RowFacts, TableCard, read_table_card, row_facts
from stsbench.leaderboard.tables.added import Added, added_groups, relabelled
from stsbench.leaderboard.tables.baseline import baseline_groups, majority_levels, of_columns
from stsbench.leaderboard.tables.columns import plan
from stsbench.leaderboard.tables.fill import Filler
from stsbench.leaderboard.tables.intervals import with_intervals
from stsbench.leaderboard.tables.own import board_groups, clean_groups, clean_notes
from stsbench.leaderboard.tables.table import AVERAGE, DELTA, Group, Number, Row, Table, TableCell
from stsbench.leaderboard.tables.traits import traits_of
from stsbench.results.groups import Runs, gather_runs
from stsbench.results.record import Result


def build_table(name: str, results: Sequence[Result] = (), catalogue: Catalogue | None = None) -> Table:
    """Make the table of a name: published numbers as printed, and beside them what results hold for the same encoders.

    Args:
        name: a table's name, or a TOML file of the user's.
        results: any results; those that fit no cell are left out.
        catalogue: cards of the project and of the user.

    Raises:
        UnknownName: no such table.
        CardError: the table's file is wrong.
        ProtocolError: it would mix protocols without saying so.
    """
    return make_table(name, read_table_card(name), results, catalogue or Catalogue())


def make_table(
    name: str,
    card: TableCard,
    results: Sequence[Result],
    catalogue: Catalogue,
    added: Sequence[Added] = (),
    progress: OnRow = unwatched,
) -> Table:
    """Make a table from its card, with the rows that are added to it; for its errors see :func:`build_table`."""
    filler = Filler(card, plan(card, catalogue), catalogue)
    runs = gather_runs(results, catalogue)
    if card.board is not None:
        groups = relabelled(board_groups(filler, card.board, runs), runs, added)
    else:
        groups = [*_paper_groups(filler, _by_row(runs, catalogue)), *added_groups(filler, runs, added)]
    if card.delta:
        groups = _with_distances(groups, f"{card.paper}/{card.table}/{card.delta.row}", card.delta.column or AVERAGE)
    levels = of_columns(majority_levels(results), {column.key: column.wanted for column in filler.plan.tasks})
    groups += baseline_groups(levels, filler.plan.terms)
    groups += clean_groups(filler, runs) if card.board is not None else ()
    made = Table(
        name=name,
        title=card.title,
        paper=sources().papers[card.paper] if card.board is None else None,
        number=number_of(card),
        columns=filler.plan.columns,
        groups=[group for group in groups if group.rows],
        notes=[*([card.note] if card.note else []), *_superseded(filler, catalogue)],
        measured_notes=list(clean_notes(filler, runs)) if card.board is not None else (),
        terms=filler.plan.terms,
    )
    return with_intervals(made, progress)


def _superseded(filler: Filler, catalogue: Catalogue) -> Iterator[str]:
    """A line on each column whose task has a later version, of which other scores may be."""
    tasks = dict.fromkeys(column.wanted.task for column in filler.plan.tasks if column.wanted is not None)
    # Tables of papers have columns that are no task of ours.
    for card in (catalogue.task(task) for task in tasks if task in catalogue.paths("tasks")):
        if card.superseded_by:
            later = catalogue.task(card.superseded_by)
            yield f"{card.name} is version {card.version}; {later.name} ({card.superseded_by}) replaces it, scores differ"


def number_of(card: TableCard) -> str:
    """A paper's own number for its table, or what it is instead: ``table-e.1`` is Table E.1."""
    word, _, number = card.table.partition("-")
    if not any(map(str.isdigit, number)):
        return card.table.replace("-", " ").capitalize()
    return f"{word.capitalize()} {number.upper()}"


def _by_row(runs: Sequence[Runs], catalogue: Catalogue) -> Mapping[str, list[Runs]]:
    """The runs that measured a published row, by its key: its own encoder's, or those of a card that names it."""
    found: dict[str, list[Runs]] = {}
    for one in runs:
        for key in one.card.published if one.card else []:
            try:
                published_row(key)
            except UnknownName as error:
                raise CardError(f"{catalogue.encoder_path(one.encoder)}: key 'published': {error}") from error
            found.setdefault(key, []).append(one)
    return found


def _paper_groups(filler: Filler, runs: Mapping[str, list[Runs]]) -> Iterator[Group]:
    for group in filler.card.groups:
        rows = [row for facts in row_facts(group) for row in _paper_rows(filler, facts, runs, group.protocol)]
        yield Group(title=group.title, section=group.section, rows=rows)


def _paper_rows(
    filler: Filler, facts: RowFacts, runs: Mapping[str, list[Runs]], protocol_of_group: str | None
) -> Iterator[Row]:
    """A published row with what was measured of it; further states of the encoder follow as rows of their own."""
    source = published_row(f"{filler.card.paper}/{filler.card.table}/{facts.row}")
    label, measured = facts.label or facts.row, runs.get(source.key, [])
    printed = filler.published(source, facts.protocol, metric=facts.metric)
    first = filler.measured(measured[0], facts.protocol) if measured else {}
    row = Row(
        label=label,
        cells=filler.cells(source.key, printed, first),
        encoder=measured[0].encoder if measured else source.encoder,
        key=source.key,
        quoted=sources().papers[source.quoted].name if source.quoted else "",
        otherwise=facts.protocol or "" if facts.protocol != protocol_of_group else "",
        overlap=source.overlap,
        misprint=_misprint_of(source),
        metric=facts.metric,
        traits=traits_of(filler.catalogue, _card_of(filler.catalogue, source, measured), source),
        results=measured[0].results if measured else (),
    )
    yield row
    for other in measured[1:]:
        cells = filler.cells("", {}, filler.measured(other, facts.protocol))
        yield replace(
            row,
            label=f"{label} [{other.mark or other.encoder}]",
            cells=cells,
            key="",
            quoted="",
            misprint="",
            results=other.results,
        )


def _card_of(catalogue: Catalogue, source: PublishedRow, measured: Sequence[Runs]) -> EncoderCard | None:
    if measured:
        return measured[0].card
    return catalogue.encoder(source.encoder) if source.encoder in catalogue.paths("baselines") else None


def _misprint_of(row: PublishedRow) -> str:
    found = misprints().get((row.key, ""))
    return found.reason if found else ""


def _with_distances(groups: Sequence[Group], key: str, column: str) -> list[Group]:
    """The same groups with each row's distance to one row's number in a column."""
    aim = next((row for group in groups for row in group.rows if row.key == key), None)
    if aim is None:
        raise CardError(f"[delta]: 'row' names '{key}', which is not a row of the table")
    return [replace(group, rows=[_with_distance(row, aim, column) for row in group.rows]) for group in groups]


def _with_distance(row: Row, aim: Row, column: str) -> Row:
    ours, theirs = row.cell(column), aim.cell(column)
    # Scores of different protocols have no distance.
    if row is aim or row.otherwise != aim.otherwise:
        return row
    cell = TableCell(
        measured=_distance(ours.measured, theirs.measured), published=_distance(ours.published, theirs.published)
    )
    return replace(row, cells={**row.cells, DELTA: cell})


def _distance(ours: Number | None, theirs: Number | None) -> Number | None:
    return Number(ours.value - theirs.value) if ours and theirs else None
