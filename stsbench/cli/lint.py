"""``stsbench lint``: copies, leaks, contradictions and damaged text in evaluation data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.new import parse_roles
from stsbench.cli.option_values import TypedOptions, choose_format
from stsbench.cli.overlap import load_tasks
from stsbench.cli.printing import UNLIMITED_WIDTH, fold_lines, line_width, print_json, print_text
from stsbench.cli.tables import print_records
from stsbench.core.errors import look_up
from stsbench.core.wording import format_count, format_some

if TYPE_CHECKING:
    from stsbench.core.catalogue import Catalogue
    from stsbench.data.quality import CheckedSplit, DataToCheck, Finding


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
    data: opt.DataFolder = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Check data for copies, leaks, contradictions, damaged text.

    Without a task or file it checks all tasks whose data are on this machine. The exit code is 1 if
    there is a warning: something by which a score is wrong. What is in splits that are not scored,
    and what is only unusual, is a note. Items are named by their line, or counted from 0.

    Example: stsbench lint pairs.csv --near 0.9
    Example: stsbench lint stsb --ignore doubled,leak --json
    """
    from stsbench.data.quality import CHECKS
    from stsbench.data.readers.files import TABLE_SUFFIXES
    from stsbench.data.task_draft import recognise_task
    from stsbench.data.user_tables import ScoreSettings

    typed = TypedOptions.from_context(context)
    typed.forbid_beside("--json", "--format")
    output = choose_format(output, None, ("markdown", "json"), as_json=as_json)
    for name in ignore:
        look_up("check", name, dict.fromkeys(check.name for check in CHECKS))
    catalogue = opt.make_catalogue(cards)
    names = {*catalogue.paths("tasks"), *catalogue.suites()}
    paths = [
        source
        for source in sources
        if source not in names
        and (Path(source).exists() or Path(source).suffix.lower() in TABLE_SUFFIXES)
    ]
    tasks = [source for source in sources if source not in paths]
    if not paths:
        typed.forbid("without a file", "--columns", "--labels", "--drop-unscored", "--language")
    elif not tasks:
        typed.forbid("without a task", "--data")
    # Which column of a file is a sentence, a score or a label.
    roles = parse_roles(columns, labels=labels)
    scores = ScoreSettings(drop_unscored=drop_unscored)
    # The splits to check, by the name of the file or task.
    data_by_name = {
        path: recognise_task(
            Path(path), path, columns=roles, labels=labels, scores=scores, language=language
        ).data_to_check(near)
        for path in paths
    }
    # Without any source all tasks on this machine are checked.
    if tasks or not paths:
        data_by_name |= _load_tasks(tasks, near, data, catalogue)
    return _check_and_print(data_by_name, ignore, output)


def _check_and_print(
    data_by_name: Mapping[str, DataToCheck], ignored: Sequence[str], output: str
) -> int:
    """Check evaluation data for errors, print what is found, and return the exit code.

    Args:
        data_by_name: By the name of a task or file its splits, the scored one first.
        ignored: The names of checks that are not made.
        output: The format, "terminal", "markdown" or "json".

    Returns:
        1 if there is a warning, 0 if there are only notes or nothing.
    """
    from stsbench.data.quality import check_data

    # One row per split, with the numbers of its items and warnings, and what was found.
    rows = []
    for name, data in data_by_name.items():
        # What is wrong in any of its splits. The row of a split has only that split's own.
        findings = check_data(data, ignored=ignored)
        rows += [_summarise_split(name, split, findings) for split in data.checked_splits.values()]
    exit_code = int(any(row["warnings"] for row in rows))
    if output == "json":
        print_json({"exit": exit_code, "splits": rows})
    elif output == "markdown":
        _print_markdown(rows)
    else:
        _print_findings(rows)
    return exit_code


def _load_tasks(
    names: Sequence[str], min_similarity: float | None, data: Path | None, catalogue: Catalogue
) -> dict[str, DataToCheck]:
    """Load the splits of tasks, to check them.

    The splits that are on this machine are loaded. If a task has none here, all of its splits are
    loaded from the Hub.

    Args:
        names: Tasks and suites; empty for all tasks on this machine.
        min_similarity: The lowest similarity of near-duplicates; None to find none.
        data: The folder of data; None for the default one.
        catalogue: The cards of tasks.

    Returns:
        By task its splits, which of them is scored, and the languages of its texts.
    """
    from stsbench.data.quality import DataToCheck, load_local_splits

    # load_local_splits: name -> split of those that are here; empty if none is.
    return {
        task.name: DataToCheck(
            splits=load_local_splits(task) or {name: task.load(name) for name in task.card.splits},
            score_split=task.card.score_split,
            languages=task.card.languages,
            min_similarity=min_similarity,
        )
        for task in load_tasks(names, data, catalogue)
    }


