"""First cards of a user's own data: sentences, scores or labels, splits, counts and hashes as they are found.

A draft is files for a user to read and edit, what is unsure in them, and the command that uses them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stsbench.core.cards import (
    FileSection,
    FileSource,
    HubSource,
    SplitSection,
    TaskCard,
    strip_defaults,
    toml_tables,
)
from stsbench.core.catalogue import CARD_FOLDERS, RESERVED, Catalogue
from stsbench.core.errors import CardError, DataError, OutputError, StsbenchError
from stsbench.core.files import file_digest, write_atomically
from stsbench.core.wording import shorten
from stsbench.data.hub.rows import COLUMNS, HubDataset, read_dataset
from stsbench.data.readers.files import (
    DECIMAL_COMMA,
    TABLE_SUFFIXES,
    ColumnKey,
    TextTable,
    column_position,
    format_field,
    format_names,
    read_table,
)
from stsbench.data.readers.sentences import (
    GOLD,
    LABELS,
    NAMES,
    ColumnRoles,
    columns_called,
    find_sentences,
    plain_name,
)
from stsbench.data.splits import CaptionSplit, PairSplit, Split, count_characters
from stsbench.data.task import load_split

CARD_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
"""An id: no sign in it means anything in a comma list, a path or a name with parameters replaced."""
UNKNOWN = "unknown"
"""What a card says where only its owner knows."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """Files to write, by path; one line each of what was found and of what is unsure; and what to run next."""

    files: Mapping[Path, str]
    found: Sequence[str]
    unsure: Sequence[str]
    command: str

    def write(self, *, force: bool) -> None:
        """Write all files; raises OutputError where one is there already and ``force`` is not set."""
        if not force and (there := [path for path in self.files if path.exists()]):
            raise OutputError(
                f"{there[0]} exists; --force writes it again, another name leaves it as it is"
            )
        for path, text in self.files.items():
            write_atomically(path, text.encode())


@dataclass(frozen=True, kw_only=True)
class CardLocation:
    """Where a card goes: a user's folder of cards, and in it the folder of its kind."""

    cards: Path
    kind: str
    name: str

    @property
    def path(self) -> Path:
        """The card's file."""
        return self.cards / self.kind / f"{self.name}.toml"

    def option(self) -> str:
        """The option by which commands find the card."""
        return f"--cards {shlex.quote(str(self.cards))}"


def find_home(out: Path, kind: str, name: str) -> CardLocation:
    """Return where a card of this name goes; raises StsbenchError where it can be no id, or is that of another card.

    ``out`` is the folder for ``--cards``, or the folder of one kind (``tasks``, ``baselines``, ``trainers``) in it.
    """
    if not CARD_NAME.fullmatch(name) or name in RESERVED:
        raise StsbenchError(
            f"'{shorten(name)}' cannot be the name of a card; give letters, digits, - _ . with --name"
        )
    home = CardLocation(cards=out.parent if out.name == kind else out, kind=kind, name=name)
    catalogue = Catalogue(
        [home.cards] if any((home.cards / one).is_dir() for one in CARD_FOLDERS) else []
    )
    suites = dict.fromkeys(catalogue.suites(), Path("suites.toml")) if kind == "tasks" else {}
    taken = {**suites, **catalogue.paths(kind)}.get(name, home.path)
    if taken != home.path:
        raise StsbenchError(f"the name '{name}' is taken by {taken}; give another with --name")
    return home


def name_of(path: Path) -> str:
    """A name made from that of a file or folder."""
    stem = path.resolve().name if path.is_dir() else path.stem
    return re.sub(r"[^a-z0-9._-]+", "-", stem.casefold()).strip("-._")


