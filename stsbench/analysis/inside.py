"""The inside of an encoder: ``layers`` and ``tokens``.

The score of each layer under each pooling, from one forward pass (SG, figure 1); word embeddings by
the frequency of words (BERT-flow, table 1), and scores without the most frequent tokens (ConSERT,
figure 4).
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
from stsbench.data.readers.text import read_lines
from stsbench.encoders.base import Embed, Encoder, FloatArray, iter_blocks
from stsbench.encoders.engine.embed import Engine
from stsbench.encoders.engine.store import EmbeddingStore
from stsbench.encoders.words.words import WordsEncoder, sum_vectors
from stsbench.evaluators.base import NonNegativeInt, PositiveInt
from stsbench.numbers.statistics import Float64Array, IntArray
from stsbench.plots.draw import LinePoint, draw_lines
from stsbench.plots.planes import HeatCell, draw_heat

if TYPE_CHECKING:
    from stsbench.encoders.transformer.encoder import TransformerEncoder
    from stsbench.plots.chart import Chart


@dataclass(frozen=True)
class Layers(EncoderAnalysis):
    """The score of any task, layer by layer; layer 0 is the word embeddings.

    ``poolings`` are names that accept a layer, as ``cls`` in ``cls(3)``; the picture is ``lines``,
    or a map of ``heat``.
    """

    about = "score by layer and pooling, all from one forward pass (SG figure 1)"
    printed = ("layers",)
    score_columns = {"layers": ("score", "low", "high")}

    poolings: Sequence[str] = ("cls", "mean", "max")
    picture: Literal["lines", "heat"] = "lines"

    def measure(self, subject: EncoderOnTask) -> EncoderFindings:
        """Score the task by each layer of one encoder, under each pooling.

        A pooling makes one embedding of a layer's vectors of all tokens; ``self.poolings`` are
        names of poolings.

        Args:
            subject: The encoder, a transformer, with the task.

        Returns:
            The table ``layers``, with one row for each pooling of each layer: ``pooling``,
            ``layer``, ``score``, and the bounds ``low`` and ``high`` of its 95% interval. All three
            numbers are NaN for a layer without a score.
        """
        transformer = transformer_of(subject)
        # An engine embeds sentences by one layer and pooling.
        engines = layer_engines(subject, transformer, self.poolings)
        rows = []
        for (pooling, layer), engine in engines.items():
            try:
                scores = subject.score(engine)
                score = scores.score
                low, high = scores.interval
            except EncoderError:
                # All cosines are equal, so there is no correlation: under cls in layer 0, where the
                # first token's word embedding is the same in every sentence.
                score = low = high = float("nan")
            rows.append(
                {"pooling": pooling, "layer": layer, "score": score, "low": low, "high": high}
            )
        return EncoderFindings({"layers": rows})

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw the score of each layer, in one panel per encoder.

        ``self.picture`` is ``heat`` for a map of poolings by layers, or ``lines`` for one line a
        pooling. The score of a layer without one is NaN: its cell is empty, and its line
        has no point.

        Args:
            tables: ``layers`` has a row for each pooling of each layer of each encoder.
            title: The title of the picture.
        """
        rows = tables["layers"]
        if self.picture == "heat":
            cells = [
                HeatCell(
                    row=row["pooling"],
                    column=f"{row['layer']}",
                    value=100 * row["score"],
                    panel=row["encoder"],
                )
                for row in rows
            ]
            return draw_heat(
                cells,
                row_label="pooling",
                column_label="layer",
                value_label="score × 100",
                title=title,
            )
        points = [
            _score_point(row, series=row["pooling"], x=row["layer"], panel=row["encoder"])
            for row in rows
            if not math.isnan(row["score"])
        ]
        return draw_lines(
            points, x_label="layer (0: word embeddings)", y_label="score × 100", title=title
        )


def _score_point(row: PlainRow, series: str, x: int, panel: str = "") -> LinePoint:
    """Return a point of a line in a picture: a score with its 95% interval, times 100.

    Args:
        row: Has ``score``, ``low`` and ``high``, from -1 to 1.
        series: The name of the line.
        x: The position on the horizontal axis: a layer, or a number of tokens.
        panel: The name of the panel; empty if the picture has only one.
    """
    return LinePoint(
        series,
        size=x,
        value=100 * row["score"],
        interval=(100 * row["low"], 100 * row["high"]),
        panel=panel,
    )


