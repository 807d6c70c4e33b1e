"""``stsbench compare``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.names import chosen_results
from stsbench.cli.options.scores import CompareOptions
from stsbench.cli.printing import complain_of_all, console, print_json, say, say_words, table
from stsbench.compare.comparison import Comparison, Effort, compare
from stsbench.compare.sentences import columns, sentences
from stsbench.data.task import expand_names
from stsbench.errors import StsbenchError
from stsbench.results.folder import Problem, ResultFolder, read_folder, verified
from stsbench.results.groups import of_one_encoder
from stsbench.results.record import Result


def compare_command(options: CompareOptions) -> None:
    """Compare encoders and print, for each pair, a table and a sentence."""
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
    if options.as_json:
        print_json({**dataclasses.asdict(found), "sentences": sentences(found)})
    else:
        _print(found, effort)


def _results(specs: Sequence[str], folder: Path, catalogue: Catalogue) -> dict[str, Sequence[Result]]:
    """Each encoder's results: of the results folder, or of a folder of its own."""
    known = ResultFolder([], [])
    if folder.is_dir() or not all(Path(spec).is_dir() for spec in specs):
        known = read_folder(folder)
        _tell(known.problems)
    names = {result.encoder for result in known.results}
    found: dict[str, Sequence[Result]] = {}
    for spec in specs:
        if spec not in names and Path(spec).is_dir():
            there = read_folder(Path(spec))
            _tell(there.problems)
            mine = there.results
        else:
            mine = chosen_results([spec], known.results, catalogue, folder)
        found[spec] = of_one_encoder(spec, mine, catalogue)
    return {spec: _verified(results) for spec, results in found.items()}


def _verified(results: Sequence[Result]) -> Sequence[Result]:
    """An encoder's results without those that their per-item columns do not make."""
    found = verified(results)
    _tell(found.problems)
    return found.results


def _tell(problems: Sequence[Problem]) -> None:
    complain_of_all("skipped", (problem.line for problem in problems))


def _print(comparison: Comparison, effort: Effort) -> None:
    for (first, second, differences), sentence in zip(comparison.pairs(), sentences(comparison), strict=True):
        say(f"A = {first}\nB = {second}\n")
        head, rows = columns(differences)
        console().print(table(head, rows, right=range(1, len(head))))
        say("")
        say_words(sentence)
        say("")
    for note in comparison.notes:
        say_words(note)
    items = "taken as independent" if effort.dependence == "none" else "that share a sentence are not independent"
    say(f"scores are times 100; items {items}")
    say("p: Student's t; of items that share no sentence, a paired permutation test")
    say("Holm: p corrected for all comparisons above; docs/statistics.md says more")
