"""Results as one object, as notebooks show them: a grid of encoders by tasks, comparisons, and their HTML."""

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
    comparison_figure,
    comparison_layouts,
    comparison_records,
    render_comparison,
)
from stsbench.boards.render.html import notebook_layout, notebook_table
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.core.parameters import (
    NAME,
    NAMES,
    PATH,
    SEED,
    SWITCH,
    ArgumentKind,
    validate_arguments,
)
from stsbench.core.wording import format_repr, join_lines
from stsbench.data.task import expand_names, suites_within
from stsbench.numbers.statistics import mean_and_deviation
from stsbench.results.folder import read_item_columns, write_result
from stsbench.results.groups import EncoderResults, group_by_encoder, seed_means
from stsbench.results.record import Result, items_path, protocol_key
from stsbench.significance.comparison import Comparison, TestSettings, compare, describe_comparison
from stsbench.significance.means import compute_mean_interval

if TYPE_CHECKING:
    import pandas as pd

    from stsbench.plots.chart import Chart


DEFAULT_SPLITS = ("test", "all")
"""Splits that need not be named: those that tasks are scored on."""


class GridCell(NamedTuple):
    """The score of an encoder in one column, never times 100: the mean over seeds, their deviation, the 95% interval."""

    score: float
    deviation: float | None
    interval: tuple[float, float] | None


class ScoringSetup(NamedTuple):
    """One way to score a task: its split, its protocol's fields as text, the protocol's name, and the version of the task."""

    task: str
    split: str
    protocol: str
    protocol_name: str
    version: str
    """The hashes of its data and of its card: scores of two versions share no column."""

    @classmethod
    def from_result(cls, result: Result) -> ScoringSetup:
        """The way that made a Result."""
        version = f"{result.data[:6]} {result.task_card[:6]}"
        return cls(
            result.task,
            result.split,
            protocol_key(result.protocol),
            str(result.protocol["name"]),
            version,
        )


class GridColumn(NamedTuple):
    """One task scored in one way, or the mean over several such."""

    head: str
    setups: Sequence[ScoringSetup]

    def score(self, results: Sequence[Result]) -> GridCell | None:
        """An encoder's score in it; a mean is had where all its tasks were scored with the same seeds."""
        parts = [
            [one for one in results if ScoringSetup.from_result(one) == way] for way in self.setups
        ]
        if not (means := seed_means(parts)):
            return None
        alone = len(parts) == len(parts[0]) == 1
        return GridCell(
            *mean_and_deviation(means),
            parts[0][0].interval if alone else compute_mean_interval(parts),
        )


def make_grid_columns(
    results: Sequence[Result], catalogue: Catalogue, *, means: bool = True
) -> list[GridColumn]:
    """A column for each way to score a task, in the order of the results; behind them the means.

    There is a mean for each suite all of whose tasks are there, else one for each protocol of several tasks; none where
    the only suites of these tasks have no common mean.
    """
    ways = list(dict.fromkeys(map(ScoringSetup.from_result, results)))
    versions = Counter(way[:4] for way in ways)
    times = Counter(way[:2] for way in versions)
    columns = []
    for way in ways:
        split = "" if way.split in DEFAULT_SPLITS else f" ({way.split})"
        protocol = f", {way.protocol_name}" if times[way[:2]] > 1 else ""
        version = f", data and card {way.version}" if versions[way[:4]] > 1 else ""
        columns.append(GridColumn(f"{way.task}{split}{protocol}{version}", [way]))
    return [*columns, *(_means(ways, catalogue) if means else ())]


def _means(ways: Sequence[ScoringSetup], catalogue: Catalogue) -> Iterator[GridColumn]:
    """Scores of other protocols or of splits that are not the usual have no mean with the rest."""
    alike: dict[tuple[str, ...], list[ScoringSetup]] = {}
    times = Counter((way.task, way.protocol_name) for way in ways)
    twice = {name for (_, name), count in times.items() if count > 1}
    for way in ways:
        # Tasks may fix fields of a protocol of one name; the same task scored twice under it is another protocol.
        fields = way.protocol if way.protocol_name in twice else ""
        alike.setdefault(
            (way.protocol_name, fields, "" if way.split in DEFAULT_SPLITS else way.split), []
        ).append(way)
    for mine in alike.values():
        tasks = {way.task: way for way in mine}
        if len(tasks) < len(mine):
            # Of a task in two versions none is the one that a mean is of.
            continue
        suites = suites_within(list(tasks), catalogue).values()
        for suite in suites:
            if suite.average and len(suite.tasks) > 1:
                yield GridColumn(f"mean of {suite.name}", [tasks[task] for task in suite.tasks])
        if not suites and len(tasks) > 1 and len({way.protocol for way in mine}) == 1:
            # Of which tasks it is, the protocol tells.
            whose = f", {mine[0].protocol_name}" if len(alike) > 1 else ""
            yield GridColumn(f"mean of {len(tasks)}{whose}", mine)


