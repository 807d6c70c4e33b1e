"""Results as one object, as notebooks show them: a grid of encoders by tasks, comparisons, and their HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

import msgspec

from stsbench.bench.run import check_writable
from stsbench.boards.render.figures import comparison_figure, comparison_layouts, comparison_records, render_comparison
from stsbench.boards.tables.table import Layout
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError, one_line, shown, visible
from stsbench.core.registry import NAME, NAMES, PLACE, SEED, SWITCH, Kind, checked
from stsbench.data.task import expand_names, suites_within
from stsbench.numbers.statistics import spread
from stsbench.results.comparable import seed_means
from stsbench.results.folder import columns_of, write_result
from stsbench.results.groups import Runs, gather_runs
from stsbench.results.record import Result, items_path, protocol_key
from stsbench.significance.comparison import Comparison, Effort, compare, sentences
from stsbench.significance.means import mean_interval

if TYPE_CHECKING:
    import pandas as pd

    from stsbench.plots.chart import Chart


USUAL_SPLITS = ("test", "all")
"""Splits that need not be named: those that tasks are scored on."""


class GridCell(NamedTuple):
    """The score of an encoder in one column, never times 100: the mean over seeds, their deviation, the 95% interval."""

    score: float
    deviation: float | None
    interval: tuple[float, float] | None


class Way(NamedTuple):
    """One way to score a task: its split, its protocol's fields as text, the protocol's name, and the version of the task."""

    task: str
    split: str
    protocol: str
    name: str
    version: str
    """The hashes of its data and of its card: scores of two versions share no column."""


class GridColumn(NamedTuple):
    """One task scored in one way, or the mean over several such."""

    head: str
    parts: Sequence[Way]

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean over tasks."""
        return len(self.parts) > 1


class GridRow(NamedTuple):
    """One encoder: what tables call it, and a cell a column, None where it was not scored so."""

    name: str
    cells: Sequence[GridCell | None]


def grid_columns(results: Sequence[Result], catalogue: Catalogue) -> list[GridColumn]:
    """A column for each way to score a task, in the order of the results; behind them the means.

    There is a mean for each suite all of whose tasks are there, else one for each protocol of several tasks; none where
    the only suites of these tasks have no common mean.
    """
    ways = list(dict.fromkeys(map(_way, results)))
    versions = Counter(way[:4] for way in ways)
    times = Counter(way[:2] for way in versions)
    columns = []
    for way in ways:
        split = "" if way.split in USUAL_SPLITS else f" ({way.split})"
        protocol = f", {way.name}" if times[way[:2]] > 1 else ""
        version = f", data and card {way.version}" if versions[way[:4]] > 1 else ""
        columns.append(GridColumn(f"{way.task}{split}{protocol}{version}", [way]))
    return [*columns, *_means(ways, catalogue)]


def _way(result: Result) -> Way:
    version = f"{result.data[:6]} {result.task_card[:6]}"
    return Way(result.task, result.split, protocol_key(result.protocol), str(result.protocol["name"]), version)


def _means(ways: Sequence[Way], catalogue: Catalogue) -> Iterator[GridColumn]:
    """Scores of other protocols or of splits that are not the usual have no mean with the rest."""
    alike: dict[tuple[str, ...], list[Way]] = {}
    times = Counter((way.task, way.name) for way in ways)
    for way in ways:
        # Tasks may fix fields of a protocol of one name; the same task scored twice under it is another protocol.
        fields = way.protocol if any(times[one.task, one.name] > 1 for one in ways if one.name == way.name) else ""
        alike.setdefault((way.name, fields, "" if way.split in USUAL_SPLITS else way.split), []).append(way)
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
            whose = f", {mine[0].name}" if len(alike) > 1 else ""
            yield GridColumn(f"mean of {len(tasks)}{whose}", list(tasks.values()))


def grid_row(runs: Runs, columns: Sequence[GridColumn]) -> GridRow:
    """An encoder's row; it has a mean where all its tasks were scored with the same seeds."""
    held: dict[Way, list[Result]] = {}
    for one in runs.results:
        held.setdefault(_way(one), []).append(one)
    return GridRow(runs.name, [_cell(column, held) for column in columns])


