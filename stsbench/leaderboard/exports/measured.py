"""What an encoder has on one task, split and protocol, with what the task's card tells other tools of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import TaskCard
from stsbench.compare.means import MEAN_METHOD, mean_interval
from stsbench.numbers.spread import Spread, spread
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.comparable import protocol_key
from stsbench.results.record import Result

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