def render_grid(
    columns: Sequence[GridColumn], runs: Sequence[EncoderResults], notes: Sequence[str] = ()
) -> str:
    """Encoders by tasks, in points with their intervals below."""

    def points(cell: GridCell | None) -> str:
        if cell is None:
            return "–"
        deviation = "" if cell.deviation is None else f"±{100 * cell.deviation:.2f}"
        ends = (
            "\n{:.2f} to {:.2f}".format(*(100 * end for end in cell.interval))
            if cell.interval
            else ""
        )
        return f"{100 * cell.score:.2f}{deviation}{ends}"

    rows = [
        [join_lines(one.name), *(points(column.score(one.results)) for column in columns)]
        for one in runs
    ]
    return notebook_table(["encoder", *(column.head for column in columns)], rows, notes)


@dataclass(frozen=True, kw_only=True, repr=False)
class EncoderComparison(Comparison):
    """What a comparison found: ``differences`` by task and on means, and ``notes`` on what was left out.

    Its text says which differences are significant; docs/statistics.md says how they are tested.
    """

    @property
    def sentences(self) -> list[str]:
        """For each pair of encoders, which differences are significant."""
        return describe_comparison(self)

    def __repr__(self) -> str:
        """The sentences."""
        return "\n".join([*self.sentences, *self.notes])

    def _repr_html_(self) -> str:
        return "\n".join(map(notebook_layout, comparison_layouts(self)))

    def to_frame(self) -> pd.DataFrame:
        """The lines of the CSV as a DataFrame of pandas, one a difference; scores are never times 100."""
        import pandas as pd

        return pd.DataFrame.from_records(comparison_records(self))

    def to_markdown(self) -> str:
        """A table a pair of encoders, in markdown."""
        return render_comparison(self, "markdown")

    def to_latex(self) -> str:
        """A table a pair of encoders, in LaTeX."""
        return render_comparison(self, "latex")

    def plot(self) -> Chart:
        """Draw each difference as a dot with its 95% interval, by task; a ring is one that is not significant.

        Raises:
            DataError: no paired test is known for any. StsbenchError: matplotlib is not installed (extra ``plots``).
        """
        return comparison_figure(self)


@validate_arguments("compare", tasks=NAMES, protocol=NAME, seed=SEED, independent=SWITCH)
def build_comparison(
    encoders: Mapping[str, Sequence[Result]],
    catalogue: Catalogue,
    *,
    tasks: str | Sequence[str] | None = None,
    protocol: str | None = None,
    seed: int = 0,
    independent: bool = False,
) -> EncoderComparison:
    """Compare every two encoders, by what they are called; see :func:`stsbench.significance.comparison.compare`."""
    if len(encoders) < 2:
        there = f"; there is '{next(iter(encoders))}' alone" if encoders else ""
        raise StsbenchError(f"compare needs at least two encoders{there}")
    effort = TestSettings(seed=int(seed), dependence="none" if independent else "sentences")
    wanted = expand_names(tasks, catalogue) if tasks is not None else None
    found = compare(encoders, tasks=wanted, protocol=protocol, effort=effort)
    return EncoderComparison(**vars(found))


MAX_ROWS = 20
"""So many encoders a notebook shows; the mean's interval of more takes its time."""


class FailedCell(NamedTuple):
    """What could not be scored, and why."""

    what: str
    error: Exception

    def __str__(self) -> str:
        """One line."""
        return f"{self.what}: {join_lines(self.error) or type(self.error).__name__}"


