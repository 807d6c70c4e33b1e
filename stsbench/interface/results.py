"""Results as one object: a sequence that notebooks show, and that is written, compared and drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, overload

import msgspec

from stsbench.bench.run import check_writable
from stsbench.cards.catalogue import Catalogue
from stsbench.errors import StsbenchError, one_line, shown
from stsbench.interface.comparison import EncoderComparison, compared
from stsbench.interface.grid import GridColumn, GridRow, grid_columns, grid_row
from stsbench.interface.page import grid_html
from stsbench.registry.arguments import PLACE, Kind, checked
from stsbench.results.comparable import protocol_key
from stsbench.results.folder import columns_of, write_result
from stsbench.results.groups import Runs, gather_runs
from stsbench.results.record import Result, items_path

if TYPE_CHECKING:
    import pandas as pd

    from stsbench.plots.chart import Chart

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