COMMENTS = {
    "name": "what tables print",
    "paper": "where the task is described, or 'none'",
    "license": "the licence of the data",
    "options": "features of a pair: |u - v| and u * v, as SentEval has them; f1 = true adds the F1 of class 1",
    "score_split": "the split that is scored",
    "folder": "where the data are, seen from this card's folder",
    "params": "what the columns are called; the format of the files is found",
    "revision": "the commit that was read: the Hub's own hashes of its files hold the data to it",
    "splits": "what the Hub calls the splits",
    "columns": "what the columns are called, where not sentence1, sentence2 and score",
}
"""What is said above a key."""
ROLES = ("sentence1", "sentence2", "sentence", "gold", "label")
"""What a user may name columns for."""
Params = dict[str, Any]
SCALES = ((0, 1), (-1, 1), (0, 5), (0, 10), (0, 100), (0, 4), (1, 5), (1, 7), (1, 10))
"""The scales that similarity is judged on, the likely ones first; the last four are known by both their ends."""


def draft_task(
    source: Path | HubSource,
    home: CardLocation,
    *,
    columns: Mapping[str, str],
    labels: bool = False,
) -> Draft:
    """Draft the card of a task from a file of data, a folder with a file for each split, or a dataset on the Hub.

    Of a dataset the card keeps the commit that was read.

    Args:
        source: The file, folder or dataset.
        home: Where the card goes.
        columns: Columns by what they hold, where the user says so: ``{"gold": "rating"}``.
        labels: Whether what is scored are classes, whatever it looks like.

    Raises:
        DataError: The data cannot be read, no task can be made of them, or there are scores that are no numbers.
    """
    if isinstance(source, Path):
        where, dataset, found = str(source), None, find_tables(source)
    else:
        where, dataset = f"dataset '{source.repo}'", read_dataset(source)
        found = _hub_tables(where, dataset)
    every = found.columns()
    others = [one for one in every if one.key != found.column]
    names = [str(one.key) for one in every]
    given = {
        role: every[column_position(names, name, where=where)].key for role, name in columns.items()
    }
    roles, doubts = choose_roles(others, given, where=where, labels=labels)
    if not (labels or "label" in given):
        _check_scores(found, roles, every)
    found = _fitting(
        found if dataset is None else _without_secret(found, roles),
        is_gold=roles.is_gold,
        where=where,
    )
    params = _reader_params(found, roles, every)
    card = _task_card(home.name, source, dataset, found, roles, params)
    # What is written is what the card's own reader finds.
    splits = {split: load_split(home.name, card, split, data=None).split for split in card.splits}
    scale, notes = _scale(splits)
    if dataset is None or not dataset.languages:
        notes["languages"] = "English is assumed: the data do not tell their language"
    facts = {name: _facts(split) for name, split in splits.items()}
    poor = [
        f"the split {name} has no item of class {', '.join(map(repr, lost))[:200]}"
        for name, one in facts.items()
        if (lost := [label for label, count in one.labels.items() if not count])
    ]
    unsure = [*found.unsure, *doubts, *poor]
    text = _card_text(
        msgspec.structs.replace(card, splits=facts, gold_range=scale),
        home,
        unsure=unsure,
        notes=notes,
    )
    what = f"{'pairs' if len(roles.sentences) == 2 else 'sentences'} with {'scores' if roles.is_gold else 'labels'}"
    counts = ", ".join(f"{name} {one.n:,}" for name, one in facts.items())
    used = [one for key, one in params.items() if key not in ("classes", "split_values")]
    left = ", ".join(str(one.key) for one in every if one.key not in used)
    read = ", ".join(map(str, (*roles.sentences, roles.target)))
    return Draft(
        files={home.path: text},
        found=[
            f"{home.path}: {what} ({counts}) from the columns {read}{f'; not read: {left}' if left else ''}"
        ],
        unsure=[*unsure, *notes.values()],
        command=f"stsbench run -t {home.name} {home.option()}",
    )


def _check_scores(found: SplitTables, roles: ColumnRoles, columns: Sequence[DataColumn]) -> None:
    """Raise DataError if cells among scores are no numbers; names them."""
    target = next(column for column in columns if column.key == roles.target)
    is_called_score = len(roles.sentences) == 2 and plain_name(str(target.key)) in GOLD
    if not (target.not_numbers and (roles.is_gold or target.is_number or is_called_score)):
        return
    lines: list[str] = []
    for table in found.distinct_tables():
        cells = [row[table.column_position(target.key)] or "" for row in table.rows]
        notes = {
            row: format_field(cell)
            for row, cell in enumerate(cells)
            if cell.strip() in target.not_numbers
        }
        lines += [table.describe_rows(notes)] if notes else []
    what = f"column {target.key!r} holds scores and cells that are no numbers: {'; '.join(lines)}"
    raise DataError(what, hint="mend them; --labels takes all that the column holds for classes")


