"""Results as MTEB's result files, and MTEB's result files as imported rows of a board."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from stsbench.boards.exports.hub import MtebTask, find_model, find_mteb_task, read_mteb_tasks
from stsbench.boards.tables.columns import is_scored_as_mteb, make_averaged_numbers
from stsbench.boards.tables.rows import average_sort_key
from stsbench.boards.tables.table import EncoderTraits, Group, Row, Table, TableCell
from stsbench.boards.tables.traits import hub_address
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError, ProtocolError
from stsbench.core.files import safe_file_name, write_atomically
from stsbench.core.wording import join_lines
from stsbench.results.record import Result

SCORE_DIGITS = 6
UNKNOWN_META_KEYS = """
    loader release_date languages memory_usage_mb max_tokens license
    open_weights public_training_code public_training_data use_instructions training_datasets
""".split()
"""The keys of MTEB's description of a model that results have no values for."""


class ExportedFiles(NamedTuple):
    """The files written, and notices on the cells that no file of MTEB's may hold."""

    paths: list[Path]
    omitted: list[str]


class _MtebCell(NamedTuple):
    """A Result, and MTEB's task with the same data."""

    task: MtebTask
    result: Result


def export_mteb(results: Sequence[Result], out: Path, catalogue: Catalogue) -> ExportedFiles:
    """Write ``out/results/<model>/<revision>/<task>.json`` for every cell whose data are MTEB's.

    A model has its id on the Hub if that is known, see :func:`find_model`. A task of several
    subsets is written if all of them are there. The first seed of the evaluation counts.

    The main score is the Spearman correlation of cosines over all pairs of a task or language,
    whatever aggregation the result was scored by: a result holds that one too. Manhattan and
    Euclidean distances are not measured, and missing. ``mteb_version`` is null: MTEB did not make
    these scores. ``mteb.ResultCache(out)`` reads the folder.

    Raises:
        DataError: No cell can be exported; the message says why.
        OutputError: The folder cannot be written.
    """
    cells_by_path: dict[Path, list[_MtebCell]] = {}
    omitted: dict[str, None] = {}
    for result in sorted(results, key=_export_order):
        task, problem = _match_task(result, catalogue)
        if task is None:
            omitted[f"{result.encoder} on {result.task}: {problem}"] = None
            continue
        path = _result_path(result, task, out, catalogue)
        cells = cells_by_path.setdefault(path, [])
        # Results are sorted by seed, so the first one of a task and split counts.
        has_cell = any((cell.task, cell.result.split) == (task, result.split) for cell in cells)
        if not has_cell:
            cells.append(_MtebCell(task, result))
    complete_cells_by_path = {}
    for path, cells in cells_by_path.items():
        if complete_cells := list(_select_complete(cells, omitted)):
            complete_cells_by_path[path] = complete_cells
    if not complete_cells_by_path:
        raise DataError(f"nothing to export: {next(iter(omitted), 'there are no results')}")
    paths = [
        write_atomically(path, _encode_json(_task_content(cells)))
        for path, cells in complete_cells_by_path.items()
    ]
    results_by_folder = {
        path.parent: cells[0].result for path, cells in complete_cells_by_path.items()
    }
    for folder, result in results_by_folder.items():
        write_atomically(folder / META_FILE, _encode_json(_model_content(result, catalogue)))
    return ExportedFiles(paths, list(omitted))


def _export_order(result: Result) -> tuple[str, str, str, int, str]:
    protocol_name = str(result.protocol["name"])
    return result.encoder, result.task, result.split, result.eval_seed, protocol_name


def _result_path(result: Result, task: MtebTask, out: Path, catalogue: Catalogue) -> Path:
    model = find_model(result, catalogue)
    model_folder = safe_file_name(model.name.replace("/", "__").replace(" ", "_"), max_bytes=255)
    revision_folder = safe_file_name(model.revision, max_bytes=255)
    return out / "results" / model_folder / revision_folder / f"{task.name}.json"


def _model_content(result: Result, catalogue: Catalogue) -> dict[str, Any]:
    """Return the content of MTEB's description of a model."""
    model = find_model(result, catalogue)
    return {
        "name": model.name,
        "revision": model.revision,
        **dict.fromkeys(UNKNOWN_META_KEYS),
        "n_parameters": model.parameters,
        "embed_dim": model.dimensions,
        "framework": [],
        "similarity_fn_name": "cosine",
    }


