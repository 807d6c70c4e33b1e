"""The functions that a program calls: score encoders, read and compare results, make boards."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, get_args

from stsbench.api.progress_display import show_run
from stsbench.api.results import (
    EncoderComparison,
    FailedCell,
    Results,
    build_comparison,
    render_partial_grid,
)
from stsbench.api.selection import make_requested_tables, select_compared_results
from stsbench.bench.iteration import iterate
from stsbench.bench.plan import TaskSpecs
from stsbench.boards.mteb.scores import read_mteb_files
from stsbench.boards.render.figures import draw_table
from stsbench.boards.render.formats import render
from stsbench.boards.render.html import render_notebook_layout
from stsbench.boards.render.text import to_frame
from stsbench.boards.tables.filters import RowFilter
from stsbench.boards.tables.layout import build_layout
from stsbench.boards.tables.request import TableRequest, needs_own_results
from stsbench.boards.tables.table import Show, Table, check_show
from stsbench.core.catalogue import CATALOGUE, Catalogue
from stsbench.core.errors import DataError, StsbenchError, look_up
from stsbench.core.names import split_names
from stsbench.core.parameters import (
    COUNT_OR_NONE,
    MILLISECONDS,
    NAME,
    NAME_OR_PATH,
    NAMES,
    PATH,
    SIZE,
    SWITCH,
    copy_arguments_of,
    validate_arguments,
)
from stsbench.core.wording import format_repr
from stsbench.encoders.objects import wrap_pair_scorer
from stsbench.encoders.pairs import Order
from stsbench.evaluators.belief import believe
from stsbench.plots.labels import figure_width
from stsbench.results.folder import ResultFolder, read_folder
from stsbench.results.groups import EncoderDirectory
from stsbench.results.record import Result

if TYPE_CHECKING:
    import pandas as pd

    from stsbench.plots.chart import Chart


RESULTS_FOLDER = Path("results")


@validate_arguments(folder=PATH, on_error=NAME, catalogue=CATALOGUE)
def read_results(
    folder: str | Path = RESULTS_FOLDER,
    *,
    on_error: Literal["raise", "skip"] = "raise",
    catalogue: Catalogue | None = None,
) -> Results:
    """Read all Results of a results folder, or of the folder of one encoder in it.

    Every file is checked, as the command line does: its fields are valid, and its scores are those
    that the task's evaluator computes from the per-item columns (one value per scored pair or
    sentence) in the file beside it. One warning names the number of results without such columns,
    which are read without this check.

    Args:
        folder: The folder.
        on_error: ``raise`` raises an error for the first file that is no valid Result. ``skip``
            leaves out such files, with a warning for each.
        catalogue: The cards of tasks and encoders; None for the user's catalogue.

    Returns:
        The current results: if a folder holds results of several states of an encoder, those that
        a run made or reused last. A warning counts the older ones.

    Raises:
        DataError: A file is broken, or its score is not what its columns give.
        OutputError: The folder does not exist, or cannot be read.
    """
    # Raises an error that lists the two choices for any other value.
    look_up("on_error", on_error, {"raise": None, "skip": None})
    # The current results, which alone are returned, and apart from them the older ones.
    result_folder = read_folder(Path(folder))
    # Recomputes each score from its per-item columns. ``results`` are all without a wrong score.
    believed = believe(result_folder.results, catalogue=catalogue or Catalogue())
    problems = [*result_folder.problems, *believed.problems]
    if problems and on_error == "raise":
        more = f" (and {len(problems) - 1} files more)" if len(problems) > 1 else ""
        raise DataError(f"{problems[0].message}{more}; on_error='skip' leaves such files out")
    encoders = EncoderDirectory(result_folder._replace(results=believed.results), catalogue)
    omitted = encoders.describe_omitted(believed.results)
    notices = [*(problem.message for problem in problems), omitted, believed.notice]
    # The last two are empty if there is nothing to report.
    for notice in filter(None, notices):
        # The warning names the user's line that calls read_results, three frames up.
        warnings.warn(notice, stacklevel=3)
    return Results(believed.results, catalogue=catalogue)


@validate_arguments(results=PATH, catalogue=CATALOGUE)
def compare(
    *encoders: str | Path | Result | Sequence[Result],
    results: str | Path = RESULTS_FOLDER,
    tasks: str | Sequence[str] | None = None,
    protocol: str | None = None,
    seed: int = 0,
    independent: bool = False,
    margin: float | None = None,
    plan: float | None = None,
    all_pairs: bool = False,
    catalogue: Catalogue | None = None,
) -> EncoderComparison:
    """Compare encoders with the first one on the items that both were scored on.

    An item is what is scored once: a pair of sentences or a sentence. Differences are tested in
    pairs, item by item.

    Args:
        encoders: Results, of one encoder or several, or a Result; names of encoders in the results
            folder; folders of one encoder's results.
        results: The results folder, which is read if an encoder is given by its name.
        tasks: Compare only these tasks and suites.
        protocol: Compare only results of this protocol (how tasks are scored).
        seed: The seed of the random draws of the tests.
        independent: Treat items that share a sentence as independent. By default they are not.
        margin: The largest difference that does not matter, in points (hundredths of a score). Each
            difference is also judged by it: ``within``, ``not worse``, ``worse than`` or ``open``.
        plan: A difference in points. For each task, compute how many such items, and how many
            training seeds per encoder, a test needs to detect it.
        all_pairs: Compare every two encoders, not the others with the first alone.
        catalogue: The cards to look names up in; None for the user's catalogue.

    Returns:
        The differences with their intervals and tests, by task and on means over tasks.

    Raises:
        StsbenchError: There are fewer than two encoders, an encoder has no results, or no two
            encoders can be compared.
    """
    catalogue = catalogue or Catalogue()
    results_by_name = _find_compared(encoders, Path(results), tasks, catalogue)
    return build_comparison(
        results_by_name,
        catalogue,
        tasks=tasks,
        protocol=protocol,
        seed=seed,
        independent=independent,
        margin=margin,
        plan=plan,
        all_pairs=all_pairs,
    )


def _find_compared(
    encoders: Sequence[object],
    results_folder: Path,
    tasks: str | Sequence[str] | None,
    catalogue: Catalogue,
) -> dict[str, Sequence[Result]]:
    """Return the results of each encoder to compare, by the encoder's name or folder.

    They are in the order of the arguments; several seeds are one encoder. A warning is issued if a
    results folder holds older results of these encoders, from before their weights or settings
    changed, or results whose score cannot be recomputed.

    Args:
        encoders: Results or a Result of one encoder or several, and names or folders of encoders.
        results_folder: The folder that names are looked up in.
        tasks: The tasks and suites to compare; None for all. Passed Results may have others.
        catalogue: The cards of encoders.

    Raises:
        StsbenchError: An argument is none of these, or an encoder is listed twice.
        DataError: A file of results is broken.
    """
    # Names and folders (specs), single Results, and the index of the argument that each was in.
    arguments = _divide_arguments(encoders)

    def raise_problem(message: str) -> None:
        raise DataError(message)

    results_by_name: dict[str, Sequence[Result]] = {}
    if arguments.specs:
        results_by_name = select_compared_results(
            arguments.specs,
            results_folder,
            catalogue,
            on_problem=raise_problem,
            # Five frames up is the line of the user that calls stsbench.compare.
            on_notice=partial(warnings.warn, stacklevel=5),
            tasks=tasks,
        )
    # The loose results are grouped together, so that an encoder with results from before and after
    # a change of its weights becomes two encoders with different names.
    for encoder_group in Results(arguments.results, catalogue=catalogue).runs:
        if encoder_group.name in results_by_name:
            raise StsbenchError(f"compare was given '{encoder_group.name}' twice")
        results_by_name[encoder_group.name] = encoder_group.results

    def find_position(name: str) -> int:
        """Return the index of the argument that has the results of an encoder."""
        # A name or folder may have no results on the tasks.
        key = name if name in arguments.specs else id(results_by_name[name][0])
        return arguments.positions[key]

    # Python's sort is stable, so that encoders of one argument keep their order.
    return {name: results_by_name[name] for name in sorted(results_by_name, key=find_position)}


class _ComparedArguments(NamedTuple):
    """The arguments of ``compare``, by what they are."""

    specs: list[str]
    """Names and folders of encoders, which are still to be read."""
    results: list[Result]
    """Results that the caller has read already, of any encoders."""
    positions: dict[str | int, int]
    """The name or folder, or Python's id of a Result -> the index of its argument."""


