"""MTEB's STS tasks, benchmarks and models, and the tasks of ours that have the same data.

The facts are those of the package ``mteb``; ``benchmarks/mteb_facts.py`` writes and checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from stsbench.core.cards import TaskCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.toml import StrictRecord, parse_toml
from stsbench.numbers.similarity import FURTHER_CORRELATIONS
from stsbench.results.record import Result

FOLDER = Path(__file__).parent
DEFAULT_SUBSET = "default"
"""MTEB's name for the only subset of a task."""


class MtebTask(StrictRecord, frozen=True, kw_only=True):
    """A task of MTEB: its dataset on the Hub, and what of it is scored."""

    repo: str
    revision: str
    splits: list[str]
    """MTEB's names of the splits; its score is the mean over all of them and all subsets."""
    subsets: dict[str, list[str]]
    """The languages of each subset, such as ``deu-Latn``."""


class BenchmarkTask(StrictRecord, frozen=True, kw_only=True):
    """The subsets and splits of a task that a benchmark takes the mean of."""

    subsets: list[str]
    splits: list[str]


class MtebFacts(StrictRecord, frozen=True, kw_only=True):
    """The tasks by name, and the STS tasks of each benchmark, as one version of MTEB has them."""

    mteb_version: str
    tasks: dict[str, MtebTask]
    benchmarks: dict[str, dict[str, BenchmarkTask]]


class ModelFacts(StrictRecord, frozen=True, kw_only=True):
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


class SameText(StrictRecord, frozen=True, kw_only=True):
    """A data revision that holds the text of the present one, and how that is known."""

    task: str
    revision: str
    evidence: str


class Suspect(StrictRecord, frozen=True, kw_only=True):
    """A public score that cannot be right, and why."""

    model: str
    task: str
    reason: str


class DataFacts(StrictRecord, frozen=True, kw_only=True):
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


class SubsetScore(NamedTuple):
    """The correlations of one subset, from -1 to 1."""

    spearman: float
    pearson: float
    further: Mapping[str, float]
    """Spearman's correlations by other similarities than cosine, such as ``euclidean_spearman``;
    those that the result holds."""


class MtebSubset(NamedTuple):
    """A subset of a task of MTEB's, or all, and the task of ours with the same pairs and text."""

    name: str
    """MTEB's name of the task."""
    subset: str
    """MTEB's name of the subset; empty if the task of ours has all subsets of MTEB's."""
    repo: str
    revision: str
    task: str
    """The task of ours."""
    splits: Mapping[str, str]
    """MTEB's names of the splits by ours."""

    @property
    def n_subsets(self) -> int:
        """The number of subsets of MTEB's task."""
        return len(self.languages_by_subset)

    @property
    def languages_by_subset(self) -> Mapping[str, list[str]]:
        """The languages of each subset of MTEB's task, such as ``deu-Latn``."""
        return read_mteb_facts().tasks[self.name].subsets

    def find_scores(self, result: Result) -> Mapping[str, SubsetScore]:
        """Return the correlations of a result of the task of ours, by subset of MTEB's.

        They are over all pairs of a subset. Empty if the result was not scored by cosines.
        """
        if result.protocol.get("similarity") != "cosine":
            return {}
        if not self.subset:
            return {
                subset: SubsetScore(scores["spearman"], scores["pearson"], _further_scores(scores))
                for subset, scores in result.per_subset.items()
                if {"spearman", "pearson"} <= scores.keys()
            }
        if not {"spearman.all", "pearson.all"} <= result.scores.keys():
            return {}
        scores = {
            name.removesuffix(".all"): score
            for name, score in result.scores.items()
            if name.endswith(".all")
        }
        score = SubsetScore(scores["spearman"], scores["pearson"], _further_scores(scores))
        return {self.subset: score}


def _further_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Select Spearman's correlations by further similarities."""
    return {name: scores[name] for name in FURTHER_CORRELATIONS if name in scores}


@lru_cache(maxsize=4)
def list_mteb_subsets(catalogue: Catalogue) -> Mapping[str, MtebSubset]:
    """Return the subset of MTEB's that each task of ours has the data of, by task of ours.

    A card has MTEB's data if it names the same dataset, revision and configuration on the Hub, or
    if the file of facts says so.
    """
    subsets = {}
    for task in catalogue.paths("tasks"):
        subset = _find_subset(task, catalogue.task(task))
        if subset is not None:
            subsets[task] = subset
    return subsets


def find_mteb_subset(task: str, catalogue: Catalogue) -> MtebSubset | None:
    """Return the subset of MTEB's with the data of a task of ours; None if there is none."""
    return list_mteb_subsets(catalogue).get(task)


def _find_subset(task: str, card: TaskCard) -> MtebSubset | None:
    """Return the subset of MTEB's with the data of a card; None if there is none."""
    data_facts = read_data_facts()
    if task in data_facts.other_data or card.evaluator != "sts":
        return None
    name = data_facts.same_data.get(task)
    if name is not None:
        # The card's own dataset is another copy, whose splits have our names.
        mteb_task = read_mteb_facts().tasks[name]
        splits = {card.score_split: mteb_task.splits[-1]}
        return _make_subset(name, DEFAULT_SUBSET, task, splits)
    if card.hub is None:
        return None
    for name, mteb_task in read_mteb_facts().tasks.items():
        is_same_data = (card.hub.repo, card.hub.revision) == (mteb_task.repo, mteb_task.revision)
        if not is_same_data:
            continue
        if {*card.hub.configs} == mteb_task.subsets.keys():
            return _make_subset(name, "", task, card.hub.splits)
        if len(mteb_task.subsets) == 1:
            return _make_subset(name, next(iter(mteb_task.subsets)), task, card.hub.splits)
        if card.hub.config in mteb_task.subsets:
            return _make_subset(name, card.hub.config, task, card.hub.splits)
    return None


def _make_subset(name: str, subset: str, task: str, splits: Mapping[str, str]) -> MtebSubset:
    """Return a subset of a task of MTEB's for a task of ours.

    Args:
        name: The name of MTEB's task.
        subset: The name of the subset.
        task: The id of our task with the same data.
        splits: MTEB's names of splits by ours.
    """
    mteb_task = read_mteb_facts().tasks[name]
    return MtebSubset(
        name=name,
        subset=subset,
        repo=mteb_task.repo,
        revision=mteb_task.revision,
        task=task,
        splits=splits,
    )
