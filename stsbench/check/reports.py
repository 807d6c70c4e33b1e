"""Reports of a check: JUnit XML, GitHub annotations, and a job summary in markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from stsbench.boards.render.text import escape_markdown
from stsbench.check.verdicts import CheckReport, OutcomeKind, Verdict
from stsbench.core.wording import escape_controls, format_count


def describe_cell(verdict: Verdict) -> str:
    """Return the name of the score that a verdict is on: ``sts12 (simcse, train seed 1)``.

    It has the task and the protocol (the way of scoring). The split of the data is added if it is
    not the usual one. Of training seeds it has the one seed, or, for mean scores, how many there
    are on both sides. The evaluation seed is added if it is not 0.
    """
    conditions = [verdict.protocol]
    if verdict.split not in ("test", "all"):
        conditions.insert(0, verdict.split)
    if verdict.train_seed is not None:
        conditions.append(f"train seed {verdict.train_seed}")
    elif verdict.new_seeds and verdict.old_seeds:
        conditions.append(f"{format_count(verdict.new_seeds, 'seed')} against {verdict.old_seeds}")
    elif verdict.new_seeds or verdict.old_seeds:
        # Only one side has the cell.
        n_seeds = verdict.new_seeds or verdict.old_seeds or 0
        conditions.append(format_count(n_seeds, "seed"))
    if verdict.eval_seed:
        conditions.append(f"seed {verdict.eval_seed}")
    # A verdict on a file that cannot be read has no protocol, and the file's name as its task.
    return f"{verdict.task} ({', '.join(conditions)})" if verdict.protocol else verdict.task


class VerdictTable(NamedTuple):
    """A table of verdicts; numbers are in points, and a dash stands for one that is missing.

    Attributes:
        titles: The head of each column, of which the last one is the outcome.
        rows: The cells of each verdict.
        number_columns: The indices of columns of numbers.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    number_columns: Sequence[int]


def make_table(verdicts: Sequence[Verdict]) -> VerdictTable:
    """Return a table of comparisons of new with old scores: one row for each verdict, in order.

    Scores, times 100, are in the columns ``old``, ``new`` and ``difference``. ``allowed`` is the
    number of points by which the score may fall. ``found from`` is the smallest true fall that the
    statistical test would find in 80% of cases. ``margin`` says how the difference compares with
    the largest one that does not matter. The last two columns are left out if no verdict has a
    value for them. A dash stands for a missing value.
    """
    columns: dict[str, Sequence[str]] = {
        "encoder": [verdict.encoder for verdict in verdicts],
        "task": [describe_cell(verdict) for verdict in verdicts],
        "old": [_format_points(verdict.old) for verdict in verdicts],
        "new": [_format_points(verdict.new) for verdict in verdicts],
        "difference": [_format_points(verdict.difference, "+.3f") for verdict in verdicts],
        "allowed": [
            "–" if verdict.points is None else f"{verdict.points:.3g}" for verdict in verdicts
        ],
        "found from": [_format_points(verdict.smallest_fall, ".2f") for verdict in verdicts],
        "margin": [verdict.margin_verdict or "–" for verdict in verdicts],
        "verdict": [verdict.outcome for verdict in verdicts],
    }
    for title in ("found from", "margin"):
        has_values = any(text != "–" for text in columns[title])
        if not has_values:
            del columns[title]
    text_columns = ("encoder", "task", "margin", "verdict")
    return VerdictTable(
        titles=list(columns),
        rows=list(zip(*columns.values(), strict=True)),
        number_columns=[index for index, title in enumerate(columns) if title not in text_columns],
    )


def _format_points(score: float | None, format_spec: str = ".3f") -> str:
    """Return a score, or a difference of two, times 100; a dash if there is none."""
    return "–" if score is None else format(100 * score, format_spec)


