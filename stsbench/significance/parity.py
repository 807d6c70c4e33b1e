"""Check whether two encoders that should be identical are, by their embeddings and their scores.

Embeddings of the same sentences that differ by rounding alone are the same. Otherwise they are the
same for practical purposes if no score can have changed by more than a margin (its paired 95%
interval lies within it) and no sentence is an outlier: a cause that affects few sentences, such
as another length at which they are cut, moves no score. They are different if a sentence is an
outlier, or if a score has changed by more than the margin (its interval lies beyond it). If an
interval contains the margin, the items are too few to tell.
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
from stsbench.significance.comparison_record import Comparison

Matrix = npt.NDArray[np.floating]
Sentences = Sequence[tuple[str, str]]
"""The kind and the text of each sentence; a kind is what is special about it, such as ``long``."""
MAX_SENTENCES = 2048
"""The maximum number of sentences to compare with each other."""
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
"""Sentences on which encoders that should be identical differ first."""


class OutlierSentence(NamedTuple):
    """A sentence that two encoders embed differently.

    Attributes:
        kind: What is special about the sentence.
        text: The sentence.
        cosine: The cosine of its two embeddings.
    """

    kind: str
    text: str
    cosine: float


class Neighbour(NamedTuple):
    """A sentence and its nearest neighbour by the first encoder.

    Attributes:
        text: The sentence.
        neighbour: Its nearest neighbour.
        cosines: The cosine of the two sentences by the first and by the second encoder.
    """

    text: str
    neighbour: str
    cosines: tuple[float, float]


def row_cosines(a: Matrix, b: Matrix) -> Float64Array:
    """Compute the cosine of each sentence's two embeddings, (n,).

    Two zero vectors have the cosine 1. A zero vector and another vector have 0.

    Args:
        a: The embeddings by one encoder, (n, d).
        b: The embeddings of the same sentences by another encoder, (n, d).
    """
    # The cosines, 0 for a pair with a zero vector, and which pairs have one.
    cosines, has_zero = paired_cosine(a, b)
    both_zero = has_zero & ~(a.any(axis=1) | b.any(axis=1))
    return np.where(both_zero, 1.0, np.clip(cosines, -1.0, 1.0))


def embedding_distances(a: Matrix, b: Matrix) -> Float64Array:
    """Compute the distance of each sentence's two embeddings, (n,).

    It is Euclid's distance divided by the length of the longer embedding; 0 for two zero vectors.

    Args:
        a: The embeddings by one encoder, (n, d).
        b: The embeddings of the same sentences by another encoder, (n, d).
    """
    a = a.astype(np.float64)
    b = b.astype(np.float64)
    lengths = np.maximum(np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1))
    return np.asarray(np.linalg.norm(a - b, axis=1) / np.where(lengths > 0, lengths, 1.0))


class NeighbourComparison(NamedTuple):
    """How the nearest neighbours of sentences differ between two encoders.

    Attributes:
        most_changed: The sentence whose cosine to its nearest neighbour changed most.
        same_share: The share of sentences with the same nearest neighbour by both encoders.
    """

    most_changed: Neighbour
    same_share: float


def compare_neighbours(a: Matrix, b: Matrix, texts: Sequence[str]) -> NeighbourComparison:
    """Compare the nearest neighbours of sentences by two encoders.

    If there are more than ``MAX_SENTENCES``, evenly spaced ones are compared.

    Args:
        a: The first encoder's embeddings, (n, d).
        b: The second encoder's embeddings, (n, k).
        texts: The n sentences, at least two.

    Returns:
        The sentence whose cosine to its nearest neighbour by the first encoder changed most, and
        the share of sentences whose nearest neighbour is the same by both encoders.
    """
    # The indices of the sentences to compare: all if there are not more.
    sampled = np.unique(np.linspace(0, len(texts) - 1, MAX_SENTENCES).astype(np.int64))
    # unit_rows scales embeddings to length 1. The nearest neighbour is never the sentence itself.
    cosines_by_first = unit_rows(a[sampled]) @ unit_rows(a[sampled]).T
    cosines_by_second = unit_rows(b[sampled]) @ unit_rows(b[sampled]).T
    rows = np.arange(len(sampled))
    first_nearest = _nearest(cosines_by_first)
    second_nearest = _nearest(cosines_by_second)
    # The cosines, by either encoder, of a sentence and its nearest neighbour by the first encoder.
    first_cosines = cosines_by_first[rows, first_nearest]
    second_cosines = cosines_by_second[rows, first_nearest]
    most_changed = int(np.abs(second_cosines - first_cosines).argmax())
    # The neighbour counts as the same if by the second encoder it is, up to rounding, as near as
    # the nearest one.
    is_same = cosines_by_second[rows, second_nearest] <= second_cosines + 1e-6
    neighbour = Neighbour(
        text=texts[sampled[most_changed]],
        neighbour=texts[sampled[first_nearest[most_changed]]],
        cosines=(float(first_cosines[most_changed]), float(second_cosines[most_changed])),
    )
    return NeighbourComparison(neighbour, float(is_same.mean()))


def _nearest(cosines: Matrix) -> npt.NDArray[np.int64]:
    """Return the nearest other sentence of each of n, (n,), by the cosines of all, (n, n)."""
    is_itself = np.eye(len(cosines), dtype=bool)
    return np.asarray(np.where(is_itself, -np.inf, cosines).argmax(axis=1))


FLOAT32_TOLERANCE = 1e-4
"""The largest distance that rounding in float32 explains, as a share of an embedding's length."""
OUTLIER_LIMIT = 0.99
"""A sentence with a lower cosine is an outlier; with bfloat16 cosines are 0.999 or more."""
LENGTH_TOLERANCE = 0.01
"""If the median ratio of lengths differs from 1 by more, the cause is not rounding."""
MAX_LISTED = 8
"""The maximum number of sentences to list."""
SAME, PRACTICAL = "same to rounding", "same for practical purposes"
DIFFERENT, UNKNOWN = "different", "cannot be told"
"""The possible verdicts, with the two above."""


