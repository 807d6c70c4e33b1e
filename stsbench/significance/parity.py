"""Whether two encoders that should be identical really are: by their embeddings of the same sentences, and by their scores.

Embeddings that differ by rounding alone are the same. Else they are the same for practical purposes where no score can have
changed by more than a margin (its paired 95% interval lies within it) and no sentence went astray: what touches few sentences, as
another length at which they are cut, moves no score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.numbers.similarity import paired_cosine, unit_rows
from stsbench.numbers.statistics import Float64Array
from stsbench.significance.comparison import Comparison

Matrix = npt.NDArray[np.floating]
Sentences = Sequence[tuple[str, str]]
"""What is special in each, and its text."""
MAX_SENTENCES = 2048
"""So many sentences are compared with each other."""
PROBES: Sentences = (
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
"""Sentences on which encoders that should be identical differ first, and what is special in them."""


class OutlierSentence(NamedTuple):
    """A sentence: what is special in it, and the cosine of its two embeddings."""

    kind: str
    text: str
    cosine: float


class Neighbour(NamedTuple):
    """A sentence and its nearest neighbour by the first encoder: their cosine by each of the two."""

    text: str
    neighbour: str
    cosines: tuple[float, float]


def row_cosines(a: Matrix, b: Matrix) -> Float64Array:
    """The cosine of each embedding with the other encoder's, (n,); two zero vectors are the same, one alone is not."""
    found, zero = paired_cosine(a, b)
    return np.where(zero & ~(a.any(axis=1) | b.any(axis=1)), 1.0, np.clip(found, -1.0, 1.0))


def embedding_distances(a: Matrix, b: Matrix) -> Float64Array:
    """How far each embedding is from the other encoder's, (n,), as a share of the longer one's length."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    longer = np.maximum(np.linalg.norm(x, axis=1), np.linalg.norm(y, axis=1))
    return np.asarray(np.linalg.norm(x - y, axis=1) / np.where(longer > 0, longer, 1.0))


def neighbours(a: Matrix, b: Matrix, texts: Sequence[str]) -> tuple[Neighbour, float]:
    """The nearest neighbour whose cosine changed most, and the share of sentences that keep their nearest.

    Embeddings are (n, d) and (n, k), of two sentences at least; of more than ``MOST``, evenly spaced ones are taken.
    """
    at = np.unique(np.linspace(0, len(texts) - 1, MAX_SENTENCES).astype(np.int64))
    first, second = (unit_rows(x[at]) @ unit_rows(x[at]).T for x in (a, b))
    own = np.arange(len(at))
    # A sentence is no neighbour of its own.
    nearest, other = (
        np.where(np.eye(len(at), dtype=bool), -np.inf, x).argmax(axis=1) for x in (first, second)
    )
    before, after = first[own, nearest], second[own, nearest]
    most = int(np.abs(after - before).argmax())
    kept = float((second[own, other] <= second[own, nearest] + 1e-6).mean())
    found = Neighbour(
        texts[at[most]], texts[at[nearest[most]]], (float(before[most]), float(after[most]))
    )
    return found, kept


FLOAT32_TOLERANCE = 1e-4
"""A distance that rounding in float32 explains, as a share of an embedding's length."""
OUTLIER_LIMIT = 0.99
"""A sentence whose cosine is lower has gone astray; bfloat16 leaves 0.999 and more."""
ALIKE = 0.01
"""Lengths that differ by more, as a share, in the median are no rounding."""
MAX_LISTED = 8
SAME, PRACTICAL, DIFFERENT = "same to rounding", "same for practical purposes", "different"


class EmbeddingForm(NamedTuple):
    """How embeddings are kept: the type and the number of their numbers."""

    type: str
    size: int

    def __str__(self) -> str:
        """As people say it."""
        return f"{self.size} × {self.type}"


class EncoderEmbeddings(NamedTuple):
    """One encoder's embeddings (n, d) of all sentences, and their form."""

    form: EmbeddingForm
    embeddings: Matrix


class KindRow(NamedTuple):
    """How alike the sentences of one kind are embedded."""

    kind: str
    n: int
    worst: float
    median: float
    outliers: int


@dataclass(frozen=True, kw_only=True)
class Parity:
    """What was found: ``verdict`` and its ``reasons``; ``rows``, ``distance`` and ``strays`` are empty for other forms."""

    verdict: str
    reasons: Sequence[str]
    forms: tuple[EmbeddingForm, EmbeddingForm]
    rows: Sequence[KindRow]
    distance: float | None
    strays: Sequence[OutlierSentence]
    neighbour: Neighbour
    kept: float
    comparison: Comparison

    @property
    def same(self) -> bool:
        """Whether the two are one, to rounding or for practical purposes."""
        return self.verdict != DIFFERENT


