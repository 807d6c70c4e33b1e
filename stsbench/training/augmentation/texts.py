"""Augmentations of a sentence's words, before it is tokenised: SimCSE's tables 1 and 2, and CLEAR's four.

Words are what blanks divide (``text.split()``), as in SimCSE (its author in the repository's issue 231); neither
paper published code for these. Every function takes the words and a random generator and returns new words, one
at least: no sentence is emptied. An empty list stays one.

Gao et al. 2021, https://arxiv.org/abs/2104.08821; Wu et al. 2020, https://arxiv.org/abs/2012.15466.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.errors import CardError

DELETED = "[DEL]"
"""What CLEAR puts where words were: a special token, which the tokenizer is to be given."""
Augment = Callable[..., list[str]]
"""Words and a generator ``rng`` to new words."""
Synonyms = Callable[[str], Sequence[str]]
"""A word in lower case to its synonyms, itself not among them; see :mod:`stsbench.training.augmentation.synonyms`."""
Fill = Callable[[Sequence[str], Sequence[int]], Sequence[str]]
"""Words and positions to a new word for each position: a masked language model's guesses."""
Indices = npt.NDArray[np.int64]


def crop(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Keep one run of words, leaving out ``rate`` of them, rounded down (SimCSE's crop)."""
    keep = len(words) - _share(words, rate)
    start = int(rng.integers(len(words) - keep + 1))
    return list(words[start : start + keep])


def delete_words(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Leave out ``rate`` of the words, rounded down, anywhere (SimCSE's word deletion)."""
    return _without(words, _share(words, rate), rng)


def delete_each(words: Sequence[str], *, rate: float, rng: np.random.Generator) -> list[str]:
    """Leave out each word by itself with a chance of ``rate``; where none is left, one of them stays (TSDAE)."""
    check_rate(rate)
    kept = rng.random(len(words)) > rate
    if len(words) and not kept.any():
        kept[rng.integers(len(words))] = True
    return [word for word, stays in zip(words, kept, strict=True) if stays]


def delete_one_word(words: Sequence[str], *, rng: np.random.Generator) -> list[str]:
    """Leave out one word, if there are two (SimCSE's table 2)."""
    return _without(words, min(1, max(0, len(words) - 1)), rng)


def replace_one_synonym(words: Sequence[str], *, synonyms: Synonyms, rng: np.random.Generator) -> list[str]:
    """Replace one of the words that have synonyms (SimCSE, which names the library nlpaug: WordNet's synonyms)."""
    return _replaced(words, 1, synonyms, rng)


def replace_synonyms(
    words: Sequence[str], *, synonyms: Synonyms, rng: np.random.Generator, rate: float = 0.3
) -> list[str]:
    """Replace ``rate`` of the words, rounded down, as far as they have synonyms (CLEAR).

    The default is CLEAR's from memory, not checked against the paper.
    """
    return _replaced(words, _part(words, rate), synonyms, rng)


def replace_masked(words: Sequence[str], *, fill: Fill, rng: np.random.Generator, rate: float = 0.15) -> list[str]:
    """Replace ``rate`` of the words, rounded, one at least, by a masked language model's guesses (SimCSE's MLM 15%)."""
    check_rate(rate)
    count = min(len(words), max(1, round(len(words) * rate))) if rate else 0
    chosen = np.sort(rng.choice(len(words), count, replace=False)).tolist()
    new = list(words)
    for at, word in zip(chosen, fill(words, chosen) if chosen else [], strict=True):
        new[at] = word
    return new


def clear_delete_words(
    words: Sequence[str], *, rng: np.random.Generator, rate: float = 0.7, mark: str = DELETED
) -> list[str]:
    """Put one mark for each run of deleted words, ``rate`` of all, rounded down (CLEAR's word deletion).

    The default is CLEAR's from memory, not checked against the paper.
    """
    gone = set(rng.choice(len(words), _share(words, rate), replace=False).tolist())
    kept = [mark if at in gone else word for at, word in enumerate(words)]
    return [word for at, word in enumerate(kept) if at not in gone or at - 1 not in gone]


def clear_delete_spans(
    words: Sequence[str], *, rng: np.random.Generator, spans: int = 5, rate: float = 0.05, mark: str = DELETED
) -> list[str]:
    """Put one mark for each of some spans (CLEAR's span deletion).

    Args:
        words: the sentence.
        rng: where the spans come from.
        spans: how many at most; short sentences have room for fewer, and keep one word at least.
        rate: words of a span as a share of all, rounded, one at least.
        mark: what stands for a span.

    The defaults are CLEAR's from memory, not checked against the paper.
    """
    starts, length = _spans(words, spans, rate, len(words) - 1, rng)
    new: list[str] = []
    at = 0
    for start in starts.tolist():
        new += [*words[at:start], mark]
        at = start + length
    return [*new, *words[at:]]


def clear_reorder(words: Sequence[str], *, rng: np.random.Generator, pairs: int = 5, rate: float = 0.05) -> list[str]:
    """Let pairs of spans change places (CLEAR's reordering).

    Args:
        words: the sentence.
        rng: where the spans come from, and which change places.
        pairs: how many pairs at most; short sentences have room for fewer.
        rate: words of a span as a share of all, rounded, one at least.

    The defaults are CLEAR's from memory, not checked against the paper.
    """
    starts, length = _spans(words, 2 * pairs, rate, len(words), rng)
    drawn = rng.permutation(starts)
    new = list(words)
    for a, b in zip(drawn[0::2], drawn[1::2], strict=False):
        new[a : a + length], new[b : b + length] = words[b : b + length], words[a : a + length]
    return new


class NextSentences(NamedTuple):
    """Rows of an ordered corpus: anchors and what follows each."""

    anchors: Indices
    positives: Indices


def next_sentences(document_ids: npt.ArrayLike, *, rng: np.random.Generator, reach: int = 1) -> NextSentences:
    """Pair every sentence with one of the next of its document (SimCSE's next-sentence objectives).

    Args:
        document_ids: which document each sentence is of, shape (n,); a document's sentences lie together, in order.
        rng: where the choice among them comes from.
        reach: how many sentences to choose from; 1 and 3 in the paper. Near a document's end there are fewer.

    Returns:
        Rows (m,) of anchors and of positives; the last sentence of a document is no anchor.
    """
    if reach < 1:
        raise CardError(f"positives among the next {reach} sentences: must be 1 or more")
    ids = np.asarray(document_ids)
    n = len(ids)
    last = np.flatnonzero(np.append(ids[1:] != ids[:-1], True)) if n else np.zeros(0, np.int64)
    room = np.minimum(np.repeat(last, np.diff(last, prepend=-1)) - np.arange(n), reach)
    anchors = np.flatnonzero(room)
    return NextSentences(anchors, anchors + 1 + rng.integers(room[anchors]))


def check_rate(rate: float) -> None:
    """Raise CardError where a share is not from 0 to 1."""
    if not 0 <= rate <= 1:
        raise CardError(f"rate {rate}: must be from 0 to 1")


def _part(words: Sequence[str], rate: float) -> int:
    """A share of the words, rounded down."""
    check_rate(rate)
    # 0.29 of 100 words is 29, though the product of the floats falls short of it.
    return int(len(words) * rate + 1e-9)


def _share(words: Sequence[str], rate: float) -> int:
    """How many words to leave out: all but one at most."""
    return max(0, min(_part(words, rate), len(words) - 1))


def _without(words: Sequence[str], count: int, rng: np.random.Generator) -> list[str]:
    gone = set(rng.choice(len(words), count, replace=False).tolist())
    return [word for at, word in enumerate(words) if at not in gone]


def _spans(words: Sequence[str], count: int, rate: float, room: int, rng: np.random.Generator) -> tuple[Indices, int]:
    """Starts (k,) in order and length of spans that do not overlap, every such set being as likely."""
    check_rate(rate)
    length = max(1, round(len(words) * rate))
    count = min(count, max(0, room) // length) if rate else 0
    # With each span shrunk to one word, a set of spans is a set of words.
    slots = np.sort(rng.choice(len(words) - count * (length - 1), count, replace=False))
    return slots + np.arange(count) * (length - 1), length


_CORE = re.compile(r"\w(.*\w)?", re.S)


def _replaced(words: Sequence[str], count: int, synonyms: Synonyms, rng: np.random.Generator) -> list[str]:
    """Replace up to ``count`` words, tried in random order; punctuation at a word's ends stays, and a capital."""
    new = list(words)
    for at in rng.permutation(len(words)).tolist() if count else []:
        core = _CORE.search(words[at])
        choices = synonyms(core[0].lower()) if core else []
        if core and choices:
            word = str(choices[int(rng.integers(len(choices)))])
            word = word[0].upper() + word[1:] if core[0][0].isupper() else word
            new[at] = words[at][: core.start()] + word + words[at][core.end() :]
            count -= 1
        if not count:
            break
    return new
