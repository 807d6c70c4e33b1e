"""The rows of tables: encoders that are measured, published or added by the user."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stsbench.boards.published.rows import (
    GroupFacts,
    PublishedRow,
    RowFacts,
    list_rows,
    look_up_published_row,
    read_misprints,
    read_published_rows,
    read_sources,
)
from stsbench.boards.tables.columns import Numbers, TableFiller, make_averaged_numbers
from stsbench.boards.tables.table import (
    AVERAGE,
    EXACT,
    Group,
    Row,
    Table,
    TableCell,
    TableColumn,
)
from stsbench.boards.tables.traits import read_traits
from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, Remedy, UnknownName
from stsbench.core.wording import format_some
from stsbench.results.groups import EncoderResults
from stsbench.results.record import Result, score_name

SECTIONS = {
    "none": "Unsupervised",
    "nli": "Trained on NLI labels",
    "sts": "Trained on STS scores",
    "pairs": "Trained on text pairs",
    "translation": "Trained on translations",
    "": "Others",
}
"""The titles of a board's sections, by the supervision of their encoders."""


class PublishedNumbers(NamedTuple):
    """The published numbers of an encoder, which further rows may have completed."""

    row: PublishedRow
    numbers: Numbers


def make_groups(
    filler: TableFiller,
    results: Sequence[Result],
    encoder_groups: Sequence[EncoderResults],
    added_rows: Sequence[AddedRow],
) -> list[Group]:
    """Return the groups of a table that have a row.

    These are the groups of a board or a paper, the added rows, the baseline and, on a board, a
    group for each training text that scores exclude.
    """
    board = filler.card.board
    if board:
        groups = _board_groups(filler, encoder_groups, with_published=board.published)
    else:
        groups = list(_paper_groups(filler, encoder_groups))
    groups = _with_added_rows(filler, groups, encoder_groups, added_rows)
    groups.append(_baseline_group(results, filler))
    if board:
        groups += _clean_groups(filler, encoder_groups)
    return [group for group in groups if group.rows]


def _group_by_published_row(
    filler: TableFiller, encoder_groups: Sequence[EncoderResults]
) -> Mapping[str, list[EncoderResults]]:
    """Return the measured encoders by the key of the published row that their card names.

    A card may name several rows, and several encoders one row.

    Raises:
        CardError: A card names a row that does not exist.
    """
    encoders_by_row: dict[str, list[EncoderResults]] = {}
    for encoder_group in encoder_groups:
        for key in encoder_group.card.published if encoder_group.card else []:
            try:
                row = look_up_published_row(key)
            except UnknownName as error:
                path = filler.catalogue.encoder_path(encoder_group.encoder)
                raise CardError(f"{path}: key 'published': {error}") from error
            encoders_by_row.setdefault(row.key, []).append(encoder_group)
    return encoders_by_row


def _paper_groups(filler: TableFiller, encoder_groups: Sequence[EncoderResults]) -> Iterator[Group]:
    """Yield the groups of a paper's table, with the measured numbers beside the published."""
    encoders_by_row = _group_by_published_row(filler, encoder_groups)
    for group in filler.card.groups:
        rows: list[Row] = []
        for facts in list_rows(group):
            key = f"{filler.card.paper}/{filler.card.table}/{facts.row}"
            published = look_up_published_row(key)
            rows += _paper_rows(
                filler,
                group,
                facts,
                published,
                encoder_groups=encoders_by_row.get(published.key, []),
            )
        yield Group(title=group.title, section=group.section, rows=rows)


