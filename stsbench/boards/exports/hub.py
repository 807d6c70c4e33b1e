"""What exports tell of an encoder, for a model's page on the Hub (``model-index``, ``.eval_results``) and Every Eval Ever."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from stsbench.core.cards import TaskCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError
from stsbench.core.files import write_atomically
from stsbench.core.toml import StrictRecord, parse_toml
from stsbench.core.wording import join_lines
from stsbench.numbers.statistics import CORRELATIONS, MeanAndDeviation, mean_and_deviation
from stsbench.results.record import ANY_VALUE, Result, protocol_key, score_bounds, score_name
from stsbench.significance.means import MEAN_METHOD, compute_mean_interval

if TYPE_CHECKING:
    from huggingface_hub import EvalResult


def model_index(name: str, results: Sequence[Result], catalogue: Catalogue) -> list[dict[str, Any]]:
    """The ``model-index`` of one encoder's results, as ``huggingface_hub`` makes it; ``name`` is what the card calls the model.

    Scores are as in results, from 0 to 1. Each says the protocol it was scored by in the metric's
    ``args``, and its 95% interval; several seeds are their mean, with how many there are and their deviation.
    """
    from huggingface_hub.repocard_data import ModelCardData

    card = ModelCardData(
        model_name=name, eval_results=[one.hub_result for one in average_seeds(results, catalogue)]
    )
    index: list[dict[str, Any]] = card.to_dict()["model-index"]  # type: ignore[no-untyped-call]
    return index


def to_yaml(index: Sequence[dict[str, Any]]) -> str:
    """The metadata block of a model card that holds nothing else."""
    from huggingface_hub import CardData

    card = CardData()
    card["model-index"] = list(index)
    return f"---\n{card.to_yaml()}\n---\n"


def write_card(path: Path, index: Sequence[dict[str, Any]]) -> None:
    """Put the index into a model card, whose other metadata and text stay; or make a card of nothing else.

    Raises:
        OutputError: the file cannot be read or written, or its metadata are no YAML.
    """
    from huggingface_hub import RepoCard
    from yaml import YAMLError  # type: ignore[import-untyped]

    if not path.exists():
        write_atomically(path, to_yaml(index).encode())
        return
    try:
        card = RepoCard(path.read_text(encoding="utf-8"), ignore_metadata_errors=True)
    except (OSError, UnicodeDecodeError, ValueError, YAMLError) as error:
        raise OutputError(
            f"{path}: its metadata cannot be read: {join_lines(error)[:200]}"
        ) from error
    card.data["model-index"] = list(index)
    write_atomically(path, str(card).encode())


def eval_results(results: Sequence[Result], catalogue: Catalogue) -> tuple[str, list[str]]:
    """The YAML of one encoder's results on tasks that are datasets on the Hub, and a line for each cell that it cannot hold.

    The dataset is MTEB's where the data are, and the task is then called as MTEB calls it. Values are as in results, from 0 to 1;
    ``notes`` hold the protocol, without which no two values may be compared, and the 95% interval; several seeds are their mean.

    Raises:
        DataError: no task of theirs is a dataset on the Hub.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    from yaml import safe_dump

    entries, left_out = [], []
    for one in average_seeds(results, catalogue):
        first, hub = one.results[0], one.card.hub if one.card else None
        if theirs := find_mteb_task(first.task, catalogue) if one.card else None:
            repo, revision = theirs.repo, theirs.revision
            task = theirs.name if theirs.subset == "default" else theirs.subset
        elif hub and not hub.archive:
            repo, task, revision = hub.repo, hub.config or first.task, hub.revision
        else:
            left_out.append(
                f"{first.encoder} on {first.task}: it is no dataset of its own on the Hub"
            )
            continue
        source = {
            "source_url": SOURCE,
            "source_name": "stsbench",
            "date": one.newest_time,
            "notes": _notes(one),
        }
        entries.append(
            EvalResultEntry(repo, task, one.score.mean, dataset_revision=revision, **source)
        )
    if not entries:
        raise DataError(f"nothing to export: {left_out[0]}")
    text: str = safe_dump(
        eval_result_entries_to_yaml(entries), sort_keys=False, allow_unicode=True, width=1000
    )
    return text, left_out


def _notes(one: MeasuredScore) -> str:
    first, over = one.results[0], ""
    words = f"{one.hub_result.metric_name}, {first.split} split, n = {first.n}, protocol {first.protocol['name']}"
    if one.score.deviation is not None:
        words += f"; mean of {len(one.results)} seeds, deviation {one.score.deviation:.4f}"
        over = " over items and seeds"
    return (
        f"{words}; 95% interval{over} {one.interval[0]:.4f} to {one.interval[1]:.4f}"
        if one.interval
        else words
    )


SCHEMA_VERSION = "0.3.0"