def _divide_arguments(encoders: Sequence[object]) -> _ComparedArguments:
    """Divide the arguments of ``compare`` into names or folders, and results.

    Args:
        encoders: Results or a Result of one encoder or several, and names or folders of encoders.

    Raises:
        StsbenchError: An argument is none of these.
    """
    specs: list[str] = []
    results: list[Result] = []
    positions: dict[str | int, int] = {}
    for position, encoder in enumerate(encoders):
        # A name that is given twice is refused later, when its results are looked up.
        if isinstance(encoder, str | Path):
            specs.append(str(encoder))
            positions[str(encoder)] = position
        elif isinstance(encoder, Result):
            results.append(encoder)
            positions[id(encoder)] = position
        elif _is_results(encoder):
            results += encoder
            positions |= dict.fromkeys(map(id, encoder), position)
        else:
            raise StsbenchError(
                f"compare: {format_repr(encoder)} is neither Results nor the name or folder of "
                "an encoder"
            )
    return _ComparedArguments(specs, results, positions)


def _is_results(value: object) -> TypeGuard[Sequence[Result]]:
    return isinstance(value, Sequence) and all(isinstance(element, Result) for element in value)


@copy_arguments_of(iterate)
def evaluate(**arguments: Any) -> Results:  # noqa: ANN401, D417 - those of iterate
    """Score encoders on tasks, and return all Results by encoder, in the order of the tasks.

    Nothing is written but embeddings, to the store; :meth:`stsbench.Results.save` writes results.
    On a terminal and in a notebook progress is shown, unless callbacks are given.
    :func:`stsbench.iterate` yields each Result as soon as it is there.

    Args:
        encoder: An encoder, what :func:`stsbench.load_encoder` takes, a ``SentenceTransformer`` or
            ``CrossEncoder`` of sentence-transformers, or a function from a list of sentences to
            their embeddings (n, d), ``(model, tokenizer)`` of transformers, or ``(client,
            "model")`` of an OpenAI-like client; embeddings of all these are never stored. Several
            as a list, as a dict by the names that results have for them, or as a comma list.
        tasks: Names of tasks and suites, a comma list of them, Tasks, or a list of these.
        protocol: Names of protocols; each task takes the one that its evaluator has.
        data: A local data folder; by default ``STSBENCH_DATA``, else the Hub.
        seed: The seed of the evaluation (folds, classifiers).
        seeds: Several such seeds, in place of ``seed``.
        params: Parameters that replace those of the encoder's card, for encoders given by name.
        split: The split of each task to score instead of its usual one.
        store: The folder of embeddings; None to store none; by default the user's cache folder.
        on_error: ``skip`` continues after a task that fails, and after one of several encoders;
            ``failures`` of the Results holds what failed.
        name: The name in results of an encoder that is not given by its name.
        batch_size: The largest number of sentences that a function or an object of another library
            is called with: by default 32 for a model of transformers and a ``CrossEncoder``, 256
            for a client, else 1024.
        catalogue: The cards to look names up in.
        callbacks: A ``stsbench.bench.progress.RunCallbacks``: its functions are called as the run
            proceeds, in place of showing progress.
        listener: The earlier name of ``callbacks``, accepted in version 0.1 only.

    Raises:
        StsbenchError: Data or an encoder cannot be used; see :mod:`stsbench.core.errors`.
    """
    results: list[Result] = []
    failures: list[FailedCell] = []
    catalogue = arguments.get("catalogue") or Catalogue()
    user_callbacks = arguments.get("callbacks") or arguments.get("listener")
    # Either is a context manager that yields callbacks: those that show progress until the end of
    # the block, or the user's own.
    display = (
        show_run(lambda: render_partial_grid(results, catalogue))
        if user_callbacks is None
        else nullcontext(user_callbacks)
    )
    with display as callbacks:

        def store_failure(cell: str, error: Exception) -> None:
            failures.append(FailedCell(cell, error))
            callbacks.on_failure(cell, error)

        # A copy of the callbacks, which also stores failures here.
        run_callbacks = replace(callbacks, on_failure=store_failure)
        run_arguments = {**arguments, "catalogue": catalogue, "callbacks": run_callbacks}
        for result in iterate(**run_arguments):
            results.append(result)
    return Results(results, failures=failures, catalogue=catalogue)


