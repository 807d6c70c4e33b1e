"""Results as the ``model-index`` of a Hugging Face model card: the scores that a model's page on the Hub shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stsbench.cards.catalogue import Catalogue
from stsbench.errors import OutputError, one_line
from stsbench.files.whole import write_whole
from stsbench.leaderboard.exports.measured import SOURCE, MeasuredScore, measured
from stsbench.results.record import Result

if TYPE_CHECKING:
    from huggingface_hub import EvalResult


def model_index(name: str, results: Sequence[Result], catalogue: Catalogue) -> list[dict[str, Any]]:
    """The ``model-index`` of one model's results, as ``huggingface_hub`` makes it.

    Scores are as in results, from 0 to 1. Each says the protocol it was scored by in the metric's
    ``args``, and its 95% interval; several seeds are their mean, with how many there are and their deviation.

    Args:
        name: what the card calls the model.
        results: one encoder's results.
        catalogue: cards of the project and of the user.
    """
    from huggingface_hub.repocard_data import ModelCardData

    card = ModelCardData(model_name=name, eval_results=list(map(_eval_result, measured(results, catalogue))))
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
        write_whole(path, to_yaml(index).encode())
        return
    try:
        card = RepoCard(path.read_text(encoding="utf-8"), ignore_metadata_errors=True)
    except (OSError, UnicodeDecodeError, ValueError, YAMLError) as error:
        raise OutputError(f"{path}: its metadata cannot be read: {one_line(error)[:200]}") from error
    card.data["model-index"] = list(index)
    write_whole(path, str(card).encode())


def _eval_result(one: MeasuredScore) -> EvalResult:
    from huggingface_hub import EvalResult

    dataset, metric, arguments = one.dataset, one.metric, dict(one.first.protocol)
    if one.score.deviation is not None:
        arguments |= {"seeds": len(one.results), "deviation": one.score.deviation}
    interval = one.interval
    if interval is not None:
        arguments["interval"] = [interval.low, interval.high]
    return EvalResult(
        task_type=one.kind.task,
        task_name=one.kind.name,
        dataset_type=dataset.repo if dataset else one.first.task,
        dataset_name=one.name,
        dataset_config=dataset.config if dataset else None,
        dataset_split=dataset.split if dataset else one.first.split,
        dataset_revision=dataset.revision if dataset else None,
        dataset_args={"task": one.first.task},
        metric_type=metric.type,
        metric_name=metric.name,
        metric_value=one.score.mean,
        metric_args=arguments,
        source_name="stsbench",
        source_url=SOURCE,
    )
