"""Records of Every Eval Ever: by what its schema demands, and by its own types where they are installed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stsbench.boards.exports.hub import every_eval_ever
from stsbench.core.catalogue import Catalogue
from stsbench.results.record import Result
from stsbench.significance.means import MEAN_METHOD, mean_interval
from tests.boards.exports.test_model_index import told_seeds
from tests.boards.scored import RUN, SENTEVAL
from tests.made import make_result

REGRESSION = {"name": "senteval", "metric": "pearson", "selection": "pearson", "learning_rate": 1e-3}
RESULTS = [
    make_result("minilm", "sts12", 0.5, run={**RUN, "commit": "c" * 40}),
    make_result("minilm", "stsb-de", 0.4, split="validation"),
    make_result("minilm", "mr", 0.8, protocol={**SENTEVAL, "weight_decays": [1e-5, 1e-4]}, split="all"),
    make_result("minilm", "mr", 0.9, protocol={**SENTEVAL, "weight_decays": [1e-5, 1e-4]}, split="all", eval_seed=1),
    make_result("minilm", "sickr-regression", 0.7, protocol=REGRESSION),
    make_result("minilm", "quickstart-en", 0.6),
    make_result("minilm", "my task", -3.0, protocol={"name": "own", "metric": "own"}, interval=(-4.0, -2.0)),
]


def record(*results: Result) -> Any:
    return json.loads(every_eval_ever(results or RESULTS, Catalogue()))


# What the schema 0.3.0 demands of each object, and the values that it allows.
REQUIRED = {
    "": ["schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info", "eval_library"],
    "source_metadata": ["source_type", "source_organization_name", "evaluator_relationship"],
    "eval_library": ["name", "version"],
    "model_info": ["name", "id", "additional_details"],
}


def test_a_record_has_what_the_schema_demands():
    made = record()
    for place, names in REQUIRED.items():
        assert not set(names) - set(made[place] if place else made), place
    assert made["schema_version"] == "0.3.0" and made["retrieved_timestamp"].isdigit()
    assert made["source_metadata"]["source_type"] == "evaluation_run"
    assert made["source_metadata"]["evaluator_relationship"] in ("first_party", "third_party", "collaborative", "other")
    details = made["model_info"]["additional_details"]
    assert details["deployment_type"] == "self_deployed" and details["model_availability"] == "unknown"
    texts = [details, made["eval_library"]["additional_details"]]
    for one in made["evaluation_results"]:
        assert {"evaluation_name", "source_data", "metric_config", "score_details"} <= set(one)
        metric = one["metric_config"]
        assert metric["lower_is_better"] is False and metric["score_type"] == "continuous"
        assert {"min_score", "max_score"} <= set(metric)
        assert all(isinstance(value, str | int | float | bool) for value in metric["metric_parameters"].values())
        assert one["source_data"]["source_type"] in ("hf_dataset", "other") and one["source_data"]["dataset_name"]
        texts += [one["score_details"]["details"], one["source_data"].get("additional_details", {})]
    assert all(isinstance(value, str) for one in texts for value in one.values())


def test_a_record_says_what_a_result_says():
    made = record()
    assert made["model_info"]["id"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert made["evaluation_id"] == "stsbench/sentence-transformers/all-MiniLM-L6-v2/1767225600"
    sts, german, probe, regression, quick, own = made["evaluation_results"]
    assert sts["score_details"]["score"] == 0.5
    interval = {"lower": 0.4, "upper": 0.6, "confidence_level": 0.95, "method": "none"}
    assert sts["score_details"]["uncertainty"] == {"num_samples": 3, "confidence_interval": interval}
    assert (sts["metric_config"]["min_score"], sts["metric_config"]["max_score"]) == (-1, 1)
    assert sts["metric_config"]["metric_parameters"]["aggregation"] == "all"
    assert german["source_data"]["hf_split"] == "dev" and german["source_data"]["additional_details"]["config"] == "de"
    assert probe["score_details"]["score"] == pytest.approx(0.85) and probe["metric_config"]["min_score"] == 0
    assert probe["score_details"]["details"]["seeds"] == "2"
    assert "confidence_interval" not in probe["score_details"]["uncertainty"]
    (several,) = record(*told_seeds())["evaluation_results"]
    low, high = mean_interval([told_seeds()]) or (0, 0)
    interval = {"lower": low, "upper": high, "confidence_level": 0.95, "method": MEAN_METHOD}
    assert several["score_details"]["uncertainty"] == {"num_samples": 40, "confidence_interval": interval}
    assert probe["metric_config"]["metric_parameters"]["weight_decays"] == "[1e-05, 0.0001]"
    assert regression["metric_config"]["metric_unit"] == "correlation"
    assert quick["source_data"] == {"dataset_name": "Quickstart English", "source_type": "other"}
    assert (own["metric_config"]["min_score"], own["metric_config"]["max_score"]) == ("-Infinity", "Infinity")


def test_a_record_is_the_same_whenever_it_is_made():
    assert every_eval_ever(RESULTS, Catalogue()) == every_eval_ever(RESULTS, Catalogue())
    assert record(make_result("mine", "sts12", 0.5, run={}))["retrieved_timestamp"] == "0"


def test_its_own_types_read_a_record():
    package = pytest.importorskip("every_eval_ever", reason="every-eval-ever is not installed")
    found = package.eval_types.EvaluationLog.model_validate_json(every_eval_ever(RESULTS, Catalogue()))
    assert len(found.evaluation_results) == 6
