"""Encoders that read a sentence word by word: InferSent, Skip-Thoughts, Quick-Thoughts.

Their layers are used for training too. Skip-Thoughts (Kiros et al. 2015) and Quick-Thoughts
(Logeswaran & Lee 2018) are GRUs side by side: each half has its own word table and GRU, and embeds
the whole sentence with its last state; the halves are scaled to length 1 one by one and joined.
Unknown words are read as one word of the vocabulary, never dropped. InferSent (Conneau et al. 2017,
arXiv 1705.02364) is the maximum over the states of a bidirectional LSTM. Both released versions are
here, with their words around a sentence, their tokenisers and the effect of padding on their
maximum. Words without a vector are dropped. Published weights become folders that ``load_encoder``
opens (:mod:`stsbench.encoders.words.convert`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from stsbench.core.errors import CardError, DataError, EncoderError, look_up, translate_errors
from stsbench.encoders.accelerator import resolve_device_name
from stsbench.encoders.backends import check_device
from stsbench.encoders.base import FloatArray, IndexArray
from stsbench.encoders.cached_files import cached_file_sha256
from stsbench.encoders.metadata import check_sentences
from stsbench.encoders.tokens import TokenIds, plan_batches
from stsbench.encoders.words.vectors import WordVectors, open_vectors
from stsbench.encoders.words.words import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    SavedConfig,
    SavedWordEncoder,
    find_vectors,
)

TOKEN_BUDGET = 4096
Padding = Literal["zeros", "batch", "masked"]
"""How a maximum over time treats padding, see :data:`MAXIMA_OVER_TIME`."""
HalfName = Annotated[str, msgspec.Meta(pattern="^(uni|bi|f|g)$")]
GruCell = Literal["torch", "tensorflow"]
"""The kind of GRU: with the reset gate after the recurrent product (also in Theano), or before."""


MAXIMA_OVER_TIME: Mapping[str, Callable[[Tensor], Tensor]] = {
    # As InferSent 1 was released, the zeros of padding take part: an embedding depends on whether
    # the batch has a longer sentence.
    "batch": lambda states: states.amax(dim=1),
    # A zero takes part for every sentence, as in InferSent 1 for all but the longest of a batch.
    "zeros": lambda states: states.amax(dim=1).clamp(min=0),
    # As in InferSent 2, no value that is exactly zero takes part, even if it is a true zero.
    "masked": lambda states: states.masked_fill(states == 0, -1e9).amax(dim=1),
}
"""The maximum over time (b, d) of states (b, t, d) that are zero behind a sentence's end."""


