"""Columns of a table, and the rows of one split among several."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from stsbench.core.errors import CardError, DataError
from stsbench.data.readers.sentences import read_any_table
from stsbench.data.readers.table import DataFile, FileLayout, read_table
from stsbench.data.splits import LabelledPairSplit, LabelledSplit, PairSplit
from tests.data.tables import read_pair_table

Rows = list[tuple[str, str, float]]
HEADER = ("s1", "s2", "score")
COLUMNS: dict[str, Any] = {"sentence1": "s1", "sentence2": "s2", "gold": "score"}
ODD: Rows = [
    ('he said "hi", twice', "she; said | nothing", 4.25),
    ("one line\nand another", "un café", 0.0),
    ('"all of it"', 'ends in a quote"', 5.0),
    ("plain", "plain too", 1.5),
]
"""What quoted files must hold: quotes, delimiters, line ends."""


def delimited(
    sign: str, *, end: str = "\n", quoting: Any = csv.QUOTE_MINIMAL, mark: str = ""
) -> Callable[[Path, Rows], None]:
    def write(path: Path, rows: Rows) -> None:
        stream = io.StringIO(newline="")
        csv.writer(stream, delimiter=sign, lineterminator=end, quoting=quoting).writerows([HEADER, *rows])
        path.write_bytes((mark + stream.getvalue()).encode())

    return write


def json_lines(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(dict(zip(HEADER, row, strict=True))) + "\n" for row in rows), encoding="utf-8")


def arrow(path: Path, rows: Rows) -> None:
    columns: list[Any] = [list(column) for column in zip(*rows, strict=True)]
    parquet.write_table(pa.table(dict(zip(HEADER, columns, strict=True))), path)


WAYS: dict[str, tuple[str, Callable[[Path, Rows], None]]] = {
    "comma": ("pairs.csv", delimited(",")),
    "semicolon": ("pairs.csv", delimited(";")),
    "bar": ("pairs.txt", delimited("|")),
    "tab in a .csv": ("pairs.csv", delimited("\t")),
    "tab": ("pairs.tsv", delimited("\t")),
    "all quoted, tab": ("pairs.tsv", delimited("\t", quoting=csv.QUOTE_ALL)),
    "all quoted": ("pairs.csv", delimited(",", quoting=csv.QUOTE_ALL)),
    "CRLF": ("pairs.csv", delimited(",", end="\r\n")),
    "byte order mark": ("pairs.csv", delimited(",", mark="\ufeff", quoting=csv.QUOTE_ALL)),
    "byte order mark, tab": ("pairs.tsv", delimited("\t", mark="\ufeff", end="\r\n")),
    "no name to tell by": ("pairs", delimited(";")),
    "lines of JSON": ("pairs.jsonl", json_lines),
    "lines of JSON in a .json": ("pairs.json", json_lines),
    "lines of JSON by content": ("pairs", json_lines),
    "parquet": ("pairs.parquet", arrow),
    "parquet by content": ("pairs.data", arrow),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_format_and_layout_gives_the_same_pairs(tmp_path: Path, way: str) -> None:
    name, write = WAYS[way]
    write(tmp_path / name, ODD)
    split = read_pair_table([DataFile(path=tmp_path / name)], **COLUMNS)
    assert list(zip(split.sentences1, split.sentences2, split.gold.tolist(), strict=True)) == ODD


FOUND = FileLayout()


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path, layout: FileLayout = FOUND, *, named: bool = False) -> list[list[str | None]]:
    return [list(row) for row in read_table(path, layout, named=named).rows]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('say "hi\tthere\t1\n"so" it is\tb\t2\n', [['say "hi', "there", "1"], ['"so" it is', "b", "2"]]),
        ('"a"\tb\t1\nc\td\t2\n', [['"a"', "b", "1"], ["c", "d", "2"]]),
        ('"a"\tb\t1\n"c ""d"""\td\t2\n', [["a", "b", "1"], ['c "d"', "d", "2"]]),
        ('"a"\tb\t1\n"c"\td\t2\n', [["a", "b", "1"], ["c", "d", "2"]]),
        ('a\tb\t1\n"c\tc"\td\t2\n', [["a", "b", "1"], ["c\tc", "d", "2"]]),
        ('"a\nb";c;1\n"d\ne";f;2\n', [["a\nb", "c", "1"], ["d\ne", "f", "2"]]),
        # Empty lines at the end are no rows.
        ("a\tb\t1\nc\td\t2\n\n\n", [["a", "b", "1"], ["c", "d", "2"]]),
        ("a;b;1\n\nc;d;2\n\n", [["a", "b", "1"], ["c", "d", "2"]]),
        # A stray quote in text that is delimited by commas.
        ('a "b" c,d,1\n"e" f,g,2\n', [['a "b" c', "d", "1"], ['"e" f', "g", "2"]]),
    ],
)  # fmt: skip
def test_quotes_that_hold_cells_and_quotes_that_are_text(
    tmp_path: Path, content: str, expected: list[list[str]]
) -> None:
    assert rows(put(tmp_path, "t", content)) == expected


