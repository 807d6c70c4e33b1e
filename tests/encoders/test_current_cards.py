"""Cards of encoders in use now: what boards filter by and what a user must know stands there, and agrees."""

from __future__ import annotations

import re

import pytest

from stsbench.boards.tables.traits import read_traits
from stsbench.core.catalogue import Catalogue
from stsbench.core.parameters import check_params
from stsbench.encoders.kinds import ENCODERS

CATALOGUE = Catalogue()
CARDS = {name: CATALOGUE.encoder(name) for name in CATALOGUE.paths("baselines")}
CURRENT = {name: card for name, card in CARDS.items() if card.dimensions}
NOT_TOLD = {"potion-multilingual-128m"}
"""Whose documentation gives no exact number of parameters."""
RUN_BY_FILES = ("sentence_transformer", "model2vec")
"""The kinds whose checkpoints' own files say how tokens are pooled."""


def test_there_are_more_than_forty():
    assert len(CURRENT) > 40


@pytest.mark.parametrize("name", CURRENT)
def test_a_card_says_what_boards_filter_by(name):
    card = CURRENT[name]
    traits = read_traits(CATALOGUE, card)
    assert card.license
    assert traits.year and 2019 <= traits.year <= 2026
    assert traits.parameters or card.kind == "openai" or name in NOT_TOLD
    offered = card.dimensions_offered
    assert not offered or (
        offered[0] == card.dimensions and offered == sorted(set(offered), reverse=True)
    )


@pytest.mark.parametrize("name", CURRENT)
def test_a_card_says_how_it_is_run(name):
    card = CURRENT[name]
    assert check_params(ENCODERS.load(card.kind), card.params, where=name) == card.params
    assert "pooling" in card.params or card.kind in (*RUN_BY_FILES, "openai")
    prompted = {"prompt", "prompt_name", "prompt_template"} & set(card.params)
    # Published rows are documentation too.
    assert prompted or card.note or card.published
    if card.kind != "openai" and "package" not in card.params:
        assert re.fullmatch("[0-9a-f]{40}", card.params["revision"])