@validate_arguments(order=NAME, batch_size=COUNT_OR_NONE)
def evaluate_pairs(
    function: object,
    tasks: TaskSpecs,
    *,
    order: Order = "given",
    batch_size: int | None = None,
    **arguments: Any,  # noqa: ANN401 - those of evaluate
) -> Results:
    """Score what scores two sentences itself on tasks, without embeddings.

    Each distinct pair is scored once, longer pairs first. Tasks that need embeddings are refused.

    Args:
        function: A function of two sentences that returns their similarity, for example
            ``lambda first, second: ...``; a ``CrossEncoder`` of sentence-transformers; or a
            :class:`stsbench.PairScorer`.
        tasks: As for :func:`evaluate`.
        order: ``given``: the sentences in the order of the data; ``both``: the mean of the scores
            of both orders.
        batch_size: The largest number of pairs in a call: the function is then called with two
            lists of as many sentences and returns a list of scores. None for two sentences at a
            time; for a ``CrossEncoder``, 32 pairs in a batch.
        arguments: Further arguments of :func:`evaluate`, such as ``name`` and ``protocol``.

    Raises:
        StsbenchError: As :func:`evaluate`.
    """
    # ``function`` takes the place of evaluate's ``encoder``.
    known = {**signature(evaluate).parameters, "function": None, "order": None}
    del known["encoder"]
    for name in arguments:
        look_up("argument of evaluate_pairs", name, known)
    scorer = wrap_pair_scorer(function, batch_size=batch_size, order=order)
    return evaluate(encoder=scorer, tasks=tasks, **arguments)