def test_a_layout_that_is_given_is_not_looked_for(tmp_path: Path) -> None:
    path = put(tmp_path, "t.tsv", '"a"\tb;c\n"d"\te;f\n')
    assert rows(path) == [["a", "b;c"], ["d", "e;f"]]
    assert rows(path, FileLayout(quoting=False)) == [['"a"', "b;c"], ['"d"', "e;f"]]
    assert rows(path, FileLayout(";", quoting=False)) == [['"a"\tb', "c"], ['"d"\te', "f"]]
    assert rows(path, FileLayout(header=True)) == [["d", "e;f"]]
    assert rows(path, FileLayout(header=False), named=True) == rows(path)


def test_values_that_are_no_text_become_it(tmp_path: Path) -> None:
    path = put(tmp_path, "t.jsonl", '{"a": 1, "b": 0.1, "c": true}\n\n{"a": 2, "b": 5e0, "c": false}\n')
    table = read_table(path, FileLayout(), named=True)
    assert (list(table.header), [list(row) for row in table.rows]) == (
        ["a", "b", "c"],
        [["1", "0.1", "true"], ["2", "5.0", "false"]],
    )
    assert table.place(1) == f"{path}: line 3"


LATIN = "s1,s2,score\nun café,a coffee,4\n".encode("latin-1")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", LATIN, r"line 2: not valid UTF-8 \(byte 0xe9\); is it Latin-1 or another encoding\? save the file as UTF-8"),
        ("t.csv", "s1,s2,score\na,b,1\n".encode("utf-16"), "is UTF-16; save it as UTF-8"),
        ("t.jsonl", '{"s1": "é"}\n'.encode("latin-1"), "line 1: not valid UTF-8"),
        ("t.csv", 's1;s2;score\na;b;"3,5"\nc;d;4\n', r"line 2: gold score '3,5' is not a number; write a decimal point, not a comma"),
        ("t.csv", "s1;s2;score\na;b;3,5\nc;d;4,0\n", "line 2: gold score '3,5' is not a number; write a decimal point"),
        ("t.csv", 's1,s2,score\n"two\nlines",b,1\nc,d,x\n', "line 4: gold score 'x' is not a number$"),
        ("t.csv", "s1,s2,score\na,b,1\nc,d\n", "line 3: 2 columns, column 'score' is missing"),
        ("t.csv", "s1,s2,score\na,b,1\nc,d,e,2\n", "line 3: 4 fields, expected 3"),
        ("t.csv", "s1,s2,score\na,b,1\nc,d,2,e\n", "line 3: 4 fields, expected 3"),
        ("t.csv", "s1,s2,score\na,b\rc,d,1\n", "line 2: a carriage return"),
        ("t.csv", "s1,s2,score\n", "no rows below the header"),
        ("t.csv", "s1,s2,scores\na,b,1\n", r"no column 'score' \(has s1, s2, scores\); did you mean 'scores'\?"),
        ("t.csv", "\n\n", "the file holds no row"),
        ("t.jsonl", '{"s1": "a", "s2": "b", "scor": 1}\n', r"no column 'score' \(has s1, s2, scor\); did you mean 'scor'\?"),
        ("t.jsonl", '{"s1": "a", "s2": "b", "score": 1}\n{"s1": "a", "score": 1}\n', "line 2: column 's2' holds neither text nor a number"),
        ("t.jsonl", '{"s1": "a", "s2": ["b"], "score": 1}\n', "line 1: column 's2' holds neither text"),
        ("t.json", '[{"s1": "a"}]\n', r"is one JSON list; write each of its objects on a line of its own \(.jsonl\)"),
        ("t.jsonl", "a,b\n", "line 1: not valid JSON"),
        ("t.parquet", "a,b\n", "not valid parquet"),
        ("t.csv.gz", b"\x1f\x8b\x08\x00", "is packed by gzip; unpack it"),
        ("t.xlsx", b"PK\x03\x04rest", "is a zip archive or a spreadsheet; unpack it, or save it as CSV in UTF-8"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_told_in_one_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_pair_table([DataFile(path=put(tmp_path, name, content))], **COLUMNS)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [{"delimiter": ","}, {"header": True}, {"quoting": False}])
