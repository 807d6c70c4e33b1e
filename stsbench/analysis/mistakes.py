"""The pairs that an encoder gets wrong: the analysis ``errors``.

Spearman's correlation is 1 less half the mean of (u - v)², u and v being the standardised ranks of
cosine and gold: each pair has a cost, and the mean cost is what the score lacks of 1. Plain rules
give the kind of a pair: overlap of words, length, negation, numbers, names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from stsbench.analysis.context import (
    EncoderAnalysis,
    EncoderFindings,
    EncoderOnTask,
    PlainRow,
    Tables,
)
from stsbench.data.splits import PairSplit
from stsbench.evaluators.base import PositiveInt
from stsbench.numbers.dependence import (
    ItemDependence,
    read_dependence,
    sentence_columns,
)
from stsbench.numbers.intervals import standard_error
from stsbench.numbers.statistics import (
    Float64Array,
    centred_ranks,
    weighted_rank_sums,
)
from stsbench.plots.draw import DotPoint, draw_dots
from stsbench.significance.differences import EstimatedDifference

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


WORD_PATTERN = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
NEGATIONS = frozenset("no not never none nobody nothing neither nor nowhere cannot without".split())
DIGITS_BY_WORD = dict(
    zip(
        "zero one two three four five six seven eight nine ten".split(),
        map(str, range(11)),
        strict=True,
    )
)


def words_of(sentence: str) -> list[str]:
    """Return the words of a sentence, in lower case."""
    return WORD_PATTERN.findall(sentence.lower())


def overlap(first: str, second: str) -> str:
    """Classify the overlap of two sentences' words (Jaccard): low below 0.3, high from 0.6.

    Args:
        first: The first sentence.
        second: The second sentence; two without words have a low overlap.
    """
    first_words = set(words_of(first))
    second_words = set(words_of(second))
    share = len(first_words & second_words) / max(len(first_words | second_words), 1)
    if share < 0.3:
        return "low"
    return "middle" if share < 0.6 else "high"


def length(first: str, second: str) -> str:
    """Classify the mean number of words of two sentences: short up to 8, long from 16."""
    mean = (len(words_of(first)) + len(words_of(second))) / 2
    if mean <= 8:
        return "short"
    return "middle" if mean < 16 else "long"


def is_negated(sentence: str) -> bool:
    """Return whether a sentence holds a word of negation, or one that ends in n't."""
    return any(word in NEGATIONS or word.endswith(("n't", "n’t")) for word in words_of(sentence))


def negation(first: str, second: str) -> str:
    """Classify two sentences by how many of them are negated."""
    n_negated = is_negated(first) + is_negated(second)
    return ("neither", "one", "both")[n_negated]


def numbers_in(sentence: str) -> set[str]:
    """Return the numbers of a sentence, in digits; those up to ten may be written as words."""
    digits = re.findall(r"\d+(?:[.,]\d+)*", sentence)
    number_words = [word for word in words_of(sentence) if word in DIGITS_BY_WORD]
    return {number.replace(",", "") for number in digits} | {
        DIGITS_BY_WORD[word] for word in number_words
    }


def names_in(sentence: str) -> set[str]:
    """Return the words that begin with a capital and are not the first of the sentence.

    The set is empty for a sentence that is all in capitals.
    """
    if sentence.isupper():
        return set()
    words = WORD_PATTERN.findall(sentence)
    return {word.lower() for word in words[1:] if word[0].isupper() and word != "I"}


def _compare_sets(extract: Callable[[str], set[str]]) -> Callable[[str, str], str]:
    """Return a rule that compares what a function extracts from each sentence of a pair.

    The rule classifies a pair as ``same`` or ``different``, or as ``none`` if nothing is extracted
    from either sentence.
    """

    def rule(first: str, second: str) -> str:
        first_set = extract(first)
        second_set = extract(second)
        if not first_set | second_set:
            return "none"
        return "same" if first_set == second_set else "different"

    return rule


SLICINGS: Mapping[str, Callable[[str, str], str]] = {
    "overlap": overlap,
    "length": length,
    "negation": negation,
    "numbers": _compare_sets(numbers_in),
    "names": _compare_sets(names_in),
}
"""Rules that give the kind of a pair of sentences; each divides the pairs into slices."""


def slices(first: Sequence[str], second: Sequence[str]) -> dict[str, list[str]]:
    """Classify each pair by each rule.

    Args:
        first: The first sentence of each pair.
        second: The second sentence of each pair.

    Returns:
        The kinds of the n pairs in order, by the rule's name in SLICINGS.
    """
    pairs = list(zip(first, second, strict=True))
    return {
        name: [rule(sentence1, sentence2) for sentence1, sentence2 in pairs]
        for name, rule in SLICINGS.items()
    }


