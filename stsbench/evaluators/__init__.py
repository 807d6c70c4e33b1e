"""Evaluators: splits and embeddings in, scores out. They load, write and print nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

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


def protocols_of_all() -> dict[str, dict[str, dict[str, Any]]]:
    """The fields of every protocol: by its name, then by the evaluator that knows it."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for evaluator in EVALUATORS.names():
        for name, protocol in EVALUATORS.load(evaluator).PROTOCOLS.items():
            found.setdefault(name, {})[evaluator] = asdict(protocol)
    return found
