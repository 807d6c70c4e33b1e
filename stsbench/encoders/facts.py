"""What an encoder tells of itself, read and checked: nowhere else is an attribute of one asked for by its name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from numbers import Integral
from typing import Any, TypeGuard, cast

from stsbench.encoders.seams import (
    DeviceEncoder,
    Encoder,
    Facts,
    PostProcessor,
    ServedEncoder,
    TextFitted,
    TokenEncoder,
    WordEncoder,
)
from stsbench.errors import EncoderError, one_line, shown, visible
from stsbench.provenance.identity import is_ours

NEEDED = ("name", "fingerprint", "encode")
METHODS = {
    TokenEncoder: ("tokenize", "embed_tokens"),
    DeviceEncoder: ("device_memory",),
    ServedEncoder: ("embed_into", "count_tokens"),
    WordEncoder: ("unknown",),
    TextFitted: ("fit_texts",),
    PostProcessor: ("over",),
}
"""What is called of an encoder that is one of these."""
INHERITED = ("revision", "dtype", "device", "device_used")
"""What an encoder that is made over another need not tell: its base does."""
LARGEST_SEED = (1 << 63) - 1
"""The largest that every reader of JSON can read."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def facts_of(encoder: object) -> Facts:
    """What an encoder tells of itself, read now: where it runs is known only after its first sentence.

    Raises:
        EncoderError: it tells what cannot be, as a seed that is no number.
    """
    own, base = _own_facts(encoder), base_of(encoder)
    if base is None or base is encoder:
        return own
    under = facts_of(base)
    return replace(own, **{name: getattr(under, name) for name in INHERITED if getattr(own, name) is None})


def notes_of(encoder: object) -> list[str]:
    """What a reader of its scores should know, by the attribute ``notes``; of what is fitted, asking may fit it.

    Raises:
        EncoderError: they are no texts.
    """
    notes = _said(encoder, "notes")
    if notes is None:
        return []
    found = _texts(encoder, "notes", notes)
    if "" in found:
        raise _wrong(encoder, "notes", notes, "a list of texts")
    return found


def base_of(encoder: object) -> Encoder | None:
    """The encoder that another is made over, by the attribute ``base``; None where that is no encoder, or there is none."""
    base = _said(encoder, "base")
    return cast(Encoder, base) if is_encoder(base) else None


def without_known_words(encoder: WordEncoder, sentences: Sequence[str]) -> list[str]:
    """Those of the sentences in which an encoder of words knows none.

    Raises:
        EncoderError: it returns no texts.
    """
    return _texts(encoder, "unknown(sentences)", encoder.unknown(sentences))


def places_of(kind: object) -> Sequence[str]:
    """The parameters of a kind, beside ``device``, that say how it runs and nothing of its embeddings: its ``PLACES``."""
    return _said(kind, "PLACES") or ()


def is_encoder(made: object) -> bool:
    """Whether this has all that an encoder needs; its class alone is none."""
    return not isinstance(made, type) and all(hasattr(made, needed) for needed in NEEDED)


def can_encode(made: object) -> bool:
    """Whether this, an object or a class, has an ``encode`` to call."""
    return callable(_said(made, "encode"))


def is_nameless(made: object) -> bool:
    """Whether this is an object that can encode and has no ``name``."""
    return can_encode(made) and not isinstance(made, type) and _said(made, "name") is None


def check_encoder(made: object, where: str) -> Encoder:
    """Return what a user's code made, where it is an encoder and tells of itself what can be.

    Args:
        made: what may be an encoder.
        where: what the message begins with.

    Raises:
        EncoderError: says what it lacks or what is wrong.
    """
    if isinstance(made, type):
        raise EncoderError(f"{where}: {made.__name__} is a class, not an encoder; give {made.__name__}(…)")
    for needed in NEEDED:
        _check_there(made, needed, where)
    encoder = cast(Encoder, made)
    if not is_name(encoder.name):
        raise _wrong(encoder, "name", encoder.name, "a line of text, for results go into a folder of that name", where)
    if encoder.fingerprint is not None and not _is_text(encoder.fingerprint):
        raise _wrong(encoder, "fingerprint", encoder.fingerprint, "text, or None", where)
    called = [name for protocol, names in METHODS.items() if isinstance(encoder, protocol) for name in names]
    for name in ("encode", *called):
        if not callable(_said(encoder, name)):
            raise _wrong(encoder, name, _said(encoder, name), "a method", where)
    check_call(encoder.encode, f"{where}: encode of {type(encoder).__name__}")
    if isinstance(encoder, PostProcessor) and base_of(encoder) is None:
        raise _wrong(encoder, "base", encoder.base, "the encoder whose embeddings it changes", where)
    _check_facts(encoder)
    return encoder