def to_junit(check: CheckReport) -> bytes:
    """Return the file of test results, JUnit XML, that programs for continuous integration read.

    Each comparison of a new with an old score is a test case. A regression is a failure. A score
    that cannot be compared or read is an error. A new score is skipped. All others pass. Control
    characters, some of which XML 1.0 cannot hold, are escaped.
    """
    # "failure", "error", "skipped", or empty if the test passes.
    kind_by_verdict = {verdict: check.kind(verdict) for verdict in check.verdicts}
    kind_by_attribute: dict[str, OutcomeKind] = {
        "failures": "failure",
        "errors": "error",
        "skipped": "skipped",
    }
    kinds = list(kind_by_verdict.values())
    counts = {name: str(kinds.count(kind)) for name, kind in kind_by_attribute.items()}
    suite = ElementTree.Element(
        "testsuite", {"name": "stsbench check", "tests": str(len(kinds)), **counts}
    )
    for verdict, kind in kind_by_verdict.items():
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=escape_controls(verdict.encoder),
            name=escape_controls(describe_cell(verdict)),
        )
        message = escape_controls(describe_verdict(verdict))
        if kind:
            ElementTree.SubElement(case, kind, message=message)
        else:
            ElementTree.SubElement(case, "system-out").text = message
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    content: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def describe_verdict(verdict: Verdict) -> str:
    """Return a verdict as one sentence."""
    scores = ""
    if verdict.old is not None and verdict.new is not None:
        scores = f"{100 * verdict.old:.3f} -> {100 * verdict.new:.3f}, "
    return f"{verdict.outcome}: {scores}{verdict.reason}"


def to_github_commands(check: CheckReport) -> list[str]:
    """Return lines that GitHub shows as annotations when a workflow of it prints them.

    Each verdict that fails the check is an error: a regression, or a score that is missing or
    cannot be compared or read. A higher score is a notice, unless it fails the check too. Other
    comparisons have no line.
    """
    lines = []
    for verdict in check.verdicts:
        # Whether the check fails because of this verdict.
        fails = check.kind(verdict) in ("failure", "error")
        if fails or verdict.outcome == "higher":
            command = "error" if fails else "notice"
            title = _escape_message(f"{verdict.encoder}: {describe_cell(verdict)}")
            # A colon or a comma would end the title.
            title = title.replace(":", "%3A").replace(",", "%2C")
            message = _escape_message(describe_verdict(verdict))
            lines.append(f"::{command} title={title}::{message}")
    return lines


def escape_commands(text: str, *, as_json: bool = False) -> str:
    """Return a text in which GitHub's runner finds no command of its older kind, ``##[name]``.

    The runner looks for it anywhere in a line. JSON means the same after the change.
    """
    return text.replace("##[", "#\\u0023[" if as_json else "## [")


def _escape_message(text: str) -> str:
    """Escape text as GitHub's toolkit does, and all other control characters."""
    return escape_controls(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def to_markdown(check: CheckReport) -> str:
    """Return a summary of a check of new against old scores, in Markdown.

    It has the outcome, the counts of all verdicts, and a table with one row for each verdict. All
    but those with the outcome ``fine`` are reported: they come first, and have their reason in the
    last column, behind the outcome.
    """
    outcome_label = {0: "fine", 1: "regression", 2: "not comparable"}[check.exit_code]
    lines = [f"### stsbench check: {outcome_label}", "", f"{check.summary}; rule {check.rule}.", ""]
    # False, for reported ones, is sorted before True.
    verdicts = sorted(check.verdicts, key=lambda verdict: not is_reported(verdict))
    table = make_table(verdicts)
    # The line below the titles; a colon aligns a column of numbers to the right.
    rules = [
        "---:" if index in table.number_columns else "---" for index in range(len(table.titles))
    ]
    lines += [_table_line(table.titles), _table_line(rules)]
    for verdict, row in zip(verdicts, table.rows, strict=True):
        *cells, outcome = map(escape_markdown, row)
        if is_reported(verdict):
            outcome = f"**{outcome}**: {escape_markdown(verdict.reason)}"
        lines.append(_table_line([*cells, outcome]))
    return "\n".join([*lines, ""])


def is_reported(verdict: Verdict) -> bool:
    """Return whether a verdict needs the attention of a reader."""
    return verdict.outcome != "fine"


def _table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
