"""People who scored the pairs of HUME's tasks anew, and the intervals that so few pairs allow."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import NamedTuple

from stsbench.boards.mteb.facts import BenchmarkTask, list_mteb_subsets, read_mteb_facts
from stsbench.boards.mteb.scores import (
    MtebResult,
    ResultsByTask,
    SplitAndSubset,
    read_public_results,
)
from stsbench.boards.tables.table import AVERAGE
from stsbench.core.catalogue import Catalogue
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
    """Return a result with the subsets of its task in place of codes of languages."""
    subset_by_code: dict[str, str] = {}
    for subset, languages in read_mteb_facts().tasks[result.task].subsets.items():
        subset_by_code[languages[0].partition("-")[0]] = subset
    scores = {
        SplitAndSubset(part.split, subset_by_code.get(part.subset, part.subset)): score
        for part, score in result.scores.items()
    }
    return result._replace(scores=scores)


def find_people_intervals(
    results: ResultsByTask, tasks: Mapping[str, BenchmarkTask], catalogue: Catalogue
) -> dict[str, PeopleInterval]:
    """Return the intervals of people's scores by task, and of their mean over all tasks.

    Subsets and tasks have no pairs in common, so the interval of a mean is made of theirs. The key
    of the mean is that of the column; it is missing if a task is. Empty if people scored no task.

    Args:
        results: The results of people.
        tasks: The subsets and splits of the benchmark, by MTEB's name of the task.
        catalogue: The cards, which have the numbers of pairs.
    """
    means = []
    intervals: dict[str, PeopleInterval] = {}
    for task, parts in tasks.items():
        scores = results[task].scores if task in results else {}
        keys = [SplitAndSubset(split, subset) for split in parts.splits for subset in parts.subsets]
        counts = [_count_pairs(task, key, catalogue) for key in keys]
        if 0 in counts or not {*keys} <= scores.keys():
            continue
        correlations = [scores[key] for key in keys]
        part_intervals = list(map(spearman_interval, correlations, counts))
        means.append(fmean(correlations))
        intervals[task] = PeopleInterval(*mean_interval(correlations, part_intervals), sum(counts))
    if intervals and len(means) == len(tasks):
        task_intervals = [(interval.low, interval.high) for interval in intervals.values()]
        n_pairs = sum(interval.n_pairs for interval in intervals.values())
        intervals[AVERAGE] = PeopleInterval(*mean_interval(means, task_intervals), n_pairs)
    return intervals


def describe_people_intervals(intervals: Mapping[str, PeopleInterval]) -> str:
    """Return the intervals of tasks in points, with the number of pairs of each."""
    texts = [
        f"{task} {100 * interval.low:.1f}–{100 * interval.high:.1f} ({interval.n_pairs} pairs)"
        for task, interval in intervals.items()
        if task != AVERAGE
    ]
    return f"95% intervals by Fisher's z with Bonett and Wright's error: {', '.join(texts)}"


def _count_pairs(task: str, part: SplitAndSubset, catalogue: Catalogue) -> int:
    """Return the number of pairs of a part of a task of MTEB's; 0 if no card has it."""
    for subset in list_mteb_subsets(catalogue).values():
        splits = [split for split, name in subset.splits.items() if name == part.split]
        if subset.name != task or not splits:
            continue
        section = catalogue.task(subset.task).splits[splits[0]]
        return section.subsets.get(part.subset, 0) if section.subsets else section.n or 0
    return 0
