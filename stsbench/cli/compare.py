"""``stsbench compare``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.printing import (
    CHECKED,
    emit,
    print_error,
    print_paragraph,
    print_rows,
    print_text,
    show_count,
)
from stsbench.core.errors import StsbenchError, look_up

if TYPE_CHECKING:
    from stsbench.significance.comparison import Difference


def compare_command(
    context: opt.Context,
    encoders: opt.ComparedEncoders,
    *,
    results: opt.ResultsFolder = Path("results"),
    tasks: opt.OnlyTasks = None,
    protocol: opt.OnlyProtocol = None,
    seed: opt.CompareSeed = 0,
    independent: opt.Independent = False,
    output: opt.CompareFormat = "terminal",
    out: opt.TableFile = None,
    plot: opt.Plot = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> None:
    """Test which differences between encoders are significant.

    The tests are paired, over the same items.

    Example: stsbench compare minilm glove-840b --tasks sts
    """
    from stsbench.api.names import select_compared_results
    from stsbench.api.results import build_comparison
    from stsbench.boards.render.figures import WRITERS, comparison_figure, render_comparison
    from stsbench.boards.render.formats import TERMINAL
    from stsbench.significance.comparison import describe_comparison, describe_notes

    catalogue = opt.read_cards(cards)
    given = opt.TypedOptions.from_context(context)
    given.forbid_beside("--json", "--format")
    if not results.is_dir() and all(Path(one).is_dir() for one in encoders):
        given.forbid("where all that is compared are folders", "--results")
    fmt = opt.choose_format(output, out, as_json=as_json)
    look_up("format", fmt, {TERMINAL: None, **WRITERS})
    if len(encoders) < 2:
        raise StsbenchError("compare needs at least two encoders, or folders of results")
    skipped = partial(print_error, about="skipped")
    with show_count(CHECKED) as progress:
        read = select_compared_results(
            encoders,
            results,
            catalogue,
            on_problem=skipped,
            on_notice=print_error,
            progress=progress,
        )
    found = build_comparison(
        read, catalogue, tasks=tasks, protocol=protocol, seed=seed, independent=independent
    )
    if plot is not None:
        # It is said where stdout is for people, and not beside JSON or CSV.
        emit(comparison_figure(found), plot, silent=fmt != TERMINAL and out is None)
    if fmt == TERMINAL:
        for (first, second, differences), sentence in zip(
            found.pairs(), describe_comparison(found), strict=True
        ):
            print_text(f"A = {first}\nB = {second}\n")
            print_differences(differences)
            print_text("")
            print_paragraph(sentence)
            print_text("")
        print_paragraph(*describe_notes(found))
    else:
        emit(render_comparison(found, fmt), out)


def print_differences(differences: Sequence[Difference]) -> None:
    """Print a line for each difference."""
    from stsbench.significance.comparison import difference_columns

    heads, rows = difference_columns(differences)
    print_rows(heads, rows, right=range(1, len(heads)))
