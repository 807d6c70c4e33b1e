"""Methods by name: one file and one row of this table each."""

from __future__ import annotations

from stsbench.core.registry import Registry

_TWO_MODELS = "stsbench.training.methods.two_models"

METHODS_BY_TRAINER = {
    "loop": {
        "angle": "stsbench.training.methods.sbert:AnglE",
        "clear": "stsbench.training.methods.views:CLEAR",
        "consert": "stsbench.training.methods.views:ConSERT",
        "contrastive_tension": f"{_TWO_MODELS}:ContrastiveTension",
        "contrastive_tension_in_batch": f"{_TWO_MODELS}:ContrastiveTensionInBatch",
        "cosent": "stsbench.training.methods.sbert:CoSENT",
        "declutr": "stsbench.training.methods.declutr:DeCLUTR",
        "diffcse": "stsbench.training.methods.after_simcse:DiffCSE",
        "esimcse": "stsbench.training.methods.after_simcse:ESimCSE",
        "is_bert": "stsbench.training.methods.own_encoders:ISBERT",
        "mixcse": "stsbench.training.methods.after_simcse:MixCSE",
        "mlm": "stsbench.training.methods.denoising:MaskedLanguageModel",
        "promptbert": "stsbench.training.methods.own_encoders:PromptBERT",
        "rankcse": "stsbench.training.methods.after_simcse:RankCSE",
        "sbert": "stsbench.training.methods.sbert:SBERT",
        "sbert_regression": "stsbench.training.methods.sbert:SBERTRegression",
        "sbert_triplets": "stsbench.training.methods.sbert:SBERTTriplets",
        "self_guided": f"{_TWO_MODELS}:SelfGuided",
        "simcse": "stsbench.training.methods.simcse:SimCSE",
        "simcse_plus_plus": "stsbench.training.methods.after_simcse:SimCSEPlusPlus",
        "simcse_positives": "stsbench.training.methods.simcse:SimCSEPositives",
        "tsdae": "stsbench.training.methods.denoising:TSDAE",
    },
    "rounds": {
        "infersent": "stsbench.training.words.infersent:InferSentTraining",
        "skip_thoughts": "stsbench.training.words.recurrent_methods:SkipThoughtsTraining",
        "quick_thoughts": "stsbench.training.words.recurrent_methods:QuickThoughtsTraining",
        "fastsent": "stsbench.training.words.fastsent:FastSentTraining",
    },
}
"""Our own methods, by the trainer that they need: the common loop, or training in rounds."""


def _is_method(candidate: object) -> bool:
    # The import loads torch, but a module with a method has loaded it already.
    from stsbench.training.learner import Learner
    from stsbench.training.words.rounds import StandaloneMethod

    return isinstance(candidate, type) and issubclass(candidate, Learner | StandaloneMethod)


METHODS = Registry(
    "method",
    {name: address for rows in METHODS_BY_TRAINER.values() for name, address in rows.items()},
    group="methods",
    accepts=_is_method,
    expected=(
        "a class of Learner (stsbench.training.learner) "
        "or of StandaloneMethod (stsbench.training.words.rounds)"
    ),
)
