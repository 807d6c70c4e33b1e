"""Results of an encoder for a model's page on the Hub, and in the format of Every Eval Ever.

The page holds them as ``model-index`` or as ``.eval_results``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from importlib.metadata import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stsbench.core.cards import TaskCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, OutputError
from stsbench.core.files import write_atomically
from stsbench.core.grouping import group_by
from stsbench.core.wording import as_one_line
from stsbench.data.mteb.facts import DEFAULT_SUBSET, find_matched_task
from stsbench.numbers.statistics import CORRELATIONS, MeanAndDeviation, mean_and_deviation
from stsbench.results.record import FINITE_BOUNDS, Result, protocol_key, score_bounds, score_name
from stsbench.significance.means import MEAN_METHOD, compute_mean_interval

if TYPE_CHECKING:
    from huggingface_hub import EvalResult


def make_model_index(
    name: str, results: Sequence[Result], catalogue: Catalogue
) -> list[dict[str, Any]]:
    """Return one encoder's results as the key ``model-index`` of a model card on the Hub.

    The format is that of the library ``huggingface_hub``. Scores are from -1 to 1, not times 100.
    The ``args`` of each metric have the protocol (the way of scoring) and the 95% interval. For
    several seeds the score is their mean, and ``args`` also has their number and deviation.

    Args:
        name: The name that the model card has for the model.
        results: The encoder's results.
        catalogue: The cards of tasks and encoders.

    Returns:
        A list of one dict, with the name and the list of results.
    """
    from huggingface_hub.repocard_data import ModelCardData

    hub_results = [score.hub_result for score in average_seeds(results, catalogue)]
    card = ModelCardData(model_name=name, eval_results=hub_results)
    index: list[dict[str, Any]] = card.to_dict()["model-index"]  # type: ignore[no-untyped-call]
    return index


def to_yaml(index: Sequence[dict[str, Any]]) -> str:
    """Return the metadata block of a model card that holds only an index."""
    from huggingface_hub import CardData

    card = CardData()
    card["model-index"] = list(index)
    return f"---\n{card.to_yaml()}\n---\n"


def write_card(path: Path, index: Sequence[dict[str, Any]]) -> None:
    """Write results into the file of a model card, whose other metadata and text stay.

    If the file does not exist, it is made and has only the results.

    Args:
        path: The file, Markdown that begins with metadata in YAML.
        index: The results: the value of the metadata's key ``model-index``, which is replaced.

    Raises:
        OutputError: The file cannot be read or written, or its metadata are not YAML.
    """
    from huggingface_hub import RepoCard
    from yaml import YAMLError  # type: ignore[import-untyped]

    if not path.exists():
        # The metadata block alone, between two lines of dashes.
        write_atomically(path, to_yaml(index).encode())
        return
    try:
        card = RepoCard(path.read_text(encoding="utf-8"), ignore_metadata_errors=True)
    except (OSError, UnicodeDecodeError, ValueError, YAMLError) as error:
        raise OutputError(
            f"{path}: its metadata cannot be read: {as_one_line(error)[:200]}"
        ) from error
    card.data["model-index"] = list(index)
    write_atomically(path, str(card).encode())


class EvalResults(NamedTuple):
    """The YAML of results for the Hub, and a notice on each cell that it cannot hold."""

    text: str
    omitted: list[str]


def make_eval_results(results: Sequence[Result], catalogue: Catalogue) -> EvalResults:
    """Return one encoder's results in the format of the Hub's files of evaluation results, YAML.

    Only tasks that are datasets on the Hub can be in such a file. If a task has the data of a task
    of the benchmark MTEB, the dataset and the name are MTEB's. Values are from -1 to 1, not times
    100; the value of several seeds is their mean. The ``notes`` of a value have the protocol (the
    way of scoring), without which no two values may be compared, and the 95% interval.

    Args:
        results: The encoder's results.
        catalogue: The cards of tasks and encoders.

    Returns:
        The YAML, and a notice on each result that is not in it.

    Raises:
        DataError: No task of the results is a dataset on the Hub.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    from yaml import safe_dump

    entries = []
    omitted = []
    source_url = find_source_url()
    for score in average_seeds(results, catalogue):
        first_result = score.results[0]
        dataset = _find_dataset(first_result.task, score.card, catalogue)
        if dataset is None:
            omitted.append(
                f"{first_result.encoder} on {first_result.task}: "
                "it is no dataset of its own on the Hub"
            )
            continue
        entry = EvalResultEntry(
            dataset.repo,
            dataset.task,
            score.seed_mean.mean,
            dataset_revision=dataset.revision,
            source_url=source_url,
            source_name="stsbench" if source_url else None,
            date=score.newest_time,
            notes=_describe_score(score),
        )
        entries.append(entry)
    if not entries:
        raise DataError(f"nothing to export: {omitted[0]}")
    content = eval_result_entries_to_yaml(entries)
    text: str = safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)
    return EvalResults(text, omitted)


