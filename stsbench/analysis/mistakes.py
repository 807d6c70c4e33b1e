"""The pairs that an encoder gets wrong, and how easily: ``errors`` and ``robustness``.

Spearman's correlation is 1 less half the mean of (u - v)², u and v being the standardised ranks of
cosine and gold: each pair has a cost, and the mean cost is what the score lacks of 1. Plain rules
give the kind of a pair: overlap of words, length, negation, numbers, names.

Under edits that should or should not change the meaning, similarities and scores move. Feature
suppression, as SNCSE (Wang et al. 2022, arXiv 2201.05979) calls it: encoders confuse similar words
with similar meaning, so that a sentence may be nearer to its own negation than to its paraphrase.
One number measures how often.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from stsbench.analysis.context import (
    THRESHOLD_HINT,
    EncoderAnalysis,
    EncoderFindings,
    EncoderOnTask,
    PlainRow,
    Tables,
)
from stsbench.core.errors import DataError
from stsbench.data.splits import PairSplit
from stsbench.evaluators.base import NonNegativeInt, PositiveInt
from stsbench.numbers.intervals import (
    ItemDependence,
    read_dependence,
    sentence_columns,
    share_interval,
    standard_error,
)
from stsbench.numbers.statistics import (
    Float64Array,
    centred_ranks,
    weigh_subsets,
    weighted_rank_sums,
)
from stsbench.plots.draw import DotPoint, draw_dots
from stsbench.significance.differences import EstimatedDifference, ScoreSample
from stsbench.significance.paired import PairedCorrelation

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
    excess = cost / share - mean_cost
    # The influence of each pair on these three numbers.
    cost_influence = members * costs - cost + _influence_by_ranks(cosines, gold, members)
    mean_influence = costs - mean_cost + _influence_by_ranks(cosines, gold, np.ones(n))
    # The influence on a ratio is that on its numerator, less the ratio times that on its
    # denominator, over the denominator.
    share_influence = members - share
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
    """Return how much each pair moves the mean of gap times rank by moving other pairs' ranks.

    A pair raises the ranks of all pairs with a higher value, and by half those of the same value.
    The mean of this over all pairs is subtracted, for the mean of an influence is 0.

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


def _shared_sentences(first: Sequence[str], second: Sequence[str]) -> ItemDependence:
    """Return which pairs share a sentence: their errors are not independent."""
    return read_dependence(sentence_columns(first, second), len(first))