def _check_facts(encoder: Encoder) -> None:
    facts_of(encoder)
    if not is_ours(type(encoder)):
        # One of ours may have to fit before it can say.
        notes_of(encoder)


def _check_there(made: object, needed: str, where: str) -> None:
    try:
        getattr(made, needed)
    except AttributeError as error:
        # A property of this name may lack something else.
        why = "" if str(error).endswith(f"'{needed}'") else f" ({one_line(error)})"
        raise EncoderError(
            f"{where}: {type(made).__name__} has no '{needed}'{why}; "
            "an encoder needs name, fingerprint (or None) and encode(sentences)"
        ) from error


def check_call(function: Callable[..., object], what: str) -> None:
    """Refuse what cannot be called with the sentences and no more; raises EncoderError."""
    try:
        inspect.signature(function).bind([])
    except ValueError:
        # Nothing is known of it, as of what is written in C.
        return
    except TypeError as error:
        raise EncoderError(f"{what} must take the sentences alone: {one_line(error)}") from error


def _own_facts(encoder: object) -> Facts:
    said = {field.name: _said(encoder, field.name) for field in fields(Facts)}
    if callable(said["fit"]):
        # An estimator in scikit-learn's manner.
        said["fit"] = None
    seed = said.pop("train_seed")
    return Facts(train_seed=_seed(encoder, seed), **{name: _text(encoder, name, told) for name, told in said.items()})


def _said(encoder: object, name: str) -> Any:  # noqa: ANN401 - whatever a user's class holds
    """What an object has under a name; None where it has nothing, or nothing yet."""
    return getattr(encoder, name, None)


def _is_text(told: object) -> TypeGuard[str]:
    """Whether this is text, and some, that a file can hold."""
    return isinstance(told, str) and bool(told) and not _SURROGATE.search(told)


def check_sentences(sentences: object) -> None:
    """Refuse one text in the place of a list, which would be embedded letter by letter, and what is no text.

    Raises:
        EncoderError: says what was given.
    """
    if isinstance(sentences, str):
        raise EncoderError(f"encode takes a list of sentences; it was given the text {shown(sentences)}")
    for place, one in enumerate(sentences if isinstance(sentences, Iterable) else ()):
        if not isinstance(one, str):
            raise EncoderError(f"encode takes sentences; number {place} is {shown(one)}")


def is_name(told: object) -> bool:
    """Whether results can call an encoder so: text of one line, in it a sign that a folder's name can be made of."""
    return _is_text(told) and bool(told.strip(". ")) and visible(told) == told and not {*"\t\n"} & {*told}


def _text(encoder: object, name: str, told: object) -> str | None:
    kind = type(told)
    if kind.__module__ == "torch" and kind.__name__ in ("dtype", "device"):
        return str(told).removeprefix("torch.")
    if told is not None and not _is_text(told):
        raise _wrong(encoder, name, told, "text")
    return told


def _seed(encoder: object, told: object) -> int | None:
    if told is None:
        return None
    if not isinstance(told, Integral) or isinstance(told, bool) or not 0 <= int(told) <= LARGEST_SEED:
        raise _wrong(encoder, "train_seed", told, f"a whole number from 0 to {LARGEST_SEED}")
    return int(told)


def _texts(encoder: object, name: str, told: object) -> list[str]:
    # A text may be empty: sentences are.
    if not isinstance(told, Sequence) or isinstance(told, str) or not all(one == "" or _is_text(one) for one in told):
        raise _wrong(encoder, name, told, "a list of texts")
    return list(told)


def _wrong(encoder: object, name: str, told: object, wanted: str, where: str = "") -> EncoderError:
    what = "a method; make it a property" if inspect.ismethod(told) else shown(told)
    before = f"{where}: " if where else ""
    return EncoderError(f"{before}'{name}' of {type(encoder).__name__} must be {wanted}; it is {what}")
