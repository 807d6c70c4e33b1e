"""Where a split comes from: a local folder, then the Hub, then the package itself."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from stsbench.cards.facts import FileFacts, FileSource, HubSource, TaskCard
from stsbench.data.readers import READERS
from stsbench.data.readers.text import DataFile
from stsbench.data.splits import PairSplit, Split
from stsbench.data.verify import check_file, check_lines, check_split, difference, is_told_well
from stsbench.errors import CardError, SourceError, UnknownName, one_line
from stsbench.registry.names import call_with_params

PACKAGED = Path(__file__).parent / "embedded"
"""The folder of data sets that ship with the package."""
USE_THE_RELEASE = "use the files of the release (--data DIR)"
"""What is left to do where fetching again would bring the same."""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A split, checked against its card, and where it came from."""

    split: Split
    source: Literal["local", "hub", "package"]
    revision: str | None = None
    differences: tuple[str, ...] = ()
    """Files that are another edition than the card names, one sentence each."""
    open_revision: str = ""
    """Which commit an open revision was, and the line that keeps it."""

    @property
    def notes(self) -> list[str]:
        """What a reader of a score must know of the data, one sentence each."""
        return [*self.differences, *filter(None, [self.open_revision])]


def load_split(task: str, card: TaskCard, split: str, *, data: Path | None) -> Loaded:
    """Load one split of a task from the first source that has it.

    Raises:
        UnknownName: the task has no such split.
        SourceError: no source has it; says what was tried and what to do.
        DataError: a source has it, but not as the card says.
    """
    if split not in card.splits:
        raise UnknownName(f"split of {task}", split, card.splits, hint=f"has {', '.join(card.splits)}")
    if data is not None and not data.is_dir():
        raise SourceError(f"data folder '{data}' does not exist")
    if card.package is not None:
        return Loaded(split=_from_files(task, card, card.package, split, PACKAGED), source="package")
    if card.local is not None and holds(card.local, split, data):
        return Loaded(split=_from_files(task, card, card.local, split, data), source="local")
    if card.hub is None:
        raise _nowhere(task, card, split, data, "it is local only")
    try:
        return _from_hub(task, card, card.hub, split)
    except SourceError as error:
        raise _nowhere(task, card, split, data, one_line(error.problem), error.hint) from error


def place_of(source: FileSource, data: Path | None) -> Path | None:
    """The folder of a source's files: below the data folder, or where its card says; None where there is no data folder."""
    if Path(source.folder).is_absolute():
        return Path(source.folder)
    return None if data is None else data / source.folder


def holds(source: FileSource, split: str, data: Path | None) -> bool:
    """Whether every file of a split is there."""
    place = place_of(source, data)
    return place is not None and all((place / file.path).is_file() for file in source.files.get(split, []))


def is_at_hand(card: TaskCard, data: Path | None) -> bool:
    """Whether a task's scored split can be read without a network."""
    if card.package is not None:
        return True
    return card.local is not None and holds(card.local, card.score_split, data)


def _nowhere(task: str, card: TaskCard, split: str, data: Path | None, why: str, todo: str = "") -> SourceError:
    wanted = _missing(card.local, split, data) if card.local is not None else ""
    packaged = "'stsbench run' alone needs neither data nor network"
    return SourceError(f"no data for {task} ({split}): {why}", hint="; ".join(filter(None, [todo, wanted, packaged])))


def _missing(source: FileSource, split: str, data: Path | None) -> str:
    """Which files of a split are not there, and what to do about it."""
    place, files = place_of(source, data), [file.path for file in source.files.get(split, [])]
    missing = [path for path in files if place is None or not (place / path).is_file()]
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    if not missing:
        return ""
    if Path(source.folder).is_absolute():
        return f"there is no file {place}/{missing[0]}{more}; put it there, or change 'folder' in the card"
    return f"pass --data DIR (or set STSBENCH_DATA) with {place or f'DIR/{source.folder}'}/{missing[0]}{more}"


def _from_files(task: str, card: TaskCard, source: FileSource, split: str, root: Path | None) -> Split:
    """Read a split of files whose bytes must be those that the card names."""
    read = _read(task, card, source, split, root)
    where = f"{task} ({split}) in {place_of(source, root)}"
    check_split(read, card.splits[split], gold_range=card.gold_range, where=where)
    # Hashes come last: what a reader finds wrong says more than "the bytes differ".
    for path, fact in _files(source, split, root):
        check_file(path, fact)
    return read


