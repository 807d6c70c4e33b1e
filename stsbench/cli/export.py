"""``stsbench export``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stsbench.cards.catalogue import Catalogue
from stsbench.cli.names import chosen_results
from stsbench.cli.printing import complain_of_all, print_json, say
from stsbench.data.task import expand_names
from stsbench.errors import DataError, StsbenchError, choose
from stsbench.leaderboard.exports.model_index import model_index, to_yaml, write_card
from stsbench.leaderboard.exports.mteb import export_mteb
from stsbench.results.folder import Problem, read_results, verified
from stsbench.results.groups import gather_runs
from stsbench.results.record import Result

SHOWN = 5
"""So many cells that are left out get a line of their own."""


def export_command(
    fmt: str,
    *,
    folder: Path,
    encoders: Sequence[str],
    tasks: str | None,
    protocol: str | None,
    out: Path | None,
    cards: Sequence[Path],
    as_json: bool,
) -> None:
    """Write results in a format of another tool."""
    export = choose("format", fmt, EXPORTS)
    catalogue = Catalogue(cards)
    wanted = expand_names(tasks, catalogue) if tasks else None
    found = verified(
        one
        for one in _results(folder, encoders, catalogue)
        if (wanted is None or one.task in wanted) and protocol in (None, one.protocol["name"])
    )
    _tell(found.problems)
    results = found.results
    if not results:
        raise DataError(f"{folder}: no results of these tasks by this protocol to export")
    export(results, out, catalogue, as_json)


def _results(folder: Path, encoders: Sequence[str], catalogue: Catalogue) -> list[Result]:
    found = read_results(folder)
    _tell(found.problems)
    return chosen_results(encoders, found.results, catalogue, folder)


def _tell(problems: Sequence[Problem]) -> None:
    complain_of_all("left out", (problem.line for problem in problems))


def _mteb(results: Sequence[Result], out: Path | None, catalogue: Catalogue, as_json: bool) -> None:
    if out is None:
        raise StsbenchError("--format mteb writes many files: give --out FOLDER")
    made = export_mteb(results, out, catalogue)
    if as_json:
        print_json({"files": [str(path) for path in made.paths], "left_out": made.left_out})
        return
    for line in made.left_out[:SHOWN]:
        say(f"left out: {line}")
    if len(made.left_out) > SHOWN:
        say(f"left out: {len(made.left_out) - SHOWN} more; --json lists them")
    say(f"wrote {len(made.paths)} file{'s' * (len(made.paths) != 1)}; mteb.ResultCache('{out}') reads them")


def _model_index(results: Sequence[Result], out: Path | None, catalogue: Catalogue, as_json: bool) -> None:
    runs = gather_runs(results, catalogue)
    if len(runs) > 1:
        names = ", ".join(f"'{one.name}'" for one in runs[:SHOWN])
        raise StsbenchError(
            f"a model card is of one encoder, these results are of {len(runs)} ({names}); give --encoder"
        )
    index = model_index(runs[0].encoder, runs[0].results, catalogue)
    if out is not None:
        write_card(out, index)
    if as_json:
        print_json(index)
    else:
        say(f"wrote {out}" if out is not None else to_yaml(index).rstrip("\n"))


EXPORTS: Mapping[str, Callable[[Sequence[Result], Path | None, Catalogue, bool], None]] = {
    "mteb": _mteb,
    "model-index": _model_index,
}
"""The formats: results, where to, cards, and whether to print JSON."""