class BiLstm(nn.Module):
    """InferSent's encoder: the maximum over the states of a bidirectional LSTM."""

    def __init__(self, word_size: int, hidden: int, padding: Padding = "batch") -> None:
        """Make the LSTM with torch's own initial weights.

        Args:
            word_size: The size of a word vector.
            hidden: The size of the state of each direction.
            padding: How the maximum treats the zeros at padding: ``batch``, they take part;
                ``zeros``, a zero takes part in every sentence; ``masked``, no zero takes part.
        """
        super().__init__()
        self.enc_lstm = nn.LSTM(word_size, hidden, bidirectional=True, batch_first=True)
        self.maximum = look_up("padding", padding, MAXIMA_OVER_TIME)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return embeddings (b, 2h): the maximum of each dimension over the states of a sentence.

        Args:
            vectors: Word vectors (b, t, w), with padding behind each sentence.
            lengths: The number of words of each sentence, (b,), at least 1.
        """
        packed = pack_padded_sequence(
            vectors, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        packed_states, _ = self.enc_lstm(packed)
        states, _ = pad_packed_sequence(packed_states, batch_first=True)  # zero at padding
        return self.maximum(states)  # the argument ``padding`` decides whether zeros take part


def make_batch(tokens: TokenIds, rows: IndexArray, *, pad: int = 0) -> tuple[Tensor, Tensor]:
    """Return the word ids of some sentences as one batch, and their lengths.

    Args:
        tokens: The word ids of all sentences.
        rows: The b sentences of the batch, as indices into ``tokens``.
        pad: The id in the padding, which follows shorter sentences.

    Returns:
        The ids, (b, t), and the number of words of each sentence, (b,).
    """
    ids, _ = tokens.pad(rows, pad_token=pad)
    return torch.from_numpy(ids), torch.from_numpy(tokens.lengths[rows])


class Gru(nn.Module):
    """One GRU, in one direction or both; a sentence is its last state."""

    def __init__(
        self, word_size: int, hidden: int, *, bidirectional: bool = False, cell: GruCell = "torch"
    ) -> None:
        """Make one GRU, or two for both directions, with new weights.

        Args:
            word_size: The size of a word vector.
            hidden: The size of the state of each direction; the last states of both are joined.
            bidirectional: Also read the sentence from its end to its beginning.
            cell: ``torch``, or ``tensorflow``, which resets the state before its product.
        """
        super().__init__()
        cell_type = LastState if cell == "torch" else ResetBeforeGru
        self.directions = nn.ModuleList(
            cell_type(word_size, hidden) for _ in range(2 if bidirectional else 1)
        )

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the GRU's state after the last word of each sentence; of both directions, joined.

        Args:
            vectors: Word vectors (b, t, w), with padding behind each sentence.
            lengths: The number of words of each sentence, (b,), at least 1.

        Returns:
            States (b, h), or (b, 2h) if the GRU is bidirectional: forwards, then backwards.
        """
        inputs_of_directions = [vectors]
        if len(self.directions) == 2:
            # Each sentence is reversed: step i reads the word at length - 1 - i. That is negative
            # in the padding, which stays where it is.
            steps = torch.arange(vectors.shape[1], device=vectors.device)
            positions = lengths.to(vectors.device).unsqueeze(1) - 1 - steps
            positions = torch.where(positions >= 0, positions, steps)
            inputs_of_directions.append(
                vectors.gather(1, positions.unsqueeze(2).expand_as(vectors))
            )
        # Each direction is a layer that returns its state after the last word, (b, h).
        last_states = [
            gru(inputs, lengths)
            for gru, inputs in zip(self.directions, inputs_of_directions, strict=True)
        ]
        return torch.cat(last_states, dim=1)


class LastState(nn.Module):
    """PyTorch's GRU, which equals Theano's if the recurrent biases are zero."""

    def __init__(self, word_size: int, hidden: int) -> None:
        """Make the layer with torch's own initial weights, and no recurrent bias."""
        super().__init__()
        self.gru = nn.GRU(word_size, hidden, batch_first=True)
        for name, parameter in self.gru.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(parameter)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the state (b, h) after the last word of each sentence.

        Args:
            vectors: Word vectors (b, t, w), with padding behind each sentence.
            lengths: The number of words of each sentence, (b,), at least 1.
        """
        # A packed sequence has no padding, so that the GRU stops at the end of each sentence.
        packed = pack_padded_sequence(
            vectors, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        _, last_states = self.gru(packed)
        last_state: Tensor = last_states[0]  # of the only layer
        return last_state


class ResetBeforeGru(nn.Module):
    """TensorFlow's GRU: the state is reset before its product, and gates begin open (bias 1)."""

    def __init__(self, word_size: int, hidden: int) -> None:
        """Make the layer with the initial weights of TensorFlow's GRU.

        Matrices are drawn by Glorot's rule; the biases of the gates are 1, of the candidate 0.

        Args:
            word_size: The size of a word vector.
            hidden: The size of the state.
        """
        super().__init__()
        self.gates = nn.Linear(word_size + hidden, 2 * hidden)
        self.candidate = nn.Linear(word_size + hidden, hidden)
        nn.init.xavier_uniform_(self.gates.weight)
        nn.init.xavier_uniform_(self.candidate.weight)
        nn.init.ones_(self.gates.bias)
        nn.init.zeros_(self.candidate.bias)
        self.hidden = hidden

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the state (b, h) after the last word of each sentence.

        The steps are those of ``GRUCell`` in TensorFlow 1. There the reset gate multiplies the
        state; in torch's GRU it multiplies the product of the state and its weights.

        Args:
            vectors: Word vectors (b, t, w), with padding behind each sentence.
            lengths: The number of words of each sentence, (b,).
        """
        state = vectors.new_zeros(len(vectors), self.hidden)
        lengths = lengths.to(vectors.device)
        for step in range(vectors.shape[1]):
            word = vectors[:, step]
            gates = torch.sigmoid(self.gates(torch.cat([word, state], dim=1)))
            reset, update = gates.chunk(2, dim=1)
            candidate = torch.tanh(self.candidate(torch.cat([word, reset * state], dim=1)))
            next_state = update * state + (1 - update) * candidate
            # A sentence that has ended keeps its state.
            state = torch.where((step < lengths).unsqueeze(1), next_state, state)
        return state


Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]


def fill_network(
    make_network: Callable[[], nn.Module], tensors: Mapping[str, Tensor], *, message_prefix: object
) -> nn.Module:
    """Return a network with given weights, in evaluation mode.

    It is first made without memory, because a configuration may name any sizes.

    Args:
        make_network: Makes the network.
        tensors: Its weights by name.
        message_prefix: The beginning of error messages.

    Raises:
        EncoderError: A weight is missing, unknown, or of another shape.
    """
    with torch.device("meta"):
        network = make_network()
    with translate_errors(str(message_prefix), EncoderError, RuntimeError):
        network.load_state_dict(dict(tensors), assign=True)
    return network.eval()


class GruTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The sizes of one GRU and its word table."""

    word_size: Size
    """The size of a word vector."""
    hidden: Size
    """The size of the state of each direction."""
    bidirectional: bool = False
    cell: GruCell = "torch"
    """The library whose steps the GRU takes, ``torch`` or ``tensorflow``."""

    @property
    def size(self) -> int:
        """The size of its embedding."""
        return self.hidden * (2 if self.bidirectional else 1)


