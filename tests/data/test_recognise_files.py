"""Splits by the names of files and by a column; what is not clear is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from stsbench.core.errors import DataError
from stsbench.data.recognise import WHOLE, find_tables

ROWS = "s1,s2,score\na,b,1.5\nc,d,2\n"


def put(folder: Path, *names: str, content: str = ROWS) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text(content)
    return folder


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["train.csv", "dev.csv", "test.csv"], {"train": 1, "validation": 1, "test": 1}),
        (["x_TRAIN_x.csv", "x-valid.tsv"], {"train": 1, "validation": 1}),
        (["test-00000-of-00002.csv", "test-00001-of-00002.csv"], {"test": 2}),
        (["only.csv"], {WHOLE: 1}),
        (["SICK_trial.txt", "SICK_test_annotated.txt", "notes.md"], {"validation": 1, "test": 1}),
    ],
)
def test_files_of_a_folder(tmp_path, names, expected):
    found = find_tables(put(tmp_path / "d", *names))
    assert {split: len(tables) for split, tables in found.tables.items()} == expected
    assert (found.named, found.column, list(found.unsure)) == (True, None, [])


def test_rows_of_all_files_are_looked_at_together(tmp_path):
    put(tmp_path / "d", "train.csv")
    found = find_tables(put(tmp_path / "d", "test.csv", content="s1,s2,score\ne,f,x\n"))
    assert [list(column.cells) for column in found.columns()] == [["a", "c", "e"], ["b", "d", "f"], ["1.5", "2", "x"]]


def test_what_is_left_out_and_what_is_odd_is_told(tmp_path):
    put(tmp_path / "d", "readme.txt", content="hello")
    found = find_tables(put(tmp_path / "d", "train.tsv", content="a b\tc d\t1\ne f\tg h\t2\tmore\n"))
    left, odd, unnamed = found.unsure
    assert left == "left out, for their names are of no split: readme.txt"
    assert odd.endswith(
        "train.tsv: line 2: 4 fields, expected 3: cells beyond the last column that all rows have are not read"
    )
    assert unnamed.startswith("no line that names the columns was found")
    assert [column.key for column in found.columns()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("words", "values"),
    [(("train", "test"), {}), (("train", "dev"), {"validation": "dev"}), (("TR", "TE"), {"train": "TR", "test": "TE"})],
)
def test_a_column_tells_splits(tmp_path, words, values):
    rows = "".join(f"a b {at},{word}\n" for at, word in enumerate(words * 2))
    found = find_tables(put(tmp_path, "all.csv", content=f"text,part\n{rows}") / "all.csv")
    assert (found.column, found.values) == ("part", values)
    assert len(found.tables) == 2 and len(found.columns()[0].cells) == 4


@pytest.mark.parametrize("words", [("train", "other"), ("dev", "val"), ("train", "train")])
def test_a_column_that_tells_no_splits(tmp_path, words):
    rows = "".join(f"a b {at},{word}\n" for at, word in enumerate(words * 2))
    found = find_tables(put(tmp_path, "all.csv", content=f"text,part\n{rows}") / "all.csv")
    assert (found.column, [*found.tables]) == (None, [WHOLE])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.md"], r"d: has no table \(.csv, .tsv"),
        (
            ["a.csv", "b.csv"],
            r"none of its 2 tables has train, dev or test in its name \(a.csv, b.csv\); give one file",
        ),
        (["train.csv", "train.jsonl"], r"several files may be the split train \(train.csv, train.jsonl\); leave one"),
        (["a-test.csv", "b-test.csv"], "several files may be the split test"),
    ],
)
def test_files_whose_splits_are_not_clear(tmp_path, names, message):
    with pytest.raises(DataError, match=message):
        find_tables(put(tmp_path / "d", *names))


def test_rows_below_the_header_must_be_there_and_whole(tmp_path):
    with pytest.raises(DataError, match="t.csv: no rows below the header"):
        find_tables(put(tmp_path, "t.csv", content="s1,s2,score\n") / "t.csv")
    with pytest.raises(DataError, match="t.tsv: line 3: 2 fields, expected 3"):
        find_tables(put(tmp_path, "t.tsv", content="s1\ts2\tscore\na\tb\t1\nc\td\n\n") / "t.tsv")


def test_splits_of_other_columns_are_refused(tmp_path):
    put(tmp_path / "d", "train.csv")
    put(tmp_path / "d", "test.csv", content="s1,s2,gold\na,b,1\n")
    with pytest.raises(
        DataError, match=r"its columns \(s1, s2, \w+\) are not those of \w+.csv \(s1, s2, \w+\); make them"
    ):
        find_tables(tmp_path / "d")
    with pytest.raises(DataError, match="'.*nothing' does not exist; give a file, or a folder"):
        find_tables(tmp_path / "nothing")
