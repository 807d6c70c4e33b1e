"""``stsbench check`` and ``stsbench lock``."""

from __future__ import annotations

import dataclasses
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

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
from stsbench.cli.printing import complain, console, print_json, say, table
from stsbench.data.task import expand_names
from stsbench.errors import DataError, OutputError, StsbenchError, UnknownName, one_line
from stsbench.files import write_whole

PUBLISHED = "published"
"""What stands for the published scores instead of a path."""
SHORT = 24
"""A table of more rows shows those that matter."""


def check_command(
    new: Path,
    against: Path,
    *,
    encoders: Sequence[str],
    against_encoders: Sequence[str],
    tasks: str | None,
    rule: str,
    tolerance: Sequence[str],
    exact: bool,
    allow_missing: bool,
    junit_file: Path | None,
    github: bool,
    summary: Path | None,
    cards: Sequence[Path],
    as_json: bool,
) -> int:
    """Check results against older ones; returns 0 fine, 1 a regression, 2 not comparable."""
    # GitHub's runner reads both streams, asked for annotations or not; JSON on stdout is to stay JSON.
    watched, stream = github or settings.on_github(), sys.stderr if as_json else sys.stdout

    def judge() -> Check:
        tolerances, catalogue = parse_tolerances(tolerance), Catalogue(cards)
        wanted = expand_names(tasks, catalogue) if tasks else None
        ours = _side(new, encoders, wanted, catalogue)
        if str(against) == PUBLISHED and not against.exists():
            return check_published(ours, catalogue, exact=exact, tolerances=tolerances)
        return check(
            ours,
            _side(against, against_encoders, wanted, catalogue),
            rule=_rule(rule),
            exact=exact,
            allow_missing=allow_missing,
            chosen=bool(encoders) or ours.is_in(new),
            tolerances=tolerances,
            suites=catalogue.suites(),
        )

    with _no_commands(stream if watched else None):
        found, mistake = _reported(judge, _Reports(junit_file, summary))
        if mistake is not None:
            complain(no_command(str(mistake)) if watched else mistake)
        elif as_json:
            print_json(_as_json(found), shown=no_command_json if watched else str)
        else:
            _print(found)
    if github:
        stream.write("".join(f"{line}\n" for line in github_lines(found)))
    return found.exit_code


class _Reports(NamedTuple):
    """The files that a user asked for: JUnit XML, and the summary that is added to."""

    junit: Path | None
    summary: Path | None

    def write(self, found: Check) -> None:
        if self.junit is not None:
            write_whole(self.junit, junit(found))
        if self.summary is not None:
            _append(self.summary, markdown(found))

    def tell(self, problem: str) -> Check:
        """That nothing could be checked, and why: in each file that can be written."""
        found = not_checked(problem)
        for one in (self._replace(summary=None), self._replace(junit=None)):
            with suppress(StsbenchError):
                one.write(found)
        return found


def _reported(judge: Callable[[], Check], reports: _Reports) -> tuple[Check, StsbenchError | None]:
    """What was found, written to the reports; where nothing could be, that and why is what they say."""
    try:
        found = judge()
        reports.write(found)
    except StsbenchError as error:
        return reports.tell(one_line(error)), error
    except Exception as error:
        reports.tell(f"stsbench itself failed: {type(error).__name__}: {one_line(error)}")
        raise
    return found, None


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
    folder: Path, *, out: Path, encoders: Sequence[str], tasks: str | None, cards: Sequence[Path], as_json: bool
) -> None:
    """Write a lock file of a results folder's cells."""
    catalogue = Catalogue(cards)
    wanted = expand_names(tasks, catalogue) if tasks else None
    if not folder.is_dir():
        raise OutputError(f"results folder '{folder}' does not exist; 'stsbench run' makes it")
    side = _side(folder, encoders, wanted, catalogue).verified()
    for problem in side.problems:
        raise DataError(
            f"{problem.line}; a lock without it would be checked against without it: mend or remove the file"
        )
    results = [one for _, one in side.cells if one is not None]
    if not results:
        raise DataError(f"{folder}: holds no results to lock")
    kept: list[LockedCell] = []
    with suppress(DataError, OutputError):
        kept = read_lock(out)
    cells = lock_cells(results, kept)
    write_whole(out, to_lock(cells))
    bare = sum(cell.paired is None for cell in cells)
    if as_json:
        encoders = sorted({cell.encoder for cell in cells})
        print_json({"lock": str(out), "cells": len(cells), "encoders": encoders, "without_items": bare})
    else:
        told = f"; {bare} without what a paired test needs, for their per-item columns are not at hand" if bare else ""
        say(f"locked {len(cells)} cells in {out}{told}")


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
        console().print(table(columns, cells, right=right))
        say("")
    for verdict in shown:
        if matters(verdict):
            say(f"{verdict.encoder} on {verdict.task}: {verdict.outcome}: {verdict.reason}")
    say(f"{found.summary}; scores are times 100")
