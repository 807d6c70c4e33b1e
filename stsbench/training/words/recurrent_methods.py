"""Training of recurrent encoders of words: Skip-Thoughts, Quick-Thoughts and InferSent.

The first two learn from neighbours in ordered text, InferSent from labelled pairs (Conneau et al.
2017, arXiv 1705.02364, section 3; its released code).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stsbench.core.errors import TrainingError
from stsbench.encoders.cached_files import cached_digest
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.words.recurrent import (
    VERSIONS,
    BiLstm,
    GruCell,
    GruHalf,
    GruTable,
    HalvesConfig,
    InferSentConfig,
    Padding,
    make_batch,
)
from stsbench.encoders.words.vectors import WordVectors, open_vectors
from stsbench.encoders.words.words import find_vectors, make_tokeniser
from stsbench.training.learner import Columns, Rows
from stsbench.training.objectives import pair_features, quick_thoughts
from stsbench.training.words.rounds import (
    PreparedTraining,
    StandaloneMethod,
    WordEncoderFiles,
    read_ordered,
    rows_with_neighbours,
)

Condition = Literal["state", "steps"]
"""The decoder's input of the sentence: as its first state, as released, or at every step, as in the
paper."""
EOS = "<eos>"
UNKNOWN = "UNK"
"""The special words of Skip-Thoughts: the end of a sentence, and a word not in the vocabulary."""
NEIGHBOUR_OFFSETS = {"next": 1, "previous": -1}
"""The distance of each neighbour in the text."""
ADDED_PROBABILITY = 1e-8
"""A number added to probabilities before their logarithm, as released."""
ADAM_EPSILON = 1e-8


class SkipThoughts(GruHalf):
    """An encoder and two decoders that predict the words of both neighbours.

    They share word vectors and the output layer. Kiros et al. 2015, arXiv 1506.06726, section 2;
    weights begin as in the released code.
    """

    def __init__(self, words: int, half: GruTable, *, condition: Condition = "state") -> None:
        """Make the layers with the released code's initial weights.

        Args:
            words: The number of words of the vocabulary.
            half: The sizes of word vectors and states of the encoder.
            condition: How a decoder reads the sentence: as its first state, or at every step.
        """
        super().__init__(words, half)
        self.each_step = condition == "steps"
        input_size = half.word_size + (half.size if self.each_step else 0)
        self.decoders = nn.ModuleDict(
            {side: nn.GRU(input_size, half.size, batch_first=True) for side in NEIGHBOUR_OFFSETS}
        )
        self.output = nn.Linear(half.size, words)
        # Gate by gate: square matrices (all recurrent ones) are orthogonal, others uniform.
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
                # The released GRU has one bias per gate.
                parameter.requires_grad_("bias_hh" not in name)
            elif name != "embedding":
                # The matrices of a GRU are those of its three gates, one below the other.
                for matrix in parameter.detach().chunk(1 if name == "output.weight" else 3):
                    if matrix.shape[0] == matrix.shape[1]:
                        nn.init.orthogonal_(matrix)
                    else:
                        nn.init.uniform_(matrix, -0.1, 0.1)

    def compute_cost(self, tokens: TokenIds, rows: Rows) -> Tensor:
        """Compute the summed cost of some sentences, a scalar.

        It is minus the log probability of every word of the sentences before and after each, by a
        decoder for either side (Kiros et al. 2015, section 2). The end of a sentence is a word.

        Args:
            tokens: The word ids of all sentences, in the order of the text.
            rows: The sentences, (b,), none of them the first or the last of a document.
        """
        sentences = self(*make_batch(tokens, rows))
        costs = []
        for side, step in NEIGHBOUR_OFFSETS.items():
            # The neighbours of all sentences on this side: ids (b, t) and their lengths (b,).
            ids, lengths = make_batch(tokens, rows + step)
            # A decoder reads the word before the one that it predicts, and a zero vector before the
            # first: (b, t, w), the vectors of all words but the last behind one of zeros.
            words = nn.functional.pad(self.embedding[ids[:, :-1]], (0, 0, 1, 0))
            initial_state = None
            if self.each_step:
                words = torch.cat(
                    [words, sentences.unsqueeze(1).expand(-1, words.shape[1], -1)], dim=2
                )
            else:
                initial_state = sentences.unsqueeze(0).contiguous()
            states, _ = self.decoders[side](words, initial_state)
            is_word = torch.arange(ids.shape[1]) < lengths.unsqueeze(1)
            # Of the true words of all neighbours alone, (words, 1); ADDED_PROBABILITY keeps the
            # logarithm finite, as released.
            probabilities = torch.softmax(self.output(states[is_word]), dim=1).gather(
                1, ids[is_word].unsqueeze(1)
            )
            costs.append(-torch.log(probabilities + ADDED_PROBABILITY).sum())
        return torch.stack(costs).sum()


def released_adam_factor(step: int) -> float:
    """Return the released Adam's learning rate at this step, as a factor of PyTorch's.

    Its means decay by 0.9 and 0.999, but are corrected for 0.1 and 0.001, an error of the released
    code that is reproduced: the first steps are up to three times as long.

    Args:
        step: The number of the step, from 0.
    """
    t = step + 1
    released_correction = (1 - 0.001**t) ** 0.5 / (1 - 0.1**t)
    torch_correction = (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
    return float(released_correction / torch_correction)


def released_adam_epsilon(step: int) -> float:
    """Return the epsilon with which PyTorch's Adam takes the released step.

    TensorFlow's code, and Skip-Thoughts' own, add 1e-8 to the root of the second mean before its
    correction, PyTorch after.

    Args:
        step: The number of the step, from 0.
    """
    return ADAM_EPSILON / float((1 - 0.999 ** (step + 1)) ** 0.5)


def limit_norm(gradients: Sequence[Tensor], norm: Tensor, limit: float) -> None:
    """Scale gradients in place so that their norm, if above the limit, is the limit.

    Args:
        gradients: The gradients.
        norm: The norm of all of them together, a scalar.
        limit: The largest norm.
    """
    factor = limit / max(float(norm), limit)
    for gradient in gradients:
        gradient.mul_(factor)


@dataclass(frozen=True, kw_only=True)
class NeighbourTraining(StandaloneMethod):
    """The settings that Skip-Thoughts and Quick-Thoughts share."""

    word_size: int = 620
    clip: float = 5.0
    max_words: int = 30
    tokens: str = "whitespace"
    lowercase: bool = False
    every: int = 1000
    steps: int | None = None


@dataclass(frozen=True, kw_only=True)
class SkipThoughtsTraining(NeighbourTraining):
    """Training of Skip-Thoughts; the defaults are the released code's.

    Batches hold sources of one length. A triple with a sentence of ``max_words`` or more is
    omitted. Sentences end with a special word, which is not read when embedding.
    """

    hidden: int = 2400
    bidirectional: bool = False
    condition: Condition = "state"
    vocabulary: int = 20000
    batch_size: int = 64
    epochs: int = 5
    learning_rate: float = 2e-4
    append_eos: bool = False
    """Whether to read the end of a sentence when embedding too, as in training; the released code
    does so only for SICK."""

    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Read the column ``text`` (and ``document_id``), and make model, optimiser and batches.

        Args:
            columns: The corpus, sentences in the order of the text.
            seed: The seed of the batches; torch's, of the weights, is set already.
        """
        tokenize = make_tokeniser(self.tokens, lowercase=self.lowercase)
        rng = np.random.default_rng(seed)
        sentences, documents, vocabulary = read_ordered(
            columns, tokenize, specials=(EOS, UNKNOWN), limit=self.vocabulary
        )
        # 0 is EOS, the first word.
        tokens = TokenIds.from_lists(
            [[*ids, 0] for ids in vocabulary.ids(sentences, unknown=UNKNOWN)]
        )
        triples = self.find_triples(tokens, documents)
        table = GruTable(
            word_size=self.word_size, hidden=self.hidden, bidirectional=self.bidirectional
        )
        model = SkipThoughts(len(vocabulary.words), table, condition=self.condition)
        optimiser = torch.optim.Adam(model.parameters(), lr=self.learning_rate)

        def learn_batch(rows: Rows, step: int) -> tuple[float, int]:
            return self._learn_batch(model, optimiser, tokens, rows, step), 1

        # How many triples have a source of each length: batches hold one length.
        _, sizes = np.unique(tokens.lengths[triples], return_counts=True)
        return PreparedTraining(
            tensors=model.state_dict(),
            optimiser=optimiser,
            encoder_files=self._encoder_files(model, table, vocabulary.words),
            batches=lambda: self.batches(tokens, triples, rng),
            learn_batch=learn_batch,
            steps_per_epoch=int(np.ceil(sizes / self.batch_size).sum()),
            tokens_per_epoch=3 * int(tokens.lengths[triples].sum()),
            interval=self.every,
            max_steps=self.steps,
        )

    def _learn_batch(
        self,
        model: SkipThoughts,
        optimiser: torch.optim.Optimizer,
        tokens: TokenIds,
        rows: Rows,
        step: int,
    ) -> float:
        """Learn from some sentences' neighbours, and return the mean cost of a word.

        Args:
            model: The encoder and decoders, changed in place.
            optimiser: Adam, set to the steps of the released code.
            tokens: The word ids of all sentences.
            rows: The sentences of the batch, (b,).
            step: The number of finished steps.
        """
        rate = self.learning_rate * released_adam_factor(step)
        optimiser.param_groups[0].update(lr=rate, eps=released_adam_epsilon(step))
        optimiser.zero_grad()
        cost = model.compute_cost(tokens, rows)
        cost.backward()  # type: ignore[no-untyped-call]
        gradients = [
            parameter.grad for parameter in model.parameters() if parameter.grad is not None
        ]
        limit_norm(gradients, nn.utils.get_total_norm(gradients), self.clip)
        optimiser.step()
        n_words = sum(int(tokens.lengths[rows + side].sum()) for side in NEIGHBOUR_OFFSETS.values())
        return float(cost.detach()) / n_words

    def _encoder_files(
        self, model: SkipThoughts, table: GruTable, words: Sequence[str]
    ) -> WordEncoderFiles:
        """Return the encoder without the decoders and the output layer.

        Args:
            model: The trained model.
            table: The sizes of the encoder's layers.
            words: The vocabulary, in the order of the word vectors.
        """
        name = "bi" if self.bidirectional else "uni"
        config = HalvesConfig(
            halves={name: table}, unknown=UNKNOWN, eos=EOS, lowercase=self.lowercase
        )
        tensors = {
            f"{name}.{key}": tensor
            for key, tensor in model.state_dict().items()
            if key.startswith(("embedding", "gru."))
        }
        params = {"append_eos": self.append_eos, "tokens": self.tokens}
        return WordEncoderFiles(
            kind="skip_thoughts", config=config, tensors=tensors, params=params, words=words
        )

    def find_triples(self, tokens: TokenIds, documents: npt.NDArray[np.int64]) -> Rows:
        """Return the rows of sentences with two neighbours, all three shorter than ``max_words``.

        Args:
            tokens: The word ids of all n sentences, each with the end of the sentence as last word.
            documents: The number of each sentence's document, (n,); a neighbour is of the same one.

        Raises:
            TrainingError: There are none.
        """
        is_short = tokens.lengths - 1 < self.max_words  # 1: the end of the sentence
        rows = rows_with_neighbours(documents)
        short_rows = rows[is_short[rows - 1] & is_short[rows] & is_short[rows + 1]]
        if not len(short_rows):
            raise TrainingError(
                f"no three neighbouring sentences are shorter than {self.max_words} words"
            )
        return short_rows

    def batches(self, tokens: TokenIds, triples: Rows, rng: np.random.Generator) -> list[Rows]:
        """Return one epoch's batches in random order, the sources of each of equal length.

        Args:
            tokens: The word ids of all sentences.
            triples: The rows of the sources, sentences with two neighbours.
            rng: The generator of the order within a length, and of that of batches.
        """
        lengths = tokens.lengths[triples]
        batches: list[Rows] = []
        for length in np.unique(lengths):
            rows = rng.permutation(triples[lengths == length])
            batches += [
                rows[start : start + self.batch_size]
                for start in range(0, len(rows), self.batch_size)
            ]
        return [batches[index] for index in rng.permutation(len(batches))]


