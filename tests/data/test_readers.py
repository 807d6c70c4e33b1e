"""The pair readers on small files, every fault once; all task cards against the real data."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from stsbench.core import settings
from stsbench.core.cards import FileSource
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, SourceError
from stsbench.data.readers import READERS
from stsbench.data.readers.captions import read_captions
from stsbench.data.readers.sentences import read_class_files, read_probing, read_semeval, read_snli, read_trec
from stsbench.data.readers.table import DataFile
from stsbench.data.splits import CaptionSplit, LabelledSplit, Split
from stsbench.data.task import holds, load_split, load_task
from tests.data.tables import read_labelled_pair_table, read_labelled_table, read_pair_table
from tests.pickles import written

PAIRS = "a cat\tthe cat\na dog\tthe dog\nun café\ta coffee\n\u2028odd\tline\nlast\trow\n"
GOLD = "5.0\n\n2.5\n0\n1\n"


def file(folder: Path, name: str, content: str | bytes, *, subset: str = "", label: str = "") -> DataFile:
    path = folder / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return DataFile(path=path, subset=subset, label=label)


def semeval(folder: Path, pairs: str | bytes = PAIRS, gold: str | bytes = GOLD, subset: str = "news") -> list[DataFile]:
    return [file(folder, f"in.{subset}", pairs, subset=subset), file(folder, f"gs.{subset}", gold)]


def test_a_column_may_hold_both_sentences(tmp_path: Path) -> None:
    both = file(
        tmp_path, "pairs.csv", 'Source,Text,Score\nnews,"a cat\nthe cat",0.5\nforum,"a ""dog"", here\nno dog",1\n'
    )
    split = read_pair_table([both], sentence1="Text", sentence2="Text", gold="Score", subset="Source")
    assert (split.sentences1, split.sentences2) == (["a cat", 'a "dog", here'], ["the cat", "no dog"])
    assert (split.gold.tolist(), split.subset) == ([0.5, 1.0], ["news", "forum"])
    one = file(tmp_path, "one.csv", 'Text,Score\n"a cat\nthe cat",1\na dog,2\n')
    with pytest.raises(DataError, match="column 'Text' holds 1 lines, a pair has two"):
        read_pair_table([one], sentence1="Text", sentence2="Text", gold="Score")


def test_semeval_keeps_order_subsets_and_ungraded_pairs(tmp_path: Path) -> None:
    split = read_semeval([*semeval(tmp_path), *semeval(tmp_path, "x\ty\n", "3\n", "tweets")])
    assert list(split.sentences1) == ["a cat", "un café", "\u2028odd", "last", "x"]
    assert list(split.sentences2) == ["the cat", "a coffee", "line", "row", "y"]
    assert split.gold.dtype == np.float64
    assert split.gold.tolist() == [5.0, 2.5, 0.0, 1.0, 3.0]
    assert list(split.subset) == ["news"] * 4 + ["tweets"]
    assert list(split.ungraded) == ["a dog", "the dog"]


def test_semeval_first_rows_leaves_the_rest_of_the_input(tmp_path: Path) -> None:
    split = read_semeval(semeval(tmp_path, gold="5\n4\n"), first_rows=2)
    assert list(split.sentences1) == ["a cat", "a dog"]


def test_semeval_wants_files_in_twos(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="input and gold files in turn; .*gs.news stands alone"):
        read_semeval([*semeval(tmp_path), semeval(tmp_path)[1]])


@pytest.mark.parametrize(
    ("pairs", "gold", "message"),
    [
        (PAIRS, "5\n4\n", "in.news: 5 pairs, but gs.news has 2 lines"),
        (PAIRS, "5\n4\nhigh\n1\n1\n", "gs.news: line 3: gold score 'high' is not a number"),
        (PAIRS, "5\n4\nnan\n1\n1\n", "gs.news: line 3: gold score 'nan' is not a number"),
        ("a\tb\nalone\n", "1\n2\n", "in.news: line 2: 1 columns, column 1 is missing"),
        ("", GOLD, "in.news: the file is empty"),
        (PAIRS, b"5\n4\n\x00\n1\n1\n", "gs.news: line 3: a NUL byte"),
        (PAIRS.encode("latin-1", "replace"), GOLD, "in.news: line 3: not valid UTF-8 .byte 0xe9"),
        ("a\tb\nc\rd\te\n", "1\n2\n", "in.news: line 2: a carriage return"),
    ],
)
def test_semeval_faults_name_file_and_line(tmp_path: Path, pairs: str | bytes, gold: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_semeval(semeval(tmp_path, pairs, gold))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gone.tsv: cannot be read: No such file"):
        read_pair_table([DataFile(path=tmp_path / "gone.tsv")], sentence1=0, sentence2=1, gold=2)


TABLE = 'id\ts1\ts2\tscore\tsource\n1\tsay "hi\tsay hi\t4.2\tnews\n2\ta, b\tc\t0\tforum\n'
NAMED: dict[str, Any] = {"sentence1": "s1", "sentence2": "s2", "gold": "score", "subset": "source", "header": True}


def test_pair_table_by_header_name_keeps_quotes(tmp_path: Path) -> None:
    split = read_pair_table([file(tmp_path, "t.tsv", "\ufeff" + TABLE)], **NAMED)
    assert list(split.sentences1) == ['say "hi', "a, b"]
    assert split.gold.tolist() == [4.2, 0.0]
    assert list(split.subset) == ["news", "forum"]


def test_pair_table_joins_files_by_position(tmp_path: Path) -> None:
    files = [file(tmp_path, f"{i}.csv", f'"a, {i}",b,{i}\n', subset=f"part{i}") for i in (1, 2)]
    split = read_pair_table(files, sentence1=0, sentence2=1, gold=2, delimiter=",", quoting=True)
    assert list(split.sentences1) == ["a, 1", "a, 2"]
    assert list(split.subset) == ["part1", "part2"]


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        (TABLE, {"gold": "scores"}, r"no column 'scores' \(has id, s1, .*; did you mean 'score'"),
        (TABLE, {"gold": 7}, "t.tsv: line 2: 5 columns, column 7 is missing"),
        (TABLE.replace("4.2", "four"), {}, "t.tsv: line 2: gold score 'four' is not a number"),
        ('s1,s2,score,source\n"open,b,1,x\n', {"delimiter": ",", "quoting": True}, "not valid CSV: unexpected end"),
    ],
)
def test_pair_table_faults(tmp_path: Path, content: str | bytes, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_pair_table([file(tmp_path, "t.tsv", content)], **(NAMED | changes))


def test_uneven_rows_pass_only_in_a_file_whose_hash_the_card_gives(tmp_path: Path) -> None:
    uneven = file(tmp_path, "t.tsv", "a\tb\t1\nc\td\t2\tits source\n")
    columns: dict[str, Any] = {"sentence1": 0, "sentence2": 1, "gold": 2}
    assert read_pair_table([replace(uneven, pinned=True)], **columns).gold.tolist() == [1.0, 2.0]
    with pytest.raises(DataError, match="t.tsv: line 2: 4 fields, expected 3"):
        read_pair_table([uneven], **columns)
    with pytest.raises(DataError, match="in.news: line 2: 3 fields, expected 2"):
        read_semeval(semeval(tmp_path, "a\tb\nc\td\te\n", "1\n2\n"))


# The project's own cards.

CATALOGUE = Catalogue()
TASKS = sorted(CATALOGUE.paths("tasks"))
CELLS = [(task, split) for task in TASKS for split in CATALOGUE.task(task).splits]


@pytest.mark.parametrize("task", TASKS)
def test_a_card_is_consistent(task: str) -> None:
    card = CATALOGUE.task(task)
    assert card.score_split in card.splits
    assert card.hub is not None or card.package is not None or "Local only" in card.note
    assert card.hub is None or card.hub.archive or set(card.hub.splits) == set(card.splits)
    for source in filter(None, (card.local, card.package)):
        assert READERS.load(source.reader)
        assert set(source.files) == set(card.splits)
        for split, facts in card.splits.items():
            _check_files(source, split)
            named = {f.subset for f in source.files[split] if f.subset}
            assert not named or named == set(facts.subsets)
            assert not facts.subsets or sum(facts.subsets.values()) == facts.n
            assert not facts.labels or sum(facts.labels.values()) == facts.n
            assert not facts.labels or list(facts.labels) == source.params["classes"]


def _check_files(source: FileSource, split: str) -> None:
    for facts in source.files[split]:
        assert not facts.sha256 or re.fullmatch("[0-9a-f]{64}", facts.sha256)


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
        if card.local is None or not holds(card.local, split, data):
            pytest.skip(f"{data} does not hold {task} ({split})")
    return load_split(task, card, split, data=data).split


def _row_hash(split: Split, at: int) -> str:
    assert not isinstance(split, CaptionSplit)
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
def test_a_card_needs_neither_counts_nor_reader_nor_a_data_folder(tmp_path: Path, folder: str) -> None:
    cards = tmp_path / "cards" / "tasks"
    home = cards if folder == "." else tmp_path / "mine"
    cards.mkdir(parents=True)
    home.mkdir(exist_ok=True)
    (cards / "own.toml").write_text(OWN_CARD.format(folder=folder.format(tmp=tmp_path)))
    catalogue = Catalogue(tmp_path / "cards")
    with pytest.raises(SourceError, match=f"there is no file {home}/pairs.csv; put it there, or change 'folder'"):
        load_task("own", catalogue=catalogue).load()
    (home / "pairs.csv").write_text("s1;s2;score\na;b;1\nc;d;2,5\n")
    with pytest.raises(DataError, match="line 3: gold score '2,5' is not a number"):
        load_task("own", catalogue=catalogue).load()
    (home / "pairs.csv").write_text("s1;s2;score\na;b;1\nc;d;2.5\n")
    assert load_task("own", catalogue=catalogue).load().n == 2


def test_every_card_of_the_project_counts_its_rows() -> None:
    # How many pairs SICK-BR's own release has is in no source at hand: MTEB scores a sample of it.
    assert [name for name in TASKS if any(facts.n is None for facts in CATALOGUE.task(name).splits.values())] == [
        "sick-br"
    ]


def file_of_labelled(folder: Path, name: str, content: str | bytes, label: str = "") -> DataFile:
    path = folder / name
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return DataFile(path=path, label=label)


CLASSES = ["negative", "positive"]


def test_class_files_follow_senteval(tmp_path: Path) -> None:
    positive = file_of_labelled(tmp_path, "p", b"good  film \n\xe9t\xe9\xa0fine\n\ncut\x0chere\n", "positive")
    split = read_class_files([positive, file_of_labelled(tmp_path, "n", "bad\n", "negative")], classes=CLASSES)
    # Latin-1; blanks of every kind make one; a form feed ends a line; an empty line stays.
    assert list(split.sentences) == ["good film", "été fine", "", "cut", "here", "bad"]
    assert split.labels.dtype == np.int64
    assert split.labels.tolist() == [1, 1, 1, 1, 1, 0]
    assert list(split.classes) == CLASSES


def test_class_files_need_a_known_label(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="p: label 'positiv' is not among .*did you mean 'positive'"):
        read_class_files([file_of_labelled(tmp_path, "p", "x\n", "positiv")], classes=CLASSES)


@pytest.mark.parametrize(("content", "message"), [(b"", "p: the file is empty"), (b"a\nb\x00\n", "line 2: a NUL byte")])
def test_class_files_faults(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_class_files([file_of_labelled(tmp_path, "p", content, "positive")], classes=CLASSES)


TREC = ["ABBR", "DESC", "LOC"]


def test_trec_reads_the_coarse_label(tmp_path: Path) -> None:
    content = b"LOC:city Where is  Bogot\xe1 ?\nDESC:def What is 3:1 ?\nABBR:exp What is an M.P. ?\n"
    split = read_trec([file_of_labelled(tmp_path, "t", content)], classes=TREC)
    assert list(split.sentences) == ["Where is Bogotá ?", "What is 3:1 ?", "What is an M.P. ?"]
    assert split.labels.tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("LOC:city Where ?\nno label\n", "t: line 2: expected 'LABEL:fine question'$"),
        ("LOC:city\n", "t: line 1: expected 'LABEL:fine question'"),
        ("LOK:city Where ?\n", r"t: line 1: unknown label 'LOK' \(known: ABBR, DESC, LOC\); did you mean 'LOC'"),
    ],
)
def test_trec_faults(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_trec([file_of_labelled(tmp_path, "t", content)], classes=TREC)


def test_labelled_table_by_position(tmp_path: Path) -> None:
    sst2 = file_of_labelled(tmp_path, "b", "a  fine film \t1\nslow\t0\n")
    split = read_labelled_table([sst2], sentence=0, label=1, classes=["0", "1"])
    assert (list(split.sentences), split.labels.tolist()) == (["a fine film", "slow"], [1, 0])


def test_labelled_table_cuts_the_label_off_the_line(tmp_path: Path) -> None:
    sst5 = file_of_labelled(tmp_path, "f", "4 a fine film\n0 bad , bad\n")
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


@pytest.mark.parametrize(
    ("content", "split", "message"),
    [
        (QUICK_ROWS, "dev", r"q: no row of split 'dev' \(has test, train\)"),
        (QUICK_ROWS.replace("train\tx", "train\tz"), "train", r"q: line 2: unknown label 'z' \(known: x, y\)"),
        (QUICK_ROWS + "test\tx\n", "test", "q: line 5: 2 columns, column 'sentence' is missing"),
        (QUICK_ROWS.replace("sentence\n", "text\n"), "test", r"q: no column 'sentence' \(has split, label, text\)"),
        (QUICK_ROWS.encode() + b"test\tx\t\xff\n", "test", "q: line 5: not valid UTF-8"),
        ("split\tlabel\tsentence\n", "test", "q: no rows below the header"),
    ],
)
def test_labelled_table_faults(tmp_path: Path, content: str | bytes, split: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        read_labelled_table([file_of_labelled(tmp_path, "q", content)], split=split, **QUICK)
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
    split = read_labelled_pair_table([file_of_labelled(tmp_path, "m", MRPC_ROWS)], **MRPC)
    assert (list(split.sentences1), list(split.sentences2)) == (['a "b', "d"], ["c", 'e "'])
    assert split.labels.tolist() == [1, 0]


ENTAILMENT = ["entailment", "neutral", "contradiction"]


def snli(folder: Path, premises: str, hypotheses: str, labels: str) -> list[DataFile]:
    return [
        file_of_labelled(folder, n, c)
        for n, c in (("s1.dev", premises), ("s2.dev", hypotheses), ("labels.dev", labels))
    ]


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
    split = read_probing([file_of_labelled(tmp_path, "p.txt", PROBING)], split="test")
    assert list(split.classes) == ["10", "9"]
    assert (list(split.sentences), split.labels.tolist()) == (["four five", "six"], [1, 0])
    assert list(read_probing([file_of_labelled(tmp_path, "p.txt", PROBING)], split="validation").sentences) == ["three"]


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
        read_probing([file_of_labelled(tmp_path, "p.txt", content)], split="test")


def test_probing_splits_have_set_names(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="the splits train, validation, test, not 'all'"):
        read_probing([file_of_labelled(tmp_path, "p.txt", PROBING)], split="all")


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
    split = read_captions([features(tmp_path, kind), file_of_labelled(tmp_path, name, content)], captions_per_image=2)
    assert list(split.captions) == ["a cat .", "one cat .", "a dog .", "one dog ."]
    assert split.image_of_caption.tolist() == [0, 0, 1, 1]
    assert split.image_features.dtype == np.float32
    assert split.image_features.tolist() == FEATURES.tolist()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("c.json", "[[1]]", "c.json: image 0: expected a list of captions"),
        ("c.json", "{}", "c.json: expected a list of lists of captions, found a dict"),
        ("c.json", "[\n[", "c.json: not a list of lists of captions: Expecting value: line 2"),
        ("c.json", json.dumps(CAPTIONS[:1]), "c.json: captions of 1 images, but features of 2"),
        ("c.json", json.dumps([CAPTIONS[0], ["one"]]), "c.json: image 1 has 1 captions, 2 are needed"),
        ("c.csv", CSV + "2,x\n", r"c.csv: line 7: image '2' is not a row of the features \(0 to 1\)"),
        ("c.csv", "img,caption\n0,x\n", "c.csv: no column 'image' .*did you mean 'img'"),
        ("c.txt", "x", "c.txt: captions come as .json or .csv, not as '.txt'"),
    ],
)
def test_caption_faults(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_captions([features(tmp_path, "npz"), file_of_labelled(tmp_path, name, content)], captions_per_image=2)


@pytest.mark.parametrize(
    ("kind", "array", "message"),
    [
        ("pkl", FEATURES, "f.pkl: image features come as .npz or .safetensors, .*a pickle runs code when it is read"),
        ("h5", FEATURES, "f.h5: image features come as .npz or .safetensors, not as '.h5'"),
        ("npz", np.array([{}], dtype=object), "f.npz: cannot be read as .npz: an array of type object"),
        ("npz", FEATURES[0], r"f.npz: 'features' must be a float array \(images, size\), it is float32 \(3,\)"),
        ("safetensors", np.ones((2, 2), dtype=np.int64), "f.safetensors: 'features' must be a float array"),
    ],
)
def test_feature_faults(tmp_path: Path, kind: str, array: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_captions([features(tmp_path, kind, array), file_of_labelled(tmp_path, "c.json", json.dumps(CAPTIONS))])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.npz", b"no archive", "f.npz: cannot be read as .npz: File is not a zip file"),
        ("f.safetensors", b"no header", "f.safetensors: cannot be read as .safetensors"),
    ],
)
def test_broken_feature_files(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_captions([file_of_labelled(tmp_path, name, content), file_of_labelled(tmp_path, "c.json", "[]")])


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="f.npz: no array 'feature' .has features.; did you mean 'features'"):
        read_captions([features(tmp_path, "npz"), file_of_labelled(tmp_path, "c.json", "[]")], features="feature")


def test_captions_come_with_features(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="a features and a captions file, the card names 1 files"):
        read_captions([features(tmp_path, "npz")])
