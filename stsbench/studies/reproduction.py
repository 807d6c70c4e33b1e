"""Reproduce the ablations of papers: train and score each row of a printed table.

A card says which recipe, with which values, gives each row. Our numbers are printed beside the
paper's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from stsbench.bench.plan import RunPlan
from stsbench.boards.published.rows import (
    TableCard,
    list_rows,
    look_up_published_row,
    read_sources,
    read_table_card,
)
from stsbench.boards.tables.build import format_table_number
from stsbench.boards.tables.columns import Numbers, TableFiller
from stsbench.boards.tables.table import Group, Row, Table, TableCell, TableColumn, TableNumber
from stsbench.core.catalogue import Catalogue, read_card
from stsbench.core.errors import CardError, Remedy, UnknownName, suggest
from stsbench.core.grouping import group_by
from stsbench.core.toml import StrictRecord
from stsbench.encoders.kinds import lacks_checkpoint
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

ABLATIONS_FOLDER = "trainers/tables"
"""The folder of the cards of ablations, in the project and in folders of a user's own."""


class AblationRow(StrictRecord):
    """A row of an ablation: a recipe, an encoder without training, or a reason for neither."""

    row: str
    """The published row of the card's table; for a figure, the row's label."""
    published: str = ""
    """For a figure, the key of the published row with its number; empty if there is none."""
    recipe: str = ""
    """The recipe to train; empty for the card's own."""
    small: str = ""
    """The recipe or encoder in its place that runs on a CPU in minutes."""
    set: dict[str, Any] = {}
    """The values that replace those of the recipe, by key."""
    small_set: dict[str, Any] = {}
    """Values for the small recipe, in addition to ``set``; an empty text removes a value of it."""
    encoder: str = ""
    """An encoder that needs no training."""
    why: str = ""
    """The reason why the row cannot be reproduced; a row with ``small`` still has a small run."""
    small_why: str = ""
    """The reason why no small recipe can show the row."""


class AblationCard(StrictRecord):
    """An ablation: a table of the leaderboard, or a figure with its own columns, and its rows."""

    rows: list[AblationRow]
    table: str = ""
    figure: TableCard | None = None
    recipe: str = ""
    small: str = ""
    small_set: dict[str, Any] = {}
    """The values that replace those of every small recipe, before those of its row."""
    note: str = ""
    small_note: str = ""


class AblationLine(NamedTuple):
    """A row of the table to make, by trials of a recipe, by an encoder, or not at all.

    Attributes:
        label: The row's label.
        published: The key of the published row; empty if there is none.
        group: The title of the rows' group.
        recipe: The recipe to train; empty if there is none.
        replaced: The values that replace those of the recipe, by key.
        encoder: The encoder to score without training; empty if there is none.
        irreproducible_reason: The reason why the row cannot be reproduced; empty if it can.
    """

    label: str
    published: str
    group: str
    recipe: str = ""
    replaced: Mapping[str, Any] = {}
    encoder: str = ""
    irreproducible_reason: str = ""


class Ablation(NamedTuple):
    """A card with its table, and the rows to make in the table's order.

    Attributes:
        name: The card's name.
        card: The card.
        table: The published table or the figure.
        lines: The rows to make.
        is_small: The rows are made by small recipes, not by the paper's own.
    """

    name: str
    card: AblationCard
    table: TableCard
    lines: Sequence[AblationLine]
    is_small: bool


