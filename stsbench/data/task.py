"""A task's splits, each from the first source that has it: a local folder, the Hub, the package."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import msgspec

from stsbench.core import settings
from stsbench.core.cards import (
    FileSection,
    FileSource,
    HubSource,
    SplitSection,
    Suite,
    TaskCard,
    task_digest,
)
from stsbench.core.catalogue import CATALOGUE, Catalogue
from stsbench.core.errors import (
    CardError,
    DataError,
    Remedy,
    SourceError,
    StsbenchError,
    UnknownName,
)
from stsbench.core.names import split_names
from stsbench.core.parameters import NAME, NAMES, PATH, call_with_params, validate_arguments
from stsbench.core.wording import as_one_line
from stsbench.data.readers.registry import READERS
from stsbench.data.readers.table import DataFile
from stsbench.data.splits import (
    LabelledPairSplit,
    PairSplit,
    Split,
    check_file,
    check_lines,
    check_split,
    describe_hash_mismatch,
)
from stsbench.data.task_names import find_task_or_suite_ids, known_names

PACKAGE_DATA = Path(__file__).parent / "embedded"
"""The folder of data sets that ship with the package."""


@dataclass(frozen=True, kw_only=True)
class LoadedSplit:
    """A split that was checked against its card, and its source."""

    split: Split
    source: Literal["local", "hub", "package"]
    revision: str | None = None
    """The commit on the Hub; None for files of a folder or of the package."""
    differences: tuple[str, ...] = ()
    """Files of another edition than the card's, one sentence each."""
    revision_note: str = ""
    """The commit of a revision that may move, and how to pin it; empty if the card pins one."""

    @property
    def notes(self) -> list[str]:
        """What a reader of a score must know of the data, one sentence each."""
        return [*self.differences, *filter(None, [self.revision_note])]


def load_split(task: str, card: TaskCard, split: str, *, data: Path | None) -> LoadedSplit:
    """Load one split of a task from the first source that has it, checked against its card.

    The sources are the package, the card's local files and the Hub, in this order.

    Args:
        task: The task's id, for messages.
        card: The task's card: what its splits are, and where its files are.
        split: The name of the split.
        data: The user's data folder; None if there is none.

    Returns:
        The split, its source, and notes for readers of a score. There is a note if the card does
        not pin the commit that was read from the Hub.

    Raises:
        UnknownName: The task has no such split.
        SourceError: No source has the split.
        DataError: The data are broken, or differ from the card.
    """
    check_split_name(task, card, split)
    if data is not None and not data.is_dir():
        raise SourceError(f"data folder '{data}' does not exist")
    if card.package is not None:
        split_data = _read_and_check_split(task, card, card.package, split, PACKAGE_DATA)
        return LoadedSplit(split=split_data, source="package")
    if card.local is not None and has_files(card.local, split, data):
        split_data = _read_and_check_split(task, card, card.local, split, data)
        return LoadedSplit(split=split_data, source="local")
    if card.hub is None:
        raise _missing_data_error(task, card, split, data, problem="it is local only")
    # The path of an archive with the files; empty if the dataset on the Hub has rows.
    load_from_hub = _load_from_archive if card.hub.archive else _load_from_rows
    try:
        loaded = load_from_hub(task, card, card.hub, split)
    except SourceError as error:
        problem = as_one_line(error.problem)
        raise _missing_data_error(task, card, split, data, problem, error.hint) from error
    # The revision of what was loaded is a commit; that of the card may be a branch.
    is_pinned = loaded.revision == card.hub.revision
    if loaded.revision is None or is_pinned:
        return loaded
    note = (
        f"the data are of revision '{card.hub.revision}', today commit {loaded.revision:.12}; "
        f'revision = "{loaded.revision}" in the card keeps it'
    )
    return replace(loaded, revision_note=note)


class SourceFile(NamedTuple):
    """A file of a split, and its section in the card."""

    path: Path
    section: FileSection


def source_folder(source: FileSource, data: Path | None) -> Path | None:
    """Return the folder of a task's files.

    Args:
        source: The files in the card; its folder is absolute, or begins at the data folder.
        data: The user's data folder; None if there is none.

    Returns:
        The folder; None if it is within the data folder, and the user has none.
    """
    if Path(source.folder).is_absolute():
        return Path(source.folder)
    return None if data is None else data / source.folder


