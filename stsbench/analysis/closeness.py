"""``alignment``: how close positives lie and how evenly sentences spread (Wang and Isola 2020; SimCSE, figures 2 and 3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stsbench.analysis.seams import EncoderAnalysis, Measurement, PlainRow, Subject, Tables, check_least
from stsbench.encoders.seams import ROWS
from stsbench.numbers.closeness import alignment, uniformity

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart

MOST = 20_000
"""Uniformity compares each two of so many sentences, evenly taken of more."""


class Closeness(EncoderAnalysis):
    """Alignment of pairs above a gold score, uniformity of all sentences, both over all splits, and the task's score."""

    about = "alignment and uniformity, by encoder and over a training run (SimCSE figures 2 and 3)"
    printed = ("encoders",)

    def __init__(self, above: float = 4.0, t: float = 2.0) -> None:
        """Say what positives are.

        Args:
            above: pairs are positives above this gold score.
            t: how sharply uniformity counts what is near.
        """
        check_least("t", t, 0)
        self.above, self.t = above, t

    def measure(self, subject: Subject) -> Measurement:
        """Measure one encoder; of a trained one also its validations, on the split it was chosen by."""
        pairs = subject.pairs(everywhere=True)
        close = subject.positives(pairs, self.above)
        texts = list(dict.fromkeys(pairs.texts()))
        texts = texts[:: -(-len(texts) // MOST)]
        first, second = ([side[at] for at in close] for side in pairs.sides)
        row: PlainRow = {
            "alignment": _alignment(subject, first, second),
            "uniformity": uniformity(subject.array(texts), self.t),
            "score": subject.score().score,
            "positives": len(close),
            "sentences": len(texts),
        }
        return Measurement({"encoders": [row], "training": list(_validations(subject))})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Encoders coloured by score, and in a panel of its own each training run on its way."""
        from stsbench.plots.spots import Spot, draw_spots

        spots = [
            Spot(row["uniformity"], row["alignment"], "", 100 * row["score"], row["encoder"])
            for row in tables["encoders"]
        ]
        for row in tables["training"]:
            panel = f"{row['encoder']}, validations"
            spots.append(Spot(row["uniformity"], row["alignment"], panel, 100 * row["score"], joined=panel))
        return draw_spots(
            spots, across="uniformity (lower: more even)", up="alignment (lower: closer)", values="score × 100", title=title,
            same_scale=False,
        )  # fmt: skip


def _alignment(subject: Subject, first: Sequence[str], second: Sequence[str]) -> float:
    """The alignment of pairs, so many at a time."""
    parts = [(first[at : at + ROWS], second[at : at + ROWS]) for at in range(0, len(first), ROWS)]
    return sum(len(a) * alignment(subject.array(a), subject.array(b)) for a, b in parts) / len(first)


def _validations(subject: Subject) -> Iterator[PlainRow]:
    """The validations of a trained encoder that tell both numbers."""
    run = subject.known.run
    for point in run.facts.get("curve", []) if run is not None else []:
        if {"alignment", "uniformity", "score", "step"} <= point.keys():
            yield {key: point[key] for key in ("step", "alignment", "uniformity", "score")}