def _paper_rows(
    filler: TableFiller,
    group: GroupFacts,
    facts: RowFacts,
    published: PublishedRow,
    encoder_groups: Sequence[EncoderResults],
) -> Iterator[Row]:
    """Yield a row of a paper, and a row for each further encoder or state that measured it.

    Args:
        filler: The columns of the table.
        group: The group of the row.
        facts: The row as the table's card lists it.
        published: The row as published.
        encoder_groups: The encoders that measured it; the first one shares its row.
    """
    label = facts.label or facts.row
    # A protocol that the card names for the whole group needs no symbol at each of its rows.
    other_protocol = ""
    if facts.protocol and facts.protocol != group.protocol:
        other_protocol = facts.protocol
    first_encoder = encoder_groups[0] if encoder_groups else None
    numbers = filler.published_numbers(published, facts.protocol, metric=facts.metric)
    card = first_encoder.card if first_encoder else find_card(filler, published.encoder)
    misprint = read_misprints().get((published.key, ""))
    row = make_encoder_row(
        filler,
        label,
        first_encoder,
        PublishedNumbers(published, numbers),
        facts.protocol,
        encoder=first_encoder.encoder if first_encoder else published.encoder,
        quoted_from=read_sources().papers[published.quoted].name if published.quoted else "",
        other_protocol=other_protocol,
        overlap=filler.row_overlap(published),
        misprint=misprint.reason if misprint else "",
        metric=facts.metric,
        traits=read_traits(filler.catalogue, card, published),
    )
    yield row
    row_without_published = replace(row, published_key="", quoted_from="", misprint="")
    for encoder_group in encoder_groups[1:]:
        measured = filler.measured_numbers(encoder_group, facts.protocol)
        yield replace(
            row_without_published,
            label=f"{label} [{encoder_group.state_tag or encoder_group.encoder}]",
            cells=filler.make_cells(published={}, measured=measured),
            results=encoder_group.results,
        )


def _board_groups(
    filler: TableFiller, encoder_groups: Sequence[EncoderResults], *, with_published: bool
) -> list[Group]:
    """Return the groups of a board, each sorted by average.

    Args:
        filler: The columns of the board.
        encoder_groups: The measured encoders.
        with_published: Add published rows, and return a group for each kind of supervision, which
            may be empty. Otherwise there is a single group.
    """
    rows = list(_board_rows(filler, encoder_groups, with_published=with_published))
    if not with_published:
        return [Group(rows=sorted(rows, key=average_sort_key))]
    label_counts = Counter(row.label for row in rows)
    rows_by_supervision: dict[str, list[Row]] = {key: [] for key in SECTIONS}
    for row in rows:
        # The paper distinguishes rows of the same label.
        if label_counts[row.label] > 1 and row.source:
            row = replace(row, label=f"{row.label} ({row.source})")
        rows_by_supervision[row.traits.supervision].append(row)
    return [
        Group(
            section=SECTIONS[supervision],
            rows=sorted(section_rows, key=_first_number_key),
        )
        for supervision, section_rows in rows_by_supervision.items()
    ]


def _clean_groups(filler: TableFiller, encoder_groups: Sequence[EncoderResults]) -> Iterator[Group]:
    """Yield a group for each training text that results have clean scores for.

    It has a row for each encoder with such scores: those of the items that the text does not hold.
    The rows have no results, so that they get neither intervals nor ranks.
    """
    results = [result for encoder_group in encoder_groups for result in encoder_group.results]
    text_names = dict.fromkeys(clean.name for result in results for clean in result.clean)
    for name in text_names:
        rows = []
        for encoder_group in encoder_groups:
            clean_results = [
                clean_result
                for result in encoder_group.results
                for clean_result in _clean_results(result, name)
            ]
            if clean_results:
                clean_group = encoder_group._replace(results=clean_results)
                rows.append(make_encoder_row(filler, clean_group.name, clean_group, results=[]))
        measured_rows = [row for row in rows if row.is_measured]
        yield Group(
            section=name[0].upper() + name[1:], rows=sorted(measured_rows, key=average_sort_key)
        )


