"""Results in the schema of Every Eval Ever, a shared collection of evaluations (``eval.schema.json`` 0.3.0)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from stsbench.cards.catalogue import Catalogue
from stsbench.leaderboard.exports.measured import SOURCE, MeasuredScore, measured
from stsbench.leaderboard.exports.model import model_of
from stsbench.numbers.statistics import CORRELATIONS
from stsbench.results.checks import ANY, bounds, score_name
from stsbench.results.record import Result

VERSION = "0.3.0"


def every_eval_ever(results: Sequence[Result], catalogue: Catalogue) -> str:
    """The JSON of one encoder's results: one record of one evaluation run.

    What made the scores is as in results: data, revision, split and all fields of the protocol; each score has its
    95% interval, that of several seeds being of their mean, beside their deviation. It is made at the time of the newest result, and so the same whenever it is made.

    Args:
        results: one encoder's.
        catalogue: cards of the project and of the user.
    """
    cells = list(measured(results, catalogue))
    model, newest = (
        model_of(results[0], catalogue),
        _seconds(max(filter(None, (one.newest for one in cells)), default="")),
    )
    run = results[0].run
    record = {
        "schema_version": VERSION,
        "evaluation_id": f"stsbench/{model.name}/{newest}",
        "evaluation_timestamp": newest,
        "retrieved_timestamp": newest,
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
            "additional_details": _strings({"commit": run.get("commit"), **run.get("versions", {})}),
        },
        "model_info": {
            "name": results[0].encoder,
            "id": model.name,
            "additional_details": _strings(
                {
                    "deployment_type": "self_deployed",
                    "model_availability": "unknown",
                    "revision": model.revision,
                    "fingerprint": results[0].fingerprint,
                    "parameters": model.parameters,
                    "dimensions": model.dimensions,
                    "dtype": run.get("dtype"),
                }
            ),
        },
        "evaluation_results": [_evaluation(one) for one in cells],
    }
    return json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _evaluation(one: MeasuredScore) -> dict[str, Any]:
    first = one.first
    facts = {"task": first.task, "split": first.split, "data": first.data, "overlap": first.overlap}
    return {
        "evaluation_result_id": f"{first.task}.{first.split}.{first.cell}",
        "evaluation_name": one.name,
        "source_data": _source(one),
        "metric_config": _metric(one),
        "score_details": {
            "score": one.score.mean,
            "details": _strings({**facts, "seeds": len(one.results), "deviation": one.score.deviation}),
            "uncertainty": _uncertainty(one),
        },
    }


def _source(one: MeasuredScore) -> dict[str, Any]:
    dataset = one.dataset
    if dataset is None:
        return {"dataset_name": one.name, "source_type": "other"}
    return {
        "dataset_name": one.name,
        "source_type": "hf_dataset",
        "hf_repo": dataset.repo,
        "hf_split": dataset.split,
        "samples_number": one.first.n,
        "additional_details": _strings({"revision": dataset.revision, "config": dataset.config}),
    }


def _metric(one: MeasuredScore) -> dict[str, Any]:
    protocol = one.first.protocol
    ends = bounds(score_name(protocol))
    low, high = ((None if abs(end) >= ANY[1] else round(end)) for end in ends)
    metric = str(protocol.get("metric", one.kind.metric))
    return {
        "evaluation_description": f"{one.kind.name}: {one.metric.name}, by the protocol '{protocol['name']}'",
        "metric_id": one.metric.type,
        "metric_name": one.metric.name,
        "metric_kind": metric,
        "metric_unit": "correlation" if metric in CORRELATIONS else "proportion",
        "metric_parameters": {key: _scalar(value) for key, value in protocol.items()},
        "lower_is_better": False,
        "score_type": "continuous",
        "min_score": "-Infinity" if low is None else low,
        "max_score": "Infinity" if high is None else high,
    }


def _uncertainty(one: MeasuredScore) -> dict[str, Any]:
    counted: dict[str, Any] = {"num_samples": one.first.n}
    found = one.interval
    if found is None:
        return counted
    interval = {"lower": found.low, "upper": found.high, "confidence_level": 0.95, "method": found.method}
    return {**counted, "confidence_interval": interval}


def _scalar(value: Any) -> str | float | bool | None:  # noqa: ANN401 - any JSON value
    """A protocol's value as a parameter, which may be no list."""
    return json.dumps(list(value)) if isinstance(value, list | tuple) else value


def _strings(facts: dict[str, Any]) -> dict[str, str]:
    """What is known, as texts: other values are not allowed there."""
    return {key: str(value) for key, value in facts.items() if value is not None}


def _seconds(created: str) -> str:
    """A time as Unix counts; 0 where it is not known."""
    try:
        return str(int(datetime.fromisoformat(created).timestamp()))
    except ValueError:
        return "0"
