"""``stsbench lock``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stsbench.cli import options as opt
from stsbench.cli.check import read_one
from stsbench.cli.printing import print_json, print_text
from stsbench.core.errors import DataError, OutputError
from stsbench.core.files import write_atomically

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
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> None:
    """Write scores to a lock file for 'stsbench check'.

    It holds what they were made with, and what paired tests need.

    Example: stsbench lock results --out scores.lock.json
    """
    from stsbench.check.lock import lock_cells, read_lock, to_lock
    from stsbench.evaluators.belief import describe_unverified

    catalogue = opt.read_cards(cards)
    if not results.is_dir():
        raise OutputError(f"results folder '{results}' does not exist; 'stsbench run' makes it")
    side = read_one(results, encoder, tasks, catalogue)
    for problem in side.problems:
        raise DataError(
            f"{problem.message}; repair or remove the file, for a lock without it would not check it"
        )
    if not (held := side.results()):
        raise DataError(f"{results}: holds no results to lock")
    unverified = sum(map(len, side.unverified.values()))
    if strict and unverified:
        reasons = describe_unverified(side.unverified, len(held))
        raise DataError(f"{results}: {reasons}; nothing is locked")
    kept: list[LockedCell] = []
    with suppress(DataError, OutputError):
        kept = read_lock(out)
    cells = lock_cells(held, kept)
    write_atomically(out, to_lock(cells))
    bare = sum(cell.paired is None for cell in cells)
    if as_json:
        encoders = sorted({cell.encoder for cell in cells})
        facts = {"lock": str(out), "cells": len(cells), "encoders": encoders}
        print_json({**facts, "without_items": bare, "not_verified": unverified})
    else:
        more = (
            f"; {bare} without what a paired test needs, for their per-item columns are missing"
            if bare
            else ""
        )
        more += f"; {unverified} not verified" if unverified else ""
        print_text(f"locked {len(cells)} cell{'' if len(cells) == 1 else 's'} in {out}{more}")
