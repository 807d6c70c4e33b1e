"""Training text by name or path: columns, errors, and the real corpora as their cards say."""

from __future__ import annotations

import gzip
import lzma
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from stsbench.core import settings
from stsbench.core.cards import CorpusSection
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import CardError, DataError, SourceError, UnknownName
from stsbench.data.corpora import corpus as corpora_module
from stsbench.data.corpora.corpus import Corpus, load_corpus, read_training_text
from stsbench.data.readers.text import split_sentences
from stsbench.data.splits import LabelledSplit, PairSplit
from stsbench.data.task import load_task
from stsbench.recipes.train_plan import TrainPlan, load_text, summarise_plan
from tests import hub_server
from tests.hub_files import sha256
from tests.recipes.little import little_recipe

hub = hub_server.hub
TRIPLETS = 'sent0,sent1,hard_neg\nA cat sits.,A cat.,A dog.\n"One, two",,Three\n'
PACKERS: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.compress, ".gz": gzip.compress}
CARD = """
[mine]
name = "Mine"
license = "mine"
source = "none"
"""


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    raw = content.encode() if isinstance(content, str) else content
    path.write_bytes(PACKERS[path.suffix](raw) if path.suffix in PACKERS else raw)
    return path


def catalogue(folder: Path, facts: str) -> Catalogue:
    (folder / "cards" / "trainers").mkdir(parents=True)
    write(folder, "cards/trainers/corpora.toml", CARD + facts)
    return Catalogue([folder / "cards"])


def test_rows_by_column(tmp_path):
    corpus = load_corpus(write(tmp_path, "nli.csv", TRIPLETS))
    assert (len(corpus), corpus.columns, corpus.blanks) == (
        2,
        ["anchor", "positive", "negative"],
        1,
    )
    assert corpus[1] == {"anchor": "One, two", "positive": " ", "negative": "Three"}
    assert corpus.__getitems__([1, 0]) == [corpus[1], corpus[0]]
    anchors = corpus.column("anchor")
    assert list(anchors) == ["A cat sits.", "One, two"] == anchors[:]
    assert (anchors[-1], anchors[1:], len(anchors)) == ("One, two", ["One, two"], 2)
    assert anchors.take([1, 1]) == ["One, two", "One, two"]
    assert corpus.take([1])[0] == corpus[1]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as worker:
        # As a data loader's workers are given it.
        assert worker.submit(Corpus.take, corpus, [1]).result()[0] == corpus[1]


def test_missing_columns_name_those_there_are(tmp_path):
    corpus = load_corpus(write(tmp_path, "pairs.csv", "sent0,sent1\na,b\nc,d\n"))
    assert corpus.require("anchor", "positive") is corpus
    with pytest.raises(DataError) as caught:
        corpus.require("text", "anchor", "negative")
    assert str(caught.value).startswith(
        f"corpus '{tmp_path}/pairs.csv' has no text and no negative (has anchor, positive); "
        "choose a corpus"
    )
    with pytest.raises(DataError, match="`params=sentences=true`"):
        corpus.require("text")


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.txt", "a\nb\n", ["text"]),
        ("a.csv", "sentence,id\na,1\nb,2\n", ["text"]),
        (
            "a.tsv",
            "premise\thypothesis\tlabel\na\tb\tneutral\nc\td\tneutral\n",
            ["first", "second", "label"],
        ),
        ("a.jsonl", '{"document": "a"}\n{"document": "b"}\n', ["document"]),
        ("a.csv", "sentence1,sentence2,score\na,b,3\nc,d,0.5\n", ["first", "second", "score"]),
    ],
)
def test_columns_of_a_users_file(tmp_path, name, content, columns):
    assert load_corpus(write(tmp_path, name, content)).columns == columns


def test_sentences_of_a_users_file_may_name_their_documents(tmp_path):
    content = "text,document_id\na,zoo\nb,zoo\nc,ark\n"
    corpus = load_corpus(write(tmp_path, "a.csv", content))
    assert corpus.columns == ["text", "document_id"]
    assert corpus.numbers("document_id").tolist() == [0, 0, 1]


