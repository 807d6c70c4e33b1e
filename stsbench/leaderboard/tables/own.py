"""Our own boards: every encoder measured, and every published row of the board's protocol, best first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from stsbench.leaderboard.published.rows import PublishedRow, misprints, published_rows, sources
from stsbench.leaderboard.published.specs import BoardFacts
from stsbench.leaderboard.tables.fill import Filler, Numbers
from stsbench.leaderboard.tables.table import AVERAGE, EXACT, Group, Row, Traits
from stsbench.leaderboard.tables.traits import traits_of
from stsbench.results.checks import score_name
from stsbench.results.groups import Runs
from stsbench.results.record import Result

SECTIONS = {
    "none": "Unsupervised",
    "nli": "Trained on NLI labels",
    "sts": "Trained on STS scores",
    "pairs": "Trained on text pairs",
    "translation": "Trained on translations",
    "": "Others",
}


class BoardEntry(NamedTuple):
    """An encoder, or a published row without one: what is published and measured of it."""

    label: str
    encoder: str
    traits: Traits
    overlap: str
    source: PublishedRow | None
    published: Numbers
    printed_in: Mapping[str, str]
    """The key of the published row that each published number is of, by column."""
    measured: Numbers
    results: Sequence[Result]


class Printed(NamedTuple):
    """What is published of an encoder: its first row, the numbers of this and further rows, and the row of each."""

    row: PublishedRow | None
    numbers: Numbers
    printed_in: Mapping[str, str]


def board_groups(filler: Filler, facts: BoardFacts, runs: Sequence[Runs]) -> list[Group]:
    """The rows of a board, sorted by average: by supervision, or in one group where no published ones stand beside them."""
    entries = list(_entries(filler, facts, runs))
    twice = Counter(entry.label for entry in entries)
    if not facts.published:
        return [Group(rows=sorted((_row(filler, entry, named=False) for entry in entries), key=_by_average))]
    rows: dict[str, list[Row]] = {supervision: [] for supervision in SECTIONS}
    for entry in entries:
        rows[entry.traits.supervision].append(_row(filler, entry, named=twice[entry.label] > 1))
    return [Group(section=SECTIONS[key], rows=sorted(group, key=_order)) for key, group in rows.items()]


def clean_groups(filler: Filler, runs: Sequence[Runs]) -> Iterator[Group]:
    """A group for each training text that was left out of scores: every encoder's mean and scores without it, best first."""
    for name in dict.fromkeys(clean.name for one in runs for result in one.results for clean in result.clean):
        entries = []
        for one in runs:
            mine = one._replace(results=[part for result in one.results for part in _clean(result, name)])
            if mine.results and (numbers := filler.measured(mine)):
                traits = traits_of(filler.catalogue, one.card)
                entries.append(BoardEntry(one.name, one.encoder, traits, one.overlap, None, {}, {}, numbers, []))
        rows = sorted((_row(filler, entry, named=False) for entry in entries), key=_by_average)
        yield Group(section=name[0].upper() + name[1:], rows=rows)


def clean_notes(filler: Filler, runs: Sequence[Runs]) -> Iterator[str]:
    """A line on each training text that was left out of scores: how many items of each column it leaves."""
    left: dict[str, dict[str, str]] = {}
    shown = {column.wanted.task: column.head for column in filler.plan.tasks if column.wanted is not None}
    for result in (result for one in runs for result in one.results if result.task in shown):
        for clean in result.clean:
            left.setdefault(clean.name, {})[shown[result.task]] = f"{clean.n:,} of {result.n:,}"
    for name, counts in left.items():
        yield f"{name}, items left: {', '.join(f'{head} {count}' for head, count in counts.items())}"


def _clean(result: Result, name: str) -> Iterator[Result]:
    """A Result as it would be of the items alone that a training text leaves."""
    for one in result.clean:
        if one.name == name and one.score is not None and one.interval is not None:
            scores = {score_name(result.protocol): one.score}
            yield msgspec.structs.replace(
                result, score=one.score, scores=scores, interval=one.interval, n=one.n, per_subset={}
            )


