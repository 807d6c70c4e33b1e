"""Reports of a check: JUnit XML, GitHub annotations, and a job summary in markdown."""

from __future__ import annotations

from xml.etree import ElementTree

from stsbench.boards.render.text import escape_markdown
from stsbench.check.verdicts import CheckReport, OutcomeKind, Verdict
from stsbench.core.wording import escape_controls

VERDICT_COLUMNS = ["encoder", "task", "old", "new", "difference", "allowed", "verdict"]


def describe_cell(verdict: Verdict) -> str:
    """Return a cell's name: task, protocol, and split and seeds if they are not the usual ones."""
    conditions = [verdict.protocol]
    if verdict.split not in ("test", "all"):
        conditions.insert(0, verdict.split)
    if verdict.train_seed is not None:
        conditions.append(f"train seed {verdict.train_seed}")
    if verdict.eval_seed:
        conditions.append(f"seed {verdict.eval_seed}")
    # A file that cannot be read has no protocol.
    return f"{verdict.task} ({', '.join(conditions)})" if verdict.protocol else verdict.task


def format_row(verdict: Verdict) -> list[str]:
    """Return the table row of a verdict, under ``VERDICT_COLUMNS``, in points."""
    return [
        verdict.encoder,
        describe_cell(verdict),
        *("–" if score is None else f"{100 * score:.3f}" for score in (verdict.old, verdict.new)),
        "–" if verdict.difference is None else f"{100 * verdict.difference:+.3f}",
        "–" if verdict.points is None else f"{verdict.points:.3g}",
        verdict.outcome,
    ]


def to_junit(check: CheckReport) -> bytes:
    """Return JUnit XML with one test case per cell.

    A regression is a failure, a cell that cannot be compared or read an error, and a new cell is
    skipped. Control characters, some of which XML 1.0 cannot hold, are escaped.
    """
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
    """Return GitHub workflow commands: an error for what fails, a notice for a higher score."""
    lines = []
    for verdict in check.verdicts:
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
    """Return a job summary: the outcome, then a table of all cells, the reported ones first."""
    outcome_label = {0: "fine", 1: "regression", 2: "not comparable"}[check.exit_code]
    lines = [f"### stsbench check: {outcome_label}", "", f"{check.summary}; rule {check.rule}.", ""]
    lines += [
        _table_line(VERDICT_COLUMNS),
        _table_line(["---", "---", "---:", "---:", "---:", "---:", "---"]),
    ]
    for verdict in sorted(check.verdicts, key=lambda verdict: not is_reported(verdict)):
        *cells, outcome = map(escape_markdown, format_row(verdict))
        if is_reported(verdict):
            outcome = f"**{outcome}**: {escape_markdown(verdict.reason)}"
        lines.append(_table_line([*cells, outcome]))
    return "\n".join([*lines, ""])


def is_reported(verdict: Verdict) -> bool:
    """Return whether a verdict needs the attention of a reader."""
    return verdict.outcome != "fine"


def _table_line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
