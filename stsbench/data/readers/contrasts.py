"""The reader of contrast sets: sentences with one that means the same and others that do not."""

from __future__ import annotations

from collections.abc import Sequence

from stsbench.data.readers.files import read_table
from stsbench.data.readers.table import ColumnKey, DataFile, FileLayout, TextTable
from stsbench.data.splits import ContrastSplit


def read_contrast_table(
    files: Sequence[DataFile],
    *,
    anchor: ColumnKey = "anchor",
    positive: ColumnKey = "positive",
    negatives: Sequence[ColumnKey] = ("negative",),
    delimiter: str | None = None,
    header: bool | None = None,
    quoting: bool | None = None,
) -> ContrastSplit:
    """Read anchors with a more similar and with less similar sentences from tables of any kind.

    Args:
        files: The files, read in turn as one split.
        anchor: The column of anchors.
        positive: The column of the more similar sentences.
        negatives: The columns of less similar sentences.
        delimiter: The delimiter of a text file.
        header: Whether the first row holds the names of the columns.
        quoting: Whether quotes hold cells together.

    Raises:
        DataError: A file is broken, or a column is missing.
    """
    layout = FileLayout(delimiter, header, quoting)
    by_name = any(isinstance(key, str) for key in (anchor, positive, *negatives))
    tables = [read_table(file.path, layout, by_name=by_name, with_lists=True) for file in files]
    for table in tables:
        table.check_row_lengths()
    return to_contrasts(tables, anchor, positive, negatives)


def to_contrasts(
    tables: Sequence[TextTable],
    anchor: ColumnKey,
    positive: ColumnKey,
    negatives: Sequence[ColumnKey],
) -> ContrastSplit:
    """Make a split of the rows of tables; columns are those of :func:`read_contrast_table`."""
    anchors, positives, *columns = (
        [text for table in tables for text in table.column(key)]
        for key in (anchor, positive, *negatives)
    )
    return ContrastSplit(anchors=anchors, positives=positives, negatives=columns)
