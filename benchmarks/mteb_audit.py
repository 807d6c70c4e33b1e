"""What does not fit in MTEB's public STS results: which scores, by how much, in which files.

    python benchmarks/mteb_audit.py            # prints the findings as markdown

It reads the table that is shipped with the package. A finding says that numbers do not fit each
other, and no more: a run may have failed, a file may have been edited, a prompt may be missing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from stsbench.boards.mteb.board import read_public_source
from stsbench.boards.mteb.scores import MtebResult, join_revisions, read_public_results
from stsbench.data.mteb.facts import SplitAndSubset, list_same_text_revisions, read_mteb_facts

SAME_PAIRS = (
    (
        "STSBenchmark",
        SplitAndSubset("test", "default"),
        "STSBenchmarkMultilingualSTS",
        SplitAndSubset("test", "en"),
    ),
)
"""Parts of two tasks that hold the same pairs."""
MAX_DIFFERENCE = 2.0
"""Points by which two scores on the same pairs may differ: prompts and precision differ too."""
MAX_TWICE_DIVIDED = 0.011
"""A score below this is one in points that was divided by 100 twice, if others are like theirs."""
MAX_DISTANCE = 0.2
"""How far such a score, times 100, may lie from the median of the model's scores."""
MAX_RESIDUAL = -40.0
"""Points by which a score lies below what model and language let expect."""
MIN_EQUAL_SCORES = 5
"""As many scores must be equal for two models to be called alike."""
MAX_SHOWN = 40


class Finding(NamedTuple):
    """One thing that does not fit."""

    files: str
    """The folder of the model and its revision, and the task's file."""
    fact: str
    size: float
    """By how much it does not fit; the largest are shown first."""


def name_file(result: MtebResult, task: str = "") -> str:
    """Return the path of a result file in the repository, without the leading ``results``."""
    folder = result.model.replace("/", "__")
    return f"{folder}/{result.revision[:8]}/{task or result.task}.json"


