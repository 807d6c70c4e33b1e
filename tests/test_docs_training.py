"""What docs/training.md names is there."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "training.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(set(re.findall(r"(?:stsbench train|…) ([a-z][\w-]+)", TEXT))))
def test_every_recipe_named_is_there(name):
    from stsbench.core.catalogue import Catalogue

    assert name in Catalogue().paths("trainers")


def test_every_value_that_an_ablation_replaces_is_one():
    from stsbench.cli.options import parse_assignments
    from stsbench.core.catalogue import Catalogue
    from stsbench.recipes.plan import read_recipe
    from stsbench.training.methods import METHODS

    commands = re.findall(r"`stsbench train ([\w-]+)((?: --set (?:'[^']+'|[^ `]+))+)", TEXT)
    methods = set()
    for recipe, given in commands:
        assign = parse_assignments([word for word in shlex.split(given) if word != "--set"])
        name, card = read_recipe(recipe, Catalogue(), assign=assign)
        known = inspect.signature(METHODS.load(card.method)).parameters
        assert name.startswith(f"{recipe}+") and set(card.params) <= set(known)
        methods.add(card.method)
    assert {"simcse", "simcse_positives", "consert", "self_guided"} <= methods
