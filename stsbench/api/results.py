"""Results and comparisons as objects that a notebook shows as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

import msgspec

from stsbench.bench.run import check_writable
from stsbench.boards.render.figures import (
    draw_comparison,
    make_comparison_layouts,
    make_comparison_records,
    render_comparison,
)
from stsbench.boards.render.html import render_notebook_layout, render_notebook_table
from stsbench.core.catalogue import CATALOGUE, Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.core.grouping import group_by
from stsbench.core.parameters import (
    MARGIN,
    NAME,
    NAMES,
    PATH,
    SEED,
    SWITCH,
    ArgumentKind,
    validate_arguments,
)
from stsbench.core.wording import as_one_line, format_count, format_repr, format_some
from stsbench.data.task import expand_names, suites_within
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.plots.labels import figure_width
from stsbench.results.folder import read_item_columns, write_result
from stsbench.results.groups import EncoderResults, group_by_encoder, seed_means
from stsbench.results.record import Result, items_path, protocol_key
from stsbench.results.signature import ComparedPart, compared_part, format_signature
from stsbench.significance.comparison import compare
from stsbench.significance.comparison_record import Comparison, TestSettings
from stsbench.significance.descriptions import describe_comparison
from stsbench.significance.means import compute_mean_interval

if TYPE_CHECKING:
    import pandas as pd

    from stsbench.plots.chart import Chart


DEFAULT_SPLITS = ("test", "all")
"""The splits that tasks are scored on, which heads of columns need not name."""


class GridCell(NamedTuple):
    """The score of an encoder in one column, from 0 to 1."""

    score: float
    """The mean over seeds."""
    deviation: float | None
    """The deviation over seeds; None for a single seed."""
    interval: tuple[float, float] | None
    """The 95% interval; None if per-item columns are missing."""


class GridColumn(NamedTuple):
    """One task scored in one way, or the mean over several of them."""

    head: str
    parts: Sequence[ComparedPart]
    """The first part of the scores' signature for each task."""

    def make_cell(self, results: Sequence[Result]) -> GridCell | None:
        """Return an encoder's mean score in the column, its deviation over seeds and interval.

        The column is of one task, or of the mean over several: ``self.parts`` says for each what
        split, protocol, data and card it is scored with.

        Args:
            results: All results of the encoder.

        Returns:
            The cell, with numbers from 0 to 1; None unless all tasks of the column were scored,
            with the same seeds.
        """
        # For each task of the column, the results that were scored as the column says, one per
        # seed: the same results may have been added twice.
        results_by_task = [
            list(
                {
                    result.seeds: result for result in results if compared_part(result) == part
                }.values()
            )
            for part in self.parts
        ]
        # One mean over the tasks per seed; empty if a task is missing, or has other seeds.
        mean_by_seed = seed_means(results_by_task)
        if not mean_by_seed:
            return None
        results_of_column = [result for task_results in results_by_task for result in task_results]
        # A single result stores its interval; for a mean it is computed from the per-item columns.
        if len(results_of_column) == 1:
            interval: tuple[float, float] | None = results_of_column[0].interval
        else:
            interval = compute_mean_interval(results_by_task)
        mean, deviation = mean_and_deviation(mean_by_seed)
        return GridCell(mean, deviation, interval)


def make_grid_columns(
    results: Sequence[Result], catalogue: Catalogue, *, means: bool = True
) -> list[GridColumn]:
    """Return the columns of a table of results: tasks first, then means over tasks.

    There is a column for each task, or several if the task was scored in several ways: on several
    splits, by several protocols, or with several versions of its data or card. The head of a column
    says only what distinguishes it from the other columns of its task.

    A suite is a named list of tasks. There is a mean for each suite with results on all of its
    tasks. If there is no such suite, there is a mean for each protocol with several tasks.

    Args:
        results: The results of any encoders.
        catalogue: The cards, which define the suites.
        means: Add the columns of means.
    """
    # Each says what task was scored, and how: its split, protocol, data and card.
    parts = list(dict.fromkeys(map(compared_part, results)))
    # By part without its data and card: the number of versions of these.
    n_versions = Counter(map(_without_version, parts))
    # By task and split: the number of protocols. Each key of n_versions is of another one.
    n_protocols = Counter((part.task, part.split) for part in n_versions)
    # A head need not name ``test`` or ``all`` unless its task was scored on both.
    n_default_splits = Counter(task for task, split in n_protocols if split in DEFAULT_SPLITS)
    columns = []
    for part in parts:
        head = part.task
        if _shown_split(part) or n_default_splits[part.task] > 1:
            head += f" ({part.split})"
        if n_protocols[part.task, part.split] > 1:
            head += f", {part.protocol_name}"
        if n_versions[_without_version(part)] > 1:
            head += f", data and card {part.data[:6]} {part.task_card[:6]}"
        columns.append(GridColumn(head, [part]))
    if means:
        columns += _mean_columns(parts, catalogue)
    return columns