def test_distinct_sentences_of_all_columns(tmp_path):
    corpus = load_corpus(
        write(tmp_path, "a.tsv", "first\tsecond\tlabel\na\tb\tx\na\tc\ty\nb\td\tx\n")
    )
    assert list(corpus.sentences().column("text")) == ["a", "b", "c", "d"]
    assert corpus.sentences().columns == ["text"]


def test_the_hash_is_of_rows_not_of_files(tmp_path):
    lines = "a cat\na dog\nun café\n"
    plain = load_corpus(write(tmp_path, "a.txt", lines))
    assert len(plain.sha256) == 64
    assert load_corpus(write(tmp_path, "b.txt.xz", lines)).sha256 == plain.sha256
    assert load_corpus(write(tmp_path, "c.csv", "text\n" + lines)).sha256 == plain.sha256
    longer = load_corpus(write(tmp_path, "d.txt", lines + "more\n"))
    assert longer.sha256 != plain.sha256
    assert (
        longer.take([0, 1, 2]).sha256
        == load_corpus(tmp_path / "d.txt", limit=3).sha256
        == plain.sha256
    )
    # Neither where one row ends and the next begins nor the order is left open.
    for other in ("a ca\nta dog\nun café\n", "a dog\na cat\nun café\n"):
        assert load_corpus(write(tmp_path, "e.txt", other)).sha256 != plain.sha256
    assert load_corpus(write(tmp_path, "f.csv", "document\n" + lines)).sha256 != plain.sha256
    scores = [
        load_corpus(write(tmp_path, "g.csv", f"first,second,score\na,b,{s}\nc,d,2\n"))
        for s in (1, 3)
    ]
    assert scores[0].sha256 != scores[1].sha256


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "one line\n", "has 1 row; training needs at least two"),
        ("a.txt", " \n\n\t\n", "the file is empty"),
        (
            "a.tsv",
            "anchor\tpositive\tid\n\t\t1\n \t \t2\n",
            "holds no text: all its fields are empty",
        ),
        (
            "a.csv",
            "sentence1,sentence2,score\na,b,high\nc,d,0.5\n",
            "column score holds string, not double (Failed to parse string: 'high' as a scalar",
        ),
        *(
            ("a.csv", f"premise,hypothesis,label\na,b,no\nc,d,{blank}\n", "a row has no label;")
            for blank in ("", '""')
        ),
        (
            "mine.csv",
            "q,a\na cat,a tom\na dog,a hound\n",
            "its columns (q, a) are none of those known; rename them to text, or",
        ),
        ("no/such.txt", None, "no/such.txt' does not exist"),
        ("", None, "' is a folder"),
    ],
)
def test_text_that_nothing_is_learnt_from_is_one_line(tmp_path, name, content, message):
    if content is not None:
        write(tmp_path, name, content)
    with pytest.raises(DataError, match=re.escape(message)):
        load_corpus(tmp_path / name)


def test_unknown_names_and_paths(tmp_path):
    with pytest.raises(UnknownName, match="'wiki1m'") as caught:
        load_corpus("wiki1")
    assert (caught.value.kind, caught.value.name) == ("corpus", "wiki1")
    with pytest.raises(SourceError, match=f"'{tmp_path}/none' does not exist"):
        load_corpus("wiki1m", corpora=tmp_path / "none")


def test_a_file_below_the_corpora_folder(tmp_path, monkeypatch):
    write(tmp_path, "a.txt", "a\nb\n")
    assert len(load_corpus("a.txt", corpora=tmp_path)) == 2
    monkeypatch.setenv("STSBENCH_CORPORA", str(tmp_path))
    assert len(load_corpus("a.txt")) == 2


MINE = """file = "mine.tsv"
rows = 3
columns = {first = 1, second = 2, label = 0}
labels = {1 = "no", 2 = "yes"}
"""


def test_a_card_of_the_users_own(tmp_path):
    mine = write(tmp_path, "mine.tsv", "2\ta\tb\n1\tc\td\n2\te\tf\n")
    cards = catalogue(tmp_path, MINE + f'sha256 = "{sha256(mine.read_bytes())}"\n')
    corpus = load_corpus("mine", corpora=tmp_path, catalogue=cards)
    assert list(corpus.column("label")) == ["yes", "no", "yes"]
    assert list(
        load_corpus("mine", corpora=tmp_path, catalogue=cards, limit=2).column("first")
    ) == ["a", "c"]


