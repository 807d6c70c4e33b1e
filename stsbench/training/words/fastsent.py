"""FastSent's training: a sentence's words predict those of its neighbours (Hill et al. 2016, arXiv 1602.03483).

As released (a fork of gensim): hierarchical softmax over a Huffman tree, not the paper's full softmax; source vectors
are summed, but what is learned is divided by their number; a node whose product is 6 or more either way teaches
nothing, and the sigmoid is read from a table of a thousand values; no neighbour is seen over the border of a block.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from numba import njit

from stsbench.encoders.base import FloatArray, IndexArray
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.words.words import FastSentConfig, tokeniser
from stsbench.training.learner import Columns
from stsbench.training.words.rounds import (
    PreparedTraining,
    StandaloneMethod,
    Vocabulary,
    WordEncoderFiles,
    centres,
    read_ordered,
)


class HuffmanTree(NamedTuple):
    """Every word's way from the root, one behind the other.

    Word w takes ``codes[offsets[w]:offsets[w + 1]]`` (0 left, 1 right) at the inner nodes
    ``points[...]`` of the same places; ``words`` words have ``words - 1`` inner nodes.
    """

    offsets: npt.NDArray[np.int64]
    points: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]

    @classmethod
    def of(cls, counts: Sequence[int]) -> HuffmanTree:
        """Build the tree; of equal counts the word that stands first, and a word before a node, is joined first."""
        n = len(counts)
        heap = [(int(count), word) for word, count in enumerate(counts)]
        heapq.heapify(heap)
        above: dict[int, tuple[int, int]] = {}
        for node in range(n - 1):
            total = 0
            for side in (0, 1):
                count, below = heapq.heappop(heap)
                above[below], total = (node, side), total + count
            heapq.heappush(heap, (total, n + node))
        ways: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        for word, way in enumerate(ways):
            place = word
            while place in above:
                way.append(above[place])
                place = n + way[-1][0]
        steps = np.array([step for way in ways for step in reversed(way)], dtype=np.int64).reshape(
            -1, 2
        )
        points, codes = (np.ascontiguousarray(column) for column in steps.T)
        return cls(
            offsets=np.cumsum([0, *map(len, ways)], dtype=np.int64), points=points, codes=codes
        )


F = TypeVar("F", bound=Callable[..., Any])
TABLE, LIMIT = 1000, 6.0
_powers = np.exp((np.arange(TABLE, dtype=np.float32) / np.float32(TABLE) * 2 - 1) * LIMIT)
SIGMOID = (_powers / (_powers + 1)).astype(np.float32)
"""The released sigmoid: its value at the left end of each of a thousand steps from -6 to 6."""


def _compiled(function: F) -> F:
    """Compile at the first call, or take it from numba's cache where a cache folder can be written."""
    try:
        return cast(F, njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast(F, njit(nogil=True)(function))


@_compiled
def _learn_word(
    sources: npt.NDArray[np.int32],
    points: IndexArray,
    codes: IndexArray,
    source: FloatArray,
    nodes: FloatArray,
    rate: np.float32,
    mean: bool,
) -> float:
    """Let a sentence's words (t,) predict one word, given its way down the tree; returns minus its log probability."""
    share = np.float32(1.0) / np.float32(max(len(sources), 1))
    state = np.zeros(source.shape[1], np.float32)
    for word in sources:
        state += source[word]
    if mean:
        state *= share
    error = np.zeros(source.shape[1], np.float32)
    loss = 0.0
    for k in range(len(points)):
        node = nodes[points[k]]
        product = np.float32(0.0)
        for j in range(len(state)):
            product += state[j] * node[j]
        side = product if codes[k] == 0 else -product
        loss += max(-side, 0.0) + np.log1p(np.exp(-abs(side)))
        if product <= -LIMIT or product >= LIMIT:
            continue
        # The released step of the table: 1000 / 6 / 2 in whole numbers.
        probability = SIGMOID[int((product + np.float32(LIMIT)) * np.float32(TABLE // 6 // 2))]
        step = (np.float32(1 - codes[k]) - probability) * rate
        for j in range(len(state)):
            error[j] += step * node[j]
            node[j] += step * state[j]
    if not mean:
        error *= share
    for word in sources:
        source[word] += error
    return loss


@_compiled
def learn_block(
    centres: IndexArray,
    ids: npt.NDArray[np.int32],
    offsets: IndexArray,
    targets: npt.NDArray[np.int32],
    target_offsets: IndexArray,
    tree: HuffmanTree,
    source: FloatArray,
    nodes: FloatArray,
    rate: np.float32,
    autoencode: bool,
    mean: bool,
) -> tuple[float, int]:
    """Learn from some sentences and their neighbours, word by word; returns the summed loss and how many words.

    What is read is ``ids``, what is predicted ``targets``: the same words, or two draws of them. ``source`` (words, d)
    and ``nodes`` (words, d) are changed in place.
    """
    loss, count = 0.0, 0
    for i in centres:
        sources = ids[offsets[i] : offsets[i + 1]]
        for neighbour in (i - 1, i, i + 1):
            if neighbour == i and not autoencode:
                continue
            for word in targets[target_offsets[neighbour] : target_offsets[neighbour + 1]]:
                way = slice(tree.offsets[word], tree.offsets[word + 1])
                loss += _learn_word(
                    sources, tree.points[way], tree.codes[way], source, nodes, rate, mean
                )
                count += 1
    return loss, count


Draws = tuple[npt.NDArray[np.int32], IndexArray, npt.NDArray[np.int32], IndexArray]


@dataclass(frozen=True, kw_only=True)
class FastSentTraining(StandaloneMethod):
    """Train FastSent; the defaults are those of the released script."""

    size: int = 300
    autoencode: bool = False
    """Predict the sentence's own words too (FastSent+AE)."""
    mean: bool = False
    min_count: int = 10
    sample: float = 0.0
    """Read and predict words more frequent than this share of all only at times, as word2vec; 0 for always."""
    learning_rate: float = 0.025
    min_rate: float = 1e-4
    batch_size: int = 1000
    """Sentences that share a learning rate, and that see no neighbour outside."""
    tokens: str = "whitespace"
    lowercase: bool = False

    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Read the column ``text`` (and ``document_id``), see :class:`StandaloneMethod`."""
        split = tokeniser(self.tokens, lowercase=self.lowercase)
        sentences, documents, vocabulary = read_ordered(columns, split, min_count=self.min_count)
        tokens, often = TokenIds.from_lists(vocabulary.ids(sentences)), self.keep(vocabulary)
        tree = HuffmanTree.of(vocabulary.counts.tolist())
        # Source vectors begin uniform within 0.5 / size, inner nodes at zero.
        shape = (len(vocabulary.words), self.size)
        source = ((np.random.default_rng(seed).random(shape) - 0.5) / self.size).astype(np.float32)
        nodes = np.zeros(shape, dtype=np.float32)
        rng, starts = np.random.default_rng(seed), range(0, len(sentences), self.batch_size)

        def drawn() -> tuple[npt.NDArray[np.int32], IndexArray]:
            kept = rng.random(len(tokens.ids)) < often[tokens.ids]
            return tokens.ids[kept], np.concatenate([[0], np.cumsum(kept)])[tokens.offsets]

        def batches() -> Iterator[tuple[IndexArray, Draws]]:
            # The words to read, and those to predict.
            read, predicted = (
                drawn() if self.sample else (tokens.ids, tokens.offsets) for _ in range(2)
            )
            for start in starts:
                yield (
                    centres(documents[start : start + self.batch_size]) + start,
                    (*read, *predicted),
                )

        def learn(batch: tuple[IndexArray, Draws], step: int) -> tuple[float, int]:
            epoch, block = divmod(step, len(starts))
            rate = self.rate(
                epoch * len(sentences) + block * self.batch_size, len(sentences) * self.epochs
            )
            inner, draws = batch
            return learn_block(
                inner, *draws, tree, source, nodes, np.float32(rate), self.autoencode, self.mean
            )

        source_tensor = torch.from_numpy(source)
        config = FastSentConfig(size=self.size, lowercase=self.lowercase)
        params = {"mean": self.mean, "tokens": self.tokens}
        return PreparedTraining(
            tensors={"source": source_tensor, "nodes": torch.from_numpy(nodes)},
            saved=WordEncoderFiles(
                "fastsent", config, {"source": source_tensor}, params, vocabulary.words
            ),
            batches=batches,
            learn=learn,
            steps=len(starts),
            tokens=len(tokens.ids),
        )

    def rate(self, done: int, total: int) -> float:
        """The learning rate after so many sentences: down in a line to ``min_rate``."""
        return max(
            self.learning_rate - (self.learning_rate - self.min_rate) * done / total, self.min_rate
        )

    def keep(self, vocabulary: Vocabulary) -> npt.NDArray[np.float64]:
        """How often each word is read or predicted, (words,): gensim's rule."""
        threshold = self.sample * vocabulary.counts.sum()
        if not threshold:
            return np.ones(len(vocabulary.words))
        share = threshold / vocabulary.counts
        keep: npt.NDArray[np.float64] = np.minimum(np.sqrt(1 / share) * share + share, 1.0)
        return keep