def transformer_of(subject: EncoderOnTask) -> TransformerEncoder:
    """Return the encoder of a subject if it is a transformer.

    Raises:
        EncoderError: The encoder is of another kind, without layers that can be pooled.
    """
    from stsbench.encoders.transformer.encoder import TransformerEncoder

    encoder: Encoder = subject.named_encoder.encoder
    if not isinstance(encoder, TransformerEncoder):
        raise EncoderError(
            f"encoder '{subject.name}' has no layers that can be pooled; "
            "give one of kind transformer"
        )
    return encoder


def layer_engines(
    subject: EncoderOnTask, base: TransformerEncoder, poolings: Sequence[str]
) -> dict[tuple[str, int], Engine]:
    """Embed the task's sentences by each layer of a transformer under each pooling.

    All of it takes one forward pass. Layer 0 is the word embeddings.

    Args:
        subject: Has the task.
        base: The subject's transformer; its last layer is number ``base.backbone.depth``.
        poolings: Names of poolings that accept a layer, as ``cls`` in ``cls(3)``.

    Returns:
        (name of the pooling, layer) -> its engine, a function from sentences to their embeddings,
        (n, d).
    """
    from stsbench.encoders.transformer.encoder import with_pooling
    from stsbench.encoders.transformer.pooling import Pooling

    depth = base.backbone.depth
    encoders = {}
    for name, layer in product(poolings, range(depth + 1)):
        # Embeddings of the last layer are stored under its other number, -1.
        layer_number = -1 if layer == depth else layer
        pooling = Pooling.parse(f"{name}({layer_number})")
        # A copy of the transformer with this pooling, which shares the loaded model.
        encoders[name, layer] = with_pooling(base, pooling)
    return subject.make_engines(base, encoders)


FREQUENCY_RANK_EDGES = (0, 100, 500, 5000, 10000)
"""The bands of ranks of BERT-flow's table 1."""
NEIGHBOUR_COUNTS = (3, 5, 7)
"""The numbers of nearest words over which distances are averaged."""


class NearVectors(NamedTuple):
    """The nearness of q vectors to the vectors around them; both are (q, k), the nearest first."""

    distances: Float64Array
    """The distances to the k nearest other vectors."""
    products: Float64Array
    """The k largest dot products with other vectors."""


def near_vectors(x: npt.NDArray[np.floating], rows: IntArray, k: int) -> NearVectors:
    """Measure how near some rows of x are to the k rows nearest to them, themselves excluded.

    Rows are used unchanged, of any length: BERT-flow, section 3.2.

    Args:
        x: Vectors, (n, d).
        rows: Indices of q rows of x, (q,).
        k: The number of nearest rows, less than n.

    Returns:
        The distances to the k nearest other rows, and the k largest dot products with other rows,
        (q, k) each, the nearest first.
    """
    queries = x[rows].astype(np.float64)
    squared_norms = (queries**2).sum(axis=1)
    nearest_distances = np.full((len(rows), k), np.inf)
    largest_products = np.full((len(rows), k), -np.inf)
    # The index in x of the block's first row; x may be a file, which is read block by block.
    start = 0
    for block in iter_blocks(x):
        vectors = block.astype(np.float64)
        products = queries @ vectors.T
        squared_distances = squared_norms[:, None] + (vectors**2).sum(axis=1) - 2 * products
        distances = np.sqrt(np.maximum(squared_distances, 0.0))
        is_itself = rows[:, None] == np.arange(start, start + len(vectors))
        distances[is_itself] = np.inf
        products[is_itself] = -np.inf
        # The k nearest so far and those of this block, in any order until the end; the largest
        # products are the smallest with the opposite sign.
        distances = np.concatenate([nearest_distances, distances], axis=1)
        nearest_distances = _k_smallest(distances, k)
        negative_products = np.concatenate([-largest_products, -products], axis=1)
        largest_products = -_k_smallest(negative_products, k)
        start += len(vectors)
    return NearVectors(np.sort(nearest_distances, axis=1), -np.sort(-largest_products, axis=1))


def _k_smallest(values: Float64Array, k: int) -> Float64Array:
    """Return the k smallest values of each row, in any order."""
    return np.partition(values, k - 1, axis=1)[:, :k]


COUNTS_ADDRESS = (
    "https://github.com/PrincetonML/SIF/blob/master/auxiliary_data/enwiki_vocab_min200.txt"
)
"""Where the file of word counts is published that is read by default."""


