"""Training text by name or path: columns, errors, and the real corpora as their cards say."""

from __future__ import annotations

import lzma
import re
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from stsbench import settings
from stsbench.cards.catalogue import Catalogue
from stsbench.data.corpora.corpus import Corpus
from stsbench.data.corpora.load import load_corpus
from stsbench.data.splits import PairSplit
from stsbench.data.task import load_task
from stsbench.errors import DataError, SourceError, UnknownName
from tests import hub_server
from tests.hub_files import sha256

hub = hub_server.hub

TRIPLETS = 'sent0,sent1,hard_neg\nA cat sits.,A cat.,A dog.\n"One, two",,Three\n'
CARD = """
[mine]
name = "Mine"
license = "mine"
source = "none"
"""


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def catalogue(folder: Path, facts: str) -> Catalogue:
    (folder / "cards" / "trainers").mkdir(parents=True)
    write(folder, "cards/trainers/corpora.toml", CARD + facts)
    return Catalogue([folder / "cards"])


def test_rows_by_column(tmp_path):
    corpus = load_corpus(write(tmp_path, "nli.csv", TRIPLETS))
    assert (len(corpus), corpus.columns, corpus.blanks) == (2, ["anchor", "positive", "negative"], 1)
    assert corpus[1] == {"anchor": "One, two", "positive": " ", "negative": "Three"}
    assert corpus.__getitems__([1, 0]) == [corpus[1], corpus[0]]
    anchors = corpus.column("anchor")
    assert list(anchors) == ["A cat sits.", "One, two"] == anchors[:]
    assert (anchors[-1], anchors[1:], len(anchors), anchors.take([1, 1])) == (
        "One, two",
        ["One, two"],
        2,
        ["One, two", "One, two"],
    )
    assert corpus.take([1])[0] == corpus[1]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as worker:
        # As a data loader's workers are given it.
        assert worker.submit(Corpus.take, corpus, [1]).result()[0] == corpus[1]


def test_missing_columns_name_those_there_are(tmp_path):
    corpus = load_corpus(write(tmp_path, "pairs.csv", "sent0,sent1\na,b\nc,d\n"))
    assert corpus.require("anchor", "positive") is corpus
    with pytest.raises(
        DataError, match=re.escape("pairs.csv' has no negative (has anchor, positive); choose a corpus")
    ):
        corpus.require("anchor", "negative")
    with pytest.raises(DataError, match="has no text and no label"):
        corpus.require("text", "label")


@pytest.mark.parametrize(
    ("name", "content", "columns"),
    [
        ("a.txt", "a\nb\n", ["text"]),
        ("a.csv", "sentence,id\na,1\nb,2\n", ["text"]),
        ("a.tsv", "premise\thypothesis\tlabel\na\tb\tneutral\nc\td\tneutral\n", ["first", "second", "label"]),
        ("a.jsonl", '{"document": "a"}\n{"document": "b"}\n', ["document"]),
        ("a.csv", "sentence1,sentence2,score\na,b,3\nc,d,0.5\n", ["first", "second", "score"]),
    ],
)
def test_columns_of_a_users_file(tmp_path, name, content, columns):
    assert load_corpus(write(tmp_path, name, content)).columns == columns


def test_a_user_says_which_column_is_which(tmp_path):
    path = write(tmp_path, "mine.tsv", "1\ta cat\ta tom\n2\ta dog\ta hound\n")
    corpus = load_corpus(path, columns={"anchor": 1, "positive": 2})
    assert corpus[0] == {"anchor": "a cat", "positive": "a tom"}
    path = write(tmp_path, "mine.csv", "q,a\na cat,a tom\na dog,a hound\n")
    assert load_corpus(path, columns={"positive": "a", "anchor": "q"})[1] == {"positive": "a hound", "anchor": "a dog"}
    with pytest.raises(
        DataError, match=re.escape("its columns (q, a) are none of those known, such as text, or anchor")
    ):
        load_corpus(path)
    with pytest.raises(DataError, match=re.escape("mine.csv: no column 'b' (has q, a)")):
        load_corpus(path, columns={"text": "b"})


