"""Convert published weights of recurrent encoders to folders, and expand vocabularies.

Only tensors are read of published files. ``load_encoder`` opens the folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stsbench.core.errors import EncoderError, SourceError, translate_errors
from stsbench.encoders.base import FloatArray
from stsbench.encoders.cached_files import cached_file_sha256
from stsbench.encoders.weights import read_tensors
from stsbench.encoders.words.recurrent import (
    INFERSENT_RELEASES,
    BiLstm,
    GruHalvesEncoder,
    GruTable,
    HalfName,
    HalvesConfig,
    InferSentConfig,
    fill_network,
)
from stsbench.encoders.words.vectors import open_vectors, read_blocks
from stsbench.encoders.words.words import find_vectors, name_vectors, write_word_folder

TABLE_FILES = {"uni": "utable.npy", "bi": "btable.npy"}
"""The word tables of the halves of Skip-Thoughts."""
HALF_PREFIXES: dict[HalfName, Sequence[str]] = {
    "uni": ["encoder"],
    "bi": ["encoder", "encoder_r"],
}
"""The prefixes of each half's GRUs: "uni" reads forwards, "bi" has one for each direction."""
UNKNOWN_WORD = "UNK"
END_WORD = "<eos>"


def convert_infersent(
    source: Path, out: Path, *, version: Literal[1, 2], vectors_file: str = ""
) -> Path:
    """Convert the released weights of InferSent to a folder that ``load_encoder`` opens.

    They are ``infersent1.pkl``, trained with GloVe vectors, or ``infersent2.pkl``, with fastText's.

    Args:
        source: The released file.
        out: The folder to write.
        version: The version of InferSent.
        vectors_file: The file of word vectors that the folder will name, with its hash; empty for
            the name of the one that this version was trained with, without a hash.

    Returns:
        The path of the folder's ``stsbench.json``.

    Raises:
        SourceError: ``source`` or ``vectors_file`` does not exist.
        EncoderError: ``source`` holds other tensors than InferSent's.
    """
    if not source.is_file():
        raise SourceError(
            f"'{source}' does not exist; get it from github.com/facebookresearch/InferSent"
        )
    tensors = {name: tensor.float() for name, tensor in read_tensors(source).items()}
    # Of shape (4 * hidden, word_size): the four gates of an LSTM, one below the other.
    input_weights = tensors.get("enc_lstm.weight_ih_l0")
    shape = () if input_weights is None else tuple(input_weights.shape)
    if len(shape) != 2 or shape[0] % 4:
        raise EncoderError(f"{source}: has no 'enc_lstm.weight_ih_l0' of an LSTM; is it InferSent?")
    config = InferSentConfig(
        version=version,
        word_size=shape[1],
        hidden=shape[0] // 4,
        vectors=(
            name_vectors(vectors_file) if vectors_file else INFERSENT_RELEASES[version].vectors_file
        ),
        vectors_sha256=cached_file_sha256(find_vectors(vectors_file)) if vectors_file else "",
    )
    # The network with these weights; raises if their names or shapes are others.
    network = fill_network(
        lambda: BiLstm(config.word_size, config.hidden), tensors, message_prefix=source
    )
    return write_word_folder(out, kind="infersent", config=config, tensors=network.state_dict())