def _entries(filler: Filler, facts: BoardFacts, runs: Sequence[Runs]) -> Iterator[BoardEntry]:
    known = filler.catalogue.paths("baselines")
    published = _published(filler, facts) if facts.published else {}
    nothing = Printed(None, {}, {})
    measured = [(one, numbers) for one in runs if (numbers := filler.measured(one))]
    for one, numbers in measured:
        card = one.card
        printed = published.get(one.encoder, nothing) if card else nothing
        label = one.name
        if card and facts.published:
            label = f"{card.name} [{one.mark}]" if one.mark else card.name
        traits = traits_of(filler.catalogue, card)
        yield BoardEntry(label, one.encoder, traits, one.overlap, *printed, numbers, one.results)
    done = {one.encoder for one, _ in measured if one.card}
    for name, printed in published.items():
        if printed.row is not None and name not in done:
            card = filler.catalogue.encoder(name) if name in known else None
            traits = traits_of(filler.catalogue, card, printed.row)
            label, encoder = (card.name, name) if card else (right_label(printed.row), "")
            yield BoardEntry(label, encoder, traits, printed.row.overlap, *printed, {}, [])


def right_label(row: PublishedRow) -> str:
    """What a published row is called, or should be where the name is a misprint."""
    found = misprints().get((row.key, ""))
    return found.expected if found and found.kind == "label" and found.expected else row.row


def _published(filler: Filler, facts: BoardFacts) -> dict[str, Printed]:
    """Published rows that fit the board, by encoder, or by paper and row where there is none."""
    found: dict[str, list[tuple[PublishedRow, Numbers]]] = {}
    for row in _trusted():
        numbers = filler.published(row, lenient=True)
        filled = [column.key in numbers for column in filler.plan.tasks]
        # Of an encoder that has a card, the average alone is worth a row.
        if all(filled) or (any(filled) and not facts.whole) or (row.encoder and AVERAGE in numbers):
            found.setdefault(row.encoder or f"{row.paper}/{row.row}", []).append((row, numbers))
    chosen = {name: _merged(filler, name, rows, whole=facts.whole) for name, rows in found.items()}
    # Two papers may take the same numbers over from a third.
    seen: dict[tuple[float, ...], str] = {}
    for name, printed in chosen.items():
        seen.setdefault(tuple(printed.numbers[key].value for key in sorted(printed.numbers)), name)
    return {name: chosen[name] for name in seen.values()}


def _trusted() -> Iterator[PublishedRow]:
    """Rows read in a text, at their own source where that is among the papers."""
    rows = published_rows().values()
    own = {row.paper for row in rows if not row.quoted}
    for row in rows:
        if row.quoted not in own and not any(score.verified in ("figure", "no") for score in row.scores):
            yield row


def _merged(filler: Filler, name: str, rows: Sequence[tuple[PublishedRow, Numbers]], *, whole: bool) -> Printed:
    """The fullest row, of those the one that the encoder's card names first; the others may fill its holes."""
    known = name in filler.catalogue.paths("baselines")
    order = {key: place for place, key in enumerate(filler.catalogue.encoder(name).published)} if known else {}
    rows = sorted(
        rows, key=lambda pair: (-len(pair[1]) if whole else AVERAGE not in pair[1], order.get(pair[0].key, len(order)))
    )
    first, numbers = rows[0]
    printed_in = dict.fromkeys(numbers, first.key)
    for row, others in () if whole else rows[1:]:
        # An average of other cells than the row's own would be none of it.
        added = {key: number for key, number in others.items() if key not in (*numbers, AVERAGE, EXACT)}
        numbers, printed_in = {**numbers, **added}, {**printed_in, **dict.fromkeys(added, row.key)}
    return Printed(first, numbers, printed_in)


def _row(filler: Filler, entry: BoardEntry, *, named: bool) -> Row:
    source = sources().papers[entry.source.paper].name if entry.source else ""
    key = entry.source.key if entry.source else ""
    return Row(
        label=f"{entry.label} ({source})" if named and source else entry.label,
        cells=filler.cells(entry.printed_in, entry.published, entry.measured),
        encoder=entry.encoder,
        key=key,
        source=source,
        overlap=entry.overlap,
        traits=entry.traits,
        results=entry.results,
    )


def _by_average(row: Row) -> tuple[bool, float, str]:
    best = row.cell(AVERAGE).measured
    return best is None, -(best.value if best else 0.0), row.label


def _order(row: Row) -> tuple[int, float, str]:
    """Best average first, as shown. Rows without follow by the first column that they fill, best first.

    Numbers of two columns are never compared: a mean over other tasks says nothing beside this one.
    """
    columns = [AVERAGE, *(key for key in row.cells if key != AVERAGE)]
    for place, key in enumerate(columns):
        if best := row.cell(key).measured or row.cell(key).published:
            return place, -best.value, row.label
    return len(columns), 0.0, row.label
