"""Results as MTEB's result files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.boards.exports.hub import find_model
from stsbench.boards.mteb.scores import META_FILE, scores_by_mteb_subset
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError
from stsbench.core.files import safe_file_name, write_atomically
from stsbench.data.mteb.facts import MatchedTask, find_matched_task
from stsbench.results.record import Result

SCORE_DIGITS = 6
MTEB_VARIANTS = {"stsb": "stsb-raw", "sickr": "sickr-mteb"}
"""Our tasks with the data of MTEB's tasks, by the task that papers report in their place."""
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
    """A Result, and the task of MTEB's whose data it is on."""

    task: MatchedTask
    result: Result


def export_mteb(results: Sequence[Result], out: Path, catalogue: Catalogue) -> ExportedFiles:
    """Write results as files of the benchmark MTEB: ``out/results/<model>/<revision>/<task>.json``.

    Only results on the data of a task of MTEB are written. If that task has several subsets, there
    must be results on all. The first evaluation seed counts. ``mteb.ResultCache(out)`` reads the
    folder.

    The main score is the Spearman correlation of cosines over all pairs of a task or subset, which
    every result holds beside its own score. Correlations by Euclidean and Manhattan similarity
    are missing in results of early versions. ``mteb_version`` is null, as MTEB did not make them.

    Returns:
        The files that were written, and why other results were not.

    Raises:
        DataError: No cell can be exported; the message says why.
        OutputError: The folder cannot be written.
    """
    cells_by_path: dict[Path, list[_MtebCell]] = {}
    # Result, task and reason as one text; each text once.
    omitted: dict[str, None] = {}
    for result in sorted(results, key=_export_order):
        task, problem = _match_task(result, catalogue)
        if task is None:
            omitted[f"{result.encoder} on {result.task}: {problem}"] = None
            continue
        path = _result_path(result, task, out, catalogue)
        cells = cells_by_path.setdefault(path, [])
        # ``task`` is a task of MTEB with the subset of it that the result is of. Results are sorted
        # by seed, so the first one of a task, subset and split counts.
        has_cell = any((cell.task, cell.result.split) == (task, result.split) for cell in cells)
        if not has_cell:
            cells.append(_MtebCell(task, result))
    complete_cells_by_path = {}
    for path, cells in cells_by_path.items():
        # Those of the splits on which there are results for every subset of MTEB's task.
        complete_cells = list(_select_complete(cells, omitted))
        if complete_cells:
            complete_cells_by_path[path] = complete_cells
    if not complete_cells_by_path:
        raise DataError(
            f"nothing to export: {next(iter(omitted), 'there are no results')}",
            hint="the suite sts-mteb has the tasks with the data of MTEB's",
        )
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
    """Return the key that sorts results of a task and split by the seed of evaluation."""
    protocol_name = str(result.protocol["name"])
    return result.encoder, result.task, result.split, result.eval_seed, protocol_name


def _result_path(result: Result, task: MatchedTask, out: Path, catalogue: Catalogue) -> Path:
    """Return the path of MTEB's result file of a task below the folder ``out``."""
    model = find_model(result, catalogue)
    model_folder = safe_file_name(model.name.replace("/", "__").replace(" ", "_"), max_bytes=255)
    revision_folder = safe_file_name(model.revision, max_bytes=255)
    return out / "results" / model_folder / revision_folder / f"{task.mteb_task}.json"


def _model_content(result: Result, catalogue: Catalogue) -> dict[str, Any]:
    """Return the content of MTEB's file ``model_meta.json``, which describes a model.

    Fields that are not known (``UNKNOWN_META_KEYS``) are None.

    Args:
        result: A result of the model.
        catalogue: The cards of encoders.
    """
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


def _match_task(result: Result, catalogue: Catalogue) -> tuple[MatchedTask | None, str]:
    """Find the task of the benchmark MTEB that a result can be exported as.

    Returns:
        The task, and an empty text. If there is no such task, None, and the reason.
    """
    task = None
    if result.task in catalogue.paths("tasks"):
        task = find_matched_task(result.task, catalogue)
    if task is None:
        problem = "its data are not those of a task of MTEB's"
        # MTEB_VARIANTS: our task with the data of papers -> our task with those of MTEB.
        if result.task in MTEB_VARIANTS:
            problem += f"; those of {MTEB_VARIANTS[result.task]} are"
        return None, problem
    # There are no scores if the result was not scored by the cosine, or lacks a correlation.
    if not scores_by_mteb_subset(task, result):
        return None, "MTEB scores by the Spearman correlation of cosines"
    if result.split not in task.mteb_split_names:
        return None, f"MTEB has no split '{result.split}' of it"
    return task, ""


def _select_complete(cells: Sequence[_MtebCell], omitted: dict[str, None]) -> Iterator[_MtebCell]:
    """Yield the results of those splits of a task that have all subsets of MTEB's task.

    MTEB takes the mean over the subsets in a file: it would take some of them for all.

    Args:
        cells: Results on one task of MTEB, each with the task: ``cell.task``, ``cell.result``.
        omitted: For each result that is not yielded, the reason is added here as a key with the
            value None.
    """
    n_subsets_by_split: Counter[str] = Counter()
    for task, result in cells:
        n_subsets_by_split[result.split] += len(scores_by_mteb_subset(task, result))
    for cell in cells:
        task, result = cell
        n_subsets = n_subsets_by_split[result.split]
        if n_subsets == task.n_mteb_subsets:
            yield cell
        else:
            notice = (
                f"{result.encoder} on {result.task}: MTEB's {task.mteb_task} is of "
                f"{task.n_mteb_subsets} subsets, the results hold {n_subsets} of split "
                f"'{result.split}'; its file needs all"
            )
            omitted[notice] = None


def _task_content(cells: Sequence[_MtebCell]) -> dict[str, Any]:
    """Return the content of MTEB's file of results of one model on one task.

    Args:
        cells: Pairs of MTEB's task and a result of ours, for all splits and subsets of the task.
            ``result.run`` has the date (``created``, an ISO text) and the duration in ``seconds``.
    """
    scores_by_split: dict[str, list[dict[str, Any]]] = {}
    for task, result in cells:
        # MTEB's name of the split, by ours.
        split_scores = scores_by_split.setdefault(task.mteb_split_names[result.split], [])
        for subset, score in scores_by_mteb_subset(task, result).items():
            pearson = round(score.pearson, SCORE_DIGITS)
            spearman = round(score.spearman, SCORE_DIGITS)
            split_scores.append(
                {
                    # MTEB computes these two by the model's own similarity, by default the cosine.
                    "pearson": pearson,
                    "spearman": spearman,
                    "cosine_pearson": pearson,
                    "cosine_spearman": spearman,
                    # Correlations by other similarities, such as "euclidean_spearman".
                    **{
                        name: round(correlation, SCORE_DIGITS)
                        for name, correlation in score.further.items()
                    },
                    "main_score": spearman,
                    "hf_subset": subset,
                    "languages": task.languages_by_subset[subset],
                }
            )
    first_task = cells[0].task
    newest_cell = max(cells, key=lambda cell: str(cell.result.run.get("created", "")))
    return {
        "dataset_revision": first_task.revision,
        "task_name": first_task.mteb_task,
        "mteb_version": None,
        "scores": scores_by_split,
        "evaluation_time": sum(float(cell.result.run.get("seconds") or 0.0) for cell in cells),
        "kg_co2_emissions": None,
        "date": newest_cell.result.run.get("created"),
    }


def _encode_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
