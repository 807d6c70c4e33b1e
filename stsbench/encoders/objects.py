"""Encoders that a program hands over: by name, or as objects and functions of its own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError, look_up, translate_errors
from stsbench.core.wording import format_repr
from stsbench.encoders.base import Encoder, FloatArray
from stsbench.encoders.checkpoint import read_positions
from stsbench.encoders.engine.embed import to_numeric_array
from stsbench.encoders.load import load_named
from stsbench.encoders.metadata import (
    can_encode,
    check_encoder,
    check_signature,
    is_encoder,
    is_name,
    replace_lone_surrogates,
)
from stsbench.encoders.named import NamedEncoder, find_named
from stsbench.encoders.pairs import ORDER_NOTES, Order, PairScorer, check_scores

TRANSFORMER_BATCH = 32
"""The number of sentences in a batch of a model of transformers."""
CROSS_ENCODER_BATCH = 32
"""The number of pairs in a batch of a ``CrossEncoder`` of sentence-transformers."""
CLIENT_BATCH = 256
"""The number of sentences in a request of an OpenAI-like client."""


def resolve_encoder(
    candidate: object,
    catalogue: Catalogue,
    *,
    name: str | None = None,
    batch_size: int | None = None,
    params: Mapping[str, Any] = MappingProxyType({}),
) -> NamedEncoder:
    """Return the encoder that a user's program passes, under its name in results.

    Args:
        candidate: A name or path, as :func:`stsbench.load_encoder` accepts; or an object, as
            :func:`wrap_object` accepts, such as a function from sentences to embeddings.
        catalogue: The cards to search.
        name: The name in results, for an object only; None for the object's own name.
        batch_size: The largest number of sentences that a function or an object of another library
            is called with; None for its default.
        params: Parameters that replace those of a card, for a name only.

    Raises:
        EncoderError: It is no encoder, or cannot have this name, a batch size or parameters.
    """
    if params and not isinstance(candidate, str | Path):
        raise EncoderError(
            "params replace those of a card; they have no effect beside an encoder that is loaded"
        )
    # Functions, and objects of other libraries, are wrapped as a FunctionEncoder.
    resolved = _resolve_object(candidate, catalogue, name=name, params=params)
    if batch_size is None:
        return resolved
    if not isinstance(resolved.encoder, FunctionEncoder):
        raise EncoderError(
            f"'{resolved.name}' plans its own batches; batch_size is for functions and for "
            "objects of other libraries"
        )
    resolved.encoder.batch_size = batch_size
    return resolved


def _resolve_object(
    candidate: object, catalogue: Catalogue, *, name: str | None, params: Mapping[str, Any]
) -> NamedEncoder:
    """Return the encoder that a user's program passes, under its name in results.

    Args:
        candidate: The name or path of an encoder, or an object that is one or becomes one.
        catalogue: The cards, whose names an object must not take.
        name: The name in results, for an object only; None for the object's own name.
        params: Parameters that replace those of a card, for a name only.

    Raises:
        EncoderError: The object is no encoder, or cannot have this name.
    """
    if isinstance(candidate, str | Path):
        if name not in (None, str(candidate)):
            raise EncoderError(
                f"'{candidate}' is a name already, by which its results are found, so that it "
                f"cannot be called '{name}'; in a dict, make it its own key"
            )
        return load_named(str(candidate), params=params, catalogue=catalogue)
    if isinstance(candidate, NamedEncoder):
        named_encoder = candidate
    else:
        # With the card and the name that it was loaded with, or else its own name. An object that
        # lacks only a name is wrapped too if the user gives one.
        encoder = wrap_object(candidate, name=name)
        named_encoder = find_named(encoder, catalogue)
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
    if isinstance(named_encoder.encoder, FunctionEncoder):
        # So that its own errors name it as the user does.
        named_encoder.encoder.name = name
    # No other names are tried for its results.
    return replace(named_encoder, name=name, candidate_names=())


def wrap_object(candidate: object, *, name: str | None = None) -> Encoder:
    """Return an object of a user's program as an encoder.

    An object that is an encoder is returned itself. Others are wrapped in a class that is one.

    Args:
        candidate: An encoder, a pair scorer, a ``SentenceTransformer`` or ``CrossEncoder``, a
            ``StaticModel`` of model2vec, a function from sentences to embeddings (n, d), or a pair
            as :func:`is_encoder_pair` describes it.
        name: The program's name of the encoder, for messages; None if it gives none. With a name
            an object with ``encode`` but no name of its own is accepted, and its ``encode`` is
            wrapped as a function.

    Raises:
        EncoderError: It is none of these; the message names what it lacks.
    """
    if is_encoder_pair(candidate):
        first, second = cast(tuple[Any, Any], candidate)
        # Either (client, name of a model), or (model, tokenizer).
        if isinstance(second, str):
            return _wrap_client(first, second)
        return _wrap_transformer(first, second)
    if _is_cross_encoder(candidate):
        return wrap_pair_scorer(candidate)
    # The classes of libraries are told by their names, and no library is imported for that.
    is_static_model = _is_instance(candidate, package="model2vec", class_name="StaticModel")
    if is_static_model and not is_encoder(candidate):
        encoder = FunctionEncoder(cast(Encoder, candidate).encode)
        encoder.name = "StaticModel"
        return encoder
    is_library_model = _is_instance(
        candidate, package="sentence_transformers", class_name="SentenceTransformer"
    )
    if is_library_model and not is_encoder(candidate):
        return _wrap_library_model(candidate)
    # An object or a class with a method `encode`.
    if can_encode(candidate):
        is_object = not isinstance(candidate, type)
        if name is not None and is_object and getattr(candidate, "name", None) is None:
            return wrap_object(cast(Encoder, candidate).encode, name=name)
        return check_encoder(candidate, subject=f"encoder '{name}'" if name else "the encoder")
    is_module = _is_instance(candidate, package="torch", class_name="Module")
    if not callable(candidate) or isinstance(candidate, type) or is_module:
        raise EncoderError(
            f"{format_repr(candidate)} is not an encoder; give a name, "
            "an object with name, fingerprint (or None) and encode(sentences), "
            "a SentenceTransformer, (model, tokenizer) of transformers, (client, 'model') of an "
            "OpenAI-like client, or a function from sentences to an array (n, d)"
        )
    encoder = FunctionEncoder(candidate)
    check_signature(candidate, f"the function {name or encoder.name}")
    return encoder


class FunctionEncoder:
    """A function from a list of sentences to their embeddings (n, d).

    Nothing identifies what the function does, so that no embeddings are stored.
    """

    fingerprint: str | None = None
    device_used: object = None
    dtype: object = None
    prompt: str | None = None
    """Unknown, because the function may add one."""
    batch_size: int | None = None
    """The largest number of sentences in a call; None for the engine's batches."""
    notes: Sequence[str] = ()

    def __init__(self, function: Callable[..., object]) -> None:
        """Store the function, whose name becomes the encoder's; ``lambda`` for a lambda function.

        Args:
            function: Called with a list of sentences; returns their embeddings (n, d).
        """
        self.function = function
        # A partial has no name, but its function has. Of an object with __call__, the class has.
        named_object: Any = function.func if isinstance(function, partial) else function
        if not inspect.isroutine(named_object):
            named_object = type(named_object)
        self.name = named_object.__name__.strip("<>")

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""
        return _call_in_batches(self, sentences).astype(np.float32, copy=False)


