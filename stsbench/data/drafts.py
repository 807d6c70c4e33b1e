"""First cards of a user's own data: sentences, scores or labels, splits, counts and hashes as they are found.

A draft is files for a user to read and edit, what is unsure in them, and the command that uses them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stsbench.core.cards import FileFacts, FileSource, HubSource, SplitFacts, TaskCard, toml, toml_key
from stsbench.core.catalogue import KINDS, RESERVED, Catalogue
from stsbench.core.errors import DataError, OutputError, StsbenchError, cut, did_you_mean
from stsbench.core.files import file_digest, write_whole
from stsbench.data.hub.rows import COLUMNS, HubDataset, read_dataset
from stsbench.data.readers.sentences import Roles, plain_name
from stsbench.data.readers.table import ColumnKey, listed
from stsbench.data.recognise import SPLITS, WHOLE, DataColumn, SplitTables, decide, find_tables, left_out, splits_named
from stsbench.data.splits import CaptionSplit, PairSplit, Split, characters
from stsbench.data.task import load_split

NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)
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
            raise OutputError(f"{there[0]} exists; --force writes it again, another name leaves it as it is")
        for path, text in self.files.items():
            write_whole(path, text.encode())


@dataclass(frozen=True, kw_only=True)
class Home:
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


def find_home(out: Path, kind: str, name: str) -> Home:
    """Return where a card of this name goes; raises StsbenchError where it can be no id, or is that of another card.

    ``out`` is the folder for ``--cards``, or the folder of one kind (``tasks``, ``baselines``, ``trainers``) in it.
    """
    if not NAME.fullmatch(name) or name in RESERVED:
        raise StsbenchError(
            f"'{cut(name)}' cannot be the name of a card; give letters, digits, '-', '_' and '.' with --name"
        )
    home = Home(cards=out.parent if out.name == kind else out, kind=kind, name=name)
    catalogue = Catalogue([home.cards] if any((home.cards / one).is_dir() for one in KINDS) else [])
    suites = dict.fromkeys(catalogue.suites(), Path("suites.toml")) if kind == "tasks" else {}
    taken = {**suites, **catalogue.paths(kind)}.get(name, home.path)
    if taken != home.path:
        raise StsbenchError(f"the name '{name}' is taken by {taken}; give another with --name")
    return home


def name_of(path: Path) -> str:
    """A name made from that of a file or folder."""
    stem = path.resolve().name if path.is_dir() else path.stem
    return re.sub(r"[^a-z0-9._-]+", "-", stem.casefold()).strip("-._")


def lines_of(facts: Mapping[str, object], notes: Mapping[str, str]) -> list[str]:
    """The lines of a table of facts, each with the note of its key above it as a comment."""
    lines: list[str] = []
    for key, value in facts.items():
        lines += [f"# {notes[key]}"] if key in notes else []
        lines.append(f"{toml_key(key)} = {toml(value)}")
    return lines


COMMENTS = {
    "name": "what tables print",
    "paper": "where the task is described, or 'none'",
    "license": "the licence of the data",
    "options": "features of a pair: |u - v| and u * v, as SentEval has them; f1 = true adds the F1 of class 1",
    "score_split": "the split that is scored",
    "folder": "where the data are, seen from this card's folder",
    "params": "what the columns are called; the format of the files is found",
}
"""What is said above a key."""
HUB_COMMENTS = {
    "revision": "the commit that was read: the Hub's own hashes of its files hold the data to it",
    "splits": "what the Hub calls the splits",
    "columns": "what the columns are called, where not sentence1, sentence2 and score",
}
ROLES = ("sentence1", "sentence2", "sentence", "gold", "label")
"""What a user may name columns for."""
SCALES = ((0, 1), (-1, 1), (0, 5), (0, 10), (0, 100), (0, 4), (1, 5), (1, 7), (1, 10))
"""The scales that similarity is judged on, the likely ones first; the last four are known by both their ends."""


def draft_task(source: Path | HubSource, home: Home, *, columns: Mapping[str, str]) -> Draft:
    """Draft the card of a task from a file of data, a folder with a file for each split, or a dataset on the Hub.

    ``columns`` are columns by what they hold, where the user says so: ``{"gold": "rating"}``. Of a dataset the card keeps
    the commit that was read.

    Raises:
        DataError: the data cannot be read, or no task can be made of them.
    """
    if isinstance(source, Path):
        where, dataset, found = str(source), None, find_tables(source)
    else:
        where, dataset = f"dataset '{source.repo}'", read_dataset(source)
        found = _hub_tables(where, dataset)
    every = found.columns()
    others = [one for one in every if one.key != found.column]
    roles, doubts = decide(others, _columns_given(columns, every, where=where), where=where)
    found = _fitting(found if dataset is None else _without_secret(found, roles), is_gold=roles.is_gold, where=where)
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
    text = _card_text(msgspec.structs.replace(card, splits=facts, gold_range=scale), home, unsure=unsure, notes=notes)
    what = f"{'pairs' if len(roles.sentences) == 2 else 'sentences'} with {'scores' if roles.is_gold else 'labels'}"
    counts = ", ".join(f"{name} {one.n:,}" for name, one in facts.items())
    used = [one for key, one in params.items() if key not in ("classes", "split_values")]
    left = ", ".join(str(one.key) for one in every if one.key not in used)
    read = ", ".join(map(str, (*roles.sentences, roles.target)))
    return Draft(
        files={home.path: text},
        found=[f"{home.path}: {what} ({counts}) from the columns {read}{f'; not read: {left}' if left else ''}"],
        unsure=[*unsure, *notes.values()],
        command=f"stsbench run -t {home.name} {home.option()}",
    )


def _columns_given(columns: Mapping[str, str], every: Sequence[DataColumn], *, where: str) -> dict[str, ColumnKey]:
    keys = {str(column.key): column.key for column in every}
    for name in columns.values():
        if name not in keys:
            raise DataError(f"{where}: no column '{name}' (has {', '.join(keys)[:300]}){did_you_mean(name, keys)}")
    return {role: keys[name] for role, name in columns.items()}


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
            f"{where}: has the splits {', '.join(found.tables)}; labels need train and test, or one table of all"
        )
    tables = {renamed.get(split, split): tables for split, tables in found.tables.items()}
    values = {renamed.get(split, split): found.values.get(split, split) for split in found.tables}
    return replace(found, tables=tables, values=values, unsure=unsure)


def _task_card(
    name: str,
    source: Path | HubSource,
    dataset: HubDataset | None,
    found: SplitTables,
    roles: Roles,
    params: Mapping[str, Any],
) -> TaskCard:
    """The card as far as source, columns and splits say; of its splits it has no facts yet."""
    facts: dict[str, Any] = {"languages": ["en"], "license": UNKNOWN}
    if isinstance(source, Path):
        paths = {split: [Path(table.path) for table in tables] for split, tables in found.tables.items()}
        files = {split: [FileFacts(path=at.name, sha256=file_digest(at)) for at in one] for split, one in paths.items()}
        folder = source if source.is_dir() else source.parent
        facts["local"] = FileSource(folder=str(folder.resolve()), params=dict(params), files=files)
    elif dataset is not None:
        names = {key: str(value) for key, value in params.items() if key != "classes"}
        if roles.is_gold:
            names = {key: value for key, value in names.items() if COLUMNS.get(key) != value}
        facts["hub"] = msgspec.structs.replace(
            source,
            revision=dataset.commit,
            splits=found.values,
            columns=names,
            classes=params.get("classes", []),
        )
        facts |= {"languages": list(dataset.languages) or ["en"], "license": dataset.license or UNKNOWN}
    labelled_pairs = len(roles.sentences) == 2 and not roles.is_gold
    return TaskCard(
        name=name,
        evaluator="sts" if roles.is_gold else "probe",
        paper=UNKNOWN,
        options={"features": "abs_mul"} if labelled_pairs else {},
        score_split=next(split for split in ("test", "all", "validation", "train") if split in found.tables),
        splits={split: SplitFacts() for split in found.tables},
        **facts,
    )


def _reader_params(found: SplitTables, roles: Roles, columns: Sequence[DataColumn]) -> dict[str, Any]:
    names = ("sentence",) if len(roles.sentences) == 1 else ("sentence1", "sentence2")
    params: dict[str, Any] = dict(zip(names, roles.sentences, strict=True))
    params["gold" if roles.is_gold else "label"] = roles.target
    if roles.is_gold:
        subsets = [one.key for one in columns if plain_name(str(one.key)) == "subset" and one.key != found.column]
        params |= {"subset": subsets[0]} if subsets else {}
    else:
        target = next(one for one in columns if one.key == roles.target)
        # Numbers in their order.
        params["classes"] = sorted(sorted(target.distinct - {""}), key=float if target.is_number else str)
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


def _facts(split: Split) -> SplitFacts:
    if isinstance(split, PairSplit):
        subsets = dict(Counter(split.subset)) if any(split.subset) else {}
        mean = round(float(np.mean(split.gold)), 12)
        return SplitFacts(n=split.n, characters=characters(split), mean=mean, subsets=subsets)
    assert not isinstance(split, CaptionSplit), "a table holds no captions"
    counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
    return SplitFacts(n=split.n, characters=characters(split), labels=dict(zip(split.classes, counts, strict=True)))


def _card_text(card: TaskCard, home: Home, *, unsure: Sequence[str], notes: Mapping[str, str]) -> str:
    comments = {**COMMENTS, **{key: f"unsure: {line}" for key, line in notes.items()}}
    top = _filled(card, "name", "evaluator", "languages", "paper", "license", "gold_range", "options", "score_split")
    if card.score_split == "test":
        del top["score_split"]
    lines = [f"# A draft of 'stsbench new task'; docs/tasks.md explains every key. '{UNKNOWN}' is yours to fill in."]
    lines += [*(f"# unsure: {line}" for line in unsure), *lines_of(top, comments)]
    for split, facts in card.splits.items():
        lines += ["", f"[splits.{toml_key(split)}]", *lines_of(_filled(facts, *facts.__struct_fields__), {})]
    if (local := card.local) is not None:
        source: dict[str, object] = {"folder": seen_from(Path(local.folder), home.path.parent), "params": local.params}
        lines += ["", "[local]", *lines_of(source, comments), "", "[local.files]"]
        for split, files in local.files.items():
            lines.append(f"{toml_key(split)} = [{', '.join(toml(_filled(file, 'path', 'sha256')) for file in files)}]")
    if card.hub is not None:
        facts_of_hub = _filled(card.hub, "repo", "revision", "config", "splits", "columns", "classes")
        lines += ["", "[hub]", *lines_of(facts_of_hub, HUB_COMMENTS)]
    return "\n".join(lines) + "\n"


def _filled(record: msgspec.Struct, *names: str) -> dict[str, Any]:
    found = {name: getattr(record, name) for name in names}
    return {name: value for name, value in found.items() if value not in (None, "", {}, [], 0)}


def seen_from(folder: Path, place: Path) -> str:
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
        raise DataError(f"{where}: none of its splits is of train, dev or test ({listed(theirs)})")
    tables = {ours: [dataset.tables[named[ours]]] for ours in (*SPLITS, WHOLE) if ours in named}
    unsure = left_out([name for name in theirs if name not in named.values()])
    return SplitTables(tables=tables, named=True, unsure=unsure, values=named)


def _without_secret(found: SplitTables, roles: Roles) -> SplitTables:
    """The splits without those whose answers are kept back: all of their scores or labels are the same."""
    held = {
        split: {row[table.index(roles.target)] for table in tables for row in table.rows}
        for split, tables in found.tables.items()
    }
    secret = {split: next(iter(answers)) for split, answers in held.items() if len(answers) == 1}
    if len(secret) == len(held):
        return found
    tables = {split: tables for split, tables in found.tables.items() if split not in secret}
    lines = [f"the split {name} is left out: {roles.target!r} is {one!r} in every row" for name, one in secret.items()]
    return replace(found, tables=tables, unsure=[*found.unsure, *lines])
