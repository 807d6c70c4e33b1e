"""Drafts of cards for a user's own tasks, with the columns, splits and hashes of the data."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stsbench.core.cards import (
    FileSection,
    FileSource,
    HubSource,
    SplitSection,
    TaskCard,
    strip_defaults,
)
from stsbench.core.errors import CardError, DataError
from stsbench.core.files import file_sha256
from stsbench.core.names import split_names
from stsbench.core.toml import toml_tables
from stsbench.data.card_draft import UNKNOWN, CardLocation, Draft, relative_path
from stsbench.data.hub.rows import PAIR_COLUMNS, HubDataset, read_dataset
from stsbench.data.quality import DataToCheck, check_data
from stsbench.data.readers.columns import ColumnRoles, plain_name
from stsbench.data.readers.table import ColumnKey, column_position, format_names
from stsbench.data.recognition import (
    NO_SPLIT,
    SPLIT_NAMES,
    DataColumn,
    SplitTables,
    choose_roles,
    describe_omitted,
    find_tables,
    splits_in_name,
)
from stsbench.data.splits import CaptionSplit, ContrastSplit, PairSplit, Split, count_characters
from stsbench.data.task import load_split
from stsbench.data.user_tables import ScoreSettings, check_targets, describe_reading, find_languages

KEY_COMMENTS = {
    "name": "what tables print",
    "paper": "where the task is described, or 'none'",
    "license": "the licence of the data",
    "options": (
        "features of a pair: |u - v| and u * v, as SentEval has them; "
        "f1 = true adds the F1 of class 1"
    ),
    "score_split": "the split that is scored",
    "folder": "where the data are, seen from this card's folder",
    "params": "what the columns are called; the format of the files is found",
    "revision": "the commit that was read: the Hub's own hashes of its files hold the data to it",
    "splits": "what the Hub calls the splits",
    "columns": "what the columns are called, where not sentence1, sentence2 and score",
}
"""The comments above keys of the card."""
LANGUAGE_CODE = re.compile("[a-z]{2,3}")
"""The codes that ISO 639 gives languages, as cards have them."""
ROLES = ("sentence1", "sentence2", "sentence", "gold", "label")
"""The roles for which a user may give columns."""
Params = dict[str, Any]
"""The parameters of the card's reader."""
USUAL_SCALES = ((0, 1), (-1, 1), (0, 5), (0, 10), (0, 100), (0, 4), (1, 5), (1, 7), (1, 10))
"""Usual scales of similarity, likely ones first; the last four must fit at both ends."""


class _RecognisedData(NamedTuple):
    """The data of a user, and the roles of their columns."""

    dataset: HubDataset | None
    """The dataset on the Hub; None if the data are files."""
    split_tables: SplitTables
    columns: Sequence[DataColumn]
    """All columns, also those that are not read."""
    roles: ColumnRoles

    def column(self, key: ColumnKey) -> DataColumn:
        """Return the column of this key."""
        return next(column for column in self.columns if column.key == key)


class UserTask(NamedTuple):
    """A task that was recognised in a user's data."""

    card: TaskCard
    """The card, with the facts of its splits."""
    splits: dict[str, Split]
    findings: list[str]
    """What the data are, and how they were read if there was a choice, one line each."""
    doubts: list[str]
    """What is unsure in the data, one line each."""
    doubt_by_key: dict[str, str]
    """What is unsure in keys of the card."""

    def data_to_check(self, min_similarity: float | None = None) -> DataToCheck:
        """Return the splits in the form that checks of their quality need.

        Args:
            min_similarity: The lowest similarity of near-duplicates; None to find none.
        """
        # ``doubt_by_key`` has the languages if they are only assumed: texts in another one are then
        # no mistake.
        languages = () if "languages" in self.doubt_by_key else self.card.languages
        return DataToCheck(
            splits=self.splits,
            score_split=self.card.score_split,
            languages=languages,
            min_similarity=min_similarity,
        )


