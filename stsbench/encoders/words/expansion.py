"""Vocabulary expansion: words never trained on get vectors mapped from word2vec's (Kiros et al. 2015, section 2.2)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from stsbench.encoders.checkpoints.digest_cache import remembered_digest
from stsbench.encoders.words.folder import write_word_folder
from stsbench.encoders.words.gru_halves import GruHalvesEncoder
from stsbench.encoders.words.vectors import open_vectors
from stsbench.encoders.words.words import find_vectors
from stsbench.errors import EncoderError


def expand_vocabulary(encoder: GruHalvesEncoder, vectors: str, out: Path, *, limit: int | None = None) -> Path:
    """Write a folder whose vocabulary has the words of a file of word vectors too.

    Each half's word table is fitted by least squares, with an intercept, from the vectors of the
    words that both have; words with an underscore are left out, as in the papers' code, and the
    encoder's own words keep their own vectors.

    Args:
        encoder: a Skip-Thoughts or Quick-Thoughts encoder.
        vectors: the file of word vectors.
        out: the folder to write.
        limit: how many of the file's vectors to use, from its start.

    Raises:
        EncoderError: the vocabularies share too few words to fit the map.
    """
    path = find_vectors(vectors, hub="", hub_file="", revision="unpinned").path
    opened = open_vectors(path, sha256=remembered_digest(path), limit=limit)
    theirs = bytes(opened.words).decode("utf-8").split("\n")[:-1]
    own = encoder.folder.words()
    rows = {word: row for row, word in reversed(list(enumerate(theirs)))}
    shared = [word for word in own if word in rows and word not in (encoder.config.unknown, encoder.config.eos)]
    if len(shared) <= opened.shape[1]:
        raise EncoderError(
            f"{path} and {encoder.folder.path} share {len(shared)} words; the map needs more than {opened.shape[1]}"
        )
    known = set(own)
    new = [word for word in dict.fromkeys(theirs) if word not in known and "_" not in word and word]
    known_vectors, new_vectors = (opened.take(np.array([rows[w] for w in some])) for some in (shared, new))
    tensors = encoder.folder.tensors(encoder.config.shapes(len(own)))
    at = [encoder.vocabulary[word] for word in shared]
    for half in encoder.config.halves:
        table = tensors[f"{half}.embedding"].numpy()
        mapped = map_linearly(known_vectors, table[at], new_vectors)
        tensors[f"{half}.embedding"] = torch.from_numpy(np.concatenate([table, mapped.astype(np.float32)]))
    return write_word_folder(out, kind=encoder.KIND, config=encoder.config, tensors=tensors, words=[*own, *new])


def map_linearly(
    x: npt.NDArray[np.float32], y: npt.NDArray[np.float32], new: npt.NDArray[np.float32]
) -> npt.NDArray[np.float64]:
    """Fit y (n, e) from x (n, d) by least squares with an intercept, and return the fit's values at new (m, d)."""
    from sklearn.linear_model import LinearRegression

    fitted: npt.NDArray[np.float64] = LinearRegression().fit(x.astype(np.float64), y).predict(new.astype(np.float64))
    return fitted