class SliceCost(NamedTuple):
    """The cost of the pairs of one kind for a correlation, with 95% intervals."""

    cost: float
    """Their part of what the correlation lacks of 1."""
    cost_low: float
    cost_high: float
    excess: float
    """How much more a pair of the kind costs than the mean pair."""
    excess_low: float
    excess_high: float


def pair_costs(cosines: Float64Array, gold: Float64Array) -> Float64Array:
    """Return the cost of each pair for Spearman's correlation, (n,).

    The mean of the costs is 1 less the correlation.

    Args:
        cosines: The cosine of each pair, (n,).
        gold: The gold score of each pair, (n,).
    """
    # With ranks of mean 0 and deviation 1, the correlation is the mean of their product, and the
    # mean of half the squared gap is 1 less that.
    rank_gap = _standard_ranks(cosines) - _standard_ranks(gold)
    return rank_gap**2 / 2


def _standard_ranks(x: Float64Array) -> Float64Array:
    """Return the ranks of values, (n,), with mean 0 and deviation 1; ties share their mean rank."""
    ranks = centred_ranks(x)
    return ranks / ranks.std()  # type: ignore[no-any-return]


def slice_cost(
    cosines: Float64Array,
    gold: Float64Array,
    members: Float64Array,
    sharing: ItemDependence | None = None,
) -> SliceCost:
    """Return the cost of some pairs for Spearman's correlation, and their excess over others.

    The cost is the part of the correlation that is lost by these pairs; the excess is their mean
    cost less that of all pairs. The intervals are Student's, by the influence of each pair: its own
    cost, and its effect on the ranks of all other pairs.

    Args:
        cosines: The cosine of each pair, (n,).
        gold: The gold score of each pair, (n,).
        members: 1 for the pairs whose cost is computed and 0 for the other ones, (n,); both occur.
        sharing: Which pairs share sentences; by default none do.
    """
    n = len(gold)
    share = float(members.mean())
    costs = pair_costs(cosines, gold)
    cost = float((members * costs).mean())
    mean_cost = float(costs.mean())
    # The members' mean cost less that of all pairs.
    excess = cost / share - mean_cost
    # The influence of each pair on cost, mean_cost and share, (n,): by its own cost or membership,
    # and by moving the ranks of other pairs.
    cost_influence = members * costs - cost + _influence_by_ranks(cosines, gold, members)
    mean_influence = costs - mean_cost + _influence_by_ranks(cosines, gold, np.ones(n))
    share_influence = members - share
    # The influence on the ratio cost / share, by the quotient rule.
    ratio_influence = (cost_influence - share_influence * cost / share) / share
    excess_influence = ratio_influence - mean_influence
    sharing = sharing or ItemDependence.without_shared(n)
    return SliceCost(
        cost,
        *_interval(cost, cost_influence, sharing),
        excess,
        *_interval(excess, excess_influence, sharing),
    )


def _influence_by_ranks(x: Float64Array, y: Float64Array, members: Float64Array) -> Float64Array:
    """Return how much each pair moves the members' cost by moving other pairs' ranks, (n,).

    A cost is half the square of a gap between two ranks, so it moves by the gap times what moves
    them.

    Args:
        x: The cosine of each pair, (n,).
        y: The gold score of each pair, (n,).
        members: 1 for the pairs whose cost is computed and 0 for the other ones, (n,).
    """
    gap = members * (_standard_ranks(x) - _standard_ranks(y))
    return _rank_influence(x, gap) - _rank_influence(y, gap)


def _rank_influence(values: Float64Array, gap: Float64Array) -> Float64Array:
    """Return how much each pair moves the mean of gap times rank, by moving other pairs' ranks.

    A pair raises the rank of each pair with a higher value, and half as much that of each pair with
    the same value. The mean over all pairs is subtracted, because the mean of influences is 0.

    Args:
        values: The values that are ranked, (n,).
        gap: What the rank of each pair is multiplied by, (n,).

    Returns:
        The influence of each pair, (n,).
    """
    ranks = centred_ranks(values)
    # A rank of -1/2 to 1/2, plus 1/2, is the share of pairs below it.
    mean_effect = (gap * (ranks + 0.5)).mean()
    effects = weighted_rank_sums(values, gap) - mean_effect
    # In units of ranks with deviation 1, as the costs have them.
    return effects / ranks.std()  # type: ignore[no-any-return]


def shared_sentences(first: Sequence[str], second: Sequence[str]) -> ItemDependence:
    """Return which pairs share a sentence: their errors are not independent."""
    return read_dependence(sentence_columns(first, second), len(first))