class GruHalf(nn.Module):
    """A GRU and the vectors of its words, which begin uniform within ``scale``."""

    def __init__(self, n_words: int, half: GruTable, *, scale: float = 0.1) -> None:
        """Make the layers for a vocabulary of this size."""
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(n_words, half.word_size).uniform_(-scale, scale))
        self.gru = Gru(
            half.word_size, half.hidden, bidirectional=half.bidirectional, cell=half.cell
        )

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return embeddings (b, d): the GRU's last state of each sentence.

        The word table stays in main memory; only the vectors of the batch go to the GRU's device.

        Args:
            ids: The word ids of the sentences, (b, t), with any valid ids as padding.
            lengths: The number of words of each sentence, (b,).
        """
        device = next(self.gru.parameters()).device
        last_states: Tensor = self.gru(self.embedding[ids].to(device), lengths)
        return last_states


class HalvesConfig(SavedConfig, frozen=True, kw_only=True):
    """``config.json`` of a saved Skip-Thoughts or Quick-Thoughts encoder."""

    halves: Annotated[dict[HalfName, GruTable], msgspec.Meta(min_length=1)]
    unknown: str
    """The word that unknown words are read as."""
    eos: str = ""
    """The word for a sentence's end; empty if the vocabulary has none."""

    def make_network(self, n_words: int) -> nn.ModuleDict:
        """Make the halves for a vocabulary of this size, without weights."""
        return nn.ModuleDict({name: GruHalf(n_words, half) for name, half in self.halves.items()})


def _device_layers(network: nn.Module) -> list[nn.Module]:
    """Return the layers of a network that run on a device, which are not its word tables."""
    return [layer for layer in network.modules() if isinstance(layer, Gru | BiLstm)]