def _files(source: FileSource, split: str, root: Path | None) -> list[tuple[Path, FileFacts]]:
    place = place_of(source, root)
    return [] if place is None else [(place / fact.path, fact) for fact in source.files.get(split, [])]


def _read(task: str, card: TaskCard, source: FileSource, split: str, root: Path | None) -> Split:
    files = [
        DataFile(path=path, subset=fact.subset, label=fact.label, pinned=bool(fact.sha256))
        for path, fact in _files(source, split, root)
    ]
    if not files:
        raise CardError(f"task {task}: no files for split '{split}'")
    reader = READERS.load(source.reader)
    params: dict[str, Any] = dict(source.params)
    if "split" in inspect.signature(reader).parameters:
        params["split"] = split
    read: Split = call_with_params(reader, {"files": files, **params}, where=f"task {task}: [params]")
    return read


def _from_hub(task: str, card: TaskCard, hub: HubSource, split: str) -> Loaded:
    loaded = _from_archive(task, card, hub, split) if hub.archive else _from_rows(task, card, hub, split)
    if loaded.revision in (None, hub.revision):
        return loaded
    today = f"the data are of revision '{hub.revision}', today commit {loaded.revision:.12}"
    return replace(loaded, open_revision=f'{today}; revision = "{loaded.revision}" in the card keeps it')


def _from_archive(task: str, card: TaskCard, hub: HubSource, split: str) -> Loaded:
    """Read a split of the files in an archive, whose bytes its commit and the Hub's own hash have told already.

    A file that is not the one the card names is then no damage, but another edition: where counts,
    characters and means fit all the same, the score is made, and says so.
    """
    from stsbench.data.hub import fetch_archive

    source = _inside(task, card.local, hub)
    root, commit = fetch_archive(hub, without="")
    where = f"{task} ({split}) in {hub.archive} of the Hub's {hub.repo}"
    files = _files(source, split, root)
    if missing := [path for path, _ in files if not path.is_file()]:
        raise SourceError(f"{where}: there is no file {missing[0].relative_to(root)}")
    read, facts = _read(task, card, source, split, root), card.splits[split]
    check_split(read, facts, gold_range=card.gold_range, where=where, todo=USE_THE_RELEASE)
    for path, fact in files:
        check_lines(path, fact, todo=USE_THE_RELEASE)
        if not is_told_well(read, facts):
            check_file(path, fact)
    differing = [(path, how) for path, fact in files if (how := difference(path, fact))]
    differences = [
        f"{path.name} in {hub.archive} {how}; counts, characters and {'mean' if facts.mean is not None else 'classes'} fit"
        for path, how in differing
    ]
    return Loaded(split=read, source="hub", revision=commit, differences=tuple(differences))


def _inside(task: str, local: FileSource | None, hub: HubSource) -> FileSource:
    """The local files as they lie in an archive, whose top is ``archive_folder``."""
    if local is None:
        raise CardError(f"task {task}: [hub] archive needs [local] to say what is in it")
    folder, top = PurePosixPath(local.folder), PurePosixPath(hub.archive_folder)
    if not folder.is_relative_to(top):
        raise CardError(
            f"task {task}: [hub] archive_folder '{hub.archive_folder}' is not a parent of [local] folder '{local.folder}'"
        )
    return msgspec.structs.replace(local, folder=folder.relative_to(top).as_posix())


def _from_rows(task: str, card: TaskCard, hub: HubSource, split: str) -> Loaded:
    """Read a split in rows: graded pairs may lack subsets, and what no row can be, pairs without a score."""
    from stsbench.data.hub import fetch_rows

    if split not in hub.splits:
        raise SourceError(f"the Hub's {hub.repo} has no split for it")
    read, commit = fetch_rows(hub, split, without="")
    facts = card.splits[split]
    if isinstance(read, PairSplit):
        subsets_known = not facts.subsets or any(read.subset)
        read = replace(read, subsets_known=subsets_known, ungraded_known=not facts.ungraded)
    check_split(read, facts, gold_range=card.gold_range, where=f"{task} ({split}) from the Hub's {hub.repo}")
    return Loaded(split=read, source="hub", revision=commit)
