"""Results as MTEB's result files, and MTEB's result files as rows of a board, marked as imported."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stsbench.boards.exports.hub import MtebTask, find_model, find_mteb_task, read_mteb_tasks
from stsbench.boards.tables.columns import add_average, is_scored_as_mteb
from stsbench.boards.tables.rows import by_average
from stsbench.boards.tables.table import EncoderTraits, Group, Row, Table, TableCell
from stsbench.boards.tables.traits import hub_address
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError, ProtocolError
from stsbench.core.files import safe_file_name, write_atomically
from stsbench.core.wording import join_lines
from stsbench.results.record import Result

DIGITS = 6
UNKNOWN_META_KEYS = """
    loader release_date languages memory_usage_mb max_tokens license
    open_weights public_training_code public_training_data use_instructions training_datasets
""".split()
"""What MTEB's description of a model must say, and results do not tell."""


class ExportedFiles(NamedTuple):
    """The files written, and the cells that no file of MTEB's may hold, each with the reason."""

    paths: list[Path]
    omitted: list[str]


def export_mteb(results: Sequence[Result], out: Path, catalogue: Catalogue) -> ExportedFiles:
    """Write ``out/results/<model>/<revision>/<task>.json`` for every cell whose data are MTEB's.

    A model has its id on the Hub where that is known, see :func:`find_model`. A task of several subsets is written where all are there.

    The main score is the Spearman correlation of cosines over all pairs of a task or language, whatever
    aggregation the result was scored by: a result holds that one too. Manhattan and Euclidean distances
    are not measured, and missing. ``mteb_version`` is null: MTEB did not make these scores.
    Of several seeds of the evaluation the first counts; ``mteb.ResultCache(out)`` reads the folder.

    Raises:
        DataError: not one cell can be exported; says why.
        OutputError: the folder cannot be written.
    """
    files: dict[Path, list[tuple[MtebTask, Result]]] = {}
    left_out: dict[str, None] = {}
    for result in sorted(
        results, key=lambda r: (r.encoder, r.task, r.split, r.eval_seed, str(r.protocol["name"]))
    ):
        task, why = _fitting(result, catalogue)
        if task is None:
            left_out[f"{result.encoder} on {result.task}: {why}"] = None
            continue
        model = find_model(result, catalogue)
        folder = (
            out / "results" / safe_file_name(model.name.replace("/", "__").replace(" ", "_"), 255)
        )
        cells = files.setdefault(
            folder / safe_file_name(model.revision, 255) / f"{task.name}.json", []
        )
        if all((task, result.split) != (other, one.split) for other, one in cells):
            cells.append((task, result))
    files = {
        path: whole for path, cells in files.items() if (whole := list(_whole(cells, left_out)))
    }
    if not files:
        raise DataError(f"nothing to export: {next(iter(left_out), 'there are no results')}")
    paths = [write_atomically(path, _json(_task_result(cells))) for path, cells in files.items()]
    for folder, result in {path.parent: cells[0][1] for path, cells in files.items()}.items():
        model = find_model(result, catalogue)
        meta: dict[str, Any] = {
            "name": model.name,
            "revision": model.revision,
            **dict.fromkeys(UNKNOWN_META_KEYS),
        }
        meta |= {"n_parameters": model.parameters, "embed_dim": model.dimensions, "framework": []}
        write_atomically(folder / META_FILE, _json({**meta, "similarity_fn_name": "cosine"}))
    return ExportedFiles(paths, list(left_out))


def _fitting(result: Result, catalogue: Catalogue) -> tuple[MtebTask | None, str]:
    task = (
        find_mteb_task(result.task, catalogue) if result.task in catalogue.paths("tasks") else None
    )
    if task is None:
        return None, "its data are not those of a task of MTEB's"
    if result.protocol.get("similarity") != "cosine" or not {"spearman.all", "pearson.all"} <= set(
        result.scores
    ):
        return None, "MTEB scores by the Spearman correlation of cosines"
    if result.split not in task.splits:
        return None, f"MTEB has no split '{result.split}' of it"
    return task, ""


def _whole(
    cells: Sequence[tuple[MtebTask, Result]], left_out: dict[str, None]
) -> Iterator[tuple[MtebTask, Result]]:
    """The cells of splits of which all subsets are there: MTEB averages over a part as if it were the whole."""
    for task, result in cells:
        found = sum(other.split == result.split for _, other in cells)
        if found == task.subsets:
            yield task, result
        else:
            why = f"MTEB's {task.name} is of {task.subsets} subsets, the results hold {found} of split '{result.split}'"
            left_out[f"{result.encoder} on {result.task}: {why}"] = None


def _task_result(cells: Sequence[tuple[MtebTask, Result]]) -> dict[str, Any]:
    scores: dict[str, list[dict[str, Any]]] = {}
    for task, result in cells:
        # 'pearson' and 'spearman' are of the model's own similarity, cosine where it names none.
        values = {
            name: round(result.scores[f"{name}.all"], DIGITS) for name in ("pearson", "spearman")
        }
        facts = {
            "main_score": values["spearman"],
            "hf_subset": task.subset,
            "languages": task.languages,
        }
        cosines = {f"cosine_{name}": value for name, value in values.items()}
        scores.setdefault(task.splits[result.split], []).append({**values, **cosines, **facts})
    _, newest = max(cells, key=lambda cell: str(cell[1].run.get("created", "")))
    return {
        "dataset_revision": cells[0][0].revision,
        "task_name": cells[0][0].name,
        "mteb_version": None,
        "scores": scores,
        "evaluation_time": sum(float(result.run.get("seconds") or 0.0) for _, result in cells),
        "kg_co2_emissions": None,
        "date": newest.run.get("created"),
    }


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