def compare_same_pairs(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield models with two scores on the same pairs that differ."""
    result_by_key = {(result.model, result.revision, result.task): result for result in results}
    for (model, revision, task), result in result_by_key.items():
        for first_task, first_part, second_task, second_part in SAME_PAIRS:
            second = result_by_key.get((model, revision, second_task))
            if task != first_task or second is None:
                continue
            scores = (result.scores.get(first_part), second.scores.get(second_part))
            if None in scores:
                continue
            first_points, second_points = (100 * (score or 0.0) for score in scores)
            difference = abs(first_points - second_points)
            if difference > MAX_DIFFERENCE:
                yield Finding(
                    f"{name_file(result)}, {second_task}.json ({second_part.subset})",
                    f"{first_points:.2f} and {second_points:.2f} on the same 1,379 pairs",
                    difference,
                )


def find_other_scales(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield files whose scores are of another scale than the model's other ones."""
    scores_by_model: dict[str, list[float]] = {}
    for result in results:
        scores_by_model.setdefault(result.model, []).extend(result.scores.values())
    for result in results:
        usual_score = statistics.median(scores_by_model[result.model])
        small_scores = [score for score in result.scores.values() if 0 < score < MAX_TWICE_DIVIDED]
        if len(small_scores) <= len(result.scores) / 2:
            continue
        small_score = statistics.median(small_scores)
        if abs(100 * small_score - usual_score) < MAX_DISTANCE:
            fact = (
                f"median {small_score:.6f} of {len(result.scores)} scores; "
                f"the median of all of the model's scores is {usual_score:.2f}"
            )
            yield Finding(name_file(result), fact, usual_score / small_score)


def find_low_subsets(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield scores far below what the model's other subsets and other models let expect.

    The expected score of a model on a subset is the median of the model, plus the median over
    models of the difference of the subset's score to the model's median.
    """
    for task, facts in read_mteb_facts().tasks.items():
        if len(facts.subsets) < 3:
            continue
        of_task = [result for result in results if result.task == task]
        parts = sorted({part for result in of_task for part in result.scores})
        scores = np.array(
            [[100 * result.scores.get(part, np.nan) for part in parts] for result in of_task]
        )
        enough = np.isfinite(scores).sum(axis=1) >= 3
        model_medians = np.full(len(of_task), np.nan)
        model_medians[enough] = np.nanmedian(scores[enough], axis=1)
        offsets = scores - model_medians[:, None]
        residuals = offsets - np.nanmedian(offsets[enough], axis=0)
        for row, column in zip(*np.nonzero(residuals < MAX_RESIDUAL), strict=True):
            expected = scores[row, column] - residuals[row, column]
            fact = (
                f"{parts[column].subset}: {scores[row, column]:.2f}, where {expected:.2f} "
                "would be like its other languages"
            )
            yield Finding(name_file(of_task[row]), fact, -float(residuals[row, column]))


def find_mixed_revisions(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield benchmarks whose means hold tasks of which models were scored on other data."""
    joined = join_revisions(results)
    for benchmark, tasks in read_mteb_facts().benchmarks.items():
        n_complete = 0
        tasks_with_other_data: dict[str, int] = {}
        n_mixed = 0
        for results_by_task in joined.values():
            if not tasks.keys() <= results_by_task.keys():
                continue
            n_complete += 1
            others = [
                task
                for task in tasks
                if results_by_task[task].data_revision not in list_same_text_revisions(task)
            ]
            n_mixed += bool(others)
            for task in others:
                tasks_with_other_data[task] = tasks_with_other_data.get(task, 0) + 1
        if n_mixed:
            counts = ", ".join(f"{task} {count}" for task, count in tasks_with_other_data.items())
            yield Finding(
                benchmark,
                f"{n_mixed} of {n_complete} models with all tasks, by task: {counts}",
                n_mixed,
            )


def find_copies(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield pairs of models with equal scores on several tasks."""
    scores_by_model: dict[str, dict[tuple[str, SplitAndSubset], float]] = {}
    for model, results_by_task in join_revisions(results).items():
        scores_by_model[model] = {
            (task, part): score
            for task, result in results_by_task.items()
            for part, score in result.scores.items()
        }
    models_by_score: dict[tuple[tuple[str, SplitAndSubset], float], list[str]] = {}
    for model, scores in scores_by_model.items():
        for key, score in scores.items():
            models_by_score.setdefault((key, score), []).append(model)
    n_equal: dict[tuple[str, str], int] = {}
    for models in models_by_score.values():
        for pair in combinations(sorted(models), 2):
            n_equal[pair] = n_equal.get(pair, 0) + 1
    for (first, second), count in n_equal.items():
        n_shared = len(scores_by_model[first].keys() & scores_by_model[second].keys())
        if count >= MIN_EQUAL_SCORES:
            yield Finding(
                f"{first}, {second}", f"{count} of {n_shared} scores are equal", count / n_shared
            )


def count_revisions(results: Sequence[MtebResult]) -> Iterator[Finding]:
    """Yield tasks with several data revisions, and how many files each has."""
    counts: Mapping[str, dict[str, int]] = {task: {} for task in read_mteb_facts().tasks}
    for result in results:
        revisions = counts[result.task]
        revisions[result.data_revision] = revisions.get(result.data_revision, 0) + 1
    for task, revisions in counts.items():
        if len(revisions) < 2:
            continue
        same_text = list_same_text_revisions(task)
        words = [
            f"{revision[:8]} {count}" + ("" if revision in same_text else " (not known)")
            for revision, count in sorted(revisions.items(), key=lambda item: -item[1])
        ]
        yield Finding(task, ", ".join(words), len(revisions))


def print_findings(title: str, explanation: str, findings: Iterable[Finding]) -> None:
    """Print one kind of finding as a section with a table, the largest first."""
    ordered = sorted(findings, key=lambda finding: -finding.size)
    count = f"{len(ordered)} finding{'s' * (len(ordered) != 1)}"
    print(f"\n## {title}\n\n{explanation} {count}.\n")
    if not ordered:
        return
    print("| where | what |\n| --- | --- |")
    for finding in ordered[:MAX_SHOWN]:
        print(f"| {finding.files} | {finding.fact} |")
    if len(ordered) > MAX_SHOWN:
        print(f"\n{len(ordered) - MAX_SHOWN} more are not listed.")


def main() -> None:
    """Print all findings."""
    results = read_public_results()
    n_scores = sum(len(result.scores) for result in results)
    n_models = len({result.model for result in results})
    commit = read_public_source()["commit"]
    print(
        "# What does not fit in MTEB's public STS results\n\n"
        "This page is what `python benchmarks/mteb_audit.py` prints. A finding says that numbers "
        "do not fit each other, and\nno more: a run may have failed, a file may have been edited, "
        "a prompt may be missing. No model is accused of anything.\n\n"
        f"{n_scores:,} scores of {n_models} models in {len(results):,} files, "
        f"commit {commit[:8]} of embeddings-benchmark/results."
    )
    print_findings(
        "The same pairs under two names",
        "The test pairs of STSBenchmark are those of STSBenchmarkMultilingualSTS in English. "
        f"Scores that differ by more than {MAX_DIFFERENCE:g} points:",
        compare_same_pairs(results),
    )
    print_findings(
        "Scores of another scale",
        "Most scores of the file look like points that were divided by 100 twice:",
        find_other_scales(results),
    )
    print_findings(
        "Data revisions of a task",
        "One column holds files of several data revisions. Those marked are not known to hold the "
        "text of the present one:",
        count_revisions(results),
    )
    print_findings(
        "Means over other data",
        "Models whose mean over a benchmark's tasks holds a score of a data revision that is not "
        "known to hold the same text:",
        find_mixed_revisions(results),
    )
    print_findings(
        "Languages far below a model's others",
        f"Scores at least {-MAX_RESIDUAL:g} points below what the model's other languages and "
        "other models let expect. Many are true: a model may not know a language.",
        find_low_subsets(results),
    )
    print_findings(
        "Models with equal scores",
        f"Pairs of models with at least {MIN_EQUAL_SCORES} equal scores, to all digits that are "
        "kept here:",
        find_copies(results),
    )


if __name__ == "__main__":
    main()
