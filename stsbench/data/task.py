"""Where a split comes from: a local folder, then the Hub, then the package itself."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec

from stsbench.core import settings
from stsbench.core.cards import FileSection, FileSource, HubSource, Suite, TaskCard, task_digest
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, SourceError, StsbenchError, UnknownName
from stsbench.core.names import split_names
from stsbench.core.parameters import NAME, NAMES, PATH, call_with_params, validate_arguments
from stsbench.core.wording import join_lines
from stsbench.data.readers.files import DataFile
from stsbench.data.readers.registry import READERS
from stsbench.data.splits import (
    LabelledPairSplit,
    PairSplit,
    Split,
    check_file,
    check_lines,
    check_split,
    difference,
)

PACKAGED = Path(__file__).parent / "embedded"
"""The folder of data sets that ship with the package."""


@dataclass(frozen=True, kw_only=True)
class LoadedSplit:
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


def load_split(task: str, card: TaskCard, split: str, *, data: Path | None) -> LoadedSplit:
    """Load one split of a task from the first source that has it; raises UnknownName or SourceError or DataError."""
    if split not in card.splits:
        raise UnknownName(
            f"split of {task}", split, card.splits, hint=f"has {', '.join(card.splits)}"
        )
    if data is not None and not data.is_dir():
        raise SourceError(f"data folder '{data}' does not exist")
    if card.package is not None:
        return LoadedSplit(
            split=_from_files(task, card, card.package, split, PACKAGED), source="package"
        )
    if card.local is not None and has_files(card.local, split, data):
        return LoadedSplit(split=_from_files(task, card, card.local, split, data), source="local")
    if card.hub is None:
        raise _nowhere(task, card, split, data, "it is local only")
    hub, fetch = card.hub, _from_archive if card.hub.archive else _from_rows
    try:
        loaded = fetch(task, card, hub, split)
    except SourceError as error:
        raise _nowhere(task, card, split, data, join_lines(error.problem), error.hint) from error
    if loaded.revision in (None, hub.revision):
        return loaded
    today = f"the data are of revision '{hub.revision}', today commit {loaded.revision:.12}"
    return replace(
        loaded, open_revision=f'{today}; revision = "{loaded.revision}" in the card keeps it'
    )


def locate(source: FileSource, data: Path | None) -> Path | None:
    """The folder of a source's files: below the data folder, or where its card says; None where there is no data folder."""
    if Path(source.folder).is_absolute():
        return Path(source.folder)
    return None if data is None else data / source.folder


def has_files(source: FileSource | None, split: str, data: Path | None) -> bool:
    """Whether every file of a split is there."""
    if source is None or locate(source, data) is None:
        return False
    return all(path.is_file() for path, _ in files_of(source, split, data))


def is_at_hand(card: TaskCard, data: Path | None) -> bool:
    """Whether a task's scored split can be read without a network."""
    return card.package is not None or has_files(card.local, card.score_split, data)


def _nowhere(
    task: str, card: TaskCard, split: str, data: Path | None, why: str, todo: str = ""
) -> SourceError:
    todos = [todo] if todo else []
    if (source := card.local) is not None:
        place = locate(source, data)
        names = [file.path for file in source.files.get(split, [])]
        missing = [name for name in names if place is None or not (place / name).is_file()]
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        if missing and Path(source.folder).is_absolute():
            todos += [
                f"there is no file {place}/{missing[0]}{more}; put it there, or change 'folder' in the card"
            ]
        elif missing:
            where = f"{place or f'DIR/{source.folder}'}/{missing[0]}{more}"
            todos += [f"pass --data DIR (or set STSBENCH_DATA) with {where}"]
    todos += ["'stsbench run' alone needs neither data nor network"]
    return SourceError(f"no data for {task} ({split}): {why}", hint="; ".join(todos))


def _from_files(
    task: str, card: TaskCard, source: FileSource, split: str, root: Path | None
) -> Split:
    """Read a split of files whose bytes must be those that the card names."""
    read = _read(task, card, source, split, root)
    where = f"{task} ({split}) in {locate(source, root)}"
    check_split(read, card.splits[split], gold_range=card.gold_range, where=where)
    # Hashes come last: what a reader finds wrong says more than "the bytes differ".
    for path, fact in files_of(source, split, root):
        check_file(path, fact)
    return read