def recognise_task(
    source: Path | HubSource,
    name: str,
    *,
    columns: Mapping[str, str],
    labels: bool = False,
    scores: ScoreSettings = ScoreSettings(),  # noqa: B008 - immutable
    language: str = "",
) -> UserTask:
    """Make a task's card from a user's data: a file, a folder of splits, or a dataset on the Hub.

    Args:
        source: The file, folder or dataset.
        name: The name of the task.
        columns: The columns that the user gives, by role: ``{"gold": "rating"}``.
        labels: Whether the target is a label, whatever it looks like.
        scores: How scores are read: their scale, and whether rows without one are left out.
        language: The codes of the languages as a comma list; empty to find them.

    Raises:
        CardError: The given columns contradict each other.
        DataError: The data cannot be read, they fit no task, or some scores are no numbers.
    """
    recognised = _recognise_data(source, columns, scores, labels=labels)
    split_tables, roles = recognised.split_tables, recognised.roles
    params = _reader_params(split_tables, roles, recognised.columns)
    if scores.drop_unscored:
        params["drop_unscored"] = True
    target = recognised.column(roles.target)
    notes = describe_reading(split_tables, target, scores, is_gold=roles.is_gold)
    # A card without the numbers of items and so on, which are found by reading its splits.
    draft = _task_card(name, source, recognised, params)
    splits = {split: load_split(name, draft, split, data=None).split for split in draft.splits}
    sections = {split_name: _split_section(split) for split_name, split in splits.items()}
    scale = _Scale(scores.scale, doubt="") if scores.scale else _guess_scale(splits)
    doubt_by_key = {"gold_range": scale.doubt} if scale and scale.doubt else {}
    languages = split_names(language) or draft.languages
    for code in languages:
        if not LANGUAGE_CODE.fullmatch(code):
            raise CardError(
                "is no code of a language",
                parameter="language",
                value=code,
                hint="such as en,de",
            )
    if not languages:
        languages = find_languages(recognised.column(key).cells for key in roles.sentences)
        if languages:
            notes.append(f"the language is {', '.join(languages)} by the texts")
    if not languages:
        languages = ["en"]
        doubt_by_key["languages"] = "English is assumed: the data do not tell their language"
    card = msgspec.structs.replace(
        draft,
        splits=sections,
        gold_range=scale.gold_range if scale else None,
        languages=languages,
        note="; ".join(notes),
    )
    return UserTask(
        card=card,
        splits=splits,
        findings=[_describe_task(recognised, sections, params), *notes],
        doubts=[*split_tables.doubts, *_describe_empty_classes(sections)],
        doubt_by_key=doubt_by_key,
    )


def draft_task(
    source: Path | HubSource,
    location: CardLocation,
    *,
    made_by: str = "stsbench",
    **settings: Any,  # noqa: ANN401 - the arguments of recognise_task
) -> Draft:
    """Draft the card of a task from a user's data, and check the quality of the data.

    The card of a dataset on the Hub pins the commit that was read.

    Args:
        source: The file, the folder or the dataset on the Hub.
        location: Where the card is to be written.
        made_by: The program that makes the draft, for the first line of the card.
        settings: The further arguments of :func:`recognise_task`: columns, scale and so on.

    Returns:
        The text of the card by its path, and lines for the user: what was found, what is unsure,
        and what is wrong with the data.

    Raises:
        CardError: The given columns contradict each other.
        DataError: The data cannot be read, they fit no task, or some scores are no numbers.
    """
    task = recognise_task(source, location.name, **settings)
    description, *reading = task.findings
    problems = [
        f"{finding.split}: {finding.share} items {finding.message} ({finding.check})"
        for finding in check_data(task.data_to_check())
    ]
    return Draft(
        files={location.path: _card_text(task, location, problems, made_by)},
        findings=[f"{location.path}: {description}", *reading],
        doubts=[*task.doubts, *task.doubt_by_key.values()],
        problems=problems,
    )