def convert_skip_thoughts(source: Path, out: Path) -> Path:
    """Convert the published weights of Skip-Thoughts to a folder that ``load_encoder`` opens.

    Skip-Thoughts has two halves, each a GRU with its own word table: ``uni`` reads forwards,
    ``bi`` in both directions. The published folder holds ``uni_skip.npz``, ``bi_skip.npz``, the two
    word tables and ``dictionary.txt``. Its ``.pkl`` files are never read.

    Args:
        source: The published folder.
        out: The folder to write.

    Returns:
        The path of the new folder's ``stsbench.json``.

    Raises:
        SourceError: A file is missing.
        EncoderError: A file is broken.
    """
    # TABLE_FILES: the name of the word table's file by the name of the half.
    for name in ("uni_skip.npz", "bi_skip.npz", *TABLE_FILES.values(), "dictionary.txt"):
        if not (source / name).is_file():
            raise SourceError(
                f"{source}: no {name}; "
                "get it as the README of github.com/ryankiros/skip-thoughts says"
            )
    dictionary = source / "dictionary.txt"
    with translate_errors(f"{dictionary}: cannot be read", EncoderError, OSError, ValueError):
        lines = dictionary.read_text(encoding="utf-8").split("\n")
    # Line i of the dictionary is the word of row i of both word tables. For a word that occurs
    # twice, the last row counts, as in the published code.
    rows_by_word = {word.strip(): row for row, word in enumerate(lines) if word.strip()}
    if UNKNOWN_WORD not in rows_by_word:
        raise EncoderError(f"{dictionary}: lacks the word {UNKNOWN_WORD}")
    halves: dict[HalfName, GruTable] = {}
    tensors: dict[str, Tensor] = {}
    for name in HALF_PREFIXES:  # uni, bi
        half = _read_half(source, name, rows=list(rows_by_word.values()), n_lines=len(lines))
        halves[name] = half.table
        tensors |= half.tensors
    config = HalvesConfig(
        halves=halves, unknown=UNKNOWN_WORD, eos=END_WORD if END_WORD in rows_by_word else ""
    )
    # The network with these weights; raises if their names or shapes are others.
    network = fill_network(
        lambda: config.make_network(len(rows_by_word)), tensors, message_prefix=source
    )
    return write_word_folder(
        out,
        kind="skip_thoughts",
        config=config,
        tensors=network.state_dict(),
        words=list(rows_by_word),
    )


class _Half(NamedTuple):
    """A half of Skip-Thoughts: its sizes, and its weights by their names in the new network."""

    table: GruTable
    tensors: dict[str, Tensor]


def _read_half(source: Path, name: HalfName, *, rows: Sequence[int], n_lines: int) -> _Half:
    """Read the word table and the GRU weights of one half of the published Skip-Thoughts.

    Args:
        source: The published folder.
        name: The half: ``uni``, which reads forwards, or ``bi``, which reads in both directions.
        rows: The rows of the new vocabulary's words in the published table.
        n_lines: The number of lines of ``dictionary.txt``, for a message.

    Returns:
        The sizes of the half, and its weights by their names in our network.

    Raises:
        EncoderError: A file is broken, or the table has fewer rows than the dictionary has words.
    """
    table_path = source / TABLE_FILES[name]
    problem = f"{source}: the half '{name}' cannot be read"
    # The word table (rows, d), and for each direction the weights of its GRU, by torch's names.
    # HALF_PREFIXES has the directions by half: one for ``uni``, forwards and backwards for ``bi``.
    # Numpy and zipfile raise errors of many kinds for a damaged file.
    with translate_errors(problem, EncoderError):
        table = np.load(table_path, mmap_mode="r", allow_pickle=False)
        # Opened here, because numpy leaves the file of a damaged archive open.
        with (source / f"{name}_skip.npz").open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            directions = [_theano_gru(archive, prefix) for prefix in HALF_PREFIXES[name]]
    if table.ndim != 2 or len(table) <= max(rows):
        raise EncoderError(
            f"{table_path}: shape {table.shape} for {n_lines} lines of dictionary.txt"
        )
    # In the order of the new vocabulary, without the rows of repeated words.
    embedding = table[rows].astype(np.float32)
    tensors = {f"{name}.embedding": torch.from_numpy(embedding)}
    for index, weights in enumerate(directions):
        for key, weight in weights.items():
            tensors[f"{name}.gru.directions.{index}.gru.{key}"] = torch.from_numpy(weight)
    gru_table = GruTable(
        word_size=table.shape[1],
        hidden=directions[0]["weight_hh_l0"].shape[1],
        bidirectional=name == "bi",
    )
    return _Half(gru_table, tensors)


