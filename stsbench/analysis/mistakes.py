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
from stsbench.core.errors import DataError
from stsbench.data.splits import PairSplit
from stsbench.evaluators.base import PositiveInt
from stsbench.numbers.dependence import ItemDependence, read_dependence, sentence_columns
from stsbench.numbers.intervals import standard_error
from stsbench.numbers.statistics import Float64Array, centred_ranks, weighted_rank_sums
from stsbench.plots.draw import DotPoint, draw_dots
from stsbench.significance.differences import EstimatedDifference

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


WORD_PATTERN = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
NEGATIONS = frozenset("no not never none nobody nothing neither nor nowhere cannot without".split())
NUMBER_WORDS = "zero one two three four five six seven eight nine ten".split()
DIGITS_BY_WORD = {word: str(number) for number, word in enumerate(NUMBER_WORDS)}


def words_of(sentence: str) -> list[str]:
    """Return the words of a sentence, in lower case."""
    return WORD_PATTERN.findall(sentence.lower())


def overlap(first: str, second: str) -> str:
    """Classify how many words two sentences have in common: ``low``, ``middle`` or ``high``.

    The share is the number of words in both sentences over that of words in either one (Jaccard):
    low below 0.3, high from 0.6. Words are in lower case, and each counts once. Two sentences
    without words have a low overlap.

    Args:
        first: The first sentence.
        second: The second sentence.
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
    """Return the numbers of a sentence, in digits and without commas.

    Numbers up to ten may be written as words, in any case: "ten" and "10" are both ``10``.
    """
    digits = re.findall(r"\d+(?:[.,]\d+)*", sentence)
    numbers_in_digits = {number.replace(",", "") for number in digits}
    # DIGITS_BY_WORD has "zero" -> "0" to "ten" -> "10".
    words = words_of(sentence)
    numbers_in_words = {DIGITS_BY_WORD[word] for word in words if word in DIGITS_BY_WORD}
    return numbers_in_digits | numbers_in_words


def names_in(sentence: str) -> set[str]:
    """Return the likely names of a sentence, in lower case.

    They are the words that begin with a capital, without the first word of the sentence, "I", and
    words as "I'm".
    A word is letters and digits with at most one apostrophe inside, so a hyphen divides words.
    The set is empty for a sentence that is all in capitals.
    """
    if sentence.isupper():
        return set()
    words = WORD_PATTERN.findall(sentence)
    return {word.lower() for word in words[1:] if word[0].isupper() and not re.match(r"I\b", word)}


def _compare_sets(extract: Callable[[str], set[str]]) -> Callable[[str, str], str]:
    """Return a function that compares two sentences by the words that are extracted from each.

    It takes both sentences and returns ``same`` or ``different``, or ``none`` if nothing is
    extracted from either sentence.

    Args:
        extract: Return some words of a sentence, for example its numbers or its names.
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
    """Classify n pairs of sentences by each rule of ``SLICINGS``.

    A rule takes two sentences and returns the name of their kind, as ``length`` does with
    ``short``, ``middle`` and ``long``.

    Args:
        first: The first sentence of each pair.
        second: The second sentence of each pair.

    Returns:
        Name of a rule -> the kind of each of the n pairs, in order.
    """
    pairs = list(zip(first, second, strict=True))
    return {
        rule_name: [rule(sentence1, sentence2) for sentence1, sentence2 in pairs]
        for rule_name, rule in SLICINGS.items()
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
    """Return what each pair costs Spearman's correlation, (n,): the mean cost is 1 - correlation.

    The cost of a pair is half the squared difference of its two ranks, by cosine and by gold score,
    where ranks are scaled to mean 0 and standard deviation 1. Equal values share their mean rank.

    Args:
        cosines: The cosine of each pair, (n,).
        gold: The gold score of each pair, (n,).

    Raises:
        DataError: All cosines or all gold scores are equal.
    """
    # With ranks of mean 0 and deviation 1, the correlation is the mean of their product, and the
    # mean of half the squared gap is 1 less that.
    rank_gap = _standard_ranks(cosines) - _standard_ranks(gold)
    return rank_gap**2 / 2


def _standard_ranks(x: Float64Array) -> Float64Array:
    """Return the ranks of values, (n,), with mean 0 and deviation 1; ties share their mean rank.

    Raises:
        DataError: All values are equal.
    """
    ranks = centred_ranks(x)
    if not ranks.any():
        raise DataError("all pairs have the same cosine or gold score; no rank correlation exists")
    return ranks / ranks.std()  # type: ignore[no-any-return]


def slice_cost(
    cosines: Float64Array,
    gold: Float64Array,
    members: Float64Array,
    sharing: ItemDependence | None = None,
) -> SliceCost:
    """Return what some pairs, the members, cost Spearman's correlation, with 95% intervals.

    The mean cost of all pairs is what the correlation lacks of 1. The members' cost is their part
    of it; their excess is the mean cost of a member less that of all pairs.

    The intervals are by Student's distribution, from the influence of each pair: how much the pair
    moves the cost or the excess, by its own cost and by its effect on the ranks of all other pairs.

    Args:
        cosines: The cosine of each pair, (n,).
        gold: The gold score of each pair, (n,).
        members: 1 for the pairs whose cost is computed and 0 for the other ones, (n,); both occur.
        sharing: Which pairs share sentences; by default none do.

    Returns:
        The cost with the bounds of its interval, then the excess with the bounds of its interval.

    Raises:
        DataError: All cosines or all gold scores are equal.
    """
    n = len(gold)
    share = float(members.mean())
    costs = pair_costs(cosines, gold)
    cost = float((members * costs).mean())
    mean_cost = float(costs.mean())
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
    """Return how much each pair moves the members' cost by moving the ranks of other pairs, (n,).

    The cost of a member is gap² / 2, where the gap is its rank by x less its rank by y. If its
    ranks move a little, the cost moves by the gap times the move of the rank by x, less the gap
    times the move of the rank by y.

    Args:
        x: The cosine of each pair, (n,).
        y: The gold score of each pair, (n,).
        members: 1 for the pairs whose cost is computed and 0 for the other ones, (n,).
    """
    member_gaps = members * (_standard_ranks(x) - _standard_ranks(y))
    return _rank_influence(x, member_gaps) - _rank_influence(y, member_gaps)


def _rank_influence(values: Float64Array, factors: Float64Array) -> Float64Array:
    """Return how much each pair moves the mean of factor times rank, by moving other pairs' ranks.

    A pair raises the rank of each pair with a higher value, and half as much that of each pair with
    the same value. The mean over all pairs is subtracted, because the mean of influences is 0.

    Args:
        values: The values that are ranked, (n,); not all equal.
        factors: What the rank of each pair is multiplied by, (n,).

    Returns:
        The influence of each pair, (n,).
    """
    # From -1/2 to 1/2; plus 1/2 it is the share of pairs with a lower value.
    ranks = centred_ranks(values)
    mean_effect = (factors * (ranks + 0.5)).mean()
    # weighted_rank_sums() adds up, for each pair, the factors of all pairs with a higher value and
    # half of those with the same value, and divides the sum by n.
    effects = weighted_rank_sums(values, factors) - mean_effect
    # For ranks with standard deviation 1.
    return effects / ranks.std()  # type: ignore[no-any-return]


def shared_sentences(first: Sequence[str], second: Sequence[str]) -> ItemDependence:
    """Return which pairs share a sentence: their errors are not independent."""
    return read_dependence(sentence_columns(first, second), len(first))


def _interval(
    value: float, influence: Float64Array, sharing: ItemDependence
) -> tuple[float, float]:
    """Return the 95% interval of a mean over n pairs, by Student's distribution.

    Args:
        value: The mean.
        influence: n times how much each pair moves the mean, (n,).
        sharing: Which pairs share sentences: they vary together, which makes the interval wider.

    Returns:
        The lower and the upper bound.
    """
    n = len(influence)
    # Each pair has the same weight, 1/n, in the mean.
    error = standard_error(influence / n, sharing, np.full(n, 1 / n))
    # The error has the fields that follow the value there: its size, its degrees of freedom, ….
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
        """Find the pairs that one encoder ranks most wrongly, and what each kind of pairs costs.

        The error of a pair is its rank by cosine less its rank by gold score, where ranks are from
        -1/2 to 1/2.

        Args:
            subject: The encoder, with the task.

        Returns:
            The table ``slices``, with the cost of each kind of pairs, and ``worst``, with the
            gold score, the cosine, the error and the sentences of the ``self.k`` pairs whose error
            is farthest from 0, the farthest first. The measurement, for comparisons, is the pairs
            with the cosine and the error of each.
        """
        pairs = subject.pairs()
        cosines = subject.cosines
        errors = centred_ranks(cosines) - centred_ranks(pairs.gold)
        worst_rows = [
            _pair_row(
                pairs, index, {"cosine": float(cosines[index]), "error": float(errors[index])}
            )
            for index in _farthest_from_0(errors, self.k)
        ]
        return EncoderFindings(
            {"slices": _slice_rows(pairs, cosines), "worst": worst_rows},
            _RankErrors(pairs, cosines, errors),
        )

    def compare_encoders(self, measurements: Mapping[str, _RankErrors]) -> Tables:
        """Find the ``self.k`` pairs of sentences that each two encoders rank most differently.

        Args:
            measurements: Name of the encoder -> its cosine and its rank error of each pair, (n,)
                each. A rank error is the rank by cosine less the rank by gold score.

        Returns:
            The table ``differ``: the names of the two encoders, the cosine of each, the gold score
            and both sentences. A difference is that of the two rank errors, the farthest from 0
            first.
        """
        rows: list[PlainRow] = []
        for (first_name, first), (second_name, second) in combinations(measurements.items(), 2):
            names = {"encoder": first_name, "other": second_name}
            for index in _farthest_from_0(first.errors - second.errors, self.k):
                cosines = {
                    "cosine": float(first.cosines[index]),
                    "other_cosine": float(second.cosines[index]),
                }
                rows.append({**names, **_pair_row(first.pairs, index, cosines)})
        return {"differ": rows}

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw how many points the score would lose if all pairs cost as much as those of a kind.

        A point is 0.01 of Spearman's correlation.

        Args:
            tables: ``slices`` has a row for each kind of pairs and encoder: the rule (``slicing``),
                the ``kind``, and ``excess`` with the bounds of its 95%
                interval, all three in points already. A dot is a ring if its interval contains 0.
            title: The title of the picture.
        """
        dots = []
        for row in tables["slices"]:
            kind = f"{row['slicing']}: {row['kind']}"
            difference_and_bounds = (row["excess"], row["excess_low"], row["excess_high"])
            dots.append(DotPoint.difference(kind, row["encoder"], *difference_and_bounds))
        x_label = "points lost if all pairs cost as much, with 95% interval; ○ it may be 0"
        return draw_dots(dots, x_label=x_label, title=title, has_zero_line=True)


def _slice_rows(pairs: PairSplit, cosines: Float64Array) -> list[PlainRow]:
    """Return a row for each kind of pairs: what they cost Spearman's correlation, times 100.

    A rule puts each pair into one of its kinds, as the rule ``length`` does with ``short`` and
    ``long``. A row has the rule (``slicing``), the ``kind``, its number of pairs ``n``, its cost
    and its excess (how many points the score would lose if all pairs cost as much), each with the
    bounds of a 95% interval.

    Args:
        pairs: The pairs of sentences, with gold scores.
        cosines: The cosine of each pair, (n,).
    """
    sharing = shared_sentences(*pairs.sides)
    rows: list[PlainRow] = []
    for rule_name, kinds in slices(*pairs.sides).items():
        for kind in sorted(set(kinds)):
            # 1 for the pairs of this kind, else 0.
            members = np.array([pair_kind == kind for pair_kind in kinds], dtype=np.float64)
            n_members = int(members.sum())
            # A kind of one pair, or of all pairs but one, has no interval.
            if 1 < n_members < pairs.n - 1:
                # The fields are cost, excess, and the bounds of each, such as excess_low.
                costs = slice_cost(cosines, pairs.gold, members, sharing)
                points = {key: 100 * value for key, value in costs._asdict().items()}
                rows.append({"slicing": rule_name, "kind": kind, "n": n_members, **points})
    return rows


def _farthest_from_0(values: Float64Array, k: int) -> list[int]:
    """Return the indices of the k values farthest from 0, the farthest first."""
    indices: list[int] = np.argsort(-np.abs(values), kind="stable")[:k].tolist()
    return indices


def _pair_row(pairs: PairSplit, index: int, numbers: PlainRow) -> PlainRow:
    """Return a row of a table of pairs: the gold score, further numbers, and both sentences."""
    texts = {"sentence1": pairs.sentences1[index], "sentence2": pairs.sentences2[index]}
    return {"gold": float(pairs.gold[index]), **numbers, **texts}
