"""Edits of a sentence that should change its meaning or should not: the same edit of the same sentence each time."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from typing import NamedTuple
from zlib import crc32

import numpy as np

AUXILIARIES = frozenset(
    "is are was were am be can could will would shall should may might must do does did has have had".split()
)
NOT = re.compile(r"\b(?:not|never)\s+|n['’]t\b", re.IGNORECASE)


class Edit(NamedTuple):
    """A change of a sentence, and whether it changes what the sentence means."""

    make: Callable[[str, np.random.Generator], str]
    matters: bool


def lower(sentence: str, rng: np.random.Generator) -> str:
    """All in small letters."""
    return sentence.lower()


def upper(sentence: str, rng: np.random.Generator) -> str:
    """All in capitals."""
    return sentence.upper()


def no_punctuation(sentence: str, rng: np.random.Generator) -> str:
    """Without punctuation; a sentence of nothing else stays."""
    return " ".join(sentence.translate(str.maketrans("", "", string.punctuation)).split()) or sentence


def typo(sentence: str, rng: np.random.Generator) -> str:
    """Two letters that stand beside each other changed places, inside one word of four letters or more."""
    words = sentence.split(" ")
    long = [at for at, word in enumerate(words) if len(word) > 3 and len(set(word[1:-1])) > 1]
    if not long:
        return sentence
    at = int(rng.choice(long))
    word = words[at]
    places = [place for place in range(1, len(word) - 2) if word[place] != word[place + 1]] or [0]
    place = int(rng.choice(places))
    words[at] = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return " ".join(words)


def word_order(sentence: str, rng: np.random.Generator) -> str:
    """The words in another order, whatever it comes to mean."""
    words = sentence.split()
    return " ".join(words[at] for at in rng.permutation(len(words)))


def negate(sentence: str, rng: np.random.Generator) -> str:
    """With ``not`` after the first auxiliary verb; without it where it stands there; else what it says is called untrue."""
    if NOT.search(sentence):
        return NOT.sub("", sentence, count=1)
    words = sentence.split()
    at = next((place for place, word in enumerate(words) if word.lower() in AUXILIARIES), None)
    if at is None:
        return f"It is not true that {sentence[:1].lower()}{sentence[1:]}"
    return " ".join([*words[: at + 1], "not", *words[at + 1 :]])


EDITS: Mapping[str, Edit] = {
    "lower case": Edit(lower, matters=False),
    "upper case": Edit(upper, matters=False),
    "no punctuation": Edit(no_punctuation, matters=False),
    "typo": Edit(typo, matters=False),
    "word order": Edit(word_order, matters=True),
    "negation": Edit(negate, matters=True),
}
"""All edits by their names."""


def edited(edit: Edit, sentence: str, seed: int) -> str:
    """The edited sentence; chance is drawn by the seed and the sentence alone."""
    return edit.make(sentence, np.random.default_rng([seed, crc32(sentence.encode("utf-8", "surrogatepass"))]))
