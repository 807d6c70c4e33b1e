"""What of a card decides its encoder or its score, as a hash: results carry it, and are matched to cards by it.

A task's card: its evaluator, that one's options, the split that is scored; its data have a hash of their own, wherever
they came from. An encoder's card: its kind, its parameters, its overlap, and the same of the card of its base. A recipe: method,
start, text, student, training, selection and parameters. Names, notes, sources and published rows describe, and
may be edited without making a result another card's; so may a value be written down that is the usual one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from stsbench.cards.facts import TaskCard
from stsbench.cards.recipe import DECIDING, RecipeCard

STARTED_FROM = " started from "
"""In the hash of a trained encoder: before it the recipe's, behind it that of the very files and text it was trained on."""


def task_digest(card: TaskCard) -> str:
    """The hash of how a task is scored."""
    return _digest({"evaluator": card.evaluator, "options": card.options, "score_split": card.score_split})


def encoder_digest(kind: str, params: Mapping[str, Any], overlap: str, base: str | None) -> str:
    """The hash of an encoder's card; ``base`` is that of its base's card, None where it has none."""
    return _digest({"kind": kind, "params": params, "overlap": overlap, "base": base})


def recipe_digest(card: RecipeCard, *, start: Any = None) -> str:  # noqa: ANN401 - any JSON value
    """The hash of a recipe; ``start`` is what it was begun from where that is not what the card names."""
    facts = {key: _said(getattr(card, key)) for key in DECIDING}
    return _digest(facts if start is None else {**facts, "start": start})


def trained_digest(card: RecipeCard, *, start: Any, files: Mapping[str, str], corpus: str) -> str:  # noqa: ANN401
    """The hash of what is trained by a recipe: seeds share it where base files and text are the same."""
    return f"{recipe_digest(card, start=start)}{STARTED_FROM}{_digest([files, corpus])}"


def of_card(digest: str | None) -> str | None:
    """The card's or recipe's part of the hash that a result carries."""
    return digest.partition(STARTED_FROM)[0] if digest is not None else None


def _said(value: Any) -> Any:  # noqa: ANN401 - a card's table, or a value in it
    """A table without notes and without what is as usual: a key that cards come to have later changes no hash."""
    if not isinstance(value, msgspec.Struct):
        return value
    usual = {field.name: field for field in msgspec.structs.fields(value)}
    told = {name: getattr(value, name) for name in usual if name != "note"}
    return {name: _said(one) for name, one in told.items() if one != usual_value(usual[name])}


def usual_value(field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - any default
    """What a card's key is where the card leaves it out."""
    return field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default


def _digest(facts: Any) -> str:  # noqa: ANN401 - any JSON value
    text = json.dumps(msgspec.to_builtins(facts), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