def load_ablation(name: str, catalogue: Catalogue, *, small: bool = False) -> Ablation:
    """Load an ablation by its name: its card, its table, and a line for each row of the table.

    An ablation is a table of a paper whose rows are made again here. A line says how a row is made:
    by training a recipe, by an encoder that needs no training, or not at all, and why.

    Args:
        name: The name of the card.
        catalogue: The cards of ablations, recipes and encoders.
        small: Make the rows by small recipes, which train in less time than the paper's own.

    Raises:
        UnknownName: The ablation, or a recipe, encoder or published row of it, does not exist.
        CardError: The card is not valid; the message begins with its path.
    """
    paths = catalogue.paths(ABLATIONS_FOLDER)
    if name not in paths:
        remedy = Remedy("list", {"kind": "ablations"})
        raise UnknownName("ablation", name, paths, remedy=remedy)
    card = read_card(paths[name], AblationCard)
    try:
        if bool(card.table) == (card.figure is not None):
            raise CardError("give either 'table' or [figure]")
        # A line begins with label, published row and group, then gets its recipe or encoder.
        lines = [
            _fill_line(card, row, unfilled_line, small=small)
            for row, unfilled_line in _rows_with_unfilled_lines(card)
        ]
        for line in lines:
            _check_names(line, catalogue)
    except CardError as error:
        raise CardError(f"{paths[name]}: {error}") from error
    # The card holds the columns of a figure itself, but only the name of a published table.
    table = card.figure or read_table_card(card.table)
    return Ablation(name, card, table=table, lines=lines, is_small=small)


def _check_names(line: AblationLine, catalogue: Catalogue) -> None:
    """Check that the published row, the recipe and the encoder that a line names exist.

    Args:
        line: The line: how a row of a paper's table is made; a name it does not use is empty.
        catalogue: The cards of recipes and encoders.

    Raises:
        UnknownName: One of the names does not exist.
    """
    if line.published:
        look_up_published_row(line.published)
    # The calls of the catalogue are only checks: they raise UnknownName.
    if line.recipe:
        catalogue.recipe(line.recipe)
    if line.encoder:
        # The name without the parameters that follow a plus sign.
        card_name = line.encoder.partition("+")[0]
        catalogue.encoder(card_name)


def _rows_with_unfilled_lines(
    card: AblationCard,
) -> Iterator[tuple[AblationRow, AblationLine]]:
    """Yield each row of an ablation's card with a line that has only label, published row, group.

    A line says how a row of the paper's table is made. Rows are in the order of the card's figure,
    or of the published table that the card names.

    Args:
        card: The ablation's card, with a row for each row of the table.

    Raises:
        CardError: A row of the card is not in the table, or one of the table is not in the card.
    """
    if card.figure is not None:
        for row in card.rows:
            yield row, AblationLine(row.row, row.published, group="")
        return
    table = read_table_card(card.table)
    rows_by_name = {row.row: row for row in card.rows}
    # Each row of the table, with the title of its group of rows.
    published_rows = [
        (published, group.title or group.section)
        for group in table.groups
        for published in list_rows(group)
    ]
    names = [published.row for published, _ in published_rows]
    for name in rows_by_name:
        if name not in names:
            raise CardError(f"row '{name}' is none of table '{card.table}'{suggest(name, names)}")
    for published, group_title in published_rows:
        if published.row not in rows_by_name:
            raise CardError(
                f"no row for '{published.row}' of table '{card.table}'; "
                "give one, or say 'why' there is none"
            )
        # The key by which the published row is looked up.
        key = f"{table.paper}/{table.table}/{published.row}"
        label = published.label or published.row
        yield rows_by_name[published.row], AblationLine(label, published=key, group=group_title)


