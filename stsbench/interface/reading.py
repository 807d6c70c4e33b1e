"""Results of folders, and encoders to compare, by whatever a program names them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from stsbench.cards.catalogue import Catalogue
from stsbench.errors import DataError, StsbenchError, UnknownName, choose, shown
from stsbench.interface.comparison import EncoderComparison, compared
from stsbench.interface.results import Results
from stsbench.registry.arguments import NAME, PLACE, checked
from stsbench.results.folder import read_folder, verified
from stsbench.results.groups import called, of_one_encoder
from stsbench.results.record import Result

RESULTS = Path("results")


@checked(folder=PLACE, on_error=NAME, catalogue=Catalogue)
def read_results(
    folder: str | Path = RESULTS, *, on_error: Literal["raise", "skip"] = "raise", catalogue: Catalogue | None = None
) -> Results:
    """Read all Results of a results folder, or of the folder of one encoder in it.

    Every file is checked as the command line does: its fields, and its score against the per-item columns beside it.

    Args:
        folder: the results folder.
        on_error: ``skip`` leaves out files that are no Results, with a warning for each.
        catalogue: cards to look names up in.

    Raises:
        DataError: a file is broken, or its columns do not make its score.
        OutputError: there is no such folder, or it cannot be read.
    """
    choose("on_error", on_error, {"raise": None, "skip": None})
    there = read_folder(Path(folder))
    found = verified(there.results)
    problems = [*there.problems, *found.problems]
    if problems and on_error == "raise":
        more = f" (and {len(problems) - 1} files more)" if len(problems) > 1 else ""
        raise DataError(f"{problems[0].line}{more}; on_error='skip' leaves such files out")
    for problem in problems:
        warnings.warn(problem.line, stacklevel=3)
    return Results(found.results, catalogue=catalogue)


@checked("compare", results=PLACE, catalogue=Catalogue)
def compare_encoders(
    *encoders: str | Path | Result | Sequence[Result],
    results: str | Path = RESULTS,
    tasks: str | Sequence[str] | None = None,
    protocol: str | None = None,
    seed: int = 0,
    independent: bool = False,
    catalogue: Catalogue | None = None,
) -> EncoderComparison:
    """Compare every two encoders on the items that both were scored on, as ``stsbench compare`` does.

    Args:
        encoders: Results, of one encoder or several, or a Result; names of encoders in the results folder; folders of one
            encoder's results.
        results: the results folder, read where a name is given.
        tasks: only these tasks and suites.
        protocol: only results of this protocol.
        seed: of the draws.
        independent: treat items that share a sentence as independent.
        catalogue: cards to look names up in.

    Raises:
        StsbenchError: fewer than two encoders, one that has no results, or nothing that two can be compared on.
    """
    catalogue = catalogue or Catalogue()
    found: dict[str, Sequence[Result]] = {}
    handed: list[Result] = []
    for one in encoders:
        if isinstance(one, str | Path):
            _join(found, str(one), _named(str(one), Path(results), catalogue))
        elif isinstance(one, Result):
            handed.append(one)
        elif isinstance(one, Sequence) and all(isinstance(part, Result) for part in one):
            handed += [*one]
        else:
            raise StsbenchError(f"compare: {shown(one)} is neither Results nor the name or folder of an encoder")
    # Together, so that two states of one encoder are told apart.
    for runs in Results(handed, catalogue=catalogue).runs:
        _join(found, runs.name, runs.results)
    return compared(found, catalogue, tasks=tasks, protocol=protocol, seed=seed, independent=independent)


def _join(found: dict[str, Sequence[Result]], name: str, results: Sequence[Result]) -> None:
    if name in found:
        raise StsbenchError(f"compare was given '{name}' twice")
    found[name] = results


def _named(name: str, folder: Path, catalogue: Catalogue) -> Sequence[Result]:
    """The results of one encoder: of the results folder, or of a folder of its own."""
    there = Path(name).is_dir()
    known = read_results(folder, catalogue=catalogue) if folder.is_dir() or not there else Results()
    runs = called(name, known.runs)
    if not runs and there:
        return of_one_encoder(name, read_results(name, catalogue=catalogue), catalogue)
    if not runs:
        raise UnknownName("encoder", name, known.encoders, hint=f"{folder} has no results of it")
    return of_one_encoder(name, [result for one in runs for result in one.results], catalogue)
