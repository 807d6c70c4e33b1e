"""MTEB's result files, and the public scores that are shipped as one table.

``benchmarks/mteb_scores.py`` makes the table from MTEB's repository of results.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from packaging.version import InvalidVersion, Version

from stsbench.boards.mteb.facts import DEFAULT_SUBSET, read_model_facts, read_mteb_facts
from stsbench.core.errors import DataError, OutputError
from stsbench.core.wording import join_lines

METRIC = "cosine_spearman"
META_FILE = "model_meta.json"
TABLE_FILE = Path(__file__).parent / "scores.csv.gz"
TABLE_COLUMNS = (
    "model",
    "revision",
    "task",
    "data_revision",
    "mteb_version",
    "split",
    "subset",
    "score",
)
SCORE_DIGITS = 6
UNKNOWN = "unknown"
"""A data revision or version of MTEB that a file does not name."""
UNKNOWN_REVISIONS = frozenset({"", "external", "no_revision_available"})
"""What MTEB's folders have in the place of a model's revision."""


class SplitAndSubset(NamedTuple):
    """The part of a task that one score is of, by MTEB's names."""

    split: str
    subset: str


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
    """The result files that were read, and a line on each file that cannot be read."""

    results: Sequence[MtebResult]
    problems: Sequence[str]


def read_mteb_files(path: Path) -> MtebResults:
    """Read a result file of MTEB's, or those of STS tasks in a folder and all folders below it.

    Files of other tasks are left out without a word. Files of before MTEB 1.11 are read as well.

    Raises:
        OutputError: There is no such file or folder.
        DataError: There is no result of a task of STS.
    """
    if not path.exists():
        raise OutputError(f"{path}: there is no such file or folder of MTEB's results")
    task_names = read_mteb_facts().tasks
    if path.is_file():
        files = [path]
    else:
        files = sorted(file for file in path.rglob("*.json") if file.stem in task_names)
    models_by_folder: dict[Path, _Model] = {}
    results = []
    problems = []
    for file in files:
        if file.parent not in models_by_folder:
            models_by_folder[file.parent] = _read_model(file.absolute().parent)
        try:
            result = _read_file(file, models_by_folder[file.parent])
        except DataError as error:
            problems.append(f"{file}: {error}")
            continue
        if result.task in task_names:
            results.append(result)
    if not results:
        first_problem = f"; {problems[0]}" if problems else ""
        raise DataError(f"{path}: no result of a task of STS{first_problem}")
    return MtebResults(results, problems)


class _Model(NamedTuple):
    name: str
    revision: str


class _ModelMeta(msgspec.Struct):
    """The fields of MTEB's description of a model that are read."""

    name: str
    revision: str | None = None


def _read_model(folder: Path) -> _Model:
    """Return the model of a folder of results by its description, else by the folders' names."""
    try:
        meta = msgspec.json.decode((folder / META_FILE).read_bytes(), type=_ModelMeta)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return _Model(folder.parent.name.replace("__", "/", 1), folder.name)
    return _Model(meta.name, revision=meta.revision or folder.name)


def _read_file(path: Path, model: _Model) -> MtebResult:
    """Read one result file.

    Raises:
        DataError: It cannot be read, or it has no valid score; the message does not name the file.
    """
    content = _parse_json(path)
    if "task_name" in content:
        task, subset_scores = _list_scores(content)
    elif "mteb_dataset_name" in content:
        task, subset_scores = _list_old_scores(content)
    else:
        raise DataError("is no result file of MTEB: it names no task")
    scores = {}
    for part, fields in subset_scores:
        score = _find_score(fields)
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


def _parse_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file, in which a number may be NaN.

    Raises:
        DataError: It cannot be read, or is no object.
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
        raise DataError(f"is not valid JSON: {join_lines(error)[:100]}") from error
    if not isinstance(content, dict):
        raise DataError("is no result file of MTEB: it is no JSON object")
    return content


SubsetScores = Iterator[tuple[SplitAndSubset, Mapping[str, Any]]]