def _without_version(part: ComparedPart) -> ComparedPart:
    """Return the first part of a signature without the version of the data and the card."""
    return part._replace(n=0, data="", task_card="")


def _shown_split(part: ComparedPart) -> str:
    """Return the split of a score; empty if it is a usual one, ``test`` or ``all``."""
    return "" if part.split in DEFAULT_SPLITS else part.split


def _mean_columns(parts: Sequence[ComparedPart], catalogue: Catalogue) -> Iterator[GridColumn]:
    """Yield columns of means over tasks that are scored alike: by one protocol, on the same split.

    A suite is a named list of tasks, some of which have a common mean (``suite.average``). There is
    a column for each suite all of whose tasks are scored alike. Tasks that contain no suite have
    one column with the mean over them all.

    Args:
        parts: How each task was scored: task, split, protocol, data and card.
        catalogue: The cards, which define the suites.
    """
    groups = _group_averageable(parts)
    for group in groups:
        part_by_task = {part.task: part for part in group}
        if len(part_by_task) < len(group):
            # A task has results on two versions of its data or card, of which a mean could have
            # only one.
            continue
        suites = suites_within(list(part_by_task), catalogue).values()
        for suite in suites:
            if suite.average and len(suite.tasks) > 1:
                suite_parts = [part_by_task[task] for task in suite.tasks]
                yield GridColumn(f"mean of {suite.name}", suite_parts)
        # Protocols of one name may differ in other fields.
        n_protocols = len({part.protocol for part in group})
        if not suites and len(group) > 1 and n_protocols == 1:
            # The name of the protocol distinguishes this mean from those over other tasks.
            protocol = f", {group[0].protocol_name}" if len(groups) > 1 else ""
            yield GridColumn(f"mean of {len(group)}{protocol}", group)


def _group_averageable(parts: Sequence[ComparedPart]) -> list[list[ComparedPart]]:
    """Group scored tasks so that the tasks of a group may have a common mean.

    The tasks of a group were scored by protocols of one name, on the same split (``test`` and
    ``all`` count as the same). The other fields of these protocols may differ, because tasks may
    fix some of them. But if any task was scored twice by protocols of this name, only the other
    fields distinguish the two: then they must be equal within a group.

    Args:
        parts: How each task was scored: task, split, protocol, data and card.
    """
    counts = Counter((part.task, part.protocol_name) for part in parts)
    ambiguous_names = {name for (_, name), count in counts.items() if count > 1}

    def group_key(part: ComparedPart) -> tuple[object, ...]:
        # ``protocol`` has all fields; the shown split is empty for ``test`` and ``all``.
        is_ambiguous = part.protocol_name in ambiguous_names
        return (part.protocol_name, part.protocol if is_ambiguous else (), _shown_split(part))

    return list(group_by(parts, group_key).values())


def render_grid(
    columns: Sequence[GridColumn],
    encoder_groups: Sequence[EncoderResults],
    notes: Sequence[str] = (),
) -> str:
    """Return the HTML of a table with a row per encoder and a column per task or mean.

    A cell of the table shows the score times 100, its deviation over seeds and, on a second line,
    its 95% interval. It shows a dash if the encoder has no such score.

    Args:
        columns: The columns of scores.
        encoder_groups: The results of each encoder.
        notes: Lines below the table.
    """
    rows = []
    for encoder_group in encoder_groups:
        cells = [_format_grid_cell(column.make_cell(encoder_group.results)) for column in columns]
        rows.append([as_one_line(encoder_group.name), *cells])
    return render_notebook_table(["encoder", *(column.head for column in columns)], rows, notes)


def _format_grid_cell(cell: GridCell | None) -> str:
    """Return the text of a cell: a score times 100, with its deviation over seeds and interval.

    Args:
        cell: The score, from 0 to 1; None for no score, which is shown as a dash. Its deviation is
            None for a single seed, its interval None if it cannot be computed.
    """
    if cell is None:
        return "–"
    text = f"{100 * cell.score:.2f}"
    if cell.deviation is not None:
        text += f"±{100 * cell.deviation:.2f}"
    if cell.interval:
        low, high = cell.interval
        text += f"\n{100 * low:.2f} to {100 * high:.2f}"
    return text