@dataclass(frozen=True, kw_only=True, repr=False)
class Leaderboard:
    """The tables of :func:`stsbench.leaderboard`: one, or one for each protocol of a suite."""

    tables: Sequence[Table]
    show: Show | None
    exact: bool
    left_out: Sequence[str]
    """A line on each thing that the tables omit."""
    advice: Sequence[str]
    """What the user can do for fuller tables, a line each."""
    rows_only: bool = False
    """Whether texts are rows alone, without captions, heads and legends."""

    def __repr__(self) -> str:
        """Return the tables in markdown."""
        return self.to_markdown()

    def _repr_html_(self) -> str:
        return "\n".join(
            render_notebook_layout(build_layout(table, self.show, exact=self.exact))
            for table in self.tables
        )

    def to_markdown(self, *, intervals: str = "average") -> str:
        """Return the tables in markdown.

        Args:
            intervals: The 95% intervals to show: of the ``average``, of ``all`` numbers or
                ``none``.
        """
        return self._render("markdown", intervals=intervals)

    def to_latex(self, *, intervals: str = "average", max_lines: int | None = None) -> str:
        """Return the tables in LaTeX, each in one float.

        Args:
            intervals: The 95% intervals to show: of the ``average``, of ``all`` numbers or
                ``none``.
            max_lines: Divide tables into floats of at most so many lines; None: leave them whole.
        """
        return self._render("latex", intervals=intervals, max_lines=max_lines)

    def to_html(self) -> str:
        """Return a page without other files, which its reader sorts and filters."""
        return self._render("html")

    def to_csv(self) -> str:
        """Return CSV with one line for the measured, published or differing numbers of a row."""
        return self._render("csv")

    def to_frame(self) -> pd.DataFrame:
        """Return the lines of the CSV as a DataFrame by caption, section, group, row and side."""
        import pandas as pd

        return pd.concat(
            {table.caption: to_frame(table, self.show) for table in self.tables}, names=["caption"]
        )

    def plot(self, *, width: str | float | None = None) -> Chart:
        """Draw the table with a panel for each of its columns.

        A dot is a measured number with its 95% interval, a ring a published number. ``self.show``
        is the kind of numbers to draw, and ``self.exact`` draws averages that are not rounded as in
        the paper.

        Args:
            width: The width of the figure: ``column`` (3.3 inches), ``page`` (6.75 inches, the
                default), or a number of inches, cm or mm, such as ``8.4cm``.

        Raises:
            StsbenchError: There are several tables, there is nothing to draw, or matplotlib is not
                installed (extra ``plots``).
        """
        with figure_width(width):
            return draw_table(self.tables, self.show, exact=self.exact)

    def _render(self, fmt: str, **options: Any) -> str:  # noqa: ANN401 - those of render
        """Return the tables as text.

        ``self.show`` is the kind of numbers (``published``, ``measured``, ``both``, ``merged`` or
        their ``difference``; None: all that a table has). With ``self.exact`` averages are not
        rounded as in the paper; with ``self.rows_only`` captions, heads and legends are omitted.

        Args:
            fmt: The format: ``markdown``, ``latex``, ``html`` or ``csv``.
            **options: Further arguments of ``render``, such as ``intervals``.
        """
        return render(
            self.tables,
            fmt,
            show=self.show,
            exact=self.exact,
            rows_only=self.rows_only,
            **options,
        )