def describe_clean_scores(
    filler: TableFiller, encoder_groups: Sequence[EncoderResults]
) -> Iterator[str]:
    """Yield a note on each training text that scores exclude: how many items each column keeps."""
    heads_by_task = {
        column.spec.task: column.head for column in filler.task_columns if column.spec is not None
    }
    # By the name of the training text, then by the head of the column.
    counts_by_name: dict[str, dict[str, str]] = {}
    results = [result for encoder_group in encoder_groups for result in encoder_group.results]
    for result in results:
        if result.task not in heads_by_task:
            continue
        for clean in result.clean:
            subsets = f" (none of {', '.join(clean.left_out)})" if clean.left_out else ""
            counts_by_head = counts_by_name.setdefault(clean.name, {})
            counts_by_head[heads_by_task[result.task]] = f"{clean.n:,} of {result.n:,}{subsets}"
    for name, counts_by_head in counts_by_name.items():
        counts = ", ".join(f"{head} {count}" for head, count in counts_by_head.items())
        yield f"{name}, items left: {counts}"


def _clean_results(result: Result, name: str) -> Iterator[Result]:
    """Yield a copy of a result whose score is the clean one for a training text, if it has that.

    Args:
        result: The result, with a clean score for each training text that its run excluded.
        name: The name of the training text.
    """
    for clean in result.clean:
        if clean.name == name and clean.score is not None and clean.interval is not None:
            yield msgspec.structs.replace(
                result,
                score=clean.score,
                scores={score_name(result.protocol): clean.score},
                interval=clean.interval,
            )


def find_card(filler: TableFiller, encoder: str) -> EncoderCard | None:
    """Return the card of an encoder; None if it has none."""
    if encoder not in filler.catalogue.paths("baselines"):
        return None
    return filler.catalogue.encoder(encoder)


def make_encoder_row(
    filler: TableFiller,
    label: str,
    encoder_group: EncoderResults | None,
    published: PublishedNumbers | None = None,
    protocol: str | None = None,
    **fields: Any,  # noqa: ANN401 - fields of the row
) -> Row:
    """Return the row of an encoder, with its measured and its published numbers.

    Args:
        filler: The columns of the table.
        label: The name to print.
        encoder_group: The encoder's results; None if it is not measured.
        published: Its published numbers; None if there are none.
        protocol: The protocol of a row that is not scored as its columns say.
        fields: Values of further fields of the row; they replace those that follow from the
            results and the published numbers.
    """
    row_fields: dict[str, Any] = {}
    if published is not None:
        row_fields["published_key"] = published.row.key
        row_fields["source"] = read_sources().papers[published.row.paper].name
        row_fields["overlap"] = filler.row_overlap(published.row)
    measured: Numbers = {}
    if encoder_group is not None:
        # The overlap of the results replaces that of the published row.
        measured = filler.measured_numbers(encoder_group, protocol)
        row_fields["encoder"] = encoder_group.encoder
        row_fields["overlap"] = encoder_group.overlap
        row_fields["results"] = encoder_group.results
        row_fields["traits"] = read_traits(filler.catalogue, encoder_group.card)
    row_fields |= fields
    cells = filler.make_cells(published.numbers if published else {}, measured)
    return Row(label=label, cells=cells, **row_fields)


def _board_rows(
    filler: TableFiller, encoder_groups: Sequence[EncoderResults], *, with_published: bool
) -> Iterator[Row]:
    """Yield the rows of a board: the measured encoders, then those that are only published.

    The row of a measured encoder with a card has its published numbers too.

    Args:
        filler: The columns of the board.
        encoder_groups: The measured encoders; one without a score in any column gets no row.
        with_published: Add published numbers. Rows then have the names of cards, as papers print
            them, in place of those in results.
    """
    published_by_encoder = _published_by_encoder(filler) if with_published else {}
    measured_encoders: set[str] = set()
    for encoder_group in encoder_groups:
        card = encoder_group.card
        label = encoder_group.name
        if card and with_published:
            tag = encoder_group.state_tag
            label = f"{card.name} [{tag}]" if tag else card.name
        published = published_by_encoder.get(encoder_group.encoder) if card else None
        row = make_encoder_row(filler, label, encoder_group, published)
        if row.is_measured:
            if card:
                measured_encoders.add(encoder_group.encoder)
            yield row
    for encoder, published in published_by_encoder.items():
        if encoder not in measured_encoders:
            yield _unmeasured_row(filler, encoder, published)


