"""The rows of boards and those that a user adds: encoders measured and published, and what tables say of each."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stsbench.boards.published.rows import (
    FOLDER,
    PublishedRow,
    misprints,
    published_row,
    published_rows,
    row_facts,
    sources,
)
from stsbench.boards.tables.columns import Numbers, TableFiller, add_average
from stsbench.boards.tables.table import AVERAGE, EXACT, EncoderTraits, Group, Row, Table, TableCell
from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, UnknownName
from stsbench.core.toml import parse_toml
from stsbench.core.wording import format_some
from stsbench.results.groups import EncoderResults
from stsbench.results.record import Result, score_name

ADDRESS = re.compile(r"https?://[^\s,]+")
YEARS = re.compile(
    r"arxiv\.org/abs/(?P<arxiv>\d\d)\d\d\.|aclanthology\.org/(?:(?P<acl>20\d\d)\.|[A-Z](?P<old>\d\d)-)"
)
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
MODEL_PARAMETERS = frozenset({"model", "package", "file", "base", "layers"})
"""Parameters of a card that say which network it is: where one is replaced, it is not the card's."""


@cache
def read_encoder_facts() -> Mapping[str, Mapping[str, int]]:
    """The numbers of parameters by backbone, and the years of works by address: what neither cards nor published rows say."""
    return parse_toml(FOLDER / "encoders.toml")


def read_traits(
    catalogue: Catalogue, card: EncoderCard | None = None, source: PublishedRow | None = None
) -> EncoderTraits:
    """What an encoder is.

    The published row says method, backbone and supervision where there is one, and its source is the work where no
    card names another. Of an encoder that is neither in a card nor published, nothing is known.
    """
    said = source or card
    if said is None:
        return EncoderTraits()
    paper = _address(card.paper) if card else ""
    origin = sources().papers[source.quoted or source.paper] if source else None
    replaced = card is not None and any(
        part.partition("=")[0] in MODEL_PARAMETERS for part in card.name.split("+")[1:]
    )
    return EncoderTraits(
        method=said.method,
        backbone=said.backbone,
        supervision=said.supervision,
        parameters=None if replaced else _parameters(catalogue, card, said.backbone),
        year=(card.year or _year(paper))
        if card and (card.year or paper)
        else origin.year
        if origin
        else None,
        paper=paper or (origin.url if origin else ""),
        model=_model(card) if card and not replaced else "",
    )


def _parameters(catalogue: Catalogue, card: EncoderCard | None, backbone: str) -> int | None:
    if card and card.parameters:
        return card.parameters
    for other in (card.params.get("base") if card else None, backbone):
        # A recipe's backbone may be a card's encoder.
        if isinstance(other, str) and other in catalogue.paths("baselines"):
            below = catalogue.encoder(other)
            return below.parameters or read_encoder_facts()["parameters"].get(below.backbone)
    return read_encoder_facts()["parameters"].get(backbone)


def _address(paper: str) -> str:
    found = ADDRESS.search(paper)
    return found[0] if found else ""


def _year(address: str) -> int | None:
    known = {one.url: one.year for one in sources().papers.values()} | dict(
        read_encoder_facts()["years"]
    )
    found = YEARS.search(address)
    said = int(found["acl"] or f"20{found['arxiv'] or found['old']}") if found else None
    return known.get(address, said)


def _model(card: EncoderCard) -> str:
    model = card.hub or card.params.get("model", "")
    return (
        hub_address(model) or _address(model)
        if isinstance(model, str) and not Path(model).exists()
        else ""
    )


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


PublishedNumbers = tuple[PublishedRow, Numbers]
"""What is published of an encoder: its first row, and the numbers of this and further rows."""


def all_groups(
    filler: TableFiller,
    results: Sequence[Result],
    runs: Sequence[EncoderResults],
    added: Sequence[AddedRow],
) -> list[Group]:
    """The groups of a table that have a row: of a board or a paper, what is added, the baseline, and without training text."""
    board = filler.card.board
    groups = (
        _board_groups(filler, runs, board.published) if board else list(_paper_groups(filler, runs))
    )
    groups = [*_with_added(filler, groups, runs, added), _baseline_group(results, filler)]
    return [
        group for group in [*groups, *(_clean_groups(filler, runs) if board else ())] if group.rows
    ]


def _by_published(
    filler: TableFiller, runs: Sequence[EncoderResults]
) -> Mapping[str, list[EncoderResults]]:
    """The runs that measured each published row: its own encoder's, or those of a card that names it."""
    by_row: dict[str, list[EncoderResults]] = {}
    for one in runs:
        for key in one.card.published if one.card else []:
            try:
                by_row.setdefault(published_row(key).key, []).append(one)
            except UnknownName as error:
                path = filler.catalogue.encoder_path(one.encoder)
                raise CardError(f"{path}: key 'published': {error}") from error
    return by_row


