"""The linear probe: SentEval's transfer and probing tasks, scored by a classifier on frozen embeddings."""

from __future__ import annotations

from stsbench.evaluators.probe.classifier import ProbeProtocol
from stsbench.evaluators.probe.evaluator import ProbeEvaluator
from stsbench.evaluators.probe.logreg import ConvergedProtocol
from stsbench.evaluators.probe.minibatch import MinibatchProtocol
from stsbench.evaluators.probe.protocols import PROTOCOLS

__all__ = ["PROTOCOLS", "ConvergedProtocol", "MinibatchProtocol", "ProbeEvaluator", "ProbeProtocol"]
