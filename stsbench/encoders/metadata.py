"""The attributes of encoders, a user's own among them, read and checked."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, NamedTuple, TypeGuard, cast

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import EncoderError, StsbenchError
from stsbench.core.provenance import is_own_class
from stsbench.core.secrets import redact_text
from stsbench.core.wording import as_one_line, escape_controls, format_repr
from stsbench.encoders.base import (
    Encoder,
    FixedTextsEncoder,
    PostProcessor,
    ServedEncoder,
    WordEncoder,
)


@dataclass(frozen=True, kw_only=True)
class EncoderMetadata:
    """The facts that results record of an encoder; each is an attribute of this name, or None."""

    revision: str | None = None
    """The commit of its checkpoint, if it came from the Hub."""
    revision_asked: str | None = None
    """The revision that was requested instead of a commit, for example ``main``."""
    train_seed: int | None = None
    """The seed it was trained or fitted with: results of several are averaged as one encoder."""
    dtype: str | None = None
    """The type of the numbers it computes in, for example ``bfloat16``."""
    device: str | None = None
    """The device it was requested to run on, for example ``auto`` or ``cuda:1``."""
    device_used: str | None = None
    """The device of its model; None until the model is loaded."""
    fit: str | None = None
    """The texts it is fitted on, if it is a :class:`FittableEncoder`.

    A method of this name, as scikit-learn's, is ignored.
    """


INHERITED_FIELDS = ("revision", "revision_asked", "dtype", "device", "device_used")
"""The fields that an encoder may lack if it is made from a base: then the base's count."""


MAX_SEED = (1 << 63) - 1
"""The largest number that every reader of JSON can read."""


