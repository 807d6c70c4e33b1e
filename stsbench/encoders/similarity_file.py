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
    map_texts_to_rows,
    read_arrays,
    to_list_of_texts,
)
from stsbench.encoders.pairs import PairScorer, join_pair, scores_to_rows

SCORE_NAMES = ("similarity", "similarities", "score", "scores", "prediction", "predictions")
"""The names that the scores of a file may have; the first of these that it has counts."""


class SimilarityFile(FileEncoder, PairScorer):
    """The scores of a file: by their sentences, or in the order of the only task that is scored."""

    unit = "pairs"

    def __init__(self, name: str = "", *, file: str) -> None:
        """Read the scores of a file and check them, and the sentences beside them if it has some.

        Args:
            name: The name in results; empty for the name of the file.
            file: The file of arrays (``.npz``, ``.npy``, ``.safetensors``) or of a table.

        Raises:
            StsbenchError: The file cannot be read, or has not one finite score per pair.
        """
        self.name = name or Path(file).name
        self.path = Path(file)
        # Raises for a path that is no ordinary file, such as a pipe.
        refuse_special_file(self.path, EncoderError)
        # The values of each column that has a usual name.
        columns = _read_columns(self.path)
        scores = _read_scores(self.path, columns)
        self.dtype = "float64"
        # The engine stores rows of float32: here (n, 2), the score as float32 and what that rounds
        # off, so that their sum is the score in float64.
        self.embeddings = scores_to_rows(scores)
        self.digest = file_sha256(self.path)
        self.fingerprint = fingerprint({"similarities": self.digest})
        self.row_by_text = {}
        # Whether a column has a usual name of either sentence of a pair.
        self.has_sentences = any(columns_called([*columns], names) for names in PAIR_NAMES)
        if self.has_sentences:
            # The names of the two columns; {}: the user has named none.
            sentences = find_sentences([*columns], {}, where=str(self.path))
            sides = [columns[str(column)] for column in sentences]
            if len(sides) != 2 or len(sides[0]) != len(sides[1]):
                raise EncoderError(
                    f"{self.path}: {', '.join(map(str, sentences))} are no two columns of "
                    "sentences of the same length",
                    remedy=Remedy("pairs"),
                )
            # The two sentences of each pair become one text.
            self._index_pairs(list(map(join_pair, *sides)))

    @property
    def notes(self) -> list[str]:
        """The note that the scores came from a file, whose order of the sentences is unknown."""
        return [f"scores of pairs from the file {self.path.name} (sha256 {self.digest[:12]})"]

    def align(self, pairs_by_task: Mapping[str, Sequence[str]]) -> None:
        """Assign the scores to the pairs of a task, in its order, if the file has no sentences.

        Args:
            pairs_by_task: For each task that is scored, one text per pair of sentences, as
                ``join_pair`` makes it, in the order of the task's data.

        Raises:
            EncoderError: There are several tasks, or another number of pairs than of scores.
        """
        if self.has_sentences:
            return
        if len(pairs_by_task) > 1:
            raise EncoderError(
                f"{self.path} has no sentences, so that its scores are for one task, not for "
                f"{len(pairs_by_task)}",
                remedy=Remedy("pairs"),
            )
        for pairs in pairs_by_task.values():
            self._index_pairs(pairs)

    def _index_pairs(self, pairs: Sequence[str]) -> None:
        """Set ``row_by_text``: for each pair of sentences the row of its score.

        The scores are ``self.embeddings``, with one row for each. A pair that occurs again must
        have the same score again, up to rounding; its first row counts.

        Args:
            pairs: One text per score, as ``join_pair`` makes it of two sentences.

        Raises:
            EncoderError: There are fewer or more pairs than scores, or a pair has two scores.
        """
        if len(pairs) != len(self.embeddings):
            raise EncoderError(
                f"{self.path} has {len(self.embeddings):,} scores for {len(pairs):,} pairs",
                # It tells the user how to list the pairs of a task.
                remedy=Remedy("pairs"),
            )
        self.row_by_text = map_texts_to_rows(self.path, self.embeddings, pairs)


def _read_columns(path: Path) -> dict[str, list[Any]]:
    """Return the columns of a file that may be scores or sentences, by name.

    These are the columns with usual names, and all arrays of a file of arrays. If there is only
    one column, it may have any name, and is returned under ``similarity``.

    Raises:
        StsbenchError: The file cannot be read.
    """
    if path.suffix in ARRAY_SUFFIXES:
        # Each array as a flat list of its values, of which bytes become texts.
        with translate_errors(f"{path}: cannot be read", EncoderError):
            columns = {name: to_list_of_texts(array) for name, array in read_arrays(path).items()}
    else:
        table = read_table(path, by_name=True)
        usual_names = [*SCORE_NAMES, *chain.from_iterable(PAIR_NAMES)]
        # The columns with one of these names; if there is none, the first.
        names = columns_called(table.header, usual_names) or table.header[:1]
        columns = {name: table.column(name) for name in names}
    if len(columns) > 1:
        return columns
    # One column, under the first of the usual names, "similarity"; or none.
    return dict(zip(SCORE_NAMES, columns.values(), strict=False))


def _read_scores(path: Path, columns: Mapping[str, Sequence[Any]]) -> npt.NDArray[np.float64]:
    """Return the scores among the columns of a file, (n,).

    Args:
        path: The file, for messages.
        columns: The values of each column, by its name. The first of ``SCORE_NAMES`` that occurs
            is the name of the scores.

    Raises:
        EncoderError: No column has a usual name of scores, or one is no finite number.
    """
    # Case, blanks, hyphens and underscores in the name of a column do not count.
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
