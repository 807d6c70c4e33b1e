"""Evaluators: splits and embeddings in, scores out. They load, write and print nothing."""

from __future__ import annotations

from stsbench.registry import Registry

EVALUATORS = Registry(
    "evaluator",
    {
        "sts": "stsbench.evaluators.sts:StsEvaluator",
        "probe": "stsbench.evaluators.probe:ProbeEvaluator",
        "relatedness": "stsbench.evaluators.relatedness:RelatednessEvaluator",
        "retrieval": "stsbench.evaluators.retrieval:RetrievalEvaluator",
    },
    group="evaluators",
)