class EmbeddingForm(NamedTuple):
    """The form of embeddings.

    Attributes:
        type: The type of their numbers, for example ``float32``.
        size: The number of dimensions.
    """

    type: str
    size: int

    def __str__(self) -> str:
        """Return the form as text, for example ``384 × float32``."""
        return f"{self.size} × {self.type}"


class EncoderEmbeddings(NamedTuple):
    """One encoder's embeddings of all sentences, (n, d), and their form."""

    form: EmbeddingForm
    embeddings: Matrix


class KindRow(NamedTuple):
    """How similarly two encoders embed the sentences of one kind.

    Attributes:
        kind: What is special about the sentences.
        n: The number of sentences.
        worst: The lowest cosine of a sentence's two embeddings.
        median: The median cosine.
        astray: The number of sentences with a cosine below ``OUTLIER_LIMIT``.
    """

    kind: str
    n: int
    worst: float
    median: float
    astray: int


@dataclass(frozen=True, kw_only=True)
class Parity:
    """The result of comparing two encoders that should be identical.

    Attributes:
        verdict: ``SAME``, ``PRACTICAL``, ``DIFFERENT`` or ``UNKNOWN``.
        reasons: The reasons for the verdict, as texts for the user.
        forms: The form of the first and of the second encoder's embeddings.
        rows: The cosines by kind of sentence; empty if forms differ.
        distance: The largest distance of a sentence's two embeddings, as a share of the longer
            one's length; None if forms differ.
        strays: The sentences that differ most, the worst first; empty if forms differ.
        neighbour: The nearest neighbour whose cosine changed most.
        kept: The share of sentences whose nearest neighbour is the same by both encoders.
        comparison: The comparison of their scores.
    """

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
        """True if the two are the same, to rounding or for practical purposes."""
        return self.verdict in (SAME, PRACTICAL)


