"""Image-caption retrieval: SentEval's COCO task, scored by linear maps of frozen embeddings into one space."""

from __future__ import annotations

from stsbench.evaluators.retrieval.evaluator import RetrievalEvaluator
from stsbench.evaluators.retrieval.protocols import PROTOCOLS, RetrievalProtocol

__all__ = ["PROTOCOLS", "RetrievalEvaluator", "RetrievalProtocol"]
