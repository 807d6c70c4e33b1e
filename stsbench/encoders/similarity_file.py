"""Scores of pairs that another toolkit has written to a file, as a pair scorer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import EncoderError, Remedy, translate_errors
from stsbench.core.files import file_sha256, refuse_special_file
from stsbench.core.provenance import fingerprint
from stsbench.data.readers.columns import PAIR_NAMES, columns_called, find_sentences
from stsbench.data.readers.files import read_table
from stsbench.encoders.embedding_file import (
    ARRAY_SUFFIXES,
    FileEncoder,
    index_texts,
    read_arrays,
    to_texts,
)
from stsbench.encoders.pairs import PairScorer, join_pair, to_rows

SCORE_NAMES = ("similarity", "similarities", "score", "scores", "prediction", "predictions")
"""The names that the scores of a file may have; the first of these that it has counts."""


class SimilarityFile(FileEncoder, PairScorer):
    """The scores of a file: by their sentences, or in the order of the only task that is scored."""

    unit = "pairs"

    def __init__(self, name: str = "", *, file: str) -> None:
        """Read the scores and check them.

        Args:
            name: The name in results; empty for the name of the file.
            file: The file of arrays (``.npz``, ``.npy``, ``.safetensors``) or of a table.

        Raises:
            StsbenchError: The file cannot be read, or has not one finite score a pair.
        """
        self.name = name or Path(file).name
        self.path = Path(file)
        refuse_special_file(self.path, EncoderError)
        columns = _read_columns(self.path)
        scores = _read_scores(self.path, columns)
        self.dtype = "float64"
        self.embeddings = to_rows(scores)
        self.digest = file_sha256(self.path)
        self.fingerprint = fingerprint({"similarities": self.digest})
        self.row_by_text = {}
        self.has_sentences = any(columns_called([*columns], names) for names in PAIR_NAMES)
        if self.has_sentences:
            sentences = find_sentences([*columns], {}, where=str(self.path))
            sides = [columns[str(column)] for column in sentences]
            self._index_pairs(list(map(join_pair, *sides)))

    @property
    def notes(self) -> list[str]:
        """The note that the scores came from a file, whose order of the sentences is unknown."""
        return [f"scores of pairs from the file {self.path.name} (sha256 {self.digest[:12]})"]

    def align(self, pairs_by_task: Mapping[str, Sequence[str]]) -> None:
        """Take the scores in the order of a task's pairs if the file has no sentences.

        Args:
            pairs_by_task: The joined pairs of each task that is scored, in the order of its data.

        Raises:
            EncoderError: There are several tasks, or another number of pairs than of scores.
        """
        if self.has_sentences:
            return
        if len(pairs_by_task) > 1:
            raise EncoderError(
                f"{self.path} has no sentences, so that its scores are for one task, not for "
                f"{len(pairs_by_task)}",
                remedy=Remedy("texts"),
            )
        for pairs in pairs_by_task.values():
            self._index_pairs(pairs)

    def _index_pairs(self, pairs: Sequence[str]) -> None:
        """Find the row of each joined pair.

        Raises:
            EncoderError: There is another number of scores, or a pair has two.
        """
        if len(pairs) != len(self.embeddings):
            raise EncoderError(
                f"{self.path} has {len(self.embeddings):,} scores for {len(pairs):,} pairs",
                remedy=Remedy("texts"),
            )
        self.row_by_text = index_texts(self.path, self.embeddings, pairs)


def _read_columns(path: Path) -> dict[str, list[Any]]:
    """Return the columns of a file that have a usual name; a single one needs none.

    Raises:
        StsbenchError: The file cannot be read.
    """
    if path.suffix in ARRAY_SUFFIXES:
        with translate_errors(f"{path}: cannot be read", EncoderError):
            columns = {name: to_texts(array) for name, array in read_arrays(path).items()}
    else:
        table = read_table(path, by_name=True)
        usual_names = [*SCORE_NAMES, *chain.from_iterable(PAIR_NAMES)]
        names = columns_called(table.header, usual_names) or table.header[:1]
        columns = {name: table.column(name) for name in names}
    return columns if len(columns) > 1 else dict(zip(SCORE_NAMES, columns.values(), strict=False))


def _read_scores(path: Path, columns: Mapping[str, Sequence[Any]]) -> npt.NDArray[np.float64]:
    """Return the scores among columns, (n,).

    Raises:
        EncoderError: No column has a usual name of scores, or one is no finite number.
    """
    names = [name for usual in SCORE_NAMES for name in columns_called([*columns], [usual])]
    if not names:
        raise EncoderError(f"{path} has {', '.join(columns)}; it must have one 'similarity'")
    with translate_errors(f"{path}: '{names[0]}' has no numbers", EncoderError):
        scores = np.array(columns[names[0]], dtype=np.float64)
    bad_rows = np.flatnonzero(~np.isfinite(scores))
    if len(bad_rows):
        raise EncoderError(
            f"{path}: {len(bad_rows):,} of {len(scores):,} scores are NaN or infinity, "
            f"the first in row {bad_rows[0] + 1}"
        )
    return scores
