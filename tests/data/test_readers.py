"""Readers on small files, tables of every kind, every fault once; all task cards against the real data."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors.numpy import save_file

from stsbench.core import settings
from stsbench.core.cards import FileSection, FileSource
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, SourceError
from stsbench.data.readers.files import read_table
from stsbench.data.readers.sentence_tables import read_any_table
from stsbench.data.readers.sentences import (
    read_captions,
    read_class_files,
    read_probing,
    read_semeval,
    read_snli,
    read_trec,
)
from stsbench.data.readers.table import DataFile, FileLayout
from stsbench.data.splits import (
    CaptionSplit,
    ContrastSplit,
    LabelledPairSplit,
    LabelledSplit,
    PairSplit,
    Split,
)
from stsbench.data.task import has_files, load_split, load_task

Files = Mapping[str, str | bytes]
"""Contents by name; a file's suffix is its subset and its label."""


def put(folder: Path, files: Files, *, pinned: bool = False) -> list[DataFile]:
    for name, content in files.items():
        (folder / name).write_bytes(
            content.encode("utf-8") if isinstance(content, str) else content
        )
    named = ((folder / name, Path(name).suffix.removeprefix(".")) for name in files)
    return [DataFile(path=path, subset=said, label=said, pinned=pinned) for path, said in named]


PAIRS = "a cat\tthe cat\na dog\tthe dog\nun café\ta coffee\n\u2028odd\tline\nlast\trow\n"
GOLD = "5.0\n\n2.5\n0\n1\n"
TABLE = 'id\ts1\ts2\tscore\tsource\n1\tsay "hi\tsay hi\t4.2\tnews\n2\ta, b\tc\t0\tforum\n'
NAMED = {"sentence1": "s1", "sentence2": "s2", "gold": "score", "subset": "source", "header": True}
BY_PLACE = {"sentence1": 0, "sentence2": 1, "gold": 2}
BOTH = 'Source,Text,Score\nnews,"a cat\nthe cat",0.5\nforum,"a ""dog"", here\nno dog",1\n'
IN_ONE = {"sentence1": "Text", "sentence2": "Text", "gold": "Score"}
CLASSES, TREC = {"classes": ["negative", "positive"]}, {"classes": ["ABBR", "DESC", "LOC"]}
QUICK = {
    "sentence": "sentence",
    "label": "label",
    "header": True,
    "split_column": "split",
    "classes": ["x", "y"],
}
QUICK_ROWS = "split\tlabel\tsentence\ntrain\tx\tone\ntest\ty\ttwo\ntrain\ty\tthree\n"
MRPC = {
    "sentence1": "#1 String",
    "sentence2": "#2 String",
    "label": "Quality",
    "header": True,
    "classes": ["0", "1"],
}
MRPC_ROWS = (
    '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta  "b\tc\n0\t9\t9\td\te "\n'
)
SST5 = {"sentence": 1, "label": 0, "delimiter": " ", "fields": 2, "classes": list("01234")}
SNLI = {"classes": ["entailment", "neutral", "contradiction"]}
PROBING = (
    "tr\t9\tx\tlong one .\ntr\t10\tx\ttwo\nva\t10\tthree\nte\t9\tx\t four  five\nte\t10\tsix\n"
)


def snli(premises: str, hypotheses: str, labels: str) -> Files:
    return {"s1.dev": premises, "s2.dev": hypotheses, "labels.dev": labels}


