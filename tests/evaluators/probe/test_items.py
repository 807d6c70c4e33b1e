"""Items come whole or by chunks, in SentEval's order; draws are those of numpy's and torch's generators after seeding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stsbench.core.errors import DataError, EncoderError
from stsbench.data.splits import LabelledPairSplit, LabelledSplit
from stsbench.evaluators.probe import items as pool_module
from stsbench.evaluators.probe.items import Orders, first_weights, make_pool, stratified_folds, toolkit_order
from tests.evaluators.probe.helpers import Embedder, View, make_pairs, make_split


def test_rows_come_whole_from_memory(monkeypatch):
    split, embed = make_split(10)
    pool = make_pool(split, embed, "u", 1 << 20)
    (block,) = pool.blocks(np.array([3, 1]))
    assert pool.resident and pool.held == 10 * 12 * 4 and pool.width == 12
    assert np.array_equal(block.u[block.rows], np.asarray(embed(split.sentences))[[3, 1]])


def test_rows_come_by_chunks_where_memory_is_short(monkeypatch):
    monkeypatch.setattr(pool_module, "CHUNK_BYTES", 7 * 2 * 6 * 4)  # seven pairs of six numbers a side
    split, embed = make_pairs(40)
    pool = make_pool(split, embed, "abs_mul", memory=100)
    rows = np.random.default_rng(0).permutation(40)
    blocks = list(pool.blocks(rows, multiple_of=3))
    assert not pool.resident and pool.held == 0
    assert [len(block.rows) for block in blocks] == [6] * 6 + [4]
    whole = [np.asarray(embed(side)) for side in (split.sentences1, split.sentences2)]
    assert np.array_equal(np.concatenate([block.u[block.rows] for block in blocks]), whole[0][rows])
    assert np.array_equal(np.concatenate([block.v[block.rows] for block in blocks]), whole[1][rows])


def test_an_embedding_that_is_not_finite_names_its_sentence():
    split, embed = make_split(10)
    embed.vectors[split.sentences[4]][2] = np.nan
    with pytest.raises(EncoderError, match="embedding of sentence 5 of 10 .its sha256 begins [0-9a-f]{8}.$"):
        make_pool(split, embed, "u", 1 << 20)


def test_embeddings_of_a_wrong_shape_are_refused():
    split, _ = make_split(10)
    with pytest.raises(EncoderError, match=r"10 sentences gave embeddings of shape \(9, 4\)"):
        make_pool(split, lambda sentences: View(np.zeros((9, 4), dtype=np.float32)), "u", 1 << 20)


def test_zero_rows_and_sameness_are_noticed():
    split = LabelledSplit(sentences=["a", "b", "c"], labels=np.array([0, 1, 0]))
    vectors = {"a": np.ones(4, np.float32), "b": np.zeros(4, np.float32), "c": np.ones(4, np.float32)}
    pool = make_pool(split, Embedder(vectors), "u", 1 << 20)
    assert (pool.zero_rows, pool.constant) == (1, False)
    vectors["b"] = vectors["a"]
    assert make_pool(split, Embedder(vectors), "u", 1 << 20).constant


def test_features_must_suit_the_task():
    single, embed_single = make_split(4)
    pairs, embed_pairs = make_pairs(4)
    assert isinstance(pairs, LabelledPairSplit)
    with pytest.raises(DataError, match="pairs need features 'abs_mul' or 'concat_mul_abs', not 'u'"):
        make_pool(pairs, embed_pairs, "u", 1 << 20)
    with pytest.raises(DataError, match="single sentences need features 'u'"):
        make_pool(single, embed_single, "abs_mul", 1 << 20)


def random_texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join("w" for _ in range(int(k))) for k in rng.integers(0, 5, n)]


def pair_split(classes: list[str]) -> LabelledPairSplit:
    labels = np.random.default_rng(1).integers(0, 3, 300)
    sides = {"sentences1": random_texts(300, 2), "sentences2": random_texts(300, 3)}
    return LabelledPairSplit(**sides, labels=labels, classes=classes)


@pytest.mark.parametrize("second_first", [False, True])
def test_pairs_sort_by_token_counts_then_label_and_those_of_snli_by_the_name_of_the_label(second_first):
    split = pair_split(["entailment", "neutral", "contradiction"])
    sides = [split.sentences1, split.sentences2][:: -1 if second_first else 1]
    labels = [split.classes[label] if second_first else label for label in split.labels.tolist()]
    keys = [(len(a.split()), len(b.split()), c) for a, b, c in zip(*sides, labels, strict=True)]
    assert toolkit_order(split, second_first=second_first).tolist() == sorted(range(300), key=keys.__getitem__)


def test_single_sentences_sort_by_token_count_then_label():
    split = LabelledSplit(sentences=random_texts(200, 0), labels=np.random.default_rng(1).integers(0, 3, 200))
    keys = [(len(text.split()), label) for text, label in zip(split.sentences, split.labels.tolist(), strict=True)]
    assert toolkit_order(split).tolist() == sorted(range(200), key=keys.__getitem__)


def test_labels_without_names_sort_by_number():
    orders = [toolkit_order(pair_split(names), second_first=True).tolist() for names in ([], ["a", "b", "c"])]
    assert orders[0] == orders[1]


@pytest.mark.parametrize("sizes", [(384, 2), (768, 6), (30, 7, 3)])
def test_first_weights_are_those_of_linear_layers_made_after_seeding(sizes):
    tensors, generator = first_weights(1111, sizes)
    with torch.random.fork_rng():
        torch.manual_seed(1111)
        layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
        expected = [parameter for layer in layers for parameter in layer.parameters()]
        after = torch.rand(3)
    assert all(torch.equal(a, b) for a, b in zip(tensors, expected, strict=True))
    assert torch.equal(torch.rand(3, generator=generator), after)


def test_orders_are_permutations_of_the_seeded_stream():
    np.random.seed(1112)  # noqa: NPY002
    expected = [np.random.permutation(50) for _ in range(3)]  # noqa: NPY002
    orders = Orders(1112, 50)
    assert [orders.epoch(at).tolist() for at in (2, 0, 1)] == [expected[at].tolist() for at in (2, 0, 1)]
    assert orders.kept.tolist() == list(range(50))


def test_a_holdout_is_the_first_draw_of_the_stream():
    np.random.seed(1111)  # noqa: NPY002
    drawn = np.random.permutation(99)  # noqa: NPY002
    epoch = np.random.permutation(95)  # noqa: NPY002
    orders = Orders(1111, 99, holdout=0.05)
    assert orders.held_out.tolist() == drawn[:4].tolist()
    assert orders.kept.tolist() == drawn[4:].tolist()
    assert orders.epoch(0).tolist() == epoch.tolist()


def test_too_few_items_cannot_be_held_out():
    with pytest.raises(DataError, match="19 training items are too few to hold 5% of them out"):
        Orders(1111, 19, holdout=0.05)


def test_folds_are_stratified_and_rare_classes_are_borne():
    labels = np.array([0] * 20 + [1] * 20 + [2] * 2)
    folds = stratified_folds(labels, 5, 1111)
    assert sorted(np.concatenate([held_out for _, held_out in folds]).tolist()) == list(range(42))
    assert all((labels[held_out] == 0).sum() == 4 for _, held_out in folds)
    with pytest.raises(DataError, match="4 labelled items are too few for 3 folds"):
        stratified_folds(np.array([0, 0, 1, 1]), 3, 1111)