@validate_arguments(
    table=NAME_OR_PATH, suite=NAME, protocol=NAME, show=NAME, exact=SWITCH, ranks=SWITCH,
    detectable=SWITCH, mteb=PATH, encoders=NAMES, add=NAMES, rows_only=SWITCH,
    significance_against=NAME,
    language=NAME, max_parameters=SIZE, license=NAME, only_open=SWITCH, sort=NAME,
    top=COUNT_OR_NONE, columns=NAMES, max_ms=MILLISECONDS,
    catalogue=CATALOGUE,
)  # fmt: skip
def leaderboard(
    results: str | Path | Sequence[Result] | None = None,
    *,
    suite: str | None = None,
    table: str | Path | None = None,
    protocol: str | None = None,
    show: str | None = None,
    exact: bool = False,
    encoders: str | Sequence[str] = (),
    add: str | Sequence[str] = (),
    rows_only: bool = False,
    ranks: bool = False,
    significance_against: str | None = None,
    detectable: bool = False,
    mteb: Path | str | None = None,
    language: str | None = None,
    max_parameters: int | str | None = None,
    license: str | None = None,  # noqa: A002 - what users call it
    only_open: bool = False,
    sort: str | None = None,
    top: int | None = None,
    columns: str | Sequence[str] = (),
    max_ms: float | None = None,
    catalogue: Catalogue | None = None,
) -> Leaderboard:
    """Make the tables that ``stsbench leaderboard`` prints.

    Args:
        results: Results, or a results folder; by default ``results``, and none if a table is
            requested and there is no such folder.
        suite: The suite whose tasks are the columns; by default ``sts``, or a suite that the
            results have a task of if they have none of its tasks.
        table: A paper's table or one of ours in place of a suite, or a TOML file of yours.
        protocol: Show only a suite's results of this protocol.
        show: ``published``, ``measured``, ``difference``, ``both`` or ``merged`` (whichever there
            is).
        exact: Show exact averages, not rounded as in the paper.
        encoders: Show only these encoders of the results; names, or a comma list of names.
        add: Encoders of the results whose rows are added, each ``NAME`` or ``NAME:LABEL``.
        rows_only: Return texts without captions, heads and legends, and with ``add`` only the added
            rows.
        ranks: Show rank intervals, and letters that tell ties; needs per-item columns.
        significance_against: Mark measured scores that differ significantly from those of this
            encoder, by paired tests.
        detectable: Mark published scores of ``table``, or of a suite of MTEB's, that are too near
            to the next better one for a test on their items to see.
        mteb: A folder of MTEB's result files, shown as imported rows.
        language: Show only models made for a language, by name or code.
        max_parameters: Show only models of at most this size: ``500M``, ``1.5B`` or a number.
        license: Show only models whose licence begins like this.
        only_open: Show only models whose weights can be had.
        sort: The column to sort the rows of each group by.
        top: The number of rows to show of each group.
        columns: Columns to add: ``size``, ``dimensions``, ``ms`` (milliseconds to embed a sentence,
            in batches).
        max_ms: Show only encoders that embed a sentence in so many milliseconds.
        catalogue: The cards of your own.

    Raises:
        StsbenchError: There is no such table or suite, or nothing to show in it.
    """
    catalogue = catalogue or Catalogue()
    look_up("show", name=show or "both", table=dict.fromkeys(get_args(Show)))
    checked_show = check_show(show)
    # A wrong name is an error before any result is read.
    table_name = None if table is None else str(table)
    if table is not None and (suite is not None or protocol is not None):
        raise StsbenchError(
            "leaderboard: suite and protocol have no effect beside table; leave them out"
        )
    needs_results = needs_own_results(
        table_name,
        suite,
        catalogue,
        checked_show,
        has_imported=mteb is not None,
        detectable=detectable,
    )
    folder = Path(results) if isinstance(results, str | Path) else RESULTS_FOLDER
    read = _read_or_check_results(results, catalogue, is_needed=needs_results)
    directory = EncoderDirectory(ResultFolder(list(read), problems=[]), catalogue)
    request = TableRequest(
        catalogue=catalogue,
        results_folder=folder,
        protocol=protocol,
        show=checked_show,
        imported=read_mteb_files(Path(mteb)) if mteb is not None else None,
        ranks=ranks,
        detectable=detectable,
        row_filter=RowFilter.from_texts(
            language=language,
            max_parameters=max_parameters,
            license=license,
            only_open=only_open,
            sort=sort,
            top=top,
            columns=_list_names(columns),
            max_ms=max_ms,
        ),
    )
    requested = make_requested_tables(
        request,
        directory,
        table=table_name,
        suite=suite,
        encoders=_list_names(encoders),
        added_names=_list_names(add),
        significance_against=significance_against,
        rows_only=rows_only,
    )
    return Leaderboard(
        tables=requested.tables,
        show=checked_show,
        exact=exact,
        left_out=requested.omitted,
        advice=list(map(str, requested.advice)),
        rows_only=rows_only,
    )


def _list_names(names: str | Sequence[str]) -> list[str]:
    """Return the names of a comma list, or of a list of names, split at their commas."""
    texts = [names] if isinstance(names, str) else names
    return [part for text in texts for part in split_names(text)]


def _read_or_check_results(
    results: object, catalogue: Catalogue, *, is_needed: bool
) -> Sequence[Result]:
    """Return the results that a leaderboard shows: the user's, or those read from a folder.

    Args:
        results: Results or another sequence of Result objects, a folder, or None for the default
            folder.
        catalogue: The cards of tasks and encoders.
        is_needed: Whether the leaderboard would be empty without results. If False, as for a table
            of published scores, the default folder may be missing: then the list is empty.

    Raises:
        StsbenchError: ``results`` is none of these.
        OutputError: The folder does not exist.
        DataError: A file in it is broken.
    """
    if results is None:
        if is_needed or RESULTS_FOLDER.is_dir():
            return read_results(catalogue=catalogue)
        return []
    if isinstance(results, str | Path):
        return read_results(results, catalogue=catalogue)
    if _is_results(results):
        return list(results)
    raise StsbenchError(
        f"leaderboard: results must be Results or a results folder; it is {format_repr(results)}"
    )