Reader = Callable[..., Any]
READ: dict[str, tuple[Reader, Files, dict[str, Any], dict[str, Any]]] = {
    "semeval": (
        read_semeval,
        {"in.news": PAIRS, "gs.news": GOLD, "in.tweets": "x\ty\n", "gs.tweets": "3\n"},
        {},
        {
            "sentences1": ["a cat", "un café", "\u2028odd", "last", "x"],
            "sentences2": ["the cat", "a coffee", "line", "row", "y"],
            "gold": [5.0, 2.5, 0.0, 1.0, 3.0],
            "subset": ["news"] * 4 + ["tweets"],
            "ungraded": ["a dog", "the dog"],
        },
    ),
    "first rows": (
        read_semeval,
        {"in.news": PAIRS, "gs.news": "5\n4\n"},
        {"first_rows": 2},
        {"sentences1": ["a cat", "a dog"]},
    ),
    "quotes as text": (
        read_any_table,
        {"t.tsv": "\ufeff" + TABLE},
        NAMED,
        {"sentences1": ['say "hi', "a, b"], "gold": [4.2, 0.0], "subset": ["news", "forum"]},
    ),
    "files joined": (
        read_any_table,
        {"x.1": '"a, 1",b,1\n', "x.2": '"a, 2",b,2\n'},
        {**BY_PLACE, "delimiter": ",", "quoting": True},
        {"sentences1": ["a, 1", "a, 2"], "subset": ["1", "2"]},
    ),
    "both sentences in a column": (
        read_any_table,
        {"pairs.csv": BOTH},
        {**IN_ONE, "subset": "Source"},
        {
            "sentences1": ["a cat", 'a "dog", here'],
            "sentences2": ["the cat", "no dog"],
            "subset": ["news", "forum"],
        },
    ),
    # Latin-1; blanks of every kind make one; a form feed ends a line; an empty line stays.
    "class files": (
        read_class_files,
        {"p.positive": b"good  film \n\xe9t\xe9\xa0fine\n\ncut\x0chere\n", "n.negative": "bad\n"},
        CLASSES,
        {
            "sentences": ["good film", "été fine", "", "cut", "here", "bad"],
            "labels": [1, 1, 1, 1, 1, 0],
        },
    ),
    "trec": (
        read_trec,
        {
            "t": b"LOC:city Where is  Bogot\xe1 ?\nDESC:def What is 3:1 ?\nABBR:exp What is an M.P. ?\n"
        },
        TREC,
        {
            "sentences": ["Where is Bogotá ?", "What is 3:1 ?", "What is an M.P. ?"],
            "labels": [2, 1, 0],
        },
    ),
    "sst2": (
        read_any_table,
        {"b": "a  fine film \t1\nslow\t0\n"},
        {"sentence": 0, "label": 1, "classes": ["0", "1"]},
        {"sentences": ["a fine film", "slow"], "labels": [1, 0]},
    ),
    "sst5": (
        read_any_table,
        {"f": "4 a fine film\n0 bad , bad\n"},
        SST5,
        {"sentences": ["a fine film", "bad , bad"], "labels": [4, 0]},
    ),
    "rows of a split": (
        read_any_table,
        {"q": QUICK_ROWS},
        {**QUICK, "split": "train"},
        {"sentences": ["one", "three"], "labels": [0, 1]},
    ),
    "mrpc": (
        read_any_table,
        {"m": MRPC_ROWS},
        MRPC,
        {"sentences1": ['a "b', "d"], "sentences2": ["c", 'e "'], "labels": [1, 0]},
    ),
    # UTF-8 read as Latin-1, as SentEval does; the 0x85 inside is a blank there, never a line end.
    "snli": (
        read_snli,
        snli("a  man\nx\n", "b\nÅ y\n", "neutral\nentailment\n"),
        SNLI,
        {"sentences1": ["a man", "x"], "sentences2": ["b", "Ã y"], "labels": [1, 0]},
    ),
    "probing": (
        read_probing,
        {"p.txt": PROBING},
        {"split": "test"},
        {"classes": ["10", "9"], "sentences": ["four five", "six"], "labels": [1, 0]},
    ),
}


@pytest.mark.parametrize("case", READ)
def test_what_a_reader_gives(tmp_path: Path, case: str) -> None:
    reader, files, params, expected = READ[case]
    split = reader(put(tmp_path, files), **params)
    assert {name: list(getattr(split, name)) for name in expected} == expected
    target = getattr(split, split.target_column)
    assert target.dtype == (np.float64 if split.target_column == "gold" else np.int64)