class FunctionScorer(PairScorer, FunctionEncoder):  # type: ignore[misc]  # notes are a property
    """A function of two sentences, or of two lists of sentences, as a pair scorer.

    Nothing identifies what the function does, so that no scores are stored.
    """

    def __init__(
        self,
        function: Callable[..., object],
        *,
        batch_size: int | None = None,
        order: Order = "given",
    ) -> None:
        """Store the function, and take its name as the name of the scorer.

        Args:
            function: Returns the score of two sentences; or, if there is a batch size, the scores
                (n,) of two lists of n sentences.
            batch_size: The largest n; None for a function of two sentences.
            order: The order of the two sentences, a key of ``ORDER_NOTES``: ``given`` for that of
                the data, ``both`` for the mean over both orders.

        Raises:
            EncoderError: There is no such order.
        """
        # Raises if there is no such order.
        look_up("order", order, ORDER_NOTES)
        super().__init__(function)
        self.batch_size = batch_size
        self.order = order

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> object:
        """Return the score of each pair, (n,)."""
        if self.batch_size is None:
            scores = map(self.function, first, second)
            return [check_scores(score, self.name, n_pairs=1)[0] for score in scores]
        return _call_in_batches(self, first, second)


def _call_in_batches(encoder: FunctionEncoder, *columns: Sequence[str]) -> npt.NDArray[Any]:
    """Call a user's function with lists of texts, and return its results as one array of n rows.

    The function is called several times, with at most ``encoder.batch_size`` texts per list; once
    if that is None, or if there are no texts.

    Args:
        encoder: The encoder with the function.
        columns: One argument of the function each: n sentences; or, for pairs, the n first and the
            n second sentences.

    Raises:
        EncoderError: The function returns something else.
    """
    n = max(len(columns[0]), 1)
    size = encoder.batch_size or n
    parts = []
    for start in range(0, n, size):
        batch = [list(column[start : start + size]) for column in columns]
        returned = encoder.function(*batch)
        parts.append(
            check_scores(returned, encoder.name, len(batch[0]))
            if len(columns) > 1
            else to_numeric_array(returned, encoder.name)
        )
    # Embeddings may be of several sizes.
    problem = f"encoder '{encoder.name}' returned arrays that are not (n, d)"
    with translate_errors(problem, EncoderError, ValueError):
        return np.concatenate(parts)


