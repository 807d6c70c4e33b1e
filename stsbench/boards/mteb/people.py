"""People who scored the pairs of HUME's tasks anew, and the intervals that so few pairs allow."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import NamedTuple

from stsbench.boards.mteb.scores import MtebResult, ResultsByTask, read_public_results
from stsbench.boards.tables.table import AVERAGE
from stsbench.core.catalogue import Catalogue
from stsbench.data.mteb.facts import BenchmarkTask, count_pairs, read_mteb_facts
from stsbench.numbers.intervals import mean_interval, spearman_interval

PEOPLE = "baseline/Human"
"""MTEB's name of the people, who stand among its models."""
REVISION = "v1.0"
"""The revision of their joint scores; others have those of each annotator, or old data."""


class PeopleInterval(NamedTuple):
    """The 95% interval of people's score, from -1 to 1, and the number of pairs that it is of."""

    low: float
    high: float
    n_pairs: int


def read_people_results() -> ResultsByTask:
    """Read the scores of people, who judged the same pairs of sentences as models, by task.

    They are part of MTEB's public results, under a name in place of a model's (``PEOPLE``).
    ``REVISION`` is that of their joint scores; others are those of one annotator, or on old data.
    Their files name subsets by codes of three letters; here they get MTEB's names, such as ``en``.
    """
    return {
        result.task: _rename_subsets(result)
        for result in read_public_results()
        if (result.model, result.revision) == (PEOPLE, REVISION)
    }


def _rename_subsets(result: MtebResult) -> MtebResult:
    """Return a result in which subsets have MTEB's names in place of codes of their languages.

    ``result.scores`` has a score for each part, a split and subset of the task. A code that no
    subset of the task has is left as it is.
    """
    # A language is a code and a script, such as ``deu-Latn``; the first language counts.
    subset_by_code = {
        languages[0].partition("-")[0]: subset
        for subset, languages in read_mteb_facts().tasks[result.task].subsets.items()
    }
    scores = {
        part._replace(subset=subset_by_code.get(part.subset, part.subset)): score
        for part, score in result.scores.items()
    }
    return result._replace(scores=scores)


def find_people_intervals(
    results: ResultsByTask, tasks: Mapping[str, BenchmarkTask], catalogue: Catalogue
) -> dict[str, PeopleInterval]:
    """Return the 95% intervals of people's scores on the tasks of a benchmark, and of their mean.

    The score of a task is the mean over its parts, splits and subsets. The interval of a part is by
    Fisher's z and its number of pairs. That of the mean is computed from those of the parts, which
    have no pairs of sentences in common: the squares of their half widths are added on each side.

    Args:
        results: Task -> the result of people.
        tasks: MTEB's name of a task -> the splits and subsets of it that the benchmark takes.
        catalogue: The cards, which have the numbers of pairs.

    Returns:
        Task -> interval, on the scale of scores. A task is missing if people did not score all its
        parts, or if the number of pairs of a part is not known. The mean over all tasks has the key
        ``AVERAGE``, and is missing if any task is.
    """
    counts = count_pairs(catalogue)
    task_means = []
    intervals: dict[str, PeopleInterval] = {}
    for task, benchmark_task in tasks.items():
        scores = results[task].scores if task in results else {}
        parts = benchmark_task.parts
        pair_counts = [counts.get((task, part), 0) for part in parts]
        has_all_scores = {*parts} <= scores.keys()
        if 0 in pair_counts or not has_all_scores:
            continue
        correlations = [scores[part] for part in parts]
        part_intervals = list(map(spearman_interval, correlations, pair_counts))
        low, high = mean_interval(correlations, part_intervals)
        task_means.append(fmean(correlations))
        intervals[task] = PeopleInterval(low, high, n_pairs=sum(pair_counts))
    if intervals and len(intervals) == len(tasks):
        task_intervals = [(interval.low, interval.high) for interval in intervals.values()]
        n_pairs = sum(interval.n_pairs for interval in intervals.values())
        low, high = mean_interval(task_means, task_intervals)
        intervals[AVERAGE] = PeopleInterval(low, high, n_pairs)
    return intervals


def describe_people_intervals(intervals: Mapping[str, PeopleInterval]) -> str:
    """Return a text with the 95% intervals of people's scores in points, and the numbers of pairs.

    Args:
        intervals: Task -> interval on the scale of scores; that of the average is left out.
    """
    texts = [
        f"{task} {100 * interval.low:.1f}–{100 * interval.high:.1f} ({interval.n_pairs} pairs)"
        for task, interval in intervals.items()
        if task != AVERAGE
    ]
    return f"95% intervals by Fisher's z with Bonett and Wright's error: {', '.join(texts)}"
