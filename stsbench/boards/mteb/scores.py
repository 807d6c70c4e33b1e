"""MTEB's result files, and the public scores that are shipped as one table.

``benchmarks/mteb_scores.py`` makes the table from MTEB's repository of results.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from packaging.version import InvalidVersion, Version

from stsbench.core.errors import DataError, OutputError
from stsbench.core.wording import as_one_line
from stsbench.data.mteb.facts import (
    DEFAULT_SUBSET,
    MatchedTask,
    SplitAndSubset,
    read_model_facts,
    read_mteb_facts,
)
from stsbench.numbers.similarity import FURTHER_CORRELATIONS
from stsbench.results.record import Result

METRIC = "cosine_spearman"
META_FILE = "model_meta.json"
TABLE_FILE = Path(__file__).parent / "scores.csv.gz"
SCORE_DIGITS = 6
UNKNOWN = "unknown"
"""A data revision or version of MTEB that a file does not name."""
UNKNOWN_REVISIONS = frozenset({"", "external", "no_revision_available"})
"""What MTEB's folders have in the place of a model's revision."""


class MtebResult(NamedTuple):
    """The scores of one model on one task of MTEB's, as one result file has them."""

    model: str
    revision: str
    """The revision of the model."""
    task: str
    data_revision: str
    mteb_version: str
    scores: Mapping[SplitAndSubset, float]
    """Spearman correlations of cosines, from -1 to 1."""


class MtebResults(NamedTuple):
    """The result files that were read, and the problems of those that cannot be read."""

    results: Sequence[MtebResult]
    problems: Sequence[str]
    """Messages that begin with the path of the file."""


def read_mteb_files(path: Path) -> MtebResults:
    """Read scores of tasks of semantic similarity (STS) from result files of the benchmark MTEB.

    Files of other tasks are skipped without a notice. Files of versions before MTEB 1.11 are read
    as well.

    Args:
        path: A result file, or a folder, which is searched with all folders below it.

    Returns:
        The results, one for each model and task, and a message on each file that cannot be read.

    Raises:
        OutputError: There is no such file or folder.
        DataError: No file holds a result of a task of STS.
    """
    if not path.exists():
        raise OutputError(f"{path}: there is no such file or folder of MTEB's results")
    sts_tasks = read_mteb_facts().tasks
    if path.is_file():
        result_files = [path]
    else:
        # MTEB names a result file by its task. Other files may be of anything.
        result_files = sorted(file for file in path.rglob("*.json") if file.stem in sts_tasks)
    models_by_folder: dict[Path, _Model] = {}
    results = []
    problems = []
    for file in result_files:
        folder = file.parent
        if folder not in models_by_folder:
            # Name and revision, by the folder's model_meta.json or the names of the folders.
            models_by_folder[folder] = _read_model(folder.absolute())
        try:
            result = _read_file(file, models_by_folder[folder])
        except DataError as error:
            problems.append(f"{file}: {error}")
            continue
        if result.task in sts_tasks:
            results.append(result)
    if not results:
        first_problem = f"; {problems[0]}" if problems else ""
        raise DataError(f"{path}: no result of a task of STS{first_problem}")
    return MtebResults(results, problems)


class _Model(NamedTuple):
    """The model that a folder of results is of."""

    name: str
    """Its id on the Hub, such as ``org/name``."""
    revision: str
    """Its revision, or the name of the folder where MTEB did not know it."""


class _ModelMeta(msgspec.Struct):
    """The fields of MTEB's description of a model that are read."""

    name: str
    """Its id on the Hub."""
    revision: str | None = None
    """The commit of its weights; None if MTEB did not know it."""


def _read_model(folder: Path) -> _Model:
    """Return the model of a folder of results by its description, else by the folders' names."""
    try:
        meta = msgspec.json.decode((folder / META_FILE).read_bytes(), type=_ModelMeta)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _Model(folder.parent.name.replace("__", "/", 1), folder.name)
    return _Model(meta.name, revision=meta.revision or folder.name)


