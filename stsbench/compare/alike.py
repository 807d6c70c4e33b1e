"""How far two encoders embed the same sentences alike: each sentence by itself, and against its nearest neighbour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.similarity import paired_cosine

Matrix = npt.NDArray[np.floating]
MOST = 2048
"""So many sentences are compared with each other."""
PROBES: Sequence[tuple[str, str]] = (
    ("empty", ""),
    ("blank", " "),
    ("blank", "\t a  dog \n\n ran   home "),
    ("short", "No"),
    ("short", "a"),
    ("short", "dogs run"),
    ("plain", "a man is playing a guitar on the stage of a small theatre"),
    ("plain", "the committee said that the report would be read again before the vote"),
    ("capitals", "A MAN IS PLAYING A GUITAR ON THE STAGE OF A SMALL THEATRE"),
    ("capitals", "Apple, US and Polish turkey; apple, us and polish Turkey"),
    ("capitals", "McDonald's, iPhone, NASA, eBay and O'Neill"),
    ("accents", "Café naïve, Zoë's façade; ÅNGSTRÖM straße İstanbul"),
    ("numbers", "In 2019, 3.14% of 1,000,000 people paid $12.50 at 10:45."),
    ("signs", '🙂 👩‍👩‍👧 don\'t-stop (well...) "quoted" http://example.org/a_b?c=1'),
    ("other scripts", "שלום עולם, مرحبا بالعالم"),
    ("other scripts", "今日は良い天気です。"),
    ("other scripts", "Привет, мир! Γειά σου Κόσμε"),
    ("other scripts", "안녕하세요 นี่คือประโยค नमस्ते"),
    ("special tokens", "[CLS] a dog [SEP] ran home [PAD] [PAD]"),
    ("special tokens", "<s> a dog </s> ran <mask> home <unk> <pad>"),
    ("special tokens", "a dog [MASK] home ##ing [UNK] <|endoftext|>"),
    *(
        ("long", "the committee read the report again and sent it on, " * n + "and a dog slept")
        for n in (3, 6, 12, 25, 50, 100)
    ),
)
"""Sentences on which encoders that ought to be one differ first, and what is special in them."""


class Stray(NamedTuple):
    """A sentence: what is special in it, and the cosine of its two embeddings."""

    kind: str
    text: str
    cosine: float


class Neighbour(NamedTuple):
    """A sentence and its nearest neighbour by the first encoder: their cosine by each of the two."""

    text: str
    neighbour: str
    cosines: tuple[float, float]

    @property
    def change(self) -> float:
        """How far the second's cosine is from the first's."""
        return self.cosines[1] - self.cosines[0]


def cosines_of(a: Matrix, b: Matrix) -> Float64Array:
    """The cosine of each embedding with the other encoder's, (n,); two zero vectors are the same, one alone is not."""
    found, zero = paired_cosine(a, b)
    both = ~(a.any(axis=1) | b.any(axis=1))
    same: Float64Array = np.where(zero & both, 1.0, np.clip(found, -1.0, 1.0))
    return same


def distances(a: Matrix, b: Matrix) -> Float64Array:
    """How far each embedding is from the other encoder's, (n,), as a share of the longer one's length."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    longer = np.maximum(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
    found: Float64Array = np.linalg.norm(x - y, axis=1) / np.where(longer > 0, longer, 1.0)
    return found


def neighbours(a: Matrix, b: Matrix, texts: Sequence[str]) -> tuple[Neighbour, float]:
    """The nearest neighbour whose cosine changed most, and the share of sentences that keep their nearest.

    Args:
        a: one encoder's embeddings, (n, d).
        b: the other's, (n, k): its size may be another.
        texts: the sentences, (n,), at least two; evenly spaced ones where there are more than ``MOST``.
    """
    at = np.unique(np.linspace(0, len(texts) - 1, MOST).astype(np.int64))
    first, second = (_unit(x[at]) @ _unit(x[at]).T for x in (a, b))
    own = np.arange(len(at))
    # A sentence is no neighbour of its own.
    nearest, other = (np.where(np.eye(len(at), dtype=bool), -np.inf, x).argmax(axis=1) for x in (first, second))
    before, after = first[own, nearest], second[own, nearest]
    most = int(np.abs(after - before).argmax())
    kept = float((second[own, other] <= second[own, nearest] + 1e-6).mean())
    found = Neighbour(texts[at[most]], texts[at[nearest[most]]], (float(before[most]), float(after[most])))
    return found, kept


def _unit(x: Matrix) -> Float64Array:
    lengths = np.linalg.norm(x.astype(np.float64), axis=1, keepdims=True)
    found: Float64Array = x / np.where(lengths > 0, lengths, 1.0)
    return found
