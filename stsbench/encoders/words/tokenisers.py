"""Sentences to words, as the encoders of words were trained to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, get_args

from stsbench.errors import CardError, EncoderError, did_you_mean

Tokeniser = Literal["whitespace", "ptb", "moses"]
"""``whitespace``: what white space parts; ``ptb``: NLTK's Penn Treebank rules; ``moses``: these, with "n't" split
as Moses does, which is how InferSent 2 was trained."""


def tokeniser(name: Tokeniser, *, lowercase: bool = False) -> Callable[[str], list[str]]:
    """Return the function that parts a sentence into words.

    NLTK's rules need no data of NLTK's: a text of several sentences is read as one, so that only
    its last full stop is parted from its word. The papers' code splits sentences first.

    Raises:
        CardError: no tokeniser of this name.
        EncoderError: it needs NLTK, which is not installed.
    """
    known = get_args(Tokeniser)
    if name not in known:
        raise CardError(f"unknown tokens '{name}'{did_you_mean(name, known)}; known: {', '.join(known)}")
    make: Mapping[str, Callable[[], Callable[[str], list[str]]]] = {
        "whitespace": lambda: str.split,
        "ptb": lambda: _treebank(moses=False),
        "moses": lambda: _treebank(moses=True),
    }
    split = make[name]()
    return (lambda sentence: split(sentence.lower())) if lowercase else split


def libraries(name: Tokeniser) -> tuple[str, ...]:
    """The packages whose version may change what a tokeniser does."""
    return () if name == "whitespace" else ("nltk",)


def _treebank(*, moses: bool) -> Callable[[str], list[str]]:
    try:
        from nltk.tokenize import NLTKWordTokenizer
    except ImportError as error:
        raise EncoderError(
            "tokens 'ptb' and 'moses' need NLTK: pip install 'stsbench[wordnet]'; or --set tokens=whitespace for tokenised text"
        ) from error
    words: Callable[[str], list[str]] = NLTKWordTokenizer().tokenize

    def split(sentence: str) -> list[str]:
        parted = words(sentence)
        return " ".join(parted).replace(" n't ", "n 't ").split() if moses else parted

    return split
