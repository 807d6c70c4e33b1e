"""What lies inside an encoder: ``layers`` and ``tokens``.

The score of each layer under each pooling, from one forward pass (SG, figure 1); word embeddings by the frequency of words
(BERT-flow, table 1), and scores without the most frequent tokens (ConSERT, figure 4).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.analysis.context import (
    EncoderAnalysis,
    EncoderFindings,
    EncoderOnTask,
    PlainRow,
    Tables,
)
from stsbench.core import settings
from stsbench.core.errors import DataError, EncoderError
from stsbench.encoders.base import Embed, Encoder, FloatArray, iter_blocks
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import EmbeddingStore
from stsbench.encoders.words.words import WordsEncoder, sum_vectors
from stsbench.evaluators.base import NonNegativeInt, PositiveInt
from stsbench.numbers.statistics import Float64Array, IntArray
from stsbench.plots.draw import HeatCell, LinePoint, draw_heat, draw_lines

if TYPE_CHECKING:
    from stsbench.encoders.transformer.encoder import TransformerEncoder
    from stsbench.plots.chart import Chart


@dataclass(frozen=True)
class Layers(EncoderAnalysis):
    """The score of any task, layer by layer; layer 0 is the word embeddings.

    ``poolings`` are names that take a layer, as ``cls`` in ``cls(3)``; the picture is ``lines``, or a map of ``heat``.
    """

    about = "score by layer and pooling, all from one forward pass (SG figure 1)"
    printed = ("layers",)

    poolings: Sequence[str] = ("cls", "mean", "max")
    picture: Literal["lines", "heat"] = "lines"

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
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
            rows.append(
                {"pooling": pooling, "layer": layer, "score": score, "low": low, "high": high}
            )
        return EncoderFindings({"layers": rows})

    def draw(self, tables: Tables, title: str) -> Chart:
        """A panel an encoder."""
        rows = tables["layers"]
        if self.picture == "heat":
            cells = [
                HeatCell(r["pooling"], f"{r['layer']}", 100 * r["score"], r["encoder"])
                for r in rows
            ]
            return draw_heat(
                cells,
                row_label="pooling",
                column_label="layer",
                value_label="score × 100",
                title=title,
            )
        points = [
            _point(r, r["pooling"], r["layer"], r["encoder"])
            for r in rows
            if not math.isnan(r["score"])
        ]
        return draw_lines(
            points, x_label="layer (0: word embeddings)", y_label="score × 100", title=title
        )


def _point(row: PlainRow, series: str, size: int, panel: str = "") -> LinePoint:
    return LinePoint(series, size, 100 * row["score"], (100 * row["low"], 100 * row["high"]), panel)


def transformer_of(subject: EncoderOnTask) -> TransformerEncoder:
    """The encoder of a subject, if it is a transformer whose layers can be had; raises EncoderError."""
    from stsbench.encoders.transformer.encoder import TransformerEncoder

    encoder: Encoder = subject.known.encoder
    if not isinstance(encoder, TransformerEncoder):
        raise EncoderError(
            f"encoder '{subject.name}' has no layers that can be pooled; give one of kind transformer"
        )
    return encoder


def layer_engines(
    subject: EncoderOnTask, base: TransformerEncoder, poolings: Sequence[str]
) -> dict[tuple[str, int], Engine]:
    """The engine of each pooling of each layer."""
    from stsbench.encoders.transformer.encoder import with_pooling
    from stsbench.encoders.transformer.pooling import Pooling

    depth = base.backbone.depth
    wanted = {
        # The last layer by the name that it has alone: its embeddings are stored under that.
        (name, layer): Pooling.parse(f"{name}({-1 if layer == depth else layer})")
        for name in poolings
        for layer in range(depth + 1)
    }
    return subject.filled(
        base, {key: with_pooling(base, pooling) for key, pooling in wanted.items()}
    )


EDGES = (0, 100, 500, 5000, 10000)
"""The bands of ranks of BERT-flow's table 1."""
NEAR = (3, 5, 7)


class NearVectors(NamedTuple):
    """Of q vectors the distances to their k nearest others, and their k largest dot products; both (q, k), the nearest first."""

    distances: Float64Array
    products: Float64Array


