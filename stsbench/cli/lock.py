"""``stsbench lock``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.check import read_cells
from stsbench.cli.printing import print_json, print_text
from stsbench.core.errors import DataError, OutputError
from stsbench.core.files import write_atomically
from stsbench.core.wording import format_count

if TYPE_CHECKING:
    from stsbench.check.lock import LockedCell


def lock_command(
    *,
    results: opt.ResultsArgument = Path("results"),
    out: opt.LockFile = Path("scores.lock.json"),
    encoder: opt.OnlyEncoders,
    tasks: opt.OnlyTasks = None,
    strict: opt.Strict = False,
    _config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Write scores to a lock file for 'stsbench check'.

    The file also holds what the scores were computed with, and the data for paired tests.

    Example: stsbench lock results --out scores.lock.json
    """
    from stsbench.check.lock import group_seeds, lock_cells, read_lock, to_lock
    from stsbench.evaluators.belief import describe_unverified

    catalogue = opt.read_cards(cards)
    if not results.is_dir():
        raise OutputError(f"results folder '{results}' does not exist; 'stsbench run' makes it")
    side = read_cells(results, encoder, tasks, catalogue)
    if side.problems:
        raise DataError(
            f"{side.problems[0].message}; repair or remove the file, "
            "for a lock without it would not check it"
        )
    current_results = side.results()
    if not current_results:
        raise DataError(f"{results}: holds no results to lock")
    n_unverified = sum(map(len, side.unverified.values()))
    if strict and n_unverified:
        reasons = describe_unverified(side.unverified, len(current_results))
        raise DataError(f"{results}: {reasons}; nothing is locked")
    # If per-item columns are missing, an earlier lock in the same file may have what they yield.
    earlier_cells: list[LockedCell] = []
    with suppress(DataError, OutputError):
        earlier_cells = read_lock(out)
    cells = lock_cells(current_results, earlier_cells)
    write_atomically(out, to_lock(cells))
    report = {
        "lock": str(out),
        "cells": len(cells),
        "encoders": sorted({cell.encoder for cell in cells}),
        "without_items": sum(cell.paired is None for cell in cells),
        "not_verified": n_unverified,
        "single_seeds": sum(len(seeds) == 1 for seeds in group_seeds(cells).values()),
    }
    if as_json:
        print_json(report)
    else:
        print_text(_describe_lock(report))


def _describe_lock(report: Mapping[str, Any]) -> str:
    """Return as text how many cells are locked, and what a check of them cannot do.

    Args:
        report: The file and the numbers of cells, with the keys of ``--json``.
    """
    n_cells = report["cells"]
    text = f"locked {format_count(n_cells, 'cell')} in {report['lock']}"
    if report["without_items"]:
        text += (
            f"; {report['without_items']} without what a paired test needs, "
            "for their per-item columns are missing"
        )
    if report["not_verified"]:
        text += f"; {report['not_verified']} not verified"
    if report["single_seeds"]:
        text += (
            f"; {report['single_seeds']} of a single training seed, "
            "of which three would show how far trainings differ"
        )
    return text
