"""``stsbench check`` and ``lock``: scores against old ones or papers', with reports for CI."""

from __future__ import annotations

import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from stsbench.cli import options as opt
from stsbench.cli.option_values import TypedOptions
from stsbench.cli.printing import (
    CHECKING_LABEL,
    print_error,
    print_json,
    print_paragraph,
    print_text,
    show_count,
)
from stsbench.cli.tables import print_rows
from stsbench.cli.wording import describe_error_line, describe_reason, replace_parameters_by_options
from stsbench.core import settings
from stsbench.core.errors import DataError, OutputError, StsbenchError, look_up, suggest
from stsbench.core.files import append_line, write_atomically
from stsbench.core.wording import format_count

if TYPE_CHECKING:
    from stsbench.check.lock import CheckSide, LockedCell
    from stsbench.check.verdicts import CheckReport
    from stsbench.core.catalogue import Catalogue

MAX_VERDICTS = 24
"""A table with more verdicts shows only those to report."""


def check_command(
    context: opt.Context,
    *,
    new: opt.NewResults = Path("results"),
    against: opt.Against,
    encoder: opt.OnlyEncoders,
    against_encoder: opt.AgainstEncoders,
    tasks: opt.OnlyTasks = None,
    rule: opt.RuleName = "absolute",
    looks: opt.Looks = 1,
    seed_deviation: opt.SeedDeviation = None,
    margin: opt.FallMargin = None,
    tolerance: opt.Tolerances,
    exact: opt.Exact = False,
    allow_missing: opt.AllowMissing = False,
    strict: opt.Strict = False,
    junit: opt.Junit = None,
    github: opt.Github = False,
    summary: opt.Summary = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Check new scores against old ones, for CI.

    The exit code is 0 if all is fine, 1 for a regression, 2 if something was not compared.

    Example: stsbench check results --against scores.lock.json
    """
    from stsbench.check import reports
    from stsbench.check.gate import RULES, check
    from stsbench.check.published import check_published
    from stsbench.check.verdicts import parse_tolerances

    is_published = str(against) == "published" and not against.exists()
    typed = TypedOptions.from_context(context)
    if is_published:
        typed.forbid("with --against published", "--against-encoder", "--rule", "--allow-missing")
    if is_published or rule == "absolute":
        typed.forbid("without --rule statistical", "--looks", "--seed-deviation", "--margin")

    def run_check() -> CheckReport:
        """Compare the new scores with the old or published ones, by the command's options.

        ``new`` and ``against`` are the results folders or lock files to compare. With
        ``is_published``, ``new`` is compared with the scores that papers print.
        """
        # Cards are read here, so that an error about their folder gets into the report files.
        catalogue = opt.make_catalogue(cards)
        # How far scores may fall, by class of difference.
        tolerances = parse_tolerances(tolerance)
        new_side = read_cells(new, encoder, tasks, catalogue)
        if is_published:
            return check_published(
                new_side, catalogue, exact=exact, strict=strict, tolerances=tolerances
            )
        return check(
            new_side,
            read_cells(against, against_encoder, tasks, catalogue),
            rule=look_up("rule", rule, {name: name for name in RULES}),
            exact=exact,
            chosen=bool(encoder) or new_side.is_in(new),
            allow_missing=allow_missing,
            strict=strict,
            tolerances=tolerances,
            suites=catalogue.suites(),
            looks=looks,
            seed_deviation=seed_deviation,
            margin=margin,
            catalogue=catalogue,
        )

    # GitHub's runner reads both streams, with and without --github; JSON on stdout stays JSON.
    is_github = github or settings.is_on_github()
    stream = sys.stderr if as_json else sys.stdout
    with _no_github_commands(stream if is_github else None):
        report, error = _write_outcome(run_check, junit, summary)
        if error is not None:
            line = describe_error_line(error)
            print_error(reports.escape_commands(line) if is_github else error)
        elif as_json:
            report_json = {
                "exit": report.exit_code,
                "rule": report.rule,
                "level": report.level,
                "looks": report.looks,
                "margin": report.margin,
                "summary": report.summary,
                "verdicts": [asdict(verdict) for verdict in report.verdicts],
            }
            escape_json = partial(reports.escape_commands, as_json=True)
            print_json(report_json, convert=escape_json if is_github else str)
        else:
            _print_check(report)
    if github:
        stream.write("".join(f"{line}\n" for line in reports.to_github_commands(report)))
    return report.exit_code


def _write_outcome(
    run_check: Callable[[], CheckReport], junit: Path | None, summary: Path | None
) -> tuple[CheckReport, StsbenchError | None]:
    """Run a check of scores, write its report files, and return its report with the error, if any.

    If the check itself fails or a file cannot be written, the files must not look as if all were
    fine. So a report is made that has a single verdict, "not checked" with the reason, and the
    files are written with that.

    Args:
        run_check: Compares scores, and returns a report with a verdict on each.
        junit: The JUnit XML file to write; None to write none.
        summary: The markdown file to append to; None to write none.

    Returns:
        The report, and the error of the user or the files; None if there was none.

    Raises:
        Exception: A bug, after the files are written.
    """
    from stsbench.check.verdicts import CheckReport, Verdict

    try:
        report = run_check()
        _write_reports(report, junit, summary)
    except Exception as error:
        reason = describe_error_line(error)
        if not isinstance(error, StsbenchError):
            reason = f"stsbench itself failed: {type(error).__name__}: {reason}"
        verdict = Verdict(
            encoder="stsbench check", task="check", outcome="not checked", reason=reason
        )
        # Nothing was compared, so the rule of comparison only has to be a valid one.
        report = CheckReport(verdicts=[verdict], rule="absolute")
        # Each file is written by itself, so that it is there even if the other one cannot be.
        for files in ((junit, None), (None, summary)):
            with suppress(StsbenchError):
                _write_reports(report, *files)
        if not isinstance(error, StsbenchError):
            raise
        return report, error
    return report, None


def _write_reports(report: CheckReport, junit: Path | None, summary: Path | None) -> None:
    """Write a report of a check as JUnit XML, and append it as markdown to a summary.

    Args:
        report: The verdicts on scores.
        junit: The XML file; None to write none.
        summary: The markdown file; None to write none.
    """
    from stsbench.check import reports

    if junit is not None:
        write_atomically(junit, reports.to_junit(report))
    if summary is not None:
        # Every step of a job on GitHub appends to one summary.
        append_line(summary, reports.to_markdown(report).removesuffix("\n"))


@contextmanager
def _no_github_commands(stream: TextIO | None) -> Iterator[None]:
    """Stop GitHub from reading printed lines as commands, until the end of the ``with`` block.

    GitHub's runner obeys printed lines that begin with ``::``, and printed names come from files of
    others. ``::stop-commands::TOKEN`` makes it ignore them until ``::TOKEN::``. The token is
    random, so that no name can contain it.

    Args:
        stream: Where to print; None if the command does not run on GitHub.
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


def read_cells(
    path: Path, encoders: Sequence[str], tasks: str | None, catalogue: Catalogue
) -> CheckSide:
    """Return the scores of a results folder or a lock file, which a check compares with others.

    A score is called a cell: an encoder on a task, by a protocol, with its seeds. Each score of a
    folder is recomputed from its per-item columns.

    * If they give another score, the cell is left out and becomes a problem.
    * If there are no columns, the cell stays and is listed as ``unverified``.

    A line is printed if the folder also has older results of these cells.

    Args:
        path: A results folder or a lock file.
        encoders: The encoders to select; empty for all.
        tasks: The tasks to select, a comma list; None for all.
        catalogue: The cards of encoders and tasks.

    Returns:
        The cells, the problems and the unverified results.

    Raises:
        OutputError: There is no such folder or file.
    """
    from stsbench.api.selection import filter_side
    from stsbench.check.lock import read_side
    from stsbench.data.task import expand_names

    if not path.exists():
        similar_names = suggest(str(path), map(str, path.parent.glob("*")))
        raise OutputError(
            f"there is no lock file or results folder '{path}'{similar_names or ';'} "
            "'stsbench lock' makes a lock file, 'stsbench run' a results folder"
        )
    side = filter_side(encoders, side=read_side(path), catalogue=catalogue, location=path)
    if tasks:
        side = side.select_tasks(expand_names(tasks, catalogue))
    # The encoders of the side by name, with their results.
    directory = side.directory(catalogue)
    if notice := directory.describe_omitted(directory.result_folder.results):
        print_error(notice)
    with show_count(CHECKING_LABEL) as progress:
        return side.verify_items(catalogue, progress)


def _print_check(report: CheckReport) -> None:
    """Print the report of a check of scores.

    It is a table of verdicts, the reason of each verdict that is not "fine", how many scores could
    not be verified and why, and a summary. If there are more than ``MAX_VERDICTS`` verdicts, the
    table has only those that are not "fine".

    Args:
        report: The verdict on each score: encoder, task, outcome, reason.
    """
    from stsbench.check import reports

    verdicts = list(report.verdicts)
    if len(verdicts) > MAX_VERDICTS:
        # is_reported: the outcome is not "fine".
        verdicts = [verdict for verdict in verdicts if reports.is_reported(verdict)]
    table = reports.make_table(verdicts)
    rows = table.rows
    if len({verdict.encoder for verdict in report.verdicts}) == 1:
        # A single encoder is named once, above the table. Its column, the first, becomes empty, and
        # is not printed.
        print_text(f"{report.verdicts[0].encoder}\n")
        rows = [["", *cells[1:]] for cells in rows]
    if rows:
        print_rows(table.titles, rows, number_columns=table.number_columns, omit_empty=True)
        print_text("")
    for verdict in verdicts:
        if reports.is_reported(verdict):
            print_paragraph(
                f"{verdict.encoder} on {verdict.task}: {verdict.outcome}: {verdict.reason}"
            )
    # not_verified: why a score could not be recomputed from its per-item columns; empty if it was.
    reasons = Counter(verdict.not_verified for verdict in report.verdicts if verdict.not_verified)
    for reason, count in reasons.items():
        print_paragraph(f"not verified: {format_count(count, 'cell')}: {describe_reason(reason)}")
    print_paragraph(f"{report.summary}; scores are times 100")


def lock_command(
    *,
    results: opt.ResultsArgument = Path("results"),
    out: opt.LockFile = Path("scores.lock.json"),
    encoder: opt.OnlyEncoders,
    tasks: opt.OnlyTasks = None,
    strict: opt.Strict = False,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> None:
    """Write scores to a lock file for 'stsbench check'.

    The file also holds what the scores were computed with, and the data for paired tests.

    Example: stsbench lock results --out scores.lock.json
    """
    from stsbench.check.lock import group_seeds, lock_cells, read_lock, to_lock
    from stsbench.evaluators.belief import describe_unverified

    catalogue = opt.make_catalogue(cards)
    if not results.is_dir():
        raise OutputError(f"results folder '{results}' does not exist; 'stsbench run' makes it")
    # The selected results, each compared with its per-item columns.
    side = read_cells(results, encoder, tasks, catalogue)
    if side.problems:
        raise DataError(
            f"{side.problems[0].message}; repair or remove the file, "
            "for a lock without it would not check it"
        )
    current_results = side.results()
    if not current_results:
        of_tasks = f" of {tasks}" if tasks else ""
        raise DataError(f"{results}: holds no results{of_tasks} to lock")
    # How many results could not be verified, and why; empty if all were.
    notice = replace_parameters_by_options(
        describe_unverified(side.unverified, len(current_results))
    )
    if strict and notice:
        raise DataError(f"{results}: {notice}; nothing is locked")
    # A row of the lock holds what a paired test needs of the per-item columns. If these are
    # missing, an earlier lock in the same file may have it.
    earlier_cells: list[LockedCell] = []
    with suppress(DataError, OutputError):
        earlier_cells = read_lock(out)
    cells = lock_cells(current_results, earlier_cells)
    write_atomically(out, to_lock(cells))
    # group_seeds: lists of the cells that differ by the training seed alone.
    report = {
        "lock": str(out),
        "cells": len(cells),
        "encoders": sorted({cell.encoder for cell in cells}),
        "without_items": sum(cell.paired is None for cell in cells),
        "not_verified": sum(map(len, side.unverified.values())),
        "single_seeds": sum(len(seeds) == 1 for seeds in group_seeds(cells).values()),
    }
    if as_json:
        print_json(report)
    else:
        print_paragraph(_describe_lock(report, notice))


def _describe_lock(report: Mapping[str, Any], notice: str) -> str:
    """Return as text how many scores were written to a lock file, and what a check of them lacks.

    Args:
        report: What ``--json`` prints: the file (``lock``), the number of scores (``cells``), and
            the numbers of those without per-item columns (``without_items``), and of a single
            training seed (``single_seeds``).
        notice: How many scores are not verified, and why; empty if all are.
    """
    text = f"locked {format_count(report['cells'], 'cell')} in {report['lock']}"
    if report["without_items"]:
        text += (
            f"; {report['without_items']} without what a paired test needs, "
            "for their per-item columns are missing"
        )
    if notice:
        text += f"; {notice}"
    if report["single_seeds"]:
        text += (
            f"; {report['single_seeds']} of a single training seed, "
            "of which three would show how far trainings differ"
        )
    return text