def _cell(column: GridColumn, held: Mapping[Way, Sequence[Result]]) -> GridCell | None:
    parts = [held.get(way, ()) for way in column.parts]
    means = seed_means(parts)
    if not means:
        return None
    if len(parts) == len(parts[0]) == 1:
        return GridCell(means[0], None, parts[0][0].interval)
    mean = spread(means)
    return GridCell(mean.mean, mean.deviation, mean_interval(parts))


RIGHT, LEFT = "text-align: right; white-space: nowrap", "text-align: left"
SMALL = "font-size: 85%; opacity: 0.75"


def html_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str] = (), *, title: str = ""
) -> str:
    """A table of texts; a line break within a cell stands before its small print.

    Args:
        heads: of the columns; the first stands to the left, the others are numbers.
        rows: a text a column.
        notes: below the table.
        title: above it.
    """
    lines = [f"<div><strong>{_text(title)}</strong></div>"] if title else []
    lines += [
        "<table>",
        "<thead>",
        _html_row("th", heads),
        "</thead>",
        "<tbody>",
        *(_html_row("td", row) for row in rows),
    ]
    return "\n".join([*lines, "</tbody>", "</table>", *map(html_note, notes)])


def html_note(text: str) -> str:
    """A line of small print."""
    return f'<div style="{SMALL}">{_text(text)}</div>'


def _html_row(tag: str, cells: Sequence[str]) -> str:
    styles = [RIGHT if at else LEFT for at in range(len(cells))]
    made = (f'<{tag} style="{style}">{_html_cell(cell)}</{tag}>' for cell, style in zip(cells, styles, strict=True))
    return f"<tr>{''.join(made)}</tr>"


def _html_cell(text: str) -> str:
    first, *small = text.split("\n")
    return _text(first) + "".join(f'<br><span style="{SMALL}">{_text(line)}</span>' for line in small)


def _text(text: str) -> str:
    # A dollar sign would begin a formula in a notebook.
    return escape(visible(one_line(text))).replace("$", "&#36;")


def grid_html(columns: Sequence[GridColumn], rows: Sequence[GridRow], notes: Sequence[str]) -> str:
    """Encoders by tasks, in points with their intervals below."""
    heads = ["encoder", *(column.head for column in columns)]
    return html_table(heads, [[one_line(row.name), *map(_points, row.cells)] for row in rows], notes)


def _points(cell: GridCell | None) -> str:
    return "–" if cell is None else "\n".join(_lines(cell))


def _lines(cell: GridCell) -> Iterator[str]:
    yield f"{100 * cell.score:.2f}" + (f"±{100 * cell.deviation:.2f}" if cell.deviation is not None else "")
    if cell.interval is not None:
        low, high = cell.interval
        yield f"{100 * low:.2f} to {100 * high:.2f}"


def layout_html(layout: Layout) -> str:
    """A table for a notebook: its caption, sections and groups as lines of their own."""
    rows: list[list[str]] = []
    above = ""
    for block in layout.blocks:
        titles = [block.section if block.section != above else "", block.title]
        rows += [[title, *[""] * len(layout.heads)] for title in filter(None, titles)]
        above = block.section
        for line in block.lines:
            cells = [cell.text + cell.mark + cell.deviation for cell in line.cells]
            rows.append([one_line(line.label) + line.marks, *cells])
    return html_table([layout.label_head, *layout.heads], rows, layout.legend, title=layout.caption)


@dataclass(frozen=True, kw_only=True, repr=False)
class EncoderComparison(Comparison):
    """What a comparison found: ``differences`` by task and on means, and ``notes`` on what was left out.

    Its text says which differences are significant; docs/statistics.md says how they are tested.
    """

    @property
    def sentences(self) -> list[str]:
        """For each pair of encoders, which differences are significant."""
        return sentences(self)

    def __repr__(self) -> str:
        """The sentences."""
        return "\n".join([*self.sentences, *self.notes])

    def _repr_html_(self) -> str:
        return "\n".join(map(layout_html, comparison_layouts(self)))

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


