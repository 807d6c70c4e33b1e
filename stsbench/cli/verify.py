"""``stsbench verify``: every score made again from its items."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cli import options as opt
from stsbench.cli.printing import print_errors, print_json, print_text, show_count

if TYPE_CHECKING:
    from stsbench.check.verify import LocalData, VerificationReport
    from stsbench.core.catalogue import Catalogue
    from stsbench.evaluators.belief import VerifiedFile


def verify_command(
    *,
    results: opt.VerifiedResults = Path("results"),
    data: opt.Data = None,
    _config: opt.Config = None,
    cards: opt.OwnCards,
    as_json: opt.AsJson = False,
) -> int:
    """Make every score again from its items.

    Hashes, protocols and data are checked too; no encoder is needed.

    Example: stsbench verify results --data DIR
    """
    from stsbench.check.verify import verify

    catalogue = opt.read_cards(cards)
    at, read = opt.data_folder(data), cache(_read)
    with show_count("results verified") as progress:
        found = verify(
            results, catalogue, lambda one: read(one.task, one.split, catalogue, at), progress
        )
    if as_json:
        rows = [_verified_facts(one) for one in found.files]
        print_json({"exit": found.exit_code, "summary": found.summary, "results": rows})
    else:
        _print_verified(found)
    return found.exit_code


def _read(name: str, split: str, catalogue: Catalogue, folder: Path | None) -> LocalData | None:
    from stsbench.bench.plan import RunPlan
    from stsbench.check.verify import LocalData
    from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
    from stsbench.data.task import has_files
    from stsbench.numbers.statistics import sentence_columns

    if name not in catalogue.paths("tasks") or split not in catalogue.task(name).splits:
        return None
    (task,) = RunPlan(tasks=name, catalogue=catalogue, data=folder, split=split).planned_tasks
    card = task.task.card
    if card.package is None and not all(
        has_files(card.local, one, folder) for one in task.required_splits
    ):
        return None
    task.load()
    # Labels are not among a split's own columns.
    read, columns = task.splits[split], dict[str, Any]()
    if isinstance(read, PairSplit):
        columns = {
            "gold": read.gold,
            **({"subset": list(read.subset)} if read.subsets_known else {}),
        }
    elif isinstance(read, LabelledSplit | LabelledPairSplit):
        columns = {"labels": read.labels}
    return LocalData(task.digest, columns and columns | sentence_columns(*read.sides))


def _verified_facts(one: VerifiedFile) -> dict[str, Any]:
    result = one.result
    cell = (
        {}
        if result is None
        else {"encoder": result.encoder, "task": result.task, "split": result.split}
    )
    facts = {
        "verdict": one.standing,
        "problems": one.problems,
        "not_verified": one.unknown,
        "data_at_hand": one.data,
    }
    return {"path": str(one.path), **cell, **facts}


def _print_verified(found: VerificationReport) -> None:
    failed = ((one.path, line) for one in found.with_standing("failed") for line in one.problems)
    print_errors(
        "failed", (line if str(path) in line else f"{path}: {line}" for path, line in failed)
    )
    reasons: dict[str, list[VerifiedFile]] = {}
    for one in found.with_standing("not verified"):
        reasons.setdefault("; ".join(one.unknown), []).append(one)
    for reason, files in reasons.items():
        counts = Counter(one.path.parent.name for one in files)
        print_text(
            f"not verified: {reason}: {', '.join(f'{name} {count}' for name, count in counts.items())}"
        )
    print_text(found.summary)
    if not (found.with_standing("failed") or found.with_standing("verified")):
        print_text("nothing could be verified")
