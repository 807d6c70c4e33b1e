"""The rows of boards and those that a user adds: encoders measured and published, and what tables say of each."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from stsbench.boards.published import FOLDER, PublishedRow, misprints, published_rows, sources
from stsbench.boards.published.specs import BoardFacts
from stsbench.boards.tables.columns import Filler, Numbers
from stsbench.boards.tables.table import AVERAGE, EXACT, Group, Row, Table, TableColumn, Traits, Wanted
from stsbench.core.cards import EncoderCard, Record, convert, parse_toml
from stsbench.core.catalogue import Catalogue
from stsbench.results.groups import Runs
from stsbench.results.record import Result, score_name

ADDRESS = re.compile(r"https?://[^\s,]+")
YEARS = re.compile(r"arxiv\.org/abs/(?P<arxiv>\d\d)\d\d\.|aclanthology\.org/(?:(?P<acl>20\d\d)\.|[A-Z](?P<old>\d\d)-)")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
LOADED = frozenset({"model", "package", "file", "base", "layers"})
"""Parameters of a card that say which network it is: where one is replaced, it is not the card's."""


class KnownFacts(Record, frozen=True, kw_only=True):
    """The numbers of parameters by backbone, and the years of works by address."""

    parameters: Mapping[str, int]
    years: Mapping[str, int]


@cache
def known_facts() -> KnownFacts:
    """What neither cards nor published rows say."""
    path = FOLDER / "encoders.toml"
    return convert(parse_toml(path), KnownFacts, where=str(path))


def traits_of(catalogue: Catalogue, card: EncoderCard | None = None, source: PublishedRow | None = None) -> Traits:
    """What an encoder is.

    The published row says method, backbone and supervision where there is one, and its source is the work where no
    card names another. Of an encoder that is neither in a card nor published, nothing is known.
    """
    said = source or card
    if said is None:
        return Traits()
    paper = _address(card.paper) if card else ""
    origin = sources().papers[source.quoted or source.paper] if source else None
    replaced = card is not None and bool(LOADED & _replaced(card.name))
    return Traits(
        method=said.method,
        backbone=said.backbone,
        supervision=said.supervision,
        parameters=None if replaced else _parameters(catalogue, card, said.backbone),
        year=(card.year or _year(card.paper)) if card and (card.year or paper) else origin.year if origin else None,
        paper=paper or (origin.url if origin else ""),
        model=_model(card) if card and not replaced else "",
    )


def _replaced(name: str) -> set[str]:
    """The parameters that stand replaced behind the name of a card."""
    return {change.partition("=")[0] for change in name.split("+")[1:]}


def _parameters(catalogue: Catalogue, card: EncoderCard | None, backbone: str) -> int | None:
    """As the card says, or that of the encoder it is made of; else as its backbone has them."""
    if card and card.parameters:
        return card.parameters
    names = catalogue.paths("baselines")
    for other in (card.params.get("base") if card else None, backbone):
        # A recipe's backbone may be a card's encoder.
        if isinstance(other, str) and other in names:
            below = catalogue.encoder(other)
            return below.parameters or known_facts().parameters.get(below.backbone)
    return known_facts().parameters.get(backbone)


def _address(paper: str) -> str:
    found = ADDRESS.search(paper)
    return found[0] if found else ""


def _year(paper: str) -> int | None:
    """The year of a work: as it is known by its address, or as the address says."""
    address = _address(paper)
    by_address = {one.url: one.year for one in sources().papers.values()} | dict(known_facts().years)
    if address in by_address:
        return by_address[address]
    found = YEARS.search(address)
    if found is None:
        return None
    return int(found["acl"] or f"20{found['arxiv'] or found['old']}")


def _model(card: EncoderCard) -> str:
    """The address of the model: its page on the Hub, or where else the card loads it from."""
    model = card.hub or card.params.get("model", "")
    if not isinstance(model, str) or Path(model).exists():
        return ""
    return hub_address(model) or _address(model)


def hub_address(model: str) -> str:
    """The Hub's page of an id ``organisation/name``; nothing of what is no such id."""
    return f"https://huggingface.co/{model}" if HUB_ID.fullmatch(model) else ""


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
            without = f" (none of {', '.join(clean.left_out)})" if clean.left_out else ""
            left.setdefault(clean.name, {})[shown[result.task]] = f"{clean.n:,} of {result.n:,}{without}"
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
    tasks = {column.key for column in filler.plan.tasks}
    for row, is_own in _trusted():
        numbers = filler.published(row, lenient=True)
        is_whole, is_part = tasks <= numbers.keys(), bool(tasks & numbers.keys())
        # Of an encoder that has a card, the average alone is worth a row.
        is_worth = is_whole or (is_part and not facts.whole) or (bool(row.encoder) and AVERAGE in numbers)
        # What another work took over counts where its source prints less, as the average without the tasks.
        own = found.get(row.encoder, [])
        is_fuller = bool(own) and is_whole and not any(tasks <= others.keys() for _, others in own)
        if (is_own and is_worth) or (not is_own and is_fuller):
            found.setdefault(row.encoder or f"{row.paper}/{row.row}", []).append((row, numbers))
    chosen = {name: _merged(filler, name, rows, whole=facts.whole) for name, rows in found.items()}
    # Two papers may take the same numbers over from a third.
    seen: dict[tuple[float, ...], str] = {}
    for name, printed in chosen.items():
        seen.setdefault(tuple(printed.numbers[key].value for key in sorted(printed.numbers)), name)
    return {name: chosen[name] for name in seen.values()}


