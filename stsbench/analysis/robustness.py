"""``robustness``: how far similarities and scores move under edits that should or should not matter.

Feature suppression, as SNCSE (Wang et al. 2022, arXiv 2201.05979) calls it: encoders tell likeness of words from likeness of meaning
badly, so that a sentence lies nearer to its own negation than to its paraphrase. One number says how often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from stsbench.analysis.edits import EDITS, edited
from stsbench.analysis.paired import score_change
from stsbench.analysis.seams import EncoderAnalysis, Measurement, Subject, Tables, check_least
from stsbench.data.splits import PairSplit
from stsbench.errors import DataError
from stsbench.numbers.arrays import Float64Array
from stsbench.numbers.intervals import share_interval, sharing_from
from stsbench.numbers.sharing import sentence_columns

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


def suppression(to_negation: Float64Array, to_paraphrase: Float64Array) -> float:
    """Return the share of sentences that lie no farther from their negation than from their paraphrase.

    Both are cosines of the same sentences, (n,); 0: the encoder tells negation, 1: it never does.
    """
    return float((to_negation >= to_paraphrase).mean())


class Robustness(EncoderAnalysis):
    """Similarities of sentences to their edited selves, and the score when every sentence is edited."""

    about = "how far similarities and scores move under edits that should (*) or should not matter"
    printed = ("edits", "suppression")

    def __init__(self, above: float = 4.0, seed: int = 0) -> None:
        """Say which pairs are paraphrases.

        Args:
            above: pairs are paraphrases above this gold score.
            seed: what typos and word order are drawn by.
        """
        check_least("seed", seed, 0)
        self.above, self.seed = above, seed

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
        from stsbench.plots.dots import Dot, draw_dots

        dots = [
            Dot.difference(row["edit"], row["encoder"], *(100 * row[key] for key in ("score_change", "low", "high")))
            for row in tables["edits"]
        ]
        what = "change of the score × 100, with its 95% interval; ○ it may be 0; * the edit changes what is said"
        return draw_dots(dots, axis=what, title=title, zero=True)
