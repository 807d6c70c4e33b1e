"""Ablations of papers: which recipe with which values gives each row of a printed table, trained, scored and put beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from stsbench.bench.plan import RunPlan
from stsbench.boards.published.rows import (
    TableCard,
    published_row,
    read_table_card,
    row_facts,
    sources,
)
from stsbench.boards.tables.build import number_of
from stsbench.boards.tables.columns import Numbers, TableFiller
from stsbench.boards.tables.table import Group, Row, Table, TableCell, TableColumn, TableNumber
from stsbench.core.cards import StrictRecord
from stsbench.core.catalogue import Catalogue, read_card
from stsbench.core.errors import CardError, UnknownName, suggest
from stsbench.encoders.kinds import FROM_CHECKPOINT
from stsbench.encoders.runs import TrainedRun
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.recipes.train_plan import TrainPlan
from stsbench.results.groups import EncoderResults, suite_mean
from stsbench.results.record import Result
from stsbench.studies.trials import (
    Trial,
    TrialCallbacks,
    TrialEnvironment,
    TrialOutcome,
    carry_out_trial,
    plan_trials,
    score_encoder,
)

FOLDER = "trainers/tables"
"""The kind of card, and where it lies: in the project and in folders of a user's own."""


class AblationRow(StrictRecord, frozen=True, kw_only=True):
    """One row: the recipe whose run is it, or an encoder that needs no training, or why it cannot be had."""

    row: str
    """The published row of the card's table; of a figure, what it is called."""
    published: str = ""
    """Of a figure: the key of the published row that prints its number, if any does."""
    recipe: str = ""
    """Default the card's own."""
    small: str = ""
    """What stands for recipe or encoder where all is to be had on a CPU in minutes."""
    set: dict[str, Any] = {}
    """What is replaced of the recipe, by key."""
    small_set: dict[str, Any] = {}
    """What is replaced of the small one beside that or otherwise; an empty text leaves out what ``set`` says."""
    encoder: str = ""
    why: str = ""
    """Why it cannot be had; a row that says ``small`` still has that."""
    small_why: str = ""
    """Why nothing small can show it."""


class AblationCard(StrictRecord, frozen=True, kw_only=True):
    """A table of the leaderboard's, or a figure with columns of its own, and what gives its rows."""

    rows: list[AblationRow]
    table: str = ""
    figure: TableCard | None = None
    recipe: str = ""
    small: str = ""
    small_set: dict[str, Any] = {}
    """What is replaced of every small recipe, before what its row says."""
    note: str = ""
    small_note: str = ""


class AblationLine(NamedTuple):
    """A row as it is to be had: by trials of a recipe, by an encoder, or not at all; ``why`` then says why."""

    label: str
    published: str
    group: str
    recipe: str = ""
    replaced: Mapping[str, Any] = {}
    encoder: str = ""
    why: str = ""


class Ablation(NamedTuple):
    """A card with the table that it is about, and its rows in that one's order."""

    name: str
    card: AblationCard
    table: TableCard
    lines: Sequence[AblationLine]
    is_small: bool


def load_ablation(name: str, catalogue: Catalogue, *, small: bool = False) -> Ablation:
    """Return an ablation with its rows: those of the small recipes, or of the papers' own.

    Raises UnknownName: there is none of this name, or a row names a recipe, encoder or published row that is none;
    CardError: the card is not as cards must be.
    """
    paths = catalogue.paths(FOLDER)
    if name not in paths:
        raise UnknownName("ablation", name, paths, hint="'stsbench list ablations' lists them")
    card = read_card(paths[name], AblationCard)
    try:
        if bool(card.table) == (card.figure is not None):
            raise CardError("give either 'table' or [figure]")
        lines = [_line(card, row, empty, small=small) for row, empty in _empty_lines(card)]
        for line in lines:
            # Raises UnknownName for what a line names and nobody knows.
            _ = line.published and published_row(line.published)
            _ = line.recipe and catalogue.recipe(line.recipe)
            _ = line.encoder and catalogue.encoder(line.encoder.partition("+")[0])
    except CardError as error:
        raise CardError(f"{paths[name]}: {error}") from error
    return Ablation(name, card, card.figure or read_table_card(card.table), lines, small)


