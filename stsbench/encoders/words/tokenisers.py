"""Sentences to words, as the encoders of words were trained to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from stsbench.errors import EncoderError, choose

WordSplit = Callable[[str], list[str]]
"""A sentence to its words."""


def tokeniser(name: str, *, lowercase: bool = False) -> WordSplit:
    """Return the function that parts a sentence into words.

    NLTK's rules need no data of NLTK's: a text of several sentences is read as one, so that only
    its last full stop is parted from its word. The papers' code splits sentences first.

    Raises:
        UnknownName: no tokeniser of this name.
        EncoderError: it needs NLTK, which is not installed.
    """
    split = choose("tokens", name, TOKENISERS).make()
    return (lambda sentence: split(sentence.lower())) if lowercase else split


def libraries(name: str) -> tuple[str, ...]:
    """The packages whose version may change what a tokeniser does."""
    return choose("tokens", name, TOKENISERS).libraries


def _treebank(*, moses: bool) -> WordSplit:
    try:
        from nltk.tokenize import NLTKWordTokenizer
    except ImportError as error:
        raise EncoderError(
            "tokens 'ptb' and 'moses' need NLTK: pip install 'stsbench[wordnet]'; or --set tokens=whitespace for tokenised text"
        ) from error
    words: WordSplit = NLTKWordTokenizer().tokenize

    def split(sentence: str) -> list[str]:
        parted = words(sentence)
        return " ".join(parted).replace(" n't ", "n 't ").split() if moses else parted

    return split


class Tokeniser(NamedTuple):
    """What makes a tokeniser, and the packages whose version may change what it does."""

    make: Callable[[], WordSplit]
    libraries: tuple[str, ...] = ()


TOKENISERS: Mapping[str, Tokeniser] = {
    # What white space parts.
    "whitespace": Tokeniser(lambda: str.split),
    # NLTK's Penn Treebank rules.
    "ptb": Tokeniser(lambda: _treebank(moses=False), ("nltk",)),
    # These, with "n't" split as Moses does, which is how InferSent 2 was trained.
    "moses": Tokeniser(lambda: _treebank(moses=True), ("nltk",)),
}
