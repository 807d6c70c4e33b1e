"""Encoders that read a sentence word by word: InferSent, Skip-Thoughts, Quick-Thoughts, and their layers, for training too.

Skip-Thoughts (Kiros et al. 2015) and Quick-Thoughts (Logeswaran & Lee 2018) are GRUs side by side: each half has its own word table and
GRU and embeds the whole sentence with its last state; the halves are scaled to length 1 one by one and joined. Unknown words are read
as one word of the vocabulary, never dropped. InferSent (Conneau et al. 2017, arXiv 1705.02364) is the maximum over the states of a
bidirectional LSTM. Both versions that were released are here, with their words around a sentence, their tokenisers and what their
maximum does with padding. Words without a vector are dropped. Published weights become folders that ``load_encoder`` opens; only
tensors are read of them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from stsbench.core.errors import (
    CardError,
    DataError,
    EncoderError,
    SourceError,
    look_up,
    translate_errors,
)
from stsbench.encoders.backends import check_device, pick_device
from stsbench.encoders.base import FloatArray, IndexArray
from stsbench.encoders.checkpoint import cached_digest, read_tensors
from stsbench.encoders.tokens import TokenIds, plan_batches
from stsbench.encoders.words.vectors import WordVectors, open_vectors, read_blocks
from stsbench.encoders.words.words import (
    CONFIG,
    WEIGHTS,
    SavedConfig,
    SavedEncoder,
    find_vectors,
    write_word_folder,
)

TOKEN_BUDGET = 4096
Padding = Literal["zeros", "batch", "masked"]
"""What a maximum over time does with padding, see :data:`MAXIMA`."""
HalfName = Annotated[str, msgspec.Meta(pattern="^(uni|bi|f|g)$")]
GruCell = Literal["torch", "tensorflow"]
"""Which GRU: the reset gate after the recurrent product (PyTorch, Theano) or before it (TensorFlow)."""


MAXIMA: Mapping[str, Callable[[Tensor], Tensor]] = {
    # As InferSent 1 was released, padding's zeros take part, so that a sentence depends on whether a longer one stands beside it.
    "batch": lambda states: states.amax(dim=1),
    # A zero takes part for every sentence: what InferSent 1 gives to all but the longest of a batch.
    "zeros": lambda states: states.amax(dim=1).clamp(min=0),
    # As InferSent 2, whatever is exactly zero takes no part, true zeros too.
    "masked": lambda states: states.masked_fill(states == 0, -1e9).amax(dim=1),
}
"""The maximum over time (b, d) of states (b, t, d) that are zero behind a sentence's end."""


class BiLstm(nn.Module):
    """InferSent's encoder: the maximum over the states of one bidirectional LSTM over word vectors."""

    def __init__(self, word_size: int, hidden: int, padding: Padding = "batch") -> None:
        """Make the layer with torch's own initial weights."""
        super().__init__()
        self.enc_lstm = nn.LSTM(word_size, hidden, bidirectional=True, batch_first=True)
        self.maximum = look_up("padding", padding, MAXIMA)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return embeddings (b, 2h) of word vectors (b, t, w)."""
        packed = pack_padded_sequence(
            vectors, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        return self.maximum(pad_packed_sequence(self.enc_lstm(packed)[0], batch_first=True)[0])


def as_batch(tokens: TokenIds, rows: IndexArray, *, pad: int = 0) -> tuple[Tensor, Tensor]:
    """Some sentences as ids (b, t), ``pad`` behind their end, and lengths (b,)."""
    ids, _ = tokens.pad(rows, pad=pad)
    return torch.from_numpy(ids), torch.from_numpy(tokens.lengths[rows])


class Gru(nn.Module):
    """One GRU, in one direction or both; a sentence is its last state."""

    def __init__(
        self, word_size: int, hidden: int, *, bidirectional: bool = False, cell: GruCell = "torch"
    ) -> None:
        """Make the layer; ``hidden`` is the size of the state, of each direction, whose last states are joined."""
        super().__init__()
        make = LastState if cell == "torch" else ResetBeforeGru
        self.directions = nn.ModuleList(
            make(word_size, hidden) for _ in range(2 if bidirectional else 1)
        )

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the last states (b, d) of word vectors (b, t, w)."""
        ways = [vectors]
        if len(self.directions) == 2:
            # Each sentence turned round; padding stays behind it.
            steps = torch.arange(vectors.shape[1], device=vectors.device)
            places = lengths.to(vectors.device).unsqueeze(1) - 1 - steps
            places = torch.where(places >= 0, places, steps)
            ways.append(vectors.gather(1, places.unsqueeze(2).expand_as(vectors)))
        return torch.cat(
            [gru(way, lengths) for gru, way in zip(self.directions, ways, strict=True)], dim=1
        )