def compare_embeddings(
    first: EncoderEmbeddings,
    second: EncoderEmbeddings,
    sentences: Sentences,
    comparison: Comparison,
    *,
    margin: float = 0.005,
) -> Parity:
    """Judge whether two encoders are the same, by embeddings of the same sentences and by scores.

    They are different if a score has changed by more than a margin or a sentence has a low cosine.

    Args:
        first: The first encoder's embeddings, with their form: type and number of dimensions.
        second: The second encoder's embeddings.
        sentences: The kind and the text of each embedded sentence.
        comparison: The comparison of the two encoders' scores.
        margin: The largest change of a score that does not matter, not times 100.
    """
    a = first.embeddings
    b = second.embeddings
    neighbour, same_neighbour_share = compare_neighbours(a, b, [text for _, text in sentences])
    same_form = first.form == second.form
    cosines = row_cosines(a, b) if same_form else np.empty(0)
    distance = float(embedding_distances(a, b).max()) if same_form else None
    if distance is not None and distance <= FLOAT32_TOLERANCE:
        verdict = SAME
        reasons = [f"no embedding is farther away than {FLOAT32_TOLERANCE:g} of its length"]
    else:
        changed = list(_describe_changed_scores(comparison, margin))
        outliers = list(_describe_outliers(sentences, cosines))
        uncertain = list(_describe_uncertain_scores(comparison, margin))
        reasons = [*changed, *outliers, *uncertain]
        if changed or outliers:
            verdict = DIFFERENT
        else:
            verdict = UNKNOWN if uncertain else PRACTICAL
        if not reasons:
            points = f"±{100 * margin:g} points"
            reasons = [f"each score's 95% interval of the difference lies within {points}"]
        reasons += _describe_forms(first, second)
    # Cosines that are 1 up to rounding are not listed.
    worst_first = np.argsort(cosines, kind="stable")[:MAX_LISTED].tolist()
    return Parity(
        verdict=verdict,
        reasons=reasons,
        forms=(first.form, second.form),
        rows=_rows_by_kind(sentences, cosines) if same_form else [],
        distance=distance,
        strays=[
            OutlierSentence(
                kind=sentences[index][0], text=sentences[index][1], cosine=float(cosines[index])
            )
            for index in worst_first
            if cosines[index] < 1 - FLOAT32_TOLERANCE**2
        ],
        neighbour=neighbour,
        kept=same_neighbour_share,
        comparison=comparison,
    )


def _describe_changed_scores(comparison: Comparison, margin: float) -> Iterator[str]:
    """Yield a message for each task whose score has certainly changed by more than the margin.

    It has if the whole 95% interval of the difference lies beyond the margin.

    Args:
        comparison: The differences of two encoders' scores with their intervals, not times 100; an
            unknown interval is None. Messages have them times 100, in points.
        margin: The largest difference that does not matter, not times 100.
    """
    for difference in comparison.differences:
        if difference.interval is None:
            continue
        low, high = difference.interval
        if low > margin or high < -margin:
            yield (
                f"{difference.task}: the difference is {_format_interval(low, high)} points, "
                f"beyond ±{100 * margin:g}"
            )


def _describe_uncertain_scores(comparison: Comparison, margin: float) -> Iterator[str]:
    """Yield a message for each task whose score may or may not have changed by more than a margin.

    That is so if a bound of the difference's 95% interval lies within the margin and the other one
    does not, if the interval spans the margin, or if there is no interval.

    Args:
        comparison: The differences of two encoders' scores with their intervals, not times 100, and
            the number n of their items. Messages have intervals times 100, in points.
        margin: The largest difference that does not matter, not times 100.
    """
    for difference in comparison.differences:
        if difference.interval is None:
            yield f"{difference.task}: no interval of the difference is known"
            continue
        low, high = difference.interval
        is_within = -margin < low and high < margin
        is_beyond = low > margin or high < -margin
        if not is_within and not is_beyond:
            yield (
                f"{difference.task}: these {difference.n:,} items leave open if the difference is "
                f"within ±{100 * margin:g} points: it may be {_format_interval(low, high)}"
            )


def _format_interval(low: float, high: float) -> str:
    return f"{100 * low:+.2f} to {100 * high:+.2f}"


