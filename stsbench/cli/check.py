"""``stsbench check``: scores against old ones or papers', with reports for CI."""

from __future__ import annotations

import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from stsbench.cli import options as opt
from stsbench.cli.printing import (
    CHECKED,
    print_error,
    print_json,
    print_paragraph,
    print_rows,
    print_text,
    show_count,
)
from stsbench.cli.wording import describe_error_line
from stsbench.core import settings
from stsbench.core.errors import StsbenchError, look_up
from stsbench.core.files import append_line, write_atomically

if TYPE_CHECKING:
    from stsbench.check.lock import CheckSide
    from stsbench.check.verdicts import CheckReport
    from stsbench.core.catalogue import Catalogue

SHORT = 24
"""A table of more rows shows those that matter."""


def check_command(
    context: opt.Context,
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
    strict: opt.Strict = False,
    junit: opt.Junit = None,
    github: opt.Github = False,
    summary: opt.Summary = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> int:
    """Check new scores against old ones, for CI.

    Exit code 0: fine; 1: a regression; 2: not comparable.

    Example: stsbench check results --against scores.lock.json
    """
    from stsbench.check import reports
    from stsbench.check.gate import RULES, check, check_published
    from stsbench.check.verdicts import parse_tolerances

    published = str(against) == "published" and not against.exists()
    if published:
        idle = ("--against-encoder", "--rule", "--allow-missing")
        opt.TypedOptions.from_context(context).forbid("with --against published", *idle)

    def judge() -> CheckReport:
        # Here, so that a folder of cards that is not there is in the reports too.
        tolerances, catalogue = parse_tolerances(tolerance), opt.read_cards(cards)
        side = read_one(new, encoder, tasks, catalogue)
        if published:
            return check_published(
                side, catalogue, exact=exact, strict=strict, tolerances=tolerances
            )
        old, chosen = (
            read_one(against, against_encoder, tasks, catalogue),
            bool(encoder) or side.is_in(new),
        )
        return check(
            side, old, rule=look_up("rule", rule, {one: one for one in RULES}), exact=exact, chosen=chosen,
            allow_missing=allow_missing, strict=strict, tolerances=tolerances,
            suites=catalogue.suites(), catalogue=catalogue,
        )  # fmt: skip

    # GitHub's runner reads both streams, asked for annotations or not; JSON on stdout is to stay JSON.
    watched, stream = github or settings.on_github(), sys.stderr if as_json else sys.stdout
    with _no_commands(stream if watched else None):
        found, mistake = _report(judge, junit, summary)
        if mistake is not None:
            print_error(
                reports.escape_commands(describe_error_line(mistake)) if watched else mistake
            )
        elif as_json:
            verdicts = [asdict(verdict) for verdict in found.verdicts]
            facts = {
                "exit": found.exit_code,
                "rule": found.rule,
                "summary": found.summary,
                "verdicts": verdicts,
            }
            print_json(
                facts, convert=partial(reports.escape_commands, as_json=True) if watched else str
            )
        else:
            _print_check(found)
    if github:
        stream.write("".join(f"{line}\n" for line in reports.to_github_commands(found)))
    return found.exit_code


def _report(
    judge: Callable[[], CheckReport], junit: Path | None, summary: Path | None
) -> tuple[CheckReport, StsbenchError | None]:
    """What was judged, or why nothing was, in the files of reports too."""
    from stsbench.check.verdicts import CheckReport, Verdict

    try:
        return _write_reports(judge(), junit, summary), None
    except Exception as error:
        said = describe_error_line(error)
        if not isinstance(error, StsbenchError):
            said = f"stsbench itself failed: {type(error).__name__}: {said}"
        # Reports must say that nothing was found fine.
        verdict = Verdict(
            encoder="stsbench check", task="check", outcome="not checked", reason=said
        )
        found = CheckReport(verdicts=[verdict], rule="absolute")
        for files in ((junit, None), (None, summary)):
            with suppress(StsbenchError):
                _write_reports(found, *files)
        if not isinstance(error, StsbenchError):
            raise
        return found, error


def _write_reports(found: CheckReport, junit: Path | None, summary: Path | None) -> CheckReport:
    from stsbench.check import reports

    if junit is not None:
        write_atomically(junit, reports.to_junit(found))
    if summary is not None:
        # GitHub's job summary is one that every step adds to.
        append_line(summary, reports.to_markdown(found).removesuffix("\n"))
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


def read_one(
    path: Path, encoders: Sequence[str], tasks: str | None, catalogue: Catalogue
) -> CheckSide:
    """The cells of one side, of these encoders and tasks or of all, held to their items.

    Says if there are older states.
    """
    from stsbench.api.names import filter_side
    from stsbench.check.lock import read_side
    from stsbench.data.task import expand_names

    read = read_side(path, tasks=expand_names(tasks, catalogue) if tasks else None)
    side = filter_side(encoders, read, catalogue, path)
    named = side.directory(catalogue)
    if line := named.describe_omitted(named.folder.results):
        print_error(line)
    with show_count(CHECKED) as progress:
        return side.verify_items(catalogue, progress)


def _print_check(found: CheckReport) -> None:
    from stsbench.check import reports

    shown = list(found.verdicts)
    if len(shown) > SHORT:
        shown = [verdict for verdict in shown if reports.is_reported(verdict)]
    cells = [reports.format_row(verdict) for verdict in shown]
    if len({verdict.encoder for verdict in found.verdicts}) == 1:
        print_text(f"{found.verdicts[0].encoder}\n")
        cells = [["", *one[1:]] for one in cells]
    if cells:
        print_rows(reports.VERDICT_COLUMNS, cells, right=[2, 3, 4, 5], sparse=True)
        print_text("")
    for verdict in shown:
        if reports.is_reported(verdict):
            print_paragraph(
                f"{verdict.encoder} on {verdict.task}: {verdict.outcome}: {verdict.reason}"
            )
    reasons = Counter(verdict.not_verified for verdict in found.verdicts if verdict.not_verified)
    for reason, count in reasons.items():
        print_paragraph(f"not verified: {count} cell{'s' * (count != 1)}: {reason}")
    print_text(f"{found.summary}; scores are times 100")
