"""A task card drafted from data: sentences, scores or labels, splits, counts and hashes as they are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from stsbench.cards.facts import FileFacts, FileSource, SplitFacts, TaskCard
from stsbench.data.readers.columns import Roles, plain_name
from stsbench.data.readers.table import ColumnKey
from stsbench.data.sources import load_split
from stsbench.data.splits import CaptionSplit, PairSplit, Split
from stsbench.data.verify import characters, file_digest
from stsbench.drafts.columns import DataColumn, decide
from stsbench.drafts.draft import UNKNOWN, Draft, Home
from stsbench.drafts.files import WHOLE, SplitTables, find_tables
from stsbench.drafts.task_card import write_task_card
from stsbench.errors import DataError, did_you_mean

ROLES = ("sentence1", "sentence2", "sentence", "gold", "label")
"""What a user may name columns for."""
SCALES = ((0, 1), (-1, 1), (0, 5), (0, 10), (0, 100), (0, 4), (1, 5), (1, 7), (1, 10))
"""The scales that similarity is judged on, the likely ones first; the last four are told by both their ends."""
ASSUMED = "English is assumed: the data do not tell their language"
CardOf = Callable[[SplitTables, Roles, Sequence[DataColumn]], TaskCard]
PROBES = ({"train", "validation", "test"}, {"train", "test"})
"""The splits of a probe that has several."""


def draft_task(source: Path, home: Home, *, columns: Mapping[str, str]) -> Draft:
    """Draft the card of a task from a file of data, or from a folder with a file for each split.

    Args:
        source: the file or folder.
        home: where the card goes.
        columns: columns by what they hold, where the user says so: ``{"gold": "rating"}``.

    Raises:
        DataError: the data cannot be read, or no task can be made of them.
    """
    folder = source if source.is_dir() else source.parent
    return draft_tables(
        find_tables(source),
        home,
        columns=columns,
        where=str(source),
        card_of=partial(_card, home.name, folder),
        notes={"languages": ASSUMED},
    )


def draft_tables(
    found: SplitTables,
    home: Home,
    *,
    columns: Mapping[str, str],
    where: str,
    card_of: CardOf,
    notes: Mapping[str, str],
) -> Draft:
    """Draft the card of a task from tables, wherever they come from.

    Args:
        found: the tables by split.
        home: where the card goes.
        columns: columns by what they hold, where the user says so.
        where: the data, for messages.
        card_of: makes the card of the tables under the evaluator's splits, of roles and of columns; facts are added.
        notes: what is not sure of a key.

    Raises:
        DataError: no task can be made of them.
    """
    every = found.columns()
    decided = decide(
        [one for one in every if one.key != found.column], columns_given(columns, every, where=where), where=where
    )
    found = _fitting(found, is_gold=decided.roles.is_gold, where=where)
    card = card_of(found, decided.roles, every)
    # What is written is what the card's own reader finds.
    splits = {split: load_split(home.name, card, split, data=None).split for split in card.splits}
    scale, unsure_scale = _scale(splits)
    card = msgspec.structs.replace(
        card, splits={split: _facts(read) for split, read in splits.items()}, gold_range=scale
    )
    unsure, notes = [*found.unsure, *decided.unsure, *_poor_classes(splits)], {**unsure_scale, **notes}
    text = write_task_card(card, home, unsure=unsure, notes=notes)
    return Draft(
        files={home.path: text},
        found=[f"{home.path}: {_told(card, decided.roles)}{_passed_over(found, decided.roles, every)}"],
        unsure=[*unsure, *notes.values()],
        command=f"stsbench run -t {home.name} {home.option()}",
    )


def columns_given(columns: Mapping[str, str], every: Sequence[DataColumn], *, where: str) -> dict[str, ColumnKey]:
    """The columns that a user names, by what they hold; raises DataError where one is missing."""
    return {role: _key(name, every, where=where) for role, name in columns.items()}


def _passed_over(found: SplitTables, roles: Roles, columns: Sequence[DataColumn]) -> str:
    """The columns that the card does not name, where there are any."""
    read = reader_params(found, roles, columns)
    used = [one for key, one in read.items() if key not in ("classes", "split_values")]
    left = [str(one.key) for one in columns if one.key not in used]
    return f"; not read: {', '.join(left)}" if left else ""


def _key(name: str, columns: Sequence[DataColumn], *, where: str) -> ColumnKey:
    """A column as the user names it: by its name, or by its position where columns have no names."""
    keys = {str(column.key): column.key for column in columns}
    if name not in keys:
        raise DataError(f"{where}: no column '{name}' (has {', '.join(keys)[:300]}){did_you_mean(name, keys)}")
    return keys[name]


def _fitting(found: SplitTables, *, is_gold: bool, where: str) -> SplitTables:
    """The tables under the names of splits that the evaluator reads."""
    splits = set(found.tables)
    if is_gold or splits in PROBES:
        tables = {split if split != WHOLE else "test": tables for split, tables in found.tables.items()}
        return replace(found, tables=tables)
    if len(splits) == 1:
        return replace(found, tables={"all": next(iter(found.tables.values()))})
    if splits != {"train", "validation"}:
        raise DataError(
            f"{where}: has the splits {', '.join(found.tables)}; labels need train and test, or one table of all"
        )
    values = {**found.values, "test": found.values.get("validation", "validation")} if found.column is not None else {}
    values.pop("validation", None)
    tables = {"train": found.tables["train"], "test": found.tables["validation"]}
    told = "there is no test split: the one for validation is taken as test"
    return replace(found, tables=tables, values=values, unsure=[*found.unsure, told])


def _card(name: str, folder: Path, found: SplitTables, roles: Roles, columns: Sequence[DataColumn]) -> TaskCard:
    files = {
        split: [FileFacts(path=one.path.name, sha256=file_digest(one.path)) for one in tables]
        for split, tables in found.tables.items()
    }
    local = FileSource(folder=str(folder.resolve()), params=reader_params(found, roles, columns), files=files)
    return msgspec.structs.replace(task_card(name, roles, list(files)), local=local)


def task_card(name: str, roles: Roles, splits: Sequence[str]) -> TaskCard:
    """The card of a task as far as its columns and splits tell it; it has no source yet, and no facts."""
    labelled_pairs = len(roles.sentences) == 2 and not roles.is_gold
    return TaskCard(
        name=name,
        evaluator="sts" if roles.is_gold else "probe",
        languages=["en"],
        paper=UNKNOWN,
        license=UNKNOWN,
        options={"features": "abs_mul"} if labelled_pairs else {},
        score_split=next(split for split in ("test", "all", "validation", "train") if split in splits),
        splits={split: SplitFacts() for split in splits},
    )


def reader_params(found: SplitTables, roles: Roles, columns: Sequence[DataColumn]) -> dict[str, Any]:
    """What the reader is told: the columns, the classes, and which rows are of which split."""
    names = ("sentence",) if len(roles.sentences) == 1 else ("sentence1", "sentence2")
    params: dict[str, Any] = dict(zip(names, roles.sentences, strict=True))
    params["gold" if roles.is_gold else "label"] = roles.target
    if roles.is_gold:
        subsets = [one.key for one in columns if plain_name(str(one.key)) == "subset" and one.key != found.column]
        params |= {"subset": subsets[0]} if subsets else {}
    else:
        params["classes"] = _classes(next(one for one in columns if one.key == roles.target))
    if found.column is not None:
        params |= {"split_column": found.column} | ({"split_values": dict(found.values)} if found.values else {})
    return params


def _classes(column: DataColumn) -> list[str]:
    """All classes, numbers in their order."""
    names = sorted(column.distinct - {""})
    return sorted(names, key=float) if column.is_number else names


def _scale(splits: Mapping[str, Split]) -> tuple[tuple[float, float] | None, dict[str, str]]:
    """The scale of the gold scores; and, where its ends are not among them, a line that says so."""
    gold = [split.gold for split in splits.values() if isinstance(split, PairSplit)]
    if not gold:
        return None, {}
    low, high = min(one.min() for one in gold), max(one.max() for one in gold)
    fitting = [scale for scale in SCALES if scale[0] <= low and high <= scale[1]]
    near = next(iter(fitting), (low, high if high > low else low + 1))
    if (low, high) in SCALES:
        return (float(low), float(high)), {}
    return (float(near[0]), float(near[1])), {
        "gold_range": f"scores from {low:g} to {high:g} were found; the scale is taken to be {near[0]:g} to {near[1]:g}"
    }


def _facts(split: Split) -> SplitFacts:
    if isinstance(split, PairSplit):
        subsets = dict(Counter(split.subset)) if any(split.subset) else {}
        return SplitFacts(
            n=split.n, characters=characters(split), mean=round(float(np.mean(split.gold)), 12), subsets=subsets
        )
    assert not isinstance(split, CaptionSplit), "a table holds no captions"
    counts = np.bincount(split.labels, minlength=len(split.classes)).tolist()
    return SplitFacts(n=split.n, characters=characters(split), labels=dict(zip(split.classes, counts, strict=True)))


def _poor_classes(splits: Mapping[str, Split]) -> list[str]:
    """One line for each split in which a class is missing."""
    found = {
        name: [one for one, count in _facts(split).labels.items() if not count]
        for name, split in splits.items()
        if not isinstance(split, PairSplit)
    }
    return [
        f"the split {name} has no item of class {', '.join(map(repr, lost))[:200]}"
        for name, lost in found.items()
        if lost
    ]


def _told(card: TaskCard, roles: Roles) -> str:
    """What a card is of, in one line."""
    what = f"{'pairs' if len(roles.sentences) == 2 else 'sentences'} with {'scores' if roles.is_gold else 'labels'}"
    counts = ", ".join(f"{split} {facts.n:,}" for split, facts in card.splits.items())
    columns = ", ".join(map(str, (*roles.sentences, roles.target)))
    return f"{what} ({counts}) from the columns {columns}"