class RecurrentEncoder(SavedWordEncoder):
    """A saved encoder whose layers run on a device, over batches of sentences of similar length."""

    batch: int | None = None
    """The number of sentences of a batch, longest first; None for a budget of tokens."""

    def __init__(self, model: str, name: str, revision: str, tokens: str, device: str) -> None:
        """Find the folder; see :class:`SavedWordEncoder`."""
        check_device(device)
        super().__init__(model, name, revision, tokens)
        self.device = device

    @abstractmethod
    def make_network(self) -> nn.Module:
        """Make the network, without weights."""

    @cached_property
    def network(self) -> nn.Module:
        """The network with its weights, loaded at the first access.

        Its recurrent layers are on the device; its word tables stay in main memory.

        Raises:
            EncoderError: The weights cannot be read, or are of another network.
        """
        weights_path = self.folder / WEIGHTS_FILE
        # The file's tensors by name become the weights of a network from ``make_network``.
        network = fill_network(self.make_network, self.tensors(), message_prefix=weights_path)
        device = resolve_device_name(self.device)
        for layer in _device_layers(network):
            layer.to(device)
        return network

    @property
    def device_used(self) -> str | None:
        """The device of the layers; None if they were never loaded."""
        if "network" not in self.__dict__:
            return None
        return str(next(_device_layers(self.network)[0].parameters()).device)

    def embed_in_batches(
        self, tokens: TokenIds, embed: Callable[[Tensor, Tensor], Tensor], *, d: int
    ) -> FloatArray:
        """Embed sentences in batches, the longest sentences first.

        A batch has at most ``TOKEN_BUDGET`` words, padding included (or one longer sentence); or
        ``self.batch`` sentences if that is not None.

        Args:
            tokens: The ids of the words of each sentence.
            embed: Returns the embeddings (b, d) of a batch; called with its word ids (b, t), -1 for
                padding, and the number of words of each sentence, (b,).
            d: The size of an embedding.

        Returns:
            Embeddings (n, d); a sentence without words is zero.
        """
        embeddings = np.zeros((len(tokens), d), dtype=np.float32)
        lengths = tokens.lengths
        batches = plan_batches(lengths, budget=TOKEN_BUDGET)
        if self.batch is not None:
            order = np.argsort(-lengths)
            starts = range(0, len(order), self.batch)
            batches = (order[start : start + self.batch] for start in starts)
        with torch.inference_mode():
            for batch in batches:
                rows = batch[lengths[batch] > 0]  # sentences that have words
                if len(rows):
                    ids, id_lengths = make_batch(tokens, rows, pad=-1)
                    embeddings[rows] = embed(ids, id_lengths).float().cpu().numpy()
        return embeddings


class GruHalvesEncoder(RecurrentEncoder):
    """Embeds with the halves of a saved encoder, each of length 1.

    A sentence without words is the zero vector. This class is Skip-Thoughts: uni-skip, bi-skip or
    both (combine-skip, 4,800 values as released).
    """

    KIND = "skip_thoughts"
    CONFIG_TYPE = HalvesConfig
    config: HalvesConfig

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        halves: Sequence[str] = (),
        tokens: str = "whitespace",
        append_eos: bool = False,
        device: str = "auto",
    ) -> None:
        """Find the folder of a saved encoder, and read its configuration; no weights are read yet.

        Such an encoder has one or more halves: GRUs with their own word tables.

        Args:
            model: A path or a Hub id.
            name: The name of the encoder; empty for that of the model.
            revision: The commit, branch or tag on the Hub; ``unpinned`` is the main branch.
            halves: The names of the halves to join, such as ``uni``, in order; empty for all.
            tokens: The tokeniser: ``whitespace`` for text that is tokenised already, else ``ptb``.
            append_eos: End every sentence with the vocabulary's own word for that, as in training.
            device: The device for the layers.

        Raises:
            UnknownName: The encoder has no half of this name.
            CardError: ``append_eos`` is set and the vocabulary has no such word.
        """
        super().__init__(model, name, revision, tokens, device)
        # ``config.halves`` is a dict by name, in the order in which they are joined.
        for half in halves:  # raises if there is no half of this name
            look_up(f"half of {self.folder}", half, self.config.halves)
        self.halves = tuple(halves or self.config.halves)
        if append_eos and not self.config.eos:  # the word, empty if there is none
            raise CardError(
                f"append_eos: the vocabulary of {self.folder} has no word for a sentence's end"
            )
        self.append_eos = append_eos

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        return self._fingerprint(halves=self.halves, append_eos=self.append_eos, normalise=True)

    def make_network(self) -> nn.Module:
        """Make the halves."""
        return self.config.make_network(len(self.words))

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d): those of the halves, each scaled to length 1, joined.

        A half is a GRU with its own word table; ``self.halves`` names those that are used. A word
        not in the vocabulary is read as the configuration's word for unknown words.

        Raises:
            EncoderError: The vocabulary lacks a special word of the configuration, or the
                sentences are no list of texts.
        """
        check_sentences(sentences)

        def embed(ids: Tensor, lengths: Tensor) -> Tensor:
            """Return the halves' embeddings, joined (b, d), of word ids (b, t), -1 at padding."""
            embeddings = []
            for name in self.halves:
                half = self.network.get_submodule(name)
                # Padding, -1, must be a valid id; no state of it is used.
                embedding = half(ids.clamp(min=0), lengths)
                embeddings.append(nn.functional.normalize(embedding, dim=1))
            return torch.cat(embeddings, dim=1)

        for special_word in filter(None, (self.config.unknown, self.config.eos)):
            if special_word not in self.vocabulary:
                raise EncoderError(
                    f"{self.folder}: vocab.txt lacks the word '{special_word}' "
                    "that config.json names"
                )
        # The vocabulary has the row of each word in the word tables.
        unknown_row = self.vocabulary[self.config.unknown]
        end_rows = [self.vocabulary[self.config.eos]] if self.append_eos else []
        rows_of_sentences = []
        for sentence in sentences:
            words = self.split_words(sentence)
            word_rows = [self.vocabulary.get(word, unknown_row) for word in words]
            rows_of_sentences.append(word_rows + end_rows)
        d = sum(self.config.halves[name].size for name in self.halves)
        return self.embed_in_batches(TokenIds.from_lists(rows_of_sentences), embed, d=d)


