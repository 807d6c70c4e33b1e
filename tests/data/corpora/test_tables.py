"""Files of training text: every format, every fault in one line; running text into sentences."""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from stsbench.data.corpora.sentences import split_sentences
from stsbench.data.corpora.tables import read_training_text, select_columns
from stsbench.errors import DataError

LINES = 'A cat.\nsaid "hi", twice\n\nun café\u2028still\n'
PACKERS: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.compress, ".gz": gzip.compress}
ROWS = ["A cat.", 'said "hi", twice', "", "un café\u2028still"]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(PACKERS[path.suffix](raw) if path.suffix in PACKERS else raw)
    return path


def rows(path: Path, *, header: bool = True, limit: int | None = None) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in read_training_text(path, header=header, limit=limit).to_pylist()]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.xz", "a.txt.gz"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_lines(tmp_path, name, ends):
    path = write(tmp_path, name, LINES.replace("\n", ends))
    assert read_training_text(path, header=True).to_pydict() == {"text": ROWS}
    assert read_training_text(path, header=True, limit=2).to_pydict() == {"text": ROWS[:2]}
    # A last line without an end is a line all the same; a byte order mark is no text.
    assert rows(write(tmp_path, name, b"\xef\xbb\xbf" + LINES.strip().encode())) == [(row,) for row in ROWS]


def test_limit_reads_no_further(tmp_path):
    whole = lzma.compress(b"a line\n" * 200_000 + bytes(range(256)) * 4000)
    path = tmp_path / "a.txt.xz"
    path.write_bytes(whole[: len(whole) // 2])
    assert len(rows(path, limit=10)) == 10
    with pytest.raises(DataError, match="is cut off; restore it"):
        read_training_text(path, header=True)


def test_csv_is_quoted_and_cells_stay_text(tmp_path):
    path = write(tmp_path, "a.csv", 'sent0,sent1\n"a, ""b""\nc",12\nNA,\nnull,007\n')
    assert read_training_text(path, header=True).to_pydict() == {
        "sent0": ['a, "b"\nc', "NA", "null"],
        "sent1": ["12", "", "007"],
    }
    assert rows(path, limit=1) == [('a, "b"\nc', "12")]


def test_tsv_is_not_quoted(tmp_path):
    path = write(tmp_path, "a.tsv", '1\t"a\n2\tb"c\n')
    assert read_training_text(path, header=False).to_pydict() == {"f0": ["1", "2"], "f1": ['"a', 'b"c']}
    assert read_training_text(path, header=True).column_names == ["1", '"a']


def test_jsonl_and_parquet(tmp_path):
    path = write(tmp_path, "a.jsonl.gz", '{"text": "a", "label": 1}\n{"text": "b\\nc", "label": 2}\n')
    assert rows(path) == [("a", 1), ("b\nc", 2)]
    parquet.write_table(pa.table({"anchor": ["a", "b"], "positive": ["c", None]}), tmp_path / "a.parquet")
    assert rows(tmp_path / "a.parquet") == [("a", "c"), ("b", None)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "a.txt: the file is empty"),
        ("a.txt.xz", "\n \n", "a.txt.xz: the file is empty"),
        ("a.txt", b"fine\nna\xefve\n", "a.txt: line 2: not valid UTF-8; save the file as UTF-8"),
        ("a.csv", b"x,y\n1,\xff\n", "a.csv: line 2: not valid UTF-8"),
        ("a.txt", "text".encode("utf-16"), "a.txt: is UTF-16; save it as UTF-8"),
        ("a.txt", b"fine\nmodel\x00\n", "a.txt: line 2: a NUL byte; is it text?"),
        (
            "a.csv",
            "x,y\n1,2\n3\n",
            "a.csv: not a valid .csv file: CSV parse error: Row #3: Expected 2 columns, got 1: 3",
        ),
        ("a.jsonl", '{"text": "a"}\n{"text"\n', "a.jsonl: line 2: not valid JSON: Input data was truncated"),
        ("a.parquet", "text\n", "a.parquet: not a valid .parquet file: "),
        ("a.docx", "text\n", "a.docx: '.docx' is not a kind of training text; known: .txt, .csv, "),
        ("a.xz", "text\n", "a.xz: '' is not a kind of training text"),
    ],
)
def test_a_fault_is_one_line(tmp_path, name, content, message):
    with pytest.raises(DataError, match=re.escape(message)) as error:
        read_training_text(write(tmp_path, name, content), header=True)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize(("suffix", "pack"), [(".xz", lzma.compress), (".gz", gzip.compress)])
def test_a_damaged_archive_is_one_line(tmp_path, suffix, pack):
    packed = pack(b"some text that goes on\n" * 50)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(packed[:-9])
    with pytest.raises(DataError, match=f"a.txt{suffix}: is cut off; restore it"):
        read_training_text(path, header=True)
    for content in (b"plain text\n", packed[:20] + b"\x07\x07\x07" + packed[23:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"a.txt{suffix}: is not a {suffix} file, or is damaged; restore it"):
            read_training_text(path, header=True)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(DataError, match="a.txt: cannot be read: No such file or directory"):
        read_training_text(tmp_path / "a.txt", header=True)


def test_columns_get_our_names():
    table = pa.table({"sent0": ["a"], "sent1": ["b"], "more": ["c"]})
    assert select_columns(table, {"positive": "sent1", "anchor": 0}, where="f").to_pydict() == {
        "positive": ["b"],
        "anchor": ["a"],
    }
    with pytest.raises(DataError, match=re.escape("f: no column 'sent2' (has sent0, sent1, more); did you mean 'sent")):
        select_columns(table, {"anchor": "sent2"}, where="f")
    with pytest.raises(DataError, match=re.escape("f: no column 3 (has 3, counted from 0)")):
        select_columns(table, {"anchor": 3}, where="f")


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? 4 and on", ["One.", "Two!", "Three?", "4 and on"]),
        (
            'He said "Go." Then he went. (It was late.) End.',
            ['He said "Go."', "Then he went.", "(It was late.)", "End."],
        ),
        (
            "Mr. Smith met J. R. Jones of the U.S. Navy, St. Ives.",
            ["Mr. Smith met J. R. Jones of the U.S. Navy, St. Ives."],
        ),
        ("It cost 3.5 m. in all... and more.", ["It cost 3.5 m. in all... and more."]),
        ("  Blanks.   Go \n on.  ", ["Blanks.", "Go \n on."]),
        ("", []),
    ],
)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences
    assert "".join("".join(sentences).split()) == "".join(text.split())