LABELS = "2\ta\tb\n1\tc\td\n"
OF_TASKS = 'tasks = ["quickstart-en"]\nrows = 601\ncolumns = {text = "text"}\n'


@pytest.mark.parametrize(
    ("content", "facts", "message"),
    [
        (
            "",
            MINE,
            "'Mine' is local only; put mine.tsv into a folder and set STSBENCH_CORPORA to it",
        ),
        (LABELS.replace("1", "3"), MINE, "corpus 'mine': label '3' is not one of 1, 2"),
        (LABELS, MINE, "corpus 'mine': 2 rows, its card says 3; restore the file, or correct "),
        (
            LABELS,
            MINE + f'sha256 = "{"f" * 64}"\n',
            "mine.tsv: differs from the file that its card ",
        ),
        ("", OF_TASKS, "corpus 'mine': 600 rows, its card says 601"),
    ],
    ids=["no file", "label", "rows", "hash", "rows of tasks"],
)
def test_text_that_is_not_as_its_card_says_is_refused(tmp_path, content, facts, message):
    if content:
        write(tmp_path, "mine.tsv", content)
    cards = catalogue(tmp_path, facts)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        load_corpus("mine", corpora=tmp_path if content else None, catalogue=cards)
    assert ("name yours by its path" in str(caught.value)) is ("sha256" in facts)


def test_documents_by_sentence(tmp_path):
    write(tmp_path, "docs.txt", "One. Two.\nThree. Four! Five?\n")
    facts = 'file = "docs.txt"\nrows = 5\ncolumns = {text = 0}\nsplit_sentences = true\n'
    corpus = load_corpus("mine", corpora=tmp_path, catalogue=catalogue(tmp_path, facts))
    assert list(corpus.column("text")) == ["One.", "Two.", "Three.", "Four!", "Five?"]
    assert corpus.numbers("document_id").tolist() == [0, 0, 1, 1, 1]
    assert corpus[2] == {"text": "Three.", "document_id": 1}


def test_from_the_hub(hub, tmp_path, monkeypatch):
    commit = hub.add("dataset", "owner/text", {"deep/train.csv": TRIPLETS.encode()}).commit
    facts = f'file = "mine.csv"\nrepo = "owner/text"\npath = "deep/train.csv"\nrevision = "{commit}"\nrows = 2\n'
    columns = 'columns = {anchor = "sent0", positive = "sent1"}\n'
    cards = catalogue(tmp_path, facts + columns)
    assert load_corpus("mine", catalogue=cards).columns == ["anchor", "positive"]
    hashed = catalogue(tmp_path / "other", f'{facts}{columns}sha256 = "{"f" * 64}"\n')
    with pytest.raises(DataError, match=r"train\.csv: .*; pin the card's revision"):
        load_corpus("mine", catalogue=hashed)
    hub_server.unplug(monkeypatch)
    other = Catalogue([tmp_path / "cards"])
    write(
        tmp_path,
        "cards/trainers/corpora.toml",
        CARD + facts.replace("owner/text", "owner/other") + columns,
    )
    with pytest.raises(SourceError, match="'owner/other'.* put mine.csv .*STSBENCH_CORPORA"):
        load_corpus("mine", catalogue=other)


def test_the_text_of_tasks_in_the_package(tmp_path):
    facts = 'tasks = ["quickstart-en"]\nrows = 600\ncolumns = {text = "text"}\n'
    corpus = load_corpus("mine", catalogue=catalogue(tmp_path, facts))
    assert list(corpus.column("text")) == load_task("quickstart-en").texts()


def test_pairs_with_gold_scores(tmp_path):
    columns = 'columns = {first = "sentence1", second = "sentence2", score = "gold"}\n'
    facts = 'tasks = ["quickstart-en"]\nsplits = ["test"]\nrows = 300\n' + columns
    corpus = load_corpus("mine", catalogue=catalogue(tmp_path, facts))
    split = load_task("quickstart-en").load()
    assert isinstance(split, PairSplit)
    assert list(corpus.column("second")) == split.sentences2
    assert corpus.numbers("score").tolist() == split.gold.tolist()