class LastState(nn.Module):
    """PyTorch's GRU, which is Theano's where the recurrent biases are zero."""

    def __init__(self, word_size: int, hidden: int) -> None:
        """Make the layer with torch's own initial weights, and no recurrent bias."""
        super().__init__()
        self.gru = nn.GRU(word_size, hidden, batch_first=True)
        for name, parameter in self.gru.named_parameters():
            if name.startswith("bias_hh"):
                nn.init.zeros_(parameter)

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the last states (b, h) of word vectors (b, t, w)."""
        packed = pack_padded_sequence(
            vectors, lengths.cpu(), batch_first=True, enforce_sorted=False
        )
        last: Tensor = self.gru(packed)[1][0]
        return last


class ResetBeforeGru(nn.Module):
    """TensorFlow's GRU: the state is reset before its product, and gates begin open (bias 1)."""

    def __init__(self, word_size: int, hidden: int) -> None:
        """Make the layer with TensorFlow's first weights: Glorot's, gate biases 1, others 0."""
        super().__init__()
        self.gates = nn.Linear(word_size + hidden, 2 * hidden)
        self.candidate = nn.Linear(word_size + hidden, hidden)
        nn.init.xavier_uniform_(self.gates.weight)
        nn.init.xavier_uniform_(self.candidate.weight)
        nn.init.ones_(self.gates.bias)
        nn.init.zeros_(self.candidate.bias)
        self.hidden = hidden

    def forward(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the last states (b, h) of word vectors (b, t, w)."""
        state, lengths = vectors.new_zeros(len(vectors), self.hidden), lengths.to(vectors.device)
        for step in range(vectors.shape[1]):
            word = vectors[:, step]
            reset, update = torch.sigmoid(self.gates(torch.cat([word, state], dim=1))).chunk(
                2, dim=1
            )
            candidate = torch.tanh(self.candidate(torch.cat([word, reset * state], dim=1)))
            new = update * state + (1 - update) * candidate
            state = torch.where((step < lengths).unsqueeze(1), new, state)
        return state


Size = Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]


def filled(
    make: Callable[[], nn.Module], tensors: Mapping[str, Tensor], *, where: object
) -> nn.Module:
    """Return a network with these weights; no memory is taken for what a configuration alone asks for.

    Raises EncoderError: a weight is missing, unknown, or of another shape.
    """
    with torch.device("meta"):
        network = make()
    with translate_errors(str(where), EncoderError, RuntimeError):
        network.load_state_dict(dict(tensors), assign=True)
    return network.eval()


class GruTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One GRU and its word table."""

    word_size: Size
    hidden: Size
    """Size of the state, of each direction."""
    bidirectional: bool = False
    cell: GruCell = "torch"

    @property
    def size(self) -> int:
        """Size of its embedding."""
        return self.hidden * (2 if self.bidirectional else 1)


class GruHalf(nn.Module):
    """A GRU and the vectors of its words, which begin uniform within ``scale``."""

    def __init__(self, words: int, half: GruTable, *, scale: float = 0.1) -> None:
        """Make the layers for so many words."""
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(words, half.word_size).uniform_(-scale, scale))
        self.gru = Gru(
            half.word_size, half.hidden, bidirectional=half.bidirectional, cell=half.cell
        )

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """Return embeddings (b, d) of word ids (b, t)."""
        last: Tensor = self.gru(self.embedding[ids].to(next(self.gru.parameters()).device), lengths)
        return last


