"""Which pairs an encoder gets wrong, and how easily: ``errors`` and ``robustness``.

Spearman's correlation is 1 less half the mean of (u - v)², u and v being the standardised ranks of cosine and gold: each pair
costs its own part, and the parts add up to what the score lacks of 1. Plain rules say of what kind a pair is: overlap of words,
length, negation, numbers, names.

Under edits that should or should not change the meaning, similarities and scores move. Feature suppression, as SNCSE (Wang et al.
2022, arXiv 2201.05979) calls it: encoders tell likeness of words from likeness of meaning badly, so that a sentence lies nearer to
its own negation than to its paraphrase. One number says how often.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

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
from stsbench.evaluators.base import NonNegativeInt, PositiveInt
from stsbench.numbers.statistics import (
    Float64Array,
    ItemDependence,
    centred_ranks,
    read_dependence,
    sentence_columns,
    share_interval,
    standard_error,
    weigh_subsets,
    weighted_rank_sums,
)
from stsbench.plots.draw import DotPoint, draw_dots
from stsbench.significance.paired import EstimatedDifference, PairedCorrelation, ScoreSample

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
NEGATIONS = frozenset("no not never none nobody nothing neither nor nowhere cannot without".split())
NUMBERS = dict(
    zip(
        "zero one two three four five six seven eight nine ten".split(),
        map(str, range(11)),
        strict=True,
    )
)


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


def numbers_in(sentence: str) -> set[str]:
    """The numbers of a sentence, in digits, small ones in words too."""
    found = re.findall(r"\d+(?:[.,]\d+)*", sentence)
    return {one.replace(",", "") for one in found} | {
        NUMBERS[word] for word in words_of(sentence) if word in NUMBERS
    }


def names_in(sentence: str) -> set[str]:
    """Words that begin with a capital and do not begin the sentence; none of a sentence that is all in capitals."""
    words = WORD.findall(sentence)
    return (
        set()
        if sentence.isupper()
        else {word.lower() for word in words[1:] if word[0].isupper() and word != "I"}
    )


def _alike(found: Callable[[str], set[str]]) -> Callable[[str, str], str]:
    def kind(first: str, second: str) -> str:
        a, b = found(first), found(second)
        return "none" if not a | b else "same" if a == b else "different"

    return kind


SLICINGS: Mapping[str, Callable[[str, str], str]] = {
    "overlap": overlap,
    "length": length,
    "negation": lambda first, second: ("neither", "one", "both")[
        is_negated(first) + is_negated(second)
    ],
    "numbers": _alike(numbers_in),
    "names": _alike(names_in),
}
"""What each pair is by each rule; each rule parts the pairs."""


def slices(first: Sequence[str], second: Sequence[str]) -> dict[str, list[str]]:
    """Of each rule what each pair is, (n,)."""
    pairs = list(zip(first, second, strict=True))
    return {name: [rule(a, b) for a, b in pairs] for name, rule in SLICINGS.items()}


class SliceCost(NamedTuple):
    """What the pairs of one kind cost of a correlation, and how much more each costs than the mean pair; with 95% intervals."""

    cost: float
    cost_low: float
    cost_high: float
    excess: float
    excess_low: float
    excess_high: float


def pair_costs(cosines: Float64Array, gold: Float64Array) -> Float64Array:
    """Return what each pair costs of Spearman's correlation, (n,); their mean is 1 less the correlation. Both are (n,)."""
    u, v = _standard_ranks(cosines), _standard_ranks(gold)
    return (u - v) ** 2 / 2


def _standard_ranks(x: Float64Array) -> Float64Array:
    ranks = centred_ranks(x)
    return ranks / ranks.std()  # type: ignore[no-any-return]


def slice_cost(
    cosines: Float64Array,
    gold: Float64Array,
    members: Float64Array,
    sharing: ItemDependence | None = None,
) -> SliceCost:
    """Return what some pairs cost of Spearman's correlation: those of which ``members`` is 1 and not 0, (n,); both occur.

    ``cosines`` and ``gold`` are of each pair, (n,); without ``sharing`` no pairs share sentences. The intervals are Student's, by the influence of each pair: its own cost, and what it does to the ranks of all others.
    """
    n, share = len(gold), float(members.mean())
    costs = pair_costs(cosines, gold)
    inside, overall = float((members * costs).mean()), float(costs.mean())
    of_inside = members * costs - inside + _through_ranks(cosines, gold, members)
    of_overall = costs - overall + _through_ranks(cosines, gold, np.ones(n))
    of_excess = (of_inside - (members - share) * inside / share) / share - of_overall
    excess = inside / share - overall
    sharing = sharing or ItemDependence.without_shared(n)
    return SliceCost(
        inside,
        *_interval(inside, of_inside, sharing),
        excess,
        *_interval(excess, of_excess, sharing),
    )


