"""The pair readers on small files, every fault once; all task cards against the real data."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import FileSource
from stsbench.data.readers import READERS
from stsbench.data.readers.pairs import read_pair_table, read_semeval
from stsbench.data.readers.text import DataFile, read_text
from stsbench.data.sources import holds, load_split
from stsbench.data.splits import CaptionSplit, LabelledSplit, Split
from stsbench.data.task import load_task
from stsbench.errors import CardError, DataError, SourceError

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


def test_windows_line_ends_are_line_ends(tmp_path: Path) -> None:
    # SICK's test file and all of stsb-multi-mt were released with them.
    assert read_text(file(tmp_path, "crlf", b"a\r\nb\r\n").path) == "a\nb\n"


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


def test_suites_name_known_tasks_once() -> None:
    for name, suite in CATALOGUE.suites().items():
        assert set(suite.tasks) <= set(TASKS), name
        assert len(set(suite.tasks)) == len(suite.tasks), name


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