FAULTS: list[tuple[Reader, Files, dict[str, Any], str]] = [
    (read_semeval, {"in.news": PAIRS}, {}, "input and gold files in turn; .*in.news stands alone"),
    *(
        (read_semeval, {"in.news": pairs, "gs.news": gold}, {}, message)
        for pairs, gold, message in (
            ("a\tb\n", "\n", "gs.news: no pair has a gold score"),
            (PAIRS, "5\n4\n", "in.news: 5 pairs, but gs.news has 2 lines"),
            (PAIRS, "5\n4\nhigh\n1\n1\n", "gs.news: line 3: gold score 'high' is not a number"),
            (PAIRS, "5\n4\nnan\n1\n1\n", "gs.news: line 3: gold score 'nan' is not a number"),
            ("a\tb\nalone\n", "1\n2\n", "in.news: line 2: 1 columns, column 1 is missing"),
            ("a\tb\nc\td\te\n", "1\n2\n", "in.news: line 2: 3 fields, expected 2"),
            ("", GOLD, "in.news: the file is empty"),
            (PAIRS, b"5\n4\n\x00\n1\n1\n", "gs.news: line 3: a NUL byte"),
            (
                PAIRS.encode("latin-1", "replace"),
                GOLD,
                "in.news: line 3: not valid UTF-8 .byte 0xe9",
            ),
            ("a\tb\nc\rd\te\n", "1\n2\n", "in.news: line 2: a carriage return"),
        )
    ),
    (
        read_any_table,
        {"t.tsv": TABLE},
        {**NAMED, "gold": "scores"},
        r"no column 'scores' \(has id, .*mean 'score'",
    ),
    (
        read_any_table,
        {"t.tsv": TABLE},
        {**NAMED, "gold": 7},
        "t.tsv: line 2: 5 columns, column 7 is missing",
    ),
    (
        read_any_table,
        {"t.tsv": TABLE.replace("4.2", "four")},
        NAMED,
        "t.tsv: line 2: gold score 'four' is not a number",
    ),
    (
        read_any_table,
        {"t": 's1,s2,score\n"open,b,1\n'},
        {"quoting": True},
        "not valid CSV: unexpected end",
    ),
    (
        read_any_table,
        {"t.tsv": "a\tb\t1\nc\td\t2\tits source\n"},
        BY_PLACE,
        "t.tsv: line 2: 4 fields, expected 3",
    ),
    (
        read_any_table,
        {"t": 'Text,Score\n"a cat\nthe cat",1\na dog,2\n'},
        IN_ONE,
        "'Text' holds 1 lines, a pair has two",
    ),
    (
        read_class_files,
        {"p.positiv": "x\n"},
        CLASSES,
        "label 'positiv' is not among .*did you mean 'positive'",
    ),
    (read_class_files, {"p.positive": b""}, CLASSES, "p.positive: the file is empty"),
    (read_class_files, {"p.positive": b"a\nb\x00\n"}, CLASSES, "line 2: a NUL byte"),
    (
        read_trec,
        {"t": "LOC:city Where ?\nno label\n"},
        TREC,
        "t: line 2: expected 'LABEL:fine question'$",
    ),
    (read_trec, {"t": "LOC:city\n"}, TREC, "t: line 1: expected 'LABEL:fine question'"),
    (
        read_trec,
        {"t": "LOK:city Where ?\n"},
        TREC,
        r"t: line 1: unknown label 'LOK' \(known: .*did you mean 'LOC'",
    ),
    *(
        (read_any_table, {"q": rows}, {**QUICK, "split": split}, message)
        for rows, split, message in (
            (QUICK_ROWS, "dev", r"q: no row of split 'dev' \(has test, train\)"),
            (
                QUICK_ROWS.replace("train\tx", "train\tz"),
                "train",
                r"q: line 2: unknown label 'z' \(known: x, y\)",
            ),
            (QUICK_ROWS + "test\tx\n", "test", "q: line 5: 2 fields, expected 3"),
            (
                QUICK_ROWS.replace("sentence\n", "text\n"),
                "test",
                r"q: no column 'sentence' \(has split, label, text\)",
            ),
            (QUICK_ROWS.encode() + b"test\tx\t\xff\n", "test", "q: line 5: not valid UTF-8"),
            ("split\tlabel\tsentence\n", "test", "q: no rows below the header"),
        )
    ),
    (
        read_snli,
        snli("a\nb\n", "a\n", "neutral\nneutral\n"),
        SNLI,
        "s2.dev: 1 lines, but labels.dev has 2",
    ),
    (read_snli, snli("a\n", "a\n", "-\n"), SNLI, "labels.dev: line 1: unknown label '-'"),
    (read_snli, {"s1.dev": "a\n"}, SNLI, "three files a split .s1, s2, labels., the card names 1"),
    *(
        (read_probing, {"p.txt": rows}, {"split": split}, message)
        for rows, split, message in (
            (PROBING + "te\t11\tx\n", "test", "p.txt: line 6: unknown label '11' .known: 10, 9"),
            (
                PROBING + "dev\t9\tx\n",
                "test",
                "p.txt: line 6: unknown split tag 'dev' .known: tr, va, te",
            ),
            (
                PROBING + "te\t9\n",
                "test",
                "p.txt: line 6: 2 fields, expected tag, label and sentence",
            ),
            ("tr\t9\tx\n", "test", "p.txt: no row is tagged 'te' .test"),
            (PROBING, "all", "the splits train, validation, test, not 'all'"),
        )
    ),
]