def read_counts(name: str) -> list[str]:
    """Read a file of words and their counts; return the words, the most frequent first.

    A word on several lines has the sum of their counts. Equally frequent words keep the order of
    their first lines.

    Args:
        name: The path of the file, which is tried first, or its name in ``STSBENCH_VECTORS``.

    Raises:
        DataError: There is no such file, or a line of it is not a word, a space and a count.
    """
    # None if STSBENCH_VECTORS is not set.
    folder = settings.vectors_folder()
    candidates = [Path(name)]
    if folder:
        candidates.append(folder / name)
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise DataError(
            f"no file of words and counts '{name}', here or in STSBENCH_VECTORS",
            hint=f"give one by `params=counts=FILE`, such as {COUNTS_ADDRESS}",
        )
    counts: Counter[str] = Counter()
    for line_number, line in enumerate(read_lines(path), start=1):
        word, _, count = line.rpartition(" ")
        if not word or not count.isdecimal():
            raise DataError(f"{path}, line {line_number}: is not a word, a space and a count")
        counts[word] += int(count)
    return [word for word, _ in counts.most_common()]


@dataclass(frozen=True)
class TokenFrequency(EncoderAnalysis):
    """Word embeddings by frequency, and the score without the task's most frequent tokens.

    ``counts`` is a file of words and their counts, a path or a name in ``STSBENCH_VECTORS``.
    ``removed`` are the numbers of most frequent tokens that are excluded from the mean. Neighbours
    are found for ``sample`` words of each band, drawn by ``seed``.
    """

    about = (
        "word embeddings by frequency (BERT-flow table 1), "
        "the score without the most frequent (ConSERT figure 4)"
    )
    printed = ("bands", "removal")
    score_columns = {"removal": ("score", "low", "high")}

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
        """Measure the word embeddings of one encoder, and score it without frequent tokens.

        ``self.counts`` is a file of words and how often they occur. ``self.removed`` are numbers of
        most frequent tokens: for each number the task is scored by embeddings without them, and for
        0 by those of all tokens. Removed are the tokens most frequent in the sentences of the task.

        Args:
            subject: The encoder, a transformer or one of word vectors, with the task.

        Returns:
            Two tables: ``bands`` has a row for each band of frequency, ``removal`` a row for each
            number of removed tokens with its score and the bounds of its 95% interval.
        """
        words = read_counts(self.counts)
        removed_counts = sorted(set(self.removed))
        encoder = subject.named_encoder.encoder
        # Word embeddings, (v, d), and for each word the index of its own; -1 if it has none.
        if isinstance(encoder, WordsEncoder):
            x, rows_by_rank = _word_vectors(encoder, words)
            embed_functions = _embeds_without_words(subject, encoder, removed_counts)
        else:
            x, rows_by_rank = _input_embeddings(subject, words)
            embed_functions = _embeds_without_tokens(subject, removed_counts)
        removal_rows = []
        for n_removed, embed in embed_functions:
            scores = subject.score(embed)
            low, high = scores.interval
            removal_rows.append(
                {"removed": n_removed, "score": scores.score, "low": low, "high": high}
            )
        band_rows = list(self._measure_bands(x, rows_by_rank))
        return EncoderFindings({"bands": band_rows, "removal": removal_rows})

    def _measure_bands(self, x: FloatArray, rows_by_rank: IntArray) -> Iterator[PlainRow]:
        """Yield for each band of frequency how long its word vectors are, and how near to others.

        The words are ranked by frequency. A band is the words from one rank of
        ``FREQUENCY_RANK_EDGES`` to the next. A row has

        * ``from`` and ``to``, the ranks, and ``words``, how many of the band have a vector;
        * ``norm``, the mean length of their vectors;
        * ``distance_3`` and others, the mean Euclidean distance of a word to its 3 nearest other
          words in x, and ``product_3``, the mean of its 3 largest dot products with other words.
          Both are over at most ``self.sample`` words of the band, drawn with ``self.seed``.

        A band is omitted if none of its words has a vector, or if x has too few vectors.

        Args:
            x: Word embeddings, (v, d).
            rows_by_rank: The index in x of each word's vector, the most frequent word first; -1 for
                a word without one.
        """
        rng = np.random.default_rng(self.seed)
        max_neighbours = max(NEIGHBOUR_COUNTS)
        for low, high in pairwise(FREQUENCY_RANK_EDGES):
            band_rows = rows_by_rank[low:high]
            rows = band_rows[band_rows >= 0]
            if len(rows) < 1 or len(x) <= max_neighbours:
                continue
            sampled_rows = np.sort(rng.permutation(rows)[: self.sample])
            # Distances and dot products to other words, (sampled words, max_neighbours), the
            # nearest first.
            near = near_vectors(x, sampled_rows, max_neighbours)
            yield {
                "from": low,
                "to": high,
                "words": len(rows),
                "norm": float(np.linalg.norm(x[rows], axis=1).mean()),
                **{f"distance_{k}": float(near.distances[:, :k].mean()) for k in NEIGHBOUR_COUNTS},
                **{f"product_{k}": float(near.products[:, :k].mean()) for k in NEIGHBOUR_COUNTS},
            }

    def draw(self, tables: Tables, title: str) -> Chart:
        """Draw scores by the number of removed tokens, or the measures of bands of frequency.

        Args:
            tables: ``removal`` has the score of each encoder without the most frequent tokens,
                ``bands`` the lengths and distances of its word vectors. ``self.picture``,
                ``removal`` or ``bands``, is the table that is drawn.
            title: The title of the picture.
        """
        if self.picture == "bands":
            return _draw_bands(tables["bands"], title)
        points = [
            _score_point(row, series=row["encoder"], x=row["removed"]) for row in tables["removal"]
        ]
        return draw_lines(
            points,
            x_label="most frequent tokens that are left out of the mean",
            y_label="score × 100",
            title=title,
            # Linear from 0 to 1, and a logarithm to base 2 from 1 on.
            x_scale="log2p1",
        )


