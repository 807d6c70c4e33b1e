"""Items come whole or by chunks, in SentEval's order; draws are those of numpy's and torch's generators after seeding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stsbench.core.errors import DataError
from stsbench.data.splits import LabelledPairSplit, LabelledSplit
from stsbench.evaluators.probe import items as items_module
from stsbench.evaluators.probe.items import (
    EpochOrders,
    ProbeItems,
    first_weights,
    make_items,
    toolkit_order,
)
from tests.evaluators.probe.helpers import Embedder, make_pairs, make_split


def test_rows_come_by_chunks_where_memory_is_short(monkeypatch):
    monkeypatch.setattr(
        items_module, "MAX_CHUNK_BYTES", 7 * 2 * 6 * 4
    )  # seven pairs of six numbers a side
    split, embed = make_pairs(40)
    whole = [np.asarray(embed(side)) for side in split.sides]
    rows = np.random.default_rng(0).permutation(40)
    for memory, sizes in ((100, [6] * 6 + [4]), (40 * 2 * 6 * 4, [40])):
        pool = make_items(split, embed, "abs_mul", memory).pool
        blocks = list(ProbeItems(pool, rows, split.labels[rows]).blocks(multiple_of=3))
        assert (pool.resident_bytes, pool.width) == (0 if memory == 100 else 40 * 2 * 6 * 4, 12)
        assert [len(block.embedding_rows) for block in blocks] == sizes
        assert np.array_equal(
            np.concatenate([block.u[block.embedding_rows] for block in blocks]), whole[0][rows]
        )
        assert np.array_equal(
            np.concatenate([block.v[block.embedding_rows] for block in blocks]), whole[1][rows]
        )
        assert np.array_equal(
            np.concatenate([block.labels for block in blocks]), split.labels[rows]
        )


def test_zero_rows_and_sameness_are_noticed():
    split = LabelledSplit(sentences=["a", "b", "c"], labels=np.array([0, 1, 0]))
    vectors = {
        "a": np.ones(4, np.float32),
        "b": np.zeros(4, np.float32),
        "c": np.ones(4, np.float32),
    }
    pool = make_items(split, Embedder(vectors), "u", 1 << 20).pool
    assert (pool.zero_rows, pool.is_constant) == (1, False)
    vectors["b"] = vectors["a"]
    assert make_items(split, Embedder(vectors), "u", 1 << 20).pool.is_constant
    pairs = LabelledPairSplit(sentences1=["a", "a"], sentences2=["a", "d"], labels=np.array([0, 1]))
    different = Embedder({**vectors, "d": np.zeros(4, np.float32)})
    assert not make_items(pairs, different, "abs_mul", 1 << 20).pool.is_constant


@pytest.mark.parametrize(
    ("make", "features", "message"),
    [
        (make_pairs, "u", "pairs need features 'abs_mul' or 'concat_mul_abs', not 'u'"),
        (make_split, "abs_mul", "single sentences need features 'u'"),
    ],
)
def test_features_must_suit_the_task(make, features, message):
    split, embed = make(4)
    with pytest.raises(DataError, match=message):
        make_items(split, embed, features, 1 << 20)


@pytest.mark.parametrize("kind", ["u", "abs_mul", "concat_mul_abs"])
def test_features_come_in_pieces_in_the_order_of_the_items(kind):
    split, embed = make_split(40) if kind == "u" else make_pairs(40)
    rows = np.random.default_rng(0).permutation(40)
    items = ProbeItems(make_items(split, embed, kind, 1 << 20).pool, rows, split.labels[rows])
    u, v = (np.asarray(embed(split.sides[at]), dtype=np.float64)[rows] for at in (0, -1))
    away, product = np.abs(u - v), u * v
    expected = {"u": [u], "abs_mul": [away, product], "concat_mul_abs": [u, v, product, away]}[kind]
    pieces = list(items.features(max_items=7))
    assert [len(piece) for piece in pieces] == [7] * 5 + [5] and pieces[0].dtype == torch.float64
    np.testing.assert_allclose(torch.cat(pieces), np.hstack(expected), rtol=1e-6, atol=1e-7)
    assert [len(piece) for piece in items.features(max_items=1)] == [1] * 40


def random_texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join("w" for _ in range(int(k))) for k in rng.integers(0, 5, n)]


def pair_split(classes: list[str]) -> LabelledPairSplit:
    labels = np.random.default_rng(1).integers(0, 3, 300)
    sides = {"sentences1": random_texts(300, 2), "sentences2": random_texts(300, 3)}
    return LabelledPairSplit(**sides, labels=labels, classes=classes)


@pytest.mark.parametrize("second_first", [False, True])
def test_pairs_sort_by_token_counts_then_label_and_those_of_snli_by_the_name_of_the_label(
    second_first,
):
    split = pair_split(["entailment", "neutral", "contradiction"])
    sides = [split.sentences1, split.sentences2][:: -1 if second_first else 1]
    labels = [split.classes[label] if second_first else label for label in split.labels.tolist()]
    keys = [(len(a.split()), len(b.split()), c) for a, b, c in zip(*sides, labels, strict=True)]
    assert toolkit_order(split, second_first=second_first).tolist() == sorted(
        range(300), key=keys.__getitem__
    )


def test_single_sentences_sort_by_token_count_then_label():
    split = LabelledSplit(
        sentences=random_texts(200, 0), labels=np.random.default_rng(1).integers(0, 3, 200)
    )
    keys = [
        (len(text.split()), label)
        for text, label in zip(split.sentences, split.labels.tolist(), strict=True)
    ]
    assert toolkit_order(split).tolist() == sorted(range(200), key=keys.__getitem__)


def test_labels_without_names_sort_by_number():
    orders = [
        toolkit_order(pair_split(names), second_first=True).tolist()
        for names in ([], ["a", "b", "c"])
    ]
    assert orders[0] == orders[1]


@pytest.mark.parametrize("layers", [[(384, 2)], [(30, 7), (7, 3)]])
def test_first_weights_are_those_of_linear_layers_made_after_seeding(layers):
    tensors, generator = first_weights(1111, *layers)
    with torch.random.fork_rng():
        torch.manual_seed(1111)
        expected = [
            parameter for sizes in layers for parameter in torch.nn.Linear(*sizes).parameters()
        ]
        after = torch.rand(3)
    assert all(torch.equal(a, b) for a, b in zip(tensors, expected, strict=True))
    assert torch.equal(torch.rand(3, generator=generator), after)


def test_orders_are_permutations_of_the_seeded_stream_and_a_holdout_is_its_first_draw():
    np.random.seed(1111)  # noqa: NPY002
    drawn, *epochs = (np.random.permutation(n) for n in (99, 95, 95, 95))  # noqa: NPY002
    orders = EpochOrders(1111, 99, holdout=0.05)
    assert [orders.validation_items.tolist(), orders.training_items.tolist()] == [
        drawn[:4].tolist(),
        drawn[4:].tolist(),
    ]
    assert [orders.permutation(at).tolist() for at in (2, 0, 1)] == [
        epochs[at].tolist() for at in (2, 0, 1)
    ]
    assert EpochOrders(1111, 99).permutation(0).tolist() == drawn.tolist()
    with pytest.raises(DataError, match="19 training items are too few to hold 5% of them out"):
        EpochOrders(1111, 19, holdout=0.05)


def test_folds_are_stratified_and_rare_classes_are_borne():
    labels = np.array([0] * 20 + [1] * 20 + [2] * 2)
    items = ProbeItems(make_items(*make_split(42), "u", 1 << 20).pool, np.arange(42), labels)
    folds = items.folds(5, 1111)
    assert sorted(np.concatenate([held_out.indices for _, held_out in folds]).tolist()) == list(
        range(42)
    )
    assert all((held_out.labels == 0).sum() == 4 for _, held_out in folds)
    with pytest.raises(DataError, match="4 labelled items are too few for 3 folds"):
        items.select(np.array([0, 1, 20, 21])).folds(3, 1111)