class HalvesConfig(SavedConfig, frozen=True, kw_only=True):
    """``config.json`` of a saved Skip-Thoughts or Quick-Thoughts encoder."""

    halves: Annotated[dict[HalfName, GruTable], msgspec.Meta(min_length=1)]
    unknown: str
    """The word that unknown words are read as."""
    eos: str = ""
    """The word for a sentence's end, where the vocabulary has one."""

    def network(self, words: int) -> nn.ModuleDict:
        """The halves for a vocabulary of so many words, weights yet to be loaded."""
        return nn.ModuleDict({name: GruHalf(words, half) for name, half in self.halves.items()})


def _layers(network: nn.Module) -> list[nn.Module]:
    # What runs on a device.
    return [layer for layer in network.modules() if isinstance(layer, Gru | BiLstm)]


class RecurrentEncoder(SavedEncoder):
    """A saved encoder whose layers run over sentences in batches of like length, on a device."""

    batch: int | None = None
    """Sentences a batch, longest first; default by a token budget."""

    def __init__(self, model: str, name: str, revision: str, tokens: str, device: str) -> None:
        """Find the folder."""
        check_device(device)
        super().__init__(model, name, revision, tokens)
        self.device = device

    @abstractmethod
    def make(self) -> nn.Module:
        """Make the network, weights yet to be loaded."""

    @cached_property
    def network(self) -> nn.Module:
        """The network, its layers on the device; tables of words stay in memory."""
        network, place = (
            filled(self.make, self.tensors(), where=self.folder / WEIGHTS),
            pick_device(self.device),
        )
        for layer in _layers(network):
            layer.to(place)
        return network

    @property
    def device_used(self) -> str | None:
        """The device the layers are on; None where they were never loaded."""
        if "network" not in self.__dict__:
            return None
        return str(next(_layers(self.network)[0].parameters()).device)

    def embed_planned(
        self, tokens: TokenIds, embed: Callable[[Tensor, Tensor], Tensor], *, d: int
    ) -> FloatArray:
        """Embed sentences (n, d), one without a token as 0; ``embed`` takes ids (b, t), -1 for padding, and lengths."""
        embeddings, lengths = np.zeros((len(tokens), d), dtype=np.float32), tokens.lengths
        batches = plan_batches(lengths, budget=TOKEN_BUDGET)
        if self.batch is not None:
            order, size = np.argsort(-lengths), self.batch
            batches = (order[start : start + size] for start in range(0, len(order), size))
        with torch.inference_mode():
            for batch in batches:
                rows = batch[lengths[batch] > 0]
                if len(rows):
                    embeddings[rows] = embed(*as_batch(tokens, rows, pad=-1)).float().cpu().numpy()
        return embeddings


