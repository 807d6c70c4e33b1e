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
    RowFacts,
    list_rows,
    look_up_published_row,
    read_misprints,
    read_sources,
)
from stsbench.boards.tables.columns import Numbers, TableFiller, make_averaged_numbers
from stsbench.boards.tables.published_numbers import (
    PublishedNumbers,
    find_card,
    merge_published_rows,
)
from stsbench.boards.tables.table import AVERAGE, Group, Row, Table, TableCell, TableColumn
from stsbench.boards.tables.traits import read_traits
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


def make_groups(
    filler: TableFiller,
    results: Sequence[Result],
    encoder_groups: Sequence[EncoderResults],
    added_rows: Sequence[AddedRow],
) -> list[Group]:
    """Make the groups of rows of a table; groups without a row are omitted.

    They are, in this order:

    * the groups of a board of ours, or of a paper's table;
    * below a paper's table, the encoders that the user adds;
    * the baseline, that is the share of the most frequent class;
    * on a board, a group for each training text, with scores over the test items not in that text.

    Args:
        filler: The columns of the table, and its card.
        results: All results.
        encoder_groups: The results by encoder and state.
        added_rows: The encoders that the user adds.
    """
    # None if the table is a paper's.
    board = filler.card.board
    if board:
        groups = _board_groups(filler, encoder_groups, with_published=board.published)
    else:
        groups = list(_paper_groups(filler, encoder_groups))
    groups = _with_added_rows(filler, groups, encoder_groups, added_rows)
    groups.append(_baseline_group(results, filler))
    if board:
        groups += _clean_score_groups(filler, encoder_groups)
    return [group for group in groups if group.rows]


def _group_by_published_row(
    filler: TableFiller, encoder_groups: Sequence[EncoderResults]
) -> Mapping[str, list[EncoderResults]]:
    """Find which measured encoders belong to which rows of papers' tables.

    The card of an encoder names the published rows that are about it. A card may name several rows,
    and several encoders one row.

    Args:
        filler: The columns of a table, and the cards of encoders.
        encoder_groups: The results of the measured encoders.

    Returns:
        ``paper/table/row`` -> the results of its encoders.

    Raises:
        CardError: A card names a row that does not exist.
    """
    encoders_by_row: dict[str, list[EncoderResults]] = {}
    for encoder_group in encoder_groups:
        row_keys = encoder_group.card.published if encoder_group.card else []
        for key in row_keys:
            try:
                row = look_up_published_row(key)
            except UnknownName as error:
                path = filler.catalogue.encoder_path(encoder_group.encoder)
                raise CardError(f"{path}: key 'published': {error}") from error
            encoders_by_row.setdefault(row.key, []).append(encoder_group)
    return encoders_by_row


def _paper_groups(filler: TableFiller, encoder_groups: Sequence[EncoderResults]) -> Iterator[Group]:
    """Yield the groups of rows of a paper's table, with measured numbers beside published ones.

    Args:
        filler: The columns of the table, and its card, which lists its groups and rows.
        encoder_groups: The results of the measured encoders.
    """
    encoders_by_row = _group_by_published_row(filler, encoder_groups)
    for group in filler.card.groups:
        rows: list[Row] = []
        for facts in list_rows(group):
            rows += _paper_rows(filler, group, facts, encoders_by_row)
        yield Group(title=group.title, section=group.section, rows=rows)


