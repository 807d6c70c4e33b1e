"""The kinds of encoders by name, and what each of them needs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Literal, NamedTuple, cast, get_args

from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError, StsbenchError
from stsbench.core.registry import Registry
from stsbench.core.wording import format_repr
from stsbench.encoders.metadata import can_encode

Requirement = Literal["checkpoint", "server", "texts", "nothing"]
"""What encoders of a kind need beside the parameters of their card.

``checkpoint``: the weights at ``model``, or in the Python package ``package``; a card may leave it
to the user to name them. ``server``: a server that embeds. ``texts``: another encoder, and texts to
be fitted on before they embed. ``nothing``: no more than their parameters.
"""


class EncoderKind(NamedTuple):
    """One of our own kinds: the address of what makes its encoders, and what they need."""

    address: str
    needs: Requirement


_TRANSFORMER = "stsbench.encoders.transformer"
_RECURRENT = "stsbench.encoders.words.recurrent"
_WORDS = "stsbench.encoders.words.words"
_WHITENING = "stsbench.encoders.whitening"
KINDS = {
    "transformer": EncoderKind(f"{_TRANSFORMER}.encoder:TransformerEncoder", needs="checkpoint"),
    "sentence_transformer": EncoderKind(
        f"{_TRANSFORMER}.sentence_transformer:SentenceTransformerEncoder", needs="checkpoint"
    ),
    "words": EncoderKind(f"{_WORDS}:WordsEncoder", needs="nothing"),
    "whitening": EncoderKind(f"{_WHITENING}:whitened_encoder", needs="texts"),
    "calibration": EncoderKind(f"{_WHITENING}:calibrated_encoder", needs="texts"),
    "token_removal": EncoderKind(f"{_WHITENING}:token_removal_encoder", needs="texts"),
    "flow": EncoderKind("stsbench.encoders.flow:flow_encoder", needs="texts"),
    "model2vec": EncoderKind(
        "stsbench.encoders.words.model2vec:Model2VecEncoder", needs="checkpoint"
    ),
    "infersent": EncoderKind(f"{_RECURRENT}:InferSentEncoder", needs="checkpoint"),
    "skip_thoughts": EncoderKind(f"{_RECURRENT}:GruHalvesEncoder", needs="checkpoint"),
    "quick_thoughts": EncoderKind(f"{_RECURRENT}:QuickThoughtsEncoder", needs="checkpoint"),
    "fastsent": EncoderKind(f"{_WORDS}:FastSentEncoder", needs="checkpoint"),
    "use": EncoderKind("stsbench.encoders.served.use:UniversalSentenceEncoder", needs="checkpoint"),
    "file": EncoderKind("stsbench.encoders.embedding_file:FileEncoder", needs="nothing"),
    "similarities": EncoderKind(
        "stsbench.encoders.similarity_file:SimilarityFile", needs="nothing"
    ),
    "cross_encoder": EncoderKind(f"{_TRANSFORMER}.cross_encoder:CrossEncoder", needs="checkpoint"),
    "openai": EncoderKind("stsbench.encoders.served.openai:OpenAIEncoder", needs="server"),
}
"""Our own kinds by name."""


def is_factory(candidate: Any) -> bool:  # noqa: ANN401 - the object of a user's name
    """Return whether an object is an encoder, a class of encoders, or may be a function making one.

    An encoder, or a class of encoders, is whatever has a method ``encode``. A function may make an
    encoder if it is not of Python's standard library, and if its annotation does not say that it
    returns a class without ``encode``.
    """
    if not isinstance(candidate, type) and callable(candidate):
        candidate = inspect.unwrap(candidate)
    if not inspect.isfunction(candidate):
        return can_encode(candidate)
    if candidate.__module__.partition(".")[0] in sys.stdlib_module_names:
        return False
    # None without an annotation, and for one that is no class, such as a union or a text.
    return_type = _return_type(candidate)
    return return_type is None or can_encode(return_type)


def _return_type(function: Any) -> type | None:  # noqa: ANN401 - as is_factory
    """Return the class that a function's annotation names; None if it names no class."""
    annotation = inspect.get_annotations(function).get("return")
    return annotation if isinstance(annotation, type) else None


ENCODERS = Registry(
    "encoder kind",
    {name: kind.address for name, kind in KINDS.items()},
    group="encoders",
    accepts=is_factory,
    expected="a class with encode, a function that makes an encoder, or an encoder",
)


def find_requirement(kind: str) -> Requirement:
    """Return what the encoders of a kind need beside the parameters of their card.

    It is in a table for our own kinds. A user's class or function may declare it by an attribute
    ``needs``. Without this attribute, a class with the method ``fit_texts`` needs texts, one with
    ``embed_into`` a server, and any other one nothing.

    Args:
        kind: A name of :data:`KINDS`, of an entry point, or ``package.module:Name``.

    Returns:
        ``checkpoint``, ``server``, ``texts`` (to be fitted on) or ``nothing``. It is ``nothing``
        for a kind that cannot be imported.

    Raises:
        EncoderError: ``needs`` is not one of the values of :data:`Requirement`.
    """
    if kind in KINDS:
        return KINDS[kind].needs
    # The class, function or encoder of this kind; None if it cannot be imported.
    factory: Any = None
    with suppress(StsbenchError):
        factory = ENCODERS.load(kind)
    declared = getattr(factory, "needs", None)
    if declared is not None:
        if declared not in get_args(Requirement):
            raise EncoderError(
                f"'needs' of the encoder kind '{kind}' must be one of "
                f"{', '.join(get_args(Requirement))}; it is {format_repr(declared)}"
            )
        return cast(Requirement, declared)
    # For a function, the class that its annotation says it returns; None if it names no class.
    encoder_type = _return_type(factory) if inspect.isfunction(factory) else factory
    if hasattr(encoder_type, "fit_texts"):
        return "texts"
    return "server" if hasattr(encoder_type, "embed_into") else "nothing"


def lacks_checkpoint(card: EncoderCard, params: Iterable[str] = ()) -> bool:
    """Return whether a card needs a checkpoint that neither it nor a user's parameters name."""
    names_checkpoint = bool({"model", "package"} & {*card.params, *params})
    return not names_checkpoint and find_requirement(card.kind) == "checkpoint"


def find_cards_of_model(model: str, catalogue: Catalogue) -> list[str]:
    """Return the names of the encoder cards whose checkpoint is a given model of the Hub.

    Args:
        model: The id of the model on the Hub, in which upper and lower case are the same.
        catalogue: The cards.
    """
    names = []
    # The names of all encoders' cards.
    for name in catalogue.paths("baselines"):
        card = catalogue.encoder(name)
        is_of_model = str(card.params.get("model", "")).casefold() == model.casefold()
        # A subfolder of the model's repository holds another model. The card of a server names a
        # model too, but its name for it identifies no weights.
        has_subfolder = bool(card.params.get("subfolder"))
        if is_of_model and not has_subfolder and find_requirement(card.kind) != "server":
            names.append(name)
    return names