def test_a_task_without_gold_scores_gives_no_scored_pairs(tmp_path, monkeypatch):
    columns = 'columns = {first = "sentence1", second = "sentence2", score = "gold"}\n'
    facts = 'tasks = ["reviews"]\nsplits = ["test"]\nrows = 1\n' + columns
    split = LabelledSplit(sentences=["good"], labels=np.array([1]))
    reviews = SimpleNamespace(name="reviews", load=lambda name: split)
    monkeypatch.setattr(corpora_module, "load_task", lambda name, **more: reviews)
    with pytest.raises(DataError, match="corpus '.*': task 'reviews' has no pairs with gold"):
        load_corpus("mine", catalogue=catalogue(tmp_path, facts))


# The real corpora.


def corpora_folder() -> Path:
    folder = settings.corpora_folder()
    if folder is None:
        pytest.skip("STSBENCH_CORPORA names no folder of real training text")
    return folder


@pytest.mark.data
@pytest.mark.parametrize("name", Catalogue().corpora())
def test_a_real_corpus_is_as_its_card_says(name):
    card = Catalogue().corpora()[name]
    if not card.tasks and not (corpora_folder() / card.file).is_file():
        pytest.skip(f"the corpora folder has no {card.file}")
    if card.rows == 1_000_000:
        assert len(load_corpus(name, limit=1000).sentences()) > 990
        return
    corpus = load_corpus(name)
    assert (len(corpus), corpus.blanks) == (card.rows, 0)
    expected = {"text", "document_id"} if card.split_sentences else set(card.columns)
    assert set(corpus.columns) == expected


# Table 1 of the paper.
OF_CONSERT = {
    "sts12": 6216,
    "sts13": 3000,
    "sts14": 7500,
    "sts15": 17000,
    "sts16": 18366,
    "stsb": 17256,
    "sickr": 19854,
}


@pytest.mark.data
@pytest.mark.parametrize("task", OF_CONSERT)
def test_the_texts_consert_trains_on_by_task(tmp_path, task):
    facts = f'tasks = ["{task}"]\nrows = {OF_CONSERT[task]}\ncolumns = {{text = "text"}}\n'
    assert len(load_corpus("mine", catalogue=catalogue(tmp_path, facts))) == OF_CONSERT[task]


LINES = 'A cat.\nsaid "hi", twice\n\nun café\u2028still\n'
ROWS = ["A cat.", 'said "hi", twice', "", "un café\u2028still"]


def rows(path: Path, *, header: bool = True, limit: int | None = None) -> list[tuple[Any, ...]]:
    return [
        tuple(row.values())
        for row in read_training_text(path, header=header, limit=limit).to_pylist()
    ]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.xz", "a.txt.gz"])
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_lines(tmp_path, name, ends):
    path = write(tmp_path, name, LINES.replace("\n", ends))
    assert read_training_text(path, header=True).to_pydict() == {"text": ROWS}
    assert read_training_text(path, header=True, limit=2).to_pydict() == {"text": ROWS[:2]}
    # A last line without an end is a line all the same; a byte order mark is no text.
    assert rows(write(tmp_path, name, b"\xef\xbb\xbf" + LINES.strip().encode())) == [
        (row,) for row in ROWS
    ]