class _HubDataset(NamedTuple):
    """A dataset on the Hub, as an entry of a model's page names it."""

    repo: str
    task: str
    """The name of the task in the dataset: its configuration, or MTEB's name."""
    revision: str


def _find_dataset(task: str, card: TaskCard | None, catalogue: Catalogue) -> _HubDataset | None:
    """Return the dataset on the Hub that has the data of a task; None if there is none.

    The first of these counts:

    1. the dataset of the benchmark MTEB that has the same data;
    2. the dataset that the task's card names, unless it is an archive of several tasks; the task in
       it is the configuration of the dataset, or else has our id.

    Args:
        task: The id of the task.
        card: The task's card; None if it has none.
        catalogue: The cards of tasks.

    Returns:
        The dataset's name on the Hub, its revision, and the name of the task in the dataset.
    """
    if card is None:
        return None
    matched_task = find_matched_task(task, catalogue)
    if matched_task is not None:
        # MTEB calls the only subset of a task "default"; it is empty if we have all subsets.
        has_named_subset = matched_task.mteb_subset not in ("", DEFAULT_SUBSET)
        name = matched_task.mteb_subset if has_named_subset else matched_task.mteb_task
        return _HubDataset(matched_task.repo, task=name, revision=matched_task.revision)
    if card.hub is None or card.hub.archive:
        return None
    return _HubDataset(card.hub.repo, task=card.hub.config or task, revision=card.hub.revision)


def _describe_score(score: MeasuredScore) -> str:
    """Return a text on how a score was measured: metric, split, protocol, seeds and interval.

    Args:
        score: The score of an encoder on a task: ``results``, one per seed; ``seed_mean``, their
            mean and its deviation (None for one seed); and ``interval`` (None if unknown).
    """
    first_result = score.results[0]
    notes = (
        f"{score.hub_result.metric_name}, {first_result.split} split, n = {first_result.n}, "
        f"protocol {first_result.protocol['name']}"
    )
    over_seeds = ""
    if score.seed_mean.deviation is not None:
        notes += f"; mean of {len(score.results)} seeds, deviation {score.seed_mean.deviation:.4f}"
        over_seeds = " over items and seeds"
    if score.interval is None:
        return notes
    low, high = score.interval
    return f"{notes}; 95% interval{over_seeds} {low:.4f} to {high:.4f}"


SCHEMA_VERSION = "0.3.0"


def to_every_eval_ever(results: Sequence[Result], catalogue: Catalogue) -> str:
    """Return one encoder's results in the format of the project Every Eval Ever, JSON.

    Each score has its data with their revision, the split, all fields of the protocol and the 95%
    interval. Seeds are averaged. The time of the record is that of the newest result, so the JSON
    is the same whenever it is made.

    Args:
        results: The results, at least one, all of one encoder in one state.
        catalogue: The cards of tasks and encoders.
    """
    # Each is the mean over the seeds of one task, split and protocol.
    scores = list(average_seeds(results, catalogue))
    first_result = results[0]
    model = find_model(first_result, catalogue)
    versions = first_result.run.get("versions", {})
    # The time of the newest result, in seconds since 1970, as text; "0" if it is unknown.
    seconds = _newest_timestamp(scores)
    source_url = find_source_url()
    model_details = {
        "deployment_type": "self_deployed",
        "model_availability": "unknown",
        "revision": model.revision,
        "fingerprint": first_result.fingerprint,
        "parameters": model.parameters,
        "dimensions": model.dimensions,
        "dtype": first_result.run.get("dtype"),
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
            **({"source_organization_url": source_url} if source_url else {}),
            "evaluator_relationship": "other",
        },
        "eval_library": {
            "name": "stsbench",
            "version": str(versions.get("stsbench", "unknown")),
            "additional_details": _known_values_as_text(
                {"commit": first_result.run.get("commit"), **versions}
            ),
        },
        "model_info": {
            "name": first_result.encoder,
            "id": model.name,
            "additional_details": _known_values_as_text(model_details),
        },
        "evaluation_results": [_evaluation_fields(score) for score in scores],
    }
    return json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _newest_timestamp(scores: Sequence[MeasuredScore]) -> str:
    """Return the time of the newest score in seconds since 1970; ``0`` if it is unknown."""
    newest_time = max((score.newest_time for score in scores if score.newest_time), default="")
    try:
        return str(int(datetime.fromisoformat(newest_time).timestamp()))
    except ValueError:
        return "0"


