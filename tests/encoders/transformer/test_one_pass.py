"""All layers and poolings in one forward pass are what each is alone, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from stsbench.encoders.engine.embed import Engine, embed_all
from stsbench.encoders.engine.store import Shelf
from stsbench.encoders.transformer.encoder import TransformerEncoder, fill, pooled_by, with_pooling
from stsbench.encoders.transformer.pooling import Pooling

TEXTS = ["a b c", "a b c d e f g", "", "b a", "c c c c c c c c c"]
NAMES = ["cls(0)", "cls(1)", "cls(-1)", "mean(0)", "mean(1)", "mean(-1)", "max(0)", "max(1)", "max(-1)"]


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_each_pooling_is_embedded_as_alone(bert, padding_side):
    base = TransformerEncoder(str(bert), name="b", padding_side=padding_side)
    poolings = [Pooling.parse(name) for name in NAMES]
    engines = [Engine(with_pooling(base, pooling), Shelf(None)) for pooling in poolings]
    fill(base, [pooled_by(one) for one in poolings], engines, TEXTS)
    for name, engine in zip(NAMES, engines, strict=True):
        alone = TransformerEncoder(str(bert), name="b", pooling=name, padding_side=padding_side)
        assert np.array_equal(np.asarray(engine(TEXTS)), embed_all(alone, TEXTS))
        assert engine.encoder.fingerprint == alone.fingerprint
        assert engine.encoded == []


def test_what_a_shelf_holds_is_left_as_it_is(bert, tmp_path):
    base = TransformerEncoder(str(bert), name="b", normalise=True)
    pooling = Pooling.parse("mean(1)")
    first = Engine(with_pooling(base, pooling), Shelf(tmp_path / "one"))
    first.prepare(TEXTS[:2])
    before = sorted(tmp_path.glob("one/*.npy"))
    other = Engine(with_pooling(base, Pooling.parse("max(1)")), Shelf(tmp_path / "two"))
    fill(base, [pooled_by(pooling), pooled_by(Pooling.parse("max(1)"))], [first, other], TEXTS)
    assert set(before) < set(tmp_path.glob("one/*.npy"))
    assert first.missing(TEXTS) == other.missing(TEXTS) == []
    assert np.linalg.norm(np.asarray(other(TEXTS[:1]))) == pytest.approx(1)
