"""Kinds of sentence pairs by plain rules: overlap of words, length, negation, numbers, names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
NEGATIONS = frozenset("no not never none nobody nothing neither nor nowhere cannot without".split())
NUMBERS = dict(zip("zero one two three four five six seven eight nine ten".split(), map(str, range(11)), strict=True))


def words_of(sentence: str) -> list[str]:
    """The words of a sentence, in lower case."""
    return WORD.findall(sentence.lower())


def overlap(first: str, second: str) -> str:
    """How many of both sentences' words they share (Jaccard): low below 0.3, high from 0.6."""
    a, b = set(words_of(first)), set(words_of(second))
    share = len(a & b) / max(len(a | b), 1)
    return "low" if share < 0.3 else "middle" if share < 0.6 else "high"


def length(first: str, second: str) -> str:
    """The mean number of words: short up to 8, long from 16."""
    mean = (len(words_of(first)) + len(words_of(second))) / 2
    return "short" if mean <= 8 else "middle" if mean < 16 else "long"


def is_negated(sentence: str) -> bool:
    """Whether a sentence holds a word of negation, or ends one in n't."""
    return any(word in NEGATIONS or word.endswith(("n't", "n’t")) for word in words_of(sentence))


def negation(first: str, second: str) -> str:
    """Which of the sentences are negated."""
    return ("neither", "one", "both")[is_negated(first) + is_negated(second)]


def numbers_in(sentence: str) -> set[str]:
    """The numbers of a sentence, in digits, small ones in words too."""
    found = re.findall(r"\d+(?:[.,]\d+)*", sentence)
    return {one.replace(",", "") for one in found} | {NUMBERS[word] for word in words_of(sentence) if word in NUMBERS}


def names_in(sentence: str) -> set[str]:
    """Words that begin with a capital and do not begin the sentence; none of a sentence that is all in capitals."""
    words = WORD.findall(sentence)
    return set() if sentence.isupper() else {word.lower() for word in words[1:] if word[0].isupper() and word != "I"}


def _alike(found: Callable[[str], set[str]]) -> Callable[[str, str], str]:
    def kind(first: str, second: str) -> str:
        a, b = found(first), found(second)
        return "none" if not a | b else "same" if a == b else "different"

    return kind


SLICINGS: Mapping[str, Callable[[str, str], str]] = {
    "overlap": overlap,
    "length": length,
    "negation": negation,
    "numbers": _alike(numbers_in),
    "names": _alike(names_in),
}
"""What each pair is by each rule; each rule parts the pairs."""


def slices(first: Sequence[str], second: Sequence[str]) -> dict[str, list[str]]:
    """Of each rule what each pair is, (n,)."""
    pairs = list(zip(first, second, strict=True))
    return {name: [rule(a, b) for a, b in pairs] for name, rule in SLICINGS.items()}
