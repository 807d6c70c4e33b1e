"""``stsbench data fetch`` and ``stsbench data verify``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import TaskCard
from stsbench.cli.counting import shown_progress
from stsbench.cli.options.catalogue import ConvertCocoOptions, FetchOptions, MakeOptions, VerifyDataOptions
from stsbench.cli.printing import print_json, print_rows, say
from stsbench.data.corpora.files import fetch_corpus
from stsbench.data.sources import place_of
from stsbench.data.splits import PairSplit
from stsbench.data.task import Task, expand_names, load_task
from stsbench.data.verify import characters
from stsbench.errors import SourceError, StsbenchError, UnknownName, one_line

if TYPE_CHECKING:
    from stsbench.data.corpora.documents import CountsTokens


def fetch_command(options: FetchOptions) -> None:
    """Fetch and check everything named; goes on past what cannot be had and says so at the end."""
    names, catalogue = options.names, Catalogue(options.cards)
    corpora, suites, tasks = catalogue.corpora(), catalogue.suites(), catalogue.paths("tasks")
    for name in names:
        if name not in corpora and name not in suites and name not in tasks:
            raise UnknownName("task, suite or corpus", name, [*suites, *tasks, *corpora])
    if options.data and all(name in corpora and not corpora[name].tasks for name in names):
        raise StsbenchError("--data has no effect: a corpus is not evaluation data; leave --data out")
    failures: list[StsbenchError] = []
    # A corpus made of tasks is fetched with them.
    wanted = [task for name in names for task in (corpora[name].tasks if name in corpora else []) or [name]]
    for what in [n for name in wanted for n in ([name] if name in corpora else expand_names(name, catalogue))]:
        try:
            if what in corpora:
                say(f"{what}: {fetch_corpus(what, corpora[what])}")
            else:
                task = load_task(what, data=options.data, catalogue=catalogue)
                say(f"{what}: {', '.join(_fetched(task))}")
        except StsbenchError as error:
            failures.append(error)
    if failures:
        more = f" (and {len(failures) - 1} more not available)" if len(failures) > 1 else ""
        raise SourceError(f"{one_line(failures[0])}{more}")


def _fetched(task: Task) -> Iterator[str]:
    for split in task.card.splits:
        loaded = task.loaded(split)
        yield f"{split} {loaded.split.n} rows ({'; '.join([loaded.source, *loaded.notes])})"


def verify_data_command(options: VerifyDataOptions) -> int:
    """Check splits against their cards; returns 0, or 2 where one differs."""
    names, catalogue = options.names, Catalogue(options.cards)
    folder = options.data or settings.data_folder()
    if folder is not None and not folder.is_dir():
        raise SourceError(f"data folder '{folder}' does not exist")
    wanted = expand_names(names, catalogue) if names else _present(catalogue, folder)
    rows: list[dict[str, Any]] = []
    for name in wanted:
        task = load_task(name, data=options.data, catalogue=catalogue)
        rows += [_verified(task, split) for split in task.card.splits]
    if options.as_json:
        print_json(rows)
    else:
        columns = ["task", "split", "rows", "characters", "mean", "verdict"]
        cells = [[str(row[column]) for column in columns] for row in rows]
        print_rows(columns, cells, right=[2])
        bad = sum(row["verdict"] != "OK" for row in rows)
        say(f"\n{len(rows) - bad} of {len(rows)} splits match their cards (counts, characters, means, sha256)")
    return 2 if any(row["verdict"] != "OK" for row in rows) else 0


def _present(catalogue: Catalogue, folder: Path | None) -> list[str]:
    """The tasks whose data are on this machine: in the package, or some of their files in the data folder."""
    found = []
    for name in catalogue.paths("tasks"):
        card = catalogue.task(name)
        if card.package is not None or any(
            path.is_file() for s in card.splits for path in local_files(card, s, folder)
        ):
            found.append(name)
    return found


def local_files(card: TaskCard, split: str, folder: Path | None) -> list[Path]:
    """Where a split's files lie, or would, in the data folder."""
    place = place_of(card.local, folder) if card.local is not None else None
    if card.local is None or place is None:
        return []
    return [place / file.path for file in card.local.files.get(split, [])]


def _verified(task: Task, split: str) -> dict[str, Any]:
    row: dict[str, Any] = {"task": task.name, "split": split, "rows": "", "characters": "", "mean": ""}
    missing = [path for path in local_files(task.card, split, task.data) if not path.is_file()]
    if missing and any(path.is_file() for s in task.card.splits for path in local_files(task.card, s, task.data)):
        # The Hub may have it; a folder that has lost a file is to be told of it.
        return {**row, "verdict": f"{missing[0]}: is missing"}
    try:
        loaded = task.loaded(split)
    except StsbenchError as error:
        return {**row, "verdict": one_line(error)}
    read, verdict = loaded.split, "; ".join(loaded.differences) or "OK"
    row |= {"rows": read.n, "characters": " + ".join(map(str, characters(read))), "verdict": verdict}
    if isinstance(read, PairSplit):
        row["mean"] = f"{np.mean(read.gold):.6f}"
    return row


def convert_coco_command(options: ConvertCocoOptions) -> None:
    """Convert the published COCO pickles into the files that the task ``coco`` reads."""
    from stsbench.data.coco import convert_coco

    for made in convert_coco(options.source, options.target):
        say(f"{made.split}: {made.images} images, {made.captions} captions")


def make_command(options: MakeOptions) -> None:
    """Make a corpus that is not published as a file."""
    from stsbench.data.corpora.making import make_corpus

    folder = options.corpora or settings.corpora_folder()
    if folder is None:
        raise SourceError("data make: give --corpora DIR (or set STSBENCH_CORPORA): the folder for the file")
    with shown_progress("files read") as told:
        path, rows = make_corpus(
            options.name,
            corpora=folder,
            catalogue=Catalogue(options.cards),
            open_tokenizer=_open_tokenizer,
            progress=told,
        )
    say(f"{path}: {rows:,} rows")


def _open_tokenizer(model: str, *, revision: str) -> CountsTokens:
    # Imports torch, which few corpora need.
    from stsbench.encoders.transformer.token_counts import TokenCounter

    return TokenCounter(model, revision=revision)
