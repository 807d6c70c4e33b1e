"""What an encoder says about itself, read and checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, TypeGuard, cast

from stsbench.core.errors import EncoderError
from stsbench.core.provenance import is_own_class
from stsbench.core.secrets import redact_text
from stsbench.core.wording import escape_controls, format_repr, join_lines
from stsbench.encoders.base import Encoder, PostProcessor, ServedEncoder, WordEncoder


@dataclass(frozen=True, kw_only=True)
class EncoderMetadata:
    """What an encoder may tell of itself, each by an attribute of this name, or None; results carry it, no more."""

    revision: str | None = None
    """The commit its checkpoint was resolved to, where that came from the Hub."""
    revision_asked: str | None = None
    """What was asked for in its place, as ``main``."""
    train_seed: int | None = None
    """The seed it was trained or fitted with: results of several seeds are averaged as one encoder."""
    dtype: str | None = None
    """The type of the numbers it computes in, as ``bfloat16``."""
    device: str | None = None
    """The device it was asked to run on, as ``auto`` or ``cuda:1``."""
    device_used: str | None = None
    """The device that its model is on; None as long as it is not loaded."""
    fit: str | None = None
    """Which texts it is fitted on, of one that is :class:`TextFitted`; a method of this name, as scikit-learn's, tells nothing."""


INHERITED_FIELDS = ("revision", "revision_asked", "dtype", "device", "device_used")
"""What an encoder that is made over another need not tell: its base does."""


MAX_SEED = (1 << 63) - 1
"""The largest that every reader of JSON can read."""


_SURROGATE = re.compile("[\ud800-\udfff]")


def is_name(given: object) -> bool:
    """Whether results can call an encoder so: text of one line, in it a sign that a folder's name can be made of."""
    return (
        _is_text(given)
        and bool(given.strip(". "))
        and escape_controls(given) == given
        and not {*"\t\n"} & {*given}
    )


def _is_text(given: Any) -> TypeGuard[str]:  # noqa: ANN401 - as all below: whatever a user's class holds
    return isinstance(given, str) and bool(given) and not _SURROGATE.search(given)


def _are_texts(given: Any) -> bool:  # noqa: ANN401
    # A text may be empty: sentences are.
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    return listed and all(one == "" or _is_text(one) for one in given)


ATTRIBUTES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "name": (is_name, "a line of text without a key, for results go into a folder of that name"),
    "fingerprint": (lambda given: given is None or _is_text(given), "text, or None"),
    "encode": (callable, "a method"),
    **dict.fromkeys((field.name for field in fields(EncoderMetadata)), (_is_text, "text")),
    "train_seed": (
        lambda seed: (
            isinstance(seed, Integral) and not isinstance(seed, bool) and 0 <= int(seed) <= MAX_SEED
        ),
        f"a whole number from 0 to {MAX_SEED}",
    ),
    "base": (lambda given: is_encoder(given), "the encoder whose embeddings it changes"),
    "notes": (lambda given: _are_texts(given) and "" not in given, "a list of texts"),
    "unknown(sentences)": (_are_texts, "a list of texts"),
}
"""What an encoder may tell of itself, what that may be, and what it must be in words."""


REQUIRED_ATTRIBUTES = ("name", "fingerprint", "encode")


def _checked(encoder: object, name: str, given: Any, where: str = "") -> Any:  # noqa: ANN401
    accepts, wanted = ATTRIBUTES[name]
    if not accepts(given):
        what = "a method; make it a property" if inspect.ismethod(given) else format_repr(given)
        said = f"'{name}' of {type(encoder).__name__} must be {wanted}; it is {what}"
        raise EncoderError(f"{where}: {said}" if where else said)
    return given


def read_metadata(encoder: object) -> EncoderMetadata:
    """What it tells of itself now: its device once it has embedded. Raises EncoderError: it tells what cannot be."""
    said: dict[str, Any] = {}
    for name in (field.name for field in fields(EncoderMetadata)):
        given = getattr(encoder, name, None)
        if type(given).__module__ == "torch" and type(given).__name__ in ("dtype", "device"):
            given = str(given).removeprefix("torch.")
        if given is not None and not (name == "fit" and callable(given)):
            said[name] = _checked(encoder, name, given)
    if "train_seed" in said:
        said["train_seed"] = int(said["train_seed"])
    base = find_base(encoder)
    under = read_metadata(base) if base is not None and base is not encoder else EncoderMetadata()
    return EncoderMetadata(**{name: getattr(under, name) for name in INHERITED_FIELDS} | said)


