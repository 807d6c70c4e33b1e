"""What a check found, for those who read it elsewhere: JUnit XML, GitHub annotations, a job summary in markdown."""

from __future__ import annotations

from xml.etree import ElementTree

from stsbench.boards.render.text import escape_markdown
from stsbench.check.gate import CheckReport, Kind, Verdict
from stsbench.core.wording import escape_controls

COLUMNS = ["encoder", "task", "old", "new", "difference", "allowed", "verdict"]


def name(verdict: Verdict) -> str:
    """A cell in one line: task, split and seeds where they are not the usual ones, protocol."""
    facts = [verdict.protocol]
    if verdict.split not in ("test", "all"):
        facts.insert(0, verdict.split)
    if verdict.train_seed is not None:
        facts.append(f"train seed {verdict.train_seed}")
    if verdict.eval_seed:
        facts.append(f"seed {verdict.eval_seed}")
    # A file that cannot be read has no protocol.
    return f"{verdict.task} ({', '.join(facts)})" if verdict.protocol else verdict.task


def row(verdict: Verdict) -> list[str]:
    """A verdict's cells under ``COLUMNS``, in points."""
    return [
        verdict.encoder,
        name(verdict),
        *("–" if score is None else f"{100 * score:.3f}" for score in (verdict.old, verdict.new)),
        "–" if verdict.difference is None else f"{100 * verdict.difference:+.3f}",
        "–" if verdict.points is None else f"{verdict.points:.3g}",
        verdict.outcome,
    ]


def junit(check: CheckReport) -> bytes:
    """One test case a cell: a regression is a failure, what cannot be compared or read an error, a new cell is skipped.

    What XML 1.0 cannot hold is written out, with all other control characters.
    """
    kinds = {verdict: check.kind(verdict) for verdict in check.verdicts}
    named: dict[str, Kind] = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    found = list(kinds.values())
    counts = {name: str(found.count(kind)) for name, kind in named.items()}
    suite = ElementTree.Element(
        "testsuite", {"name": "stsbench check", "tests": str(len(found)), **counts}
    )
    for verdict, kind in kinds.items():
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=escape_controls(verdict.encoder),
            name=escape_controls(name(verdict)),
        )
        if kind:
            ElementTree.SubElement(case, kind, message=escape_controls(message(verdict)))
        else:
            ElementTree.SubElement(case, "system-out").text = escape_controls(message(verdict))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    content: bytes = ElementTree.tostring(suites, encoding="utf-8", xml_declaration=True)
    return content + b"\n"


def message(verdict: Verdict) -> str:
    """A verdict in one sentence."""
    scores = ""
    if verdict.old is not None and verdict.new is not None:
        scores = f"{100 * verdict.old:.3f} -> {100 * verdict.new:.3f}, "
    return f"{verdict.outcome}: {scores}{verdict.reason}"


def github_lines(check: CheckReport) -> list[str]:
    """GitHub workflow commands: an error for what fails or cannot be compared or read, a notice for a higher score."""
    lines = []
    for verdict in check.verdicts:
        bad = check.kind(verdict) in ("failure", "error")
        if bad or verdict.outcome == "higher":
            title = (
                _data(f"{verdict.encoder}: {name(verdict)}").replace(":", "%3A").replace(",", "%2C")
            )
            lines.append(
                f"::{'error' if bad else 'notice'} title={title}::{_data(message(verdict))}"
            )
    return lines


def no_command(text: str, *, as_json: bool = False) -> str:
    """Text in which GitHub's runner finds no command of its older kind, ``##[name]``: that may stand anywhere in a line.

    JSON says the same after it.
    """
    return text.replace("##[", "#\\u0023[" if as_json else "## [")


def _data(text: str) -> str:
    """Escape text as GitHub's toolkit does; other control characters are written out."""
    return escape_controls(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def markdown(check: CheckReport) -> str:
    """A job summary: the verdict, then a table of all cells, those that matter first."""
    verdict = {0: "fine", 1: "regression", 2: "not comparable"}[check.exit_code]
    lines = [f"### stsbench check: {verdict}", "", f"{check.summary}; rule {check.rule}.", ""]
    lines += [_line(COLUMNS), _line(["---", "---", "---:", "---:", "---:", "---:", "---"])]
    for one in sorted(check.verdicts, key=lambda verdict: not is_reported(verdict)):
        *cells, outcome = map(escape_markdown, row(one))
        said = f"**{outcome}**: {escape_markdown(one.reason)}" if is_reported(one) else outcome
        lines.append(_line([*cells, said]))
    return "\n".join([*lines, ""])


def is_reported(verdict: Verdict) -> bool:
    """Whether a verdict is one to look at."""
    return verdict.outcome != "fine"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
