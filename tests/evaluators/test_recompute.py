"""Scores made again from per-item columns are those of the evaluation, and of some items those that they make."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import DataError, StsbenchError
from stsbench.evaluators import evaluator_of
from stsbench.evaluators.probe import PROTOCOLS as PROBES
from stsbench.evaluators.probe import ProbeEvaluator
from stsbench.evaluators.relatedness import RelatednessEvaluator
from stsbench.evaluators.retrieval import RetrievalEvaluator
from stsbench.evaluators.sts import PROTOCOLS, StsEvaluator
from stsbench.results.folder import as_arrays
from tests.evaluators import test_relatedness, test_retrieval, test_sts
from tests.evaluators.probe import helpers


def of_sts() -> tuple[Any, Any]:
    split = test_sts.make_split({"a": 20, "b": 30})
    evaluator = StsEvaluator(protocol=PROTOCOLS["wmean"])
    return evaluator, evaluator({"test": split}, test_sts.Table(test_sts.make_rows(split, 0)), seed=0)


def of_relatedness() -> tuple[Any, Any]:
    evaluator = RelatednessEvaluator(test_relatedness.SMALL)
    return evaluator, evaluator(*test_relatedness.make_task(sizes=(60, 30, 40)), seed=0)


def of_retrieval() -> tuple[Any, Any]:
    evaluator = RetrievalEvaluator(test_retrieval.SMALL, device="cpu")
    return evaluator, evaluator(*test_retrieval.make_task(), seed=0)


def of_probe() -> tuple[Any, Any]:
    split, embed = helpers.make_split(60)
    evaluator = ProbeEvaluator(PROBES["logreg"], f1=True, threads=1)
    return evaluator, evaluator({"all": split}, embed, seed=0)


@pytest.mark.parametrize("make", [of_sts, of_relatedness, of_retrieval, of_probe])
def test_scores_are_made_again_of_their_items(make):
    evaluator, scores = make()
    made = evaluator.recompute(as_arrays(scores.per_item))
    assert (made.score, made.interval, made.n) == (scores.score, scores.interval, scores.n)
    assert made.interval_method == scores.interval_method
    assert made.scores.items() <= scores.scores.items()
    left = set(scores.scores) - set(made.scores)
    assert all(name.startswith("dev_") for name in left - {"f1", "majority"})
    assert make is of_probe or made.per_subset == scores.per_subset


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


def test_ranks_that_do_not_make_the_recall_are_refused():
    evaluator, scores = of_retrieval()
    items = as_arrays(scores.per_item)
    with pytest.raises(DataError, match="column 'recall' is not what the ranks make"):
        evaluator.recompute({**items, "recall": items["recall"] + 0.1})
    with pytest.raises(DataError, match="lacks the column 't2i_rank_1'"):
        evaluator.recompute({name: column for name, column in items.items() if name != "t2i_rank_1"})


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