def _fitting(found: SplitTables, *, is_gold: bool, where: str) -> SplitTables:
    """The same splits under the names that the task's evaluator asks for, each with what the data call it."""
    splits, unsure = set(found.tables), found.unsure
    renamed: dict[str, str] = {}
    if is_gold:
        renamed = {WHOLE: "test"}
    elif len(splits) == 1:
        renamed = dict.fromkeys(splits, "all")
    elif splits == {"train", "validation"}:
        renamed = {"validation": "test"}
        unsure = [*unsure, "there is no test split: the one for validation is taken as test"]
    elif not {"train", "test"} <= splits:
        raise DataError(
            f"{where}: has the splits {', '.join(found.tables)}; labels need train and test, or one table"
        )
    tables = {renamed.get(split, split): tables for split, tables in found.tables.items()}
    values = {renamed.get(split, split): found.values.get(split, split) for split in found.tables}
    return replace(found, tables=tables, values=values, unsure=unsure)


def _task_card(
    name: str,
    source: Path | HubSource,
    read: HubDataset | None,
    found: SplitTables,
    roles: ColumnRoles,
    params: Params,
) -> TaskCard:
    """The card as far as source, columns and splits say; of its splits it has no facts yet."""
    facts: dict[str, Any] = {"languages": ["en"], "license": UNKNOWN}
    if isinstance(source, Path):
        paths = {
            split: [Path(table.path) for table in tables] for split, tables in found.tables.items()
        }
        files = {
            split: [FileSection(path=at.name, sha256=file_digest(at)) for at in one]
            for split, one in paths.items()
        }
        folder = source if source.is_dir() else source.parent
        facts["local"] = FileSource(folder=str(folder.resolve()), params=params, files=files)
    elif read is not None:
        names = {key: str(value) for key, value in params.items() if key != "classes"}
        if roles.is_gold:
            names = {key: value for key, value in names.items() if COLUMNS.get(key) != value}
        pinned = {"revision": read.commit, "splits": found.values, "columns": names}
        facts["hub"] = msgspec.structs.replace(source, **pinned, classes=params.get("classes", []))
        facts |= {"languages": list(read.languages) or ["en"], "license": read.license or UNKNOWN}
    labelled_pairs = len(roles.sentences) == 2 and not roles.is_gold
    return TaskCard(
        name=name,
        evaluator="sts" if roles.is_gold else "probe",
        paper=UNKNOWN,
        options={"features": "abs_mul"} if labelled_pairs else {},
        score_split=next(
            split for split in ("test", "all", "validation", "train") if split in found.tables
        ),
        splits={split: SplitSection() for split in found.tables},
        **facts,
    )


def _reader_params(found: SplitTables, roles: ColumnRoles, columns: Sequence[DataColumn]) -> Params:
    names = ("sentence",) if len(roles.sentences) == 1 else ("sentence1", "sentence2")
    params: Params = dict(zip(names, roles.sentences, strict=True))
    params["gold" if roles.is_gold else "label"] = roles.target
    if roles.is_gold:
        subsets = [
            one.key
            for one in columns
            if plain_name(str(one.key)) == "subset" and one.key != found.column
        ]
        params |= {"subset": subsets[0]} if subsets else {}
    else:
        target = next(one for one in columns if one.key == roles.target)
        # Numbers in their order.
        params["classes"] = sorted(
            sorted(target.distinct - {""}), key=str if target.not_numbers else float
        )
    if found.column is not None:
        values = {split: value for split, value in found.values.items() if value != split}
        params |= {"split_column": found.column} | ({"split_values": values} if values else {})
    return params