@pytest.mark.parametrize(("reader", "files", "params", "message"), FAULTS)
def test_a_fault_is_one_line(
    tmp_path: Path, reader: Reader, files: Files, params: Any, message: str
) -> None:
    with pytest.raises((CardError, DataError), match=message) as caught:
        reader(put(tmp_path, files), **params)
    assert "\n" not in str(caught.value)


def test_uneven_rows_pass_in_a_file_whose_hash_the_card_gives(tmp_path: Path) -> None:
    files = put(tmp_path, {"t.tsv": "a\tb\t1\nc\td\t2\tits source\n"}, pinned=True)
    assert list(read_any_table(files, **BY_PLACE).gold) == [1.0, 2.0]  # type: ignore[arg-type, union-attr]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone.tsv: cannot be read: No such file"):
        read_any_table([DataFile(path=tmp_path / "gone.tsv")], sentence1=0, sentence2=1, gold=2)


FEATURES = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=np.float32)
CAPTIONS = json.dumps([["a cat", "one  cat", "spare"], ["a dog", "one dog"]])


def features(folder: Path, array: Any = FEATURES, name: str = "f.safetensors") -> DataFile:
    if isinstance(array, bytes):
        (folder / name).write_bytes(array)
    else:
        save_file({"features": np.asarray(array)}, folder / name)
    return DataFile(path=folder / name)


def test_captions_are_grouped_by_image(tmp_path: Path) -> None:
    split = read_captions(
        [features(tmp_path), *put(tmp_path, {"c.json": CAPTIONS})], captions_per_image=2
    )
    assert list(split.captions) == ["a cat .", "one cat .", "a dog .", "one dog ."]
    assert split.image_of_caption.tolist() == [0, 0, 1, 1]
    assert (
        split.image_features.dtype == np.float32
        and split.image_features.tolist() == FEATURES.tolist()
    )


