"""MTEB's STS tasks, benchmarks and models, and the tasks of ours that have the same data.

The facts are those of the package ``mteb``; ``benchmarks/mteb_facts.py`` writes and checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from stsbench.core.cards import HubSource, TaskCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.toml import StrictRecord, parse_toml

FOLDER = Path(__file__).parent
DEFAULT_SUBSET = "default"
"""MTEB's name for the only subset of a task."""


class MtebTask(StrictRecord):
    """A task of MTEB: its dataset on the Hub, and what of it is scored."""

    repo: str
    revision: str
    splits: list[str]
    """MTEB's names of the splits; its score is the mean over all of them and all subsets."""
    subsets: dict[str, list[str]]
    """The languages of each subset, such as ``deu-Latn``."""


class SplitAndSubset(NamedTuple):
    """The part of a task that one score is of, by MTEB's names."""

    split: str
    subset: str


class BenchmarkTask(StrictRecord):
    """The subsets and splits of a task that a benchmark takes the mean of."""

    subsets: list[str]
    splits: list[str]

    @property
    def parts(self) -> list[SplitAndSubset]:
        """Every subset of every split."""
        return [SplitAndSubset(split, subset) for split in self.splits for subset in self.subsets]


class MtebFacts(StrictRecord):
    """The tasks by name, and the STS tasks of each benchmark, as one version of MTEB has them."""

    mteb_version: str
    tasks: dict[str, MtebTask]
    benchmarks: dict[str, dict[str, BenchmarkTask]]


class ModelFacts(StrictRecord):
    """What MTEB's description of a model says; None or empty if it does not say it."""

    revision: str | None
    """The revision whose results MTEB prefers."""
    parameters: int | None
    dimensions: int | None
    languages: list[str]
    """ISO 639-3 codes."""
    license: str
    year: int | None
    is_open: bool | None
    """Whether its weights can be had."""
    trained_on: list[str] | None
    """The STS tasks among its training sets; None if these are not public."""


@cache
def read_mteb_facts() -> MtebFacts:
    """Read the facts of MTEB's STS tasks and benchmarks."""
    return msgspec.json.decode((FOLDER / "tasks.json").read_bytes(), type=MtebFacts)


@cache
def read_model_facts() -> Mapping[str, ModelFacts]:
    """Read what MTEB says of the models with public scores, by name."""
    return msgspec.json.decode((FOLDER / "models.json").read_bytes(), type=dict[str, ModelFacts])


class SameText(StrictRecord):
    """A data revision that holds the text of the present one, and how that is known."""

    task: str
    revision: str
    evidence: str


class Suspect(StrictRecord):
    """A public score that cannot be right, and why."""

    model: str
    task: str
    reason: str


class DataFacts(StrictRecord):
    """Which data are the same: of tasks of ours and MTEB's, and of revisions of MTEB's."""

    same_data: dict[str, str]
    """MTEB's tasks by tasks of ours whose card names another dataset with the same pairs."""
    other_data: list[str]
    """Tasks of ours whose card names MTEB's dataset, but whose local files have other text."""
    same_text: list[SameText]
    suspect: list[Suspect]


@cache
def read_data_facts() -> DataFacts:
    """Read which data of ours and of MTEB's are the same."""
    return msgspec.convert(parse_toml(FOLDER / "data.toml"), DataFacts)


@cache
def list_same_text_revisions(task: str) -> frozenset[str]:
    """Return all data revisions of a task of MTEB's with the text of the present one."""
    older_revisions = {
        same_text.revision for same_text in read_data_facts().same_text if same_text.task == task
    }
    return frozenset({read_mteb_facts().tasks[task].revision, *older_revisions})


@cache
def read_suspects() -> Mapping[tuple[str, str], str]:
    """Return why a public score cannot be right, by model and task."""
    return {(suspect.model, suspect.task): suspect.reason for suspect in read_data_facts().suspect}


class MatchedTask(NamedTuple):
    """A task of ours that has the same pairs and text as a task of MTEB's, or one subset of it."""

    our_task: str
    mteb_task: str
    mteb_subset: str
    """MTEB's name of the subset; empty if the task of ours has all subsets of MTEB's."""
    mteb_split_names: Mapping[str, str]
    """MTEB's names of the splits by ours."""
    repo: str
    """MTEB's dataset on the Hub."""
    revision: str
    """The revision of that dataset."""

    @property
    def n_mteb_subsets(self) -> int:
        """The number of subsets of MTEB's task."""
        return len(self.languages_by_subset)

    @property
    def languages_by_subset(self) -> Mapping[str, list[str]]:
        """The languages of each subset of MTEB's task, such as ``deu-Latn``."""
        return read_mteb_facts().tasks[self.mteb_task].subsets