def test_limit_reads_no_further(tmp_path):
    whole = lzma.compress(b"a line\n" * 200_000 + bytes(range(256)) * 4000)
    path = tmp_path / "a.txt.xz"
    path.write_bytes(whole[: len(whole) // 2])
    assert len(rows(path, limit=10)) == 10
    with pytest.raises(DataError, match="a.txt.xz: is cut"):
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
    assert read_training_text(path, header=False).to_pydict() == {
        "f0": ["1", "2"],
        "f1": ['"a', 'b"c'],
    }
    assert read_training_text(path, header=True).column_names == ["1", '"a']


def test_jsonl_and_parquet(tmp_path):
    path = write(
        tmp_path, "a.jsonl.gz", '{"text": "a", "label": 1}\n{"text": "b\\nc", "label": 2}\n'
    )
    assert rows(path) == [("a", 1), ("b\nc", 2)]
    parquet.write_table(
        pa.table({"anchor": ["a", "b"], "positive": ["c", None]}), tmp_path / "a.parquet"
    )
    assert rows(tmp_path / "a.parquet") == [("a", "c"), ("b", None)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "a.txt: the file is empty"),
        ("a.txt.xz", "\n \n", "a.txt.xz: the file is empty"),
        ("a.txt", b"fine\nna\xefve\n", "a.txt: line 2: not valid UTF-8 (byte 0xef); is it Latin-1"),
        ("a.csv", b"x,y\n1,\xff\n", "a.csv: line 2: not valid UTF-8"),
        ("a.txt", "text".encode("utf-16"), "a.txt: is UTF-16; save it as UTF-8"),
        ("a.txt", b"fine\nmodel\x00\n", "a.txt: line 2: a NUL byte; mend it"),
        (
            "a.csv",
            "x,y\n3\n",
            "a.csv: not a valid .csv file: CSV parse error: Row #2: Expected 2 columns, got 1: 3",
        ),
        (
            "a.jsonl",
            '{"text": "a"}\n{"text"\n',
            "a.jsonl: line 2: not valid JSON: Input data was truncated",
        ),
        ("a.parquet", "text\n", "a.parquet: not a valid .parquet file: "),
        ("a.docx", "text\n", "a.docx: '.docx' is not a kind of training text; known: .txt, .csv, "),
        ("a.xz", "text\n", "a.xz: '' is not a kind of training text"),
    ],
)
def test_a_fault_is_one_line(tmp_path, name, content, message):
    with pytest.raises(DataError, match=re.escape(message)) as error:
        read_training_text(write(tmp_path, name, content), header=True)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300 + len(str(tmp_path))