def _scale(splits: Mapping[str, Split]) -> tuple[tuple[float, float] | None, dict[str, str]]:
    gold = [split.gold for split in splits.values() if isinstance(split, PairSplit)]
    if not gold:
        return None, {}
    low, high = min(float(one.min()) for one in gold), max(float(one.max()) for one in gold)
    if (low, high) in SCALES:
        return (low, high), {}
    fitting = (scale for scale in SCALES if scale[0] <= low and high <= scale[1])
    first, last = next(fitting, (low, high if high > low else low + 1))
    line = f"scores from {low:g} to {high:g} were found; the scale is taken to be {first:g} to {last:g}"
    return (float(first), float(last)), {"gold_range": line}


def _facts(split: Split) -> SplitSection:
    if isinstance(split, PairSplit):
        subsets = dict(Counter(split.subset)) if any(split.subset) else {}
        mean = round(float(np.mean(split.gold)), 12)
        return SplitSection(
            n=split.n, characters=count_characters(split), mean=mean, subsets=subsets
        )
    assert not isinstance(split, CaptionSplit), "a table holds no captions"
    counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
    return SplitSection(
        n=split.n,
        characters=count_characters(split),
        labels=dict(zip(split.classes, counts, strict=True)),
    )


def _card_text(
    card: TaskCard, home: CardLocation, *, unsure: Sequence[str], notes: Mapping[str, str]
) -> str:
    facts = strip_defaults(card)
    if card.local is not None:
        facts["local"]["folder"] = relative_path(Path(card.local.folder), home.path.parent)
    lines = [
        f"# A draft of 'stsbench new task'; docs/tasks.md explains every key. '{UNKNOWN}' is yours to fill in."
    ]
    lines += [f"# unsure: {line}" for line in unsure]
    comments = {**COMMENTS, **{key: f"unsure: {note}" for key, note in notes.items()}}
    return "\n".join([*lines, toml_tables(facts, comments)])


def relative_path(folder: Path, place: Path) -> str:
    """A folder as a card in another writes it: by the way there, or where they share nothing by its whole path."""
    folder, place = folder.resolve(), place.resolve()
    if len(os.path.commonpath([folder, place])) < 2:
        return str(folder)
    way = Path(os.path.relpath(folder, place)).as_posix()
    return way if way.startswith(".") else f"./{way}"


def _hub_tables(where: str, dataset: HubDataset) -> SplitTables:
    theirs, named = list(dataset.tables), dict[str, str]()
    for name in theirs:
        named = {**dict.fromkeys(splits_named(name), name), **named}
    if not named and len(theirs) == 1:
        named = {WHOLE: theirs[0]}
    if not named:
        raise DataError(
            f"{where}: none of its splits is of train, dev or test ({format_names(theirs)})"
        )
    tables = {ours: [dataset.tables[named[ours]]] for ours in (*SPLITS, WHOLE) if ours in named}
    unsure = left_out([name for name in theirs if name not in named.values()])
    return SplitTables(tables=tables, unsure=unsure, values=named)


def _without_secret(found: SplitTables, roles: ColumnRoles) -> SplitTables:
    """The splits without those whose answers are kept back: all of their scores or labels are the same."""
    held: dict[str, set[str | None]] = {}
    for split, parts in found.tables.items():
        held[split] = {
            row[table.column_position(roles.target)] for table in parts for row in table.rows
        }
    secret = {split: next(iter(answers)) for split, answers in held.items() if len(answers) == 1}
    if len(secret) == len(held):
        return found
    tables = {split: tables for split, tables in found.tables.items() if split not in secret}
    lines = [
        f"the split {name} is left out: {roles.target!r} is {one!r} in every row"
        for name, one in secret.items()
    ]
    return replace(found, tables=tables, unsure=[*found.unsure, *lines])