def near_vectors(x: npt.NDArray[np.floating], at: IntArray, k: int) -> NearVectors:
    """Return how near the k nearest rows of x (n, d) are to its rows ``at`` (q,), themselves left out; n > k.

    Rows are taken as they are, of any length: BERT-flow, section 3.2.
    """
    queries = x[at].astype(np.float64)
    squares = (queries**2).sum(axis=1)
    distance, product = np.full((len(at), k), np.inf), np.full((len(at), k), -np.inf)
    start = 0
    for block in iter_blocks(x):
        rows = block.astype(np.float64)
        dots = queries @ rows.T
        apart = np.sqrt(np.maximum(squares[:, None] + (rows**2).sum(axis=1) - 2 * dots, 0.0))
        itself = at[:, None] == np.arange(start, start + len(rows))
        apart[itself], dots[itself] = np.inf, -np.inf
        distance = np.partition(np.concatenate([distance, apart], axis=1), k - 1, axis=1)[:, :k]
        product = -np.partition(np.concatenate([-product, -dots], axis=1), k - 1, axis=1)[:, :k]
        start += len(rows)
    return NearVectors(np.sort(distance, axis=1), -np.sort(-product, axis=1))


def read_counts(name: str) -> list[str]:
    """The words of a file of words and their counts, the most frequent first; raises DataError where there is none."""
    folder = settings.vectors_folder()
    path = next(
        (one for one in (Path(name), *([folder / name] if folder else [])) if one.is_file()), None
    )
    if path is None:
        raise DataError(
            f"no file of words and counts '{name}', here or in STSBENCH_VECTORS; --set counts=FILE"
        )
    counts: Counter[str] = Counter()
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            word, _, count = line.rstrip("\n").rpartition(" ")
            if not word or not count.isdecimal():
                raise DataError(f"{path}, line {number}: is not a word, a space and a count")
            counts[word] += int(count)
    return [word for word, _ in counts.most_common()]


