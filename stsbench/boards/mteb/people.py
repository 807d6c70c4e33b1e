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
    """Read the results of people by task, with MTEB's names of subsets.

    Their files name subsets by codes of three letters, such as ``eng`` for ``en``.
    """
    return {
        result.task: _rename_subsets(result)
        for result in read_public_results()
        if (result.model, result.revision) == (PEOPLE, REVISION)
    }


def _rename_subsets(result: MtebResult) -> MtebResult:
    """Return a result whose subsets have the names of its task in place of language codes."""
    subset_by_code: dict[str, str] = {}
    for subset, languages in read_mteb_facts().tasks[result.task].subsets.items():
        # A language is a code and a script, such as ``deu-Latn``.
        language_code, _, _ = languages[0].partition("-")
        subset_by_code[language_code] = subset
    scores = {
        part._replace(subset=subset_by_code.get(part.subset, part.subset)): score
        for part, score in result.scores.items()
    }
    return result._replace(scores=scores)


def find_people_intervals(
    results: ResultsByTask, tasks: Mapping[str, BenchmarkTask], catalogue: Catalogue
) -> dict[str, PeopleInterval]:
    """Return the intervals of people's scores by task, and of their mean over all tasks.

    The interval of a mean is computed from those of its parts, which have no pairs in common. A
    task is missing if people did not score all parts of it, or if a part's number of pairs is not
    known. The mean has the key ``AVERAGE``; it is missing if any task is.

    Args:
        results: The results of people.
        tasks: The subsets and splits of the benchmark, by MTEB's name of the task.
        catalogue: The cards, which have the numbers of pairs.
    """
    counts = count_pairs(catalogue)
    task_means = []
    intervals: dict[str, PeopleInterval] = {}
    for task, benchmark_task in tasks.items():
        scores = results[task].scores if task in results else {}
        parts = benchmark_task.parts
        pair_counts = [counts.get((task, part), 0) for part in parts]
        if 0 in pair_counts or not {*parts} <= scores.keys():
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
    """Return a sentence with the interval of each task in points, and its number of pairs."""
    texts = [
        f"{task} {100 * interval.low:.1f}–{100 * interval.high:.1f} ({interval.n_pairs} pairs)"
        for task, interval in intervals.items()
        if task != AVERAGE
    ]
    return f"95% intervals by Fisher's z with Bonett and Wright's error: {', '.join(texts)}"
