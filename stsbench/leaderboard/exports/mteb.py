"""Results as MTEB's result files, laid out as its result cache and its public repository have them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.errors import DataError
from stsbench.files.whole import file_part, write_whole
from stsbench.leaderboard.exports.model import Model, model_of
from stsbench.leaderboard.exports.tasks import MtebTask, mteb_task
from stsbench.results.record import Result

DIGITS = 6
UNKNOWN = (
    *("loader", "release_date", "languages", "memory_usage_mb", "max_tokens", "license"),
    *("open_weights", "public_training_code", "public_training_data", "use_instructions", "training_datasets"),
)
"""What MTEB's description of a model must say, and results do not tell."""


class Exported(NamedTuple):
    """The files written, and the cells that no file of MTEB's may hold, each with the reason."""

    paths: list[Path]
    left_out: list[str]


def export_mteb(results: Sequence[Result], out: Path, catalogue: Catalogue) -> Exported:
    """Write ``out/results/<model>/<revision>/<task>.json`` for every cell whose data are MTEB's.

    A model has its id on the Hub where that is known, see :func:`model_of`. A task of several subsets is written where all are there.

    The main score is the Spearman correlation of cosines over all pairs of a task or language, whatever
    aggregation the result was scored by: a result holds that one too. Manhattan and Euclidean distances
    are not measured, and missing. ``mteb_version`` is null: MTEB did not make these scores.

    Args:
        results: any results; of several seeds of the evaluation the first counts, of several versions of a package the newest.
        out: what ``mteb.ResultCache(out)`` is to read.
        catalogue: cards of the project and of the user.

    Raises:
        DataError: not one cell can be exported; says why.
        OutputError: the folder cannot be written.
    """
    files: dict[Path, list[tuple[MtebTask, Result]]] = {}
    left_out: dict[str, None] = {}
    newest_first = sorted(results, key=lambda r: str(r.run.get("created", "")), reverse=True)
    for result in sorted(
        newest_first, key=lambda r: (r.encoder, r.task, r.split, r.eval_seed, str(r.protocol["name"]))
    ):
        task, why = _fitting(result, catalogue)
        if task is None:
            left_out[f"{result.encoder} on {result.task}: {why}"] = None
            continue
        cells = files.setdefault(_folder(out, model_of(result, catalogue)) / f"{task.name}.json", [])
        if all((task, result.split) != (other, one.split) for other, one in cells):
            cells.append((task, result))
    files = {path: whole for path, cells in files.items() if (whole := list(_whole(cells, left_out)))}
    if not files:
        raise DataError(f"nothing to export: {next(iter(left_out), 'there are no results')}")
    paths = [write_whole(path, _json(_task_result(cells))) for path, cells in files.items()]
    for folder, result in {path.parent: cells[0][1] for path, cells in files.items()}.items():
        write_whole(folder / "model_meta.json", _json(_model_meta(model_of(result, catalogue))))
    return Exported(paths, list(left_out))


def _fitting(result: Result, catalogue: Catalogue) -> tuple[MtebTask | None, str]:
    """MTEB's task for a result, or why there is none."""
    task = mteb_task(result.task, catalogue) if result.task in catalogue.paths("tasks") else None
    if task is None:
        return None, "its data are not those of a task of MTEB's"
    if result.protocol.get("similarity") != "cosine" or not {"spearman.all", "pearson.all"} <= set(result.scores):
        return None, "MTEB scores by the Spearman correlation of cosines"
    if result.split not in task.splits:
        return None, f"MTEB has no split '{result.split}' of it"
    return task, ""


def _whole(cells: Sequence[tuple[MtebTask, Result]], left_out: dict[str, None]) -> Iterator[tuple[MtebTask, Result]]:
    """The cells of splits of which all subsets are there: MTEB averages over a part as if it were the whole."""
    for task, result in cells:
        found = sum(other.split == result.split for _, other in cells)
        if found == task.subsets:
            yield task, result
        else:
            why = f"MTEB's {task.name} is of {task.subsets} subsets, the results hold {found} of split '{result.split}'"
            left_out[f"{result.encoder} on {result.task}: {why}"] = None


def _folder(out: Path, model: Model) -> Path:
    name = model.name.replace("/", "__").replace(" ", "_")
    return out / "results" / file_part(name, 255) / file_part(model.revision, 255)


def _task_result(cells: Sequence[tuple[MtebTask, Result]]) -> dict[str, Any]:
    scores: dict[str, list[dict[str, Any]]] = {}
    for task, result in cells:
        scores.setdefault(task.splits[result.split], []).append(dict(_scores(task, result)))
    newest = max(cells, key=lambda cell: str(cell[1].run.get("created", "")))[1]
    return {
        "dataset_revision": cells[0][0].revision,
        "task_name": cells[0][0].name,
        "mteb_version": None,
        "scores": scores,
        "evaluation_time": sum(float(result.run.get("seconds") or 0.0) for _, result in cells),
        "kg_co2_emissions": None,
        "date": newest.run.get("created"),
    }


def _scores(task: MtebTask, result: Result) -> Iterator[tuple[str, Any]]:
    # 'pearson' and 'spearman' are of the model's own similarity, cosine where it names none.
    for prefix in ("", "cosine_"):
        for metric in ("pearson", "spearman"):
            yield f"{prefix}{metric}", round(result.scores[f"{metric}.all"], DIGITS)
    yield "main_score", round(result.scores["spearman.all"], DIGITS)
    yield "hf_subset", task.subset
    yield "languages", task.languages


def _model_meta(model: Model) -> dict[str, Any]:
    known = {"name": model.name, "revision": model.revision}
    size = {"n_parameters": model.parameters, "embed_dim": model.dimensions}
    return {**known, **dict.fromkeys(UNKNOWN), **size, "framework": [], "similarity_fn_name": "cosine"}


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
