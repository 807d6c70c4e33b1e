"""Checks of data: MTEB's counts on real data, a slow count of copies, and each kind of damaged text."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stsbench.core.errors import StsbenchError
from stsbench.data.quality import CHECKS, DataToCheck, Finding, check_data, load_local_splits
from stsbench.data.splits import (
    CaptionSplit,
    ContrastSplit,
    LabelledPairSplit,
    LabelledSplit,
    PairSplit,
    Split,
)
from stsbench.data.task import load_task
from stsbench.data.user_tables import find_languages

Pair = tuple[str, str]


def pairs(rows: Sequence[Pair], gold: Sequence[float] | None = None) -> PairSplit:
    scores = np.arange(len(rows), dtype=np.float64) if gold is None else np.array(gold, np.float64)
    return PairSplit(
        sentences1=[first for first, _ in rows],
        sentences2=[second for _, second in rows],
        gold=scores,
        subset=[""] * len(rows),
    )


def labelled(texts: Sequence[str], labels: Sequence[int]) -> LabelledSplit:
    return LabelledSplit(sentences=texts, labels=np.array(labels, np.int64), classes=["a", "b"])


def check(score_split: str = "test", *, only_quick: bool = False, **splits: Split) -> list[Finding]:
    return check_data(DataToCheck(splits=splits, score_split=score_split), only_quick=only_quick)


def positions(findings: Sequence[Finding], name: str, split: str = "test") -> list[int]:
    return [
        position
        for finding in findings
        if (finding.check, finding.split) == (name, split)
        for position in finding.items
    ]


@pytest.mark.data
@pytest.mark.parametrize("task", ["stsb", "stsb-raw", "stsb-en"])
def test_items_without_a_copy_are_those_that_mteb_keeps(task):
    data = DataToCheck(splits=load_local_splits(load_task(task)), score_split="test")
    alone = {
        name: (split.split.n - len(split.copied), split.split.n)
        for name, split in data.checked_splits.items()
    }
    # STSBenchmark.v2 of MTEB (pull request 4876) has 1,485 and 1,362 pairs.
    assert alone["validation"] == (1485, 1500) and alone["test"] == (1362, 1379)


def test_copies_are_those_of_a_slow_count():
    rng = random.Random(0)
    words = ["A cat", "a  CAT", "the dog", "a bird", "it", "it."]
    rows = {
        name: [(rng.choice(words), rng.choice(words)) for _ in range(40)]
        for name in ("test", "train")
    }
    gold = [float(rng.randrange(3)) for _ in range(40)]
    findings = check(test=pairs(rows["test"], gold), train=pairs(rows["train"]))

    def same(pair: Pair) -> Pair:
        first, second = (" ".join(text.lower().split()) for text in pair)
        return first, second

    test, train = ([same(pair) for pair in rows[name]] for name in ("test", "train"))
    slow: dict[str, set[int]] = {
        name: set() for name in ("leak", "doubled", "swapped", "contradicting")
    }
    for index, pair in enumerate(test):
        swapped = (pair[1], pair[0])
        if pair in train or swapped in train:
            slow["leak"].add(index)
        alike = [at for at in range(40) if test[at] in (pair, swapped)]
        if alike[0] < index:
            slow["doubled" if test[alike[0]] == pair else "swapped"].add(index)
        if len({gold[at] for at in alike}) > 1:
            slow["contradicting"].add(index)
    assert {name: positions(findings, name) for name in slow} == {
        name: sorted(found) for name, found in slow.items()
    }
    assert all(slow.values())


def test_labels_contradict_in_the_same_order_only():
    split = LabelledPairSplit(
        sentences1=["x is", "y was", "p", "p"],
        sentences2=["y was", "x is", "q", "q"],
        labels=np.array([0, 1, 0, 1]),
        classes=["a", "b"],
    )
    findings = check(test=split)
    assert positions(findings, "contradicting") == [2, 3]
    assert positions(findings, "swapped") == [1] and positions(findings, "doubled") == [3]


def test_a_split_of_folds_has_copies_in_them_and_another_has_a_leak():
    split = labelled(["one", "two", "One", "three"], [0, 1, 0, 1])
    findings = check("all", all=split)
    assert positions(findings, "folds", "all") == [0, 2]
    assert positions(findings, "doubled", "all") == [2]
    findings = check(train=split, test=labelled(["four", "ONE"], [0, 1]))
    assert positions(findings, "leak") == [1] and positions(findings, "folds", "train") == []
    assert [finding.message for finding in findings if finding.check == "leak"] == [
        "stand in another split too: train 1",
        "stand in another split too: test 2",
    ]
    # What is wrong in training data does not make a score wrong by itself.
    assert {finding.split: finding.level for finding in findings} == {
        "test": "warning",
        "train": "note",
    }
    quick = check(only_quick=True, train=split, test=labelled(["four", "ONE"], [0, 1]))
    assert [(finding.check, finding.split) for finding in quick] == [("leak", "test")]


def test_a_sentence_of_another_split_is_a_note_where_the_pair_is_new():
    findings = check(
        test=pairs([("a", "b"), ("a", "c"), ("d", "e")]), train=pairs([("b", "a"), ("c", "f")])
    )
    assert positions(findings, "leak") == [0] and positions(findings, "shared") == [1]
    (shared,) = (finding for finding in findings if finding.check == "shared")
    assert (shared.level, shared.share) == ("note", "1 of 3")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("empty", " …! "),
        ("mojibake", "Das ist schÃ¶n"),
        ("mojibake", "Itâ€™s fine"),
        ("mojibake", "Ð¿Ñ€Ð¸Ð²ÐµÑ‚"),
        ("replaced", "caf\ufffd"),
        ("bom", "\ufeffA cat"),
        ("control", "a\x0bcat"),
        ("control", "it\x92s"),
        ("entities", "Fast &amp; Furious"),
        ("entities", "one<br/>two"),
        ("ids", "see 3f2b8c1e-7a90-4d1c-9f1e-0123456789ab"),
        ("ids", "ticket doc_000123"),
        ("ids", "d41d8cd98f00b204e9800998ecf8427e"),
        ("long", "word " * 500),
    ],
)
def test_damaged_text_is_found_and_only_by_its_check(name, text):
    findings = check(test=pairs([("a cat", "a dog"), ("a bird", text), ("it rains", "it pours")]))
    assert [(finding.check, list(finding.items)) for finding in findings] == [(name, [1])]


@pytest.mark.parametrize(
    "text",
    [
        "Änderung, Größe, Œuvre, « déjà »",
        "A MAÇÃ É BOA, O PÃO TAMBÉM",
        "Ça va – “quoted” … 5 €",
        "Привет, Ёлка",
        "AT&T is at 5 < 6 & 7 > 2",
        "call 2 p.m. on 2013-11-02, A_b",
        "line one\nline two\tend",
        "the 1990s deadbeef facade, 12345678901234567",
        "👍",
    ],
)
def test_unusual_text_that_is_right_is_not_damaged(text):
    rows = [("a cat", text), ("x", "y"), ("u", "v"), ("s", "t")]
    names = {finding.check for finding in check(test=pairs(rows))}
    assert names <= {"empty"} and ("empty" in names) == (text == "👍")


def test_numbers_before_every_text_are_ids_and_a_common_greatest_length_is_a_limit():
    texts = [f"{number}. the text of a row" for number in range(30)]
    assert positions(check(test=labelled(texts, [0, 1] * 15)), "ids") == list(range(30))
    same_number = ["2 cats sit", "2 dogs sit", "2 birds sit", "4 fish swim"]
    assert positions(check(test=labelled(same_number, [0, 1] * 2)), "ids") == []
    cut = [f"{'word ' * 20}{number}"[:80] + str(number) for number in range(5)]
    whole = [*cut, "a short text", "another"]
    findings = check(test=labelled(whole, [0, 1, 0, 1, 0, 1, 0]))
    assert positions(findings, "cut") == [0, 1, 2, 3, 4]
    assert any("81 characters" in finding.message for finding in findings)
    assert positions(check(test=labelled(whole[1:], [0, 1] * 3)), "cut") == []


def test_constant_targets_are_a_warning():
    rows = [("a", "b"), ("c", "d")]
    (finding,) = check(test=pairs(rows, [2, 2]))
    assert (finding.check, finding.level, finding.share) == ("constant", "warning", "all 2")
    assert [one.check for one in check(test=labelled(["a", "b"], [1, 1]))] == ["constant"]


@pytest.mark.parametrize("counts", [[10, 10], [19, 1], [6, 7, 7], [9, 1, 1, 9], [1] * 20])
def test_the_highest_correlation_is_that_of_a_ranking_without_ties(counts):
    gold = np.repeat(np.arange(len(counts), dtype=float), counts)
    # No order without ties fits better than one in the order of the gold scores.
    highest = stats.spearmanr(np.arange(len(gold)), gold).statistic
    findings = check(test=pairs([(f"a{at}", f"b{at}") for at in range(len(gold))], list(gold)))
    messages = [finding.message for finding in findings if finding.check == "degenerate"]
    if highest >= 0.9:
        assert messages == []
    else:
        assert f"{len(counts)} values let Spearman reach {100 * highest:.1f} at most" in messages[0]


def test_a_class_of_nearly_all_items_is_a_note():
    texts = [f"text {word}" for word in "abcdefghijklmnopqrstuvwxyz"]
    (finding,) = check(test=labelled(texts, [1, *[0] * 25]))
    assert (finding.check, finding.level) == ("degenerate", "note")
    assert "96.2% are of one class" in finding.message
    assert check(test=labelled(texts, [1] * 5 + [0] * 21)) == []


def test_near_duplicates_are_in_this_split_and_others_and_are_no_copies():
    pytest.importorskip("rensa")
    test = labelled(
        [
            "the man is playing the guitar on the street",
            "the man is playing the guitar on the street!",
            "a child rides a small red bike in the park",
            "nothing like all of these others here",
            "a copy that stands in the training split",
        ],
        [0, 1, 0, 1, 0],
    )
    train = labelled(
        [
            "A child rides a small red bike in the parks",
            "a copy that stands in the training split",
        ],
        [0, 1],
    )
    splits: dict[str, Split] = {"test": test, "train": train}
    findings = check_data(DataToCheck(splits=splits, score_split="test", min_similarity=0.9))
    assert positions(findings, "near") == [0, 1, 2] and positions(findings, "leak") == [4]
    assert positions(check(test=test, train=train), "near") == []


def test_near_duplicates_need_rensa(monkeypatch):
    monkeypatch.setitem(sys.modules, "rensa", None)
    data = DataToCheck(splits={"test": labelled(["a", "b"], [0, 1])}, score_split="test")
    assert check_data(data) == []
    with pytest.raises(StsbenchError, match=r"pip install 'stsbench\[overlap\]'"):
        check_data(
            DataToCheck(splits=data.splits, score_split="test", min_similarity=0.9),
        )


def test_captions_and_contrasts_are_checked_as_far_as_they_have_items():
    captions = CaptionSplit(
        captions=["a dog", "a dog", "caf\ufffd"],
        image_features=np.zeros((3, 2), np.float32),
        image_of_caption=np.arange(3),
    )
    findings = check(test=captions, train=captions)
    assert {finding.check for finding in findings} == {"replaced"}
    contrast = ContrastSplit(anchors=["a", "a"], positives=["b", "b"], negatives=[["c", "c"]])
    assert [one.check for one in check(test=contrast)] == ["doubled"]


def use_detector(monkeypatch: pytest.MonkeyPatch, classify: Any) -> None:
    module = ModuleType("py3langid")
    module.__dict__["classify"] = classify
    monkeypatch.setitem(sys.modules, "py3langid", module)


def test_a_language_is_sure_if_most_of_enough_texts_are_in_it(monkeypatch):
    use_detector(monkeypatch, lambda text: (text.split()[0], -1.0))
    german, mixed = (
        [f"de {n}" for n in range(30)],
        [f"{'de' if n % 2 else 'nl'} {n}" for n in range(30)],
    )
    codes = [f"zxx {n}" for n in range(30)]
    assert find_languages([german, german]) == ["de"]
    assert find_languages([german[:19]]) == find_languages([["de 1"] * 100]) == []
    assert (
        find_languages([mixed]) == find_languages([codes]) == find_languages([german, mixed]) == []
    )
    monkeypatch.setitem(sys.modules, "py3langid", None)
    assert find_languages([german]) == []


def test_a_column_in_another_language_than_the_card_says_is_a_warning(monkeypatch):
    use_detector(monkeypatch, lambda text: (text.split()[0], -1.0))
    split = pairs([(f"de {n}", f"fr {n}") for n in range(30)])
    data = DataToCheck(splits={"test": split}, score_split="test", languages=["de", "en"])
    (finding,) = check_data(data)
    assert (finding.check, finding.level) == ("language", "warning")
    assert finding.message == "have a column in fr, not in de, en"
    # Neither in every run, nor where the language is not known.
    assert check_data(data, only_quick=True) == check(test=split) == []


@pytest.mark.data
def test_py3langid_finds_the_languages_of_our_tasks():
    pytest.importorskip("py3langid")
    for task in ("stsb-de", "stsb-fr", "stsb-pl", "stsb-ru", "sts17-tr-en", "mpqa"):
        card = load_task(task).card
        split = load_task(task).load(card.score_split)
        assert set(find_languages(split.sides)) == set(card.languages)


def test_every_check_has_a_name_of_its_own_and_is_made_unless_it_is_ignored():
    names = [row.name for row in CHECKS]
    assert len(set(names)) == len(names)
    split = pairs([("a", "b"), ("b", "a"), ("c\ufffd", "d")])
    data = DataToCheck(splits={"test": split}, score_split="test")
    found = [finding.check for finding in check_data(data)]
    assert found == ["contradicting", "swapped", "replaced"]
    assert check_data(data, ignored=found) == []


def test_texts_without_letters_are_in_no_language():
    assert find_languages([["123", "45"], ["😀", "6"]]) == []
