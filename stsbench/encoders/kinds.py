"""The kinds of encoder: a registry of what makes one, called with parameters that are checked."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.facts import can_encode, check_encoder
from stsbench.encoders.seams import Encoder
from stsbench.errors import CardError
from stsbench.registry.names import Registry, call_with_params


def is_maker(made: Any) -> bool:  # noqa: ANN401 - what a user's name stands for
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
        "sentence_transformer": "stsbench.encoders.transformer.sentence_transformer:SentenceTransformerEncoder",
        "words": "stsbench.encoders.words.words:WordsEncoder",
        "whitening": "stsbench.encoders.whitening:whitened_encoder",
        "calibration": "stsbench.encoders.calibration:calibrated_encoder",
        "token_removal": "stsbench.encoders.fitted.token_removal:TokenRemovalEncoder",
        "flow": "stsbench.encoders.fitted.flow_encoder:flow_encoder",
        "model2vec": "stsbench.encoders.words.model2vec:Model2VecEncoder",
        "infersent": "stsbench.encoders.words.infersent:InferSentEncoder",
        "skip_thoughts": "stsbench.encoders.words.gru_halves:SkipThoughtsEncoder",
        "quick_thoughts": "stsbench.encoders.words.gru_halves:QuickThoughtsEncoder",
        "fastsent": "stsbench.encoders.words.fastsent:FastSentEncoder",
        "use": "stsbench.encoders.served.use:UniversalSentenceEncoder",
        "openai": "stsbench.encoders.served.openai:OpenAIEncoder",
    },
    group="encoders",
    accepts=is_maker,
    wanted="a class with encode, a function that makes an encoder, or an encoder",
)
FITTED = frozenset({"whitening", "calibration", "token_removal", "flow"})
"""The kinds that are made over another encoder and fitted on texts."""
FROM_CHECKPOINT = frozenset(
    {
        "transformer",
        "sentence_transformer",
        "infersent",
        "skip_thoughts",
        "quick_thoughts",
        "fastsent",
        "use",
        "model2vec",
    }
)
"""The kinds that need a checkpoint: a card may leave it to the user where none can be fetched."""
SERVED = frozenset({"openai"})
"""The kinds whose weights are on a server."""


def make_encoder(
    factory: Callable[..., Any],
    name: str,
    params: dict[str, Any],
    where: str,
    catalogue: Catalogue | None = None,
    *,
    also: Sequence[str] = (),
) -> Encoder:
    """Call a factory with params checked against its signature; it is told its name, and the cards, if it wants to know.

    What is an encoder already is left as it is. ``also`` are names that an unknown parameter may have been meant for.

    Raises:
        CardError: a parameter is unknown, missing or of another type; EncoderError: what it makes is no encoder.
    """
    if not isinstance(factory, type) and not inspect.isroutine(factory) and is_maker(factory):
        if params:
            raise CardError(f"{where} is made already; it takes no parameters ({', '.join(params)})")
        return check_encoder(factory, where)
    if inspect.isabstract(factory):
        raise CardError(f"{where}: {factory.__name__} is an abstract class; give one that has all its methods")
    takes = inspect.signature(factory).parameters
    told: dict[str, Any] = {"name": name} if name and "name" in takes else {}
    told |= {"catalogue": catalogue} if catalogue is not None and "catalogue" in takes else {}
    for key in ("name", "catalogue"):
        if name and key in params:
            raise CardError(f"{where}: '{key}' cannot be set: stsbench sets it")
    return check_encoder(call_with_params(factory, {**told, **params}, where=where, others=also), where)
