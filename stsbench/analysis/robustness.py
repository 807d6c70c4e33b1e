"""``robustness``: how far similarities and scores move under edits that should or should not change the meaning.

Feature suppression, as SNCSE (Wang et al. 2022, arXiv 2201.05979) calls it: encoders tell likeness of words from likeness of meaning
badly, so that a sentence lies nearer to its own negation than to its paraphrase. One number says how often.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

import numpy as np

from stsbench.analysis.run import EncoderAnalysis, Measurement, Subject, Tables
from stsbench.core.errors import DataError
from stsbench.data.splits import PairSplit
from stsbench.evaluators.seams import FromZero
from stsbench.numbers.statistics import Float64Array, sentence_columns, share_interval, sharing_from, split_parts
from stsbench.plots.draw import Dot, draw_dots
from stsbench.significance.paired import Correlated, Sample, difference_of

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


AUXILIARIES = frozenset(
    "is are was were am be can could will would shall should may might must do does did has have had".split()
)
SIGNS = str.maketrans("", "", string.punctuation)
NOT = re.compile(r"\b(?:not|never)\s+|n['’]t\b", re.IGNORECASE)


class Edit(NamedTuple):
    """A change of a sentence, and whether it changes what the sentence means."""

    make: Callable[[str, np.random.Generator], str]
    matters: bool


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


EDITS: Mapping[str, Edit] = {
    "lower case": Edit(lambda sentence, rng: sentence.lower(), matters=False),
    "upper case": Edit(lambda sentence, rng: sentence.upper(), matters=False),
    # A sentence of nothing but punctuation stays.
    "no punctuation": Edit(
        lambda sentence, rng: " ".join(sentence.translate(SIGNS).split()) or sentence, matters=False
    ),
    "typo": Edit(typo, matters=False),
    "word order": Edit(lambda sentence, rng: " ".join(rng.permutation(sentence.split())), matters=True),
    "negation": Edit(negate, matters=True),
}
"""All edits by their names."""


def edited(edit: Edit, sentence: str, seed: int) -> str:
    """The edited sentence; chance is drawn by the seed and the sentence alone."""
    return edit.make(sentence, np.random.default_rng([seed, crc32(sentence.encode("utf-8", "surrogatepass"))]))


class Change(NamedTuple):
    """A difference of two correlations, and its 95% interval."""

    difference: float
    low: float
    high: float


def score_change(before: Float64Array, after: Float64Array, split: PairSplit) -> Change:
    """Return by how much Spearman's correlation with gold differs, after minus before: cosines of pairs by seed, (s, n)."""
    parts = split_parts(split.subset, "all")
    both = Correlated(values=[before, after], gold=split.gold, parts=parts, metric="spearman")
    first, second = (Sample(both.scores(at), both.shares(at), tuple(range(len(both.values[at])))) for at in (0, 1))
    sharing = sharing_from(sentence_columns(*split.sides), split.n)
    found = difference_of(first, second, sharing, both.weights)
    return Change(found.difference, *found.interval())


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
    seed: FromZero = 0

    def measure(self, subject: Subject) -> Measurement:
        """Measure one encoder; a score is Spearman's correlation of all pairs."""
        split = subject.pairs()
        texts = list(dict.fromkeys(split.texts()))
        rows, changed = [], {}
        for name, edit in EDITS.items():
            changed = {text: edited(edit, text, self.seed) for text in texts}
            moved = [text for text in texts if changed[text] != text]
            own = subject.cosines_of(moved, [changed[text] for text in moved])
            after = subject.cosines_of(*([changed[text] for text in side] for side in split.sides))
            found = score_change(subject.cosines[None], after[None], split)
            rows.append(
                {
                    "edit": name + (" *" if edit.matters else ""),
                    "matters": edit.matters,
                    "changed": len(moved),
                    "cosine": float(own.mean()) if len(own) else float("nan"),
                    "score_change": found.difference,
                    "low": found.low,
                    "high": found.high,
                }
            )
        return Measurement({"edits": rows, "suppression": [self._suppression(subject, split)]})

    def _suppression(self, subject: Subject, split: PairSplit) -> dict[str, float]:
        first, second = ([side[at] for at in subject.positives(split, self.above)] for side in split.sides)
        pairs = [(a, b) for a, b in zip(first, second, strict=True) if a != b]
        if not pairs:
            raise DataError(f"both sentences of each positive of {subject.task.name} are the same; --set above=…")
        first, second = map(list, zip(*pairs, strict=True))
        negated = [edited(EDITS["negation"], text, self.seed) for text in first]
        to_negation, to_paraphrase = subject.cosines_of(first, negated), subject.cosines_of(first, second)
        nearer = (to_negation >= to_paraphrase).astype(np.float64)
        low, high = share_interval(nearer, sharing_from(sentence_columns(first, second), len(first)))
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
            Dot.difference(row["edit"], row["encoder"], *(100 * row[key] for key in ("score_change", "low", "high")))
            for row in tables["edits"]
        ]
        what = "change of the score × 100, with its 95% interval; ○ it may be 0; * the edit changes what is said"
        return draw_dots(dots, axis=what, title=title, zero=True)
