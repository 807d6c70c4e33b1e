"""FastSent's training: a sentence's words predict those of its neighbours.

Hill et al. 2016, arXiv 1602.03483. As released (a fork of gensim): hierarchical softmax over a
Huffman tree, not the paper's full softmax; source vectors are summed, but the update is divided by
their number; a node whose product is 6 or more in absolute value is not learned from, and the
sigmoid is read from a table of a thousand values; sentences have no neighbours beyond the border of
a block.
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
from stsbench.encoders.words.words import FastSentConfig, make_tokeniser
from stsbench.numbers.statistics import Float64Array, IntArray
from stsbench.training.learner import Columns
from stsbench.training.words.rounds import (
    PreparedTraining,
    StandaloneMethod,
    Vocabulary,
    WordEncoderFiles,
    read_ordered,
    rows_with_neighbours,
)


class HuffmanTree(NamedTuple):
    """The path from the root to every word, one path after the other.

    Word w has the path ``codes[offsets[w]:offsets[w + 1]]`` (0 left, 1 right) at the inner nodes
    ``points[...]`` at the same indices; ``words`` words have ``words - 1`` inner nodes. Words and
    inner nodes are numbered from 0 each.
    """

    offsets: IntArray
    points: IntArray
    codes: IntArray

    @classmethod
    def build(cls, counts: Sequence[int]) -> HuffmanTree:
        """Build the tree from the words' frequencies.

        Among equal counts the first word, and a word before a node, is joined first: the heap
        compares (count, number), and inner nodes are numbered after the words.

        Args:
            counts: The frequency of each word, by falling frequency.
        """
        n_words = len(counts)
        # While the tree is built, inner node i has the number n_words + i.
        heap = [(int(count), word) for word, count in enumerate(counts)]
        heapq.heapify(heap)
        # By the number of a word or node: its parent, an inner node from 0, and its branch there.
        parents: dict[int, tuple[int, int]] = {}
        for node in range(n_words - 1):
            # Join the two rarest: the rarer one is at branch 0.
            node_count = 0
            for code in (0, 1):
                count, child = heapq.heappop(heap)
                parents[child] = (node, code)
                node_count += count
            heapq.heappush(heap, (node_count, n_words + node))
        paths_to_root: list[list[tuple[int, int]]] = [[] for _ in range(n_words)]
        for word, path in enumerate(paths_to_root):
            child = word
            while child in parents:
                node, code = parents[child]
                path.append((node, code))
                child = n_words + node
        all_steps = [step for path in paths_to_root for step in reversed(path)]
        # One row per step of a path: the inner node, and the branch that is taken there.
        steps = np.array(all_steps, dtype=np.int64).reshape(-1, 2)
        points, codes = (np.ascontiguousarray(column) for column in steps.T)
        offsets = np.cumsum([0, *map(len, paths_to_root)], dtype=np.int64)
        return cls(offsets=offsets, points=points, codes=codes)


F = TypeVar("F", bound=Callable[..., Any])
SIGMOID_VALUES = 1000
"""The number of values of the sigmoid."""
MAX_LEARNED_PRODUCT = 6.0
"""The absolute product from which a node is not learned from."""
_steps = np.arange(SIGMOID_VALUES, dtype=np.float32) / np.float32(SIGMOID_VALUES)
_exponentials = np.exp((_steps * 2 - 1) * MAX_LEARNED_PRODUCT)
SIGMOID = (_exponentials / (_exponentials + 1)).astype(np.float32)
"""The released sigmoid: its value at the left end of each of a thousand steps from -6 to 6."""


def _compiled(function: F) -> F:
    """Compile a function at its first call, from numba's cache if a cache folder can be written."""
    try:
        return cast(F, njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast(F, njit(nogil=True)(function))


@_compiled
def _learn_word(
    word_ids: npt.NDArray[np.int32],
    points: IndexArray,
    codes: IndexArray,
    word_vectors: FloatArray,
    node_vectors: FloatArray,
    rate: np.float32,
    use_mean: bool,
) -> float:
    """Learn to predict one word from a sentence's words (t,), and return minus its log probability.

    This is word2vec's hierarchical softmax: the word's probability is the product of those of the
    branches on its path down the Huffman tree. At each inner node a step of gradient descent is
    taken on the node's vector at once, on the words' vectors after the whole path.

    Args:
        word_ids: The ids of the sentence's words, (t,).
        points: The inner nodes on the word's path, (depth,).
        codes: The branches that the path takes there, 0 left and 1 right, (depth,).
        word_vectors: The source vectors of all words, (words, d), changed in place.
        node_vectors: The vectors of the inner nodes (words, d), changed in place.
        rate: The learning rate.
        use_mean: Average the source vectors instead of summing them.
    """
    share = np.float32(1.0) / np.float32(max(len(word_ids), 1))
    state = np.zeros(word_vectors.shape[1], np.float32)
    for word in word_ids:
        state += word_vectors[word]
    if use_mean:
        state *= share
    error = np.zeros(word_vectors.shape[1], np.float32)
    loss = 0.0
    for depth in range(len(points)):
        node = node_vectors[points[depth]]
        product = np.float32(0.0)
        for dimension in range(len(state)):
            product += state[dimension] * node[dimension]
        signed_product = product if codes[depth] == 0 else -product
        # softplus of minus the product: minus the log probability of the branch, for any product.
        loss += max(-signed_product, 0.0) + np.log1p(np.exp(-abs(signed_product)))
        # Nothing is learned from a branch that is nearly certain, right or wrong, as in word2vec.
        if product <= -MAX_LEARNED_PRODUCT or product >= MAX_LEARNED_PRODUCT:
            continue
        # As released, steps per unit are rounded down (1000 // 6 // 2), so that the index of a
        # product is a little too low.
        steps_per_unit = np.float32(SIGMOID_VALUES // 6 // 2)
        index = int((product + np.float32(MAX_LEARNED_PRODUCT)) * steps_per_unit)
        probability = SIGMOID[index]
        step = (np.float32(1 - codes[depth]) - probability) * rate
        for dimension in range(len(state)):
            error[dimension] += step * node[dimension]
            node[dimension] += step * state[dimension]
    # The gradient of a sum would be the whole error for each word; the released code divides it by
    # their number. For the mean it divides nothing, where the gradient would.
    if not use_mean:
        error *= share
    for word in word_ids:
        word_vectors[word] += error
    return loss


@_compiled
def learn_block(
    center_rows: IndexArray,
    ids: npt.NDArray[np.int32],
    offsets: IndexArray,
    targets: npt.NDArray[np.int32],
    target_offsets: IndexArray,
    tree: HuffmanTree,
    word_vectors: FloatArray,
    node_vectors: FloatArray,
    rate: np.float32,
    autoencode: bool,
    use_mean: bool,
) -> tuple[float, int]:
    """Learn, word by word, to predict the words of sentences' neighbours from the sentences' own.

    Args:
        center_rows: The rows of the sentences that predict, each with a neighbour on both sides.
        ids: The words that predict, of all sentences.
        offsets: The start of each sentence in ``ids``.
        targets: The words to predict: the same as ``ids``, or another draw of them.
        target_offsets: The start of each sentence in ``targets``.
        tree: The Huffman tree of the words.
        word_vectors: The source vectors of all words, (words, d), changed in place.
        node_vectors: The vectors of the inner nodes (words, d), changed in place.
        rate: The learning rate.
        autoencode: Predict the sentence's own words too.
        use_mean: Average the source vectors instead of summing them.

    Returns:
        The summed loss, and the number of predicted words.
    """
    loss = 0.0
    count = 0
    for row in center_rows:
        sentence_ids = ids[offsets[row] : offsets[row + 1]]
        for neighbour in (row - 1, row, row + 1):
            if neighbour == row and not autoencode:
                continue
            for word in targets[target_offsets[neighbour] : target_offsets[neighbour + 1]]:
                path = slice(tree.offsets[word], tree.offsets[word + 1])
                loss += _learn_word(
                    sentence_ids,
                    tree.points[path],
                    tree.codes[path],
                    word_vectors,
                    node_vectors,
                    rate,
                    use_mean,
                )
                count += 1
    return loss, count


def _subsample(
    tokens: TokenIds, keep_probabilities: Float64Array, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int32], IndexArray]:
    """Draw words of all sentences to keep.

    Args:
        tokens: The word ids of all sentences.
        keep_probabilities: The probability that a word is kept, by its id.
        rng: The generator of the draws.

    Returns:
        The ids of the kept words, and the offsets at which each sentence begins and ends.
    """
    is_kept = rng.random(len(tokens.ids)) < keep_probabilities[tokens.ids]
    # The number of kept words before each word, and of all.
    n_kept_before = np.concatenate([[0], np.cumsum(is_kept)])
    return tokens.ids[is_kept], n_kept_before[tokens.offsets]


Draws = tuple[npt.NDArray[np.int32], IndexArray, npt.NDArray[np.int32], IndexArray]
"""The words that predict and the words to predict: ids and offsets of each."""


@dataclass(frozen=True, kw_only=True)
class FastSentTraining(StandaloneMethod):
    """Training of FastSent; the defaults are those of the released script."""

    size: int = 300
    autoencode: bool = False
    """Predict the sentence's own words too (FastSent+AE)."""
    mean: bool = False
    min_count: int = 10
    sample: float = 0.0
    """The share of all words above which a word is read and predicted only sometimes, as in
    word2vec; 0 for always."""
    learning_rate: float = 0.025
    min_rate: float = 1e-4
    batch_size: int = 1000
    """The number of sentences that share a learning rate and have no neighbours outside."""
    tokens: str = "whitespace"
    lowercase: bool = False

    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Read the column ``text`` (and ``document_id``), and draw the first vectors.

        Args:
            columns: The corpus, sentences in the order of the text.
            seed: The seed of the first vectors and of the sampled words.
        """
        tokenize = make_tokeniser(self.tokens, lowercase=self.lowercase)
        sentences, documents, vocabulary = read_ordered(columns, tokenize, min_count=self.min_count)
        tokens = TokenIds.from_lists(vocabulary.ids(sentences))
        keep_probabilities = self.keep_probabilities(vocabulary)
        tree = HuffmanTree.build(vocabulary.counts.tolist())
        # Source vectors begin uniform within 0.5 / size, inner nodes at zero.
        shape = (len(vocabulary.words), self.size)
        source = ((np.random.default_rng(seed).random(shape) - 0.5) / self.size).astype(np.float32)
        nodes = np.zeros(shape, dtype=np.float32)
        rng = np.random.default_rng(seed)
        batch_starts = range(0, len(sentences), self.batch_size)

        def draw_words() -> tuple[npt.NDArray[np.int32], IndexArray]:
            """Return the ids of an epoch's words, and where each sentence begins and ends."""
            if not self.sample:
                return tokens.ids, tokens.offsets
            return _subsample(tokens, keep_probabilities, rng)

        def batches() -> Iterator[tuple[IndexArray, Draws]]:
            """Yield the rows with neighbours in each batch, and the epoch's draws of words."""
            input_words = draw_words()
            target_words = draw_words()
            for start in batch_starts:
                batch_documents = documents[start : start + self.batch_size]
                center_rows = start + rows_with_neighbours(batch_documents)
                yield center_rows, (*input_words, *target_words)

        def learn_batch(batch: tuple[IndexArray, Draws], step: int) -> tuple[float, int]:
            epoch, batch_in_epoch = divmod(step, len(batch_starts))
            n_finished = epoch * len(sentences) + batch_in_epoch * self.batch_size
            rate = self.decayed_rate(n_finished, len(sentences) * self.epochs)
            center_rows, draws = batch
            # By position, as compiled functions are called fastest.
            vectors = (source, nodes, np.float32(rate))
            return learn_block(center_rows, *draws, tree, *vectors, self.autoencode, self.mean)

        source_tensor = torch.from_numpy(source)
        config = FastSentConfig(size=self.size, lowercase=self.lowercase)
        params = {"mean": self.mean, "tokens": self.tokens}
        return PreparedTraining(
            trained_tensors={"source": source_tensor, "nodes": torch.from_numpy(nodes)},
            encoder_files=WordEncoderFiles(
                "fastsent", config, {"source": source_tensor}, params, vocabulary.words
            ),
            batches=batches,
            learn_batch=learn_batch,
            steps_per_epoch=len(batch_starts),
        )

    def decayed_rate(self, done: int, total: int) -> float:
        """Return the learning rate after some sentences: it falls linearly to ``min_rate``.

        Args:
            done: The number of sentences that were learned from, in all epochs.
            total: The number of sentences of the whole training.
        """
        return max(
            self.learning_rate - (self.learning_rate - self.min_rate) * done / total, self.min_rate
        )

    def keep_probabilities(self, vocabulary: Vocabulary) -> Float64Array:
        """Compute the probability that a word is read or predicted, (words,), by gensim's rule.

        It is sqrt(s / f) + s / f, at most 1, with f the word's share of all words and s ``sample``:
        frequent words are omitted more often. If ``sample`` is 0, all are kept.

        Args:
            vocabulary: The words and their frequencies.
        """
        threshold = self.sample * vocabulary.counts.sum()
        if not threshold:
            return np.ones(len(vocabulary.words))
        relative_threshold = threshold / vocabulary.counts  # s / f
        # sqrt(1 / r) * r is sqrt(r), in gensim's order of operations.
        root = np.sqrt(1 / relative_threshold) * relative_threshold
        probabilities: Float64Array = np.minimum(root + relative_threshold, 1.0)
        return probabilities
