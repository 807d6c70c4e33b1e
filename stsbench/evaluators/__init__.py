"""Evaluators: splits and embeddings in, scores out. They load, write and print nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass

from stsbench.registry.names import Registry


def _is_evaluator(found: object) -> bool:
    """Whether it is made with protocols, which it names."""
    protocols = getattr(found, "PROTOCOLS", None)
    if not isinstance(protocols, Mapping) or not callable(found):
        return False
    return len(protocols) > 0 and all(map(is_dataclass, protocols.values()))


EVALUATORS = Registry(
    "evaluator",
    {
        "sts": "stsbench.evaluators.sts:StsEvaluator",
        "probe": "stsbench.evaluators.probe:ProbeEvaluator",
        "relatedness": "stsbench.evaluators.relatedness:RelatednessEvaluator",
        "retrieval": "stsbench.evaluators.retrieval:RetrievalEvaluator",
    },
    group="evaluators",
    accepts=_is_evaluator,
    wanted="a class of evaluators, whose PROTOCOLS are dataclasses by name",
)