@dataclass(frozen=True, kw_only=True)
class QuickThoughtsTraining(NeighbourTraining):
    """Training of Quick-Thoughts, which finds the neighbours of a sentence in a batch of text.

    Logeswaran and Lee 2018, arXiv 1803.02893. The defaults are the released configuration's
    (trained word vectors). Batches are stretches of the text in its order, beyond the borders of
    documents too; sentences are cut at ``max_words``. As in TensorFlow, each tensor's gradient is
    clipped by its own norm, that of a word table before the rows of one word are summed.
    """

    hidden: int = 600
    """The size of the state of each of an encoder's two directions."""
    cell: GruCell = "tensorflow"
    max_words: int = 50
    """The length at which ``data_prep.sh`` cuts; the 30 of the training script is never read
    there."""
    vocabulary: int = 50001
    batch_size: int = 400
    learning_rate: float = 5e-4
    scale: float = 0.1

    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Read the column ``text``, and make both encoders, their optimiser and the batches.

        Args:
            columns: The corpus, sentences in the order of the text.
            seed: Not used: batches keep the order of the text, and torch is seeded already.
        """
        tokenize = make_tokeniser(self.tokens, lowercase=self.lowercase)
        sentences, _, vocabulary = read_ordered(
            columns, tokenize, specials=("<unk>",), limit=self.vocabulary
        )
        # Empty sentences are omitted.
        cut_sentences = (sentence[: self.max_words] for sentence in sentences if sentence)
        tokens = TokenIds.from_lists(vocabulary.ids(cut_sentences, unknown="<unk>"))
        if len(tokens) < self.batch_size:
            raise TrainingError(
                f"{len(tokens)} sentences make no batch of {self.batch_size}; lower batch_size"
            )
        table = GruTable(
            word_size=self.word_size, hidden=self.hidden, bidirectional=True, cell=self.cell
        )
        halves = {
            # Two encoders that share no weights: a sentence is embedded by one, its neighbours by
            # the other.
            name: GruHalf(len(vocabulary.words), table, scale=self.scale)
            for name in ("f", "g")
        }
        model = nn.ModuleDict(halves)
        optimiser = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        config = HalvesConfig(
            halves=dict.fromkeys(halves, table), unknown="<unk>", lowercase=self.lowercase
        )

        def learn_batch(rows: Rows, step: int) -> tuple[float, int]:
            return self._learn_batch(list(halves.values()), optimiser, tokens, rows, step), 1

        # Sentences at the text's end that are too few for a batch are omitted.
        n_batches = len(tokens) // self.batch_size
        batches = np.arange(n_batches * self.batch_size).reshape(-1, self.batch_size)
        return PreparedTraining(
            tensors=model.state_dict(),
            optimiser=optimiser,
            encoder_files=WordEncoderFiles(
                kind="quick_thoughts",
                config=config,
                tensors=model.state_dict(),
                params={"tokens": self.tokens},
                words=vocabulary.words,
            ),
            batches=lambda: batches,
            learn_batch=learn_batch,
            steps_per_epoch=len(batches),
            tokens_per_epoch=len(tokens.ids),
            interval=self.every,
            max_steps=self.steps,
        )

    def _learn_batch(
        self,
        halves: Sequence[GruHalf],
        optimiser: torch.optim.Optimizer,
        tokens: TokenIds,
        rows: Rows,
        step: int,
    ) -> float:
        """Learn from consecutive sentences and return the loss.

        The word vectors of the batch are leaves of the gradient, so that they can be clipped before
        those of one word are summed.

        Args:
            halves: The two encoders, changed in place.
            optimiser: Adam over the weights of both.
            tokens: The word ids of all sentences.
            rows: The sentences of the batch, consecutive, (b,).
            step: The number of finished steps.
        """
        ids, lengths = make_batch(tokens, rows)
        tables = [half.embedding for half in halves]
        layers = [parameter for half in halves for parameter in half.gru.parameters()]
        word_vectors = [table[ids] for table in tables]
        first, second = (
            half.gru(vectors, lengths) for half, vectors in zip(halves, word_vectors, strict=True)
        )
        loss = quick_thoughts(first, second)
        gradients = torch.autograd.grad(loss, [*layers, *word_vectors])
        for gradient in gradients:
            limit_norm([gradient], gradient.norm(), self.clip)
        # The gradients of layers come first; those of the words follow.
        for layer, gradient in zip(layers, gradients, strict=False):
            layer.grad = gradient
        for table, gradient in zip(tables, gradients[len(layers) :], strict=True):
            # A word that occurs several times gets the sum of its gradients.
            rows_of_words = gradient.flatten(0, 1)
            table.grad = torch.zeros_like(table).index_add_(0, ids.flatten(), rows_of_words)
        optimiser.param_groups[0]["eps"] = released_adam_epsilon(step)
        optimiser.step()
        return float(loss.detach())


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
        """Return logits (b, c) of the classes of pairs.

        Args:
            first: The first sentences.
            second: The second sentences.
        """
        logits: Tensor = self.head(
            pair_features(self.encoder(*first), self.encoder(*second), kinds="infersent")
        )
        return logits


class LabelledPairs(NamedTuple):
    """Labelled pairs, all first sentences and then all second ones, as rows of word vectors.

    The table of word vectors is (words + 1, w); its last row is zero.
    """

    tokens: TokenIds
    labels: Tensor
    table: Tensor

    def batch(self, rows: Rows) -> tuple[Side, Side, Tensor]:
        """Return some pairs and their labels (b,).

        Args:
            rows: The indices of the pairs, (b,).
        """
        # Second sentences come behind all the first ones. Row -1 of the table, the last, is the
        # zero vector of padding.
        sides = (make_batch(self.tokens, rows + start, pad=-1) for start in (0, len(self.labels)))
        first, second = ((self.table[ids], lengths) for ids, lengths in sides)
        return first, second, self.labels[torch.from_numpy(rows)]


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
    hidden: int = 2048
    head_size: int = 512
    batch_size: int = 64
    epochs: int = 20
    learning_rate: float = 0.1
    decay: float = 0.99
    shrink: float = 5.0
    min_rate: float = 1e-5
    clip: float = 5.0
    tokens: str = "whitespace"
    lowercase: bool = False
    held_out: float = 0.1
    """The share of pairs, the last ones, on which accuracy is computed."""

    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Read the columns ``first``, ``second`` and ``label``, and make model, optimiser, batches.

        Args:
            columns: The corpus of pairs.
            seed: The seed of the order of pairs; torch's, of the weights, is set already.
        """
        path = find_vectors(self.vectors)
        digest = cached_digest(path)
        rng = np.random.default_rng(seed)
        vectors = open_vectors(path, sha256=digest)
        pairs, n_classes = self._read(columns, vectors)
        n_pairs = len(pairs.labels)
        n_training = round(n_pairs * (1 - self.held_out))
        if not 0 < n_training < n_pairs:
            raise TrainingError(
                f"{n_pairs} pairs, of which {n_training} to learn from; "
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
            if step and step % steps_per_epoch == 0:
                optimiser.param_groups[0]["lr"] *= self.decay
            return self.step(model, optimiser, *pairs.batch(rows)), 1

        def examine_round(best_accuracy: float) -> tuple[float, dict[str, float]]:
            # The released code compares hundredths of a point.
            new_accuracy = round(accuracy(model, pairs, np.arange(n_training, n_pairs)), 4)
            if new_accuracy <= best_accuracy:
                optimiser.param_groups[0]["lr"] /= self.shrink
            return new_accuracy, {
                "accuracy": new_accuracy,
                "learning_rate": optimiser.param_groups[0]["lr"],
            }

        return PreparedTraining(
            tensors=model.state_dict(),
            optimiser=optimiser,
            encoder_files=self._encoder_files(model.encoder, vectors.shape[1], digest),
            batches=batches,
            learn_batch=learn_batch,
            steps_per_epoch=steps_per_epoch,
            tokens_per_epoch=len(pairs.tokens.ids),
            examine_round=examine_round,
            is_finished=lambda: optimiser.param_groups[0]["lr"] < self.min_rate,
        )

    def _encoder_files(
        self, encoder: BiLstm, word_size: int, vectors_sha256: str
    ) -> WordEncoderFiles:
        """Return the encoder without the classifier.

        Args:
            encoder: The trained encoder.
            word_size: The size of a word vector.
            vectors_sha256: The hash of the file of word vectors, which the encoder needs too.
        """
        config = InferSentConfig(
            version=self.version,
            word_size=word_size,
            hidden=self.hidden,
            vectors=self.vectors,
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
        """Make encoder and head.

        Version 1 is trained with padding in the maximum, as it was originally: a zero at padding
        may then win over the states of the words.

        Args:
            word_size: The size of a word vector.
            n_classes: The number of distinct labels.
        """
        padding: Padding = "batch" if self.version == 1 else "masked"
        # 4 features of pairs, each of 2 directions of the LSTM.
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
        """Learn from one batch and return its mean loss.

        A long gradient reduces the learning rate for this step only, as in the released code.

        Args:
            model: The classifier of pairs, changed in place.
            optimiser: SGD over its weights.
            first: The first sentences of b pairs.
            second: The second sentences.
            labels: The classes of the pairs, (b,).
        """
        optimiser.zero_grad()
        # In the released code the losses are summed and divided by the batch size.
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
        """Look up the words of all pairs; a sentence without a known word is one zero vector.

        Args:
            columns: The corpus of pairs.
            vectors: The file of word vectors.

        Returns:
            The pairs, and the number of distinct labels.

        Raises:
            TrainingError: All labels are the same.
        """
        tokenize = make_tokeniser(self.tokens, lowercase=self.lowercase)
        release = VERSIONS[self.version]
        texts = [*columns["first"], *columns["second"]]
        ids_by_text, table = vectors.make_table(
            [[release.bos, *tokenize(text), release.eos] for text in texts]
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
