"""``layers``: the score of each layer under each pooling (SG, figure 1), from one forward pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from stsbench.analysis.seams import EncoderAnalysis, Measurement, PlainRow, Subject, Tables
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.seams import Encoder
from stsbench.errors import EncoderError, choose

if TYPE_CHECKING:
    from stsbench.encoders.transformer.encoder import TransformerEncoder
    from stsbench.plots.chart import Chart

POOLINGS = ("cls", "mean", "max")


class Layers(EncoderAnalysis):
    """The score of any task, layer by layer; layer 0 is the word embeddings."""

    about = "score by layer and pooling, all from one forward pass (SG figure 1)"
    printed = ("layers",)

    def __init__(self, poolings: Sequence[str] = POOLINGS, picture: str = "lines") -> None:
        """Say what is pooled, and how it is drawn.

        Args:
            poolings: names that take a layer, as ``cls`` in ``cls(3)``.
            picture: ``lines``, or ``heat`` for a heat map.
        """
        self.poolings, self.picture = poolings, choose("picture of layers", picture, PICTURES)

    def measure(self, subject: Subject) -> Measurement:
        """Score each layer under each pooling of one encoder."""
        base = transformer_of(subject)
        engines = layer_engines(subject, base, self.poolings)
        rows = []
        for (pooling, layer), engine in engines.items():
            try:
                scores = subject.score(engine)
                score, (low, high) = scores.score, scores.interval
            except EncoderError:
                # The first token's word embedding is the same in every sentence: layer 0 has no correlation under cls.
                score = low = high = float("nan")
            rows.append({"pooling": pooling, "layer": layer, "score": score, "low": low, "high": high})
        return Measurement({"layers": rows})

    def draw(self, tables: Tables, title: str) -> Chart:
        """A panel an encoder."""
        return self.picture(tables["layers"], title)


def _lines(rows: Sequence[PlainRow], title: str) -> Chart:
    from stsbench.plots.lines import LinePoint, draw_lines

    points = [
        LinePoint(r["pooling"], r["layer"], 100 * r["score"], (100 * r["low"], 100 * r["high"]), r["encoder"])
        for r in rows
        if not math.isnan(r["score"])
    ]
    return draw_lines(points, sizes="layer (0: word embeddings)", values="score × 100", title=title)


def _heat(rows: Sequence[PlainRow], title: str) -> Chart:
    from stsbench.plots.heat import HeatCell, draw_heat

    cells = [HeatCell(r["pooling"], f"{r['layer']}", 100 * r["score"], r["encoder"]) for r in rows]
    return draw_heat(cells, rows="pooling", columns="layer", values="score × 100", title=title)


PICTURES: Mapping[str, Callable[[Sequence[PlainRow], str], Chart]] = {"lines": _lines, "heat": _heat}
"""How layers are drawn."""


def transformer_of(subject: Subject) -> TransformerEncoder:
    """The encoder of a subject, if it is a transformer whose layers can be had; raises EncoderError."""
    from stsbench.encoders.transformer.encoder import TransformerEncoder

    encoder: Encoder = subject.known.encoder
    if not isinstance(encoder, TransformerEncoder):
        raise EncoderError(f"encoder '{subject.name}' has no layers that can be pooled; give one of kind transformer")
    return encoder


def layer_engines(subject: Subject, base: TransformerEncoder, poolings: Sequence[str]) -> dict[tuple[str, int], Engine]:
    """The engine of each pooling of each layer, by both; what they lack of the task is embedded in one pass.

    Raises:
        CardError: a pooling takes no layer.
    """
    from stsbench.encoders.transformer.one_pass import fill, pooled_by, with_pooling
    from stsbench.encoders.transformer.pooling import Pooling

    depth = base.backbone.depth
    wanted = {
        # The last layer by the name that it has alone: its embeddings are stored under that.
        (name, layer): Pooling.parse(f"{name}({-1 if layer == depth else layer})")
        for name in poolings
        for layer in range(depth + 1)
    }
    engines = {key: subject.engine(with_pooling(base, pooling)) for key, pooling in wanted.items()}
    ways = [pooled_by(pooling) for pooling in wanted.values()]
    fill(base, ways, list(engines.values()), subject.task.texts(), progress=subject.progress)
    return engines