@checked("compare", tasks=NAMES, protocol=NAME, seed=SEED, independent=SWITCH)
def compared(
    encoders: Mapping[str, Sequence[Result]],
    catalogue: Catalogue,
    *,
    tasks: str | Sequence[str] | None = None,
    protocol: str | None = None,
    seed: int = 0,
    independent: bool = False,
) -> EncoderComparison:
    """Compare every two encoders, by what they are called; see :func:`stsbench.significance.comparison.compare`.

    Raises:
        StsbenchError: there are fewer than two.
    """
    if len(encoders) < 2:
        there = f"; there is '{next(iter(encoders))}' alone" if encoders else ""
        raise StsbenchError(f"compare needs at least two encoders{there}")
    effort = Effort(seed=int(seed), dependence="none" if independent else "sentences")
    wanted = expand_names(tasks, catalogue) if tasks is not None else None
    found = compare(encoders, tasks=wanted, protocol=protocol, effort=effort)
    return EncoderComparison(**vars(found))


MOST_ROWS = 20
"""So many encoders a notebook shows; the mean's interval of more takes its time."""


class NotScored(NamedTuple):
    """What could not be scored, and why."""

    what: str
    error: Exception

    def __str__(self) -> str:
        """One line."""
        return f"{self.what}: {one_line(self.error) or type(self.error).__name__}"


class Results(Sequence[Result]):
    """Scores of one encoder or several, as :func:`stsbench.evaluate` and :func:`stsbench.read_results` return them.

    A sequence of :class:`stsbench.Result` that does not change; a slice and a sum with others are Results too.
    """

    @checked(results=Kind(lambda given: isinstance(given, Iterable), "a sequence of Result"), catalogue=Catalogue)
    def __init__(
        self,
        results: Iterable[Result] = (),
        *,
        failures: Iterable[NotScored] = (),
        catalogue: Catalogue | None = None,
    ) -> None:
        """Keep results.

        Args:
            results: any, of whatever encoders and tasks.
            failures: what could not be scored.
            catalogue: cards to look names up in.

        Raises:
            StsbenchError: one is no Result, or nothing tells two apart that differ.
        """
        self._results, self.failures = tuple(results), tuple(failures)
        self._catalogue = catalogue or Catalogue()
        _check(self._results)

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
        return Results([*self, *other], failures=[*self.failures, *other.failures], catalogue=self._catalogue)

    @property
    def encoders(self) -> list[str]:
        """What tables call the encoders; the same name in another state of its weights is another encoder."""
        return [one.name for one in self.runs]

    @property
    def tasks(self) -> list[str]:
        """The tasks, each once."""
        return list(dict.fromkeys(one.task for one in self))

    @cached_property
    def runs(self) -> list[Runs]:
        """The results by encoder: several training seeds are one."""
        return gather_runs(self._results, self._catalogue)

    def __repr__(self) -> str:
        """How much there is, in one line."""
        names = ", ".join(self.encoders[:3]) + (", …" if len(self.runs) > 3 else "")
        failed = f", {len(self.failures)} failed" if self.failures else ""
        count = f"{_count(len(self), 'result')}{failed}: {_count(len(self.runs), 'encoder')}"
        return (
            f"<Results, {count} ({names}) on {_count(len(self.tasks), 'task')}>" if self else f"<Results, none{failed}>"
        )

    def _repr_html_(self) -> str:
        return self._html

    @cached_property
    def _html(self) -> str:
        if not self:
            return grid_html([], [], [repr(self)[1:-1], *map(str, self.failures)])
        columns, rows = self._grid(MOST_ROWS)
        more = len(self.runs) - len(rows)
        notes = [
            "scores are times 100, with their 95% intervals below",
            *([f"and {_count(more, 'encoder')} more"] if more else []),
            *(f"failed: {failure}" for failure in self.failures),
        ]
        return grid_html(columns, rows, notes)

    def _grid(self, most: int | None = None) -> tuple[list[GridColumn], list[GridRow]]:
        columns = grid_columns(self._results, self._catalogue)
        return columns, [grid_row(one, columns) for one in self.runs[:most]]

    def to_frame(self, *, scores: bool = False) -> pd.DataFrame:
        """The results as a DataFrame of pandas, a row a Result, in their order.

        Scores and the ends of intervals are never times 100.

        Args:
            scores: whether all that was measured has a column too, such as ``pearson.all``.
        """
        import pandas as pd

        return pd.DataFrame(
            [_record(one) | (one.scores if scores else {}) for one in self], columns=None if self else FACTS
        )

    def compare(
        self,
        *,
        tasks: str | Sequence[str] | None = None,
        protocol: str | None = None,
        seed: int = 0,
        independent: bool = False,
    ) -> EncoderComparison:
        """Compare every two encoders on the items that both have: what ``stsbench compare`` computes.

        Args:
            tasks: only these tasks and suites.
            protocol: only results of this protocol.
            seed: of the draws.
            independent: treat items that share a sentence as independent.

        Raises:
            StsbenchError: there are fewer than two encoders, or nothing that two can be compared on.
        """
        by_name = {one.name: one.results for one in self.runs}
        return compared(by_name, self._catalogue, tasks=tasks, protocol=protocol, seed=seed, independent=independent)

    def plot(self) -> Chart:
        """Draw each score as a dot with its 95% interval, by task; needs matplotlib (extra ``plots``).

        Returns:
            A figure of matplotlib, which notebooks show; ``savefig`` writes it.

        Raises:
            StsbenchError: there is nothing to draw, or matplotlib is not installed.
        """
        from stsbench.plots.dots import Dot, draw_dots

        columns, rows = self._grid()
        dots = [
            Dot(
                group=column.head,
                series=row.name,
                value=100 * cell.score,
                interval=(100 * cell.interval[0], 100 * cell.interval[1]) if cell.interval else None,
            )
            for at, column in enumerate(columns)
            for row in rows
            if (cell := row.cells[at]) is not None
        ]
        title = rows[0].name if len(rows) == 1 else ""
        return draw_dots(dots, axis="score × 100, with its 95% interval", title=title)

    @checked(folder=PLACE)
    def save(self, folder: str | Path) -> list[Path]:
        """Write all results into a results folder, with their per-item columns, as ``stsbench run`` does.

        Returns:
            Their files.

        Raises:
            OutputError: the folder cannot be written, or holds another encoder's result of this name.
            DataError: per-item columns are broken.
        """
        check_writable(Path(folder))
        return [write_result(_with_columns(one), Path(folder)) for one in self]


