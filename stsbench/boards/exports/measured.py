"""A task, what MTEB and the Hub call it, and what an encoder has on it by one protocol: what all exports tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from stsbench.core.cards import EncoderCard, Record, TaskCard, convert, parse_toml
from stsbench.core.catalogue import Catalogue
from stsbench.numbers.statistics import CORRELATIONS, Spread, spread
from stsbench.results.record import Result, protocol_key
from stsbench.significance.means import MEAN_METHOD, mean_interval


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


class Model(NamedTuple):
    """An encoder by its id on the Hub, else under the organisation ``stsbench``; its weights and its embeddings' size."""

    name: str
    revision: str
    parameters: int | None
    dimensions: int | None


def model_of(result: Result, catalogue: Catalogue) -> Model:
    """The model that a result is of.

    Its name is the id on the Hub that its card tells, or the checkpoint's where that card alone describes it: several
    poolings of one checkpoint have names of their own. Only a result that carries the card's hash is the card's. Its
    revision is the Hub's commit, else the beginning of the fingerprint: it tells states apart.
    """
    card = catalogue.known_encoder(result.encoder, result.encoder_card)
    revision = result.revision or (result.fingerprint or "no_revision_available")[:40]
    name = result.encoder if "/" in result.encoder else f"stsbench/{result.encoder}"
    size = result.run.get("dimensions")
    dimensions = size if isinstance(size, int) else None
    if card is None or "+" in result.encoder:
        return Model(name, revision, None, dimensions)
    return Model(_hub_id(card, catalogue) or name, revision, card.parameters, dimensions or card.dimensions)


def _hub_id(card: EncoderCard, catalogue: Catalogue) -> str:
    model = card.params.get("model")
    alone = isinstance(model, str) and model.count("/") == 1 and _described(catalogue)[model] == 1
    return card.hub or (str(model) if alone else "")


@lru_cache(maxsize=4)
def _described(catalogue: Catalogue) -> Counter[str]:
    """How many cards describe each checkpoint."""
    models = (catalogue.encoder(name).params.get("model") for name in catalogue.paths("baselines"))
    return Counter(model for model in models if isinstance(model, str))


SOURCE = "https://github.com/stsbench/stsbench"


class HubTask(NamedTuple):
    """What an evaluator scores: the Hub's word for the task, the words people read, a protocol's metric if it names none."""

    task: str
    name: str
    metric: str = "score"


KINDS = {
    "sts": HubTask("semantic-similarity", "Semantic Similarity"),
    "relatedness": HubTask("semantic-similarity", "Semantic Similarity, trained regressor"),
    "probe": HubTask("text-classification", "Text Classification", "accuracy"),
    "retrieval": HubTask("image-text-retrieval", "Image-Text Retrieval"),
}
OTHER = HubTask("other", "Other")


class HubMetric(NamedTuple):
    """What a score measures, in the words of model cards."""

    type: str
    name: str


class Dataset(NamedTuple):
    """A task's dataset on the Hub, as others load it."""

    repo: str
    config: str | None
    split: str
    revision: str


class ScoreInterval(NamedTuple):
    """A score's 95% interval, in its unit, and how it was made."""

    low: float
    high: float
    method: str


class MeasuredScore(NamedTuple):
    """One encoder's results on a task and split by one protocol, one a seed."""

    results: Sequence[Result]
    card: TaskCard | None

    @property
    def first(self) -> Result:
        """What all of them share is set by any."""
        return self.results[0]

    @property
    def score(self) -> Spread:
        """The mean over seeds, and their deviation where there are several."""
        return spread([one.score for one in self.results])

    @property
    def interval(self) -> ScoreInterval | None:
        """The 95% interval: of one seed the result's own, of several that of their mean over other items and seeds.

        None where the mean of several has none, because per-item columns are missing.
        """
        if len(self.results) == 1:
            return ScoreInterval(*self.first.interval, self.first.interval_method)
        found = mean_interval([self.results])
        return ScoreInterval(*found, MEAN_METHOD) if found else None

    @property
    def newest(self) -> str | None:
        """When the last of them was made."""
        return max((str(one.run["created"]) for one in self.results if one.run.get("created")), default=None)

    @property
    def name(self) -> str:
        """What people call the task."""
        return self.card.name if self.card else self.first.task

    @property
    def kind(self) -> HubTask:
        """What is scored."""
        return KINDS.get(self.card.evaluator, OTHER) if self.card else OTHER

    @property
    def dataset(self) -> Dataset | None:
        """The dataset on the Hub; None where the task has none there."""
        hub = self.card.hub if self.card else None
        if hub is None:
            return None
        # An archive holds many datasets; those of one config would be taken for one.
        config = hub.config or (self.first.task if hub.archive else "")
        return Dataset(hub.repo, config or None, hub.splits.get(self.first.split, self.first.split), hub.revision)

    @property
    def metric(self) -> HubMetric:
        """The score's metric; those of STS have the names that sentence-transformers gives them."""
        protocol = self.first.protocol
        metric, similarity = str(protocol.get("metric", self.kind.metric)), protocol.get("similarity")
        words = CORRELATIONS[metric].label if metric in CORRELATIONS else metric.replace("_", " ").capitalize()
        if similarity is None:
            return HubMetric(metric, words)
        return HubMetric(f"{metric}_{similarity}", f"{words} of {similarity} ({protocol.get('aggregation')})")


def measured(results: Sequence[Result], catalogue: Catalogue) -> Iterator[MeasuredScore]:
    """One encoder's results, those of several seeds together."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.task, result.split, protocol_key(result.protocol)), []).append(result)
    for (task, _, _), same in groups.items():
        yield MeasuredScore(same, catalogue.task(task) if task in catalogue.paths("tasks") else None)