def test_a_layout_of_what_is_no_delimited_text_is_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    json_lines(tmp_path / "t.jsonl", ODD)
    with pytest.raises(CardError, match=f"'{next(iter(given))}' has no effect on lines of JSON; leave it out"):
        read_pair_table([DataFile(path=tmp_path / "t.jsonl")], **COLUMNS, **given)


def read(folder: Path, content: str, **params: Any) -> PairSplit | LabelledSplit | LabelledPairSplit:
    (folder / "t.csv").write_text(content, encoding="utf-8")
    return read_any_table([DataFile(path=folder / "t.csv")], **params)


def test_pairs_with_scores(tmp_path):
    split = read(tmp_path, "id,Sentence_A,sentence-b,Relatedness Score\n1,x,y,3.5\n2,z,w,1\n")
    assert isinstance(split, PairSplit)
    assert (list(split.sentences1), list(split.sentences2), split.gold.tolist()) == (["x", "z"], ["y", "w"], [3.5, 1.0])


def test_sentences_with_labels(tmp_path):
    split = read(tmp_path, "label,text\ngood,x\nbad,y\n", classes=["bad", "good"])
    assert isinstance(split, LabelledSplit)
    assert (list(split.sentences), split.labels.tolist()) == (["x", "y"], [1, 0])


def test_pairs_with_labels_beside_scores(tmp_path):
    content = "premise,hypothesis,label,score\nx,y,no,1\nz,w,yes,2\n"
    split = read(tmp_path, content, classes=["no", "yes"])
    assert isinstance(split, LabelledPairSplit)
    assert split.labels.tolist() == [0, 1]
    assert isinstance(read(tmp_path, content, gold="score"), PairSplit)


def test_rows_of_one_split(tmp_path):
    content = "text,label,fold\na,x,tr\nb,y,te\n"
    split = read(tmp_path, content, classes=["x", "y"], split_column="fold", split_values={"test": "te"}, split="test")
    assert isinstance(split, LabelledSplit)
    assert list(split.sentences) == ["b"]


@pytest.mark.parametrize(
    ("content", "params", "message"),
    [
        ("u,v,w\nx,y,1\n", {}, "no columns have usual names of the sentences; give sentence1 and sentence2, or sentence, in params; its columns are u, v, w"),
        ("s1,s2,w\nx,y,1\n", {}, "none has a usual name of the scores or labels; give gold or label"),
        ("s1,s2,score,label\nx,y,1,2\n", {}, "score and label may be the scores or labels"),
        ("s1,s2,score,gold\nx,y,1,2\n", {}, "score and gold may be the scores"),
        ("s1,s2,q1,q2,score\nx,y,1,2,3\n", {}, "several columns may be the sentences"),
        ("text,review,label\nx,y,1\n", {}, "several columns may be the sentences"),
        ("text,score\nx,1\n", {}, "none has a usual name of the scores or labels"),
        ("text,score\nx,1\n", {"gold": "score"}, "one sentence has no gold score"),
        ("s1,s2,score\nx,y,1\n", {"sentence1": "s1"}, "one sentence of the pair is given; give sentence1 and sentence2"),
        ("s1,s2,score\nx,y,1\n", {"sentence": "s1", "sentence2": "s2"}, "'sentence' is given beside 'sentence1' or 'sentence2'"),
        ("s1,s2,score\nx,y,1\n", {"gold": "score", "label": "score"}, "'gold' and 'label' are both given"),
        ("s1,s2,score\nx,y,1\n", {"gold": "score", "classes": ["1"]}, "'classes' has no effect with scores; leave it out"),
        ("text,label\nx,1\n", {"classes": ["1"], "subset": "label"}, "'subset' has no effect with labels; leave it out"),
        ("text,label\nx,b\ny,a\n", {}, r"must give the classes of column 'label' in params, such as classes = \['a', 'b'\], or say gold = 'label'"),
    ],
)  # fmt: skip
def test_what_is_not_clear_is_told_in_one_line(tmp_path, content, params, message):
    with pytest.raises(CardError, match=message) as caught:
        read(tmp_path, content, **params)
    assert "t.csv: " in str(caught.value) and "\n" not in str(caught.value)