class Results(Sequence[Result]):
    """Scores of one encoder or several, as :func:`stsbench.evaluate` and :func:`stsbench.read_results` return them.

    A sequence of :class:`stsbench.Result` that does not change; a slice and a sum with others are Results too.
    """

    @validate_arguments(
        results=ArgumentKind(lambda given: isinstance(given, Iterable), "a sequence of Result"),
        catalogue=Catalogue,
    )
    def __init__(
        self,
        results: Iterable[Result] = (),
        *,
        failures: Iterable[FailedCell] = (),
        catalogue: Catalogue | None = None,
    ) -> None:
        """Keep results of whatever encoders and tasks, and ``failures``: what could not be scored.

        Raises:
            StsbenchError: one is no Result, or nothing tells two apart that differ.
        """
        self._results, self.failures = tuple(results), tuple(failures)
        self._catalogue = catalogue or Catalogue()
        held: dict[tuple[object, ...], str] = {}
        for one in self._results:
            if not isinstance(one, Result):
                raise StsbenchError(
                    f"Results: {format_repr(one)} is not a Result; give what evaluate or read_results returns"
                )
            cell = (
                one.encoder,
                one.task,
                one.split,
                protocol_key(one.protocol),
                one.data,
                *one.seeds,
            )
            if one.fingerprint is None and held.setdefault(cell, one.items) != one.items:
                raise StsbenchError(
                    f"two encoders are called '{one.encoder}', and nothing tells their results on {one.task} apart; "
                    "give evaluate a name= for each"
                )

    def __len__(self) -> int:
        """How many results there are."""
        return len(self._results)

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        """A Result by its place, or some of them as Results."""
        if isinstance(index, str):
            raise StsbenchError(
                f"Results are taken by place; those of one encoder or task: [one for one in results if one.encoder == {index!r}]"
            )
        found = self._results[index]
        return Results(found, catalogue=self._catalogue) if isinstance(found, tuple) else found

    def __add__(self, other: object) -> Results:
        """All results of both; names are looked up in the first's cards."""
        if not isinstance(other, Results):
            return NotImplemented
        return Results(
            [*self, *other], failures=[*self.failures, *other.failures], catalogue=self._catalogue
        )

    @property
    def encoders(self) -> list[str]:
        """What tables call the encoders; the same name in another state of its weights is another encoder."""
        return [one.name for one in self.runs]

    @property
    def tasks(self) -> list[str]:
        """The tasks, each once."""
        return list(dict.fromkeys(one.task for one in self))

    @cached_property
    def runs(self) -> list[EncoderResults]:
        """The results by encoder: several training seeds are one."""
        return group_by_encoder(self._results, self._catalogue)

    def __repr__(self) -> str:
        """How much there is, in one line."""
        names = ", ".join(self.encoders[:3]) + (", …" if len(self.runs) > 3 else "")
        failed = f", {len(self.failures)} failed" if self.failures else ""
        count = f"{_count(len(self), 'result')}{failed}: {_count(len(self.runs), 'encoder')}"
        return (
            f"<Results, {count} ({names}) on {_count(len(self.tasks), 'task')}>"
            if self
            else f"<Results, none{failed}>"
        )

    def _repr_html_(self) -> str:
        if not self:
            return render_grid([], [], [repr(self)[1:-1], *map(str, self.failures)])
        more = len(self.runs) - MAX_ROWS
        notes = [
            "scores are times 100, with their 95% intervals below",
            *([f"and {_count(more, 'encoder')} more"] if more > 0 else []),
            *(f"failed: {failure}" for failure in self.failures),
        ]
        return render_grid(
            make_grid_columns(self._results, self._catalogue), self.runs[:MAX_ROWS], notes
        )

    def to_frame(self, *, scores: bool = False) -> pd.DataFrame:
        """The results as a DataFrame of pandas, a row a Result, in their order.

        Scores and the ends of intervals are never times 100. With ``scores`` all that was measured has a column too, such
        as ``pearson.all``.
        """
        import pandas as pd

        rows = [
            {fact: getattr(one, fact, None) for fact in FRAME_COLUMNS}
            | {"protocol": one.protocol["name"], "low": one.interval[0], "high": one.interval[1]}
            | (one.scores if scores else {})
            for one in self
        ]
        return pd.DataFrame(rows, columns=None if self else FRAME_COLUMNS)

    def compare(
        self,
        *,
        tasks: str | Sequence[str] | None = None,
        protocol: str | None = None,
        seed: int = 0,
        independent: bool = False,
    ) -> EncoderComparison:
        """Compare every two encoders on the items that both have; see :func:`stsbench.compare`."""
        by_name = {one.name: one.results for one in self.runs}
        return build_comparison(
            by_name,
            self._catalogue,
            tasks=tasks,
            protocol=protocol,
            seed=seed,
            independent=independent,
        )

    def plot(self) -> Chart:
        """Draw each score as a dot with its 95% interval, by task, as a figure of matplotlib (extra ``plots``)."""
        from stsbench.plots.draw import DotPoint, draw_dots

        dots = [
            DotPoint(
                group=column.head,
                series=one.name,
                value=100 * cell.score,
                interval=(100 * cell.interval[0], 100 * cell.interval[1])
                if cell.interval
                else None,
            )
            for column in make_grid_columns(self._results, self._catalogue)
            for one in self.runs
            if (cell := column.score(one.results)) is not None
        ]
        title = self.runs[0].name if len(self.runs) == 1 else ""
        return draw_dots(dots, x_label="score × 100, with its 95% interval", title=title)

    @validate_arguments(folder=PATH)
    def save(self, folder: str | Path) -> list[Path]:
        """Write all results into a results folder, with their per-item columns, as ``stsbench run`` does; returns their files.

        Raises:
            OutputError: the folder cannot be written, or holds another encoder's result of this name.
            DataError: per-item columns are broken.
        """
        check_writable(Path(folder))
        made = []
        for one in self:
            if one.path is not None and items_path(one.path).exists():
                # What was read is written with its per-item columns, where they are there.
                one = msgspec.structs.replace(one, per_item=dict(read_item_columns(one)), path=None)
            made.append(write_result(one, Path(folder)))
        return made


def render_partial_grid(results: Sequence[Result], catalogue: Catalogue) -> str:
    """The table of a notebook while scores come in: without means, whose intervals take their time; nothing at first."""
    if not results:
        return ""
    return render_grid(
        make_grid_columns(results, catalogue, means=False),
        group_by_encoder(results, catalogue)[-MAX_ROWS:],
    )


FRAME_COLUMNS = (
    "encoder", "task", "split", "protocol", "score", "low", "high", "n", "zero_vectors", "overlap", "train_seed",
    "eval_seed", "fingerprint", "revision",
)  # fmt: skip
"""The columns that every frame has."""


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