def _through_ranks(x: Float64Array, y: Float64Array, members: Float64Array) -> Float64Array:
    """How much each pair moves the cost of the members by moving the ranks of pairs above it."""
    gap = members * (_standard_ranks(x) - _standard_ranks(y))
    ranks = ((one, centred_ranks(one)) for one in (x, y))
    of_x, of_y = (
        (weighted_rank_sums(one, gap) - (gap * (rank + 0.5)).mean()) / rank.std()
        for one, rank in ranks
    )
    return of_x - of_y  # type: ignore[no-any-return]


def _sharing(first: Sequence[str], second: Sequence[str]) -> ItemDependence:
    return read_dependence(sentence_columns(first, second), len(first))


def _interval(
    value: float, influence: Float64Array, sharing: ItemDependence
) -> tuple[float, float]:
    n = len(influence)
    return EstimatedDifference(
        value, *standard_error(influence / n, sharing, np.full(n, 1 / n))
    ).interval()


@dataclass(frozen=True)
class Mistakes(EncoderAnalysis):
    """The ``k`` pairs that are ranked most wrongly, and kinds of pairs."""

    about = (
        "pairs ranked most wrongly, and what each kind of pair costs in points, with 95% intervals"
    )
    printed = ("slices", "worst", "differ")

    k: PositiveInt = 5

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder."""
        split, cosines = subject.pairs(), subject.cosines
        error = centred_ranks(cosines) - centred_ranks(split.gold)
        sharing = _sharing(*split.sides)
        rows = []
        for name, kinds in slices(*split.sides).items():
            for kind in sorted(set(kinds)):
                members = np.array([one == kind for one in kinds], dtype=np.float64)
                if 1 < members.sum() < split.n - 1:
                    found = slice_cost(cosines, split.gold, members, sharing)
                    costs = {key: 100 * value for key, value in found._asdict().items()}
                    rows.append({"slicing": name, "kind": kind, "n": int(members.sum()), **costs})
        order = np.argsort(-np.abs(error), kind="stable")[: self.k]
        worst = [
            _pair_row(split, int(at), {"cosine": float(cosines[at]), "error": float(error[at])})
            for at in order
        ]
        return EncoderFindings({"slices": rows, "worst": worst}, (split, cosines, error))

    def compare_encoders(self, kept: Mapping[str, Any]) -> Tables:
        """The pairs that two encoders rank most differently."""
        rows: list[PlainRow] = []
        for (first, (split, a, left)), (second, (_, b, right)) in combinations(kept.items(), 2):
            for at in np.argsort(-np.abs(left - right), kind="stable")[: self.k]:
                cosines = {"cosine": float(a[at]), "other_cosine": float(b[at])}
                rows.append(
                    {"encoder": first, "other": second, **_pair_row(split, int(at), cosines)}
                )
        return {"differ": rows}

    def draw(self, tables: Tables, title: str) -> Chart:
        """How many points each kind costs more a pair than the mean pair does."""
        dots, numbers = [], ("excess", "excess_low", "excess_high")
        for row in tables["slices"]:
            kind = f"{row['slicing']}: {row['kind']}"
            dots.append(DotPoint.difference(kind, row["encoder"], *(row[key] for key in numbers)))
        what = "points that a pair costs more than the mean pair, with 95% interval; ○ it may be 0"
        return draw_dots(dots, x_label=what, title=title, has_zero_line=True)


def _pair_row(split: PairSplit, at: int, numbers: PlainRow) -> PlainRow:
    texts = {"sentence1": split.sentences1[at], "sentence2": split.sentences2[at]}
    return {"gold": float(split.gold[at]), **numbers, **texts}


AUXILIARIES = frozenset(
    "is are was were am be can could will would shall should may might must do does did has have had".split()
)
SIGNS = str.maketrans("", "", string.punctuation)
NOT = re.compile(r"\b(?:not|never)\s+|n['’]t\b", re.IGNORECASE)


def typo(sentence: str, rng: np.random.Generator) -> str:
    """Two letters that stand beside each other changed places, inside one word of four letters or more."""
    words = sentence.split(" ")
    long = [at for at, word in enumerate(words) if len(word) > 3 and len(set(word[1:-1])) > 1]
    if not long:
        return sentence
    at = int(rng.choice(long))
    word = words[at]
    places = [place for place in range(1, len(word) - 2) if word[place] != word[place + 1]] or [0]
    place = int(rng.choice(places))
    words[at] = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
    return " ".join(words)


def negate(sentence: str, rng: np.random.Generator) -> str:
    """With ``not`` after the first auxiliary verb; without it where it stands there; else what it says is called untrue."""
    if NOT.search(sentence):
        return NOT.sub("", sentence, count=1)
    words = sentence.split()
    at = next((place for place, word in enumerate(words) if word.lower() in AUXILIARIES), None)
    if at is None:
        return f"It is not true that {sentence[:1].lower()}{sentence[1:]}"
    return " ".join([*words[: at + 1], "not", *words[at + 1 :]])


class Edit(NamedTuple):
    """A change of a sentence, and whether it changes what the sentence means."""

    make: Callable[[str, np.random.Generator], str]
    matters: bool


EDITS: Mapping[str, Edit] = {
    "lower case": Edit(lambda sentence, rng: sentence.lower(), matters=False),
    "upper case": Edit(lambda sentence, rng: sentence.upper(), matters=False),
    # A sentence of nothing but punctuation stays.
    "no punctuation": Edit(
        lambda sentence, rng: " ".join(sentence.translate(SIGNS).split()) or sentence, matters=False
    ),
    "typo": Edit(typo, matters=False),
    "word order": Edit(
        lambda sentence, rng: " ".join(rng.permutation(sentence.split())), matters=True
    ),
    "negation": Edit(negate, matters=True),
}
"""All edits by their names."""


def edited(edit: str, sentence: str, seed: int) -> str:
    """The sentence after the edit of this name; chance is drawn by the seed and the sentence alone."""
    return EDITS[edit].make(
        sentence, np.random.default_rng([seed, crc32(sentence.encode("utf-8", "surrogatepass"))])
    )


def score_change(
    before: Float64Array, after: Float64Array, split: PairSplit
) -> EstimatedDifference:
    """Return by how much Spearman's correlation with gold differs, after minus before: cosines of pairs by seed, (s, n)."""
    parts = weigh_subsets(split.subset, "all")
    both = PairedCorrelation(
        values=[before, after], gold=split.gold, subset_weights=parts, metric="spearman"
    )
    first, second = (
        ScoreSample(both.scores(at), both.influences(at), tuple(range(len(both.values[at]))))
        for at in (0, 1)
    )
    return EstimatedDifference.estimate(first, second, _sharing(*split.sides), both.weights)


