"""Encoders that a program hands over: by name, or as objects and functions of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError
from stsbench.core.wording import format_repr
from stsbench.encoders.base import Encoder, FloatArray
from stsbench.encoders.engine.embed import as_array
from stsbench.encoders.load import load_named
from stsbench.encoders.metadata import (
    can_encode,
    check_encoder,
    check_signature,
    is_encoder,
    is_name,
    valid_text,
)
from stsbench.encoders.named import NamedEncoder, find_named


def resolve_encoder(
    candidate: object, catalogue: Catalogue, *, name: str | None = None
) -> NamedEncoder:
    """Return the encoder that a program hands over.

    Args:
        candidate: Anything that :func:`stsbench.load_encoder` or :func:`wrap_object` takes.
        catalogue: The cards to search.
        name: The name in results of an encoder that is not given by its name; None for its own.

    Raises:
        EncoderError: It is no encoder, or cannot have this name.
    """
    if isinstance(candidate, str | Path):
        if name is not None:
            raise EncoderError(
                f"'{candidate}' is a name already, by which its results are found; "
                f"leave out name='{name}'"
            )
        return load_named(str(candidate), catalogue=catalogue)
    named_encoder = (
        candidate
        if isinstance(candidate, NamedEncoder)
        else find_named(wrap_object(candidate, named=name is not None), catalogue)
    )
    if name is None:
        is_function = isinstance(named_encoder.encoder, FunctionEncoder)
        if is_function and catalogue.is_taken(named_encoder.name):
            return replace(named_encoder, name=f"{named_encoder.name} (function)")
        return named_encoder
    if not is_name(name) or catalogue.is_taken(name):
        raise EncoderError(
            f"{format_repr(name)} cannot be the name of an encoder of your own: "
            "give one line of text that is not the name of a card"
        )
    return replace(named_encoder, name=name, candidate_names=())


def wrap_object(candidate: object, *, named: bool = False) -> Encoder:
    """Return an object of a program as an encoder.

    Args:
        candidate: An encoder, a ``SentenceTransformer``, or a function from sentences to
            embeddings (n, d).
        named: The program names the encoder in results. Then an object with ``encode`` but no
            name of its own is accepted, and its ``encode`` is wrapped as a function.

    Raises:
        EncoderError: It is none of these; the message names what it lacks.
    """
    is_library_model = _is_instance(
        candidate, package="sentence_transformers", class_name="SentenceTransformer"
    )
    if is_library_model and not is_encoder(candidate):
        return _wrap_library_model(candidate)
    if can_encode(candidate):
        is_object = not isinstance(candidate, type)
        if named and is_object and getattr(candidate, "name", None) is None:
            return wrap_object(cast(Encoder, candidate).encode)
        return check_encoder(candidate, subject="the encoder")
    is_module = _is_instance(candidate, package="torch", class_name="Module")
    if not callable(candidate) or isinstance(candidate, type) or is_module:
        raise EncoderError(
            f"{format_repr(candidate)} is not an encoder; give a name, "
            "an object with name, fingerprint (or None) and encode(sentences), "
            "a SentenceTransformer, or a function from sentences to an array (n, d)"
        )
    encoder = FunctionEncoder(candidate)
    check_signature(candidate, f"the function {encoder.name}")
    return encoder


class FunctionEncoder:
    """A function from a list of sentences to their embeddings (n, d).

    Nothing identifies what the function does, so that no embeddings are stored.
    """

    fingerprint = None
    device_used: object = None
    dtype: object = None
    prompt = None
    """Unknown, because the function may add one."""

    def __init__(self, function: Callable[[list[str]], object]) -> None:
        """Store the function, and take its name; ``lambda`` for a lambda function."""
        self.function = function
        # A partial has no name, nor has an object with __call__: its class has one.
        named_object: Any = function.func if isinstance(function, partial) else function
        if not inspect.isroutine(named_object):
            named_object = type(named_object)
        self.name = named_object.__name__.strip("<>")

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        return as_array(self.function(list(sentences)), self.name).astype(np.float32, copy=False)


def _wrap_library_model(model: Any) -> FunctionEncoder:  # noqa: ANN401 - of a library not imported
    """Return a user's own ``SentenceTransformer`` as an encoder, which uses its default prompt.

    It has no fingerprint, as the user may go on training it: nothing of it is stored.
    """

    def encode(sentences: list[str]) -> object:
        return model.encode(
            [valid_text(sentence) for sentence in sentences], show_progress_bar=False
        )

    encoder = FunctionEncoder(encode)
    encoder.name = "SentenceTransformer"
    encoder.device_used = model.device
    encoder.dtype = model.dtype
    return encoder


def _is_instance(candidate: object, package: str, class_name: str) -> bool:
    """Return whether an object is of a package's class, without an import of the package."""
    return any(
        base.__module__.partition(".")[0] == package and base.__name__ == class_name
        for base in type(candidate).__mro__
    )