class QuickThoughtsEncoder(GruHalvesEncoder):
    """Quick-Thoughts: [f; g], 2,400 values as released; MC-QT joins two such models."""

    KIND = "quick_thoughts"


RELEASED_BATCH = 64
"""The number of sentences of a batch in the released code of InferSent."""


class InferSentRelease(NamedTuple):
    """The settings of a release of InferSent."""

    start_word: str
    """The word before each sentence."""
    end_word: str
    """The word behind each sentence."""
    padding: Padding
    """How its maximum over time treats padding, a key of :data:`MAXIMA_OVER_TIME`."""
    vectors_file: str
    """The name of the file of word vectors that it was trained with."""


INFERSENT_RELEASES = {
    1: InferSentRelease(
        start_word="<s>", end_word="</s>", padding="zeros", vectors_file="glove.840B.300d.txt"
    ),
    2: InferSentRelease(
        start_word="<p>", end_word="</p>", padding="masked", vectors_file="crawl-300d-2M.vec"
    ),
}


class InferSentConfig(SavedConfig, frozen=True, kw_only=True):
    """``config.json`` of a saved InferSent."""

    version: Literal[1, 2]
    word_size: Size
    hidden: Size
    vectors: str
    """The name of the file of word vectors it was trained with; a path only with its hash."""
    vectors_sha256: str = ""