def _list_scores(content: Mapping[str, Any]) -> tuple[str, SubsetScores]:
    """Return the task of a result file, and the fields of each split and subset."""

    def iterate() -> SubsetScores:
        splits = content.get("scores")
        for split, subsets in splits.items() if isinstance(splits, dict) else ():
            for fields in subsets if isinstance(subsets, list) else ():
                if isinstance(fields, dict):
                    subset = str(fields.get("hf_subset", DEFAULT_SUBSET))
                    yield SplitAndSubset(split, subset), fields

    return str(content["task_name"]), iterate()


def _list_old_scores(content: Mapping[str, Any]) -> tuple[str, SubsetScores]:
    """Return the task of a file of before MTEB 1.11, and the fields of each split and subset.

    Splits are keys beside the facts; a split holds the fields themselves or those by subset.
    """

    def iterate() -> SubsetScores:
        for split, subsets in content.items():
            if not isinstance(subsets, dict):
                continue
            if "cos_sim" in subsets:
                yield SplitAndSubset(split, DEFAULT_SUBSET), subsets
                continue
            for subset, fields in subsets.items():
                if isinstance(fields, dict):
                    yield SplitAndSubset(split, subset), fields

    return str(content["mteb_dataset_name"]), iterate()


def _find_score(fields: Mapping[str, Any]) -> float | None:
    """Return the Spearman correlation of cosines as a fraction; None if it is none.

    A number above 1 is a score in points, as some files have it.
    """
    cosine_scores = fields.get("cos_sim")
    old_score = cosine_scores.get("spearman") if isinstance(cosine_scores, dict) else None
    for value in (fields.get(METRIC), old_score, fields.get("main_score")):
        if isinstance(value, bool) or not isinstance(value, float | int):
            continue
        if math.isfinite(value) and abs(value) <= 100:
            return value / 100 if abs(value) > 1 else float(value)
    return None


def _text_or_unknown(value: object) -> str:
    # Some files have Python's None as a text.
    is_known = isinstance(value, str) and value not in ("", "None")
    return str(value) if is_known else UNKNOWN


def encode_table(results: Iterable[MtebResult]) -> bytes:
    """Return results as a compressed CSV table, the same bytes for the same results."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(TABLE_COLUMNS)
    # The first five fields of a result, all but its scores, are the first five columns.
    for result in sorted(results, key=lambda result: result[:5]):
        for (split, subset), score in sorted(result.scores.items()):
            writer.writerow([*result[:5], split, subset, f"{score:.{SCORE_DIGITS}f}"])
    return gzip.compress(text.getvalue().encode(), mtime=0)


@cache
def read_public_results() -> Sequence[MtebResult]:
    """Read the public scores that are shipped with the package."""
    results: dict[tuple[str, ...], dict[SplitAndSubset, float]] = {}
    with gzip.open(TABLE_FILE, "rt", encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        next(rows)
        for *facts, split, subset, score in rows:
            scores = results.setdefault(tuple(facts), {})
            scores[SplitAndSubset(split, subset)] = float(score)
    return [
        MtebResult(model, revision, task, data_revision, mteb_version, scores)
        for (model, revision, task, data_revision, mteb_version), scores in results.items()
    ]


ResultsByTask = Mapping[str, MtebResult]
"""The results of one model by MTEB's name of the task."""


def join_revisions(results: Iterable[MtebResult]) -> Mapping[str, ResultsByTask]:
    """Return one result per model and task, chosen among the model's revisions as MTEB chooses.

    The revision that MTEB's description of the model names comes first, then results that name
    their version of MTEB, then those that name a revision, then the newest version.

    Returns:
        The results by model and task.
    """
    chosen: dict[str, dict[str, MtebResult]] = {}
    for result in sorted(results, key=_preference, reverse=True):
        chosen.setdefault(result.model, {}).setdefault(result.task, result)
    return chosen


def _preference(result: MtebResult) -> tuple[bool, bool, bool, Version]:
    """Return the key by which MTEB prefers a result: the greatest is taken."""
    facts = read_model_facts().get(result.model)
    is_of_described_revision = facts is not None and result.revision == facts.revision
    has_revision = result.revision not in UNKNOWN_REVISIONS
    version = _parse_version(result.mteb_version)
    has_version = version is not None
    return is_of_described_revision, has_version, has_revision, version or Version("0")


@cache
def _parse_version(text: str) -> Version | None:
    """Return a version of MTEB; None for a text that is none, such as that of an unknown one."""
    try:
        return Version(text)
    except InvalidVersion:
        return None
