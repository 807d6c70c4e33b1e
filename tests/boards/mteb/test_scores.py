"""MTEB's result files of all versions, the table of public scores, and how revisions are joined."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from stsbench.boards.mteb.board import score_task
from stsbench.boards.mteb.scores import (
    MtebResult,
    join_revisions,
    read_mteb_files,
    read_public_results,
)
from stsbench.core.errors import DataError, OutputError
from stsbench.data.mteb.facts import (
    SplitAndSubset,
    list_same_text_revisions,
    read_data_facts,
    read_model_facts,
    read_mteb_facts,
)

STS12 = read_mteb_facts().tasks["STS12"].revision
DEFAULT = SplitAndSubset("test", "default")


def write_result(path: Path, score: object = 0.5, **changes: Any) -> Path:
    """Write a result file of MTEB 1.11 or newer; ``changes`` replace its fields."""
    fields = {"cosine_spearman": score, "hf_subset": "default", "languages": ["eng-Latn"]}
    content = {
        "dataset_revision": STS12,
        "task_name": "STS12",
        "mteb_version": "2.1.0",
        "scores": {"test": [fields]},
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def read_scores(path: Path) -> dict[str, dict[SplitAndSubset, float]]:
    return {result.task: dict(result.scores) for result in read_mteb_files(path).results}


def test_a_folder_of_models_is_read_and_other_tasks_are_not_mentioned(tmp_path):
    write_result(tmp_path / "org__first" / "rev1" / "STS12.json", 0.5)
    (tmp_path / "org__first" / "rev1" / "Banking77Classification.json").write_text("{")
    write_result(tmp_path / "second" / "rev2" / "STS12.json", 0.6)
    (tmp_path / "second" / "rev2" / "model_meta.json").write_text(
        '{"name": "org/second", "revision": "main", "loader": null}'
    )
    results, problems = read_mteb_files(tmp_path)
    assert [(result.model, result.revision, result.scores[DEFAULT]) for result in results] == [
        ("org/first", "rev1", 0.5),
        ("org/second", "main", 0.6),
    ]
    assert not problems


def test_a_description_without_a_revision_leaves_that_of_the_folder(tmp_path):
    path = write_result(tmp_path / "org__name" / "rev1" / "STS12.json")
    (path.parent / "model_meta.json").write_text('{"name": "org/name", "revision": null}')
    assert read_mteb_files(path).results[0][:2] == ("org/name", "rev1")


@pytest.mark.parametrize(
    ("content", "scores"),
    [
        ({"test": {"cos_sim": {"spearman": 0.5}, "evaluation_time": 2}}, {DEFAULT: 0.5}),
        (
            {"test": {"en-en": {"cos_sim": {"spearman": 0.5}}, "evaluation_time": 2}},
            {SplitAndSubset("test", "en-en"): 0.5},
        ),
        (
            {"validation": {"cos_sim": {"spearman": -0.5}}},
            {SplitAndSubset("validation", "default"): -0.5},
        ),
    ],
)
def test_files_of_before_1_11_are_read(tmp_path, content, scores):
    path = tmp_path / "STS12.json"
    path.write_text(json.dumps({"mteb_dataset_name": "STS12", **content}))
    (result,) = read_mteb_files(path).results
    assert (dict(result.scores), result.data_revision, result.mteb_version) == (
        scores,
        "unknown",
        "unknown",
    )


def test_not_a_number_in_an_unused_field_does_not_matter(tmp_path):
    path = tmp_path / "STS12.json"
    fields = '{"hf_subset": "default", "manhattan_pearson": NaN, "cosine_spearman": 0.5}'
    path.write_text(f'{{"task_name": "STS12", "scores": {{"test": [{fields}]}}}}')
    assert read_scores(path) == {"STS12": {DEFAULT: 0.5}}


@pytest.mark.parametrize(("score", "fraction"), [(0.5, 0.5), (50, 0.5), (1, 1.0), (-40.5, -0.405)])
def test_scores_in_points_are_read_as_fractions(tmp_path, score, fraction):
    path = write_result(tmp_path / "STS12.json", score)
    assert read_scores(path)["STS12"][DEFAULT] == pytest.approx(fraction, abs=1e-15)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"task_name": "STS12", "dataset_rev', "is not valid JSON: "),
        ("[]", "is no result file of MTEB: it is no JSON object"),
        ("{}", "is no result file of MTEB: it names no task"),
        ('{"task_name": "STS12", "scores": {}}', "holds no score 'cosine_spearman'"),
        ('{"task_name": "STS12", "scores": {"test": 1}}', "holds no score 'cosine_spearman'"),
        (
            '{"task_name": "STS12", "scores": {"test": [{"cosine_spearman": 101}]}}',
            "holds no score 'cosine_spearman' that is a correlation",
        ),
        (
            '{"task_name": "STS12", "scores": {"test": [{"cosine_spearman": NaN}]}}',
            "holds no score 'cosine_spearman' that is a correlation",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_one_short_line(tmp_path, content, problem):
    write_result(tmp_path / "a" / "rev" / "STS12.json")
    path = tmp_path / "b" / "rev" / "STS12.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    results, problems = read_mteb_files(tmp_path)
    assert len(results) == 1 and len(problems) == 1
    assert problems[0].startswith(f"{path}: {problem}") and "\n" not in problems[0]
    with pytest.raises(DataError, match="no result of a task of STS; "):
        read_mteb_files(path)


def test_a_folder_without_results_is_an_error(tmp_path):
    with pytest.raises(OutputError, match="there is no such file or folder of MTEB's results"):
        read_mteb_files(tmp_path / "gone")
    with pytest.raises(DataError, match="no result of a task of STS$"):
        read_mteb_files(tmp_path)


def make_mteb_result(model: str = "org/name", score: float = 0.5, **changes: Any) -> MtebResult:
    fields = {
        "revision": "rev",
        "task": "STS12",
        "data_revision": STS12,
        "mteb_version": "2.1.0",
        "scores": {DEFAULT: score},
        **changes,
    }
    return MtebResult(model=model, **fields)


MAIN = read_model_facts()["intfloat/e5-small"].revision


@pytest.mark.parametrize(
    ("preferred", "other"),
    [
        ({"revision": MAIN, "mteb_version": "1.0.0"}, {"mteb_version": "2.9.0"}),
        ({"revision": "external", "mteb_version": "1.0.0"}, {"mteb_version": "unknown"}),
        ({"mteb_version": "1.0.0"}, {"revision": "external", "mteb_version": "2.0.0"}),
        ({"mteb_version": "1.12.0"}, {"mteb_version": "1.9.0"}),
    ],
)
def test_revisions_are_joined_as_mteb_joins_them(preferred, other):
    model = "intfloat/e5-small"
    results = [
        make_mteb_result(model, 0.1, **other),
        make_mteb_result(model, 0.9, **preferred),
        make_mteb_result(model, 0.3, task="STS13", **other),
    ]
    for ordered_results in (results, results[::-1]):
        joined = join_revisions(ordered_results)[model]
        assert joined["STS12"].scores[DEFAULT] == 0.9
        assert joined["STS13"].scores[DEFAULT] == 0.3


def test_the_table_of_public_scores_is_the_same_for_the_same_results():
    results = [make_mteb_result("b", 0.123456), make_mteb_result("a", -0.5, task="STS13")]
    encode_table = importlib.import_module("benchmarks.mteb_scores").encode_table
    table = encode_table(results)
    assert table == encode_table(results[::-1])


def test_every_public_score_is_a_correlation_of_a_known_task():
    facts = read_mteb_facts()
    results = read_public_results()
    assert len(results) == 6944 and len({result.model for result in results}) == 380
    for result in results:
        task = facts.tasks[result.task]
        for (split, subset), score in result.scores.items():
            assert abs(score) <= 1 and split
            is_known = subset in task.subsets or result.data_revision != task.revision
            # The human row names languages by three letters.
            assert is_known or result.model == "baseline/Human"


BENCHMARK_MEANS = {
    "MTEB(eng, v1)": (193, 78.9495),
    "MTEB(eng, v2)": (208, 78.9450),
}
"""By MTEB's own package 2.26.24 on the same files: how many models have all tasks, and the mean of
all-MiniLM-L6-v2."""


@pytest.mark.parametrize(("benchmark", "expected"), BENCHMARK_MEANS.items())
def test_means_of_benchmarks_are_mtebs(benchmark, expected):
    tasks = read_mteb_facts().benchmarks[benchmark]
    means = {}
    for model, results in join_revisions(read_public_results()).items():
        scores = [score_task(results[task], tasks[task]) for task in tasks if task in results]
        points = [score.points for score in scores if score is not None]
        if len(points) == len(tasks):
            means[model] = fmean(points)
    assert (len(means), round(means["sentence-transformers/all-MiniLM-L6-v2"], 4)) == expected


def test_all_benchmarks_with_two_tasks_of_sts_are_known():
    facts = read_mteb_facts()
    assert len(facts.benchmarks) == 25
    for tasks in facts.benchmarks.values():
        assert len(tasks) >= 2
        for name, parts in tasks.items():
            assert {*parts.subsets} <= {*facts.tasks[name].subsets}
            assert {*parts.splits} <= {*facts.tasks[name].splits}


def test_each_revision_with_the_same_text_says_how_that_is_known():
    present_revisions = {name: task.revision for name, task in read_mteb_facts().tasks.items()}
    for same_text in read_data_facts().same_text:
        assert same_text.revision != present_revisions[same_text.task]
        assert len(same_text.revision) == 40 and "commit" in same_text.evidence
        assert {same_text.revision, present_revisions[same_text.task]} <= list_same_text_revisions(
            same_text.task
        )
