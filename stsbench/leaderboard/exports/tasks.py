"""Which tasks of ours have the data of a task of MTEB's."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from stsbench.cards import Catalogue
from stsbench.strict import Record, convert, parse_toml


class MtebFacts(Record, frozen=True, kw_only=True):
    """MTEB's name for a task, and the languages it says of the subset."""

    name: str
    languages: list[str]


class MtebTask(NamedTuple):
    """A task of MTEB's as its result files name it; ``splits`` are MTEB's names by ours."""

    task: str
    name: str
    revision: str
    subset: str
    languages: list[str]
    splits: dict[str, str]


@cache
def mteb_facts() -> dict[str, MtebFacts]:
    """MTEB's tasks by the name of ours with the same data."""
    path = Path(__file__).parent / "mteb_tasks.toml"
    return {task: convert(facts, MtebFacts, where=f"{path}: [{task}]") for task, facts in parse_toml(path).items()}


def mteb_task(task: str, catalogue: Catalogue) -> MtebTask | None:
    """MTEB's task with the data of this one of ours; None where there is none."""
    facts = mteb_facts().get(task)
    hub = catalogue.task(task).hub if facts else None
    if facts is None or hub is None:
        return None
    return MtebTask(task, facts.name, hub.revision, hub.config or "default", facts.languages, hub.splits)
