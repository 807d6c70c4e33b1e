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


def find_task_or_suite_ids(name: str, catalogue: Catalogue) -> Sequence[str]:
    """Return the ids of tasks, or the id of one suite of tasks, that a name stands for.

    A name is an id, title or alias of ours, or else MTEB's name of the task. Upper and lower case
    are the same; if no name is equal, signs and blanks are ignored too. If MTEB uses the name for
    other tasks than we do, ours count, and a notice says so.

    Args:
        name: The name, as a user writes it.
        catalogue: The cards of tasks and suites.

    Returns:
        The ids; empty if no task or suite has the name.
    """
    if name in catalogue.paths("tasks") or name in catalogue.suites():
        return [name]
    for simplify in (str.casefold, _keep_letters_and_digits):
        # In the order ids, titles and aliases, MTEB's names: the first match counts.
        matches = [
            candidate
            for candidate in list_task_names(catalogue)
            if simplify(candidate.name) == simplify(name)
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


def _keep_letters_and_digits(name: str) -> str:
    """Return the letters and digits of a name in lower case: ``stsbenchmarkv2``."""
    return "".join(filter(str.isalnum, name.casefold()))


def known_names(catalogue: Catalogue) -> list[str]:
    """Return all names of tasks and suites for suggestions, ids last: they count most there."""
    return [task_name.name for task_name in reversed(list_task_names(catalogue))]


@lru_cache(maxsize=4)
def list_task_names(catalogue: Catalogue) -> Sequence[TaskName]:
    """Return all names of tasks and suites: ids, then titles and aliases, then MTEB's names."""
    return [*_iterate_own_names(catalogue), *_iterate_mteb_names(catalogue)]


def _iterate_own_names(catalogue: Catalogue) -> Iterator[TaskName]:
    suites = catalogue.suites()
    cards = {task: catalogue.task(task) for task in catalogue.paths("tasks")}
    yield from (TaskName(key, [key]) for key in [*suites, *cards])
    yield from (TaskName(suite.name, [key]) for key, suite in suites.items())
    for task, card in cards.items():
        yield from (TaskName(name, [task]) for name in [card.name, *card.aliases])


def _iterate_mteb_names(catalogue: Catalogue) -> Iterator[TaskName]:
    """Yield MTEB's names of tasks and benchmarks, each with the ids of ours that have its data.

    * MTEB's name of a task stands for our task with all its subsets. If there is none, it stands
      for our tasks of single subsets, or for the suite of exactly these.
    * MTEB's name of a benchmark stands for our suite of its STS tasks.
    """
    from stsbench.data.mteb.facts import list_matched_tasks

    # MTEB's name -> ids of our tasks.
    tasks_by_name: dict[str, list[str]] = {}
    tasks_with_all_subsets: dict[str, list[str]] = {}
    for task_id, matched_task in list_matched_tasks(catalogue).items():
        tasks_by_name.setdefault(matched_task.mteb_task, []).append(task_id)
        # The name of the subset is empty if our task has all subsets.
        if not matched_task.mteb_subset:
            tasks_with_all_subsets[matched_task.mteb_task] = [task_id]
    # Id -> suite; it has the ids of its tasks.
    suites = catalogue.suites()
    suite_ids_by_tasks = {frozenset(suite.tasks): [suite_id] for suite_id, suite in suites.items()}
    # On the right are the names that replace those on the left.
    for name, task_ids in (tasks_by_name | tasks_with_all_subsets).items():
        ids = suite_ids_by_tasks.get(frozenset(task_ids), task_ids)
        yield TaskName(name, ids, is_of_mteb=True)
    for suite_id, suite in suites.items():
        # The name of MTEB's benchmark; empty if the suite is none.
        if suite.mteb:
            yield TaskName(suite.mteb, [suite_id], is_of_mteb=True)