class _TaskMatch(NamedTuple):
    """MTEB's task of a Result; without one, the reason."""

    task: MtebTask | None
    problem: str = ""


def _match_task(result: Result, catalogue: Catalogue) -> _TaskMatch:
    """Find the task of MTEB that a Result is a score of."""
    task = None
    if result.task in catalogue.paths("tasks"):
        task = find_mteb_task(result.task, catalogue)
    if task is None:
        return _TaskMatch(task=None, problem="its data are not those of a task of MTEB's")
    has_correlations = {"spearman.all", "pearson.all"} <= set(result.scores)
    if result.protocol.get("similarity") != "cosine" or not has_correlations:
        return _TaskMatch(task=None, problem="MTEB scores by the Spearman correlation of cosines")
    if result.split not in task.splits:
        return _TaskMatch(task=None, problem=f"MTEB has no split '{result.split}' of it")
    return _TaskMatch(task)


def _select_complete(cells: Sequence[_MtebCell], omitted: dict[str, None]) -> Iterator[_MtebCell]:
    """Yield the cells of splits that have all subsets of MTEB's task.

    MTEB would average over some of the subsets as if they were all.

    Args:
        cells: The cells of one task of MTEB's.
        omitted: Gets a notice on each other cell.
    """
    for cell in cells:
        task, result = cell
        n_subsets = sum(other_cell.result.split == result.split for other_cell in cells)
        if n_subsets == task.subsets:
            yield cell
        else:
            notice = (
                f"{result.encoder} on {result.task}: MTEB's {task.name} is of {task.subsets} "
                f"subsets, the results hold {n_subsets} of split '{result.split}'"
            )
            omitted[notice] = None


def _task_content(cells: Sequence[_MtebCell]) -> dict[str, Any]:
    """Return the content of MTEB's result file of a task."""
    scores_by_split: dict[str, list[dict[str, Any]]] = {}
    for task, result in cells:
        pearson = round(result.scores["pearson.all"], SCORE_DIGITS)
        spearman = round(result.scores["spearman.all"], SCORE_DIGITS)
        scores = {
            # MTEB computes these by the model's own similarity, which is the cosine by default.
            "pearson": pearson,
            "spearman": spearman,
            "cosine_pearson": pearson,
            "cosine_spearman": spearman,
            "main_score": spearman,
            "hf_subset": task.subset,
            "languages": task.languages,
        }
        scores_by_split.setdefault(task.splits[result.split], []).append(scores)
    first_task = cells[0].task
    newest_cell = max(cells, key=lambda cell: str(cell.result.run.get("created", "")))
    return {
        "dataset_revision": first_task.revision,
        "task_name": first_task.name,
        "mteb_version": None,
        "scores": scores_by_split,
        "evaluation_time": sum(float(cell.result.run.get("seconds") or 0.0) for cell in cells),
        "kg_co2_emissions": None,
        "date": newest_cell.result.run.get("created"),
    }


def _encode_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


IMPORTED_SECTION = "Imported from MTEB's result files, not measured here (protocol mteb)"
MTEB_METRIC = "cosine_spearman"
META_FILE = "model_meta.json"


class _ResultFile(msgspec.Struct):
    """The fields of MTEB's result file that are read."""

    task_name: str
    dataset_revision: str
    scores: dict[str, list[dict[str, Any]]]
    mteb_version: str | None = None


class ImportedModel(NamedTuple):
    """A model as MTEB's folders name it."""

    name: str
    revision: str


class MtebScore(NamedTuple):
    """A score in a result file of MTEB's."""

    score: float
    """The Spearman correlation of cosines, from -1 to 1."""
    version: str
    """The version of MTEB that computed it."""


class ImportedScores(NamedTuple):
    """Scores that were read from MTEB's result files."""

    scores: Mapping[ImportedModel, Mapping[str, MtebScore]]
    """The scores of each model by task of ours."""
    problems: Sequence[str]
    """A message on each file that is not valid."""