def files_of(
    source: FileSource | None, split: str, root: Path | None
) -> list[tuple[Path, FileSection]]:
    """The files of a split and what the card says of each; none where there is no source or no data folder."""
    place = source and locate(source, root)
    return (
        [(place / fact.path, fact) for fact in source.files.get(split, [])]
        if source and place
        else []
    )


def _read(task: str, card: TaskCard, source: FileSource, split: str, root: Path | None) -> Split:
    files = [
        DataFile(path=path, subset=fact.subset, label=fact.label, pinned=bool(fact.sha256))
        for path, fact in files_of(source, split, root)
    ]
    if not files:
        raise CardError(f"task {task}: no files for split '{split}'")
    reader = READERS.load(source.reader)
    params: dict[str, Any] = dict(source.params)
    if "split" in inspect.signature(reader).parameters:
        params["split"] = split
    read: Split = call_with_params(
        reader, {"files": files, **params}, where=f"task {task}: [params]"
    )
    return read


def _from_archive(task: str, card: TaskCard, hub: HubSource, split: str) -> LoadedSplit:
    """Read a split of the files in an archive, whose bytes its commit and the Hub's own hash vouch for.

    A file that is not the one the card names is then another edition: where all facts fit, the score is made, and says so.
    """
    from stsbench.data.hub.rows import fetch_archive

    # The local files as they lie in the archive.
    if card.local is None:
        raise CardError(f"task {task}: [hub] archive needs [local] to say what is in it")
    folder, top = card.local.folder, hub.archive_folder
    if not PurePosixPath(folder).is_relative_to(top):
        raise CardError(
            f"task {task}: [hub] archive_folder '{top}' is not a parent of [local] folder '{folder}'"
        )
    source = msgspec.structs.replace(
        card.local, folder=PurePosixPath(folder).relative_to(top).as_posix()
    )
    root, commit = fetch_archive(hub)
    where = f"{task} ({split}) in {hub.archive} of the Hub's {hub.repo}"
    files = files_of(source, split, root)
    if missing := [path for path, _ in files if not path.is_file()]:
        raise SourceError(f"{where}: there is no file {missing[0].relative_to(root)}")
    read, facts = _read(task, card, source, split, root), card.splits[split]
    check_split(read, facts, gold_range=card.gold_range, where=where)
    for path, fact in files:
        check_lines(path, fact)
        # A card may tell a split without its files' hashes: by characters, and mean score or rows a class.
        if not (
            facts.characters
            and (facts.mean is not None if isinstance(read, PairSplit) else facts.labels)
        ):
            check_file(path, fact)
    fits = f"counts, characters and {'mean' if facts.mean is not None else 'classes'} fit"
    found = ((path.name, difference(path, fact.sha256)) for path, fact in files)
    differences = tuple(f"{name} in {hub.archive} {how}; {fits}" for name, how in found if how)
    return LoadedSplit(split=read, source="hub", revision=commit, differences=differences)