SECTION = "Imported from MTEB's result files, not measured here (protocol mteb)"
MTEB_METRIC = "cosine_spearman"
META_FILE = "model_meta.json"


class _File(msgspec.Struct):
    task_name: str
    dataset_revision: str
    scores: dict[str, list[dict[str, Any]]]
    mteb_version: str | None = None


class ImportedModel(NamedTuple):
    """A model as MTEB's folders name it."""

    name: str
    revision: str


class ImportedScores(NamedTuple):
    """Scores, from 0 to 1, and the version of MTEB that made each, by model and by task of ours; a line for each file left out."""

    scores: Mapping[ImportedModel, Mapping[str, tuple[float, str]]]
    problems: Sequence[str]


def read_mteb(path: Path, catalogue: Catalogue) -> ImportedScores:
    """Read a result file of MTEB's, or all below a folder; files of tasks that are none of ours are passed over.

    Raises:
        OutputError: there is no such file or folder.
        DataError: it holds no score of a task that is also ours.
    """
    if not path.exists():
        raise OutputError(f"{path}: there is no such file or folder of MTEB's results")
    files = (
        [path] if path.is_file() else sorted(p for p in path.rglob("*.json") if p.name != META_FILE)
    )
    scores: dict[ImportedModel, dict[str, tuple[float, str]]] = {}
    problems = []
    for file in files:
        try:
            if read := dict(_read(file, catalogue)):
                scores.setdefault(_model(file), {}).update(read)
        except DataError as error:
            problems.append(str(error))
    if not scores:
        raise DataError(
            f"{path}: no score of a task that is also ours{f'; {problems[0]}' if problems else ''}"
        )
    return ImportedScores(scores, problems)


def _read(path: Path, catalogue: Catalogue) -> Iterator[tuple[str, tuple[float, str]]]:
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"{path}: is not a result file of MTEB 1.11 or newer: {join_lines(error)}; mteb itself reads older ones"
        ) from error
    ours = (
        find_mteb_task(name, catalogue)
        for name, facts in read_mteb_tasks().items()
        if facts.name == file.task_name
    )
    for task in filter(None, ours):
        split = task.splits[catalogue.task(task.task).score_split]
        mine = next(
            (one for one in file.scores.get(split, []) if one.get("hf_subset") == task.subset), None
        )
        if mine is None:
            continue
        if file.dataset_revision != task.revision:
            theirs = file.dataset_revision[:12]
            raise DataError(
                f"{path}: of dataset revision {theirs}, ours is {task.revision[:12]}: other data"
            )
        score = mine.get(MTEB_METRIC)
        if not isinstance(score, float | int) or isinstance(score, bool) or not abs(score) <= 1:
            raise DataError(
                f"{path}: subset '{task.subset}': '{MTEB_METRIC}' is {score!r} and no correlation"
            )
        yield (
            task.task,
            (
                float(score),
                str(mine.get("mteb_version") or file.mteb_version or "of unknown version"),
            ),
        )


class _Meta(msgspec.Struct):
    name: str
    revision: str | None = None


def _model(file: Path) -> ImportedModel:
    """The model that a file is of: as its description says, else as its folders are called."""
    folder = file.absolute().parent
    try:
        meta = msgspec.json.decode((folder / META_FILE).read_bytes(), type=_Meta)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ImportedModel(folder.parent.name.replace("__", "/"), folder.name)
    return ImportedModel(meta.name, meta.revision or folder.name)


def add_imported_rows(table: Table, imported: ImportedScores) -> Table:
    """The same table with a group of imported rows below its own; best and second best are taken in each group.

    Raises:
        ProtocolError: its columns are not scored as MTEB scores.
    """
    if not is_scored_as_mteb(table.columns):
        raise ProtocolError(
            f"'{table.name}' is not scored as MTEB scores: by Spearman over all pairs of a task"
        )
    tasks = {column.spec.task: column.key for column in table.columns if column.spec is not None}
    names, rows = [model.name for model in imported.scores], []
    for model, scores in imported.scores.items():
        found = {tasks[task]: 100 * score for task, (score, _) in scores.items() if task in tasks}
        versions = sorted({version for _, version in scores.values()})
        row = Row(
            label=f"{model.name} [{model.revision[:6]}]"
            if names.count(model.name) > 1
            else model.name,
            cells={
                key: TableCell(published=number)
                for key, number in add_average(table.terms, found).items()
            },
            imported=", ".join(f"mteb {version}" for version in versions),
            traits=EncoderTraits(model=hub_address(model.name)),
        )
        rows += [row] if found else []
    group = Group(section=SECTION, rows=sorted(rows, key=by_average))
    return replace(table, groups=[*table.groups, group]) if rows else table
