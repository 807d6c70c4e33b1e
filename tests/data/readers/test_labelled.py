"""The readers of labelled sentences, labelled pairs and captions on small files, every fault once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from stsbench.data.readers.captions import read_captions
from stsbench.data.readers.labelled import (
    read_class_files,
    read_labelled_pair_table,
    read_labelled_table,
    read_probing,
    read_snli,
    read_trec,
)
from stsbench.data.readers.text import DataFile
from stsbench.errors import CardError, DataError
from tests.pickles import written


def file(folder: Path, name: str, content: str | bytes, label: str = "") -> DataFile:
    path = folder / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return DataFile(path=path, label=label)


CLASSES = ["negative", "positive"]


def test_class_files_follow_senteval(tmp_path: Path) -> None:
    positive = file(tmp_path, "p", b"good  film \n\xe9t\xe9\xa0fine\n\ncut\x0chere\n", "positive")
    split = read_class_files([positive, file(tmp_path, "n", "bad\n", "negative")], classes=CLASSES)
    # Latin-1; blanks of every kind make one; a form feed ends a line; an empty line stays.
    assert list(split.sentences) == ["good film", "été fine", "", "cut", "here", "bad"]
    assert split.labels.dtype == np.int64
    assert split.labels.tolist() == [1, 1, 1, 1, 1, 0]
    assert list(split.classes) == CLASSES


def test_class_files_need_a_known_label(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="p: label 'positiv' is not among .*did you mean 'positive'"):
        read_class_files([file(tmp_path, "p", "x\n", "positiv")], classes=CLASSES)


@pytest.mark.parametrize(("content", "message"), [(b"", "p: the file is empty"), (b"a\nb\x00\n", "line 2: a NUL byte")])
def test_class_files_faults(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_class_files([file(tmp_path, "p", content, "positive")], classes=CLASSES)


TREC = ["ABBR", "DESC", "LOC"]


def test_trec_reads_the_coarse_label(tmp_path: Path) -> None:
    content = b"LOC:city Where is  Bogot\xe1 ?\nDESC:def What is 3:1 ?\nABBR:exp What is an M.P. ?\n"
    split = read_trec([file(tmp_path, "t", content)], classes=TREC)
    assert list(split.sentences) == ["Where is Bogotá ?", "What is 3:1 ?", "What is an M.P. ?"]
    assert split.labels.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("LOC:city Where ?\nno label\n", "t: line 2: expected 'LABEL:fine question', got 'no label'"),
        ("LOC:city\n", "t: line 1: expected 'LABEL:fine question'"),
        ("LOK:city Where ?\n", r"t: line 1: unknown label 'LOK' \(known: ABBR, DESC, LOC\); did you mean 'LOC'"),
    ],
)
def test_trec_faults(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_trec([file(tmp_path, "t", content)], classes=TREC)


def test_labelled_table_by_position(tmp_path: Path) -> None:
    sst2 = file(tmp_path, "b", "a  fine film \t1\nslow\t0\n")
    split = read_labelled_table([sst2], sentence=0, label=1, classes=["0", "1"])
    assert (list(split.sentences), split.labels.tolist()) == (["a fine film", "slow"], [1, 0])


def test_labelled_table_cuts_the_label_off_the_line(tmp_path: Path) -> None:
    sst5 = file(tmp_path, "f", "4 a fine film\n0 bad , bad\n")
    split = read_labelled_table([sst5], sentence=1, label=0, delimiter=" ", fields=2, classes=list("01234"))
    assert (list(split.sentences), split.labels.tolist()) == (["a fine film", "bad , bad"], [4, 0])


QUICK: dict[str, Any] = {
    "sentence": "sentence",
    "label": "label",
    "header": True,
    "split_column": "split",
    "classes": ["x", "y"],
}
QUICK_ROWS = "split\tlabel\tsentence\ntrain\tx\tone\ntest\ty\ttwo\ntrain\ty\tthree\n"


def test_labelled_table_takes_the_rows_of_one_split(tmp_path: Path) -> None:
    table = file(tmp_path, "q", QUICK_ROWS)
    assert list(read_labelled_table([table], split="train", **QUICK).sentences) == ["one", "three"]
    assert read_labelled_table([table], split="test", **QUICK).labels.tolist() == [1]


@pytest.mark.parametrize(
    ("content", "split", "message"),
    [
        (QUICK_ROWS, "dev", r"q: no row of split 'dev' \(has test, train\)"),
        (QUICK_ROWS.replace("train\tx", "train\tz"), "train", r"q: line 2: unknown label 'z' \(known: x, y\)"),
        (QUICK_ROWS + "test\tx\n", "test", "q: line 5: 2 fields, expected 3"),
        (QUICK_ROWS.replace("sentence\n", "text\n"), "test", r"q: no column 'sentence' \(has split, label, text\)"),
        (QUICK_ROWS.encode() + b"test\tx\t\xff\n", "test", "q: line 5: not valid UTF-8"),
        ("split\tlabel\tsentence\n", "test", "q: no rows below the header"),
    ],
)
def test_labelled_table_faults(tmp_path: Path, content: str | bytes, split: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_labelled_table([file(tmp_path, "q", content)], split=split, **QUICK)
    assert "\n" not in str(caught.value)


MRPC: dict[str, Any] = {
    "sentence1": "#1 String",
    "sentence2": "#2 String",
    "label": "Quality",
    "header": True,
    "classes": ["0", "1"],
}
MRPC_ROWS = '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta  "b\tc\n0\t9\t9\td\te "\n'


def test_labelled_pair_table_reads_past_the_byte_order_mark(tmp_path: Path) -> None:
    split = read_labelled_pair_table([file(tmp_path, "m", MRPC_ROWS)], **MRPC)
    assert (list(split.sentences1), list(split.sentences2)) == (['a "b', "d"], ["c", 'e "'])
    assert split.labels.tolist() == [1, 0]


def test_labelled_pair_table_takes_the_rows_of_one_split(tmp_path: Path) -> None:
    rows = file(tmp_path, "q", "train\ta\tb\t1\ntest\tc\td\t0\n")
    params: dict[str, Any] = {"sentence1": 1, "sentence2": 2, "label": 3, "classes": ["0", "1"], "split_column": 0}
    assert list(read_labelled_pair_table([rows], split="test", **params).sentences2) == ["d"]


def test_labelled_pair_table_counts_fields(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="m: line 3: 6 fields, expected 5"):
        read_labelled_pair_table([file(tmp_path, "m", MRPC_ROWS.replace("\td\t", "\td\td\t"))], **MRPC)


ENTAILMENT = ["entailment", "neutral", "contradiction"]


def snli(folder: Path, premises: str, hypotheses: str, labels: str) -> list[DataFile]:
    return [file(folder, n, c) for n, c in (("s1.dev", premises), ("s2.dev", hypotheses), ("labels.dev", labels))]


def test_snli_joins_three_files(tmp_path: Path) -> None:
    split = read_snli(snli(tmp_path, "a  man\nx\n", "b\nÅ y\n", "neutral\nentailment\n"), classes=ENTAILMENT)
    assert list(split.sentences1) == ["a man", "x"]
    # UTF-8 read as Latin-1, as SentEval does; the 0x85 inside is a blank there, never a line end.
    assert list(split.sentences2) == ["b", "Ã y"]
    assert split.labels.tolist() == [1, 0]


def test_snli_faults(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="s2.dev: 1 lines, but labels.dev has 2"):
        read_snli(snli(tmp_path, "a\nb\n", "a\n", "neutral\nneutral\n"), classes=ENTAILMENT)
    with pytest.raises(DataError, match="labels.dev: line 1: unknown label '-'"):
        read_snli(snli(tmp_path, "a\n", "a\n", "-\n"), classes=ENTAILMENT)
    with pytest.raises(CardError, match="three files a split .s1, s2, labels., the card names 1"):
        read_snli(snli(tmp_path, "a\n", "a\n", "-\n")[:1], classes=ENTAILMENT)


PROBING = "tr\t9\tx\tlong one .\ntr\t10\tx\ttwo\nva\t10\tthree\nte\t9\tx\t four  five\nte\t10\tsix\n"


def test_probing_numbers_classes_by_the_sorted_labels_of_train(tmp_path: Path) -> None:
    split = read_probing([file(tmp_path, "p.txt", PROBING)], split="test")
    assert list(split.classes) == ["10", "9"]
    assert (list(split.sentences), split.labels.tolist()) == (["four five", "six"], [1, 0])
    assert list(read_probing([file(tmp_path, "p.txt", PROBING)], split="validation").sentences) == ["three"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (PROBING + "te\t11\tx\n", "p.txt: line 6: unknown label '11' .known: 10, 9"),
        (PROBING + "dev\t9\tx\n", "p.txt: line 6: unknown split tag 'dev' .known: tr, va, te"),
        (PROBING + "te\t9\n", "p.txt: line 6: 2 fields, expected tag, label and sentence"),
        ("tr\t9\tx\n", "p.txt: no row is tagged 'te' .test"),
    ],
)
def test_probing_faults(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_probing([file(tmp_path, "p.txt", content)], split="test")


def test_probing_splits_have_set_names(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="the splits train, validation, test, not 'all'"):
        read_probing([file(tmp_path, "p.txt", PROBING)], split="all")


FEATURES = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=np.float32)
CAPTIONS = [["a cat", "one  cat", "spare"], ["a dog", "one dog"]]
CSV = 'image,caption\n0,a cat\n1,a dog\n0,"one  cat"\n1,one dog\n0,spare\n'


def features(folder: Path, kind: str, array: object = FEATURES) -> DataFile:
    path = folder / f"f.{kind}"
    if kind == "npz":
        np.savez(path, features=np.asarray(array))
    elif kind == "safetensors":
        save_file({"features": np.asarray(array)}, path)
    else:
        path.write_bytes(written(array))
    return DataFile(path=path)


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
@pytest.mark.parametrize(("name", "content"), [("c.json", json.dumps(CAPTIONS)), ("c.csv", CSV)])
def test_captions_are_grouped_by_image(tmp_path: Path, kind: str, name: str, content: str | bytes) -> None:
    split = read_captions([features(tmp_path, kind), file(tmp_path, name, content)], captions_per_image=2)
    assert list(split.captions) == ["a cat .", "one cat .", "a dog .", "one dog ."]
    assert split.image_of_caption.tolist() == [0, 0, 1, 1]
    assert split.image_features.dtype == np.float32
    assert split.image_features.tolist() == FEATURES.tolist()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.json", "[[1]]", "c.json: image 0: expected a list of captions"),
        ("c.json", "{}", "c.json: expected a list of lists of captions, found a dict"),
        ("c.json", "[\n[", "c.json: line 2: not valid JSON"),
        ("c.json", json.dumps(CAPTIONS[:1]), "c.json: captions of 1 images, but features of 2"),
        ("c.json", json.dumps([CAPTIONS[0], ["one"]]), "c.json: image 1 has 1 captions, 2 are needed"),
        ("c.csv", CSV + "2,x\n", r"c.csv: line 7: image '2' is not a row of the features \(0 to 1\)"),
        ("c.csv", "img,caption\n0,x\n", "c.csv: no column 'image' .*did you mean 'img'"),
        ("c.txt", "x", "c.txt: captions come as .json or .csv, not as '.txt'"),
    ],
)
def test_caption_faults(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_captions([features(tmp_path, "npz"), file(tmp_path, name, content)], captions_per_image=2)


@pytest.mark.parametrize(
    ("kind", "array", "message"),
    [
        ("pkl", FEATURES, "f.pkl: a pickle runs code when it is read; convert it"),
        ("h5", FEATURES, "f.h5: image features come as .npz or .safetensors, not as '.h5'"),
        ("npz", np.array([{}], dtype=object), "f.npz: cannot be read as .npz: an array of type object"),
        ("npz", FEATURES[0], r"f.npz: 'features' must be a float array \(images, size\), it is float32 \(3,\)"),
        ("npz", [[1.0, np.nan], [1.0, 2.0]], "f.npz: the features of image 0 are not finite"),
        ("safetensors", np.ones((2, 2), dtype=np.int64), "f.safetensors: 'features' must be a float array"),
    ],
)
def test_feature_faults(tmp_path: Path, kind: str, array: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_captions([features(tmp_path, kind, array), file(tmp_path, "c.json", json.dumps(CAPTIONS))])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.npz", b"no archive", "f.npz: this is not an .npz archive"),
        ("f.safetensors", b"no header", "f.safetensors: cannot be read as .safetensors"),
    ],
)
def test_broken_feature_files(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_captions([file(tmp_path, name, content), file(tmp_path, "c.json", "[]")])


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="f.npz: no array 'feature' .has features.; did you mean 'features'"):
        read_captions([features(tmp_path, "npz"), file(tmp_path, "c.json", "[]")], features="feature")


def test_captions_come_with_features(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="a features and a captions file, the card names 1 files"):
        read_captions([features(tmp_path, "npz")])
