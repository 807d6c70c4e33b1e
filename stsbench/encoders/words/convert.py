"""Convert published weights of recurrent encoders to folders, and expand vocabularies.

Only tensors are read of published files. ``load_encoder`` opens the folders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stsbench.core.errors import EncoderError, SourceError, translate_errors
from stsbench.encoders.base import FloatArray
from stsbench.encoders.cached_files import cached_digest
from stsbench.encoders.weights import read_tensors
from stsbench.encoders.words.recurrent import (
    VERSIONS,
    BiLstm,
    GruHalvesEncoder,
    GruTable,
    HalfName,
    HalvesConfig,
    InferSentConfig,
    fill_network,
)
from stsbench.encoders.words.vectors import open_vectors, read_blocks
from stsbench.encoders.words.words import find_vectors, write_word_folder

TABLE_FILES = {"uni": "utable.npy", "bi": "btable.npy"}
"""The word tables of the halves of Skip-Thoughts."""
UNKNOWN_WORD = "UNK"
END_WORD = "<eos>"


def convert_infersent(
    source: Path, out: Path, *, version: Literal[1, 2], vectors: str = ""
) -> Path:
    """Convert ``infersent1.pkl`` (GloVe) or ``infersent2.pkl`` (fastText) to a folder.

    Args:
        source: The released file.
        out: The folder to write.
        version: The version of InferSent.
        vectors: The file of word vectors; empty for the one that it was trained with.

    Returns:
        The path of the folder's ``stsbench.json``.

    Raises:
        SourceError: There is no such file.
        EncoderError: The file holds other tensors than InferSent's.
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
    vectors_path = find_vectors(vectors) if vectors else None
    config = InferSentConfig(
        version=version,
        word_size=shape[1],
        hidden=shape[0] // 4,
        vectors=vectors or VERSIONS[version].vectors,
        vectors_sha256=cached_digest(vectors_path) if vectors_path else "",
    )
    network = fill_network(lambda: BiLstm(config.word_size, config.hidden), tensors, where=source)
    return write_word_folder(out, kind="infersent", config=config, tensors=network.state_dict())


def convert_skip_thoughts(source: Path, out: Path) -> Path:
    """Convert the published folder of Skip-Thoughts.

    It holds ``uni_skip.npz``, ``bi_skip.npz``, two tables and ``dictionary.txt``. Its ``.pkl``
    files are never read.

    Args:
        source: The published folder.
        out: The folder to write.

    Returns:
        The path of the new folder's ``stsbench.json``.

    Raises:
        SourceError: A file is missing.
        EncoderError: A file is broken.
    """
    for name in ("uni_skip.npz", "bi_skip.npz", *TABLE_FILES.values(), "dictionary.txt"):
        if not (source / name).is_file():
            raise SourceError(
                f"{source}: no {name}; "
                "get it as the README of github.com/ryankiros/skip-thoughts says"
            )
    lines = (source / "dictionary.txt").read_text(encoding="utf-8").split("\n")
    # Of a word that is there twice, the published code takes the last.
    rows_by_word = {word.strip(): row for row, word in enumerate(lines) if word.strip()}
    halves: dict[HalfName, GruTable] = {}
    tensors: dict[str, Tensor] = {}
    # "uni" reads forwards; "bi" has another GRU for each direction.
    for name, prefixes in (("uni", ["encoder"]), ("bi", ["encoder", "encoder_r"])):
        with translate_errors(
            f"{source}: the half '{name}' cannot be read",
            EncoderError,
            OSError,
            ValueError,
            KeyError,
        ):
            table = np.load(source / TABLE_FILES[name], mmap_mode="r", allow_pickle=False)
            with np.load(source / f"{name}_skip.npz", allow_pickle=False) as archive:
                directions = [_theano_gru(archive, prefix) for prefix in prefixes]
        if table.ndim != 2 or len(table) <= max(rows_by_word.values()):
            raise EncoderError(
                f"{source / TABLE_FILES[name]}: shape {table.shape} "
                f"for {len(lines)} lines of dictionary.txt"
            )
        halves[name] = GruTable(
            word_size=table.shape[1],
            hidden=directions[0]["weight_hh_l0"].shape[1],
            bidirectional=name == "bi",
        )
        # Without the rows of repeated words, in the order of the new vocabulary.
        embedding = table[list(rows_by_word.values())].astype(np.float32)
        tensors[f"{name}.embedding"] = torch.from_numpy(embedding)
        for index, weights in enumerate(directions):
            for key, weight in weights.items():
                tensors[f"{name}.gru.directions.{index}.gru.{key}"] = torch.from_numpy(weight)
    config = HalvesConfig(
        halves=halves, unknown=UNKNOWN_WORD, eos=END_WORD if END_WORD in rows_by_word else ""
    )
    if UNKNOWN_WORD not in rows_by_word:
        raise EncoderError(f"{source / 'dictionary.txt'}: lacks the word {UNKNOWN_WORD}")
    network = fill_network(lambda: config.network(len(rows_by_word)), tensors, where=source)
    return write_word_folder(
        out,
        kind="skip_thoughts",
        config=config,
        tensors=network.state_dict(),
        words=list(rows_by_word),
    )


