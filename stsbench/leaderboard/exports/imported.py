"""MTEB's result files as rows of a board: marked as imported, in a group of their own, by MTEB's own protocol."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stsbench.cards.catalogue import Catalogue
from stsbench.errors import DataError, OutputError, ProtocolError, one_line
from stsbench.leaderboard.exports.tasks import MtebTask, mteb_facts, mteb_task
from stsbench.leaderboard.tables.averages import mean_of
from stsbench.leaderboard.tables.fill import expected
from stsbench.leaderboard.tables.runs import Wanted
from stsbench.leaderboard.tables.table import (
    AVERAGE,
    EXACT,
    Group,
    Number,
    Row,
    Table,
    TableCell,
    TableColumn,
    Terms,
    Traits,
)
from stsbench.leaderboard.tables.traits import hub_address

PROTOCOL = {"name": "mteb", "metric": "spearman", "aggregation": "all", "similarity": "cosine"}
"""How MTEB scores STS: one correlation a task or language. Prompts are those MTEB has for a model."""
SECTION = "Imported from MTEB's result files, not measured here (protocol mteb)"
METRIC = "cosine_spearman"
META = "model_meta.json"


class _File(msgspec.Struct):
    task_name: str
    dataset_revision: str
    scores: dict[str, list[dict[str, Any]]]
    mteb_version: str | None = None


class ImportedModel(NamedTuple):
    """A model as MTEB's folders name it."""

    name: str
    revision: str


class Imported(NamedTuple):
    """Scores by model and by task of ours, from 0 to 1; MTEB's versions that made them; a line for each file left out."""

    scores: Mapping[ImportedModel, Mapping[str, float]]
    versions: Mapping[ImportedModel, set[str]]
    problems: Sequence[str]


def read_mteb(path: Path, catalogue: Catalogue) -> Imported:
    """Read a result file of MTEB's, or all below a folder; files of tasks that are none of ours are passed over.

    Raises:
        OutputError: there is no such file or folder.
        DataError: it holds no score of a task that is also ours.
    """
    if not path.exists():
        raise OutputError(f"{path}: there is no such file or folder of MTEB's results")
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*.json") if p.name != META)
    found, problems = Imported({}, {}, []), []
    scores: dict[ImportedModel, dict[str, float]] = {}
    versions: dict[ImportedModel, set[str]] = {}
    for file in files:
        try:
            read = dict(_read(file, catalogue))
        except DataError as error:
            problems.append(str(error))
            continue
        if read:
            model = _model(file)
            scores.setdefault(model, {}).update({task: score for task, (score, _) in read.items()})
            versions.setdefault(model, set()).update(version for _, version in read.values())
    if not scores:
        raise DataError(f"{path}: no score of a task that is also ours{f'; {problems[0]}' if problems else ''}")
    return found._replace(scores=scores, versions=versions, problems=problems)


def _read(path: Path, catalogue: Catalogue) -> Iterator[tuple[str, tuple[float, str]]]:
    """Each task of ours that the file has a score of, with the version of MTEB that made it."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"{path}: is not a result file of MTEB 1.11 or newer: {one_line(error)}; mteb itself reads older ones"
        ) from error
    for task in (mteb_task(name, catalogue) for name, facts in mteb_facts().items() if facts.name == file.task_name):
        if task is not None:
            yield from _scores(path, file, task, catalogue.task(task.task).score_split)


def _scores(path: Path, file: _File, task: MtebTask, split: str) -> Iterator[tuple[str, tuple[float, str]]]:
    mine = [one for one in file.scores.get(task.splits[split], []) if one.get("hf_subset") == task.subset]
    if not mine:
        return
    if file.dataset_revision != task.revision:
        raise DataError(
            f"{path}: of dataset revision {file.dataset_revision[:12]}, ours is {task.revision[:12]}: other data"
        )
    score = mine[0].get(METRIC)
    if not isinstance(score, float | int) or isinstance(score, bool) or not math.isfinite(score) or abs(score) > 1:
        raise DataError(f"{path}: subset '{task.subset}': '{METRIC}' is {score!r} and no correlation")
    yield task.task, (float(score), str(mine[0].get("mteb_version") or file.mteb_version or "of unknown version"))


class _Meta(msgspec.Struct):
    name: str
    revision: str | None = None


def _model(file: Path) -> ImportedModel:
    """The model that a file is of: as its description says, else as its folders are called."""
    folder = file.absolute().parent
    try:
        meta = msgspec.json.decode((folder / META).read_bytes(), type=_Meta)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ImportedModel(folder.parent.name.replace("__", "/"), folder.name)
    return ImportedModel(meta.name, meta.revision or folder.name)


def with_imported(table: Table, imported: Imported) -> Table:
    """The same table with a group of imported rows below its own; best and second best are taken in each group.

    Raises:
        ProtocolError: its columns are not scored as MTEB scores.
    """
    if not fits(table.columns):
        raise ProtocolError(f"'{table.name}' is not scored as MTEB scores: by Spearman over all pairs of a task")
    tasks = {column.wanted.task: column.key for column in table.columns if column.wanted is not None}
    names = [model.name for model in imported.scores]
    rows = [
        Row(
            label=f"{model.name} [{model.revision[:6]}]" if names.count(model.name) > 1 else model.name,
            cells=_cells({tasks[task]: 100 * score for task, score in scores.items() if task in tasks}, table.terms),
            imported=", ".join(f"mteb {version}" for version in sorted(imported.versions[model])),
            traits=Traits(model=hub_address(model.name)),
        )
        for model, scores in imported.scores.items()
        if any(task in tasks for task in scores)
    ]
    rows.sort(key=lambda row: (row.cell(AVERAGE).published is None, -_value(row), row.label))
    return replace(table, groups=[*table.groups, Group(section=SECTION, rows=rows)]) if rows else table


def _cells(numbers: dict[str, float], terms: Terms) -> dict[str, TableCell]:
    mean = mean_of(terms, numbers.get)
    if mean is not None:
        numbers |= dict.fromkeys((AVERAGE, EXACT), mean)
    return {key: TableCell(published=Number(value)) for key, value in numbers.items()}


def _value(row: Row) -> float:
    published = row.cell(AVERAGE).published
    return published.value if published else 0.0


def fits(columns: Sequence[TableColumn]) -> bool:
    """Whether a table's scores are made as MTEB makes them, whatever the protocol is called."""
    return all(_fits(column.wanted) for column in columns if column.wanted is not None)


def _fits(wanted: Wanted) -> bool:
    if wanted.fields:
        return {**wanted.fields, "name": PROTOCOL["name"]} == PROTOCOL
    return (wanted.metric, expected(wanted.protocol)[1]) == ("spearman", "all")