def compare_embeddings(
    first: EncoderEmbeddings,
    second: EncoderEmbeddings,
    sentences: Sentences,
    comparison: Comparison,
    *,
    margin: float = 0.005,
) -> Parity:
    """Return whether two encoders are one, by their embeddings of the same sentences, each with its kind, and their scores.

    ``margin`` is how far a score may have moved, never times 100.
    """
    a, b, texts = first.embeddings, second.embeddings, [text for _, text in sentences]
    alike = first.form == second.form
    found = row_cosines(a, b) if alike else np.empty(0)
    distance = float(embedding_distances(a, b).max()) if alike else None
    neighbour, kept = neighbours(a, b, texts)
    reasons = []
    for one in comparison.differences:
        low, high = one.interval or (-np.inf, np.inf)
        if one.interval is None:
            reasons.append(f"{one.task}: no interval of the difference is known")
        elif not -margin <= low <= high <= margin:
            moved = f"{100 * low:+.2f} to {100 * high:+.2f}"
            reasons.append(
                f"{one.task}: the difference may be {moved} points, beyond ±{100 * margin:g}"
            )
    if distance is not None and distance <= FLOAT32_TOLERANCE:
        verdict, reasons = (
            SAME,
            [f"no embedding is farther away than {FLOAT32_TOLERANCE:g} of its length"],
        )
    else:
        reasons += _astray(sentences, found)
        verdict = DIFFERENT if reasons else PRACTICAL
        reasons = reasons or [
            f"each score's 95% interval of the difference lies within ±{100 * margin:g} points"
        ]
        reasons += _remarks(first, second)
    order = np.argsort(found, kind="stable")[:MAX_LISTED]
    return Parity(
        verdict=verdict,
        reasons=reasons,
        forms=(first.form, second.form),
        rows=_rows(sentences, found) if alike else [],
        distance=distance,
        strays=[
            OutlierSentence(*sentences[int(at)], float(found[at]))
            for at in order
            if found[at] < 1 - FLOAT32_TOLERANCE**2
        ],
        neighbour=neighbour,
        kept=kept,
        comparison=comparison,
    )


def _astray(sentences: Sentences, found: Matrix) -> Iterator[str]:
    astray = found < OUTLIER_LIMIT
    if not astray.any():
        return
    yield f"{int(astray.sum())} of {len(found)} sentences have a cosine below {OUTLIER_LIMIT:g}"
    gone = [one for one, lost in zip(sentences, astray, strict=True) if lost]
    here = [one for one, lost in zip(sentences, astray, strict=True) if not lost]
    yield next(
        (said for said, holds in CAUSES.items() if holds(gone, here)),
        "they have nothing plain in common",
    )


def _longer(some: Sentences, others: Sentences) -> bool:
    lengths = (median(len(text) for _, text in one) for one in (some, others))
    return next(lengths) > 1.5 * next(lengths)


CAUSES: dict[str, Callable[[Sentences, Sentences], bool]] = {
    "all of them have capitals: one may lower-case": lambda gone, here: all(
        text != text.lower() for _, text in gone
    ),
    "nearly all: look at pooling, prompt, weights and normalisation": lambda gone, here: (
        len(here) < len(gone) / 9
    ),
    "most are long: one may cut sentences shorter": lambda gone, here: _longer(gone, here),
    "most are short: one may count padding, or pad on another side": lambda gone, here: _longer(
        here, gone
    ),
}
"""What sentences that went astray may have in common, the others being here: the first that holds is said."""


def _remarks(first: EncoderEmbeddings, second: EncoderEmbeddings) -> Iterator[str]:
    if first.form != second.form:
        yield f"embeddings of other forms ({first.form}, {second.form}) are compared by scores alone"
        return
    a, b = (np.linalg.norm(side.embeddings.astype(np.float64), axis=1) for side in (first, second))
    both = (a > 0) & (b > 0)
    if both.any() and abs(float(np.median(b[both] / a[both])) - 1) > ALIKE:
        yield f"their lengths differ ({np.median(a):.3g} and {np.median(b):.3g} in the median): one may be normalised"


def _rows(sentences: Sentences, found: Matrix) -> list[KindRow]:
    kinds: dict[str, list[float]] = {}
    for (kind, _), cosine in zip(sentences, found.tolist(), strict=True):
        kinds.setdefault(kind, []).append(cosine)
    return [
        KindRow(kind, len(mine), min(mine), median(mine), sum(one < OUTLIER_LIMIT for one in mine))
        for kind, mine in kinds.items()
    ]