class _WordEmbeddings(NamedTuple):
    """The vectors of words, and which of them each word has."""

    x: FloatArray
    """Word embeddings, (v, d)."""
    rows_by_rank: IntArray
    """The row of x of each word, the most frequent word first; -1 for a word without one."""


def _word_vectors(encoder: WordsEncoder, words: Sequence[str]) -> _WordEmbeddings:
    """Return the vectors of the words that the encoder has.

    Args:
        encoder: The encoder; its vectors are read for these words only.
        words: The words, the most frequent first.

    Returns:
        The vectors, (v, d), and for each word the index of its vector among them; -1 for a word
        without one.
    """
    # The row of each word in the encoder's own table of vectors; -1 for a word without one.
    vector_rows = encoder.vectors.find(words)
    has_vector = vector_rows >= 0
    # Their vectors, read from the encoder's file.
    x = encoder.vectors.take(vector_rows[has_vector])
    # x has the vectors in the order of the words, so the index of a word's vector is the number of
    # words before it that have one.
    n_vectors_before = np.cumsum(has_vector) - 1
    return _WordEmbeddings(x, np.where(has_vector, n_vectors_before, -1))


def _input_embeddings(subject: EncoderOnTask, words: Sequence[str]) -> _WordEmbeddings:
    """Return the input word embeddings of a transformer, from before its first layer.

    Args:
        subject: The encoder, a transformer.
        words: The words, the most frequent first.

    Returns:
        The embeddings of all tokens of the vocabulary, (v, d), and for each word the index of its
        embedding among them; -1 for a word of several tokens.
    """
    backbone = transformer_of(subject).backbone
    weights = backbone.model.get_input_embeddings().weight
    x: FloatArray = weights.detach().float().cpu().numpy()
    # Words beyond the last rank are in no band of frequency.
    ranked_words = words[: FREQUENCY_RANK_EDGES[-1]]
    # As inside a sentence: for some tokenizers a space belongs to the word behind it.
    texts = [f" {word}" for word in ranked_words]
    ids_by_word = backbone.tokenizer(texts, add_special_tokens=False)["input_ids"]
    rows = np.array([ids[0] if len(ids) == 1 else -1 for ids in ids_by_word], dtype=np.int64)
    return _WordEmbeddings(x, rows)