def source_files(source: FileSource | None, split: str, data: Path | None) -> list[SourceFile]:
    """Return the files of a split with what the card says of each; they need not exist.

    Args:
        source: The files in a task's card; None if it has none.
        split: The name of the split.
        data: The user's data folder; None if there is none.

    Returns:
        Path and section of the card; empty if the card has no files, or if they are within the data
        folder and the user has none.
    """
    if source is None:
        return []
    folder = source_folder(source, data)
    if folder is None:
        return []
    return [SourceFile(folder / section.path, section) for section in source.files.get(split, [])]


def has_files(source: FileSource | None, split: str, data: Path | None) -> bool:
    """Return whether a split has files and each of them exists.

    Args:
        source: The files in a task's card; None if it has none, and then the answer is no.
        split: The name of the split.
        data: The user's data folder; None if there is none.
    """
    files = source_files(source, split, data)
    return bool(files) and all(file.path.is_file() for file in files)


def check_split_name(task: str, card: TaskCard, split: str) -> None:
    """Raise UnknownName if a task, given by its id and its card, has no split of a name."""
    if split not in card.splits:
        raise UnknownName(
            f"split of {task}", split, card.splits, hint=f"has {', '.join(card.splits)}"
        )


def is_available_locally(card: TaskCard, data: Path | None) -> bool:
    """Return whether a task's scored split can be read without a network.

    Args:
        card: The task's card. ``package`` is the task's files that stsbench ships, ``local`` those
            in the data folder; each is None if there are none.
        data: The user's data folder; None if there is none.
    """
    return card.package is not None or has_files(card.local, card.score_split, data)


def _missing_data_error(
    task: str, card: TaskCard, split: str, data: Path | None, problem: str, hint: str = ""
) -> SourceError:
    """Return the error to raise if no source has a split; it names every way to provide the data.

    Args:
        task: The task's id.
        card: The task's card.
        split: The name of the split.
        data: The user's data folder; None if there is none.
        problem: Why the data cannot be had from the Hub.
        hint: What to do about that; empty if there is nothing to do.
    """
    files_hint = _missing_files_hint(card.local, split, data) if card.local else ""
    hints = [hint, files_hint, "the quickstart suite needs neither data nor network"]
    return SourceError(
        f"no data for {task} ({split}): {problem}", hint="; ".join(filter(None, hints))
    )


def _missing_files_hint(source: FileSource, split: str, data: Path | None) -> str:
    """Return text that says where to put the files of a split that are missing.

    It is empty if all files exist.

    Args:
        source: The files in the card; their folder is absolute, or begins at the data folder.
        split: The name of the split.
        data: The user's data folder; None if there is none.
    """
    # None if the files are within the data folder, and there is none.
    folder = source_folder(source, data)
    names = [section.path for section in source.files.get(split, [])]
    missing_names = [name for name in names if folder is None or not (folder / name).is_file()]
    if not missing_names:
        return ""
    n_more = len(missing_names) - 1
    more = f" and {n_more} more" if n_more else ""
    needed_folder = folder or f"DIR/{source.folder}"
    path_text = f"{needed_folder}/{missing_names[0]}{more}"
    if Path(source.folder).is_absolute():
        return f"there is no file {path_text}; put it there, or change 'folder' in the card"
    return f"pass `data=DIR` (or set STSBENCH_DATA) with {path_text}"


def _read_and_check_split(
    task: str, card: TaskCard, source: FileSource, split: str, data: Path | None
) -> Split:
    """Read a split from its files, and check it by the card.

    Checked are its items, and the number of lines and the hash of each file.

    Args:
        task: The task's id, for messages.
        card: The task's card.
        source: The files in the card: those of the package, or the user's.
        split: The name of the split.
        data: The folder that the source's folder is in; None if the latter is absolute.

    Raises:
        DataError: The files are broken, or differ from the card.
    """
    split_data = _read_files(task, source, split, data)
    where = f"{task} ({split}) in {source_folder(source, data)}"
    check_split(split_data, card.splits[split], gold_range=card.gold_range, where=where)
    # Files, with hashes, come last: another problem says more to the user than that bytes differ.
    for path, file_section in source_files(source, split, data):
        check_file(path, file_section)
    return split_data


