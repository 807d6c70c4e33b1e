"""What a program calls: encoders scored, results read and compared, leaderboards made."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from stsbench.api.names import select_compared_results
from stsbench.api.progress_display import show_run
from stsbench.api.results import (
    EncoderComparison,
    FailedCell,
    Results,
    build_comparison,
    render_partial_grid,
)
from stsbench.bench.run import iterate
from stsbench.boards.exports.mteb import read_mteb
from stsbench.boards.published.rows import read_table_card
from stsbench.boards.render.figures import table_figure
from stsbench.boards.render.formats import render
from stsbench.boards.render.html import notebook_layout
from stsbench.boards.render.text import to_frame
from stsbench.boards.tables.build import TableRequest, find_suite
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.table import Show, Table, check_show
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError, look_up
from stsbench.core.parameters import (
    NAME,
    NAME_OR_PATH,
    PATH,
    SWITCH,
    takes_arguments_of,
    validate_arguments,
)
from stsbench.core.wording import format_repr
from stsbench.evaluators.belief import believe
from stsbench.results.folder import read_folder
from stsbench.results.groups import EncoderDirectory
from stsbench.results.record import Result

if TYPE_CHECKING:
    import pandas as pd

    from stsbench.plots.chart import Chart


RESULTS_FOLDER = Path("results")


@validate_arguments(folder=PATH, on_error=NAME, catalogue=Catalogue)
def read_results(
    folder: str | Path = RESULTS_FOLDER,
    *,
    on_error: Literal["raise", "skip"] = "raise",
    catalogue: Catalogue | None = None,
) -> Results:
    """Read all Results of a results folder, or of the folder of one encoder in it.

    Every file is checked as the command line does: its fields, and every number that its evaluator
    makes of the per-item columns beside it. ``on_error="skip"`` leaves out files that are no
    Results, with a warning for each. One warning says how many results have no such columns, and
    are read as they are written.

    Raises:
        DataError: a file is broken, or its columns do not make its score.
        OutputError: there is no such folder, or it cannot be read.
    """
    look_up("on_error", on_error, {"raise": None, "skip": None})
    there = read_folder(Path(folder))
    found = believe(there.results, catalogue or Catalogue())
    problems = [*there.problems, *found.problems]
    if problems and on_error == "raise":
        more = f" (and {len(problems) - 1} files more)" if len(problems) > 1 else ""
        raise DataError(f"{problems[0].message}{more}; on_error='skip' leaves such files out")
    older = EncoderDirectory(there._replace(results=found.results), catalogue).describe_omitted(
        found.results
    )
    for line in filter(None, [*(problem.message for problem in problems), older, found.notice]):
        warnings.warn(line, stacklevel=3)
    return Results(found.results, catalogue=catalogue)


@validate_arguments(results=PATH, catalogue=Catalogue)
def compare(
    *encoders: str | Path | Result | Sequence[Result],
    results: str | Path = RESULTS_FOLDER,
    tasks: str | Sequence[str] | None = None,
    protocol: str | None = None,
    seed: int = 0,
    independent: bool = False,
    catalogue: Catalogue | None = None,
) -> EncoderComparison:
    """Compare every two encoders on the items that both were scored on, as ``stsbench compare`` does.

    Args:
        encoders: Results, of one encoder or several, or a Result; names of encoders in the results folder; folders of one
            encoder's results.
        results: the results folder, read where a name is given.
        tasks: only these tasks and suites.
        protocol: only results of this protocol.
        seed: of the draws.
        independent: treat items that share a sentence as independent.
        catalogue: cards to look names up in.

    Raises:
        StsbenchError: fewer than two encoders, one that has no results, or nothing that two can be compared on.
    """
    catalogue = catalogue or Catalogue()
    named = [str(one) for one in encoders if isinstance(one, str | Path)]
    handed: list[Result] = []
    for one in encoders:
        if isinstance(one, Result):
            handed.append(one)
        elif isinstance(one, Sequence) and all(isinstance(part, Result) for part in one):
            handed += [*one]
        elif not isinstance(one, str | Path):
            raise StsbenchError(
                f"compare: {format_repr(one)} is neither Results nor the name or folder of an encoder"
            )

    def refuse(line: str) -> None:
        raise DataError(line)

    found: dict[str, Sequence[Result]] = {}
    if named:
        warn = partial(warnings.warn, stacklevel=4)
        found = select_compared_results(
            named, Path(results), catalogue, on_problem=refuse, on_notice=warn
        )
    # Together, so that two states of one encoder are kept apart.
    for runs in Results(handed, catalogue=catalogue).runs:
        if runs.name in found:
            raise StsbenchError(f"compare was given '{runs.name}' twice")
        found[runs.name] = runs.results
    return build_comparison(
        found, catalogue, tasks=tasks, protocol=protocol, seed=seed, independent=independent
    )


@takes_arguments_of(iterate)
def evaluate(**arguments: Any) -> Results:  # noqa: ANN401, D417 - those of iterate
    """Score encoders on tasks, and return all Results: encoder by encoder, in the order of the tasks.

    Nothing is written but embeddings, to the store; :meth:`stsbench.Results.save` writes results. On a terminal and in a
    notebook progress is shown, unless callbacks are given. :func:`stsbench.iterate` yields each Result as soon as it
    is there.

    Args:
        encoder: an encoder, what :func:`stsbench.load_encoder` takes, a ``SentenceTransformer`` of
            sentence-transformers, or a function from a list of sentences to their embeddings (n, d);
            embeddings of these two are never stored. Several as a list, as a dict by what results are to call them,
            or as a comma list of names.
        tasks: names of tasks and suites, a comma list of them, Tasks, or a list of these.
        protocol: names of protocols; each task takes the one its evaluator knows.
        data: a local data folder; default ``STSBENCH_DATA``, else the Hub.
        seed: of the evaluation (folds, classifiers).
        split: score this split of each task instead of its usual one.
        store: where embeddings are kept: a folder, None for nowhere, or the user's cache folder.
        on_error: ``skip`` continues after a task that fails, and after one of several encoders; ``failures`` of the Results
            holds what failed.
        name: what results call an encoder that is not given by its name.
        catalogue: cards to look names up in.
        callbacks: functions that are called as the run proceeds, in place of showing progress.
        listener: the earlier name of ``callbacks``, accepted in version 0.1 only.

    Raises:
        StsbenchError: data or encoder cannot be used; see :mod:`stsbench.core.errors`.
    """
    found: list[Result] = []
    failures: list[FailedCell] = []
    catalogue = arguments.get("catalogue") or Catalogue()
    callbacks = arguments.get("callbacks") or arguments.get("listener")
    shown = (
        show_run(lambda: render_partial_grid(found, catalogue))
        if callbacks is None
        else nullcontext(callbacks)
    )
    with shown as watcher:

        def failed(what: str, error: Exception) -> None:
            failures.append(FailedCell(what, error))
            watcher.on_failure(what, error)

        heard = {"catalogue": catalogue, "callbacks": replace(watcher, on_failure=failed)}
        for result in iterate(**{**arguments, **heard}):
            found.append(result)
    return Results(found, failures=failures, catalogue=catalogue)


DEFAULT_SUITE = "sts"
"""Whose board is shown where nothing is asked for, and results do not tell."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Leaderboard:
    """The tables that :func:`stsbench.leaderboard` made: one, or one for each protocol of a suite's results."""

    tables: Sequence[Table]
    show: Show | None
    exact: bool
    left_out: Sequence[str]
    """A line for each thing that is not in the tables."""

    def __repr__(self) -> str:
        """The tables in markdown, as text can show them."""
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return "\n".join(
            notebook_layout(build_layout(table, self.show, exact=self.exact))
            for table in self.tables
        )

    def to_markdown(self) -> str:
        """The tables in markdown."""
        return self._as("markdown")

    def to_latex(self) -> str:
        """The tables in LaTeX."""
        return self._as("latex")

    def to_html(self) -> str:
        """A whole page, sorted and filtered by its reader, that needs no other file."""
        return self._as("html")

    def to_csv(self) -> str:
        """A line for the measured numbers of a row, one for the published, one for their difference."""
        return self._as("csv")

    def to_frame(self) -> pd.DataFrame:
        """The lines of the CSV as a DataFrame of pandas, by the table's caption, section, group, row and side."""
        import pandas as pd

        return pd.concat(
            {table.caption: to_frame(table, self.show) for table in self.tables}, names=["caption"]
        )

    def plot(self) -> Chart:
        """Draw a table: a panel a column, a dot a measured number with its 95% interval, a ring a published one.

        Raises:
            StsbenchError: there are several tables, nothing to draw, or matplotlib is not installed (extra ``plots``).
        """
        return table_figure(self.tables, self.show, exact=self.exact)

    def _as(self, fmt: str) -> str:
        return render(self.tables, fmt, show=self.show, exact=self.exact)


