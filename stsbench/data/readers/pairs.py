"""Readers of sentence pairs with gold scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from stsbench.data.readers.text import DataFile, TextTable, parse_number, read_delimited, read_lines
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
    table = read_delimited(pairs.path, delimiter="\t", header=False)
    left, right = table.column(0), table.column(1)
    _check_even(table, pairs)
    scores = read_lines(gold.path)
    if first_rows:
        left, right = left[:first_rows], right[:first_rows]
    if len(left) != len(scores):
        raise DataError(f"{pairs.path}: {len(left)} pairs, but {gold.path.name} has {len(scores)} lines")
    graded = [i for i, score in enumerate(scores) if score.strip()]
    return PairSplit(
        sentences1=[left[i] for i in graded],
        sentences2=[right[i] for i in graded],
        gold=np.array(
            [parse_number(scores[i], path=gold.path, line=i + 1, what="gold score") for i in graded], dtype=np.float64
        ),
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
    sentence1: str | int,
    sentence2: str | int,
    gold: str | int,
    subset: str | int | None = None,
    delimiter: str = "\t",
    header: bool = False,
    quoting: bool = False,
) -> PairSplit:
    """Read pairs from delimited files, columns given by header name or position.

    Files are read one after the other as one split (the Hub's SICK-R is train, trial and test).
    """
    left: list[str] = []
    right: list[str] = []
    scores: list[float] = []
    subsets: list[str] = []
    for file in files:
        table = read_delimited(file.path, delimiter=delimiter, header=header, quoting=quoting)
        left += table.column(sentence1)
        right += table.column(sentence2)
        cells = table.column(gold)
        _check_even(table, file)
        scores += [
            parse_number(cell, path=file.path, line=table.first_line + at, what="gold score")
            for at, cell in enumerate(cells)
        ]
        subsets += table.column(subset) if subset is not None else [file.subset] * len(cells)
    return PairSplit(sentences1=left, sentences2=right, gold=np.array(scores, dtype=np.float64), subset=subsets)