@pytest.mark.parametrize(
    ("array", "name", "content", "message"),
    [
        (FEATURES, "f.safetensors", "[[]]", "c.json: captions of 1 images, but features of 2"),
        (FEATURES, "f.safetensors", '[["a", "b"], ["one"]]', "c.json: image 1 has 1 captions, 2 are needed"),
        (b"", "f.pkl", CAPTIONS, "f.pkl: image features come as .safetensors, .*convert_coco"),
        (b"", "f.npz", CAPTIONS, "f.npz: image features come as .safetensors, not as '.npz'"),
        (b"no header", "f.safetensors", CAPTIONS, "f.safetensors: cannot be read as .safetensors"),
        (np.ones((2, 2), dtype=np.int64), "f.safetensors", CAPTIONS, "'features' must be a float array .images, size., it"),
    ],
)  # fmt: skip
def test_faults_of_captions(
    tmp_path: Path, array: Any, name: str, content: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read_captions(
            [features(tmp_path, array, name), *put(tmp_path, {"c.json": content})],
            captions_per_image=2,
        )


def test_captions_come_with_the_features_that_are_asked_for(tmp_path: Path) -> None:
    files = [features(tmp_path), *put(tmp_path, {"c.json": "[]"})]
    with pytest.raises(
        DataError, match="no array 'feature' .has features.; did you mean 'features'"
    ):
        read_captions(files, features="feature")
    with pytest.raises(CardError, match="a features and a captions file, the card names 1 files"):
        read_captions(files[:1])


# The project's own cards.
CATALOGUE = Catalogue()
TASKS = sorted(CATALOGUE.paths("tasks"))
CELLS = [(task, split) for task in TASKS for split in CATALOGUE.task(task).splits]


@pytest.mark.data
@pytest.mark.parametrize(("task", "split"), CELLS)
def test_a_split_is_what_its_card_says(task: str, split: str) -> None:
    assert _load(task, split).n == CATALOGUE.task(task).splits[split].n
    source, data = CATALOGUE.task(task).local, settings.data_folder()
    if source is not None and data is not None:
        for facts in source.files[split]:
            lines = (data / source.folder / facts.path).read_bytes().count(b"\n")
            assert facts.rows in (None, lines), facts.path


PINS = {
    ("sts12", "test"): ("582a559db7ba6151", "dd19dc50a99e294f"),
    ("sts15", "test"): ("775867f72f63872f", "fddd072d106ff742"),
    ("stsb", "train"): ("17c0428eb8f5d5a8", "58cae0acc2aafc52"),
    ("stsb-raw", "test"): ("b7e433276984958d", "79cda278d0bfe50b"),
    ("sickr", "test"): ("1459683312ff0f28", "c979e7d62b00f6e7"),
    ("sickr-mteb", "test"): ("23ac9a487aab1a17", "c979e7d62b00f6e7"),
    ("sts14-es", "test"): ("47a456a25de10980", "8c1f774733608207"),
    ("sts17-ar-en", "test"): ("70d1d20ed05901e0", "0e7626ea2a3d1f4f"),
    ("sts17-tr-en", "test"): ("1a99038756cbc596", "2d2c200a575dd57d"),
    ("stsb-ja", "test"): ("174f2aca988dab49", "1ae1b407592812e4"),
    ("mr", "all"): ("90115b896ba6d265", "558e09e9dc0b5921"),
    ("subj", "all"): ("ec6cfce16e36a3a0", "b497f547e4f7c4bd"),
    ("mpqa", "all"): ("6316963055f50590", "1f4afa7c462aa4b7"),
    ("sst2", "train"): ("7cee21628a3fb97e", "99b97ff934c22cfd"),
    ("sst5", "test"): ("bb164e8ecbbadb47", "54c1b0265e9e6864"),
    ("trec", "train"): ("0fc24e0bda29117b", "a448d231533607b5"),
    ("mrpc", "test"): ("17341bba69a1c2e1", "bea036afff06e2e6"),
    ("sicke", "test"): ("97b7dadc76c96bf3", "c5190d1da09dbd31"),
}
"""Hashes of the first and the last row, columns in order: rows are neither lost, sorted nor swapped."""


@pytest.mark.data
@pytest.mark.parametrize(("task", "split"), PINS)
def test_first_and_last_row(task: str, split: str) -> None:
    loaded = _load(task, split)
    assert (_row_hash(loaded, 0), _row_hash(loaded, -1)) == PINS[task, split]


def _load(task: str, split: str) -> Split:
    """A split from the data folder or the package; skips where the folder does not hold it."""
    card, data = CATALOGUE.task(task), settings.data_folder()
    if card.package is None:
        if data is None:
            pytest.skip("STSBENCH_DATA is not set")
        if card.local is None or not has_files(card.local, split, data):
            pytest.skip(f"{data} does not hold {task} ({split})")
    return load_split(task, card, split, data=data).split


def _row_hash(split: Split, at: int) -> str:
    assert not isinstance(split, CaptionSplit | ContrastSplit)
    if isinstance(split, LabelledSplit):
        row = [split.sentences[at], split.classes[split.labels[at]]]
    else:
        target = split.gold[at] if hasattr(split, "gold") else split.classes[split.labels[at]]
        row = [split.sentences1[at], split.sentences2[at], str(target)]
    return hashlib.sha256("\x1f".join(row).encode()).hexdigest()[:16]


OWN_CARD = """name = "Own"
evaluator = "sts"
languages = ["en"]
paper = "none"
license = "none"
[splits.test]
[local]
folder = "{folder}"
[local.files]
test = [{{path = "pairs.csv"}}]
"""


@pytest.mark.parametrize("folder", ["../../mine", ".", "{tmp}/mine"])
def test_a_card_needs_neither_counts_nor_reader_nor_a_data_folder(
    tmp_path: Path, folder: str
) -> None:
    cards = tmp_path / "cards" / "tasks"
    home = cards if folder == "." else tmp_path / "mine"
    cards.mkdir(parents=True)
    home.mkdir(exist_ok=True)
    (cards / "own.toml").write_text(OWN_CARD.format(folder=folder.format(tmp=tmp_path)))
    catalogue = Catalogue(tmp_path / "cards")
    with pytest.raises(
        SourceError, match=f"there is no file {home}/pairs.csv; put it there, or change 'folder'"
    ):
        load_task("own", catalogue=catalogue).load()
    (home / "pairs.csv").write_text("s1;s2;score\na;b;1.0\nc;d;2,5\n")
    with pytest.raises(DataError, match="pairs.csv: line 3: gold score '2,5'"):
        load_task("own", catalogue=catalogue).load()
    (home / "pairs.csv").write_text("s1;s2;score\na;b;1\nc;d;2.5\n")
    assert load_task("own", catalogue=catalogue).load().n == 2


def test_every_card_of_the_project_counts_its_rows() -> None:
    # Neither the page of HEROS nor its paper's abstract gives a number of rows.
    assert [
        name
        for name in TASKS
        if any(facts.n is None for facts in CATALOGUE.task(name).splits.values())
    ] == ["heros"]


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
        csv.writer(stream, delimiter=sign, lineterminator=end, quoting=quoting).writerows(
            [HEADER, *rows]
        )
        path.write_bytes((mark + stream.getvalue()).encode())

    return write


def json_lines(path: Path, rows: Rows) -> None:
    path.write_text(
        "".join(json.dumps(dict(zip(HEADER, row, strict=True))) + "\n" for row in rows),
        encoding="utf-8",
    )


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
    split = read_any_table([DataFile(path=tmp_path / name)], **COLUMNS)
    assert isinstance(split, PairSplit)
    assert list(zip(split.sentences1, split.sentences2, split.gold.tolist(), strict=True)) == ODD


FOUND = FileLayout()


def put_one(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path, layout: FileLayout = FOUND, *, named: bool = False) -> list[list[str | None]]:
    return [list(row) for row in read_table(path, layout, by_name=named).rows]


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
def test_quotes_that_hold_cells_or_are_text(
    tmp_path: Path, content: str, expected: list[list[str]]
) -> None:
    assert rows(put_one(tmp_path, "t", content)) == expected


def test_a_layout_that_is_given_is_not_looked_for(tmp_path: Path) -> None:
    path = put_one(tmp_path, "t.tsv", '"a"\tb;c\n"d"\te;f\n')
    assert rows(path) == [["a", "b;c"], ["d", "e;f"]]
    assert rows(path, FileLayout(quoting=False)) == [['"a"', "b;c"], ['"d"', "e;f"]]
    assert rows(path, FileLayout(";", quoting=False)) == [['"a"\tb', "c"], ['"d"\te', "f"]]
    assert rows(path, FileLayout(header=True)) == [["d", "e;f"]]
    assert rows(path, FileLayout(header=False), named=True) == rows(path)


def test_values_that_are_no_text_become_it(tmp_path: Path) -> None:
    path = put_one(
        tmp_path, "t.jsonl", '{"a": 1, "b": 0.1, "c": true}\n\n{"a": 2, "b": 5e0, "c": false}\n'
    )
    table = read_table(path, FileLayout(), by_name=True)
    assert list(table.header) == ["a", "b", "c"]
    assert [list(row) for row in table.rows] == [["1", "0.1", "true"], ["2", "5.0", "false"]]
    assert table.locate_row(1) == f"{path}: line 3"


CYRILLIC = "s1,s2,score\nмой кофе,a coffee,4\n".encode("cp1251")
POLISH = "s1,s2,score\nżółty,yellow,4\n".encode("cp1250")
HALF = "s1,s2,score\nun café,a coffee,4\n".encode() + b"un caf\xe9,a coffee,4\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", CYRILLIC, r"line 2: not valid UTF-8 \(byte 0xec\); is it Latin-1 or another encoding\? save the file as UTF-8"),
        ("t.csv", POLISH, r"line 2: not valid UTF-8"),
        ("t.csv", HALF, r"line 3: not valid UTF-8"),
        ("t.csv", "s1,s2,score\na,b,1\n".encode("utf-16")[:-1], "not valid UTF-16: truncated data; restore it, or save it as UTF-8"),
        ("t.jsonl", '{"s1": "é"}\n'.encode("latin-1"), "line 1: not valid UTF-8"),
        ("t.csv", 's1;s2;score\na;b;"3,5"\nc;d;4.0\n', r"line 2: gold score '3,5' is not a number; write a decimal point, not a comma"),
        ("t.csv", "s1;s2;score\na;b;3,500\nc;d;4,000\n", "line 2: gold score '3,500' is not a number; write a decimal point"),
        ("t.csv", 's1,s2,score\n"two\nlines",b,1\nc,d,x\n', "line 4: gold score 'x' is not a number$"),
        ("t.csv", "s1,s2,score\na,b,1\nc,d\n", "line 3: 2 fields, expected 3"),
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
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_any_table([DataFile(path=put_one(tmp_path, name, content))], **COLUMNS)
    assert str(tmp_path / name) in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("layout", [{"delimiter": ","}, {"header": True}, {"quoting": False}])