@validate_arguments(
    table=NAME_OR_PATH, suite=NAME, protocol=NAME, show=NAME, exact=SWITCH, ranks=SWITCH, mteb=PATH,
    catalogue=Catalogue,
)  # fmt: skip
def leaderboard(
    results: str | Path | Sequence[Result] | None = None,
    *,
    suite: str | None = None,
    table: str | Path | None = None,
    protocol: str | None = None,
    show: str | None = None,
    exact: bool = False,
    ranks: bool = False,
    mteb: Path | str | None = None,
    catalogue: Catalogue | None = None,
) -> Leaderboard:
    """Make the tables that ``stsbench leaderboard`` prints.

    Args:
        results: Results, or a results folder; default ``results``, and none where a table is asked for and there is no
            such folder.
        suite: whose tasks are the columns; default ``sts``, or where the results have none of its tasks, another that they have.
        table: a paper's table or one of ours instead, or a TOML file of yours.
        protocol: only a suite's results of this protocol.
        show: ``published``, ``measured``, ``difference``, ``both`` or ``merged`` (whichever there is).
        exact: exact averages, not rounded as in the paper.
        ranks: rank intervals, and letters that tell ties; needs per-item columns.
        mteb: a folder of MTEB's result files, shown as imported rows.
        catalogue: cards of your own.

    Raises:
        StsbenchError: no such table or suite, or nothing to show in it.
    """
    catalogue = catalogue or Catalogue()
    look_up("show", show or "both", dict.fromkeys(get_args(Show)))
    shown_as = check_show(show)
    # A wrong name is an error before any result is read.
    if table is None:
        find_suite(suite or DEFAULT_SUITE, catalogue)
    elif suite is not None or protocol is not None:
        raise StsbenchError(
            "leaderboard: suite and protocol have no effect beside table; leave them out"
        )
    else:
        read_table_card(str(table))
    asked = TableRequest(
        catalogue=catalogue,
        results=_results(results, catalogue, needed=table is None and mteb is None),
        results_folder=Path(results) if isinstance(results, str | Path) else RESULTS_FOLDER,
        protocol=protocol,
        show=shown_as,
        imported=read_mteb(Path(mteb), catalogue) if mteb is not None else None,
        ranks=ranks,
    )
    made = (
        asked.make_boards(suite or asked.guess_suite() or DEFAULT_SUITE)
        if table is None
        else asked.make_table(str(table))
    )
    return Leaderboard(tables=made.tables, show=shown_as, exact=exact, left_out=made.omitted)


def _results(given: object, catalogue: Catalogue, *, needed: bool) -> Sequence[Result]:
    if given is None:
        return read_results(catalogue=catalogue) if needed or RESULTS_FOLDER.is_dir() else []
    if isinstance(given, str | Path):
        return read_results(given, catalogue=catalogue)
    if isinstance(given, Sequence) and all(isinstance(one, Result) for one in given):
        return list(given)
    raise StsbenchError(
        f"leaderboard: results must be Results or a results folder; it is {format_repr(given)}"
    )