class GruHalvesEncoder(RecurrentEncoder):
    """Embeds with the halves of a saved encoder, each of length 1; a sentence without words is the zero vector.

    Skip-Thoughts, as it stands here: uni-skip, bi-skip or both (combine-skip, 4,800 values as released).
    """

    KIND, RECORD = "skip_thoughts", HalvesConfig
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
        """Find the folder, which a training run or ``stsbench convert`` has written.

        ``halves`` are those to join, in this order, by default all; ``tokens`` is ``whitespace`` for tokenised text,
        else ``ptb``; ``append_eos`` ends every sentence with the vocabulary's own word for that, as in training.
        """
        super().__init__(model, name, revision, tokens, device)
        for half in halves:
            look_up(f"half of {self.folder}", half, self.config.halves)
        self.halves = tuple(halves or self.config.halves)
        if append_eos and not self.config.eos:
            raise CardError(
                f"append_eos: the vocabulary of {self.folder} has no word for a sentence's end"
            )
        self.append_eos = append_eos

    @cached_property
    def fingerprint(self) -> str:
        """The hash of all that decides an embedding."""
        return self._identity(halves=self.halves, append_eos=self.append_eos, normalise=True)

    def make(self) -> nn.Module:
        """Make the halves."""
        return self.config.network(len(self.words))

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d)."""

        def embed(ids: Tensor, lengths: Tensor) -> Tensor:
            halves = (
                self.network.get_submodule(name)(ids.clamp(min=0), lengths) for name in self.halves
            )
            return torch.cat([nn.functional.normalize(half, dim=1) for half in halves], dim=1)

        for needed in filter(None, (self.config.unknown, self.config.eos)):
            if needed not in self.vocabulary:
                raise EncoderError(
                    f"{self.folder}: vocab.txt lacks the word '{needed}' that config.json names"
                )
        unknown = self.vocabulary[self.config.unknown]
        end = [self.vocabulary[self.config.eos]] if self.append_eos else []
        rows = [
            [self.vocabulary.get(word, unknown) for word in self.split(s)] + end for s in sentences
        ]
        size = sum(self.config.halves[name].size for name in self.halves)
        return self.embed_planned(TokenIds.from_lists(rows), embed, d=size)


class QuickThoughtsEncoder(GruHalvesEncoder):
    """Quick-Thoughts: [f; g], 2,400 values as released; MC-QT joins two such models."""

    KIND = "quick_thoughts"


RELEASED_BATCH = 64


class InferSentRelease(NamedTuple):
    """What goes with a release of InferSent."""

    bos: str
    eos: str
    padding: Padding
    vectors: str


VERSIONS = {
    1: InferSentRelease(bos="<s>", eos="</s>", padding="zeros", vectors="glove.840B.300d.txt"),
    2: InferSentRelease(bos="<p>", eos="</p>", padding="masked", vectors="crawl-300d-2M.vec"),
}


class InferSentConfig(SavedConfig, frozen=True, kw_only=True):
    """``config.json`` of a saved InferSent."""

    version: Literal[1, 2]
    word_size: Size
    hidden: Size
    vectors: str
    """The file of word vectors it was trained with; a path only with its hash."""
    vectors_sha256: str = ""


class InferSentEncoder(RecurrentEncoder):
    """Embeds with a saved InferSent and the word vectors it was trained with, (n, 2 x hidden)."""

    KIND, RECORD = "infersent", InferSentConfig
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
        """Find the folder, as of :class:`GruHalvesEncoder`, and the word vectors, by default the file that it names.

        ``tokens`` is ``whitespace`` as SentEval ran it, ``ptb`` (version 1) or ``moses`` (version 2). ``padding`` is
        ``zeros`` (default of version 1), ``masked`` (of version 2), or ``batch``: as version 1 was released, in batches
        of 64; nothing is stored then, since a sentence depends on its neighbours.
        """
        super().__init__(model, name, revision, tokens, device)
        self.version = VERSIONS[self.config.version]
        self.padding: Padding = padding or self.version.padding
        look_up("padding", self.padding, MAXIMA)
        self.batch = RELEASED_BATCH if self.padding == "batch" else None
        due = self.config.vectors_sha256
        if not (vectors or due) and Path(self.config.vectors).name != self.config.vectors:
            # Who made the folder would have any file of this machine opened.
            what = "names word vectors in a folder and no sha256 of them"
            raise DataError(f"{self.folder / CONFIG}: {what}; name the file by --set vectors=FILE")
        self.vectors_path = find_vectors(vectors or self.config.vectors)
        self.vectors_sha256 = cached_digest(self.vectors_path)
        if not vectors and due and self.vectors_sha256 != due:
            what = f"not the word vectors of {self.folder} (sha256 {self.vectors_sha256[:12]}, config.json {due[:12]})"
            raise DataError(
                f"{self.vectors_path}: {what}; name others by --set vectors=FILE if you mean to"
            )

    @cached_property
    def fingerprint(self) -> str | None:
        """The hash of all that decides an embedding; None where its neighbours do too."""
        if self.padding == "batch":
            return None
        return self._identity(vectors=self.vectors_sha256, padding=self.padding)

    @cached_property
    def vectors(self) -> WordVectors:
        """The opened word vectors."""
        vectors, due = (
            open_vectors(self.vectors_path, sha256=self.vectors_sha256),
            self.config.word_size,
        )
        if vectors.shape[1] != due:
            raise EncoderError(
                f"{self.vectors_path}: vectors of size {vectors.shape[1]}; {self.folder} needs {due}"
            )
        return vectors

    def make(self) -> nn.Module:
        """Make the LSTM."""
        return BiLstm(self.config.word_size, self.config.hidden, self.padding)

    def encode(self, sentences: Sequence[str]) -> FloatArray:
        """Return embeddings (n, d); where not even the sentence's end has a vector, it is the zero vector."""
        words = [
            [self.version.bos, *self.split(sentence), self.version.eos] for sentence in sentences
        ]
        rows, vectors = self.vectors.tabled(words)
        # Padding, -1, is the table's last row.
        table = torch.from_numpy(vectors)

        def embed(ids: Tensor, lengths: Tensor) -> Tensor:
            made: Tensor = self.network(
                table[ids].to(next(self.network.parameters()).device), lengths
            )
            return made

        return self.embed_planned(TokenIds.from_lists(rows), embed, d=2 * self.config.hidden)

    def unknown(self, sentences: Sequence[str]) -> list[str]:
        """Return the sentences without a known word, embedded as what stands around every sentence."""
        words = [self.split(sentence) for sentence in sentences]
        known = self.vectors.known(word for split in words for word in split)
        return [
            s for s, split in zip(sentences, words, strict=True) if known.keys().isdisjoint(split)
        ]


