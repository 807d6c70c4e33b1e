"""A task, what MTEB and the Hub call it, and what an encoder has on it by one protocol: what all exports tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from stsbench.core.cards import Record, TaskCard, parse_toml
from stsbench.core.catalogue import Catalogue
from stsbench.numbers.statistics import CORRELATIONS, Spread, spread
from stsbench.results.record import Result, protocol_key
from stsbench.significance.means import MEAN_METHOD, mean_interval


class MtebTask(Record, frozen=True, kw_only=True):
    """A task of MTEB's as its result files name it; ``splits`` are MTEB's names by ours.

    The file of the project says its name, the languages of the subset, how many ``subsets`` MTEB's task has, and where its data
    lie if not where ours do.
    """

    name: str
    languages: list[str]
    subsets: int = 1
    repo: str = ""
    revision: str = ""
    task: str = ""
    subset: str = "default"
    splits: dict[str, str] = {}


@cache
def mteb_facts() -> dict[str, MtebTask]:
    """MTEB's tasks by the name of ours with the same data."""
    return msgspec.convert(parse_toml(Path(__file__).parent / "mteb_tasks.toml"), dict[str, MtebTask])


def mteb_task(task: str, catalogue: Catalogue) -> MtebTask | None:
    """MTEB's task with the data of this one of ours; None where there is none."""
    facts = mteb_facts().get(task)
    card = catalogue.task(task) if facts else None
    if facts is None or card is None or card.hub is None:
        return None
    if facts.repo:
        return msgspec.structs.replace(facts, task=task, splits={card.score_split: card.score_split})
    hub = card.hub
    own = {"repo": hub.repo, "revision": hub.revision, "subset": hub.config or "default", "splits": hub.splits}
    return msgspec.structs.replace(facts, task=task, **own)


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
    model = card.params.get("model")
    is_alone = isinstance(model, str) and model.count("/") == 1 and _described(catalogue)[model] == 1
    return Model(
        card.hub or (str(model) if is_alone else name), revision, card.parameters, dimensions or card.dimensions
    )


@lru_cache(maxsize=4)
def _described(catalogue: Catalogue) -> Counter[str]:
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


class Dataset(NamedTuple):
    """A task's dataset on the Hub, as others load it; of a task that is none there, its name and no revision."""

    repo: str
    split: str
    config: str | None = None
    revision: str | None = None


class MeasuredScore(NamedTuple):
    """One encoder's results on a task and split by one protocol, one a seed: what all of them share is set by the first.

    ``score`` is the mean over seeds, ``newest`` when the last of them was made. ``metric`` is in the words of model cards,
    ``metric_name`` in those of people. The 95% interval is of one seed the result's own, of several that of their mean over
    other items and seeds; None where it has none, because per-item columns are missing.
    """

    results: Sequence[Result]
    first: Result
    card: TaskCard | None
    name: str
    kind: HubTask
    dataset: Dataset
    metric: str
    metric_name: str
    score: Spread
    interval: tuple[float, float] | None
    interval_method: str
    newest: str | None


def measured(results: Sequence[Result], catalogue: Catalogue) -> Iterator[MeasuredScore]:
    """One encoder's results, those of several seeds together."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.task, result.split, protocol_key(result.protocol)), []).append(result)
    for (task, split, _), same in groups.items():
        first, card = same[0], catalogue.task(task) if task in catalogue.paths("tasks") else None
        kind, dataset = KINDS.get(card.evaluator, OTHER) if card else OTHER, Dataset(task, split)
        if card and (hub := card.hub):
            # An archive holds many datasets; those of one config would be taken for one.
            config = hub.config or (task if hub.archive else "")
            dataset = Dataset(hub.repo, hub.splits.get(split, split), config or None, hub.revision)
        # Those of STS have the names that sentence-transformers gives them.
        metric, similarity = str(first.protocol.get("metric", kind.metric)), first.protocol.get("similarity")
        words = CORRELATIONS[metric].label if metric in CORRELATIONS else metric.replace("_", " ").capitalize()
        if similarity is not None:
            words = f"{words} of {similarity} ({first.protocol.get('aggregation')})"
            metric = f"{metric}_{similarity}"
        alone = len(same) == 1
        yield MeasuredScore(
            results=same,
            first=first,
            card=card,
            name=card.name if card else task,
            kind=kind,
            dataset=dataset,
            metric=metric,
            metric_name=words,
            score=spread([one.score for one in same]),
            interval=first.interval if alone else mean_interval([same]),
            interval_method=first.interval_method if alone else MEAN_METHOD,
            newest=max((str(one.run["created"]) for one in same if one.run.get("created")), default=None),
        )