def _theano_gru(archive: np.lib.npyio.NpzFile, prefix: str) -> dict[str, FloatArray]:
    """Return the weights of a GRU of the published Theano code, in the form of PyTorch's GRU.

    The Theano code has matrices (inputs, outputs): ``W``, ``U`` and ``b`` for its two gates, reset
    and update, and ``Wx``, ``Ux`` and ``bx`` for the new state, the candidate. W and Wx multiply
    the input, U and Ux the state. PyTorch has the transposed matrices, one below the other in the
    same order, and a second bias, which is zero here.

    Args:
        archive: The arrays of one half of the published model, by name.
        prefix: The first part of their names: ``encoder``, or ``encoder_r`` for backwards.

    Returns:
        The weights by their names in ``torch.nn.GRU``.
    """
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
    encoder: GruHalvesEncoder, vectors_file: str, out: Path, *, limit: int | None = None
) -> Path:
    """Write a copy of an encoder whose vocabulary also has the words of a file of word vectors.

    The rows of new words are predicted from their vectors in the file, by a linear map that is
    fitted by least squares on the words that both have. Words with an underscore are omitted, as in
    the papers' code. The encoder's own words keep their rows.

    Args:
        encoder: A saved encoder of Skip-Thoughts' kind, with a word table for each half.
        vectors_file: The file of word vectors, such as word2vec's.
        out: The folder to write.
        limit: The number of word vectors to read, from the file's start; None for all.

    Returns:
        The path of the new folder's ``stsbench.json``.

    Raises:
        EncoderError: The vocabularies share too few words, or the file has no new ones.
    """
    path = find_vectors(vectors_file)
    word_vectors = open_vectors(path, sha256=cached_file_sha256(path), limit=limit)
    file_words = [word for block in read_blocks(path, limit) for word in block.words]
    rows_by_word = word_vectors.find_known(file_words)  # in the file
    special_words = (encoder.config.unknown, encoder.config.eos)
    shared_words = [
        word for word in encoder.words if word in rows_by_word and word not in special_words
    ]
    # ``shape`` is (words, d). With fewer words than numbers to fit, least squares would fit the
    # words exactly, and predict nothing for others.
    if len(shared_words) <= word_vectors.shape[1]:
        raise EncoderError(
            f"{path} and {encoder.folder} share {len(shared_words)} words; "
            f"the map needs more than {word_vectors.shape[1]}"
        )
    new_words = [
        word
        for word in dict.fromkeys(file_words)  # each once, in the order of the file
        if word not in encoder.vocabulary and "_" not in word and word
    ]
    if not new_words:
        raise EncoderError(f"{path} has no word that {encoder.folder} lacks")

    def vectors_of(words: list[str]) -> npt.NDArray[np.float64]:
        """Return the vectors of words in the file, (len(words), d)."""
        rows = np.array([rows_by_word[word] for word in words])
        return word_vectors.take(rows).astype(np.float64)

    tensors = _extend_tables(encoder, shared_words, vectors_of(shared_words), vectors_of(new_words))
    return write_word_folder(
        out,
        kind=encoder.KIND,
        config=encoder.config,
        tensors=tensors,
        words=[*encoder.words, *new_words],
        # Without these the copy would embed otherwise than the encoder.
        params={name: getattr(encoder, name) for name in ("halves", "append_eos", "tokens")},
    )


def _extend_tables(
    encoder: GruHalvesEncoder,
    shared_words: Sequence[str],
    shared_vectors: npt.NDArray[np.float64],
    new_vectors: npt.NDArray[np.float64],
) -> dict[str, Tensor]:
    """Return an encoder's weights by name, with rows for new words in its word tables.

    An encoder of this kind has one or more halves, each with its own word table. Its new rows are
    predicted by a linear regression on the vectors of the words in a file.

    Args:
        encoder: The encoder.
        shared_words: The n words that both the encoder and the file of word vectors have.
        shared_vectors: Their vectors in the file, (n, d), from which a half's rows are predicted.
        new_vectors: The vectors of the m new words in the file, (m, d).
    """
    from sklearn.linear_model import LinearRegression

    tensors = encoder.tensors()
    shared_rows = [encoder.vocabulary[word] for word in shared_words]
    for half in encoder.config.halves:
        table = tensors[f"{half}.embedding"].numpy()
        regression = LinearRegression().fit(shared_vectors, table[shared_rows].astype(np.float64))
        new_rows = regression.predict(new_vectors).astype(np.float32)
        tensors[f"{half}.embedding"] = torch.from_numpy(np.concatenate([table, new_rows]))
    return tensors
