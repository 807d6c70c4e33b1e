"""Scores made again from per-item columns are those of the evaluation, and of some items those that they make."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.evaluators import evaluator_of
from stsbench.evaluators.probe import PROTOCOLS as PROBES
from stsbench.evaluators.probe import ProbeEvaluator
from stsbench.evaluators.sts import PROTOCOLS, StsEvaluator
from stsbench.results.folder import as_arrays
from tests.evaluators import test_sts
from tests.evaluators.probe import helpers


def of_sts() -> tuple[Any, Any]:
    split = test_sts.make_split({"a": 20, "b": 30})
    evaluator = StsEvaluator(protocol=PROTOCOLS["wmean"])
    return evaluator, evaluator({"test": split}, test_sts.Table(test_sts.make_rows(split, 0)), seed=0)


def of_probe() -> tuple[Any, Any]:
    split, embed = helpers.make_split(60)
    evaluator = ProbeEvaluator(PROBES["logreg"], f1=True, threads=1)
    return evaluator, evaluator({"all": split}, embed, seed=0)


def test_with_the_labels_each_class_is_made_again():
    evaluator, scores = of_probe()
    items = as_arrays(scores.per_item)
    label = np.where(items["correct"], items["prediction"], 1 - items["prediction"])
    made = evaluator.recompute({**items, "label": label})
    assert list(made.per_subset.values()) == list(scores.per_subset.values())
    assert made.scores["f1"] == scores.scores["f1"]


def test_a_part_of_the_items_makes_a_score_of_its_own():
    evaluator, scores = of_sts()
    items = as_arrays(scores.per_item)
    part = {name: column[items["subset"] == "a"] for name, column in items.items()}
    assert evaluator.recompute(part).score == pytest.approx(scores.per_subset["a"]["spearman"], abs=1e-12)


def test_the_evaluator_of_a_result_has_its_protocol():
    card = Catalogue().task("sts12")
    protocol = dataclasses.asdict(PROTOCOLS["semeval"])
    assert evaluator_of("sts12", card, protocol).protocol == PROTOCOLS["semeval"]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"name": "simce"}, "unknown protocol 'simce'; did you mean 'simcse'"),
        ({"metric": "speed"}, "metric: 'speed' is not one of"),
        ({"more": 1}, "has no field 'more'"),
    ]
    for changes, message in cases:
        with pytest.raises(StsbenchError, match=message):
            evaluator_of("sts12", card, {**protocol, **changes})
    del protocol["metric"]
    with pytest.raises(StsbenchError, match="protocol 'semeval': 'metric' is missing"):
        evaluator_of("sts12", card, protocol)
