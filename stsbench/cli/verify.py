"""``stsbench verify``: every score made again from its items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.option_values import find_data_folder
from stsbench.cli.printing import print_errors, print_json, print_paragraph, print_text, show_count
from stsbench.cli.wording import describe_reason
from stsbench.core.grouping import group_by
from stsbench.core.wording import shorten

if TYPE_CHECKING:
    from stsbench.check.verify import LocalData, VerificationReport
    from stsbench.core.catalogue import Catalogue
    from stsbench.evaluators.belief import VerifiedFile
    from stsbench.results.record import Result


def verify_command(
    *,
    results: opt.VerifiedResults = Path("results"),
    data: opt.DataFolder = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Recompute every score from its items.

    It also checks hashes, protocols and data; no encoder is needed.

    Example: stsbench verify results --data DIR
    """
    from stsbench.check.verify import verify

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    read_data = make_data_reader(catalogue, data)
    with show_count("results verified") as progress:
        report = verify(results, catalogue, read_data, progress)
    if as_json:
        rows = [_file_to_json(file) for file in report.files]
        print_json({"exit": report.exit_code, "summary": report.summary, "results": rows})
    else:
        _print_verified(report)
    # 0 if scores were recomputed and no file failed, else 2.
    return report.exit_code


def make_data_reader(
    catalogue: Catalogue, data: Path | None
) -> Callable[[Result], LocalData | None]:
    """Return a function that reads the evaluation data that a result was scored on.

    Several results are on one split of a task, which the function reads once.

    Args:
        catalogue: The cards of tasks.
        data: The data folder; None for the user's.

    Returns:
        A function of a result. It returns the hash and the columns of the result's split: gold
        scores, labels, sentences. It returns None if they are not on this machine.

    Raises:
        SourceError: The folder does not exist.
    """
    folder = find_data_folder(data)
    # The cache lives as long as the returned function.
    read_split = cache(read_local_data)
    return lambda result: read_split(result.task, result.split, catalogue, folder)


def read_local_data(
    name: str, split: str, catalogue: Catalogue, folder: Path | None
) -> LocalData | None:
    """Return the hash and the columns of a split of a task, if it is on this machine.

    Args:
        name: The name of the task.
        split: The name of the split.
        catalogue: The cards of tasks.
        folder: The data folder; None if there is none.

    Returns:
        The hash of the data, and one value per item by column name: ``gold`` scores and the names
        of ``subset`` for pairs with scores, or ``labels``; and hashes of the sentences. There are
        no columns for a split of another kind. None if the task has no card or no such split, or if
        not all of its data are on this machine.
    """
    from stsbench.bench.plan import RunPlan
    from stsbench.check.verify import LocalData
    from stsbench.data.splits import ContrastSplit, LabelledPairSplit, LabelledSplit, PairSplit
    from stsbench.data.task import has_files
    from stsbench.numbers.dependence import sentence_columns

    if name not in catalogue.paths("tasks") or split not in catalogue.task(name).splits:
        return None
    plan = RunPlan(tasks=name, catalogue=catalogue, data=folder, split=split)
    (planned_task,) = plan.planned_tasks
    card = planned_task.task.card
    # Required are all splits that the scoring reads, such as those that a classifier is trained on.
    has_all_files = all(
        has_files(card.local, required_split, folder)
        for required_split in planned_task.required_splits
    )
    is_in_package = card.package is not None
    if not is_in_package and not has_all_files:
        return None
    planned_task.load()
    items = planned_task.splits[split]
    columns: dict[str, Any] = {}
    if isinstance(items, PairSplit):
        columns["gold"] = items.gold
        if items.subsets_known:
            columns["subset"] = list(items.subset)
    elif isinstance(items, LabelledSplit | LabelledPairSplit):
        columns["labels"] = items.labels
    if columns or isinstance(items, ContrastSplit):
        # The sides are the first and, for pairs, the second sentences of all items.
        columns |= sentence_columns(*items.sides)
    return LocalData(planned_task.digest, columns)


def _file_to_json(file: VerifiedFile) -> dict[str, Any]:
    """Return the JSON object of a verified result file.

    Args:
        file: The file with its verdict (``standing``: verified, not verified or failed), what is
            wrong with it, and why it could not be verified. ``data`` is whether the task's data are
            here and the result agrees with them. ``result`` is None if the file holds no valid
            result; then the object lacks the keys of the result.
    """
    row: dict[str, Any] = {"path": str(file.path)}
    if (result := file.result) is not None:
        row |= {"encoder": result.encoder, "task": result.task, "split": result.split}
        row["interval_method"] = result.interval_method
        row["earlier_interval"] = file.has_earlier_interval
    return row | {
        "verdict": file.standing,
        "problems": file.problems,
        "not_verified": file.unverified_reasons,
        "data_at_hand": file.data,
    }


def _print_verified(report: VerificationReport) -> None:
    """Print a report on verified result files.

    It prints the failures on stderr, then on stdout why other files could not be verified, and a
    summary. If intervals were computed by an earlier method, the command that updates them follows.
    If no file failed and no score was recomputed from its items, a last line says that nothing
    could be verified.

    Args:
        report: The verdict on each file. ``has_recomputed`` is whether any score was recomputed,
            ``earlier_methods`` the number of results by earlier method of their interval.
    """
    failures = [
        problem if str(file.path) in problem else f"{file.path}: {problem}"
        for file in report.files_with_standing("failed")
        for problem in file.problems
    ]
    print_errors("failed", failures)
    files_by_reason = group_by(
        report.files_with_standing("not verified"), lambda file: "; ".join(file.unverified_reasons)
    )
    for reason, files in files_by_reason.items():
        # An encoder's results lie in a folder with its name.
        counts_by_folder = Counter(file.path.parent.name for file in files)
        folders = ", ".join(f"{folder} {count}" for folder, count in counts_by_folder.items())
        print_paragraph(f"not verified: {folders}: {describe_reason(reason)}")
    print_text(report.summary)
    for method, count in report.earlier_methods.items():
        print_text(
            f"{count} with an interval by an earlier method ({shorten(method)}); "
            "'stsbench results update' computes intervals anew from the items"
        )
    if not (report.files_with_standing("failed") or report.has_recomputed):
        print_text("nothing could be verified")