def _fill_line(
    card: AblationCard, row: AblationRow, empty_line: AblationLine, *, small: bool
) -> AblationLine:
    """Fill in how a row of a paper's table is made: a recipe, an encoder, or why it is not made.

    Args:
        card: The ablation's card, with the recipe of rows that name none.
        row: The row of the card; what it does not give is empty. ``why`` and ``small_why`` are
            reasons why it is not made, by the paper's recipe and by a small one; ``set`` and
            ``small_set`` are values that replace those of the recipe. ``small`` is a small recipe,
            or if the row has an encoder, the encoder that small runs take.
        empty_line: The line, which says how a row is made here, with label, published row and group
            only; it is not changed.
        small: Make the row by a small recipe.

    Raises:
        CardError: The row has more than one of recipe, encoder and reason; or neither the row nor
            the card names a recipe.
    """
    if sum(map(bool, (row.recipe, row.encoder, row.why))) > 1:
        raise CardError(f"row '{row.row}': give one of 'recipe', 'encoder' and 'why'")
    reason = row.why
    if small:
        # A row that the paper's recipes cannot reproduce may still have a small recipe.
        reason = row.small_why or ("" if row.small else row.why)
        if row.encoder and not (row.small or reason):
            reason = "an encoder of the paper's own, which the small recipes have no other for"
    if reason:
        return empty_line._replace(irreproducible_reason=reason)
    if row.encoder:
        return empty_line._replace(encoder=row.small if small else row.encoder)
    recipe = row.recipe or card.recipe
    if small:
        recipe = row.small or card.small
    if not recipe:
        kind = "small recipe" if small else "recipe"
        raise CardError(f"row '{row.row}': names no {kind}, and neither does the card")
    if not small:
        return empty_line._replace(recipe=recipe, replaced=dict(row.set))
    values = {**row.set, **card.small_set, **row.small_set}
    # An empty text among the small values means: leave the small recipe's own value.
    replaced = {key: value for key, value in values.items() if value != ""}
    return empty_line._replace(recipe=recipe, replaced=replaced)


IRREPRODUCIBLE_MARK = "×"
"""The symbol behind the label of a row that cannot be reproduced."""


def plan_scorings(ablation: Ablation, catalogue: Catalogue) -> list[RunPlan]:
    """Return plans to score the tasks that fill the columns of an ablation's table.

    Columns that are filled from the record of a training, such as its steps, need no task.

    Args:
        ablation: The ablation, whose table has the columns.
        catalogue: The cards.

    Returns:
        One plan, without encoders, for each protocol (way of scoring) and split.
    """
    # The keys are pairs of protocol and split; None is the task's own split.
    tasks_by_protocol: dict[tuple[str, str | None], list[str]] = {}
    for column in TableFiller.from_card(ablation.table, catalogue).task_columns:
        spec = column.spec
        # Extras have no task to score: means that only papers give, and facts of a ``training``.
        if spec is None or spec.task in read_sources().extras:
            continue
        # A test score needs no split to be named, nor does a suite (named list of tasks): its
        # tasks report a development score beside the test score.
        is_default_split = spec.published_split == "test" or spec.task in catalogue.suites()
        split = None if is_default_split else spec.split
        tasks_by_protocol.setdefault((spec.protocol, split), []).append(spec.task)
    return [
        RunPlan(tasks=",".join(tasks), protocol=protocol or None, split=split)
        for (protocol, split), tasks in tasks_by_protocol.items()
    ]


def make_comparison_table(
    ablation: Ablation, outcomes_by_line: Sequence[Sequence[TrialOutcome]], catalogue: Catalogue
) -> Table:
    """Make the table of an ablation: for each column of the paper's table its numbers and ours.

    If ours are made by the paper's own recipes, a third column has the differences. The keys of
    columns with the paper's numbers end in ``printed``, those of differences in ``apart``.

    Args:
        ablation: The ablation: a paper's table, and for each row a line that says how it is made.
        outcomes_by_line: For each line the outcomes of its trials, one per seed.
        catalogue: The cards.
    """
    card = ablation.table
    filler = TableFiller.from_card(card, catalogue)
    columns = [column for column in filler.columns if column.kind in ("task", "average")]
    # For each line the paper's numbers by the key of the column.
    published_by_line = [
        filler.published_numbers(look_up_published_row(line.published)) if line.published else {}
        for line in ablation.lines
    ]
    published_keys = {key for published in published_by_line for key in published}
    # Each column of the paper becomes one to three.
    table_columns: list[TableColumn] = []
    for column in columns:
        table_columns += _make_comparison_columns(
            column, is_published=column.key in published_keys, is_small=ablation.is_small
        )
    rows_by_group: dict[str, list[Row]] = {}
    for line, outcomes, published in zip(
        ablation.lines, outcomes_by_line, published_by_line, strict=True
    ):
        measured = _compute_measured(filler, columns, outcomes)
        numbers = _join_numbers(measured, published)
        cells = {
            column.key: TableCell(measured=numbers.get(column.key)) for column in table_columns
        }
        row = _make_row(line, cells, _results_of_trials(outcomes))
        rows_by_group.setdefault(line.group, []).append(row)
    return Table(
        name=ablation.name,
        title=card.title,
        paper=read_sources().papers[card.paper],
        paper_number=format_table_number(card),
        columns=table_columns,
        groups=[Group(title=title, rows=rows) for title, rows in rows_by_group.items()],
        notes=list(_iter_notes(ablation)),
    )


