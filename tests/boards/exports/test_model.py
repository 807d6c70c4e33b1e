"""What other tools call an encoder: its id on the Hub where that is known, and is its alone."""

from __future__ import annotations

from typing import Any

import pytest

from stsbench.boards.exports.measured import model_of
from stsbench.core.catalogue import Catalogue
from tests.made import make_result

CATALOGUE = Catalogue()


@pytest.mark.parametrize(
    ("encoder", "name"),
    [
        ("minilm", "sentence-transformers/all-MiniLM-L6-v2"),
        ("e5-base-v2", "intfloat/e5-base-v2"),
        # Two poolings of one checkpoint, changed parameters, what is made over another, what no card tells.
        ("bert-base-mean", "stsbench/bert-base-mean"),
        ("roberta-large-cls", "stsbench/roberta-large-cls"),
        ("minilm+pooling=max", "stsbench/minilm+pooling=max"),
        ("minilm-whitening", "stsbench/minilm-whitening"),
        ("my-encoder", "stsbench/my-encoder"),
        ("org/name", "org/name"),
    ],
)
def test_a_name_is_the_hubs_where_one_card_alone_describes_it(encoder, name):
    assert model_of(make_result(encoder, score=0.5), CATALOGUE).name == name


def test_only_a_result_of_the_card_has_its_id_and_size():
    model = model_of(make_result("minilm", score=0.5), CATALOGUE)
    assert (model.parameters, model.dimensions) == (22_713_216, 384)
    other = model_of(make_result("minilm", score=0.5, encoder_card="e" * 64), CATALOGUE)
    assert other[0::2] == ("stsbench/minilm", None) and other.dimensions is None


@pytest.mark.parametrize(("run", "dimensions"), [({"dimensions": 128}, 128), ({}, None), ({"dimensions": "x"}, None)])
def test_a_run_tells_the_size_of_embeddings(run: dict[str, Any], dimensions):
    assert model_of(make_result("mine", score=0.5, run=run), CATALOGUE).dimensions == dimensions


def test_a_revision_is_the_hubs_commit_or_of_the_fingerprint():
    assert model_of(make_result("mine", score=0.5, revision="c" * 40), CATALOGUE).revision == "c" * 40
    assert model_of(make_result("mine", score=0.5, fingerprint="f" * 64), CATALOGUE).revision == "f" * 40
    assert model_of(make_result("mine", score=0.5, fingerprint=None), CATALOGUE).revision == "no_revision_available"
