"""The linear probe: SentEval's transfer and probing tasks, scored by a classifier on frozen embeddings."""

from __future__ import annotations

from stsbench.evaluators.probe.evaluator import PROTOCOLS, ConvergedProtocol, MinibatchProtocol, ProbeEvaluator
from stsbench.evaluators.probe.items import ProbeProtocol

__all__ = ["PROTOCOLS", "ConvergedProtocol", "MinibatchProtocol", "ProbeEvaluator", "ProbeProtocol"]
