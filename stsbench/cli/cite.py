"""``stsbench cite``: BibTeX of all that the results in a folder rest on."""

from __future__ import annotations

from pathlib import Path

from stsbench.cli import options as opt
from stsbench.cli.printing import emit, print_errors
from stsbench.core.errors import DataError, Remedy


def cite_command(
    results: opt.ResultsArgument = Path("results"),
    *,
    encoder: opt.OnlyEncoders,
    tasks: opt.OnlyTasks = None,
    out: opt.TableFile = None,
    _config: opt.Config = None,
    cards: opt.Cards,
) -> None:
    """Print BibTeX for all that results rest on.

    That is the tasks, encoders and protocols of the results, and stsbench. Entries are made of the
    facts in cards; a comment above each says what it is the source of.

    Example: stsbench cite results --out stsbench.bib
    """
    from stsbench.api.selection import select_results
    from stsbench.boards.exports.bibtex import cite_results
    from stsbench.data.task import expand_names
    from stsbench.results.folder import read_folder
    from stsbench.results.groups import EncoderDirectory

    catalogue = opt.read_cards(cards)
    folder = read_folder(results)
    print_errors("skipped", (problem.message for problem in folder.problems))
    directory = EncoderDirectory(folder, catalogue)
    selected = select_results(encoder, directory, catalogue, location=results)
    if tasks:
        chosen_tasks = expand_names(tasks, catalogue)
        selected = [result for result in selected if result.task in chosen_tasks]
    if not selected:
        raise DataError(f"'{results}' has no such results", remedy=Remedy("score"))
    emit(cite_results(selected, catalogue), out)
