"""Changes of a sentence's words, synonyms from a table and from WordNet, and guesses of a masked language model."""

from __future__ import annotations

import gc
import re
import sys
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.core.errors import DataError, SourceError, StsbenchError
from stsbench.training import texts
from stsbench.training.texts import MaskedFill, load_synonyms, replace_masked
from tests.training import students

WORDS = [f"w{i}" for i in range(20)]
SYNONYMS = {"cat": ["tom"], "big": ["large", "huge"], "sat": ["rested"], "e.g": ["say"]}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def lookup(word: str) -> list[str]:
    return SYNONYMS.get(word, [])


def shout(words: Any, at: Any) -> list[str]:
    return [words[i].upper() for i in at]


one_synonym = partial(texts.replace_synonyms, single=True)
ALL: dict[str, Any] = {
    "crop": partial(texts.crop, rate=0.3),
    "delete_words": partial(texts.delete_words, rate=0.3),
    "delete_one_word": texts.delete_one_word,
    "replace_one_synonym": partial(texts.replace_synonyms, synonyms=lookup, single=True),
    "replace_synonyms": partial(texts.replace_synonyms, synonyms=lookup),
    "replace_masked": partial(texts.replace_masked, fill=shout),
    "clear_delete_words": texts.clear_delete_words,
    "clear_delete_spans": texts.clear_delete_spans,
    "clear_reorder": texts.clear_reorder,
}
RATED = [name for name in ALL if "one" not in name]