def _evaluation_fields(score: MeasuredScore) -> dict[str, Any]:
    """Return one score as the format Every Eval Ever has it.

    Args:
        score: The score of an encoder on a task: ``results``, one per seed, ``seed_mean``, and
            ``hub_result``, the score as the library ``huggingface_hub`` describes it.
    """
    first_result = score.results[0]
    # ``data`` is the hash of the data; ``overlap`` says whether the training text of the encoder
    # has the test sentences: none, unknown, text or gold (with their scores).
    details = {
        "task": first_result.task,
        "split": first_result.split,
        "data": first_result.data,
        "overlap": first_result.overlap,
        "seeds": len(score.results),
        "deviation": score.seed_mean.deviation,
    }
    uncertainty: dict[str, Any] = {"num_samples": first_result.n}
    if score.interval is not None:
        low, high = score.interval
        uncertainty["confidence_interval"] = {
            "lower": low,
            "upper": high,
            "confidence_level": 0.95,
            # The interval of several seeds is that of their mean.
            "method": first_result.interval_method if len(score.results) == 1 else MEAN_METHOD,
        }
    # ``cell_id`` is a hash of protocol, encoder and seeds.
    return {
        "evaluation_result_id": f"{first_result.task}.{first_result.split}.{first_result.cell_id}",
        "evaluation_name": score.hub_result.dataset_name,
        "source_data": _dataset_fields(score.hub_result, first_result.n),
        "metric_config": _metric_fields(score.hub_result, first_result.protocol),
        "score_details": {
            "score": score.seed_mean.mean,
            "details": _known_values_as_text(details),
            "uncertainty": uncertainty,
        },
    }


def _dataset_fields(hub_result: EvalResult, n_items: int) -> dict[str, Any]:
    """Return the data of a score as the format Every Eval Ever has them.

    Details that are None are omitted, and the others are written as texts.

    Args:
        hub_result: The score as the library ``huggingface_hub`` describes it. Its
            ``dataset_revision`` is None if the data are not on the Hub.
        n_items: The number of scored items.
    """
    if hub_result.dataset_revision is None:
        return {"dataset_name": hub_result.dataset_name, "source_type": "other"}
    details = {"revision": hub_result.dataset_revision, "config": hub_result.dataset_config}
    return {
        "dataset_name": hub_result.dataset_name,
        "source_type": "hf_dataset",
        "hf_repo": hub_result.dataset_type,
        "hf_split": hub_result.dataset_split,
        "samples_number": n_items,
        "additional_details": _known_values_as_text(details),
    }