def test_a_layout_of_what_is_no_delimited_text_is_refused(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    json_lines(tmp_path / "t.jsonl", ODD)
    with pytest.raises(CardError, match=f"'{next(iter(layout))}' has no effect on lines of JSON"):
        read_any_table([DataFile(path=tmp_path / "t.jsonl")], **COLUMNS, **layout)


def read_pairs(
    folder: Path, content: str, **params: Any
) -> PairSplit | LabelledSplit | LabelledPairSplit:
    (folder / "t.csv").write_text(content, encoding="utf-8")
    return read_any_table([DataFile(path=folder / "t.csv")], **params)


def test_pairs_with_scores(tmp_path):
    split = read_pairs(tmp_path, "id,Sentence_A,sentence-b,Relatedness Score\n1,x,y,3.5\n2,z,w,1\n")
    assert isinstance(split, PairSplit)
    assert (list(split.sentences1), list(split.sentences2), split.gold.tolist()) == (
        ["x", "z"],
        ["y", "w"],
        [3.5, 1.0],
    )


def test_sentences_with_labels(tmp_path):
    split = read_pairs(tmp_path, "label,text\ngood,x\nbad,y\n", classes=["bad", "good"])
    assert isinstance(split, LabelledSplit)
    assert (list(split.sentences), split.labels.tolist()) == (["x", "y"], [1, 0])


def test_pairs_with_labels_beside_scores(tmp_path):
    content = "premise,hypothesis,label,score\nx,y,no,1\nz,w,yes,2\n"
    split = read_pairs(tmp_path, content, classes=["no", "yes"])
    assert isinstance(split, LabelledPairSplit)
    assert split.labels.tolist() == [0, 1]
    assert isinstance(read_pairs(tmp_path, content, gold="score"), PairSplit)


def test_rows_of_one_split(tmp_path):
    content = "text,label,fold\na,x,tr\nb,y,te\n"
    params = {"split_column": "fold", "split_values": {"test": "te"}, "split": "test"}
    split = read_pairs(tmp_path, content, classes=["x", "y"], **params)
    assert isinstance(split, LabelledSplit)
    assert list(split.sentences) == ["b"]


def test_blanks_around_the_name_of_a_split_do_not_count(tmp_path):
    content = "text,label,fold\na,x,tr\nb,y, te \nc,x,te\nd,y,te \n"
    for value in ("te", " te"):
        params = {"split_column": "fold", "split_values": {"test": value}, "split": "test"}
        split = read_pairs(tmp_path, content, classes=["x", "y"], **params)
        assert isinstance(split, LabelledSplit)
        assert list(split.sentences) == ["b", "c", "d"]


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
def test_what_is_not_clear_is_one_line(tmp_path, content, params, message):
    with pytest.raises(CardError, match=message) as caught:
        read_pairs(tmp_path, content, **params)
    assert "t.csv: " in str(caught.value) and "\n" not in str(caught.value)


def test_a_split_without_files_in_the_card_is_not_on_this_machine(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tb\t1\n")
    source = FileSource(files={"train": [FileSection(path="train.tsv")]})
    assert has_files(source, "train", tmp_path)
    assert not has_files(source, "test", tmp_path)
    assert not has_files(source, "train", None)
