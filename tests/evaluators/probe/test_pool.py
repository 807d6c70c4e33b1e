from __future__ import annotations

import numpy as np
import pytest

from stsbench.data.splits import LabelledPairSplit, LabelledSplit
from stsbench.errors import DataError, EncoderError
from stsbench.evaluators.probe import pool as pool_module
from stsbench.evaluators.probe.pool import make_pool
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
    with pytest.raises(EncoderError, match=f"embedding of '{split.sentences[4]}' is not finite"):
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
