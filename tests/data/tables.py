"""The reader of tables, for tests that know what kind of split it gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stsbench.data.readers.sentences import read_any_table
from stsbench.data.readers.table import DataFile
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit


def read_pair_table(files: Sequence[DataFile], **params: Any) -> PairSplit:
    found = read_any_table(files, **params)
    assert isinstance(found, PairSplit)
    return found


def read_labelled_table(files: Sequence[DataFile], **params: Any) -> LabelledSplit:
    found = read_any_table(files, **params)
    assert isinstance(found, LabelledSplit)
    return found


def read_labelled_pair_table(files: Sequence[DataFile], **params: Any) -> LabelledPairSplit:
    found = read_any_table(files, **params)
    assert isinstance(found, LabelledPairSplit)
    return found