MOST_CLASSES, MOST_WORDS = 50, 4
"""More classes, or longer names of them, are only taken where a column is called so."""
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class DataColumn:
    """A column's name or position, and its cells."""

    key: ColumnKey
    cells: Sequence[str]

    @cached_property
    def distinct(self) -> frozenset[str]:
        """What it holds, each once."""
        return frozenset(cell.strip() for cell in self.cells)

    @cached_property
    def not_numbers(self) -> frozenset[str]:
        """What it holds that is no number; a decimal comma is left to the reader, which refuses it, and so are gaps."""
        numbers = {
            cell
            for cell in self.distinct
            if _NUMBER.fullmatch(cell) or DECIMAL_COMMA.fullmatch(cell)
        }
        return self.distinct - numbers - {""}

    @cached_property
    def is_number(self) -> bool:
        """Whether more than half of its cells that are filled hold numbers."""
        filled = [cell.strip() for cell in self.cells if cell.strip()]
        return 2 * sum(cell not in self.not_numbers for cell in filled) > len(filled)

    @cached_property
    def has_fractions(self) -> bool:
        """Whether one of its numbers is written with a decimal sign."""
        return self.is_number and any(
            re.search("[.,]", cell) for cell in self.distinct - self.not_numbers
        )

    @cached_property
    def words(self) -> float:
        """Words a cell, on average."""
        return sum(len(cell.split()) for cell in self.cells) / max(len(self.cells), 1)

    @property
    def is_id(self) -> bool:
        """Whether it numbers the rows, or is called so."""
        name = plain_name(self.key) if isinstance(self.key, str) else ""
        if name.endswith("id") or name in ("index", "idx", "unnamed0", "row", "n", "no", "number"):
            return True
        return (
            self.is_number and not self.has_fractions and 2 < len(self.cells) == len(self.distinct)
        )

    @property
    def is_labels(self) -> bool:
        """Whether it holds few short texts or whole numbers, again and again."""
        few = (
            2
            <= len(self.distinct)
            <= min(MOST_CLASSES, max(2, len(self.cells) // 2), len(self.cells) - 1)
        )
        # A column with gaps is a remark on some rows.
        return few and all(self.distinct) and not self.has_fractions and self.words <= MOST_WORDS


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of these rows names the columns of the others."""
    first, rest = [cell.strip() for cell in rows[0]], rows[1:]
    if not any(first) or any(map(_NUMBER.fullmatch, first)):
        return False
    if not rest:
        return any(plain_name(cell) in NAMES for cell in first)
    columns = [DataColumn(at, cells) for at, cells in enumerate(zip(*rest, strict=False))]
    pairs = list(zip(columns, first, strict=False))
    if any(cell in column.distinct for column, cell in pairs if cell):
        return False
    # pandas writes the numbers of rows below no name.
    return any(
        column.is_number or (cell and (plain_name(cell) in NAMES or column.is_labels))
        for column, cell in pairs
    )


def choose_roles(
    columns: Sequence[DataColumn],
    given: Mapping[str, ColumnKey],
    *,
    where: str,
    labels: bool = False,
) -> tuple[ColumnRoles, Sequence[str]]:
    """Decide which columns hold the sentences and what is scored, with a line for each that is unsure.

    Those ``given`` by what they hold are not doubted; with ``labels`` what is scored are classes. Raises DataError,
    CardError: nothing fits; says what can be given.
    """
    header = [column.key for column in columns if isinstance(column.key, str)]
    unsure: list[str] = []
    try:
        sentences = find_sentences(header, given, where=where)
    except CardError:
        if {"sentence1", "sentence2"} & {*given}:
            raise
        sentences = _sentences_by_content(columns, {*given.values()}, where, unsure)
    others = [column for column in columns if column.key not in sentences and column.cells]
    if "gold" in given and len(sentences) == 1:
        raise CardError(f"{where}: one sentence has no gold score; give two sentences, or a label")
    target = given.get("gold", given.get("label"))
    if target is not None:
        return ColumnRoles(sentences, target, is_gold="gold" in given), unsure
    named = columns_called(header, (*GOLD, *LABELS) if len(sentences) == 2 else LABELS)
    likely = [
        column
        for column in others
        if column.key in named and (column.is_number or column.words <= MOST_WORDS)
    ]
    are_scores_likely = len(sentences) == 2 and not labels
    best = likely or _best_targets(
        [column for column in others if not column.is_id], numbers_first=are_scores_likely
    )
    chosen = next(iter(_best_targets(likely, numbers_first=are_scores_likely) or best), None)
    if chosen is None:
        has, todo = (
            format_names([str(one.key) for one in columns]),
            "--columns gold=NAME or --columns label=NAME",
        )
        raise DataError(
            f"{where}: no column holds scores or labels (has {has}); name it with {todo}"
        )
    if len(best) > 1:
        names = format_names([repr(one.key) for one in best])
        unsure.append(f"columns {names} may be what is scored: {chosen.key!r} is taken")
    elif not likely and not chosen.is_number:
        unsure.append(f"column {chosen.key!r} is taken for what is scored, by what it holds")
    is_gold = are_scores_likely and _are_scores(chosen, unsure)
    return ColumnRoles(sentences, chosen.key, is_gold=is_gold), unsure


def _sentences_by_content(
    columns: Sequence[DataColumn], taken: set[ColumnKey], where: str, unsure: list[str]
) -> tuple[ColumnKey, ...]:
    texts = [
        column
        for column in columns
        if not (column.is_number or column.is_labels or column.key in taken)
    ]
    texts = [one for one in texts if one.words >= 2] or [
        one for one in texts if one.words and not one.is_id
    ]
    if not texts:
        has = format_names([str(one.key) for one in columns])
        todo = "--columns sentence1=NAME,sentence2=NAME or --columns sentence=NAME"
        raise DataError(f"{where}: no column holds sentences (has {has}); name them with {todo}")
    longest = sorted(texts, key=lambda column: column.words, reverse=True)[:2]
    keys = tuple(column.key for column in columns if column in longest)
    more, many = (
        f" of the {len(texts)} columns of text" if len(texts) > 2 else "",
        "s" if len(keys) > 1 else "",
    )
    unsure.append(
        f"column{many} {format_names(list(map(repr, keys)))}{more}: taken for the sentence{many}"
    )
    return keys


def _best_targets(columns: Sequence[DataColumn], *, numbers_first: bool) -> list[DataColumn]:
    """What may be scored, the best first: of a pair rather fractions than whole numbers, and numbers than labels."""
    labels = [column for column in columns if column.is_labels]
    if numbers_first and (numbers := [column for column in columns if column.is_number]):
        return sorted(numbers, key=lambda column: not column.has_fractions)
    return [column for column in labels if not column.is_number] or labels


def _are_scores(column: DataColumn, unsure: list[str]) -> bool:
    if not column.is_number or column.has_fractions:
        return column.is_number
    name, few = plain_name(str(column.key)), len(column.distinct)
    if name in LABELS:
        return few > MOST_CLASSES
    if few <= 2 and name not in GOLD:
        return False
    if few <= MOST_CLASSES and (few <= 2 or name not in GOLD):
        unsure.append(
            f"column {column.key!r} holds only whole numbers: taken for scores, they may be classes"
        )
    return True


SPLITS: Mapping[str, Sequence[str]] = {
    "train": ("train", "training", "tr"),
    "validation": ("validation", "valid", "val", "va", "dev", "devel", "development", "trial"),
    "test": ("test", "testing", "te"),
}
"""What splits are called in names of files and in columns, in lower case."""
WHOLE = ""
"""The split of what is in no split."""


@dataclass(frozen=True, kw_only=True)
class SplitTables:
    """The tables of a data set by split, wherever they come from; all have the same columns."""

    tables: Mapping[str, Sequence[TextTable]]
    unsure: Sequence[str]
    """One line for each thing that is not sure."""
    column: ColumnKey | None = None
    """The column that says the split of each row, where splits share a table."""
    values: Mapping[str, str] = field(default_factory=dict)
    """What that column calls splits, of those that it calls otherwise."""

    def distinct_tables(self) -> list[TextTable]:
        """Return the tables of all splits, one that splits share once."""
        return list({table.path: table for part in self.tables.values() for table in part}.values())

    def columns(self) -> list[DataColumn]:
        """The columns of all splits together; of rows that differ in length, those that all have."""
        tables = self.distinct_tables()
        rows = [row for table in tables for row in table.rows]
        width = min(map(len, rows))
        keys: Sequence[ColumnKey] = tables[0].header[:width] or range(width)
        return [DataColumn(key, [row[at] or "" for row in rows]) for at, key in enumerate(keys)]


def find_tables(source: Path) -> SplitTables:
    """Read the tables of a file, or of a folder with files of splits; raises DataError."""
    if not source.exists():
        raise DataError(
            f"'{source}' does not exist; give a file, or a folder with train, dev or test files"
        )
    files, unsure = _files_of(source) if source.is_dir() else ({WHOLE: [source]}, [])
    tables: dict[str, list[TextTable]] = {split: [] for split in files}
    for split, path in ((split, path) for split, paths in files.items() for path in paths):
        table = read_table(path, by_name=False)
        if not table.header and has_header([[cell or "" for cell in row] for row in table.rows]):
            table = read_table(path, by_name=True)
        tables[split].append(table)
    first, *others = (table for part in tables.values() for table in part)
    if uneven := list(
        filter(None, (table.describe_uneven(with_longer=True) for table in (first, *others)))
    ):
        raise DataError("; ".join(uneven))
    for table in (first, *others):
        if list(table.header) != list(first.header):
            ours, theirs = (format_names(one.header) or "not named" for one in (first, table))
            which = f"its columns ({theirs}) are not those of {Path(first.path).name} ({ours})"
            raise DataError(f"{table.path}: {which}; make them the same")
        for row, length in list(table.uneven_rows().items())[:1]:
            line = f"{table.locate_row(row)}: {length} fields, expected {table.width}"
            unsure.append(f"{line}: cells beyond the last column that all rows have are not read")
    if not first.header:
        unsure.append(
            "no line that names the columns was found: the first line is data, columns are counted from 0"
        )
    found = SplitTables(tables=tables, unsure=unsure)
    return _by_column(found) if list(tables) == [WHOLE] else found


def splits_named(name: str) -> list[str]:
    """The splits whose names are words of this one."""
    words = set(re.split(r"[\W\d_]+", name.casefold()))
    return [split for split, names in SPLITS.items() if words & {*names}]


def _files_of(folder: Path) -> tuple[dict[str, list[Path]], list[str]]:
    files = sorted(
        path
        for path in folder.iterdir()
        if path.suffix.lower() in TABLE_SUFFIXES and path.is_file()
    )
    if not files:
        raise DataError(
            f"{folder}: has no table ({', '.join(TABLE_SUFFIXES)}); give a file, or the folder that has them"
        )
    found: dict[str, list[Path]] = {}
    for path in files:
        if len(splits := splits_named(path.stem)) == 1:
            found.setdefault(splits[0], []).append(path)
    if not found and len(files) == 1:
        return {WHOLE: files}, []
    if not found:
        what = f"none of its {len(files)} tables has train, dev or test in its name"
        raise DataError(
            f"{folder}: {what} ({format_names([path.name for path in files])}); give one file, or rename them"
        )
    for split, paths in found.items():
        if len({re.sub(r"\d+", "0", path.name) for path in paths}) > 1:
            names = format_names([path.name for path in paths])
            raise DataError(
                f"{folder}: several files may be the split {split} ({names}); leave one in the folder"
            )
    rest = [path.name for path in files if path not in chain.from_iterable(found.values())]
    return {split: found[split] for split in SPLITS if split in found}, left_out(rest)


def left_out(names: Sequence[str]) -> list[str]:
    """What to say of files, or of splits on the Hub, whose names say no split of ours."""
    return [f"left out, for their names are of no split: {format_names(names)}"] if names else []


def _by_column(found: SplitTables) -> SplitTables:
    """The splits that a column names, where one does: whatever it is called, all that it holds are names of splits."""
    ((table,),) = found.tables.values()
    for column in found.columns():
        names = {
            name: split
            for split, known in SPLITS.items()
            for name in column.distinct
            if name.casefold() in known
        }
        if len(names) > 1 and {*names} == column.distinct and len({*names.values()}) == len(names):
            values = {split: value for value, split in names.items() if value != split}
            tables = {split: [table] for split in SPLITS if split in names.values()}
            return replace(found, tables=tables, column=column.key, values=values)
    return found
