"""Methods by name: one file and one row of this table each."""

from __future__ import annotations

from typing import Any

from stsbench.registry.names import Registry

METHODS_BY_TRAINER = {
    "loop": {
        "angle": "stsbench.training.methods.angle:AnglE",
        "clear": "stsbench.training.methods.clear:CLEAR",
        "consert": "stsbench.training.methods.consert:ConSERT",
        "contrastive_tension": "stsbench.training.methods.contrastive_tension:ContrastiveTension",
        "contrastive_tension_in_batch": "stsbench.training.methods.contrastive_tension:ContrastiveTensionInBatch",
        "cosent": "stsbench.training.methods.cosent:CoSENT",
        "declutr": "stsbench.training.methods.declutr:DeCLUTR",
        "diffcse": "stsbench.training.methods.diffcse:DiffCSE",
        "esimcse": "stsbench.training.methods.esimcse:ESimCSE",
        "is_bert": "stsbench.training.methods.is_bert:ISBERT",
        "mixcse": "stsbench.training.methods.mixcse:MixCSE",
        "mlm": "stsbench.training.methods.mlm:MaskedLanguageModel",
        "promptbert": "stsbench.training.methods.promptbert:PromptBERT",
        "rankcse": "stsbench.training.methods.rankcse:RankCSE",
        "sbert": "stsbench.training.methods.sbert:SBERT",
        "sbert_regression": "stsbench.training.methods.sbert_regression:SBERTRegression",
        "sbert_triplets": "stsbench.training.methods.sbert_triplets:SBERTTriplets",
        "self_guided": "stsbench.training.methods.self_guided:SelfGuided",
        "simcse": "stsbench.training.methods.simcse:SimCSE",
        "simcse_plus_plus": "stsbench.training.methods.simcse_plus_plus:SimCSEPlusPlus",
        "simcse_positives": "stsbench.training.methods.simcse_positives:SimCSEPositives",
        "tsdae": "stsbench.training.methods.tsdae:TSDAE",
    },
    "rounds": {
        "infersent": "stsbench.training.words.infersent:InferSentTraining",
        "skip_thoughts": "stsbench.training.words.skip_thoughts:SkipThoughtsTraining",
        "quick_thoughts": "stsbench.training.words.quick_thoughts:QuickThoughtsTraining",
        "fastsent": "stsbench.training.words.fastsent:FastSentTraining",
    },
}
"""Our own, by the trainer that they need: the common loop, or their own training in rounds."""


def _is_method(found: object) -> bool:
    """Whether it is a class that one of the trainers trains."""
    # Loads torch, as whatever may be a method has done.
    from stsbench.training.seams import Learner
    from stsbench.training.words.rounds import StandaloneMethod

    return isinstance(found, type) and issubclass(found, Learner | StandaloneMethod)


METHODS = Registry(
    "method",
    {name: address for rows in METHODS_BY_TRAINER.values() for name, address in rows.items()},
    group="methods",
    accepts=_is_method,
    wanted="a class of Learner (stsbench.training.seams) or of StandaloneMethod (stsbench.training.words.rounds)",
)


def load_method(name: str) -> tuple[str, Any]:
    """The trainer that a method needs, by its row, or by the class of a user's own; and the method.

    Raises:
        StsbenchError: no such method, or it cannot be imported.
    """
    method = METHODS.load(name)
    by_row = (trainer for trainer, rows in METHODS_BY_TRAINER.items() if name in rows)
    return next(by_row, method.trainer), method