def _make_row(line: AblationLine, cells: Mapping[str, TableCell], results: Sequence[Result]) -> Row:
    """Make a row of an ablation's table; a symbol marks one that cannot be reproduced.

    Args:
        line: The line: the row's label, and how its scores were made.
        cells: The row's cells by the key of the column.
        results: The results behind the cells; empty if there are none.
    """
    label = line.label
    if line.irreproducible_reason:
        label += f" {IRREPRODUCIBLE_MARK}"
    return Row(
        label=label,
        cells=cells,
        # How training text overlaps test data, the worst of all results.
        overlap=_group_results(results).overlap if results else "",
        is_added=True,
        # Shown even without a number.
        is_listed=True,
        results=results,
    )


def _join_numbers(measured: Numbers, published: Numbers) -> Numbers:
    """Join our numbers of a row, the paper's, and their differences, ours minus the paper's.

    Our numbers keep their keys; those of the paper's numbers get the suffix ``printed``, those of
    differences ``apart``.

    Args:
        measured: Our numbers by the key of the column, times 100.
        published: The paper's numbers by the key of the column, times 100.
    """
    numbers: Numbers = dict(measured)
    for key, number in published.items():
        numbers[f"{key} printed"] = number
        if key in measured:
            numbers[f"{key} apart"] = TableNumber(measured[key].value - number.value)
    return numbers


def _group_results(results: Sequence[Result]) -> EncoderResults:
    """Return one line's results as those of an encoder, whose name and card are not needed."""
    return EncoderResults(encoder="", label="", state_tag="", card=None, results=results)


def _make_comparison_columns(
    column: TableColumn, *, is_published: bool, is_small: bool
) -> list[TableColumn]:
    """Return the columns that compare the paper's numbers of one column with ours.

    They are the paper's column, ours and the difference; without published numbers only ours. Small
    recipes get no difference, which would mean nothing. Our column keeps the key of the paper's.

    Args:
        column: The column of the paper's table: of a task's scores, or their average.
        is_published: Whether any row has a published number in it.
        is_small: Whether our numbers are made by small recipes, not by the paper's own.
    """
    # ``spec`` says which scores fill a column; it is None, as numbers are computed here.
    if not is_published:
        return [replace(column, kind="task", spec=None)]
    measured = replace(column, head=f"{column.head}, here", kind="task", spec=None)
    published = replace(measured, key=f"{column.key} printed", head=f"{column.head}, paper")
    if is_small:
        return [published, measured]
    difference = replace(measured, key=f"{column.key} apart", head="Δ", kind="delta", better="")
    return [published, measured, difference]


