"""``stsbench compare``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from stsbench.api.names import compared_results
from stsbench.api.results import compared
from stsbench.boards.render import TERMINAL
from stsbench.boards.render.figures import WRITERS, comparison_figure, render_comparison
from stsbench.cli import options as opt
from stsbench.cli.printing import complain, emit, print_rows, say, say_words
from stsbench.core.errors import StsbenchError, choose
from stsbench.significance.comparison import Difference, columns, notes_below, sentences


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
    catalogue: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Test which differences between encoders are significant.

    The tests are paired, over the same items.

    Example: stsbench compare minilm glove-840b --tasks sts
    """
    given = opt.Given.of(context)
    given.apart("--json", "--format")
    if not results.is_dir() and all(Path(one).is_dir() for one in encoders):
        given.idle("where all that is compared are folders", "--results")
    fmt = opt.written_as(output, out, as_json=as_json)
    choose("format", fmt, {TERMINAL: None, **WRITERS})
    if len(encoders) < 2:
        raise StsbenchError("compare needs at least two encoders, or folders of results")
    read = compared_results(encoders, results, catalogue, skipped=partial(complain, about="skipped"), older=complain)
    found = compared(read, catalogue, tasks=tasks, protocol=protocol, seed=seed, independent=independent)
    if plot is not None:
        # It is said where stdout is for people, and not beside JSON or CSV.
        emit(comparison_figure(found), plot, silent=fmt != TERMINAL and out is None)
    if fmt == TERMINAL:
        for (first, second, differences), sentence in zip(found.pairs(), sentences(found), strict=True):
            say(f"A = {first}\nB = {second}\n")
            print_differences(differences)
            say("")
            say_words(sentence)
            say("")
        say_words(*notes_below(found))
    else:
        emit(render_comparison(found, fmt), out)


def print_differences(differences: Sequence[Difference]) -> None:
    """Print a line for each difference."""
    heads, rows = columns(differences)
    print_rows(heads, rows, right=range(1, len(heads)))