def _empty_lines(card: AblationCard) -> Iterator[tuple[AblationRow, AblationLine]]:
    """The rows of the figure, or of the leaderboard's table each as the card's row of this name says."""
    if card.figure is not None:
        yield from ((row, AblationLine(row.row, row.published, "")) for row in card.rows)
        return
    table = read_table_card(card.table)
    rows = {row.row: row for row in card.rows}
    printed = [
        (facts, group.title or group.section)
        for group in table.groups
        for facts in row_facts(group)
    ]
    names = [facts.row for facts, _ in printed]
    for name in rows:
        if name not in names:
            raise CardError(f"row '{name}' is none of table '{card.table}'{suggest(name, names)}")
    for facts, group in printed:
        if facts.row not in rows:
            raise CardError(
                f"no row for '{facts.row}' of table '{card.table}'; give one, or say 'why' there is none"
            )
        key = f"{table.paper}/{table.table}/{facts.row}"
        yield rows[facts.row], AblationLine(facts.label or facts.row, key, group)


def _line(
    card: AblationCard, row: AblationRow, empty: AblationLine, *, small: bool
) -> AblationLine:
    if sum(map(bool, (row.recipe, row.encoder, row.why))) > 1:
        raise CardError(f"row '{row.row}': give one of 'recipe', 'encoder' and 'why'")
    why = row.small_why or ("" if row.small else row.why) if small else row.why
    if row.encoder and small and not row.small:
        why = why or "an encoder of the paper's own, which the small recipes have no other for"
    if why:
        return empty._replace(why=why)
    if row.encoder:
        return empty._replace(encoder=row.small if small else row.encoder)
    recipe = (row.small or card.small) if small else (row.recipe or card.recipe)
    if not recipe:
        raise CardError(
            f"row '{row.row}': names no {'small ' if small else ''}recipe, and neither does the card"
        )
    replaced = {**row.set, **card.small_set, **row.small_set} if small else row.set
    kept = {key: value for key, value in replaced.items() if not small or value != ""}
    return empty._replace(recipe=recipe, replaced=kept)


NOT_HAD = "×"
"""Behind the name of a row that cannot be had."""


def scored_on(ablation: Ablation, catalogue: Catalogue) -> list[RunPlan]:
    """The tasks that fill an ablation's columns; what is read from the record of a training needs none."""
    tasks: dict[tuple[str, str | None], list[str]] = {}
    for column in TableFiller.of(ablation.table, catalogue).tasks:
        wanted = column.wanted
        if wanted is None or wanted.task in sources().extras:
            continue
        # Probes tell the development score of a test beside its own.
        split = (
            None if wanted.printed == "test" or wanted.task in catalogue.suites() else wanted.split
        )
        tasks.setdefault((wanted.protocol, split), []).append(wanted.task)
    return [
        RunPlan(tasks=",".join(names), protocol=way or None, split=split)
        for (way, split), names in tasks.items()
    ]


def table_beside(
    ablation: Ablation, had: Sequence[Sequence[TrialOutcome]], catalogue: Catalogue
) -> Table:
    """Make the table of what there is of each line: for each column the paper's number, ours, and where both are of one recipe how far they are apart."""
    card = ablation.table
    filler = TableFiller.of(card, catalogue)
    columns = [column for column in filler.columns if column.kind in ("task", "average")]
    printed = [
        filler.published(published_row(line.published)) if line.published else {}
        for line in ablation.lines
    ]
    measured = [_measured(filler, columns, one) for one in had]
    shown = list[TableColumn]()
    for column in columns:
        key, head, is_printed = column.key, column.head, any(column.key in one for one in printed)
        ours = replace(
            column, head=f"{head}, here" if is_printed else head, kind="task", wanted=None
        )
        theirs = replace(ours, key=f"{key} printed", head=f"{head}, paper")
        apart = replace(ours, key=f"{key} apart", head="Δ", kind="delta", better="")
        shown += (
            ([theirs, ours] if ablation.is_small else [theirs, ours, apart])
            if is_printed
            else [ours]
        )
    groups: dict[str, list[Row]] = {}
    for line, one, paper, found in zip(ablation.lines, had, printed, measured, strict=True):
        numbers: Numbers = {**found, **{f"{key} printed": number for key, number in paper.items()}}
        for key in paper.keys() & found.keys():
            numbers[f"{key} apart"] = TableNumber(found[key].value - paper[key].value)
        cells = {column.key: TableCell(measured=numbers.get(column.key)) for column in shown}
        # Added rows say what their training has seen of the tests.
        results = _results(one)
        overlap = EncoderResults("", "", "", None, results).overlap if results else ""
        label = f"{line.label} {NOT_HAD}" if line.why else line.label
        row = Row(
            label=label,
            cells=cells,
            overlap=overlap,
            is_added=True,
            is_listed=True,
            results=results,
        )
        groups.setdefault(line.group, []).append(row)
    return Table(
        name=ablation.name,
        title=card.title,
        paper=sources().papers[card.paper],
        number=number_of(card),
        columns=shown,
        groups=[Group(title=title, rows=rows) for title, rows in groups.items()],
        notes=list(_notes(ablation)),
    )


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


