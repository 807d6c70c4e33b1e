"""Skip-Thoughts and Quick-Thoughts: recurrent encoders of words that learn from neighbours.

Both read ordered text; a sentence's neighbours are the ones before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from stsbench.core.cards import PositiveFloat, PositiveInt
from stsbench.core.errors import TrainingError
from stsbench.core.wording import format_count
from stsbench.encoders.tokens import TokenIds
from stsbench.encoders.words.recurrent import GruCell, GruHalf, GruTable, HalvesConfig, make_batch
from stsbench.encoders.words.words import make_tokeniser
from stsbench.training.learner import Columns, Rows
from stsbench.training.objectives import quick_thoughts
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

    def __init__(self, words: int, sizes: GruTable, *, condition: Condition = "state") -> None:
        """Make Skip-Thoughts' layers, with the initial weights of the authors' code.

        An encoder (a recurrent network, GRU) embeds a sentence; one decoder for each side predicts
        the words of the sentence before and of the one after it.

        Args:
            words: The number of words of the vocabulary.
            sizes: The dimensions of the encoder: ``word_size`` of a word vector, and ``size`` of an
                embedding, which is the GRU's last state, of both directions if it has two.
            condition: How a decoder reads the sentence: ``state``, as its first state, or
                ``steps``, at every step.
        """
        # Makes the encoder: ``self.embedding``, a matrix of word vectors, and ``self.gru``.
        super().__init__(words, sizes)
        self.each_step = condition == "steps"
        input_size = sizes.word_size + (sizes.size if self.each_step else 0)
        # The sides are "next" and "previous".
        self.decoders = nn.ModuleDict(
            {side: nn.GRU(input_size, sizes.size, batch_first=True) for side in NEIGHBOUR_OFFSETS}
        )
        self.output = nn.Linear(sizes.size, words)  # shared by both decoders
        # Square matrices (all recurrent ones) begin orthogonal, the others uniform. The word
        # vectors (``embedding``) have their initial values already.
        for name, parameter in self.named_parameters():
            if "bias" in name:
                nn.init.zeros_(parameter)
                # The authors' GRU has one bias per gate, torch's has two: the second stays zero.
                parameter.requires_grad_("bias_hh" not in name)
            elif name != "embedding":
                # A parameter of a GRU has the matrices of its three gates, one below the other.
                n_matrices = 1 if name == "output.weight" else 3
                for matrix in parameter.detach().chunk(n_matrices):
                    if matrix.shape[0] == matrix.shape[1]:
                        nn.init.orthogonal_(matrix)
                    else:
                        nn.init.uniform_(matrix, -0.1, 0.1)

    def compute_cost(self, tokens: TokenIds, rows: Rows) -> Tensor:
        """Compute Skip-Thoughts' cost of some sentences, a scalar.

        From the embedding of a sentence one decoder predicts the words of the sentence before it,
        and another those of the sentence after it. The cost is the sum of minus the log
        probabilities of all these words (Kiros et al. 2015, section 2). The end of a sentence is a
        word too.

        Args:
            tokens: The word ids of all sentences, in the order of the text.
            rows: The indices of the sentences, (b,), none of them the first or the last of a
                document.
        """
        embeddings = self(*make_batch(tokens, rows))  # (b, d)
        costs = []
        # The sides are "next" and "previous", with the offsets 1 and -1.
        for side, offset in NEIGHBOUR_OFFSETS.items():
            # The neighbours of all sentences on this side: ids (b, t) and their lengths (b,).
            ids, lengths = make_batch(tokens, rows + offset)
            # A decoder reads the word before the one that it predicts, and a zero vector before the
            # first: (b, t, w), the vectors of all words but the last behind one of zeros.
            inputs = nn.functional.pad(self.embedding[ids[:, :-1]], (0, 0, 1, 0))
            initial_state = None
            # A setting: whether a decoder reads the embedding at each step, or as its first state.
            if self.each_step:
                # The sentence's embedding stands beside each word.
                repeated = embeddings.unsqueeze(1).expand(-1, inputs.shape[1], -1)
                inputs = torch.cat([inputs, repeated], dim=2)
            else:
                initial_state = embeddings.unsqueeze(0).contiguous()
            states, _ = self.decoders[side](inputs, initial_state)
            is_word = torch.arange(ids.shape[1]) < lengths.unsqueeze(1)
            # For the words of all neighbours, without padding: (words, vocabulary).
            distributions = torch.softmax(self.output(states[is_word]), dim=1)
            true_probabilities = distributions.gather(1, ids[is_word].unsqueeze(1))
            # A small number is added, as in the authors' code, to keep the logarithm finite.
            costs.append(-torch.log(true_probabilities + ADDED_PROBABILITY).sum())
        return torch.stack(costs).sum()


def released_adam_factor(step: int) -> float:
    """Return by which factor Skip-Thoughts' own Adam takes longer steps than PyTorch's.

    Adam corrects its running means for their start at zero. In the authors' code the means decay by
    0.9 and 0.999 but are corrected as if they decayed by 0.1 and 0.001. This error is reproduced:
    it makes the first steps up to three times as long.

    Args:
        step: The number of the step, from 0.
    """
    t = step + 1
    # The factor of a step by which Adam corrects both means.
    released_correction = (1 - 0.001**t) ** 0.5 / (1 - 0.1**t)
    torch_correction = (1 - 0.999**t) ** 0.5 / (1 - 0.9**t)
    return float(released_correction / torch_correction)


def released_adam_epsilon(step: int) -> float:
    """Return the epsilon with which PyTorch's Adam takes the step of the authors' code.

    Adam divides by the root of the mean squared gradient, plus a small epsilon; the root is
    corrected for the mean's start at zero by the divisor sqrt(1 - 0.999^t) at step t. TensorFlow's
    Adam, and Skip-Thoughts' own, add 1e-8 before this correction, PyTorch after it. So here the
    epsilon is divided too.

    Args:
        step: The number of the step, from 0.
    """
    return ADAM_EPSILON / float((1 - 0.999 ** (step + 1)) ** 0.5)


def limit_norm(gradients: Sequence[Tensor], norm: Tensor, limit: float) -> None:
    """Scale gradients in place so that their norm, if it exceeds the limit, becomes the limit.

    Args:
        gradients: The gradients of some parameters.
        norm: The norm of all of them together, a scalar.
        limit: The largest norm.
    """
    factor = limit / max(float(norm), limit)
    for gradient in gradients:
        gradient.mul_(factor)


@dataclass(frozen=True, kw_only=True)
class NeighbourTraining(StandaloneMethod):
    """The settings that Skip-Thoughts and Quick-Thoughts share."""

    word_size: PositiveInt = 620
    clip: PositiveFloat = 5.0
    max_words: PositiveInt = 30
    tokens: str = "whitespace"
    """The name of the tokeniser that divides sentences into words."""
    lowercase: bool = False
    every: PositiveInt = 1000
    """The number of steps between two validations."""
    steps: PositiveInt | None = None
    """The number of steps after which training ends, whatever the epochs; None for no maximum."""


@dataclass(frozen=True, kw_only=True)
class SkipThoughtsTraining(NeighbourTraining):
    """Training of Skip-Thoughts; the defaults are the released code's.

    Batches hold sources of one length. A triple with a sentence of ``max_words`` or more is
    omitted. Sentences end with a special word, which is not read when embedding.
    """

    hidden: PositiveInt = 2400
    bidirectional: bool = False
    condition: Condition = "state"
    vocabulary: PositiveInt = 20000
    batch_size: PositiveInt = 64
    epochs: PositiveInt = 5
    learning_rate: PositiveFloat = 2e-4
    append_eos: bool = False
    """Whether to read the end of a sentence when embedding too, as in training; the released code
    does so only for SICK."""

    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Prepare Skip-Thoughts' training: read the corpus, make model, optimiser and batches.

        Args:
            columns: The corpus: ``text``, sentences in order, and perhaps ``document_id``.
            seed: The seed of the batches; torch's, of the weights, is set already.

        Returns:
            The model, and the functions with which a loop makes batches and learns.
        """
        tokenize = make_tokeniser(self.tokens, lowercase=self.lowercase)
        rng = np.random.default_rng(seed)
        sentences, documents, vocabulary = read_ordered(
            columns, tokenize, specials=(EOS, UNKNOWN), limit=self.vocabulary
        )
        # Each sentence ends with id 0: the word for the end of a sentence is first in the
        # vocabulary.
        tokens = TokenIds.from_lists(
            [[*ids, 0] for ids in vocabulary.ids(sentences, unknown=UNKNOWN)]
        )
        # The rows of the sentences with two neighbours.
        triples = self.find_triples(tokens, documents)
        # The dimensions of the encoder: a word vector, and the state of each direction.
        sizes = GruTable(
            word_size=self.word_size, hidden=self.hidden, bidirectional=self.bidirectional
        )
        model = SkipThoughts(len(vocabulary.words), sizes, condition=self.condition)
        optimiser = torch.optim.Adam(model.parameters(), lr=self.learning_rate)

        def learn_batch(rows: Rows, step: int) -> tuple[float, int]:
            # A loop prints sum / number of losses: the mean cost of this batch counts as one.
            return self._learn_batch(model, optimiser, tokens, rows, step), 1

        # The number of these sentences of each length: the sentences of a batch have one length.
        _, group_sizes = np.unique(tokens.lengths[triples], return_counts=True)
        return PreparedTraining(
            trained_tensors=model.state_dict(),
            optimiser=optimiser,
            encoder_files=self._encoder_files(model, sizes, vocabulary.words),
            batches=lambda: self.batches(tokens, triples, rng),
            learn_batch=learn_batch,
            steps_per_epoch=int(np.ceil(group_sizes / self.batch_size).sum()),
            # The number of steps between two validations, and the maximum number of steps or None.
            validation_interval=self.every,
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
        """Learn to predict the neighbours of some sentences; return the mean cost of their words.

        Args:
            model: The encoder and decoders, changed in place.
            optimiser: Adam over the model's weights.
            tokens: The word ids of all sentences.
            rows: The indices of the sentences of the batch, (b,).
            step: The number of finished steps.
        """
        # With this rate and epsilon PyTorch's Adam takes the same step as the authors' code.
        rate = self.learning_rate * released_adam_factor(step)
        optimiser.param_groups[0].update(lr=rate, eps=released_adam_epsilon(step))
        optimiser.zero_grad()
        # The cost is summed over all predicted words, and so are its gradients.
        cost = model.compute_cost(tokens, rows)
        cost.backward()  # type: ignore[no-untyped-call]
        gradients = [
            parameter.grad for parameter in model.parameters() if parameter.grad is not None
        ]
        # If the norm of all gradients together is above ``self.clip``, it becomes that.
        limit_norm(gradients, nn.utils.get_total_norm(gradients), self.clip)
        optimiser.step()
        # The number of predicted words: all those of the sentences before and after each.
        n_words = sum(
            int(tokens.lengths[rows + offset].sum()) for offset in NEIGHBOUR_OFFSETS.values()
        )
        return float(cost.detach()) / n_words

    def _encoder_files(
        self, model: SkipThoughts, sizes: GruTable, words: Sequence[str]
    ) -> WordEncoderFiles:
        """Return what is written of the trained encoder: settings, word vectors and GRU.

        Decoders and output layer are only for training.

        Args:
            model: The trained model.
            sizes: The sizes of the encoder's GRU and word vectors, as its ``config.json`` has them.
            words: The vocabulary, in the order of the word vectors.
        """
        # The authors' encoder has two halves, "uni" and "bi" (directional); here one is trained.
        name = "bi" if self.bidirectional else "uni"
        config = HalvesConfig(
            halves={name: sizes}, unknown=UNKNOWN, eos=EOS, lowercase=self.lowercase
        )
        tensors = {
            f"{name}.{key}": tensor
            for key, tensor in model.state_dict().items()
            if key.startswith(("embedding", "gru."))
        }
        # Users may replace these two when they load the encoder; ``config`` is fixed.
        params = {"append_eos": self.append_eos, "tokens": self.tokens}
        return WordEncoderFiles(
            kind="skip_thoughts", config=config, tensors=tensors, params=params, words=words
        )

    def find_triples(self, tokens: TokenIds, documents: npt.NDArray[np.int64]) -> Rows:
        """Return the rows of sentences with two neighbours, all three shorter than ``max_words``.

        The neighbours are the sentences before and after it in its document.

        Args:
            tokens: The word ids of all n sentences, each with the end of the sentence as last word.
            documents: The number of each sentence's document, (n,), in the order of the text.

        Raises:
            TrainingError: There are no such sentences.
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
        """Return one epoch's batches in random order; the sentences of a batch have equal lengths.

        Args:
            tokens: The word ids of all sentences.
            triples: The rows of the sentences with two neighbours, from which is learned.
            rng: The generator of the order of sentences of one length, and of that of batches.

        Returns:
            The rows of each batch, (``batch_size``,) or fewer.
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

    hidden: PositiveInt = 600
    """The size of the state of each of an encoder's two directions."""
    cell: GruCell = "tensorflow"
    max_words: PositiveInt = 50
    """The length at which ``data_prep.sh`` cuts; the 30 of the training script is never read
    there."""
    vocabulary: PositiveInt = 50001
    batch_size: PositiveInt = 400
    learning_rate: PositiveFloat = 5e-4
    scale: PositiveFloat = 0.1

    def prepare(self, columns: Columns, seed: int) -> PreparedTraining:
        """Prepare Quick-Thoughts' training: two encoders, and functions for the loop to call.

        Args:
            columns: The corpus: ``text``, sentences in order.
            seed: Not used: batches keep the order of the text, and torch is seeded already.

        Raises:
            TrainingError: There are fewer sentences than a batch has.
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
                f"{format_count(len(tokens), 'sentence')} cannot fill a batch of "
                f"{self.batch_size}; lower batch_size"
            )
        sizes = GruTable(
            word_size=self.word_size, hidden=self.hidden, bidirectional=True, cell=self.cell
        )
        halves = {
            # Two encoders that share no weights: a sentence is embedded by one, its neighbours by
            # the other. Word vectors begin uniform from -scale to scale.
            name: GruHalf(len(vocabulary.words), sizes, scale=self.scale)
            for name in ("f", "g")
        }
        model = nn.ModuleDict(halves)
        optimiser = torch.optim.Adam(model.parameters(), lr=self.learning_rate)
        config = HalvesConfig(
            halves=dict.fromkeys(halves, sizes), unknown="<unk>", lowercase=self.lowercase
        )

        def learn_batch(rows: Rows, step: int) -> tuple[float, int]:
            # A mean loss counts as one.
            return self._learn_batch(list(halves.values()), optimiser, tokens, rows, step), 1

        # A batch is consecutive sentences; those at the end that are too few are omitted.
        n_batches = len(tokens) // self.batch_size
        batches = np.arange(n_batches * self.batch_size).reshape(-1, self.batch_size)
        return PreparedTraining(
            trained_tensors=model.state_dict(),
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
            validation_interval=self.every,
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
        """Learn from consecutive sentences, and return Quick-Thoughts' loss of them.

        Each gradient is clipped to the norm ``clip`` by itself. That of the word vectors is clipped
        per occurrence of a word in the batch, before the gradients of one word are summed.

        Args:
            halves: The two encoders, changed in place.
            optimiser: Adam over the weights of both.
            tokens: The word ids of all sentences.
            rows: The indices of the sentences of the batch, consecutive, (b,).
            step: The number of finished steps.
        """
        ids, lengths = make_batch(tokens, rows)  # (b, t) and (b,)
        # The word vectors of each encoder, (words, w), and those of the batch's words, (b, t, w).
        tables = [half.embedding for half in halves]
        word_vectors = [table[ids] for table in tables]
        gru_weights = [weight for half in halves for weight in half.gru.parameters()]
        # The embeddings (b, d) by either encoder.
        first, second = (
            half.gru(vectors, lengths) for half, vectors in zip(halves, word_vectors, strict=True)
        )
        # The logit of a sentence j for i is the product of first[i] and second[j]; the targets are
        # the sentences before and after i. A mean over sentences.
        loss = quick_thoughts(first, second)
        gradients = torch.autograd.grad(loss, [*gru_weights, *word_vectors])
        for gradient in gradients:
            limit_norm([gradient], gradient.norm(), self.clip)
        gru_gradients = gradients[: len(gru_weights)]
        word_gradients = gradients[len(gru_weights) :]
        for weight, gradient in zip(gru_weights, gru_gradients, strict=True):
            weight.grad = gradient
        for table, gradient in zip(tables, word_gradients, strict=True):
            # A word that occurs several times gets the sum of its gradients.
            gradient_rows = gradient.flatten(0, 1)
            table.grad = torch.zeros_like(table).index_add_(0, ids.flatten(), gradient_rows)
        optimiser.param_groups[0]["eps"] = released_adam_epsilon(step)
        optimiser.step()
        return float(loss.detach())