TABLES = {"uni": "utable.npy", "bi": "btable.npy"}
UNKNOWN, EOS = "UNK", "<eos>"


def convert_infersent(
    source: Path, out: Path, *, version: Literal[1, 2], vectors: str = ""
) -> Path:
    """Convert ``infersent1.pkl`` (GloVe) or ``infersent2.pkl`` (fastText) and return the folder's description.

    Raises SourceError: there is no such file; EncoderError: it holds other than InferSent's tensors.
    """
    if not source.is_file():
        raise SourceError(
            f"'{source}' does not exist; get it from github.com/facebookresearch/InferSent"
        )
    state = {name: tensor.float() for name, tensor in read_tensors(source).items()}
    shape = tuple(state["enc_lstm.weight_ih_l0"].shape) if "enc_lstm.weight_ih_l0" in state else ()
    if len(shape) != 2 or shape[0] % 4:
        raise EncoderError(f"{source}: has no 'enc_lstm.weight_ih_l0' of an LSTM; is it InferSent?")
    given = find_vectors(vectors) if vectors else None
    config = InferSentConfig(
        version=version,
        word_size=shape[1],
        hidden=shape[0] // 4,
        vectors=vectors or VERSIONS[version].vectors,
        vectors_sha256=cached_digest(given) if given else "",
    )
    network = filled(lambda: BiLstm(config.word_size, config.hidden), state, where=source)
    return write_word_folder(out, kind="infersent", config=config, tensors=network.state_dict())