def read_mteb(path: Path, catalogue: Catalogue) -> ImportedScores:
    """Read a result file of MTEB's, or all below a folder, for the tasks that are also ours.

    Files that are not valid are skipped, each with a problem in what is returned.

    Raises:
        OutputError: There is no such file or folder.
        DataError: It holds no score of a task that is also ours.
    """
    if not path.exists():
        raise OutputError(f"{path}: there is no such file or folder of MTEB's results")
    if path.is_file():
        files = [path]
    else:
        files = sorted(file for file in path.rglob("*.json") if file.name != META_FILE)
    scores: dict[ImportedModel, dict[str, MtebScore]] = {}
    problems = []
    for file in files:
        try:
            scores_by_task = dict(_read_scores(file, catalogue))
        except DataError as error:
            problems.append(str(error))
            continue
        if scores_by_task:
            scores.setdefault(_read_model(file), {}).update(scores_by_task)
    if not scores:
        first_problem = f"; {problems[0]}" if problems else ""
        raise DataError(f"{path}: no score of a task that is also ours{first_problem}")
    return ImportedScores(scores, problems)


def _read_scores(path: Path, catalogue: Catalogue) -> Iterator[tuple[str, MtebScore]]:
    """Yield ``(task, score)`` for each task of ours that a result file of MTEB's has a score of.

    Raises:
        DataError: The file cannot be read, or a score is of other data or not valid.
    """
    try:
        file = msgspec.json.decode(path.read_bytes(), type=_ResultFile)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = join_lines(error)
        raise DataError(
            f"{path}: is not a result file of MTEB 1.11 or newer: {reason}; "
            "mteb itself reads older ones"
        ) from error
    for name, listed_task in read_mteb_tasks().items():
        if listed_task.name != file.task_name:
            continue
        task = find_mteb_task(name, catalogue)
        if task is None:
            continue
        split = task.splits[catalogue.task(task.task).score_split]
        subset_scores = _find_subset(file, split, task.subset)
        if subset_scores is None:
            continue
        if file.dataset_revision != task.revision:
            raise DataError(
                f"{path}: of dataset revision {file.dataset_revision[:12]}, "
                f"ours is {task.revision[:12]}: other data"
            )
        score = subset_scores.get(MTEB_METRIC)
        if not isinstance(score, float | int) or isinstance(score, bool) or not abs(score) <= 1:
            raise DataError(
                f"{path}: subset '{task.subset}': '{MTEB_METRIC}' is {score!r} and no correlation"
            )
        version = subset_scores.get("mteb_version") or file.mteb_version or "of unknown version"
        yield task.task, MtebScore(float(score), str(version))


def _find_subset(file: _ResultFile, split: str, subset: str) -> dict[str, Any] | None:
    """Return the scores of a subset in a result file; None if it has none."""
    for scores in file.scores.get(split, []):
        if scores.get("hf_subset") == subset:
            return scores
    return None


class _ModelMeta(msgspec.Struct):
    """The fields of MTEB's description of a model that are read."""

    name: str
    revision: str | None = None


def _read_model(file: Path) -> ImportedModel:
    """Return the model of a result file by its description, else by the names of its folders."""
    folder = file.absolute().parent
    try:
        meta = msgspec.json.decode((folder / META_FILE).read_bytes(), type=_ModelMeta)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ImportedModel(folder.parent.name.replace("__", "/"), folder.name)
    return ImportedModel(meta.name, revision=meta.revision or folder.name)


def add_imported_rows(table: Table, imported: ImportedScores) -> Table:
    """Return the table with a group of imported rows below its own, if any has a number.

    Best and second best are marked within each group.

    Raises:
        ProtocolError: The columns of the table are not scored as MTEB scores.
    """
    if not is_scored_as_mteb(table.columns):
        raise ProtocolError(
            f"'{table.name}' is not scored as MTEB scores: by Spearman over all pairs of a task"
        )
    key_by_task = {
        column.spec.task: column.key for column in table.columns if column.spec is not None
    }
    model_names = [model.name for model in imported.scores]
    rows = []
    for model, scores in imported.scores.items():
        points_by_key = {
            key_by_task[task]: 100 * mteb_score.score
            for task, mteb_score in scores.items()
            if task in key_by_task
        }
        if not points_by_key:
            continue
        has_namesake = model_names.count(model.name) > 1
        numbers = make_averaged_numbers(table.average_terms, points_by_key)
        versions = sorted({mteb_score.version for mteb_score in scores.values()})
        row = Row(
            label=f"{model.name} [{model.revision[:6]}]" if has_namesake else model.name,
            cells={key: TableCell(published=number) for key, number in numbers.items()},
            imported=", ".join(f"mteb {version}" for version in versions),
            traits=EncoderTraits(model=hub_address(model.name)),
        )
        rows.append(row)
    if not rows:
        return table
    group = Group(section=IMPORTED_SECTION, rows=sorted(rows, key=average_sort_key))
    return replace(table, groups=[*table.groups, group])
