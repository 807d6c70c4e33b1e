"""``stsbench check``, ``stsbench lock`` and ``stsbench verify``: scores against old ones, and against their items."""

from __future__ import annotations

import dataclasses
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from typer import Context

from stsbench.api.names import chosen_side
from stsbench.bench.plan import plan_tasks
from stsbench.check.gate import RULES, Check, check, check_published, not_checked, parse_tolerances
from stsbench.check.lock import LockedCell, Side, lock_cells, read_lock, read_side, to_lock
from stsbench.check.reports import (
    COLUMNS,
    github_lines,
    markdown,
    matters,
    no_command,
    no_command_json,
    row,
)
from stsbench.check.reports import junit as junit_xml
from stsbench.check.verify import Known, Verification, Verified, verify
from stsbench.cli import options as opt
from stsbench.cli.data import local_files
from stsbench.cli.printing import MISTAKE, complain, complain_of_all, print_json, say, say_words
from stsbench.cli.progress import shown_count
from stsbench.cli.screen import print_rows
from stsbench.core import settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError, SourceError, StsbenchError, choose, one_line
from stsbench.core.files import append_line, write_whole
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from stsbench.data.task import expand_names
from stsbench.numbers.statistics import sentence_columns

SHORT = 24
"""A table of more rows shows those that matter."""