def every_eval_ever(results: Sequence[Result], catalogue: Catalogue) -> str:
    """The JSON of one encoder's results: one record of one evaluation run.

    What made the scores is as in results: data, revision, split and all fields of the protocol; each score has its
    95% interval, that of several seeds being of their mean, beside their deviation. It is made at the time of the newest result, and so the same whenever it is made.
    """
    cells, first = list(average_seeds(results, catalogue)), results[0]
    model, run = find_model(first, catalogue), first.run
    try:
        newest = max(filter(None, (one.newest_time for one in cells)), default="")
        seconds = str(int(datetime.fromisoformat(newest).timestamp()))
    except ValueError:
        # The time is not known.
        seconds = "0"
    facts = {
        "deployment_type": "self_deployed",
        "model_availability": "unknown",
        "revision": model.revision,
        "fingerprint": first.fingerprint,
        "parameters": model.parameters,
        "dimensions": model.dimensions,
        "dtype": run.get("dtype"),
    }
    record = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"stsbench/{model.name}/{seconds}",
        "evaluation_timestamp": seconds,
        "retrieved_timestamp": seconds,
        "source_metadata": {
            "source_name": "stsbench",
            "source_type": "evaluation_run",
            "source_organization_name": "stsbench",
            "source_organization_url": SOURCE,
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": "stsbench",
            "version": str(run.get("versions", {}).get("stsbench", "unknown")),
            "additional_details": _strings(
                {"commit": run.get("commit"), **run.get("versions", {})}
            ),
        },
        "model_info": {
            "name": first.encoder,
            "id": model.name,
            "additional_details": _strings(facts),
        },
        "evaluation_results": [_evaluation(one) for one in cells],
    }
    return json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _evaluation(one: MeasuredScore) -> dict[str, Any]:
    first, said = one.results[0], one.hub_result
    facts = {"task": first.task, "split": first.split, "data": first.data, "overlap": first.overlap}
    source: dict[str, Any] = {"dataset_name": said.dataset_name, "source_type": "other"}
    if said.dataset_revision is not None:
        source |= {
            "source_type": "hf_dataset",
            "hf_repo": said.dataset_type,
            "hf_split": said.dataset_split,
        }
        details = _strings({"revision": said.dataset_revision, "config": said.dataset_config})
        source |= {"samples_number": first.n, "additional_details": details}
    uncertainty: dict[str, Any] = {"num_samples": first.n}
    if one.interval is not None:
        ends = dict(zip(("lower", "upper"), one.interval, strict=True))
        method = first.interval_method if len(one.results) == 1 else MEAN_METHOD
        uncertainty["confidence_interval"] = {**ends, "confidence_level": 0.95, "method": method}
    return {
        "evaluation_result_id": f"{first.task}.{first.split}.{first.cell_id}",
        "evaluation_name": said.dataset_name,
        "source_data": source,
        "metric_config": _metric(said, first.protocol),
        "score_details": {
            "score": one.score.mean,
            "details": _strings(
                {**facts, "seeds": len(one.results), "deviation": one.score.deviation}
            ),
            "uncertainty": uncertainty,
        },
    }


def _metric(said: EvalResult, protocol: Mapping[str, Any]) -> dict[str, Any]:
    # The schema writes an end that is nowhere so.
    low, high = (
        f"{'-' if end < 0 else ''}Infinity" if abs(end) >= ANY_VALUE[1] else round(end)
        for end in score_bounds(score_name(protocol))
    )
    metric = str(protocol.get("metric", said.metric_type))
    return {
        "evaluation_description": f"{said.task_name}: {said.metric_name}, by the protocol '{protocol['name']}'",
        "metric_id": said.metric_type,
        "metric_name": said.metric_name,
        "metric_kind": metric,
        "metric_unit": "correlation" if metric in CORRELATIONS else "proportion",
        # A parameter may be no list.
        "metric_parameters": {
            key: json.dumps(list(value)) if isinstance(value, list | tuple) else value
            for key, value in protocol.items()
        },
        "lower_is_better": False,
        "score_type": "continuous",
        "min_score": low,
        "max_score": high,
    }


def _strings(facts: dict[str, Any]) -> dict[str, str]:
    """What is known, as texts: other values are not allowed there."""
    return {key: str(value) for key, value in facts.items() if value is not None}


class MtebTask(StrictRecord, frozen=True, kw_only=True):
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
def read_mteb_tasks() -> dict[str, MtebTask]:
    """MTEB's tasks by the name of ours with the same data."""
    return msgspec.convert(
        parse_toml(Path(__file__).parent / "mteb_tasks.toml"), dict[str, MtebTask]
    )


def find_mteb_task(task: str, catalogue: Catalogue) -> MtebTask | None:
    """MTEB's task with the data of this one of ours; None where there is none."""
    facts = read_mteb_tasks().get(task)
    if facts is None or (hub := catalogue.task(task).hub) is None:
        return None
    if facts.repo:
        split = catalogue.task(task).score_split
        return msgspec.structs.replace(facts, task=task, splits={split: split})
    own = {
        "repo": hub.repo,
        "revision": hub.revision,
        "subset": hub.config or "default",
        "splits": hub.splits,
    }
    return msgspec.structs.replace(facts, task=task, **own)


