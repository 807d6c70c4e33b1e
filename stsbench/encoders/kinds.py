"""The kinds of encoders, by name."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from stsbench.core.catalogue import Catalogue
from stsbench.core.registry import Registry
from stsbench.encoders.metadata import can_encode


def is_factory(made: Any) -> bool:  # noqa: ANN401 - what a user's name stands for
    """Whether this is an encoder, a class of encoders, or a function that may make one."""
    made = made if isinstance(made, type) or not callable(made) else inspect.unwrap(made)
    if not inspect.isfunction(made):
        return can_encode(made)
    if made.__module__.partition(".")[0] in sys.stdlib_module_names:
        return False
    returned = inspect.get_annotations(made).get("return", None)
    return not isinstance(returned, type) or can_encode(returned)


ENCODERS = Registry(
    "encoder kind",
    {
        "transformer": "stsbench.encoders.transformer.encoder:TransformerEncoder",
        "sentence_transformer": "stsbench.encoders.transformer.encoder:SentenceTransformerEncoder",
        "words": "stsbench.encoders.words.words:WordsEncoder",
        "whitening": "stsbench.encoders.whitening:whitened_encoder",
        "calibration": "stsbench.encoders.whitening:calibrated_encoder",
        "token_removal": "stsbench.encoders.whitening:token_removal_encoder",
        "flow": "stsbench.encoders.flow:flow_encoder",
        "model2vec": "stsbench.encoders.words.model2vec:Model2VecEncoder",
        "infersent": "stsbench.encoders.words.recurrent:InferSentEncoder",
        "skip_thoughts": "stsbench.encoders.words.recurrent:GruHalvesEncoder",
        "quick_thoughts": "stsbench.encoders.words.recurrent:QuickThoughtsEncoder",
        "fastsent": "stsbench.encoders.words.words:FastSentEncoder",
        "use": "stsbench.encoders.served.use:UniversalSentenceEncoder",
        "openai": "stsbench.encoders.served.openai:OpenAIEncoder",
    },
    group="encoders",
    accepts=is_factory,
    expected="a class with encode, a function that makes an encoder, or an encoder",
)


FITTED = frozenset({"whitening", "calibration", "token_removal", "flow"})
"""The kinds that are made over another encoder and fitted on texts."""


SERVED = frozenset({"openai"})
"""The kinds whose weights are on a server."""


FROM_CHECKPOINT = frozenset(ENCODERS.table) - FITTED - SERVED - {"words"}
"""The kinds that need a checkpoint: a card may leave it to the user where none can be fetched."""


def cards_of_model(model: str, catalogue: Catalogue) -> list[str]:
    """The encoder cards whose checkpoint is this model of the Hub."""
    found = []
    for name in catalogue.paths("baselines"):
        card = catalogue.encoder(name)
        # A server's name for a model says nothing of its weights.
        whole = card.kind not in SERVED and not card.params.get("subfolder")
        if whole and str(card.params.get("model", "")).casefold() == model.casefold():
            found.append(name)
    return found
