"""What other tools call an encoder, and what they ask of it."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard
from stsbench.results.record import Result


class Model(NamedTuple):
    """An encoder by its id on the Hub, else under the organisation ``stsbench``; its weights and its embeddings' size."""

    name: str
    revision: str
    parameters: int | None
    dimensions: int | None


def model_of(result: Result, catalogue: Catalogue) -> Model:
    """The model that a result is of.

    Its name is the id on the Hub that its card tells, or the checkpoint's where that card alone describes it: several
    poolings of one checkpoint have names of their own. Only a result that carries the card's hash is the card's. Its
    revision is the Hub's commit, else the beginning of the fingerprint: it tells states apart.
    """
    card = catalogue.known_encoder(result.encoder, result.encoder_card)
    revision = result.revision or (result.fingerprint or "no_revision_available")[:40]
    name = result.encoder if "/" in result.encoder else f"stsbench/{result.encoder}"
    told = result.run.get("dimensions")
    dimensions = told if isinstance(told, int) else None
    if card is None or "+" in result.encoder:
        return Model(name, revision, None, dimensions)
    return Model(_hub_id(card, catalogue) or name, revision, card.parameters, dimensions or card.dimensions)


def _hub_id(card: EncoderCard, catalogue: Catalogue) -> str:
    model = card.params.get("model")
    alone = isinstance(model, str) and model.count("/") == 1 and _described(catalogue)[model] == 1
    return card.hub or (str(model) if alone else "")


@lru_cache(maxsize=4)
def _described(catalogue: Catalogue) -> Counter[str]:
    """How many cards describe each checkpoint."""
    models = (catalogue.encoder(name).params.get("model") for name in catalogue.paths("baselines"))
    return Counter(model for model in models if isinstance(model, str))