def _unmeasured_row(filler: TableFiller, encoder: str, published: PublishedNumbers) -> Row:
    """Return the row of an encoder that is only published, with its card's or corrected name."""
    card = find_card(filler, encoder)
    label = published.row.row
    misprint = read_misprints().get((published.row.key, ""))
    if misprint and misprint.kind == "label" and misprint.expected:
        label = misprint.expected
    return make_encoder_row(
        filler,
        label=card.name if card else label,
        encoder_group=None,
        published=published,
        encoder=encoder if card else "",
        traits=read_traits(filler.catalogue, card, published.row),
    )


def _published_by_encoder(filler: TableFiller) -> dict[str, PublishedNumbers]:
    """Return the published numbers that fit a board, by encoder, or by paper and row without one.

    Rows with a number that was read off a figure, or not found in the paper, are omitted, and so
    are rows with the same numbers as an earlier one.
    """
    needs_all_columns = filler.card.board is None or filler.card.board.whole
    rows = [
        row
        for row in read_published_rows().values()
        if all(score.verified not in ("figure", "no") for score in row.scores)
    ]
    # A row that quotes one of these papers repeats numbers of which we have the original.
    original_papers = {row.paper for row in read_published_rows().values() if not row.quoted}
    candidates: dict[str, list[PublishedNumbers]] = {}
    # Quoting rows come last, so that their originals are candidates already.
    for row in sorted(rows, key=lambda row: row.quoted in original_papers):
        numbers = filler.published_numbers(row, lenient=True)
        if row.quoted in original_papers:
            is_used = _is_only_complete_row(filler, numbers, candidates.get(row.encoder, []))
        else:
            is_used = _is_worth_a_row(filler, row, numbers, needs_all_columns=needs_all_columns)
        if is_used:
            name = row.encoder or f"{row.paper}/{row.row}"
            candidates.setdefault(name, []).append(PublishedNumbers(row, numbers))
    published_by_encoder = {
        name: _merge_rows(filler, name, published, needs_all_columns=needs_all_columns)
        for name, published in candidates.items()
    }
    # Two papers may take the same numbers over from a third.
    name_by_numbers: dict[tuple[float, ...], str] = {}
    for name, published in published_by_encoder.items():
        values = tuple(published.numbers[key].value for key in sorted(published.numbers))
        name_by_numbers.setdefault(values, name)
    return {name: published_by_encoder[name] for name in name_by_numbers.values()}


def _is_only_complete_row(
    filler: TableFiller, numbers: Numbers, earlier: Sequence[PublishedNumbers]
) -> bool:
    """Return whether a quoting row has numbers for all columns of a board, and no earlier row has.

    The quoted paper may have printed the average without the tasks, for example.

    Args:
        filler: The columns of the board.
        numbers: The numbers of the quoting row.
        earlier: The rows of the same encoder before it; without any, the row is not used.
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
        numbers: Its numbers by column key.
        needs_all_columns: One number is not enough: all columns are needed, or the average if the
            row's encoder has a card.
    """
    column_keys = {column.key for column in filler.task_columns}
    if column_keys <= numbers.keys():
        return True
    has_any_column = bool(column_keys & numbers.keys())
    if has_any_column and not needs_all_columns:
        return True
    # The average alone is enough for an encoder with a card.
    return bool(row.encoder) and AVERAGE in numbers