def _iter_notes(ablation: Ablation) -> Iterator[str]:
    """Yield the notes under an ablation's table.

    First come the reasons why rows cannot be reproduced, then the notes of the paper's table and of
    the ablation's card, last an explanation of small recipes.
    """
    card = ablation.card
    for reason, lines in group_by(ablation.lines, lambda line: line.irreproducible_reason).items():
        if reason:
            labels = "; ".join(line.label for line in lines)
            yield f"{IRREPRODUCIBLE_MARK} {labels}: {reason}"
    # The note of a paper's table with a column Δ (``delta``) is on that Δ, which is another here.
    table_note = "" if ablation.table.delta else ablation.table.note
    small_note = card.small_note if ablation.is_small else ""
    yield from filter(None, [table_note, card.note, small_note])
    if ablation.is_small:
        yield (
            "Here: small recipes on another base and text than the paper's. "
            "Compare how rows differ, not the scores."
        )


def _results_of_trials(outcomes: Sequence[TrialOutcome]) -> list[Result]:
    """Return the results of all trials of a line, one after the other."""
    return [result for outcome in outcomes for result in outcome.results]


def _compute_measured(
    filler: TableFiller, columns: Sequence[TableColumn], outcomes: Sequence[TrialOutcome]
) -> Numbers:
    """Compute our numbers of one row of an ablation's table, by column.

    A column has scores of tasks; or numbers from the records of trainings, if its task is called
    ``training``; or mean development scores of a suite's tasks.

    Args:
        filler: Computes the numbers of columns with scores of tasks.
        columns: The columns.
        outcomes: The outcomes of the row's trials, one per seed, or of its encoder.

    Returns:
        The numbers by the key of the column; a column without a number is absent.
    """
    results = _results_of_trials(outcomes)
    runs = [outcome.run for outcome in outcomes if outcome.run is not None]
    numbers = filler.measured_numbers(_group_results(results)) if results else {}
    suites = filler.catalogue.suites()
    for column in columns:
        # Which scores fill the column; None if they are not defined by a task.
        spec = column.spec
        if spec is None:
            continue
        if spec.task == "training":
            run_values = [_curve_number(run, spec.metric) for run in runs]
            values = [value for value in run_values if value is not None]
        elif spec.task in suites and spec.published_split == "validation":
            values = _development_means(results, suites[spec.task].tasks, spec.protocol)
        else:
            continue
        if values:
            numbers[column.key] = TableNumber(*mean_and_deviation(values), seeds=len(values))
    return numbers


def _development_means(
    results: Sequence[Result], tasks: Sequence[str], protocol: str
) -> list[float]:
    """Compute for each training seed the mean development score over tasks, times 100.

    Args:
        results: The results of one encoder or recipe, of all its seeds.
        tasks: The tasks of the mean; a seed that lacks the score of one has no mean.
        protocol: The name of the protocol; results of others are skipped.
    """
    scores_by_seed: dict[int | None, dict[str, float]] = {}
    for result in results:
        if result.protocol["name"] == protocol and "dev_accuracy" in result.scores:
            scores = scores_by_seed.setdefault(result.train_seed, {})
            scores[result.task] = 100 * result.scores["dev_accuracy"]
    means = [suite_mean(tasks, scores.get) for scores in scores_by_seed.values()]
    return [mean for mean in means if mean is not None]


