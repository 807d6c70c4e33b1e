"""Every method made once on a small student, for what all of them must do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from stsbench.training.learner import Learner
from stsbench.training.methods.after_simcse import DiffCSE, ESimCSE, MixCSE, RankCSE, SimCSEPlusPlus
from stsbench.training.methods.declutr import DeCLUTR
from stsbench.training.methods.denoising import TSDAE, MaskedLanguageModel
from stsbench.training.methods.own_encoders import ISBERT, PromptBERT
from stsbench.training.methods.sbert import SBERT, AnglE, CoSENT, SBERTRegression, SBERTTriplets
from stsbench.training.methods.simcse import SimCSE, SimCSEPositives
from stsbench.training.methods.two_models import (
    ContrastiveTension,
    ContrastiveTensionInBatch,
    SelfGuided,
)
from stsbench.training.methods.views import CLEAR, ConSERT
from tests.training.students import sentences, student
from tests.training.tensors import made as tensor

TEXTS = {
    name: sentences(20, seed=seed, longest=15)
    for seed, name in enumerate(("text", "first", "second"), 1)
}
COLUMNS: dict[str, Any] = {
    **TEXTS,
    "anchor": TEXTS["text"],
    "positive": TEXTS["first"],
    "negative": TEXTS["second"],
    "label": [("contradiction", "entailment", "neutral")[row % 3] for row in range(20)],
    "score": [row % 6 for row in range(20)],
    "document": [" ".join(sentences(30, seed=row)) for row in range(20)],
}
# Drawn part by part: other parts, other draws.
DRAWN: dict[str, tuple[type[Learner], dict[str, Any]]] = {
    "consert, features": (ConSERT, {"views": ("feature_cutoff", "shuffle")}),
    "consert, tokens": (ConSERT, {"views": ("token_cutoff", "dropout"), "objective": "joint"}),
}
# Its loss is no function of embeddings.
WHOLE: dict[str, tuple[type[Learner], dict[str, Any]]] = {"is_bert": (ISBERT, {"channels": 5})}
SPANS = {"min_span": 4, "max_span": 12}
CASES: dict[str, tuple[type[Learner], dict[str, Any]]] = {
    "simcse": (SimCSE, {}),
    "simcse, hard negatives": (SimCSE, {"views": "triplets", "hard_negative_weight": 0.7}),
    "simcse, MLM": (SimCSE, {"mlm_weight": 0.5}),
    "simcse, triplets, MLM": (
        SimCSE,
        {"views": "triplets", "mlm_weight": 0.5, "mlm_decoder": "copied"},
    ),
    "two encoders": (SimCSEPositives, {"positive": "two_encoders"}),
    "fixed mask": (SimCSEPositives, {"positive": "fixed_mask"}),
    "consert": (ConSERT, {"views": ("none", "shuffle")}),
    "consert, joint": (ConSERT, {"views": ("none", "shuffle"), "objective": "joint"}),
    "self-guided": (SelfGuided, {"head_width": 8}),
    "declutr": (DeCLUTR, SPANS),
    "declutr, no MLM": (DeCLUTR, {**SPANS, "mlm_weight": 0.0}),
    "clear": (CLEAR, {"first": "delete_spans"}),
    "mlm": (MaskedLanguageModel, {}),
    "sbert": (SBERT, {}),
    "regression": (SBERTRegression, {}),
    "library's triplets": (SBERTTriplets, {}),
    "esimcse": (ESimCSE, {"queue_size": 30}),
    "diffcse": (DiffCSE, {"detection_weight": 0.5}),
    "mixcse": (MixCSE, {}),
    "simcse++": (SimCSEPlusPlus, {}),
    "cosent": (CoSENT, {}),
    "angle": (AnglE, {"positives": "released"}),
    "promptbert": (PromptBERT, {"second_template": "{} means the [MASK]"}),
    "rankcse": (RankCSE, {"teachers": ["made"]}),
    "tsdae": (TSDAE, {"words": "whitespace"}),
    "tension": (ContrastiveTension, {"dropout_in_training": True}),
    "tension in batch": (ContrastiveTensionInBatch, {}),
}


def made(folder: Path, case: str, *, dropout: float = 0.0) -> Learner:
    method, params = {**CASES, **DRAWN, **WHOLE}[case]
    torch.manual_seed(1)
    language_model = method.needs_language_model(params)
    pooling = "mask" if method is PromptBERT else "mean"
    learner = method(
        student(folder, dropout=dropout, language_model=language_model, pooling=pooling), **params
    )
    learner.prepare({name: COLUMNS[name] for name in learner.needs})
    if isinstance(learner, RankCSE):
        learner.teacher_embeddings = [lambda rows: tensor(20, 5, key=2).float().numpy()[rows]]
    if isinstance(learner, ESimCSE):
        learner.queue.copy_(tensor(30, 16, key=1))
        learner.filled[5:] = True
    if isinstance(learner, DiffCSE):
        # Its draws are those of another batch where the batch is cut otherwise: now all but one are as good as never drawn.
        with torch.no_grad():
            learner.guesser.get_output_embeddings().weight.mul_(1e4)
    return learner.train()


def precise(learner: Learner) -> Learner:
    """In float64, where rounding hides nothing; the frozen encoder of SG-OPT is no part of what a module casts."""
    return learner if isinstance(learner, SelfGuided) else learner.double()