def _interval(
    value: float, influence: Float64Array, sharing: ItemDependence
) -> tuple[float, float]:
    """Return the 95% interval of a number that is a mean over pairs, by Student's distribution.

    Args:
        value: The number.
        influence: The influence of each pair on it, (n,): n times how much the pair moves it.
        sharing: Which pairs share sentences, so that they count as fewer.
    """
    n = len(influence)
    # Each pair has the same weight, 1/n, in the mean.
    error = standard_error(influence / n, sharing, np.full(n, 1 / n))
    return EstimatedDifference(value, *error).interval()


class _RankErrors(NamedTuple):
    """How wrongly one encoder ranks the task's pairs."""

    pairs: PairSplit
    cosines: Float64Array
    """The cosine of each pair, (n,)."""
    errors: Float64Array
    """Its rank by cosine less its rank by gold score, (n,)."""


@dataclass(frozen=True)
class Mistakes(EncoderAnalysis):
    """The ``k`` pairs that are ranked most wrongly, and the costs of kinds of pairs."""

    about = (
        "pairs ranked most wrongly, and what each kind of pair costs in points, with 95% intervals"
    )
    printed = ("slices", "worst", "differ")

    k: PositiveInt = 5

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure the costs of kinds of pairs, and find the worst ranked pairs, by one encoder."""
        pairs = subject.pairs()
        cosines = subject.cosines
        errors = centred_ranks(cosines) - centred_ranks(pairs.gold)
        worst = [
            _pair_row(pairs, row, {"cosine": float(cosines[row]), "error": float(errors[row])})
            for row in _largest(errors, self.k)
        ]
        return EncoderFindings(
            {"slices": _slice_rows(pairs, cosines), "worst": worst},
            _RankErrors(pairs, cosines, errors),
        )

    def compare_encoders(self, measurements: Mapping[str, _RankErrors]) -> Tables:
        """Find the pairs that two encoders rank most differently.

        Args:
            measurements: By encoder, the rank errors of the same pairs.
        """
        rows: list[PlainRow] = []
        for (first_name, first), (second_name, second) in combinations(measurements.items(), 2):
            names = {"encoder": first_name, "other": second_name}
            for row in _largest(first.errors - second.errors, self.k):
                cosines = {
                    "cosine": float(first.cosines[row]),
                    "other_cosine": float(second.cosines[row]),
                }
                rows.append({**names, **_pair_row(first.pairs, row, cosines)})
        return {"differ": rows}

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw how many points a pair of each kind costs more than the mean pair does.

        Args:
            tables: ``slices``, the cost of each kind of pairs by encoder.
            title: The title of the picture.
        """
        dots = []
        for row in tables["slices"]:
            kind = f"{row['slicing']}: {row['kind']}"
            numbers = (row[key] for key in ("excess", "excess_low", "excess_high"))
            dots.append(DotPoint.difference(kind, row["encoder"], *numbers))
        x_label = (
            "points that a pair costs more than the mean pair, with 95% interval; ○ it may be 0"
        )
        return draw_dots(dots, x_label=x_label, title=title, has_zero_line=True)


def _slice_rows(pairs: PairSplit, cosines: Float64Array) -> list[PlainRow]:
    """Return a row for each kind of pairs by each rule: its cost and excess, in points (times 100).

    Args:
        pairs: The pairs; rules look at their texts.
        cosines: The cosine of each pair, (n,).
    """
    sharing = shared_sentences(*pairs.sides)
    rows: list[PlainRow] = []
    for name, kinds in slices(*pairs.sides).items():
        for kind in sorted(set(kinds)):
            members = np.array([pair_kind == kind for pair_kind in kinds], dtype=np.float64)
            n_members = int(members.sum())
            # A kind of one pair, or of all pairs but one, has no interval.
            if 1 < n_members < pairs.n - 1:
                slice_costs = slice_cost(cosines, pairs.gold, members, sharing)
                points = {key: 100 * value for key, value in slice_costs._asdict().items()}
                rows.append({"slicing": name, "kind": kind, "n": n_members, **points})
    return rows


def _largest(values: Float64Array, k: int) -> list[int]:
    """Return the indices of the k values farthest from 0, the farthest first."""
    indices: list[int] = np.argsort(-np.abs(values), kind="stable")[:k].tolist()
    return indices


def _pair_row(pairs: PairSplit, row: int, numbers: PlainRow) -> PlainRow:
    """Return a row of a table of pairs: the gold score, further numbers, and both sentences."""
    texts = {"sentence1": pairs.sentences1[row], "sentence2": pairs.sentences2[row]}
    return {"gold": float(pairs.gold[row]), **numbers, **texts}