def check_command(
    context: Context,
    new: opt.NewResults,
    *,
    against: opt.Against,
    encoder: opt.OnlyEncoders,
    against_encoder: opt.AgainstEncoders,
    tasks: opt.OnlyTasks = None,
    rule: opt.RuleName = "absolute",
    tolerance: opt.Tolerances,
    exact: opt.Exact = False,
    allow_missing: opt.AllowMissing = False,
    junit: opt.Junit = None,
    github: opt.Github = False,
    summary: opt.Summary = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Check new scores against old ones, for CI.

    Exit code 0: fine; 1: a regression; 2: not comparable.

    Example: stsbench check results --against scores.lock.json
    """
    published = str(against) == "published" and not against.exists()
    if published:
        given = opt.Given.of(context)
        given.idle("with --against published", "--against-encoder", "--rule", "--allow-missing")

    def judged() -> Check:
        tolerances, catalogue = parse_tolerances(tolerance), Catalogue(cards)
        wanted = expand_names(tasks, catalogue) if tasks else None
        side = _side(new, encoder, wanted, catalogue)
        if published:
            return check_published(side, catalogue, exact=exact, tolerances=tolerances)
        old = _side(against, against_encoder, wanted, catalogue)
        return check(
            side,
            old,
            rule=choose("rule", rule, {one: one for one in RULES}),
            exact=exact,
            allow_missing=allow_missing,
            chosen=bool(encoder) or side.is_in(new),
            tolerances=tolerances,
            suites=catalogue.suites(),
        )

    # GitHub's runner reads both streams, asked for annotations or not; JSON on stdout is to stay JSON.
    watched, stream = github or settings.on_github(), sys.stderr if as_json else sys.stdout
    with _no_commands(stream if watched else None):
        found, mistake = _reported(judged, junit, summary)
        if mistake is not None:
            complain(no_command(str(mistake)) if watched else mistake)
        elif as_json:
            verdicts = [dataclasses.asdict(verdict) for verdict in found.verdicts]
            facts = {"exit": found.exit_code, "rule": found.rule, "summary": found.summary, "verdicts": verdicts}
            print_json(facts, shown=no_command_json if watched else str)
        else:
            _print(found)
    if github:
        stream.write("".join(f"{line}\n" for line in github_lines(found)))
    return found.exit_code


def _reported(
    judged: Callable[[], Check], junit: Path | None, summary: Path | None
) -> tuple[Check, StsbenchError | None]:
    def write(found: Check, junit: Path | None, summary: Path | None) -> Check:
        if junit is not None:
            write_whole(junit, junit_xml(found))
        if summary is not None:
            # GitHub's job summary is one that every step adds to.
            append_line(summary, markdown(found).removesuffix("\n"))
        return found

    def problem(said: str) -> Check:
        for files in ((junit, None), (None, summary)):
            with suppress(StsbenchError):
                write(not_checked(said), *files)
        return not_checked(said)

    try:
        return write(judged(), junit, summary), None
    except StsbenchError as error:
        return problem(one_line(error)), error
    except Exception as error:
        problem(f"stsbench itself failed: {type(error).__name__}: {one_line(error)}")
        raise


@contextmanager
def _no_commands(stream: TextIO | None) -> Iterator[None]:
    """While within, GitHub takes no line of ours for a command: names come from files of others.

    What ends it nobody can know before, so no name can.
    """
    if stream is None:
        yield
        return
    token = secrets.token_hex(16)
    stream.write(f"::stop-commands::{token}\n")
    stream.flush()
    try:
        yield
        sys.stdout.flush()
    finally:
        stream.write(f"::{token}::\n")
        stream.flush()


def lock_command(
    *,
    results: opt.ResultsArgument = Path("results"),
    out: opt.LockFile = Path("scores.lock.json"),
    encoder: opt.OnlyEncoders,
    tasks: opt.OnlyTasks = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> None:
    """Write scores to a lock file for 'stsbench check'.

    It holds what they were made with, and what paired tests need.

    Example: stsbench lock results --out scores.lock.json
    """
    catalogue = Catalogue(cards)
    wanted = expand_names(tasks, catalogue) if tasks else None
    if not results.is_dir():
        raise OutputError(f"results folder '{results}' does not exist; 'stsbench run' makes it")
    side = _side(results, encoder, wanted, catalogue).verified()
    for problem in side.problems:
        raise DataError(f"{problem.line}; repair or remove the file, for a lock without it would not check it")
    if not (held := side.results()):
        raise DataError(f"{results}: holds no results to lock")
    kept: list[LockedCell] = []
    with suppress(DataError, OutputError):
        kept = read_lock(out)
    cells = lock_cells(held, kept)
    write_whole(out, to_lock(cells))
    bare = sum(cell.paired is None for cell in cells)
    if as_json:
        encoders = sorted({cell.encoder for cell in cells})
        print_json({"lock": str(out), "cells": len(cells), "encoders": encoders, "without_items": bare})
    else:
        more = f"; {bare} without what a paired test needs, for their per-item columns are missing" if bare else ""
        say(f"locked {len(cells)} cell{'' if len(cells) == 1 else 's'} in {out}{more}")


def _side(path: Path, encoders: Sequence[str], tasks: Sequence[str] | None, catalogue: Catalogue) -> Side:
    side = chosen_side(encoders, read_side(path, tasks=tasks), catalogue, path)
    if line := side.older_line(catalogue):
        complain(line)
    return side


def _print(found: Check) -> None:
    shown = list(found.verdicts)
    if len(shown) > SHORT:
        shown = [verdict for verdict in shown if matters(verdict)]
    cells = [row(verdict) for verdict in shown]
    if len({verdict.encoder for verdict in found.verdicts}) == 1:
        say(f"{found.verdicts[0].encoder}\n")
        cells = [["", *one[1:]] for one in cells]
    if cells:
        print_rows(COLUMNS, cells, right=[2, 3, 4, 5], sparse=True)
        say("")
    for verdict in shown:
        if matters(verdict):
            say_words(f"{verdict.encoder} on {verdict.task}: {verdict.outcome}: {verdict.reason}")
    say(f"{found.summary}; scores are times 100")


def verify_command(
    *,
    results: opt.VerifiedResults = Path("results"),
    data: opt.Data = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Make every score again from its items.

    Hashes, protocols and data are checked too; no encoder is needed.

    Example: stsbench verify results --data DIR
    """
    catalogue, at = Catalogue(cards), data or settings.data_folder()
    if at is not None and not at.is_dir():
        raise SourceError(f"data folder '{at}' does not exist")
    read = cache(_read)
    with shown_count("results verified") as progress:
        found = verify(results, catalogue, lambda one: read(one.task, one.split, catalogue, at), progress)
    if as_json:
        rows = [_row(one) for one in found.files]
        print_json({"exit": found.exit_code, "summary": found.summary, "results": rows})
    else:
        _print_verified(found)
    return found.exit_code


def _read(name: str, split: str, catalogue: Catalogue, folder: Path | None) -> Known | None:
    if name not in catalogue.paths("tasks") or split not in catalogue.task(name).splits:
        return None
    (task,) = plan_tasks(name, catalogue, data=folder, split=split)
    files = [local_files(task.task.card, one, folder) for one in task.wanted]
    is_here = all(files) and all(path.is_file() for one in files for path in one)
    if task.task.card.package is None and not is_here:
        return None
    task.load()
    # Labels are not among a split's own columns.
    read = task.splits[split]
    columns: dict[str, Any] = dict(sentence_columns(*read.sides))
    if isinstance(read, PairSplit):
        columns = {"gold": read.gold, **({"subset": list(read.subset)} if read.subsets_known else {}), **columns}
    elif isinstance(read, LabelledSplit | LabelledPairSplit):
        columns = {"labels": read.labels, **columns}
    else:
        columns = {}
    return Known(task.digest, columns)


def _row(one: Verified) -> dict[str, Any]:
    result = one.result
    cell = {} if result is None else {"encoder": result.encoder, "task": result.task, "split": result.split}
    facts = {"verdict": one.standing, "problems": one.problems, "not_verified": one.unknown, "data_at_hand": one.data}
    return {"path": str(one.path), **cell, **facts}


def _print_verified(found: Verification) -> None:
    failed = ((one.path, line) for one in found.of("failed") for line in one.problems)
    complain_of_all("failed", (line if str(path) in line else f"{path}: {line}" for path, line in failed))
    reasons: dict[str, list[Verified]] = {}
    for one in found.of("not verified"):
        reasons.setdefault("; ".join(one.unknown), []).append(one)
    for reason, files in reasons.items():
        counts = Counter(one.path.parent.name for one in files)
        say(f"not verified: {reason}: {', '.join(f'{name} {count}' for name, count in counts.items())}")
    say(found.summary)
    if found.exit_code == MISTAKE and not found.of("failed"):
        say("nothing could be verified")
