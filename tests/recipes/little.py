"""A recipe of a few steps."""

from __future__ import annotations

from typing import Any

from stsbench.core.cards import BaseSection, RecipeCard, TrainingSection


def little_recipe(method: str, **given: Any) -> RecipeCard:
    """A recipe of two steps of four rows, none of whose facts is a paper's; any fact can be given."""
    facts: dict[str, Any] = {
        "name": "Little",
        "paper": "none",
        "preset": "our own",
        "supervision": "none",
        "backbone": "tiny",
        "base": BaseSection(),
        "training": TrainingSection(batch_size=4, learning_rate=1e-3, steps=2),
    }
    return RecipeCard(method=method, **{**facts, **given})