def _from_rows(task: str, card: TaskCard, hub: HubSource, split: str) -> LoadedSplit:
    """Read a split in rows: graded pairs may lack subsets, and what no row can be, pairs without a score."""
    from stsbench.data.hub.rows import fetch_rows

    if split not in hub.splits:
        raise SourceError(f"the Hub's {hub.repo} has no split for it")
    read, commit = fetch_rows(hub, split)
    facts = card.splits[split]
    if isinstance(read, PairSplit):
        subsets_known = not facts.subsets or any(read.subset)
        read = replace(read, subsets_known=subsets_known, ungraded_known=not facts.ungraded)
    check_split(
        read, facts, gold_range=card.gold_range, where=f"{task} ({split}) from the Hub's {hub.repo}"
    )
    return LoadedSplit(split=read, source="hub", revision=commit)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A dataset with the way it is scored, made by :func:`load_task`."""

    name: str
    card: TaskCard
    card_digest: str
    data: Path | None = None
    _loaded: dict[str, LoadedSplit] = field(default_factory=dict, repr=False, compare=False)

    def loaded(self, split: str) -> LoadedSplit:
        """One split with its provenance; read once, then kept."""
        if split not in self._loaded:
            self._loaded[split] = load_split(self.name, self.card, split, data=self.data)
        return self._loaded[split]

    @validate_arguments(split=NAME)
    def load(self, split: str = "test") -> Split:
        """One split, checked against the card; raises DataError."""
        return self.loaded(split).split

    def ungraded(self, split: str) -> Sequence[str]:
        """The sentences of a split's pairs that the release carries without a gold score; raises DataError."""
        loaded = self.loaded(split)
        if not isinstance(loaded.split, PairSplit):
            return ()
        if not loaded.split.ungraded_known:
            raise DataError(
                f"{self.name} ({split}): the source that was read ({loaded.source}) leaves out the "
                f"{self.card.splits[split].ungraded:,} pairs without a gold score, which are needed; "
                "pass --data DIR with the files of the release"
            )
        return loaded.split.ungraded

    @validate_arguments(splits=NAMES)
    def texts(
        self,
        splits: str | Sequence[str] | None = None,
        *,
        with_ungraded: bool = False,
        repeated: bool = False,
    ) -> list[str]:
        """All sentences of some splits, or of one (default: all), each once, in the order met.

        ``with_ungraded``: also those of pairs released without a gold score, which ConSERT and others train on; an error
        where the source leaves them out. ``repeated``: each as often as it occurs, the two of a pair one after the
        other, as BERT-whitening is fitted.
        """
        texts: list[str] = []
        for name in (
            [splits]
            if isinstance(splits, str)
            else list(self.card.splits)
            if splits is None
            else splits
        ):
            split = self.load(name)
            if repeated and isinstance(split, PairSplit | LabelledPairSplit):
                texts += [
                    text
                    for pair in zip(split.sentences1, split.sentences2, strict=True)
                    for text in pair
                ]
            else:
                texts += split.texts()
            if with_ungraded:
                texts += self.ungraded(name)
        return texts if repeated else list(dict.fromkeys(texts))


@validate_arguments(name=NAME, data=PATH, catalogue=Catalogue)
def load_task(
    name: str, *, data: Path | str | None = None, catalogue: Catalogue | None = None
) -> Task:
    """Return the task of this id; its data are read when first asked for.

    ``data`` is a local data folder; without it ``STSBENCH_DATA`` is used where it is set. Raises UnknownName: no such
    task; offers the nearest.
    """
    catalogue = catalogue or Catalogue()
    card = catalogue.task(name)
    folder = Path(data) if data is not None else settings.data_folder()
    return Task(name=name, card=card, card_digest=task_digest(card), data=folder)


def expand_names(names: str | Sequence[str], catalogue: Catalogue) -> list[str]:
    """Turn comma lists of tasks and suites into task ids, each once, in order; raises UnknownName or StsbenchError."""
    parts = [
        part
        for name in ([names] if isinstance(names, str) else names)
        for part in split_names(name)
    ]
    suites, tasks = catalogue.suites(), catalogue.paths("tasks")
    found: dict[str, None] = {}
    for part in parts:
        if part in suites:
            for task in suites[part].tasks:
                if task not in tasks:
                    raise UnknownName(f"task in suite {part}:", task, tasks)
            found.update(dict.fromkeys(suites[part].tasks))
        elif part in tasks:
            found[part] = None
        else:
            known = [*suites, *tasks]
            hint = "'stsbench list tasks' and 'list suites' show them; cards of your own need --cards DIR"
            raise UnknownName("task or suite", part, known, hint=hint)
    if not found:
        raise StsbenchError(
            "no task is named; give tasks or suites, such as sts12,stsb or quickstart"
        )
    return list(found)


def tasks_in_order(catalogue: Catalogue) -> list[str]:
    """All tasks as boards have them: by suites, and then those of none."""
    of_suites = (task for suite in catalogue.suites().values() for task in suite.tasks)
    return list(dict.fromkeys([*of_suites, *catalogue.paths("tasks")]))


def suites_within(tasks: Sequence[str], catalogue: Catalogue) -> dict[str, Suite]:
    """The suites whose every task is among these: those whose average can be printed."""
    return {
        name: suite for name, suite in catalogue.suites().items() if set(suite.tasks) <= set(tasks)
    }