def _recognise_data(
    source: Path | HubSource, columns: Mapping[str, str], scores: ScoreSettings, *, labels: bool
) -> _RecognisedData:
    """Read all tables of a user's data, and find their splits and the roles of their columns.

    Splits get the names that the task's evaluator requires. Splits of a dataset on the Hub whose
    scores or labels were kept secret are dropped.

    Args:
        source: The file, folder or dataset.
        columns: The columns that the user gives, by role: ``{"gold": "rating"}``.
        scores: How scores are read: their scale, and whether rows without one are left out.
        labels: Whether the target is a label, whatever it looks like.

    Returns:
        The tables of each split, all columns, and which of them hold the sentences and the target.

    Raises:
        CardError: The given columns contradict each other.
        DataError: The data cannot be read, they fit no task, or some scores are no numbers.
    """
    dataset = None
    if isinstance(source, Path):
        where = str(source)
        split_tables = find_tables(source)
    else:
        where = f"dataset '{source.repo}'"
        dataset = read_dataset(source)
        split_tables = _hub_tables(where, dataset)
    all_columns = split_tables.columns()
    # The key of a column without a name is its position, a number, which the user writes as text.
    key_texts = [str(column.key) for column in all_columns]
    column_by_role: dict[str, ColumnKey] = {}
    for role, key_text in columns.items():
        position = column_position(key_texts, key_text, where=where)
        column_by_role[role] = all_columns[position].key
    candidates = [column for column in all_columns if column.key != split_tables.split_column]
    roles, doubts = choose_roles(candidates, column_by_role, where=where, labels=labels)
    recognised = _RecognisedData(dataset, split_tables, all_columns, roles)
    if dataset is not None:
        split_tables = _drop_secret_splits(split_tables, roles)
        # Secret targets are no classes, and may be empty: columns are now without them.
        recognised = recognised._replace(columns=split_tables.columns())
    check_targets(
        split_tables,
        roles,
        recognised.column(roles.target),
        scores,
        labels=labels or "label" in column_by_role,
    )
    split_tables = _rename_splits(split_tables, is_gold=roles.is_gold, where=where)
    split_tables = replace(split_tables, doubts=[*split_tables.doubts, *doubts])
    return recognised._replace(split_tables=split_tables)


def _describe_task(
    recognised: _RecognisedData, sections: Mapping[str, SplitSection], params: Params
) -> str:
    """Return a line for the user on the task, its splits and its columns.

    For example ``pairs with scores (test 1,379) from the columns a, b, score; not read: id``.

    Args:
        recognised: All columns of the data, and which of them hold the sentences and the target.
        sections: Name of a split -> the facts of it, with its number of items ``n``.
        params: The parameters by which the files are read; columns that they do not name are not
            read.
    """
    roles = recognised.roles
    items = "pairs" if len(roles.sentences) == 2 else "sentences"
    targets = "scores" if roles.is_gold else "labels"
    counts = ", ".join(f"{name} {section.n:,}" for name, section in sections.items())
    read_columns = ", ".join(map(str, (*roles.sentences, roles.target)))
    # The values of all other parameters are columns.
    other_params = ("classes", "split_values", "drop_unscored")
    used_keys = [value for param, value in params.items() if param not in other_params]
    unused_keys = [str(column.key) for column in recognised.columns if column.key not in used_keys]
    not_read = f"; not read: {', '.join(unused_keys)}" if unused_keys else ""
    return f"{items} with {targets} ({counts}) from the columns {read_columns}{not_read}"


def _describe_empty_classes(sections: Mapping[str, SplitSection]) -> list[str]:
    """Return a line for the user on each split that has no items of some classes.

    Args:
        sections: Name of a split -> the facts of it. ``labels`` is the number of items of each
            class; it is empty for gold scores, of which there are no lines.
    """
    lines: list[str] = []
    for name, section in sections.items():
        empty_classes = [label for label, count in section.labels.items() if not count]
        if empty_classes:
            classes = ", ".join(map(repr, empty_classes))[:200]
            lines.append(f"the split {name} has no item of class {classes}")
    return lines


