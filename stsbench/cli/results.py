"""``stsbench results``: stored results, brought up to date or passed on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.option_values import find_data_folder
from stsbench.cli.printing import (
    format_interval,
    print_errors,
    print_json,
    print_paragraph,
    print_text,
    show_count,
)
from stsbench.cli.tables import print_records
from stsbench.core.errors import EXIT_USER_ERROR
from stsbench.core.wording import format_count

if TYPE_CHECKING:
    from stsbench.check.sharing import ColumnTransfer
    from stsbench.check.update import IntervalUpdate, UpdatedInterval


def update_command(
    *,
    results: opt.VerifiedResults = Path("results"),
    lock: opt.LockToUpdate = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Compute the intervals of stored results anew.

    The current method is used. It needs the items in the folder, and no encoder; no score changes.
    Results without items keep their interval. What changed is printed.

    Example: stsbench results update results --lock scores.lock.json
    """
    from stsbench.check.update import update_intervals

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    with show_count("results done") as progress:
        update = update_intervals(results, catalogue, lock, progress)
    # 2 if a file cannot be read or its score contradicts its items.
    exit_code = EXIT_USER_ERROR if update.problems else 0
    if as_json:
        print_json(
            {
                "exit": exit_code,
                "updated": [_to_json(interval) for interval in update.updated],
                "current": update.n_current,
                # The results whose interval could not be computed.
                "unchanged": len(update.unknown),
                "problems": [problem.message for problem in update.problems],
                "lock": None if lock is None else str(lock),
                # Of the lock file's rows, those with a new interval, and all.
                "updated_rows": len(update.updated_cells),
                "rows": update.n_cells,
            }
        )
    else:
        _print_update(update, lock)
    return exit_code


def _to_json(interval: UpdatedInterval) -> dict[str, Any]:
    """Return the JSON object of a result whose interval was computed anew.

    Args:
        interval: The result with its new interval, the earlier interval, and the names of the
            methods that both were computed by. An interval is its lower and its upper bound; like
            the score, they are not times 100.
    """
    result = interval.result
    return {
        "path": str(result.path),
        "encoder": result.encoder,
        "task": result.task,
        "split": result.split,
        "score": result.score,
        "interval": result.interval,
        "interval_method": result.interval_method,
        "earlier_interval": interval.earlier_interval,
        "earlier_method": interval.earlier_method,
    }


def _print_update(update: IntervalUpdate, lock: Path | None) -> None:
    """Print each new interval beside the earlier one, then what was left as it is, and why.

    Args:
        update: What was done. ``updated`` holds the results with a new interval; ``n_clean`` of
            these have a further score without training text. ``n_current`` is the number of results
            whose interval is up to date. ``unknown`` holds a reason for each result whose interval
            could not be computed. ``updated_cells`` are the rows of the lock with a new interval.
        lock: The lock file whose rows were updated too; None if there is none.
    """
    print_errors("left as it is", update.problems)
    rows = [
        {
            "encoder": interval.result.encoder,
            "task": interval.result.task,
            "score": f"{100 * interval.result.score:.2f}",
            "earlier interval": format_interval(interval.earlier_interval),
            "interval": format_interval(interval.result.interval),
        }
        for interval in update.updated
    ]
    if rows:
        print_records(rows, number_keys=["score", "earlier interval", "interval"])
    count = format_count(len(rows), "interval")
    print_text(f"{count} computed anew, {update.n_current} up to date")
    for reason, n_results in Counter(update.unknown).items():
        print_text(f"{n_results} left as they are: {reason}")
    if update.n_clean:
        verb = "has" if update.n_clean == 1 else "have"
        print_text(
            f"{update.n_clean} of them {verb} scores without training text, whose intervals stay; "
            "run the cells again with '--clean' for new ones"
        )
    if lock is not None:
        print_text(
            f"{lock}: {len(update.updated_cells)} of {update.n_cells} rows have a new interval"
        )


def pack_command(
    *,
    results: opt.VerifiedResults = Path("results"),
    out: opt.PackedFolder,
    _config: opt.DefaultsFile = None,
    as_json: opt.AsJson = False,
) -> int:
    """Write the per-item columns of results without gold scores.

    The folder holds nothing of the data but hashes of sentences, and may be passed on. Whoever has
    the data completes the columns with 'stsbench results unpack'.

    Example: stsbench results pack results --out packed
    """
    from stsbench.check.sharing import pack_columns

    with show_count("results done") as progress:
        transfer = pack_columns(results, out, progress)
    # 2 if there are problems or nothing was written, else 0.
    return _print_transfer(transfer, f"packed into {out}", "without per-item columns", as_json)


def unpack_command(
    *,
    packed: opt.PackedArgument,
    results: opt.ResultsFolder = Path("results"),
    data: opt.DataFolder = None,
    _config: opt.DefaultsFile = None,
    cards: opt.CardFolders,
    as_json: opt.AsJson = False,
) -> int:
    """Complete packed per-item columns by the data.

    The columns are written beside the results that lack theirs, if they are those that the score
    was made with. Then 'verify', 'compare' and '--ranks' work on these results.

    Example: stsbench results unpack packed --results results/project --data DIR
    """
    from stsbench.check.sharing import unpack_columns
    from stsbench.cli.verify import make_data_reader

    # All cards: TOML files that describe tasks, encoders and recipes, the user's among them.
    catalogue = opt.make_catalogue(cards)
    # A function that returns the gold scores and labels, which packed columns lack, of a result's
    # split; None if they are not on this machine.
    read_data = make_data_reader(catalogue, data)
    with show_count("results done") as progress:
        transfer = unpack_columns(results, packed, read_data, progress)
    has_data = find_data_folder(data) is not None
    # 2 if there are problems or nothing was written, else 0.
    return _print_transfer(
        transfer, f"completed in {results}", "that had their columns already", as_json, has_data
    )


def _print_transfer(
    transfer: ColumnTransfer,
    action: str,
    skipped_reason: str,
    as_json: bool,
    has_data: bool = True,
) -> int:
    """Print how many results' per-item columns were packed or completed; return the exit code.

    Args:
        transfer: What was done: the files ``written``, the number of results skipped, the results
            for which columns or data are ``missing``, and problems.
        action: What was done with the written ones, for example "packed into FOLDER".
        skipped_reason: What the skipped results have in common.
        as_json: Print JSON instead of lines.
        has_data: Whether there is a data folder; if not, that is said instead of the tasks that
            are missing.

    Returns:
        2 if there are problems or nothing was written, else 0.
    """
    problems = [problem.message for problem in transfer.problems]
    exit_code = EXIT_USER_ERROR if problems or not transfer.written else 0
    if as_json:
        print_json(
            {
                "exit": exit_code,
                "written": [str(path) for path in transfer.written],
                "skipped": transfer.n_skipped,
                "missing": [str(result.path) for result in transfer.missing],
                "problems": problems,
            }
        )
        return exit_code
    print_errors("failed", problems)
    print_text(f"{format_count(len(transfer.written), 'result')} {action}")
    if transfer.n_skipped:
        print_text(f"{format_count(transfer.n_skipped, 'result')} {skipped_reason}")
    if transfer.missing:
        n_missing_by_task = Counter(result.task for result in transfer.missing)
        missing = ", ".join(f"{task} {count}" for task, count in n_missing_by_task.items())
        if not has_data:
            n_results = format_count(len(transfer.missing), "result")
            missing = f"{n_results}; there is no data folder: give --data DIR"
        print_paragraph(f"packed columns or data are missing: {missing}")
    return exit_code
