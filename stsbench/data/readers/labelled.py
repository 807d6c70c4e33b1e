"""Readers of sentences, and of pairs of sentences, with a class: SentEval's formats and tables like them.

Sentences are what SentEval's loaders make of them: split at white space, joined by one blank
again. A class is the label's place in ``classes``, which a card gives in SentEval's order.
Rows keep the order of the file; sorting them is the evaluator's affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from stsbench.data.readers.recognise import FileLayout, check_delimiter, read_table
from stsbench.data.readers.table import ColumnKey, TextTable, needs_header, rows_of_split
from stsbench.data.readers.text import DataFile, read_lines, read_text
from stsbench.data.splits import LabelledPairSplit, LabelledSplit
from stsbench.errors import CardError, DataError, did_you_mean


def read_class_files(files: Sequence[DataFile], *, classes: Sequence[str]) -> LabelledSplit:
    """Read one file a class, a sentence a line (MR, CR, SUBJ, MPQA); the card labels each file.

    The text is Latin-1 and ends a line wherever Unicode does; an empty line is an empty sentence.
    """
    sentences: list[str] = []
    labels: list[int] = []
    for file in files:
        if file.label not in classes:
            raise CardError(
                f"{file.path.name}: label '{file.label}' is not among the card's classes "
                f"({', '.join(classes)}){did_you_mean(file.label, classes)}"
            )
        lines = read_text(file.path, encoding="latin-1").splitlines()
        sentences += map(_rejoin, lines)
        labels += [list(classes).index(file.label)] * len(lines)
    return LabelledSplit(sentences=sentences, labels=np.array(labels, dtype=np.int64), classes=list(classes))


def read_trec(files: Sequence[DataFile], *, classes: Sequence[str]) -> LabelledSplit:
    """Read TREC's lines ``COARSE:fine question`` in Latin-1; the coarse label counts."""
    sentences: list[str] = []
    labels = _Labels(classes)
    for file in files:
        for at, line in enumerate(read_lines(file.path, encoding="latin-1"), start=1):
            coarse, colon, rest = line.strip().partition(":")
            _, blank, question = rest.partition(" ")
            if not colon or not blank:
                raise DataError(f"{file.path}: line {at}: expected 'LABEL:fine question', got '{line[:40]}'")
            labels.add(coarse, f"{file.path}: line {at}")
            sentences.append(_rejoin(question))
    return LabelledSplit(sentences=sentences, labels=labels.ids(), classes=list(classes))


def read_labelled_table(
    files: Sequence[DataFile],
    *,
    sentence: ColumnKey,
    label: ColumnKey,
    classes: Sequence[str],
    delimiter: str | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
    fields: Annotated[int, Meta(ge=0, le=1_000_000)] = 0,
    split_column: ColumnKey | None = None,
    split_values: Mapping[str, str] | None = None,
    split: str = "",
) -> LabelledSplit:
    """Read sentences and labels from tables of any kind (SST).

    ``fields`` cuts a line into that many fields at most: the last one keeps its delimiters.
    With ``split_column`` only the rows of this split are read, see :func:`rows_of_split`.
    """
    sentences: list[str] = []
    labels = _Labels(classes)
    for file in files:
        layout = FileLayout(delimiter, header, quoting)
        table = _even_table(file.path, layout, fields, named=needs_header(sentence, label, split_column))
        texts, names = table.column(sentence), table.column(label)
        for at in rows_of_split(table, split_column, split, split_values):
            labels.add(names[at].strip(), table.place(at))
            sentences.append(_rejoin(texts[at]))
    return LabelledSplit(sentences=sentences, labels=labels.ids(), classes=list(classes))


def read_labelled_pair_table(
    files: Sequence[DataFile],
    *,
    sentence1: ColumnKey,
    sentence2: ColumnKey,
    label: ColumnKey,
    classes: Sequence[str],
    delimiter: str | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
    split_column: ColumnKey | None = None,
    split_values: Mapping[str, str] | None = None,
    split: str = "",
) -> LabelledPairSplit:
    """Read sentence pairs and labels from tables of any kind (MRPC, SICK-E)."""
    left: list[str] = []
    right: list[str] = []
    labels = _Labels(classes)
    for file in files:
        layout = FileLayout(delimiter, header, quoting)
        table = _even_table(file.path, layout, 0, named=needs_header(sentence1, sentence2, label, split_column))
        texts1, texts2, names = table.column(sentence1), table.column(sentence2), table.column(label)
        for at in rows_of_split(table, split_column, split, split_values):
            labels.add(names[at].strip(), table.place(at))
            left.append(_rejoin(texts1[at]))
            right.append(_rejoin(texts2[at]))
    return LabelledPairSplit(sentences1=left, sentences2=right, labels=labels.ids(), classes=list(classes))