class HubModel(NamedTuple):
    """An encoder by its id on the Hub, else under the organisation ``stsbench``; its weights and its embeddings' size."""

    name: str
    revision: str
    parameters: int | None
    dimensions: int | None


def find_model(result: Result, catalogue: Catalogue) -> HubModel:
    """The model that a result is of.

    Its name is the id on the Hub that its card tells, or the checkpoint's where that card alone describes it: several
    poolings of one checkpoint have names of their own. Only a result that carries the card's hash is the card's. Its
    revision is the Hub's commit, else the beginning of the fingerprint: it tells states apart.
    """
    card = catalogue.known_encoder(result.encoder, result.encoder_card)
    revision = result.revision or (result.fingerprint or "no_revision_available")[:40]
    name = result.encoder if "/" in result.encoder else f"stsbench/{result.encoder}"
    dimensions = result.run.get("dimensions")
    if card is None or "+" in result.encoder:
        return HubModel(name, revision, None, dimensions)
    model = str(card.params.get("model", ""))
    is_alone = model.count("/") == 1 and _described(catalogue)[model] == 1
    return HubModel(
        card.hub or (model if is_alone else name),
        revision,
        card.parameters,
        dimensions or card.dimensions,
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


HUB_TASKS = {
    "sts": HubTask("semantic-similarity", "Semantic Similarity"),
    "relatedness": HubTask("semantic-similarity", "Semantic Similarity, trained regressor"),
    "probe": HubTask("text-classification", "Text Classification", "accuracy"),
    "retrieval": HubTask("image-text-retrieval", "Image-Text Retrieval"),
}
OTHER_TASK = HubTask("other", "Other")


class MeasuredScore(NamedTuple):
    """One encoder's results on a task and split by one protocol, one a seed: what all of them share is set by the first.

    ``said`` is what a model card says of them, ``score`` the mean over seeds, ``newest`` when the last of them was made. The 95%
    interval is of one seed the result's own, of several that of their mean over other items and seeds; None where it has none,
    because per-item columns are missing.
    """

    results: Sequence[Result]
    card: TaskCard | None
    hub_result: EvalResult
    score: MeanAndDeviation
    interval: tuple[float, float] | None
    newest_time: str | None


def average_seeds(results: Sequence[Result], catalogue: Catalogue) -> Iterator[MeasuredScore]:
    """One encoder's results, those of several seeds together."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.task, result.split, protocol_key(result.protocol)), []).append(
            result
        )
    for (task, _, _), same in groups.items():
        card = catalogue.task(task) if task in catalogue.paths("tasks") else None
        score = mean_and_deviation([one.score for one in same])
        interval = same[0].interval if len(same) == 1 else compute_mean_interval([same])
        arguments = dict(same[0].protocol)
        if score.deviation is not None:
            arguments |= {"seeds": len(same), "deviation": score.deviation}
        if interval is not None:
            arguments["interval"] = list(interval)
        said = _eval_result(same[0], card, score.mean, arguments)
        newest = max(
            (str(one.run["created"]) for one in same if one.run.get("created")), default=None
        )
        yield MeasuredScore(same, card, said, score, interval, newest)


def _eval_result(
    first: Result, card: TaskCard | None, score: float, arguments: dict[str, Any]
) -> EvalResult:
    from huggingface_hub import EvalResult

    hub, kind = (
        card.hub if card else None,
        HUB_TASKS.get(card.evaluator, OTHER_TASK) if card else OTHER_TASK,
    )
    # Those of STS have the names that sentence-transformers gives them.
    metric, similarity = (
        str(first.protocol.get("metric", kind.metric)),
        first.protocol.get("similarity"),
    )
    words = (
        CORRELATIONS[metric].label
        if metric in CORRELATIONS
        else metric.replace("_", " ").capitalize()
    )
    if similarity is not None:
        words = f"{words} of {similarity} ({first.protocol.get('aggregation')})"
        metric = f"{metric}_{similarity}"
    # An archive holds many datasets; those of one config would be taken for one.
    config = hub and (hub.config or (first.task if hub.archive else ""))
    return EvalResult(
        task_type=kind.task,
        task_name=kind.name,
        dataset_type=hub.repo if hub else first.task,
        dataset_name=card.name if card else first.task,
        dataset_config=config or None,
        dataset_split=hub.splits.get(first.split, first.split) if hub else first.split,
        dataset_revision=hub.revision if hub else None,
        dataset_args={"task": first.task},
        metric_type=metric,
        metric_name=words,
        metric_value=score,
        metric_args=arguments,
        source_name="stsbench",
        source_url=SOURCE,
    )