def suppression(to_negation: Float64Array, to_paraphrase: Float64Array) -> float:
    """Return the share of sentences that lie no farther from their negation than from their paraphrase.

    Both are cosines of the same sentences, (n,); 0: the encoder tells negation, 1: it never does.
    """
    return float((to_negation >= to_paraphrase).mean())


@dataclass(frozen=True)
class Robustness(EncoderAnalysis):
    """Similarities of sentences to their edited selves, and the score when every sentence is edited.

    Pairs ``above`` a gold score are paraphrases; the seed draws typos and word order.
    """

    about = "how far similarities and scores move under edits that should (*) or should not matter"
    printed = ("edits", "suppression")

    above: float = 4.0
    seed: NonNegativeInt = 0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder; a score is Spearman's correlation of all pairs."""
        split = subject.pairs()
        texts = list(dict.fromkeys(split.texts()))
        rows, changed = [], {}
        for name in EDITS:
            changed = {text: edited(name, text, self.seed) for text in texts}
            moved = [text for text in texts if changed[text] != text]
            own = subject.cosines_of(moved, [changed[text] for text in moved])
            after = subject.cosines_of(*([changed[text] for text in side] for side in split.sides))
            found = score_change(subject.cosines[None], after[None], split)
            matters, cosine = EDITS[name].matters, float(own.mean()) if len(own) else float("nan")
            row = {
                "edit": name + (" *" if matters else ""),
                "matters": matters,
                "changed": len(moved),
                "cosine": cosine,
            }
            ends = dict(zip(("low", "high"), found.interval(), strict=True))
            rows.append({**row, "score_change": found.difference, **ends})
        return EncoderFindings({"edits": rows, "suppression": [self._suppression(subject, split)]})

    def _suppression(self, subject: EncoderOnTask, split: PairSplit) -> dict[str, float]:
        first, second = (
            [side[at] for at in subject.positives(split, self.above)] for side in split.sides
        )
        pairs = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
        if not pairs:
            raise DataError(
                f"both sentences of each positive of {subject.task.name} are the same; --set above=…"
            )
        first, second = map(list, zip(*pairs, strict=True))
        negated = [edited("negation", text, self.seed) for text in first]
        to_negation, to_paraphrase = (
            subject.cosines_of(first, negated),
            subject.cosines_of(first, second),
        )
        nearer = (to_negation >= to_paraphrase).astype(np.float64)
        low, high = share_interval(nearer, _sharing(first, second))
        return {
            "suppression": suppression(to_negation, to_paraphrase),
            "low": low,
            "high": high,
            "to_negation": float(to_negation.mean()),
            "to_paraphrase": float(to_paraphrase.mean()),
            "n": len(first),
        }

    def draw(self, tables: Tables, title: str) -> Chart:
        """The change of the score by each edit."""
        dots = [
            DotPoint.difference(
                row["edit"],
                row["encoder"],
                *(100 * row[key] for key in ("score_change", "low", "high")),
            )
            for row in tables["edits"]
        ]
        what = "change of the score × 100, with its 95% interval; ○ it may be 0; * the edit changes what is said"
        return draw_dots(dots, x_label=what, title=title, has_zero_line=True)
