"""InferSent's training: a recurrent encoder of words learns to classify labelled pairs.

Conneau et al. 2017, arXiv 1705.02364, section 3; its released code.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stsbench.core.cards import NonNegativeFloat, PositiveFloat, PositiveInt, Share
from stsbench.core.errors import TrainingError
from stsbench.core.wording import format_count
from stsbench.encoders.cached_files import cached_file_sha256
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.words.recurrent import (
    INFERSENT_RELEASES,
    BiLstm,
    InferSentConfig,
    Padding,
    make_batch,
)
from stsbench.encoders.words.vectors import WordVectors, open_vectors
from stsbench.encoders.words.words import find_vectors, make_tokeniser, name_vectors
from stsbench.training.learner import Columns, Rows
from stsbench.training.objectives import pair_features
from stsbench.training.words.rounds import PreparedTraining, StandaloneMethod, WordEncoderFiles

Side = tuple[Tensor, Tensor]
"""One side of a batch of pairs: word vectors (b, t, w), zero at padding, and lengths (b,)."""


class PairClassifier(nn.Module):
    """The encoder of both sentences, and a head over (u, v, |u - v|, u * v).

    The head is linear layers without an activation between them, as released.
    """

    def __init__(self, encoder: BiLstm, sizes: tuple[int, ...]) -> None:
        """Make the head's layers, from each of these sizes to the next."""
        super().__init__()
        self.encoder = encoder
        self.head = nn.Sequential(*(nn.Linear(wide, narrow) for wide, narrow in pairwise(sizes)))

    def forward(self, first: Side, second: Side) -> Tensor:
        """Return the logits of the c classes of pairs of sentences, (b, c).

        Args:
            first: The word vectors (b, t, w) and the lengths (b,) of the first sentences.
            second: Those of the second sentences.
        """
        # Embeddings (b, d).
        u = self.encoder(*first)
        v = self.encoder(*second)
        # "infersent" is the preset of features u, v, |u - v| and u * v, side by side: (b, 4 d). The
        # head is linear layers without an activation between them.
        logits: Tensor = self.head(pair_features(u, v, kinds="infersent"))
        return logits


class LabelledPairs(NamedTuple):
    """Labelled pairs, whose sentences are rows of a table of word vectors."""

    tokens: TokenIds
    """The rows of the words of all first sentences, then of all second ones."""
    labels: Tensor
    """The class of each pair, (n,)."""
    table: Tensor
    """The word vectors, (words + 1, w); the last row is zero."""

    def batch(self, rows: Rows) -> tuple[Side, Side, Tensor]:
        """Return some labelled pairs of sentences as a batch.

        Args:
            rows: The indices of the pairs, (b,).

        Returns:
            The first sentences and the second ones, each as word vectors (b, t, w) and lengths
            (b,); and the labels (b,).
        """
        # All first sentences are stored before the second ones.
        first = self._look_up(rows)
        second = self._look_up(rows + len(self.labels))
        return first, second, self.labels[torch.from_numpy(rows)]

    def _look_up(self, sentence_rows: Rows) -> Side:
        """Return the word vectors and the lengths of the sentences in some rows of ``tokens``."""
        # Row -1 of the table, the last, is the zero vector of padding.
        ids, lengths = make_batch(self.tokens, sentence_rows, pad=-1)
        return self.table[ids], lengths


