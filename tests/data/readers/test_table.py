"""Columns of a table, and the rows of one split among several."""

from __future__ import annotations

from pathlib import Path

import pytest

from stsbench.data.readers.pairs import read_pair_table
from stsbench.data.readers.table import TextTable, listed, rows_of_split
from stsbench.data.readers.text import DataFile
from stsbench.errors import CardError, DataError

TABLE = TextTable(
    path=Path("t"), header=["a", "part"], rows=[["x", "dev"], ["y", "test"], ["z", "dev"]], numbers=[2, 4, 5]
)


def test_columns_by_name_and_position():
    assert TABLE.column("a") == TABLE.column(0) == ["x", "y", "z"]
    assert TABLE.place(1) == "t: line 4"
    with pytest.raises(DataError, match="t: line 2: 2 columns, column 7 is missing"):
        TABLE.column(7)
    with pytest.raises(CardError, match="counted from 0"):
        TABLE.column(-1)


def test_rows_of_a_split_by_its_own_name_or_the_files():
    assert list(rows_of_split(TABLE, None, "validation")) == [0, 1, 2]
    assert list(rows_of_split(TABLE, "part", "test")) == [1]
    assert list(rows_of_split(TABLE, "part", "validation", {"validation": "dev"})) == [0, 2]
    with pytest.raises(DataError, match=r"t: no row of split 'validation' \(has dev, test\)"):
        rows_of_split(TABLE, "part", "validation")


def test_pairs_of_one_split(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,score,part\nx,y,1,dev\nz,w,2,test\n")
    file = DataFile(path=tmp_path / "t.csv")
    split = read_pair_table([file], sentence1="a", sentence2="b", gold="score", split_column="part", split="test")
    assert (list(split.sentences1), split.gold.tolist()) == (["z"], [2.0])


def test_of_very_many_columns_some_are_listed():
    assert listed([f"c{i}" for i in range(30)]).endswith("c19, …")
