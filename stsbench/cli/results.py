"""``stsbench results``: stored results, brought up to date."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.printing import print_errors, print_json, print_text, show_count
from stsbench.cli.tables import print_records
from stsbench.core.errors import EXIT_USER_ERROR

if TYPE_CHECKING:
    from stsbench.check.update import IntervalUpdate, UpdatedInterval


def update_command(
    *,
    results: opt.VerifiedResults = Path("results"),
    lock: opt.LockToUpdate = None,
    _config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Compute the intervals of stored results anew.

    The current method is used. It needs the items in the folder, and no encoder; no score changes.
    Results without items keep their interval. What changed is printed.

    Example: stsbench results update results --lock scores.lock.json
    """
    from stsbench.check.update import update_intervals

    catalogue = opt.read_cards(cards)
    with show_count("results done") as progress:
        update = update_intervals(results, catalogue, lock, progress)
    exit_code = EXIT_USER_ERROR if update.problems else 0
    if as_json:
        print_json(
            {
                "exit": exit_code,
                "updated": [_to_json(interval) for interval in update.updated],
                "current": update.n_current,
                "unchanged": len(update.unknown),
                "problems": [problem.message for problem in update.problems],
                "lock": None if lock is None else str(lock),
                "updated_rows": len(update.updated_cells),
                "rows": update.n_cells,
            }
        )
    else:
        _print_update(update, lock)
    return exit_code


def _to_json(interval: UpdatedInterval) -> dict[str, Any]:
    """Return an updated interval and the earlier one with the keys of ``--json``."""
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
        update: The new intervals, and the numbers of results by what was done with them.
        lock: The lock file whose rows were updated too; None if there is none.
    """
    print_errors("left as it is", [problem.message for problem in update.problems])
    rows = [
        {
            "encoder": interval.result.encoder,
            "task": interval.result.task,
            "score": f"{100 * interval.result.score:.2f}",
            "earlier interval": _format_interval(interval.earlier_interval),
            "interval": _format_interval(interval.result.interval),
        }
        for interval in update.updated
    ]
    if rows:
        print_records(rows, right=["score", "earlier interval", "interval"])
    count = "1 interval" if len(rows) == 1 else f"{len(rows)} intervals"
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


def _format_interval(interval: tuple[float, float]) -> str:
    """Return an interval in points."""
    low, high = interval
    return f"{100 * low:.2f}–{100 * high:.2f}"