def _results(had: Sequence[TrialOutcome]) -> list[Result]:
    return [result for one in had for result in one.results]


def _measured(
    filler: TableFiller, columns: Sequence[TableColumn], had: Sequence[TrialOutcome]
) -> Numbers:
    results, runs = _results(had), [one.run for one in had if one.run is not None]
    found = filler.measured(EncoderResults("", "", "", None, results)) if results else {}
    for column in columns:
        wanted = column.wanted
        if wanted is not None and wanted.task == "training":
            values = [
                value for run in runs if (value := _of_training(run, wanted.metric)) is not None
            ]
        elif (
            wanted is not None
            and wanted.task in filler.catalogue.suites()
            and wanted.printed == "validation"
        ):
            tasks = filler.catalogue.suites()[wanted.task].tasks
            by_seed: dict[int | None, dict[str, float]] = {}
            for result in results:
                if result.protocol["name"] == wanted.protocol and "dev_accuracy" in result.scores:
                    score = 100 * result.scores["dev_accuracy"]
                    by_seed.setdefault(result.train_seed, {})[result.task] = score
            means = (suite_mean(tasks, scores.get) for scores in by_seed.values())
            values = [mean for mean in means if mean is not None]
        else:
            continue
        if values:
            found[column.key] = TableNumber(*mean_and_deviation(values), seeds=len(values))
    return found


def _of_training(run: TrainedRun, metric: str) -> float | None:
    """A fact of a run's training: the step of the weights that were kept, or what its curve says of that step."""
    chosen = run.chosen
    if chosen is None:
        return None
    if metric == "steps":
        return chosen.step
    points = [
        point
        for point in run.facts["curve"]
        if point.get("step") == chosen.step and metric in point
    ]
    return float(points[0][metric]) if points else None


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What is to be done for an ablation: the trainings of each of its lines, and the runs that these are."""

    ablation: Ablation
    environment: TrialEnvironment
    base: str = ""
    """What trials start from instead of what the recipe names."""
    seeds: Sequence[int] = ()
    """Default the recipe's own; of a small one the first, else 0."""
    also: Mapping[str, Any] = field(default_factory=dict)
    """What is replaced in every line, whatever the line says."""

    @cached_property
    def plans(self) -> list[list[TrainPlan]]:
        """The trainings of each line, one a seed; none where it is not trained; raises as :meth:`TrialEnvironment.plan`."""
        return [self._plans_of(line) if line.recipe else [] for line in self.ablation.lines]

    def _plans_of(self, line: AblationLine) -> list[TrainPlan]:
        own = self.environment.catalogue.recipe(line.recipe).seeds or [0]
        seeds, replaced = (
            self.seeds or (own[:1] if self.ablation.is_small else own),
            {**line.replaced, **self.also},
        )
        return [
            self.environment.plan(line.recipe, replaced, seed=seed, base=self.base)
            for seed in seeds
        ]

    @cached_property
    def trials(self) -> list[Trial]:
        """The runs that these ask for; raises as :func:`plan_trials`."""
        return plan_trials([plan for plans in self.plans for plan in plans])

    def lines_of(self, trial: Trial) -> list[str]:
        """The rows that a run is of."""
        pairs = zip(self.ablation.lines, self.plans, strict=True)
        return [line.label for line, plans in pairs if any(plan in trial.plans for plan in plans)]

    def run_ablation(self, watcher: TrialCallbacks) -> Table:
        """Train what is missing, score all of it, and return the table with the paper's numbers beside."""
        catalogue, had = self.environment.catalogue, list[list[TrialOutcome]]()
        tasks = scored_on(self.ablation, catalogue)
        outcomes = [
            (trial, carry_out_trial(trial, self.environment, tasks, watcher))
            for trial in self.trials
        ]
        for line, plans in zip(self.ablation.lines, self.plans, strict=True):
            had.append(
                [one for trial, one in outcomes if any(plan in trial.plans for plan in plans)]
            )
            if line.encoder:
                # The base is the checkpoint of an encoder whose card names none, or whose own base's card does.
                card = catalogue.encoder(line.encoder.partition("+")[0])
                over = card.params.get("base")
                card = catalogue.encoder(over) if over in catalogue.paths("baselines") else card
                names_one = card.kind not in FROM_CHECKPOINT or {"model", "package"} & {
                    *card.params
                }
                params = {} if names_one or not self.base else {"model": self.base}
                results = score_encoder(
                    line.encoder, self.environment, tasks, watcher.scoring, params=params
                )
                had[-1].append(TrialOutcome(results=results))
        return table_beside(self.ablation, had, catalogue)