def _paper_groups(filler: TableFiller, runs: Sequence[EncoderResults]) -> Iterator[Group]:
    by_row = _by_published(filler, runs)
    for group in filler.card.groups:
        rows = []
        for facts in row_facts(group):
            source = published_row(f"{filler.card.paper}/{filler.card.table}/{facts.row}")
            label, measured = facts.label or facts.row, by_row.get(source.key, [])
            first = measured[0] if measured else None
            wrong = misprints().get((source.key, ""))
            row = encoder_row(
                filler,
                label,
                first,
                (source, filler.published_numbers(source, facts.protocol, metric=facts.metric)),
                facts.protocol,
                encoder=first.encoder if first else source.encoder,
                quoted_from=sources().papers[source.quoted].name if source.quoted else "",
                other_protocol=facts.protocol or "" if facts.protocol != group.protocol else "",
                overlap=filler.row_overlap(source),
                misprint=wrong.reason if wrong else "",
                metric=facts.metric,
                traits=read_traits(
                    filler.catalogue,
                    first.card if first else card_of(filler, source.encoder),
                    source,
                ),
            )
            rows.append(row)
            # Further states of the encoder are rows of their own.
            bare = replace(row, published_key="", quoted_from="", misprint="")
            for other in measured[1:]:
                own, cells = (
                    f"{label} [{other.state_tag or other.encoder}]",
                    filler.measured_numbers(other, facts.protocol),
                )
                rows.append(
                    replace(
                        bare, label=own, cells=filler.make_cells({}, cells), results=other.results
                    )
                )
        yield Group(title=group.title, section=group.section, rows=rows)


def _board_groups(
    filler: TableFiller, runs: Sequence[EncoderResults], with_published: bool
) -> list[Group]:
    """The rows of a board, sorted by average: by supervision, or in one group where no published ones stand beside them."""
    rows = list(_rows(filler, runs, with_published=with_published))
    if not with_published:
        return [Group(rows=sorted(rows, key=by_average))]
    alike = Counter(row.label for row in rows)
    by: dict[str, list[Row]] = {key: [] for key in SECTIONS}
    for row in rows:
        label = f"{row.label} ({row.source})" if alike[row.label] > 1 and row.source else row.label
        by[row.traits.supervision].append(replace(row, label=label))
    return [Group(section=SECTIONS[key], rows=sorted(mine, key=_order)) for key, mine in by.items()]


def _clean_groups(filler: TableFiller, runs: Sequence[EncoderResults]) -> Iterator[Group]:
    """A group for each training text that was left out of scores: every encoder's mean and scores without it, best first."""
    for name in dict.fromkeys(
        clean.name for one in runs for result in one.results for clean in result.clean
    ):
        left = [
            one._replace(results=[part for result in one.results for part in _clean(result, name)])
            for one in runs
        ]
        rows = [encoder_row(filler, one.name, one, results=[]) for one in left if one.results]
        measured = sorted((row for row in rows if row.is_measured), key=by_average)
        yield Group(section=name[0].upper() + name[1:], rows=measured)


def describe_clean_scores(filler: TableFiller, runs: Sequence[EncoderResults]) -> Iterator[str]:
    """A line on each training text that was left out of scores: how many items of each column it leaves."""
    left: dict[str, dict[str, str]] = {}
    shown = {
        column.spec.task: column.head for column in filler.task_columns if column.spec is not None
    }
    for result in (result for one in runs for result in one.results if result.task in shown):
        for clean in result.clean:
            without = f" (none of {', '.join(clean.left_out)})" if clean.left_out else ""
            left.setdefault(clean.name, {})[shown[result.task]] = (
                f"{clean.n:,} of {result.n:,}{without}"
            )
    for name, counts in left.items():
        yield f"{name}, items left: {', '.join(f'{head} {count}' for head, count in counts.items())}"


def _clean(result: Result, name: str) -> Iterator[Result]:
    """A Result as it would be of the items alone that a training text leaves."""
    for one in result.clean:
        if one.name == name and one.score is not None and one.interval is not None:
            own = {
                "score": one.score,
                "scores": {score_name(result.protocol): one.score},
                "interval": one.interval,
            }
            yield msgspec.structs.replace(result, **own, n=one.n, per_subset={})


def card_of(filler: TableFiller, encoder: str) -> EncoderCard | None:
    """The card of this name, if there is one."""
    return (
        filler.catalogue.encoder(encoder)
        if encoder in filler.catalogue.paths("baselines")
        else None
    )