def test_numbers(tmp_path):
    path = write(tmp_path, "a.csv", "sentence1,sentence2,score\na,b,3\nc,d,0.5\n")
    assert load_corpus(path).numbers("score").tolist() == [3.0, 0.5]
    with pytest.raises(DataError, match="column score holds .*string, not double"):
        load_corpus(write(tmp_path, "a.csv", "sentence1,sentence2,score\na,b,high\nc,d,0.5\n"))


def test_distinct_sentences_of_all_columns(tmp_path):
    corpus = load_corpus(write(tmp_path, "a.tsv", "first\tsecond\tlabel\na\tb\tx\na\tc\ty\nb\td\tx\n"))
    assert list(corpus.sentences().column("text")) == ["a", "b", "c", "d"]
    assert corpus.sentences().columns == ["text"]


def test_the_hash_is_of_rows_not_of_files(tmp_path):
    lines = "a cat\na dog\nun café\n"
    plain = load_corpus(write(tmp_path, "a.txt", lines))
    assert len(plain.sha256) == 64
    assert load_corpus(write(tmp_path, "b.txt.xz", lzma.compress(lines.encode()))).sha256 == plain.sha256
    assert load_corpus(write(tmp_path, "c.csv", "text\n" + lines)).sha256 == plain.sha256
    longer = load_corpus(write(tmp_path, "d.txt", lines + "more\n"))
    assert longer.sha256 != plain.sha256
    assert longer.take([0, 1, 2]).sha256 == load_corpus(tmp_path / "d.txt", limit=3).sha256 == plain.sha256
    # Neither where one row ends and the next begins nor the order is left open.
    for other in ("a ca\nta dog\nun café\n", "a dog\na cat\nun café\n"):
        assert load_corpus(write(tmp_path, "e.txt", other)).sha256 != plain.sha256
    assert load_corpus(write(tmp_path, "f.csv", "document\n" + lines)).sha256 != plain.sha256
    scores = [load_corpus(write(tmp_path, "g.csv", f"first,second,score\na,b,{s}\nc,d,2\n")) for s in (1, 3)]
    assert scores[0].sha256 != scores[1].sha256


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("one line\n", "has 1 row(s); training needs at least two"),
        ("a\n\nb\n".replace("a", " ").replace("b", "\t"), "the file is empty"),
    ],
)
def test_too_little_text_is_one_line(tmp_path, content, message):
    with pytest.raises(DataError, match=re.escape(message)):
        load_corpus(write(tmp_path, "a.txt", content))


def test_no_text_at_all_is_one_line(tmp_path):
    with pytest.raises(DataError, match="holds no text: all its fields are empty"):
        load_corpus(write(tmp_path, "a.tsv", "anchor\tpositive\tid\n\t\t1\n \t \t2\n"))
    with pytest.raises(DataError, match="a corpus of 0 rows holds nothing"):
        load_corpus("wiki1m", limit=0)


def test_unknown_names_and_paths(tmp_path):
    with pytest.raises(UnknownName, match="unknown corpus 'wiki1'; did you mean 'wiki1m'"):
        load_corpus("wiki1")
    with pytest.raises(DataError, match="corpus file 'no/such.txt' does not exist"):
        load_corpus("no/such.txt")
    with pytest.raises(DataError, match="is a folder"):
        load_corpus(tmp_path)
    with pytest.raises(SourceError, match="corpora folder '.*none' does not exist"):
        load_corpus("wiki1m", corpora=tmp_path / "none")


def test_a_file_below_the_corpora_folder(tmp_path, monkeypatch):
    write(tmp_path, "a.txt", "a\nb\n")
    assert len(load_corpus("a.txt", corpora=tmp_path)) == 2
    monkeypatch.setenv("STSBENCH_CORPORA", str(tmp_path))
    assert len(load_corpus("a.txt")) == 2