def _describe_outliers(sentences: Sentences, cosines: Matrix) -> Iterator[str]:
    """Describe the sentences that two encoders embed differently, and the likely cause.

    Args:
        sentences: The kind and the text of each sentence.
        cosines: The cosine of each sentence's two embeddings, (n,); empty if they have different
            forms.

    Yields:
        Two messages, the number of sentences with a cosine below ``OUTLIER_LIMIT`` and the cause;
        nothing if there are none.
    """
    is_outlier = cosines < OUTLIER_LIMIT
    n_outliers = int(is_outlier.sum())
    if not n_outliers:
        return
    yield f"{n_outliers} of {len(cosines)} sentences have a cosine below {OUTLIER_LIMIT:g}"
    outliers = list[tuple[str, str]]()
    remaining = list[tuple[str, str]]()
    for sentence, is_out in zip(sentences, is_outlier, strict=True):
        (outliers if is_out else remaining).append(sentence)
    # CAUSES has for each possible cause a function of the outliers and of the other sentences. The
    # first cause that applies is named.
    yield next(
        (cause for cause, applies in CAUSES.items() if applies(outliers, remaining)),
        "they have nothing plain in common",
    )


def _are_longer(sentences: Sentences, reference: Sentences) -> bool:
    median_length = median(len(text) for _, text in sentences)
    return median_length > 1.5 * median(len(text) for _, text in reference)


def _all_have_capitals(outliers: Sentences, _remaining: Sentences) -> bool:
    return all(text != text.lower() for _, text in outliers)


def _are_nearly_all(outliers: Sentences, remaining: Sentences) -> bool:
    return len(remaining) < len(outliers) / 9


def _are_shorter(outliers: Sentences, remaining: Sentences) -> bool:
    return _are_longer(remaining, outliers)


CAUSES: dict[str, Callable[[Sentences, Sentences], bool]] = {
    "all of them have capitals: one may lower-case": _all_have_capitals,
    "nearly all: look at pooling, prompt, weights and normalisation": _are_nearly_all,
    "most are long: one may cut sentences shorter": _are_longer,
    "most are short: one may count padding, or pad on another side": _are_shorter,
}
"""Likely causes of outliers, and whether each applies to the outliers and the remaining sentences.

The first cause that applies is reported.
"""


def _describe_forms(first: EncoderEmbeddings, second: EncoderEmbeddings) -> Iterator[str]:
    """Describe a difference of two encoders' embeddings in form or in length.

    The form is the type of numbers and the number of dimensions. Lengths of vectors are compared
    only for equal forms.

    Args:
        first: The first encoder's embeddings of all sentences.
        second: The second encoder's embeddings of the same sentences.

    Yields:
        One message; nothing if there is no difference.
    """
    if first.form != second.form:
        forms = f"{first.form}, {second.form}"
        yield f"embeddings of other forms ({forms}) are compared by scores alone"
        return
    first_lengths = np.linalg.norm(first.embeddings.astype(np.float64), axis=1)
    second_lengths = np.linalg.norm(second.embeddings.astype(np.float64), axis=1)
    nonzero = (first_lengths > 0) & (second_lengths > 0)
    if not nonzero.any():
        return
    ratio = float(np.median(second_lengths[nonzero] / first_lengths[nonzero]))
    if abs(ratio - 1) > LENGTH_TOLERANCE:
        medians = f"{np.median(first_lengths):.3g} and {np.median(second_lengths):.3g}"
        yield f"their lengths differ ({medians} in the median): one may be normalised"


def _rows_by_kind(sentences: Sentences, cosines: Matrix) -> list[KindRow]:
    """Summarise how similarly two encoders embed the sentences of each kind.

    Args:
        sentences: The kind and the text of each sentence; a kind is what is special about it, such
            as ``long``.
        cosines: The cosine of each sentence's two embeddings, (n,).

    Returns:
        For each kind the number of sentences, the lowest and the median cosine, and the number of
        cosines below ``OUTLIER_LIMIT`` (0.99). Kinds are in the order of their first sentences.
    """
    cosines_by_kind: dict[str, list[float]] = {}
    for (kind, _), cosine in zip(sentences, cosines.tolist(), strict=True):
        cosines_by_kind.setdefault(kind, []).append(cosine)
    return [
        KindRow(
            kind=kind,
            n=len(kind_cosines),
            worst=min(kind_cosines),
            median=median(kind_cosines),
            astray=sum(cosine < OUTLIER_LIMIT for cosine in kind_cosines),
        )
        for kind, kind_cosines in cosines_by_kind.items()
    ]