def convert_skip_thoughts(source: Path, out: Path) -> Path:
    """Convert the published folder (``uni_skip.npz``, ``bi_skip.npz``, tables and ``dictionary.txt``).

    The ``.pkl`` files are never read. Raises SourceError: a file is missing; EncoderError: one is broken.
    """
    for name in ("uni_skip.npz", "bi_skip.npz", *TABLES.values(), "dictionary.txt"):
        if not (source / name).is_file():
            raise SourceError(
                f"{source}: no {name}; get it as the README of github.com/ryankiros/skip-thoughts says"
            )
    lines = (source / "dictionary.txt").read_text(encoding="utf-8").split("\n")
    # Of a word that stands twice the published code takes the last.
    rows = {word.strip(): row for row, word in enumerate(lines) if word.strip()}
    halves, tensors = {}, {}
    for name, prefixes in (("uni", ["encoder"]), ("bi", ["encoder", "encoder_r"])):
        with translate_errors(
            f"{source}: the half '{name}' cannot be read",
            EncoderError,
            OSError,
            ValueError,
            KeyError,
        ):
            table = np.load(source / TABLES[name], mmap_mode="r", allow_pickle=False)
            with np.load(source / f"{name}_skip.npz", allow_pickle=False) as archive:
                layers = [_theano_gru(archive, prefix) for prefix in prefixes]
        if table.ndim != 2 or len(table) <= max(rows.values()):
            raise EncoderError(
                f"{source / TABLES[name]}: shape {table.shape} for {len(lines)} lines of dictionary.txt"
            )
        hidden, size = layers[0]["weight_hh_l0"].shape[1], table.shape[1]
        halves[name] = GruTable(word_size=size, hidden=hidden, bidirectional=name == "bi")
        tensors[f"{name}.embedding"] = torch.from_numpy(
            table[list(rows.values())].astype(np.float32)
        )
        for i, layer in enumerate(layers):
            tensors |= {
                f"{name}.gru.directions.{i}.gru.{key}": torch.from_numpy(a)
                for key, a in layer.items()
            }
    config = HalvesConfig(halves=halves, unknown=UNKNOWN, eos=EOS if EOS in rows else "")
    if UNKNOWN not in rows:
        raise EncoderError(f"{source / 'dictionary.txt'}: lacks the word {UNKNOWN}")
    network = filled(lambda: config.network(len(rows)), tensors, where=source)
    return write_word_folder(
        out, kind="skip_thoughts", config=config, tensors=network.state_dict(), words=list(rows)
    )


def _theano_gru(archive: np.lib.npyio.NpzFile, prefix: str) -> dict[str, FloatArray]:
    """A GRU of the published code as PyTorch's: the same equations, with no recurrent bias."""
    w, u, b, wx, ux, bx = (
        archive[f"{prefix}_{name}"].astype(np.float32) for name in ("W", "U", "b", "Wx", "Ux", "bx")
    )
    return {
        "weight_ih_l0": np.concatenate([w.T, wx.T]),
        "weight_hh_l0": np.concatenate([u.T, ux.T]),
        "bias_ih_l0": np.concatenate([b, bx]),
        "bias_hh_l0": np.zeros(len(b) + len(bx), dtype=np.float32),
    }


def expand_vocabulary(
    encoder: GruHalvesEncoder, vectors: str, out: Path, *, limit: int | None = None
) -> Path:
    """Write a folder whose vocabulary has the words of a file of word vectors, or its first ``limit`` ones, too.

    Each half's word table is fitted by least squares, with an intercept, from the vectors of the words that both have;
    words with an underscore are left out, as in the papers' code, and the encoder's own words keep their own vectors.
    Raises EncoderError: the vocabularies share too few words.
    """
    from sklearn.linear_model import LinearRegression

    path = find_vectors(vectors)
    opened = open_vectors(path, sha256=cached_digest(path), limit=limit)
    theirs = [word for block in read_blocks(path, limit) for word in block.words]
    own, rows = encoder.words, opened.known(theirs)
    shared = [
        word
        for word in own
        if word in rows and word not in (encoder.config.unknown, encoder.config.eos)
    ]
    if len(shared) <= opened.shape[1]:
        what = f"{path} and {encoder.folder} share {len(shared)} words"
        raise EncoderError(f"{what}; the map needs more than {opened.shape[1]}")
    known = set(own)
    new = [word for word in dict.fromkeys(theirs) if word not in known and "_" not in word and word]
    known_vectors, new_vectors = (
        opened.take(np.array([rows[w] for w in some])).astype(np.float64) for some in (shared, new)
    )
    tensors = encoder.tensors()
    at = [encoder.vocabulary[word] for word in shared]
    for half in encoder.config.halves:
        table = tensors[f"{half}.embedding"].numpy()
        fit = LinearRegression().fit(known_vectors, table[at].astype(np.float64))
        mapped = fit.predict(new_vectors).astype(np.float32)
        tensors[f"{half}.embedding"] = torch.from_numpy(np.concatenate([table, mapped]))
    return write_word_folder(
        out, kind=encoder.KIND, config=encoder.config, tensors=tensors, words=[*own, *new]
    )