def wrap_pair_scorer(
    candidate: object, *, batch_size: int | None = None, order: Order = "given"
) -> PairScorer:
    """Return an object of a user's program that scores two sentences as a pair scorer.

    Args:
        candidate: A pair scorer, a ``CrossEncoder`` of sentence-transformers, or a function of two
            sentences or of two lists of sentences.
        batch_size: For a function of two lists, their largest length; None for a function of two
            sentences. For a ``CrossEncoder`` the number of pairs in a batch; None for 32.
        order: ``given`` for the order of the data, ``both`` for the mean over both orders.

    Raises:
        EncoderError: It is none of these; or a pair scorer, with a batch size or an order, which it
            has itself.
    """
    if _is_cross_encoder(candidate):
        model: Any = candidate

        def predict(first: Sequence[str], second: Sequence[str]) -> object:
            """Return the scores (n,) of the pairs of two lists of n sentences."""
            pairs = [
                tuple(map(replace_lone_surrogates, pair))
                for pair in zip(first, second, strict=True)
            ]
            return model.predict(pairs, show_progress_bar=False)

        scorer = FunctionScorer(predict, batch_size=batch_size or CROSS_ENCODER_BATCH, order=order)
        scorer.name = "CrossEncoder"
        scorer.device_used = model.device
        scorer.dtype = model.dtype
        return scorer
    if isinstance(candidate, PairScorer):
        if batch_size is not None or order != "given":
            raise EncoderError(f"'{candidate.name}' has its own batches and order of sentences")
        return candidate
    if not callable(candidate) or isinstance(candidate, type) or can_encode(candidate):
        raise EncoderError(
            f"{format_repr(candidate)} scores no pairs; give a function of two sentences, a "
            "CrossEncoder, or an object of a subclass of stsbench.PairScorer; what embeds "
            "sentences is for stsbench.evaluate"
        )
    subject = f"a function of {'two sentences' if batch_size is None else 'two lists'}"
    check_signature(candidate, subject, n_arguments=2)
    return FunctionScorer(candidate, batch_size=batch_size, order=order)


def _is_cross_encoder(candidate: object) -> bool:
    """Return whether an object is a ``CrossEncoder`` of sentence-transformers."""
    return _is_instance(candidate, package="sentence_transformers", class_name="CrossEncoder")


