"""Scores of pairs that another toolkit has written to a file, as a pair scorer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stsbench.core.errors import EncoderError, Remedy, translate_errors
from stsbench.core.files import check_is_file, file_digest
from stsbench.core.provenance import fingerprint
from stsbench.data.readers.columns import PAIR_NAMES, columns_called
from stsbench.data.readers.files import format_names, read_table
from stsbench.data.readers.text import parse_number
from stsbench.encoders.embedding_file import ARRAY_SUFFIXES, FixedTexts, read_arrays, to_texts
from stsbench.encoders.pairs import PairEncoder, join_pair

TABLE_SUFFIXES = (".parquet", ".jsonl", ".csv", ".tsv")
"""The endings of files of tables."""
SCORE_NAMES = (
    ("similarity", "similarities"),
    ("score", "scores"),
    ("prediction", "predictions"),
    ("cosine", "cosines"),
)
"""The names that the scores of a file may have; the first that it has count."""
MAX_REPEATED_DIFFERENCE = 1e-4
"""How far the scores of a pair that occurs twice may differ, as a share of the scores' range.

A toolkit that computes the pair in two batches rounds it in two ways.
"""


class PairScores(NamedTuple):
    """The content of a file of scores."""

    scores: npt.NDArray[np.float64]
    """The score of each pair, (n,)."""
    pairs: Sequence[str] | None
    """The joined pairs; None if the file has no sentences."""


class SimilarityFile(FixedTexts, PairEncoder):
    """The scores of a file: by their sentences, or in the order of the only task that is scored."""

    unit = "pairs"

    def __init__(self, name: str = "", *, file: str) -> None:
        """Read the scores and check them.

        Args:
            name: The name in results; empty for the name of the file.
            file: The file, whose ending tells how it is read: arrays or a table.

        Raises:
            StsbenchError: The file cannot be read, or holds no scores or two for one pair.
        """
        self.name = name or Path(file).name
        self.path = Path(file)
        self.scores, pairs = read_similarities(self.path)
        self.has_sentences = pairs is not None
        self.row_by_text = self._index_pairs(pairs or [])
        self.digest = file_digest(self.path)
        self.fingerprint = fingerprint({"similarities": self.digest})

    @property
    def notes(self) -> list[str]:
        """The note that the scores came from a file, which says no order of the sentences."""
        return [
            f"scores of pairs from the file {self.path.name} (sha256 {self.digest[:12]}), "
            "without embeddings"
        ]

    def align(self, pairs_by_task: Mapping[str, Sequence[str]]) -> None:
        """Take the scores in the order of a task's pairs if the file has no sentences.

        Args:
            pairs_by_task: The joined pairs of each task that is scored, in the order of its data.

        Raises:
            EncoderError: There are several tasks, or another number of pairs than of scores.
        """
        if self.has_sentences or not pairs_by_task:
            return
        if len(pairs_by_task) > 1:
            raise EncoderError(
                f"{self.path} has scores without sentences, which are for one task; here are "
                f"{len(pairs_by_task)}",
                hint="score one task, or write the sentences beside the scores",
                remedy=Remedy("texts"),
            )
        ((task, pairs),) = pairs_by_task.items()
        if len(pairs) != len(self.scores):
            raise EncoderError(
                f"{self.path} has {len(self.scores):,} scores for {len(pairs):,} pairs of {task}",
                remedy=Remedy("texts"),
            )
        self.row_by_text = self._index_pairs(pairs)

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the scores of joined pairs, (n, 2); EncoderError if the file lacks one."""
        self.require_texts(texts)
        return super().encode(texts)

    def score_pairs(self, first: Sequence[str], second: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return the score of each pair, (n,)."""
        return self.scores[self.find_rows(list(map(join_pair, first, second)))]

    def _index_pairs(self, pairs: Sequence[str]) -> dict[str, int]:
        """Return the row of each joined pair; a pair may occur again with about the same score.

        Raises:
            EncoderError: A pair has two scores.
        """
        row_by_pair: dict[str, int] = {}
        tolerance = MAX_REPEATED_DIFFERENCE * np.ptp(self.scores)
        for row, pair in enumerate(pairs):
            first_row = row_by_pair.setdefault(pair, row)
            if abs(self.scores[row] - self.scores[first_row]) > tolerance:
                raise EncoderError(
                    f"{self.path}: rows {first_row + 1} and {row + 1} have one pair and the scores "
                    f"{self.scores[first_row]:.6g} and {self.scores[row]:.6g}"
                )
        return row_by_pair


def read_similarities(path: Path) -> PairScores:
    """Return the scores of a file, and its pairs if it has their sentences.

    Raises:
        StsbenchError: The file is of another kind or cannot be read, or its scores are not one
            number a pair.
    """
    if path.suffix not in ARRAY_SUFFIXES + TABLE_SUFFIXES:
        endings = ", ".join(ARRAY_SUFFIXES + TABLE_SUFFIXES)
        raise EncoderError(f"{path}: give a file that ends in {endings}")
    check_is_file(path, EncoderError)
    content = _read_arrays(path) if path.suffix in ARRAY_SUFFIXES else _read_table(path)
    if content.pairs is not None and len(content.pairs) != len(content.scores):
        raise EncoderError(
            f"{path} has {len(content.scores):,} scores for {len(content.pairs):,} pairs"
        )
    bad_rows = np.flatnonzero(~np.isfinite(content.scores))
    if len(bad_rows):
        raise EncoderError(
            f"{path}: {len(bad_rows):,} of {len(content.scores):,} scores are NaN or infinity, "
            f"the first in row {bad_rows[0] + 1}"
        )
    return content


def _read_arrays(path: Path) -> PairScores:
    """Read named arrays; a single array of numbers needs no name."""
    with translate_errors(f"{path}: cannot be read", EncoderError):
        arrays = read_arrays(path)
    names = [*arrays] if len(arrays) > 1 else ["score"]
    array_by_name = dict(zip(names, arrays.values(), strict=True))
    scores = array_by_name[_find_scores(path, names)]
    if scores.dtype.kind not in "fiu" or scores.ndim not in (1, 2) or scores.size != len(scores):
        raise EncoderError(
            f"{path} has an array of {scores.dtype} of shape {scores.shape}; "
            "it must be one of numbers (n,)"
        )
    pairs = _join_columns(path, names, lambda name: to_texts(array_by_name[name]))
    return PairScores(scores.reshape(-1).astype(np.float64), pairs)


def _read_table(path: Path) -> PairScores:
    """Read the columns of a table."""
    table = read_table(path, by_name=True)
    name = _find_scores(path, table.header)
    scores = [
        parse_number(cell, where=table.locate_row(row), name="score")
        for row, cell in enumerate(table.column(name))
    ]
    return PairScores(np.array(scores), _join_columns(path, table.header, table.column))


def _find_scores(path: Path, names: Sequence[str]) -> str:
    """Return the name of the scores; EncoderError if no name, or several, may be theirs."""
    for score_names in SCORE_NAMES:
        matches = columns_called(names, score_names)
        if len(matches) == 1:
            return matches[0]
    raise EncoderError(
        f"{path} has {format_names(names) or 'nothing'}; it must have one column 'similarity'"
    )


def _join_columns(
    path: Path, names: Sequence[str], read_column: Callable[[str], Sequence[str]]
) -> list[str] | None:
    """Return the joined pairs of two columns of sentences; None if no names are those of a pair.

    Raises:
        EncoderError: One column has more texts than the other.
    """
    for first_name, second_name in PAIR_NAMES:
        columns = columns_called(names, [first_name]) + columns_called(names, [second_name])
        if len(columns) == 2:
            first, second = map(read_column, columns)
            if len(first) != len(second):
                raise EncoderError(
                    f"{path} has {len(first):,} first and {len(second):,} second texts"
                )
            return list(map(join_pair, first, second))
    return None