def _rename_splits(split_tables: SplitTables, *, is_gold: bool, where: str) -> SplitTables:
    """Return the splits under the names that the task's evaluator requires.

    * With gold scores, an undivided table becomes ``test``; other splits keep their names.
    * With labels, a single split becomes ``all``, which is cross-validated. Of train and
      validation, the latter becomes ``test``. Others must have train and test.

    Args:
        split_tables: The tables of each split, with lines on what is unsure (``doubts``) and the
            names of splits in the data (``value_by_split``).
        is_gold: Whether the task has gold scores, or else labels.
        where: What messages of errors begin with, such as the path of the data.

    Raises:
        DataError: Splits that labels need are missing.
    """
    splits = set(split_tables.tables)
    doubts = list(split_tables.doubts)
    # Old name -> new name; a split that is absent keeps its name.
    new_names: dict[str, str] = {}
    if is_gold:
        new_names = {NO_SPLIT: "test"}
    elif len(splits) == 1:
        new_names = dict.fromkeys(splits, "all")
    elif splits == {"train", "validation"}:
        new_names = {"validation": "test"}
        doubts.append("there is no test split: the one for validation is taken as test")
    elif not {"train", "test"} <= splits:
        raise DataError(
            f"{where}: has the splits {', '.join(split_tables.tables)}; "
            "labels need train and test, or one table"
        )
    return replace(
        split_tables,
        tables={
            new_names.get(split, split): tables for split, tables in split_tables.tables.items()
        },
        value_by_split={
            new_names.get(split, split): split_tables.value_by_split.get(split, split)
            for split in split_tables.tables
        },
        doubts=doubts,
    )


def _task_card(
    name: str, source: Path | HubSource, recognised: _RecognisedData, params: Params
) -> TaskCard:
    """Return the card of a task, with the names of its splits, but without facts of them.

    Args:
        name: The name of the task.
        source: The user's data: a path of files, or else a dataset on the Hub.
        recognised: The tables of each split, and which columns hold the sentences and the target.
        params: The parameters by which the files are read, such as columns.
    """
    split_tables, roles = recognised.split_tables, recognised.roles
    fields: dict[str, Any] = {"languages": [], "license": UNKNOWN}
    dataset = recognised.dataset
    if isinstance(source, Path):
        fields["local"] = _file_source(source, split_tables, params)
    elif dataset is not None:
        fields["hub"] = _hub_source(source, dataset, recognised, params)
        fields["languages"] = list(dataset.languages)
        fields["license"] = dataset.license or UNKNOWN
    is_labelled_pair = len(roles.sentences) == 2 and not roles.is_gold
    # The split to score, the best first.
    possible_splits = ("test", "all", "validation", "train")
    return TaskCard(
        name=name,
        evaluator="sts" if roles.is_gold else "probe",
        paper=UNKNOWN,
        options={"features": "abs_mul"} if is_labelled_pair else {},
        score_split=next(split for split in possible_splits if split in split_tables.tables),
        splits={split: SplitSection() for split in split_tables.tables},
        **fields,
    )


def _hub_source(
    source: HubSource, dataset: HubDataset, recognised: _RecognisedData, params: Params
) -> HubSource:
    """Return the card's section on a dataset of the Hub, which pins the commit that was read.

    Args:
        source: The dataset as the user names it.
        dataset: The dataset as read, with its commit.
        recognised: The tables of each split, and which columns hold the sentences and the target.
        params: Role -> column, and for labels ``classes`` -> the classes in order.
    """
    column_by_role = {role: str(column) for role, column in params.items() if role != "classes"}
    if recognised.roles.is_gold:
        # A card of gold scores need not name a column that has its usual name.
        column_by_role = {
            role: column
            for role, column in column_by_role.items()
            if column != PAIR_COLUMNS.get(role)
        }
    return msgspec.structs.replace(
        source,
        revision=dataset.commit,
        splits=recognised.split_tables.value_by_split,
        columns=column_by_role,
        classes=params.get("classes", []),
    )


def _file_source(source: Path, split_tables: SplitTables, params: Params) -> FileSource:
    """Return the card's section on files: their folder, and the name and sha256 of each.

    Args:
        source: The user's file, or folder of files.
        split_tables: The tables of each split that were read from it.
        params: The parameters by which the files are read, such as columns.
    """
    files: dict[str, list[FileSection]] = {}
    for split, tables in split_tables.tables.items():
        paths = [Path(table.path) for table in tables]
        files[split] = [FileSection(path=path.name, sha256=file_sha256(path)) for path in paths]
    folder = source if source.is_dir() else source.parent
    return FileSource(folder=str(folder.resolve()), params=params, files=files)


