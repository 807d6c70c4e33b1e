"""FastSent's training beside the released code's values, its Huffman tree and vocabulary."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from stsbench.core.errors import TrainingError
from stsbench.encoders.load import load_encoder
from stsbench.encoders.tokens import TokenIds
from stsbench.training.words.fastsent import (
    SIGMOID_TABLE,
    FastSentTraining,
    HuffmanTree,
    learn_block,
)
from stsbench.training.words.rounds import Vocabulary
from tests.training.words.ordered_text import STORY, neighbours_are_near

SENTENCES = [[0, 1], [2, 0, 0], [3, 4, 6, 5], [1, 2], []]
RELEASED_SOURCE = [
    [-0.4720227, -0.3788898, 0.014986, 0.2675843],
    [0.2639886, 0.4355551, -0.492507, -0.2412079],
]
RELEASED_NODES = [
    [0.1699732, -0.375, -0.3866845, -0.0566577],
    [0.4316425, 0.375, -0.253905, -0.3105475],
]
SOURCE = (np.arange(28).reshape(7, 4) % 5 - 2) / 4
NODES = (np.arange(28).reshape(7, 4) % 7 - 3) / 8


def released(
    source: np.ndarray,
    nodes: np.ndarray,
    *,
    autoencode: bool,
    mean: bool,
    rate: float = 0.5,
    table: bool = True,
    sentences: list[list[int]] = SENTENCES,
) -> tuple[np.ndarray, np.ndarray, float]:
    """The released inner loop, word by word in float64; returns minus the words' log probabilities, summed."""
    source, nodes, loss = source.astype(float).copy(), nodes.astype(float).copy(), 0.0
    tree = ways(HuffmanTree.build(COUNTS))
    for i in range(1, len(sentences) - 1):
        context = sentences[i - 1] + (sentences[i] if autoencode else []) + sentences[i + 1]
        for word in context:
            state = np.zeros(4)
            for known in sentences[i]:
                state = state + source[known]
            count = max(len(sentences[i]), 1)
            state, work = state / (count if mean else 1), np.zeros(4)
            for code, point in zip(*tree[word], strict=True):
                product = state @ nodes[point]
                loss += np.log1p(np.exp(-product if code == 0 else product))
                if table and abs(product) >= 6:
                    continue
                value = (
                    SIGMOID_TABLE[int((product + 6) * 83)] if table else 1 / (1 + np.exp(-product))
                )
                step = (1 - code - value) * rate
                work += step * nodes[point]
                nodes[point] += step * state
            for known in sentences[i]:
                source[known] += work / (1 if mean else count)
    return source, nodes, loss


def learn(
    *,
    autoencode: bool,
    mean: bool,
    rate: float = 0.5,
    scale: float = 1.0,
    sentences: list[list[int]] = SENTENCES,
) -> tuple[np.ndarray, np.ndarray, float, int]:
    source, nodes = (SOURCE * scale).astype(np.float32), (NODES * scale).astype(np.float32)
    inner = np.arange(1, len(sentences) - 1)
    tokens, tree = TokenIds.from_lists(sentences), HuffmanTree.build(COUNTS)
    read = tokens.ids, tokens.offsets
    loss, count = learn_block(
        inner, *read, *read, tree, source, nodes, np.float32(rate), autoencode, mean
    )
    return source, nodes, loss, count


@pytest.mark.parametrize("autoencode", [False, True])
@pytest.mark.parametrize("mean", [False, True])
# With weights four times as large some products leave the table.
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_updates_are_the_released_ones(autoencode, mean, scale):
    due = released(SOURCE * scale, NODES * scale, autoencode=autoencode, mean=mean, rate=0.5)
    source, nodes, loss, count = learn(autoencode=autoencode, mean=mean, scale=scale)
    np.testing.assert_allclose(source, due[0], atol=2e-5)
    np.testing.assert_allclose(nodes, due[1], atol=2e-5)
    assert loss == pytest.approx(due[2], rel=1e-5)
    assert count == 24 if autoencode else 15


def test_one_update_of_the_released_numpy_code():
    # train_fastsent_pair of the release, run on the same numbers: word 1 predicted by words 2, 0,
    # 0. It has no table.
    pair: dict[str, Any] = {"autoencode": False, "mean": False, "sentences": [[1], [2, 0, 0], []]}
    source, nodes, _ = released(SOURCE, NODES, table=False, **pair)
    np.testing.assert_allclose(source[[0, 2]], RELEASED_SOURCE, atol=1e-6)
    np.testing.assert_allclose(nodes[[5, 3]], RELEASED_NODES, atol=1e-6)
    for found, due in zip(learn(**pair)[:2], released(SOURCE, NODES, **pair)[:2], strict=True):
        np.testing.assert_allclose(found, due, atol=2e-5)


def test_rate_falls_in_a_line():
    training = FastSentTraining()
    assert [training.decayed_rate(done, 100) for done in (0, 50, 100)] == pytest.approx(
        [0.025, 0.01255, 1e-4]
    )
    assert FastSentTraining(min_rate=0.02).decayed_rate(99, 100) == pytest.approx(0.02005)


