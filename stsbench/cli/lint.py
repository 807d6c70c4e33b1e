"""``stsbench lint``: copies, leaks, contradictions and damaged text in evaluation data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.new import parse_roles
from stsbench.cli.option_values import choose_format
from stsbench.cli.overlap import load_tasks
from stsbench.cli.printing import print_json, print_paragraph, print_text
from stsbench.cli.tables import print_records
from stsbench.cli.typed_options import TypedOptions
from stsbench.core.errors import look_up
from stsbench.core.wording import format_count, format_some

if TYPE_CHECKING:
    from stsbench.data.quality import CheckedSplit, Finding


def lint_command(
    context: opt.Context,
    *,
    sources: opt.LintedSources,
    near: opt.MinSimilarity = None,
    ignore: opt.IgnoredChecks,
    columns: opt.Columns,
    labels: opt.Labels = False,
    drop_unscored: opt.DropUnscored = False,
    language: opt.DataLanguages = "",
    output: opt.PlainFormat = "terminal",
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Check data for copies, leaks, contradictions and damaged text.

    Without a task or file it checks all tasks whose data are on this machine. The exit code is 1 if
    there is a warning: something by which a score is wrong. What is in splits that are not scored,
    and what is only unusual, is a note. Items are counted from 0.

    Example: stsbench lint pairs.csv --near 0.9
    Example: stsbench lint stsb --ignore doubled,leak --json
    """
    from stsbench.data.quality import CHECKS, DataToCheck, check_data, load_local_splits
    from stsbench.data.task_draft import recognise_task
    from stsbench.data.user_tables import ScoreSettings

    output = choose_format(output, None, as_json=as_json)
    look_up("format", output, dict.fromkeys(("terminal", "markdown", "json")))
    for name in ignore:
        look_up("check", name, dict.fromkeys(check.name for check in CHECKS))
    catalogue = opt.read_cards(cards)
    task_names = {*catalogue.paths("tasks"), *catalogue.suites()}
    paths = [name for name in sources if name not in task_names and Path(name).exists()]
    if not paths:
        TypedOptions.from_context(context).forbid(
            "without a file", "--columns", "--labels", "--drop-unscored", "--language"
        )
    roles = parse_roles(columns, labels=labels)
    scores = ScoreSettings(drop_unscored=drop_unscored)
    data_by_name = {
        path: recognise_task(
            Path(path), path, columns=roles, labels=labels, scores=scores, language=language
        ).data_to_check(near)
        for path in paths
    }
    names = [name for name in sources if name not in paths]
    for task in load_tasks(names, data, catalogue) if names or not paths else ():
        data_by_name[task.name] = DataToCheck(
            splits=load_local_splits(task) or {name: task.load(name) for name in task.card.splits},
            score_split=task.card.score_split,
            languages=task.card.languages,
            min_similarity=near,
        )
    findings_by_name = {
        name: check_data(checked, ignored=ignore) for name, checked in data_by_name.items()
    }
    summaries = [
        _summarise_split(name, split, findings_by_name[name])
        for name, checked in data_by_name.items()
        for split in checked.checked_splits.values()
    ]
    findings = [finding for found in findings_by_name.values() for finding in found]
    n_warnings = sum(finding.level == "warning" for finding in findings)
    exit_code = int(n_warnings > 0)
    if output == "json":
        print_json({"exit": exit_code, "splits": summaries})
    elif output == "markdown":
        _print_markdown(summaries)
    else:
        _print_findings(findings_by_name, summaries)
        n_notes = len(findings) - n_warnings
        print_text(f"{format_count(n_warnings, 'warning')}, {format_count(n_notes, 'note')}")
    return exit_code


def _summarise_split(task: str, split: CheckedSplit, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the numbers of a split's items, and what was found in it, as ``--json`` has them.

    ``alone`` is the number of items without a copy in any split of the task.

    Args:
        task: The name of the task or file.
        split: The split.
        findings: What was found in all splits of the task.
    """
    return {
        "task": task,
        "split": split.name,
        "n": split.split.n,
        "alone": split.split.n - len(split.copied),
        "findings": [
            {
                "check": finding.check,
                "level": finding.level,
                "n": len(finding.items),
                "message": finding.message,
                "items": list(finding.items),
            }
            for finding in findings
            if finding.split == split.name
        ],
    }


def _print_markdown(summaries: Sequence[Mapping[str, Any]]) -> None:
    """Print a table in markdown with a row per split that :func:`_summarise_split` describes."""
    from stsbench.boards.render.text import MARKDOWN

    heads = ["task", "split", "items", "without a copy", "findings"]
    print_text(MARKDOWN.row(heads))
    print_text(MARKDOWN.row(["---", "---", "---:", "---:", "---"]))
    for summary in summaries:
        findings = [f"{finding['check']} {finding['n']:,}" for finding in summary["findings"]]
        counts = [f"{summary['n']:,}", f"{summary['alone']:,}"]
        print_text(MARKDOWN.row([summary["task"], summary["split"], *counts, ", ".join(findings)]))


def _print_findings(
    findings_by_name: Mapping[str, Sequence[Finding]], summaries: Sequence[Mapping[str, Any]]
) -> None:
    """Print a table of what was found, with the first items of each, and a line on copies."""
    rows = []
    for name, findings in findings_by_name.items():
        for finding in findings:
            positions = format_some([str(position) for position in finding.items[:1000]])
            is_part = len(finding.items) < finding.n
            rows.append(
                {
                    "task": name,
                    "split": finding.split,
                    "check": finding.check,
                    "level": finding.level,
                    "items": finding.share,
                    "what": finding.message + (f" ({positions})" if is_part else ""),
                }
            )
    print_records(rows, right=[])
    counts = [
        f"{summary['task']} {summary['split']} {summary['alone']:,} of {summary['n']:,}"
        for summary in summaries
        if summary["alone"] < summary["n"]
    ]
    if counts:
        print_paragraph(f"items without a copy: {', '.join(counts)}")
