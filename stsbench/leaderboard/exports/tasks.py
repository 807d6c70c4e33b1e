"""Which tasks of ours have the data of a task of MTEB's."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.strict import Record, convert, parse_toml


class MtebFacts(Record, frozen=True, kw_only=True):
    """MTEB's name for a task, the languages it says of the subset, and where its data lie if not where ours do."""

    name: str
    languages: list[str]
    subsets: int = 1
    """How many subsets MTEB's task has."""
    repo: str = ""
    """MTEB's own dataset, where the card's ``[hub]`` is another source of the same data."""
    revision: str = ""


class MtebTask(NamedTuple):
    """A task of MTEB's as its result files name it; ``splits`` are MTEB's names by ours."""

    task: str
    name: str
    revision: str
    subset: str
    languages: list[str]
    splits: dict[str, str]
    repo: str
    subsets: int


@cache
def mteb_facts() -> dict[str, MtebFacts]:
    """MTEB's tasks by the name of ours with the same data."""
    path = Path(__file__).parent / "mteb_tasks.toml"
    return {task: convert(facts, MtebFacts, where=f"{path}: [{task}]") for task, facts in parse_toml(path).items()}


def mteb_task(task: str, catalogue: Catalogue) -> MtebTask | None:
    """MTEB's task with the data of this one of ours; None where there is none."""
    facts = mteb_facts().get(task)
    card = catalogue.task(task) if facts else None
    if facts is None or card is None or card.hub is None:
        return None
    if facts.repo:
        own = {card.score_split: card.score_split}
        return MtebTask(task, facts.name, facts.revision, "default", facts.languages, own, facts.repo, facts.subsets)
    hub = card.hub
    subset = hub.config or "default"
    return MtebTask(task, facts.name, hub.revision, subset, facts.languages, hub.splits, hub.repo, facts.subsets)