def html_so_far(results: Sequence[Result], catalogue: Catalogue) -> str:
    """The table of a notebook while scores come in: without means, whose intervals take their time; nothing at first."""
    if not results:
        return ""
    columns = [column for column in grid_columns(results, catalogue) if not column.is_mean]
    return grid_html(columns, [grid_row(one, columns) for one in gather_runs(results, catalogue)[-MOST_ROWS:]], [])


FACTS = (
    "encoder", "task", "split", "protocol", "score", "low", "high", "n", "zero_vectors", "overlap", "train_seed",
    "eval_seed", "fingerprint", "revision",
)  # fmt: skip
"""The columns that every frame has."""


def _record(one: Result) -> dict[str, object]:
    own = {"protocol": one.protocol["name"], "low": one.interval[0], "high": one.interval[1]}
    return {name: own[name] if name in own else getattr(one, name) for name in FACTS}


def _with_columns(one: Result) -> Result:
    """A Result that was read, with the per-item columns beside its file, where they are there."""
    if one.path is None or not items_path(one.path).exists():
        return one
    return msgspec.structs.replace(one, per_item=dict(columns_of(one)), path=None)


def _check(results: Sequence[Result]) -> None:
    """Raise StsbenchError for what is no Result, and for two of one encoder and cell that say different things."""
    held: dict[tuple[object, ...], str] = {}
    for one in results:
        if not isinstance(one, Result):
            raise StsbenchError(f"Results: {shown(one)} is not a Result; give what evaluate or read_results returns")
        if one.fingerprint is None:
            cell = (one.encoder, one.task, one.split, protocol_key(one.protocol), one.data, *one.seeds)
            if held.setdefault(cell, one.items) != one.items:
                raise StsbenchError(
                    f"two encoders are called '{one.encoder}', and nothing tells their results on {one.task} apart; "
                    "give evaluate a name= for each"
                )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