def _interval(
    value: float, influence: Float64Array, sharing: ItemDependence
) -> tuple[float, float]:
    """Return the 95% interval of a mean over pairs, by Student's distribution.

    Args:
        value: The mean.
        influence: How much each pair moves it, times n, (n,).
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
    sharing = _shared_sentences(*pairs.sides)
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


AUXILIARIES = frozenset(
    (
        "is are was were am be can could will would shall should may might must "
        "do does did has have had"
    ).split()
)
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
NEGATION_PATTERN = re.compile(r"\b(?:not|never)\s+|n['’]t\b", re.IGNORECASE)


def typo(sentence: str, rng: np.random.Generator) -> str:
    """Swap two neighbouring letters inside a word of four letters or more.

    The first and the last letter of a word stay. A sentence without such a word stays as it is.

    Args:
        sentence: The sentence.
        rng: Draws the word, then the letters.
    """
    words = sentence.split(" ")
    candidates = [
        # Two different letters inside: a swap of equal letters changes nothing.
        index
        for index, word in enumerate(words)
        if len(word) > 3 and len(set(word[1:-1])) > 1
    ]
    if not candidates:
        return sentence
    index = int(rng.choice(candidates))
    word = words[index]
    positions = [
        position for position in range(1, len(word) - 2) if word[position] != word[position + 1]
    ]
    position = int(rng.choice(positions))
    words[index] = word[:position] + word[position + 1] + word[position] + word[position + 2 :]
    return " ".join(words)


def negate(sentence: str, rng: np.random.Generator) -> str:
    """Negate a sentence.

    Its first ``not``, ``never`` or ``n't`` is removed. A sentence without one gets a ``not`` after
    its first auxiliary verb, or, without such a verb, the words "It is not true that" before it.

    Args:
        sentence: The sentence.
        rng: Not used; all edits have this parameter.
    """
    if NEGATION_PATTERN.search(sentence):
        return NEGATION_PATTERN.sub("", sentence, count=1)
    words = sentence.split()
    for index, word in enumerate(words):
        if word.lower() in AUXILIARIES:
            return " ".join([*words[: index + 1], "not", *words[index + 1 :]])
    return f"It is not true that {sentence[:1].lower()}{sentence[1:]}"


def _lower_case(sentence: str, rng: np.random.Generator) -> str:
    return sentence.lower()


def _upper_case(sentence: str, rng: np.random.Generator) -> str:
    return sentence.upper()


def _without_punctuation(sentence: str, rng: np.random.Generator) -> str:
    # A sentence of nothing but punctuation stays.
    return " ".join(sentence.translate(WITHOUT_PUNCTUATION).split()) or sentence


def _shuffled(sentence: str, rng: np.random.Generator) -> str:
    return " ".join(rng.permutation(sentence.split()))


class Edit(NamedTuple):
    """A change of a sentence."""

    make: Callable[[str, np.random.Generator], str]
    """Returns the changed sentence; the generator draws where it does so."""
    matters: bool
    """It changes the meaning of the sentence."""


EDITS: Mapping[str, Edit] = {
    "lower case": Edit(_lower_case, matters=False),
    "upper case": Edit(_upper_case, matters=False),
    "no punctuation": Edit(_without_punctuation, matters=False),
    "typo": Edit(typo, matters=False),
    "word order": Edit(_shuffled, matters=True),
    "negation": Edit(negate, matters=True),
}
"""All edits by their names."""


def edit_text(edit: str, sentence: str, seed: int) -> str:
    """Return a sentence after the edit of this name; draws depend on seed and sentence alone."""
    # Not hash(), which differs from run to run; a lone surrogate has no UTF-8 of its own.
    sentence_seed = crc32(sentence.encode("utf-8", "surrogatepass"))
    return EDITS[edit].make(sentence, np.random.default_rng([seed, sentence_seed]))


def score_change(
    before: Float64Array, after: Float64Array, split: PairSplit
) -> EstimatedDifference:
    """Return the difference of two Spearman correlations with gold scores, after minus before.

    Args:
        before: Cosines of the pairs by seed, (s, n).
        after: The cosines to compare with them, (s', n).
        split: The pairs.
    """
    correlations = PairedCorrelation(
        values=[before, after],
        gold=split.gold,
        subset_weights=weigh_subsets(split.subset, aggregation="all"),
        metric="spearman",
    )
    # Index 0 is before and 1 after; each row of their values is one seed.
    first, second = (
        ScoreSample(
            correlations.scores(index),
            correlations.influences(index),
            seeds=tuple(range(len(correlations.values[index]))),
        )
        for index in (0, 1)
    )
    sharing = _shared_sentences(*split.sides)
    return EstimatedDifference.estimate(first, second, sharing, correlations.weights)


def suppression(to_negation: Float64Array, to_paraphrase: Float64Array) -> float:
    """Return the share of sentences that are as near to their negation as to their paraphrase.

    A sentence that is nearer to its negation counts too. 0: the encoder always distinguishes the
    negation; 1: it never does.

    Args:
        to_negation: The cosine of each sentence and its negation, (n,).
        to_paraphrase: The cosine of each sentence and its paraphrase, (n,).
    """
    return float((to_negation >= to_paraphrase).mean())


@dataclass(frozen=True)
class Robustness(EncoderAnalysis):
    """Similarities of sentences to their edited selves, and the score when every one is edited.

    Pairs ``above`` a gold score are paraphrases; the seed draws typos and word order.
    """

    about = "how far similarities and scores move under edits that should (*) or should not matter"
    printed = ("edits", "suppression")

    above: float = 4.0
    seed: NonNegativeInt = 0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder; a score is Spearman's correlation of all pairs."""
        split = subject.pairs()
        edits = [self._measure_edit(subject, split, name) for name in EDITS]
        return EncoderFindings(
            {"edits": edits, "suppression": [self._measure_suppression(subject, split)]}
        )

    def _measure_edit(self, subject: EncoderOnTask, split: PairSplit, name: str) -> PlainRow:
        """Measure how far one edit of all sentences moves their cosines and the score.

        Args:
            subject: The encoder, on the task.
            split: The task's pairs.
            name: A key of EDITS.

        Returns:
            The row of the table ``edits``: ``cosine`` is the mean cosine of a sentence and its
            edited self, NaN if the edit changes no sentence; ``score_change``, ``low`` and ``high``
            are the change of Spearman's correlation and its 95% interval, not times 100.
        """
        texts = dict.fromkeys(split.texts())
        edited_text = {text: edit_text(name, text, self.seed) for text in texts}
        changed_texts = [text for text in texts if edited_text[text] != text]
        cosines_to_edited = subject.cosines_of(
            changed_texts, [edited_text[text] for text in changed_texts]
        )
        # Both sentences of each pair are edited, in their order.
        edited_sides = ([edited_text[text] for text in side] for side in split.sides)
        cosines_after = subject.cosines_of(*edited_sides)
        # [None] makes them the (1, n) cosines of a single seed.
        change = score_change(subject.cosines[None], cosines_after[None], split)
        low, high = change.interval()
        matters = EDITS[name].matters
        return {
            "edit": name + (" *" if matters else ""),
            "matters": matters,
            "changed": len(changed_texts),
            "cosine": float(cosines_to_edited.mean()) if changed_texts else float("nan"),
            "score_change": change.difference,
            "low": low,
            "high": high,
        }

    def _measure_suppression(self, subject: EncoderOnTask, split: PairSplit) -> dict[str, float]:
        """Measure the suppression of negations, with its 95% interval and the mean cosines.

        The sentences are the first ones of positive pairs. Pairs of equal sentences are omitted:
        a paraphrase that is the sentence itself is always nearer than its negation.

        Args:
            subject: The encoder, on the task.
            split: The task's pairs.

        Raises:
            DataError: There are no such pairs.
        """
        rows = subject.positives(split, self.above)
        pairs = [(split.sentences1[row], split.sentences2[row]) for row in rows]
        pairs = [(sentence, paraphrase) for sentence, paraphrase in pairs if sentence != paraphrase]
        if not pairs:
            raise DataError(
                f"both sentences of each positive of {subject.task.name} are the same",
                hint=THRESHOLD_HINT,
            )
        sentences, paraphrases = map(list, zip(*pairs, strict=True))
        negations = [edit_text("negation", sentence, self.seed) for sentence in sentences]
        to_negation = subject.cosines_of(sentences, negations)
        to_paraphrase = subject.cosines_of(sentences, paraphrases)
        is_suppressed = (to_negation >= to_paraphrase).astype(np.float64)
        dependence = _shared_sentences(sentences, paraphrases)
        low, high = share_interval(is_suppressed, dependence)
        return {
            "suppression": suppression(to_negation, to_paraphrase),
            "low": low,
            "high": high,
            "to_negation": float(to_negation.mean()),
            "to_paraphrase": float(to_paraphrase.mean()),
            "n": len(sentences),
        }

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw the change of the score by each edit.

        Args:
            tables: ``edits``, a row for each edit by encoder.
            title: The title of the picture.
        """
        dots = []
        for row in tables["edits"]:
            numbers = (100 * row[key] for key in ("score_change", "low", "high"))
            dots.append(DotPoint.difference(row["edit"], row["encoder"], *numbers))
        x_label = (
            "change of the score × 100, with its 95% interval; ○ it may be 0; "
            "* the edit changes what is said"
        )
        return draw_dots(dots, x_label=x_label, title=title, has_zero_line=True)
