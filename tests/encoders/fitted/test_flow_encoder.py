"""The encoder of BERT-flow: fitted on texts, kept, and with the backbone's dropout while fitting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from stsbench.encoders.fitted.fitted import PostProcessed
from stsbench.encoders.fitted.flow_encoder import FlowMethod, flow_encoder
from stsbench.encoders.fitted.flow_recipe import FlowRecipe
from stsbench.encoders.fitted.flow_training import train_flow
from stsbench.encoders.transformer.dropout import embed_with_dropout
from stsbench.encoders.transformer.encoder import TransformerEncoder
from stsbench.errors import CardError, EncoderError
from tests.encoders.fakes import Plain
from tests.encoders.tiny import SENTENCES

TEXTS = [f"text {i}" for i in range(80)]


def over(base: Any, *, dropout: bool = False, **recipe: Any) -> PostProcessed:
    return PostProcessed(base, FlowMethod(FlowRecipe(**recipe), dropout=dropout), name="flow", fit="target")


def test_the_encoder():
    fitted = over(Plain(d=8)).fit_texts(TEXTS)
    x = Plain(d=8).encode(TEXTS)
    flow, _ = train_flow(lambda rows: x[rows], 80, 8, FlowRecipe())
    with torch.no_grad():
        np.testing.assert_allclose(fitted.encode(TEXTS), flow(torch.from_numpy(x)), rtol=1e-4, atol=1e-5)
    odd = ["", "x" * 5000, "\U0001f600", "שלום", "half \ud83d", *TEXTS]
    whole = fitted.encode(odd)
    assert whole.dtype == np.float32
    assert whole.shape == (85, 8)
    np.testing.assert_array_equal(whole[::-1], fitted.encode(odd[::-1]))
    np.testing.assert_array_equal(whole, np.concatenate([fitted.encode([text]) for text in odd]))
    assert fitted.encode([]).shape == (0, 8)


def test_a_fit_is_kept_and_used_again():
    first = over(Plain(d=8)).fit_texts(TEXTS).encode(TEXTS)
    base = Plain(d=8)
    np.testing.assert_array_equal(over(base).fit_texts(TEXTS).encode(TEXTS), first)
    assert len(base.calls) == 1


def test_the_fingerprint_changes_when_embeddings_can():
    recipes: list[dict[str, Any]] = [
        {},
        {"seed": 1},
        {"levels": 3},
        {"depth": 2},
        {"width": 8},
        {"epochs": 2.0},
        {"learning_rate": 1e-4},
    ]
    prints = {over(Plain(d=8), **recipe).fit_texts(TEXTS).fingerprint for recipe in [*recipes, {"decay": "port"}]}
    assert len(prints) == 8
    assert over(Plain(d=8), dropout=True).fingerprint != over(Plain(d=8)).fingerprint
    assert over(Plain(d=8)).train_seed == 1234


def test_dropout_is_on_while_fitting_alone(tiny: dict[str, Path]):
    base = TransformerEncoder(str(tiny["bert"]))
    plain = base.encode(SENTENCES)
    dropped = embed_with_dropout(base, SENTENCES, seed=3)
    assert np.abs(dropped - plain).max(axis=1).min() > 1e-3
    np.testing.assert_array_equal(dropped, embed_with_dropout(base, SENTENCES, seed=3))
    assert not np.allclose(dropped, embed_with_dropout(base, SENTENCES, seed=4), atol=1e-3)
    # The same sentence twice has two masks; the mean over many is near the embedding without.
    assert SENTENCES[0] == SENTENCES[7]
    assert np.abs(dropped[0] - dropped[7]).max() > 1e-3
    np.testing.assert_array_equal(base.encode(SENTENCES), plain)
    state = torch.get_rng_state()
    embed_with_dropout(base, SENTENCES[:2], seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    fitted = over(base, dropout=True).fit_texts(SENTENCES)
    assert fitted.texts_to_embed() == ()
    assert not np.allclose(fitted.encode(SENTENCES), over(base).fit_texts(SENTENCES).encode(SENTENCES), atol=1e-3)


def test_an_encoder_without_dropout_says_so():
    with pytest.raises(EncoderError, match="encoder 'plain' has no dropout .* set dropout=false"):
        over(Plain(d=8), dropout=True).fit_texts(TEXTS).encode(["a"])


def test_wrong_parameters():
    wrongs: list[dict[str, Any]] = [{"levels": 0}, {"epochs": 0.0}, {"learning_rate": -1.0}]
    for wrong in wrongs:
        with pytest.raises(CardError, match="a flow needs levels"):
            flow_encoder("minilm", **wrong)