def _read_files(task: str, source: FileSource, split: str, data: Path | None) -> Split:
    """Read a split from its files with the reader that the card names.

    Args:
        task: The task's id, for messages.
        source: The files in the card, the name of a reader (a function that reads them), and the
            parameters for it.
        split: The name of the split; a reader with a parameter ``split`` gets it.
        data: The folder that the source's folder is in; None if the latter is absolute.

    Raises:
        CardError: The card names no files for the split, or a parameter that the reader lacks.
        UnknownName: There is no such reader.
        DataError: A file is broken.
    """
    files = [
        DataFile(
            path=path,
            subset=file_section.subset,
            label=file_section.label,
            # A reader accepts irregularities of a file that the card pins: the release has them.
            pinned=bool(file_section.sha256),
        )
        for path, file_section in source_files(source, split, data)
    ]
    if not files:
        raise CardError(f"task {task}: no files for split '{split}'")
    # Imports the function of this name.
    reader = READERS.load(source.reader)
    arguments: dict[str, Any] = {"files": files, **source.params}
    # Some formats hold all splits in one file.
    if "split" in inspect.signature(reader).parameters:
        arguments["split"] = split
    split_data: Split = call_with_params(reader, arguments, where=f"task {task}: [params]")
    return split_data


def _load_from_archive(task: str, card: TaskCard, hub: HubSource, split: str) -> LoadedSplit:
    """Load a split from the files in an archive (a tar file) on the Hub.

    The archive has the Hub's own hash, so its files are not damaged. A file with another sha256
    than the card says is then another edition of the data. It is accepted, with a note, if the
    split has the numbers of items and characters, and the mean score or the classes, that the card
    says.

    Args:
        task: The task's id, for messages.
        card: The task's card; its local files are those that are in the archive.
        hub: The section of the card on the Hub.
        split: The name of the split.

    Raises:
        CardError: The card does not describe the files in the archive.
        SourceError: The archive cannot be fetched, or lacks a file.
        DataError: The data differ from a fact of the card.
    """
    from stsbench.data.hub.rows import fetch_archive

    source = _archive_source(task, card.local, hub)
    # The folder in the cache that has the contents of the archive.
    unpacked_folder, commit = fetch_archive(hub)
    where = f"{task} ({split}) in {hub.archive} of the Hub's {hub.repo}"
    files = source_files(source, split, unpacked_folder)
    for path, _ in files:
        if not path.is_file():
            raise SourceError(f"{where}: there is no file {path.relative_to(unpacked_folder)}")
    split_data = _read_files(task, source, split, data=unpacked_folder)
    section = card.splits[split]
    check_split(split_data, section, gold_range=card.gold_range, where=where)
    # Whether the card says enough of the split, without the hashes of its files.
    is_identified = _identifies_split(section, split_data)
    for path, file_section in files:
        check_lines(path, file_section)
        if not is_identified:
            check_file(path, file_section)
    facts = f"counts, characters and {'mean' if section.mean is not None else 'classes'} fit"
    # Notes for readers of scores.
    differences = []
    for path, file_section in files:
        mismatch = describe_hash_mismatch(path, file_section.sha256)
        if mismatch:
            differences.append(f"{path.name} in {hub.archive} {mismatch}; {facts}")
    return LoadedSplit(
        split=split_data, source="hub", revision=commit, differences=tuple(differences)
    )


def _archive_source(task: str, local: FileSource | None, hub: HubSource) -> FileSource:
    """Return where a task's local files are within an archive on the Hub.

    The archive has a folder of the release and all in it. The folder of the files is made relative
    to that folder: ``downstream/STS/STS12`` is ``STS12`` in an archive of ``downstream/STS``.

    Args:
        task: The task's id, for messages.
        local: The files in the card; their folder begins at the user's data folder.
        hub: The section of the card on the Hub; ``archive_folder`` is the folder that the archive
            has.

    Returns:
        The same files, with their folder within the archive.

    Raises:
        CardError: The card has no local files, or their folder is not below the archive's.
    """
    if local is None:
        raise CardError(f"task {task}: [hub] archive needs [local] to describe its files")
    folder = PurePosixPath(local.folder)
    if not folder.is_relative_to(hub.archive_folder):
        raise CardError(
            f"task {task}: [hub] archive_folder '{hub.archive_folder}' is not a parent of "
            f"[local] folder '{local.folder}'"
        )
    return msgspec.structs.replace(local, folder=folder.relative_to(hub.archive_folder).as_posix())


def _identifies_split(section: SplitSection, split_data: Split) -> bool:
    """Return whether a card says enough of a split to identify it without the hashes of its files.

    It must have the number of characters; and the mean score of pairs with gold scores, or else the
    number of rows of each class.

    Args:
        section: What the card says of the split: the number of ``characters`` in each column, the
            ``mean`` gold score, and by class the number of rows, ``labels``. None or empty if the
            card does not say it.
        split_data: The split.
    """
    if not section.characters:
        return False
    if isinstance(split_data, PairSplit):
        return section.mean is not None
    return bool(section.labels)