def _theano_gru(archive: np.lib.npyio.NpzFile, prefix: str) -> dict[str, FloatArray]:
    """Return the weights of a GRU of the published Theano code as those of PyTorch's.

    Theano multiplies from the right, (inputs, outputs), and keeps the two gates, reset and update,
    in ``W``, ``U`` and ``b``, and the candidate in ``Wx``, ``Ux`` and ``bx``. PyTorch has them
    transposed, one below the other in the same order, and a recurrent bias, which is zero here.

    Args:
        archive: The arrays of a half.
        prefix: The first part of their names: ``encoder``, or ``encoder_r`` for backwards.
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
    encoder: GruHalvesEncoder, vectors: str, out: Path, *, limit: int | None = None
) -> Path:
    """Write a copy of an encoder whose vocabulary also has the words of a file of word vectors.

    Each half's word table is fitted by least squares, with an intercept, from the vectors of the
    words that both have. Words with an underscore are omitted, as in the papers' code, and the
    encoder's own words keep their own vectors.

    Args:
        encoder: A saved encoder of Skip-Thoughts' kind, with a word table for each half.
        vectors: The file of word vectors, such as word2vec's.
        out: The folder to write.
        limit: The number of word vectors to read, from the file's start; None for all.

    Returns:
        The path of the new folder's ``stsbench.json``.

    Raises:
        EncoderError: The vocabularies share too few words.
    """
    from sklearn.linear_model import LinearRegression

    path = find_vectors(vectors)
    word_vectors = open_vectors(path, sha256=cached_digest(path), limit=limit)
    file_words = [word for block in read_blocks(path, limit) for word in block.words]
    rows_by_word = word_vectors.find_known(file_words)
    special_words = (encoder.config.unknown, encoder.config.eos)
    shared_words = [
        word for word in encoder.words if word in rows_by_word and word not in special_words
    ]
    # With fewer words than unknowns, least squares would fit them exactly and mean nothing.
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

    def take_vectors(words: list[str]) -> npt.NDArray[np.float64]:
        return word_vectors.take(np.array([rows_by_word[word] for word in words])).astype(
            np.float64
        )

    shared_vectors = take_vectors(shared_words)
    new_vectors = take_vectors(new_words)
    tensors = encoder.tensors()
    shared_rows = [encoder.vocabulary[word] for word in shared_words]
    for half in encoder.config.halves:
        table = tensors[f"{half}.embedding"].numpy()
        regression = LinearRegression().fit(shared_vectors, table[shared_rows].astype(np.float64))
        mapped_vectors = regression.predict(new_vectors).astype(np.float32)
        tensors[f"{half}.embedding"] = torch.from_numpy(np.concatenate([table, mapped_vectors]))
    return write_word_folder(
        out,
        kind=encoder.KIND,
        config=encoder.config,
        tensors=tensors,
        words=[*encoder.words, *new_words],
    )