def _trusted() -> Iterator[tuple[PublishedRow, bool]]:
    """Rows read in a text, and whether at their own source, as far as that is among the papers; these come first."""
    rows = [row for row in published_rows().values() if all(one.verified not in ("figure", "no") for one in row.scores)]
    own = {row.paper for row in published_rows().values() if not row.quoted}
    for is_own in (True, False):
        yield from ((row, is_own) for row in rows if (row.quoted not in own) is is_own)


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


TITLE = "Measured here"
MOST_NAMED = 3


class Added(NamedTuple):
    """An encoder to be added: its name as it was given, the label to print (empty: its own name), and its results."""

    name: str
    label: str
    results: Sequence[Result]

    def runs(self, all_runs: Sequence[Runs]) -> list[Runs]:
        """The runs that hold these results; an encoder in several states is several."""
        mine = set(map(_file_of, self.results))
        return [one for one in all_runs if mine & set(map(_file_of, one.results))]


def _file_of(result: Result) -> Path | int:
    """What a result is known by: its file, for it may have been read again; one that has none is known by itself."""
    return result.path or id(result)


def added_groups(filler: Filler, runs: Sequence[Runs], added: Sequence[Added]) -> list[Group]:
    """One group below a paper's own: its best and second best stay the paper's, and no row is among others by mistake."""
    rows = [
        Row(
            label=_label(one, run, several=len(found) > 1),
            cells=filler.cells("", {}, filler.measured(run)),
            encoder=run.encoder,
            overlap=run.overlap,
            traits=traits_of(filler.catalogue, run.card),
            results=run.results,
            is_added=True,
        )
        for one in added
        for found in [one.runs(runs)]
        for run in found
    ]
    return [Group(title=TITLE, rows=rows)] if rows else []


def _label(one: Added, run: Runs, *, several: bool) -> str:
    if not one.label:
        return run.name
    return f"{one.label} [{run.mark}]" if several and run.mark else one.label


def relabelled(groups: Sequence[Group], runs: Sequence[Runs], added: Sequence[Added]) -> list[Group]:
    """A board's groups, in which every encoder measured has a row: those of some rows have the label that is asked for."""
    labels: dict[Path | int, str] = {}
    for one in added:
        found = one.runs(runs)
        for run in found:
            labels |= dict.fromkeys(
                map(_file_of, run.results), _label(one, run, several=len(found) > 1) if one.label else ""
            )
    return [replace(group, rows=[_relabelled(row, labels) for row in group.rows]) for group in groups]


def _relabelled(row: Row, labels: Mapping[Path | int, str]) -> Row:
    label = next((labels[file] for result in row.results if (file := _file_of(result)) in labels), None)
    return row if label is None else replace(row, label=label or row.label, is_added=True)


def only_added(table: Table) -> Table:
    """The table with nothing but the rows that were added."""
    groups = [replace(group, rows=[row for row in group.rows if row.is_added]) for group in table.groups]
    return replace(table, groups=[group for group in groups if group.rows])


def rows_of(table: Table, one: Added) -> list[Row]:
    """The rows of an encoder that was added to a table."""
    mine = set(map(_file_of, one.results))
    return [row for row in table.rows() if row.is_added and mine & set(map(_file_of, row.results))]


def lacks(row: Row, table: Table, catalogue: Catalogue, where: str = "") -> Iterator[str]:
    """What a row of a table has no number for: a line for each command that would fill columns, and one for the rest.

    Args:
        row: a row that was added.
        table: the table.
        catalogue: cards of the project and of the user.
        where: the folder of results that commands name; empty for the usual one.
    """
    empty = [column for column in table.columns if column.kind == "task" and not row.cell(column.key).measured]
    runnable: dict[tuple[str, str], list[TableColumn]] = {}
    for column in empty:
        wanted = column.wanted
        if wanted is not None and _can_be_run(column, wanted, catalogue):
            split = "" if wanted.printed == "test" else wanted.printed
            runnable.setdefault((wanted.protocol, split), []).append(column)
    for (protocol, split), missing in runnable.items():
        tasks = dict.fromkeys(column.wanted.task for column in missing if column.wanted)
        words = ["stsbench", "run", row.encoder, "--tasks", ",".join(tasks), "--protocol", protocol]
        words += [*(("--split", split) if split else ()), *(("--results", where) if where else ())]
        yield f"row '{row.label}' has no {_heads(missing)}; to fill it: {shlex.join(words)}"
    others = [column for column in empty if not any(column in missing for missing in runnable.values())]
    if others:
        yield f"row '{row.label}' has no {_heads(others)}, which 'stsbench run' does not measure"


def _can_be_run(column: TableColumn, wanted: Wanted, catalogue: Catalogue) -> bool:
    is_known = wanted.task in catalogue.suites() or wanted.task in catalogue.paths("tasks")
    return bool(column.points and wanted.protocol and is_known)


def _heads(columns: Sequence[TableColumn]) -> str:
    return ", ".join(column.head for column in columns)


def not_shown(table: Table, filler: Filler, runs: Sequence[Runs]) -> str:
    """One line on results that a paper's table has columns for and no row; nothing where there are none."""
    shown = {_file_of(result) for row in table.rows() for result in row.results}
    names = [
        run.name for run in runs if not any(_file_of(one) in shown for one in run.results) and filler.measured(run)
    ]
    if not names:
        return ""
    listed = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")
    given = shlex.quote(names[0])
    return f"results of {listed} are in no row of '{table.name}'; --add NAME shows them, such as --add {given}"
