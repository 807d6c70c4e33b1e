"""Readers of sentence pairs with gold scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from stsbench.data.readers.recognise import FileLayout, read_delimited, read_table
from stsbench.data.readers.table import ColumnKey, TextTable, needs_header, rows_of_split
from stsbench.data.readers.text import DataFile, parse_number, read_lines
from stsbench.data.splits import PairSplit
from stsbench.errors import CardError, DataError


def read_semeval(files: Sequence[DataFile], *, first_rows: Annotated[int, Meta(ge=0)] = 0) -> PairSplit:
    """Read SemEval's pairs of files: an input file, then the gold file of the same subset.

    A blank gold line marks a pair without a gold score; its sentences are kept as ungraded
    (STS15 and STS16 hold thousands). ``first_rows`` keeps that many input lines only, for
    releases whose input goes on past the graded part (STS17 track 6).
    """
    if len(files) % 2:
        raise CardError(f"reader 'semeval' takes input and gold files in turn; {files[-1].path} stands alone")
    parts = [_read_subset(files[i], files[i + 1], first_rows) for i in range(0, len(files), 2)]
    return PairSplit(
        sentences1=[s for part in parts for s in part.sentences1],
        sentences2=[s for part in parts for s in part.sentences2],
        gold=np.concatenate([part.gold for part in parts]),
        subset=[s for part in parts for s in part.subset],
        ungraded=[s for part in parts for s in part.ungraded],
    )


def _read_subset(pairs: DataFile, gold: DataFile, first_rows: int) -> PairSplit:
    table = read_delimited(pairs.path, FileLayout("\t", header=False, quoting=False), named=False)
    left, right = table.column(0), table.column(1)
    _check_even(table, pairs)
    scores = read_lines(gold.path)
    if first_rows:
        left, right = left[:first_rows], right[:first_rows]
    if len(left) != len(scores):
        raise DataError(f"{pairs.path}: {len(left)} pairs, but {gold.path.name} has {len(scores)} lines")
    graded = [i for i, score in enumerate(scores) if score.strip()]
    numbers = [parse_number(scores[i], where=f"{gold.path}: line {i + 1}", what="gold score") for i in graded]
    return PairSplit(
        sentences1=[left[i] for i in graded],
        sentences2=[right[i] for i in graded],
        gold=np.array(numbers, dtype=np.float64),
        subset=[pairs.subset] * len(graded),
        ungraded=[text for i, score in enumerate(scores) if not score.strip() for text in (left[i], right[i])],
    )


def _check_even(table: TextTable, file: DataFile) -> None:
    """A delimiter too many shifts columns; STS-B as released has two fields more in some rows, at their end."""
    if table.rows and not file.pinned:
        table.check_even()


def read_pair_table(
    files: Sequence[DataFile],
    *,
    sentence1: ColumnKey,
    sentence2: ColumnKey,
    gold: ColumnKey,
    subset: ColumnKey | None = None,
    delimiter: str | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
    split_column: ColumnKey | None = None,
    split_values: Mapping[str, str] | None = None,
    split: str = "",
) -> PairSplit:
    """Read pairs from tables of any kind, columns given by name or position.

    Files are read one after the other as one split (the Hub's SICK-R is train, trial and test).
    With ``split_column`` only the rows of this split are read, see :func:`rows_of_split`.
    Where both sentences are of one column, its cells hold both, a line each.
    """
    left: list[str] = []
    right: list[str] = []
    scores: list[float] = []
    subsets: list[str] = []
    for file in files:
        layout = FileLayout(delimiter, header, quoting)
        table = read_table(file.path, layout, named=needs_header(sentence1, sentence2, gold, subset, split_column))
        table.check_filled()
        texts1, texts2, cells = *_both(table, sentence1, sentence2), table.column(gold)
        _check_even(table, file)
        parts = table.column(subset) if subset is not None else [file.subset] * len(cells)
        for at in rows_of_split(table, split_column, split, split_values):
            left.append(texts1[at])
            right.append(texts2[at])
            scores.append(parse_number(cells[at], where=table.place(at), what="gold score"))
            subsets.append(parts[at])
    return PairSplit(sentences1=left, sentences2=right, gold=np.array(scores, dtype=np.float64), subset=subsets)


def _both(table: TextTable, sentence1: ColumnKey, sentence2: ColumnKey) -> tuple[list[str], list[str]]:
    """The first and the second sentences; of one column the two lines of each cell."""
    first, second = table.column(sentence1), table.column(sentence2)
    if sentence1 != sentence2:
        return first, second
    lines = [cell.split("\n") for cell in first]
    for at, parts in enumerate(lines):
        if len(parts) != 2:
            raise DataError(f"{table.place(at)}: column {sentence1!r} holds {len(parts)} lines, a pair has two")
    return [parts[0] for parts in lines], [parts[1] for parts in lines]