def is_encoder_pair(candidate: object) -> bool:
    """Return whether an object is a tuple of two objects that make an encoder together.

    These are ``(model, tokenizer)`` of transformers, and ``(client, "name of a model")`` of a
    client like OpenAI's, which has the method ``embeddings.create``.

    Raises:
        EncoderError: It is ``(tokenizer, model)``, in the wrong order.
    """
    if not isinstance(candidate, tuple) or len(candidate) != 2:
        return False
    first, second = candidate
    if isinstance(second, str):
        embeddings_api = getattr(first, "embeddings", None)
        return callable(getattr(embeddings_api, "create", None))
    # The class is told by its name, so that transformers is not imported.
    is_model, is_swapped = (
        _is_instance(member, package="transformers", class_name="PreTrainedModel")
        for member in candidate
    )
    if is_swapped and not is_model and callable(first):
        raise EncoderError(f"({type(first).__name__}, {type(second).__name__}): the model is first")
    return callable(second) and is_model


def _wrap_client(client: Any, model: str) -> FunctionEncoder:  # noqa: ANN401 - of a library not imported
    """Return an encoder that requests embeddings by a user's OpenAI-like client.

    Its embeddings are never stored, because nothing identifies the model.

    Args:
        client: An object with ``embeddings.create(model=, input=)``.
        model: The name of the model, which is the name in results too.
    """

    def encode(sentences: list[str]) -> object:
        """Return the embeddings, a list of n lists of d numbers."""
        answer = client.embeddings.create(model=model, input=sentences)
        # Each row of the answer has the number of its sentence.
        rows = sorted(answer.data, key=lambda row: row.index)
        return [row.embedding for row in rows]

    encoder = FunctionEncoder(encode)
    encoder.name = model
    encoder.batch_size = CLIENT_BATCH
    return encoder


def _wrap_transformer(model: Any, tokenizer: Any) -> FunctionEncoder:  # noqa: ANN401 - as _wrap_client
    """Return an encoder that runs a user's model of transformers.

    An embedding is the mean over the tokens of the last layer's states.

    Args:
        model: The model, which is run on the device that it is on.
        tokenizer: Its tokenizer, also of transformers.

    Raises:
        EncoderError: It is an encoder-decoder, or the tokenizer has no token for padding.
    """
    import torch

    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise EncoderError(f"{name} has a decoder; give its encoder, or a function that embeds")
    if tokenizer.pad_token is None:
        raise EncoderError(f"the tokenizer of {name} has no pad_token; set tokenizer.pad_token")
    # The smaller of two limits; a tokenizer without a limit has a huge number, and 512 are taken
    # for a model that can read any number of tokens.
    max_length = min(tokenizer.model_max_length, read_positions(model.config.to_dict()) or 512)

    def encode(sentences: list[str]) -> object:
        """Return the embeddings (n, d) of sentences, computed as one batch."""
        batch = tokenizer(
            [replace_lone_surrogates(sentence) for sentence in sentences],
            padding=True,
            truncation=True,
            max_length=max_length,
            return_tensors="pt",
        ).to(model.device)
        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                # Without a head, such as that of a classifier.
                states = model.base_model(**batch).last_hidden_state
        finally:
            model.train(was_training)
        # 1 at tokens and 0 at padding, (n, t, 1).
        mask = batch["attention_mask"].unsqueeze(-1).to(states.dtype)
        means = (states * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        return means.float().cpu().numpy()

    encoder = FunctionEncoder(encode)
    encoder.name = name
    encoder.batch_size = TRANSFORMER_BATCH
    encoder.prompt = ""
    encoder.notes = ("mean over the tokens of the last layer",)
    encoder.device_used = model.device
    encoder.dtype = model.dtype
    return encoder


def _wrap_library_model(model: Any) -> FunctionEncoder:  # noqa: ANN401 - of a library not imported
    """Return a user's own ``SentenceTransformer`` as an encoder.

    It embeds with the default prompt of the model. It has no fingerprint, so that its embeddings
    are not stored: the user may go on training the model.
    """

    def encode(sentences: list[str]) -> object:
        """Return the embeddings (n, d) of sentences."""
        return model.encode(
            [replace_lone_surrogates(sentence) for sentence in sentences], show_progress_bar=False
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
