"""The kinds of encoder: a registry of what makes one, called with parameters that are checked."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, cast

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.seams import Encoder
from stsbench.errors import CardError, EncoderError
from stsbench.registry import Registry, call_with_params


def is_maker(made: Any) -> bool:  # noqa: ANN401 - what a user's name stands for
    """Whether this is an encoder, a class of encoders, or a function that may make one."""
    if isinstance(made, type) or not inspect.isfunction(made):
        return callable(getattr(made, "encode", None))
    if made.__module__.partition(".")[0] in sys.stdlib_module_names:
        return False
    returned = inspect.get_annotations(made).get("return", None)
    return not isinstance(returned, type) or callable(getattr(returned, "encode", None))


ENCODERS = Registry(
    "encoder kind",
    {
        "transformer": "stsbench.encoders.transformer.encoder:TransformerEncoder",
        "sentence_transformer": "stsbench.encoders.transformer.sentence_transformer:SentenceTransformerEncoder",
        "words": "stsbench.encoders.words.words:WordsEncoder",
        "whitening": "stsbench.encoders.whitening:whitened_encoder",
        "token_removal": "stsbench.encoders.fitted.token_removal:TokenRemovalEncoder",
        "flow": "stsbench.encoders.fitted.flow_encoder:flow_encoder",
        "infersent": "stsbench.encoders.words.infersent:InferSentEncoder",
        "skip_thoughts": "stsbench.encoders.words.gru_halves:SkipThoughtsEncoder",
        "quick_thoughts": "stsbench.encoders.words.gru_halves:QuickThoughtsEncoder",
        "fastsent": "stsbench.encoders.words.fastsent:FastSentEncoder",
        "use": "stsbench.encoders.served.use:UniversalSentenceEncoder",
    },
    group="encoders",
    accepts=is_maker,
    wanted="a class with encode, a function that makes an encoder, or an encoder",
)
FITTED = frozenset({"whitening", "token_removal", "flow"})
"""The kinds that are made over another encoder and fitted on texts."""
FROM_CHECKPOINT = frozenset(ENCODERS.table) - FITTED - {"words"}
"""The kinds that need a checkpoint: a card may leave it to the user where none can be fetched."""


def make_encoder(
    factory: Callable[..., Any], name: str, params: dict[str, Any], where: str, catalogue: Catalogue | None = None
) -> Encoder:
    """Call a factory with params checked against its signature; it is told its name, and the cards, if it wants to know.

    What is an encoder already is left as it is.

    Raises:
        CardError: a parameter is unknown, missing or of another type; EncoderError: what it makes is no encoder.
    """
    if not isinstance(factory, type) and hasattr(factory, "encode"):
        if params:
            raise CardError(f"{where} is made already; it takes no parameters ({', '.join(params)})")
        check_encoder(factory, where)
        return cast(Encoder, factory)
    takes = inspect.signature(factory).parameters
    told: dict[str, Any] = {"name": name} if name and "name" in takes else {}
    told |= {"catalogue": catalogue} if catalogue is not None and "catalogue" in takes else {}
    for key in ("name", "catalogue"):
        if name and key in params:
            raise CardError(f"{where}: '{key}' is no parameter to give: it is told by stsbench")
    encoder = call_with_params(factory, {**told, **params}, where=where)
    check_encoder(encoder, where)
    return cast(Encoder, encoder)


def check_encoder(encoder: Any, where: str) -> None:  # noqa: ANN401 - what a user's code made
    """Refuse what is no encoder; raises EncoderError, saying what it lacks."""
    for needed in ("name", "fingerprint", "encode"):
        if not hasattr(encoder, needed):
            raise EncoderError(
                f"{where}: {type(encoder).__name__} has no '{needed}'; "
                "an encoder needs name, fingerprint (or None) and encode(sentences)"
            )
    if not isinstance(encoder.name, str) or not encoder.name.strip(". "):
        raise EncoderError(f"{where}: the name {encoder.name!r} names nothing; results go into a folder of that name")
    if not isinstance(encoder.fingerprint, str | None) or encoder.fingerprint == "":
        raise EncoderError(f"{where}: the fingerprint {encoder.fingerprint!r} is neither text nor None")