def is_subsequence(short: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(word in rest for word in short)


@pytest.mark.parametrize("name", ALL)
def test_the_seed_decides_and_the_words_stay_as_they_were(name):
    words = ["The", "big", "cat", "sat", "on", "a", "big", "mat", "."] * 3
    before = list(words)
    made = [ALL[name](words, rng=rng(seed)) for seed in (1, 1, *range(2, 12))]
    assert made[0] == made[1]
    assert any(one != made[0] for one in made)
    assert words == before


@pytest.mark.parametrize("name", ALL)
def test_short_sentences_are_never_emptied(name):
    assert ALL[name]([], rng=rng()) == []
    for n in range(1, 12):
        for seed in range(20):
            made = ALL[name](WORDS[:n], rng=rng(seed))
            assert any(word != texts.DELETION_MARKER for word in made)


@pytest.mark.parametrize("name", RATED)
def test_a_rate_of_zero_changes_nothing(name):
    words = ["big", "cat", "sat"] * 5
    assert ALL[name](words, rng=rng(), rate=0) == words


@pytest.mark.parametrize(("rate", "kept"), [(0.1, 18), (0.2, 16), (0.3, 14), (0.29, 15), (1, 1)])
def test_crop_keeps_one_run(rate, kept):
    starts = set()
    for seed in range(300):
        made = texts.crop(WORDS, rate=rate, rng=rng(seed))
        at = WORDS.index(made[0])
        assert made == WORDS[at : at + kept] and len(made) == kept
        starts.add(at)
    assert starts == set(range(20 - kept + 1))


@pytest.mark.parametrize(("rate", "kept"), [(0.1, 18), (0.2, 16), (0.3, 14), (1, 1)])
def test_deleted_words_are_gone_from_anywhere(rate, kept):
    counts = Counter[str]()
    for seed in range(200):
        made = texts.delete_words(WORDS, rate=rate, rng=rng(seed))
        assert len(made) == kept and is_subsequence(made, WORDS)
        counts.update(made)
    # Every word is as likely to stay.
    assert all(abs(counts[word] / 200 - kept / 20) < 0.15 for word in WORDS)


def test_one_word_is_deleted():
    made = {tuple(texts.delete_one_word(WORDS[:3], rng=rng(seed))) for seed in range(50)}
    assert made == {("w0", "w1"), ("w0", "w2"), ("w1", "w2")}
    assert texts.delete_one_word(["only"], rng=rng()) == ["only"]


def test_one_synonym_among_the_words_that_have_some():
    words = ["The", "big", "cat", "sat", "."]
    made = {" ".join(one_synonym(words, synonyms=lookup, rng=rng(seed))) for seed in range(60)}
    assert made == {
        "The large cat sat .",
        "The huge cat sat .",
        "The big tom sat .",
        "The big cat rested .",
    }
    assert one_synonym(["no", "such", "word"], synonyms=lookup, rng=rng()) == ["no", "such", "word"]


def test_a_synonym_keeps_punctuation_and_capitals():
    for word, expected in {
        "Cat,": "Tom,",
        "(cat)": "(tom)",
        "e.g.": "say.",
        "--": "--",
        "CAT": "Tom",
    }.items():
        assert one_synonym([word], synonyms=lookup, rng=rng()) == [expected]


def test_a_share_of_synonyms():
    words = ["cat", "dog"] * 10
    made = texts.replace_synonyms(words, synonyms=lookup, rng=rng())
    assert Counter(made) == {"cat": 4, "tom": 6, "dog": 10}
    # As far as there are any.
    assert Counter(texts.replace_synonyms(words, synonyms=lookup, rng=rng(), rate=0.9)) == {
        "tom": 10,
        "dog": 10,
    }


def test_masked_words_are_filled_where_they_were():
    asked: list[tuple[list[str], list[int]]] = []

    def fill(words: Any, at: Any) -> list[str]:
        asked.append((list(words), list(at)))
        return shout(words, at)

    made = texts.replace_masked(WORDS, fill=fill, rng=rng())
    [(words, at)] = asked
    assert words == WORDS and len(at) == 3 and at == sorted(at)
    assert made == [word.upper() if i in at else word for i, word in enumerate(WORDS)]
    # One at least, however short the sentence.
    assert texts.replace_masked(["a"], fill=shout, rng=rng()) == ["A"]
    with pytest.raises(ValueError, match="zip"):
        texts.replace_masked(WORDS, fill=lambda words, at: ["one"], rng=rng())


def test_runs_of_deleted_words_leave_one_mark():
    for seed in range(100):
        made = texts.clear_delete_words(WORDS, rng=rng(seed))
        kept = [word for word in made if word != "[DEL]"]
        assert len(kept) == 6 and is_subsequence(kept, WORDS)
        # Literally: a mark wherever words are missing, and nowhere else.
        expected, last = [], -1
        for word in kept:
            at = WORDS.index(word)
            expected += ["[DEL]", word] if at > last + 1 else [word]
            last = at
        assert made == (expected if last == 19 else [*expected, "[DEL]"])


def test_each_deleted_span_leaves_a_mark():
    words = [f"w{i}" for i in range(100)]
    for seed in range(50):
        made = texts.clear_delete_spans(words, rng=rng(seed))
        assert made.count("[DEL]") == 5 and len(made) == 100 - 25 + 5
        assert is_subsequence([w for w in made if w != "[DEL]"], words)
        # Spans may touch, but each is 5 words: what is missing between kept words is a multiple of
        # it.
        at = [-1, *(int(w[1:]) for w in made if w != "[DEL]"), 100]
        assert all((b - a - 1) % 5 == 0 for a, b in zip(at, at[1:], strict=False))
    # Short sentences have room for fewer.
    assert texts.clear_delete_spans(WORDS[:3], rng=rng()).count("[DEL]") == 2
    assert texts.clear_delete_spans(WORDS[:1], rng=rng()) == ["w0"]
    assert texts.clear_delete_spans(words, rng=rng(), spans=2, rate=0.3, marker="_").count("_") == 2


def test_spans_change_places():
    words = [f"w{i}" for i in range(100)]
    for seed in range(50):
        made = texts.clear_reorder(words, rng=rng(seed))
        assert sorted(made) == sorted(words)
        moved = [i for i, word in enumerate(made) if word != words[i]]
        # Five pairs of spans of five words, every one at a new place, each in its old order.
        assert len(moved) == 50
        assert all(words[words.index(made[i])] == made[i] for i in moved)
        swapped = {i: words.index(made[i]) for i in moved}
        assert all(swapped[swapped[i]] == i for i in moved)
    made_of_two = {
        tuple(texts.clear_reorder(["a", "b"], rng=rng(seed), pairs=1, rate=0.5))
        for seed in range(5)
    }
    assert made_of_two == {("b", "a")}


def test_one_of_the_next_sentences_of_the_same_document():
    next_one = texts.next_sentences(np.array([7, 7, 7, 3, 5, 5]), rng=rng())
    assert list(zip(*map(list, next_one), strict=True)) == [(0, 1), (1, 2), (4, 5)]
    assert [len(part) for part in texts.next_sentences(np.array([], dtype=int), rng=rng())] == [
        0,
        0,
    ]
    ids = np.array([0] * 5 + [1] * 2)
    found = [texts.next_sentences(ids, rng=rng(seed), reach=3) for seed in range(200)]
    pairs = {pair for one in found for pair in zip(*map(list, one), strict=True)}
    assert pairs == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4), (5, 6)}


SYNSETS = {
    "noun": [
        ["cat", "true_cat"],
        ["guy", "cat", "hombre"],
        ["house", "dwelling"],
        ["a", "it", "vitamin"],
    ],
    "verb": [["run", "operate", "Run"]],
    "adj": [],
    "adv": [],
}
LETTERS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}


@pytest.fixture(autouse=True)
def files_are_closed() -> Iterator[None]:
    """Drop nltk's readers here: they leave their files to the garbage collector, which warns in whatever test it runs."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def write_wordnet(folder: Path) -> Path:
    """Write data and index files (man page wndb) in which every synset's offset is where it lies."""
    folder.mkdir(parents=True)
    for pos, synsets in SYNSETS.items():
        data, lemmas = "", dict[str, list[int]]()
        for words in synsets:
            at, listed = len(data), " ".join(f"{word} 0" for word in words)
            data += f"{at:08d} 03 {LETTERS[pos]} {len(words):02x} {listed} 000{' 00' * (pos == 'verb')} | gloss  \n"
            for word in words:
                lemmas.setdefault(word.lower(), [])
                lemmas[word.lower()] += [at] * (at not in lemmas[word.lower()])
        (folder / f"data.{pos}").write_text(data)
        index = [
            f"{lemma} {LETTERS[pos]} {len(ats)} 0 {len(ats)} 0 {' '.join(f'{at:08d}' for at in ats)}  \n"
            for lemma, ats in sorted(lemmas.items())
        ]
        (folder / f"index.{pos}").write_text("".join(index))
        (folder / f"{pos}.exc").write_text("ran run\n" if pos == "verb" else "")
    (folder / "lexnames").write_text("".join(f"{i:02d}\tname.{i}\t1\n" for i in range(45)))
    (folder / "cntlist.rev").write_text("")
    return folder