def _load_from_rows(task: str, card: TaskCard, hub: HubSource, split: str) -> LoadedSplit:
    """Load a split from the rows of a dataset on the Hub.

    The dataset may lack the subsets of pairs, and the rows do not have the pairs without a gold
    score (ungraded), which the files of some releases have. The split says that it lacks them.

    Args:
        task: The task's id, for messages.
        card: The task's card. Of a split it has ``subsets``, the number of pairs by subset, and
            ``ungraded``, the number of pairs without a gold score.
        hub: The section of the card on the Hub; ``splits`` are the Hub's names of splits by ours.
        split: The name of the split.

    Raises:
        SourceError: The dataset has no such split, or it cannot be fetched or read.
        DataError: The rows are not valid, or differ from a fact of the card.
    """
    from stsbench.data.hub.rows import fetch_rows

    if split not in hub.splits:
        raise SourceError(f"the Hub's {hub.repo} has no split for it")
    split_data, commit = fetch_rows(hub, split)
    section = card.splits[split]
    if isinstance(split_data, PairSplit):
        # The subset of each pair is an empty text if the dataset has none.
        split_data = replace(
            split_data,
            subsets_known=not section.subsets or any(split_data.subset),
            ungraded_known=not section.ungraded,
        )
    where = f"{task} ({split}) from the Hub's {hub.repo}"
    check_split(split_data, section, gold_range=card.gold_range, where=where)
    return LoadedSplit(split=split_data, source="hub", revision=commit)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A dataset with its card and its data folder, made by :func:`load_task`."""

    name: str
    card: TaskCard
    card_digest: str
    data: Path | None = None
    _loaded: dict[str, LoadedSplit] = field(default_factory=dict, repr=False, compare=False)

    def loaded_split(self, split: str) -> LoadedSplit:
        """Return one split with its source; it is read once. Errors are those of load_split."""
        if split not in self._loaded:
            self._loaded[split] = load_split(self.name, self.card, split, data=self.data)
        return self._loaded[split]

    @validate_arguments(split=NAME)
    def load(self, split: str = "test") -> Split:
        """Return one split, checked against the task's card; it is read once.

        Args:
            split: The name of the split.

        Raises:
            UnknownName: The task has no such split.
            DataError: It is broken, or differs from the card; a SourceError, which is a DataError,
                if no source has it.
        """
        return self.loaded_split(split).split

    def ungraded_sentences(self, split: str) -> Sequence[str]:
        """Return the sentences of pairs that were released without a gold score (ungraded pairs).

        The two of a pair follow each other. The sequence is empty if the release has no such pairs,
        or if the split has no gold scores at all.

        Args:
            split: The name of the split.

        Raises:
            DataError: The release has such pairs, and the source that was read lacks them.
        """
        loaded = self.loaded_split(split)
        if not isinstance(loaded.split, PairSplit):
            return ()
        if not loaded.split.ungraded_known:
            raise DataError(
                f"{self.name} ({split}): the source that was read ({loaded.source}) lacks the "
                f"{self.card.splits[split].ungraded:,} pairs without a gold score, which are "
                "needed; pass `data=DIR` with the files of the release"
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
        """Return all sentences of some splits, each once, in the order of their first occurrence.

        Args:
            splits: The name of a split, or several; by default all splits of the task.
            with_ungraded: Also return the sentences of pairs that were released without a gold
                score, on which ConSERT and others train.
            repeated: Return each sentence as often as it occurs, the two of a pair one after the
                other. BERT-whitening is fitted on these.

        Raises:
            DataError: The data cannot be read, or the source lacks the pairs without a gold score.
        """
        names = self.card.splits if splits is None else splits
        texts: list[str] = []
        for name in [names] if isinstance(names, str) else names:
            split = self.load(name)
            if repeated and isinstance(split, PairSplit | LabelledPairSplit):
                pairs = zip(split.sentences1, split.sentences2, strict=True)
                texts += chain.from_iterable(pairs)
            else:
                # All of them, those of a pair in two blocks: first sentences, then second ones.
                texts += split.texts()
            if with_ungraded:
                texts += self.ungraded_sentences(name)
        return texts if repeated else list(dict.fromkeys(texts))


@validate_arguments(name=NAME, data=PATH, catalogue=CATALOGUE)
def load_task(
    name: str, *, data: Path | str | None = None, catalogue: Catalogue | None = None
) -> Task:
    """Return the task of this name; its data are read at their first use.

    Args:
        name: The id of the task, its title, or MTEB's name of it; upper and lower case are the
            same.
        data: A local data folder; by default the one in ``STSBENCH_DATA``, if that is set.
        catalogue: The cards of tasks and suites; by default those of the project.

    Raises:
        UnknownName: There is no such task, or the name stands for several; the message offers the
            nearest.
    """
    catalogue = catalogue or Catalogue()
    task_id = find_task_id(name, catalogue)
    card = catalogue.task(task_id)
    data_folder = Path(data) if data is not None else settings.data_folder()
    return Task(name=task_id, card=card, card_digest=task_digest(card), data=data_folder)


def find_task_id(name: str, catalogue: Catalogue) -> str:
    """Return the id of the only task that a name stands for.

    Args:
        name: The id of the task, its title, or MTEB's name of it; upper and lower case are the
            same.
        catalogue: The cards of tasks and suites.

    Raises:
        UnknownName: There is no such task, or the name stands for several, as that of a suite does.
    """
    # Ids of tasks, or of one suite, which stands for its tasks.
    ids = find_task_or_suite_ids(name, catalogue)
    task_ids = expand_names(ids, catalogue) if ids else []
    if len(task_ids) == 1:
        return task_ids[0]
    n_tasks = len(task_ids)
    raise UnknownName(
        "task",
        name,
        task_ids or known_names(catalogue),
        hint=f"it is {n_tasks} tasks; choose one: {', '.join(task_ids)}" if task_ids else "",
        remedy=Remedy("list", {"kind": "tasks"}),
    )


def expand_names(names: str | Sequence[str], catalogue: Catalogue) -> list[str]:
    """Return the ids of all tasks that comma lists name, each once, in order.

    A suite in the list stands for all its tasks.

    Args:
        names: A comma list of tasks and suites, or several; each by its id, its title or MTEB's
            name.
        catalogue: The cards of tasks and suites.

    Raises:
        UnknownName: A name is of no task or suite, or a suite has a task without a card.
        StsbenchError: No task is named.
    """
    comma_lists = [names] if isinstance(names, str) else names
    suites = catalogue.suites()
    all_tasks = catalogue.paths("tasks")
    expanded: list[str] = []
    for name in chain.from_iterable(map(split_names, comma_lists)):
        # Ids of tasks, or of one suite.
        ids = find_task_or_suite_ids(name, catalogue)
        if not ids:
            raise UnknownName(
                "task or suite",
                name,
                known_names(catalogue),
                hint="cards of your own need `catalogue=stsbench.Catalogue(DIR)`",
                remedy=Remedy("list", {"kind": "tasks"}),
            )
        if ids[0] not in suites:
            expanded += ids
            continue
        suite_tasks = suites[ids[0]].tasks
        for task in suite_tasks:
            if task not in all_tasks:
                raise UnknownName(f"task in suite {name}:", task, all_tasks)
        expanded += suite_tasks
    if not expanded:
        raise StsbenchError(
            "no task is named; give tasks or suites, such as sts12,stsb or quickstart"
        )
    return list(dict.fromkeys(expanded))


AVAILABLE = "available"
"""The name that stands for all tasks whose data are on this machine."""
DEFAULT_SUITE = "sts"
"""The suite on which an encoder is scored, and whose boards are made, if none is named."""
QUICKSTART_SUITE = "quickstart"
"""The suite whose data come with stsbench."""


def list_available(catalogue: Catalogue, data: Path | None) -> list[str]:
    """Return the ids of the tasks whose scored split can be read without a network, in order.

    Args:
        catalogue: The cards of tasks and suites.
        data: The user's data folder; None for that of ``STSBENCH_DATA``, if it is set.
    """
    folder = data or settings.data_folder()
    return [
        name
        for name in tasks_in_order(catalogue)
        if is_available_locally(catalogue.task(name), folder)
    ]


def tasks_in_order(catalogue: Catalogue) -> list[str]:
    """Return the ids of all tasks in the order of boards: by suites, then those without a suite."""
    suite_tasks = chain.from_iterable(suite.tasks for suite in catalogue.suites().values())
    return list(dict.fromkeys([*suite_tasks, *catalogue.paths("tasks")]))


def suites_within(tasks: Sequence[str], catalogue: Catalogue) -> dict[str, Suite]:
    """Return the suites by id whose tasks are all among these, so that they have an average."""
    return {
        name: suite for name, suite in catalogue.suites().items() if set(suite.tasks) <= set(tasks)
    }