@dataclass(frozen=True, kw_only=True, repr=False)
class EncoderComparison(Comparison):
    """A comparison: ``differences`` by task and on means, and ``notes`` on what was left out.

    Its text names the significant differences; docs/statistics.md describes the tests.
    """

    @property
    def sentences(self) -> list[str]:
        """The significant differences of each pair of encoders, as text."""
        return describe_comparison(self)

    def __repr__(self) -> str:
        """Return the sentences and the notes."""
        return "\n".join([*self.sentences, *self.notes])

    def _repr_html_(self) -> str:
        return "\n".join(map(render_notebook_layout, make_comparison_layouts(self)))

    def to_frame(self) -> pd.DataFrame:
        """Return the differences as a DataFrame, one per line; scores are never times 100."""
        import pandas as pd

        return pd.DataFrame.from_records(make_comparison_records(self))

    def to_markdown(self) -> str:
        """Return a table for each pair of encoders, in markdown."""
        return render_comparison(self, fmt="markdown")

    def to_latex(self) -> str:
        """Return a table for each pair of encoders, in LaTeX."""
        return render_comparison(self, fmt="latex")

    def plot(self, *, width: str | float | None = None) -> Chart:
        """Draw each difference between encoders as a dot with its 95% interval, by task.

        A difference that is not significant is a ring.

        Args:
            width: The width of the figure: ``column`` (3.3 inches), ``page`` (6.75 inches, the
                default), or a number of inches, cm or mm, such as ``8.4cm``.

        Raises:
            DataError: There is no paired test for any of the results, and so nothing to draw.
            StsbenchError: matplotlib is not installed (extra ``plots``).
        """
        with figure_width(width):
            return draw_comparison(self)


@validate_arguments(
    "compare",
    tasks=NAMES,
    protocol=NAME,
    seed=SEED,
    independent=SWITCH,
    margin=MARGIN,
    plan=MARGIN,
    all_pairs=SWITCH,
)
def build_comparison(
    encoders: Mapping[str, Sequence[Result]],
    catalogue: Catalogue,
    *,
    tasks: str | Sequence[str] | None = None,
    protocol: str | None = None,
    seed: int = 0,
    independent: bool = False,
    margin: float | None = None,
    plan: float | None = None,
    all_pairs: bool = False,
) -> EncoderComparison:
    """Compare encoders with the first one, or every two of them, and return the differences.

    Args:
        encoders: The results of each encoder by its printed name.
        catalogue: The cards to look tasks and suites up in.
        tasks: Compare only these tasks and suites.
        protocol: Compare only results of this protocol.
        seed: The seed of the random draws of the tests.
        independent: Whether to treat items that share a sentence as independent.
        margin: The largest difference that does not matter, in points (hundredths of a score).
        plan: A difference in points, for which the needed number of items and seeds is computed.
        all_pairs: Whether to compare every two encoders.

    Raises:
        StsbenchError: There are fewer than two encoders, or nothing that two can be compared on.
    """
    if len(encoders) < 2:
        only_encoder = f"; there is '{next(iter(encoders))}' alone" if encoders else ""
        raise StsbenchError(f"compare needs at least two encoders{only_encoder}")
    # The tests take differences as scores from 0 to 1, not as points.
    settings = TestSettings(
        seed=int(seed),
        dependence="none" if independent else "sentences",
        margin=None if margin is None else float(margin) / 100,
        plan=None if plan is None else float(plan) / 100,
        all_pairs=bool(all_pairs),
    )
    # Suites are replaced by their tasks; None compares all tasks.
    task_names = expand_names(tasks, catalogue) if tasks is not None else None
    suites = {name: suite.tasks for name, suite in catalogue.suites().items()}
    comparison = compare(
        encoders, tasks=task_names, protocol=protocol, settings=settings, suites=suites
    )
    # The same comparison, as an object that a notebook shows as tables.
    return EncoderComparison(**{**vars(comparison), "titles": _task_titles(comparison, catalogue)})


def _task_titles(comparison: Comparison, catalogue: Catalogue) -> dict[str, str]:
    """Return the titles of the compared tasks, by task; tasks without a card have none."""
    tasks_with_card = {*catalogue.paths("tasks")}
    return {
        difference.task: catalogue.task(difference.task).name
        for difference in comparison.differences
        if difference.task in tasks_with_card
    }


MAX_ROWS = 20
"""The maximum number of encoders that a notebook shows; the intervals of more take long."""


