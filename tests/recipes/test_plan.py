"""What ``--set`` makes of a recipe."""

from __future__ import annotations

import pytest

from stsbench.core.catalogue import Catalogue
from stsbench.recipes.train_plan import read_recipe


@pytest.mark.parametrize(
    ("recipe", "assign", "steps", "epochs"),
    [
        ("sbert-small", {"steps": 3}, 3, None),
        ("simcse-small", {"epochs": 0.5}, None, 0.5),
        ("quick-thoughts-small", {"steps": 3}, 3, 9),
        ("sbert-small", {"steps": 3, "epochs": 2}, 3, 2),
    ],
)
def test_the_length_of_a_run_is_replaced_not_doubled(recipe, assign, steps, epochs):
    _, card = read_recipe(recipe, Catalogue(), params=assign)
    assert (card.training.steps, card.training.epochs) == (steps, epochs)
