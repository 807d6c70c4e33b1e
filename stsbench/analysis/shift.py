"""``shift``: encoders trained on the target's own text against those trained on other text (SG, domain shift)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from stsbench.analysis.paired import score_change
from stsbench.analysis.seams import EncoderAnalysis, Measurement, Subject, Tables
from stsbench.errors import DataError
from stsbench.numbers.spread import spread
from stsbench.numbers.statistics import spearman

if TYPE_CHECKING:
    from stsbench.plots.chart import Chart


class Shift(EncoderAnalysis):
    """The first encoder's score, and what each other one's differs by; runs of several seeds are one encoder."""

    about = "what an encoder loses that was trained on other text than the first one (SG, domain shift)"
    printed = ("encoders",)

    def measure(self, subject: Subject) -> Measurement:
        """Keep the cosines of one encoder, and what it was trained on."""
        run = subject.known.run
        told = {
            "text": run.card.data.corpus if run is not None else None,
            "overlap": subject.known.overlap_with(subject.task.name),
        }
        return Measurement({}, (subject.known.name, told, subject.cosines, subject.pairs()))

    def across(self, kept: Mapping[str, Any]) -> Tables:
        """The differences from the first encoder, paired over the same items."""
        groups: dict[str, list[Any]] = {}
        for name, *rest in kept.values():
            groups.setdefault(name, []).append(rest)
        if len(groups) < 2:
            raise DataError("shift compares encoders: name that trained on the target's text, then others")
        split = next(iter(kept.values()))[3]
        cosines = {name: np.array([one[1] for one in mine]) for name, mine in groups.items()}
        first = next(iter(cosines))
        rows = []
        for name, mine in cosines.items():
            scores = spread([spearman(row, split.gold) for row in mine])
            change = score_change(cosines[first], mine, split) if name != first else None
            row = {"encoder": name, **groups[name][0][0], "seeds": len(mine), "score": scores.mean}
            told = dict(zip(("change", "low", "high"), change or (None,) * 3, strict=True))
            rows.append({**row, "deviation": scores.deviation, **told})
        return {"encoders": rows}

    def draw(self, tables: Tables, title: str) -> Chart:
        """The differences from the first encoder."""
        from stsbench.plots import drawn_name
        from stsbench.plots.dots import Dot, draw_dots

        first, *others = tables["encoders"]
        dots = [
            Dot.difference(
                row["encoder"] + (f", trained on {row['text']}" if row["text"] else ""),
                "",
                *(100 * row[key] for key in ("change", "low", "high")),
            )
            for row in others
        ]
        text = f", trained on {first['text']}," if first["text"] else ""
        what = f"score × 100 less that of {drawn_name(first['encoder'])}{text}\nwith its 95% interval; ○ it may be 0"
        return draw_dots(dots, axis=what, title=title, zero=True)
