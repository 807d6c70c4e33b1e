"""``stsbench verify``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from stsbench.bench.plan import ScoredTask, plan_tasks
from stsbench.check.verify import Known, Verification, Verified, verify
from stsbench.cli import options as opt
from stsbench.cli.data import local_files
from stsbench.cli.printing import MISTAKE, complain_of_all, print_json, say
from stsbench.cli.progress import shown_count
from stsbench.core import settings
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import SourceError
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit, Split
from stsbench.numbers.intervals import sentence_columns
from stsbench.results.record import Result


def verify_command(
    *,
    results: opt.VerifiedResults = Path("results"),
    data: opt.Data = None,
    config: opt.Config = None,
    cards: opt.Cards,
    as_json: opt.AsJson = False,
) -> int:
    """Make every score again from its items.

    Hashes, protocols and data are checked too; no encoder is needed.

    Example: stsbench verify results --data DIR
    """
    catalogue, at = Catalogue(cards), data or settings.data_folder()
    if at is not None and not at.is_dir():
        raise SourceError(f"data folder '{at}' does not exist")
    with shown_count("results verified") as progress:
        found = verify(results, catalogue, _DataAtHand(catalogue, at), progress)
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found)
    return found.exit_code


class _DataAtHand:
    """The data in the package and in a data folder; nothing is fetched."""

    def __init__(self, catalogue: Catalogue, folder: Path | None) -> None:
        self.catalogue, self.folder = catalogue, folder
        self._known: dict[tuple[str, str], Known | None] = {}

    def __call__(self, result: Result) -> Known | None:
        """The data of a Result's task and split, read once."""
        key = result.task, result.split
        if key not in self._known:
            self._known[key] = self._read(*key)
        return self._known[key]

    def _read(self, name: str, split: str) -> Known | None:
        if name not in self.catalogue.paths("tasks") or split not in self.catalogue.task(name).splits:
            return None
        (task,) = plan_tasks(name, self.catalogue, data=self.folder, split=split)
        if not self._is_here(task):
            return None
        task.load()
        return Known(task.digest, _columns(task.splits[split]))

    def _is_here(self, task: ScoredTask) -> bool:
        card = task.task.card
        files = [local_files(card, split, self.folder) for split in task.wanted]
        return card.package is not None or all(files) and all(path.is_file() for one in files for path in one)


def _columns(split: Split) -> dict[str, Any]:
    """What a split's own columns are called among per-item columns; labels are not among them."""
    sentences = sentence_columns(*split.sides)
    if isinstance(split, PairSplit):
        return {"gold": split.gold, **({"subset": list(split.subset)} if split.subsets_known else {}), **sentences}
    return {"labels": split.labels, **sentences} if isinstance(split, LabelledSplit | LabelledPairSplit) else {}


def _as_json(found: Verification) -> dict[str, Any]:
    return {"exit": found.exit_code, "summary": found.summary, "results": [_row(one) for one in found.files]}


def _row(one: Verified) -> dict[str, Any]:
    result = one.result
    cell = {} if result is None else {"encoder": result.encoder, "task": result.task, "split": result.split}
    facts = {"verdict": one.standing, "problems": one.problems, "not_verified": one.unknown, "data_at_hand": one.data}
    return {"path": str(one.path), **cell, **facts}


def _print(found: Verification) -> None:
    complain_of_all(
        "failed",
        (
            line if str(one.path) in line else f"{one.path}: {line}"
            for one in found.of("failed")
            for line in one.problems
        ),
    )
    reasons: dict[str, list[Verified]] = {}
    for one in found.of("not verified"):
        reasons.setdefault("; ".join(one.unknown), []).append(one)
    for reason, files in reasons.items():
        counts = Counter(one.path.parent.name for one in files)
        say(f"not verified: {reason}: {', '.join(f'{name} {count}' for name, count in counts.items())}")
    say(found.summary)
    if found.exit_code == MISTAKE and not found.of("failed"):
        say("nothing could be verified")
