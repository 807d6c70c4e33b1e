"""Which column is which, where names tell and where only the content does; and the splits of files and columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stsbench.core.errors import CardError, DataError
from stsbench.data.readers.columns import ColumnRoles
from stsbench.data.readers.table import ColumnKey
from stsbench.data.recognition import (
    NO_SPLIT,
    DataColumn,
    choose_roles,
    find_tables,
    has_header,
)

LEFT = [
    "a cat sat here",
    "the dog ran off",
    "it rains again",
    "no sun today",
    "we go home",
    "they eat lunch",
]
RIGHT = [
    "one cat was sitting",
    "a dog ran",
    "rain again",
    "clouds all day",
    "home we go",
    "lunch is eaten",
]


def roles(
    named: dict[ColumnKey, Sequence[str]], **given: ColumnKey
) -> tuple[ColumnRoles, Sequence[str]]:
    return choose_roles([DataColumn(key, cells) for key, cells in named.items()], given, where="t")


FRACTIONS = ["0.5", "4.25", "3", "2.0", "1.1", "5"]
BINARY = ["0", "1", "1", "0", "1", "0"]
INTEGERS = ["0", "5", "3", "2", "3", "0"]
NAMES = ["no", "yes", "maybe", "no", "yes", "no"]
IDS = ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize(
    ("columns", "expected", "unsure"),
    [
        ({"s1": LEFT, "s2": RIGHT, "score": FRACTIONS}, ColumnRoles(("s1", "s2"), "score", True), []),
        # GLUE calls STS-B's scores a label, and numbers the rows.
        ({"sentence1": LEFT, "sentence2": RIGHT, "label": FRACTIONS, "idx": IDS}, ColumnRoles(("sentence1", "sentence2"), "label", True), []),
        ({"text": LEFT, "label": ["v", "w", "x", "y", "z", "u"]}, ColumnRoles(("text",), "label", False), []),
        (
            {"s1": LEFT, "s2": RIGHT, "label": NAMES, "score": FRACTIONS},
            ColumnRoles(("s1", "s2"), "score", True),
            ["columns 'label', 'score' may be what is scored: 'score' is taken"],
        ),
        ({"premise": LEFT, "hypothesis": RIGHT, "label": NAMES}, ColumnRoles(("premise", "hypothesis"), "label", False), []),
        ({"s1": LEFT, "s2": RIGHT, "label": INTEGERS}, ColumnRoles(("s1", "s2"), "label", False), []),
        ({"text": LEFT, "label": BINARY, "id": IDS}, ColumnRoles(("text",), "label", False), []),
        ({"query": LEFT, "document": RIGHT, "label": BINARY}, ColumnRoles(("query", "document"), "label", False), []),
        (
            {"title": RIGHT, "text": LEFT, "label": BINARY},
            ColumnRoles(("text",), "label", False),
            ["column 'text': taken for the sentence, 'title' for other text"],
        ),
        # Nothing is called anything.
        ({0: IDS, 1: LEFT, 2: RIGHT, 3: FRACTIONS}, ColumnRoles((1, 2), 3, True), ["columns 1, 2: taken for the sentences"]),
        ({0: NAMES, 1: LEFT}, ColumnRoles((1,), 0, False), ["column 1: taken for the sentence", "column 0 is taken for what is scored, by what it holds"]),
        ({"u": LEFT, "v": RIGHT, "w": BINARY}, ColumnRoles(("u", "v"), "w", False), ["columns 'u', 'v': taken for the sentences"]),
        (
            {"s1": LEFT, "s2": RIGHT, "w": INTEGERS},
            ColumnRoles(("s1", "s2"), "w", True),
            ["column 'w' holds only whole numbers: taken for scores, they may be classes"],
        ),
        (
            {"s1": LEFT, "s2": RIGHT, "v": INTEGERS, "w": FRACTIONS},
            ColumnRoles(("s1", "s2"), "w", True),
            ["columns 'w', 'v' may be what is scored: 'w' is taken"],
        ),
        (
            {"text": LEFT, "topic": NAMES, "kind": NAMES[::-1]},
            ColumnRoles(("text",), "topic", False),
            ["columns 'topic', 'kind' may be what is scored: 'topic' is taken"],
        ),
        (
            {"s1": LEFT, "s2": RIGHT, "score": BINARY},
            ColumnRoles(("s1", "s2"), "score", True),
            ["column 'score' holds only whole numbers: taken for scores, they may be classes"],
        ),
        (
            {"t": LEFT, "u": RIGHT, "short": ["x y"] * 5 + ["z y"], "more": [f"{one} and so on" for one in LEFT], "w": FRACTIONS},
            ColumnRoles(("t", "more"), "w", True),
            ["columns 't', 'more' of the 3 columns of text: taken for the sentences"],
        ),
    ],
)  # fmt: skip
def test_roles_by_names_and_content(columns, expected, unsure):
    assert roles(columns) == (expected, unsure)


def test_what_the_user_says_is_not_doubted():
    columns: dict[ColumnKey, Sequence[str]] = {"u": LEFT, "v": RIGHT, "w": INTEGERS, "x": FRACTIONS}
    assert roles(columns, sentence1="v", sentence2="u", label="w") == (
        ColumnRoles(("v", "u"), "w", False),
        [],
    )
    assert roles(columns, sentence="u", label="w") == (ColumnRoles(("u",), "w", False), [])


def test_a_score_is_of_two_sentences_though_one_alone_has_a_usual_name():
    columns: dict[ColumnKey, Sequence[str]] = {"question": LEFT, "like it": RIGHT, "w": INTEGERS}
    assert roles(columns, gold="w") == (
        ColumnRoles(("question", "like it"), "w", True),
        ["columns 'question', 'like it': taken for the sentences"],
    )


@pytest.mark.parametrize(
    ("columns", "given", "message"),
    [
        ({"u": INTEGERS, "v": FRACTIONS}, {}, r"t: no column holds sentences \(has u, v\); name them with `columns=sentence1=NAME"),
        ({"text": LEFT, "id": IDS}, {}, r"t: no column holds a score .* or a label \(has text, id\); name it with `columns=gold=NAME`"),
        ({"text": LEFT, "label": BINARY}, {"gold": "label"}, "t: a score is of two sentences, but only 'text' holds any"),
        ({"u": LEFT, "v": RIGHT}, {"sentence1": "u"}, "t: one sentence of the pair is given"),
    ],
)  # fmt: skip
def test_what_fits_nothing_is_one_line(columns, given, message):
    with pytest.raises((CardError, DataError), match=message):
        roles(columns, **given)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([["s1", "s2", "w"], ["a", "b", "1"]], True),
        ([["u", "v"], ["a b", "1"], ["c d", "2"]], True),
        ([["", "u", "v"], ["0", "a b", "x"], ["1", "c d", "x"]], True),
        ([["u", "v"], ["a b", "no"], ["c d", "yes"], ["e f", "no"], ["g h", "yes"]], True),
        ([["a b", "no"], ["c d", "yes"], ["e f", "no"], ["g h", "yes"]], False),
        # 'positive' is a usual name of a column, and here a label.
        ([["a b", "positive"], ["c d", "positive"], ["e f", "negative"]], False),
        ([["a b", "c d", "1"], ["e f", "g h", "2"]], False),
        ([["s1", "s2"]], True),
        ([["a b", "c d"]], False),
        ([["a b", "c d"], ["e f", "g h"]], False),
    ],
)
def test_whether_the_first_line_names_the_columns(rows, expected):
    assert has_header(rows) is expected


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
        (["only.csv"], {NO_SPLIT: 1}),
        (["SICK_trial.txt", "SICK_test_annotated.txt", "notes.md"], {"validation": 1, "test": 1}),
    ],
)
def test_files_of_a_folder(tmp_path, names, expected):
    recognised = find_tables(put(tmp_path / "d", *names))
    assert {split: len(tables) for split, tables in recognised.tables.items()} == expected
    assert recognised.columns()[0].key != 0 and (
        recognised.split_column,
        list(recognised.doubts),
    ) == (None, [])


def test_rows_of_all_files_are_looked_at_together(tmp_path):
    put(tmp_path / "d", "train.csv")
    recognised = find_tables(put(tmp_path / "d", "test.csv", content="s1,s2,score\ne,f,x\n"))
    assert [list(column.cells) for column in recognised.columns()] == [
        ["a", "c", "e"],
        ["b", "d", "f"],
        ["1.5", "2", "x"],
    ]


def test_what_is_left_out_and_what_is_odd_is_noted(tmp_path):
    put(tmp_path / "d", "readme.txt", content="hello")
    recognised = find_tables(
        put(tmp_path / "d", "train.tsv", content="a b\tc d\t1\ne f\tg h\t2\tmore\n")
    )
    left, odd, unnamed = recognised.doubts
    assert left == "left out, for their names are of no split: readme.txt"
    beyond = "cells beyond the last column that all rows have are not read"
    assert odd.endswith(f"train.tsv: line 2: 4 fields, expected 3: {beyond}")
    assert unnamed.startswith("no line that names the columns was found")
    assert [column.key for column in recognised.columns()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (("train", "test"), {}),
        (("train", "dev"), {"validation": "dev"}),
        (("TR", "TE"), {"train": "TR", "test": "TE"}),
    ],
)
def test_a_column_tells_splits(tmp_path, words, values):
    rows = "".join(f"a b {at},{word}\n" for at, word in enumerate(words * 2))
    recognised = find_tables(put(tmp_path, "all.csv", content=f"text,part\n{rows}") / "all.csv")
    assert (recognised.split_column, recognised.value_by_split) == ("part", values)
    assert len(recognised.tables) == 2 and len(recognised.columns()[0].cells) == 4


@pytest.mark.parametrize("words", [("train", "other"), ("dev", "val"), ("train", "train")])
def test_a_column_that_tells_no_splits(tmp_path, words):
    rows = "".join(f"a b {at},{word}\n" for at, word in enumerate(words * 2))
    recognised = find_tables(put(tmp_path, "all.csv", content=f"text,part\n{rows}") / "all.csv")
    assert (recognised.split_column, [*recognised.tables]) == (None, [NO_SPLIT])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a.md"], r"d: has no table \(.csv, .tsv"),
        (
            ["a.csv", "b.csv"],
            r"none of its 2 tables has train, dev or test in its name \(a.csv, b.csv\); give one",
        ),
        (
            ["train.csv", "train.jsonl"],
            r"several files may be the split train \(train.csv, train.jsonl\); leave one",
        ),
        (["a-test.csv", "b-test.csv"], "several files may be the split test"),
    ],
)
def test_files_whose_splits_are_not_clear(tmp_path, names, message):
    with pytest.raises(DataError, match=message):
        find_tables(put(tmp_path / "d", *names))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "s1,s2,score\n", "t.csv: no rows below the header"),
        ("t.tsv", "s1\ts2\tscore\na\tb\t1\nc\td\n\n", "t.tsv: line 3: 2 fields, expected 3"),
    ],
)
def test_rows_below_the_header_must_be_there_and_whole(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message):
        find_tables(put(tmp_path, name, content=content) / name)


def test_splits_of_other_columns_are_refused(tmp_path):
    put(tmp_path / "d", "train.csv")
    put(tmp_path / "d", "test.csv", content="s1,s2,gold\na,b,1\n")
    message = r"its columns \(s1, s2, \w+\) are not those of \w+.csv \(s1, s2, \w+\); make them"
    with pytest.raises(DataError, match=message):
        find_tables(tmp_path / "d")
    with pytest.raises(DataError, match=f"'{tmp_path}/nothing' does not exist"):
        find_tables(tmp_path / "nothing")