def test_it_learns_a_small_text(tmp_path):
    training = FastSentTraining(size=16, min_count=1, epochs=60, learning_rate=0.2)
    curve = training.fit(STORY, folder=tmp_path / "run", seed=1).curve
    # Seven or eight words stand around a sentence, each as often: log 7.5 is about the best there
    # is.
    assert curve[-1]["loss"] < 2.15 < 2.6 < curve[0]["loss"]
    assert neighbours_are_near(load_encoder(tmp_path / "run"))


ALONE = {**STORY, "document_id": range(len(STORY["text"]))}
"""Each sentence is a document."""


@pytest.mark.parametrize(
    ("params", "columns", "message"),
    [
        # In blocks of two sentences nobody has two neighbours.
        (
            {"min_count": 1, "batch_size": 2},
            STORY,
            "no sentence has a neighbour with known words",
        ),
        ({"min_count": 1}, ALONE, "no sentence has a neighbour with known words"),
        ({"min_count": 10000}, STORY, "no word occurs 10000 times"),
        ({}, {"text": ["a"]}, r"ordered text of 1 sentence;"),
    ],
)
def test_text_without_neighbours_or_words_is_refused(tmp_path, params, columns, message):
    with pytest.raises(TrainingError, match=message):
        FastSentTraining(size=4, **params).fit(columns, folder=tmp_path, seed=1)


@pytest.mark.parametrize("first", [0.3, math.nan])
def test_the_best_round_is_kept(tmp_path, first: float):
    # Untrained weights are scored first and never kept.
    scores = iter([0.95, first, 0.9, 0.1])
    seen: list[bytes] = []

    def validate(encoder) -> float:
        seen.append((encoder.folder / "model.safetensors").read_bytes())
        return next(scores)

    training = FastSentTraining(size=4, min_count=1, epochs=3)
    outcome = training.fit(STORY, folder=tmp_path / "run", seed=1, validate=validate)
    assert [point["score"] for point in outcome.curve] == pytest.approx(
        [0.95, first, 0.9, 0.1], nan_ok=True
    )
    assert outcome.selected_point == {"score": 0.9, "step": outcome.curve[2]["step"]}
    assert (tmp_path / "run/model.safetensors").read_bytes() == seen[2]
    files = [
        "checkpoints",
        "config.json",
        "curve.jsonl",
        "model.safetensors",
        "stsbench.json",
        "vocab.txt",
    ]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == files


def test_vocabulary_is_by_frequency():
    text = [["b", "a", "c"], ["a", "c", "c"], ["d"]]
    vocabulary = Vocabulary.from_sentences(text, specials=("<eos>", "UNK"), limit=4)
    assert vocabulary.words == ("<eos>", "UNK", "c", "a")
    assert vocabulary.counts.tolist() == [0, 0, 3, 2]
    assert vocabulary.ids([["c", "d"]], unknown="UNK") == [[2, 1]]
    with pytest.raises(TrainingError, match="vocabulary 2 holds no word beside <eos>, UNK; raise"):
        Vocabulary.from_sentences(text, specials=("<eos>", "UNK"), limit=2)
    assert Vocabulary.from_sentences(text, min_count=2).ids([["c", "d", "a"]]) == [[0, 1]]


def test_frequent_words_are_left_out_at_times_by_gensims_rule():
    vocabulary = Vocabulary.from_sentences([["a"] * 80, ["b"] * 15, ["c"] * 5])
    keep = FastSentTraining(sample=0.1).keep_probabilities(vocabulary)
    # (sqrt(count / threshold) + 1) * threshold / count, the threshold being a tenth of all 100
    # words.
    assert keep.tolist() == pytest.approx([(8**0.5 + 1) / 8, 1, 1])
    assert FastSentTraining().keep_probabilities(vocabulary).tolist() == [1, 1, 1]


COUNTS = [19, 17, 11, 7, 5, 3, 2]
# What the released FastSent and gensim 4.4 give for the same counts.
RELEASED = [
    ([1, 1], [5, 4]),
    ([0, 1], [5, 3]),
    ([0, 0], [5, 3]),
    ([1, 0, 0], [5, 4, 2]),
    ([1, 0, 1, 0], [5, 4, 2, 1]),
    ([1, 0, 1, 1, 1], [5, 4, 2, 1, 0]),
    ([1, 0, 1, 1, 0], [5, 4, 2, 1, 0]),
]


def ways(tree: HuffmanTree) -> list[tuple[list[int], list[int]]]:
    pairs = itertools.pairwise(tree.offsets.tolist())
    return [(tree.codes[a:b].tolist(), tree.points[a:b].tolist()) for a, b in pairs]


def test_tree_is_the_released_one():
    assert ways(HuffmanTree.build(COUNTS)) == RELEASED
    assert ways(HuffmanTree.build([5])) == [([], [])]