def _summarise_split(task: str, split: CheckedSplit, findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the numbers of a split's items, and what was found in it.

    Args:
        task: The name of the task or file.
        split: The split. ``split.copied`` holds the items with a copy in any split of the task.
        findings: What was found in all splits of the task.

    Returns:
        ``n`` is the number of items, ``alone`` that of items without a copy, ``warnings`` the
        number of findings by which a score is wrong. ``findings`` holds the fields of each finding:
        the check, its level ("warning" or "note"), a message, the indices of the items, and their
        share as text, such as "3 of 250".
    """
    split_findings = [finding for finding in findings if finding.split == split.name]
    return {
        "task": task,
        "split": split.name,
        "n": split.split.n,
        "alone": split.split.n - len(split.copied),
        "warnings": sum(finding.level == "warning" for finding in split_findings),
        "findings": [
            dataclasses.asdict(finding) | {"items": list(finding.items), "share": finding.share}
            for finding in split_findings
        ],
    }


def _print_markdown(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print what was found in splits, as a table in markdown.

    Args:
        rows: A mapping per split: ``task``, ``split``, the number of items (``n``), of those
            without a copy (``alone``), and the ``findings``, each with its ``check`` and ``items``.
    """
    from stsbench.boards.render.text import MARKDOWN

    print_text(MARKDOWN.row(["task", "split", "items", "without a copy", "findings"]))
    print_text(MARKDOWN.row(["---", "---", "---:", "---:", "---"]))
    for row in rows:
        findings = [f"{finding['check']} {len(finding['items']):,}" for finding in row["findings"]]
        counts = [f"{row['n']:,}", f"{row['alone']:,}"]
        print_text(MARKDOWN.row([row["task"], row["split"], *counts, ", ".join(findings)]))


def _print_findings(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print each split with a finding, and below it a paragraph per finding with its first items.

    Into a pipe or file, a finding is one line with tabs between its cells.

    Args:
        rows: A mapping per split: ``task``, ``split``, the number of items (``n``), of those
            without a copy (``alone``) and of ``warnings``, and the ``findings``.
    """
    rows_with_findings = [row for row in rows if row["findings"]]
    n_findings = sum(len(row["findings"]) for row in rows)
    n_warnings = sum(row["warnings"] for row in rows)
    if line_width() == UNLIMITED_WIDTH:
        records = [
            {"task": row["task"], "split": row["split"], **_describe_finding(finding)}
            for row in rows_with_findings
            for finding in row["findings"]
        ]
        print_records(records, number_keys=[])
    else:
        for row in rows_with_findings:
            print_text(
                f"{row['task']} {row['split']}: {format_count(row['n'], 'item')}, "
                f"{row['alone']:,} without a copy"
            )
            for finding in map(_describe_finding, row["findings"]):
                text = f"  {finding['level']}: {finding['items']} {finding['what']}"
                print_text("\n".join(fold_lines(f"{text} [{finding['check']}]", indent="    ")))
    n_notes = n_findings - n_warnings
    print_text(f"{format_count(n_warnings, 'warning')}, {format_count(n_notes, 'note')}")


def _describe_finding(finding: Mapping[str, Any]) -> dict[str, str]:
    """Return a finding as texts: its ``check``, its ``level``, how many ``items``, and ``what``.

    Args:
        finding: What a check has found in a split: also its message; the indices of the items;
            their ``locations``, which are empty if they are not known; and their ``share``, a text
            such as "3 of 250" or "all 250".
    """
    # The file and line of each item, if they are known. format_some names the first three items,
    # and says how many more there are.
    names = [Path(location).name for location in finding["locations"]]
    names = names or [*map(str, finding["items"])]
    return {
        "check": finding["check"],
        "level": finding["level"],
        "items": finding["share"],
        "what": f"{finding['message']} ({format_some(names)})",
    }