def _merge_rows(
    filler: TableFiller,
    encoder: str,
    candidates: Sequence[PublishedNumbers],
    *,
    needs_all_columns: bool,
) -> PublishedNumbers:
    """Merge the published rows of one encoder.

    Args:
        filler: The columns of the board.
        encoder: The name of the encoder.
        candidates: Its rows, at least one.
        needs_all_columns: Return the row with most numbers as it is. Otherwise a row with an
            average is preferred, and the numbers that it lacks are taken from the further rows,
            except for averages.

    Returns:
        The preferred row and its numbers; of equally full rows, the one that the encoder's card
        names first is preferred.
    """
    card = find_card(filler, encoder)
    rank_by_key = {key: rank for rank, key in enumerate(card.published if card else ())}

    def sort_key(published: PublishedNumbers) -> tuple[int, int]:
        if needs_all_columns:
            fullness = len(published.numbers)
        else:
            fullness = int(AVERAGE in published.numbers)
        return -fullness, rank_by_key.get(published.row.key, len(rank_by_key))

    fullest, *further = sorted(candidates, key=sort_key)
    if needs_all_columns:
        return fullest
    numbers = fullest.numbers
    for published in further:
        # An average of cells of another row would not be this row's.
        fillings = {
            key: number for key, number in published.numbers.items() if key not in (AVERAGE, EXACT)
        }
        numbers = fillings | numbers
    return PublishedNumbers(fullest.row, numbers)


def average_sort_key(row: Row) -> tuple[bool, float, str]:
    """Return the key that sorts rows by their average, best first, and rows without one last."""
    average = row.cell(AVERAGE).measured or row.cell(AVERAGE).published
    return average is None, -(average.value if average else 0.0), row.label


def _first_number_key(row: Row) -> tuple[int, float, str]:
    """Return the key that sorts rows by the first column that they fill, the average before others.

    Rows with an average come first, then those with a number in the first column, and so on; within
    a column, the highest number comes first. So numbers of two columns are never compared.
    """
    keys = [AVERAGE, *(key for key in row.cells if key != AVERAGE)]
    for column_index, key in enumerate(keys):
        cell = row.cell(key)
        number = cell.measured or cell.published
        if number:
            return column_index, -number.value, row.label
    return len(keys), 0.0, row.label


def _baseline_group(results: Sequence[Result], filler: TableFiller) -> Group:
    """Return a group of one row: the share of the most frequent class, in columns of accuracies.

    In a group of its own it is never ranked with encoders. The group is empty if no column has
    such a share.
    """
    share_by_split = {
        (result.task, result.split): 100 * result.scores["majority"]
        for result in results
        if "majority" in result.scores
    }
    shares = {}
    for column in filler.task_columns:
        spec = column.spec
        if spec and spec.metric == "accuracy" and (spec.task, spec.split) in share_by_split:
            shares[column.key] = share_by_split[spec.task, spec.split]
    numbers = make_averaged_numbers(filler.average_terms, shares)
    if not numbers:
        return Group(section="Baseline", rows=[])
    cells = {key: TableCell(measured=number) for key, number in numbers.items()}
    return Group(
        section="Baseline", rows=[Row(label="majority class", cells=cells, is_baseline=True)]
    )


class LabelledResults(NamedTuple):
    """An encoder's results, and the label of its row; empty for the encoder's own name."""

    encoder_group: EncoderResults
    label: str


class AddedRow(NamedTuple):
    """An encoder that a user adds to a table."""

    name: str
    """The name that the user typed."""
    label: str
    """The label to print; empty for the encoder's own name."""
    results: Sequence[Result]

    def has_any_of(self, results: Sequence[Result]) -> bool:
        """Return whether any of these is one of its results."""
        return bool(set(map(_result_identity, self.results)) & set(map(_result_identity, results)))

    def select_groups(self, encoder_groups: Sequence[EncoderResults]) -> Iterator[LabelledResults]:
        """Yield the groups that hold its results, several if the encoder has several states."""
        groups = [group for group in encoder_groups if self.has_any_of(group.results)]
        for group in groups:
            label = self.label
            if label and len(groups) > 1 and group.state_tag:
                label = f"{label} [{group.state_tag}]"
            yield LabelledResults(group, label)


def _result_identity(result: Result) -> Path | int:
    """Return a result's file, which may be read several times; without one, its identity."""
    return result.path or id(result)