def _metric_fields(hub_result: EvalResult, protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metric of a score as the format Every Eval Ever has it.

    Args:
        hub_result: The score as the ``huggingface_hub`` library describes it.
        protocol: All fields of the score's protocol, with its name.
    """
    # The lowest and the highest value that such a score can have: whole numbers, or "-Infinity" and
    # "Infinity".
    low, high = map(_format_bound, score_bounds(score_name(protocol)))
    metric = str(protocol.get("metric", hub_result.metric_type))
    # The schema does not allow a list as a parameter.
    parameters = {
        key: json.dumps(value) if isinstance(value, list | tuple) else value
        for key, value in protocol.items()
    }
    return {
        "evaluation_description": (
            f"{hub_result.task_name}: {hub_result.metric_name}, "
            f"by the protocol '{protocol['name']}'"
        ),
        "metric_id": hub_result.metric_type,
        "metric_name": hub_result.metric_name,
        "metric_kind": metric,
        "metric_unit": "correlation" if metric in CORRELATIONS else "proportion",
        "metric_parameters": parameters,
        "lower_is_better": False,
        "score_type": "continuous",
        "min_score": low,
        "max_score": high,
    }


def _format_bound(bound: float) -> int | str:
    """Return a bound of a score as the schema has it: an integer, or that it is infinite."""
    if abs(bound) >= FINITE_BOUNDS[1]:
        return "-Infinity" if bound < 0 else "Infinity"
    return round(bound)


def _known_values_as_text(values: Mapping[str, object]) -> dict[str, str]:
    """Return the known values as texts, which are the only ones that the schema allows."""
    return {key: str(value) for key, value in values.items() if value is not None}


class HubModel(NamedTuple):
    """An encoder by its id on the Hub, else under the organisation ``stsbench``."""

    name: str
    revision: str
    parameters: int | None
    """The number of its weights; None if it is unknown."""
    dimensions: int | None
    """The size of its embeddings; None if it is unknown."""


def find_model(result: Result, catalogue: Catalogue) -> HubModel:
    """Return the name and the facts of the model that a result is of, for exports.

    The name is the first of these that there is:

    1. the id on the Hub that the encoder's card names as its own;
    2. the id on the Hub of the checkpoint that the card loads, if the result has its commit (the
       card may name a local folder) and no other card loads it (several may, each with another
       pooling);
    3. the encoder's name, with ``stsbench/`` before it if it has no slash.

    An encoder whose name has a plus, behind which parameters are replaced, is not that of its card,
    and has the third. The revision is the commit on the Hub, or else the beginning of the
    fingerprint, which changes with the embeddings.

    Args:
        result: The result.
        catalogue: The cards of encoders; a card counts only if the result has its hash.
    """
    # Also of an encoder with a plus, whose card is that of the name before it.
    card = catalogue.find_encoder(result.encoder, result.encoder_card)
    revision = result.revision or (result.fingerprint or "no_revision_available")[:40]
    name = result.encoder if "/" in result.encoder else f"stsbench/{result.encoder}"
    dimensions = result.run.get("dimensions")
    if card is None or "+" in result.encoder:
        return HubModel(name, revision, parameters=None, dimensions=dimensions)
    checkpoint = str(card.params.get("model", ""))
    is_hub_id = result.revision is not None and "/" in checkpoint
    # How many cards load each checkpoint.
    if is_hub_id and _count_cards_by_checkpoint(catalogue)[checkpoint] == 1:
        name = checkpoint
    return HubModel(
        name=card.hub or name,
        revision=revision,
        parameters=card.parameters,
        dimensions=dimensions or card.dimensions,
    )


@lru_cache(maxsize=4)
def _count_cards_by_checkpoint(catalogue: Catalogue) -> Counter[str]:
    """Return the number of encoder cards by their parameter ``model``, an id or a path."""
    checkpoints = [
        catalogue.encoder(name).params.get("model") for name in catalogue.paths("baselines")
    ]
    return Counter(checkpoint for checkpoint in checkpoints if isinstance(checkpoint, str))


@lru_cache(maxsize=1)
def find_source_url() -> str | None:
    """Return the address of stsbench's home page; None if the installed package names none.

    It is set in ``pyproject.toml`` by whoever publishes the package, so that exported files never
    have the address of somebody else.
    """
    # Texts such as "Homepage, https://example.org".
    links = metadata("stsbench").get_all("Project-URL") or []
    for link in links:
        label, _, url = str(link).partition(",")
        if label.strip().lower() == "homepage":
            return url.strip()
    return None


class HubTask(NamedTuple):
    """The names that the Hub has for the tasks of an evaluator."""

    task: str
    """The Hub's id of the kind of task."""
    name: str
    """Its name for people."""
    metric: str = "score"
    """The metric of protocols that name none."""


HUB_TASKS = {
    "sts": HubTask("semantic-similarity", name="Semantic Similarity"),
    "relatedness": HubTask("semantic-similarity", name="Semantic Similarity, trained regressor"),
    "contrast": HubTask("sentence-similarity", name="Contrast set", metric="accuracy"),
    "probe": HubTask(task="text-classification", name="Text Classification", metric="accuracy"),
    "retrieval": HubTask("image-text-retrieval", name="Image-Text Retrieval"),
}
OTHER_TASK = HubTask("other", name="Other")


class MeasuredScore(NamedTuple):
    """The score of one encoder on a task and split by one protocol, over all its seeds."""

    results: Sequence[Result]
    """The results, one per seed; all but seeds and scores are the same as in the first one."""
    card: TaskCard | None
    """The task's card; None if the catalogue has none."""
    hub_result: EvalResult
    """The entry of a model card."""
    seed_mean: MeanAndDeviation
    """The mean over seeds and its deviation."""
    interval: tuple[float, float] | None
    """The 95% interval of the result, or of the mean over items and seeds; None if per-item
    columns are missing."""
    newest_time: str | None
    """The time of the newest result; None if it is unknown."""


def average_seeds(results: Sequence[Result], catalogue: Catalogue) -> Iterator[MeasuredScore]:
    """Yield the score of one encoder on each task, split and protocol, as the mean over its seeds.

    Args:
        results: The results of one encoder in one state.
        catalogue: The cards of tasks.

    Yields:
        The results of all seeds, the task's card, the mean over seeds with its deviation and 95%
        interval, and the entry of a model card that the library ``huggingface_hub`` writes.
    """
    results_by_conditions = group_by(
        results, lambda result: (result.task, result.split, protocol_key(result.protocol))
    )
    for (task, _split, _protocol), results_by_seed in results_by_conditions.items():
        first_result = results_by_seed[0]
        card = catalogue.task(task) if task in catalogue.paths("tasks") else None
        # The deviation is the sample's (n - 1), None for a single seed.
        seed_mean = mean_and_deviation([result.score for result in results_by_seed])
        interval: tuple[float, float] | None = first_result.interval
        if len(results_by_seed) > 1:
            # Of the mean over seeds; None if, for example, per-item columns are missing.
            interval = compute_mean_interval([results_by_seed])
        metric_arguments = dict(first_result.protocol)
        if seed_mean.deviation is not None:
            metric_arguments["seeds"] = len(results_by_seed)
            metric_arguments["deviation"] = seed_mean.deviation
        if interval is not None:
            metric_arguments["interval"] = list(interval)
        times = [
            str(result.run["created"]) for result in results_by_seed if result.run.get("created")
        ]
        yield MeasuredScore(
            results=results_by_seed,
            card=card,
            hub_result=_make_hub_result(
                first_result, card, score=seed_mean.mean, metric_arguments=metric_arguments
            ),
            seed_mean=seed_mean,
            interval=interval,
            newest_time=max(times, default=None),
        )


def _make_hub_result(
    result: Result, card: TaskCard | None, score: float, metric_arguments: dict[str, Any]
) -> EvalResult:
    """Return a score as an entry of a model card, as the library ``huggingface_hub`` describes it.

    Args:
        result: One of the results that the score is of, which differ in their seeds.
        card: The card of the task; None if there is none.
        score: The score, the mean over seeds.
        metric_arguments: Field -> value of the protocol, and the seeds and interval of the score.
    """
    from huggingface_hub import EvalResult

    # The Hub refuses a source's name without an address.
    source_url = find_source_url()
    # The task's dataset on the Hub; None if it is not there.
    hub = card.hub if card else None
    # The Hub's names for the evaluator's kind of task, and the metric if the protocol has none.
    hub_task = HUB_TASKS.get(card.evaluator, OTHER_TASK) if card else OTHER_TASK
    metric = str(result.protocol.get("metric", hub_task.metric))
    metric_name = metric.replace("_", " ").capitalize()
    if metric in CORRELATIONS:
        metric_name = CORRELATIONS[metric].label
    similarity = result.protocol.get("similarity")
    if similarity is not None:
        # Metrics of STS have the names that sentence-transformers uses.
        metric_name = f"{metric_name} of {similarity} ({result.protocol.get('aggregation')})"
        metric = f"{metric}_{similarity}"
    config = hub.config if hub else ""
    # ``archive``: the name of a tar file with the data; empty if the dataset has rows.
    if hub and hub.archive and not config:
        # An archive holds the data of many tasks: the name of the task distinguishes them.
        config = result.task
    return EvalResult(
        task_type=hub_task.task,
        task_name=hub_task.name,
        dataset_type=hub.repo if hub else result.task,
        dataset_name=card.name if card else result.task,
        dataset_config=config or None,
        # The dataset's name of the split, which the card has if it is another one.
        dataset_split=hub.splits.get(result.split, result.split) if hub else result.split,
        dataset_revision=hub.revision if hub else None,
        dataset_args={"task": result.task},
        metric_type=metric,
        metric_name=metric_name,
        metric_value=score,
        metric_args=metric_arguments,
        source_name="stsbench" if source_url else None,
        source_url=source_url,
    )