def _paper_rows(
    filler: TableFiller,
    group: GroupFacts,
    facts: RowFacts,
    encoders_by_row: Mapping[str, Sequence[EncoderResults]],
) -> Iterator[Row]:
    """Yield a row of a paper's table, with the measured numbers of the encoder that it is about.

    If several encoders, or states of one, were measured for it, the first one shares the row, and
    each further one has a row of its own below.

    Args:
        filler: The columns of the table.
        group: The group of the row, as the table's card has it.
        facts: The row, as the table's card has it. Its protocol is the group's if it names none
            itself, and None if both are scored as the columns say.
        encoders_by_row: Key of a published row -> the results of the encoders that it is about.
    """
    published = look_up_published_row(f"{filler.card.paper}/{filler.card.table}/{facts.row}")
    encoder_groups = encoders_by_row.get(published.key, [])
    label = facts.label or facts.row
    # A row of another protocol gets a symbol, unless the card names it for the whole group.
    other_protocol = "" if facts.protocol == group.protocol else facts.protocol or ""
    first_encoder = encoder_groups[0] if encoder_groups else None
    numbers = filler.published_numbers(published, facts.protocol, metric=facts.metric)
    card = first_encoder.card if first_encoder else find_card(filler, published.encoder)
    # By row and task; a misprint of a whole row has an empty task.
    misprint = read_misprints().get((published.key, ""))
    yield make_encoder_row(
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
    for encoder_group in encoder_groups[1:]:
        yield make_encoder_row(
            filler,
            f"{label} [{encoder_group.state_tag or encoder_group.encoder}]",
            encoder_group,
            protocol=facts.protocol,
            other_protocol=other_protocol,
            metric=facts.metric,
        )


def _board_groups(
    filler: TableFiller, encoder_groups: Sequence[EncoderResults], *, with_published: bool
) -> list[Group]:
    """Return the groups of rows of a board of ours, each group sorted by average.

    Args:
        filler: The columns of the board.
        encoder_groups: The results of the measured encoders.
        with_published: Add published rows, and return a group for each kind of supervision (the
            labels that encoders were trained on), which may be empty. Otherwise there is a single
            group.
    """
    rows = list(_board_rows(filler, encoder_groups, with_published=with_published))
    if not with_published:
        return [Group(rows=sorted(rows, key=average_sort_key))]
    label_counts = Counter(row.label for row in rows)
    # SECTIONS has the titles by supervision, in the order of the groups; the last is the empty one,
    # of encoders whose supervision is not known.
    rows_by_supervision: dict[str, list[Row]] = {key: [] for key in SECTIONS}
    for row in rows:
        # The name of the paper is added to distinguish rows of the same label.
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


def _clean_score_groups(
    filler: TableFiller, encoder_groups: Sequence[EncoderResults]
) -> Iterator[Group]:
    """Yield groups of rows with clean scores, one for each training text.

    A clean score is over those test items only that are not in a training text, which an encoder
    may have seen. Its name is ``without`` and the text, such as ``without wiki1m``. A group has a
    row for each encoder with such scores. The rows have no results, so that they get neither
    intervals of their means nor ranks.

    Args:
        filler: The columns of the board.
        encoder_groups: The results of the measured encoders, with their clean scores.
    """
    results = [result for encoder_group in encoder_groups for result in encoder_group.results]
    names = dict.fromkeys(clean.name for result in results for clean in result.clean)
    for name in names:
        rows = []
        for encoder_group in encoder_groups:
            clean_results = [
                clean_result
                for result in encoder_group.results
                for clean_result in _clean_results(result, name)
            ]
            if clean_results:
                clean_group = encoder_group._replace(results=clean_results)
                row = make_encoder_row(
                    filler, clean_group.name, clean_group, results=[], clean_results=clean_results
                )
                if row.is_measured:
                    rows.append(row)
        yield Group(section=name[0].upper() + name[1:], rows=sorted(rows, key=average_sort_key))


def describe_clean_scores(
    filler: TableFiller, encoder_groups: Sequence[EncoderResults]
) -> Iterator[str]:
    """Yield notes on clean scores, those over the test items only that are not in a training text.

    There is a note for each text, such as ``without wiki1m, items left: STS12 3,000 of 3,108``.
    Subsets of a task that kept too few items for a correlation of their own are named.

    Args:
        filler: The columns of the table.
        encoder_groups: The results of the measured encoders, with their clean scores.
    """
    head_by_task = {
        column.spec.task: column.head for column in filler.task_columns if column.spec is not None
    }
    # Name of the clean scores, such as "without wiki1m" -> head of the column -> counts as text.
    counts_by_name: dict[str, dict[str, str]] = {}
    results = [result for encoder_group in encoder_groups for result in encoder_group.results]
    for result in results:
        if result.task not in head_by_task:
            continue
        for clean in result.clean:
            # The subsets without a correlation of their own.
            lost_subsets = f" (none of {', '.join(clean.left_out)})" if clean.left_out else ""
            count_by_head = counts_by_name.setdefault(clean.name, {})
            count_by_head[head_by_task[result.task]] = f"{clean.n:,} of {result.n:,}{lost_subsets}"
    for name, count_by_head in counts_by_name.items():
        counts = ", ".join(f"{head} {count}" for head, count in count_by_head.items())
        yield f"{name}, items left: {counts}"


def _clean_results(result: Result, name: str) -> Iterator[Result]:
    """Yield a copy of a result with a clean score in place of its own; nothing if it has none.

    A clean score is over the test items only that are not in a training text.

    Args:
        result: The result, with a clean score for each training text that its run excluded.
        name: The name of the clean score: ``without`` and the text, such as ``without wiki1m``.
    """
    # A clean score over too few items is None.
    for clean in result.clean:
        if clean.name == name and clean.score is not None and clean.interval is not None:
            yield msgspec.structs.replace(
                result,
                score=clean.score,
                scores={score_name(result.protocol): clean.score},
                interval=clean.interval,
            )


def make_encoder_row(
    filler: TableFiller,
    label: str,
    encoder_group: EncoderResults | None,
    published: PublishedNumbers | None = None,
    protocol: str | None = None,
    **fields: Any,  # noqa: ANN401 - fields of the row
) -> Row:
    """Make the row of a table for one encoder, with its measured and its published numbers.

    Args:
        filler: The columns of the table.
        label: The name to print.
        encoder_group: The encoder's results; None if it is not measured.
        published: Its published numbers; None if there are none.
        protocol: The protocol of a row that is not scored as its columns say; else None.
        fields: Values of further fields of the row; they replace those that follow from the
            results and the published numbers. Without a card, ``traits`` are empty.
    """
    row_fields: dict[str, Any] = {"protocol": protocol}
    if published is not None:
        row_fields["published_key"] = published.row.key
        row_fields["source"] = read_sources().papers[published.row.paper].name
        row_fields["overlap"] = filler.row_overlap(published.row)
    measured: Numbers = {}
    if encoder_group is not None:
        # Overlap is whether the encoder was trained on the tests. What the results say of it
        # replaces what the paper says.
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
    """Yield the rows of a board of ours: measured encoders, then those that are only published.

    The row of a measured encoder with a card has its published numbers too.

    Args:
        filler: The columns of the board.
        encoder_groups: The results of the measured encoders. One without a score in any column
            gets no row.
        with_published: Add published numbers. Rows then have the names of cards, as papers print
            them, in place of those in results.
    """
    published_by_encoder = merge_published_rows(filler) if with_published else {}
    measured_encoders: set[str] = set()
    for encoder_group in encoder_groups:
        card = encoder_group.card
        label = encoder_group.name
        if card and with_published:
            # The label, with the tag of the encoder's state if it has several.
            label = encoder_group._replace(label=card.name).name
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
    """Make the row of a board for an encoder that has published numbers only.

    Its label is the name in the encoder's card. Without a card it is the label in the paper, or the
    right one if that is a known misprint.

    Args:
        filler: The columns of the board, and the cards of encoders.
        encoder: The name of the encoder, or ``paper/row`` if the paper's row names none.
        published: Its published row and numbers.
    """
    card = find_card(filler, encoder)
    label = published.row.row
    # A misprint of a whole row has an empty task.
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


def average_sort_key(row: Row) -> tuple[bool, float, str]:
    """Return the key that sorts rows by their average, best first, and rows without one last."""
    average = row.cell(AVERAGE).measured or row.cell(AVERAGE).published
    return average is None, -(average.value if average else 0.0), row.label


def _first_number_key(row: Row) -> tuple[int, float, str]:
    """Return the key by which rows of a board are sorted: by the first column that they fill.

    Rows with an average come first, the highest first. Then come those with a number in the first
    column, then those in the second, and so on. So numbers of two columns are never compared.
    """
    # Cells are in the order of the columns.
    keys = [AVERAGE, *(key for key in row.cells if key != AVERAGE)]
    for column_index, key in enumerate(keys):
        cell = row.cell(key)
        number = cell.measured or cell.published
        if number:
            return column_index, -number.value, row.label
    return len(keys), 0.0, row.label


def _baseline_group(results: Sequence[Result], filler: TableFiller) -> Group:
    """Make a group of one row, the baseline: the accuracy of always choosing the commonest class.

    It is given for columns of accuracies, in points. It has an average only if all columns that the
    average is over have one. In a group of its own the row is never ranked with encoders. The group
    is empty if there is no such column.

    Args:
        results: All results; those with classes hold the baseline as the score ``majority``.
        filler: The columns of the table.
    """
    share_by_split = {
        (result.task, result.split): 100 * result.scores["majority"]
        for result in results
        if "majority" in result.scores
    }
    share_by_key = {}
    for column in filler.task_columns:
        spec = column.spec
        if spec and spec.metric == "accuracy" and (spec.task, spec.split) in share_by_split:
            share_by_key[column.key] = share_by_split[spec.task, spec.split]
    # The shares, and their average if there is one.
    numbers = make_averaged_numbers(filler.average_terms, share_by_key)
    cells = {key: TableCell(measured=number) for key, number in numbers.items()}
    baseline = Row(label="majority class", cells=cells, is_baseline=True)
    return Group(section="Baseline", rows=[baseline] if cells else [])


class AddedRow(NamedTuple):
    """An encoder that a user adds to a table."""

    name: str
    """The name that the user typed."""
    label: str
    """The label to print; empty for the encoder's own name."""
    results: Sequence[Result]

    def has_any_of(self, results: Sequence[Result]) -> bool:
        """Return whether any of these is one of its results."""
        identities = set(map(_result_identity, self.results))
        return not identities.isdisjoint(map(_result_identity, results))

    def select_groups(
        self, encoder_groups: Sequence[EncoderResults]
    ) -> Iterator[tuple[EncoderResults, str]]:
        """Yield the groups that hold results of this added encoder, each with the label of its row.

        The label is that of the user, ``self.label``, with the group's tag if there are several;
        it is empty if the user gave none, so that the row has the encoder's own name. There are
        several groups if the encoder has results in several states, which tags distinguish.

        Args:
            encoder_groups: The results of all encoders, by encoder and state.
        """
        groups = [group for group in encoder_groups if self.has_any_of(group.results)]
        for group in groups:
            label = self.label
            if label and len(groups) > 1 and group.state_tag:
                label = f"{label} [{group.state_tag}]"
            yield group, label


def _result_identity(result: Result) -> Path | int:
    """Return a result's file, which may be read several times; without one, its identity."""
    return result.path or id(result)


def _with_added_rows(
    filler: TableFiller,
    groups: list[Group],
    encoder_groups: Sequence[EncoderResults],
    added_rows: Sequence[AddedRow],
) -> list[Group]:
    """Add a row for each encoder that a user adds to a table, or mark the row that it has.

    A board of ours has the row already: it is marked as added, and gets the user's label, if there
    is one. A paper's table gets one more group below its own, so that its best and second best
    numbers stay the paper's.

    Args:
        filler: The columns of the table, and its card.
        groups: The groups of the table.
        encoder_groups: The results of the measured encoders.
        added_rows: The encoders that the user adds.
    """
    # Pairs of an encoder's results and the user's label, which is empty if there is none.
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
    # A row holds the very list of its encoder's results, so Python's id of that list finds it.
    label_by_results_id = {id(encoder_group.results): label for encoder_group, label in added}

    def mark_added(row: Row) -> Row:
        """Return a row as added, with the user's label if any; other rows as they are."""
        if id(row.results) not in label_by_results_id:
            return row
        label = label_by_results_id[id(row.results)] or row.label
        return replace(row, label=label, is_added=True)

    return [replace(group, rows=list(map(mark_added, group.rows))) for group in groups]


def describe_gaps(
    row: Row, table: Table, catalogue: Catalogue, results_folder: str
) -> Iterator[DataError]:
    """Yield notices on the columns that a row, which a user adds, has no number for.

    The notices are errors that are not raised. There is one for each protocol and split by which
    columns could be scored; its remedy says how to score them. Columns that nothing here can
    measure have a last notice, without a remedy.

    Args:
        row: The row.
        table: The table that it is in.
        catalogue: The tasks and suites that can be scored.
        results_folder: The results folder for remedies; empty for the default one.
    """
    scorable_names = {*catalogue.suites(), *catalogue.paths("tasks")}
    # The columns by protocol and split; the usual split is empty.
    columns_by_scoring: dict[tuple[str, str], list[TableColumn]] = {}
    cannot_be_scored: list[TableColumn] = []
    # A task that another evaluator scores is on a board of its own, and not missing here. A column
    # of a suite's mean has no evaluator: then nothing is known to be on another board.
    evaluators = {
        column.spec.evaluator
        for column in table.columns
        if column.spec and any(other.cell(column.key).measured for other in table.rows())
    }
    for column in table.columns:
        if column.kind != "task" or row.cell(column.key).measured:
            continue
        spec = column.spec
        if table.is_board and spec and not evaluators & {spec.evaluator, ""}:
            continue
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
    """Return a notice on measured encoders that could fill a paper's table but have no row in it.

    Args:
        table: The table.
        filler: Its columns.
        encoder_groups: The results of the measured encoders.

    Returns:
        The notice; empty if there are no such encoders.
    """
    # The files of results, for the same file may be read several times.
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