@dataclass(frozen=True)
class TokenFrequency(EncoderAnalysis):
    """Word embeddings by rank of frequency, and the score without the most frequent tokens of the task.

    ``counts`` is a file of words and their counts, a path or a name in ``STSBENCH_VECTORS``; ``removed`` how many of the most
    frequent tokens are left out of the mean; of ``sample`` words of a band, drawn by ``seed``, neighbours are looked for.
    """

    about = "word embeddings by frequency (BERT-flow table 1), the score without the most frequent (ConSERT figure 4)"
    printed = ("bands", "removal")

    counts: str = "enwiki_vocab_min200.txt"
    removed: Annotated[Sequence[NonNegativeInt], Meta(min_length=1)] = (
        0,
        1,
        2,
        4,
        8,
        16,
        32,
        64,
        128,
    )
    sample: PositiveInt = 1000
    seed: NonNegativeInt = 0
    picture: Literal["removal", "bands"] = "removal"

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Measure one encoder."""
        words, removed = read_counts(self.counts), sorted(set(self.removed))
        encoder = subject.known.encoder
        if isinstance(encoder, WordsEncoder):
            rows = encoder.vectors.find(words)
            x = encoder.vectors.take(rows[rows >= 0])
            places = np.where(rows >= 0, np.cumsum(rows >= 0) - 1, -1)
            removal = _without_words(subject, encoder, removed)
        else:
            x, places = _input_embeddings(subject, words)
            removal = _without_tokens(subject, removed)
        scores = ((k, subject.score(embed)) for k, embed in removal)
        scored = [
            {"removed": k, "score": s.score, "low": s.interval[0], "high": s.interval[1]}
            for k, s in scores
        ]
        return EncoderFindings({"bands": list(self._bands(x, places)), "removal": scored})

    def _bands(self, x: FloatArray, places: IntArray) -> Iterator[PlainRow]:
        """Each band of ranks; ``places`` are the rows of x by rank, -1 for a word without one."""
        rng = np.random.default_rng(self.seed)
        for low, high in pairwise(EDGES):
            mine = places[low:high][places[low:high] >= 0]
            if len(mine) < 1 or len(x) <= max(NEAR):
                continue
            drawn = np.sort(rng.permutation(mine)[: self.sample])
            row = {
                "from": low,
                "to": high,
                "words": len(mine),
                "norm": float(np.linalg.norm(x[mine], axis=1).mean()),
            }
            near = near_vectors(x, drawn, max(NEAR))
            distances = {f"distance_{k}": float(near.distances[:, :k].mean()) for k in NEAR}
            yield {
                **row,
                **distances,
                **{f"product_{k}": float(near.products[:, :k].mean()) for k in NEAR},
            }

    def draw(self, tables: Tables, title: str) -> Chart:
        """Scores by how many tokens are left out, or the bands."""
        if self.picture == "bands":
            return _drawn_bands(tables["bands"], title)
        points = [_point(row, row["encoder"], row["removed"]) for row in tables["removal"]]
        what = "most frequent tokens that are left out of the mean"
        return draw_lines(
            points, x_label=what, y_label="score × 100", title=title, x_scale="log2p1"
        )


def _input_embeddings(subject: EncoderOnTask, words: Sequence[str]) -> tuple[FloatArray, IntArray]:
    """The input word embeddings (v, h) of a transformer, and the row of each word, -1 where it is not one token."""
    backbone = transformer_of(subject).backbone
    x: FloatArray = backbone.model.get_input_embeddings().weight.detach().float().cpu().numpy()
    # As inside a sentence: of some tokenizers a space belongs to the word behind it.
    texts = [f" {word}" for word in words[: EDGES[-1]]]
    ids = backbone.tokenizer(texts, add_special_tokens=False)["input_ids"]
    return x, np.array([one[0] if len(one) == 1 else -1 for one in ids], dtype=np.int64)


def _without_tokens(subject: EncoderOnTask, removed: Sequence[int]) -> list[tuple[int, Embed]]:
    """What embeds with so many token types left out of a transformer's mean; all from one forward pass."""
    from stsbench.encoders.transformer.pooling import MeanPooling
    from stsbench.encoders.whitening import PartialMeanEncoder, frequent_tokens

    base = transformer_of(subject)
    if not isinstance(base.pooling, MeanPooling):
        raise EncoderError(
            f"'{subject.name}' takes no mean over tokens; give it as '{subject.name}+pooling=mean'"
        )
    frequent = frequent_tokens(base.tokenize(subject.task.texts()), max(removed))
    made = {k: PartialMeanEncoder(base, frequent[:k], name=subject.name) for k in removed if k}
    engines = subject.filled(base, made)
    return [*([(0, subject.embed)] if 0 in removed else []), *engines.items()]


@dataclass
class _TokenRemovedEncoder:
    base: WordsEncoder
    gone: frozenset[int]
    name: str
    fingerprint: str | None = None

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        bags = [[row for row in bag if row not in self.gone] for bag in self.base.bags(sentences)]
        return sum_vectors(bags, self.base.take, mean=True)


def _without_words(
    subject: EncoderOnTask, encoder: WordsEncoder, removed: Sequence[int]
) -> list[tuple[int, Embed]]:
    counts = Counter(row for bag in encoder.bags(subject.task.texts()) for row in bag)
    frequent = [row for row, _ in counts.most_common(max(removed))]
    return [
        (
            k,
            Engine(
                _TokenRemovedEncoder(encoder, frozenset(frequent[:k]), encoder.name),
                EmbeddingStore(None),
            ),
        )
        for k in removed
    ]


def _drawn_bands(rows: Sequence[PlainRow], title: str) -> Chart:
    first = {row["encoder"]: row for row in reversed(rows)}
    columns = ["norm", *(f"distance_{k}" for k in NEAR)]
    cells = []
    for row, column in product(rows, columns):
        times = row[column] / first[row["encoder"]][column]
        cells.append(
            HeatCell(
                f"{row['from']} to {row['to']}", column.replace("_", " "), times, row["encoder"]
            )
        )
    return draw_heat(
        cells,
        row_label="rank",
        column_label="",
        value_label="times that of the most frequent",
        title=title,
        number_format=".2f",
    )
