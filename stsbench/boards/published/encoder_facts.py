"""The numbers of parameters of encoders, and the file of facts that cards and rows lack.

The module imports nothing heavy: lists of encoders print their sizes, and must not wait for numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from stsbench.core.cards import EncoderCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.toml import parse_toml

FACTS_FILE = Path(__file__).parent / "encoders.toml"


@cache
def read_encoder_facts() -> Mapping[str, Mapping[str, int]]:
    """Read the numbers of parameters by backbone, and the years of works by address.

    These are the facts that neither cards nor published rows have.
    """
    return parse_toml(FACTS_FILE)


def count_parameters(catalogue: Catalogue, card: EncoderCard | None, backbone: str) -> int | None:
    """Return the number of parameters (weights) of an encoder's network; None if it is unknown.

    It is the number in the encoder's card. If that is not known, it is the number of its base, the
    encoder whose embeddings it transforms, if that has a card; else that of its backbone, the
    network it is built on. A base or backbone without a number in a card has that of the file of
    facts for its backbone.

    Args:
        catalogue: The cards, in which base and backbone are looked up.
        card: The encoder's card; None if it has none.
        backbone: The name of its backbone, which may be an encoder with a card.
    """
    if card and card.parameters:
        return card.parameters
    parameters_by_backbone = read_encoder_facts()["parameters"]
    # The name of the base; None for an encoder that transforms no other one.
    base = card.params.get("base") if card else None
    for network in (base, backbone):
        if isinstance(network, str) and network in catalogue.paths("baselines"):
            network_card = catalogue.encoder(network)
            return network_card.parameters or parameters_by_backbone.get(network_card.backbone)
    return parameters_by_backbone.get(backbone)


def format_parameters(count: int) -> str:
    """Return a number of parameters to three digits: 7.11B, 109M, 22.7M."""
    if count >= 999.5e6:
        return f"{count / 1e9:.3g}B"
    return f"{count / 1e6:.0f}M" if count >= 99.95e6 else f"{count / 1e6:.3g}M"
