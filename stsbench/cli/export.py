"""``stsbench export``."""

from __future__ import annotations

from collections.abc import Sequence

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.names import chosen_results
from stsbench.cli.options.scores import ExportOptions
from stsbench.cli.printing import complain_of_all, print_json, say
from stsbench.data.task import expand_names
from stsbench.errors import DataError, StsbenchError, choose
from stsbench.files.whole import write_whole
from stsbench.leaderboard.exports.eval_results import eval_results
from stsbench.leaderboard.exports.every_eval_ever import every_eval_ever
from stsbench.leaderboard.exports.model_index import model_index, to_yaml, write_card
from stsbench.leaderboard.exports.mteb import export_mteb
from stsbench.results.folder import Problem, scan_results, verified
from stsbench.results.groups import Runs, gather_runs
from stsbench.results.record import Result

SHOWN = 5
"""So many cells that are left out get a line of their own."""


def export_command(options: ExportOptions) -> None:
    """Write results in a format of another tool."""
    write = choose("format", options.fmt, FORMATS)
    catalogue = Catalogue(options.cards)
    wanted = expand_names(options.tasks, catalogue) if options.tasks else None
    found = verified(
        one
        for one in _results(options, catalogue)
        if (wanted is None or one.task in wanted) and options.protocol in (None, one.protocol["name"])
    )
    _tell(found.problems)
    if not found.results:
        raise DataError(f"{options.results}: no results of these tasks by this protocol to export")
    write(found.results, options, catalogue)


def _results(options: ExportOptions, catalogue: Catalogue) -> list[Result]:
    found = scan_results(options.results)
    _tell(found.problems)
    return chosen_results(options.encoder, found.results, catalogue, options.results)


def _tell(problems: Sequence[Problem]) -> None:
    complain_of_all("skipped", (problem.line for problem in problems))


def _mteb(results: Sequence[Result], options: ExportOptions, catalogue: Catalogue) -> None:
    out = options.out
    if out is None:
        raise StsbenchError("--format mteb writes many files: give --out FOLDER")
    made = export_mteb(results, out, catalogue)
    if options.as_json:
        print_json({"files": [str(path) for path in made.paths], "left_out": made.left_out})
        return
    for line in made.left_out[:SHOWN]:
        say(f"skipped: {line}")
    if len(made.left_out) > SHOWN:
        say(f"skipped: {len(made.left_out) - SHOWN} more; --json lists them")
    say(f"wrote {len(made.paths)} file{'s' * (len(made.paths) != 1)}; mteb.ResultCache('{out}') reads them")


def _model_index(results: Sequence[Result], options: ExportOptions, catalogue: Catalogue) -> None:
    one = _of_one(results, catalogue, "a model card")
    index = model_index(one.encoder, one.results, catalogue)
    if options.out is not None:
        write_card(options.out, index)
    if options.as_json:
        print_json(index)
    else:
        say(f"wrote {options.out}" if options.out is not None else to_yaml(index).rstrip("\n"))


def _eval_results(results: Sequence[Result], options: ExportOptions, catalogue: Catalogue) -> None:
    made = eval_results(_of_one(results, catalogue, "a file of the Hub's").results, catalogue)
    complain_of_all("left out", made.left_out)
    _one_file(made.text, options)


def _every_eval_ever(results: Sequence[Result], options: ExportOptions, catalogue: Catalogue) -> None:
    _one_file(every_eval_ever(_of_one(results, catalogue, "a record").results, catalogue), options)


def _one_file(text: str, options: ExportOptions) -> None:
    if options.out is not None:
        write_whole(options.out, text.encode())
    if options.as_json:
        print_json({"out": str(options.out) if options.out is not None else None, "text": text})
    else:
        say(f"wrote {options.out}" if options.out is not None else text.rstrip("\n"))


def _of_one(results: Sequence[Result], catalogue: Catalogue, what: str) -> Runs:
    """The results, seen to be of one encoder."""
    runs = gather_runs(results, catalogue)
    if len(runs) > 1:
        names = ", ".join(f"'{one.name}'" for one in runs[:SHOWN])
        raise StsbenchError(f"{what} is of one encoder, these results are of {len(runs)} ({names}); give --encoder")
    return runs[0]


FORMATS = {
    "mteb": _mteb,
    "model-index": _model_index,
    "eval-results": _eval_results,
    "every-eval-ever": _every_eval_ever,
}