def _reader_params(
    split_tables: SplitTables, roles: ColumnRoles, columns: Sequence[DataColumn]
) -> Params:
    """Return the parameters by which the user's files are read, for the card.

    Args:
        split_tables: The tables of each split. If splits share a table, ``split_column`` is the
            column with the split of each row, and ``value_by_split`` the name of each split in it.
        roles: The columns of the sentences, one or two, and of the target, which is a gold score if
            ``is_gold``, else a label.
        columns: All columns. A column called ``subset`` is read too if the task has gold scores.

    Returns:
        ``sentence``, or ``sentence1`` and ``sentence2`` -> their columns;
        ``gold`` or ``label`` -> the column of the target;
        ``subset`` -> its column, if there is one;
        ``classes`` -> the classes in order, for labels;
        ``split_column`` -> its column, if splits share a table;
        ``split_values`` -> the names of splits in it that are not ours, if there are any.
    """
    split_column = split_tables.split_column
    sentence_params = ("sentence",) if len(roles.sentences) == 1 else ("sentence1", "sentence2")
    params: Params = dict(zip(sentence_params, roles.sentences, strict=True))
    params["gold" if roles.is_gold else "label"] = roles.target
    if roles.is_gold:
        for column in columns:
            if plain_name(str(column.key)) == "subset" and column.key != split_column:
                params.setdefault("subset", column.key)
    else:
        target = next(column for column in columns if column.key == roles.target)
        classes = sorted(target.distinct_cells - {""})
        all_are_numbers = not target.non_numbers
        if all_are_numbers:
            # Labels of equal value, such as 1 and 1.0, stay sorted as text.
            classes.sort(key=lambda label: float(label.replace(",", ".")))
        params["classes"] = classes
    if split_column is not None:
        params["split_column"] = split_column
        other_values = {
            split: value for split, value in split_tables.value_by_split.items() if value != split
        }
        if other_values:
            params["split_values"] = other_values
    return params


class _Scale(NamedTuple):
    """The scale of the gold scores."""

    gold_range: tuple[float, float]
    """The lowest and the highest possible score."""
    doubt: str
    """A line on the guess; empty if the scores have exactly this range."""


def _guess_scale(splits: Mapping[str, Split]) -> _Scale | None:
    """Return the lowest and the highest score that gold scores can have, as far as they show it.

    * If the lowest and the highest score are exactly a usual scale, such as 0 and 5, it is that.
    * Else it is the first usual scale that has room for both, with a line on the doubt.
    * If no usual scale has, it is the range of the scores itself, with such a line too.

    Args:
        splits: Name -> split; only splits of pairs have gold scores.

    Returns:
        None if there are no gold scores.
    """
    gold_by_split = [split.gold for split in splits.values() if isinstance(split, PairSplit)]
    if not gold_by_split:
        return None
    low = min(float(gold.min()) for gold in gold_by_split)
    high = max(float(gold.max()) for gold in gold_by_split)
    if (low, high) in USUAL_SCALES:
        return _Scale((low, high), doubt="")
    # A range of one value needs some width.
    own_range = (low, high if high > low else low + 1)
    fitting_scales = (scale for scale in USUAL_SCALES if scale[0] <= low and high <= scale[1])
    scale_low, scale_high = next(fitting_scales, own_range)
    doubt = (
        f"scores from {low:g} to {high:g} were found; "
        f"the scale is taken to be {scale_low:g} to {scale_high:g}"
    )
    return _Scale((float(scale_low), float(scale_high)), doubt)


def _split_section(split: Split) -> SplitSection:
    """Return what a card says of a split: its numbers of items and of characters, and so on.

    For gold scores it has their mean and the number of pairs of each subset, for labels the number
    of items of each class.
    """
    if isinstance(split, PairSplit):
        return SplitSection(
            n=split.n,
            characters=count_characters(split),
            mean=round(float(np.mean(split.gold)), 12),
            subsets=dict(Counter(split.subset)) if any(split.subset) else {},
        )
    assert not isinstance(split, CaptionSplit | ContrastSplit), "drafts are of pairs or labels"
    counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
    return SplitSection(
        n=split.n,
        characters=count_characters(split),
        labels=dict(zip(split.classes, counts, strict=True)),
    )