def _curve_number(run: TrainedRun, metric: str) -> float | None:
    """Return a number of the validation by which a training's weights were selected.

    Args:
        run: The trained run; its record has the curve, a list of validations, each the numbers of
            one step by name.
        metric: ``steps`` for the number of the step, or the name of another number of the
            validation.

    Returns:
        The number; None if no weights were selected, or if there is no number of that name.
    """
    # The step whose weights were selected; None if the last ones were kept without a score.
    chosen = run.chosen
    if chosen is None:
        return None
    if metric == "steps":
        return chosen.step
    for point in run.record["curve"]:
        if point.get("step") == chosen.step and metric in point:
            return float(point[metric])
    return None


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """The trainings of each line of an ablation, and the runs that these need.

    Attributes:
        ablation: The ablation to reproduce.
        environment: The devices, folders and catalogue to use.
        base: The checkpoint from which trials start; empty for the recipes' own.
        seeds: The seeds of training; empty for the recipe's own, of which only the first counts
            if the recipe is small, or 0 if it has none.
        extra_values: The values that replace those of every line's recipe, by key.
    """

    ablation: Ablation
    environment: TrialEnvironment
    base: str = ""
    seeds: Sequence[int] = ()
    extra_values: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def plans_by_line(self) -> list[list[TrainPlan]]:
        """The plans of trainings for each line of the ablation, one per seed.

        A line says how a row of a paper's table is made; without a recipe it needs no training.
        """
        return [self._plans_of(line) if line.recipe else [] for line in self.ablation.lines]

    def _plans_of(self, line: AblationLine) -> list[TrainPlan]:
        """Return the plans of the trainings of a line's recipe, one per seed.

        The seeds are those that the user requests, or else the recipe's; of a small recipe only the
        first.

        Args:
            line: The line: a recipe, and the values that replace its own. The user's further values
                (``extra_values``) replace those of every line.
        """
        recipe_seeds = self.environment.catalogue.recipe(line.recipe).seeds or [0]
        if self.ablation.is_small:
            recipe_seeds = recipe_seeds[:1]
        return [
            self.environment.plan(
                line.recipe, {**line.replaced, **self.extra_values}, seed=seed, base=self.base
            )
            for seed in self.seeds or recipe_seeds
        ]

    @cached_property
    def trials(self) -> list[Trial]:
        """The training runs that the plans of all lines request, each run once."""
        return plan_trials([plan for plans in self.plans_by_line for plan in plans])

    def lines_of(self, trial: Trial) -> list[str]:
        """Return the labels of the lines that need a run."""
        return [
            line.label
            for line, plans in zip(self.ablation.lines, self.plans_by_line, strict=True)
            if trial.is_requested_by(plans)
        ]

    def run_ablation(self, callbacks: TrialCallbacks) -> Table:
        """Make a paper's table again: train the missing runs, score them, and return the table.

        Each row of the table has a line. A line plans trainings, one per seed; or it names an
        encoder that needs no training; or it cannot be reproduced, and gets no outcome. A trial is
        a training run; it is carried out once, even if several lines plan it. Failures are reported
        to the callbacks.

        Args:
            callbacks: The functions to call meanwhile.
        """
        # The tasks to score, as plans of runs without encoders.
        scorings = plan_scorings(self.ablation, self.environment.catalogue)
        trial_outcomes = [
            (trial, carry_out_trial(trial, self.environment, scorings, callbacks))
            for trial in self.trials
        ]
        outcomes_by_line = []
        for line, plans in zip(self.ablation.lines, self.plans_by_line, strict=True):
            outcomes = [
                outcome for trial, outcome in trial_outcomes if trial.is_requested_by(plans)
            ]
            if line.encoder:
                results = score_encoder(
                    line.encoder,
                    self.environment,
                    scorings,
                    callbacks=callbacks.scoring,
                    params=self._encoder_params(line.encoder),
                )
                outcomes.append(TrialOutcome(results=results))
            outcomes_by_line.append(outcomes)
        return make_comparison_table(self.ablation, outcomes_by_line, self.environment.catalogue)

    def _encoder_params(self, encoder: str) -> dict[str, str]:
        """Return the parameter that gives an encoder the user's checkpoint, if its card names none.

        Args:
            encoder: The encoder's name, perhaps with replaced parameters after ``+``.

        Returns:
            The checkpoint (``self.base``) by the name ``model``; empty if the user names none, or
            if the encoder needs none.
        """
        catalogue = self.environment.catalogue
        card = catalogue.encoder(encoder.partition("+")[0])
        # An encoder that changes the embeddings of another one (``base``) takes its checkpoint.
        baseline = card.params.get("base")
        if baseline in catalogue.paths("baselines"):
            card = catalogue.encoder(baseline)
        return {"model": self.base} if self.base and lacks_checkpoint(card) else {}
