"""A paper's table or figure with what was had here beside it, row for row."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.trained import TrainedRun
from stsbench.leaderboard.published.rows import published_row, sources
from stsbench.leaderboard.tables.build import number_of
from stsbench.leaderboard.tables.columns import plan
from stsbench.leaderboard.tables.fill import Filler, Numbers
from stsbench.leaderboard.tables.runs import Wanted
from stsbench.leaderboard.tables.table import Group, Number, Row, Table, TableCell, TableColumn
from stsbench.numbers.spread import spread
from stsbench.results.groups import Runs
from stsbench.results.record import Result
from stsbench.studies.ablations import Ablation, AblationLine
from stsbench.studies.trials import ScoredOn

NOT_HAD = "×"
"""Behind the name of a row that cannot be had."""


class Had(NamedTuple):
    """What there is of a line: its results, and the runs of its training."""

    results: Sequence[Result] = ()
    runs: Sequence[TrainedRun] = ()


def scored_on(ablation: Ablation, catalogue: Catalogue) -> list[ScoredOn]:
    """The tasks that fill an ablation's columns; what is read from the record of a training needs none."""
    tasks: dict[tuple[str, str | None], list[str]] = {}
    for column in plan(ablation.table, catalogue).tasks:
        wanted = column.wanted
        if wanted is None or wanted.task in sources().extras:
            continue
        # Probes tell the development score of a test beside its own.
        split = None if wanted.printed == "test" or wanted.task in catalogue.suites() else wanted.split
        tasks.setdefault((wanted.protocol, split), []).append(wanted.task)
    return [ScoredOn(tasks=",".join(names), protocol=way or None, split=split) for (way, split), names in tasks.items()]


def table_beside(ablation: Ablation, had: Sequence[Had], catalogue: Catalogue) -> Table:
    """Make the table: for each column the paper's number, ours, and where both are of one recipe how far they are apart.

    Args:
        ablation: what the table is of.
        had: what there is of each of its lines.
        catalogue: cards of the project and of the user.
    """
    card = ablation.table
    filler = Filler(card, plan(card, catalogue), catalogue)
    columns = [column for column in filler.plan.columns if column.kind in ("task", "average")]
    numbers = [
        (_published(filler, line), _measured(filler, columns, one))
        for line, one in zip(ablation.lines, had, strict=True)
    ]
    shown = [
        made
        for column in columns
        for made in _sides(column, any(column.key in printed for printed, _ in numbers), apart=not ablation.is_small)
    ]
    groups: dict[str, list[Row]] = {}
    for line, one, (printed, measured) in zip(ablation.lines, had, numbers, strict=True):
        groups.setdefault(line.group, []).append(_row(line, one, _cells(shown, printed, measured)))
    return Table(
        name=ablation.name,
        title=card.title,
        paper=sources().papers[card.paper],
        number=number_of(card),
        columns=shown,
        groups=[Group(title=title, rows=rows) for title, rows in groups.items()],
        notes=list(_notes(ablation)),
    )


def _sides(column: TableColumn, is_printed: bool, *, apart: bool) -> Iterator[TableColumn]:
    """A column as several: the paper's numbers, where there are any, ours, and their distance."""
    head = column.head
    if is_printed:
        yield replace(column, key=f"{column.key} printed", head=f"{head}, paper", kind="task", wanted=None)
    yield replace(column, head=f"{head}, here" if is_printed else head, kind="task", wanted=None)
    if is_printed and apart:
        yield replace(column, key=f"{column.key} apart", head="Δ", kind="delta", better="", wanted=None)


def _cells(shown: Sequence[TableColumn], printed: Numbers, measured: Numbers) -> dict[str, TableCell]:
    numbers: Numbers = {**measured, **{f"{key} printed": number for key, number in printed.items()}}
    for key in printed.keys() & measured.keys():
        numbers[f"{key} apart"] = Number(measured[key].value - printed[key].value)
    return {column.key: TableCell(measured=numbers.get(column.key)) for column in shown}


def _row(line: AblationLine, had: Had, cells: Mapping[str, TableCell]) -> Row:
    overlap = Runs("", "", "", None, had.results).overlap if had.results else ""
    label = f"{line.label} {NOT_HAD}" if line.why else line.label
    # Added rows say what their training has seen of the tests.
    return Row(label=label, cells=cells, overlap=overlap, is_added=True, is_listed=True, results=had.results)


def _notes(ablation: Ablation) -> Iterator[str]:
    card, whys = ablation.card, dict[str, list[str]]()
    for line in ablation.lines:
        if line.why:
            whys.setdefault(line.why, []).append(line.label)
    yield from (f"{NOT_HAD} {'; '.join(labels)}: {why}" for why, labels in whys.items())
    # Δ here is the distance to print, whatever it is in the paper's table.
    about = "" if ablation.table.delta else ablation.table.note
    yield from filter(None, [about, card.note, card.small_note if ablation.is_small else ""])
    if ablation.is_small:
        yield "Here: small recipes on another base and text than the paper's. Compare how rows differ, not the scores."


def _published(filler: Filler, line: AblationLine) -> Numbers:
    return filler.published(published_row(line.published)) if line.published else {}


def _measured(filler: Filler, columns: Sequence[TableColumn], had: Had) -> Numbers:
    found = filler.measured(Runs("", "", "", None, had.results)) if had.results else {}
    for column in columns:
        wanted = column.wanted
        if wanted is not None and wanted.task == "training":
            values = [value for run in had.runs if (value := _of_training(run, wanted.metric)) is not None]
        elif wanted is not None and wanted.task in filler.catalogue.suites() and wanted.printed == "validation":
            values = _development_means(had.results, wanted, filler.catalogue.suites()[wanted.task].tasks)
        else:
            continue
        if values:
            found[column.key] = Number(*spread(values), seeds=len(values))
    return found


def _of_training(run: TrainedRun, metric: str) -> float | None:
    """A fact of a run's training: the step of the weights that were kept, or what its curve says of that step."""
    chosen = run.record.chosen
    if chosen is None:
        return None
    if metric == "steps":
        return chosen.step
    points = [point for point in run.facts["curve"] if point.get("step") == chosen.step and metric in point]
    return float(points[0][metric]) if points else None


def _development_means(results: Sequence[Result], wanted: Wanted, tasks: Sequence[str]) -> list[float]:
    """A suite's mean of development accuracies, in points, of each seed that has them all."""
    by_seed: dict[int | None, dict[str, float]] = {}
    for result in results:
        if result.protocol["name"] == wanted.protocol and "dev_accuracy" in result.scores:
            by_seed.setdefault(result.train_seed, {})[result.task] = 100 * result.scores["dev_accuracy"]
    return [statistics.fmean(one[task] for task in tasks) for one in by_seed.values() if one.keys() >= set(tasks)]