def encoder_row(
    filler: TableFiller,
    label: str,
    run: EncoderResults | None,
    printed: PublishedNumbers | None = None,
    protocol: str | None = None,
    **facts: Any,  # noqa: ANN401 - fields of the row
) -> Row:
    """The row of an encoder: what was measured of it, if anything, beside what is printed; ``facts`` say other fields.

    ``protocol`` is that of a row which is not scored as its columns say.
    """
    said: dict[str, Any] = {}
    row, numbers = printed or (None, {})
    if row is not None:
        said = {
            "published_key": row.key,
            "source": sources().papers[row.paper].name,
            "overlap": filler.row_overlap(row),
        }
    if run is not None:
        said |= {"encoder": run.encoder, "overlap": run.overlap, "results": run.results}
        said["traits"] = read_traits(filler.catalogue, run.card)
    measured = filler.measured_numbers(run, protocol) if run is not None else {}
    return Row(label=label, cells=filler.make_cells(numbers, measured), **{**said, **facts})


def _rows(
    filler: TableFiller, runs: Sequence[EncoderResults], *, with_published: bool
) -> Iterator[Row]:
    published, done = _published(filler) if with_published else {}, set()
    for run in runs:
        card, label = run.card, run.name
        if card and with_published:
            label = f"{card.name} [{run.state_tag}]" if run.state_tag else card.name
        row = encoder_row(filler, label, run, published.get(run.encoder) if card else None)
        if row.is_measured:
            done |= {run.encoder} if card else set()
            yield row
    for name, printed in published.items():
        if name not in done:
            card, wrong = card_of(filler, name), misprints().get((printed[0].key, ""))
            right = (
                wrong.expected
                if wrong and wrong.kind == "label" and wrong.expected
                else printed[0].row
            )
            label, traits = (
                card.name if card else right,
                read_traits(filler.catalogue, card, printed[0]),
            )
            yield encoder_row(
                filler, label, None, printed, encoder=name if card else "", traits=traits
            )


def _published(filler: TableFiller) -> dict[str, PublishedNumbers]:
    """Published rows that fit the board, by encoder, or by paper and row where there is none."""
    found: dict[str, list[PublishedNumbers]] = {}
    tasks, whole = (
        {column.key for column in filler.task_columns},
        filler.card.board is None or filler.card.board.whole,
    )
    # Rows read in a text; those at their own source, as far as that is among the papers, come first.
    rows = [
        row
        for row in published_rows().values()
        if all(one.verified not in ("figure", "no") for one in row.scores)
    ]
    papers = {row.paper for row in published_rows().values() if not row.quoted}
    for row in sorted(rows, key=lambda row: row.quoted in papers):
        numbers = filler.published_numbers(row, lenient=True)
        is_whole, is_part = tasks <= numbers.keys(), bool(tasks & numbers.keys())
        # Of an encoder that has a card, the average alone is worth a row.
        is_worth = is_whole or (is_part and not whole) or (bool(row.encoder) and AVERAGE in numbers)
        if row.quoted in papers:
            # What another work took over counts where its source prints less, as the average without the tasks.
            own = found.get(row.encoder, [])
            is_worth = (
                bool(own) and is_whole and not any(tasks <= others.keys() for _, others in own)
            )
        if is_worth:
            found.setdefault(row.encoder or f"{row.paper}/{row.row}", []).append((row, numbers))
    chosen = {name: _merged(filler, name, mine, whole=whole) for name, mine in found.items()}
    # Two papers may take the same numbers over from a third.
    seen: dict[tuple[float, ...], str] = {}
    for name, (_, numbers) in chosen.items():
        seen.setdefault(tuple(numbers[key].value for key in sorted(numbers)), name)
    return {name: chosen[name] for name in seen.values()}


def _merged(
    filler: TableFiller, name: str, rows: Sequence[PublishedNumbers], *, whole: bool
) -> PublishedNumbers:
    """The fullest row, of those the one that the encoder's card names first; the others may fill its holes."""
    card = card_of(filler, name)
    order = {key: place for place, key in enumerate(card.published if card else ())}
    (first, numbers), *others = sorted(
        rows,
        key=lambda pair: (
            -len(pair[1]) if whole else AVERAGE not in pair[1],
            order.get(pair[0].key, len(order)),
        ),
    )
    for _, more in () if whole else others:
        # An average of other cells than the row's own would be none of it.
        numbers = {
            key: number for key, number in more.items() if key not in (AVERAGE, EXACT)
        } | numbers
    return first, numbers


def by_average(row: Row) -> tuple[bool, float, str]:
    """Best average first, then rows without."""
    best = row.cell(AVERAGE).measured or row.cell(AVERAGE).published
    return best is None, -(best.value if best else 0.0), row.label


def _order(row: Row) -> tuple[int, float, str]:
    """Best average first, then by the first column that a row fills: numbers of two columns are never compared."""
    columns = [AVERAGE, *(key for key in row.cells if key != AVERAGE)]
    for place, key in enumerate(columns):
        if best := row.cell(key).measured or row.cell(key).published:
            return place, -best.value, row.label
    return len(columns), 0.0, row.label