class InferSentEncoder(RecurrentEncoder):
    """Embeds with a saved InferSent and the word vectors it was trained with, (n, 2 x hidden)."""

    KIND = "infersent"
    CONFIG_TYPE = InferSentConfig
    config: InferSentConfig

    def __init__(
        self,
        model: str,
        *,
        name: str = "",
        revision: str = "unpinned",
        vectors: str = "",
        tokens: str = "whitespace",
        padding: Literal["", "zeros", "batch", "masked"] = "",
        device: str = "auto",
    ) -> None:
        """Find the folder of a saved InferSent and the word vectors; neither is read yet.

        Args:
            model: A path or a Hub id.
            name: The name of the encoder; empty for that of the model.
            revision: The commit, branch or tag on the Hub; ``unpinned`` is the main branch.
            vectors: The file of word vectors; empty for the one that the folder names.
            tokens: ``whitespace`` as SentEval ran it, ``ptb`` (version 1) or ``moses`` (version 2).
            padding: ``zeros`` (the default of version 1), ``masked`` (of version 2), or ``batch``:
                as version 1 was released, in batches of 64. With ``batch`` nothing is stored, since
                an embedding depends on the neighbours of its sentence.
            device: The device for the layers.

        Raises:
            UnknownName: There is no such tokeniser or padding.
            SourceError: The model or the word vectors are not available.
            DataError: The folder names other word vectors, or a path of some without their hash.
        """
        super().__init__(model, name, revision, tokens, device)
        self.release = INFERSENT_RELEASES[self.config.version]
        self.padding: Padding = padding or self.release.padding
        look_up("padding", self.padding, MAXIMA_OVER_TIME)
        self.batch = RELEASED_BATCH if self.padding == "batch" else None
        expected_sha256 = self.config.vectors_sha256
        config_names_path = Path(self.config.vectors).name != self.config.vectors
        # A path in the configuration is followed only with a hash of the file: the author of the
        # folder must not make us open any file of this machine.
        if config_names_path and not vectors and not expected_sha256:
            raise DataError(
                f"{self.folder / CONFIG_FILE}: names word vectors in a folder "
                "and no sha256 of them",
                hint="name the file by `params=vectors=FILE`",
            )
        self.vectors_path = find_vectors(vectors or self.config.vectors)
        self.vectors_sha256 = cached_file_sha256(self.vectors_path)
        # A file that the user names may have another hash.
        if not vectors and expected_sha256 not in ("", self.vectors_sha256):
            raise DataError(
                f"{self.vectors_path}: not the word vectors of {self.folder} "
                f"(sha256 {self.vectors_sha256[:12]}, config.json {expected_sha256[:12]})",
                hint="name others by `params=vectors=FILE` if you mean to",
            )

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of all that decides an embedding; None if neighbours do too."""
        if self.padding == "batch":
            return None
        return self._fingerprint(vectors=self.vectors_sha256, padding=self.padding)

    @cached_property
    def vectors(self) -> WordVectors:
        """The word vectors, whose file is converted into the cache folder at the first access.

        Raises:
            EncoderError: They are of another size than the network needs.
        """
        # The hash names the folder in the cache. ``shape`` is (number of words, size).
        vectors = open_vectors(self.vectors_path, sha256=self.vectors_sha256)
        if vectors.shape[1] != self.config.word_size:
            raise EncoderError(
                f"{self.vectors_path}: vectors of size {vectors.shape[1]}; "
                f"{self.folder} needs {self.config.word_size}"
            )
        return vectors

    def make_network(self) -> nn.Module:
        """Make the LSTM."""
        return BiLstm(self.config.word_size, self.config.hidden, self.padding)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d).

        InferSent reads two special words around each sentence. The embedding is the zero vector if
        neither these nor the words of the sentence have vectors.

        Raises:
            EncoderError: The sentences are no list of texts.
        """
        check_sentences(sentences)
        words = [
            [self.release.start_word, *self.split_words(sentence), self.release.end_word]
            for sentence in sentences
        ]
        # The rows of each sentence's words in a table of vectors, whose last row is zero. Words
        # without a vector are omitted.
        rows_of_sentences, vectors = self.vectors.make_table(words)
        table = torch.from_numpy(vectors)

        def embed(ids: Tensor, lengths: Tensor) -> Tensor:
            """Return the embeddings (b, d) of rows (b, t); -1, at padding, is the last row."""
            device = next(self.network.parameters()).device
            embeddings: Tensor = self.network(table[ids].to(device), lengths)
            return embeddings

        return self.embed_in_batches(
            TokenIds.from_lists(rows_of_sentences), embed, d=2 * self.config.hidden
        )

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences in which no word has a vector.

        Only the two special words that InferSent reads around each sentence are embedded for them.
        """
        split_sentences = [self.split_words(sentence) for sentence in sentences]
        known_words = self.vectors.find_known(chain.from_iterable(split_sentences)).keys()
        return [
            sentence
            for sentence, words in zip(sentences, split_sentences, strict=True)
            if known_words.isdisjoint(words)
        ]
