"""Published weights of encoders of words, made into folders that ``load_encoder`` opens; only tensors are read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import torch

from stsbench.core.errors import EncoderError, SourceError, one_line
from stsbench.encoders.base import FloatArray
from stsbench.encoders.converted import remembered_digest
from stsbench.encoders.words.recurrent import VERSIONS, GruHalvesEncoder, Half, HalvesConfig, InferSentConfig
from stsbench.encoders.words.vectors import open_vectors, read_blocks
from stsbench.encoders.words.words import check_shapes, find_vectors, write_word_folder

TABLES = {"uni": "utable.npy", "bi": "btable.npy"}
UNKNOWN, EOS = "UNK", "<eos>"


def convert_infersent(source: Path, out: Path, *, version: Literal[1, 2], vectors: str = "") -> Path:
    """Convert ``infersent1.pkl`` or ``infersent2.pkl`` (a table of tensors) and return the folder's description.

    The version, 1 (GloVe) or 2 (fastText), says which words stand around a sentence, what the maximum takes, and which
    word vectors belong to it where no file of them is named.

    Raises:
        SourceError: there is no such file.
        EncoderError: it holds more than tensors, or not those of InferSent.
    """
    if not source.is_file():
        raise SourceError(f"'{source}' does not exist; get it from github.com/facebookresearch/InferSent")
    try:
        state = torch.load(source, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for what it refuses to unpickle
        raise EncoderError(f"{source}: holds more than tensors and is not read ({one_line(error)[:80]}…)") from error
    if not isinstance(state, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
        raise EncoderError(f"{source}: is not a flat table of tensors")
    shape = tuple(state["enc_lstm.weight_ih_l0"].shape) if "enc_lstm.weight_ih_l0" in state else ()
    if len(shape) != 2 or shape[0] % 4:
        raise EncoderError(f"{source}: has no 'enc_lstm.weight_ih_l0' of an LSTM; is it InferSent?")
    given = find_vectors(vectors).path if vectors else None
    config = InferSentConfig(
        version=version,
        word_size=shape[1],
        hidden=shape[0] // 4,
        vectors=vectors or VERSIONS[version].vectors,
        vectors_sha256=remembered_digest(given) if given else "",
    )
    check_shapes(state, config.shapes(), where=str(source))
    return write_word_folder(out, kind="infersent", config=config, tensors={k: t.float() for k, t in state.items()})


def convert_skip_thoughts(source: Path, out: Path) -> Path:
    """Convert the published folder (``uni_skip.npz``, ``bi_skip.npz``, tables and ``dictionary.txt``).

    The ``.pkl`` files beside them are not needed and never read.

    Raises:
        SourceError: a file is missing.
        EncoderError: one is broken, or not what it should be.
    """
    for name in ("uni_skip.npz", "bi_skip.npz", *TABLES.values(), "dictionary.txt"):
        if not (source / name).is_file():
            raise SourceError(f"{source}: no {name}; get it as the README of github.com/ryankiros/skip-thoughts says")
    lines = (source / "dictionary.txt").read_text(encoding="utf-8").split("\n")
    # Of a word that stands twice the published code takes the last.
    rows = {word.strip(): row for row, word in enumerate(lines) if word.strip()}
    halves, tensors = {}, {}
    for name, prefixes in (("uni", ["encoder"]), ("bi", ["encoder", "encoder_r"])):
        try:
            table = np.load(source / TABLES[name], mmap_mode="r", allow_pickle=False)
            with np.load(source / f"{name}_skip.npz", allow_pickle=False) as archive:
                layers = [_theano_gru(archive, prefix) for prefix in prefixes]
        except (OSError, ValueError, KeyError) as error:
            raise EncoderError(f"{source}: the half '{name}' cannot be read: {one_line(error)}") from error
        if table.ndim != 2 or len(table) <= max(rows.values()):
            raise EncoderError(f"{source / TABLES[name]}: shape {table.shape} for {len(lines)} lines of dictionary.txt")
        hidden, size = layers[0]["weight_hh_l0"].shape[1], table.shape[1]
        halves[name] = Half(word_size=size, hidden=hidden, bidirectional=name == "bi")
        tensors[f"{name}.embedding"] = torch.from_numpy(table[list(rows.values())].astype(np.float32))
        for i, layer in enumerate(layers):
            tensors |= {f"{name}.gru.directions.{i}.gru.{key}": torch.from_numpy(a) for key, a in layer.items()}
    config = HalvesConfig(halves=halves, unknown=UNKNOWN, eos=EOS if EOS in rows else "")
    if UNKNOWN not in rows:
        raise EncoderError(f"{source / 'dictionary.txt'}: lacks the word {UNKNOWN}")
    check_shapes(tensors, config.shapes(len(rows)), where=str(source))
    return write_word_folder(out, kind="skip_thoughts", config=config, tensors=tensors, words=list(rows))


def _theano_gru(archive: np.lib.npyio.NpzFile, prefix: str) -> dict[str, FloatArray]:
    """A GRU of the published code as PyTorch's: the same equations, with no recurrent bias."""
    w, u, b, wx, ux, bx = (archive[f"{prefix}_{name}"].astype(np.float32) for name in ("W", "U", "b", "Wx", "Ux", "bx"))
    return {
        "weight_ih_l0": np.concatenate([w.T, wx.T]),
        "weight_hh_l0": np.concatenate([u.T, ux.T]),
        "bias_ih_l0": np.concatenate([b, bx]),
        "bias_hh_l0": np.zeros(len(b) + len(bx), dtype=np.float32),
    }


def expand_vocabulary(encoder: GruHalvesEncoder, vectors: str, out: Path, *, limit: int | None = None) -> Path:
    """Write a folder whose vocabulary has the words of a file of word vectors too.

    Each half's word table is fitted by least squares, with an intercept, from the vectors of the
    words that both have; words with an underscore are left out, as in the papers' code, and the
    encoder's own words keep their own vectors.
    ``limit`` takes so many of the file's vectors, from its start.

    Raises:
        EncoderError: the vocabularies share too few words to fit the map.
    """
    from sklearn.linear_model import LinearRegression

    path = find_vectors(vectors).path
    opened = open_vectors(path, sha256=remembered_digest(path), limit=limit)
    theirs = [word.decode() for block in read_blocks(path, limit) for word in block.words]
    own, rows = encoder.words, opened.known(theirs)
    shared = [word for word in own if word in rows and word not in (encoder.config.unknown, encoder.config.eos)]
    if len(shared) <= opened.shape[1]:
        raise EncoderError(
            f"{path} and {encoder.folder} share {len(shared)} words; the map needs more than {opened.shape[1]}"
        )
    known = set(own)
    new = [word for word in dict.fromkeys(theirs) if word not in known and "_" not in word and word]
    known_vectors, new_vectors = (
        opened.take(np.array([rows[w] for w in some])).astype(np.float64) for some in (shared, new)
    )
    tensors = encoder.tensors(encoder.config.shapes(len(own)))
    at = [encoder.vocabulary[word] for word in shared]
    for half in encoder.config.halves:
        table = tensors[f"{half}.embedding"].numpy()
        fit = LinearRegression().fit(known_vectors, table[at].astype(np.float64))
        mapped = fit.predict(new_vectors).astype(np.float32)
        tensors[f"{half}.embedding"] = torch.from_numpy(np.concatenate([table, mapped]))
    return write_word_folder(out, kind=encoder.KIND, config=encoder.config, tensors=tensors, words=[*own, *new])