def _read_file(path: Path, model: _Model) -> MtebResult:
    """Read one result file of MTEB: the scores of a model on a task.

    A split or subset without a valid score is omitted.

    Args:
        path: The file.
        model: The name and the revision of the model, which the file does not have.

    Raises:
        DataError: The file cannot be read, or no part has a valid score. The message does not name
            the file.
    """
    content = parse_json(path)
    task, part_metrics = list_metrics(content)
    scores = {}
    for part, metrics in part_metrics:
        score = _find_score(metrics)
        if score is not None:
            scores[part] = score
    if not scores:
        raise DataError(f"holds no score '{METRIC}' that is a correlation")
    return MtebResult(
        model.name,
        revision=model.revision,
        task=task,
        data_revision=_text_or_unknown(content.get("dataset_revision")),
        mteb_version=_text_or_unknown(content.get("mteb_version")),
        scores=scores,
    )


def parse_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, in which a number may be NaN.

    Raises:
        DataError: The file cannot be read, or holds no JSON object. The message does not name the
            file.
    """
    try:
        text = path.read_bytes()
        try:
            content = msgspec.json.decode(text)
        except msgspec.DecodeError:
            # msgspec is 20 times as fast, but reads no NaN, which MTEB writes for unused fields.
            content = json.loads(text)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not valid JSON: {as_one_line(error)[:100]}") from error
    if not isinstance(content, dict):
        raise DataError("is no result file of MTEB: it is no JSON object")
    return content


PartMetrics = Iterator[tuple[SplitAndSubset, Mapping[str, Any]]]
"""Parts of a task, each with the values of metrics that a result file has for it."""


def list_metrics(content: Mapping[str, Any]) -> tuple[str, PartMetrics]:
    """Return the task that a result file of MTEB is on, and its scores.

    Args:
        content: The object in the JSON file, of the present format or of that before MTEB 1.11.

    Returns:
        The name of the task, and an iterator over its parts: a split and subset, and the scores on
        it, by the name of the metric.

    Raises:
        DataError: The content is not that of a result file.
    """
    if "task_name" in content:
        return str(content["task_name"]), _iter_metrics(content)
    if "mteb_dataset_name" in content:
        return str(content["mteb_dataset_name"]), _iter_old_metrics(content)
    raise DataError("is no result file of MTEB: it names no task")


def _iter_metrics(content: Mapping[str, Any]) -> PartMetrics:
    """Yield each split and subset of a result file of MTEB, with its scores by name of the metric.

    The key ``scores`` of the file has a list for each split, and an element of it is the object of
    scores on one subset. Anything of another type is skipped. An object that names no subset is of
    the subset ``default``.

    Args:
        content: The object in the JSON file.
    """
    subsets_by_split = content.get("scores")
    if not isinstance(subsets_by_split, dict):
        return
    for split, subsets in subsets_by_split.items():
        if not isinstance(subsets, list):
            continue
        for metrics in subsets:
            if isinstance(metrics, dict):
                subset = str(metrics.get("hf_subset", DEFAULT_SUBSET))
                yield SplitAndSubset(split, subset), metrics


def _iter_old_metrics(content: Mapping[str, Any]) -> PartMetrics:
    """Yield each split and subset of a result file from before MTEB 1.11, with its scores by name.

    Each split is a key of the file itself. Its value has the scores of a task with one subset, or
    the scores by subset. Keys whose value is no object are no splits, and are skipped.

    Args:
        content: The object in the JSON file.
    """
    for split, value in content.items():
        if not isinstance(value, dict):
            continue
        # "cos_sim" is the name of a metric, so these are the scores of one subset, "default".
        metrics_by_subset = {DEFAULT_SUBSET: value} if "cos_sim" in value else value
        for subset, metrics in metrics_by_subset.items():
            if isinstance(metrics, dict):
                yield SplitAndSubset(split, subset), metrics


def _find_score(metrics: Mapping[str, Any]) -> float | None:
    """Return the Spearman correlation of cosines among the scores of a file of MTEB.

    The first valid number of three is taken: ``cosine_spearman`` (``METRIC``), the same in old
    files, and the main score. Some files have scores in points, so a number above 1 is divided by
    100.

    Args:
        metrics: The scores on one split and subset, by MTEB's name of the metric.

    Returns:
        The correlation, from -1 to 1; None if there is no valid one.
    """
    # Files from before MTEB 1.11 have it under the keys "cos_sim" and, within, "spearman".
    cosine_scores = metrics.get("cos_sim")
    old_score = cosine_scores.get("spearman") if isinstance(cosine_scores, dict) else None
    for value in (metrics.get(METRIC), old_score, metrics.get("main_score")):
        if isinstance(value, bool) or not isinstance(value, float | int):
            continue
        # NaN is not in this range.
        if abs(value) <= 100:
            return value / 100 if abs(value) > 1 else float(value)
    return None


def _text_or_unknown(value: object) -> str:
    """Return a text as it is; ``UNKNOWN`` for an empty text or a value that is no text."""
    # Some files have Python's None as a text.
    is_known = isinstance(value, str) and value not in ("", "None")
    return str(value) if is_known else UNKNOWN


@cache
def read_public_results() -> Sequence[MtebResult]:
    """Read MTEB's public scores, which are shipped with the package as a table in CSV.

    Returns:
        A result for each model, revision and task: its scores by split and subset.
    """
    scores_by_result: dict[tuple[str, str, str, str, str], dict[SplitAndSubset, float]] = {}
    with gzip.open(TABLE_FILE, "rt", encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        # The first row has the names of the columns.
        next(rows)
        for model, revision, task, data_revision, mteb_version, split, subset, score in rows:
            result_key = (model, revision, task, data_revision, mteb_version)
            scores = scores_by_result.setdefault(result_key, {})
            scores[SplitAndSubset(split, subset)] = float(score)
    return [MtebResult(*key, scores=scores) for key, scores in scores_by_result.items()]


ResultsByTask = Mapping[str, MtebResult]
"""The results of one model by MTEB's name of the task."""


