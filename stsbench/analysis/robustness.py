"""How easily edits of sentences mislead an encoder: the analysis ``robustness``.

Under edits that should or should not change the meaning, similarities and scores move. Feature
suppression, as SNCSE (Wang et al. 2022, arXiv 2201.05979) calls it: encoders confuse similar words
with similar meaning, so that a sentence may be nearer to its own negation than to its paraphrase.
One number measures how often.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from stsbench.analysis.mistakes import shared_sentences
from stsbench.core.errors import DataError
from stsbench.data.splits import PairSplit
from stsbench.evaluators.base import NonNegativeInt
from stsbench.numbers.intervals import share_interval
from stsbench.numbers.statistics import Float64Array, weigh_subsets
from stsbench.plots.draw import DotPoint, draw_dots
from stsbench.significance.differences import EstimatedDifference, ScoreSample
from stsbench.significance.paired import PairedCorrelation

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


AUXILIARIES = frozenset(
    (
        "is are was were am be can could will would shall should may might must "
        "do does did has have had"
    ).split()
)
WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
POSITIVE_VERBS = {"cannot": "can", "can't": "can", "won't": "will", "shan't": "shall"}
"""Negated verbs that change more than by ``n't``."""
NEGATION_PATTERN = re.compile(
    r"\b(?:not|never)\s+|\s+(?:not|never)\b|\b(?:cannot|(?:ca|wo|sha)n['’]t)\b|n['’]t\b",
    re.IGNORECASE,
)


def typo(sentence: str, rng: np.random.Generator) -> str:
    """Return a sentence in which two neighbouring letters inside one word are swapped.

    The word has four letters or more. Its first and its last letter stay. The two letters differ,
    as a swap of equal letters changes nothing. A sentence without such a word is returned as it is.
    Spaces alone divide words, so that a comma or an apostrophe counts as a letter of its word.

    Args:
        sentence: The sentence.
        rng: Draws the word, then the letters.
    """
    words = sentence.split(" ")
    word_indices = [
        index for index, word in enumerate(words) if len(word) > 3 and len(set(word[1:-1])) > 1
    ]
    if not word_indices:
        return sentence
    word_index = int(rng.choice(word_indices))
    word = words[word_index]
    # Where a letter and the next one may be swapped.
    positions = [
        position for position in range(1, len(word) - 2) if word[position] != word[position + 1]
    ]
    position = int(rng.choice(positions))
    swapped_letters = word[position + 1] + word[position]
    words[word_index] = word[:position] + swapped_letters + word[position + 2 :]
    return " ".join(words)


def negate(sentence: str, rng: np.random.Generator) -> str:
    """Return the negation of a sentence.

    * From a sentence with ``not``, ``never`` or a word that ends in ``n't``, in any case, the first
      of these is removed; "can't" and "cannot" become "can", "won't" becomes "will".
    * Else ``not`` is added after the first auxiliary verb, such as "is" or "can".
    * A sentence without such a verb begins with "It is not true that".

    Args:
        sentence: The sentence.
        rng: Not used; all edits have this parameter.
    """
    negation = NEGATION_PATTERN.search(sentence)
    if negation is not None:
        positive_verb = POSITIVE_VERBS.get(negation[0].lower().replace("’", "'"), "")
        return f"{sentence[: negation.start()]}{positive_verb}{sentence[negation.end() :]}"
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
    changes_meaning: bool
    """Whether it changes the meaning of the sentence, so that an embedding should change."""