def test_a_card_of_the_users_own(tmp_path):
    mine = write(tmp_path, "mine.tsv", "2\ta\tb\n1\tc\td\n2\te\tf\n")
    facts = (
        'file = "mine.tsv"\nrows = 3\ncolumns = {first = 1, second = 2, label = 0}\nlabels = {1 = "no", 2 = "yes"}\n'
    )
    cards = catalogue(tmp_path, facts + f'sha256 = "{sha256(mine.read_bytes())}"\n')
    corpus = load_corpus("mine", corpora=tmp_path, catalogue=cards)
    assert list(corpus.column("label")) == ["yes", "no", "yes"]
    assert list(load_corpus("mine", corpora=tmp_path, catalogue=cards, limit=2).column("first")) == ["a", "c"]
    with pytest.raises(SourceError, match="'Mine' is local only; put mine.tsv into a folder and set STSBENCH_CORPORA"):
        load_corpus("mine", catalogue=cards)
    write(tmp_path, "mine.tsv", "2\ta\tb\n1\tc\td\n")
    with pytest.raises(DataError, match="mine.tsv: differs from the file that its card names .*name yours by its path"):
        load_corpus("mine", corpora=tmp_path, catalogue=cards)


def test_facts_of_a_card_are_checked(tmp_path):
    write(tmp_path, "mine.tsv", "2\ta\tb\n3\tc\td\n")
    facts = (
        'file = "mine.tsv"\ncolumns = {first = 1, second = 2, label = 0}\nlabels = {1 = "no", 2 = "yes"}\nrows = 3\n'
    )
    with pytest.raises(DataError, match="corpus 'mine': label '3' is not one of 1, 2"):
        load_corpus("mine", corpora=tmp_path, catalogue=catalogue(tmp_path, facts))
    write(tmp_path, "mine.tsv", "2\ta\tb\n1\tc\td\n")
    with pytest.raises(DataError, match="corpus 'mine': 2 rows, its card says 3; restore the file, or correct"):
        load_corpus("mine", corpora=tmp_path, catalogue=Catalogue([tmp_path / "cards"]))


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
    hub_server.unplug(monkeypatch)
    other = Catalogue([tmp_path / "cards"])
    write(tmp_path, "cards/trainers/corpora.toml", CARD + facts.replace("owner/text", "owner/other") + columns)
    with pytest.raises(SourceError, match="put mine.csv into a folder and set STSBENCH_CORPORA to it"):
        load_corpus("mine", catalogue=other)


def test_the_text_of_tasks_in_the_package(tmp_path):
    facts = 'tasks = ["quickstart-en"]\nrows = 600\ncolumns = {text = "text"}\n'
    corpus = load_corpus("mine", catalogue=catalogue(tmp_path, facts))
    assert list(corpus.column("text")) == load_task("quickstart-en").texts()
    with pytest.raises(DataError, match="600 rows, its card says 601"):
        write(tmp_path, "cards/trainers/corpora.toml", CARD + facts.replace("600", "601"))
        load_corpus("mine", catalogue=Catalogue([tmp_path / "cards"]))


def test_pairs_with_gold_scores(tmp_path):
    columns = 'columns = {first = "sentence1", second = "sentence2", score = "gold"}\n'
    facts = 'tasks = ["quickstart-en"]\nsplits = ["test"]\nrows = 300\n' + columns
    corpus = load_corpus("mine", catalogue=catalogue(tmp_path, facts))
    split = load_task("quickstart-en").load()
    assert isinstance(split, PairSplit)
    assert list(corpus.column("second")) == split.sentences2
    assert corpus.numbers("score").tolist() == split.gold.tolist()


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


@pytest.mark.data
@pytest.mark.parametrize(
    ("tasks", "rows"),
    [
        (["sts12"], 6216),
        (["sts13"], 3000),
        (["sts14"], 7500),
        (["sts15"], 17000),
        (["sts16"], 18366),
        (["stsb"], 17256),
        (["sickr"], 19854),
    ],
)
def test_the_texts_consert_trains_on_by_task(tmp_path, tasks, rows):
    # Table 1 of the paper.
    facts = f'tasks = ["{tasks[0]}"]\nrows = {rows}\ncolumns = {{text = "text"}}\n'
    assert len(load_corpus("mine", catalogue=catalogue(tmp_path, facts))) == rows


@pytest.mark.data
def test_labels_of_the_labelled_pairs():
    corpora_folder()
    labels = list(load_corpus("snli_labelled_small").column("label"))
    assert {name: labels.count(name) for name in set(labels)} == {
        "neutral": 5899,
        "contradiction": 6086,
        "entailment": 6015,
    }
