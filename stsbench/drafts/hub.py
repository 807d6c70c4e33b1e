"""A task card drafted from a dataset on the Hub, at the commit that is there now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from stsbench.cards.facts import HubSource, TaskCard
from stsbench.data.hub.dataset import HubDataset, read_dataset
from stsbench.data.hub.pairs import COLUMNS
from stsbench.data.readers.columns import Roles
from stsbench.data.readers.table import TextTable, listed
from stsbench.drafts.columns import DataColumn, decide
from stsbench.drafts.draft import Draft, Home
from stsbench.drafts.files import SPLITS, WHOLE, SplitTables
from stsbench.drafts.task import ASSUMED, columns_given, draft_tables, reader_params, task_card
from stsbench.errors import DataError

PLAIN = (str, int, float, type(None))
"""What a cell may be; lists are passed over."""


def draft_hub_task(source: HubSource, home: Home, *, columns: Mapping[str, str]) -> Draft:
    """Draft the card of a task from a dataset on the Hub; the card keeps the commit that was read.

    Args:
        source: its repository, revision and configuration.
        home: where the card goes.
        columns: columns by what they hold, where the user says so.

    Raises:
        DataError: the data cannot be had or read, or no task can be made of them.
    """
    dataset = read_dataset(source)
    where = f"dataset '{source.repo}'"
    found = _tables(source.repo, dataset)
    every = found.columns()
    decided = decide(every, columns_given(columns, every, where=where), where=where)
    found = _told(found, decided.roles)
    card_of = partial(_card, home.name, msgspec.structs.replace(source, revision=dataset.commit), dataset)
    notes = {} if dataset.languages else {"languages": ASSUMED}
    return draft_tables(found, home, columns=columns, where=where, card_of=card_of, notes=notes)


def _tables(repo: str, dataset: HubDataset) -> SplitTables:
    """The splits under our names, with the columns of plain cells that all of them have."""
    flat = {split: _flat(columns) for split, columns in dataset.tables.items()}
    keys = [key for key in next(iter(flat.values())) if all(key in one for one in flat.values())]
    plain = [key for key in keys if all(isinstance(v, PLAIN) for one in flat.values() for v in one[key])]
    named: dict[str, str] = {}
    for theirs in dataset.tables:
        words = set(re.split(r"[\W\d_]+", theirs.casefold()))
        for ours in (split for split, names in SPLITS.items() if words & {*names}):
            named.setdefault(ours, theirs)
    if not named and len(dataset.tables) == 1:
        named = {WHOLE: next(iter(dataset.tables))}
    if not plain:
        raise DataError(f"dataset '{repo}': no column holds texts or numbers (has {listed(list(flat.popitem()[1]))})")
    if not named:
        raise DataError(f"dataset '{repo}': none of its splits is of train, dev or test ({listed(list(flat))})")
    left = [theirs for theirs in dataset.tables if theirs not in named.values()]
    unsure = [f"left out, for their names are of no split: {listed(left)}"] if left else []
    order = [split for split in (*SPLITS, WHOLE) if split in named]
    tables = {ours: [_table(Path(repo, named[ours]), plain, flat[named[ours]])] for ours in order}
    return SplitTables(tables=tables, named=True, unsure=unsure)


def _flat(columns: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The columns, and the fields of those that hold records, under names such as ``labels.label``."""
    found: dict[str, Sequence[Any]] = {}
    for key, values in columns.items():
        records = [value for value in values if isinstance(value, Mapping)]
        fields = list(records[0]) if records and len(records) == len(values) else []
        found |= {f"{key}.{field}": [one.get(field) for one in records] for field in fields}
        found[key] = values
    return found


def _table(path: Path, keys: Sequence[str], columns: Mapping[str, Sequence[Any]]) -> TextTable:
    rows = [
        [None if cell is None else str(cell) for cell in row]
        for row in zip(*(columns[key] for key in keys), strict=True)
    ]
    return TextTable(path=path, header=keys, rows=rows, numbers=range(1, len(rows) + 1), unit="row")


def _told(found: SplitTables, roles: Roles) -> SplitTables:
    """The splits without those whose answers are kept back: all of their scores or labels are the same."""
    held = {
        split: {row[table.index(roles.target)] for table in tables for row in table.rows}
        for split, tables in found.tables.items()
    }
    secret = [split for split, answers in held.items() if len(answers) == 1 and len(held) > 1]
    if not secret or len(secret) == len(held):
        return found
    tables = {split: tables for split, tables in found.tables.items() if split not in secret}
    lines = [
        f"the split {split} is left out: {roles.target!r} is {held[split].pop()!r} in every row" for split in secret
    ]
    return replace(found, tables=tables, unsure=[*found.unsure, *lines])


def _card(
    name: str,
    source: HubSource,
    dataset: HubDataset,
    found: SplitTables,
    roles: Roles,
    columns: Sequence[DataColumn],
) -> TaskCard:
    read = reader_params(found, roles, columns)
    classes = read.pop("classes", [])
    names = {key: str(value) for key, value in read.items()}
    if roles.is_gold:
        names = {key: value for key, value in names.items() if COLUMNS.get(key) != value}
    splits = {ours: tables[0].path.name for ours, tables in found.tables.items()}
    hub = msgspec.structs.replace(source, splits=splits, columns=names, classes=classes)
    return msgspec.structs.replace(
        task_card(name, roles, list(found.tables)),
        hub=hub,
        languages=list(dataset.languages) or ["en"],
        **({"license": dataset.license} if dataset.license else {}),
    )