class FailedCell(NamedTuple):
    """An encoder or task that could not be scored, and the error."""

    what: str
    error: Exception

    def __str__(self) -> str:
        """Return the failure in one line."""
        return f"{self.what}: {as_one_line(self.error) or type(self.error).__name__}"


class Results(Sequence[Result]):
    """An immutable sequence of :class:`stsbench.Result` of one encoder or several.

    :func:`stsbench.evaluate` and :func:`stsbench.read_results` return it. A slice of it and its sum
    with other Results are Results too.
    """

    @validate_arguments(
        results=ArgumentKind(
            lambda value: isinstance(value, Iterable), expected="a sequence of Result"
        ),
        catalogue=CATALOGUE,
    )
    def __init__(
        self,
        results: Iterable[Result] = (),
        *,
        failures: Iterable[FailedCell] = (),
        catalogue: Catalogue | None = None,
    ) -> None:
        """Store results of any encoders and tasks.

        Args:
            results: The results.
            failures: The encoders and tasks that could not be scored.
            catalogue: The cards of encoders, tasks and suites.

        Raises:
            StsbenchError: An element is no Result, or two encoders have the same name and nothing
                distinguishes their results.
        """
        self._results = tuple(results)
        self.failures = tuple(failures)
        self._catalogue = catalogue or Catalogue()
        # For each cell (an encoder on a task, by a protocol, with its seeds), the hash of its value
        # per scored item. If it differs within a cell, two encoders have one name. Results of
        # encoders with a fingerprint are not checked: it distinguishes the encoders.
        items_hash_by_cell: dict[tuple[object, ...], str] = {}
        for result in self._results:
            if not isinstance(result, Result):
                raise StsbenchError(
                    f"Results: {format_repr(result)} is not a Result; "
                    "give what evaluate or read_results returns"
                )
            if result.fingerprint is not None:
                continue
            cell = (
                result.encoder,
                result.task,
                result.split,
                protocol_key(result.protocol),
                result.data,
                *result.seeds,
            )
            # setdefault stores the hash of the cell's first result, and returns it for later ones.
            if items_hash_by_cell.setdefault(cell, result.items) != result.items:
                raise StsbenchError(
                    f"two encoders are called '{result.encoder}', and nothing tells their results "
                    f"on {result.task} apart; give evaluate a name= for each"
                )

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self._results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        """Return the Result at an index, or Results, without failures, for a slice.

        Raises:
            StsbenchError: The index is a text, as if these were a dict by encoder or task. The
                message says how to select those results.
        """
        if isinstance(index, str):
            raise StsbenchError(
                "Results are taken by index; those of one encoder or task: "
                f"[result for result in results if result.encoder == {index!r}]"
            )
        selected = self._results[index]
        if isinstance(selected, tuple):
            return Results(selected, catalogue=self._catalogue)
        return selected

    def __add__(self, other: object) -> Results:
        """Return the results of both; cards are looked up in the first's catalogue."""
        if not isinstance(other, Results):
            return NotImplemented
        return Results(
            [*self, *other], failures=[*self.failures, *other.failures], catalogue=self._catalogue
        )

    @property
    def encoders(self) -> list[str]:
        """The names of the encoders in tables; each state of an encoder's weights has its own."""
        return [encoder_group.name for encoder_group in self.runs]

    @property
    def tasks(self) -> list[str]:
        """The tasks, each once."""
        return list(dict.fromkeys(result.task for result in self))

    @cached_property
    def runs(self) -> list[EncoderResults]:
        """The results by encoder; several training seeds are one encoder."""
        return group_by_encoder(self._results, self._catalogue)

    def __repr__(self) -> str:
        """Return one line: the numbers of results, encoders and tasks, and the first encoders."""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        if not self:
            return f"<Results, none{failed}>"
        return (
            f"<Results, {format_count(len(self), 'result')}{failed}: "
            f"{format_count(len(self.runs), 'encoder')} ({format_some(self.encoders)}) "
            f"on {format_count(len(self.tasks), 'task')}>"
        )

    def _repr_html_(self) -> str:
        """Return the HTML of a table of all scores, which a notebook shows for these results."""
        if not self:
            # The first note is the text of repr without its angle brackets.
            notes = [repr(self)[1:-1], *map(str, self.failures)]
            return render_grid(columns=[], encoder_groups=[], notes=notes)
        notes = ["scores are times 100, with their 95% intervals below"]
        n_hidden = len(self.runs) - MAX_ROWS
        if n_hidden > 0:
            notes.append(f"and {format_count(n_hidden, 'encoder')} more")
        notes += [f"failed: {failure}" for failure in self.failures]
        columns = make_grid_columns(self._results, self._catalogue)
        return render_grid(columns, self.runs[:MAX_ROWS], notes)

    @validate_arguments()
    def to_frame(self, *, scores: bool = False) -> pd.DataFrame:
        """Return the results as a DataFrame, one row per Result in their order.

        The columns are ``FRAME_COLUMNS``: fields of a Result, the bounds ``low`` and ``high`` of
        its 95% interval (not times 100), and ``signature``, a line that says how it was scored.

        Args:
            scores: Add a column for each further number that was measured, such as
                ``pearson.all``.
        """
        import pandas as pd

        rows = []
        for result in self:
            row = {column: getattr(result, column, None) for column in FRAME_COLUMNS}
            row["protocol"] = result.protocol["name"]
            row["low"], row["high"] = result.interval
            row["signature"] = format_signature([result])
            if scores:
                row |= result.scores
            rows.append(row)
        # Rows name their columns; without any row they have to be named.
        columns = None if self else FRAME_COLUMNS
        return pd.DataFrame(rows, columns=columns)

    @validate_arguments()
    def compare(
        self,
        *,
        tasks: str | Sequence[str] | None = None,
        protocol: str | None = None,
        seed: int = 0,
        independent: bool = False,
        margin: float | None = None,
        plan: float | None = None,
        all_pairs: bool = False,
    ) -> EncoderComparison:
        """Compare the encoders of these results with the first one, or every two of them.

        The arguments are those of :func:`stsbench.compare`; ``margin`` and ``plan`` are differences
        in points.
        """
        results_by_name = {group.name: group.results for group in self.runs}
        return build_comparison(
            results_by_name,
            self._catalogue,
            tasks=tasks,
            protocol=protocol,
            seed=seed,
            independent=independent,
            margin=margin,
            plan=plan,
            all_pairs=all_pairs,
        )

    @validate_arguments()
    def plot(self, *, width: str | float | None = None) -> Chart:
        """Draw each score as a dot with its 95% interval, by task.

        Args:
            width: The width of the figure: ``column`` (3.3 inches), ``page`` (6.75 inches, the
                default), or a number of inches, cm or mm, such as ``8.4cm``.

        Raises:
            StsbenchError: matplotlib is not installed (extra ``plots``).
        """
        from stsbench.plots.draw import DotPoint, draw_dots

        dots = []
        for column in make_grid_columns(self._results, self._catalogue):
            for encoder_group in self.runs:
                cell = column.make_cell(encoder_group.results)
                if cell is None:
                    continue
                interval = None
                if cell.interval:
                    low, high = cell.interval
                    interval = (100 * low, 100 * high)
                dot = DotPoint(
                    group=column.head,
                    series=encoder_group.name,
                    value=100 * cell.score,
                    interval=interval,
                )
                dots.append(dot)
        title = self.runs[0].name if len(self.runs) == 1 else ""
        with figure_width(width):
            return draw_dots(dots, x_label="score × 100, with its 95% interval", title=title)

    @validate_arguments(folder=PATH)
    def save(self, folder: str | Path) -> list[Path]:
        """Write all results into a results folder, with their per-item columns.

        Args:
            folder: The results folder, which is made if it is missing.

        Returns:
            The written files, one per result.

        Raises:
            OutputError: The folder cannot be written, or holds a result of another encoder with
                the same name.
            DataError: Per-item columns are broken.
        """
        check_writable(Path(folder))
        paths = []
        for result in self:
            if result.path is not None and items_path(result.path).exists():
                # A result that was read: its columns are in the file beside its own.
                per_item = dict(read_item_columns(result))
                result = msgspec.structs.replace(result, per_item=per_item, path=None)
            paths.append(write_result(result, Path(folder)))
        return paths


def render_partial_grid(results: Sequence[Result], catalogue: Catalogue) -> str:
    """Return the HTML of a notebook's table of scores while a run is going on.

    Only the last encoders have a row. There are no means, whose intervals take long to compute.
    Without any results, the text is empty.
    """
    if not results:
        return ""
    columns = make_grid_columns(results, catalogue, means=False)
    return render_grid(columns, group_by_encoder(results, catalogue)[-MAX_ROWS:])


FRAME_COLUMNS = (
    "encoder", "task", "split", "protocol", "score", "low", "high", "n", "zero_vectors", "overlap",
    "train_seed", "eval_seed", "fingerprint", "revision",
    "signature",
)  # fmt: skip
"""The columns that every frame has."""