def _embeds_without_tokens(
    subject: EncoderOnTask, removed_counts: Sequence[int]
) -> list[tuple[int, Embed]]:
    """Return functions that embed by a transformer without the most frequent tokens.

    An embedding is the mean of the vectors of a sentence's tokens but these. Tokens are counted in
    the task's sentences. All embeddings come from one forward pass.

    Args:
        subject: The encoder and the task.
        removed_counts: The numbers of most frequent tokens that are removed.

    Returns:
        ``(n, function)`` pairs. Each function returns the embeddings of sentences, (sentences, d),
        without the n most frequent tokens; a sentence of no other tokens has a zero vector.

    Raises:
        EncoderError: The encoder is no transformer, or its pooling is not the mean.
    """
    from stsbench.encoders.transformer.pooling import MeanPooling
    from stsbench.encoders.whitening import PartialMeanEncoder, frequent_tokens

    base = transformer_of(subject)
    if not isinstance(base.pooling, MeanPooling):
        raise EncoderError(
            f"'{subject.name}' takes no mean over tokens; leave it out, or name its model with "
            "pooling=mean"
        )
    tokenized_sentences = base.tokenize(subject.task.texts())
    # The most frequent token ids first; of equally frequent ones, that which occurs first.
    token_ids = frequent_tokens(tokenized_sentences, max(removed_counts))
    encoders = {
        n_removed: PartialMeanEncoder(base, token_ids[:n_removed], name=subject.name)
        for n_removed in removed_counts
        if n_removed
    }
    engines = subject.make_engines(base, encoders)
    # Without removed tokens it is the encoder itself, whose embeddings may be stored.
    unchanged = [(0, subject.embed)] if 0 in removed_counts else []
    return [*unchanged, *engines.items()]


@dataclass
class _TokenRemovedEncoder:
    """An encoder of bags of words whose mean excludes some words."""

    base: WordsEncoder
    removed_rows: frozenset[int]
    """The rows of the excluded words among the encoder's vectors."""
    name: str
    fingerprint: str | None = None

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return the mean of the vectors of each sentence's words but the removed ones, (n, d).

        A bag is the words of one sentence, as rows of ``self.base``'s table of word vectors;
        ``self.removed_rows`` are the rows of the removed words. Words without a vector are in no
        bag. A sentence of which no word remains has a zero vector.
        """
        bags = [
            [row for row in bag if row not in self.removed_rows]
            for bag in self.base.bags(sentences)
        ]
        return sum_vectors(bags, self.base.take, mean=True)


def _embeds_without_words(
    subject: EncoderOnTask, encoder: WordsEncoder, removed_counts: Sequence[int]
) -> list[tuple[int, Embed]]:
    """Return functions that embed by the mean of word vectors without the most frequent words.

    Words are counted in the task's sentences. Embeddings are stored in memory only.

    Args:
        subject: Has the task.
        encoder: The encoder, whose embedding is a mean of word vectors.
        removed_counts: The numbers of most frequent words that are removed.

    Returns:
        ``(n, function)`` pairs. Each function returns the embeddings of sentences, (sentences, d),
        without the n most frequent words.
    """
    # A bag is the words of one sentence, as rows of the encoder's table of word vectors.
    bags = encoder.bags(subject.task.texts())
    counts = Counter(row for bag in bags for row in bag)
    frequent_rows = [row for row, _ in counts.most_common(max(removed_counts))]
    embed_functions: list[tuple[int, Embed]] = []
    for n_removed in removed_counts:
        removed_rows = frozenset(frequent_rows[:n_removed])
        reduced = _TokenRemovedEncoder(base=encoder, removed_rows=removed_rows, name=encoder.name)
        # A function that embeds sentences and stores what it embedded: without a folder, in memory.
        engine = Engine(reduced, EmbeddingStore(folder=None))
        embed_functions.append((n_removed, engine))
    return embed_functions


def _draw_bands(rows: Sequence[PlainRow], title: str) -> Chart:
    """Draw the word vectors of bands of frequency as a heat map, in one panel per encoder.

    The numbers are the mean length of the vectors (``norm``) and their mean distance to their
    nearest k others (``distance_k``), as multiples of those of the most frequent words.

    Args:
        rows: A row for each band of each encoder, that of the most frequent words first:
            ``encoder``, the ranks ``from`` and ``to`` of its words, and these numbers.
        title: The title of the picture.
    """
    # Reversed, so that of an encoder's rows the first one counts, that of the most frequent words.
    first_row_by_encoder = {row["encoder"]: row for row in reversed(rows)}
    columns = ["norm", *(f"distance_{k}" for k in NEIGHBOUR_COUNTS)]
    cells = []
    for row, column in product(rows, columns):
        first_row = first_row_by_encoder[row["encoder"]]
        ratio = row[column] / first_row[column]
        band = f"{row['from']} to {row['to']}"
        cells.append(
            HeatCell(row=band, column=column.replace("_", " "), value=ratio, panel=row["encoder"])
        )
    return draw_heat(
        cells,
        row_label="rank",
        column_label="",
        value_label="times that of the most frequent",
        title=title,
        number_format=".2f",
    )