def _with_added_rows(
    filler: TableFiller,
    groups: list[Group],
    encoder_groups: Sequence[EncoderResults],
    added_rows: Sequence[AddedRow],
) -> list[Group]:
    """Return the groups with a row for each added encoder, marked as added.

    A board has the row already: it gets the user's label, if there is one. A paper's table gets one
    more group below its own, so that best and second best stay the paper's.

    Args:
        filler: The columns of the table.
        groups: The groups of the table.
        encoder_groups: The measured encoders.
        added_rows: The encoders that the user adds.
    """
    added = [labelled for row in added_rows for labelled in row.select_groups(encoder_groups)]
    if filler.card.board is None:
        rows = [
            make_encoder_row(
                filler,
                label=label or encoder_group.name,
                encoder_group=encoder_group,
                is_added=True,
            )
            for encoder_group, label in added
        ]
        return [*groups, Group(title="Measured here", rows=rows)]
    # A row has the list of its encoder's results, so Python's id of that list finds it.
    label_by_results_id = {id(encoder_group.results): label for encoder_group, label in added}

    def relabel(row: Row) -> Row:
        label = label_by_results_id.get(id(row.results))
        if label is None:
            return row
        return replace(row, label=label or row.label, is_added=True)

    return [replace(group, rows=list(map(relabel, group.rows))) for group in groups]


def describe_gaps(
    row: Row, table: Table, catalogue: Catalogue, results_folder: str = ""
) -> Iterator[DataError]:
    """Yield a notice on each set of columns that an added row has no number for.

    Args:
        row: The added row.
        table: Its table.
        catalogue: The tasks and suites that can be scored.
        results_folder: The results folder for remedies; empty for the default one.

    Yields:
        One notice for each way of scoring that would fill columns, with its remedy; the last one,
        without a remedy, on the columns that cannot be filled. Nothing is raised.
    """
    scorable_names = {*catalogue.suites(), *catalogue.paths("tasks")}
    # The columns by protocol and split; the usual split is empty.
    columns_by_scoring: dict[tuple[str, str], list[TableColumn]] = {}
    cannot_be_scored: list[TableColumn] = []
    for column in table.columns:
        if column.kind != "task" or row.cell(column.key).measured:
            continue
        spec = column.spec
        if spec and column.in_points and spec.protocol and spec.task in scorable_names:
            split = "" if spec.published_split == "test" else spec.published_split
            columns_by_scoring.setdefault((spec.protocol, split), []).append(column)
        else:
            cannot_be_scored.append(column)
    for (protocol, split), columns in columns_by_scoring.items():
        tasks = dict.fromkeys(column.spec.task for column in columns if column.spec)
        arguments = {
            "encoder": row.encoder,
            "tasks": ",".join(tasks),
            "protocol": protocol,
            "split": split,
            "results_folder": results_folder,
        }
        remedy = Remedy("fill", {name: value for name, value in arguments.items() if value})
        heads = dict.fromkeys(column.head for column in columns)
        yield DataError(f"row '{row.label}' has no {', '.join(heads)}", remedy=remedy)
    if cannot_be_scored:
        heads = dict.fromkeys(column.head for column in cannot_be_scored)
        yield DataError(f"row '{row.label}' has no {', '.join(heads)}, which no evaluator measures")


def describe_hidden(
    table: Table, filler: TableFiller, encoder_groups: Sequence[EncoderResults]
) -> str:
    """Return a notice on measured encoders that a paper's table has numbers for, but no row.

    Returns:
        The notice; empty if there are none.
    """
    shown_results = {_result_identity(result) for row in table.rows() for result in row.results}
    hidden_names = []
    for encoder_group in encoder_groups:
        has_row = any(_result_identity(result) in shown_results for result in encoder_group.results)
        if not has_row and filler.measured_numbers(encoder_group):
            hidden_names.append(encoder_group.name)
    if not hidden_names:
        return ""
    return (
        f"results of {format_some(hidden_names)} are in no row of '{table.name}'; "
        f"`add=NAME` shows them, such as `add={shlex.quote(hidden_names[0])}`"
    )