def read_notes(encoder: object) -> list[str]:
    """What a reader of its scores should know; asking may fit it. Raises EncoderError: its ``notes`` are no texts."""
    notes = getattr(encoder, "notes", None)
    return [] if notes is None else list(map(redact_text, _checked(encoder, "notes", notes)))


def find_base(encoder: object) -> Encoder | None:
    """The encoder that another is made over, by the attribute ``base``; None where that is no encoder, or there is none."""
    base = getattr(encoder, "base", None)
    return cast(Encoder, base) if is_encoder(base) else None


def sentences_without_known_words(encoder: WordEncoder, sentences: Sequence[str]) -> list[str]:
    """Those of the sentences in which an encoder of words knows none; raises EncoderError where it returns no texts."""
    return list(_checked(encoder, "unknown(sentences)", encoder.unknown(sentences)))


def is_encoder(made: object) -> bool:
    """Whether this has all that an encoder needs; its class alone is none."""
    return not isinstance(made, type) and all(
        hasattr(made, needed) for needed in REQUIRED_ATTRIBUTES
    )


def can_encode(made: object) -> bool:
    """Whether this, an object or a class, has an ``encode`` to call."""
    return callable(getattr(made, "encode", None))


def check_encoder(made: object, where: str) -> Encoder:
    """Return what a user's code made; raises EncoderError, which begins with ``where``: it is not what it must be."""
    if isinstance(made, type):
        raise EncoderError(
            f"{where}: {made.__name__} is a class, not an encoder; give {made.__name__}(…)"
        )
    need = "an encoder needs name, fingerprint (or None) and encode(sentences)"
    for needed in REQUIRED_ATTRIBUTES:
        try:
            _checked(made, needed, getattr(made, needed), where)
        except AttributeError as error:
            # A property of this name may lack something else.
            why = "" if str(error).endswith(f"'{needed}'") else f" ({join_lines(error)})"
            lacks = f"{where}: {type(made).__name__} has no '{needed}'{why}"
            raise EncoderError(f"{lacks}; {need}") from error
    encoder = cast(Encoder, made)
    check_signature(encoder.encode, f"{where}: encode of {type(encoder).__name__}")
    if isinstance(encoder, PostProcessor):
        _checked(encoder, "base", encoder.base, where)
    read_metadata(encoder)
    if not is_own_class(type(encoder)):
        # One of ours may have to fit before it can say.
        read_notes(encoder)
    return encoder


def check_signature(function: Callable[..., object], subject: str) -> None:
    """Refuse what cannot be called with the sentences and no more; raises EncoderError."""
    try:
        inspect.signature(function).bind([])
    except ValueError:
        # Nothing is known of it, as of what is written in C.
        return
    except TypeError as error:
        raise EncoderError(
            f"{subject} must take the sentences alone: {join_lines(error)}"
        ) from error


def check_sentences(sentences: object) -> None:
    """Refuse, by an EncoderError, what is no text, and one text in place of a list, which would go letter by letter."""
    if isinstance(sentences, str):
        raise EncoderError(
            f"encode takes a list of sentences; it was given one text of {len(sentences)} characters"
        )
    for place, one in enumerate(sentences if isinstance(sentences, Iterable) else ()):
        if not isinstance(one, str):
            raise EncoderError(f"encode takes sentences; number {place} is {format_repr(one)}")


def valid_text(sentence: str) -> str:
    """Half a surrogate pair, as of an emoji cut in two, is no text to a tokenizer."""
    return (
        sentence
        if sentence.isascii()
        else sentence.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


def layers_of(encoder: Encoder) -> list[Encoder]:
    """Return an encoder, then the encoder that it is made over, and so on down to the one that reads sentences."""
    layers = list[Encoder]()
    layer: Encoder | None = encoder
    while layer is not None and all(layer is not other for other in layers):
        layers.append(layer)
        layer = find_base(layer)
    return layers


def is_served(encoder: Encoder) -> bool:
    """Return whether a server embeds for an encoder, or for one that it is made over."""
    return any(isinstance(layer, ServedEncoder) for layer in layers_of(encoder))
