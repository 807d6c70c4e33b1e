"""What tables say of an encoder beside its scores: as its card and its published row have it, and as is known of both."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from stsbench.cards.catalogue import Catalogue
from stsbench.cards.facts import EncoderCard
from stsbench.cards.strict import Record, convert, parse_toml
from stsbench.leaderboard.published.rows import FOLDER, PublishedRow, sources
from stsbench.leaderboard.tables.table import Traits

ADDRESS = re.compile(r"https?://[^\s,]+")
YEARS = re.compile(r"arxiv\.org/abs/(?P<arxiv>\d\d)\d\d\.|aclanthology\.org/(?:(?P<acl>20\d\d)\.|[A-Z](?P<old>\d\d)-)")
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
LOADED = frozenset({"model", "package", "file", "base", "layers"})
"""Parameters of a card that say which network it is: where one is replaced, it is not the card's."""


class KnownFacts(Record, frozen=True, kw_only=True):
    """The numbers of parameters by backbone, and the years of works by address."""

    parameters: Mapping[str, int]
    years: Mapping[str, int]


@cache
def known_facts() -> KnownFacts:
    """What neither cards nor published rows say."""
    path = FOLDER / "encoders.toml"
    return convert(parse_toml(path), KnownFacts, where=str(path))


def traits_of(catalogue: Catalogue, card: EncoderCard | None = None, source: PublishedRow | None = None) -> Traits:
    """What an encoder is.

    The published row says method, backbone and supervision where there is one, and its source is the work where no
    card names another. Of an encoder that is neither in a card nor published, nothing is known.
    """
    said = source or card
    if said is None:
        return Traits()
    paper = _address(card.paper) if card else ""
    origin = sources().papers[source.quoted or source.paper] if source else None
    replaced = card is not None and bool(LOADED & _replaced(card.name))
    return Traits(
        method=said.method,
        backbone=said.backbone,
        supervision=said.supervision,
        parameters=None if replaced else _parameters(catalogue, card, said.backbone),
        year=(card.year or _year(card.paper)) if card and (card.year or paper) else origin.year if origin else None,
        paper=paper or (origin.url if origin else ""),
        model=_model(card) if card and not replaced else "",
    )


def _replaced(name: str) -> set[str]:
    """The parameters that stand replaced behind the name of a card."""
    return {change.partition("=")[0] for change in name.split("+")[1:]}


def _parameters(catalogue: Catalogue, card: EncoderCard | None, backbone: str) -> int | None:
    """As the card says, or that of the encoder it is made of; else as its backbone has them."""
    if card and card.parameters:
        return card.parameters
    names = catalogue.paths("baselines")
    for other in (card.params.get("base") if card else None, backbone):
        # A recipe's backbone may be a card's encoder.
        if isinstance(other, str) and other in names:
            below = catalogue.encoder(other)
            return below.parameters or known_facts().parameters.get(below.backbone)
    return known_facts().parameters.get(backbone)


def _address(paper: str) -> str:
    found = ADDRESS.search(paper)
    return found[0] if found else ""


def _year(paper: str) -> int | None:
    """The year of a work: as it is known by its address, or as the address says."""
    address = _address(paper)
    by_address = {one.url: one.year for one in sources().papers.values()} | dict(known_facts().years)
    if address in by_address:
        return by_address[address]
    found = YEARS.search(address)
    if found is None:
        return None
    return int(found["acl"] or f"20{found['arxiv'] or found['old']}")


def _model(card: EncoderCard) -> str:
    """The address of the model: its page on the Hub, or where else the card loads it from."""
    model = card.hub or card.params.get("model", "")
    if not isinstance(model, str) or Path(model).exists():
        return ""
    return hub_address(model) or _address(model)


def hub_address(model: str) -> str:
    """The Hub's page of an id ``organisation/name``; nothing of what is no such id."""
    return f"https://huggingface.co/{model}" if HUB_ID.fullmatch(model) else ""
