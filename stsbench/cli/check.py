"""``stsbench check`` and ``stsbench lock``."""

from __future__ import annotations

import dataclasses
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.check.gate import RULES, check
from stsbench.check.judged import Check, Rule, not_checked
from stsbench.check.lock import LockedCell, Side, lock_cells, read_lock, read_side, to_lock
from stsbench.check.published import check_published
from stsbench.check.reports import (
    COLUMNS,
    github_lines,
    junit,
    markdown,
    matters,
    no_command,
    no_command_json,
    row,
)
from stsbench.check.tolerance import parse_tolerances
from stsbench.cli.names import chosen_side
from stsbench.cli.options.scores import CheckOptions, LockOptions
from stsbench.cli.printing import complain, print_json, print_rows, say, say_words
from stsbench.data.task import expand_names
from stsbench.errors import DataError, OutputError, StsbenchError, UnknownName, one_line
from stsbench.files.whole import write_whole

SHORT = 24
"""A table of more rows shows those that matter."""


def check_command(options: CheckOptions) -> int:
    """Check results against older ones; returns 0 fine, 1 a regression, 2 not comparable."""
    # GitHub's runner reads both streams, asked for annotations or not; JSON on stdout is to stay JSON.
    watched, stream = options.github or settings.on_github(), sys.stderr if options.as_json else sys.stdout
    with _no_commands(stream if watched else None):
        found, mistake = _reported(options)
        if mistake is not None:
            complain(no_command(str(mistake)) if watched else mistake)
        elif options.as_json:
            print_json(_as_json(found), shown=no_command_json if watched else str)
        else:
            _print(found)
    if options.github:
        stream.write("".join(f"{line}\n" for line in github_lines(found)))
    return found.exit_code


def _judge(options: CheckOptions) -> Check:
    tolerances, exact, catalogue = parse_tolerances(options.tolerance), options.exact, Catalogue(options.cards)
    wanted = expand_names(options.tasks, catalogue) if options.tasks else None
    new = _side(options.new, options.encoder, wanted, catalogue)
    if options.published:
        return check_published(new, catalogue, exact=exact, tolerances=tolerances)
    return check(
        new,
        _side(options.against, options.against_encoder, wanted, catalogue),
        rule=_rule(options.rule),
        exact=exact,
        allow_missing=options.allow_missing,
        chosen=bool(options.encoder) or new.is_in(options.new),
        tolerances=tolerances,
        suites=catalogue.suites(),
    )


def _reported(options: CheckOptions) -> tuple[Check, StsbenchError | None]:
    """What was found, written to the reports; where nothing could be, that and why is what they say."""
    try:
        found = _judge(options)
        _write_reports(found, options.junit, options.summary)
    except StsbenchError as error:
        return _tell(one_line(error), options), error
    except Exception as error:
        _tell(f"stsbench itself failed: {type(error).__name__}: {one_line(error)}", options)
        raise
    return found, None


def _write_reports(found: Check, junit_file: Path | None, summary: Path | None) -> None:
    """Write the files that a user asked for: JUnit XML, and the summary that is added to."""
    if junit_file is not None:
        write_whole(junit_file, junit(found))
    if summary is not None:
        _append(summary, markdown(found))


def _tell(problem: str, options: CheckOptions) -> Check:
    """That nothing could be checked, and why: in each file that can be written."""
    found = not_checked(problem)
    for files in ((options.junit, None), (None, options.summary)):
        with suppress(StsbenchError):
            _write_reports(found, *files)
    return found


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


def lock_command(options: LockOptions) -> None:
    """Write a lock file of a results folder's cells."""
    folder, out, catalogue = options.results, options.out, Catalogue(options.cards)
    wanted = expand_names(options.tasks, catalogue) if options.tasks else None
    if not folder.is_dir():
        raise OutputError(f"results folder '{folder}' does not exist; 'stsbench run' makes it")
    side = _side(folder, options.encoder, wanted, catalogue).verified()
    for problem in side.problems:
        raise DataError(f"{problem.line}; repair or remove the file, for a lock without it would not check it")
    results = [one for _, one in side.cells if one is not None]
    if not results:
        raise DataError(f"{folder}: holds no results to lock")
    kept: list[LockedCell] = []
    with suppress(DataError, OutputError):
        kept = read_lock(out)
    cells = lock_cells(results, kept)
    write_whole(out, to_lock(cells))
    bare = sum(cell.paired is None for cell in cells)
    if options.as_json:
        encoders = sorted({cell.encoder for cell in cells})
        print_json({"lock": str(out), "cells": len(cells), "encoders": encoders, "without_items": bare})
    else:
        told = f"; {bare} without what a paired test needs, for their per-item columns are missing" if bare else ""
        say(f"locked {len(cells)} cell{'' if len(cells) == 1 else 's'} in {out}{told}")


def _rule(name: str) -> Rule:
    for rule in RULES:
        if rule == name:
            return rule
    raise UnknownName("rule", name, RULES, hint=f"one of {', '.join(RULES)}")


def _side(path: Path, encoders: Sequence[str], tasks: Sequence[str] | None, catalogue: Catalogue) -> Side:
    return chosen_side(encoders, read_side(path, tasks=tasks), catalogue, path)


def _append(path: Path, text: str) -> None:
    """Add to a file: GitHub's job summary is one that every step adds to."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from error


def _as_json(found: Check) -> dict[str, Any]:
    verdicts = [dataclasses.asdict(verdict) for verdict in found.verdicts]
    return {"exit": found.exit_code, "rule": found.rule, "summary": found.summary, "verdicts": verdicts}


def _print(found: Check) -> None:
    shown = list(found.verdicts)
    if len(shown) > SHORT:
        shown = [verdict for verdict in shown if matters(verdict)]
    cells = [row(verdict) for verdict in shown]
    columns, right = COLUMNS, [2, 3, 4, 5]
    if len({verdict.encoder for verdict in found.verdicts}) == 1:
        say(f"{found.verdicts[0].encoder}\n")
        columns, cells, right = columns[1:], [one[1:] for one in cells], [1, 2, 3, 4]
    if cells:
        print_rows(columns, cells, right=right)
        say("")
    for verdict in shown:
        if matters(verdict):
            say_words(f"{verdict.encoder} on {verdict.task}: {verdict.outcome}: {verdict.reason}")
    say(f"{found.summary}; scores are times 100")