def read_snli(files: Sequence[DataFile], *, classes: Sequence[str]) -> LabelledPairSplit:
    r"""Read SNLI in SentEval's layout: a file of premises, one of hypotheses, one of labels.

    SentEval decodes the UTF-8 sentences as Latin-1, and so do we: its models saw that text.
    Lines end at ``\n`` alone, so that no byte within a character can shift sentences against labels.
    """
    if len(files) != 3:
        raise CardError(f"reader 'snli' takes three files a split (s1, s2, labels), the card names {len(files)}")
    premises, hypotheses = (read_lines(file.path, encoding="latin-1") for file in files[:2])
    names = read_lines(files[2].path)
    for file, lines in zip(files[:2], (premises, hypotheses), strict=True):
        if len(lines) != len(names):
            raise DataError(f"{file.path}: {len(lines)} lines, but {files[2].path.name} has {len(names)}")
    labels = _Labels(classes)
    for at, name in enumerate(names, start=1):
        labels.add(name, f"{files[2].path}: line {at}")
    return LabelledPairSplit(
        sentences1=[_rejoin(line) for line in premises],
        sentences2=[_rejoin(line) for line in hypotheses],
        labels=labels.ids(),
        classes=list(classes),
    )


_PROBING_TAGS = {"train": "tr", "validation": "va", "test": "te"}


def read_probing(files: Sequence[DataFile], *, split: str, classes: Sequence[str] = ()) -> LabelledSplit:
    """Read one split of a probing file: lines of tag, label, …, sentence (the last field).

    Without ``classes``, they are the labels of the train rows in sorted order, as SentEval numbers them.
    """
    if split not in _PROBING_TAGS:
        raise CardError(f"reader 'probing' has the splits {', '.join(_PROBING_TAGS)}, not '{split}'")
    rows = [row for file in files for row in _probing_rows(file.path)]
    known = list(classes) or sorted({row.label for row in rows if row.tag == _PROBING_TAGS["train"]})
    labels = _Labels(known)
    sentences: list[str] = []
    for row in rows:
        if row.tag == _PROBING_TAGS[split]:
            labels.add(row.label, f"{row.path}: line {row.line}")
            sentences.append(_rejoin(row.sentence))
    if not sentences:
        raise DataError(f"{files[0].path}: no row is tagged '{_PROBING_TAGS[split]}' ({split})")
    return LabelledSplit(sentences=sentences, labels=labels.ids(), classes=known)


@dataclass(frozen=True, slots=True)
class _ProbingRow:
    path: Path
    line: int
    tag: str
    label: str
    sentence: str


def _probing_rows(path: Path) -> list[_ProbingRow]:
    rows = []
    for at, line in enumerate(read_lines(path), start=1):
        cells = line.rstrip().split("\t")
        if len(cells) < 3:
            raise DataError(f"{path}: line {at}: {len(cells)} fields, expected tag, label and sentence")
        if cells[0] not in _PROBING_TAGS.values():
            tags = ", ".join(_PROBING_TAGS.values())
            raise DataError(f"{path}: line {at}: unknown split tag '{cells[0][:40]}' (known: {tags})")
        rows.append(_ProbingRow(path=path, line=at, tag=cells[0], label=cells[1], sentence=cells[-1]))
    return rows


class _Labels:
    """Collects class ids; an unknown label is named with its line."""

    def __init__(self, classes: Sequence[str]) -> None:
        self._id_of = {name: at for at, name in enumerate(classes)}
        self._ids: list[int] = []

    def add(self, name: str, where: str) -> None:
        """Note one row's label."""
        if name not in self._id_of:
            known = list(self._id_of)
            some = ", ".join(known[:6]) + (", …" if len(known) > 6 else "")
            raise DataError(f"{where}: unknown label '{name[:40]}' (known: {some}){did_you_mean(name, known)}")
        self._ids.append(self._id_of[name])

    def ids(self) -> npt.NDArray[np.int64]:
        """The ids of all rows so far."""
        return np.array(self._ids, dtype=np.int64)


def _rejoin(text: str) -> str:
    """Return a text's tokens joined by one blank."""
    return " ".join(text.split())


def _even_table(path: Path, layout: FileLayout, fields: int, *, named: bool) -> TextTable:
    """Read a table whose rows all have the header's number of fields (without one, the first row's)."""
    if fields:
        delimiter = "\t" if layout.delimiter is None else layout.delimiter
        check_delimiter(path, delimiter, quoting=False)
        rows = [line.strip().split(delimiter, fields - 1) for line in read_lines(path)]
        table = TextTable(path=path, header=[], rows=rows, numbers=range(1, len(rows) + 1))
    else:
        table = read_table(path, layout, named=named)
    table.check_filled()
    table.check_even(fields)
    return table