@lru_cache(maxsize=4)
def list_matched_tasks(catalogue: Catalogue) -> Mapping[str, MatchedTask]:
    """Return our tasks that have the data of a task of MTEB: our id -> MTEB's names of it.

    Each match has MTEB's names of the task, its subset and its splits.

    A task has MTEB's data if its card names the same dataset, revision and configuration on the
    Hub, or if the package's list of equal data has it.

    Args:
        catalogue: The cards of our tasks.
    """
    matched_tasks = {}
    for task_id in catalogue.paths("tasks"):
        matched_task = _match_card(task_id, catalogue.task(task_id))
        if matched_task is not None:
            matched_tasks[task_id] = matched_task
    return matched_tasks


PairCounts = Mapping[tuple[str, SplitAndSubset], int]
"""Numbers of pairs by MTEB's name of a task, and the split and subset."""


@lru_cache(maxsize=4)
def count_pairs(catalogue: Catalogue) -> PairCounts:
    """Return how many pairs each subset of each split of MTEB's tasks has.

    Args:
        catalogue: The cards of our tasks, which have the numbers.

    Returns:
        (MTEB's name of a task, its split and subset) -> the number of pairs. Subsets whose number
        no card has are absent.
    """
    counts = {}
    # Our tasks that have the data of MTEB's.
    for matched_task in list_matched_tasks(catalogue).values():
        task_card = catalogue.task(matched_task.our_task)
        for our_split, mteb_split in matched_task.mteb_split_names.items():
            split_card = task_card.splits[our_split]
            # Name of the subset -> number of pairs; empty if the split has no subsets.
            n_pairs_by_subset = split_card.subsets
            # MTEB's name; empty if our task has all subsets of MTEB's, by the same names.
            if matched_task.mteb_subset:
                # The split of our task is one subset of MTEB's; its n is None if it is not known.
                n_pairs_by_subset = {matched_task.mteb_subset: split_card.n or 0}
            for subset, n_pairs in n_pairs_by_subset.items():
                if n_pairs:
                    counts[matched_task.mteb_task, SplitAndSubset(mteb_split, subset)] = n_pairs
    return counts


def find_matched_task(task: str, catalogue: Catalogue) -> MatchedTask | None:
    """Return what of MTEB's has the data of a task of ours; None if MTEB does not have them."""
    return list_matched_tasks(catalogue).get(task)


def _match_card(task: str, card: TaskCard) -> MatchedTask | None:
    """Find the task of MTEB, or the subset of one, with the data of one of our tasks.

    Args:
        task: Our id of the task.
        card: The card of that task.

    Returns:
        Our id, with MTEB's names of the task, of the subset and of the splits; None if MTEB does
        not have the data, or the task is not of semantic similarity.
    """
    # What is known about equal data, beside what cards say. other_data: tasks whose card names
    # MTEB's dataset, but whose local files have other text. same_data: task -> MTEB's task with the
    # same pairs, though the card names another dataset.
    data_facts = read_data_facts()
    if task in data_facts.other_data or card.evaluator != "sts":
        return None
    mteb_tasks = read_mteb_facts().tasks
    if task in data_facts.same_data:
        mteb_name = data_facts.same_data[task]
        subset = DEFAULT_SUBSET  # MTEB's name for the only subset of a task
        # The card names another copy of the dataset, so its names of splits are not MTEB's. The
        # scored split is the last one that MTEB lists.
        split_names: Mapping[str, str] = {card.score_split: mteb_tasks[mteb_name].splits[-1]}
    else:
        match = _match_hub_dataset(card.hub) if card.hub is not None else None
        if match is None or card.hub is None:
            return None
        mteb_name, subset = match
        # Our name of a split -> the name in the dataset.
        split_names = card.hub.splits
    return MatchedTask(
        our_task=task,
        mteb_task=mteb_name,
        mteb_subset=subset,
        mteb_split_names=split_names,
        repo=mteb_tasks[mteb_name].repo,
        revision=mteb_tasks[mteb_name].revision,
    )


def _match_hub_dataset(hub: HubSource) -> tuple[str, str] | None:
    """Return MTEB's names of the task and of the subset that have the dataset of a card.

    * The dataset and its revision must be the same.
    * If the card has the configurations of all subsets, the name of the subset is empty.
    * Else it is the subset with the name of the card's configuration, or the only subset.

    Args:
        hub: The part of a task's card about the Hub.

    Returns:
        The two names; None if MTEB has no such task or subset.
    """
    for name, mteb_task in read_mteb_facts().tasks.items():
        is_same_dataset = (hub.repo, hub.revision) == (mteb_task.repo, mteb_task.revision)
        if not is_same_dataset:
            continue
        if {*hub.configs} == mteb_task.subsets.keys():
            return name, ""
        if len(mteb_task.subsets) == 1:
            (only_subset,) = mteb_task.subsets
            return name, only_subset
        if hub.config in mteb_task.subsets:
            return name, hub.config
    return None
