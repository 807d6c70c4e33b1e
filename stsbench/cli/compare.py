"""``stsbench compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from typer import Context

from stsbench.boards.render import TERMINAL
from stsbench.boards.render.figures import WRITERS, comparison_figure, render_comparison
from stsbench.cli import options as opt
from stsbench.cli.names import chosen_results, complain_of_older, read_encoders
from stsbench.cli.printing import complain_of_all, say, say_words, write_or_say
from stsbench.cli.screen import print_rows
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import OutputError, StsbenchError, choose
from stsbench.core.files import write_whole
from stsbench.data.task import expand_names, tasks_in_order
from stsbench.encoders.runs import RUN_FILE
from stsbench.results.folder import ResultFolder, read_folder, verified
from stsbench.results.groups import Encoders
from stsbench.results.record import Result
from stsbench.significance.comparison import Comparison, Effort, columns, compare, notes_below, sentences


def compare_command(
    context: Context,
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
    config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Test which differences between encoders are significant.

    The tests are paired, over the same items.

    Example: stsbench compare minilm glove-840b --tasks sts
    """
    given = opt.Given.of(context)
    given.apart("--json", "--format")
    opt.check_figure("--plot", plot)
    if not results.is_dir() and all(Path(one).is_dir() for one in encoders):
        given.idle("where all that is compared are folders", "--results")
    fmt = opt.written_as(output, out, as_json=as_json)
    choose("format", fmt, {TERMINAL: None, **WRITERS})
    if len(encoders) < 2:
        raise StsbenchError("compare needs at least two encoders, or folders of results")
    if len(set(encoders)) < len(encoders):
        raise StsbenchError(f"compare was given '{max(encoders, key=encoders.count)}' twice")
    catalogue = Catalogue(cards)
    wanted = expand_names(tasks, catalogue) if tasks else None
    effort = Effort(seed=seed, dependence="none" if independent else "sentences")
    found = compare(_results(encoders, results, catalogue), tasks=wanted, protocol=protocol, effort=effort)
    if plot is not None:
        write_whole(plot, comparison_figure(found).to_bytes(plot.suffix.removeprefix(".")))
        # On stdout where that is for people, and not beside JSON or CSV.
        if fmt == TERMINAL or out is not None:
            say(f"wrote {plot}")
    if fmt == TERMINAL and out is None:
        _print(found)
    else:
        write_or_say(render_comparison(found, "markdown" if fmt == TERMINAL else fmt), out)


def _results(specs: Sequence[str], folder: Path, catalogue: Catalogue) -> dict[str, Sequence[Result]]:
    """Each encoder's results: of the results folder, or of a folder of its own."""
    known = Encoders(ResultFolder([], []), catalogue)
    if folder.is_dir() or not all(Path(spec).is_dir() for spec in specs):
        if not folder.is_dir():
            raise OutputError(f"results folder '{folder}' does not exist", hint="'stsbench run' makes it")
        known = read_encoders(folder, catalogue)
    names = {result.encoder for result in known.found.results}
    found: dict[str, Sequence[Result]] = {}
    for spec in specs:
        if spec not in names and Path(spec).is_dir():
            if (Path(spec) / RUN_FILE).is_file() and not read_folder(Path(spec)).states:
                raise OutputError(
                    f"'{spec}' holds a trained encoder and no results",
                    hint=f"'stsbench run --encoder {spec}' scores it; then compare what the results call it",
                )
            there = read_encoders(Path(spec), catalogue)
            found[spec] = there.of_one(spec, there.found.results)
            complain_of_older(there, found[spec])
        else:
            found[spec] = known.of_one(spec, chosen_results([spec], known, catalogue, folder))
    complain_of_older(known, [one for mine in found.values() for one in mine])
    places = {task: place for place, task in enumerate(tasks_in_order(catalogue))}
    for spec, results in found.items():
        made = verified(results)
        complain_of_all("skipped", (problem.line for problem in made.problems))
        found[spec] = sorted(made.results, key=lambda one: places.get(one.task, len(places)))
    return found


def _print(comparison: Comparison) -> None:
    for (first, second, differences), sentence in zip(comparison.pairs(), sentences(comparison), strict=True):
        say(f"A = {first}\nB = {second}\n")
        head, rows = columns(differences)
        print_rows(head, rows, right=range(1, len(head)))
        say("")
        say_words(sentence)
        say("")
    for line in notes_below(comparison):
        say_words(line)
