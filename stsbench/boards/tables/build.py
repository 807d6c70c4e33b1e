"""A declared table with published numbers, measured ones and signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stsbench.boards.published.rows import TableCard, read_sources, read_table_card
from stsbench.boards.tables.column_scores import column_part, select_column_results
from stsbench.boards.tables.columns import TableFiller
from stsbench.boards.tables.rows import AddedRow, describe_clean_scores, make_groups
from stsbench.boards.tables.table import (
    AVERAGE,
    DELTA,
    OVERLAP_SYMBOLS,
    Group,
    Row,
    Table,
    TableCell,
    subtract,
)
from stsbench.boards.tables.uncertainty import add_intervals
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError
from stsbench.results.groups import EncoderResults, group_by_encoder
from stsbench.results.record import Result
from stsbench.results.signature import (
    ComparedPart,
    format_compared,
    format_each_protocol,
    format_shown,
    join_parts,
    signature_id,
)

if TYPE_CHECKING:
    from stsbench.significance.rows import ProgressCallback


def build_table(
    name: str,
    results: Sequence[Result] = (),
    catalogue: Catalogue | None = None,
    card: TableCard | None = None,
    added_rows: Sequence[AddedRow] = (),
    progress: ProgressCallback | None = None,
    *,
    mean_intervals: bool = True,
) -> Table:
    """Build a table of published numbers as printed, with the numbers of results beside them.

    If the card asks for it, a column has the difference of each row to one published row.

    Args:
        name: The name of a table, or of its TOML file.
        results: The results to show; those that fit no cell are omitted.
        catalogue: The cards of tasks, suites and encoders.
        card: The table's card; by default that of the name.
        added_rows: Encoders that have rows even if the card does not name them.
        progress: Called as the intervals of rows are computed.
        mean_intervals: Compute 95% intervals of means over seeds and tasks, and add a note on rows
            whose results lack the per-item columns for it. Scores of one result keep theirs.

    Raises:
        UnknownName: There is no such table.
        CardError: The card is not valid.
        ProtocolError: The table would mix protocols without saying so.
    """
    card = card or read_table_card(name)
    catalogue = catalogue or Catalogue()
    filler = TableFiller.from_card(card, catalogue)
    encoder_groups = group_by_encoder(results, catalogue)
    groups = make_groups(filler, results, encoder_groups, added_rows)
    table = Table(
        name=name,
        title=card.title,
        # A board is a table of ours, which is of no paper.
        paper=None if card.board else read_sources().papers[card.paper],
        paper_number=format_table_number(card),
        columns=filler.columns,
        groups=groups,
        notes=[*filter(None, [card.note]), *_describe_superseded(filler, catalogue)],
        measured_notes=list(_describe_measured_rows(filler, groups, encoder_groups)),
        average_terms=filler.average_terms,
    )
    if card.delta:
        # The key of the published row that is subtracted from the others.
        key = f"{card.paper}/{card.table}/{card.delta.row}"
        table = _add_differences(table, key, column_key=card.delta.column or AVERAGE)
    if results and mean_intervals:
        table = add_intervals(table, progress)
    # A signature is a text that names how measured scores were made.
    return _add_signatures(table) if results else table


def _describe_measured_rows(
    filler: TableFiller, groups: Sequence[Group], encoder_groups: Sequence[EncoderResults]
) -> Iterator[str]:
    """Yield the notes on the measured rows of a table.

    They are on scores that exclude the items of a training text, if the table is a board of ours,
    and on symbols of overlap, which say that an encoder was trained on texts of the tests.

    Args:
        filler: The columns of the table, and its card.
        groups: The groups of rows.
        encoder_groups: The results of the measured encoders.
    """
    if filler.card.board:
        yield from describe_clean_scores(filler, encoder_groups)
    rows = [row for group in groups for row in group.rows]
    # ``source`` is the paper that a published row of a board is from; empty for other rows.
    has_published = any(row.source for row in rows)
    # OVERLAP_SYMBOLS: ``text`` or ``gold``, what of the tests an encoder was trained on -> symbol.
    has_overlap = any(row.overlap in OVERLAP_SYMBOLS for row in rows)
    # Published rows get no symbol of overlap in a table without STS tests, because their overlap
    # with other tests is unknown. A missing symbol must not be read as "no overlap".
    if has_published and has_overlap and not filler.has_sts_tests:
        yield (
            f"{' and '.join(OVERLAP_SYMBOLS.values())} are on measured rows alone: "
            "for published rows, only the overlap with tests of STS is known"
        )


def _add_signatures(table: Table) -> Table:
    """Return the table with signatures, texts that name how its measured scores were made.

    The signature of a column, or of the table, names what two scores must have in common to be
    compared (a compared part, such as the protocol). That of a row also names how its scores were
    made in other respects. The signatures of the table are notes below it, one for each protocol.
    """
    all_parts: list[ComparedPart] = []
    # Key of a column -> the compared part of each score in it that is of its own protocol.
    parts_by_column: dict[str, list[ComparedPart]] = {}
    # Python's id of a row -> the row with its signature.
    new_rows: dict[int, Row] = {}
    for row in table.rows():
        row_parts: list[ComparedPart] = []
        used_results: list[Result] = []
        for column in table.columns:
            # Columns of averages have no spec; those not in points have no scores.
            has_score = row.cell(column.key).measured is not None and column.in_points
            # Which scores are shown: those of the column, but by the row's protocol if it has one.
            spec = row.spec(column)
            if spec is None or not has_score:
                continue
            column_results = select_column_results(row.results, spec)
            parts = [column_part(result, spec) for result in column_results]
            if row.protocol is None:
                parts_by_column.setdefault(column.key, []).extend(parts)
            row_parts += parts
            used_results += column_results
        all_parts += row_parts
        if used_results:
            signature = join_parts(format_compared(row_parts), format_shown(used_results))
            new_rows[id(row)] = replace(row, signature=signature)
    columns = [
        replace(column, signature=format_compared(parts_by_column.get(column.key, [])))
        for column in table.columns
    ]
    signatures = format_each_protocol(all_parts)
    table = replace(
        table.map_rows(lambda row: new_rows.get(id(row), row)),
        columns=columns,
        signatures=signatures,
        signature_id=signature_id(all_parts) if len(signatures) == 1 else "",
    )
    return replace(table, measured_notes=[*table.measured_notes, *signatures])


def _describe_superseded(filler: TableFiller, catalogue: Catalogue) -> Iterator[str]:
    """Yield a note on each task of a table that a later version of the task has replaced.

    Args:
        filler: The columns of the table.
        catalogue: The cards of tasks.
    """
    # The spec of a column says which scores it takes.
    tasks = dict.fromkeys(column.spec.task for column in filler.task_columns if column.spec)
    for task in tasks:
        # Tables of papers have columns that are no task of ours.
        if task not in catalogue.paths("tasks"):
            continue
        card = catalogue.task(task)
        if card.superseded_by:
            later_card = catalogue.task(card.superseded_by)
            yield (
                f"{card.name} is version {card.version}; {later_card.name} "
                f"({card.superseded_by}) replaces it, scores differ"
            )


def format_table_number(card: TableCard) -> str:
    """Return how a paper calls its table, from the id that the table has here.

    ``table-e.1`` becomes ``Table E.1``. An id without a number becomes words: ``appendix-results``
    becomes ``Appendix results``.

    Args:
        card: The card of the table; its ``table`` is the id.
    """
    word, _, number = card.table.partition("-")
    if not any(map(str.isdigit, number)):
        return card.table.replace("-", " ").capitalize()
    return f"{word.capitalize()} {number.upper()}"


def _add_differences(table: Table, row_key: str, column_key: str) -> Table:
    """Fill the column of differences of a table: each row's number minus that of one row.

    Rows of another protocol, the baseline (the share of the most frequent class, which is no
    encoder's) and the row that is subtracted get no difference.

    Args:
        table: The table.
        row_key: The ``published_key`` of the row that is subtracted from the others.
        column_key: The key of the column whose numbers are subtracted.

    Raises:
        CardError: The table has no such row.
    """
    base_row = next((row for row in table.rows() if row.published_key == row_key), None)
    if base_row is None:
        raise CardError(f"[delta]: 'row' names '{row_key}', which is not a row of the table")
    base_cell = base_row.cell(column_key)

    def add_difference(row: Row) -> Row:
        """Return a row with its difference from ``base_row``, in the column of differences.

        ``column_key`` is the column whose numbers are subtracted, and ``base_cell`` the cell of
        ``base_row`` in it. Measured and published numbers are subtracted each from their own kind.
        Some rows have no difference, and are returned unchanged.
        """
        # Scores of different protocols cannot be subtracted.
        is_comparable = row.protocol == base_row.protocol
        if row is base_row or row.is_baseline or not is_comparable:
            return row
        cell = row.cell(column_key)
        # A difference is None if either number is missing.
        difference = TableCell(
            measured=subtract(cell.measured, base_cell.measured),
            published=subtract(cell.published, base_cell.published),
        )
        return replace(row, cells={**row.cells, DELTA: difference})

    return table.map_rows(add_difference)