def _baseline_group(results: Sequence[Result], filler: TableFiller) -> Group:
    """The share of the most frequent class, in columns of accuracies: a group of its own is never ranked with encoders."""
    levels = {
        (r.task, r.split): 100 * r.scores["majority"] for r in results if "majority" in r.scores
    }
    found = {
        column.key: levels[wanted.task, wanted.split]
        for column in filler.task_columns
        if (wanted := column.spec)
        and wanted.metric == "accuracy"
        and (wanted.task, wanted.split) in levels
    }
    cells = {
        key: TableCell(measured=number) for key, number in add_average(filler.terms, found).items()
    }
    return Group(
        section="Baseline",
        rows=[Row(label="majority class", cells=cells, is_baseline=True)] if cells else [],
    )


class AddedRow(NamedTuple):
    """An encoder to be added: its name as it was given, the label to print (empty: its own name), and its results."""

    name: str
    label: str
    results: Sequence[Result]

    def has_any_of(self, results: Sequence[Result]) -> bool:
        """Whether any of these is one of its results."""
        return bool(set(map(_file_of, self.results)) & set(map(_file_of, results)))

    def select_groups(
        self, all_runs: Sequence[EncoderResults]
    ) -> Iterator[tuple[EncoderResults, str]]:
        """The runs that hold its results, each with the label to print; an encoder in several states is several."""
        found = [one for one in all_runs if self.has_any_of(one.results)]
        for one in found:
            marked = self.label and len(found) > 1 and one.state_tag
            yield one, f"{self.label} [{one.state_tag}]" if marked else self.label


def _file_of(result: Result) -> Path | int:
    """What a result is known by: its file, for it may have been read again; one that has none is known by itself."""
    return result.path or id(result)


def _with_added(
    filler: TableFiller,
    groups: list[Group],
    runs: Sequence[EncoderResults],
    added: Sequence[AddedRow],
) -> list[Group]:
    """The groups with a row for each encoder that is added.

    On a board it is there, and gets its label. Below a paper's own groups stands one more: its best and second best stay the
    paper's, and no row is among others by mistake.
    """
    chosen = [pair for one in added for pair in one.select_groups(runs)]
    if filler.card.board is None:
        rows = [encoder_row(filler, label or run.name, run, is_added=True) for run, label in chosen]
        return [*groups, Group(title="Measured here", rows=rows)]
    labels = {id(run.results): label for run, label in chosen}

    def named(row: Row) -> Row:
        label = labels.get(id(row.results))
        return row if label is None else replace(row, label=label or row.label, is_added=True)

    return [replace(group, rows=list(map(named, group.rows))) for group in groups]


def describe_gaps(
    row: Row, table: Table, catalogue: Catalogue, results_folder: str = ""
) -> Iterator[str]:
    """What an added row has no number for: a line for each command that would fill columns, and one for the rest.

    Commands name the folder of results ``results_folder``; empty for the usual one.
    """
    missing: dict[tuple[str, str], dict[str, str]] = {}
    known = {*catalogue.suites(), *catalogue.paths("tasks")}
    for column in (
        one for one in table.columns if one.kind == "task" and not row.cell(one.key).measured
    ):
        wanted, way = column.spec, ("", "")
        if wanted and column.in_points and wanted.protocol and wanted.task in known:
            way = (
                wanted.protocol,
                "" if wanted.published_split == "test" else wanted.published_split,
            )
        missing.setdefault(way, {})[column.head] = wanted.task if wanted else ""
    for (protocol, split), heads in sorted(missing.items(), key=lambda one: not one[0][0]):
        words = ["stsbench", "run", row.encoder, "--tasks", ",".join(dict.fromkeys(heads.values()))]
        options = {"--protocol": protocol, "--split": split, "--results": results_folder}
        words += [word for option, value in options.items() if value for word in (option, value)]
        how = (
            f"; to fill it: {shlex.join(words)}"
            if protocol
            else ", which 'stsbench run' does not measure"
        )
        yield f"row '{row.label}' has no {', '.join(heads)}{how}"


def describe_hidden(table: Table, filler: TableFiller, runs: Sequence[EncoderResults]) -> str:
    """One line on results that a paper's table has columns for and no row; nothing where there are none."""
    shown = {_file_of(result) for row in table.rows() for result in row.results}
    unseen = (run for run in runs if not any(_file_of(one) in shown for one in run.results))
    names = [run.name for run in unseen if filler.measured_numbers(run)]
    if not names:
        return ""
    listed, given = format_some(names), shlex.quote(names[0])
    return f"results of {listed} are in no row of '{table.name}'; --add NAME shows them, such as --add {given}"