@dataclass(frozen=True, kw_only=True)
class InferSentTraining(StandaloneMethod):
    """Training of InferSent; the defaults are the released code's.

    SGD whose rate is multiplied by ``decay`` per epoch and divided by ``shrink`` after an epoch
    without a better accuracy on held-out pairs, until it is below ``min_rate``. A gradient longer
    than ``clip`` shortens the step. The weights with the best accuracy are kept, not those with the
    best score by ``validate``, which is only recorded.
    """

    needs: ClassVar[tuple[str, ...]] = ("first", "second", "label")
    vectors: str
    version: Literal[1, 2] = 1
    hidden: PositiveInt = 2048
    head_size: PositiveInt = 512
    batch_size: PositiveInt = 64
    epochs: PositiveInt = 20
    learning_rate: PositiveFloat = 0.1
    decay: PositiveFloat = 0.99
    shrink: PositiveFloat = 5.0
    min_rate: NonNegativeFloat = 1e-5
    clip: PositiveFloat = 5.0
    tokens: str = "whitespace"
    lowercase: bool = False
    held_out: Share = 0.1
    """The share of pairs, the last ones, on which accuracy is computed."""

    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Prepare InferSent's training: the model to train, and functions for the loop to call.

        The last pairs, a share ``held_out`` of all, are not learned from: the accuracy on them
        decides about the learning rate after each epoch.

        Args:
            columns: The corpus of pairs: ``first``, ``second`` and ``label``.
            seed: The seed of the order of pairs; torch's, of the weights, is set already.
        """
        path = find_vectors(self.vectors)
        # SHA-256 of the file of word vectors.
        digest = cached_file_sha256(path)
        rng = np.random.default_rng(seed)
        vectors = open_vectors(path, sha256=digest)
        pairs, n_classes = self._read(columns, vectors)
        n_pairs = len(pairs.labels)
        n_training = round(n_pairs * (1 - self.held_out))
        if not 0 < n_training < n_pairs:
            raise TrainingError(
                f"{format_count(n_pairs, 'pair')}, of which {n_training} to learn from; "
                "give more, or another held_out"
            )
        model = self.make_model(vectors.shape[1], n_classes)
        optimiser = torch.optim.SGD(model.parameters(), lr=self.learning_rate)
        steps_per_epoch = math.ceil(n_training / self.batch_size)

        def batches() -> Iterator[Rows]:
            order = rng.permutation(n_training)
            for start in range(0, n_training, self.batch_size):
                yield order[start : start + self.batch_size]

        def learn_batch(rows: Rows, step: int) -> tuple[float, int]:
            is_new_epoch = step and step % steps_per_epoch == 0
            if is_new_epoch:
                optimiser.param_groups[0]["lr"] *= self.decay
            # A mean loss counts as one term.
            return self.step(model, optimiser, *pairs.batch(rows)), 1

        def examine_round(best_accuracy: float) -> tuple[float, dict[str, float]]:
            """Return the accuracy on held-out pairs, and numbers to record; may lower the rate."""
            held_out_rows = np.arange(n_training, n_pairs)
            # Rounded to hundredths of a percent, which the authors' code compares.
            new_accuracy = round(accuracy(model, pairs, held_out_rows), 4)
            settings = optimiser.param_groups[0]
            # Not better than the best so far (at first minus infinity): learn more slowly.
            if new_accuracy <= best_accuracy:
                settings["lr"] /= self.shrink
            return new_accuracy, {"accuracy": new_accuracy, "learning_rate": settings["lr"]}

        return PreparedTraining(
            trained_tensors=model.state_dict(),
            optimiser=optimiser,
            encoder_files=self._encoder_files(model.encoder, vectors.shape[1], digest),
            batches=batches,
            learn_batch=learn_batch,
            steps_per_epoch=steps_per_epoch,
            examine_round=examine_round,
            is_finished=lambda: optimiser.param_groups[0]["lr"] < self.min_rate,
        )

    def _encoder_files(
        self, encoder: BiLstm, word_size: int, vectors_sha256: str
    ) -> WordEncoderFiles:
        """Return what is written of the trained encoder: settings and weights, no classifier.

        Args:
            encoder: The trained encoder.
            word_size: The size of a word vector.
            vectors_sha256: The hash of the file of word vectors, which the encoder needs too.
        """
        config = InferSentConfig(
            version=self.version,
            word_size=word_size,
            hidden=self.hidden,
            vectors=name_vectors(self.vectors),
            vectors_sha256=vectors_sha256,
            lowercase=self.lowercase,
        )
        return WordEncoderFiles(
            kind="infersent",
            config=config,
            tensors=encoder.state_dict(),
            params={"tokens": self.tokens},
        )

    def make_model(self, word_size: int, n_classes: int) -> PairClassifier:
        """Make InferSent's encoder, and the classifier of pairs that it is trained with.

        The encoder's embedding is the maximum over the states of an LSTM in both directions. As in
        the authors' code, version 1 is trained with the zeros at padding in the maximum, which may
        exceed the states of words; version 2 without them.

        Args:
            word_size: The dimensions of a word vector.
            n_classes: The number of distinct labels.
        """
        padding: Padding = "batch" if self.version == 1 else "masked"
        # The widths of the classifier's layers. Its input are 4 features of a pair, each as wide as
        # the 2 directions of the LSTM.
        sizes = (4 * 2 * self.hidden, self.head_size, self.head_size, n_classes)
        return PairClassifier(BiLstm(word_size, self.hidden, padding), sizes)

    def step(
        self,
        model: PairClassifier,
        optimiser: torch.optim.Optimizer,
        first: Side,
        second: Side,
        labels: Tensor,
    ) -> float:
        """Learn from one batch of labelled pairs, and return its mean loss.

        A gradient longer than ``clip`` is not shortened; instead the learning rate is reduced for
        this step, as in the authors' code.

        Args:
            model: The classifier of pairs, changed in place.
            optimiser: Stochastic gradient descent over the model's weights.
            first: The word vectors (b, t, w) and lengths (b,) of the first sentences.
            second: Those of the second sentences.
            labels: The numbers of the pairs' classes, (b,).
        """
        optimiser.zero_grad()
        # The mean over the pairs, as in the authors' code.
        loss = nn.functional.cross_entropy(model(first, second), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        gradients = [
            parameter.grad for parameter in model.parameters() if parameter.grad is not None
        ]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        group = optimiser.param_groups[0]
        rate = group["lr"]
        group["lr"] = rate * min(1.0, self.clip / norm) if norm > 0 else rate
        optimiser.step()
        group["lr"] = rate
        return float(loss.detach())

    def _read(self, columns: Columns, vectors: WordVectors) -> tuple[LabelledPairs, int]:
        """Split all sentences into words, and look up their word vectors.

        A sentence without a word that has a vector becomes one zero vector. Labels are numbered in
        alphabetical order.

        Args:
            columns: The corpus of pairs: ``first``, ``second`` and ``label``.
            vectors: The file of word vectors.

        Returns:
            The pairs, and the number of distinct labels.

        Raises:
            TrainingError: All labels are the same.
        """
        tokenize = make_tokeniser(self.tokens, lowercase=self.lowercase)
        # The words that the authors put before and after each sentence: <s> and </s> in version 1,
        # <p> and </p> in version 2.
        release = INFERSENT_RELEASES[self.version]
        texts = [*columns["first"], *columns["second"]]
        # The rows of each text's words in ``table``, a matrix of the word vectors.
        ids_by_text, table = vectors.make_table(
            [[release.start_word, *tokenize(text), release.end_word] for text in texts]
        )
        # The last row of the table is zero.
        tokens = TokenIds.from_lists([ids or [len(table) - 1] for ids in ids_by_text])
        names = sorted(set(columns["label"]))
        if len(names) < 2:
            raise TrainingError(
                f"all pairs have the label '{names[0] if names else ''}': nothing to learn"
            )
        labels = torch.tensor([names.index(label) for label in columns["label"]])
        return LabelledPairs(tokens, labels, table=torch.from_numpy(table)), len(names)


def accuracy(model: PairClassifier, pairs: LabelledPairs, rows: Rows, *, batch: int = 64) -> float:
    """Return the share of pairs that a classifier labels correctly.

    Args:
        model: The classifier.
        pairs: All pairs of the corpus.
        rows: The indices of the pairs to classify.
        batch: The number of pairs at once.
    """
    n_correct = 0
    with torch.inference_mode():
        for start in range(0, len(rows), batch):
            first, second, labels = pairs.batch(rows[start : start + batch])
            n_correct += int((model(first, second).argmax(dim=1) == labels).sum())
    return n_correct / len(rows)