def join_revisions(results: Iterable[MtebResult]) -> Mapping[str, ResultsByTask]:
    """Choose one result for each model and task, among those of several revisions of the model.

    The choice is MTEB's. It prefers, in this order, a result of the revision that MTEB's
    description of the model names, one that names its version of MTEB, one that names a revision,
    and one of the newest version of MTEB.

    Returns:
        Name of a model -> name of a task -> result.
    """
    chosen_results: dict[str, dict[str, MtebResult]] = {}
    for result in sorted(results, key=_preference_key, reverse=True):
        # setdefault keeps the first result of a model and task, which is the preferred one.
        chosen_results.setdefault(result.model, {}).setdefault(result.task, result)
    return chosen_results


def _preference_key(result: MtebResult) -> tuple[bool, bool, bool, Version]:
    """Return the key by which results of a model are sorted; MTEB prefers the greatest key.

    See :func:`join_revisions` for the order.
    """
    # MTEB's description of the model; None if there is none.
    facts = read_model_facts().get(result.model)
    is_of_described_revision = facts is not None and result.revision == facts.revision
    # Folders of MTEB may have "external" or "no_revision_available" in place of a revision.
    has_revision = result.revision not in UNKNOWN_REVISIONS
    version = parse_version(result.mteb_version)
    has_version = version is not None
    return is_of_described_revision, has_version, has_revision, version or Version("0")


@cache
def parse_version(text: str) -> Version | None:
    """Return a version of MTEB; None for a text that is none, such as that of an unknown one."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


class SubsetScore(NamedTuple):
    """The correlations of one subset, from -1 to 1."""

    spearman: float
    pearson: float
    further: Mapping[str, float]
    """Spearman's correlations by other similarities than cosine, such as ``euclidean_spearman``;
    those that the result holds."""


def scores_by_mteb_subset(task: MatchedTask, result: Result) -> Mapping[str, SubsetScore]:
    """Return the correlations in a result of ours as MTEB has them: one of each kind per subset.

    Each is over all pairs of the subset.

    Args:
        task: The task of MTEB with the same data. ``task.mteb_subset`` is the subset of it that our
            task is, or empty if our task has all its subsets.
        result: The result.

    Returns:
        MTEB's name of a subset -> correlations, from -1 to 1. A subset is missing if the result
        lacks Spearman's or Pearson's correlation of it. The mapping is empty if the result was not
        scored by the cosine.
    """
    if result.protocol.get("similarity") != "cosine":
        return {}
    if task.mteb_subset:
        # The name ``spearman.all`` is that of the correlation over all pairs of our task.
        scores_over_all_pairs = {
            name.removesuffix(".all"): score
            for name, score in result.scores.items()
            if name.endswith(".all")
        }
        scores_by_subset = {task.mteb_subset: scores_over_all_pairs}
    else:
        # MTEB's name of a subset -> name of a correlation, such as ``spearman`` -> score.
        scores_by_subset = result.per_subset
    return {
        subset: SubsetScore(
            spearman=scores["spearman"],
            pearson=scores["pearson"],
            further={name: scores[name] for name in FURTHER_CORRELATIONS if name in scores},
        )
        for subset, scores in scores_by_subset.items()
        if {"spearman", "pearson"} <= scores.keys()
    }