@pytest.mark.parametrize(("suffix", "pack"), PACKERS.items())
def test_a_damaged_archive_is_one_line(tmp_path, suffix, pack):
    packed, name = pack(b"some text that goes on\n" * 50), f"a.txt{suffix}"
    for content, message in (
        (packed[:-9], "is cut off; restore it"),
        (b"plain text\n", f"is not a {suffix} file, or is damaged; restore it"),
        (packed[:20] + b"\x07\x07\x07" + packed[23:], f"is not a {suffix} file, or is damaged"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=f"{name}: {message}"):
            read_training_text(tmp_path / name, header=True)


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


LABELLED = """premise,hypothesis,label
a man,a person,entailment
a man,a dog,contradiction
a man,a father,neutral
a cup,a thing,entailment
a cup,a mug,neutral
a cup,a jug,neutral
a cup,a tree,contradiction
a cup,a mouse,contradiction
a boat,a ship,entailment
"""
GRADED = "sentence1,sentence2,score\na,b,4.5\nc,d,4\ne,f,1.25\ng,h,0\n"


def chosen(folder: Path, text: str = LABELLED, *, seed: int = 0, **facts: Any) -> Corpus:
    """A file of text as a recipe that says so takes it."""
    (folder / "pairs.csv").write_text(text)
    card = little_recipe("simcse", data=CorpusSection(corpus=str(folder / "pairs.csv"), **facts))
    return load_text(TrainPlan(name="little", card=card, seed=seed, out=folder))


def rows_of_choosing(corpus: Corpus) -> list[tuple[Any, ...]]:
    return [tuple(corpus[at].values()) for at in range(len(corpus))]


@pytest.mark.parametrize(
    ("text", "condition", "left"),
    [
        *(
            (LABELLED, f"label {sign} {label}", left)
            for sign, label, left in (("=", "entailment", 3), ("!=", "neutral", 6))
        ),
        *((LABELLED, "label=contradiction", 3), (LABELLED, "first = a cup", 5)),
        *(
            (GRADED, "score >= 4", 2),
            (GRADED, "score > 1", 3),
            (GRADED, "score<4", 2),
            (GRADED, "score != 0", 3),
        ),
    ],
)
def test_rows_of_which_a_condition_holds(tmp_path, text, condition, left):
    assert len(chosen(tmp_path, text, where=condition)) == left


FORMED = {
    ("pairs", "label = entailment"): [
        ("a man", "a person"),
        ("a cup", "a thing"),
        ("a boat", "a ship"),
    ],
    ("triplets", ""): [("a man", "a person", "a dog"), ("a cup", "a thing", "a tree")],
    ("two_negatives", ""): [
        ("a man", "a person", "a dog", "a father"),
        ("a cup", "a thing", "a tree", "a mug"),
    ],
}


@pytest.mark.parametrize(("form", "condition"), FORMED)
def test_labelled_pairs_as_rows_of_another_form(tmp_path, form, condition):
    corpus = chosen(tmp_path, form=form, where=condition)
    assert (
        corpus.columns
        == ["anchor", "positive", "negative", "second_negative"][: len(corpus.columns)]
    )
    assert rows_of_choosing(corpus) == FORMED[form, condition]


@pytest.mark.parametrize(
    ("text", "condition", "message"),
    [
        (
            LABELLED,
            "label = entailmnt",
            "leaves 0 of 9 rows; did you mean 'entailment'.*labels: contradiction, ent",
        ),
        (LABELLED, "lable = entailment", "has no lable; did you mean 'label'"),
        (LABELLED, "entailment", "give COLUMN = VALUE"),
        (LABELLED, "label = ", "give COLUMN = VALUE"),
        (LABELLED, "label >= neutral", "label is text; compare it by = or !="),
        (GRADED, "score = high", "score is a number, 'high' is not"),
        (GRADED, "score > 4.2", "leaves 1 of 4 rows"),
    ],
)
def test_what_is_no_condition_is_one_line(tmp_path, text, condition, message):
    with pytest.raises(CardError, match=f"where '{condition}': .*{message}"):
        chosen(tmp_path, text, where=condition)


ONE_ANCHOR = LABELLED.partition("a cup")[0] + "a boat,a ship,entailment\n"


@pytest.mark.parametrize(
    ("text", "facts", "error_type", "message"),
    [
        (LABELLED, {"form": "triplet"}, UnknownName, "did you mean 'triplets'"),
        (ONE_ANCHOR, {"form": "triplets"}, CardError, "form 'triplets': 1 first sentences"),
        (GRADED, {"form": "triplets"}, DataError, "pairs.csv' has no label"),
        (LABELLED, {"rows": 1}, CardError, "rows 1: the corpus has 9, and two are the fewest"),
        (
            LABELLED,
            {"upsample": True},
            CardError,
            "upsample repeats the rows that are drawn; give 'rows' too",
        ),
    ],
)
def test_a_choice_of_rows_that_cannot_be_had_is_refused(tmp_path, text, facts, error_type, message):
    with pytest.raises(error_type, match=message):
        chosen(tmp_path, text, **facts)


@pytest.mark.parametrize(("wanted", "times"), [(1, 9), (2, 4), (5, 1), (9, 1)])
def test_drawn_rows_are_repeated_to_the_length_of_the_corpus(tmp_path, wanted, times):
    drawn, once = (
        rows_of_choosing(chosen(tmp_path, rows=wanted, upsample=up)) if up or wanted > 1 else []
        for up in (True, False)
    )
    assert len(drawn) == wanted * times and len(set(drawn)) == wanted
    assert drawn == (once or drawn[:1]) * times


@pytest.mark.parametrize("facts", [{"where": "text != a"}, {"rows": 2, "upsample": True}])
def test_ordered_text_is_left_whole(tmp_path, monkeypatch, facts):
    import pyarrow as pa

    book = Corpus(name="book", table=pa.table({"text": ["a", "b", "c"], "document_id": [0, 0, 0]}))
    monkeypatch.setattr("stsbench.recipes.train_plan.load_corpus", lambda name, **where: book)
    key = next(key for key in facts if key != "rows")
    with pytest.raises(CardError, match=rf"\[data\] {key}: corpus 'book' is ordered"):
        chosen(tmp_path, **facts)


@pytest.mark.parametrize(
    ("facts", "described"),
    [
        ({}, "allnli, 942,069 rows"),
        ({"where": "label = entailment"}, "allnli"),
        ({"form": "triplets"}, "allnli"),
        ({"rows": 1000}, "allnli, 1,000 rows"),
        ({"rows": 1000, "upsample": True}, "allnli, 942,000 rows"),
        ({"rows": 1000, "upsample": True, "form": "pairs"}, "allnli"),
    ],
)
def test_an_outline_tells_how_many_rows_where_the_cards_do(tmp_path, facts, described):
    card = little_recipe("simcse", data=CorpusSection(corpus="allnli", **facts))
    plan = TrainPlan(name="little", card=card, seed=0, out=tmp_path)
    assert summarise_plan(plan, msgspec.to_builtins(card))["corpus"] == described