def _card_text(
    task: UserTask, location: CardLocation, problems: Sequence[str], made_by: str
) -> str:
    """Return the text of a card's file in TOML, with comments for the user who completes it.

    Args:
        task: The task: its card, what is unsure in the data (``doubts``), and what is unsure in
            keys of the card (``doubt_by_key``), which replaces the usual comments of these keys.
        location: Where the file is to be written.
        problems: What is wrong with the data, for the top of the file.
        made_by: The program that makes the draft, for the first line.
    """
    card = task.card
    # Section or key -> value, without default values; strip_defaults() leaves out the note too.
    tables = {**strip_defaults(card), "note": card.note}
    if card.local is not None:
        tables["local"]["folder"] = relative_path(Path(card.local.folder), location.path.parent)
    lines = [
        f"# A draft of {made_by}; docs/tasks.md explains every key. "
        f"'{UNKNOWN}' is yours to fill in."
    ]
    lines += [f"# unsure: {doubt}" for doubt in task.doubts]
    lines += [f"# check the data: {problem}" for problem in problems]
    key_comments = {key: f"unsure: {doubt}" for key, doubt in task.doubt_by_key.items()}
    return "\n".join([*lines, toml_tables(tables, {**KEY_COMMENTS, **key_comments})])


def _hub_tables(where: str, dataset: HubDataset) -> SplitTables:
    """Return the tables of a dataset on the Hub under our names of splits.

    A split of the Hub is ours if its name has a word such as ``train`` or ``dev``, and two of ours
    if it has words of both. Of several for one split the first counts; a line names the others.

    Args:
        where: What messages of errors begin with: the name of the dataset.
        dataset: The dataset, with tables by the Hub's names of splits.

    Raises:
        DataError: The dataset has several splits, and none of their names contains a word for
            train, validation or test.
    """
    hub_names = list(dataset.tables)
    hub_name_by_split: dict[str, str] = {}
    for hub_name in hub_names:
        for split in splits_in_name(hub_name):
            hub_name_by_split.setdefault(split, hub_name)
    if not hub_name_by_split and len(hub_names) == 1:
        hub_name_by_split = {NO_SPLIT: hub_names[0]}
    if not hub_name_by_split:
        raise DataError(
            f"{where}: none of its splits is of train, dev or test ({format_names(hub_names)})"
        )
    used_names = hub_name_by_split.values()
    return SplitTables(
        tables={
            split: [dataset.tables[hub_name_by_split[split]]]
            for split in (*SPLIT_NAMES, NO_SPLIT)
            if split in hub_name_by_split
        },
        doubts=describe_omitted([name for name in hub_names if name not in used_names]),
        value_by_split=hub_name_by_split,
    )


def _drop_secret_splits(split_tables: SplitTables, roles: ColumnRoles) -> SplitTables:
    """Return the tables without the splits whose targets were kept secret.

    In such a split all scores or labels are the same, for example -1. If each split has only one,
    all splits are kept.

    Args:
        split_tables: The tables of each split.
        roles: The columns; ``target`` is that of the scores or labels.

    Returns:
        The tables that are left, with a line for each split that was dropped.
    """
    distinct_targets_by_split: dict[str, set[str | None]] = defaultdict(set)
    for split, tables in split_tables.tables.items():
        for table in tables:
            position = table.column_position(roles.target)
            distinct_targets_by_split[split].update(cells[position] for cells in table.rows)
    # The only target of each split that has a single one.
    secret_target_by_split = {
        split: next(iter(targets))
        for split, targets in distinct_targets_by_split.items()
        if len(targets) == 1
    }
    if len(secret_target_by_split) == len(distinct_targets_by_split):
        return split_tables
    lines = [
        f"the split {split} is left out: {roles.target!r} is {target!r} in every row"
        for split, target in secret_target_by_split.items()
    ]
    return replace(
        split_tables,
        tables={
            split: tables
            for split, tables in split_tables.tables.items()
            if split not in secret_target_by_split
        },
        doubts=[*split_tables.doubts, *lines],
    )
