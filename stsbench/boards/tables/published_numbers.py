"""The published numbers of a board's encoders, chosen and merged from the rows of papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stsbench.boards.published.rows import PublishedRow, read_published_rows
from stsbench.boards.tables.columns import Numbers, TableFiller
from stsbench.boards.tables.table import AVERAGE, EXACT
from stsbench.core.cards import EncoderCard


class PublishedNumbers(NamedTuple):
    """A published row, and its numbers by column key; some may be of other rows of its encoder."""

    row: PublishedRow
    numbers: Numbers


def merge_published_rows(filler: TableFiller) -> dict[str, PublishedNumbers]:
    """Return the published numbers that fit a board of ours, one row for each encoder.

    Several papers may have numbers of one encoder, and papers quote each other: of all rows that
    fit, one row for each encoder is made. Rows with a number that was read off a figure, or not
    found in the paper, are omitted. So are encoders with numbers that were taken over from the
    same paper as the equal numbers of an earlier one.

    Args:
        filler: The columns of the board.

    Returns:
        Name of the encoder, or ``paper/row`` for a row that names no encoder -> its row and
        numbers.
    """
    # ``whole``: whether a published row of the board needs numbers in all columns.
    needs_all_columns = filler.card.board is None or filler.card.board.whole
    all_rows = read_published_rows().values()
    verified_rows = [
        row
        for row in all_rows
        if all(score.verified not in ("figure", "no") for score in row.scores)
    ]
    # A row that quotes one of these papers repeats numbers of which we have the original.
    original_papers = {row.paper for row in all_rows if not row.quoted}
    candidates: dict[str, list[PublishedNumbers]] = {}
    # Quoting rows come last, so that their originals are candidates already.
    for row in sorted(verified_rows, key=lambda row: row.quoted in original_papers):
        numbers = filler.published_numbers(row, lenient=True)
        if row.quoted in original_papers:
            earlier_rows = candidates.get(row.encoder, [])
            is_used = _is_only_complete_row(filler, numbers, earlier_rows)
        else:
            is_used = _is_worth_a_row(filler, row, numbers, needs_all_columns=needs_all_columns)
        if is_used:
            name = row.encoder or f"{row.paper}/{row.row}"
            candidates.setdefault(name, []).append(PublishedNumbers(row, numbers))
    published_by_encoder = {
        name: merge_rows(filler, name, published, needs_all_columns=needs_all_columns)
        for name, published in candidates.items()
    }
    # Two papers may take the same numbers over from a third.
    name_by_numbers: dict[tuple[object, ...], str] = {}
    for name, published in published_by_encoder.items():
        values = tuple(published.numbers[key].value for key in sorted(published.numbers))
        # Other rows may have equal numbers by chance, above all on a board of one column.
        source = published.row.quoted or name
        name_by_numbers.setdefault((source, *values), name)
    return {name: published_by_encoder[name] for name in name_by_numbers.values()}


def _is_only_complete_row(
    filler: TableFiller, numbers: Numbers, earlier: Sequence[PublishedNumbers]
) -> bool:
    """Return whether a row that quotes another paper is the first with numbers for all columns.

    Such a row is of use if the quoted paper printed only the average, for example.

    Args:
        filler: The columns of the board.
        numbers: Key of a column -> number of the quoting row.
        earlier: The rows of the same encoder before it. If there are none, the result is False.
    """
    column_keys = {column.key for column in filler.task_columns}
    if not earlier or not column_keys <= numbers.keys():
        return False
    return not any(column_keys <= published.numbers.keys() for published in earlier)


def _is_worth_a_row(
    filler: TableFiller, row: PublishedRow, numbers: Numbers, *, needs_all_columns: bool
) -> bool:
    """Return whether a published row has enough numbers to be shown on a board.

    Args:
        filler: The columns of the board.
        row: The published row.
        numbers: Key of a column -> number of the row.
        needs_all_columns: Whether a row needs a number in all columns; otherwise one is enough. In
            either case, a row that names its encoder and has an average is shown.
    """
    column_keys = {column.key for column in filler.task_columns}
    if column_keys <= numbers.keys():
        return True
    has_any_column = bool(column_keys & numbers.keys())
    if has_any_column and not needs_all_columns:
        return True
    return bool(row.encoder) and AVERAGE in numbers


def merge_rows(
    filler: TableFiller,
    encoder: str,
    candidates: Sequence[PublishedNumbers],
    *,
    needs_all_columns: bool,
) -> PublishedNumbers:
    """Make one row of the published rows of an encoder.

    There are two ways. If a row needs numbers in all columns, the row with most numbers is taken.
    Otherwise a row with an average is preferred, and the numbers of tasks that it lacks are taken
    from the other rows. Of equally good rows, the one that the encoder's card names first is taken.

    Args:
        filler: The columns of the board.
        encoder: The name of the encoder.
        candidates: Its rows, at least one, each with its numbers by column key.
        needs_all_columns: Whether a row of the board needs numbers in all columns.

    Returns:
        The preferred row, and its numbers.
    """
    card = find_card(filler, encoder)
    # ``published`` are the keys of published rows that are about the encoder.
    rank_by_key = {key: rank for rank, key in enumerate(card.published if card else ())}

    def sort_key(candidate: PublishedNumbers) -> tuple[int, int]:
        n_numbers = len(candidate.numbers)
        preference = n_numbers if needs_all_columns else int(AVERAGE in candidate.numbers)
        rank_in_card = rank_by_key.get(candidate.row.key, len(rank_by_key))
        return -preference, rank_in_card

    preferred, *others = sorted(candidates, key=sort_key)
    if needs_all_columns:
        return preferred
    numbers = preferred.numbers
    for other in others:
        # The average of another row is not the average of this row's numbers.
        task_numbers = {
            key: number for key, number in other.numbers.items() if key not in (AVERAGE, EXACT)
        }
        # Numbers that are there already come first.
        numbers = task_numbers | numbers
    return PublishedNumbers(preferred.row, numbers)


def find_card(filler: TableFiller, encoder: str) -> EncoderCard | None:
    """Return the card of an encoder; None if it has none."""
    if encoder not in filler.catalogue.paths("baselines"):
        return None
    return filler.catalogue.encoder(encoder)
