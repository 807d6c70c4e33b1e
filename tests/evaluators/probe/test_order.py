"""Items sort as in SentEval's task files: the keys written out here are theirs."""

from __future__ import annotations

import numpy as np

from stsbench.data.splits import LabelledPairSplit, LabelledSplit
from stsbench.evaluators.probe.order import toolkit_order


def random_texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join("w" for _ in range(int(k))) for k in rng.integers(0, 5, n)]


def test_single_sentences_sort_by_token_count_then_label():
    labels = np.random.default_rng(1).integers(0, 3, 200)
    split = LabelledSplit(sentences=random_texts(200, 0), labels=labels)
    rows = list(enumerate(zip(split.sentences, labels.tolist(), strict=True)))
    expected = sorted(rows, key=lambda row: (len(row[1][0].split()), row[1][1]))
    assert toolkit_order(split).tolist() == [at for at, _ in expected]


def make_pairs(classes: list[str]) -> LabelledPairSplit:
    labels = np.random.default_rng(1).integers(0, 3, 300)
    return LabelledPairSplit(
        sentences1=random_texts(300, 2), sentences2=random_texts(300, 3), labels=labels, classes=classes
    )


def test_pairs_sort_by_first_then_second_sentence_then_label():
    split = make_pairs(["z", "y", "x"])
    rows = list(enumerate(zip(split.sentences1, split.sentences2, split.labels.tolist(), strict=True)))
    expected = sorted(rows, key=lambda row: (len(row[1][0].split()), len(row[1][1].split()), row[1][2]))
    assert toolkit_order(split).tolist() == [at for at, _ in expected]


def test_snli_sorts_by_second_sentence_and_by_the_names_of_labels():
    split = make_pairs(["entailment", "neutral", "contradiction"])
    names = [split.classes[label] for label in split.labels.tolist()]
    rows = list(enumerate(zip(split.sentences2, split.sentences1, names, strict=True)))
    expected = sorted(rows, key=lambda row: (len(row[1][0].split()), len(row[1][1].split()), row[1][2]))
    assert toolkit_order(split, second_first=True).tolist() == [at for at, _ in expected]


def test_labels_without_names_sort_by_number():
    split = make_pairs([])
    named = make_pairs(["a", "b", "c"])
    assert toolkit_order(split, second_first=True).tolist() == toolkit_order(named, second_first=True).tolist()
