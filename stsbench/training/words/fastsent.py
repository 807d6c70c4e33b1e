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

from stsbench.core.cards import NonNegativeFloat, PositiveFloat, PositiveInt
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
        """Build the Huffman tree of words: a binary tree with frequent words near its root.

        The two rarest words or nodes are joined under a new inner node, again and again until one
        node, the root, is left. Among equal counts the first word is joined first, and a word
        before a node: the heap compares (count, number), and inner nodes are numbered after the
        words.

        Args:
            counts: The frequency of each word, the highest first.

        Returns:
            The tree as the path of each word from the root: the steps of word i are at
            ``offsets[i]`` to ``offsets[i + 1] - 1``, with the inner node of each step in ``points``
            and the branch taken there, 0 or 1, in ``codes``.
        """
        n_words = len(counts)
        # While the tree is built, inner node i has the number n_words + i.
        heap = [(int(count), word) for word, count in enumerate(counts)]
        heapq.heapify(heap)
        # For the number of a word or node: the index of the inner node above it, from 0, and its
        # branch there.
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
SIGMOID_TABLE = (_exponentials / (_exponentials + 1)).astype(np.float32)
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
    """Learn to predict one word from a sentence's words, and return minus its log probability.

    This is word2vec's hierarchical softmax. The sentence is the sum or mean of its words' vectors.
    The predicted word is a leaf of a binary tree; its probability is the product of those of the
    branches on its path. The probability of branch 0 at a node is the sigmoid of the dot product of
    sentence and node vector. Node vectors change at once, word vectors after the whole path.

    Args:
        word_ids: The ids of the sentence's words, (t,).
        points: The inner nodes on the path of the word to predict, (depth,).
        codes: The branches that the path takes there, 0 left and 1 right, (depth,).
        word_vectors: The vectors of all words, (words, d), changed in place.
        node_vectors: Those of the inner nodes, a row of each; changed in place.
        rate: The learning rate.
        use_mean: Average the words' vectors instead of summing them.
    """
    share = np.float32(1.0) / np.float32(max(len(word_ids), 1))
    state = np.zeros(word_vectors.shape[1], np.float32)
    for word in word_ids:
        state += word_vectors[word]
    if use_mean:
        state *= share
    # The change of the words' vectors, summed over the nodes.
    error = np.zeros(word_vectors.shape[1], np.float32)
    loss = 0.0
    for depth in range(len(points)):
        node = node_vectors[points[depth]]
        product = np.float32(0.0)
        for dimension in range(len(state)):
            product += state[dimension] * node[dimension]
        signed_product = product if codes[depth] == 0 else -product
        # Minus the branch's log probability: log(1 + exp(-signed_product)), without overflow.
        loss += max(-signed_product, 0.0) + np.log1p(np.exp(-abs(signed_product)))
        # As in word2vec nothing is learned from a branch that is nearly certain, right or wrong.
        if product <= -MAX_LEARNED_PRODUCT or product >= MAX_LEARNED_PRODUCT:
            continue
        # The table: 1,000 sigmoids of -6 to 6. 83 per unit, not 83.3, is as in the authors' code.
        steps_per_unit = np.float32(SIGMOID_VALUES // 6 // 2)
        index = int((product + np.float32(MAX_LEARNED_PRODUCT)) * steps_per_unit)
        probability = SIGMOID_TABLE[index]
        step = (np.float32(1 - codes[depth]) - probability) * rate
        for dimension in range(len(state)):
            error[dimension] += step * node[dimension]
            node[dimension] += step * state[dimension]
    # As in the authors' code; in the true gradient it is the mean that divides the error.
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
    """Learn, word by word, to predict the words of neighbouring sentences from a sentence's words.

    This is FastSent's training on a batch: the words of a sentence predict each word of the
    sentences before and after it.

    Args:
        center_rows: The indices of the sentences that predict, each with a neighbour on both sides.
        ids: The ids of the words that predict, those of all sentences of the corpus.
        offsets: The start of each sentence in ``ids``, and the end.
        targets: The ids of the words to predict: as ``ids``, or another random selection of words.
        target_offsets: The start of each sentence in ``targets``, and the end.
        tree: The Huffman tree of the words, by which a word is predicted.
        word_vectors: The vectors of all words, (words, d), changed in place.
        node_vectors: The vectors of the tree's inner nodes (words, d), changed in place.
        rate: The learning rate.
        autoencode: Predict the sentence's own words too.
        use_mean: Average the words' vectors instead of summing them.

    Returns:
        The summed loss, and the number of predicted words.
    """
    loss = 0.0
    n_predicted = 0
    for row in center_rows:
        sentence_ids = ids[offsets[row] : offsets[row + 1]]
        for neighbour in (row - 1, row, row + 1):
            if neighbour == row and not autoencode:
                continue
            for word in targets[target_offsets[neighbour] : target_offsets[neighbour + 1]]:
                # The word's steps in the tree.
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
                n_predicted += 1
    return loss, n_predicted


def _subsample(
    tokens: TokenIds, keep_probabilities: Float64Array, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int32], IndexArray]:
    """Draw the words of all sentences that are kept; frequent words are kept less often.

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

    size: PositiveInt = 300
    autoencode: bool = False
    """Predict the sentence's own words too (FastSent+AE)."""
    mean: bool = False
    min_count: PositiveInt = 10
    sample: NonNegativeFloat = 0.0
    """The share of all words above which a word is read and predicted only sometimes, as in
    word2vec; 0 for always."""
    learning_rate: PositiveFloat = 0.025
    min_rate: NonNegativeFloat = 1e-4
    batch_size: PositiveInt = 1000
    """The number of sentences that share a learning rate and have no neighbours outside."""
    tokens: str = "whitespace"
    lowercase: bool = False

    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Prepare FastSent's training: vectors to train, and functions for the loop to call.

        Args:
            columns: The corpus: ``text``, sentences in order, and perhaps ``document_id``.
            seed: The seed of the first vectors and of the sampled words.
        """
        tokenize = make_tokeniser(self.tokens, lowercase=self.lowercase)
        sentences, documents, vocabulary = read_ordered(columns, tokenize, min_count=self.min_count)
        tokens = TokenIds.from_lists(vocabulary.ids(sentences))
        # For each word the probability that an occurrence of it is kept.
        keep_probabilities = self.keep_probabilities(vocabulary)
        tree = HuffmanTree.build(vocabulary.counts.tolist())
        # Vectors of words begin uniform within 0.5 / size, those of the tree's inner nodes at zero.
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
            """Yield the batches of an epoch: the rows of sentences with neighbours, and words.

            The words that predict, and those to predict, are drawn for the whole epoch at once.
            """
            input_words = draw_words()
            target_words = draw_words()
            for start in batch_starts:
                batch_documents = documents[start : start + self.batch_size]
                # Neighbours in another batch do not count.
                center_rows = start + rows_with_neighbours(batch_documents)
                yield center_rows, (*input_words, *target_words)

        def learn_batch(batch: tuple[IndexArray, Draws], step: int) -> tuple[float, int]:
            """Learn from a batch; return the summed loss and the number of predicted words."""
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
        tensors = {"source": source_tensor}
        return PreparedTraining(
            trained_tensors={"source": source_tensor, "nodes": torch.from_numpy(nodes)},
            encoder_files=WordEncoderFiles("fastsent", config, tensors, params, vocabulary.words),
            batches=batches,
            learn_batch=learn_batch,
            steps_per_epoch=len(batch_starts),
        )

    def decayed_rate(self, done: int, total: int) -> float:
        """Return the learning rate, which falls linearly from ``learning_rate`` to ``min_rate``.

        Args:
            done: The number of sentences that were learned from, in all epochs.
            total: The number of sentences of the whole training.
        """
        rate = self.learning_rate - (self.learning_rate - self.min_rate) * done / total
        return max(rate, self.min_rate)

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
        # sqrt(1 / r) * r is sqrt(r); in gensim's order of operations it rounds as gensim does.
        root = np.sqrt(1 / relative_threshold) * relative_threshold
        probabilities: Float64Array = np.minimum(root + relative_threshold, 1.0)
        return probabilities
