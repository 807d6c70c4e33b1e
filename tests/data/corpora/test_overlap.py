"""Test sentences in training text: found however they are written, and counted once."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.data.corpora import overlap
from stsbench.data.corpora.corpus import Corpus, load_corpus
from stsbench.data.corpora.overlap import (
    N_HASHES,
    NearIndex,
    choose_n_bands,
    find_overlap,
    find_overlap_matches,
    letters_and_digits,
    shingles,
)
from stsbench.data.splits import LabelledSplit
from stsbench.data.task import load_task
from tests.own_tasks import CARD

TEST = "A cat, asleep!\tThe dog's here\t3\nUn café.\t-- . --\t1\nA cat, asleep!\tAnother one\t2\n"


@pytest.fixture
def tasks(tmp_path):
    (tmp_path / "cards" / "tasks").mkdir(parents=True)
    for task, text in {"pets": TEST, "others": "a\tb\t1\nc\td\t2\nThe dog s here\tf\t3\n"}.items():
        (tmp_path / "cards" / "tasks" / f"{task}.toml").write_text(CARD.format(task=task, n=3))
        (tmp_path / f"{task}.tsv").write_text(text)
    return [
        load_task(t, data=tmp_path, catalogue=Catalogue([tmp_path / "cards"]))
        for t in ("pets", "others")
    ]


def corpus(folder: Path, name: str, content: str) -> Corpus:
    (folder / name).write_text(content)
    return load_corpus(folder / name)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("A man is n't here .", "a man isn't here."),
        ("He said: ``Go .''", "He said “Go.”"),
        ("caf\u00e9 No. 5", "cafe\u0301  no 5"),
        ("\uff21\uff22\uff23", "abc"),
    ],
)
def test_writing_makes_no_difference(one, other):
    assert letters_and_digits(one) == letters_and_digits(other) != b""


@pytest.mark.parametrize(
    ("one", "other"), [("a b", "a c"), ("5 %", "6 %"), ("猫", "犬"), ("café", "caf")]
)
def test_letters_and_digits_do(one, other):
    assert letters_and_digits(one) != letters_and_digits(other)


def test_sentences_are_counted_once_for_each_task(tmp_path, tasks):
    found = find_overlap(
        corpus(tmp_path, "a.txt", "a CAT asleep\nthe dogs here\nA cat -- asleep\n...\nnew\n"), tasks
    )
    # Four sentences that have letters, two of them met; the other task shares one.
    assert [tuple(one) for one in found] == [("pets", 4, 2, 0), ("others", 6, 1, 0)]
    assert [one.overlap for one in found] == ["text", "text"]


def test_no_overlap(tmp_path, tasks):
    found = find_overlap(corpus(tmp_path, "a.txt", "nothing\nof the kind\n- . -\n"), tasks)
    assert [(one.n_found, one.overlap) for one in found] == [(0, "none"), (0, "none")]


def test_all_columns_and_sentences_of_documents(tmp_path, tasks):
    pairs = corpus(
        tmp_path, "a.csv", 'anchor,positive,negative\nx,y,un café\nx,"a cat, asleep",z\n'
    )
    assert find_overlap(pairs, tasks)[0].n_found == 2
    documents = corpus(
        tmp_path, "b.csv", "document\nFirst. Un café. A cat asleep! The end.\nMore.\n"
    )
    assert find_overlap(documents, tasks)[0].n_found == 2


def test_pairs_with_scores_are_gold(tmp_path, tasks):
    rows = "The dogs here,A cat asleep,{}\nun café,Another one,{}\n"
    scored = corpus(tmp_path, "a.csv", "sentence1,sentence2,score\n" + rows.format(3, 1))
    pets, others = find_overlap(scored, tasks)
    assert (pets.n_found, pets.n_graded, pets.overlap) == (4, 1, "gold")
    assert (others.n_found, others.n_graded, others.overlap) == (1, 0, "text")
    # A class is no score.
    labelled = corpus(tmp_path, "b.csv", "sentence1,sentence2,label\n" + rows.format("yes", "no"))
    assert find_overlap(labelled, tasks)[0].overlap == "text"
    # Nor has a pair the class of a single sentence.
    split = LabelledSplit(sentences=["great movie ."], labels=np.array([0]))
    reviews: Any = SimpleNamespace(
        name="reviews", card=SimpleNamespace(score_split="all"), load=lambda name: split
    )
    rows = "sentence1,sentence2,score\nGreat movie!,great movie,5\nx,y,1\n"
    twice = corpus(tmp_path, "c.csv", rows)
    assert find_overlap(twice, [reviews])[0].overlap == "text"


@pytest.mark.data
def test_the_methods_that_train_on_test_text_are_found_out():
    tasks = [load_task(name) for name in ("sts16", "stsb", "sickr", "trec")]
    found = {one.task: one for one in find_overlap(load_corpus("sts_sentences"), tasks)}
    assert all(
        found[name].n_found == found[name].n_sentences for name in ("sts16", "stsb", "sickr")
    )
    assert found["trec"].overlap == "none"
    # SG-BERT's raw text is the tokenised test text; other tasks are in STS-B too.
    found = {one.task: one for one in find_overlap(load_corpus("stsb_sentences"), tasks)}
    assert found["stsb"].n_found == found["stsb"].n_sentences
    assert 0 < found["sts16"].n_found < found["sts16"].n_sentences
    # STS-B's training pairs hold scores of the STS tasks it was made of.
    found = {one.task: one for one in find_overlap(load_corpus("stsb_train_pairs"), tasks)}
    assert found["sts16"].overlap == "gold"


def test_how_each_sentence_is_held_and_which_stand_side_by_side(tmp_path, tasks):
    split = tasks[0].load("test")
    text = 'anchor,positive\n"A cat, asleep!",the DOGS here\nAnother one,new\n'
    held = find_overlap_matches([corpus(tmp_path, "pairs.csv", text)], split.texts())
    assert held.kind_by_text == {
        "A cat, asleep!": "exact",
        "The dog's here": "normalised",
        "Another one": "exact",
    }
    assert held.kinds_by_item(split) == [("exact", "normalised"), (None, None), ("exact", "exact")]
    # The third pair's sentences stand in different rows.
    assert held.is_paired(split) == [True, False, False] and not any(held.is_graded(split))


def test_a_corpus_is_read_in_blocks(tmp_path, tasks, monkeypatch):
    monkeypatch.setattr(overlap, "BLOCK_ROWS", 2)
    text = corpus(tmp_path, "a.txt", "a cat asleep\nnew\nnew too\nun cafe\nthe dogs here\n")
    told: list[tuple[int, int]] = []
    held = find_overlap_matches(
        [text, text], tasks[0].load("test").texts(), progress=lambda *one: told.append(one)
    )
    assert held.kind_by_text == {"A cat, asleep!": "normalised", "The dog's here": "normalised"}
    assert told == [(2, 10), (4, 10), (5, 10), (7, 10), (9, 10), (10, 10)]


WORDS = "a an the man woman dog cat child guitar piano river street plays runs sleeps rides cuts holds red small old".split()


def jaccard(one: bytes, other: bytes) -> float:
    first, second = shingles(one), shingles(other)
    return len(first & second) / len(first | second)


def test_pairs_are_those_of_a_slow_count():
    pytest.importorskip("rensa")
    rng = random.Random(1)
    ours = [" ".join(rng.choices(WORDS, k=9)) for _ in range(300)]
    theirs = [
        " ".join(word if rng.random() > 0.1 else rng.choice(WORDS) for word in one.split())
        for one in ours
    ]
    keys, others = ([letters_and_digits(one) for one in side] for side in (ours, theirs))
    slow = {key for key in keys if any(jaccard(key, other) >= 0.8 for other in others)}
    assert 50 < len(slow) < 290
    found = NearIndex(keys, 0.8).find_near(others)
    assert found.keys() <= slow and len(found) >= 0.97 * len(slow)
    assert all(jaccard(key, other) >= 0.8 for key, other in found.items())


@pytest.mark.parametrize("threshold", [0.5, 0.7, 0.8, 0.9, 1.0])
def test_bands_find_nearly_all_at_the_threshold(threshold):
    n = choose_n_bands(threshold)
    rows = N_HASHES // n
    assert n * rows == N_HASHES
    assert 1 - (1 - threshold**rows) ** n >= 0.99


def test_without_rensa_and_beyond_reason_it_is_refused(monkeypatch):
    with pytest.raises(StsbenchError, match="0.3 is no similarity between 0.5 and 1"):
        NearIndex([b"a"], 0.3)
    monkeypatch.setitem(sys.modules, "rensa", None)
    with pytest.raises(StsbenchError, match=r"need rensa; run: pip install 'stsbench\[overlap\]'"):
        NearIndex([b"a"], 0.8)
