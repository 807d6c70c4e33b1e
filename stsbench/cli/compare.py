"""``stsbench compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions, choose_format
from stsbench.cli.printing import (
    CHECKING_LABEL,
    print_error,
    print_paragraph,
    print_text,
    show_count,
    write_or_print,
)
from stsbench.cli.tables import print_rows
from stsbench.cli.wording import notes_with_commands
from stsbench.plots.labels import figure_width

if TYPE_CHECKING:
    from stsbench.significance.comparison_record import Comparison, Difference


def compare_command(
    context: opt.Context,
    encoders: opt.ComparedEncoders,
    *,
    results: opt.ResultsFolder = Path("results"),
    tasks: opt.OnlyTasks = None,
    protocol: opt.OnlyProtocol = None,
    seed: opt.CompareSeed = 0,
    independent: opt.Independent = False,
    margin: opt.DifferenceMargin = None,
    plan: opt.PlannedDifference = None,
    all_pairs: opt.AllPairs = False,
    output: opt.CompareFormat = "terminal",
    out: opt.TableFile = None,
    plot: opt.Plot = None,
    width: opt.FigureWidth = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> None:
    """Test which differences between encoders are significant.

    The tests are paired: both encoders are scored on the same items. The others are compared with
    the first one.

    Example: stsbench compare minilm glove-840b --tasks sts
    """
    from stsbench.api.results import build_comparison
    from stsbench.api.selection import select_compared_results
    from stsbench.boards.render.figures import WRITERS, draw_comparison, render_comparison
    from stsbench.boards.render.formats import TERMINAL

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    typed = TypedOptions.from_context(context)
    typed.forbid_beside("--json", "--format")
    typed.forbid_without("--plot", "--width")
    if not results.is_dir() and all(Path(name).is_dir() for name in encoders):
        typed.forbid("where all that is compared are folders", "--results")
    fmt = choose_format(output, out, WRITERS, as_json=as_json)
    with show_count(CHECKING_LABEL) as progress:
        results_by_encoder = select_compared_results(
            encoders,
            results,
            catalogue,
            on_problem=partial(print_error, about="skipped"),
            on_notice=print_error,
            tasks=tasks,
            progress=progress,
        )
    comparison = build_comparison(
        results_by_encoder,
        catalogue,
        tasks=tasks,
        protocol=protocol,
        seed=seed,
        independent=independent,
        margin=margin,
        plan=plan,
        all_pairs=all_pairs,
    )
    comparison = replace(comparison, notes=notes_with_commands(comparison.notes))
    if plot is not None:
        # The line about the file is printed where stdout is for people, not beside JSON or CSV.
        with figure_width(width):
            write_or_print(
                draw_comparison(comparison), plot, silent=fmt != TERMINAL and out is None
            )
    if fmt == TERMINAL:
        _print_comparison(comparison)
    else:
        write_or_print(render_comparison(comparison, fmt), out)


def _print_comparison(comparison: Comparison) -> None:
    """Print the differences of each pair of encoders, and which of them are significant.

    Args:
        comparison: The differences, which ``pairs()`` yields by pair of encoders.
    """
    from stsbench.significance.descriptions import describe_comparison, describe_notes

    pairs = zip(comparison.pairs(), describe_comparison(comparison), strict=True)
    for (first, second, differences), sentence in pairs:
        print_text(f"A = {first}\nB = {second}\n")
        print_differences(differences, comparison.level)
        print_text("")
        print_paragraph(sentence)
        print_text("")
    print_paragraph(*describe_notes(comparison))


def print_differences(differences: Sequence[Difference], level: float) -> None:
    """Print a table with a line per difference of two encoders, tested at a level."""
    from stsbench.significance.descriptions import difference_columns

    # All cells are text. A column without a value in any row is omitted.
    heads, rows = difference_columns(differences, level)
    # All columns are numbers but the task and the verdict by the margin, which are text.
    number_columns = [index for index, head in enumerate(heads) if head not in ("task", "margin")]
    # No column is of encoders' names: text that is too long is wrapped, not abbreviated.
    print_rows(heads, rows, number_columns=number_columns, name_columns=())