EDITS: Mapping[str, Edit] = {
    "lower case": Edit(_lower_case, changes_meaning=False),
    "upper case": Edit(_upper_case, changes_meaning=False),
    "no punctuation": Edit(_without_punctuation, changes_meaning=False),
    "typo": Edit(typo, changes_meaning=False),
    "word order": Edit(_shuffled, changes_meaning=True),
    "negation": Edit(negate, changes_meaning=True),
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

    A correlation is the mean over the seeds of a training; its error is over pairs and seeds.

    Args:
        before: The cosines of the n pairs for each seed, (seeds, n).
        after: Other cosines of the same pairs, (seeds, n); there may be more or fewer seeds.
        split: The pairs, with their gold scores.

    Returns:
        The difference with its standard error, from which it makes its 95% interval.
    """
    # Side 0 is before, side 1 is after. All pairs are correlated together, not by subset.
    correlations = PairedCorrelation(
        values=[before, after],
        gold=split.gold,
        subset_weights=weigh_subsets(split.subset, aggregation="all"),
        metric="spearman",
    )
    # A sample has the correlation of each seed, (seeds,), and how much each pair moves it, (seeds,
    # n). The two sides are paired by pairs of sentences, not by seeds; their means are subtracted.
    sample_before, sample_after = (
        ScoreSample(
            correlations.scores(side),
            correlations.influences(side),
            seeds=tuple(range(len(cosines_by_seed))),
        )
        for side, cosines_by_seed in enumerate([before, after])
    )
    sharing = shared_sentences(*split.sides)
    return EstimatedDifference.estimate(sample_before, sample_after, sharing, correlations.weights)


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
    score_columns = {"edits": ("score_change", "low", "high")}

    above: float = 4.0
    seed: NonNegativeInt = 0

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure how far edits of the sentences move their embeddings and the score.

        A score is Spearman's correlation of all pairs.

        Args:
            subject: The encoder, with the task.

        Returns:
            Two tables: ``edits`` has a row for each edit; ``suppression`` has one row, with the
            share of sentences that are as near to their negation as to their paraphrase.
        """
        split = subject.pairs()
        # EDITS has the name of an edit, for example "typo" -> the edit.
        edit_rows = [self._measure_edit(subject, split, edit) for edit in EDITS]
        suppression_row = self._measure_suppression(subject, split)
        return EncoderFindings({"edits": edit_rows, "suppression": [suppression_row]})

    def _measure_edit(self, subject: EncoderOnTask, split: PairSplit, edit: str) -> PlainRow:
        """Measure how far one edit of all sentences moves their cosines and the score.

        Args:
            subject: The encoder, with the task.
            split: The task's pairs.
            edit: The name of the edit, a key of ``EDITS``, for example ``typo``.

        Returns:
            A row. ``edit`` is the name, with an asterisk if the edit changes the meaning;
            ``matters`` says whether it does. ``changed`` is the number of sentences that the edit
            changes. ``cosine`` is the mean cosine of a changed sentence and its edited self, NaN if
            there are none. ``score_change``, ``low`` and ``high`` are the change of Spearman's
            correlation and its 95% interval, not times 100.
        """
        distinct_texts = dict.fromkeys(split.texts())
        edited_by_text = {text: edit_text(edit, text, self.seed) for text in distinct_texts}
        changed_texts = [text for text, edited in edited_by_text.items() if edited != text]
        cosines_to_edited = subject.cosines_of(
            changed_texts, [edited_by_text[text] for text in changed_texts]
        )
        first_edited, second_edited = (
            [edited_by_text[text] for text in side] for side in split.sides
        )
        cosines_after = subject.cosines_of(first_edited, second_edited)
        # [None] makes them the (1, n) cosines of a single seed.
        change = score_change(subject.cosines[None], cosines_after[None], split)
        low, high = change.interval()
        # Embeddings should change with the meaning: the table calls this "matters".
        matters = EDITS[edit].changes_meaning
        return {
            "edit": edit + (" *" if matters else ""),
            "matters": matters,
            "changed": len(changed_texts),
            "cosine": float(cosines_to_edited.mean()) if changed_texts else float("nan"),
            "score_change": change.difference,
            "low": low,
            "high": high,
        }

    def _measure_suppression(self, subject: EncoderOnTask, split: PairSplit) -> dict[str, float]:
        """Measure the share of sentences that are as near to their negation as to their paraphrase.

        Positives are the pairs with a gold score above ``self.above``: the second sentence is a
        paraphrase of the first one. Positives of two equal sentences are omitted: a paraphrase that
        is the sentence itself is always nearer than its negation.

        Args:
            subject: The encoder, with the task.
            split: The task's pairs.

        Returns:
            A row: the share ``suppression``, its 95% interval from ``low`` to ``high``, the mean
            cosines ``to_negation`` and ``to_paraphrase``, and the number of sentences ``n``.

        Raises:
            DataError: There are no such pairs.
        """
        indices = subject.positives(split, self.above)
        positives = [(split.sentences1[index], split.sentences2[index]) for index in indices]
        pairs = [
            (sentence, paraphrase) for sentence, paraphrase in positives if sentence != paraphrase
        ]
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
        # Which pairs share a sentence: they are not independent. The interval is Wilson's.
        dependence = shared_sentences(sentences, paraphrases)
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
        """Draw the change of each encoder's score by each edit, with its 95% interval.

        Args:
            tables: ``edits`` has a row for each edit and encoder: ``score_change``, and the bounds
                ``low`` and ``high`` of its interval. A dot is a ring if the interval contains 0.
                The name of an edit that changes the meaning has its asterisk already.
            title: The title of the picture.
        """
        dots = []
        for row in tables["edits"]:
            change_and_bounds = (100 * row[key] for key in ("score_change", "low", "high"))
            dots.append(DotPoint.difference(row["edit"], row["encoder"], *change_and_bounds))
        x_label = (
            "change of the score × 100, with its 95% interval; ○ it may be 0; "
            "* the edit changes what is said"
        )
        return draw_dots(dots, x_label=x_label, title=title, has_zero_line=True)