def test_a_table(tmp_path):
    path = tmp_path / "synonyms.tsv"
    path.write_text("Cat\ttom\tkitty\ncat\tTom\tcat\tfeline\nbig\tlarge\n")
    lookup = load_synonyms(str(path))
    assert list(lookup("cat")) == ["tom", "kitty", "Tom", "feline"]
    assert (list(lookup("big")), list(lookup("dog"))) == (["large"], [])


@pytest.mark.parametrize("line", ["lonely", "lonely\t", "\tword"])
def test_a_broken_table_is_one_line(tmp_path, line):
    path = tmp_path / "synonyms.tsv"
    path.write_text(f"big\tlarge\n{line}\n")
    with pytest.raises(
        DataError,
        match=re.escape("synonyms.tsv: line 2: needs a word and its synonyms, divided by t"),
    ):
        load_synonyms(str(path))
    with pytest.raises(DataError, match="cannot be read"):
        load_synonyms(str(tmp_path / "none.tsv"))


# nltk leaves archives open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("packed", [False, True])
def test_wordnet(tmp_path, monkeypatch, packed):
    nltk = pytest.importorskip("nltk", reason="needs nltk (extra wordnet)")
    folder = write_wordnet(tmp_path / "corpora" / "wordnet")
    if packed:
        with zipfile.ZipFile(tmp_path / "corpora" / "wordnet.zip", "w") as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, f"wordnet/{path.name}")
                path.unlink()
        folder.rmdir()
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    lookup = load_synonyms("wordnet")
    # Single words only, of all synsets, of the base form, and never the word itself.
    assert list(lookup("cat")) == ["guy", "hombre"]
    assert list(lookup("houses")) == ["house", "dwelling"]
    assert list(lookup("ran")) == ["run", "operate", "Run"]
    assert list(lookup("run")) == ["operate"]
    assert [list(lookup(word)) for word in ("dog", "a", "it")] == [[], [], []]


def test_without_wordnet_or_nltk_it_says_how_to_get_it(tmp_path, monkeypatch):
    nltk = pytest.importorskip("nltk", reason="needs nltk (extra wordnet)")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with pytest.raises(SourceError, match="^no WordNet here") as caught:
        load_synonyms("wordnet")
    assert caught.value.hint.startswith("get it once: 'python -m nltk.downloader wordnet'")
    monkeypatch.setitem(sys.modules, "nltk", None)
    with pytest.raises(
        StsbenchError,
        match=re.escape("need nltk; install it with: pip install 'stsbench[wordnet]'"),
    ):
        load_synonyms("wordnet")


def test_the_likeliest_other_word(masked_lm: Path) -> None:
    fill = MaskedFill(str(masked_lm), device="cpu")
    words, at = ["the", "big", "dog", "runs", "today"], [1, 4]
    ids = fill.tokenizer("the [MASK] dog runs [MASK]", return_tensors="pt")
    with torch.no_grad():
        logits = fill.model(**ids).logits[0, [2, 5]]
    # Literally: by falling probability, the first that is a word and not the one that was there.
    expected = []
    for row, place in zip(logits, at, strict=True):
        ranked = [
            fill.tokenizer.convert_ids_to_tokens(i) for i in row.argsort(descending=True).tolist()
        ]
        expected.append(next(w for w in ranked if w in students.WORDS and w != words[place]))
    assert fill(words, at) == expected
    made = replace_masked(words * 3, fill=fill, rate=0.4, rng=np.random.default_rng(0))
    assert sum(a != b for a, b in zip(made, words * 3, strict=True)) == 6


def test_a_mask_in_the_sentence_itself_is_no_place(masked_lm: Path) -> None:
    fill = MaskedFill(str(masked_lm), device="cpu")
    words = ["the", "big", "dog", "runs", "today"]
    due = fill(words, [1, 4])
    assert fill(["[MASK]", *words, "[MASK]"], [2, 5]) == due
    assert len(fill(["[MASK]", "the[MASK]", "[MA[MASK]SK]"], [0])) == 1


def test_words_behind_the_longest_input_stay(masked_lm: Path) -> None:
    fill = MaskedFill(str(masked_lm), device="cpu")
    words = ["dog"] * 60
    # 40 tokens are read: the mark at the beginning, 38 words, the mark at the end.
    made = fill(words, [0, 37, 38, 59])
    assert [guess != "dog" for guess in made] == [True, True, False, False]