_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a surrogate pair, which no file can hold as text."""


def is_name(value: object) -> bool:
    """Return whether a value may be an encoder's name in results.

    A folder is called by it. So it must be one line of text without control characters, and have
    a character other than a full stop or a blank.
    """
    # A string that is not empty, and has no half of a surrogate pair.
    if not _is_text(value):
        return False
    # The function replaces control characters, except for tabs and line ends.
    has_controls = escape_controls(value) != value or "\t" in value or "\n" in value
    has_other_characters = bool(value.strip(". "))
    return has_other_characters and not has_controls


def _is_text(value: Any) -> TypeGuard[str]:  # noqa: ANN401 - as all below: whatever a user's class has
    return isinstance(value, str) and bool(value) and not _SURROGATE.search(value)


def _are_texts(value: Any) -> bool:  # noqa: ANN401
    if not isinstance(value, Sequence) or isinstance(value, str):
        return False
    # A text may be empty: sentences are.
    return all(text == "" or _is_text(text) for text in value)


def _is_seed(value: Any) -> bool:  # noqa: ANN401
    is_whole_number = isinstance(value, Integral) and not isinstance(value, bool)
    return is_whole_number and 0 <= int(value) <= MAX_SEED


class _AttributeRule(NamedTuple):
    """A check of an attribute, and the description of a valid value."""

    is_valid: Callable[[Any], bool]
    expected: str


ATTRIBUTE_RULES: Mapping[str, _AttributeRule] = {
    "name": _AttributeRule(
        is_name, expected="a line of text without a key, for results go into a folder of that name"
    ),
    "fingerprint": _AttributeRule(
        lambda value: value is None or _is_text(value), expected="text, or None"
    ),
    "encode": _AttributeRule(callable, expected="a method"),
    **dict.fromkeys(
        (field.name for field in fields(EncoderMetadata)), _AttributeRule(_is_text, expected="text")
    ),
    "train_seed": _AttributeRule(_is_seed, f"a whole number from 0 to {MAX_SEED}"),
    "base": _AttributeRule(
        lambda value: is_encoder(value), expected="the encoder whose embeddings it changes"
    ),
    "notes": _AttributeRule(
        lambda value: _are_texts(value) and "" not in value, expected="a list of texts"
    ),
    "unknown(sentences)": _AttributeRule(_are_texts, expected="a list of texts"),
}
"""The rules for the attributes of encoders, and for what their methods return."""


REQUIRED_ATTRIBUTES = ("name", "fingerprint", "encode")
"""The attributes that every encoder has."""


def _check_attribute(encoder: object, name: str, value: Any, subject: str = "") -> Any:  # noqa: ANN401
    """Return the value of an encoder's attribute unchanged, after a check that it is valid.

    Args:
        encoder: The encoder, of which only the class is named in the message.
        name: The name of the attribute, a key of :data:`ATTRIBUTE_RULES`: each rule has a function
            that tells whether a value is valid, and a description of valid values.
        value: The value.
        subject: The beginning of the message; empty for none.

    Raises:
        EncoderError: The value is not valid.
    """
    rule = ATTRIBUTE_RULES[name]
    if rule.is_valid(value):
        return value
    description = "a method; make it a property" if inspect.ismethod(value) else format_repr(value)
    problem = f"'{name}' of {type(encoder).__name__} must be {rule.expected}; it is {description}"
    raise EncoderError(f"{subject}: {problem}" if subject else problem)


def read_metadata(encoder: object) -> EncoderMetadata:
    """Read from an encoder's attributes what results record about it, such as its device.

    The device is known only after it has embedded. If the encoder is made from another one, its
    ``base``, then the fields of :data:`INHERITED_FIELDS` that it lacks are those of the base: the
    checkpoint's revision, the type of the numbers and the device.

    Args:
        encoder: An encoder, which may be of a user's own class.

    Returns:
        The metadata. A field that the encoder does not have is None.

    Raises:
        EncoderError: An attribute has a value that is not valid, or the bases lead in a circle.
    """
    values: dict[str, Any] = {}
    for field in fields(EncoderMetadata):
        value = getattr(encoder, field.name, None)
        # A user's encoder may have torch's own objects here: they become text such as "float32".
        if type(value).__module__ == "torch" and type(value).__name__ in ("dtype", "device"):
            value = str(value).removeprefix("torch.")
        # The metadata ``fit`` are a text. A user's encoder may have a method of this name instead,
        # which is ignored.
        is_method = field.name == "fit" and callable(value)
        if value is not None and not is_method:
            values[field.name] = _check_attribute(encoder, field.name, value)
    # An integer of numpy becomes one of Python.
    if "train_seed" in values:
        values["train_seed"] = int(values["train_seed"])
    _, *bases = encoder_and_its_bases(encoder)
    base_metadata = read_metadata(bases[0]) if bases else EncoderMetadata()
    inherited = {name: getattr(base_metadata, name) for name in INHERITED_FIELDS}
    return EncoderMetadata(**inherited | values)


def read_notes(encoder: object) -> list[str]:
    """Return an encoder's notes for the readers of its scores: its attribute ``notes``.

    Secrets in them, such as keys of a server, are replaced. The list is empty if the encoder has no
    such attribute. For an encoder that is fitted on texts, reading the attribute may fit it.

    Raises:
        EncoderError: Its ``notes`` are not texts.
    """
    notes = getattr(encoder, "notes", None)
    if notes is None:
        return []
    _check_attribute(encoder, name="notes", value=notes)
    return [redact_text(note) for note in notes]


def describe_prompt(encoder: object) -> str | None:
    """Return the text that an encoder puts around every sentence, its prompt.

    If the encoder is made from another one, it is the prompt of that one.

    Returns:
        The text with ``{}`` in place of the sentence; empty if there is no prompt. None if that is
        unknown: a user's own class has no attribute ``prompt``, or one that is no text.
    """
    # The encoder that reads sentences itself.
    encoder = encoder_and_its_bases(encoder)[-1]
    # One of our own classes without the attribute has no prompt.
    prompt = getattr(encoder, "prompt", "" if is_own_class(type(encoder)) else None)
    if isinstance(prompt, str):
        return f"{prompt}{{}}" if prompt else ""
    # Our class of prompts gives such a text itself.
    return str(prompt) if is_own_class(type(prompt)) else None


def count_cut(encoder: object, sentences: Sequence[str]) -> int | None:
    """Return how many sentences an encoder cuts at its maximum length; None if it is unknown.

    Encoders of word vectors cut none. If an encoder is made from another one, as a variant is, the
    other one reads the sentences, so those that it cuts are counted. The number is unknown for a
    user's own class, and for an encoder of ours that cannot count.

    Args:
        encoder: The encoder.
        sentences: The sentences to embed.
    """
    encoder = encoder_and_its_bases(encoder)[-1]
    if isinstance(encoder, WordEncoder):
        return 0
    if not is_own_class(type(encoder)):
        return None
    # The encoder's own method of this name, which takes the sentences.
    count = getattr(encoder, "count_cut", None)
    return count(sentences) if count is not None else None


def find_base(encoder: object) -> Encoder | None:
    """Return the encoder from which an encoder is made: its attribute ``base``.

    Returns:
        None if there is no such attribute, or if it is no encoder: it is a class, or lacks
        ``name``, ``fingerprint`` or ``encode``.
    """
    base = getattr(encoder, "base", None)
    return cast(Encoder, base) if is_encoder(base) else None


def sentences_without_known_words(encoder: WordEncoder, sentences: Sequence[str]) -> list[str]:
    """Return those of the sentences in which no word has a vector.

    Args:
        encoder: An encoder with a fixed list of words; its method ``unknown`` finds the sentences
            that have no word of the list.
        sentences: The sentences.

    Raises:
        EncoderError: ``unknown`` returns something else than texts.
    """
    unknown_sentences = encoder.unknown(sentences)
    _check_attribute(encoder, name="unknown(sentences)", value=unknown_sentences)
    return list(unknown_sentences)


def is_encoder(candidate: object) -> bool:
    """Return whether an object has all attributes of an encoder; a class is no encoder itself."""
    return not isinstance(candidate, type) and all(
        hasattr(candidate, name) for name in REQUIRED_ATTRIBUTES
    )


def can_encode(candidate: object) -> bool:
    """Return whether an object or a class has an ``encode`` to call."""
    return callable(getattr(candidate, "encode", None))


def check_encoder(candidate: object, subject: str) -> Encoder:
    """Return an object that a user's code made, after checks that it is a valid encoder.

    Args:
        candidate: The object.
        subject: The beginning of the messages.

    Raises:
        EncoderError: It is no encoder, or an attribute is not valid.
    """
    if isinstance(candidate, type):
        raise EncoderError(
            f"{subject}: {candidate.__name__} is a class, not an encoder; "
            f"give {candidate.__name__}(…)"
        )
    # The attributes are name, fingerprint and encode.
    for name in REQUIRED_ATTRIBUTES:
        try:
            _check_attribute(candidate, name, value=getattr(candidate, name), subject=subject)
        except AttributeError as error:
            # If the message names another attribute, the encoder has a property ``name``, and it
            # is that property which has failed.
            is_missing = str(error).endswith(f"'{name}'")
            reason = "" if is_missing else f" ({as_one_line(error)})"
            raise EncoderError(
                f"{subject}: {type(candidate).__name__} has no '{name}'{reason}",
                hint="an encoder needs name, fingerprint (or None) and encode(sentences)",
            ) from error
    encoder = cast(Encoder, candidate)
    # It must be callable with the sentences alone.
    check_signature(encoder.encode, f"{subject}: encode of {type(encoder).__name__}")
    # An encoder that changes the embeddings of its base.
    if isinstance(encoder, PostProcessor):
        _check_attribute(encoder, name="base", value=encoder.base, subject=subject)
    # Both of these are called for their checks: they raise EncoderError for a bad attribute.
    read_metadata(encoder)
    # One of our own classes may have to be fitted before it has notes.
    if not is_own_class(type(encoder)):
        read_notes(encoder)
    return encoder


def check_signature(function: Callable[..., object], subject: str, *, n_arguments: int = 1) -> None:
    """Raise an error if a function cannot be called with sentences as its only arguments.

    Args:
        function: The function, for example the method ``encode`` of a user's encoder.
        subject: The beginning of the message.
        n_arguments: 1 for one list of sentences; 2 for two sentences, or two lists of them.

    Raises:
        EncoderError: The function has other required parameters, or too few.
    """
    try:
        # Binds an argument to the function's parameters without calling it.
        inspect.signature(function).bind(*[[]] * n_arguments)
    except ValueError:
        # The signature is unknown, for example of a function written in C.
        return
    except TypeError as error:
        raise EncoderError(
            f"{subject} must take the sentences alone: {as_one_line(error)}"
        ) from error


def check_sentences(sentences: object) -> None:
    """Raise an error if an argument is no list of texts, or is one text in place of a list.

    One text would be embedded letter by letter, and a generator can be read only once.

    Raises:
        EncoderError: It is one text, has no length, or has an element that is no text.
    """
    if isinstance(sentences, str):
        raise EncoderError(
            f"encode takes a list of sentences; it was given one text of {len(sentences)} "
            "characters"
        )
    if not isinstance(sentences, Collection):
        raise EncoderError(
            f"encode takes a list of sentences; it was given {format_repr(sentences)}"
        )
    for index, sentence in enumerate(sentences):
        if not isinstance(sentence, str):
            raise EncoderError(f"encode takes sentences; number {index} is {format_repr(sentence)}")


def replace_lone_surrogates(sentence: str) -> str:
    """Return a sentence as valid text, which a tokenizer can read.

    Some characters, such as an emoji, are two halves (a surrogate pair) in UTF-16. If a text was
    cut between them, the half is no valid character, and is replaced by U+FFFD.
    """
    if sentence.isascii():
        return sentence
    return sentence.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def encoder_and_its_bases(encoder: object) -> list[Any]:
    """Return an encoder, then its base, and so on down to the encoder that reads sentences.

    The base of an encoder is the one from which it is made; a variant has one, for example. An
    encoder that is its own base, as a user's may be, is the last one.

    Raises:
        EncoderError: The bases lead back to an earlier encoder.
    """
    layers = [encoder]
    while (base := find_base(layers[-1])) is not None and base is not layers[-1]:
        if any(base is layer for layer in layers):
            raise EncoderError(f"'{base.name}' is made of itself: its bases lead back to it")
        layers.append(base)
    return layers


def is_computed_on_this_machine(encoder: Encoder) -> bool:
    """Return whether this machine computes an encoder's embeddings: no server, and no file."""
    layers = encoder_and_its_bases(encoder)
    return not any(isinstance(layer, ServedEncoder | FixedTextsEncoder) for layer in layers)


def check_own_name(name: str, catalogue: Catalogue) -> None:
    """Raise an error if a name that a user chose for an encoder of his own cannot be used.

    Args:
        name: The name.
        catalogue: The cards and recipes, whose names are taken.

    Raises:
        StsbenchError: The name is not one line of text, contains @ or + (which stand before a seed
            and before parameters), or is taken.
    """
    if not is_name(name) or "@" in name or "+" in name:
        raise StsbenchError("give a line of text without @ and +", parameter="name", value=name)
    if catalogue.is_taken(name):
        raise StsbenchError(
            f"`name` '{name}' is the name of a card or recipe; give one of your own"
        )
