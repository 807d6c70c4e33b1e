"""Tasks and suites by any name that people have for them: ours, the papers' and MTEB's."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchNotice


class TaskName(NamedTuple):
    """A name of tasks, and the ids that it stands for."""

    name: str
    ids: Sequence[str]
    """The ids of tasks, or of one suite."""
    is_of_mteb: bool = False


def find_ids(name: str, catalogue: Catalogue) -> Sequence[str]:
    """Return the ids of tasks, or the id of one suite, that a name in any case stands for.

    An id or title of ours comes before a name of MTEB's. A notice is issued if MTEB's name of the
    same spelling stands for other tasks. Signs and blanks do not count if nothing else fits.

    Args:
        name: The name, as a user writes it.
        catalogue: The cards of tasks and suites.

    Returns:
        The ids; empty if no task or suite has the name.
    """
    if name in catalogue.paths("tasks") or name in catalogue.suites():
        return [name]
    for fold in (str.casefold, _fold_signs):
        matches = [
            candidate
            for candidate in list_task_names(catalogue)
            if fold(candidate.name) == fold(name)
        ]
        if not matches:
            continue
        ids = matches[0].ids
        for match in matches:
            if match.is_of_mteb and match.ids != ids:
                warnings.warn(
                    f"'{name}' is {', '.join(ids)}; MTEB's {match.name} is {', '.join(match.ids)}",
                    StsbenchNotice,
                    stacklevel=2,
                )
        return ids
    return []


def _fold_signs(name: str) -> str:
    """Return the letters and digits of a name in lower case: ``stsbenchmarkv2``."""
    return "".join(filter(str.isalnum, name.casefold()))


def known_names(catalogue: Catalogue) -> list[str]:
    """Return all names of tasks and suites for suggestions, ids last: they count most there."""
    return [task_name.name for task_name in reversed(list_task_names(catalogue))]


@lru_cache(maxsize=4)
def list_task_names(catalogue: Catalogue) -> Sequence[TaskName]:
    """Return all names of tasks and suites: ids, then titles, then MTEB's names."""
    return [*_iterate_own_names(catalogue), *_iterate_mteb_names(catalogue)]


def _iterate_own_names(catalogue: Catalogue) -> Iterator[TaskName]:
    suites = catalogue.suites()
    cards = {task: catalogue.task(task) for task in catalogue.paths("tasks")}
    yield from (TaskName(key, [key]) for key in [*suites, *cards])
    yield from (TaskName(suite.name, [key]) for key, suite in suites.items())
    for task, card in cards.items():
        yield from (TaskName(name, [task]) for name in [card.name, *card.aliases])


def _iterate_mteb_names(catalogue: Catalogue) -> Iterator[TaskName]:
    """Yield the names of MTEB's tasks, and of its benchmarks for the suites of their STS tasks."""
    from stsbench.data.mteb.facts import list_matched_tasks

    tasks_by_name: dict[str, list[str]] = {}
    tasks_with_all_subsets: dict[str, list[str]] = {}
    for task, matched_task in list_matched_tasks(catalogue).items():
        tasks_by_name.setdefault(matched_task.mteb_task, []).append(task)
        if not matched_task.mteb_subset:
            tasks_with_all_subsets[matched_task.mteb_task] = [task]
    suites = catalogue.suites()
    suite_by_tasks = {frozenset(suite.tasks): [key] for key, suite in suites.items()}
    for name, tasks in (tasks_by_name | tasks_with_all_subsets).items():
        ids = suite_by_tasks.get(frozenset(tasks), tasks)
        yield TaskName(name, ids, is_of_mteb=True)
    for key, suite in suites.items():
        if suite.mteb:
            yield TaskName(suite.mteb, [key], is_of_mteb=True)
