"""``stsbench compare``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.names import chosen_results
from stsbench.cli.options.scores import CompareOptions
from stsbench.cli.printing import complain_of_all, print_rows, say, say_words
from stsbench.compare.comparison import Comparison, Effort, compare
from stsbench.compare.sentences import columns, notes_below, sentences
from stsbench.data.task import expand_names, tasks_in_order
from stsbench.encoders.trained import RUN_FILE
from stsbench.errors import OutputError, StsbenchError, choose
from stsbench.files.whole import write_whole
from stsbench.leaderboard.render import TERMINAL
from stsbench.leaderboard.render.comparison import WRITERS, render_comparison
from stsbench.leaderboard.render.figures import comparison_figure
from stsbench.results.folder import Problem, ResultFolder, read_folder, verified
from stsbench.results.groups import of_one_encoder
from stsbench.results.record import Result


def compare_command(options: CompareOptions) -> None:
    """Compare encoders and print, for each pair, a table and a sentence."""
    fmt = options.fmt
    choose("format", fmt, {TERMINAL: None, **WRITERS})
    specs = options.encoders
    effort = Effort(seed=options.seed, dependence="none" if options.independent else "sentences")
    if len(specs) < 2:
        raise StsbenchError("compare needs at least two encoders, or folders of results")
    if len(set(specs)) < len(specs):
        raise StsbenchError(f"compare was given '{max(specs, key=specs.count)}' twice")
    catalogue = Catalogue(options.cards)
    wanted = expand_names(options.tasks, catalogue) if options.tasks else None
    results = _results(specs, options.results, catalogue)
    found = compare(results, tasks=wanted, protocol=options.protocol, effort=effort)
    if options.plot is not None:
        write_whole(options.plot, comparison_figure(found).to_bytes(options.plot.suffix.removeprefix(".")))
        # On stdout where that is for people, and not beside JSON or CSV.
        if fmt == TERMINAL or options.out is not None:
            say(f"wrote {options.plot}")
    if options.out is not None:
        text = render_comparison(found, "markdown" if fmt == TERMINAL else fmt)
        write_whole(options.out, text.encode())
        say(f"wrote {options.out}")
    elif fmt == TERMINAL:
        _print(found)
    else:
        say(render_comparison(found, fmt), end="")


def _results(specs: Sequence[str], folder: Path, catalogue: Catalogue) -> dict[str, Sequence[Result]]:
    """Each encoder's results: of the results folder, or of a folder of its own."""
    known = ResultFolder([], [])
    if folder.is_dir() or not all(Path(spec).is_dir() for spec in specs):
        if not folder.is_dir():
            raise OutputError(f"results folder '{folder}' does not exist", hint="'stsbench run' makes it")
        known = read_folder(folder)
        _tell(known.problems)
    names = {result.encoder for result in known.results}
    found: dict[str, Sequence[Result]] = {}
    for spec in specs:
        if spec not in names and Path(spec).is_dir():
            there = read_folder(Path(spec))
            if not there.results and (Path(spec) / RUN_FILE).is_file():
                raise OutputError(
                    f"'{spec}' holds a trained encoder and no results",
                    hint=f"'stsbench run --encoder {spec}' scores it; then compare what the results call it",
                )
            _tell(there.problems)
            mine = there.results
        else:
            mine = chosen_results([spec], known.results, catalogue, folder)
        found[spec] = of_one_encoder(spec, mine, catalogue)
    places = {task: place for place, task in enumerate(tasks_in_order(catalogue))}
    for spec, results in found.items():
        found[spec] = sorted(_verified(results), key=lambda one: places.get(one.task, len(places)))
    return found


def _verified(results: Sequence[Result]) -> Sequence[Result]:
    """An encoder's results without those that their per-item columns do not make."""
    found = verified(results)
    _tell(found.problems)
    return found.results


def _tell(problems: Sequence[Problem]) -> None:
    complain_of_all("skipped", (problem.line for problem in problems))


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
