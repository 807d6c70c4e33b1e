"""What a program may hand over as an encoder: a name, an encoder, a sentence-transformers model, a function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from stsbench.cards.catalogue import Catalogue
from stsbench.encoders.engine.returned import as_array
from stsbench.encoders.facts import can_encode, check_call, check_encoder, is_encoder, is_name, is_nameless
from stsbench.encoders.known import KnownEncoder, known_as
from stsbench.encoders.loading import find_encoder
from stsbench.encoders.seams import Encoder, FloatArray
from stsbench.errors import EncoderError, shown


def find_given(given: object, catalogue: Catalogue, *, name: str | None = None) -> KnownEncoder:
    """Return the encoder that a program hands over.

    Args:
        given: what :func:`stsbench.load_encoder` takes, an encoder, a ``SentenceTransformer``, or a function from a
            list of sentences to their embeddings (n, d).
        catalogue: where names are looked up.
        name: what results call an encoder that is not given by its name; default its own.

    Raises:
        EncoderError: it is not one of these, or cannot be called so; others as ``load_encoder``.
    """
    if isinstance(given, str | Path):
        if name is not None:
            raise EncoderError(f"'{given}' is a name already, by which its results are found; leave out name='{name}'")
        return find_encoder(str(given), catalogue=catalogue)
    known = given if isinstance(given, KnownEncoder) else known_as(as_encoder(given, named=name is not None), catalogue)
    if name is None:
        clash = isinstance(known.encoder, Function) and catalogue.is_taken(known.name)
        return replace(known, name=f"{known.name} (function)") if clash else known
    if not is_name(name) or catalogue.is_taken(name):
        raise EncoderError(
            f"{shown(name)} cannot be the name of an encoder of your own: give one line of text that is not the name of a card"
        )
    return replace(known, name=name, names=())


def as_encoder(given: object, *, named: bool = False) -> Encoder:
    """Return an encoder as it is, and as one a ``SentenceTransformer`` or a function from sentences to embeddings.

    Where the user has ``named`` it, an object without a name of its own is its function ``encode``.

    Raises:
        EncoderError: it is not one of these; says what it lacks.
    """
    if not is_encoder(given) and _is_of(given, "sentence_transformers", "SentenceTransformer"):
        return LibraryModel(given)
    if named and is_nameless(given):
        return as_encoder(cast(Encoder, given).encode)
    if can_encode(given):
        return check_encoder(given, "the encoder")
    if not callable(given) or isinstance(given, type) or _is_of(given, "torch", "Module"):
        raise EncoderError(
            f"{shown(given)} is not an encoder; give a name, an object with name, fingerprint (or None) and "
            "encode(sentences), a SentenceTransformer, or a function from sentences to an array (n, d)"
        )
    encoder = Function(given)
    check_call(given, f"the function {encoder.name}")
    return encoder


class LibraryModel:
    """A ``SentenceTransformer`` of the user's own making; it may be trained on, so none of its embeddings is stored."""

    name, fingerprint = "SentenceTransformer", None

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - sentence_transformers is not imported for it
        """Keep the model."""
        self.model = model

    @property
    def device_used(self) -> object:
        """The device the model is on."""
        return self.model.device

    @property
    def dtype(self) -> object:
        """The type of the model's numbers."""
        return self.model.dtype

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d), with the prompt that is the model's default."""
        from stsbench.encoders.transformer.opening import valid_text

        texts = [valid_text(sentence) for sentence in sentences]
        return _as_float32(self.model.encode(texts, show_progress_bar=False), self.name)


class Function:
    """A function from a list of sentences to their embeddings (n, d); what it does is not known, so nothing is stored."""

    fingerprint = None

    def __init__(self, function: Callable[[list[str]], object]) -> None:
        """Keep the function, and call the encoder as it is called."""
        self.function = function
        inner = function.func if isinstance(function, functools.partial) else function
        self.name = (inner if inspect.isroutine(inner) else type(inner)).__name__.strip("<>")

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        return _as_float32(self.function(list(sentences)), self.name)


def _as_float32(returned: object, name: str) -> FloatArray:
    return as_array(returned, name).astype(np.float32, copy=False)


def _is_of(given: object, package: str, name: str) -> bool:
    """Whether this is of a class of a package that need not be imported to tell."""
    return any(kind.__module__.partition(".")[0] == package and kind.__name__ == name for kind in type(given).__mro__)
